// Main topics with their retry and dead-letter topics, and where one of these could not take what the main one took.

import { el, link, table } from "./dom.js";
import { count, number, size } from "./words.js";

export const label = "Families";
export const title = () => "Families";
export const asks = () => ({ families: "/api/v1/families" });

const list = (families) => families?.families ?? [];
const gapOf = (member) => member.gap_bytes ?? 0;
const isAligned = (member) => member.aligned ?? member.is_aligned ?? gapOf(member) <= 0;

/** Members that could not take what their main topic takes. */
export const misaligned = (families) =>
  list(families).flatMap((family) => family.members.filter((member) => !isAligned(member)));

/** The family that a topic is the main topic or a member of; null if none. */
export function familyOf(families, topic) {
  const family = list(families).find(({ main, members }) => main === topic || members.some((member) => member.topic === topic));
  return family ? one(family) : null;
}

export function body({ families }) {
  const all = list(families);
  if (!all.length) {
    return el("p", { class: "empty" }, "No family is configured or was detected: no topic is named like the retry or dead-letter topic of another.");
  }
  const gaps = misaligned(families).length;
  return [
    el("p", { role: "status", class: "quiet" }, `${count(all.length, "family", "families")}, ${gaps ? `${count(gaps, "member")} misaligned` : "all aligned"}`),
    el("p", { class: "facts" }, "A dead letter is the original record and more headers: what enters the main topic must fit all of its family."),
    all.map((family) => el("section", { "data-key": family.main }, el("h2", {}, topicLink(family.main)), one(family))),
  ];
}

const topicLink = (name) => link(`topics/${encodeURIComponent(name)}`, {}, name);

function one(family) {
  const rows = family.members.map((member) => ({
    key: member.topic,
    cells: [
      [topicLink(member.topic), el("span", { class: "quiet block" }, (member.kind ?? member.role ?? "").replace("_", " "))],
      member.limit_bytes ? number(member.limit_bytes) : el("span", { class: "quiet" }, "not known"),
      isAligned(member)
        ? el("span", { class: "good" }, "takes all")
        : el("span", { class: "neartext" }, `${number(gapOf(member))} bytes short (${size(gapOf(member))})`),
      (member.warnings ?? []).length ? el("ul", { class: "plain" }, member.warnings.map((text) => el("li", {}, text))) : el("span", { class: "quiet" }, "none"),
    ],
  }));
  return table(`Family of ${family.main}`, ["Member", { label: "Limit, bytes", kind: "num" }, "Against the main topic", { label: "Warnings", kind: "grow" }], rows);
}

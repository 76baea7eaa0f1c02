// Main topics with their retry and dead-letter topics, and where one of these could not take what the main one took.

import { el, link, table } from "./dom.js";
import { copyButton } from "./copy.js";
import { count, number, size } from "./words.js";

export const label = "Families";
export const title = () => "Families";
export const asks = () => ({ families: "/api/v1/families" });

const list = (families) => families?.families ?? [];

/** Members that could not take what their main topic takes. */
export const misaligned = (families) =>
  list(families).flatMap((family) => family.members.filter((member) => member.aligned === false));

/** The family that a topic is the main topic or a member of; null if none. */
export function familyOf(families, topic) {
  const family = list(families).find(({ main, members }) => main === topic || members.some((member) => member.topic === topic));
  return family ? one(family) : null;
}

/** What closes the gaps of these members, a line for each gap. */
export function fixes(members) {
  const lines = members.flatMap((member) => member.gates.filter(({ fix }) => fix).map((gap) => fixLine(member, gap)));
  return lines.length ? el("ul", { class: "fixes" }, lines) : null;
}

const fixLine = (member, { gate, holder, gap_bytes: gap, fix }) =>
  el("li", { "data-key": `${member.topic} ${gate} ${holder}` },
    topicLink(member.topic), ` lacks ${number(gap)} bytes at ${holder === "writer" ? "its writer" : `the gate ${gate}`}: ${fix.text}`,
    fix.command ? el("p", { class: "command" }, el("code", {}, fix.command), " ", copyButton(fix.command, "the command")) : null);

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
      [topicLink(member.topic), el("span", { class: "quiet block" }, `${member.kind.replace("_", " ")}, ${member.membership}`)],
      fit(member),
      el("ul", { class: "plain" }, member.gates.map((gap) => el("li", {},
        `${gap.holder === "writer" ? "its writer’s max.request.size" : gap.gate}: ${number(gap.member_bytes)}`,
        gap.main_bytes === null ? el("span", { class: "quiet" }, ", the main topic has no limit")
          : el("span", { class: gap.gap_bytes ? "neartext" : "quiet" }, ` of ${number(gap.main_bytes + gap.headroom_bytes)} needed`)))),
      member.warnings.length ? el("ul", { class: "plain" }, member.warnings.map((text) => el("li", {}, text))) : el("span", { class: "quiet" }, "none"),
    ],
  }));
  return [
    el("p", { class: "facts above" }, family.alignment === "enforce"
      ? "Enforced: the main topic’s limits in force allow for the members that the configuration names."
      : "Only watched: the main topic’s limits are left as they are."),
    fixes(family.members),
    rows.length ? table(`Family of ${family.main}`, ["Member", "Against the main topic", { label: "Its limits, bytes", kind: "third" }, { label: "Warnings", kind: "third" }], rows) : null,
    family.absent.length ? el("p", { class: "neartext" }, `Named in the configuration, but not there: ${family.absent.join(", ")}`) : null,
  ];
}

function fit({ aligned, gap_bytes: gap }) {
  if (aligned === null) return el("span", { class: "quiet" }, "not known yet");
  if (aligned) return el("span", { class: "good" }, "takes all");
  return el("span", { class: "neartext" }, gap === null ? "takes less" : `${number(gap)} bytes short (${size(gap)})`);
}

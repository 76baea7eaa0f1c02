// Records that wait in their producer for nothing (KAFKA-21068).

import { el, link, table } from "./dom.js";
import { whose } from "./replicas.js";
import { ago, count, number, size } from "./words.js";

export const label = "Lingering";
export const title = () => "Lingering";
export const asks = () => ({ lingering: "/api/v1/lingering" });

export const suspects = (seen) => seen?.lingering ?? [];

const seconds = (suspect) => `${Number(suspect.linger_seconds.toPrecision(2))} s`;

export const suspectLine = (suspect) =>
  [el("bdi", {}, suspect.client_id), ` (${suspect.software || "does not say what it is"}): a batch of ${size(suspect.batch_bytes)} seems to have waited about ${seconds(suspect)}. `,
    el("span", { class: "quiet" }, suspect.suggestion)];

export function body({ lingering }) {
  return section("lingering", "Producers that let large records wait", suspects(lingering),
    "None is suspected.",
    ["Topic", { label: "Client", kind: "third" }, { label: "Waited about", kind: "num" }, { label: "Batch", kind: "num" }, { label: "Largest", kind: "num" }, { label: "Seen", kind: "num" }],
    (seen) => [seconds(seen), size(seen.batch_bytes), size(seen.largest_bytes)], "suggestion");
}

/** What was seen of clients, a row for each, with the advice that goes with it. */
export function section(id, heading, all, none, heads, numbers, advice) {
  const rows = all.map((seen) => ({
    key: `${seen.topic} ${seen.partition ?? ""} ${seen.client_id} ${seen.software} ${seen.setting ?? ""} ${seen.replica ?? ""}`,
    cells: [
      link(`topics/${encodeURIComponent(seen.topic)}`, { class: "name" }, seen.topic, "partition" in seen ? `-${seen.partition}` : ""),
      [el("bdi", {}, seen.client_id || "no client id"), el("span", { class: "quiet block" }, seen.software || "does not say what it is", ` · ${seen.address}`), whose(seen)],
      ...numbers(seen),
      [`${count(seen.count, "time")}`, el("span", { class: "quiet block" }, ago((Date.now() - new Date(seen.last_at)) / 1000))],
    ],
  }));
  const texts = [...new Set(all.map((seen) => seen[advice]))];
  return el("section", { "aria-labelledby": `h-${id}` },
    el("h2", { id: `h-${id}` }, heading),
    rows.length
      ? [texts.map((text) => el("p", { class: "facts above" }, text)), table(heading, heads, rows)]
      : el("p", { class: "empty" }, none));
}

// What large batches do to consumers: those that do not get past one, and batches larger than was asked for.

import { el } from "./dom.js";
import { section } from "./lingering.js";
import { number, size } from "./words.js";

export const label = "Consumers";
export const title = () => "Consumers";
export const asks = () => ({ fetch: "/api/v1/fetch" });

export const stuck = (seen) => seen?.stuck ?? [];

export const stuckLine = (seen) =>
  [el("bdi", {}, seen.client_id || "no client id"), ` (${seen.software || "does not say what it is"}) was served the batch of ${size(seen.batch_bytes)} at offset ${number(seen.offset)} of partition ${seen.partition} ${number(seen.served)} times. `,
    el("span", { class: "quiet" }, seen.note)];

export function body({ fetch }) {
  return [
    section("stuck", "Consumers stuck behind a large batch", stuck(fetch),
      "None comes back to the same large batch again and again.",
      ["Topic", { label: "Client", kind: "third" }, { label: "At offset", kind: "num" }, { label: "Batch", kind: "num" }, { label: "Served", kind: "num" }, { label: "Seen", kind: "num" }],
      (seen) => [number(seen.offset), size(seen.batch_bytes), `${number(seen.served)} times`], "note"),
    section("oversized", "Batches larger than their consumer asked for", fetch?.oversized ?? [],
      "None was served.",
      ["Topic", { label: "Client", kind: "third" }, { label: "Its setting", kind: "num" }, { label: "Batch", kind: "num" }, { label: "Largest", kind: "num" }, { label: "Seen", kind: "num" }],
      (seen) => [[size(seen.setting_bytes), el("span", { class: "quiet block" }, seen.setting)], size(seen.batch_bytes), size(seen.largest_bytes)], "note"),
  ];
}

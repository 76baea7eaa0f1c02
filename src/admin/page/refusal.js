// One refusal at an address of its own, to be sent to a colleague.

import { el, link } from "./dom.js";
import { entry } from "./refusals.js";

export const title = (id) => `Refusal ${id}`;
export const trail = () => el("p", { class: "trail" }, link("refusals", {}, "All refusals"));
export const asks = (id) => ({ refusals: `/api/v1/refusals?id=${encodeURIComponent(id)}` });

export function body({ refusals: { refusals }, state }, { name }) {
  if (refusals.length) return el("ol", { class: "refusals" }, refusals.map(entry));
  const replicas = state.status?.replicas ?? [];
  const where = replicas.length > 1 ? "these replicas keep" : "this sizegate keeps";
  return el("p", { class: "empty" }, `It is not among the last 1,000 refusals that ${where}. The log has it: look for id=${name}.`);
}

// The replicas that are shown together (`admin.peers`), and which of them did not answer.

import { el, table } from "./dom.js";
import { ago, number, size } from "./words.js";

export const label = "Replicas";
export const title = () => "Replicas";
export const asks = () => ({ status: "/api/v1/status" });

/** More than this one is asked. */
export const areThere = (state) => (state.status?.replicas?.length ?? 0) > 1;
/** Whether rows say whose they are. */
let areMany = false;
export const tellWhose = (state) => {
  areMany = areThere(state);
};

/** Which replicas a row comes from; nothing where there is only one. */
export function whose(row) {
  if (!areMany) return null;
  const names = row.replicas ?? (row.replica ? [row.replica] : []);
  return names.length ? el("span", { class: "quiet block" }, "at ", names.map((name, i) => [i ? ", " : "", el("bdi", {}, name)])) : null;
}

/** What of the other replicas needs attention: class, what it is, words. */
export function troubles({ status }) {
  const [own, ...others] = status.replicas ?? [];
  const found = [];
  for (const replica of others) {
    const name = el("bdi", {}, replica.instance);
    if (replica.error) {
      const where = replica.address === replica.instance ? "" : ` (${replica.address})`;
      found.push(["over", el("strong", {}, "Replica ", name, `${where} does not answer: `), replica.error, ". What is shown is of the others."]);
      continue;
    }
    for (const why of replica.why_not_ready ?? []) found.push(["over", el("strong", {}, "Replica ", name, " is not ready: "), why]);
    if (replica.control_plane?.is_up === false) found.push(["over", el("strong", {}, "Replica ", name, " cannot read topics and limits. "), replica.control_plane.error ?? ""]);
    if (replica.reload?.error) found.push(["over", el("strong", {}, "Replica ", name, " has a mistake in its changed configuration"), "; the last good one stays in force.", el("pre", {}, replica.reload.error)]);
    if (own && replica.mode && replica.mode !== own.mode) found.push(["near", el("strong", {}, "Replicas differ: "), name, ` has mode ${replica.mode}, this one ${own.mode}.`]);
    if (own && replica.version && replica.version !== own.version) found.push(["near", el("strong", {}, "Replicas differ: "), name, ` runs ${replica.version}, this one ${own.version}.`]);
  }
  return found;
}

export function body({ status: { replicas } }) {
  if (replicas.length < 2) {
    return el("p", { class: "empty" }, "Only this one is known. Name the others in admin.peers of the configuration to see all of them together.");
  }
  const rows = replicas.map((replica) => ({
    key: `${replica.instance} ${replica.address}`,
    cells: [
      [el("bdi", { class: "name" }, replica.instance), el("span", { class: "quiet block" }, replica.address ?? "this one")],
      state(replica),
      ...(replica.version
        ? [`${replica.mode}, ${replica.version}`, number(replica.connections), `${size(replica.held_bytes)} of ${size(replica.memory_budget_bytes)}`,
          replica.control_plane.limits_age_seconds === null ? "not yet" : ago(replica.control_plane.limits_age_seconds)]
        : ["", "", "", ""]),
    ],
  }));
  return table("Replicas", ["Replica", { label: "State", kind: "third" }, "Mode, version", { label: "Client connections", kind: "num" }, { label: "Held", kind: "num" }, { label: "Limits read", kind: "num" }], rows);
}

function state(replica) {
  if (replica.error) return el("span", { class: "overtext" }, `does not answer: ${replica.error}`);
  return replica.why_not_ready.length ? el("span", { class: "overtext" }, `not ready: ${replica.why_not_ready.join("; ")}`) : el("span", { class: "good" }, "ready");
}

// The last hour's refusals, by topic, gate and client: what whoever is woken needs first.

import { el, link, table } from "./dom.js";
import { whose } from "./replicas.js";
import { ago, clock, count, number } from "./words.js";

/** Those that refused, or would have, in the last ten minutes; what was refused before what would have been. */
export const now = (groups) =>
  groups.filter((group) => group.last_ten_minutes > 0).sort((a, b) => Number(a.is_observed) - Number(b.is_observed) || b.last_ten_minutes - a.last_ten_minutes);

const gateOf = (group) => group.gate ?? "broker";
const verb = (group) => (group.is_observed ? "would have been refused" : group.refused_by === "broker" ? "refused by the broker" : "refused");
const since = (at) => ago((Date.now() - new Date(at)) / 1000);
const keyOf = (group) => `${group.topic} ${gateOf(group)} ${group.client_id} ${group.refused_by} ${group.is_observed}`;
const client = (group) => el("bdi", {}, group.client_id || "no client id");

/** A link to the last refusal of the group. */
const lastOne = (group) => link(`refusal/${encodeURIComponent(group.last_id)}`, {}, since(group.last_at));

/** A bar for each minute of the last hour; the words beside it say the sum. */
export function minutes(byMinute) {
  const most = Math.max(1, ...byMinute);
  const bars = byMinute.map((n, i) => (n ? el("rect", { class: "column", x: i * 2, width: 1.6, y: (16 - Math.max(2, (16 * n) / most)).toFixed(1), height: Math.max(2, (16 * n) / most).toFixed(1) }) : null));
  return el("svg", { class: "minutes", width: 120, height: 18, viewBox: "0 0 120 18", "aria-hidden": "true" },
    el("line", { class: "axis", x1: 0, x2: 120, y1: 17, y2: 17 }), bars);
}

/** One line under "Needs attention". */
export function groupLine(group) {
  return el("li", { class: group.is_observed ? "near" : "over", "data-key": keyOf(group) },
    el("strong", {}, `${number(group.last_ten_minutes)} ${verb(group)}`), " in the last ten minutes: ",
    link(`topics/${encodeURIComponent(group.topic)}`, {}, group.topic), ", gate ", gateOf(group), ", ", client(group),
    el("span", { class: "quiet" }, `. ${number(group.last_hour)} in the last hour, the first at ${clock(group.first_at)}, the last `), lastOne(group), " ",
    minutes(group.by_minute), whose(group));
}

/** All groups of the last hour that `matches`. */
export function recentTable(groups, matches) {
  const rows = groups.filter(matches).map((group) => ({
    key: keyOf(group),
    cells: [
      [link(`topics/${encodeURIComponent(group.topic)}`, { class: "name" }, group.topic), whose(group)],
      el("span", { class: `chip ${group.is_observed ? "near" : "over"}`, title: verb(group) }, gateOf(group)),
      [client(group), el("span", { class: "quiet block" }, group.software || "does not say what it is")],
      number(group.last_ten_minutes),
      [number(group.last_hour), " ", minutes(group.by_minute)],
      clock(group.first_at),
      lastOne(group),
    ],
  }));
  if (!rows.length) return null;
  return el("section", { "aria-labelledby": "h-recent" },
    el("h2", { id: "h-recent" }, "In the last hour"),
    el("p", { class: "quiet above" }, count(rows.length, "group"), " of topic, gate and client, minute by minute"),
    table("Refused in the last hour", ["Topic", "Gate", "Client", { label: "Last ten minutes", kind: "num" }, { label: "Last hour", kind: "num" }, "First", "Last"], rows));
}

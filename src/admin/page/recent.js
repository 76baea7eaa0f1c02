// What was refused in the last ten minutes, by topic, gate and client; and how it went over the last hour.

import { el, link } from "./dom.js";
import { clock, count, number } from "./words.js";

/** Groups that are named above every view; the rest are counted. */
const NAMED = 5;

/** For "Needs attention": what it says, how bad it is, and how often; null where nothing was refused. */
export function refusedNow(groups) {
  const now = groups.filter((group) => group.last_ten_minutes > 0);
  if (!now.length) return null;
  const sum = now.reduce((sum, group) => sum + group.last_ten_minutes, 0);
  const refused = now.some((group) => !group.is_observed);
  return {
    kind: refused ? "over" : "near",
    count: sum,
    item: [
      el("strong", {}, `${count(sum, "batch", "batches")} ${refused ? "refused" : "would be refused"} in the last ten minutes. `),
      el("ul", { class: "recent" }, now.slice(0, NAMED).map((group) => el("li", {}, told(group)))),
      now.length > NAMED ? link("refusals", {}, `${count(now.length - NAMED, "more group")}`) : null,
    ],
  };
}

/** One group in a line. */
function told(group) {
  const client = group.client_id || "a client without an id";
  return [
    link(`topics/${encodeURIComponent(group.topic)}`, { class: "name" }, group.topic),
    ` · ${group.gate ?? "broker"} · ${client}: `,
    el("strong", {}, number(group.last_ten_minutes)),
    group.is_observed ? " observed" : group.refused_by === "broker" ? " by the broker" : "",
    `, first ${clock(group.first_at)}, last `,
    link(`refusals?topic=${encodeURIComponent(group.last_id)}`, {}, clock(group.last_at)),
  ];
}

/** The last hour of all groups that match, as bars of a minute each; null where nothing was refused. */
export function hour(groups) {
  const minutes = Array.from({ length: 60 }, (_, at) => groups.reduce((sum, group) => sum + (group.by_minute[at] ?? 0), 0));
  const most = Math.max(...minutes);
  const sum = minutes.reduce((sum, minute) => sum + minute, 0);
  if (!sum) return null;
  const words = `${count(sum, "batch", "batches")} in the last hour, at most ${number(most)} a minute`;
  const bar = (minute, at) => el("rect", {
    class: "fill", x: at * 4, width: 3, y: 30 - (30 * minute) / most, height: (30 * minute) / most,
  });
  return el("figure", { class: "hour" },
    el("svg", { viewBox: "0 0 240 30", role: "img", "aria-label": words, preserveAspectRatio: "none" }, minutes.map(bar)),
    el("figcaption", { class: "quiet" }, words));
}

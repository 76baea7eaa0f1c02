// How near a topic is to each of its limits.

import { el } from "./dom.js";
import { GATES, limitText, measured, number, sourceWord } from "./words.js";

/** Each limit of a topic with what was measured at its gate. */
export function gates(topic, nearShare) {
  return topic.limits.map((limit) => {
    const counts = topic.gates.find(({ gate }) => gate === limit.gate);
    const largest = measured(topic.largest, limit.gate);
    const share = largest === null || limit.gate === "ratio" ? null : largest / limit.limit_bytes;
    const isOver = (counts?.violations ?? 0) > 0;
    const isNear = (counts?.near_limit ?? 0) > 0 || (share ?? 0) > nearShare;
    return {
      ...limit,
      largest,
      share,
      near: counts?.near_limit ?? 0,
      over: counts?.violations ?? 0,
      kind: isOver ? "over" : isNear ? "near" : share === null ? "none" : "within",
    };
  });
}

/** Decoration: the words beside it say the same. */
export function bar({ share, kind }, nearShare) {
  const filled = Math.min(100, Math.max(share > 0 ? 1 : 0, (share ?? 0) * 100));
  return el("svg", { class: `bar ${kind}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    el("rect", { class: "track", width: 100, height: 8, rx: 1 }),
    el("rect", { class: "fill", width: filled.toFixed(1), height: 8, rx: 1 }),
    el("rect", { class: "mark", x: nearShare * 100 - 0.4, width: 0.8, height: 8 }));
}

export const percent = (share) => (share > 0 && share < 0.01 ? "under 1 %" : `${number(Math.floor(share * 100))} %`);

/** One line of a list: gate, bar, words. */
export function gateLine(gate, nearShare) {
  const words = gate.share === null
    ? ["limit ", limitText(gate.gate, gate.limit_bytes)]
    : [el("strong", {}, percent(gate.share)), " of ", limitText(gate.gate, gate.limit_bytes)];
  return el("li", { class: gate.kind },
    el("span", { class: "gate", title: GATES[gate.gate] ?? null }, gate.gate),
    bar(gate, nearShare),
    el("span", { class: "share" }, words,
      el("span", { class: "quiet" }, ` · ${sourceWord(gate)}`),
      gate.over ? el("span", { class: "overtext" }, ` · ${number(gate.over)} over`) : null));
}

/** The words for "largest that passed" in a table. */
export const largestText = (gate) =>
  gate.largest === null ? "not measured" : number(gate.largest);

export const countText = (gate) =>
  [gate.near ? `${number(gate.near)} near` : null, gate.over ? `${number(gate.over)} over` : null].filter(Boolean).join(", ") || "none";

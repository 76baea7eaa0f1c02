// One topic: every gate with its limit, the sizes seen, the last refusals.

import { el, link, table } from "./dom.js";
import { bar, countText, gates, largestText, percent } from "./bars.js";
import { distribution, MEASURES } from "./chart.js";
import { entry } from "./refusals.js";
import { familyOf } from "./families.js";
import { stuck, stuckLine } from "./consumers.js";
import { suspects, suspectLine } from "./lingering.js";
import { whose } from "./replicas.js";
import { GATES, count, limitText, number, sourceText } from "./words.js";

const REFUSALS = 10;

export const title = (name) => name;

export const trail = () => el("p", { class: "trail" }, link("topics", {}, "All topics"));

export const asks = (name) => {
  const topic = encodeURIComponent(name);
  return {
    topics: `/api/v1/topics?topic=${topic}`,
    sizes: `/api/v1/sizes?topic=${topic}`,
    refusals: `/api/v1/refusals?topic=${topic}&limit=${REFUSALS + 1}`,
  };
};

export function body({ topics, sizes, refusals, state }, { name, params, width }) {
  const [topic] = topics.topics;
  if (!topic) return el("p", { class: "empty" }, "The cluster has no topic of that name, as far as this sizegate knows.");
  const nearShare = state.status?.near_limit ?? 0.8;
  const here = `topics/${encodeURIComponent(name)}`;
  return [
    facts(topic),
    el("section", { "aria-labelledby": "h-gates" },
      el("h2", { id: "h-gates" }, "Gates"),
      gateTable(topic, nearShare)),
    el("section", { "aria-labelledby": "h-sizes" },
      el("h2", { id: "h-sizes" }, "Sizes that went on to the broker"),
      chart(topic, sizes.sizes, here, params, width)),
    family(state.families, name),
    consumers(state.lingering, name),
    waiting(state.lingering, name),
    el("section", { "aria-labelledby": "h-refusals" },
      el("h2", { id: "h-refusals" }, "Last refusals"),
      last(refusals.refusals, name)),
  ];
}

function facts(topic) {
  const { batches } = topic;
  const words = [
    topic.rule ? `Rule “${topic.rule}”` : "No rule names it",
    topic.action === "reject" ? "above a limit: refused" : topic.action === "observe" ? "above a limit: counted and forwarded" : "above a limit: offloaded",
    batches ? `${count(batches.forwarded, "batch", "batches")} forwarded, ${number(batches.refused)} refused` : "nothing produced through here since the start",
    batches?.offloaded ? `${number(batches.offloaded)} with values in the object store` : null,
    batches?.observed ? `${number(batches.observed)} would have been refused` : null,
  ].filter(Boolean);
  return el("p", { class: "facts" },
    words.join(" · "), " · ",
    link(`explain?topic=${encodeURIComponent(topic.topic)}`, {}, "Try sizes on this topic"), whose(topic));
}

function gateTable(topic, nearShare) {
  const rows = gates(topic, nearShare).map((gate) => ({
    key: gate.gate,
    cells: [
      [el("span", { class: "name" }, gate.gate), el("span", { class: "quiet block" }, GATES[gate.gate] ?? "")],
      [gate.gate === "ratio" ? limitText(gate.gate, gate.limit_bytes) : number(gate.limit_bytes), el("span", { class: "quiet block" }, sourceText(gate))],
      largestText(gate),
      gate.share === null ? el("span", { class: "quiet" }, "–") : el("span", { class: "near-cell" }, bar(gate, nearShare), el("strong", {}, percent(gate.share))),
      el("span", { class: gate.over ? "overtext" : gate.near ? "neartext" : "quiet" }, countText(gate)),
    ],
  }));
  if (!rows.length) return el("p", { class: "empty" }, "No limit is known: the broker judges.");
  return table("Gates of this topic", ["Gate", "Limit in force, bytes", { label: "Largest that passed", kind: "num" }, { label: "How near", kind: "half" }, { label: "Near, over", kind: "num" }], rows);
}

function chart(topic, sizes, here, params, width) {
  if (!sizes) return el("p", { class: "empty" }, "Nothing was produced to it through here, or it has no metrics of its own (telemetry.topics).");
  const chosen = Object.hasOwn(MEASURES, params.get("of") ?? "") ? params.get("of") : "batch";
  const choice = (gate) => el("li", {}, link(gate === "batch" ? here : `${here}?of=${gate}`, { "aria-current": gate === chosen ? "true" : null }, MEASURES[gate]));
  return [
    el("ul", { class: "choices", "aria-label": "Which sizes" }, Object.keys(MEASURES).map(choice)),
    distribution(sizes[chosen], chosen, topic.limits, width),
  ];
}

function last(refusals, name) {
  if (!refusals.length) return el("p", { class: "empty" }, "None among the last 1,000 refusals.");
  return [
    el("ol", { class: "refusals" }, refusals.slice(0, REFUSALS).map(entry)),
    refusals.length > REFUSALS ? el("p", {}, link(`refusals?topic=${encodeURIComponent(name)}`, {}, "All refusals of this topic")) : null,
  ];
}

function family(families, name) {
  const view = familyOf(families, name);
  return view && el("section", { "aria-labelledby": "h-family" }, el("h2", { id: "h-family" }, "Family"), view);
}

function consumers(seen, name) {
  const mine = stuck(seen).filter((consumer) => consumer.topic === name);
  if (!mine.length) return null;
  return el("section", { "aria-labelledby": "h-stuck" },
    el("h2", { id: "h-stuck" }, "Consumers stuck behind a large batch"),
    el("ul", { class: "plain" }, mine.map((consumer) => el("li", {}, stuckLine(consumer)))));
}

function waiting(lingering, name) {
  const mine = suspects(lingering).filter((suspect) => suspect.topic === name);
  if (!mine.length) return null;
  return el("section", { "aria-labelledby": "h-lingering" },
    el("h2", { id: "h-lingering" }, "Lingering"),
    el("ul", { class: "plain" }, mine.map((suspect) => el("li", {}, suspectLine(suspect)))));
}

// All topics: limits in force, where each comes from, how near. What needs attention comes first.

import { el, link, table } from "./dom.js";
import { gateLine, gates } from "./bars.js";
import { whose } from "./replicas.js";
import { count, number } from "./words.js";

export const label = "Topics";
export const title = () => "Topics";
export const asks = () => ({ topics: "/api/v1/topics" });

const PAGE = 50;
const SHOWN = {
  "": "all",
  used: "produced to since the start",
  near: "near or over a limit",
  refused: "with refusals",
  ruled: "named by a rule",
};
const ORDERS = { "": "attention first", name: "by name", batches: "most batches first" };

export function toolbar(params, choose) {
  const filter = el("input", { id: "filter", type: "search", value: params.get("q") ?? "", autocomplete: "off", spellcheck: "false" });
  filter.addEventListener("input", () => choose({ q: filter.value.trim(), page: null }));
  const select = (id, words, options, key) => {
    const chosen = params.get(key) ?? "";
    const node = el("select", { id }, Object.entries(options).map(([value, text]) =>
      el("option", { value, selected: value === chosen }, text)));
    node.addEventListener("change", () => choose({ [key]: node.value, page: null }));
    return el("p", {}, el("label", { for: id }, words), node);
  };
  return el("div", { class: "toolbar", role: "search", "aria-label": "Topics" },
    el("p", { class: "wide" }, el("label", { for: "filter" }, "Filter by name"), filter),
    select("shown", "Show", SHOWN, "show"),
    select("order", "Order", ORDERS, "order"));
}

/** The address changed (back, a link): the fields follow, unless someone is typing there. */
export function follow(params) {
  for (const [id, key] of [["filter", "q"], ["shown", "show"], ["order", "order"]]) {
    const field = document.getElementById(id);
    if (field && field !== document.activeElement) field.value = params.get(key) ?? "";
  }
}

export function body({ topics, state }, { params }) {
  const nearShare = state.status?.near_limit ?? 0.8;
  const all = topics.topics.map((topic) => ({ ...topic, gates: gates(topic, nearShare) }));
  const found = all.filter(matches(params)).sort(order(params.get("order")));
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(params.get("page")) || 1));
  const shown = found.slice((page - 1) * PAGE, page * PAGE);
  const rows = shown.map((topic) => ({ key: topic.topic, cells: cells(topic, nearShare) }));
  return [
    el("p", { role: "status", class: "quiet" },
      found.length === all.length ? count(all.length, "topic") : `${number(found.length)} of ${count(all.length, "topic")}`,
      pages > 1 ? `, ${number((page - 1) * PAGE + 1)} to ${number((page - 1) * PAGE + shown.length)} shown` : ""),
    rows.length
      ? table("Topics", ["Topic", { label: "Limits, and the largest size that passed", kind: "grow" }, { label: "Forwarded", kind: "num" }, { label: "Refused", kind: "num" }], rows)
      : el("p", { class: "empty" }, all.length ? "No topic matches." : "No topic is known yet."),
    pages > 1 ? pager(page, pages, params) : null,
  ];
}

function cells(topic, nearShare) {
  const { batches } = topic;
  const observed = batches?.observed ?? 0;
  return [
    [link(`topics/${encodeURIComponent(topic.topic)}`, { class: "name" }, topic.topic),
      topic.rule ? el("span", { class: "quiet block" }, `rule “${topic.rule}”`, topic.action === "reject" ? "" : `, ${topic.action}`) : null, whose(topic)],
    topic.gates.length
      ? el("ul", { class: "gates" }, topic.gates.map((gate) => gateLine(gate, nearShare)))
      : el("span", { class: "quiet" }, "no limit known: the broker judges"),
    batches ? number(batches.forwarded + batches.offloaded) : el("span", { class: "quiet" }, "none"),
    [el("span", { class: batches?.refused ? "overtext" : "quiet" }, number(batches?.refused ?? 0)),
      observed ? el("span", { class: "neartext block" }, `${number(observed)} would be`) : null],
  ];
}

function matches(params) {
  const words = (params.get("q") ?? "").toLowerCase();
  const kind = params.get("show") ?? "";
  return (topic) => {
    if (words && !topic.topic.toLowerCase().includes(words)) return false;
    switch (kind) {
      case "used": return topic.batches !== null;
      case "near": return topic.gates.some((gate) => gate.kind === "near" || gate.kind === "over");
      case "refused": return (topic.batches?.refused ?? 0) + (topic.batches?.observed ?? 0) > 0;
      case "ruled": return topic.rule !== null;
      default: return true;
    }
  };
}

function order(by) {
  const byName = (a, b) => (a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : 0);
  const number = {
    name: () => 0,
    batches: (topic) => topic.batches?.forwarded ?? -1,
  }[by] ?? urgency;
  return (a, b) => number(b) - number(a) || byName(a, b);
}

/** Refused first, then by the nearest gate; topics nobody wrote to last. */
function urgency(topic) {
  const refused = (topic.batches?.refused ?? 0) + (topic.batches?.observed ?? 0);
  const nearest = Math.max(0, ...topic.gates.map((gate) => Math.min(1, gate.share ?? 0)));
  return (refused > 0 ? 10 + Math.log10(1 + refused) : 0) + nearest + (topic.batches ? 0.001 : 0);
}

function pager(page, pages, params) {
  const to = (number) => {
    const next = new URLSearchParams(params);
    next.set("page", number);
    return `topics?${next}`;
  };
  const step = (words, number, isThere) =>
    isThere ? link(to(number), { class: "button" }, words) : el("span", { class: "button off", "aria-disabled": "true" }, words);
  return el("nav", { class: "pager", "aria-label": "Pages" },
    step("Previous", page - 1, page > 1),
    el("span", {}, `Page ${number(page)} of ${number(pages)}`),
    step("Next", page + 1, page < pages));
}

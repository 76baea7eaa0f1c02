// The last 1,000 refusals: the whole text as the client got it (many clients show none of it), and who sent it.

import { el, link, linked } from "./dom.js";
import { addressOf, copyButton } from "./copy.js";
import { recentTable } from "./recent.js";
import { whose } from "./replicas.js";
import { GATES, ago, clock, count, errorText, number } from "./words.js";

export const label = "Refusals";
export const title = () => "Refusals";
export const asks = () => ({ refusals: "/api/v1/refusals" });

const PAGE = 25;

export function toolbar(params, choose) {
  const topic = el("input", { id: "topic", type: "search", value: params.get("topic") ?? "", autocomplete: "off", spellcheck: "false" });
  topic.addEventListener("input", () => choose({ topic: topic.value.trim(), shown: null }));
  const chosen = params.get("gate") ?? "";
  const gate = el("select", { id: "gate" },
    el("option", { value: "" }, "every gate"),
    Object.keys(GATES).map((name) => el("option", { value: name, selected: name === chosen }, name)));
  gate.addEventListener("change", () => choose({ gate: gate.value, shown: null }));
  return el("div", { class: "toolbar", role: "search", "aria-label": "Refusals" },
    el("p", { class: "wide" }, el("label", { for: "topic" }, "Topic, client, client library or id"), topic),
    el("p", {}, el("label", { for: "gate" }, "Gate"), gate));
}

export function follow(params) {
  for (const key of ["topic", "gate"]) {
    const field = document.getElementById(key);
    if (field && field !== document.activeElement) field.value = params.get(key) ?? "";
  }
}

export function body({ refusals: { refusals }, state }, { params }) {
  const words = (params.get("topic") ?? "").toLowerCase();
  const gate = params.get("gate") ?? "";
  const matches = (refusal) => (!gate || refusal.gate === gate) && (!words || speaksOf(refusal, words));
  const found = refusals.filter(matches);
  const shown = Math.max(PAGE, Number(params.get("shown")) || PAGE);
  const more = new URLSearchParams(params);
  more.set("shown", shown + 50);
  return [
    el("p", { role: "status", class: "quiet" },
      found.length === refusals.length ? count(found.length, "refusal") : `${number(found.length)} of ${count(refusals.length, "refusal")}`,
      ", newest first"),
    recentTable(state.recent, matches),
    recentTitle(found),
    found.length
      ? el("ol", { class: "refusals" }, found.slice(0, shown).map(entry))
      : el("p", { class: "empty" }, refusals.length ? "No refusal matches." : "Nothing was refused since the start."),
    found.length > shown ? el("p", {}, link(`refusals?${more}`, { class: "button" }, "Show more")) : null,
  ];
}

const recentTitle = (found) => (found.length ? el("h2", {}, "One by one") : null);

/** Of one refusal, or of a group of them. */
const speaksOf = (refusal, words) =>
  ["topic", "client_id", "software", "address", "principal", "record_key", "id", "last_id"]
    .some((field) => refusal[field]?.toLowerCase().includes(words));

/** One refusal. */
export function entry(refusal) {
  const { sentence, advice, tail } = parts(refusal.text);
  const at = new Date(refusal.at);
  const here = `refusal/${encodeURIComponent(refusal.id)}`;
  return el("li", { "data-key": `${refusal.id} ${refusal.replica ?? ""}` }, el("article", { "aria-label": `Refusal ${refusal.id}` },
    el("p", { class: "head" },
      el("span", { class: `chip ${refusal.action === "observe" ? "near" : "over"}` }, refusal.gate ?? "broker"),
      link(`topics/${encodeURIComponent(refusal.topic)}`, { class: "name" }, refusal.topic, refusal.partition < 0 ? null : `-${refusal.partition}`),
      el("span", { class: "measure" },
        // A word that a config is set to has no size, and the broker's limit may not be known.
        refusal.limit_bytes || refusal.size_bytes
          ? [refusal.at_least ? "at least " : "", el("strong", {}, number(refusal.size_bytes)), refusal.limit_bytes === null ? " bytes" : ` of ${number(refusal.limit_bytes)}`]
          : null),
      link(here, { class: "quiet id" }, `id ${refusal.id}`),
      el("time", { datetime: refusal.at, title: refusal.at, class: "quiet" }, `${clock(refusal.at)}, ${ago((Date.now() - at) / 1000)}`)),
    el("p", { class: "text" }, sentence || "The broker gave no reason."),
    advice ? el("p", { class: "advice" }, linked(advice)) : null,
    tail ? el("p", { class: "tail" }, tail) : null,
    el("dl", { class: "who" },
      fact("client id", refusal.client_id || "none"),
      fact("client library", refusal.software || "does not say"),
      fact("from", refusal.address),
      refusal.principal ? fact("principal", refusal.principal) : null,
      refusal.record_key ? fact("record key", refusal.record_key) : null,
      refusal.member ? fact("kept for", refusal.member) : null,
      fact("answer", refusal.action === "observe" ? "observed only: forwarded" : errorText(refusal.error_code)),
      refusal.refused_by === "broker" ? fact("refused by", "the broker") : null,
      refusal.is_loop ? fact("loop", "sent again and again; ended") : null),
    whose(refusal),
    el("p", { class: "copies" }, copyButton(`${refusal.at} ${refusal.text}\n${addressOf(here)}`, `refusal ${refusal.id}`))));
}

const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

/** What was measured, what to do about it, and the tail in brackets: the whole text, in three paragraphs. */
function parts(text) {
  const at = Math.max(text.lastIndexOf(" [gate="), text.lastIndexOf(" [refused_by="));
  const [words, tail] = at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
  const end = words.indexOf(". ");
  return end < 0 ? { sentence: words, advice: "", tail } : { sentence: words.slice(0, end + 1), advice: words.slice(end + 2), tail };
}

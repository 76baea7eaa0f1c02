// "Explain": sizes are typed; everyone on the record's way says what would become of it, and who refuses first.

import { ask, Missing } from "./ask.js";
import { el, linked, show, table } from "./dom.js";
import { number, parseSize } from "./words.js";

export const label = "Explain";
export const title = () => "Explain";

/** Name in the question, label, hint. */
const FIELDS = [
  ["value_bytes", "Value", "as serialised"],
  ["key_bytes", "Key", "none if empty"],
  ["headers_bytes", "Headers", "all names and values"],
  ["compressed_bytes", "Batch, compressed", "if it is compressed"],
  ["records", "Records in the batch", "1 if empty"],
  ["max_request_size", "max.request.size", "1 MiB if empty"],
];

const WHO = { client: "the client", sizegate: "sizegate", broker: "the broker", consumer: "a consumer" };
const KINDS = { passes: "good", refuses: "overtext", observes: "neartext", "may refuse": "neartext", "needs memory": "neartext" };
const STATES = { change: "overtext", look: "neartext", fine: "good" };

export function toolbar(params, choose) {
  const result = el("div", { class: "result", "aria-live": "polite" });
  const input = ([name, words, hint]) => el("p", {},
    el("label", { for: name }, words),
    el("input", { id: name, name, value: params.get(name) ?? "", inputmode: "text", autocomplete: "off", "aria-describedby": `hint-${name}` }),
    el("span", { id: `hint-${name}`, class: "hint" }, hint));
  const topics = el("datalist", { id: "topics" });
  const form = el("form", { class: "form" },
    el("p", { class: "wide" }, el("label", { for: "topic" }, "Topic"),
      el("input", { id: "topic", name: "topic", list: "topics", value: params.get("topic") ?? "", autocomplete: "off", spellcheck: "false", required: true }), topics),
    FIELDS.map(input),
    el("p", { class: "wide" }, el("button", { type: "submit", class: "primary" }, "Explain"),
      el("span", { class: "hint beside" }, "Sizes such as 70000, 64KiB or 1.5 MiB.")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = read(form);
    if (!question) return;
    choose(Object.fromEntries(["topic", ...FIELDS.map(([name]) => name)].map((name) => [name, form.elements[name].value.trim() || null])));
    show(result, el("p", { class: "quiet" }, "Asking…"));
    try {
      show(result, answer(await ask.post("/api/v1/explain", question)));
    } catch (error) {
      show(result, el("p", { class: "outcome over" }, error instanceof Missing ? "This sizegate cannot explain yet." : error.message));
    }
  });
  ask.path("/api/v1/topics").then((answer) => {
    if (!(answer instanceof Error)) show(topics, answer.topics.map(({ topic }) => el("option", { value: topic })));
  });
  return el("div", {},
    el("p", { class: "facts above" }, "Would a record of these sizes pass, and who would refuse it: the client, sizegate or the broker? Nothing is sent."),
    form, result);
}

/** There is nothing to keep up to date below the form. */
export const body = () => [];

/** The question, or null after saying which field is wrong. */
function read(form) {
  const question = { topic: form.elements.topic.value.trim() };
  let wrong = null;
  for (const [name] of FIELDS) {
    const field = form.elements[name];
    const text = field.value.trim();
    const bytes = text ? parseSize(text) : null;
    const isWrong = Number.isNaN(bytes);
    const hint = document.getElementById(`hint-${name}`);
    field.setAttribute("aria-invalid", String(isWrong));
    hint.className = isWrong ? "wrong" : "hint";
    hint.textContent = isWrong ? "a size, such as 70000 or 64KiB" : FIELDS.find(([known]) => known === name)[2];
    if (isWrong) wrong ??= field;
    else if (bytes !== null) question[name] = bytes;
  }
  wrong?.focus();
  return wrong ? null : question;
}

function answer(explanation) {
  const { verdict, checks, remedy, limits, unseen, passes } = explanation;
  return [
    el("div", { class: passes === false ? "outcome over" : "outcome" },
      el("p", {}, verdict || "Without sizes, these are the limits in force."),
      el("p", {}, explanation.rule ? `Rule “${explanation.rule}”` : "No rule names the topic", `, action ${explanation.action}.`),
      explanation.rules_for_some_clients?.length ? el("p", {}, `Rules for some clients only are left out: ${explanation.rules_for_some_clients.join(", ")}.`) : null),
    explanation.after_offload ? el("section", { "aria-labelledby": "h-ticket" }, el("h2", { id: "h-ticket" }, "As it is sent, and as it travels"), ticket(explanation)) : null,
    checks.length ? el("section", { "aria-labelledby": "h-way" }, el("h2", { id: "h-way" }, "On the record’s way"), way(checks)) : null,
    remedy.length ? el("section", { "aria-labelledby": "h-steps" }, el("h2", { id: "h-steps" }, "What to do"), steps(remedy)) : null,
    el("section", { "aria-labelledby": "h-limits" }, el("h2", { id: "h-limits" }, "Where the limits come from"), origins(limits)),
    unseen.length ? el("section", { "aria-labelledby": "h-unseen" }, el("h2", { id: "h-unseen" }, "What could not be read"),
      el("ul", {}, unseen.map(({ what, grant }) => el("li", {}, what, grant ? [" ", el("code", {}, grant)] : null)))) : null,
  ];
}

/** The name of a size, and what it is. */
const SIZES = {
  value_bytes: "value",
  record_bytes: "record, as encoded",
  estimate_bytes: "record, as Java estimates it",
  uncompressed_bytes: "batch, uncompressed",
  batch_bytes: "batch, as it travels",
};

function ticket({ record, after_offload: after }) {
  const rows = Object.entries(SIZES).map(([key, words]) => ({ key, cells: [words, number(record[key] ?? 0), number(after[key] ?? 0)] }));
  return [
    el("p", { class: "facts above" }, "Its value goes to the object store, and a ticket travels in its place."),
    table("Sizes as it is sent and as a ticket", ["Bytes", { label: "As it is sent", kind: "num" }, { label: "With a ticket", kind: "num" }], rows),
  ];
}

function way(checks) {
  const rows = checks.map((check, i) => ({
    key: `${i} ${check.by} ${check.what}`,
    cells: [
      [el("span", { class: "name" }, check.what), el("span", { class: "quiet block" }, WHO[check.by] ?? check.by)],
      number(check.size_bytes),
      [check.limit_bytes === null ? "none" : number(check.limit_bytes), el("span", { class: "quiet block" }, check.source)],
      [el("span", { class: KINDS[check.outcome] ?? "quiet" }, check.outcome), check.note ? el("span", { class: "quiet block" }, check.note) : null],
    ],
  }));
  return table("Who compares what", ["Compared by", { label: "Size", kind: "num" }, { label: "Limit", kind: "num" }, { label: "Outcome", kind: "third" }], rows);
}

function steps(remedy) {
  return el("ol", { class: "steps" }, remedy.map(({ step, state, text, command }) => el("li", {},
    el("p", {}, el("strong", {}, step), " ", el("span", { class: STATES[state] ?? "quiet" }, state)),
    el("p", {}, linked(text)),
    command ? el("pre", {}, command) : null)));
}

function origins(limits) {
  const rows = limits.map((limit) => ({
    key: limit.gate,
    cells: [
      el("span", { class: "name" }, limit.gate),
      limit.limit_bytes === null ? (limit.source === null ? "none known" : "none") : number(limit.limit_bytes),
      el("ul", { class: "plain" }, limit.chain.map(({ what, bytes, role }) => el("li", {}, `${what}: ${number(bytes)}`, el("span", { class: "quiet" }, ` · ${role}`)))),
    ],
  }));
  return table("Limits in force and what they were chosen from", ["Gate", { label: "In force", kind: "num" }, { label: "Chosen from", kind: "grow" }], rows);
}

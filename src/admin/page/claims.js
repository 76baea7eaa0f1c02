// The claim check: what went to the object store and came back, what is lost or waits, how the store fares.

import { el, link, table } from "./dom.js";
import { copyButton } from "./copy.js";
import { whose } from "./replicas.js";
import { ago, count, number, size } from "./words.js";

export const label = "Claim check";
export const title = () => "Claim check";
export const asks = () => ({ claims: "/api/v1/claims" });

/** Somebody uses it. */
export const areThere = ({ claims }) => Boolean(claims && (claims.topics.length || claims.store.length));

/** A record that went to the fallback topic needs attention for a day. */
const DAY_S = 86_400;

const sum = (counts) => Object.values(counts).reduce((all, n) => all + n, 0);
const byClass = (counts) => Object.entries(counts).map(([word, n]) => `${number(n)} ${word}`).join(", ");
const fellBack = (claims) => claims.topics.filter((topic) => sum(topic.fallback_records) > 0);
const failing = (claims) => claims.store.filter((operation) => operation.failing);
const topicLink = (name, ...more) => link(`topics/${encodeURIComponent(name)}`, { class: "name" }, name, ...more);
const lasting = (seconds) => ago(seconds).replace(" ago", "").replace("just now", "a moment");

/** What of it needs attention: class, what it is, words. */
export function troubles({ claims }) {
  if (!claims) return [];
  const found = [];
  const more = () => [" ", link("claims", {}, "Claim check")];
  if (claims.held.length) {
    const [longest] = claims.held;
    // Consumers may wait at several offsets of one.
    const partitions = new Set(claims.held.map((held) => `${held.topic} ${held.partition}`)).size;
    found.push(["over", el("strong", {}, `${count(partitions, "partition")} ${partitions === 1 ? "waits" : "wait"} for a value that cannot be read now. `),
      `The longest is ${longest.topic}-${longest.partition}, at offset ${number(longest.offset)} for ${lasting(longest.seconds)}.`, more()]);
  }
  for (const { operation, failing: why, failing_seconds: since, failed_age_seconds: last } of failing(claims)) {
    found.push(["over", el("strong", {}, `The object store does not do ${operation}: `), `${why}, for ${lasting(since)}, the last time ${ago(last)}.`, more()]);
  }
  for (const topic of fellBack(claims).filter((topic) => (topic.fallback_age_seconds ?? DAY_S) < DAY_S)) {
    found.push(["over", el("strong", {}, `${count(sum(topic.fallback_records), "record")} of ${topic.topic} went to the fallback topic `),
      `(${byClass(topic.fallback_records)}), the last ${ago(topic.fallback_age_seconds)}.`, more()]);
  }
  for (const topic of claims.topics.filter((topic) => topic.fallback_failures > 0 && claims.held.some((held) => held.topic === topic.topic))) {
    found.push(["over", el("strong", {}, `The fallback topic of ${topic.topic} does not take records: `), `${count(topic.fallback_failures, "attempt")} failed, and consumers wait meanwhile.`, more()]);
  }
  return found;
}

export function body({ claims }) {
  if (!claims.topics.length && !claims.store.length) {
    return el("p", { class: "empty" }, "Nothing was offloaded or redeemed since the start.");
  }
  return [
    saved(claims),
    section("topics", "By topic", "Values in the object store by topic", topics(claims), "Nothing was offloaded or redeemed."),
    section("held", "Partitions that wait", "Partitions that wait for a value", held(claims), "No consumer waits for a value."),
    section("fallback", "In the fallback topic", "Records that went to the fallback topic", fallback(claims), "No record went to a fallback topic."),
    section("store", "The store", "Operations on the object store", store(claims), "The store was not asked."),
  ];
}

function section(id, heading, caption, [heads, rows], none) {
  return el("section", { "aria-labelledby": `h-${id}` },
    el("h2", { id: `h-${id}` }, heading),
    rows.length ? table(caption, heads, rows) : el("p", { class: "empty" }, none));
}

function saved(claims) {
  const offloaded = claims.topics.reduce((all, topic) => all + topic.offloaded_bytes, 0);
  const inLog = claims.topics.filter((topic) => topic.offloaded_bytes).reduce((all, topic) => all + (topic.log_bytes ?? 0), 0);
  return el("p", { role: "status", class: "quiet" },
    `${size(offloaded)} of values are not in the log of these topics, which got ${size(inLog)}: `,
    el("strong", {}, smaller(offloaded, inLog)),
    ` since the start. ${number(claims.cache_hits)} tickets were redeemed from memory, ${size(claims.cache_bytes)} are kept there.`);
}

const smaller = (offloaded, inLog) => (offloaded ? `${Math.floor((100 * offloaded) / (offloaded + inLog))} % smaller` : "no smaller");

function topics(claims) {
  const rows = claims.topics.map((topic) => ({
    key: topic.topic,
    cells: [
      [topicLink(topic.topic), whose(topic)],
      [number(topic.offloaded_records), el("span", { class: "quiet block" }, size(topic.offloaded_bytes))],
      topic.offloaded_bytes && topic.log_bytes !== null ? [smaller(topic.offloaded_bytes, topic.log_bytes), el("span", { class: "quiet block" }, `${size(topic.log_bytes)} in the log`)] : el("span", { class: "quiet" }, "–"),
      [number(topic.redeemed_records), el("span", { class: "quiet block" }, size(topic.redeemed_bytes))],
      sum(topic.redeem_failures) ? el("span", { class: "neartext" }, byClass(topic.redeem_failures)) : el("span", { class: "quiet" }, "none"),
      [topic.forged ? el("span", { class: "overtext block" }, `${number(topic.forged)} forged`) : null,
        topic.orphans ? el("span", { class: "neartext block" }, `${number(topic.orphans)} orphans`) : null,
        topic.forged || topic.orphans ? null : el("span", { class: "quiet" }, "none")],
    ],
  }));
  return [["Topic", { label: "Offloaded", kind: "num" }, { label: "The log is", kind: "num" }, { label: "Redeemed", kind: "num" }, "Failed attempts", "Forged, orphans"], rows];
}

function held(claims) {
  const rows = claims.held.map((held) => ({
    key: `${held.topic} ${held.partition} ${held.offset}`,
    cells: [[topicLink(held.topic, `-${held.partition}`), whose(held)], number(held.offset), el("span", { class: "overtext" }, lasting(held.seconds)),
      command(`sizegate claim inspect ${held.topic} ${held.partition} ${held.offset}`)],
  }));
  return [["Partition", { label: "At offset", kind: "num" }, { label: "Waits for", kind: "num" }, { label: "What it waits for", kind: "half" }], rows];
}

function fallback(claims) {
  const rows = fellBack(claims).map((topic) => ({
    key: topic.topic,
    cells: [topicLink(topic.topic), byClass(topic.fallback_records), topic.fallback_age_seconds === null ? "" : ago(topic.fallback_age_seconds),
      [command(`sizegate claim fallback ${topic.topic}`), command(`sizegate claim redrive ${topic.topic}`)]],
  }));
  return [["Topic", "By class", { label: "The last", kind: "num" }, { label: "What lies there, and what can come back", kind: "half" }], rows];
}

const command = (text) => el("p", { class: "command" }, el("code", {}, text), " ", copyButton(text, "the command"));

function store(claims) {
  const rows = claims.store.map((operation) => ({
    key: `${operation.operation} ${operation.replica ?? ""}`,
    cells: [
      [el("span", { class: "name" }, operation.operation), whose(operation)],
      operation.failing ? el("span", { class: "overtext" }, `fails (${operation.failing}) for ${lasting(operation.failing_seconds)}`) : el("span", { class: "good" }, "fine"),
      byClass(operation.outcomes),
      `${number(operation.mean_seconds * 1000)} ms`,
    ],
  }));
  return [["Operation", "Now", { label: "What came of it since the start", kind: "half" }, { label: "On average", kind: "num" }], rows];
}

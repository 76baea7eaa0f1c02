// The process at a glance: one line, and what someone should look at. Screen readers are told of the latter as it
// changes, not of the former: it changes all the time.

import { el, link } from "./dom.js";
import { ago, clock, count, number, size } from "./words.js";
import * as claims from "./claims.js";
import { stuck } from "./consumers.js";
import { fixes, misaligned } from "./families.js";
import { suspects } from "./lingering.js";
import { groupLine, now } from "./recent.js";
import * as replicas from "./replicas.js";

/** Groups of refusals, and families' gaps, that are shown; the rest is a link away. */
const MOST = 5;

export function summary({ status, failed }) {
  if (!status) return [el("strong", { class: "bad" }, "No answer"), `: ${failed?.message ?? "no connection"}`];
  const isReady = status.why_not_ready.length === 0;
  const { control_plane: plane } = status;
  // Of the replicas that answer: the others are named below.
  const all = (status.replicas ?? []).filter((replica) => replica.version);
  const sum = (field) => (all.length ? all.reduce((whole, replica) => whole + replica[field], 0) : status[field]);
  const facts = [
    replicas.areThere({ status }) ? `${number(all.length)} of ${count(status.replicas.length, "replica")}` : null,
    count(sum("connections"), "client connection"),
    `${count(plane.topics, "topic")} on ${count(plane.brokers, "broker")}`,
    plane.limits_age_seconds === null ? "limits not read yet" : `limits read ${ago(plane.limits_age_seconds)}`,
    `${size(sum("held_bytes"))} of ${size(sum("memory_budget_bytes"))} held`,
  ].filter(Boolean);
  return [
    el("strong", { class: isReady ? "good" : "bad" }, isReady ? "Ready" : "Not ready"),
    facts.map((fact) => [el("span", { class: "dot", "aria-hidden": "true" }, " · "), el("span", { class: "hidden" }, ", "), fact]),
  ];
}

/** List items: `over` is broken, `near` will be. */
export function attention(state) {
  const { status } = state;
  const items = [];
  const add = (kind, ...what) => items.push(el("li", { class: kind }, ...what));
  if (!status) {
    add("over", el("strong", {}, "sizegate does not answer. "), "What stands below is what it said last.");
    return items;
  }
  for (const why of status.why_not_ready) add("over", el("strong", {}, "Not ready: "), why);
  const { control_plane: plane, reload } = status;
  if (!plane.is_up) {
    add("over", el("strong", {}, "Topics and limits cannot be read. "),
      plane.error ? `${plane.error}. ` : "", "Rules hold; limits of topics are judged by the brokers.");
  }
  if (reload?.error) {
    add("over", el("strong", {}, "The changed configuration has a mistake"),
      ` (read at ${clock(reload.at)}); the last good one stays in force.`, el("pre", {}, reload.error));
  }
  if (reload?.needs_restart.length) {
    add("near", el("strong", {}, "Changed, but in force only after a restart: "), reload.needs_restart.join(", "));
  }
  for (const outside of plane.brokers_outside) add("over", el("strong", {}, "A broker cannot be reached. "), outside);
  if (plane.missing_rights) add("near", el("strong", {}, "ACLs are missing. "), plane.missing_rights);
  for (const trouble of [...replicas.troubles(state), ...claims.troubles(state)]) add(...trouble);
  const groups = now(state.recent);
  if (groups.length) {
    const refused = groups.filter((group) => !group.is_observed);
    state.badges.refusals = { kind: refused.length ? "over" : "near", text: number(groups.length), words: `${groups.length === 1 ? "kind" : "kinds"} in the last ten minutes` };
  }
  const gaps = misaligned(state.families);
  if (gaps.length) {
    state.badges.families = { kind: "near", text: number(gaps.length), words: "misaligned" };
    add("near", el("strong", {}, `${count(gaps.length, "family member")} cannot take what the main topic takes. `),
      link("families", {}, "Families"), fixes(gaps.slice(0, MOST)));
  }
  const waiting = suspects(state.lingering);
  if (waiting.length) {
    state.badges.lingering = { kind: "near", text: number(waiting.length), words: "suspected" };
    add("near", el("strong", {}, `${count(waiting.length, "producer")} may let large records wait. `), link("lingering", {}, "Lingering"));
  }
  const held = stuck(state.lingering);
  if (held.length) {
    state.badges.consumers = { kind: "over", text: number(held.length), words: "stuck" };
    add("over", el("strong", {}, `${count(held.length, "consumer")} stuck behind a large batch. `), link("consumers", {}, "Consumers"));
  }
  if (status.memory_waits > 0) {
    add("near", el("strong", {}, `Connections waited for memory ${count(status.memory_waits, "time")} `),
      "since the start: see memory.budget.");
  }
  return items;
}

/** What was refused in the last ten minutes, by topic, gate and client. It changes all the time: nobody is told aloud. */
export function refusedNow(state) {
  const groups = now(state.recent);
  if (!groups.length) return null;
  return el("ul", { class: "groups", "aria-live": "off" },
    groups.slice(0, MOST).map(groupLine),
    groups.length > MOST ? el("li", {}, link("refusals", {}, `All ${number(groups.length)} kinds of refusals`)) : null);
}

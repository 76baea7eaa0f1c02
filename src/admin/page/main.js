// The page: which view is shown, what it asks for, and the state of the process above it.
//
// Everything a reader can choose is in the address (`#/topics?q=orders`), so it can be sent to a colleague. Nothing
// is asked of anyone but the server this came from.

import { el, link, show } from "./dom.js";
import { ask, Missing } from "./ask.js";
import { attention, refusedNow, summary } from "./state.js";
import * as topics from "./topics.js";
import * as topic from "./topic.js";
import * as refusals from "./refusals.js";
import * as refusal from "./refusal.js";
import * as families from "./families.js";
import * as clients from "./clients.js";
import * as consumers from "./consumers.js";
import * as lingering from "./lingering.js";
import * as claims from "./claims.js";
import * as replicas from "./replicas.js";
import * as explain from "./explain.js";

const SECTIONS = { topics, refusals, families, clients, consumers, lingering, claims, replicas, explain };
/** What is shown of one thing, and the section that it belongs to. */
const VIEWS = { ...SECTIONS, refusal };
const WITHIN = { refusal: "refusals" };
const EVERY_MS = 10_000;

const $ = (id) => document.getElementById(id);
const main = $("view");

/** What is shown now: `{ view, section, name, params, region, data }`. */
let current = null;
let isPaused = false;
let timer = 0;
let asked = 0;

function place() {
  const [path, query = ""] = location.hash.replace(/^#\//, "").split("?");
  const [section = "topics", ...rest] = path.split("/").filter(Boolean);
  let name = "";
  try {
    name = decodeURIComponent(rest.join("/"));
  } catch {
    // A mangled address names nothing.
  }
  const isKnown = Object.hasOwn(VIEWS, section);
  return {
    section: isKnown ? section : "topics",
    name: isKnown ? name : "",
    params: new URLSearchParams(query),
  };
}

/** Changes the choices in the address without a new entry in the history, and shows the result. */
function choose(changes) {
  for (const [key, value] of Object.entries(changes)) {
    if (value) current.params.set(key, value);
    else current.params.delete(key);
  }
  const query = current.params.toString();
  const path = [current.section, current.name].filter(Boolean).map(encodeURIComponent).join("/");
  history.replaceState(null, "", `#/${path}${query ? `?${query}` : ""}`);
  paint();
}

function open() {
  const isFirst = current === null;
  const to = place();
  if (current && current.section === to.section && current.name === to.name) {
    current.params = to.params;
    current.view.follow?.(to.params);
    paint();
    return;
  }
  const view = to.section === "topics" && to.name ? topic : VIEWS[to.section];
  const title = view.title(to.name);
  const heading = el("h1", { tabindex: "-1" }, title);
  const region = el("div", { class: "region", "aria-busy": "true" });
  current = { ...to, view, region, data: null };
  main.replaceChildren(...[view.trail?.(to.name), heading, view.toolbar?.(to.params, choose), region].filter(Boolean));
  document.title = `${title} · sizegate`;
  sections();
  if (!isFirst) {
    heading.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  show(region, el("p", { class: "quiet" }, "Loading…"));
  refresh();
}

/** Sections that have nothing to show are left out, but for the one that is shown. */
function sections(state = { badges: {} }) {
  const shown = WITHIN[current.section] ?? current.section;
  const isThere = (name) => name === shown || (SECTIONS[name].areThere?.(state) ?? true);
  const item = (name) => {
    const badge = state.badges[name];
    return el("li", {}, link(name, { "aria-current": shown === name ? "page" : null },
      SECTIONS[name].label,
      badge ? [" ", el("span", { class: `badge ${badge.kind}` }, badge.text, el("span", { class: "hidden" }, ` ${badge.words}`))] : null));
  };
  show($("sections"), el("ul", {}, Object.keys(SECTIONS).filter(isThere).map(item)));
}

async function refresh() {
  clearTimeout(timer);
  const { view, name, params } = current;
  const mine = ++asked;
  const asks = view.asks?.(name, params) ?? {};
  const [state, ...answers] = await Promise.all([
    ask.state(),
    ...Object.values(asks).map((path) => ask.path(path)),
  ]);
  // Someone went elsewhere meanwhile: their own question is under way.
  if (mine !== asked) return;
  state.failed = answers.find((answer) => answer instanceof Error && !(answer instanceof Missing)) ?? state.failed;
  paintState(state);
  // What was shown before is worth more than nothing; the line above says that it is not up to date.
  const kept = (key, answer) => (answer instanceof Error && !(answer instanceof Missing) ? current.data?.[key] ?? answer : answer);
  current.data = { ...Object.fromEntries(Object.keys(asks).map((key, i) => [key, kept(key, answers[i])])), state };
  paint();
  if (!isPaused) timer = setTimeout(refresh, EVERY_MS);
}

function paintState(state) {
  const { status } = state;
  show($("mode"), status?.mode === "observe" ? "observing" : status ? "enforcing" : "");
  $("mode").dataset.mode = status?.mode ?? "";
  replicas.tellWhose(state);
  show($("instance"), status?.instance ?? "", (status?.replicas?.length ?? 0) > 1 ? ` and ${status.replicas.length - 1} more` : "");
  show($("summary"), summary(state));
  const [items, refused] = [attention(state), refusedNow(state)];
  $("attention").hidden = items.length === 0 && !refused;
  // What is broken, what was refused, what will be a matter of time.
  const list = (kind) => el("ul", {}, items.filter((item) => item.className === kind));
  show($("attention"), items.length || refused ? [el("h2", {}, "Needs attention"), list("over"), refused, list("near")] : []);
  show($("updated"), state.failed ? "not up to date" : `Updated ${new Date().toLocaleTimeString("en-GB")}`);
  $("pause").hidden = false;
  sections(state);
}

function paint() {
  const { view, region, data, name, params } = current;
  if (!data) return;
  const failed = Object.values(data).find((answer) => answer instanceof Error);
  region.setAttribute("aria-busy", "false");
  if (failed instanceof Missing) {
    show(region, el("p", { class: "quiet" }, "This sizegate does not have that yet."));
  } else if (failed) {
    show(region, el("p", { class: "quiet" }, "Nothing to show: the server does not answer."));
  } else {
    show(region, view.body(data, { name, params, width: region.clientWidth }));
  }
}

$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
  if (isPaused) clearTimeout(timer);
  else refresh();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  // The address says which view is shown; it must not become "#view".
  event.preventDefault();
  main.focus();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden && !isPaused) refresh();
});
addEventListener("hashchange", open);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width && current) paint();
  width = innerWidth;
});

open();

// Builds and updates elements. Invariant: words from elsewhere become text nodes or attribute values, never markup;
// no attribute that could run anything is ever set.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "line", "text", "path"]);
/** What may be set: nothing that runs (`on…`), nothing that restyles, and links only by `link` below. */
const ATTRIBUTES = /^(aria-[a-z]+|class|colspan|data-[a-z]+|datetime|dy?|for|height|id|lang|max|min|name|open|placeholder|preserveaspectratio|role|rx|scope|tabindex|text-anchor|title|type|value|viewbox|width|x[12]?|y[12]?|autocomplete|spellcheck|inputmode|list|required|selected|hidden|maxlength)$/i;

/** An element. `attributes` with a null or false value are left out; children may be nested arrays, nodes, words. */
export function el(tag, attributes, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (!ATTRIBUTES.test(name)) throw new Error(`attribute ${name}`);
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...flat(children));
  return node;
}

/** A link to another view of this page. */
export function link(hash, attributes, ...children) {
  const node = el("a", attributes, ...children);
  node.setAttribute("href", `#/${hash.replace(/^\/+/, "")}`);
  return node;
}

/** Text whose http(s) addresses can be followed; only for texts that the configuration wrote. */
export function linked(text) {
  return text.split(/(https?:\/\/[^\s"'<>\])]+[^\s"'<>\]).,;:])/).map((part, i) => {
    if (i % 2 === 0) return part;
    const node = el("a", {}, part);
    node.setAttribute("href", part);
    node.setAttribute("rel", "noopener noreferrer");
    return node;
  });
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Makes `parent` show `children`, touching only what differs: focus, selection and open details stay. */
export function show(parent, ...children) {
  const next = document.createDocumentFragment();
  next.append(...flat(children));
  morphChildren(parent, next);
}

function morphChildren(old, next) {
  const wanted = [...next.childNodes];
  wanted.forEach((child, i) => {
    const here = old.childNodes[i];
    if (!here) old.append(child);
    else morph(here, child);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function morph(old, next) {
  if (old.nodeName !== next.nodeName || old.dataset?.key !== next.dataset?.key) {
    old.replaceWith(next);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !next.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, next);
}

/** A table that stays one for screen readers when narrow screens lay its rows out as cards. */
export function table(caption, heads, rows) {
  const labels = heads.map((head) => (typeof head === "string" ? { label: head } : head));
  const cell = (content, i) => {
    const { label, kind } = labels[i];
    const tag = i === 0 ? "th" : "td";
    const attributes = i === 0 ? { scope: "row", role: "rowheader" } : { role: "cell" };
    return el(tag, { ...attributes, class: kind, "data-label": label }, el("div", {}, content));
  };
  return el("table", { role: "table" },
    el("caption", { class: "hidden" }, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" },
      labels.map(({ label, kind }) => el("th", { scope: "col", role: "columnheader", class: kind }, label)))),
    el("tbody", { role: "rowgroup" }, rows.map(({ key, cells }) =>
      el("tr", { role: "row", "data-key": key }, cells.map(cell)))));
}

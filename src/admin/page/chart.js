// The distribution of one kind of size, with the limits drawn on it.
//
// Bars stand on a logarithmic axis, one for each power of two. Heights grow with the square root of the count, so
// that the rare large sizes, which are the point, stay visible. A table says the same in words.

import { el } from "./dom.js";
import { count, number, size, sourceText } from "./words.js";

export const MEASURES = {
  batch: "batches, on the wire",
  uncompressed: "batches, uncompressed",
  record: "records",
  estimate: "records, as Java estimates",
};

const HEIGHT = 260;
const TOP = 46;
const BOTTOM = 34;
const MIB = 1 << 20;

/** `sizes` as `/api/v1/sizes` has them; the limits are those of `gate`. */
export function distribution(sizes, gate, limits, width) {
  if (!sizes?.count) return el("p", { class: "empty" }, "None was measured yet.");
  const buckets = merged(sizes.buckets);
  const mine = limits.filter((limit) => limit.gate === gate);
  const words = `${count(sizes.count, "size")} so far, the largest ${number(sizes.largest_bytes)} bytes, on average ${number(sizes.sum_bytes / sizes.count)}` +
    mine.map((limit) => `; the limit is ${number(limit.limit_bytes)} bytes, ${sourceText(limit)}`).join("");
  return el("figure", { class: "chart" },
    el("figcaption", {}, `${words}.`),
    drawing(buckets, mine, sizes.largest_bytes, Math.max(280, width - 34)),
    el("details", {}, el("summary", {}, "As a table"), asTable(buckets)));
}

/** The bucket of the broker's default limit is 12 bytes wide: no bar could show it. */
function merged(buckets) {
  const all = [];
  let from = 0;
  for (const { le_bytes: to, count } of buckets) {
    if (from === MIB && to < 2 * MIB) {
      const before = all[all.length - 1];
      before.count += count;
      before.to = to;
    } else {
      all.push({ from, to: to ?? Infinity, count });
    }
    from = to;
  }
  return all;
}

const place = (bytes) => Math.log2(Math.max(bytes, 128));

function drawing(buckets, limits, largest, width) {
  const used = buckets.filter((bucket) => bucket.count > 0);
  const high = Math.max(...used.map((bucket) => (bucket.to === Infinity ? bucket.from * 2 : bucket.to)), ...limits.map((limit) => limit.limit_bytes * 1.6));
  const low = Math.min(...used.map((bucket) => bucket.from), ...limits.map((limit) => limit.limit_bytes / 2));
  const first = Math.max(7, Math.floor(place(low)) - 1);
  const lastPower = Math.min(31, Math.max(first + 5, Math.ceil(place(high))));
  const left = 8;
  const inner = width - 2 * left;
  const x = (bytes) => left + ((place(bytes) - first) / (lastPower - first)) * inner;
  const tallest = Math.max(...used.map((bucket) => bucket.count));
  const y = (n) => (HEIGHT - TOP - BOTTOM) * Math.sqrt(n / tallest);
  const floor = HEIGHT - BOTTOM;
  const bars = used.map((bucket) => {
    const from = Math.max(x(bucket.from || 128), left);
    const to = bucket.to === Infinity ? width - left : x(bucket.to);
    const height = Math.max(2, y(bucket.count));
    const isOver = limits.some((limit) => bucket.from >= limit.limit_bytes);
    return el("g", {},
      el("rect", { class: isOver ? "column over" : "column", x: (from + 1.5).toFixed(1), y: (floor - height).toFixed(1), width: Math.max(1, to - from - 3).toFixed(1), height: height.toFixed(1), rx: 2 }),
      to - from > 26 || width > 600
        ? el("text", { class: "value", x: ((from + to) / 2).toFixed(1), y: (floor - height - 5).toFixed(1), "text-anchor": "middle" }, short(bucket.count))
        : null);
  });
  const step = Math.max(1, Math.ceil((lastPower - first) / (inner / 58)));
  const ticks = [];
  for (let power = first; power <= lastPower; power += step) {
    const at = x(2 ** power);
    ticks.push(el("g", {},
      el("line", { class: "tick", x1: at.toFixed(1), x2: at.toFixed(1), y1: floor, y2: floor + 4 }),
      el("text", { class: "label", x: at.toFixed(1), y: floor + 21, "text-anchor": at < 30 ? "start" : at > width - 30 ? "end" : "middle" }, size(2 ** power))));
  }
  const lines = limits.map((limit) => {
    const at = x(limit.limit_bytes);
    const isRight = at > width / 2;
    return el("g", { class: "limit" },
      el("line", { x1: at.toFixed(1), x2: at.toFixed(1), y1: 18, y2: floor }),
      el("text", { x: (at + (isRight ? 4 : -4)).toFixed(1), y: 12, "text-anchor": isRight ? "end" : "start" }, `limit ${size(limit.limit_bytes)}`));
  });
  const most = x(largest);
  const marker = el("path", { class: "largest", d: `M${most.toFixed(1)} ${floor + 1}l-5 8h10z` });
  return el("svg", { class: "drawing", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" },
    el("line", { class: "axis", x1: left, x2: width - left, y1: floor, y2: floor }), bars, ticks, marker, lines);
}

function asTable(buckets) {
  const rows = buckets.filter((bucket) => bucket.count > 0).map((bucket) => el("tr", {},
    el("th", { scope: "row" }, bucket.to === Infinity ? `over ${size(bucket.from)}` : `over ${number(bucket.from)}, up to ${number(bucket.to)}`),
    el("td", { class: "num" }, number(bucket.count))));
  return el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Bytes"), el("th", { scope: "col", class: "num" }, "How many"))),
    el("tbody", {}, rows));
}

function short(n) {
  if (n < 10_000) return number(n);
  if (n < 1e6) return `${Number((n / 1e3).toPrecision(3))} k`;
  return `${Number((n / 1e6).toPrecision(3))} M`;
}

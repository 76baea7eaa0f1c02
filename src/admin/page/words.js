// Numbers and the product's words, as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const number = (n) => whole.format(n);

/** `64 KiB`, `1.34 MiB`: short, for bars and lists. */
export function size(n) {
  if (n < 1024) return `${number(n)} B`;
  let value = n;
  let unit = "B";
  for (unit of ["KiB", "MiB", "GiB"]) {
    value /= 1024;
    if (value < 1024) break;
  }
  return `${Number(value.toPrecision(value < 10 ? 3 : Math.max(3, String(Math.floor(value)).length)))} ${unit}`;
}

/** A limit: the gate `ratio` has no unit. */
export const limitText = (gate, n) => (gate === "ratio" ? `${number(n)} : 1` : size(n));

/** `64KiB`, `1 MiB`, `70000`, `1MB` as bytes; NaN otherwise. */
export function parseSize(text) {
  const match = /^\s*([\d_,]+(?:\.\d+)?)\s*(B|[KMG]i?B?)?\s*$/i.exec(text);
  if (!match) return NaN;
  const unit = (match[2] ?? "B").toUpperCase();
  const base = unit.includes("I") || unit.length === 1 ? 1024 : 1000;
  const power = { B: 0, K: 1, M: 2, G: 3 }[unit[0]];
  return Math.round(Number(match[1].replace(/[_,]/g, "")) * (power ? base ** power : 1));
}

export function ago(seconds) {
  if (seconds < 1) return "just now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

/** 12:03:04, with the date when it is not today's. */
export function clock(at) {
  const moment = new Date(at);
  const time = moment.toLocaleTimeString("en-GB");
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday ? time : `${moment.toLocaleDateString("en-CA")} ${time}`;
}

/** `3 refusals`, `1 refusal`. */
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

export const GATES = {
  batch: "one partition's batch as it travels, compressed",
  uncompressed: "one batch after decompression",
  record: "one record as encoded",
  estimate: "what the Java producer compares with max.request.size",
  key: "one record's key",
  value: "one record's value",
  headers: "all headers of one record",
  ratio: "uncompressed by wire bytes",
  frame: "one whole request",
  codec: "the codec of a large batch",
  config: "what a request sets the configs of a topic to",
};

/** Where a limit comes from, in a word. */
export function sourceWord({ source, name }) {
  switch (source) {
    case "rule": return name && name !== "limits" ? `rule “${name}”` : "limits";
    case "topic": return "topic";
    case "broker": return "broker";
    case "family": return name ? `family, ${name}` : "family";
    default: return source;
  }
}

/** Where a limit comes from, in words. */
export function sourceText({ source, name }) {
  switch (source) {
    case "rule": return name && name !== "limits" ? `rule “${name}”` : "limits in the configuration";
    case "topic": return "the topic’s own";
    case "broker": return "inherited from the broker";
    case "segment": return "segment.bytes";
    case "family": return name ? `family: ${name} must take it too` : "family";
    default: return source;
  }
}

/** The size measured at a gate, of a topic's `last` or `largest`; null where none is measured. */
export const measured = (sizes, gate) => sizes?.[`${gate}_bytes`] ?? null;

const ERRORS = { 10: "MESSAGE_TOO_LARGE", 44: "POLICY_VIOLATION", 87: "INVALID_RECORD" };
export const errorText = (code) => (code === 0 ? "forwarded" : `answered ${code} ${ERRORS[code] ?? ""}`.trim());

// One panel as HTML and SVG: lines, bars, tables, numbers, heatmaps.

const COLOURS = ["#3d9a96", "#dd9d2e", "#d0553d", "#5b6fb5", "#8a5fa8", "#6c9a3d", "#b5738a", "#7a7f87", "#2f7fb8", "#a5803f"];
const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const short = (n) => Number(n.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 6 });

function scaled(value, base, units) {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) {
    value /= base;
    at += 1;
  }
  return `${short(value)} ${units[at]}`.trim();
}

/** A value in the panel's unit, as Grafana would write it. */
export function written(value, unit) {
  switch (unit) {
    case "bytes": return scaled(value, 1024, ["B", "KiB", "MiB", "GiB"]);
    case "Bps": return scaled(value, 1000, ["B/s", "kB/s", "MB/s", "GB/s"]);
    case "s": return value >= 1 || value === 0 ? `${short(value)} s` : value >= 1e-3 ? `${short(value * 1e3)} ms` : `${short(value * 1e6)} µs`;
    case "ops": return `${short(value)}/s`;
    case "percentunit": return `${short(value * 100)} %`;
    case "none": return value.toLocaleString("en");
    default: return scaled(value, 1000, ["", "k", "M"]);
  }
}

const last = ({ points }) => points[points.length - 1][1];

export function chart(panel, series, room) {
  if (!series.length) return '<p class="none">no data</p>';
  const { unit, thresholds, mappings } = panel.fieldConfig.defaults;
  switch (panel.type) {
    case "stat": return stat(last(series[0]), unit, thresholds, mappings);
    case "table": return table(series, unit);
    case "bargauge": return gauges(series, unit, thresholds, room);
    case "heatmap": return heatmap(series, room);
    default: return lines(series, unit, panel.fieldConfig.defaults.custom, room);
  }
}

function colour(value, thresholds) {
  const names = { green: "#2f8a57", orange: "#c77700", red: "#c43b24" };
  const step = (thresholds?.steps ?? []).filter((step) => step.value === null || value >= step.value).pop();
  return names[step?.color] ?? "#24292e";
}

function stat(value, unit, thresholds, mappings) {
  const mapped = mappings?.[0]?.options[String(value)]?.text;
  const rounded = unit === "short" ? Math.round(value) : value;
  return `<p class="stat" style="color:${colour(value, thresholds)};margin:0">${mapped ?? written(rounded, unit)}</p>`;
}

function table(series, unit) {
  const labels = Object.keys(series[0].labels).filter((label) => label !== "__name__");
  const rows = [...series].sort((a, b) => last(b) - last(a)).slice(0, 8).map((one) =>
    `<tr>${labels.map((label) => `<td>${escape(one.labels[label] ?? "")}</td>`).join("")}<td>${written(last(one), unit)}</td></tr>`);
  return `<table><tr>${labels.map((label) => `<th>${label}</th>`).join("")}<th>Value</th></tr>${rows.join("")}</table>`;
}

function gauges(series, unit, thresholds, { width, height }) {
  const shown = [...series].sort((a, b) => last(b) - last(a)).slice(0, Math.floor(height / 22));
  const most = Math.max(...shown.map(last), 1e-9);
  const label = Math.min(220, width * 0.45);
  const bars = shown.map((one, i) => {
    const value = last(one);
    const long = Math.max(1, (width - label - 80) * (value / most));
    return `<text x="0" y="${i * 22 + 15}">${escape(one.name.slice(0, Math.floor(label / 6.6)))}</text>
      <rect x="${label}" y="${i * 22 + 4}" width="${long}" height="14" rx="2" fill="${thresholds ? colour(value, thresholds) : COLOURS[0]}"/>
      <text x="${label + long + 6}" y="${i * 22 + 15}">${written(value, unit)}</text>`;
  });
  return `<svg width="${width}" height="${height}">${bars.join("")}</svg>`;
}

function axes(from, to, most, unit, { width, height }, left) {
  const ticks = [0, 0.5, 1].map((share) => {
    const y = 8 + (height - 28) * (1 - share);
    return `<line x1="${left}" x2="${width}" y1="${y}" y2="${y}" stroke="#eceef0"/><text x="${left - 6}" y="${y + 4}" text-anchor="end">${written(most * share, unit)}</text>`;
  });
  const times = [0, 0.5, 1].map((share) => {
    const at = new Date((from + (to - from) * share) * 1000).toISOString().slice(11, 19);
    return `<text x="${left + (width - left) * share}" y="${height - 4}" text-anchor="${["start", "middle", "end"][share * 2]}">${at}</text>`;
  });
  return ticks.join("") + times.join("");
}

function lines(series, unit, custom, room) {
  const { width } = room;
  const height = room.height - 36;
  const isStacked = custom?.stacking?.mode === "normal";
  const left = 66;
  const times = series.flatMap(({ points }) => points.map(([at]) => at));
  const [from, to] = [Math.min(...times), Math.max(...times, Math.min(...times) + 1)];
  const shown = [...series].sort((a, b) => last(b) - last(a)).slice(0, 10);
  const sums = new Map();
  const stacked = shown.map((one) => ({
    ...one,
    points: one.points.map(([at, value]) => {
      const base = isStacked ? sums.get(at) ?? 0 : 0;
      sums.set(at, base + value);
      return [at, base + value, base];
    }),
  }));
  const most = Math.max(...stacked.flatMap(({ points }) => points.map(([, value]) => value)), 1e-9) * 1.05;
  const x = (at) => left + ((at - from) / (to - from)) * (width - left);
  const y = (value) => 8 + (height - 28) * (1 - value / most);
  const fill = (custom?.fillOpacity ?? 0) / 100;
  const paths = stacked.map(({ points }, i) => {
    const line = points.map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
    const base = [...points].reverse().map(([at, , bottom]) => `${x(at).toFixed(1)} ${y(bottom).toFixed(1)}`);
    return `<path d="M${[...line, ...base].join("L")}Z" fill="${COLOURS[i]}" fill-opacity="${fill}"/><path d="M${line.join("L")}" fill="none" stroke="${COLOURS[i]}" stroke-width="1.8" stroke-linejoin="round"/>`;
  });
  const legend = shown.map((one, i) => `<span><i style="background:${COLOURS[i]}"></i>${escape(one.name)}</span>`);
  return `<svg width="${width}" height="${height}">${axes(from, to, most, unit, { width, height }, left)}${paths.join("")}</svg><div class="legend">${legend.join("")}</div>`;
}

/** Cumulative buckets become the sizes between one bound and the next, as Grafana's format "heatmap" does it. */
function heatmap(series, { width, height }) {
  const bound = ({ labels }) => (labels.le === "+Inf" ? Infinity : Number(labels.le));
  const sorted = [...series].sort((a, b) => bound(a) - bound(b));
  const cells = sorted.map((one, i) => {
    const below = new Map(i ? sorted[i - 1].points : []);
    return { bound: bound(one), points: one.points.map(([at, value]) => [at, Math.max(0, value - (below.get(at) ?? 0))]) };
  }).filter(({ bound: le }) => le !== 1048588);
  const used = cells.map(({ points }, i) => (points.some(([, value]) => value > 0.01) ? i : -1)).filter((i) => i >= 0);
  const shown = cells.slice(Math.max(0, used[0] - 1), used[used.length - 1] + 2);
  const times = [...new Set(series.flatMap(({ points }) => points.map(([at]) => at)))].sort((a, b) => a - b);
  const most = Math.max(...shown.flatMap(({ points }) => points.map(([, value]) => value)), 1e-9);
  const left = 66;
  const wide = (width - left) / times.length;
  const high = (height - 22) / shown.length;
  const rects = shown.flatMap(({ points }, row) => points.filter(([, value]) => value > 0.01).map(([at, value]) =>
    `<rect x="${(left + times.indexOf(at) * wide).toFixed(1)}" y="${((shown.length - 1 - row) * high).toFixed(1)}" width="${(wide - 0.6).toFixed(1)}" height="${(high - 0.8).toFixed(1)}" fill="#1f6f8b" fill-opacity="${(0.12 + 0.88 * Math.sqrt(value / most)).toFixed(2)}"/>`));
  const labels = shown.map(({ bound: le }, row) => (high > 13 || row % 2 === 0 ? `<text x="${left - 6}" y="${(shown.length - row - 0.5) * high + 4}" text-anchor="end">${le === Infinity ? "more" : written(le, "bytes")}</text>` : ""));
  const clock = (at) => new Date(at * 1000).toISOString().slice(11, 19);
  return `<svg width="${width}" height="${height}">${rects.join("")}${labels.join("")}<text x="${left}" y="${height - 4}">${clock(times[0])}</text><text x="${width}" y="${height - 4}" text-anchor="end">${clock(times[times.length - 1])}</text></svg>`;
}

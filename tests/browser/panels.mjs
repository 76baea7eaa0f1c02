// Pictures of the dashboards: every panel drawn from what Prometheus answers to its own queries. Grafana draws them
// more richly; the numbers are the same.
//
// prometheus= dashboards= topic= gate= folder= [names=overview,topic,gate,claims]

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { chart } from "./charts.mjs";

const require = createRequire(`${process.env.NODE_PATH}/`);
const { chromium } = require("playwright-core");

const OPTIONS = Object.fromEntries(process.argv.slice(2).map((arg) => {
  const at = arg.indexOf("=");
  return [arg.slice(0, at), arg.slice(at + 1)];
}));
const STEP_S = 2;
const SPAN_S = 60;
/** Grafana's grid: 24 columns, a row of a panel is 30 pixels high. */
const COLUMN = 56;
const ROW = 30;

const VARIABLES = {
  $__rate_interval: "10s", $__range: `${SPAN_S}s`, '"$job"': '".*"', '"$instance"': '".*"',
  '"$topic"': `"${OPTIONS.topic}"`, '"$gate"': `"${OPTIONS.gate}"`,
};
const filled = (text) => Object.entries(VARIABLES).reduce((all, [name, value]) => all.replaceAll(name, value), text);

async function ask(path, parameters) {
  const answer = await fetch(`${OPTIONS.prometheus}/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const { status, data, error } = await answer.json();
  if (status !== "success") throw new Error(`${parameters.query}: ${error}`);
  return data.result;
}

const now = Math.floor(Date.now() / 1000);

/** The panel's series: `{ name, labels, points: [[seconds, value]] }`. */
async function series(panel) {
  const found = [];
  for (const target of panel.targets) {
    const query = filled(target.expr);
    const result = target.instant
      ? await ask("query", { query, time: now })
      : await ask("query_range", { query, start: now - SPAN_S, end: now, step: STEP_S });
    for (const { metric, value, values } of result) {
      const name = target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? "");
      const points = (values ?? [value]).map(([at, text]) => [at, Number(text)]).filter(([, number]) => Number.isFinite(number));
      if (points.length) found.push({ name, labels: metric, points });
    }
  }
  return found;
}

const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

async function drawn(panel) {
  const { x, y, w, h } = panel.gridPos;
  const place = `left:${x * COLUMN}px;top:${y * ROW}px;width:${w * COLUMN - 8}px;height:${h * ROW - 8}px`;
  const title = escape(panel.title.replace("$topic", OPTIONS.topic).replace("$gate", `gate ${OPTIONS.gate}`));
  if (panel.type === "row") return `<h2 style="${place}">${title}</h2>`;
  const inner = { width: w * COLUMN - 32, height: h * ROW - 52 };
  return `<section style="${place}"><h3>${title}</h3>${chart(panel, await series(panel), inner)}</section>`;
}

const STYLE = `
  body { margin: 0; background: #f4f5f5; color: #24292e; font: 13px/1.4 system-ui, "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
  main { position: relative; margin: 16px; }
  h1 { font-size: 18px; margin: 16px 16px 0; }
  h2 { position: absolute; margin: 0; font-size: 14px; padding: 5px 2px; }
  section { position: absolute; box-sizing: border-box; background: #fff; border: 1px solid #e0e2e5; border-radius: 4px; padding: 8px 12px; overflow: hidden; }
  h3 { margin: 0 0 4px; font-size: 13px; font-weight: 600; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
  svg { display: block; } text { fill: #5a646e; font-size: 11px; }
  .stat { font-size: 30px; font-weight: 600; line-height: 58px; text-align: center; }
  .legend { display: flex; flex-wrap: wrap; gap: 0 12px; font-size: 11px; color: #5a646e; max-height: 34px; overflow: hidden; }
  .legend i { display: inline-block; width: 12px; height: 3px; margin-right: 4px; vertical-align: middle; }
  table { width: 100%; border-collapse: collapse; } td, th { text-align: left; padding: 3px 6px; border-bottom: 1px solid #eceef0; font-weight: 400; } th { color: #5a646e; }
  td:last-child, th:last-child { text-align: right; }
  .none { color: #5a646e; text-align: center; padding-top: 40px; }`;

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"] });
for (const name of ["overview", "topic", "gate", "claims"]) {
  const board = JSON.parse(readFileSync(`${OPTIONS.dashboards}/${name}.json`, "utf8"));
  const panels = await Promise.all(board.panels.map(drawn));
  const height = Math.max(...board.panels.map(({ gridPos }) => (gridPos.y + gridPos.h) * ROW));
  const page = await browser.newPage({ viewport: { width: 24 * COLUMN + 24, height: height + 70 } });
  await page.setContent(`<!doctype html><style>${STYLE}</style><h1>${escape(board.title)}</h1><main>${panels.join("")}</main>`);
  const path = `${OPTIONS.folder}/dashboard-${name}.png`;
  await page.screenshot({ path });
  await page.close();
  console.log(JSON.stringify({ dashboard: name, panels: panels.length, path }));
}
await browser.close();

// A real Chromium for the page's checks. Every page it opens is watched: an error in the console, a violation of the
// content security policy, a dialog, or a request to anywhere else fails the check that opened it.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.NODE_PATH}/`);
const { chromium } = require("playwright-core");
const axe = require("axe-core");

export const OPTIONS = Object.fromEntries(process.argv.slice(2).map((arg) => {
  const at = arg.indexOf("=");
  return [arg.slice(0, at), arg.slice(at + 1)];
}));

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
/** A guard against hanging, no measure. */
const PATIENCE_MS = 60_000;

/** Runs the checks one after the other, each with what it asks for; prints one JSON line for each. */
export async function run(checks) {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS, timeout: 3 * PATIENCE_MS });
  try {
    for (const [name, check] of Object.entries(checks)) {
      const opened = [];
      const line = { check: name };
      const began = Date.now();
      try {
        await check((options) => open(browser, opened, options));
        for (const { faults } of opened) assert.deepEqual(faults, []);
      } catch (error) {
        line.error = `${error.stack ?? error}\n${opened.map(({ faults }) => faults.join("\n")).join("\n")}`;
      }
      for (const { context } of opened) await context.close();
      console.log(JSON.stringify({ ...line, ms: Date.now() - began }));
    }
  } finally {
    await browser.close();
  }
}

/** A page of its own: `hash` is the view; `mayFail`: requests are meant to fail. */
async function open(browser, opened, { hash = "", width = 1200, height = 900, scheme = "light", script = true, mayFail = false, wait = true } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, javaScriptEnabled: script });
  context.setDefaultTimeout(PATIENCE_MS);
  const faults = [];
  opened.push({ context, faults });
  const origin = new URL(OPTIONS.url).origin;
  context.on("request", (request) => {
    if (new URL(request.url()).origin !== origin) faults.push(`asked ${request.url()}`);
  });
  await context.addInitScript(() => {
    globalThis.violations = [];
    addEventListener("securitypolicyviolation", (event) =>
      globalThis.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
  });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !mayFail) faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`threw: ${error.stack}`));
  page.on("dialog", async (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  await page.goto(`${OPTIONS.url}/${hash}`);
  if (script && wait) await settled(page);
  return page;
}

/** Until the view shows what it asked for. */
export const settled = (page) => page.locator(".region[aria-busy=false]").waitFor({ state: "attached" });

/** Goes to another view by its address, as a link would. */
export async function go(page, hash) {
  await page.evaluate((to) => new Promise((done) => {
    if (location.hash === to) done();
    addEventListener("hashchange", () => done(), { once: true });
    location.hash = to;
  }), hash);
  await settled(page);
}

export async function violations(page) {
  return page.evaluate(() => globalThis.violations);
}

/** Nothing sticks out to the right. */
export async function assertNoSidewaysScroll(page, what) {
  const wide = await page.evaluate(() => {
    const room = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= room) return [];
    return [...document.querySelectorAll("body *")]
      .filter((node) => node.getBoundingClientRect().right > room + 0.5)
      .slice(0, 5)
      .map((node) => `${node.nodeName}.${node.getAttribute("class")} ${node.textContent.slice(0, 40)}`);
  });
  assert.deepEqual(wide, [], what);
}

/** axe-core's rules of WCAG 2.2 A and AA and its best practices, or `only` some of them, find nothing. */
export async function assertAccessible(page, what, only) {
  await page.evaluate(axe.source);
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const runOnly = only ? { type: "rule", values: only } : { type: "tag", values: tags };
  const found = await page.evaluate(async (runOnly) => {
    const result = await globalThis.axe.run(document, {
      resultTypes: ["violations"],
      runOnly,
    });
    return result.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ") + " " + node.failureSummary).slice(0, 3).join("; ")}`);
  }, runOnly);
  assert.deepEqual(found, [], what);
}

export { assert };

// Pictures of the page for README. url= topic= folder=

import { OPTIONS, assertNoSidewaysScroll, go, run } from "./driver.mjs";

const { topic, folder } = OPTIONS;
const shot = (page, name, options = {}) => page.screenshot({ path: `${folder}/${name}.png`, ...options });

await run({
  "topics": async (open) => shot(await open({ height: 1500 }), "page-topics"),
  "one topic, dark": async (open) => shot(await open({ hash: `#/topics/${topic}?of=record`, height: 1180, scheme: "dark" }), "page-topic-dark"),
  "explain": async (open) => {
    const page = await open({ hash: `#/explain?topic=${topic}`, height: 1100 });
    await page.getByLabel("Value", { exact: true }).fill("70000");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.locator(".outcome").waitFor();
    await page.evaluate(() => scrollTo(0, document.querySelector("h1").offsetTop - 16));
    await shot(page, "page-explain");
  },
  "a phone, dark": async (open) => {
    const page = await open({ width: 360, height: 780, scheme: "dark" });
    await page.getByRole("heading", { level: 1 }).scrollIntoViewIfNeeded();
    await page.evaluate(() => scrollTo(0, document.querySelector("h1").offsetTop - 16));
    await assertNoSidewaysScroll(page, "360");
    await shot(page, "page-phone-dark");
    await go(page, "#/refusals");
  },
});

// The page before 1,000 topics, and with names that would run if a page let them.
//
// url= hostile=

import { OPTIONS, assert, assertAccessible, assertNoSidewaysScroll, go, run, settled, violations } from "./driver.mjs";

const { hostile } = OPTIONS;
const rows = (page) => page.locator("tbody tr");

/** Nothing that a name could have made is in the document. */
async function assertNothingRan(page, what) {
  assert.deepEqual(await violations(page), [], what);
  const made = await page.evaluate(() => ({
    scripts: document.querySelectorAll("script").length,
    images: document.querySelectorAll("main img, section img, iframe, object, embed").length,
    handlers: [...document.querySelectorAll("*")].filter((node) => [...node.attributes].some(({ name }) => name.startsWith("on"))).length,
    links: [...document.querySelectorAll("a")].map((link) => link.getAttribute("href")).filter((href) => !/^(#|\/[a-z]|https:\/\/wiki\.example\/)/.test(href)),
    ran: globalThis.ran ?? null,
  }));
  assert.deepEqual(made, { scripts: 1, images: 0, handlers: 0, links: [], ran: null }, what);
}

await run({
  "1,000 topics come in pages that can be walked": async (open) => {
    const page = await open();
    assert.equal(await rows(page).count(), 50);
    await page.getByText("1,000 topics, 1 to 50 shown").waitFor();
    const first = await rows(page).first().innerText();
    await page.getByRole("link", { name: "Next" }).click();
    await page.getByText("Page 2 of 20").waitFor();
    assert.notEqual(await rows(page).first().innerText(), first);
    await page.getByRole("link", { name: "Previous" }).click();
    await page.getByText("Page 1 of 20").waitFor();
    assert.equal(await rows(page).first().innerText(), first);
  },

  "typing among 1,000 topics is not felt": async (open) => {
    const page = await open();
    const filter = page.getByLabel("Filter by name");
    await filter.focus();
    // Not by the clock, as this machine may be busy: however many topics there are, a keystroke makes a page of rows.
    const made = await page.evaluate(async () => {
      const field = document.getElementById("filter");
      let nodes = 0;
      const count = (node) => 1 + [...node.childNodes].reduce((sum, child) => sum + count(child), 0);
      const watch = new MutationObserver((changes) => {
        for (const { addedNodes } of changes) for (const node of addedNodes) nodes += count(node);
      });
      watch.observe(document.body, { childList: true, subtree: true });
      const most = [];
      for (const text of ["t", "to", "top", "topic-09", "topic-0999", ""]) {
        nodes = 0;
        field.value = text;
        field.dispatchEvent(new Event("input"));
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        most.push(nodes);
      }
      return most;
    });
    assert.ok(Math.max(...made) > 0 && Math.max(...made) < 10_000, `nodes made: ${made}`);
    await filter.fill("topic-0999");
    await page.getByText("1 of 1,000 topics").waitFor();
    assert.equal(await rows(page).count(), 1);
  },

  "hostile names are shown as they are, and nothing of them runs": async (open) => {
    const page = await open();
    for (const view of ["topics", "refusals", "refusal/1", "families", "clients", "consumers", "lingering", "claims", "replicas", "explain"]) {
      await go(page, `#/${view}`);
      await assertNothingRan(page, view);
      if (["refusals", "refusal/1", "claims", "clients", "lingering", "families"].includes(view)) {
        assert.ok((await page.locator("main").innerText()).includes(hostile), view);
      }
    }
    const attention = await page.getByRole("region", { name: "Needs attention" }).innerText();
    assert.equal(attention.split(hostile).length - 1, 9,
      "not ready, the control plane's error, the configuration's mistake, a broker outside, a topic and a client refused, a partition that waits, a lost value, a fallback topic");
  },

  "a hostile address is a topic that does not exist": async (open) => {
    const page = await open();
    for (const hash of [`#/topics/${encodeURIComponent(hostile)}`, `#/topics?q=${encodeURIComponent(hostile)}`, `#/refusals?topic=${encodeURIComponent(hostile)}`,
      `#/explain?topic=${encodeURIComponent(hostile)}`, "#/topics/%E0%A4%A", "#/constructor", "#/__proto__/x", "#/topics/..%2f..%2fmetrics?of=__proto__"]) {
      await go(page, hash);
      await assertNothingRan(page, hash);
    }
    await page.goto(`${OPTIONS.url}/?<script>globalThis.ran=1</script>#/topics`);
    await settled(page);
    await assertNothingRan(page, "query");
  },

  "hostile names break neither a phone's width nor what axe asks for": async (open) => {
    const page = await open({ width: 360, scheme: "dark" });
    for (const view of ["topics", "refusals", "clients", "claims", "topics/topic-0000"]) {
      await go(page, `#/${view}`);
      await assertNoSidewaysScroll(page, view);
      await assertAccessible(page, view);
    }
  },

  "refusals come 25 at a time": async (open) => {
    const page = await open({ hash: "#/refusals" });
    assert.equal(await page.getByRole("article").count(), 25);
    await page.getByRole("link", { name: "Show more" }).click();
    await page.waitForFunction(() => document.querySelectorAll("article").length === 75);
  },
});

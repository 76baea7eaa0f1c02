// The page in front of a real Kafka and a real sizegate, with traffic that was refused: what a person on call does.
//
// url= topic= main= member= lingers= remedy= mistake= loans= returns= deposits=

import { OPTIONS, assert, assertAccessible, assertNoSidewaysScroll, go, run, settled, violations } from "./driver.mjs";

const { topic, main, member, lingers, remedy, mistake, loans, returns, deposits } = OPTIONS;
const SECTIONS = ["topics", "refusals", "families", "clients", "consumers", "lingering", "claims", "explain"];
/** Sections that are shown where there is something in them. */
const MORE = ["replicas"];
const VIEWS = [...[...SECTIONS, ...MORE].map((section) => `#/${section}`), "#/refusal/0", `#/topics/${topic}`];

const row = (page, name) => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
const json = async (path) => (await fetch(OPTIONS.url + path)).json();
const focused = (page) => page.evaluate(() => document.activeElement.textContent.trim().slice(0, 60));

await run({
  "the page says how sizegate fares and has the landmarks that screen readers jump to": async (open) => {
    const page = await open();
    assert.equal(await page.title(), "Topics · sizegate");
    const summary = (await page.locator("#summary").innerText()).replace(/\s+/g, " ");
    assert.match(summary, /^Ready.* client connections? .*topics? on 1 broker.*held$/);
    for (const role of ["banner", "main", "contentinfo"]) assert.equal(await page.getByRole(role).count(), 1, role);
    const nav = page.getByRole("navigation", { name: "Sections" });
    assert.deepEqual(await nav.getByRole("link").evaluateAll((links) => links.map((link) => link.getAttribute("href"))),
      SECTIONS.map((section) => `#/${section}`));
    assert.equal(await nav.locator("[aria-current=page]").innerText(), "Topics");
    assert.equal(await page.getByRole("heading", { level: 1 }).count(), 1);
    assert.equal(await page.locator("#instance").innerText(), (await json("/api/v1/status")).instance);
    assert.deepEqual(await violations(page), []);
  },

  "whoever is woken sees what was refused in the last ten minutes, by topic, gate and client": async (open) => {
    const page = await open();
    const lines = page.getByRole("region", { name: "Needs attention" }).locator(".groups > li");
    const told = (await lines.allInnerTexts()).map((line) => line.replace(/\s+/g, " "));
    const { groups } = await json("/api/v1/refusals/recent");
    assert.equal(told.length, Math.min(5, groups.length) + (groups.length > 5 ? 1 : 0), told.join("\n"));
    const [most] = groups.filter((group) => group.topic === topic && group.client_id === "library-import");
    const line = told.find((line) => line.includes(`${topic}, gate ${most.gate}, library-import`));
    assert.match(line, new RegExp(`^${most.last_ten_minutes} refused in the last ten minutes: .*${most.last_hour} in the last hour, the first at \\d\\d:\\d\\d:\\d\\d, the last .*ago`));
    assert.ok(told.some((line) => line.includes("would have been refused")), "what is only observed says so");
    await lines.filter({ hasText: "library-import" }).first().getByRole("link").last().click();
    await page.getByRole("heading", { level: 1, name: `Refusal ${most.last_id}` }).waitFor();
    await page.getByRole("article", { name: `Refusal ${most.last_id}` }).waitFor();
    assert.equal(new URL(page.url()).hash, `#/refusal/${most.last_id}`);
    assert.equal(await page.getByRole("navigation", { name: "Sections" }).locator("[aria-current=page]").innerText().then((text) => text.split(/\s/)[0]), "Refusals");
    await page.reload();
    await page.getByRole("article", { name: `Refusal ${most.last_id}` }).waitFor();
    await go(page, "#/refusal/ffffff0");
    await page.getByText("The log has it: look for id=ffffff0.").waitFor();
  },

  "a refusal is copied with its address, with the clipboard and without": async (open) => {
    const page = await open({ hash: "#/refusals" });
    const [newest] = (await json("/api/v1/refusals")).refusals;
    const button = page.getByRole("button", { name: `Copy refusal ${newest.id}` });
    await page.evaluate(() => {
      globalThis.copied = [];
      navigator.clipboard.writeText = async (text) => globalThis.copied.push(text);
      document.addEventListener("copy", () => globalThis.copied.push(document.activeElement.value));
    });
    await button.click();
    await page.getByRole("status").getByText("Copied").waitFor({ state: "attached" });
    await page.evaluate(() => { navigator.clipboard.writeText = async () => { throw new Error("not here"); }; });
    await button.click();
    await page.waitForFunction(() => globalThis.copied.length === 2);
    const [first, second] = await page.evaluate(() => globalThis.copied);
    assert.equal(first, second);
    assert.ok(first.includes(newest.text) && first.endsWith(`/#/refusal/${newest.id}`), first);
  },

  "a changed configuration with a mistake is shown with its line": async (open) => {
    const page = await open();
    const attention = page.getByRole("region", { name: "Needs attention" });
    assert.match(await attention.innerText(), /The changed configuration has a mistake/);
    assert.match(await attention.locator("pre").innerText(), new RegExp(mistake));
  },

  "what was refused comes first, with a bar, a share and a source for every gate": async (open) => {
    const page = await open();
    const first = page.getByRole("row").nth(1);
    assert.equal(await first.getByRole("link").innerText(), topic);
    const gates = first.locator(".gates li");
    const words = await gates.allInnerTexts();
    const limits = (await json(`/api/v1/topics?topic=${topic}`)).topics[0].limits;
    assert.equal(words.length, limits.length);
    limits.forEach((limit, i) => assert.ok(words[i].startsWith(limit.gate), words[i]));
    assert.ok(words.some((text) => / \d+ % of 64 KiB · rule “library-events” · \d+ over$/.test(text.replace(/\s+/g, " "))), words.join("\n"));
    assert.equal(await gates.locator("svg.bar").count(), limits.length);
  },

  "filtering by typing narrows the list, and the address keeps the filter": async (open) => {
    const page = await open();
    const all = await page.getByRole("row").count();
    await page.getByLabel("Filter by name").pressSequentially(topic.toUpperCase());
    await row(page, topic).waitFor();
    assert.equal(await page.getByRole("row").count(), 2, `of ${all}`);
    assert.match(await page.getByText(/1 of \d+ topics/).innerText(), /1 of/);
    assert.equal(new URL(page.url()).hash, `#/topics?q=${topic.toUpperCase()}`);
    await page.reload();
    await settled(page);
    assert.equal(await page.getByLabel("Filter by name").inputValue(), topic.toUpperCase());
    assert.equal(await page.getByRole("row").count(), 2);
    await page.getByLabel("Filter by name").fill("no-such-topic");
    await page.getByText("No topic matches.").waitFor();
    await page.getByLabel("Filter by name").fill("");
    await page.getByLabel("Show", { exact: true }).selectOption({ label: "with refusals" });
    await row(page, topic).waitFor();
    assert.ok(await page.getByRole("row").count() < all);
  },

  "a topic opens by a click: limits, sizes with the limit drawn on them, refusals": async (open) => {
    const page = await open();
    await page.getByRole("main").getByRole("link", { name: topic, exact: true }).click();
    await settled(page);
    assert.equal(await page.title(), `${topic} · sizegate`);
    assert.equal(await focused(page), topic, "the heading has the focus, so that it is read");
    const limits = (await json(`/api/v1/topics?topic=${topic}`)).topics[0].limits;
    const table = page.getByRole("table", { name: "Gates of this topic" });
    for (const limit of limits) {
      const text = await table.getByRole("row").filter({ has: page.getByRole("rowheader", { name: new RegExp(`^${limit.gate}`) }) }).innerText();
      assert.ok(text.includes(limit.limit_bytes.toLocaleString("en")), text);
    }
    assert.equal(await page.locator(".drawing .limit text").textContent(), "limit 1 MiB");
    await page.getByRole("link", { name: "records", exact: true }).click();
    await page.locator(".drawing .limit text", { hasText: "limit 64 KiB" }).waitFor();
    assert.equal(await page.locator(".choices [aria-current]").innerText(), "records");
    await page.getByText("As a table").click();
    const counted = (await json(`/api/v1/sizes?topic=${topic}`)).sizes.record;
    const numbers = await page.locator("table.plain td.num").allInnerTexts();
    assert.equal(numbers.reduce((sum, text) => sum + Number(text.replaceAll(",", "")), 0), counted.count);
    await page.goBack();
    await page.goBack();
    await row(page, topic).waitFor();
  },

  "a refusal shows the whole text, the remedy and who sent it": async (open) => {
    const page = await open();
    await page.getByRole("link", { name: /^Refusals/ }).click();
    await settled(page);
    const { refusals } = await json("/api/v1/refusals");
    const [newest] = refusals;
    const article = page.getByRole("article", { name: `Refusal ${newest.id}` });
    const shown = (await article.innerText()).replace(/\s+/g, " ");
    assert.ok(shown.includes(newest.text.split(". ")[0]) && shown.includes(newest.text.slice(newest.text.lastIndexOf("[gate="))), shown);
    for (const word of [newest.client_id, newest.software, newest.address]) assert.ok(shown.includes(word), word);
    const ruled = page.getByRole("article").filter({ hasText: remedy.split("http")[0] }).first();
    const link = ruled.getByRole("link", { name: /^https:/ });
    assert.equal(await link.getAttribute("href"), remedy.slice(remedy.indexOf("http")));
    assert.equal(await link.getAttribute("rel"), "noopener noreferrer");
    await page.getByLabel("Gate", { exact: true }).selectOption("batch");
    await page.getByText(/^\d+ of \d+ refusals, newest first$/).waitFor();
    const gates = await page.locator("article .chip").allInnerTexts();
    assert.deepEqual([...new Set(gates)], ["batch"]);
    await page.getByLabel("Topic, client, client library or id").fill(newest.id);
    await page.getByLabel("Gate", { exact: true }).selectOption("");
    await page.getByText(/^1 of/).waitFor();
    const recent = page.getByRole("table", { name: "Refused in the last hour" });
    await page.getByLabel("Topic, client, client library or id").fill("library-import");
    await page.getByText(/ of \d+ refusals/).waitFor();
    for (const row of (await recent.getByRole("row").allInnerTexts()).slice(1)) assert.match(row, /library-import/);
    assert.ok(await recent.getByRole("row").count() > 1);
  },

  "families show who cannot take what the main topic takes": async (open) => {
    const page = await open({ hash: "#/families" });
    await page.getByRole("heading", { level: 2, name: main }).waitFor();
    assert.match(await row(page, member).innerText(), /[\d,]+ bytes short/);
    const attention = page.getByRole("region", { name: "Needs attention" });
    assert.match(await attention.innerText(), /family member/);
    const [gap] = (await json("/api/v1/families")).families.flatMap(({ members }) => members).flatMap(({ gates }) => gates).filter(({ fix }) => fix);
    for (const place of [attention, page.getByRole("main")]) {
      await place.getByText(`lacks ${gap.gap_bytes.toLocaleString("en")} bytes`).first().waitFor();
      assert.match(await place.locator(".command code").first().innerText(), /^sizegate align .*--apply$/);
    }
  },

  "a producer that lingers and a consumer that is stuck are named": async (open) => {
    const page = await open({ hash: "#/lingering" });
    const lingering = page.getByRole("table", { name: "Producers that let large records wait" });
    assert.match((await lingering.getByRole("row").nth(1).innerText()).replace(/\s+/g, " "), new RegExp(`^${lingers} payments-export .*\\d(\\.\\d+)? s 1 MiB`));
    await page.getByText("KAFKA-21068").waitFor();
    await go(page, "#/consumers");
    const stuck = page.getByRole("table", { name: "Consumers stuck behind a large batch" });
    assert.match(await stuck.getByRole("row").filter({ hasText: member }).innerText(), new RegExp(`^${member}-0`));
    assert.match(await page.getByRole("region", { name: "Needs attention" }).innerText(), /\d+ consumers? stuck/);
    await go(page, `#/topics/${member}`);
    await page.getByRole("heading", { level: 2, name: "Consumers stuck behind a large batch" }).waitFor();
  },

  "a claim check: what went to the store, what came back, what is lost, who waits, how the store fares": async (open) => {
    const page = await open({ hash: "#/claims" });
    const attention = (await page.getByRole("region", { name: "Needs attention" }).innerText()).replace(/\s+/g, " ");
    assert.match(attention, new RegExp(`records? of ${returns} went to the fallback topic \\(\\d+ missing\\), the last `));
    assert.match(attention, /\d partitions? waits? for a value that cannot be read now\. The longest is \w+-0, at offset \d+ for /);
    assert.match(attention, new RegExp(`The fallback topic of ${deposits} does not take records`));
    assert.ok(await page.getByRole("region", { name: "Needs attention" }).getByRole("link", { name: "Claim check" }).count() >= 3);
    const text = async (table, name) => (await page.getByRole("table", { name: table }).getByRole("row").filter({ hasText: name }).innerText()).replace(/\s+/g, " ");
    const seen = (await json("/api/v1/claims")).topics.find((one) => one.topic === loans);
    assert.ok(seen.offloaded_records > 0 && seen.redeemed_records > 0 && seen.log_bytes > 0);
    // One of each in a round.
    assert.match(await text("Values in the object store by topic", loans), new RegExp(`^${loans} ${seen.offloaded_records} .*9\\d % smaller .* in the log ${seen.redeemed_records} .* (\\d+) forged \\1 orphans$`));
    assert.match(await text("Partitions that wait for a value", `inspect ${deposits} 0 0`), /^deposits-0 0 \d+ (s|min) /);
    assert.match(await text("Records that went to the fallback topic", returns), new RegExp(`sizegate claim redrive ${returns}`));
    assert.match(await text("Operations on the object store", "put"), /fine .*created/);
    await page.getByText(/% smaller/).first().waitFor();
  },

  "clients are listed by client library and version": async (open) => {
    const page = await open({ hash: "#/clients" });
    const table = page.getByRole("table", { name: "Clients by client library and version" });
    for (const { software, version } of (await json("/api/v1/clients")).clients) {
      if (software !== "unknown") await table.getByRole("rowheader", { name: `${software} ${version}`.trim() }).waitFor();
    }
  },

  "explain says who would refuse: the client, sizegate, or nobody": async (open) => {
    const page = await open({ hash: `#/topics/${topic}` });
    await page.getByRole("link", { name: "Try sizes on this topic" }).click();
    const outcome = page.locator(".outcome");
    assert.equal(await page.getByLabel("Topic", { exact: true }).inputValue(), topic);
    await page.getByLabel("Value", { exact: true }).fill("70000");
    await page.getByRole("button", { name: "Explain" }).click();
    await outcome.getByText(/sizegate refuses it first/).waitFor();
    assert.match(await page.getByRole("row").filter({ hasText: "gate record" }).first().innerText(), /65,536/);
    await page.getByLabel("Value", { exact: true }).fill("2 MiB");
    await page.getByLabel("Value", { exact: true }).press("Enter");
    await outcome.getByText(/The client refuses it first/).waitFor();
    await page.getByLabel("Value", { exact: true }).fill("100");
    await page.getByLabel("Value", { exact: true }).press("Enter");
    await outcome.getByText(/Nobody refuses it/).waitFor();
    await page.getByLabel("Value", { exact: true }).fill("many");
    await page.getByRole("button", { name: "Explain" }).click();
    assert.equal(await page.getByLabel("Value", { exact: true }).getAttribute("aria-invalid"), "true");
    assert.equal(await page.evaluate(() => document.activeElement.id), "value_bytes");
    // A topic that offloads: the same record as a ticket.
    await page.getByLabel("Topic", { exact: true }).fill(loans);
    await page.getByLabel("Value", { exact: true }).fill("100000");
    await page.getByLabel("Value", { exact: true }).press("Enter");
    const sizes = page.getByRole("table", { name: "Sizes as it is sent and as a ticket" });
    const [sent, ticket] = await sizes.getByRole("row").filter({ hasText: "value" }).getByRole("cell").allInnerTexts();
    assert.equal(sent, "100,000");
    assert.ok(Number(ticket.replaceAll(",", "")) < 1_000, ticket);
  },

  "everything can be reached with the keyboard alone": async (open) => {
    const page = await open();
    await page.keyboard.press("Tab");
    assert.equal(await focused(page), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "view");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), "filter");
    await page.keyboard.type(topic);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    assert.equal(await focused(page), topic);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: topic }).waitFor();
    await settled(page);
    // Back to the sections, on to Explain, and a question, all by keys.
    await page.getByRole("link", { name: "Explain", exact: true }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Explain" }).waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), "topic");
    await page.keyboard.type(topic);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Tab");
    await page.keyboard.type("70000");
    await page.keyboard.press("Enter");
    await page.locator(".outcome").waitFor();
    const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(ring, "none", "the focus is visible");
  },

  "what is being typed and where the focus is outlive an update": async (open) => {
    const page = await open();
    const filter = page.getByLabel("Filter by name");
    await filter.pressSequentially(topic.slice(0, 4));
    const before = await page.locator("#updated").innerText();
    await page.getByRole("button", { name: "Pause updates" }).click();
    assert.equal(await page.getByRole("button", { name: "Pause updates" }).getAttribute("aria-pressed"), "true");
    await page.waitForTimeout(1100);
    await page.getByRole("button", { name: "Pause updates" }).click();
    await filter.focus();
    await page.waitForFunction((text) => document.getElementById("updated").textContent !== text, before);
    assert.equal(await filter.inputValue(), topic.slice(0, 4));
    assert.equal(await page.evaluate(() => document.activeElement.id), "filter");
  },

  "it fits phones 360 and 320 pixels wide": async (open) => {
    const page = await open({ width: 360, height: 740 });
    for (const width of [360, 320]) {
      await page.setViewportSize({ width, height: 740 });
      for (const view of VIEWS) {
        await go(page, view);
        await assertNoSidewaysScroll(page, `${view} at ${width}`);
      }
    }
    assert.equal(await page.getByRole("table").count() > 0, true, "a table is one for screen readers there too");
  },

  "axe finds nothing in light and in dark, on wide screens and on phones": async (open) => {
    // What differs between them: colours in the dark, the layout of tables on a phone.
    for (const [scheme, width, only] of [["light", 1200], ["dark", 1200, ["color-contrast"]], ["light", 360]]) {
      const page = await open({ scheme, width });
      const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const [red] = paper.match(/\d+/).map(Number);
      assert.equal(red < 128, scheme === "dark", paper);
      for (const view of VIEWS) {
        await go(page, view);
        await assertAccessible(page, `${view}, ${scheme}, ${width}`, only);
      }
      assert.deepEqual(await violations(page), []);
    }
  },

  "a sizegate that is gone is said to be gone, and what was shown stays": async (open) => {
    const page = await open({ mayFail: true });
    await page.context().route("**/api/**", (route) => route.abort());
    await page.getByRole("button", { name: "Pause updates" }).click();
    await page.getByRole("button", { name: "Pause updates" }).click();
    await page.getByText("sizegate does not answer.").waitFor();
    assert.match(await page.locator("#summary").innerText(), /^No answer/);
    assert.equal(await page.locator("#updated").innerText(), "not up to date");
    await row(page, topic).waitFor();
    await page.context().unroute("**/api/**");
    await page.getByRole("button", { name: "Pause updates" }).click();
    await page.getByRole("button", { name: "Pause updates" }).click();
    await page.getByText(/^Ready/).waitFor();
  },

  "without scripts it says whether clients are served, and where to look": async (open) => {
    const page = await open({ script: false });
    assert.match(await page.getByRole("main").innerText(), /Ready: clients are served\./);
    assert.equal(await page.locator("a[href='/api/v1/refusals']").count(), 1);
  },
});

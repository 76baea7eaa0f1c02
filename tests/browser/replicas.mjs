// The page of one of two sizegates that are shown together, and after the other one was killed.
//
// url= topic= phase= gone=

import { OPTIONS, assert, assertAccessible, assertNoSidewaysScroll, go, run } from "./driver.mjs";

const { topic, phase, gone } = OPTIONS;
const text = async (locator) => (await locator.innerText()).replace(/\s+/g, " ");
const attention = (page) => page.getByRole("region", { name: "Needs attention" });
const group = (page, client) => attention(page).getByRole("listitem").filter({ hasText: topic }).filter({ hasText: client });

await run(phase === "together" ? {
  "refusals of both are one group that says where, and what only one had says so": async (open) => {
    const page = await open();
    assert.match(await text(group(page, ", app")), /^5 refused in the last ten minutes: .*gate record, app.* at .*:\d+, .*:\d+$/);
    assert.match(await text(group(page, ", job")), /^1 refused .* at [^ ,]+:\d+$/);
    assert.match(await text(page.locator("#instance")), /:\d+ and 1 more$/);
    assert.match(await text(page.locator("#summary")), /2 of 2 replicas/);
  },

  "the replicas are listed, on a phone too": async (open) => {
    const page = await open({ hash: "#/replicas", width: 360 });
    const table = page.getByRole("table", { name: "Replicas" });
    assert.equal(await table.getByRole("row").count(), 3);
    assert.equal(await table.getByText("ready", { exact: true }).count(), 2);
    await assertNoSidewaysScroll(page, "replicas");
    await assertAccessible(page, "replicas");
  },

  "a refusal of the other replica has an address here": async (open) => {
    const page = await open();
    await group(page, ", job").getByRole("link").last().click();
    await page.getByRole("article").waitFor();
    assert.match(await text(page.getByRole("article")), /client id job .* at .*:\d+/);
    assert.match(new URL(page.url()).hash, /^#\/refusal\/[0-9a-f]+$/);
  },
} : {
  "one that does not answer is named, and what is shown is of the rest": async (open) => {
    const page = await open();
    await attention(page).getByText(`Replica ${gone} does not answer:`).waitFor();
    assert.match(await text(group(page, ", app")), /^2 refused/);
    assert.match(await text(page.locator("#summary")), /1 of 2 replicas/);
    await go(page, "#/replicas");
    const row = page.getByRole("table", { name: "Replicas" }).getByRole("row").filter({ hasText: gone });
    assert.match(await text(row), /does not answer/);
  },
});

// "Copy": the text a button bears goes to the clipboard, and a screen reader is told.
//
// One listener for all buttons: those that are shown change with every update.

import { el } from "./dom.js";

const SHOWN_MS = 2_000;

/** A button that copies `text`. */
export const copyButton = (text, what) =>
  el("button", { type: "button", class: "copy", "data-copy": text, "aria-label": `Copy ${what}` }, "Copy");

/** The page's own address with another view. */
export const addressOf = (hash) => `${location.origin}${location.pathname}#/${hash}`;

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (!button) return;
  const isDone = await copied(button.dataset.copy);
  const words = isDone ? "Copied" : "Not copied";
  button.textContent = words;
  document.getElementById("said").textContent = words;
  setTimeout(() => {
    button.textContent = "Copy";
  }, SHOWN_MS);
});

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByHand(text);
  }
}

/** Browsers give a page the clipboard over https and on localhost only. */
function copiedByHand(text) {
  const field = el("textarea", { class: "hidden", "aria-hidden": "true", tabindex: -1 });
  field.value = text;
  document.body.append(field);
  const focused = document.activeElement;
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return isDone;
}

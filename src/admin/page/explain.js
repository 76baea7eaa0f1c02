// "Explain": sizes are typed, every gate on the record's way says whether it would pass, and who would refuse it.

import { el } from "./dom.js";

export const label = "Explain";
export const title = () => "Explain";

export function toolbar() { return el("div", {}); }
export function body() { return []; }

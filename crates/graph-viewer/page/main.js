// Shows the page that the address names.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { runsPage } from "./runs.js";

const page = document.getElementById("page");
const problem = document.getElementById("problem");

let leave = () => {};
let about = null;

/** Shows what went wrong, or takes it away. */
export function say(error) {
  problem.hidden = !error;
  fill(problem, error ? error.message : "");
}

async function knownAbout() {
  if (about) return about;
  about = await get("about");
  fill(document.getElementById("place"), about.place);
  fill(
    document.getElementById("key"),
    "key ",
    h("code", { title: "the public key that verifies the journals" }, about.fingerprint),
  );
  const rights = document.getElementById("rights");
  fill(rights, about.answers ? "answers are signed" : "read-only");
  rights.title = about.answers
    ? `the page answers questions with the key ${about.answers}`
    : "the page changes nothing";
  rights.classList.toggle("warning", Boolean(about.answers));
  return about;
}

async function show() {
  leave();
  say(null);
  const stop = new AbortController();
  leave = () => stop.abort();
  const [, kind = "", first = "", second = ""] = location.hash.split("?")[0].split("/");
  const query = new URLSearchParams(location.hash.split("?")[1] ?? "");
  try {
    // The list of runs does not wait for anything else.
    const known = knownAbout();
    let shown;
    if (kind === "run") {
      const { runPage } = await import("./run.js");
      shown = runPage(page, { run: decodeURIComponent(first), query, about: await known, stop: stop.signal, say });
    } else if (kind === "compare") {
      const { comparePage } = await import("./compare.js");
      shown = comparePage(page, {
        a: decodeURIComponent(first),
        b: decodeURIComponent(second),
        stop: stop.signal,
        say,
      });
    } else {
      shown = runsPage(page, { query, stop: stop.signal, say, about: known });
    }
    await Promise.all([shown, known]);
  } catch (error) {
    if (error.name !== "AbortError") say(error);
  }
}

addEventListener("hashchange", show);
// A page that is never handled is a defect of ours, and nobody should wonder.
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name !== "AbortError")
    say(event.reason instanceof Error ? event.reason : new Error(String(event.reason)));
});
show();

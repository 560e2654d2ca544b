// Parses Mermaid diagrams: a JSON list of texts on stdin. Prints the number of those that are accepted, or fails with the first that
// is not. The first argument is the directory whose `node_modules` has `mermaid` and `jsdom`.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const directory = process.argv[2];
const resolve = createRequire(join(directory, "package.json"));
const { JSDOM } = resolve("jsdom");
const { window } = new JSDOM("<!doctype html><body></body>");
globalThis.window = window;
globalThis.document = window.document;
const { default: mermaid } = await import(pathToFileURL(resolve.resolve("mermaid")));

const diagrams = JSON.parse(readFileSync(0, "utf8"));
for (const text of diagrams) {
  try {
    await mermaid.parse(text);
  } catch (error) {
    console.error(`${error}\n${text}`);
    process.exit(1);
  }
}
console.log(diagrams.length);

// Verifies journals with the page's own reader, in Node. Reads a line of JSON for each journal from standard input, and writes a line with
// the verdict: `{"ok":true,"records":…,"link":…}`, or `{"ok":false,"kind":…,"record":…,"line":…}`.
//
// A line has `path`, `run`, `key`, `from` and `every`; with `flips`, a list of masks, each byte of the file is changed by each of them in
// turn, and there is a verdict for each change.

import { readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

const { read, verify } = await import(process.argv[2]);

async function verdict(bytes, options) {
  try {
    const { records, link } = await verify(read(bytes, options), options);
    return { ok: true, records, link };
  } catch (error) {
    if (!error.kind) throw error;
    const { kind, record, line } = error;
    return { ok: false, kind, record, line };
  }
}

const say = (value) => {
  const bytes = Buffer.from(`${JSON.stringify(value)}\n`);
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const { path, flips, ...options } = JSON.parse(line);
  const bytes = new Uint8Array(readFileSync(path));
  if (!flips) {
    say(await verdict(bytes, options));
    continue;
  }
  for (let at = 0; at < bytes.length; at += 1) {
    for (const mask of flips) {
      bytes[at] ^= mask;
      say(await verdict(bytes, options));
      bytes[at] ^= mask;
    }
  }
}

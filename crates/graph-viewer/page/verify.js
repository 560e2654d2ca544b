// Verifies the journal of a run: an independent reader, written from docs/journal.md. It shares no code with the
// program that wrote the journal, and runs in a browser, in a worker and in Node.

// The SHA-256 of nothing, which the first record names as the link before it.
const NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// The order of the group of Ed25519: a signature whose second half is not below it is not one (RFC 8032, section
// 5.1.7).
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;

// The y coordinates of the points of small order, in the bytes of RFC 8032 without the sign. A signature that begins
// with one of them, or a key that is one, says nothing about who signed.
const SMALL = new Set([
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]);

const utf8 = new TextEncoder();

/** A journal that is refused: `kind` says why, and `record` or `line` where. */
export class Refusal extends Error {
  constructor(kind, message, place = {}) {
    super(message);
    this.kind = kind;
    Object.assign(this, place);
  }
}

export function hex(bytes) {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** Reads hex in lower case, or returns null. */
export function unhex(text, length) {
  if (text.length !== 2 * length || !/^[0-9a-f]*$/.test(text)) return null;
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at += 1) bytes[at] = Number.parseInt(text.slice(2 * at, 2 * at + 2), 16);
  return bytes;
}

async function sha256(bytes) {
  return new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", bytes));
}

/** Reads the members of a JSON object whose values are texts, each member once; null if the line is something else. */
function members(line) {
  let at = 0;
  const space = () => {
    while (at < line.length && " \t\r".includes(line[at])) at += 1;
  };
  const takes = (letter) => {
    space();
    if (line[at] !== letter) return false;
    at += 1;
    return true;
  };
  const text = () => {
    space();
    const from = at;
    if (line[at] !== '"') return null;
    for (at += 1; line[at] !== '"'; at += line[at] === "\\" ? 2 : 1) if (at >= line.length) return null;
    at += 1;
    try {
      const value = JSON.parse(line.slice(from, at));
      // Half of a character is no text in UTF-8.
      return value.isWellFormed() ? value : null;
    } catch {
      return null;
    }
  };
  const found = new Map();
  if (!takes("{")) return null;
  do {
    const name = text();
    if (name === null || found.has(name) || !takes(":")) return null;
    const value = text();
    if (value === null) return null;
    found.set(name, value);
  } while (takes(","));
  if (!takes("}")) return null;
  space();
  return at === line.length ? found : null;
}

/**
 * Reads a journal in a file: a line of JSON for each record, and one for the token of the last one. Verifies nothing.
 *
 * Returns `{ records: [{ body, signature }], token }`. Throws a Refusal of the kind `unreadable`. With `from:
 * "store"`, the lines are those of a store, which may have lost the token: `token` is null then, and the journal is
 * refused when it is verified.
 */
export function read(bytes, { from = "files" } = {}) {
  const unreadable = (message, line) => new Refusal("unreadable", message, line === undefined ? {} : { line });
  const cut = "it does not end with the token of its last record: it was cut short, or is being written";
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw unreadable("the journal is not UTF-8");
  }
  if (!text.endsWith("\n")) throw unreadable(cut);
  const lines = text.slice(0, -1).split("\n");
  let last = members(lines.at(-1));
  if (from === "store" && last && !last.has("end")) last = null;
  else lines.pop();
  const records = lines.map((line, at) => {
    const found = members(line);
    if (!found || found.size !== 2 || !found.has("body") || !found.has("signature")) {
      throw unreadable(`line ${at + 1} is not a record with its signature`, at + 1);
    }
    const signature = unhex(found.get("signature"), 64);
    if (!signature) throw unreadable(`line ${at + 1}: its signature is not 128 hex digits`, at + 1);
    return { body: found.get("body"), signature };
  });
  const token = last && last.size === 1 && last.has("end") ? unhex(last.get("end"), 32) : null;
  if (!token && !(from === "store" && last === null)) throw unreadable(cut);
  if (records.length === 0) throw unreadable("it has no record");
  return { records, token };
}

/** A key that verifies signatures as strictly as the page asks. Throws if WebCrypto has no Ed25519 here. */
export async function importKey(text) {
  const bytes = unhex(text, 32);
  const weak = bytes && isSmall(bytes);
  if (!bytes || weak)
    throw new Refusal(
      "key",
      weak ? "the public key is a weak one, that signs anything" : "the public key is not 64 hex digits",
    );
  if (!globalThis.crypto?.subtle) {
    throw new Refusal(
      "unsupported",
      "this browser gives a page no WebCrypto: open the address on 127.0.0.1 or localhost",
    );
  }
  try {
    return await globalThis.crypto.subtle.importKey("raw", bytes, { name: "Ed25519" }, false, ["verify"]);
  } catch (error) {
    throw new Refusal(
      "unsupported",
      `this browser has no Ed25519 in WebCrypto (${error.name}): Chromium has it from version 137, Firefox from 129, Safari from 17; ` +
        "`graph verify-run` verifies the run too",
    );
  }
}

function isSmall(bytes) {
  const y = Uint8Array.from(bytes);
  y[31] &= 0x7f;
  return SMALL.has(hex(y));
}

async function isSigned(digest, signature, key) {
  let scalar = 0n;
  for (let at = 63; at >= 32; at -= 1) scalar = (scalar << 8n) | BigInt(signature[at]);
  if (scalar >= ORDER || isSmall(signature.subarray(0, 32))) return false;
  return globalThis.crypto.subtle.verify({ name: "Ed25519" }, key, signature, utf8.encode(hex(digest)));
}

/** Returns the version of a record that begins as a record must at this place, or null. */
function begins(body, run, seq, prev, version) {
  const found = { '{"v":2,': 2, '{"v":3,': 3 }[body.slice(0, 7)];
  if (found === undefined || found < version) return null;
  const rest = body.slice(7);
  return rest.startsWith(`"run":"${run}","seq":${seq},"prev":"${prev}","end":"`) ? found : null;
}

/** Says why the record at the end of `last` is refused. The one before it may be the one that was changed. */
async function blame(records, at, key, fingerprint) {
  for (let seq = Math.max(0, at - 1); seq <= at; seq += 1) {
    const { body, signature } = records[seq];
    if (!(await isSigned(await sha256(utf8.encode(body)), signature, key))) {
      throw new Refusal("signature", `record ${seq} of its journal is not signed by ${fingerprint}`, { record: seq });
    }
    let version;
    try {
      version = JSON.parse(body).v;
    } catch {
      version = undefined;
    }
    if (!Number.isInteger(version)) {
      throw new Refusal("unreadable", `record ${seq} of its journal cannot be read`, { record: seq });
    }
    if (version !== 2 && version !== 3) {
      throw new Refusal(
        "version",
        `record ${seq} of its journal has version ${version}, and this reader reads 2 and 3`,
        { record: seq },
      );
    }
  }
  throw new Refusal(
    "broken",
    `record ${at} of its journal does not follow the one before it: the journal was changed`,
    { record: at },
  );
}

/**
 * Verifies a journal that was read: the chain from the first record to the last, the signature of the last one, and
 * its token.
 *
 * `options` has `run`, the id that the records must have; `key`, the public key in hex; `every`, whether the
 * signature of each record is verified too; and `progress`, which receives how many records of how many were looked
 * at.
 * Returns `{ records, link, fingerprint, signatures }`. Throws a Refusal, whose `record` is the record that the page
 * says to name.
 */
export async function verify({ records, token }, { run, key: text, every = false, progress = () => {} }) {
  const key = await importKey(text);
  const fingerprint = await fingerprintOf(text);
  if (records.length === 0) throw new Refusal("empty", "its journal is empty");
  let [prev, version, signatures, digest] = [NOTHING, 2, 0, null];
  for (let seq = 0; seq < records.length; seq += 1) {
    const { body, signature } = records[seq];
    const found = begins(body, run, seq, prev, version);
    if (found === null) await blame(records, seq, key, fingerprint);
    version = found;
    digest = await sha256(utf8.encode(body));
    const both = new Uint8Array(96);
    both.set(digest);
    both.set(signature, 32);
    prev = hex(await sha256(both));
    if (every && seq + 1 < records.length) {
      if (!(await isSigned(digest, signature, key))) await blame(records, seq, key, fingerprint);
      signatures += 1;
    }
    if (seq % 1000 === 999) progress(seq + 1, records.length);
  }
  const last = records.length - 1;
  if (!(await isSigned(digest, records[last].signature, key))) await blame(records, last, key, fingerprint);
  let end;
  try {
    ({ end } = JSON.parse(records[last].body));
  } catch {
    throw new Refusal("unreadable", `record ${last} of its journal cannot be read`, { record: last });
  }
  if (token === null || hex(await sha256(token)) !== end) {
    const message = `record ${last} of its journal was not the last one: records behind it were taken away`;
    throw new Refusal("shortened", message, { record: last });
  }
  if (
    !/^[^"]*","at":"[^"]*","kind":"start"/.test(
      records[0].body.slice(`{"v":3,"run":"${run}","seq":0,"prev":"${NOTHING}","end":"`.length),
    )
  ) {
    throw new Refusal("broken", "record 0 of its journal is not the start of a run", { record: 0 });
  }
  progress(records.length, records.length);
  return { records: records.length, link: prev, fingerprint, signatures: signatures + 1 };
}

/** Returns the fingerprint of a public key: the first eight bytes of the SHA-256 of its PEM text, in hex. */
export async function fingerprintOf(text) {
  const der = `302a300506032b6570032100${text}`;
  const binary = String.fromCharCode(...der.match(/../g).map((pair) => Number.parseInt(pair, 16)));
  const pem = `-----BEGIN PUBLIC KEY-----\n${btoa(binary)}\n-----END PUBLIC KEY-----\n`;
  return hex((await sha256(utf8.encode(pem))).subarray(0, 8));
}

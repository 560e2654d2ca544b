// The inbox: shows questions, and signs answers with a key that stays in this browser.
//
// All texts of a question come from strangers. They are shown with textContent only; the policy of the page allows nothing else.

const $ = id => document.getElementById(id);
const ENCODER = new TextEncoder();
const ANSWER_TYPE = "application/vnd.state-graphs.answer+json";
// A secret Ed25519 key in PKCS#8 is this and 32 bytes.
const PKCS8 = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];

/** An error whose text a person understands. `status` is that of the service's answer, if it gave one. */
class Problem extends Error {
  constructor(text, status = 0) {
    super(text);
    this.status = status;
  }
}

// ---- Bytes

const base64 = bytes => btoa(String.fromCharCode(...bytes));
const bytesOf = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async text => hex(new Uint8Array(await crypto.subtle.digest("SHA-256", ENCODER.encode(text))));

/** The bytes that are signed for a payload: the pre-authentication encoding of DSSE, version 1. */
function signedBytes(type, payload) {
  const head = ENCODER.encode(`DSSEv1 ${ENCODER.encode(type).length} ${type} ${payload.length} `);
  const bytes = new Uint8Array(head.length + payload.length);
  bytes.set(head);
  bytes.set(payload, head.length);
  return bytes;
}

// ---- The key

let key = null; // { secret: CryptoKey that cannot be exported, pem, fingerprint }

/** The public key as PEM, and its fingerprint: the first 16 digits of the SHA-256 of the PEM. */
async function described(secret, raw) {
  const spki = base64(new Uint8Array([48, 42, 48, 5, 6, 3, 43, 101, 112, 3, 33, 0, ...raw]));
  const pem = `-----BEGIN PUBLIC KEY-----\n${spki}\n-----END PUBLIC KEY-----\n`;
  return { secret, pem, fingerprint: (await sha256(pem)).slice(0, 16) };
}

async function importedKey(pem) {
  const lines = pem.match(/-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----/);
  if (!lines) throw new Problem("This is not a secret key in PEM, as private_key.pem has it.");
  const bytes = bytesOf(lines[1].replace(/\s/g, ""));
  // Version 2 of the format has the public key too, which browsers refuse.
  if (bytes.length === 83 && bytes[1] === 81) bytes.set([48, 46, 2, 1, 0]);
  const first = bytes.subarray(0, 48);
  if (!PKCS8.every((byte, at) => first[at] === byte)) throw new Problem("This is not an Ed25519 key.");
  try {
    // Once so that its public half can be computed, and once so that nothing can read it back.
    const open = await crypto.subtle.importKey("pkcs8", first, "Ed25519", true, ["sign"]);
    const { x } = await crypto.subtle.exportKey("jwk", open);
    const secret = await crypto.subtle.importKey("pkcs8", first, "Ed25519", false, ["sign"]);
    return await described(secret, bytesOf(x.replaceAll("-", "+").replaceAll("_", "/")));
  } finally {
    bytes.fill(0);
  }
}

async function madeKey() {
  const { privateKey, publicKey } = await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  return described(privateKey, new Uint8Array(await crypto.subtle.exportKey("raw", publicKey)));
}

/** Does something with the database of this browser, which keeps the key without showing it to anybody. */
function withKeys(mode, work) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("inbox", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const database = opening.result;
      const transaction = database.transaction("keys", mode);
      const request = work(transaction.objectStore("keys"));
      transaction.oncomplete = () => { database.close(); resolve(request.result); };
      transaction.onabort = () => { database.close(); reject(transaction.error); };
    };
  });
}

// ---- The service

async function ask(path, body) {
  const options = { headers: { authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` } };
  if (body !== undefined) {
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    options.headers["content-type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem("The service does not answer. Nothing is lost: try again.");
  }
  const text = await response.text();
  let said;
  try { said = JSON.parse(text); } catch { said = { error: text }; }
  if (!response.ok) throw new Problem(said.error || `The service answers ${response.status}.`, response.status);
  return said;
}

const place = (run, wait) => `/inbox/questions/${encodeURIComponent(run)}/${encodeURIComponent(wait)}`;

// ---- Showing

const SECTIONS = ["enter", "key", "list", "question"];
function show(section) {
  for (const other of SECTIONS) $(other).hidden = other !== section;
  document.body.dataset.section = section;
}

function say(text, kind = "") {
  $("message").textContent = text;
  $("message").className = kind;
  $("message").hidden = !text;
}

/** Puts a text into an element, with the letters that nobody sees, or that change the order of others, as their numbers. */
function put(element, text) {
  element.replaceChildren();
  for (const part of text.split(/([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}])/u)) {
    if (part === "\n" || !/^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]$/u.test(part)) {
      element.append(document.createTextNode(part));
    } else {
      const mark = document.createElement("mark");
      mark.textContent = `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      element.append(mark);
    }
  }
}

/** A number as the text of the question has it: JavaScript would round a large one. */
class Written {
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}
const parse = text => JSON.parse(text, (_, value, context) =>
  typeof value === "number" && context?.source !== undefined ? new Written(context.source) : value);

function shown(value) {
  if (value === null) return "–";
  if (value instanceof Written || typeof value !== "object") return String(value);
  return JSON.stringify(value, (_, inner) => inner instanceof Written ? inner.text : inner, 1);
}

const euros = cents => /^\d+$/.test(cents) ? ` (${cents.slice(0, -2) || "0"}.${cents.slice(-2).padStart(2, "0")})` : "";

let skew = 0; // the service's time less ours
const now = () => Date.now() + skew;

function left(due) {
  const minutes = Math.ceil((due - now()) / 60_000);
  if (minutes <= 0) return "the time is over";
  if (minutes < 60) return `${minutes} min left`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h left` : `${Math.floor(hours / 24)} days left`;
}

// ---- The list

// Counts the clicks. What the service says to one of them is not shown after the next one.
let turn = 0;

async function list(after) {
  const own = turn;
  const query = after ? `?after=${encodeURIComponent(after)}` : "";
  const { now: then, questions, next } = await ask(`/inbox/questions${query}`);
  if (own !== turn) return;
  skew = then - Date.now();
  if (!after) $("questions").replaceChildren();
  for (const { run, wait, due, payload } of questions) {
    const [item, button, what, when] = ["li", "button", "span", "span"].map(name => document.createElement(name));
    put(what, [run, payload?.customer, `${payload?.quantity} × ${payload?.article}`].filter(Boolean).join(" · "));
    what.className = "what";
    when.textContent = due ? left(due) : "";
    when.className = "when";
    button.type = "button";
    button.dataset.run = run;
    button.append(what, when);
    button.addEventListener("click", () => attempt(() => open(run, wait)));
    item.append(button);
    $("questions").append(item);
  }
  $("none").hidden = $("questions").children.length > 0;
  $("more").hidden = !next;
  $("more").onclick = () => attempt(() => list(next));
  show("list");
}

// ---- A question

let question = null;

async function open(run, wait) {
  const own = turn;
  const asked = await ask(place(run, wait));
  if (own !== turn) return;
  question = asked;
  skew = question.now - Date.now();
  put($("title"), `Order ${question.run}: may the customer pay later?`);
  const rows = Object.entries(parse(question.payload)).map(([name, value]) => {
    const [row, head, cell] = ["tr", "th", "td"].map(kind => document.createElement(kind));
    put(head, name);
    put(cell, shown(value) + (name === "amount_cents" ? euros(shown(value)) : ""));
    row.append(head, cell);
    return row;
  });
  $("payload").tBodies[0].replaceChildren(...rows);
  $("note").value = "";
  $("signed").hidden = true;
  lock(false);
  $("due").textContent = "";
  $("due").classList.remove("over");
  tick();
  show("question");
}

/** Nobody can answer a question that is answered, or whose time is over. */
function lock(is) {
  for (const name of ["approve", "refuse", "note"]) $(name).disabled = is;
}

function tick() {
  if (!question?.due) return;
  const isOver = question.due <= now();
  $("due").textContent = isOver
    ? "The time is over: nobody can answer this any more."
    : `${left(question.due)}, until ${new Date(question.due).toLocaleString()}. Needs the role “${question.role}”.`;
  $("due").classList.toggle("over", isOver);
  if (isOver) lock(true);
}
setInterval(tick, 1000);

/** Checks that a statement says what this page shows, and nothing else, before a person's key signs it. */
async function checked(envelope, asked, answer) {
  const refuse = what => { throw new Problem(`Nothing was signed: the service's statement is about another ${what}.`); };
  if (envelope.payloadType !== ANSWER_TYPE) refuse("type");
  const payload = bytesOf(envelope.payload);
  const text = new TextDecoder("utf-8", { fatal: true }).decode(payload);
  const said = JSON.parse(text);
  const same = (one, other) => Object.keys(one).length === Object.keys(other).length
    && Object.keys(one).every(name => Object.hasOwn(other, name) && one[name] === other[name]);
  if (said.v !== 1) refuse("version");
  if (said.run !== asked.run) refuse("order");
  if (said.wait !== asked.wait || said.node !== asked.node) refuse("question");
  if (said.payload !== await sha256(asked.payload)) refuse("payload");
  if (!same(said.answer, answer)) refuse("answer");
  return { payload, text };
}

async function decide(decision) {
  const [asked, note] = [question, $("note").value.trim()];
  const answer = note ? { decision, note } : { decision };
  const envelope = await ask(`${place(asked.run, asked.wait)}/statement`, answer);
  const { payload, text } = await checked(envelope, asked, answer);
  const bytes = signedBytes(ANSWER_TYPE, payload);
  const sig = base64(new Uint8Array(await crypto.subtle.sign("Ed25519", key.secret, bytes)));
  const signed = { ...envelope, signatures: [{ keyid: key.fingerprint, sig }] };
  const { result, have, need } = await ask(`${place(asked.run, asked.wait)}/answer`, signed);
  asked.due = null;
  if (question === asked) {
    $("due").textContent = "You have answered this.";
    $("statement").textContent = text;
    $("signed").hidden = false;
  }
  const done = decision === "approve" ? "approved" : "refused";
  say({
    accepted: `You have ${done} the order ${asked.run}.`,
    proposed: `You have signed. ${have} of ${need} people have signed the same answer.`,
    already: `The order ${asked.run} was ${done} before.`,
  }[result] ?? "The service has your answer.", "good");
}

// ---- Events

/** Does something, and says what went wrong if it did. */
async function attempt(work) {
  turn += 1;
  say("");
  try {
    await work();
  } catch (error) {
    if (error.status === 401) {
      sessionStorage.removeItem("token");
      show("enter");
    }
    const late = error.status === 410 ? "Too late: " : "";
    say(late + (error instanceof Problem ? error.message : `Something failed: ${error.message}`), "bad");
  }
}

function showKey() {
  $("who").textContent = key ? `Key ${key.fingerprint}` : "No key";
  $("public").hidden = $("has-key").hidden = !key;
  $("load-form").hidden = Boolean(key);
  $("public-pem").textContent = key ? `${key.pem}\nfingerprint ${key.fingerprint}` : "";
}

async function use(next) {
  await withKeys("readwrite", keys => keys.put(next, "own"));
  key = next;
  showKey();
}

async function begin() {
  if (!sessionStorage.getItem("token")) return show("enter");
  if (!key) return show("key");
  await list();
}

$("enter-form").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  $("token").value = "";
  attempt(async () => { await ask("/inbox/questions"); await begin(); });
});
$("load-form").addEventListener("submit", event => {
  event.preventDefault();
  attempt(async () => {
    const file = $("file").files[0];
    await use(await importedKey(file ? await file.text() : $("pem").value));
    $("load-form").reset();
    await begin();
  });
});
$("make").addEventListener("click", () => attempt(async () => use(await madeKey())));
$("forget").addEventListener("click", () => attempt(async () => {
  await withKeys("readwrite", keys => keys.delete("own"));
  key = null;
  showKey();
  show("key");
}));
$("key-done").addEventListener("click", () => attempt(begin));
$("who").addEventListener("click", () => sessionStorage.getItem("token") && show("key"));
$("refresh").addEventListener("click", () => attempt(() => list()));
$("back").addEventListener("click", () => attempt(() => list()));
$("answer-form").addEventListener("submit", event => {
  event.preventDefault();
  const [decision, asked] = [event.submitter.value, question];
  lock(true);
  attempt(async () => {
    try {
      await decide(decision);
    } catch (error) {
      // Anything but a decision that was made, or a time that is over, can be tried again.
      if (question === asked) lock(error.status === 409 || error.status === 410);
      if (error.status === 410) asked.due = now();
      tick();
      throw error;
    }
  });
});

attempt(async () => {
  if (!crypto.subtle) throw new Problem("This browser signs only on pages from this computer (127.0.0.1) or over https.");
  key = await withKeys("readonly", keys => keys.get("own")) ?? null;
  showKey();
  await begin();
});

// Makes elements. Texts become text nodes: nothing that a run contains is ever read as HTML.

// Characters that nobody sees, that change the direction of what follows, or that a screen obeys.
const HIDDEN = new RegExp(
  [
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f]",
    "[\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb]",
    // Halves of characters, and the plane of tags.
    "[\\ud800-\\udbff](?![\\udc00-\\udfff])",
    "(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
    "\\udb40[\\udc00-\\udfff]",
  ].join("|"),
  "g",
);

/** Returns a text in which each character that a reader would not see is written as its number. */
export function visible(text) {
  return String(text).replace(HIDDEN, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
}

const ATTRIBUTES = new Set([
  "class",
  "id",
  "type",
  "name",
  "value",
  "placeholder",
  "title",
  "role",
  "tabindex",
  "for",
  "min",
  "max",
  "rows",
  "cols",
  "colspan",
  "scope",
  "list",
  "autocomplete",
  "spellcheck",
  "disabled",
  "hidden",
  "checked",
  "selected",
  "open",
  "download",
]);

/** Makes an element. `options` has attributes, and functions for `on…`; an address can only be one within this page. */
export function h(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "href") element.setAttribute("href", value.startsWith("#/") ? value : "#/");
    else if (name.startsWith("aria-") || name.startsWith("data-")) element.setAttribute(name, String(value));
    else if (ATTRIBUTES.has(name)) element.setAttribute(name, value === true ? "" : String(value));
    else throw new Error(`the page does not set the attribute ${name}`);
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false)
      .map(node),
  );
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(visible(child));
}

/** Puts other children into an element. */
export function fill(element, ...children) {
  element.replaceChildren(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false)
      .map(node),
  );
  return element;
}

/** The address of a run in this page. */
export function runLink(run, more = "") {
  return `#/run/${encodeURIComponent(run)}${more}`;
}

/** A status as a coloured word. */
export function statusChip(status, title) {
  const known = ["running", "waiting", "completed", "completed_with_errors", "error", "cancelled"];
  return h(
    "span",
    { class: `status ${known.includes(status) ? status : "unknown"}`, title },
    String(status).replaceAll("_", " "),
  );
}

/** A time as people read it, in their zone; the title has it as the journal does. */
export function time(text) {
  if (!text) return "";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return h("time", {}, text);
  const pad = (number, digits = 2) => String(number).padStart(digits, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return h("time", { title: text }, `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`);
}

export function clock(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text ?? "";
  const pad = (number, digits = 2) => String(number).padStart(digits, "0");
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
}

export function duration(ms) {
  if (ms === undefined || ms === null) return "";
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

export function count(number, one, many = `${one}s`) {
  return `${Number(number).toLocaleString("en")} ${Number(number) === 1 ? one : many}`;
}

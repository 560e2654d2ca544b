// Asks the viewer. The token is in the path of this page, so addresses are relative.

import { visible } from "./dom.js";

/** A number that a double does not hold as it is written. */
export class ExactNumber {
  constructor(text) {
    this.text = text;
  }
}

/** Reads JSON without losing the digits of numbers, where the browser gives their text. */
export function readJson(text) {
  return JSON.parse(text, (key, value, context) => {
    const source = context?.source;
    if (typeof value !== "number" || source === undefined || String(value) === source) return value;
    return new ExactNumber(source);
  });
}

/** A request without an answer, with the text of the viewer. */
export class Problem extends Error {
  constructor(status, text) {
    super(visible(text));
    this.status = status;
  }
}

async function answered(response) {
  if (response.ok) return response;
  let text = `the viewer answered with ${response.status}`;
  try {
    text = JSON.parse(await response.text()).problem ?? text;
  } catch {
    // The status is all there is.
  }
  throw new Problem(response.status, text);
}

async function send(path, options) {
  try {
    return await fetch(`api/${path}`, { cache: "no-store", credentials: "omit", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the viewer does not answer: was `graph view` stopped?");
  }
}

function address(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== null && value !== "") parameters.set(name, value);
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

export async function get(path, query = {}, signal = undefined) {
  const response = await answered(await send(address(path, query), { signal }));
  return readJson(await response.text());
}

export async function getText(path, signal = undefined) {
  return (await answered(await send(path, { signal }))).text();
}

export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  return (await answered(await send(path, { method: "POST", headers, body: JSON.stringify(body) }))).json();
}

export function runPath(run, ...parts) {
  return ["run", encodeURIComponent(run), ...parts].join("/");
}

// Shows values of any size: what is inside an object or a list is made when somebody opens it.

import { ExactNumber } from "./api.js";
import { h } from "./dom.js";

/** How many members are made at once. */
const PART = 100;

/** How many letters of a text are shown before somebody asks for all. */
const MOST = 2000;

function scalar(value) {
  if (value === null) return h("span", { class: "null" }, "null");
  if (value instanceof ExactNumber) return h("span", { class: "number" }, value.text);
  if (typeof value === "string") {
    if (value === "[secret]") return h("span", { class: "secret" }, value);
    if (value.length <= MOST) return h("bdi", { class: "text" }, JSON.stringify(value));
    const all = h(
      "button",
      {
        type: "button",
        class: "small",
        onclick: () => all.parentNode.replaceChildren(h("bdi", { class: "text" }, JSON.stringify(value))),
      },
      `show all ${value.length.toLocaleString("en")} letters`,
    );
    return h(
      "span",
      {},
      h("bdi", { class: "text" }, `${JSON.stringify(value.slice(0, MOST)).slice(0, -1)}…`),
      " ",
      all,
    );
  }
  return h("span", { class: typeof value === "boolean" ? "boolean" : "number" }, String(value));
}

const isNested = (value) => value !== null && typeof value === "object" && !(value instanceof ExactNumber);

function brief(value) {
  const many = Array.isArray(value) ? value.length : Object.keys(value).length;
  return Array.isArray(value) ? `[ ${many} ]` : `{ ${many} }`;
}

/** Whether a value is so small that its members are seen at once. */
function isSmall(value) {
  const all = Array.isArray(value) ? value : Object.values(value);
  return (
    all.length <= 8 &&
    all.every((one) => !isNested(one) || Object.keys(one).length === 0) &&
    JSON.stringify(value).length < 400
  );
}

function members(value, list) {
  const entries = Array.isArray(value) ? value.map((one, at) => [String(at), one]) : Object.entries(value);
  let made = 0;
  const add = () => {
    list.querySelector(":scope > .more")?.remove();
    for (const [name, one] of entries.slice(made, made + PART))
      list.append(h("li", {}, tree(one, name, Array.isArray(value))));
    made += PART;
    if (made < entries.length) {
      list.append(
        h(
          "li",
          { class: "more" },
          h(
            "button",
            { type: "button", class: "small", onclick: add },
            `${(entries.length - made).toLocaleString("en")} more`,
          ),
        ),
      );
    }
  };
  add();
}

/** Shows a value, with its name if it has one. */
export function tree(value, name = null, isIndex = false, isOpen = isNested(value) && isSmall(value)) {
  const key = name === null ? null : h("bdi", { class: isIndex ? "index" : "name" }, name);
  if (!isNested(value)) return h("div", { class: "leaf" }, key, key ? ": " : null, scalar(value));
  if (Object.keys(value).length === 0)
    return h("div", { class: "leaf" }, key, key ? ": " : null, Array.isArray(value) ? "[ ]" : "{ }");
  const list = h("ul");
  let isMade = false;
  const fillOnce = () => {
    if (!isMade) members(value, list);
    isMade = true;
  };
  const details = h(
    "details",
    {
      ontoggle: () => {
        if (details.open) fillOnce();
      },
    },
    h("summary", {}, key, key ? ": " : null, h("span", { class: "dim" }, brief(value))),
    list,
  );
  if (isOpen) {
    fillOnce();
    details.open = true;
  }
  return details;
}

/** Shows an object as a tree whose members are seen. */
export function value(data) {
  return h("div", { class: "value" }, tree(data, null, false, true));
}

/** Shows what differs between two values. */
export function differences(list, empty = "nothing differs", sides = ["before", "after"]) {
  if (!list || list.length === 0) return h("p", { class: "note" }, empty);
  const side = (one, kind) =>
    h("td", { class: kind }, one === null || one === undefined ? h("span", { class: "dim" }, "nothing") : tree(one));
  return h(
    "div",
    { class: "scroll-x" },
    h(
      "table",
      { class: "differences" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["at", ...sides].map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h(
        "tbody",
        {},
        list.map((one) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, h("bdi", {}, one.path === "" ? "(all)" : one.path)),
            side(one.before, "before"),
            side(one.after, "after"),
          ),
        ),
      ),
    ),
  );
}

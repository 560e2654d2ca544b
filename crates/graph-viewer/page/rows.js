// A row of a timeline.

import { clock, count, duration, h, runLink, visible } from "./dom.js";

/** What the rows of a list can be. The numbers are those of the viewer. */
export const FLAGS = { failed: 1, retried: 2, nested: 4, waited: 8, event: 16, visit: 32, warned: 64 };

const chip = (text, kind = "", title = undefined) => h("span", { class: `chip ${kind}`, title }, text);

function cut(text, most = 90) {
  const shown = visible(text);
  return shown.length > most ? `${shown.slice(0, most)}…` : shown;
}

function ofVisit(row) {
  const chips = [];
  if (row.error)
    chips.push(
      chip(
        row.held ? "failed, held" : row.suppressed ? "failed, continued" : row.ends_branch ? "branch ended" : "failed",
        "bad",
        row.error,
      ),
    );
  if (row.failed_items) chips.push(chip(`${count(row.failed_items, "item")} failed`, "bad"));
  if (row.opened)
    chips.push(
      chip(
        row.opened.pause
          ? "paused"
          : row.opened.payload !== undefined && row.opened.payload !== null
            ? "asks"
            : row.opened.inside
              ? "waits inside"
              : "waits",
        "wait",
      ),
    );
  if (row.timed_out) chips.push(chip("timed out", "wait"));
  if (row.cancelled) chips.push(chip("cancelled", "dim"));
  if (row.late) chips.push(chip("late", "dim"));
  if (row.cached) chips.push(chip("cached", "dim"));
  if (row.calls > 1) chips.push(chip(`${row.calls} calls`, "warning", `its tool was called ${row.calls} times`));
  if (row.over !== undefined) chips.push(chip(count(row.over, "branch", "branches")));
  if (row.warnings?.length) chips.push(chip(count(row.warnings.length, "warning"), "warning", row.warnings.join("\n")));
  if (row.run) chips.push(h("a", { class: "chip link", href: runLink(row.run), title: "the nested run" }, row.run));
  const text = row.error
    ? h("span", { class: "bad" }, cut(row.error))
    : row.wrote?.length
      ? ["wrote ", h("span", { class: "keys" }, cut(row.wrote.join(", ")))]
      : row.result
        ? h("span", { class: "dim" }, cut(row.result))
        : "";
  const next = row.last ? "end" : (row.next ?? []).join(", ") + (row.more ? ` +${row.more}` : "");
  return [
    h("span", { class: "step" }, row.step ?? ""),
    h(
      "span",
      { class: "node" },
      row.branch?.length ? h("span", { class: "branch" }, `${row.branch.join(".")} `) : null,
      h("bdi", {}, row.node ?? ""),
    ),
    h("span", { class: "what" }, chips, " ", text),
    h("span", { class: "next", title: next }, next ? ["→ ", h("bdi", {}, next)] : ""),
    h("span", { class: "ms" }, duration(row.ms)),
  ];
}

function ofEvent(row) {
  const [name, what, kind = ""] = {
    start: () => [
      "start",
      [
        h("code", {}, row.graph),
        row.version ? ` ${row.version}` : "",
        row.entry ? ` at the entry ${row.entry}` : "",
        row.from
          ? [
              " from ",
              h("a", { class: "chip link", href: runLink(row.from.run) }, row.from.run),
              ` after record ${row.from.seq}`,
            ]
          : "",
        " ",
        h("span", { class: "dim" }, cut(row.result ?? "")),
      ],
    ],
    calls: () => [
      row.suspended ? "suspended" : "calls",
      row.suspended
        ? ["a hook suspended ", h("bdi", {}, row.node)]
        : `${count(row.count, "call")} of the next step finished`,
      row.suspended ? "wait" : "",
    ],
    take: () => [
      "wait over",
      [
        count(row.count, "wait"),
        (row.signals ?? []).map((signal) => [
          " · ",
          h("bdi", {}, signal.name),
          signal.by ? ` by ${signal.by.join(" and ")}` : "",
        ]),
      ],
      "wait",
    ],
    snapshot: () => ["snapshot", h("span", { class: "dim" }, "the sum of the records before")],
    resume: () => ["resume", h("span", { class: "dim" }, `with ${cut(row.result ?? "[]")}`), "warning"],
    edit: () => [
      "edit",
      [
        `${row.by}: ${row.why} `,
        row.wrote?.length ? ["· wrote ", h("span", { class: "keys" }, cut(row.wrote.join(", ")))] : "",
      ],
      "warning",
    ],
    end: () => [
      "end",
      [
        h("strong", {}, String(row.status).replaceAll("_", " ")),
        " ",
        row.node ? ["at ", h("bdi", {}, row.node), " "] : "",
        row.error ? h("span", { class: "bad" }, cut(row.error)) : h("span", { class: "dim" }, cut(row.result ?? "")),
      ],
      row.error ? "bad" : "good",
    ],
    unreadable: () => ["unreadable", h("span", { class: "bad" }, "this record cannot be read"), "bad"],
  }[row.kind]?.() ?? [row.kind, ""];
  return [
    h("span", { class: "step" }, ""),
    h("span", { class: "node" }, h("span", { class: `event ${kind}` }, name)),
    h("span", { class: "what" }, what),
    h("span", { class: "next" }, ""),
    h("span", { class: "ms" }, ""),
  ];
}

/** Fills the element of a row. */
export function renderRow(row, element) {
  element.classList.toggle("is-event", row.kind !== "step");
  element.classList.toggle("is-failed", Boolean(row.error));
  element.classList.toggle("is-waiting", Boolean(row.opened));
  element.replaceChildren(
    h("span", { class: "at", title: row.at ?? "" }, row.at ? clock(row.at) : ""),
    ...(row.kind === "step" ? ofVisit(row) : ofEvent(row)),
  );
}

export function rowHead() {
  return h(
    "div",
    { class: "row head", "aria-hidden": "true" },
    [
      ["at", "time"],
      ["step", "#"],
      ["node", "node"],
      ["what", "what"],
      ["next", "next"],
      ["ms", "took"],
    ].map(([kind, text]) => h("span", { class: kind }, text)),
  );
}

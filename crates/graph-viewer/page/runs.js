// The list of runs.

import { get } from "./api.js";
import { count, fill, h, runLink, statusChip, time } from "./dom.js";
import { inboxList } from "./questions.js";

const STATUSES = ["running", "waiting", "completed", "completed_with_errors", "error", "cancelled"];

/** How often the list is read again while somebody looks at it, in milliseconds. */
const PACE = 2000;

export async function runsPage(page, { query, stop, say, about }) {
  document.title = "Runs";
  const state = {
    status: query.get("status") ?? "",
    graph: query.get("graph") ?? "",
    within: query.get("within") ?? "",
    run: query.get("run") ?? "",
  };
  const chosen = new Set();
  const body = h("tbody");
  const more = h("button", { type: "button", hidden: true }, "Show more runs");
  const note = h("p", { class: "note", role: "status" });
  const damaged = h("div");
  const inbox = h("section", { class: "inbox", "aria-label": "Open questions" });
  const compare = h(
    "button",
    {
      type: "button",
      disabled: true,
      onclick: () => {
        const [a, b] = chosen;
        location.hash = `#/compare/${encodeURIComponent(a)}/${encodeURIComponent(b)}`;
      },
    },
    "Compare two runs",
  );

  const changed = () => {
    const set = Object.entries(state).filter(([, value]) => value !== "");
    location.hash = set.length ? `#/?${new URLSearchParams(set)}` : "#/";
  };
  const field = (label, name, options = {}) =>
    h(
      "label",
      {},
      label,
      h("input", {
        type: "search",
        name,
        value: state[name],
        spellcheck: "false",
        autocomplete: "off",
        ...options,
        onchange: (event) => {
          state[name] = event.target.value.trim();
          changed();
        },
      }),
    );
  const select = (label, name, choices) =>
    h(
      "label",
      {},
      label,
      h(
        "select",
        {
          name,
          onchange: (event) => {
            state[name] = event.target.value;
            changed();
          },
        },
        choices.map(([value, text]) => h("option", { value, selected: state[name] === value }, text)),
      ),
    );
  const filters = h(
    "form",
    {
      class: "filters",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        document.activeElement?.blur();
      },
    },
    field("Run", "run", { placeholder: "a part of its id" }),
    field("Graph", "graph", { placeholder: "its id" }),
    select("Status", "status", [["", "any"], ...STATUSES.map((status) => [status, status.replaceAll("_", " ")])]),
    select("Nested", "within", [
      ["", "all runs"],
      ["top", "only outermost runs"],
      ...(state.within && state.within !== "top" ? [[state.within, `inside ${state.within}`]] : []),
    ]),
    compare,
  );
  fill(
    page,
    h("h1", {}, "Runs"),
    filters,
    inbox,
    damaged,
    h(
      "div",
      { class: "card scroll-x" },
      h(
        "table",
        { class: "runs" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["", "run", "status", "graph", "records", "began", "changed", "inside"].map((name) =>
              h("th", { scope: "col" }, name),
            ),
          ),
        ),
        body,
      ),
    ),
    note,
    more,
  );

  let next = null;
  let pages = 1;
  const known = new Map();
  const row = (run) => {
    const text = JSON.stringify(run);
    const old = known.get(run.run);
    if (old?.text === text) return old.element;
    const box = h("input", {
      type: "checkbox",
      "aria-label": `choose ${run.run} to compare`,
      onchange: (event) => {
        if (event.target.checked) chosen.add(run.run);
        else chosen.delete(run.run);
        compare.disabled = chosen.size !== 2;
      },
    });
    box.checked = chosen.has(run.run);
    const element = h(
      "tr",
      {},
      h("td", {}, box),
      h("td", {}, h("a", { class: "run", href: runLink(run.run) }, run.run)),
      h(
        "td",
        {},
        statusChip(run.status, run.holder ? `held by ${run.holder}` : undefined),
        run.alive ? h("span", { class: "live", title: `held by ${run.holder}` }, "live") : null,
        run.cancelling ? h("span", { class: "chip warning" }, "cancelling") : null,
      ),
      h("td", {}, h("code", {}, run.graph), run.version ? h("span", { class: "dim" }, ` ${run.version}`) : null),
      h("td", { class: "number" }, Number(run.records).toLocaleString("en")),
      h("td", {}, time(run.created)),
      h("td", {}, time(run.updated)),
      h("td", {}, run.parent ? h("a", { href: runLink(run.parent) }, run.parent) : null),
    );
    known.set(run.run, { text, element });
    return element;
  };
  const load = async () => {
    const rows = [];
    next = null;
    let problems = [];
    for (let at = 0; at < pages; at += 1) {
      if (at > 0 && !next) break;
      const found = await get("runs", { ...state, size: 100, after: at > 0 ? next : undefined }, stop);
      rows.push(...found.runs);
      if (at === 0) problems = found.damaged;
      next = found.next;
    }
    const elements = rows.map(row);
    if (elements.length !== body.children.length || elements.some((element, at) => element !== body.children[at])) {
      const focused = document.activeElement;
      body.replaceChildren(...elements);
      if (focused && body.contains(focused)) focused.focus();
    }
    more.hidden = !next;
    const filtered = Object.values(state).some((value) => value !== "");
    fill(
      note,
      rows.length === 0
        ? filtered
          ? "No run passes this filter."
          : "There are no runs here yet."
        : count(rows.length, "run") + (next ? ", and there are more" : ""),
    );
    fill(
      damaged,
      problems.map(({ run, problem }) =>
        h("div", { class: "problem" }, h("a", { href: runLink(run, "?tab=proof") }, run), ": ", problem),
      ),
    );
  };
  more.addEventListener("click", () => {
    pages += 1;
    load().catch(say);
  });
  await load();
  about.then(() => inboxList(inbox, stop)).catch(() => {});
  while (!stop.aborted) {
    await new Promise((done) => {
      setTimeout(done, PACE);
    });
    if (stop.aborted || document.hidden) continue;
    try {
      await load();
      await inboxList(inbox, stop);
      say(null);
    } catch (error) {
      if (error.name !== "AbortError") say(error);
    }
  }
}

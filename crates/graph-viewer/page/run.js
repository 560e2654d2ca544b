// A run: its graph, its timeline, and the details of a row.

import { get, getText, runPath } from "./api.js";
import { count, fill, h, runLink, statusChip, time } from "./dom.js";
import { drawing } from "./diagram.js";
import { proofPanel } from "./proof.js";
import { questionsOf } from "./questions.js";
import { FLAGS, renderRow, rowHead } from "./rows.js";
import { ScrollList } from "./scroll.js";
import { differences, value } from "./value.js";

const FILTERS = [
  ["", "all rows"],
  ["failed", "failures"],
  ["retried", "retries and finished calls"],
  ["nested", "nested runs"],
  ["waited", "waits and answers"],
  ["event", "events"],
  ["visit", "visits"],
  ["warned", "warnings"],
];

/** How often a drawing is made again at most, as a multiple of how long one takes. */
const REST = 3;

export async function runPage(page, { run, query, about, stop, say }) {
  document.title = `${run} – run`;
  const tabs = new Map();
  const shownTab = query.get("tab") ?? "run";
  const head = h("header", { class: "run-head" });
  const problems = h("div");
  const questions = h("section", { "aria-label": "Open questions" });
  const panels = {
    run: h("div", { class: "panel run-panel" }),
    begin: h("div", { class: "panel" }),
    nested: h("div", { class: "panel" }),
    proof: h("div", { class: "panel" }),
  };
  const bar = h("div", { class: "tabs", role: "tablist" });
  const open = (name) => {
    for (const [other, button] of tabs) {
      button.setAttribute("aria-selected", String(other === name));
      button.tabIndex = other === name ? 0 : -1;
      panels[other].hidden = other !== name;
    }
    if (name === "nested") nested().catch(say);
  };
  for (const [name, text] of [
    ["run", "Timeline"],
    ["begin", "Inputs and result"],
    ["nested", "Nested runs"],
    ["proof", "Proof"],
  ]) {
    const button = h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `panel-${name}`,
        onclick: () => open(name),
        onkeydown: (event) => {
          const names = [...tabs.keys()];
          const to = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (!to) return;
          const next = names[(names.indexOf(name) + to + names.length) % names.length];
          open(next);
          tabs.get(next).focus();
        },
      },
      text,
    );
    panels[name].id = `panel-${name}`;
    panels[name].setAttribute("role", "tabpanel");
    panels[name].setAttribute("aria-labelledby", `tab-${name}`);
    tabs.set(name, button);
    bar.append(button);
  }
  fill(page, head, problems, questions, bar, Object.values(panels));
  fill(panels.proof, proofPanel(run, about, stop));
  open(tabs.has(shownTab) ? shownTab : "run");

  let known = null;
  let filter = "";
  let node = "";
  const detail = h(
    "section",
    { class: "detail card", "aria-label": "Details" },
    h("p", { class: "note" }, "Choose a row to see the state there."),
  );
  const drawn = h(
    "section",
    { class: "drawn card", "aria-label": "Graph" },
    h("p", { class: "note" }, "Drawing the graph…"),
  );
  let boxes = new Map();
  const list = new ScrollList({
    height: 30,
    label: "Timeline",
    header: rowHead(),
    render: renderRow,
    failed: say,
    load: async (from, many) => {
      const found = await get(runPath(run, "rows"), { from, count: many, flags: FLAGS[filter], node }, stop);
      if (filter || node) {
        if (found.total !== list.total) list.setTotal(found.total, found.total);
      }
      return found;
    },
    chosen: (row) =>
      showRow(row).catch((error) => {
        if (error.name !== "AbortError") say(error);
      }),
  });
  list.follows = true;
  const filtered = h(
    "select",
    {
      "aria-label": "Rows",
      onchange: (event) => {
        filter = event.target.value;
        again();
      },
    },
    FILTERS.map(([name, text]) => h("option", { value: name }, text)),
  );
  const ofNode = h("button", {
    type: "button",
    class: "chip link",
    hidden: true,
    title: "show the rows of all nodes",
    onclick: () => {
      node = "";
      again();
    },
  });
  const follow = h(
    "label",
    { class: "follow" },
    h("input", {
      type: "checkbox",
      checked: true,
      onchange: (event) => {
        list.follows = event.target.checked;
        if (list.follows) {
          list.element.scrollTop = list.pixels;
        }
      },
    }),
    "follow",
  );
  const goTo = h(
    "form",
    {
      class: "go",
      onsubmit: (event) => {
        event.preventDefault();
        const at = Number(event.target.elements.at.value);
        if (Number.isInteger(at) && at >= 0 && at < list.total) list.choose(at);
      },
    },
    h("input", { type: "number", name: "at", min: 0, placeholder: "row", "aria-label": "Go to row" }),
  );
  fill(
    panels.run,
    drawn,
    h(
      "section",
      { class: "timeline card", "aria-label": "Timeline" },
      h("div", { class: "tools" }, filtered, ofNode, follow, goTo),
      list.outer,
    ),
    detail,
  );

  async function again() {
    ofNode.hidden = !node;
    fill(ofNode, `only ${node} ×`);
    list.reset(filter || node ? 1 : known.rows);
    if (filter || node) {
      const { total } = await get(runPath(run, "rows"), { from: 0, count: 1, flags: FLAGS[filter], node }, stop);
      list.reset(total);
    }
  }

  async function showRow(row) {
    for (const [name, box] of boxes) box.classList.toggle("current", name === row.node);
    const title =
      row.kind === "step"
        ? h("h2", {}, h("span", { class: "dim" }, `step ${row.step} · `), h("bdi", {}, row.node))
        : h("h2", {}, row.kind, h("span", { class: "dim" }, ` · record ${row.seq}`));
    const place = h("div", {}, h("p", { class: "note" }, "Computing the state…"));
    const record = h("div");
    const links = row.run ? h("p", {}, "nested run ", h("a", { href: runLink(row.run) }, row.run)) : null;
    fill(
      detail,
      title,
      h(
        "p",
        { class: "dim" },
        time(row.at),
        row.ms !== undefined ? ` · took ${row.ms} ms` : "",
        row.edges ? ` · edge ${row.edges.join(", ")}` : "",
        row.category ? ` · ${row.category}` : "",
      ),
      links,
      row.error ? h("p", { class: "pre bad" }, row.error) : null,
      (row.warnings ?? []).map((warning) => h("p", { class: "pre warning" }, warning)),
      place,
      record,
    );
    const mine = (where, make) =>
      make.then(
        (content) => fill(where, content),
        (error) => {
          if (error.name !== "AbortError") fill(where, h("p", { class: "note pre" }, error.message));
        },
      );
    const state = get(runPath(run, "state"), { step: row.state }, stop).then((found) => [
      h("h3", {}, found.before === null ? "State" : `Changed since step ${found.before}`),
      found.before === null ? null : differences(found.differences, "the state is the same"),
      h(
        "details",
        { open: found.before === null },
        h("summary", {}, h("h3", {}, `State after step ${found.step}`)),
        value(found.state),
      ),
      found.errors.length
        ? h("p", { class: "dim" }, `it continued after ${count(found.errors.length, "failure")}`)
        : null,
    ]);
    const text = get(runPath(run, "record", row.seq), {}, stop).then((found) => {
      const visits = found.record?.visits;
      const at = visits?.findIndex((visit) => visit.step === row.step && visit.node === row.node) ?? -1;
      const visit = at >= 0 ? visits[at] : null;
      return [
        visit && visit.result !== undefined
          ? [h("h3", {}, "Result of the call"), value({ result: visit.result })]
          : null,
        visit?.opened ? [h("h3", {}, "It waits"), value(visit.opened)] : null,
        visit?.changes ? h("details", {}, h("summary", {}, h("h3", {}, "Writes")), value(visit.changes)) : null,
        h(
          "details",
          { open: !visit && row.kind !== "snapshot" },
          h(
            "summary",
            {},
            h("h3", {}, `Record ${found.seq}`),
            h("span", { class: "dim" }, ` ${found.bytes.toLocaleString("en")} bytes`),
          ),
          found.record ? value(found.record) : h("p", { class: "pre" }, found.unreadable),
          h(
            "dl",
            { class: "facts" },
            [
              ["digest", found.digest],
              ["link", found.link],
              ["signature", found.signature],
            ].map(([name, hash]) => [h("dt", {}, name), h("dd", {}, h("code", { class: "hash" }, hash))]),
          ),
        ),
      ];
    });
    await Promise.all([mine(place, state), mine(record, text)]);
  }

  let isDrawing = false;
  let isOld = false;
  /** Draws the graph and asks for the questions, as often as that leaves time for other things. */
  async function draw() {
    const began = performance.now();
    if (isDrawing) {
      isOld = true;
      return;
    }
    isDrawing = true;
    isOld = false;
    try {
      const text = await getText(runPath(run, "diagram"), stop);
      const made = drawing(text);
      boxes = made.boxes;
      for (const [name, box] of boxes) {
        box.setAttribute("tabindex", "0");
        box.setAttribute("role", "button");
        const choose = () => {
          node = node === name ? "" : name;
          again().catch(say);
        };
        box.addEventListener("click", choose);
        box.addEventListener("keydown", (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            choose();
          }
        });
        box.classList.toggle("current", name === list.row(list.at)?.node);
      }
      const [left, top] = [drawn.scrollLeft, drawn.scrollTop];
      fill(drawn, made.element);
      drawn.scrollTo(left, top);
    } catch (error) {
      if (error.name === "AbortError") return;
      boxes = new Map();
      fill(
        drawn,
        h("h3", {}, "No drawing"),
        h("p", { class: "note pre" }, error.message),
        h("p", { class: "note" }, "The timeline, the records and the proof of the chain do not need the graph."),
      );
    } finally {
      // The questions of a long run take as long as its drawing.
      await questionsOf(questions, { run, about, stop }).catch((error) => {
        if (error.name !== "AbortError") say(error);
      });
      const rest = Math.max(200, REST * (performance.now() - began));
      setTimeout(() => {
        isDrawing = false;
        if (isOld && !stop.aborted) draw();
      }, rest);
    }
  }

  async function nested() {
    const found = await get("runs", { within: run, size: 200 }, stop);
    fill(
      panels.nested,
      h(
        "div",
        { class: "card" },
        found.runs.length === 0
          ? h("p", { class: "note" }, "No run is inside of this one.")
          : h(
              "table",
              { class: "runs" },
              h(
                "tbody",
                {},
                found.runs.map((one) =>
                  h(
                    "tr",
                    {},
                    h("td", {}, h("a", { href: runLink(one.run) }, one.run)),
                    h("td", {}, statusChip(one.status)),
                    h("td", {}, h("code", {}, one.graph)),
                    h("td", { class: "number" }, count(one.records, "record")),
                    h("td", {}, time(one.created)),
                  ),
                ),
              ),
            ),
        found.next
          ? h("p", {}, h("a", { href: `#/?${new URLSearchParams({ within: run })}` }, "show all of them"))
          : null,
      ),
    );
  }

  function showHead(counts) {
    const one = counts.summary;
    fill(
      head,
      h(
        "h1",
        {},
        h("bdi", {}, run),
        " ",
        statusChip(one.status),
        one.alive ? h("span", { class: "live", title: `held by ${one.holder}` }, "live") : null,
        one.cancelling ? h("span", { class: "chip warning" }, "cancelling") : null,
      ),
      h(
        "p",
        { class: "dim" },
        h("code", {}, one.graph),
        one.version ? ` ${one.version}` : "",
        " · ",
        h("span", { id: "steps" }, count(counts.steps, "step")),
        " · ",
        h("span", { id: "records" }, count(counts.records, "record")),
        " · began ",
        time(one.created),
        one.updated ? [" · changed ", time(one.updated)] : "",
        one.due ? [" · due ", time(one.due)] : "",
        one.parent ? [" · inside ", h("a", { href: runLink(one.parent) }, one.parent)] : "",
      ),
    );
    fill(
      problems,
      counts.problem
        ? h(
            "div",
            { class: "problem" },
            h("strong", {}, "The journal is not what was written: "),
            counts.problem,
            ". What follows is shown as far as it can be read, and proves nothing.",
          )
        : null,
    );
  }

  function showBegin(found) {
    const { start, end } = found;
    fill(
      panels.begin,
      start
        ? h(
            "section",
            { class: "card" },
            h("h2", {}, "Inputs"),
            value(start.inputs),
            h("details", {}, h("summary", {}, h("h3", {}, "How it began")), value(start)),
          )
        : null,
      end
        ? h(
            "section",
            { class: "card" },
            h("h2", {}, "Result ", statusChip(end.status)),
            end.error ? h("p", { class: "pre bad" }, end.error) : null,
            end.output !== undefined ? value({ output: end.output }) : null,
            h("details", {}, h("summary", {}, h("h3", {}, "How it ended")), value(end)),
          )
        : h("section", { class: "card" }, h("p", { class: "note" }, "It has not ended.")),
    );
  }

  async function load() {
    const found = await get(runPath(run), {}, stop);
    known = found;
    showHead(found);
    showBegin(found);
    list.reset(found.rows);
    draw();
  }

  await load();
  const wanted = query.get("row");
  if (wanted !== null && Number(wanted) < list.total) list.choose(Number(wanted));
  while (!stop.aborted) {
    if (document.hidden) {
      await new Promise((done) => {
        document.addEventListener("visibilitychange", done, { once: true });
      });
      continue;
    }
    try {
      const counts = await get(runPath(run, "changes"), { records: known.records, mark: known.mark }, stop);
      say(null);
      if (counts.first !== known.first || counts.records < known.records) {
        await load();
        continue;
      }
      if (counts.records === known.records && counts.mark === known.mark) continue;
      const before = known;
      known = { ...known, ...counts };
      showHead(counts);
      if (!filter && !node) list.setTotal(counts.rows, before.rows);
      else
        get(runPath(run, "rows"), { from: 0, count: 1, flags: FLAGS[filter], node }, stop).then(
          ({ total }) => list.setTotal(total, list.total),
          () => {},
        );
      draw();
      if (counts.mark !== before.mark) get(runPath(run), {}, stop).then(showBegin, () => {});
    } catch (error) {
      if (error.name === "AbortError") return;
      say(error);
      await new Promise((done) => {
        setTimeout(done, 1000);
      });
    }
  }
}

// Two runs side by side.

import { get, runPath } from "./api.js";
import { count, fill, h, runLink, statusChip } from "./dom.js";
import { FLAGS, renderRow } from "./rows.js";
import { ScrollList } from "./scroll.js";
import { differences, value } from "./value.js";

const WORDS = {
  same: "the same",
  changed: "same node, other content",
  only_a: "only in the first",
  only_b: "only in the second",
};

/** Finds the part of the match that a row is in. */
function part(parts, at) {
  let [low, high] = [0, parts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (parts[middle].from <= at) low = middle;
    else high = middle - 1;
  }
  return parts[low];
}

export async function comparePage(page, { a, b, stop, say }) {
  document.title = `${a} and ${b} – compared`;
  fill(page, h("p", { class: "loading" }, "Comparing the two runs…"));
  const found = await get("compare", { a, b }, stop);
  const parts = [];
  let total = 0;
  for (const [tag, atA, manyA, atB, manyB] of found.ops) {
    const many = Math.max(manyA, manyB);
    parts.push({ tag, from: total, atA, atB, many });
    total += many;
  }
  // The visits of a run, in the parts that the viewer answers.
  const loader = (run) => {
    const known = new Map();
    const asked = (at) => {
      if (!known.has(at)) {
        known.set(
          at,
          get(runPath(run, "rows"), { from: at * 200, count: 200, flags: FLAGS.visit }, stop).then(({ rows }) => rows),
        );
        if (known.size > 60) known.delete(known.keys().next().value);
      }
      return known.get(at);
    };
    return async (at) => (await asked(Math.floor(at / 200)))[at % 200];
  };
  const [ofA, ofB] = [loader(a), loader(b)];
  const detail = h(
    "section",
    { class: "detail card", "aria-label": "Details" },
    h("p", { class: "note" }, "Choose a row to see what differs there."),
  );
  const list = new ScrollList({
    height: 30,
    label: "Visits of both runs",
    failed: say,
    header: h("div", { class: "pair head", "aria-hidden": "true" }, h("span", {}, a), h("span", {}, b)),
    load: async (from, many) => {
      const rows = [];
      for (let at = from; at < Math.min(total, from + many); at += 1) {
        const { tag, from: begin, atA, atB } = part(parts, at);
        const [left, right] = await Promise.all([
          tag === "only_b" ? null : ofA(atA + at - begin),
          tag === "only_a" ? null : ofB(atB + at - begin),
        ]);
        rows.push({ tag, left, right });
      }
      return { total, rows };
    },
    render: ({ tag, left, right }, element) => {
      element.className = `row pair ${tag}${element.classList.contains("chosen") ? " chosen" : ""}`;
      element.title = WORDS[tag];
      const side = (row) => {
        const cell = h("span", { class: row ? "side row" : "side none" });
        if (row) renderRow(row, cell);
        return cell;
      };
      element.replaceChildren(side(left), side(right));
    },
    chosen: async ({ tag, left, right }) => {
      fill(detail, h("h2", {}, WORDS[tag]), h("p", { class: "note" }, "Reading both records…"));
      const visit = async (run, row) => {
        if (!row) return null;
        const { record } = await get(runPath(run, "record", row.seq), {}, stop);
        return record?.visits?.find((one) => one.step === row.step && one.node === row.node) ?? null;
      };
      try {
        const [one, other] = await Promise.all([visit(a, left), visit(b, right)]);
        fill(
          detail,
          h("h2", {}, WORDS[tag]),
          h(
            "div",
            { class: "two" },
            h("div", {}, h("h3", {}, a), one ? value(one) : h("p", { class: "note" }, "nothing")),
            h("div", {}, h("h3", {}, b), other ? value(other) : h("p", { class: "note" }, "nothing")),
          ),
        );
      } catch (error) {
        if (error.name !== "AbortError") say(error);
      }
    },
  });
  const about = (one) =>
    h(
      "div",
      { class: "card" },
      h("h2", {}, h("a", { href: runLink(one.run) }, one.run), " ", statusChip(one.status)),
      h(
        "p",
        { class: "dim" },
        h("code", {}, one.graph ?? "an unknown graph"),
        ` · ${count(one.steps, "step")} · ${count(one.records, "record")}`,
      ),
      one.error ? h("p", { class: "pre bad" }, one.error) : null,
    );
  const many = (tag) =>
    found.ops.filter(([found]) => found === tag).reduce((sum, [, , manyA, , manyB]) => sum + Math.max(manyA, manyB), 0);
  const section = (name, { shown, count: all }, empty) =>
    h(
      "details",
      { class: "card", open: all > 0 && all <= 20 },
      h(
        "summary",
        {},
        h("strong", {}, name),
        h("span", { class: "dim" }, all === 0 ? " nothing differs" : ` ${count(all, "difference")}`),
      ),
      differences(shown, empty, [a, b]),
      all > shown.length
        ? h("p", { class: "note" }, `${count(all - shown.length, "more difference")} not shown`)
        : null,
    );
  const first = parts.find(({ tag }) => tag !== "same");
  fill(
    page,
    h("h1", {}, "Two runs compared"),
    h("div", { class: "two" }, about(found.a), about(found.b)),
    found.a.digest && found.b.digest && found.a.digest !== found.b.digest
      ? h("p", { class: "note" }, "They began under different texts of graphs.")
      : null,
    section("Inputs", found.inputs),
    section("Outputs", found.outputs),
    found.state_problem
      ? h("p", { class: "note pre" }, "The last states are not compared: ", found.state_problem)
      : section("Last states", found.states),
    h(
      "p",
      {},
      Object.keys(WORDS).map((tag) => [
        h("span", { class: `chip ${tag}` }, `${many(tag).toLocaleString("en")} ${WORDS[tag]}`),
        " ",
      ]),
      first
        ? h("button", { type: "button", onclick: () => list.choose(first.from) }, "Go to the first difference")
        : null,
    ),
    h("div", { class: "compare-panel" }, h("section", { class: "timeline card" }, list.outer), detail),
  );
  list.reset(total);
}

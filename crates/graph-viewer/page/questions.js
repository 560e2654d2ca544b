// The questions of runs to people.

import { get, post, runPath } from "./api.js";
import { count, fill, h, runLink, time } from "./dom.js";
import { value } from "./value.js";

/** Fills the list of open questions of all runs. */
export async function inboxList(section, stop) {
  const found = await get("inbox", {}, stop);
  const text = JSON.stringify(found);
  if (section.dataset.text === text) return;
  section.dataset.text = text;
  if (found.open.length === 0) {
    fill(section);
    return;
  }
  fill(
    section,
    h(
      "details",
      { class: "card" },
      h(
        "summary",
        {},
        h("strong", {}, count(found.open.length, "open question")),
        found.next ? ", and there are more" : "",
      ),
      h(
        "ul",
        { class: "plain" },
        found.open.map((one) =>
          h(
            "li",
            {},
            h("a", { href: runLink(one.run, "?tab=run") }, one.run),
            " asks at ",
            h("code", {}, one.node),
            ` (${one.wait})`,
            one.role ? [" people with the role ", h("code", {}, one.role)] : "",
            one.due ? [", until ", time(one.due)] : "",
          ),
        ),
      ),
    ),
  );
}

function field(shape) {
  if (shape?.kind === "words") {
    return h(
      "select",
      { name: "answer" },
      shape.words.map((word) => h("option", { value: word }, word)),
    );
  }
  if (shape?.kind === "boolean") {
    return h(
      "select",
      { name: "answer" },
      h("option", { value: "true" }, "true"),
      h("option", { value: "false" }, "false"),
    );
  }
  if (shape?.kind === "text") return h("textarea", { name: "answer", rows: 2 });
  return h("textarea", { name: "answer", rows: 3, placeholder: "JSON", spellcheck: "false" });
}

function read(shape, text) {
  if (shape?.kind === "words" || shape?.kind === "text") return text;
  return JSON.parse(text);
}

function form(run, question, about) {
  const shape = question.answer;
  const input = field(shape);
  const said = h("p", { class: "note", role: "status" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign and send");
  return h(
    "form",
    {
      class: "answer",
      onsubmit: async (event) => {
        event.preventDefault();
        let answer;
        try {
          answer = read(shape, input.value);
        } catch (error) {
          fill(said, `This is not JSON: ${error.message}`);
          return;
        }
        button.disabled = true;
        try {
          const done = await post(runPath(run, "answer"), { wait: question.wait, answer });
          fill(
            said,
            done.result === "proposed"
              ? `Sent: ${done.have} of ${done.need} people have signed this answer.`
              : done.result === "already"
                ? "This answer was sent before."
                : "Sent. The run continues when a worker notices.",
          );
        } catch (error) {
          fill(said, error.message);
        } finally {
          button.disabled = false;
        }
      },
    },
    h("label", {}, "Your answer", shape ? h("span", { class: "dim" }, ` (${shape.text})`) : null, input),
    h("p", {}, button, h("span", { class: "dim" }, " with the key "), h("code", {}, about.answers)),
    said,
  );
}

/** Shows the questions of a run. */
export async function questionsOf(section, { run, about, stop }) {
  let open;
  let problem = null;
  try {
    ({ open } = await get(runPath(run, "questions"), {}, stop));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    problem = error.message;
    // What the columns of the store say is not proven.
    ({ open } = await get("inbox", { run }, stop));
  }
  const text = JSON.stringify([open, problem !== null]);
  if (section.dataset.text === text) return;
  section.dataset.text = text;
  const wide = (question) =>
    question.secret || problem || !about.answers ? "card question" : "card question answered";
  fill(
    section,
    open.map((question) =>
      h(
        "article",
        { class: wide(question) },
        h(
          "div",
          {},
          h(
            "h3",
            {},
            "Open question at ",
            h("code", {}, question.node),
            h("span", { class: "dim" }, ` ${question.wait}`),
          ),
          h(
            "p",
            { class: "dim" },
            "asked ",
            time(question.opened),
            question.due ? [", until ", time(question.due)] : ", without a limit of time",
            question.role
              ? [", of people with the role ", h("code", {}, question.role)]
              : ", of anybody with a trusted key",
            question.count > 1 ? `, ${question.count} must sign` : "",
          ),
          problem
            ? h("p", { class: "note" }, "From the store's own columns; the journal was not asked: ", problem)
            : null,
          question.description ? h("p", {}, question.description) : null,
          value(question.payload),
          question.answer && question.answer.kind !== "words"
            ? h("p", { class: "dim" }, `an answer is ${question.answer.text}`)
            : null,
          question.answer?.kind === "words"
            ? h(
                "p",
                {},
                "Options: ",
                question.answer.words.map((word) => [h("code", {}, word), " "]),
              )
            : null,
        ),
        problem
          ? null
          : question.secret
            ? h(
                "p",
                { class: "note" },
                "The answer has secrets: give it on standard input of ",
                h("code", {}, "graph answer"),
                ".",
              )
            : about.answers
              ? form(run, question, about)
              : h(
                  "p",
                  { class: "note" },
                  "To answer here, start ",
                  h("code", {}, "graph view"),
                  " with ",
                  h("code", {}, "--answer"),
                  "; or use ",
                  h("code", {}, "graph answer"),
                  ".",
                ),
      ),
    ),
  );
}

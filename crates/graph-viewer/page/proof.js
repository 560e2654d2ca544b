// The proof of a run: what this page verifies itself, and what the audit computes again.

import { get, runPath } from "./api.js";
import { count, fill, h, runLink, statusChip, time } from "./dom.js";

function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

export function proofPanel(run, about, stop) {
  const chain = h("div", { class: "verdict", role: "status", "aria-live": "polite" }, "Not verified yet.");
  const audit = h("div", { class: "verdict", role: "status", "aria-live": "polite" }, "Not computed yet.");
  let worker = null;
  stop.addEventListener("abort", () => worker?.terminate());

  const verify = (every) => {
    worker?.terminate();
    worker = new Worker("worker.js", { type: "module" });
    fill(chain, "Reading the journal…");
    chain.className = "verdict";
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      chain.className = "verdict bad";
      fill(chain, "The worker that verifies could not begin: ", event.message || "this browser has no module workers");
    });
    worker.addEventListener("message", ({ data }) => {
      if (data.stage === "verifying") {
        fill(
          chain,
          h("progress", { max: data.all, value: data.done }),
          ` ${data.done.toLocaleString("en")} of ${count(data.all, "record")}`,
        );
        return;
      }
      if (data.stage === "proven") {
        chain.className = "verdict good";
        fill(
          chain,
          h("strong", {}, "The chain and the last signature are good."),
          facts([
            ["records", data.records.toLocaleString("en")],
            ["signatures", `${data.signatures.toLocaleString("en")} verified`],
            ["signed by", h("code", {}, data.fingerprint)],
            ["last link", h("code", { class: "hash" }, data.link)],
            ["time", `${data.ms} ms, in this browser, by Ed25519 and SHA-256 of WebCrypto`],
          ]),
        );
        worker.terminate();
      } else if (data.stage === "refused") {
        chain.className = data.kind === "unsupported" ? "verdict unknown" : "verdict bad";
        fill(
          chain,
          h("strong", {}, data.kind === "unsupported" ? "This browser cannot verify it." : "The journal is refused."),
          h("p", {}, data.message),
        );
        worker.terminate();
      }
    });
    const address = new URL(`api/${runPath(run, "journal")}`, location.href).href;
    worker.postMessage({ address, options: { run, key: about.key, every, from: about.kind } });
  };

  const recompute = async (button) => {
    button.disabled = true;
    audit.className = "verdict";
    fill(audit, "The audit follows the graph through the journal…");
    try {
      const found = await get(runPath(run, "audit"), {}, stop);
      if (!found.proven) {
        audit.className = "verdict bad";
        fill(
          audit,
          h("strong", {}, "The run is not proven."),
          h(
            "ul",
            {},
            found.problems.map((one) => h("li", {}, h("a", { href: runLink(one.run) }, one.run), ": ", one.what)),
          ),
        );
      } else {
        audit.className = "verdict good";
        fill(
          audit,
          h(
            "strong",
            {},
            found.audits.length > 1
              ? `The run and ${count(found.audits.length - 1, "run")} inside it did what their graphs say.`
              : "The run did what its graph says.",
          ),
          found.audits.map((one) =>
            h(
              "div",
              { class: "card inner" },
              h("p", {}, h("a", { href: runLink(one.run) }, one.run), " ", statusChip(one.status)),
              facts([
                ["graph", h("code", {}, one.graph)],
                ["graph signed by", h("code", {}, one.signer)],
                ["digest", h("code", { class: "hash" }, one.digest)],
                [
                  "proven under",
                  one.under === one.digest
                    ? null
                    : h("span", {}, "another text of the same meaning, ", h("code", { class: "hash" }, one.under)),
                ],
                ["steps", Number(one.steps).toLocaleString("en")],
                ["records", Number(one.records).toLocaleString("en")],
                ["resumed", one.resumes ? count(one.resumes, "time") : null],
                [
                  "began in",
                  one.from
                    ? `run ${one.from.run}, record ${one.from.seq}${one.origin_proven ? "" : ", which is not in the store"}`
                    : null,
                ],
                ["values", one.recomputed ? "computed again" : "encrypted values were not computed again"],
                [
                  "not proven",
                  one.unproven_reducers.length ? `reducers of the program: ${one.unproven_reducers.join(", ")}` : null,
                ],
                [
                  "answers",
                  one.approvals.length
                    ? h(
                        "ul",
                        {},
                        one.approvals.map((answer) =>
                          h(
                            "li",
                            {},
                            h("code", {}, answer.node),
                            ` (${answer.wait}) `,
                            time(answer.at),
                            " by ",
                            answer.by.map((by) => `${by.owner} (${by.key})`).join(" and "),
                            answer.verified ? "" : "; not verified: sealed",
                          ),
                        ),
                      )
                    : null,
                ],
                [
                  "edits",
                  one.edits.length
                    ? h(
                        "ul",
                        {},
                        one.edits.map((edit) =>
                          h("li", {}, `after step ${edit.step}, `, time(edit.at), ` by ${edit.by}: ${edit.why}`),
                        ),
                      )
                    : null,
                ],
                ["last link", h("code", { class: "hash" }, one.link)],
              ]),
            ),
          ),
        );
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      audit.className = "verdict unknown";
      fill(audit, h("strong", {}, "The audit could not be made."), h("p", { class: "pre" }, error.message));
    } finally {
      button.disabled = false;
    }
  };

  return h(
    "div",
    { class: "proof" },
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Chain and signatures"),
      h(
        "p",
        {},
        "This page reads the raw journal itself and verifies it with a reader of its own, in a worker. The viewer's answers elsewhere in the page are not needed for it. The public key that it trusts is the one that ",
        h("code", {}, "graph verify-run"),
        " uses: ",
        h("code", {}, about.fingerprint),
        ", ",
        h("code", { class: "hash" }, about.key),
        ".",
      ),
      h(
        "p",
        {},
        h("button", { type: "button", class: "primary", onclick: () => verify(false) }, "Verify the chain"),
        " ",
        h("button", { type: "button", onclick: () => verify(true) }, "Verify every signature"),
      ),
      chain,
    ),
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Recomputation"),
      h(
        "p",
        {},
        "The audit follows the graph again and compares every visit, write and edge with the records, as ",
        h("code", {}, "graph verify-run"),
        " does. The program behind this page computes it, and not the page.",
      ),
      h(
        "p",
        {},
        h(
          "button",
          { type: "button", class: "primary", onclick: (event) => recompute(event.target) },
          "Compute it again",
        ),
      ),
      audit,
    ),
  );
}

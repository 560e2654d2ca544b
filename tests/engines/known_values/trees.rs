//! The tools, the graphs inside, the agent and the reducer of random graphs.

/// The result of every tool.
const RESULT: &str = "result_schema:
  type: object
  properties:
    text: { type: string }
    why: { type: string }
    word: { enum: [light, heavy] }
    list: { type: array, items: { type: string } }
    number: { type: integer }
    thing: { type: object, properties: { a: { type: string }, b: { type: string } }, required: [a] }
  required: [text, word, list, number]
";

/// The tools, each with the schema of what it needs.
const TOOLS: [(&str, &str); 5] = [
    ("text", "{ type: string }"),
    ("word", "{ enum: [light, heavy] }"),
    ("list", "{ type: array, items: { type: string } }"),
    ("number", "{ type: number }"),
    ("object", "{ type: object, properties: { a: { type: string }, b: { type: string } }, required: [a] }"),
];

const JOIN: &str =
    "version: \"1.0.0\"\ntool_type: reducer\nconfig_schema: { type: string }\nresult_schema: { type: string }\n";

/// A nested graph whose exits differ in words, in a boolean, and in the fields that they have.
const INNER: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: v
permissions: ["rye.execute.tool.*"]
config_schema: { type: object, properties: { m: { enum: [a, b, c] } }, required: [m] }
config:
  start: route
  nodes:
    route: { type: gate, next: { by: inputs.m, to: { a: paid, b: partly, c: lost } } }
    paid: { type: return, output: { ok: true, kind: light, text: "${inputs.m}", more: { text: x } } }
    partly: { type: return, output: { ok: true, kind: heavy, text: partly } }
    lost: { type: return, output: { ok: false, kind: other, why: gone } }
"#;

/// The same with a question to people.
const ASKS: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: v
permissions: ["rye.execute.tool.*"]
config_schema: { type: object, properties: { m: { enum: [a, b, c] } }, required: [m] }
config:
  start: ask
  state: { note: null }
  nodes:
    ask:
      type: interrupt
      payload: { m: "${inputs.m}" }
      result_schema: { type: object, properties: { decision: { enum: [light, heavy] }, note: { type: string } }, required: [decision] }
      timeout: 1h
      on_timeout: lost
      assign: { note: "${result.note}" }
      next: [{ to: paid, when: { path: result.note, op: exists } }, { to: partly }]
    paid: { type: return, output: { ok: true, kind: light, text: "${state.note}", more: { text: x } } }
    partly: { type: return, output: { ok: true, kind: heavy, text: partly } }
    lost: { type: return, output: { ok: false, kind: other, why: gone } }
"#;

const AGENT: &str = r#"version: "1.0.0"
tool_type: agent
config: { directive: v/judge, tools: [t/text], limits: { turns: 50 } }
config_schema: { type: object, properties: { v: { type: string }, fails: { type: boolean } }, required: [v] }
result_schema: { type: object, properties: { verdict: { enum: [light, heavy] }, note: { type: string } }, required: [verdict] }
"#;

const DIRECTIVE: &str = r#"# Judge

<directive name="judge" version="1.0.0">
  <metadata><description>Say how heavy it is.</description></metadata>
  <inputs><input name="v" type="string" required="true">It</input></inputs>
  <process><step name="look">Say how heavy {input:v} is.</step></process>
</directive>
"#;

/// Returns the files, by their names.
pub(super) fn files() -> Vec<(String, String)> {
    let tools = TOOLS.iter().map(|(name, schema)| {
        let text = format!(
            "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: {{ type: object, properties: {{ v: {schema}, fails: {{ type: boolean }} }}, \
             required: [v] }}\n{RESULT}"
        );
        (format!("tools/t/{name}.yaml"), text)
    });
    let others = [
        ("tools/t/join.yaml", JOIN),
        ("inner.yaml", INNER),
        ("asks.yaml", ASKS),
        ("tools/v/agent.yaml", AGENT),
        (".ai/directives/v/judge.md", DIRECTIVE),
    ];
    tools.chain(others.map(|(name, text)| (name.to_owned(), text.to_owned()))).collect()
}

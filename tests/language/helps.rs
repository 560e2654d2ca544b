//! Helps are right: the code in a help is written into the graph, and the graph then has no mistake.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use graph_compiler::diagnostic::Diagnostic;
use graph_compiler::fix::apply;
use graph_compiler::project::Compilation;

use crate::check::Fixtures;
use crate::clerk::trust_a_clerk;
use crate::corpus::Corpus;
use crate::expected::yaml_files;
use crate::support::sign;
use crate::tree::Tree;

/// A mistake, and where the code in its help is written.
struct Correction {
    code: &'static str,
    /// The part of a graph behind its permissions and inputs, with the mistake.
    graph: &'static str,
    /// The part that is replaced, and the text in its place. `HELP` stands for the code in the help that has the second text in it.
    wrong: &'static str,
    right: &'static str,
    holds: &'static str,
}

const fn correction(
    code: &'static str,
    graph: &'static str,
    wrong: &'static str,
    right: &'static str,
    holds: &'static str,
) -> Correction {
    Correction { code, graph, wrong, right, holds }
}

const CORRECTIONS: &[Correction] = &[
    correction(
        "G0110",
        r#"config: { start: a, nodes: { a: { type: gate, next: { by: "${inputs.kind}", to: { x: b, z: b } } }, b: { type: return } } }"#,
        r#"by: "${inputs.kind}""#,
        "HELP",
        "by:",
    ),
    correction(
        "G0110",
        r#"config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: { path: "${inputs.kind}", value: x } }, { to: b }] }, b: { type: return } } }"#,
        r#"path: "${inputs.kind}""#,
        "HELP",
        "path:",
    ),
    correction(
        "G0030",
        r#"config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: "${inputs.count} > 3" }, { to: c }] }, b: { type: return }, c: { type: return } } }"#,
        r#""${inputs.count} > 3""#,
        "HELP",
        "path:",
    ),
    correction(
        "G0030",
        "config: { start: a, signals: { paid: { type: object, properties: { ok: boolean }, required: [ok] } }, nodes: { a: { type: wait, signals: [paid], next: [{ to: b, when: { path: result.paid.ok, value: true } }, { to: c }] }, b: { type: return }, c: { type: return } } }",
        "ok: boolean",
        "ok: HELP",
        "type:",
    ),
    correction(
        "G0030",
        "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [yes_, no_] }, answered_by: treasury, timeout: 1d, on_timeout: c, next: { by: result, to: { yes_: b, no_: c } } }, b: { type: return }, c: { type: return } } }",
        "answered_by: treasury",
        "HELP",
        "answered_by:",
    ),
    correction(
        "G0030",
        r#"config: { start: a, channels: [lines], nodes: { a: { type: gate, assign: { lines: 1 }, next: b }, b: { type: return, output: { lines: "${state.lines}" } } } }"#,
        "channels: [lines]",
        "HELP",
        "channels:",
    ),
    correction(
        "G0205",
        "config: { start: a, nodes: { a: { type: gate, next: { all: [{ to: b }, { to: c }] } }, b: { action: { item_id: t/tool }, next: d }, c: { action: { item_id: t/tool }, next: d }, d: { type: return } } }",
        "d: { type: return }",
        "d: { type: return, HELP }",
        "waits_for:",
    ),
    correction(
        "G0207",
        r#"config: { start: a, nodes: { a: { type: gate, next: { over: [1, 2], as: e, to: b } }, b: { action: { item_id: t/tool }, assign: { lines: "${e}" }, next: c }, c: { type: return, waits_for: b, output: { lines: "${state.lines}" } } } }"#,
        "config: { start: a,",
        "config: { start: a, HELP,",
        "channels:",
    ),
    correction(
        "G0020",
        "config: { start: a, nodes: { a: { type: return, output: { kind: ${inputs.kind} } } } }",
        "kind: ${inputs.kind}",
        "kind: HELP",
        "inputs.kind",
    ),
    correction(
        "G0131",
        "config: { start: a, nodes: { a: { action: { item_id: u/tooll }, next: b }, b: { type: return } } }",
        "u/tooll",
        "HELP",
        "u/tool",
    ),
    correction(
        "G0020",
        "config: { start: a, nodes: { a: { type: return, output: { kind: @x } } } }",
        "@x",
        "HELP",
        r#""@x""#,
    ),
    correction(
        "G0023",
        "config: { start: a, nodes: { a: { type: return, output: { kind: 0x10 } } } }",
        "0x10",
        "HELP",
        r#""0x10""#,
    ),
    correction(
        "G0030",
        "config: { start: a, nodes: { a: { type: gate, next: { all: [{ to: one }, { to: other }] } }, one: { action: { item_id: t/tool }, next: c }, other: { action: { item_id: t/tool }, next: c }, c: { type: return, waits_for: [] } } }",
        "waits_for: []",
        "HELP",
        "waits_for:",
    ),
    correction(
        "G0030",
        "config: { signals: { name: { type: string } }, start: a, nodes: { a: { type: wait, signals: [], next: b }, b: { type: return } } }",
        "signals: []",
        "HELP",
        "signals:",
    ),
    correction(
        "G0030",
        "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [approve, refuse] }, answered_by: ~, timeout: 1d, on_timeout: c, next: { by: result, to: { approve: b, refuse: c } } }, b: { type: return }, c: { type: return } } }",
        "answered_by: ~",
        "HELP",
        "answered_by:",
    ),
    correction(
        "G0030",
        "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [approve, refuse] }, answered_by: { count: {} }, timeout: 1d, on_timeout: c, next: { by: result, to: { approve: b, refuse: c } } }, b: { type: return }, c: { type: return } } }",
        "count: {}",
        "HELP",
        "count:",
    ),
    correction(
        "G0031",
        "config: { limits: { depth: 2 }, start: a, nodes: { a: { type: return } } }",
        "config: { limits: { depth: 2 }, start",
        "limits: { depth: 2 }\nconfig: { start",
        "limits",
    ),
    correction(
        "G0031",
        "config: { start: a, nodes: { a: { action: { item_id: t/tool, timeout: 5s }, next: b }, b: { type: return } } }",
        "t/tool, timeout: 5s }",
        "t/tool }, timeout: 5s",
        "timeout",
    ),
    correction(
        "G0031",
        "config: { start: a, nodes: { a: { type: gate, next: { all: [{ to: one }, { to: other }] } }, one: { type: gate, next: c }, other: { type: gate, next: c }, c: { type: return, waits_for: [one, other], need: 1 } } }",
        "waits_for: [one, other], need: 1",
        "HELP",
        "need:",
    ),
    correction(
        "G0032",
        "config: { start: a, nodes: { a: { type: gate, next: b }, b: {} } }",
        "b: {}",
        "b: { HELP }",
        "type: return",
    ),
    correction(
        "G0032",
        "config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: { path: inputs.maybe } }, { to: c }] }, b: { type: return }, c: { type: return } } }",
        "inputs.maybe }",
        "inputs.maybe, HELP }",
        "value:",
    ),
    correction(
        "G0032",
        "config: { start: a, nodes: { a: { type: wait, next: b }, b: { type: return } } }",
        "type: wait",
        "type: wait, HELP",
        "timeout:",
    ),
    correction(
        "G0034",
        "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [approve, refuse] }, answered_by: { role: The Boss }, timeout: 1d, on_timeout: c, next: { by: result, to: { approve: b, refuse: c } } }, b: { type: return }, c: { type: return } } }",
        "role: The Boss",
        "HELP",
        "role:",
    ),
    correction(
        "G0037",
        r#"config: { start: a, nodes: { a: { type: foreach, over: "${inputs.list}", as: e, max_concurrency: 2, action: { item_id: t/text, params: { subject: "${e}" } }, next: b }, b: { type: return } } }"#,
        "max_concurrency: 2",
        "max_concurrency: 2, HELP",
        "parallel:",
    ),
    correction(
        "G0037",
        "config: { start: a, nodes: { a: { action: { item_id: t/tool }, retry: { attempts: 3, on: [] }, next: b }, b: { type: return } } }",
        "on: []",
        "HELP",
        "on:",
    ),
    correction(
        "G0038",
        "config: { start: a, nodes: { a: { action: { item_id: t/tool }, timeout: soon, next: b }, b: { type: return } } }",
        "soon",
        "HELP",
        "30s",
    ),
    correction(
        "G0103",
        "config: { start: a, nodes: { a: { action: { item_id: t/tool }, on_error: continue, next: b }, b: { type: return } } }",
        "config: { start: a, nodes: { a: { action: { item_id: t/tool }, on_error: continue,",
        "config: { on_error: continue, start: a, nodes: { a: { action: { item_id: t/tool },",
        "on_error:",
    ),
    correction(
        "G0110",
        r#"config: { start: a, nodes: { a: { type: return, output: { n: "${inputs.maybe || 0}" } } } }"#,
        r#"config: { start: a, nodes: { a: { type: return, output: { n: "${inputs.maybe || 0}""#,
        r#"config: { state: { HELP }, start: a, nodes: { a: { type: return, output: { n: "${inputs.maybe || state.otherwise}""#,
        "otherwise:",
    ),
    correction(
        "G0110",
        r#"config: { start: a, nodes: { a: { type: return, output: { n: "at ${}" } } } }"#,
        r#""at ${}""#,
        r#""at HELP}""#,
        "$${",
    ),
    correction(
        "G0114",
        r#"config: { start: a, nodes: { a: { type: return, output: { n: "${inputs.name}" } } } }"#,
        "INPUTS",
        "HELP",
        "config_schema:",
    ),
    correction(
        "G0117",
        r#"config: { start: a, nodes: { a: { action: { item_id: t/inner }, assign: { n: "${result.good}" }, next: b }, b: { type: return, output: { n: "${state.n}" } } } }"#,
        "result.good",
        "HELP",
        "result.output.good",
    ),
    correction(
        "G0117",
        r#"config: { start: a, nodes: { a: { type: gate, assign: { n: "${visit}" }, next: b }, b: { type: return, output: { n: "${state.n}" } } } }"#,
        "${visit}",
        "${HELP}",
        "visit.number",
    ),
    correction(
        "G0126",
        r#"config: { start: a, nodes: { a: { type: gate, next: { over: "${inputs.list}", as: state, to: c } }, c: { action: { item_id: t/tool }, next: b }, b: { type: return, waits_for: c } } }"#,
        "as: state",
        "HELP",
        "as:",
    ),
    correction(
        "G0127",
        "config: { state: { items: [1, 2] }, start: a, nodes: { a: { type: gate, next: { over: text, as: e, to: c } }, c: { action: { item_id: t/tool }, next: b }, b: { type: return, waits_for: c } } }",
        "over: text",
        "HELP",
        "over:",
    ),
    correction(
        "G0130",
        "config: { start: a, nodes: { a: { action: { item_id: t/tool }, next: b }, b: { type: return } } }",
        "permissions: []",
        "HELP",
        "permissions:",
    ),
    correction(
        "G0134",
        "config: { start: a, nodes: { a: { action: { item_id: t/inner }, next: b }, b: { type: return } } }",
        "permissions: [rye.execute.tool.t.*",
        "permissions: [HELP, rye.execute.tool.t.*",
        "rye.execute.tool.v.tool",
    ),
    correction(
        "G0137",
        r#"config: { start: a, nodes: { a: { action: { item_id: "${inputs.which}" }, next: b }, b: { type: return } } }"#,
        "permissions: [rye.execute.tool.t.*",
        "permissions: [HELP, rye.execute.tool.t.*",
        "rye.execute.tool.v.tool",
    ),
    correction(
        "G0141",
        "config: { hooks: [{ event: after_step, action: { retry: true } }], start: a, nodes: { a: { action: { item_id: t/tool }, next: b }, b: { type: return } } }",
        "event: after_step",
        "HELP",
        "event:",
    ),
    correction(
        "G0150",
        r#"config: { start: a, nodes: { a: { type: gate, next: [{ to: d, when: { path: inputs.kind, value: x } }, { to: e, when: { path: inputs.choice, value: x } }, { to: b }] }, d: { type: gate, assign: { k: 1 }, next: e }, e: { type: gate, next: c }, c: { type: return, output: { k: "${state.k}" } }, b: { type: return } } }"#,
        "next: c",
        "next: [{ to: c, HELP }, { to: b }]",
        "when:",
    ),
    correction(
        "G0160",
        "config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: { path: inputs.kind, value: x } }] }, b: { type: return } } }",
        "value: x } }]",
        "value: x } }, {}]",
        "- {}",
    ),
    correction(
        "G0162",
        "limits: { visits: 3 }\nconfig: { start: a, nodes: { a: { action: { item_id: t/tool }, next: [{ to: b, when: { path: visit.number, op: gte, value: 10 } }, { to: b, when: { path: inputs.kind, value: x } }, { to: a }] }, b: { type: return } } }",
        "limits: { visits: 3 }",
        "HELP",
        "visits:",
    ),
    correction(
        "G0164",
        "limits: { visits: 3 }\nconfig: { start: a, nodes: { a: { action: { item_id: t/tool }, next: [{ to: b, when: { any: [{ path: inputs.kind, value: x }, { path: visit.number, op: gte, value: 10 }] } }, { to: a }] }, b: { type: return } } }",
        "limits: { visits: 3 }",
        "HELP",
        "visits:",
    ),
    correction(
        "G0165",
        "config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: { path: inputs.maybe, op: exists, value: 3 } }, { to: c }] }, b: { type: return }, c: { type: return } } }",
        "{ path: inputs.maybe, op: exists, value: 3 }",
        "HELP",
        "value: null",
    ),
    correction(
        "G0170",
        "config: { start: a, nodes: { a: { type: gate, next: [{ to: a, when: { path: inputs.kind, value: x } }, { to: b }] }, b: { type: return } } }",
        "when: { path: inputs.kind, value: x }",
        "when: { all: [{ path: inputs.kind, value: x }, HELP] }",
        "visit.number, op",
    ),
    correction(
        "G0171",
        "config: { max_steps: 1, start: a, nodes: { a: { type: gate, next: b }, b: { type: return } } }",
        "max_steps: 1",
        "HELP",
        "max_steps:",
    ),
    correction(
        "G0172",
        "limits: { depth: 0 }\nconfig: { start: a, nodes: { a: { action: { item_id: t/inner }, next: b }, b: { type: return } } }",
        "limits: { depth: 0 }",
        "HELP",
        "depth:",
    ),
    correction(
        "G0173",
        r#"config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: { path: inputs.maybe, op: regex, value: "" } }, { to: c }] }, b: { type: return }, c: { type: return } } }"#,
        r#"{ path: inputs.maybe, op: regex, value: "" }"#,
        "HELP",
        "op: exists",
    ),
    correction(
        "G0174",
        "config: { start: a, nodes: { a: { action: { item_id: t/tool }, retry: { attempts: 1, delay: 1s }, next: b }, b: { type: return } } }",
        "retry: { attempts: 1, delay: 1s }",
        "HELP",
        "retry: 1",
    ),
    correction(
        "G0180",
        r#"config: { start: a, nodes: { a: { action: { item_id: rye/bash, params: { command: "echo ${inputs.maybe}" } }, next: b }, b: { type: return } } }"#,
        r#"command: "echo ${inputs.maybe}""#,
        r#"command: 'echo "$MAYBE"', HELP"#,
        "env:",
    ),
    correction(
        "G0183",
        "config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: { path: inputs.token, value: x } }, { to: c }] }, b: { type: return }, c: { type: return } } }",
        "value: x",
        "HELP",
        "op: exists",
    ),
    correction(
        "G0186",
        r#"config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [approve, refuse] }, timeout: 1d, on_timeout: b, next: { by: result, to: { approve: c, refuse: b } } }, c: { action: { item_id: t/pay, params: { cents: "${inputs.count}" } }, next: b }, b: { type: return } } }"#,
        "payload: { q: 1 }",
        r#"payload: { q: "HELP" }"#,
        "${inputs.count}",
    ),
    correction(
        "G0186",
        r#"config: { start: a, nodes: { a: { action: { item_id: t/pay, params: { cents: "${inputs.count}" } }, next: b }, b: { type: return } } }"#,
        "count: { type: integer }",
        "count: { type: integer, HELP }",
        "x-guarded: true",
    ),
    correction(
        "G0188",
        "config: { start: a, nodes: { a: { action: { item_id: t/login, params: { password: hunter2 } }, next: b }, b: { type: return } } }",
        "password: hunter2",
        r#"password: "${inputs.token}""#,
        "x-secret:",
    ),
    correction(
        "G0189",
        r#"config: { start: a, nodes: { a: { action: { item_id: t/login, params: { password: "${inputs.kind}" } }, next: b }, b: { type: return } } }"#,
        "kind: { type: string, enum: [x, z] }",
        "kind: { type: string, HELP }",
        "x-secret:",
    ),
    correction(
        "G0200",
        "config: { start: a, nodes: { a: { type: gate, next: { all: [{ to: one }, { to: two }] } }, one: { action: { item_id: t/tool }, next: c }, two: { action: { item_id: t/tool }, next: c }, c: { type: return, waits_for: [one] } } }",
        "waits_for: [one]",
        "HELP",
        "waits_for:",
    ),
    correction(
        "G0201",
        "config: { start: a, nodes: { a: { type: gate, next: { all: [{ to: one }, { to: two }] } }, one: { action: { item_id: t/tool }, next: c }, two: { action: { item_id: t/tool }, next: c }, c: { action: { item_id: t/tool }, next: b }, b: { type: return } } }",
        "c: { action",
        "c: { HELP, action",
        "waits_for:",
    ),
    correction(
        "G0210",
        "config: { start: a, nodes: { a: { type: gate, next: { by: inputs.choice, to: { x: b, z: b } } }, node: { type: return }, b: { type: return } } }",
        "z: b }",
        "z: b, HELP }",
        "node",
    ),
    correction(
        "G0211",
        r#"config: { channels: { names: extend }, start: a, nodes: { a: { type: gate, assign: { names: one }, next: b }, b: { type: return, output: { names: "${state.names}" } } } }"#,
        "names: extend",
        "names: HELP",
        "append",
    ),
    correction(
        "G0213",
        r#"config: { channels: { nested: append }, start: a, nodes: { a: { type: foreach, over: "${inputs.list}", as: e, action: { item_id: t/text, params: { subject: "${e}" } }, collect: nested, next: b }, b: { type: return, output: { n: "${state.nested}" } } } }"#,
        "nested: append",
        "HELP",
        "extend",
    ),
    correction(
        "G0216",
        "config: { start: a, nodes: { a: { type: gate, next: { all: [{ to: one }, { to: other }] } }, one: { action: { item_id: t/tool }, next: c }, other: { action: { item_id: t/tool }, next: c }, c: { type: return, waits_for: { of: [one, other], need: 3, rest: cancel } } } }",
        "waits_for: { of: [one, other], need: 3, rest: cancel }",
        "HELP",
        "waits_for:",
    ),
    correction(
        "G0217",
        r#"config: { start: a, nodes: { a: { type: gate, next: [{ to: name, when: { path: inputs.kind, value: x } }, { to: fan }] }, fan: { type: gate, next: { over: "${inputs.list}", as: e, to: one } }, one: { action: { item_id: t/tool }, next: c }, c: { type: return, waits_for: { of: one, need: 3, rest: cancel } }, name: { type: return } } }"#,
        "need: 3",
        "need: 3, HELP",
        "fewer:",
    ),
    correction(
        "G0219",
        r#"config: { state: { seen: "x" }, start: a, nodes: { a: { type: gate, next: { all: [{ to: one }, { to: other }], on_branch_error: finish } }, one: { action: { item_id: t/text, params: { subject: "${state.seen}" } }, next: c }, other: { action: { item_id: t/tool }, assign: { seen: "y" }, next: c }, c: { type: return, waits_for: [one, other], output: { k: "${state.seen}" } } } }"#,
        "on_branch_error: finish",
        "HELP",
        "on_branch_error:",
    ),
    correction(
        "G0222",
        "limits: { steps: 2 }\nconfig: { start: a, nodes: { a: { action: { item_id: t/inner }, next: b }, b: { type: return } } }",
        "limits: { steps: 2 }",
        "HELP",
        "steps:",
    ),
    correction(
        "G0225",
        "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [approve, refuse] }, timeout: 1d, next: { by: result, to: { approve: b, refuse: name } } }, b: { type: return }, name: { type: return } } }",
        "timeout: 1d",
        "timeout: 1d, HELP",
        "on_timeout:",
    ),
    correction(
        "G0225",
        "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [approve, refuse] }, on_timeout: c, next: { by: result, to: { approve: b, refuse: c } } }, b: { type: return }, c: { type: return } } }",
        "on_timeout: c",
        "on_timeout: c, HELP",
        "timeout:",
    ),
    correction(
        "G0225",
        r#"config: { start: a, nodes: { a: { type: wait, until: "2027-11-21 20:00", next: b }, b: { type: return } } }"#,
        "2027-11-21 20:00",
        "HELP",
        "+01:00",
    ),
    correction(
        "G0225",
        "config: { signals: { name: { type: string } }, start: a, nodes: { a: { type: wait, timeout: 1d, on_timeout: b, next: b }, b: { type: return } } }",
        "on_timeout: b",
        "on_timeout: b, HELP",
        "signals:",
    ),
    correction(
        "G0226",
        "config: { signals: { other: { type: string }, nudged: { type: string } }, start: a, nodes: { a: { type: wait, signals: [other], next: b }, b: { type: return } } }",
        "signals: [other]",
        "signals: [other, nudged]",
        "signals:",
    ),
    correction(
        "G0227",
        "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [approve, refuse] }, next: { by: result, to: { approve: b, refuse: name } } }, b: { type: return }, name: { type: return } } }",
        "payload: { q: 1 }",
        "payload: { q: 1 }, HELP, on_timeout: name",
        "timeout:",
    ),
    correction(
        "G0194",
        "limits: { turns: 2 }\nconfig: { start: a, nodes: { a: { action: { item_id: t/agent }, next: b }, b: { type: return } } }",
        "limits: { turns: 2 }",
        "HELP",
        "turns:",
    ),
    correction(
        "G0197",
        r#"config: { start: a, nodes: { a: { action: { item_id: "w/${inputs.any}" }, next: b }, b: { type: return } } }"#,
        "any: { type: string }",
        "any: { type: string, HELP }",
        "x-sink: item",
    ),
    correction(
        "G0224",
        "config: { start: a, nodes: { a: { action: { item_id: t/waits }, share: { signals: [go] }, next: b }, b: { type: return } } }",
        "config: { start",
        "config: { signals: { go: { type: string } }, start",
        "config.signals",
    ),
];

const INPUTS: &str = "config_schema: { type: object, required: [kind, count, list, which, any, token], properties: { kind: { type: string, enum: [x, z] }, count: { type: integer }, \
     maybe: { type: string }, choice: { type: [string, \"null\"], enum: [x, z, null] }, list: { type: array, items: { type: string } }, \
     which: { type: string, enum: [t/tool, v/tool] }, any: { type: string }, token: { type: string, x-secret: true } } }";

/// Tools without parameters.
const PLAIN_TOOLS: [&str; 5] = ["t/tool", "u/tool", "v/tool", "w/one", "w/two"];

const CONTRACTS: [(&str, &str); 4] = [
    (
        "tools/t/text.yaml",
        "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: { subject: { type: string } }, required: [subject] }\n\
         result_schema: { type: array, items: { type: string } }\n",
    ),
    (
        "tools/t/pay.yaml",
        "version: \"1.0.0\"\ntool_type: rust\nx-guarded: true\n\
         config_schema: { type: object, properties: { cents: { type: integer } }, required: [cents] }\n",
    ),
    (
        "tools/t/login.yaml",
        "version: \"1.0.0\"\ntool_type: rust\n\
         config_schema: { type: object, properties: { password: { type: string, x-secret: true } }, required: [password] }\n",
    ),
    (
        "tools/t/agent.yaml",
        "version: \"1.0.0\"\ntool_type: agent\nconfig: { directive: t/work, limits: { turns: 3, tokens: 1000, spend: \"0.10 USD\", timeout: 1m } }\n\
         config_schema: { type: object, properties: {} }\nresult_schema: { type: object, properties: { good: { type: boolean } }, required: [good] }\n",
    ),
];

/// A graph that waits for a signal.
const WAITS: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: t\n\
     permissions: [rye.execute.tool.v.tool]\nconfig_schema: { type: object, properties: {} }\n\
     config: { start: a, signals: { go: { type: string } }, nodes: { a: { type: wait, signals: [go], next: b }, b: { type: return } } }\n";

/// A graph of two steps that calls `v/tool`.
const INNER: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: t\n\
     permissions: [rye.execute.tool.v.tool]\nconfig_schema: { type: object, properties: {} }\n\
     config: { start: a, nodes: { a: { action: { item_id: v/tool }, next: b }, b: { type: return, output: { good: 1 } } } }\n";

fn tree_of_corrections() -> Tree {
    let tree = Tree::new();
    for name in PLAIN_TOOLS {
        let text = "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: {} }\n";
        tree.write(&format!("tools/{name}.yaml"), sign(text));
    }
    for (name, text) in CONTRACTS {
        tree.write(name, sign(text));
    }
    tree.write("t/inner.yaml", sign(INNER));
    tree.write("t/waits.yaml", sign(WAITS));
    tree
}

impl Correction {
    fn text(&self) -> String {
        let permissions = match self.code {
            "G0130" => "",
            "G0134" | "G0137" => "rye.execute.tool.t.*, rye.execute.tool.rye.bash",
            _ => {
                "rye.execute.tool.t.*, rye.execute.tool.u.tool, rye.execute.tool.v.tool, rye.execute.tool.w.*, rye.execute.tool.rye.bash, rye.execute.tool.rye.agent.model"
            }
        };
        format!(
            "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
             permissions: [{permissions}]\n{INPUTS}\n{}\n",
            self.graph
        )
    }

    /// Returns the text with the code of the help written into it.
    fn corrected(&self, found: &Diagnostic) -> Result<String, String> {
        let help = found.help.clone().unwrap_or_default();
        let mut codes = help.split('`').skip(1).step_by(2);
        let code = codes.find(|code| code.contains(self.holds)).ok_or_else(|| format!("no code in `{help}`"))?;
        let text = self.text();
        let wrong = self.wrong.replace("INPUTS", INPUTS);
        assert_eq!(text.matches(&wrong).count(), 1, "`{wrong}` in\n{text}");
        Ok(text.replace(&wrong, &self.right.replace("HELP", code)))
    }

    /// The errors, and what has the code of this mistake: warnings of other kinds are about the graph, which is short.
    fn of<'c>(&self, compilation: &'c Compilation) -> Vec<&'c Diagnostic> {
        let counts = |one: &&Diagnostic| one.severity.name() == "error" || one.code.id == self.code;
        compilation.diagnostics.iter().filter(counts).collect()
    }
}

#[test]
fn the_code_in_a_help_corrects_the_graph() {
    let tree = tree_of_corrections();
    let project = tree.project();
    let mut problems = String::new();
    for (at, correction) in CORRECTIONS.iter().enumerate() {
        let at = format!("{at}, {}", correction.code);
        tree.write("corrected.yaml", sign(&correction.text()));
        let wrong = project.compile(&tree.path("corrected.yaml"));
        let found = correction.of(&wrong);
        let [only] = found.as_slice() else {
            let all: String = found.iter().map(|one| one.render() + "\n").collect();
            writeln!(problems, "{at}: one mistake is expected\n{all}").unwrap();
            continue;
        };
        if only.code.id != correction.code {
            writeln!(problems, "{at}: it is\n{}", only.render()).unwrap();
            continue;
        }
        match correction.corrected(only) {
            Ok(text) => {
                tree.write("corrected.yaml", sign(&text));
                for one in correction.of(&project.compile(&tree.path("corrected.yaml"))) {
                    writeln!(problems, "{at}, after the help: {}\n{text}", one.render()).unwrap();
                }
            }
            Err(problem) => writeln!(problems, "{at}: {problem}").unwrap(),
        }
    }
    assert!(problems.is_empty(), "\n{problems}");
}

/// The graphs that have another mistake when the first one is corrected, with the reason.
const TWO_STEPS: [(&str, &str); 4] = [
    ("174_tool_without_contract_that_is_nearly_called_so.yaml", "its permission has the wrong name too"),
    ("210_channel_with_another_name.yaml", "no reducer is the one that the author has in mind"),
    ("230_a_task_that_does_not_exist.yaml", "its permission has the wrong name too"),
    ("220_key_that_the_graph_inside_does_not_have.yaml", "the key with the right name is written by another branch"),
];

#[test]
fn each_fix_of_the_catalogue_corrects_its_graph() {
    let tree = Corpus::read().tree();
    trust_a_clerk(&tree);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalogue");
    let texts: Vec<(String, String)> = yaml_files(&directory)
        .into_iter()
        .map(|file| {
            let name = file.strip_prefix(&directory).unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&file).unwrap())
        })
        .collect();
    texts.iter().for_each(|(name, text)| tree.write(name, sign(text)));
    let project = tree.project();
    let (mut fixed, mut problems) = (0, String::new());
    for (name, _) in texts.iter().filter(|(name, _)| !name.contains('/')) {
        let path = tree.path(name);
        let compilation = project.compile(&path);
        let Some(found) = compilation.diagnostics.iter().find(|one| one.fix.is_some() && one.place.source.path == path)
        else {
            continue;
        };
        let (text, _) = apply(&found.place.source.text, &[found.fix.as_ref().unwrap()]);
        let (_, unsigned) = text.split_once('\n').unwrap();
        tree.write(name, sign(unsigned));
        fixed += 1;
        if TWO_STEPS.iter().any(|(known, _)| known == name) {
            assert!(!project.compile(&path).diagnostics.is_empty(), "{name}");
            continue;
        }
        for one in &project.compile(&path).diagnostics {
            writeln!(problems, "{name}, after its fix {:?}:\n{}", found.fix, one.render()).unwrap();
        }
    }
    assert!(fixed >= 30, "{fixed}");
    assert!(problems.is_empty(), "{fixed} fixed\n{problems}");
}

/// The codes whose helps have code in them that is written into no graph here, with the reason.
const NOT_WRITTEN: [(&str, &str); 13] = [
    ("G0033", "a contract may be meant, which belongs elsewhere"),
    ("G0035", "it is about marks of contracts"),
    ("G0119", "`…` stands for what the author knows"),
    ("G0123", "it is about contracts of built-in tools"),
    ("G0151", "`…` stands for what the author knows"),
    ("G0154", "`…` stands for what the author knows"),
    ("G0181", "it is about contracts"),
    ("G0182", "it is about contracts"),
    ("G0190", "it is about another graph"),
    ("G0202", "`…` stands for what the author knows"),
    ("G0215", "`…` stands for what the author knows"),
    ("G0220", "`…` stands for what the author knows"),
    ("G0223", "which input an entry names is the author's choice"),
];

#[test]
fn each_kind_of_help_with_code_is_written_into_a_graph() {
    let fixtures = Fixtures::new();
    let mut without = BTreeSet::new();
    for name in fixtures.graphs() {
        for found in fixtures.compile(name).diagnostics.iter().filter(|one| one.fix.is_none()) {
            let help = found.help.clone().unwrap_or_default();
            let has_code = help.split('`').skip(1).step_by(2).any(|code| code.contains(": "));
            if has_code && !CORRECTIONS.iter().any(|correction| correction.code == found.code.id) {
                without.insert(found.code.id);
            }
        }
    }
    assert_eq!(without, NOT_WRITTEN.iter().map(|&(id, _)| id).collect());
}

/// A graph of `tests/check` and a mistake whose fix alone does not correct it, with the reason.
const NOT_ALONE: [(&str, &str, &str); 14] = [
    ("ambiguous_default.yaml", "G0023", "the default of a boolean is a text then"),
    ("ambiguous_parameter.yaml", "G0023", "the tool has no such parameter"),
    ("forms_of_channels.yaml", "G0030", "a list becomes one element of the channel, which has no reducer before"),
    ("missing_dollar.yaml", "G0155", "the item has no such part"),
    ("missing_dollar_in_branches.yaml", "G0155", "the item has no such part"),
    ("namespaces.yaml", "G0111", "nothing sets the key"),
    ("numbers.yaml", "G0023", "a number is wanted there"),
    ("permissions.yaml", "G0131", "what is granted in vain is said when all calls are allowed"),
    ("similar_tool.yaml", "G0129", "the call of the tool has its own mistakes"),
    ("spawned_calls.yaml", "G0196", "the call of the graph lacks an input"),
    ("template_as_text.yaml", "G0110", "the words of the route are those of another text"),
    ("unknown_field.yaml", "G0031", "the condition and the target have their own mistakes"),
    ("words.yaml", "G0166", "the list has the word already"),
    ("words.yaml", "G0165", "the list has the word already"),
];

/// Each fixture has several mistakes. A fix changes the file by itself, and no mistake comes of it.
#[test]
fn each_fix_of_a_fixture_takes_away_its_mistake_and_adds_none() {
    let fixtures = Fixtures::new();
    let (mut fixed, mut problems) = (0, String::new());
    for name in fixtures.graphs() {
        let path = fixtures.tree.path(name);
        let original = fs::read_to_string(&path).unwrap();
        let before = fixtures.compile(name);
        for found in before.diagnostics.iter().filter(|one| one.fix.is_some() && one.place.source.path == path) {
            let (text, _) = apply(&original, &[found.fix.as_ref().unwrap()]);
            fixtures.tree.write(name, sign(text.split_once('\n').unwrap().1));
            let after = fixtures.compile(name);
            fixed += 1;
            let message = format!("{}: {}", found.code.id, found.message);
            if NOT_ALONE.iter().any(|(known, code, _)| known == name && *code == found.code.id) {
                continue;
            }
            if after.diagnostics.iter().any(|one| one.code.id == found.code.id && one.message == found.message) {
                writeln!(problems, "{name}: {message}\nis there after its fix {:?}", found.fix).unwrap();
            }
            // A message may name what the fix corrects, so kinds are compared.
            let count = |of: &Compilation, id| of.diagnostics.iter().filter(|one| one.code.id == id).count();
            for one in after.diagnostics.iter().filter(|one| count(&after, one.code.id) > count(&before, one.code.id)) {
                writeln!(problems, "{name}: {message}\nafter its fix {:?}:\n{}", found.fix, one.render()).unwrap();
            }
        }
        fixtures.tree.write(name, original);
    }
    assert!(fixed >= 60, "{fixed}");
    assert!(problems.is_empty(), "{fixed} fixed\n{problems}");
}

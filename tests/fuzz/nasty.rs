//! Hostile texts: some expand to much more than their file, and some nest too deeply for recursion.

use std::fmt::Write as _;

const HEAD: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\npermissions: [rye.execute.tool.*]\n";

fn graph(nodes: &str) -> String {
    format!("{HEAD}config:\n  start: a\n  nodes:\n{nodes}")
}

/// A graph with an input that has this schema.
fn with_schema(schema: &str) -> String {
    format!(
        "{HEAD}config_schema: {{ type: object, properties: {{ x: {schema} }} }}\nconfig: {{ start: a, nodes: {{ a: {{ type: return, output: \"${{inputs.x}}\" }} }} }}\n"
    )
}

/// A graph whose first node has an edge with this condition.
fn with_condition(condition: &str) -> String {
    graph(&format!(
        "    a: {{ type: gate, next: [{{ to: b, when: {condition} }}, {{ to: b }}] }}\n    b: {{ type: return }}\n"
    ))
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut all, at| {
        all.push_str(&line(at));
        all
    })
}

/// Returns the texts, each with a name.
pub(crate) fn texts() -> Vec<(&'static str, String)> {
    let deep = |open: &str, close: &str, levels: usize| open.repeat(levels) + &close.repeat(levels);
    let mut all = vec![
        ("brackets without end", "[".repeat(200_000)),
        ("mappings without end", "{a: ".repeat(100_000)),
        ("lists in lists without end", "- ".repeat(100_000)),
        ("quotes without end", "\"".to_owned() + &"a\\".repeat(100_000)),
        ("a key without end", "a".repeat(1_000_000) + ": 1\n"),
        ("a comment without end", "#".repeat(2_000_000)),
        ("a long line", format!("{HEAD}description: {}\nconfig: {{}}\n", "x ".repeat(500_000))),
        ("aliases of aliases", lines(30, |at| format!("a{at}: &a{at} [*a{}, *a{}]\n", at.wrapping_sub(1), at.wrapping_sub(1)))),
        ("as deep as allowed", graph(&format!("    a: {{ type: return, output: {} }}\n", deep("[", "]", 58)))),
        ("a deep schema", with_schema(&(deep("{ type: array, items: ", " }", 27).replacen("items:  }", "items: {} }", 1)))),
        ("a deep condition", with_condition(&deep("{ not: ", " }", 27).replacen("not:  }", "not: {} }", 1))),
        ("many conditions", with_condition(&format!("{{ any: [{}] }}", lines(5_000, |at| format!("{{ path: inputs.x{at}, value: {at} }}, "))))),
        ("conditions on one value", with_condition(&format!("{{ any: [{}] }}", lines(5_000, |at| format!("{{ path: inputs.x, op: lt, value: {at} }}, "))))),
        ("all of any of all", with_condition(&(0..10).fold("{ path: inputs.x, value: 1 }".to_owned(), |inner, at| {
            let word = ["all", "any"][at % 2];
            format!("{{ {word}: [{inner}, {{ path: inputs.y{at}, value: true }}, {{ not: {{ path: inputs.z{at}, op: exists }} }}] }}")
        }))),
        ("many values at once", with_condition(&format!("{{ all: [{}] }}", lines(24, |at| {
            format!("{{ any: [{{ path: inputs.b{at}, value: true }}, {{ path: inputs.c{at}, value: false }}] }}, ")
        })))),
        ("a template with many ways", graph(&format!("    a: {{ type: return, output: \"${{{}state.x}}\" }}\n", "inputs.a || ".repeat(20_000)))),
        ("a template with many paths", graph(&format!("    a: {{ type: return, output: \"{}\" }}\n", "${inputs.a}".repeat(20_000)))),
        ("a path with many parts", graph(&format!("    a: {{ type: return, output: \"${{inputs{}}}\" }}\n", ".a".repeat(50_000)))),
        ("a template that is not closed", graph(&format!("    a: {{ type: return, output: \"{}\" }}\n", "${".repeat(50_000)))),
        ("a pattern that repeats repeats", with_condition("{ path: inputs.x, op: regex, value: \"((((a{1000}){1000}){1000}){1000})\" }")),
        ("a pattern that is nested", with_condition(&format!("{{ path: inputs.x, op: regex, value: \"{}\" }}", deep("(", ")", 20_000)))),
        ("a pattern of many classes", with_condition(&format!("{{ path: inputs.x, op: regex, value: '{}' }}", "\\p{L}".repeat(2_000)))),
        ("a pattern of an input", with_schema("{ type: string, pattern: \"(((a{100}){100}){100})\" }")),
        ("a long enumeration", with_schema(&format!("{{ enum: [{}] }}", lines(20_000, |at| format!("w{at}, "))))),
        ("a long duration", graph("    a: { action: { item_id: rye/bash, params: { command: ls } }, timeout: 99999999999999999999d }\n")),
        ("many unknown fields", graph(&format!("    a: {{ type: gate, {} }}\n", lines(5_000, |at| format!("nxt{at}: b, "))))),
        ("many edges", graph(&format!("    a:\n      type: gate\n      next:\n{}    b: {{ type: return }}\n", lines(60_000, |_| "      - { to: b, when: { path: inputs.x, value: 1 } }\n".to_owned())))),
        ("many edges of different values", graph(&format!("    a:\n      type: gate\n      next:\n{}    b: {{ type: return }}\n", lines(3_000, |at| format!("      - {{ to: b, when: {{ path: inputs.x, value: {at} }} }}\n"))))),
        ("many nodes in a row", graph(&lines(20_000, |at| format!("    {}: {{ type: gate, next: n{} }}\n", if at == 0 { "a".to_owned() } else { format!("n{at}") }, at + 1)))),
        ("many nodes that nobody reaches", graph(&format!("    a: {{ type: return }}\n{}", lines(20_000, |at| format!("    n{at}: {{ type: gate, next: n{} }}\n", at + 1))))),
        ("many keys", graph(&format!("    a:\n      type: gate\n      assign:\n{}      next: b\n    b: {{ type: return }}\n", lines(5_000, |at| format!("        k{at}: \"${{state.k{}}}\"\n", at.saturating_sub(1)))))),
        ("a key that holds itself", graph("    a: { type: gate, assign: { k: [\"${state.k}\", { k: \"${state.k}\" }] }, next: [{ to: a, when: { path: state.k, op: exists } }, { to: b }] }\n    b: { type: return }\n")),
        ("the same mistake many times", graph(&format!("    a:\n      type: gate\n      assign:\n{}", lines(5_000, |at| format!("        k{at}: \"${{state.missing}} ${{nothing}}\"\n"))))),
        ("names of all scripts", graph("    a: { type: gate, next: Ünïcödé ☃ 节点 }\n    Ünïcödé ☃ 节点: { type: return, output: \"${state.ключ}\" }\n")),
    ];
    let mut loops = String::new();
    for at in 0..400 {
        let name = if at == 0 { "a".to_owned() } else { format!("n{at}") };
        write!(
            loops,
            "    {name}:\n      type: gate\n      assign: {{ k{at}: \"${{state.k{} || state.k{}}}\" }}\n      next: [{{ to: n{}, when: {{ path: state.k{}, value: {at} }} }}, {{ to: n{} }}]\n",
            (at * 7) % 400,
            (at * 13) % 400,
            (at * 17) % 399 + 1,
            (at * 3) % 400,
            at % 399 + 1
        )
        .unwrap();
    }
    all.push(("loops in loops", graph(&loops)));
    all
}

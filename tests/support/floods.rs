//! Files with many mistakes, or with large amounts of anything.

const HEAD: &str = "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\npermissions: [rye.execute.tool.rye.bash]\n";

/// A kind of file, with `n` of its elements.
pub(crate) struct Flood {
    pub(crate) name: &'static str,
    /// The number of elements in the largest file that is tried.
    pub(crate) most: usize,
    pub(crate) text: fn(usize) -> String,
    /// The number of mistakes in a file with `n` elements, if it is known.
    pub(crate) mistakes: Option<fn(usize) -> usize>,
}

fn lines(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).map(line).collect()
}

fn nodes(start: &str, more: &str, nodes: String) -> String {
    format!("{HEAD}{more}config:\n  start: {start}\n  nodes:\n{nodes}    end: {{ type: return }}\n")
}

fn chain(n: usize, more: &str, body: impl Fn(usize) -> String) -> String {
    let next = |at: usize| if at + 1 < n { format!("n{}", at + 1) } else { "end".to_owned() };
    nodes("n0", more, lines(n, |at| format!("    n{at}: {{ {}, next: {} }}\n", body(at), next(at))))
}

/// Returns all kinds.
pub(crate) fn floods() -> Vec<Flood> {
    [mistakes(), keys(), conditions(), shapes()].into_iter().flatten().collect()
}

/// Mistakes, and constructs that look like one.
fn mistakes() -> Vec<Flood> {
    vec![
        Flood {
            name: "edges to nowhere",
            most: 60_000 - 2,
            text: |n| nodes("end", "", lines(n, |at| format!("    n{at}: {{ type: gate, next: x{at} }}\n"))),
            mistakes: Some(|n| n),
        },
        Flood {
            name: "misspelt state reads",
            most: 40_000,
            text: |n| {
                let outputs = lines(n, |at| format!("        o{at}: \"${{state.countr{at}}}\"\n"));
                format!(
                    "{HEAD}config:\n  start: a\n  state: {{ counter: 0 }}\n  nodes:\n    a:\n      type: return\n      output:\n{outputs}"
                )
            },
            mistakes: Some(|n| n),
        },
        Flood {
            name: "unknown fields",
            most: 100_000,
            text: |n| {
                let fields = lines(n, |at| format!("      filed{at}: 1\n"));
                format!("{HEAD}config:\n  start: a\n  nodes:\n    a:\n      type: return\n{fields}")
            },
            mistakes: Some(|n| n),
        },
        Flood {
            name: "keys twice",
            most: 60_000,
            text: |n| {
                let keys = lines(n + 1, |_| "    k: 1\n".to_owned());
                format!("{HEAD}config:\n  start: a\n  state:\n{keys}  nodes:\n    a: {{ type: return }}\n")
            },
            mistakes: Some(|n| n),
        },
        Flood {
            name: "words that readers disagree on",
            most: 60_000,
            text: |n| {
                let keys = lines(n, |at| format!("    k{at}: yes\n"));
                format!("{HEAD}config:\n  start: a\n  state:\n{keys}  nodes:\n    a: {{ type: return }}\n")
            },
            mistakes: Some(|n| n),
        },
        Flood {
            name: "calls without permission",
            most: 20_000,
            text: |n| chain(n, "", |at| format!("action: {{ item_id: t{at} }}")),
            mistakes: None,
        },
        Flood {
            name: "loop of nodes",
            most: 50_000,
            text: |n| {
                let all = lines(n, |at| format!("    n{at}: {{ type: gate, next: n{} }}\n", (at + 1) % n));
                format!("{HEAD}config:\n  start: n0\n  nodes:\n{all}")
            },
            mistakes: Some(|_| 1),
        },
        Flood {
            name: "nodes that nobody reaches",
            most: 50_000,
            text: |n| nodes("end", "", lines(n, |at| format!("    n{at}: {{ type: gate, next: end }}\n"))),
            mistakes: Some(|n| n),
        },
        Flood {
            name: "names that look alike",
            most: 20_000,
            text: |n| {
                let all =
                    lines(n, |at| format!("    do{at}ne: {{ type: return }}\n    dо{at}ne: {{ type: return }}\n"));
                format!("{HEAD}config:\n  start: do0ne\n  nodes:\n{all}")
            },
            mistakes: None,
        },
        Flood {
            name: "braces",
            most: 60_000,
            text: |n| nodes("a", "", format!("    a: {{ type: return, output: {{ a: \"{}\" }} }}\n", "{".repeat(n))),
            mistakes: None,
        },
    ]
}

/// Keys of the state.
fn keys() -> Vec<Flood> {
    vec![
        Flood {
            name: "keys, each in a node of its own",
            most: 20_000,
            text: |n| chain(n, "", |at| format!("type: gate, assign: {{ k{at}: {at} }}")),
            mistakes: None,
        },
        Flood {
            name: "keys that are not set",
            most: 20_000,
            text: |n| {
                let last = "    last: { type: gate, assign: { k: 1 }, next: end }\n";
                let chain = chain(n, "", |at| format!("type: gate, assign: {{ a{at}: \"${{state.k}}\" }}"));
                chain
                    .replace("    end: {", &format!("{last}    end: {{"))
                    .replace("next: end }\n    last", "next: last }\n    last")
            },
            mistakes: None,
        },
        Flood {
            name: "copies of copies",
            most: 10_000,
            text: |n| {
                let keys = lines(n + 1, |at| format!("    k{at}: null\n"));
                let chain = chain(n, "", |at| format!("type: gate, assign: {{ k{at}: \"${{state.k{}}}\" }}", at + 1));
                chain.replace("  nodes:\n", &format!("  state:\n{keys}  nodes:\n"))
            },
            mistakes: None,
        },
        Flood {
            name: "nodes in the reverse order",
            most: 20_000,
            text: |n| {
                let all = lines(n, |line| {
                    let at = n - 1 - line;
                    let next = if line > 0 { format!("n{}", at + 1) } else { "end".to_owned() };
                    let value = if at > 0 { format!("\"${{state.k{}}}\"", at - 1) } else { "1".to_owned() };
                    format!("    n{at}: {{ type: gate, assign: {{ k{at}: {value} }}, next: {next} }}\n")
                });
                nodes("n0", "", all)
            },
            mistakes: None,
        },
        Flood {
            name: "assignments of one node",
            most: 60_000,
            text: |n| {
                let assign = lines(n, |at| format!("        k{at}: {at}\n"));
                nodes("a", "", format!("    a:\n      type: gate\n      assign:\n{assign}      next: end\n"))
            },
            mistakes: None,
        },
        Flood {
            name: "paths of one expression",
            most: 40_000,
            text: |n| {
                let keys = lines(n, |at| format!("    k{at}: null\n"));
                let paths: Vec<String> = (0..n).map(|at| format!("state.k{at}")).collect();
                let output = format!("    a: {{ type: return, output: {{ o: \"${{{}}}\" }} }}\n", paths.join(" || "));
                nodes("a", "", output).replace("  nodes:\n", &format!("  state:\n{keys}  nodes:\n"))
            },
            mistakes: None,
        },
        Flood {
            name: "ends that return the state",
            most: 20_000,
            text: |n| {
                let schema = "config_schema: { type: object, properties: { s: { type: boolean } }, required: [s] }\n";
                let all = lines(n, |at| {
                    let to = if at + 1 < n { format!("n{}", at + 1) } else { "end".to_owned() };
                    format!(
                        "    n{at}: {{ type: gate, assign: {{ k{at}: 1 }}, next: [{{ to: {to}, when: {{ path: inputs.s, value: true }} }}, {{}}] }}\n"
                    )
                });
                nodes("n0", schema, all)
            },
            mistakes: None,
        },
    ]
}

/// Conditions.
fn conditions() -> Vec<Flood> {
    vec![
        Flood {
            name: "heavy patterns",
            most: 990,
            text: |n| {
                let edges = lines(n, |at| {
                    format!(
                        "        - {{ to: end, when: {{ path: inputs.s, op: regex, value: '\\pL{{1,170}}{at}' }} }}\n"
                    )
                });
                let schema = "config_schema: { type: object, properties: { s: { type: string } }, required: [s] }\n";
                nodes("a", schema, format!("    a:\n      type: gate\n      next:\n{edges}        - {{ to: end }}\n"))
            },
            mistakes: None,
        },
        Flood {
            name: "inputs, each tested",
            most: 20_000,
            text: |n| {
                let inputs = lines(n, |at| format!("    i{at}: {{ type: string }}\n"));
                let schema = format!("config_schema:\n  type: object\n  properties:\n{inputs}");
                let next = |at: usize| if at + 1 < n { format!("n{}", at + 1) } else { "end".to_owned() };
                let all = lines(n, |at| {
                    let (next, test) = (next(at), format!("{{ path: inputs.i{at}, op: exists }}"));
                    format!("    n{at}: {{ type: gate, next: [{{ to: {next}, when: {test} }}, {{ to: {next} }}] }}\n")
                });
                nodes("n0", &schema, all)
            },
            mistakes: None,
        },
        Flood {
            name: "a long condition",
            most: 40_000,
            text: |n| {
                let all = lines(n, |at| format!("              - {{ path: inputs.s, value: w{at} }}\n"));
                let schema = "config_schema: { type: object, properties: { s: { type: string } }, required: [s] }\n";
                let node = format!(
                    "    a:\n      type: gate\n      next:\n        - to: end\n          when:\n            any:\n{all}        - {{ to: end }}\n"
                );
                nodes("a", schema, node)
            },
            mistakes: None,
        },
        Flood {
            name: "words of an enum",
            most: 60_000,
            text: |n| {
                let words: Vec<String> = (0..n).map(|at| format!("w{at}")).collect();
                let schema = format!(
                    "config_schema: {{ type: object, properties: {{ s: {{ enum: [{}] }} }}, required: [s] }}\n",
                    words.join(", ")
                );
                nodes(
                    "a",
                    &schema,
                    "    a: { type: gate, next: [{ to: end, when: { path: inputs.s, value: w1 } }, { to: end }] }\n"
                        .into(),
                )
            },
            mistakes: None,
        },
        Flood {
            name: "edges with conditions",
            most: 30_000,
            text: |n| {
                let inputs = lines(1_000.min(n), |at| format!("    i{at}: {{ type: string }}\n"));
                let schema = format!("config_schema:\n  type: object\n  properties:\n{inputs}");
                let all = lines(n.div_ceil(1_000), |node| {
                    let edges = lines(1_000.min(n) - 1, |at| {
                        format!("        - {{ to: end, when: {{ path: inputs.i{at}, op: exists }} }}\n")
                    });
                    let to = if node + 1 < n.div_ceil(1_000) { format!("n{}", node + 1) } else { "end".to_owned() };
                    format!("    n{node}:\n      type: gate\n      next:\n{edges}        - {{ to: {to} }}\n")
                });
                nodes("n0", &schema, all)
            },
            mistakes: None,
        },
        Flood {
            name: "comparisons that all hold",
            most: 30_000,
            text: |n| {
                let inputs = lines(n, |at| format!("    i{at}: {{ type: string }}\n"));
                let schema = format!("config_schema:\n  type: object\n  properties:\n{inputs}");
                let all = lines(n, |at| format!("              - {{ path: inputs.i{at}, op: exists }}\n"));
                let edge =
                    format!("        - to: end\n          when:\n            all:\n{all}        - {{ to: end }}\n");
                nodes("a", &schema, format!("    a:\n      type: gate\n      next:\n{edge}"))
            },
            mistakes: None,
        },
        Flood {
            name: "hooks",
            most: 15_000,
            text: |n| {
                let hooks = lines(n, |at| {
                    format!(
                        "    - {{ event: error, condition: {{ path: node, value: n{at} }}, action: {{ abort: true }} }}\n"
                    )
                });
                format!("{HEAD}config:\n  start: a\n  hooks:\n{hooks}  nodes:\n    a: {{ type: return }}\n")
            },
            mistakes: None,
        },
    ]
}

/// Calls and loops.
fn shapes() -> Vec<Flood> {
    vec![
        Flood {
            name: "tools and permissions",
            most: 15_000,
            text: |n| {
                let permissions = lines(n, |at| format!("  - rye.execute.tool.t{at}\n"));
                let text = chain(n, "", |at| format!("action: {{ item_id: t{at} }}"));
                text.replace("permissions: [rye.execute.tool.rye.bash]\n", &format!("permissions:\n{permissions}"))
            },
            mistakes: None,
        },
        Flood {
            name: "lists gone over",
            most: 10_000,
            text: |n| {
                chain(n, "", |at| {
                    let action = "{ item_id: rye/bash, params: { command: \"echo\", env: { A: \"${it}\" } } }";
                    format!("type: foreach, over: [\"1\", \"2\"], as: it, action: {action}, collect: c{at}")
                })
            },
            mistakes: None,
        },
        Flood {
            name: "loops of two nodes",
            most: 20_000,
            text: |n| {
                let all = lines(n, |at| {
                    let (one, two, next) = (2 * at, 2 * at + 1, 2 * at + 2);
                    let to = if at + 1 < n { format!("n{next}") } else { "end".to_owned() };
                    let test = "{ path: visit.number, op: lt, value: 3 }";
                    format!(
                        "    n{one}: {{ type: gate, next: n{two} }}\n    n{two}: {{ type: gate, next: [{{ to: n{one}, when: {test} }}, {{ to: {to} }}] }}\n"
                    )
                });
                nodes("n0", "", all)
            },
            mistakes: None,
        },
        Flood {
            name: "a loop with many ways out",
            most: 25_000,
            text: |n| {
                let schema = "config_schema: { type: object, properties: { s: { type: boolean } }, required: [s] }\n";
                let all = lines(n, |at| {
                    let to = (at + 1) % n;
                    format!(
                        "    n{at}: {{ type: gate, next: [{{ to: end, when: {{ path: inputs.s, value: true }} }}, {{ to: n{to} }}] }}\n"
                    )
                });
                nodes("n0", schema, all)
            },
            mistakes: None,
        },
    ]
}

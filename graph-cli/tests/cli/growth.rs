//! `graph check` on files of any size: twice the text costs about twice the time, whatever the construct.

use std::process::Stdio;

use crate::place::Place;

/// The least time, in milliseconds, at which a growth is judged: below, the start of a process counts.
const NOISE: u64 = if cfg!(debug_assertions) { 400 } else { 40 };

/// How many times the time twice the text may cost.
const DOUBLED: f64 = 2.3;

struct Construct {
    name: &'static str,
    /// Makes a graph with that many of them.
    make: fn(usize) -> String,
}

fn head(more: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: test\n\
         permissions: [rye.execute.tool.rye.bash]\n{more}"
    )
}

/// A graph with these nodes, of which the first one is `n0`.
fn graph(nodes: &str) -> String {
    format!("{}config:\n  start: n0\n  nodes:\n{nodes}    done: {{ type: return }}\n", head(""))
}

fn each(count: usize, make: impl Fn(usize) -> String) -> String {
    (0..count).map(make).collect()
}

fn next(at: usize, count: usize) -> String {
    if at + 1 < count { format!("n{}", at + 1) } else { "done".to_owned() }
}

const CONSTRUCTS: &[Construct] = &[
    Construct {
        name: "nodes in a row",
        make: |n| graph(&each(n, |at| format!("    n{at}: {{ type: gate, next: {} }}\n", next(at, n)))),
    },
    Construct {
        name: "calls in a row that assign",
        make: |n| {
            graph(&each(n, |at| {
                format!(
                    "    n{at}:\n      action: {{ item_id: rye/bash, params: {{ command: \"echo $V\", env: {{ V: a }} }} }}\n      assign: {{ k{at}: \"${{result.stdout}}\" }}\n      next: {}\n",
                    next(at, n)
                )
            }))
        },
    },
    Construct {
        name: "nested fan-outs",
        make: |n| {
            let fans = each(n, |at| {
                let inner = if at + 1 < n { format!("n{}", at + 1) } else { "leaf".to_owned() };
                format!(
                    "    n{at}: {{ type: gate, next: {{ all: [{{ to: {inner} }}, {{ to: b{at} }}] }} }}\n    b{at}: {{ type: gate, next: j{at} }}\n"
                )
            });
            let joins = each(n, |at| {
                let from = if at + 1 < n { format!("j{}", at + 1) } else { "leaf".to_owned() };
                let to = if at == 0 { "done".to_owned() } else { format!("j{}", at - 1) };
                format!("    j{at}: {{ type: gate, waits_for: [{from}, b{at}], next: {to} }}\n")
            });
            graph(&format!("{fans}    leaf: {{ type: gate, next: j{} }}\n{joins}", n - 1))
        },
    },
    Construct {
        name: "fan-outs in a row",
        make: |n| {
            graph(&each(n, |at| {
                format!(
                    "    n{at}: {{ type: gate, next: {{ all: [{{ to: a{at} }}, {{ to: b{at} }}] }} }}\n    a{at}: {{ type: gate, next: j{at} }}\n    b{at}: {{ type: gate, next: j{at} }}\n    j{at}: {{ type: gate, waits_for: [a{at}, b{at}], next: {} }}\n",
                    next(at, n)
                )
            }))
        },
    },
    Construct {
        name: "branches of one fan-out",
        make: |n| {
            let edges = each(n, |at| format!("{{ to: b{at} }}, "));
            let names = each(n, |at| format!("b{at}, "));
            let branches = each(n, |at| format!("    b{at}: {{ type: gate, next: j }}\n"));
            graph(&format!(
                "    n0: {{ type: gate, next: {{ all: [{edges}] }} }}\n{branches}    j: {{ type: gate, waits_for: [{names}], next: done }}\n"
            ))
        },
    },
    Construct {
        name: "fan-outs in the branches of one",
        make: |n| {
            let edges = each(n, |at| format!("{{ to: f{at} }}, "));
            let names = each(n, |at| format!("j{at}, "));
            let inner = each(n, |at| {
                format!(
                    "    f{at}: {{ type: gate, next: {{ all: [{{ to: a{at} }}, {{ to: b{at} }}] }} }}\n    a{at}: {{ type: gate, next: j{at} }}\n    b{at}: {{ type: gate, next: j{at} }}\n    j{at}: {{ type: gate, waits_for: [a{at}, b{at}], next: j }}\n"
                )
            });
            graph(&format!(
                "    n0: {{ type: gate, next: {{ all: [{edges}] }} }}\n{inner}    j: {{ type: gate, waits_for: [{names}], next: done }}\n"
            ))
        },
    },
    Construct {
        name: "partial joins of one fan-out",
        make: |n| {
            let edges = each(n, |at| format!("{{ to: a{at} }}, {{ to: b{at} }}, "));
            let names = each(n, |at| format!("p{at}, "));
            let inner = each(n, |at| {
                format!(
                    "    a{at}: {{ type: gate, next: p{at} }}\n    b{at}: {{ type: gate, next: p{at} }}\n    p{at}: {{ type: gate, waits_for: [a{at}, b{at}], next: j }}\n"
                )
            });
            graph(&format!(
                "    n0: {{ type: gate, next: {{ all: [{edges}] }} }}\n{inner}    j: {{ type: gate, waits_for: [{names}], next: done }}\n"
            ))
        },
    },
    Construct {
        name: "lists in lists",
        make: |n| {
            let fans = each(n, |at| {
                let inner = if at + 1 < n { format!("n{}", at + 1) } else { "leaf".to_owned() };
                format!("    n{at}: {{ type: gate, next: {{ over: [1, 2], as: x{at}, to: {inner} }} }}\n")
            });
            let joins = each(n, |at| {
                let from = if at + 1 < n { format!("j{}", at + 1) } else { "leaf".to_owned() };
                let to = if at == 0 { "done".to_owned() } else { format!("j{}", at - 1) };
                format!("    j{at}: {{ type: gate, waits_for: [{from}], next: {to} }}\n")
            });
            graph(&format!("{fans}    leaf: {{ type: gate, next: j{} }}\n{joins}", n - 1))
        },
    },
    Construct {
        name: "edges with conditions",
        make: |n| {
            let edges = each(n, |at| format!("{{ when: {{ path: inputs.a, op: eq, value: {at} }}, to: done }}, "));
            format!(
                "{}config_schema: {{ type: object, properties: {{ a: {{ type: integer }} }}, required: [a] }}\nconfig:\n  start: n0\n  nodes:\n    n0: {{ type: gate, next: [{edges}{{ to: done }}] }}\n    done: {{ type: return }}\n",
                head("")
            )
        },
    },
    Construct {
        name: "nodes with two edges that meet",
        make: |n| {
            format!(
                "{}config_schema: {{ type: object, properties: {{ a: {{ type: integer }} }}, required: [a] }}\nconfig:\n  start: n0\n  nodes:\n{}    done: {{ type: return }}\n",
                head(""),
                each(n, |at| format!(
                    "    n{at}: {{ type: gate, next: [{{ when: {{ path: inputs.a, op: eq, value: {at} }}, to: a{at} }}, {{ to: b{at} }}] }}\n    a{at}: {{ type: gate, assign: {{ k{at}: 1 }}, next: {0} }}\n    b{at}: {{ type: gate, assign: {{ k{at}: 2 }}, next: {0} }}\n",
                    next(at, n)
                ))
            )
        },
    },
    Construct {
        name: "loops in each other",
        make: |n| {
            graph(&each(n, |at| {
                format!(
                    "    n{at}: {{ type: gate, next: [{{ when: {{ path: state.k, op: eq, value: {at} }}, to: n0 }}, {{ to: {} }}] }}\n",
                    next(at, n)
                )
            }))
        },
    },
    Construct {
        name: "parts of a condition",
        make: |n| {
            let parts = each(n, |at| format!("{{ path: state.k{at}, op: eq, value: 1 }}, "));
            graph(&format!(
                "    n0: {{ type: gate, next: [{{ when: {{ any: [{parts}] }}, to: done }}, {{ to: done }}] }}\n"
            ))
        },
    },
    Construct {
        name: "conditions in conditions",
        make: |n| {
            let (open, close) = ("{ not: ".repeat(n), " }".repeat(n));
            graph(&format!(
                "    n0: {{ type: gate, next: [{{ when: {open}{{ path: state.k, op: exists }}{close}, to: done }}, {{ to: done }}] }}\n"
            ))
        },
    },
    Construct {
        name: "parts of a template",
        make: |n| {
            graph(&format!(
                "    n0: {{ type: gate, assign: {{ k: \"{}\" }}, next: done }}\n",
                each(n, |at| format!("a${{inputs.x{at}}}"))
            ))
        },
    },
    Construct {
        name: "fallbacks of a template",
        make: |n| {
            graph(&format!(
                "    n0: {{ type: gate, assign: {{ k: \"${{{}inputs.z}}\" }}, next: done }}\n",
                each(n, |at| format!("inputs.x{at} || "))
            ))
        },
    },
    Construct {
        name: "segments of a path",
        make: |n| {
            graph(&format!(
                "    n0: {{ type: gate, assign: {{ k: \"${{inputs{}}}\" }}, next: done }}\n",
                ".a".repeat(n)
            ))
        },
    },
    Construct {
        name: "open templates",
        make: |n| graph(&format!("    n0: {{ type: gate, assign: {{ k: \"{}\" }}, next: done }}\n", "${".repeat(n))),
    },
    Construct {
        name: "references in an id",
        make: |n| {
            graph(&format!(
                "    n0:\n      action: {{ item_id: \"rye/{}\" }}\n      next: done\n",
                each(n, |at| format!("{{input:x{at}}}"))
            ))
        },
    },
    Construct {
        name: "assigned keys",
        make: |n| {
            graph(&format!(
                "    n0: {{ type: gate, assign: {{ {} }}, next: done }}\n",
                each(n, |at| format!("k{at}: {at}, "))
            ))
        },
    },
    Construct {
        name: "keys that are read",
        make: |n| {
            let state = each(n, |at| format!("k{at}: {at}, "));
            let output = each(n, |at| format!("o{at}: \"${{state.k{at}}}\", "));
            format!(
                "{}config:\n  start: done\n  state: {{ {state} }}\n  nodes:\n    done: {{ type: return, output: {{ {output} }} }}\n",
                head("")
            )
        },
    },
    Construct {
        name: "properties of a schema",
        make: |n| {
            format!(
                "{}config_schema: {{ type: object, properties: {{ {} }} }}\nconfig:\n  start: done\n  nodes:\n    done: {{ type: return }}\n",
                head(""),
                each(n, |at| format!("p{at}: {{ type: string, maxLength: 5 }}, "))
            )
        },
    },
    Construct {
        name: "schemas in schemas",
        make: |n| {
            format!(
                "{}config_schema: {}{{ type: string }}{}\nconfig:\n  start: done\n  nodes:\n    done: {{ type: return }}\n",
                head(""),
                "{ type: object, properties: { a: ".repeat(n),
                " } }".repeat(n)
            )
        },
    },
    Construct {
        name: "words of an enum",
        make: |n| {
            format!(
                "{}config_schema: {{ type: object, properties: {{ a: {{ enum: [{}] }} }}, required: [a] }}\nconfig:\n  start: n0\n  nodes:\n    n0: {{ type: gate, next: {{ by: inputs.a, to: {{ {} }} }} }}\n    done: {{ type: return }}\n",
                head(""),
                each(n, |at| format!("w{at}, ")),
                each(n, |at| format!("w{at}: done, "))
            )
        },
    },
    Construct {
        name: "permissions",
        make: |n| {
            format!(
                "{}config:\n  start: done\n  nodes:\n    done: {{ type: return }}\n",
                head("").replace("[rye", &format!("[{}rye", each(n, |at| format!("rye.execute.tool.t{at}, "))))
            )
        },
    },
    Construct {
        name: "variables of a command",
        make: |n| {
            let env = each(n, |at| format!("V{at}: \"${{inputs.x{at}}}\", "));
            let command = each(n, |at| format!("echo \\\"$V{at}\\\"; "));
            graph(&format!(
                "    n0:\n      action: {{ item_id: rye/bash, params: {{ command: \"{command}\", env: {{ {env} }} }} }}\n      next: done\n"
            ))
        },
    },
    Construct {
        name: "words of a program",
        make: |n| {
            graph(&format!(
                "    n0:\n      action: {{ item_id: rye/exec, params: {{ program: docker, args: [{}] }} }}\n      next: done\n",
                each(n, |_| "sh, \"${inputs.x}\", ".to_owned())
            ))
        },
    },
    Construct {
        name: "questions in a row",
        make: |n| {
            graph(&each(n, |at| {
                format!(
                    "    n{at}:\n      type: interrupt\n      payload: {{ a: {at} }}\n      result_schema: {{ type: object, properties: {{ ok: {{ type: boolean }} }}, required: [ok] }}\n      next: {}\n",
                    next(at, n)
                )
            }))
        },
    },
    Construct {
        name: "unknown targets",
        make: |n| graph(&each(n, |at| format!("    n{at}: {{ type: gate, next: m{at} }}\n"))),
    },
    Construct {
        name: "unknown fields",
        make: |n| graph(&format!("    n0: {{ type: gate, next: done, {} }}\n", each(n, |at| format!("f{at}: 1, ")))),
    },
    Construct {
        name: "equal keys",
        make: |n| graph(&format!("    n0: {{ type: gate, next: done, assign: {{ {} }} }}\n", "a: 1, ".repeat(n))),
    },
    Construct {
        name: "unreachable nodes",
        make: |n| {
            graph(&format!(
                "    n0: {{ type: gate, next: done }}\n{}",
                each(n, |at| format!("    u{at}: {{ type: gate, next: u{} }}\n", (at + 1) % n))
            ))
        },
    },
    Construct {
        name: "lists in lists of YAML",
        make: |n| format!("{}extra: {}{}\n", head(""), "[".repeat(n), "]".repeat(n)),
    },
    Construct { name: "open lists of YAML", make: |n| format!("{}extra: {}\n", head(""), "[".repeat(n)) },
    Construct { name: "open mappings of YAML", make: |n| format!("{}extra: {}\n", head(""), "{a: ".repeat(n)) },
    Construct { name: "dashes of YAML", make: |n| format!("{}extra:\n  {}\n", head(""), "- ".repeat(n)) },
    Construct {
        name: "elements of YAML",
        make: |n| format!("{}extra: [{}]\n", head(""), each(n, |at| format!("{at}, "))),
    },
    Construct {
        name: "anchors of YAML",
        make: |n| format!("{}extra: [{}]\n", head(""), each(n, |at| format!("&a{at} [*a{}], ", at.saturating_sub(1)))),
    },
    Construct {
        name: "escapes of YAML",
        make: |n| format!("{}description: \"{}\"\n", head(""), "\\u202e\\n".repeat(n)),
    },
    Construct { name: "a long line of YAML", make: |n| format!("{}description: {}\n", head(""), "a b ".repeat(n)) },
    Construct { name: "a folded text of YAML", make: |n| format!("{}description: >\n{}", head(""), "  a\n".repeat(n)) },
    Construct { name: "comments of YAML", make: |n| format!("{}{}", head(""), "# a\n".repeat(n)) },
    Construct { name: "quotes of YAML", make: |n| format!("{}description: '{}'\n", head(""), "''".repeat(n)) },
    Construct {
        name: "hidden characters",
        make: |n| format!("{}description: \"{}\"\n", head(""), "\u{202e}".repeat(n)),
    },
    Construct { name: "keys of YAML", make: |n| format!("{}{}", head(""), each(n, |at| format!("k{at}: 1\n"))) },
    Construct { name: "complex keys of YAML", make: |n| format!("{}extra:\n{}", head(""), "  ? a\n  : b\n".repeat(n)) },
    Construct { name: "documents of YAML", make: |n| format!("{}{}", head(""), "---\na: 1\n".repeat(n)) },
    Construct { name: "tags of YAML", make: |n| format!("{}extra: [{}]\n", head(""), "!!str a, ".repeat(n)) },
];

/// Returns the graph of a construct that has about this many bytes.
fn sized(construct: &Construct, size: usize) -> String {
    let few = (construct.make)(8).len();
    let more = (construct.make)(16).len();
    (construct.make)((size * 8 / (more - few).max(1)).max(2))
}

/// Returns the processor times of two texts. If the second one is `most` times the first, the least of several times counts: other programs
/// make a process slower, and never faster.
fn times(place: &Place, small: &str, large: &str, most: f64) -> (u64, u64) {
    let (mut least, mut greatest) = (milliseconds(place, small), milliseconds(place, large));
    for _ in 0..5 {
        if !is_steep((least, greatest), most) {
            break;
        }
        least = least.min(milliseconds(place, small));
        greatest = greatest.min(milliseconds(place, large));
    }
    (least, greatest)
}

/// Whether the time of the larger text is more than `most` times that of the smaller one.
fn is_steep((small, large): (u64, u64), most: f64) -> bool {
    large > NOISE && large as f64 > small.max(NOISE / 10) as f64 * most
}

/// Returns the processor time that `graph check` uses for a text, in milliseconds.
fn milliseconds(place: &Place, text: &str) -> u64 {
    place.write("graphs/g.yaml", text);
    processor_time(place, "check graphs/g.yaml")
}

/// Returns the processor time that a command uses, in milliseconds.
fn processor_time(place: &Place, arguments: &str) -> u64 {
    let script = format!("\"$0\" {arguments} > out 2> err; echo $? > code; times");
    let graph = env!("CARGO_BIN_EXE_graph");
    let output = place.command_of("bash", &["-c", &script, graph]).stdin(Stdio::null()).output().unwrap();
    let code = place.read("code");
    assert!(matches!(code.trim(), "0" | "1"), "ended with {code}: {}", place.read("err"));
    let text = String::from_utf8(output.stdout).unwrap();
    // The second line has the times of the programs that the shell started: `0m1.234s 0m0.050s`.
    let time = |word: &str| {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<u64>().unwrap() * 60_000 + (seconds.parse::<f64>().unwrap() * 1_000.0) as u64
    };
    text.lines().nth(1).unwrap().split_whitespace().map(time).sum()
}

/// `GROWTH=65536` in a release build is the size of the larger file, 8,192 bytes if not set.
#[test]
fn twice_the_text_costs_about_twice_the_time() {
    let size: usize = std::env::var("GROWTH").map_or(8_192, |text| text.parse().unwrap());
    let only = std::env::var("CONSTRUCT").unwrap_or_default();
    let place = Place::new();
    let mut wrong = Vec::new();
    for construct in CONSTRUCTS.iter().filter(|construct| construct.name.contains(&only)) {
        let [small, large] = [size / 4, size].map(|size| sized(construct, size));
        let (small, large) = times(&place, &small, &large, DOUBLED * DOUBLED);
        println!("{small:>6} {large:>6}  {}", construct.name);
        let err = place.read("err");
        let is_refused = ["this command cannot be read", "too many combinations"].iter().any(|text| err.contains(text));
        // A text that is refused for its work has cost what a text of its length may cost.
        if is_steep((small, large), DOUBLED * DOUBLED) && !is_refused {
            wrong.push(format!("{}: {small} and {large} ms", construct.name));
        }
        if !cfg!(debug_assertions) && large > 1_000 {
            wrong.push(format!("{}: {large} ms", construct.name));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn eight_hundred_nested_fan_outs_are_checked() {
    let nested = CONSTRUCTS.iter().find(|construct| construct.name == "nested fan-outs").unwrap();
    let place = Place::new();
    let [half, whole] = [400, 800].map(nested.make);
    let times = times(&place, &half, &whole, DOUBLED);
    let err = place.read("err");
    let codes: Vec<&str> = err.match_indices("[G0").map(|(at, _)| &err[at + 1..at + 6]).collect();
    assert!(codes.iter().all(|code| matches!(*code, "G0010" | "G0171")), "{codes:?}");
    assert!(!is_steep(times, DOUBLED), "{times:?} ms");
}

#[test]
fn joins_that_know_too_many_branches_are_refused() {
    let partial = CONSTRUCTS.iter().find(|construct| construct.name == "partial joins of one fan-out").unwrap();
    let place = Place::new();
    let is_refused = |count| {
        milliseconds(&place, &(partial.make)(count));
        place.read("err").contains("can be visited in too many combinations of branches")
    };
    assert!(!is_refused(40));
    assert!(is_refused(300));
}

/// A graph that counts the branches of a fan-out for each element of a list.
const QUORUMS: &str = r#"permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { list: { type: array, items: { type: integer } } }, required: [list] }
config:
  start: begin
  max_steps: 100000
  nodes:
    begin: { type: gate, next: { over: "${inputs.list}", as: one, to: fan } }
    fan: { type: gate, next: { all: [{ to: a }, { to: b }, { to: c }] } }
    a: { type: gate, next: d }
    b: { type: gate, next: met }
    c: { type: gate, next: e }
    d: { type: gate, next: met }
    e: { type: gate, next: f }
    f: { type: gate, next: g }
    g: { type: gate, next: met }
    met: { type: gate, waits_for: { of: [b, d, g], need: 2, rest: cancel }, next: end }
    end: { type: return, waits_for: met }
"#;

/// A step with many open joins looks at all of them for a few of them, and not for each one that is left.
#[test]
fn open_joins_cost_less_than_the_cube_of_their_number() {
    let place = Place::with_graph(QUORUMS);
    let measure = |count: usize| {
        let list: Vec<usize> = (0..count).collect();
        place.write("in.json", &serde_json::json!({ "list": list }).to_string());
        let time = processor_time(&place, "run graphs/g.yaml --quiet --json - < in.json");
        assert!(place.read("out").contains("\"completed\""), "{}{}", place.read("out"), place.read("err"));
        time
    };
    let (small, large) = (measure(100), measure(400));
    // 16 times by the square, 64 times by the cube.
    assert!(large <= small.max(20) * 30, "{small} and {large} ms");
}

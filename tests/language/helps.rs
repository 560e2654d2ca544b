//! Helps are right: the code in a help is written into the graph, and the graph then has no mistake.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use graph_compiler::diagnostic::Diagnostic;
use graph_compiler::fix::apply;
use graph_compiler::project::Compilation;

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

const CORRECTIONS: &[Correction] = &[
    Correction {
        code: "G0110",
        graph: "config: { start: a, nodes: { a: { type: gate, next: { by: \"${inputs.kind}\", to: { x: b, z: b } } }, b: { type: return } } }",
        wrong: "by: \"${inputs.kind}\"",
        right: "HELP",
        holds: "by:",
    },
    Correction {
        code: "G0110",
        graph: "config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: { path: \"${inputs.kind}\", value: x } }, { to: b }] }, b: { type: return } } }",
        wrong: "path: \"${inputs.kind}\"",
        right: "HELP",
        holds: "path:",
    },
    Correction {
        code: "G0030",
        graph: "config: { start: a, nodes: { a: { type: gate, next: [{ to: b, when: \"${inputs.count} > 3\" }, { to: c }] }, b: { type: return }, c: { type: return } } }",
        wrong: "\"${inputs.count} > 3\"",
        right: "HELP",
        holds: "path:",
    },
    Correction {
        code: "G0030",
        graph: "config: { start: a, signals: { paid: { type: object, properties: { ok: boolean }, required: [ok] } }, nodes: { a: { type: wait, signals: [paid], next: [{ to: b, when: { path: result.paid.ok, value: true } }, { to: c }] }, b: { type: return }, c: { type: return } } }",
        wrong: "ok: boolean",
        right: "ok: HELP",
        holds: "type:",
    },
    Correction {
        code: "G0030",
        graph: "config: { start: a, nodes: { a: { type: interrupt, payload: { q: 1 }, result_schema: { enum: [yes_, no_] }, answered_by: treasury, timeout: 1d, on_timeout: c, next: { by: result, to: { yes_: b, no_: c } } }, b: { type: return }, c: { type: return } } }",
        wrong: "answered_by: treasury",
        right: "HELP",
        holds: "answered_by:",
    },
    Correction {
        code: "G0030",
        graph: "config: { start: a, channels: [lines], nodes: { a: { type: gate, assign: { lines: 1 }, next: b }, b: { type: return, output: { lines: \"${state.lines}\" } } } }",
        wrong: "channels: [lines]",
        right: "HELP",
        holds: "channels:",
    },
    Correction {
        code: "G0205",
        graph: "config: { start: a, nodes: { a: { type: gate, next: { all: [{ to: b }, { to: c }] } }, b: { action: { item_id: t/tool }, next: d }, c: { action: { item_id: t/tool }, next: d }, d: { type: return } } }",
        wrong: "d: { type: return }",
        right: "d: { type: return, HELP }",
        holds: "waits_for:",
    },
    Correction {
        code: "G0207",
        graph: "config: { start: a, nodes: { a: { type: gate, next: { over: [1, 2], as: e, to: b } }, b: { action: { item_id: t/tool }, assign: { lines: \"${e}\" }, next: c }, c: { type: return, waits_for: b, output: { lines: \"${state.lines}\" } } } }",
        wrong: "config: { start: a,",
        right: "config: { start: a, HELP,",
        holds: "channels:",
    },
    Correction {
        code: "G0020",
        graph: "config: { start: a, nodes: { a: { type: return, output: { kind: ${inputs.kind} } } } }",
        wrong: "kind: ${inputs.kind}",
        right: "kind: HELP",
        holds: "inputs.kind",
    },
    Correction {
        code: "G0131",
        graph: "config: { start: a, nodes: { a: { action: { item_id: u/tooll }, next: b }, b: { type: return } } }",
        wrong: "u/tooll",
        right: "HELP",
        holds: "u/tool",
    },
];

fn tree_of_corrections() -> Tree {
    let tree = Tree::new();
    for name in ["tools/t/tool.yaml", "tools/u/tool.yaml"] {
        tree.write(
            name,
            sign("version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: {} }\n"),
        );
    }
    tree
}

impl Correction {
    fn text(&self) -> String {
        format!(
            "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
             permissions: [rye.execute.tool.t.tool, rye.execute.tool.u.tool]\n\
             config_schema: {{ type: object, properties: {{ kind: {{ enum: [x, z] }}, count: {{ type: integer }} }}, required: [kind, count] }}\n{}\n",
            self.graph
        )
    }

    /// Returns the text with the code of the help written into it.
    fn corrected(&self, found: &Diagnostic) -> Result<String, String> {
        let help = found.help.clone().unwrap_or_default();
        let mut codes = help.split('`').skip(1).step_by(2);
        let code = codes.find(|code| code.contains(self.holds)).ok_or_else(|| format!("no code in `{help}`"))?;
        let text = self.text();
        assert_eq!(text.matches(self.wrong).count(), 1, "{text}");
        Ok(text.replace(self.wrong, &self.right.replace("HELP", code)))
    }
}

fn errors(compilation: &Compilation) -> Vec<&Diagnostic> {
    compilation.diagnostics.iter().filter(|one| one.severity.name() == "error").collect()
}

#[test]
fn the_code_in_a_help_corrects_the_graph() {
    let tree = tree_of_corrections();
    let project = tree.project();
    let mut problems = String::new();
    for (at, correction) in CORRECTIONS.iter().enumerate() {
        tree.write("corrected.yaml", sign(&correction.text()));
        let wrong = project.compile(&tree.path("corrected.yaml"));
        let found = errors(&wrong);
        let [only] = found.as_slice() else {
            let all: String = found.iter().map(|one| one.render() + "\n").collect();
            writeln!(problems, "{at}, {}: one error is expected\n{all}", correction.code).unwrap();
            continue;
        };
        if only.code.id != correction.code {
            writeln!(problems, "{at}: {} and not {}", only.render(), correction.code).unwrap();
        }
        match correction.corrected(only) {
            Ok(text) => {
                tree.write("corrected.yaml", sign(&text));
                for one in errors(&project.compile(&tree.path("corrected.yaml"))) {
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

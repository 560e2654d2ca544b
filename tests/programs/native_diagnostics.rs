//! Cargo shows a graph's mistakes as the compiler's own errors, in the YAML file where they are, and shows nothing
//! else.
//!
//! Cargo does not promise how it forwards the text on rustc's stderr. If a new version changes that, these tests show
//! it, and only the `compile_error!`s of `tests/ui` remain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::support::{key, key_file, sign};
use graph_signing::KeyFile;
use serde_json::Value;

const CONTRACT: &str = "\
version: \"1.0.0\"
tool_type: rust
config_schema:
  type: object
  properties:
    card: { type: string }
    price_cents: { type: integer }
  required: [card, price_cents]
result_schema:
  type: object
  properties:
    receipt: { type: string }
  required: [receipt]
";

const GRAPH: &str = "\
version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.shop.charge_card]
config_schema:
  type: object
  properties:
    card: { type: string }
  required: [card]
config:
  start: charge_card
  nodes:
    charge_card:
      action:
        item_id: shop/charge_card
        params: { card: \"${inputs.card}\", price_cents: 100 }
      assign: { receipt: \"${result.receipt}\" }
      next: delivered
    delivered:
      type: return
      output: { receipt: \"${state.receipt}\" }
";

/// A program that uses everything that a graph generates, so that an error in that code would be seen.
const PROGRAM: &str = "
use graph_runtime::{ActionError, Call};

struct Shop;

impl shop_charge_card::Tool for Shop {
    async fn shop_charge_card(
        &self,
        _: &Call,
        params: shop_charge_card::Params,
    ) -> Result<shop_charge_card::Output, ActionError> {
        Ok(shop_charge_card::Output { receipt: format!(\"{} {}\", params.card, params.price_cents) })
    }
}

fn main() {
    let _machine = Order::new(Shop);
    let _inputs = order::Inputs { card: \"4711\".into() };
}
";

/// A package in the target directory, so that its dependencies are compiled once, and not in each test run.
pub(crate) struct Package {
    directory: PathBuf,
    target: PathBuf,
}

/// The result of a build.
pub(crate) struct Build {
    passed: bool,
    /// The code, the message and the text for people of each error and warning.
    pub(crate) messages: Vec<[String; 3]>,
}

impl Package {
    pub(crate) fn new(name: &str, program: &str, build_script: Option<&str>) -> Self {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tests/native");
        let package = Self { directory: target.join("packages").join(name), target };
        if package.directory.exists() {
            fs::remove_dir_all(&package.directory).unwrap();
        }
        let repository_text = repository.to_str().unwrap();
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
             graph-runtime = {{ package = 'state-graph-runtime', path = '{repository_text}/graph-runtime', default-features = false, features = [\"macros\"] }}\n\n\
             [build-dependencies]\ngraph-compiler = {{ package = 'state-graph-compiler', path = '{repository_text}/graph-compiler' }}\n",
        );
        package.write("Cargo.toml", &manifest);
        package.write("Cargo.lock", &fs::read_to_string(repository.join("Cargo.lock")).unwrap());
        package.write("src/main.rs", program);
        if let Some(text) = build_script {
            package.write("build.rs", text);
        }
        let (key, text) = key_file();
        package.write(&format!("graphs/{key}"), &text);
        package.write("graphs/tools/shop/charge_card.yaml", &sign(CONTRACT));
        package
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn cargo(&self, arguments: &[&str], plain: &str) -> (bool, String, String) {
        self.cargo_verb("check", arguments, plain)
    }

    fn cargo_verb(&self, verb: &str, arguments: &[&str], plain: &str) -> (bool, String, String) {
        let output = Command::new(env!("CARGO"))
            .current_dir(&self.directory)
            .args([verb, "--offline", "--quiet"])
            .args(arguments)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_TERM_COLOR", "never")
            .env_remove("RUSTFLAGS")
            .env("GRAPH_PLAIN_DIAGNOSTICS", plain)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    /// Builds, and reads the messages as an editor does.
    pub(crate) fn build(&self) -> Build {
        let (passed, stdout, stderr) = self.cargo(&["--message-format=json"], "");
        let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let said = lines.iter().filter(|line| line["reason"] == "compiler-message").map(|line| &line["message"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let messages: Vec<[String; 3]> = said
            .map(|message| [&message["code"]["code"], &message["message"], &message["rendered"]].map(text))
            .collect();
        assert!(passed || !messages.is_empty(), "{stderr}");
        Build { passed, messages }
    }

    /// Replaces a part of a file.
    fn change(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.directory.join(name)).unwrap();
        assert!(text.contains(from), "{from}");
        self.write(name, &text.replace(from, to));
    }

    /// Asserts that `cargo VERB` reports nothing for the package.
    #[track_caller]
    fn is_silent(&self, verb: &str) {
        let (passed, stdout, stderr) = self.cargo_verb(verb, &[], "");
        assert!(passed && stderr.is_empty(), "{stdout}{stderr}");
    }

    /// Builds, and returns the text that a person sees in a terminal.
    fn shown(&self) -> String {
        self.cargo(&[], "").2
    }

    /// As [`Package::shown`], if cargo does not treat errors as rustc's own.
    fn shown_plainly(&self) -> String {
        self.cargo(&[], "1").2
    }

    /// Writes the signed graph with some changes; returns its text.
    fn graph(&self, changes: &[(&str, &str)]) -> String {
        let text = changes.iter().fold(GRAPH.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let signed = sign(&text);
        self.write("graphs/order.yaml", &signed);
        signed
    }
}

impl Build {
    /// Asserts that there are errors with these codes, the error that counts them, and nothing else.
    #[track_caller]
    fn fails_with(&self, codes: &[&str]) {
        let rendered: String = self.messages.iter().map(|[.., rendered]| rendered.as_str()).collect();
        let found = self.messages.iter().map(|[code, ..]| code.as_str());
        let own: Vec<&str> = found.filter(|code| code.starts_with('G')).collect();
        assert_eq!(own, codes, "{rendered}");
        // `error: the graph has 3 errors, shown above`, and rustc's own lines about the end of the build.
        let others = || self.messages.iter().filter(|[code, ..]| !code.starts_with('G'));
        let known = |message: &str| {
            message.ends_with("shown above")
                || message.starts_with("aborting due to")
                || message.starts_with("For more information about")
        };
        assert!(others().all(|[_, message, _]| known(message)) && !self.passed, "{rendered}");
    }

    /// Asserts that there are warnings with these codes, and nothing else.
    #[track_caller]
    fn warns_with(&self, codes: &[&str]) {
        let found: Vec<&str> = self.messages.iter().map(|[code, ..]| code.as_str()).collect();
        assert_eq!(found, codes, "{:?}", self.messages);
        let texts = self.messages.iter().map(|[.., rendered]| rendered);
        assert!(self.passed && texts.into_iter().all(|text| text.starts_with("warning[")), "{:?}", self.messages);
    }

    #[track_caller]
    fn passes(&self) {
        assert!(self.passed && self.messages.is_empty(), "{:?}", self.messages);
    }
}

/// Returns the place of a text in the form that messages use.
fn place(graph: &str, text: &str) -> String {
    let at = graph.find(text).unwrap();
    let line = graph[..at].matches('\n').count() + 1;
    format!("--> graphs/order.yaml:{line}:{}", at - graph[..at].rfind('\n').map_or(0, |newline| newline + 1) + 1)
}

/// Goes through the life of a graph: one mistake, several mistakes, an unsigned change, everything corrected, a mistake
/// again, another contract, a revoked key.
fn goes_through_mistakes_to_a_program(package: &Package) {
    let slip = ("next: delivered", "next: delivred");
    let graph = package.graph(&[slip]);
    package.build().fails_with(&["G0102"]);
    let shown = package.shown();
    let title = "error[G0102]: node `charge_card` sends the run to `delivred`, which does not exist";
    for part in [title, &place(&graph, "delivred"), "next: delivred\n", "= help: did you mean `delivered`?"] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    let shown = package.shown_plainly();
    let title = "error: [G0102] node `charge_card` sends the run to `delivred`, which does not exist";
    for part in [title, &place(&graph, "delivred"), "= help: did you mean `delivered`?"] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    let errors = shown.lines().filter(|line| line.starts_with("error"));
    assert_eq!(errors.count(), 2, "this one, and cargo's that it could not compile:\n{shown}");

    let graph =
        package.graph(&[slip, ("result.receipt", "result.recipt"), ("price_cents: 100", "price_cents: \"100\"")]);
    let build = package.build();
    build.fails_with(&["G0122", "G0117", "G0102"]);
    for (message, text) in build.messages.iter().zip(["\"100\"", "result.recipt", "delivred"]) {
        assert!(message[2].contains(&place(&graph, text)), "{}", message[2]);
    }

    let graph = package.graph(&[]);
    package.write("graphs/order.yaml", &graph.replace("price_cents: 100", "price_cents: 900"));
    let build = package.build();
    build.fails_with(&["G0011"]);
    let shown = &build.messages[0][2];
    assert!(shown.contains("`graphs/order.yaml` was changed after it was signed"), "{shown}");
    assert!(shown.contains("review it and sign it again: `graph sign graphs/order.yaml`; if not, restore"), "{shown}");

    package.graph(&[]);
    package.build().passes();

    // From here on only the YAML changes, which is enough reason to compile again.
    package.graph(&[slip]);
    package.build().fails_with(&["G0102"]);
    package.graph(&[]);
    package.build().passes();
    package.write(
        "graphs/tools/shop/charge_card.yaml",
        &sign(&CONTRACT.replace("card: {", "cart: {").replace("[card,", "[cart,")),
    );
    let build = package.build();
    assert!(!build.passed, "the contract changed");
    assert!(build.messages.iter().any(|[code, ..]| code == "G0120"), "{:?}", build.messages);
    package.write("graphs/tools/shop/charge_card.yaml", &sign(CONTRACT));
    package.build().passes();
    let (file, trusted) = key_file();
    package.write(&format!("graphs/{file}"), &revoked_key_file());
    // One error for the graph and one for the contract: the same key signed both.
    package.build().fails_with(&["G0013", "G0013"]);
    package.write(&format!("graphs/{file}"), &trusted);
    package.build().passes();
}

/// Continues with a graph that causes a warning, in a program that denies warnings, and with other lint levels.
fn goes_through_levels(package: &Package) {
    let unread = ("assign: {", "assign: { unread: 1,");
    let graph = package.graph(&[unread]);
    package.build().warns_with(&["G0152"]);
    let shown = package.shown();
    let title = "warning[G0152]: node `charge_card` writes `state.unread`, which nothing reads";
    for part in [title, &place(&graph, "unread")] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    // Another way of showing the messages alone does not rebuild the program, so the graph changes too.
    let graph = package.graph(&[unread, ("price_cents: 100", "price_cents: 150")]);
    let shown = package.shown_plainly();
    let title = "[G0152] node `charge_card` writes `state.unread`, which nothing reads";
    for part in ["warning: use of deprecated function", title, &place(&graph, "unread")] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    assert!(!shown.contains("error"), "{shown}");
    // A macro tracks only files that it has read before, so the graph changes with the new settings.
    package.write("graphs/graphs.toml", &sign("[lints]\nG0152 = \"deny\"\n"));
    package.graph(&[unread, ("price_cents: 100", "price_cents: 200")]);
    package.build().fails_with(&["G0152"]);
    package.write("graphs/graphs.toml", &sign("[lints]\nG0152 = \"allow\"\n"));
    package.build().passes();
    package.write("graphs/graphs.toml", "[lints]\nG0152 = \"allow\"\n");
    package.build().fails_with(&["G0010"]);
    package.write("graphs/graphs.toml", &sign("[lints]\n"));
    package.build().warns_with(&["G0152"]);
}

/// Returns the text of [`key_file`] for the revoked key.
fn revoked_key_file() -> String {
    let mut file = KeyFile::new(key().public(), "the key of these tests");
    file.revoked_at = Some("2026-11-22T00:00:00Z".to_owned());
    file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH)
}

#[test]
fn cargo_shows_the_mistakes_of_a_graph_that_a_macro_compiles() {
    let program = format!(
        "#![deny(warnings)]\ngraph_runtime::graph!(\"graphs/order.yaml\");\nuse order::tools::shop_charge_card;\n{PROGRAM}"
    );
    let package = Package::new("by-macro", &program, None);
    goes_through_mistakes_to_a_program(&package);
    goes_through_levels(&package);
}

#[test]
fn cargo_shows_mistakes_of_graphs_compiled_by_build_scripts() {
    let build_script = "fn main() {\n    graph_compiler::build(\"graphs\");\n}\n";
    let program =
        format!("#![deny(warnings)]\ngraph_runtime::include_graphs!();\nuse tools::shop_charge_card;\n{PROGRAM}");
    let package = Package::new("by-build-script", &program, Some(build_script));
    goes_through_mistakes_to_a_program(&package);
    goes_through_levels(&package);
}

const BUILD_SCRIPT: &str = "fn main() {\n    graph_compiler::build(\"graphs\");\n}\n";

#[test]
fn a_graph_that_nobody_signed_keeps_its_types() {
    let program =
        format!("#![deny(warnings)]\ngraph_runtime::include_graphs!();\nuse tools::shop_charge_card;\n{PROGRAM}");
    let package = Package::new("unsigned", &program, Some(BUILD_SCRIPT));
    let outer = GRAPH.replace("shop.charge_card]", "shop.charge_card, rye.execute.tool.order]").replace(
        "shop/charge_card\n        params: { card: \"${inputs.card}\", price_cents: 100 }",
        "order\n        params: { card: \"${inputs.card}\" }",
    );
    let outer = outer.replace("${result.receipt}", "${result.output.receipt}");
    for (unsigned, code) in
        [(GRAPH.to_owned(), "G0010"), (sign(GRAPH).replace("price_cents: 100", "price_cents: 900"), "G0011")]
    {
        package.write("graphs/order.yaml", &unsigned);
        package.build().fails_with(&[code]);
    }
    // A graph that nests it keeps its types too, and there is no further error.
    package.write("graphs/outer.yaml", &sign(&outer));
    package.write("src/main.rs", &format!("{program}\nconst _: fn(outer::Inputs) -> String = |inputs| inputs.card;\n"));
    package.build().fails_with(&["G0011"]);
    package.graph(&[]);
    package.build().passes();
    // A contract that is not signed has the same effect.
    package.write("graphs/tools/shop/charge_card.yaml", CONTRACT);
    package.build().fails_with(&["G0010"]);
}

#[test]
fn generated_code_is_silent_under_strict_lints() {
    let strict = "#![deny(warnings, missing_docs, missing_debug_implementations, missing_copy_implementations)]\n\
        #![deny(unreachable_pub, unused_qualifications, unused_import_braces, unused_lifetimes, single_use_lifetimes)]\n\
        #![deny(trivial_casts, trivial_numeric_casts, elided_lifetimes_in_paths, variant_size_differences)]\n\
        #![deny(rust_2018_idioms, let_underscore_drop, redundant_lifetimes, unit_bindings, unused_results)]\n\
        #![deny(clippy::all, clippy::pedantic, clippy::nursery, clippy::cargo)]\n\
        #![allow(clippy::cargo_common_metadata, reason = \"of the test\")]\n\
        #![allow(clippy::multiple_crate_versions, reason = \"of the test\")]\n\
        #![forbid(unsafe_code)]\n\
        //! A package.\n";
    let used = "\n/// Uses what is generated.\n#[must_use]\npub const fn first() -> graphs::order::Node {\n    graphs::order::Node::ChargeCard\n}\n";
    let library = |modules: &str| format!("{strict}\n/// The graphs.\npub mod graphs {{\n    {modules}\n}}\n{used}");
    let package = Package::new("strict", "fn main() {}\n", Some(BUILD_SCRIPT));
    fs::remove_file(package.directory.join("src/main.rs")).unwrap();
    let order = GRAPH.replace(
        "      next: delivered\n",
        "      next:\n        - { to: refused, when: { path: state.receipt, op: eq, value: none } }\n        - { to: delivered }\n",
    );
    let order = format!("{order}    refused:\n      type: return\n      output: {{ number: 3 }}\n");
    package.write("graphs/order.yaml", &sign(&order));
    package.write(
        "graphs/sub/std.yaml",
        &sign(
            &GRAPH
                .replace("shop.charge_card]", "shop.charge_card, rye.execute.tool.order]")
                .replace(
                    "shop/charge_card\n        params: { card: \"${inputs.card}\", price_cents: 100 }",
                    "order\n        params: { card: \"${inputs.card}\" }",
                )
                .replace("${result.receipt}", "${result}"),
        ),
    );
    let verb = match Command::new(env!("CARGO")).args(["clippy", "--version"]).output() {
        Ok(output) if output.status.success() => "clippy",
        _ => "check",
    };
    for modules in ["graph_runtime::include_graphs!();", "graph_runtime::graph!(\"graphs/order.yaml\");"] {
        package.write("src/lib.rs", &library(modules));
        package.is_silent(verb);
        // In a private module of which little is used.
        package.write(
            "src/lib.rs",
            &library(modules)
                .replace("pub mod graphs", "mod graphs")
                .replace("pub const fn first", "const fn first")
                .replace(strict, &format!("{strict}#![allow(dead_code, reason = \"of the test\")]\n")),
        );
        package.is_silent(verb);
    }
}

#[test]
fn graphs_with_the_names_of_crates_and_types_hide_nothing() {
    let program = "
#![deny(warnings)]
graph_runtime::include_graphs!();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text: Option<&str> = core::str::from_utf8(b\"a\").ok();
    let _: Vec<String> = Vec::from([String::from(text.unwrap_or_default())]);
    let _: u8 = u8::MAX;
    let _ = (StdGraph::new(graph_runtime::Builtins), ResultGraph::new(graph_runtime::Builtins), u8_graph::Inputs {});
    Ok(())
}
";
    let package = Package::new("names", program, Some(BUILD_SCRIPT));
    let empty = "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\npermissions: [rye.*]\n\
        config_schema: { type: object, properties: {} }\nconfig: { start: a, nodes: { a: { type: return } } }\n";
    package.write("graphs/graphs.toml", &sign("[lints]\nG0133 = \"allow\"\n"));
    for name in ["std", "core", "alloc", "graph_runtime", "str", "u8", "result", "option", "string", "vec", "box", "ok"]
    {
        package.write(&format!("graphs/{name}.yaml"), &sign(empty));
    }
    package.build().passes();
}

#[test]
fn the_runtime_may_have_another_name() {
    let build_script = "fn main() {\n    graph_compiler::Build::new(\"graphs\").runtime(\"sg\").run();\n}\n";
    let program = format!(
        "#![deny(warnings)]\nsg::include_graphs!();\nuse tools::shop_charge_card;\nmod one {{ sg::graph!(\"graphs/order.yaml\"); }}\n{PROGRAM}"
    );
    let program = program
        .replace("use graph_runtime::", "use sg::")
        .replace("    let _inputs", "    let _also: Option<one::order::Node> = None;\n    let _inputs");
    let package = Package::new("renamed", &program, Some(build_script));
    package.change("Cargo.toml", "graph-runtime = {", "sg = {");
    package.graph(&[]);
    package.build().passes();
    package.graph(&[("next: delivered", "next: delivred")]);
    let messages = package.build().messages;
    assert!(messages.iter().any(|[code, ..]| code == "G0102"), "{messages:?}");
    assert!(
        messages.iter().all(|[code, message, _]| code.starts_with('G') || !message.contains("unresolved")),
        "{messages:?}"
    );
}

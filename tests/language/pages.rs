//! The fenced blocks of the pages. Each is compiled, checked, run, or compared with the output of the program:
//!
//! | block | check |
//! |---|---|
//! | `yaml`, first line `# graph` | it compiles (`format_page.rs`), with the page's contracts, whose first line is `# contract ID` |
//! | `yaml`, first line `# fragment` | in one of the places of a graph where it can be, or as a contract, it has no unknown field and no wrong shape |
//! | any, below `<!-- from: PATH -->` | it is a part of that file, which is compiled or checked elsewhere |
//! | `text`, below `<!-- output: NAME -->` | it is what a test below prints |
//! | `toml`, `json` | it can be read |
//! | `sh` | bash can read it, and the targets of cargo that it names exist |
//! | `console`, `text` that begins with `graph` | `graph-cli/tests/cli/pages.rs` runs it, or compares it with the help |

use std::fs;
use std::path::Path;
use std::process::Command;

use graph_compiler::diagnostic::Diagnostic;
use graph_compiler::project::Project;
use graph_compiler::source::SourceFile;

use crate::page::{self, Block, pages};
use crate::support::sign;
use crate::tree::Tree;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a text whose lines begin where the outermost of them does.
fn without_indent(lines: &[&str]) -> String {
    let indent = lines.iter().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len());
    let indent = indent.min().unwrap_or(0);
    lines.iter().map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
}

/// Whether a block is a part of a file, at whatever depth.
fn is_part_of(file: &str, block: &str) -> bool {
    let block: Vec<&str> = block.lines().collect();
    let expected = without_indent(&block);
    let has = |file: &[&str]| file.windows(block.len()).any(|part| without_indent(part) == expected);
    let lines: Vec<&str> = file.lines().collect();
    // A doc comment has examples too.
    let uncommented: Vec<&str> = lines
        .iter()
        .map(|line| line.trim_start())
        .map(|line| line.strip_prefix("//! ").or(line.strip_prefix("/// ")).unwrap_or_default())
        .collect();
    has(&lines) || has(&uncommented)
}

/// The places in which a fragment of YAML can be, each with `FRAGMENT` where it goes.
const PLACES: &[&str] = &[
    // A graph, without what every graph begins with.
    "FRAGMENT",
    "config:\n  start: a\n  nodes:\n    a: { type: return }\n  FRAGMENT",
    "config:\n  start: a\n  FRAGMENT",
    "config:\n  start: a\n  nodes:\n    FRAGMENT",
    "config:\n  start: a\n  nodes:\n    a:\n      FRAGMENT",
    "config:\n  start: a\n  nodes:\n    a:\n      action: { item_id: x/y }\n      FRAGMENT",
    "config:\n  start: a\n  nodes:\n    a:\n      action:\n        item_id: x/y\n        FRAGMENT",
    "config:\n  start: a\n  nodes:\n    a:\n      type: return\n      FRAGMENT",
    "config:\n  start: a\n  nodes:\n    a:\n      type: gate\n      FRAGMENT",
    "config:\n  start: a\n  nodes:\n    a:\n      type: foreach\n      over: []\n      action: { item_id: x/y }\n      FRAGMENT",
];

/// Returns the first error of the shape of a fragment in a place; `None` if it has none there.
fn shape_error(fragment: &str, place: &str) -> Option<String> {
    let (before, _) = place.split_once("FRAGMENT").unwrap();
    let indent = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
    let fragment = fragment.trim_end().replace('\n', &format!("\n{}", " ".repeat(indent)));
    let head = "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\npermissions: [rye.execute.tool.*]\n";
    let kept =
        head.lines().filter(|line| !place.replace("FRAGMENT", &fragment).contains(line.split(':').next().unwrap()));
    let head: String = kept.map(|line| format!("{line}\n")).collect();
    let tree = Tree::new();
    tree.write("a.yaml", sign(&format!("{head}{}\n", place.replace("FRAGMENT", &fragment))));
    let diagnostics = tree.project().compile(&tree.path("a.yaml")).diagnostics;
    // From G0100 on, errors are about the relations between parts, which a fragment does not show. Nor does it show all that is needed.
    let is_wrong = |one: &&Diagnostic| one.code.id < "G0100" && !one.message.starts_with("a graph needs ");
    diagnostics.iter().find(is_wrong).map(Diagnostic::render)
}

/// Returns the first error of a contract.
fn contract_error(contract: &str) -> Option<String> {
    let tree = Tree::new();
    tree.write("tools/x/y.yaml", sign(contract));
    let path = tree.path("tools/x/y.yaml");
    let source = SourceFile::read(&path, "tools/x/y.yaml").unwrap();
    tree.project().review_unfinished(&source).diagnostics.first().map(Diagnostic::render)
}

/// Returns the error of a fragment that has one wherever it may be.
fn fragment_error(fragment: &str) -> Option<String> {
    if fragment.contains("tool_type: ") {
        return contract_error(fragment);
    }
    // A graph may have fields of other readers at its top, so a fragment counts as its top only if it has one of these.
    let is_top = ["version:", "config:", "config_schema:", "permissions:"].iter().any(|field| fragment.contains(field));
    let places = PLACES.iter().filter(|place| is_top || **place != "FRAGMENT");
    let errors: Option<Vec<String>> = places.map(|place| shape_error(fragment, place)).collect();
    errors.map(|errors| errors.join("\n\n"))
}

/// Returns what is wrong with the targets that a command of cargo names.
fn unknown_target(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let named = |option: &str| words.windows(2).find(|pair| pair[0] == option).map(|pair| pair[1]);
    // The directories have the names of the packages without the prefix under which these are published.
    let package = named("-p")
        .map(|name| name.trim_start_matches("state-"))
        .map(|package| repository().join("crates").join(package))
        .filter(|path| path.exists());
    let package = package.unwrap_or_else(|| repository().to_owned());
    let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
    let is_known = |kind: &str, name: &str| manifest.contains(&format!("[[{kind}]]\nname = \"{name}\""));
    if let Some(name) = named("--example").filter(|name| !repository().join(format!("examples/{name}.rs")).exists()) {
        return Some(format!("there is no example `{name}`"));
    }
    if let Some(name) = named("--bench").filter(|name| words[0] == "cargo" && !is_known("bench", name)) {
        return Some(format!("there is no benchmark `{name}`"));
    }
    let package = named("-p").or(named("--package")).map(|name| name.trim_start_matches("state-"));
    if let Some(name) = package {
        let places = ["", "crates/", "examples/"].map(|place| repository().join(format!("{place}{name}/Cargo.toml")));
        if !places.iter().any(|path| path.exists()) {
            return Some(format!("there is no package `{name}`"));
        }
    }
    let test = named("--test").filter(|_| package.is_none())?;
    (!is_known("test", test)).then(|| format!("there are no tests `{test}`"))
}

/// Returns what is wrong with the commands of a block.
fn command_error(text: &str) -> Option<String> {
    let bash = Command::new("bash").args(["-n", "-c", text]).output().unwrap();
    if !bash.status.success() {
        return Some(String::from_utf8_lossy(&bash.stderr).into_owned());
    }
    let text = text.replace("\\\n", " ");
    let commands = text.lines().flat_map(|line| line.split("&&")).map(str::trim);
    let cargo = commands.filter_map(|command| command.find("cargo ").map(|at| &command[at..]));
    cargo.into_iter().find_map(unknown_target)
}

/// Returns the errors that the compiler reports of a graph of this repository after a change.
fn errors_after(graph: &str, from: &str, to: &str) -> String {
    let path = repository().join(graph);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{graph} has `{from}`");
    let source = SourceFile::new(&path, graph, &sign_again(&text.replace(from, to)));
    let project = Project::open(repository(), &repository().join("graphs"));
    let errors = project.review_source(source).diagnostics;
    let errors = errors.iter().filter(|one| one.code.id != "G0012").map(Diagnostic::render);
    errors.collect::<Vec<_>>().join("\n\n")
}

/// Signs a text in place of its signature.
fn sign_again(text: &str) -> String {
    sign(text.split_once('\n').unwrap().1)
}

/// Returns the output that a page shows under a name.
fn output(name: &str) -> Option<String> {
    Some(match name {
        "a misspelt node" => errors_after("graphs/order.yaml", "next: shipped", "next: shiped"),
        "a key that is not set" => errors_after(
            "graphs/order.yaml",
            "        message: \"${inputs.article} is not in stock\"",
            "        message: \"${inputs.article} is not in stock\"\n        receipt: \"${state.receipt}\"",
        ),
        _ => return None,
    })
}

/// Returns what is wrong with a block; `None` if its check passes.
fn block_error(block: &Block) -> Option<String> {
    let Block { language, text, .. } = block;
    if let Some(path) = block.comments.iter().find_map(|comment| comment.strip_prefix("from: ")) {
        let file = fs::read_to_string(repository().join(path)).unwrap_or_default();
        return (!is_part_of(&file, text)).then(|| format!("it is no part of {path}"));
    }
    if let Some(name) = block.comments.iter().find_map(|comment| comment.strip_prefix("output: ")) {
        let Some(output) = output(name) else { return Some(format!("no test makes the output `{name}`")) };
        return (output.trim_end() != text.trim_end()).then(|| format!("the output is\n{output}"));
    }
    match language.as_str() {
        "yaml" if text.starts_with("# graph") || text.starts_with("# contract ") => None,
        "yaml" => match text.strip_prefix("# fragment\n") {
            Some(fragment) => fragment_error(fragment),
            None => Some("it is neither a `# graph` nor a `# fragment`".to_owned()),
        },
        "toml" => text.parse::<toml::Table>().err().map(|error| error.to_string()),
        "json" => text
            .trim()
            .split('\n')
            .map(serde_json::from_str::<serde_json::Value>)
            .any(|line| line.is_err())
            .then(|| serde_json::from_str::<serde_json::Value>(text).err())
            .flatten()
            .map(|error| error.to_string()),
        "sh" => command_error(text),
        "console" => None,
        "text" if text.starts_with("graph ") => None,
        _ => Some("nothing checks it: see the table in tests/language/pages.rs".to_owned()),
    }
}

#[test]
fn each_block_in_the_pages_is_checked() {
    let pages = pages(repository());
    let blocks: Vec<Block> = pages.iter().flat_map(|(name, page)| page::blocks(name, page)).collect();
    assert!(blocks.len() > 100, "the blocks are found: {}", blocks.len());
    let wrong = blocks.iter().filter_map(|block| {
        let error = block_error(block)?;
        Some(format!("{} ({}): {error}\n", block.place, block.language))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{} blocks:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_wrong_block_is_found() {
    let block = |language: &str, comment: Option<&str>, text: &str| {
        let comments = comment.map(str::to_owned).into_iter().collect();
        block_error(&Block { place: String::new(), language: language.to_owned(), comments, text: text.to_owned() })
    };
    for (language, comment, text) in [
        ("rust", None, "fn main() {}\n"),
        ("rust", Some("from: examples/order.rs"), "fn main() { order() }\n"),
        ("text", Some("output: nothing"), "error\n"),
        ("yaml", None, "next: done\n"),
        ("yaml", None, "# fragment\nnexxt: done\n"),
        ("yaml", None, "# fragment\nretry: { atempts: 3 }\n"),
        ("toml", None, "a = \n"),
        ("json", None, "{ \"a\" }\n"),
        ("sh", None, "cargo run --example nothing\n"),
        ("sh", None, "echo 'open\n"),
        ("", None, "anything\n"),
    ] {
        assert!(block(language, comment, text).is_some(), "{language}: {text}");
    }
    for (language, comment, text) in [
        ("rust", Some("from: examples/order.rs"), "/// A shop without a database.\nstruct Shop;\n"),
        ("yaml", None, "# fragment\nnext: done\n"),
        ("yaml", None, "# fragment\nretry: { attempts: 3 }\n"),
        ("sh", None, "cargo run --example order -- tea\n"),
        ("json", None, "{ \"a\": 1 }\n{ \"a\": 2 }\n"),
    ] {
        assert_eq!(block(language, comment, text), None, "{text}");
    }
}

/// Returns the anchors of a page, as code hosts and mdBook make them of headings.
fn anchors(text: &str) -> Vec<String> {
    let mut in_block = false;
    let headings = text.lines().filter(|line| {
        in_block ^= line.trim_start().starts_with("```");
        !in_block && line.starts_with('#')
    });
    let anchor = |heading: &str| {
        let kept =
            heading.trim_start_matches('#').trim().chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// Returns the targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    let mut in_block = false;
    let prose = text.lines().filter(|line| {
        in_block ^= line.trim_start().starts_with("```");
        !in_block
    });
    let prose: Vec<&str> = prose.collect();
    let text = prose.join("\n");
    let starts = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    starts.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let (mut broken, mut count) = (Vec::new(), 0);
    for (name, text) in pages(repository()) {
        let page = repository().join(&name);
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let has_anchor =
                || anchor.is_empty() || anchors(&fs::read_to_string(&target).unwrap()).contains(&anchor.to_owned());
            if !target.exists() || !has_anchor() {
                broken.push(format!("{name}: {link}"));
            }
            count += 1;
        }
    }
    assert!(count > 200, "the links are found: {count}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_summary_lists_every_page() {
    let summary = links(&fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap());
    let pages = pages(repository()).into_iter().filter_map(|(name, _)| name.strip_prefix("docs/").map(str::to_owned));
    let missing: Vec<String> = pages.filter(|name| name != "SUMMARY.md" && !summary.contains(name)).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

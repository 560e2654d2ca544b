//! The schema for editors accepts every graph that the compiler accepts, and finds the mistakes of shape that the compiler finds.

#![expect(clippy::panic, clippy::unwrap_used, reason = "what fails in a test is its answer")]

#[path = "../../../tests/support/mod.rs"]
mod support;
#[path = "../../../tests/support/tree.rs"]
mod tree;

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::project::Project;
use graph_compiler::source::SourceFile;
use graph_compiler::tree::{TreeNode, YamlFile, YamlTree as Yaml, parse};
use graph_editor::json_schema;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use support::sign;
use tree::Tree;

/// The codes of mistakes that are, at least sometimes, mistakes of shape.
const OF_SHAPE: [&str; 22] = [
    "G0030", "G0031", "G0032", "G0033", "G0034", "G0035", "G0036", "G0037", "G0038", "G0110", "G0111", "G0112",
    "G0119", "G0120", "G0121", "G0122", "G0124", "G0126", "G0130", "G0132", "G0140", "G0141",
];

/// The mistakes that no schema finds: the code, a part of the message, the text at the place, and the reason.
const UNSEEN: [(&str, &str, &str, &str); 28] = [
    ("G0038", "`timeout` is a duration, not `0s`", "", "how short a duration is that is a text"),
    ("G0030", "`max_delay` is at least as long as `delay`", "", "two values are compared"),
    ("G0031", "a graph has no field", "", "the top level is open to fields of other tools"),
    ("G0034", "characters that can be seen", "", "which characters nobody sees is a long table"),
    ("G0035", "no value fits", "", "two values are compared"),
    ("G0035", "the default breaks", "", "a value is checked against a schema in the file"),
    ("G0035", "which is not in `properties`", "", "two lists of names are compared"),
    ("G0035", "the default does not have the type", "9223372036854775808", "how large a whole number is"),
    ("G0035", "`const` does not have the type", "18446744073709551615", "how large a whole number is"),
    ("G0037", "does nothing beside `keep: memory`", "", "one part of a graph is compared with others"),
    ("G0037", "the graph has no branches", "branch", "one part of a graph is compared with others"),
    ("G0110", "the default of `{input:…}`", "", "a part of a text"),
    ("G0111", "is not a namespace", "thing", "in a foreach the name is the one that `as` gives"),
    ("G0111", "is not a namespace", "item", "in a foreach the name is the one that `as` gives"),
    ("G0120", "channel `", "", "the contract of a reducer"),
    ("G0120", "thread_directive", "", "the inputs of a thread may stand beside its own parameters"),
    ("G0121", "thread_directive", "", "a directive has two names"),
    ("G0122", "takes", "${", "the type of what a template reads"),
    ("G0122", "takes", "inputs.", "the type of what an alternative of `||` reads"),
    ("G0121", "`shop/child` needs", "", "the inputs of what a call spawns"),
    ("G0120", "`shop/child` takes no input", "", "the inputs of what a call spawns"),
    ("G0122", "`text` of `agents/short`", "", "the inputs of what a call spawns"),
    ("G0120", "`agents/short` takes no input", "", "the inputs of what a call spawns"),
    ("G0126", "into the name of its own variable", "", "two names are compared"),
    ("G0126", "is already the name of an element", "", "two names are compared"),
    ("G0036", "waits for some branches of node", "", "it needs the paths of the graph"),
    ("G0037", "its node is in no branch of a list", "", "it needs the paths of the graph"),
    ("G0036", "a run that has used up its steps", "", "two fields far apart are compared"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validator(schema: &serde_json::Value) -> Validator {
    jsonschema::draft7::new(schema).unwrap()
}

fn read(path: &Path) -> Arc<SourceFile> {
    SourceFile::read(path, &path.file_name().unwrap().to_string_lossy()).unwrap()
}

fn yaml(source: &Arc<SourceFile>) -> Option<YamlFile> {
    parse(source, &mut Diagnostics::new())
}

fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns the fixtures of a directory, signed, in a tree of their own.
fn fixtures(directory: &str) -> Tree {
    let (tree, directory) = (Tree::new(), root().join(directory));
    for file in yaml_files(&directory) {
        tree.write(file.strip_prefix(&directory).unwrap().to_str().unwrap(), sign(&fs::read_to_string(&file).unwrap()));
    }
    tree
}

/// Returns the graphs in a page, found in the same way as in [`tests/language/format_page.rs`].
fn graphs_of_page(page: &str) -> Vec<(String, String)> {
    let mut lines = page.lines().enumerate();
    let mut graphs = Vec::new();
    while let Some((number, line)) = lines.next() {
        if line != "```yaml" {
            continue;
        }
        let text: String = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").fold(
            String::new(),
            |mut text, line| {
                writeln!(text, "{line}").unwrap();
                text
            },
        );
        if let Some(name) = text.lines().next().and_then(|first| first.strip_prefix("# graph")) {
            let name = if name.is_empty() { format!("line_{}", number + 2) } else { name.trim().to_owned() };
            graphs.push((format!("{name}.yaml"), text));
        }
    }
    graphs
}

/// Returns the errors that the schema of a tree finds in a graph.
fn objections(of_tree: &Validator, path: &Path) -> String {
    let source = read(path);
    let value = yaml(&source).unwrap_or_else(|| panic!("{}", path.display())).root.to_value();
    let mut text = String::new();
    for error in of_tree.iter_errors(&value) {
        writeln!(text, "{}: {error} at {}", path.display(), error.instance_path()).unwrap();
    }
    text
}

/// Like [`objections`], but also returns the errors that the graph's own schema finds, which takes a while to make.
fn objections_of_both(project: &Project, of_tree: &Validator, path: &Path) -> String {
    let of_graph = validator(&json_schema::of_graph(project, &read(path)));
    objections(of_tree, path) + &objections(&of_graph, path)
}

#[test]
fn every_graph_of_the_repository_that_compiles_fits_the_schemas() {
    let mut problems = String::new();
    for tree in ["graphs", "tests/engines/graphs", "tests/seeds/graphs"] {
        let project = Project::open(&root(), &root().join(tree));
        let of_tree = validator(&json_schema::of_tree(&project));
        let graphs = graph_compiler::graph_files(&root().join(tree)).unwrap();
        assert!(!graphs.is_empty(), "{tree}");
        for graph in graphs {
            if project.compile(&graph).graph.is_none() {
                continue;
            }
            problems += &match tree {
                "graphs" => objections_of_both(&project, &of_tree, &graph),
                _ => objections(&of_tree, &graph),
            };
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn every_graph_of_the_page_of_the_format_fits_the_schemas() {
    let tree = Tree::new();
    let graphs = graphs_of_page(&fs::read_to_string(root().join("docs/format.md")).unwrap());
    assert!(graphs.len() > 5);
    for (name, text) in &graphs {
        tree.write(name, sign(text));
    }
    let project = tree.project();
    let of_tree = validator(&json_schema::of_tree(&project));
    let problems: String =
        graphs.iter().map(|(name, _)| objections_of_both(&project, &of_tree, &tree.path(name))).collect();
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn every_fixture_that_compiles_fits_the_schemas() {
    let mut problems = String::new();
    for directory in ["tests/check", "tests/catalogue"] {
        let tree = fixtures(directory);
        let project = tree.project();
        let of_tree = validator(&json_schema::of_tree(&project));
        for file in yaml_files(&root().join(directory)) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if !file.parent().unwrap().ends_with(directory) || project.compile(&tree.path(name)).graph.is_none() {
                continue;
            }
            problems += &objections(&of_tree, &tree.path(name));
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn the_schemas_are_themselves_as_draft_07_asks() {
    let project = Project::open(&root(), &root().join("graphs"));
    let of_graph = json_schema::of_graph(&project, &read(&root().join("graphs/order.yaml")));
    for schema in [json_schema::of_tree(&project), of_graph] {
        let problem = jsonschema::draft7::meta::validate(&schema);
        assert!(problem.is_ok(), "{problem:?}");
    }
}

/// Collects the lines that an error of the schema points at.
fn lines_of(error: &ValidationError<'_>, source: &SourceFile, yaml: &Yaml, lines: &mut BTreeSet<usize>) {
    let pointer = error.instance_path().to_string();
    let line = |at: usize| source.position(at).0;
    let keys = |at: &Yaml| match &at.node {
        TreeNode::Map(fields) => fields.iter().map(|(key, _)| (key.name.clone(), line(key.span.start))).collect(),
        _ => Vec::new(),
    };
    let (mut at, mut begins, mut around) = (yaml, line(yaml.span.start), Vec::new());
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        (at, begins, around) = match &at.node {
            TreeNode::List(list) => {
                let item = &list[part.parse::<usize>().unwrap()];
                (item, line(item.span.start), Vec::new())
            }
            TreeNode::Map(fields) => {
                let (key, value) = fields.iter().find(|(key, _)| key.name == part).unwrap();
                (value, line(key.span.start), keys(at))
            }
            _ => panic!("{pointer} leads to nothing"),
        };
    }
    let named =
        |name: &str| keys(at).into_iter().filter(|(key, _)| key == name).map(|(_, line)| line).collect::<Vec<_>>();
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            lines.extend(unexpected.iter().flat_map(|name| named(name)));
        }
        ValidationErrorKind::PropertyNames { error } => {
            lines.extend(named(error.instance().as_str().unwrap_or_default()));
        }
        // A missing field has no line: the compiler points at the mapping that lacks it, or at the field that requires it.
        ValidationErrorKind::Required { .. } => {
            lines.insert(begins);
            lines.extend(keys(at).into_iter().map(|(_, line)| line));
            lines.extend(around.into_iter().filter(|(key, _)| key == "item_id").map(|(_, line)| line));
        }
        ValidationErrorKind::AnyOf { context } => {
            lines.insert(begins);
            context.iter().flatten().for_each(|inner| lines_of(inner, source, yaml, lines));
        }
        _ if matches!(at.node, TreeNode::List(_) | TreeNode::Map(_)) => {
            lines.insert(begins);
        }
        _ => lines.extend(begins..=line(at.span.end)),
    }
}

#[test]
fn schema_reports_shape_errors_of_fixtures_on_their_lines() {
    let (mut problems, mut used) = (String::new(), BTreeSet::new());
    for directory in ["tests/check", "tests/catalogue"] {
        let tree = fixtures(directory);
        let project = tree.project();
        let of_tree = validator(&json_schema::of_tree(&project));
        for file in yaml_files(&root().join(directory)) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if !file.parent().unwrap().ends_with(directory) {
                continue;
            }
            let source = read(&tree.path(name));
            let Some(yaml) = yaml(&source) else { continue };
            let value = yaml.root.to_value();
            let lines_by = |schema: &Validator| {
                let mut lines = BTreeSet::new();
                schema.iter_errors(&value).for_each(|error| lines_of(&error, &source, &yaml.root, &mut lines));
                lines
            };
            let lines = lines_by(&of_tree);
            // The schema of a tree in which lists have named elements allows any name at the beginning of a path.
            let own = LazyCell::new(|| lines_by(&validator(&json_schema::of_graph(&project, &source))));
            for found in project.compile(&tree.path(name)).diagnostics {
                let here = found.place.source.path == source.path && OF_SHAPE.contains(&found.code.id);
                let Some((line, _)) = found.place.position().filter(|_| here) else { continue };
                let written = found.place.span.clone().map_or("", |span| &source.text[span]);
                let known = UNSEEN.iter().position(|(code, message, place, _)| {
                    *code == found.code.id && found.message.contains(message) && written.contains(place)
                });
                let is_seen = lines.contains(&line) || (known.is_none() && own.contains(&line));
                match (is_seen, known) {
                    (false, Some(at)) => {
                        used.insert(at);
                    }
                    (false, None) => writeln!(problems, "not seen: {}", found.render()).unwrap(),
                    (true, _) => {}
                }
            }
        }
    }
    for (at, (code, message, ..)) in UNSEEN.iter().enumerate() {
        if !used.contains(&at) {
            writeln!(problems, "seen after all: {code}: {message}").unwrap();
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

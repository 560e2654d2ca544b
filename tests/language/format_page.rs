//! The graphs in `docs/format.md` compile: each fenced block of YAML whose first line is `# graph`, or `# graph NAME`
//! if another graph depends on the name of the file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::support::sign;
use crate::tree::Tree;

/// A graph of a page, and the line on which it begins.
struct Block {
    line: usize,
    /// The name of its file.
    name: String,
    text: String,
}

/// Returns the blocks that are graphs.
fn graphs(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        // A block in a list is indented as much as its fence.
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().map(|(_, line)| line).take_while(|line| !line.trim_start().starts_with("```"));
        let text: String = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
        let line = number + 1;
        let name = match text.lines().next().and_then(|first| first.strip_prefix("# graph")) {
            Some("") => format!("line_{line}.yaml"),
            Some(name) => format!("{}.yaml", name.trim()),
            None => continue,
        };
        if language.trim() == "yaml" {
            blocks.push(Block { line, name, text });
        }
    }
    blocks
}

/// Returns the diagnostics of the graphs of a page; an empty text if they compile.
///
/// Tools without a contract accept any parameters, so a page need not show the contracts of the tools in its examples.
fn problems(page: &str) -> String {
    let tree = Tree::new();
    let mut problems = String::new();
    let blocks = graphs(page);
    for Block { name, text, .. } in &blocks {
        tree.write(name, sign(text));
    }
    for Block { line, name, .. } in blocks {
        for found in tree.project().compile(&tree.path(&name)).diagnostics {
            write!(problems, "the graph on line {line}:\n{}\n\n", found.render()).unwrap();
        }
    }
    problems
}

#[test]
fn the_graphs_in_the_page_of_the_format_compile() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/format.md");
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(!graphs(&page).is_empty(), "{} shows no graph", path.display());
    let problems = problems(&page);
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn a_mistake_in_a_page_is_found_with_its_line() {
    let graph = "# graph\nversion: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                 permissions: [rye.execute.tool.*]\nconfig:\n  start: a\n  nodes:\n    a: { type: return }\n";
    let page = |graph: &str| format!("# The format\n\n```yaml\nnext: a part\n```\n\n```yaml\n{graph}```\n\nText.\n");
    assert_eq!(graphs(&page(graph)).len(), 1);
    assert_eq!(problems(&page(graph)), "");
    let problems = problems(&page(&graph.replace("start: a", "start: b")));
    assert!(problems.starts_with("the graph on line 8:\nerror[G0101]"), "{problems}");
    let indented = page(graph).replace("\n", "\n  ");
    assert_eq!(graphs(&indented)[0].text, graph);
}

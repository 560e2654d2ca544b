//! The graphs in the pages compile: each fenced block of YAML whose first line is `# graph`, or `# graph NAME` if another
//! graph depends on the name of the file.

use std::fmt::Write as _;
use std::path::Path;

use crate::page::{self, Block, pages};
use crate::support::sign;
use crate::tree::Tree;

/// Returns the blocks of a page that are graphs, with the names of their files.
fn graphs(name: &str, page: &str) -> Vec<(String, Block)> {
    let blocks = page::blocks(name, page).into_iter().filter(|block| block.language == "yaml");
    let named = |block: Block| {
        let name = block.text.lines().next()?.strip_prefix("# graph")?.trim();
        let line = block.place.rsplit_once(':').map_or("", |(_, line)| line);
        let file = if name.is_empty() { format!("line_{line}.yaml") } else { format!("{name}.yaml") };
        Some((file, block))
    };
    blocks.filter_map(named).collect()
}

/// Returns the contracts of a page, with the names of their files: the blocks whose first line is `# contract ID`.
fn contracts(name: &str, page: &str) -> Vec<(String, Block)> {
    let named = |block: Block| {
        let id = block.text.lines().next()?.strip_prefix("# contract ")?.trim();
        Some((format!("tools/{id}.yaml"), block))
    };
    page::blocks(name, page).into_iter().filter_map(named).collect()
}

/// Returns the diagnostics of the graphs of a page; an empty text if they compile.
///
/// Tools without a contract accept any parameters, so a page need not show the contracts of the tools in its examples.
fn problems(name: &str, page: &str) -> String {
    let tree = Tree::new();
    for (file, block) in contracts(name, page) {
        tree.write(&file, sign(&block.text));
    }
    let mut problems = String::new();
    let graphs = graphs(name, page);
    for (file, block) in &graphs {
        tree.write(file, sign(&block.text));
    }
    for (file, block) in &graphs {
        for found in tree.project().compile(&tree.path(file)).diagnostics {
            write!(problems, "the graph at {}:\n{}\n\n", block.place, found.render()).unwrap();
        }
    }
    problems
}

#[test]
fn the_graphs_in_the_pages_compile() {
    let mut count = 0;
    for (name, page) in pages(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        count += graphs(&name, &page).len();
        let problems = problems(&name, &page);
        assert!(problems.is_empty(), "{problems}");
    }
    assert!(count > 10, "the graphs are found: {count}");
}

#[test]
fn a_mistake_in_a_page_is_found_with_its_line() {
    let graph = "# graph\nversion: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                 permissions: [rye.execute.tool.*]\nconfig:\n  start: a\n  nodes:\n    a: { type: return }\n";
    let page = |graph: &str| format!("# The format\n\n```yaml\nnext: a part\n```\n\n```yaml\n{graph}```\n\nText.\n");
    assert_eq!(graphs("a.md", &page(graph)).len(), 1);
    assert_eq!(problems("a.md", &page(graph)), "");
    let problems = problems("a.md", &page(&graph.replace("start: a", "start: b")));
    assert!(problems.starts_with("the graph at a.md:7:\nerror[G0101]"), "{problems}");
    let indented = page(graph).replace("\n", "\n  ");
    assert_eq!(graphs("a.md", &indented)[0].1.text, graph);
}

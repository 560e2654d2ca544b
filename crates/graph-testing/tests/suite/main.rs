//! Tests of graphs, as their authors write them: what passes, what fails, and what is refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod hostile;
mod mutations;
mod refusals;

use std::fs;
use std::path::{Path, PathBuf};

use graph_testing::{FileReport, TestSuite};

/// A tree of graphs in a directory of its own.
pub struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    /// A tree with these files. Nobody signs them.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(tree.path("graphs/keys")).unwrap();
        files.iter().for_each(|(name, text)| tree.write(name, text));
        tree
    }

    /// A copy of a directory of the repository.
    pub fn copy(directory: &str) -> Self {
        let tree = Self::new(&[]);
        copy(&repository().join(directory), &tree.path("graphs"));
        tree
    }

    /// Returns the path of a file in the directory around the tree.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file of the tree.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path("graphs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs the tests of a graph.
    pub fn test(&self, graph: &str) -> FileReport {
        let mut suite = TestSuite::new(self.directory.path()).unwrap();
        let targets = suite.find(&[PathBuf::from("graphs").join(graph)]).unwrap();
        suite.run(&targets[0], |_| true)
    }
}

/// Returns the directory of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Returns the messages of a report, a line each: mistakes with their codes and places, and failures with their lines.
pub fn said(report: &FileReport) -> Vec<String> {
    match &report.cases {
        Err(mistakes) => mistakes
            .iter()
            .map(|one| {
                let help = one.help.as_ref().map_or_else(String::new, |help| format!(" ({help})"));
                format!("{} {}: {}{help}", one.code.id, one.location(), one.message)
            })
            .collect(),
        Ok(cases) => {
            let failures = cases.iter().flat_map(|case| &case.failures);
            let note = |note: &Option<String>| note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
            let shown = failures
                .map(|one| format!("{}:{} {}: {}{}", one.line, one.column, one.what, one.message, note(&one.note)));
            shown.collect()
        }
    }
}

/// The head of a graph, without permissions and `config`.
pub const HEAD: &str =
    "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: shop\n";

/// The contract of a tool with a parameter and a result.
pub const PAY: &str = "version: \"1.0.0\"\ntool_type: rust\ncategory: shop
config_schema: { type: object, properties: { cents: { type: integer } }, required: [cents] }
result_schema: { type: object, properties: { ok: { type: boolean }, note: { type: string } }, required: [ok] }\n";

/// A graph that pays what its input says, and says why it could not.
pub fn order() -> Tree {
    let graph = format!(
        "{HEAD}permissions: [rye.execute.tool.shop.pay]
config_schema: {{ type: object, properties: {{ cents: {{ type: integer, minimum: 1 }} }}, required: [cents] }}
config:
  start: pay
  nodes:
    pay:
      action: {{ item_id: shop/pay, params: {{ cents: \"${{inputs.cents}}\" }} }}
      assign: {{ is_paid: \"${{result.ok}}\" }}
      next: [{{ to: paid, when: {{ path: result.ok, value: true }} }}, {{ to: open }}]
      on_error: failed
    paid: {{ type: return, output: {{ paid: \"${{inputs.cents}}\" }} }}
    open: {{ type: return, output: {{ paid: 0 }} }}
    failed: {{ type: return, output: {{ why: \"${{state._last_error.error}}\" }} }}
"
    );
    Tree::new(&[("order.yaml", &graph), ("tools/shop/pay.yaml", PAY)])
}

//! The graphs that are checked, and the findings about them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_compiler::diagnostic::{Diagnostic, DiagnosticIdentity, Severity, SourcePlace, code};
use graph_compiler::graph::{ApprovingAnswers, Budget};
use graph_compiler::project::{Project, display_name};
use graph_compiler::source::SourceFile;
use graph_compiler::{MANIFEST, find_contract_graphs, find_graphs};
use graph_model::digest::Digest;

use crate::command::without_tests;
use crate::outcome::Error;

/// The trees of the graphs that the command line names.
pub(super) struct Trees {
    working: PathBuf,
    /// Whether the meanings of the graphs are asked for.
    meanings: bool,
    trees: Vec<CheckedTree>,
}

/// A tree, and those of its graphs that are checked.
struct CheckedTree {
    root: PathBuf,
    graphs: Vec<PathBuf>,
    /// The errors about the parts of it that cannot be read.
    unreadable: Vec<Diagnostic>,
}

/// The result of a check.
#[derive(Default)]
pub(super) struct Findings {
    /// The graphs that were checked, as messages name them.
    pub(super) graphs: Vec<String>,
    /// The diagnostics, each once, grouped by file.
    pub(super) found: Vec<CheckFinding>,
    /// The upper bounds for a run of each graph; `None` if its mistakes leave them open.
    pub(super) budgets: Vec<(String, Option<Budget>)>,
    /// The answers that approve the guarded calls of each graph.
    pub(super) approvals: Vec<Vec<ApprovingAnswers>>,
    /// The digest of the meaning of each graph; `None` if it has mistakes or no trusted signature.
    pub(super) meanings: Vec<(String, Option<Digest>)>,
    /// The index in `found` of each diagnostic, while diagnostics are added.
    known: HashMap<DiagnosticIdentity, usize>,
}

/// A diagnostic, and the graphs that it is about: a diagnostic of a contract is about all graphs that use the contract.
pub(super) struct CheckFinding {
    pub(super) diagnostic: Diagnostic,
    pub(super) graphs: Vec<String>,
}

impl Trees {
    /// Finds the graphs at some paths: files, or directories, each of which is a tree.
    pub(super) fn find(paths: &[PathBuf], meanings: bool) -> Result<Self, Error> {
        let mut found = Self { working: std::env::current_dir()?, meanings, trees: Vec::new() };
        for path in &without_tests(paths)? {
            let path = found.working.join(path);
            if path.is_dir() {
                let mut walk = find_graphs(&path);
                walk.files.extend(find_contract_graphs(&path));
                if walk.files.is_empty() && walk.unreadable.is_empty() {
                    return Err(Error::new(format!("there are no graphs in {}", path.display())));
                }
                let unreadable = walk.problems(&found.working);
                found.add(&path, walk.files, unreadable);
            } else {
                let root = Project::around(&found.working, &path).root().to_owned();
                found.add(&root, vec![path], Vec::new());
            }
        }
        Ok(found)
    }

    /// The tree of one file, which need not exist.
    pub(super) fn of_text(root: &Path, path: &Path) -> Result<Self, Error> {
        let mut found = Self { working: std::env::current_dir()?, meanings: false, trees: Vec::new() };
        found.add(root, vec![path.to_owned()], Vec::new());
        Ok(found)
    }

    fn add(&mut self, root: &Path, files: Vec<PathBuf>, unreadable: Vec<Diagnostic>) {
        let tree = match self.trees.iter_mut().position(|tree| tree.root == root) {
            Some(at) => &mut self.trees[at],
            None => {
                self.trees.push(CheckedTree { root: root.to_owned(), graphs: Vec::new(), unreadable: Vec::new() });
                self.trees.last_mut().expect("one was just pushed")
            }
        };
        let known: BTreeSet<PathBuf> = tree.graphs.iter().cloned().collect();
        tree.graphs.extend(files.into_iter().filter(|file| !known.contains(file)));
        tree.unreadable.extend(unreadable);
    }

    /// Returns the directories of the trees, each with the package manifest whose settings apply first.
    pub(super) fn roots(&self) -> impl Iterator<Item = (&Path, Option<PathBuf>)> {
        self.trees.iter().map(|tree| (tree.root.as_path(), manifest(&tree.root)))
    }

    /// Returns the graphs.
    pub(super) fn graphs(&self) -> impl Iterator<Item = &PathBuf> {
        self.trees.iter().flat_map(|tree| &tree.graphs)
    }

    /// Checks all graphs.
    pub(super) fn check(&self) -> Findings {
        self.check_with(&[])
    }

    /// Checks all graphs, with `texts` in place of the files on disk.
    pub(super) fn check_with(&self, texts: &[Arc<SourceFile>]) -> Findings {
        let mut findings = Findings::default();
        for tree in &self.trees {
            let mut project = Project::open(&self.working, &tree.root).for_review();
            if let Some(manifest) = manifest(&tree.root) {
                project = project.with_manifest(manifest);
            }
            project = texts.iter().cloned().fold(project, Project::with_text);
            // A review yields no graph, also of a file that cannot be verified.
            if self.meanings {
                let mut project = Project::open(&self.working, &tree.root);
                if let Some(manifest) = manifest(&tree.root) {
                    project = project.with_manifest(manifest);
                }
                findings.meanings.extend(tree.graphs.iter().map(|file| {
                    let compilation = project.compile(file);
                    let meaning = compilation.graph.and_then(|graph| graph.ir(&compilation.source).settings.meaning);
                    (display_name(&self.working, file), meaning)
                }));
            }
            for (file, compilation) in tree.graphs.iter().zip(project.review_all(&tree.graphs)) {
                let name = display_name(&self.working, file);
                let (budget, approvals) = match compilation.interface {
                    Some(interface) => (interface.budget, interface.approvals),
                    None => (None, Vec::new()),
                };
                findings.budgets.push((name.clone(), budget));
                findings.approvals.push(approvals);
                findings.add(&name, compilation.diagnostics);
                findings.graphs.push(name);
            }
            findings.add(&display_name(&self.working, &tree.root), tree.unreadable.clone());
        }
        findings.group();
        findings
    }
}

/// Finds the manifest of the package that a tree belongs to: the nearest above it.
fn manifest(root: &Path) -> Option<PathBuf> {
    // The ancestors of a path with `..` in it are not its leading components, so it is resolved first.
    let root = root.canonicalize().ok()?;
    root.ancestors().map(|directory| directory.join(MANIFEST)).find(|manifest| manifest.is_file())
}

impl Findings {
    fn add(&mut self, graph: &str, diagnostics: Vec<Diagnostic>) {
        for diagnostic in diagnostics {
            match self.known.entry(diagnostic.identity()) {
                Entry::Vacant(new) => {
                    new.insert(self.found.len());
                    self.found.push(CheckFinding { diagnostic, graphs: vec![graph.to_owned()] });
                }
                Entry::Occupied(known) => {
                    let graphs = &mut self.found[*known.get()].graphs;
                    // All diagnostics of a graph are added in a row, so it is enough to compare with the last graph.
                    if graphs.last().is_none_or(|last| last != graph) {
                        graphs.push(graph.to_owned());
                    }
                }
            }
        }
    }

    /// Groups the findings by file; the files keep the order in which they were found.
    fn group(&mut self) {
        let mut files: HashMap<String, usize> = HashMap::new();
        for finding in &self.found {
            let next = files.len();
            files.entry(finding.diagnostic.place.source.name.clone()).or_insert(next);
        }
        let start = |place: &SourcePlace| place.span.as_ref().map_or(0, |span| span.start);
        self.found.sort_by_key(|finding| {
            let place = &finding.diagnostic.place;
            // The count of the diagnostics that are not shown comes after those that are.
            let is_count = finding.diagnostic.code == code::MORE;
            (files.get(&place.source.name).copied(), is_count, start(place))
        });
        self.known.clear();
    }

    /// Returns the numbers of errors and warnings.
    pub(super) fn counts(&self) -> (usize, usize) {
        let count = |severity: Severity| {
            let of_it = self.found.iter().map(|finding| &finding.diagnostic).filter(|it| it.severity == severity);
            of_it.map(|it| it.stands_for).sum()
        };
        (count(Severity::Error), count(Severity::Warning))
    }
}

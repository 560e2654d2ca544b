//! A tree of graphs on disk: its trusted keys, its contracts, and the way of one file through all stages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_model::name::ItemId;
use graph_model::signature::KeyRing;
use proc_macro2::TokenStream;

use crate::builtin;
use crate::check::{self, Contracts};
use crate::definition::{self, Contract, Definition, NodeKind};
use crate::diagnostic::{Diagnostic, Diagnostics, Place, code};
use crate::expand;
use crate::graph::{Graph, Outline};
use crate::parallel;
use crate::source::Source;
use crate::tree;
use crate::verify::verify;

/// The directory of a tree that holds its trusted keys.
const KEYS: &str = "keys";
/// The directory of a tree that holds its tools' contracts.
const TOOLS: &str = "tools";

/// A tree of graphs: the directory with `keys`, `tools`, and the graphs.
#[derive(Debug)]
pub struct Project {
    /// The directory of the package; paths in generated code are relative to it.
    package: PathBuf,
    /// The directory of the tree.
    root: PathBuf,
    ring: KeyRing,
    keys: Vec<PathBuf>,
    rejected: Vec<Diagnostic>,
}

/// What became of a file.
#[derive(Debug)]
pub struct Compilation {
    /// The name of its module.
    pub name: String,
    /// Its types, if it could be read.
    pub outline: Option<Outline>,
    /// The graph, if it has no mistakes.
    pub graph: Option<Graph>,
    /// What is to be said, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// The file, relative to the package where it is in it: what generated code calls it, wherever rustc was started.
    pub source: String,
    /// The files that it was compiled from, relative to the package where they are in it.
    pub files: Vec<String>,
}

impl Compilation {
    /// Returns the module's tokens: the graph, or what can stand in for it where it has mistakes.
    pub fn expand(&self) -> TokenStream {
        match (&self.graph, &self.outline) {
            (Some(graph), _) => expand::expand(graph, &self.name, &self.source, &self.files),
            (None, Some(outline)) => expand::skeleton(outline, &self.name, &self.files),
            (None, None) => expand::nothing(&self.name, &self.files),
        }
    }
}

impl Project {
    /// Opens the tree that `directory` is, in the package at `package`.
    pub fn open(package: &Path, directory: &Path) -> Self {
        let (ring, rejected, keys) = KeyRing::load(&[&directory.join(KEYS)]);
        let rejected = rejected
            .into_iter()
            .map(|rejected| {
                let name = display_name(package, &rejected.path);
                let message = format!("`{name}` is refused as a trusted key: {}", rejected.error);
                let place = Place::file(&Source::new(&rejected.path, name, ""));
                let mut diagnostic = Diagnostic::new(code::BAD_KEY_FILE, message, place);
                diagnostic.help("write it anew with `graph keys trust`, or remove it");
                diagnostic
            })
            .collect();
        Self { package: package.to_owned(), root: directory.to_owned(), ring, keys, rejected }
    }

    /// Opens the tree that `file` is part of: the nearest directory above it with `keys` in it, else its own directory.
    pub fn around(package: &Path, file: &Path) -> Self {
        let own = file.parent().unwrap_or(package);
        let inside = |directory: &&Path| directory.starts_with(package);
        let root = own.ancestors().take_while(inside).find(|directory| directory.join(KEYS).is_dir()).unwrap_or(own);
        Self::open(package, root)
    }

    /// Returns the directory of the tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the keys that the tree trusts.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Returns what is wrong with files in `keys`.
    pub fn rejected_keys(&self) -> &[Diagnostic] {
        &self.rejected
    }

    /// Takes a file through all stages: read, verify, parse, check.
    pub fn compile(&self, file: &Path) -> Compilation {
        let name = display_name(&self.package, file);
        match Source::read(file, &name) {
            Ok(source) => self.compile_source(source),
            Err(problem) => self.finish(file, Diagnostics::from(*problem), None, None, &[]),
        }
    }

    /// As [`Project::compile`], for a text that is already in memory.
    pub fn compile_source(&self, source: Arc<Source>) -> Compilation {
        let mut diagnostics = Diagnostics::new();
        let path = source.path.clone();
        let verified = match verify(&source, &self.ring) {
            Ok(verified) => verified,
            Err(problem) => return self.finish(&path, Diagnostics::from(*problem), None, None, &[]),
        };
        let Some(yaml) = tree::parse(&source, &mut diagnostics) else {
            return self.finish(&path, diagnostics, None, None, &[]);
        };
        let again = || tree::read_again(&source, &yaml);
        let (disagreement, checked) = parallel::both(again, || {
            let definition = definition::parse(verified, &yaml, &mut diagnostics)?;
            let (contracts, files) = self.contracts(&definition, &mut diagnostics);
            Some((check::check(&definition, &contracts, &mut diagnostics), files))
        });
        diagnostics.extend(disagreement);
        match checked {
            Some((checked, files)) => self.finish(&path, diagnostics, Some(checked.outline), checked.graph, &files),
            None => self.finish(&path, diagnostics, None, None, &[]),
        }
    }

    fn finish(
        &self,
        path: &Path,
        mut diagnostics: Diagnostics,
        outline: Option<Outline>,
        graph: Option<Graph>,
        contracts: &[PathBuf],
    ) -> Compilation {
        // What a tree trusts must be clear: one bad key file, and nothing compiles.
        diagnostics.extend(self.rejected.iter().cloned());
        let graph = graph.filter(|_| !diagnostics.has_errors());
        let files = std::iter::once(path).chain(contracts.iter().chain(&self.keys).map(PathBuf::as_path));
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        Compilation {
            name: expand::module_name(stem),
            source: relative_name(&self.package, path),
            outline,
            graph,
            diagnostics: diagnostics.in_order(&display_name(&self.package, path)),
            files: files.filter(|file| file.is_file()).map(|file| relative_name(&self.package, file)).collect(),
        }
    }

    /// Reads the contracts of the tools that a graph calls, the tree's own before the built-in ones.
    fn contracts(&self, definition: &Definition, diagnostics: &mut Diagnostics) -> (Contracts, Vec<PathBuf>) {
        let tools: BTreeSet<&ItemId> = definition
            .nodes
            .iter()
            .filter_map(|node| match &node.kind {
                NodeKind::Action(action) => Some(&action.item_id.value),
                _ => None,
            })
            .collect();
        let tools: Vec<&ItemId> = tools.into_iter().collect();
        let (mut contracts, mut files) = (Contracts::new(), Vec::new());
        for (id, found) in tools.iter().zip(parallel::map(&tools, |id| self.contract(id))) {
            contracts.extend(found.contract.map(|contract| ((*id).clone(), contract)));
            files.extend(found.file);
            diagnostics.extend(found.diagnostics);
        }
        (contracts, files)
    }

    fn contract(&self, id: &ItemId) -> FoundContract {
        let path = self.root.join(TOOLS).join(format!("{id}.yaml"));
        if !path.exists() {
            return FoundContract { contract: builtin::contract(id), file: None, diagnostics: Diagnostics::new() };
        }
        let mut diagnostics = Diagnostics::new();
        let verified =
            Source::read(&path, &display_name(&self.package, &path)).and_then(|source| verify(&source, &self.ring));
        let contract = match verified {
            Ok(verified) => definition::parse_contract(&verified, id, &mut diagnostics),
            Err(problem) => {
                diagnostics.push(*problem);
                None
            }
        };
        if let Some(contract) = &contract {
            builtin::check(id, contract, &mut diagnostics);
        }
        FoundContract { contract, file: Some(path), diagnostics }
    }
}

/// What there is of a tool's contract.
struct FoundContract {
    contract: Option<Contract>,
    /// The tree's own file.
    file: Option<PathBuf>,
    diagnostics: Diagnostics,
}

/// Returns a path as messages show it: relative to the working directory, else to the package, with forward slashes.
pub fn display_name(package: &Path, path: &Path) -> String {
    let working = std::env::current_dir().unwrap_or_default();
    let shown = path.strip_prefix(&working).or_else(|_| path.strip_prefix(package)).unwrap_or(path);
    if shown.as_os_str().is_empty() { ".".to_owned() } else { shown.to_string_lossy().replace('\\', "/") }
}

/// Returns a path as generated code holds it: relative to the package where it is in it.
fn relative_name(package: &Path, path: &Path) -> String {
    path.strip_prefix(package).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

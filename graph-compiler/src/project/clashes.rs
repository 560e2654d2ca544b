//! Graphs of a tree that cannot coexist: those with the same id, or with the same name in the generated code.
//!
//! Each of them gets the same diagnostic. So it is reported if only one of them is compiled, and reported once if all
//! of them are.

use std::path::{Path, PathBuf};

use graph_definition::diagnostic::{Diagnostic, SourcePlace, code};
use graph_definition::source::SourceFile;
use graph_model::name::ItemId;

use super::{Project, TOOLS, TakenNames, display_name};
use crate::builtin;
use crate::expand::{machine_name, module_name};

impl Project {
    /// Reports the other graphs and contracts that clash with the graph in a file; `inner` are the graphs that run inside it.
    pub(super) fn clashes(&self, file: &Path, inner: &[PathBuf]) -> Vec<Diagnostic> {
        let file = self.listed(file);
        let mut found = self.of_one_id(&file);
        let names = self.names.get_or_init(|| self.names());
        let (directory, name) = of(&file);
        let there = |name: &str| names.get(&(directory.clone(), name.to_owned())).map_or(&[][..], Vec::as_slice);
        let clash = |one: &Path, other: &Path, name: &str| {
            clash(other, &display_name(&self.package, other), &display_name(&self.package, one), name)
        };
        for name in [&machine_name(&name), &name] {
            found.extend(pairs(&file, there(name)).map(|(one, other)| clash(one, other, name)));
        }
        // The module of an inner graph is imported into the directory of the graph that nests it.
        for inner in inner {
            let (from, name) = of(inner);
            // A clash with the nesting graph itself is reported at the nesting.
            if let (Some(one), true) = (there(&name).iter().find(|one| **one != file), from != directory) {
                found.push(clash(one, inner, &name));
            }
        }
        found
    }

    fn of_one_id(&self, file: &Path) -> Vec<Diagnostic> {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let candidates = self.graph_files().get(stem).map_or(&[][..], Vec::as_slice);
        let is_listed = candidates.iter().any(|candidate| candidate == file);
        let contracts = self.root.join(TOOLS);
        // Most names occur once, so no file has to be read a second time.
        let is_tool = || self.contract_ids().iter().any(|(id, _)| id.rsplit('/').next() == Some(stem));
        let is_builtin = builtin::ids().any(|id| id.to_string().rsplit('/').next() == Some(stem));
        if !is_listed || (candidates.len() < 2 && !is_builtin && !is_tool()) {
            return Vec::new();
        }
        let Some(id) = self.graph_id(file) else { return Vec::new() };
        let same: Vec<PathBuf> =
            candidates.iter().filter(|path| self.graph_id(path).as_deref() == Some(&id)).cloned().collect();
        let say = |one: &str, other: &Path| {
            let shown = display_name(&self.package, other);
            let message = format!("{one} and `{shown}` have the same id, `{id}`");
            let mut diagnostic =
                Diagnostic::new(code::AMBIGUOUS_ITEM, message, SourcePlace::file(&SourceFile::new(other, shown, "")));
            diagnostic.help("rename one of the files, or change the `category` of one");
            diagnostic
        };
        let mut found: Vec<Diagnostic> = pairs(file, &same)
            .map(|(one, other)| say(&format!("`{}`", display_name(&self.package, one)), other))
            .collect();
        let contract = contracts.join(format!("{id}.yaml"));
        if contract.is_file() {
            found.push(say(&format!("the contract `{}`", display_name(&self.package, &contract)), file));
        } else if ItemId::new(id.as_str()).is_ok_and(|id| builtin::contract(&id).is_some()) {
            found.push(say(&format!("the built-in tool `{id}`"), file));
        }
        found
    }

    fn names(&self) -> TakenNames {
        let mut names = TakenNames::new();
        let mut note = |directory: &Path, name: String, path: &Path| {
            let there = names.entry((directory.to_owned(), name)).or_default();
            if !there.iter().any(|known| known == path) {
                there.push(path.to_owned());
            }
        };
        let mut files: Vec<&PathBuf> = self.graph_files().values().flatten().collect();
        files.sort();
        for file in files {
            let (directory, name) = of(file);
            note(&directory, machine_name(&name), file);
            note(&directory, name, file);
            for above in directory.ancestors().take_while(|above| *above != self.root && above.starts_with(&self.root))
            {
                if let (Some(parent), Some(name)) = (above.parent(), above.file_name()) {
                    note(parent, module_name(&name.to_string_lossy()), above);
                }
            }
        }
        names
    }
}

/// Returns the pairs that contain `file`, the earlier path first. Each path is paired only with the first of all.
fn pairs<'f>(file: &Path, all: &'f [PathBuf]) -> impl Iterator<Item = (&'f Path, &'f Path)> {
    let (first, others) = all.split_first().map_or((None, all), |(first, others)| (Some(first), others));
    let is_first = first.is_some_and(|first| first == file);
    let others: Vec<&PathBuf> = others.iter().filter(|other| is_first || *other == file).collect();
    others.into_iter().filter_map(move |other| Some((first?.as_path(), other.as_path())))
}

/// Returns the directory of a graph's file, and the name of its module.
fn of(file: &Path) -> (PathBuf, String) {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    (file.parent().unwrap_or(Path::new("")).to_owned(), module_name(stem))
}

/// Reports that two graphs, or a graph and a directory, would have the same name in one module.
pub(crate) fn clash(file: &Path, name: &str, other: &str, taken: &str) -> Diagnostic {
    let message = format!("`{other}` and `{name}` would both become `{taken}` in Rust");
    let mut diagnostic =
        Diagnostic::new(code::AMBIGUOUS_ITEM, message, SourcePlace::file(&SourceFile::new(file, name.to_owned(), "")));
    diagnostic.help("rename one of the files");
    diagnostic
}

//! The settings files that apply at a place of a tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use graph_definition::diagnostic::{Diagnostic, Diagnostics, SourcePlace, code};
use graph_definition::source::SourceFile;
use graph_model::name::ItemId;

use super::{Project, display_name};
use crate::files::is_there;
use crate::levels::{Levels, LintSettings, SETTINGS};
use crate::schedules::ScheduleDefinition;

/// The settings of a tree, each file read once.
#[derive(Debug, Default)]
pub(super) struct SettingsFiles {
    /// The manifest of the package that the graphs become part of.
    manifest: Option<PathBuf>,
    of_manifest: OnceLock<Option<LintSettings>>,
    /// By directory.
    read: Mutex<BTreeMap<PathBuf, Arc<Option<LintSettings>>>>,
}

/// The settings that apply to one graph.
#[derive(Debug, Default)]
pub(super) struct Effective {
    pub(super) levels: Levels,
    /// The files that they come from.
    pub(super) files: Vec<PathBuf>,
    /// The mistakes in those files.
    pub(super) diagnostics: Diagnostics,
}

impl Project {
    /// Applies the table `[package.metadata.graphs]` of a package's `Cargo.toml`, before all files of the tree.
    ///
    /// This is for graphs that become part of that package. A manifest is not signed, so it is ignored where graphs run
    /// without being compiled.
    #[must_use]
    pub fn with_manifest(mut self, manifest: impl Into<PathBuf>) -> Self {
        self.settings = SettingsFiles { manifest: Some(manifest.into()), ..SettingsFiles::default() };
        self
    }

    /// Returns the settings of a graph: from the manifest, the tree's settings file, and those of each directory from
    /// there down to the graph's own. A later setting replaces an earlier one.
    pub(super) fn settings_of(&self, file: &Path, is_review: bool) -> Effective {
        let mut effective = Effective::default();
        let mut add = |settings: &LintSettings| {
            settings.add_to(&mut effective.levels, &mut effective.diagnostics, is_review);
            effective.files.push(settings.path.clone());
        };
        if let Some(settings) = self.settings.of_manifest.get_or_init(|| {
            let manifest = self.settings.manifest.as_ref()?;
            LintSettings::of_manifest(manifest, &display_name(&self.package, manifest))
        }) {
            add(settings);
        }
        for directory in directories(&self.root, file) {
            if let Some(settings) = self.settings_in(&directory).as_ref() {
                add(settings);
            }
        }
        effective
    }

    /// Returns the schedules of the tree, from its own settings file.
    ///
    /// # Errors
    ///
    /// If the file is not signed by a trusted key, has mistakes, or names a graph that the tree does not have. Cron expressions
    /// and time zones are checked with the feature `schedules`.
    pub fn schedules(&self) -> Result<Vec<ScheduleDefinition>, Vec<Diagnostic>> {
        let settings = self.settings_in(&self.root);
        let Some(settings) = settings.as_ref() else { return Ok(Vec::new()) };
        let schedules = settings.schedules()?;
        let is_unknown = |schedule: &&ScheduleDefinition| {
            ItemId::new(schedule.graph.as_str()).map_or(true, |id| self.graph_called(&id).is_none())
        };
        let ids: Vec<String> = self.graph_files().values().flatten().filter_map(|file| self.graph_id(file)).collect();
        let problems: Vec<Diagnostic> = schedules
            .iter()
            .filter(is_unknown)
            .map(|schedule| {
                let (graph, place) = (schedule.graph.as_str(), schedule.places.graph.clone());
                let message = format!("schedule `{}` has a graph that does not exist, `{graph}`", schedule.id);
                let mut problem = Diagnostic::new(code::BAD_SETTINGS, message, place);
                problem.label("no graph of the tree has this id");
                problem.suggest(graph, ids.iter().map(String::as_str));
                problem
            })
            .collect();
        if problems.is_empty() { Ok(schedules.to_vec()) } else { Err(problems) }
    }

    fn misnamed_settings(&self, path: &Path) -> Box<Diagnostic> {
        let name = display_name(&self.package, path);
        let message = format!("`{name}` is not a settings file: those are called `{SETTINGS}`");
        let mut problem =
            Diagnostic::new(code::BAD_SETTINGS, message, SourcePlace::file(&SourceFile::new(path, name, "")));
        problem
            .note("some file systems distinguish such names and some do not")
            .help(format!("rename it to `{SETTINGS}`"));
        Box::new(problem)
    }

    fn settings_in(&self, directory: &Path) -> Arc<Option<LintSettings>> {
        let mut read = self.settings.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(settings) = read.get(directory) {
            return Arc::clone(settings);
        }
        let path = directory.join(SETTINGS);
        // A link to nowhere, or a file that may not be read, counts as present: somebody created it to have an effect.
        let is_of_tree = directory == self.root;
        let is_absent = matches!(is_there(&self.root, &path), Ok(false));
        let settings = if is_absent {
            misnamed(directory)
                .map(|path| LintSettings::read(&path, Err(self.misnamed_settings(&path)), &self.ring, is_of_tree))
        } else {
            Some(LintSettings::read(&path, self.read(&path), &self.ring, is_of_tree))
        };
        let settings = Arc::new(settings);
        read.insert(directory.to_owned(), Arc::clone(&settings));
        settings
    }
}

/// Finds the file of a directory that is meant to be its settings file but has another name: it differs in case.
fn misnamed(directory: &Path) -> Option<PathBuf> {
    let is_meant = |name: &OsStr| name != SETTINGS && name.eq_ignore_ascii_case(SETTINGS);
    // A directory that cannot be read is reported where its graphs are looked for.
    let files = directory.read_dir().ok()?.flatten();
    files.map(|entry| entry.file_name()).find(|name| is_meant(name)).map(|name| directory.join(name))
}

/// Returns the directories of a tree that lead to a file, the tree's own first. For a file outside the tree, it returns
/// only that one.
fn directories(root: &Path, file: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    // A path may leave the tree and enter it again; only the normalized path counts.
    let (root, file) = (plain(root), plain(file));
    for part in file.strip_prefix(&root).ok().and_then(Path::parent).into_iter().flat_map(Path::iter) {
        let next = found.last().map_or_else(|| root.join(part), |last| last.join(part));
        found.push(next);
    }
    found
}

/// Removes `.` and `..` from a path lexically.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use graph_definition::diagnostic::Severity;
    use graph_signing::{ItemKind, KeyFile, SecretKey, sign};

    use super::*;
    use crate::project::Compilation;

    fn signed(text: &str) -> String {
        sign(ItemKind::YAML, text, &SecretKey::from_seed(&[9; 32]), SystemTime::UNIX_EPOCH).unwrap()
    }

    /// Compiles a graph without mistakes at `graphs/sub/g.yaml` in a package with these other files.
    fn compiled(files: &[(&str, String)]) -> Compilation {
        let key = SecretKey::from_seed(&[9; 32]);
        let package = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = package.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let file = KeyFile::new(key.public(), "the key of this test");
        write(&format!("graphs/keys/{}.toml", file.fingerprint), &file.to_signed_toml(&key, SystemTime::UNIX_EPOCH));
        let text = "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                    permissions: [rye.*]\nconfig: { start: a, nodes: { a: { type: return } } }\n";
        write("graphs/sub/g.yaml", &signed(text));
        files.iter().for_each(|(name, text)| write(name, text));
        let project = Project::open(package.path(), &package.path().join("graphs"));
        project.with_manifest(package.path().join("Cargo.toml")).compile(&package.path().join("graphs/sub/g.yaml"))
    }

    fn codes(compilation: &Compilation) -> Vec<&'static str> {
        compilation.diagnostics.iter().map(|diagnostic| diagnostic.code.id).collect()
    }

    #[test]
    fn a_graph_is_compiled_from_the_settings_on_the_way_to_it() {
        let manifest = "[package]\nname = \"p\"\n[package.metadata.graphs]\n".to_owned();
        let (settings, elsewhere) = (signed("[lints]\n"), "nobody reads this".to_owned());
        let compilation = compiled(&[
            ("Cargo.toml", manifest),
            ("graphs/graphs.toml", settings.clone()),
            ("graphs/sub/graphs.toml", settings),
            ("graphs/other/graphs.toml", elsewhere.clone()),
            ("graphs.toml", elsewhere),
        ]);
        assert!(compilation.graph.is_some(), "{:?}", codes(&compilation));
        let files = &compilation.files[..4];
        assert_eq!(files, ["graphs/sub/g.yaml", "Cargo.toml", "graphs/graphs.toml", "graphs/sub/graphs.toml"]);
        let compilation = compiled(&[("Cargo.toml", "[package]\nname = \"p\"\n".to_owned())]);
        assert!(compilation.graph.is_some() && !compilation.files.contains(&"Cargo.toml".to_owned()));
    }

    /// Returns a graph with a lint that warns by default: nothing reads `unread`.
    fn with_a_lint(action: &str) -> String {
        signed(&format!(
            "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: shop\n\
             permissions: [rye.execute.tool.shop.inner]\nconfig:\n  start: a\n  nodes:\n    a: {{ {action}, assign: {{ unread: 1 }}, next: b }}\n    \
             b: {{ type: return, output: {{ x: 1 }} }}\n"
        ))
    }

    #[test]
    fn the_settings_nearest_to_a_graph_decide_its_level() {
        let graph = ("graphs/sub/g.yaml", with_a_lint("type: gate"));
        let says = |level: &str| format!("[lints]\nG0152 = \"{level}\"\n");
        let manifest = |level: &str| format!("[package.metadata.graphs.lints]\nG0152 = \"{level}\"\n");
        for (files, severity, is_graph) in [
            (vec![], Some(Severity::Warning), true),
            (vec![("Cargo.toml", manifest("deny"))], Some(Severity::Error), false),
            (vec![("Cargo.toml", manifest("deny")), ("graphs/graphs.toml", signed(&says("allow")))], None, true),
            (
                vec![("graphs/graphs.toml", signed(&says("allow"))), ("graphs/sub/graphs.toml", signed(&says("deny")))],
                Some(Severity::Error),
                false,
            ),
            (vec![("graphs/other/graphs.toml", signed(&says("deny")))], Some(Severity::Warning), true),
        ] {
            let files: Vec<_> = files.into_iter().chain([graph.clone()]).collect();
            let compilation = compiled(&files);
            let found: Vec<_> = compilation.diagnostics.iter().map(|one| (one.code.id, one.severity)).collect();
            let expected: Vec<_> = severity.map(|severity| ("G0152", severity)).into_iter().collect();
            assert_eq!((found, compilation.graph.is_some()), (expected, is_graph), "{files:?}");
        }
    }

    #[test]
    fn a_nested_graph_has_the_levels_of_its_own_place() {
        let outer = with_a_lint("action: { item_id: shop/inner }");
        let deny = signed("[lints]\nG0152 = \"deny\"\n");
        let allow = signed("[lints]\nG0152 = \"allow\"\n");
        let compilation = compiled(&[
            ("graphs/sub/g.yaml", outer.clone()),
            ("graphs/inner/inner.yaml", with_a_lint("type: gate")),
            ("graphs/sub/graphs.toml", deny.clone()),
            ("graphs/inner/graphs.toml", allow.clone()),
        ]);
        let places = |compilation: &Compilation| -> Vec<(String, Severity)> {
            compilation.diagnostics.iter().map(|one| (one.place.source.name.clone(), one.severity)).collect()
        };
        assert_eq!(places(&compilation), [("graphs/sub/g.yaml".to_owned(), Severity::Error)]);
        assert!(compilation.files.contains(&"graphs/inner/graphs.toml".to_owned()), "{:?}", compilation.files);
        let compilation = compiled(&[
            ("graphs/sub/g.yaml", outer),
            ("graphs/inner/inner.yaml", with_a_lint("type: gate")),
            ("graphs/sub/graphs.toml", allow),
            ("graphs/inner/graphs.toml", deny),
        ]);
        assert_eq!(places(&compilation), [("graphs/inner/inner.yaml".to_owned(), Severity::Error)]);
        assert!(compilation.graph.is_none(), "a graph whose inner one has an error does not compile");
    }

    #[test]
    fn nothing_compiles_below_settings_that_are_refused() {
        for (name, text, code) in [
            ("graphs/graphs.toml", "[lints]\n".to_owned(), "G0010"),
            ("graphs/sub/graphs.toml", signed("[lints]\n").replace("lints", "lint"), "G0011"),
            ("graphs/graphs.toml", signed("[lints]\nG0001 = \"allow\"\n"), "G0017"),
            ("graphs/graphs.toml", String::new(), "G0004"),
            ("graphs/Graphs.toml", signed("[lints]\n"), "G0017"),
            ("graphs/sub/graphs.TOML", signed("[lints]\n"), "G0017"),
            ("Cargo.toml", "[package.metadata.graphs]\nlint = {}\n".to_owned(), "G0017"),
        ] {
            let compilation = compiled(&[(name, text)]);
            assert!(compilation.graph.is_none(), "{name}");
            assert_eq!(codes(&compilation), [code], "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_settings_file_that_leads_nowhere_is_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SETTINGS);
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        let project = Project::open(directory.path(), directory.path());
        assert_eq!(project.settings_of(&directory.path().join("g.yaml"), false).diagnostics.len(), 1);
    }

    #[test]
    fn settings_are_searched_only_from_tree_root_down_to_graph() {
        let found = |root: &str, file: &str| -> Vec<String> {
            let found = directories(Path::new(root), Path::new(file));
            found.iter().map(|directory| directory.to_str().unwrap().replace('\\', "/")).collect()
        };
        assert_eq!(found("p/graphs", "p/graphs/g.yaml"), ["p/graphs"]);
        assert_eq!(found("p/graphs", "p/graphs/a/b/g.yaml"), ["p/graphs", "p/graphs/a", "p/graphs/a/b"]);
        assert_eq!(found("p/graphs", "p/graphs/../graphs/./a/g.yaml"), ["p/graphs", "p/graphs/a"]);
        assert_eq!(found("p/graphs", "p/other/g.yaml"), ["p/graphs"]);
        assert_eq!(found("../graphs", "../graphs/a/g.yaml"), ["../graphs", "../graphs/a"]);
    }
}

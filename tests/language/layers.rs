//! The layers of the crates: a step is pure, an audit has no rules of its own, and files import only from layers below
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Item, UseTree, Visibility};

/// The maximum number of files that may import each other in a cycle.
const MOST_IN_CIRCLE: usize = 3;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the source directories of all published crates.
pub(crate) fn crates() -> Vec<PathBuf> {
    let children = |directory: PathBuf| {
        let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let mut all = children(root().join("crates"));
    all.extend(
        children(root().to_owned()).into_iter().filter(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("graph-"))
        }),
    );
    let mut all: Vec<PathBuf> = all.into_iter().map(|path| path.join("src")).filter(|path| path.is_dir()).collect();
    all.sort();
    all
}

/// Returns the sources below a directory, with their paths.
pub(crate) fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let (mut open, mut found) = (vec![directory.to_owned()], Vec::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

/// Returns the lines of a source without comments, up to its tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
    lines.filter(|line| !line.trim_start().starts_with("//"))
}

/// Fails if a word occurs in the code of a source.
fn has_none_of(path: &Path, text: &str, words: &[&str]) {
    for line in code(text) {
        let is_in = |word: &&str| {
            let is_part = |at: Option<char>| at.is_some_and(|at| at.is_alphanumeric() || at == '_');
            line.match_indices(*word).any(|(at, _)| {
                !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next())
            })
        };
        if let Some(word) = words.iter().find(|word| is_in(word)) {
            panic!("{}: `{word}` in `{}`", path.display(), line.trim());
        }
    }
}

#[test]
fn a_step_calls_nothing_and_waits_for_nothing() {
    let engine = root().join("crates/graph-engine/src");
    let mut all = sources(&engine.join("step"));
    all.push((engine.join("step.rs"), fs::read_to_string(engine.join("step.rs")).unwrap()));
    assert!(all.len() > 10);
    for (path, text) in all {
        let effects = ["async", "await", "tokio", "Instant", "now()", "spawn", "tracing", "std::env", "std::fs"];
        has_none_of(&path, &text, &effects);
        let above = ["engine", "runtime", "services", "store", "record", "start", "resume", "hooks"];
        let above: Vec<String> = above.iter().map(|module| format!("crate::{module}")).collect();
        has_none_of(&path, &text, &above.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn an_audit_knows_no_kinds_policies_and_edges() {
    let all = sources(&root().join("crates/graph-proof/src/audit"));
    assert!(all.len() > 5);
    for (path, text) in all {
        let rules = [
            "CompiledKind",
            "CompiledRoute",
            "CompiledEdge",
            "ListRoute",
            "ValueRoute",
            "Comparison",
            "OnError",
            "OnMaxSteps",
            "OnNoMatch",
            "on_error",
            "on_max_steps",
            "on_no_match",
            "Foreach",
            "Gate",
            "Return",
        ];
        has_none_of(&path, &text, &rules);
    }
}

/// The files of a crate, and their imports from each other.
struct Crate {
    /// The file of each module, by the module's path.
    files: BTreeMap<Vec<String>, PathBuf>,
    /// The names that a module defines.
    defined: BTreeMap<Vec<String>, BTreeSet<String>>,
    /// The names that a module re-exports, with the paths of their definitions.
    shown: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
    /// The paths that a module imports.
    imported: BTreeMap<Vec<String>, Vec<Vec<String>>>,
}

impl Crate {
    fn read(directory: &Path) -> Self {
        let mut read = Self {
            files: BTreeMap::new(),
            defined: BTreeMap::new(),
            shown: BTreeMap::new(),
            imported: BTreeMap::new(),
        };
        let all = sources(directory);
        for (path, _) in &all {
            read.files.insert(module_of(directory, path), path.clone());
        }
        for (path, text) in &all {
            let module = module_of(directory, path);
            let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for item in file.items {
                read.take(&module, item);
            }
        }
        read
    }

    fn take(&mut self, module: &[String], item: Item) {
        let name = match item {
            Item::Use(item) => {
                let (mut leaves, is_shown) = (Vec::new(), !matches!(item.vis, Visibility::Inherited));
                flatten(&item.tree, &mut Vec::new(), &mut leaves);
                for (path, name) in leaves {
                    let Some(path) = self.absolute(module, path) else { continue };
                    if is_shown {
                        self.shown.entry(module.to_vec()).or_default().insert(name, path);
                    } else {
                        self.imported.entry(module.to_vec()).or_default().push(path);
                    }
                }
                return;
            }
            Item::Const(item) => item.ident,
            Item::Enum(item) => item.ident,
            Item::Fn(item) => item.sig.ident,
            Item::Static(item) => item.ident,
            Item::Struct(item) => item.ident,
            Item::Trait(item) => item.ident,
            Item::Type(item) => item.ident,
            _ => return,
        };
        self.defined.entry(module.to_vec()).or_default().insert(name.to_string());
    }

    /// Returns a path from the crate's root, if it leads into the crate.
    fn absolute(&self, module: &[String], path: Vec<String>) -> Option<Vec<String>> {
        let mut path = path.into_iter().peekable();
        let mut from = match path.peek()?.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last().map(|(_, around)| around.to_vec())?,
            child => {
                let inside: Vec<String> = module.iter().cloned().chain([child.to_owned()]).collect();
                return self.files.contains_key(&inside).then(|| module.iter().cloned().chain(path).collect());
            }
        };
        path.next();
        while path.next_if(|segment| segment == "super").is_some() {
            from.pop();
        }
        from.extend(path);
        Some(from)
    }

    /// Returns the module that defines the item at a path.
    fn home(&self, path: &[String], depth: usize) -> Option<Vec<String>> {
        let (name, module) = path.split_last()?;
        if self.files.contains_key(path) {
            return Some(path.to_vec());
        }
        if self.defined.get(module).is_some_and(|names| names.contains(name)) || depth > 10 {
            return Some(module.to_vec());
        }
        if let Some(elsewhere) = self.shown.get(module).and_then(|shown| shown.get(name)) {
            return self.home(elsewhere, depth + 1);
        }
        self.home(module, depth + 1)
    }

    /// Returns the modules that each module imports from.
    fn arrows(&self) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
        let of = |(module, paths): (&Vec<String>, &Vec<Vec<String>>)| {
            let homes = paths.iter().filter_map(|path| self.home(path, 0)).filter(|home| home != module);
            (module.clone(), homes.collect())
        };
        self.imported.iter().map(of).collect()
    }
}

/// Returns the path of the module in a file.
fn module_of(directory: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(directory).unwrap().with_extension("");
    let mut module: Vec<String> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Flattens a tree of imports: the whole path of each leaf, and its local name.
fn flatten(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    let with = |before: &[String], name: &syn::Ident| {
        before.iter().cloned().chain((name != "self").then(|| name.to_string())).collect::<Vec<_>>()
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) => leaves.push((with(before, &name.ident), name.ident.to_string())),
        UseTree::Rename(name) => leaves.push((with(before, &name.ident), name.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, leaves)),
        UseTree::Glob(_) => leaves.push((before.clone(), "*".to_owned())),
    }
}

/// Returns the cycles among arrows: sets of nodes that can be reached from each other.
fn circles<T: Clone + Ord>(arrows: &BTreeMap<T, BTreeSet<T>>) -> Vec<BTreeSet<T>> {
    let reached = |from: &T| {
        let (mut open, mut seen) = (vec![from.clone()], BTreeSet::new());
        while let Some(at) = open.pop() {
            for to in arrows.get(&at).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&T, BTreeSet<T>> = arrows.keys().map(|from| (from, reached(from))).collect();
    let mut found = BTreeSet::new();
    for (from, reached) in &all {
        if reached.contains(*from) {
            let is_back = |to: &&T| all.get(to).is_some_and(|back| back.contains(*from));
            found.insert(reached.iter().filter(is_back).cloned().collect::<BTreeSet<T>>());
        }
    }
    found.into_iter().collect()
}

#[test]
fn cycles_of_imports_are_found() {
    let arrows = |pairs: &[(u8, u8)]| {
        let mut arrows: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
        for (from, to) in pairs {
            arrows.entry(*from).or_default().insert(*to);
        }
        circles(&arrows)
    };
    assert!(arrows(&[(1, 2), (2, 3), (1, 3)]).is_empty());
    assert_eq!(arrows(&[(1, 2), (2, 3), (3, 1), (3, 4)]), [BTreeSet::from([1, 2, 3])]);
}

#[test]
fn import_cycles_are_small_and_stay_within_a_directory() {
    let (mut files, mut wrong) = (0, Vec::new());
    for directory in crates() {
        let read = Crate::read(&directory);
        files += read.files.len();
        let arrows = read.arrows();
        let shown = |module: &Vec<String>| module.join("::");
        for circle in circles(&arrows).into_iter().filter(|circle| circle.len() > MOST_IN_CIRCLE) {
            let names: Vec<String> = circle.iter().map(shown).collect();
            wrong.push(format!("{}: {}", directory.display(), names.join(", ")));
        }
        // A directory is a module with others in it. A file and its own directory count as one.
        let is_room = |name: &String| read.files.keys().any(|module| module.len() > 1 && module[0] == *name);
        let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
            if let (Some(from), Some(to)) = (from.first(), to.first())
                && from != to
                && is_room(from)
                && is_room(to)
            {
                rooms.entry(from.clone()).or_default().insert(to.clone());
            }
        }
        let of_rooms = circles(&rooms);
        wrong.extend(of_rooms.iter().map(|circle| format!("{}: directories {circle:?}", directory.display())));
    }
    assert!(files > 200, "{files}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The maximum number of code lines below `graph-runtime` without features; blank lines, comments and tests do not
/// count. It is lowered when there are fewer lines.
const MOST_LINES: usize = 26_040;

/// The files that are compiled only with a feature.
const OF_FEATURES: [&str; 19] = [
    "item.rs",
    "ring.rs",
    "conformance.rs",
    "conformance/open_waits.rs",
    "conformance/schedules.rs",
    "conformance/signals.rs",
    "graph/shown.rs",
    "graph/topology.rs",
    "observer/progress.rs",
    "src/events.rs",
    "events/feed.rs",
    "events/follow.rs",
    "events/hub.rs",
    "events/log.rs",
    "src/schedules.rs",
    "src/tasks.rs",
    "timetable.rs",
    "timetable/cron.rs",
    "worker/ticks.rs",
];

#[test]
fn a_runtime_without_features_stays_small() {
    let mut lines = 0;
    for name in ["graph-model", "graph-signing", "graph-engine"] {
        for (path, text) in sources(&root().join("crates").join(name).join("src")) {
            let is_of_feature = OF_FEATURES.iter().any(|file| path.ends_with(file));
            if !is_of_feature && !path.ends_with("tests.rs") {
                lines += code(&text).filter(|line| !line.trim().is_empty()).count();
            }
        }
    }
    println!("{lines} lines");
    assert!(lines > 10_000, "the sources are read: {lines}");
    assert!(lines <= MOST_LINES, "{lines} lines of code are below a runtime without features, over {MOST_LINES}");
}

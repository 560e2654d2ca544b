//! A tree of graphs on disk: its trusted keys, its contracts, and the stages that a file passes through.

mod clashes;
mod contract_graphs;
mod directives;
mod nesting;
mod offered;
mod settings;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use graph_definition::definition::{self, AgentLimits, Contract, Definition, ValueSchema};
use graph_definition::diagnostic::{Diagnostic, DiagnosticIdentity, Diagnostics, Severity, SourcePlace, code, nearest};
use graph_definition::hash::HashSet;
use graph_definition::source::SourceFile;
use graph_definition::tree::{self, YamlFile};
use graph_definition::verify::{DefinitionOrigin, verify};
use graph_model::capability::Capability;
use graph_model::digest::Digest;
use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_signing::{ItemKind, KeyFile, KeyRing, SecretKey, open, sign};
use proc_macro2::TokenStream;

use crate::analysis::calls::{calls_threads, task_names};
use crate::builtin;
use crate::check::{self, Wanted};
use crate::expand::{self, ToolsPlace};
pub use crate::files::display_name;
use crate::files::{FileWalk, find_graphs, find_signed, is_there, walk};
use crate::graph::{CheckedGraph, Interface, TypedTool};
use crate::items::{Items, Reachable};
use crate::parallel;
pub(crate) use clashes::clash;
pub use contract_graphs::find_contract_graphs;
use nesting::Nesting;
pub use offered::{Offered, OfferedKind};
use settings::{Effective, SettingsFiles};

/// The directory of a tree that holds its trusted keys.
const KEYS: &str = "keys";
/// The directory of a tree that holds its tools' contracts.
pub(crate) const TOOLS: &str = "tools";

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
    nesting: Nesting,
    names: OnceLock<TakenNames>,
    settings: SettingsFiles,
    /// Whether files that cannot be verified are read too, wherever they are used.
    is_for_review: bool,
    /// Whether files that their author has not signed count as signed.
    has_drafts: bool,
    /// Texts that replace the content of files, by the files' canonical paths.
    texts: BTreeMap<PathBuf, Arc<SourceFile>>,
    /// The files of the graphs and of the contracts.
    walks: OnceLock<(FileWalk, FileWalk)>,
    contract_ids: OnceLock<Vec<(String, PathBuf)>>,
    /// The directories of the tree that cannot be read, as diagnostics.
    unreadable: OnceLock<Vec<Diagnostic>>,
    /// The contracts that were read, so that each is read and verified once.
    contracts: Mutex<FoundContracts>,
}

/// The contracts by their ids, and by whether unverified ones are read too.
type FoundContracts = BTreeMap<(ItemId, bool), Arc<OnceLock<Arc<FoundContract>>>>;

/// The names that are taken in the module of a directory, and the paths that take them: graphs, their machines, directories.
type TakenNames = BTreeMap<(PathBuf, String), Vec<PathBuf>>;

/// The result of compiling a file.
#[derive(Debug)]
pub struct Compilation {
    /// The name of its module.
    pub name: String,
    /// Its types, if it could be read.
    pub interface: Option<Interface>,
    /// The graph, if it has no mistakes and was asked for.
    pub graph: Option<CheckedGraph>,
    /// The diagnostics, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// The file, relative to the package if it is inside. Generated code uses this name, whatever rustc's working directory is.
    pub source: String,
    /// The files that it was compiled from, relative to the package if they are inside. Empty for a review.
    pub files: Vec<String>,
    /// The files of the graphs that run inside it, directly or through others.
    pub inner: Vec<PathBuf>,
}

/// The result of examining a file by itself, without the mistakes of the graphs inside it.
#[derive(Debug, Default)]
struct Examined {
    interface: Option<Interface>,
    graph: Option<CheckedGraph>,
    diagnostics: Diagnostics,
    contracts: Vec<PathBuf>,
    /// The settings files that apply to it.
    settings: Vec<PathBuf>,
    inner: Vec<PathBuf>,
}

/// The parsed text.
struct ParsedText {
    yaml: YamlFile,
    /// The file's content, and the items that it calls.
    read: Option<(Definition, Items)>,
}

/// The analysis of a text that may be unsigned and unfinished.
#[derive(Debug)]
pub struct Unfinished {
    /// The mistakes, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// The values in the file, as far as they could be read, and the text that was read: the text itself, with blanks
    /// in place of unreadable parts.
    pub read: Option<(Arc<SourceFile>, YamlFile)>,
    /// The file's content, and the items that it calls, if it is a graph that can be read unchanged.
    pub definition: Option<(Definition, Items)>,
}

impl From<Box<Diagnostic>> for Examined {
    fn from(problem: Box<Diagnostic>) -> Self {
        Self { diagnostics: Diagnostics::from(*problem), ..Self::default() }
    }
}

impl Compilation {
    /// Returns the module's tokens, with the contracts of its tools: the graph, or a substitute if it has mistakes.
    pub fn expand(&self) -> TokenStream {
        self.expand_with(ToolsPlace::Inside { reused: None })
    }

    /// As [`Compilation::expand`], with the contracts of its tools in another place.
    pub fn expand_with(&self, tools: ToolsPlace<'_>) -> TokenStream {
        match (&self.graph, &self.interface) {
            (Some(graph), _) => expand::expand(graph, &self.name, &self.source, &self.files, tools),
            (None, Some(interface)) => expand::skeleton(interface, &self.name, &self.files, tools),
            (None, None) => expand::nothing(&self.name, &self.files),
        }
    }
}

impl Project {
    /// Opens the tree in `directory`, in the package at `package`.
    pub fn open(package: &Path, directory: &Path) -> Self {
        let (ring, rejected, keys) = KeyRing::load(&[&directory.join(KEYS)]);
        let rejected = rejected
            .into_iter()
            .map(|rejected| {
                let name = display_name(package, &rejected.path);
                let message = format!("`{name}` is refused as a trusted key: {}", rejected.error);
                let place = SourcePlace::file(&SourceFile::new(&rejected.path, name, ""));
                let mut diagnostic = Diagnostic::new(code::BAD_KEY_FILE, message, place);
                diagnostic.help("write it again with `graph keys trust`, or remove it");
                diagnostic
            })
            .collect();
        Self {
            package: package.to_owned(),
            root: directory.to_owned(),
            ring,
            keys,
            rejected,
            nesting: Nesting::default(),
            names: OnceLock::new(),
            walks: OnceLock::new(),
            contract_ids: OnceLock::new(),
            unreadable: OnceLock::new(),
            contracts: Mutex::default(),
            settings: SettingsFiles::default(),
            is_for_review: false,
            has_drafts: false,
            texts: BTreeMap::new(),
        }
    }

    /// Opens the tree that `file` is part of: the outermost directory above it, in the package, with `keys` in it; else
    /// its own directory. So a key file below a tree's root cannot make the tree trust a key.
    pub fn around(package: &Path, file: &Path) -> Self {
        let own = file.parent().unwrap_or(package);
        let inside = |directory: &&Path| directory.starts_with(package);
        let trees = own.ancestors().take_while(inside).filter(|directory| is_tree(directory));
        Self::open(package, trees.last().unwrap_or(own))
    }

    /// Reads files that cannot be verified too, wherever they are used: graphs that others nest, contracts. A graph
    /// that uses one of them is not compiled.
    #[must_use]
    pub fn for_review(mut self) -> Self {
        self.is_for_review = true;
        self
    }

    /// Uses a text as the content of a file of the tree, such as an editor's unsaved text, or a change that is to be tried.
    #[must_use]
    pub fn with_text(mut self, source: Arc<SourceFile>) -> Self {
        self.texts.insert(whole(&source.path), source);
        self.contracts = Mutex::default();
        self
    }

    /// Uses the files of the tree that no trusted key signed as if `key` had signed them, and returns these files: graphs,
    /// contracts and settings that are unsigned, changed since, or signed by an unknown key. A file whose signature was revoked or
    /// forged stays refused.
    ///
    /// This is for tests, which run what an author is working on and call no real tool. Nothing is written, and no other project
    /// trusts `key`. If a file had no line with a signature, its text has one more line than the file.
    #[must_use]
    pub fn with_drafts(mut self, key: &SecretKey) -> (Self, Vec<PathBuf>) {
        let is_draft = |problem: &Diagnostic| {
            [code::UNSIGNED, code::ALTERED, code::UNTRUSTED, code::MALFORMED_SIGNATURE].contains(&problem.code)
        };
        let is_blocked = |source: &SourceFile| {
            matches!(open(ItemKind::of(&source.name, &source.text), &source.text),
            Ok(opened) if self.ring.blocked(&opened.envelope.fingerprint).is_some())
        };
        let mut drafts = Vec::new();
        for file in find_signed(&self.root).files {
            let Ok(source) = self.read(&file) else { continue };
            let Err(problem) = verify(&source, &self.ring) else { continue };
            if !is_draft(&problem) || is_blocked(&source) {
                continue;
            }
            let signed = sign(ItemKind::YAML, &source.text, key, SystemTime::UNIX_EPOCH);
            drafts.extend(signed.ok().map(|text| SourceFile::new(&source.path, &source.name, &text)));
        }
        let own = KeyFile::new(key.public(), "the author of the drafts");
        self.ring = KeyRing::from_files(self.ring.keys().cloned().chain([own]));
        let files = drafts.iter().map(|source| source.path.clone()).collect();
        self.has_drafts = true;
        (drafts.into_iter().fold(self, Self::with_text), files)
    }

    /// Returns the directory of the tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the keys that the tree trusts.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Returns the mistakes in the files in `keys`.
    pub fn rejected_keys(&self) -> &[Diagnostic] {
        &self.rejected
    }

    /// Takes a file through all stages: read, verify, parse, check. The graphs that run inside it are checked too.
    pub fn compile(&self, file: &Path) -> Compilation {
        self.finish(file, self.examine_file(file, Wanted::Graph), Wanted::Graph)
    }

    /// As [`Project::compile`], for a text that is already in memory.
    pub fn compile_source(&self, source: Arc<SourceFile>) -> Compilation {
        let path = source.path.clone();
        self.finish(&path, self.examine(&source, Wanted::Graph), Wanted::Graph)
    }

    /// Reports all mistakes of a file, as [`Project::compile`], and checks a file that cannot be verified too. Yields no graph.
    pub fn review(&self, file: &Path) -> Compilation {
        match self.read(file) {
            Ok(source) => self.review_source(source),
            Err(problem) => self.finish(file, problem.into(), Wanted::Findings),
        }
    }

    /// As [`Project::review`], for several files at the same time. The results are in the order of `files`.
    pub fn review_all(&self, files: &[PathBuf]) -> Vec<Compilation> {
        parallel::map(files, |file| self.review(file))
    }

    /// As [`Project::review`], for a text that is already in memory, as an editor has it.
    pub fn review_source(&self, source: Arc<SourceFile>) -> Compilation {
        let (examined, _) = self.look(&source, true, Wanted::Findings);
        self.finish(&source.path, examined, Wanted::Findings)
    }

    /// As [`Project::review_source`], with the parsed text, for an author who is still writing it. A file in the tree's
    /// `tools` is a contract.
    pub fn review_unfinished(&self, source: &Arc<SourceFile>) -> Unfinished {
        let (diagnostics, parts) = match self.tool_of(&source.path) {
            Some(id) => (self.review_contract(source, &id), None),
            None => {
                let (examined, parts) = self.look(source, true, Wanted::Findings);
                (self.finish(&source.path, examined, Wanted::Findings).diagnostics, parts)
            }
        };
        match parts {
            Some(ParsedText { yaml, read }) => {
                Unfinished { diagnostics, read: Some((Arc::clone(source), yaml)), definition: read }
            }
            None => Unfinished { diagnostics, read: tree::parse_unfinished(source), definition: None },
        }
    }

    fn read(&self, file: &Path) -> Result<Arc<SourceFile>, Box<Diagnostic>> {
        match self.text(file) {
            Some(source) => Ok(source),
            None => SourceFile::read(file, &display_name(&self.package, file)),
        }
    }

    /// Returns the text that replaces the content of a file, if there is one.
    fn text(&self, file: &Path) -> Option<Arc<SourceFile>> {
        if self.texts.is_empty() {
            return None;
        }
        self.texts.get(&whole(file)).cloned()
    }

    fn examine_file(&self, file: &Path, wanted: Wanted) -> Examined {
        match self.read(file) {
            Ok(source) => self.examine(&source, wanted),
            Err(problem) => problem.into(),
        }
    }

    fn examine(&self, source: &Arc<SourceFile>, wanted: Wanted) -> Examined {
        self.look(source, self.is_for_review, wanted).0
    }

    /// Examines a text; with `is_review`, also one that cannot be verified.
    fn look(&self, source: &Arc<SourceFile>, is_review: bool, wanted: Wanted) -> (Examined, Option<ParsedText>) {
        match verify(source, &self.ring) {
            Ok(verified) => self.examine_text(verified.into(), Diagnostics::new(), is_review, wanted),
            Err(problem) if is_review => {
                let problem = self.outside(problem, &source.path);
                self.examine_text(
                    DefinitionOrigin::Draft(Arc::clone(source)),
                    Diagnostics::from(*problem),
                    is_review,
                    wanted,
                )
            }
            Err(problem) => (self.outside(problem, &source.path).into(), None),
        }
    }

    /// Adds a note for a file outside the package that names the keys it was verified with: its tree is then its own
    /// directory, since a directory further up may belong to somebody else.
    fn outside(&self, mut problem: Box<Diagnostic>, file: &Path) -> Box<Diagnostic> {
        if problem.code == code::UNTRUSTED && !file.starts_with(&self.package) {
            let keys = display_name(&self.package, &self.root.join(KEYS));
            problem.note(format!(
                "outside the working directory only the keys beside a file count, here those of `{keys}`: run this in the \
                 directory of the tree"
            ));
        }
        problem
    }

    fn examine_text(
        &self,
        origin: DefinitionOrigin,
        diagnostics: Diagnostics,
        is_review: bool,
        wanted: Wanted,
    ) -> (Examined, Option<ParsedText>) {
        let source = &Arc::clone(origin.source());
        let Effective { levels, files, diagnostics: of_settings } = self.settings_of(&source.path, is_review);
        let mut examined = Examined { diagnostics, settings: files, ..Examined::default() };
        examined.diagnostics.append(&of_settings);
        let Some(yaml) = tree::parse(source, &mut examined.diagnostics) else { return (examined, None) };
        let again = || tree::read_again(source, &yaml);
        let (disagreement, (mut examined, read)) = parallel::both(again, || {
            let diagnostics = &mut examined.diagnostics;
            let Ok(meant) = self.meant(source, &yaml, wanted, diagnostics) else { return (examined, None) };
            let agent = meant.as_ref().and_then(|meant| Some((&meant.contract, meant.contract.agent()?)));
            let directive =
                agent.and_then(|(contract, agent)| self.check_directive(source, contract, agent, diagnostics));
            let yaml = meant.as_ref().map_or(&yaml, |meant| &meant.graph);
            let Some(definition) = definition::parse(origin, yaml, diagnostics) else { return (examined, None) };
            examined.inner = self.inside(definition.executed());
            let caller = &definition.source().path;
            let ids: BTreeSet<&ItemId> = definition.executed().into_iter().chain(definition.functions()).collect();
            let (mut items, mut contracts) = self.items(&ids, caller, &examined.inner, is_review, diagnostics);
            items.contracts.extend(meant.as_ref().and_then(|meant| meant.asked.clone()));
            let (reachable, files) = self.reachable(&definition, is_review, diagnostics);
            items.reachable = reachable;
            items.agent = agent.map(|(_, agent)| agent.limits.clone());
            items.most_calls = meant.as_ref().and_then(|meant| Some(u64::from(meant.contract.program()?.most_calls)));
            let (tasks, files_of_tasks) = self.tasks(task_names(&definition));
            items.tasks = tasks;
            items.has_threads = calls_threads(&definition) && self.has_agents();
            items.behind = self.behind(&definition, &ids, is_review);
            contracts.extend(files.into_iter().chain(directive).chain(files_of_tasks));
            let checked = check::check(&definition, &items, &levels, wanted, diagnostics);
            let examined = Examined { interface: Some(checked.interface), graph: checked.graph, contracts, ..examined };
            (examined, Some((definition, items)))
        });
        examined.diagnostics.extend(disagreement);
        // A text that cannot be parsed may have lint diagnostics too.
        levels.apply(&mut examined.diagnostics);
        (examined, Some(ParsedText { yaml, read }))
    }

    fn finish(&self, path: &Path, examined: Examined, wanted: Wanted) -> Compilation {
        let Examined { mut interface, mut graph, mut diagnostics, contracts, settings, inner } = examined;
        let mut files = vec![path.to_owned()];
        files.extend(contracts.into_iter().chain(settings));
        let (mut known, mut read_files): (HashSet<DiagnosticIdentity>, HashSet<PathBuf>) = Default::default();
        if !inner.is_empty() {
            // Both graphs may use the same contract with mistakes.
            known = diagnostics.iter().map(Diagnostic::identity).collect();
            read_files = files.iter().cloned().collect();
        }
        for (at, path) in inner.iter().enumerate() {
            let examined = self.examined(path);
            diagnostics.absorb(&examined.diagnostics, &mut known);
            let builtin = examined.interface.as_ref().is_none_or(Interface::own_tools_are_builtin);
            for interface in interface.iter_mut().chain(graph.as_mut().map(|graph| &mut graph.interface)) {
                interface.inner[at].builtin = builtin;
            }
            let read = std::iter::once(path).chain(&examined.contracts).chain(&examined.settings);
            files.extend(read.filter(|file| read_files.insert((*file).clone())).cloned());
        }
        diagnostics.extend(self.clashes(path, &inner));
        // The set of trusted keys must be certain: with one bad key file, nothing compiles.
        diagnostics.extend(self.rejected.iter().cloned());
        diagnostics.extend(self.unreadable.get_or_init(|| self.unreadable()).iter().cloned());
        let graph = graph.filter(|_| !diagnostics.has_errors());
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        files.extend(self.keys.iter().cloned());
        // Only generated code names the files.
        files.retain(|file| wanted == Wanted::Graph && file.is_file());
        Compilation {
            name: expand::module_name(stem),
            source: relative_name(&self.package, path),
            interface,
            graph,
            diagnostics: diagnostics.in_order(&display_name(&self.package, path)),
            files: files.iter().map(|file| relative_name(&self.package, file)).collect(),
            inner,
        }
    }

    /// Finds the items that a graph calls: contracts, the tree's own before the built-in ones, and other graphs of the tree.
    fn items(
        &self,
        ids: &BTreeSet<&ItemId>,
        caller: &Path,
        inner: &[PathBuf],
        is_review: bool,
        diagnostics: &mut Diagnostics,
    ) -> (Items, Vec<PathBuf>) {
        let ids: Vec<&ItemId> = ids.iter().copied().collect();
        let inner = inner.iter().map(|path| self.inner(path, caller)).collect();
        let shared = self.shared_keys(caller);
        let roles = self.ring.roles().into_iter().map(|(role, owners)| (role.to_owned(), owners)).collect();
        let (mut items, mut files) =
            (Items { inner, shared, roles, are_for_review: is_review, ..Items::default() }, Vec::new());
        for (id, found) in ids.iter().zip(parallel::map(&ids, |id| self.found_contract(id, is_review))) {
            let graphs = self.graphs_called(id);
            // An agent or program is the graph that its contract means.
            let (contract, file) =
                if found.means_graph() { (None, None) } else { (found.contract.as_ref(), found.file.as_ref()) };
            let is_mistake =
                |one: &Diagnostic| one.severity == Severity::Error && !(is_review && one.code.is_of_trust());
            if found.diagnostics.iter().any(is_mistake) {
                items.broken.insert((*id).clone());
            }
            if let ([graph], None, None) = (graphs.as_slice(), contract, file) {
                let nested = self.nested(graph, caller);
                items.broken.extend(nested.has_mistakes.then(|| (*id).clone()));
                items.graphs.insert((*id).clone(), nested);
            } else if !graphs.is_empty() {
                let names = graphs.iter().chain(file).map(|file| display_name(&self.package, file));
                let built_in = contract.filter(|_| file.is_none());
                let names = names.chain(built_in.map(|contract| contract.source.name.clone()));
                items.ambiguous.insert((*id).clone(), names.collect());
            }
            if graphs.is_empty() && contract.is_none() && file.is_none() {
                let unclear = self.unclear(id);
                items.broken.extend((!unclear.is_empty()).then(|| (*id).clone()));
                diagnostics.extend(unclear);
                items.similar.extend(self.similar(id).map(|similar| ((*id).clone(), similar)));
            }
            items.contracts.extend(contract.map(|contract| ((*id).clone(), Arc::clone(contract))));
            files.extend(found.file.clone());
            diagnostics.append(&found.diagnostics);
        }
        (items, files)
    }

    /// Finds the items that the computed ids of a graph may name, as far as its permissions allow: the tools with a
    /// contract, the built-in ones, and the graphs that declare their inputs.
    fn reachable(
        &self,
        definition: &Definition,
        is_review: bool,
        diagnostics: &mut Diagnostics,
    ) -> (Vec<Reachable>, Vec<PathBuf>) {
        let (mut reachable, mut files): (Vec<Reachable>, Vec<PathBuf>) = Default::default();
        let beginnings = definition.computed();
        if beginnings.is_empty() {
            return (reachable, files);
        }
        let is_meant = |id: &ItemId| {
            let capability = Capability::new(Verb::Execute, ItemType::Tool, Some(id));
            let mut patterns = definition.permissions.iter().flat_map(|patterns| &patterns.value);
            beginnings.iter().any(|beginning| id.as_str().starts_with(beginning))
                && patterns.any(|pattern| pattern.value.grants(&capability))
        };
        let own = self.contract_ids().iter().filter_map(|(id, _)| ItemId::new(id.as_str()).ok());
        let ids: BTreeSet<ItemId> = own.chain(builtin::ids()).filter(|id| is_meant(id)).collect();
        for id in ids {
            let found = self.found_contract(&id, is_review);
            let contract = found.contract.as_deref();
            let matters = |contract: &Contract| contract.guarded || contract.params.has_sink();
            // If a contract cannot be read, it is unknown which parameters its tool reads as code, and whether it is guarded.
            if contract.is_none_or(matters) {
                diagnostics.extend(found.diagnostics.iter().cloned());
                files.extend(found.file.clone());
            }
            reachable.extend(contract.filter(|contract| matters(contract)).map(|contract| Reachable {
                id: id.clone(),
                schema: contract.params.clone(),
                is_guarded: contract.guarded,
            }));
        }
        for path in self.graph_files().values().flatten() {
            let id = self.graph_id(path).and_then(|id| ItemId::new(id).ok()).filter(|id| is_meant(id));
            if let Some(id) = id
                && let Some(schema) = self.inputs_of(path).filter(|schema| schema.has_sink() || schema.has_guarded())
            {
                files.push(path.clone());
                reachable.push(Reachable { id, schema, is_guarded: false });
            }
        }
        (reachable, files)
    }

    /// Returns the contracts of the tree that decide what a graph does and that its tables do not have: those of the tools that its
    /// computed ids may name, and those in place of built-in ones. Each is its id and the digest of the text that its signature covers.
    fn behind(&self, definition: &Definition, executed: &BTreeSet<&ItemId>, is_review: bool) -> Vec<String> {
        let beginnings = definition.computed();
        let is_meant = |id: &ItemId| beginnings.iter().any(|beginning| id.as_str().starts_with(beginning));
        let own: BTreeSet<ItemId> =
            self.contract_ids().iter().filter_map(|(id, _)| ItemId::new(id.as_str()).ok()).collect();
        let shown = |id: &ItemId| {
            let found = self.found_contract(id, is_review);
            let contract = found.contract.as_ref().filter(|_| found.file.is_some())?;
            let decides = is_meant(id) || (executed.contains(id) && contract.builtin());
            let text = &contract.source.text;
            let digest = open(ItemKind::YAML, text).map_or_else(|_| Digest::of(text), |opened| opened.digest);
            decides.then(|| format!("{id} {digest}"))
        };
        own.iter().filter_map(shown).collect()
    }

    /// Returns the inputs of a graph, as its file declares them. The check of that file reports its mistakes.
    fn inputs_of(&self, path: &Path) -> Option<ValueSchema> {
        let source = self.read(path).ok()?;
        let origin = match verify(&source, &self.ring) {
            Ok(verified) => verified.into(),
            Err(_) => DefinitionOrigin::Draft(Arc::clone(&source)),
        };
        let mut unsaid = Diagnostics::new();
        let yaml = tree::parse(&source, &mut unsaid)?;
        definition::parse(origin, &yaml, &mut unsaid)?.inputs
    }

    /// Returns the id of a tool with a contract, or of a graph, that differs little from `id`, which has neither.
    fn similar(&self, id: &ItemId) -> Option<String> {
        let stem = id.as_str().rsplit('/').next().unwrap_or_default();
        let names = self.graph_files().keys().map(String::as_str);
        let graphs = nearest(stem, names).into_iter().flat_map(|stem| self.graph_files()[stem].iter());
        let graphs = graphs.filter_map(|path| self.graph_id(path));
        let built_in = builtin::ids().map(|id| id.to_string());
        let contracts = self.contract_ids().iter().map(|(id, _)| id.clone());
        let known: Vec<String> = contracts.chain(graphs).chain(built_in).collect();
        let all = known.iter().map(String::as_str);
        // A tool without a contract is nothing unusual, so only an id that differs by a typing error is similar.
        let most = (id.as_str().len() / 5).min(2);
        nearest(id.as_str(), all)
            .filter(|near| strsim::damerau_levenshtein(id.as_str(), near) <= most)
            .map(str::to_owned)
    }

    /// Returns the ids of the tools with a contract in the tree, with the contracts' files.
    fn contract_ids(&self) -> &[(String, PathBuf)] {
        self.contract_ids.get_or_init(|| {
            let tools = self.root.join(TOOLS);
            let id = |file: &PathBuf| {
                let id = file.strip_prefix(&tools).ok()?.with_extension("").to_str()?.replace('\\', "/");
                Some((id, file.clone()))
            };
            self.walks().1.files.iter().filter_map(id).collect()
        })
    }

    /// Returns the files of the graphs and those of the contracts.
    fn walks(&self) -> &(FileWalk, FileWalk) {
        self.walks.get_or_init(|| {
            let tools = self.root.join(TOOLS);
            let contracts = match is_there(&self.root, &tools) {
                Ok(false) => FileWalk::default(),
                Ok(true) | Err(_) => walk(&tools, &[]),
            };
            (find_graphs(&self.root), contracts)
        })
    }

    /// Reports the directories of the tree that cannot be read. A file in them may forbid something that nothing else
    /// forbids, so nothing compiles. If there is no tree, the files next to a graph do not belong to it.
    fn unreadable(&self) -> Vec<Diagnostic> {
        if !is_tree(&self.root) {
            return Vec::new();
        }
        let (graphs, contracts) = self.walks();
        let keys = self.root.join(KEYS);
        let of_keys = is_there(&self.root, &keys).err().map(|error| {
            *SourceFile::unreadable(
                &keys,
                &display_name(&self.package, &keys),
                &error,
                "check the directory's permissions",
            )
        });
        let of_walks = [graphs, contracts].into_iter().flat_map(|walk| walk.problems(&self.package));
        of_keys.into_iter().chain(of_walks).collect()
    }

    /// Finds the file that is meant to be the contract of a tool and is not: its name differs in case, or ends in `.yml`.
    fn misnamed_contract(&self, id: &ItemId, path: &Path) -> Option<&Path> {
        let alike = |(other, file): &&(String, PathBuf)| other.eq_ignore_ascii_case(id.as_str()) && *file != *path;
        let mut files = self.contract_ids().iter();
        let is_exact = files.clone().any(|(_, file)| file == path);
        files.find(alike).filter(|_| !is_exact).map(|(_, file)| file.as_path())
    }

    /// Returns all tools that have a contract in the tree, as far as those can be read.
    pub(crate) fn tools_with_contracts(&self) -> Vec<TypedTool> {
        let ids = self.contract_ids().iter().filter_map(|(id, _)| ItemId::new(id.as_str()).ok());
        let tool = |id: ItemId| {
            let found = self.found_contract(&id, self.is_for_review);
            let contract = found.contract.as_ref().filter(|one| !one.means_graph() && !one.is_reducer())?;
            Some(check::tool_of(&id, contract))
        };
        ids.filter_map(tool).collect()
    }

    /// Finds the tool or graph with an id that is known only when the program runs.
    ///
    /// # Errors
    ///
    /// Returns the reason if that cannot be determined: the contract is not signed or has mistakes, or several items
    /// have the id.
    pub fn resolve(&self, id: &ItemId) -> Result<Resolved, String> {
        let found = self.found_contract(id, false);
        let graphs = self.graphs_called(id);
        if let ([graph], true) = (graphs.as_slice(), found.means_graph()) {
            return Ok(Resolved::Graph(graph.clone()));
        }
        let of_file = found.file.as_ref().map(|file| display_name(&self.package, file));
        if graphs.len() > 1 || (!graphs.is_empty() && (of_file.is_some() || found.contract.is_some())) {
            let files = graphs.iter().map(|file| display_name(&self.package, file)).chain(of_file);
            let files: Vec<String> = files.map(|file| format!("`{file}`")).collect();
            return Err(format!("`{id}` is the id of several things: {}", files.join(", ")));
        }
        let is_error = |one: &&Diagnostic| one.severity == Severity::Error;
        if let Some(problem) = found.diagnostics.iter().find(is_error) {
            return Err(format!("the contract of `{id}` cannot be used: {}", problem.message));
        }
        Ok(match (graphs.first(), &found.contract) {
            (Some(graph), _) => Resolved::Graph(graph.clone()),
            (None, Some(contract)) if contract.is_reducer() => {
                return Err(format!("`{id}` is a reducer, and no tool"));
            }
            (None, Some(contract)) => Resolved::Tool(Box::new(check::tool_of(id, contract))),
            (None, None) => Resolved::Unknown,
        })
    }

    /// Finds the contracts and graphs that have these ids, without reporting their mistakes.
    pub fn called(&self, ids: &BTreeSet<&ItemId>, caller: &Path) -> Items {
        let inner = self.inside(ids.iter().copied());
        let (items, _) = self.items(ids, caller, &inner, true, &mut Diagnostics::new());
        items
    }

    /// Returns the files of the graphs that have these ids.
    pub fn graphs_of(&self, ids: &BTreeSet<&ItemId>) -> BTreeMap<ItemId, PathBuf> {
        ids.iter().filter_map(|id| Some(((*id).clone(), self.graph_called(id)?))).collect()
    }

    /// Returns the id of the tool whose contract a file of the tree is.
    fn tool_of(&self, file: &Path) -> Option<ItemId> {
        id_of_contract(&self.root.join(TOOLS), file)
    }

    /// Returns the diagnostics of a contract, signed or not.
    fn review_contract(&self, source: &Arc<SourceFile>, id: &ItemId) -> Vec<Diagnostic> {
        let Effective { levels, diagnostics: of_settings, .. } = self.settings_of(&source.path, true);
        let mut diagnostics = Diagnostics::new();
        diagnostics.append(&of_settings);
        if let Err(problem) = verify(source, &self.ring) {
            diagnostics.push(*problem);
        }
        if let Some(mut contract) = definition::parse_trusted_contract(source, id, &mut diagnostics) {
            builtin::check(id, &mut contract, &mut diagnostics);
        }
        levels.apply(&mut diagnostics);
        diagnostics.in_order(&source.name)
    }

    /// Whether the contract of a tool or agent says that a call of it needs approval.
    fn is_guarded(&self, id: &ItemId) -> bool {
        self.found_contract(id, self.is_for_review).contract.as_ref().is_some_and(|contract| contract.guarded)
    }

    /// Returns the limits in the contract of an agent.
    fn agent_limits(&self, id: &ItemId) -> Option<AgentLimits> {
        let found = self.found_contract(id, self.is_for_review);
        Some(found.contract.as_ref()?.agent()?.limits.clone())
    }

    /// Looks a contract up, once for all graphs that call the tool.
    fn found_contract(&self, id: &ItemId, is_review: bool) -> Arc<FoundContract> {
        let cell = {
            let mut contracts = self.contracts.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(contracts.entry((id.clone(), is_review)).or_default())
        };
        Arc::clone(cell.get_or_init(|| Arc::new(self.contract(id, is_review))))
    }

    fn contract(&self, id: &ItemId, is_review: bool) -> FoundContract {
        let path = self.root.join(TOOLS).join(format!("{id}.yaml"));
        if let Some(file) = self.misnamed_contract(id, &path) {
            let (name, right) = (display_name(&self.package, file), display_name(&self.package, &path));
            let message = format!("`{name}` is not the contract of `{id}`, which is `{right}`");
            let mut problem =
                Diagnostic::new(code::BAD_CONTRACT, message, SourcePlace::file(&SourceFile::new(file, name, "")));
            problem
                .note("some file systems distinguish such names and some do not")
                .help(format!("rename it to `{right}`"));
            return FoundContract { contract: None, file: Some(file.to_owned()), diagnostics: problem.into() };
        }
        let is_absent = self.text(&path).is_none() && matches!(is_there(&self.root, &path), Ok(false));
        if is_absent {
            let contract = builtin::contract(id).map(Arc::new);
            return FoundContract { contract, file: None, diagnostics: Diagnostics::new() };
        }
        let mut diagnostics = Diagnostics::new();
        let read = self.read(&path).map(|source| (verify(&source, &self.ring), source));
        let mut contract = match read {
            Ok((Ok(verified), _)) => definition::parse_contract(&verified, id, &mut diagnostics),
            Ok((Err(problem), source)) => {
                diagnostics.push(*problem);
                // Its mistakes can be reported all the same; because of this error no graph is compiled from it.
                is_review.then(|| definition::parse_trusted_contract(&source, id, &mut diagnostics)).flatten()
            }
            Err(problem) => {
                diagnostics.push(*problem);
                None
            }
        };
        if let Some(contract) = &mut contract {
            builtin::check(id, contract, &mut diagnostics);
        }
        FoundContract { contract: contract.map(Arc::new), file: Some(path), diagnostics }
    }
}

/// The item of an id that is known only when the program runs.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// A tool with a contract.
    Tool(Box<TypedTool>),
    /// A graph of the tree, in this file.
    Graph(PathBuf),
    /// Neither.
    Unknown,
}

/// The result of looking up a tool's contract.
#[derive(Debug)]
struct FoundContract {
    contract: Option<Arc<Contract>>,
    /// The tree's own file.
    file: Option<PathBuf>,
    diagnostics: Diagnostics,
}

impl FoundContract {
    /// Whether it means a graph.
    fn means_graph(&self) -> bool {
        self.contract.as_ref().is_some_and(|contract| contract.means_graph())
    }
}

/// Whether a directory is a tree: it has `keys`. If that cannot be determined, it counts as a tree, so that no other
/// directory is used instead.
fn is_tree(directory: &Path) -> bool {
    match is_there(directory, &directory.join(KEYS)) {
        Ok(true) => directory.join(KEYS).is_dir(),
        Ok(false) => false,
        Err(_) => true,
    }
}

/// Returns the canonical path of a file, or the path itself if there is no such file.
fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the id of the tool whose contract a file is, from its path below `tools`.
fn id_of_contract(tools: &Path, file: &Path) -> Option<ItemId> {
    let relative = file.strip_prefix(tools).ok()?.to_str()?.replace('\\', "/");
    ItemId::new(relative.strip_suffix(".yaml")?).ok()
}

/// Returns a path as generated code holds it: relative to the package if it is inside.
fn relative_name(package: &Path, path: &Path) -> String {
    path.strip_prefix(package).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_below_a_tree_cannot_make_it_trust_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let package = directory.path();
        for keys in ["graphs/keys", "graphs/sub/keys"] {
            std::fs::create_dir_all(package.join(keys)).unwrap();
        }
        let root = |file: &str| Project::around(package, &package.join(file)).root().to_owned();
        assert_eq!(root("graphs/sub/deep/g.yaml"), package.join("graphs"));
        assert_eq!(root("graphs/g.yaml"), package.join("graphs"));
        assert_eq!(root("other/g.yaml"), package.join("other"));
    }
}

//! The graphs of a tree that run inside other graphs (R188).
//!
//! An action that executes a tool may name another graph of the tree. The action then has that graph's inputs and
//! output as types. Graphs may nest each other in a circle; inside a circle, the output of one is unknown to the other,
//! so that each has the same types whichever graph the compiler starts with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use graph_definition::definition::{
    self, Contract, Definition, NodeDefinition, RouteDefinition, SchemaKind, TermDefinition, TermKind, ValueSchema,
};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, Severity};
use graph_definition::hash::HashMap;
use graph_definition::verify::{DefinitionOrigin, verify};
use graph_model::capability::Capability;
use graph_model::condition::Condition;
use graph_model::name::ItemId;
use graph_model::path::Root;
use graph_model::program::{ItemType, OnBranchError, OnError, Verb};
use graph_model::template::Template;
use graph_model::value::Value;

use super::{Examined, Project, display_name};
use crate::analysis::calls::{needs, task_names};
use crate::check::Wanted;
use crate::graph::InnerGraph;
use crate::items::{InnerKeys, Nested, TaskName};
use crate::types::Type;
use crate::{expand, tree};

/// The nodes of a graph, as far as they decide whether a run can end although a graph inside cannot.
#[derive(Debug)]
struct Steps {
    start: usize,
    nodes: Vec<NestingStep>,
}

#[derive(Debug)]
struct NestingStep {
    /// The item that the node executes each time it is visited.
    calls: Option<ItemId>,
    /// The targets of its edges.
    next: Vec<usize>,
    /// The first nodes of branches that surely begin here, each of which has to end.
    always: Vec<usize>,
    /// Whether a run may end at it.
    ends: bool,
    /// The targets of a failure; `None` if it ends the run.
    failed: Option<Vec<usize>>,
    /// The nodes that follow when a wait has lasted its time, and instead if too few branches can arrive.
    otherwise: Vec<usize>,
}

impl NestingStep {
    /// Whether a run can end that is at the node. `ends` says the same of the other nodes, and `can_end` of the items.
    fn can_end(&self, ends: &[bool], can_end: &impl Fn(&ItemId) -> bool) -> bool {
        let returns = self.calls.as_ref().is_none_or(can_end);
        let leads_to_end = |nodes: &[usize]| nodes.iter().any(|&node| ends[node]);
        // If failures continue along the edges, they may end the run there too.
        if self.ends && (returns || self.failed.as_ref() == Some(&self.next)) {
            return true;
        }
        let goes_on = returns && self.always.iter().all(|&node| ends[node]) && leads_to_end(&self.next);
        goes_on || leads_to_end(self.failed.as_deref().unwrap_or_default()) || leads_to_end(&self.otherwise)
    }
}

impl Steps {
    fn of(definition: &Definition) -> Option<Self> {
        let nodes = definition.nodes.iter().enumerate().rev();
        let by_name: HashMap<&str, usize> = nodes.map(|(at, node)| (node.name.value.as_str(), at)).collect();
        let index = |name: &str| by_name.get(name).copied();
        let start = index(definition.start.as_ref()?.value.as_str())?;
        let goes_on = definition.settings.on_error == OnError::Continue;
        // Otherwise a branch may fail or be cut, and the run continues without it.
        let is_cut = |node: &NodeDefinition| {
            node.quorum.is_some() || node.cancels().is_some() || node.on_branch_error() == Some(OnBranchError::Collect)
        };
        let needs_all = !definition.nodes.iter().any(is_cut);
        let step = |node: &NodeDefinition| {
            let mut always = Vec::new();
            let (targets, ends): (Vec<&str>, bool) = match node.next() {
                RouteDefinition::End => (Vec::new(), true),
                RouteDefinition::To(to) => (vec![to.value.as_str()], false),
                RouteDefinition::Each(each) => {
                    let is_begun = needs_all && has_elements(definition, &each.over);
                    (vec![each.to.value.as_str()], !is_begun)
                }
                RouteDefinition::By(by) => {
                    let targets = by.to.iter().filter_map(|(_, to)| Some(to.as_ref()?.value.as_str()));
                    (targets.collect(), by.to.iter().any(|(_, to)| to.is_none()))
                }
                RouteDefinition::First(list) | RouteDefinition::All(list) => {
                    let targets = list.edges.iter().filter_map(|edge| Some(edge.to.as_ref()?.value.as_str()));
                    let sure = || list.edges.iter().filter(|edge| matches!(edge.when, Condition::Always));
                    if needs_all && matches!(node.next(), RouteDefinition::All(_)) {
                        let targets = sure().filter_map(|edge| index(edge.to.as_ref()?.value.as_str()));
                        always.extend(targets);
                    }
                    (targets.collect(), sure().next().is_none() || list.edges.iter().any(|edge| edge.to.is_none()))
                }
            };
            let next: Vec<usize> = targets.into_iter().filter_map(index).collect();
            // A foreach may have no items.
            let is_called = node.each().is_none_or(|each| has_elements(definition, &each.over));
            let call = node.call().filter(|call| is_called && call.executes_tool());
            let calls = call.and_then(|call| call.id()).cloned();
            let failed = match node.on_error() {
                Some(to) => index(to.value.as_str()).map(|to| vec![to]),
                None => goes_on.then(|| next.clone()),
            };
            let otherwise = node.on_timeout().into_iter().chain(node.fewer());
            let otherwise = otherwise.filter_map(|to| index(to.value.as_str())).collect();
            NestingStep { calls, next, always, ends, failed, otherwise }
        };
        Some(Self { start, nodes: definition.nodes.iter().map(step).collect() })
    }

    /// Whether a run can end. `can_end` says the same of each item that its nodes execute.
    fn can_end(&self, can_end: &impl Fn(&ItemId) -> bool) -> bool {
        let mut ends = vec![false; self.nodes.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for at in (0..self.nodes.len()).rev() {
                let is_end = self.nodes[at].can_end(&ends, can_end);
                changed |= is_end && !ends[at];
                ends[at] |= is_end;
            }
        }
        ends[self.start]
    }
}

/// Returns the directives of the threads that a graph starts.
fn threads(definition: &Definition) -> Vec<String> {
    let directive = |name| match name {
        TaskName::Directive(directive) => Some(directive),
        TaskName::Item(_) => None,
    };
    task_names(definition).into_iter().filter_map(directive).collect()
}

/// The cached facts about the graphs of a tree, so that each graph is read once.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    /// The graphs of the tree by the names of their files without extension.
    files: OnceLock<BTreeMap<String, Vec<PathBuf>>>,
    heads: Mutex<BTreeMap<PathBuf, Arc<Head>>>,
    /// The keys that nodes of the graphs of the tree share with others, by the ids of these.
    shared: OnceLock<BTreeMap<String, BTreeSet<String>>>,
    examined: Mutex<BTreeMap<PathBuf, Arc<OnceLock<Arc<Examined>>>>>,
    /// The agents of the tree.
    pub(super) followers: OnceLock<Followers>,
}

/// The agents of a tree by the directives that they follow.
#[derive(Debug, Default)]
pub(super) struct Followers {
    pub(super) agents: BTreeMap<String, Vec<ItemId>>,
    /// Whether a contract could not be read, which may be that of an agent.
    pub(super) is_part: bool,
}

/// The content of a graph's file, without the items that it calls.
#[derive(Debug)]
pub(super) struct Head {
    id: Option<String>,
    /// The items that it executes.
    pub(super) calls: Vec<ItemId>,
    /// The keys that its nodes share, each with the id of the graph inside.
    shares: Vec<(String, String)>,
    /// The type of its inputs; any value where it has mistakes.
    pub(super) inputs: Type,
    /// The capability patterns that its own calls need.
    needs: Vec<String>,
    /// The directives of the threads that it starts.
    threads: Vec<String>,
    /// The schema of its inputs, as the file has it.
    pub(super) schema: Option<ValueSchema>,
    /// Whether it waits itself.
    waits: bool,
    /// Its signals; `None` where it cannot be read.
    signals: Option<Vec<(String, ValueSchema)>>,
    /// The environment variables that it needs itself.
    env: Vec<String>,
    /// Its nodes, as far as they decide whether a run can end; `None` where it has mistakes.
    steps: Option<Steps>,
    /// Why its id cannot be determined.
    problems: Vec<Diagnostic>,
}

/// Returns the keys that the nodes of a graph share, each with the id of the graph inside.
fn shares(definition: &Definition) -> Vec<(String, String)> {
    let of_node = |node: &NodeDefinition| {
        let id = node.call().and_then(|call| call.id()).map(ToString::to_string);
        node.share().iter().filter_map(|key| Some((id.clone()?, key.to_string()))).collect::<Vec<_>>()
    };
    definition.nodes.iter().flat_map(of_node).collect()
}

impl Project {
    /// Returns the file of the graph with the id `id`, if there is one.
    pub fn graph_called(&self, id: &ItemId) -> Option<PathBuf> {
        self.graphs_called(id).into_iter().next()
    }

    /// Returns the graphs of the tree that have this id. There are several only if graphs share an id.
    pub(super) fn graphs_called(&self, id: &ItemId) -> Vec<PathBuf> {
        let stem = id.as_str().rsplit('/').next().unwrap_or_default();
        let candidates = self.graph_files().get(stem).map_or(&[][..], Vec::as_slice);
        let graphs = candidates.iter().filter(|path| self.head(path).id.as_deref() == Some(id.as_str())).cloned();
        graphs.chain(self.contract_graph(id)).collect()
    }

    /// Reports the files whose name fits the graph `id` but whose own id cannot be determined.
    pub(super) fn unclear(&self, id: &ItemId) -> Vec<Diagnostic> {
        let stem = id.as_str().rsplit('/').next().unwrap_or_default();
        let candidates = self.graph_files().get(stem).map_or(&[][..], Vec::as_slice);
        candidates.iter().flat_map(|path| self.head(path).problems.clone()).collect()
    }

    /// Returns the id in a graph's file.
    pub(super) fn graph_id(&self, path: &Path) -> Option<String> {
        self.head(path).id.clone()
    }

    pub(super) fn graph_files(&self) -> &BTreeMap<String, Vec<PathBuf>> {
        self.nesting.files.get_or_init(|| {
            let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
            for path in self.walks().0.files.iter().cloned() {
                let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
                files.entry(stem).or_default().push(path);
            }
            files
        })
    }

    /// Returns the path of a file as the list of the tree's graphs has it, however the caller wrote it.
    pub(super) fn listed(&self, file: &Path) -> PathBuf {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let whole = |path: &Path| path.canonicalize().ok();
        let candidates = self.graph_files().get(stem).map_or(&[][..], Vec::as_slice);
        if candidates.iter().any(|path| path == file) {
            return file.to_owned();
        }
        candidates.iter().find(|path| whole(path) == whole(file)).cloned().unwrap_or_else(|| file.to_owned())
    }

    pub(super) fn head(&self, path: &Path) -> Arc<Head> {
        let heads = || self.nesting.heads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(head) = heads().get(path) {
            return Arc::clone(head);
        }
        let head = Arc::new(self.read_head(path));
        heads().insert(path.to_owned(), Arc::clone(&head));
        head
    }

    /// Reads a graph's file as far as possible. Its mistakes are reported when the graph is examined.
    fn read_head(&self, path: &Path) -> Head {
        let nothing = Head {
            id: None,
            calls: Vec::new(),
            shares: Vec::new(),
            inputs: Type::any(),
            needs: Vec::new(),
            threads: Vec::new(),
            schema: None,
            signals: None,
            waits: false,
            env: Vec::new(),
            steps: None,
            problems: Vec::new(),
        };
        let mut ignored = Diagnostics::new();
        let source = match self.read(path) {
            Ok(source) => source,
            Err(problem) => return Head { problems: vec![*problem], ..nothing },
        };
        let Some(yaml) = tree::parse(&source, &mut ignored) else {
            return Head { problems: ignored.in_order(&source.name), ..nothing };
        };
        let meant = self.meant(&source, &yaml, Wanted::Findings, &mut Diagnostics::new());
        let yaml = meant.ok().flatten().map_or(yaml, |meant| meant.graph);
        // The id in an unverified file decides only which file an error is about.
        let unverified = Head { id: definition::id_of(&source, &yaml), ..nothing };
        let origin = match verify(&source, &self.ring) {
            Ok(verified) => DefinitionOrigin::Verified(verified),
            Err(_) if self.is_for_review => DefinitionOrigin::Draft(source),
            Err(_) => return unverified,
        };
        let Some(definition) = definition::parse(origin, &yaml, &mut ignored) else { return unverified };
        let inputs = definition.inputs.as_ref().filter(|_| !ignored.has_errors());
        let signals = definition.signals.iter();
        Head {
            id: Some(definition.id.to_string()),
            calls: definition.executed().into_iter().cloned().collect(),
            shares: shares(&definition),
            inputs: inputs.map_or_else(Type::any, Type::of_schema).not_null(),
            needs: needs(&definition),
            threads: threads(&definition),
            waits: definition.nodes.iter().any(|node| node.wait().is_some() || node.interrupts().is_some()),
            schema: inputs.cloned(),
            signals: Some(signals.map(|signal| (signal.name.to_string(), signal.schema.clone())).collect()),
            env: definition.env.clone(),
            steps: Steps::of(&definition).filter(|_| !ignored.has_errors()),
            problems: Vec::new(),
        }
    }

    /// Returns the keys of the graph in a file that nodes of other graphs of the tree share with its runs.
    pub(super) fn shared_keys(&self, path: &Path) -> BTreeSet<String> {
        let shared = self.nesting.shared.get_or_init(|| {
            let mut shared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for path in self.graph_files().values().flatten() {
                // Few graphs share keys, and the others need not be parsed.
                if self.read(path).is_ok_and(|source| source.text.contains("share")) {
                    for (inner, key) in &self.head(path).shares {
                        shared.entry(inner.clone()).or_default().insert(key.clone());
                    }
                }
            }
            shared
        });
        let id = if shared.is_empty() { None } else { self.head(path).id.clone() };
        id.and_then(|id| shared.get(&id).cloned()).unwrap_or_default()
    }

    /// Returns the graphs that run inside a graph that executes `calls`, directly or through others, nearest first.
    pub(super) fn inside<'i>(&self, calls: impl IntoIterator<Item = &'i ItemId>) -> Vec<PathBuf> {
        let (mut found, mut known) = (Vec::new(), BTreeSet::new());
        let mut waiting: VecDeque<PathBuf> = calls.into_iter().flat_map(|id| self.graphs_called(id)).collect();
        while let Some(path) = waiting.pop_front() {
            if known.insert(path.clone()) {
                waiting.extend(self.head(&path).calls.iter().flat_map(|id| self.graphs_called(id)));
                found.push(path);
            }
        }
        found
    }

    /// Whether `outer` runs inside the graph of a file too.
    fn returns_to(&self, path: &Path, outer: &Path) -> bool {
        path == outer || self.inside(&self.head(path).calls).iter().any(|inner| inner == outer)
    }

    /// Returns the graph in `path` as the graph in `caller`, which nests it, sees it.
    pub(super) fn nested(&self, path: &Path, caller: &Path) -> Nested {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let head = self.head(path);
        let nested = Nested {
            file: display_name(&self.package, path),
            module: expand::module_name(stem),
            inputs: head.inputs.clone(),
            schema: head.schema.clone(),
            output: Type::any(),
            exits: Vec::new(),
            keys: InnerKeys::Unknown,
            signals: head.signals.clone(),
            needs: self.needs(path),
            budget: None,
            can_wait: self.can_wait(path),
            is_endless: false,
            has_mistakes: false,
            limits: self.tool_of(path).and_then(|id| self.agent_limits(&id)),
            is_guarded: self.tool_of(path).is_some_and(|id| self.is_guarded(&id)),
            once: self.once(path),
        };
        if self.returns_to(path, &self.listed(caller)) {
            return Nested { is_endless: self.is_endless(path), keys: InnerKeys::OfCircle, ..nested };
        }
        let examined = self.examined(path);
        let is_mistake =
            |one: &Diagnostic| one.severity == Severity::Error && !(self.is_for_review && one.code.is_of_trust());
        let has_mistakes = examined.diagnostics.iter().any(is_mistake);
        match &examined.interface {
            // Consequences of its own mistakes are not reported for the caller.
            Some(interface) if !has_mistakes => Nested {
                output: interface.inner_output.clone(),
                exits: interface.inner_exits.clone(),
                budget: interface.budget.clone(),
                keys: InnerKeys::Known(interface.inner_keys.clone()),
                ..nested
            },
            _ => Nested { inputs: Type::any(), has_mistakes: true, ..nested },
        }
    }

    /// Whether a run of a graph, or one inside it, can wait.
    fn can_wait(&self, path: &Path) -> bool {
        let head = self.head(path);
        head.waits || self.inside(&head.calls).iter().any(|inner| self.head(inner).waits)
    }

    /// Returns the tools that a run of a graph, or one inside it, calls and whose calls must not be made twice.
    fn once(&self, path: &Path) -> Vec<ItemId> {
        let mut once: Vec<ItemId> = Vec::new();
        for graph in [path.to_owned()].into_iter().chain(self.inside(&self.head(path).calls)) {
            for id in &self.head(&graph).calls {
                let found = self.found_contract(id, self.is_for_review);
                let is_once = |contract: &Contract| {
                    let is_guarded = contract.guarded || contract.params.has_guarded();
                    is_guarded || contract.mcp().is_some_and(|tool| !tool.idempotent)
                };
                if found.contract.as_deref().is_some_and(is_once) && !once.contains(id) {
                    once.push(id.clone());
                }
            }
        }
        once
    }

    /// Returns the capability patterns that a run of a graph needs, each once: those of the graph, of the graphs inside it, and of the
    /// agents that follow its directives.
    pub(super) fn needs(&self, path: &Path) -> Vec<String> {
        let (mut needs, mut known): (Vec<String>, BTreeSet<PathBuf>) = Default::default();
        let mut waiting = VecDeque::from([path.to_owned()]);
        while let Some(path) = waiting.pop_front() {
            if !known.insert(path.clone()) {
                continue;
            }
            let head = self.head(&path);
            let agents: Vec<ItemId> = head.threads.iter().filter_map(|directive| self.follower(directive)).collect();
            let capability = |id| Capability::new(Verb::Execute, ItemType::Tool, Some(id)).to_string();
            for needed in head.needs.iter().cloned().chain(agents.iter().map(capability)) {
                if !needs.contains(&needed) {
                    needs.push(needed);
                }
            }
            waiting.extend(head.calls.iter().chain(&agents).flat_map(|id| self.graphs_called(id)));
        }
        needs
    }

    /// Returns the facts about a graph that runs inside the one in `outer`, for the expansion of that one.
    pub(super) fn inner(&self, path: &Path, outer: &Path) -> InnerGraph {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        InnerGraph {
            id: self.head(path).id.clone().unwrap_or_default(),
            file: display_name(&self.package, path),
            module: expand::module_name(stem),
            returns: self.returns_to(path, &self.listed(outer)),
            builtin: true,
            needs: self.head(path).needs.clone(),
            env: self.head(path).env.clone(),
        }
    }

    /// Whether no run of a graph can end: every path starts another run of it inside, directly or through others.
    fn is_endless(&self, path: &Path) -> bool {
        let mut graphs = self.inside(&self.head(path).calls);
        if !graphs.iter().any(|inner| inner == path) {
            graphs.push(path.to_owned());
        }
        let mut ends: BTreeMap<PathBuf, bool> = graphs.into_iter().map(|graph| (graph, false)).collect();
        loop {
            let can_end = |id: &ItemId| {
                let graphs = self.graphs_called(id);
                // A call of anything but a graph returns. If several graphs have the id, the called one is unknown.
                graphs.len() != 1 || graphs.iter().all(|graph| ends.get(graph).copied().unwrap_or(true))
            };
            let new: Vec<PathBuf> = ends
                .iter()
                .filter(|(graph, ends)| {
                    !**ends && self.head(graph).steps.as_ref().is_none_or(|steps| steps.can_end(&can_end))
                })
                .map(|(graph, _)| graph.clone())
                .collect();
            if new.is_empty() {
                return !ends.get(path).copied().unwrap_or(true);
            }
            new.into_iter().for_each(|graph| {
                ends.insert(graph, true);
            });
        }
    }

    /// Examines a graph of the tree, once.
    pub(super) fn examined(&self, path: &Path) -> Arc<Examined> {
        let cell = {
            let mut examined = self.nesting.examined.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(examined.entry(path.to_owned()).or_default())
        };
        // No thread waits for itself here: graphs that nest each other do not ask for each other's types.
        Arc::clone(cell.get_or_init(|| Arc::new(self.examine_file(path, Wanted::Findings))))
    }
}

/// Whether a list that a node goes over has an element in every run: one that the graph writes, or an input whose schema asks for
/// elements.
fn has_elements(definition: &Definition, list: &TermDefinition) -> bool {
    match &list.kind {
        TermKind::List(list) => !list.is_empty(),
        TermKind::Literal(Value::Array(list)) => !list.is_empty(),
        TermKind::Template { template: Template::Whole(expression), .. } => match expression.paths.as_slice() {
            [path] if path.root == Root::Inputs => {
                let mut schema = definition.inputs.as_ref();
                for segment in &path.segments {
                    schema = schema.and_then(|schema| match &schema.kind {
                        SchemaKind::Object(_) => definition.property(schema, segment),
                        _ => None,
                    });
                }
                let rule = schema.and_then(|schema| schema.rules.iter().find(|rule| rule.keyword == "minItems"));
                rule.and_then(|rule| rule.value.as_u64()).is_some_and(|least| least > 0)
            }
            _ => false,
        },
        _ => false,
    }
}

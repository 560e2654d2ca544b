//! The interpreter: graphs that are loaded while the program runs.
//!
//! A [`Library`] is a tree of graphs on disk. It reads, verifies, parses and checks a graph as the compiler does, and makes
//! an [`Interpreted`] of it: a [`Machine`] whose values are JSON. Expressions are parsed once, when the graph is loaded. An
//! interpreted graph behaves like a compiled one: the tables are the same, the same code executes them, and each value is
//! made to fit the Rust type that it would have in the compiled graph.

mod changes;
mod conform;
mod tools;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use graph_compiler::diagnostic::Diagnostic;
use graph_compiler::graph::{Interface, TypedSignal, TypedTool};
use graph_compiler::project::{Project, Resolved};
#[cfg(feature = "schedules")]
use graph_compiler::schedules::ScheduleDefinition;
use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_model::ir::GraphIr;
use graph_model::name::ItemId;
use graph_model::program::{Executor, Kind};
use graph_model::value::{AsView, FromValue, Map, Mismatch, Value, View, within_levels};
use graph_signing::KeyRing;

pub use changes::GraphChanges;
pub use tools::{ToolFuture, Toolbox, Tools};

use changes::Texts;
pub use conform::{conform, object};
use graph_engine::__private::{no_such_exit, no_such_signal, no_such_tool};
#[cfg(feature = "schedules")]
use graph_engine::Schedule;
use graph_engine::machine::{
    Arguments, CallFuture, CompiledGraph, Graph, Machine, StateFields, ToolCaller, unfit_parameters,
};
use graph_engine::schema;
use graph_engine::{ActionError, Call, Failure, ReducerError};

/// A tree of graphs, with the keys that it trusts and the contracts of its tools. Clones share the loaded graphs.
///
/// ```
/// # let directory = std::path::Path::new("graphs");
/// use graph_runtime::dynamic::{Library, Toolbox};
/// use graph_runtime::{ItemId, Machine};
///
/// let library = Library::open(directory, Toolbox::new());
/// let file = library.find(&ItemId::new("workflows/test/project_stats")?).ok_or("there is no such graph")?;
/// let graph = library.graph(&file)?;
/// assert_eq!(graph.id(), "workflows/test/project_stats");
/// assert!(graph.missing_tools().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Interpreted`] shows how to run the graph.
#[derive(Clone)]
pub struct Library {
    shared: Arc<LibraryContents>,
}

struct LibraryContents {
    project: Project,
    tools: Arc<dyn Tools>,
    /// Whether its runs call nothing outside of the program.
    is_scripted: bool,
    /// The loaded graphs, by their files.
    loaded: Mutex<HashMap<PathBuf, Arc<Loaded>>>,
    /// The items that computed ids resolved to.
    resolved: Mutex<HashMap<ItemId, Result<Resolved, String>>>,
}

/// The maximum number of computed ids whose items are cached.
const MOST_RESOLVED: usize = 1000;

/// A graph, with the types of its values.
struct Loaded {
    code: CompiledGraph,
    interface: Interface,
    /// For each tool, the file of its graph, if the tool is a graph.
    nested: Vec<Option<PathBuf>>,
    texts: Texts,
    /// The schema of the inputs, if it says more than their types do.
    rules: Option<Value>,
    warnings: Vec<Diagnostic>,
}

/// The reason that a graph was not loaded.
///
/// It is displayed as `graph check` displays the mistakes. The example of [`Library`] loads a graph.
#[derive(Debug)]
pub struct LibraryError {
    /// The mistakes in it, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(diagnostic.render().trim_end())?;
        }
        Ok(())
    }
}

impl std::error::Error for LibraryError {}

impl Library {
    /// Opens the tree in `directory`: its `keys`, its `tools`, and the graphs in it.
    pub fn open(directory: &Path, tools: impl Tools) -> Self {
        Self::of(Project::open(directory, directory), tools)
    }

    /// Opens the tree that `file` belongs to, in `package` or below it.
    pub fn around(package: &Path, file: &Path, tools: impl Tools) -> Self {
        Self::of(Project::around(package, file), tools)
    }

    fn of(project: Project, tools: impl Tools) -> Self {
        Self::with(project, tools, false)
    }

    fn with(project: Project, tools: impl Tools, is_scripted: bool) -> Self {
        Self {
            shared: Arc::new(LibraryContents {
                project,
                tools: Arc::new(tools),
                is_scripted,
                loaded: Mutex::default(),
                resolved: Mutex::default(),
            }),
        }
    }

    /// Opens a tree whose graphs are tested: their runs call only what `tools` performs, and need no environment variables.
    ///
    /// The project may have [drafts](Project::with_drafts), so that an author can test a graph before it is signed. For that
    /// reason, `tools` must call nothing outside of the program.
    pub fn scripted(project: Project, tools: impl Tools) -> Self {
        Self::with(project, tools, true)
    }

    /// Returns the directory of the tree.
    pub fn root(&self) -> &Path {
        self.shared.project.root()
    }

    /// Returns the keys that the tree trusts.
    pub fn ring(&self) -> &KeyRing {
        self.shared.project.ring()
    }

    /// Returns the file of the graph `id` of the tree, if there is one.
    pub fn find(&self, id: &ItemId) -> Option<PathBuf> {
        self.shared.project.graph_called(id)
    }

    /// Returns the tasks that run the graphs, agents, programs and tools of the tree. A tool has a contract there.
    #[cfg(feature = "tasks")]
    pub fn tasks(&self) -> graph_engine::Tasks {
        let (library, tree) = (self.clone(), self.clone());
        let find = move |id: &ItemId| {
            let Some(file) = library.find(id).or_else(|| library.shared.project.tool_file(id)) else { return Ok(None) };
            let graph = library.graph(&file).map_err(|error| format!("`{id}` cannot begin: {error}"))?;
            Ok(Some(Arc::new(graph) as Arc<dyn Machine>))
        };
        graph_engine::Tasks::with_followers(find, move |directive| tree.shared.project.agent_following(directive))
    }

    /// Reads the schedules of the tree: those of the signed `graphs.toml` in its directory, whose graphs are loaded.
    ///
    /// ```
    /// # use graph_runtime::Runtime;
    /// # use graph_runtime::dynamic::Library;
    /// # fn example(runtime: Runtime, library: Library) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{ItemId, WorkerOptions};
    ///
    /// let file = library.find(&ItemId::new("shop/report")?).ok_or("there is no such graph")?;
    /// let options = WorkerOptions::default().graph(library.graph(&file)?);
    /// let worker = runtime.worker(options.schedules(library.schedules()?)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// All mistakes in the file, with their places: it is not signed by a trusted key, a field is unknown or malformed, a graph
    /// does not exist, cannot be loaded or does not accept the inputs.
    #[cfg(feature = "schedules")]
    pub fn schedules(&self) -> Result<Vec<Schedule>, LibraryError> {
        let found = self.shared.project.schedules().map_err(|diagnostics| LibraryError { diagnostics })?;
        let (mut schedules, mut diagnostics) = (Vec::new(), Vec::new());
        for definition in found {
            match self.schedule(&definition) {
                Ok(schedule) => schedules.push(schedule),
                Err(error) => diagnostics.extend(error.diagnostics),
            }
        }
        if diagnostics.is_empty() { Ok(schedules) } else { Err(LibraryError { diagnostics }) }
    }

    #[cfg(feature = "schedules")]
    fn schedule(&self, definition: &ScheduleDefinition) -> Result<Schedule, LibraryError> {
        let misfit =
            |reason: &dyn fmt::Display| LibraryError { diagnostics: vec![definition.misfit(&reason.to_string())] };
        let id = ItemId::new(definition.graph.as_str()).map_err(|error| misfit(&error))?;
        let file = self.find(&id).ok_or_else(|| misfit(&format_args!("there is no graph `{id}`")))?;
        let graph = self.graph(&file)?;
        let ScheduleDefinition { id, graph: name, cron, zone, overlap, catch_up, tick, inputs, .. } = definition;
        if let Some(fields) = &graph.interface().inputs {
            let is_known = |name: &&String| fields.iter().any(|field| field.name == **name);
            if let Some(unknown) = inputs.keys().chain(tick).find(|name| !is_known(name)) {
                return Err(misfit(&format_args!("the graph `{name}` has no input `{unknown}`")));
            }
        }
        let schedule = Schedule::new(id.as_str(), name.as_str(), cron, zone).map_err(|error| misfit(&error))?;
        let schedule = schedule.overlap(*overlap).catch_up(*catch_up).inputs(inputs.clone());
        let schedule = tick.iter().fold(schedule, |schedule, tick| schedule.tick_input(tick));
        schedule.check(&graph).map_err(|error| misfit(&error))?;
        Ok(schedule)
    }

    /// Loads a graph: reads, verifies and checks it.
    ///
    /// # Errors
    ///
    /// All mistakes in it; warnings do not keep it from being loaded.
    pub fn graph(&self, file: &Path) -> Result<Interpreted, LibraryError> {
        let known = self.loaded().get(file).cloned();
        let loaded = match known {
            Some(loaded) => loaded,
            None => self.load_all(file)?,
        };
        Ok(Interpreted { library: self.clone(), loaded })
    }

    /// Loads a graph and the graphs that it runs, so that mistakes in any of them are reported before anything runs.
    fn load_all(&self, file: &Path) -> Result<Arc<Loaded>, LibraryError> {
        let mut new: HashMap<PathBuf, Arc<Loaded>> = HashMap::new();
        let mut waiting = vec![file.to_owned()];
        while let Some(file) = waiting.pop() {
            if new.contains_key(&file) || self.loaded().contains_key(&file) {
                continue;
            }
            let loaded = self.load(&file)?;
            waiting.extend(loaded.nested.iter().flatten().cloned());
            new.insert(file, Arc::new(loaded));
        }
        let mut known = self.loaded();
        known.extend(new);
        Ok(known.get(file).cloned().expect("it was loaded, or known"))
    }

    /// Resolves an id that is known only when a node calls it. The result is cached: a library does not see later changes.
    fn resolve(&self, id: &ItemId) -> Result<Resolved, String> {
        let mut resolved = self.shared.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = resolved.get(id) {
            return known.clone();
        }
        // Bounds the cache, because an input may name any number of ids.
        if resolved.len() >= MOST_RESOLVED {
            resolved.clear();
        }
        let found = self.shared.project.resolve(id);
        resolved.insert(id.clone(), found.clone());
        found
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Arc<Loaded>>> {
        self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, file: &Path) -> Result<Loaded, LibraryError> {
        let compiled = self.shared.project.compile(file);
        let Some(graph) = compiled.graph else {
            return Err(LibraryError { diagnostics: compiled.diagnostics });
        };
        let mut ir = graph.ir(&compiled.source);
        let texts = Texts::of(&ir);
        let rules = ir.settings.schema.clone();
        let mut interface = graph.interface().clone();
        self.replace_graphs(&mut ir, &mut interface);
        if self.shared.is_scripted {
            ir.env.clear();
        }
        let code = CompiledGraph::new(ir).expect("the compiler makes only graphs that can be loaded");
        let nested = |tool: &TypedTool| {
            let id = (tool.by == Executor::Graph).then(|| ItemId::new(&*tool.id).ok()).flatten()?;
            self.shared.project.graph_called(&id)
        };
        let nested = interface.tools.iter().map(nested).collect();
        Ok(Loaded { code, interface, nested, texts, rules, warnings: compiled.diagnostics })
    }
}

impl Library {
    /// Makes calls of the graphs that the tools replace calls of the program. No run shares keys or signals with them.
    fn replace_graphs(&self, ir: &mut GraphIr, interface: &mut Interface) {
        for (at, row) in interface.tools.iter_mut().enumerate() {
            if row.by != Executor::Graph || !self.shared.tools.replaces(&row.id) {
                continue;
            }
            (row.by, row.typed) = (Executor::Program, true);
            (ir.tools[at].by, ir.tools[at].typed) = (Executor::Program, true);
            for node in &mut ir.nodes {
                if matches!(node.body.does, Kind::Action(tool) if usize::from(tool) == at) {
                    node.body.share.clear();
                    node.body.share_signals.clear();
                }
            }
        }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("root", &self.root()).finish_non_exhaustive()
    }
}

/// A loaded graph, ready to run with the tools of its library.
///
/// Its inputs are a JSON object, and its output is a JSON value:
///
/// ```
/// # use graph_runtime::Runtime;
/// # use graph_runtime::dynamic::Interpreted;
/// # async fn example(runtime: Runtime, graph: Interpreted) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::{Map, Value};
///
/// let inputs = Map::from_iter([("directory".to_owned(), Value::from("src"))]);
/// let finished = runtime.start(graph, inputs).await?.await?;
/// println!("it ended at `{}` with {}", finished.node, finished.output);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Interpreted {
    library: Library,
    loaded: Arc<Loaded>,
}

impl Interpreted {
    /// Returns the graph's id.
    pub fn id(&self) -> &str {
        &self.loaded.interface.id
    }

    /// Returns the graph's types and names.
    pub fn interface(&self) -> &Interface {
        &self.loaded.interface
    }

    /// Returns the rules of the graph's inputs beyond their types, as a JSON Schema without types: those that are checked when a run
    /// starts. `None` if there are no such rules.
    pub fn input_rules(&self) -> Option<&Value> {
        self.loaded.rules.as_ref()
    }

    /// Whether some of its inputs are sinks or guarded, so that only the author of a graph may choose them.
    pub fn has_trusted_inputs(&self) -> bool {
        graph_engine::graph::tables(&self.loaded.code).settings.trusted_inputs
    }

    /// Returns the warnings about the graph from when it was loaded.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.loaded.warnings
    }

    /// Returns the differences between `before` and this graph.
    pub fn changes_since(&self, before: &Self) -> GraphChanges {
        GraphChanges::between(&before.loaded.texts, &self.loaded.texts)
    }

    /// Returns the ids that `missing` finds in this graph and in the graphs inside it, each once. Looks at each graph once.
    fn missing(&self, missing: &dyn Fn(&dyn Tools, &Interface) -> Vec<String>) -> Vec<String> {
        let (mut found, mut seen, mut open) = (Vec::new(), Vec::new(), vec![self.clone()]);
        while let Some(graph) = open.pop() {
            for id in missing(&*self.library.shared.tools, &graph.loaded.interface) {
                if !found.contains(&id) {
                    found.push(id);
                }
            }
            for file in graph.loaded.nested.iter().flatten() {
                if !seen.contains(file) {
                    seen.push(file.clone());
                    // The inner graph was loaded together with this one.
                    open.extend(self.library.graph(file));
                }
            }
        }
        found
    }

    /// Returns the capability patterns that the graph declares.
    pub fn permissions(&self) -> &graph_engine::Grants {
        self.loaded.code.permissions()
    }
}

impl fmt::Debug for Interpreted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interpreted({})", self.id())
    }
}

impl Graph for Interpreted {
    type Inputs = Map<String, Value>;
    type Output = Value;

    fn output(&self, node: &str, value: Value) -> Result<Value, Mismatch> {
        match self.loaded.interface.output_at(node) {
            Some(ty) => {
                let value = conform(ty, value)?;
                Ok(match ty.mask() {
                    Some(mask) => mask.hide(value),
                    None => value,
                })
            }
            None => no_such_exit(node),
        }
    }
}

/// Reads a value that a run receives.
fn received(all: &[TypedSignal], name: &str, value: Value) -> Result<Value, Mismatch> {
    match all.iter().find(|one| one.name == name) {
        Some(one) => conform(&one.ty, value),
        None => no_such_signal(name),
    }
}

impl Machine for Interpreted {
    fn graph(&self) -> &CompiledGraph {
        &self.loaded.code
    }

    fn check_output(&self, node: &str, output: &Value) -> Result<(), Mismatch> {
        self.output(node, output.clone()).map(drop)
    }

    fn signal(&self, name: &str, value: Value) -> Result<Value, Mismatch> {
        received(&self.loaded.interface.signals, name, value)
    }

    fn answer(&self, node: &str, value: Value) -> Result<Value, Mismatch> {
        received(&self.loaded.interface.answers, node, value)
    }

    fn open(&self, inputs: Value) -> Result<Box<dyn StateFields>, Mismatch> {
        let inputs = match &self.loaded.interface.inputs {
            Some(fields) => object(fields, inputs)?,
            None => Map::from_value(inputs).map(Value::Object)?,
        };
        let values = vec![Value::Null; self.loaded.interface.keys.len()];
        Ok(Box::new(JsonCells { loaded: Arc::clone(&self.loaded), library: self.library.clone(), inputs, values }))
    }

    fn nested(&self, tool: u16) -> Option<Arc<dyn Machine>> {
        let file = self.loaded.nested.get(usize::from(tool))?.as_ref()?;
        // The nested graph was loaded together with this one.
        self.library.graph(file).ok().map(|graph| Arc::new(graph) as Arc<dyn Machine>)
    }

    fn nested_called(&self, id: &ItemId) -> Result<Option<Arc<dyn Machine>>, Box<Failure>> {
        if self.library.shared.tools.replaces(id.as_str()) {
            return Ok(None);
        }
        let file = match self.library.resolve(id).map_err(Failure::permanent)? {
            Resolved::Graph(file) => file,
            Resolved::Tool(_) | Resolved::Unknown => return Ok(None),
        };
        match self.library.graph(&file) {
            Ok(graph) => Ok(Some(Arc::new(graph))),
            Err(error) => {
                let problem = error.diagnostics.first().map_or("it has mistakes", |first| first.message.as_str());
                Err(Box::new(Failure::permanent(format!("the graph `{id}` cannot run: {problem}"))))
            }
        }
    }

    fn missing_tools(&self) -> Vec<String> {
        self.missing(&|tools, interface| {
            let named = interface.tools.iter().filter(|tool| tool.by == Executor::Program && !tool.id.is_empty());
            named.filter(|tool| !tools.performs(tool)).map(|tool| tool.id.clone()).collect()
        })
    }

    fn missing_reducers(&self) -> Vec<String> {
        self.missing(&|tools, interface| {
            let ids = interface.reducers.iter().map(|reducer| &reducer.id);
            ids.filter(|id| !tools.reduces(id)).cloned().collect()
        })
    }

    fn tool_caller(&self) -> Box<dyn ToolCaller> {
        Box::new(JsonLane { loaded: Arc::clone(&self.loaded), library: self.library.clone(), outcome: Value::Null })
    }
}

/// The state of an interpreted run.
struct JsonCells {
    loaded: Arc<Loaded>,
    library: Library,
    inputs: Value,
    values: Vec<Value>,
}

impl StateFields for JsonCells {
    fn inputs(&self) -> View<'_> {
        self.inputs.view()
    }

    #[inline]
    fn get(&self, key: usize) -> View<'_> {
        self.values.get(key).map_or(View::Null, AsView::view)
    }

    fn check(&self, key: usize, value: &Value) -> Result<(), Mismatch> {
        match self.loaded.interface.keys.get(key) {
            Some(key) if !value.is_null() => conform(&key.ty, value.clone()).map(drop),
            _ => Ok(()),
        }
    }

    #[inline]
    fn set(&mut self, key: usize, value: Value) -> Result<(), Mismatch> {
        let (Some(place), Some(key)) = (self.values.get_mut(key), self.loaded.interface.keys.get(key)) else {
            return Ok(());
        };
        // Null unsets a key of any type.
        *place = if value.is_null() { value } else { conform(&key.ty, value)? };
        Ok(())
    }

    fn set_element(&mut self, key: usize, at: usize, element: Value) -> Result<(), Mismatch> {
        let (Some(place), Some(key)) = (self.values.get_mut(key), self.loaded.interface.keys.get(key)) else {
            return Ok(());
        };
        let TypeKind::List(inner) = &key.ty.kind else { return place.put_element(at, element) };
        let element = conform(inner, element).map_err(|error| error.inside(at.to_string()))?;
        match place {
            Value::Array(list) => match list.get_mut(at) {
                Some(place) => *place = element,
                None => list.push(element),
            },
            other => *other = Value::Array(vec![element]),
        }
        Ok(())
    }

    fn reduce(&self, key: usize, value: View<'_>, write: &Value) -> Option<Result<Value, ReducerError>> {
        let reducer = self.loaded.interface.reducers.iter().find(|reducer| reducer.keys.contains(&key))?;
        let tools = &self.library.shared.tools;
        if !tools.reduces(&reducer.id) {
            return None;
        }
        let misfit = |what: &str, error: Mismatch| ReducerError::new(format!("its {what} does not fit: {error}"));
        let write = match conform(&reducer.write, write.clone()) {
            Ok(write) => write,
            Err(error) => return Some(Err(misfit("write", error))),
        };
        let value = Some(value.to_plain_value()).filter(|value| !value.is_null());
        let combined = tools.reduce(&reducer.id, value, &write)?;
        Some(combined.and_then(|value| conform(&reducer.value, value).map_err(|error| misfit("result", error))))
    }
}

/// The caller of the tools of an interpreted graph.
struct JsonLane {
    loaded: Arc<Loaded>,
    library: Library,
    outcome: Value,
}

impl ToolCaller for JsonLane {
    fn call<'a>(
        &'a mut self,
        tool: u16,
        arguments: &mut Arguments,
        call: &'a Call,
    ) -> Result<CallFuture<'a>, Mismatch> {
        let Some(row) = self.loaded.interface.tools.get(usize::from(tool)) else {
            return no_such_tool(tool);
        };
        if row.id.is_empty() && row.by == Executor::Program {
            let given = Map::from_value(arguments.take::<Value>(""))?;
            return dispatch(&self.library, &mut self.outcome, row, given, call);
        }
        let params = params_of(row, arguments)?;
        let performing = self.library.shared.tools.perform(call, row, params);
        let (result, outcome) = (&row.result, &mut self.outcome);
        Ok(Box::pin(async move {
            let answer = performing.await?;
            *outcome = conform(result, answer).map_err(ActionError::from)?;
            Ok(())
        }))
    }

    fn refusal(&self, tool: u16, id: Option<&ItemId>, arguments: &mut Arguments) -> Option<String> {
        let row = self.loaded.interface.tools.get(usize::from(tool))?;
        if row.by != Executor::Program {
            return None;
        }
        let unfit = |id: &str, mismatch: &Mismatch| unfit_parameters(id, mismatch);
        if !row.id.is_empty() {
            return params_of(row, arguments).err().map(|mismatch| unfit(&row.id, &mismatch));
        }
        let id = id?.as_str();
        match Map::from_value(arguments.take::<Value>("")).map(|given| routed(&self.library, id, given)) {
            Ok(Routed::Refused(problem)) => Some(problem),
            Ok(Routed::Unfit(mismatch)) | Err(mismatch) => Some(unfit(id, &mismatch)),
            Ok(Routed::Free(_) | Routed::Typed(..)) => None,
        }
    }

    fn outcome(&self) -> View<'_> {
        self.outcome.view()
    }

    fn restore(&mut self, tool: u16, value: Value) -> Result<(), Mismatch> {
        let ty = self.loaded.interface.tools.get(usize::from(tool)).map_or_else(Type::any, |tool| tool.result.clone());
        self.outcome = conform(&ty, value)?;
        Ok(())
    }
}

/// The target of a call whose tool is known only at the time of the call.
enum Routed {
    /// To a tool without a contract, with these parameters.
    Free(Map<String, Value>),
    /// To a tool with a contract, with these parameters.
    Typed(Box<TypedTool>, Map<String, Value>),
    /// No tool: the call is refused for this reason.
    Refused(String),
    /// No tool: the parameters do not fit.
    Unfit(Mismatch),
}

/// Finds the target of a call whose tool is known only at the time of the call.
fn routed(library: &Library, id: &str, given: Map<String, Value>) -> Routed {
    let found = ItemId::new(id).map_err(|error| error.to_string()).and_then(|id| library.resolve(&id));
    let contract = match found {
        Err(problem) => return Routed::Refused(problem),
        Ok(Resolved::Graph(_)) if library.shared.tools.replaces(id) => return Routed::Free(given),
        Ok(Resolved::Graph(_)) => return Routed::Refused(format!("`{id}` is a graph, which only a node can run")),
        Ok(Resolved::Unknown) => return Routed::Free(given),
        Ok(Resolved::Tool(contract)) => contract,
    };
    // Such a secret could not be protected: the places of secrets are fixed when a graph is compiled.
    if contract.result.has_secret() {
        return Routed::Refused(format!("`{id}` returns a secret, so its id must be written out"));
    }
    let Some(fields) = &contract.params else { return ruled(contract, given) };
    if let Some(name) = given.keys().find(|name| fields.iter().all(|field| field.name != **name)) {
        return Routed::Refused(format!("`{id}` has no parameter `{name}`"));
    }
    match object(fields, Value::Object(given)) {
        Ok(Value::Object(params)) => ruled(contract, params),
        Ok(_) => ruled(contract, Map::new()),
        Err(mismatch) => Routed::Unfit(mismatch),
    }
}

/// Checks the rules for the parameters of a tool with a contract.
fn ruled(contract: Box<TypedTool>, params: Map<String, Value>) -> Routed {
    let rules = contract.rules.params.as_ref();
    match rules.map(|rules| schema::validate(rules, &Value::Object(params.clone()))) {
        Some(Err(invalid)) => Routed::Refused(unfit_parameters(&contract.id, &invalid)),
        _ => Routed::Typed(contract, params),
    }
}

/// Calls a tool that is known only now. If it has a contract, the contract applies.
fn dispatch<'a>(
    library: &'a Library,
    outcome: &'a mut Value,
    row: &'a TypedTool,
    given: Map<String, Value>,
    call: &'a Call,
) -> Result<CallFuture<'a>, Mismatch> {
    let tools = &library.shared.tools;
    match routed(library, call.tool(), given) {
        Routed::Refused(message) => Ok(Box::pin(async move { Err(ActionError::permanent(message)) })),
        Routed::Unfit(mismatch) => Err(mismatch),
        Routed::Free(given) => {
            let performing = tools.perform(call, row, given);
            Ok(Box::pin(async move {
                *outcome = within_levels(performing.await?).map_err(ActionError::from)?;
                Ok(())
            }))
        }
        Routed::Typed(contract, params) => Ok(Box::pin(async move {
            let answer = tools.perform(call, &contract, params).await?;
            *outcome = conform(&contract.result, answer).map_err(ActionError::from)?;
            match contract.rules.result.as_ref().map(|rules| schema::validate(rules, outcome)) {
                Some(Err(invalid)) => {
                    Err(ActionError::permanent(format!("the result of `{}` does not fit: {invalid}", contract.id)))
                }
                _ => Ok(()),
            }
        })),
    }
}

/// Takes the arguments of a tool.
fn params_of(row: &TypedTool, arguments: &mut Arguments) -> Result<Map<String, Value>, Mismatch> {
    match &row.params {
        Some(fields) => taken(fields, arguments),
        None => Map::from_value(arguments.take::<Value>("")),
    }
}

/// Takes the arguments of a tool whose contract names them.
fn taken(fields: &[TypedField], arguments: &mut Arguments) -> Result<Map<String, Value>, Mismatch> {
    let mut params = Map::new();
    for field in fields {
        let value = conform(&field.ty, arguments.take("")).map_err(|error| error.inside(field.name.clone()))?;
        if !value.is_null() {
            params.insert(field.name.clone(), value);
        }
    }
    Ok(params)
}

//! The information that a tool receives about its call.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use graph_model::capability::{Capability, Grants};
use graph_model::digest::Digest;
use graph_model::name::{GraphId, ItemId, RunId};
use graph_model::program::CallLimits;
use graph_model::untrusted::Untrusted;
use graph_model::value::Value;
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::signed_answer::SignedAnswer;
use crate::stop::{CancelToken, Stop};

/// The settings that limit a program's tools. They are given to [`Builder::tools`](crate::Builder::tools), and a tool gets
/// them from its [call](Call::tool_settings).
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{ActionError, Call, Runtime, ToolSettings};
///
/// /// The most that an order may cost, in cents.
/// struct OrderLimit(u64);
///
/// impl ToolSettings for OrderLimit {
///     fn shown(&self) -> String {
///         self.0.to_string()
///     }
/// }
///
/// async fn order(call: &Call, cents: u64) -> Result<(), ActionError> {
///     match call.tool_settings::<OrderLimit>() {
///         Some(limit) if cents <= limit.0 => Ok(()),
///         _ => Err(ActionError::permanent("the order costs too much")),
///     }
/// }
///
/// let runtime = Runtime::builder().tools(OrderLimit(50_000)).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ToolSettings: Any + Send + Sync {
    /// Returns all settings that may change what a tool returns: a result that was kept under other settings is not used
    /// again.
    fn shown(&self) -> String;

    /// Returns everything besides its parameters that the result of a thread depends on: of a call of
    /// `rye/agent/threads/thread_directive`. `None` if a result for these parameters is not to be kept, as that of a thread that is
    /// not waited for.
    fn shown_thread(&self, params: &Value) -> Option<String> {
        let _ = params;
        None
    }
}

/// The call of a tool: which run, which node, which step.
///
/// A tool that does something outside passes the key of its call on:
///
/// ```
/// # use graph_engine as graph_runtime;
/// # struct Payments;
/// # impl Payments {
/// #     async fn charge(&self, _: u64, _: String) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # }
/// use graph_runtime::{ActionError, Call};
///
/// async fn charge(payments: &Payments, call: &Call, cents: u64) -> Result<String, ActionError> {
///     // The service charges once for a key, even if a crash repeats the call.
///     let receipt = payments.charge(cents, call.idempotency_key()).await?;
///     Ok(receipt)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) run: Arc<RunFacts>,
    pub(crate) node: u16,
    pub(crate) tool: u16,
    pub(crate) step: u64,
    /// How many times the call was made, including this time.
    pub(crate) attempt: u32,
    /// The item's index, if the node is a foreach.
    pub(crate) item: Option<u64>,
    /// Details that only some calls have; boxed, because a call is made at each step.
    pub(crate) more: Option<Box<More>>,
    /// Whether its tool has said that it must not be made twice; shared by its clones.
    pub(crate) once: Arc<AtomicBool>,
}

/// Details that only some calls have.
#[derive(Debug, Clone, Default)]
pub(crate) struct More {
    pub(crate) id: Option<ItemId>,
    pub(crate) remote: Option<Arc<str>>,
    /// The hook that makes the call, if one does.
    pub(crate) hook: Option<String>,
    /// The untrusted parts of the hook's parameters.
    pub(crate) untrusted: Untrusted,
    /// The answers to the questions that the tool has asked.
    pub(crate) answers: Vec<SignedAnswer>,
}

/// The facts that all calls of a graph share, in all its runs.
#[derive(Debug)]
pub(crate) struct GraphFacts {
    pub(crate) id: GraphId,
    pub(crate) nodes: Vec<String>,
    pub(crate) tools: Vec<Option<ItemId>>,
    pub(crate) env: Vec<String>,
    /// For each node, the untrusted parts of its parameters.
    pub(crate) untrusted: Vec<Untrusted>,
    pub(crate) permissions: Grants,
}

/// The facts that all calls of a run share.
pub(crate) struct RunFacts {
    pub(crate) id: RunId,
    pub(crate) graph: Arc<GraphFacts>,
    pub(crate) parent: Option<Parent>,
    /// The outermost run around it, if it is nested.
    pub(crate) root: Option<RunId>,
    /// The link of its first record, if it has a journal.
    pub(crate) start: Option<Digest>,
    /// Where it receives signals and answers, if it is nested and can wait.
    pub(crate) address: Option<Address>,
    /// How many levels of graphs and threads may still be nested below this run (R177).
    pub(crate) depth: u32,
    /// The limits of the node that called it, if it is nested.
    pub(crate) limits: CallLimits,
    /// The capabilities that the run may use: all of these grants must allow one.
    pub(crate) ceiling: Vec<Grants>,
    /// When the run must have ended, in the monotonic time of the runtime's clock.
    pub(crate) deadline: Option<Duration>,
    /// The time of the store at which the run must have ended, in milliseconds since the Unix epoch, if its graph has a deadline.
    pub(crate) stored_deadline: Option<i64>,
    pub(crate) stop: Stop,
    /// Whether a cancel that was requested before the run was resumed is ignored, as the caller asked.
    pub(crate) ignores_cancel: bool,
    /// The settings of the program for its tools.
    pub(crate) tool_settings: Option<Arc<dyn ToolSettings>>,
    /// Shows those who watch the run what its tools emit; `None` if nobody does.
    pub(crate) emitter: Option<Arc<dyn Emitter>>,
    /// The values of its tools, which go when nothing executes the run.
    pub(crate) locals: Weak<RunLocals>,
}

/// The values that the tools of a run keep between their calls, one of a type.
#[derive(Default)]
pub(crate) struct RunLocals(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl RunLocals {
    fn of_type<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find_map(|one| Arc::clone(one).downcast().ok());
        found.unwrap_or_else(|| {
            let made = Arc::new(T::default());
            all.push(Arc::clone(&made) as _);
            made
        })
    }
}

/// Shows those who watch a run what its tools emit.
pub(crate) trait Emitter: Send + Sync {
    /// Removes the secrets of the run from an emission, and shows it.
    fn emitted(&self, call: &Call, emission: Emission);
}

/// Something that a tool [emits](Call::emit) during its call, for those who watch the run. It is not kept in the journal.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Emission {
    /// A piece of a text, as that of a model that answers word by word.
    Text(String),
    /// A value of the tool's own.
    #[non_exhaustive]
    Custom {
        /// Its name.
        name: String,
        /// The value.
        data: Value,
    },
}

impl RunFacts {
    /// Returns where the run receives signals and answers; `None` if it has no journal, or is nested and cannot wait.
    pub(crate) fn address(&self) -> Option<Address> {
        match &self.parent {
            Some(_) => self.address.clone(),
            None => Some(Address::of_run(self.id.clone(), self.start?)),
        }
    }

    /// Returns the outermost run around it, or itself.
    pub(crate) fn root(&self) -> &RunId {
        self.root.as_ref().unwrap_or(&self.id)
    }

    /// Whether the run may use a capability.
    pub(crate) fn allows(&self, capability: &Capability) -> bool {
        self.ceiling.iter().all(|grants| grants.allow(capability))
    }

    /// Returns the capabilities that the run may use and that its graph permits itself.
    pub(crate) fn capabilities(&self) -> Grants {
        self.ceiling.iter().fold(self.graph.permissions.clone(), |all, one| all.narrowed(one))
    }
}

impl fmt::Debug for RunFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of {}", self.id, self.graph.id)
    }
}

impl Call {
    /// Makes a call that belongs to no run, to try out a tool. Its graph declares the environment variables `env`,
    /// `untrusted` names the untrusted parts of the parameters, and `tool_settings` limits the tool.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// use graph_runtime::{Call, ItemId, ToolSettings};
    ///
    /// struct NoSettings;
    ///
    /// impl ToolSettings for NoSettings {
    ///     fn shown(&self) -> String {
    ///         String::new()
    ///     }
    /// }
    ///
    /// let call = Call::alone(ItemId::new("shop/charge")?, Vec::new(), Default::default(), NoSettings);
    /// assert_eq!((call.tool(), call.attempt()), ("shop/charge", 1));
    /// assert_eq!(call.idempotency_key(), call.clone().again(2).idempotency_key());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Never: its ids and names are valid.
    pub fn alone(tool: ItemId, env: Vec<String>, untrusted: Untrusted, tool_settings: impl ToolSettings) -> Self {
        let graph = GraphFacts {
            id: GraphId::new("alone").expect("it has the letters of a graph's id"),
            nodes: vec!["alone".to_owned()],
            tools: vec![Some(tool)],
            env,
            untrusted: vec![untrusted],
            permissions: Grants::default(),
        };
        let facts = RunFacts {
            id: RunId::new("alone").expect("it has the letters of a run's id"),
            graph: Arc::new(graph),
            tool_settings: Some(Arc::new(tool_settings)),
            parent: None,
            root: None,
            start: None,
            address: None,
            depth: 0,
            limits: CallLimits::default(),
            ceiling: Vec::new(),
            deadline: None,
            stored_deadline: None,
            stop: Stop::default(),
            ignores_cancel: false,
            emitter: None,
            locals: Weak::new(),
        };
        Self { step: 1, ..Self::of(Arc::new(facts)) }
    }

    /// A call of a run that is yet to be made.
    pub(crate) fn of(run: Arc<RunFacts>) -> Self {
        Self { run, node: 0, tool: 0, step: 0, attempt: 1, item: None, more: None, once: Arc::default() }
    }

    /// Makes it the `attempt`th call of a tool by a visit.
    #[inline]
    pub(crate) fn begin(&mut self, node: u16, tool: u16, step: u64, attempt: u32) {
        (self.node, self.tool, self.step, self.attempt) = (node, tool, step, attempt);
        // The word of the tool in one attempt holds for the next ones too.
        if attempt == 1 {
            self.once.store(false, Ordering::Relaxed);
        }
    }

    /// States that the call is about to have an effect that must not happen twice, and that no
    /// [idempotency key](Self::idempotency_key) protects.
    ///
    /// If the call fails after that, or takes longer than it may, the runtime does not make it again by itself: only a `retry` of the
    /// node or a hook does. A call that was in progress when its process died is made again all the same.
    ///
    /// ```
    /// # use graph_engine::{ActionError, Call};
    /// # async fn connect() -> std::io::Result<()> { Ok(()) }
    /// # async fn print_label() -> std::io::Result<String> { Ok(String::new()) }
    /// async fn label(call: &Call) -> Result<String, ActionError> {
    ///     // May be made again: nothing is printed yet.
    ///     connect().await?;
    ///     call.happens_once();
    ///     Ok(print_label().await?)
    /// }
    /// ```
    pub fn happens_once(&self) {
        self.once.store(true, Ordering::Relaxed);
    }

    /// Whether its tool has said that it must not be made twice.
    pub(crate) fn is_once(&self) -> bool {
        self.once.load(Ordering::Relaxed)
    }

    /// Returns the same call as the `attempt`th, from 1.
    #[must_use]
    pub fn again(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }

    /// Returns the program's settings for its tools, as given to [`Builder::tools`](crate::Builder::tools); `None` if they
    /// are of another type, or none were given.
    ///
    /// [`ToolSettings`] has an example.
    pub fn tool_settings<T: Any>(&self) -> Option<&T> {
        let settings: &dyn Any = self.run.tool_settings.as_deref()?;
        settings.downcast_ref()
    }

    /// Returns the value of a type that all calls of this run share while it executes in this process; its default at first. `None`
    /// if the call belongs to no run, or to one that is over.
    ///
    /// The run drops the value as soon as nothing executes it: when it has ended, waits, is stopped or cancelled, or its task is
    /// dropped. A run that is resumed begins with another one, so the value is for what can be made again: a connection, a process. A
    /// nested run has values of its own.
    ///
    /// ```
    /// # use graph_engine::{ActionError, Call};
    /// #[derive(Default)]
    /// struct Session(tokio::sync::OnceCell<u32>);
    ///
    /// async fn ask(call: &Call) -> Result<u32, ActionError> {
    ///     let session = call.run_local::<Session>().ok_or("the run is over")?;
    ///     // Only the first call of the run opens it.
    ///     Ok(*session.0.get_or_init(|| async { 7 }).await)
    /// }
    /// ```
    pub fn run_local<T: Any + Send + Sync + Default>(&self) -> Option<Arc<T>> {
        Some(self.run.locals.upgrade()?.of_type())
    }

    /// Returns the run's id.
    pub fn run_id(&self) -> &RunId {
        &self.run.id
    }

    /// Returns the graph's id.
    pub fn graph_id(&self) -> &GraphId {
        &self.run.graph.id
    }

    /// Returns the visit of another run that this run belongs to, if it is nested in one.
    pub fn parent(&self) -> Option<&Parent> {
        self.run.parent.as_ref()
    }

    /// Returns the node's name; for a hook, the node that the run is at.
    pub fn node(&self) -> &str {
        &self.run.graph.nodes[usize::from(self.node)]
    }

    /// Returns the tool's id.
    pub fn tool(&self) -> &str {
        let id = self.more.as_ref().and_then(|more| more.id.as_ref());
        id.or(self.run.graph.tools[usize::from(self.tool)].as_ref()).map_or("", ItemId::as_str)
    }

    /// Whether the tool's id was computed while the run executed: the text of the graph does not name the tool.
    pub fn is_tool_computed(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.id.is_some())
    }

    /// Returns the number of the step, from 1.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the item's index, from 0, if the node is a foreach.
    pub fn item(&self) -> Option<u64> {
        self.item
    }

    /// Returns where an agent is to execute the call: the `remote` of the node (R11).
    pub fn remote(&self) -> Option<&str> {
        self.more.as_ref()?.remote.as_deref()
    }

    /// Returns the name of the hook that makes the call, if one does.
    pub fn hook(&self) -> Option<&str> {
        self.more.as_ref()?.hook.as_deref()
    }

    /// Returns how many levels of graphs and threads may still be nested below this run (R177).
    pub fn depth(&self) -> u32 {
        self.run.depth
    }

    /// Returns the limits that a node of another run has for this one, if it is nested in one.
    pub fn limits(&self) -> CallLimits {
        self.run.limits
    }

    /// Returns a key that is the same each time this step is tried: 32 hex digits.
    ///
    /// After a crash between the call and the commit, the step is executed again and the tool is called again. A call that
    /// failed is made again too, if the graph says so. A service that accepts an idempotency key does the thing once if it
    /// gets this one.
    ///
    /// [`Call`] has an example.
    pub fn idempotency_key(&self) -> String {
        call_key(&self.run.id, self.step, self.node(), self.item(), self.hook())
    }

    /// Returns the number of this attempt at the call, from 1. A call that failed may be made again, as the graph or a hook
    /// says.
    ///
    /// A run that is resumed counts from 1 again; the [idempotency key](Self::idempotency_key) is the same for all attempts.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the answers of people to the questions that the tool has asked in this visit, in their order: see
    /// [`ActionError::interrupt`](crate::ActionError::interrupt). Each is verified, and fits the `result_schema` of the node.
    pub fn answers(&self) -> &[SignedAnswer] {
        self.more.as_ref().map_or(&[], |more| more.answers.as_slice())
    }

    /// Whether the run was cancelled.
    ///
    /// The example of [`CancelToken`] checks it in a loop.
    ///
    /// A cancelled run waits for the call in progress. A tool that takes long can end the run sooner: it returns when it
    /// sees the cancel. If it fails then, the run ends as cancelled, and the call is made again if the run is resumed. If it
    /// returns a result, the result is committed first.
    pub fn is_cancelled(&self) -> bool {
        self.run.stop.is_cancelled()
    }

    /// Waits until the run is [cancelled](Self::is_cancelled), or forever if it never is.
    ///
    /// ```
    /// # use graph_engine::{ActionError, Call, Category};
    /// # async fn answer() -> String { String::new() }
    /// async fn ask(call: &Call) -> Result<String, ActionError> {
    ///     tokio::select! {
    ///         answer = answer() => Ok(answer),
    ///         () = call.cancelled() => Err(ActionError::new(Category::Cancelled, "nobody waits for the answer")),
    ///     }
    /// }
    /// ```
    pub async fn cancelled(&self) {
        self.cancel_token().cancelled().await;
    }

    /// Returns a token that shows whether the run was cancelled, for tasks that outlive the borrow of the call.
    ///
    /// [`CancelToken`] has an example.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken::of(&self.run.stop)
    }

    /// Shows a piece of a text to those who watch the run, as that of a model that answers word by word.
    ///
    /// It is an [`Event::Emitted`](crate::observer::Event::Emitted) for observers, at once: it is not kept in the journal, and is
    /// lost if nobody watches. Secrets that the run knows are removed from it; a secret that is split between two pieces is not
    /// found.
    ///
    /// ```
    /// # use graph_engine::{ActionError, Call};
    /// # async fn next_word() -> Option<String> { None }
    /// async fn answer(call: &Call) -> Result<String, ActionError> {
    ///     let mut answer = String::new();
    ///     while let Some(word) = next_word().await {
    ///         answer.push_str(&word);
    ///         call.emit_text(word);
    ///     }
    ///     Ok(answer)
    /// }
    /// ```
    pub fn emit_text(&self, text: impl Into<String>) {
        self.emitted(|| Emission::Text(text.into()));
    }

    /// Shows a value of the tool's own to those who watch the run, as [`Call::emit_text`] does with a text.
    pub fn emit(&self, name: impl Into<String>, data: impl Into<Value>) {
        self.emitted(|| Emission::Custom { name: name.into(), data: data.into() });
    }

    fn emitted(&self, emission: impl FnOnce() -> Emission) {
        if let Some(emitter) = &self.run.emitter {
            emitter.emitted(self, emission());
        }
    }

    /// Returns the parts of the parameters that neither the graph nor the program chose, if the tool may start programs.
    pub fn untrusted(&self) -> &Untrusted {
        match &self.more {
            Some(more) if more.hook.is_some() => &more.untrusted,
            _ => &self.run.graph.untrusted[usize::from(self.node)],
        }
    }

    /// Returns the environment variables that the graph declares, which its tools may see.
    pub fn env(&self) -> &[String] {
        &self.run.graph.env
    }
}

/// Returns the idempotency key of a call.
fn call_key(run: &RunId, step: u64, node: &str, item: Option<u64>, hook: Option<&str>) -> String {
    let mut text = format!("{run}/{step}/{node}");
    if let Some(item) = item {
        text.push_str(&format!("/{item}"));
    }
    if let Some(hook) = hook {
        text.push_str(&format!("/{hook}"));
    }
    Digest::of(text).to_hex()[..32].to_owned()
}

/// The visit that a nested run belongs to (R188).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Parent {
    /// The run.
    pub run: RunId,
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: String,
    /// The item's index, if the node is a foreach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
}

/// The call that spawned a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskOrigin {
    /// The run whose task it is: the outermost run around the call.
    pub owner: RunId,
    /// The visit that made the call.
    pub by: Parent,
    /// The link of the first record of the run that made it: another run may have its id later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Digest>,
    /// The hook that made it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// The limits of the task, if it is an agent.
    #[serde(default, skip_serializing_if = "is_unlimited")]
    pub limits: CallLimits,
    /// The task that it continues, if it is an agent that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Continuation>,
}

/// The task that another one continues: an agent that has ended, and gets a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    /// The run of the task that has ended.
    pub run: RunId,
    /// The message, which the model reads after the talk of that task.
    pub message: String,
}

fn is_unlimited(limits: &CallLimits) -> bool {
    *limits == CallLimits::default()
}

impl TaskOrigin {
    /// The origin of a task that a call spawns.
    #[cfg(feature = "tasks")]
    pub(crate) fn of(call: &Call, limits: CallLimits, continues: Option<Continuation>) -> Self {
        let by = Parent::new(call.run.id.clone(), call.step, call.node(), call.item);
        let (owner, hook) = (call.run.root().clone(), call.hook().map(str::to_owned));
        Self { owner, by, start: call.run.start, hook, limits, continues }
    }

    /// Returns the idempotency key of the call.
    pub(crate) fn key(&self) -> String {
        let Parent { run, step, node, item } = &self.by;
        call_key(run, *step, node, *item, self.hook.as_deref())
    }

    /// Returns the id of the task, which follows from its graph and the call.
    ///
    /// # Panics
    ///
    /// Never: each graph's id and hex digits are the id of a run.
    pub fn task_id(&self, graph: &GraphId) -> RunId {
        let key = self.key();
        let name: String = graph.stem().chars().take(64).collect();
        let start = self.start.map_or_else(String::new, |start| start.to_hex());
        let id = format!("{name}-{}", &Digest::of(format!("task {graph} {key} {start}")).to_hex()[..24]);
        RunId::new(id).expect("a part of a graph's id and hex digits are the id of a run")
    }
}

impl Parent {
    /// A visit, or one item of it.
    pub fn new(run: RunId, step: u64, node: impl Into<String>, item: Option<u64>) -> Self {
        Self { run, step, node: node.into(), item }
    }
}

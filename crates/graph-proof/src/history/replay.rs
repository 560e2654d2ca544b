//! Replays: follow a journal with a changed graph, and find where the run would have gone differently.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::SystemTime;

use graph_engine::activation::{Activation, Change};
use graph_engine::answer::{SignedAnswer, would_accept};
use graph_engine::failure::{Category, Failure, HeldFailure, ItemFailure};
use graph_engine::graph::{GraphTables, Notes, Now, tables};
use graph_engine::machine::Machine;
use graph_engine::past::{Past, opened};
use graph_engine::record::{
    Edit, End, JournalError, Opened, RecordedState, SignedRecord, SnapshotDraft, StateChanges, TakenWait, Visit,
};
use graph_engine::run_secrets::hidden;
use graph_engine::state::StateFields;
use graph_engine::step::{
    CallFacts, Env, FoldError, NO_WAY, Opening, Outcome, PausedNodes, Planned, Position, ReadyInside, SHARED, Settled,
    SettledVisit, UNFIT, Way, fold, items_failed, output, plan, plan_item, settle, too_many_nested_steps, write,
};
use graph_engine::tool_caller::Request;
use graph_engine::{EncryptionKey, Status};
use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::name::RunId;
use graph_model::reducer::Uncombined;
use graph_model::secret::HIDDEN;
use graph_model::timestamp;
use graph_model::value::{AsView, Map, Value, View, canonical_json};
use graph_signing::PublicKey;

use crate::audit::audit;
use crate::history::{Difference, PastError, differences};

/// How a run would have gone under another graph.
///
/// [`replay`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Replay {
    /// The points where it would have gone differently, in order; empty if it would have come the same way to where it is.
    pub deviations: Vec<Deviation>,
    /// How many nodes could be visited.
    pub visits: u64,
    /// Where and why the replay stopped, if it could not follow the run any further.
    pub stopped: Option<Stopped>,
    /// The output that it would have returned, if it would have ended; secrets are replaced by `[secret]`.
    pub output: Option<Value>,
}

/// The point where a run cannot be followed any further.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
    /// The number that the visit would have had.
    pub step: u64,
    /// The node.
    pub node: String,
    /// Why.
    pub reason: String,
}

/// A place where a run would have gone differently.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Deviation {
    /// The number of the visit under the changed graph.
    pub step: u64,
    /// The node; empty if no node is the cause.
    pub node: String,
    /// The number of the visit that it is compared with, if there is one.
    pub recorded: Option<u64>,
    /// The difference.
    pub departure: Departure,
}

/// A way in which a run would have gone differently.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Departure {
    /// The run could not have begun with its inputs.
    Inputs(String),
    /// A node is visited that the run did not visit there.
    Visits,
    /// Nodes that the run visited are left out.
    Skips(Vec<String>),
    /// Another call is made. The arguments are omitted if one of the graphs has secrets.
    Calls {
        /// The item of a foreach.
        item: Option<u64>,
        /// The call that was made: tool and arguments.
        recorded: Option<(String, Option<Value>)>,
        /// The call that would be made.
        now: (String, Option<Value>),
    },
    /// Another value is written to a key.
    Writes {
        /// The key.
        key: String,
        /// The value that was written, if any.
        recorded: Option<Value>,
        /// The value that would be written, if any.
        now: Option<Value>,
    },
    /// The node waits until another time. Times are those of the store, in milliseconds since the Unix epoch.
    Waits {
        /// The time until which it waited, if it waited.
        recorded: Option<i64>,
        /// The time until which it would wait, if it waited for a time.
        now: Option<i64>,
    },
    /// The node asks people something else.
    Asks {
        /// The value that they were shown, if it asked them.
        recorded: Option<Value>,
        /// The value that they would be shown, if it asks them.
        now: Option<Value>,
    },
    /// The node leads to other nodes.
    Leads {
        /// The nodes that were visited next; empty if the run ended.
        recorded: Vec<String>,
        /// The nodes that would be visited next; empty if the run would end.
        now: Vec<String>,
    },
    /// The node fails, and did not fail in the recorded run or failed in another way.
    Fails(String),
    /// The run ends with another status.
    Ends {
        /// The recorded status.
        recorded: Status,
        /// The status with which it would have ended.
        now: Status,
    },
    /// The run returns another output.
    Returns(Vec<Difference>),
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = |call: &(String, Option<Value>)| match &call.1 {
            Some(arguments) => format!("`{}` with {arguments}", call.0),
            None => format!("`{}`", call.0),
        };
        let value = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let nodes = |nodes: &[String]| match nodes {
            [] => "its end".to_owned(),
            nodes => format!("`{}`", nodes.join("`, `")),
        };
        match self {
            Self::Inputs(reason) => write!(f, "its inputs do not fit: {reason}"),
            Self::Visits => f.write_str("is visited, and was not"),
            Self::Skips(skipped) => write!(f, "is visited without {} before it", nodes(skipped)),
            Self::Calls { item, recorded, now } => {
                if let Some(item) = item {
                    write!(f, "for item {item} ")?;
                }
                // Secrets and large parameters are not shown.
                if recorded.as_ref().is_some_and(|recorded| call(recorded) == call(now)) {
                    return write!(f, "calls {} with other parameters than it called it with", call(now));
                }
                let recorded = recorded.as_ref().map_or("nothing".to_owned(), call);
                write!(f, "calls {}, where it called {recorded}", call(now))
            }
            Self::Writes { key, recorded, now } => {
                write!(f, "writes {} to `{key}`, where it wrote {}", value(now), value(recorded))
            }
            Self::Waits { recorded, now } => {
                let time = |at: &Option<i64>| match at {
                    Some(at) => format!("until {}", timestamp::milliseconds(timestamp::from_unix_milliseconds(*at))),
                    None => "for no time".to_owned(),
                };
                write!(f, "waits {}, where it waited {}", time(now), time(recorded))
            }
            Self::Asks { recorded, now } => write!(f, "asks {}, where it asked {}", value(now), value(recorded)),
            Self::Leads { recorded, now } => write!(f, "leads to {}, where it led to {}", nodes(now), nodes(recorded)),
            Self::Fails(error) => write!(f, "fails: {error}"),
            Self::Ends { recorded, now } => write!(f, "the run is {}, where it was {}", now.name(), recorded.name()),
            Self::Returns(found) => {
                let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
                write!(f, "the run returns something else, at `{}`", paths.join("`, `"))
            }
        }
    }
}

/// Follows a run's journal with a changed graph, and reports where it would have gone differently. Nothing is called. If
/// the changed graph makes the same call, of the same tool with the same arguments, it gets the recorded answer, even if it
/// makes the call at another point of the run. If no answer is recorded, the replay stops.
///
/// `original` is the run's own graph, from which the recorded calls are reconstructed. A run that is still running or was
/// stopped is followed as far as it has come. The journal does not record the effects of hooks, nor the data of a failure
/// besides its text, unless an edge of the run read it.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Machine, PublicKey, RunId, Store};
/// # async fn example(
/// #     old: &dyn Machine,
/// #     new: &dyn Machine,
/// #     store: &dyn Store,
/// #     key: &PublicKey,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::history::replay;
///
/// let run = RunId::new("order-17")?;
/// let replayed = replay(old, new, &run, &store.load(&run).await?, key, None)?;
/// for deviation in &replayed.deviations {
///     println!("step {}: `{}` {}", deviation.step, deviation.node, deviation.departure);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the journal was changed or is not one that the engine can write for `original`, or its secrets are encrypted with a key
/// that is missing.
pub fn replay(
    original: &dyn Machine,
    changed: &dyn Machine,
    run: &RunId,
    records: &[SignedRecord],
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
) -> Result<Replay, PastError> {
    // A journal that the run's own graph does not allow is not a recording of it, and proves nothing about another graph.
    audit(original, run, records, key, encryption_key)?;
    let mut past = Past::open(original, run, records, key, encryption_key)?;
    let Some(state) = past.state() else {
        return Err(PastError::Encrypted(past.start.encryption_key.clone()));
    };
    // In a fork, both graphs begin where the fork begins.
    let begun =
        past.start.from.is_some().then(|| {
            SnapshotDraft { code: past.graph(), state, position: &past.position, run_secrets: None }.to_owned()
        });
    let recorded = RecordedCalls::read(&mut past)?;
    let Past { start, resumed, end, edits, limit: last_limit, .. } = past;
    let granted: Vec<Grants> = std::iter::once(&start.grants)
        .chain(resumed.iter().map(|resume| &resume.grants))
        .map(|patterns| grants(patterns))
        .collect();
    let mut replay = Replay { deviations: Vec::new(), visits: 0, stopped: None, output: None };
    let code = tables(changed.graph());
    let mut position = Position::new(code);
    let state = opened(changed, start.inputs.clone()).and_then(|mut state| {
        // The visits are left where they were in the recorded run.
        let mut start = start.clone();
        start.pauses = PausedNodes::default();
        position = start.begin(code, Some(&mut *state))?;
        if let Some(snapshot) = &begun {
            position = snapshot.restore(code, Some(&mut *state))?;
        }
        Ok(state)
    });
    let state = match state {
        Ok(state) => state,
        Err(reason) => {
            let departure = Departure::Inputs(reason);
            replay.deviations.push(Deviation { step: 0, node: String::new(), recorded: None, departure });
            return Ok(replay);
        }
    };
    let hides = !code.settings.secrets.is_empty() || !tables(original.graph()).settings.secrets.is_empty();
    let mut walk = ChangedRun {
        code,
        original: tables(original.graph()),
        state,
        position,
        recorded,
        granted,
        hides,
        machine: changed,
        replay,
        last_limit,
        cursor: 0,
        edits: edits.into(),
        waiting: HashMap::new(),
    };
    walk.follow(end.as_ref())?;
    Ok(walk.replay)
}

fn grants(patterns: &[String]) -> Grants {
    // A text that is not a pattern grants nothing.
    Grants::new(patterns.iter().filter_map(|text| Pattern::new(text.as_str()).ok()))
}

/// The identity of a call: its tool and its arguments.
type CallIdentity = String;

/// The recorded answer to a call.
#[derive(Debug, Clone)]
enum RecordedAnswer {
    Result(Value),
    /// A failure, and the value that was collected for it in the place of an item.
    Failure(Failure, Option<Value>),
    /// The answer is not recorded, because nothing was made of it.
    Unknown,
}

/// The visits of a journal, with their calls.
struct RecordedCalls {
    visits: Vec<RecordedVisit>,
    /// The answers to each call, as indices in `all`.
    answers: HashMap<CallIdentity, VecDeque<usize>>,
    all: Vec<Option<RecordedAnswer>>,
    /// For each resume that was not made yet, the number of visits before it.
    resumed_at: VecDeque<usize>,
    /// As `resumed_at`, for edits.
    edited_at: VecDeque<usize>,
    /// The waits that were over and are not continued yet, each with the number of visits before it.
    taken: VecDeque<(usize, TakenWait)>,
}

/// Returns the name of a node that an edge leads to, if it leads to one.
fn name_of(code: &GraphTables, node: Option<u16>) -> Option<String> {
    node.map(|node| code.node(node).name.clone())
}

/// Returns the names of the nodes that the edges of a recorded visit led to.
fn targets(code: &GraphTables, visit: &Visit) -> Vec<Option<String>> {
    let Some(node) = code.node_named(&visit.node) else { return Vec::new() };
    let edges = visit.taken(code.fans_out(node));
    code.branches(node, &edges).map(|to| name_of(code, to)).collect()
}

/// Returns the node of the last of several visits.
fn last_name(visits: &[Visit]) -> String {
    visits.last().map_or_else(String::new, |visit| visit.node.clone())
}

struct RecordedVisit {
    visit: Visit,
    at: SystemTime,
    /// The nodes to which its step led.
    next: Vec<String>,
    /// The run's step limit at that time.
    limit: Option<u64>,
    /// The values that functions of the program combined the writes of its step to.
    reduced: Map<String, Value>,
    /// The calls: one, or one for each item; `None` for an item whose call could not be planned.
    calls: Vec<Option<RecordedCall>>,
}

struct RecordedCall {
    identity: CallIdentity,
    tool: String,
    arguments: Value,
    answer: usize,
}

impl RecordedCalls {
    /// Reads the visits, and plans each one again to reconstruct its calls.
    fn read(past: &mut Past<'_>) -> Result<Self, PastError> {
        let mut recorded = Self {
            visits: Vec::new(),
            answers: HashMap::new(),
            all: Vec::new(),
            resumed_at: VecDeque::new(),
            edited_at: VecDeque::new(),
            taken: VecDeque::new(),
        };
        loop {
            let next = past.next_step()?.map(|(seq, step, at)| (seq, step.clone(), timestamp::parse(at)));
            let before = recorded.visits.len();
            recorded.resumed_at.resize(past.resumed.len(), before);
            recorded.edited_at.resize(past.edits.len(), before);
            recorded.taken.extend(past.taken.drain(..).map(|taken| (before, taken)));
            let Some((seq, step, at)) = next else { return Ok(recorded) };
            let at = at.ok_or(JournalError::Misfit { seq, reason: "its time cannot be read".to_owned() })?;
            let next: Vec<String> = step.next.iter().map(|target| target.node.clone()).collect();
            let limit = step.limit;
            for (visit, activation) in step.visits.into_iter().zip(past.next_frontier()) {
                let calls = recorded.calls(past, &visit, &activation, at);
                let (next, reduced) = (next.clone(), step.reduced.clone());
                recorded.visits.push(RecordedVisit { visit, at, next, limit, reduced, calls });
            }
            past.go_on()?;
        }
    }

    fn calls(
        &mut self,
        past: &Past<'_>,
        visit: &Visit,
        activation: &Activation,
        at: SystemTime,
    ) -> Vec<Option<RecordedCall>> {
        // A visit that waits for nested runs is recorded again with their results.
        let Some(state) = past.state().filter(|_| visit.opened.is_none() && !visit.timed_out) else {
            return Vec::new();
        };
        let (code, clock) = (past.graph(), || at);
        let now = Now::known_at(&clock, visit.now.map(timestamp::from_unix_milliseconds));
        let env = Env::new(code, &past.position, state, activation, &now).made();
        let mut notes = Notes::default();
        let mut known = |request: Request, answer: RecordedAnswer| {
            let (tool, arguments) = named_call(code, request);
            let identity = identity(&tool, &arguments);
            let at = self.all.len();
            self.all.push(Some(answer));
            self.answers.entry(identity.clone()).or_default().push_back(at);
            RecordedCall { identity, tool, arguments, answer: at }
        };
        let failure = |message: &str, value| RecordedAnswer::Failure(failure_of(visit, message), value);
        match plan(&env, &mut notes) {
            Ok(Planned::Call(request)) => {
                let answer = match &visit.error {
                    Some(error) if visit.result.is_null() => failure(error, None),
                    _ => RecordedAnswer::Result(visit.result.clone()),
                };
                vec![Some(known(request, answer))]
            }
            Ok(Planned::Each { items, .. }) => {
                let collected = visit.changes.values().next().and_then(Value::as_array);
                let each = (0..).zip(&items).map(|(index, item)| {
                    let request = plan_item(&env, item, &mut Notes::default()).ok()?;
                    let failed = visit.items.iter().find(|failed| failed.item == index);
                    let place = || collected?.get(usize::try_from(index).ok()?).cloned();
                    let answer = match failed {
                        Some(failed) => failure(&failed.error, place()),
                        None => place().map_or(RecordedAnswer::Unknown, RecordedAnswer::Result),
                    };
                    Some(known(request, answer))
                });
                each.collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes the answer to a call: the answer of `at`, if that is the same call, or else the next that is not taken.
    fn take(&mut self, identity: &CallIdentity, at: Option<&RecordedCall>) -> Option<RecordedAnswer> {
        let own = at.filter(|call| call.identity == *identity).map(|call| call.answer);
        if let Some(answer) = own.and_then(|own| self.all[own].take()) {
            return Some(answer);
        }
        let waiting = self.answers.get_mut(identity)?;
        while let Some(next) = waiting.pop_front() {
            if let Some(answer) = self.all[next].take() {
                return Some(answer);
            }
        }
        None
    }
}

fn failure_of(visit: &Visit, message: &str) -> Failure {
    let category = visit.category.as_deref().and_then(Category::named).unwrap_or(Category::Permanent);
    Failure { data: visit.data.clone(), ..Failure::of(category, message) }
}

/// Returns a call's tool, and its arguments by their names.
fn named_call(code: &GraphTables, mut request: Request) -> (String, Value) {
    let tool = code.tool(request.tool);
    let id = request.id.as_ref().or(tool.and_then(|tool| tool.id.as_ref()));
    let tool_name = id.map(ToString::to_string).unwrap_or_default();
    let values: Vec<Value> = request.arguments.values_mut().iter_mut().map(std::mem::take).collect();
    let arguments = match tool.and_then(|tool| tool.params.as_ref()) {
        // An argument that is not given is not part of the call.
        Some(names) => names.iter().cloned().zip(values).filter(|(_, value)| !value.is_null()).collect(),
        None => values.into_iter().next().unwrap_or_default(),
    };
    let verb = tool.map_or("", |tool| tool.verb.name());
    (if verb == "execute" { tool_name } else { format!("{verb} {tool_name}") }, arguments)
}

fn identity(tool: &str, arguments: &Value) -> CallIdentity {
    format!("{tool} {}", canonical_json(arguments))
}

/// Why a visit is not made.
enum Halt {
    Stopped(String),
    /// The run ends with a failure.
    Failed(String),
}

/// A run under the changed graph.
struct ChangedRun<'m> {
    code: &'m GraphTables,
    original: &'m GraphTables,
    state: Box<dyn StateFields>,
    position: Position,
    recorded: RecordedCalls,
    /// The grants at the start and at each resume.
    granted: Vec<Grants>,
    /// Whether arguments are not to be shown.
    hides: bool,
    machine: &'m dyn Machine,
    replay: Replay,
    /// The run's step limit after its last record.
    last_limit: Option<u64>,
    /// The number of recorded visits that the replay has passed.
    cursor: usize,
    /// The edits that were not made yet.
    edits: VecDeque<Edit>,
    /// The visits that wait or have waited, by the numbers of the recorded visits that did.
    waiting: HashMap<u64, u64>,
}

/// The recorded answers to the calls of a visit.
#[derive(Default)]
struct Answered {
    /// The answer to its one call, or the failure because of which it makes no call.
    answer: Option<RecordedAnswer>,
    /// The results of a foreach's calls, with failures in their places.
    results: Vec<Value>,
    /// The items that failed.
    items: Vec<ItemFailure>,
}

/// A visit under the changed graph.
struct AnsweredCall {
    visit: Visit,
    way: Way,
    changes: Vec<Change>,
}

impl ChangedRun<'_> {
    fn deviate(&mut self, step: u64, node: &str, pair: Option<usize>, departure: Departure) {
        let recorded = pair.map(|pair| self.recorded.visits[pair].visit.step);
        self.replay.deviations.push(Deviation { step, node: node.to_owned(), recorded, departure });
    }

    fn follow(&mut self, end: Option<&End>) -> Result<(), PastError> {
        let is_done = end.is_some_and(|end| end.status.has_result());
        loop {
            if self.position.is_over() {
                self.finish(end.filter(|_| is_done), end.map_or(Status::Running, |end| end.status));
                return Ok(());
            }
            // The recorded run has not come any further.
            if self.cursor == self.recorded.visits.len() && !is_done {
                return Ok(());
            }
            self.resume();
            if self.position.has_failed(self.code) {
                self.fail(end);
                return Ok(());
            }
            if let Err(reason) = self.take_waits() {
                self.replay.stopped = Some(reason);
                return Ok(());
            }
            // The replay has the step limit that hooks and callers allowed the run.
            let next = self.recorded.visits.get(self.cursor);
            self.position.limit = next.map_or(self.last_limit, |next| next.limit).or(self.position.limit);
            let most = self.position.most_steps(self.code);
            // Visits that a hook has suspended are left, which takes no step.
            let opened = next.and_then(|next| next.visit.opened.as_ref());
            let is_left = opened.is_some_and(|opened| opened.suspension().is_some());
            if !is_left && self.position.is_exhausted(self.code) {
                let exhausted = end.is_some_and(|end| end.exhausted);
                let now = if self.code.fails_at_limit() { Status::Error } else { Status::Completed };
                if !exhausted || now == Status::Error {
                    let recorded = end.map_or(Status::Running, |end| end.status);
                    let step = self.position.steps;
                    self.deviate(step, "", None, Departure::Fails(format!("Max steps exceeded ({most})")));
                    self.deviate(step, "", None, Departure::Ends { recorded, now });
                }
                return Ok(());
            }
            let over = self.position.overvisited(self.code).map(|over| over.message(self.code));
            if let Some(error) = over.or_else(|| self.nested_steps_exceeded()) {
                if end.is_none_or(|end| end.error.as_ref() != Some(&error)) {
                    let recorded = end.map_or(Status::Running, |end| end.status);
                    let step = self.position.steps;
                    self.deviate(step, "", None, Departure::Fails(error));
                    self.deviate(step, "", None, Departure::Ends { recorded, now: Status::Error });
                }
                return Ok(());
            }
            if !self.step(end)? {
                return Ok(());
            }
        }
    }

    /// Returns the error of a run that would take more steps than its graph allows, with the recorded ones of the runs inside it.
    fn nested_steps_exceeded(&self) -> Option<String> {
        let most = u64::from(self.code.settings.steps?);
        let needed = self.position.nested_steps().saturating_add(self.position.frontier.len() as u64);
        (needed > most).then(|| too_many_nested_steps(most))
    }

    /// Visits the next nodes. Returns `false` if the run cannot be followed any further.
    fn step(&mut self, end: Option<&End>) -> Result<bool, PastError> {
        let frontier = self.position.frontier.clone();
        if let Err(reason) = self.make_edits() {
            let at = frontier.first();
            let node = at.map_or(String::new(), |at| self.code.node(at.node).name.clone());
            let step = at.map_or(self.position.steps, |at| at.number);
            self.replay.stopped = Some(Stopped { step, node, reason });
            return Ok(false);
        }
        let (mut visits, mut settled) = (Vec::new(), Vec::new());
        let mut pairs = Vec::new();
        for activation in &frontier {
            let number = activation.number;
            let name = self.code.node(activation.node).name.clone();
            let pair = self.pair(number, &name);
            match self.visit(activation, pair) {
                Ok(mut made) => {
                    if let Some(pair) = pair {
                        made.visit.below = self.recorded.visits[pair].visit.below;
                        self.compare(number, &made.visit, pair);
                    }
                    settled.push((activation, made.way, made.changes));
                    visits.push(made.visit);
                    pairs.push(pair);
                }
                Err(Halt::Stopped(reason)) => {
                    self.replay.stopped = Some(Stopped { step: number, node: name, reason });
                    return Ok(false);
                }
                Err(Halt::Failed(error)) => {
                    self.deviate(number, &name, pair, Departure::Fails(error));
                    let recorded = end.map_or(Status::Running, |end| end.status);
                    self.deviate(number, &name, pair, Departure::Ends { recorded, now: Status::Error });
                    return Ok(false);
                }
            }
        }
        let visited = || {
            settled.iter().zip(&visits).map(
                |((at, way, changes), visit): (&(&Activation, Way, Vec<Change>), &Visit)| SettledVisit {
                    at,
                    calls: visit.calls,
                    below: visit.below,
                    error: visit.error.as_deref(),
                    items: &visit.items,
                    way,
                    returned: visit.result.view(),
                    changes,
                },
            )
        };
        let none = Map::new();
        let reduced = pairs.last().copied().flatten().map_or(&none, |pair| &self.recorded.visits[pair].reduced);
        let proving = RecordedState::of(self.code, &*self.state, reduced).proving();
        let folded = fold(self.code, &self.position, Some(&proving), visited());
        if let Err(reason) = self.is_known(proving, pairs.iter().all(Option::is_some)) {
            let (step, node) = (frontier.first().map_or(self.position.steps, |at| at.number), last_name(&visits));
            self.replay.stopped = Some(Stopped { step, node, reason });
            return Ok(false);
        }
        let candidate = match folded {
            Ok(candidate) => candidate,
            Err(error) => {
                self.stop_at_fold(&error, &frontier, &pairs);
                return Ok(false);
            }
        };
        let names: Vec<String> = candidate.next().iter().map(|at| self.code.node(at.node).name.clone()).collect();
        if let Some(Some(last)) = pairs.last().copied()
            && pairs.iter().all(Option::is_some)
            && self.recorded.visits[last].next != names
        {
            let recorded = self.recorded.visits[last].next.clone();
            // The visit that took other edges, or else the last one, whose edges may lead elsewhere.
            let took_others = |at: &usize| {
                let (pair, (activation, way, _)) = (pairs[*at], &settled[*at]);
                let said = pair.map(|pair| targets(self.original, &self.recorded.visits[pair].visit));
                said != Some(
                    self.code.branches(activation.node, way.edges()).map(|to| name_of(self.code, to)).collect(),
                )
            };
            let at = (0..pairs.len()).find(took_others).unwrap_or(pairs.len() - 1);
            let (number, node, pair) = (frontier[at].number, visits[at].node.clone(), pairs[at]);
            self.deviate(number, &node, pair, Departure::Leads { recorded, now: names });
        }
        let combined = candidate.take(self.code, &mut self.position, visited());
        self.replay.visits = self.position.steps;
        let changes = settled.into_iter().flat_map(|(.., changes)| changes);
        // `fold` has checked that the state accepts the values.
        Ok(write(combined, changes, &mut *self.state).is_ok())
    }

    /// Reports that the visits of a step cannot be committed.
    fn stop_at_fold(&mut self, error: &FoldError, frontier: &[Activation], pairs: &[Option<usize>]) {
        let node = error.node();
        let name = self.code.node(node).name.clone();
        if let FoldError::Undecided { .. } = error {
            let step = frontier.iter().find(|at| at.node == node).map_or(self.position.steps, |at| at.number);
            let reason = "its visit was cancelled, so it is not known what its call returns".to_owned();
            self.replay.stopped = Some(Stopped { step, node: name, reason });
            return;
        }
        self.replay.visits = self.position.steps + pairs.len() as u64;
        let key = |key: &usize| self.code.keys[*key].name.as_str();
        let reason = match error {
            FoldError::Misfit { key: at, mismatch, .. } => format!("{UNFIT}`{}`: {mismatch}", key(at)),
            FoldError::Uncombined { key: at, error, .. } => format!("{UNFIT}`state.{}`: {error}", key(at)),
            other => format!("{NO_WAY}{other}"),
        };
        let first = frontier.first().map_or(self.position.steps, |at| at.number);
        self.deviate(first, &name, pairs.first().copied().flatten(), Departure::Fails(reason));
    }

    /// Resumes the run where the recorded run was resumed.
    fn resume(&mut self) {
        while self.recorded.resumed_at.pop_front_if(|visits| *visits <= self.cursor).is_some() {
            self.position.resume();
        }
    }

    /// Continues the visits whose waits are over. These are the visits that the recorded run continued here. Without any, if
    /// nothing else is left to do, they are the visits that are due first.
    fn take_waits(&mut self) -> Result<(), Stopped> {
        let mut taken = Vec::new();
        while let Some((_, recorded)) = self.recorded.taken.pop_front_if(|(visits, _)| *visits <= self.cursor) {
            let number = self.waiting.get(&recorded.step).copied().unwrap_or(recorded.step);
            taken.extend(self.taken_again(number, recorded));
        }
        if taken.is_empty() && self.position.is_waiting() {
            let Some(due) = self.position.next_due() else {
                let wait = self.position.parked.first();
                let (step, node) = wait.map_or((0, 0), |at| (at.number, at.node));
                let reason = "it waits for something that has not happened".to_owned();
                return Err(Stopped { step, node: self.code.node(node).name.clone(), reason });
            };
            let inside = self.position.waits.iter().filter(|wait| wait.opened.is_inside());
            let resumed = ReadyInside { steps: inside.map(|wait| wait.step).collect(), ..ReadyInside::default() };
            taken = self.position.over(self.code, due, [], &resumed);
        }
        taken.sort_unstable_by_key(|taken| taken.step);
        self.position.take_waits(self.code, &taken).map_err(|reason| Stopped { step: 0, node: String::new(), reason })
    }

    /// Returns how a wait is over that was in the recorded run; `None` if the visit does not wait for that under this graph.
    fn taken_again(&self, number: u64, recorded: TakenWait) -> Option<TakenWait> {
        let wait = self.position.waits.iter().find(|wait| wait.step == number)?;
        if wait.opened.is_inside() {
            return Some(TakenWait::new(number, recorded.at));
        }
        let Some(mut signal) = recorded.signal else {
            // It may be due later.
            return Some(TakenWait::new(number, recorded.at.max(wait.opened.due?)));
        };
        // The journal of a nested run names it from the outermost run.
        signal.name = signal.own_name().to_owned();
        // The answer to an interrupt is one however the visits are numbered now.
        if let Some(ordinal) = signal.name.strip_prefix(&format!("{}#", recorded.step)) {
            signal.name = format!("{number}#{ordinal}");
        }
        if wait.opened.pause.is_some() {
            return Some(TakenWait::new(number, recorded.at).with(signal));
        }
        let ask = self.position.wait_of(self.code, number).and_then(|wait| wait.ask.as_ref());
        let node = self.position.parked.iter().find(|at| at.number == number);
        let node = node.map_or("", |at| self.code.node(at.node).name.as_str());
        let answers = |ask| {
            SignedAnswer::read(&signal.value).is_some_and(|signed| would_accept(self.machine, node, ask, &signed))
        };
        if !ask.is_none_or(answers) || !self.position.awaited(self.code, wait).contains(&signal.name) {
            return wait.opened.due.map(|due| TakenWait::new(number, recorded.at.max(due)));
        }
        // It may have been due before.
        signal.at = wait.opened.due.map_or(signal.at, |due| signal.at.min(due - 1));
        Some(TakenWait::new(number, recorded.at).with(signal))
    }

    /// Reports that the run ends with the failures that are held, where the recorded run does not.
    fn fail(&mut self, end: Option<&End>) {
        let Some(held) = self.position.held.first().cloned() else { return };
        let HeldFailure { step, node, error, .. } = held;
        let recorded = end.map_or(Status::Running, |end| end.status);
        let is_same = |end: &End| end.node.as_ref() == Some(&node) && end.error.as_ref() == Some(&error);
        if recorded == Status::Error && end.is_some_and(is_same) {
            return;
        }
        self.deviate(step, &node, None, Departure::Fails(error));
        if recorded != Status::Error {
            self.deviate(step, &node, None, Departure::Ends { recorded, now: Status::Error });
        }
    }

    /// Fails if a function of the program was needed that is not there, unless the recorded value is the one that it would
    /// yield: the run has not departed from the recorded one, which `is_paired` says of the visits.
    fn is_known(&self, proving: RecordedState<'_>, is_paired: bool) -> Result<(), String> {
        let missing = proving.missing().first().and_then(|key| self.code.keys[*key].reducer.as_ref()?.function());
        match missing {
            Some(function) if !is_paired || !self.replay.deviations.is_empty() => {
                Err(Uncombined::missing(function).to_string())
            }
            _ => Ok(()),
        }
    }

    /// Makes the edits that the recorded run had received when it had made as many of its visits.
    fn make_edits(&mut self) -> Result<(), String> {
        while self.recorded.edited_at.pop_front_if(|visits| *visits <= self.cursor).is_some() {
            let Some(edit) = self.edits.pop_front() else { break };
            let misfit = |error| format!("the edit after step {} cannot be made: {error}", edit.steps);
            let proving = RecordedState::of(self.code, &*self.state, &edit.reduced).proving();
            let reduced = edit.changes().reduce(self.code, &proving).map_err(misfit)?;
            self.is_known(proving, true)?;
            let changes = StateChanges { recorded: Some(&reduced), ..edit.changes() };
            let edited = changes.apply(self.code, &mut self.position, Some(&mut *self.state));
            edited.map_err(misfit)?;
        }
        Ok(())
    }

    /// Finds the recorded visit to compare with a visit of `node`, and reports visits that were skipped or added.
    fn pair(&mut self, step: u64, node: &str) -> Option<usize> {
        let ahead = self.recorded.visits[self.cursor..].iter().position(|one| one.visit.node == node);
        let Some(ahead) = ahead else {
            self.deviate(step, node, None, Departure::Visits);
            return None;
        };
        let at = self.cursor + ahead;
        if ahead > 0 {
            let skipped = self.recorded.visits[self.cursor..at].iter().map(|one| one.visit.node.clone()).collect();
            self.deviate(step, node, Some(at), Departure::Skips(skipped));
        }
        self.cursor = at + 1;
        Some(at)
    }

    /// Reports the differences between a visit and the recorded one: its failure and the values that it writes.
    fn compare(&mut self, step: u64, visit: &Visit, pair: usize) {
        let was = &self.recorded.visits[pair].visit;
        let mut found = Vec::new();
        // In the journal, secrets are cut out of a text.
        let is_hidden = self.hides && was.error.as_ref().is_some_and(|error| error.contains(HIDDEN));
        if visit.error != was.error
            && !(is_hidden && visit.error.is_some())
            && let Some(error) = &visit.error
        {
            found.push(Departure::Fails(error.clone()));
        }
        let shown = |code: &GraphTables, key: &str, value: Option<&Value>| {
            value.map(|value| hidden(code.mask_of_write(key, value), value.clone()))
        };
        let names = was.changes.keys().chain(visit.changes.keys().filter(|key| !was.changes.contains_key(*key)));
        for key in names {
            let (before, after) = (was.changes.get(key), visit.changes.get(key));
            if before != after {
                found.push(Departure::Writes {
                    key: key.clone(),
                    recorded: shown(self.original, key, before),
                    now: shown(self.code, key, after),
                });
            }
        }
        for departure in found {
            self.deviate(step, &visit.node, Some(pair), departure);
        }
    }

    /// Visits a node; `pair` is the recorded visit that it is compared with.
    fn visit(&mut self, activation: &Activation, pair: Option<usize>) -> Result<AnsweredCall, Halt> {
        let node = self.code.node(activation.node);
        if pair.is_some_and(|pair| self.recorded.visits[pair].visit.cancelled) {
            let mut visit = self.bare(activation);
            visit.cancelled = true;
            return Ok(AnsweredCall { visit, way: Way::Cancelled, changes: Vec::new() });
        }
        let opened = pair.and_then(|pair| self.recorded.visits[pair].visit.opened.clone());
        let is_again =
            |opened: &Opened| opened.pause.is_some() || (opened.is_inside() && self.code.may_nest(activation.node));
        if let Some(opened) = opened.filter(is_again) {
            return Ok(self.left(activation, pair, opened));
        }
        let (at, told_now) = match pair {
            Some(pair) => (self.recorded.visits[pair].at, self.recorded.visits[pair].visit.now),
            None => (self.recorded.visits.last().map_or(SystemTime::UNIX_EPOCH, |last| last.at), None),
        };
        let said = self.replay.deviations.len();
        let clock = move || at;
        let now = Now::known_at(&clock, told_now.map(timestamp::from_unix_milliseconds));
        if let Some(opened) = self.opened(activation, pair, at, &now) {
            return Ok(self.left(activation, pair, opened));
        }
        let Answered { answer, mut results, items } = self.answers(activation.number, activation, pair, &now)?;
        let failure = match (&answer, items.as_slice()) {
            (Some(RecordedAnswer::Failure(failure, _)), _) => Some(failure.clone()),
            (_, [first, others @ ..]) => {
                Some(Failure::permanent(items_failed(first.item, &first.error, others.len() + 1)))
            }
            _ => None,
        };
        let result = match answer {
            Some(RecordedAnswer::Result(value)) => value,
            Some(RecordedAnswer::Unknown) => {
                return Err(Halt::Stopped("what its call returned was not kept".to_owned()));
            }
            _ => Value::Null,
        };
        let shared = result.view().step(SHARED);
        let unshared = |key: &&usize| !matches!(shared.step(&self.code.keys[**key].name), View::List(_));
        if let Some(key) = node.share.iter().find(unshared).filter(|_| failure.is_none()) {
            return Err(Halt::Stopped(format!("its run did not share `{}`", self.code.keys[*key].name)));
        }
        let mut visit = self.bare(activation);
        // The same call is made as often as it was in the recording.
        if let Some(pair) = pair.filter(|_| self.replay.deviations.len() == said) {
            visit.calls = self.recorded.visits[pair].visit.calls;
        }
        let (mut notes, mut changes) = (Notes::default(), Vec::new());
        let outcome = Outcome::of(self.code.asks(activation.node), failure.as_ref(), result.view(), &mut results);
        let facts = CallFacts::of(visit.calls);
        let other = Visit::default();
        let was = pair.map_or(&other, |pair| &self.recorded.visits[pair].visit);
        let proving = RecordedState::of_visit(self.code, &*self.state, activation.node, was).proving();
        let env = Env::new(self.code, &self.position, &proving, activation, &now);
        let Settled { way, unfit } = settle(&env, outcome, &facts, &mut notes, &mut changes);
        self.is_known(proving, pair.is_some()).map_err(Halt::Stopped)?;
        // The recorded calls are planned without the keys that no journal has, and so are these.
        changes.retain(|change| !self.code.keys[change.key].is_in_memory());
        let failure = failure.or(unfit.map(|unfit| *unfit));
        if way.is_fatal() {
            return Err(Halt::Failed(failure.map(|failure| failure.message).unwrap_or_default()));
        }
        visit.error = failure.map(|failure| failure.message);
        visit.suppressed = way.is_suppressed();
        visit.ends_branch = way.ends_branch();
        visit.timed_out = way.is_timed_out();
        visit.held = way.is_held();
        visit.result = result;
        visit.items = items;
        visit.edges = way.edges().as_slice().to_vec();
        let change = |change: &Change| (self.code.keys[change.key].name.clone(), change.value.clone());
        visit.changes = changes.iter().map(change).collect();
        Ok(AnsweredCall { visit, way, changes })
    }

    /// Returns the record of a visit without anything that it did.
    fn bare(&self, activation: &Activation) -> Visit {
        let mut visit = Visit::default();
        (visit.step, visit.node) = (activation.number, self.code.node(activation.node).name.clone());
        visit
    }

    /// Returns a visit that waits.
    fn left(&mut self, activation: &Activation, pair: Option<usize>, opened: Opened) -> AnsweredCall {
        if let Some(pair) = pair {
            self.waiting.insert(self.recorded.visits[pair].visit.step, activation.number);
        }
        let mut visit = self.bare(activation);
        visit.opened = Some(opened.clone());
        AnsweredCall { visit, way: Way::Waits(opened), changes: Vec::new() }
    }

    /// Returns the opening of the wait of a visit if its node, or its tool, waits. Compares it with the recorded one.
    fn opened(
        &mut self,
        activation: &Activation,
        pair: Option<usize>,
        at: SystemTime,
        now: &Now<'_>,
    ) -> Option<Opened> {
        let recorded = pair.map(|pair| &self.recorded.visits[pair].visit);
        // A tool asks what it asked in the recorded run.
        let asked = recorded.and_then(|visit| visit.opened.as_ref()?.payload.clone());
        let opening = match plan(&self.env(activation, now), &mut Notes::default()) {
            Ok(Planned::Wait(opening)) => opening,
            Ok(Planned::Call(_)) if self.code.tool_may_ask(activation.node) && asked.is_some() => {
                Opening { payload: asked, ..Opening::default() }
            }
            _ => return None,
        };
        let node = self.code.node(activation.node);
        let before = recorded.map(|visit| visit.opened.clone());
        let opened_at = before.as_ref().and_then(|opened| opened.as_ref()).map(|opened| opened.at);
        let opened = Opened::new(node.wait()?, opening, opened_at.unwrap_or_else(|| timestamp::unix_milliseconds(at)))
            .behind(self.position.waits_before(activation.number));
        if let Some(before) = before.map(Option::unwrap_or_default) {
            let (recorded, now) = (before.due, opened.due);
            if recorded != now {
                self.deviate(activation.number, &node.name, pair, Departure::Waits { recorded, now });
            }
            if before.payload != opened.payload {
                let (recorded, now) = (before.payload, opened.payload.clone());
                self.deviate(activation.number, &node.name, pair, Departure::Asks { recorded, now });
            }
        }
        Some(opened)
    }

    /// Plans a visit, and finds the recorded answers to its calls.
    fn answers(
        &mut self,
        number: u64,
        activation: &Activation,
        pair: Option<usize>,
        now: &Now<'_>,
    ) -> Result<Answered, Halt> {
        let node = self.code.node(activation.node);
        let mut answered = Answered::default();
        match plan(&self.env(activation, now), &mut Notes::default()) {
            Err(failure) => answered.answer = Some(RecordedAnswer::Failure(*failure, None)),
            Ok(Planned::Compute | Planned::Finish | Planned::Wait(_)) => {}
            Ok(Planned::Call(request)) => answered.answer = Some(self.answer(number, &node.name, request, pair, None)?),
            Ok(Planned::Each { items, .. }) => return self.answers_of_items(number, activation, pair, now, &items),
        }
        Ok(answered)
    }

    /// Plans the calls for the items of a foreach, and finds the recorded answers to them.
    fn answers_of_items(
        &mut self,
        number: u64,
        activation: &Activation,
        pair: Option<usize>,
        now: &Now<'_>,
        over: &[Value],
    ) -> Result<Answered, Halt> {
        let node = self.code.node(activation.node);
        let said = self.replay.deviations.len();
        let (mut answered, mut is_unknown) = (Answered::default(), false);
        for (index, item) in (0..).zip(over) {
            let answer = match plan_item(&self.env(activation, now), item, &mut Notes::default()) {
                Ok(request) => self.answer(number, &node.name, request, pair, Some(index))?,
                Err(failure) => RecordedAnswer::Failure(*failure, None),
            };
            answered.results.push(match answer {
                RecordedAnswer::Result(value) => value,
                RecordedAnswer::Failure(failure, value) => {
                    let value = value.unwrap_or_else(|| View::Object(&failure).to_value());
                    answered.items.push(ItemFailure::new(index, failure.message));
                    value
                }
                RecordedAnswer::Unknown => {
                    is_unknown = true;
                    Value::Null
                }
            });
        }
        let leads_elsewhere = self.code.has_target(activation.node) || !self.code.stops_run(activation);
        // A foreach that failed and leads elsewhere does not store its collected values, and nothing reads them.
        let asks = node.kind.collects().is_some() && (answered.items.is_empty() || !leads_elsewhere);
        if is_unknown && asks {
            let is_same = self.replay.deviations.len() == said;
            // The same calls have the same results, with which the node failed to choose an edge.
            let Some(failure) = self.failed_to_route(activation, pair).filter(|_| is_same) else {
                return Err(Halt::Stopped("what its calls returned was not kept".to_owned()));
            };
            answered.answer = Some(RecordedAnswer::Failure(failure, None));
        }
        Ok(answered)
    }

    fn env<'a>(&'a self, activation: &'a Activation, now: &'a Now<'a>) -> Env<'a> {
        Env::new(self.code, &self.position, &*self.state, activation, now)
    }

    /// Returns the failure of a visit that could not choose an edge on its calls' results, if its node can fail in this way
    /// and leads elsewhere then.
    fn failed_to_route(&self, at: &Activation, pair: Option<usize>) -> Option<Failure> {
        let was = &self.recorded.visits[pair?].visit;
        let error = was.error.as_deref().filter(|_| was.items.is_empty() && !was.suppressed)?;
        let continues = self.code.has_target(at.node) || !self.code.stops_run(at);
        let is_own = continues && self.code.may_fail_to_route(at.node, error);
        is_own.then(|| failure_of(was, error))
    }

    /// Finds the recorded answer to a call, and reports if another call was made there.
    fn answer(
        &mut self,
        step: u64,
        node: &str,
        request: Request,
        pair: Option<usize>,
        item: Option<u64>,
    ) -> Result<RecordedAnswer, Halt> {
        let code = self.code;
        let capability = code.tool(request.tool).and_then(|tool| {
            let id = request.id.as_ref().or(tool.id.as_ref());
            let is_internal = id.is_some_and(|id| id.as_str().starts_with(graph_model::program::INTERNAL));
            (!is_internal).then(|| Capability::new(tool.verb, tool.item, id))
        });
        let (tool, arguments) = named_call(code, request);
        let identity = identity(&tool, &arguments);
        let place = item.and_then(|item| usize::try_from(item).ok()).unwrap_or_default();
        let was = pair.and_then(|pair| self.recorded.visits[pair].calls.get(place)?.as_ref());
        let shown = |arguments: &Value| (!self.hides).then(|| arguments.clone());
        let departure = match was {
            Some(was) if was.identity == identity => None,
            Some(was) => Some(Some((was.tool.clone(), shown(&was.arguments)))),
            None => Some(None),
        };
        let was_same = departure.is_none();
        if pair.is_some()
            && let Some(recorded) = departure
        {
            let now = (tool.clone(), shown(&arguments));
            self.deviate(step, node, pair, Departure::Calls { item, recorded, now });
        }
        // A call that was made has a recorded answer, even if it was denied.
        let is_own = was_same && pair.is_some();
        if let Some(capability) = capability.filter(|_| !is_own)
            && !self.granted.iter().any(|grants| grants.allow(&capability))
        {
            return Err(Halt::Stopped(format!("the run was not granted `{capability}`")));
        }
        // The recorded call is copied, because `take` borrows the whole recording.
        let own = pair.and_then(|pair| {
            let call = self.recorded.visits[pair].calls.get(place)?.as_ref()?;
            Some(RecordedCall {
                identity: call.identity.clone(),
                tool: String::new(),
                arguments: Value::Null,
                answer: call.answer,
            })
        });
        self.recorded
            .take(&identity, own.as_ref())
            .ok_or_else(|| Halt::Stopped(format!("no answer is recorded to its call of `{tool}`")))
    }

    /// Compares how the run ends.
    fn finish(&mut self, end: Option<&End>, status: Status) {
        let now = self.position.status_at_end();
        let at = self.recorded.visits.last().map_or(SystemTime::UNIX_EPOCH, |last| last.at);
        let clock = move || at;
        let recorded = end.and_then(|end| end.now).map(timestamp::from_unix_milliseconds);
        let now_recorded = Now::known_at(&clock, recorded);
        let at = self.position.ended_at();
        let output = output(&self.env(&at, &now_recorded), &mut Notes::default());
        let output = hidden(self.code.settings.secrets.output.as_ref(), output);
        let (step, node) = (self.position.steps, self.code.node(self.position.last).name.clone());
        let left: Vec<String> = self.recorded.visits[self.cursor..].iter().map(|one| one.visit.node.clone()).collect();
        if !left.is_empty() {
            self.deviate(step, &node, None, Departure::Skips(left));
        }
        if status != now {
            self.deviate(step, &node, None, Departure::Ends { recorded: status, now });
        }
        if let Some(end) = end {
            let was = hidden(self.original.settings.secrets.output.as_ref(), end.output.clone());
            let found = differences(&was, &output);
            if !found.is_empty() {
                self.deviate(step, &node, None, Departure::Returns(found));
            }
        }
        self.replay.output = Some(output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_whose_parameters_are_not_shown_is_said_to_have_others() {
        let call = || ("policy/check".to_owned(), None);
        let departure = Departure::Calls { item: None, recorded: Some(call()), now: call() };
        assert_eq!(departure.to_string(), "calls `policy/check` with other parameters than it called it with");
    }
}

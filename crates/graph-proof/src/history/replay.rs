//! Following a journal with a changed graph: where the run would have gone differently.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::SystemTime;

use graph_engine::activation::{Activation, Change};
use graph_engine::failure::{Category, Failure, ItemFailure};
use graph_engine::graph::{GraphTables, Notes, Now, tables};
use graph_engine::machine::Machine;
use graph_engine::past::{Past, opened};
use graph_engine::record::{End, JournalError, Sealed, SnapshotDraft, Visit};
use graph_engine::state::StateFields;
use graph_engine::step::{
    CallFacts, Env, FoldError, NO_WAY, Outcome, Planned, Position, Settled, SettledVisit, UNFIT, Way, fold,
    items_failed, output, plan, plan_item, settle,
};
use graph_engine::tool_caller::Request;
use graph_engine::vault::hidden;
use graph_engine::{SealKey, Status};
use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::name::RunId;
use graph_model::secret::{HIDDEN, Mask};
use graph_model::timestamp;
use graph_model::value::{AsView, Value, View, canonical_json};
use graph_signing::PublicKey;

use crate::audit::audit;
use crate::history::{Difference, PastError, differences};

/// How a run would have gone under another graph.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Replay {
    /// Where it would have gone differently, in order; nothing if it would have gone the same way to where it is.
    pub deviations: Vec<Deviation>,
    /// How many nodes could be visited.
    pub visits: u64,
    /// Where and why it could not be followed any further, if it could not.
    pub stopped: Option<Stopped>,
    /// What it would have returned, if it would have come to an end; for secrets there stands `[secret]`.
    pub output: Option<Value>,
}

/// Where a run cannot be followed any further.
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
    /// The node; empty where no node is to blame.
    pub node: String,
    /// The number of the visit that it is compared with, if there is one.
    pub recorded: Option<u64>,
    /// What is different.
    pub departure: Departure,
}

/// What is different.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Departure {
    /// The run could not have begun with its inputs.
    Inputs(String),
    /// A node is visited that the run did not visit there.
    Visits,
    /// Nodes are left out that the run visited.
    Skips(Vec<String>),
    /// Another call is made. Arguments are not told of a graph with secrets.
    Calls {
        /// The item of a foreach.
        item: Option<u64>,
        /// The call that was made: tool and arguments.
        recorded: Option<(String, Option<Value>)>,
        /// The call that would be made.
        now: (String, Option<Value>),
    },
    /// Something else is written to a key.
    Writes {
        /// The key.
        key: String,
        /// What was written, if anything.
        recorded: Option<Value>,
        /// What would be written.
        now: Option<Value>,
    },
    /// It leads elsewhere.
    Leads {
        /// The nodes that were visited next; empty if the run ended.
        recorded: Vec<String>,
        /// The nodes that would be.
        now: Vec<String>,
    },
    /// The node fails where it did not, or in another way.
    Fails(String),
    /// The run ends in another way.
    Ends {
        /// How it stands.
        recorded: Status,
        /// How it would have ended.
        now: Status,
    },
    /// Something else is returned.
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
                let recorded = recorded.as_ref().map_or("nothing".to_owned(), call);
                write!(f, "calls {}, where it called {recorded}", call(now))
            }
            Self::Writes { key, recorded, now } => {
                write!(f, "writes {} to `{key}`, where it wrote {}", value(now), value(recorded))
            }
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

/// Follows a run's journal with a changed graph, and says where it would have gone differently. Nothing is called: where the changed
/// graph makes the same call, of the same tool with the same arguments, it gets what is recorded, also where it makes it at another
/// time; where no answer is recorded, the replay stops.
///
/// `original` is the run's own graph, which says what the calls were. A run that is still running or was stopped is
/// followed as far as it has come. What hooks did is not written down, nor what a failure held beside its text that no
/// edge of the run looked at.
///
/// # Errors
///
/// If the journal was changed or is not one that the engine writes of `original`, or its secrets are sealed with a key that is not
/// there.
pub fn replay(
    original: &dyn Machine,
    changed: &dyn Machine,
    run: &RunId,
    records: &[Sealed],
    key: &PublicKey,
    seal: Option<&SealKey>,
) -> Result<Replay, PastError> {
    // What the run's own graph does not allow is no recording of it, and nothing follows from that for another.
    audit(original, run, records, key, seal)?;
    let mut past = Past::open(original, run, records, key, seal)?;
    let Some(state) = past.state() else {
        return Err(PastError::Sealed(past.start.seal.clone()));
    };
    // Where a fork begins, both begin.
    let begun = past
        .start
        .from
        .is_some()
        .then(|| SnapshotDraft { code: past.graph(), state, position: &past.position, vault: None }.to_owned());
    let recorded = RecordedCalls::read(&mut past)?;
    let Past { start, resumed, end, limit: last_limit, .. } = past;
    let granted: Vec<Grants> =
        std::iter::once(&start.grants).chain(&resumed).map(|patterns| grants(patterns)).collect();
    let (inputs, limit) = (start.inputs, start.limit);
    let mut replay = Replay { deviations: Vec::new(), visits: 0, stopped: None, output: None };
    let code = tables(changed.graph());
    let mut position = Position::new(code);
    position.limit = limit.map(u64::from);
    let state = opened(changed, inputs).and_then(|mut state| {
        if let Some(snapshot) = &begun {
            position = snapshot.restore(code, &mut *state)?;
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
        replay,
        last_limit,
        cursor: 0,
    };
    walk.follow(end.as_ref())?;
    Ok(walk.replay)
}

fn grants(patterns: &[String]) -> Grants {
    // What is no pattern grants nothing.
    Grants::new(patterns.iter().filter_map(|text| Pattern::new(text.as_str()).ok()))
}

/// What makes two calls the same: the tool, and what it gets.
type CallIdentity = String;

/// What a call came to.
#[derive(Debug, Clone)]
enum RecordedAnswer {
    Result(Value),
    /// A failure, and what of it was collected in the place of an item.
    Failure(Failure, Option<Value>),
    /// It is not written down, because nothing was made of it.
    Unknown,
}

/// The visits of a journal, with what they called.
struct RecordedCalls {
    visits: Vec<RecordedVisit>,
    /// Every answer, by its call; those that are not taken yet.
    answers: HashMap<CallIdentity, VecDeque<usize>>,
    all: Vec<Option<RecordedAnswer>>,
}

struct RecordedVisit {
    visit: Visit,
    at: SystemTime,
    /// Where the step led that it was part of.
    next: Vec<String>,
    /// How many steps the run was allowed then.
    limit: Option<u64>,
    /// The calls: one, or one for each item; `None` for an item that could not be called for.
    calls: Vec<Option<RecordedCall>>,
}

struct RecordedCall {
    identity: CallIdentity,
    tool: String,
    arguments: Value,
    answer: usize,
}

impl RecordedCalls {
    /// Reads what was visited, and plans each visit again to see what it called.
    fn read(past: &mut Past<'_>) -> Result<Self, PastError> {
        let mut recorded = Self { visits: Vec::new(), answers: HashMap::new(), all: Vec::new() };
        loop {
            let Some((seq, step, at)) = past.next_step()? else { return Ok(recorded) };
            let (step, at) = (step.clone(), timestamp::parse(at));
            let at = at.ok_or(JournalError::Misfit { seq, reason: "its time cannot be read".to_owned() })?;
            let next: Vec<String> = step.next.iter().map(|target| target.node.clone()).collect();
            let limit = step.limit;
            for (visit, activation) in step.visits.into_iter().zip(past.position.frontier.clone()) {
                let calls = recorded.calls(past, &visit, &activation, at);
                recorded.visits.push(RecordedVisit { visit, at, next: next.clone(), limit, calls });
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
        let Some(state) = past.state() else { return Vec::new() };
        let (code, clock) = (past.graph(), || at);
        let now = Now::known_at(&clock, visit.now.map(timestamp::from_unix_milliseconds));
        let env = Env::new(code, &past.position, state, activation, &now);
        let mut notes = Notes::default();
        let mut known = |request: Request, answer: RecordedAnswer| {
            let (tool, arguments) = told(code, request);
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

    /// Takes the answer to a call: the one that `at` names, if it is that call's, or else any that was not taken.
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
fn told(code: &GraphTables, mut request: Request) -> (String, Value) {
    let tool = code.tool(request.tool);
    let id = request.id.as_ref().or(tool.and_then(|tool| tool.id.as_ref()));
    let tool_name = id.map(ToString::to_string).unwrap_or_default();
    let values: Vec<Value> = request.arguments.values_mut().iter_mut().map(std::mem::take).collect();
    let arguments = match tool.and_then(|tool| tool.params.as_ref()) {
        // An argument that is not given has no part in the call.
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
    /// What was granted at the start and each time that the run was resumed.
    granted: Vec<Grants>,
    /// Whether arguments are not to be shown.
    hides: bool,
    replay: Replay,
    /// How many steps the run may take behind its last record.
    last_limit: Option<u64>,
    /// How many recorded visits are behind it.
    cursor: usize,
}

/// What is recorded of the calls of a visit.
#[derive(Default)]
struct Answered {
    /// What its one call came to, or why it makes no call.
    answer: Option<RecordedAnswer>,
    /// What the calls of a foreach returned, with failures in their places.
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
        let is_done = end.is_some_and(|end| matches!(end.status, Status::Completed | Status::CompletedWithErrors));
        loop {
            if self.position.frontier.is_empty() {
                self.finish(end.filter(|_| is_done), end.map_or(Status::Running, |end| end.status));
                return Ok(());
            }
            // The run has not come any further.
            if self.cursor == self.recorded.visits.len() && !is_done {
                return Ok(());
            }
            // What hooks and callers allowed the run, it is allowed.
            let next = self.recorded.visits.get(self.cursor);
            self.position.limit = next.map_or(self.last_limit, |next| next.limit).or(self.position.limit);
            let most = self.position.most_steps(self.code);
            if self.position.is_exhausted(self.code) {
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
            if !self.step(end)? {
                return Ok(());
            }
        }
    }

    /// Visits the nodes that are next. False if the run cannot be followed any further.
    fn step(&mut self, end: Option<&End>) -> Result<bool, PastError> {
        let frontier = self.position.frontier.clone();
        let (mut visits, mut settled) = (Vec::new(), Vec::new());
        let mut pairs = Vec::new();
        for activation in &frontier {
            let number = activation.number;
            let name = self.code.node(activation.node).name.clone();
            let pair = self.pair(number, &name);
            match self.visit(activation, pair) {
                Ok(made) => {
                    if let Some(pair) = pair {
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
                    error: visit.error.as_deref(),
                    items: &visit.items,
                    way,
                    returned: visit.result.view(),
                    changes,
                },
            )
        };
        let candidate = match fold(self.code, &self.position, Some(&*self.state), visited()) {
            Ok(candidate) => candidate,
            Err(error) => {
                self.replay.visits = self.position.steps + pairs.len() as u64;
                let node = self.code.node(error.node()).name.clone();
                let reason = match &error {
                    FoldError::Misfit { key, mismatch, .. } => {
                        format!("{UNFIT}`{}`: {mismatch}", self.code.keys[*key].name)
                    }
                    other => format!("{NO_WAY}{other}"),
                };
                let first = frontier.first().map_or(self.position.steps, |at| at.number);
                self.deviate(first, &node, pairs.first().copied().flatten(), Departure::Fails(reason));
                return Ok(false);
            }
        };
        let names: Vec<String> = candidate.next().iter().map(|at| self.code.node(at.node).name.clone()).collect();
        if let Some(Some(last)) = pairs.last().copied()
            && pairs.iter().all(Option::is_some)
            && self.recorded.visits[last].next != names
        {
            let node = visits.last().map(|visit: &Visit| visit.node.clone()).unwrap_or_default();
            let recorded = self.recorded.visits[last].next.clone();
            let number = frontier.last().map_or(self.position.steps, |at| at.number);
            self.deviate(number, &node, Some(last), Departure::Leads { recorded, now: names });
        }
        candidate.take(self.code, &mut self.position, visited());
        self.replay.visits = self.position.steps;
        for change in settled.into_iter().flat_map(|(.., changes)| changes) {
            // It was tried whether the state takes it.
            if self.state.set(change.key, change.value).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds the recorded visit that one of a node is compared with, and says what was left out or came between.
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

    /// Says what a visit writes that it did not.
    fn compare(&mut self, step: u64, visit: &Visit, pair: usize) {
        let was = &self.recorded.visits[pair].visit;
        let mut found = Vec::new();
        // A text that had a secret in it stands there without.
        let is_hidden = self.hides && was.error.as_ref().is_some_and(|error| error.contains(HIDDEN));
        if visit.error != was.error
            && !(is_hidden && visit.error.is_some())
            && let Some(error) = &visit.error
        {
            found.push(Departure::Fails(error.clone()));
        }
        let shown = |code: &GraphTables, key: &str, value: Option<&Value>| {
            let mask: Option<&Mask> = code.settings.secrets.keys.get(key);
            value.map(|value| hidden(mask, value.clone()))
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
        let (at, told_now) = match pair {
            Some(pair) => (self.recorded.visits[pair].at, self.recorded.visits[pair].visit.now),
            None => (self.recorded.visits.last().map_or(SystemTime::UNIX_EPOCH, |last| last.at), None),
        };
        let said = self.replay.deviations.len();
        let clock = move || at;
        let now = Now::known_at(&clock, told_now.map(timestamp::from_unix_milliseconds));
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
        let mut visit = Visit::default();
        (visit.step, visit.node) = (activation.number, node.name.clone());
        // Made as often as it was, if it is the same call.
        if let Some(pair) = pair.filter(|_| self.replay.deviations.len() == said) {
            visit.calls = self.recorded.visits[pair].visit.calls;
        }
        let (mut notes, mut changes) = (Notes::default(), Vec::new());
        let outcome = Outcome::of(self.code.asks(activation.node), failure.as_ref(), result.view(), &mut results);
        let facts = CallFacts::of(visit.calls);
        let Settled { way, unfit } = settle(&self.env(activation, &now), outcome, &facts, &mut notes, &mut changes);
        let failure = failure.or(unfit.map(|unfit| *unfit));
        if way.is_fatal() {
            return Err(Halt::Failed(failure.map(|failure| failure.message).unwrap_or_default()));
        }
        visit.error = failure.map(|failure| failure.message);
        visit.suppressed = way.is_suppressed();
        visit.result = result;
        visit.items = items;
        visit.edges = way.edges().as_slice().to_vec();
        let change = |change: &Change| (self.code.keys[change.key].name.clone(), change.value.clone());
        visit.changes = changes.iter().map(change).collect();
        Ok(AnsweredCall { visit, way, changes })
    }

    /// Plans a visit, and finds what is recorded of its calls.
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
            Ok(Planned::Compute | Planned::Finish) => {}
            Ok(Planned::Call(request)) => answered.answer = Some(self.answer(number, &node.name, request, pair, None)?),
            Ok(Planned::Each { items, .. }) => return self.answers_of_items(number, activation, pair, now, &items),
        }
        Ok(answered)
    }

    /// Plans the calls for the items of a foreach, and finds what is recorded of them.
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
        // Of one that failed and leads elsewhere, what it collected is not kept, and nobody asks.
        let asks =
            node.kind.collects().is_some() && (answered.items.is_empty() || !self.code.has_target(activation.node));
        if is_unknown && asks {
            let is_same = self.replay.deviations.len() == said;
            // The same calls came to the same, which its edges could not be asked of.
            let Some(failure) = self.failed_to_route(activation.node, pair).filter(|_| is_same) else {
                return Err(Halt::Stopped("what its calls returned was not kept".to_owned()));
            };
            answered.answer = Some(RecordedAnswer::Failure(failure, None));
        }
        Ok(answered)
    }

    fn env<'a>(&'a self, activation: &'a Activation, now: &'a Now<'a>) -> Env<'a> {
        Env::new(self.code, &self.position, &*self.state, activation, now)
    }

    /// Returns how a visit failed on what its calls returned, if its node can fail so and leads elsewhere then.
    fn failed_to_route(&self, node: u16, pair: Option<usize>) -> Option<Failure> {
        let was = &self.recorded.visits[pair?].visit;
        let error = was.error.as_deref().filter(|_| was.items.is_empty() && !was.suppressed)?;
        let is_own = self.code.has_target(node) && self.code.may_fail_to_route(node, error);
        is_own.then(|| failure_of(was, error))
    }

    /// Finds what is recorded of a call, and says if another was made there.
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
        let (tool, arguments) = told(code, request);
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
        // A call that was made has its answer, also where that was that it was denied.
        let is_own = was_same && pair.is_some();
        if let Some(capability) = capability.filter(|_| !is_own)
            && !self.granted.iter().any(|grants| grants.allow(&capability))
        {
            return Err(Halt::Stopped(format!("the run was not granted `{capability}`")));
        }
        // Two parts of the recording are borrowed: the call that was made there, and the answers that are left.
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
    fn finish(&mut self, end: Option<&End>, stands: Status) {
        let now = self.position.status_at_end();
        let at = self.recorded.visits.last().map_or(SystemTime::UNIX_EPOCH, |last| last.at);
        let clock = move || at;
        let told = end.and_then(|end| end.now).map(timestamp::from_unix_milliseconds);
        let now_told = Now::known_at(&clock, told);
        let at = Activation::of(self.position.last);
        let output = output(&self.env(&at, &now_told), &mut Notes::default());
        let output = hidden(self.code.settings.secrets.output.as_ref(), output);
        let (step, node) = (self.position.steps, self.code.node(self.position.last).name.clone());
        let left: Vec<String> = self.recorded.visits[self.cursor..].iter().map(|one| one.visit.node.clone()).collect();
        if !left.is_empty() {
            self.deviate(step, &node, None, Departure::Skips(left));
        }
        if stands != now {
            self.deviate(step, &node, None, Departure::Ends { recorded: stands, now });
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

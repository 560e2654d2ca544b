//! The runtime: what runs have in common, and where they begin.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph_model::capability::{Grants, Pattern};
use graph_model::digest::hex;
use graph_model::name::RunId;
use graph_model::signature::SecretKey;
use graph_model::timestamp;
use graph_model::value::{AsView, Mismatch, Value};

use crate::call::RunFacts;
use crate::clock::{Clock, SystemClock};
use crate::code::Code;
use crate::engine::{Ended, Engine, Writing};
use crate::error::{BuildError, LastError, ResumeError, StartError, SuppressedError};
use crate::machine::{Activation, Cells, Change, Graph, Machine};
use crate::observer::{Event, Observer};
use crate::record::{Chain, End, Entry, Journal, JournalError, Resume, Standing, Start, Status, Step, Visit};
use crate::run::Run;
use crate::schema::{self, Invalid};
use crate::store::{Lease, Store};

/// Runs graphs. Clones share everything.
#[derive(Debug, Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) key: Option<SecretKey>,
    pub(crate) grants: Grants,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("store", &self.store).field("grants", &self.grants).finish_non_exhaustive()
    }
}

/// Puts a [`Runtime`] together.
#[derive(Default)]
pub struct Builder {
    store: Option<Arc<dyn Store>>,
    key: Option<SecretKey>,
    grants: Grants,
    clock: Option<Arc<dyn Clock>>,
    observers: Vec<Arc<dyn Observer>>,
}

impl Builder {
    /// Keeps the journals of runs in `store`. Without one, a run lives in memory and leaves nothing behind.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Signs journals with `key`. A store needs one; it also is the key that a resumed run's journal must be signed with.
    #[must_use]
    pub fn sign_with(mut self, key: SecretKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Grants capabilities: `rye.execute.tool.rye.bash`, or a pattern as `rye.execute.tool.*`. Nothing is granted that is
    /// not named here.
    ///
    /// # Errors
    ///
    /// If the pattern could never match.
    pub fn grant(mut self, pattern: &str) -> Result<Self, BuildError> {
        self.grants.add(Pattern::new(pattern)?);
        Ok(self)
    }

    /// Tells the time. The computer's clock if not named.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Shows `observer` what runs do.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Puts the runtime together.
    ///
    /// # Errors
    ///
    /// If there is a store and no key.
    pub fn build(self) -> Result<Runtime, BuildError> {
        if self.store.is_some() && self.key.is_none() {
            return Err(BuildError::NoKey);
        }
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let Self { store, key, grants, observers, .. } = self;
        Ok(Runtime { inner: Arc::new(Inner { store, key, grants, clock, observers }) })
    }
}

impl Runtime {
    /// Begins to put a runtime together.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a run of `graph`. Its task is spawned on tokio's current runtime and goes on also if the [`Run`] is dropped.
    ///
    /// When this returns `Ok`, the beginning of the run is durable: a process that starts after a crash finds it.
    ///
    /// # Errors
    ///
    /// If a capability is not granted, an environment variable is not set, the inputs do not fit, or the store fails. Nothing
    /// of the run is kept then.
    pub async fn start<G: Graph>(&self, graph: G, inputs: G::Inputs) -> Result<Run<G::Output>, StartError> {
        let run = self.new_id(graph.code())?;
        self.start_as(run, graph, inputs).await
    }

    /// As [`Runtime::start`], with an id of the caller's own; a second run with it is refused.
    ///
    /// # Errors
    ///
    /// As [`Runtime::start`].
    pub async fn start_as<G: Graph>(
        &self,
        run: RunId,
        graph: G,
        inputs: G::Inputs,
    ) -> Result<Run<G::Output>, StartError> {
        let engine = self.begin(run, Arc::new(graph), inputs.view().to_value()).await?;
        Ok(Run::spawn(engine))
    }

    /// Takes up a run that a crash, an error or a full disk stopped, at the step that was not committed.
    ///
    /// A run that has ended with a result is not run again: its result is what the journal says.
    ///
    /// # Errors
    ///
    /// If there is no such run, it is at work elsewhere, its journal was tampered with or is another graph's, or this
    /// runtime grants less than it needs. Nothing was changed then.
    pub async fn resume<G: Graph>(&self, graph: G, run: &RunId) -> Result<Run<G::Output>, ResumeError> {
        Ok(match self.take_up(run, Arc::new(graph)).await? {
            Taken::Ended(ended) => Run::ended(run.clone(), ended),
            Taken::Unfinished(engine) => Run::spawn(*engine),
        })
    }

    async fn begin(&self, run: RunId, machine: Arc<dyn Machine>, inputs: Value) -> Result<Engine, StartError> {
        let code = machine.code();
        let allowed = self.allowed(code)?;
        let misfit = |mismatch| StartError::Inputs { graph: code.id.to_string(), mismatch };
        let mut state = machine.open(inputs).map_err(misfit)?;
        if let Some(schema) = &code.settings.schema {
            schema::validate(schema, &state.inputs().to_value()).map_err(|invalid| match invalid {
                Invalid::Inputs(mismatch) => misfit(mismatch),
                Invalid::Schema(reason) => StartError::Schema { graph: code.id.to_string(), reason },
            })?;
        }
        initialise(code, &mut *state).map_err(misfit)?;
        let standing =
            Standing { steps: 0, frontier: vec![Activation::of(code.start)], last_error: None, suppressed: Vec::new() };
        let journal = match (&self.inner.store, &self.inner.key) {
            (Some(store), Some(key)) => {
                let mut chain = Chain::new(run.clone());
                let record = chain.seal("start", self.start_entry(code, key, &*state), self.inner.clock.now(), key);
                let lease = store.create(&run, code.id.as_str(), vec![record]).await;
                let lease = lease.map_err(|source| StartError::Store { run: run.clone(), source })?;
                Some(Writing { lease, chain })
            }
            _ => None,
        };
        Ok(self.engine(run, machine, allowed, state, standing, journal))
    }

    fn start_entry(&self, code: &Code, key: &SecretKey, state: &dyn Cells) -> Start {
        Start {
            graph: code.id.to_string(),
            version: code.version.clone(),
            digest: code.digest,
            signer: code.signer.clone(),
            key: hex(key.public().as_bytes()),
            grants: self.granted(),
            inputs: state.inputs().to_value(),
        }
    }

    fn granted(&self) -> Vec<String> {
        self.inner.grants.patterns().iter().map(ToString::to_string).collect()
    }

    fn engine(
        &self,
        run: RunId,
        machine: Arc<dyn Machine>,
        allowed: Vec<bool>,
        state: Box<dyn Cells>,
        standing: Standing,
        journal: Option<Writing>,
    ) -> Engine {
        let code = machine.code();
        let facts = Arc::new(RunFacts {
            id: run,
            graph: code.id.clone(),
            nodes: code.nodes.iter().map(|node| node.name.clone()).collect(),
            tools: code.tools.iter().map(|tool| tool.id.clone()).collect(),
            env: code.env.clone(),
        });
        let (nodes, steps) = (code.nodes.len(), standing.steps);
        let event = Event::RunStarted { run: &facts.id, graph: &facts.graph, nodes, steps };
        self.inner.observers.iter().for_each(|observer| observer.observe(&event));
        let began = self.began();
        let runtime = Arc::clone(&self.inner);
        let (slots, turn) = (Vec::new(), Instant::now());
        Engine { machine, runtime, facts, allowed, state, standing, journal, slots, began, turn }
    }

    fn began(&self) -> Duration {
        self.inner.clock.monotonic()
    }

    /// Checks before the first step what can be checked then: capabilities and environment (R41, R279).
    fn allowed(&self, code: &Code) -> Result<Vec<bool>, StartError> {
        let graph = || code.id.to_string();
        // What the graph permits itself was checked by the compiler; a graph that was interpreted or written by hand counts
        // on the same.
        let is_allowed = |tool: &crate::code::Tool| {
            self.inner.grants.allow(&tool.capability) && code.permissions.allow(&tool.capability)
        };
        let missing: Vec<String> =
            code.tools.iter().filter(|tool| !is_allowed(tool)).map(|tool| format!("`{}`", tool.capability)).collect();
        if !missing.is_empty() {
            return Err(StartError::NotGranted { graph: graph(), missing });
        }
        let unset = |name: &&String| std::env::var_os(name.as_str()).is_none();
        let unset: Vec<String> = code.env.iter().filter(unset).map(|name| format!("graph requires '{name}'")).collect();
        if !unset.is_empty() {
            return Err(StartError::MissingEnvironment(unset));
        }
        Ok(vec![true; code.tools.len()])
    }

    /// Makes a run's id: the graph's short name, the Unix time, and what makes it the only one (R15).
    fn new_id(&self, code: &Code) -> Result<RunId, StartError> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(|error| StartError::NoRandomness(error.to_string()))?;
        let seconds = timestamp::unix_milliseconds(self.inner.clock.now()) / 1000;
        let name: String = code.id.stem().chars().take(100).collect();
        Ok(RunId::new(format!("{name}-{seconds}-{}", hex(&random)))
            .expect("a graph's short name has the letters of a run id"))
    }

    async fn take_up(&self, run: &RunId, machine: Arc<dyn Machine>) -> Result<Taken, ResumeError> {
        let (Some(store), Some(key)) = (&self.inner.store, &self.inner.key) else { return Err(ResumeError::NoStore) };
        let code = machine.code();
        let store_failed = |source| ResumeError::Store { run: run.clone(), source };
        let misfit = |reason| ResumeError::Journal { run: run.clone(), reason };
        let read = async || {
            let sealed = store.load(run).await.map_err(store_failed)?;
            let journal = Journal::verify(run, &sealed, &key.public()).map_err(misfit)?;
            let found = format!("{} ({})", journal.start.graph, journal.start.digest);
            let expected = format!("{} ({})", code.id, code.digest);
            if found != expected {
                return Err(ResumeError::AnotherGraph { run: run.clone(), expected, found });
            }
            Ok(journal)
        };
        // A run that ended is read without a lease: nobody writes to it.
        if let Some(ended) = result_of(code, &*machine, &read().await?).map_err(misfit)? {
            return Ok(Taken::Ended(ended));
        }
        let allowed = self.allowed(code)?;
        let lease: Lease = store.lease(run).await.map_err(store_failed)?;
        // What was read before the lease may have grown since.
        let journal = read().await?;
        if let Some(ended) = result_of(code, &*machine, &journal).map_err(misfit)? {
            return Ok(Taken::Ended(ended));
        }
        let (state, standing) = replay(code, &*machine, &journal).map_err(misfit)?;
        let mut chain = journal.chain;
        let known = chain.len();
        let entry = Resume { steps: standing.steps, grants: self.granted() };
        let record = chain.seal("resume", &entry, self.inner.clock.now(), key);
        store.append(&lease, known, vec![record], Status::Running).await.map_err(store_failed)?;
        let writing = Some(Writing { lease, chain });
        Ok(Taken::Unfinished(Box::new(self.engine(run.clone(), machine, allowed, state, standing, writing))))
    }
}

/// A run that was found in a store.
enum Taken {
    Ended(Ended),
    Unfinished(Box<Engine>),
}

/// Sets the first values that the graph gives to state keys.
fn initialise(code: &Code, state: &mut dyn Cells) -> Result<(), Mismatch> {
    for (index, key) in code.keys.iter().enumerate() {
        if let Some(initial) = &key.initial {
            state.set(index, initial.clone()).map_err(|error| error.inside(key.name.clone()))?;
        }
    }
    Ok(())
}

/// Returns the result of a run that ended with one.
fn result_of(code: &Code, machine: &dyn Machine, journal: &Journal) -> Result<Option<Ended>, JournalError> {
    let Some(Entry::End(End { status, steps, output, .. })) = journal.records.last().map(|record| &record.entry) else {
        return Ok(None);
    };
    if !matches!(status, Status::Completed | Status::CompletedWithErrors) {
        return Ok(None);
    }
    let (state, standing) = replay(code, machine, journal)?;
    let state = crate::engine::state_value(code, &*state, standing.last_error.as_ref());
    Ok(Some(Ended { status: *status, output: output.clone(), state, steps: *steps, suppressed: standing.suppressed }))
}

/// Adds up the records of a journal: the state after the last step, and where the run stands.
fn replay(code: &Code, machine: &dyn Machine, journal: &Journal) -> Result<(Box<dyn Cells>, Standing), JournalError> {
    let misfit = |seq, reason: String| JournalError::Misfit { seq, reason };
    let mut state = machine.open(journal.start.inputs.clone()).map_err(|error| misfit(0, error.to_string()))?;
    initialise(code, &mut *state).map_err(|error| misfit(0, error.to_string()))?;
    let mut standing =
        Standing { steps: 0, frontier: vec![Activation::of(code.start)], last_error: None, suppressed: Vec::new() };
    for record in &journal.records {
        let Entry::Step(step) = &record.entry else { continue };
        replay_step(code, machine, &mut *state, &mut standing, step).map_err(|reason| misfit(record.seq, reason))?;
    }
    Ok((state, standing))
}

fn replay_step(
    code: &Code,
    machine: &dyn Machine,
    state: &mut dyn Cells,
    standing: &mut Standing,
    step: &Step,
) -> Result<(), String> {
    let node = |name: &str| {
        let at = code.nodes.iter().position(|node| node.name == name);
        at.and_then(|at| u16::try_from(at).ok()).ok_or_else(|| format!("there is no node `{name}`"))
    };
    for visit in &step.visits {
        standing.steps += 1;
        if let Some(error) = &visit.error {
            note_failure(standing, visit, error);
            continue;
        }
        for (name, value) in &visit.changes {
            let key = code
                .keys
                .iter()
                .position(|key| key.name == *name)
                .ok_or_else(|| format!("there is no state key `{name}`"))?;
            machine.merge(state, Change { key, value: value.clone() }).map_err(|error| format!("`{name}`: {error}"))?;
        }
    }
    let activation = |target: &crate::record::Target| {
        Ok(Activation {
            node: node(&target.node)?,
            argument: (!target.argument.is_null()).then(|| Box::new(target.argument.clone())),
        })
    };
    standing.frontier = step.next.iter().map(activation).collect::<Result<_, String>>()?;
    Ok(())
}

fn note_failure(standing: &mut Standing, visit: &Visit, error: &str) {
    let (node, error) = (visit.node.clone(), error.to_owned());
    if visit.suppressed {
        standing.suppressed.push(SuppressedError { step: visit.step, node: node.clone(), error: error.clone() });
    }
    standing.last_error = Some(LastError { node, error });
}

//! Beginning runs.

use crate::admission::{allowed, granted, open_inputs, require_inputs};
use crate::call::{RunFacts, RunLocals};
use crate::engine::{Begin, Engine, JournalWriter, PendingCalls, RunContext, RunState, StepContext};
use crate::error::StartError;
use crate::graph::{CompiledGraph, GraphTables, tables};
use crate::machine::Machine;
use crate::meter::Meters;
use crate::observer::{Event, notify};
use crate::record::{Chain, CompletedCalls, Due, Record, SignedRecord, Start};
use crate::run_secrets::{RunSecrets, SecretLocation, SecretsError};
use crate::schema;
use crate::services::RuntimeServices;
use crate::state::StateFields;
use crate::step::{PausedNodes, Position, find_inside};
use crate::store::StoreError;
use graph_model::capability::Grants;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use graph_model::digest::{Digest, hex};
use graph_model::name::RunId;
use graph_model::timestamp;
use graph_model::value::{Map, Value};
use graph_signing::SecretKey;

/// The parts of an engine, besides those that a run begins with.
pub(crate) struct EngineParts {
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) allowed: Vec<bool>,
    pub(crate) run_secrets: Option<Arc<RunSecrets>>,
    pub(crate) state: Box<dyn StateFields>,
    pub(crate) position: Position,
    pub(crate) journal: Option<JournalWriter>,
    pub(crate) done: CompletedCalls,
    /// How many steps the runs inside the visits of its next step have made, by the visits' numbers.
    pub(crate) before: BTreeMap<u64, u64>,
    pub(crate) deadline: Option<StoredDeadline>,
    pub(crate) is_new: bool,
    /// The last step, if its hooks may not have been asked.
    pub(crate) unasked: Option<Box<Record>>,
    /// Whether nested runs may have continued since it said what they wait for.
    pub(crate) looks_inside: bool,
    /// The digest of the graph that the run began under, as its first record has it.
    pub(crate) begun_under: Digest,
}

/// Returns the first record of a run that begins with this state and may use the capabilities that the whole ceiling grants.
pub fn start_entry(
    machine: &dyn Machine,
    key: &SecretKey,
    state: &dyn StateFields,
    run_secrets: Option<&RunSecrets>,
    ceiling: &[Grants],
) -> Start {
    let code = tables(machine.graph());
    let inputs = state.inputs().to_plain_value();
    let inputs = match run_secrets {
        Some(run_secrets) => run_secrets.encrypt(code.settings.secrets.inputs.as_ref(), SecretLocation::INPUTS, inputs),
        None => inputs,
    };
    Start {
        graph: code.id.to_string(),
        version: code.version.clone(),
        digest: code.digest,
        meaning: code.settings.meaning,
        signer: code.signer.clone(),
        key: hex(key.public().as_bytes()),
        grants: granted(machine, ceiling),
        inputs,
        shared: Map::new(),
        entry: None,
        encryption_key: run_secrets.and_then(RunSecrets::fingerprint),
        parent: None,
        task: None,
        address: None,
        from: None,
        depth: None,
        limit: None,
        steps: None,
        capabilities: None,
        deadline: None,
        pauses: PausedNodes::default(),
    }
}

/// Whether a graph that this one names, or one inside it, can wait.
pub(crate) fn nests_waiting(machine: &dyn Machine) -> bool {
    find_inside(machine, |code| code.can_wait).is_some()
}

/// The deadline of a run in its store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredDeadline {
    /// The time of the store at which the run must have ended, in milliseconds since the Unix epoch.
    pub(crate) at: i64,
    /// How long that is from now.
    pub(crate) left: Duration,
}

impl RuntimeServices {
    pub(crate) async fn begin(
        self: &Arc<Self>,
        begin: Begin,
        machine: Arc<dyn Machine>,
        inputs: Value,
    ) -> Result<Engine, StartError> {
        let code = tables(machine.graph());
        let can_wait = code.can_wait || (begin.address.is_some() && code.can_park && nests_waiting(&*machine));
        let begin = Begin { address: begin.address.filter(|_| can_wait), ..begin };
        let allowed = allowed(&*machine, &begin.ceiling)?;
        require_inputs(code, &inputs)?;
        let run_secrets = RunSecrets::open(code, &begin.run, self.encryption_key.as_ref(), self.store.is_some())?;
        let mut state = open_inputs(&*machine, inputs)?;
        if let Some(run_secrets) = &run_secrets {
            run_secrets.learn(code.settings.secrets.inputs.as_ref(), &state.inputs().to_plain_value());
        }
        let inputs = begin.entry.is_some().then(|| state.inputs().to_plain_value());
        let misfit = |reason| StartError::Begin { graph: code.id.to_string(), reason };
        let mut position = Position::at_entry(code, begin.entry.as_deref(), inputs.as_ref()).map_err(misfit)?;
        position.limit = begin.max_steps.map(u64::from);
        position.pauses = begin.pauses.resolve(code).map_err(misfit)?;
        position.share(code, Some(&mut *state), &begin.shared).map_err(misfit)?;
        let deadline = self.new_deadline(code).await?;
        let journal = match (&self.store, &self.key) {
            (Some(store), Some(key)) => {
                let mut chain = Chain::new(begin.run.clone());
                let entry = Start {
                    deadline: deadline.map(|deadline| deadline.at),
                    pauses: begin.pauses.clone(),
                    parent: begin.parent.clone(),
                    task: begin.task.clone(),
                    address: begin.address.clone(),
                    depth: begin.depth,
                    entry: begin.entry.clone(),
                    shared: begin.shared.clone(),
                    limit: begin.max_steps,
                    steps: begin.meter.as_ref().and_then(|meter| meter.lowest()),
                    capabilities: begin.capabilities.as_ref().map(|grants| grants.patterns().to_vec()),
                    ..start_entry(&*machine, key, &*state, run_secrets.as_deref(), &begin.ceiling)
                };
                let record = chain.sign("start", entry, self.clock.now(), key);
                let (run, id, records) = (&begin.run, code.id.as_str(), vec![record.clone()]);
                let lease = match &begin.tick {
                    Some(change) => store.create_at_tick(run, id, records, change).await?,
                    None => store.create(run, id, records).await?,
                };
                lease.stops(&begin.stop);
                self.recorded(&begin.run, machine.graph(), std::slice::from_ref(&record));
                let mut due = Due::default();
                due.wrote(record.body.len());
                Some(JournalWriter::new(self, &machine, begin.durability, lease, chain, due))
            }
            _ => None,
        };
        let (done, before) = (HashMap::new(), BTreeMap::new());
        let (is_new, looks_inside, begun_under) = (true, false, code.digest);
        let parts = EngineParts {
            machine,
            allowed,
            run_secrets,
            state,
            position,
            journal,
            done,
            before,
            deadline,
            is_new,
            unasked: None,
            looks_inside,
            begun_under,
        };
        Ok(self.engine(begin, parts))
    }

    /// Returns the deadline of a run that begins now, if its graph has one.
    async fn new_deadline(&self, code: &GraphTables) -> Result<Option<StoredDeadline>, StoreError> {
        let Some(milliseconds) = code.settings.deadline_ms else { return Ok(None) };
        let left = Duration::from_millis(milliseconds);
        let at = self.deadline_from_now(milliseconds).await?;
        Ok(Some(StoredDeadline { at, left }))
    }

    /// Returns the time of the store that is so many milliseconds from now.
    pub async fn deadline_from_now(&self, milliseconds: u64) -> Result<i64, StoreError> {
        let now = self.time().await?;
        Ok(now.saturating_add(i64::try_from(milliseconds).unwrap_or(i64::MAX)))
    }

    /// Returns the deadline that a run has in its journal, from now.
    pub(crate) async fn known_deadline(&self, at: Option<i64>) -> Result<Option<StoredDeadline>, StoreError> {
        let Some(at) = at else { return Ok(None) };
        let left = u64::try_from(at.saturating_sub(self.time().await?)).unwrap_or(0);
        Ok(Some(StoredDeadline { at, left: Duration::from_millis(left) }))
    }

    /// Returns the time of the store, in milliseconds since the Unix epoch; without a store, that of the clock.
    async fn time(&self) -> Result<i64, StoreError> {
        match &self.store {
            Some(store) => store.now().await,
            None => Ok(timestamp::unix_milliseconds(self.clock.now())),
        }
    }

    /// Fails if a graph can wait, or one that it nests can, and there is no store in which its run waits.
    pub(crate) fn has_store_for(&self, machine: &dyn Machine) -> Result<(), StartError> {
        let code = tables(machine.graph());
        match self.store.is_none() && (code.can_wait || code.can_park && nests_waiting(machine)) {
            true => Err(StartError::NoStore { graph: code.id.to_string() }),
            false => Ok(()),
        }
    }

    /// Fails if a graph can wait, or one that it nests can, and its run cannot.
    pub(crate) async fn can_wait(&self, machine: &dyn Machine, begin: &Begin) -> Result<(), StartError> {
        let code = tables(machine.graph());
        let graph = || code.id.to_string();
        let asks = || code.nodes.iter().filter_map(|node| node.wait()?.ask.as_ref());
        let of_answers = || asks().any(|ask| ask.schema.is_some());
        let of_signals = || code.settings.signals.values().any(|signal| signal.schema.is_some());
        if !schema::IS_THERE && (!code.settings.rules.is_empty() || of_signals() || of_answers()) {
            let reason = "its tools, signals or answers have rules, which need the feature `schema` of `graph-runtime`";
            return Err(StartError::Schema { graph: graph(), reason: reason.to_owned() });
        }
        if !code.can_wait && begin.pauses.is_empty() {
            return self.has_store_for(machine);
        }
        let store = self.store.as_ref().ok_or_else(|| StartError::NoStore { graph: graph() })?;
        if begin.parent.is_some() && begin.address.is_none() {
            return Err(StartError::WaitsInside { graph: graph() });
        }
        store.now().await?;
        Ok(())
    }

    pub(crate) fn engine(self: &Arc<Self>, begin: Begin, parts: EngineParts) -> Engine {
        let EngineParts { machine, allowed, run_secrets, state, position, journal, done, before, .. } = parts;
        let EngineParts { deadline, is_new, unasked, looks_inside, begun_under, .. } = parts;
        let code = tables(machine.graph());
        let began = self.began();
        let own = code.settings.timeout_ms.map(|timeout| began + Duration::from_millis(timeout));
        let locals = Arc::new(RunLocals::default());
        let facts = Arc::new(RunFacts {
            id: begin.run,
            graph: Arc::clone(&code.facts),
            root: begin.root,
            parent: begin.parent,
            start: journal.as_ref().and_then(|journal| journal.chain.start()),
            address: begin.address,
            depth: begin.depth.map_or(code.settings.depth, |depth| depth.min(code.settings.depth)),
            limits: begin.limits,
            ceiling: begin.ceiling,
            deadline: own.into_iter().chain(begin.deadline).chain(deadline.map(|deadline| began + deadline.left)).min(),
            stored_deadline: deadline.map(|deadline| deadline.at),
            stop: begin.stop,
            ignores_cancel: begin.ignores_cancel,
            tool_settings: self.tool_settings.clone(),
            emitter: self.emitter(run_secrets.as_ref()),
            locals: Arc::downgrade(&locals),
        });
        let meters = Meters::new(code.settings.steps, position.nested_steps(), before, begin.meter);
        let (nodes, steps) = (code.visited().count(), position.steps);
        let parent = facts.parent.as_ref();
        let event = Event::RunStarted { run: &facts.id, graph: &facts.graph.id, nodes, steps, parent };
        notify(&self.observers, &event);
        let run = RunContext {
            machine,
            runtime: Arc::clone(self),
            facts,
            _locals: locals,
            allowed,
            run_secrets,
            is_kept: journal.is_some(),
            durability: begin.durability,
            pending_calls: PendingCalls::default(),
            meters,
            began,
            begun_under,
            _lease: journal.as_ref().map(JournalWriter::lease),
            pass: OnceLock::new(),
        };
        let run_state = RunState { state, position, done, continued: BTreeMap::new() };
        let context = StepContext { run: Arc::new(run), run_state: Arc::new(run_state) };
        Engine {
            slot: context.slot(),
            context,
            is_new,
            looks_inside,
            history: self.keeps_history.then(Vec::new),
            journal,
            reserved: 0,
            dropped: Vec::new(),
            held_failures: Vec::new(),
            settled_signals: BTreeSet::new(),
            handed: begin.handed,
            wait_time: begin.wait_time,
            unasked,
            turn: Instant::now(),
        }
    }

    /// Notifies observers of committed records.
    pub fn recorded(&self, run: &RunId, graph: &CompiledGraph, records: &[SignedRecord]) {
        let event = Event::Recorded { run, graph, records };
        notify(&self.observers, &event);
    }

    pub(crate) fn began(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Makes a run's id: the graph's short name, the Unix time, and random digits that make it unique (R15).
    pub fn new_id(&self, code: &GraphTables) -> Result<RunId, StartError> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(|error| SecretsError::NoRandomness(error.to_string()))?;
        let seconds = timestamp::unix_milliseconds(self.clock.now()) / 1000;
        let name: String = code.id.stem().chars().take(100).collect();
        Ok(RunId::new(format!("{name}-{seconds}-{}", hex(&random)))
            .expect("a graph's short name has the letters of a run id"))
    }
}

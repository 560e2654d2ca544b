//! Proving a run from its journal: that nobody changed it, and that the engine can have written every record of it.
//!
//! Nothing is called and nothing is written. What came from outside, as what tools returned, is taken from the journal. What the
//! graph makes of that is computed again and compared: which nodes were visited, what they wrote, which edges were taken, how the run
//! ended. `docs/journal.md` says of each member of a record whether it is computed, bounded or free. A free member decides nothing.

mod dated;
mod ends;
mod failures;
mod hooks;
mod inside;
mod visits;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::time::SystemTime;

use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::digest::{Digest, hex};
use graph_model::name::RunId;
use graph_model::program::INTERNAL;
use graph_model::signature::{Fingerprint, PublicKey};
use graph_model::timestamp;
use graph_model::value::{Value, canonical_json};

use crate::engine::nested::is_nested_id;
use crate::engine::{Ended, Finished, denied, state_value};
use crate::graph::CompiledGraph;
use crate::machine::{Cells, Lane, Machine};
use crate::record::{
    Calls, End, Entry, JournalError, Origin, Parent, Record, Resume, Sealed, Snapshot, SnapshotDraft, Start, Status,
    Step, Verified, Visit,
};
use crate::runtime::initialise;
use crate::schema;
use crate::seal::SealKey;
use crate::step::{Activation, Asks, Position, Request, Way, path, retake};
use crate::travel::position_of;
use crate::vault::{Vault, hidden};

use hooks::Wish;
use inside::Inside;
pub(crate) use inside::verify_inside;
pub use inside::{AuditError, audit_tree, prove_tree};

/// What a journal proves of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Audit {
    /// The run.
    pub run: RunId,
    /// The graph's id.
    pub graph: String,
    /// The digest of the graph that the run was of.
    pub digest: Digest,
    /// Whose key signed the graph.
    pub signer: Fingerprint,
    /// How the run stands.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// How often it was taken up again.
    pub resumes: u64,
    /// How many records there are.
    pub records: u64,
    /// The link of the last record, which stands for all of the journal.
    pub link: Digest,
    /// Whose key signed the journal.
    pub key: Fingerprint,
    /// The version that the graph's author gave it.
    pub version: String,
    /// Which visit of another run it belongs to.
    pub parent: Option<Parent>,
    /// Where in another run it began.
    pub from: Option<Origin>,
    /// Whether it was proven that the other run stood there so, but for the keys that were changed. Only [`audit_tree`] looks, and only
    /// where the store has the other run.
    pub is_origin_proven: bool,
    /// What was granted, at the start or when it was taken up; each pattern once.
    pub grants: Vec<String>,
    /// The ids of the tools that committed visits called, in the order of the alphabet. `*` stands for one that is known only at
    /// each call, which no journal says.
    pub tools: Vec<String>,
    /// When it began: RFC 3339 in UTC with milliseconds.
    pub started: String,
    /// When it ended, if it has.
    pub ended: Option<String>,
    /// The SHA-256 of what it returned as canonical JSON with `[secret]` for secrets, if it ended with a result (R203).
    pub output: Option<Digest>,
    /// Whether what the nodes wrote and where they led was computed again. Not so of a graph with secrets, unless there is the key
    /// that they were sealed with.
    pub is_recomputed: bool,
}

/// Proves a run.
///
/// `machine` is the graph, `key` the public key of the runtime that wrote the journal, and `seal` what its secrets were sealed with.
///
/// Of the signatures that of the last record is verified. It covers the links of all others, and with them their texts and
/// signatures: whoever could change one of those and keep the chain could as well sign anew, for that takes the key.
///
/// It accepts what the engine can write, and nothing else: `docs/journal.md` says what that means for each member of a record.
///
/// # Errors
///
/// The first thing that is wrong, and in which record: the journal was changed, or tells of what the graph does not allow.
pub fn audit(
    machine: &dyn Machine,
    run: &RunId,
    records: &[Sealed],
    key: &PublicKey,
    seal: Option<&SealKey>,
) -> Result<Audit, JournalError> {
    prove(machine, run, records, key, seal, false).map(|proven| proven.audit)
}

/// What is proven of a run, with what ties it to the runs around and inside it.
struct Proven {
    audit: Audit,
    start: Start,
    /// The calls of graphs that its visits made.
    inside: Vec<Inside>,
    /// Its result, if it has ended with one that could be computed.
    ended: Option<Ended>,
    /// How it ended without one.
    failed: Option<Lost>,
    /// What held at its start, and each time that it was resumed.
    sessions: Vec<Session>,
}

/// What a run came to that ended without a result.
struct Lost {
    error: String,
    /// The node that failed.
    node: Option<String>,
    code: Option<String>,
    steps: u64,
    /// Its last state, where that can be computed.
    state: Option<Value>,
    /// The nodes of the next step.
    next: Vec<String>,
}

/// The items of a foreach that `calls` records name.
#[derive(Default)]
struct ItemsDone {
    /// The item behind the last one that is done.
    next: u64,
    /// The items before that which are not done.
    open: BTreeSet<u64>,
    /// The item that the session named last.
    last: Option<u64>,
}

impl ItemsDone {
    /// Takes an item that is done of a foreach of that width. After a failure it begins no more calls if it `is_stopped`.
    fn take(&mut self, item: u64, width: usize, is_stopped: bool) -> Result<(), String> {
        let is_in_turn = width > 1 || self.last.is_none_or(|last| last < item);
        let begun = item.saturating_sub(self.next).saturating_add(self.open.len() as u64);
        if !is_in_turn || (is_stopped && item >= self.next && begun >= width as u64) {
            return Err(format!("finished item {item} before it began it"));
        }
        self.last = Some(item);
        if item >= self.next {
            if is_stopped {
                self.open.extend(self.next..item);
            }
            self.next = item.saturating_add(1);
        } else if is_stopped && !self.open.remove(&item) {
            return Err(format!("made the call of item {item} again, which was done"));
        }
        Ok(())
    }
}

/// What held for a run from its start or a resume on.
#[derive(Debug, Clone)]
struct Session {
    granted: Grants,
    /// Whether that is all that bounds the run.
    says_all: bool,
    /// How many graphs may nest below the run.
    depth: u32,
    /// How deep its caller said that graphs may nest, if it said that.
    said_depth: Option<u32>,
}

fn prove(
    machine: &dyn Machine,
    run: &RunId,
    records: &[Sealed],
    key: &PublicKey,
    seal: Option<&SealKey>,
    looks_inside: bool,
) -> Result<Proven, JournalError> {
    let verified = Verified::new(run, records, key)?;
    let code = machine.graph();
    let (started, mut start) = verified.start()?;
    misfit(0, same("graph", start.graph.as_str(), code.id.as_str()))?;
    misfit(0, same("digest of the graph", start.digest, code.digest))?;
    // A vault that cannot be opened leaves sealed what it holds, and nothing is computed from that.
    let vault = seal.and_then(|seal| Vault::open(code, run, Some(seal), true).ok().flatten());
    misfit(0, begins(code, run, &start, key, vault.as_deref()))?;
    if let Some(vault) = &vault {
        vault.unseal_start(code, &mut start)?;
    }
    let is_recomputed = code.settings.secrets.is_empty() || vault.is_some();
    let mut walk = Walk::begin(machine, run, &start, is_recomputed, looks_inside)?;
    let (mut last, mut time) = (None, SystemTime::UNIX_EPOCH);
    // One record is in memory at a time: a long journal is many times as large when it is read.
    for at in 1..verified.len() {
        let Some(record) = verified.record(at) else { break };
        let mut record = record?;
        if let Some(vault) = &vault {
            vault.unseal_record(code, &mut record)?;
        }
        let Record { seq, at, entry, .. } = record;
        let parsed = timestamp::parse(&at).ok_or_else(|| "its time cannot be read".to_owned());
        time = misfit(seq, parsed)?;
        misfit(seq, walk.take(seq, &entry, time))?;
        last = match entry {
            Entry::End(end) => Some((end, at)),
            _ => None,
        };
    }
    let seq = verified.len() as u64 - 1;
    misfit(seq, walk.stands())?;
    if looks_inside {
        let end = last.as_ref().map(|(end, _)| end);
        let open = walk.open_calls(seq, time, end);
        walk.inside.get_or_insert_default().extend(open);
    }
    let ended = last.as_ref().and_then(|(end, _)| walk.ended(end));
    let failed = last.as_ref().and_then(|(end, _)| walk.lost(end));
    let output = last.as_ref().filter(|(end, _)| is_result(end.status)).map(|(end, _)| {
        let shown = hidden(code.settings.secrets.output.as_ref(), end.output.clone());
        Digest::of(canonical_json(&shown))
    });
    let audit = Audit {
        run: run.clone(),
        graph: start.graph.clone(),
        digest: start.digest,
        signer: start.signer.clone(),
        status: walk.status,
        steps: walk.position.steps,
        resumes: walk.sessions.len() as u64 - 1,
        records: records.len() as u64,
        link: records.last().map_or_else(|| Digest::of([]), Sealed::link),
        key: key.fingerprint(),
        version: start.version.clone(),
        parent: start.parent.clone(),
        from: start.from.clone(),
        is_origin_proven: false,
        grants: walk.all_grants(),
        tools: walk.tools(),
        started,
        ended: last.map(|(_, at)| at),
        output,
        is_recomputed,
    };
    Ok(Proven { audit, start, inside: walk.inside.unwrap_or_default(), ended, failed, sessions: walk.sessions })
}

fn misfit<T>(seq: u64, found: Result<T, String>) -> Result<T, JournalError> {
    found.map_err(|reason| JournalError::Misfit { seq, reason })
}

fn same<T: PartialEq + Display>(what: &str, said: T, is: T) -> Result<(), String> {
    if said == is { Ok(()) } else { Err(format!("it says that the {what} is {said}, and it is {is}")) }
}

fn is_result(status: Status) -> bool {
    matches!(status, Status::Completed | Status::CompletedWithErrors)
}

fn grants(patterns: &[String]) -> Result<Grants, String> {
    let patterns = patterns.iter().map(|text| Pattern::new(text.as_str()).map_err(|error| error.to_string()));
    patterns.collect::<Result<Vec<_>, _>>().map(Grants::new)
}

/// Fails unless a run of the graph begins with such a record, whatever its inputs are.
fn begins(
    code: &CompiledGraph,
    run: &RunId,
    start: &Start,
    key: &PublicKey,
    vault: Option<&Vault>,
) -> Result<(), String> {
    same("version of the graph", start.version.as_str(), &code.version)?;
    same("signer of the graph", &start.signer, &code.signer)?;
    same("key of the journal", start.key.as_str(), &hex(key.as_bytes()))?;
    if let Some(parent) = &start.parent {
        is_inside(run, parent, start)?;
    }
    if start.seal.is_some() == code.settings.secrets.is_empty() {
        return Err(
            "the key that secrets are sealed with is named where the graph has secrets, and only there".to_owned()
        );
    }
    match vault.map(Vault::fingerprint) {
        Some(fingerprint) if start.seal != fingerprint => Err("its secrets are sealed with another key".to_owned()),
        _ => Ok(()),
    }
}

/// Fails unless a visit of another run begins such a run.
fn is_inside(run: &RunId, parent: &Parent, start: &Start) -> Result<(), String> {
    if !is_nested_id(run.as_str(), &parent.run, parent.step, parent.item, 1..=u64::MAX) {
        return Err(format!("visit {} of run `{}` begins no run of this id", parent.step, parent.run));
    }
    if start.depth.is_none() {
        return Err("how deep it may nest is left to it by the run around it, and not written down".to_owned());
    }
    if start.limit.is_some() || start.capabilities.is_some() || start.from.is_some() {
        return Err("it was given options, which a run inside another is not".to_owned());
    }
    Ok(())
}

/// What the last record was, as far as that decides which may follow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Before {
    Start,
    /// The snapshot with which a fork begins.
    Fork,
    Resume,
    Step,
    Calls,
    Snapshot,
    End,
}

/// A run that is walked again, along its journal.
struct Walk<'m> {
    machine: &'m dyn Machine,
    code: &'m CompiledGraph,
    /// None where its values are sealed, and so nothing can be computed from them.
    state: Option<Box<dyn Cells>>,
    /// Where results are tried, whether a tool can have returned them.
    lane: RefCell<Box<dyn Lane>>,
    position: Position,
    status: Status,
    before: Before,
    /// Whether the next nodes can have been visited where it ended.
    is_visiting: bool,
    is_fork: bool,
    /// The nodes of the last step, with what hooks wish behind each.
    visited: Vec<(u16, Wish)>,
    /// The time that the last visit was told.
    told: Option<i64>,
    /// What of the next step is done.
    done: Finished,
    /// How many items the lists of the next step have, by their visits; none where that depends on the time.
    lengths: RefCell<HashMap<u64, Option<usize>>>,
    /// Which items of the next step's lists are done, by their visits.
    items: HashMap<u64, ItemsDone>,
    /// The sessions of the run; the last is the one at work.
    sessions: Vec<Session>,
    /// What the caller said that the run may use.
    capabilities: Option<Grants>,
    /// Whether it is a run inside another.
    is_inside: bool,
    /// How many graphs may nest below it in all sessions.
    depth: u32,
    /// The calls of graphs that its visits made; none where nobody asks.
    inside: Option<Vec<Inside>>,
    /// The tools that were called.
    used: BTreeSet<u16>,
    run: RunId,
}

impl<'m> Walk<'m> {
    fn begin(
        machine: &'m dyn Machine,
        run: &RunId,
        start: &Start,
        is_recomputed: bool,
        looks_inside: bool,
    ) -> Result<Self, JournalError> {
        let code = machine.graph();
        let state = is_recomputed.then(|| misfit(0, opened(machine, start))).transpose()?;
        let mut position = Position::new(code);
        position.limit = start.limit.map(u64::from);
        let depth = start.depth.map_or(code.settings.depth, |depth| depth.min(code.settings.depth));
        let mut walk = Self {
            machine,
            code,
            state,
            lane: RefCell::new(machine.lane()),
            position,
            status: Status::Running,
            before: Before::Start,
            is_visiting: false,
            is_fork: start.from.is_some(),
            visited: Vec::new(),
            told: None,
            done: Finished::new(),
            lengths: RefCell::default(),
            items: HashMap::new(),
            sessions: Vec::new(),
            capabilities: start.capabilities.clone().map(Grants::new),
            is_inside: start.parent.is_some(),
            depth,
            inside: looks_inside.then(Vec::new),
            used: BTreeSet::new(),
            run: run.clone(),
        };
        misfit(0, walk.session(&start.grants, start.depth))?;
        Ok(walk)
    }

    /// Begins a session: what the graph needs must be granted.
    fn session(&mut self, patterns: &[String], depth: Option<u32>) -> Result<(), String> {
        let granted = grants(patterns)?;
        if let Some(capabilities) = &self.capabilities {
            let covered = |one: &Pattern| capabilities.patterns().iter().any(|pattern| pattern.covers(one));
            if let Some(more) = granted.patterns().iter().find(|one| !covered(one)) {
                return Err(format!("it was granted `{}`, which its caller did not let it use", more.as_str()));
            }
        }
        let says_all = self.sessions.is_empty() && self.capabilities.is_none() && !self.is_inside;
        let most = depth.map_or(self.depth, |depth| depth.min(self.depth));
        self.sessions.push(Session { granted, says_all, depth: most, said_depth: depth });
        self.code.tools.iter().filter_map(|tool| tool.capability.as_ref()).try_for_each(|needed| self.granted(needed))
    }

    /// Whether what is written down of grants is all of them. Where the grants of several bound the run, it is what patterns can say
    /// of that, and what the graph surely needs.
    fn says_all_grants(&self) -> bool {
        self.sessions.last().is_some_and(|session| session.says_all)
    }

    /// Takes the next record, if the engine can write it there.
    fn take(&mut self, seq: u64, entry: &Entry, at: SystemTime) -> Result<(), String> {
        if self.is_fork && self.before == Before::Start {
            let Entry::Snapshot(snapshot) = entry else { return self.stands() };
            self.before = Before::Fork;
            return self.begin_fork(snapshot);
        }
        let is_end = matches!(entry, Entry::End(_));
        match entry {
            Entry::Start(_) => return Err("a run begins once".to_owned()),
            _ if is_result(self.status) => return Err("the run had ended before it".to_owned()),
            // The last step and the end are written together.
            _ if self.position.frontier.is_empty() && !is_end => return self.stands(),
            Entry::Resume(_) => {}
            _ if self.status != Status::Running || self.before == Before::Fork => {
                return Err("the run had stopped before it, and was not taken up again".to_owned());
            }
            _ => self.hooks_allow(entry)?,
        }
        self.before = match entry {
            Entry::Start(_) => Before::Start,
            Entry::Resume(resume) => self.resume(resume).map(|()| Before::Resume)?,
            Entry::Step(step) => self.step(seq, step, at).map(|()| Before::Step)?,
            Entry::Calls(calls) => self.calls(calls).map(|()| Before::Calls)?,
            Entry::Snapshot(snapshot) => self.snapshot(snapshot).map(|()| Before::Snapshot)?,
            Entry::End(end) => self.end(end, at).map(|()| Before::End)?,
        };
        Ok(())
    }

    /// Fails if a hook of the graph surely ended the run before a record, and that is not its end. Ends are looked at by themselves.
    fn hooks_allow(&self, entry: &Entry) -> Result<(), String> {
        let is_end = matches!(entry, Entry::End(end) if end.status == Status::Error && end.node.is_some());
        match self.before {
            _ if is_end => Ok(()),
            Before::Start => self.wish_at_start().goes_on(),
            // A snapshot is written with its step, and a run that has a result is not ended again.
            Before::Step | Before::Snapshot
                if !matches!(entry, Entry::Snapshot(_)) && !self.position.frontier.is_empty() =>
            {
                self.visited.iter().try_for_each(|(_, wish)| wish.goes_on())
            }
            _ => Ok(()),
        }
    }

    /// Fails if the engine writes another record before a run can stand still there.
    fn stands(&self) -> Result<(), String> {
        if self.is_fork && self.before == Before::Start {
            return Err("the run began in another, and no snapshot says where it stood".to_owned());
        }
        if self.position.frontier.is_empty() && !is_result(self.status) {
            return Err("the run had come to its end, and no record says so".to_owned());
        }
        Ok(())
    }

    fn resume(&mut self, resume: &Resume) -> Result<(), String> {
        same("number of visits before it", resume.steps, self.position.steps)?;
        if self.is_inside && resume.limit.is_some() {
            return Err("only the graph limits how many steps a run inside another takes".to_owned());
        }
        self.items.values_mut().for_each(|items| items.last = None);
        self.status = Status::Running;
        self.position.limit = resume.limit.map(u64::from).or(self.position.limit);
        self.session(&resume.grants, resume.depth)
    }

    fn all_grants(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for pattern in self.sessions.iter().flat_map(|session| session.granted.patterns()) {
            if !all.iter().any(|one| one == pattern.as_str()) {
                all.push(pattern.as_str().to_owned());
            }
        }
        all
    }

    fn tools(&self) -> Vec<String> {
        let id = |tool: &u16| self.code.tool(*tool)?.id.as_ref().map(ToString::to_string);
        let ids: BTreeSet<String> = self.used.iter().map(|tool| id(tool).unwrap_or_else(|| "*".to_owned())).collect();
        ids.into_iter().collect()
    }

    /// Returns how many steps the run may take.
    fn most_steps(&self) -> u64 {
        self.position.most_steps(self.code)
    }

    /// Whether the next step is one more than the run may take, unless a hook allows more.
    fn is_exhausted(&self) -> bool {
        self.position.is_exhausted(self.code)
    }

    /// Takes a step, if the graph allows it.
    fn step(&mut self, seq: u64, step: &Step, at: SystemTime) -> Result<(), String> {
        let visits = step.visits.len();
        same("number of nodes that were to be visited", visits, self.position.frontier.len())?;
        let (taken, is_exhausted) = (self.position.steps + visits as u64, self.is_exhausted());
        match step.limit {
            Some(limit) if is_exhausted && self.is_extension(limit) && taken <= limit => {
                self.position.limit = Some(limit);
            }
            _ if is_exhausted => {
                return Err(format!("it is visit {taken}, and the run may make {}", self.most_steps()));
            }
            limit if limit != self.position.limit => {
                return Err("it says how many visits the run may make, and nobody had changed that".to_owned());
            }
            _ => {}
        }
        let frontier = self.position.frontier.clone();
        let mut leads = Vec::new();
        for (visit, activation) in step.visits.iter().zip(&frontier) {
            same("number of the visit", visit.step, activation.number)?;
            same("node that is visited", visit.node.as_str(), &self.code.node(activation.node).name)?;
            let (path, fan) =
                (path(activation.frame.as_ref()), activation.frame.as_ref().map_or(0, |frame| frame.fan.visit));
            if (&visit.branch, visit.fan) != (&path, fan) {
                return Err(format!("visit {} is in another branch", visit.step));
            }
            self.permitted(activation.node)?;
            self.used.extend(self.code.node(activation.node).kind.calls().filter(|_| !visit.cached));
            let way = self.visit(visit, activation, at, frontier.len() == 1)?;
            self.list(visit, &way)?;
            if let Some(mut inside) = self.inside.take() {
                inside.extend(self.calls_of_graphs(seq, visit.step, Some(visit), activation, at));
                self.inside = Some(inside);
            }
            leads.push(way.next(self.code, activation));
        }
        self.done.clear();
        self.lengths.get_mut().clear();
        self.items.clear();
        retake(self.code, self.state.as_deref_mut(), &mut self.position, step)?;
        self.told = step.visits.last().and_then(|visit| visit.now);
        let name = |node: u16| self.code.node(node).name.as_str();
        let wishes = frontier.iter().zip(&step.visits).zip(leads);
        let wish =
            |((at, visit), to): ((&Activation, _), Option<u16>)| (at.node, self.wish_behind(visit, to.map(name)));
        self.visited = wishes.map(wish).collect();
        Ok(())
    }

    /// Fails unless a visit says of the list that it fanned out over what it led to.
    fn list(&self, visit: &Visit, way: &Way) -> Result<(), String> {
        let list = way.list();
        let length = list.map(|list| u32::try_from(list.len()).unwrap_or(u32::MAX));
        let is_same = match (list, &visit.list) {
            (Some(list), Some(Value::Array(said))) => list == said,
            // Only its length is known.
            (Some(_), said) => said.is_some() && self.state.is_none(),
            (None, said) => said.is_none(),
        };
        if visit.over == length && is_same {
            Ok(())
        } else {
            Err(format!("node `{}` goes over another list", visit.node))
        }
    }

    /// Takes calls that finished before their step was done, if the graph makes them in it.
    fn calls(&mut self, calls: &Calls) -> Result<(), String> {
        if calls.done.is_empty() {
            return Err("it names no call".to_owned());
        }
        for done in &calls.done {
            let activation = self.position.frontier.iter().find(|at| at.number == done.step);
            let activation = activation.ok_or_else(|| format!("visit {} is not one of the next step", done.step))?;
            self.permitted(activation.node)?;
            let node = self.code.node(activation.node);
            self.call_done(done, activation)?;
            if let (Asks::Each { width, .. }, Some(item)) = (self.code.asks(activation.node), done.item) {
                let is_stopped = self.code.stops_at_failure(activation.node);
                let items = self.items.entry(done.step).or_default();
                items.take(item, width, is_stopped).map_err(|what| format!("node `{}` {what}", node.name))?;
            }
            if self.done.insert((done.step, done.item), done.clone()).is_some() {
                return Err(format!("node `{}` made a call again that was done", done.node));
            }
        }
        Ok(())
    }

    /// Forgets the calls whose results a run failed on.
    fn forget(&mut self, end: &End) {
        let before = self.done.len();
        self.done.retain(|_, done| !end.forgets(done));
        if self.done.len() < before {
            let steps: BTreeSet<u64> = self.done.keys().map(|(step, _)| *step).collect();
            self.items.retain(|step, _| steps.contains(step));
        }
    }

    /// Begins where another run stood.
    fn begin_fork(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        self.position = match self.state.as_deref_mut() {
            Some(state) => snapshot.restore(self.code, state)?,
            None => position_of(snapshot, self.code)?,
        };
        if self.position.frontier.is_empty() {
            return Err("nothing was left to do where it began".to_owned());
        }
        self.is_told(snapshot)
    }

    /// Fails unless a snapshot says what the records before it add up to.
    fn snapshot(&self, said: &Snapshot) -> Result<(), String> {
        if self.before != Before::Step {
            return Err("it does not follow a step".to_owned());
        }
        self.is_told(said)
    }

    /// Fails unless a snapshot says where the run stands.
    fn is_told(&self, said: &Snapshot) -> Result<(), String> {
        let Some(state) = self.state.as_deref() else {
            let mut stands = position_of(said, self.code)?;
            // What nodes returned the last time may be sealed.
            stands.root.previous.clone_from(&self.position.root.previous);
            for (key, branch) in &mut stands.branches {
                let is = self.position.branches.get(key);
                branch.memory.previous = is.map(|is| is.memory.previous.clone()).unwrap_or_default();
            }
            return if stands == self.position { Ok(()) } else { Err(ELSEWHERE.to_owned()) };
        };
        let is = SnapshotDraft { code: self.code, state, position: &self.position, vault: None }.to_owned();
        if is == *said {
            return Ok(());
        }
        let key = is.keys.iter().chain(&said.keys).map(|(name, _)| name);
        let key = key.into_iter().find(|name| is.keys.get(*name) != said.keys.get(*name));
        Err(match key {
            Some(key) => format!("it says that `{key}` is something else than what was written to it"),
            None => ELSEWHERE.to_owned(),
        })
    }

    /// Fails unless the run was allowed what the node calls.
    fn permitted(&self, node: u16) -> Result<(), String> {
        let tool = self.code.node(node).kind.calls().and_then(|tool| self.code.tool(tool));
        let capability = tool.and_then(|tool| tool.capability.as_ref());
        capability.map_or(Ok(()), |capability| self.granted(capability))
    }

    /// Returns how a call fails that the run may not make and whose id is known only then: one of these, and whether it surely may not
    /// make it; nothing if it may.
    fn denials(&self, request: &Request) -> (Vec<String>, bool) {
        let Some(tool) = self.code.tool(request.tool) else { return (Vec::new(), false) };
        let id = request.id.as_ref().or(tool.id.as_ref());
        if tool.id.is_some() || id.is_some_and(|id| id.as_str().starts_with(INTERNAL)) {
            return (Vec::new(), false);
        }
        let (capability, says_all) = (Capability::new(tool.verb, tool.item, id), self.says_all_grants());
        if self.granted(&capability).is_ok() {
            return (Vec::new(), false);
        }
        let is_permitted = self.code.permissions.allow(&capability)
            && self.capabilities.as_ref().is_none_or(|grants| grants.allow(&capability));
        // Nothing is written down also where no pattern says what several grants have in common.
        let is_none = self.sessions.last().is_some_and(|session| session.granted.patterns().is_empty());
        let possible = if is_none && !says_all { vec![true, false] } else { vec![is_none] };
        let texts = possible.into_iter().map(|is_none| denied(tool, request, is_none)).collect();
        (texts, says_all || !is_permitted)
    }

    fn granted(&self, capability: &Capability) -> Result<(), String> {
        let allows = |grants: &Grants| grants.allow(capability);
        if self.sessions.last().is_some_and(|session| allows(&session.granted))
            && allows(&self.code.permissions)
            && self.capabilities.as_ref().is_none_or(allows)
        {
            Ok(())
        } else {
            Err(format!("the run was not granted `{capability}`"))
        }
    }

    /// Returns the result with which the run ended, as a run around it is told; none if it ended without one, or its values are
    /// sealed.
    fn ended(&self, end: &End) -> Option<Ended> {
        let state = self.state.as_deref()?;
        let mask = self.code.settings.secrets.output.as_ref();
        is_result(end.status).then(|| Ended {
            status: end.status,
            node: self.code.node(self.position.last).name.clone(),
            output: end.output.clone(),
            hidden: mask.map(|mask| Box::new(mask.hide(end.output.clone()))),
            state: state_value(self.code, state, &self.position),
            steps: end.steps,
            suppressed: self.position.suppressed.clone(),
            exhausted: end.exhausted && self.code.flags_limit(),
            history: Vec::new(),
        })
    }
}

const ELSEWHERE: &str = "it says that the run stands elsewhere than where its steps led";

/// Returns the state of a run that begins with inputs, which must be as the engine writes them: defaults applied, and as the graph
/// asks for them.
fn opened(machine: &dyn Machine, start: &Start) -> Result<Box<dyn Cells>, String> {
    let code = machine.graph();
    let given = |name: &&String| !start.inputs.get(name.as_str()).unwrap_or(&Value::Null).is_null();
    if let Some(missing) = code.settings.required.iter().find(|name| !given(name)) {
        return Err(format!("the input `{missing}` is missing"));
    }
    let mut state = machine.open(start.inputs.clone()).map_err(|error| error.to_string())?;
    let inputs = state.inputs().to_plain_value();
    if inputs != start.inputs {
        return Err("its inputs are not what the graph makes of them".to_owned());
    }
    // A program without the feature cannot check the rules of inputs, and cannot run such a graph either.
    if let Some(schema) = code.settings.schema.as_ref().filter(|_| cfg!(feature = "schema")) {
        schema::validate(schema, &inputs).map_err(|invalid| invalid.to_string())?;
    }
    initialise(code, &mut *state).map_err(|error| error.to_string())?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A foreach at work, as far as that decides which items may be done next.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct AtWork {
        next: u64,
        begun: BTreeSet<u64>,
        is_over: bool,
        /// The items that were done, in their order; none where the run was resumed.
        said: Vec<Option<u64>>,
    }

    impl AtWork {
        /// Returns what can come next of a foreach over so many items.
        fn then(&self, length: u64, width: usize, is_stopped: bool) -> Vec<Self> {
            let mut all = Vec::new();
            let with = |change: &dyn Fn(&mut Self)| {
                let mut then = self.clone();
                change(&mut then);
                then
            };
            if self.next < length && self.begun.len() < width && !self.is_over {
                let is_known = self.said.contains(&Some(self.next));
                all.push(with(&|then| {
                    then.next += 1;
                    if !is_known {
                        then.begun.insert(self.next);
                    }
                }));
            }
            for item in &self.begun {
                all.push(with(&|then| {
                    then.begun.remove(item);
                    then.said.push(Some(*item));
                }));
                all.push(with(&|then| {
                    then.begun.remove(item);
                    then.is_over |= is_stopped;
                }));
            }
            if !self.said.contains(&None) {
                let said = self.said.iter().copied().chain([None]).collect();
                all.push(Self { next: 0, begun: BTreeSet::new(), is_over: false, said });
            }
            all
        }
    }

    /// Returns all orders in which items can be done, of a run that is resumed at most once.
    fn written(length: u64, width: usize, is_stopped: bool) -> BTreeSet<Vec<Option<u64>>> {
        let first = AtWork { next: 0, begun: BTreeSet::new(), is_over: false, said: Vec::new() };
        let (mut known, mut waiting) = (BTreeSet::from([first.clone()]), vec![first]);
        while let Some(one) = waiting.pop() {
            for then in one.then(length, width, is_stopped) {
                if known.insert(then.clone()) {
                    waiting.push(then);
                }
            }
        }
        known.into_iter().map(|one| one.said).collect()
    }

    /// Returns all lists of some of these, each once.
    fn orders(of: &[Option<u64>]) -> Vec<Vec<Option<u64>>> {
        let mut all = vec![Vec::new()];
        for first in of {
            let rest: Vec<_> = of.iter().copied().filter(|one| one != first).collect();
            all.extend(orders(&rest).into_iter().map(|rest| [vec![*first], rest].concat()));
        }
        all
    }

    fn is_accepted(order: &[Option<u64>], width: usize, is_stopped: bool) -> bool {
        let mut items = ItemsDone::default();
        order.iter().all(|one| match one {
            Some(item) => items.take(*item, width, is_stopped).is_ok(),
            None => {
                items.last = None;
                true
            }
        })
    }

    #[test]
    fn the_items_of_a_foreach_are_done_in_the_orders_in_which_it_makes_its_calls() {
        let of = [Some(0), Some(1), Some(2), Some(3), None];
        for (width, is_stopped) in [(1, true), (2, true), (3, true), (1, false), (2, false), (3, false)] {
            let written = written(4, width, is_stopped);
            for order in orders(&of) {
                let (is_written, is_accepted) = (written.contains(&order), is_accepted(&order, width, is_stopped));
                // Where a failure stops nothing, an item that is done late may have been overtaken by any number.
                let is_free = !is_stopped && width > 1;
                let is_right = is_written == is_accepted || (is_free && is_accepted);
                assert!(is_right, "{order:?}, {width} at a time, stopped: {is_stopped}, written: {is_written}");
            }
        }
    }
}

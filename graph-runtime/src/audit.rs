//! Proving a run from its journal: that nobody changed it, and that the graph allows every step that it tells of.
//!
//! Nothing is called and nothing is written. What tools returned is taken from the journal; what the graph makes of that is
//! computed again and compared: which nodes were visited, what they wrote, which edges were taken, what the run returned.

mod inside;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::SystemTime;

use graph_model::capability::{Grants, Pattern};
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::program::OnMaxSteps;
use graph_model::signature::{Fingerprint, PublicKey};
use graph_model::timestamp;
use graph_model::value::{AsView, Map, Value, canonical_json};

use crate::code::{Code, Foreach, Kind};
use crate::engine::{Ended, Finished, element, state_value};
use crate::machine::{Activation, Cells, Machine, Next, Notes, Now, Outcome, Sight};
use crate::record::{
    Calls, End, Entry, Journal, JournalError, Origin, Parent, Sealed, Snapshot, SnapshotDraft, Standing, Start, Status,
    Step, Visit, retries_seen,
};
use crate::runtime::{initialise, replay_step};
use crate::seal::SealKey;
use crate::travel::standing_of;
use crate::vault::{Vault, hidden};

use inside::Inside;
#[cfg(feature = "files")]
pub(crate) use inside::prove_tree;
pub use inside::{AuditError, audit_tree};

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
    /// Why it ended without one, and at which node.
    failed: Option<(String, Option<String>)>,
    /// What it was granted at its start, and each time that it was taken up.
    granted: Vec<Grants>,
}

fn prove(
    machine: &dyn Machine,
    run: &RunId,
    records: &[Sealed],
    key: &PublicKey,
    seal: Option<&SealKey>,
    looks_inside: bool,
) -> Result<Proven, JournalError> {
    let mut journal = Journal::verify(run, records, key)?;
    let code = machine.code();
    let start = &journal.start;
    misfit(0, same("graph", start.graph.as_str(), code.id.as_str()))?;
    misfit(0, same("digest of the graph", start.digest, code.digest))?;
    // A vault that cannot be opened leaves sealed what it holds, and nothing is computed from that.
    let vault = seal.and_then(|seal| Vault::open(code, run, Some(seal), true).ok().flatten());
    if let Some(vault) = &vault {
        vault.unseal_journal(code, &mut journal)?;
    }
    let is_recomputed = code.settings.secrets.is_empty() || vault.is_some();
    let start = journal.start.clone();
    let mut walk = Walk::begin(machine, run, &start, is_recomputed, looks_inside)?;
    let (mut status, mut resumes, mut last) = (Status::Running, 0, None);
    let is_fork = start.from.is_some();
    if is_fork && journal.records.is_empty() {
        misfit(0, Err("the run began in another, and no snapshot says where it stood".to_owned()))?;
    }
    for record in &journal.records {
        let at = timestamp::parse(&record.at).ok_or_else(|| "its time cannot be read".to_owned());
        let taken = at.and_then(|at| match &record.entry {
            Entry::Start(_) => Err("a run begins once".to_owned()),
            Entry::Snapshot(snapshot) if is_fork && record.seq == 1 => walk.begin_fork(snapshot),
            _ if is_fork && record.seq == 1 => {
                Err("the run began in another, and no snapshot says where it stood".to_owned())
            }
            _ if matches!(status, Status::Completed | Status::CompletedWithErrors) => {
                Err("the run had ended before it".to_owned())
            }
            Entry::Resume(resume) => {
                (status, resumes) = (Status::Running, resumes + 1);
                walk.granted.push(grants(&resume.grants)?);
                same("number of visits before it", resume.steps, walk.standing.steps)
            }
            _ if status != Status::Running => {
                Err("the run had stopped before it, and was not taken up again".to_owned())
            }
            Entry::Step(step) => walk.step(record.seq, step, at),
            Entry::Calls(calls) => walk.calls(calls),
            Entry::Snapshot(snapshot) => walk.snapshot(snapshot),
            Entry::End(end) => {
                (status, last) = (end.status, Some((end, &record.at)));
                walk.forget(end);
                walk.end(end, at)
            }
        });
        misfit(record.seq, taken)?;
    }
    let last = last.filter(|(end, _)| end.status == status);
    let ended = last.and_then(|(end, _)| walk.ended(end));
    let failed = last.and_then(|(end, _)| Some((end.error.clone()?, end.node.clone())));
    let is_done = matches!(status, Status::Completed | Status::CompletedWithErrors);
    let output = last.filter(|_| is_done).map(|(end, _)| {
        let shown = hidden(code.settings.secrets.output.as_ref(), end.output.clone());
        Digest::of(canonical_json(&shown))
    });
    let audit = Audit {
        run: run.clone(),
        graph: start.graph.clone(),
        digest: start.digest,
        signer: start.signer.clone(),
        status,
        steps: walk.standing.steps,
        resumes,
        records: records.len() as u64,
        link: records.last().map_or_else(|| Digest::of([]), Sealed::link),
        key: key.fingerprint(),
        version: start.version.clone(),
        parent: start.parent.clone(),
        from: start.from.clone(),
        is_origin_proven: false,
        grants: walk.all_grants(),
        tools: walk.tools(),
        started: journal.started.clone(),
        ended: last.map(|(_, at)| at.clone()),
        output,
        is_recomputed,
    };
    Ok(Proven { audit, start, inside: walk.inside.unwrap_or_default(), ended, failed, granted: walk.granted })
}

fn misfit<T>(seq: u64, found: Result<T, String>) -> Result<T, JournalError> {
    found.map_err(|reason| JournalError::Misfit { seq, reason })
}

fn same<T: PartialEq + Display>(what: &str, said: T, is: T) -> Result<(), String> {
    if said == is { Ok(()) } else { Err(format!("it says that the {what} is {said}, and it is {is}")) }
}

fn grants(patterns: &[String]) -> Result<Grants, String> {
    let patterns = patterns.iter().map(|text| Pattern::new(text.as_str()).map_err(|error| error.to_string()));
    patterns.collect::<Result<Vec<_>, _>>().map(Grants::new)
}

/// A run that is walked again, along its journal.
struct Walk<'m> {
    machine: &'m dyn Machine,
    code: &'m Code,
    /// None where its values are sealed, and so nothing can be computed from them.
    state: Option<Box<dyn Cells>>,
    standing: Standing,
    /// What of the next step is done.
    done: Finished,
    /// What was granted at the start and each time that the run was taken up; the last is what counts.
    granted: Vec<Grants>,
    /// What the caller said that the run may use.
    capabilities: Option<Grants>,
    /// How many graphs may stand one in the other below it.
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
        let code = machine.code();
        let state = if is_recomputed {
            let mut state = misfit(0, machine.open(start.inputs.clone()).map_err(|error| error.to_string()))?;
            misfit(0, initialise(code, &mut *state).map_err(|error| error.to_string()))?;
            Some(state)
        } else {
            None
        };
        let mut standing = Standing::new(code);
        standing.limit = start.limit.map(u64::from);
        let capabilities = start.capabilities.clone().map(Grants::new);
        let depth = start.depth.map_or(code.settings.depth, |depth| depth.min(code.settings.depth));
        let granted = vec![misfit(0, grants(&start.grants))?];
        let inside = looks_inside.then(Vec::new);
        let (run, done) = (run.clone(), Finished::new());
        Ok(Self {
            machine,
            code,
            state,
            standing,
            done,
            granted,
            capabilities,
            depth,
            inside,
            used: BTreeSet::new(),
            run,
        })
    }

    fn all_grants(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for pattern in self.granted.iter().flat_map(Grants::patterns) {
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

    /// Takes a step, if the graph allows it.
    fn step(&mut self, seq: u64, step: &Step, at: SystemTime) -> Result<(), String> {
        let frontier = std::mem::take(&mut self.standing.frontier);
        same("number of nodes that were to be visited", step.visits.len(), frontier.len())?;
        if let Some(limit) = step.limit {
            self.standing.limit = Some(limit);
        }
        let most = self.standing.limit.unwrap_or_else(|| u64::from(self.code.settings.max_steps));
        let taken = self.standing.steps + step.visits.len() as u64;
        if taken > most {
            return Err(format!("it is visit {taken}, and the run may make {most}"));
        }
        for activation in &frontier {
            self.standing.retries.shift_remove(&self.code.node(activation.node).name);
        }
        let mut next: Vec<Activation> = Vec::new();
        for ((visit, activation), number) in step.visits.iter().zip(&frontier).zip(self.standing.steps + 1..) {
            same("number of the visit", visit.step, number)?;
            same("node that is visited", visit.node.as_str(), &self.code.node(activation.node).name)?;
            let argument = activation.argument.as_deref().unwrap_or(&Value::Null);
            same("argument of the visit", &visit.argument, argument)?;
            self.permitted(activation.node)?;
            if let Kind::Action(call) | Kind::Foreach(Foreach { call, .. }) = &self.code.node(activation.node).kind
                && !visit.cached
            {
                self.used.insert(call.tool);
            }
            if visit.cached && !self.code.node(activation.node).cached {
                return Err(format!(
                    "what node `{}` returned is not to be cached, and it says that it was",
                    visit.node
                ));
            }
            if let Some(mut inside) = self.inside.take() {
                inside.extend(self.calls_of_graphs(seq, visit, activation, at)?);
                self.inside = Some(inside);
            }
            self.visit(visit, activation, at)?.into_iter().for_each(|activation| activation.join(&mut next));
        }
        self.done.clear();
        let name = |node: u16| self.code.node(node).name.as_str();
        let expected: Vec<&str> = next.iter().map(|activation| name(activation.node)).collect();
        let said: Vec<&str> = step.next.iter().map(|target| target.node.as_str()).collect();
        same("way on", said.join(", "), expected.join(", "))?;
        replay_step(self.code, self.machine, self.state.as_deref_mut(), &mut self.standing, step)
    }

    /// Takes calls that finished before their step was done, if the graph makes them in it.
    fn calls(&mut self, calls: &Calls) -> Result<(), String> {
        for done in &calls.done {
            let place = done.step.checked_sub(self.standing.steps + 1).and_then(|place| usize::try_from(place).ok());
            let activation = place.and_then(|place| self.standing.frontier.get(place));
            let at = activation.ok_or_else(|| format!("visit {} is not one of the next step", done.step))?.node;
            let node = self.code.node(at);
            same("node that makes a call", done.node.as_str(), node.name.as_str())?;
            if matches!(node.kind, Kind::Foreach(_)) != done.item.is_some() {
                return Err(format!("node `{}` makes no such call", node.name));
            }
            self.permitted(at)?;
            if done.cached && !node.cached {
                return Err(format!("what node `{}` returned is not to be cached, and it says that it was", node.name));
            }
            if self.done.insert((done.step, done.item), done.clone()).is_some() {
                return Err(format!("node `{}` made a call again that was done", node.name));
            }
        }
        Ok(())
    }

    /// Forgets the calls whose results a run failed on.
    fn forget(&mut self, end: &End) {
        if let End { unfit: true, node: Some(node), .. } = end {
            self.done.retain(|_, done| done.node != *node);
        }
    }

    /// Fails unless a visit says of its calls that were done before what the journal said then.
    fn agrees(&self, visit: &Visit, kind: &Kind) -> Result<(), String> {
        let is_each = match kind {
            // What is collected nowhere stands nowhere.
            Kind::Foreach(each) if each.collect.is_none() => return Ok(()),
            kind => matches!(kind, Kind::Foreach(_)),
        };
        let collected = visit.changes.values().next().and_then(Value::as_array);
        for done in self.done.values().filter(|done| done.step == visit.step && visit.error.is_none()) {
            let is_same = if is_each {
                let item = done.item.and_then(|item| usize::try_from(item).ok());
                let said = item.and_then(|item| collected?.get(item));
                said.is_some_and(|said| *said == done.result || *said == element(done.result.clone()))
            } else {
                visit.result == done.result
            };
            if !is_same {
                return Err(format!("node `{}` returned something else than when its call was done", visit.node));
            }
        }
        Ok(())
    }

    /// Begins where another run stood.
    fn begin_fork(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        self.standing = match self.state.as_deref_mut() {
            Some(state) => snapshot.restore(self.code, state)?,
            None => standing_of(snapshot, self.code)?,
        };
        if self.standing.frontier.is_empty() { Err("nothing was left to do where it began".to_owned()) } else { Ok(()) }
    }

    /// Fails unless a snapshot says what the records before it add up to.
    fn snapshot(&self, said: &Snapshot) -> Result<(), String> {
        let Some(state) = self.state.as_deref() else {
            same("number of visits", said.steps, self.standing.steps)?;
            let name = |at: &Activation| self.code.node(at.node).name.clone();
            let expected: Vec<String> = self.standing.frontier.iter().map(name).collect();
            let next: Vec<&str> = said.next.iter().map(|target| target.node.as_str()).collect();
            return same("way on", next.join(", "), expected.join(", "));
        };
        let is = SnapshotDraft { code: self.code, state, standing: &self.standing, vault: None }.to_owned();
        if is == *said {
            return Ok(());
        }
        let key = is.keys.iter().chain(&said.keys).map(|(name, _)| name);
        let key = key.into_iter().find(|name| is.keys.get(*name) != said.keys.get(*name));
        Err(match key {
            Some(key) => format!("it says that `{key}` is something else than what was written to it"),
            None => "it says that the run stands elsewhere than where its steps led".to_owned(),
        })
    }

    /// Computes what a node writes and where it leads, compares that with what the journal says, and returns where it leads.
    fn visit(&self, visit: &Visit, activation: &Activation, at: SystemTime) -> Result<Vec<Activation>, String> {
        let code = self.code;
        let node = code.node(activation.node);
        let to = |node: Option<u16>| node.map(Activation::of).into_iter().collect();
        if self.state.is_some() {
            self.agrees(visit, &node.kind)?;
        }
        if visit.error.is_some() {
            return match (node.on_error, visit.suppressed) {
                (Some(target), false) => {
                    same("keys that a node wrote whose failure has a target", visit.changes.len(), 0)?;
                    Ok(to(Some(target)))
                }
                // What the edges saw of the failure is not all written down: that there is such an edge is what can be proven.
                (_, true) => {
                    let edge = visit.edge.map(|edge| code.target(activation.node, edge));
                    Ok(to(edge
                        .ok_or("it went on after a failure, along no edge")
                        .or_else(|error| if code.may_end(activation.node) { Ok(Some(None)) } else { Err(error) })?
                        .ok_or("there is no such edge")?))
                }
                (None, false) => Err("the node failed, and nothing says where that leads".to_owned()),
            };
        }
        let Some(state) = self.state.as_deref() else {
            let target = visit.edge.map(|edge| code.target(activation.node, edge).ok_or("there is no such edge"));
            return Ok(to(target.transpose()?.flatten()));
        };
        let told = visit.now.map(timestamp::from_unix_milliseconds);
        let clock = || at;
        let now = Now::known_at(&clock, told);
        let sight = self.standing.sight(state, activation.node, &now);
        let retries = retries_seen(sight.retries, &node.name, visit.calls);
        let sight = Sight { retries: &retries, ..sight };
        let (mut notes, mut changes) = (Notes::default(), Vec::new());
        let mut results = match visit.changes.values().next() {
            Some(Value::Array(list)) => list.clone(),
            _ => Vec::new(),
        };
        let outcome = match &node.kind {
            Kind::Foreach(_) => Outcome::Each(&mut results),
            Kind::Action(_) => Outcome::Done(visit.result.view()),
            Kind::Gate | Kind::Return(_) => Outcome::None,
        };
        let advanced = self.machine.advance(activation, &sight, outcome, &mut notes, &mut changes);
        let next = advanced.map_err(|failure| format!("node `{}` fails: {}", node.name, failure.message))?;
        let written: Map<String, Value> =
            changes.into_iter().map(|change| (code.keys[change.key].name.clone(), change.value)).collect();
        if written != visit.changes {
            let names = written.keys().chain(visit.changes.keys());
            let different = names.into_iter().find(|name| written.get(*name) != visit.changes.get(*name));
            let key = different.map_or("", String::as_str);
            return Err(format!("node `{}` writes something else to `{key}`", node.name));
        }
        if next.edge() != visit.edge {
            return Err(format!("node `{}` leads along another edge", node.name));
        }
        Ok(match next {
            Next::End | Next::Out(_) => Vec::new(),
            Next::To { node, .. } | Next::Mend(node) => vec![Activation::of(node)],
            Next::All(activations) => activations,
        })
    }

    /// Fails unless the run was allowed what the node calls.
    fn permitted(&self, node: u16) -> Result<(), String> {
        let tool = match self.code.node(node).kind.kind() {
            graph_model::program::Kind::Action(tool) | graph_model::program::Kind::Foreach(tool) => tool,
            _ => return Ok(()),
        };
        let Some(capability) = self.code.tool(tool).and_then(|tool| tool.capability.as_ref()) else { return Ok(()) };
        let allows = |grants: &Grants| grants.allow(capability);
        if self.granted.last().is_some_and(allows)
            && allows(&self.code.permissions)
            && self.capabilities.as_ref().is_none_or(allows)
        {
            Ok(())
        } else {
            Err(format!("the run was not granted `{capability}`"))
        }
    }

    /// Ends the run, if it may end so.
    fn end(&self, end: &End, at: SystemTime) -> Result<(), String> {
        same("number of visits", end.steps, self.standing.steps)?;
        let is_done = matches!(end.status, Status::Completed | Status::CompletedWithErrors);
        if !is_done {
            return Ok(());
        }
        let expected = match self.standing.suppressed.is_empty() {
            true => Status::Completed,
            false => Status::CompletedWithErrors,
        };
        same("status", end.status.name(), expected.name())?;
        if !end.exhausted && !self.standing.frontier.is_empty() {
            return Err("nodes were still to be visited".to_owned());
        }
        if end.exhausted && self.code.settings.on_max_steps == OnMaxSteps::Fail {
            return Err("the graph does not return when the run has taken all the steps it may".to_owned());
        }
        let Some(state) = self.state.as_deref() else { return Ok(()) };
        let clock = || at;
        let now = Now::known_at(&clock, end.now.map(timestamp::from_unix_milliseconds));
        let sight = self.standing.sight(state, self.standing.last, &now);
        let output = match end.exhausted {
            true => self.code.keys(&sight),
            false => self.code.output(self.standing.last, &sight, &mut Notes::default()),
        };
        if output == end.output { Ok(()) } else { Err("the graph returns something else".to_owned()) }
    }

    /// Returns the result with which the run ended, as a run around it is told; none if it ended without one, or its values are
    /// sealed.
    fn ended(&self, end: &End) -> Option<Ended> {
        let state = self.state.as_deref()?;
        let is_done = matches!(end.status, Status::Completed | Status::CompletedWithErrors);
        let mask = self.code.settings.secrets.output.as_ref();
        is_done.then(|| Ended {
            status: end.status,
            node: self.code.node(self.standing.last).name.clone(),
            output: end.output.clone(),
            hidden: mask.map(|mask| Box::new(mask.hide(end.output.clone()))),
            state: state_value(self.code, state, &self.standing),
            steps: end.steps,
            suppressed: self.standing.suppressed.clone(),
            exhausted: end.exhausted && self.code.settings.on_max_steps == OnMaxSteps::ReturnWithFlag,
            history: Vec::new(),
        })
    }
}

//! The judge: reads journals and the lines of the tools, and knows nothing of the engine but the format of its records.

use std::collections::{BTreeMap, BTreeSet};

use graph_model::timestamp;
use graph_runtime::record::{End, Entry, Opened, Record, SignedRecord};

use graph_runtime::{Status, Value};
use serde_json::json;

use super::graphs::{CallLine, WaitingGraph, calls, timeout, waits};
use crate::workload::At;

/// The faults that were found, by what they break.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// A run did not end as it must, or lost something.
    pub(super) lost: Vec<String>,
    /// A wait was taken twice, a call of a committed visit was repeated, or two processes continued a run at a time.
    pub(super) twice: Vec<String>,
    /// A wait was taken, or something was called behind it, before it was due.
    pub(super) early: Vec<String>,
    /// A journal is not proven.
    pub(super) unproven: Vec<String>,
    /// A process complained, or ended by itself.
    pub(super) complaints: Vec<String>,
}

impl Faults {
    /// Returns each kind of fault with its name.
    pub(super) fn kinds(&self) -> [(&'static str, &[String]); 5] {
        [
            ("lost", &self.lost),
            ("twice", &self.twice),
            ("early", &self.early),
            ("unproven", &self.unproven),
            ("complaints", &self.complaints),
        ]
    }
}

/// The signals and answers that were sent to a run and accepted.
#[derive(Debug, Clone, Default)]
pub(super) struct SentToRun {
    /// The signals by their ids, each with its number and the time of its receipt.
    pub(super) signals: BTreeMap<String, (u64, i64)>,
    /// The answers by the ids of their waits.
    pub(super) answers: BTreeMap<String, Value>,
}

/// A run, and how it must end.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) told: SentToRun,
    pub(super) graph: WaitingGraph,
    pub(super) rounds: u64,
    /// Whether the store accepted that the run be cancelled.
    pub(super) is_cancelled: bool,
}

/// A wait that was taken.
#[derive(Debug)]
struct Taken {
    due: i64,
    at: i64,
    /// When the wait could be taken: it was open, and its time had come, or what it waited for.
    ready: i64,
}

/// A visit whose calls are recorded, so that they are not made again.
#[derive(Debug)]
struct Closed {
    node: String,
    /// The time of its record.
    at: i64,
    /// Whether its branch was cancelled during the visit.
    is_cancelled: bool,
}

/// The content of a journal, as far as it is about waits and calls.
#[derive(Debug, Default)]
struct Journal {
    opened: BTreeMap<u64, (String, Opened)>,
    taken: BTreeMap<u64, Taken>,
    /// The signals and answers that waits took, by their ids, with what their visits see.
    received: BTreeMap<String, Value>,
    /// The visits that are committed, and those of which a call is.
    closed: BTreeMap<u64, Closed>,
    committed: BTreeSet<u64>,
    /// The visits that records announce, each with the time at which the last of the waits before it is due.
    announced: BTreeMap<u64, i64>,
    /// The time that the last visit of `plan` returned.
    until: Option<i64>,
    end: Option<End>,
}

/// The numbers of a run that was judged.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Whether it ended as cancelled.
    pub(super) is_cancelled: bool,
    pub(super) steps: u64,
    pub(super) calls: u64,
    pub(super) repeated: u64,
    /// How many signals and answers ended waits.
    pub(super) received: u64,
    /// How late each wait was taken, in milliseconds.
    pub(super) lateness: Vec<i64>,
}

/// Judges a run by its journal and the lines that its calls wrote, in the order of the file. `killed` has the time at which each
/// process was killed.
pub(super) fn judge(
    name: &str,
    expected: &Expected,
    records: &[SignedRecord],
    lines: &[&CallLine],
    killed: &BTreeMap<u64, i64>,
    faults: &mut Faults,
) -> Judged {
    let mut journal = Journal { announced: BTreeMap::from([(1, i64::MIN)]), ..Journal::default() };
    for signed in records {
        match serde_json::from_str::<Record>(&signed.body) {
            Ok(record) => journal.read(name, expected.graph, record, lines, faults),
            Err(error) => faults.unproven.push(format!("{name}: record {}: {error}", signed.seq)),
        }
    }
    let mut judged = journal.judge_calls(name, lines, killed, faults);
    judged.is_cancelled = journal.judge_end(name, expected, faults);
    judged.received = journal.judge_sent(name, &expected.told, faults);
    judged.steps = journal.committed.len() as u64;
    judged.lateness = journal.taken.values().map(|taken| taken.at - taken.ready).collect();
    judged
}

impl Journal {
    /// Reads the next record.
    fn read(&mut self, name: &str, graph: WaitingGraph, record: Record, lines: &[&CallLine], faults: &mut Faults) {
        let at = time(&record.at).unwrap_or(i64::MIN);
        match record.entry {
            Entry::Step(step) => {
                let mut opened = Vec::new();
                for visit in step.visits {
                    let (number, node) = (visit.step, visit.node);
                    if let Some(wait) = visit.opened {
                        opened.push((number, node, wait));
                        continue;
                    }
                    if !self.committed.insert(number) {
                        faults.twice.push(format!("{name}: visit {number} of `{node}` is committed twice"));
                    }
                    if waits(&node) && !self.taken.contains_key(&number) {
                        faults.early.push(format!("{name}: visit {number} of `{node}` did not wait"));
                    }
                    let until = visit.result.get("until").and_then(|until| time(until.as_str()?));
                    self.until = until.or(self.until);
                    self.closed.entry(number).or_insert(Closed { node, at, is_cancelled: visit.cancelled });
                }
                for (number, node, wait) in opened {
                    self.open(name, graph, number, node, wait, lines, faults);
                }
                let due = self.taken.values().map(|taken| taken.due).max().unwrap_or(i64::MIN);
                for next in step.next {
                    self.announced.entry(next.number).or_insert(due);
                }
            }
            Entry::Calls(calls) => {
                for done in calls.done {
                    self.closed.entry(done.step).or_insert(Closed { node: done.node, at, is_cancelled: false });
                }
            }
            Entry::Take(take) => {
                for taken in take.taken {
                    let number = taken.step;
                    let Some((node, wait)) = self.opened.get(&number) else {
                        faults.early.push(format!("{name}: wait {number} was taken and not opened"));
                        continue;
                    };
                    // A signal or an answer ends a wait before its time.
                    let due = match &taken.signal {
                        Some(signal) if signal.at < wait.due.unwrap_or(i64::MAX) => signal.at,
                        _ => wait.due.unwrap_or(i64::MAX),
                    };
                    if let Some(signal) = taken.signal {
                        let seen = signal.value.get("answer").cloned().unwrap_or(signal.value);
                        if self.received.insert(signal.id.clone(), seen).is_some() {
                            faults.twice.push(format!("{name}: `{}` was taken twice", signal.id));
                        }
                    }
                    if taken.at < due || taken.at < wait.at {
                        let (opened, at) = (wait.at, taken.at);
                        faults.early.push(format!(
                            "{name}: wait {number} at `{node}` was opened at {opened}, is due at {due}, and was taken at {at}"
                        ));
                    }
                    if self.taken.insert(number, Taken { due, at: taken.at, ready: due.max(wait.at) }).is_some() {
                        faults.twice.push(format!("{name}: wait {number} at `{node}` was taken twice"));
                    }
                }
            }
            Entry::End(end) => self.end = Some(end),
            _ => {}
        }
    }

    /// Notes that a wait was opened.
    #[expect(clippy::too_many_arguments, reason = "a wait and what it is compared with")]
    fn open(
        &mut self,
        name: &str,
        graph: WaitingGraph,
        number: u64,
        node: String,
        wait: Opened,
        lines: &[&CallLine],
        faults: &mut Faults,
    ) {
        let expected = match timeout(&node) {
            Some(timeout) => Some(wait.at + timeout),
            None if graph == WaitingGraph::Until && node == "rest" => self.until,
            None => None,
        };
        if expected.is_none() || wait.due != expected {
            faults
                .early
                .push(format!("{name}: wait {number} at `{node}` is {wait:?}, and is to be due at {expected:?}"));
        }
        // A wait begins when the step before it is done.
        let before = lines.iter().filter(|line| self.closed.contains_key(&line.visit)).map(|line| line.time).max();
        if before.is_some_and(|before| wait.at < before) {
            faults.early.push(format!("{name}: wait {number} at `{node}` was opened before the call at {before:?}"));
        }
        if self.opened.insert(number, (node, wait)).is_some() {
            faults.twice.push(format!("{name}: wait {number} was opened twice"));
        }
    }

    /// Compares the calls with the records.
    fn judge_calls(&self, name: &str, lines: &[&CallLine], killed: &BTreeMap<u64, i64>, faults: &mut Faults) -> Judged {
        let mut judged = Judged::default();
        let was_dead = |process: u64, time: i64| killed.get(&process).is_some_and(|at| *at <= time);
        // The first key of each visit, and the processes that made its calls.
        let mut made: BTreeMap<u64, (&str, Vec<u64>)> = BTreeMap::new();
        // The calls in progress.
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        let mut returned: BTreeMap<u64, i64> = BTreeMap::new();
        for line in lines {
            let CallLine { visit, time, process, .. } = **line;
            if line.at == At::Returned {
                open.remove(&visit);
                let first = returned.entry(visit).or_insert(time);
                *first = time.min(*first);
                continue;
            }
            judged.calls += 1;
            match self.announced.get(&visit) {
                None => faults.lost.push(format!("{name}: visit {visit} was called, and no record announces it")),
                Some(due) if time < *due => {
                    faults.early.push(format!("{name}: visit {visit} was called at {time}, before {due}"));
                }
                Some(_) => {}
            }
            if let Some(closed) = self.closed.get(&visit).filter(|closed| closed.at < time) {
                let (at, node) = (closed.at, &closed.node);
                faults
                    .twice
                    .push(format!("{name}: visit {visit} of `{node}` was committed at {at} and called at {time}"));
            }
            let (key, processes) = made.entry(visit).or_insert((&line.key, Vec::new()));
            if *key != line.key {
                faults.twice.push(format!("{name}: visit {visit} was called with two idempotency keys"));
            }
            judged.repeated += u64::from(!processes.is_empty());
            for other in processes.iter().filter(|other| !was_dead(**other, time)) {
                faults
                    .twice
                    .push(format!("{name}: visit {visit} was called by {other}, which lived, and by {process}"));
            }
            processes.push(process);
            let is_cancelled = |visit: &u64| self.closed.get(visit).is_some_and(|closed| closed.is_cancelled);
            let beside = open.iter().filter(|(visit, other)| **other != process && !is_cancelled(visit));
            for (before, other) in beside.filter(|(_, other)| !was_dead(**other, time)) {
                faults.twice.push(format!(
                    "{name}: {process} called visit {visit} while {other}, which lived, was calling visit {before}"
                ));
            }
            open.insert(visit, process);
        }
        for (visit, closed) in self.closed.iter().filter(|(_, closed)| calls(&closed.node) && !closed.is_cancelled) {
            if returned.get(visit).is_none_or(|returned| *returned > closed.at) {
                let node = &closed.node;
                faults
                    .twice
                    .push(format!("{name}: visit {visit} of `{node}` is committed, and its call had not returned"));
            }
        }
        judged
    }

    /// Compares the signals and answers that waits took with those that were accepted. Returns how many were taken.
    fn judge_sent(&self, name: &str, told: &SentToRun, faults: &mut Faults) -> u64 {
        for (id, seen) in &self.received {
            let sent = told.signals.get(id).map(|(number, _)| json!({ "number": number }));
            if sent.as_ref().or_else(|| told.answers.get(id)) != Some(seen) {
                faults.twice.push(format!("{name}: `{id}` was taken as {seen}, and nobody sent it so"));
            }
        }
        let is_completed = self.end.as_ref().is_some_and(|end| end.status == Status::Completed);
        for wait in told.answers.keys().filter(|wait| is_completed && !self.received.contains_key(*wait)) {
            faults.lost.push(format!("{name}: the answer to {wait} was accepted, and not taken"));
        }
        // A signal that no wait took came when none was in time for it.
        let over = self.opened.iter().filter(|(number, (node, _))| node == "money" && self.taken.contains_key(number));
        for (number, (_, wait)) in over {
            let due = wait.due.unwrap_or(i64::MAX);
            let is_by_time = self.taken[number].due == due;
            let missed = |(id, (_, at)): &(&String, &(u64, i64))| !self.received.contains_key(*id) && *at < due;
            if let Some((id, _)) = told.signals.iter().find(|one| is_by_time && missed(one)) {
                faults.lost.push(format!("{name}: the signal {id} was there, and wait {number} did not take it"));
            }
        }
        let logged = self.end.as_ref().filter(|_| is_completed).and_then(|end| end.output["log"].as_array());
        if let Some(logged) = logged.filter(|_| !told.signals.is_empty() || !told.answers.is_empty()) {
            let mut logged: Vec<String> = logged.iter().map(ToString::to_string).collect();
            let seen = |value: &Value| value.get("number").or(value.get("decision")).map(ToString::to_string);
            let mut seen: Vec<String> = self.received.values().filter_map(seen).collect();
            logged.sort_unstable();
            seen.sort_unstable();
            if logged != seen {
                faults.lost.push(format!("{name}: it logged {logged:?}, and took {seen:?}"));
            }
        }
        self.received.len() as u64
    }

    /// Compares the end of the run with what is expected. Returns whether it ended as cancelled.
    fn judge_end(&self, name: &str, expected: &Expected, faults: &mut Faults) -> bool {
        let Some(end) = &self.end else {
            faults.lost.push(format!("{name}: it did not end"));
            return false;
        };
        let Expected { graph, rounds, is_cancelled, .. } = *expected;
        let is_well = match end.status {
            Status::Completed => graph.may_return(rounds, &end.output),
            Status::Cancelled => is_cancelled,
            _ => false,
        };
        if !is_well {
            let (status, error, output) = (end.status, &end.error, end.output.to_string());
            faults.lost.push(format!("{name}: it ended as {status:?} with {error:?} and {output:.200}"));
        }
        if end.status == Status::Completed {
            // Only a quorum gives up waits.
            let open = self.opened.iter().filter(|(number, _)| !self.committed.contains(number));
            for (number, (node, _)) in open.filter(|_| graph != WaitingGraph::Race) {
                faults.lost.push(format!("{name}: wait {number} at `{node}` was never taken"));
            }
            let last = self.announced.keys().copied().max().unwrap_or_default();
            if graph != WaitingGraph::Race && !self.committed.iter().copied().eq(1..=last) {
                faults.lost.push(format!("{name}: its visits have gaps"));
            }
        }
        end.status == Status::Cancelled
    }
}

/// Reads a time of a record or a tool, in milliseconds since the Unix epoch.
fn time(text: &str) -> Option<i64> {
    timestamp::with_offset(text).map(timestamp::unix_milliseconds)
}

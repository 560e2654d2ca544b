//! The parts of records that spans are made of, and the segments of a run as its journal has them.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use graph_engine::record::{Head, Parent, SignedRecord, Visit, VisitFailure};
use graph_model::name::RunId;
use graph_model::timestamp;
use opentelemetry::trace::SpanId;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::traces::run::Ids;

/// The start of a run, as its first record has it.
pub(super) struct JournalStart {
    pub(super) run: RunId,
    pub(super) graph: String,
    pub(super) version: String,
    pub(super) parent: Option<Parent>,
    /// The link of the record, which distinguishes the run from another one with its id.
    pub(super) link: [u8; 32],
    pub(super) at: SystemTime,
}

#[derive(Deserialize)]
struct StartFacts {
    graph: String,
    version: String,
    parent: Option<Parent>,
}

/// A step, without the values of the state.
#[derive(Deserialize)]
pub(super) struct StepFacts {
    pub(super) visits: Vec<VisitFacts>,
    #[serde(rename = "next", deserialize_with = "is_empty")]
    is_last: bool,
}

fn is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Vec::<IgnoredAny>::deserialize(deserializer).map(|all| all.is_empty())
}

impl StepFacts {
    /// Reads the first members of a step and no other, if they are spelled as the engine writes them.
    fn read(members: &str) -> Option<Self> {
        let members = members.strip_prefix(r#","visits":"#)?;
        let mut read = serde_json::Deserializer::from_str(members).into_iter();
        let visits = read.next()?.ok()?;
        let next = members.get(read.byte_offset()..)?.strip_prefix(r#","next":["#)?;
        Some(Self { visits, is_last: next.starts_with(']') })
    }
}

/// A visit, without the values of the state.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct VisitFacts {
    pub(super) step: u64,
    pub(super) node: String,
    pub(super) branch: Vec<u32>,
    pub(super) calls: u64,
    pub(super) run: Option<String>,
    pub(super) error: Option<String>,
    pub(super) category: Option<String>,
    pub(super) held: bool,
    pub(super) opened: Option<OpenedFacts>,
    pub(super) cancelled: bool,
    pub(super) timed_out: bool,
    pub(super) cached: bool,
    pub(super) ms: u64,
}

/// The opening of a wait.
#[derive(Debug, Deserialize)]
pub(super) struct OpenedFacts {
    pub(super) due: Option<i64>,
}

/// The end of a run, without its output.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndFacts {
    pub(super) status: String,
    pub(super) steps: u64,
    pub(super) error: Option<String>,
    pub(super) node: Option<String>,
    pub(super) failures: Vec<FailureFacts>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FailureFacts {
    pub(super) step: u64,
    pub(super) error: String,
}

#[derive(Deserialize)]
struct TakeFacts {
    taken: Vec<TakenFacts>,
}

#[derive(Deserialize)]
struct TakenFacts {
    step: u64,
}

/// A record, as far as spans are made of it.
pub(super) enum Facts {
    Step(StepFacts),
    /// The visits whose waits are over.
    Take(Vec<u64>),
    End(EndFacts),
    Resume,
    /// A change of the state by a person, between two segments.
    Edit,
    /// The beginning of a fork: whether visits are next, and the visits whose waits are open.
    Fork(bool, Vec<u64>),
    Other,
}

impl From<&VisitFailure> for FailureFacts {
    fn from(failure: &VisitFailure) -> Self {
        Self { step: failure.step, error: failure.error.clone() }
    }
}

impl VisitFacts {
    pub(super) fn of(visit: &Visit) -> Self {
        Self {
            step: visit.step,
            node: visit.node.clone(),
            branch: visit.branch.clone(),
            calls: visit.calls,
            run: visit.run.as_ref().map(|run| run.as_str().to_owned()),
            error: visit.error.clone(),
            category: visit.category.clone(),
            held: visit.held,
            opened: visit.opened.as_ref().map(|opened| OpenedFacts { due: opened.next_due() }),
            cancelled: visit.cancelled,
            timed_out: visit.timed_out,
            cached: visit.cached,
            ms: visit.ms,
        }
    }
}

impl JournalStart {
    /// Reads the first record of a journal. `None` if it is not the start of a run: the engine has verified it.
    pub(super) fn read(run: &RunId, records: &[SignedRecord]) -> Option<Self> {
        let first = records.first()?;
        let Head { at, kind, .. } = Head::cut(&first.body)?;
        let StartFacts { graph, version, parent } =
            if kind == "start" { serde_json::from_str(&first.body).ok()? } else { return None };
        let at = timestamp::parse(at)?;
        Some(Self { run: run.clone(), graph, version, parent, link: *first.link().as_bytes(), at })
    }
}

/// Reads a record. One that cannot be read has no spans.
pub(super) fn facts(record: &SignedRecord) -> Option<(SystemTime, Facts)> {
    let Head { at, kind, rest, .. } = Head::cut(&record.body)?;
    let at = timestamp::parse(at)?;
    let body = record.body.as_str();
    let facts = match kind {
        "step" => Facts::Step(StepFacts::read(rest).or_else(|| serde_json::from_str(body).ok())?),
        "take" => {
            let TakeFacts { taken } = serde_json::from_str(body).ok()?;
            Facts::Take(taken.into_iter().map(|taken| taken.step).collect())
        }
        "end" => Facts::End(serde_json::from_str(body).ok()?),
        "resume" => Facts::Resume,
        "edit" => Facts::Edit,
        "snapshot" if record.seq == 1 => {
            #[derive(Deserialize)]
            struct SnapshotFacts {
                next: Vec<IgnoredAny>,
                #[serde(default)]
                waits: Vec<TakenFacts>,
            }
            let SnapshotFacts { next, waits } = serde_json::from_str(body).ok()?;
            Facts::Fork(!next.is_empty(), waits.into_iter().map(|wait| wait.step).collect())
        }
        _ => Facts::Other,
    };
    Some((at, facts))
}

/// Whether a whole journal is that of a run that begins or is resumed now, and not that of one that has ended or waits.
pub(super) fn is_beginning(records: &[SignedRecord]) -> bool {
    let kind = records.last().and_then(|last| Head::cut(&last.body)).map(|head| head.kind);
    records.len() == 1 || kind == Some("resume")
}

/// A stretch of a run from its beginning, or from where it continues, to where it ends, waits or is cut off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// The record that begins it.
    pub(super) seq: u64,
    pub(super) began: SystemTime,
    /// The span of what came before it.
    pub(super) link: Option<SpanId>,
}

/// A run along its journal, up to where it continues now.
pub(super) struct PastSegments {
    /// The part of the run since it ended last, for the span of the run.
    pub(super) whole: Segment,
    /// The segment that begins now.
    pub(super) segment: Segment,
    /// The segment before, and its last record's time, if nobody has exported it: its process died or was shut down.
    pub(super) cut: Option<(Segment, SystemTime)>,
    /// The spans in which waits were opened that are not over, by the numbers of their visits.
    pub(super) opened: HashMap<u64, SpanId>,
    /// The open waits that a fork has from the run where it began.
    from_origin: HashSet<u64>,
    /// The same for waits that are over, and whose visits are made next.
    pub(super) waited: HashMap<u64, SpanId>,
    /// How many waits the run has had, and how many calls were made again, since it ended last.
    pub(super) waits: u64,
    pub(super) retries: u64,
    /// How often it ended and was resumed, and how often the failure of each visit was held.
    pub(super) ends: u64,
    pub(super) held: HashMap<u64, u64>,
}

impl PastSegments {
    pub(super) fn read(ids: &Ids, began: SystemTime, records: &[SignedRecord]) -> Self {
        let first = Segment { seq: 0, began, link: None };
        let mut past = Self {
            whole: first,
            segment: first,
            cut: None,
            opened: HashMap::new(),
            from_origin: HashSet::new(),
            waited: HashMap::new(),
            waits: 0,
            retries: 0,
            ends: 0,
            held: HashMap::new(),
        };
        let (mut is_moving, mut has_ended, mut last) = (true, false, began);
        // Whether the segment has a record besides the one that begins it.
        let mut has_records = false;
        for record in records.iter().skip(1) {
            let Some((at, facts)) = facts(record) else { continue };
            let is_resume = matches!(facts, Facts::Resume);
            match facts {
                Facts::Step(step) => {
                    for visit in &step.visits {
                        past.visit(ids, visit, record.seq);
                    }
                    // Without visits that are next, a run waits, or it ends with a failure that was held.
                    is_moving = !step.is_last || (past.opened.is_empty() && past.from_origin.is_empty());
                }
                Facts::Take(taken) => {
                    past.take(&taken);
                    is_moving = true;
                }
                Facts::End(_) => has_ended = true,
                Facts::Fork(moves, waits) => {
                    past.from_origin.extend(waits);
                    is_moving = moves || past.from_origin.is_empty();
                }
                Facts::Resume => {
                    let before = past.segment;
                    // One that ended or waits was exported by its own process, unless it has no records.
                    past.cut = (!has_records || (!has_ended && is_moving)).then_some((before, last));
                    past.segment = Segment { seq: record.seq, began: at, link: Some(ids.segment(before.seq)) };
                    if std::mem::take(&mut has_ended) {
                        past.whole = Segment { seq: record.seq, began: at, link: Some(ids.run(past.whole.seq)) };
                        (past.waits, past.retries, past.ends) = (0, 0, past.ends + 1);
                        is_moving = true;
                    }
                }
                Facts::Edit => continue,
                Facts::Other => {}
            }
            has_records = !is_resume;
            last = last.max(at);
        }
        past
    }

    fn visit(&mut self, ids: &Ids, visit: &VisitFacts, seq: u64) {
        self.retries += visit.calls.saturating_sub(1);
        if visit.held {
            *self.held.entry(visit.step).or_default() += 1;
        }
        if visit.opened.is_some() {
            self.waits += 1;
            self.opened.insert(visit.step, ids.opened(visit.step, seq));
        } else {
            self.waited.remove(&visit.step);
        }
    }

    fn take(&mut self, taken: &[u64]) {
        for step in taken {
            self.from_origin.remove(step);
            if let Some(span) = self.opened.remove(step) {
                self.waited.insert(*step, span);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_members_of_a_step_are_those_of_the_whole() {
        let confusing = r#"{"step":4,"node":"a]\",\"next\":[]","ms":3,"update":{"next":[[],"]"]}}"#;
        for (visits, next) in [("", ""), (confusing, "{}"), (&format!("{confusing},{{}}"), ""), ("{}", r#"[],"]""#)] {
            let members = format!(r#","visits":[{visits}],"next":[{next}],"joins":[{{}}]}}"#);
            let first = StepFacts::read(&members).unwrap();
            let whole: StepFacts = serde_json::from_str(&format!(r#"{{"v":3{members}"#)).unwrap();
            assert_eq!(format!("{:?}", first.visits), format!("{:?}", whole.visits));
            assert_eq!((first.is_last, whole.is_last), (next.is_empty(), next.is_empty()));
        }
        for other in [r#","next":[],"visits":[]}"#, r#","visits":[{"step":"four"}],"next":[]}"#, r#","visits":["#, ""] {
            assert!(StepFacts::read(other).is_none(), "{other}");
        }
    }
}

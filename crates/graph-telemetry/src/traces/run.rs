//! The spans of a run, as its events come.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use graph_engine::Status;
use graph_engine::observer::CallAttempt;
use graph_engine::record::{End, SignedRecord, Visit};
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::program::Kind;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status as SpanStatus, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::traces::segments::{EndFacts, Facts, JournalStart, PastSegments, Segment, StepFacts, VisitFacts, facts};

/// The maximum number of attempts at calls of a visit that have spans. A foreach over a long list would need as much memory as its items.
const MOST_ATTEMPTS: usize = 1024;

static SCOPE: LazyLock<InstrumentationScope> =
    LazyLock::new(|| InstrumentationScope::builder("graph-telemetry").with_version(env!("CARGO_PKG_VERSION")).build());

/// The ids of a run's spans, which depend on its journal and on nothing else.
#[derive(Debug, Clone)]
pub(super) struct Ids {
    trace: TraceId,
    /// The run, for its spans.
    key: Digest,
}

impl Ids {
    /// The ids of a run. `distinct` distinguishes it from others with the same id; `trace` is that of the run around it, if it is nested.
    fn new(run: &str, distinct: &[u8], trace: Option<TraceId>) -> Self {
        let own = Digest::of_parts(&[b"trace of run\0", run.as_bytes(), b"\0", distinct]);
        let trace = trace.unwrap_or_else(|| {
            let bytes = own.as_bytes().first_chunk::<16>().copied().unwrap_or_default();
            // An id of zeros is not valid.
            TraceId::from_bytes(if bytes == [0; 16] { [1; 16] } else { bytes })
        });
        Self { trace, key: Digest::of_parts(&[b"spans of run\0", own.as_bytes(), &trace.to_bytes()]) }
    }

    fn span(&self, kind: &str, numbers: [u64; 2]) -> SpanId {
        let [first, second] = numbers.map(u64::to_be_bytes);
        let digest = Digest::of_parts(&[self.key.as_bytes(), kind.as_bytes(), &first, &second]);
        let bytes = digest.as_bytes().first_chunk::<8>().copied().unwrap_or_default();
        SpanId::from_bytes(if bytes == [0; 8] { [1; 8] } else { bytes })
    }

    /// The span of the run since the record with which it began, or began again after its end.
    pub(super) fn run(&self, seq: u64) -> SpanId {
        self.span("run", [seq, 0])
    }

    /// The span of the segment that begins with a record.
    pub(super) fn segment(&self, seq: u64) -> SpanId {
        self.span("segment", [seq, 0])
    }

    /// The span of a visit that began to wait, as a record says.
    pub(super) fn opened(&self, visit: u64, seq: u64) -> SpanId {
        self.span("opened", [visit, seq])
    }

    /// The span of a visit. It is known before the visit is recorded, since nested runs name it, and any process that makes the visit
    /// gives it the same id. A visit that has failed and is made again gets another one.
    fn visit(&self, visit: u64, made_before: u64) -> SpanId {
        self.span("visit", [visit, made_before])
    }

    /// The span with a place among those inside another one.
    fn inside(&self, kind: &str, outer: SpanId, place: usize) -> SpanId {
        self.span(kind, [u64::from_be_bytes(outer.to_bytes()), place as u64])
    }
}

/// The place in a trace of the visit that called a nested run.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanOrigin {
    trace: TraceId,
    visit: SpanId,
}

/// Spans that can be exported.
#[derive(Debug, Default)]
pub(super) struct FinishedSpans {
    pub(super) spans: Vec<SpanData>,
    /// How many spans were not made.
    pub(super) dropped: u64,
    /// Whether the queue has no place, so that spans are counted and not made.
    is_full: bool,
}

impl FinishedSpans {
    /// No spans yet. If the queue is full, those that come are only counted.
    pub(super) fn new(is_full: bool) -> Self {
        Self { is_full, ..Self::default() }
    }

    /// Returns the id that `make` computes, if spans are made.
    fn id(&self, make: impl FnOnce() -> SpanId) -> SpanId {
        if self.is_full { SpanId::INVALID } else { make() }
    }

    /// Adds a span, or counts it.
    fn add(&mut self, span: impl FnOnce() -> SpanData) {
        match self.is_full {
            true => self.dropped += 1,
            false => self.spans.push(span()),
        }
    }
}

/// A visit that was begun and is not committed.
#[derive(Debug)]
struct StartedVisit {
    node: String,
    kind: &'static str,
    began: SystemTime,
    /// When it failed, if it did.
    failed: Option<SystemTime>,
    attempts: Vec<Attempt>,
    dropped: u64,
}

/// An attempt at a call.
#[derive(Debug)]
struct Attempt {
    tool: StringValue,
    item: Option<u64>,
    attempt: u64,
    began: SystemTime,
    /// When it ended, and why it failed.
    ended: Option<(SystemTime, Option<String>)>,
}

/// A run in progress.
#[derive(Debug)]
pub(super) struct RunTrace {
    ids: Ids,
    run: StringValue,
    graph: StringValue,
    version: Option<StringValue>,
    parent: SpanId,
    /// Whether it has a journal.
    is_kept: bool,
    /// Whether it has started, and is not only about to.
    has_begun: bool,
    /// Whether its own span was exported.
    is_over: bool,
    whole: Segment,
    segment: Segment,
    /// Whether the segment has a record besides the one that begins it.
    has_records: bool,
    /// When the last step ended.
    last: SystemTime,
    visits: HashMap<u64, StartedVisit>,
    /// The spans of open waits, and of those that are over, by the numbers of their visits.
    opened: HashMap<u64, SpanId>,
    waited: HashMap<u64, SpanId>,
    waits: u64,
    retries: u64,
    /// How often it ended and was resumed.
    ends: u64,
    /// How often the failure of each visit was held, so that the visit is made again.
    held: HashMap<u64, u64>,
    /// How many steps a run without a journal has taken.
    taken: u64,
}

impl RunTrace {
    /// A run that begins or is resumed, with its journal. Also returns the segment that the process before left behind.
    pub(super) fn of_journal(
        first: JournalStart,
        origin: Option<SpanOrigin>,
        records: &[SignedRecord],
        mut finished: FinishedSpans,
    ) -> (Self, FinishedSpans) {
        let JournalStart { run, graph, version, link, at, .. } = first;
        let ids = Ids::new(run.as_str(), &link, origin.map(|origin| origin.trace));
        let past = PastSegments::read(&ids, at, records);
        let trace = Self {
            run: run.as_str().to_owned().into(),
            graph: graph.into(),
            version: Some(version.into()),
            parent: origin.map_or(SpanId::INVALID, |origin| origin.visit),
            is_kept: true,
            has_begun: false,
            is_over: false,
            whole: past.whole,
            segment: past.segment,
            has_records: false,
            last: past.segment.began,
            visits: HashMap::new(),
            opened: past.opened,
            waited: past.waited,
            waits: past.waits,
            retries: past.retries,
            ends: past.ends,
            held: past.held,
            taken: 0,
            ids,
        };
        if let Some((cut, end)) = past.cut {
            trace.finish_segment(&mut finished, cut, end, "cut");
        }
        (trace, finished)
    }

    /// A run without a journal.
    pub(super) fn without_journal(run: &RunId, graph: &str, origin: Option<SpanOrigin>, now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let first = Segment { seq: 0, began: now, link: None };
        Self {
            ids: Ids::new(run.as_str(), &since.as_nanos().to_be_bytes(), origin.map(|origin| origin.trace)),
            run: run.as_str().to_owned().into(),
            graph: graph.to_owned().into(),
            version: None,
            parent: origin.map_or(SpanId::INVALID, |origin| origin.visit),
            is_kept: false,
            has_begun: true,
            is_over: false,
            whole: first,
            segment: first,
            has_records: false,
            last: now,
            visits: HashMap::new(),
            opened: HashMap::new(),
            waited: HashMap::new(),
            waits: 0,
            retries: 0,
            ends: 0,
            held: HashMap::new(),
            taken: 0,
        }
    }

    /// Notes that the run starts now. Returns false if it is not about to: it is another run with its id.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// Returns the place of a run that a visit calls.
    pub(super) fn origin_of(&self, visit: u64) -> SpanOrigin {
        SpanOrigin { trace: self.ids.trace, visit: self.visit_id(visit) }
    }

    /// Returns the id of a visit that is made now.
    fn visit_id(&self, visit: u64) -> SpanId {
        // Ends and held failures are rare, so neither comes near 32 bits.
        let held = self.held.get(&visit).copied().unwrap_or_default();
        self.ids.visit(visit, (self.ends << 32) | held)
    }

    pub(super) fn visit_started(&mut self, visit: u64, node: &str, kind: Kind, now: SystemTime) {
        let (node, kind) = (node.to_owned(), kind.name());
        let started = StartedVisit { node, kind, began: now, failed: None, attempts: Vec::new(), dropped: 0 };
        self.visits.insert(visit, started);
    }

    pub(super) fn visit_failed(&mut self, visit: u64, now: SystemTime) {
        if let Some(visit) = self.visits.get_mut(&visit) {
            visit.failed = Some(now);
        }
    }

    pub(super) fn call_started(&mut self, call: &CallAttempt<'_>, now: SystemTime) {
        let Some(visit) = self.visits.get_mut(&call.step) else { return };
        if visit.attempts.len() == MOST_ATTEMPTS {
            visit.dropped += 1;
            return;
        }
        let last = visit.attempts.last().filter(|last| last.tool.as_str() == call.tool);
        let tool = last.map_or_else(|| call.tool.to_owned().into(), |last| last.tool.clone());
        visit.attempts.push(Attempt { tool, item: call.item, attempt: call.attempt, began: now, ended: None });
    }

    pub(super) fn call_ended(&mut self, call: &CallAttempt<'_>, error: Option<&str>, now: SystemTime) {
        let Some(visit) = self.visits.get_mut(&call.step) else { return };
        let is_it = |one: &&mut Attempt| one.item == call.item && one.attempt == call.attempt && one.ended.is_none();
        if let Some(attempt) = visit.attempts.iter_mut().rev().find(is_it) {
            attempt.ended = Some((now, error.map(str::to_owned)));
        }
    }

    /// Returns the spans of durable records.
    pub(super) fn recorded(
        &mut self,
        records: &[SignedRecord],
        now: SystemTime,
        mut finished: FinishedSpans,
    ) -> FinishedSpans {
        self.has_records |= !records.is_empty();
        for record in records {
            let Some((at, facts)) = facts(record) else { continue };
            match facts {
                Facts::Step(StepFacts { visits, .. }) => {
                    self.finish_step(&mut finished, (record.seq, true), &visits, at);
                }
                Facts::Take(taken) => {
                    for visit in taken {
                        if let Some(span) = self.opened.remove(&visit) {
                            self.waited.insert(visit, span);
                        }
                    }
                }
                Facts::End(end) => self.finish_run(&mut finished, &end, now.max(at)),
                Facts::Resume | Facts::Edit | Facts::Fork(..) | Facts::Other => {}
            }
        }
        finished
    }

    /// Returns the spans of a step of a run without a journal.
    pub(super) fn taken(&mut self, visits: &[Visit], now: SystemTime, mut finished: FinishedSpans) -> FinishedSpans {
        if !self.is_kept {
            self.taken += 1;
            let visits: Vec<VisitFacts> = visits.iter().map(VisitFacts::of).collect();
            self.finish_step(&mut finished, (self.taken, false), &visits, now);
        }
        finished
    }

    /// Returns the last spans of a run that leaves memory.
    pub(super) fn ended(
        mut self,
        status: Status,
        steps: u64,
        error: Option<&str>,
        end: Option<&End>,
        now: SystemTime,
        mut finished: FinishedSpans,
    ) -> FinishedSpans {
        match status {
            // Where the segment has no records, its journal cannot say whether it was exported, so the process that continues the run
            // does it.
            Status::Waiting if self.has_records => {
                self.finish_segment(&mut finished, self.segment, now.max(self.last), status.name());
            }
            // The process that continues it exports the segment: its journal says that nobody has.
            Status::Waiting | Status::Running => {}
            _ if self.is_kept || self.is_over => {}
            _ => {
                let failures = end.map(|end| end.failures.as_slice()).unwrap_or_default();
                let end = EndFacts {
                    status: status.name().to_owned(),
                    steps,
                    error: error.map(str::to_owned),
                    node: end.and_then(|end| end.node.clone()),
                    failures: failures.iter().map(Into::into).collect(),
                };
                self.finish_run(&mut finished, &end, now);
            }
        }
        finished
    }

    /// Makes the spans of a step: its visits with their calls, and its own. A step is named by its record, or without a journal by its
    /// place in the run.
    fn finish_step(&mut self, finished: &mut FinishedSpans, step: (u64, bool), visits: &[VisitFacts], at: SystemTime) {
        let (number, is_record) = step;
        let id = finished.id(|| self.ids.span("step", [number, 0]));
        let (mut began, mut end) = (None::<SystemTime>, at.max(self.last));
        for visit in visits {
            let (from, to) = self.finish_visit(finished, id, visit, (number, at));
            began = Some(began.map_or(from, |began| began.min(from)));
            end = end.max(to);
        }
        let began = began.unwrap_or(self.last);
        finished.add(|| {
            let mut attributes = vec![integer("graph.step.visits", visits.len() as u64)];
            if is_record {
                attributes.push(integer("graph.record", number));
            }
            let parent = self.ids.segment(self.segment.seq);
            self.span(id, parent, "step".into(), (began, end), attributes)
        });
        self.last = end;
    }

    /// Makes the spans of a visit and its calls, and returns when it began and ended.
    fn finish_visit(
        &mut self,
        finished: &mut FinishedSpans,
        parent: SpanId,
        visit: &VisitFacts,
        (record, at): (u64, SystemTime),
    ) -> (SystemTime, SystemTime) {
        let started = self.visits.remove(&visit.step);
        let took = Duration::from_millis(visit.ms);
        let began = started.as_ref().map_or_else(|| at.checked_sub(took).unwrap_or(at), |started| started.began);
        let calls = started.as_ref().map(|started| started.attempts.as_slice()).unwrap_or_default();
        let last = calls.iter().filter_map(|attempt| Some(attempt.ended.as_ref()?.0)).max();
        let end = last.map_or(began + took, |last| last.max(began + took));
        self.retries += visit.calls.saturating_sub(1);
        let opened = visit.opened.as_ref().map(|_| self.ids.opened(visit.step, record));
        let waited = match opened {
            Some(id) => {
                self.opened.insert(visit.step, id);
                self.waits += 1;
                None
            }
            None => self.waited.remove(&visit.step),
        };
        let id = opened.unwrap_or_else(|| finished.id(|| self.visit_id(visit.step)));
        finished.add(|| {
            let kind = started.as_ref().map(|started| started.kind);
            let attributes = visit_attributes(visit, kind);
            let mut span = self.span(id, parent, visit.node.clone().into(), (began, end), attributes);
            span.links = self.links(waited);
            if let Some(error) = &visit.error {
                fail(&mut span, error, visit.category.as_deref());
            }
            span
        });
        if let Some(started) = started {
            self.finish_calls(finished, id, started, end);
        }
        if visit.held {
            *self.held.entry(visit.step).or_default() += 1;
        }
        (began, end)
    }

    /// Makes the spans of the calls of a visit, and of their attempts.
    fn finish_calls(&self, finished: &mut FinishedSpans, visit: SpanId, started: StartedVisit, end: SystemTime) {
        finished.dropped += started.dropped;
        if finished.is_full {
            let items: HashSet<Option<u64>> = started.attempts.iter().map(|attempt| attempt.item).collect();
            finished.dropped += (items.len() + started.attempts.len()) as u64;
            return;
        }
        let mut calls: Vec<Vec<Attempt>> = Vec::new();
        let mut places: HashMap<Option<u64>, usize> = HashMap::new();
        for attempt in started.attempts {
            let place = *places.entry(attempt.item).or_insert(calls.len());
            match calls.get_mut(place) {
                Some(call) => call.push(attempt),
                None => calls.push(vec![attempt]),
            }
        }
        for (place, attempts) in calls.into_iter().enumerate() {
            let id = self.ids.inside("call", visit, place);
            let Some(first) = attempts.first() else { continue };
            let (tool, item, began) = (first.tool.clone(), first.item, first.began);
            let (mut last, mut failed, count) = (began, None, attempts.len() as u64);
            for (place, attempt) in attempts.into_iter().enumerate() {
                let Attempt { attempt: number, began, ended, .. } = attempt;
                let (to, error) = ended.unwrap_or((end, None));
                let attributes = vec![integer("graph.attempt", number)];
                let own = self.ids.inside("attempt", id, place);
                let mut span = self.span(own, id, "attempt".into(), (began, to), attributes);
                if let Some(error) = &error {
                    fail(&mut span, error, None);
                }
                finished.spans.push(span);
                (last, failed) = (last.max(to), error);
            }
            let mut attributes = vec![string("graph.tool", tool.clone()), integer("graph.attempts", count)];
            attributes.extend(item.map(|item| integer("graph.item", item)));
            let name = if tool.as_str().is_empty() { "call".to_owned() } else { tool.as_str().to_owned() };
            let mut span = self.span(id, visit, name.into(), (began, last), attributes);
            if let Some(error) = &failed {
                fail(&mut span, error, None);
            }
            finished.spans.push(span);
        }
    }

    /// Makes the last spans of a run that ended: the visits that ended it, its segment and its own.
    fn finish_run(&mut self, finished: &mut FinishedSpans, end: &EndFacts, at: SystemTime) {
        let at = at.max(self.last);
        let mut visits: Vec<(u64, StartedVisit)> = self.visits.drain().collect();
        visits.sort_by_key(|(number, _)| *number);
        for (number, started) in visits {
            self.finish_uncommitted(finished, number, started, end, at);
        }
        self.finish_segment(finished, self.segment, at, &end.status);
        finished.add(|| self.own_span(end, at));
        self.is_over = true;
    }

    /// Makes the span of the run.
    fn own_span(&self, end: &EndFacts, at: SystemTime) -> SpanData {
        let mut attributes = vec![
            string("graph.run.status", end.status.clone()),
            integer("graph.steps", end.steps),
            integer("graph.retries", self.retries),
            integer("graph.waits", self.waits),
        ];
        attributes.extend(self.version.clone().map(|version| KeyValue::new("graph.version", version)));
        let name = self.graph.as_str().to_owned();
        let times = (self.whole.began, at);
        let mut span = self.span(self.ids.run(self.whole.seq), self.parent, name.into(), times, attributes);
        span.links = self.links(self.whole.link);
        if end.status == Status::Error.name() {
            fail(&mut span, end.error.as_deref().unwrap_or("it failed"), None);
        }
        span
    }

    /// Makes the spans of a visit that was begun and has no record, because the run ended: it failed, or another one did. It is made again
    /// if the run is resumed.
    fn finish_uncommitted(
        &mut self,
        finished: &mut FinishedSpans,
        number: u64,
        started: StartedVisit,
        end: &EndFacts,
        at: SystemTime,
    ) {
        let error = match end.failures.as_slice() {
            [] => end.error.as_ref().filter(|_| started.failed.is_some() && end.node.as_ref() == Some(&started.node)),
            failures => failures.iter().find(|failure| failure.step == number).map(|failure| &failure.error),
        };
        let (id, parent) = (self.visit_id(number), self.ids.segment(self.segment.seq));
        let (waited, to) = (self.waited.remove(&number), started.failed.unwrap_or(at));
        finished.add(|| {
            let attributes = vec![
                string("graph.node", started.node.clone()),
                integer("graph.visit", number),
                string("graph.node.kind", started.kind),
                KeyValue::new("graph.uncommitted", true),
            ];
            let mut span = self.span(id, parent, started.node.clone().into(), (started.began, to), attributes);
            if let Some(error) = error {
                fail(&mut span, error, None);
            }
            span.links = self.links(waited);
            span
        });
        self.finish_calls(finished, id, started, to);
    }

    fn finish_segment(&self, finished: &mut FinishedSpans, segment: Segment, at: SystemTime, end: &str) {
        finished.add(|| {
            let attributes = vec![integer("graph.record", segment.seq), string("graph.segment.end", end.to_owned())];
            let parent = self.ids.run(self.whole.seq);
            let times = (segment.began, at.max(segment.began));
            let mut span = self.span(self.ids.segment(segment.seq), parent, "segment".into(), times, attributes);
            span.links = self.links(segment.link);
            span
        });
    }

    fn span(
        &self,
        id: SpanId,
        parent: SpanId,
        name: std::borrow::Cow<'static, str>,
        (began, end): (SystemTime, SystemTime),
        mut attributes: Vec<KeyValue>,
    ) -> SpanData {
        attributes.push(KeyValue::new("graph.run.id", self.run.clone()));
        attributes.push(KeyValue::new("graph.id", self.graph.clone()));
        SpanData {
            span_context: self.context(id),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name,
            start_time: began,
            end_time: end.max(began),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: SpanStatus::Unset,
            instrumentation_scope: SCOPE.clone(),
        }
    }

    fn context(&self, id: SpanId) -> SpanContext {
        SpanContext::new(self.ids.trace, id, TraceFlags::SAMPLED, false, TraceState::NONE)
    }

    fn links(&self, to: Option<SpanId>) -> SpanLinks {
        let mut links = SpanLinks::default();
        links.links.extend(to.map(|id| Link::new(self.context(id), Vec::new(), 0)));
        links
    }
}

fn visit_attributes(visit: &VisitFacts, kind: Option<&'static str>) -> Vec<KeyValue> {
    let mut attributes = vec![string("graph.node", visit.node.clone()), integer("graph.visit", visit.step)];
    attributes.extend(kind.map(|kind| string("graph.node.kind", kind)));
    if !visit.branch.is_empty() {
        let branch: Vec<String> = visit.branch.iter().map(u32::to_string).collect();
        attributes.push(string("graph.branch", branch.join("/")));
    }
    if visit.calls > 1 {
        attributes.push(integer("graph.retries", visit.calls - 1));
    }
    attributes.extend(visit.run.clone().map(|run| string("graph.nested_run", run)));
    let flags = [
        ("graph.cached", visit.cached),
        ("graph.cancelled", visit.cancelled),
        ("graph.held", visit.held),
        ("graph.timed_out", visit.timed_out),
        ("graph.waits", visit.opened.is_some()),
    ];
    attributes.extend(flags.into_iter().filter(|(_, is_so)| *is_so).map(|(name, _)| KeyValue::new(name, true)));
    let due = visit.opened.as_ref().and_then(|opened| opened.due);
    attributes.extend(due.map(|due| KeyValue::new("graph.wait.due_unix_ms", due)));
    attributes
}

/// Says that a span failed. Events and records have the texts of failures without secrets.
fn fail(span: &mut SpanData, error: &str, category: Option<&str>) {
    span.status = SpanStatus::error(error.to_owned());
    span.attributes.push(string("error.type", category.unwrap_or("_OTHER").to_owned()));
}

fn string(name: &'static str, value: impl Into<StringValue>) -> KeyValue {
    KeyValue::new(name, Value::String(value.into()))
}

fn integer(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
}

//! The judge of traces: it reads the journals of a tree of runs, and says which spans there must be. It knows nothing of the way in which
//! spans are made.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::record::{Entry, Record};
use graph_runtime::{MemoryStore, Store};
use opentelemetry::trace::{SpanId, Status};
use opentelemetry::{Key, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Collects all spans.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collected(pub(crate) Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collected {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

pub(crate) fn attribute<'s>(span: &'s SpanData, name: &'static str) -> Option<&'s Value> {
    span.attributes.iter().find(|one| one.key == Key::from_static_str(name)).map(|one| &one.value)
}

pub(crate) fn text(span: &SpanData, name: &'static str) -> Option<String> {
    attribute(span, name).map(|value| value.as_str().into_owned())
}

pub(crate) fn number(span: &SpanData, name: &'static str) -> Option<u64> {
    match attribute(span, name)? {
        Value::I64(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// The kind of a span, by its attributes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Run,
    Segment,
    Step,
    Visit,
    Call,
    Attempt,
}

pub(crate) fn level(span: &SpanData) -> Level {
    let has = |name| attribute(span, name).is_some();
    match () {
        () if has("graph.run.status") => Level::Run,
        () if has("graph.segment.end") => Level::Segment,
        () if has("graph.step.visits") => Level::Step,
        () if has("graph.visit") => Level::Visit,
        () if has("graph.attempts") => Level::Call,
        () => {
            assert!(has("graph.attempt"), "what is {span:?}?");
            Level::Attempt
        }
    }
}

/// The facts in a journal.
#[derive(Debug, Default)]
struct Journal {
    began: Option<SystemTime>,
    parent: Option<(String, u64)>,
    /// The step records, each with its visits: number, node, whether it failed, whether it waits.
    steps: BTreeMap<u64, Vec<(u64, String, bool, bool)>>,
    /// How many segments there were: beginnings and resumes.
    segments: usize,
    ends: usize,
    /// The visits whose waits were over.
    taken: usize,
}

async fn journals(store: &MemoryStore) -> HashMap<String, Journal> {
    let mut all = HashMap::new();
    for run in store.list().await.unwrap() {
        let mut journal = Journal::default();
        for signed in store.load(&run.run).await.unwrap() {
            let record: Record = serde_json::from_str(&signed.body).unwrap();
            match record.entry {
                Entry::Start(start) => {
                    journal.parent = start.parent.map(|parent| (parent.run.to_string(), parent.step));
                    journal.began = Some(graph_model::timestamp::parse(&record.at).unwrap());
                    journal.segments += 1;
                }
                Entry::Resume(_) => journal.segments += 1,
                Entry::Step(step) => {
                    let visit = |visit: graph_runtime::record::Visit| {
                        (visit.step, visit.node, visit.error.is_some(), visit.opened.is_some())
                    };
                    journal.steps.insert(record.seq, step.visits.into_iter().map(visit).collect());
                }
                Entry::Take(take) => journal.taken += take.taken.len(),
                Entry::End(_) => journal.ends += 1,
                _ => {}
            }
        }
        all.insert(run.run.to_string(), journal);
    }
    all
}

/// The longest time by which a span may seem to leave the one around it: records have milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// How many spans a test found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) links: usize,
    pub(crate) nested: usize,
    pub(crate) uncommitted: usize,
    pub(crate) cut: usize,
    pub(crate) retried: usize,
    /// Steps without a span, and parents without one.
    pub(crate) lost: usize,
}

/// Judges the spans of all processes that had a part in the runs of a store. `lost` is how often a process died right after a write, before
/// its observers knew: the spans of that write are lost.
pub(crate) async fn judge(store: &MemoryStore, spans: &[SpanData], lost: usize, root: &str) -> Found {
    let journals = journals(store).await;
    let mut found = Found::default();
    let mut by_id: HashMap<SpanId, &SpanData> = HashMap::new();
    for span in spans {
        let id = span.span_context.span_id();
        assert!(span.span_context.is_valid(), "{span:?}");
        let other = by_id.insert(id, span);
        assert!(other.is_none(), "exported twice: {span:#?} and {other:#?}");
    }
    let traces: BTreeSet<String> = spans.iter().map(|span| span.span_context.trace_id().to_string()).collect();
    assert_eq!(traces.len(), 1, "a tree of runs has one trace");
    let mut orphans = BTreeSet::new();
    for span in spans {
        judge_span(span, &by_id, &journals, root, &mut orphans, &mut found);
    }
    for (run, journal) in &journals {
        let own = |kind| {
            spans.iter().filter(move |span| level(span) == kind && text(span, "graph.run.id").as_ref() == Some(run))
        };
        // Each end has the span of the run until then.
        assert!(own(Level::Run).count() <= journal.ends, "{run}");
        found.lost += journal.ends - own(Level::Run).count();
        assert!(own(Level::Segment).count() <= journal.segments, "{run}");
        let steps: BTreeMap<u64, &SpanData> =
            own(Level::Step).map(|span| (number(span, "graph.record").unwrap(), span)).collect();
        for (seq, visits) in &journal.steps {
            let Some(step) = steps.get(seq) else {
                found.lost += 1;
                continue;
            };
            let id = step.span_context.span_id();
            let made: BTreeSet<_> = own(Level::Visit)
                .filter(|visit| visit.parent_span_id == id)
                .map(|visit| {
                    let failed = matches!(visit.status, Status::Error { .. });
                    let waits = attribute(visit, "graph.waits").is_some();
                    (number(visit, "graph.visit").unwrap(), text(visit, "graph.node").unwrap(), failed, waits)
                })
                .collect();
            assert_eq!(made, visits.iter().cloned().collect(), "the visits of record {seq} of {run}");
        }
        assert!(steps.keys().all(|seq| journal.steps.contains_key(seq)), "a step that is not durable has a span");
        // A segment that continues another one has a link, and so has a visit that waited.
        let linked = own(Level::Segment).filter(|span| span.links.len() == 1).count();
        assert_eq!(
            linked,
            own(Level::Segment).count()
                - own(Level::Segment).filter(|span| number(span, "graph.record") == Some(0)).count()
        );
        let waited = own(Level::Visit).filter(|span| span.links.len() == 1).count();
        assert!(waited <= journal.taken, "{run}");
        found.links += linked + waited;
        if lost == 0 {
            assert!(own(Level::Segment).count() == journal.segments, "{run}: segments");
        }
    }
    found.lost += orphans.len();
    // The spans of a write are those of a step and up to three visits, or the end of the run, and that of the segment: others name
    // them as their parents, or have links to them.
    assert!(found.lost <= 8 * lost, "{found:?}: {lost} writes were lost; {orphans:?}");
    found
}

fn judge_span(
    span: &SpanData,
    by_id: &HashMap<SpanId, &SpanData>,
    journals: &HashMap<String, Journal>,
    root: &str,
    orphans: &mut BTreeSet<String>,
    found: &mut Found,
) {
    let run = text(span, "graph.run.id").unwrap();
    let journal = &journals[&run];
    assert!(span.start_time <= span.end_time);
    for link in &span.links.links {
        let to = link.span_context.span_id();
        match by_id.get(&to) {
            Some(to) => assert!(level(to) == level(span) && to.start_time <= span.start_time, "{to:#?} {span:#?}"),
            None => drop(orphans.insert(format!("{to} linked by {:?} of {run}", level(span)))),
        }
    }
    let parent = by_id.get(&span.parent_span_id);
    if span.parent_span_id != SpanId::INVALID && parent.is_none() {
        orphans.insert(format!("{} of {:?} {} of {run}", span.parent_span_id, level(span), span.name));
    }
    let within = |levels: &[Level]| {
        let Some(parent) = parent else { return };
        assert!(levels.contains(&level(parent)), "{parent:#?} {span:#?}");
        assert_eq!(text(parent, "graph.run.id").as_ref(), Some(&run));
        assert!(
            parent.start_time <= span.start_time + ROUNDING && span.end_time <= parent.end_time + ROUNDING,
            "{parent:#?} {span:#?}"
        );
    };
    match level(span) {
        Level::Run => {
            assert_eq!(text(span, "graph.id").unwrap(), span.name);
            // The first span of the run begins with its journal.
            if span.links.is_empty() {
                assert_eq!(Some(span.start_time), journal.began);
            }
            match &journal.parent {
                None => assert!(run == root && span.parent_span_id == SpanId::INVALID),
                Some((outer, step)) => {
                    found.nested += 1;
                    assert!(span.parent_span_id != SpanId::INVALID, "{span:#?}");
                    if let Some(parent) = parent {
                        assert_eq!(level(parent), Level::Visit);
                        assert_eq!(
                            (text(parent, "graph.run.id").as_ref(), number(parent, "graph.visit")),
                            (Some(outer), Some(*step))
                        );
                    }
                }
            }
        }
        Level::Segment => {
            found.cut += usize::from(text(span, "graph.segment.end").as_deref() == Some("cut"));
            within(&[Level::Run]);
        }
        Level::Step => within(&[Level::Segment]),
        Level::Visit if attribute(span, "graph.uncommitted").is_some() => {
            found.uncommitted += 1;
            within(&[Level::Segment]);
        }
        Level::Visit => within(&[Level::Step]),
        Level::Call => within(&[Level::Visit]),
        Level::Attempt => {
            found.retried += usize::from(number(span, "graph.attempt").unwrap() > 1);
            within(&[Level::Call]);
        }
    }
}

//! Traces without a store, secrets in failures, and exporters that never return, fail or panic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use graph_runtime::__private::{Executor, Program, Tool};
use graph_runtime::{ActionError, Clock, EncryptionKey, Map, MemoryStore, RunId, Runtime, SecretKey, TokioClock};
use graph_telemetry::{Metrics, Traces};
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use crate::graphs::random_graph;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::judge::{Collected, Level, attribute, level, number, text};

/// Calls a tool as often as the input says, and then ends.
fn counting() -> Interpreted {
    let work = r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"work","when":{"path":"result","op":"eq","value":"again"}},{"to":"done"}]}"#;
    let program = Program {
        settings: r#"{"max_steps":100000}"#,
        nodes: &[("work", work), ("done", r#"{"line":2,"does":"return"}"#)],
        ..PROGRAM
    };
    Interpreted::new(&program, |call, _| Ok(if call.step() < 2000 { "again" } else { "on" }.into()))
}

/// How an exporter behaves.
#[derive(Debug, Clone, Copy)]
enum Broken {
    NeverReturns,
    Fails,
    Panics,
}

impl SpanExporter for Broken {
    #[expect(clippy::panic, reason = "it is what is tested")]
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        match self {
            Self::NeverReturns => std::future::pending().await,
            Self::Fails => Err(OTelSdkError::InternalFailure("no".to_owned())),
            Self::Panics => panic!("the exporter panics"),
        }
    }
}

#[tokio::test]
async fn a_broken_exporter_costs_its_spans_and_nothing_else() {
    for broken in [Broken::NeverReturns, Broken::Fails, Broken::Panics] {
        let traces = Traces::builder().queue(1000).batch(100).delay(Duration::from_millis(5)).export(broken).unwrap();
        let runtime = Runtime::builder().grant("*").unwrap().observer(traces.clone()).build().unwrap();
        let finished = runtime.start(counting(), Map::new()).await.unwrap().await.unwrap();
        assert_eq!(finished.steps, 2001);
        let began = Instant::now();
        let is_flushed = traces.flush(Duration::from_millis(300));
        let is_over = traces.shutdown(Duration::from_millis(300));
        assert!(began.elapsed() < Duration::from_secs(5), "{broken:?}");
        let counts = traces.counts();
        // A step has four spans with its call, and the last one two; then there are the run and its segment.
        let all = 2000 * 4 + 2 + 2;
        match broken {
            Broken::NeverReturns => {
                assert!(!is_flushed && !is_over);
                // One batch is with the exporter: of 100 spans, or of those that there were after the delay.
                let taken = all - counts.queued - counts.dropped;
                assert!((1..=100).contains(&taken), "{counts:?}");
                assert_eq!((counts.exported, counts.failed), (0, 0), "{counts:?}");
                assert!(counts.queued <= 1000, "{counts:?}");
            }
            Broken::Fails => {
                assert!(is_flushed && is_over);
                assert_eq!((counts.failed + counts.dropped, counts.exported), (all, 0), "{counts:?}");
            }
            Broken::Panics => {
                assert!(!is_flushed && is_over);
                assert_eq!((counts.queued, counts.exported), (0, 0), "{counts:?}");
                assert_eq!(counts.dropped + counts.failed, all, "{counts:?}");
            }
        }
    }
}

const GRAPH: Tool = Tool { by: Executor::Graph, ..PROGRAM.tools[0] };

#[tokio::test]
async fn runs_without_a_store_are_one_trace_too() {
    let inner = [
        (
            "call",
            r#"{"line":1,"does":{"action":0},"params":{},"retry":{"attempts":3,"delay_ms":0,"on":["any"]},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let outer = [
        (
            "first",
            r#"{"line":1,"does":{"action":0},"params":{},"retry":{"attempts":3,"delay_ms":0,"on":["any"]},"next":[{"to":"nest"}]}"#,
        ),
        ("nest", r#"{"line":2,"does":{"action":1},"params":{},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":3,"does":"return"}"#),
    ];
    let tool = |call: &graph_runtime::Call, _| match call.attempt() {
        3 => Ok("well".into()),
        attempt => Err(ActionError::transient(format!("attempt {attempt}"))),
    };
    let inner = Interpreted::new(&Program { id: "test/inner", nodes: &inner, ..PROGRAM }, tool);
    let tools = &[PROGRAM.tools[0], GRAPH];
    let outer = Interpreted::new(&Program { id: "test/outer", nodes: &outer, tools, ..PROGRAM }, tool).nesting(inner);
    let spans = Collected::default();
    let traces = Traces::builder().export(spans.clone()).unwrap();
    let runtime = Runtime::builder().grant("*").unwrap().observer(traces.clone()).build().unwrap();
    for _ in 0..3 {
        // Runs with one id, one after the other, are other runs.
        runtime.start_as(RunId::new("r").unwrap(), outer.clone(), Map::new()).await.unwrap().await.unwrap();
    }
    assert!(traces.shutdown(Duration::from_secs(5)));
    let all = spans.0.lock().unwrap().clone();
    let mut traces: BTreeMap<String, Vec<&SpanData>> = BTreeMap::new();
    for span in &all {
        traces.entry(span.span_context.trace_id().to_string()).or_default().push(span);
    }
    assert_eq!(traces.len(), 3);
    for spans in traces.values() {
        let count = |wanted| spans.iter().filter(|span| level(span) == wanted).count();
        let levels = [Level::Run, Level::Segment, Level::Step, Level::Visit, Level::Call, Level::Attempt];
        assert_eq!(levels.map(count), [2, 2, 5, 5, 3, 7], "{spans:#?}");
        let by_id: BTreeMap<String, &SpanData> =
            spans.iter().map(|span| (span.span_context.span_id().to_string(), *span)).collect();
        assert_eq!(by_id.len(), spans.len());
        for span in spans {
            if span.parent_span_id == SpanId::INVALID {
                assert_eq!((level(span), span.name.as_ref()), (Level::Run, "test/outer"));
                continue;
            }
            let parent = by_id[&span.parent_span_id.to_string()];
            let (own, outer) = (level(span), level(parent));
            let fits = match own {
                Level::Run => outer == Level::Visit && text(parent, "graph.node").as_deref() == Some("nest"),
                Level::Segment => outer == Level::Run,
                Level::Step => outer == Level::Segment,
                Level::Visit => outer == Level::Step,
                Level::Call => outer == Level::Visit,
                Level::Attempt => outer == Level::Call,
            };
            assert!(
                fits && parent.start_time <= span.start_time && span.end_time <= parent.end_time,
                "{span:#?} {parent:#?}"
            );
            if own == Level::Visit && ["first", "call"].contains(&span.name.as_ref()) {
                assert_eq!((number(span, "graph.retries"), &span.status), (Some(2), &Status::Unset));
            }
            if own == Level::Attempt && outer == Level::Call && number(parent, "graph.attempts") == Some(3) {
                let failed = number(span, "graph.attempt") < Some(3);
                assert_eq!(matches!(span.status, Status::Error { .. }), failed, "{span:#?}");
            }
        }
    }
}

/// An aborted run is not in progress any more, and nothing is kept of it.
#[tokio::test]
async fn an_aborted_run_is_forgotten() {
    let call = r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"done"}]}"#;
    let nodes = [("call", call), ("done", r#"{"line":2,"does":"return"}"#)];
    let hanging = Interpreted::waiting(&Program { nodes: &nodes, ..PROGRAM }, |_, _| Box::pin(std::future::pending()));
    for store in [None, Some(MemoryStore::new())] {
        let (spans, metrics) = (Collected::default(), Metrics::new());
        let traces = Traces::builder().export(spans.clone()).unwrap();
        let mut builder = Runtime::builder().grant("*").unwrap().observer(traces.clone()).observer(metrics.clone());
        if let Some(store) = store {
            builder = builder.store(store).sign_with(SecretKey::from_seed(&[1; 32]));
        }
        let run = builder.build().unwrap().start(hanging.clone(), Map::new()).await.unwrap();
        tokio::task::yield_now().await;
        let in_progress = |count| format!("graph_runs_in_progress{{graph=\"{}\"}} {count}\n", PROGRAM.id);
        assert!(metrics.encode().contains(&in_progress(1)), "{}", metrics.encode());
        assert!(format!("{traces:?}").contains("runs: 1,"), "{traces:?}");
        run.abort();
        run.await.unwrap_err();
        assert!(metrics.encode().contains(&in_progress(0)), "{}", metrics.encode());
        assert!(!metrics.encode().contains("graph_runs_ended_total{"), "{}", metrics.encode());
        assert!(format!("{traces:?}").contains("runs: 0,"), "{traces:?}");
        assert!(traces.shutdown(Duration::from_secs(5)));
        assert!(spans.0.lock().unwrap().iter().all(|span| level(span) != Level::Run));
    }
}

#[tokio::test]
async fn no_span_has_a_secret() {
    let nodes = [
        (
            "pay",
            r#"{"line":1,"does":{"action":0},"params":{"card":"${inputs.card}"},"retry":{"attempts":2,"delay_ms":0,"on":["any"]},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let settings = r#"{"secrets":{"inputs":{"fields":{"card":"all"}}}}"#;
    let graph = Interpreted::new(&Program { nodes: &nodes, settings, ..PROGRAM }, |_, params| {
        Err(ActionError::transient(format!("the card {} was refused", params["card"].as_str().unwrap())))
    });
    for is_stored in [false, true] {
        let spans = Collected::default();
        let traces = Traces::builder().export(spans.clone()).unwrap();
        let mut builder = Runtime::builder().grant("*").unwrap().observer(traces.clone());
        if is_stored {
            let key = EncryptionKey::from_bytes([7; 32]);
            builder = builder.store(MemoryStore::new()).sign_with(SecretKey::from_seed(&[1; 32])).encrypt_with(key);
        }
        let runtime = builder.build().unwrap();
        let inputs = Map::from_iter([("card".to_owned(), "4929-7701".into())]);
        runtime.start(graph.clone(), inputs).await.unwrap().await.unwrap_err();
        assert!(traces.shutdown(Duration::from_secs(5)));
        let all = spans.0.lock().unwrap().clone();
        let shown = format!("{all:?}");
        assert!(!shown.contains("4929-7701") && shown.contains("was refused"), "{shown}");
        let visit = all.iter().find(|span| level(span) == Level::Visit).unwrap();
        assert!(attribute(visit, "graph.uncommitted").is_some() && matches!(visit.status, Status::Error { .. }));
        assert_eq!(all.iter().filter(|span| level(span) == Level::Attempt).count(), 2);
        assert!(matches!(all.iter().find(|span| level(span) == Level::Run).unwrap().status, Status::Error { .. }));
    }
}

/// Runs a random graph until it ends or waits, and returns how many spans there were.
async fn spans_of(seed: u64, queue: usize) -> u64 {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)));
    let store = MemoryStore::with_clock(Arc::clone(&clock));
    let traces = Traces::builder().clock(Arc::clone(&clock)).queue(queue).export(Broken::Fails).unwrap();
    let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&[1; 32])).grant("*").unwrap();
    let runtime = builder.clock(clock).observer(traces.clone()).build().unwrap();
    let run = runtime.start_as(RunId::new("root").unwrap(), random_graph(seed), Map::new()).await.unwrap();
    drop((run.await, runtime));
    assert!(traces.shutdown(Duration::from_secs(10)));
    let counts = traces.counts();
    assert!(queue > 1 || counts.dropped > 0, "seed {seed}: the queue was never full");
    counts.failed + counts.dropped
}

#[tokio::test(start_paused = true)]
async fn spans_that_a_full_queue_drops_are_counted_as_those_that_are_made() {
    for seed in 0..60 {
        assert_eq!(spans_of(seed, 1).await, spans_of(seed, 100_000).await, "seed {seed}");
    }
}

//! Traces over OTLP: a receiver inside the test, and a real collector in front of it, if one is installed. The spans that arrive
//! are those that were exported in the process, which the journals confirm.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flate2::read::GzDecoder;
use graph_runtime::{Clock, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, Sleeping};
use graph_telemetry::Traces;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message;

use crate::graphs::random_graph;
use crate::judge::{Collected, judge};

/// A clock that runs a thousand times as fast as the system's.
#[derive(Debug)]
struct Fast(Instant);

impl Clock for Fast {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(86_400) + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed() * 1000
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        Box::pin(tokio::time::sleep(time / 1000))
    }
}

/// The spans that arrived, and the names of the services that sent them.
#[derive(Clone, Default)]
struct Arrived(Arc<Mutex<(Vec<Span>, BTreeSet<String>)>>);

/// Answers requests of exporters, and keeps their spans.
fn receive() -> (u16, Arrived) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, arrived) = (listener.local_addr().unwrap().port(), Arrived::default());
    let shared = arrived.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, arrived) = (stream.unwrap(), shared.clone());
            thread::spawn(move || while answer(&stream, &arrived).is_some() {});
        }
    });
    (port, arrived)
}

/// Answers a request; `None` if the connection is over.
fn answer(mut stream: &TcpStream, arrived: &Arrived) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut is_compressed, mut line) = (0, false, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let text = line.trim_end().to_ascii_lowercase();
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        is_compressed |= text == "content-encoding: gzip";
        if text.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if is_compressed {
        let compressed = std::mem::take(&mut body);
        GzDecoder::new(compressed.as_slice()).read_to_end(&mut body).unwrap();
    }
    let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    let mut all = arrived.0.lock().unwrap();
    for resource in request.resource_spans {
        let attributes = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
        let service = attributes.iter().find(|one| one.key == "service.name");
        all.1.extend(service.map(|one| format!("{:?}", one.value)));
        all.0.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    drop(all);
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(answer.as_bytes()).ok()
}

/// A span as both sides have it: trace, id, parent, name, times, links and the number of its attributes.
type Seen = (Vec<u8>, Vec<u8>, Vec<u8>, String, u64, u64, Vec<Vec<u8>>, usize);

fn nanoseconds(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

fn sent(span: &SpanData) -> Seen {
    let context = &span.span_context;
    let parent = match span.parent_span_id {
        opentelemetry::trace::SpanId::INVALID => Vec::new(),
        parent => parent.to_bytes().to_vec(),
    };
    (
        context.trace_id().to_bytes().to_vec(),
        context.span_id().to_bytes().to_vec(),
        parent,
        span.name.to_string(),
        nanoseconds(span.start_time),
        nanoseconds(span.end_time),
        span.links.links.iter().map(|link| link.span_context.span_id().to_bytes().to_vec()).collect(),
        span.attributes.len(),
    )
}

fn seen(span: &Span) -> Seen {
    (
        span.trace_id.clone(),
        span.span_id.clone(),
        span.parent_span_id.clone(),
        span.name.clone(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.links.iter().map(|link| link.span_id.clone()).collect(),
        span.attributes.len(),
    )
}

/// Runs a random graph to its end, sends its spans to a port, and returns those that were sent.
async fn traced(seed: u64, port: u16) -> Vec<SpanData> {
    let clock: Arc<dyn Clock> = Arc::new(Fast(Instant::now()));
    let (store, spans) = (MemoryStore::with_clock(Arc::clone(&clock)), Collected::default());
    let endpoint = format!("http://127.0.0.1:{port}/v1/traces");
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build().unwrap();
    let resource = Resource::builder().with_service_name("orders").build();
    let traces = Traces::builder().clock(Arc::clone(&clock)).resource(resource).batch(7).export(exporter).unwrap();
    // The ids of a run are the same, whoever exports them.
    let witness = Traces::builder().clock(Arc::clone(&clock)).export(spans.clone()).unwrap();
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[1; 32])).grant("*").unwrap();
    let runtime = builder.clock(clock).observer(traces.clone()).observer(witness.clone()).build().unwrap();
    let (run, graph) = (RunId::new(format!("r{seed}")).unwrap(), random_graph(seed));
    let mut started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    while let Err(error) = started.await {
        assert!(matches!(error, RunError::Waiting { .. } | RunError::Node { .. }), "{error}");
        tokio::time::sleep(Duration::from_millis(70)).await;
        started = runtime.resume(graph.clone(), &run).await.unwrap();
    }
    let done = tokio::task::spawn_blocking(move || {
        assert!(traces.flush(Duration::from_secs(10)), "the collector took all");
        assert!(traces.shutdown(Duration::from_secs(10)) && witness.shutdown(Duration::from_secs(10)));
        let counts = traces.counts();
        assert_eq!((counts.dropped, counts.failed, counts.queued), (0, 0, 0), "{counts:?}");
        counts.exported
    });
    let exported = done.await.unwrap();
    let spans = spans.0.lock().unwrap().clone();
    assert_eq!(exported, spans.len() as u64);
    judge(&store, &spans, 0, run.as_str()).await;
    spans
}

/// Waits until all spans have arrived, and compares them. Two observers look at the clock one after the other, so times differ a little.
fn assert_arrived(arrived: &Arrived, spans: &[SpanData]) {
    let until = Instant::now() + Duration::from_secs(20);
    while arrived.0.lock().unwrap().0.len() < spans.len() {
        assert!(Instant::now() < until, "{} of {} spans arrived", arrived.0.lock().unwrap().0.len(), spans.len());
        thread::sleep(Duration::from_millis(20));
    }
    // Nothing comes twice.
    thread::sleep(Duration::from_millis(200));
    let (all, services) = arrived.0.lock().unwrap().clone();
    let without_times = |seen: Seen| (seen.0, seen.1, seen.2, seen.3, seen.6, seen.7);
    let mut found: Vec<_> = all.iter().map(|span| without_times(seen(span))).collect();
    let mut expected: Vec<_> = spans.iter().map(|span| without_times(sent(span))).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert!(services.len() == 1 && services.iter().all(|service| service.contains("orders")), "{services:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_arrive_over_otlp_as_they_were_made() {
    let (port, arrived) = receive();
    let mut spans = Vec::new();
    for seed in 0..5 {
        spans.extend(traced(seed, port).await);
    }
    assert_arrived(&arrived, &spans);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_collector_passes_all_spans_on() {
    let Some(agent) = std::env::var_os("ROTEL_AGENT") else {
        assert!(std::env::var_os("REQUIRE_COLLECTORS").is_none(), "ROTEL_AGENT names no collector");
        println!(
            "SKIPPED: ROTEL_AGENT names no collector: the program `rotel-agent` of the Python package `rotel` 0.0.1a15"
        );
        return;
    };
    let (target, arrived) = receive();
    let (http, grpc, directory) = (free_port(), free_port(), tempfile::tempdir().unwrap());
    let child = Command::new(agent)
        .args(["start", "--exporter", "otlp", "--otlp-exporter-protocol", "http", "--batch-timeout", "100ms"])
        .arg(format!("--otlp-exporter-endpoint=http://127.0.0.1:{target}"))
        .arg(format!("--otlp-http-endpoint=127.0.0.1:{http}"))
        .arg(format!("--otlp-grpc-endpoint=127.0.0.1:{grpc}"))
        .arg(format!("--pid-file={}", directory.path().join("pid").display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _killed = Killed(child);
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", http)).is_err() {
        assert!(Instant::now() < until, "the collector does not listen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut spans = Vec::new();
    for seed in 10..14 {
        spans.extend(traced(seed, http).await);
    }
    assert_arrived(&arrived, &spans);
}

//! The cost of observers for a durable run: steps a second with and without them, with collectors that are dead or never answer.
//!
//! `SECONDS=600 cargo bench -p state-graph-telemetry --all-features --bench observers` alternates runs without observers with runs that
//! have some, for 600 seconds, and prints ratios. `PLACE=/dev/shm` keeps the store on a disk in memory, and `ONLY=metrics` measures those
//! observers alone that have the word in their name.
//!
//! `cargo bench … -- memory 600` runs for 600 seconds with all that is stalled, and prints the memory of the process: the bytes allocated
//! in Rust, and the anonymous pages, which have the stacks of threads and the memory of SQLite too. `WITH=0` is metrics alone, 1 an
//! exporter that never returns, 2 and 3 dead collectors, 4 lines on a full disk, 5 a reader of events that reads nothing, and an empty
//! text leaves all out.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

#[expect(dead_code, reason = "the tests of the runtime use more of it")]
#[path = "../../../graph-runtime/tests/runtime/interpreted.rs"]
mod interpreted;

use std::fs::File;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph_runtime::__private::Program;
use graph_runtime::events::EventFilter;
use graph_runtime::{Builder, Map, Observer, Progress, RunId, Runtime, SecretKey, SqliteStore, Store};
use graph_telemetry::{Metrics, Traces};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanData;

use interpreted::{Interpreted, PROGRAM};

/// Counts what is allocated in Rust.
#[global_allocator]
static ALLOCATED: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);

/// How many steps a run has, besides its last one.
const STEPS: u64 = 300;

/// How long is measured, if no variable says otherwise.
const SECONDS: u64 = 180;

/// An exporter that never returns.
#[derive(Debug)]
struct Stalled;

impl opentelemetry_sdk::trace::SpanExporter for Stalled {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        std::future::pending().await
    }
}

/// An exporter that takes all spans and drops them.
#[derive(Debug)]
struct Taken;

impl opentelemetry_sdk::trace::SpanExporter for Taken {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

fn graph() -> Interpreted {
    let program = Program {
        settings: r#"{"max_steps":100000}"#,
        nodes: &[
            (
                "work",
                r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"work","when":{"path":"result","op":"lt","value":300}},{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    Interpreted::waiting(&program, |call, _| {
        let step = call.step();
        Box::pin(async move { Ok(step.into()) })
    })
}

/// Exports to a port of this host.
fn otlp(port: u16) -> Traces {
    let endpoint = format!("http://127.0.0.1:{port}/v1/traces");
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build().unwrap();
    Traces::builder().export(exporter).unwrap()
}

/// Returns a port at which nobody listens.
fn dead() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns a port at which somebody accepts connections, and never answers.
fn silent() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            kept.push(listener.accept().unwrap());
        }
    });
    port
}

/// The observers, with their names.
fn observers() -> Vec<(&'static str, Vec<Arc<dyn Observer>>)> {
    let full = || Progress::to(File::options().write(true).open("/dev/full").unwrap());
    let traces = |exporter| Arc::new(exporter) as Arc<dyn Observer>;
    vec![
        ("none again", vec![]),
        ("metrics", vec![Arc::new(Metrics::new())]),
        ("traces, an exporter that takes all", vec![traces(Traces::builder().export(Taken).unwrap())]),
        ("traces, an exporter that never returns", vec![traces(Traces::builder().export(Stalled).unwrap())]),
        ("traces, connections are refused", vec![traces(otlp(dead()))]),
        ("traces, a collector that never answers", vec![traces(otlp(silent()))]),
        ("progress lines on a full disk", vec![Arc::new(full())]),
        (
            "metrics, traces to a silent collector, lines on a full disk",
            vec![Arc::new(Metrics::new()), traces(otlp(silent())), Arc::new(full())],
        ),
    ]
}

fn builder(store: &SqliteStore) -> Builder {
    Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[1; 32])).grant("*").unwrap()
}

fn runtime(store: &SqliteStore, observers: &[Arc<dyn Observer>]) -> Runtime {
    let add = |builder: Builder, observer: &Arc<dyn Observer>| builder.observer(Arc::clone(observer));
    observers.iter().fold(builder(store), add).build().unwrap()
}

/// Runtimes with streams of events, whose readers read nothing, or all.
fn streaming(store: &SqliteStore) -> Vec<(&'static str, Runtime)> {
    let streaming = || builder(store).events(1024).build().unwrap();
    let (unread, stalled, read) = (streaming(), streaming(), streaming());
    let full = File::options().write(true).open("/dev/full").unwrap();
    let all = builder(store).events(1024).observer(otlp(dead())).observer(Progress::to(full)).build().unwrap();
    let reader = |runtime: &Runtime| runtime.events(EventFilter::default()).unwrap();
    // It is never polled, and lives as long as the process.
    Box::leak(Box::new(reader(&stalled)));
    Box::leak(Box::new(reader(&all)));
    let mut events = reader(&read);
    tokio::spawn(async move { while events.next().await.is_some() {} });
    vec![
        ("events, nobody reads all of them", unread),
        ("events, a reader that reads nothing", stalled),
        ("events, a reader that reads all", read),
        ("a reader that reads nothing, connections are refused, lines on a full disk", all),
    ]
}

/// Makes a run, and returns how many steps a second it made.
async fn measure(runtime: &Runtime, store: &SqliteStore, graph: &Interpreted, name: String) -> f64 {
    let run = RunId::new(name).unwrap();
    let began = Instant::now();
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    let rate = STEPS as f64 / began.elapsed().as_secs_f64();
    store.remove(&run).await.unwrap();
    rate
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Returns the anonymous pages of the process, in KiB, and how many threads it has. Files that are mapped, as those of a store on a disk
/// in memory, are not among the pages.
fn pages_and_threads() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let number = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (number("RssAnon:"), number("Threads:"))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // A disk in memory has a steady speed, and no time in which an observer could hide.
    let place = std::env::var("PLACE").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    let directory = tempfile::tempdir_in(place).unwrap();
    let store = SqliteStore::open(directory.path().join("runs.db")).await.unwrap();
    let graph = graph();
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|one| one == "memory") {
        let seconds = arguments.get(at + 1).and_then(|one| one.parse().ok()).unwrap_or(600);
        return grow(&store, &graph, Duration::from_secs(seconds)).await;
    }
    let plain = runtime(&store, &[]);
    let observed = observers().into_iter().map(|(name, own)| (name, runtime(&store, &own)));
    let only = std::env::var("ONLY").unwrap_or_default();
    let variants: Vec<_> = observed.chain(streaming(&store)).filter(|(name, _)| name.contains(&only)).collect();
    let mut rates = vec![Vec::new(); variants.len()];
    let mut ratios = vec![Vec::new(); variants.len()];
    let mut none = Vec::new();
    let seconds = std::env::var("SECONDS").map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let began = Instant::now();
    for round in 0.. {
        if round > 0 && began.elapsed() >= Duration::from_secs(seconds) {
            println!("{round} runs with each");
            break;
        }
        for (at, (_, runtime)) in variants.iter().enumerate() {
            // Each run is measured between two that have no observers, since the speed of the disk changes.
            let before = measure(&plain, &store, &graph, format!("n{round}-{at}-a")).await;
            let own = measure(runtime, &store, &graph, format!("o{round}-{at}")).await;
            let after = measure(&plain, &store, &graph, format!("n{round}-{at}-b")).await;
            none.extend([before, after]);
            rates[at].push(own);
            ratios[at].push(own / ((before + after) / 2.0));
        }
    }
    println!("no observer: {:.0} steps a second", median(none));
    for (at, (name, _)) in variants.iter().enumerate() {
        let (rate, ratio) = (median(rates[at].clone()), median(ratios[at].clone()));
        println!("{name}: {rate:.0} steps a second, {:.1} % of those without", ratio * 100.0);
    }
    // Exporters that never return are left behind.
    std::process::exit(0);
}

/// Runs with everything that is stalled, and prints the memory of the process.
async fn grow(store: &SqliteStore, graph: &Interpreted, time: Duration) {
    let own: Vec<Arc<dyn Observer>> = vec![
        Arc::new(Metrics::new()),
        Arc::new(Traces::builder().export(Stalled).unwrap()),
        Arc::new(otlp(dead())),
        Arc::new(otlp(silent())),
        Arc::new(Progress::to(File::options().write(true).open("/dev/full").unwrap())),
    ];
    // Without any of them, it shows how much the store and the engine need.
    let chosen = std::env::var("WITH").unwrap_or_else(|_| "012345".to_owned());
    let own: Vec<_> = own.into_iter().zip("01234".chars()).filter(|(_, at)| chosen.contains(*at)).collect();
    let own: Vec<_> = own.into_iter().map(|(one, _)| one).collect();
    let builder = own.iter().fold(builder(store), |builder, one| builder.observer(Arc::clone(one)));
    let (runtime, _unread) = match chosen.contains('5') {
        true => {
            let runtime = builder.events(1024).build().unwrap();
            let reader = runtime.events(EventFilter::default()).unwrap();
            (runtime, Some(reader))
        }
        false => (builder.build().unwrap(), None),
    };
    let (began, mut next, mut steps) = (Instant::now(), Duration::ZERO, 0);
    for round in 0.. {
        measure(&runtime, store, graph, format!("m{round}")).await;
        steps += STEPS;
        if began.elapsed() >= next {
            let (allocated, (pages, threads)) = (ALLOCATED.allocated() / 1024, pages_and_threads());
            let seconds = began.elapsed().as_secs();
            println!(
                "after {seconds:>4} s and {steps} steps: {allocated} KiB allocated, {pages} KiB of pages, {threads} threads"
            );
            next += time / 20;
        }
        if began.elapsed() >= time {
            break;
        }
    }
    std::process::exit(0);
}

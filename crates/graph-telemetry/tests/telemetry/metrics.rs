//! Metrics of random runs, against a judge that counts events; promtool and a real Prometheus, if they are installed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use graph_runtime::observer::{Event, Observer};
use graph_runtime::{Clock, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, Store, TokioClock};
use graph_telemetry::Metrics;

use crate::graphs::random_graph;

/// Counts events by the text of the series that they belong to.
#[derive(Clone, Default)]
struct MetricsJudge {
    series: Arc<Mutex<BTreeMap<String, f64>>>,
    graphs: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Observer for MetricsJudge {
    fn observe(&self, event: &Event<'_>) {
        let graph = || self.graphs.lock().unwrap()[event.run().as_str()].clone();
        let add = |series: String| *self.series.lock().unwrap().entry(series).or_default() += 1.0;
        match event {
            Event::RunStarted { run, graph, .. } => {
                let before = self.graphs.lock().unwrap().insert(run.to_string(), graph.to_string());
                let kind = if before.is_none() { "started" } else { "resumed" };
                add(format!("graph_runs_{kind}_total{{graph=\"{graph}\"}}"));
            }
            Event::CallStarted { call, .. } if call.attempt > 1 => {
                add(format!("graph_retries_total{{graph=\"{}\",node=\"{}\"}}", graph(), call.node));
            }
            Event::StepCompleted { node, error, .. } => {
                let outcome = if error.is_some() { "failed" } else { "ok" };
                add(format!("graph_visits_total{{graph=\"{}\",node=\"{node}\",outcome=\"{outcome}\"}}", graph()));
                add(format!("graph_visit_seconds_count{{graph=\"{}\",node=\"{node}\"}}", graph()));
            }
            Event::WaitOpened { node, .. } => {
                add(format!("graph_waits_opened_total{{graph=\"{}\",node=\"{node}\"}}", graph()));
            }
            Event::RunEnded { status, .. } => {
                add(format!("graph_runs_ended_total{{graph=\"{}\",status=\"{}\"}}", graph(), status.name()));
            }
            _ => {}
        }
    }
}

/// Returns the series of a text, except for those that are 0 and for buckets and sums.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse::<f64>().unwrap())
    };
    let is_shown =
        |(name, value): &(String, f64)| !name.contains("_bucket{") && !name.contains("_sum{") && *value != 0.0;
    lines.map(value).filter(is_shown).collect()
}

/// Makes random runs, some of which are left waiting, and returns their metrics, what the judge counted, and the store.
async fn measured() -> (Metrics, MetricsJudge, MemoryStore) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)));
    let (store, metrics, judge) =
        (MemoryStore::with_clock(Arc::clone(&clock)), Metrics::new(), MetricsJudge::default());
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[1; 32])).grant("*").unwrap();
    let runtime = builder.clock(clock).observer(metrics.clone()).observer(judge.clone()).build().unwrap();
    for seed in 0..30 {
        let (run, graph) = (RunId::new(format!("r{seed}")).unwrap(), random_graph(seed));
        let mut started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        let mut resumes = 0;
        loop {
            match started.await {
                Ok(_) => break,
                Err(RunError::Waiting { .. }) if seed % 5 == 0 && resumes > 0 => break,
                Err(error) => {
                    assert!(matches!(error, RunError::Waiting { .. } | RunError::Node { .. }), "{error}");
                    resumes += 1;
                }
            }
            tokio::time::sleep(Duration::from_secs(61)).await;
            started = runtime.resume(graph.clone(), &run).await.unwrap();
        }
    }
    (metrics, judge, store)
}

#[tokio::test(start_paused = true)]
async fn metrics_of_random_runs_are_those_that_a_judge_counts() {
    let (metrics, judge, store) = measured().await;
    metrics.count_waits(&store).await.unwrap();
    let mut found = series(&metrics.encode());
    let take = |prefix: &str, found: &mut BTreeMap<String, f64>| -> f64 {
        let (taken, rest) = std::mem::take(found).into_iter().partition(|(name, _)| name.starts_with(prefix));
        *found = rest;
        let taken: BTreeMap<String, f64> = taken;
        taken.values().sum()
    };
    let records = take("graph_records_total", &mut found);
    let commits = take("graph_commits_total", &mut found);
    let open = take("graph_waits_open{", &mut found);
    assert_eq!(take("graph_runs_in_progress", &mut found), 0.0);
    assert_eq!(found, *judge.series.lock().unwrap());
    let (mut stored, mut waits) = (0, 0);
    for run in store.list().await.unwrap() {
        stored += store.load(&run.run).await.unwrap().len();
    }
    waits += store.open_waits(&Default::default(), &Default::default()).await.unwrap().waits.len();
    assert_eq!((records, open), (stored as f64, waits as f64));
    assert!(commits > records / 3.0 && commits <= records && waits > 2, "{commits} {records} {waits}");
}

/// Finds a program in a directory that a variable names, or on the path. Says so if it is not there.
fn program(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(|directory| PathBuf::from(directory).join(name));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found =
        named.into_iter().chain(std::env::split_paths(&paths).map(|path| path.join(name))).find(|it| it.is_file());
    if found.is_none() {
        assert!(std::env::var_os("REQUIRE_COLLECTORS").is_none(), "{name} is not installed");
        println!("SKIPPED: {name} is not installed; {variable} can name its directory");
    }
    found
}

#[tokio::test(start_paused = true)]
async fn promtool_finds_nothing_wrong_with_the_text() {
    let Some(promtool) = program("PROMETHEUS_BIN", "promtool") else { return };
    let (metrics, ..) = measured().await;
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It reads the older format, in which the help of a counter has the whole name of its series.
    let text = metrics.encode();
    let counters = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
    let text = counters.fold(text.clone(), |text, name| {
        text.replace(&format!("# HELP {name} "), &format!("# HELP {name}_total "))
            .replace(&format!("# TYPE {name} "), &format!("# TYPE {name}_total "))
    });
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{said}");
}

/// A process that is killed when the test is over.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Answers each request with the metrics, as the handler of a service would.
fn serve(metrics: Metrics) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let (body, kind) = (metrics.encode(), Metrics::CONTENT_TYPE);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    port
}

/// Asks a server, and returns the body of its answer; `None` if it does not answer yet.
fn ask(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_real_prometheus_scrapes_what_was_counted() {
    let Some(prometheus) = program("PROMETHEUS_BIN", "prometheus") else { return };
    let (metrics, judge, _) = measured().await;
    let (target, directory) = (serve(metrics), tempfile::tempdir().unwrap());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms }}\nscrape_configs: [{{ job_name: graphs, static_configs: [{{ targets: ['127.0.0.1:{target}'] }}] }}]\n"
    );
    std::fs::write(directory.path().join("prometheus.yml"), config).unwrap();
    let child = Command::new(prometheus)
        .arg(format!("--config.file={}", directory.path().join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _killed = Killed(child);
    let expected = judge.series.lock().unwrap().clone();
    let until = Instant::now() + Duration::from_secs(60);
    for (name, value) in expected {
        // Braces and quotes of the expression, in a URL.
        let query: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        loop {
            let answer = ask(port, &format!("/api/v1/query?query={query}")).unwrap_or_default();
            if answer.contains("\"status\":\"success\"") && answer.contains(&format!(",\"{value}\"]")) {
                break;
            }
            assert!(Instant::now() < until, "{name} is not {value}: {answer}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

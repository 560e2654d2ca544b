//! Metrics of runs, for Prometheus.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph_engine::observer::{Event, Observer};
use graph_engine::record::{Head, SignedRecord};
use graph_engine::store::{Page, Store, StoreError, WaitFilter, WaitPage};
use graph_model::name::RunId;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The upper bounds of the buckets of durations, in seconds: from a call in memory to a call that waits for people.
const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];

/// The maximum number of nodes that have series of their own. A graph has far fewer; programs that load graphs at run time may load any
/// number of them.
const MOST_NODES: usize = 10_000;

/// The label of the nodes and graphs beyond that.
const OTHER: &str = "(other)";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGraph {
    graph: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEnd {
    graph: Arc<str>,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    graph: Arc<str>,
    node: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVisit {
    graph: Arc<str>,
    node: Arc<str>,
    outcome: &'static str,
}

/// Makes the histograms.
#[derive(Debug, Clone)]
struct Durations;

impl MetricConstructor<Histogram> for Durations {
    fn new_metric(&self) -> Histogram {
        Histogram::new(SECONDS)
    }
}

/// Counters, gauges and histograms of the runs of a runtime, in the text format of OpenMetrics.
///
/// A clone counts in the same series. The series depend on the graphs and their nodes, and not on runs; nodes beyond the first
/// 10,000 share the label `(other)`. All are of this process and begin with 0 when it begins.
///
/// | metric | labels | |
/// |---|---|---|
/// | `graph_runs_started_total` | `graph` | runs that began |
/// | `graph_runs_resumed_total` | `graph` | runs that were resumed |
/// | `graph_runs_ended_total` | `graph`, `status` | runs that ended, wait (`waiting`) or are to be resumed (`running`); those whose task was aborted are left out |
/// | `graph_runs_in_progress` | `graph` | runs in memory |
/// | `graph_visits_total` | `graph`, `node`, `outcome` | visits: `ok`, `failed`, `cached` or `cancelled` |
/// | `graph_visit_seconds` | `graph`, `node` | how long the calls of visits took; cached and cancelled visits are left out |
/// | `graph_retries_total` | `graph`, `node` | attempts at calls beyond the first |
/// | `graph_waits_opened_total` | `graph`, `node` | visits that began to wait |
/// | `graph_waits_open` | `graph`, `node` | waits that are open in a store, when [`Metrics::count_waits`] looked last |
/// | `graph_commits_total`, `graph_records_total` | `graph` | writes to journals, and their records |
///
/// ```
/// use graph_engine::Runtime;
/// use graph_telemetry::Metrics;
///
/// let metrics = Metrics::new();
/// let runtime = Runtime::builder().observer(metrics.clone()).build()?;
/// // The body of the answer to `GET /metrics`, whose `Content-Type` is `Metrics::CONTENT_TYPE`.
/// let body = metrics.encode();
/// # assert!(body.ends_with("# EOF\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Metrics {
    series: Arc<Series>,
    /// The registry that it made, unless it is part of the program's own.
    registry: Arc<Registry>,
}

/// All series.
#[derive(Default)]
struct Series {
    started: Family<OfGraph, Counter>,
    resumed: Family<OfGraph, Counter>,
    ended: Family<OfEnd, Counter>,
    in_progress: Family<OfGraph, Gauge>,
    visits: Family<OfVisit, Counter>,
    retries: Family<OfNode, Counter>,
    waits: Family<OfNode, Counter>,
    open: Family<OfNode, Gauge>,
    commits: Family<OfGraph, Counter>,
    records: Family<OfGraph, Counter>,
    seconds: Latency,
    known: Mutex<KnownSeries>,
}

/// The histograms of the visits of each node.
struct Latency(Family<OfNode, Histogram, Durations>);

impl Default for Latency {
    fn default() -> Self {
        Self(Family::new_with_constructor(Durations))
    }
}

/// The graphs and runs that were seen.
#[derive(Default)]
struct KnownSeries {
    graphs: HashMap<Box<str>, Arc<GraphSeries>>,
    runs: HashMap<RunId, CountedRun>,
    /// How many nodes have series.
    nodes: usize,
}

/// A run in progress, or one that is about to start.
struct CountedRun {
    graph: Arc<GraphSeries>,
    is_resumed: bool,
    is_in_progress: bool,
}

/// The series of a graph.
struct GraphSeries {
    name: Arc<str>,
    commits: Counter,
    records: Counter,
    nodes: Mutex<HashMap<Box<str>, Arc<NodeSeries>>>,
}

/// The series of a node.
struct NodeSeries {
    ok: Counter,
    failed: Counter,
    cached: Counter,
    cancelled: Counter,
    retries: Counter,
    waits: Counter,
    seconds: Histogram,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held left numbers that are right.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// The `Content-Type` of what [`Metrics::encode`] returns.
    pub const CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Metrics with a registry of their own.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let series = Series::register(&mut registry);
        Self { series, registry: Arc::new(registry) }
    }

    /// Metrics in the registry of a program, which encodes them with its own: [`Metrics::encode`] has nothing of them then.
    pub fn registered_in(registry: &mut Registry) -> Self {
        Self { series: Series::register(registry), registry: Arc::default() }
    }

    /// Returns all metrics as text, for an answer with the type [`Metrics::CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut body = String::new();
        text::encode(&mut body, &self.registry).expect("a string takes any text");
        body
    }

    /// Counts the open waits of a store, a page at a time, and sets `graph_waits_open`. A program calls it as often as it
    /// wants to know, since other processes may open and end waits too.
    ///
    /// # Errors
    ///
    /// If the store cannot list its waits. The gauges have their values from before then.
    pub async fn count_waits(&self, store: &dyn Store) -> Result<(), StoreError> {
        let (filter, mut page, mut open) = (WaitFilter::default(), Page { size: 1000, after: None }, BTreeMap::new());
        loop {
            let WaitPage { waits, next, .. } = store.open_waits(&filter, &page).await?;
            for row in waits {
                *open.entry((row.graph, row.wait.node)).or_insert(0_i64) += 1;
            }
            match next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        // A node without open waits has no series, so that the names of what was removed go away.
        self.series.open.clear();
        for ((graph, node), count) in open.into_iter().take(MOST_NODES) {
            self.series.open.get_or_create(&OfNode { graph: graph.into(), node: node.into() }).set(count);
        }
        Ok(())
    }
}

impl Series {
    fn register(registry: &mut Registry) -> Arc<Self> {
        let series = Self::default();
        let Self {
            started, resumed, ended, in_progress, visits, retries, waits, open, commits, records, seconds, ..
        } = &series;
        registry.register("graph_runs_started", "Runs that began", started.clone());
        registry.register("graph_runs_resumed", "Runs that were resumed", resumed.clone());
        registry.register("graph_runs_ended", "Runs that ended, wait or are to be resumed", ended.clone());
        registry.register("graph_runs_in_progress", "Runs in memory", in_progress.clone());
        registry.register("graph_visits", "Visits of nodes", visits.clone());
        registry.register("graph_retries", "Attempts at calls beyond the first", retries.clone());
        registry.register("graph_waits_opened", "Visits that began to wait", waits.clone());
        registry.register("graph_waits_open", "Waits that are open in the store", open.clone());
        registry.register("graph_commits", "Writes to journals", commits.clone());
        registry.register("graph_records", "Records in journals", records.clone());
        registry.register_with_unit(
            "graph_visit",
            "How long the calls of visits took",
            Unit::Seconds,
            seconds.0.clone(),
        );
        Arc::new(series)
    }

    /// Returns the series of a graph.
    fn graph(&self, known: &mut KnownSeries, id: &str) -> Arc<GraphSeries> {
        let name = if known.graphs.len() < MOST_NODES || known.graphs.contains_key(id) { id } else { OTHER };
        if let Some(graph) = known.graphs.get(name) {
            return Arc::clone(graph);
        }
        let labels = OfGraph { graph: name.into() };
        let graph = Arc::new(GraphSeries {
            name: Arc::clone(&labels.graph),
            commits: self.commits.get_or_create_owned(&labels),
            records: self.records.get_or_create_owned(&labels),
            nodes: Mutex::default(),
        });
        known.graphs.insert(name.into(), Arc::clone(&graph));
        graph
    }

    /// Returns the series of a node of a run; `None` for a run that is not in progress.
    fn node(&self, run: &RunId, node: &str) -> Option<Arc<NodeSeries>> {
        let mut known = lock(&self.known);
        let graph = Arc::clone(&known.runs.get(run)?.graph);
        let mut nodes = lock(&graph.nodes);
        if let Some(node) = nodes.get(node) {
            return Some(Arc::clone(node));
        }
        let name = if known.nodes < MOST_NODES { node } else { OTHER };
        if let Some(other) = nodes.get(name) {
            return Some(Arc::clone(other));
        }
        known.nodes += 1;
        let labels = OfNode { graph: Arc::clone(&graph.name), node: name.into() };
        let outcome = |outcome| {
            let OfNode { graph, node } = labels.clone();
            self.visits.get_or_create_owned(&OfVisit { graph, node, outcome })
        };
        let node = Arc::new(NodeSeries {
            ok: outcome("ok"),
            failed: outcome("failed"),
            cached: outcome("cached"),
            cancelled: outcome("cancelled"),
            retries: self.retries.get_or_create_owned(&labels),
            waits: self.waits.get_or_create_owned(&labels),
            seconds: self.seconds.0.get_or_create_owned(&labels),
        });
        nodes.insert(name.into(), Arc::clone(&node));
        Some(node)
    }

    fn recorded(&self, run: &RunId, graph: &str, records: &[SignedRecord]) {
        let mut known = lock(&self.known);
        let series = self.graph(&mut known, graph);
        let kind = records.last().and_then(|last| Head::cut(&last.body)).map_or("", |head| head.kind);
        let is_whole = records.first().is_some_and(|first| first.seq == 0);
        let is_resumed = is_whole && kind == "resume";
        if is_whole && !is_resumed && records.len() > 1 {
            // The journal of a run that has ended, or still waits.
            return;
        }
        // Only the last record of a run that is resumed is new.
        let new = if is_resumed { 1 } else { records.len() as u64 };
        series.commits.inc();
        series.records.inc_by(new);
        if is_whole {
            known.runs.insert(run.clone(), CountedRun { graph: series, is_resumed, is_in_progress: false });
        }
    }

    fn started(&self, run: &RunId, graph: &str) {
        let mut known = lock(&self.known);
        let series = self.graph(&mut known, graph);
        let labels = OfGraph { graph: Arc::clone(&series.name) };
        let facts = CountedRun { graph: series, is_resumed: false, is_in_progress: false };
        let facts = known.runs.entry(run.clone()).or_insert(facts);
        let began = if facts.is_resumed { &self.resumed } else { &self.started };
        began.get_or_create(&labels).inc();
        // A run whose task was ended in the middle, and that begins again in this process, is one run in progress.
        if !std::mem::replace(&mut facts.is_in_progress, true) {
            self.in_progress.get_or_create(&labels).inc();
        }
    }

    fn ended(&self, run: &RunId, status: &'static str) {
        // The runtime can end runs that wait without their graph, and such a run is not known here.
        if let Some(graph) = self.left(run) {
            self.ended.get_or_create(&OfEnd { graph, status }).inc();
        }
    }

    /// Forgets a run, and returns its graph if it was known.
    fn left(&self, run: &RunId) -> Option<Arc<str>> {
        let CountedRun { graph, is_in_progress, .. } = lock(&self.known).runs.remove(run)?;
        let graph = Arc::clone(&graph.name);
        if is_in_progress {
            self.in_progress.get_or_create(&OfGraph { graph: Arc::clone(&graph) }).dec();
        }
        Some(graph)
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        let series = &self.series;
        match event {
            Event::RunStarted { run, graph, .. } => series.started(run, graph.as_str()),
            Event::CallStarted { call, .. } if call.attempt > 1 => {
                if let Some(node) = series.node(call.run, call.node) {
                    node.retries.inc();
                }
            }
            Event::StepCompleted { run, node, elapsed, error, cached, cancelled, .. } => {
                let Some(node) = series.node(run, node) else { return };
                let outcome = match error {
                    _ if *cancelled => &node.cancelled,
                    Some(_) => &node.failed,
                    None if *cached => &node.cached,
                    None => &node.ok,
                };
                outcome.inc();
                if !cached && !cancelled {
                    node.seconds.observe(elapsed.as_secs_f64());
                }
            }
            Event::WaitOpened { run, node, .. } => {
                if let Some(node) = series.node(run, node) {
                    node.waits.inc();
                }
            }
            Event::Recorded { run, graph, records, .. } => series.recorded(run, graph.id().as_str(), records),
            Event::RunEnded { run, status, .. } => series.ended(run, status.name()),
            // It is still known if its task was aborted.
            Event::RunLeft { run, .. } => drop(series.left(run)),
            _ => {}
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

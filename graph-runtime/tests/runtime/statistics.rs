//! Statistics over random runs, against a judge that counts the calls of the tool and the events of the runs, and sorts the durations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Key, Program};
use graph_runtime::observer::{Event, Observer};
use graph_runtime::stats::Stats;
use graph_runtime::{
    ActionError, Clock, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, Store, TokioClock, Value,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::random::Random;
use crate::support::{KEY, id};

/// A loop whose call is tried again and whose failures lead to a gate, a wait, and two branches, one of which may fail.
const LOOP: Program<'static> = Program {
    keys: &[Key { name: "last", initial: None }],
    nodes: &[
        (
            "work",
            r#"{"line":1,"does":{"action":0},"params":{"does":"work"},"retry":{"attempts":3,"delay_ms":0,"on":["any"]},"assign":{"last":"${result}"},"next":[{"to":"work","when":{"path":"result","op":"eq","value":"again"}},{"to":"rest"}],"on_error":1}"#,
        ),
        ("mend", r#"{"line":2,"does":"gate","next":[{"to":"work"}]}"#),
        ("rest", r#"{"line":3,"does":"wait","wait":{"timeout_ms":60000},"next":[{"to":"split"}]}"#),
        (
            "split",
            r#"{"line":4,"does":"gate","next":{"all":[{"to":"left"},{"to":"right"}],"on_branch_error":"finish"}}"#,
        ),
        ("left", r#"{"line":5,"does":{"action":0},"params":{"does":"left"},"next":[{"to":"met"}]}"#),
        ("right", r#"{"line":6,"does":{"action":0},"params":{"does":"right"},"next":[{"to":"met"}]}"#),
        ("met", r#"{"line":7,"does":"gate","join":{"of":[4,5],"fan":3,"closes":true},"next":[{"to":"last"}]}"#),
        ("last", r#"{"line":8,"does":{"action":0},"params":{"does":"last"},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":9,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// The counts of a node, from the calls of its tool and the events of its visits.
#[derive(Debug, Default, PartialEq)]
struct Counted {
    visits: u64,
    failures: u64,
    waits: u64,
    calls: u64,
    /// How long each visit took that was not the end of its run.
    took: Vec<u64>,
}

/// Counts.
#[derive(Clone, Default)]
struct Judge(Arc<Mutex<BTreeMap<String, Counted>>>);

impl Judge {
    fn with(&self, node: &str, change: impl FnOnce(&mut Counted)) {
        change(self.0.lock().unwrap().entry(node.to_owned()).or_default());
    }
}

impl Observer for Judge {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::WaitOpened { node, .. } => self.with(node, |node| node.waits += 1),
            Event::StepCompleted { node, error, elapsed, .. } => self.with(node, |node| {
                node.visits += 1;
                node.failures += u64::from(error.is_some());
                node.took.push(u64::try_from(elapsed.as_millis()).unwrap());
            }),
            _ => {}
        }
    }
}

/// Makes a random run, which is resumed until it completes.
async fn run(round: u64, store: &MemoryStore, clock: &Arc<TokioClock>, judge: &Judge) -> (RunId, u64) {
    let mut random = Random::new(round);
    let (answers, counts) = (Mutex::new(Random::new(round ^ 77)), judge.clone());
    let graph = Interpreted::waiting(&LOOP, move |call, params| {
        let mut random = answers.lock().unwrap();
        let does = params["does"].as_str().unwrap();
        counts.with(does, |node| node.calls += 1);
        let most = 10_u64.pow(1 + u32::try_from(random.below(5)).unwrap());
        let time = if does == "work" { random.below(most) } else { 0 };
        let fails = random.below(100) < if does == "work" { 40 } else { 25 };
        let answer = json!(if random.below(3) > 0 { "again" } else { "on" });
        let attempt = call.attempt();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(time)).await;
            if fails { Err(ActionError::permanent(format!("attempt {attempt} failed"))) } else { Ok(answer) }
        })
    });
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    let clock_of_run = Arc::clone(clock) as Arc<dyn Clock>;
    let runtime = builder.clock(clock_of_run).observer(judge.clone()).build().unwrap();
    let run = id(&format!("r{round}"));
    let (mut resumes, mut waited) = (0, 0);
    let mut started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    loop {
        match started.await {
            Ok(_) => return (run, waited),
            Err(RunError::Waiting { .. }) => {
                let time = 60_000 + random.below(1000);
                tokio::time::sleep(Duration::from_millis(time)).await;
                waited += time;
            }
            Err(error) => {
                let is_failure = matches!(error, RunError::Node { .. } | RunError::MaxSteps { .. });
                assert!(is_failure, "round {round}: {error}");
            }
        }
        resumes += 1;
        assert!(resumes < 100, "round {round} does not end");
        started = runtime.resume(graph.clone(), &run).await.unwrap();
    }
}

fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied()
}

#[tokio::test(start_paused = true)]
async fn statistics_of_random_runs_are_those_that_a_judge_counts() {
    let key = SecretKey::from_seed(&KEY).public();
    let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let judge = Judge::default();
    let (mut stats, mut waited, mut failed_at_end) = (Stats::default(), 0, BTreeMap::<String, u64>::new());
    for round in 0..60 {
        let (run, time) = run(round, &store, &clock, &judge).await;
        waited += time;
        let records = store.load(&run).await.unwrap();
        // The ends that name a node outside the branches: their visits have no record.
        let bodies = records.iter().map(|record| serde_json::from_str::<Value>(&record.body).unwrap());
        for end in bodies.filter(|body| body["kind"] == "end" && body["node"] == "last") {
            *failed_at_end.entry(end["node"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        let mut one = Stats::default();
        one.add(&run, &records, &key).unwrap();
        stats.merge(&one);
    }
    let stats = &stats.graphs["test/graph"];
    assert_eq!(stats.runs, BTreeMap::from([("completed", 60)]));
    let counted = judge.0.lock().unwrap();
    assert_eq!(stats.nodes.keys().collect::<Vec<_>>(), counted.keys().collect::<Vec<_>>());
    for (name, node) in &stats.nodes {
        let counted = &counted[name];
        assert_eq!(
            (node.visits, node.failures, node.waits),
            (counted.visits, counted.failures, counted.waits),
            "{name}"
        );
        if counted.calls > 0 {
            assert_eq!(node.retries, counted.calls - counted.visits, "{name}");
        }
        let mut took = counted.took.clone();
        took.sort_unstable();
        let at_end = failed_at_end.get(name).copied().unwrap_or_default();
        assert_eq!(node.latencies.count(), counted.visits - at_end, "{name}");
        assert_eq!((node.open, node.cancelled, node.cached), (0, 0, 0));
        if name == "work" {
            for percent in [50, 90, 99, 100] {
                let (found, exact) = (node.latencies.percentile(percent), percentile(&took, usize::from(percent)));
                let (found, exact) = (found.unwrap(), exact.unwrap());
                assert!(found <= exact && (exact - found) * 100 <= exact, "{percent} %: {found}, not {exact}");
            }
            assert_eq!((node.latencies.max(), node.latencies.sum()), (took.last().copied(), took.iter().sum()));
            // No other step takes time, except for the rounding of a time to milliseconds.
            assert!(stats.steps.sum().abs_diff(node.latencies.sum()) <= 2 * stats.steps.count());
            assert!(node.retries > 50 && node.failures > 2, "{node:?}");
        }
    }
    // A wait is recorded a little after its end.
    let late = stats.nodes["rest"].waited.checked_sub(Duration::from_millis(waited)).unwrap();
    assert!(late < Duration::from_millis(10 * stats.nodes["rest"].waits), "{late:?}");
    assert!(failed_at_end["last"] > 5 && stats.nodes["right"].failures > 5, "failures end runs");
}

#[tokio::test(start_paused = true)]
async fn a_changed_journal_adds_nothing_to_statistics() {
    let key = SecretKey::from_seed(&KEY).public();
    let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let (run, _) = run(1, &store, &clock, &Judge::default()).await;
    let records = store.load(&run).await.unwrap();
    let mut stats = Stats::default();
    for at in 0..records.len() {
        let mut changed = records.clone();
        changed[at].body = changed[at].body.replacen("\"at\":\"19", "\"at\":\"18", 1);
        assert!(stats.add(&run, &changed, &key).is_err(), "record {at}");
        assert!(at == 0 || stats.add(&run, &records[..at], &key).is_err(), "cut before record {at}");
    }
    assert!(stats.add(&run, &[], &key).is_err() && stats.add(&id("other"), &records, &key).is_err());
    assert!(stats.add(&run, &records, &SecretKey::from_seed(&[2; 32]).public()).is_err());
    assert_eq!(stats, Stats::default());
}

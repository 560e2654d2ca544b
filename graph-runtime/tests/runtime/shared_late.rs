//! Shared signals that came in time, of runs whose processes die and which are resumed long after.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::record::{Entry, Follower};
use graph_runtime::store::{Page, StoreError, WaitFilter};
use graph_runtime::{
    Builder, Durability, ManualClock, Map, MemoryStore, NamedSignal, Options, ResumeError, RunError, Runtime,
    SecretKey, SignalError, Status, Store, StoredRunError,
};
use serde_json::json;

use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::random::Random;
use crate::support::{KEY, builder, failing, id};
use crate::waits::{assert_proven, records, store};

/// The bodies of the nodes of a graph, with their names.
type Nodes = Vec<(String, String)>;

/// Returns a graph of one to three branches. Each is a chain of waits for a payment, of calls, or of runs of the graph inside.
fn random_nodes(random: &mut Random, has_inside: bool) -> Nodes {
    let (mut nodes, branches) = (Nodes::new(), 1 + random.below(3));
    let heads: Vec<String> = (0..branches).map(|branch| format!(r#"{{"to":"b{branch}_0"}}"#)).collect();
    nodes.push(("all".to_owned(), format!(r#"{{"line":1,"does":"gate","next":{{"all":[{}]}}}}"#, heads.join(","))));
    let mut last = Vec::new();
    for branch in 0..branches {
        let length = 1 + random.below(2);
        for at in 0..length {
            let next = if at + 1 == length { "met".to_owned() } else { format!("b{branch}_{}", at + 1) };
            // The next node is the target of the wait when its time is over, too.
            let behind = nodes.len() + 1;
            let body = match random.below(if has_inside { 6 } else { 4 }) {
                0 => format!(r#"{{"line":1,"does":{{"action":0}},"params":{at},"next":[{{"to":"{next}"}}]}}"#),
                1..=3 => {
                    let timeout = 600_000 * (1 + random.below(12));
                    let target = if at + 1 == length { "MET".to_owned() } else { behind.to_string() };
                    format!(
                        r#"{{"line":1,"does":"wait","wait":{{"signals":["paid"],"timeout_ms":{timeout},"on_timeout":{target}}},"assign":{{"got":"${{result.paid}}"}},"next":[{{"to":"{next}"}}]}}"#
                    )
                }
                _ => format!(
                    r#"{{"line":1,"does":{{"action":1}},"share_signals":["paid"],"assign":{{"got":{{"inside":"${{result.output}}"}}}},"next":[{{"to":"{next}"}}]}}"#
                ),
            };
            nodes.push((format!("b{branch}_{at}"), body));
        }
        last.push((nodes.len() - 1).to_string());
    }
    let met = nodes.len().to_string();
    nodes.iter_mut().for_each(|(_, body)| *body = body.replace("MET", &met));
    let join = match branches {
        1 => r#"{"line":2,"does":"gate","next":[{"to":"done"}]}"#.to_owned(),
        _ => format!(
            r#"{{"line":2,"does":"gate","join":{{"of":[{}],"fan":0,"closes":true}},"next":[{{"to":"done"}}]}}"#,
            last.join(",")
        ),
    };
    if branches == 1 {
        nodes[0].1 = r#"{"line":1,"does":"gate","next":[{"to":"b0_0"}]}"#.to_owned();
    }
    nodes.push(("met".to_owned(), join));
    nodes.push(("done".to_owned(), r#"{"line":3,"does":"return","output":"${state.got}"}"#.to_owned()));
    nodes
}

/// Something that happens while a run is not in progress.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Minutes(u64),
    /// For the outermost run, or for one inside it that waits or is around a wait. The number chooses which.
    Payment(u64),
    Resumed,
}

pub(crate) struct Case {
    levels: Vec<Nodes>,
    happenings: Vec<Happening>,
}

impl Case {
    pub(crate) fn random(random: &mut Random) -> Self {
        let depth = 2 + random.below(2);
        let mut levels: Vec<Nodes> = (0..depth).map(|level| random_nodes(random, level + 1 < depth)).collect();
        // The outermost graph has one run inside at least.
        let share = r#"{"line":1,"does":{"action":1},"share_signals":["paid"],"assign":{"got":{"inside":"${result.output}"}},"next":[{"to":"NEXT"}]}"#;
        let next = levels[0][1].1.rfind(r#""to":""#).map_or(0, |at| at + 6);
        let next = levels[0][1].1[next..].split('"').next().unwrap().to_owned();
        levels[0][1].1 = share.replace("NEXT", &next);
        let happening = |random: &mut Random| match random.below(5) {
            0 | 1 => Happening::Minutes(1 + random.below(80)),
            2 | 3 => Happening::Payment(random.below(12)),
            _ => Happening::Resumed,
        };
        let happenings = (0..3 + random.below(10)).map(|_| happening(random)).collect();
        Self { levels, happenings }
    }

    pub(crate) fn graph(&self) -> Interpreted {
        let make = |level: usize| {
            let nodes = self.levels[level].iter();
            let nodes: Vec<(&str, &str)> = nodes.map(|(name, body)| (name.as_str(), body.as_str())).collect();
            let (id, digest) = (format!("test/level{level}"), level.to_string().repeat(64));
            let program = Program {
                id: &id,
                digest: &digest,
                keys: &[Key { name: "got", initial: Some("[]") }],
                settings: r#"{"signals":{"paid":{}},"channels":{"got":"append"}}"#,
                tools: &[PROGRAM.tools[0], GRAPH],
                permissions: &["rye.execute.tool.*"],
                nodes: &nodes,
                ..PROGRAM
            };
            Interpreted::new(&program, |_, params| Ok(params))
        };
        let levels = (0..self.levels.len()).rev().map(make);
        levels.reduce(|inner, outer| outer.nesting(inner)).unwrap()
    }
}

/// A run after all that happened to it.
struct Played {
    store: MemoryStore,
    /// The payments that were received, in the order of their receipt: the path to the run that they were sent to, and the time, in
    /// milliseconds since the Unix epoch.
    payments: Vec<(String, i64)>,
}

/// Runs a graph to its end while things happen to it. A write of its store fails, and much of what happens follows that.
async fn played(case: &Case, graph: &Interpreted, crash: Option<(u64, bool)>, durability: Durability) -> Played {
    let (memory, clock) = store();
    let build = |builder: Builder| builder.build().unwrap();
    let payments = happens(case, graph, &memory, &clock, crash, durability, build).await;
    Played { store: memory, payments }
}

/// As [`played`], with runtimes that `build` makes. Returns the payments.
pub(crate) async fn happens(
    case: &Case,
    graph: &Interpreted,
    memory: &MemoryStore,
    clock: &ManualClock,
    crash: Option<(u64, bool)>,
    durability: Durability,
    mut build: impl FnMut(Builder) -> Runtime,
) -> Vec<(String, i64)> {
    let run = id("run");
    let plain = build(builder(memory.clone()));
    let mut crashing = crash.map(|(writes, is_written)| build(builder(failing(memory, writes, is_written))));
    let options = Options { run: Some(run.clone()), durability, ..Options::default() };
    let mut payments = Vec::new();
    let mut left = go_on(crashing.as_ref().unwrap_or(&plain), graph, &options, true).await;
    let rest = [Happening::Resumed, Happening::Minutes(200)].into_iter().cycle().take(100);
    for happening in case.happenings.iter().copied().chain(rest) {
        if left == Some(Status::Running) {
            crashing = None;
        }
        match happening {
            Happening::Minutes(minutes) => clock.advance(Duration::from_secs(60 * minutes)),
            Happening::Payment(pick) => {
                let number = payments.len() + 1;
                let waits = plain.open_waits(&WaitFilter::default(), &Page::default()).await.unwrap().waits;
                let mut paths = BTreeSet::new();
                for row in &waits {
                    let wait = row.wait.id.as_str();
                    paths.extend(wait.match_indices('/').map(|(at, _)| &wait[..=at]));
                }
                // Half of them are for the outermost run.
                let path = paths.iter().nth(usize::try_from(pick).unwrap()).copied().unwrap_or_default();
                let signal = NamedSignal::new(format!("{path}paid"), json!(number));
                match plain.signal(graph, &run, signal, number.to_string()).await {
                    Ok(_) => payments.push((path.to_owned(), memory.now().await.unwrap())),
                    Err(SignalError::Stored(StoredRunError::Store(StoreError::Ended { .. }))) => {}
                    Err(error) => unreachable!("{error}"),
                }
            }
            Happening::Resumed => left = go_on(crashing.as_ref().unwrap_or(&plain), graph, &options, false).await,
        }
    }
    assert_eq!(left, Some(Status::Completed), "it ends");
    payments
}

/// Starts or resumes a run. Returns its status when it is left: `running` if its store failed.
async fn go_on(runtime: &Runtime, graph: &Interpreted, options: &Options, is_new: bool) -> Option<Status> {
    let run = match is_new {
        true => runtime.start_with(options.clone(), graph.clone(), Map::new()).await.unwrap(),
        false => match runtime.resume_with(options.clone(), graph.clone(), &id("run")).await {
            Ok(run) => run,
            Err(ResumeError::Stored(StoredRunError::Store(_))) => return Some(Status::Running),
            Err(error) => unreachable!("{error}"),
        },
    };
    match run.await {
        Ok(_) => Some(Status::Completed),
        Err(RunError::Waiting { .. }) => Some(Status::Waiting),
        Err(RunError::Store { .. }) => Some(Status::Running),
        Err(error) => unreachable!("{error}"),
    }
}

/// Checks independent of the engine that no wait was over by its time although a payment was left that had come before. Returns how many
/// waits payments ended, and how many their time.
async fn check(played: &Played, what: &str) -> (usize, usize) {
    let key = SecretKey::from_seed(&KEY).public();
    let (mut taken, mut overdue, mut ended) = (BTreeSet::new(), Vec::new(), 0);
    for run in played.store.list().await.unwrap() {
        assert_eq!(run.status, Status::Completed, "{} {what}", run.run);
        let (mut due, signed) = (BTreeMap::new(), records(&played.store, &run.run).await);
        for record in Follower::new(run.run.clone(), key.clone()).read(&signed).unwrap() {
            match record.entry {
                Entry::Step(step) => {
                    for visit in step.visits {
                        due.extend(visit.opened.and_then(|opened| opened.due).map(|due| (visit.step, due)));
                        overdue.extend(visit.timed_out.then(|| (run.run.clone(), visit.step, due[&visit.step])));
                    }
                }
                Entry::Take(take) => {
                    for one in take.taken {
                        let Some(signal) = one.signal else { continue };
                        ended += usize::from(one.call == 0);
                        let is_first = taken.insert((signal.order, run.run.clone()));
                        assert!(is_first, "payment {} is taken once by {}: {what}", signal.order, run.run);
                    }
                }
                _ => {}
            }
        }
    }
    for (order, (path, at)) in (1..).zip(&played.payments) {
        if taken.iter().any(|(taken, _)| *taken == order) {
            continue;
        }
        for (run, step, due) in &overdue {
            let inside = run.as_str().strip_prefix("run").unwrap().replace('-', "/");
            let is_for = format!("{inside}/").starts_with(&format!("/{path}"));
            let is_late = !is_for || at >= due;
            assert!(is_late, "payment {order} came in time for visit {step} of {run}, and was left: {what}");
        }
    }
    (ended, overdue.len())
}

/// `LATE=1000 cargo test --release -p state-graph-runtime --test runtime in_time_whatever_dies` takes minutes. `SEED` sets the first seed.
#[tokio::test]
async fn a_shared_signal_is_in_time_whatever_dies() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("LATE", 5), number("SEED", 1));
    let (mut cases, mut ended, mut overdue) = (0_u64, 0, 0);
    for seed in seed..seed + count {
        let mut random = Random::new(seed);
        let case = Case::random(&mut random);
        let graph = case.graph();
        let mut what = format!("SEED={seed} {:?}\n", case.happenings);
        for (name, body) in case.levels.iter().flatten() {
            writeln!(what, "{name}: {body}").unwrap();
        }
        let whole = played(&case, &graph, None, Durability::Sync).await;
        let mut writes = 0;
        for run in whole.store.list().await.unwrap() {
            writes += records(&whole.store, &run.run).await.len() as u64;
        }
        let crashes = (0..writes).flat_map(|write| [(write, false), (write, true)]).map(Some);
        for crash in std::iter::once(None).chain(crashes) {
            let durability =
                [Durability::Sync, Durability::Async, Durability::Exit][usize::try_from(random.below(3)).unwrap()];
            let what = format!("{crash:?} {durability:?} {what}");
            let played = played(&case, &graph, crash, durability).await;
            let (more, late) = check(&played, &what).await;
            (cases, ended, overdue) = (cases + 1, ended + more, overdue + late);
            assert_proven(&played.store, &graph, &id("run"), Status::Completed).await;
        }
    }
    println!("{cases} cases, {ended} waits ended by payments, {overdue} by their time");
    assert!(cases > count && ended > 0 && (overdue > 0 || count < 5), "{cases} {ended} {overdue}");
}

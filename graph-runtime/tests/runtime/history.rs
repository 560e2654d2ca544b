//! Time travel: earlier states of a run, replays with another graph, and forks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{
    Departure, Fork, ForkError, PastError, Replay, Traversal, TraversedWay, checkpoints, differences, entry_at, replay,
    traversal,
};
use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::{
    ActionError, Audit, Call, ForkRun, Map, MemoryStore, RunId, Runtime, SecretKey, Store, StoredRunError, Value,
    audit, audit_tree,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

const KEYS: &[Key<'_>] =
    &[Key { name: "one", initial: None }, Key { name: "two", initial: Some("0") }, Key { name: "all", initial: None }];
const ONE: &str =
    r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"one":"${result.n}"},"next":[{"to":"two"}]}"#;
const TWO: &str = r#"{"line":2,"does":{"action":0},"params":{"n":"${state.one}"},"assign":{"two":"${result.n}"},"next":[{"when":{"path":"state.two","op":"gt","value":3},"to":"each"},{"to":"end"}]}"#;
const EACH: &str = r#"{"line":3,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all","width":1},"next":[{"to":"end"}]}"#;
const END: &str = r#"{"line":4,"does":"return","output":{"two":"${state.two}","all":"${state.all}"}}"#;

/// Calls a tool, calls it with its first result, and then calls it for each item of a list.
const THREE: Program<'static> =
    Program { keys: KEYS, nodes: &[("one", ONE), ("two", TWO), ("each", EACH), ("end", END)], ..PROGRAM };

fn id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

fn runtime(store: &MemoryStore) -> Runtime {
    let builder = Runtime::builder().store(store.clone()).sign_with(key());
    builder.grant("rye.execute.tool.*").unwrap().build().unwrap()
}

/// A tool that doubles `n`, and counts its calls.
fn machine(program: &Program<'_>, calls: &Arc<AtomicUsize>) -> Interpreted {
    let calls = Arc::clone(calls);
    Interpreted::new(program, move |_: &Call, params| {
        calls.fetch_add(1, Ordering::SeqCst);
        params["n"].as_i64().map(|n| json!({"n": n * 2})).ok_or_else(|| ActionError::permanent("no number"))
    })
}

fn silent(program: &Program<'_>) -> Interpreted {
    Interpreted::new(program, |_, _| Err(ActionError::permanent("nothing is to be called")))
}

async fn ran(list: Value) -> (MemoryStore, Vec<SignedRecord>) {
    let store = MemoryStore::new();
    let inputs = Map::from_iter([("list".to_owned(), list)]);
    let machine = machine(&THREE, &Arc::default());
    runtime(&store).start_as(id("run"), machine, inputs).await.unwrap().await.unwrap();
    let records = store.load(&id("run")).await.unwrap();
    (store, records)
}

#[tokio::test]
async fn a_run_is_shown_at_each_of_its_steps() {
    let (_, records) = ran(json!([5])).await;
    let all = checkpoints(&id("run"), &records, &key().public()).unwrap();
    let shown: Vec<_> = all
        .iter()
        .map(|one| {
            let visited: Vec<_> =
                one.visits.iter().map(|visit| (visit.node.as_str(), visit.written.join(","))).collect();
            (one.step, visited, one.next.join(","), one.status)
        })
        .collect();
    let node = |node, wrote: &str| vec![(node, wrote.to_owned())];
    assert_eq!(
        shown,
        [
            (0, vec![], "one".to_owned(), Status::Running),
            (1, node("one", "one"), "two".to_owned(), Status::Running),
            (2, node("two", "two"), "each".to_owned(), Status::Running),
            (3, node("each", "all"), "end".to_owned(), Status::Running),
            (4, node("end", ""), String::new(), Status::Completed),
        ]
    );
    let at = |step| entry_at(&silent(&THREE), &id("run"), &records, &key().public(), None, step);
    let state = |step| at(step).unwrap().state;
    assert_eq!(state(Some(0)), json!({"inputs": {"list": [5]}, "two": 0}));
    assert_eq!(state(Some(2)), json!({"inputs": {"list": [5]}, "one": 2, "two": 4}));
    assert_eq!(state(None), json!({"inputs": {"list": [5]}, "one": 2, "two": 4, "all": [{"n": 10}]}));
    assert_eq!(at(Some(1)).unwrap().next, ["two"]);
    let found = differences(&state(Some(1)), &state(Some(3)));
    assert_eq!(found.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["two", "all"]);
    assert!(matches!(at(Some(5)), Err(PastError::NoSuchStep { step: 5, first: 0, last: 4 })));
    let other = Program { digest: "00000000000000000000000000000000000000000000000000000000000000ab", ..THREE };
    let error = entry_at(&silent(&other), &id("run"), &records, &key().public(), None, None).unwrap_err().to_string();
    assert!(error.contains("the graph that was brought is `test/graph` (00"), "{error}");
    let mut changed = records.clone();
    changed[2].body = changed[2].body.replace("\"n\":4", "\"n\":5");
    assert!(checkpoints(&id("run"), &changed, &key().public()).is_err());
}

fn replayed(changed: &Program<'_>, records: &[SignedRecord]) -> Replay {
    let changed = Program { digest: "00000000000000000000000000000000000000000000000000000000000000ab", ..*changed };
    replay(&silent(&THREE), &silent(&changed), &id("run"), records, &key().public(), None).unwrap()
}

fn said(replay: &Replay) -> Vec<String> {
    replay.deviations.iter().map(|one| format!("{} {} {}", one.step, one.node, one.departure)).collect()
}

#[tokio::test]
async fn irrelevant_graph_change_replays_without_differences() {
    let (_, records) = ran(json!([5, 6])).await;
    let same = replayed(&THREE, &records);
    assert_eq!((said(&same), same.visits, same.stopped.clone()), (vec![], 4, None));
    assert_eq!(same.output, Some(json!({"two": 4, "all": [{"n": 10}, {"n": 12}]})));
    let other_edges = TWO.replace("\"value\":3", "\"value\":2");
    let nodes = &[("one", ONE), ("two", other_edges.as_str()), ("each", EACH), ("end", END)];
    assert_eq!(said(&replayed(&Program { nodes, ..THREE }, &records)), [""; 0]);
}

#[tokio::test]
async fn replay_reports_where_a_changed_graph_diverges_and_effects() {
    let (_, records) = ran(json!([5])).await;
    let higher = TWO.replace("\"value\":3", "\"value\":9");
    let nodes = &[("one", ONE), ("two", higher.as_str()), ("each", EACH), ("end", END)];
    let replay = replayed(&Program { nodes, ..THREE }, &records);
    assert_eq!(
        said(&replay),
        [
            "2 two leads to `end`, where it led to `each`",
            "3 end is visited without `each` before it",
            "3 end the run returns something else, at `all`",
        ]
    );
    assert_eq!((replay.stopped.clone(), replay.output.clone()), (None, Some(json!({"two": 4, "all": null}))));
}

#[tokio::test]
async fn replay_uses_answers_of_the_same_call_and_stops_without_one() {
    let (_, records) = ran(json!([5])).await;
    let seven = ONE.replace("\"n\":1", "\"n\":7");
    let nodes = &[("one", seven.as_str()), ("two", TWO), ("each", EACH), ("end", END)];
    let replay = replayed(&Program { nodes, ..THREE }, &records);
    assert_eq!(said(&replay), ["1 one calls `test/tool` with {\"n\":7}, where it called `test/tool` with {\"n\":1}"]);
    let stopped = replay.stopped.unwrap();
    assert_eq!((stopped.step, stopped.node.as_str()), (1, "one"));
    assert_eq!(stopped.reason, "no answer is recorded to its call of `test/tool`");
    // A call that the run made at another node has its recorded answer.
    let two = ONE.replace("\"n\":1", "\"n\":2");
    let nodes = &[("one", two.as_str()), ("two", TWO), ("each", EACH), ("end", END)];
    let replay = replayed(&Program { nodes, ..THREE }, &records);
    let kinds: Vec<_> = replay.deviations.iter().map(|one| (one.step, &one.departure)).collect();
    assert!(matches!(kinds[0], (1, Departure::Calls { .. })), "{kinds:?}");
    assert!(
        matches!(kinds[1], (1, Departure::Writes { key, recorded, now })
            if key == "one" && *recorded == Some(json!(2)) && *now == Some(json!(4))),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn replay_reports_removed_and_new_nodes_and_compares_the_rest() {
    let (_, records) = ran(json!([5])).await;
    let to_end = TWO.replace("\"to\":\"each\"", "\"to\":\"between\"");
    let between = r#"{"line":3,"does":"gate","next":[{"to":"end"}]}"#;
    let nodes = &[("one", ONE), ("two", to_end.as_str()), ("between", between), ("end", END)];
    let replay = replayed(&Program { nodes, ..THREE }, &records);
    assert_eq!(
        said(&replay),
        [
            "2 two leads to `between`, where it led to `each`",
            "3 between is visited, and was not",
            "4 end is visited without `each` before it",
            "4 end the run returns something else, at `all`",
        ]
    );
}

async fn audited(store: &MemoryStore, run: &str) -> Result<Audit, String> {
    let machine = Arc::new(silent(&THREE));
    let all = audit_tree(machine, &id(run), store, &key().public(), None).await.map_err(|error| error.to_string())?;
    Ok(all[0].clone())
}

#[tokio::test]
async fn a_fork_begins_where_another_run_was_and_goes_its_own_way() {
    let (store, before) = ran(json!([5])).await;
    let runtime = runtime(&store);
    let set = Map::from_iter([("one".to_owned(), json!(50))]);
    let fork = Fork { step: Some(1), set, run: Some(id("fork")), ..Fork::default() };
    assert_eq!(runtime.fork(&silent(&THREE), &id("run"), fork).await.unwrap(), id("fork"));
    assert_eq!(store.load(&id("run")).await.unwrap(), before, "the origin is not changed");
    let begun = audited(&store, "fork").await.unwrap();
    assert_eq!((begun.status, begun.steps, begun.is_origin_proven), (Status::Running, 1, true));
    let calls = Arc::new(AtomicUsize::new(0));
    let ended = runtime.resume(machine(&THREE, &calls), &id("fork")).await.unwrap().await.unwrap();
    assert_eq!((ended.output, ended.steps), (json!({"two": 100, "all": [{"n": 10}]}), 4));
    assert_eq!(calls.load(Ordering::SeqCst), 2, "what was done before the fork is not done again");
    let records = store.load(&id("fork")).await.unwrap();
    let proven = audited(&store, "fork").await.unwrap();
    assert_eq!((proven.status, proven.steps, proven.is_origin_proven), (Status::Completed, 4, true));
    assert_eq!(proven.from.unwrap().changed, ["one"]);
    let all = checkpoints(&id("fork"), &records, &key().public()).unwrap();
    assert_eq!(all.iter().map(|one| one.step).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let first = entry_at(&silent(&THREE), &id("fork"), &records, &key().public(), None, Some(1)).unwrap();
    assert_eq!(first.state, json!({"inputs": {"list": [5]}, "one": 50, "two": 0}));
    let early = entry_at(&silent(&THREE), &id("fork"), &records, &key().public(), None, Some(0)).unwrap_err();
    assert!(matches!(early, PastError::NoSuchStep { step: 0, first: 1, last: 4 }), "{early}");
    let same = replay(&silent(&THREE), &silent(&THREE), &id("fork"), &records, &key().public(), None).unwrap();
    assert_eq!(said(&same), [""; 0]);
    // A fork of a fork. Without its origin everything is proven except the origin.
    let again = Fork { step: Some(2), run: Some(id("again")), ..Fork::default() };
    runtime.fork(&silent(&THREE), &id("fork"), again).await.unwrap();
    assert!(audited(&store, "again").await.unwrap().is_origin_proven);
    let alone = audit(&silent(&THREE), &id("fork"), &records, &key().public(), None).unwrap();
    assert!(!alone.is_origin_proven);
}

#[tokio::test]
async fn a_fork_that_says_it_began_elsewhere_than_it_did_is_found() {
    let (store, _) = ran(json!([5])).await;
    let runtime = runtime(&store);
    let fork = Fork { step: Some(1), run: Some(id("fork")), ..Fork::default() };
    runtime.fork(&silent(&THREE), &id("run"), fork).await.unwrap();
    // The origin is another run of the same name.
    let other = MemoryStore::new();
    let inputs = Map::from_iter([("list".to_owned(), json!([6]))]);
    let graph = machine(&THREE, &Arc::default());
    self::runtime(&other).start_as(id("run"), graph, inputs).await.unwrap().await.unwrap();
    drop(other.create(&id("fork"), "test/graph", store.load(&id("fork")).await.unwrap()).await.unwrap());
    let error = audited(&other, "fork").await.unwrap_err();
    assert!(error.contains("there is another record where it says that it began in run `run`"), "{error}");
}

#[tokio::test]
async fn a_fork_that_does_not_fit_is_refused_and_leaves_nothing() {
    let (store, _) = ran(json!([5])).await;
    let runtime = runtime(&store);
    let fork = async |step, set: Value, run: &str| {
        let Value::Object(set) = set else { unreachable!() };
        let fork = Fork { step, set, run: Some(id(run)), ..Fork::default() };
        runtime.fork(&silent(&THREE), &id("run"), fork).await.unwrap_err()
    };
    let error = fork(Some(1), json!({"three": 3}), "new").await;
    assert_eq!(error.to_string(), "the graph has no state key `three`; it has `one`, `two`, `all`");
    assert!(matches!(fork(None, json!({}), "new").await, ForkError::Ended { step: 4, .. }));
    let error = fork(Some(9), json!({}), "new").await;
    assert_eq!(error.to_string(), "cannot fork run `run`: the run has no step 9: its steps are 0 to 4");
    assert!(
        matches!(fork(Some(1), json!({}), "run").await, ForkError::Stored(StoredRunError::Store(_))),
        "a run exists once"
    );
    assert_eq!(store.list().await.unwrap().len(), 1);
}

/// A join that too few branches can reach leads to its other node.
#[tokio::test]
async fn a_traversal_knows_of_a_join_that_too_few_branches_reach() {
    for (fails, ways) in [(true, [0, 1]), (false, [1, 0])] {
        let nodes = &[
            ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"}],"on_branch_error":"collect"}}"#),
            ("a", r#"{"line":2,"does":{"action":0},"params":"a","next":[{"to":"met"}]}"#),
            ("b", r#"{"line":2,"does":{"action":0},"params":"b","next":[{"to":"met"}]}"#),
            (
                "met",
                r#"{"line":3,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true,"quorum":{"need":2,"fewer":5}},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":4,"does":"return"}"#),
            ("few", r#"{"line":5,"does":"return"}"#),
        ];
        let graph = Interpreted::new(&Program { nodes, ..PROGRAM }, move |_, params| match params.as_str() {
            Some("a") if fails => Err(ActionError::permanent("a fails")),
            _ => Ok(params),
        });
        let (store, run) = (MemoryStore::new(), id("run"));
        runtime(&store).start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap();
        let seen = traversal(&graph, &run, &store.load(&run).await.unwrap(), &key().public()).unwrap();
        let times = |way| seen.ways.get(&(3, way)).copied().unwrap_or_default();
        assert_eq!([times(TraversedWay::Edge(0)), times(TraversedWay::Fewer)], ways);
    }
}

/// The visits of a run and the ways that it took, counted: a loop, branches for a list, a failure with a target, and a wait.
#[tokio::test]
async fn a_traversal_counts_visits_and_ways() {
    let nodes = &[
        (
            "again",
            r#"{"line":1,"does":"gate","next":[{"to":"again","when":{"path":"visit.number","op":"lt","value":3}},{"to":"each"}]}"#,
        ),
        ("each", r#"{"line":2,"does":"gate","next":{"over":"${inputs.list}","as":"n","to":"call"}}"#),
        ("call", r#"{"line":3,"does":{"action":0},"params":"${n}","on_error":3,"next":[{"to":"rest"}]}"#),
        (
            "rest",
            r#"{"line":4,"does":"wait","wait":{"signals":["go"],"timeout_ms":1000,"on_timeout":4},"join":{"of":[2],"fan":1,"closes":true},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":5,"does":"return"}"#),
    ];
    let program = Program { nodes, settings: r#"{"signals":{"go":{}}}"#, ..PROGRAM };
    let graph = Interpreted::new(&program, |_, params| match params.as_i64() {
        Some(2) => Err(ActionError::permanent("two fails")),
        _ => Ok(params),
    });
    let ((store, clock), run) = (crate::waits::store(), id("run"));
    let runtime = runtime(&store);
    let inputs = Map::from_iter([("list".to_owned(), json!([1, 2, 3]))]);
    runtime.start_as(run.clone(), graph.clone(), inputs).await.unwrap().await.unwrap_err();
    let key = key().public();
    let seen = async || traversal(&graph, &run, &store.load(&run).await.unwrap(), &key).unwrap();
    let visits = |seen: &Traversal| seen.nodes.iter().map(|node| (node.visits, node.open)).collect::<Vec<_>>();
    let waiting = seen().await;
    assert_eq!((waiting.status, waiting.steps), (Status::Waiting, 7));
    assert_eq!(visits(&waiting), [(3, 0), (1, 0), (3, 0), (0, 1), (0, 0)]);
    clock.advance(Duration::from_secs(1));
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    let ended = seen().await;
    assert_eq!((ended.status, ended.steps), (Status::Completed, 9));
    assert_eq!(visits(&ended), [(3, 0), (1, 0), (3, 0), (1, 0), (1, 0)]);
    let ways = [
        ((0, TraversedWay::Edge(0)), 2),
        ((0, TraversedWay::Edge(1)), 1),
        ((1, TraversedWay::Edge(0)), 3),
        ((2, TraversedWay::Edge(0)), 2),
        ((2, TraversedWay::OnError), 1),
        ((3, TraversedWay::OnTimeout), 1),
        ((4, TraversedWay::Out), 1),
    ];
    assert_eq!(ended.ways.into_iter().collect::<Vec<_>>(), ways);
}

//! Branches that a quorum does not need, and that run on.

use std::sync::Arc;

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{Fork, checkpoints, entry_at, replay};
use graph_runtime::record::{Entry, Record, Status};
use graph_runtime::{ActionError, ForkRun, Map, MemoryStore, SecretKey, Store, audit, audit_tree};
use serde_json::{Value, json};

use crate::durability::{Tokens, cut};
use crate::forged::edited;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, id, kinds, runtime};

/// A graph that begins in two nodes, of which one is enough: the other one makes some rounds, and its last node fails. The run
/// returns, or ends without a return.
pub(crate) fn late(rounds: usize, returns: bool) -> Interpreted {
    let round = format!(
        r#"{{"line":1,"does":"gate","assign":{{"seen":"${{visit.number}}"}},"next":[
            {{"to":"round","when":{{"path":"visit.number","op":"lt","value":{rounds}}}}},{{"to":"fails"}}]}}"#
    );
    let join = r#""join":{"of":[1,2],"fan":5,"closes":true,"quorum":{"need":1,"rest":"finish"}}"#;
    let won = format!(r#"{{"line":4,"does":"gate","assign":{{"seen":"won"}},"next":[{{"to":"done"}}],{join}}}"#);
    let done = r#"{"line":5,"does":"return","output":{"seen":"${state.seen}","why":"${state._last_error}"}}"#;
    let nodes = [
        ("round", &*round),
        ("fails", r#"{"line":2,"does":{"action":0},"next":[{"to":"won"}]}"#),
        ("once", r#"{"line":3,"does":"gate","assign":{"seen":"once"},"next":[{"to":"won"}]}"#),
        ("won", &won),
        ("done", if returns { done } else { r#"{"line":5,"does":"gate"}"# }),
        ("config.start", r#"{"line":6,"does":"start","next":{"all":[{"to":"round"},{"to":"once"}]}}"#),
    ];
    let program = Program {
        start: 5,
        nodes: &nodes,
        settings: r#"{"channels":{"seen":"append"},"max_steps":500}"#,
        keys: &[Key { name: "seen", initial: Some("[]") }],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, _| Err(ActionError::permanent("it fails")))
}

#[tokio::test]
async fn a_run_is_resumed_from_a_snapshot_while_its_return_waits() {
    let graph = late(300, true);
    let whole = MemoryStore::new();
    let tokens = Tokens::over(&whole);
    let first =
        runtime(tokens.store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    assert_eq!((first.steps, first.status), (304, Status::CompletedWithErrors));
    assert_eq!(first.output["why"], Value::Null, "the failure is that of a late branch");
    assert_eq!(first.output["seen"].as_array().unwrap().len(), 302);
    let (records, key) = (whole.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
    let snapshot = kinds(&records).iter().position(|kind| kind == "snapshot").expect("the run is long enough for one");
    let body: Value = serde_json::from_str(&records[snapshot].body).unwrap();
    assert_eq!(body["returning"], json!({"number": 0, "node": "done"}), "{body}");
    assert_eq!((&body["joins"][0]["node"], &body["joins"][0]["over"]), (&json!("won"), &json!(true)), "{body}");
    for length in [snapshot + 1, snapshot + 5, records.len() - 2] {
        let cut = cut(&whole, &tokens, length).await;
        let again = runtime(cut.clone()).resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
        assert_eq!((&again.output, again.steps), (&first.output, first.steps), "cut at {length}");
        audit(&graph, &id("run"), &cut.load(&id("run")).await.unwrap(), &key, None).unwrap();
    }
    let forgeries: [&dyn Fn(&mut Value); 5] = [
        &|record| drop(record.as_object_mut().unwrap().remove("returning")),
        &|record| record["returning"]["node"] = json!("won"),
        &|record| record["returning"]["number"] = json!(3),
        &|record| drop(record["joins"][0].as_object_mut().unwrap().remove("over")),
        &|record| drop(record.as_object_mut().unwrap().remove("joins")),
    ];
    for (at, forgery) in forgeries.into_iter().enumerate() {
        assert!(audit(&graph, &id("run"), &edited(&records, snapshot, forgery), &key, None).is_err(), "forgery {at}");
    }
}

#[tokio::test]
async fn no_node_behind_the_joins_around_late_branches_knows_of_their_failures() {
    let round = r#"{"line":3,"does":"gate","next":[
        {"to":"round","when":{"path":"visit.number","op":"lt","value":3}},{"to":"fails"}]}"#;
    let quorum = r#""quorum":{"need":1,"rest":"finish"}"#;
    let won = format!(
        r#"{{"line":6,"does":"gate","next":[{{"to":"both"}}],"join":{{"of":[3,4],"fan":1,"closes":true,{quorum}}}}}"#
    );
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"inner"},{"to":"beside"}]}}"#),
        ("inner", r#"{"line":2,"does":"gate","next":{"all":[{"to":"round"},{"to":"quick"}]}}"#),
        ("round", round),
        ("fails", r#"{"line":4,"does":{"action":0},"next":[{"to":"won"}]}"#),
        ("quick", r#"{"line":5,"does":"gate","next":[{"to":"won"}]}"#),
        ("won", &won),
        ("beside", r#"{"line":7,"does":{"action":0},"on_error":8,"next":[{"to":"both"}]}"#),
        (
            "both",
            r#"{"line":8,"does":"return","join":{"of":[5,6,8],"fan":0,"closes":true},"output":"${state._last_error}"}"#,
        ),
        ("sorry", r#"{"line":9,"does":"gate","next":[{"to":"both"}]}"#),
    ];
    let program = Program { nodes: &nodes, ..PROGRAM };
    let graph = Interpreted::new(&program, |call, _| Err(ActionError::permanent(call.node())));
    let store = MemoryStore::new();
    let ended = runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    assert_eq!(ended.output, json!({"node": "beside", "error": "beside"}), "not the one in the late branch");
    assert_eq!(ended.errors.iter().map(|failed| failed.node.as_str()).collect::<Vec<_>>(), ["fails"]);
    let (records, key) = (store.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
    audit(&graph, &id("run"), &records, &key, None).unwrap();
}

#[tokio::test]
async fn no_partial_join_around_late_branches_knows_of_their_failures() {
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"inner"},{"to":"beside"},{"to":"rest"}]}}"#),
        ("inner", r#"{"line":2,"does":"gate","next":{"all":[{"to":"slow"},{"to":"quick"}]}}"#),
        ("slow", r#"{"line":3,"does":"gate","next":[{"to":"fails"}]}"#),
        ("fails", r#"{"line":4,"does":{"action":0},"next":[{"to":"won"}]}"#),
        ("quick", r#"{"line":5,"does":"gate","next":[{"to":"won"}]}"#),
        (
            "won",
            r#"{"line":6,"does":"gate","next":[{"to":"some"}],"join":{"of":[3,4],"fan":1,"closes":true,"quorum":{"need":1,"rest":"finish"}}}"#,
        ),
        ("beside", r#"{"line":7,"does":"gate","next":[{"to":"some"}]}"#),
        (
            "some",
            r#"{"line":8,"does":"gate","assign":{"seen":"${state._last_error}"},"next":[{"to":"all"}],"join":{"of":[5,6],"fan":0}}"#,
        ),
        ("rest", r#"{"line":9,"does":"gate","next":[{"to":"all"}]}"#),
        (
            "all",
            r#"{"line":10,"does":"return","join":{"of":[7,8],"fan":0,"closes":true},"output":["${state.seen}","${state._last_error}"]}"#,
        ),
    ];
    let keys = &[Key { name: "seen", initial: None }];
    let graph =
        Interpreted::new(&Program { nodes: &nodes, keys, ..PROGRAM }, |_, _| Err(ActionError::permanent("it fails")));
    let store = MemoryStore::new();
    let ended = runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    assert_eq!(ended.output, json!([null, null]), "{:?}", ended.errors);
    assert_eq!(ended.errors.iter().map(|failed| failed.node.as_str()).collect::<Vec<_>>(), ["fails"]);
}

/// A graph in whose late branch a failure would be held for a fan-out inside of it. It fails before the quorum is decided, or
/// behind that. The run returns, or a return in another branch cancels the late one.
pub(crate) fn held_in_late(before: bool, cancels: bool) -> Interpreted {
    let inner = r#"{"line":2,"does":"gate","next":{"all":[{"to":"fails"},{"to":"loop"}],"on_branch_error":"finish"}}"#;
    let waiting = if before { 4 } else { 1 };
    let quick = format!(
        r#"{{"line":6,"does":"gate","next":[
            {{"to":"quick","when":{{"path":"visit.number","op":"lt","value":{waiting}}}}},{{"to":"won"}}]}}"#
    );
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"inner"},{"to":"quick"}]}}"#),
        ("inner", inner),
        ("fails", r#"{"line":3,"does":{"action":0},"next":[{"to":"joined"}]}"#),
        (
            "loop",
            r#"{"line":4,"does":"gate","next":[{"to":"loop","when":{"path":"visit.number","op":"lt","value":7}},{"to":"joined"}]}"#,
        ),
        ("joined", r#"{"line":5,"does":"gate","next":[{"to":"won"}],"join":{"of":[2,3],"fan":1,"closes":true}}"#),
        ("quick", &*quick),
        (
            "won",
            r#"{"line":7,"does":"gate","next":[{"to":"more"}],"join":{"of":[4,5],"fan":0,"closes":true,"quorum":{"need":1,"rest":"finish"}}}"#,
        ),
        ("more", r#"{"line":8,"does":"gate","next":[{"to":"done"}]}"#),
        (
            "done",
            if cancels {
                r#"{"line":9,"does":"return","cancels":true,"output":"${state._last_error}"}"#
            } else {
                r#"{"line":9,"does":"return","output":"${state._last_error}"}"#
            },
        ),
    ];
    let program = Program { nodes: &nodes, ..PROGRAM };
    Interpreted::new(&program, |_, _| Err(ActionError::permanent("it fails")))
}

#[tokio::test]
async fn a_failure_in_a_late_branch_is_held_for_nothing() {
    for (before, cancels) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("before: {before}, cancels: {cancels}");
        let (graph, store) = (held_in_late(before, cancels), MemoryStore::new());
        let ended = runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
        let failed: Vec<&str> = ended.errors.iter().map(|failed| failed.node.as_str()).collect();
        assert_eq!((ended.status, failed), (Status::CompletedWithErrors, vec!["fails"]), "{what}");
        // The branches that had failed before the join was visited are known behind it.
        let known = if before { json!({"node": "fails", "error": "it fails"}) } else { Value::Null };
        assert_eq!(ended.output, known, "{what}");
        let (records, key) = (store.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
        audit(&graph, &id("run"), &records, &key, None).unwrap();
        let same = replay(&graph, &graph, &id("run"), &records, &key, None).unwrap();
        assert!(same.deviations.is_empty() && same.stopped.is_none(), "{what}: {:?}", same.deviations);
        let all = checkpoints(&id("run"), &records, &key).unwrap();
        let failed = all.iter().position(|one| one.visits.iter().any(|visit| visit.node == "fails")).unwrap();
        // A failure before the quorum is decided is held until then.
        let waits = if before { 4 } else { 0 };
        for one in &all[failed + waits..] {
            assert!(one.next.iter().all(|node| node != "fails"), "{what}: it is not made again: {one:?}");
        }
    }
}

/// A graph whose late branch handles its failure, and then returns.
pub(crate) fn returning_late() -> Interpreted {
    let won = r#"{"line":5,"does":"gate","next":[{"to":"more"}],"join":{"of":[3],"fan":0,"closes":true,"quorum":{"need":1,"rest":"finish"}}}"#;
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"slow"},{"to":"quick"}]}}"#),
        ("slow", r#"{"line":2,"does":"gate","next":[{"to":"fails"}]}"#),
        ("fails", r#"{"line":3,"does":{"action":0},"on_error":6,"next":[{"to":"out"}]}"#),
        ("quick", r#"{"line":4,"does":"gate","next":[{"to":"won"}]}"#),
        ("won", won),
        ("out", r#"{"line":6,"does":"return","cancels":true,"output":"${state._last_error}"}"#),
        ("sorry", r#"{"line":7,"does":"gate","next":[{"to":"out"}]}"#),
        (
            "more",
            r#"{"line":8,"does":"gate","next":[{"to":"more","when":{"path":"visit.number","op":"lt","value":9}},{"to":"out"}]}"#,
        ),
    ];
    Interpreted::new(&Program { nodes: &nodes, ..PROGRAM }, |_, _| Err(ActionError::permanent("it fails")))
}

#[tokio::test]
async fn a_step_says_which_branches_are_late() {
    let (graph, store) = (late(3, true), MemoryStore::new());
    runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    let (records, key) = (store.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
    let steps = records.iter().enumerate().filter_map(|(at, record)| {
        match serde_json::from_str::<Record>(&record.body).unwrap().entry {
            Entry::Step(step) => Some((at, step)),
            _ => None,
        }
    });
    let steps: Vec<_> = steps.collect();
    let visits =
        |at: usize| steps[at].1.visits.iter().map(|visit| (visit.node.as_str(), visit.late)).collect::<Vec<_>>();
    assert_eq!(visits(0), [("round", false), ("once", false)]);
    assert_eq!(visits(1), [("won", false), ("round", true)]);
    assert_eq!(visits(2), [("round", true)]);
    assert_eq!(visits(3), [("fails", true)]);
    assert_eq!(visits(4), [("done", false)]);
    assert!(steps[0].1.joins[0].over && steps[1].1.joins.is_empty());
    let (second, last) = (steps[1].0, steps[4].0);
    type Forgery<'a> = (usize, &'a dyn Fn(&mut Value), &'a str);
    let forgeries: [Forgery<'_>; 5] = [
        (second, &|record| record["visits"][0]["late"] = json!(true), "the run had not continued without"),
        (
            second,
            &|record| drop(record["visits"][1].as_object_mut().unwrap().remove("late")),
            "the run had continued without",
        ),
        (second, &|record| record["joins"] = json!([{"node": "won", "fan": 0, "over": true}]), "joins"),
        (second, &|record| record["next"][0] = json!({"number": 5, "node": "done"}), "next"),
        (last, &|record| record["visits"][0]["late"] = json!(true), "the run had not continued without"),
    ];
    for (at, forgery, expected) in forgeries {
        let found = audit(&graph, &id("run"), &edited(&records, at, forgery), &key, None).unwrap_err();
        assert!(found.to_string().contains(expected), "{expected}: {found}");
    }
}

#[tokio::test]
async fn forks_at_each_step_end_as_the_run_with_late_branches() {
    for returns in [true, false] {
        let (graph, store) = (late(4, returns), MemoryStore::new());
        let runtime = runtime(store.clone());
        let whole = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
        let (records, key) = (store.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
        let all = checkpoints(&id("run"), &records, &key).unwrap();
        assert_eq!(all.last().map(|one| one.visits[0].node.as_str()), Some(if returns { "done" } else { "fails" }));
        let last = entry_at(&graph, &id("run"), &records, &key, None, None).unwrap().last;
        assert_eq!(last.as_deref(), Some("done"), "the run ends where it is without its late branches");
        for one in &all[..all.len() - 1] {
            let name = id(&format!("fork-{}", one.step));
            let fork = Fork { step: Some(one.step), run: Some(name.clone()), ..Fork::default() };
            runtime.fork(&graph, &id("run"), fork).await.unwrap();
            let ended = runtime.resume(graph.clone(), &name).await.unwrap().await.unwrap();
            assert_eq!(
                (&ended.output, ended.steps, &ended.state),
                (&whole.output, whole.steps, &whole.state),
                "{name}"
            );
            let proven = audit_tree(Arc::new(graph.clone()), &name, &store, &key, None).await.unwrap();
            assert!(proven[0].is_origin_proven, "{name}");
            let of_fork = store.load(&name).await.unwrap();
            let same = replay(&graph, &graph, &name, &of_fork, &key, None).unwrap();
            assert!(same.deviations.is_empty() && same.stopped.is_none(), "{name}: {:?}", same.deviations);
        }
    }
}

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
    let tokens = Tokens::over(&whole, u64::MAX);
    let first = runtime(tokens.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
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

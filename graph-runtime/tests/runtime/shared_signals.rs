//! Signals that a node shares with the graph that it runs.

use std::sync::Arc;
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{Fork, ForkRun};
use graph_runtime::record::SignedRecord;
use graph_runtime::{
    ActionError, ManualClock, Map, MemoryStore, NamedSignal, RunError, RunId, Runtime, SecretKey, SignalError, Status,
    Store, Value, audit_tree,
};
use serde_json::json;

use crate::forged::edited;
use crate::inside::{GRAPH, with};
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, failing, id, runtime};
use crate::waits::{assert_proven, records, store};

/// A graph that waits twice for a payment, each time a day.
const INNER: Program<'static> = Program {
    id: "test/inner",
    keys: &[Key { name: "got", initial: Some("[]") }],
    settings: r#"{"signals":{"paid":{},"note":{}},"channels":{"got":"append"}}"#,
    nodes: &[
        (
            "first",
            r#"{"line":1,"does":"wait","wait":{"signals":["paid"],"timeout_ms":86400000,"on_timeout":2},"assign":{"got":"${result.paid}"},"next":[{"to":"second"}]}"#,
        ),
        (
            "second",
            r#"{"line":2,"does":"wait","wait":{"signals":["paid","note"]},"assign":{"got":"${result.signal}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":3,"does":"return","output":"${state.got}"}"#),
    ],
    ..PROGRAM
};

/// A graph with three branches: one that waits for a payment itself between two that run the graph, and share payments with it.
const OUTER: Program<'static> = Program {
    keys: &[Key { name: "got", initial: Some("[]") }],
    settings: r#"{"signals":{"paid":{},"note":{}},"channels":{"got":"append"},"on_error":"continue"}"#,
    tools: &[GRAPH],
    permissions: &["rye.execute.tool.test.tool"],
    nodes: &[
        ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"own"},{"to":"two"}]}}"#),
        (
            "one",
            r#"{"line":2,"does":{"action":0},"share_signals":["paid"],"assign":{"got":{"one":"${result.output}"}},"next":[{"to":"met"}]}"#,
        ),
        (
            "own",
            r#"{"line":3,"does":"wait","wait":{"signals":["paid"]},"assign":{"got":{"own":"${result.paid}"}},"next":[{"to":"met"}]}"#,
        ),
        (
            "two",
            r#"{"line":4,"does":{"action":0},"share_signals":["paid"],"assign":{"got":{"two":"${result.output}"}},"next":[{"to":"met"}]}"#,
        ),
        ("met", r#"{"line":5,"does":"gate","join":{"of":[1,2,3],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":6,"does":"return","output":"${state.got}"}"#),
    ],
    ..PROGRAM
};

fn graph() -> Interpreted {
    let inner = Interpreted::new(&INNER, |_, params| Ok(params));
    Interpreted::new(&OUTER, |_, params| Ok(params)).nesting(inner)
}

/// Returns a graph whose only visit runs a graph with these nodes, and shares payments with it.
fn around(nodes: &[(&str, &str)]) -> Interpreted {
    let inner = Interpreted::new(&Program { nodes, ..INNER }, |_, params| Ok(params));
    let one = OUTER.nodes[1].1.replace("met", "done");
    let outer = Program { nodes: &[("one", one.as_str()), OUTER.nodes[5]], ..OUTER };
    Interpreted::new(&outer, |_, params| Ok(params)).nesting(inner)
}

struct Shop {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    runtime: Runtime,
    graph: Interpreted,
    run: RunId,
}

impl Shop {
    async fn waiting() -> Self {
        let ((store, clock), run) = (store(), id("run"));
        let (runtime, graph) = (runtime(store.clone()), graph());
        let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        let RunError::Waiting { waits, .. } = started.await.unwrap_err() else { unreachable!("it waits") };
        let waits: Vec<_> = waits.into_iter().map(|wait| (wait.id.to_string(), wait.signals)).collect();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = [
            ("2/1#1".to_owned(), names(&["2/paid", "paid"])),
            ("3#1".to_owned(), names(&["paid"])),
            ("4/1#1".to_owned(), names(&["4/paid", "paid"])),
        ];
        assert_eq!(waits, expected);
        Self { store, clock, runtime, graph, run }
    }

    async fn send(&self, name: &str, number: u64) {
        let signal = NamedSignal::new(name, json!(number));
        self.runtime.signal(&self.graph, &self.run, signal, format!("id-{number}")).await.unwrap();
    }

    /// Returns the ids of the waits that are open, or the output.
    async fn resumed(&self) -> Result<Value, Vec<String>> {
        match self.runtime.resume(self.graph.clone(), &self.run).await.unwrap().await {
            Ok(finished) => Ok(finished.output),
            Err(RunError::Waiting { waits, .. }) => Err(waits.into_iter().map(|wait| wait.id.to_string()).collect()),
            Err(error) => unreachable!("{error}"),
        }
    }

    async fn left(&self) -> usize {
        self.store.inbox(&self.run).await.unwrap().signals.len()
    }

    /// Returns the error of an audit of the runs of a store.
    async fn refusal(&self, store: &MemoryStore) -> Option<String> {
        let key = SecretKey::from_seed(&KEY).public();
        let audited = audit_tree(Arc::new(self.graph.clone()), &self.run, store, &key, None).await;
        audited.err().map(|error| error.to_string())
    }
}

fn open(ids: &[&str]) -> Result<Value, Vec<String>> {
    Err(ids.iter().map(|id| (*id).to_owned()).collect())
}

/// If several waits could take a signal, that with the lowest number does, wherever it is.
#[tokio::test]
async fn a_shared_signal_ends_the_first_wait() {
    let shop = Shop::waiting().await;
    shop.send("paid", 1).await;
    assert_eq!(shop.resumed().await, open(&["2/2#1", "3#1", "4/1#1"]));
    // One for each of the three, and one that is left until somebody waits again.
    for number in 2..=5 {
        shop.send("paid", number).await;
    }
    assert_eq!(shop.left().await, 4);
    assert_eq!(shop.resumed().await, Ok(json!([{"one": [1, "paid"]}, {"own": 3}, {"two": [4, "paid"]}])));
    assert_eq!(shop.left().await, 0);
    assert_proven(&shop.store, &shop.graph, &shop.run, Status::Completed).await;
}

/// A signal that a run inside receives for itself, and one that is not shared, do not reach others.
#[tokio::test]
async fn signals_that_are_not_shared_stay_where_they_were_sent() {
    let shop = Shop::waiting().await;
    shop.send("4/paid", 1).await;
    shop.send("note", 2).await;
    shop.send("2/note", 3).await;
    assert_eq!(shop.resumed().await, open(&["2/1#1", "3#1", "4/2#1"]));
    // Its own comes with it, and the shared one is kept for the visit.
    shop.send("4/note", 4).await;
    shop.send("paid", 5).await;
    shop.send("paid", 6).await;
    assert_eq!(shop.resumed().await, Ok(json!([{"own": 6}, {"two": [1, "note"]}, {"one": [5, "note"]}])));
    let inbox = shop.store.inbox(&shop.run).await.unwrap().signals;
    assert_eq!(inbox.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["note"]);
    assert_proven(&shop.store, &shop.graph, &shop.run, Status::Completed).await;
}

/// A signal that came in time counts, however late the run continues, also inside.
#[tokio::test]
async fn a_shared_signal_is_in_time_if_it_was_received_in_time() {
    let shop = Shop::waiting().await;
    shop.clock.advance(Duration::from_secs(86_399));
    shop.send("paid", 1).await;
    shop.clock.advance(Duration::from_secs(1));
    shop.send("paid", 2).await;
    shop.clock.advance(Duration::from_secs(86_400));
    // The second came too late for the last graph, whose time was over then.
    let ended = shop.resumed().await;
    assert_eq!(ended, open(&["2/2#1"]));
    shop.send("paid", 3).await;
    assert_eq!(shop.resumed().await, Ok(json!([{"own": 2}, {"two": []}, {"one": [1, "paid"]}])));
    assert_proven(&shop.store, &shop.graph, &shop.run, Status::Completed).await;
}

/// Neither the journal of a run nor that of one inside it can say otherwise who received a shared signal.
#[tokio::test]
async fn forged_hand_overs_are_refused() {
    let shop = Shop::waiting().await;
    for number in 1..=5 {
        shop.send("paid", number).await;
    }
    shop.resumed().await.unwrap();
    assert_eq!(shop.refusal(&shop.store).await, None);
    let take = |all: &[SignedRecord]| all.iter().position(|one| one.body.contains(r#""kind":"take""#)).unwrap();
    let outer = records(&shop.store, &shop.run).await;
    let (one, two) = (records(&shop.store, &id("run-2")).await, records(&shop.store, &id("run-4")).await);
    let of = |all: &[SignedRecord], at: usize| {
        serde_json::from_str::<Value>(&all[take(all)].body).unwrap()["taken"][at]["signal"].clone()
    };
    let (to_one, to_own, to_two) = (of(&outer, 0), of(&outer, 1), of(&outer, 2));
    assert_eq!((to_one["order"].clone(), of(&one, 0)), (json!(1), to_one.clone()));
    assert_eq!((to_two["order"].clone(), of(&two, 0)), (json!(3), to_two.clone()));
    type Forgery<'a> = (&'a str, &'a [SignedRecord], &'a dyn Fn(&mut Value));
    let forgeries: [Forgery<'_>; 9] = [
        ("run", &outer, &|record| record["taken"][0]["call"] = json!(2)),
        ("run", &outer, &|record| drop(record["taken"][0].as_object_mut().unwrap().remove("call"))),
        // The run around it does not say that it handed it over.
        ("run", &outer, &|record| {
            let taken = record["taken"][0].as_object_mut().unwrap();
            taken.remove("call");
            taken.remove("signal");
        }),
        ("run", &outer, &|record| record["taken"][1]["call"] = json!(1)),
        ("run", &outer, &|record| {
            record["taken"][0]["signal"] = to_two.clone();
            record["taken"][2]["signal"] = to_one.clone();
        }),
        // A run inside takes the signal of another one, or of the run around it.
        ("run-2", &one, &|record| record["taken"][0]["signal"] = to_two.clone()),
        ("run-2", &one, &|record| record["taken"][0]["signal"] = to_own.clone()),
        ("run-4", &two, &|record| record["taken"][0]["signal"]["order"] = json!(2)),
        ("run-4", &two, &|record| record["taken"][0]["signal"]["value"] = json!(9)),
    ];
    for (number, (run, all, change)) in forgeries.into_iter().enumerate() {
        let forged = with(&shop.store, run, Some(edited(all, take(all), change))).await;
        assert!(shop.refusal(&forged).await.is_some(), "forgery {number}");
    }
}

/// A holder of the journals' key adds a hand-over to the journal of the outer run, or takes one away.
#[tokio::test]
async fn a_hand_over_is_in_both_journals() {
    let shop = Shop::waiting().await;
    shop.send("2/paid", 1).await;
    shop.resumed().await.unwrap_err();
    shop.send("2/note", 2).await;
    shop.resumed().await.unwrap_err();
    shop.send("paid", 3).await;
    shop.resumed().await.unwrap_err();
    shop.send("paid", 4).await;
    shop.resumed().await.unwrap_err();
    for number in [5, 6] {
        shop.send("paid", number).await;
    }
    shop.send("note", 7).await;
    shop.resumed().await.unwrap();
    assert_eq!(shop.refusal(&shop.store).await, None);
    let outer = records(&shop.store, &shop.run).await;
    let inbox = shop.store.inbox(&shop.run).await.unwrap().signals;
    let unread = |name: &str| {
        let one = inbox.iter().find(|one| one.name == name).unwrap();
        let value: Value = one.payload.parse().unwrap();
        let (order, at) = (one.place.order, one.place.at);
        json!({"name": name, "id": one.id, "order": order, "at": at, "value": value, "receipt": one.receipt})
    };
    let takes: Vec<usize> = (0..outer.len()).filter(|at| outer[*at].body.contains(r#""kind":"take""#)).collect();
    let taken = |at: usize| serde_json::from_str::<Value>(&outer[at].body).unwrap()["taken"].clone();
    // The run of visit 2 continued with its own signal, and the one of visit 4 with a shared one.
    let [own, shared] = [json!(2), json!(4)].map(|step| {
        let is_alone = |at: &&usize| taken(**at).as_array().unwrap().len() == 1 && taken(**at)[0]["step"] == step;
        *takes.iter().rfind(is_alone).unwrap()
    });
    assert!(taken(own)[0].get("signal").is_none() && taken(shared)[0]["call"] == 1);
    let adds = |signal: Value| {
        move |record: &mut Value| {
            record["taken"][0]["signal"] = signal.clone();
            record["taken"][0]["call"] = json!(1);
        }
    };
    let paid = edited(&outer, own, adds(unread("paid")));
    let store = with(&shop.store, "run", Some(paid)).await;
    let refusal = shop.refusal(&store).await.unwrap();
    assert!(refusal.contains("it did not take the signal `paid`"), "{refusal}");
    let gone = edited(&outer, shared, |record| {
        let taken = record["taken"][0].as_object_mut().unwrap();
        taken.remove("signal");
        taken.remove("call");
    });
    let store = with(&shop.store, "run", Some(gone)).await;
    let refusal = shop.refusal(&store).await.unwrap();
    assert!(refusal.contains("does not hand it the signal `paid`"), "{refusal}");
    // The node does not share it, whatever the journal says that its run listens to.
    let opened = outer[..own].iter().rposition(|one| one.body.contains(r#""2/2#1""#)).unwrap();
    let listens = edited(&outer, opened, |record| {
        let visit = record["visits"].as_array_mut().unwrap().iter_mut().find(|visit| visit["step"] == 2).unwrap();
        visit["opened"]["inside"][0]["signals"].as_array_mut().unwrap().push(json!("note"));
    });
    let note = edited(&listens, own, adds(unread("note")));
    let store = with(&shop.store, "run", Some(note)).await;
    let refusal = shop.refusal(&store).await.unwrap();
    assert!(refusal.contains("other waits are over"), "{refusal}");
}

/// A call that is made again has a run of its own, which receives nothing that an earlier one has received.
#[tokio::test]
async fn a_call_that_is_made_again_receives_no_signal_again() {
    let nodes = &[
        ("first", INNER.nodes[0].1.replace(r#""to":"second""#, r#""to":"act""#)),
        ("act", r#"{"line":2,"does":{"action":0},"params":"act","next":[{"to":"done"}]}"#.to_owned()),
        ("done", INNER.nodes[2].1.to_owned()),
    ];
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let calls = std::sync::atomic::AtomicU64::new(0);
    let inner = Interpreted::new(&Program { nodes: &nodes, ..INNER }, move |_, params| {
        match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err(ActionError::permanent("it fails once")),
            _ => Ok(params),
        }
    });
    let one = OUTER.nodes[1].1.replace("met", "done");
    let one = one.replace(r#""share_signals""#, r#""retry":{"attempts":3,"delay_ms":0,"on":["any"]},"share_signals""#);
    let outer = Program { nodes: &[("one", one.as_str()), OUTER.nodes[5]], ..OUTER };
    let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(inner);
    let ((store, _), run) = (store(), id("run"));
    let runtime = runtime(store.clone());
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let send = |number: u64| {
        let (runtime, graph, run) = (runtime.clone(), graph.clone(), run.clone());
        let signal = NamedSignal::new("paid", json!(number));
        async move { runtime.signal(&graph, &run, signal, number.to_string()).await.unwrap() }
    };
    send(1).await;
    let RunError::Waiting { waits, .. } = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err() else {
        unreachable!("its second run waits")
    };
    assert_eq!(waits[0].id.as_str(), "1~2/1#1");
    send(2).await;
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!([{"one": [2]}]));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// A run inside whose deadline is over receives nothing: another wait does.
#[tokio::test]
async fn a_run_inside_receives_nothing_behind_its_deadline() {
    let settings = INNER.settings.replacen('{', r#"{"deadline_ms":10000,"#, 1);
    let inner = Interpreted::new(&Program { settings: &settings, ..INNER }, |_, params| Ok(params));
    let graph = Interpreted::new(&OUTER, |_, params| Ok(params)).nesting(inner);
    let ((store, clock), run) = (store(), id("run"));
    let runtime = runtime(store.clone());
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    clock.advance(Duration::from_secs(11));
    runtime.signal(&graph, &run, NamedSignal::new("paid", json!(1)), "a").await.unwrap();
    // Their calls are not made again: only the wait of the run itself is left.
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!([{"own": 1}]));
    assert!(store.inbox(&run).await.unwrap().signals.is_empty());
    assert_proven(&store, &graph, &run, Status::CompletedWithErrors).await;
}

/// A fork would not have the runs that wait inside its origin.
#[tokio::test]
async fn a_run_is_not_forked_where_runs_inside_it_wait() {
    let shop = Shop::waiting().await;
    let fork = |step: Option<u64>| Fork {
        run: Some(id(&format!("fork-{step:?}").replace(['(', ')'], ""))),
        step,
        ..Fork::default()
    };
    let refused = shop.runtime.fork(&shop.graph, &shop.run, fork(None)).await.unwrap_err();
    assert!(refused.to_string().contains("runs inside it wait there"), "{refused}");
    assert!(shop.store.find(&id("fork-None")).await.is_err());
    let fork = shop.runtime.fork(&shop.graph, &shop.run, fork(Some(0))).await.unwrap();
    let left = shop.runtime.resume(shop.graph.clone(), &fork).await.unwrap().await.unwrap_err();
    assert!(matches!(left, RunError::Waiting { .. }), "{left}");
}

/// A signal without a value that fits both graphs is refused where it is sent.
#[tokio::test]
async fn a_node_shares_signals_of_both_graphs_only() {
    let shop = Shop::waiting().await;
    let unknown = shop.runtime.signal(&shop.graph, &shop.run, NamedSignal::new("payed", json!(1)), "a").await;
    assert!(matches!(unknown, Err(SignalError::Unknown { .. })), "{unknown:?}");
    let load = |body: &'static str, settings: &'static str| {
        let nodes = &[("a", body), ("done", r#"{"line":2,"does":"return"}"#)];
        let program = Program { nodes, settings, ..OUTER };
        std::panic::catch_unwind(|| Interpreted::new(&program, |_, params| Ok(params)))
    };
    let shares = r#"{"line":1,"does":{"action":0},"share_signals":["paid"],"next":[{"to":"done"}]}"#;
    assert!(load(shares, r#"{"signals":{"paid":{}}}"#).is_ok());
    assert!(load(shares, r#"{"signals":{"note":{}}}"#).is_err(), "it is no signal of the graph");
    let gate = r#"{"line":1,"does":"gate","share_signals":["paid"],"next":[{"to":"done"}]}"#;
    assert!(load(gate, r#"{"signals":{"paid":{}}}"#).is_err(), "it runs no graph");
    // A graph inside whose signal has other rules fails the node.
    let settings = r#"{"signals":{"paid":{"schema":{"type":"integer"}}}}"#;
    let nodes = &[("a", shares), ("done", r#"{"line":2,"does":"return"}"#)];
    let outer = Interpreted::new(&Program { nodes, settings, ..OUTER }, |_, params| Ok(params));
    let graph = outer.nesting(Interpreted::new(&INNER, |_, params| Ok(params)));
    let failed = shop.runtime.start(graph, Map::new()).await.unwrap().await.unwrap_err();
    assert!(failed.to_string().contains("has no signal `paid` with the same rules"), "{failed}");
}

/// A signal that came in time counts for a run inside that another signal reaches, too, and for a wait beside one that does not wait for
/// it.
#[tokio::test]
async fn a_shared_signal_is_in_time_beside_others() {
    let paid = r#"{"line":1,"does":"wait","wait":{"signals":["paid"],"timeout_ms":10000,"on_timeout":3},"assign":{"got":"${result.paid}"},"next":[{"to":"met"}]}"#;
    let note = r#"{"line":2,"does":"wait","wait":{"signals":["note"]},"assign":{"got":"${result.note}"},"next":[{"to":"met"}]}"#;
    let nodes = &[
        ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"}]}}"#),
        ("a", paid),
        ("b", note),
        ("met", r#"{"line":3,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":4,"does":"return","output":"${state.got}"}"#),
    ];
    let (graph, (store, clock), run) = (around(nodes), store(), id("run"));
    let runtime = runtime(store.clone());
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    clock.advance(Duration::from_secs(5));
    for (name, value) in [("1/note", 7), ("paid", 8)] {
        runtime.signal(&graph, &run, NamedSignal::new(name, json!(value)), name).await.unwrap();
    }
    clock.advance(Duration::from_secs(7));
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!([{"one": [8, 7]}]));
    assert!(store.inbox(&run).await.unwrap().signals.is_empty());
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// A signal that was handed over reaches the innermost run, although a process dies on its way and another signal comes first there.
#[tokio::test]
async fn a_signal_on_its_way_is_not_left() {
    let wait = r#"{"line":1,"does":"wait","wait":{"signals":["paid","note"]},"assign":{"got":"${result.signal}"},"next":[{"to":"done"}]}"#;
    let inner = Program { nodes: &[("w", wait), ("done", INNER.nodes[2].1)], ..INNER };
    let one = OUTER.nodes[1].1.replace("met", "done");
    let nodes = &[("one", one.as_str()), OUTER.nodes[5]];
    let middle = Program { id: "test/middle", nodes, ..OUTER };
    let outer = Program { nodes, ..OUTER };
    let machine = |program: &Program<'_>| Interpreted::new(program, |_, params| Ok(params));
    let graph = machine(&outer).nesting(machine(&middle).nesting(machine(&inner)));
    for writes in 0..8 {
        let ((store, _), run) = (store(), id("run"));
        let plain = runtime(store.clone());
        plain.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        plain.signal(&graph, &run, NamedSignal::new("paid", json!(1)), "a").await.unwrap();
        let failing = runtime(failing(&store, writes, false));
        if let Ok(run) = failing.resume(graph.clone(), &run).await {
            drop(run.await);
        }
        // It may have completed before.
        drop(plain.signal(&graph, &run, NamedSignal::new("1/1/note", json!(2)), "b").await);
        let finished = plain.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert!(finished.output.to_string().contains(r#"["paid"]"#) || writes < 2, "{writes}: {}", finished.output);
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A signal that was handed to a run inside, which failed, is not handed to the run that the visit begins in a fork.
#[tokio::test]
async fn a_fork_has_not_received_what_was_handed_over() {
    let nodes = &[
        ("first", INNER.nodes[0].1.replace("second", "act")),
        ("act", r#"{"line":2,"does":{"action":0},"next":[{"to":"done"}]}"#.to_owned()),
        ("done", INNER.nodes[2].1.to_owned()),
    ];
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let inner = Interpreted::new(&Program { nodes: &nodes, ..INNER }, |_, _| Err(ActionError::permanent("it fails")));
    let note = r#"{"line":3,"does":"wait","wait":{"signals":["note"]},"next":[{"to":"met"}]}"#;
    let outer = Program {
        settings: r#"{"signals":{"paid":{},"note":{}},"channels":{"got":"append"}}"#,
        nodes: &[
            (
                "all",
                r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"note"}],"on_branch_error":"finish"}}"#,
            ),
            OUTER.nodes[1],
            ("note", note),
            ("met", r#"{"line":5,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
            OUTER.nodes[5],
        ],
        ..OUTER
    };
    let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(inner);
    let ((store, _), run) = (store(), id("run"));
    let runtime = runtime(store.clone());
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    runtime.signal(&graph, &run, NamedSignal::new("paid", json!(1)), "a").await.unwrap();
    let waits = |left: RunError| {
        let RunError::Waiting { waits, .. } = left else { unreachable!("{left}") };
        waits.into_iter().map(|wait| wait.id.to_string()).collect::<Vec<_>>()
    };
    let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left), ["3#1"], "the failure of the other branch is held");
    let fork = runtime.fork(&graph, &run, Fork { run: Some(id("fork")), ..Fork::default() }).await.unwrap();
    let left = runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left), ["2/1#1", "3#1"]);
    assert_proven(&store, &graph, &fork, Status::Running).await;
}

/// A run inside continues at the time of the signal that it receives. The next one, which came in time, still ends another wait there.
#[tokio::test]
async fn a_run_inside_continues_at_the_time_of_its_signal() {
    let paid = r#"{"line":1,"does":"wait","wait":{"signals":["paid"],"timeout_ms":600000,"on_timeout":3},"assign":{"got":"${result.paid}"},"next":[{"to":"met"}]}"#;
    let nodes = &[
        ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"}]}}"#),
        ("a", paid),
        ("b", paid),
        ("met", r#"{"line":3,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":4,"does":"return","output":"${state.got}"}"#),
    ];
    for names in [["1/paid", "paid"], ["paid", "1/paid"], ["paid", "paid"]] {
        let (graph, (store, clock), run) = (around(nodes), store(), id("run"));
        let runtime = runtime(store.clone());
        runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        for (number, name) in (1..).zip(names) {
            clock.advance(Duration::from_secs(1));
            let signal = NamedSignal::new(name, json!(number));
            runtime.signal(&graph, &run, signal, format!("id-{number}")).await.unwrap();
        }
        clock.advance(Duration::from_secs(3600));
        let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output, json!([{"one": [1, 2]}]), "{names:?}");
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A run inside continued, and its process died before the run around it wrote down the next wait there. A signal that comes before that
/// wait is due is in time, when the run is resumed long after.
#[tokio::test]
async fn a_signal_is_in_time_for_a_wait_that_a_crash_hid() {
    let nodes = &[
        (
            "a",
            r#"{"line":1,"does":"wait","wait":{"signals":["note"]},"assign":{"got":"${result.note}"},"next":[{"to":"b"}]}"#,
        ),
        (
            "b",
            r#"{"line":2,"does":"wait","wait":{"signals":["paid"],"timeout_ms":600000,"on_timeout":2},"assign":{"got":"${result.paid}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":3,"does":"return","output":"${state.got}"}"#),
    ];
    for (writes, is_written) in (0..8).flat_map(|writes| [(writes, false), (writes, true)]) {
        let (graph, (store, clock), run) = (around(nodes), store(), id("run"));
        let plain = runtime(store.clone());
        plain.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        plain.signal(&graph, &run, NamedSignal::new("1/note", json!(1)), "a").await.unwrap();
        let failing = runtime(failing(&store, writes, is_written));
        if let Ok(run) = failing.resume(graph.clone(), &run).await {
            drop(run.await);
        }
        clock.advance(Duration::from_secs(1));
        plain.signal(&graph, &run, NamedSignal::new("paid", json!(2)), "b").await.unwrap();
        clock.advance(Duration::from_secs(3600));
        let finished = plain.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output, json!([{"one": [1, 2]}]), "{writes} {is_written}");
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

//! Runs that pause where whoever began them says so, or where a hook suspends them.

use std::sync::{Arc, Mutex};

use graph_model::value::AsView;
use graph_runtime::__private::{Key, Program};
use graph_runtime::answer::Answered;
use graph_runtime::history::{Fork, ForkRun, replay};
use graph_runtime::hooks::{Control, HookContext, Hooks, Layer};
use graph_runtime::{
    ActionError, Map, MemoryStore, NamedAnswer, Options, ResumeError, RunError, RunId, Runtime, SecretKey, StartError,
    Status, Store, StoredRunError, Value, audit,
};
use serde_json::json;

use crate::answers::People;
use crate::forged::edited;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, id, kinds, runtime};
use crate::waits::{assert_proven, records, waits};

/// Two branches of two calls each, a join, and a return.
pub(crate) const BRANCHES: Program<'static> = Program {
    keys: &[Key { name: "log", initial: Some("[]") }],
    settings: r#"{"channels":{"log":"append"}}"#,
    nodes: &[
        ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"}]}}"#),
        ("a", r#"{"line":2,"does":{"action":0},"params":"a","assign":{"log":"${result}"},"next":[{"to":"c"}]}"#),
        ("b", r#"{"line":3,"does":{"action":0},"params":"b","assign":{"log":"${result}"},"next":[{"to":"d"}]}"#),
        ("c", r#"{"line":4,"does":{"action":0},"params":"c","assign":{"log":"${result}"},"next":[{"to":"met"}]}"#),
        ("d", r#"{"line":5,"does":{"action":0},"params":"d","assign":{"log":"${result}"},"next":[{"to":"met"}]}"#),
        (
            "met",
            r#"{"line":6,"does":"gate","join":{"of":[3,4],"fan":0,"closes":true},"assign":{"log":"met"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":7,"does":"return","output":"${state.log}"}"#),
    ],
    ..PROGRAM
};

pub(crate) fn branches() -> Interpreted {
    Interpreted::new(&BRANCHES, |_, params| Ok(params))
}

pub(crate) fn pausing(before: &[&str], after: &[&str]) -> Options {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Options { run: Some(id("run")), pause_before: names(before), pause_after: names(after), ..Options::default() }
}

/// The nodes at which a run is paused.
pub(crate) fn paused(error: RunError) -> Vec<String> {
    let RunError::Waiting { waits, .. } = error else { unreachable!("{error}") };
    assert!(waits.iter().all(|wait| wait.is_pause() && wait.due.is_none()));
    waits.into_iter().map(|wait| wait.node).collect()
}

pub(crate) async fn released(runtime: &Runtime, graph: &Interpreted, run: &RunId) -> Vec<String> {
    runtime.release(graph, run).await.unwrap().into_iter().map(|wait| wait.node).collect()
}

#[tokio::test]
async fn a_run_pauses_before_and_after_nodes_and_continues_when_it_is_released() {
    for (before, after, expected) in [
        (&["c"][..], &[][..], &[&["c"][..]][..]),
        (&[], &["b"], &[&["d"]]),
        (&["a"], &["a"], &[&["a"], &["c"]]),
        (&["all", "done"], &[], &[&["all"], &["done"]]),
        (&["a", "b"], &["d", "met"], &[&["a", "b"], &["met"], &["done"]]),
        (&["met"], &["c", "d"], &[&["met"]]),
        (&[], &["all"], &[&["a", "b"]]),
    ] {
        let (store, run, graph) = (MemoryStore::new(), id("run"), branches());
        let runtime = runtime(store.clone());
        let mut left = runtime.start_with(pausing(before, after), graph.clone(), Map::new()).await.unwrap().await;
        for nodes in expected {
            assert_eq!(paused(left.unwrap_err()), *nodes, "{before:?} {after:?}");
            // Nothing else lets it continue.
            let still = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
            assert_eq!(paused(still), *nodes, "{before:?} {after:?}");
            assert_eq!(released(&runtime, &graph, &run).await, *nodes);
            // Released twice, it is released once.
            assert_eq!(released(&runtime, &graph, &run).await, *nodes);
            left = runtime.resume(graph.clone(), &run).await.unwrap().await;
        }
        let mut output = left.unwrap().output;
        output.as_array_mut().unwrap().sort_by_key(ToString::to_string);
        assert_eq!(output, json!(["a", "b", "c", "d", "met"]), "{before:?} {after:?}");
        assert_proven(&store, &graph, &run, Status::Completed).await;
        let (signed, key) = (records(&store, &run).await, SecretKey::from_seed(&KEY).public());
        let replayed = replay(&graph, &graph, &run, &signed, &key, None).unwrap();
        assert!(replayed.deviations.is_empty() && replayed.stopped.is_none(), "{replayed:?}");
        assert!(store.inbox(&run).await.unwrap().signals.is_empty());
    }
}

#[tokio::test]
async fn a_run_does_not_begin_that_pauses_where_it_cannot() {
    let graph = branches();
    let refused = |options: Options, runtime: Runtime| {
        let graph = graph.clone();
        async move { runtime.start_with(options, graph, Map::new()).await.err().map(|error| error.to_string()) }
    };
    let kept = || runtime(MemoryStore::new());
    assert_eq!(
        refused(pausing(&["nowhere"], &[]), kept()).await.unwrap(),
        "the run of the graph `test/graph` cannot begin: it has no node `nowhere` to pause at"
    );
    assert_eq!(
        refused(pausing(&[], &["done"]), kept()).await.unwrap(),
        "the run of the graph `test/graph` cannot begin: nothing follows node `done`, which ends the run: pause before it"
    );
    let bare = Runtime::builder().grant("*").unwrap().build().unwrap();
    let error = bare.start_with(pausing(&["a"], &[]), graph, Map::new()).await.map(drop).unwrap_err();
    assert!(matches!(error, StartError::NoStore { .. }), "{error}");
}

/// A journal cannot say that a run did not pause, or paused elsewhere, or was released by nobody.
#[tokio::test]
async fn forged_pauses_are_refused() {
    let (store, run, graph) = (MemoryStore::new(), id("run"), branches());
    let runtime = runtime(store.clone());
    let left = runtime.start_with(pausing(&["c"], &[]), graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(paused(left.unwrap_err()), ["c"]);
    released(&runtime, &graph, &run).await;
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    let (all, key) = (records(&store, &run).await, SecretKey::from_seed(&KEY).public());
    audit(&graph, &run, &all, &key, None).unwrap();
    let at = |kind: &str, nth: usize| {
        let found = kinds(&all);
        let mut all = found.iter().enumerate().filter(|(_, one)| *one == kind);
        all.nth(nth).unwrap().0
    };
    type Forgery<'a> = (usize, &'a dyn Fn(&mut Value));
    let forgeries: [Forgery<'_>; 12] = [
        (0, &|record| drop(record.as_object_mut().unwrap().remove("pauses"))),
        (0, &|record| record["pauses"] = json!({"before": ["d"]})),
        (0, &|record| record["pauses"] = json!({"before": ["nowhere"]})),
        (0, &|record| record["pauses"] = json!({"before": ["c", "d"]})),
        (at("step", 2), &|record| record["visits"][0]["opened"]["pause"] = json!("after")),
        (at("step", 2), &|record| record["visits"][0]["opened"]["payload"] = json!({"reason": "none"})),
        (at("step", 2), &|record| record["visits"][0]["opened"]["due"] = json!(1)),
        (at("step", 2), &|record| record["visits"][0]["opened"]["before"] = json!(1)),
        (at("step", 2), &|record| record["visits"][0]["opened"]["escalated"] = json!({"count": 1})),
        (at("take", 0), &|record| record["taken"][0]["signal"]["value"] = json!("now")),
        (at("take", 0), &|record| record["taken"][0]["signal"]["receipt"] = json!("AAAA")),
        (at("take", 0), &|record| drop(record["taken"][0].as_object_mut().unwrap().remove("signal"))),
    ];
    for (number, (at, change)) in forgeries.into_iter().enumerate() {
        let forged = edited(&all, at, change);
        assert_ne!(forged[at].body, all[at].body, "forgery {number}");
        assert!(audit(&graph, &run, &forged, &key, None).is_err(), "forgery {number}: {}", forged[at].body);
    }
}

/// A fork of a run that is paused asks for its own release, and does not pause again.
#[tokio::test]
async fn a_fork_of_a_paused_run_is_released_by_itself() {
    let (store, run, graph) = (MemoryStore::new(), id("run"), branches());
    let runtime = runtime(store.clone());
    let left = runtime.start_with(pausing(&["c", "done"], &[]), graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(paused(left.unwrap_err()), ["c"]);
    let fork = runtime.fork(&graph, &run, Fork::default()).await.unwrap();
    let left = runtime.resume(graph.clone(), &fork).await.unwrap().await;
    assert_eq!(paused(left.unwrap_err()), ["c"]);
    assert_eq!(released(&runtime, &graph, &fork).await, ["c"]);
    let finished = runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap();
    assert_eq!(finished.output.as_array().map(Vec::len), Some(5));
    assert_proven(&store, &graph, &fork, Status::Completed).await;
    let still = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(paused(still), ["c"]);
}

/// A program's hook that answers each event once with a control.
pub(crate) struct Once(Mutex<Vec<(&'static str, &'static str, Control)>>);

impl Once {
    pub(crate) fn new(all: impl IntoIterator<Item = (&'static str, &'static str, Control)>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(all.into_iter().collect())))
    }
}

#[derive(Clone)]
pub(crate) struct Suspending(pub(crate) Arc<Once>);

impl Hooks for Suspending {
    async fn graph_started(&self, _: &HookContext<'_>) -> Option<Control> {
        self.take("graph_started", "")
    }

    async fn error(&self, context: &HookContext<'_>) -> Option<Control> {
        self.take("error", context.values["node"].as_str().unwrap_or_default())
    }

    async fn after_step(&self, context: &HookContext<'_>) -> Option<Control> {
        self.take("after_step", context.values["node"].as_str().unwrap_or_default())
    }

    async fn limit(&self, _: &HookContext<'_>) -> Option<Control> {
        self.take("limit", "")
    }
}

impl Suspending {
    fn take(&self, event: &str, node: &str) -> Option<Control> {
        let mut all = self.0.0.lock().unwrap();
        let found = all.iter().position(|(one, at, _)| *one == event && (at.is_empty() || *at == node))?;
        Some(all.remove(found).2)
    }
}

pub(crate) fn control(answer: &Value) -> Control {
    Control::read(answer.view()).unwrap()
}

pub(crate) fn suspend(reason: &str) -> Control {
    control(&json!({"action": "suspend", "reason": reason}))
}

pub(crate) fn suspending(store: &MemoryStore, hooks: Arc<Once>, people: &People) -> Runtime {
    suspending_in(store.clone(), hooks, people)
}

pub(crate) fn suspending_in(store: impl Store, hooks: Arc<Once>, people: &People) -> Runtime {
    let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    let people = people.clone();
    builder.answer_keys(move || people.clone()).hooks(Layer::Builtin, Suspending(hooks)).build().unwrap()
}

#[tokio::test]
async fn a_hook_suspends_a_run() {
    for (event, at, expected) in [
        ("graph_started", "", &["all"][..]),
        ("after_step", "all", &["a", "b"]),
        ("after_step", "c", &["met"]),
        ("error", "d", &["d"]),
    ] {
        let (store, run) = (MemoryStore::new(), id("run"));
        let failed = Mutex::new(false);
        let graph = Interpreted::new(&BRANCHES, move |call, params| {
            let mut failed = failed.lock().unwrap();
            match call.node() == "d" && event == "error" && !std::mem::replace(&mut *failed, true) {
                true => Err(ActionError::permanent("it fails once")),
                false => Ok(params),
            }
        });
        let runtime = suspending(&store, Once::new([(event, at, suspend("look at it"))]), &People::default());
        let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
        assert_eq!(paused(left.unwrap_err()), expected, "{event}");
        let signed: String = records(&store, &run).await.into_iter().map(|record| record.body).collect();
        assert!(signed.contains(r#""payload":{"reason":"look at it"},"pause":"hook""#), "{signed}");
        assert_eq!(released(&runtime, &graph, &run).await, expected, "{event}");
        let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output.as_array().map(Vec::len), Some(5), "{event}");
        assert_proven(&store, &graph, &run, Status::Completed).await;
        let (signed, key) = (records(&store, &run).await, SecretKey::from_seed(&KEY).public());
        let replayed = replay(&graph, &graph, &run, &signed, &key, None).unwrap();
        assert!(replayed.deviations.is_empty() && replayed.stopped.is_none(), "{event}: {replayed:?}");
    }
}

#[tokio::test]
async fn a_hook_suspends_a_run_at_its_limit_and_lets_it_take_more_steps() {
    let (store, run, graph) = (MemoryStore::new(), id("run"), branches());
    let runtime = suspending(&store, Once::new([("limit", "", suspend(""))]), &People::default());
    let options = Options { run: Some(run.clone()), max_steps: Some(3), ..Options::default() };
    let left = runtime.start_with(options, graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(paused(left.unwrap_err()), ["c", "d"]);
    released(&runtime, &graph, &run).await;
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.steps, 7);
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// People with a role sign that a run continues that a hook escalated. Nobody else lets it continue.
#[tokio::test]
async fn a_hook_escalates_a_run() {
    let (store, run, graph, people) = (MemoryStore::new(), id("run"), branches(), People::default());
    let [ann, bo] = [(11, "Ann"), (12, "Bo")].map(|(seed, owner)| people.add(seed, owner, &["ops"]));
    let cy = people.add(13, "Cy", &[]);
    let escalate = control(&json!({"escalate": true, "role": "ops", "count": 2, "reason": "a large sum"}));
    let runtime = suspending(&store, Once::new([("after_step", "met", escalate)]), &people);
    let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(waits(left.unwrap_err())[0].0, "done");
    assert!(released(&runtime, &graph, &run).await.is_empty(), "whoever operates the store does not release it");
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    assert_eq!(
        (question.role.as_deref(), question.count, &question.payload),
        (Some("ops"), 2, &json!({"reason": "a large sum"}))
    );
    let answer = |text: &str, key: &SecretKey| question.sign(NamedAnswer::new("done", json!(text)), key).unwrap();
    let refused = runtime.answer(&graph, &run, &answer("abort", &ann)).await.unwrap_err();
    assert!(refused.to_string().contains("sign `continue`, or cancel the run"), "{refused}");
    assert!(runtime.answer(&graph, &run, &answer("continue", &cy)).await.is_err());
    let proposed = Answered::Proposed { have: 1, need: 2 };
    assert_eq!(runtime.answer(&graph, &run, &answer("continue", &ann)).await.unwrap(), proposed);
    let still = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert!(matches!(still, RunError::Waiting { .. }), "{still}");
    assert_eq!(runtime.answer(&graph, &run, &answer("continue", &bo)).await.unwrap(), Answered::Accepted);
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output.as_array().map(Vec::len), Some(5));
    assert_proven(&store, &graph, &run, Status::Completed).await;
    let key = SecretKey::from_seed(&KEY).public();
    let signed = records(&store, &run).await;
    let proven = audit(&graph, &run, &signed, &key, None).unwrap();
    assert_eq!(proven.approvals[0].by.len(), 2);
    // A journal cannot say that fewer people were asked.
    let opened = signed.iter().position(|record| record.body.contains(r#""opened":{"#)).unwrap();
    for change in [json!({"count": 1, "role": "ops"}), json!({"count": 2}), Value::Null] {
        let forged = edited(&signed, opened, |record| {
            let opened = record["visits"][0]["opened"].as_object_mut().unwrap();
            match change.clone() {
                Value::Null => drop(opened.remove("escalated")),
                change => drop(opened.insert("escalated".to_owned(), change)),
            }
        });
        assert!(audit(&graph, &run, &forged, &key, None).is_err(), "{change}");
    }
}

/// A run that cannot wait is ended and not continued.
#[tokio::test]
async fn a_hook_that_suspends_a_run_without_a_store_ends_it() {
    for (event, at) in [("graph_started", ""), ("after_step", "a"), ("error", "a"), ("limit", "")] {
        let hooks = Suspending(Once::new([(event, at, suspend(""))]));
        let runtime = Runtime::builder().grant("*").unwrap().hooks(Layer::Builtin, hooks).build().unwrap();
        let graph = Interpreted::new(&BRANCHES, move |_, params| match event {
            "error" => Err(ActionError::permanent("it fails")),
            _ => Ok(params),
        });
        let max_steps = (event == "limit").then_some(2);
        let options = Options { max_steps, ..Options::default() };
        let error = runtime.start_with(options, graph, Map::new()).await.unwrap().await.unwrap_err();
        assert!(error.to_string().contains("a hook asked to suspend the run, which cannot wait"), "{event}: {error}");
    }
}

/// A cancelled run that is paused ends, and a run that is not there is not released.
#[tokio::test]
async fn a_paused_run_can_be_cancelled() {
    let (store, run, graph) = (MemoryStore::new(), id("run"), branches());
    let runtime = runtime(store.clone());
    assert!(runtime.release(&graph, &run).await.is_err());
    let left = runtime.start_with(pausing(&["a"], &[]), graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(paused(left.unwrap_err()), ["a"]);
    assert_eq!(runtime.cancel(&run).await.unwrap(), Status::Cancelled);
    assert!(released(&runtime, &graph, &run).await.is_empty());
    let resumed = runtime.resume(graph.clone(), &run).await;
    assert!(!matches!(resumed, Err(ResumeError::Stored(StoredRunError::Store(_)))));
}

/// Where one hook leaves a run to people and another one suspends it, people decide.
#[tokio::test]
async fn an_escalation_is_not_undone_by_another_hook() {
    let escalate = control(&json!({"escalate": true, "role": "ops"}));
    for hooks in [
        [("after_step", "a", escalate.clone()), ("after_step", "b", suspend("look"))],
        [("after_step", "a", suspend("look")), ("after_step", "b", escalate)],
    ] {
        let (store, run, graph, people) = (MemoryStore::new(), id("run"), branches(), People::default());
        let ann = people.add(11, "Ann", &["ops"]);
        let runtime = suspending(&store, Once::new(hooks), &people);
        let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
        assert_eq!(waits(left.unwrap_err()).len(), 2);
        assert!(released(&runtime, &graph, &run).await.is_empty());
        for question in runtime.questions(&graph, &run).await.unwrap() {
            let answer = NamedAnswer::new(question.node.as_str(), json!("continue"));
            runtime.answer(&graph, &run, &question.sign(answer, &ann).unwrap()).await.unwrap();
        }
        let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output.as_array().map(Vec::len), Some(5));
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

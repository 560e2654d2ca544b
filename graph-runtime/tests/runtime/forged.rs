//! Journals that the holder of the key wrote without the engine. An audit refuses each of them, and so does a replay.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Executor, Key, Program, Tool};
use graph_runtime::history::replay;
use graph_runtime::record::SignedRecord;
use graph_runtime::{
    ActionError, Call, Control, Hooks, Layer, ManualClock, Map, MemoryStore, Options, RunId, Runtime, SecretKey,
    Status, Store, Value, audit,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::journal::{forged, forged_from};

/// A gate that lets small amounts pass, a call, and two return nodes.
pub(crate) const PAYING: Program<'static> = Program {
    keys: &[Key { name: "paid", initial: None }, Key { name: "approved", initial: None }],
    nodes: &[
        (
            "limit",
            r#"{"line":1,"does":"gate","next":[{"to":"pay","when":{"path":"inputs.amount","op":"lt","value":100}},{"to":"stop"}]}"#,
        ),
        (
            "pay",
            r#"{"line":2,"does":{"action":0},"assign":{"paid":"${result.paid}"},"next":[{"to":"stop","when":{"path":"result.code","op":"eq","value":7}},{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":3,"does":"return","output":{"verdict":"paid"}}"#),
        ("stop", r#"{"line":4,"does":"return","output":{"verdict":"refused"}}"#),
    ],
    ..PROGRAM
};

/// A call for each of three items, one at a time.
pub(crate) const PAYING_EACH: Program<'static> = Program {
    nodes: &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":[7,7,7],"as":"n","collect":"paid","width":1},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ],
    ..PAYING
};

pub(crate) const CONTINUING: Program<'static> = Program { settings: r#"{"on_error":"continue"}"#, ..PAYING };

pub(crate) fn id() -> RunId {
    RunId::new("forged").unwrap()
}

pub(crate) fn key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

pub(crate) fn runtime(store: &MemoryStore) -> graph_runtime::Builder {
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_344_000_123));
    Runtime::builder().store(store.clone()).sign_with(key()).clock(Arc::new(clock)).grant("*").unwrap()
}

pub(crate) fn machine(program: &Program<'_>, answer: Result<Value, (&'static str, Value)>) -> Interpreted {
    Interpreted::new(program, move |_: &Call, _| {
        answer.clone().map_err(|(text, data)| ActionError::permanent(text).with_data(data))
    })
}

pub(crate) async fn ran(machine: Interpreted, amount: i64) -> Vec<SignedRecord> {
    let (store, inputs) = (MemoryStore::new(), Map::from_iter([("amount".to_owned(), json!(amount))]));
    // Runs that fail are examined too.
    let _ended = runtime(&store).build().unwrap().start_as(id(), machine, inputs).await.unwrap().await;
    store.load(&id()).await.unwrap()
}

/// Returns the error of an audit under the run's own graph; `None` if neither the audit nor a replay finds anything.
pub(crate) fn found(program: &Program<'_>, records: &[SignedRecord]) -> Option<String> {
    let machine = machine(program, Err(("nothing is called", Value::Null)));
    let audited = audit(&machine, &id(), records, &key().public(), None).map(drop);
    let replayed = replay(&machine, &machine, &id(), records, &key().public(), None);
    let differs = match &replayed {
        Ok(replay) => !replay.deviations.is_empty() || replay.stopped.is_some(),
        Err(_) => true,
    };
    assert_eq!(audited.is_err(), differs, "{audited:?} {replayed:?}");
    audited.err().map(|error| error.to_string())
}

/// Replaces texts, each in its record.
pub(crate) fn changed(records: &[SignedRecord], changes: &[(usize, &str, &str)]) -> Vec<SignedRecord> {
    for (seq, from, _) in changes {
        assert!(records[*seq].body.contains(from), "record {seq}: {}", records[*seq].body);
    }
    forged(records, |seq, body| {
        let own = changes.iter().filter(|(at, ..)| *at == seq);
        own.fold(body.to_owned(), |body, (_, from, to)| body.replacen(from, to, 1))
    })
}

#[tokio::test]
async fn a_gate_that_failed_leads_nowhere() {
    let records = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5000).await;
    assert_eq!(found(&PAYING, &changed(&records, &[])), None, "signed again, it is the same");
    let failed = r#""node":"limit","error":"x","category":"permanent","suppressed":true,"edges":[0]"#;
    for program in [PAYING, CONTINUING] {
        let along = changed(
            &records,
            &[
                (1, r#""node":"limit","edges":[1]"#, failed),
                (1, r#""next":[{"number":2,"node":"stop"}]"#, r#""next":[{"number":2,"node":"pay"}]"#),
            ],
        );
        let why = found(&program, &along).unwrap();
        assert!(why.contains("record 1") && why.contains("failed"), "{why}");
    }
    let wrote =
        r#""node":"limit","error":"x","category":"permanent","suppressed":true,"changes":{"paid":true},"edges":[1]"#;
    assert!(found(&PAYING, &changed(&records, &[(1, r#""node":"limit","edges":[1]"#, wrote)])).is_some());
}

#[tokio::test]
async fn a_suppressed_failure_writes_nothing() {
    let records = ran(machine(&CONTINUING, Err(("no", json!({"code": 1})))), 5).await;
    assert_eq!(found(&CONTINUING, &records), None);
    let from = r#""suppressed":true,"data":{"code":1},"edges":[1]"#;
    let wrote = r#""suppressed":true,"data":{"code":1},"changes":{"approved":true},"edges":[1]"#;
    let why = found(&CONTINUING, &changed(&records, &[(2, from, wrote)])).unwrap();
    assert!(why.contains("node `pay` writes something else to `approved`"), "{why}");
}

#[tokio::test]
async fn the_edge_of_a_failure_is_computed_from_what_it_saw() {
    let records = ran(machine(&CONTINUING, Err(("no", json!({"code": 7})))), 5).await;
    assert_eq!(found(&CONTINUING, &records), None);
    assert!(records[2].body.contains(r#""data":{"code":7},"edges":[0]"#), "{}", records[2].body);
    for to in [r#""data":{"code":8},"edges":[0]"#, r#""data":{"code":7},"edges":[1]"#, r#""edges":[0]"#] {
        let why = found(&CONTINUING, &changed(&records, &[(2, r#""data":{"code":7},"edges":[0]"#, to)])).unwrap();
        assert!(why.contains("node `pay` leads along another edge"), "{why}");
    }
}

#[tokio::test]
async fn a_failure_with_a_target_is_not_suppressed() {
    let nodes: Vec<_> = PAYING
        .nodes
        .iter()
        .map(|(name, body)| (*name, body.replacen(r#"{"line":2,"#, r#"{"line":2,"on_error":3,"#, 1)))
        .collect();
    let nodes: Vec<_> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let program = Program { nodes: &nodes, ..PAYING };
    let records = ran(machine(&program, Err(("no", Value::Null))), 5).await;
    assert_eq!(found(&program, &records), None);
    let from = r#""category":"permanent"}],"next":[{"number":3,"node":"stop"}]"#;
    let to = r#""category":"permanent","suppressed":true,"edges":[1]}],"next":[{"number":3,"node":"done"}]"#;
    assert!(found(&program, &changed(&records, &[(2, from, to)])).is_some());
}

/// A loop that runs until its step limit.
pub(crate) const ROUND: Program<'static> = Program {
    settings: r#"{"max_steps":3}"#,
    nodes: &[("round", r#"{"line":1,"does":{"action":0},"next":[{"to":"round"}]}"#)],
    ..PROGRAM
};

/// A hook that allows one more step at the limit, this many times.
pub(crate) struct More(pub(crate) u32);

impl Hooks for More {
    async fn limit(&self, told: &graph_runtime::hooks::HookContext<'_>) -> Option<Control> {
        let taken = told.values["current_value"].as_u64()?;
        (taken < u64::from(self.0)).then_some(Control::Continue { additional_steps: 1 })
    }
}

#[tokio::test]
async fn a_limit_is_raised_by_a_hook_at_the_limit_only() {
    let store = MemoryStore::new();
    let hooked = runtime(&store).hooks(Layer::Builtin, More(5)).build().unwrap();
    let machine = machine(&ROUND, Ok(json!({})));
    hooked.start_as(id(), machine, Map::new()).await.unwrap().await.unwrap_err();
    let records = store.load(&id()).await.unwrap();
    assert_eq!(records.len(), 7);
    assert_eq!(found(&ROUND, &records), None);
    assert!(records[4].body.contains(r#""limit":4"#), "{}", records[4].body);
    for (changes, why) in [
        (vec![(4, r#""limit":4"#, r#""limit":4000000000"#)], "the run may make 3"),
        (vec![(4, r#""limit":4"#, r#""limit":301"#)], "the run may make 3"),
        (vec![(4, r#","limit":4"#, "")], "the run may make 3"),
        (vec![(5, r#""limit":5"#, r#""limit":6"#), (6, "(5)", "(6)")], "a run fails so only at a node"),
        (vec![(6, "(5)", "(4)")], "a run fails so only at a node"),
        (vec![(1, "\"node\":\"round\"}]", "\"node\":\"round\"}],\"limit\":4")], "nobody had changed"),
    ] {
        let found = found(&ROUND, &changed(&records, &changes)).unwrap();
        assert!(found.contains(why), "{changes:?}: {found}");
    }
    // A hook may have allowed 300 at once.
    let more = changed(&records, &[(4, r#""limit":4"#, r#""limit":300"#), (5, r#""limit":5"#, r#""limit":300"#)]);
    assert!(found(&ROUND, &more).unwrap().contains("record 6"), "the run had steps left then");
}

#[tokio::test]
async fn a_resume_says_how_many_steps_it_allows() {
    let (store, program) = (MemoryStore::new(), ROUND);
    let runtime = runtime(&store).build().unwrap();
    let answering = || machine(&program, Ok(json!({})));
    runtime.start_as(id(), answering(), Map::new()).await.unwrap().await.unwrap_err();
    let options = Options { max_steps: Some(1000), ..Options::default() };
    runtime.resume_with(options, answering(), &id()).await.unwrap().await.unwrap_err();
    // The limit also holds when the run is resumed again.
    let again = runtime.resume(answering(), &id()).await.unwrap().await.unwrap_err();
    assert!(again.to_string().contains("1000"), "{again}");
    let records = store.load(&id()).await.unwrap();
    assert_eq!(found(&program, &records), None);
    let resumed = records.iter().position(|record| record.body.contains(r#""kind":"resume""#)).unwrap();
    let body = &records[resumed].body;
    assert!(body.ends_with(r#""steps":3,"grants":["*"],"limit":1000}"#), "{body}");
    for to in ["", r#","limit":999"#, r#","limit":3"#] {
        let forged = changed(&records, &[(resumed, r#","limit":1000"#, to)]);
        assert!(found(&program, &forged).is_some(), "{to}");
    }
}

#[tokio::test]
async fn a_run_ends_only_as_the_engine_ends_it() {
    let records = ran(machine(&PAYING, Err(("no", Value::Null))), 5).await;
    assert_eq!(records.len(), 3);
    assert_eq!(found(&PAYING, &records), None);
    let end = &records[2].body;
    assert!(end.ends_with(r#""status":"error","steps":1,"error":"no","node":"pay"}"#), "{end}");
    for (from, to, why) in [
        (r#""node":"pay""#, r#""node":"stop""#, "node `stop` was not visited"),
        (r#""node":"pay""#, r#""node":"gone""#, "there is no node `gone`"),
        (r#","node":"pay""#, "", "a run fails so only at a node"),
        (r#""error":"no","#, "", "does not say why"),
        (r#""node":"pay""#, r#""node":"pay","unfit":true"#, "node `pay` does not fail so"),
        (r#""node":"pay""#, r#""node":"pay","output":1"#, "says what the result was"),
        (r#""status":"error""#, r#""status":"cancelled""#, "a cancelled run has no other error"),
        (r#""status":"error""#, r#""status":"running""#, "a run that has an end has a status with one"),
        (r#""status":"error""#, r#""status":"completed""#, "says how the run failed"),
        (r#""error":"no","node":"pay""#, r#""error":"Max steps exceeded (1)""#, "a run fails so only at a node"),
    ] {
        let found = found(&PAYING, &changed(&records, &[(2, from, to)])).unwrap();
        assert!(found.contains(why), "{to}: {found}");
    }
    // A tool may return any error, and a hook may end the run after the gate.
    for (from, to) in [(r#""error":"no""#, r#""error":"other""#), (r#""node":"pay""#, r#""node":"limit""#)] {
        assert_eq!(found(&PAYING, &changed(&records, &[(2, from, to)])), None, "{to}");
    }
    let cancelled = r#""status":"cancelled","steps":1,"error":"cancelled","signal":15}"#;
    let forged = changed(&records, &[(2, r#""status":"error","steps":1,"error":"no","node":"pay"}"#, cancelled)]);
    assert_eq!(found(&PAYING, &forged), None, "somebody may cancel it at any time");
    let machine = machine(&PAYING, Err(("", Value::Null)));
    let status = audit(&machine, &id(), &forged, &key().public(), None).unwrap().status;
    assert_eq!(status, Status::Cancelled);
}

/// Runs a nested graph, and continues to `stop` if it fails; `CONTINUING_AROUND` continues along the edges.
pub(crate) const AROUND: Program<'static> = Program {
    tools: &[Tool { by: Executor::Graph, ..PROGRAM.tools[0] }],
    nodes: &[
        ("nest", r#"{"line":1,"does":{"action":0},"params":{"n":1},"on_error":1,"next":[{"to":"stop"}]}"#),
        ("stop", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

pub(crate) const CONTINUING_AROUND: Program<'static> = Program {
    settings: r#"{"on_error":"continue"}"#,
    nodes: &[
        ("nest", r#"{"line":1,"does":{"action":0},"params":{"n":1},"next":[{"to":"stop"}]}"#),
        ("stop", r#"{"line":2,"does":"return"}"#),
    ],
    ..AROUND
};

/// A graph that calls the tool in `tools`.
pub(crate) fn inner(tools: &'static [Tool], permissions: &'static [&'static str]) -> Interpreted {
    let nodes = &[
        ("call", r#"{"line":1,"does":{"action":0},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let program = Program { id: "test/inner", tools, permissions, nodes, ..PROGRAM };
    Interpreted::new(&program, |_: &Call, _| Err(ActionError::transient("busy").with_code("x")))
}

pub(crate) const PAY: &[Tool] = &[Tool { id: "test/pay", ..PROGRAM.tools[0] }];

/// Returns the error of an audit that knows the nested graph; `None` if neither the audit nor a replay fails.
pub(crate) fn found_around(machine: &Interpreted, records: &[SignedRecord]) -> Option<String> {
    let audited = audit(machine, &id(), records, &key().public(), None).map(drop);
    let replayed = replay(machine, machine, &id(), records, &key().public(), None);
    assert_eq!(audited.is_err(), replayed.is_err(), "{audited:?} {replayed:?}");
    audited.err().map(|error| error.to_string())
}

#[tokio::test]
async fn a_graph_that_cannot_begin_fails_in_one_way_only() {
    let denied = || inner(PAY, &["rye.execute.tool.test.pay"]);
    let deep = || inner(PROGRAM.tools, PROGRAM.permissions);
    let shallow = r#"{"on_error":"continue","depth":0}"#;
    for (program, inside, text) in [
        (AROUND, denied(), "the graph `test/inner` needs `rye.execute.tool.test.pay`, which was not granted"),
        (
            CONTINUING_AROUND,
            denied(),
            "the graph `test/inner` needs `rye.execute.tool.test.pay`, which was not granted",
        ),
        (
            Program { settings: shallow, ..CONTINUING_AROUND },
            deep(),
            "graphs are nested deeper than `limits.depth` allows",
        ),
    ] {
        let machine = machine(&program, Ok(Value::Null)).nesting(inside);
        let records = ran(machine.clone(), 5).await;
        assert_eq!(found_around(&machine, &records), None);
        let said = format!(r#""error":"{text}","category":"permanent""#);
        let is_suppressed = records[1].body.contains(r#""suppressed":true"#);
        for (from, to) in [
            (said.as_str(), said.replace("permanent", "transient")),
            (said.as_str(), said.replace(text, "no")),
            (said.as_str(), said.replace(text, "it timed out after 1s")),
            (said.as_str(), r#""result":{"success":true}"#.to_owned()),
            (r#""suppressed":true"#, r#""suppressed":true,"data":{"code":1}"#.to_owned()),
        ] {
            if from == said || is_suppressed {
                let why = found_around(&machine, &changed(&records, &[(1, from, &to)])).unwrap();
                assert!(why.contains("node `nest`"), "{to}: {why}");
            }
        }
    }
}

#[tokio::test]
async fn a_graph_that_failed_says_where_and_what_it_came_to() {
    let machine = machine(&CONTINUING_AROUND, Ok(Value::Null)).nesting(inner(PROGRAM.tools, PROGRAM.permissions));
    let store = MemoryStore::new();
    let hooked = runtime(&store).hooks(Layer::Builtin, Never).build().unwrap();
    hooked.start_as(id(), machine.clone(), Map::new()).await.unwrap().await.unwrap();
    let records = store.load(&id()).await.unwrap();
    assert_eq!(found_around(&machine, &records), None);
    let said = r#""error":"busy (node `call` of run `forged-1`)","category":"transient""#;
    for (from, to, is_possible) in [
        // A tool may give its failure any category, but its text must be the same everywhere.
        (said, said.replace("busy", "broken"), false),
        (r#""category":"transient""#, r#""category":"permanent""#.to_owned(), true),
        (said, said.replace("`call`", "`gone`"), false),
        (said, said.replace("forged-1", "forged-2"), false),
        (said, said.replace("busy (node `call` of run `forged-1`)", "busy"), false),
        (said, said.replace("busy (node `call` of run `forged-1`)", "Max steps exceeded (1)"), false),
        (r#""success":false"#, r#""success":true"#.to_owned(), false),
        (r#""graph_run_id":"forged-1""#, r#""graph_run_id":"forged-2""#.to_owned(), false),
        (r#""node":"call","state""#, r#""node":"done","state""#.to_owned(), false),
    ] {
        let found = found_around(&machine, &changed(&records, &[(1, from, &to)]));
        assert_eq!(found.is_none(), is_possible, "{to}: {found:?}");
    }
    // The same change in the result and in the error is consistent.
    let both = [(1, "busy (", "broken ("), (1, r#""error":"busy""#, r#""error":"broken""#)];
    assert_eq!(found_around(&machine, &changed(&records, &both)), None);
}

/// A hook that allows no retries.
struct Never;

impl Hooks for Never {
    async fn error(&self, _: &graph_runtime::hooks::HookContext<'_>) -> Option<Control> {
        Some(Control::Retry { max_retries: 0 })
    }
}

#[tokio::test]
async fn the_code_of_an_error_comes_from_a_call() {
    let refused = ran(machine(&PAYING, Err(("no", Value::Null))), 5).await;
    let cancelled = r#""status":"cancelled","steps":1,"error":"cancelled""#;
    let overdue = r#""status":"error","steps":1,"error":"the run took longer than it may""#;
    let failed = r#""status":"error","steps":1,"error":"no","node":"pay""#;
    for (to, is_possible) in [
        (format!(r#"{failed},"code":"x""#), true),
        (format!(r#"{failed},"unfit":true,"code":"x""#), false),
        (format!(r#"{cancelled},"code":"x""#), false),
        (format!(r#"{overdue},"code":"x""#), false),
        // A hook can end the run after the gate, and gives no code.
        (failed.replace("pay", "limit"), true),
        (failed.replace("pay", "limit") + r#","code":"x""#, false),
    ] {
        let found = found(&PAYING, &changed(&refused, &[(2, failed, &to)]));
        assert_eq!(found.is_none(), is_possible, "{to}: {found:?}");
    }
    let paid = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5).await;
    let (from, to) = (r#""status":"completed""#, r#""status":"completed","code":"x""#);
    assert!(found(&PAYING, &changed(&paid, &[(4, from, to)])).is_some());
    // A visit whose nested graph may not begin has no error code either.
    let program = Program { nodes: &[("nest", r#"{"line":1,"does":{"action":0}}"#)], ..AROUND };
    let machine = machine(&program, Ok(Value::Null)).nesting(inner(PAY, &["rye.execute.tool.test.pay"]));
    let records = ran(machine.clone(), 5).await;
    assert_eq!(found_around(&machine, &records), None);
    let coded = changed(&records, &[(1, r#""node":"nest""#, r#""node":"nest","code":"x""#)]);
    assert!(found_around(&machine, &coded).unwrap().contains("names the code of an error"));
}

#[tokio::test]
async fn an_item_with_an_invalid_id_fails_permanently() {
    let program = Program {
        keys: &[Key { name: "all", initial: None }],
        tools: &[Tool { id: "", ..PROGRAM.tools[0] }],
        permissions: &["*"],
        settings: r#"{"on_error":"continue"}"#,
        nodes: &[(
            "each",
            r#"{"line":1,"does":{"foreach":0},"item":"${n}","each":{"over":[5,"test/tool"],"as":"n","collect":"all","width":1}}"#,
        )],
        ..PROGRAM
    };
    let records = ran(machine(&program, Ok(json!({}))), 5).await;
    assert_eq!(found(&program, &records), None);
    let text = "`item_id` is a string, and found an integer";
    assert!(records.iter().any(|record| record.body.contains(text)), "{:?}", records[1].body);
    let step = records.iter().position(|record| record.body.contains(r#""kind":"step""#)).unwrap();
    for (from, to) in [
        (r#""category":"permanent""#, r#""category":"transient""#),
        (r#"{"status":"error","error":"#, r#"{"status":"error","code":1,"error":"#),
    ] {
        let why = found(&program, &changed(&records, &[(step, from, to)])).unwrap();
        assert!(why.contains("for item `0`"), "{to}: {why}");
    }
}

#[tokio::test]
async fn a_nested_run_has_the_id_of_its_visit() {
    let records = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5).await;
    let start = &records[0].body;
    assert!(start.ends_with("}}"), "{start}");
    let inputs = r#""inputs":{"amount":5}"#;
    for (to, why) in [
        (r#","parent":{"run":"other","step":1,"node":"pay"},"depth":3"#, "begins no run of this id"),
        (r#","parent":{"run":"forged","step":1,"node":"pay"},"depth":3"#, "begins no run of this id"),
    ] {
        let said = format!("{inputs}{to}");
        let found = found(&PAYING, &changed(&records, &[(0, inputs, &said)])).unwrap();
        assert!(found.contains(why), "{to}: {found}");
    }
}

#[tokio::test]
async fn the_result_of_a_nested_graph_is_never_cached() {
    let nodes: Vec<_> = AROUND
        .nodes
        .iter()
        .map(|(name, body)| (*name, body.replacen(r#"{"line":1,"#, r#"{"line":1,"cached":true,"#, 1)))
        .collect();
    let nodes: Vec<_> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let ends = Program { id: "test/inner", nodes: &[("done", r#"{"line":2,"does":"return"}"#)], ..PROGRAM };
    let inside = Interpreted::new(&ends, |_: &Call, _| Ok(Value::Null));
    let machine = machine(&Program { nodes: &nodes, ..AROUND }, Ok(Value::Null)).nesting(inside);
    let records = ran(machine.clone(), 5).await;
    assert_eq!(found_around(&machine, &records), None);
    let (from, to) = (r#""run":"forged-1","#, r#""run":"forged-1","cached":true,"#);
    let why = found_around(&machine, &changed(&records, &[(1, from, to)])).unwrap();
    assert!(why.contains("is never kept"), "{why}");
}

#[tokio::test]
async fn items_finish_after_they_began() {
    let program = PAYING_EACH;
    let records = ran(machine(&program, Ok(json!(1))), 5).await;
    assert_eq!(found(&program, &records), None);
    assert!(records[1].body.contains(r#""item":0"#) && records[2].body.contains(r#""item":1"#));
    let swapped = changed(&records, &[(1, r#""item":0"#, r#""item":1"#), (2, r#""item":1"#, r#""item":0"#)]);
    let why = audit(&machine(&program, Ok(json!(1))), &id(), &swapped, &key().public(), None).unwrap_err().to_string();
    assert!(why.contains("record 1") && why.contains("finished item 1 before it began it"), "{why}");
    // With two calls at once, the second may finish first, but the third may not.
    let nodes: Vec<_> =
        program.nodes.iter().map(|(name, body)| (*name, body.replace(r#""width":1"#, r#""width":2"#))).collect();
    let nodes: Vec<_> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let wider = Program { nodes: &nodes, ..program };
    let audited = |records: &[SignedRecord]| {
        let proven = audit(&machine(&wider, Ok(json!(1))), &id(), records, &key().public(), None);
        proven.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(audited(&swapped), Ok(()));
    let third = changed(&records, &[(1, r#""item":0"#, r#""item":2"#)]);
    assert!(audited(&third).unwrap_err().contains("finished item 2 before it began it"));
}

#[tokio::test]
async fn a_visit_does_not_see_the_retries_of_the_previous_one() {
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"params":{"again":"${state._retries.call}"},"assign":{"paid":"${result}"},"next":[{"to":"call","when":{"path":"result","op":"eq","value":1}},{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let program = Program { nodes, ..PAYING };
    let calls = Interpreted::new(&program, move |call: &Call, _| Ok(json!(call.step())));
    let records = ran(calls, 5).await;
    assert_eq!(found(&program, &records), None);
    let again = changed(&records, &[(1, r#""node":"call","#, r#""node":"call","calls":3,"#)]);
    assert_eq!(found(&program, &again), None, "hooks may have had it called again");
}

#[tokio::test]
async fn a_gate_that_looks_at_the_time_fails_as_a_gate_does() {
    let nodes = &[
        (
            "gate",
            r#"{"line":1,"does":"gate","assign":{"paid":"${_now}"},"next":[{"to":"done","when":{"path":"inputs.amount","op":"eq","value":1}}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let program = Program { nodes, settings: r#"{"on_no_match":"fail"}"#, ..PAYING };
    let records = ran(machine(&program, Ok(Value::Null)), 5).await;
    assert_eq!(found(&program, &records), None);
    let said: Value = serde_json::from_str(&records[1].body).unwrap();
    let told = changed(&records, &[(1, &said["error"].to_string(), r#""told""#)]);
    assert!(found(&program, &told).unwrap().contains("node `gate` does not fail so"));
}

/// A gate that leads to two calls at once.
pub(crate) const FANNING: Program<'static> = Program {
    keys: &[Key { name: "paid", initial: None }],
    nodes: &[
        ("fan", r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"two"}]}}"#),
        ("one", r#"{"line":2,"does":{"action":0},"assign":{"paid":"${result.paid}"}}"#),
        ("two", r#"{"line":3,"does":{"action":0}}"#),
    ],
    ..PROGRAM
};

/// Changes a record as JSON, and signs the journal again. Receipts name the first record: it stays as it is, if it is another one.
pub(crate) fn edited(records: &[SignedRecord], seq: usize, edit: impl Fn(&mut Value)) -> Vec<SignedRecord> {
    forged_from(seq.min(1), records, |at, body| {
        let mut record: Value = serde_json::from_str(body).unwrap();
        if at == seq {
            edit(&mut record);
        }
        record.to_string()
    })
}

/// Puts a record with these members in front of the record `at`, and signs the journal again.
pub(crate) fn inserted(records: &[SignedRecord], at: usize, members: &Value) -> Vec<SignedRecord> {
    let mut longer = records.to_vec();
    longer.insert(at, records[at].clone());
    forged(&longer, |seq, body| {
        let mut record: Value = serde_json::from_str(body).unwrap();
        if seq == at {
            let head = ["v", "run", "seq", "prev", "end", "at"].map(|name| (name.to_owned(), record[name].clone()));
            record = Value::Object(Map::from_iter(head));
            record.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        }
        record["seq"] = json!(seq);
        record.to_string()
    })
}

/// Puts a record of finished calls in front of the record `at`, and signs the journal again.
pub(crate) fn with_calls(records: &[SignedRecord], at: usize, done: &Value) -> Vec<SignedRecord> {
    inserted(records, at, &json!({"kind": "calls", "done": done}))
}

/// Returns the error of reading a run from a store that holds these records; `None` if it can be read.
async fn read_again(program: &Program<'_>, records: &[SignedRecord]) -> Option<String> {
    let store = MemoryStore::new();
    drop(store.create(&id(), "forged", records.to_vec()).await.unwrap());
    let machine = machine(program, Err(("nothing is called", Value::Null)));
    let outcome = runtime(&store).build().unwrap().outcome(&machine, &id()).await;
    outcome.err().map(|error| error.to_string())
}

#[tokio::test]
async fn several_failures_of_a_step_are_listed_as_they_were() {
    let records = ran(machine(&FANNING, Err(("no", Value::Null))), 5).await;
    let last = records.len() - 1;
    let end: Value = serde_json::from_str(&records[last].body).unwrap();
    assert_eq!(end["failures"].as_array().map(Vec::len), Some(2), "{end}");
    assert_eq!(found(&FANNING, &records), None);
    for (why, edit) in [
        ("order", (|end: &mut Value| end["failures"].as_array_mut().unwrap().reverse()) as fn(&mut Value)),
        ("order", |end| drop(end["failures"].as_array_mut().unwrap().remove(0))),
        ("differ", |end| end["unfit"] = json!(true)),
        ("is not one of node", |end| end["failures"][1]["step"] = json!(9)),
        ("is not one of node", |end| end["failures"][1]["node"] = json!("fan")),
        ("", |end| end["failures"][1]["error"] = json!("Max steps exceeded (9)")),
    ] {
        let forged = edited(&records, last, edit);
        let said = found(&FANNING, &forged);
        assert!(said.as_ref().is_none_or(|said| said.contains(why)) && (said.is_some() || why.is_empty()), "{said:?}");
    }
}

#[tokio::test]
async fn a_step_that_the_graph_does_not_allow_is_not_read() {
    let records = ran(machine(&FANNING, Ok(json!({"paid": true}))), 5).await;
    assert_eq!((found(&FANNING, &records), read_again(&FANNING, &records).await), (None, None));
    let step = |kind: &str, nth: usize| {
        let of_kind = records.iter().enumerate().filter(|(_, record)| record.body.contains(kind));
        of_kind.map(|(at, _)| at).nth(nth).unwrap()
    };
    let (first, second) = (step(r#""kind":"step""#, 0), step(r#""kind":"step""#, 1));
    for (seq, edit) in [
        (second, (|step: &mut Value| drop(step["visits"].as_array_mut().unwrap().pop())) as fn(&mut Value)),
        (second, |step| step["visits"].as_array_mut().unwrap().reverse()),
        (second, |step| step["visits"][0]["step"] = json!(7)),
        (second, |step| step["visits"][0]["node"] = json!("two")),
        (second, |step| step["visits"][0]["error"] = json!("it failed")),
        (first, |step| step["visits"][0]["edges"] = json!([9])),
        (first, |step| step["visits"][0]["edges"] = json!([0])),
        (first, |step| step["next"][1]["number"] = json!(8)),
        (first, |step| step["next"].as_array_mut().unwrap().reverse()),
    ] {
        let forged = edited(&records, seq, edit);
        let (audited, read) = (found(&FANNING, &forged), read_again(&FANNING, &forged).await);
        assert!(audited.is_some() && read.is_some(), "{audited:?} {read:?}: {}", forged[seq].body);
    }
    let paid = ran(machine(&CONTINUING, Err(("no", Value::Null))), 5).await;
    let failed = paid.iter().position(|record| record.body.contains(r#""error":"no""#)).unwrap();
    assert_eq!(read_again(&CONTINUING, &paid).await, None);
    for edit in [(|step: &mut Value| step["visits"][0]["edges"] = json!([9])) as fn(&mut Value), |step| {
        step["visits"][0]["suppressed"] = json!(false);
    }] {
        let forged = edited(&paid, failed, edit);
        let (audited, read) = (found(&CONTINUING, &forged), read_again(&CONTINUING, &forged).await);
        assert!(audited.is_some() && read.is_some(), "{audited:?} {read:?}: {}", forged[failed].body);
    }
}

#[tokio::test]
async fn a_call_says_nothing_that_its_node_does_not_do() {
    let program = PAYING_EACH;
    let records = ran(machine(&program, Ok(json!(1))), 5).await;
    let step = records.iter().position(|record| record.body.contains(r#""kind":"step""#)).unwrap();
    assert!(records[1].body.contains(r#""kind":"calls""#) && step > 1);
    let refused = |records: &[SignedRecord], what: &str| {
        let audited = audit(&machine(&program, Ok(json!(1))), &id(), records, &key().public(), None);
        assert!(audited.is_err(), "{what}");
    };
    for (member, value) in [
        ("step", json!(9)),
        ("node", json!("done")),
        ("item", json!(7)),
        ("item", Value::Null),
        ("cached", json!(true)),
        ("run", json!("forged-1_0")),
        ("now", json!(5)),
        ("calls", json!(9)),
        ("result", json!(2)),
    ] {
        let forged = edited(&records, 1, |record| record["done"][0][member] = value.clone());
        refused(&forged, &format!("`{member}` of a call: {value}"));
    }
    for (member, value) in [
        ("items", json!([{"item": 0, "error": "x"}])),
        ("items", json!([{"item": 9, "error": "x"}])),
        ("cached", json!(true)),
        ("run", json!("forged-1")),
        ("now", json!(5)),
    ] {
        let forged = edited(&records, step, |record| record["visits"][0][member] = value.clone());
        refused(&forged, &format!("`{member}` of a visit: {value}"));
    }
    // A visit names its failed items in their order.
    let failed = ran(machine(&program, Err(("no", Value::Null))), 5).await;
    let program = Program { settings: r#"{"on_error":"continue"}"#, ..program };
    let suppressed = ran(machine(&program, Err(("no", Value::Null))), 5).await;
    for records in [&failed, &suppressed] {
        let Some(step) = records.iter().position(|record| record.body.contains(r#""items":["#)) else { continue };
        for edit in [
            (|visit: &mut Value| visit["items"][1]["item"] = json!(9)) as fn(&mut Value),
            |visit| visit["items"].as_array_mut().unwrap().reverse(),
            |visit| visit["cached"] = json!(true),
            |visit| drop(visit.as_object_mut().unwrap().remove("error")),
        ] {
            let forged = edited(records, step, |record| edit(&mut record["visits"][0]));
            assert!(audit(&machine(&program, Ok(json!(1))), &id(), &forged, &key().public(), None).is_err());
        }
    }
    assert!(suppressed.iter().any(|record| record.body.contains(r#""items":["#)), "{:?}", suppressed[1].body);
    // An action that calls a tool without a cache was not answered from one.
    let paid = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5).await;
    for (member, value) in [("cached", json!(true)), ("items", json!([{"item": 0, "error": "x"}])), ("run", json!("x"))]
    {
        let forged = edited(&paid, 2, |record| record["visits"][0][member] = value.clone());
        assert!(found(&PAYING, &forged).is_some(), "{member}");
        let forged = edited(&paid, 1, |record| record["visits"][0][member] = value.clone());
        assert!(found(&PAYING, &forged).is_some(), "{member} of a gate");
    }
}

#[tokio::test]
async fn a_node_that_makes_no_call_has_nothing_of_one() {
    let program = Program {
        tools: &[Tool { id: "", ..PROGRAM.tools[0] }],
        permissions: &["*"],
        settings: r#"{"on_error":"continue"}"#,
        nodes: &[("call", r#"{"line":1,"does":{"action":0},"item":"${inputs.amount}"}"#)],
        ..PROGRAM
    };
    let records = ran(machine(&program, Ok(json!({}))), 5).await;
    assert_eq!(found(&program, &records), None);
    for (member, value) in [
        ("data", json!({"x": 1})),
        ("run", json!("forged-1")),
        ("now", json!(5)),
        ("cached", json!(true)),
        ("result", json!(1)),
        ("category", json!("transient")),
        ("items", json!([{"item": 0, "error": "x"}])),
    ] {
        let forged = edited(&records, 1, |record| record["visits"][0][member] = value.clone());
        let said = audit(&machine(&program, Ok(json!(1))), &id(), &forged, &key().public(), None);
        assert!(said.is_err(), "`{member}`: {value}");
    }
    // Nor does the journal hold a finished call of such a node.
    let forged = with_calls(&records, 1, &json!([{"step": 1, "node": "call", "result": 1}]));
    assert!(audit(&machine(&program, Ok(json!(1))), &id(), &forged[..2], &key().public(), None).is_err());
    let paid = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5).await;
    for (node, cached) in [("limit", false), ("pay", true), ("pay", false)] {
        let forged = with_calls(&paid, 1, &json!([{"step": 1, "node": node, "result": 1, "cached": cached}]));
        assert!(audit(&machine(&PAYING, Ok(json!(1))), &id(), &forged[..2], &key().public(), None).is_err(), "{node}");
    }
}

#[tokio::test]
async fn a_visit_agrees_with_its_finished_call() {
    let machine = || machine(&FANNING, Ok(json!({"paid": true})));
    let records = ran(machine(), 5).await;
    let step = records.iter().rposition(|record| record.body.contains(r#""kind":"step""#)).unwrap();
    assert!(!records.iter().any(|record| record.body.contains(r#""kind":"calls""#)), "no call waited for another");
    let audited = |records: &[SignedRecord]| audit(&machine(), &id(), records, &key().public(), None).map(drop);
    let call = json!({"step": 2, "node": "one", "result": {"paid": true}});
    assert_eq!(audited(&with_calls(&records, step, &json!([call]))), Ok(()));
    for (member, value) in [
        ("step", json!(3)),
        ("step", json!(9)),
        ("node", json!("fan")),
        ("result", json!({"paid": false})),
        ("calls", json!(3)),
        ("run", json!("forged-2")),
        ("cached", json!(true)),
        ("now", json!(5)),
        ("item", json!(0)),
    ] {
        let mut call = call.clone();
        call[member] = value.clone();
        let forged = with_calls(&records, step, &json!([call]));
        assert!(audited(&forged).is_err(), "`{member}`: {value}");
    }
    assert!(audited(&with_calls(&records, step, &json!([call, call]))).is_err(), "twice");
    assert!(audited(&with_calls(&records, step - 1, &json!([call]))).is_err(), "before its step");
    // A visit that failed has no finished call.
    let failed = edited(&with_calls(&records, step, &json!([call])), step + 1, |record| {
        let visit = record["visits"][0].as_object_mut().unwrap();
        visit.retain(|name, _| !["result", "changes"].contains(&name.as_str()));
        visit.extend([("error".to_owned(), json!("x")), ("category".to_owned(), json!("permanent"))]);
        visit.insert("suppressed".to_owned(), json!(true));
    });
    assert!(audited(&failed).is_err());
}

//! Forged visits, finished calls and snapshots: an audit refuses each one that the engine does not write.

use graph_runtime::__private::{Executor, Program, Tool};
use graph_runtime::{Call, EncryptionKey, Map, MemoryStore, Store, Value};
use serde_json::json;

use crate::forged::{
    AROUND, CONTINUING, CONTINUING_AROUND, FANNING, PAY, PAYING, PAYING_EACH, edited, id, inner, inserted, machine,
    ran, runtime, with_calls,
};
use crate::forged_ends::{borrowed, is_expected, nodes_with, refusal, refusal_of, refuses, without};
use crate::interpreted::{Interpreted, PROGRAM};

/// A graph that returns.
fn returning() -> Interpreted {
    let program = Program { id: "test/inner", nodes: &[("done", r#"{"line":1,"does":"return"}"#)], ..PROGRAM };
    Interpreted::new(&program, |_: &Call, _| Ok(Value::Null))
}

/// Makes a visit of a record a failed one.
fn fails(record: &mut Value) {
    let visit = &mut record["visits"][0];
    without(visit, &["changes", "edges"]);
    (visit["error"], visit["category"]) = (json!("x"), json!("permanent"));
}

/// Makes a visit of a record a successful one.
fn succeeds(record: &mut Value) {
    let visit = &mut record["visits"][0];
    without(visit, &["error", "category", "suppressed"]);
    visit["result"] = json!({"paid": true});
}

#[tokio::test]
async fn a_graph_that_nests_no_deeper_has_no_result() {
    let program = Program { settings: r#"{"on_error":"continue","depth":0}"#, ..CONTINUING_AROUND };
    let machine = machine(&program, Ok(Value::Null)).nesting(returning());
    let records = ran(machine.clone(), 5).await;
    refuses(&machine, &records, 1, &[(succeeds, "node `nest` cannot run the graph that it calls")]);
}

#[tokio::test]
async fn a_graph_that_does_not_exist_fails_in_one_way_only() {
    let machine = machine(&CONTINUING_AROUND, Ok(Value::Null));
    let records = ran(machine.clone(), 5).await;
    let why = "the call of node `nest` fails in another way: the program has no such graph";
    refuses(&machine, &records, 1, &[(|step| step["visits"][0]["error"] = json!("x"), why)]);
}

#[tokio::test]
async fn a_graph_names_its_missing_variables_in_their_order() {
    let inside = inner(PAY, &["rye.execute.tool.test.pay"]);
    let records = ran(machine(&CONTINUING_AROUND, Ok(Value::Null)).nesting(inside), 5).await;
    // The journal was written where the variables were not set.
    let nodes = &[("done", r#"{"line":1,"does":"return"}"#)];
    let program = Program { id: "test/inner", env: &["FIRST_VARIABLE", "SECOND_VARIABLE"], nodes, ..PROGRAM };
    let inside = Interpreted::new(&program, |_: &Call, _| Ok(Value::Null));
    let machine = machine(&CONTINUING_AROUND, Ok(Value::Null)).nesting(inside);
    let (first, second) = ("graph requires 'FIRST_VARIABLE'", "graph requires 'SECOND_VARIABLE'");
    let why = "the call of node `nest` does not fail so";
    for (missing, why) in [
        (first.to_owned(), ""),
        (second.to_owned(), ""),
        (format!("{first}, {second}"), ""),
        (format!("{second}, {first}"), why),
        (format!("{first}, {first}"), why),
        ("graph requires 'OTHER_VARIABLE'".to_owned(), why),
    ] {
        let error = format!("missing environment variables: {missing}");
        let forged = edited(&records, 1, |step| step["visits"][0]["error"] = json!(error));
        let found = refusal_of(&machine, &forged);
        assert!(is_expected(&found, why), "{missing}: {found}");
    }
}

#[tokio::test]
async fn a_visit_fails_only_on_a_result_that_it_cannot_use() {
    let around = machine(&AROUND, Ok(Value::Null)).nesting(returning());
    let records = ran(around.clone(), 5).await;
    refuses(&around, &records, 1, &[(fails, "node `nest` does not fail on what its calls returned")]);
    // The engine does not keep the result of a tool on which a visit failed.
    let nodes = nodes_with(&PAYING, r#"{"line":2,"#, r#"{"line":2,"on_error":3,"#);
    let nodes = borrowed(&nodes);
    let program = Program { nodes: &nodes, ..PAYING };
    let records = ran(machine(&program, Ok(json!({"paid": true}))), 5).await;
    let why = "node `pay` failed, and what its call returned is not written down then";
    refuses(&machine(&program, Ok(Value::Null)), &records, 2, &[(fails, why)]);
}

#[tokio::test]
async fn a_failure_that_no_edge_matches_ends_the_run() {
    let nodes = nodes_with(&PAYING, r#",{"to":"done"}"#, "");
    let nodes = borrowed(&nodes);
    let program = Program { nodes: &nodes, settings: r#"{"on_error":"continue","on_no_match":"fail"}"#, ..CONTINUING };
    let records = ran(machine(&program, Err(("no", json!({"code": 1})))), 5).await;
    assert_eq!(refusal(&program, &records), "");
    let visit = |code: u64| {
        let visit = json!({"step": 2, "node": "pay", "error": "no", "category": "permanent", "suppressed": true,
            "data": {"code": code}, "edges": [0]});
        json!({"kind": "step", "visits": [visit], "next": [{"number": 3, "node": "stop"}]})
    };
    assert_eq!(refusal(&program, &inserted(&records, 2, &visit(7))[..3]), "");
    let found = refusal(&program, &inserted(&records, 2, &visit(1))[..3]);
    assert!(found.contains("node `pay` failed, and its edges cannot be followed then"), "{found}");
}

/// A call for each item of a list, whose results the program caches.
const CACHING_EACH: Program<'static> = Program {
    settings: r#"{"on_error":"continue"}"#,
    nodes: &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"cached":true,"each":{"over":[7,7],"as":"n","collect":"paid","width":1},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ],
    ..PAYING
};

#[tokio::test]
async fn a_list_is_cached_only_if_each_item_is() {
    let cached = |step: &mut Value| step["visits"][0]["cached"] = json!(true);
    let failed = ran(machine(&CACHING_EACH, Err(("no", Value::Null))), 5).await;
    let audited = machine(&CACHING_EACH, Ok(Value::Null));
    refuses(&audited, &failed, 1, &[(cached, "node `each` was not answered from the cache")]);
    let nodes = nodes_with(&CACHING_EACH, "[7,7]", "[]");
    let nodes = borrowed(&nodes);
    let empty = Program { nodes: &nodes, ..CACHING_EACH };
    let records = ran(machine(&empty, Ok(json!(1))), 5).await;
    let audited = machine(&empty, Ok(Value::Null));
    refuses(&audited, &records, 1, &[(cached, "node `each` was not answered from the cache")]);
    // The first call is recorded before the step, and was made.
    let records = ran(machine(&CACHING_EACH, Ok(json!(1))), 5).await;
    assert!(records[1].body.contains(r#""kind":"calls""#), "{}", records[1].body);
    let step = records.iter().position(|record| record.body.contains(r#""kind":"step""#)).unwrap();
    let audited = machine(&CACHING_EACH, Ok(Value::Null));
    refuses(&audited, &records, step, &[(cached, "item 0 of node `each` was not answered from the cache")]);
    // No graph is cached.
    let graphs = Program { tools: AROUND.tools, ..CACHING_EACH };
    let machine = machine(&graphs, Ok(Value::Null)).nesting(returning());
    let records = ran(machine.clone(), 5).await;
    let step = records.iter().position(|record| record.body.contains(r#""kind":"step""#)).unwrap();
    let why = "item 0 of node `each` returns what is never kept, and it says that it was";
    refuses(&machine, &records, step, &[(cached, why)]);
}

#[tokio::test]
async fn a_list_fails_without_items_only_if_no_edge_matches() {
    let nodes = &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":[7,7],"as":"n","collect":"paid","width":1},"on_error":1,"next":[{"to":"done","when":{"path":"state.paid","op":"eq","value":[]}}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    // The edge matches the list that is not recorded only if it is empty.
    let program = Program { settings: r#"{"on_no_match":"fail"}"#, nodes, ..PAYING };
    let records = ran(machine(&program, Ok(json!(1))), 5).await;
    let step = records.iter().position(|record| record.body.contains(r#""kind":"step""#)).unwrap();
    let why = "node `each` failed, and none of its items did";
    let audited = machine(&program, Ok(Value::Null));
    refuses(
        &audited,
        &records,
        step,
        &[
            (|step| step["visits"][0]["error"] = json!("x"), why),
            (|step| step["visits"][0]["category"] = json!("transient"), why),
        ],
    );
}

#[tokio::test]
async fn a_call_that_cannot_succeed_is_not_finished() {
    let program = Program {
        settings: r#"{"on_error":"continue"}"#,
        nodes: &[
            FANNING.nodes[0],
            ("one", r#"{"line":2,"does":{"action":0},"item":"${inputs.amount}"}"#),
            ("two", r#"{"line":3,"does":{"action":0},"item":"test/tool"}"#),
        ],
        tools: &[Tool { id: "", ..PROGRAM.tools[0] }],
        permissions: &["*"],
        ..FANNING
    };
    let records = ran(machine(&program, Ok(json!({}))), 5).await;
    assert_eq!(refusal(&program, &records), "");
    let found = |node: &str, step: u64| {
        let done = json!([{"step": step, "node": node, "result": {}}]);
        refusal(&program, &with_calls(&records, 2, &done)[..3])
    };
    assert_eq!(found("two", 3), "");
    assert!(found("one", 2).contains("node `one` fails: `item_id` is a string"), "{}", found("one", 2));
    // A list that cannot be computed has no items.
    let body = r#"{"line":1,"does":{"foreach":0},"each":{"over":"${inputs.amount}","as":"n","width":1}}"#;
    let program = Program { nodes: &[("each", body)], ..PROGRAM };
    let records = ran(machine(&program, Ok(json!({}))), 5).await;
    assert_eq!(refusal(&program, &records), "");
    let done = json!([{"step": 1, "node": "each", "item": 0, "result": {}}]);
    let found = refusal(&program, &with_calls(&records, 1, &done)[..2]);
    assert!(found.contains("node `each` makes a call for an item that its list has not"), "{found}");
}

#[tokio::test]
async fn a_write_that_does_not_combine_fails_with_a_text_of_its_reducer() {
    let pay = r#"{"line":1,"does":{"action":0},"assign":{"paid":"${result.paid}"},"retry":{"attempts":2,"delay_ms":0,"on":["any"]},"on_error":1}"#;
    let nodes = &[("pay", pay), ("end", r#"{"line":2,"does":"return"}"#)];
    let program = Program { nodes, settings: r#"{"channels":{"paid":"sum"}}"#, ..PAYING };
    let records = ran(machine(&program, Ok(json!({"paid": "5"}))), 5).await;
    // The call is not made again where its result arrived.
    refuses(&machine(&program, Ok(Value::Null)), &records, 1, &[]);
    let why = "node `pay` makes 2 calls before it gives up";
    for (error, why) in [
        ("`state.paid`: `sum` takes a number, and found nothing", ""),
        ("`state.paid`: `sum` is beyond the integers of 64 bits", ""),
        ("`state.paid`: `sum` takes a text, and found a string", why),
        ("`state.paid`: `max` cannot compare a string with an integer", why),
        ("`state.paid`: no", why),
        ("`state.other`: `sum` takes a number, and found a string", why),
    ] {
        let forged = edited(&records, 1, |step| step["visits"][0]["error"] = json!(error));
        let found = refusal_of(&machine(&program, Ok(Value::Null)), &forged);
        assert!(is_expected(&found, why), "{error}: {found}");
    }
}

#[tokio::test]
async fn a_failure_that_ends_its_branch_leads_over_no_list() {
    let nodes = &[
        ("split", r#"{"line":1,"does":"gate","next":{"over":[5],"as":"a","to":"work","on_branch_error":"collect"}}"#),
        ("work", r#"{"line":2,"does":{"action":0},"next":{"over":[6],"as":"b","to":"join"}}"#),
        ("join", r#"{"line":3,"does":"gate","join":{"of":[1],"fan":1,"closes":true},"next":[{"to":"end"}]}"#),
        ("end", r#"{"line":4,"does":"return","join":{"of":[2],"fan":0,"closes":true}}"#),
    ];
    // Without the encryption key, an audit of this graph computes no edges.
    let settings = r#"{"secrets":{"keys":{"paid":"all"}}}"#;
    let machine = machine(&Program { nodes, settings, ..PAYING }, Err(("no", Value::Null)));
    let store = MemoryStore::new();
    let runtime = runtime(&store).encrypt_with(EncryptionKey::from_bytes([2; 32])).build().unwrap();
    let inputs = Map::from_iter([("amount".to_owned(), json!(5))]);
    runtime.start_as(id(), machine.clone(), inputs).await.unwrap().await.unwrap();
    let records = store.load(&id()).await.unwrap();
    let over = |step: &mut Value| step["visits"][0]["over"] = json!(1);
    let listed = |step: &mut Value| {
        (step["visits"][0]["over"], step["visits"][0]["list"]) = (json!(1), json!([6]));
    };
    let why = "node `work` goes over another list";
    refuses(&machine, &records, 2, &[(over, why), (listed, why)]);
}

#[tokio::test]
async fn the_finished_call_of_a_graph_is_not_cached() {
    let nodes = nodes_with(&FANNING, r#""does":{"action":0}"#, r#""does":{"action":0},"cached":true"#);
    let nodes = borrowed(&nodes);
    let tools = &[Tool { by: Executor::Graph, ..PROGRAM.tools[0] }];
    let machine = machine(&Program { nodes: &nodes, tools, ..FANNING }, Ok(Value::Null)).nesting(returning());
    let records = ran(machine.clone(), 5).await;
    assert_eq!(refusal_of(&machine, &records), "");
    let found = |cached: bool| {
        let done = json!([{"step": 2, "node": "one", "result": {}, "run": "forged-2", "cached": cached}]);
        refusal_of(&machine, &with_calls(&records, 2, &done)[..3])
    };
    assert_eq!(found(false), "");
    assert!(found(true).contains("what node `one` returned is never kept"), "{}", found(true));
}

#[tokio::test]
async fn a_record_of_finished_calls_names_new_calls() {
    let records = ran(machine(&PAYING_EACH, Ok(json!(1))), 5).await;
    let nodes = nodes_with(&PAYING_EACH, r#""width":1"#, r#""width":2"#);
    let nodes = borrowed(&nodes);
    let wider = machine(&Program { nodes: &nodes, ..PAYING_EACH }, Ok(Value::Null));
    let why = "node `each` made the call of item 0 again, which was done";
    refuses(&wider, &records, 2, &[(|calls| calls["done"][0]["item"] = json!(0), why)]);
    refuses(&wider, &records, 1, &[(|calls| calls["done"] = json!([]), "it names no call")]);
}

#[tokio::test]
async fn a_snapshot_follows_a_step() {
    let records = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5).await;
    let snapshot = |steps: u64, last: &str, next: &str| {
        let next = json!([{"number": steps + 1, "node": next}]);
        json!({"kind": "snapshot", "steps": steps, "last": last, "keys": {}, "next": next})
    };
    let (early, after) = (snapshot(0, "limit", "limit"), snapshot(1, "limit", "pay"));
    assert_eq!(refusal(&PAYING, &inserted(&records, 2, &after)), "");
    for (at, snapshot) in [(1, early), (3, after.clone())] {
        let twice = inserted(&inserted(&records, 2, &after), at, &snapshot);
        let found = refusal(&PAYING, &twice);
        assert!(found.contains(&format!("record {at}")) && found.contains("it does not follow a step"), "{found}");
    }
}

#[tokio::test]
async fn a_fork_begins_with_a_position_that_leads_on() {
    let records = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5).await;
    let link = "00".repeat(32);
    let from = |start: &mut Value| start["from"] = json!({"run": "other", "seq": 1, "link": link});
    let found = refusal(&PAYING, &edited(&records, 0, from));
    assert!(found.contains("the run began in another run, and no snapshot has its position"), "{found}");
    let found = refusal(&PAYING, &edited(&records, 0, from)[..1]);
    assert!(found.contains("the run began in another run, and no snapshot has its position"), "{found}");
    let begun = |next: Value| {
        let snapshot = json!({"kind": "snapshot", "steps": 1, "last": "limit", "keys": {}, "next": next});
        refusal(&PAYING, &inserted(&edited(&records, 0, from), 1, &snapshot)[..2])
    };
    assert_eq!(begun(json!([{"number": 2, "node": "pay"}])), "");
    assert!(begun(json!([])).contains("nothing was left to do where it began"), "{}", begun(json!([])));
}

/// A graph that calls its tool for each of three elements, and needs the results of `need`. The call for 3 returns first.
pub(crate) fn racing(need: u32) -> Interpreted {
    let met = format!(
        r#"{{"line":3,"does":"return","join":{{"of":[1],"fan":0,"closes":true,"quorum":{{"need":{need},"fewer":3}}}}}}"#
    );
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"over":[1,2,3],"as":"n","to":"work"}}"#),
        (
            "work",
            r#"{"line":2,"does":{"action":0},"params":{"n":"${n}"},"assign":{"paid":"${result}"},"next":[{"to":"met"}]}"#,
        ),
        ("met", &*met),
        ("short", r#"{"line":4,"does":"return"}"#),
    ];
    let program = Program { nodes: &nodes, settings: r#"{"channels":{"paid":"sum"}}"#, ..PAYING };
    Interpreted::waiting(&program, |_, params| {
        let n = params["n"].as_i64().unwrap();
        Box::pin(async move { if n == 3 { Ok(json!(n)) } else { std::future::pending().await } })
    })
}

/// A graph that begins in two nodes, both of which call a tool.
pub(crate) fn beginning_in_two() -> Interpreted {
    let call =
        r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"paid":"${result}"},"next":[{"to":"both"}]}"#;
    let nodes = [
        ("one", call),
        ("two", call),
        ("both", r#"{"line":3,"does":"return","join":{"of":[0,1],"fan":3,"closes":true}}"#),
        ("config.start", r#"{"line":4,"does":"start","next":{"all":[{"to":"one"},{"to":"two"}]}}"#),
    ];
    let program = Program { start: 3, nodes: &nodes, settings: r#"{"channels":{"paid":"sum"}}"#, ..PAYING };
    Interpreted::new(&program, |_, params| Ok(params["n"].clone()))
}

#[tokio::test]
async fn the_branches_of_a_start_are_those_of_visit_0() {
    let machine = beginning_in_two();
    let records = ran(machine.clone(), 5).await;
    let first: Value = serde_json::from_str(&records[1].body).unwrap();
    let visits: Vec<Value> = first["visits"].as_array().unwrap().iter().map(|visit| visit["branch"].clone()).collect();
    assert_eq!(visits, [json!([0]), json!([1])], "{first}");
    assert_eq!(refusal_of(&machine, &records), "");
    // No visit is one of the start itself, or of a branch that it does not begin.
    for forge in [
        |step: &mut Value| step["visits"][0]["node"] = json!("config.start"),
        |step: &mut Value| step["visits"][0]["branch"] = json!([2]),
        |step: &mut Value| step["visits"][0]["branch"] = json!([]),
        |step: &mut Value| step["visits"][1]["node"] = json!("one"),
        |step: &mut Value| step["visits"][1]["fan"] = json!(1),
        |step: &mut Value| drop(step["visits"].as_array_mut().unwrap().pop()),
    ] {
        let forged = edited(&records, 1, forge);
        assert_ne!(refusal_of(&machine, &forged), "", "{}", forged[1].body);
    }
}

/// A graph that fans out to two calls, which lead to these two nodes.
fn leading_to(ends: [(&str, &str); 2]) -> Interpreted {
    let call =
        |next: &str| format!(r#"{{"line":1,"does":{{"action":0}},"params":{{"n":1}},"next":[{{"to":"{next}"}}]}}"#);
    let [one, two] = ends.map(|(name, _)| call(name));
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"two"}]}}"#),
        ("one", &*one),
        ("two", &*two),
        ends[0],
        ends[1],
    ];
    Interpreted::new(&Program { nodes: &nodes, ..PAYING }, |_, params| Ok(params["n"].clone()))
}

#[tokio::test]
async fn a_join_that_cancels_cancels_no_visit_of_its_step() {
    let machine = leading_to([
        ("early", r#"{"line":4,"does":"return","cancels":true,"join":{"of":[1],"fan":0}}"#),
        ("late", r#"{"line":5,"does":"return","cancels":true,"join":{"of":[2],"fan":0}}"#),
    ]);
    let records = ran(machine.clone(), 5).await;
    let still = "its visit was cancelled, and its branch was still needed";
    refuses(&machine, &records, 2, &[(|step| cancel(&mut step["visits"][1]), still)]);
}

#[tokio::test]
async fn a_visit_is_cancelled_beside_one_that_leads_to_a_return_that_cancels() {
    let machine = leading_to([
        ("first", r#"{"line":4,"does":"return","cancels":true}"#),
        ("both", r#"{"line":5,"does":"return","join":{"of":[2],"fan":0,"closes":true}}"#),
    ]);
    let records = ran(machine.clone(), 5).await;
    refuses(
        &machine,
        &records,
        2,
        &[
            // Whether a visit was done in time is known to the engine only.
            (|step| cancel(&mut step["visits"][1]), ""),
            // The visit that leads to the return was not cancelled.
            (|step| cancel(&mut step["visits"][0]), "its visit was cancelled, and its branch was still needed"),
            (|step| step["next"] = json!([{"number": 4, "node": "both"}]), "it says that both is next, and first is"),
        ],
    );
}

/// Makes a visit a cancelled one.
fn cancel(visit: &mut Value) {
    let members = visit.as_object_mut().unwrap();
    members.retain(|name, _| matches!(name.as_str(), "step" | "node" | "branch" | "fan"));
    members.insert("cancelled".to_owned(), json!(true));
}

#[tokio::test]
async fn a_visit_is_cancelled_only_where_a_quorum_is_decided() {
    let machine = racing(1);
    let records = ran(machine.clone(), 5).await;
    let step: Value = serde_json::from_str(&records[2].body).unwrap();
    let cancelled = |at: usize| step["visits"][at]["cancelled"] == json!(true);
    assert_eq!([0, 1, 2].map(cancelled), [true, true, false], "{step}");
    let finished = |step: &mut Value, at: usize| {
        let n = at + 1;
        let visit = step["visits"][at].as_object_mut().unwrap();
        visit.remove("cancelled");
        visit.extend([
            ("result".to_owned(), json!(n)),
            ("changes".to_owned(), json!({"paid": n})),
            ("edges".to_owned(), json!([0])),
        ]);
    };
    // Any choice of enough branches is one that the engine can write.
    let others = edited(&records, 2, |step| finished(step, 0));
    let others = edited(&others, 3, |end| end["output"]["paid"] = json!(4));
    assert!(!refusal_of(&machine, &others).contains("cancelled"), "{}", refusal_of(&machine, &others));
    let still = "its visit was cancelled, and its branch was still needed";
    let bare = "the visit of node `work` was cancelled, and says what it came to";
    let all = |step: &mut Value| cancel(&mut step["visits"][2]);
    let result = |step: &mut Value| step["visits"][0]["result"] = json!(1);
    let write = |step: &mut Value| step["visits"][0]["changes"] = json!({"paid": 1});
    let failure = |step: &mut Value| step["visits"][0]["error"] = json!("no");
    let calls = |step: &mut Value| step["visits"][0]["calls"] = json!(2);
    refuses(&machine, &records, 2, &[(all, still), (result, bare), (write, bare), (failure, bare), (calls, bare)]);
    // Where two branches are needed, one is not enough.
    let two = racing(2);
    let found = refusal_of(&two, &records);
    assert!(found.contains(still), "{found}");
    // Outside of branches, nothing is cancelled.
    let outside = edited(&records, 1, |step| {
        cancel(&mut step["visits"][0]);
    });
    let found = refusal_of(&machine, &outside);
    assert!(found.contains(still), "{found}");
}

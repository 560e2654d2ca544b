//! Forged ends of runs: an audit refuses an end that the engine does not write, and accepts each end that it writes.

use graph_runtime::__private::{Program, Tool};
use graph_runtime::record::SignedRecord;
use graph_runtime::{ActionError, Call, Layer, Map, MemoryStore, Store, Value, audit};
use serde_json::json;

use crate::forged::{FANNING, More, PAYING, PAYING_EACH, ROUND, edited, id, inserted, key, machine, ran, runtime};
use crate::interpreted::{Interpreted, PROGRAM};

/// A change of a record.
type Edit = fn(&mut Value);

/// Returns the error of an audit under this graph; empty if it accepts the journal.
pub(crate) fn refusal(program: &Program<'_>, records: &[SignedRecord]) -> String {
    refusal_of(&machine(program, Ok(Value::Null)), records)
}

pub(crate) fn refusal_of(machine: &Interpreted, records: &[SignedRecord]) -> String {
    let audited = audit(machine, &id(), records, &key().public(), None);
    audited.err().map(|error| error.to_string()).unwrap_or_default()
}

/// Whether an error is the expected one; an empty `why` expects no error.
pub(crate) fn is_expected(error: &str, why: &str) -> bool {
    if why.is_empty() { error.is_empty() } else { error.contains(why) }
}

/// Asserts that an audit accepts a journal, and refuses each edit of the record `at` with its message.
pub(crate) fn refuses(machine: &Interpreted, records: &[SignedRecord], at: usize, cases: &[(Edit, &str)]) {
    assert_eq!(refusal_of(machine, records), "", "{:?}", records.last().unwrap().body);
    for (place, (edit, why)) in cases.iter().enumerate() {
        let forged = edited(records, at, edit);
        let found = refusal_of(machine, &forged);
        assert!(is_expected(&found, why), "case {place}: {found}: {}", forged[at].body);
    }
}

/// Removes members of an object.
pub(crate) fn without(object: &mut Value, names: &[&str]) {
    object.as_object_mut().unwrap().retain(|name, _| !names.contains(&name.as_str()));
}

/// Returns a copy of a program's nodes in which each `from` is replaced by `to`.
pub(crate) fn nodes_with<'a>(program: &Program<'a>, from: &str, to: &str) -> Vec<(&'a str, String)> {
    program.nodes.iter().map(|(name, body)| (*name, body.replace(from, to))).collect()
}

/// Borrows the nodes as a program has them.
pub(crate) fn borrowed<'a>(nodes: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    nodes.iter().map(|(name, body)| (*name, body.as_str())).collect()
}

#[tokio::test]
async fn a_run_with_open_nodes_has_no_result() {
    let records = ran(machine(&PAYING, Err(("no", Value::Null))), 5).await;
    let completed: Edit = |end| {
        without(end, &["error", "node"]);
        end["status"] = json!("completed");
    };
    let audited = machine(&PAYING, Ok(Value::Null));
    refuses(&audited, &records, 2, &[(completed, "nodes were still to be visited")]);
}

#[tokio::test]
async fn a_result_at_the_step_limit_is_not_computed() {
    let program = Program { settings: r#"{"max_steps":3,"on_max_steps":"return_last"}"#, ..ROUND };
    let records = ran(machine(&program, Ok(json!({}))), 5).await;
    let why = "nothing is computed where a run has taken all the steps it may";
    let audited = machine(&program, Ok(Value::Null));
    let cases: [(Edit, &str); 2] =
        [(|end| end["now"] = json!(5), why), (|end| end["warnings"] = json!(["an empty list"]), why)];
    refuses(&audited, &records, records.len() - 1, &cases);
}

#[tokio::test]
async fn a_run_without_a_way_may_end_at_any_node() {
    // Neither the last step nor the next one visits `late`, so no hook and no call ends the run there.
    let late = ("late", r#"{"line":4,"does":"gate"}"#);
    let branching = [FANNING.nodes, &[late]].concat();
    let program = Program { nodes: &branching, ..FANNING };
    let records = ran(machine(&program, Err(("no", Value::Null))), 5).await;
    let stuck: Edit = |end| {
        without(end, &["failures"]);
        end["error"] = json!("the run cannot go on here: it waits for branches that cannot come");
        end["node"] = json!("late");
    };
    assert_eq!(refusal(&program, &edited(&records, records.len() - 1, stuck)), "");
    let other: Edit = |end| {
        without(end, &["failures"]);
        (end["error"], end["node"]) = (json!("it waits for nothing"), json!("late"));
    };
    refuses(
        &machine(&program, Ok(Value::Null)),
        &records,
        records.len() - 1,
        &[(other, "node `late` was not visited")],
    );
    // A graph without branches leads to one node.
    let straight = [PAYING.nodes, &[late]].concat();
    let program = Program { nodes: &straight, ..PAYING };
    let records = ran(machine(&program, Err(("no", Value::Null))), 5).await;
    refuses(&machine(&program, Ok(Value::Null)), &records, 2, &[(stuck, "node `late` was not visited")]);
}

#[tokio::test]
async fn the_code_of_a_list_comes_from_a_call_for_an_item() {
    let coded: Edit = |end| end["code"] = json!("x");
    let records = ran(machine(&PAYING_EACH, Err(("no", Value::Null))), 5).await;
    refuses(&machine(&PAYING_EACH, Ok(Value::Null)), &records, records.len() - 1, &[(coded, "")]);
    // No item has an id, or there is no list: the node calls nothing.
    let each = |over| {
        let body = r#"{"line":1,"does":{"foreach":0},"item":"${n}","each":{"over":OVER,"as":"n","width":1}}"#;
        body.replace("OVER", over)
    };
    for over in ["[5,6]", r#""${inputs.amount}""#] {
        let body = each(over);
        let program = Program {
            tools: &[Tool { id: "", ..PROGRAM.tools[0] }],
            permissions: &["*"],
            nodes: &[("each", body.as_str())],
            ..PROGRAM
        };
        let records = ran(machine(&program, Ok(Value::Null)), 5).await;
        let why = "no call of node `each` names the code of an error";
        refuses(&machine(&program, Ok(Value::Null)), &records, records.len() - 1, &[(coded, why)]);
    }
}

/// Calls and computes by turns, and may take two steps.
const BY_TURNS: Program<'static> = Program {
    settings: r#"{"max_steps":2}"#,
    nodes: &[
        ("call", r#"{"line":1,"does":{"action":0},"next":[{"to":"gate"}]}"#),
        ("gate", r#"{"line":2,"does":"gate","next":[{"to":"call"}]}"#),
    ],
    ..PROGRAM
};

/// Returns the settings of `BY_TURNS` with a hook at the limit.
fn hooked(params: &str) -> String {
    format!(r#"{{"max_steps":2,"hooks":[{{"event":"limit","params":{params}}}]}}"#)
}

const MORE: &str = r#"{"action":"continue","additional_steps":2}"#;
const NO_MORE: &str = r#"{"action":"continue","additional_steps":0}"#;
const RETRY: &str = r#"{"action":"retry"}"#;
const FAIL: &str = r#"{"action":"fail","error":"enough"}"#;
/// No control: the hooks of the program decide.
const NOTHING: &str = r#"{"action":"note"}"#;

/// Asserts the error of an audit of a journal of `BY_TURNS` under each hook.
fn assert_under_hooks(records: &[SignedRecord], cases: &[(&str, &str)]) {
    for (hook, why) in cases {
        let settings = hooked(hook);
        let found = refusal(&Program { settings: &settings, ..BY_TURNS }, records);
        assert!(is_expected(&found, why), "{hook}: {found}");
    }
}

/// Runs `BY_TURNS` with a hook; the call of the third step fails if `is_failing`.
async fn ran_by_turns(hook: &str, is_failing: bool) -> Vec<SignedRecord> {
    let settings = hooked(hook);
    let machine = Interpreted::new(&Program { settings: &settings, ..BY_TURNS }, move |call: &Call, _| {
        if is_failing && call.step() == 3 { Err(ActionError::permanent("no")) } else { Ok(json!({})) }
    });
    ran(machine, 5).await
}

#[tokio::test]
async fn a_call_after_the_limit_needs_a_hook_that_allows_it() {
    let records = ran_by_turns(MORE, true).await;
    assert!(records.last().unwrap().body.contains(r#""error":"no""#), "{:?}", records.last());
    let why = "the run had taken all the steps it may";
    assert_under_hooks(&records, &[(MORE, ""), (NOTHING, ""), (NO_MORE, why), (RETRY, why), (FAIL, why)]);
    // The program's own hook allowed one step more, which is recorded. The graph's hook comes before it.
    let store = MemoryStore::new();
    let by_program = runtime(&store).hooks(Layer::Builtin, More(3)).build().unwrap();
    by_program.start_as(id(), machine(&BY_TURNS, Ok(json!({}))), Map::new()).await.unwrap().await.unwrap_err();
    let raised = store.load(&id()).await.unwrap();
    let why = "it is visit 3, and the run may make 2";
    assert_under_hooks(&raised, &[(NOTHING, ""), (RETRY, why), (FAIL, why), (NO_MORE, why)]);
}

#[tokio::test]
async fn the_limit_ends_a_run_unless_a_hook_prevents_that() {
    let records = ran_by_turns(NO_MORE, false).await;
    assert!(records.last().unwrap().body.contains("Max steps exceeded (2)"), "{:?}", records.last());
    let why = "a run fails so only at a node";
    assert_under_hooks(&records, &[(NO_MORE, ""), (RETRY, ""), (NOTHING, ""), (MORE, why), (FAIL, why)]);
    assert_under_hooks(&ran_by_turns(RETRY, false).await, &[(RETRY, "")]);
    let failed = ran_by_turns(FAIL, false).await;
    assert_under_hooks(&failed, &[(FAIL, ""), (NOTHING, ""), (RETRY, "the run had taken all the steps it may")]);
    // The same holds if the run returns at its limit.
    let settings = |hook| hooked(hook).replacen('{', r#"{"on_max_steps":"return_last","#, 1);
    let returning = Program { settings: &settings(NO_MORE), ..BY_TURNS };
    let records = ran(machine(&returning, Ok(json!({}))), 5).await;
    let why = "the run had not taken all the steps it may";
    for (hook, why) in [(NO_MORE, ""), (RETRY, ""), (NOTHING, ""), (MORE, why), (FAIL, why)] {
        let found = refusal(&Program { settings: &settings(hook), ..BY_TURNS }, &records);
        assert!(is_expected(&found, why), "{hook}: {found}");
    }
}

#[tokio::test]
async fn a_value_that_does_not_fit_ends_the_run_at_its_call() {
    let records = ran(machine(&PAYING, Err(("no", Value::Null))), 5).await;
    let unfit: Edit = |end| {
        end["error"] = json!("what it wrote does not fit the state: expected an integer");
        end["unfit"] = json!(true);
    };
    let other: Edit = |end| end["unfit"] = json!(true);
    let why = "node `pay` does not fail so on what its calls returned";
    refuses(&machine(&PAYING, Ok(Value::Null)), &records, 2, &[(unfit, ""), (other, why)]);
}

#[tokio::test]
async fn a_failure_that_leads_along_an_edge_does_not_end_a_run() {
    let done = PAYING.nodes[2];
    let settings = r#"{"on_error":"continue","on_no_match":"fail"}"#;
    // The edge matches neither the result nor the failure: the run ends with the failure.
    let call =
        r#"{"line":1,"does":{"action":0},"next":[{"to":"done","when":{"path":"result.code","op":"eq","value":1}}]}"#;
    let program = Program { settings, nodes: &[("call", call), done], ..PAYING };
    let records = ran(machine(&program, Ok(json!({}))), 5).await;
    assert!(records[1].body.contains(r#""unfit":true"#), "{}", records[1].body);
    assert_eq!(refusal(&program, &records), "");
    // The edge matches the failure: the run continues.
    let call = r#"{"line":1,"does":{"action":0},"next":[{"to":"done","when":{"path":"result.status","op":"eq","value":"error"}}]}"#;
    let program = Program { settings, nodes: &[("call", call), done], ..PAYING };
    let records = ran(machine(&program, Ok(json!({}))), 5).await;
    assert_eq!(refusal(&program, &records), "");
    let step: Value = serde_json::from_str(&records[1].body).unwrap();
    let visit = &step["visits"][0];
    assert_eq!(visit["suppressed"], json!(true), "{visit}");
    let end =
        json!({"kind": "end", "status": "error", "steps": 0, "error": visit["error"], "node": "call", "unfit": true});
    let found = refusal(&program, &inserted(&records, 1, &end)[..2]);
    assert!(found.contains("the failure of node `call` leads along its edges"), "{found}");
}

#[tokio::test]
async fn a_start_names_an_encryption_key_only_for_secrets() {
    let records = ran(machine(&PAYING, Ok(json!({"paid": true}))), 5).await;
    let why = "the key that secrets are encrypted with is named where the graph has secrets, and only there";
    let sealed: Edit = |start| start["seal"] = json!("00000000000000aa");
    refuses(&machine(&PAYING, Ok(Value::Null)), &records, 0, &[(sealed, why)]);
}

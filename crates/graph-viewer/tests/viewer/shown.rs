//! The data that the viewer serves about runs: rows, records, states, drawings, questions, proofs, comparisons.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use graph_runtime::answer::questions;
use graph_runtime::history::{checkpoints, differences, entry_at};
use graph_runtime::{
    ActionError, Durability, Machine as _, Map, Options, ProjectFiles, RunId, Runtime, Store as _, Value, audit_tree,
};
use graph_viewer::{ViewedPlace, ViewerOptions};
use serde_json::json;

use crate::place::{Everything, Place, Served, key, tokio};
use crate::server::{place, ran};

/// A graph with branches, a retry, a nested graph, a failure after which it continues, and a question.
const RICH: &str = "config_schema: { type: object, properties: { names: { type: array, items: { type: string } } }, required: [names] }
config:
  start: spread
  channels: { lengths: append }
  nodes:
    spread: { type: gate, next: { over: '${inputs.names}', as: name, to: measure, most: 9 } }
    measure:
      action: { item_id: t/measure, params: { name: '${name}' } }
      retry: { attempts: 3, delay: 1ms }
      assign: { lengths: '${result.length}' }
      next: gather
    gather: { type: gate, waits_for: [measure], next: fragile }
    fragile:
      action: { item_id: t/fail }
      on_error: inside
      next: inside
    inside:
      action: { item_id: inner, params: { start: 3 } }
      assign: { inner: '${result}' }
      next: ask
    ask:
      type: interrupt
      payload: { lengths: '${state.lengths}' }
      result_schema: { type: string, enum: [good, bad] }
      assign: { said: '${result}' }
      next: done
    done: { type: return, output: { lengths: '${state.lengths}', said: '${state.said}' } }
";

const INNER: &str = "config_schema: { type: object, properties: { start: { type: integer } }, required: [start] }
config:
  start: count
  nodes:
    count: { action: { item_id: t/measure, params: { name: abc } }, assign: { n: '${result.length}' }, next: out }
    out: { type: return, output: { n: '${state.n}' } }
";

const MEASURE: &str = "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: { name: { type: string } }, required: [name] }\n\
                       result_schema: { type: object, properties: { length: { type: integer } }, required: [length] }\n";

/// A place with a run of [`RICH`] that waits for an answer.
pub(crate) fn rich() -> Place {
    let place = Place::new();
    place.sign("tools/t/measure.yaml", MEASURE);
    place.graph("inner", INNER);
    place.graph("rich", RICH);
    tokio().block_on(async {
        let runtime = place.runtime(place.store().await);
        let begun = runtime.start_as(RunId::new("rich-1").unwrap(), machine(&place), inputs()).await.unwrap();
        begun.await.unwrap_err();
    });
    place
}

fn inputs() -> Map<String, Value> {
    Map::from_iter([("names".to_owned(), json!(["tea", "coffee", "milk"]))])
}

fn machine(place: &Place) -> graph_runtime::dynamic::Interpreted {
    let calls = AtomicU32::new(0);
    let tools = move |_: &_, row: &graph_compiler::graph::TypedTool, params: Map<String, Value>| match row.id.as_str() {
        "t/fail" => Err(ActionError::permanent("the kettle is <b>empty</b>")),
        // The first call of all fails once.
        _ if calls.fetch_add(1, Ordering::Relaxed) == 0 => Err(ActionError::transient("not now")),
        _ => Ok(json!({"length": params["name"].as_str().unwrap().len()})),
    };
    place.load("rich", Everything(tools))
}

fn rows(viewer: &Served, run: &str, query: &str) -> Vec<Value> {
    viewer.api(&format!("run/{run}/rows?{query}"))["rows"].as_array().unwrap().clone()
}

#[test]
fn rows_show_visits_events_retries_and_nested_runs() {
    let place = rich();
    let viewer = place.viewer();
    let all = rows(&viewer, "rich-1", "");
    let named =
        |name: &str| all.iter().filter(|row| row["kind"] == "step" && row["node"] == name).cloned().collect::<Vec<_>>();
    assert_eq!(all[0]["kind"], "start");
    assert_eq!(named("measure").len(), 3, "{all:#?}");
    let calls: Vec<u64> = named("measure").iter().filter_map(|row| row["calls"].as_u64()).collect();
    assert_eq!(calls, [2], "one of them was called again");
    assert_eq!(named("measure")[1]["branch"], json!([1]));
    assert_eq!(named("fragile")[0]["error"], "the kettle is <b>empty</b>");
    let nested = named("inside")[0]["run"].as_str().unwrap().to_owned();
    assert!(named("ask")[0]["opened"]["payload"]["lengths"].is_array());
    assert_eq!(named("spread")[0]["next"], json!(["measure", "measure", "measure"]));
    // Filters, and the numbers of all rows that pass.
    for (query, expected) in
        [("flags=1", "fragile"), ("flags=4", "inside"), ("flags=8", "ask"), ("node=gather", "gather")]
    {
        let found = rows(&viewer, "rich-1", query);
        assert!(found.iter().any(|row| row["node"] == expected), "{query}: {found:?}");
        assert!(found.len() < all.len(), "{query}");
    }
    assert!(rows(&viewer, "rich-1", "node=nothing").is_empty());
    assert_eq!(rows(&viewer, "rich-1", "from=3&count=2"), all[3..5]);
    // The nested run is listed inside of this one.
    assert_eq!(viewer.api("runs?within=rich-1")["runs"][0]["run"], nested.as_str());
    assert_eq!(viewer.api(&format!("run/{nested}"))["summary"]["parent"], "rich-1");
    assert_eq!(viewer.api("runs?within=top")["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn states_and_differences_are_those_of_the_history() {
    let place = rich();
    let viewer = place.viewer();
    let run = RunId::new("rich-1").unwrap();
    let records = tokio().block_on(async { place.store().await.load(&run).await.unwrap() });
    let graph = machine(&place);
    let at = |step: u64| entry_at(&graph, &run, &records, &key().public(), None, Some(step)).unwrap();
    let mut compared = 0;
    for checkpoint in checkpoints(&run, &records, &key().public()).unwrap() {
        let step = checkpoint.step;
        let expected = at(step);
        let shown = viewer.api(&format!("run/rich-1/state?step={step}"));
        assert_eq!((&shown["state"], &shown["next"]), (&expected.state, &json!(expected.next)), "step {step}");
        let Some(before) = shown["before"].as_u64() else { continue };
        let expected = differences(&at(before).state, &expected.state);
        let expected: Vec<Value> =
            expected.iter().map(|one| json!({"path": one.path, "before": one.before, "after": one.after})).collect();
        assert_eq!(shown["differences"], json!(expected), "step {step}");
        compared += expected.len();
    }
    assert!(compared > 3, "{compared}");
    // Between the branches the run never was.
    let between = viewer.get("api/run/rich-1/state?step=2");
    assert!(between.status == 422 && between.text().contains("visited at once"), "{}", between.text());
}

#[test]
fn the_drawing_shows_the_edges_that_were_taken() {
    let place = rich();
    let viewer = place.viewer();
    let image = viewer.get("api/run/rich-1/diagram");
    assert_eq!((image.status, image.header("content-type")), (200, Some("image/svg+xml; charset=utf-8")));
    let text = image.text();
    for part in ["measure", "fired", "unfired", "open", "failed"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("<style") && !text.contains("style="), "the page's policy lets no styles in");
}

#[test]
fn without_the_graph_the_journal_is_shown_all_the_same() {
    let place = rich();
    fs::remove_file(place.path("graphs/rich.yaml")).unwrap();
    let viewer = place.viewer();
    let found = viewer.api("run/rich-1");
    assert!(found["graph_problem"].as_str().unwrap().contains("there is no graph `rich`"), "{found}");
    assert!(rows(&viewer, "rich-1", "").len() > 8);
    for path in ["state", "diagram", "questions", "audit"] {
        let response = viewer.get(&format!("api/run/rich-1/{path}"));
        assert_eq!(response.status, 422, "{path}");
        assert!(response.text().contains("there is no graph `rich`"), "{}", response.text());
    }
    assert_eq!(viewer.get("api/run/rich-1/journal").status, 200);
    assert_eq!(viewer.api("inbox?run=rich-1")["open"][0]["node"], "ask");
    let compared = viewer.api("compare?a=rich-1&b=rich-1");
    assert!(compared["state_problem"].is_string() && compared["ops"][0][0] == "same", "{compared}");
}

#[test]
fn a_question_is_answered_once_and_the_run_continues() {
    let place = rich();
    let viewer = place.answering_viewer();
    let asked = viewer.api("run/rich-1/questions");
    let question = &asked["open"][0];
    assert_eq!(question["answer"]["words"], json!(["good", "bad"]), "{asked}");
    let wait = question["wait"].as_str().unwrap();
    assert_eq!(viewer.api("inbox")["open"][0]["wait"], wait);
    let wrong = viewer.answer("rich-1", wait, &json!("perhaps"));
    assert!(wrong.status == 422 && wrong.text().contains("does not fit"), "{}", wrong.text());
    assert_eq!(viewer.answer("rich-1", "99#1", &json!("good")).status, 409);
    let done = viewer.answer("rich-1", wait, &json!("good"));
    assert_eq!((done.status, &done.json()["result"]), (200, &json!("accepted")), "{}", done.text());
    assert_eq!(viewer.answer("rich-1", wait, &json!("good")).json()["result"], "already");
    assert_eq!(viewer.answer("rich-1", wait, &json!("bad")).status, 409);
    let run = RunId::new("rich-1").unwrap();
    let audits = tokio().block_on(async {
        let store = place.store().await;
        place.runtime(store.clone()).resume(machine(&place), &run).await.unwrap().await.unwrap();
        audit_tree(Arc::new(machine(&place)), &run, &store, &key().public(), None).await.unwrap()
    });
    assert_eq!(audits[0].approvals[0].by[0].owner, "Ann");
    assert_eq!(viewer.api("run/rich-1")["end"]["output"]["said"], "good");
    let audit = viewer.api("run/rich-1/audit");
    assert_eq!(audit["proven"], true, "{audit}");
    assert_eq!(audit["audits"][0]["link"], audits[0].link.to_hex());
    assert_eq!(audit["audits"][0]["approvals"][0]["by"][0]["owner"], "Ann");
    assert_eq!(audit["audits"].as_array().unwrap().len(), audits.len());
    let take = rows(&viewer, "rich-1", "").into_iter().find(|row| row["kind"] == "take").unwrap();
    assert_eq!(take["signals"][0]["by"], json!(["Ann"]));
}

#[test]
fn secrets_are_never_shown() {
    const SECRET: &str = "hunter2-of-the-shop";
    let place = Place::new();
    place.sign(
        "tools/t/pay.yaml",
        "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: { card: { type: string, x-secret: true } }, required: [card] \
         }\nresult_schema: { type: object, properties: { echo: { type: string, x-secret: true } }, required: [echo] }\n",
    );
    place.graph(
        "secret",
        "config_schema: { type: object, properties: { card: { type: string, x-secret: true } }, required: [card] }\nconfig:\n  start: pay\n  \
         nodes:\n    pay: { action: { item_id: t/pay, params: { card: '${inputs.card}' } }, assign: { kept: '${inputs.card}' }, next: done }\n    \
         done: { type: return, output: { kept: '${state.kept}' } }\n",
    );
    tokio().block_on(async {
        let graph = place
            .load("secret", Everything(|_: &_, _: &_, params: Map<String, Value>| Ok(json!({"echo": params["card"]}))));
        let runtime = place.runtime(place.store().await);
        let inputs = Map::from_iter([("card".to_owned(), json!(SECRET))]);
        runtime.start_as(RunId::new("paid").unwrap(), graph, inputs).await.unwrap().await.unwrap();
    });
    let viewer = place.viewer();
    let mut seen = String::new();
    for path in [
        "run/paid",
        "run/paid/rows",
        "run/paid/state",
        "run/paid/state?step=1",
        "run/paid/record/0",
        "run/paid/record/1",
        "run/paid/record/2",
        "run/paid/record/3",
        "run/paid/diagram",
        "run/paid/journal",
        "run/paid/audit",
        "run/paid/questions",
        "compare?a=paid&b=paid",
    ] {
        let response = viewer.get(&format!("api/{path}"));
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert!(!response.text().contains(SECRET), "{path}");
        if !path.ends_with("journal") {
            assert!(!response.text().contains("$sealed"), "{path}: {}", response.text());
        }
        seen.push_str(&response.text());
    }
    assert!(seen.contains("[secret]"));
    let audit = viewer.api("run/paid/audit");
    assert_eq!((&audit["proven"], &audit["audits"][0]["recomputed"]), (&json!(true), &json!(false)));
}

#[test]
fn a_changed_byte_breaks_no_answer_and_is_said() {
    let place = place();
    let viewer = place.viewer();
    let file = place.store_path();
    let change = |sql: &str| {
        let database = rusqlite::Connection::open(&file).unwrap();
        database.execute(sql, []).unwrap();
    };
    let original = viewer.get("api/run/one/journal").body;
    let run = RunId::new("one").unwrap();
    for (sql, back) in [
        (
            "UPDATE records SET body = replace(body, 'done', 'gone') WHERE body LIKE '%first%'",
            "UPDATE records SET body = replace(body, 'gone', 'done')",
        ),
        (
            "UPDATE records SET body = replace(body, '\"kind\":\"step\"', '\"kind\":\"leap\"')",
            "UPDATE records SET body = replace(body, '\"kind\":\"leap\"', '\"kind\":\"step\"')",
        ),
        ("UPDATE records SET body = replace(body, '}', ']')", "UPDATE records SET body = replace(body, ']]', '}}')"),
    ] {
        change(sql);
        // Another file, so that nothing is known of it.
        let viewer = place.viewer();
        let found = viewer.api("run/one");
        assert!(found["problem"].as_str().unwrap().contains("of its journal"), "{sql}: {found}");
        assert!(!rows(&viewer, "one", "").is_empty());
        for path in [
            "",
            "/rows",
            "/record/0",
            "/record/1",
            "/state",
            "/diagram",
            "/questions",
            "/audit",
            "/journal",
            "/changes?records=0",
        ] {
            let response = viewer.get(&format!("api/run/one{path}"));
            assert!(matches!(response.status, 200 | 422), "{sql} {path}: {} {}", response.status, response.text());
        }
        let audit = viewer.get("api/run/one/audit");
        assert!(audit.status == 422 || audit.json()["proven"] == false, "{}", audit.text());
        change(back);
        if viewer.get("api/run/one/journal").body != original {
            // A journal that cannot be put back is written again.
            tokio().block_on(async { place.store().await.remove(&run).await.unwrap() });
            ran(&place, "one", json!("done"));
        }
    }
    change("UPDATE records SET signature = x'00'");
    assert!(matches!(place.viewer().get("api/run/one").status, 422 | 503));
    change("UPDATE runs SET status = 'happy'");
    assert!(place.viewer().get("api/runs").status >= 400);
}

#[test]
fn the_files_of_a_project_are_listed_and_a_damaged_one_is_named() {
    let place = rich();
    tokio().block_on(async {
        let files = ProjectFiles::in_directory(place.path(""), key()).unwrap();
        let runtime =
            Runtime::builder().store(place.store().await).sign_with(key()).observer(files).grant("rye.*").unwrap();
        let runtime = runtime.build().unwrap();
        for run in ["filed-1", "filed-2"] {
            let begun = runtime.start_as(RunId::new(run).unwrap(), machine(&place), inputs()).await.unwrap();
            begun.await.unwrap_err();
        }
    });
    let viewer = || Served::start(place.options(ViewedPlace::Files(place.path(""))));
    let shown = viewer();
    let listed = shown.api("runs");
    let of = |listed: &Value| {
        listed["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(of(&listed).contains(&"filed-1".to_owned()) && of(&listed).contains(&"filed-2".to_owned()), "{listed}");
    assert_eq!(shown.api("run/filed-1/audit")["proven"], true);
    assert_eq!(shown.api("run/filed-1/questions")["open"][0]["node"], "ask");
    assert_eq!(shown.get("api/run/rich-1").status, 404);
    let file = place.path(".ai/state/threads/filed-1/journal.jsonl");
    let whole = fs::read(&file).unwrap();
    assert_eq!(shown.get("api/run/filed-1/journal").body, whole, "byte for byte");
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..cut]).unwrap();
        let listed = shown.api("runs");
        assert_eq!(listed["damaged"][0]["run"], "filed-1", "{listed}");
        assert!(of(&listed).contains(&"filed-2".to_owned()));
        for path in ["", "/rows", "/state", "/audit"] {
            let response = shown.get(&format!("api/run/filed-1{path}"));
            assert_eq!(response.status, 422, "{path}: {}", response.text());
        }
        assert_eq!(shown.get("api/run/filed-1/journal").body, &whole[..cut]);
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(shown.api("run/filed-1/audit")["proven"], true);
    // A link leads nowhere.
    #[cfg(unix)]
    {
        let secret = place.path("elsewhere");
        fs::write(&secret, "secret").unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&secret, &file).unwrap();
        let response = shown.get("api/run/filed-1/journal");
        assert!(response.status == 422 && !response.text().contains("secret"), "{}", response.text());
    }
}

#[test]
fn two_runs_are_compared_visit_by_visit() {
    let place = Place::new();
    place.graph(
        "paths",
        "config_schema: { type: object, properties: { way: { type: string } }, required: [way] }\nconfig:\n  start: look\n  nodes:\n    look: { \
         action: { item_id: t/look }, assign: { seen: '${result.seen}' }, next: turn }\n    turn: { type: gate, next: [{ when: { path: inputs.way, op: \
         eq, value: left }, to: left }, { to: right }] }\n    left: { type: gate, assign: { at: left }, next: done }\n    right: { type: gate, assign: \
         { at: right }, next: done }\n    done: { type: return, output: { at: '${state.at}' } }\n",
    );
    tokio().block_on(async {
        let runtime = place.runtime(place.store().await);
        for (run, way) in [("l", "left"), ("l-again", "left"), ("r", "right")] {
            let graph = place.load("paths", Everything(|_: &_, _: &_, _| Ok(json!({"seen": 1}))));
            let inputs = Map::from_iter([("way".to_owned(), json!(way))]);
            runtime.start_as(RunId::new(run).unwrap(), graph, inputs).await.unwrap().await.unwrap();
        }
    });
    let viewer = place.viewer();
    let same = viewer.api("compare?a=l&b=l-again");
    assert_eq!(same["ops"], json!([["same", 0, 4, 0, 4]]), "{same}");
    assert_eq!(
        (&same["inputs"]["count"], &same["states"]["count"], &same["parts_at"]),
        (&json!(0), &json!(0), &Value::Null)
    );
    let other = viewer.api("compare?a=l&b=r");
    assert_eq!(
        other["ops"],
        json!([
            ["same", 0, 1, 0, 1],
            ["changed", 1, 1, 1, 1],
            ["only_a", 2, 1, 2, 0],
            ["only_b", 3, 0, 2, 1],
            ["same", 3, 1, 3, 1]
        ]),
        "{other}"
    );
    let paths =
        |part: &str| other[part]["shown"].as_array().unwrap().iter().map(|one| one["path"].clone()).collect::<Vec<_>>();
    assert_eq!(paths("inputs"), [json!("way")]);
    assert_eq!(paths("outputs"), [json!("output.at")]);
    assert_eq!(paths("states"), [json!("inputs.way"), json!("at")]);
    assert_eq!(viewer.get("api/compare?a=l&b=none").status, 404);
}

#[test]
fn a_long_list_of_runs_comes_in_pages_and_passes_filters() {
    let place = place();
    for at in 0..25 {
        ran(&place, &format!("run-{at:02}"), json!(at));
    }
    let viewer = place.viewer();
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = viewer.api(&format!("runs?size=7&after={after}"));
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = next.replace(' ', "%20");
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 26);
    assert_eq!(viewer.api("runs?run=run-2")["runs"].as_array().unwrap().len(), 5);
    assert_eq!(viewer.api("runs?status=completed&graph=two")["runs"].as_array().unwrap().len(), 26);
    assert_eq!(viewer.api("runs?status=error,cancelled")["runs"].as_array().unwrap().len(), 0);
    assert_eq!(viewer.api("runs?graph=%3Cscript%3E")["runs"].as_array().unwrap().len(), 0);
}

#[test]
fn new_records_are_announced_while_a_run_is_in_progress() {
    let place = Place::new();
    place.graph(
        "slow",
        "config:\n  start: tick\n  max_steps: 1000\n  nodes:\n    tick: { action: { item_id: t/tick }, assign: { left: '${result.left}' }, next: [{ to: done, when: { \
         path: state.left, op: lte, value: 0 } }, { to: tick }] }\n    done: { type: return }\n",
    );
    place.sign(
        "tools/t/tick.yaml",
        "version: \"1.0.0\"\ntool_type: rust\nresult_schema: { type: object, properties: { left: { type: integer } }, required: [left] }\n",
    );
    let runs = tokio();
    let left = AtomicU32::new(8);
    let graph = place.load(
        "slow",
        Everything(move |_: &_, _: &_, _| {
            std::thread::sleep(Duration::from_millis(120));
            Ok(json!({"left": left.fetch_sub(1, Ordering::Relaxed) - 1}))
        }),
    );
    let (runtime, begun) = runs.block_on(async {
        let runtime = place.runtime(place.store().await);
        let options =
            Options { run: Some(RunId::new("live").unwrap()), durability: Durability::Sync, ..Options::default() };
        let begun = runtime.start_with(options, graph, Map::new()).await.unwrap();
        (runtime, begun)
    });
    let run = runs.spawn(async move {
        begun.await.unwrap();
        drop(runtime);
    });
    let viewer = place.viewer();
    let mut known = viewer.api("run/live");
    let (mut news, began) = (0, Instant::now());
    while known["summary"]["status"] == "running" {
        assert!(began.elapsed() < Duration::from_secs(30), "{known}");
        let mark = known["mark"].as_str().unwrap().replace(' ', "%20");
        let found = viewer.api(&format!("run/live/changes?records={}&mark={mark}", known["records"]));
        assert!(found["problem"].is_null(), "{found}");
        assert!(found["records"].as_u64() >= known["records"].as_u64());
        known = found;
        news += 1;
    }
    runs.block_on(run).unwrap();
    assert!(news >= 5, "each step is announced by itself: {news}");
    assert_eq!(
        viewer.api("run/live")["records"].as_u64(),
        Some(viewer.api("run/live/rows?count=0")["total"].as_u64().unwrap())
    );
    assert_eq!(viewer.api("run/live/audit")["proven"], true);
}

#[test]
fn questions_are_those_that_the_journal_proves() {
    let place = rich();
    let run = RunId::new("rich-1").unwrap();
    let records = tokio().block_on(async { place.store().await.load(&run).await.unwrap() });
    let expected = questions(&machine(&place), &run, &records, &key().public()).unwrap();
    let viewer = place.viewer();
    let asked = viewer.api("run/rich-1/questions");
    assert_eq!(asked["open"].as_array().unwrap().len(), expected.len());
    assert_eq!(asked["open"][0]["payload"], expected[0].payload);
    assert_eq!(machine(&place).graph().id().as_str(), "rich");
    // With another key nothing is proven.
    let other = graph_runtime::SecretKey::from_seed(&[1; 32]).public();
    let options = ViewerOptions { key: other, ..place.options(ViewedPlace::Store(place.store_path())) };
    let viewer = Served::start(options);
    let refused = viewer.get("api/run/rich-1/questions");
    assert!(refused.status == 422 && refused.text().contains("not signed by"), "{}", refused.text());
    assert!(viewer.api("run/rich-1")["problem"].as_str().unwrap().contains("not signed by"));
}

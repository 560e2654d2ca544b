//! Guarded calls of agents: nothing is done that nobody has approved.

use std::time::Duration;

use graph_agents::{ModelMessage, ModelRequest};
use graph_runtime::answer::{AnswerKeys, KeyHolder, Question};
use graph_runtime::testing::{FaultyStore, TestBed, graph_test};
use graph_runtime::{Fingerprint, Machine, NamedAnswer, RunId, Runtime, SecretKey, Store, Value, audit_tree};
use serde_json::json;

use crate::tree::{Scripted, Tree, answer, calls, inputs};

const DELETE: &str = "version: \"1.0.0\"\ntool_type: rust\ndescription: Deletes a file.\nx-guarded: true
config_schema: { type: object, properties: { path: { type: string }, why: { type: string } }, required: [path] }
result_schema: { type: object }\n";

/// Everybody with a key may answer.
struct Anybody(SecretKey);

impl AnswerKeys for Anybody {
    fn holder(&self, key: &Fingerprint, role: Option<&str>) -> Result<KeyHolder, String> {
        match *key == self.0.public().fingerprint() && role.is_none_or(|role| role == "deleters") {
            true => Ok(KeyHolder::new(self.0.public(), "Ann")),
            false => Err("the key is not trusted".to_owned()),
        }
    }
}

fn ann() -> SecretKey {
    SecretKey::from_seed(&[11; 32])
}

/// A tree whose agent may delete files.
fn tree(approvals: &str) -> Tree {
    let tree = Tree::new();
    tree.write("graphs/tools/files/delete.yaml", DELETE);
    tree.change("  tools: [files/read, files/list]\n", &format!("  tools: [files/read, files/delete]\n{approvals}"));
    tree
}

/// A model that wants to delete two files, and then answers.
fn deleting() -> Scripted {
    Scripted::new(|turn, _| {
        Ok(match turn {
            0 => calls(&[
                ("files_delete", json!({ "path": "a.rs", "approved_by": "the boss" })),
                ("files_delete", json!({ "path": "b.rs", "why": "it is old" })),
            ]),
            _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        })
    })
}

fn runtime(bed: &TestBed, store: impl Store, tree: &Tree, model: &Scripted) -> Runtime {
    let builder = bed.process(store).tools(tree.agents(model));
    builder.answer_keys(|| Anybody(ann())).build().unwrap()
}

/// Starts a run that waits, and returns what people are asked.
async fn asked(runtime: &Runtime, tree: &Tree, run: &RunId) -> Vec<Question> {
    let started = runtime.start_as(run.clone(), tree.graph(), inputs()).await.unwrap().await;
    assert!(started.is_err(), "the run waits");
    runtime.questions(&tree.graph(), run).await.unwrap()
}

fn deleted(tree: &Tree) -> Vec<Value> {
    tree.made.lock().unwrap().iter().map(|(tool, params)| json!([tool, params])).collect()
}

/// The results of calls that the model has heard.
fn heard(request: &ModelRequest) -> Vec<(String, bool)> {
    let results = request.messages.iter().filter_map(|message| match message {
        ModelMessage::Tool { result, .. } => {
            Some((result.clone().unwrap_or_else(|error| error.into()).to_string(), result.is_ok()))
        }
        _ => None,
    });
    results.collect()
}

#[graph_test]
async fn a_guarded_call_is_made_if_a_person_approves_its_arguments(bed: TestBed) {
    let (tree, model, run) = (tree(""), deleting(), RunId::new("run").unwrap());
    let runtime = runtime(&bed, bed.disk().clone(), &tree, &model);
    let mut questions = asked(&runtime, &tree, &run).await;
    questions.sort_by_key(|question| question.payload.to_string());
    let shown: Vec<&Value> = questions.iter().map(|question| &question.payload).collect();
    let expected = [
        json!({ "tool": "files/delete", "arguments": { "path": "a.rs", "why": null } }),
        json!({ "tool": "files/delete", "arguments": { "path": "b.rs", "why": "it is old" } }),
    ];
    assert_eq!(shown, expected.iter().collect::<Vec<_>>(), "people see what the call gets, and nothing else");
    assert_eq!(deleted(&tree), [] as [Value; 0], "nothing is done before");
    for (question, decision) in questions.iter().zip(["approve", "refuse"]) {
        let envelope = question.sign(NamedAnswer::new("approve_delete", json!({ "decision": decision })), &ann());
        runtime.answer(&tree.graph(), &run, &envelope.unwrap()).await.unwrap();
    }
    let finished = runtime.resume(tree.graph(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!({ "end": "merged", "confidence": 0.5 }));
    assert_eq!(deleted(&tree), [json!(["files/delete", { "path": "a.rs" }])]);
    let heard = heard(model.requests.lock().unwrap().last().unwrap());
    assert_eq!(heard.iter().filter(|(_, is_ok)| *is_ok).count(), 1, "{heard:?}");
    assert!(heard.iter().any(|(text, _)| text.contains("nobody has approved this call")), "{heard:?}");
    let machine = std::sync::Arc::new(tree.graph());
    let audited = audit_tree(machine, &run, bed.disk(), &bed.key().public(), Some(&bed.encryption_key())).await;
    assert_eq!(audited.unwrap().len(), 2, "the run and that of its agent are proven");
}

#[graph_test]
async fn a_call_that_nobody_approves_in_time_is_refused(bed: TestBed) {
    let approvals = "  approvals: { answered_by: { role: deleters }, timeout: 1h }\n";
    let (tree, model, run) = (tree(approvals), deleting(), RunId::new("run").unwrap());
    let runtime = runtime(&bed, bed.disk().clone(), &tree, &model);
    let questions = asked(&runtime, &tree, &run).await;
    assert!(questions.iter().all(|question| question.role.as_deref() == Some("deleters")), "{questions:?}");
    tokio::time::advance(Duration::from_secs(3_601)).await;
    runtime.resume(tree.graph(), &run).await.unwrap().await.unwrap();
    assert_eq!(deleted(&tree), [] as [Value; 0]);
    let late = questions[0].sign(NamedAnswer::new("approve_delete", json!({ "decision": "approve" })), &ann());
    assert!(runtime.answer(&tree.graph(), &run, &late.unwrap()).await.is_err());
    assert_eq!(deleted(&tree), [] as [Value; 0]);
}

/// A process dies at any write: each approved call is made, and no other.
#[graph_test]
async fn a_crash_approves_nothing(_: TestBed) {
    let mut deaths = 0;
    for number in 1.. {
        let (bed, tree, model) = (TestBed::new(), tree(""), deleting());
        let run = RunId::new("run").unwrap();
        let store = FaultyStore::dies_before(bed.disk().clone(), number);
        let dying = runtime(&bed, store.clone(), &tree, &model);
        let answers = async |runtime: &Runtime| {
            for question in runtime.questions(&tree.graph(), &run).await.unwrap_or_default() {
                let is_first = question.payload["arguments"]["path"] == "a.rs";
                let decision = if is_first { "approve" } else { "refuse" };
                let answer = NamedAnswer::new("approve_delete", json!({ "decision": decision }));
                drop(runtime.answer(&tree.graph(), &run, &question.sign(answer, &ann()).unwrap()).await);
            }
        };
        for _ in 0..2 {
            if let Ok(started) = dying.start_as(run.clone(), tree.graph(), inputs()).await {
                drop(started.await);
            }
            answers(&dying).await;
            if let Ok(resumed) = dying.resume(tree.graph(), &run).await {
                drop(resumed.await);
            }
        }
        drop(dying);
        let living = runtime(&bed, bed.disk().clone(), &tree, &model);
        let mut output = None;
        for _ in 0..4 {
            let resumed = match living.resume(tree.graph(), &run).await {
                Ok(resumed) => resumed.await,
                Err(_) => match living.start_as(run.clone(), tree.graph(), inputs()).await {
                    Ok(started) => started.await,
                    Err(_) => break,
                },
            };
            output = resumed.ok().map(|finished| finished.output).or(output);
            answers(&living).await;
        }
        let made = deleted(&tree);
        assert!(!made.is_empty() && made.iter().all(|call| call[1] == json!({ "path": "a.rs" })), "{number}: {made:?}");
        if !store.is_dead() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 10, "{deaths}");
}

#[test]
fn approvals_without_a_guarded_tool_are_a_mistake() {
    let tree = Tree::new();
    tree.change("  tools: [files/read, files/list]\n", "  tools: [files/read]\n  approvals: { timeout: 1h }\n");
    let found: Vec<String> = tree.mistakes().iter().map(|one| one.message.clone()).collect();
    assert!(found.iter().any(|one| one.contains("`approvals` does nothing: no listed tool is guarded")), "{found:?}");
}

/// A graph that vouches for an input, and an agent that is guarded itself, are guarded tools of other agents.
#[test]
fn graphs_and_agents_are_guarded_too() {
    let tree = Tree::new();
    tree.write("graphs/tools/files/delete.yaml", DELETE);
    tree.write(
        "graphs/shop/clean.yaml",
        r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.files.delete]
config_schema: { type: object, properties: { path: { type: string, x-guarded: true } }, required: [path] }
config:
  start: delete
  nodes:
    delete: { action: { item_id: files/delete, params: { path: "${inputs.path}" } } }
"#,
    );
    let second =
        tree.read("graphs/tools/shop/review.yaml").replace("tool_type: agent", "tool_type: agent\nx-guarded: true");
    tree.write("graphs/tools/shop/second.yaml", &second);
    let permissions = "permissions: [\"rye.execute.tool.files.*\"]\nconfig_schema:";
    let review = tree.read("graphs/tools/shop/review.yaml");
    let review =
        review.replace("[files/read, files/list]", "[shop/clean, shop/second]").replace("config_schema:", permissions);
    tree.write("graphs/tools/shop/review.yaml", &review);
    let names: Vec<String> = tree.agent().graph().topology().nodes.into_iter().map(|node| node.name).collect();
    assert!(names.contains(&"approve_clean".to_owned()) && names.contains(&"approve_second".to_owned()), "{names:?}");
}

/// A model asks people by `orchestrate_yield`, and hears their answer.
#[graph_test]
async fn a_model_asks_people_and_hears_their_answer(bed: TestBed) {
    for (approvals, is_answered) in [("", true), ("  approvals: { timeout: 1h }\n", false)] {
        let (bed, tree) = (TestBed::new(), Tree::new());
        tree.change("  tools: [files/read, files/list]\n", &format!("  tools: [rye/orchestrate/yield]\n{approvals}"));
        let model = Scripted::new(|turn, _| {
            Ok(match turn {
                0 => calls(&[
                    ("orchestrate_yield", json!({ "question": "Is it good?" })),
                    ("orchestrate_yield", json!({})),
                ]),
                _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
            })
        });
        let run = RunId::new("run").unwrap();
        let runtime = runtime(&bed, bed.disk().clone(), &tree, &model);
        let questions = asked(&runtime, &tree, &run).await;
        let shown: Vec<&Value> = questions.iter().map(|question| &question.payload).collect();
        assert!(shown.contains(&&json!({ "question": "Is it good?" })), "{shown:?}");
        if is_answered {
            for question in &questions {
                let envelope = question.sign(NamedAnswer::new("call_yield", json!({ "answer": "It is." })), &ann());
                runtime.answer(&tree.graph(), &run, &envelope.unwrap()).await.unwrap();
            }
        } else {
            tokio::time::advance(Duration::from_secs(3_601)).await;
        }
        let finished = runtime.resume(tree.graph(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output["end"], "merged");
        let heard = heard(model.requests.lock().unwrap().last().unwrap());
        let expected = if is_answered { "It is." } else { "nobody has answered in time" };
        assert!(heard.iter().any(|(text, is_ok)| text.contains(expected) && *is_ok == is_answered), "{heard:?}");
    }
    drop(bed);
}

//! Turns, calls and answers.

use graph_agents::{ModelError, ModelMessage, ModelReply, Usage};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::testing::{TestBed, graph_test};
use serde_json::json;

use crate::tree::{Scripted, Tree, answer, calls, inputs};

/// Runs the graph around the agent, and returns its result.
pub(crate) async fn run(bed: &TestBed, tree: &Tree, model: &Scripted) -> Result<graph_runtime::Value, String> {
    run_of(bed, tree, tree.graph(), model).await
}

/// The same with a graph that was compiled before.
pub(crate) async fn run_of(
    bed: &TestBed,
    tree: &Tree,
    graph: Interpreted,
    model: &Scripted,
) -> Result<graph_runtime::Value, String> {
    let runtime = bed.process(bed.disk().clone()).tools(tree.agents(model)).build().unwrap();
    let run = runtime.start(graph.clone(), inputs()).await.unwrap();
    let id = run.id().clone();
    let ended = run.await;
    let machine = std::sync::Arc::new(graph);
    let audits =
        graph_runtime::audit_tree(machine, &id, bed.disk(), &bed.key().public(), Some(&bed.encryption_key())).await;
    assert!(audits.unwrap().len() > usize::from(ended.is_ok()), "the run and that of its agent are proven");
    ended.map(|finished| finished.output).map_err(|error| error.to_string())
}

#[graph_test]
async fn an_agent_calls_its_tools_and_answers(bed: TestBed) {
    let tree = Tree::new();
    let model = Scripted::new(|turn, request| {
        Ok(match turn {
            0 => {
                assert!(
                    request.system.contains("1. Read each file that one of {input:fixes} changes."),
                    "{}",
                    request.system
                );
                // Values that nobody has signed are no part of the instructions.
                assert!(!request.system.contains("a.rs"), "{}", request.system);
                let ModelMessage::User { text } = &request.messages[0] else { panic!("{:?}", request.messages) };
                assert!(text.contains("a.rs"), "{text}");
                let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
                assert_eq!(names, ["files_read", "files_list", "answer"]);
                assert_eq!(request.tools[0].description, "Reads a file.");
                calls(&[
                    ("files_read", json!({ "path": "a.rs" })),
                    ("files_read", json!({ "path": "gone" })),
                    ("files_list", json!({})),
                    ("files_delete", json!({ "path": "a.rs" })),
                    ("files_read", json!("a.rs")),
                    ("files_read", json!({ "path": 7 })),
                ])
            }
            _ => {
                let results: Vec<(&str, bool)> = request
                    .messages
                    .iter()
                    .filter_map(|message| match message {
                        ModelMessage::Tool { id, result } => Some((id.as_str(), result.is_ok())),
                        _ => None,
                    })
                    .collect();
                // Each call has one result, whichever tool it names.
                let mut ids: Vec<&str> = results.iter().map(|(id, _)| *id).collect();
                ids.sort_unstable();
                assert_eq!(ids, ["1-0", "1-1", "1-2", "1-3", "1-4", "1-5"]);
                assert_eq!(results.iter().filter(|(_, is_ok)| *is_ok).count(), 2);
                answer(json!({ "verdict": "merge", "confidence": 0.5 }))
            }
        })
    });
    assert_eq!(run(&bed, &tree, &model).await, Ok(json!({ "end": "merged", "confidence": 0.5 })));
    let mut made = tree.made.lock().unwrap().clone();
    made.sort_by_key(|(tool, params)| format!("{tool} {params}"));
    let expected = [
        ("files/list".to_owned(), json!({})),
        ("files/read".to_owned(), json!({ "path": "a.rs" })),
        ("files/read".to_owned(), json!({ "path": "gone" })),
    ];
    assert_eq!(made, expected, "nothing else was called");
}

#[graph_test]
async fn an_answer_that_does_not_fit_is_asked_for_again_once(bed: TestBed) {
    let good = || answer(json!({ "verdict": "reject", "confidence": 0.5 }));
    let text = |text: &str| ModelReply {
        text: text.to_owned(),
        usage: Usage { input: 1, output: 1 },
        ..ModelReply::default()
    };
    let wrong = [
        answer(json!({ "verdict": "maybe", "confidence": 0.5 })),
        answer(json!("merge")),
        text("I would merge it."),
        calls(&[("files_list", json!({})), ("answer", json!({ "verdict": "merge", "confidence": 0.5 }))]),
    ];
    for reply in wrong {
        let (tree, first) = (Tree::new(), reply.clone());
        let model = Scripted::new(move |turn, _| Ok(if turn == 0 { first.clone() } else { good() }));
        assert_eq!(run(&bed, &tree, &model).await, Ok(json!({ "end": "rejected", "confidence": 0.5 })), "{reply:?}");
        assert_eq!(tree.made.lock().unwrap().len(), 0, "a call beside an answer is not made");
        let again = model.requests.lock().unwrap()[1].messages.last().unwrap().clone();
        assert!(matches!(&again, ModelMessage::User { text } if text.starts_with("This is no answer: ")), "{again:?}");
        let model = Scripted::new(move |_, _| Ok(reply.clone()));
        let failed = run(&bed, &Tree::new(), &model).await.unwrap_err();
        assert!(failed.contains("the model was asked twice, and its answer does not fit"), "{failed}");
        assert_eq!(model.asked(), 2);
    }
    // A model without calls answers as text.
    let model = Scripted::new(move |_, _| Ok(text("```json\n{\"verdict\": \"merge\", \"confidence\": 1}\n```")));
    assert!(run(&bed, &Tree::new(), &model).await.is_ok());
}

#[graph_test]
async fn a_model_that_is_busy_is_asked_again_and_one_that_refuses_is_not(bed: TestBed) {
    let busy = std::sync::atomic::AtomicUsize::new(2);
    let model = Scripted::new(move |_, _| {
        let left = busy.load(std::sync::atomic::Ordering::Relaxed);
        busy.store(left.saturating_sub(1), std::sync::atomic::Ordering::Relaxed);
        match left {
            0 => Ok(answer(json!({ "verdict": "merge", "confidence": 0.5 }))),
            _ => Err(ModelError::Busy { reason: "too many requests".to_owned(), after: None }),
        }
    });
    assert!(run(&bed, &Tree::new(), &model).await.is_ok());
    assert_eq!(model.asked(), 3);
    // One that stays busy is not asked by a new run of the agent either, which would have all its limits again.
    let model = Scripted::new(|_, _| Err(ModelError::Busy { reason: "connection refused".to_owned(), after: None }));
    let failed = run(&bed, &Tree::new(), &model).await.unwrap_err();
    assert!(failed.contains("the model does not reply: connection refused"), "{failed}");
    assert_eq!(model.asked(), 3);
    let model = Scripted::new(|_, _| Err(ModelError::Refused { reason: "no such key".to_owned() }));
    let failed = run(&bed, &Tree::new(), &model).await.unwrap_err();
    assert!(failed.contains("the model refuses the request: no such key"), "{failed}");
    assert_eq!(model.asked(), 1);
}

/// Null is no answer, even if the schema of the answer takes anything.
#[graph_test]
async fn an_answer_of_null_is_asked_for_again(bed: TestBed) {
    for wrong in [answer(json!(null)), ModelReply { text: "null".to_owned(), ..ModelReply::default() }] {
        let tree = Tree::new();
        let contract = tree.read("graphs/tools/shop/review.yaml");
        let begin = contract.find("result_schema:").unwrap();
        let contract = format!("{}result_schema: {{}}\n", &contract[..begin]);
        tree.write("graphs/tools/shop/review.yaml", &contract);
        let model = Scripted::new(move |turn, _| Ok(if turn == 0 { wrong.clone() } else { answer(json!("done")) }));
        let runtime = bed.process(bed.disk().clone()).tools(tree.agents(&model)).build().unwrap();
        let finished = runtime.start(tree.agent(), inputs()).await.unwrap().await.unwrap();
        assert_eq!((finished.output, model.asked()), (json!("done"), 2));
    }
}

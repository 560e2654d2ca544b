//! Arguments and answers of a model keep the rules of contracts: random schemas and values, and a judge that shares no code with the
//! project.
//! `RULES` is the number of schemas, 20 if it is not set; `SEED` makes others.

use graph_agents::{ModelMessage, ModelReply};
use graph_runtime::Value;
use graph_runtime::testing::{TestBed, graph_test};
use serde_json::json;

use crate::judge::{Random, fits, likely_given, object};
use crate::tree::{Scripted, Tree, answer, calls, inputs};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Makes an object that fits, if that is not hard.
fn fitting(random: &mut Random, schema: &Value) -> Option<Value> {
    (0..50).map(|_| likely_given(random, schema)).find(|value| fits(schema, value))
}

#[graph_test]
async fn a_model_gets_the_rules_and_cannot_break_them(_: TestBed) {
    let mut random = Random::new(number("SEED").unwrap_or(1));
    let (mut made, mut refused, mut again) = (0, 0, 0);
    for _ in 0..number("RULES").unwrap_or(20) {
        let (params, result) = (object(&mut random, 2), object(&mut random, 1));
        let arguments: Vec<Value> = (0..4).map(|_| likely_given(&mut random, &params)).collect();
        let first = likely_given(&mut random, &result);
        let Some(second) = fitting(&mut random, &result) else { continue };
        let tree = Tree::new();
        let ruled = json!({ "version": "1.0.0", "tool_type": "rust", "config_schema": params });
        tree.write("graphs/tools/files/ruled.yaml", &format!("{ruled}\n"));
        let contract = tree.read("graphs/tools/shop/review.yaml").replace("[files/read, files/list]", "[files/ruled]");
        let (head, _) = contract.split_once("result_schema:").unwrap();
        tree.write("graphs/tools/shop/review.yaml", &format!("{head}result_schema: {result}\n"));
        let wanted: Vec<(&str, Value)> = arguments.iter().map(|one| ("files_ruled", one.clone())).collect();
        let replies = [calls(&wanted), answer(first.clone()), answer(second)];
        let model = Scripted::new(move |turn, _| Ok(replies[turn].clone()));
        let bed = TestBed::new();
        let runtime = bed.process(bed.disk().clone()).tools(tree.agents(&model)).build().unwrap();
        let ended = runtime.start(tree.agent(), inputs()).await.unwrap().await;
        assert!(ended.is_ok(), "{:?}: {first} of {result}", ended.err());
        let kept = arguments.iter().filter(|one| fits(&params, one)).count();
        assert_eq!(tree.made.lock().unwrap().len(), kept, "{} of {params}", Value::from(arguments.clone()));
        // The model knows the rules, and hears which calls were not made.
        let requests = model.requests.lock().unwrap().clone();
        let schemas: Vec<&Value> = requests[0].tools.iter().map(|tool| &tool.parameters).collect();
        assert_eq!(schemas, [&params, &result]);
        let failures = requests[1].messages.iter().filter_map(|message| match message {
            ModelMessage::Tool { result: Err(reason), .. } => Some(reason),
            _ => None,
        });
        let failures: Vec<&String> = failures.collect();
        assert_eq!(failures.len(), arguments.len() - kept, "{failures:?}");
        assert!(
            failures.iter().all(|reason| reason.contains("the parameters of `files/ruled` do not fit")),
            "{failures:?}"
        );
        let is_asked_again = requests.len() == 3;
        assert_eq!(is_asked_again, !fits(&result, &first), "{first} of {result}");
        made += kept;
        refused += failures.len();
        again += usize::from(is_asked_again);
    }
    assert!(made > 10 && refused > 10 && again > 2, "{made} {refused} {again}");
}

/// A reply that its limit ended may look whole, and of two fields with one name nobody knows which counts.
#[graph_test]
async fn a_reply_that_was_cut_or_says_a_name_twice_does_nothing(_: TestBed) {
    let good = || answer(json!({ "verdict": "merge", "confidence": 1 }));
    let replies = move |turn: usize| match turn {
        0 => ModelReply { is_cut: true, ..calls(&[("files_list", json!({}))]) },
        1 => calls(&[("files_read", json!(r#"{"path":"a","path":"b"}"#))]),
        2 => ModelReply { is_cut: true, ..good() },
        _ => good(),
    };
    let (tree, bed) = (Tree::new(), TestBed::new());
    let model = Scripted::new(move |turn, _| Ok(replies(turn)));
    let runtime = bed.process(bed.disk().clone()).tools(tree.agents(&model)).build().unwrap();
    runtime.start(tree.agent(), inputs()).await.unwrap().await.unwrap();
    assert!(tree.made.lock().unwrap().is_empty());
    let requests = model.requests.lock().unwrap().clone();
    let heard = |at: usize| format!("{:?}", requests[at].messages.last());
    for (at, part) in [
        (1, "it was not made: the reply was cut off"),
        (2, "cannot be read: "),
        (3, "This is no answer: the reply was cut off"),
    ] {
        assert!(heard(at).contains(part), "{}", heard(at));
    }
    assert!(heard(2).contains("path"), "{}", heard(2));
}

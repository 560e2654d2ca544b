//! The contexts of models: an agent whose talk becomes too long continues with a summary.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use graph_agents::{ModelMessage, ModelReply, ModelRequest, Usage};
use graph_runtime::Value;
use graph_runtime::testing::{TestBed, graph_test};
use serde_json::json;

use crate::loops::run;
use crate::random::Random;
use crate::tree::{Scripted, Tree, answer, calls};

/// Counts the tokens of a request as a model would: four bytes each.
fn tokens(request: &ModelRequest) -> u64 {
    let messages = request.messages.iter().map(|message| match message {
        ModelMessage::User { text } => text.len(),
        ModelMessage::Assistant { text, calls } => {
            text.len() + calls.iter().map(|call| call.arguments.to_string().len()).sum::<usize>()
        }
        ModelMessage::Tool { result: Ok(value), .. } => value.to_string().len(),
        ModelMessage::Tool { result: Err(error), .. } => error.len(),
        other => panic!("{other:?}"),
    });
    let tools: usize = request.tools.iter().map(|tool| tool.parameters.to_string().len()).sum();
    (request.system.len() + messages.sum::<usize>() + tools) as u64 / 4
}

/// Whether a request asks for a summary.
fn asks_for_summary(request: &ModelRequest) -> bool {
    request.tools.is_empty()
}

/// Fails unless each result follows the reply whose call it is of, and each call of a reply has its result behind it.
pub(crate) fn assert_whole(request: &ModelRequest) {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut known = BTreeSet::new();
    for message in &request.messages {
        match message {
            ModelMessage::Assistant { calls, .. } => {
                assert!(open.is_empty(), "calls have no results: {open:?}");
                for call in calls {
                    assert!(known.insert(&call.id), "two calls have the id {}", call.id);
                }
                open = calls.iter().map(|call| call.id.as_str()).collect();
            }
            ModelMessage::Tool { id, .. } => assert!(open.remove(id.as_str()), "a result of no call: {id}"),
            _ => assert!(open.is_empty(), "calls have no results: {open:?}"),
        }
    }
    assert!(open.is_empty(), "calls have no results: {open:?}");
}

fn summary(text: &str) -> ModelReply {
    ModelReply {
        text: text.to_owned(),
        calls: Vec::new(),
        usage: Usage { input: 7, output: 3 },
        ..ModelReply::default()
    }
}

#[graph_test]
async fn a_summary_stands_for_a_talk_that_is_too_long(bed: TestBed) {
    let tree = Tree::new();
    tree.change("turns: 4, tokens: 1000", "turns: 12, tokens: 100000");
    let turn = AtomicUsize::new(0);
    let model = Scripted::new(move |_, request| {
        assert_whole(request);
        assert!(tokens(request) <= 2_000, "{}", tokens(request));
        if asks_for_summary(request) {
            let ModelMessage::User { text } = &request.messages[0] else { panic!("{request:?}") };
            assert!(text.starts_with("The task of the agent: Review the fixes."), "{text}");
            assert!(text.contains("the text of first-0"), "{text}");
            // It is no piece of the talk that others see.
            return Ok(summary("first-0 and first-1 are good"));
        }
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let has = |text: &str| format!("{:?}", request.messages).contains(text);
        Ok(match turn {
            0..4 => calls(&[("files_read", json!({ "path": format!("first-{turn}{}", "x".repeat(1_000)) }))]),
            _ => {
                assert!(has("first-0 and first-1 are good") && !has("first-0x"), "{:?}", request.messages);
                assert!(has("first-3x"), "the last result is kept: {:?}", request.messages);
                answer(json!({ "verdict": "merge", "confidence": 0.5 }))
            }
        })
    })
    .with_context(2_000);
    run(&bed, &tree, &model).await.unwrap();
    let asked = model.requests.lock().unwrap();
    assert_eq!(asked.iter().filter(|request| asks_for_summary(request)).count(), 1);
}

#[graph_test]
async fn a_summary_has_what_the_one_before_it_had(bed: TestBed) {
    let tree = Tree::new();
    tree.change("turns: 4, tokens: 1000", "turns: 100, tokens: 10000000");
    let (turn, asked) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let summaries = Arc::clone(&asked);
    let model = Scripted::new(move |_, request| {
        if asks_for_summary(request) {
            let talk = format!("{:?}", request.messages);
            let number = asked.fetch_add(1, Ordering::Relaxed);
            assert!(number == 0 || talk.contains("The secret fact is 4711."), "{talk}");
            return Ok(summary(&format!("{} The secret fact is 4711.", "It was much. ".repeat(100))));
        }
        Ok(match turn.fetch_add(1, Ordering::Relaxed) {
            0..90 => calls(&[("files_read", json!({ "path": format!("a-{}", "x".repeat(100)) }))]),
            _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        })
    })
    .with_context(4_000);
    run(&bed, &tree, &model).await.unwrap();
    assert!(summaries.load(Ordering::Relaxed) > 1);
}

#[graph_test]
async fn a_result_that_is_longer_than_the_context_is_cut(bed: TestBed) {
    let tree = Tree::new();
    tree.change("turns: 4, tokens: 1000", "turns: 4, tokens: 100000");
    let model = Scripted::new(|turn, request| {
        assert!(tokens(request) <= 2_000, "{}", tokens(request));
        Ok(match turn {
            0 => calls(&[("files_read", json!({ "path": "big-50000" })), ("files_list", json!({}))]),
            _ => {
                let talk = format!("{:?}", request.messages);
                assert!(talk.contains("bytes are left out]") && talk.contains("a.rs"), "{talk}");
                answer(json!({ "verdict": "merge", "confidence": 0.5 }))
            }
        })
    })
    .with_context(2_000);
    run(&bed, &tree, &model).await.unwrap();
    assert_eq!(model.asked(), 2, "no summary is needed");
}

#[graph_test]
async fn an_agent_that_cannot_be_summarised_says_why(bed: TestBed) {
    let tree = Tree::new();
    let model = Scripted::new(|_, _| Ok(calls(&[("files_list", json!({}))]))).with_context(100);
    let error = run(&bed, &tree, &model).await.unwrap_err();
    assert!(error.contains("of the 100 tokens of its model's context, which leaves no room for its talk"), "{error}");
    assert_eq!(model.asked(), 0);
    // A model that writes no summary.
    tree.change("turns: 4, tokens: 1000", "turns: 9, tokens: 100000");
    let model = Scripted::new(|_, request| {
        Ok(match asks_for_summary(request) {
            true => summary(" \n"),
            false => calls(&[("files_read", json!({ "path": "x".repeat(2_000) }))]),
        })
    })
    .with_context(2_000);
    let error = run(&bed, &tree, &model).await.unwrap_err();
    assert!(error.contains("which wrote no summary of it"), "{error}");
}

/// No request exceeds the context, every request is whole, and the talk of the journal is proven, for random replies and results.
/// `TALKS=1000` makes as many.
#[graph_test]
async fn random_talks_fit_the_context(bed: TestBed) {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (talks, seed) = (number("TALKS", 60), number("SEED", 1));
    let (mut answered, mut summaries, mut counted) = (0, 0, 0);
    for talk in 0..talks {
        let tree = Tree::new();
        tree.change("turns: 4, tokens: 1000, spend: \"0.10 USD\"", "turns: 20, tokens: 100000000");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(talk));
        let (context, counts) = (1_500 + random.below(6_000), random.below(2) == 0);
        counted += usize::from(counts);
        let random = Mutex::new(random);
        let model = Scripted::new(move |_, request| {
            assert_whole(request);
            let used = tokens(request);
            assert!(used <= context, "{used} tokens of {context}");
            assert!(request.most_tokens.is_some_and(|most| most + used <= context + 1), "{request:?}");
            let mut random = random.lock().unwrap();
            if asks_for_summary(request) {
                let length = usize::try_from(1 + random.below(context * 8)).unwrap();
                return Ok(summary(&"s".repeat(length)));
            }
            let mut wanted: Vec<(&str, Value)> = Vec::new();
            for _ in 0..random.below(7) {
                let size = random.below(context * 6);
                wanted.push(match random.below(5) {
                    0 => ("files_list", json!({})),
                    1 => ("files_delete", json!({ "path": "ä".repeat(usize::try_from(size / 8).unwrap()) })),
                    2 => ("files_read", json!({ "path": "x".repeat(usize::try_from(size / 8).unwrap()) })),
                    _ => ("files_read", json!({ "path": format!("big-{size}") })),
                });
            }
            let mut reply = match random.below(14) {
                0 => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
                _ => calls(&wanted),
            };
            reply.usage.input = if counts { used } else { 0 };
            Ok(reply)
        })
        .with_context(context);
        let ended = run(&bed, &tree, &model).await;
        match &ended {
            Ok(_) => answered += 1,
            Err(error) => assert!(
                ["has taken its 20 turns", "was asked twice", "leaves no room"].iter().any(|why| error.contains(why)),
                "talk {talk}: {error}"
            ),
        }
        let asked = Arc::clone(&model.requests);
        summaries += asked.lock().unwrap().iter().filter(|request| asks_for_summary(request)).count();
    }
    println!("{talks} talks: {answered} answered, {summaries} summaries, {counted} with counted prompts");
    assert!(answered * 10 > talks && summaries > usize::try_from(talks).unwrap());
}

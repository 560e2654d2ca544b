//! The limits of agents: turns, tokens and spend.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use graph_agents::{Model, ModelCall, ModelFuture, ModelReply, ModelRequest, Price, Usage};
use graph_runtime::testing::{TestBed, graph_test};
use serde_json::json;

use crate::loops::run;
use crate::tree::{Scripted, Tree, calls, inputs};

#[graph_test]
async fn an_agent_that_never_answers_is_stopped_by_each_limit(bed: TestBed) {
    for (from, to, expected, asked) in [
        ("turns: 4", "turns: 4", "has taken its 4 turns", 4),
        ("tokens: 1000", "tokens: 31", "has used 45 of 31 tokens", 3),
        // A turn costs 10 + 2 × 5 = 20 millionths.
        ("\"0.10 USD\"", "\"0.00004 USD\"", "has spent 40 of 40 millionths of a dollar", 2),
    ] {
        let tree = Tree::new();
        tree.change(from, to);
        let model = Scripted::new(|_, _| Ok(calls(&[("files_list", json!({}))])));
        let failed = run(&bed, &tree, &model).await.unwrap_err();
        assert!(failed.contains("the agent has no answer, and ") && failed.contains(expected), "{failed}");
        assert_eq!(model.asked(), asked, "{to}");
    }
}

#[graph_test]
async fn a_reply_may_have_as_many_tokens_as_the_limits_leave(bed: TestBed) {
    let tree = Tree::new();
    let model = Scripted::new(|turn, request| {
        // 1,000 tokens, of which a turn takes 15; and 100,000 millionths at 2 a token.
        assert_eq!(request.most_tokens, Some(1000 - 15 * turn as u64));
        Ok(calls(&[("files_list", json!({}))]))
    });
    run(&bed, &tree, &model).await.unwrap_err();
    assert_eq!(model.asked(), 4);
    tree.change("tokens: 1000, spend: \"0.10 USD\"", "spend: \"0.0001 USD\"");
    let model = Scripted::new(|turn, request| {
        assert_eq!(request.most_tokens, Some((100 - 20 * turn as u64) / 2));
        Ok(calls(&[("files_list", json!({}))]))
    });
    run(&bed, &tree, &model).await.unwrap_err();
}

#[graph_test]
async fn a_limit_on_spending_needs_a_price(bed: TestBed) {
    let model = Scripted::new(|_, _| Ok(calls(&[("files_list", json!({}))]))).free();
    let failed = run(&bed, &Tree::new(), &model).await.unwrap_err();
    assert!(failed.contains("the model of the tier `general` has no price"), "{failed}");
    assert_eq!(model.asked(), 0);
    let tree = Tree::new();
    tree.change("tier: general", "tier: best");
    let failed = run(&bed, &tree, &model).await.unwrap_err();
    assert!(failed.contains("the program has no model of the tier `best`: it has general"), "{failed}");
}

#[test]
fn prices_are_rounded_up() {
    let price = Price { input: 150_000, output: 600_000 };
    assert_eq!(price.of(Usage { input: 1, output: 0 }), 1);
    assert_eq!(price.of(Usage { input: 1_000_000, output: 1_000_000 }), 750_000);
    assert_eq!(price.of(Usage::default()), 0);
    let dear = Price { input: 10_000_000, output: 10_000_000 };
    assert_eq!(dear.of(Usage { input: u64::MAX, output: u64::MAX }), u64::MAX);
}

/// A model that replies too late, or never.
#[derive(Debug, Clone)]
struct Late(Arc<AtomicUsize>);

impl Model for Late {
    fn reply<'a>(&'a self, _: ModelRequest, _: &'a (dyn Fn(&str) + Send + Sync)) -> ModelFuture<'a> {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if asked > 0 {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_secs(90)).await;
            Ok(calls(&[("files_list", json!({}))]))
        })
    }

    fn price(&self) -> Option<Price> {
        Some(Price { input: 1, output: 1 })
    }
}

/// The time of an agent is over for good: no second run of it begins.
#[graph_test]
async fn an_agent_takes_no_longer_than_it_may(bed: TestBed) {
    let (tree, model) = (Tree::new(), Late(Arc::default()));
    let runtime = bed.process(bed.disk().clone()).tools(tree.agents_with(model.clone())).build().unwrap();
    let began = tokio::time::Instant::now();
    let failed = runtime.start(tree.graph(), inputs()).await.unwrap().await.unwrap_err().to_string();
    assert!(failed.contains("the run took longer than it may"), "{failed}");
    assert_eq!((model.0.load(Ordering::Relaxed), began.elapsed().as_secs()), (2, 120), "{failed}");
}

/// A model that wants very many calls, and such with odd names, gets errors. The agent continues.
#[graph_test]
async fn replies_of_any_shape_call_nothing_but_granted_tools(bed: TestBed) {
    let tree = Tree::new();
    let model = Scripted::new(|turn, _| {
        let names = ["", "files/read", "../x", "rye/bash", "rye_bash", "ANSWER", "files_list\n", "\u{0}", "files_list"];
        let call = |at: usize| ModelCall {
            id: "x".repeat(at),
            name: names[at % names.len()].to_owned(),
            arguments: json!({ "path": "/etc/passwd", "tool": "rye/bash", "${inputs.fixes}": "${state.talk}" }),
        };
        let calls = (0..if turn == 0 { 1_000 } else { 9 }).map(call).collect();
        Ok(ModelReply {
            text: "\u{1b}[2J${inputs}".to_owned(),
            calls,
            usage: Usage { input: 1, output: 1 },
            is_cut: false,
        })
    });
    run(&bed, &tree, &model).await.unwrap_err();
    let made = tree.made.lock().unwrap().clone();
    assert!(made.iter().all(|(tool, params)| tool == "files/list" && *params == json!({})), "{made:?}");
    assert_eq!(made.len(), 32 + 3);
}

/// Changes the limits of the node that calls the agent.
fn narrowed(tree: &Tree, limits: &str) {
    let merge = tree.read("graphs/shop/merge.yaml");
    let action = "action: { item_id: shop/review, params: { fixes: \"${inputs.fixes}\" } }\n";
    assert!(merge.contains(action), "{merge}");
    tree.write("graphs/shop/merge.yaml", &merge.replace(action, &format!("{action}      limits: {{ {limits} }}\n")));
}

#[graph_test]
async fn a_node_narrows_the_limits_of_its_agent(bed: TestBed) {
    for (limits, expected, asked) in [
        ("turns: 2", "has taken its 2 turns", 2),
        ("tokens: 31", "has used 45 of 31 tokens", 3),
        ("spend: \"0.00004 USD\"", "has spent 40 of 40 millionths of a dollar", 2),
    ] {
        let tree = Tree::new();
        narrowed(&tree, limits);
        let model = Scripted::new(|_, _| Ok(calls(&[("files_list", json!({}))])));
        let failed = run(&bed, &tree, &model).await.unwrap_err();
        assert!(failed.contains(expected), "{failed}");
        assert_eq!(model.asked(), asked, "{limits}");
        // The graph of the agent is the same, and by itself it has the limits of its contract.
        let runtime = bed.process(bed.disk().clone()).tools(tree.agents(&model)).build().unwrap();
        let alone = runtime.start(tree.agent(), inputs()).await.unwrap().await.unwrap_err().to_string();
        assert!(alone.contains("has taken its 4 turns"), "{alone}");
    }
    let (tree, model) = (Tree::new(), Late(Arc::default()));
    narrowed(&tree, "timeout: 100s");
    let runtime = bed.process(bed.disk().clone()).tools(tree.agents_with(model.clone())).build().unwrap();
    let began = tokio::time::Instant::now();
    runtime.start(tree.graph(), inputs()).await.unwrap().await.unwrap_err();
    assert_eq!((model.0.load(Ordering::Relaxed), began.elapsed().as_secs()), (2, 100));
}

/// A process dies at any write: only a turn in progress is taken again.
#[graph_test]
async fn narrowed_limits_hold_after_a_crash(_: TestBed) {
    let mut deaths = 0;
    for number in 1.. {
        let (bed, tree) = (TestBed::new(), Tree::new());
        narrowed(&tree, "turns: 2");
        let model = Scripted::new(|_, _| Ok(calls(&[("files_list", json!({}))])));
        let id = graph_runtime::RunId::new("run").unwrap();
        let store = graph_runtime::testing::FaultyStore::dies_before(bed.disk().clone(), number);
        let dying = bed.process(store.clone()).tools(tree.agents(&model)).build().unwrap();
        if let Ok(started) = dying.start_as(id.clone(), tree.graph(), inputs()).await {
            drop(started.await);
        }
        drop(dying);
        if !store.is_dead() {
            break;
        }
        deaths += 1;
        let living = bed.process(bed.disk().clone()).tools(tree.agents(&model)).build().unwrap();
        let run = match living.resume(tree.graph(), &id).await {
            Ok(resumed) => resumed,
            Err(_) => match living.start_as(id.clone(), tree.graph(), inputs()).await {
                Ok(started) => started,
                // The run had ended.
                Err(_) => continue,
            },
        };
        let failed = run.await.unwrap_err().to_string();
        assert!(failed.contains("has taken its 2 turns"), "{number}: {failed}");
        assert!(model.asked() <= 3, "{number}: {}", model.asked());
    }
    assert!(deaths > 5, "{deaths}");
}

#[test]
fn limits_only_narrow_and_graphs_prove_theirs() {
    let merge = |limits: &str| {
        let tree = Tree::new();
        let merge = tree.read("graphs/shop/merge.yaml");
        tree.write(
            "graphs/shop/merge.yaml",
            &merge.replace("config_schema:", &format!("limits: {{ {limits} }}\nconfig_schema:")),
        );
        let found = tree.mistakes();
        found.iter().map(|one| format!("{} {}", one.code.id, one.message)).collect::<Vec<String>>()
    };
    for fine in ["turns: 4", "tokens: 1000, spend: \"0.10 USD\"", "turns: 9, tokens: 2000"] {
        assert_eq!(merge(fine), [""; 0], "{fine}");
    }
    for (low, expected) in [
        ("turns: 3", "G0194 the agents of a run may exceed `limits.turns` together: 4"),
        ("tokens: 999", "G0194 the agents of a run may exceed `limits.tokens` together: 1000"),
        ("spend: \"0.099999 USD\"", "G0194 the agents of a run may exceed `limits.spend` together: 0.10 USD"),
    ] {
        assert!(merge(low).iter().any(|one| one == expected), "{low}: {:?}", merge(low));
    }
    let tree = Tree::new();
    narrowed(&tree, "turns: 5");
    let found: Vec<String> = tree.mistakes().iter().map(|one| one.message.clone()).collect();
    assert!(found.iter().any(|one| one.contains("`turns` of node `review` allows its agent more")), "{found:?}");
    // An agent that calls agents: each of its turns may call 32 of them.
    let tree = Tree::new();
    let inner = tree.read("graphs/tools/shop/review.yaml");
    tree.write("graphs/tools/shop/second.yaml", &inner);
    let outer = inner.replace("[files/read, files/list]", "[shop/second]");
    let outer = outer.replace("config_schema:", "permissions: [\"rye.execute.tool.files.*\"]\nconfig_schema:");
    tree.write("graphs/tools/shop/review.yaml", &outer);
    let text =
        tree.read("graphs/shop/merge.yaml").replace("rye.execute.tool.shop.review", "\"rye.execute.tool.shop.*\"");
    let most = 4 + 4 * 32 * 4;
    for (turns, is_fine) in [(most, true), (most - 1, false)] {
        let limited = text.replace("config_schema:", &format!("limits: {{ turns: {turns} }}\nconfig_schema:"));
        tree.write("graphs/shop/merge.yaml", &limited);
        let found: Vec<String> = tree.mistakes().iter().map(|one| one.message.clone()).collect();
        assert_eq!(found.is_empty(), is_fine, "{turns}: {found:?}");
    }
}

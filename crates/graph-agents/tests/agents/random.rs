//! Random conversations: limits hold, journals say what was used, and nothing but granted tools is called.

use std::sync::{Arc, Mutex};

use graph_agents::{ModelCall, ModelError, ModelMessage, ModelReply, Price, Usage};
use graph_runtime::store::{Page, RunFilter, Within};
use graph_runtime::testing::{TestBed, graph_test};
use graph_runtime::{RunId, Store, Value};
use serde_json::json;

use crate::tree::{Scripted, Tree, inputs};

/// A generator of numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        let at = usize::try_from(self.below(all.len() as u64)).unwrap();
        all[at].clone()
    }
}

/// Returns a reply that may be anything.
fn reply(random: &mut Random) -> Result<ModelReply, ModelError> {
    let (texts, price) =
        (["", "{}", "I am done.", "{\"verdict\": \"merge\", \"confidence\": 0.5}"], 1 + random.below(300));
    let usage = Usage { input: random.below(price), output: random.below(price) };
    if random.below(12) == 0 {
        return Err(ModelError::Busy { reason: "busy".to_owned(), after: None });
    }
    if random.below(60) == 0 {
        return Err(ModelError::Refused { reason: "no".to_owned() });
    }
    let mut calls = Vec::new();
    for _ in 0..random.below(5) {
        let name = random.one_of(&["files_read", "files_list", "answer", "files_delete", "rye_bash", ""]);
        let arguments = random.one_of(&[
            json!({ "path": "a.rs" }),
            json!({ "path": "gone", "lines": 3 }),
            json!({ "path": 3 }),
            json!({ "verdict": "reject", "confidence": 1.5 }),
            json!({ "verdict": "merge" }),
            json!([]),
            Value::Null,
        ]);
        calls.push(ModelCall { id: String::new(), name: name.to_owned(), arguments });
    }
    Ok(ModelReply { text: random.one_of(&texts).to_owned(), calls, usage, is_cut: false })
}

/// `CONVERSATIONS=1000` makes as many.
#[graph_test]
async fn limits_hold_and_journals_say_what_was_used(bed: TestBed) {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (conversations, seed) = (number("CONVERSATIONS", 150), number("SEED", 1));
    let price = Price { input: 1_000_000, output: 2_000_000 };
    let (mut answered, mut stopped) = (0, 0);
    for conversation in 0..conversations {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(conversation));
        let tree = Tree::new();
        let (turns, tokens, micros) = (1 + random.below(8), 1 + random.below(1_500), 1 + random.below(3_000));
        let limits = format!("turns: {turns}, tokens: {tokens}, spend: \"0.{micros:06} USD\"");
        tree.change("turns: 4, tokens: 1000, spend: \"0.10 USD\"", &limits);
        // The usage of each reply that was given, to any run of the agent.
        let used: Arc<Mutex<Vec<Usage>>> = Arc::default();
        let (random, given) = (Mutex::new(random), Arc::clone(&used));
        let model = Scripted::new(move |_, request| {
            let turn = request.messages.iter().filter(|one| matches!(one, ModelMessage::Assistant { .. })).count();
            let spent: Vec<Usage> = given.lock().unwrap().iter().rev().take(turn).copied().collect();
            let sum = |part: fn(&Usage) -> u64| spent.iter().map(part).sum::<u64>();
            assert!((spent.len() as u64) < turns, "a turn too many");
            assert!(sum(|usage| usage.input + usage.output) < tokens, "tokens are left");
            assert!(spent.iter().map(|usage| price.of(*usage)).sum::<u64>() < micros, "money is left");
            assert!(request.most_tokens.is_some_and(|most| most > 0 && most <= tokens));
            let reply = reply(&mut random.lock().unwrap());
            given.lock().unwrap().extend(reply.iter().map(|reply| reply.usage));
            reply
        });
        let runtime = bed.process(bed.disk().clone()).tools(tree.agents(&model)).build().unwrap();
        let id = RunId::new(format!("talk-{conversation}")).unwrap();
        let ended = runtime.start_as(id.clone(), tree.graph(), inputs()).await.unwrap().await;
        match &ended {
            Ok(finished) => {
                answered += 1;
                assert!(["merged", "rejected"].contains(&finished.output["end"].as_str().unwrap()));
            }
            Err(error) => stopped += usize::from(error.to_string().contains("the agent has no answer, and ")),
        }
        for (tool, params) in tree.made.lock().unwrap().iter() {
            let is_fit = tool == "files/list" || params["path"].is_string();
            assert!(is_fit, "conversation {conversation}: {tool} {params}");
        }
        // The journal of the agent has the same numbers.
        let filter = RunFilter { within: Within::Run(id.clone()), ..RunFilter::default() };
        let inside = bed.disk().runs(&filter, &Page::default()).await.unwrap().runs;
        // The node around the agent is tried again if the model was busy too often.
        let mut history = Vec::new();
        for agent in inside.iter().filter(|run| run.graph == "shop/review") {
            history.extend(runtime.history(&agent.run).await.unwrap());
        }
        let said = |name: &str| -> u64 {
            history.iter().filter(|visit| visit.node == "think").filter_map(|visit| visit.result[name].as_u64()).sum()
        };
        let used = used.lock().unwrap().clone();
        // A turn whose answer was refused for good has a failure, and no result.
        let refused = u64::from(ended.as_ref().is_err_and(|error| error.to_string().contains("was asked twice")));
        let counted = &used[..used.len() - usize::try_from(refused).unwrap()];
        assert_eq!(
            said("tokens"),
            counted.iter().map(|usage| usage.input + usage.output).sum::<u64>(),
            "{conversation}"
        );
        assert_eq!(said("micros"), counted.iter().map(|usage| price.of(*usage)).sum::<u64>(), "{conversation}");
    }
    println!("{conversations} conversations: {answered} answered, {stopped} stopped by a limit");
    assert!(answered * 20 > conversations && stopped * 20 > usize::try_from(conversations).unwrap());
}

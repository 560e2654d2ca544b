//! Random programs against a judge: sequences of calls, batches and refused requests, whose processes die at random writes.

use std::collections::{BTreeMap, BTreeSet};

use graph_runtime::testing::{FaultyStore, TestBed};
use serde_json::{Value, json};

use crate::tree::Tree;

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// A message of a random program, with the reply and the calls that a judge expects.
struct Planned {
    message: Value,
    reply: Value,
    /// The tools and parameters that are called.
    made: Vec<(String, Value)>,
}

/// Returns a request with its response, and the call that it is, if it is one.
fn request(random: &mut Random, id: u64) -> (Value, Value, Option<(String, Value)>) {
    let item = ["a", "b", "broken", "$(touch pwned)", "é\n'\"", ""][usize::try_from(random.below(6)).unwrap()];
    let number = random.below(1_000);
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let error = |code: i64| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code } });
    let request = |tool: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": tool, "params": params });
    match random.below(8) {
        0 => (request("shop/count", json!({})), result(json!(7)), Some(("shop/count".to_owned(), json!({})))),
        1 => (request("shop/charge", json!({ "item": item })), error(-32_601), None),
        2 => (request("shop/process", json!({ "items": item })), error(-32_602), None),
        3 => (json!({ "id": id, "method": "shop/count" }), error(-32_600), None),
        // The type of the argument is wrong: the call fails before the tool gets it.
        4 => (request("shop/process", json!({ "item": number })), error(-32_000), None),
        _ => {
            let params = json!({ "item": item, "note": { "n": number, "f": number as f64 / 7.0 } });
            let response = match item {
                "broken" => error(-32_000),
                item => result(json!({ "done": item.to_uppercase() })),
            };
            (request("shop/process", params.clone()), response, Some(("shop/process".to_owned(), params)))
        }
    }
}

fn planned(random: &mut Random, id: &mut u64) -> Planned {
    let mut next = |random: &mut Random| {
        *id += 1;
        request(random, *id)
    };
    if random.below(2) == 0 {
        let (message, reply, made) = next(random);
        return Planned { message, reply, made: made.into_iter().collect() };
    }
    let all: Vec<_> = (0..=random.below(5)).map(|_| next(random)).collect();
    let message = Value::Array(all.iter().map(|(message, ..)| message.clone()).collect());
    let reply = Value::Array(all.iter().map(|(_, reply, _)| reply.clone()).collect());
    Planned { message, reply, made: all.into_iter().filter_map(|(.., made)| made).collect() }
}

/// Removes the messages of errors, whose words are not the judge's business.
fn without_words(mut reply: Value) -> Value {
    for one in reply.as_array_mut().map_or_else(Vec::new, |all| all.iter_mut().collect()) {
        *one = without_words(one.take());
    }
    if let Some(error) = reply.get_mut("error").and_then(Value::as_object_mut) {
        error.retain(|name, _| name == "code");
    }
    reply
}

#[tokio::test(flavor = "multi_thread")]
async fn random_programs_get_the_replies_that_a_judge_expects() {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (programs, seed) = (number("PROGRAMS", 25), number("SEED", 1));
    let (mut deaths, mut repeated, mut calls) = (0, 0, 0);
    for program in 0..programs {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(program));
        let mut id = 0;
        let plan: Vec<Planned> = (0..random.below(8)).map(|_| planned(&mut random, &mut id)).collect();
        let quoted = |text: String| format!("'{}'", text.replace('\'', "'\\''"));
        let asks =
            plan.iter().map(|one| format!("ask {}; replies+=${{replies:+,}}$reply\n", quoted(one.message.to_string())));
        let script = format!(
            "replies=\n{}echo \"{{\\\"processed\\\":{},\\\"replies\\\":[$replies]}}\"\n",
            asks.collect::<String>(),
            plan.len(),
        );
        let (tree, bed) = (Tree::new(&script), TestBed::new());
        let ended = loop {
            let store = match random.below(4) {
                0 => FaultyStore::sound(bed.disk().clone()),
                1 => FaultyStore::dies_after(bed.disk().clone(), random.below(12)),
                _ => FaultyStore::dies_before(bed.disk().clone(), random.below(12)),
            };
            match tree.go_on(&bed, store).await {
                Some(ended) => break ended.unwrap_or_else(|error| panic!("program {program}: {error}\n{script}")),
                None => deaths += 1,
            }
        };
        let replies = ended.output["replies"].as_array().cloned().unwrap_or_default();
        let replies: Vec<Value> = replies.into_iter().map(without_words).collect();
        let expected: Vec<Value> = plan.iter().map(|one| one.reply.clone()).collect();
        assert_eq!(replies, expected, "program {program}\n{script}");
        // Each call was made, and again only if a process died meanwhile.
        let mut expected: BTreeMap<String, usize> = BTreeMap::new();
        for (tool, params) in plan.iter().flat_map(|one| &one.made) {
            *expected.entry(format!("{tool} {params}")).or_default() += 1;
            calls += 1;
        }
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (tool, params, key) in tree.made.lock().unwrap().iter() {
            found.entry(format!("{tool} {params}")).or_default().insert(key.clone());
        }
        let found: BTreeMap<String, usize> = found.into_iter().map(|(call, keys)| (call, keys.len())).collect();
        assert_eq!(found, expected, "program {program}");
        let made = tree.made.lock().unwrap().len();
        repeated += made - plan.iter().map(|one| one.made.len()).sum::<usize>();
        assert_eq!(tree.prove(&bed).await, 2);
        tree.assert_no_process();
        assert!(!tree.path("pwned").exists());
    }
    println!("{programs} programs: {calls} calls, {deaths} deaths, {repeated} calls made again");
    assert!(deaths > programs / 2 && repeated <= deaths as usize * 6, "{deaths} deaths, {repeated} repeated");
}

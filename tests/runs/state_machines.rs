//! The graphs of the examples, with tools that follow a script: their paths, the results of each visit, and the ends of
//! the runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use graph_runtime::record::Visit;
use graph_runtime::testing::{FakeAnswer, FakeScript, Fakes};
use graph_runtime::{
    ActionError, Builder, Call, Edges, ManualClock, MemoryStore, Runtime, SecretKey, StartError, Status,
};
use serde_json::json;
use state_graphs::{
    Negotiation, OrderBatch, PriceCheck, SelectiveFeedback, ToolRouter, negotiation, order_batch, price_check,
    selective_feedback, tool_router,
};

use state_graphs::tools::agents_analyze::OutputDecision as Decision;
use state_graphs::tools::agents_critique::OutputVerdict as Verdict;
use state_graphs::tools::market_negotiate::OutputSays as Says;
use state_graphs::tools::market_negotiate::ParamsParty as Party;
use state_graphs::tools::{
    agents_analyze, agents_calculate, agents_critique, agents_research, agents_search, agents_write, market_negotiate,
    market_quote, shop_charge_card, shop_look_up,
};

fn builder() -> Builder {
    Runtime::builder().grant("*").unwrap().keep_history()
}

/// Returns the visited nodes, in order.
fn way(history: &[Visit]) -> Vec<&str> {
    history.iter().map(|visit| visit.node.as_str()).collect()
}

/// An agent that decides as a script says, and then as its last line says, with tools.
fn router(script: &'static [(Decision, &'static str)]) -> Fakes {
    let line = AtomicUsize::new(0);
    let analyze = move |_: &Call, params: agents_analyze::Params| {
        assert_eq!(params.question, "why?");
        let (decision, text) = script[line.fetch_add(1, Ordering::Relaxed).min(script.len() - 1)];
        Ok(agents_analyze::Output { decision, text: text.to_owned() })
    };
    let search =
        |_: &Call, params: agents_search::Params| Ok(agents_search::Output { text: format!("found {}", params.query) });
    let calculate = |_: &Call, params: agents_calculate::Params| {
        Ok(agents_calculate::Output { value: i64::try_from(params.expression.len()).unwrap() })
    };
    Fakes::new()
        .on(agents_analyze::FAKE, FakeScript::always(FakeAnswer::with(analyze)))
        .on(agents_search::FAKE, FakeScript::always(FakeAnswer::with(search)))
        .on(agents_calculate::FAKE, FakeScript::always(FakeAnswer::with(calculate)))
}

fn why() -> tool_router::Inputs {
    tool_router::Inputs { question: "why?".into() }
}

#[tokio::test]
async fn tools_return_to_the_agent_that_chose_them_until_it_answers() {
    let router = router(&[
        (Decision::Search, "a"),
        (Decision::Calculate, "2 * 3"),
        (Decision::Search, "b"),
        (Decision::Answer, "so"),
    ]);
    let store = MemoryStore::new();
    let runtime = builder().store(store).sign_with(SecretKey::from_seed(&[1; 32])).build().unwrap();
    let finished = runtime.start(ToolRouter::new(router.clone()), why()).await.unwrap().await.unwrap();

    let expected = ["analyze", "search", "analyze", "calculate", "analyze", "search", "analyze", "answer"];
    assert_eq!(way(&finished.history), expected);
    assert_eq!((finished.steps, finished.status, finished.exhausted), (8, Status::Completed, false));
    let notes = "found a\n2 * 3 = 5\nfound b\n";
    let output = tool_router::Output { notes: notes.into(), request: Some("so".into()), answer: Some("so".into()) };
    assert_eq!(finished.output, output);
    let asked = router.calls_of(agents_analyze::FAKE);
    let seen: Vec<&str> = asked.iter().map(|params| params.notes.as_str()).collect();
    assert_eq!(seen, ["", "found a\n", "found a\n2 * 3 = 5\n", notes]);

    // Each visit keeps its result, even if a later visit of the same node returned another one.
    let searches = finished.history.iter().filter(|visit| visit.node == "search");
    assert_eq!(searches.map(|visit| &visit.result["text"]).collect::<Vec<_>>(), ["found a", "found b"]);
    assert_eq!(finished.last_results()["search"], &json!({"text": "found b"}));
    assert_eq!(runtime.history(&finished.run).await.unwrap(), finished.history, "the journal tells the same");

    let edges = Edges::of(&tool_router::PROGRAM);
    let reasons: Vec<_> = finished.history[..4].iter().map(|visit| edges.taken(visit).unwrap().to_string()).collect();
    let expected = [
        "`search` (a fact is missing)",
        "`analyze` (back with what was found)",
        "`calculate` (there is something to calculate)",
        "`analyze` (back with the number)",
    ];
    assert_eq!(reasons, expected);
    assert_eq!(edges.taken(&finished.history[7]), None, "the run ends without an edge");
    let fired: Vec<_> =
        edges.fired(&finished.history).iter().map(|fired| (fired.from, fired.index, fired.times)).collect();
    let expected = [("analyze", 0, 2), ("analyze", 1, 1), ("analyze", 2, 1), ("search", 0, 2), ("calculate", 0, 1)];
    assert_eq!(fired, expected);
}

#[tokio::test]
async fn an_agent_without_an_answer_is_stopped_and_the_result_says_so() {
    let router = router(&[(Decision::Search, "a")]);
    let finished = builder().build().unwrap().start(ToolRouter::new(router), why()).await.unwrap().await.unwrap();
    assert_eq!((finished.steps, finished.status, finished.exhausted), (12, Status::Completed, true));
    assert_eq!(finished.output.answer, None);
    assert_eq!(finished.output.notes, "found a\n".repeat(6));
    assert_eq!(finished.to_value()["max_steps_reached"], true);
    let edges = Edges::of(&tool_router::PROGRAM);
    let times: Vec<_> = edges.fired(&finished.history).iter().map(|fired| fired.times).collect();
    assert_eq!(times, [6, 0, 0, 6, 0], "edges that were never taken are there too");
}

/// A writer and a critic who is content with the text of a certain round.
fn writers(content_with: usize) -> Fakes {
    let (written, judged) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let research = |_: &Call, params: agents_research::Params| {
        Ok(agents_research::Output { facts: vec![format!("{} is wet", params.topic)] })
    };
    let write = move |_: &Call, _| {
        Ok(agents_write::Output { text: format!("text {}", written.fetch_add(1, Ordering::Relaxed) + 1) })
    };
    let critique = move |_: &Call, params: agents_critique::Params| {
        let judged = judged.fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!(params.text, format!("text {judged}"));
        let verdict = if judged == content_with { Verdict::Good } else { Verdict::Revise };
        Ok(agents_critique::Output { verdict, notes: format!("note {judged}") })
    };
    Fakes::new()
        .on(agents_research::FAKE, FakeScript::of([FakeAnswer::with(research)]))
        .on(agents_write::FAKE, FakeScript::always(FakeAnswer::with(write)))
        .on(agents_critique::FAKE, FakeScript::always(FakeAnswer::with(critique)))
}

#[tokio::test]
async fn critic_returns_text_to_the_writer_and_research_runs_once() {
    let writers = writers(2);
    let inputs = selective_feedback::Inputs { topic: "tea".into() };
    let run = builder().build().unwrap().start(SelectiveFeedback::new(writers.clone()), inputs).await.unwrap();
    let finished = run.await.unwrap();
    assert_eq!(way(&finished.history), ["research", "write", "critique", "write", "critique"]);
    assert_eq!(writers.calls_of(agents_research::FAKE).len(), 1);
    let asked = |before: Option<&str>, notes: &str| agents_write::Params {
        topic: "tea".into(),
        facts: vec!["tea is wet".into()],
        before: before.map(str::to_owned),
        notes: notes.into(),
    };
    let wrote = writers.calls_of(agents_write::FAKE);
    assert_eq!(wrote, [asked(None, ""), asked(Some("text 1"), "note 1")]);
    assert_eq!((finished.output.text.as_deref(), finished.output.verdict), (Some("text 2"), Some(Verdict::Good)));
    let warnings: Vec<_> = finished.history.iter().flat_map(|visit| &visit.warnings).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    let edges = Edges::of(&selective_feedback::PROGRAM);
    let last = edges.taken(&finished.history[4]).unwrap();
    assert_eq!((last.to.as_deref(), last.to_string().as_str()), (None, "the end (the text can stand)"));
}

#[tokio::test]
async fn the_last_revision_wins_if_the_critic_is_never_content() {
    let writers = writers(0);
    let inputs = selective_feedback::Inputs { topic: "tea".into() };
    let run = builder().build().unwrap().start(SelectiveFeedback::new(writers.clone()), inputs).await.unwrap();
    let finished = run.await.unwrap();
    assert_eq!((finished.steps, finished.status, finished.exhausted), (7, Status::Completed, false));
    assert_eq!((finished.output.text.as_deref(), finished.output.verdict), (Some("text 3"), Some(Verdict::Revise)));
    let judged = writers.calls_of(agents_critique::FAKE);
    assert_eq!(judged.len(), 3, "no text is written that nobody judges");
}

/// Parties that answer as a script says, and then as its last line says.
fn parties(script: &'static [(Says, i64)]) -> Fakes {
    let line = AtomicUsize::new(0);
    let negotiate = move |_: &Call, _| {
        let (says, price) = script[line.fetch_add(1, Ordering::Relaxed).min(script.len() - 1)];
        Ok(market_negotiate::Output { says, price })
    };
    Fakes::new().on(market_negotiate::FAKE, FakeScript::always(FakeAnswer::with(negotiate)))
}

#[tokio::test]
async fn two_parties_alternate_in_their_own_rounds_until_one_accepts() {
    let parties = parties(&[(Says::Offer, 60), (Says::Offer, 90), (Says::Offer, 80), (Says::Accept, 80)]);
    let run = builder().build().unwrap().start(Negotiation::new(parties.clone()), asking()).await.unwrap();
    let finished = run.await.unwrap();
    assert_eq!(way(&finished.history), ["buyer", "seller", "buyer", "seller", "agreed"]);
    assert_eq!(finished.output, negotiation::Output { price: 80, rounds: 2 });
    let told = |party, round, offered, own| market_negotiate::Params { party, round, offered, own };
    let expected = [
        told(Party::Buyer, 1, 100, None),
        told(Party::Seller, 1, 60, Some(100)),
        told(Party::Buyer, 2, 90, Some(60)),
        told(Party::Seller, 2, 80, Some(90)),
    ];
    assert_eq!(parties.calls_of(market_negotiate::FAKE), expected);
}

fn asking() -> negotiation::Inputs {
    negotiation::Inputs { asking_price: 100 }
}

#[tokio::test]
async fn strict_graph_without_a_matching_edge_fails_and_names_edges() {
    let parties = parties(&[(Says::Offer, 60), (Says::Leave, 90)]);
    let run = builder().build().unwrap().start(Negotiation::new(parties), asking()).await.unwrap();
    let error = run.await.unwrap_err();
    let expected = "node `seller` failed: no edge matches; \
                    there are `agreed` (the seller accepts), `buyer` (the seller asks for more)";
    assert_eq!(error.to_string(), expected);
    let value = error.to_value();
    assert_eq!((&value["status"], &value["steps"], &value["node"]), (&json!("error"), &json!(1), &json!("seller")));
    assert_eq!(value["state"]["price"], 60, "nothing is kept of the step that failed");
}

#[tokio::test]
async fn parties_that_never_agree_are_stopped() {
    let parties = parties(&[(Says::Offer, 60)]);
    let run = builder().build().unwrap().start(Negotiation::new(parties.clone()), asking()).await.unwrap();
    assert_eq!(run.await.unwrap_err().to_string(), "Max steps exceeded (20)");
    assert_eq!(parties.calls().len(), 20);
}

/// Shops: `busy` answers the second time, `slow` never does, and `gone` does not exist. Notes how many calls are in progress at a time.
fn shops(most: &Arc<AtomicUsize>) -> Fakes {
    let (live, most) = (Arc::new(AtomicUsize::new(0)), Arc::clone(most));
    let quote = move |call: &Call, market_quote::Params { shop, .. }: market_quote::Params| {
        let (attempt, live, most) = (call.attempt(), Arc::clone(&live), Arc::clone(&most));
        async move {
            match shop.as_str() {
                "slow" => std::future::pending().await,
                "gone" => return Err(ActionError::permanent("there is no such shop")),
                "busy" if attempt == 1 => return Err(ActionError::transient("busy")),
                _ => {}
            }
            most.fetch_max(live.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            live.fetch_sub(1, Ordering::Relaxed);
            Ok(market_quote::Output { shop, price_cents: 450 })
        }
    };
    Fakes::new().on(market_quote::FAKE, FakeScript::always(FakeAnswer::with_async(quote)))
}

#[tokio::test]
async fn quotes_and_failures_keep_the_positions_of_their_offers() {
    let asked = ["a", "busy", "gone", "slow", "b", "c", "d", "e", "f", "g"];
    let offer = |shop: &&str| price_check::InputsOffersItem { shop: (*shop).into(), article: "tea".into() };
    let inputs = price_check::Inputs { offers: asked.iter().map(offer).collect() };
    let most = Arc::default();
    let shops = shops(&most);
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    let runtime = builder().clock(Arc::clone(&clock) as _).build().unwrap();
    let mut run = runtime.start(PriceCheck::new(shops.clone()), inputs).await.unwrap().into_future();
    // The clock advances only when the run cannot proceed, so only calls that wait for the clock are late.
    let finished = loop {
        tokio::select! {
            biased;
            finished = &mut run => break finished.unwrap(),
            () = tokio::task::yield_now() => clock.advance(Duration::from_millis(50)),
        }
    };

    let shown: Vec<_> =
        finished.output.quotes.iter().map(|quote| (quote.shop.as_deref(), quote.error.as_deref())).collect();
    let mut expected: Vec<_> = asked.iter().map(|shop| (Some(*shop), None)).collect();
    expected[2] = (None, Some("there is no such shop"));
    expected[3] = (None, Some("it timed out after 10s"));
    assert_eq!(shown, expected);
    assert_eq!(finished.output.quotes[2].status.as_deref(), Some("error"));
    assert_eq!(finished.output.quotes[1].price_cents, Some(450));
    let calls = shops.calls_of(market_quote::FAKE);
    let count = |shop: &str| calls.iter().filter(|call| call.shop == shop).count();
    assert_eq!((count("a"), count("busy"), count("gone"), count("slow")), (1, 2, 1, 3));
    let most = most.load(Ordering::Relaxed);
    assert!((2..=4).contains(&most), "{most} at a time");
    assert_eq!(finished.status, Status::CompletedWithErrors);
    let errors: Vec<_> = finished.errors.iter().map(|error| error.error.as_str()).collect();
    assert_eq!(errors, ["item 2: there is no such shop", "item 3: it timed out after 10s"]);
    let items: Vec<_> = finished.history[0].items.iter().map(|failed| failed.item).collect();
    assert_eq!(items, [2, 3]);
}

/// A shop that sells tea, and whose list of other articles cannot be read.
fn shop() -> Fakes {
    let look_up = |_: &Call, params: shop_look_up::Params| match params.article.as_str() {
        "tea" => Ok(shop_look_up::Output { price_cents: 450, in_stock: 5 }),
        "coffee" => Ok(shop_look_up::Output { price_cents: 450, in_stock: 0 }),
        _ => Err(ActionError::permanent("the list cannot be read")),
    };
    let charge = |call: &Call, params: shop_charge_card::Params| {
        if params.card == "tok_broke" {
            return Err(ActionError::permanent("insufficient funds"));
        }
        let parent = call.parent().unwrap();
        let total = params.price_cents * params.quantity;
        Ok(shop_charge_card::Output { receipt: format!("{total} for {} of {}", parent.item.unwrap(), parent.node) })
    };
    Fakes::new()
        .on(shop_look_up::FAKE, FakeScript::always(FakeAnswer::with(look_up)))
        .on(shop_charge_card::FAKE, FakeScript::always(FakeAnswer::with(charge)))
}

fn batch(orders: &str) -> order_batch::Inputs {
    serde_json::from_str(&format!(r#"{{"orders": {orders}}}"#)).unwrap()
}

#[tokio::test]
async fn each_batch_order_is_a_separate_run_with_a_typed_result() {
    let orders = batch(
        r#"[{"article": "tea", "card": "c", "quantity": 2}, {"article": "coffee", "card": "c"},
            {"article": "tea", "card": "tok_broke"}, {"article": "tea", "card": "c"}]"#,
    );
    let finished = builder().build().unwrap().start(OrderBatch::new(shop()), orders).await.unwrap().await.unwrap();
    let output = |status: &str, message: &str, receipt: Option<&str>| order_batch::SalesItemOutput {
        status: status.into(),
        message: message.into(),
        receipt: receipt.map(str::to_owned),
    };
    let sold: Vec<_> = finished.output.sales.iter().map(|sale| sale.output.clone()).collect();
    let expected = [
        output("paid", "order of 2 × tea is on its way", Some("900 for 0 of sell")),
        output("open", "coffee is not in stock", None),
        output("open", "the card was refused: insufficient funds", None),
        output("paid", "order of 1 × tea is on its way", Some("450 for 3 of sell")),
    ];
    assert_eq!(sold, expected);
    let facts: Vec<_> =
        finished.output.sales.iter().map(|sale| (sale.success, sale.status.as_str(), sale.steps)).collect();
    let (long, short) = ((true, "completed", 4), (true, "completed", 3));
    assert_eq!(facts, [long, short, long, long]);
    assert_eq!((finished.steps, finished.status), (2, Status::Completed));
}

#[tokio::test]
async fn an_order_that_fails_fails_its_batch_and_says_in_which_run() {
    let orders = batch(r#"[{"article": "tea", "card": "c"}, {"article": "salt", "card": "c"}]"#);
    let run = builder().build().unwrap().start(OrderBatch::new(shop()), orders).await.unwrap();
    let error = run.await.unwrap_err().to_string();
    assert!(
        error.starts_with("node `sell` failed: item 1: the list cannot be read (node `look_up` of run `"),
        "{error}"
    );
}

#[tokio::test]
async fn a_batch_does_not_start_where_its_graphs_may_not_be_run() {
    let runtime = Runtime::builder().grant("rye.execute.tool.shop.look_up").unwrap().build().unwrap();
    let error = runtime.start(OrderBatch::new(shop()), batch("[]")).await.map(drop).unwrap_err();
    assert!(
        matches!(&error, StartError::NotGranted { missing, .. } if missing.iter().any(|one| one.contains("shop.order"))),
        "{error}"
    );
}

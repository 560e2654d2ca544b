//! The repository's own graphs, compiled and run.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use graph_runtime::testing::{FakeAnswer, FakeScript, Fakes};
use graph_runtime::{
    ActionError, Builtins, Call, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, SqliteStore, StartError, Store,
};
use state_graphs::tools::{bench_tick, shop_charge_card, shop_look_up};
use state_graphs::{Countdown, Order, ProjectStats, Reservation, Tally, order, project_stats, reservation};

/// A shop with so many pieces of tea.
fn shop(in_stock: i64) -> Fakes {
    let look_up = move |_: &Call, params: shop_look_up::Params| {
        assert_eq!(params.article, "tea");
        Ok(shop_look_up::Output { price_cents: 450, in_stock })
    };
    let charge = |_: &Call, params: shop_charge_card::Params| match params.card.as_str() {
        "tok_broke" => Err(ActionError::permanent("insufficient funds")),
        _ => Ok(shop_charge_card::Output { receipt: "r-1".to_owned() }),
    };
    Fakes::new()
        .on(shop_look_up::FAKE, FakeScript::always(FakeAnswer::with(look_up)))
        .on(shop_charge_card::FAKE, FakeScript::always(FakeAnswer::with(charge)))
}

async fn sell(in_stock: i64, card: &str) -> (order::Output, Vec<(String, i64)>) {
    let shop = shop(in_stock);
    let runtime = Runtime::builder().grant("rye.execute.tool.shop.*").unwrap().build().unwrap();
    let inputs = order::Inputs { article: "tea".into(), quantity: 3, card: card.into() };
    let run = runtime.start(Order::sharing(Arc::new(shop.clone())), inputs).await.unwrap();
    let output = run.await.unwrap().output;
    let charged = shop.calls_of(shop_charge_card::FAKE).into_iter();
    (output, charged.map(|charge| (charge.card, charge.price_cents * charge.quantity)).collect())
}

#[tokio::test]
async fn an_order_is_shipped_put_off_or_refused() {
    let (output, charged) = sell(5, "tok_1").await;
    let expected = order::Output::Shipped(order::ShippedOutput {
        status: "paid".into(),
        message: "order of 3 × tea is on its way".into(),
        receipt: "r-1".into(),
    });
    assert_eq!((output, charged), (expected, vec![("tok_1".into(), 1350)]));
    let (output, charged) = sell(0, "tok_1").await;
    let message = "tea is not in stock".into();
    let expected = order::Output::BackOrder(order::BackOrderOutput { status: "open".into(), message });
    assert_eq!((output, charged), (expected, vec![]));
    let (output, charged) = sell(5, "tok_broke").await;
    let message = "the card was refused: insufficient funds".into();
    let expected = order::Output::Refused(order::RefusedOutput { status: "open".into(), message });
    assert_eq!((output.node(), &output), (order::Node::Refused, &expected));
    assert_eq!(charged, [("tok_broke".to_owned(), 1350)], "the charge that failed");
    assert_eq!(
        serde_json::to_string(&output).unwrap(),
        r#"{"status":"open","message":"the card was refused: insufficient funds"}"#,
        "as JSON it is what the run returned"
    );
}

#[test]
fn a_module_says_what_the_graph_is() {
    assert_eq!(order::ID, "shop/order");
    assert_eq!(order::VERSION, "1.0.0");
    assert_eq!(order::SIGNER, "be8cd119b32a2931");
    assert_eq!(order::DIGEST.len(), 64);
    assert_eq!(order::CAPABILITIES, ["rye.execute.tool.shop.look_up", "rye.execute.tool.shop.charge_card"]);
    assert_eq!(order::ENV, [""; 0]);
    use order::Node;
    assert_eq!(Node::ChargeCard.next(), [Node::Shipped, Node::Refused]);
    assert_eq!(Node::IsAvailable.next(), [Node::ChargeCard, Node::BackOrder]);
    assert_eq!(Node::Refused.next(), []);
    assert_eq!(Node::ALL.len(), 6);
    assert_eq!(format!("{:?}", Node::ChargeCard), "charge_card");
}

#[test]
fn inputs_have_their_defaults_and_are_read_as_json() {
    let inputs: order::Inputs = serde_json::from_str(r#"{"article": "tea", "card": "c"}"#).unwrap();
    assert_eq!(inputs, order::Inputs { article: "tea".into(), quantity: 1, card: "c".into() });
    assert_eq!(serde_json::to_string(&inputs).unwrap(), r#"{"article":"tea","quantity":1,"card":"c"}"#);
    let error = serde_json::from_str::<order::Inputs>(r#"{"article": "tea", "quantity": "x", "card": "c"}"#);
    assert!(error.unwrap_err().to_string().contains("expected an integer of 64 bits, found a string at `quantity`"));
    assert_eq!(
        project_stats::Inputs::default(),
        project_stats::Inputs { directory: ".".into(), pattern: "*.rs".into() }
    );
}

fn durable(store: impl Store) -> Runtime {
    let key = SecretKey::from_seed(&[1; 32]);
    Runtime::builder().store(store).sign_with(key).grant("rye.execute.tool.rye.bash").unwrap().build().unwrap()
}

#[tokio::test]
async fn project_stats_counts_and_reads_no_input_as_code() {
    let directory = tempfile::tempdir().unwrap();
    let sources = directory.path().join("it's $(touch pwned) \"quoted\"; touch pwned");
    fs::create_dir(&sources).unwrap();
    fs::write(sources.join("a.rs"), "one\ntwo\n").unwrap();
    fs::write(sources.join("b c.rs"), "three\n").unwrap();
    fs::write(sources.join("other.txt"), "not counted\n").unwrap();
    let path = directory.path().join("runs.db");
    let runtime = durable(SqliteStore::open(&path).await.unwrap());
    let inputs = project_stats::Inputs { directory: sources.display().to_string(), pattern: "*.rs".into() };
    let run = RunId::new("stats").unwrap();
    let finished = runtime.start_as(run.clone(), ProjectStats::new(Builtins), inputs).await.unwrap().await.unwrap();
    assert_eq!(finished.output, project_stats::Output { file_count: "2".into(), line_count: "3".into() });
    assert!(!fs::exists("pwned").unwrap());
    let again = durable(SqliteStore::open(&path).await.unwrap());
    let again = again.resume(ProjectStats::new(Builtins), &run).await.unwrap().await.unwrap();
    assert_eq!(again.output, finished.output, "the journal has the result");
}

#[tokio::test]
async fn a_command_that_fails_fails_its_node() {
    let inputs = project_stats::Inputs { directory: "/does/not/exist".into(), ..Default::default() };
    let run = durable(MemoryStore::new()).start(ProjectStats::new(Builtins), inputs).await.unwrap();
    let error = run.await.unwrap_err();
    assert!(matches!(&error, RunError::Node { node, .. } if node == "count_files"), "{error}");
    assert!(error.to_string().contains("/does/not/exist"), "{error}");
}

#[tokio::test]
async fn a_run_without_its_grants_does_not_start() {
    let runtime = Runtime::builder().grant("rye.execute.tool.shop.look_up").unwrap().build().unwrap();
    let inputs = order::Inputs { article: "tea".into(), quantity: 1, card: "c".into() };
    let error = runtime.start(Order::new(Fakes::new()), inputs).await.map(drop).unwrap_err();
    assert!(
        matches!(&error, StartError::NotGranted { missing, .. } if *missing == ["`rye.execute.tool.shop.charge_card`"]),
        "{error}"
    );
}

struct Ticks(AtomicI64);

impl bench_tick::Tool for Ticks {
    async fn bench_tick(&self, _: &Call, _: bench_tick::Params) -> Result<bench_tick::Output, ActionError> {
        Ok(bench_tick::Output { left: self.0.fetch_sub(1, Ordering::Relaxed) - 1 })
    }
}

#[tokio::test]
async fn a_loop_runs_until_its_condition_holds_watched_or_not() {
    for store in [None, Some(MemoryStore::new())] {
        let mut builder = Runtime::builder().grant("*").unwrap();
        if let Some(store) = store {
            builder = builder.store(store).sign_with(SecretKey::from_seed(&[1; 32]));
        }
        let runtime = builder.build().unwrap();
        let counted = runtime.start(Countdown::new(Ticks(5000.into())), Map::new()).await.unwrap().await.unwrap();
        assert_eq!(counted.steps, 5001);
        let tallied = runtime.start(Tally::new(Ticks(300.into())), Map::new()).await.unwrap().await.unwrap();
        assert_eq!((tallied.steps, tallied.output.left), (301, 0));
    }
}

#[test]
fn default_replaces_a_missing_required_input_but_not_a_null() {
    let inputs: reservation::Inputs = serde_json::from_str(r#"{"code": "TAB0001", "guests": []}"#).unwrap();
    assert_eq!((inputs.seats, inputs.mail), (2, None));
    let error = serde_json::from_str::<reservation::Inputs>(r#"{"code": "TAB0001", "guests": [], "seats": null}"#);
    assert!(error.unwrap_err().to_string().contains("found nothing at `seats`"));
}

#[tokio::test]
async fn run_starts_only_with_inputs_that_meet_schema_constraints() {
    let store = MemoryStore::new();
    let key = SecretKey::from_seed(&[1; 32]);
    let runtime = Runtime::builder().store(store.clone()).sign_with(key).build().unwrap();
    let fits = || reservation::Inputs {
        code: "TAB0001".into(),
        seats: 2,
        mail: Some("ada@example.org".into()),
        guests: vec!["Ada".into(), "Grace".into()],
    };
    let run = runtime.start(Reservation::new(Builtins), fits()).await.unwrap();
    assert_eq!(run.await.unwrap().output.note, "2 seats at TAB0001");
    for (inputs, expected) in [
        (reservation::Inputs { seats: 9, ..fits() }, "expected what `maximum: 8` allows, found an integer at `seats`"),
        (reservation::Inputs { mail: Some("ada".into()), ..fits() }, "`format: \"email\"`"),
        (reservation::Inputs { guests: vec!["Ada".into(), String::new()], ..fits() }, "found a string at `guests.1`"),
        (reservation::Inputs { code: "hunter2".into(), ..fits() }, "found a string at `code`"),
    ] {
        let error = runtime.start(Reservation::new(Builtins), inputs).await.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, StartError::Inputs { .. }) && said.contains(expected), "{said}");
        assert!(!said.contains("hunter2"), "a value that may be a secret is not said: {said}");
    }
    assert_eq!(store.list().await.unwrap().len(), 1, "nothing is kept of a run that did not start");
}

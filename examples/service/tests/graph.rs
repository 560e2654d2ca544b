//! The graph with tools that do what a test tells them, in virtual time.

use std::time::Duration;

use graph_runtime::events::{EventKind, Mode};
use graph_runtime::testing::{FakeAnswer, FakeScript, Fakes, StoreFault, StoreWrite, TestBed, TestRun, graph_test};
use graph_runtime::{Call, Edges, ItemId, Secret, Status, ToolSettings};
use rusqlite::Connection;
use service::graphs::fulfil::Node::{Charge, Refused, Release, Reserve, Ship, Shipped, SoldOut};
use service::graphs::tools::shop_charge::{self, Tool as _};
use service::graphs::tools::{shop_release, shop_reserve, shop_ship};
use service::graphs::{Fulfil, fulfil};
use service::shop::Shop;

/// A shop that has what is ordered, and a payment service that answers after a day.
fn shop() -> Fakes {
    let reserved = shop_reserve::Output { is_reserved: true, reservation: "r-1".to_owned(), amount_cents: 900 };
    let charged = shop_charge::Output { receipt: "a receipt".to_owned() };
    Fakes::new()
        .on(shop_reserve::FAKE, FakeScript::returns(reserved))
        // A day of virtual time takes no real time.
        .on(
            shop_charge::FAKE,
            FakeScript::always(FakeAnswer::returns(charged).after(Duration::from_secs(24 * 60 * 60))),
        )
        .on(shop_ship::FAKE, FakeScript::returns(shop_ship::Output { parcel: "parcel-1".to_owned() }))
        .on(shop_release::FAKE, FakeScript::returns(shop_release::Output { quantity: 2 }))
}

/// A shop whose payment service does not answer a number of times.
fn with_outages(times: usize) -> Fakes {
    let outages = (0..times).map(|_| FakeAnswer::fails_once_more("the payment service does not answer"));
    let charged = FakeAnswer::returns(shop_charge::Output { receipt: "a receipt".to_owned() });
    shop().on(shop_charge::FAKE, FakeScript::of(outages.chain([charged])))
}

/// A shop whose payment service declines the card.
fn with_a_declined_card() -> Fakes {
    shop().on(shop_charge::FAKE, FakeScript::of([FakeAnswer::fails("the card was declined")]))
}

/// A shop that has nothing.
fn sold_out() -> Fakes {
    let sold_out = shop_reserve::Output { is_reserved: false, reservation: String::new(), amount_cents: 0 };
    shop().on(shop_reserve::FAKE, FakeScript::returns(sold_out)).on(shop_charge::FAKE, FakeScript::never())
}

fn tea() -> fulfil::Inputs {
    fulfil::Inputs { article: "tea".to_owned(), quantity: 2, card: Secret::new("tok_1".to_owned()) }
}

/// Fulfils an order.
async fn order(bed: &TestBed, shop: &Fakes) -> TestRun<Fulfil<Fakes>> {
    bed.run(Fulfil::new(shop.clone()), tea()).await
}

#[graph_test]
async fn an_order_is_reserved_charged_and_shipped(bed: TestBed) {
    let shop = shop();
    let run = order(&bed, &shop).await;
    run.assert_path([Reserve, Charge, Ship, Shipped]).assert_calls(&shop, ["shop/reserve", "shop/charge", "shop/ship"]);
    let fulfil::Output::Shipped(order) = run.output() else { panic!("{run:?}") };
    assert_eq!((&*order.parcel, &*order.receipt), ("parcel-1", "a receipt"));
    assert_eq!(shop.calls_of(shop_charge::FAKE)[0].amount_cents, 900);
}

#[graph_test]
async fn an_order_is_watched(bed: TestBed) {
    let runtime = bed.process(bed.disk().clone()).build().unwrap();
    let mut run = runtime.start(Fulfil::new(shop()), tea()).await.unwrap();
    let mut events = run.events().unwrap().modes([Mode::Updates]).typed::<fulfil::Node>();
    let (mut path, mut status) = (Vec::new(), None);
    while let Some(event) = events.next().await {
        let event: fulfil::Event = event.unwrap();
        match event.kind {
            EventKind::Visited { node, .. } => path.push(node),
            EventKind::Ended { end, .. } => status = Some(end.status),
            _ => {}
        }
    }
    assert_eq!((path, status), (vec![Reserve, Charge, Ship, Shipped], Some(Status::Completed)));
    run.await.unwrap();
}

#[graph_test]
async fn a_charge_is_tried_three_times(bed: TestBed) {
    let shop = with_outages(2);
    let run = order(&bed, &shop).await;
    run.assert_path([Reserve, Charge, Ship, Shipped]);
    run.assert_calls(&shop, ["shop/reserve", "shop/charge", "shop/charge", "shop/charge", "shop/ship"]);
}

#[graph_test]
async fn a_reservation_that_is_not_paid_is_released(bed: TestBed) {
    let shop = with_a_declined_card();
    let run = order(&bed, &shop).await;
    run.assert_status(Status::Completed).assert_path([Reserve, Charge, Release, Refused]);
    run.assert_calls(&shop, ["shop/reserve", "shop/charge", "shop/release"]);
}

#[graph_test]
async fn a_reservation_is_released_if_nobody_answers(bed: TestBed) {
    let silent = shop().on(shop_charge::FAKE, FakeScript::always(FakeAnswer::fails_once_more("no answer")));
    order(&bed, &silent).await.assert_path([Reserve, Charge, Release, Refused]);
    assert_eq!(silent.calls_of(shop_charge::FAKE).len(), 3);
}

#[graph_test]
async fn nothing_is_charged_for_what_is_sold_out(bed: TestBed) {
    let shop = sold_out();
    let run = order(&bed, &shop).await;
    let fulfil::Output::SoldOut(order) = run.output() else { panic!("{run:?}") };
    assert_eq!(order.reason, "there are not 2 of tea");
    run.assert_path([Reserve, SoldOut]).assert_calls(&shop, ["shop/reserve"]);
}

/// A new edge needs a new order here.
#[test]
fn these_orders_take_each_edge() {
    let mut history = Vec::new();
    for shop in [shop(), sold_out(), with_a_declined_card()] {
        let run = graph_runtime::testing::in_virtual_time(async |bed| order(&bed, &shop).await);
        history.extend(run.visits());
    }
    let edges = Edges::of(&fulfil::PROGRAM);
    for edge in edges.fired(&history) {
        assert_ne!(edge.times, 0, "no order leaves `{}` by the edge to {}", edge.from, edge.edge);
    }
    // A failure leads to a node without an edge.
    for node in fulfil::Node::ALL {
        assert!(history.iter().any(|visit| visit.node == node.name()), "no order reaches `{node:?}`");
    }
}

#[graph_test]
async fn an_order_continues_after_a_crash(bed: TestBed) {
    let make = || {
        let shop = shop();
        (Fulfil::new(shop.clone()), shop)
    };
    let repeated = bed.crash_at_each_commit(make, tea()).await;
    assert_eq!(repeated, []);
    // A process that dies during a call makes it again, with the same idempotency key.
    let shop = shop();
    let process = || bed.process(bed.disk().clone()).build().unwrap();
    let run = process().start(Fulfil::new(shop.clone()), tea()).await.unwrap();
    let id = run.id().clone();
    tokio::time::sleep(Duration::from_secs(60)).await;
    run.abort();
    assert!(run.await.is_err());
    let run = process().resume(Fulfil::new(shop.clone()), &id).await.unwrap();
    assert_eq!(run.await.unwrap().output.node(), Shipped);
    let keys: Vec<String> = shop.calls().into_iter().map(|call| call.idempotency_key).collect();
    assert!(keys.len() == 4 && keys[1] == keys[2], "both charges have the same key: {keys:?}");
}

#[graph_test]
async fn a_store_that_fails_stops_an_order_which_another_process_continues(bed: TestBed) {
    let shop = shop();
    // The third write is durable, and the process hears that it failed.
    let plan = |write: &StoreWrite<'_>| (write.number == 3).then_some(StoreFault::Fails { written: true });
    let run = bed.run_with_faults(Fulfil::new(shop.clone()), tea(), plan).await;
    run.assert_path([Reserve, Charge, Ship, Shipped]).assert_proven();
    let tools: Vec<String> = shop.calls().into_iter().map(|call| call.tool).collect();
    assert_eq!(tools, ["shop/reserve", "shop/charge", "shop/ship"], "the charge was written, and is not repeated");
}

/// Settings for tools that need none.
struct NoSettings;

impl ToolSettings for NoSettings {
    fn shown(&self) -> String {
        String::new()
    }
}

#[tokio::test]
async fn a_charge_that_is_made_again_is_made_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.db");
    let shop = Shop::open(&file, Duration::ZERO).unwrap();
    let tool = ItemId::new("shop/charge").unwrap();
    let call = Call::alone(tool, Vec::new(), Default::default(), NoSettings);
    let params = shop_charge::Params { card: Secret::new("tok_1".to_owned()), amount_cents: 900 };
    let first = shop.shop_charge(&call, params.clone()).await.unwrap();
    assert_eq!(shop.shop_charge(&call.again(2), params).await.unwrap(), first);
    let charges = "SELECT count(*) FROM charges";
    assert_eq!(Connection::open(file).unwrap().query_row(charges, [], |row| row.get::<_, u32>(0)).unwrap(), 1);
}

/// A review of a changed graph sees in this snapshot which edges it has.
#[test]
fn the_graph_has_these_edges() {
    insta::assert_debug_snapshot!(fulfil::Node::TOPOLOGY);
}

/// A review of an update sees in this snapshot how the generated code changes.
#[test]
fn the_generated_code_is_this() {
    insta::assert_snapshot!(include_str!(concat!(env!("OUT_DIR"), "/graphs.rs")));
}

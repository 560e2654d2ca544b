//! The graph with tools that do what a test tells them, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::events::{EventKind, Mode};
use graph_runtime::{
    ActionError, Call, Edges, EncryptionKey, Finished, ItemId, MemoryStore, Runtime, Secret, SecretKey, Status,
    TokioClock, ToolSettings,
};
use rusqlite::Connection;
use service::graphs::fulfil::Actions as _;
use service::graphs::{Fulfil, fulfil};
use service::shop::Shop;

/// A shop that answers as a test says, and keeps the order of the calls.
#[derive(Default)]
struct FakeShop {
    /// How many of the first charges fail, since the payment service does not answer.
    outages: u32,
    /// Why the card is declined.
    declined: Option<&'static str>,
    is_empty: bool,
    charges: AtomicU32,
    calls: Mutex<Vec<String>>,
    keys: Mutex<BTreeSet<String>>,
}

impl FakeShop {
    fn called(&self, call: &Call) {
        self.calls.lock().unwrap().push(call.node().to_owned());
        self.keys.lock().unwrap().insert(call.idempotency_key());
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl fulfil::Actions for FakeShop {
    async fn shop_reserve(
        &self,
        call: &Call,
        params: fulfil::ShopReserve,
    ) -> Result<fulfil::ShopReserveResult, ActionError> {
        self.called(call);
        let amount_cents = 450 * params.quantity;
        Ok(fulfil::ShopReserveResult { is_reserved: !self.is_empty, reservation: "r-1".to_owned(), amount_cents })
    }

    async fn shop_charge(
        &self,
        call: &Call,
        params: fulfil::ShopCharge,
    ) -> Result<fulfil::ShopChargeResult, ActionError> {
        self.called(call);
        // A day of virtual time takes no real time.
        tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
        if let Some(reason) = self.declined {
            return Err(ActionError::permanent(reason));
        }
        if self.charges.fetch_add(1, Ordering::Relaxed) < self.outages {
            return Err(ActionError::transient("the payment service does not answer"));
        }
        Ok(fulfil::ShopChargeResult { receipt: format!("receipt for {} cents", params.amount_cents) })
    }

    async fn shop_ship(&self, call: &Call, _: fulfil::ShopShip) -> Result<fulfil::ShopShipResult, ActionError> {
        self.called(call);
        Ok(fulfil::ShopShipResult { parcel: "parcel-1".to_owned() })
    }

    async fn shop_release(
        &self,
        call: &Call,
        _: fulfil::ShopRelease,
    ) -> Result<fulfil::ShopReleaseResult, ActionError> {
        self.called(call);
        Ok(fulfil::ShopReleaseResult { quantity: 2 })
    }
}

/// An order of two pots of tea.
fn tea() -> fulfil::Inputs {
    fulfil::Inputs { article: "tea".to_owned(), quantity: 2, card: Secret::new("tok_1".to_owned()) }
}

/// Fulfils an order, and returns how it ended and the nodes that were called.
async fn order(shop: FakeShop) -> (Finished<fulfil::Output>, Vec<String>) {
    let runtime = Runtime::builder()
        .grants(fulfil::CAPABILITIES)
        .unwrap()
        .clock(Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH)))
        .keep_history()
        .build()
        .unwrap();
    let shop = Arc::new(shop);
    let run = runtime.start(Fulfil::sharing(Arc::clone(&shop)), tea()).await.unwrap();
    (run.await.unwrap(), shop.calls())
}

#[tokio::test(start_paused = true)]
async fn an_order_is_reserved_charged_and_shipped() {
    let (finished, calls) = order(FakeShop::default()).await;
    let fulfil::Output::Shipped(order) = finished.output else { panic!("{finished:?}") };
    assert_eq!((&*order.parcel, &*order.receipt), ("parcel-1", "receipt for 900 cents"));
    assert_eq!(calls, ["reserve", "charge", "ship"]);
}

#[tokio::test(start_paused = true)]
async fn an_order_is_watched() {
    let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH));
    let runtime = Runtime::builder().grants(fulfil::CAPABILITIES).unwrap().clock(clock).events(100).build().unwrap();
    let mut run = runtime.start(Fulfil::new(FakeShop::default()), tea()).await.unwrap();
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
    use fulfil::Node::{Charge, Reserve, Ship, Shipped};
    assert_eq!((path, status), (vec![Reserve, Charge, Ship, Shipped], Some(Status::Completed)));
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_tried_three_times() {
    let (finished, calls) = order(FakeShop { outages: 2, ..FakeShop::default() }).await;
    assert_eq!(finished.output.node(), fulfil::Node::Shipped);
    assert_eq!(calls, ["reserve", "charge", "charge", "charge", "ship"]);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_not_paid_is_released() {
    for shop in
        [FakeShop { declined: Some("no money"), ..FakeShop::default() }, FakeShop { outages: 9, ..FakeShop::default() }]
    {
        let (finished, calls) = order(shop).await;
        assert_eq!(finished.output.node(), fulfil::Node::Refused);
        assert_eq!(calls.last().unwrap(), "release");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_charged_for_what_is_sold_out() {
    let (finished, calls) = order(FakeShop { is_empty: true, ..FakeShop::default() }).await;
    let fulfil::Output::SoldOut(order) = finished.output else { panic!("{finished:?}") };
    assert_eq!(order.reason, "there are not 2 of tea");
    assert_eq!(calls, ["reserve"]);
}

/// A new edge needs a new order here.
#[tokio::test(start_paused = true)]
async fn these_orders_take_each_edge() {
    let mut history = Vec::new();
    for shop in [
        FakeShop::default(),
        FakeShop { is_empty: true, ..FakeShop::default() },
        FakeShop { declined: Some("no money"), ..FakeShop::default() },
    ] {
        history.extend(order(shop).await.0.history);
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

#[tokio::test(start_paused = true)]
async fn an_order_continues_after_a_crash() {
    let (store, key, encryption_key) =
        (MemoryStore::new(), SecretKey::generate().unwrap(), EncryptionKey::generate().unwrap());
    let process = || {
        Runtime::builder()
            .store(store.clone())
            .sign_with(key.clone())
            .encrypt_with(encryption_key.clone())
            .grants(fulfil::CAPABILITIES)
            .unwrap()
            .clock(Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH)))
            .build()
            .unwrap()
    };
    let shop = Arc::new(FakeShop::default());
    let run = process().start(Fulfil::sharing(Arc::clone(&shop)), tea()).await.unwrap();
    while shop.calls() != ["reserve", "charge"] {
        assert!(!run.is_finished(), "{:?}", shop.calls());
        tokio::task::yield_now().await;
    }
    // The charge is in progress, and the process dies.
    let id = run.id().clone();
    run.abort();
    assert!(run.await.is_err());

    let run = process().resume(Fulfil::sharing(Arc::clone(&shop)), &id).await.unwrap();
    assert_eq!(run.await.unwrap().output.node(), fulfil::Node::Shipped);
    assert_eq!(shop.calls(), ["reserve", "charge", "charge", "ship"]);
    assert_eq!(shop.keys.lock().unwrap().len(), 3, "both charges have the same idempotency key");
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
    let params = fulfil::ShopCharge { card: Secret::new("tok_1".to_owned()), amount_cents: 900 };
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

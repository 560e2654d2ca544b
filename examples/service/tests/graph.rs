//! The graph with tools that do what a test tells them, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::{ActionError, Call, Runtime, Secret, TokioClock};
use service::graphs::{Fulfil, fulfil};

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
}

impl FakeShop {
    fn called(&self, call: &Call) {
        self.calls.lock().unwrap().push(call.node().to_owned());
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
        assert_eq!(params.amount_cents, 900);
        // A day of virtual time takes no real time.
        tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
        if let Some(reason) = self.declined {
            return Err(ActionError::permanent(reason));
        }
        if self.charges.fetch_add(1, Ordering::Relaxed) < self.outages {
            return Err(ActionError::transient("the payment service does not answer"));
        }
        Ok(fulfil::ShopChargeResult { receipt: "receipt-1".to_owned() })
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

/// Runs an order of two pots of tea, and returns how it ended and the nodes that were called.
async fn order(shop: FakeShop) -> (fulfil::Output, Vec<String>) {
    let runtime = Runtime::builder()
        .grants(fulfil::CAPABILITIES)
        .unwrap()
        .clock(Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH)));
    let shop = Arc::new(shop);
    let inputs = fulfil::Inputs { article: "tea".to_owned(), quantity: 2, card: Secret::new("tok_1".to_owned()) };
    let run = runtime.build().unwrap().start(Fulfil::sharing(Arc::clone(&shop)), inputs).await.unwrap();
    let output = run.await.unwrap().output;
    let calls = shop.calls.lock().unwrap().clone();
    (output, calls)
}

#[tokio::test(start_paused = true)]
async fn an_order_is_reserved_charged_and_shipped() {
    let (output, calls) = order(FakeShop::default()).await;
    let shipped = fulfil::ShippedOutput { parcel: "parcel-1".to_owned(), receipt: "receipt-1".to_owned() };
    assert_eq!(output, fulfil::Output::Shipped(shipped));
    assert_eq!(calls, ["reserve", "charge", "ship"]);
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_tried_three_times() {
    let (output, calls) = order(FakeShop { outages: 2, ..FakeShop::default() }).await;
    assert!(matches!(output, fulfil::Output::Shipped(_)), "{output:?}");
    assert_eq!(calls, ["reserve", "charge", "charge", "charge", "ship"]);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_not_paid_is_released() {
    for shop in
        [FakeShop { declined: Some("no money"), ..FakeShop::default() }, FakeShop { outages: 9, ..FakeShop::default() }]
    {
        let (output, calls) = order(shop).await;
        assert!(matches!(output, fulfil::Output::Refused(_)), "{output:?}");
        assert_eq!(calls.last().unwrap(), "release");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_charged_for_what_is_sold_out() {
    let (output, calls) = order(FakeShop { is_empty: true, ..FakeShop::default() }).await;
    let fulfil::Output::SoldOut(order) = output else { panic!("{output:?}") };
    assert_eq!(order.reason, "there are not 2 of tea");
    assert_eq!(calls, ["reserve"]);
}

/// A review of a changed graph sees in this snapshot which edges it has.
#[test]
fn the_graph_has_these_edges() {
    insta::assert_debug_snapshot!(fulfil::Node::TOPOLOGY);
}

//! Tools that live as long as the program are used through a reference, also by handlers whose futures must be `Send`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use graph_runtime::{ActionError, Call, MemoryStore, ResumeAll, RunId, RunOutcome, Runtime, SecretKey};
use state_graphs::tools::{shop_charge_card, shop_look_up};
use state_graphs::{Order, order};

/// Tools that many handlers share.
struct Shop {
    sold: AtomicU32,
}

static SHOP: Shop = Shop { sold: AtomicU32::new(0) };

impl shop_look_up::Tool for &'static Shop {
    async fn shop_look_up(&self, _: &Call, _: shop_look_up::Params) -> Result<shop_look_up::Output, ActionError> {
        Ok(shop_look_up::Output { price_cents: 450, in_stock: 9 })
    }
}

impl shop_charge_card::Tool for &'static Shop {
    async fn shop_charge_card(
        &self,
        _: &Call,
        _: shop_charge_card::Params,
    ) -> Result<shop_charge_card::Output, ActionError> {
        self.sold.fetch_add(1, Ordering::SeqCst);
        Ok(shop_charge_card::Output { receipt: "r-1".to_owned() })
    }
}

/// Requires the bounds that a web framework has for the future of a handler.
fn handler<F: Future + Send + 'static>(future: F) -> F {
    future
}

fn inputs() -> order::Inputs {
    order::Inputs { article: "tea".into(), quantity: 1, card: "tok_1".into() }
}

#[tokio::test]
async fn handlers_use_tools_through_a_static_reference() {
    let builder = Runtime::builder().grant("rye.execute.tool.shop.*").unwrap();
    let runtime = builder.store(MemoryStore::new()).sign_with(SecretKey::generate().unwrap()).build().unwrap();
    let own = runtime.clone();
    let start = handler(async move {
        let run = own.start(Order::new(&SHOP), inputs()).await.unwrap();
        let id = run.id().clone();
        run.await.unwrap();
        id
    });
    let id = start.await;
    let own = runtime.clone();
    let ended = handler(async move {
        let run = own.start_as(RunId::new("order-2").unwrap(), Order::new(&SHOP), inputs()).await.unwrap();
        run.await.unwrap().output
    });
    assert!(matches!(ended.await, order::Output::Shipped(_)));
    let own = runtime.clone();
    let again = handler(async move { own.resume(Order::new(&SHOP), &id).await.unwrap().await.unwrap().output });
    assert!(matches!(again.await, order::Output::Shipped(_)));
    let own = runtime.clone();
    let seen = handler(async move { own.outcome(&Order::new(&SHOP), &RunId::new("order-2").unwrap()).await.unwrap() });
    assert!(matches!(seen.await, RunOutcome::Done(_)));
    let own = runtime.clone();
    let all = handler(async move { own.resume_all(ResumeAll::default(), |_| Some(Order::new(&SHOP))).await.unwrap() });
    assert!(all.await.is_empty());
    assert_eq!(SHOP.sold.load(Ordering::SeqCst), 2);
    runtime.shutdown(Duration::from_secs(1)).await;
}

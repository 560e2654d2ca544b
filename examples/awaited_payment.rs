//! Waits for the money of an order with the graph `graphs/awaited_payment.yaml`: the run is in a store until a signal comes or its
//! time is over, and a worker continues it. A clock that can be moved lets days pass in no time.
//!
//! `cargo run --example awaited_payment -- [CENTS]`; without cents, the customer does not pay, and the order is let go.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::{
    ActionError, Call, ManualClock, MemoryStore, RunId, RunOutcome, Runtime, SecretKey, WorkerOptions,
};
use state_graphs::awaited_payment::{Inputs, Output, Paid, Signal};
use state_graphs::tools::shop_look_up;
use state_graphs::{AwaitedPayment, awaited_payment};

struct Shop;

impl shop_look_up::Tool for Shop {
    async fn shop_look_up(&self, _: &Call, _: shop_look_up::Params) -> Result<shop_look_up::Output, ActionError> {
        Ok(shop_look_up::Output { price_cents: 4200, in_stock: 3 })
    }
}

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cents: Option<i64> = std::env::args().nth(1).map(|text| text.parse()).transpose()?;
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + 20_000 * DAY));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let builder = Runtime::builder().store(store).clock(Arc::clone(&clock) as _).sign_with(SecretKey::generate()?);
    let runtime = builder.grant("rye.execute.tool.shop.*")?.grants(awaited_payment::SIGNAL_CAPABILITIES)?.build()?;
    let graph = AwaitedPayment::new(Shop);
    let order = RunId::new("order-17")?;
    let worker = runtime.worker(WorkerOptions::default().graph(graph.clone()))?;

    let inputs = Inputs { article: "teapot".to_owned() };
    let waiting = runtime.start_as(order.clone(), graph.clone(), inputs).await?.await;
    println!("{}", waiting.err().map_or_else(String::new, |error| error.to_string()));
    if let Some(cents) = cents {
        // The number of the payment is the id of the signal: sent twice, it is received once.
        let paid = Signal::Paid(Paid { cents });
        runtime.signal(&graph, &order, paid.clone(), "payment-3").await?;
        runtime.signal(&graph, &order, paid, "payment-3").await?;
    }
    loop {
        match runtime.outcome(&graph, &order).await? {
            RunOutcome::Done(finished) => {
                report(&finished.output);
                break;
            }
            RunOutcome::Waiting { waits, .. } => println!("it waits at `{}`", waits[0].node),
            _ => {}
        }
        clock.advance(DAY);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.shutdown(DAY).await;
    Ok(())
}

fn report(output: &Output) {
    match output {
        Output::Shipped(shipped) => println!("shipped: {} of {} cents are paid", shipped.cents, shipped.price),
        Output::LetGo(awaited_payment::LetGoOutput { why }) => {
            println!("let go: {why}");
        }
    }
}

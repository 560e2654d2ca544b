//! Two versions of a graph in one value: a run that began before a change is continued, and read, by the version that it began under,
//! with the same tools. `examples/releases/1.0` is the tree of the graph as it was, which waits for two days; `graphs` has it as it is.
//!
//! `cargo run --example releases`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::{
    ActionError, Call, Graph, ManualClock, MemoryStore, RunError, RunId, RunOutcome, Runtime, SecretKey, Versions,
    WorkerOptions,
};

graph_runtime::graph!("graphs/approved_refund.yaml");

/// The graph as it was. It has the contracts of the graph as it is, as far as they are equal.
mod release_1 {
    graph_runtime::graph!("examples/releases/1.0/approved_refund.yaml", tools = crate::approved_refund::tools);
}

use approved_refund::tools::shop_refund;

struct Shop;

impl shop_refund::Tool for Shop {
    async fn shop_refund(&self, call: &Call, _: shop_refund::Params) -> Result<shop_refund::Output, ActionError> {
        Ok(shop_refund::Output { refund: format!("refund-{}", call.attempt()) })
    }
}

/// Converts an output of the old release to one of the new.
impl From<release_1::approved_refund::Output> for approved_refund::Output {
    fn from(output: release_1::approved_refund::Output) -> Self {
        use release_1::approved_refund::{Output, RefundedOutput, RefusedOutput};
        match output {
            Output::Refunded(RefundedOutput { refund, why }) => {
                Self::Refunded(approved_refund::RefundedOutput { refund, why })
            }
            Output::Refused(RefusedOutput { why }) => Self::Refused(approved_refund::RefusedOutput { why }),
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// Starts a run, which asks people.
async fn ask<G: Graph>(runtime: &Runtime, run: &str, graph: G, inputs: G::Inputs) -> Result<(), Box<dyn Error>> {
    match runtime.start_as(RunId::new(run)?, graph, inputs).await?.await {
        Err(RunError::Waiting { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("nobody was asked".into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + 20_000 * DAY));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let builder = Runtime::builder().store(store.clone()).clock(Arc::clone(&clock) as _);
    let runtime = builder.sign_with(SecretKey::generate()?).grant("rye.execute.tool.shop.*")?.build()?;
    let (old, new) = (release_1::ApprovedRefund::new(Shop), ApprovedRefund::new(Shop));
    let inputs = release_1::approved_refund::Inputs { receipt: "r-7".to_owned(), cents: 4200 };
    ask(&runtime, "before", old.clone(), inputs).await?;
    let inputs = approved_refund::Inputs { receipt: "r-8".to_owned(), cents: 4200 };
    ask(&runtime, "after", new.clone(), inputs).await?;

    let refunds = Versions::of(new).and(old)?;
    let worker = runtime.worker(WorkerOptions::default().graph(refunds.clone()))?;
    for day in 1..=3 {
        clock.advance(DAY);
        for run in ["before", "after"] {
            let is_due = day == if run == "before" { 2 } else { 3 };
            let run = RunId::new(run)?;
            let outcome = loop {
                match runtime.outcome(&refunds, &run).await? {
                    RunOutcome::Done(finished) => break format!("ended at `{}`", finished.output.node()),
                    _ if is_due => tokio::time::sleep(Duration::from_millis(1)).await,
                    _ => break "waits".to_owned(),
                }
            };
            println!("day {day}: run `{run}` {outcome}");
        }
    }
    worker.shutdown(DAY).await;
    Ok(())
}

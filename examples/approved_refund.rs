//! Gives money back with the graph `graphs/approved_refund.yaml`: the run asks people, and waits in its store until two of them have
//! signed the same answer, or its time is over. A clock that can be moved lets days pass in no time.
//!
//! `cargo run --example approved_refund -- [approve|refuse]`; without an answer, nobody decides.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::answer::{AnswerKeys, KeyHolder};
use graph_runtime::{
    ActionError, Call, Fingerprint, ManualClock, MemoryStore, RunId, Runtime, SecretKey, WorkerOptions,
};
use state_graphs::approved_refund::{Answer, ApproveAnswer, ApproveAnswerDecision, Inputs, Output};
use state_graphs::tools::shop_refund;
use state_graphs::{ApprovedRefund, approved_refund};

struct Shop;

impl shop_refund::Tool for Shop {
    async fn shop_refund(&self, call: &Call, _: shop_refund::Params) -> Result<shop_refund::Output, ActionError> {
        Ok(shop_refund::Output { refund: format!("refund-{}", call.attempt()) })
    }
}

/// The people who may refund, by their keys. A service reads them from files, which give the roles.
#[derive(Clone)]
struct Clerks(BTreeMap<Fingerprint, KeyHolder>);

impl AnswerKeys for Clerks {
    fn holder(&self, key: &Fingerprint, role: Option<&str>) -> Result<KeyHolder, String> {
        match self.0.get(key) {
            Some(holder) if role == Some("refunds") => Ok(holder.clone()),
            _ => Err("its holder may not refund".to_owned()),
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let decision = match std::env::args().nth(1).as_deref() {
        Some("approve") => Some(ApproveAnswerDecision::Approve),
        Some("refuse") => Some(ApproveAnswerDecision::Refuse),
        _ => None,
    };
    let (ann, bo) = (SecretKey::generate()?, SecretKey::generate()?);
    let holder = |key: &SecretKey, owner: &str| (key.public().fingerprint(), KeyHolder::new(key.public(), owner));
    let clerks = Clerks(BTreeMap::from([holder(&ann, "Ann"), holder(&bo, "Bo")]));
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + 20_000 * DAY));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let builder = Runtime::builder().store(store).clock(Arc::clone(&clock) as _).sign_with(SecretKey::generate()?);
    let runtime = builder.answer_keys(move || clerks.clone()).grant("rye.execute.tool.shop.*")?.build()?;
    let graph = ApprovedRefund::new(Shop);
    let worker = runtime.worker(WorkerOptions::default().graph(graph.clone()))?;

    let inputs = Inputs { receipt: "r-7".to_owned(), cents: 4200 };
    let run = RunId::new("refund-17")?;
    let waiting = runtime.start_as(run.clone(), graph.clone(), inputs).await?.await;
    println!("{}", waiting.err().map_or_else(String::new, |error| error.to_string()));
    if let Some(decision) = decision {
        let answer = Answer::Approve(ApproveAnswer { decision, note: Some("the parcel was lost".to_owned()) });
        for question in runtime.questions(&graph, &run).await? {
            println!("{} of {} people decide on {}", question.node, question.count, question.payload);
            for key in [&ann, &bo] {
                let envelope = question.sign(answer.clone(), key)?;
                println!("{:?}", runtime.answer(&graph, &run, &envelope).await?);
            }
        }
    }
    let finished = loop {
        match runtime.outcome(&graph, &run).await? {
            graph_runtime::RunOutcome::Done(finished) => break finished,
            _ => clock.advance(DAY),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    match finished.output {
        Output::Refunded(refunded) => println!("{}: {}", refunded.refund, refunded.why),
        Output::Refused(approved_refund::RefusedOutput { why }) => println!("refused: {why}"),
    }
    worker.shutdown(DAY).await;
    Ok(())
}

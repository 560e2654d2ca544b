//! Pays a seller out with the graph `graphs/payout.yaml`: the tool that pays asks people first if the sum is large, and two of them,
//! one after the other, if it is very large. The run waits in its store meanwhile.
//!
//! `cargo run --example payout -- [CENTS]`

use std::collections::BTreeMap;
use std::error::Error;

use graph_runtime::answer::{AnswerKeys, KeyHolder};
use graph_runtime::{ActionError, Call, Fingerprint, MemoryStore, RunError, RunId, Runtime, SecretKey};
use serde_json::json;
use state_graphs::Payout;
use state_graphs::payout::{Answer, Inputs, Output, PayAnswer, PayAnswerDecision};
use state_graphs::tools::shop_pay_out;

struct Bank;

impl shop_pay_out::Tool for Bank {
    async fn shop_pay_out(
        &self,
        call: &Call,
        order: shop_pay_out::Params,
    ) -> Result<shop_pay_out::Output, ActionError> {
        let people = match order.cents {
            ..=10_000 => 0,
            10_001..=1_000_000 => 1,
            _ => 2,
        };
        // The tool asks before it does anything: it is called again with the answers.
        for answer in call.answers() {
            if answer.to::<PayAnswer>()?.decision == PayAnswerDecision::Refuse {
                return Ok(shop_pay_out::Output { transfer: None });
            }
        }
        if call.answers().len() < people {
            let asked: Vec<&str> = call.answers().iter().flat_map(|answer| &answer.by).map(|by| &*by.owner).collect();
            return Err(ActionError::interrupt(
                json!({ "seller": order.seller, "cents": order.cents, "approved_by": asked }),
            ));
        }
        Ok(shop_pay_out::Output { transfer: Some(format!("transfer-{}", call.idempotency_key())) })
    }
}

/// The people of the treasury, by their keys.
#[derive(Clone)]
struct Treasury(BTreeMap<Fingerprint, KeyHolder>);

impl AnswerKeys for Treasury {
    fn holder(&self, key: &Fingerprint, role: Option<&str>) -> Result<KeyHolder, String> {
        match self.0.get(key) {
            Some(holder) if role == Some("treasury") => Ok(holder.clone()),
            _ => Err("its holder is not of the treasury".to_owned()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cents = std::env::args().nth(1).map_or(Ok(2_000_000), |text| text.parse())?;
    let people = [("Ann", SecretKey::generate()?), ("Bo", SecretKey::generate()?)];
    let holder = |(owner, key): &(&str, SecretKey)| (key.public().fingerprint(), KeyHolder::new(key.public(), *owner));
    let treasury = Treasury(people.iter().map(holder).collect());
    let builder = Runtime::builder().store(MemoryStore::new()).sign_with(SecretKey::generate()?);
    let runtime = builder.answer_keys(move || treasury.clone()).grant("rye.execute.tool.shop.*")?.build()?;
    let (graph, run) = (Payout::new(Bank), RunId::new("payout-4")?);

    let inputs = Inputs { seller: "s-12".to_owned(), cents };
    let mut outcome = runtime.start_as(run.clone(), graph.clone(), inputs).await?.await;
    for (name, key) in &people {
        let Err(RunError::Waiting { .. }) = outcome else { break };
        for question in runtime.questions(&graph, &run).await? {
            println!("{name} approves {}: {}", question.wait, question.payload);
            let answer = Answer::Pay(PayAnswer { decision: PayAnswerDecision::Approve });
            runtime.answer(&graph, &run, &question.sign(answer, key)?).await?;
        }
        // A worker does this by itself.
        outcome = runtime.resume(graph.clone(), &run).await?.await;
    }
    match outcome?.output {
        Output::Paid(paid) => println!("paid: {}", paid.transfer.unwrap_or_else(|| "nothing".to_owned())),
        Output::Held(_) => println!("nobody decided"),
    }
    Ok(())
}

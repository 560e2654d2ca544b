//! The report on a run with failures, nested graphs and a foreach.

use graph_runtime::record::Status;
use graph_runtime::{ActionError, Call, MemoryStore, RunId, Runtime, SecretKey};
use run_report::{Report, RunReport};

#[expect(dead_code, reason = "the tree has more graphs than are run here")]
mod graphs {
    graph_runtime::include_graphs!();
}
use graphs::tools::{shop_charge_card, shop_look_up};
use graphs::{Order, OrderBatch, order, order_batch};

/// A shop that sells tea, and whose register refuses the card of somebody who is broke.
struct Shop;

impl shop_look_up::Tool for Shop {
    async fn shop_look_up(&self, _: &Call, params: shop_look_up::Params) -> Result<shop_look_up::Output, ActionError> {
        match params.article.as_str() {
            "tea" => Ok(shop_look_up::Output { price_cents: 450, in_stock: 12 }),
            "snow" => Err(ActionError::permanent("the shelf has melted")),
            _ => Ok(shop_look_up::Output { price_cents: 0, in_stock: 0 }),
        }
    }
}

impl shop_charge_card::Tool for Shop {
    async fn shop_charge_card(&self, _: &Call, params: shop_charge_card::Params) -> Result<shop_charge_card::Output, ActionError> {
        match params.card.as_str() {
            "broke" => Err(ActionError::permanent("insufficient funds")),
            _ => Ok(shop_charge_card::Output { receipt: "paid".into() }),
        }
    }
}

fn runtime(report: &Report) -> Runtime {
    let builder = Runtime::builder().store(MemoryStore::new()).sign_with(SecretKey::from_seed(&[6; 32]));
    builder.grant("*").unwrap().observer(report.clone()).build().unwrap()
}

fn id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

/// Returns the visited nodes, their kinds, and their failures.
fn visits(report: &RunReport) -> Vec<(&str, &str, Option<&str>)> {
    report.visits.iter().map(|visit| (visit.node.as_str(), visit.does, visit.error.as_deref())).collect()
}

#[tokio::test]
async fn the_report_has_every_visit_of_a_run_and_of_those_inside_it() {
    let report = Report::new();
    let order = |article: &str, card: &str| order_batch::InputsOrdersItem {
        article: article.into(),
        card: card.into(),
        quantity: 1,
    };
    let inputs =
        order_batch::Inputs { orders: vec![order("tea", "good"), order("tea", "broke"), order("rain", "good")] };
    runtime(&report).start_as(id("batch"), OrderBatch::new(Shop), inputs).await.unwrap().await.unwrap();
    let runs = report.runs();
    assert_eq!(runs.len(), 4, "the batch, and a run inside it for each order");
    let batch = &runs[&id("batch")];
    assert_eq!(visits(batch), [("sell", "calls for each", None), ("done", "returns", None)]);
    assert_eq!(batch.visits[0].new_keys, ["sales"]);
    assert_eq!((batch.status, &batch.parent), (Some(Status::Completed), &None));
    assert!(batch.records >= 3, "a start, two steps and an end were committed");
    let mut seen = Vec::new();
    for (_, inside) in runs.iter().filter(|(run, _)| **run != id("batch")) {
        assert_eq!(inside.parent, Some(id("batch")), "each is linked to the batch");
        assert_eq!(inside.graph, order::ID);
        assert!(inside.open.is_empty(), "what began was done");
        seen.push(visits(inside));
    }
    seen.sort();
    let available = [("look_up", "calls", None), ("is_available", "decides", None)];
    let expected = |more: &[(&'static str, &'static str, Option<&'static str>)]| [&available, more].concat();
    let mut wanted = [
        expected(&[("charge_card", "calls", None), ("shipped", "returns", None)]),
        expected(&[("charge_card", "calls", Some("insufficient funds")), ("refused", "returns", None)]),
        expected(&[("back_order", "returns", None)]),
    ];
    wanted.sort();
    assert_eq!(seen, wanted);
    let text = report.to_string();
    assert!(text.contains("batch: shop/order_batch completed, 2 visits\n  1. sell calls for each\n"), "{text}");
    assert!(text.contains("charge_card calls: insufficient funds"), "{text}");
}

#[tokio::test]
async fn a_run_that_failed_says_why() {
    let report = Report::new();
    let inputs = order::Inputs { article: "snow".into(), quantity: 1, card: "good".into() };
    runtime(&report).start_as(id("one"), Order::new(Shop), inputs).await.unwrap().await.unwrap_err();
    let runs = report.runs();
    let RunReport { status, error, .. } = &runs[&id("one")];
    assert_eq!(*status, Some(Status::Error));
    assert!(error.as_ref().is_some_and(|error| error.contains("the shelf has melted")), "{error:?}");
    assert!(report.to_string().starts_with("one: shop/order error, "));
}

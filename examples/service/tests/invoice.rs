//! The graph of orders on invoice with tools that do what a test tells them, in virtual time: days pass while nothing is to be done.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::answer::{AnswerKeys, KeyHolder};
use graph_runtime::record::Visit;
use graph_runtime::testing::{Fakes, Script};
use graph_runtime::{
    Edges, Fingerprint, MemoryStore, RunId, RunOutcome, Runtime, SecretKey, TokioClock, WorkerOptions,
};
use service::graphs::invoice::{Answer, ApproveAnswer, ApproveAnswerDecision, tools};
use service::graphs::{Invoice, invoice};

const DAY: Duration = Duration::from_secs(86_400);

/// The events of an order, as a test lets them happen.
#[derive(Clone, Copy, Default)]
struct Plan {
    is_sold_out: bool,
    /// After how many days a person answers, and how.
    answer: Option<(u32, ApproveAnswerDecision)>,
    /// After how many days from then on the customer pays.
    pays: Option<u32>,
    /// Whether the shop gets a payment of which the order does not hear in time.
    is_paid_at_last: bool,
}

/// The shop of a plan.
fn shop(plan: Plan) -> Fakes {
    let reserved =
        invoice::ShopReserveResult { is_reserved: !plan.is_sold_out, reservation: "r-1".to_owned(), amount_cents: 900 };
    let withdrawn = invoice::ShopWithdrawResult { is_paid: plan.is_paid_at_last };
    Fakes::new()
        .on(tools::SHOP_RESERVE, Script::returns(reserved))
        .on(tools::SHOP_WRITE_INVOICE, Script::returns(invoice::ShopWriteInvoiceResult { invoice: "i-1".to_owned() }))
        .on(tools::SHOP_REMIND, Script::returns(invoice::ShopRemindResult { reminders: 1 }))
        .on(tools::SHOP_WITHDRAW, Script::returns(withdrawn))
        .on(tools::SHOP_SHIP, Script::returns(invoice::ShopShipResult { parcel: "parcel-1".to_owned() }))
        .on(tools::SHOP_RELEASE, Script::returns(invoice::ShopReleaseResult { quantity: 2 }))
}

/// The person who may let customers pay later.
#[derive(Clone)]
struct Ann(KeyHolder);

impl AnswerKeys for Ann {
    fn holder(&self, key: &Fingerprint, role: Option<&str>) -> Result<KeyHolder, String> {
        match *key == self.0.key.fingerprint() && role == Some("credit") {
            true => Ok(self.0.clone()),
            false => Err("its holder may not".to_owned()),
        }
    }
}

/// The end of an order.
struct Ended {
    output: invoice::Output,
    calls: Vec<String>,
    visits: Vec<Visit>,
    /// After how many days it ended.
    days: u64,
}

/// Lets happen to an order what a plan says, until it has ended.
async fn order(plan: Plan) -> Ended {
    let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + 20_000 * DAY));
    let (ann, began) = (SecretKey::generate().unwrap(), tokio::time::Instant::now());
    let known = Ann(KeyHolder::new(ann.public(), "Ann"));
    let runtime = Runtime::builder()
        .store(MemoryStore::with_clock(Arc::clone(&clock) as _))
        .clock(clock)
        .sign_with(SecretKey::generate().unwrap())
        .answer_keys(move || known.clone())
        .grants(invoice::CAPABILITIES.iter().chain(invoice::SIGNAL_CAPABILITIES))
        .unwrap()
        .build()
        .unwrap();
    let shop = shop(plan);
    let graph = Invoice::new(shop.clone());
    let worker = runtime.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    let run = RunId::new("a-1").unwrap();
    let inputs =
        invoice::Inputs { article: "tea".to_owned(), quantity: 2, customer: "Mia".to_owned(), remark: String::new() };
    drop(runtime.start_as(run.clone(), graph.clone(), inputs).await.unwrap());
    if let Some((days, decision)) = plan.answer {
        tokio::time::sleep(days * DAY).await;
        let answer = Answer::Approve(ApproveAnswer { decision, note: None });
        let questions = runtime.questions(&graph, &run).await.unwrap();
        let envelope = questions[0].sign(answer, &ann).unwrap();
        runtime.answer(&graph, &run, &envelope).await.unwrap();
    }
    if let Some(days) = plan.pays {
        tokio::time::sleep(days * DAY).await;
        runtime.signal(&graph, &run, invoice::Signal::Paid(invoice::Paid { cents: 900 }), "p-1").await.unwrap();
    }
    let output = loop {
        match runtime.outcome(&graph, &run).await.unwrap() {
            RunOutcome::Done(finished) => break finished.output,
            RunOutcome::Running { .. } | RunOutcome::Waiting { .. } => tokio::time::sleep(DAY / 24).await,
            other => unreachable!("{other:?}"),
        }
    };
    let days = began.elapsed().as_secs() / DAY.as_secs();
    let visits = runtime.history(&run).await.unwrap();
    worker.shutdown(DAY).await;
    let calls = shop.calls().into_iter().map(|call| call.node).collect();
    Ended { output, calls, visits, days }
}

const APPROVED: Plan = Plan {
    is_sold_out: false,
    answer: Some((1, ApproveAnswerDecision::Approve)),
    pays: Some(3),
    is_paid_at_last: false,
};

#[tokio::test(start_paused = true)]
async fn an_order_that_is_approved_and_paid_is_shipped() {
    let ended = order(APPROVED).await;
    assert_eq!(ended.output.node(), invoice::Node::Shipped);
    assert_eq!((&*ended.calls.join(" "), ended.days), ("reserve invoice ship", 4));
}

#[tokio::test(start_paused = true)]
async fn the_customer_is_reminded_twice_and_then_the_order_is_let_go() {
    for (pays, reminders, days) in [(13, 0, 14), (15, 1, 16), (29, 2, 30)] {
        let ended = order(Plan { pays: Some(pays), ..APPROVED }).await;
        assert_eq!(ended.output.node(), invoice::Node::Shipped);
        assert_eq!(ended.calls.iter().filter(|node| *node == "remind").count(), reminders);
        assert_eq!(ended.days, days);
    }
    let ended = order(Plan { pays: None, ..APPROVED }).await;
    assert_eq!(ended.output.node(), invoice::Node::Unpaid);
    assert_eq!((&*ended.calls.join(" "), ended.days), ("reserve invoice remind remind withdraw", 1 + 3 * 14));
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_not_approved_in_time_is_released() {
    for (answer, decision, days) in
        [(None, "nobody decided in time", 2), (Some((1, ApproveAnswerDecision::Refuse)), "refuse", 1)]
    {
        let ended = order(Plan { answer, pays: None, ..APPROVED }).await;
        let invoice::Output::Refused(refused) = ended.output else { unreachable!("{:?}", ended.output) };
        assert_eq!((&*refused.decision, ended.days), (decision, days));
        assert_eq!(ended.calls, ["reserve", "release"]);
    }
}

/// A new edge needs a new order here.
#[tokio::test(start_paused = true)]
async fn these_orders_take_each_edge() {
    let mut history = Vec::new();
    let unpaid = Plan { pays: None, ..APPROVED };
    for plan in [
        APPROVED,
        unpaid,
        Plan { is_paid_at_last: true, ..unpaid },
        Plan { answer: Some((0, ApproveAnswerDecision::Refuse)), ..unpaid },
        Plan { answer: None, ..unpaid },
        Plan { is_sold_out: true, answer: None, ..unpaid },
    ] {
        history.extend(order(plan).await.visits);
    }
    let edges = Edges::of(&invoice::PROGRAM);
    for edge in edges.fired(&history) {
        assert_ne!(edge.times, 0, "no order leaves `{}` by the edge to {}", edge.from, edge.edge);
    }
    for node in invoice::Node::ALL {
        assert!(history.iter().any(|visit| visit.node == node.name()), "no order reaches `{node:?}`");
    }
}

/// A review of a changed graph sees in this snapshot which edges it has.
#[test]
fn the_graph_has_these_edges() {
    insta::assert_debug_snapshot!(invoice::Node::TOPOLOGY);
}

//! The graph of orders on invoice with tools that do what a test tells them, in virtual time: days pass while nothing is to be done.

use std::time::{Duration, UNIX_EPOCH};

use graph_runtime::store::Wait;
use graph_runtime::testing::{FakeScript, Fakes, TestBed, TestRun, WaitReply, graph_test};
use graph_runtime::{Clock as _, Edges};
use service::graphs::invoice::{Answer, ApproveAnswer, ApproveAnswerDecision, Paid, Signal};
use service::graphs::tools::{shop_release, shop_remind, shop_reserve, shop_ship, shop_withdraw, shop_write_invoice};
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
        shop_reserve::Output { is_reserved: !plan.is_sold_out, reservation: "r-1".to_owned(), amount_cents: 900 };
    let withdrawn = shop_withdraw::Output { is_paid: plan.is_paid_at_last };
    Fakes::new()
        .on(shop_reserve::FAKE, FakeScript::returns(reserved))
        .on(shop_write_invoice::FAKE, FakeScript::returns(shop_write_invoice::Output { invoice: "i-1".to_owned() }))
        .on(shop_remind::FAKE, FakeScript::returns(shop_remind::Output { reminders: 1 }))
        .on(shop_withdraw::FAKE, FakeScript::returns(withdrawn))
        .on(shop_ship::FAKE, FakeScript::returns(shop_ship::Output { parcel: "parcel-1".to_owned() }))
        .on(shop_release::FAKE, FakeScript::returns(shop_release::Output { quantity: 2 }))
}

fn tea() -> invoice::Inputs {
    invoice::Inputs { article: "tea".to_owned(), quantity: 2, customer: "Mia".to_owned(), remark: String::new() }
}

/// The end of an order.
struct Ended {
    run: TestRun<Invoice<Fakes>>,
    calls: Vec<String>,
    /// After how many days it ended.
    days: u64,
}

/// Lets happen to an order what a plan says, until it has ended.
async fn order(bed: &TestBed, plan: Plan) -> Ended {
    let began = bed.clock().now();
    // How long after the beginning of a wait a day of the order is.
    let until = move |wait: &Wait, days: u32| {
        let opened = UNIX_EPOCH + Duration::from_millis(wait.opened.unsigned_abs());
        (began + days * DAY).duration_since(opened).unwrap_or_default()
    };
    let bed = bed.clone().on_wait(move |wait| match (&*wait.node, plan.answer, plan.pays) {
        ("approve", Some((days, decision)), _) => {
            WaitReply::answer(Answer::Approve(ApproveAnswer { decision, note: None })).after(until(wait, days))
        }
        ("payment", Some((answered, _)), Some(days)) => {
            WaitReply::signal(Signal::Paid(Paid { cents: 900 })).after(until(wait, answered + days))
        }
        _ => WaitReply::Time,
    });
    let (shop, began) = (shop(plan), tokio::time::Instant::now());
    let run = bed.run(Invoice::new(shop.clone()), tea()).await;
    let calls = shop.calls().into_iter().map(|call| call.node).collect();
    Ended { run, calls, days: began.elapsed().as_secs() / DAY.as_secs() }
}

const APPROVED: Plan = Plan {
    is_sold_out: false,
    answer: Some((1, ApproveAnswerDecision::Approve)),
    pays: Some(3),
    is_paid_at_last: false,
};

#[graph_test]
async fn people_answer_after_a_day_and_the_customer_pays_three_days_later(bed: TestBed) {
    let bed = bed.on_wait(|wait| match &*wait.node {
        "approve" => {
            let decision = ApproveAnswerDecision::Approve;
            WaitReply::answer(Answer::Approve(ApproveAnswer { decision, note: None })).after(DAY)
        }
        "payment" => WaitReply::signal(Signal::Paid(Paid { cents: 900 })).after(3 * DAY),
        _ => WaitReply::Time,
    });
    let run = bed.run(Invoice::new(shop(APPROVED)), tea()).await;
    assert_eq!(run.output().node(), invoice::Node::Shipped);
    assert_eq!(run.assert_proven().len(), 1);
}

#[graph_test]
async fn an_order_that_is_approved_and_paid_is_shipped(bed: TestBed) {
    let ended = order(&bed, APPROVED).await;
    assert_eq!(ended.run.output().node(), invoice::Node::Shipped);
    assert_eq!((&*ended.calls.join(" "), ended.days), ("reserve invoice ship", 4));
}

#[graph_test]
async fn the_customer_is_reminded_twice_and_then_the_order_is_let_go(bed: TestBed) {
    for (pays, reminders, days) in [(13, 0, 14), (15, 1, 16), (29, 2, 30)] {
        let ended = order(&bed, Plan { pays: Some(pays), ..APPROVED }).await;
        assert_eq!(ended.run.output().node(), invoice::Node::Shipped);
        assert_eq!(ended.calls.iter().filter(|node| *node == "remind").count(), reminders);
        assert_eq!(ended.days, days);
    }
    let ended = order(&bed, Plan { pays: None, ..APPROVED }).await;
    assert_eq!(ended.run.output().node(), invoice::Node::Unpaid);
    assert_eq!((&*ended.calls.join(" "), ended.days), ("reserve invoice remind remind withdraw", 1 + 3 * 14));
}

#[graph_test]
async fn an_order_that_is_not_approved_in_time_is_released(bed: TestBed) {
    for (answer, decision, days) in
        [(None, "nobody decided in time", 2), (Some((1, ApproveAnswerDecision::Refuse)), "refuse", 1)]
    {
        let ended = order(&bed, Plan { answer, pays: None, ..APPROVED }).await;
        let invoice::Output::Refused(refused) = ended.run.output() else { unreachable!("{:?}", ended.run) };
        assert_eq!((&*refused.decision, ended.days), (decision, days));
        assert_eq!(ended.calls, ["reserve", "release"]);
    }
}

/// A new edge needs a new order here.
#[graph_test]
async fn these_orders_take_each_edge(bed: TestBed) {
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
        history.extend(order(&bed, plan).await.run.visits());
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

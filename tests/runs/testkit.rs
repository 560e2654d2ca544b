//! Tests of graphs with the testkit, and tests of the testkit.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::store::Wait;
use graph_runtime::testing::{
    FakeAnswer, FakeCall, FakeScript, Fakes, StoreFault, StoreWrite, TestBed, WaitReply, graph_test, in_virtual_time,
};
use graph_runtime::{ActionError, Status, Value};
use serde_json::json;
use state_graphs::tools::{shop_charge_card, shop_look_up, shop_refund};
use state_graphs::{
    ApprovedRefund, AwaitedPayment, Order, OrderBatch, approved_refund, awaited_payment, order, order_batch,
};

/// A shop where everything is in stock and costs three euros.
fn shop() -> Fakes {
    let found = shop_look_up::Output { price_cents: 300, in_stock: 9 };
    Fakes::new().on(shop_look_up::FAKE, FakeScript::returns(found)).on(
        shop_charge_card::FAKE,
        FakeScript::always(FakeAnswer::with(|_, params: shop_charge_card::Params| {
            Ok(shop_charge_card::Output {
                receipt: format!("{} for {}", params.price_cents * params.quantity, params.card),
            })
        })),
    )
}

fn tea() -> order::Inputs {
    order::Inputs { article: "tea".to_owned(), quantity: 2, card: "card-1".to_owned() }
}

#[graph_test]
async fn a_run_has_its_path_its_state_and_its_calls(bed: TestBed) {
    use order::Node::{ChargeCard, IsAvailable, LookUp, Shipped};
    let shop = shop();
    let run = bed.run(Order::new(shop.clone()), tea()).await;
    run.assert_status(Status::Completed)
        .assert_path([LookUp, IsAvailable, ChargeCard, Shipped])
        .assert_state("receipt", "600 for card-1")
        .assert_state("nothing", json!(null))
        .assert_calls(&shop, ["shop/look_up", "shop/charge_card"])
        .assert_journal("tests/runs/journals/order.jsonl");
    assert_eq!(shop.calls_of(shop_charge_card::FAKE)[0].price_cents, 300);
    assert_eq!(run.assert_proven().len(), 1);
    let FakeCall { node, step, attempt, params, .. } = shop.calls().remove(1);
    assert_eq!((&*node, step, attempt), ("charge_card", 3, 1));
    assert_eq!(params, json!({"card": "card-1", "price_cents": 300, "quantity": 2}));
}

#[graph_test]
async fn nested_runs_have_the_same_tools(bed: TestBed) {
    let order =
        |card: &str| order_batch::InputsOrdersItem { article: "tea".to_owned(), quantity: 1, card: card.to_owned() };
    let inputs = order_batch::Inputs { orders: vec![order("a"), order("b"), order("c")] };
    let shop = shop();
    let run = bed.run(OrderBatch::new(shop.clone()), inputs.clone()).await;
    run.assert_path([order_batch::Node::Sell, order_batch::Node::Done]);
    assert_eq!(shop.calls().len(), 6);
    assert_eq!(run.assert_proven().len(), 4, "the run, and one for each order");
    let repeated = bed
        .crash_at_each_commit(
            || {
                let shop = self::shop();
                (OrderBatch::new(shop.clone()), shop)
            },
            inputs,
        )
        .await;
    // A commit of one nested run may be the last while the call of another one is in progress.
    assert!(repeated.iter().all(|call| call.tool.starts_with("shop/")), "{repeated:?}");
}

#[graph_test]
async fn people_answer_and_time_passes(bed: TestBed) {
    let inputs = approved_refund::Inputs { receipt: "r-1".to_owned(), cents: 300 };
    let refunds = || {
        let result = shop_refund::Output { refund: "f-1".to_owned() };
        Fakes::new().on(shop_refund::FAKE, FakeScript::of([FakeAnswer::returns(result)]))
    };
    let asked = bed.clone().on_wait(|wait| match &wait.ask {
        Some(ask) => {
            let payload: Value = serde_json::from_str(&ask.payload).unwrap();
            assert_eq!((ask.role.as_deref(), &payload["cents"]), (Some("refunds"), &json!(300)));
            WaitReply::Answer(json!({"decision": "approve", "note": "a broken cup"}))
        }
        None => WaitReply::Time,
    });
    let tools = refunds();
    let run = asked.run(ApprovedRefund::new(tools.clone()), inputs.clone()).await;
    run.assert_calls(&tools, ["shop/refund"]).assert_state("why", "a broken cup");
    run.assert_proven();
    let repeated = asked
        .crash_at_each_commit(
            || {
                let tools = refunds();
                (ApprovedRefund::new(tools.clone()), tools)
            },
            inputs.clone(),
        )
        .await;
    assert_eq!(repeated, []);
    // Nobody answers, and the three days pass.
    let silent = TestBed::new();
    let tools = refunds();
    let began = tokio::time::Instant::now();
    let run = silent.run(ApprovedRefund::new(tools.clone()), inputs).await;
    run.assert_path([approved_refund::Node::Approve, approved_refund::Node::Refused]);
    assert_eq!(began.elapsed().as_secs() / 86_400, 3);
    assert_eq!(tools.problems(), ["an answer of `shop/refund` was not used"]);
}

/// One of the writes goes wrong in each manner. Another process continues the run, and people answer late.
#[graph_test]
async fn a_run_that_waits_ends_the_same_whichever_write_goes_wrong(bed: TestBed) {
    let inputs = approved_refund::Inputs { receipt: "r-1".to_owned(), cents: 300 };
    let bed = bed.on_wait(|wait| match &*wait.node {
        "approve" => {
            let (decision, note) = (approved_refund::ApproveAnswerDecision::Approve, Some("a broken cup".to_owned()));
            let answer = approved_refund::ApproveAnswer { decision, note };
            WaitReply::answer(approved_refund::Answer::Approve(answer)).after(Duration::from_secs(2 * 86_400))
        }
        _ => WaitReply::Time,
    });
    let refunds = || {
        let result = shop_refund::Output { refund: "f-1".to_owned() };
        Fakes::new().on(shop_refund::FAKE, FakeScript::always(FakeAnswer::returns(result)))
    };
    let writes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&writes);
    let plan = move |write: &StoreWrite<'_>| {
        counted.store(write.number, Ordering::Relaxed);
        Some(StoreFault::Slow(Duration::ZERO))
    };
    bed.run_with_faults(ApprovedRefund::new(refunds()), inputs.clone(), plan).await.assert_status(Status::Completed);
    let writes = writes.load(Ordering::Relaxed);
    assert!(writes >= 3, "one begins the run, one waits, and one ends it: {writes}");
    for number in 1..=writes {
        let written = [false, true].map(|written| {
            [StoreFault::Fails { written }, StoreFault::Dies { written }, StoreFault::Hangs { written }]
        });
        for fault in written.into_iter().flatten().chain([StoreFault::Slow(Duration::from_secs(1))]) {
            let tools = refunds();
            let began = tokio::time::Instant::now();
            let plan = move |write: &StoreWrite<'_>| (write.number == number).then_some(fault);
            let run = bed.run_with_faults(ApprovedRefund::new(tools.clone()), inputs.clone(), plan).await;
            run.assert_status(Status::Completed).assert_state("why", "a broken cup");
            run.assert_proven();
            assert_eq!(began.elapsed().as_secs() / 86_400, 2, "{fault:?} at write {number}");
            let keys: BTreeSet<String> = tools.calls().into_iter().map(|call| call.idempotency_key).collect();
            assert_eq!(keys.len(), 1, "{fault:?} at write {number}");
        }
    }
}

#[test]
fn a_fault_that_never_comes_fails_the_test() {
    let said = refused(async |bed| {
        let plan = |write: &StoreWrite<'_>| (write.number == 99).then_some(StoreFault::Dies { written: true });
        drop(bed.run_with_faults(Order::new(shop()), tea(), plan).await);
    });
    assert!(said.starts_with("no write had a fault: the run made "), "{said}");
    assert!(said.contains(" writes\nthe run is made at ") && said.contains("testkit.rs:"), "{said}");
}

#[test]
fn tools_that_were_called_before_are_no_new_ones() {
    let said = refused(async |bed| {
        let shop = shop();
        drop(bed.crash_at_each_commit(|| (Order::new(shop.clone()), shop.clone()), tea()).await);
    });
    assert!(
        said.starts_with("the tools have calls of a run before: make new `Fakes` each time\nthe run is made at "),
        "{said}"
    );
    assert!(said.contains("testkit.rs:"), "{said}");
}

/// An answer that comes too late is not given.
#[graph_test]
async fn an_answer_after_the_end_of_a_wait_is_not_given(bed: TestBed) {
    let late = WaitReply::Answer(json!({"decision": "approve"})).after(Duration::from_secs(4 * 86_400));
    let bed = bed.on_wait(move |_| late.clone());
    let inputs = approved_refund::Inputs { receipt: "r-1".to_owned(), cents: 300 };
    let run = bed.run(ApprovedRefund::new(Fakes::new()), inputs).await;
    run.assert_path([approved_refund::Node::Approve, approved_refund::Node::Refused]);
}

#[graph_test]
async fn signals_end_waits(bed: TestBed) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let waits = Arc::clone(&seen);
    let bed = bed.on_wait(move |wait: &Wait| {
        waits.lock().unwrap().push(wait.signals.clone());
        match wait.signals.first() {
            Some(name) => WaitReply::Signal { name: name.clone(), value: json!({"cents": 500}) },
            None => WaitReply::Time,
        }
    });
    let inputs = awaited_payment::Inputs { article: "tea".to_owned() };
    let run = bed.run(AwaitedPayment::new(shop()), inputs).await;
    use awaited_payment::Node::{LookUp, Money, Packed, Shipped};
    run.assert_path([LookUp, Money, Packed, Shipped]).assert_state("cents", 500);
    run.assert_proven();
    assert_eq!(*seen.lock().unwrap(), [vec!["paid".to_owned(), "withdrawn".to_owned()], Vec::new()]);
}

#[graph_test]
async fn texts_and_delays_are_in_virtual_time(bed: TestBed) {
    let shop = shop().on(
        shop_look_up::FAKE,
        FakeScript::of([
            FakeAnswer::fails_once_more("busy").after(Duration::from_secs(3600)),
            FakeAnswer::with(|call, _| {
                call.emit_text("nine ");
                call.emit_text("are there");
                Ok(shop_look_up::Output { price_cents: 300, in_stock: 9 })
            }),
        ]),
    );
    let began = tokio::time::Instant::now();
    let run = bed.run(Order::new(shop.clone()), tea()).await;
    assert!(began.elapsed() >= Duration::from_secs(3600));
    assert_eq!(run.emitted_text(), "nine are there");
    assert_eq!(shop.calls()[1].attempt, 2);
    assert_eq!(shop.problems(), [] as [&str; 0]);
}

/// Returns the message of an assertion that does not hold.
fn refused(assertion: impl AsyncFnOnce(TestBed)) -> String {
    let failed = catch_unwind(AssertUnwindSafe(|| in_virtual_time(assertion)));
    let panic = failed.expect_err("the assertion does not hold");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
    }
}

/// Each assertion can fail.
#[test]
fn assertions_that_do_not_hold_say_why() {
    let run = async |bed: &TestBed, shop: &Fakes| bed.run(Order::new(shop.clone()), tea()).await;
    let said = refused(async |bed| {
        run(&bed, &shop()).await.assert_status(Status::Error);
    });
    assert_eq!(said, "the run is `completed` and not `error`");
    let said = refused(async |bed| {
        run(&bed, &shop()).await.assert_path([order::Node::LookUp]);
    });
    let paths = "the run took another path\n  expected  look_up\n  got       look_up is_available charge_card shipped";
    assert_eq!(said, paths);
    let said = refused(async |bed| {
        run(&bed, &shop()).await.assert_state("status", "open");
    });
    assert!(said.contains("`state.status` is another value at the end"), "{said}");
    let said = refused(async |bed| {
        run(&bed, &shop()).await.assert_fails("x");
    });
    assert_eq!(said, "the run did not fail: it is `completed`");
    let said = refused(async |bed| {
        let shop = shop();
        run(&bed, &shop).await.assert_calls(&shop, ["shop/look_up"]);
    });
    assert!(said.contains("other tools were called"), "{said}");
    let said = refused(async |bed| {
        run(&bed, &shop()).await.assert_journal("tests/runs/journals/nothing.jsonl");
    });
    assert!(said.contains("nothing.jsonl cannot be read") && said.contains("UPDATE_GOLDEN=1 writes it"), "{said}");
    let said = refused(async |bed| {
        let sold_out = shop_look_up::Output { price_cents: 300, in_stock: 0 };
        let shop = shop().on(shop_look_up::FAKE, FakeScript::returns(sold_out));
        run(&bed, &shop).await.assert_journal("tests/runs/journals/order.jsonl");
    });
    assert!(said.contains("-") && said.contains(r#"+{"#) && said.contains("back_order"), "{said}");
    // A tool without a script fails, and says how it gets one.
    let said = refused(async |bed| {
        let shop = Fakes::new();
        let run = run(&bed, &shop).await;
        run.assert_fails("it has no script: `Fakes::on` gives it one");
        run.assert_calls(&shop, ["shop/look_up"]);
    });
    let expected = r#"node `look_up` called `shop/look_up` with {"article":"tea"}, and it has no script"#;
    assert!(said.contains("the scripts do not fit the run") && said.contains(expected), "{said}");
}

/// A run that waits has not failed, a run that fails is the same after each crash, and runs of one test do not share answers.
#[graph_test]
async fn runs_that_fail_or_wait_and_several_runs_of_one_test(bed: TestBed) {
    let said = std::thread::spawn(|| {
        refused(async |bed| {
            let bed = bed.on_wait(|wait| match wait.due {
                _ if wait.ask.is_some() => WaitReply::Release,
                _ => WaitReply::Time,
            });
            let inputs = approved_refund::Inputs { receipt: "r-1".to_owned(), cents: 300 };
            bed.run(ApprovedRefund::new(Fakes::new()), inputs).await;
        })
    });
    let said = said.join().unwrap();
    assert!(said.contains("`approve` is no visit that was paused or suspended"), "{said}");
    let failing = || {
        let broken = FakeScript::always(FakeAnswer::fails("the shop is closed"));
        shop().on(shop_look_up::FAKE, broken)
    };
    let repeated = bed
        .crash_at_each_commit(
            || {
                let shop = failing();
                (Order::new(shop.clone()), shop)
            },
            tea(),
        )
        .await;
    assert!(repeated.iter().all(|call| call.tool == "shop/look_up"), "{repeated:?}");
    // Each call gets the next answer, whichever run makes it.
    let price = |price_cents| FakeAnswer::returns(shop_look_up::Output { price_cents, in_stock: 9 });
    let shop = shop().on(shop_look_up::FAKE, FakeScript::of([price(100), price(200)]));
    for cents in [200, 400] {
        let run = bed.run(Order::new(shop.clone()), tea()).await;
        run.assert_state("receipt", format!("{cents} for card-1"));
    }
    let calls = shop.calls();
    assert_eq!((calls[0].run.as_str(), calls[2].run.as_str()), ("test", "test-2"));
}

/// A test may keep a call.
#[graph_test]
async fn a_call_that_is_kept_holds_nothing_up(bed: TestBed) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&kept);
    let shop = shop().on(
        shop_look_up::FAKE,
        FakeScript::always(FakeAnswer::with(move |call, _| {
            calls.lock().unwrap().push(call.clone());
            Ok(shop_look_up::Output { price_cents: 300, in_stock: 9 })
        })),
    );
    bed.run(Order::new(shop), tea()).await.assert_status(Status::Completed);
    assert_eq!(kept.lock().unwrap().len(), 1);
}

/// A tool that does not do the same again after a crash is found.
#[test]
fn a_crash_finds_what_depends_on_the_process() {
    let processes = Arc::new(Mutex::new(0));
    let said = refused(async |bed| {
        bed.crash_at_each_commit(
            || {
                let mut made = processes.lock().unwrap();
                *made += 1;
                let price_cents = 100 * *made;
                let found = shop_look_up::Output { price_cents, in_stock: 9 };
                let shop = shop().on(shop_look_up::FAKE, FakeScript::returns(found));
                (Order::new(shop.clone()), shop)
            },
            tea(),
        )
        .await;
    });
    assert!(said.contains("the process died after commit 1 of "), "{said}");
}

#[graph_test]
async fn a_failure_leads_where_the_graph_says(bed: TestBed) {
    let declined = FakeScript::always(FakeAnswer::with(|_, _| Err(ActionError::permanent("no money"))));
    let shop = shop().on(shop_charge_card::FAKE, declined);
    let run = bed.run(Order::new(shop), tea()).await;
    run.assert_path([order::Node::LookUp, order::Node::IsAvailable, order::Node::ChargeCard, order::Node::Refused]);
}

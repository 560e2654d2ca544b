//! Cases: what is expected, and what happens.

use std::time::Duration;

use graph_testing::{PartKind, Ratio, lcov};

use crate::{HEAD, PAY, Tree, order, said};

/// The file of tests of the order with cases that share nothing.
fn run(cases: &str) -> Vec<String> {
    let tree = order();
    tree.write("order.test.yaml", cases);
    said(&tree.test("order.yaml"))
}

#[test]
fn a_case_that_meets_its_expectations_passes() {
    let found = run("cases:
  - name: paid
    inputs: { cents: 900 }
    tools: { shop/pay: { returns: { ok: true } } }
    crash: each_commit
    expect:
      path: [pay, paid]
      status: completed
      output: { paid: 900 }
      state: { is_paid: true, inputs: { cents: 900 } }
      calls: { shop/pay: [{ cents: 900 }] }
      steps: 2
      warnings: []
");
    assert_eq!(found, [""; 0]);
}

#[test]
fn each_expectation_that_is_not_met_is_reported_at_its_place() {
    let found = run("cases:
  - name: paid
    inputs: { cents: 900 }
    tools: { shop/pay: { returns: { ok: true } } }
    expect:
      path: [pay, open]
      status: error
      output: { paid: 901 }
      state: { is_paid: false }
      error: no money
      calls: { shop/pay: [{ cents: 901 }] }
      steps: 3
      warnings: [late]
");
    assert_eq!(
        found,
        [
            "7:15 expect.status: the run should be `error`, and is `completed`",
            "6:19 expect.path: the run went another way at visit 2: to `paid` and not to `open`",
            "8:15 expect.output: the output is another one",
            "9:25 expect.state: the state is another one at `is_paid`",
            "10:14 expect.error: the run should fail, and is `completed`",
            "11:27 expect.calls: call 1 of `shop/pay`, by node `pay` (step 1), has other parameters",
            "12:14 expect.steps: the run should visit 3 nodes, and visited 2",
            "13:17 expect.warnings: the run has other warnings",
        ]
    );
}

#[test]
fn a_call_without_an_answer_fails_the_case_also_where_the_graph_handles_it() {
    let found = run("cases:
  - name: no script
    inputs: { cents: 900 }
    expect: { path: [pay, failed] }
  - name: another call
    inputs: { cents: 900 }
    tools: { shop/pay: [{ with: { cents: 1 }, returns: { ok: true } }] }
    unused: allowed
    expect: { path: [pay, failed] }
  - name: not to be called
    inputs: { cents: 900 }
    tools: { shop/pay: [] }
    expect: { path: [pay, failed] }
");
    assert_eq!(
        found,
        [
            "2:11 tools: node `pay` (step 1) called `shop/pay`, which has no script: {\"cents\":900}",
            "7:14 tools: node `pay` (step 1) called `shop/pay`, and no answer of its script is left for these parameters: {\"cents\":900}",
            "12:14 tools: node `pay` (step 1) called `shop/pay`, which must not be called, as its script has no answer: {\"cents\":900}",
        ]
    );
}

#[test]
fn an_answer_that_no_call_gets_fails_the_case_unless_it_may_stay_unused() {
    let found = run("cases:
  - name: two answers
    inputs: { cents: 900 }
    tools: { shop/pay: [{ returns: { ok: true } }, { returns: { ok: false } }] }
    expect: { path: [pay, paid] }
  - name: three times
    inputs: { cents: 900 }
    tools: { shop/pay: { returns: { ok: true }, times: 3 } }
    expect: { path: [pay, paid] }
  - name: allowed
    inputs: { cents: 900 }
    tools: { shop/pay: [{ returns: { ok: true } }, { returns: { ok: false } }] }
    unused: allowed
    expect: { path: [pay, paid] }
");
    assert_eq!(
        found,
        [
            "4:52 tools: answer 2 of `shop/pay` was not used",
            "8:24 tools: answer 1 of `shop/pay` was used once, and not 3 times",
        ]
    );
}

#[test]
fn a_failed_case_says_what_led_the_run_elsewhere_and_which_answers_came_too_late() {
    let graph = format!(
        "{HEAD}permissions: [rye.execute.tool.shop.pay]
config:
  start: ask
  nodes:
    ask:
      type: interrupt
      payload: {{ what: pay }}
      result_schema: {{ type: object, properties: {{ decision: {{ enum: [pay, refuse] }} }}, required: [decision] }}
      timeout: 3d
      on_timeout: expired
      next: {{ by: result.decision, to: {{ pay: pay, refuse: expired }} }}
    pay:
      action: {{ item_id: shop/pay, params: {{ cents: 1 }} }}
      next: paid
      on_error: failed
    paid: {{ type: return, output: {{ end: paid }} }}
    failed: {{ type: return, output: {{ end: failed }} }}
    expired: {{ type: return, output: {{ end: expired }} }}
"
    );
    let tree = Tree::new(&[("ask.yaml", &graph), ("tools/shop/pay.yaml", PAY)]);
    let case = |fields: &str, path: &str| {
        let head = "cases:\n  - name: one\n    tools: { shop/pay: { fails: closed } }\n    unused: allowed\n";
        let expect = format!("    expect: {{ path: [{path}], output: {{ end: paid }} }}\n");
        let text = format!("{head}{expect}{fields}");
        tree.write("ask.test.yaml", &text);
        let allowed = said(&tree.test("ask.yaml"));
        tree.write("ask.test.yaml", &text.replace("    unused: allowed\n", ""));
        let all = said(&tree.test("ask.yaml"));
        (allowed, all.into_iter().filter(|one| one.contains("answers: ")).collect::<Vec<_>>())
    };
    let (found, unused) = case("", "ask, pay, paid");
    assert_eq!(
        found,
        [
            "5:27 expect.path: the run went another way at visit 2: to `expired` and not to `pay` (nobody answered `ask` in time)",
            "5:47 expect.output: the output is another one",
        ]
    );
    assert_eq!(unused, [""; 0]);
    let answer = "{ to: ask, answer: { decision: pay } }";
    let (found, unused) = case(&format!("    answers: [{answer}, {answer}]\n"), "ask, pay, paid");
    assert_eq!(
        found[0],
        "5:32 expect.path: the run went another way at visit 3: to `failed` and not to `paid` (node `pay` failed: closed)"
    );
    assert_eq!(unused, ["5:55 answers: answer 2 of people was not used: `ask` asked once"]);
    let late = "    answers: [{ to: ask, after: 4d, answer: { decision: pay } }]\n";
    let (_, unused) = case(late, "ask, expired");
    assert_eq!(unused, ["5:15 answers: answer 1 of people came too late: the question of `ask` was over before"]);
}

#[test]
fn a_run_that_fails_fails_a_case_that_does_not_expect_it() {
    let tree = order();
    let graph = std::fs::read_to_string(tree.path("graphs/order.yaml")).unwrap();
    tree.write(
        "order.yaml",
        &graph.replace("      on_error: failed\n", "").replace("    failed: {", "    # failed: {"),
    );
    let case = |expect: &str| {
        tree.write("order.test.yaml", &format!("cases: [{{ name: one, inputs: {{ cents: 1 }}, tools: {{ shop/pay: {{ fails: closed }} }}, expect: {expect} }}]\n"));
        said(&tree.test("order.yaml"))
    };
    assert_eq!(
        case("{ path: [pay] }"),
        ["1:17 expect: the run should end with a result, and is `error`: node `pay` failed: closed"]
    );
    for expect in
        ["{ error: closed }", "{ error: { node: pay } }", "{ status: error, path: [pay], steps: 1 }", "{ error: {} }"]
    {
        assert_eq!(case(expect), [""; 0], "{expect}");
    }
    assert_eq!(case("{ error: open }"), ["1:101 expect.error: the error should contain `open`, and is: closed"]);
    assert_eq!(case("{ error: { contains: closed, node: paid } }").len(), 1);
}

#[test]
fn inputs_that_the_rules_of_the_schema_refuse_can_be_expected() {
    let case = |expect: &str| run(&format!("cases: [{{ name: one, inputs: {{ cents: 0 }}, expect: {expect} }}]\n"));
    assert_eq!(case("{ error: \"`minimum: 1`\" }"), [""; 0]);
    let found = case("{ path: [pay] }");
    assert!(found[0].starts_with("1:22 start: the run cannot begin: "), "{found:?}");
    assert_eq!(case("{ error: maximum }").len(), 1);
}

#[test]
fn time_passes_only_when_nothing_else_is_left_to_do() {
    let graph = format!(
        "{HEAD}permissions: [rye.execute.tool.shop.pay]
config:
  start: pay
  nodes:
    pay:
      action: {{ item_id: shop/pay, params: {{ cents: 1 }} }}
      timeout: 1h
      on_error: sleep
    sleep: {{ type: wait, timeout: 30d, next: done }}
    done: {{ type: return }}
"
    );
    let tree = Tree::new(&[("slow.yaml", &graph), ("tools/shop/pay.yaml", PAY)]);
    let case = |delay: &str| {
        let text = format!(
            "cases: [{{ name: one, tools: {{ shop/pay: {{ returns: {{ ok: true }}, delay: {delay}, times: any }} }}, expect: {{ status: completed }} }}]\n"
        );
        tree.write("slow.test.yaml", &text);
        let began = std::time::Instant::now();
        let report = tree.test("slow.yaml");
        assert!(began.elapsed() < Duration::from_secs(30), "a day of virtual time takes no real time");
        let case = &report.cases.as_ref().unwrap()[0];
        assert_eq!(said(&report), [""; 0]);
        (case.path.join(" "), case.elapsed)
    };
    let (path, elapsed) = case("59m");
    assert_eq!((path.as_str(), elapsed.as_secs()), ("pay", 59 * 60));
    let (path, elapsed) = case("61m");
    assert_eq!(path, "pay sleep done");
    assert!(elapsed > Duration::from_secs(30 * 86_400 + 3600), "{elapsed:?}");
}

/// A graph that runs another one, in which two people answer and a signal comes.
fn nested() -> Tree {
    let outer = format!(
        "{HEAD}permissions: [rye.execute.tool.shop.pay, rye.execute.tool.shop.child]
config:
  start: child
  nodes:
    child:
      action: {{ item_id: shop/child, params: {{ num: 3 }} }}
      assign: {{ got: \"${{result.output.got}}\" }}
      next: pay
      on_error: failed
    pay: {{ action: {{ item_id: shop/pay, params: {{ cents: \"${{state.got}}\" }} }}, next: done }}
    failed: {{ type: return, output: {{ got: -1 }} }}
    done: {{ type: return, output: {{ got: \"${{state.got}}\" }} }}
"
    );
    let inner = format!(
        "{HEAD}permissions: [rye.execute.tool.shop.pay]
config_schema: {{ type: object, properties: {{ num: {{ type: integer }} }}, required: [num] }}
config:
  start: ask
  signals: {{ paid: {{ type: object, properties: {{ cents: {{ type: integer }} }}, required: [cents] }} }}
  nodes:
    ask:
      type: interrupt
      payload: {{ num: \"${{inputs.num}}\" }}
      result_schema: {{ type: object, properties: {{ ok: {{ type: boolean }} }}, required: [ok] }}
      answered_by: {{ role: boss, count: 2 }}
      timeout: 1d
      on_timeout: late
      next: wait
    wait: {{ type: wait, signals: [paid], assign: {{ got: \"${{result.paid.cents}}\" }}, next: done }}
    late: {{ type: return, output: {{ got: 0 }} }}
    done: {{ type: return, output: {{ got: \"${{state.got}}\" }} }}
"
    );
    Tree::new(&[("outer.yaml", &outer), ("child.yaml", &inner), ("tools/shop/pay.yaml", PAY)])
}

#[test]
fn runs_inside_receive_answers_and_signals_and_may_be_replaced() {
    let tree = nested();
    tree.write(
        "outer.test.yaml",
        "tools: { shop/pay: { returns: { ok: true } } }
cases:
  - name: through the child
    answers: [{ to: ask, after: 2h, answer: { ok: true } }]
    signals: [{ name: paid, to: wait, after: 5h, value: { cents: 7 } }]
    crash: each_commit
    expect: { path: [child, pay, done], output: { got: 7 } }
  - name: nobody answers
    answers: [{ to: ask, expires: true }]
    expect: { output: { got: 0 }, calls: { shop/pay: [{ cents: 0 }] } }
  - name: without the child
    tools: { shop/child: { returns: { got: 12 } } }
    expect: { output: { got: 12 }, calls: { shop/child: [{ num: 3 }] } }
  - name: the child fails
    tools: { shop/child: { fails: broken }, shop/pay: [] }
    expect: { path: [child, failed] }
  - name: no signal
    answers: [{ to: ask, answer: { ok: true } }]
    expect: { status: waiting, path: [], calls: { shop/pay: 0 } }
",
    );
    let report = tree.test("outer.yaml");
    assert_eq!(said(&report), [""; 0]);
    let names: Vec<(&str, Ratio)> =
        report.coverage.iter().map(|graph| (graph.id.as_str(), graph.count(None))).collect();
    assert_eq!(names, [("shop/child", Ratio { reached: 8, all: 8 }), ("shop/outer", Ratio { reached: 7, all: 7 })]);
}

#[test]
fn coverage_counts_only_what_was_executed() {
    let tree = order();
    let whole = |cases: &str| {
        tree.write("order.test.yaml", cases);
        let report = tree.test("order.yaml");
        let graph = report.coverage[0].clone();
        let missing: Vec<String> = graph
            .parts
            .iter()
            .filter(|part| part.hits == 0)
            .map(|part| format!("{} {}", part.kind.name(), part.text))
            .collect();
        (graph, missing)
    };
    let (graph, missing) = whole("cases: []\n");
    assert_eq!((graph.count(None), missing.len()), (Ratio { reached: 0, all: 7 }, 7), "mistakes reach nothing");
    let one = "cases:\n  - { name: paid, inputs: { cents: 1 }, tools: { shop/pay: { returns: { ok: true } } }, expect: { path: [pay, paid] } }\n";
    let (graph, missing) = whole(one);
    assert_eq!(missing, ["edge pay → open", "error edge pay → failed if it fails", "node open", "node failed"]);
    assert_eq!(graph.count(Some(PartKind::Edge)), Ratio { reached: 1, all: 2 });
    let text = lcov(&[graph], tree.path("").as_path());
    assert!(text.starts_with("TN:\nSF:graphs/order.yaml\nBRDA:13,0,0,1\n"), "{text}");
    assert!(
        text.contains("BRF:3\nBRH:1\n") && text.contains("DA:10,1\n") && text.ends_with("end_of_record\n"),
        "{text}"
    );
    assert_eq!((Ratio { reached: 999, all: 1000 }).percent(), 99.9);
    assert_eq!((Ratio { reached: 9999, all: 10_000 }).percent(), 99.9);
    assert!(!(Ratio { reached: 9999, all: 10_000 }).is_at_least(100.0) && !Ratio::default().is_at_least(1.0));
}

#[test]
fn the_path_is_the_one_of_the_journal_and_secrets_stay_hidden() {
    let tree = Tree::copy("examples/service/graphs");
    let report = tree.test("fulfil.yaml");
    assert_eq!(said(&report), [""; 0]);
    assert_eq!(report.drafts, [""; 0], "the repository's graphs are signed");
    let text = "inputs: { article: tea, quantity: 1, card: tok_secret }
cases:
  - name: one
    tools:
      shop/reserve: { returns: { is_reserved: true, reservation: r-1, amount_cents: 1 } }
      shop/charge: { fails: tok_secret is refused }
      shop/release: { returns: { quantity: 1 } }
    expect: { output: { reason: \"[secret] is refused\" }, state: { inputs: { card: \"[secret]\" } } }
";
    tree.write("fulfil.test.yaml", text);
    assert_eq!(said(&tree.test("fulfil.yaml")), [""; 0]);
}

#[test]
fn an_unsigned_graph_is_tested_and_a_revoked_signature_is_not() {
    let tree = Tree::copy("examples/service/graphs");
    let graph = std::fs::read_to_string(tree.path("graphs/fulfil.yaml")).unwrap();
    tree.write("fulfil.yaml", &graph.replace("Fulfils an order.", "Fulfils orders."));
    let report = tree.test("fulfil.yaml");
    assert_eq!((said(&report), report.drafts.as_slice()), (Vec::new(), ["graphs/fulfil.yaml".to_owned()].as_slice()));
    // A forged signature is no draft.
    let (line, rest) = graph.split_once('\n').unwrap();
    let (start, end) = line.rsplit_once(':').unwrap();
    let forged = start.replace("OQP-", "OQQ-");
    tree.write("fulfil.yaml", &format!("{forged}:{end}\n{rest}"));
    let found = said(&tree.test("fulfil.yaml"));
    assert!(found[0].starts_with("G0014 graphs/fulfil.yaml:1:"), "{found:?}");
}

#[test]
fn every_kind_of_call_and_wait_is_scripted() {
    let tree = Tree::copy("crates/graph-testing/tests/suite/kinds");
    let report = tree.test("kinds.yaml");
    assert_eq!(said(&report), [""; 0]);
    assert_eq!(report.coverage[0].count(None), Ratio { reached: 16, all: 16 });
    assert!(report.cases.unwrap()[0].crashes > 10);
}

#[test]
fn a_built_in_tool_without_a_script_does_not_run() {
    let graph = format!(
        "{HEAD}permissions: [rye.execute.tool.rye.bash]
config:
  start: touch
  nodes:
    touch: {{ action: {{ item_id: rye/bash, params: {{ command: \"touch FILE\" }} }}, next: done }}
    done: {{ type: return }}
"
    );
    let tree = Tree::new(&[("touch.test.yaml", "cases: [{ name: one, expect: { error: no answer } }]\n")]);
    let file = tree.path("touched");
    tree.write("touch.yaml", &graph.replace("FILE", file.to_str().unwrap()));
    let found = said(&tree.test("touch.yaml"));
    assert!(found[0].contains("called `rye/bash`, which has no script"), "{found:?}");
    assert!(!file.exists());
}

#[test]
fn concurrent_calls_and_their_crashes_end_the_same_way_each_time() {
    let tree = Tree::copy("graphs");
    for graph in ["carrier_quotes.yaml", "file_report.yaml", "order_batch.yaml", "price_check.yaml"] {
        for _ in 0..5 {
            assert_eq!(said(&tree.test(graph)), [""; 0], "{graph}");
        }
    }
}

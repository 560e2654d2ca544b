//! Files of tests that are refused: each mistake has its place, and says how to mend it.

use crate::{order, said};

#[test]
fn each_mistake_in_a_file_of_tests_is_reported_at_its_place() {
    let case = |fields: &str| format!("cases:\n  - name: one\n    inputs: {{ cents: 1 }}\n    {fields}\n");
    let with = |fields: &str| case(&format!("{fields}\n    expect: {{ path: [] }}"));
    let mut wrong = Vec::new();
    for (text, expected) in [
        ("cases: []".to_owned(), "G0230 graphs/order.test.yaml:1:1: there is no case, so nothing is tested (write a case)"),
        ("{}".to_owned(), "G0032 graphs/order.test.yaml:1:1: a file of tests needs `cases`"),
        ("cases: 3".to_owned(), "G0030 graphs/order.test.yaml:1:8: `cases` is a list, not an integer"),
        ("- a".to_owned(), "G0030 graphs/order.test.yaml:1:1: a file of tests is a mapping, not a list"),
        ("case: []\ncases: [{ name: a, expect: { steps: 1 } }]".to_owned(), "G0031 graphs/order.test.yaml:1:1: a file of tests has no field `case` (did you mean `cases`?)"),
        (case("unused: allowed"), "G0230 graphs/order.test.yaml:2:11: the case expects nothing, so it could not fail (write `expect` with at least one of `path`, `status`, `output`, `state`, `error`, `calls`, `steps`, `warnings`)"),
        (case("expect: {}"), "G0230 graphs/order.test.yaml:4:13: the case expects nothing, so it could not fail (write `expect` with at least one of `path`, `status`, `output`, `state`, `error`, `calls`, `steps`, `warnings`)"),
        (case("expect: { path: }"), "G0030 graphs/order.test.yaml:4:15: `path` has no value, so nothing is checked"),
        (case("expect: { paths: [] }"), "G0031 graphs/order.test.yaml:4:15: `expect` has no field `paths` (did you mean `path`?)"),
        (case("expect: { path: [pya] }"), "G0230 graphs/order.test.yaml:4:22: the graph has no node `pya` (did you mean `pay`?)"),
        (case("expect: { status: complete }"), "G0030 graphs/order.test.yaml:4:23: `status` is `completed`, `completed_with_errors`, `error`, `cancelled` or `waiting`, not `complete` (did you mean `completed`?)"),
        (case("expect: { state: { is_payd: true } }"), "G0230 graphs/order.test.yaml:4:24: the graph has no key of the state `is_payd` (did you mean `is_paid`?)"),
        (case("expect: { calls: { shop/pya: 1 } }"), "G0230 graphs/order.test.yaml:4:24: the graph has no tool `shop/pya` (did you mean `shop/pay`?)"),
        (case("expect: { calls: { shop/pay: [{ cent: 1 }] } }"), "G0230 graphs/order.test.yaml:4:35: `shop/pay` has no parameter `cent` (did you mean `cents`?)"),
        (case("expect: { calls: {} }"), "G0230 graphs/order.test.yaml:4:22: `calls` names no tool, so it checks nothing (write the tool and how often it is called: `calls: { shop/charge: 0 }`)"),
        (case("expect: { error: { node: none } }"), "G0230 graphs/order.test.yaml:4:30: the graph has no node `none`"),
        (with("tools: { shop/pay: { returns: { ok: 1 } } }"), "G0230 graphs/order.test.yaml:4:41: what `shop/pay` returns does not fit its contract: expected `true` or `false`, found an integer at `ok`"),
        (with("tools: { shop/pay: { returns: { ok: true, nota: x } } }"), "G0230 graphs/order.test.yaml:4:47: what `shop/pay` returns has no field `nota` in its contract (did you mean `note`?)"),
        (with("tools: { shop/pay: { returns: { ok: true }, fails: x } }"), "G0030 graphs/order.test.yaml:4:24: an answer says one of `returns`, `fails` and `interrupts` (write what each call gets as an answer of its own, in the order of the calls)"),
        (with("tools: { shop/pay: { delay: 1s } }"), "G0030 graphs/order.test.yaml:4:24: an answer says what the tool does: `returns`, `fails` or `interrupts` (write what each call gets as an answer of its own, in the order of the calls)"),
        (with("tools: { shop/pay: { fails: { message: x, category: transitory } } }"), "G0030 graphs/order.test.yaml:4:57: `category` is `permanent`, `transient`, `rate_limited`, `cancelled` or `derived`, not `transitory`"),
        (with("tools: { shop/pay: { returns: { ok: true }, times: 0 } }"), "G0030 graphs/order.test.yaml:4:56: `times` is a whole number from 1 to 1000000, not 0"),
        (with("tools: { shop/pay: { returns: { ok: true }, delay: soon } }"), "G0038 graphs/order.test.yaml:4:56: `delay` is a duration, not `soon` (write a number of seconds, or a text as `250ms`, `30s`, `2m`, `1h30m` or `14d`)"),
        (with("tools: { shop/pay: { interrupts: {} } }"), "G0230 graphs/order.test.yaml:4:24: `shop/pay` asks people, and no node that calls it says who answers (give the node `interrupts`)"),
        (with("tools: { shop/pay: { with: { cent: 1 }, returns: { ok: true } } }"), "G0230 graphs/order.test.yaml:4:34: `shop/pay` has no parameter `cent` (did you mean `cents`?)"),
        (with("answers: [{ to: pay, answer: 1 }]"), "G0230 graphs/order.test.yaml:4:21: the graph has no node that asks people, called `pay`"),
        (with("signals: [{ name: paid }]"), "G0230 graphs/order.test.yaml:4:23: the graph has no signal `paid`"),
        (with("signals: [{ name: paid, at: 1s, after: 1s }]"), "G0030 graphs/order.test.yaml:4:15: a signal is sent some time `after` a wait began, or `at` some time after the start, not both"),
        (with("entry: pay"), "G0230 graphs/order.test.yaml:4:12: the graph has no entry `pay`"),
        (with("crash: always"), "G0030 graphs/order.test.yaml:4:12: `crash` is `each_commit`, not `always`"),
        (with("begins: tomorrow"), "G0030 graphs/order.test.yaml:4:13: `begins` is a time, not `tomorrow` (write a date and a time since 1970 with an offset from UTC: `\"2026-11-21T20:00:00+01:00\"`)"),
        (with("grants: [everything]"), "G0030 graphs/order.test.yaml:4:14: "),
        (case("expect: { steps: 1 }").replace("cents: 1", "cent: 1"), "G0230 graphs/order.test.yaml:3:5: the case does not give the input `cents`, which the graph needs (write `cents` in `inputs` of the case, or of the file for all cases)"),
        (case("expect: { steps: 1 }").replace("cents: 1", "cents: one"), "G0230 graphs/order.test.yaml:3:22: input `cents` does not fit the schema of the graph: expected an integer of 64 bits, found a string"),
        ("cases: [{ name: a, inputs: { cents: 1 }, expect: { steps: 1 } }, { name: a, inputs: { cents: 1 }, expect: { steps: 1 } }]".to_owned(), "G0230 graphs/order.test.yaml:1:74: two cases are called `a` (say in the name what differs)"),
        ("cases: [".to_owned(), "G0020 graphs/order.test.yaml:"),
        ("# nothing\n".to_owned(), "G0004 graphs/order.test.yaml: `graphs/order.test.yaml` contains only comments (write a case, or remove the file)"),
        ("a: &x 1\ncases: *x".to_owned(), "G0021 graphs/order.test.yaml:1:4: "),
    ] {
        let tree = order();
        tree.write("order.test.yaml", &text);
        let found = said(&tree.test("order.yaml"));
        if !found.iter().any(|line| line.starts_with(expected)) {
            wrong.push(format!("{text}\n{found:#?}\nand not\n{expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn tests_without_a_graph_name_the_missing_file() {
    let tree = order();
    tree.write("other.test.yaml", "cases: [{ name: a, expect: { steps: 1 } }]");
    let found = said(&tree.test("other.test.yaml"));
    assert_eq!(
        found,
        [
            "G0230 graphs/other.test.yaml: `graphs/other.test.yaml` tests `graphs/other.yaml`, which does not exist (rename the file of tests as its graph)"
        ]
    );
}

#[test]
fn a_graph_with_mistakes_shows_them_at_their_own_places() {
    let tree = order();
    let graph = std::fs::read_to_string(tree.path("graphs/order.yaml")).unwrap();
    tree.write("order.yaml", &graph.replace("to: open", "to: opne"));
    tree.write("order.test.yaml", "cases: [{ name: a, inputs: { cents: 1 }, expect: { steps: 1 } }]");
    let found = said(&tree.test("order.yaml"));
    let line = graph.lines().position(|line| line.contains("to: open")).unwrap() + 1;
    assert!(found[0].starts_with(&format!("G0102 graphs/order.yaml:{line}:")), "{found:?}");
}

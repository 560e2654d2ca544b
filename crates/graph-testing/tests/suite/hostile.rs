//! Hostile files of tests and random scripts: no panic, and every mistake has a place and a text.

use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::source::SourceFile;
use graph_compiler::tree;
use graph_testing::TestFile;
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::{Tree, repository, said};

/// The files of tests of the repository.
fn valid() -> Vec<String> {
    let files = [
        "graphs/tool_router",
        "graphs/negotiation",
        "graphs/selective_feedback",
        "examples/service/graphs/fulfil",
        "examples/service/graphs/invoice",
    ];
    files.map(|file| std::fs::read_to_string(repository().join(format!("{file}.test.yaml"))).unwrap()).to_vec()
}

/// The JSON Schema of files of tests.
fn validator() -> &'static jsonschema::Validator {
    static VALIDATOR: std::sync::OnceLock<jsonschema::Validator> = std::sync::OnceLock::new();
    VALIDATOR.get_or_init(|| jsonschema::validator_for(&graph_testing::json_schema()).unwrap())
}

#[test]
fn the_schema_refuses_unknown_fields_and_wrong_shapes() {
    for text in [
        "{}",
        "cases: []",
        "cases: [{ name: a }]",
        "cases: [{ name: a, expect: {} }]",
        "cases: [{ name: a, expect: { paths: [] } }]",
        "cases: [{ name: a, expect: { steps: one } }]",
        "cases: [{ name: a, tools: { t: { returns: 1, time: 2 } }, expect: { steps: 1 } }]",
        "cases: [{ name: a, tools: { t: { times: 2 } }, expect: { steps: 1 } }]",
        "cases: [{ name: a, crash: always, expect: { steps: 1 } }]",
        "cases: [{ name: a, answers: [{ answer: 1 }], expect: { steps: 1 } }]",
        "case: []\ncases: [{ name: a, expect: { steps: 1 } }]",
    ] {
        let source = SourceFile::new("g.test.yaml", "g.test.yaml", text);
        let value = tree::parse(&source, &mut Diagnostics::new()).unwrap().root.to_value();
        assert!(!validator().is_valid(&value), "{text}");
        assert!(TestFile::parse(&source).is_err(), "{text}");
    }
}

/// Parts that mutations insert.
const PARTS: [&str; 34] = [
    "",
    " ",
    "\n",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "null",
    "~",
    "true",
    "-1",
    "0",
    "1e9",
    "18446744073709551616",
    "\"\"",
    "'",
    "\"",
    "#",
    "&a ",
    "*a",
    "!!str ",
    "<<: ",
    "| \n",
    "any",
    "times: any",
    "expires: true",
    "answer: ",
    "\u{202e}",
    "\u{0}",
    "returns: {}",
    "💥",
];

proptest! {
    #![proptest_config(Config { cases: 3000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_mutated_file_is_read_or_refused_with_a_place(
        which in 0..5_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..40_usize), 1..4),
    ) {
        let mut text = valid()[which].clone();
        for (at, part, length) in edits {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.ceil_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, PARTS[part.index(PARTS.len())]);
        }
        let source = SourceFile::new("graphs/g.test.yaml", "graphs/g.test.yaml", &text);
        let read = TestFile::parse(&source);
        if read.is_ok() {
            let value = tree::parse(&source, &mut Diagnostics::new()).unwrap().root.to_value();
            let refused = validator().iter_errors(&value).next();
            prop_assert!(refused.is_none(), "the schema refuses what is read: {:?}", refused);
        }
        if let Err(mistakes) = read {
            prop_assert!(!mistakes.is_empty());
            for mistake in mistakes {
                prop_assert!(!mistake.message.is_empty());
                prop_assert!(mistake.render().contains("graphs/g.test.yaml"));
                let span = mistake.place.span.clone().unwrap_or(0..0);
                prop_assert!(span.end <= source.text.len() && source.text.get(span).is_some());
            }
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

    /// The judge: a run of the graph may only go where an edge leads, and ends for a reason.
    #[test]
    fn a_random_script_runs_to_an_end_that_the_graph_allows(
        decisions in prop::collection::vec((0..3_usize, 0..6_u32, 1..4_u32), 0..8),
        crash in any::<bool>(),
    ) {
        let words = ["search", "calculate", "answer"];
        let answers: Vec<String> = decisions
            .iter()
            .map(|(word, kind, times)| match kind {
                0 => format!("{{ fails: {{ message: busy, category: transient }}, delay: 1h, times: {times} }}"),
                1 => "{ fails: broken }".to_owned(),
                _ => format!("{{ returns: {{ decision: {}, text: x }}, times: {times}, delay: {times}s }}", words[*word]),
            })
            .collect();
        let crash = if crash { "crash: each_commit, " } else { "" };
        let text = format!(
            "cases: [{{ name: one, inputs: {{ question: x }}, {crash}unused: allowed, tools: {{ agents/analyze: [{}], agents/search: {{ returns: {{ text: z }}, times: any }}, agents/calculate: {{ returns: {{ value: 1 }}, times: any }} }}, expect: {{ path: [] }} }}]\n",
            answers.join(", ")
        );
        let tree = Tree::copy("graphs");
        tree.write("tool_router.test.yaml", &text);
        let report = tree.test("tool_router.yaml");
        let case = &report.cases.as_ref().unwrap_or_else(|mistakes| panic!("{mistakes:?}"))[0];
        prop_assert!(!case.failures.is_empty(), "the path is never empty");
        prop_assert!(said(&report).iter().all(|line| !line.contains(" crash:")), "{:?}", said(&report));
        prop_assert!(!case.path.is_empty() && case.path.len() <= 13);
        let leads = |from: &str, to: &str| match from {
            "analyze" => to != "analyze",
            "answer" => false,
            _ => to == "analyze",
        };
        prop_assert_eq!(&case.path[0], "analyze");
        prop_assert!(case.path.windows(2).all(|pair| leads(&pair[0], &pair[1])), "{:?}", case.path);
    }
}

//! `docs/conformance.md` has one row for each requirement, and the proof that a row names exists; so do the tests that
//! `docs/branches.md`, `docs/waits.md` and `docs/watching.md` name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Each requirement up to this one has a row. Later ones have a row only if they are met.
const LAST: u16 = 312;

/// A row of the page.
struct Row {
    number: u16,
    holds: String,
    proof: String,
}

impl Row {
    /// Returns the names of the proof, which are in backticks.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.proof.split('`').skip(1).step_by(2)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let row = |line: &str| {
        let [number, holds, proof] = line.strip_prefix("| R")?.strip_suffix(" |")?.split(" | ").collect::<Vec<_>>()[..]
        else {
            panic!("not three cells: {line}")
        };
        let number = number.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        Some(Row { number, holds: holds.trim().to_owned(), proof: proof.trim().to_owned() })
    };
    page.lines().filter_map(row).collect()
}

/// Returns the problem with the name of a proof, which is `file::function` or a file.
fn problem(name: &str) -> Option<String> {
    let (file, function) = name.split_once("::").map_or((name, None), |(file, function)| (file, Some(function)));
    let Ok(text) = fs::read_to_string(root().join(file)) else { return Some(format!("there is no file `{file}`")) };
    let function = function?;
    let Some(at) = text.find(&format!("fn {function}(")) else {
        return Some(format!("`{file}` has no function `{function}`"));
    };
    // The attributes of a function are directly above it.
    let mut above = text[..at].trim_end().lines().rev().take_while(|line| !line.trim().is_empty());
    let is_test = above.any(|line| {
        let line = line.trim();
        line == "#[test]" || line == "#[graph_test]" || line.starts_with("#[tokio::test")
    });
    (!is_test).then(|| format!("`{function}` in `{file}` is no test"))
}

#[test]
fn each_requirement_has_one_row_and_no_row_is_empty() {
    let mut count = BTreeMap::<u16, u16>::new();
    for row in rows() {
        *count.entry(row.number).or_default() += 1;
        assert!(!row.holds.is_empty() && !row.proof.is_empty(), "R{} says nothing", row.number);
    }
    let later = count.keys().copied().filter(|number| *number > LAST);
    let expected: BTreeMap<u16, u16> = (1..=LAST).chain(later).map(|number| (number, 1)).collect();
    assert_eq!(count, expected);
}

#[test]
fn each_row_names_existing_proofs_or_a_reason_not_to_apply() {
    for row in rows() {
        if let Some(reason) = row.proof.strip_prefix("does not apply: ") {
            assert!(!reason.is_empty(), "R{} gives no reason", row.number);
            continue;
        }
        assert!(row.names().next().is_some(), "R{} has no proof", row.number);
        for name in row.names() {
            if let Some(problem) = problem(name) {
                panic!("R{}: {problem}", row.number);
            }
        }
        let mut parts = row.proof.split(", ").filter(|part| !(part.starts_with('`') && part.ends_with('`')));
        assert!(parts.next().is_none(), "R{}: {}", row.number, row.proof);
    }
}

#[test]
fn a_proof_that_does_not_exist_is_found() {
    assert_eq!(problem("tests/language/conformance_page.rs::a_proof_that_does_not_exist_is_found"), None);
    assert_eq!(problem("tests/check/targets.yaml"), None);
    for (name, expected) in [
        ("tests/check/no_such_file.yaml", "there is no file"),
        ("tests/language/conformance_page.rs::no_such_test", "has no function"),
        ("tests/language/conformance_page.rs::rows", "is no test"),
    ] {
        assert!(problem(name).is_some_and(|problem| problem.contains(expected)), "{name}");
    }
}

#[test]
fn each_shape_of_branches_names_reports_and_existing_tests() {
    check_shapes("docs/branches.md", 25);
}

#[test]
fn each_shape_of_waits_names_reports_and_existing_tests() {
    check_shapes("docs/waits.md", 15);
}

#[test]
fn each_part_of_watching_and_testing_names_existing_tests() {
    let page = fs::read_to_string(root().join("docs/watching.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| part"));
    let mut count = 0;
    for row in rows {
        let [part, here, tests] = row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("not three cells: {row}")
        };
        assert!(!part.is_empty() && !here.is_empty(), "{row}");
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "`{part}` names no test");
        for name in names {
            assert_eq!(problem(name), None, "{part}");
        }
        count += 1;
    }
    assert!(count >= 25, "{count} rows");
}

/// Checks the rows of a page of shapes, which has at least so many.
fn check_shapes(page: &str, least: usize) {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| shape"));
    let mut count = 0;
    for row in rows {
        let [shape, reports, here, tests] = row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("not four cells: {row}")
        };
        let is_report = |report: &str| {
            report.split_once('#').is_some_and(|(name, number)| name.contains('/') && number.parse::<u32>().is_ok())
        };
        assert!(reports.split(", ").all(is_report) && !here.is_empty(), "{shape}: {reports}");
        let mut names = tests.split('`').skip(1).step_by(2).peekable();
        assert!(names.peek().is_some(), "{shape} has no test");
        for name in names {
            if let Some(problem) = problem(name) {
                panic!("{shape}: {problem}");
            }
        }
        count += 1;
    }
    assert!(count >= least, "{count} shapes");
}

//! `graph test`: run the cases that are beside graphs.

mod human;
mod junit;

use std::path::PathBuf;

use clap::Args;
use graph_compiler::diagnostic::Diagnostic;
use graph_testing::{CaseReport, FileReport, FindError, TestSuite, TestTarget};
use serde_json::{Value, json};

use super::replace;
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output::counted;

#[derive(Args)]
pub(crate) struct TestArguments {
    /// Files of tests, graphs, or directories of them
    #[arg(value_name = "PATH", default_value = "graphs")]
    paths: Vec<PathBuf>,
    /// Run only the cases whose names contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Write the results to this file too, as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

pub(crate) fn run(arguments: &TestArguments) -> CommandResult {
    let mut suite = suite()?;
    let targets = with_tests(suite.find(&arguments.paths)?)?;
    let is_wanted = |name: &str| arguments.filter.as_ref().is_none_or(|text| name.contains(text.as_str()));
    let mut reports = Vec::new();
    for target in &targets {
        let report = suite.run(target, is_wanted);
        if !arguments.json {
            human::report(&report);
        }
        reports.push(report);
    }
    let counts = Counts::of(&reports);
    if counts.cases == 0 && counts.unreadable == 0 {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        return Err(Error::new(format!("no case has a name that contains `{filter}`")));
    }
    if let Some(path) = &arguments.junit {
        replace(path, &junit::document(&reports))?;
    }
    match arguments.json {
        true => out_json!(document(&reports)),
        false => out!("{}", counts.line()),
    }
    Ok(CommandOutcome::of(counts.is_well()))
}

/// Makes a suite whose messages name files relative to the working directory.
pub(super) fn suite() -> Result<TestSuite, Error> {
    Ok(TestSuite::new(&std::env::current_dir()?)?)
}

/// Returns the graphs that have tests. A graph that the command line names must have some.
fn with_tests(targets: Vec<TestTarget>) -> Result<Vec<TestTarget>, Error> {
    let first = targets.first().map(|target| target.graph.clone());
    let tested: Vec<TestTarget> = targets.into_iter().filter(|target| target.tests.is_some()).collect();
    match (tested.is_empty(), first) {
        (true, Some(graph)) => Err(FindError::NoTests(graph).into()),
        _ => Ok(tested),
    }
}

/// The numbers of a report.
#[derive(Default)]
pub(super) struct Counts {
    cases: usize,
    failed: usize,
    /// The files whose cases could not be run.
    unreadable: usize,
}

impl Counts {
    pub(super) fn of(reports: &[FileReport]) -> Self {
        let mut counts = Self::default();
        for report in reports {
            match &report.cases {
                Ok(cases) => {
                    counts.cases += cases.len();
                    counts.failed += cases.iter().filter(|case| !case.failures.is_empty()).count();
                }
                Err(_) => counts.unreadable += 1,
            }
        }
        counts
    }

    pub(super) fn is_well(&self) -> bool {
        self.failed == 0 && self.unreadable == 0
    }

    fn line(&self) -> String {
        let mut line = format!("ran {}: {} passed", counted(self.cases, "case", "cases"), self.cases - self.failed);
        if self.failed > 0 {
            line.push_str(&format!(", {} failed", self.failed));
        }
        if self.unreadable > 0 {
            line.push_str(&format!("; {} could not be run", counted(self.unreadable, "file", "files")));
        }
        line
    }
}

/// Returns the results as JSON.
fn document(reports: &[FileReport]) -> Value {
    let counts = Counts::of(reports);
    json!({
        "success": counts.is_well(),
        "cases": counts.cases,
        "failed": counts.failed,
        "files": reports.iter().map(file).collect::<Vec<_>>(),
    })
}

fn file(report: &FileReport) -> Value {
    let case = |case: &CaseReport| {
        json!({
            "name": case.name,
            "line": case.line,
            "passed": case.failures.is_empty(),
            "path": case.path,
            "virtual_ms": u64::try_from(case.elapsed.as_millis()).unwrap_or(u64::MAX),
            "crashes": case.crashes,
            "failures": case.failures.iter().map(graph_testing::CaseFailure::to_value).collect::<Vec<_>>(),
        })
    };
    let mistake = |one: &Diagnostic| {
        let (line, column) = one.place.position().unwrap_or((1, 1));
        json!({ "code": one.code.id, "message": one.message, "file": one.place.source.name, "line": line, "column": column })
    };
    let mut value = json!({ "file": report.name, "unsigned": report.drafts });
    match &report.cases {
        Ok(cases) => value["cases"] = cases.iter().map(case).collect(),
        Err(mistakes) => value["mistakes"] = mistakes.iter().map(mistake).collect(),
    }
    value
}

/// Shows on stderr the mistakes for which the cases of a graph were not run.
pub(super) fn show_mistakes(report: &FileReport) {
    for mistake in report.cases.as_ref().err().into_iter().flatten() {
        err_coloured!(mistake);
    }
}

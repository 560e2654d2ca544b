//! `graph coverage`: which nodes and edges the tests of graphs reach.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use graph_testing::{CoveredPart, FileReport, GraphCoverage, PartKind, Ratio, lcov};
use serde_json::{Value, json};

use super::test::{Counts, show_mistakes, suite};
use super::{plain, replace};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct CoverageArguments {
    /// Files of tests, graphs, or directories of them; the graphs of a directory that have no tests count too
    #[arg(value_name = "PATH", default_value = "graphs")]
    paths: Vec<PathBuf>,
    /// Count the journals in this directory too, which tests in Rust write if GRAPH_COVERAGE names it
    #[arg(long, value_name = "DIR")]
    journals: Vec<PathBuf>,
    /// Fail if fewer than this percentage of all parts was reached
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    fail_under: Option<f64>,
    /// Write what was reached to this file, in the format of lcov
    #[arg(long, value_name = "FILE")]
    lcov: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

fn percentage(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("it is a number from 0 to 100".to_owned()),
    }
}

pub(crate) fn run(arguments: &CoverageArguments) -> CommandResult {
    let mut suite = suite()?;
    let targets = suite.find(&arguments.paths)?;
    let reports: Vec<FileReport> = targets.iter().map(|target| suite.run(target, |_| true)).collect();
    let mut graphs: BTreeMap<PathBuf, GraphCoverage> = BTreeMap::new();
    for coverage in reports.iter().flat_map(|report| &report.coverage) {
        match graphs.get_mut(&coverage.file) {
            Some(known) => known.merge(coverage),
            None => drop(graphs.insert(coverage.file.clone(), coverage.clone())),
        }
    }
    for directory in &arguments.journals {
        let others = suite.cover_journals(&targets, directory, &mut graphs);
        let others = others.map_err(|error| Error::new(plain(&error.to_string())))?;
        if !others.is_empty() {
            let others = Vec::from_iter(others).join("`, `");
            err!("note: {} has runs of graphs that are not looked at: `{others}`", directory.display());
        }
    }
    let graphs: Vec<GraphCoverage> = graphs.into_values().collect();
    let all = graphs.iter().fold(Ratio::default(), |all, graph| all.and(graph.count(None)));
    let counts = Counts::of(&reports);
    let is_enough = arguments.fail_under.is_none_or(|percent| all.is_at_least(percent));
    if let Some(path) = &arguments.lcov {
        replace(path, &lcov(&graphs, &std::env::current_dir()?))?;
    }
    reports.iter().for_each(show_failures);
    match arguments.json {
        true => out_json!(document(&graphs, all, counts.is_well() && is_enough)),
        false => human(&graphs, all),
    }
    if let Some(percent) = arguments.fail_under.filter(|_| !is_enough) {
        err!("error: the tests reach {} % of the parts, and must reach {percent} %", all.percent());
    }
    Ok(CommandOutcome::of(counts.is_well() && is_enough))
}

/// Shows the cases that failed, which may have reached what a passed case would not.
fn show_failures(report: &FileReport) {
    show_mistakes(report);
    for case in report.cases.iter().flatten().filter(|case| !case.failures.is_empty()) {
        err!("error: {}:{}: the case `{}` fails; see `graph test`", report.name, case.line, plain(&case.name));
    }
}

fn human(graphs: &[GraphCoverage], all: Ratio) {
    for graph in graphs {
        let kinds = PartKind::ALL.into_iter().filter_map(|kind| {
            let Ratio { reached, all } = graph.count(Some(kind));
            (all > 0).then(|| format!("{reached}/{all} {}", plural(kind, all)))
        });
        let kinds: Vec<String> = kinds.collect();
        out!("{}: {} %, {}", graph.name, graph.count(None).percent(), kinds.join(", "));
        for CoveredPart { kind, text, line, .. } in graph.parts.iter().filter(|part| part.hits == 0) {
            out!("  {}:{line}: {} not reached: {text}", graph.name, kind.name());
        }
    }
    out!("reached {} of {} parts: {} %", all.reached, all.all, all.percent());
}

fn plural(kind: PartKind, number: u64) -> String {
    let word = kind.name();
    match (kind, number) {
        (_, 1) => word.to_owned(),
        (PartKind::Fewer, _) => "edges of too few".to_owned(),
        _ => format!("{word}s"),
    }
}

fn document(graphs: &[GraphCoverage], all: Ratio, is_well: bool) -> Value {
    json!({
        "success": is_well,
        "reached": all.reached,
        "parts": all.all,
        "percent": all.percent(),
        "graphs": graphs.iter().map(GraphCoverage::to_value).collect::<Vec<_>>(),
    })
}

//! `graph check`: check graphs as the compiler does.

mod budget;
mod findings;
mod fix;
mod human;
mod json;
mod sarif;
mod watch;

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, ValueEnum};
use graph_compiler::project::display_name;
use graph_compiler::source::SourceFile;
use serde_json::Value;

use crate::outcome::{CommandOutcome, CommandResult, Error};
use findings::{Findings, Trees};

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// Graphs, or directories of graphs
    #[arg(value_name = "PATH", default_value = "graphs")]
    paths: Vec<PathBuf>,
    /// The format of the findings; json and sarif print one document on stdout
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = FindingsFormat::Human)]
    format: FindingsFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print the upper bounds for a run of each graph: steps, calls, concurrent calls
    #[arg(long)]
    budget: bool,
    /// Print the digest of the meaning of each graph, which its runs are pinned to
    #[arg(long)]
    meaning: bool,
    /// Fail on warnings too
    #[arg(long)]
    deny_warnings: bool,
    /// Apply the fixes that are certain to the files below PATH; review and sign these files again afterwards
    #[arg(long)]
    fix: bool,
    /// Check again whenever a file changes, until Ctrl-C
    #[arg(long, conflicts_with = "fix")]
    watch: bool,
}

/// The format of the findings.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FindingsFormat {
    /// For people, in a terminal
    Human,
    /// For programs
    Json,
    /// For tools that read SARIF 2.1.0
    Sarif,
}

/// The parts of a report besides the findings.
#[derive(Clone, Copy)]
struct CheckExtras {
    budget: bool,
    meaning: bool,
}

impl CheckArguments {
    fn format(&self) -> FindingsFormat {
        if self.json { FindingsFormat::Json } else { self.format }
    }

    fn extras(&self) -> CheckExtras {
        CheckExtras { budget: self.budget, meaning: self.meaning }
    }

    /// Reports the findings, and returns whether all is well.
    fn report(&self, findings: &Findings, fixed: &fix::Fixed) -> CommandOutcome {
        match self.format() {
            FindingsFormat::Human => human::report(findings, fixed, self.extras()),
            FindingsFormat::Json => out_json!(json::document(findings, fixed, self.extras())),
            FindingsFormat::Sarif => out_json!(sarif::document(findings)),
        }
        let (errors, warnings) = findings.counts();
        CommandOutcome::of(errors == 0 && (warnings == 0 || !self.deny_warnings))
    }
}

/// Checks a text as the file at `path` of the tree in `root`, and returns the findings as `--format json` does.
pub(super) fn document_of_text(root: &Path, path: &Path, text: &str) -> Result<Value, Error> {
    let working = std::env::current_dir()?;
    let findings = Trees::of_text(root, path)?.check_with(&[SourceFile::new(path, display_name(&working, path), text)]);
    Ok(json::document(&findings, &fix::Fixed::default(), CheckExtras { budget: false, meaning: false }))
}

pub(crate) fn run(arguments: &CheckArguments) -> CommandResult {
    if arguments.watch && arguments.format() != FindingsFormat::Human {
        let message = "`--watch` is for people: it cannot be used with `--format json` or `--format sarif`";
        crate::CommandLine::command().error(clap::error::ErrorKind::ArgumentConflict, message).exit();
    }
    if arguments.watch {
        return watch::run(arguments);
    }
    let trees = Trees::find(&arguments.paths, arguments.meaning)?;
    let findings = trees.check();
    if arguments.fix {
        let fixed = fix::fix(&trees, &findings, &arguments.paths)?;
        if !fixed.is_empty() {
            // The report is about the files as they are now. It therefore also says that they must be signed again.
            return Ok(arguments.report(&Trees::find(&arguments.paths, arguments.meaning)?.check(), &fixed));
        }
    }
    Ok(arguments.report(&findings, &fix::Fixed::default()))
}

//! `graph expand`: the Rust that a graph becomes.

use std::path::PathBuf;

use clap::Args;
use graph_compiler::diagnostic::Severity;
use graph_compiler::project::Project;

use crate::outcome::{CommandOutcome, CommandResult};

#[derive(Args)]
pub(crate) struct ExpandArguments {
    /// The graph
    #[arg(value_name = "GRAPH")]
    graph: PathBuf,
}

pub(crate) fn run(arguments: &ExpandArguments) -> CommandResult {
    let working = std::env::current_dir()?;
    let file = working.join(&arguments.graph);
    let compilation = Project::around(&working, &file).compile(&file);
    for diagnostic in &compilation.diagnostics {
        err_coloured!(diagnostic);
    }
    if compilation.diagnostics.iter().any(|one| one.severity == Severity::Error) {
        return Ok(CommandOutcome::Problems);
    }
    out_text!("{}", graph_compiler::format(&compilation.expand()).trim_end());
    Ok(CommandOutcome::Well)
}

//! `graph schema`: write the format as a JSON Schema, for editors.

use std::path::PathBuf;

use clap::Args;
use graph_compiler::project::Project;
use graph_compiler::source::SourceFile;
use graph_editor::json_schema;

use super::replace;
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct SchemaArguments {
    /// A directory of graphs, or one graph
    #[arg(value_name = "PATH", default_value = "graphs")]
    path: PathBuf,
    /// Write the schema of files of tests, which is the same for all graphs
    #[arg(long, conflicts_with = "path")]
    tests: bool,
    /// The file to write the schema to, in place of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &SchemaArguments) -> CommandResult {
    let working = std::env::current_dir()?;
    let path = working.join(&arguments.path);
    let schema = if arguments.tests {
        graph_testing::json_schema()
    } else if path.is_dir() {
        json_schema::of_tree(&Project::open(&working, &path))
    } else {
        let name = arguments.path.display().to_string();
        let source = SourceFile::read(&path, &name).map_err(|problem| Error::new(problem.message.clone()))?;
        json_schema::of_graph(&Project::around(&working, &path), &source)
    };
    let text = serde_json::to_string_pretty(&schema).map_err(|error| Error::new(error.to_string()))?;
    match &arguments.output {
        Some(file) => replace(file, &format!("{text}\n"))?,
        None => out_text!("{text}"),
    }
    Ok(CommandOutcome::Well)
}

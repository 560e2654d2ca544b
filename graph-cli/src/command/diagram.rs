//! `graph diagram`: draw a graph, or the ways that a run took through it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use graph_diagram::{Diagram, ReportEntry, TopologyDocument, Traversal};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::history::traversal;
use graph_runtime::{Machine, RunId};
use serde_json::to_string_pretty;

use super::replace;
use super::stored_run::{RunLocation, StoredRunArguments, named, own_graph};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct DiagramArguments {
    /// The graph: its file, or its id in the tree `graphs`; with --run, it is found by itself
    #[arg(value_name = "GRAPH", required_unless_present = "run")]
    graph: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = DiagramFormat::Text)]
    format: DiagramFormat,
    /// Write it into this file, in place of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show how often this run visited each node and took each edge
    #[arg(long, value_name = "RUN", value_parser = |text: &str| RunId::new(text), requires = "place")]
    run: Option<RunId>,
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE", requires = "run", group = "place")]
    store: Option<PathBuf>,
    /// The directory of a project whose .ai holds the files of the run, in place of a store
    #[arg(long, value_name = "DIR", requires = "run", group = "place")]
    files: Option<PathBuf>,
    /// The public key that verifies the run, a PEM file [default: your own]
    #[arg(long, value_name = "FILE", requires = "run")]
    public_key: Option<PathBuf>,
}

/// The format of a diagram.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiagramFormat {
    /// For a terminal
    Text,
    /// A Mermaid flowchart, which pages on many sites show
    Mermaid,
    /// The language of Graphviz
    Dot,
    /// An image
    Svg,
    /// The whole topology, which can be read back
    Json,
    /// A directed graph of schema version 1.3, which viewers of agent frameworks read
    Dag,
}

pub(crate) fn run(arguments: &DiagramArguments) -> CommandResult {
    let (graph, diagram, traversal) = drawn(arguments)?;
    let text = match arguments.format {
        DiagramFormat::Text => diagram.text(),
        DiagramFormat::Mermaid => diagram.mermaid(),
        DiagramFormat::Dot => diagram.dot(),
        DiagramFormat::Svg => diagram.svg(),
        DiagramFormat::Json => to_string_pretty(&document(&graph, traversal.as_ref()))? + "\n",
        DiagramFormat::Dag => to_string_pretty(&diagram.dag())? + "\n",
    };
    match &arguments.output {
        Some(path) => replace(path, &text)?,
        // A terminal obeys nothing that a graph says.
        None => out_text!("{}", text.trim_end()),
    }
    Ok(CommandOutcome::Well)
}

/// Returns the topology with the warnings about the graph's file, and with the run that is named.
fn document(graph: &Interpreted, traversal: Option<&Traversal>) -> TopologyDocument {
    let found = graph.warnings().iter().map(|warning| ReportEntry {
        message: warning.message.clone(),
        code: Some(warning.code.id.to_owned()),
        line: warning.place.position().map(|(line, _)| line),
        node: None,
    });
    let document = TopologyDocument::new(graph.graph().named_topology(), found);
    match traversal {
        Some(traversal) => document.with(traversal),
        None => document,
    }
}

/// Returns the graph and its diagram, with the run that is named.
fn drawn(arguments: &DiagramArguments) -> Result<(Interpreted, Diagram, Option<Traversal>), Error> {
    let Some(run) = &arguments.run else {
        let graph = named(&arguments.graph.clone().unwrap_or_default())?;
        let diagram = Diagram::of(graph.graph().topology());
        return Ok((graph, diagram, None));
    };
    let place = RunLocation::of(arguments.store.clone(), arguments.files.clone());
    let opened = StoredRunArguments::of(place, arguments.public_key.clone()).open()?;
    let records = opened.tokio.block_on(opened.store.load(run))?;
    let graph = match &arguments.graph {
        Some(graph) => named(graph)?,
        None => own_graph(&records, &[], "GRAPH")?,
    };
    let of_run = |error| Error::new(format!("run {run}: {}", Error::from(error)));
    let traversal = traversal(&graph, run, &records, &opened.key).map_err(of_run)?;
    let diagram = Diagram::of(graph.graph().topology()).with(traversal.clone());
    Ok((graph, diagram, Some(traversal)))
}

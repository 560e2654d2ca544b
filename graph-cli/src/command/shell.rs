//! `graph completions` and `graph man`: what a shell and `man` know of the command line.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::replace;
use crate::CommandLine;
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct ManArguments {
    /// The directory to write the pages to, as graph.1 and graph-VERB.1
    directory: PathBuf,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "graph", &mut script);
    out_text!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(CommandOutcome::Well)
}

pub(crate) fn man(arguments: &ManArguments) -> CommandResult {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).map_err(|error| Error::file("make", directory, &error))?;
    let mut command = CommandLine::command();
    command.build();
    write_pages(&command, arguments)
}

/// Writes the page of a command and of those below it.
fn write_pages(command: &clap::Command, arguments: &ManArguments) -> CommandResult {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let page = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .manual("State graphs")
        .source(format!("graph {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text)?;
    let path = arguments.directory.join(format!("{name}.1"));
    replace(&path, &String::from_utf8_lossy(&text))?;
    out!("wrote {}", path.display());
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        write_pages(verb, arguments)?;
    }
    Ok(CommandOutcome::Well)
}

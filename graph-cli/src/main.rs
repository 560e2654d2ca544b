//! `graph`: keys, signing, verifying, checking and running from the command line.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where nothing can be written; use `out!` and `err!`"
)]

#[macro_use]
mod output;

mod command;
mod outcome;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use outcome::CommandOutcome;
use output::UNDONE;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// State graphs, compiled to Rust: keys, signatures, checks and runs.
///
/// Exit codes: 0 if all is well; 1 if a file is not, as one that is unsigned, altered or has mistakes, or if a run failed; 2 if
/// the command line is wrong; 3 if the work could not be done, as for want of a key or of a file that can be written; 130 or
/// 143 if a run was stopped by Ctrl-C or SIGTERM.
#[derive(Parser)]
#[command(name = "graph", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    verb: CommandVerb,
}

#[derive(Subcommand)]
enum CommandVerb {
    /// Make a crate, a graph or a contract to begin with
    #[command(subcommand)]
    New(command::new::New),
    /// Make, trust, revoke and list keys
    #[command(subcommand)]
    Keys(command::keys::Keys),
    /// Sign files in place
    Sign(command::sign::SignArguments),
    /// Verify that trusted keys signed files
    Verify(command::verify::VerifyArguments),
    /// Check graphs as the compiler does
    Check(command::check::CheckArguments),
    /// Test graphs: run the cases beside them, with scripted tools, in virtual time
    Test(command::test::TestArguments),
    /// Show which nodes and edges the tests of graphs reach
    Coverage(command::coverage::CoverageArguments),
    /// Show the Rust that a graph becomes
    Expand(command::expand::ExpandArguments),
    /// Draw a graph, or the ways that a run took through it
    Diagram(command::diagram::DiagramArguments),
    /// Explain a code, or list all codes
    Explain(command::explain::ExplainArguments),
    /// Write the format as a JSON Schema, for editors
    Schema(command::schema::SchemaArguments),
    /// Run a graph, and print its result as JSON
    Run(Box<command::run::RunArguments>),
    /// Continue the runs of a store, and start those of schedules
    Work(Box<command::work::WorkArguments>),
    /// Serve graphs as tools of the Model Context Protocol
    #[command(subcommand)]
    Mcp(command::mcp::Mcp),
    /// List the schedules of a tree, whose runs `graph work` starts
    Schedules(command::schedules::SchedulesArguments),
    /// List the runs of a store
    Runs(command::runs::RunsArguments),
    /// Show the runs of a store in a local web page
    View(Box<command::view::ViewArguments>),
    /// Show how often nodes were visited and failed, and how long they took, over the runs of a store
    Stats(command::stats::StatsArguments),
    /// Follow a run that another process is running
    Watch(command::watch::WatchArguments),
    /// Ask the process that is running a run to stop it
    Cancel(command::cancel::CancelArguments),
    /// Send a signal to a run, which may wait for it
    Signal(command::signal::SignalArguments),
    /// List what the runs of a store ask people
    Inbox(command::inbox::InboxArguments),
    /// Sign what you say to the question of a run, and send it
    Answer(Box<command::answer::AnswerArguments>),
    /// Remove runs from a store that ended long ago
    Gc(command::gc::GcArguments),
    /// Prove from its journal what a run did, step by step
    VerifyRun(command::verify_run::VerifyRunArguments),
    /// Attest to what a run did, for those who do not have its journal
    Attest(command::attest::AttestArguments),
    /// Verify what somebody attests of a run
    VerifyAttestation(command::attest::VerifyAttestationArguments),
    /// Show where a run was, step by step, or what its state was
    Show(command::show::ShowArguments),
    /// Show what differs between two steps
    Diff(command::show::DiffArguments),
    /// Say where a run would have gone differently under a changed graph
    Replay(command::replay::ReplayArguments),
    /// Change state keys of a run that is not in progress
    Edit(command::edit::EditArguments),
    /// Begin a run where another one was
    Fork(command::fork::ForkArguments),
    /// Make the files that a project keeps of its runs again, and verify them
    #[command(subcommand)]
    Files(command::files::Files),
    /// List and remove what is kept of the results of nodes
    #[command(subcommand)]
    Cache(command::cache::Caches),
    /// Write the completions of a shell to stdout
    Completions(command::shell::CompletionsArguments),
    /// Write the manual's pages
    Man(command::shell::ManArguments),
}

fn main() -> ExitCode {
    let arguments = CommandLine::try_parse().map_err(|error| {
        if error.use_stderr() && std::env::args_os().nth(1).is_some_and(|verb| verb == "run") {
            command::run::refuse(&error.to_string());
        }
        // A version is a dozen bytes, and asked for more often than any other command.
        #[cfg(unix)]
        if error.kind() != clap::error::ErrorKind::DisplayVersion {
            limit_files_by_errors();
        }
        let printed = error.print();
        let code = u8::try_from(error.exit_code()).unwrap_or(UNDONE);
        // The help is a result like any other.
        match printed {
            Err(error) if code == 0 && error.kind() != std::io::ErrorKind::BrokenPipe => {
                err!("error: cannot write the result: {error}");
                ExitCode::from(UNDONE)
            }
            _ => code.into(),
        }
    });
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    #[cfg(unix)]
    limit_files_by_errors();
    let outcome = match arguments.verb {
        CommandVerb::New(new) => command::new::run(&new),
        CommandVerb::Keys(keys) => command::keys::run(keys),
        CommandVerb::Sign(sign) => command::sign::run(&sign),
        CommandVerb::Verify(verify) => command::verify::run(&verify),
        CommandVerb::Check(check) => command::check::run(&check),
        CommandVerb::Test(test) => command::test::run(&test),
        CommandVerb::Coverage(coverage) => command::coverage::run(&coverage),
        CommandVerb::Expand(expand) => command::expand::run(&expand),
        CommandVerb::Diagram(diagram) => command::diagram::run(&diagram),
        CommandVerb::Explain(explain) => command::explain::run(&explain),
        CommandVerb::Schema(schema) => command::schema::run(&schema),
        CommandVerb::Schedules(schedules) => command::schedules::run(&schedules),
        CommandVerb::Runs(runs) => command::runs::run(&runs),
        CommandVerb::View(view) => command::view::run(&view),
        CommandVerb::Stats(stats) => command::stats::run(&stats),
        CommandVerb::Cancel(cancel) => command::cancel::run(&cancel),
        CommandVerb::Signal(signal) => command::signal::run(&signal),
        CommandVerb::Inbox(inbox) => command::inbox::run(&inbox),
        CommandVerb::Answer(answer) => command::answer::run(&answer),
        CommandVerb::Gc(gc) => command::gc::run(&gc),
        CommandVerb::VerifyRun(verify) => command::verify_run::run(&verify),
        CommandVerb::Watch(watch) => return command::watch::run(&watch),
        CommandVerb::Attest(attest) => command::attest::run(&attest),
        CommandVerb::VerifyAttestation(verify) => command::attest::verify(&verify),
        CommandVerb::Show(show) => command::show::run(&show),
        CommandVerb::Diff(diff) => command::show::diff(&diff),
        CommandVerb::Replay(replay) => command::replay::run(&replay),
        CommandVerb::Edit(edit) => command::edit::run(&edit),
        CommandVerb::Fork(fork) => command::fork::run(&fork),
        CommandVerb::Files(files) => command::files::run(&files),
        CommandVerb::Cache(caches) => command::cache::run(&caches),
        CommandVerb::Completions(completions) => command::shell::completions(&completions),
        CommandVerb::Man(man) => command::shell::man(&man),
        CommandVerb::Run(run) => return command::run::run(&run),
        CommandVerb::Mcp(mcp) => return command::mcp::run(&mcp),
        CommandVerb::Work(work) => return command::work::run(&work),
    };
    match outcome {
        Ok(CommandOutcome::Well) => output::finish(0),
        Ok(CommandOutcome::Problems) => output::finish(1),
        Err(error) => {
            err!("error: {error}");
            if error.is_of_graph() { ExitCode::FAILURE } else { UNDONE.into() }
        }
    }
}

/// Makes a write beyond the limit on the size of files, as `ulimit -f` sets it, an error that is said, where the system would end the
/// program without a word. A signal that has a handler does not end the program, and programs that are started have no
/// handler.
#[cfg(unix)]
fn limit_files_by_errors() {
    use tokio::signal::unix::{SignalKind, signal};
    let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let handled = tokio.and_then(|tokio| {
        let _inside = tokio.enter();
        signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
    });
    if let Err(error) = handled {
        err!("warning: a file that grows beyond `ulimit -f` will end this program: {error}");
    }
}

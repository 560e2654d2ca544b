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

use outcome::Outcome;
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
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make, trust, revoke and list keys
    #[command(subcommand)]
    Keys(command::keys::Keys),
    /// Sign files in place
    Sign(command::sign::Sign),
    /// Verify that trusted keys signed files
    Verify(command::verify::Verify),
    /// Check graphs as the compiler does
    Check(command::check::Check),
    /// Explain a code, or list all codes
    Explain(command::explain::Explain),
    /// Write the format as a JSON Schema, for editors
    Schema(command::schema::Schema),
    /// Run a graph, and print its result as JSON
    Run(Box<command::run::Run>),
    /// List the runs of a store
    Runs(command::runs::Runs),
    /// Follow a run that another process is at work on
    Watch(command::watch::Watch),
    /// Ask whoever is at work on a run to stop it
    Cancel(command::cancel::Cancel),
    /// Remove runs from a store that ended long ago
    Gc(command::gc::Gc),
    /// Prove from its journal what a run did, step by step
    VerifyRun(command::verify_run::VerifyRun),
    /// Attest to what a run did, for those who do not have its journal
    Attest(command::attest::Attest),
    /// Verify what somebody attests of a run
    VerifyAttestation(command::attest::VerifyAttestation),
    /// Show where a run was, step by step, or what its state was
    Show(command::show::Show),
    /// Show what differs between two steps
    Diff(command::show::Diff),
    /// Say where a run would have gone differently under a changed graph
    Replay(command::replay::Arguments),
    /// Begin a run where another one was
    Fork(command::fork::Arguments),
    /// Make the files that a project keeps of its runs anew, and verify them
    #[command(subcommand)]
    Files(command::files::Files),
    /// List and remove what is kept of the results of nodes
    #[command(subcommand)]
    Cache(command::cache::Caches),
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().map_err(|error| {
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
        Verb::Keys(keys) => command::keys::run(keys),
        Verb::Sign(sign) => command::sign::run(&sign),
        Verb::Verify(verify) => command::verify::run(&verify),
        Verb::Check(check) => command::check::run(&check),
        Verb::Explain(explain) => command::explain::run(&explain),
        Verb::Schema(schema) => command::schema::run(&schema),
        Verb::Runs(runs) => command::runs::run(&runs),
        Verb::Cancel(cancel) => command::cancel::run(&cancel),
        Verb::Gc(gc) => command::gc::run(&gc),
        Verb::VerifyRun(verify) => command::verify_run::run(&verify),
        Verb::Watch(watch) => return command::watch::run(&watch),
        Verb::Attest(attest) => command::attest::run(&attest),
        Verb::VerifyAttestation(verify) => command::attest::verify(&verify),
        Verb::Show(show) => command::show::run(&show),
        Verb::Diff(diff) => command::show::diff(&diff),
        Verb::Replay(replay) => command::replay::run(&replay),
        Verb::Fork(fork) => command::fork::run(&fork),
        Verb::Files(files) => command::files::run(&files),
        Verb::Cache(caches) => command::cache::run(&caches),
        Verb::Run(run) => return command::run::run(&run),
    };
    match outcome {
        Ok(Outcome::Well) => output::finish(0),
        Ok(Outcome::Problems) => output::finish(1),
        Err(error) => {
            err!("error: {error}");
            UNDONE.into()
        }
    }
}

/// Makes a write beyond the limit on the size of files, as `ulimit -f` sets it, an error that is said, where the system would end the
/// program without a word. A signal that has a handler does not end it, and programs that are started have none.
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

//! Runs in the background: the command starts this program again, in a session of its own, and returns.
//!
//! The child does the work of `graph run`, with the caller's stdin and stderr, until the start of the run is durable. Then it
//! releases both, reports this on its stdout, which is a pipe to the parent, and writes to a log from then on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph_runtime::observer::{Event, Observer};
use graph_runtime::{RunId, Value};
use serde_json::json;

use super::failure::RunCommandFailure;
use super::{RunArguments, RunReport, UNDONE};
use crate::outcome::Error;

/// Starts the child, and returns its report once the run has begun, or the reason that it has not (R290, R292).
pub(super) fn start() -> Result<RunReport, RunCommandFailure> {
    if cfg!(not(unix)) {
        let error = "this system has no sessions, which a run in the background needs; leave `--background` out";
        return Err(RunCommandFailure::new(UNDONE, error));
    }
    let spawn = || {
        let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
        if let Some(flag) = arguments.iter_mut().find(|argument| *argument == "--background") {
            *flag = "--detached".into();
        }
        Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()
    };
    let failed =
        |error: io::Error| RunCommandFailure::new(UNDONE, format_args!("Failed to spawn child process: {error}"));
    let mut child = spawn().map_err(failed)?;
    let mut said = String::new();
    if let Some(out) = &mut child.stdout {
        out.read_to_string(&mut said).map_err(failed)?;
    }
    match serde_json::from_str::<Value>(&said) {
        Ok(result) if result["success"] == true => Ok(RunReport { result, code: 0 }),
        said => {
            let status = child.wait().map_err(failed)?;
            let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
            match said {
                Ok(result) => Ok(RunReport { result, code: code.unwrap_or(UNDONE) }),
                Err(_) => Err(RunCommandFailure::new(
                    UNDONE,
                    format_args!("Failed to spawn child process: it ended with {status}"),
                )),
            }
        }
    }
}

/// Leaves the caller's session, so that events such as the end of its terminal do not reach the run (R293).
pub(super) fn detach() -> Result<(), RunCommandFailure> {
    #[cfg(unix)]
    rustix::process::setsid().map_err(|error| RunCommandFailure::of(UNDONE, io::Error::from(error)))?;
    Ok(())
}

/// The log file of a run in the background.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Whether the file is new and its run has not begun, so that the file is removed again on drop.
    is_new: bool,
}

impl Log {
    /// Opens the log of a run: the file that `--log` names, else the run's own in the project (R291), else one beside the store.
    pub(super) fn open(
        arguments: &RunArguments,
        project: Option<&Path>,
        run: &RunId,
    ) -> Result<Self, RunCommandFailure> {
        let path = match &arguments.log {
            Some(log) => log.clone(),
            None => log_of(run, project, arguments.store.as_deref()),
        };
        let open = || {
            if let Some(directory) = path.parent()
                && arguments.log.is_none()
            {
                std::fs::create_dir_all(directory)?;
                // In a project, no part of the log's path may be a link that leads elsewhere.
                if let Some(project) = project
                    && directory.canonicalize()?
                        != project.canonicalize()?.join(directory.strip_prefix(project).unwrap_or(directory))
                {
                    return Err(io::Error::other("a part of its path is a link"));
                }
            }
            let is_new = !path.exists();
            let mut options = OpenOptions::new();
            options.append(true).create(true);
            #[cfg(unix)]
            {
                use std::os::unix::fs::OpenOptionsExt;
                // The output of a graph is for its owner only.
                options.mode(0o600);
                if arguments.log.is_none() {
                    // A link in its place may lead to a file that belongs to somebody else, or that others can read.
                    options.custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?);
                }
            }
            let file = options.open(&path)?;
            #[cfg(unix)]
            if arguments.log.is_none() {
                refuse_shared(&file)?;
            }
            Ok((file, is_new))
        };
        let opened: io::Result<_> = open();
        let (file, is_new) = opened.map_err(|error| {
            let error = Error::file("write the log", &path, &error);
            RunCommandFailure::new(UNDONE, format_args!("{error}; name another with `--log FILE`"))
        })?;
        Ok(Self { path, file, is_new })
    }

    /// Reports that the run has begun, and releases the caller.
    ///
    /// # Errors
    ///
    /// If the caller could not be notified.
    pub(super) fn take_over(mut self, run: &RunId, graph: &str) -> io::Result<()> {
        self.is_new = false;
        let hello = json!({
            "success": true,
            "graph_run_id": run,
            "status": "running",
            "pid": std::process::id(),
            "graph_id": graph,
            "log": self.path,
        });
        let mut caller = self.switch()?;
        writeln!(caller, "{hello}")
    }

    /// Replaces stdout and stderr by the log, and stdin by an empty one. Returns the former stdout.
    #[cfg(unix)]
    fn switch(&self) -> io::Result<File> {
        use rustix::stdio;
        let caller = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3)?;
        stdio::dup2_stdin(File::open("/dev/null")?)?;
        stdio::dup2_stdout(&self.file)?;
        stdio::dup2_stderr(&self.file)?;
        Ok(caller.into())
    }

    #[cfg(not(unix))]
    fn switch(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Releases the caller when the run has begun, before the run writes anything else.
#[derive(Clone, Default)]
pub(super) struct Handover(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    /// The log, until it has taken over, and the function that notifies the caller before that.
    log: Option<(Log, Box<dyn FnOnce() + Send>)>,
    failed: Option<io::Error>,
}

impl Handover {
    /// Makes the log take over when the next run has begun, after `tell` has notified the caller.
    pub(super) fn prepare(&self, log: Log, tell: impl FnOnce() + Send + 'static) {
        self.waiting().log = Some((log, Box::new(tell)));
    }

    /// Makes the log take over, unless it already has or there is no log.
    ///
    /// # Errors
    ///
    /// If the caller could not be notified, now or before.
    pub(super) fn finish(&self, run: &RunId, graph: &str) -> io::Result<()> {
        let mut waiting = self.waiting();
        if let Some((log, tell)) = waiting.log.take() {
            tell();
            waiting.failed = log.take_over(run, graph).err();
        }
        waiting.failed.take().map_or(Ok(()), Err)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Handover {
    fn observe(&self, event: &Event<'_>) {
        let Event::RunStarted { run, graph, .. } = event else { return };
        let failed = self.finish(run, graph.as_str()).err();
        // Stored for the code that waits for the run, which can stop it.
        self.waiting().failed = failed;
    }
}

/// Refuses a log that others can read, or that also has another name: the run did not create it.
#[cfg(unix)]
fn refuse_shared(file: &File) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other("it exists, and is not a file that only its owner can read"));
    }
    Ok(())
}

fn log_of(run: &RunId, project: Option<&Path>, store: Option<&Path>) -> PathBuf {
    let beside = || format!("{run}.log");
    match (project, store) {
        (Some(project), _) => project.join(".ai/state/threads").join(run.as_str()).join("async.log"),
        (None, Some(store)) => store.with_file_name(beside()),
        (None, None) => beside().into(),
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.is_new {
            // If the empty file cannot be removed, the reason that the run was not started still matters more.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_in_the_project_thread_or_next_to_the_store() {
        let run = RunId::new("r").unwrap();
        let (project, store) = (Some(Path::new("/p")), Some(Path::new("/s/runs.db")));
        assert_eq!(log_of(&run, project, store), Path::new("/p/.ai/state/threads/r/async.log"));
        assert_eq!(log_of(&run, None, store), Path::new("/s/r.log"));
    }
}

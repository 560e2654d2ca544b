//! Processes that tools start: each in a process group of its own, with a small environment, within limits.
//!
//! A process does not see the program's own environment, which may hold secrets. When it ends, is stopped, or nobody waits
//! for it any more, its whole process group is killed.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graph_model::value::{Value, View};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::call::Call;
use crate::error::ActionError;
use crate::tools::seconds;

/// What a process sees of the program's environment, besides what the graph requires and what it is given.
const INHERITED: [&str; 10] = ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TZ"];

/// How long the rest of the output is waited for, once the process and its group are gone.
const GRACE: Duration = Duration::from_secs(1);

/// How long a process may run and how much it may print.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) output: usize,
}

impl Limits {
    /// Makes them of a tool's parameters `timeout` and `output_limit`.
    pub(super) fn of(timeout: f64, output_limit: i64) -> Result<Self, graph_model::value::Mismatch> {
        let time = seconds(timeout, "timeout")?;
        match usize::try_from(output_limit) {
            Ok(output) => Ok(Self { time, output }),
            Err(_) => {
                let found = View::Integer(output_limit);
                Err(graph_model::value::Mismatch::new("a number of bytes", found).inside("output_limit"))
            }
        }
    }
}

/// What a process left.
pub(super) struct Ended {
    /// The exit code; as shells do, 128 and the number of the signal where one ended the process.
    pub(super) code: i32,
    /// What it printed, without the newlines at the end.
    pub(super) stdout: String,
    /// The same of stderr.
    pub(super) stderr: String,
}

impl Ended {
    /// Returns the result that commands have in common.
    pub(super) fn to_value(&self) -> Value {
        json!({"stdout": self.stdout, "stderr": self.stderr, "exit_code": self.code})
    }

    /// Returns the failure that an exit code is, unless it is one of `ok`.
    pub(super) fn failure(&self, ok: &[i64]) -> Option<ActionError> {
        if ok.contains(&i64::from(self.code)) {
            return None;
        }
        let said = self.stderr.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        Some(ActionError::unclassified(format!("exit code {}{said}", self.code)).with_data(self.to_value()))
    }
}

/// Why a process was stopped before it ended.
enum Stopped {
    Timeout,
    Output,
}

/// Clears the environment of `command`, and sets what every process of the graph may see.
pub(super) fn small_environment(command: &mut Command, call: &Call) {
    command.env_clear();
    let names = INHERITED.into_iter().chain(call.env().iter().map(String::as_str));
    command.envs(names.filter_map(|name| Some((name, std::env::var_os(name)?))));
}

/// Starts `command` in a process group of its own; `stdin` says whether there is something for it to read.
pub(super) fn start(command: &mut Command, stdin: bool) -> std::io::Result<Child> {
    let stdin = if stdin { Stdio::piped() } else { Stdio::null() };
    command.process_group(0).kill_on_drop(true).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits until a process that [`start`] started has ended, and collects what it printed.
///
/// # Errors
///
/// If it was stopped because of `limits`, or printed what is no text.
pub(super) async fn finish(mut child: Child, stdin: Option<Vec<u8>>, limits: Limits) -> Result<Ended, ActionError> {
    let group = Group::of(&child);
    let (out, err) = (Arc::default(), Arc::default());
    // Dropping the set stops the tasks, so nothing of a process that is not waited for stays.
    let mut pipes = JoinSet::new();
    let (full, mut overflow) = mpsc::channel(1);
    if let Some(stdout) = child.stdout.take() {
        pipes.spawn(read(stdout, Arc::clone(&out), limits.output, full.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        pipes.spawn(read(stderr, Arc::clone(&err), limits.output, full.clone()));
    }
    drop(full);
    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), stdin) {
        pipes.spawn(async move {
            // A process need not read what it is given.
            if let Err(error) = pipe.write_all(&bytes).await {
                tracing::debug!(%error, "the command did not read all of its stdin");
            }
        });
    }
    let ended = tokio::select! {
        biased;
        // First: a process whose output is not read any more may end by that.
        Some(()) = overflow.recv() => Err(Stopped::Output),
        status = child.wait() => Ok(status?),
        () = tokio::time::sleep(limits.time) => Err(Stopped::Timeout),
    };
    // What the process left behind in its group goes with it; else a `sleep 1000 &` would keep the pipes open.
    drop(group);
    let status = match ended {
        Ok(status) => status,
        Err(stopped) => {
            child.wait().await?;
            return Err(match stopped {
                Stopped::Timeout => {
                    ActionError::transient(format!("the command was stopped after {:?} (timeout)", limits.time))
                }
                Stopped::Output => ActionError::permanent(format!(
                    "the command was stopped: it printed more than {} bytes",
                    limits.output
                )),
            });
        }
    };
    // A process that left the group may hold the pipes for ever; what it prints is not the command's.
    if tokio::time::timeout(GRACE, async { while pipes.join_next().await.is_some() {} }).await.is_err() {
        tracing::debug!("a process that the command started holds on to its output");
    }
    if let Ok(()) = overflow.try_recv() {
        return Err(ActionError::permanent(format!("the command printed more than {} bytes", limits.output)));
    }
    Ok(Ended { code: exit_code(status), stdout: text(&out, "stdout")?, stderr: text(&err, "stderr")? })
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// A process group that is killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is gone already where nothing is left in it.
        if let Some(group) = self.0
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::trace!(%error, "no process was left in the command's group");
        }
    }
}

type Buffer = Arc<Mutex<Vec<u8>>>;

/// Reads a pipe to its end, or until there is more than may be; `full` is told of that.
async fn read(mut pipe: impl AsyncRead + Unpin, buffer: Buffer, limit: usize, full: mpsc::Sender<()>) {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        match pipe.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                buffer.extend_from_slice(&chunk[..length]);
                if buffer.len() > limit {
                    // The channel holds one message, and one is enough.
                    full.try_send(()).ok();
                    return;
                }
            }
        }
    }
}

fn text(buffer: &Buffer, name: &str) -> Result<String, ActionError> {
    let bytes = std::mem::take(&mut *buffer.lock().unwrap_or_else(PoisonError::into_inner));
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ActionError::permanent(format!("{name} is not UTF-8 text (byte {at}); pipe it through `base64` or `iconv`"))
    })?;
    Ok(text.trim_end_matches('\n').to_owned())
}

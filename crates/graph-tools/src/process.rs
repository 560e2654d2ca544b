//! Processes that tools start: each runs in its own process group, with a small environment and within limits.
//!
//! A process does not see the program's own environment, which may hold secrets. When the process ends or is stopped, or its
//! caller no longer waits, its whole process group is killed. The same happens when the program itself dies for any reason:
//! the leader of the group is a watchdog that notices the end of the program.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graph_model::untrusted::Untrusted;
use graph_model::value::{IndexMap, Value};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::seconds;
use graph_engine::ActionError;
use graph_engine::Call;

/// The settings with which any process is started.
pub(super) struct Setting {
    pub(super) cwd: Option<String>,
    pub(super) env: Option<IndexMap<String, String>>,
    pub(super) stdin: Option<String>,
    pub(super) limits: Limits,
    pub(super) ok_exit_codes: Vec<i64>,
}

impl Setting {
    /// Starts a process and waits for its end. `shown` is its name in messages; `expands` says which variables it reads itself.
    pub(super) async fn execute(
        self,
        call: &Call,
        mut command: Command,
        shown: &str,
        expands: impl Fn(&str) -> bool,
    ) -> Result<Value, ActionError> {
        small_environment(&mut command, call);
        environment(&mut command, self.env.as_ref(), call.untrusted().part("env"), expands)?;
        if let Some(cwd) = &self.cwd {
            if !Path::new(cwd).is_dir() {
                return Err(ActionError::permanent(format!("the directory `{cwd}` does not exist")));
            }
            command.current_dir(cwd);
        }
        let stdin = if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let running = RunningProcess::start(&mut command, stdin, self.limits.output)
            .map_err(|error| ActionError::permanent(format!("{shown} could not be started: {error}")))?;
        let ended = finish(running, self.stdin.map(String::into_bytes), self.limits.time).await?;
        match ended.failure(&self.ok_exit_codes) {
            None => Ok(ended.to_value()),
            Some(failure) => Err(failure),
        }
    }
}

/// The variables that a process inherits from the program, besides those that the graph requires and those of the call.
const INHERITED: [&str; 10] = ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TZ"];

/// How long to wait for the rest of the output after the process and its group have ended.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The limits of a process: its running time and the size of its output.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) output: usize,
}

impl Limits {
    /// Reads the limits from a tool's parameters `timeout` and `output_limit`.
    pub(super) fn of(timeout: f64, output_limit: i64) -> Result<Self, ActionError> {
        let time = seconds(timeout, "timeout")?;
        match usize::try_from(output_limit) {
            Ok(output) if output > 0 => Ok(Self { time, output }),
            _ => Err(ActionError::permanent(format!(
                "`output_limit` is a number of bytes above 0, and `{output_limit}` is not one"
            ))),
        }
    }
}

/// The result of a process.
pub(super) struct EndedProcess {
    /// The exit code; if a signal ended the process, 128 plus the number of the signal, as in shells.
    pub(super) code: i32,
    /// Its output, without the newlines at the end.
    pub(super) stdout: String,
    /// Its output on stderr, likewise.
    pub(super) stderr: String,
}

impl EndedProcess {
    /// Returns the result that all commands share.
    pub(super) fn to_value(&self) -> Value {
        json!({"stdout": self.stdout, "stderr": self.stderr, "exit_code": self.code})
    }

    /// Returns the failure for an exit code, unless the code is one of `ok`.
    pub(super) fn failure(&self, ok: &[i64]) -> Option<ActionError> {
        if ok.contains(&i64::from(self.code)) {
            return None;
        }
        let said = self.stderr.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        Some(ActionError::unclassified(format!("exit code {}{said}", self.code)).with_data(self.to_value()))
    }
}

/// The reason that a process was stopped before it ended.
pub(super) enum ProcessStop {
    Timeout(Duration),
    Output,
    /// The watchdog ended first, so the process could outlive the program.
    Unguarded,
    /// The system does not say how it ended.
    Unknown(std::io::Error),
}

/// Clears the environment of `command`, and sets the variables that every process of the graph may see.
pub(super) fn small_environment(command: &mut Command, call: &Call) {
    command.env_clear();
    let names = INHERITED.into_iter().chain(call.env().iter().map(String::as_str));
    command.envs(names.filter_map(|name| Some((name, std::env::var_os(name)?))));
    // With these, a program that must act only once can recognize a repeated request.
    let [key, attempt, parent] = graph_shell::RESERVED;
    command.env(key, call.idempotency_key()).env(attempt, call.attempt().to_string());
    // A graph that the program starts has at most the permissions of the run.
    command.envs(crate::config(call).thread_of(call.run_id()).map(|thread| (parent, thread)));
}

/// Sets the variables `env` of a call; `expands` says whether the command itself expands a variable.
///
/// # Errors
///
/// If a name is not valid or is reserved for the runtime. Also if a name controls the behavior of bash or of programs and its
/// value is untrusted.
pub(super) fn environment(
    command: &mut Command,
    env: Option<&IndexMap<String, String>>,
    untrusted: &Untrusted,
    expands: impl Fn(&str) -> bool,
) -> Result<(), ActionError> {
    for (name, value) in env.into_iter().flatten() {
        let shown = name.escape_debug();
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(ActionError::permanent(format!("`{shown}` cannot be set as an environment variable")));
        }
        if graph_shell::RESERVED.contains(&name.as_str()) {
            return Err(ActionError::permanent(format!("`{shown}` is set by the runtime, and no graph can set it")));
        }
        if !untrusted.part(name).is_nothing() && graph_shell::is_read(name, expands(name)) {
            return Err(ActionError::permanent(format!(
                "`{shown}` is refused in `env`: bash and programs decide by such a variable what they do, and its value does not \
                 come from the graph; give the value to a variable with another name"
            )));
        }
        command.env(name, value);
    }
    Ok(())
}

/// Returns the variables of a call whose values are untrusted, and whether its stdin is.
pub(super) fn foreign(env: Option<&IndexMap<String, String>>, untrusted: &Untrusted) -> graph_shell::Foreign {
    let of_env = untrusted.part("env");
    let names = env.into_iter().flatten().map(|(name, _)| name).filter(|name| !of_env.part(name).is_nothing());
    let is_foreign = |name: &str| !untrusted.part(name).is_nothing();
    graph_shell::Foreign { variables: names.cloned().collect(), stdin: is_foreign("stdin") }
        .in_directory(is_foreign("cwd"))
}

/// Returns the error for a danger.
pub(super) fn refusal(danger: &graph_shell::Danger) -> ActionError {
    ActionError::permanent(format!("the command is refused: {} {}; {}", danger.origin, danger.how, danger.how.help()))
}

/// Finds a program in the `PATH` of the program that embeds the graph.
///
/// # Errors
///
/// If no directory has it.
pub(super) fn find_in_path(program: &str) -> Result<PathBuf, ActionError> {
    // With a relative directory in `PATH`, the working directory would decide which program runs.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).filter(|place| place.is_absolute()).map(|place| place.join(program));
    places.find(|place| is_executable(place)).ok_or_else(|| {
        ActionError::permanent(format!(
            "`{program}` could not be started: no directory in PATH has a program of that name"
        ))
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A running process with its group, whose output is read meanwhile. If it is dropped, the group is killed.
pub(super) struct RunningProcess {
    child: Child,
    group: ProcessGroup,
    stdout: Buffer,
    stderr: Buffer,
    /// The tasks that read and write. Dropping the set stops them, so that an abandoned process leaves nothing behind.
    pipes: JoinSet<()>,
    overflow: mpsc::Receiver<()>,
    most_output: usize,
}

impl RunningProcess {
    /// Starts `command` in its own process group, which is stopped when it prints more than `most_output` bytes.
    pub(super) fn start(command: &mut Command, stdin: Stdio, most_output: usize) -> std::io::Result<Self> {
        let group = ProcessGroup::new()?;
        group.join(command);
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let mut pipes = JoinSet::new();
        let (full, overflow) = mpsc::channel(1);
        if let Some(pipe) = child.stdout.take() {
            pipes.spawn(read(pipe, Arc::clone(&stdout), most_output, full.clone()));
        }
        if let Some(pipe) = child.stderr.take() {
            pipes.spawn(read(pipe, Arc::clone(&stderr), most_output, full));
        }
        Ok(Self { child, group, stdout, stderr, pipes, overflow, most_output })
    }

    /// Lets a task run as long as this value exists.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.pipes.spawn(task);
    }

    /// Waits until it has ended or must be stopped. A caller that no longer waits may wait again.
    pub(super) async fn ended(&mut self) -> Result<ExitStatus, ProcessStop> {
        tokio::select! {
            biased;
            // This comes first: a process may end because its output is no longer read.
            Some(()) = self.overflow.recv() => Err(ProcessStop::Output),
            status = self.child.wait() => status.map_err(ProcessStop::Unknown),
            _ = self.group.watchdog.wait() => Err(ProcessStop::Unguarded),
        }
    }

    /// Kills what is left in the group, and collects the output.
    ///
    /// # Errors
    ///
    /// If the process was stopped, or if its output is not UTF-8 text.
    pub(super) async fn collect(mut self, ended: Result<ExitStatus, ProcessStop>) -> Result<EndedProcess, ActionError> {
        // Processes that it left in its group are killed too; otherwise a `sleep 1000 &` would keep the pipes open.
        self.group.kill();
        self.group.watchdog.wait().await?;
        let status = match ended {
            Ok(status) => status,
            Err(stopped) => {
                self.child.wait().await?;
                return Err(match stopped {
                    ProcessStop::Timeout(time) => {
                        ActionError::transient(format!("the command was stopped after {time:?} (timeout)"))
                    }
                    ProcessStop::Unguarded => ActionError::permanent(
                        "the command was stopped: it ended the process that would end it together with the program",
                    ),
                    ProcessStop::Output => ActionError::permanent(format!(
                        "the command was stopped: it printed more than {} bytes",
                        self.most_output
                    )),
                    ProcessStop::Unknown(error) => error.into(),
                });
            }
        };
        // A process that left the group may hold the pipes forever; its output does not belong to the command.
        if tokio::time::timeout(GRACE, async { while self.pipes.join_next().await.is_some() {} }).await.is_err() {
            tracing::debug!("a process that the command started holds on to its output");
        }
        if let Ok(()) = self.overflow.try_recv() {
            return Err(ActionError::permanent(format!("the command printed more than {} bytes", self.most_output)));
        }
        let (stdout, stderr) = (text(&self.stdout, "stdout")?, text(&self.stderr, "stderr")?);
        Ok(EndedProcess { code: exit_code(status), stdout, stderr })
    }
}

/// Writes `stdin` to a process, waits until it has ended or `time` is over, and collects its output.
///
/// # Errors
///
/// If it was stopped because of a limit, or if its output is not UTF-8 text.
pub(super) async fn finish(
    mut running: RunningProcess,
    stdin: Option<Vec<u8>>,
    time: Duration,
) -> Result<EndedProcess, ActionError> {
    if let (Some(mut pipe), Some(bytes)) = (running.child.stdin.take(), stdin) {
        running.spawn(async move {
            // A process need not read all of its input.
            if let Err(error) = pipe.write_all(&bytes).await {
                tracing::debug!(%error, "the command did not read all of its stdin");
            }
        });
    }
    let ended = tokio::select! {
        biased;
        ended = running.ended() => ended,
        () = tokio::time::sleep(time) => Err(ProcessStop::Timeout(time)),
    };
    running.collect(ended).await
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// The script of the watchdog: it waits for the end of a pipe that only the program holds open, and then kills its own group.
/// It ignores the signals that a command may send to its whole group.
const WATCHDOG: &str =
    "trap '' HUP INT QUIT ABRT ALRM TERM USR1 USR2 PIPE TSTP TTIN TTOU; while read -r _; do :; done; kill -KILL 0";

/// A process group that is killed when this value is dropped, or when the program ends, in whatever way.
///
/// Its leader is a watchdog: a small process that waits for the end of the program. So the number of the group cannot be reused while this
/// value exists. A process that leaves the group is not killed.
#[derive(Debug)]
pub struct ProcessGroup {
    watchdog: Child,
    leader: Pid,
    /// The end of the pipe on which the watchdog waits. It is closed on exec, so that no child keeps it open.
    _line: Option<ChildStdin>,
    is_killed: bool,
}

impl ProcessGroup {
    /// Starts a group, with no process of the program in it yet. It must be in a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the watchdog cannot be started.
    pub fn new() -> std::io::Result<Self> {
        let shell = find_in_path("sh").unwrap_or_else(|_| PathBuf::from("/bin/sh"));
        let mut command = Command::new(shell);
        command.arg("-c").arg(WATCHDOG).env_clear().current_dir("/");
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut watchdog = command.spawn()?;
        let line = watchdog.stdin.take();
        let leader = watchdog.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let leader = leader.ok_or_else(|| std::io::Error::other("the watchdog of the command ended at once"))?;
        Ok(Self { watchdog, leader, _line: line, is_killed: false })
    }

    /// Lets a command start in the group.
    pub fn join(&self, command: &mut Command) {
        command.process_group(self.leader.as_raw_nonzero().get()).kill_on_drop(true);
    }

    /// Kills all processes in the group, including the watchdog.
    fn kill(&mut self) {
        if !std::mem::replace(&mut self.is_killed, true)
            && let Err(error) = kill_process_group(self.leader, Signal::KILL)
        {
            tracing::trace!(%error, "no process was left in the command's group");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

type Buffer = Arc<Mutex<Vec<u8>>>;

/// Reads a pipe to its end. If there is more than `limit`, stops and notifies `full`.
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

//! `rye/bash`: a command, in a process group of its own.
//!
//! Values reach the command as environment variables and stdin, or as part of its text where the graph puts them there;
//! nothing is looked at for templates again. The command sees a small environment and not the program's own, which may hold
//! secrets. When it ends, is stopped, or nobody waits for it any more, its whole process group is killed.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graph_model::value::{FromValue, IndexMap, Mismatch, Value, View};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::call::Call;
use crate::error::ActionError;

/// What a command sees of the program's environment, besides what the graph requires and what `env` gives.
const INHERITED: [&str; 10] = ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TZ"];

/// How long the rest of the output is waited for, once the command and its process group are gone.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Params {
    command: String,
    cwd: Option<String>,
    env: Option<IndexMap<String, String>>,
    stdin: Option<String>,
    timeout: f64,
    output_limit: i64,
    ok_exit_codes: Vec<i64>,
}

crate::__object!(Params {
    0 command: "command",
    1 cwd: "cwd",
    2 env: "env",
    3 stdin: "stdin",
    4 timeout: "timeout" = "600",
    5 output_limit: "output_limit" = "1048576",
    6 ok_exit_codes: "ok_exit_codes" = "[0]",
});

/// How long a command may run and how much it may print.
#[derive(Clone, Copy)]
struct Limits {
    time: Duration,
    output: usize,
}

impl Limits {
    fn of(params: &Params) -> Result<Self, Mismatch> {
        let time = Duration::try_from_secs_f64(params.timeout).ok().filter(|time| !time.is_zero());
        let Some(time) = time else {
            let found = View::Float(params.timeout);
            return Err(Mismatch::new("a number of seconds above 0", found).inside("timeout"));
        };
        match usize::try_from(params.output_limit) {
            Ok(output) => Ok(Self { time, output }),
            Err(_) => {
                Err(Mismatch::new("a number of bytes", View::Integer(params.output_limit)).inside("output_limit"))
            }
        }
    }
}

/// Why a command was stopped before it ended.
enum Stopped {
    Timeout,
    Output,
}

pub(super) async fn perform(call: &Call, params: Value) -> Result<Value, ActionError> {
    let params = Params::from_value(params)?;
    let limits = Limits::of(&params)?;
    let mut child = spawn(call, &params)?;
    let group = Group::of(&child);
    let (out, err) = (Arc::default(), Arc::default());
    // Dropping the set stops the tasks, so nothing of a command that is not waited for stays.
    let mut pipes = JoinSet::new();
    let (full, mut overflow) = mpsc::channel(1);
    if let Some(stdout) = child.stdout.take() {
        pipes.spawn(read(stdout, Arc::clone(&out), limits.output, full.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        pipes.spawn(read(stderr, Arc::clone(&err), limits.output, full.clone()));
    }
    drop(full);
    if let (Some(mut stdin), Some(text)) = (child.stdin.take(), params.stdin.clone()) {
        pipes.spawn(async move {
            // A command need not read what it is given.
            if let Err(error) = stdin.write_all(text.as_bytes()).await {
                tracing::debug!(%error, "the command did not read all of its stdin");
            }
        });
    }
    let ended = tokio::select! {
        biased;
        // First: a command whose output is not read any more may end by that.
        Some(()) = overflow.recv() => Err(Stopped::Output),
        status = child.wait() => Ok(status?),
        () = tokio::time::sleep(limits.time) => Err(Stopped::Timeout),
    };
    // What the command left behind in its group goes with it; else a `sleep 1000 &` would keep the pipes open.
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
    result(status, &text(&out, "stdout")?, &text(&err, "stderr")?, &params.ok_exit_codes)
}

fn spawn(call: &Call, params: &Params) -> Result<Child, ActionError> {
    let mut command = Command::new("bash");
    command.arg("-c").arg(&params.command).env_clear().process_group(0).kill_on_drop(true);
    let names = INHERITED.into_iter().chain(call.env().iter().map(String::as_str));
    command.envs(names.filter_map(|name| Some((name, std::env::var_os(name)?))));
    for (name, value) in params.env.iter().flatten() {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(ActionError::permanent(format!(
                "`{}` cannot be set as an environment variable",
                name.escape_debug()
            )));
        }
        command.env(name, value);
    }
    if let Some(cwd) = &params.cwd {
        if !Path::new(cwd).is_dir() {
            return Err(ActionError::permanent(format!("the directory `{cwd}` does not exist")));
        }
        command.current_dir(cwd);
    }
    if params.command.contains('\0') {
        return Err(ActionError::permanent("a command cannot contain a zero byte"));
    }
    let stdin = if params.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| ActionError::permanent(format!("bash could not be started: {error}")))
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

fn result(status: ExitStatus, stdout: &str, stderr: &str, ok: &[i64]) -> Result<Value, ActionError> {
    use std::os::unix::process::ExitStatusExt;
    // As shells do: 128 and the number of the signal.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
    let data = json!({"stdout": stdout, "stderr": stderr, "exit_code": code});
    if ok.contains(&i64::from(code)) {
        return Ok(data);
    }
    let said = stderr.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    // Only the command knows whether it may work the next time, and all it says is its text.
    Err(ActionError::unclassified(format!("exit code {code}{said}")).with_data(data))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use graph_model::name::{GraphId, ItemId, RunId};

    use super::*;
    use crate::call::RunFacts;

    fn call() -> Call {
        let facts = RunFacts {
            id: RunId::new("test").unwrap(),
            graph: GraphId::new("test").unwrap(),
            nodes: vec!["node".into()],
            tools: vec![Some(ItemId::new("rye/bash").unwrap())],
            env: vec!["CARGO_PKG_NAME".into()],
            parent: None,
            depth: 5,
            ceiling: Vec::new(),
            deadline: None,
            stop: crate::stop::Stop::default(),
        };
        Call { run: Arc::new(facts), node: 0, tool: 0, step: 1, more: None }
    }

    async fn bash(params: Value) -> Result<Value, String> {
        perform(&call(), params).await.map_err(|error| format!("{error:?}"))
    }

    #[tokio::test]
    async fn a_command_returns_what_it_printed_without_the_last_newlines() {
        let result = bash(json!({"command": "echo one; echo; echo two >&2"})).await.unwrap();
        assert_eq!(result, json!({"stdout": "one", "stderr": "two", "exit_code": 0}));
    }

    #[tokio::test]
    async fn values_arrive_as_they_are_and_are_never_read_as_code() {
        let evil = "$(touch /tmp/evil) `id` ${state.x} ; rm -rf \"'\n";
        let result =
            bash(json!({"command": "printf %s \"$TEXT\"; cat", "env": {"TEXT": evil}, "stdin": evil})).await.unwrap();
        assert_eq!(result["stdout"], format!("{evil}{evil}").trim_end_matches('\n'));
    }

    #[tokio::test]
    async fn the_environment_is_small_and_has_what_the_graph_requires() {
        let result = bash(json!({"command": "env | cut -d= -f1 | sort"})).await.unwrap();
        let names: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
        assert!(names.contains(&"PATH") && names.contains(&"CARGO_PKG_NAME"), "{names:?}");
        assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "the test's own environment is not inherited");
    }

    #[tokio::test]
    async fn exit_codes_fail_unless_they_are_expected() {
        let error = bash(json!({"command": "echo no >&2; exit 3"})).await.unwrap_err();
        assert_eq!(error, "exit code 3: no (permanent)");
        let result = bash(json!({"command": "exit 3", "ok_exit_codes": [0, 3]})).await.unwrap();
        assert_eq!(result["exit_code"], 3);
        assert_eq!(bash(json!({"command": "kill -9 $$"})).await.unwrap_err(), "exit code 137 (permanent)");
    }

    #[tokio::test]
    async fn the_directory_is_the_one_that_is_asked_for() {
        assert_eq!(bash(json!({"command": "pwd", "cwd": "/"})).await.unwrap()["stdout"], "/");
        let error = bash(json!({"command": "pwd", "cwd": "/nonexistent"})).await.unwrap_err();
        assert_eq!(error, "the directory `/nonexistent` does not exist (permanent)");
    }

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        use graph_model::value::Struct;
        let contract = include_str!("../../../graph-compiler/contracts/rye/bash.yaml");
        for (name, default) in Params::NAMES.iter().zip(Params::DEFAULTS) {
            let (_, field) = contract.split_once(&format!("\n    {name}:\n")).expect("the contract has the parameter");
            let stated = field.lines().take_while(|line| line.starts_with("      "));
            let stated = stated.into_iter().find_map(|line| line.trim().strip_prefix("default: "));
            assert_eq!(stated, *default, "{name}");
        }
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_stopped_with_all_it_started() {
        let began = Instant::now();
        let marker = format!("/tmp/graph-bash-test-{}", std::process::id());
        let command = format!("(sleep 2; touch {marker}) & sleep 60");
        let error = bash(json!({"command": command, "timeout": 0.2})).await.unwrap_err();
        assert_eq!(error, "the command was stopped after 200ms (timeout) (transient)");
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert!(!Path::new(&marker).exists(), "the background process was killed too");
    }

    #[tokio::test]
    async fn a_process_left_in_the_background_does_not_hold_up_the_step() {
        let began = Instant::now();
        let result = bash(json!({"command": "sleep 60 & echo done"})).await.unwrap();
        assert_eq!(result["stdout"], "done");
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn too_much_output_stops_the_command() {
        let error = bash(json!({"command": "yes", "output_limit": 100_000})).await.unwrap_err();
        assert_eq!(error, "the command was stopped: it printed more than 100000 bytes (permanent)");
        let exact =
            bash(json!({"command": "head -c 1000 /dev/zero | tr '\\0' x", "output_limit": 1000})).await.unwrap();
        assert_eq!(exact["stdout"].as_str().unwrap().len(), 1000);
    }

    #[tokio::test]
    async fn output_that_is_no_text_is_an_error_and_not_mangled() {
        let error = bash(json!({"command": "printf 'a\\xff'"})).await.unwrap_err();
        assert_eq!(error, "stdout is not UTF-8 text (byte 1); pipe it through `base64` or `iconv` (permanent)");
    }

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_is_stopped() {
        let marker = format!("/tmp/graph-bash-drop-{}", std::process::id());
        let running = tokio::spawn(bash(json!({"command": format!("sleep 1; touch {marker}")})));
        tokio::time::sleep(Duration::from_millis(300)).await;
        running.abort();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!Path::new(&marker).exists());
    }

    #[tokio::test]
    async fn parameters_that_make_no_sense_are_errors() {
        for (params, error) in [
            (json!({}), "expected a string, found nothing at `command`"),
            (json!({"command": "x", "timeout": 0}), "expected a number of seconds above 0"),
            (json!({"command": "x", "timeout": -1}), "expected a number of seconds above 0"),
            (json!({"command": "x", "env": {"A=B": "x"}}), "`A=B` cannot be set as an environment variable"),
            (json!({"command": "a\u{0}b"}), "a command cannot contain a zero byte"),
        ] {
            let found = bash(params).await.unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}

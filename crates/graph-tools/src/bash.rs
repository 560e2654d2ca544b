//! `rye/bash`: a command, in a process group of its own.
//!
//! Values reach the command as environment variables and stdin, or as part of its text where the graph puts them there.
//! Nothing is searched for templates again.

use std::sync::LazyLock;

use graph_model::value::{FromValue, IndexMap, Value};
use tokio::process::Command;

use super::process::{self, Limits, Setting};
use graph_engine::ActionError;
use graph_engine::Call;

#[derive(Debug)]
struct BashParams {
    command: String,
    cwd: Option<String>,
    env: Option<IndexMap<String, String>>,
    stdin: Option<String>,
    timeout: f64,
    output_limit: i64,
    ok_exit_codes: Vec<i64>,
}

graph_engine::__object!(BashParams {
    0 command: "command",
    1 cwd: "cwd",
    2 env: "env",
    3 stdin: "stdin",
    4 timeout: "timeout" = "600",
    5 output_limit: "output_limit" = "1048576",
    6 ok_exit_codes: "ok_exit_codes" = "[0]",
});

pub(super) async fn perform(call: &Call, params: Value) -> Result<Value, ActionError> {
    let params = BashParams::from_value(params)?;
    let limits = Limits::of(params.timeout, params.output_limit)?;
    guard(call, &params)?;
    if params.command.contains('\0') {
        return Err(ActionError::permanent("a command cannot contain a zero byte"));
    }
    // Not in the `PATH` of the call: a value in it would decide which program is started.
    let mut process = Command::new(process::find_in_path("bash")?);
    process.arg("-c").arg(&params.command);
    let BashParams { command, cwd, env, stdin, ok_exit_codes, .. } = params;
    let setting = Setting { cwd, env, stdin, limits, ok_exit_codes };
    let expanded = LazyLock::new(|| graph_shell::expanded(&command));
    setting.execute(call, process, "bash", |name| expanded.contains(name)).await
}

/// Refuses a command that would read untrusted values as code.
///
/// The compiler checks commands in the graph in the same way. This check is for commands and variables that are known only now.
fn guard(call: &Call, params: &BashParams) -> Result<(), ActionError> {
    let untrusted = call.untrusted();
    if !untrusted.part("command").is_nothing() {
        return Err(ActionError::permanent(
            "the command is refused: a value that somebody else chose is a part of it; pass the value in `env`",
        ));
    }
    let foreign = process::foreign(params.env.as_ref(), untrusted);
    match graph_shell::scan(&params.command, &foreign).first() {
        Some(danger) => Err(process::refusal(danger)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;
    use crate::ToolConfig;
    use crate::testing::{assert_contract, call, guarded_call};
    use graph_model::untrusted::Untrusted;

    async fn bash(params: Value) -> Result<Value, String> {
        perform(&call(ToolConfig::new(), &["CARGO_PKG_NAME"]), params).await.map_err(|error| format!("{error:?}"))
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

    #[tokio::test]
    async fn bash_is_the_one_in_the_programs_own_path() {
        let directory = tempfile::tempdir().unwrap();
        let evil = directory.path().join("bash");
        std::fs::write(&evil, "#!/bin/sh\necho evil\n").unwrap();
        std::fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let env = json!({"PATH": directory.path()});
        assert_eq!(bash(json!({"command": "echo well", "env": env})).await.unwrap()["stdout"], "well");
    }

    #[tokio::test]
    async fn a_command_knows_the_idempotency_key_and_the_attempt() {
        let mut call = call(ToolConfig::new(), &[]);
        call = call.again(3);
        let result = perform(&call, json!({"command": "echo $RYE_IDEMPOTENCY_KEY $RYE_ATTEMPT"})).await.unwrap();
        assert_eq!(result["stdout"], format!("{} 3", call.idempotency_key()));
    }

    #[tokio::test]
    async fn untrusted_values_in_a_computed_command_are_guarded() {
        let untrusted = |env: &str, stdin: bool| {
            let env = Untrusted::of_parts([(env.to_owned(), Untrusted::everything())]);
            let stdin = if stdin { Untrusted::everything() } else { Untrusted::Nothing };
            Untrusted::of_parts([("env".to_owned(), env), ("stdin".to_owned(), stdin)])
        };
        for (params, guarded, error) in [
            (json!({"command": "echo \"$X\"", "env": {"X": "1"}}), untrusted("X", false), None),
            (json!({"command": "cat", "stdin": "x"}), untrusted("", true), None),
            (
                json!({"command": "echo $((X))", "env": {"X": "1"}}),
                untrusted("X", false),
                Some("the value of `$X` is evaluated"),
            ),
            (
                json!({"command": "bash", "stdin": "x"}),
                untrusted("", true),
                Some("what the command reads from `stdin` becomes"),
            ),
            (
                json!({"command": "x", "env": {"PATH": "1"}}),
                untrusted("PATH", false),
                Some("`PATH` is refused in `env`"),
            ),
            (
                json!({"command": "x"}),
                Untrusted::of_parts([("command".into(), Untrusted::everything())]),
                Some("a value that"),
            ),
        ] {
            let call = guarded_call(guarded);
            let done = perform(&call, params.clone()).await;
            match (done, error) {
                (Ok(_), None) => {}
                (Err(found), Some(error)) => assert!(found.to_string().contains(error), "{found}"),
                (done, _) => panic!("{params}: {done:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_command_that_signals_its_group_is_still_guarded() {
        let command = "trap '' TERM HUP INT QUIT USR1; sleep 0.2; kill -TERM 0; kill -USR1 0; kill -HUP 0; echo done";
        assert_eq!(bash(json!({"command": command})).await.unwrap()["stdout"], "done");
        let error = bash(json!({"command": "sleep 0.2; kill -KILL $(ps -o pgid= -p $$); sleep 60"})).await.unwrap_err();
        assert!(error.contains("it ended the process that would end it together with the program"), "{error}");
    }

    #[test]
    fn the_parameters_and_defaults_are_those_of_the_contract() {
        assert_contract::<BashParams>(include_str!("../../../graph-compiler/contracts/rye/bash.yaml"));
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
    async fn output_that_is_not_utf8_is_an_error_and_not_mangled() {
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
            (json!({"command": "x", "timeout": 0}), "`timeout` is a number of seconds above 0, and `0` is not one"),
            (json!({"command": "x", "timeout": -1}), "`timeout` is a number of seconds above 0, and `-1` is not one"),
            (
                json!({"command": "x", "output_limit": -1}),
                "`output_limit` is a number of bytes above 0, and `-1` is not one",
            ),
            (json!({"command": "x", "env": {"A=B": "x"}}), "`A=B` cannot be set as an environment variable"),
            (
                json!({"command": "x", "env": {"RYE_IDEMPOTENCY_KEY": "x"}}),
                "`RYE_IDEMPOTENCY_KEY` is set by the runtime",
            ),
            (json!({"command": "a\u{0}b"}), "a command cannot contain a zero byte"),
        ] {
            let found = bash(params).await.unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}

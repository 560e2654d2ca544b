//! `rye/exec`: a program and its arguments, without a shell.

use std::path::{Path, PathBuf};

use graph_model::untrusted::Untrusted;
use graph_model::value::{FromValue, IndexMap, Value};
use graph_shell::ProgramArgument;
use tokio::process::Command;

use super::process::{self, Limits, Setting};
use graph_engine::ActionError;
use graph_engine::Call;

#[derive(Debug)]
struct ExecParams {
    program: String,
    args: Vec<String>,
    cwd: Option<String>,
    env: Option<IndexMap<String, String>>,
    stdin: Option<String>,
    timeout: f64,
    output_limit: i64,
    ok_exit_codes: Vec<i64>,
}

graph_engine::__object!(ExecParams {
    0 program: "program",
    1 args: "args" = "[]",
    2 cwd: "cwd",
    3 env: "env",
    4 stdin: "stdin",
    5 timeout: "timeout" = "600",
    6 output_limit: "output_limit" = "1048576",
    7 ok_exit_codes: "ok_exit_codes" = "[0]",
});

pub(super) async fn perform(call: &Call, params: Value) -> Result<Value, ActionError> {
    let params = ExecParams::from_value(params)?;
    let limits = Limits::of(params.timeout, params.output_limit)?;
    guard(call, &params)?;
    let mut command = Command::new(find(&params.program)?);
    if params.args.iter().any(|argument| argument.contains('\0')) {
        return Err(ActionError::permanent("an argument cannot contain a zero byte"));
    }
    command.args(&params.args);
    let ExecParams { program, cwd, env, stdin, ok_exit_codes, .. } = params;
    let setting = Setting { cwd, env, stdin, limits, ok_exit_codes };
    // No shell expands anything: the program itself reads the variables.
    setting.execute(call, command, &format!("`{program}`"), |_| false).await
}

/// Returns the path of a program: an absolute path as it is, a name as found in `PATH`.
fn find(program: &str) -> Result<PathBuf, ActionError> {
    let refused =
        |why: &str| Err(ActionError::permanent(format!("`{}` could not be started: {why}", program.escape_debug())));
    if program.is_empty() || program.contains('\0') {
        return refused("that is not the name of a program");
    }
    if Path::new(program).is_absolute() {
        return Ok(program.into());
    }
    if program.contains('/') {
        return refused("the path is relative; write an absolute one, or the name of a program in a directory of PATH");
    }
    process::find_in_path(program)
}

/// Refuses to start a program that would read untrusted values as code.
fn guard(call: &Call, params: &ExecParams) -> Result<(), ActionError> {
    let untrusted = call.untrusted();
    let of_program = untrusted.part("program");
    let of_args = untrusted.part("args");
    let foreign = process::foreign(params.env.as_ref(), untrusted);
    let mut arguments = vec![argument(&params.program, of_program)];
    let parts: Vec<&Untrusted> = (0..params.args.len()).map(|at| of_args.part(&at.to_string())).collect();
    arguments.extend(params.args.iter().zip(parts).map(|(text, part)| argument(text, part)));
    match graph_shell::scan_program(&arguments, &foreign).first() {
        Some(danger) => Err(process::refusal(danger)),
        None => Ok(()),
    }
}

fn argument<'a>(text: &'a str, untrusted: &'a Untrusted) -> ProgramArgument<'a> {
    match untrusted {
        Untrusted::Nothing => ProgramArgument { text, is_foreign: false },
        Untrusted::Behind(beginning) => ProgramArgument { text: beginning, is_foreign: true },
        Untrusted::Parts(_) => ProgramArgument { text: "", is_foreign: true },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ToolConfig;
    use crate::testing::{assert_contract, call, guarded_call};

    async fn exec(params: Value) -> Result<Value, String> {
        perform(&call(ToolConfig::new(), &[]), params).await.map_err(|error| format!("{error:?}"))
    }

    #[tokio::test]
    async fn arguments_arrive_as_they_are() {
        let evil = "$(touch /tmp/evil) `id` * ; rm -rf \"'\n";
        let result = exec(json!({"program": "printf", "args": ["%s|", evil, "", "-x"]})).await.unwrap();
        assert_eq!(result, json!({"stdout": format!("{evil}||-x|"), "stderr": "", "exit_code": 0}));
    }

    #[tokio::test]
    async fn stdin_env_and_directory_are_those_of_the_call() {
        let result = exec(json!({"program": "cat", "stdin": "in\n"})).await.unwrap();
        assert_eq!(result["stdout"], "in");
        let result = exec(json!({"program": "env", "env": {"A": "b"}})).await.unwrap();
        let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
        assert!(
            lines.contains(&"A=b") && lines.iter().any(|line| line.starts_with("RYE_IDEMPOTENCY_KEY=")),
            "{lines:?}"
        );
        assert_eq!(exec(json!({"program": "pwd", "cwd": "/"})).await.unwrap()["stdout"], "/");
    }

    #[tokio::test]
    async fn failures_are_those_of_any_command() {
        let error = exec(json!({"program": "sh", "args": ["-c", "echo no >&2; exit 3"]})).await.unwrap_err();
        assert_eq!(error, "exit code 3: no (permanent)");
        let error = exec(json!({"program": "sleep", "args": ["60"], "timeout": 0.2})).await.unwrap_err();
        assert_eq!(error, "the command was stopped after 200ms (timeout) (transient)");
        for (program, expected) in [
            ("no-such-program", "no directory in PATH has a program of that name"),
            ("bin/tool", "the path is relative"),
            ("./tool", "the path is relative"),
            ("", "that is not the name of a program"),
            ("/no/such", "`/no/such` could not be started"),
        ] {
            let error = exec(json!({"program": program})).await.unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn a_program_that_would_execute_a_value_is_not_started() {
        let untrusted = |at: &str, beginning: &str| {
            let args = Untrusted::of_parts([(at.to_owned(), Untrusted::Behind(beginning.to_owned()))]);
            Untrusted::of_parts([("args".to_owned(), args)])
        };
        let params = json!({"program": "bash", "args": ["-c", "echo \"$1\"", "_", "x"]});
        assert_eq!(perform(&guarded_call(untrusted("3", "")), params.clone()).await.unwrap()["stdout"], "x");
        let error = perform(&guarded_call(untrusted("1", "")), params.clone()).await.unwrap_err().to_string();
        assert!(error.starts_with("the command is refused: argument 2 becomes code that `bash` executes"), "{error}");
        let program = Untrusted::of_parts([("program".to_owned(), Untrusted::everything())]);
        let error = perform(&guarded_call(program), params).await.unwrap_err().to_string();
        assert!(error.contains("decides which program is started"), "{error}");
    }

    #[test]
    fn the_parameters_and_defaults_are_those_of_the_contract() {
        assert_contract::<ExecParams>(include_str!("../../../graph-compiler/contracts/rye/exec.yaml"));
    }
}

//! Tools that are separate programs: parameters as JSON on stdin, the result as JSON on stdout.
//!
//! The contract is signed, so its program name and arguments are trusted. No shell reads them, and no value of the graph
//! becomes part of them. The program's file is not signed; a contract may pin it with `sha256`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use graph_model::digest::Digest;
use graph_model::number::{JsonError, read_json};
use graph_model::subprocess::Subprocess;
use graph_model::value::Value;
use tokio::process::Command;

use super::process::{self, EndedProcess, RunningProcess};
use super::{ToolConfig, config};
use graph_engine::ActionError;
use graph_engine::Call;

pub(super) async fn perform(spec: &Subprocess, call: &Call, params: &Value) -> Result<Value, ActionError> {
    let running = start(spec, call, Stdio::piped()).await?;
    let time = Duration::from_millis(spec.timeout_ms);
    let ended = process::finish(running, Some(serde_json::to_vec(params)?), time).await?;
    match ended.failure(&spec.ok_exit_codes) {
        None => result(&ended),
        Some(failure) => Err(failure),
    }
}

/// Starts the program that a contract names.
///
/// # Errors
///
/// If it cannot be started, or differs from the one that the contract pins.
pub(super) async fn start(spec: &Subprocess, call: &Call, stdin: Stdio) -> Result<RunningProcess, ActionError> {
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err(ActionError::permanent("the tool's `command` names no program"));
    };
    let path = find(program, config(call))?;
    if let Some(pinned) = spec.sha256 {
        verify(program, path.clone(), pinned).await?;
    }
    let mut command = Command::new(&path);
    command.args(arguments);
    process::small_environment(&mut command, call);
    let own = |name: &str| graph_shell::RESERVED.contains(&name);
    command.envs(spec.env.iter().filter(|(name, _)| !own(name)).map(|(name, value)| (name, value)));
    if let Some(cwd) = &spec.cwd {
        let directory = below_programs(cwd, config(call))?;
        if !directory.is_dir() {
            return Err(ActionError::permanent(format!("the directory `{cwd}` does not exist")));
        }
        command.current_dir(directory);
    }
    let most_output = usize::try_from(spec.output_limit).unwrap_or(usize::MAX);
    RunningProcess::start(&mut command, stdin, most_output)
        .map_err(|error| ActionError::permanent(format!("`{program}` could not be started: {error}")))
}

/// Returns the program's output if it is JSON, else the result of any command (R184).
///
/// # Errors
///
/// If an object in it has a name twice, or an integer cannot be represented exactly.
fn result(ended: &EndedProcess) -> Result<Value, ActionError> {
    match read_json(&ended.stdout) {
        Ok(value) => Ok(value),
        Err(JsonError::Syntax(_)) => Ok(ended.to_value()),
        Err(error) => Err(ActionError::permanent(format!("what the program printed cannot be read: {error}"))),
    }
}

/// Finds a program: by its path if the name contains a `/`, else in the directories of `PATH`.
fn find(program: &str, config: &ToolConfig) -> Result<PathBuf, ActionError> {
    if program.contains('/') {
        return below_programs(program, config);
    }
    process::find_in_path(program)
}

/// Resolves a path in the contract against the directory that the program names.
fn below_programs(path: &str, config: &ToolConfig) -> Result<PathBuf, ActionError> {
    if Path::new(path).is_absolute() {
        return Ok(path.into());
    }
    let directory = config.program_directory().ok_or_else(|| {
        ActionError::permanent(format!(
            "`{path}` is relative, and the program does not say to what: it names the directory with `ToolConfig::programs`"
        ))
    })?;
    Ok(directory.join(path))
}

/// Compares the program's file with the digest that the contract pins.
///
/// The file is read just before the start and is not locked meanwhile: a user who can write to it at that moment can bypass
/// the check.
async fn verify(program: &str, path: PathBuf, pinned: Digest) -> Result<(), ActionError> {
    let found = tokio::task::spawn_blocking(move || digest(&path)).await?;
    let found = found.map_err(|error| ActionError::permanent(format!("`{program}` could not be read: {error}")))?;
    if found != pinned {
        return Err(ActionError::permanent(format!(
            "`{program}` is not the program that its contract pins: its SHA-256 is {found:.12}…, not {pinned:.12}…"
        )));
    }
    Ok(())
}

fn digest(path: &Path) -> std::io::Result<Digest> {
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.read_to_end(&mut bytes)?;
    Ok(Digest::of(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::super::testing::call;
    use super::*;

    fn shell(script: &str) -> Subprocess {
        Subprocess::new(["bash", "-c", script].map(str::to_owned).to_vec())
    }

    async fn run(spec: &Subprocess, params: Value) -> Result<Value, String> {
        perform(spec, &call(ToolConfig::new(), &["CARGO_PKG_NAME"]), &params)
            .await
            .map_err(|error| format!("{error:?}"))
    }

    /// Returns a directory with the program `bin/tool`.
    fn programs(script: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("bin")).unwrap();
        let program = directory.path().join("bin/tool");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        directory
    }

    #[tokio::test]
    async fn params_go_in_as_json_and_json_output_becomes_the_result() {
        let params = json!({"card": "$(id) ${state.x} \"", "price": 3});
        assert_eq!(run(&shell("cat"), params.clone()).await.unwrap(), params);
        assert_eq!(run(&shell("echo '[1, 2]'"), json!({})).await.unwrap(), json!([1, 2]));
    }

    #[tokio::test]
    async fn output_that_is_not_json_is_returned_with_the_exit_code() {
        let result = run(&shell("echo hello; echo there >&2"), json!({})).await.unwrap();
        assert_eq!(result, json!({"stdout": "hello", "stderr": "there", "exit_code": 0}));
        let result = run(&shell("true"), json!({})).await.unwrap();
        assert_eq!(result, json!({"stdout": "", "stderr": "", "exit_code": 0}));
    }

    #[tokio::test]
    async fn exit_codes_fail_unless_they_are_expected() {
        let error = run(&shell("echo '{}'; echo first >&2; echo no money >&2; exit 3"), json!({})).await.unwrap_err();
        assert_eq!(error, "exit code 3: no money (permanent)");
        let spec = Subprocess { ok_exit_codes: vec![3], ..shell("echo '{\"a\": 1}'; exit 3") };
        assert_eq!(run(&spec, json!({})).await.unwrap(), json!({"a": 1}));
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_stopped() {
        let spec = Subprocess { timeout_ms: 200, ..shell("sleep 60") };
        let error = run(&spec, json!({})).await.unwrap_err();
        assert_eq!(error, "the command was stopped after 200ms (timeout) (transient)");
    }

    #[tokio::test]
    async fn output_that_is_too_much_or_no_text_is_an_error() {
        let spec = Subprocess { output_limit: 1000, ..shell("yes") };
        let error = run(&spec, json!({})).await.unwrap_err();
        assert_eq!(error, "the command was stopped: it printed more than 1000 bytes (permanent)");
        let error = run(&shell("printf 'a\\xff'"), json!({})).await.unwrap_err();
        assert!(error.starts_with("stdout is not UTF-8 text (byte 1)"), "{error}");
    }

    #[tokio::test]
    async fn a_program_sees_only_a_small_environment_and_its_contract_env() {
        let spec = Subprocess { env: vec![("MODE".into(), "live".into())], ..shell("env | cut -d= -f1") };
        let result = run(&spec, json!({})).await.unwrap();
        let names: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
        assert!(names.contains(&"MODE") && names.contains(&"CARGO_PKG_NAME"), "{names:?}");
        assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "{names:?}");
    }

    #[tokio::test]
    async fn a_missing_program_error_says_where_it_was_searched() {
        let error = run(&Subprocess::new(vec!["no-such-program".into()]), json!({})).await.unwrap_err();
        let expected =
            "`no-such-program` could not be started: no directory in PATH has a program of that name (permanent)";
        assert_eq!(error, expected);
        let error = run(&Subprocess::new(vec!["/no/such/program".into()]), json!({})).await.unwrap_err();
        assert!(error.starts_with("`/no/such/program` could not be started: "), "{error}");
    }

    #[tokio::test]
    async fn a_relative_program_resolves_below_the_programs_directory() {
        let directory = programs("#!/bin/sh\npwd\n");
        fs::create_dir(directory.path().join("work")).unwrap();
        let spec = Subprocess { cwd: Some("work".into()), ..Subprocess::new(vec!["bin/tool".into()]) };
        let error = run(&spec, json!({})).await.unwrap_err();
        assert!(error.contains("it names the directory with `ToolConfig::programs`"), "{error}");
        let call = call(ToolConfig::new().programs(directory.path()).unwrap(), &[]);
        let result = perform(&spec, &call, &json!({})).await.unwrap();
        let expected = directory.path().canonicalize().unwrap().join("work");
        assert_eq!(result["stdout"], expected.to_str().unwrap());
    }

    #[tokio::test]
    async fn a_pinned_program_that_was_changed_is_not_started() {
        let script = "#!/bin/sh\necho '\"done\"'\n";
        let directory = programs(script);
        let call = call(ToolConfig::new().programs(directory.path()).unwrap(), &[]);
        let spec = Subprocess { sha256: Some(Digest::of(script)), ..Subprocess::new(vec!["bin/tool".into()]) };
        assert_eq!(perform(&spec, &call, &json!({})).await.unwrap(), json!("done"));
        let marker = directory.path().join("started");
        fs::write(directory.path().join("bin/tool"), format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
        let error = perform(&spec, &call, &json!({})).await.unwrap_err().to_string();
        assert!(error.starts_with("`bin/tool` is not the program that its contract pins"), "{error}");
        assert!(!marker.exists());
    }

    #[tokio::test]
    async fn generated_code_calls_it_with_the_contract_as_json() {
        let call = call(ToolConfig::new(), &[]);
        let spec = shell("cat").to_json();
        let params: Value = json!({"a": 1});
        let result: Value = super::super::subprocess(&spec, &call, params.clone()).await.unwrap();
        assert_eq!(result, params);
        let wrong = super::super::subprocess::<Value, String>(&spec, &call, params).await.unwrap_err();
        assert_eq!(wrong.to_string(), "expected a string, found an object");
    }
}

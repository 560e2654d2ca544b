//! Attacks in which a value of somebody else becomes a command: each file of `tests/injection` is one, and none
//! succeeds.
//!
//! A fixture is the call of a node with the inputs of an attack. The tests do three things with it:
//!
//! - They execute the attack without the runtime: afterwards a file whose name begins with `TRACE` must be there.
//! - They check its graph, and run the graph if it compiles: no such file may be there, and the check or the run must
//!   have refused the attack.
//! - They move the command into an input that is declared as a command, so that the check cannot know it: the run must
//!   refuse it.
//!
//! In all texts, `DIR` is the directory of the test.

#![cfg(unix)]
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::sign;
use crate::tree::Tree;
use graph_compiler::project::Compilation;
use graph_runtime::Runtime;
use graph_runtime::dynamic::{Library, Toolbox};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// One attack.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attack {
    #[serde(default = "bash")]
    tool: String,
    /// The program that is attacked: without it, the attack cannot be executed.
    needs: Option<String>,
    inputs: Map<String, Value>,
    /// Files that the attacker has put there.
    #[serde(default)]
    files: Map<String, Value>,
    params: Map<String, Value>,
}

fn bash() -> String {
    "rye/bash".to_owned()
}

fn attacks() -> Vec<(String, Attack)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/injection");
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    let name = |file: &PathBuf| file.file_stem().unwrap().to_str().unwrap().to_owned();
    files.iter().map(|file| (name(file), serde_yaml::from_str(&fs::read_to_string(file).unwrap()).unwrap())).collect()
}

/// Replaces `DIR` in every text.
fn placed(value: &Value, directory: &Path) -> Value {
    match value {
        Value::String(text) => text.replace("DIR", directory.to_str().unwrap()).into(),
        Value::Array(list) => list.iter().map(|value| placed(value, directory)).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), placed(value, directory))).collect())
        }
        other => other.clone(),
    }
}

impl Attack {
    fn in_directory(&self, directory: &Path) -> Self {
        let place = |map: &Map<String, Value>| match placed(&Value::Object(map.clone()), directory) {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let attack = Self {
            tool: self.tool.clone(),
            needs: self.needs.clone(),
            inputs: place(&self.inputs),
            files: place(&self.files),
            params: place(&self.params),
        };
        for (name, text) in &attack.files {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text.as_str().unwrap()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        attack
    }

    /// Returns the parameters with the inputs in them, as in a run without protection.
    fn rendered(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                for (name, input) in &self.inputs {
                    let template = format!("${{inputs.{name}}}");
                    if *text == template {
                        return input.clone();
                    }
                    if text.contains(&template) {
                        return text.replace(&template, input.as_str().unwrap()).into();
                    }
                }
                value.clone()
            }
            Value::Array(list) => list.iter().map(|value| self.rendered(value)).collect(),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(key, value)| (key.clone(), self.rendered(value))).collect())
            }
            other => other.clone(),
        }
    }

    /// Executes the attack without the runtime, as an unsuspecting program would.
    fn execute(&self, directory: &Path) {
        let text = |name: &str| self.params.get(name).map(|value| self.rendered(value).as_str().unwrap().to_owned());
        let mut command = match text("program") {
            Some(program) => {
                let mut command = Command::new(program);
                let args = self.params.get("args").map(|args| self.rendered(args)).unwrap_or_else(|| json!([]));
                command.args(args.as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
                command
            }
            None => {
                let mut command = Command::new("bash");
                command.arg("-c").arg(text("command").unwrap());
                command
            }
        };
        command.env_clear().current_dir(text("cwd").map_or_else(|| directory.to_owned(), PathBuf::from));
        command.envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        if let Some(Value::Object(env)) = self.params.get("env").map(|env| self.rendered(env)) {
            command.envs(env.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // A command that reads nothing may have ended already.
        pipe.write_all(text("stdin").unwrap_or_default().as_bytes()).ok();
        drop(pipe);
        child.wait().unwrap();
    }

    /// Returns the graph of the attack, with additional inputs.
    fn graph(&self, directory: &Path, declared: &Map<String, Value>) -> String {
        let mut properties = Map::new();
        for (name, value) in &self.inputs {
            let schema = match value {
                Value::Object(_) => json!({"type": "object", "additionalProperties": {"type": "string"}}),
                Value::Array(_) => json!({"type": "array", "items": {"type": "string"}}),
                _ => json!({"type": "string"}),
            };
            properties.insert(name.clone(), schema);
        }
        properties.extend(declared.clone());
        let required: Vec<String> = properties.keys().cloned().collect();
        let mut params = self.params.clone();
        params.entry("cwd".to_owned()).or_insert_with(|| directory.to_str().unwrap().into());
        // A text that is not a template in a fixture is not one in the graph either.
        let params = escaped(&Value::Object(params));
        let graph = json!({
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": "rye/core/runtimes/state-graph/runtime",
            "permissions": [format!("rye.execute.tool.{}", self.tool.replace('/', "."))],
            "config_schema": {"type": "object", "properties": properties, "required": required},
            "config": {"start": "a", "nodes": {"a": {"action": {"item_id": self.tool, "params": params}}}},
        });
        sign(&format!("{graph}\n"))
    }
}

fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let text = text.replace("${", "$${").replace("$${inputs.", "${inputs.");
            text.into()
        }
        Value::Array(list) => list.iter().map(escaped).collect(),
        Value::Object(map) => Value::Object(map.iter().map(|(key, value)| (key.clone(), escaped(value))).collect()),
        other => other.clone(),
    }
}

fn is_there(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|place| place.join(program).is_file())
}

fn has_trace(directory: &Path) -> bool {
    let mut names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.any(|name| name.to_str().is_some_and(|name| name.starts_with("TRACE")))
}

/// Compiles a graph, and runs it if it compiles. Returns the compilation and the result of the run.
async fn attempt(graph: &str, inputs: &Map<String, Value>) -> (Compilation, Option<Result<Value, String>>) {
    let tree = Tree::new();
    tree.write("graph.yaml", graph);
    let compiled = tree.project().compile(&tree.path("graph.yaml"));
    if compiled.graph.is_none() {
        return (compiled, None);
    }
    let library = Library::open(&tree.path(""), Toolbox::new());
    let machine = library.graph(&tree.path("graph.yaml")).unwrap();
    let runtime = Runtime::builder().grant("rye.*").unwrap().build().unwrap();
    let finished = runtime.start(machine, inputs.clone()).await.unwrap().await;
    (compiled, Some(finished.map(|finished| finished.output).map_err(|error| error.to_string())))
}

fn codes(compiled: &Compilation) -> Vec<&'static str> {
    compiled.diagnostics.iter().map(|one| one.code.id).collect()
}

#[test]
fn there_are_enough_attacks_and_each_succeeds_unguarded() {
    let attacks = attacks();
    assert!(attacks.len() >= 60, "{}", attacks.len());
    let mut harmless = Vec::new();
    for (name, attack) in attacks {
        if attack.needs.as_deref().is_some_and(|program| !is_there(program)) {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        attack.in_directory(directory.path()).execute(directory.path());
        if !has_trace(directory.path()) {
            harmless.push(name);
        }
    }
    assert_eq!(harmless, Vec::<String>::new(), "executed without guards, these leave no trace");
}

#[tokio::test]
async fn no_attack_passes_the_check_or_the_run() {
    let mut problems = Vec::new();
    for (name, attack) in attacks() {
        let directory = tempfile::tempdir().unwrap();
        let attack = attack.in_directory(directory.path());
        let (compiled, ran) = attempt(&attack.graph(directory.path(), &Map::new()), &attack.inputs).await;
        if has_trace(directory.path()) {
            problems.push(format!("{name}: executed"));
        }
        let is_refused = matches!(&ran, Some(Err(error)) if error.contains("refused"));
        if !codes(&compiled).contains(&"G0180") && !is_refused {
            problems.push(format!("{name}: {:?} {ran:?}", codes(&compiled)));
        }
    }
    assert_eq!(problems, Vec::<String>::new());
}

#[tokio::test]
async fn no_attack_passes_the_run_of_an_input_command() {
    let (mut problems, mut refused) = (Vec::new(), 0);
    for (name, attack) in attacks() {
        let directory = tempfile::tempdir().unwrap();
        let mut attack = attack.in_directory(directory.path());
        let (field, sink) = if attack.tool == "rye/bash" { ("command", "shell") } else { ("program", "program") };
        if attack.params[field].as_str().unwrap().contains("${inputs.") {
            continue;
        }
        let command = attack.params.insert(field.to_owned(), "${inputs.given}".into()).unwrap();
        let declared = json!({"given": {"type": "string", "x-sink": sink}});
        let graph = attack.graph(directory.path(), declared.as_object().unwrap());
        let mut inputs = attack.inputs.clone();
        inputs.insert("given".to_owned(), command);
        let (compiled, ran) = attempt(&graph, &inputs).await;
        if has_trace(directory.path()) {
            problems.push(format!("{name}: executed"));
        }
        match ran {
            // The variables that `env` sets are known without the command.
            None if codes(&compiled) == ["G0180"] || codes(&compiled) == ["G0180", "G0180"] => {}
            Some(Err(error)) if error.contains("refused") => refused += 1,
            ran => problems.push(format!("{name}: {:?} {ran:?}", codes(&compiled))),
        }
    }
    assert_eq!(problems, Vec::<String>::new());
    assert!(refused >= 60, "{refused}");
}

/// Returns a graph with a foreach that executes a command in a directory.
fn each(over: &Value, command: &str, directory: &Path) -> String {
    let env = json!({"X": "${inputs.x}"});
    let properties = json!({"x": {"type": "string"}, "fixed": {"type": "string", "const": "printf fixed; "}});
    let graph = json!({
        "version": "1.0.0",
        "tool_type": "graph",
        "executor_id": "rye/core/runtimes/state-graph/runtime",
        "permissions": ["rye.execute.tool.rye.bash"],
        "config_schema": {"type": "object", "properties": properties, "required": ["x", "fixed"]},
        "config": {"start": "a", "nodes": {
            "a": {"type": "foreach", "over": over, "as": "one", "collect": "all", "next": "b",
                "action": {"item_id": "rye/bash", "params": {"command": command, "env": env, "cwd": directory}}},
            "b": {"type": "return", "output": "${state.all}"},
        }},
    });
    sign(&format!("{graph}\n"))
}

fn inputs(x: &str, fixed: &str) -> Map<String, Value> {
    json!({"x": x, "fixed": fixed}).as_object().unwrap().clone()
}

#[tokio::test]
async fn commands_of_constants_run_and_keep_values_out() {
    let directory = tempfile::tempdir().unwrap();
    let over = json!(["printf one; true", "echo two | tr -d '\\n'"]);
    let graph = each(&over, "${inputs.fixed}${one}; printf %s \"$X\"", directory.path());
    let (compiled, ran) = attempt(&graph, &inputs("$(touch TRACE)", "printf fixed; ")).await;
    assert!(compiled.graph.is_some(), "{:?}", codes(&compiled));
    let output = ran.unwrap().unwrap();
    let shown: Vec<&str> = output.as_array().unwrap().iter().map(|one| one["stdout"].as_str().unwrap()).collect();
    assert_eq!(shown, ["fixedone$(touch TRACE)", "fixedtwo$(touch TRACE)"]);
    assert!(!has_trace(directory.path()));
}

#[tokio::test]
async fn a_constant_that_executes_a_value_is_found() {
    let directory = tempfile::tempdir().unwrap();
    for (over, command) in [
        (json!(["echo", "eval"]), "${one} \"$X\""),
        (json!(["echo \"$X\"", "bash -c \"$X\""]), "${one}"),
        (json!(["a", "X"]), "echo $((${one} + 1))"),
        (json!([{"run": "echo"}, {"run": "eval"}]), "true; ${one.run} $X"),
    ] {
        let (compiled, ran) =
            attempt(&each(&over, command, directory.path()), &inputs("a[$(touch TRACE)]", "printf fixed; ")).await;
        assert_eq!((codes(&compiled).as_slice(), ran.is_none()), (&["G0180"][..], true), "{command}");
    }
    // There are too many items to check each at compile time, so the run has to check them.
    let many: Vec<String> = (0..9).map(|at| format!("echo {at}")).chain(["eval".to_owned()]).collect();
    let graph = each(&json!(many), "${one} \"$X\"; ${one} \"$X\"", directory.path());
    let (compiled, ran) = attempt(&graph, &inputs("touch TRACE", "printf fixed; ")).await;
    let is_refused = matches!(&ran, Some(Err(error)) if error.contains("refused"));
    assert!(is_refused && codes(&compiled) == ["G0156"], "{:?} {ran:?}", codes(&compiled));
    assert!(!has_trace(directory.path()));
}

#[tokio::test]
async fn an_input_that_differs_from_its_constant_starts_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let tree = Tree::new();
    tree.write("graph.yaml", each(&json!(["true"]), "${inputs.fixed}${one}", directory.path()));
    let library = Library::open(&tree.path(""), Toolbox::new());
    let machine = library.graph(&tree.path("graph.yaml")).unwrap();
    let runtime = Runtime::builder().grant("rye.*").unwrap().build().unwrap();
    let refused = runtime.start(machine, inputs("x", "touch TRACE; ")).await.err().unwrap().to_string();
    assert!(refused.contains("fixed"), "{refused}");
    assert!(!has_trace(directory.path()));
}

/// A source of random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// Ways in which the value of `$X` gets into another variable: `IN` is the source expansion, `OUT` the new name.
const CARRIED: [&str; 20] = [
    "OUT=\"IN\"; ",
    "OUT=IN; ",
    "OUT=$(printf %s \"IN\"); ",
    "OUT=`printf %s \"IN\"`; ",
    "read -r OUT <<< \"IN\"; ",
    "printf -v OUT %s \"IN\"; ",
    "OUT=(\"IN\"); ",
    "for OUT in \"IN\"; do :; done; ",
    "declare OUT=\"IN\"; ",
    "export OUT=\"IN\"; ",
    "OUT=x; OUT+=\"IN\"; OUT=${OUT#x}; ",
    "set -- \"IN\"; OUT=$1; ",
    "mapfile -t OUT <<< \"IN\"; ",
    "IFS= read -r OUT < <(printf '%s\\n' \"IN\"); ",
    "OUT=$(cat <<E\nIN\nE\n); ",
    "set_it() { OUT=$1; }; set_it \"IN\"; ",
    "[[ \"IN\" =~ ^(.*)$ ]]; OUT=${BASH_REMATCH[1]}; ",
    ": \"IN\"; OUT=$_; ",
    "printf %s \"IN\" > carried; mv carried moved; OUT=$(< moved); ",
    "exec 4<<< \"IN\"; read -r OUT <&4; ",
];

/// Uses of the expansion `IN`: some execute a command, some evaluate a subscript, and some are harmless.
const USED: [&str; 46] = [
    "echo \"IN\"",
    "printf '%s\\n' \"IN\"",
    "[ \"IN\" = a ] || true",
    "[[ IN == a* ]] || true",
    "case IN in a*) echo a;; *) echo b;; esac",
    "test -n \"IN\"",
    "[ \"IN\" -gt 1 ] 2> /dev/null || true",
    "cat <<< \"IN\"",
    "echo \"IN\" > out",
    "echo \"IN\" | wc -c",
    "bash -c 'echo \"$1\"' _ \"IN\"",
    "z=\"IN\"; echo \"${#z}\"",
    "eval \"IN\"",
    "bash -c \"IN\"",
    "sh <<< \"IN\"",
    "echo \"IN\" | bash",
    "IN",
    "echo \"IN\" > s.sh; . ./s.sh",
    "source <(echo \"IN\")",
    "trap \"IN\" EXIT",
    "bash -c 'eval \"$1\"' _ \"IN\"",
    "env sh -c \"IN\"",
    "xargs -0 sh -c < <(printf '%s\\0' \"IN\")",
    "command eval \"IN\"",
    "bash <<E\nIN\nE\n",
    "echo $((IN))",
    "((IN > 0)) || true",
    "[[ IN -gt 1 ]] || true",
    "let \"w = IN\"",
    "declare -i w=\"IN\"",
    "w=(1); echo \"${w[IN]}\"",
    "printf -v \"IN\" x",
    "test -v \"IN\" || true",
    "v=abc; echo \"${v:IN}\"",
    "RANDOM=\"IN\"",
    "echo hi >& \"IN\"",
    "ev{a,}l \"IN\"",
    "$'\\x65val' \"IN\"",
    "/bin/ba?h -c \"IN\"",
    "eval() { :; }; unset -f eval; eval \"IN\"",
    "bash 3<<< \"IN\" <&3",
    "dd of=s status=none <<< \"IN\"; bash \"$PWD/s\"",
    "env Q=\"IN\" bash -c 'eval \"$Q\"'",
    "echo 'eval \"$1\"' | bash -s -- \"IN\"",
    "declare -n r; for r in \"IN\"; do :; done",
    "w=IN; v=w; echo $((v))",
];

/// The positions of a command.
const AROUND: [&str; 14] = [
    "BODY",
    "BODY",
    "if true; then BODY\nfi",
    "( BODY\n)",
    "{ BODY\n}",
    "for i in 1; do BODY\ndone",
    "while :; do BODY\nbreak; done",
    "case a in b) :;; a) BODY\n;; esac",
    "echo \"$(BODY\n)\"",
    "run() { BODY\n}; run",
    "true && { BODY\n}",
    "{ BODY\n} & wait",
    "until false; do BODY\nbreak; done 2> errors",
    "set -e; BODY\n",
];

/// The scanner reports each command that executes a value, as bash shows, and reports nothing for a command that only
/// passes a value on in quotes.
#[test]
fn each_command_that_executes_a_value_is_found() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("INJECTIONS").unwrap_or(300);
    let mut draw = Draw(number("SEED").unwrap_or(1));
    let (mut executed, mut found) = (0_u64, 0_u64);
    let directory = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        let (mut body, mut value) = (String::new(), "$X".to_owned());
        for step in 0..draw.below(3) {
            let name = format!("v{step}");
            body.push_str(&draw.of(&CARRIED).replace("OUT", &name).replace("IN", &value));
            value = if draw.below(3) == 0 { format!("${{{name}}}") } else { format!("${name}") };
        }
        let used = draw.below(USED.len());
        body.push_str(&USED[used].replace("IN", &value));
        let mut command = draw.of(&AROUND).replace("BODY", &body);
        if draw.below(3) == 0 {
            command = draw.of(&AROUND).replace("BODY", &command);
        }
        let payload = draw.of(&["touch TRACE", "a[$(touch TRACE)]", "$(touch TRACE)", "x; touch TRACE"]);
        let place = directory.path().join(round.to_string());
        fs::create_dir(&place).unwrap();
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(&command).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("X", payload);
        bash.current_dir(&place).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        bash.status().unwrap();
        let foreign = graph_shell::Foreign { variables: vec!["X".to_owned()], stdin: false };
        let dangers = graph_shell::scan(&command, &foreign);
        let is_executed = has_trace(&place);
        executed += u64::from(is_executed);
        found += u64::from(!dangers.is_empty());
        assert!(!is_executed || !dangers.is_empty(), "executed, and not found, with X={payload}:\n{command}");
        // The first twelve uses are harmless in quotes, wherever the value came from.
        if used < 12 && !dangers.is_empty() {
            panic!("a false alarm: {dangers:?}\n{command}");
        }
        fs::remove_dir_all(&place).unwrap();
    }
    println!("{rounds} commands: {executed} executed the value, {found} reported");
    assert!(executed > rounds / 10);
}

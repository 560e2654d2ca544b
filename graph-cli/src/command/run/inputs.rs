//! The inputs of a run: from stdin or `--json`, overridden by `--input`.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use graph_compiler::diagnostic::nearest;
use graph_compiler::graph::Interface;
use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_model::number::{JsonError, read_json};
use graph_runtime::{Map, RunId, Value};

use super::failure::{RunCommandFailure, Voice};

/// The inputs by their names.
pub(super) type Inputs = Map<String, Value>;

// The inputs that name a run to resume (R251).
const RESUME_RUN_ID: &str = "resume_run_id";
const RESUME: &str = "resume";
const GRAPH_RUN_ID: &str = "graph_run_id";

/// How long stdin may be silent before it counts as unused.
const GRACE: Duration = Duration::from_secs(1);
/// The maximum number of bytes that are read from stdin or from a secret's file.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// Splits `name=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write `name=value`"),
    }
}

/// The source of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SecretSource {
    /// From an environment variable.
    Environment(String),
    /// From a file, without the newline at its end.
    File(PathBuf),
}

/// Splits `name=env:VAR` or `name=file:PATH`.
fn source(text: &str) -> Result<(String, SecretSource), &'static str> {
    // The message does not quote the argument, which may be the secret itself.
    let form = "write `name=env:VARIABLE` or `name=file:PATH`";
    let (name, from) = pair(text).map_err(|_| form)?;
    let source = match from.split_once(':') {
        Some(("env", variable)) if !variable.is_empty() => SecretSource::Environment(variable.to_owned()),
        Some(("file", path)) if !path.is_empty() => SecretSource::File(PathBuf::from(path)),
        _ => return Err(form),
    };
    Ok((name, source))
}

impl SecretSource {
    fn read(&self) -> Result<String, String> {
        match self {
            Self::Environment(name) => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => format!("the environment variable `{name}` is not set"),
                std::env::VarError::NotUnicode(_) => format!("the environment variable `{name}` is not UTF-8"),
            }),
            Self::File(path) => {
                let shown = path.display();
                let file = std::fs::File::open(path).map_err(|error| format!("cannot open `{shown}`: {error}"))?;
                let mut text = String::new();
                let read = file.take(MOST_BYTES).read_to_string(&mut text);
                read.map_err(|error| format!("cannot read `{shown}`: {error}"))?;
                if text.ends_with('\n') {
                    text.pop();
                    if text.ends_with('\r') {
                        text.pop();
                    }
                }
                Ok(text)
            }
        }
    }
}

/// Adds the secret inputs, which never are on a command line.
///
/// # Errors
///
/// If one cannot be read, is not a secret of the graph, or is also given elsewhere. No error quotes a secret.
pub(super) fn with_secrets(
    mut inputs: Inputs,
    secrets: &[String],
    interface: &Interface,
) -> Result<Inputs, RunCommandFailure> {
    for text in secrets {
        let (name, source) =
            &source(text).map_err(|form| RunCommandFailure::usage(format_args!("`--secret`: {form}")))?;
        let field = find(interface.inputs.as_deref(), name).map_err(RunCommandFailure::usage)?;
        let Some(field) = field.filter(|field| field.ty.has_secret()) else {
            return Err(RunCommandFailure::usage(format_args!(
                "the input `{name}` is not a secret of the graph, so its runs show it; mark it with `x-secret: true`"
            )));
        };
        if inputs.contains_key(name) {
            return Err(RunCommandFailure::usage(format_args!("the input `{name}` is given twice")));
        }
        let text = source.read().map_err(|why| RunCommandFailure::usage(format_args!("the input `{name}`: {why}")))?;
        let value = typed(&field.ty, &text).map_err(|_| {
            RunCommandFailure::usage(format_args!("the input `{name}` must be {}", field.ty.clone().not_null()))
        })?;
        inputs.insert(name.clone(), value);
    }
    Ok(inputs)
}

/// Returns the error that a secret must not be on a command line.
fn exposed(name: &str) -> RunCommandFailure {
    RunCommandFailure::usage(format_args!(
        "the input `{name}` is or contains a secret, and others see command lines: write `--secret {name}=env:VARIABLE` or \
         `--secret {name}=file:PATH`, or give it on stdin"
    ))
}

/// The inputs as JSON, which may still be arriving on stdin.
pub(super) enum Given {
    Nothing,
    Json(String),
    Stdin { reading: Receiver<StdinReading>, wait: bool },
}

/// A message from the thread that reads stdin.
pub(super) enum StdinReading {
    /// The first byte has arrived.
    Begun,
    /// Stdin has ended, or reading it has failed.
    Ended(std::io::Result<Vec<u8>>),
}

impl Given {
    /// Begins to read the inputs. A terminal is not read: to type JSON there, a person passes `--json -`.
    pub(super) fn begin(json: Option<&str>, resumed: bool) -> Self {
        match json {
            _ if resumed => Self::Nothing,
            Some("-") => Self::Stdin { reading: read_stdin(), wait: true },
            Some(text) => Self::Json(text.to_owned()),
            None if std::io::stdin().is_terminal() => Self::Nothing,
            None => Self::Stdin { reading: read_stdin(), wait: false },
        }
    }

    /// Returns the text, and its name in messages. `named` says whether the command line names inputs.
    ///
    /// If stdin is open and silent, nobody can tell whether inputs are still to come. With inputs on the command line, the
    /// run starts without those of stdin. Otherwise this is an error, because a run without its inputs is a different run:
    /// the user must say whether there are inputs.
    fn text(self, named: bool, voice: Voice) -> Result<(String, &'static str), RunCommandFailure> {
        let (reading, wait) = match self {
            Self::Nothing => return Ok((String::new(), "")),
            Self::Json(text) => return Ok((text, "`--json`")),
            Self::Stdin { reading, wait } => (reading, wait),
        };
        let gone = |_| RunCommandFailure::usage("stdin cannot be read");
        let mut answer = match reading.recv_timeout(GRACE) {
            Err(RecvTimeoutError::Timeout) if !wait && !named => {
                return Err(RunCommandFailure::usage(
                    "stdin is open and silent: write `--json -` to wait for inputs on it, or `</dev/null` if there are no inputs",
                ));
            }
            Err(RecvTimeoutError::Timeout) if !wait => {
                voice.note("stdin is open and silent, so no inputs are read from it; `--json -` waits for them");
                return Ok((String::new(), ""));
            }
            Err(RecvTimeoutError::Timeout) => reading.recv().map_err(gone)?,
            other => other.map_err(|_| RunCommandFailure::usage("stdin cannot be read"))?,
        };
        let bytes = loop {
            match answer {
                StdinReading::Begun => answer = reading.recv().map_err(gone)?,
                StdinReading::Ended(bytes) => break bytes,
            }
        };
        let bytes = bytes.map_err(|error| RunCommandFailure::usage(format_args!("stdin cannot be read: {error}")))?;
        let text =
            String::from_utf8(bytes).map_err(|_| RunCommandFailure::usage("the inputs on stdin are not UTF-8"))?;
        Ok((text, "stdin"))
    }
}

/// Reads stdin on a thread of its own, which is abandoned if nothing ever arrives.
fn read_stdin() -> Receiver<StdinReading> {
    let (tell, reading) = mpsc::channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut bytes = vec![0];
        let ended = loop {
            match stdin.read(&mut bytes) {
                Ok(0) => break Ok(Vec::new()),
                Ok(_) => {
                    // There is no receiver any more if the run continues without stdin.
                    tell.send(StdinReading::Begun).ok();
                    let rest = stdin.take(MOST_BYTES).read_to_end(&mut bytes);
                    break rest.and_then(|_| match u64::try_from(bytes.len()) {
                        Ok(length) if length <= MOST_BYTES => Ok(bytes),
                        _ => Err(std::io::Error::other(format!("it has more than {MOST_BYTES} bytes"))),
                    });
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        tell.send(StdinReading::Ended(ended)).ok();
    });
    reading
}

/// Collects the inputs. The graph's schema says how a value of `--input` is read.
///
/// # Errors
///
/// If the JSON is not an object, or if an input is not in the graph's schema or cannot be read as its type.
pub(super) fn collect(
    given: Given,
    pairs: &[(String, String)],
    interface: &Interface,
    voice: Voice,
) -> Result<(Inputs, Option<RunId>), RunCommandFailure> {
    let is_on_command_line = matches!(given, Given::Json(_));
    let (text, place) = given.text(!pairs.is_empty(), voice)?;
    let mut inputs = match text.trim() {
        "" => Inputs::new(),
        text => match read_json(text) {
            Ok(Value::Object(inputs)) => inputs,
            Ok(_) => return Err(RunCommandFailure::usage(format_args!("the inputs of {place} must be a JSON object"))),
            Err(error) => {
                return Err(RunCommandFailure::usage(format_args!(
                    "the inputs of {place} cannot be read as JSON: {error}"
                )));
            }
        },
    };
    let fields = interface.inputs.as_deref();
    let resume = resumed(&mut inputs, fields).map_err(RunCommandFailure::usage)?;
    if resume.is_some() && !(inputs.is_empty() && pairs.is_empty()) {
        return Err(RunCommandFailure::usage(
            "a resumed run has the inputs that it began with: give only the id of the run",
        ));
    }
    for name in inputs.keys() {
        let field = find(fields, name).map_err(RunCommandFailure::usage)?;
        if is_on_command_line && field.is_some_and(|field| field.ty.has_secret()) {
            return Err(exposed(name));
        }
    }
    let mut named: Vec<&str> = Vec::new();
    for (name, text) in pairs {
        if named.contains(&name.as_str()) {
            return Err(RunCommandFailure::usage(format_args!("the input `{name}` is given twice")));
        }
        named.push(name);
        let ty = find(fields, name).map_err(RunCommandFailure::usage)?.map_or_else(Type::any, |field| field.ty.clone());
        if ty.has_secret() {
            return Err(exposed(name));
        }
        let value =
            typed(&ty, text).map_err(|why| RunCommandFailure::usage(format_args!("the input `{name}` {why}")))?;
        inputs.insert(name.clone(), value);
    }
    Ok((inputs, resume))
}

/// Removes the id of the run to resume from the inputs, if they have one: `resume_run_id`, or `resume: true` with
/// `graph_run_id` (R251).
///
/// # Errors
///
/// If the graph has an input of that name, which makes the meaning ambiguous; or if the value is not the id of a run.
fn resumed(inputs: &mut Inputs, fields: Option<&[TypedField]>) -> Result<Option<RunId>, String> {
    let is_wished = inputs.get(RESUME) == Some(&Value::Bool(true)) && inputs.contains_key(GRAPH_RUN_ID);
    let names: &[&str] = match (inputs.contains_key(RESUME_RUN_ID), is_wished) {
        (true, _) => &[RESUME_RUN_ID],
        (false, true) => &[RESUME, GRAPH_RUN_ID],
        (false, false) => return Ok(None),
    };
    let has = |name: &&&str| fields.is_some_and(|fields| fields.iter().any(|field| field.name == **name));
    if let Some(name) = names.iter().find(has) {
        return Err(format!(
            "`{name}` is an input of the graph, and may also name a run to resume: give the input with `--input`, or the run \
             with `--resume`"
        ));
    }
    let mut run = Value::Null;
    for name in names {
        // The last one names the run.
        run = inputs.shift_remove(*name).unwrap_or_default();
    }
    let name = names.last().copied().unwrap_or_default();
    let Value::String(run) = run else { return Err(format!("`{name}` must be the id of a run")) };
    RunId::new(run).map(Some).map_err(|error| format!("`{name}`: {error}"))
}

/// Finds the input with that name; `None` if the graph does not declare its inputs.
fn find<'f>(fields: Option<&'f [TypedField]>, name: &str) -> Result<Option<&'f TypedField>, String> {
    let Some(fields) = fields else { return Ok(None) };
    if let Some(field) = fields.iter().find(|field| field.name == name) {
        return Ok(Some(field));
    }
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let help = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "it takes none".to_owned(),
        None => format!("it takes `{}`", names.join("`, `")),
    };
    Err(format!("the graph has no input `{name}`; {help}"))
}

/// Reads a string as a value of the type that the graph wants.
fn typed(ty: &Type, text: &str) -> Result<Value, String> {
    let json = || read_json(text).map_err(|error| error.to_string());
    let is_text = matches!(ty.kind, TypeKind::String | TypeKind::Enum(_) | TypeKind::Any | TypeKind::Never);
    if ty.nullable && !is_text && text == "null" {
        return Ok(Value::Null);
    }
    match &ty.kind {
        TypeKind::String => Ok(text.into()),
        TypeKind::Enum(texts) if texts.iter().any(|one| one == text) => Ok(text.into()),
        TypeKind::Enum(texts) => Err(format!("must be one of `{}`, and is `{text}`", texts.join("`, `"))),
        TypeKind::Boolean => {
            text.parse::<bool>().map(Value::from).map_err(|_| format!("must be `true` or `false`, and is `{text}`"))
        }
        TypeKind::Integer => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let bounds = match (is_whole, text.parse::<i64>()) {
                (true, Err(_)) => " from -2^63 to 2^63-1",
                (true, Ok(_)) => " without leading zeros",
                (false, _) => "",
            };
            // As in JSON: `03` may be meant as a string, or in base 8.
            let is_json = is_whole && (digits.len() == 1 || !digits.starts_with('0'));
            let number = text.parse::<i64>().ok().filter(|_| is_json).map(Value::from);
            number.ok_or_else(|| format!("must be a whole number{bounds}, and is `{text}`"))
        }
        TypeKind::Number => match read_json(text) {
            Ok(number @ Value::Number(_)) => Ok(number),
            Err(error @ JsonError::TooLarge { .. }) => Err(format!("cannot be read: {error}")),
            _ => Err(format!("must be a number, and is `{text}`")),
        },
        TypeKind::List(_) => match json() {
            Ok(list @ Value::Array(_)) => Ok(list),
            Ok(_) => Err(format!("must be a list in JSON, and is `{text}`")),
            Err(error) => Err(format!("must be a list in JSON: {error}")),
        },
        TypeKind::Map(_) | TypeKind::Object(_) => match json() {
            Ok(map @ Value::Object(_)) => Ok(map),
            Ok(_) => Err(format!("must be an object in JSON, and is `{text}`")),
            Err(error) => Err(format!("must be an object in JSON: {error}")),
        },
        // A value that only looks like a number or a word of JSON may be meant as a string: a postal code, a version.
        TypeKind::Any | TypeKind::Never if text.starts_with(['{', '[', '"']) => {
            json().map_err(|error| format!("begins like JSON, and is not JSON: {error}"))
        }
        TypeKind::Any | TypeKind::Never => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_input_is_read_as_its_type() {
        let of = |kind| Type::of(kind);
        let list = || of(TypeKind::List(Box::new(Type::any())));
        for (ty, text, expected) in [
            (of(TypeKind::String), "12", json!("12")),
            (of(TypeKind::String), "", json!("")),
            (of(TypeKind::String).or_null(), "null", json!("null")),
            (of(TypeKind::Integer), "-12", json!(-12)),
            (of(TypeKind::Integer).or_null(), "null", json!(null)),
            (of(TypeKind::Number), "1.5", json!(1.5)),
            (of(TypeKind::Boolean), "true", json!(true)),
            (of(TypeKind::Enum(vec!["a".into()])), "a", json!("a")),
            (list(), "[1, \"x\"]", json!([1, "x"])),
            (of(TypeKind::Object(Vec::new())), "{\"a\": 1}", json!({"a": 1})),
            (Type::any(), "01234", json!("01234")),
            (Type::any(), "[1]", json!([1])),
            (Type::any(), "\"1\"", json!("1")),
        ] {
            assert_eq!(typed(&ty, text), Ok(expected), "{text}");
        }
        for (ty, text) in [
            (of(TypeKind::Integer), "1.5"),
            (of(TypeKind::Integer), "null"),
            (of(TypeKind::Integer), ""),
            (of(TypeKind::Integer), "03"),
            (of(TypeKind::Integer), "-03"),
            (of(TypeKind::Integer), "+3"),
            (of(TypeKind::Integer), " 3"),
            (of(TypeKind::Object(Vec::new())), "{\"a\": 1, \"a\": 2}"),
            (of(TypeKind::Number), "NaN"),
            (of(TypeKind::Number), "\"1\""),
            (of(TypeKind::Boolean), "yes"),
            (of(TypeKind::Enum(vec!["a".into()])), "b"),
            (list(), "{}"),
            (list(), "a,b"),
            (of(TypeKind::Object(Vec::new())), "[]"),
            (Type::any(), "[1"),
        ] {
            assert!(typed(&ty, text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pair_is_split_at_its_first_equals_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("a").is_err());
        assert!(pair("=b").is_err());
    }

    #[test]
    fn a_secret_comes_from_env_or_file_never_from_the_command_line() {
        assert_eq!(source("a=env:B"), Ok(("a".to_owned(), SecretSource::Environment("B".to_owned()))));
        assert_eq!(source("a=file:/b:c"), Ok(("a".to_owned(), SecretSource::File("/b:c".into()))));
        for text in ["a", "a=", "a=hunter2", "a=env:", "a=file:", "=env:B"] {
            assert!(source(text).is_err(), "{text}");
        }
    }
}

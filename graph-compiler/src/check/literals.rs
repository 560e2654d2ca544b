//! No literal parameter of a built-in tool is one that the tool always refuses.
//!
//! The contracts have the types of the parameters; this rule checks the tools' further requirements.

use std::path::{Component, Path};
use std::time::Duration;

use graph_definition::definition::{Spanned, TermDefinition, TermKind};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::value::Value;

use crate::analysis::Analysis;

/// The headers of the connection, which `rye/http/request` sets itself.
const OF_THE_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The most bytes of a body that `rye/http/request` accepts.
const MOST_BYTES: i64 = 64 << 20;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (_, call) in analysis.model.calls() {
        let is_builtin = analysis.model.tool(call).contract.is_some_and(|contract| contract.builtin());
        let (Some(id), TermKind::Object(params)) = (call.id().filter(|_| is_builtin), &call.params.kind) else {
            continue;
        };
        let mut refuse = |span: &Span, what: String, help: &str| {
            let message = format!("`{id}` always refuses this: {what}");
            diagnostics.lint(code::REFUSED_LITERAL, analysis.model.place(span), message).help(help.to_owned());
        };
        for (key, term) in params {
            check_parameter(id.as_str(), &key.value, term, &mut refuse);
        }
        let given = |name: &str| params.iter().find(|(key, term)| key.value == name && !is_null(term));
        if id.as_str() == "rye/http/request"
            && let (Some((key, _)), Some(_)) = (given("json"), given("body"))
        {
            refuse(&key.span, "a request has either `body` or `json`".to_owned(), "give one of them");
        }
    }
}

type Refuse<'r> = dyn FnMut(&Span, String, &str) + 'r;

fn check_parameter(tool: &str, name: &str, term: &TermDefinition, refuse: &mut Refuse<'_>) {
    match (tool, name, &term.kind) {
        (_, "timeout" | "seconds", TermKind::Literal(Value::Number(number)))
            if has_seconds(tool) && !number.as_f64().is_some_and(is_time) =>
        {
            refuse(
                &term.span,
                format!("`{name}` is a number of seconds above 0, and `{number}` is not one"),
                "write a number above 0",
            );
        }
        ("rye/bash" | "rye/exec", ..) => check_command(tool, name, term, refuse),
        ("rye/http/request", ..) => check_request(name, term, refuse),
        ("rye/orchestrate/steer", "message", TermKind::Literal(Value::String(text)))
            if text.len() > MOST_OF_MESSAGE =>
        {
            let what = format!("a message has at most {MOST_OF_MESSAGE} bytes, and this one has {}", text.len());
            refuse(&term.span, what, "write less");
        }
        _ => check_file(tool, name, term, refuse),
    }
}

/// Whether a tool has a parameter that is a number of seconds.
fn has_seconds(tool: &str) -> bool {
    matches!(tool, "rye/bash" | "rye/exec" | "rye/http/request") || tool.starts_with("rye/orchestrate/")
}

/// Whether a number of seconds is a time that tools accept.
fn is_time(seconds: f64) -> bool {
    Duration::try_from_secs_f64(seconds).is_ok_and(|time| !time.is_zero())
}

/// The most bytes of a message for a task.
const MOST_OF_MESSAGE: usize = 64 << 10;

/// Checks a parameter of the tools that start programs.
fn check_command(tool: &str, name: &str, term: &TermDefinition, refuse: &mut Refuse<'_>) {
    match (tool, name, &term.kind) {
        (_, "output_limit", TermKind::Literal(Value::Number(number)))
            if number.as_i64().is_some_and(|bytes| bytes <= 0) =>
        {
            refuse(
                &term.span,
                format!("`output_limit` is a number of bytes above 0, and `{number}` is not one"),
                "write a number above 0",
            );
        }
        (_, "ok_exit_codes", TermKind::List(codes)) => {
            codes.iter().for_each(|code| check_exit_code(code, refuse));
        }
        (_, "ok_exit_codes", TermKind::Literal(Value::Array(codes))) => {
            for code in codes.iter().filter_map(Value::as_i64).filter(|code| !(0..=255).contains(code)) {
                refuse_exit_code(&term.span, code, refuse);
            }
        }
        (_, "env", TermKind::Object(variables)) => {
            variables.iter().for_each(|(key, term)| check_variable(key, term, refuse));
        }
        ("rye/bash", "command", TermKind::Literal(Value::String(text))) if text.contains('\0') => {
            refuse(&term.span, "a command cannot contain a zero byte".to_owned(), "take it out");
        }
        ("rye/exec", "program", TermKind::Literal(Value::String(text))) => {
            let is_relative = text.contains('/') && !text.starts_with('/');
            if text.is_empty() || text.contains('\0') {
                refuse(
                    &term.span,
                    "that is not the name of a program".to_owned(),
                    "write the name of a program in `PATH`, or an absolute path",
                );
            } else if is_relative {
                refuse(
                    &term.span,
                    "the path is relative".to_owned(),
                    "write the name of a program in `PATH`, or an absolute path",
                );
            }
        }
        ("rye/exec", "args", TermKind::List(list)) => {
            for term in list {
                if matches!(&term.kind, TermKind::Literal(Value::String(text)) if text.contains('\0')) {
                    refuse(&term.span, "an argument cannot contain a zero byte".to_owned(), "take it out");
                }
            }
        }
        _ => {}
    }
}

/// Checks a parameter of the tools for files.
fn check_file(tool: &str, name: &str, term: &TermDefinition, refuse: &mut Refuse<'_>) {
    match (tool, name, &term.kind) {
        (
            "rye/file-system/read" | "rye/file-system/write" | "rye/file-system/list",
            "path",
            TermKind::Literal(Value::String(text)),
        ) => {
            if let Some(why) = refused_path(text, tool != "rye/file-system/list") {
                refuse(&term.span, why.to_owned(), "write a path relative to the directory that the program names");
            }
        }
        ("rye/file-system/read", "offset" | "limit", TermKind::Literal(Value::Number(number)))
            if number.as_i64().is_some_and(|bytes| bytes < 0) =>
        {
            refuse(&term.span, format!("`{name}` is a number of bytes, and `{number}` is not one"), "write 0 or more");
        }
        _ => {}
    }
}

/// Checks a parameter of the tool for requests.
fn check_request(name: &str, term: &TermDefinition, refuse: &mut Refuse<'_>) {
    match (name, &term.kind) {
        ("url", TermKind::Literal(Value::String(text))) => {
            if let Some(why) = refused_address(text) {
                refuse(&term.span, why.to_owned(), "write an address as `https://api.example.com/path`");
            }
        }
        ("max_bytes", TermKind::Literal(Value::Number(number)))
            if number.as_i64().is_some_and(|bytes| !(0..=MOST_BYTES).contains(&bytes)) =>
        {
            refuse(
                &term.span,
                format!("`max_bytes` is a number of bytes up to {MOST_BYTES}, and `{number}` is not one"),
                "write less",
            );
        }
        ("headers", TermKind::Object(headers)) => {
            headers.iter().for_each(|(key, term)| check_header(key, term, refuse));
        }
        _ => {}
    }
}

fn is_null(term: &TermDefinition) -> bool {
    matches!(&term.kind, TermKind::Literal(Value::Null))
}

fn check_exit_code(term: &TermDefinition, refuse: &mut Refuse<'_>) {
    if let TermKind::Literal(Value::Number(number)) = &term.kind
        && let Some(code) = number.as_i64().filter(|code| !(0..=255).contains(code))
    {
        refuse_exit_code(&term.span, code, refuse);
    }
}

fn refuse_exit_code(span: &Span, code: i64, refuse: &mut Refuse<'_>) {
    refuse(
        span,
        format!("an exit code is a number from 0 to 255, and `{code}` is not one"),
        "write one that the command can end with",
    );
}

fn check_variable(key: &Spanned<String>, term: &TermDefinition, refuse: &mut Refuse<'_>) {
    let name = key.value.as_str();
    if name.is_empty() || name.contains(['=', '\0']) {
        refuse(
            &key.span,
            format!("`{}` cannot be an environment variable's name", name.escape_debug()),
            "write letters, digits and `_`",
        );
    } else if graph_shell::RESERVED.contains(&name) {
        refuse(&key.span, format!("`{name}` is set by the runtime, and no graph can set it"), "take another name");
    } else if matches!(&term.kind, TermKind::Literal(Value::String(text)) if text.contains('\0')) {
        refuse(&term.span, "a variable cannot contain a zero byte".to_owned(), "take it out");
    }
}

/// Returns the reason why the file tools refuse a path, if they do.
fn refused_path(text: &str, names_a_file: bool) -> Option<&'static str> {
    if text.is_empty() || text.contains('\0') {
        return Some("the path is empty or has a zero byte");
    }
    let mut names = 0;
    // A drive or a root of another system is not recognized here, but when the graph runs.
    for component in Path::new(text).components() {
        match component {
            Component::ParentDir => return Some("`..` is not allowed in a path"),
            Component::RootDir | Component::Prefix(_) => {
                return Some("a path is relative to the directory that the program names");
            }
            Component::Normal(_) => names += 1,
            Component::CurDir => {}
        }
    }
    (names_a_file && (names == 0 || text.ends_with('/'))).then_some("the path names no file")
}

/// Returns the reason why every request to an address is refused, if it is.
fn refused_address(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once(':') else { return Some("`url` is not an address") };
    if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
        return Some("`url` begins with neither `https:` nor `http:`");
    }
    let rest = rest.trim_start_matches(['/', '\\']);
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("`url` has a user name or password in it; send them in the header `authorization`");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    };
    let is_bad = |character: char| character.is_whitespace() || "<>^|\"{}`".contains(character);
    if host.is_empty() || host.contains(is_bad) || (!port.is_empty() && port.parse::<u16>().is_err()) {
        return Some("`url` is not an address");
    }
    None
}

fn check_header(key: &Spanned<String>, term: &TermDefinition, refuse: &mut Refuse<'_>) {
    let name = key.value.to_ascii_lowercase();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        refuse(
            &key.span,
            format!("`{}` cannot be a header's name", key.value.escape_debug()),
            "write letters, digits and `-`",
        );
    } else if OF_THE_CONNECTION.contains(&name.as_str()) {
        refuse(&key.span, format!("`{}` is a header that requests get by themselves", key.value), "leave it out");
    } else if let TermKind::Literal(Value::String(text)) = &term.kind
        && text.bytes().any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f)
    {
        refuse(
            &term.span,
            format!("`{}` has a value that cannot be a header's", key.value),
            "take the control characters out",
        );
    }
}

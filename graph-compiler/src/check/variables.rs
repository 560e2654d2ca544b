//! Commands read only environment variables that are set.

use std::collections::BTreeSet;

use graph_definition::definition::TermKind;
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::HashSet;

use crate::analysis::Analysis;

/// The variables of the program's environment that a command sees, as the contract of `rye/bash` lists them.
const SMALL: [&str; 10] = ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TZ"];

/// The variables that bash sets by itself.
const OF_BASH: [&str; 44] = [
    "BASH",
    "BASHOPTS",
    "BASHPID",
    "BASH_ALIASES",
    "BASH_ARGC",
    "BASH_ARGV",
    "BASH_ARGV0",
    "BASH_CMDS",
    "BASH_COMMAND",
    "BASH_EXECUTION_STRING",
    "BASH_LINENO",
    "BASH_REMATCH",
    "BASH_SOURCE",
    "BASH_SUBSHELL",
    "BASH_VERSINFO",
    "BASH_VERSION",
    "COLUMNS",
    "COMP_WORDBREAKS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "HOSTNAME",
    "HOSTTYPE",
    "IFS",
    "LINENO",
    "LINES",
    "MACHTYPE",
    "OLDPWD",
    "OPTARG",
    "OPTIND",
    "OSTYPE",
    "PIPESTATUS",
    "PPID",
    "PS4",
    "PWD",
    "RANDOM",
    "REPLY",
    "SECONDS",
    "SHLVL",
    "UID",
];

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let required: HashSet<&str> = analysis.model.definition.env.iter().map(String::as_str).collect();
    for (_, call) in analysis.model.calls() {
        let tool = analysis.model.tool(call);
        if call.id().is_none_or(|id| id.as_str() != "rye/bash")
            || tool.contract.is_none_or(|contract| !contract.builtin())
        {
            continue;
        }
        let TermKind::Object(params) = &call.params.kind else { continue };
        let param = |name: &str| params.iter().find(|(key, _)| key.value == name).map(|(_, term)| term);
        let Some(command) = param("command") else { continue };
        let text = match &command.kind {
            TermKind::Literal(value) => value.as_str().unwrap_or_default(),
            TermKind::Template { text, .. } => text.as_str(),
            _ => continue,
        };
        let names: Vec<&str> = match param("env").map(|term| &term.kind) {
            None => Vec::new(),
            Some(TermKind::Object(env)) => env.iter().map(|(key, _)| key.value.as_str()).collect(),
            // The names of the variables are known only when the graph runs.
            Some(_) => continue,
        };
        // A literal has `${` where the file has `$${`; a text with templates has both as they were written.
        let is_template = matches!(command.kind, TermKind::Template { .. });
        let Some(used) = used(text, is_template) else { continue };
        let given: HashSet<&str> = names.iter().copied().collect();
        let is_known = |name: &str| {
            let is_set = SMALL.contains(&name) || graph_shell::RESERVED.contains(&name);
            given.contains(name) || is_set || OF_BASH.contains(&name) || required.contains(name)
        };
        for name in used.iter().filter(|name| !is_known(name)) {
            let diagnostic = diagnostics.lint(
                code::UNKNOWN_VARIABLE,
                analysis.model.place(&command.span),
                format!("the command reads the variable `{name}`, which nothing sets"),
            );
            diagnostic
                .suggest(name, names.iter().copied().chain(analysis.model.definition.env.iter().map(String::as_str)));
            if diagnostic.help.is_none() {
                diagnostic.help(format!(
                    "pass it in `env`, or require it with `env_requires: [{name}]`; if it may be unset, say so: `${{{name}:-}}`"
                ));
            }
        }
    }
}

/// Returns the variables that a command reads and does not set, sorted by name. `None` if that cannot be determined,
/// because the command reads other commands from elsewhere.
///
/// This is not a parser for shells: in case of doubt, a variable counts as set.
fn used(text: &str, is_template: bool) -> Option<BTreeSet<String>> {
    let text = if is_template { text.replace("$${", "\u{1}{") } else { text.to_owned() };
    let words: BTreeSet<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let reads_more =
        ["eval", "source", "read", "mapfile", "readarray", "getopts", "printf", "declare", "local", "export", "select"]
            .iter()
            .any(|word| words.contains(word));
    let has_dot = text.split(['\n', ';', '&', '|']).any(|part| part.trim_start().starts_with(". "));
    // A heredoc with a quoted word is a text in which nothing is expanded.
    if words.contains("eval") || words.contains("source") || has_dot || text.contains("<<'") || text.contains("<<\"") {
        return None;
    }
    let mut found = BTreeSet::new();
    let (mut single, mut double, mut at) = (false, false, 0);
    let bytes = text.as_bytes();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !single => at += 1,
            b'\'' if !double => single = !single,
            b'"' if !single => double = !double,
            // In a template, `${` begins a value of the graph.
            b'$' if is_template && bytes.get(at + 1) == Some(&b'{') => {
                at += text[at..].find('}').unwrap_or(0);
            }
            b'$' | 1 if !single => {
                let braced = bytes.get(at + 1) == Some(&b'{');
                let mut start = at + 1 + usize::from(braced);
                // The length of the variable, or the variable that it names.
                if braced && matches!(bytes.get(start), Some(b'#' | b'!')) {
                    start += 1;
                }
                let length = bytes[start.min(bytes.len())..].iter().take_while(|byte| is_name(**byte)).count();
                let name = &text[start.min(bytes.len())..(start + length).min(bytes.len())];
                let behind = bytes.get(start + length).copied();
                // `${NAME:-…}` and the like define the value for an unset variable.
                let is_plain = !braced || !matches!(behind, Some(b':' | b'-' | b'+' | b'?' | b'='));
                let is_slice = braced
                    && behind == Some(b':')
                    && !matches!(bytes.get(start + length + 1), Some(b'-' | b'+' | b'?' | b'='));
                if (is_plain || is_slice) && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                    found.insert(name.to_owned());
                }
                at = (start + length).max(at + 1) - 1;
            }
            _ => {}
        }
        at += 1;
    }
    let set = set_names(&text, reads_more);
    found.retain(|name| !set.contains(name.as_str()));
    Some(found)
}

/// Returns the names in a command that it may set: by an assignment, as the variable of a loop, or by a command that
/// takes names.
fn set_names(text: &str, reads_more: bool) -> HashSet<&str> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let (bytes, mut set, mut at) = (text.as_bytes(), HashSet::default(), 0);
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|byte| is_name(byte)).count();
        if length > 0 {
            let (before, behind) = (&text[..at], &text[at + length..]);
            let is_read = before.ends_with(['$', '{', '\u{1}', '#', '!']);
            let is_set = behind.starts_with('=')
                || behind.starts_with("+=")
                || behind.starts_with('[')
                || behind.trim_start().starts_with("in ")
                || behind.starts_with("++")
                || behind.starts_with("--")
                || reads_more;
            if !is_read && is_set {
                set.insert(&text[at..at + length]);
            }
        }
        at += length.max(1);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(command: &str) -> Option<Vec<String>> {
        used(command, false).map(|found| found.into_iter().collect())
    }

    #[test]
    fn the_variables_that_a_command_does_not_set_are_found() {
        for (command, expected) in [
            ("cd \"$DRI\" && ls", &["DRI"][..]),
            ("echo ${A} ${#B} ${C%.txt} ${D:0:3}", &["A", "B", "C", "D"]),
            ("echo ${A:-x} ${B-} ${C:?no} ${D+1}", &[]),
            ("awk '{print $NF, $FOO}' file", &[]),
            ("echo \"it's $X\"", &["X"]),
            ("X=1; echo $X", &[]),
            ("for f in *; do echo $f; done", &[]),
            ("while read -r line; do echo $line; done", &[]),
            ("echo $1 $@ $? $$ $! $#", &[]),
            ("echo \\$X '$Y'", &[]),
            ("printf -v out %s x; echo $out", &[]),
            ("arr[0]=1; echo ${arr[0]}", &[]),
            ("(( i++ )); echo $i", &[]),
            ("echo $(cat \"$FILE\")", &["FILE"]),
        ] {
            assert_eq!(names(command).unwrap(), expected, "{command}");
        }
        for command in ["eval $X", "source x; echo $X", ". ./env; echo $X", "cat <<'END'\n$X\nEND"] {
            assert_eq!(names(command), None, "{command}");
        }
    }

    #[test]
    fn templates_in_a_command_are_no_variables() {
        let found = used("echo ${state.x} $${NAME} $OTHER", true).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["NAME", "OTHER"]);
    }
}

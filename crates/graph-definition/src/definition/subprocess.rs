//! The `config` of a contract that says `tool_type: subprocess`: how to start the tool's program.

use graph_model::subprocess::Subprocess;
use graph_shell::{Foreign, ProgramArgument};

use super::duration;
use super::reader::{DefinitionReader, Fields, Spanned};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeNode, YamlTree};

const KNOWN: [&str; 7] = ["command", "timeout", "env", "cwd", "output_limit", "ok_exit_codes", "sha256"];

/// Reads `config`. `None` if something in it is wrong: a program is started as its contract says or not at all.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Subprocess> {
    let fields = reader.map(tree, "`config`")?;
    let unknown = reader.only(&fields, "`config` of a subprocess", &KNOWN, &[]);
    let spec = start(reader, &fields, "`config` of a subprocess");
    spec.filter(|_| !unknown)
}

/// Reads the fields of a `config` that say how to start a program. `None` if something in them is wrong.
pub(super) fn start(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, whose: &str) -> Option<Subprocess> {
    let mut spec = Subprocess::new(Vec::new());
    // All fields are read before a mistake ends the reading, so that all mistakes are reported.
    let command = reader.required(fields, whose, "command").and_then(|tree| command(reader, tree));
    let read = [
        set(&mut spec.timeout_ms, fields, "timeout", |tree| duration::of_contract(reader, tree, "`timeout`")),
        set(&mut spec.env, fields, "env", |tree| env(reader, tree)),
        set(&mut spec.cwd, fields, "cwd", |tree| literal(reader, tree, "`cwd`").map(|text| Some(text.value))),
        set(&mut spec.output_limit, fields, "output_limit", |tree| output_limit(reader, tree)),
        set(&mut spec.ok_exit_codes, fields, "ok_exit_codes", |tree| exit_codes(reader, tree)),
        set(&mut spec.sha256, fields, "sha256", |tree| {
            let text = reader.text(tree, "`sha256`")?;
            let digest = text.value.parse();
            if digest.is_err() {
                wrong(reader, &text.span, "`sha256` is 64 lower-case hex digits");
            }
            digest.ok().map(Some)
        }),
    ];
    spec.command = command?;
    read.iter().all(|read| *read).then_some(spec)
}

/// Sets `place` to the value of a field, if the field is there. Returns whether it could be read.
fn set<T>(place: &mut T, fields: &Fields<'_>, name: &str, read: impl FnOnce(&YamlTree) -> Option<T>) -> bool {
    match fields.get(name) {
        None => true,
        Some(tree) => match read(tree) {
            Some(value) => {
                *place = value;
                true
            }
            None => false,
        },
    }
}

fn wrong(reader: &mut DefinitionReader<'_>, span: &Span, message: impl Into<String>) {
    let place = SourcePlace::new(reader.source, span.clone());
    reader.diagnostics.error(code::BAD_CONTRACT, place, message);
}

fn command(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Vec<String>> {
    if let TreeNode::String(_) = tree.node {
        let place = SourcePlace::new(reader.source, tree.span.clone());
        reader
            .diagnostics
            .error(code::BAD_CONTRACT, place, "`command` is a list: the program, and each argument by itself")
            .help("no shell reads it; where one is needed, write `[bash, -c, …]`");
        return None;
    }
    let TreeNode::List(items) = &tree.node else {
        reader.list(tree, "`command`");
        return None;
    };
    let arguments: Vec<Option<Spanned<String>>> =
        items.iter().map(|item| literal(reader, item, "an argument of `command`")).collect();
    match arguments.first() {
        None => wrong(reader, &tree.span, "`command` names no program"),
        Some(Some(program)) if program.value.is_empty() || program.value.ends_with('/') => {
            wrong(reader, &program.span, "`command` names no program");
            return None;
        }
        Some(_) => {}
    }
    let command: Option<Vec<String>> = arguments.into_iter().map(|text| Some(text?.value)).collect();
    let command = command.filter(|command| !command.is_empty())?;
    // The parameters are untrusted, and the program reads them from stdin.
    let words: Vec<ProgramArgument<'_>> =
        command.iter().map(|text| ProgramArgument { text, is_foreign: false }).collect();
    let foreign = Foreign { variables: Vec::new(), stdin: true };
    if let Some(danger) = graph_shell::scan_program(&words, &foreign).first() {
        let message = format!("`command` executes the tool's parameters: {} {}", danger.origin, danger.how);
        reader
            .diagnostics
            .error(code::BAD_CONTRACT, SourcePlace::new(reader.source, tree.span.clone()), message)
            .help("start a program that reads the parameters as JSON, as a script by its path");
        return None;
    }
    Some(command)
}

/// Reads a text that is taken literally.
fn literal(reader: &mut DefinitionReader<'_>, tree: &YamlTree, what: &str) -> Option<Spanned<String>> {
    let text = reader.text(tree, what)?;
    let place = || SourcePlace::new(reader.source, text.span.clone());
    if text.value.contains("${") {
        let place = place();
        reader
            .diagnostics
            .error(code::BAD_TEMPLATE, place, format!("{what} is taken as it is, without templates"))
            .help("the program reads its parameters as JSON from stdin");
        return None;
    }
    if text.value.contains('\0') {
        wrong(reader, &text.span, format!("{what} cannot contain a zero byte"));
        return None;
    }
    Some(text)
}

fn env(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Vec<(String, String)>> {
    let fields = reader.map(tree, "`env`")?;
    let variables: Vec<Option<(String, String)>> = fields
        .entries
        .iter()
        .map(|(key, value)| {
            if graph_shell::RESERVED.contains(&key.name.as_str()) {
                wrong(reader, &key.span, format!("`{}` is set by the runtime, and by no contract", key.name));
                return None;
            }
            if key.name.is_empty() || key.name.contains(['=', '\0']) {
                wrong(reader, &key.span, format!("`{}` cannot be an environment variable's name", key.name));
                return None;
            }
            Some((key.name.clone(), literal(reader, value, "a variable of `env`")?.value))
        })
        .collect();
    variables.into_iter().collect()
}

fn output_limit(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<u64> {
    let bytes = u64::try_from(reader.integer(tree, "`output_limit`")?).ok().filter(|bytes| *bytes > 0);
    if bytes.is_none() {
        wrong(reader, &tree.span, "`output_limit` is a number of bytes above 0");
    }
    bytes
}

fn exit_codes(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Vec<i64>> {
    let TreeNode::List(items) = &tree.node else {
        reader.list(tree, "`ok_exit_codes`");
        return None;
    };
    let codes: Vec<Option<i64>> = items
        .iter()
        .map(|item| {
            let code = reader.integer(item, "an exit code")?;
            if !(0..=255).contains(&code) {
                wrong(reader, &item.span, format!("an exit code is from 0 to 255, not {code}"));
                return None;
            }
            Some(code)
        })
        .collect();
    codes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use graph_model::digest::Digest;
    use graph_model::name::ItemId;

    use super::super::{Contract, ContractKind, parse_trusted_contract};
    use super::*;
    use crate::diagnostic::Diagnostics;
    use crate::source::SourceFile;

    /// Reads a contract, and returns it with the messages about it.
    fn read(config: &str) -> (Option<Contract>, Vec<String>) {
        let text = format!("version: \"1.0.0\"\ntool_type: subprocess\n{config}");
        let source = SourceFile::new("tool.yaml", "tool.yaml", text.as_str());
        let mut diagnostics = Diagnostics::new();
        let contract = parse_trusted_contract(&source, &ItemId::new("shop/tool").unwrap(), &mut diagnostics);
        let said = diagnostics.in_order("tool.yaml").into_iter().map(|diagnostic| diagnostic.message).collect();
        (contract, said)
    }

    #[test]
    fn a_contract_says_how_to_start_its_program() {
        let digest = Digest::of("x");
        let (contract, said) = read(&format!(
            "config:\n  command: [bin/charge, --fast]\n  timeout: 1m30s\n  env: {{ MODE: live }}\n  cwd: work\n  \
             output_limit: 1000\n  ok_exit_codes: [0, 3]\n  sha256: \"{digest}\"\n"
        ));
        assert!(said.is_empty(), "{said:?}");
        let contract = contract.unwrap();
        assert!(!contract.builtin());
        let ContractKind::Subprocess(spec) = contract.by else { panic!("{:?}", contract.by) };
        let expected = Subprocess {
            timeout_ms: 90_000,
            env: vec![("MODE".into(), "live".into())],
            cwd: Some("work".into()),
            output_limit: 1000,
            ok_exit_codes: vec![0, 3],
            sha256: Some(digest),
            ..Subprocess::new(vec!["bin/charge".into(), "--fast".into()])
        };
        assert_eq!(spec, expected);
    }

    #[test]
    fn a_timeout_may_be_a_number_of_seconds() {
        let (contract, _) = read("config: { command: [x], timeout: 0.25 }\n");
        assert_eq!(contract.unwrap().subprocess().unwrap().timeout_ms, 250);
    }

    #[test]
    fn every_mistake_is_reported_at_its_place() {
        for (config, expected) in [
            ("", "a contract of a subprocess needs `config`"),
            ("config: {}\n", "`config` of a subprocess needs `command`"),
            ("config: { command: ls -l }\n", "`command` is a list: the program, and each argument by itself"),
            ("config: { command: {} }\n", "`command` is a list, not a mapping"),
            ("config: { command: [] }\n", "`command` names no program"),
            ("config: { command: [\"\"] }\n", "`command` names no program"),
            ("config: { command: [bin/] }\n", "`command` names no program"),
            ("config: { command: [x, 3] }\n", "an argument of `command` is a string, not an integer"),
            (
                "config: { command: [x, \"${state.a}\"] }\n",
                "an argument of `command` is taken as it is, without templates",
            ),
            ("config: { command: [x], comand: 1 }\n", "`config` of a subprocess has no field `comand`"),
            ("config: { command: [x], timeout: 0 }\n", "`timeout` is a number of seconds above 0"),
            ("config: { command: [x], timeout: -1 }\n", "`timeout` is a number of seconds above 0"),
            ("config: { command: [x], timeout: soon }\n", "`timeout` is a number of seconds above 0"),
            ("config: { command: [x], output_limit: 0 }\n", "`output_limit` is a number of bytes above 0"),
            ("config: { command: [x], ok_exit_codes: [256] }\n", "an exit code is from 0 to 255, not 256"),
            ("config: { command: [x], env: { A=B: x } }\n", "`A=B` cannot be an environment variable's name"),
            ("config: { command: [x], sha256: abc }\n", "`sha256` is 64 lower-case hex digits"),
        ] {
            let (contract, said) = read(config);
            assert!(contract.is_none(), "{config}");
            assert!(said.len() == 1 && said[0].contains(expected), "{config}: {said:?}");
        }
    }

    #[test]
    fn all_mistakes_of_a_contract_are_reported_together() {
        let (_, said) = read("config: { command: x, timeout: 0, sha256: abc }\n");
        assert_eq!(said.len(), 3, "{said:?}");
    }
}

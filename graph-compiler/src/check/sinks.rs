//! Texts that are read as code contain no values that somebody else chooses.
//!
//! A contract marks a parameter that its tool reads as code with `x-sink`. A template there may yield only values that
//! cannot be code.

use graph_definition::definition::{
    CallDefinition, NodeKind, SchemaKind, Sink, Spanned, TermDefinition, TermKind, ValueSchema, locate,
};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::program::{ItemType, Verb};
use graph_model::template::{Expression, InputReference, Template};
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::items::Reachable;
use crate::types::{Type, TypeKind};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        let tool = analysis.model.tool(call);
        let schema = tool
            .contract
            .map(|contract| &contract.params)
            .or_else(|| tool.graph.and_then(|graph| graph.schema.as_ref()));
        let (node, site) = caller.site();
        if let Some(schema) = schema {
            let given = SinkCheck { analysis, node, site, call, whole: schema, whose: call.shown().to_string() };
            given.check(&call.params, schema, None, diagnostics);
        }
        for Reachable { id, schema, .. } in
            analysis.model.items.reachable.iter().filter(|one| may_be(analysis, call, one.id.as_str()))
        {
            let whose = format!("`{id}`, which {} may be", call.shown());
            let given = SinkCheck { analysis, node, site, call, whole: schema, whose };
            given.check(&call.params, schema, None, diagnostics);
        }
    }
}

/// The most ids to which the template of an id is expanded.
const MOST_IDS: usize = 1000;

/// Whether a computed id may be this one, as far as its template, the types in it and the graph's permissions tell.
pub(super) fn may_be(analysis: &Analysis<'_>, call: &CallDefinition, id: &str) -> bool {
    let is_tool = (call.verb, call.item_type) == (Verb::Execute, ItemType::Tool);
    if !is_tool || call.computed().is_none() || !id.starts_with(call.beginning()) {
        return false;
    }
    let Ok(item) = graph_model::name::ItemId::new(id) else { return false };
    let capability = graph_model::capability::Capability::new(Verb::Execute, ItemType::Tool, Some(&item));
    analysis.model.permissions().any(|pattern| pattern.value.grants(&capability))
        && ids(analysis, call).is_none_or(|ids| ids.iter().any(|one| one == id))
}

/// Returns the ids that a template yields, if all its expressions are words of enums.
fn ids(analysis: &Analysis<'_>, call: &CallDefinition) -> Option<Vec<String>> {
    let (caller, _) = analysis.model.calls().find(|(_, one)| std::ptr::eq(*one, call))?;
    let (node, site) = caller.site();
    let (term, _) = call.computed()?;
    let TermKind::Template { template, .. } = &term.kind else { return None };
    let words = |expression: &Expression| {
        let mut words = Vec::new();
        for path in &expression.paths {
            let ty = analysis.type_env().type_of_path(node, site, path);
            words.extend(ty.words()?);
            // A reference to an input that is not given has a text of its own.
            if let (true, Some(InputReference::AsWritten(text) | InputReference::Text(text))) =
                (ty.nullable, &expression.input)
            {
                words.push(text.clone());
            }
        }
        Some(words)
    };
    let mut ids = vec![String::new()];
    let pieces: Vec<Result<&str, &Expression>> = match template {
        Template::Text(text) => vec![Ok(text)],
        Template::Whole(expression) => vec![Err(expression)],
        Template::Mixed(pieces) => pieces
            .iter()
            .map(|piece| match piece {
                graph_model::template::Piece::Text(text) => Ok(text.as_str()),
                graph_model::template::Piece::Expression(expression) => Err(expression),
            })
            .collect(),
    };
    for piece in pieces {
        let words = match piece {
            Ok(text) => vec![text.to_owned()],
            Err(expression) => words(expression)?,
        };
        if ids.len().saturating_mul(words.len()) > MOST_IDS {
            return None;
        }
        ids = ids.iter().flat_map(|id| words.iter().map(move |word| format!("{id}{word}"))).collect();
    }
    Some(ids)
}

/// The most values of a path that are examined if its values are literals in the graph.
pub(super) const MOST_CONSTANTS: usize = 64;

/// Returns the part of a value that fields lead to: null if an object lacks the field, `None` if the value is no object.
fn part_of(value: &Value, fields: &[String]) -> Option<Value> {
    let Some((field, rest)) = fields.split_first() else { return Some(value.clone()) };
    match value {
        Value::Object(map) => map.get(field).map_or(Some(Value::Null), |part| part_of(part, rest)),
        _ => None,
    }
}

/// The parameters of a call, with the schema that its tool has for them.
pub(super) struct SinkCheck<'f, 'd> {
    pub(super) analysis: &'f Analysis<'d>,
    pub(super) node: usize,
    pub(super) site: Site,
    pub(super) call: &'f CallDefinition,
    /// The schema of all parameters.
    pub(super) whole: &'f ValueSchema,
    pub(super) whose: String,
}

/// A text that is read as code.
#[derive(Clone, Copy)]
struct SinkTarget<'t> {
    sink: Sink,
    /// The parameter that it is, or is a part of.
    parameter: &'t str,
}

impl SinkCheck<'_, '_> {
    /// Checks a term against its schema; `parameter` is the parameter that contains it.
    fn check(
        &self,
        term: &TermDefinition,
        schema: &ValueSchema,
        parameter: Option<&str>,
        diagnostics: &mut Diagnostics,
    ) {
        let name = parameter.unwrap_or_default();
        if let Some(sink) = &schema.sink {
            let target = SinkTarget { sink: sink.value, parameter: name };
            term.templates(&mut |term, template, text| {
                for expression in template.expressions() {
                    self.check_expression(term, (template, text), expression, target, diagnostics);
                }
            });
            return;
        }
        match (&term.kind, &schema.kind) {
            (TermKind::Object(given), SchemaKind::Object(properties)) => {
                for (key, term) in given {
                    if let Some(property) = properties.iter().find(|property| property.name.value == key.value) {
                        self.check(term, &property.schema, parameter.or(Some(&key.value)), diagnostics);
                    }
                }
            }
            (TermKind::Object(given), SchemaKind::Map(values)) => {
                for (key, term) in given {
                    self.check(term, values, parameter.or(Some(&key.value)), diagnostics);
                }
            }
            (TermKind::List(list), SchemaKind::List(items)) => {
                list.iter().for_each(|term| self.check(term, items, parameter, diagnostics));
            }
            // A value as a whole that contains a text that is read as code.
            (TermKind::Template { text, template: template @ Template::Whole(expression) }, _) => {
                if let Some(sink) = self.risk(expression, |ty| in_parts(ty, schema)).and_then(|_| first_sink(schema)) {
                    let target = SinkTarget { sink, parameter: name };
                    let risk = |ty: &Type| in_parts(ty, schema);
                    self.report(term, (template, text), expression, target, risk, diagnostics);
                }
            }
            _ => {}
        }
    }

    fn check_expression(
        &self,
        term: &TermDefinition,
        text: (&Template, &str),
        expression: &Expression,
        target: SinkTarget<'_>,
        diagnostics: &mut Diagnostics,
    ) {
        let is_code = |path: &Path| path.root == Root::Inputs && is_declared(self.analysis, path, target.sink);
        let is_risky = |ty: &Type| is_risky_in(ty, target.sink);
        if expression.paths.iter().all(|path| is_code(path) || !is_risky(&self.type_of(path))) {
            return;
        }
        self.report(term, text, expression, target, is_risky, diagnostics);
    }

    /// Returns the index of the first path of an expression whose type `is_risky`.
    fn risk(&self, expression: &Expression, is_risky: impl Fn(&Type) -> bool) -> Option<usize> {
        expression.paths.iter().position(|path| is_risky(&self.type_of(path)))
    }

    pub(super) fn type_of(&self, path: &Path) -> Type {
        type_of(self.analysis, self.node, self.site, path)
    }

    fn report(
        &self,
        term: &TermDefinition,
        (template, text): (&Template, &str),
        expression: &Expression,
        target: SinkTarget<'_>,
        is_risky: impl Fn(&Type) -> bool,
        diagnostics: &mut Diagnostics,
    ) {
        let is_code = |path: &Path| path.root == Root::Inputs && is_declared(self.analysis, path, target.sink);
        let risky = |path: &&Path| !is_code(path) && is_risky(&self.type_of(path));
        let Some((path, range)) = expression.paths.iter().zip(&expression.ranges).find(|(path, _)| risky(path)) else {
            return;
        };
        let span = locate(self.analysis.model.definition.source(), &term.span, text, range);
        let is_whole = matches!(template, Template::Whole(_));
        let (parameter, whose) = (target.parameter, &self.whose);
        let message = match is_whole {
            true => format!("`{path}` decides what `{parameter}` of {whose} is, which {}", reader_of(target.sink)),
            false => format!("`{path}` becomes a part of `{parameter}` of {whose}, which {}", reader_of(target.sink)),
        };
        let help = match is_whole {
            true => self.help_for_whole(path, target),
            false => self.help(text, place_of(text, expression), path, target),
        };
        diagnostics
            .lint(code::INJECTION, self.analysis.model.place(&span), message)
            .label(format!("this is {}", self.type_of(path).not_null()))
            .help(help);
    }

    /// Returns the advice for a value that is the whole text.
    fn help_for_whole(&self, path: &Path, target: SinkTarget<'_>) -> String {
        let (parameter, sink) = (target.parameter, target.sink.name());
        let help = match target.sink {
            Sink::Shell => {
                format!("write the command itself in `{parameter}`, and pass it values as variables or arguments")
            }
            Sink::Sql => format!("write the statement itself in `{parameter}`, and pass values as bound parameters"),
            Sink::Html => format!("write the page itself in `{parameter}`, and pass values where they are escaped"),
            Sink::Url => format!("write the address with its host in `{parameter}`, and pass values in its query"),
            Sink::Program => format!("write the program in `{parameter}`, and pass it values as arguments"),
            Sink::Item => format!("write the id in `{parameter}`, or give the value an `enum` of ids"),
        };
        match (path.root, path.segments.last()) {
            (Root::Inputs, Some(_)) => format!(
                "{help}; if the caller of the graph is to write all of it, mark the input with `x-sink: {sink}`"
            ),
            _ => help,
        }
    }

    /// Returns the advice for an expression inside a text.
    fn help(&self, text: &str, place: Span, path: &Path, target: SinkTarget<'_>) -> String {
        let shown = &text[place.clone()];
        let takes = |name: &str| self.parameter(name).is_some();
        match target.sink {
            Sink::Shell if takes("env") => {
                let (variable, is_given) = self.variable(shown, path);
                let written = in_shell(text, place, &variable);
                match is_given {
                    true => format!("write `{written}` in its place: `env` has the value already"),
                    false => format!("write `{written}` in its place, and pass `env: {{ {variable}: \"{shown}\" }}`"),
                }
            }
            Sink::Shell => match self.list_beside(target) {
                Some(list) => format!("pass it as an argument of its own, in `{list}`"),
                None => {
                    "give the tool's contract a parameter for the value, which the tool hands to the command as an \
                         argument or in a variable"
                        .to_owned()
                }
            },
            Sink::Sql => match self.list_beside(target) {
                Some(list) => format!("write a placeholder in its place, as `?`, and pass `{list}: [\"{shown}\"]`"),
                None => {
                    "write a placeholder in its place, as `?`, and give the tool's contract a list of the values that \
                         are bound to them"
                        .to_owned()
                }
            },
            Sink::Html => {
                "pass it in a parameter of its own, which the tool escapes when it puts it into the page".to_owned()
            }
            Sink::Item => "write the id, or give the value an `enum` of ids".to_owned(),
            Sink::Program => match self.list_beside(target) {
                Some(list) => format!("write the program's whole name, and pass the value in `{list}`"),
                None => "write the program's whole name".to_owned(),
            },
            Sink::Url if takes("query") => {
                format!("pass it in the query: `query: {{ {}: \"{shown}\" }}`", last_name(path))
            }
            Sink::Url => {
                "give the tool's contract a parameter for the value, which the tool encodes when it makes the \
                          address of it"
                    .to_owned()
            }
        }
    }

    fn parameter(&self, name: &str) -> Option<&ValueSchema> {
        let SchemaKind::Object(properties) = &self.whole.kind else { return None };
        properties.iter().find(|property| property.name.value == name).map(|property| &property.schema)
    }

    /// Returns a parameter that takes a list of values and is not read as code.
    fn list_beside(&self, target: SinkTarget<'_>) -> Option<&str> {
        let SchemaKind::Object(properties) = &self.whole.kind else { return None };
        let takes_list = |schema: &ValueSchema| matches!(schema.kind, SchemaKind::List(_)) && !schema.has_sink();
        properties
            .iter()
            .filter(|property| property.name.value != target.parameter)
            .find(|property| takes_list(&property.schema))
            .map(|property| property.name.value.as_str())
    }

    /// Returns the name of a variable for a value, and whether the call already has that variable with that value.
    fn variable(&self, shown: &str, path: &Path) -> (String, bool) {
        let TermKind::Object(params) = &self.call.params.kind else { return (variable_name(&last_name(path)), false) };
        let env: &[(Spanned<String>, TermDefinition)] = match params.iter().find(|(key, _)| key.value == "env") {
            Some((_, TermDefinition { kind: TermKind::Object(env), .. })) => env,
            _ => &[],
        };
        let is_value = |term: &TermDefinition| matches!(&term.kind, TermKind::Template { text, .. } if text == shown);
        if let Some((key, _)) = env.iter().find(|(_, term)| is_value(term)) {
            return (key.value.clone(), true);
        }
        let short = variable_name(&last_name(path));
        let is_taken = TAKEN.contains(&short.as_str()) || env.iter().any(|(key, _)| key.value == short);
        (if is_taken { variable_name(&path.to_string()) } else { short }, false)
    }
}

/// Returns the type of the texts at a path that somebody else than the author of the graph may choose.
pub(super) fn type_of(analysis: &Analysis<'_>, node: usize, site: Site, path: &Path) -> Type {
    match path.root {
        // The time contains no letters except `T` and `Z`.
        Root::Now => Type::of(TypeKind::Integer),
        // The author wrote all values that can occur here.
        _ if constants(analysis, node, site, path).is_some() => Type::never(),
        Root::Local if site == Site::Hook => of_event(path),
        _ => analysis.type_env().type_of_path(node, site, path),
    }
}

/// Returns all values that a path can lead to, if they are literals in the graph and nobody can choose others:
/// neither the person who starts, resumes or forks a run, nor a tool.
///
/// A state key that no node writes does not count: a fork, or a node that is executed by itself, can give it any value.
pub(super) fn constants(analysis: &Analysis<'_>, node: usize, site: Site, path: &Path) -> Option<Vec<Value>> {
    let values = match (path.root, site) {
        (Root::Inputs, _) => {
            let rules = &analysis.model.schema_of_input(path)?.rules;
            let constant = rules.iter().find(|rule| rule.keyword == "const")?;
            vec![constant.value.clone(), Value::Null]
        }
        (Root::Local, Site::Item)
            if path.segments.first().is_some_and(|name| analysis.model.is_item(node, site, name)) =>
        {
            let NodeKind::Foreach(each) = &analysis.model.definition.nodes[node].kind else {
                return None;
            };
            let part = path.segments.get(1..).unwrap_or_default();
            let items = each.over.literal()?;
            items.as_array()?.iter().map(|item| part_of(item, part)).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let is_plain = |value: &Value| !value.is_array() && !value.is_object();
    (values.len() <= MOST_CONSTANTS && values.iter().all(is_plain)).then_some(values)
}

/// Whether an input of the graph is itself declared as code of this kind, so that the caller who sets it is
/// responsible for it.
pub(super) fn is_declared(analysis: &Analysis<'_>, path: &Path, sink: Sink) -> bool {
    let mut schema = analysis.model.definition.inputs.as_ref();
    for part in &path.segments {
        if schema.is_some_and(|schema| schema.sink.is_some()) {
            break;
        }
        schema = schema.and_then(|schema| match &schema.kind {
            SchemaKind::Object(_) => analysis.model.definition.property(schema, part),
            SchemaKind::Map(inner) | SchemaKind::List(inner) => Some(&**inner),
            _ => None,
        });
    }
    schema.and_then(|schema| schema.sink.as_ref()).is_some_and(|declared| declared.value == sink)
}

/// Names the reader that treats a text as code.
fn reader_of(sink: Sink) -> &'static str {
    match sink {
        Sink::Shell => "a shell reads as code",
        Sink::Sql => "a database reads as code",
        Sink::Html => "a browser reads as code",
        Sink::Url => "says where a request goes",
        Sink::Program => "names the program that is started",
        Sink::Item => "names what is called",
    }
}

/// Whether a text of this type can be code.
pub(super) fn is_risky(ty: &Type) -> bool {
    match &ty.kind {
        TypeKind::Never | TypeKind::Boolean | TypeKind::Integer | TypeKind::Number => false,
        TypeKind::Enum(texts) => !texts.iter().all(|text| is_word(text)),
        TypeKind::List(inner) => is_risky(inner),
        // The names of fields become part of the text too.
        TypeKind::String | TypeKind::Map(_) | TypeKind::Object(_) | TypeKind::Any => true,
    }
}

/// Whether a text of this type can be code for a sink. Ids that the author lists are no code.
fn is_risky_in(ty: &Type, sink: Sink) -> bool {
    let is_listed = sink == Sink::Item && matches!(ty.kind, TypeKind::Enum(_));
    !is_listed && is_risky(ty)
}

fn is_word(text: &str) -> bool {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-');
    text.chars().all(is_plain)
}

/// Whether a value of this type, given for `schema`, puts a value that can be code into a sink.
fn in_parts(ty: &Type, schema: &ValueSchema) -> bool {
    if let Some(sink) = &schema.sink {
        return is_risky_in(ty, sink.value);
    }
    if !schema.has_sink() {
        return false;
    }
    match (&ty.kind, &schema.kind) {
        (TypeKind::Never, _) => false,
        (TypeKind::List(inner), SchemaKind::List(items)) => in_parts(inner, items),
        (TypeKind::Map(inner), SchemaKind::Map(values)) => in_parts(inner, values),
        (TypeKind::Object(fields), SchemaKind::Map(values)) => fields.iter().any(|field| in_parts(&field.ty, values)),
        (TypeKind::Map(inner), SchemaKind::Object(properties)) => {
            properties.iter().any(|property| in_parts(inner, &property.schema))
        }
        (TypeKind::Object(fields), SchemaKind::Object(properties)) => fields.iter().any(|field| {
            let property = properties.iter().find(|property| property.name.value == field.name);
            property.is_some_and(|property| in_parts(&field.ty, &property.schema))
        }),
        (TypeKind::Any, _) => true,
        // The type differs from the parameter's, which another rule reports.
        _ => false,
    }
}

fn first_sink(schema: &ValueSchema) -> Option<Sink> {
    schema.sink.as_ref().map(|sink| sink.value).or_else(|| match &schema.kind {
        SchemaKind::List(inner) | SchemaKind::Map(inner) => first_sink(inner),
        SchemaKind::Object(properties) => properties.iter().find_map(|property| first_sink(&property.schema)),
        _ => None,
    })
}

/// Returns the type of a field of an event's data for hooks: numbers that the engine counts, and words of its own.
fn of_event(path: &Path) -> Type {
    let parts: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["step_count" | "steps" | "attempt" | "current_value" | "current_max"] | ["state", "step_count"] => {
            Type::of(TypeKind::Integer)
        }
        ["status"] => Type::of(TypeKind::Enum(Vec::new())),
        _ => Type::any(),
    }
}

/// Returns the range of an expression in a text, including its braces.
pub(super) fn place_of(text: &str, expression: &Expression) -> Span {
    let (Some(first), Some(last)) = (expression.ranges.first(), expression.ranges.last()) else { return 0..text.len() };
    let open = if expression.input.is_some() { "{input:" } else { "${" };
    let start = text[..first.start].rfind(open).unwrap_or(first.start);
    let end = text[last.end..].find('}').map_or(last.end, |brace| last.end + brace + 1);
    start..end
}

/// Variables that have a meaning for a shell or for the programs that it starts.
const TAKEN: [&str; 18] = [
    "PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TZ", "IFS", "PWD", "OLDPWD",
    "UID", "ENV", "BASH_ENV", "CDPATH", "OPTIND",
];

/// Returns the last name in a path; for an index, the name of its list.
fn last_name(path: &Path) -> String {
    let is_name = |part: &&String| part.parse::<i64>().is_err();
    path.segments.iter().rev().find(is_name).cloned().unwrap_or_else(|| path.root.name().to_owned())
}

fn variable_name(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' })
        .collect();
    if name.starts_with(|character: char| character.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Returns the text to write at a place of a command so that a variable's value becomes one word, or part of one,
/// there, whatever quotes surround it.
fn in_shell(command: &str, place: Span, variable: &str) -> String {
    match quote_at(command, place.start) {
        Some('\'') => format!("'\"${variable}\"'"),
        Some('"') => {
            let goes_on = |character: char| character.is_ascii_alphanumeric() || character == '_';
            match command[place.end..].starts_with(goes_on) {
                // In a template, the doubled dollar sign yields `${`.
                true => format!("$${{{variable}}}"),
                false => format!("${variable}"),
            }
        }
        _ => format!("\"${variable}\""),
    }
}

/// Returns the quote that surrounds a place of a command.
fn quote_at(command: &str, place: usize) -> Option<char> {
    let mut open: Vec<char> = Vec::new();
    let mut characters = command[..place].chars().peekable();
    while let Some(character) = characters.next() {
        match (open.last(), character) {
            (Some('\''), '\'') | (Some('"'), '"') | (Some('('), ')') => {
                open.pop();
            }
            (Some('\''), _) => {}
            (_, '\\') => {
                characters.next();
            }
            // A substitution in double quotes has quotes of its own.
            (_, '$') if characters.peek() == Some(&'(') => {
                characters.next();
                open.push('(');
            }
            (Some('"'), _) => {}
            (_, '\'' | '"' | '(') => open.push(character),
            _ => {}
        }
    }
    open.last().copied().filter(|quote| *quote != '(')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(command: &str) -> String {
        let start = command.find("${x}").unwrap();
        in_shell(command, start..start + 4, "X")
    }

    #[test]
    fn the_suggested_variable_is_one_word_in_any_quotes() {
        for (command, expected) in [
            ("find ${x} -name '*.py'", "\"$X\""),
            ("echo 'a' ${x}", "\"$X\""),
            ("echo \"in ${x}\"", "$X"),
            ("echo \"in ${x}s\"", "$${X}"),
            ("echo 'in ${x}'", "'\"$X\"'"),
            ("echo \"it's ${x}\"", "$X"),
            ("echo \"$(cat ${x})\"", "\"$X\""),
            ("echo \"$(cat 'a b') ${x}\"", "$X"),
            ("echo \\\"${x}", "\"$X\""),
            ("(cd a; ls ${x})", "\"$X\""),
        ] {
            assert_eq!(advice(command), expected, "{command}");
        }
    }

    #[test]
    fn a_type_whose_values_are_all_plain_words_is_safe() {
        let words = |texts: &[&str]| Type::of(TypeKind::Enum(texts.iter().map(|text| (*text).to_owned()).collect()));
        for (ty, risky) in [
            (Type::of(TypeKind::Integer), false),
            (Type::of(TypeKind::Number).or_null(), false),
            (Type::null(), false),
            (words(&["a-1", "b.c", "D_e"]), false),
            (words(&["a", "b; rm"]), true),
            (words(&["a", "b c"]), true),
            (Type::of(TypeKind::List(Box::new(Type::of(TypeKind::Boolean)))), false),
            (Type::of(TypeKind::Object(Vec::new())), true),
            (Type::of(TypeKind::String), true),
            (Type::any(), true),
        ] {
            assert_eq!(is_risky(&ty), risky, "{ty}");
        }
    }
}

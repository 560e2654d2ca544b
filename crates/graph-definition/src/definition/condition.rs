//! Conditions: comparisons, and `all`, `any` and `not` of them.

use std::convert::Infallible;

use graph_model::condition::{self, Condition, When};
use graph_model::grammar::{self, Conditions, Word};
use graph_model::operator::Operator;
use graph_model::path::{Path, PathError, Root};
use graph_model::value::Value;

use super::reader::{DefinitionReader, Spanned};
use super::template::{self, NamesInScope, locate};
use crate::diagnostic::{Diagnostic, SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeKey, TreeNode, YamlTree};

/// A comparison.
#[derive(Debug, Clone)]
pub struct TestDefinition {
    /// Its place in the file.
    pub span: Span,
    /// The path of the value on the left.
    pub path: Spanned<Path>,
    /// The operator.
    pub operator: Operator,
    /// The value on the right.
    pub value: Spanned<Value>,
}

/// Returns a condition as programs hold it. `written` is the value that it was read from.
pub fn program_condition(condition: &Condition<TestDefinition>, written: &Value) -> When {
    let test = |test: &TestDefinition| {
        let (path, right) = (test.path.value.clone(), test.value.value.clone());
        Ok::<_, Infallible>(condition::Test { path, operator: test.operator, right })
    };
    let Ok(condition) = condition.try_map(&mut |one| test(one));
    When::new(condition, written.clone())
}

/// Reads a condition; an empty one always holds (R77).
pub(super) fn parse(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    names: NamesInScope<'_>,
) -> Option<Condition<TestDefinition>> {
    grammar::condition(tree, &mut ConditionsInFile { reader, names }).ok()
}

/// A field that has a path, as messages speak of it.
#[derive(Clone, Copy)]
pub(super) struct PathField {
    name: &'static str,
    /// The path, and its owner, in words.
    path: &'static str,
    owner: &'static str,
    /// Where the path may lead.
    scope: &'static str,
}

impl PathField {
    const CONDITION: Self = Self {
        name: "`path`",
        path: "the path of a condition",
        owner: "a condition",
        scope: "a condition looks into `state`, `inputs`, `result` and `visit`",
    };
    /// `by` of a route.
    pub(super) const ROUTE: Self = Self {
        name: "`by`",
        path: "`by`",
        owner: "`by`",
        scope: "`by` looks into `state`, `inputs`, `result` and `visit`",
    };
    /// `element` of an entry.
    pub(super) const ELEMENT: Self = Self::of_element("`element`");
    /// A path in `element` of an entry, for one of several lists.
    pub(super) const IN_ELEMENT: Self = Self::of_element("a path in `element`");

    const fn of_element(name: &'static str) -> Self {
        Self { name, path: name, owner: name, scope: "the element of an entry is an input: `inputs.name`" }
    }
}

/// Reads the path of a value that a node routes by, or that an entry takes.
pub(super) fn parse_path(reader: &mut DefinitionReader<'_>, tree: &YamlTree, of: PathField) -> Option<Spanned<Path>> {
    read_path(reader, tree, of, NamesInScope::Node)
}

/// Builds conditions from a file, and reports mistakes.
struct ConditionsInFile<'r, 'a> {
    reader: &'r mut DefinitionReader<'a>,
    names: NamesInScope<'r>,
}

/// A mistake that was reported.
struct Reported;

impl<'t> Conditions<'t, YamlTree> for ConditionsInFile<'_, '_> {
    type Path = Spanned<Path>;
    type Test = TestDefinition;
    type Error = Reported;

    fn check(&mut self, condition: &'t YamlTree) -> Result<(), Reported> {
        if let TreeNode::String(text) = &condition.node {
            let form = form_of(text).unwrap_or_else(|| "{ path: state.key, op: eq, value: … }".to_owned());
            let help = format!("write the comparison as a mapping: `{form}`");
            self.reader.wrong_shape(condition, "a condition", "a mapping").help(help);
            return Err(Reported);
        }
        let fields = self.reader.map(condition, "a condition").ok_or(Reported)?;
        self.reader.only(&fields, "a condition", &Word::NAMES, &[]);
        Ok(())
    }

    fn list(&mut self, word: &'t TreeKey, list: &'t YamlTree) -> Result<&'t [YamlTree], Reported> {
        Ok(self.reader.list(list, &format!("`{}`", word.name)))
    }

    fn path(&mut self, path: &'t YamlTree) -> Result<Spanned<Path>, Reported> {
        read_path(self.reader, path, PathField::CONDITION, self.names).ok_or(Reported)
    }

    fn operator(&mut self, word: &'t TreeKey, name: &'t YamlTree) -> Result<Option<Operator>, Reported> {
        parse_operator(self.reader, word, name)
    }

    fn test(
        &mut self,
        comparison: &'t YamlTree,
        path: Spanned<Path>,
        operator: Operator,
        value: Option<&'t YamlTree>,
    ) -> Result<TestDefinition, Reported> {
        if let (Operator::In, Some(YamlTree { node: TreeNode::List(list), .. })) = (operator, value) {
            self.reader.note_repeated("`in`", list);
        }
        const HELP: &str = "a condition compares with a value that the graph has; to compare two values of the run, let a tool do it, \
                            and look at its result";
        if value.is_some_and(|tree| self.reader.has_template(tree, "`value` of a condition", HELP)) {
            return Err(Reported);
        }
        let value = match value {
            Some(tree) => Spanned { value: tree.to_value(), span: tree.span.clone() },
            None => Spanned { value: Value::Null, span: comparison.span.clone() },
        };
        if operator == Operator::Regex && !check_pattern(self.reader, &value) {
            return Err(Reported);
        }
        Ok(TestDefinition { span: comparison.span.clone(), path, operator, value })
    }

    fn inert(&mut self, field: &'t TreeKey, beside: &'t TreeKey) -> Result<(), Reported> {
        let place = SourcePlace::new(self.reader.source, field.span.clone());
        self.reader
            .diagnostics
            .error(code::INERT_FIELD, place, format!("`{}` does nothing beside `{}`", field.name, beside.name))
            .help("remove it, or make it part of a comparison with a `path`");
        Ok(())
    }

    fn no_form(&mut self, condition: &'t YamlTree) -> Reported {
        let place = SourcePlace::new(self.reader.source, condition.span.clone());
        self.reader
            .diagnostics
            .error(code::BAD_CONDITION, place, "a condition needs `path`, or one of `any`, `all` and `not`")
            .help("write `when: { path: state.key, op: eq, value: … }`");
        Reported
    }

    fn two_forms(&mut self, first: &'t TreeKey, second: &'t TreeKey) -> Reported {
        let message = format!("a condition has `{}` or `{}`, not both", first.name, second.name);
        self.two(message, first, second).help("combine conditions in the list of an `all` or `any`");
        Reported
    }

    fn two_operators(&mut self, first: &'t TreeKey, second: &'t TreeKey) -> Reported {
        let message = format!("a comparison has `{}` or `{}`, not both", first.name, second.name);
        self.two(message, first, second);
        Reported
    }

    fn no_value(&mut self, comparison: &'t YamlTree, operator: Operator) -> Reported {
        let place = SourcePlace::new(self.reader.source, comparison.span.clone());
        self.reader
            .diagnostics
            .error(code::MISSING_FIELD, place, format!("a comparison with `{operator}` needs `value`"))
            .help("to compare with nothing, write `value: null`");
        Reported
    }
}

impl ConditionsInFile<'_, '_> {
    /// Reports the second of two fields that exclude each other.
    fn two(&mut self, message: String, first: &TreeKey, second: &TreeKey) -> &mut Diagnostic {
        let (place, other) = (
            SourcePlace::new(self.reader.source, second.span.clone()),
            SourcePlace::new(self.reader.source, first.span.clone()),
        );
        self.reader.diagnostics.error(code::BAD_CONDITION, place, message).related(other, "the other")
    }
}

/// Reads the path of a condition. The time is refused: a path must have the same value whenever the condition is decided (R87).
fn read_path(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    of: PathField,
    names: NamesInScope<'_>,
) -> Option<Spanned<Path>> {
    let text = reader.text(tree, of.name)?;
    let place = SourcePlace::new(reader.source, text.span.clone());
    let otherwise = match names {
        NamesInScope::Hook(_) => "",
        NamesInScope::Node | NamesInScope::Item(_) => of.scope,
    };
    match names.parse_path(&text.value, &reader.arguments) {
        Ok(Path { root: Root::Now | Root::Timestamp, .. }) => {
            let diagnostic = reader.diagnostics.error(
                code::UNKNOWN_NAMESPACE,
                place,
                format!("{} cannot look at `{}`", of.owner, text.value),
            );
            match names {
                NamesInScope::Hook(_) => diagnostic.note(names.listed()),
                _ => diagnostic.help(format!("{otherwise}; assign the time to a state key first")),
            };
            None
        }
        Ok(path) => Some(Spanned { value: path, span: text.span }),
        Err(error) => {
            if text.value.starts_with("${") {
                let inside = text.value.trim_start_matches("${").trim_end_matches('}').trim();
                let diagnostic = reader.diagnostics.error(
                    code::BAD_TEMPLATE,
                    place,
                    format!("{} is written without `${{…}}`", of.path),
                );
                diagnostic.help(format!("write `{}: {inside}`", of.name.trim_matches('`')));
                let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '.');
                if inside.chars().all(is_plain) && names.parse_path(inside, &reader.arguments).is_ok() {
                    diagnostic.fix(inside, true);
                }
            } else {
                let span = match &error {
                    PathError::Character { offset, character } => *offset..offset + character.len_utf8(),
                    _ => 0..text.value.len(),
                };
                let place = SourcePlace::new(reader.source, locate(reader.source, &text.span, &text.value, &span));
                template::report_path(reader, place, &error, otherwise, names);
            }
            None
        }
    }
}

/// Reads the name of an operator.
fn parse_operator(
    reader: &mut DefinitionReader<'_>,
    word: &TreeKey,
    tree: &YamlTree,
) -> Result<Option<Operator>, Reported> {
    if tree.node == TreeNode::Null {
        return Ok(None);
    }
    let text = reader.text(tree, &format!("`{}`", word.name)).ok_or(Reported)?;
    let operator = Operator::named(&text.value);
    if operator.is_none() {
        let place = SourcePlace::new(reader.source, text.span);
        let names = Operator::TABLE.map(|row| row.name);
        let diagnostic =
            reader.diagnostics.error(code::UNKNOWN_OPERATOR, place, format!("`{}` is not an operator", text.value));
        diagnostic.note(format!("the operators are {}", names.map(|name| format!("`{name}`")).join(", ")));
        match symbol(&text.value) {
            // A symbol has one meaning; a word may have been meant in another way.
            Some(name) => diagnostic
                .help(format!("did you mean `{name}`?"))
                .fix(name, !text.value.contains(|character: char| character.is_ascii_alphabetic() || character == '~')),
            None => diagnostic.suggest(&text.value, names),
        };
    }
    operator.map(Some).ok_or(Reported)
}

/// Returns the mapping for a comparison that was written as a text, as `${inputs.n} > 3`.
fn form_of(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let path = words.next()?.trim_start_matches("${").trim_end_matches('}');
    let operator = words.next()?;
    let operator = Operator::named(operator).map_or_else(|| symbol(operator), |_| Some(operator))?;
    let value = words.collect::<Vec<_>>().join(" ");
    let is_plain = |text: &str| !text.is_empty() && !text.contains(['{', '}', '`', ',']);
    (is_plain(path) && is_plain(&value)).then(|| format!("{{ path: {path}, op: {operator}, value: {value} }}"))
}

/// Returns the operator for a spelling from another language.
fn symbol(text: &str) -> Option<&'static str> {
    Some(match text {
        "=" | "==" | "===" | "equals" | "is" => "eq",
        "!=" | "<>" | "!==" | "not_equals" => "ne",
        ">" => "gt",
        ">=" | "ge" => "gte",
        "<" => "lt",
        "<=" | "le" => "lte",
        "=~" | "matches" | "match" => "regex",
        "includes" | "has" => "contains",
        "not_null" | "defined" => "exists",
        _ => return None,
    })
}

fn check_pattern(reader: &mut DefinitionReader<'_>, value: &Spanned<Value>) -> bool {
    let place = SourcePlace::new(reader.source, value.span.clone());
    let Value::String(pattern) = &value.value else {
        reader.diagnostics.error(code::BAD_REGEX, place, "the value of `regex` is a pattern, a string");
        return false;
    };
    reader.pattern(pattern, &value.span)
}

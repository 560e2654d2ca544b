//! Directives: tasks for an agent, as XML within Markdown.
//!
//! A directive is read and handed out as data; nothing here talks to a model (R10). Its signature covers only the
//! `<directive>` element. A `<process>` outside of it, as in most published directives, is therefore unsigned, and the result
//! says so (R30).

use std::fmt;

use graph_model::capability::{Pattern, PatternError};
use graph_model::input;
use graph_model::number::read_json;
use graph_model::program::{ItemType, Verb};
use graph_model::value::{AsView, describe};
use graph_signing::ItemKind;
use quick_xml::events::BytesStart;
use serde_json::{Map, Value, json};

use super::xml::{self, Element, lines, tidy};

/// The first mistake in a directive, with its line.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct DirectiveError {
    /// The line of the text that was read, from 1.
    pub line: usize,
    /// The mistake.
    pub problem: DirectiveProblem,
}

/// A mistake in a directive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectiveProblem {
    /// There is no `<directive>` element.
    #[error("there is no `<directive>` element")]
    NoElement,
    /// There is more than one element between the first `<directive` and the last `</directive>`.
    #[error("there must be one `<directive>` element, and there are several; write the word without `<` elsewhere")]
    SeveralElements,
    /// The text is not well-formed XML.
    #[error("{0}")]
    Xml(String),
    /// An element has no end.
    #[error("`<{0}>` is never closed")]
    NotClosed(String),
    /// An entity that XML itself does not have.
    #[error("`&{0};` is not an entity of XML; write the character, or `&amp;` for an ampersand")]
    Entity(String),
    /// A document type, which could pull in other files and endless entities.
    #[error("a document type is not allowed")]
    DocumentType,
    /// More than any directive needs.
    #[error("elements are nested more than {deepest} deep, or there are more than {most}")]
    TooLarge {
        /// The maximum depth.
        deepest: usize,
        /// The maximum number of elements.
        most: usize,
    },
    /// An attribute that an element needs.
    #[error("`<{element}>` has no `{attribute}`")]
    Missing {
        /// The element.
        element: &'static str,
        /// The attribute.
        attribute: &'static str,
    },
    /// An element whose name differs from that of its siblings.
    #[error("`<{found}>` is not allowed here, only `<{expected}>`")]
    Unexpected {
        /// Its name.
        found: String,
        /// The name that the others have.
        expected: &'static str,
    },
    /// Two inputs, two outputs or two elements of one name.
    #[error("there are two {what} `{name}`")]
    Twice {
        /// The plural of the kind: `inputs`, `outputs` or `elements`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An attribute that is neither `true` nor `false`.
    #[error("`required` is `{0}`, and must be `true` or `false`")]
    Required(String),
    /// An input of an unknown type.
    #[error("`{0}` is not a type of an input; the types are {types}", types = InputType::NAMES)]
    Type(String),
    /// A default that is not of its input's type.
    #[error("the default `{default}` of the input `{name}` is not of the type {of}")]
    Default {
        /// The input.
        name: String,
        /// Its default, as written.
        default: String,
        /// Its type.
        of: InputType,
    },
    /// A limit that is not a number.
    #[error("the limit `{name}` is `{value}`, and must be a number")]
    Limit {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// An element of `<permissions>` that is neither a verb nor a kind of item.
    #[error(
        "`<{0}>` grants nothing: `<permissions>` contains `<execute>`, `<fetch>` and `<sign>`, and these contain `<tool>`, `<directive>` and `<knowledge>`"
    )]
    Grant(String),
    /// A permission that contradicts the elements around it.
    #[error("`{permission}` is not allowed here, only `{expected}…`")]
    Elsewhere {
        /// The permission.
        permission: String,
        /// The beginning that it must have.
        expected: String,
    },
    /// A permission that is not a capability.
    #[error("{0}")]
    Permission(PatternError),
}

/// A directive.
///
/// ```
/// use graph_directive::Directive;
/// use graph_model::value::Map;
///
/// let mut refund = Directive::parse(
///     r#"<directive name="refund" version="1.0.0">
///       <inputs><input name="order" type="integer" required="true">The order</input></inputs>
///       <process><step name="pay">Pay order {input:order} back.</step></process>
///     </directive>"#,
/// )?;
/// refund.apply(Map::from_iter([("order".to_owned(), 17.into())]))?;
/// assert_eq!(refund.process[0].text, "Pay order 17 back.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Directive {
    /// Its name.
    pub name: String,
    /// The version that its author gave it.
    pub version: String,
    /// Its purpose.
    pub description: Option<String>,
    /// The directory that it belongs in.
    pub category: Option<String>,
    /// Its author.
    pub author: Option<String>,
    /// The model that should follow it: the attributes of `<model>`, such as `tier`.
    pub model: Option<Value>,
    /// The budget of an agent that follows it, such as `turns` and `tokens`.
    pub limits: Map<String, Value>,
    /// The capabilities that it grants to an agent.
    pub permissions: Vec<Pattern>,
    /// The other parts of `<metadata>` and the other attributes of `<directive>`.
    pub other: Map<String, Value>,
    /// The inputs that it receives.
    pub inputs: Vec<Input>,
    /// The outputs that it returns.
    pub outputs: Vec<Output>,
    /// The work, step by step. [`Directive::process_signed`] says whether the author's signature covers it.
    pub process: Vec<ProcessStep>,
    /// The signs by which one sees that the work is done.
    pub success_criteria: Vec<String>,
    /// Whether `process` and `success_criteria` are inside the `<directive>` element and therefore signed. Also true if there
    /// are no such elements.
    pub process_signed: bool,
}

/// An input of a directive.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: InputType,
    /// Whether it must be given.
    pub required: bool,
    /// Its value if it is not given.
    pub default: Option<Value>,
    /// Its purpose.
    pub description: String,
}

/// The type of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputType {
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A list.
    Array,
    /// A mapping.
    Object,
    /// Any value.
    Any,
}

impl InputType {
    const TABLE: [(Self, &'static str); 7] = [
        (Self::String, "string"),
        (Self::Integer, "integer"),
        (Self::Number, "number"),
        (Self::Boolean, "boolean"),
        (Self::Array, "array"),
        (Self::Object, "object"),
        (Self::Any, "any"),
    ];
    const NAMES: &'static str = "`string`, `integer`, `number`, `boolean`, `array`, `object`, `any`";

    /// Returns the type with the name `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, spelling)| *spelling == name).map(|(of, _)| *of)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(of, _)| *of == self).map_or("", |(_, spelling)| spelling)
    }

    /// Whether `value` has the type.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
            Self::Any => true,
        }
    }
}

impl fmt::Display for InputType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An output of a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its type, if the directive declares one.
    pub of: Option<String>,
    /// Its description.
    pub description: String,
}

/// A step of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStep {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The work to do.
    pub text: String,
}

/// The reason that a directive cannot be carried out with the given inputs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the inputs do not fit the directive `{directive}`: {}", .problems.join(", "))]
pub struct InputsError {
    /// The directive.
    pub directive: String,
    /// All mistakes, in the order of the directive's inputs (R49).
    pub problems: Vec<String>,
}

impl Directive {
    /// Reads the directive in `text`, which is the Markdown around it.
    ///
    /// [`Directive`] has an example.
    ///
    /// Only the signed part is read strictly, as XML. A process outside of it is prose in which only `<step>`, `<criterion>`
    /// and their end tags count as tags.
    ///
    /// # Errors
    ///
    /// The first mistake, with its line in `text`.
    pub fn parse(text: &str) -> Result<Self, DirectiveError> {
        let no_element = DirectiveError { line: 1, problem: DirectiveProblem::NoElement };
        let source = ItemKind::Directive.covered(text).ok_or(no_element)?;
        let start = text.find("<directive").unwrap_or(0);
        let line = 1 + lines(&text[..start]);
        let root = xml::parse(source, line)?;
        if root.name != "directive" {
            return Err(DirectiveError { line, problem: DirectiveProblem::NoElement });
        }
        let mut directive = Self {
            name: needed(&root, "directive", "name")?,
            version: needed(&root, "directive", "version")?,
            description: None,
            category: None,
            author: None,
            model: None,
            limits: Map::new(),
            permissions: Vec::new(),
            other: Map::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            process: Vec::new(),
            success_criteria: Vec::new(),
            process_signed: true,
        };
        for (name, value) in root.attributes.iter().filter(|(name, _)| !matches!(name.as_str(), "name" | "version")) {
            directive.other.insert(name.clone(), Value::from(value.as_str()));
        }
        for (at, child) in root.children.iter().enumerate() {
            let known = ["metadata", "inputs", "outputs", "process", "success_criteria"];
            let name = child.name.as_str();
            if known.contains(&name) && root.children[..at].iter().any(|other| other.name == name) {
                let problem = DirectiveProblem::Twice { what: "elements", name: name.to_owned() };
                return Err(DirectiveError { line: child.line, problem });
            }
            match name {
                "metadata" => directive.read_metadata(child)?,
                "inputs" => directive.read_inputs(child)?,
                "outputs" => directive.read_outputs(child)?,
                "process" | "success_criteria" => {}
                _ => put(&mut directive.other, child),
            }
        }
        for (section, tag) in [("process", "step"), ("success_criteria", "criterion")] {
            if let Some(element) = root.child(section) {
                let parts = element.children.iter().filter(|child| child.name == tag);
                let parts =
                    parts.map(|part| (part.attribute("name").map(str::to_owned), inside(part, source))).collect();
                directive.add(section, parts, || inside(element, source));
            }
        }
        // An unsigned part must not add to a signed one.
        if directive.process.is_empty() && directive.success_criteria.is_empty() {
            directive.read_unsigned(text, start, start + source.len())?;
        }
        Ok(directive)
    }

    fn read_unsigned(&mut self, text: &str, start: usize, end: usize) -> Result<(), DirectiveError> {
        for (section, tag) in [("process", "step"), ("success_criteria", "criterion")] {
            let after = Prose { text: &text[end..], line: 1 + lines(&text[..end]) };
            let before = Prose { text: &text[..start], line: 1 };
            let found = match after.element(section)? {
                None => before.element(section)?,
                found => found,
            };
            if let Some(found) = found {
                let mut parts = Vec::new();
                let mut rest = found.inside;
                while let Some(part) = rest.element(tag)? {
                    let name = part.attributes.into_iter().find(|(name, _)| name == "name").map(|(_, value)| value);
                    parts.push((name, plain(part.inside.text)));
                    rest = part.rest;
                }
                self.add(section, parts, || plain(found.inside.text));
                self.process_signed = false;
            }
        }
        Ok(())
    }

    fn add(&mut self, section: &str, mut parts: Vec<(Option<String>, String)>, whole: impl FnOnce() -> String) {
        if parts.is_empty() {
            parts.extend(Some((None, whole())).filter(|(_, text)| !text.is_empty()));
        }
        match section {
            "process" => self.process.extend(parts.into_iter().map(|(name, text)| ProcessStep { name, text })),
            _ => self.success_criteria.extend(parts.into_iter().map(|(_, text)| text)),
        }
    }

    fn read_metadata(&mut self, metadata: &Element) -> Result<(), DirectiveError> {
        for child in &metadata.children {
            match child.name.as_str() {
                "description" => self.description = Some(child.text()),
                "category" => self.category = Some(child.text()),
                "author" => self.author = Some(child.text()),
                "model" => self.model = Some(child.to_json()),
                "limits" => {
                    for (name, value) in &child.attributes {
                        let number = value.parse::<u64>().map(Value::from).ok();
                        let number = number.or_else(|| value.parse::<i64>().map(Value::from).ok());
                        // A float would lose digits of an integer that does not fit.
                        let is_float = value.contains(['.', 'e', 'E']);
                        let float = || value.parse::<f64>().ok().filter(|_| is_float).map(Value::from);
                        let number = number.or_else(float);
                        let number = number.filter(|number| number.is_number()).ok_or_else(|| DirectiveError {
                            line: child.line,
                            problem: DirectiveProblem::Limit { name: name.clone(), value: value.clone() },
                        })?;
                        self.limits.insert(name.clone(), number);
                    }
                }
                "permissions" => self.read_permissions(child, &mut Vec::new())?,
                _ => put(&mut self.other, child),
            }
        }
        Ok(())
    }

    /// Reads the permissions in `element`. `within` names the elements around it: a verb and an item type.
    ///
    /// `<execute><tool>rye/bash</tool></execute>` and `<execute><tool>rye.execute.tool.rye.bash</tool></execute>` are the
    /// same capability.
    fn read_permissions<'e>(&mut self, element: &'e Element, within: &mut Vec<&'e str>) -> Result<(), DirectiveError> {
        let wrong = |problem| DirectiveError { line: element.line, problem };
        let text = element.text();
        if !text.is_empty() {
            let prefix = format!("rye.{}", within.iter().flat_map(|word| [word, "."]).collect::<String>());
            let dotted = text.replace('/', ".");
            let whole = Verb::TABLE.iter().flat_map(|(_, names)| *names);
            let names_a_verb = whole.clone().any(|verb| dotted.starts_with(&format!("rye.{verb}.")));
            let permission = if dotted.starts_with(&prefix) && (names_a_verb || dotted == "rye.*") {
                dotted
            } else if names_a_verb {
                return Err(wrong(DirectiveProblem::Elsewhere { permission: text, expected: prefix }));
            } else {
                format!("{prefix}{dotted}")
            };
            self.permissions
                .push(Pattern::new(permission).map_err(|error| wrong(DirectiveProblem::Permission(error)))?);
        }
        for child in &element.children {
            let unknown = || DirectiveError { line: child.line, problem: DirectiveProblem::Grant(child.name.clone()) };
            let word = match within.len() {
                0 => Verb::named(&child.name).map(Verb::name),
                1 => ItemType::named(&child.name).map(ItemType::name),
                _ => None,
            };
            within.push(word.ok_or_else(unknown)?);
            self.read_permissions(child, within)?;
            within.pop();
        }
        Ok(())
    }

    fn read_inputs(&mut self, inputs: &Element) -> Result<(), DirectiveError> {
        for element in &inputs.children {
            only(element, "input")?;
            let wrong = |problem| DirectiveError { line: element.line, problem };
            let name = needed(element, "input", "name")?;
            if self.inputs.iter().any(|other| other.name == name) {
                return Err(wrong(DirectiveProblem::Twice { what: "inputs", name }));
            }
            let of = element.attribute("type").unwrap_or("string");
            let of = InputType::named(of).ok_or_else(|| wrong(DirectiveProblem::Type(of.to_owned())))?;
            let required = match element.attribute("required") {
                Some("true") => true,
                Some("false") | None => false,
                Some(other) => return Err(wrong(DirectiveProblem::Required(other.to_owned()))),
            };
            let default = element.attribute("default").map(|default| {
                let value = match of {
                    InputType::String => Value::from(default),
                    // A default of the type `any` is a string unless it is JSON.
                    InputType::Any => read_json(default).unwrap_or_else(|_| Value::from(default)),
                    _ => read_json(default).unwrap_or_default(),
                };
                let refused = || DirectiveProblem::Default { name: name.clone(), default: default.to_owned(), of };
                Some(value).filter(|value| of.accepts(value)).ok_or_else(|| wrong(refused()))
            });
            let default = default.transpose()?;
            self.inputs.push(Input { name, of, required, default, description: element.text() });
        }
        Ok(())
    }

    fn read_outputs(&mut self, outputs: &Element) -> Result<(), DirectiveError> {
        for element in &outputs.children {
            only(element, "output")?;
            let name = needed(element, "output", "name")?;
            if self.outputs.iter().any(|other| other.name == name) {
                let problem = DirectiveProblem::Twice { what: "outputs", name };
                return Err(DirectiveError { line: element.line, problem });
            }
            let of = element.attribute("type").map(str::to_owned);
            self.outputs.push(Output { name, of, description: element.text() });
        }
        Ok(())
    }

    /// Applies inputs to the directive: applies defaults, checks required inputs and types, and substitutes the values for
    /// `{input:…}` in the process and the criteria. Returns the inputs with defaults applied.
    ///
    /// A null input counts as not given (R74). If it is optional and has no default, it is replaced by nothing. An optional
    /// input that is absent has no value, so `{input:name}` stays in the text (R71). Inputs that the directive does not
    /// declare stay in the result.
    ///
    /// # Errors
    ///
    /// If inputs are missing or have another type; the error names all of them.
    pub fn apply(&mut self, mut given: Map<String, Value>) -> Result<Map<String, Value>, InputsError> {
        let mut problems = Vec::new();
        for Input { name, of, required, default, .. } in &self.inputs {
            if let (None | Some(Value::Null), Some(default)) = (given.get(name), default) {
                given.insert(name.clone(), default.clone());
            }
            match given.get(name) {
                None | Some(Value::Null) if *required => problems.push(format!("missing required input: '{name}'")),
                Some(value) if !value.is_null() && !of.accepts(value) => {
                    problems.push(format!(
                        "the input '{name}' must be of the type {of}, and is {}",
                        describe(value.view())
                    ));
                }
                _ => {}
            }
        }
        if !problems.is_empty() {
            return Err(InputsError { directive: self.name.clone(), problems });
        }
        let texts = self.process.iter_mut().map(|step| &mut step.text).chain(&mut self.success_criteria);
        for text in texts {
            *text = insert_inputs(text, &given);
        }
        Ok(given)
    }

    /// Returns the directive as JSON.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut metadata = self.other.clone();
        metadata.insert("author".to_owned(), json!(self.author));
        metadata.insert("model".to_owned(), json!(self.model));
        metadata.insert("limits".to_owned(), json!(self.limits));
        metadata.insert("permissions".to_owned(), json!(self.permissions));
        let inputs = self.inputs.iter().map(|input| {
            let mut object = Map::new();
            object.insert("name".to_owned(), json!(input.name));
            object.insert("type".to_owned(), json!(input.of.name()));
            object.insert("required".to_owned(), json!(input.required));
            object.extend(input.default.iter().map(|default| ("default".to_owned(), default.clone())));
            object.insert("description".to_owned(), json!(input.description));
            Value::Object(object)
        });
        let outputs = self.outputs.iter().map(|output| {
            let mut object = Map::new();
            object.insert("name".to_owned(), json!(output.name));
            object.extend(output.of.iter().map(|of| ("type".to_owned(), json!(of))));
            object.insert("description".to_owned(), json!(output.description));
            Value::Object(object)
        });
        let process = self.process.iter().map(|step| json!({ "name": step.name, "text": step.text }));
        [
            ("name", json!(self.name)),
            ("version", json!(self.version)),
            ("description", json!(self.description)),
            ("category", json!(self.category)),
            ("metadata", Value::Object(metadata)),
            ("inputs", inputs.collect()),
            ("outputs", outputs.collect()),
            ("process", process.collect()),
            ("success_criteria", json!(self.success_criteria)),
            ("process_signed", json!(self.process_signed)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
    }
}

/// Returns `text` with the values of `inputs` in place of its `{input:…}` (R73).
pub fn insert_inputs(text: &str, inputs: &Map<String, Value>) -> String {
    input::substitute(text, |name| inputs.get(name).map(AsView::view))
}

fn needed(element: &Element, name: &'static str, attribute: &'static str) -> Result<String, DirectiveError> {
    let value = element.attribute(attribute).filter(|value| !value.trim().is_empty());
    value
        .map(str::to_owned)
        .ok_or(DirectiveError { line: element.line, problem: DirectiveProblem::Missing { element: name, attribute } })
}

fn only(element: &Element, expected: &'static str) -> Result<(), DirectiveError> {
    if element.name == expected {
        return Ok(());
    }
    let problem = DirectiveProblem::Unexpected { found: element.name.clone(), expected };
    Err(DirectiveError { line: element.line, problem })
}

/// Adds `element` to the other parts; several elements of one name become a list.
fn put(other: &mut Map<String, Value>, element: &Element) {
    let value = element.to_json();
    match other.get_mut(&element.name) {
        None => {
            other.insert(element.name.clone(), value);
        }
        Some(Value::Array(list)) => list.push(value),
        Some(one) => *one = Value::Array(vec![one.take(), value]),
    }
}

/// Returns the text of an element of `source`; the tags of its children stay as written.
fn inside(element: &Element, source: &str) -> String {
    if element.children.is_empty() { element.text() } else { tidy(&source[element.inside.clone()]) }
}

/// Replaces XML entities by their characters. In prose, a bare ampersand is allowed.
fn plain(text: &str) -> String {
    let text = tidy(text);
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

/// The longest tag in prose, in bytes. The text may be untrusted, and reading a tag compares its attributes with each other.
const LONGEST_TAG: usize = 4096;

/// A text in which only a few tags have a meaning.
#[derive(Clone, Copy)]
struct Prose<'t> {
    text: &'t str,
    /// The line of its first character.
    line: usize,
}

/// An element in prose.
struct FoundElement<'t> {
    attributes: Vec<(String, String)>,
    inside: Prose<'t>,
    rest: Prose<'t>,
}

impl<'t> Prose<'t> {
    fn after(self, start: usize) -> Self {
        Self { text: &self.text[start..], line: self.line + lines(&self.text[..start]) }
    }

    /// Finds the first element called `name`.
    fn element(self, name: &str) -> Result<Option<FoundElement<'t>>, DirectiveError> {
        let open = format!("<{name}");
        let is_tag = |rest: &str| rest.starts_with(|next: char| next == '>' || next.is_whitespace());
        let mut starts = self.text.match_indices(&open).map(|(start, _)| start);
        let Some(start) = starts.find(|start| is_tag(&self.text[start + open.len()..])) else {
            return Ok(None);
        };
        let at = self.after(start);
        let wrong = |problem| DirectiveError { line: at.line, problem };
        let not_closed = || wrong(DirectiveProblem::NotClosed(name.to_owned()));
        let tag = end_of_tag(at.text).filter(|&tag| tag <= LONGEST_TAG).ok_or_else(not_closed)?;
        let attributes = xml::attributes(&BytesStart::from_content(&at.text[1..tag], name.len()), at.line)?;
        let inside = at.after(tag + 1);
        let close = format!("</{name}>");
        let length = inside.text.find(&close).ok_or_else(not_closed)?;
        let rest = inside.after(length + close.len());
        Ok(Some(FoundElement { attributes, inside: Prose { text: &inside.text[..length], ..inside }, rest }))
    }
}

/// Returns the position of the `>` that ends the tag at the start of `text`. A `>` in quotes does not count.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(at, character)| {
        match (quote, character) {
            (None, '>') => return Some(at),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE_GRAPH: &str = include_str!("state_graph.md");

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { unreachable!("tests give objects") };
        map
    }

    fn directive(inside: &str) -> Result<Directive, DirectiveError> {
        Directive::parse(&format!("# Title\n<directive name=\"d\" version=\"1.0.0\">{inside}</directive>\n"))
    }

    fn wrong(inside: &str) -> String {
        directive(inside).unwrap_err().to_string()
    }

    #[test]
    fn a_directive_of_the_published_form_is_read_completely() {
        let directive = Directive::parse(STATE_GRAPH).unwrap();
        assert_eq!((directive.name.as_str(), directive.version.as_str()), ("state_graph", "1.0.0"));
        assert_eq!(directive.description.as_deref(), Some("Runs a state graph & tells how it ended."));
        assert_eq!(directive.category.as_deref(), Some("rye/agent/graphs"));
        assert_eq!(directive.author.as_deref(), Some("tester"));
        assert_eq!(directive.model, Some(json!({"tier": "general"})));
        assert_eq!(Value::Object(directive.limits.clone()), json!({"turns": 4, "tokens": 4096}));
        assert_eq!(json!(directive.permissions), json!(["rye.execute.tool.*"]));
        let inputs: Vec<_> = directive.inputs.iter().map(|i| (i.name.as_str(), i.of.name(), i.required)).collect();
        assert_eq!(
            inputs,
            [
                ("graph_id", "string", true),
                ("parameters", "object", false),
                ("async", "boolean", false),
                ("resume_run_id", "string", false),
                ("capabilities", "array", false),
                ("depth", "integer", false)
            ]
        );
        assert_eq!(directive.inputs[0].description, "Which graph (for example \"shop/order\")");
        let outputs: Vec<_> = directive.outputs.iter().map(|output| output.name.as_str()).collect();
        assert_eq!(outputs, ["graph_run_id", "status", "state", "steps"]);
        let steps: Vec<_> = directive.process.iter().filter_map(|step| step.name.as_deref()).collect();
        assert_eq!(steps, ["validate_input", "build_parameters", "execute_graph", "return_result"]);
        assert_eq!(
            directive.process[2].text,
            "Call `execute(item_id=\"{input:graph_id}\", parameters=<built parameters>)`.\n  - once & for all"
        );
        assert_eq!(directive.success_criteria.len(), 2);
        assert!(!directive.process_signed, "it stands outside of the element");
    }

    #[test]
    fn given_inputs_fill_the_process_and_missing_ones_stay() {
        let mut directive = Directive::parse(STATE_GRAPH).unwrap();
        let given = json!({"graph_id": "{input:async}", "parameters": {"a": 1}});
        directive.apply(object(given)).unwrap();
        assert_eq!(directive.process[0].text, "Make sure that {input:async} is not empty.\nElse stop.");
        assert_eq!(
            directive.process[1].text,
            "Begin with {\"a\":1}. If {input:async} is true, add `async: true`; a depth is 5."
        );
        assert_eq!(directive.process[3].text, "Return what it returned.");
        assert_eq!(directive.success_criteria[0], "{input:async} was run");
    }

    #[test]
    fn all_inputs_that_are_missing_or_of_another_type_are_named() {
        let mut directive = Directive::parse(STATE_GRAPH).unwrap();
        let error = directive.apply(object(json!({"graph_id": null, "async": "true", "depth": 1.5}))).unwrap_err();
        assert!(error.to_string().starts_with("the inputs do not fit the directive `state_graph`: "));
        assert_eq!(error.problems[0], "missing required input: 'graph_id'");
        assert!(error.problems[1].starts_with("the input 'async' must be of the type boolean, and is "));
        assert!(error.problems[2].starts_with("the input 'depth' must be of the type integer, and is "));
        assert_eq!(error.problems.len(), 3);
    }

    #[test]
    fn defaults_apply_before_the_check_and_null_counts_as_missing() {
        let mut directive = directive(
            r#"<inputs>
                <input name="n" type="integer" required="true" default="3"/>
                <input name="o"/>
            </inputs>
            <process>[{input:n}] [{input:o}] [{input:extra}]</process>"#,
        )
        .unwrap();
        let given = directive.apply(object(json!({"n": null, "o": null, "extra": true}))).unwrap();
        assert_eq!(given["n"], 3);
        assert_eq!(directive.process[0].text, "[3] [] [true]");
        assert!(directive.process_signed);
    }

    #[test]
    fn a_signed_process_is_not_added_to_by_an_unsigned_one() {
        let text = "<directive name=\"d\" version=\"1\"><process><step name=\"a\">do <b>this</b></step></process></directive>\n<process><step>do that</step></process>\n<success_criteria>evil</success_criteria>";
        let directive = Directive::parse(text).unwrap();
        assert_eq!(directive.process, [ProcessStep { name: Some("a".into()), text: "do <b>this</b>".into() }]);
        assert!(directive.process_signed && directive.success_criteria.is_empty());
    }

    #[test]
    fn entities_and_character_data_are_text() {
        let directive = directive(
            "<metadata><description>a &lt; b &#38; &#x63; <![CDATA[<d> & e]]></description></metadata>\
             <process><step><![CDATA[if a < b && c]]></step></process>",
        )
        .unwrap();
        assert_eq!(directive.description.as_deref(), Some("a < b & c <d> & e"));
        assert_eq!(directive.process[0].text, "if a < b && c");
    }

    #[test]
    fn permissions_become_capabilities() {
        let granted = |inside: &str| {
            let inside = format!("<metadata><permissions>{inside}</permissions></metadata>");
            directive(&inside).map(|directive| json!(directive.permissions).to_string()).map_err(|e| e.to_string())
        };
        for (inside, expected) in [
            ("*", "rye.*"),
            ("<execute>*</execute>", "rye.execute.*"),
            ("<execute><tool>rye/bash</tool></execute>", "rye.execute.tool.rye.bash"),
            ("<execute><tool>shop/*</tool></execute>", "rye.execute.tool.shop.*"),
            ("<execute><tool>rye.execute.tool.rye.bash</tool></execute>", "rye.execute.tool.rye.bash"),
            ("<search><knowledge>notes.*</knowledge></search>", "rye.fetch.knowledge.notes.*"),
            ("rye.sign.directive.*", "rye.sign.directive.*"),
        ] {
            assert_eq!(granted(inside), Ok(format!("[\"{expected}\"]")), "{inside}");
        }
        for (inside, expected) in [
            ("<fetch><tool>rye.execute.tool.x</tool></fetch>", "is not allowed here, only `rye.fetch.tool.…`"),
            ("<delete>*</delete>", "`<delete>` grants nothing"),
            ("<execute><tool>a b</tool></execute>", "cannot contain ' '"),
        ] {
            let error = granted(inside).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn other_elements_of_a_directive_are_preserved() {
        let directive = directive(
            "<metadata><tags><tag>a</tag><tag>b</tag></tags></metadata><context><file path=\"x\">y</file></context>",
        )
        .unwrap();
        let expected = json!({
            "tags": {"tag": ["a", "b"]},
            "context": {"file": {"path": "x", "text": "y"}},
        });
        assert_eq!(Value::Object(directive.other), expected);
    }

    #[test]
    fn mistakes_are_reported_with_their_lines() {
        for (inside, expected) in [
            ("\n<a>\n</b>", "line 4: "),
            ("\n<metadata>\n", "line 4: "),
            ("&nbsp;", "line 2: `&nbsp;` is not an entity of XML"),
            ("\n<inputs><input/></inputs>", "line 3: `<input>` has no `name`"),
            ("<inputs><inptu name=\"a\"/></inputs>", "line 2: `<inptu>` is not allowed here, only `<input>`"),
            ("<inputs>\n<input name=\"a\"/>\n<input name=\"a\"/></inputs>", "line 4: there are two inputs `a`"),
            ("<inputs><input name=\"a\" type=\"path\"/></inputs>", "line 2: `path` is not a type of an input"),
            ("<inputs><input name=\"a\" required=\"yes\"/></inputs>", "line 2: `required` is `yes`"),
            (
                "<inputs><input name=\"a\" type=\"integer\" default=\"x\"/></inputs>",
                "line 2: the default `x` of the input `a` is not of the type integer",
            ),
            ("<metadata><limits turns=\"many\"/></metadata>", "line 2: the limit `turns` is `many`"),
            ("<metadata/>\n<metadata/>", "line 3: there are two elements `metadata`"),
            ("<a x=\"1\" x=\"2\"/>", "line 2: "),
            (
                "</directive><directive name=\"e\" version=\"1\">",
                "line 2: there must be one `<directive>` element, and there are several",
            ),
        ] {
            let error = wrong(inside);
            assert!(error.starts_with(expected), "{inside}: {error}");
        }
        assert!(wrong(&"<a>".repeat(40)).contains("more than 32 deep"));
        assert!(wrong(&"<a/>".repeat(10_001)).contains("more than 10000"));
        assert!(Directive::parse("nothing").is_err());
        let unsigned = "<directive name=\"d\" version=\"1\"></directive>\n\n<process>\n<step name=\"a\">\n</process>\n";
        assert_eq!(Directive::parse(unsigned).unwrap_err().to_string(), "line 4: `<step>` is never closed");
    }

    #[test]
    fn a_document_type_is_refused() {
        let error = wrong("<!DOCTYPE d [<!ENTITY a \"aaaa\">]>");
        assert!(error.contains("a document type is not allowed"), "{error}");
    }
}

//! Parameters fit the tool's contract or the nested graph's inputs.

use std::fmt::Display;

use graph_definition::definition::{CallDefinition, Contract, Spanned, TermDefinition, TermKind, locate};
use graph_definition::diagnostic::{Diagnostics, SourcePlace, code, nearest};
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::template::{Expression, InputReference, Piece, Template};
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::calls::{Caller, TaskCall, TaskInputs};
use crate::analysis::reads::Site;
use crate::items::{Nested, TaskTarget};
use crate::types::{Misfit, Type, TypeKind, TypedField, is_member};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    check_all(analysis, Looks::AtTypes, diagnostics);
}

/// Checks that a call has the values that it needs; their types are checked by another rule.
pub(super) fn check_missing(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    check_all(analysis, Looks::ForNothing, diagnostics);
}

/// The subject of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    AtTypes,
    ForNothing,
}

fn check_all(analysis: &Analysis<'_>, looks: Looks, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        let tool = analysis.model.tool(call);
        let (node, site) = caller.site();
        let given = ParameterCheck {
            analysis,
            node,
            site,
            part: "parameter",
            contract: tool.contract,
            graph: tool.graph,
            looks,
        };
        if let Some((term, _)) = call.computed() {
            let text = Type::of(TypeKind::String);
            given.check_value(term, &text, &"an `item_id`", false, diagnostics);
            if looks == Looks::ForNothing {
                given.check_pieces(term, diagnostics);
            }
        }
        check_task(analysis, (caller, call), looks, diagnostics);
        let Some(params) = &tool.params else { continue };
        let whose = call.shown();
        match (&call.params.kind, &params.kind) {
            (TermKind::Object(terms), TypeKind::Object(fields)) => {
                given.check_object(terms, fields, &call.item.span, &whose, diagnostics);
            }
            _ => given.check_value(&call.params, params, &whose, false, diagnostics),
        }
    }
    check_writes(analysis, looks, diagnostics);
}

/// Checks the inputs of the task that a call starts, as if a node called what it runs.
fn check_task(
    analysis: &Analysis<'_>,
    (caller, call): (Caller<'_>, &CallDefinition),
    looks: Looks,
    diagnostics: &mut Diagnostics,
) {
    let Some(TaskCall { name: Some(name), inputs, .. }) = analysis.model.task(call) else { return };
    let Some(TaskTarget::Found(item)) = analysis.model.started(&name) else { return };
    let (node, site) = caller.site();
    let given = ParameterCheck { analysis, node, site, part: "input", contract: None, graph: None, looks };
    let whose = format!("`{}`", item.id);
    match (&inputs, &item.inputs.kind) {
        (TaskInputs::Fields(terms), TypeKind::Object(fields)) => {
            given.check_object(terms, fields, name.span, &whose, diagnostics);
        }
        (TaskInputs::Whole(term), _) => given.check_value(term, &item.inputs, &whose, false, diagnostics),
        (TaskInputs::Fields(_) | TaskInputs::Unknown, _) => {}
    }
}

/// Checks the writes to channels whose reducer is a function of the program against the function's contract.
fn check_writes(analysis: &Analysis<'_>, looks: Looks, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    for (node, definition) in model.definition.nodes.iter().enumerate() {
        for (index, assignment) in definition.assign().iter().enumerate() {
            let key = model.key(assignment.key.value.as_str()).map(|key| &model.keys[key]);
            let Some(function) = key.and_then(|key| key.function.as_ref()) else { continue };
            let (site, contract) = (Site::Assign(index), function.contract);
            let given = ParameterCheck { analysis, node, site, part: "field", contract, graph: None, looks };
            let whose = format_args!("channel `{}`", assignment.key);
            if !is_null(&assignment.value) {
                given.check_value(&assignment.value, &function.write, &whose, false, diagnostics);
            }
        }
    }
}

/// A call, with the contract of the tool or the graph that it calls; or a write, with the contract of its reducer.
struct ParameterCheck<'f, 'd> {
    analysis: &'f Analysis<'d>,
    node: usize,
    site: Site,
    /// The word for a field of the value.
    part: &'static str,
    contract: Option<&'d Contract>,
    graph: Option<&'d Nested>,
    looks: Looks,
}

impl ParameterCheck<'_, '_> {
    fn check_object(
        &self,
        given: &[(Spanned<String>, TermDefinition)],
        fields: &[TypedField],
        place: &Span,
        whose: &dyn Display,
        diagnostics: &mut Diagnostics,
    ) {
        // A search by name, since there may be many fields and many parameters.
        let mut by_name: Vec<&TypedField> = fields.iter().collect();
        by_name.sort_unstable_by(|one, two| one.name.cmp(&two.name));
        let field =
            |name: &str| by_name.binary_search_by(|field| field.name.as_str().cmp(name)).ok().map(|at| by_name[at]);
        let (mut has_unclear, mut unknown) = (false, Vec::new());
        for (key, term) in given {
            match field(&key.value) {
                // A null is left out, so that the default applies (R74).
                Some(field) if field.default.is_some() && is_null(term) => {}
                Some(field) => {
                    let whose = format_args!("`{}` of {whose}", key.value);
                    self.check_value(term, &field.ty, &whose, field.default.is_some(), diagnostics);
                }
                None if self.looks == Looks::ForNothing => {}
                // It is not clear which parameter is meant, and that was reported.
                None if diagnostics.is_said(code::AMBIGUOUS_SCALAR, &self.analysis.model.place(&key.span)) => {
                    has_unclear = true;
                }
                None => unknown.push(key),
            }
        }
        if self.looks == Looks::ForNothing || has_unclear {
            return;
        }
        let mut given: Vec<&str> = given.iter().map(|(key, _)| key.value.as_str()).collect();
        given.sort_unstable();
        let is_missing =
            |field: &&TypedField| field.is_required() && given.binary_search(&field.name.as_str()).is_err();
        let missing: Vec<&TypedField> = fields.iter().filter(is_missing).collect();
        if unknown.is_empty() {
            self.report_needed(&missing, place, whose, diagnostics);
        } else {
            self.report_unknown(&unknown, &given, &missing, fields, whose, diagnostics);
        }
    }

    /// Reports the parameters of a call that its tool does not take. Each may be meant for one that is not among those `given`,
    /// which are sorted.
    fn report_unknown(
        &self,
        unknown: &[&Spanned<String>],
        given: &[&str],
        missing: &[&TypedField],
        fields: &[TypedField],
        whose: &dyn Display,
        diagnostics: &mut Diagnostics,
    ) {
        let [first, others @ ..] = unknown else { return };
        let named = listed(unknown.iter().map(|key| key.value.as_str()));
        let message = format!("{whose} takes no {} {named}", self.part);
        let diagnostic = diagnostics.error(code::UNKNOWN_PARAMETER, self.analysis.model.place(&first.span), message);
        diagnostic.label(format!("unknown {}", self.part));
        for other in others {
            diagnostic.related(self.analysis.model.place(&other.span), format!("unknown {}", self.part));
        }
        diagnostic.suggest(&first.value, missing.iter().map(|field| field.name.as_str()));
        if diagnostic.help.is_none() {
            let is_given = |field: &&TypedField| given.binary_search(&field.name.as_str()).is_ok();
            diagnostic
                .suggest(&first.value, fields.iter().filter(|field| !is_given(field)).map(|field| field.name.as_str()));
        }
        let is_meant =
            |field: &&&TypedField| unknown.iter().any(|key| nearest(&key.value, [field.name.as_str()]).is_some());
        if !missing.iter().all(|field| is_meant(&field)) {
            diagnostic.note(format!("it needs {}", listed(missing.iter().map(|field| field.name.as_str()))));
        } else if diagnostic.help.is_none() {
            diagnostic.note(format!("it takes {}", listed(fields.iter().map(|field| field.name.as_str()))));
        }
    }

    /// Reports the parameters that a call needs and does not give.
    fn report_needed(&self, missing: &[&TypedField], place: &Span, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        let [_, others @ ..] = missing else { return };
        let named = listed(missing.iter().map(|field| field.name.as_str()));
        let part = if others.is_empty() { self.part.to_owned() } else { format!("{}s", self.part) };
        let message = format!("{whose} needs the {part} {named}");
        let diagnostic = diagnostics.error(code::MISSING_PARAMETER, self.analysis.model.place(place), message);
        let types: Vec<String> = missing.iter().map(|field| format!("`{}`, {}", field.name, field.ty)).collect();
        diagnostic.label(format!("needs {}", types.join("; ")));
        for field in missing {
            if let Some(description) = &field.description {
                diagnostic.note(format!("`{}`: {description}", field.name));
            }
        }
    }

    /// Checks a value. If `is_left_out` holds, a null does not reach the tool: the parameter has a default, or the
    /// value is in a map.
    fn check_value(
        &self,
        term: &TermDefinition,
        target: &Type,
        whose: &dyn Display,
        is_left_out: bool,
        diagnostics: &mut Diagnostics,
    ) {
        match (&term.kind, &target.kind) {
            (TermKind::Object(given), TypeKind::Object(fields)) => {
                self.check_object(given, fields, &term.span, whose, diagnostics);
            }
            (TermKind::Object(given), TypeKind::Map(values)) => {
                for (key, term) in given {
                    let whose = format_args!("`{}` in {whose}", key.value);
                    self.check_value(term, values, &whose, true, diagnostics);
                }
            }
            (TermKind::List(list), TypeKind::List(items)) => {
                for term in list {
                    self.check_value(term, items, &format_args!("an element of {whose}"), false, diagnostics);
                }
            }
            (TermKind::Literal(value), TypeKind::Enum(texts)) if is_member(value, texts) => {}
            // A null is left out of parameters (R74).
            _ if is_null(term) && (target.nullable || is_left_out) => {}
            (TermKind::Template { text, template: Template::Whole(expression) }, _) => {
                self.check_expression(term, (text, expression), target, whose, is_left_out, diagnostics);
            }
            _ if self.looks == Looks::ForNothing => {
                let ty = self.analysis.type_env().type_of_term(self.node, self.site, term);
                if let Some(lack) = ty.not_null().lack(target) {
                    let place = self.analysis.model.place(&term.span);
                    lacking(place, &lack, whose, "what is written here", diagnostics);
                }
            }
            _ => {
                let ty = self.analysis.type_env().type_of_term(self.node, self.site, term);
                if let Some(misfit) = ty.misfit(target) {
                    self.report_type(term, &term.span, &ty, target, &misfit, whose, diagnostics);
                }
            }
        }
    }

    /// Checks an expression. The value of each of its paths may be the one that is used; if the last path leads to no
    /// value, the expression has none.
    fn check_expression(
        &self,
        term: &TermDefinition,
        (text, expression): (&str, &Expression),
        target: &Type,
        whose: &dyn Display,
        is_left_out: bool,
        diagnostics: &mut Diagnostics,
    ) {
        let env = self.analysis.type_env();
        let types = expression.paths.iter().map(|path| env.type_with_words_left(self.node, self.site, path));
        let alternatives: Vec<(&Path, &Span, Type)> = expression
            .paths
            .iter()
            .zip(&expression.ranges)
            .zip(types)
            .map(|((path, range), ty)| (path, range, ty))
            .collect();
        let is_single = alternatives.len() == 1;
        let place = |range: &Span| match is_single {
            true => term.span.clone(),
            false => locate(self.analysis.model.definition.source(), &term.span, text, range),
        };
        for (path, range, ty) in &alternatives {
            // Whether a nullable value is null is checked below, and again when the program runs.
            let value = ty.clone().not_null();
            if self.looks == Looks::AtTypes {
                if let Some(misfit) = value.misfit(target) {
                    self.report_type(term, &place(range), &value, target, &misfit, whose, diagnostics);
                }
            } else if let Some(lack) = value.lack(target) {
                let what = if is_single { text.trim().to_owned() } else { path.to_string() };
                lacking(self.analysis.model.place(&place(range)), &lack, whose, &format!("`{what}`"), diagnostics);
                return;
            }
        }
        if self.looks == Looks::AtTypes || target.nullable || is_left_out {
            return;
        }
        let may_be_null = |(path, _, ty): &(&Path, &Span, Type)| match ty.kind {
            // The first visit has no previous result. Whether another value of unknown type is null shows only when the
            // graph runs.
            TypeKind::Any => is_previous(path),
            _ => ty.nullable,
        };
        let is_certain = alternatives.iter().any(|(_, _, ty)| !ty.nullable)
            || self.analysis.type_env().is_one_something(self.node, self.site, &expression.paths);
        if !is_certain && alternatives.last().is_some_and(may_be_null) {
            self.report_missing(term, text, expression, target, whose, diagnostics);
        }
    }

    /// Checks that no part of a computed id may be null: the result would be no id, or that of another item.
    fn check_pieces(&self, term: &TermDefinition, diagnostics: &mut Diagnostics) {
        let TermKind::Template { template: Template::Mixed(pieces), .. } = &term.kind else { return };
        for piece in pieces {
            let Piece::Expression(expression) = piece else { continue };
            let written = match &expression.input {
                // It has this text if the input is not given.
                Some(InputReference::Text(_)) => continue,
                Some(InputReference::AsWritten(text)) => Some(text.clone()),
                None => None,
            };
            let types =
                expression.paths.iter().map(|path| self.analysis.type_env().type_of_path(self.node, self.site, path));
            let types: Vec<Type> = types.collect();
            let is_known = types.last().is_some_and(|last| last.kind != TypeKind::Any);
            if is_known && types.iter().all(|ty| ty.nullable) {
                let target = Type::of(TypeKind::String);
                let paths: Vec<String> = expression.paths.iter().map(ToString::to_string).collect();
                let text = written.unwrap_or_else(|| format!("${{{}}}", paths.join(" || ")));
                self.report_missing(term, &text, expression, &target, &"a part of an `item_id`", diagnostics);
            }
        }
    }

    /// Reports that a value may be null where the call needs one.
    fn report_missing(
        &self,
        term: &TermDefinition,
        text: &str,
        expression: &Expression,
        target: &Type,
        whose: &dyn Display,
        diagnostics: &mut Diagnostics,
    ) {
        // A key that is not set on every path is reported by another rule, and this would only follow from it. But it
        // is reported here if the key may be null even where it is set.
        let last = expression.paths.last().filter(|path| path.root == Root::State);
        let key = last.and_then(|path| self.analysis.model.key_or_last_error(path.segments.first()?));
        let is_unset = key.is_some_and(|key| !self.analysis.type_env().is_set(self.node, self.site, key));
        if is_unset && !self.analysis.type_env().is_null_where_set(&expression.paths) {
            return;
        }
        let diagnostic = diagnostics
            .lint(
                code::MAYBE_NOTHING,
                self.analysis.model.place(&term.span),
                format!("{whose} needs {}, and `{}` may be nothing", shown(target), text.trim()),
            )
            .label("may be null when the graph runs");
        for (place, label) in expression.paths.last().map(|path| self.origins(path)).unwrap_or_default() {
            diagnostic.related(place, label);
        }
        match expression.paths.last() {
            Some(path) if is_previous(path) => {
                diagnostic.help("the node's first visit has none before it: name something to fall back on with `||`")
            }
            _ => diagnostic.help(
                "name something to fall back on with `||`, or come here only where it is there: \
                 `when: { path: …, op: exists }`",
            ),
        };
    }

    /// Returns the places where the nothing at a path may come from: assignments and first values of its key, or its input.
    fn origins(&self, path: &Path) -> Vec<(SourcePlace, &'static str)> {
        const MOST: usize = 3;
        let (model, Some(name)) = (&self.analysis.model, path.segments.first()) else { return Vec::new() };
        match path.root {
            Root::Inputs if path.segments.len() == 1 => {
                let property = model.definition.inputs.iter().flat_map(|inputs| inputs.properties());
                let property = property.filter(|property| property.name.value == *name);
                property.map(|property| (model.place(&property.name.span), "it need not be given")).collect()
            }
            Root::State => {
                let first = model
                    .definition
                    .state
                    .iter()
                    .filter(|(key, value)| key.value.as_str() == name && value.value.is_null());
                let first = first.map(|(_, value)| (model.place(&value.span), "it begins as nothing"));
                let nodes = model.definition.nodes.iter().enumerate();
                let writes =
                    nodes.flat_map(|(at, node)| node.assign().iter().enumerate().map(move |write| (at, write)));
                let writes = writes.filter(|(at, (index, write))| {
                    let env = self.analysis.type_env();
                    write.key.value.as_str() == name
                        && env.type_of_term(*at, Site::Assign(*index), &write.value).nullable
                });
                let writes = writes.map(|(_, (_, write))| (model.place(&write.value.span), "this may be nothing"));
                first.chain(writes).take(MOST).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Reports that a value at `span` has another type than the call expects.
    #[expect(clippy::too_many_arguments, reason = "what is said of one value")]
    fn report_type(
        &self,
        term: &TermDefinition,
        span: &Span,
        ty: &Type,
        target: &Type,
        misfit: &Misfit,
        whose: &dyn Display,
        diagnostics: &mut Diagnostics,
    ) {
        let part = misfit.part_of(whose);
        let (wanted, found) = (shown(&misfit.wanted), misfit.found.clone().not_null());
        let message = match misfit.found == Type::null() && !misfit.at.is_empty() {
            true => format!("{part} needs {wanted}, and there is nothing"),
            false if misfit.at.is_empty() => format!("{part} takes {wanted}, not {ty}"),
            false => format!("{part} takes {wanted}, not {found}"),
        };
        let diagnostic = diagnostics.error(code::WRONG_TYPE, self.analysis.model.place(span), message);
        diagnostic.label(format!("this is {ty}"));
        if let (TermKind::Literal(value), TypeKind::Enum(texts)) = (&term.kind, &target.kind) {
            diagnostic.suggest(value.as_str().unwrap_or_default(), texts.iter().map(String::as_str));
        } else if matches!(target.kind, TypeKind::String) && matches!(term.kind, TermKind::Template { .. }) {
            diagnostic.help(
                "a template that is one `${…}` keeps the type of what it reads; any text around it makes a string",
            );
        } else if matches!((&term.kind, &target.kind), (TermKind::Literal(_), TypeKind::String)) {
            diagnostic.help("put it in quotes to make it a string");
            let text = self.analysis.model.definition.source().text.get(term.span.clone()).unwrap_or_default();
            if matches!(&term.kind, TermKind::Literal(Value::Number(_) | Value::Bool(_))) {
                diagnostic.fix(format!("\"{text}\""), false);
            }
        }
        if let Some(contract) = self.contract {
            diagnostic.note(format!("the contract is `{}`", contract.source.name));
        } else if let Some(graph) = self.graph {
            diagnostic.note(format!("the graph is `{}`", graph.file));
        }
    }
}

/// Reports that a part of a value may be null where the call needs one.
fn lacking(place: SourcePlace, lack: &Misfit, whose: &dyn Display, value: &str, diagnostics: &mut Diagnostics) {
    let (part, wanted, found) = (lack.part_of(whose), shown(&lack.wanted), lack.part_of(&value));
    diagnostics
        .lint(code::MAYBE_NOTHING, place, format!("{part} needs {wanted}, and {found} may be nothing"))
        .label("may hold a null when the graph runs")
        .help(
            "make it needed where it comes from (`required` in the schema, an element that is never null), or write the \
             parts that the call needs one by one",
        );
}

/// Whether a path leads to the result of the node's last visit.
fn is_previous(path: &Path) -> bool {
    path.root == Root::Visit && path.segments.first().is_some_and(|part| part == "previous")
}

fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn is_null(term: &TermDefinition) -> bool {
    matches!(&term.kind, TermKind::Literal(value) if value.is_null())
}

/// Returns the type of a place, without the null that stands for a parameter that is left out.
fn shown(target: &Type) -> Type {
    Type { nullable: false, ..target.clone() }
}

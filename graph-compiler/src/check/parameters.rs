//! Parameters are those that the tool's contract or the nested graph's inputs ask for.

use std::fmt::Display;

use graph_model::path::Root;
use graph_model::template::Template;
use graph_model::value::Value;

use super::facts::{Facts, Site, ToolFacts};
use super::infer::{is_member, type_of_term};
use crate::definition::{Term, TermKind};
use crate::diagnostic::{Diagnostics, code};
use crate::source::Span;
use crate::types::{Field, Kind, Type};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    check_all(facts, Looks::AtTypes, diagnostics);
}

/// Checks that what a call needs is there; types are another rule's.
pub(super) fn check_missing(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    check_all(facts, Looks::ForNothing, diagnostics);
}

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    AtTypes,
    ForNothing,
}

fn check_all(facts: &Facts<'_>, looks: Looks, diagnostics: &mut Diagnostics) {
    for (caller, call) in facts.calls() {
        let tool = facts.tool(call);
        let (node, site) = caller.site();
        let given = Given { facts, node, site, tool, looks };
        if let Some((term, _)) = call.computed() {
            let text = Type::of(Kind::String).or_null();
            given.check_term(term, &text, &"an `item_id`", diagnostics);
        }
        let Some(params) = &tool.params else { continue };
        let whose = call.shown();
        match (&call.params.kind, &params.kind) {
            (TermKind::Object(terms), Kind::Object(fields)) => {
                given.check_object(terms, fields, &call.item.span, &whose, diagnostics);
            }
            _ => given.check_term(&call.params, params, &whose, diagnostics),
        }
    }
}

/// What a call gives to its tool.
struct Given<'f, 'd> {
    facts: &'f Facts<'d>,
    node: usize,
    site: Site,
    tool: &'f ToolFacts<'d>,
    looks: Looks,
}

impl Given<'_, '_> {
    fn check_object(
        &self,
        given: &[(crate::definition::Spanned<String>, Term)],
        fields: &[Field],
        place: &Span,
        whose: &dyn Display,
        diagnostics: &mut Diagnostics,
    ) {
        for (key, term) in given {
            match fields.iter().find(|field| field.name == key.value) {
                // Null is left out, so that the default applies (R74).
                Some(field) if field.default.is_some() && is_null(term) => {}
                Some(field) => {
                    let whose = format_args!("`{}` of {whose}", key.value);
                    self.check_value(term, &field.ty, &whose, field.is_required(), diagnostics);
                }
                None if self.looks == Looks::ForNothing => {}
                None => {
                    let message = format!("{whose} takes no parameter `{}`", key.value);
                    let diagnostic = diagnostics.error(code::UNKNOWN_PARAMETER, self.facts.place(&key.span), message);
                    diagnostic
                        .label("unknown parameter")
                        .suggest(&key.value, fields.iter().map(|field| field.name.as_str()));
                    if diagnostic.help.is_none() {
                        let names: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
                        diagnostic.note(format!("it takes {}", names.join(", ")));
                    }
                }
            }
        }
        if self.looks == Looks::ForNothing {
            return;
        }
        for field in fields.iter().filter(|field| field.is_required()) {
            if !given.iter().any(|(key, _)| key.value == field.name) {
                let message = format!("{whose} needs the parameter `{}`", field.name);
                let diagnostic = diagnostics.error(code::MISSING_PARAMETER, self.facts.place(place), message);
                diagnostic.label(format!("needs `{}`, {}", field.name, field.ty));
                if let Some(description) = &field.description {
                    diagnostic.note(format!("`{}`: {description}", field.name));
                }
            }
        }
    }

    /// Says that a value may be null where the call needs one.
    fn report_missing(&self, term: &Term, target: &Type, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        let TermKind::Template { text, template: Template::Whole(expression) } = &term.kind else { return };
        // A key that is not set on every way is another rule's, and this follows from it.
        let last = expression.paths.last().filter(|path| path.root == Root::State);
        let key = last.and_then(|path| self.facts.flow.key(self.facts, path.segments.first()?));
        if key.is_some_and(|key| !self.facts.is_set(self.node, self.site, key)) {
            return;
        }
        diagnostics
            .lint(
                code::MAYBE_NOTHING,
                self.facts.place(&term.span),
                format!("{whose} needs {}, and `{}` may be nothing", shown(target), text.trim()),
            )
            .label("may be null when the graph runs")
            .help("name something to fall back on with `||`, or come here only where it is there: `when: { path: …, op: exists }`");
    }

    fn check_term(&self, term: &Term, target: &Type, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        self.check_value(term, target, whose, false, diagnostics);
    }

    /// Checks a value; one that `needs` to be there must not be null.
    fn check_value(&self, term: &Term, target: &Type, whose: &dyn Display, needs: bool, diagnostics: &mut Diagnostics) {
        match (&term.kind, &target.kind) {
            (TermKind::Object(given), Kind::Object(fields)) => {
                return self.check_object(given, fields, &term.span, whose, diagnostics);
            }
            (TermKind::Object(given), Kind::Map(values)) => {
                for (key, term) in given {
                    self.check_term(term, values, &format_args!("`{}` in {whose}", key.value), diagnostics);
                }
                return;
            }
            (TermKind::List(list), Kind::List(items)) => {
                return list.iter().for_each(|term| {
                    self.check_term(term, items, &format_args!("an element of {whose}"), diagnostics);
                });
            }
            (TermKind::Literal(value), Kind::Enum(texts)) if is_member(value, texts) => return,
            // Null is left out of parameters (R74).
            _ if is_null(term) && target.nullable => return,
            _ => {}
        }
        let ty = type_of_term(self.facts, self.node, self.site, term);
        // Whether a value that may be null is null is found when the program runs.
        let certain = match &term.kind {
            TermKind::Literal(_) => ty.clone(),
            _ => ty.clone().not_null(),
        };
        if self.looks == Looks::ForNothing {
            if needs && ty.nullable && !matches!(ty.kind, Kind::Any | Kind::Never) {
                self.report_missing(term, target, whose, diagnostics);
            }
            return;
        }
        if certain.fits(target) {
            return;
        }
        let diagnostic = diagnostics.error(
            code::WRONG_TYPE,
            self.facts.place(&term.span),
            format!("{whose} takes {}, not {certain}", shown(target)),
        );
        diagnostic.label(format!("this is {certain}"));
        if let (TermKind::Literal(value), Kind::Enum(texts)) = (&term.kind, &target.kind) {
            diagnostic.suggest(value.as_str().unwrap_or_default(), texts.iter().map(String::as_str));
        } else if matches!(target.kind, Kind::String) && matches!(term.kind, TermKind::Template { .. }) {
            diagnostic.help(
                "a template that is one `${…}` keeps the type of what it reads; any text around it makes a string",
            );
        } else if matches!((&term.kind, &target.kind), (TermKind::Literal(_), Kind::String)) {
            diagnostic.help("put it in quotes to make it a string");
            let text = self.facts.definition.source().text.get(term.span.clone()).unwrap_or_default();
            if matches!(&term.kind, TermKind::Literal(Value::Number(_) | Value::Bool(_))) {
                diagnostic.fix(format!("\"{text}\""), false);
            }
        }
        if let Some(contract) = self.tool.contract {
            diagnostic.note(format!("the contract is `{}`", contract.source.name));
        } else if let Some(graph) = self.tool.graph {
            diagnostic.note(format!("the graph is `{}`", graph.file));
        }
    }
}

fn is_null(term: &Term) -> bool {
    matches!(&term.kind, TermKind::Literal(value) if value.is_null())
}

/// The type of a place, without the null that leaving the parameter out would be.
fn shown(target: &Type) -> Type {
    target.clone().not_null()
}

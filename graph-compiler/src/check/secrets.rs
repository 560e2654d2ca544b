//! What is secret stays so: it reaches no text, tool, condition or id that is not as secret as it is.

use std::fmt::Display;

use graph_model::operator::Operator;
use graph_model::secret::Secrets;
use graph_model::template::Template;
use graph_model::value::Value;

use crate::analysis::inference::type_of_term;
use crate::analysis::model::{Facts, Site, terms, tests};
use crate::definition::{Call, Reaction, Spanned, Term, TermKind, Test, locate};
use crate::diagnostic::{Diagnostics, code};
use crate::source::Span;
use crate::types::{Field, Kind, Type};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    // A graph that nobody gives a secret has none to keep.
    if !facts.types.inputs.has_secret() && !facts.tools.iter().any(|tool| tool.result.has_secret()) {
        return;
    }
    for (at, node) in facts.definition.nodes.iter().enumerate() {
        for (site, term) in terms(node) {
            // What is given to a tool is looked at with what the tool takes.
            if !matches!(site, Site::Params | Site::Item) {
                check_texts(facts, (at, site), term, diagnostics);
            }
        }
        tests(node).into_iter().for_each(|test| check_test(facts, (at, Site::Next), test, diagnostics));
    }
    for (caller, call) in facts.calls() {
        check_call(facts, caller.site(), call, diagnostics);
    }
    for (at, hook) in facts.definition.hooks.iter().enumerate() {
        hook.condition.tests(&mut |test| check_test(facts, (at, Site::Hook), test, diagnostics));
        if let Reaction::Steer(params) = &hook.reaction {
            let given = Given {
                facts,
                node: at,
                site: Site::Hook,
                promise: Promise::None("what a hook wishes is shown to everybody"),
            };
            given.check(params, &Type::any(), &"what a hook wishes", diagnostics);
        }
    }
}

/// Says where a graph has secrets that returns `output`.
pub(super) fn of(facts: &Facts<'_>, output: &Type) -> Secrets {
    let keys = facts.types.keys.iter().filter_map(|key| Some((key.name.clone(), key.ty.mask()?)));
    let tools = (0_u16..).zip(&facts.tools).filter_map(|(at, tool)| Some((at, tool.result.mask()?)));
    Secrets { inputs: facts.types.inputs.mask(), keys: keys.collect(), tools: tools.collect(), output: output.mask() }
}

/// Reports texts with a secret among other things.
fn check_texts(facts: &Facts<'_>, (node, site): (usize, Site), term: &Term, diagnostics: &mut Diagnostics) {
    term.templates(&mut |term, template, text| {
        if let (Template::Mixed(_), Some((path, span))) = (template, first_secret(facts, (node, site), term)) {
            let message = format!("`{path}` is a secret, and becomes a part of a text");
            let diagnostic = diagnostics.error(code::SECRET_IN_TEXT, facts.place(&span), message);
            diagnostic.label("a secret").help(format!(
                "keep the secret by itself, and make the text where it is given to a parameter that is secret too, as in {}",
                shortened(text)
            ));
        }
    });
}

/// Returns a text of the graph as a message can hold it.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.len() == text.len() && line.chars().count() <= 60 {
        format!("`{line}`")
    } else {
        "`Bearer ${…}`".to_owned()
    }
}

/// Returns the first path of a template that leads to a secret, and where it stands.
fn first_secret(facts: &Facts<'_>, (node, site): (usize, Site), term: &Term) -> Option<(String, Span)> {
    let TermKind::Template { text, template } = &term.kind else { return None };
    let mut paths = template.expressions().flat_map(|expression| expression.paths.iter().zip(&expression.ranges));
    let (path, range) = paths.find(|(path, _)| facts.type_of_path(node, site, path).has_secret())?;
    Some((path.to_string(), locate(facts.definition.source(), &term.span, text, range)))
}

/// What is known of whether a call keeps what it gets to itself.
#[derive(Clone, Copy)]
enum Promise<'f> {
    /// What a contract or a graph's inputs say, in the file of that name.
    Said(&'f str),
    /// Nothing, and why.
    None(&'f str),
}

fn check_call(facts: &Facts<'_>, (node, site): (usize, Site), call: &Call, diagnostics: &mut Diagnostics) {
    let tool = facts.tool(call);
    let whose = call.shown();
    let promise = match (tool.contract, tool.graph) {
        (Some(contract), _) => Promise::Said(&contract.source.name),
        (_, Some(graph)) => Promise::Said(&graph.file),
        _ if call.computed().is_some() => Promise::None("which tool it is shows only when the graph runs"),
        _ => Promise::None("no contract says that it keeps one"),
    };
    let given = Given { facts, node, site, promise };
    if let Some((term, _)) = call.computed() {
        let given = Given { promise: Promise::None("an id is shown to everybody"), ..given };
        given.check(term, &Type::of(Kind::String), &"the id of an item", diagnostics);
    }
    let any = Type::any();
    given.check_params(&call.params, tool.params.as_ref().unwrap_or(&any), &whose, diagnostics);
}

/// Values that are given to something.
#[derive(Clone, Copy)]
struct Given<'f, 'd> {
    facts: &'f Facts<'d>,
    node: usize,
    site: Site,
    promise: Promise<'f>,
}

impl Given<'_, '_> {
    fn check_params(&self, params: &Term, target: &Type, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        match (&params.kind, &target.kind) {
            (TermKind::Object(given), Kind::Object(fields)) => self.check_fields(given, fields, whose, diagnostics),
            (TermKind::Object(given), _) => {
                for (key, term) in given {
                    self.check(term, &part(target), &format_args!("`{}` of {whose}", key.value), diagnostics);
                }
            }
            _ => self.check(params, target, whose, diagnostics),
        }
    }

    fn check_fields(
        &self,
        given: &[(Spanned<String>, Term)],
        fields: &[Field],
        whose: &dyn Display,
        diagnostics: &mut Diagnostics,
    ) {
        for (key, term) in given {
            if let Some(field) = fields.iter().find(|field| field.name == key.value) {
                self.check(term, &field.ty, &format_args!("`{}` of {whose}", key.value), diagnostics);
            }
        }
    }

    /// Reports secrets in a value that `target` does not take as such; `whose` is the place.
    fn check(&self, term: &Term, target: &Type, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        match (&term.kind, &target.kind) {
            (TermKind::Object(given), Kind::Object(fields)) => self.check_fields(given, fields, whose, diagnostics),
            (TermKind::Object(given), _) => {
                given.iter().for_each(|(_, term)| self.check(term, &part(target), whose, diagnostics));
            }
            (TermKind::List(list), _) => {
                list.iter().for_each(|term| self.check(term, &part(target), whose, diagnostics));
            }
            (TermKind::Template { .. }, _) => {
                let ty = type_of_term(self.facts, self.node, self.site, term);
                if ty.reveals(target) {
                    self.report(term, whose, diagnostics);
                }
            }
            (TermKind::Literal(_) | TermKind::Unreadable, _) => {}
        }
    }

    fn report(&self, term: &Term, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        let Some((path, span)) = first_secret(self.facts, (self.node, self.site), term) else { return };
        let is_text = matches!(&term.kind, TermKind::Template { template: Template::Mixed(_), .. });
        let (code, message) = match is_text {
            true => (
                code::SECRET_IN_TEXT,
                format!("`{path}` is, or holds, a secret, and becomes a part of {whose}, which is none"),
            ),
            false => (
                code::SECRET_REVEALED,
                format!("`{path}` is, or holds, a secret, and is given to {whose}, which is none"),
            ),
        };
        let diagnostic = diagnostics.error(code, self.facts.place(&span), message);
        diagnostic.label("a secret");
        match self.promise {
            Promise::Said(file) => {
                diagnostic.help(format!("if nobody else sees it there, say so in `{file}`: `x-secret: true`"));
            }
            Promise::None(why) => {
                diagnostic.note(why);
            }
        }
    }
}

/// Returns what the parts of a value are taken as.
fn part(target: &Type) -> Type {
    match &target.kind {
        Kind::List(inner) | Kind::Map(inner) => (**inner).clone(),
        _ => Type::any_of(target.secret),
    }
}

fn check_test(facts: &Facts<'_>, (node, site): (usize, Site), test: &Test, diagnostics: &mut Diagnostics) {
    let asks_whether = match test.operator {
        Operator::Exists => true,
        Operator::Eq | Operator::Ne => test.value.value == Value::Null,
        _ => false,
    };
    if asks_whether || !facts.type_of_path(node, site, &test.path.value).has_secret() {
        return;
    }
    let message = format!("`{}` is, or holds, a secret, and the way of the run would tell what it is", test.path.value);
    diagnostics
        .error(code::SECRET_COMPARED, facts.place(&test.path.span), message)
        .label("a secret")
        .help("ask whether there is one with `op: exists`, or have a tool say what must be known of it");
}

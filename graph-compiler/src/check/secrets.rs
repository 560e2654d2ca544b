//! Secrets stay secret: they reach no text, tool, condition or id that is not secret too.

use std::fmt::Display;

use graph_definition::definition::{
    CallDefinition, Reaction, Spanned, TermDefinition, TermKind, TestDefinition, locate,
};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::operator::Operator;
use graph_model::secret::{Mask, Secrets};
use graph_model::template::Template;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::{Site, terms, tests};
use crate::types::{Type, TypeKind, TypedField};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // A graph that receives no secret has no secret to keep.
    let is_received = || signals(analysis).next().is_some() || answers(analysis).next().is_some();
    let is_returned = || analysis.model.tools.iter().any(|tool| tool.result.has_secret());
    if !analysis.model.inputs.has_secret() && !is_returned() && !is_received() {
        return;
    }
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        for (site, term) in terms(node) {
            // Parameters are checked together with the types that the tool expects.
            if !matches!(site, Site::Params | Site::Item | Site::Payload | Site::Until) {
                check_texts(analysis, (at, site), term, diagnostics);
            }
        }
        if let Some(payload) = node.ask().and_then(|ask| ask.payload.as_ref()) {
            let promise = Promise::None("people are shown the payload of an interrupt");
            let given = SecretCheck { analysis, node: at, site: Site::Payload, promise };
            given.check(payload, &Type::any(), &format_args!("the payload of `{}`", node.name), diagnostics);
        }
        if let Some(until) = node.wait().and_then(|wait| wait.until.as_ref()) {
            let promise = Promise::None("the journal and every list of runs show until when a run waits");
            let given = SecretCheck { analysis, node: at, site: Site::Until, promise };
            given.check(until, &Type::any(), &format_args!("`until` of the wait `{}`", node.name), diagnostics);
        }
        tests(node).into_iter().for_each(|test| check_test(analysis, (at, Site::Next), test, diagnostics));
    }
    for (caller, call) in analysis.model.calls() {
        check_call(analysis, caller.site(), call, diagnostics);
    }
    for (at, hook) in analysis.model.definition.hooks.iter().enumerate() {
        hook.condition.tests(&mut |test| check_test(analysis, (at, Site::Hook), test, diagnostics));
        if let Reaction::Steer(params) = &hook.reaction {
            let given = SecretCheck {
                analysis,
                node: at,
                site: Site::Hook,
                promise: Promise::None("the control of a hook is shown to everybody"),
            };
            given.check(params, &Type::any(), &"the control of a hook", diagnostics);
        }
    }
}

/// Returns the places of the secrets in a graph that returns `output`.
pub(super) fn of(analysis: &Analysis<'_>, output: &Type) -> Secrets {
    let keys = analysis.types.keys.iter().filter_map(|key| Some((key.name.clone(), key.ty.mask()?)));
    let tools = (0_u16..).zip(&analysis.model.tools).filter_map(|(at, tool)| Some((at, tool.result.mask()?)));
    Secrets {
        inputs: analysis.model.inputs.mask(),
        keys: keys.collect(),
        tools: tools.collect(),
        signals: signals(analysis).collect(),
        answers: answers(analysis).collect(),
        output: output.mask(),
    }
}

/// Returns the places of the secrets in the values of signals.
fn signals(analysis: &Analysis<'_>) -> impl Iterator<Item = (String, Mask)> {
    let all = analysis.model.definition.signals.iter();
    all.filter_map(|signal| Some((signal.name.value.to_string(), Type::of_schema(&signal.schema).mask()?)))
}

/// Returns the places of the secrets in the answers of people.
fn answers(analysis: &Analysis<'_>) -> impl Iterator<Item = (String, Mask)> {
    let all = analysis.model.definition.nodes.iter();
    all.filter_map(|node| Some((node.name.to_string(), Type::of_schema(&node.ask()?.schema).mask()?)))
}

/// Reports texts that contain a secret among other parts.
fn check_texts(
    analysis: &Analysis<'_>,
    (node, site): (usize, Site),
    term: &TermDefinition,
    diagnostics: &mut Diagnostics,
) {
    term.templates(&mut |term, template, text| {
        if let (Template::Mixed(_), Some((path, span))) = (template, first_secret(analysis, (node, site), term)) {
            let message = format!("`{path}` is a secret, and becomes a part of a text");
            let diagnostic = diagnostics.error(code::SECRET_IN_TEXT, analysis.model.place(&span), message);
            diagnostic.label("a secret").help(format!(
                "keep the secret by itself, and make the text where it is given to a parameter that is secret too, as in {}",
                shortened(text)
            ));
        }
    });
}

/// Returns a text of the graph, shortened for a message.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.len() == text.len() && line.chars().count() <= 60 {
        format!("`{line}`")
    } else {
        "`Bearer ${…}`".to_owned()
    }
}

/// Returns the first path of a template that leads to a secret, and its place.
fn first_secret(analysis: &Analysis<'_>, (node, site): (usize, Site), term: &TermDefinition) -> Option<(String, Span)> {
    let TermKind::Template { text, template } = &term.kind else { return None };
    let mut paths = template.expressions().flat_map(|expression| expression.paths.iter().zip(&expression.ranges));
    let (path, range) = paths.find(|(path, _)| analysis.type_env().type_of_path(node, site, path).has_secret())?;
    Some((path.to_string(), locate(analysis.model.definition.source(), &term.span, text, range)))
}

/// Whether a call promises to keep its parameters secret.
#[derive(Clone, Copy)]
enum Promise<'f> {
    /// The contract or the graph's inputs tell, in the file with this name.
    Said(&'f str),
    /// There is no promise, for this reason.
    None(&'f str),
}

fn check_call(
    analysis: &Analysis<'_>,
    (node, site): (usize, Site),
    call: &CallDefinition,
    diagnostics: &mut Diagnostics,
) {
    let tool = analysis.model.tool(call);
    let whose = call.shown();
    let promise = match (tool.contract, tool.graph) {
        (Some(contract), _) => Promise::Said(&contract.source.name),
        (_, Some(graph)) => Promise::Said(&graph.file),
        _ if call.computed().is_some() => Promise::None("the tool is known only when the graph runs"),
        _ => Promise::None("no contract promises to keep a secret"),
    };
    if tool.is_broken {
        return;
    }
    let given = SecretCheck { analysis, node, site, promise };
    if let Some((term, _)) = call.computed() {
        let given = SecretCheck { promise: Promise::None("an id is shown to everybody"), ..given };
        given.check(term, &Type::of(TypeKind::String), &"the id of an item", diagnostics);
    }
    let any = Type::any();
    given.check_params(&call.params, tool.params.as_ref().unwrap_or(&any), &whose, diagnostics);
}

/// A check of the values that a call, a hook or an id receives.
#[derive(Clone, Copy)]
struct SecretCheck<'f, 'd> {
    analysis: &'f Analysis<'d>,
    node: usize,
    site: Site,
    promise: Promise<'f>,
}

impl SecretCheck<'_, '_> {
    fn check_params(&self, params: &TermDefinition, target: &Type, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        match (&params.kind, &target.kind) {
            (TermKind::Object(given), TypeKind::Object(fields)) => self.check_fields(given, fields, whose, diagnostics),
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
        given: &[(Spanned<String>, TermDefinition)],
        fields: &[TypedField],
        whose: &dyn Display,
        diagnostics: &mut Diagnostics,
    ) {
        for (key, term) in given {
            if let Some(field) = fields.iter().find(|field| field.name == key.value) {
                self.check(term, &field.ty, &format_args!("`{}` of {whose}", key.value), diagnostics);
            }
        }
    }

    /// Reports secrets in a value that `target` does not accept as secrets; `whose` names the place.
    fn check(&self, term: &TermDefinition, target: &Type, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        match (&term.kind, &target.kind) {
            (TermKind::Object(given), TypeKind::Object(fields)) => self.check_fields(given, fields, whose, diagnostics),
            (TermKind::Object(given), _) => {
                given.iter().for_each(|(_, term)| self.check(term, &part(target), whose, diagnostics));
            }
            (TermKind::List(list), _) => {
                list.iter().for_each(|term| self.check(term, &part(target), whose, diagnostics));
            }
            (TermKind::Template { .. }, _) => {
                let ty = self.analysis.type_env().type_of_term(self.node, self.site, term);
                if ty.reveals(target) {
                    self.report(term, whose, diagnostics);
                }
            }
            (TermKind::Literal(_) | TermKind::Unreadable, _) => {}
        }
    }

    fn report(&self, term: &TermDefinition, whose: &dyn Display, diagnostics: &mut Diagnostics) {
        let Some((path, span)) = first_secret(self.analysis, (self.node, self.site), term) else { return };
        let is_text = matches!(&term.kind, TermKind::Template { template: Template::Mixed(_), .. });
        let (code, message) = match is_text {
            true => (
                code::SECRET_IN_TEXT,
                format!("`{path}` is or contains a secret, and becomes a part of {whose}, which is not marked as one"),
            ),
            false => (
                code::SECRET_REVEALED,
                format!("`{path}` is or contains a secret, and is given to {whose}, which is not marked as one"),
            ),
        };
        let diagnostic = diagnostics.error(code, self.analysis.model.place(&span), message);
        diagnostic.label("a secret");
        match self.promise {
            Promise::Said(file) => {
                diagnostic.help(format!("if nobody else sees it there, mark the place in `{file}`: `x-secret: true`"));
            }
            Promise::None(why) => {
                diagnostic.note(why);
            }
        }
    }
}

/// Returns the type that the parts of a value are accepted as.
fn part(target: &Type) -> Type {
    match &target.kind {
        TypeKind::List(inner) | TypeKind::Map(inner) => (**inner).clone(),
        _ => Type::any_of(target.secret),
    }
}

fn check_test(
    analysis: &Analysis<'_>,
    (node, site): (usize, Site),
    test: &TestDefinition,
    diagnostics: &mut Diagnostics,
) {
    let asks_whether = match test.operator {
        Operator::Exists => true,
        Operator::Eq | Operator::Ne => test.value.value == Value::Null,
        _ => false,
    };
    if asks_whether || !analysis.type_env().type_of_path(node, site, &test.path.value).has_secret() {
        return;
    }
    let message = format!("`{}` is or contains a secret, and the path of the run would reveal it", test.path.value);
    diagnostics
        .error(code::SECRET_COMPARED, analysis.model.place(&test.path.span), message)
        .label("a secret")
        .help("test whether there is one with `op: exists`, or let a tool decide on its value");
}

//! The commands that `rye/bash` and `rye/exec` start execute no untrusted values.
//!
//! The rule of sinks keeps such values out of a command's text. This rule checks the use of values that a command
//! receives outside of its text: in variables, on stdin, as arguments. The runtime checks a command in the same way if
//! its text is known only at run time, so the compiler passes it the untrusted parts.

use std::cell::LazyCell;

use graph_definition::definition::{
    CallDefinition, Contract, Sink, Spanned, TermDefinition, TermKind, ValueSchema, locate,
};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::template::{Expression, Piece, Template};
use graph_model::untrusted::Untrusted;
use graph_model::value::Value;
use graph_shell::{Danger, Foreign, How, ProgramArgument, ValueOrigin};

use super::sinks::{self, constants, is_declared, is_risky, place_of};
use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::builtin;
use crate::types::{Type, TypeKind};

/// The built-in tools that start programs.
const BASH: &str = "rye/bash";
const EXEC: &str = "rye/exec";

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        let (node, site) = caller.site();
        for (id, contract, whose) in started(analysis, call) {
            let given = sinks::SinkCheck { analysis, node, site, call, whole: contract.schema(), whose };
            let started = Started { given };
            let TermKind::Object(params) = &call.params.kind else { continue };
            let param = |name: &str| params.iter().find(|(key, _)| key.value == name).map(|(_, term)| term);
            match id {
                BASH => started.check_bash(&param, diagnostics),
                _ => started.check_exec(&param, diagnostics),
            }
        }
    }
}

/// Returns the untrusted parts of a call's parameters, if the call may start a program.
pub(super) fn untrusted(analysis: &Analysis<'_>, node: usize, site: Site, call: &CallDefinition) -> Untrusted {
    let Some((_, contract, whose)) = started(analysis, call).into_iter().next() else { return Untrusted::Nothing };
    let started = Started { given: sinks::SinkCheck { analysis, node, site, call, whole: contract.schema(), whose } };
    started.untrusted(&call.params)
}

/// A contract of the tree, or the built-in one.
enum ToolContract<'f> {
    Own(&'f Contract),
    BuiltIn(Box<Contract>),
}

impl ToolContract<'_> {
    fn schema(&self) -> &ValueSchema {
        match self {
            Self::Own(contract) => &contract.params,
            Self::BuiltIn(contract) => &contract.params,
        }
    }
}

/// Returns the tools that start programs and that a call may name, with their names in messages.
fn started<'f>(analysis: &'f Analysis<'_>, call: &'f CallDefinition) -> Vec<(&'static str, ToolContract<'f>, String)> {
    let own = analysis.model.tool(call).contract.filter(|contract| contract.builtin());
    let named = call.id().zip(own).and_then(|(id, contract)| {
        let id = [BASH, EXEC].into_iter().find(|known| *known == id.as_str())?;
        Some((id, ToolContract::Own(contract), format!("`{id}`")))
    });
    let possible = [BASH, EXEC].into_iter().filter(|id| sinks::may_be(analysis, call, id)).filter_map(|id| {
        let contract = builtin::contract(&graph_model::name::ItemId::new(id).ok()?)?;
        Some((id, ToolContract::BuiltIn(Box::new(contract)), format!("`{id}`, which {} may be", call.shown())))
    });
    named.into_iter().chain(possible).collect()
}

/// A call that starts a program.
struct Started<'f, 'd> {
    given: sinks::SinkCheck<'f, 'd>,
}

impl Started<'_, '_> {
    /// Returns the untrusted parts of a value.
    fn untrusted(&self, term: &TermDefinition) -> Untrusted {
        match &term.kind {
            TermKind::Unreadable | TermKind::Literal(_) => Untrusted::Nothing,
            TermKind::List(list) => {
                Untrusted::of_parts(list.iter().enumerate().map(|(at, term)| (at.to_string(), self.untrusted(term))))
            }
            TermKind::Object(fields) => {
                Untrusted::of_parts(fields.iter().map(|(key, term)| (key.value.clone(), self.untrusted(term))))
            }
            TermKind::Template { template: Template::Whole(expression), .. } => match expression.paths.as_slice() {
                [path] if self.is_chosen_by_caller(path) => Untrusted::Nothing,
                [path] => of_type(&self.given.type_of(path)),
                paths if paths.iter().all(|path| !self.is_somebody_elses(path)) => Untrusted::Nothing,
                _ => Untrusted::everything(),
            },
            TermKind::Template { template: Template::Text(_), .. } => Untrusted::Nothing,
            TermKind::Template { template: Template::Mixed(pieces), .. } => {
                let is_risky = |piece: &Piece| match piece {
                    Piece::Text(_) => false,
                    Piece::Expression(expression) => expression.paths.iter().any(|path| self.is_somebody_elses(path)),
                };
                match (pieces.iter().any(is_risky), pieces.first()) {
                    (false, _) => Untrusted::Nothing,
                    (true, Some(Piece::Text(beginning))) => Untrusted::Behind(beginning.clone()),
                    (true, _) => Untrusted::everything(),
                }
            }
        }
    }

    fn is_somebody_elses(&self, path: &Path) -> bool {
        !self.is_chosen_by_caller(path) && is_risky(&self.given.type_of(path))
    }

    /// Whether an input of the graph is declared as a command, so that the caller who sets it is responsible for it.
    fn is_chosen_by_caller(&self, path: &Path) -> bool {
        let declared = |sink| is_declared(self.given.analysis, path, sink);
        path.root == Root::Inputs && (declared(Sink::Shell) || declared(Sink::Program))
    }

    fn check_bash<'t>(&self, param: &dyn Fn(&str) -> Option<&'t TermDefinition>, diagnostics: &mut Diagnostics) {
        let command = param("command").map(|term| (term, self.written(term)));
        let texts = command.iter().flat_map(|(_, texts)| texts);
        let names = || texts.map(|written| graph_shell::expanded(&written.text)).collect::<Vec<_>>();
        let expanded = LazyCell::new(names);
        let expands = |name: &str| expanded.iter().all(|names| names.contains(name));
        let foreign = self.foreign(param, &expands, diagnostics);
        let Some((term, texts)) = &command else { return };
        for written in texts {
            let Some(danger) = graph_shell::scan(&written.text, &foreign).into_iter().next() else { continue };
            let span = match written.source {
                Some(text) if danger.range.end <= text.len() && !danger.range.is_empty() => {
                    locate(self.given.analysis.model.definition.source(), &term.span, text, &danger.range)
                }
                _ => term.span.clone(),
            };
            self.report(&danger, &span, diagnostics);
            return;
        }
    }

    fn check_exec<'t>(&self, param: &dyn Fn(&str) -> Option<&'t TermDefinition>, diagnostics: &mut Diagnostics) {
        let foreign = self.foreign(param, &|_| false, diagnostics);
        let Some(program) = param("program") else { return };
        let mut terms = vec![program];
        let own = |texts: Vec<Written<'_>>| texts.into_iter().map(|written| (written.text, false)).collect();
        let mut calls = vec![Vec::new()];
        extend(&mut calls, own(self.written(program)));
        match param("args").map(|term| (term, &term.kind)) {
            Some((_, TermKind::List(list))) => {
                for term in list {
                    terms.push(term);
                    let texts = self.written(term);
                    let texts = match self.untrusted(term) {
                        Untrusted::Nothing if !texts.is_empty() => own(texts),
                        Untrusted::Behind(beginning) => vec![(beginning, true)],
                        _ => vec![(String::new(), true)],
                    };
                    extend(&mut calls, texts);
                }
            }
            // The number of arguments and their values are known only when the graph runs.
            Some((term, TermKind::Template { .. })) if !self.untrusted(term).is_nothing() => {
                terms.push(term);
                extend(&mut calls, vec![(String::new(), true)]);
            }
            _ => {}
        }
        for call in calls {
            let arguments: Vec<ProgramArgument<'_>> =
                call.iter().map(|(text, is_foreign)| ProgramArgument { text, is_foreign: *is_foreign }).collect();
            let Some(danger) = graph_shell::scan_program(&arguments, &foreign).into_iter().next() else { continue };
            let term = terms.get(danger.range.start).copied().unwrap_or(program);
            self.report(&danger, &term.span, diagnostics);
            return;
        }
    }

    /// Returns the untrusted values outside of the command's text; reports one that has a name with a special meaning.
    fn foreign<'t>(
        &self,
        param: &dyn Fn(&str) -> Option<&'t TermDefinition>,
        expands: &dyn Fn(&str) -> bool,
        diagnostics: &mut Diagnostics,
    ) -> Foreign {
        let stdin = param("stdin").is_some_and(|term| !self.untrusted(term).is_nothing());
        let is_foreign = |name: &str| param(name).is_some_and(|term| !self.untrusted(term).is_nothing());
        let of_bash = |names: Vec<String>| Foreign { variables: names, stdin }.in_directory(is_foreign("cwd"));
        let Some(env) = param("env") else { return of_bash(Vec::new()) };
        let untrusted = self.untrusted(env);
        let names: Vec<String> = match (&untrusted, &env.kind) {
            (Untrusted::Nothing, _) => Vec::new(),
            (Untrusted::Parts(parts), _) => parts.keys().cloned().collect(),
            (Untrusted::Behind(_), _) => {
                self.report_names(env, diagnostics);
                Vec::new()
            }
        };
        for name in &names {
            if graph_shell::is_read(name, expands(name)) {
                self.report_name(env, name, diagnostics);
            }
        }
        of_bash(names)
    }

    /// Reports that the variables of `env` are not named in the graph.
    fn report_names(&self, env: &TermDefinition, diagnostics: &mut Diagnostics) {
        let Some((path, span)) = self.first_path(env) else { return };
        diagnostics
            .lint(
                code::INJECTION,
                self.given.analysis.model.place(&span),
                format!("`{path}` decides which variables `env` of {} sets", self.given.whose),
            )
            .label("with `BASH_ENV` or `PATH` among them, it decides what is executed")
            .help(format!("name each variable in the graph: `env: {{ NAME: \"${{{path}.NAME}}\" }}`"));
    }

    /// Reports that a variable has a name that changes the behaviour of bash or of programs.
    fn report_name(&self, env: &TermDefinition, name: &str, diagnostics: &mut Diagnostics) {
        let field = match &env.kind {
            TermKind::Object(fields) => fields.iter().find(|(key, _)| key.value == name).map(|(_, term)| term),
            _ => None,
        };
        let Some((path, span)) = self.first_path(field.unwrap_or(env)) else { return };
        let message = match graph_shell::is_variable(name) {
            true => format!("`{path}` becomes the value of `{name}`, which decides what bash and programs do"),
            false => {
                format!(
                    "`{path}` becomes the value of `{name}`, which is not the name of a variable that a command can use"
                )
            }
        };
        diagnostics
            .lint(code::INJECTION, self.given.analysis.model.place(&span), message)
            .label(format!("sets `{name}` in `env` of {}", self.given.whose))
            .help("give the value to a variable with another name, which the command expands itself");
    }

    /// Returns the first untrusted path of a value, and its place.
    fn first_path<'t>(&self, term: &'t TermDefinition) -> Option<(&'t Path, Span)> {
        let mut found = None;
        term.templates(&mut |term, template, text| {
            for expression in template.expressions() {
                for (path, range) in expression.paths.iter().zip(&expression.ranges) {
                    if found.is_none() && self.is_somebody_elses(path) {
                        let span = locate(self.given.analysis.model.definition.source(), &term.span, text, range);
                        found = Some((path, span));
                    }
                }
            }
        });
        found
    }

    fn report(&self, danger: &Danger, span: &Span, diagnostics: &mut Diagnostics) {
        let whose = &self.given.whose;
        let advice = match danger.how {
            // `rye/exec` finds such a file in the same directory.
            How::Directory(_) => danger.how.help().to_owned(),
            _ => format!("{}; or start the program with `rye/exec`, whose arguments no shell reads", danger.how.help()),
        };
        let diagnostic = diagnostics
            .lint(code::INJECTION, self.given.analysis.model.place(span), format!("{} {}", danger.origin, danger.how))
            .label(format!("in the command of {whose}"))
            .help(advice);
        if let ValueOrigin::Variable(name) = &danger.origin
            && let Some(shown) = self.shown_variable(name)
        {
            diagnostic.note(format!("`env` sets `{name}` to `{shown}`"));
        }
    }

    /// Returns the value that `env` gives to a variable, as the author wrote it.
    fn shown_variable(&self, name: &str) -> Option<String> {
        let TermKind::Object(params) = &self.given.call.params.kind else { return None };
        let (_, env) = params.iter().find(|(key, _)| key.value == "env")?;
        let TermKind::Object(fields) = &env.kind else { return None };
        let (_, term): &(Spanned<String>, TermDefinition) = fields.iter().find(|(key, _)| key.value == name)?;
        match &term.kind {
            TermKind::Template { text, .. } => Some(text.clone()),
            _ => None,
        }
    }

    /// Returns the texts that a value can be, as far as the graph contains them; parts that cannot be code are replaced
    /// by digits. Empty if the texts are not known.
    fn written<'t>(&self, term: &'t TermDefinition) -> Vec<Written<'t>> {
        let (text, pieces) = match &term.kind {
            // The file has `$${` for a `${` in this text, so positions differ.
            TermKind::Literal(Value::String(text)) => {
                let source = Some(text.as_str()).filter(|text| !text.contains("${"));
                return vec![Written { text: text.clone(), source }];
            }
            TermKind::Template { template: Template::Whole(expression), .. } => {
                return match self.constants(expression) {
                    Some(texts) => texts.into_iter().map(|text| Written { text, source: None }).collect(),
                    None => Vec::new(),
                };
            }
            TermKind::Template { text, template: Template::Mixed(pieces) } if self.untrusted(term).is_nothing() => {
                (text, pieces)
            }
            _ => return Vec::new(),
        };
        let mut is_same = !text.contains("$${");
        let mut texts = vec![String::new()];
        for piece in pieces {
            let alternatives = match piece {
                Piece::Text(piece) => vec![piece.clone()],
                Piece::Expression(expression) => match self.constants(expression) {
                    Some(constants) => {
                        is_same = false;
                        constants
                    }
                    None => {
                        let length = if is_same { place_of(text, expression).len() } else { 1 };
                        vec!["0".repeat(length)]
                    }
                },
            };
            if texts.len().saturating_mul(alternatives.len()) > sinks::MOST_CONSTANTS {
                return Vec::new();
            }
            let longer = |text: &String| alternatives.iter().map(|more| format!("{text}{more}")).collect::<Vec<_>>();
            texts = texts.iter().flat_map(longer).collect();
        }
        let source = Some(text.as_str()).filter(|_| is_same);
        texts.into_iter().map(|text| Written { text, source }).collect()
    }

    /// Returns the texts of the values that an expression can have, if all of them are literals in the graph.
    fn constants(&self, expression: &Expression) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        for path in &expression.paths {
            for value in constants(self.given.analysis, self.given.node, self.given.site, path)? {
                let text = match value {
                    Value::Null => String::new(),
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
        Some(texts)
    }
}

/// Adds an argument to each of several possible calls of a program; each text that the argument can be yields a call of
/// its own.
fn extend(calls: &mut Vec<Vec<(String, bool)>>, texts: Vec<(String, bool)>) {
    let is_too_much = calls.len().saturating_mul(texts.len()) > sinks::MOST_CONSTANTS;
    // Texts that are not examined count as untrusted.
    let texts = if is_too_much { vec![(String::new(), true)] } else { texts };
    *calls = calls
        .iter()
        .flat_map(|call| texts.iter().map(move |text| call.iter().cloned().chain([text.clone()]).collect()))
        .collect();
}

/// A text from the graph.
struct Written<'t> {
    text: String,
    /// The text as the author wrote it, if positions in both are the same.
    source: Option<&'t str>,
}

/// Returns the parts of a value of this type that may be code.
fn of_type(ty: &Type) -> Untrusted {
    match &ty.kind {
        // Only declared fields reach a tool.
        TypeKind::Object(fields) => {
            Untrusted::of_parts(fields.iter().map(|field| (field.name.clone(), of_type(&field.ty))))
        }
        _ if is_risky(ty) => Untrusted::everything(),
        _ => Untrusted::Nothing,
    }
}

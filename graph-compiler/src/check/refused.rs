//! The parameters of a tool, and the inputs of a nested graph, satisfy its rules beyond their types.

use graph_definition::definition::{
    CallDefinition, SchemaKind, SchemaRule, Spanned, TermDefinition, TermKind, ValueSchema,
};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, code};
use graph_model::path::Path;
use graph_model::template::Template;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::calls::{TaskCall, TaskInputs};
use crate::analysis::reads::Site;
use crate::items::TaskTarget;
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        check_task(analysis, (caller.site(), call), diagnostics);
        let tool = analysis.model.tool(call);
        let (schema, asks, file) = match (tool.graph, tool.contract) {
            (Some(graph), _) => (graph.schema.as_ref(), "graph", &graph.file),
            (None, Some(contract)) => (Some(&contract.params), "contract", &contract.source.name),
            (None, None) => continue,
        };
        let Some(schema) = schema else { continue };
        let whose = call.shown().to_string();
        ValueCheck { analysis, site: caller.site(), asks, file }.check(&call.params, schema, &whose, diagnostics);
    }
}

/// Checks the inputs of the task that a call starts, as if a node called what it runs.
fn check_task(analysis: &Analysis<'_>, (site, call): ((usize, Site), &CallDefinition), diagnostics: &mut Diagnostics) {
    let Some(TaskCall { name: Some(name), inputs, .. }) = analysis.model.task(call) else { return };
    let Some(TaskTarget::Found(item)) = analysis.model.started(&name) else { return };
    let Some(schema) = &item.schema else { return };
    let (check, whose) = (ValueCheck { analysis, site, asks: "task", file: &item.file }, format!("`{}`", item.id));
    match inputs {
        TaskInputs::Fields(given) => check.fields(&given, schema, &whose, diagnostics),
        TaskInputs::Whole(term) => check.check(term, schema, &whose, diagnostics),
        TaskInputs::Unknown => {}
    }
}

/// The parameters of a call of a tool, or the inputs of a nested graph.
struct ValueCheck<'f, 'd> {
    analysis: &'f Analysis<'d>,
    site: (usize, Site),
    /// The owner of the rules: the graph, the contract or the task.
    asks: &'static str,
    /// Its file.
    file: &'f str,
}

impl ValueCheck<'_, '_> {
    fn check(&self, term: &TermDefinition, schema: &ValueSchema, whose: &str, diagnostics: &mut Diagnostics) {
        let broken = match &term.kind {
            TermKind::Unreadable => None,
            TermKind::Literal(value) => schema.rules.iter().find(|rule| !rule.holds(value)),
            TermKind::Object(_) | TermKind::List(_) => {
                self.inside(term, schema, whose, diagnostics);
                // The maximum number of elements is known, whatever their values are.
                let value = term.to_value();
                let counts = ["minItems", "maxItems", "minProperties"];
                schema.rules.iter().find(|rule| counts.contains(&rule.keyword) && !rule.holds(&value))
            }
            TermKind::Template { template: Template::Whole(expression), .. } => {
                let is_said = match expression.paths.as_slice() {
                    [path] => self.compare(term, path, schema, whose, diagnostics),
                    _ => false,
                };
                if !is_said {
                    self.check_known(term, schema, whose, diagnostics);
                }
                None
            }
            TermKind::Template { .. } => None,
        };
        if let Some(rule) = broken {
            self.report(term, rule, whose, diagnostics).label(format!("breaks `{rule}`"));
        }
    }

    /// Reports a value of which all that it can be is known, and breaks rules.
    fn check_known(&self, term: &TermDefinition, schema: &ValueSchema, whose: &str, diagnostics: &mut Diagnostics) {
        if schema.rules.is_empty() {
            return;
        }
        let (node, site) = self.site;
        let ty = self.analysis.type_env().type_of_term(node, site, term);
        let values = match (&ty.kind, ty.known.values) {
            // A null is left out.
            _ if ty.nullable => return,
            (TypeKind::Enum(words), None) => words.iter().map(|word| Value::from(word.as_str())).collect(),
            (_, values) => values.unwrap_or_default(),
        };
        let breaks = |value| schema.rules.iter().find(|rule| !rule.holds(value));
        let broken: Option<Vec<&SchemaRule>> = values.iter().map(breaks).collect();
        if let (Some([rule, ..]), [value, ..]) = (broken.as_deref(), values.as_slice()) {
            let label = match values.len() {
                1 => format!("is {value}, which breaks `{rule}`"),
                count => format!("is one of {count} values, each of which breaks a rule, as {value} breaks `{rule}`"),
            };
            self.report(term, rule, whose, diagnostics).label(label);
        }
    }

    fn inside(&self, term: &TermDefinition, schema: &ValueSchema, whose: &str, diagnostics: &mut Diagnostics) {
        match (&term.kind, &schema.kind) {
            (TermKind::Object(given), SchemaKind::Object(_)) => self.fields(given, schema, whose, diagnostics),
            (TermKind::Object(given), SchemaKind::Map(values)) => {
                for (key, term) in given {
                    self.check(term, values, &format!("`{}` in {whose}", key.value), diagnostics);
                }
            }
            (TermKind::List(list), SchemaKind::List(items)) => {
                list.iter().for_each(|term| self.check(term, items, &format!("an element of {whose}"), diagnostics));
            }
            _ => {}
        }
    }

    fn fields(
        &self,
        given: &[(Spanned<String>, TermDefinition)],
        schema: &ValueSchema,
        whose: &str,
        diagnostics: &mut Diagnostics,
    ) {
        for (key, term) in given {
            if let Some(property) = schema.properties().find(|property| property.name.value == key.value) {
                self.check(term, &property.schema, &format!("`{}` of {whose}", key.value), diagnostics);
            }
        }
    }

    /// Compares the rules of a value with those of the input of this graph that it is. Returns whether it reports something.
    fn compare(
        &self,
        term: &TermDefinition,
        path: &Path,
        schema: &ValueSchema,
        whose: &str,
        diagnostics: &mut Diagnostics,
    ) -> bool {
        let Some(own) = self.analysis.model.schema_of_input(path) else { return false };
        let constant = own.rules.iter().find(|rule| rule.keyword == "const");
        let breaks = |constant: &&SchemaRule| schema.rules.iter().find(|rule| !rule.holds(&constant.value));
        let both = constant.and_then(|constant| Some((constant, breaks(&constant)?))).or_else(|| own.excludes(schema));
        if let Some((own, rule)) = both {
            let place = self.analysis.model.place(&own.span);
            self.report(term, rule, whose, diagnostics)
                .label(format!("no value keeps both `{own}` and `{rule}`"))
                .related(place, format!("`{path}` is declared with `{own}`"));
        }
        both.is_some()
    }

    fn report<'r>(
        &self,
        term: &TermDefinition,
        rule: &SchemaRule,
        whose: &str,
        diagnostics: &'r mut Diagnostics,
    ) -> &'r mut Diagnostic {
        let message = format!("{whose} is refused: the {} asks for `{rule}`", self.asks);
        let diagnostic = diagnostics.error(code::REFUSED_INPUT, self.analysis.model.place(&term.span), message);
        diagnostic.note(format!("the {} is `{}`", self.asks, self.file));
        diagnostic
    }
}

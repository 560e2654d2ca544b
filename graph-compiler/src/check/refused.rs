//! The inputs of a nested graph satisfy its rules beyond their types.

use graph_definition::definition::{SchemaKind, SchemaRule, TermDefinition, TermKind, ValueSchema};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, code};
use graph_model::path::Path;
use graph_model::template::Template;

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (_, call) in analysis.model.calls() {
        let Some(graph) = analysis.model.tool(call).graph else { continue };
        let Some(schema) = &graph.schema else { continue };
        let whose = call.shown().to_string();
        InputCheck { analysis, file: &graph.file }.check(&call.params, schema, &whose, diagnostics);
    }
}

/// The inputs of a call of a nested graph.
struct InputCheck<'f, 'd> {
    analysis: &'f Analysis<'d>,
    /// The graph's file.
    file: &'f str,
}

impl InputCheck<'_, '_> {
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
                if let [path] = expression.paths.as_slice() {
                    self.compare(term, path, schema, whose, diagnostics);
                }
                None
            }
            TermKind::Template { .. } => None,
        };
        if let Some(rule) = broken {
            self.report(term, rule, whose, diagnostics).label(format!("breaks `{rule}`"));
        }
    }

    fn inside(&self, term: &TermDefinition, schema: &ValueSchema, whose: &str, diagnostics: &mut Diagnostics) {
        match (&term.kind, &schema.kind) {
            (TermKind::Object(given), SchemaKind::Object(properties)) => {
                for (key, term) in given {
                    if let Some(property) = properties.iter().find(|property| property.name.value == key.value) {
                        self.check(term, &property.schema, &format!("`{}` of {whose}", key.value), diagnostics);
                    }
                }
            }
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

    /// Compares the rules of an input with those of the input of this graph whose value it gets.
    fn compare(
        &self,
        term: &TermDefinition,
        path: &Path,
        schema: &ValueSchema,
        whose: &str,
        diagnostics: &mut Diagnostics,
    ) {
        let Some(own) = self.analysis.model.schema_of_input(path) else { return };
        let constant = own.rules.iter().find(|rule| rule.keyword == "const");
        let breaks = |constant: &&SchemaRule| schema.rules.iter().find(|rule| !rule.holds(&constant.value));
        let both = constant.and_then(|constant| Some((constant, breaks(&constant)?))).or_else(|| own.excludes(schema));
        if let Some((own, rule)) = both {
            let place = self.analysis.model.place(&own.span);
            self.report(term, rule, whose, diagnostics)
                .label(format!("no value keeps both `{own}` and `{rule}`"))
                .related(place, format!("`{path}` is declared with `{own}`"));
        }
    }

    fn report<'r>(
        &self,
        term: &TermDefinition,
        rule: &SchemaRule,
        whose: &str,
        diagnostics: &'r mut Diagnostics,
    ) -> &'r mut Diagnostic {
        let message = format!("{whose} is refused: the graph asks for `{rule}`");
        let diagnostic = diagnostics.error(code::REFUSED_INPUT, self.analysis.model.place(&term.span), message);
        diagnostic.note(format!("the graph is `{}`", self.file));
        diagnostic
    }
}

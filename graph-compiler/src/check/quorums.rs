//! A quorum can be met, and says what follows if it is not.

use graph_definition::definition::{NodeDefinition, QuorumDefinition, RouteDefinition};
use graph_definition::diagnostic::{Diagnostic, DiagnosticCode, Diagnostics, code};
use graph_definition::source::Span;
use graph_model::program::OnBranchError;

use crate::analysis::Analysis;
use crate::analysis::budget::too_few;
use crate::analysis::joins::NodeJoin;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // Mistakes in the branches are reported first.
    let is_mistaken = diagnostics.iter().any(|one| one.code == code::BAD_JOIN);
    if is_mistaken || !analysis.model.is_whole() || !analysis.flow.branches().faults().is_empty() {
        return;
    }
    let nodes = &analysis.model.definition.nodes;
    for (at, join) in analysis.flow.joins().all().filter(|(_, join)| join.closes) {
        if let Some(quorum) = &nodes[at].quorum {
            Quorum { analysis, node: &nodes[at], quorum, join }.check(diagnostics);
        }
    }
}

struct Quorum<'a, 'd> {
    analysis: &'a Analysis<'d>,
    node: &'a NodeDefinition,
    quorum: &'a QuorumDefinition,
    join: &'a NodeJoin,
}

impl Quorum<'_, '_> {
    fn check(&self, diagnostics: &mut Diagnostics) {
        let Self { node, quorum, join, .. } = self;
        let need = quorum.need.value;
        let fan = self.fan();
        if let Some(OnBranchError::Stop | OnBranchError::Finish) = fan.on_branch_error() {
            let message = format!(
                "node `{}` does without some branches, and `on_branch_error` of node `{}` needs all",
                node.name, fan.name
            );
            self.report(code::BAD_QUORUM, message, diagnostics)
                .help("remove `on_branch_error`: a failure that nothing else handles ends its branch then");
            return;
        }
        if let Some(most) = too_few(&self.analysis.model, join) {
            let message = format!(
                "node `{}` needs {need} of its branches, and node `{}` begins at most {most} that lead to it",
                node.name, fan.name
            );
            self.report(code::BAD_QUORUM, message, diagnostics)
                .help("lower `need`, or wait for all branches: `waits_for: [one, other]`");
            return;
        }
        match &quorum.fewer {
            None if join.may_fall_short() => {
                let message = format!(
                    "node `{}` needs {need} of its branches, and may have fewer: nothing says what follows",
                    node.name
                );
                let diagnostic = self.report(code::MAY_FALL_SHORT, message, diagnostics);
                self.why(diagnostic);
                diagnostic.help("name the node that is visited instead: `fewer: name`");
            }
            Some(fewer) if !join.may_fall_short() => {
                let message =
                    format!("`fewer` of node `{}` is never followed: enough branches surely arrive", node.name);
                diagnostics
                    .lint(code::NEVER_FOLLOWED, self.analysis.model.place(&fewer.span), message)
                    .label("cannot happen")
                    .help("remove it");
            }
            _ => {}
        }
    }

    fn fan(&self) -> &NodeDefinition {
        &self.analysis.model.definition.nodes[self.join.fan]
    }

    /// Adds why branches may not arrive.
    fn why(&self, diagnostic: &mut Diagnostic) {
        let nodes = &self.analysis.model.definition.nodes;
        let name = |at: usize| &nodes[at].name;
        if matches!(self.fan().next(), RouteDefinition::Each(_)) {
            diagnostic.note("the list may have fewer elements");
        }
        for branch in &self.join.branches {
            let first = name(branch.first);
            if let Some(&end) = branch.ends.broken.first() {
                diagnostic.note(format!("the branch of `{first}` ends if `{}` fails", name(end)));
            } else if let Some(&end) = branch.ends.at.first() {
                diagnostic.note(format!("the branch of `{first}` may end at `{}`", name(end)));
            } else if !branch.arrives {
                diagnostic.note(format!("the branch of `{first}` does not lead here"));
            } else if !branch.is_sure && !matches!(self.fan().next(), RouteDefinition::Each(_)) {
                diagnostic.note(format!("the branch of `{first}` may not begin, or not arrive"));
            }
        }
    }

    fn report<'r>(
        &self,
        code: DiagnosticCode,
        message: String,
        diagnostics: &'r mut Diagnostics,
    ) -> &'r mut Diagnostic {
        let place = |at: &Span| self.analysis.model.place(at);
        diagnostics
            .error(code, place(&self.quorum.need.span), message)
            .related(place(&self.fan().name.span), "the branches begin here")
    }
}

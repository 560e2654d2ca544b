//! A foreach goes over a list (R106).

use graph_definition::definition::{NodeKind, TermKind};
use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        let NodeKind::Foreach(each) = &node.kind else { continue };
        let ty = analysis.type_env().type_of_term(at, Site::Over, &each.over);
        if let TypeKind::Any | TypeKind::Never | TypeKind::List(_) = ty.kind {
            continue;
        }
        let shown = ty.not_null();
        let diagnostic = diagnostics.error(
            code::NOT_A_LIST,
            analysis.model.place(&each.over.span),
            format!("the foreach `{}` goes over {shown}, which is not a list", node.name),
        );
        diagnostic.label(format!("this is {shown}"));
        match &each.over.kind {
            TermKind::Template { .. } if shown.kind == TypeKind::String => {
                diagnostic.help("`over` is one `${…}` that yields a list; any text around it makes a text");
            }
            TermKind::Literal(_) => {
                diagnostic.help("write a list, or a template that yields one: `over: \"${state.items}\"`");
            }
            _ => {}
        }
    }
}

//! Type information is not lost silently where values of two known types meet and the type of the result is not known.

use graph_definition::definition::{Assignment, NodeKind};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::HashSet;
use graph_definition::source::Span;

use crate::analysis::losses::{self, loses, plain};
use crate::analysis::reads::{Site, terms};
use crate::analysis::{Analysis, channels};
use crate::types::{Type, TypeKind};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // The terms that were reported already.
    let mut reported = HashSet::default();
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        // Parameters are excluded: without a contract they keep their types, and with one another rule checks them.
        for (site, term) in terms(node).into_iter().filter(|(site, _)| !matches!(site, Site::Params | Site::Item)) {
            let mut losses = Vec::new();
            losses::inside(analysis.type_env(), (at, site), term, &mut losses);
            if losses.is_empty() {
                losses.extend(analysis.types.inner_losses.get(&term.span.start).cloned());
            }
            for loss in &losses {
                diagnostics
                    .lint(code::WIDENED, analysis.model.place(&loss.span), loss.message.clone())
                    .label(loss.label.clone());
            }
            if !losses.is_empty() {
                reported.insert(term.span.start);
            }
        }
    }
    keys(analysis, &reported, diagnostics);
}

/// Checks the types that are written to each key.
fn keys(analysis: &Analysis<'_>, reported: &HashSet<usize>, diagnostics: &mut Diagnostics) {
    // The types that are written to each key, in the order of the file.
    let mut written: Vec<Vec<(Span, Type)>> = vec![Vec::new(); analysis.types.keys.len()];
    let mut write = |key: &str, span: &Span, ty: Type| {
        if let Some(key) = analysis.model.key(key) {
            written[key].push((span.clone(), ty));
        }
    };
    let held = |name: &str, ty: Type| match analysis.model.key(name) {
        Some(key) => channels::held(&analysis.model.keys[key], ty),
        None => ty,
    };
    for (key, value) in &analysis.model.definition.state {
        write(key.value.as_str(), &value.span, Type::of_value(&value.value));
    }
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        for (index, Assignment { key, value }) in node.assign().iter().enumerate() {
            let ty = analysis.type_env().type_of_term(at, Site::Assign(index), value);
            write(key.value.as_str(), &value.span, held(key.value.as_str(), ty));
        }
        if let NodeKind::Foreach(each) = &node.kind
            && let Some(key) = &each.collect
        {
            write(key.value.as_str(), &key.span, held(key.value.as_str(), analysis.model.collected(at)));
        }
    }
    for ((key, all), loss) in analysis.types.keys.iter().zip(&written).zip(&analysis.types.losses) {
        let Some(((first, ty), all)) = all.split_first() else { continue };
        let (mut before, mut ty) = (first.clone(), ty.clone());
        let mut is_said = false;
        for (span, other) in all {
            let joined = ty.clone().join(other.clone());
            if loses(&ty, other, &joined) {
                diagnostics
                    .lint(
                        code::WIDENED,
                        analysis.model.place(span),
                        format!(
                            "`state.{}` is {} here and {} elsewhere, so its type is not known",
                            key.name,
                            plain(other),
                            plain(&ty)
                        ),
                    )
                    .label(format!("this is {}", plain(other)))
                    .related(analysis.model.place(&before), format!("this is {}", plain(&ty)))
                    .help("write values of one type to it, or use a key of its own for each");
                is_said = true;
                break;
            }
            if ty.kind == TypeKind::Never {
                before = span.clone();
            }
            ty = joined;
        }
        // If a key is read to write it, its final type hides the values that met.
        if let Some((span, one, two)) = loss.as_ref().filter(|(span, ..)| !is_said && !reported.contains(&span.start)) {
            let message = format!(
                "`state.{}` gets {} here and {} elsewhere, so its type is not known",
                key.name,
                plain(one),
                plain(two)
            );
            diagnostics
                .lint(code::WIDENED, analysis.model.place(span), message)
                .label(format!("this may be {}", plain(one)))
                .help("write values of one type to it, or use a key of its own for each");
        }
    }
}

//! The settings for a node's calls have an effect.

use std::time::Duration;

use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::duration::shown;

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let limit = analysis.model.definition.settings.timeout_ms;
    for node in &analysis.model.definition.nodes {
        let Some(conduct) = node.conduct() else { continue };
        // One attempt means no retries, not even those that the engine makes by default.
        let is_only_one = conduct.retry.as_ref().is_some_and(|retry| retry.attempts == 1);
        for field in conduct.pauses.iter().filter(|_| is_only_one) {
            diagnostics
                .lint(
                    code::NO_EFFECT,
                    analysis.model.place(&field.span),
                    format!("`{field}` does nothing: the first attempt of node `{}` is its last", node.name),
                )
                .help("`attempts` counts the first one too: write 2 or more, or `retry: 1` alone");
        }
        let written = conduct.timeout_ms.as_ref().zip(limit);
        if let Some((timeout, limit)) = written.filter(|(timeout, limit)| timeout.value > *limit) {
            let duration = |milliseconds| shown(Duration::from_millis(milliseconds));
            diagnostics
                .lint(
                    code::NO_EFFECT,
                    analysis.model.place(&timeout.span),
                    format!("`timeout` of node `{}` is longer than a run may take", node.name),
                )
                .label(format!("{}, and `limits.timeout` is {}", duration(timeout.value), duration(limit)))
                .help("write less, or raise `limits.timeout`");
        }
    }
}

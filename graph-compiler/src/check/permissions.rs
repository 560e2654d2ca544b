//! The graph declares its permissions, and they cover its calls.

use graph_definition::definition::Spanned;
use graph_definition::diagnostic::{Diagnostics, Fix, code};
use graph_definition::hash::HashSet;
use graph_model::capability::{Capability, Pattern};
use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};

use crate::analysis::Analysis;
use crate::analysis::calls::{Need, need, of_any_task, own_needs};
use crate::items::{TaskName, TaskTarget};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    let needed: Vec<String> =
        analysis.model.tools.iter().filter_map(|tool| Some(tool.capability.as_ref()?.to_string())).collect();
    let Some(permissions) = definition.permissions.as_ref().filter(|list| !list.value.is_empty()) else {
        // A list whose entries could not be read was already reported.
        if definition.permissions.is_none() || !diagnostics.has_errors() {
            let span = definition.permissions.as_ref().map_or(definition.head.clone(), |list| list.span.clone());
            let message = match definition.permissions {
                None => "the graph declares no `permissions`, so it may not do anything",
                Some(_) => "the graph's `permissions` are empty, so it may not do anything",
            };
            diagnostics.error(code::NO_PERMISSIONS, analysis.model.place(&span), message).help(
                match needed.as_slice() {
                    [] => "list the capabilities that it may use, as in `permissions: [rye.execute.tool.*]`".to_owned(),
                    _ => format!("write `permissions: [{}]`", needed.join(", ")),
                },
            );
        }
        return;
    };
    // There may be many calls and many permissions, and most of them name one tool.
    let exact: HashSet<&str> = analysis.model.permissions().map(|pattern| pattern.value.as_str()).collect();
    let wild: Vec<&Spanned<Pattern>> = analysis.model.permissions().filter(|pattern| is_wild(&pattern.value)).collect();
    for (caller, call) in analysis.model.calls() {
        let (needed, added, covered) = match need(call) {
            Need::Nothing => continue,
            Need::Capability(capability) => {
                let added = capability.to_string();
                let covered = match exact.contains(added.as_str()) {
                    true => true,
                    false => wild.iter().any(|pattern| pattern.value.grants(&capability)),
                };
                (format!("needs `{capability}`"), added, covered)
            }
            Need::Beginning(beginning) => {
                let covered = analysis.model.permissions().any(|pattern| may_grant(&pattern.value, &beginning));
                (format!("needs what begins with `{beginning}`"), format!("{beginning}*"), covered)
            }
        };
        // A permission that is written with slashes, as in an id, was already refused, but is meant for this call.
        let text = analysis.model.definition.source().text.get(permissions.span.clone()).unwrap_or_default();
        let is_refused = || call.id().is_some_and(|id| id.as_str().contains('/') && text.contains(&format!(".{id}")));
        if !covered && !is_refused() && !analysis.model.is_other_tool(call) {
            let message = format!("{caller} may not call {}: the graph's permissions do not cover it", call.shown());
            let diagnostic =
                diagnostics.error(code::MISSING_PERMISSION, analysis.model.place(&call.item.span), message);
            diagnostic.label(needed).related(analysis.model.place(&permissions.span), "these are its permissions");
            match call.id().and_then(|id| analysis.model.items.similar.get(id)) {
                // A right for a name that is probably misspelt would stay when the name is corrected.
                Some(similar) => {
                    diagnostic.help(format!("there is no contract with this id; did you mean `{similar}`?")).fix =
                        Some(Fix { span: call.item.span.clone(), text: similar.clone(), is_certain: false });
                }
                None => {
                    diagnostic.help(format!("add `{added}` to `permissions`")).fix =
                        addition(&analysis.model.definition.source().text, permissions, &added);
                }
            }
        }
    }
}

/// Reports tasks that a call starts and that the graph does not permit.
pub(super) fn check_spawned(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let Some(permissions) = &analysis.model.definition.permissions else { return };
    for (caller, call) in analysis.model.calls() {
        let Some(task) = analysis.model.task(call).and_then(|task| task.name) else { continue };
        let id = match (&task.name, analysis.model.started(&task)) {
            (_, Some(TaskTarget::Found(item))) => &item.id,
            // A target that is probably misspelt is reported as such.
            (_, Some(TaskTarget::Missing(Some(_)))) => continue,
            (Some(TaskName::Item(id)), _) => id,
            _ => continue,
        };
        let capability = Capability::new(Verb::Execute, ItemType::Tool, Some(id));
        if !analysis.model.permissions().any(|pattern| pattern.value.grants(&capability)) {
            let message = format!("{caller} may not spawn `{id}`: the graph's permissions do not cover it");
            diagnostics
                .error(code::MISSING_PERMISSION, analysis.model.place(task.span), message)
                .label(format!("needs `{capability}`"))
                .related(analysis.model.place(&permissions.span), "these are its permissions")
                .help(format!("add `{capability}` to `permissions`, and the capabilities that `{id}` needs"));
        }
    }
}

/// Reports ids that a call may compute and that the graph does not permit.
pub(super) fn check_computed(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let Some(permissions) = &analysis.model.definition.permissions else { return };
    for (caller, call) in analysis.model.calls() {
        let (node, site) = caller.site();
        let Some(ids) = analysis.type_env().ids(node, site, call).filter(|_| matches!(need(call), Need::Beginning(_)))
        else {
            continue;
        };
        let denied = |id: &String| {
            let id = ItemId::new(id.as_str()).ok()?;
            let capability = Capability::new(call.verb, call.item_type, Some(&id));
            (!analysis.model.permissions().any(|pattern| pattern.value.grants(&capability)))
                .then(|| capability.to_string())
        };
        let denied: Vec<(&String, String)> = ids.iter().filter_map(|id| Some((id, denied(id)?))).collect();
        if denied.is_empty() {
            continue;
        }
        let shown: Vec<String> = denied.iter().map(|(id, _)| format!("`{id}`")).collect();
        let needed: Vec<&str> = denied.iter().map(|(_, capability)| capability.as_str()).collect();
        let message = format!("{caller} may call {}, which the graph's permissions do not cover", shown.join(" and "));
        diagnostics
            .lint(code::DENIED_ID, analysis.model.place(&call.item.span), message)
            .label("computed of words that are all known")
            .related(analysis.model.place(&permissions.span), "these are its permissions")
            .help(format!("add `{}` to `permissions`", needed.join(", ")));
    }
}

/// Reports graphs that would run inside this one, or as its tasks, and need capabilities that it does not permit.
pub(super) fn check_inside(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let Some(permissions) = &analysis.model.definition.permissions else { return };
    for (caller, call) in analysis.model.calls() {
        let task = analysis.model.task(call).and_then(|task| task.name);
        let (span, verb, note, file, needs) = match (analysis.model.tool(call).graph, task) {
            (Some(graph), _) => {
                let note = "a nested graph may do only what both graphs permit";
                (&call.item.span, "runs", note, &graph.file, &graph.needs)
            }
            (None, Some(task)) => {
                let Some(TaskTarget::Found(item)) = analysis.model.started(&task) else { continue };
                (task.span, "spawns", "a task may do only what both graphs permit", &item.file, &item.needs)
            }
            (None, None) => continue,
        };
        let grants = |needed: &&String| analysis.model.permissions().any(|pattern| covers(&pattern.value, needed));
        let missing: Vec<&str> = needs.iter().filter(|needed| !grants(needed)).map(String::as_str).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            let message = format!("{caller} {verb} `{file}`, which needs more than the graph's permissions cover");
            diagnostics
                .lint(code::MISSING_INSIDE, analysis.model.place(span), message)
                .label(format!("needs `{missing}`"))
                .related(analysis.model.place(&permissions.span), "these are its permissions")
                .note(note)
                .help(format!("add `{missing}` to `permissions`"));
        }
    }
}

/// Returns the capability patterns that a graph needs for its own calls and its tasks.
fn needs_with_tasks(analysis: &Analysis<'_>) -> Vec<String> {
    let mut needed = own_needs(analysis.model.definition);
    for (_, call) in analysis.model.calls() {
        let Some(task) = analysis.model.task(call) else { continue };
        match task.name.and_then(|name| analysis.model.started(&name)) {
            // A task that is known needs what its graph needs, and no more.
            Some(TaskTarget::Found(item)) => {
                needed.push(Capability::new(Verb::Execute, ItemType::Tool, Some(&item.id)).to_string());
                needed.extend(item.needs.iter().cloned());
            }
            _ => needed.extend(of_any_task(call)),
        }
    }
    needed
}

/// Whether a pattern grants a capability or, if that is known only at each call, may grant it.
fn covers(pattern: &Pattern, needed: &str) -> bool {
    match needed.strip_suffix('*') {
        Some(beginning) => may_grant(pattern, beginning),
        None => Capability::parse(needed).is_some_and(|needed| pattern.grants(&needed)),
    }
}

/// Reports permissions that grant more than a run of the graph needs.
pub(super) fn check_excess(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let mut needed = needs_with_tasks(analysis);
    let inner = analysis.model.tools.iter().filter_map(|tool| tool.graph).flat_map(|graph| &graph.needs);
    let mut known: HashSet<String> = needed.iter().cloned().collect();
    needed.extend(inner.filter(|one| known.insert((*one).clone())).cloned());
    let beginnings: Vec<String> =
        needed.iter().filter_map(|needed| needed.strip_suffix('*')).map(str::to_owned).collect();
    let source = analysis.model.definition.source();
    if needed.is_empty() {
        // The list must not be empty, even if nothing is needed.
        return;
    }
    for permission in analysis.model.permissions() {
        let pattern = permission.value.as_str();
        // If a capability is known only at each call, a permission for some of the possible ones may be intended.
        let is_part = |beginning: &String| pattern.starts_with(beginning.as_str());
        let is_needed = known.contains(pattern) && !pattern.ends_with('*');
        if is_needed || beginnings.iter().any(is_part) {
            continue;
        }
        if diagnostics.is_full(code::EXCESS_PERMISSION, source) {
            // It is only counted.
            diagnostics.lint(code::EXCESS_PERMISSION, analysis.model.place(&permission.span), String::new());
            continue;
        }
        let covers = |needed: &&String| covers(&permission.value, needed);
        let covered: Vec<&str> = needed.iter().filter(covers).map(String::as_str).collect();
        let message = match covered.as_slice() {
            [] => format!("the graph needs nothing that `{pattern}` grants"),
            _ => format!("`{pattern}` grants more than the graph needs"),
        };
        let diagnostic = diagnostics.lint(code::EXCESS_PERMISSION, analysis.model.place(&permission.span), message);
        match covered.as_slice() {
            [] => diagnostic.help("remove it"),
            _ => diagnostic.help(format!("write what it needs: {}", covered.join(", "))),
        };
        if let [needed] = covered.as_slice() {
            let text = if needed.ends_with('*') { format!("\"{needed}\"") } else { (*needed).to_owned() };
            diagnostic.fix = Some(Fix { span: permission.span.clone(), text, is_certain: true });
        }
    }
}

/// Returns the change that adds a permission. It is never certain: a person has to decide on a graph's permissions.
fn addition(text: &str, permissions: &Spanned<Vec<Spanned<Pattern>>>, added: &str) -> Option<Fix> {
    let last = &permissions.value.last()?.span;
    let is_flow = text.get(permissions.span.start..)?.starts_with('[');
    let text = if is_flow {
        format!(", {added}")
    } else {
        let line = text.get(..last.start)?.rsplit('\n').next()?;
        let dash = line.find('-')?;
        format!("\n{}- {added}", " ".repeat(line[..dash].chars().count()))
    };
    Some(Fix { span: last.end..last.end, text, is_certain: false })
}

/// Whether a pattern may grant more than one capability.
pub(super) fn is_wild(pattern: &Pattern) -> bool {
    pattern.as_str().contains(['*', '?', '['])
}

/// Whether a pattern could grant a capability that begins with `beginning`. The whole capability is known only at each call.
pub(super) fn may_grant(pattern: &Pattern, beginning: &str) -> bool {
    let pattern = pattern.as_str();
    let plain = &pattern[..pattern.find(['*', '?', '[']).unwrap_or(pattern.len())];
    if plain.len() == pattern.len() {
        return plain.starts_with(beginning);
    }
    plain.starts_with(beginning) || beginning.starts_with(plain)
}

#[cfg(test)]
mod tests {
    use graph_definition::fix::apply;

    use super::*;

    #[test]
    fn a_permission_is_added_after_the_last() {
        let added = |text: &str| {
            let spanned = |words: &str, value| {
                let start = text.find(words).unwrap();
                Spanned { value, span: start..start + words.len() }
            };
            let last = spanned("rye.b", Pattern::new("rye.b").unwrap());
            let span = text.find(['[', '-']).unwrap()..text.len();
            let fix = addition(text, &Spanned { value: vec![last], span }, "rye.c").unwrap();
            assert!(!fix.is_certain);
            apply(text, &[&fix]).0
        };
        assert_eq!(added("permissions: [rye.a, rye.b]\n"), "permissions: [rye.a, rye.b, rye.c]\n");
        assert_eq!(added("permissions:\n  - rye.a\n  - rye.b\n"), "permissions:\n  - rye.a\n  - rye.b\n  - rye.c\n");
    }

    #[test]
    fn a_pattern_may_grant_only_what_shares_its_literal_prefix() {
        for (pattern, expected) in [
            ("rye.execute.tool.shop.*", true),
            ("rye.execute.*", true),
            ("*", true),
            ("rye.execute.tool.shop.pay", true),
            ("rye.execute.tool.shop.pay?", true),
            ("rye.execute.tool.bank.*", false),
            ("rye.execute.tool.bank", false),
            ("rye.execute.tool", false),
            ("rye.fetch.*", false),
        ] {
            assert_eq!(may_grant(&Pattern::new(pattern).unwrap(), "rye.execute.tool.shop."), expected, "{pattern}");
        }
    }
}

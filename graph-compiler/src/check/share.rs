//! The keys and signals that a node shares with the run of its graph are the same in both graphs.

use graph_definition::definition::{NodeDefinition, Spanned, ValueSchema};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, code};
use graph_model::name::StateKey;
use graph_model::operator::equal;
use graph_model::reducer::Reducer;
use graph_model::value::{AsView, Value};

use crate::analysis::Analysis;
use crate::check::waits::{note_unknown, signal_named};
use crate::items::{InnerKey, InnerKeys};
use crate::types::{Type, TypeKind};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for node in &analysis.model.definition.nodes {
        let first = node.share().first().map(|key| &key.span);
        let first = first.into_iter().chain(node.shared_signals().first().map(|signal| &signal.span)).next();
        let (Some(first), Some(call)) = (first, node.call()) else { continue };
        let tool = analysis.model.tool(call);
        let Some(inner) = tool.graph else {
            if tool.is_broken {
                continue;
            }
            // An action without a contract or graph is reported on its own.
            let what = if node.share().is_empty() { "signals" } else { "keys" };
            let message = format!("node `{}` shares {what}, and its action runs no graph that is known", node.name);
            diagnostics
                .error(code::BAD_SHARE, analysis.model.place(first), message)
                .related(analysis.model.place(&call.span), "the action")
                .help("name a graph of this tree in `item_id`, or remove `share`");
            continue;
        };
        let whose = call.shown().to_string();
        for signal in node.shared_signals() {
            check_signal(analysis, signal, (node, &whose), inner.signals.as_deref(), diagnostics);
        }
        if node.share().is_empty() {
            continue;
        }
        match &inner.keys {
            InnerKeys::Unknown => {}
            InnerKeys::OfCircle => {
                let message =
                    format!("node `{}` shares keys with {}, which nests this graph in turn", node.name, call.shown());
                diagnostics
                    .error(code::BAD_SHARE, analysis.model.place(first), message)
                    .label("the types of the keys of neither graph can be inferred first")
                    .help("pass the value in `params`, and read it from `result.output`");
            }
            InnerKeys::Known(keys) => {
                let shared = SharedKeys { analysis, node, keys, whose };
                node.share().iter().for_each(|key| shared.check(key, diagnostics));
            }
        }
    }
}

/// Checks that a signal that a node shares is the same in the graph inside. `signals` are the signals there.
fn check_signal(
    analysis: &Analysis<'_>,
    name: &Spanned<String>,
    (node, whose): (&NodeDefinition, &str),
    signals: Option<&[(String, ValueSchema)]>,
    diagnostics: &mut Diagnostics,
) {
    let place = analysis.model.place(&name.span);
    let message = |what: &str| format!("node `{}` cannot share the signal `{name}` with {whose}: {what}", node.name);
    let Some(own) = signal_named(analysis, &name.value) else {
        let message = message("it is no signal of this graph");
        let diagnostic = diagnostics.error(code::BAD_SHARE, place, message);
        note_unknown(analysis, name, diagnostic);
        if signals.is_some_and(|signals| signals.iter().any(|(there, _)| *there == name.value)) {
            diagnostic
                .help(format!("declare it with the schema that it has there: copy `{name}` from its `config.signals`"));
        }
        return;
    };
    // A graph that cannot be read is reported on its own.
    let Some(signals) = signals else { return };
    let Some((_, there)) = signals.iter().find(|(there, _)| *there == name.value) else {
        diagnostics
            .error(code::BAD_SHARE, place, message("that graph has no such signal"))
            .help("declare it in both graphs, with the same schema")
            .suggest(&name.value, signals.iter().map(|(there, _)| there.as_str()));
        return;
    };
    let (ty, other) = (Type::of_schema(&own.schema), Type::of_schema(there));
    let what = if ty.mask() != other.mask() {
        "its values have other secrets there".to_owned()
    } else if let Some((path, ty, other)) = ty.difference(&other) {
        match path.iter().map(|name| format!(".{name}")).collect::<String>().as_str() {
            "" => format!("here it is {ty}, and there {other}"),
            part => format!("here `{name}{part}` is {ty}, and there {other}"),
        }
    } else if own.schema.beyond_types() != there.beyond_types() {
        "its values have other rules there".to_owned()
    } else {
        return;
    };
    diagnostics.error(code::BAD_SHARE, place, message(&what)).help("declare the same schema in both graphs");
}

/// The keys that a node shares.
struct SharedKeys<'a, 'd> {
    analysis: &'a Analysis<'d>,
    node: &'a NodeDefinition,
    /// The keys of the graph inside.
    keys: &'a [InnerKey],
    /// The graph inside, as messages show it.
    whose: String,
}

impl SharedKeys<'_, '_> {
    fn error<'m>(&self, key: &Spanned<StateKey>, what: &str, diagnostics: &'m mut Diagnostics) -> &'m mut Diagnostic {
        let message = format!("node `{}` cannot share `state.{key}` with {}: {what}", self.node.name, self.whose);
        diagnostics.error(code::BAD_SHARE, self.analysis.model.place(&key.span), message)
    }

    fn check(&self, key: &Spanned<StateKey>, diagnostics: &mut Diagnostics) {
        let (model, node) = (&self.analysis.model, self.node);
        let name = key.value.as_str();
        let is_reserved = name == "inputs" || name.starts_with('_') || name.contains("${");
        let Some(inner) = self.keys.iter().find(|inner| inner.key.name == name) else {
            // Another rule reports the name.
            if is_reserved {
                return;
            }
            if let Some(bare) = name.strip_prefix("state.") {
                let message = format!("`share` of node `{}` takes the names of keys, not paths", node.name);
                diagnostics.error(code::BAD_SHARE, model.place(&key.span), message).help(format!("write `{bare}`"));
                return;
            }
            let names = self.keys.iter().map(|inner| inner.key.name.as_str());
            self.error(key, "that graph has no such key", diagnostics)
                .help(format!(
                    "name a key of both graphs, or give that graph one: `state: {{ {name}: … }}`, `channels`"
                ))
                .suggest(name, names);
            return;
        };
        let Some(at) = model.key(name) else { return };
        let own = node.written().chain(node.reset()).find(|written| written.value == key.value);
        if let Some(own) = own {
            self.error(key, "it writes the key itself too", diagnostics)
                .related(model.place(&own.span), "here")
                .help("write it in the node before or behind this one");
            return;
        }
        let shown = |reducer: Option<&Reducer>| reducer.map_or_else(|| "no channel".to_owned(), described);
        let (reducer, other) = (model.reducer(at), inner.reducer.as_ref());
        if reducer != other {
            let what = format!("here it is {}, and there {}", shown(reducer), shown(other));
            self.error(key, &what, diagnostics).help("declare the same channel in both graphs");
            return;
        }
        if model.keys[at].keep().or(inner.keep).is_some() {
            self.error(key, "it does not keep its value", diagnostics).help("remove `keep` from the channel");
            return;
        }
        if inner.by_branch || model.keys[at].channel.is_some_and(|channel| channel.by_branch.is_some()) {
            self.error(key, "its elements have the order of the branches of one run", diagnostics)
                .help("remove `order: branch`");
            return;
        }
        if inner.is_reset {
            self.error(key, "that graph resets it", diagnostics)
                .label("the run inside hands over what it writes, and cannot take back the elements of this one")
                .help("reset it in a node of this graph, or do not share it");
            return;
        }
        self.check_type(key, at, inner, diagnostics);
    }

    fn check_type(&self, key: &Spanned<StateKey>, at: usize, inner: &InnerKey, diagnostics: &mut Diagnostics) {
        let types = &self.analysis.types;
        let (ty, other) = (types.keys[at].ty.clone().not_null(), inner.key.ty.clone().not_null());
        if ty.has_secret() || other.has_secret() {
            self.error(key, "it has secrets in it", diagnostics)
                .help("pass the secret in `params`, which says where it goes");
            return;
        }
        if let Some((path, ty, other)) = ty.difference(&other) {
            let part = path.iter().fold(format!("`state.{key}"), |part, name| format!("{part}.{name}"));
            let what = match path.is_empty() {
                true => format!("here it is {ty}, and there {other}"),
                false => format!("here {part}` is {ty}, and there {other}"),
            };
            self.error(key, &what, diagnostics)
                .help("let both graphs write values of the same type to it, or pass the value in `params`");
            return;
        }
        let first = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        let (own, there) = (first(types.keys[at].initial.as_ref()), first(inner.key.initial.as_ref()));
        let lacks = |(name, value): &(&String, &Value)| !value.is_null() && own.get(*name).is_none_or(Value::is_null);
        if inner.reducer == Some(Reducer::Merge)
            && let Some((name, _)) = there.iter().find(lacks)
        {
            let what = format!("there its first value has the field `{name}`, and here it has none");
            self.error(key, &what, diagnostics)
                .label("the first value there is not handed over")
                .help(format!("give it a first value with that field here too: `state: {{ {key}: {{ {name}: … }} }}`"));
            return;
        }
        // A graph that does not read the key assumes nothing of its values.
        if !inner.is_read {
            return;
        }
        let is_list = matches!(ty.kind, TypeKind::List(_));
        if is_list && ty.known.least < other.known.least {
            let what = format!("there the list is never shorter than {}, and here it may be", other.known.least);
            self.error(key, &what, diagnostics).help("give it the same first value in both graphs");
            return;
        }
        // The graph inside is checked for the values that its own nodes write.
        let Some(known) = &other.known.values else { return };
        // Null is no value: the graph inside has its own first value then.
        let is_known = |value: &Value| value.is_null() || known.iter().any(|known| equal(known.view(), value.view()));
        let other = match &ty.known.values {
            Some(values) => values.iter().find(|value| !is_known(value)).map(Value::to_string),
            None => Some("any other value".to_owned()),
        };
        if let Some(other) = other {
            let all = known.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
            let what = format!("there it is always one of {all}, and here it may be {other}");
            self.error(key, &what, diagnostics)
                .help("pass the value in `params`, or let that graph have such a value too: in `config.state`, or written by a node");
        }
    }
}

/// Describes a reducer as a graph names it.
fn described(reducer: &Reducer) -> String {
    match reducer {
        Reducer::Program { item_id } => format!("a channel with the function `{item_id}`"),
        Reducer::Messages { id } => format!("a channel with `messages` by `{id}`"),
        other => format!("a channel with `{}`", other.name()),
    }
}

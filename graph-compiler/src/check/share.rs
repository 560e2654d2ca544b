//! The keys that a node shares with the run of its graph are the same in both graphs.

use graph_definition::definition::{NodeDefinition, Spanned};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, code};
use graph_model::name::StateKey;
use graph_model::operator::equal;
use graph_model::reducer::Reducer;
use graph_model::value::{AsView, Value};

use crate::analysis::Analysis;
use crate::items::{InnerKey, InnerKeys};
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for node in &analysis.model.definition.nodes {
        let (Some(first), Some(call)) = (node.share().first(), node.call()) else { continue };
        let tool = analysis.model.tool(call);
        let Some(inner) = tool.graph else {
            // An action without a contract or graph is reported on its own.
            let message = format!("node `{}` shares keys, and its action runs no graph that is known", node.name);
            diagnostics
                .error(code::BAD_SHARE, analysis.model.place(&first.span), message)
                .related(analysis.model.place(&call.span), "the action")
                .help("name a graph of this tree in `item_id`, or remove `share`");
            continue;
        };
        match &inner.keys {
            InnerKeys::Unknown => {}
            InnerKeys::OfCircle => {
                let message =
                    format!("node `{}` shares keys with {}, which nests this graph in turn", node.name, call.shown());
                diagnostics
                    .error(code::BAD_SHARE, analysis.model.place(&first.span), message)
                    .label("the types of the keys of neither graph can be inferred first")
                    .help("pass the value in `params`, and read it from `result.output`");
            }
            InnerKeys::Known(keys) => {
                let whose = call.shown().to_string();
                let shared = SharedKeys { analysis, node, keys, whose };
                node.share().iter().for_each(|key| shared.check(key, diagnostics));
            }
        }
    }
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
        if is_list && types.least[at] < inner.least {
            let what = format!("there the list is never shorter than {}, and here it may be", inner.least);
            self.error(key, &what, diagnostics).help("give it the same first value in both graphs");
            return;
        }
        // The graph inside is checked for the values that its own nodes write.
        let Some(known) = &inner.values else { return };
        // Null is no value: the graph inside has its own first value then.
        let is_known = |value: &Value| value.is_null() || known.iter().any(|known| equal(known.view(), value.view()));
        let other = match &types.values[at] {
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

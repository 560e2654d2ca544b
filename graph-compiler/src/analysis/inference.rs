//! Inference: the types of state keys from what is assigned to them, and of the output from the ways to the ends.

use std::collections::BTreeSet;

use graph_model::path::{Path, Root};
use graph_model::program::{OnError, THREAD_DIRECTIVE};
use graph_model::template::Template;
use graph_model::value::Value;

use super::control_flow::Web;
use super::model::{Facts, Site};
use crate::check::widened::{self, Loss, loses};
use crate::definition::{Definition, Foreach, NodeDefinition, NodeKind, Return, SchemaKind, Term, TermKind};
use crate::graph::{Exit, Key};
use crate::hash::HashMap;
use crate::source::Span;
use crate::types::{Field, Kind, Type, join_all};

/// The types that paths begin with.
pub(crate) struct Types {
    /// What the inputs are.
    pub(crate) inputs: Type,
    /// What the keys of the state are; null where nothing was learned yet.
    pub(crate) keys: Vec<Key>,
    /// For each key, all values that it can have, where all that is written to it stands in the graph.
    pub(crate) values: Vec<Option<Vec<Value>>>,
    /// For each key, how many elements it has at least where it is a list.
    pub(crate) least: Vec<u64>,
    /// For each key, where the first two values of known types met of which together nothing is known: the place of the second,
    /// its type, and what was known before. A key that is read to write it would hide that afterwards.
    pub(crate) losses: Vec<Option<(Span, Type, Type)>>,
    /// The same inside the terms that keys are written with, by where these begin in the file.
    pub(crate) inner_losses: HashMap<usize, Loss>,
    by_name: HashMap<String, usize>,
    /// Where each input is among the fields of `inputs`.
    inputs_by_name: HashMap<String, usize>,
}

impl Types {
    /// Collects the keys of the state: those of `config.state`, then those that are assigned, in the order of the file.
    pub(crate) fn new(inputs: Type, definition: &Definition) -> Self {
        let inputs_by_name = match &inputs.kind {
            Kind::Object(fields) => fields.iter().enumerate().map(|(at, field)| (field.name.clone(), at)).collect(),
            _ => HashMap::default(),
        };
        let mut types = Self {
            inputs,
            keys: Vec::new(),
            values: Vec::new(),
            least: Vec::new(),
            losses: Vec::new(),
            inner_losses: HashMap::default(),
            by_name: HashMap::default(),
            inputs_by_name,
        };
        for (key, value) in &definition.state {
            types.add(key.value.as_str(), Type::of_value(&value.value), Some(value.value.clone()));
        }
        for key in definition.nodes.iter().flat_map(|node| node.written()) {
            types.add(key.value.as_str(), Type::never(), None);
        }
        types.values = vec![Some(Vec::new()); types.keys.len()];
        types.least = vec![u64::MAX; types.keys.len()];
        for (key, value) in &definition.state {
            types.add_least(key.value.as_str(), value.value.as_array().map_or(0, Vec::len) as u64);
        }
        types.losses = vec![None; types.keys.len()];
        for (key, value) in &definition.state {
            types.add_value(key.value.as_str(), Some(&value.value));
        }
        for node in &definition.nodes {
            for assignment in node.assign() {
                let value = match &assignment.value.kind {
                    TermKind::Literal(value) => Some(value),
                    _ => None,
                };
                types.add_value(assignment.key.value.as_str(), value);
                types.add_least(assignment.key.value.as_str(), least_of_term(definition, &assignment.value));
            }
            if let NodeKind::Foreach(Foreach { collect: Some(key), over, .. }) = &node.kind {
                types.add_value(key.value.as_str(), None);
                types.add_least(key.value.as_str(), least_of_term(definition, over));
            }
        }
        types
    }

    fn add(&mut self, name: &str, ty: Type, initial: Option<Value>) {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_owned(), self.keys.len());
            self.keys.push(Key { name: name.to_owned(), ty, initial });
        }
    }

    /// Adds how many elements a list that a key can have has at least.
    fn add_least(&mut self, name: &str, least: u64) {
        if let Some(key) = self.key(name) {
            self.least[key] = self.least[key].min(least);
        }
    }

    /// Adds a value that a key can have; `None` for one that is not known, or too large to look at.
    fn add_value(&mut self, name: &str, value: Option<&Value>) {
        const MOST_VALUES: usize = 32;
        let Some(values) = self.key(name).map(|key| &mut self.values[key]) else { return };
        let value = value.filter(|value| !value.is_array() && !value.is_object());
        match (value, values.as_mut().filter(|values| values.len() < MOST_VALUES)) {
            (Some(value), Some(values)) if !values.contains(value) => values.push(value.clone()),
            (Some(_), Some(_)) => {}
            _ => *values = None,
        }
    }

    /// Returns an input, where the graph declares its inputs and it is one of them.
    pub(crate) fn input(&self, name: &str) -> Option<&Field> {
        let Kind::Object(fields) = &self.inputs.kind else { return None };
        fields.get(*self.inputs_by_name.get(name)?)
    }

    /// Returns the index of a key.
    pub(crate) fn key(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

fn field(name: &str, ty: Type) -> Field {
    Field { name: name.into(), ty, default: None, description: None }
}

/// Returns what `state._last_error` is.
pub(crate) fn last_error() -> Type {
    let text = |name| field(name, Type::of(Kind::String));
    Type::of(Kind::Object(vec![text("node"), text("error")])).or_null()
}

/// Returns what `state._retries` is (R136).
pub(crate) fn retries() -> Type {
    Type::of(Kind::Map(Box::new(Type::of(Kind::Integer))))
}

/// Returns what `result` is in the edges of a node that may have failed: the tool's result, or status and error (R125).
pub(crate) fn or_failure(result: &Type) -> Type {
    let text = |name| field(name, Type::of(Kind::String));
    let failure = Type::of(Kind::Object(vec![text("status"), text("error")]));
    match &result.kind {
        Kind::Object(_) => result.clone().join(failure),
        _ => Type::any_of(result.has_secret()),
    }
}

/// Returns what the run of a graph is for the node that nests it, where the graph returns `output` (R188).
pub(crate) fn run_of(output: &Type) -> Type {
    let (any, text) = (|| Box::new(Type::any()), || Type::of(Kind::String));
    Type::of(Kind::Object(vec![
        field("success", Type::of(Kind::Boolean)),
        field("status", text()),
        field("graph_run_id", text()),
        field("steps", Type::of(Kind::Integer)),
        field("state", Type::of(Kind::Map(any()))),
        field("output", output.clone().or_null()),
        field("error", text().or_null()),
        field("node", text().or_null()),
        field("errors", Type::of(Kind::List(any())).or_null()),
    ]))
}

/// Returns what a foreach collects: a list with a result an item. Where failures do not end the run, one that failed leaves
/// its failure in its place (R113).
pub(crate) fn collected(facts: &Facts<'_>, node: usize) -> Type {
    let NodeKind::Foreach(each) = &facts.definition.nodes[node].kind else { return Type::any() };
    let result = &facts.tool(&each.call).result;
    let failures_stay = facts.definition.settings.on_error == OnError::Continue && each.on_error.is_none();
    let element = match each.call.id() {
        // Of a thread that goes on by itself only its id is collected (R108).
        Some(id) if id.as_str() == THREAD_DIRECTIVE => Type::any(),
        _ if failures_stay => or_failure(result),
        _ => result.clone(),
    };
    Type::of(Kind::List(Box::new(element)))
}

/// Something that writes a key: a node and its assignment, or its `collect`.
type Writer = (usize, Option<usize>);

/// Learns the types of keys until nothing new is learned. Types only grow, and not beyond `any`, so this ends.
///
/// The writers are looked at in the order of the file, again and again; from the second time on, only those that read a key
/// whose type has grown.
pub(crate) fn infer(facts: &mut Facts<'_>) {
    let (mut writers, mut readers): (Vec<Writer>, Vec<Vec<usize>>) =
        (Vec::new(), vec![Vec::new(); facts.types.keys.len()]);
    // Those that read the state as a whole: they take of it whether there is a secret in it.
    let mut readers_of_all = Vec::new();
    for (at, node) in facts.definition.nodes.iter().enumerate() {
        let over = match &node.kind {
            NodeKind::Foreach(each) => Some(&each.over),
            _ => None,
        };
        for (index, assignment) in node.assign().iter().enumerate() {
            for term in std::iter::once(&assignment.value).chain(over) {
                term.templates(&mut |_, template, _| {
                    let paths = template.expressions().flat_map(|expression| &expression.paths);
                    for path in paths.filter(|path| path.root == Root::State) {
                        match path.segments.first() {
                            Some(name) => {
                                facts.types.key(name).into_iter().for_each(|key| readers[key].push(writers.len()));
                            }
                            None => readers_of_all.push(writers.len()),
                        }
                    }
                });
            }
            writers.push((at, Some(index)));
        }
        if matches!(&node.kind, NodeKind::Foreach(Foreach { collect: Some(_), .. })) {
            writers.push((at, None));
        }
    }
    let (mut now, mut later): (BTreeSet<usize>, BTreeSet<usize>) = ((0..writers.len()).collect(), BTreeSet::new());
    loop {
        while let Some(writer) = now.pop_first() {
            let Some((key, had_secret)) = learn_from(facts, writers[writer]) else { continue };
            let gained_secret = !had_secret && facts.types.keys[key].ty.has_secret();
            let of_all = readers_of_all.iter().filter(|_| gained_secret);
            for &reader in readers[key].iter().chain(of_all) {
                if reader > writer {
                    now.insert(reader)
                } else {
                    later.insert(reader)
                };
            }
        }
        if later.is_empty() {
            return;
        }
        std::mem::swap(&mut now, &mut later);
    }
}

/// Learns what one writer says; returns the key and whether that had a secret before, if its type has grown.
fn learn_from(facts: &mut Facts<'_>, (at, index): Writer) -> Option<(usize, bool)> {
    let definition = facts.definition;
    let node = &definition.nodes[at];
    let assignment = index.map(|index| (index, &node.assign()[index]));
    let (name, span, types) = match (assignment, &node.kind) {
        (Some((index, assignment)), _) => {
            let types = alternatives(facts, at, Site::Assign(index), &assignment.value);
            (assignment.key.value.as_str(), &assignment.value.span, types)
        }
        (None, NodeKind::Foreach(Foreach { collect: Some(key), .. })) => {
            (key.value.as_str(), &key.span, vec![collected(facts, at)])
        }
        (None, _) => return None,
    };
    let over = match &node.kind {
        NodeKind::Foreach(each) => Some((Site::Over, &each.over)),
        _ => None,
    };
    let value = assignment.map(|(index, assignment)| (Site::Assign(index), &assignment.value));
    for (site, term) in value.into_iter().chain(over) {
        let mut losses = Vec::new();
        widened::inside(facts, (at, site), term, &mut losses);
        if let Some(loss) = losses.into_iter().next() {
            facts.types.inner_losses.entry(term.span.start).or_insert(loss);
        }
    }
    let key = facts.types.key(name)?;
    let had_secret = facts.types.keys[key].ty.has_secret();
    let mut has_grown = false;
    for ty in types {
        has_grown |= learn(facts, name, ty, span);
    }
    has_grown.then_some((key, had_secret))
}

/// Returns how many elements the list at a path has at least.
pub(crate) fn least_items(facts: &Facts<'_>, node: usize, site: Site, list: &Path) -> u64 {
    match (list.root, list.segments.as_slice()) {
        (Root::Inputs, _) => least_by_schema(facts.definition, list),
        (Root::State, [key]) => facts.types.key(key).map_or(0, |key| facts.types.least[key]),
        (Root::Local, [_, rest @ ..]) if site == Site::Item => {
            let NodeKind::Foreach(each) = &facts.definition.nodes[node].kind else { return 0 };
            match (&each.over.kind, rest) {
                (TermKind::List(list), []) => {
                    list.iter().map(|item| least_of_term(facts.definition, item)).min().unwrap_or(0)
                }
                (TermKind::Literal(Value::Array(list)), []) => {
                    list.iter().map(|item| item.as_array().map_or(0, Vec::len) as u64).min().unwrap_or(0)
                }
                (TermKind::Template { template: Template::Whole(over), .. }, _) => match over.paths.as_slice() {
                    [over] if over.root == Root::Inputs => {
                        let segments =
                            over.segments.iter().cloned().chain(["0".to_owned()]).chain(rest.iter().cloned());
                        least_by_schema(facts.definition, &Path { root: Root::Inputs, segments: segments.collect() })
                    }
                    _ => 0,
                },
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// Returns how many elements a list has at least that a term makes.
fn least_of_term(definition: &Definition, term: &Term) -> u64 {
    match &term.kind {
        TermKind::List(list) => list.len() as u64,
        TermKind::Literal(Value::Array(list)) => list.len() as u64,
        TermKind::Template { template: Template::Whole(expression), .. } => match expression.paths.as_slice() {
            [path] if path.root == Root::Inputs => least_by_schema(definition, path),
            _ => 0,
        },
        _ => 0,
    }
}

/// Returns how many elements the inputs' schema asks for in the list at a path.
fn least_by_schema(definition: &Definition, path: &Path) -> u64 {
    let mut schema = definition.inputs.as_ref();
    for segment in &path.segments {
        schema = schema.and_then(|schema| match &schema.kind {
            SchemaKind::Object(_) => definition.property(schema, segment),
            SchemaKind::List(items) if segment.parse::<i64>().is_ok() => Some(items),
            SchemaKind::Map(values) => Some(values),
            _ => None,
        });
    }
    let rule = schema.and_then(|schema| schema.rules.iter().find(|rule| rule.keyword == "minItems"));
    rule.and_then(|rule| rule.value.as_u64()).unwrap_or(0)
}

/// Adds what a key may be; says whether that is new.
fn learn(facts: &mut Facts<'_>, key: &str, ty: Type, span: &Span) -> bool {
    let Some(key) = facts.types.key(key) else { return false };
    let known = &facts.types.keys[key].ty;
    let joined = known.clone().join(ty.clone());
    let is_new = joined != *known;
    if is_new && facts.types.losses[key].is_none() && loses(known, &ty, &joined) {
        facts.types.losses[key] = Some((span.clone(), ty, known.clone()));
    }
    facts.types.keys[key].ty = joined;
    is_new
}

/// Returns the types that a value may have: of `a || b`, that of each path by itself.
fn alternatives(facts: &Facts<'_>, node: usize, site: Site, term: &Term) -> Vec<Type> {
    let TermKind::Template { template: Template::Whole(expression), .. } = &term.kind else {
        return vec![type_of_term(facts, node, site, term)];
    };
    let mut types = Vec::new();
    for path in &expression.paths {
        let ty = facts.type_of_path(node, site, path);
        let is_last = !ty.nullable;
        types.push(ty.not_null());
        if is_last {
            return types;
        }
    }
    types.push(Type::null());
    types
}

/// Returns what is known of a value with templates.
pub(crate) fn type_of_term(facts: &Facts<'_>, node: usize, site: Site, term: &Term) -> Type {
    match &term.kind {
        TermKind::Unreadable => Type::any(),
        TermKind::Literal(value) => Type::of_value(value),
        TermKind::Template { template: Template::Whole(expression), .. } => {
            let mut ty = Type::null();
            for path in &expression.paths {
                let one = facts.type_of_path(node, site, path);
                let last = !one.nullable;
                ty = ty.not_null().join(one);
                if last {
                    return ty.not_null();
                }
            }
            match facts.is_one_something(node, site, &expression.paths) {
                true => ty.not_null(),
                false => ty.or_null(),
            }
        }
        TermKind::Template { template, .. } => {
            let mut paths = template.expressions().flat_map(|expression| &expression.paths);
            // A text with a secret in it is one.
            let secret = paths.any(|path| facts.type_of_path(node, site, path).has_secret());
            Type { secret, ..Type::of(Kind::String) }
        }
        TermKind::List(list) => {
            Type::of(Kind::List(Box::new(join_all(list.iter().map(|term| type_of_term(facts, node, site, term))))))
        }
        TermKind::Object(fields) => {
            let field = |(key, term): &(crate::definition::Spanned<String>, Term)| {
                field(&key.value, type_of_term(facts, node, site, term))
            };
            Type::of(Kind::Object(fields.iter().map(field).collect()))
        }
    }
}

/// Returns the nodes at which a run can end by itself, each with what it returns there. That a node has conditions is not
/// enough: they must leave a case open.
pub(crate) fn exits(facts: &Facts<'_>, web: &Web) -> Vec<Exit> {
    if returned_keys(facts, web) > MOST_RETURNED {
        return Vec::new();
    }
    let ends = (0..facts.definition.nodes.len()).filter(|&at| web.ends[at]);
    let exit = |at: usize| Exit { node: facts.definition.nodes[at].name.to_string(), ty: returned(facts, at) };
    ends.map(exit).collect()
}

/// How many keys the ends of a graph may return together: each end that returns the state has a type of all of them.
pub(crate) const MOST_RETURNED: usize = 500_000;

/// Returns how many keys the ends of a graph return together, where that is the state.
pub(crate) fn returned_keys(facts: &Facts<'_>, web: &Web) -> usize {
    let returns_state = |node: &NodeDefinition| !matches!(&node.kind, NodeKind::Return(Return { output: Some(_) }));
    let ends =
        facts.definition.nodes.iter().zip(&web.ends).filter(|(node, ends)| **ends && returns_state(node)).count();
    ends.saturating_mul(facts.types.keys.len())
}

/// Returns what a run returns, wherever it ends.
pub(crate) fn output(facts: &Facts<'_>, exits: &[Exit]) -> Type {
    let mut ends: Vec<Type> = exits.iter().map(|exit| exit.ty.clone()).collect();
    if facts.may_end_anywhere() {
        // The first node is always visited, before any other the steps may have run out.
        let mut entered = vec![false; facts.definition.nodes.len()];
        for at in 0..entered.len() {
            facts.successors(at).chain(facts.error_successor(at)).for_each(|next| entered[next] = true);
        }
        let entered = (0..entered.len()).filter(|&at| entered[at] && facts.flow.is_reached(at));
        let entered: Vec<usize> = entered.collect();
        if entered.len().saturating_mul(facts.types.keys.len()) > MOST_RETURNED {
            return Type::any_of(facts.types.keys.iter().any(|key| key.ty.has_secret()));
        }
        ends.extend(entered.into_iter().map(|at| state(facts, at, Site::Params)));
    }
    let is_object = |ty: &Type| matches!(ty.kind, Kind::Object(_)) && !ty.nullable;
    if !ends.is_empty() && ends.iter().all(is_object) {
        join_all(ends)
    } else {
        Type::any_of(ends.iter().any(Type::has_secret))
    }
}

/// Returns what a run returns that ends at a node: the output that the node declares, or else the state.
fn returned(facts: &Facts<'_>, at: usize) -> Type {
    match &facts.definition.nodes[at].kind {
        NodeKind::Return(Return { output: Some(term) }) => type_of_term(facts, at, Site::Output, term),
        _ => state(facts, at, Site::Next),
    }
}

/// Returns the state at a place as an object: keys that are set on every way there are plain.
fn state(facts: &Facts<'_>, at: usize, site: Site) -> Type {
    let key = |key: &Key| field(&key.name, facts.type_of_key(at, site, &key.name));
    Type::of(Kind::Object(facts.types.keys.iter().map(key).collect()))
}

/// Whether a value is a text that must be one of an enumeration's.
pub(crate) fn is_member(value: &Value, texts: &[String]) -> bool {
    value.as_str().is_some_and(|text| texts.iter().any(|member| member == text))
}

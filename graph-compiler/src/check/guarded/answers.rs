//! The answers to an interrupt that lead to a guarded call.
//!
//! An approval must be able to refuse: for any of the other values that the edges of the interrupt compare, some answer does not lead
//! to the call. So one answer of each kind that the comparisons of the graph tell apart is made, and followed: along the edges of the
//! interrupt in each case of the other values, and then along all edges, except where a condition reads a key that the interrupt has
//! written a part of the answer to.
//!
//! ```yaml
//! ask: { type: interrupt, …, result_schema: { enum: [yes_, no_] }, assign: { ok: "${result}" }, next: log }
//! log: { type: gate, next: judge }
//! judge: { type: gate, next: [{ to: pay, when: { path: state.ok, value: yes_ } }, { to: done }] }
//! ```
//!
//! `yes_` leads to `pay`, and `no_` does not: at `judge`, `state.ok` is known to be the answer, since no node writes it on the way.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use graph_definition::definition::{
    EdgeDefinition, RouteDefinition, SchemaKind, TermDefinition, TermKind, TestDefinition, ValueSchema, compiled,
};
use graph_definition::hash::{HashMap, HashSet};
use graph_model::condition::Condition;
use graph_model::path::{Path, Root};
use graph_model::program::OnNoMatch;
use graph_model::template::Template;
use graph_model::value::{AsView, Map, Value, View};

use super::paths::{GraphPaths, has_each_case};
use crate::analysis::coverage::Table;
use crate::analysis::coverage::domain::Decision;

/// The most kinds of answers that are followed.
const MOST_ANSWERS: usize = 64;
/// The most cases of other values in which the edges of an interrupt are tried.
const MOST_CASES: usize = 4_096;
/// The most keys with a part of the answer that are followed.
const MOST_KEPT: usize = 16;
/// A text that no graph compares with.
const OTHER_TEXT: &str = "\u{2026} another text";

/// A key that an interrupt writes a part of its answer to.
struct KeptPart<'d> {
    key: &'d str,
    part: Vec<String>,
}

/// Where the answers to an interrupt lead.
pub(super) struct Answers<'a, 'd> {
    paths: &'a GraphPaths<'a, 'd>,
    interrupt: usize,
    /// One of each kind of answers.
    pub(super) values: Vec<Value>,
    kept: Vec<KeptPart<'d>>,
    /// For each node, a bit for each of these keys that it, or a node of another branch meanwhile, may write.
    written: Vec<u64>,
    /// For each case of the other values, the nodes that each answer leads to.
    cases: Vec<Vec<Vec<usize>>>,
    /// The nodes that an answer leads to from a node. Without kept keys, they do not depend on the answer.
    reached: RefCell<HashMap<(usize, usize), ReachedNodes>>,
}

/// Whether each node can be reached.
type ReachedNodes = Rc<Vec<bool>>;

/// A part of an answer, and a value that it is compared with.
type ComparedPart = (Vec<String>, Value);

impl<'a, 'd> Answers<'a, 'd> {
    pub(super) fn new(paths: &'a GraphPaths<'a, 'd>, interrupt: usize) -> Self {
        let kept = kept(paths, interrupt);
        let written = written(paths, interrupt, &kept);
        let mut answers = Self {
            paths,
            interrupt,
            values: Vec::new(),
            kept,
            written,
            cases: Vec::new(),
            reached: RefCell::default(),
        };
        let compared = answers.compared();
        let schema = paths.node(interrupt).ask().map(|ask| &ask.schema);
        let values = schema.map(|schema| kinds_of(schema, &compared)).unwrap_or_default();
        let fits =
            |value: &Value| schema.is_some_and(|schema| schema.accepts(value) && schema.broken_by(value).is_none());
        answers.values = values.into_iter().filter(fits).take(MOST_ANSWERS).collect();
        answers.cases = answers.leads();
        answers
    }

    /// Whether some answer does not lead to a call, whatever the other values are.
    pub(super) fn decide(&self, call: usize) -> bool {
        let refuses = |case: &Vec<Vec<usize>>| (0..case.len()).any(|answer| !self.leads_to(case, answer, call));
        !self.cases.is_empty() && self.cases.iter().all(refuses)
    }

    /// Whether some answer leads to a call only by an answer to one of these interrupts, whatever the other values are.
    pub(super) fn decide_with(&self, others: &BTreeSet<usize>, call: usize) -> bool {
        let leads = |answer: usize, node: usize| self.reached_without(others, answer, node)[call];
        let refuses = |case: &Vec<Vec<usize>>| (0..case.len()).any(|at| !case[at].iter().any(|&node| leads(at, node)));
        !self.cases.is_empty() && self.cases.iter().all(refuses)
    }

    /// Returns the answers that lead to a call, for some of the other values.
    pub(super) fn approving(&self, call: usize) -> impl Iterator<Item = &Value> {
        let answers = self.values.iter().enumerate();
        let leads = move |answer: usize| self.cases.iter().any(|case| self.leads_to(case, answer, call));
        answers.filter(move |(answer, _)| leads(*answer)).map(|(_, value)| value)
    }

    /// Returns the answers that lead to a call, each as the parts of it that the graph compares.
    pub(super) fn shown(&self, call: usize) -> Vec<String> {
        let mut parts: Vec<Vec<String>> = Vec::new();
        for (part, _) in self.compared() {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        let mut shown: Vec<String> = Vec::new();
        for answer in self.approving(call) {
            let of_part = |part: &Vec<String>| part.iter().fold(answer.view(), |view, name| view.step(name));
            let text = match parts.as_slice() {
                [] => answer.to_string(),
                [part] => of_part(part).to_value().to_string(),
                parts => {
                    let each = parts.iter().map(|part| format!("{}: {}", part.join("."), of_part(part).to_value()));
                    each.collect::<Vec<_>>().join(", ")
                }
            };
            if !shown.contains(&text) {
                shown.push(text);
            }
        }
        shown
    }

    fn leads_to(&self, case: &[Vec<usize>], answer: usize, call: usize) -> bool {
        case[answer].iter().any(|&node| self.reached(answer, node)[call])
    }

    /// Returns the part of the answer that a path leads to, given the kept keys that still have it.
    fn part_of_answer(&self, path: &Path, at_interrupt: bool, kept: u64) -> Option<Vec<String>> {
        match (path.root, path.segments.split_first()) {
            (Root::Result, _) if at_interrupt => Some(path.segments.clone()),
            (Root::State, Some((key, rest))) => {
                let place = self.kept.iter().position(|part| part.key == key.as_str())?;
                let part = &self.kept[place].part;
                (kept >> place & 1 == 1).then(|| part.iter().chain(rest).cloned().collect())
            }
            _ => None,
        }
    }

    /// Returns the value at a path that is a part of the answer. A part without a value leaves its key as it was.
    fn known(&self, answer: &Value, path: &Path, at_interrupt: bool, kept: u64) -> Option<Value> {
        let part = self.part_of_answer(path, at_interrupt, kept)?;
        let value = part.iter().fold(answer.view(), |view, name| view.step(name)).to_value();
        (!value.is_null() || path.root == Root::Result).then_some(value)
    }

    fn all_kept(&self) -> u64 {
        (1 << self.kept.len()) - 1
    }

    /// Returns the values that the graph compares parts of the answer with.
    fn compared(&self) -> Vec<(Vec<String>, Value)> {
        let mut compared = Vec::new();
        for (at, node) in self.paths.nodes().iter().enumerate() {
            let part = |path: &Path| self.part_of_answer(path, at == self.interrupt, self.all_kept());
            match node.next() {
                RouteDefinition::First(list) | RouteDefinition::All(list) => list.edges.iter().for_each(|edge| {
                    edge.when.tests(&mut |test| {
                        let Some(part) = part(&test.path.value) else { return };
                        match &test.value.value {
                            Value::Array(list) => {
                                list.iter().for_each(|value| compared.push((part.clone(), value.clone())));
                            }
                            value => compared.push((part, value.clone())),
                        }
                    });
                }),
                RouteDefinition::By(by) => {
                    let Some(part) = part(&by.by.value) else { continue };
                    let words = by.to.iter().map(|(word, _)| (part.clone(), Value::from(word.value.as_str())));
                    compared.extend(words);
                }
                RouteDefinition::End | RouteDefinition::To(_) | RouteDefinition::Each(_) => {}
            }
        }
        compared
    }

    /// Returns, for each case of the other values, the nodes that each answer leads to from the interrupt.
    fn leads(&self) -> Vec<Vec<Vec<usize>>> {
        let each =
            |leads: &dyn Fn(&Value) -> Vec<usize>| -> Vec<Vec<usize>> { self.values.iter().map(leads).collect() };
        if self.values.is_empty() {
            return Vec::new();
        }
        let at = self.interrupt;
        match self.paths.node(at).next() {
            RouteDefinition::First(list) => {
                let analysis = self.paths.analysis;
                let coverage = analysis.coverage[at].as_ref();
                let table = coverage.filter(|one| has_each_case(analysis, at, one)).map(|coverage| &coverage.table);
                if let Some(cases) = table.and_then(|table| self.cases_of(table)) {
                    let table = table.expect("it has cases");
                    let case = |case: &Vec<usize>| each(&|answer| self.followed(&list.edges, table, case, answer));
                    return cases.iter().map(case).collect();
                }
                vec![each(&|answer| self.after(at, answer, self.all_kept()))]
            }
            RouteDefinition::By(by) if self.part_of_answer(&by.by.value, true, self.all_kept()).is_none() => {
                let ends = by.to.iter().any(|(_, to)| to.is_none());
                let mut targets: Vec<Vec<usize>> = self.paths.successors(at).map(|to| vec![to]).collect();
                targets.extend(ends.then(|| self.paths.ended(at).to_vec()));
                targets.into_iter().map(|to| each(&|_| to.clone())).collect()
            }
            _ => vec![each(&|answer| self.after(at, answer, self.all_kept()))],
        }
    }

    /// Returns each case of the values that are no part of the answer, as a case of each path. `None` if there are too many.
    fn cases_of(&self, table: &Table<'_>) -> Option<Vec<Vec<usize>>> {
        let mut cases: Vec<Vec<usize>> = vec![Vec::new()];
        for (path, _, of_path) in &table.paths {
            let is_answer = self.part_of_answer(path, true, self.all_kept()).is_some();
            let count = if is_answer { 1 } else { of_path.len() };
            if count == 0 || cases.len() * count > MOST_CASES {
                return None;
            }
            let with =
                |case: &Vec<usize>| (0..count).map(|at| case.iter().copied().chain([at]).collect()).collect::<Vec<_>>();
            cases = cases.iter().flat_map(with).collect();
        }
        Some(cases)
    }

    /// Returns the nodes that an answer leads to in a case of the other values.
    fn followed(&self, edges: &[EdgeDefinition], table: &Table<'_>, case: &[usize], answer: &Value) -> Vec<usize> {
        let mut decide = |test: &usize| {
            let (test, path, outcomes) = &table.tests[*test];
            match self.known(answer, &test.path.value, true, self.all_kept()) {
                Some(value) => decided(test, value.view()).ok_or(()),
                None if self.part_of_answer(&test.path.value, true, self.all_kept()).is_some() => Err(()),
                None => match outcomes.get(case[*path]) {
                    Some(Decision::Holds) => Ok(true),
                    Some(Decision::Not) => Ok(false),
                    Some(Decision::Fails) | None => Err(()),
                },
            }
        };
        for (edge, condition) in edges.iter().zip(&table.conditions) {
            match condition.holds(&mut decide) {
                Ok(false) => {}
                Ok(true) => {
                    let target = edge.to.as_ref().and_then(|to| self.paths.analysis.model.node(to.value.as_str()));
                    return target.map_or_else(|| self.paths.ended(self.interrupt).to_vec(), |target| vec![target]);
                }
                // The node fails, or it is not known which value is compared.
                Err(()) => return self.after(self.interrupt, answer, self.all_kept()),
            }
        }
        match self.paths.analysis.model.definition.settings.on_no_match {
            OnNoMatch::Return => self.paths.ended(self.interrupt).to_vec(),
            OnNoMatch::Fail => Vec::new(),
        }
    }

    /// Returns the nodes that an answer may lead to from a node that does not fail, given the kept keys that still have it.
    fn after(&self, node: usize, answer: &Value, kept: u64) -> Vec<usize> {
        let at_interrupt = node == self.interrupt;
        let model = &self.paths.analysis.model;
        let mut after = self.paths.ended(node).to_vec();
        if model.may_skip_assign(node) {
            after.extend(self.paths.successors(node));
            return after;
        }
        let target = |name: &str| model.node(name);
        match self.paths.node(node).next() {
            RouteDefinition::First(list) => {
                for (place, edge) in list.edges.iter().enumerate() {
                    let holds = self.may_hold(&edge.when, answer, at_interrupt, kept);
                    if holds != Some(false) && self.paths.can_follow(node, place) {
                        after.extend(edge.to.as_ref().and_then(|to| target(to.value.as_str())));
                    }
                    if holds == Some(true) {
                        break;
                    }
                }
            }
            RouteDefinition::All(list) => {
                for edge in &list.edges {
                    if self.may_hold(&edge.when, answer, at_interrupt, kept) != Some(false) {
                        after.extend(edge.to.as_ref().and_then(|to| target(to.value.as_str())));
                    }
                }
            }
            RouteDefinition::By(by) => {
                let value = self.known(answer, &by.by.value, at_interrupt, kept);
                let word = match value {
                    Some(Value::String(word)) => Some(word),
                    Some(Value::Bool(value)) => Some(value.to_string()),
                    Some(Value::Null) => Some("null".to_owned()),
                    _ => None,
                };
                let place = word.and_then(|word| by.to.iter().position(|(known, _)| known.value == word));
                match place {
                    Some(place) => after.extend(by.to[place].1.as_ref().and_then(|to| target(to.value.as_str()))),
                    None => after.extend(self.paths.successors(node)),
                }
            }
            RouteDefinition::End | RouteDefinition::To(_) | RouteDefinition::Each(_) => {
                after.extend(self.paths.successors(node));
            }
        }
        after
    }

    /// Whether a condition holds; `None` if that depends on values that are not known.
    fn may_hold(
        &self,
        condition: &Condition<TestDefinition>,
        answer: &Value,
        at_interrupt: bool,
        kept: u64,
    ) -> Option<bool> {
        let each = |one: &Condition<TestDefinition>| self.may_hold(one, answer, at_interrupt, kept);
        match condition {
            Condition::Always => Some(true),
            Condition::All(all) => {
                let mut is_sure = true;
                for one in all {
                    match each(one) {
                        // A comparison before it that fails makes the node fail, and leads to no edge either.
                        Some(false) => return Some(false),
                        Some(true) => {}
                        None => is_sure = false,
                    }
                }
                is_sure.then_some(true)
            }
            Condition::Any(any) => {
                let mut is_sure = true;
                for one in any {
                    match each(one) {
                        Some(true) if is_sure => return Some(true),
                        Some(false) => {}
                        Some(true) | None => is_sure = false,
                    }
                }
                is_sure.then_some(false)
            }
            Condition::Not(inner) => each(inner).map(|holds| !holds),
            Condition::Test(test) => {
                let value = self.known(answer, &test.path.value, at_interrupt, kept)?;
                decided(test, value.view())
            }
        }
    }

    /// Returns the nodes that an answer may lead to from a node, until the interrupt asks again.
    fn reached(&self, answer: usize, from: usize) -> Rc<Vec<bool>> {
        let key = (if self.kept.is_empty() { 0 } else { answer }, from);
        if let Some(reached) = self.reached.borrow().get(&key) {
            return Rc::clone(reached);
        }
        let reached = Rc::new(self.reached_without(&BTreeSet::new(), answer, from));
        self.reached.borrow_mut().insert(key, Rc::clone(&reached));
        reached
    }

    /// Returns the nodes that an answer may lead to from a node, until this interrupt or one of these has another answer.
    fn reached_without(&self, others: &BTreeSet<usize>, answer: usize, from: usize) -> Vec<bool> {
        let value = &self.values[answer];
        let mut reached = vec![false; self.written.len()];
        let (mut seen, mut open) = (HashSet::default(), vec![(from, self.all_kept())]);
        while let Some((node, kept)) = open.pop() {
            if !seen.insert((node, kept)) {
                continue;
            }
            reached[node] = true;
            // Another answer decides about the nodes behind it. Without an answer, the interrupt approves nothing.
            if others.contains(&node) {
                let otherwise = self.paths.otherwise(node).into_iter();
                open.extend(otherwise.map(|next| (next, kept & !self.written[node])));
            } else if node != self.interrupt {
                let kept = kept & !self.written[node];
                let next = self.after(node, value, kept).into_iter().chain(self.paths.otherwise(node));
                open.extend(next.map(|next| (next, kept)));
            }
        }
        reached
    }
}

/// Decides a comparison with a value; `None` if the two cannot be compared.
fn decided(test: &TestDefinition, value: View<'_>) -> Option<bool> {
    let right = &test.value.value;
    let pattern = right.as_str().and_then(compiled);
    test.operator.holds(value, right, |text| pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))).ok()
}

/// Returns the keys that an interrupt writes a part of its answer to, and that hold this part alone.
fn kept<'d>(paths: &GraphPaths<'_, 'd>, interrupt: usize) -> Vec<KeptPart<'d>> {
    let model = &paths.analysis.model;
    let mut kept: Vec<KeptPart<'d>> = Vec::new();
    for assignment in paths.node(interrupt).assign() {
        let name = assignment.key.value.as_str();
        kept.retain(|part| part.key != name);
        let is_plain =
            model.key(name).is_some_and(|key| model.reducer(key).is_none() && model.keys[key].keep().is_none());
        if let Some(part) = part_of_result(&assignment.value)
            && is_plain
            && !model.items.shared.contains(name)
            && kept.len() < MOST_KEPT
        {
            kept.push(KeptPart { key: name, part });
        }
    }
    kept
}

/// Returns the part of the result that a term is.
fn part_of_result(term: &TermDefinition) -> Option<Vec<String>> {
    let TermKind::Template { template: Template::Whole(expression), .. } = &term.kind else { return None };
    match expression.paths.as_slice() {
        [path] if path.root == Root::Result => Some(path.segments.clone()),
        _ => None,
    }
}

/// Returns, for each node, a bit for each of these keys that the node, or one of another branch meanwhile, may write.
fn written(paths: &GraphPaths<'_, '_>, interrupt: usize, kept: &[KeptPart<'_>]) -> Vec<u64> {
    let nodes = paths.nodes();
    let mut written = vec![0; nodes.len()];
    for (place, part) in kept.iter().enumerate() {
        let writers = (0..nodes.len()).filter(|&at| nodes[at].changed().any(|key| key.value.as_str() == part.key));
        for writer in writers {
            for (node, bits) in written.iter_mut().enumerate() {
                if node == writer && node != interrupt || paths.is_meanwhile(node, writer) {
                    *bits |= 1 << place;
                }
            }
        }
    }
    written
}

/// Returns a value of each kind that these comparisons tell apart. Not all of them need fit the schema's rules.
fn kinds_of(schema: &ValueSchema, compared: &[(Vec<String>, Value)]) -> Vec<Value> {
    let mut kinds = kinds_of_kind(&schema.kind, compared);
    if schema.nullable {
        kinds.push(Value::Null);
    }
    kinds
}

fn kinds_of_kind(kind: &SchemaKind, compared: &[(Vec<String>, Value)]) -> Vec<Value> {
    let here = || compared.iter().filter(|(part, _)| part.is_empty()).map(|(_, value)| value);
    let texts = || {
        let named = here().filter(|value| value.is_string()).cloned();
        named.chain([OTHER_TEXT, "", "0"].map(Value::from)).collect::<Vec<_>>()
    };
    let numbers = |is_whole: bool| {
        let around = |value: &Value| -> Vec<Value> {
            match (value.as_i64(), value.as_f64()) {
                (Some(number), _) => {
                    let around = [number, number.saturating_sub(1), number.saturating_add(1)];
                    around.map(Value::from).to_vec()
                }
                (None, Some(number)) if is_whole => {
                    [number.floor(), number.ceil()].map(|one| Value::from(one as i64)).to_vec()
                }
                (None, Some(number)) => [number, number - 1.0, number + 1.0].map(Value::from).to_vec(),
                _ => Vec::new(),
            }
        };
        here().flat_map(around).chain([0, 1].map(Value::from)).collect::<Vec<_>>()
    };
    match kind {
        SchemaKind::Null => vec![Value::Null],
        SchemaKind::Boolean => [true, false].map(Value::from).to_vec(),
        SchemaKind::Enum(words) => words.iter().map(|word| Value::from(word.as_str())).collect(),
        SchemaKind::String => texts(),
        SchemaKind::Integer => numbers(true),
        SchemaKind::Number => numbers(false),
        SchemaKind::List(items) => {
            let elements = kinds_of(items, &inside(compared, None));
            let lists =
                elements.into_iter().flat_map(|element| [vec![element.clone()], vec![element.clone(), element]]);
            std::iter::once(Vec::new()).chain(lists).map(Value::Array).collect()
        }
        SchemaKind::Object(properties) => {
            let mut objects = vec![Map::new()];
            for property in properties {
                let (name, schema) = (property.name.value.as_str(), &property.schema);
                let inside = inside(compared, Some(name));
                if inside.is_empty() && !property.required {
                    continue;
                }
                let mut kinds = kinds_of(schema, &inside);
                if inside.is_empty() {
                    kinds.retain(|value| schema.accepts(value) && schema.broken_by(value).is_none());
                    kinds.truncate(1);
                }
                objects = with_field(&objects, name, &kinds, property.required);
            }
            objects.into_iter().map(Value::Object).collect()
        }
        SchemaKind::Map(values) => {
            let of = |inside: &[(Vec<String>, Value)]| kinds_of(values, inside);
            with_any_fields(compared, &of).into_iter().map(Value::Object).collect()
        }
        SchemaKind::Any => {
            let plain = here().cloned().chain([Value::Null, Value::from(true), Value::from(false), Value::from(0)]);
            let of = |inside: &[(Vec<String>, Value)]| kinds_of_kind(&SchemaKind::Any, inside);
            let objects = with_any_fields(compared, &of).into_iter().map(Value::Object);
            plain.chain(texts()).chain(objects).collect()
        }
    }
}

/// Returns the comparisons of a part of a value.
fn inside(compared: &[(Vec<String>, Value)], name: Option<&str>) -> Vec<(Vec<String>, Value)> {
    let below = compared.iter().filter_map(|(part, value)| {
        let (first, rest) = part.split_first()?;
        name.is_none_or(|name| name == first).then(|| (rest.to_vec(), value.clone()))
    });
    below.collect()
}

/// Returns these objects, each with each of these values in a field, and without the field where it may be left out.
fn with_field(
    objects: &[Map<String, Value>],
    name: &str,
    values: &[Value],
    is_required: bool,
) -> Vec<Map<String, Value>> {
    let mut with = Vec::new();
    for object in objects {
        for value in values {
            let mut object = object.clone();
            object.insert(name.to_owned(), value.clone());
            with.push(object);
        }
        if !is_required {
            with.push(object.clone());
        }
    }
    with.truncate(MOST_ANSWERS);
    with
}

/// Returns objects with each of the fields that are compared, or without.
fn with_any_fields(
    compared: &[ComparedPart],
    kinds: &dyn Fn(&[ComparedPart]) -> Vec<Value>,
) -> Vec<Map<String, Value>> {
    let mut objects = vec![Map::new()];
    let mut names: Vec<&str> = compared.iter().filter_map(|(part, _)| part.first()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        objects = with_field(&objects, name, &kinds(&inside(compared, Some(name))), false);
    }
    objects
}

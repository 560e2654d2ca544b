//! Guarded calls use no value that somebody else chose and nobody approved.
//!
//! A contract with `x-guarded: true` says that a call of its tool needs the approval of a person if its arguments are untrusted. The
//! rule follows each argument back along every path, through the keys of the state and the elements of lists, to where its value comes
//! from. A path is fine if it comes by an interrupt that shows the value, or if the author of the graph wrote the value.

use std::collections::VecDeque;

use graph_definition::definition::{
    CallDefinition, ContractKind, NodeDefinition, RouteDefinition, SchemaKind, TermDefinition, TermKind, ValueSchema,
    locate,
};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::HashSet;
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::program::{LAST_ERROR, RETRIES};
use graph_model::reducer::Reducer;
use graph_model::template::Template;

use super::sinks::may_be;
use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::{Type, TypeKind};

/// The part of a path that stands for any element of a list.
const ANY: &str = "*";
/// The most parts of a path that is followed. The search follows the value around a deeper one.
const MOST_PARTS: usize = 16;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let guarded: Vec<_> = analysis
        .model
        .calls()
        .map(|(caller, call)| (caller, guarded_terms(analysis, call)))
        .filter(|(_, (terms, _))| !terms.is_empty())
        .collect();
    if guarded.is_empty() || !analysis.model.is_whole() || !analysis.flow.branches().faults().is_empty() {
        return;
    }
    let sources = Sources::new(analysis);
    for (caller, (terms, whose)) in guarded {
        let (node, site) = caller.site();
        for term in terms {
            term.templates(&mut |term, template, text| {
                for expression in template.expressions() {
                    for (path, range) in expression.paths.iter().zip(&expression.ranges) {
                        let Some(found) = sources.untrusted(node, site, path) else { continue };
                        let span = locate(analysis.model.definition.source(), &term.span, text, range);
                        report(analysis, &found, (path, span), (&caller.to_string(), &whose), diagnostics);
                    }
                }
            });
        }
    }
}

/// Returns the terms of a call whose values must be trusted or approved, none if the call is not guarded; and the name of its tool.
fn guarded_terms<'d>(analysis: &Analysis<'d>, call: &'d CallDefinition) -> (Vec<&'d TermDefinition>, String) {
    let shown = call.shown().to_string();
    let tool = analysis.model.tool(call);
    if tool.contract.is_some_and(|contract| contract.guarded) || tool.graph.is_some_and(|graph| graph.is_guarded) {
        return (vec![&call.params], shown);
    }
    let mut reachable = analysis.model.items.reachable.iter().filter(|one| one.is_guarded || one.schema.has_guarded());
    if let Some((id, _)) = call.computed()
        && let Some(one) = reachable.find(|one| may_be(analysis, call, one.id.as_str()))
    {
        return (vec![id, &call.params], format!("`{}`, which {shown} may be", one.id));
    }
    let terms = match tool.graph.and_then(|graph| graph.schema.as_ref()) {
        Some(schema) if schema.has_guarded() => guarded_inputs(schema, &call.params),
        _ => Vec::new(),
    };
    (terms, shown)
}

/// Returns the parts of a graph's parameters that its inputs mark.
fn guarded_inputs<'d>(schema: &ValueSchema, params: &'d TermDefinition) -> Vec<&'d TermDefinition> {
    match (&schema.kind, &params.kind) {
        (SchemaKind::Object(properties), TermKind::Object(given)) if !schema.guarded => {
            let marked = |name: &str| {
                properties.iter().any(|property| property.name.value == name && property.schema.has_guarded())
            };
            given.iter().filter(|(key, _)| marked(&key.value)).map(|(_, term)| term).collect()
        }
        _ => vec![params],
    }
}

/// A value at a point of the graph: its source is searched for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Goal {
    path: Path,
    node: usize,
    /// How many assignments of the node were made; `None` before it does anything.
    made: Option<usize>,
    /// Whether the path has come by the guarded call itself: that visit has used the approvals before it.
    is_used: bool,
}

/// Where an untrusted value comes from.
#[derive(Debug, Clone)]
enum Provenance {
    /// An input that nobody vouches for.
    Input,
    /// The result of a node.
    Result(usize),
    /// A run that a node shares the key with, or the run around this one.
    Shared(Option<usize>),
    /// The text of a failure.
    Failure,
    /// The event of a hook.
    Event,
}

/// The reason why a guarded call may not use a value.
enum Objection {
    /// Nobody approves it on the way from its source; `idle` is an interrupt that shows it and leads to the call whatever the answer is.
    Unapproved { source: Provenance, idle: Option<usize>, is_used: bool },
    /// It is written after an interrupt has shown it, or while it does.
    Rewritten { writer: usize, interrupt: usize },
}

/// How one node leads to another.
#[derive(Clone, Copy, PartialEq)]
enum Via {
    /// By an edge: the node has done all that it does.
    Edge,
    /// By a failure, a time that is over, or a lack of branches: the node has written nothing.
    Otherwise,
}

/// Finds the sources of values.
struct Sources<'a, 'd> {
    analysis: &'a Analysis<'d>,
    /// For each node, those that lead to it.
    before: Vec<Vec<(usize, Via)>>,
    /// The interrupts that show a payload, with the nodes that paths lead to from each.
    interrupts: Vec<(usize, &'d TermDefinition, Vec<bool>)>,
}

impl<'a, 'd> Sources<'a, 'd> {
    fn new(analysis: &'a Analysis<'d>) -> Self {
        let (model, branches) = (&analysis.model, analysis.flow.branches());
        let count = model.definition.nodes.len();
        let mut before: Vec<Vec<(usize, Via)>> = vec![Vec::new(); count];
        for node in 0..count {
            let edges = model.successors(node).chain(branches.beyond(node).iter().copied());
            edges.for_each(|next| before[next].push((node, Via::Edge)));
            let failed = model.successors(node).filter(|_| model.may_skip_assign(node));
            let broken = branches.broken(node).iter().copied();
            let otherwise = model.other_successors(node).chain(broken).chain(failed);
            otherwise.for_each(|next| before[next].push((node, Via::Otherwise)));
        }
        let mut sources = Self { analysis, before, interrupts: Vec::new() };
        sources.interrupts = (0..count)
            .filter_map(|node| {
                let payload = model.definition.nodes[node].ask()?.payload.as_ref()?;
                let mut leads = vec![false; count];
                sources.onward(node).for_each(|next| sources.reach(next, None, &mut leads));
                Some((node, payload, leads))
            })
            .collect();
        sources
    }

    fn node(&self, at: usize) -> &'d NodeDefinition {
        &self.analysis.model.definition.nodes[at]
    }

    fn onward(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let branches = self.analysis.flow.branches();
        let joins = branches.beyond(node).iter().chain(branches.broken(node)).copied();
        self.analysis.model.onward(node).chain(joins)
    }

    /// Marks the nodes that paths lead to from a node, without those through `except`.
    fn reach(&self, from: usize, except: Option<usize>, reached: &mut [bool]) {
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            if Some(node) != except && !std::mem::replace(&mut reached[node], true) {
                open.extend(self.onward(node));
            }
        }
    }

    /// Whether an answer to an interrupt decides that a call is not made: it ends the run, or leads to nodes from where the call is
    /// reached only by the interrupt again.
    fn decides(&self, interrupt: usize, call: usize) -> bool {
        let model = &self.analysis.model;
        model.may_end(interrupt)
            || model.successors(interrupt).any(|next| {
                let mut reached = vec![false; self.before.len()];
                self.reach(next, Some(interrupt), &mut reached);
                !reached[call]
            })
    }

    /// Returns why a call at a node may not use the value at a path; `None` if it is trusted or approved.
    fn untrusted(&self, call: usize, site: Site, path: &Path) -> Option<Objection> {
        let unapproved = |source| Objection::Unapproved { source, idle: None, is_used: false };
        if site == Site::Hook {
            let is_trusted = match path.root {
                Root::Now | Root::Timestamp => true,
                Root::Inputs => self.is_vouched(path),
                _ => false,
            };
            return (!is_trusted).then(|| unapproved(Provenance::Event));
        }
        let mut search = Search { open: VecDeque::new(), seen: HashSet::default() };
        let own = self.node(call).each().filter(|each| {
            path.root == Root::Local && path.segments.first() == Some(&each.name.value) && site == Site::Item
        });
        match own {
            Some(each) => search.read(&each.over, &of_element(path), (call, None, false)),
            None => search.push(path.clone(), (call, None, false)),
        }
        let mut idle = None;
        while let Some(goal) = search.open.pop_front() {
            match self.follow(&goal, call, &mut search, &mut idle) {
                Err(Objection::Unapproved { source, is_used, .. }) => {
                    return Some(Objection::Unapproved { source, idle, is_used });
                }
                Err(rewritten) => return Some(rewritten),
                Ok(()) => {}
            }
        }
        None
    }

    /// Adds the goals from which the value of one comes.
    fn follow(&self, goal: &Goal, call: usize, search: &mut Search, idle: &mut Option<usize>) -> Result<(), Objection> {
        let Goal { path, node, made, is_used } = goal;
        let (node, is_used) = (*node, *is_used);
        let unapproved = |source| Objection::Unapproved { source, idle: None, is_used };
        match path.root {
            Root::Now | Root::Timestamp => return Ok(()),
            Root::Visit if path.segments.first().is_none_or(|part| part != "previous") => return Ok(()),
            Root::Visit => return self.result(node, &path.segments[1..]).map_err(unapproved),
            Root::Result => return self.result(node, &path.segments).map_err(unapproved),
            Root::Inputs if self.is_vouched(path) => return Ok(()),
            Root::State if path.segments.first().is_some_and(|key| key == RETRIES) => return Ok(()),
            Root::Inputs | Root::Local => {}
            Root::State => {
                if let Some(made) = made
                    && self.written(goal, node, *made, search)?
                {
                    return Ok(());
                }
                self.written_beside(goal, search)?;
            }
        }
        let is_entry = self.analysis.model.entries.contains(&Some(node));
        if is_entry || self.analysis.model.roots().any(|root| root == node) {
            self.begun(path, node, is_entry).map_err(unapproved)?;
        }
        for &(before, via) in &self.before[node] {
            let is_used = is_used || (before == call && via == Via::Edge);
            if via == Via::Otherwise {
                search.push(path.clone(), (before, None, is_used));
                continue;
            }
            if let RouteDefinition::Each(each) = self.node(before).next()
                && path.root == Root::Local
                && path.segments.first() == Some(&each.name.value)
                && self.analysis.model.successors(before).any(|next| next == node)
            {
                search.read(&each.over, &of_element(path), (before, Some(usize::MAX), is_used));
                continue;
            }
            let shows = |(at, payload, _): &&(usize, &TermDefinition, Vec<bool>)| *at == before && shows(payload, path);
            if !is_used && self.interrupts.iter().any(|one| shows(&one)) {
                if self.decides(before, call) {
                    // An answer may write the value itself.
                    let goal = Goal { path: path.clone(), node: before, made: Some(usize::MAX), is_used };
                    if path.root == Root::State {
                        self.written_beside(&goal, search)?;
                        self.written_by_answer(&goal, search)?;
                    }
                    continue;
                }
                *idle = Some(before);
            }
            search.push(path.clone(), (before, Some(usize::MAX), is_used));
        }
        Ok(())
    }

    /// Adds the values that the assignments of an interrupt write, which has shown the value before.
    fn written_by_answer(&self, goal: &Goal, search: &mut Search) -> Result<(), Objection> {
        for (at, assignment) in self.node(goal.node).assign().iter().enumerate() {
            if is_key(&goal.path, assignment.key.value.as_str()) {
                let rest = self.part_of_write(&goal.path);
                search.read(&assignment.value, &rest, (goal.node, Some(at), goal.is_used));
            }
        }
        Ok(())
    }

    /// Adds the values that a node has written to a key after its first `made` assignments. Returns whether the key has no value of before.
    fn written(&self, goal: &Goal, node: usize, made: usize, search: &mut Search) -> Result<bool, Objection> {
        let model = &self.analysis.model;
        let definition = self.node(node);
        let is_replaced = |name: &str| {
            goal.path.segments.first().is_some_and(|key| key == name)
                && model.key(name).is_some_and(|key| model.reducer(key).is_none())
        };
        let is_read = |name: &str| is_key(&goal.path, name);
        for (at, assignment) in definition.assign().iter().enumerate().take(made).rev() {
            let name = assignment.key.value.as_str();
            if is_read(name) {
                self.not_shown(&goal.path, node)?;
                search.read(&assignment.value, &self.part_of_write(&goal.path), (node, Some(at), goal.is_used));
                if is_replaced(name) {
                    return Ok(true);
                }
            }
        }
        if definition.reset().iter().any(|key| is_read(key.value.as_str())) {
            self.not_shown(&goal.path, node)?;
        }
        let unapproved = |source| Objection::Unapproved { source, idle: None, is_used: goal.is_used };
        if definition.share().iter().any(|key| is_read(key.value.as_str())) {
            self.not_shown(&goal.path, node)?;
            return Err(unapproved(Provenance::Shared(Some(node))));
        }
        let collected = definition.each().and_then(|each| each.collect.as_ref()).map(|key| key.value.as_str());
        if let Some(name) = collected.filter(|name| is_read(name)) {
            self.not_shown(&goal.path, node)?;
            let rest = self.part_of_write(&goal.path);
            self.collected(node, &rest).map_err(unapproved)?;
            return Ok(is_replaced(name));
        }
        Ok(false)
    }

    /// Adds the values that nodes of other branches may write to a key meanwhile.
    fn written_beside(&self, goal: &Goal, search: &mut Search) -> Result<(), Objection> {
        let branches = self.analysis.flow.branches();
        if branches.is_empty() {
            return Ok(());
        }
        let writes = |node: &NodeDefinition| {
            let mut keys = node.written_or_shared();
            keys.any(|key| is_key(&goal.path, key.value.as_str()))
        };
        let nodes = self.analysis.model.definition.nodes.iter().enumerate();
        for (writer, _) in nodes.filter(|(at, node)| writes(node) && branches.are_concurrent(goal.node, *at)) {
            let other = Goal { node: writer, ..goal.clone() };
            self.written(&other, writer, usize::MAX, search)?;
        }
        Ok(())
    }

    /// Fails if an interrupt has shown a value before a node writes it, or may show it meanwhile.
    fn not_shown(&self, path: &Path, writer: usize) -> Result<(), Objection> {
        let branches = self.analysis.flow.branches();
        let is_late = |(at, payload, leads): &&(usize, &TermDefinition, Vec<bool>)| {
            let is_before = leads[writer] || branches.are_concurrent(*at, writer);
            *at != writer && is_before && shows(payload, path)
        };
        match self.interrupts.iter().find(is_late) {
            Some((interrupt, ..)) => Err(Objection::Rewritten { writer, interrupt: *interrupt }),
            None => Ok(()),
        }
    }

    /// Returns the part of a write to a channel or another key that a part of its value comes from.
    fn part_of_write(&self, path: &Path) -> Vec<String> {
        let rest = path.segments.get(1..).unwrap_or_default();
        let model = &self.analysis.model;
        let key = path.segments.first().and_then(|name| model.key(name));
        match key.and_then(|key| model.reducer(key)) {
            Some(Reducer::Append) => rest.get(1..).unwrap_or_default().to_vec(),
            None | Some(Reducer::Last | Reducer::Merge | Reducer::Extend | Reducer::Union) => rest.to_vec(),
            Some(_) => Vec::new(),
        }
    }

    /// Judges a value with which a run begins.
    fn begun(&self, path: &Path, node: usize, is_entry: bool) -> Result<(), Provenance> {
        match path.root {
            Root::Inputs => Err(Provenance::Input),
            Root::State => match path.segments.first() {
                None => Err(Provenance::Failure),
                Some(key) if key == LAST_ERROR => Err(Provenance::Failure),
                Some(key) if self.analysis.model.items.shared.contains(key) => Err(Provenance::Shared(None)),
                Some(_) => Ok(()),
            },
            Root::Local if is_entry => {
                let model = &self.analysis.model;
                let entries = model.definition.entries.iter().zip(&model.entries).filter(|(_, at)| **at == Some(node));
                let mut elements = entries.flat_map(|(entry, _)| &entry.elements);
                match elements.all(|element| self.is_vouched(&element.path.value)) {
                    true => Ok(()),
                    false => Err(Provenance::Input),
                }
            }
            _ => Ok(()),
        }
    }

    /// Judges a part of the result of a node: of its call, of a signal, or of an answer.
    fn result(&self, node: usize, parts: &[String]) -> Result<(), Provenance> {
        let model = &self.analysis.model;
        let trusted = match self.node(node).call() {
            Some(call) => self.is_of_program(call).then(|| model.tool(call).result.clone()),
            None => model.result_at(node, Site::Next).map(std::borrow::Cow::into_owned),
        };
        self.judge(node, trusted, parts)
    }

    /// Judges a part of the list that a foreach collects.
    fn collected(&self, node: usize, parts: &[String]) -> Result<(), Provenance> {
        let is_of_program = self.node(node).call().is_some_and(|call| self.is_of_program(call));
        self.judge(node, is_of_program.then(|| self.analysis.model.collected(node)), parts)
    }

    /// A text may say anything. A number of a function of the program, or of a person, is theirs.
    fn judge(&self, node: usize, trusted: Option<Type>, parts: &[String]) -> Result<(), Provenance> {
        let step = |ty: Type, part: &String| {
            let part = if part == ANY { "0" } else { part };
            ty.step(part).unwrap_or_else(|_| Type::any())
        };
        match trusted.map(|ty| parts.iter().fold(ty, step)) {
            Some(ty) if !may_hold_text(&ty) => Ok(()),
            _ => Err(Provenance::Result(node)),
        }
    }

    /// Whether a call executes a function of the program, which a contract describes.
    fn is_of_program(&self, call: &CallDefinition) -> bool {
        let contract = self.analysis.model.tool(call).contract;
        contract.is_some_and(|contract| contract.by == ContractKind::Rust && contract.result.is_some())
    }

    /// Whether whoever starts the run vouches for an input, or the author wrote it.
    fn is_vouched(&self, path: &Path) -> bool {
        let definition = self.analysis.model.definition;
        let mut schema = definition.inputs.as_ref();
        for part in &path.segments {
            if schema.is_some_and(|schema| schema.guarded) {
                break;
            }
            schema = schema.and_then(|schema| match &schema.kind {
                SchemaKind::Object(_) => definition.property(schema, part),
                SchemaKind::Map(inner) | SchemaKind::List(inner) => Some(&**inner),
                _ => None,
            });
        }
        schema.is_some_and(|schema| schema.guarded || schema.rules.iter().any(|rule| rule.keyword == "const"))
    }
}

/// The goals of one search.
struct Search {
    open: VecDeque<Goal>,
    seen: HashSet<Goal>,
}

impl Search {
    fn push(&mut self, mut path: Path, (node, made, is_used): (usize, Option<usize>, bool)) {
        path.segments.truncate(MOST_PARTS);
        let goal = Goal { path, node, made, is_used };
        if self.seen.insert(goal.clone()) {
            self.open.push_back(goal);
        }
    }

    /// Adds the paths that a part of a term is made from.
    fn read(&mut self, term: &TermDefinition, part: &[String], at: (usize, Option<usize>, bool)) {
        match &term.kind {
            TermKind::Unreadable | TermKind::Literal(_) => {}
            TermKind::Template { template: Template::Whole(expression), .. } => {
                for path in &expression.paths {
                    let mut path = path.clone();
                    path.segments.extend_from_slice(part);
                    self.push(path, at);
                }
            }
            TermKind::Template { template, .. } => {
                template.expressions().flat_map(|one| &one.paths).for_each(|path| self.push(path.clone(), at));
            }
            TermKind::List(list) => {
                let part = part.get(1..).unwrap_or_default();
                list.iter().for_each(|term| self.read(term, part, at));
            }
            TermKind::Object(fields) => match part.split_first() {
                Some((name, part)) if name != ANY => {
                    let field = fields.iter().find(|(key, _)| key.value == *name);
                    field.into_iter().for_each(|(_, term)| self.read(term, part, at));
                }
                _ => fields.iter().for_each(|(_, term)| self.read(term, &[], at)),
            },
        }
    }
}

/// Returns the part of a list that a path from its element leads to.
fn of_element(path: &Path) -> Vec<String> {
    std::iter::once(ANY.to_owned()).chain(path.segments.iter().skip(1).cloned()).collect()
}

/// Whether a path leads into a key of the state, or to all keys.
fn is_key(path: &Path, name: &str) -> bool {
    path.root == Root::State && path.segments.first().is_none_or(|key| key == name)
}

/// Whether a payload shows the value at a path, by itself or as a part of a value. A value inside of a text does not count: its
/// text could pretend to be another one.
fn shows(payload: &TermDefinition, path: &Path) -> bool {
    match &payload.kind {
        TermKind::Template { template: Template::Whole(expression), .. } => match expression.paths.as_slice() {
            [shown] => shown.root == path.root && path.segments.starts_with(&shown.segments),
            _ => false,
        },
        TermKind::List(list) => list.iter().any(|term| shows(term, path)),
        TermKind::Object(fields) => fields.iter().any(|(_, term)| shows(term, path)),
        TermKind::Unreadable | TermKind::Literal(_) | TermKind::Template { .. } => false,
    }
}

/// Whether a value of this type may be or contain a text that its author did not choose.
fn may_hold_text(ty: &Type) -> bool {
    match &ty.kind {
        TypeKind::Never | TypeKind::Boolean | TypeKind::Integer | TypeKind::Number | TypeKind::Enum(_) => false,
        TypeKind::List(inner) => may_hold_text(inner),
        TypeKind::Object(fields) => fields.iter().any(|field| may_hold_text(&field.ty)),
        // The names in a map are texts too.
        TypeKind::String | TypeKind::Map(_) | TypeKind::Any => true,
    }
}

fn report(
    analysis: &Analysis<'_>,
    found: &Objection,
    (path, span): (&Path, Span),
    (caller, whose): (&str, &str),
    diagnostics: &mut Diagnostics,
) {
    let model = &analysis.model;
    let name = |at: usize| &model.definition.nodes[at].name;
    let place = model.place(&span);
    match found {
        Objection::Rewritten { writer, interrupt } => {
            let (writer, interrupt) = (name(*writer), name(*interrupt));
            let message = format!(
                "{caller} gives `{path}` to the guarded call of {whose}, but node `{writer}` may write the value after the \
                 interrupt `{interrupt}` has shown it"
            );
            diagnostics
                .error(code::REWRITTEN, place, message)
                .label("may differ from what was approved")
                .related(model.place(&writer.span), "it is written here")
                .related(model.place(&interrupt.span), "it is shown here")
                .help("write the value before the interrupt, or keep another value in a key of its own");
        }
        Objection::Unapproved { source, idle, is_used } => {
            let (from, at) = match source {
                Provenance::Input => ("an input that nobody vouches for".to_owned(), None),
                Provenance::Result(at) => (format!("the result of node `{}`", name(*at)), Some(*at)),
                Provenance::Shared(Some(at)) => {
                    (format!("the run that node `{}` shares the key with", name(*at)), Some(*at))
                }
                Provenance::Shared(None) => ("a graph that shares the key".to_owned(), None),
                Provenance::Failure => ("the text of a failure".to_owned(), None),
                Provenance::Event => ("the event of a hook".to_owned(), None),
            };
            let message =
                format!("{caller} gives `{path}` to the guarded call of {whose}, and no person approves the value");
            let diagnostic = diagnostics.error(code::UNAPPROVED, place, message);
            diagnostic.label(format!("comes from {from}"));
            if let Some(at) = at {
                diagnostic.related(model.place(&name(at).span), "it comes from here");
            }
            if let Some(idle) = idle {
                diagnostic.note(format!("each answer to the interrupt `{}` leads to the call", name(*idle)));
            } else if *is_used {
                diagnostic.note("the call may be made again with what was approved once");
            }
            diagnostic.help(match source {
                Provenance::Event => "make the call in a node, behind an interrupt that shows its arguments".to_owned(),
                Provenance::Input => format!(
                    "show `${{{path}}}` in the payload of an interrupt on each path to the node; or mark the input with \
                     `x-guarded: true` if the caller of the graph vouches for it"
                ),
                _ => format!(
                    "show `${{{path}}}` in the payload of an interrupt on each path to the node, and come to the node only \
                     where the answer says so"
                ),
            });
        }
    }
}

#[cfg(test)]
mod tests;

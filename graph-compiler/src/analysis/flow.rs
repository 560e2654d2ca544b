//! The facts that are sure before each node: the state keys that are set, and the paths that lead to a value, whichever
//! way the run came.
//!
//! Where paths meet, a fact is sure if it is sure on all of them. At a node that waits for branches, the facts at the
//! end of a branch that surely begins are sure too, since all such branches have finished. A fact that another branch
//! may make false is not sure in any of them; a key that is set stays set.

mod later;

use std::borrow::Cow;
use std::collections::VecDeque;

use graph_definition::definition::{
    Assignment, EdgeDefinition, EdgeList, RouteDefinition, Spanned, TermDefinition, TermKind,
};
use graph_definition::hash::{HashMap, HashSet};
use graph_model::condition::Condition;
use graph_model::name::StateKey;
use graph_model::path::{Path, Root};
use graph_model::reducer::Reducer;
use graph_model::template::Template;

use super::branches::Branches;
use super::cases;
use super::guards;
use super::joins::{BranchEnds, JoinedBranch, Joins, NodeJoin};
use super::model::Model;
use super::reads::{ProgramPoint, Site};
use super::set::Set;
use super::words;
use crate::types::TypeKind;

/// The segment after a path that marks the fact that the list there is not empty. It cannot occur in a path of a graph.
const NOT_EMPTY: &str = "\0";

/// How many facts about copies are tracked at most; further copies prove nothing.
const MOST_COPIES: usize = 10_000;

/// How many copies of one value in one node are tracked.
const MOST_COPIES_OF_ONE: usize = 16;

/// Up to how many edges of a node are analysed together: each is compared with all edges before it.
const MOST_EDGES: usize = 200;

/// The result of a forward analysis over the graph: an intersection over all paths.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// For each node, the facts that are sure on all paths to it; `None` if no path leads to it.
    before: Vec<Option<Set>>,
    branches: Branches,
    joins: Joins,
    /// For each node, the keys that it is sure to write.
    writes: Vec<Vec<usize>>,
    /// For each node, the keys that it may write, in the order of its assignments; not those that it only shares.
    touches: Vec<Vec<usize>>,
    /// For each node and key that it may write, the first assignment that writes it.
    first_touch: HashMap<(usize, usize), usize>,
    /// For each node, the channels that it resets.
    resets: Vec<Vec<usize>>,
    /// For each node, the keys that the run of its graph shares.
    shares: Vec<Vec<usize>>,
    /// For each node, all keys whose values it may change.
    changes: Vec<Vec<usize>>,
    /// For each node, the facts that its edges prove.
    gains: Vec<Gains>,
    /// For each assignment of each node, the facts about the key that it writes: those that follow from another fact,
    /// and those that hold in any case.
    carried: Vec<Vec<Carried>>,
    /// The number of keys. Facts are numbered: the keys, the last error, the paths, the alternatives.
    keys: usize,
    paths: HashMap<Path, usize>,
    /// For each path, the facts that the value there is one of some words.
    one_of: HashMap<Path, Vec<Path>>,
    /// For each key, the paths into it.
    into: Vec<Vec<usize>>,
    /// For each path into the state, the key that it begins with.
    key_of: HashMap<usize, usize>,
    /// The facts that no write makes false: that a list is not empty which only grows.
    lasting: HashSet<usize>,
    /// For the paths of each expression with `||`, the fact that one of them is set.
    alternatives: HashMap<Vec<Path>, usize>,
    /// The same facts by the address of the paths in memory, since an expression may be long.
    alternatives_at: HashMap<usize, usize>,
    /// For each of these facts, in their order, the facts of which any one implies it.
    members: Vec<Vec<usize>>,
    /// For each fact, the alternatives of which it is a member.
    member_of: HashMap<usize, Vec<usize>>,
}

/// The facts that the edges of a node prove. There may be many edges, and each also proves that the conditions before
/// it did not hold.
#[derive(Debug, Default)]
struct Gains {
    /// The facts that are proven by edges that are not followed, in the order of the edges, each once.
    passed: Vec<usize>,
    /// For each edge that can be followed, in the order of [`Model::edge_indices`]: how many of `passed` hold there,
    /// and the facts that it proves itself.
    edges: Vec<(usize, Vec<usize>)>,
    /// The facts that an edge proves if another fact holds: the edge, the other fact and the fact.
    later: Vec<(usize, usize, usize)>,
}

/// The facts that an assignment carries over to its key, each with the fact that it follows from; `None` if it holds in
/// any case.
type Carried = Vec<(Option<usize>, usize)>;

/// A node, one of its assignments, and the path that the assignment copies.
type Copied<'d> = (usize, usize, &'d Path);

impl Flow {
    /// Analyses a graph whose names are resolved; types are not needed.
    pub(crate) fn analyse(model: &Model<'_>) -> Self {
        let nodes = &model.definition.nodes;
        let (count, keys) = (nodes.len(), model.keys.len());
        let mut flow = Self {
            before: vec![None; count],
            writes: (0..count).map(|node| writes(model, node)).collect(),
            touches: (0..count).map(|node| touches(model, node)).collect(),
            resets: nodes.iter().map(|node| keys_of(model, node.reset().iter()).collect()).collect(),
            shares: nodes.iter().map(|node| keys_of(model, node.share().iter()).collect()).collect(),
            changes: nodes.iter().map(|node| keys_of(model, node.changed()).collect()).collect(),
            branches: Branches::find(model),
            gains: Vec::new(),
            keys,
            paths: HashMap::default(),
            into: vec![Vec::new(); keys + 1],
            ..Self::default()
        };
        for (node, touches) in flow.touches.iter().enumerate() {
            for (at, &key) in touches.iter().enumerate() {
                flow.first_touch.entry((node, key)).or_insert(at);
            }
        }
        flow.gains = (0..count).map(|node| flow.gains_of(model, node)).collect();
        for node in 0..count {
            for (edge, paths) in cases::assigned(model, node, node).into_iter().enumerate() {
                for path in &paths {
                    let facts = flow.facts_of(model, path);
                    flow.gains[node].edges[edge].1.extend(facts);
                }
            }
        }
        flow.carry(model);
        flow.tell_cases_apart_later(model);
        flow.gather_alternatives(model);
        flow.prove_alternatives(model);
        flow.joins = Joins::find(model, &flow.branches, &flow.changes);
        let Some(start) = model.start else { return flow };
        let first = flow.first(model);
        flow.before[start] = Some(first.clone());
        for (entry, at) in model.definition.entries.iter().zip(&model.entries) {
            let Some(at) = *at else { continue };
            // A run does not begin there without its elements.
            let mut known = first.clone();
            let elements = entry.elements.iter().filter_map(|element| flow.paths.get(&element.path.value));
            elements.for_each(|&fact| flow.learn(&mut known, fact));
            flow.reach(at, known);
        }
        let order = order(model);
        let mut changed = true;
        while changed {
            changed = false;
            // In this order, a node comes after all nodes that lead to it, so only edges that lead back, and branches that end
            // behind their join in it, need another pass.
            for &node in &order {
                if let Some(known) = flow.at_join_or_entry(model, node) {
                    changed |= flow.reach(node, known);
                }
                for (next, known) in flow.leaving(model, node) {
                    if flow.joins.of(next).is_none() {
                        changed |= flow.reach(next, known);
                    }
                }
            }
        }
        flow
    }

    /// Returns the targets of a node, each with the facts that are sure on the edge to it: its edges in order, then the others.
    fn leaving(&self, model: &Model<'_>, node: usize) -> Vec<(usize, Set)> {
        let mut leaving = Vec::new();
        let after = self.at(node, ProgramPoint::After);
        after.into_iter().for_each(|after| self.follow(model, node, after, &mut leaving));
        if let (Some(next), Some(mut known)) = (model.error_successor(node), self.before[node].clone()) {
            self.learn(&mut known, self.keys);
            leaving.push((next, known));
        }
        if let (Some(next), Some(known)) = (model.timeout_successor(node), self.before[node].clone()) {
            leaving.push((next, known));
        }
        if let (Some(next), Some(known)) = (model.fewer_successor(node), self.short(node)) {
            leaving.push((next, known));
        }
        leaving
    }

    /// Adds the targets of a node's edges, each with the facts that are sure on the edge to it; `passed` are those behind the
    /// node.
    fn follow(&self, model: &Model<'_>, node: usize, mut passed: Set, leaving: &mut Vec<(usize, Set)>) {
        let (mut done, gains) = (0, &self.gains[node]);
        let behind = passed.clone();
        for (edge, next) in model.successors(node).enumerate() {
            let (count, own) = &gains.edges[edge];
            gains.passed[done..*count].iter().for_each(|&fact| self.learn(&mut passed, fact));
            done = *count;
            let mut known = passed.clone();
            own.iter().for_each(|&fact| self.learn(&mut known, fact));
            let later = gains.later.iter().filter(|(at, from, _)| *at == edge && behind.contains(*from));
            later.for_each(|&(.., fact)| self.learn(&mut known, fact));
            // Nodes beside this one may write the keys that its conditions look at in the same step.
            self.forget(&mut known, self.joins.beside(node));
            known.unite(&behind);
            leaving.push((next, known));
        }
    }

    /// Returns the facts that are sure where too few branches can arrive at a join: those at the fan-out that no branch can
    /// make false.
    fn short(&self, node: usize) -> Option<Set> {
        let join = self.joins.of(node)?;
        let mut known = self.at(join.fan, ProgramPoint::After)?;
        self.forget(&mut known, &join.touches);
        Some(known)
    }

    /// Returns the branches that nodes may be visited in.
    pub(crate) fn branches(&self) -> &Branches {
        &self.branches
    }

    /// Returns the keys whose values a node may change.
    pub(crate) fn touched(&self, node: usize) -> &[usize] {
        &self.changes[node]
    }

    /// Returns how nodes wait for branches.
    pub(crate) fn joins(&self) -> &Joins {
        &self.joins
    }

    /// Returns the facts that are sure where a node has waited for its branches; `None` until every branch that surely
    /// begins was followed to its end.
    ///
    /// These are the facts at the fan-out, and those at the end of each branch that surely begins, wherever the branch ends. With
    /// a quorum, they are those of which too few branches can arrive without them.
    fn at_join(&self, model: &Model<'_>, node: usize) -> Option<Set> {
        let join = self.joins.of(node)?;
        let mut known = self.short(node)?;
        if let Some(need) = join.need {
            known.unite(&self.of_any(model, node, join, need)?);
            return Some(known);
        }
        let mut any: Option<Set> = None;
        for branch in &join.branches {
            if branch.is_sure {
                let mut sure = self.arrived(model, node, join, branch, true)?;
                // The last failure behind a partial join is one of the branches that came to it.
                if !join.closes && !branch.surely_arrives() {
                    sure.remove(self.keys);
                    self.forget(&mut sure, &[self.keys]);
                }
                known.unite(&sure);
            }
            if !join.closes
                && let Some(arrived) = self.arrived(model, node, join, branch, false)
            {
                meet(&mut any, &arrived);
            }
        }
        // A join that does not close its fan-out is visited only if a branch arrives.
        if !join.closes {
            known.unite(&any?);
        }
        Some(known)
    }

    /// As [`Flow::at_join`], also in runs that begin at an entry in a branch: no other branch has begun in them, and the node that
    /// fans out was not visited.
    fn at_join_or_entry(&self, model: &Model<'_>, node: usize) -> Option<Set> {
        let mut known = self.at_join(model, node)?;
        let join = self.joins.of(node)?;
        let is_inside = |entry: &usize| self.branches.enters(model, *entry, join.fan);
        for entry in model.entries.iter().flatten().copied().filter(is_inside) {
            for branch in join.branches.iter().filter(|branch| branch.region.contains(entry)) {
                let arrived = match branch.is_over {
                    true => self.arrived(model, node, join, branch, true),
                    false => {
                        let mut first = self.first(model);
                        self.forget(&mut first, &join.touches);
                        Some(first)
                    }
                };
                if let Some(arrived) = arrived {
                    known.intersect(&arrived);
                }
            }
        }
        Some(known)
    }

    /// Returns the facts with which a run begins.
    fn first(&self, model: &Model<'_>) -> Set {
        let mut first = Set::empty(self.size());
        for (at, key) in model.keys.iter().enumerate() {
            if key.initial.is_some() {
                self.learn(&mut first, at);
            }
        }
        first
    }

    /// Returns the facts that hold whichever `need` branches arrive at a join; `None` until a branch arrives.
    fn of_any(&self, model: &Model<'_>, node: usize, join: &NodeJoin, need: usize) -> Option<Set> {
        let arrived = join.branches.iter().filter_map(|branch| self.arrived(model, node, join, branch, false));
        let arrived: Vec<Set> = arrived.collect();
        let mut all = arrived.first()?.clone();
        arrived.iter().for_each(|known| all.unite(known));
        // Any number of branches begins with the edge of a list.
        let is_list = matches!(model.definition.nodes[join.fan].next(), RouteDefinition::Each(_));
        for fact in 0..self.size() {
            let without = arrived.iter().filter(|known| !known.contains(fact)).count();
            if without > 0 && (is_list || without >= need) {
                all.remove(fact);
            }
        }
        Some(all)
    }

    /// Returns the facts that are sure at the end of a branch: where it arrives at its join, and, with `or_ends`, where it ends
    /// before.
    fn arrived(
        &self,
        model: &Model<'_>,
        node: usize,
        join: &NodeJoin,
        branch: &JoinedBranch,
        or_ends: bool,
    ) -> Option<Set> {
        let direct = (branch.first == node).then_some((join.fan, Some(branch.edge)));
        let inside = join.of.iter().filter(|&&source| branch.region.contains(source)).map(|&source| (source, None));
        let mut sure: Option<Set> = None;
        for (source, edge) in direct.into_iter().chain(inside) {
            let leaving = self.leaving(model, source).into_iter().enumerate();
            for (_, (_, known)) in
                leaving.filter(|(at, (next, _))| *next == node && edge.is_none_or(|edge| edge == *at))
            {
                meet(&mut sure, &known);
            }
        }
        let none = BranchEnds::default();
        let BranchEnds { at, broken, exits } = if or_ends { &branch.ends } else { &none };
        for known in at.iter().filter_map(|&end| self.at(end, ProgramPoint::After)) {
            meet(&mut sure, &known);
        }
        for &(source, to) in exits {
            let leaving = self.leaving(model, source);
            leaving.iter().filter(|(next, _)| *next == to).for_each(|(_, known)| meet(&mut sure, known));
        }
        // A node writes nothing if its failure ends the branch.
        for known in broken.iter().filter_map(|&node| self.before[node].as_ref()) {
            meet(&mut sure, known);
        }
        let mut sure = sure?;
        self.forget(&mut sure, &branch.beside);
        Some(sure)
    }

    /// Removes the facts that nodes of other branches may make false by writing these keys. A key that is set stays set.
    fn forget(&self, known: &mut Set, keys: &[usize]) {
        for &key in keys {
            for &fact in self.into[key].iter().filter(|fact| !self.lasting.contains(fact)) {
                known.remove(fact);
                for &one in self.member_of.get(&fact).into_iter().flatten() {
                    self.keep_alternative(known, one);
                }
            }
            for &one in self.member_of.get(&key).into_iter().flatten() {
                self.keep_alternative(known, one);
            }
        }
    }

    /// Removes the fact that one of several alternatives is set, if no member is known to be set.
    fn keep_alternative(&self, known: &mut Set, one: usize) {
        let members = &self.members[one - self.keys - 1 - self.paths.len()];
        if !members.iter().any(|&member| known.contains(member)) {
            known.remove(one);
        }
    }

    fn size(&self) -> usize {
        self.keys + 1 + self.paths.len() + self.members.len()
    }

    /// Adds a fact, and the alternatives that follow from it.
    fn learn(&self, known: &mut Set, fact: usize) {
        known.insert(fact);
        self.member_of.get(&fact).into_iter().flatten().for_each(|&one| known.insert(one));
    }

    /// Computes the facts that assignments carry over: a fact about a value is also one about its copy.
    fn carry(&mut self, model: &Model<'_>) {
        let nodes = &model.definition.nodes;
        self.carried = nodes.iter().map(|node| vec![Vec::new(); node.assign().len()]).collect();
        // The copies by the key or input that they copy from.
        let mut copies: HashMap<(Root, &str), Vec<Copied<'_>>> = HashMap::default();
        for (node, definition) in nodes.iter().enumerate() {
            for (at, assignment) in definition.assign().iter().enumerate() {
                if let Some(path @ Path { root: Root::State | Root::Inputs, .. }) = copied(&assignment.value)
                    && !model.combines_name(assignment.key.value.as_str())
                    && let Some(first) = path.segments.first()
                {
                    copies.entry((path.root, first)).or_default().push((node, at, path));
                }
            }
        }
        let mut waiting: Vec<Path> = self.paths.keys().cloned().collect();
        waiting.sort_unstable_by_key(|path| self.paths[path]);
        let most = waiting.len() + MOST_COPIES;
        while let Some(path) = waiting.pop() {
            let from = self.paths[&path];
            let first = path.segments.first().map(String::as_str).unwrap_or_default();
            for &(node, at, source) in copies.get(&(path.root, first)).into_iter().flatten() {
                if self.paths.len() >= most {
                    return;
                }
                let Some(rest) = path.segments.strip_prefix(source.segments.as_slice()) else { continue };
                let key = &nodes[node].assign()[at].key;
                let copy = Path {
                    root: Root::State,
                    segments: std::iter::once(key.to_string()).chain(rest.iter().cloned()).collect(),
                };
                let is_new = !self.paths.contains_key(&copy);
                let Some(fact) = self.fact(model, &copy) else { continue };
                self.carried[node][at].push((Some(from), fact));
                if is_new {
                    waiting.push(copy);
                }
            }
        }
        let resets: HashSet<usize> = self.resets.iter().flatten().copied().collect();
        for (node, definition) in nodes.iter().enumerate() {
            for (at, assignment) in definition.assign().iter().enumerate() {
                // Each write adds an element, or the node fails.
                if let Some(key) = model.key(assignment.key.value.as_str())
                    && model.reducer(key) == Some(&Reducer::Append)
                    && model.keys[key].keep().is_none()
                {
                    let segments = vec![assignment.key.to_string(), NOT_EMPTY.to_owned()];
                    if let Some(fact) = self.fact(model, &Path { root: Root::State, segments }) {
                        self.carried[node][at].push((None, fact));
                        if !resets.contains(&key) {
                            self.lasting.insert(fact);
                        }
                    }
                }
                let whole = Path { root: Root::State, segments: vec![assignment.key.to_string()] };
                if let Some(&fact) = self.paths.get(&whole)
                    && (model.combines_name(assignment.key.value.as_str())
                        || is_something(model, node, at, &assignment.value))
                {
                    self.carried[node][at].push((None, fact));
                }
            }
        }
    }

    /// Gathers the expressions with `||` that contain a state key or an input.
    fn gather_alternatives(&mut self, model: &Model<'_>) {
        let mut found: Vec<&[Path]> = Vec::new();
        model.reads(&mut |read| {
            if read.has_fallback || read.alternatives.len() < 2 {
                return;
            }
            let has_key = read.alternatives.iter().any(|path| path.root == Root::State);
            let has_input = read.alternatives.iter().any(|path| path.root == Root::Inputs);
            if has_key || has_input {
                found.push(read.alternatives);
            }
        });
        let first = self.keys + 1 + self.paths.len();
        for paths in found {
            if let Some(&fact) = self.alternatives.get(paths) {
                self.alternatives_at.insert(paths.as_ptr().addr(), fact);
                continue;
            }
            let members: Vec<usize> = paths.iter().filter_map(|path| self.member(model, path)).collect();
            let fact = first + self.members.len();
            for &member in &members {
                self.member_of.entry(member).or_default().push(fact);
            }
            self.members.push(members);
            self.alternatives.insert(paths.to_vec(), fact);
            self.alternatives_at.insert(paths.as_ptr().addr(), fact);
        }
    }

    /// Returns the fact that the first part of a path is set: a state key, or the input at the path.
    fn member(&self, model: &Model<'_>, path: &Path) -> Option<usize> {
        match path.root {
            Root::State => model.key_or_last_error(path.segments.first()?),
            _ => self.paths.get(path).copied(),
        }
    }

    /// Adds to the facts of each edge the alternatives that its conditions imply: each case of an `any` proves one of
    /// their members.
    fn prove_alternatives(&mut self, model: &Model<'_>) {
        if self.alternatives.is_empty() {
            return;
        }
        let mut by_path: HashMap<&Path, Vec<(&[Path], usize)>> = HashMap::default();
        for (paths, &fact) in &self.alternatives {
            paths.iter().for_each(|path| by_path.entry(path).or_default().push((paths, fact)));
        }
        let mut proven: Vec<(usize, usize, usize)> = Vec::new();
        for (node, definition) in model.definition.nodes.iter().enumerate() {
            let RouteDefinition::First(EdgeList { edges, .. }) = definition.next() else { continue };
            if edges.len() > MOST_EDGES {
                continue;
            }
            for (place, edge) in model.edge_indices(node).enumerate() {
                let mut candidates = Vec::new();
                edges[..=edge].iter().for_each(|edge| {
                    edge.when.tests(&mut |test| candidates.extend(by_path.get(&test.path.value).into_iter().flatten()));
                });
                candidates.sort_unstable_by_key(|(_, fact)| *fact);
                candidates.dedup_by_key(|(_, fact)| *fact);
                for (paths, fact) in candidates {
                    let holds = guards::proves_one(&edges[edge].when, true, paths);
                    if holds || edges[..edge].iter().any(|edge| guards::proves_one(&edge.when, false, paths)) {
                        proven.push((node, place, fact));
                    }
                }
            }
        }
        proven.into_iter().for_each(|(node, place, fact)| self.gains[node].edges[place].1.push(fact));
    }

    /// Restricts the facts at a node to those that hold on one more path to it; returns whether they changed.
    fn reach(&mut self, node: usize, mut known: Set) -> bool {
        self.forget(&mut known, self.joins.beside(node));
        // A reset comes before the assignments of the node, which may read the key.
        self.forget(&mut known, &self.resets[node]);
        match &mut self.before[node] {
            Some(before) => before.intersect(&known),
            unknown => {
                *unknown = Some(known);
                true
            }
        }
    }

    /// Returns the facts that each edge of a node proves, and assigns an index to every path that an edge proves.
    fn gains_of(&mut self, model: &Model<'_>, node: usize) -> Gains {
        let route = model.definition.nodes[node].next();
        let (edges, is_first) = match route {
            RouteDefinition::First(list) => (&list.edges, true),
            RouteDefinition::All(list) => (&list.edges, false),
            RouteDefinition::By(by) => {
                let edges: Vec<usize> = model.edge_indices(node).collect();
                let of_edge = |edge: usize| {
                    let word = by.to[edge].0.value.as_str();
                    let is_null = word == "null";
                    let path = Some(&by.by.value).filter(|_| !is_null);
                    let copies: Vec<Path> = path.into_iter().flat_map(|path| copies_of(model, node, path)).collect();
                    let mut facts: Vec<usize> =
                        path.into_iter().chain(&copies).flat_map(|path| self.facts_of(model, path)).collect();
                    if let Some(path) = path {
                        facts.extend(self.facts_with_copies(model, node, words::routed(route, path, word)));
                    }
                    (0, facts)
                };
                return Gains { edges: edges.into_iter().map(of_edge).collect(), ..Gains::default() };
            }
            RouteDefinition::End | RouteDefinition::To(_) | RouteDefinition::Each(_) => {
                let edges = vec![(0, Vec::new()); model.successors(node).count()];
                return Gains { edges, ..Gains::default() };
            }
        };
        let followed: Vec<usize> = model.edge_indices(node).collect();
        let (mut gains, mut known) = (Gains::default(), HashSet::default());
        for (at, edge) in edges.iter().enumerate() {
            if followed.get(gains.edges.len()) == Some(&at) {
                let own = self.proven_by(model, node, edge, true);
                gains.edges.push((gains.passed.len(), own));
            }
            if !is_first {
                continue;
            }
            // Edges after this one are followed only if its condition did not hold.
            gains
                .passed
                .extend(self.proven_by(model, node, edge, false).into_iter().filter(|&fact| known.insert(fact)));
        }
        gains
    }

    /// Returns the facts that an edge's condition proves if it holds, or if it does not.
    fn proven_by(&mut self, model: &Model<'_>, node: usize, edge: &EdgeDefinition, holds: bool) -> Vec<usize> {
        let proven = guards::proven(&edge.when, holds);
        // A value that exists only after a failure proves that the node has failed.
        let failed = proven.iter().any(|path| model.is_of_failure(node, path)).then_some(self.keys);
        let copies: Vec<Path> = proven.iter().flat_map(|path| copies_of(model, node, path)).collect();
        let mut found: Vec<usize> =
            proven.into_iter().chain(&copies).flat_map(|path| self.facts_of(model, path)).chain(failed).collect();
        let not_empty = guards::not_empty(&edge.when, holds).into_iter().map(|path| {
            let mut list = path.clone();
            list.segments.push(NOT_EMPTY.to_owned());
            list
        });
        let words = words::proven(model.definition.nodes[node].next(), &edge.when, holds);
        found.extend(self.facts_with_copies(model, node, not_empty.chain(words).collect()));
        found
    }

    /// Returns the facts of these paths, and those of the copies that a node makes.
    fn facts_with_copies(&mut self, model: &Model<'_>, node: usize, paths: Vec<Path>) -> Vec<usize> {
        let copies: Vec<Path> = paths.iter().flat_map(|path| copies_of(model, node, path)).collect();
        paths.iter().chain(&copies).filter_map(|path| self.fact(model, path)).collect()
    }

    /// Returns the index of the fact that a path leads to a value.
    fn fact(&mut self, model: &Model<'_>, path: &Path) -> Option<usize> {
        let key = match (path.root, path.segments.first()) {
            (Root::State, Some(name)) => Some(model.key_or_last_error(name)?),
            (Root::Inputs, Some(_)) => None,
            _ => return None,
        };
        let next = self.keys + 1 + self.paths.len();
        let fact = *self.paths.entry(path.clone()).or_insert(next);
        if let Some((of, _)) = words::read_one_of(path).filter(|_| fact == next) {
            self.one_of.entry(of).or_default().push(path.clone());
        }
        // A new fact has the highest index.
        if let Some(key) = key
            && fact == next
        {
            self.into[key].push(fact);
            self.key_of.insert(fact, key);
        }
        Some(fact)
    }

    /// Returns the facts that follow from a path that is not null: the path itself, all its beginnings, and that its
    /// key is set.
    fn facts_of(&mut self, model: &Model<'_>, path: &Path) -> Vec<usize> {
        let key = match (path.root, path.segments.first()) {
            (Root::State, Some(name)) => match model.key_or_last_error(name) {
                Some(key) => Some(key),
                None => return Vec::new(),
            },
            (Root::Inputs, Some(_)) => None,
            // A node's result is known only in the node itself.
            _ => return Vec::new(),
        };
        let mut found: Vec<usize> = key.into_iter().collect();
        for length in 1..=path.segments.len() {
            let part = Path { root: path.root, segments: path.segments[..length].to_vec() };
            found.extend(self.fact(model, &part));
        }
        found
    }

    /// Returns the facts that are sure at a point of a node; `None` if no path leads to it.
    pub(crate) fn at(&self, node: usize, point: ProgramPoint) -> Option<Set> {
        let mut known = self.before[node].clone()?;
        if point != ProgramPoint::Before {
            self.forget(&mut known, &self.shares[node]);
        }
        let made = point.made();
        // The assignments run one after the other; the edges may be reached without them.
        let is_written = point != ProgramPoint::After || self.writes[node].len() == self.touches[node].len();
        for (at, &key) in self.touches[node].iter().enumerate().take(made) {
            let holds = |from: &Option<usize>| is_written && from.is_none_or(|from| known.contains(from));
            let carried = self.carried[node].get(at).into_iter().flatten();
            let carried: Vec<usize> = carried.filter(|(from, _)| holds(from)).map(|(_, fact)| *fact).collect();
            let lost = self.into[key].iter().filter(|fact| !self.lasting.contains(fact));
            lost.for_each(|&fact| known.remove(fact));
            if is_written {
                self.learn(&mut known, key);
                carried.into_iter().for_each(|fact| known.insert(fact));
            } else {
                // If the key was not written, it has its old value. If it was, the new value may be null, as with every
                // key that is set.
                self.member_of.get(&key).into_iter().flatten().for_each(|&one| self.keep_alternative(&mut known, one));
            }
        }
        Some(known)
    }

    /// Whether one of the paths of an expression is sure to be set.
    pub(crate) fn is_one_set(&self, node: usize, point: ProgramPoint, paths: &[Path]) -> bool {
        let Some(&fact) = self.alternatives_at.get(&paths.as_ptr().addr()) else { return false };
        self.at(node, point).is_some_and(|known| known.contains(fact))
    }

    /// Whether a list, if it exists, is sure to have an element, because a condition on every path to here requires it.
    pub(crate) fn is_not_empty(&self, node: usize, point: ProgramPoint, list: &Path) -> bool {
        let mut list = list.clone();
        list.segments.push(NOT_EMPTY.to_owned());
        self.is_something(node, point, &list)
    }

    /// Returns those of the words of a value that it can be where a condition on every path to here has looked at it; all of them if none
    /// is left, as where nothing leads.
    pub(crate) fn words_left(&self, node: usize, point: ProgramPoint, path: &Path, words: Vec<String>) -> Vec<String> {
        let is_sure = |fact: &Path| self.is_something(node, point, fact);
        let mut left = words.clone();
        for one_of in self.one_of.get(path).into_iter().flatten().filter(|one_of| is_sure(one_of)) {
            let listed: Vec<&str> = words::read_one_of(one_of).into_iter().flat_map(|(_, listed)| listed).collect();
            left.retain(|word| listed.contains(&word.as_str()));
        }
        left.retain(|word| !is_sure(&words::is_not(path, word)));
        if left.is_empty() { words } else { left }
    }

    /// Whether a path is sure to lead to a value, because a condition on every path to here requires it.
    pub(crate) fn is_something(&self, node: usize, point: ProgramPoint, path: &Path) -> bool {
        let Some(&fact) = self.paths.get(path) else { return false };
        let is_touched = || {
            let key = self.key_of.get(&fact);
            key.is_some_and(|&key| self.touches_within(node, point, key) || self.shares_within(node, point, key))
        };
        match is_touched() {
            false => self.before[node].as_ref().is_some_and(|known| known.contains(fact)),
            true => self.at(node, point).is_some_and(|known| known.contains(fact)),
        }
    }

    /// Whether a node may have written a key before it reaches a point.
    fn touches_within(&self, node: usize, point: ProgramPoint, key: usize) -> bool {
        self.first_touch.get(&(node, key)).is_some_and(|&first| first < point.made())
    }

    /// Whether the run of a node's graph may have written a key before the node reaches a point.
    fn shares_within(&self, node: usize, point: ProgramPoint, key: usize) -> bool {
        point != ProgramPoint::Before && self.shares[node].contains(&key)
    }

    /// Whether any condition proves that a path leads to a value.
    pub(crate) fn knows_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether a key is sure to be set at a point of a node. If no path leads to the node, every key counts as set.
    pub(crate) fn is_set(&self, node: usize, point: ProgramPoint, key: usize) -> bool {
        let may_be_skipped = point == ProgramPoint::After && self.writes[node].is_empty();
        (!may_be_skipped && self.touches_within(node, point, key))
            || self.before[node].as_ref().is_none_or(|known| known.contains(key))
    }

    /// Whether any path leads to a node.
    pub(crate) fn is_reached(&self, node: usize) -> bool {
        self.before[node].is_some()
    }

    /// Returns the shortest path from an entry, or else from the start, to a node on which nothing sets one of the keys, as the
    /// nodes in order, including the last one. An edge for which `is_closed` holds, given its node and its index among the followed
    /// edges, is not taken. `None` if every path sets one of the keys.
    pub(crate) fn path_without(
        &self,
        model: &Model<'_>,
        keys: &[usize],
        to: usize,
        is_closed: impl Fn(usize, usize) -> bool,
    ) -> Option<Vec<usize>> {
        // In a run from an entry, joins come with one branch, so a path from there says more than one from the start.
        let start = model.start?;
        let entries = model.entries.iter().flatten().copied().collect();
        let from_entry = self.path_from(entries, model, keys, to, &is_closed);
        from_entry.or_else(|| self.path_from([start].into(), model, keys, to, &is_closed))
    }

    /// As [`Flow::path_without`], from one of the nodes that are `waiting`.
    fn path_from(
        &self,
        mut waiting: VecDeque<usize>,
        model: &Model<'_>,
        keys: &[usize],
        to: usize,
        is_closed: impl Fn(usize, usize) -> bool,
    ) -> Option<Vec<usize>> {
        if keys.iter().any(|&key| model.keys.get(key).is_some_and(|key| key.initial.is_some())) {
            return None;
        }
        let keys: HashSet<usize> = keys.iter().copied().collect();
        let mut from: Vec<Option<usize>> = vec![None; self.before.len()];
        let mut seen = vec![false; self.before.len()];
        waiting.iter().for_each(|&root| seen[root] = true);
        while let Some(node) = waiting.pop_front() {
            if node == to {
                let mut path = vec![node];
                let mut at = node;
                while let Some(before) = from[at] {
                    path.push(before);
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            let sets = self.writes[node].iter().any(|key| keys.contains(key));
            let edges = model.successors(node).enumerate();
            let gains = &self.gains[node];
            let passed = gains.passed.iter().position(|fact| keys.contains(fact)).unwrap_or(usize::MAX);
            let proves = |edge: usize| {
                passed < gains.edges[edge].0 || gains.edges[edge].1.iter().any(|fact| keys.contains(fact))
            };
            let onward =
                edges.filter(|&(edge, _)| !sets && !proves(edge) && !is_closed(node, edge)).map(|(_, next)| next);
            let failed = model.error_successor(node).filter(|_| !keys.contains(&self.keys));
            // A fan-out with a branch that surely begins does not lead to its join directly.
            let begins = |edges: &EdgeList| edges.edges.iter().any(|edge| matches!(edge.when, Condition::Always));
            let is_sure = match model.definition.nodes[node].next() {
                RouteDefinition::All(edges) => begins(edges),
                RouteDefinition::Each(each) => model.surely_has_elements(&each.over),
                _ => false,
            };
            let beyond = self.branches.beyond(node).iter().copied().filter(|_| !sets && !is_sure);
            let broken = self.branches.broken(node).iter().copied();
            let otherwise = model.timeout_successor(node).into_iter().chain(model.fewer_successor(node));
            for next in onward.chain(failed).chain(otherwise).chain(beyond).chain(broken) {
                if !std::mem::replace(&mut seen[next], true) {
                    from[next] = Some(node);
                    waiting.push_back(next);
                }
            }
        }
        None
    }

    /// Returns the nodes that may set a key and from which a path leads to a node.
    pub(crate) fn setters_before(&self, model: &Model<'_>, key: usize, to: usize) -> Vec<usize> {
        let count = self.before.len();
        let mut leads = vec![false; count];
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
        for node in 0..count {
            let beyond = self.branches.beyond(node).iter().chain(self.branches.broken(node)).copied();
            for next in model.onward(node).chain(beyond) {
                before[next].push(node);
            }
        }
        let mut waiting = before[to].clone();
        while let Some(node) = waiting.pop() {
            if !std::mem::replace(&mut leads[node], true) {
                waiting.extend(&before[node]);
            }
        }
        let sets = |node: usize| match key == self.keys {
            true => {
                let is_handled = model.error_successor(node).is_some() || model.may_skip_assign(node);
                is_handled || !self.branches.broken(node).is_empty()
            }
            false => self.changes[node].contains(&key),
        };
        (0..count).filter(|&node| leads[node] && self.is_reached(node) && sets(node)).collect()
    }
}

/// Keeps the facts that are sure also on another path; all of them if it is the first.
fn meet(sure: &mut Option<Set>, known: &Set) {
    match sure {
        Some(sure) => drop(sure.intersect(known)),
        None => *sure = Some(known.clone()),
    }
}

/// Returns the keys that a node is sure to have written when one of its edges is followed.
fn writes(model: &Model<'_>, node: usize) -> Vec<usize> {
    if model.may_skip_assign(node) { Vec::new() } else { touches(model, node) }
}

/// Returns the keys that a node may write, in the order of its assignments.
fn touches(model: &Model<'_>, node: usize) -> Vec<usize> {
    let node = &model.definition.nodes[node];
    keys_of(model, node.written().chain(node.reset())).collect()
}

/// Returns the indices of keys.
fn keys_of<'n>(
    model: &'n Model<'_>,
    names: impl Iterator<Item = &'n Spanned<StateKey>>,
) -> impl Iterator<Item = usize> {
    names.filter_map(|key| model.key(key.value.as_str()))
}

/// Returns the path that an assignment copies, if it only copies one.
fn copied(term: &TermDefinition) -> Option<&Path> {
    let TermKind::Template { template: Template::Whole(expression), .. } = &term.kind else { return None };
    match expression.paths.as_slice() {
        [path] => Some(path),
        _ => None,
    }
}

/// Whether the value that a node's assignment writes is never null.
pub(super) fn is_something(model: &Model<'_>, node: usize, at: usize, term: &TermDefinition) -> bool {
    match &term.kind {
        TermKind::Unreadable => false,
        TermKind::Literal(value) => !value.is_null(),
        TermKind::List(_) | TermKind::Object(_) | TermKind::Template { template: Template::Mixed(_), .. } => true,
        TermKind::Template { .. } => match copied(term) {
            Some(Path { root: Root::Now | Root::Timestamp, .. }) => true,
            Some(Path { root: Root::Inputs, segments }) => match segments.as_slice() {
                [name] => model.input(name).is_some_and(|field| !field.ty.nullable),
                _ => false,
            },
            Some(Path { root: Root::Result, segments }) => {
                let result = model.result_at(node, Site::Assign(at)).map(Cow::into_owned);
                let value =
                    result.and_then(|result| segments.iter().try_fold(result, |value, part| value.step(part).ok()));
                value.is_some_and(|value| !value.nullable && !matches!(value.kind, TypeKind::Any | TypeKind::Never))
            }
            _ => false,
        },
    }
}

/// Returns the paths into the state that, after a node's assignments, hold a copy of the value at a path.
fn copies_of(model: &Model<'_>, node: usize, path: &Path) -> Vec<Path> {
    // If a failure continues along the edges, nothing was assigned.
    if model.may_skip_assign(node) {
        return Vec::new();
    }
    let assign = model.definition.nodes[node].assign();
    let is_same = |at: usize, source: &Path| match source.segments.first() {
        Some(key) if source.root == Root::State => {
            !assign[at..].iter().any(|assignment| assignment.key.value.as_str() == key)
        }
        _ => true,
    };
    let copy = |(at, assignment): (usize, &Assignment)| {
        let source = copied(&assignment.value).filter(|source| source.root == path.root)?;
        if model.combines_name(assignment.key.value.as_str()) {
            return None;
        }
        let rest = path.segments.strip_prefix(source.segments.as_slice()).filter(|_| is_same(at, source))?;
        let segments = std::iter::once(assignment.key.to_string()).chain(rest.iter().cloned()).collect();
        Some(Path { root: Root::State, segments })
    };
    assign.iter().enumerate().filter_map(copy).take(MOST_COPIES_OF_ONE).collect()
}

/// Orders the nodes that can be reached so that, loops aside, each comes after all that lead to it.
fn order(model: &Model<'_>) -> Vec<usize> {
    let mut order = finished(model, model.roots());
    order.reverse();
    order
}

/// Orders all nodes so that, loops aside, each comes after all that it leads to.
pub(crate) fn backwards(model: &Model<'_>) -> Vec<usize> {
    finished(model, model.start.into_iter().chain(0..model.definition.nodes.len()))
}

/// Returns the nodes that can be reached from others, in the order in which a depth-first search finishes them.
fn finished(model: &Model<'_>, from: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = vec![false; model.definition.nodes.len()];
    let mut order = Vec::new();
    for start in from {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut open = vec![(start, model.onward(start))];
        while let Some((node, targets)) = open.last_mut() {
            match targets.next() {
                Some(next) if seen[next] => {}
                Some(next) => {
                    seen[next] = true;
                    open.push((next, model.onward(next)));
                }
                None => {
                    order.push(*node);
                    open.pop();
                }
            }
        }
    }
    order
}

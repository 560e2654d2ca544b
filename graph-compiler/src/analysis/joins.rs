//! Fan-outs and the nodes that wait for their branches.
//!
//! A node that follows all of its edges that match, or leads to a node for each element of a list, begins branches. A
//! node with `waits_for` joins the branches of the innermost fan-out that all of its sources are inside of.

use graph_definition::definition::RouteDefinition;
use graph_model::condition::Condition;

use super::branches::{BranchFrame, BranchLabel, Branches, JoinPlace, begins};
use super::model::Model;
use super::set::Set;

/// The joins of a graph.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    /// For each node, its join. Empty if no node of the graph waits.
    joins: Vec<Option<NodeJoin>>,
    /// For each node, the keys that nodes of other branches may write while it runs. Empty where there are no branches.
    beside: Vec<Vec<usize>>,
}

/// How a node waits for branches.
#[derive(Debug)]
pub(crate) struct NodeJoin {
    /// The nodes whose edges lead to it.
    pub(crate) of: Vec<usize>,
    /// The node whose fan-out it joins.
    pub(crate) fan: usize,
    /// Whether every branch reaches it or ends before.
    pub(crate) closes: bool,
    /// How many branches it waits for; `None` if it waits for all.
    pub(crate) need: Option<usize>,
    pub(crate) branches: Vec<JoinedBranch>,
    /// The keys that the branches may write.
    pub(crate) touches: Vec<usize>,
}

/// A branch of a fan-out that may lead to a join.
#[derive(Debug)]
pub(crate) struct JoinedBranch {
    /// The index of the fan-out's edge that begins it, among the edges that can be followed.
    pub(crate) edge: usize,
    /// The first node of the branch; the join itself if the branch has no node before it.
    pub(crate) first: usize,
    /// Whether the branch begins at every visit of the fan-out, and has reached the join or ended when the join is visited.
    pub(crate) is_sure: bool,
    /// Whether it has reached the join or ended when the join is visited, and it is known where.
    pub(crate) is_over: bool,
    /// Whether it may lead to the join.
    pub(crate) arrives: bool,
    pub(crate) ends: BranchEnds,
    /// The nodes that the branch may visit before the join.
    pub(crate) region: Set,
    /// The keys that other branches may write.
    pub(crate) beside: Vec<usize>,
}

/// Where a branch may end before its join, or take a way on which the join does not wait for it.
#[derive(Debug, Default)]
pub(crate) struct BranchEnds {
    /// The nodes at which it may end.
    pub(crate) at: Vec<usize>,
    /// The nodes whose failure may end it.
    pub(crate) broken: Vec<usize>,
    /// The edges, each as the nodes that it leads from and to, behind which it cannot come to a partial join any more.
    pub(crate) exits: Vec<(usize, usize)>,
}

impl BranchEnds {
    fn is_empty(&self) -> bool {
        self.at.is_empty() && self.broken.is_empty() && self.exits.is_empty()
    }
}

impl NodeJoin {
    /// Whether it has a quorum, and fewer branches than it needs may arrive.
    pub(crate) fn may_fall_short(&self) -> bool {
        self.need.is_some_and(|need| self.sure() < need)
    }

    /// Returns how many branches arrive in every run.
    fn sure(&self) -> usize {
        self.branches.iter().filter(|branch| branch.surely_arrives()).count()
    }
}

impl JoinedBranch {
    /// Whether it arrives at every visit of the fan-out.
    pub(crate) fn surely_arrives(&self) -> bool {
        self.is_sure && self.arrives && self.ends.is_empty()
    }
}

impl Joins {
    /// Finds the joins of a graph. `touches` has the keys that each node may write.
    pub(crate) fn find(model: &Model<'_>, branches: &Branches, touches: &[Vec<usize>]) -> Self {
        if branches.is_empty() {
            return Self::default();
        }
        let count = model.definition.nodes.len();
        let mut sources = vec![Vec::new(); count];
        for node in (0..count).filter(|&node| branches.visits(node).next().is_some()) {
            for next in model.onward(node).filter(|&next| branches.place(next).is_some()) {
                sources[next].push(node);
            }
        }
        sources.iter_mut().for_each(Vec::dedup);
        let mut finder = Finder { model, touches, branches, sources, inside: (0..count).map(|_| None).collect() };
        // A frame is known before the frames inside of it.
        let mut fans: Vec<usize> = (0..count).filter(|&node| begins(model.definition.nodes[node].next())).collect();
        fans.sort_by_key(|&fan| std::cmp::Reverse(branches.visits(fan).map(|(_, visit)| visit.frame).max()));
        for fan in fans {
            finder.inside[fan] = Some(finder.inside_of(fan));
        }
        let joins = (0..count).map(|node| finder.join(node)).collect();
        Self { joins, beside: finder.beside() }
    }

    /// Returns the join of a node.
    pub(crate) fn of(&self, node: usize) -> Option<&NodeJoin> {
        self.joins.get(node)?.as_ref()
    }

    /// Returns every join with its node.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &NodeJoin)> {
        self.joins.iter().enumerate().filter_map(|(node, join)| Some((node, join.as_ref()?)))
    }

    /// Returns the keys that nodes of other branches may write while a node runs.
    pub(crate) fn beside(&self, node: usize) -> &[usize] {
        self.beside.get(node).map_or(&[], Vec::as_slice)
    }
}

/// The nodes that a branch may visit.
#[derive(Debug, Clone)]
struct BranchRegion {
    nodes: Set,
    /// The keys that they may write.
    keys: Set,
    /// The nodes that they lead to and that are not in it: joins.
    exits: Vec<usize>,
}

impl BranchRegion {
    fn unite(&mut self, other: &Self) {
        self.nodes.unite(&other.nodes);
        self.keys.unite(&other.keys);
        self.exits.extend(&other.exits);
    }
}

/// The branches of a fan-out, up to the join that closes it and joins of fan-outs around it. A path around the fan-out takes them as
/// a whole, so that the nodes of fan-outs in fan-outs are not followed again for each fan-out around them.
#[derive(Debug)]
struct InnerBranches {
    branches: Vec<BranchRegion>,
    all: BranchRegion,
}

struct Finder<'m, 'd> {
    model: &'m Model<'d>,
    touches: &'m [Vec<usize>],
    branches: &'m Branches,
    /// For each join, the nodes that lead to it.
    sources: Vec<Vec<usize>>,
    /// For each node that fans out, its branches; `None` until they are known.
    inside: Vec<Option<InnerBranches>>,
}

impl Finder<'_, '_> {
    /// Finds the join of a node.
    fn join(&self, node: usize) -> Option<NodeJoin> {
        let JoinPlace { fan, closes } = self.branches.place(node)?;
        let leaves = self.leaves(fan);
        let regions: Vec<BranchRegion> = match &self.inside[fan] {
            Some(inside) if closes => inside.branches.clone(),
            _ => self.regions(fan, |next| next == node || leaves(next)),
        };
        let begun = self.is_begun(fan);
        let sources = self.sources[node].clone();
        let (others, touches) = self.others(fan, &regions);
        let branch = |(edge, first): (usize, usize)| {
            let ends = self.ends(first, node, &leaves);
            let is_over = ends.is_some();
            JoinedBranch {
                edge,
                first,
                is_sure: begun[edge] && is_over,
                is_over,
                arrives: first == node || sources.iter().any(|&source| regions[edge].nodes.contains(source)),
                ends: ends.unwrap_or_default(),
                region: regions[edge].nodes.clone(),
                beside: others[edge].numbers().collect(),
            }
        };
        let branches = self.model.successors(fan).enumerate().map(branch).collect();
        Some(NodeJoin {
            of: sources,
            fan,
            closes,
            need: self.model.definition.nodes[node].quorum.as_ref().map(|quorum| quorum.need.value as usize),
            branches,
            touches: touches.numbers().collect(),
        })
    }

    /// Returns for each branch of a fan-out the keys that the others may write, and those that any may write.
    fn others(&self, fan: usize, regions: &[BranchRegion]) -> (Vec<Set>, Set) {
        let none = Set::empty(self.model.keys.len());
        let mut all = none.clone();
        regions.iter().for_each(|region| all.unite(&region.keys));
        // All branches of a list begin with the same edge, so each runs concurrently with others of the same nodes.
        if matches!(self.model.definition.nodes[fan].next(), RouteDefinition::Each(_)) {
            return (vec![all.clone(); regions.len()], all);
        }
        let (mut before, mut others) = (none.clone(), Vec::with_capacity(regions.len()));
        for region in regions {
            others.push(before.clone());
            before.unite(&region.keys);
        }
        let mut behind = none;
        for (region, others) in regions.iter().zip(&mut others).rev() {
            others.unite(&behind);
            behind.unite(&region.keys);
        }
        (others, all)
    }

    /// Returns for each edge of a fan-out that can be followed whether it is always followed.
    fn is_begun(&self, fan: usize) -> Vec<bool> {
        match self.model.definition.nodes[fan].next() {
            RouteDefinition::All(list) => {
                let is_always = |edge: usize| matches!(list.edges[edge].when, Condition::Always);
                self.model.edge_indices(fan).map(is_always).collect()
            }
            RouteDefinition::Each(each) => {
                let begins = self.model.surely_has_elements(&each.over);
                self.model.successors(fan).map(|_| begins).collect()
            }
            _ => self.model.successors(fan).map(|_| false).collect(),
        }
    }

    /// Returns whether a path leaves a fan-out at a node: the join that closes it, or a join of a fan-out around it.
    fn leaves(&self, fan: usize) -> impl Fn(usize) -> bool {
        let mut is_around = vec![false; self.model.definition.nodes.len()];
        for (_, visit) in self.branches.visits(fan) {
            self.branches.frames(visit.frame).for_each(|frame| is_around[frame.fan] = true);
        }
        move |node| match self.branches.place(node) {
            Some(place) if place.fan == fan => place.closes,
            Some(place) => is_around[place.fan],
            None => false,
        }
    }

    /// Follows the branches of a fan-out.
    fn inside_of(&self, fan: usize) -> InnerBranches {
        let branches = self.regions(fan, self.leaves(fan));
        let mut all = self.nothing();
        branches.iter().for_each(|region| all.unite(region));
        all.exits.sort_unstable();
        all.exits.dedup();
        InnerBranches { branches, all }
    }

    fn nothing(&self) -> BranchRegion {
        let [nodes, keys] = [self.model.definition.nodes.len(), self.model.keys.len()].map(Set::empty);
        BranchRegion { nodes, keys, exits: Vec::new() }
    }

    /// Follows the branches of a fan-out up to nodes at which they `end`.
    fn regions(&self, fan: usize, ends: impl Fn(usize) -> bool) -> Vec<BranchRegion> {
        self.model.successors(fan).map(|first| self.region(first, &ends)).collect()
    }

    /// Returns what may be visited starting at a node, up to nodes at which the branch `ends`.
    fn region(&self, first: usize, ends: impl Fn(usize) -> bool) -> BranchRegion {
        let mut region = self.nothing();
        let mut open = vec![first];
        while let Some(node) = open.pop() {
            if ends(node) {
                region.exits.push(node);
            } else if !region.nodes.contains(node) {
                region.nodes.insert(node);
                self.touches[node].iter().for_each(|&key| region.keys.insert(key));
                open.extend(self.model.other_successors(node));
                match &self.inside[node] {
                    Some(inside) => {
                        region.nodes.unite(&inside.all.nodes);
                        region.keys.unite(&inside.all.keys);
                        open.extend(&inside.all.exits);
                    }
                    None => open.extend(self.model.successors(node)),
                }
            }
        }
        region
    }

    /// Returns where a branch may end before a join; `None` if it may still run, or have left the fan-out, when the join is
    /// visited, or if it neither arrives nor ends.
    fn ends(&self, first: usize, join: usize, leaves: impl Fn(usize) -> bool) -> Option<BranchEnds> {
        let nodes = &self.model.definition.nodes;
        let JoinPlace { fan, closes } = self.branches.place(join)?;
        let mut seen = vec![false; nodes.len()];
        let (mut open, mut arrives, mut found) = (vec![(fan, first)], false, BranchEnds::default());
        while let Some((from, node)) = open.pop() {
            if node == join {
                arrives = true;
                continue;
            }
            if leaves(node) {
                // A join that closes its fan-out waits for branches that leave it, too: they end there.
                if closes { continue } else { return None }
            }
            // A partial join does not wait for a branch that cannot come to it any more.
            if !closes && !self.branches.waits_for(join, node) {
                found.exits.push((from, node));
                continue;
            }
            if std::mem::replace(&mut seen[node], true) || nodes[node].ends_run() {
                continue;
            }
            let others = self.model.other_successors(node);
            open.extend(others.map(|next| (node, next)));
            found.broken.extend((!self.branches.broken(node).is_empty()).then_some(node));
            if begins(nodes[node].next()) {
                // Its branches may end, but the nodes after their join are visited all the same.
                open.push((node, self.branches.closing(node)?));
            } else {
                open.extend(self.model.successors(node).map(|next| (node, next)));
                found.at.extend(self.model.may_end(node).then_some(node));
            }
        }
        (arrives || !found.is_empty()).then_some(found)
    }

    /// Returns for each node the keys that nodes of other branches may write while it runs.
    fn beside(&self) -> Vec<Vec<usize>> {
        let nodes = &self.model.definition.nodes;
        let others: Vec<Option<(Vec<Set>, Set)>> = (0..nodes.len())
            .map(|fan| self.inside[fan].as_ref().map(|inside| self.others(fan, &inside.branches)))
            .collect();
        // For each frame, the keys that the other branches of the fan-outs around it may write. The first one is no branch.
        let mut around = vec![Set::empty(self.model.keys.len())];
        for &BranchFrame { outer, fan, label } in self.branches.branch_frames() {
            let mut keys: Set = around[outer].clone();
            if let Some((others, all)) = &others[fan] {
                keys.unite(match label {
                    BranchLabel::Edge(edge) => &others[edge],
                    BranchLabel::Join(_) => all,
                });
            }
            around.push(keys);
        }
        let of_node = |node: usize| {
            let mut keys = around[0].clone();
            self.branches.visits(node).for_each(|(_, visit)| keys.unite(&around[visit.frame]));
            keys.numbers().collect()
        };
        let mut beside: Vec<Vec<usize>> = (0..nodes.len()).map(of_node).collect();
        // Behind a partial join, a branch may be active beside others that began with the same edge. Late branches are active
        // beside the nodes behind their own join.
        if self.branches.partial().next().is_some() || self.branches.has_late() {
            for (node, keys) in beside.iter_mut().enumerate() {
                let writers = (0..nodes.len()).filter(|&other| !self.touches[other].is_empty());
                let concurrent = writers.filter(|&other| self.branches.are_concurrent(node, other));
                *keys =
                    sorted(keys.drain(..).chain(concurrent.flat_map(|other| self.touches[other].clone())).collect());
            }
        }
        beside
    }
}

fn sorted(mut keys: Vec<usize>) -> Vec<usize> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};
    use std::fmt::Write as _;

    use graph_definition::definition::{self, Definition, EntryDefinition, NodeKind, QuorumDefinition, Spanned};
    use graph_definition::diagnostic::Diagnostics;
    use graph_definition::source::SourceFile;
    use graph_definition::tree;
    use graph_model::name::NodeName;
    use graph_model::program::{OnBranchError, Rest};

    use super::super::flow::Flow;
    use super::super::reads::ProgramPoint;
    use super::*;
    use crate::items::Items;

    const KEYS: usize = 5;

    /// A gate of a random graph.
    #[derive(Debug, Clone, Default)]
    struct Gate {
        writes: BTreeSet<usize>,
        /// The targets, each with whether its edge has no condition; an edge without a target ends the branch.
        edges: Vec<(Option<usize>, bool)>,
        is_fan: bool,
        waits: bool,
        /// Whether it calls a tool, which may fail.
        calls: bool,
        /// Whether failures in its branches end the branch.
        collects: Option<bool>,
        /// How many branches it waits for, and the gate that is visited instead if fewer can arrive.
        quorum: Option<(usize, usize)>,
    }

    /// A generator of random graphs with nested fan-outs and joins.
    struct Builder {
        seed: u64,
        gates: Vec<Gate>,
    }

    impl Builder {
        fn below(&mut self, most: usize) -> usize {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.seed >> 33).unwrap() % most
        }

        fn gate(&mut self, edges: Vec<(Option<usize>, bool)>) -> usize {
            let writes = (0..self.below(3)).map(|_| self.below(KEYS)).collect();
            let calls = self.below(4) == 0;
            self.gates.push(Gate { writes, edges, calls, ..Gate::default() });
            self.gates.len() - 1
        }

        /// Creates a partial join that leads to `join`, and perhaps through another gate. Returns the partial join.
        fn partial(&mut self, join: usize) -> usize {
            let partial = self.gate(vec![(Some(join), true)]);
            self.gates[partial].waits = true;
            match self.below(3) {
                0 => {
                    let between = self.gate(vec![(Some(join), true)]);
                    self.gates[partial].edges = vec![(Some(between), true)];
                }
                1 => self.gates[partial].edges = vec![(Some(join), false), (None, true)],
                _ => {}
            }
            partial
        }

        /// Creates a part that leads to `next`, and returns its first gate.
        fn part(&mut self, depth: usize, next: usize) -> usize {
            match if depth == 0 { 0 } else { self.below(5) } {
                0 => self.gate(vec![(Some(next), true)]),
                1 => {
                    let second = self.part(depth - 1, next);
                    self.part(depth - 1, second)
                }
                2 => {
                    let (one, two) = (self.part(depth - 1, next), self.part(depth - 1, next));
                    let mut edges = vec![(Some(one), false), (Some(two), true)];
                    match self.below(5) {
                        0 => edges[1] = (None, true),
                        // It may lead around a partial join.
                        1 if self.gates[next].waits => {
                            let behind = self.gates[next].edges.first().and_then(|(to, _)| *to);
                            let behind = behind.filter(|&to| self.gates[to].waits && self.gates[next].quorum.is_none());
                            edges[1].0 = behind.or(Some(two));
                        }
                        2 => edges[1].0 = Some(self.gate(vec![(None, true)])),
                        _ => {}
                    }
                    self.gate(edges)
                }
                // Its branches lead to the join of the fan-out around it.
                3 if self.gates[next].waits && self.below(2) == 0 => {
                    let branches = (0..2).map(|_| (Some(self.part(0, next)), self.below(3) > 0)).collect();
                    let fan = self.gate(branches);
                    self.gates[fan].is_fan = true;
                    fan
                }
                _ => {
                    let join = self.gate(vec![(Some(next), true)]);
                    self.gates[join].waits = true;
                    if self.below(3) == 0 {
                        let need = 1 + self.below(3);
                        let fewer = self.gate(vec![(Some(next), true)]);
                        self.gates[join].quorum = Some((need, fewer));
                    }
                    let count = 1 + self.below(2);
                    let has_quorum = self.gates[join].quorum.is_some();
                    let partial = (!has_quorum && self.below(3) == 0).then(|| self.partial(join));
                    let branch = |builder: &mut Self, at: usize| {
                        let next = match partial {
                            Some(partial) if at < 2 => partial,
                            _ => join,
                        };
                        (Some(builder.part(depth - 1, next)), builder.below(3) > 0)
                    };
                    let mut branches: Vec<(Option<usize>, bool)> = Vec::new();
                    for at in 0..=count {
                        branches.push(branch(self, at));
                    }
                    let fan = self.gate(branches);
                    self.gates[fan].is_fan = true;
                    self.gates[fan].collects = [None, Some(true), Some(false)][self.below(3)];
                    if self.gates[join].quorum.is_some() {
                        self.gates[fan].collects = Some(true);
                    }
                    fan
                }
            }
        }
    }

    /// Writes the gates as a file with first-match lists, and turns these into the fan-outs and joins of the gates.
    fn define(gates: &[Gate], start: usize) -> Definition {
        let mut text = format!(
            "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/walker\ncategory: test\n\
             config:\n  start: n{start}\n  nodes:\n"
        );
        for (at, gate) in gates.iter().enumerate() {
            let kind = if gate.calls { "action: { item_id: test/tool }" } else { "type: gate" };
            writeln!(text, "    n{at}:\n      {kind}").unwrap();
            if !gate.writes.is_empty() {
                let writes: Vec<String> = gate.writes.iter().map(|key| format!("k{key}: 1")).collect();
                writeln!(text, "      assign: {{ {} }}", writes.join(", ")).unwrap();
            }
            if !gate.edges.is_empty() {
                writeln!(text, "      next:").unwrap();
            }
            for (to, always) in &gate.edges {
                let to = to.map(|to| format!("to: n{to}"));
                let when = (!always).then(|| format!("when: {{ path: inputs.i{at}, value: 1 }}"));
                let fields: Vec<String> = to.into_iter().chain(when).collect();
                writeln!(text, "        - {{ {} }}", fields.join(", ")).unwrap();
            }
        }
        let source = SourceFile::new("test/joins.yaml", "test/joins.yaml", &text);
        let file = tree::parse(&source, &mut Diagnostics::new()).unwrap();
        let mut definition = definition::parse_unfinished(&source, &file).unwrap();
        assert_eq!(definition.nodes.len(), gates.len(), "{text}");
        let names: Vec<_> = definition.nodes.iter().map(|node| node.name.clone()).collect();
        for (at, node) in definition.nodes.iter_mut().enumerate() {
            let next = match &mut node.kind {
                NodeKind::Gate(gate) => &mut gate.next,
                NodeKind::Action(action) => &mut action.next,
                _ => panic!("{text}"),
            };
            if gates[at].is_fan {
                let RouteDefinition::First(mut edges) = std::mem::replace(next, RouteDefinition::End) else {
                    panic!("{text}")
                };
                let policy = |collects| if collects { OnBranchError::Collect } else { OnBranchError::Stop };
                edges.on_branch_error = gates[at].collects.map(policy);
                *next = RouteDefinition::All(edges);
            }
            if gates[at].waits {
                let leads = |gate: &Gate| {
                    gate.edges.iter().any(|(to, _)| *to == Some(at))
                        || gate.quorum.is_some_and(|(_, fewer)| fewer == at)
                };
                node.waits_for =
                    gates.iter().zip(&names).filter(|(gate, _)| leads(gate)).map(|(_, name)| name.clone()).collect();
                node.quorum = gates[at].quorum.map(|(need, fewer)| QuorumDefinition {
                    need: Spanned { value: u32::try_from(need).unwrap(), span: 0..0 },
                    rest: Rest::Cancel,
                    fewer: Some(names[fewer].clone()),
                });
            }
        }
        definition
    }

    /// A run between two visits. Branches run in any order.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
    struct Run {
        set: BTreeSet<usize>,
        /// The node of each token, with the branches that it is inside of. No graph here visits a fan-out twice.
        tokens: Vec<(usize, Vec<Inside>)>,
        /// The fan-outs whose join was not visited yet, each with its join and the branches around it.
        open: Vec<(usize, usize, Vec<Inside>)>,
    }

    /// A fan-out and the index of one of its branches.
    type Inside = (usize, usize);

    /// Returns the keys that are set before each node in all runs, by following every run.
    fn oracle(
        gates: &[Gate],
        start: usize,
        joins: &[Option<usize>],
        partial: &[(usize, usize)],
        entries: &[(usize, Vec<Inside>)],
    ) -> Vec<Option<BTreeSet<usize>>> {
        let mut sure: Vec<Option<BTreeSet<usize>>> = vec![None; gates.len()];
        let first = Run { set: BTreeSet::new(), tokens: vec![(start, Vec::new())], open: Vec::new() };
        let entered = entries.iter().map(|(node, frames)| {
            let join = |(depth, (fan, _)): (usize, &Inside)| Some((*fan, joins[*fan]?, frames[..depth].to_vec()));
            let mut open: Vec<_> = frames.iter().enumerate().filter_map(join).collect();
            open.sort();
            Run { set: BTreeSet::new(), tokens: vec![(*node, frames.clone())], open }
        });
        let (mut seen, mut waiting) = (HashSet::new(), std::iter::once(first).chain(entered).collect::<Vec<_>>());
        while let Some(run) = waiting.pop() {
            if !seen.insert(run.clone()) {
                continue;
            }
            assert!(seen.len() < 400_000, "the graph is too large");
            // A join is visited when nothing inside of its fan-out runs any more, or its quorum is decided.
            let comes = |at: usize| {
                let (fan, join, _) = run.open[at];
                let branch = |frames: &[Inside]| frames.iter().find(|(of, _)| *of == fan).map(|(_, branch)| *branch);
                let inside = run.tokens.iter().filter_map(|(node, frames)| Some((*node == join, branch(frames)?)));
                let inside: Vec<(bool, usize)> = inside.collect();
                let arrived: BTreeSet<usize> =
                    inside.iter().filter(|(arrived, _)| *arrived).map(|(_, branch)| *branch).collect();
                let inner = run.open.iter().filter_map(|(_, _, around)| branch(around));
                let active = inside.iter().filter(|(arrived, _)| !arrived).map(|(_, branch)| *branch).chain(inner);
                let active: BTreeSet<usize> = active.collect();
                let possible = arrived.union(&active).count();
                match gates[join].quorum {
                    None => active.is_empty().then_some((at, join)),
                    Some((need, _)) if arrived.len() >= need => Some((at, join)),
                    Some((need, fewer)) => (possible < need).then_some((at, fewer)),
                }
            };
            if let Some((at, next)) = (0..run.open.len()).find_map(comes) {
                let mut after = run.clone();
                let (fan, _, around) = after.open.remove(at);
                let is_inside = |frames: &[Inside]| frames.iter().any(|(of, _)| *of == fan);
                after.tokens.retain(|(_, frames)| !is_inside(frames));
                after.open.retain(|(_, _, frames)| !is_inside(frames));
                after.tokens.push((next, around));
                after.tokens.sort();
                waiting.push(after);
                continue;
            }
            if let Some(after) = partial.iter().find_map(|&(join, fan)| come(&run, gates, joins, join, fan)) {
                waiting.push(after);
                continue;
            }
            for (at, (node, frames)) in run.tokens.iter().enumerate() {
                let is_behind = frames.iter().any(|&(_, branch)| branch == BEHIND + *node);
                let is_partial = partial.iter().any(|(join, _)| join == node) && !is_behind;
                let is_parked = is_partial || frames.iter().any(|&(fan, _)| joins[fan] == Some(*node));
                if is_parked {
                    continue;
                }
                let mut after = run.clone();
                after.tokens.remove(at);
                let collects = frames.iter().rev().find_map(|&(fan, _)| gates[fan].collects);
                if gates[*node].calls && collects == Some(true) {
                    // It writes nothing, and its branch ends.
                    waiting.push(after.clone());
                }
                match &mut sure[*node] {
                    Some(sure) => sure.retain(|key| run.set.contains(key)),
                    none => *none = Some(run.set.clone()),
                }
                after.set.extend(&gates[*node].writes);
                waiting.extend(visit(&gates[*node], *node, frames, &after, joins));
            }
        }
        sure
    }

    /// The index of the first branch behind a partial join; the gates' indices follow.
    const BEHIND: usize = 1_000;

    /// Returns the run after a partial join has come, if something came to it and nothing else inside of its fan-out leads to it.
    fn come(run: &Run, gates: &[Gate], joins: &[Option<usize>], join: usize, fan: usize) -> Option<Run> {
        let leads = |from: usize| {
            let (mut seen, mut open) = (HashSet::new(), vec![from]);
            while let Some(node) = open.pop() {
                if node == join && node != from {
                    return true;
                }
                if joins[fan] != Some(node) && seen.insert(node) {
                    let edges = gates[node].edges.iter().filter_map(|(to, _)| *to);
                    open.extend(edges.chain(joins[node].filter(|_| gates[node].is_fan)));
                }
            }
            false
        };
        let depth = |frames: &[Inside]| frames.iter().position(|(of, _)| *of == fan);
        let is_here = |(node, frames): &&(usize, Vec<Inside>)| {
            *node == join && depth(frames).is_some_and(|at| frames[at].1 != BEHIND + join)
        };
        let around = run.tokens.iter().find(is_here).map(|(_, frames)| frames[..depth(frames).unwrap()].to_vec())?;
        let waits = run.tokens.iter().any(|(node, frames)| depth(frames).is_some() && *node != join && leads(*node))
            || run.open.iter().any(|(_, other, frames)| depth(frames).is_some() && leads(*other));
        (!waits).then(|| {
            let mut after = run.clone();
            after.tokens.retain(|token| !is_here(&token));
            after.tokens.push((join, [&around[..], &[(fan, BEHIND + join)]].concat()));
            after.tokens.sort();
            after
        })
    }

    /// Returns the runs that a visit can lead to.
    fn visit(gate: &Gate, node: usize, frames: &[Inside], after: &Run, joins: &[Option<usize>]) -> Vec<Run> {
        if !gate.is_fan {
            let last = gate.edges.iter().position(|(_, always)| *always);
            let mut targets: Vec<Option<usize>> =
                gate.edges[..last.map_or(gate.edges.len(), |last| last + 1)].iter().map(|(to, _)| *to).collect();
            targets.extend(last.is_none().then_some(None));
            let go = |to: Option<usize>| {
                let mut run = after.clone();
                run.tokens.extend(to.map(|to| (to, frames.to_vec())));
                run.tokens.sort();
                run
            };
            return targets.into_iter().map(go).collect();
        }
        let free = gate.edges.iter().filter(|(_, always)| !always).count();
        let begin = |choice: usize| {
            let (mut run, mut asked) = (after.clone(), 0);
            for (branch, (to, always)) in gate.edges.iter().enumerate() {
                let is_taken = *always || choice >> asked & 1 == 1;
                asked += usize::from(!always);
                run.tokens.extend(to.filter(|_| is_taken).map(|to| (to, [frames, &[(node, branch)]].concat())));
            }
            run.tokens.sort();
            run.open.extend(joins[node].map(|join| (node, join, frames.to_vec())));
            run.open.sort();
            run
        };
        (0..1 << free).map(begin).collect()
    }

    /// Returns a gate where a run can begin, with the branches that it is in.
    fn entry_of(definition: &Definition, gates: &[Gate], items: &Items, seed: u64) -> Option<(usize, Vec<Inside>)> {
        let model = Model::new(definition, items);
        let branches = Branches::find(&model);
        let inside = |BranchFrame { fan, label, .. }: &BranchFrame| match label {
            BranchLabel::Edge(_) => (*fan, 0),
            BranchLabel::Join(join) => (*fan, BEHIND + join),
        };
        let place = |node: usize| Some((node, branches.entry(&model, node).ok()?.iter().map(inside).collect()));
        let mut places: Vec<(usize, Vec<Inside>)> =
            (0..gates.len()).filter(|&node| !gates[node].waits).filter_map(place).collect();
        // There are few behind partial joins.
        let is_behind = |(_, frames): &(usize, Vec<Inside>)| frames.iter().any(|(_, at)| *at >= BEHIND);
        if seed.is_multiple_of(2) && places.iter().any(is_behind) {
            places.retain(is_behind);
        }
        places.get(usize::try_from(seed >> 7).unwrap() % places.len().max(1)).cloned()
    }

    #[test]
    fn facts_after_joins_hold_in_every_run() {
        let items = Items::default();
        let (mut compared, mut at_joins, mut with_quorum, mut missed) = (0, 0, 0, 0);
        let (mut with_partial, mut refused, mut behind, mut entered, mut in_entered) = (0, 0, 0, 0, 0);
        let (mut nested, mut behind_partial) = (0, 0);
        // `GRAPHS=100000` makes more of them.
        let graphs = std::env::var("GRAPHS").map_or(8_000, |graphs| graphs.parse().unwrap());
        for seed in 0..graphs {
            let mut builder = Builder { seed, gates: vec![Gate::default()] };
            let start = builder.part(3, 0);
            let gates = std::mem::take(&mut builder.gates);
            if gates.len() > 14 {
                continue;
            }
            let mut definition = define(&gates, start);
            let entry = builder.seed.is_multiple_of(3);
            let named = |node: usize| NodeName::new(format!("n{node}")).unwrap();
            let found = entry.then(|| entry_of(&definition, &gates, &items, builder.seed)).flatten();
            definition.entries.extend(found.iter().map(|(node, _)| EntryDefinition {
                name: Spanned { value: named(*node), span: 0..0 },
                node: Spanned { value: named(*node), span: 0..0 },
                elements: Vec::new(),
                is_readable: true,
            }));
            let entries: Vec<(usize, Vec<Inside>)> = found.into_iter().collect();
            nested += usize::from(entries.iter().any(|(_, frames)| frames.len() > 1));
            behind_partial += usize::from(entries.iter().any(|(_, frames)| frames.iter().any(|(_, at)| *at >= BEHIND)));
            entered += usize::from(!entries.is_empty());
            let model = Model::new(&definition, &items);
            let flow = Flow::analyse(&model);
            let mut joins = vec![None; gates.len()];
            for (node, join) in flow.joins().all().filter(|(_, join)| join.closes) {
                joins[join.fan] = Some(node);
            }
            let partial: Vec<(usize, usize)> = flow.branches().partial().collect();
            let is_counted = |(_, fan): &(usize, usize)| joins[*fan].is_some_and(|join| gates[join].quorum.is_some());
            if !flow.branches().faults().is_empty() || partial.iter().any(is_counted) {
                refused += 1;
                continue;
            }
            with_partial += usize::from(!partial.is_empty());
            let sure = oracle(&gates, start, &joins, &partial, &entries);
            // A quorum may be decided before a node is visited, or always be met. A branch may not arrive if it begins branches
            // that have no join of their own.
            let has_quorum = gates.iter().any(|gate| gate.quorum.is_some());
            let joined = |(at, gate): (usize, &Gate)| !gate.is_fan || !flow.is_reached(at) || joins[at].is_some();
            let is_exact =
                !has_quorum && partial.is_empty() && entries.is_empty() && gates.iter().enumerate().all(joined);
            for (node, sure) in sure.iter().enumerate() {
                assert!(
                    flow.is_reached(node) == sure.is_some() || (!is_exact && sure.is_none()),
                    "seed {seed}: n{node}"
                );
                let Some(sure) = sure else { continue };
                for key in 0..KEYS {
                    let Some(index) = model.key(&format!("k{key}")) else { continue };
                    let said = flow.is_set(node, ProgramPoint::Before, index);
                    let is_right = said == sure.contains(&key) || (!is_exact && !said);
                    assert!(is_right, "seed {seed}: k{key} before n{node}, {entries:?} {joins:?} {gates:?}");
                    missed += usize::from(said != sure.contains(&key));
                    with_quorum += usize::from(has_quorum && said);
                    compared += 1;
                    in_entered += usize::from(said && !entries.is_empty());
                    at_joins += usize::from(gates[node].waits && said);
                    behind += usize::from(said && partial.iter().any(|(join, _)| *join == node));
                }
            }
        }
        println!(
            "{compared} facts, {at_joins} of them sure at a join, {behind} at one of {with_partial} partial joins; \
             {with_quorum} sure with a quorum, {in_entered} in {entered} graphs with an entry, {nested} of them in several fan-outs and {behind_partial} behind a partial \
             join, {missed} missed; {refused} graphs \
             refused"
        );
        assert!(entered > 100 && in_entered > 300, "{entered} {in_entered}");
        assert!(nested > 30 && behind_partial > 4, "{nested} {behind_partial}");
        assert!(with_partial > 100 && behind > 30, "{with_partial} {behind}");
        assert!(compared > 2_000 && at_joins > 100 && with_quorum > 200, "{compared} facts, {at_joins} {with_quorum}");
    }
}

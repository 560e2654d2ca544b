//! Fan-outs and the nodes that wait for their branches.
//!
//! A node that follows all of its edges that match, or leads to a node for each element of a list, begins branches. A
//! node with `waits_for` joins the branches of the innermost fan-out that all of its sources are inside of.

use graph_definition::definition::RouteDefinition;
use graph_model::condition::Condition;

use super::model::Model;

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
    /// The nodes at which it may end before the join.
    pub(crate) ends: Vec<usize>,
    /// For each node, whether the branch may visit it before the join.
    pub(crate) region: Vec<bool>,
    /// The keys that other branches may write.
    pub(crate) beside: Vec<usize>,
}

impl Joins {
    /// Finds the joins of a graph. `touches` has the keys that each node may write.
    pub(crate) fn find(model: &Model<'_>, touches: &[Vec<usize>]) -> Self {
        let nodes = &model.definition.nodes;
        let begins = |route: &RouteDefinition| matches!(route, RouteDefinition::All(_) | RouteDefinition::Each(_));
        if !nodes.iter().any(|node| begins(node.next()) || !node.waits_for.is_empty()) {
            return Self::default();
        }
        let fans: Vec<bool> = nodes.iter().map(|node| begins(node.next())).collect();
        let finder = Finder { model, touches, stacks: stacks(model, &fans), fans };
        let mut joins: Vec<Option<NodeJoin>> = (0..nodes.len()).map(|node| finder.join(node)).collect();
        let closing: Vec<Option<usize>> = (0..nodes.len()).map(|fan| finder.closing(fan)).collect();
        for (at, join) in joins.iter_mut().enumerate() {
            let Some(join) = join else { continue };
            join.closes = closing[join.fan] == Some(at);
            for branch in &mut join.branches {
                let ends = finder.ends(branch.first, at, &closing);
                branch.is_sure &= ends.is_some();
                branch.ends = ends.unwrap_or_default();
            }
        }
        let beside = finder.beside();
        Self { joins, beside }
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

/// For each node, the fan-outs whose branches it is in, the innermost last; `None` if no path leads to it.
type Stacks = Vec<Option<Vec<usize>>>;

/// Computes the fan-outs that each node is inside of.
fn stacks(model: &Model<'_>, fans: &[bool]) -> Stacks {
    let nodes = &model.definition.nodes;
    let mut stacks: Stacks = vec![None; nodes.len()];
    let Some(start) = model.start else { return stacks };
    stacks[start] = Some(Vec::new());
    let (mut open, mut waiting) = (vec![start], Vec::new());
    loop {
        while let Some(node) = open.pop() {
            for next in onward(model, node) {
                if stacks[next].is_some() {
                    continue;
                }
                if nodes[next].waits_for.is_empty() {
                    stacks[next] = inside(&stacks, fans, node, next, model);
                    open.push(next);
                } else if !waiting.contains(&next) {
                    waiting.push(next);
                }
            }
        }
        // A join whose sources are all known comes first. If there is no such join, the joins wait for each other.
        let sources = |join: usize| (0..nodes.len()).filter(move |&node| onward(model, node).any(|next| next == join));
        let ready = waiting.iter().position(|&join| sources(join).all(|node| stacks[node].is_some()));
        if waiting.is_empty() {
            return stacks;
        }
        let join = waiting.remove(ready.unwrap_or(0));
        let mut known = sources(join).filter_map(|node| inside(&stacks, fans, node, join, model));
        let first = known.next().unwrap_or_default();
        let mut common = known.fold(first, |common, other| {
            common.into_iter().zip(other).take_while(|(one, two)| one == two).map(|(one, _)| one).collect()
        });
        common.pop();
        stacks[join] = Some(common);
        open.push(join);
    }
}

/// Returns the fan-outs that a run is inside of after it went from a node to the next.
fn inside(stacks: &Stacks, fans: &[bool], node: usize, next: usize, model: &Model<'_>) -> Option<Vec<usize>> {
    let mut stack = stacks[node].clone()?;
    if fans[node] && model.successors(node).any(|one| one == next) {
        stack.push(node);
    }
    Some(stack)
}

fn onward<'m>(model: &'m Model<'_>, node: usize) -> impl Iterator<Item = usize> + 'm {
    model.successors(node).chain(model.error_successor(node))
}

struct Finder<'m, 'd> {
    model: &'m Model<'d>,
    touches: &'m [Vec<usize>],
    stacks: Stacks,
    /// For each node, whether it begins branches.
    fans: Vec<bool>,
}

impl Finder<'_, '_> {
    /// Returns the fan-out that a node joins.
    fn fan_of(&self, node: usize) -> Option<usize> {
        if self.model.definition.nodes[node].waits_for.is_empty() {
            return None;
        }
        let depth = self.stacks[node].as_ref()?.len();
        // All of its sources are inside of one more fan-out than the node itself.
        let sources = self.sources(node);
        let mut fans = sources
            .iter()
            .map(|&source| inside(&self.stacks, &self.fans, source, node, self.model)?.get(depth).copied());
        let first = fans.next()??;
        fans.all(|fan| fan == Some(first)).then_some(first)
    }

    fn sources(&self, join: usize) -> Vec<usize> {
        let leads = |node: &usize| self.stacks[*node].is_some() && onward(self.model, *node).any(|next| next == join);
        (0..self.stacks.len()).filter(leads).collect()
    }

    /// Finds the join of a node. Whether its branches surely end is determined when all joins are known.
    fn join(&self, node: usize) -> Option<NodeJoin> {
        let fan = self.fan_of(node)?;
        let regions: Vec<Vec<bool>> =
            self.model.successors(fan).map(|first| self.region(first, |next| next == node)).collect();
        let sure = self.is_begun(fan);
        let touched = |is_meant: &dyn Fn(usize) -> bool| {
            let regions = regions.iter().enumerate().filter(|(at, _)| is_meant(*at)).map(|(_, region)| region);
            self.touched(regions)
        };
        // All branches of a list begin with the same edge, so each runs concurrently with others of the same nodes.
        let is_list = matches!(self.model.definition.nodes[fan].next(), RouteDefinition::Each(_));
        let branch = |(edge, first): (usize, usize)| JoinedBranch {
            edge,
            first,
            is_sure: sure[edge],
            ends: Vec::new(),
            region: regions[edge].clone(),
            beside: touched(&|other| is_list || other != edge),
        };
        Some(NodeJoin {
            of: self.sources(node),
            fan,
            closes: false,
            branches: self.model.successors(fan).enumerate().map(branch).collect(),
            touches: touched(&|_| true),
        })
    }

    /// Returns for each edge of a fan-out that can be followed whether it is always followed.
    fn is_begun(&self, fan: usize) -> Vec<bool> {
        match self.model.definition.nodes[fan].next() {
            RouteDefinition::All(list) => {
                let is_always = |edge: usize| matches!(list.edges[edge].when, Condition::Always);
                self.model.edge_indices(fan).map(is_always).collect()
            }
            // The list may be empty.
            _ => self.model.successors(fan).map(|_| false).collect(),
        }
    }

    /// Returns the nodes that may be visited starting at a node, up to nodes at which the branch `ends`.
    fn region(&self, first: usize, ends: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut region = vec![false; self.stacks.len()];
        let mut open = vec![first];
        while let Some(node) = open.pop() {
            if !ends(node) && !std::mem::replace(&mut region[node], true) {
                open.extend(onward(self.model, node));
            }
        }
        region
    }

    fn touched<'r>(&self, regions: impl Iterator<Item = &'r Vec<bool>>) -> Vec<usize> {
        let mut keys: Vec<usize> = regions
            .flat_map(|region| region.iter().zip(self.touches).filter(|(inside, _)| **inside))
            .flat_map(|(_, touches)| touches.iter().copied())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the join that every branch of a fan-out either reaches or ends before.
    fn closing(&self, fan: usize) -> Option<usize> {
        if !self.fans[fan] {
            return None;
        }
        let mut joins = (0..self.stacks.len()).filter(|&node| self.fan_of(node) == Some(fan));
        let join = joins.next()?;
        // If there is another join of the same branches, or a path leads out of all of them, nothing is sure about this join.
        let depth = self.stacks[fan].as_ref()?.len();
        let leaves = |region: Vec<bool>| {
            let outside = |node: usize| self.stacks[node].as_ref().is_none_or(|stack| stack.len() <= depth);
            (0..region.len()).any(|node| region[node] && outside(node))
        };
        let is_left = self.model.successors(fan).any(|first| leaves(self.region(first, |node| node == join)));
        (joins.next().is_none() && !is_left).then_some(join)
    }

    /// Returns the nodes at which a branch may end before a join; `None` if that is not known, or if the branch does not end.
    fn ends(&self, first: usize, join: usize, closing: &[Option<usize>]) -> Option<Vec<usize>> {
        let nodes = &self.model.definition.nodes;
        let mut seen = vec![false; nodes.len()];
        let (mut open, mut arrives, mut ends) = (vec![first], false, Vec::new());
        while let Some(node) = open.pop() {
            if node == join {
                arrives = true;
                continue;
            }
            if std::mem::replace(&mut seen[node], true) || nodes[node].ends_run() {
                continue;
            }
            open.extend(self.model.error_successor(node));
            if self.fans[node] {
                // Its branches may end, but the nodes after their join are visited all the same.
                open.push(closing[node]?);
            } else {
                open.extend(self.model.successors(node));
                ends.extend(self.model.may_end(node).then_some(node));
            }
        }
        (arrives || !ends.is_empty()).then_some(ends)
    }

    /// Returns for each node the keys that nodes of other branches may write while it runs.
    fn beside(&self) -> Vec<Vec<usize>> {
        let mut beside = vec![Vec::new(); self.stacks.len()];
        for fan in (0..self.fans.len()).filter(|&fan| self.fans[fan]) {
            let Some(depth) = self.stacks[fan].as_ref().map(Vec::len) else { continue };
            let is_out = |node: usize| self.stacks[node].as_ref().is_none_or(|stack| stack.len() <= depth);
            let regions: Vec<Vec<bool>> = self.model.successors(fan).map(|first| self.region(first, is_out)).collect();
            let is_list = matches!(self.model.definition.nodes[fan].next(), RouteDefinition::Each(_));
            for (at, region) in regions.iter().enumerate() {
                let others = regions.iter().enumerate().filter(|(other, _)| is_list || *other != at);
                let keys = self.touched(others.map(|(_, region)| region));
                for node in (0..region.len()).filter(|&node| region[node]) {
                    beside[node].extend(&keys);
                }
            }
        }
        beside
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};
    use std::fmt::Write as _;

    use graph_definition::definition::{self, Definition, NodeKind};
    use graph_definition::diagnostic::Diagnostics;
    use graph_definition::source::SourceFile;
    use graph_definition::tree;

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
            self.gates.push(Gate { writes, edges, ..Gate::default() });
            self.gates.len() - 1
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
                    if self.below(3) == 0 {
                        edges[1] = (None, true);
                    }
                    self.gate(edges)
                }
                _ => {
                    let join = self.gate(vec![(Some(next), true)]);
                    self.gates[join].waits = true;
                    let count = 1 + self.below(2);
                    let branches = (0..=count).map(|_| (Some(self.part(depth - 1, join)), self.below(3) > 0)).collect();
                    let fan = self.gate(branches);
                    self.gates[fan].is_fan = true;
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
            writeln!(text, "    n{at}:\n      type: gate").unwrap();
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
            let NodeKind::Gate(gate) = &mut node.kind else { panic!("{text}") };
            if gates[at].is_fan {
                let RouteDefinition::First(edges) = std::mem::replace(&mut gate.next, RouteDefinition::End) else {
                    panic!("{text}")
                };
                gate.next = RouteDefinition::All(edges);
            }
            if gates[at].waits {
                let leads = |gate: &Gate| gate.edges.iter().any(|(to, _)| *to == Some(at));
                node.waits_for =
                    gates.iter().zip(&names).filter(|(gate, _)| leads(gate)).map(|(_, name)| name.clone()).collect();
            }
        }
        definition
    }

    /// A run between two visits. Branches run in any order.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
    struct Run {
        set: BTreeSet<usize>,
        /// The node of each token, with the fan-outs that it is inside of. No graph here visits a fan-out twice.
        tokens: Vec<(usize, Vec<usize>)>,
        /// The fan-outs whose join was not visited yet, each with its join and the fan-outs around it.
        open: Vec<(usize, usize, Vec<usize>)>,
    }

    /// Returns the keys that are set before each node in all runs, by following every run.
    fn oracle(gates: &[Gate], start: usize, joins: &[Option<usize>]) -> Vec<Option<BTreeSet<usize>>> {
        let mut sure: Vec<Option<BTreeSet<usize>>> = vec![None; gates.len()];
        let first = Run { set: BTreeSet::new(), tokens: vec![(start, Vec::new())], open: Vec::new() };
        let (mut seen, mut waiting) = (HashSet::new(), vec![first]);
        while let Some(run) = waiting.pop() {
            if !seen.insert(run.clone()) {
                continue;
            }
            assert!(seen.len() < 400_000, "the graph is too large");
            // A join is visited when nothing inside of its fan-out runs any more.
            let comes = run.open.iter().position(|(fan, join, _)| {
                run.tokens.iter().all(|(node, frames)| node == join || !frames.contains(fan))
                    && !run.open.iter().any(|(_, _, around)| around.contains(fan))
            });
            if let Some(at) = comes {
                let mut after = run.clone();
                let (fan, join, around) = after.open.remove(at);
                after.tokens.retain(|(_, frames)| !frames.contains(&fan));
                after.tokens.push((join, around));
                after.tokens.sort();
                waiting.push(after);
                continue;
            }
            for (at, (node, frames)) in run.tokens.iter().enumerate() {
                let is_parked = frames.last().is_some_and(|&fan| joins[fan] == Some(*node));
                if is_parked {
                    continue;
                }
                let mut after = run.clone();
                after.tokens.remove(at);
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

    /// Returns the runs that a visit can lead to.
    fn visit(gate: &Gate, node: usize, frames: &[usize], after: &Run, joins: &[Option<usize>]) -> Vec<Run> {
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
            for (to, always) in &gate.edges {
                let is_taken = *always || choice >> asked & 1 == 1;
                asked += usize::from(!always);
                run.tokens.extend(to.filter(|_| is_taken).map(|to| (to, [frames, &[node]].concat())));
            }
            run.tokens.sort();
            run.open.push((node, joins[node].unwrap(), frames.to_vec()));
            run.open.sort();
            run
        };
        (0..1 << free).map(begin).collect()
    }

    #[test]
    fn facts_after_joins_hold_in_every_run() {
        let items = Items::default();
        let (mut compared, mut at_joins) = (0, 0);
        for seed in 0..400 {
            let mut builder = Builder { seed, gates: vec![Gate::default()] };
            let start = builder.part(3, 0);
            let gates = builder.gates;
            if gates.len() > 14 {
                continue;
            }
            let definition = define(&gates, start);
            let model = Model::new(&definition, &items);
            let flow = Flow::analyse(&model);
            let mut joins = vec![None; gates.len()];
            for (node, join) in flow.joins().all() {
                assert!(join.closes, "seed {seed}: n{node}");
                joins[join.fan] = Some(node);
            }
            for (at, gate) in gates.iter().enumerate() {
                assert_eq!(gate.is_fan && flow.is_reached(at), joins[at].is_some(), "seed {seed}: n{at} {gates:?}");
            }
            let sure = oracle(&gates, start, &joins);
            for (node, sure) in sure.iter().enumerate() {
                assert_eq!(flow.is_reached(node), sure.is_some(), "seed {seed}: n{node} {gates:#?}");
                let Some(sure) = sure else { continue };
                for key in 0..KEYS {
                    let Some(index) = model.key(&format!("k{key}")) else { continue };
                    let said = flow.is_set(node, ProgramPoint::Before, index);
                    assert_eq!(said, sure.contains(&key), "seed {seed}: k{key} before n{node}, {gates:#?}");
                    compared += 1;
                    at_joins += usize::from(gates[node].waits && said);
                }
            }
        }
        assert!(compared > 2_000 && at_joins > 100, "{compared} facts, {at_joins} of them sure at a join");
    }
}

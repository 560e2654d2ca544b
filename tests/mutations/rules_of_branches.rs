//! The judge's rules for graphs with branches: it describes a graph for the player, and compares joins, entries,
//! channels, elements and routes with what the format says of them.

use std::collections::BTreeSet;

use graph_compiler::tree::{TreeNode as Value, YamlTree};

use super::super::model::{Callee, Form, Kind, Node, Path, Type, fields, get, text_of};
use super::super::places::{self, ELEMENT, Failure, Leads, Map, Quorum, Stop, Way, Word};
use super::super::playing;
use super::{Fault, Judge, LAST_ERROR, Site};

/// Facts about keys, each a bit.
#[derive(Default)]
pub(super) struct Facts(Vec<String>);

impl Facts {
    fn bit(&mut self, name: &str) -> u128 {
        let at = self.0.iter().position(|other| other == name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        });
        1_u128.checked_shl(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    fn bits<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) -> u128 {
        names.into_iter().fold(0, |bits, name| bits | self.bit(name))
    }

    fn names(&self, bits: u128) -> BTreeSet<String> {
        self.0.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, name)| name.clone()).collect()
    }
}

/// Returns the type of a channel after a write of a type.
pub(super) fn combined(reducer: Option<&str>, write: Type) -> Type {
    let list = |element: Type| Type::of(Kind::List(Box::new(element)));
    match reducer {
        Some("append") => list(write),
        Some("messages") if !matches!(write.kind, Kind::List(_)) => list(write),
        Some("extend" | "union") if !matches!(write.kind, Kind::List(_)) => list(Type::any()),
        Some("merge" | "") => Type::any(),
        _ => write,
    }
}

/// Whether a channel has a value before the first write.
fn begins(reducer: &str) -> bool {
    matches!(reducer, "append" | "extend" | "union" | "sum" | "messages")
}

impl<'g> Judge<'g> {
    /// Returns the name of a channel's reducer, which is empty for a function of the program.
    pub(super) fn reducer(&self, key: &str) -> Option<&'g str> {
        self.graph.channels().into_iter().find(|(channel, ..)| channel.name == key).map(|(_, reducer, _)| reducer)
    }

    /// Returns the function of the program that combines the writes to a channel.
    pub(super) fn program(&self, channel: &YamlTree) -> Option<&'g Callee> {
        self.callees.get(get(channel, "reduce").and_then(|reduce| get(reduce, "item_id")).and_then(text_of)?)
    }

    fn node_at(&self, tree: Option<&YamlTree>) -> Option<usize> {
        tree.and_then(text_of).and_then(|name| self.index.get(name).copied())
    }

    /// Describes the graph for the player.
    pub(super) fn map(&self, facts: &mut Facts) -> Map {
        let mut map = Map { failed: facts.bit(LAST_ERROR), ..Map::default() };
        map.fails_without_match = self.graph.says("on_no_match", "fail");
        let first = self.graph.config("state").map(fields).unwrap_or_default();
        map.given = facts.bits(first.iter().map(|(key, _)| key.name.as_str()));
        for (key, reducer, tree) in self.graph.channels() {
            if begins(reducer) && get(tree, "keep").and_then(text_of) != Some("memory") {
                map.given |= facts.bit(&key.name);
            }
        }
        map.stops = (0..self.nodes.len()).map(|at| self.stop(at, facts)).collect();
        map.start = self.start();
        if let [_, _, ..] = self.graph.starts().as_slice() {
            let way = |name: &&YamlTree| Way { to: self.node_at(Some(name)), is_sure: true, gains: 0 };
            let leads = Leads::All(self.graph.starts().iter().map(way).collect());
            map.start = Some(map.stops.len());
            map.stops.push(Stop { leads, ..Stop::nothing() });
        }
        map.entries = self.graph.entries().iter().filter_map(|(_, node, _)| self.node_at(*node)).collect();
        map
    }

    fn stop(&self, at: usize, facts: &mut Facts) -> Stop {
        let node = self.nodes[at];
        let mut ways: Vec<Way> = Vec::new();
        for edge in node.edges() {
            let gains = self.guards(&node, edge.when);
            let gains = facts.bits(gains.iter().map(String::as_str));
            ways.push(Way { to: self.node_at(edge.to), is_sure: edge.when.is_none(), gains });
            if node.form() == Form::First && edge.when.is_none() {
                break;
            }
        }
        let leads = match node.form() {
            _ if node.is("return") => Leads::Return,
            Form::All => Leads::All(ways),
            Form::Over => Leads::Over(self.node_at(node.of_next("to"))),
            Form::First => {
                let is_open = ways.iter().all(|way| !way.is_sure) && !self.covers(&node);
                if is_open && !self.graph.says("on_no_match", "fail") {
                    ways.push(Way { to: None, is_sure: true, gains: 0 });
                }
                Leads::One(ways)
            }
            Form::None => Leads::One(vec![Way { to: None, is_sure: true, gains: 0 }]),
            Form::One | Form::By => Leads::One(ways),
        };
        // A sum may be too large for its type.
        let adds = node.assign().iter().any(|(key, _)| self.reducer(&key.name) == Some("sum"));
        let failure = if !node.is("action") && !node.is("foreach") {
            if adds { Failure::Unhandled } else { Failure::Never }
        } else if let Some(to) = node.get("on_error") {
            Failure::To(self.node_at(Some(to)))
        } else if self.continues_after_failure(&node) {
            Failure::Continues
        } else if self.graph.says("on_error", "continue") {
            Failure::Never
        } else {
            Failure::Unhandled
        };
        let quorum = node.of_quorum("need").map(|need| Quorum {
            need: number(need),
            finishes: node.of_quorum("rest").and_then(text_of) == Some("finish"),
            fewer: node.of_quorum("fewer").map(|to| self.node_at(Some(to))),
        });
        let written = self.written(at);
        let mut stop = Stop {
            leads,
            failure,
            is_join: node.get("waits_for").is_some(),
            quorum,
            cancels: node.get("cancels").is_some_and(|cancels| cancels.node == Value::Boolean(true)),
            on_branch_error: node.of_next("on_branch_error").and_then(text_of).map(|word| match word {
                "collect" => Word::Collect,
                "finish" => Word::Finish,
                _ => Word::Stop,
            }),
            most: node.of_next("most").map_or(usize::MAX, number),
            sets: facts.bits(written.iter().map(String::as_str)),
            ..Stop::nothing()
        };
        self.meetings_of_keys(&node, &mut stop, facts);
        stop
    }

    /// Describes which keys a node reads, replaces and adds to.
    fn meetings_of_keys(&self, node: &Node<'g>, stop: &mut Stop, facts: &mut Facts) {
        let mut read: Vec<Path> = self.graph.expressions(node.tree).into_iter().flat_map(|one| one.paths).collect();
        read.extend(node.of_next("by").and_then(text_of).map(|path| Path::new(path, 0..0)));
        for condition in node.edges().iter().filter_map(|edge| edge.when) {
            super::comparisons(condition, &mut |test| {
                read.extend(get(test, "path").and_then(text_of).map(|path| Path::new(path, 0..0)));
            });
        }
        stop.reads = facts.bits(read.iter().filter_map(Path::key).filter(|key| !key.starts_with('_')));
        for key in node.resets().into_iter().filter_map(text_of) {
            let bit = facts.bit(key);
            stop.replaces |= bit;
            stop.writes |= bit;
        }
        let assigned = node.assign().iter().map(|(key, value)| (key.name.as_str(), Some(value)));
        let collected = node.get("collect").and_then(text_of).map(|key| (key, None));
        for (key, value) in assigned.chain(collected) {
            let bit = facts.bit(key);
            stop.writes |= bit;
            match self.reducer(key) {
                None | Some("last") => stop.replaces |= bit,
                // Two branches may merge different fields.
                Some("merge") => {
                    for (field, _) in value.map(fields).unwrap_or_default() {
                        let bit = facts.bit(&format!("{key} has {}", field.name));
                        stop.replaces |= bit;
                        stop.writes |= bit;
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Follows the runs of a graph with branches.
    pub(super) fn branches(&mut self) {
        let mut facts = Facts::default();
        let map = self.map(&mut facts);
        let places = places::places(&map);
        self.faults.extend(places.faults.iter().copied());
        self.targets();
        self.firsts();
        self.sources(&map);
        self.entries(&places, &map);
        let is_sound = self.faults.is_empty();
        let played = if is_sound { playing::play(&map, &places) } else { playing::Played::default() };
        let is_whole = played.is_whole;
        self.places = Some(places);
        self.names_of_elements();
        for at in 0..self.nodes.len() {
            let all = facts.names(u128::MAX);
            self.before[at] = if is_whole { played.before[at].map(|bits| facts.names(bits)) } else { Some(all) };
        }
        self.channels();
        self.faults.extend(played.faults);
        if !is_whole {
            return;
        }
        if self.before.iter().any(Option::is_none) {
            self.fault(Fault::Unreachable);
        }
        // The branches of a run that begins in several nodes begin nowhere.
        let begins = usize::from(map.stops.len() > self.nodes.len());
        if played.shortest.is_some_and(|far| far as u64 - begins as u64 > self.most_steps()) && !self.is_lengthened() {
            self.fault(Fault::Budget);
        }
    }

    /// Checks that all targets exist.
    fn targets(&mut self) {
        for node in self.nodes.clone() {
            let targets = node.edges().into_iter().filter_map(|edge| edge.to);
            let all = targets.chain(node.get("on_error")).chain(node.of_quorum("fewer"));
            if all.into_iter().any(|to| self.node_at(Some(to)).is_none()) {
                self.fault(Fault::Target);
            }
        }
    }

    fn firsts(&mut self) {
        let starts = self.graph.starts();
        let found: BTreeSet<usize> = starts.iter().filter_map(|start| self.node_at(Some(start))).collect();
        let is_join = |at: &usize| self.nodes[*at].get("waits_for").is_some();
        let cancels = |at: &usize| starts.len() > 1 && self.nodes[*at].get("cancels").is_some();
        if found.len() < starts.len() || starts.is_empty() || found.iter().any(|at| is_join(at) || cancels(at)) {
            self.fault(Fault::Start);
        }
    }

    /// Checks that each join names exactly the nodes that lead to it.
    fn sources(&mut self, map: &Map) {
        for (at, node) in self.nodes.clone().into_iter().enumerate() {
            if node.get("waits_for").is_none() {
                continue;
            }
            let named: Vec<Option<usize>> = node.waits_for().into_iter().map(|name| self.node_at(Some(name))).collect();
            let all: BTreeSet<usize> = named.iter().filter_map(|at| *at).collect();
            let leading: BTreeSet<usize> = map.sources(at).into_iter().filter(|at| *at < self.nodes.len()).collect();
            if named.contains(&None) || all != leading || all.is_empty() {
                self.fault(Fault::Sources);
            }
        }
    }

    /// Checks that an entry leads to a node where a run can begin.
    fn entries(&mut self, places: &places::Places, map: &Map) {
        for (_, node, tree) in self.graph.entries() {
            let Some(at) = self.node_at(node) else { return self.fault(Fault::Entry) };
            let stop = &map.stops[at];
            if stop.is_join || stop.cancels {
                self.fault(Fault::Entry);
            }
            let visits: Vec<_> = places.visits[at].iter().collect();
            let [frames] = visits.as_slice() else {
                // An unreachable node is a fault of its own; one with several places has no branch to begin.
                if visits.len() > 1 {
                    self.fault(Fault::Entry);
                }
                continue;
            };
            let element = get(tree, "element").and_then(text_of).map(|path| Path::new(path, 0..0));
            let (mut is_list, mut taken) = (false, Type::any());
            match frames.as_slice() {
                [] => {}
                [frame] => {
                    let joins: Vec<usize> = places
                        .joins
                        .iter()
                        .filter(|(_, place)| place.fan == frame.fan)
                        .map(|(join, _)| *join)
                        .collect();
                    let [join] = joins.as_slice() else { return self.fault(Fault::Entry) };
                    if map.stops[*join].quorum.is_some() {
                        self.fault(Fault::Entry);
                    }
                    if frame.branch == ELEMENT {
                        is_list = true;
                        taken = self.element_of(frame.fan);
                    }
                }
                _ => self.fault(Fault::Entry),
            }
            if is_list != element.is_some() {
                self.fault(Fault::Entry);
            }
            if let Some(path) = element {
                let given = (path.root() == "inputs").then(|| self.type_of(None, Site::Before, &path)).flatten();
                if !given.is_some_and(|given| given.fits(&taken)) {
                    self.fault(Fault::Entry);
                }
            }
        }
    }

    /// Checks that each channel is written, that its writes and its first value fit, and that it can be reset.
    fn channels(&mut self) {
        let list = |ty: &Type| matches!(ty.kind, Kind::List(_) | Kind::Any);
        let is_number = |ty: &Type| matches!(ty.kind, Kind::Integer | Kind::Number | Kind::Any);
        let is_text = |ty: &Type| matches!(ty.kind, Kind::Text | Kind::Enum(_) | Kind::Any);
        let is_object = |ty: &Type| matches!(ty.kind, Kind::Object(_) | Kind::Map(_) | Kind::Any);
        for (key, reducer, tree) in self.graph.channels() {
            let first = self.graph.config("state").and_then(|state| get(state, &key.name)).map(Type::from_literal);
            let mut written: Vec<Type> = Vec::new();
            let mut is_collected = false;
            for node in self.nodes.clone() {
                for (_, value) in node.assign().iter().filter(|(assigned, _)| assigned.name == key.name) {
                    let ty = self.type_of_term(Some(node), Site::After, value);
                    let is_null = ty.kind == Kind::Never || ty.nullable && ty.kind != Kind::Any;
                    if reducer != "last" && is_null && !self.is_something(Some(node), value) {
                        self.fault(Fault::Channel);
                    }
                    written.push(ty);
                }
                is_collected |= node.get("collect").and_then(text_of) == Some(key.name.as_str());
            }
            let both: Vec<&Type> = written.iter().chain(&first).collect();
            let fits = match reducer {
                "append" => !is_collected && first.as_ref().is_none_or(list),
                "extend" | "union" => both.iter().all(|ty| list(ty)),
                "sum" => both.iter().all(|ty| is_number(ty)) && !is_collected,
                "max" | "min" => {
                    !is_collected && (both.iter().all(|ty| is_number(ty)) || both.iter().all(|ty| is_text(ty)))
                }
                "merge" => both.iter().all(|ty| is_object(ty)) && !is_collected,
                "messages" => {
                    let is_one =
                        |ty: &Type| if let Kind::List(element) = &ty.kind { is_object(element) } else { is_object(ty) };
                    written.iter().all(is_one) && first.as_ref().is_none_or(list)
                }
                "last" => true,
                _ => self.program(tree).is_some_and(|callee| {
                    written.iter().all(|ty| ty.fits(&callee.params)) && first.iter().all(|ty| ty.fits(&callee.result))
                }),
            };
            let is_ordered = get(tree, "order").is_some() && !matches!(reducer, "append" | "extend");
            if !fits || is_ordered || (written.is_empty() && !is_collected) {
                self.fault(Fault::Channel);
            }
            let is_for_params = get(tree, "keep").and_then(text_of) == Some("memory");
            if is_for_params && (is_collected || first.is_some() || self.is_read_outside_of_params(&key.name)) {
                self.fault(Fault::Channel);
            }
        }
        for key in self.nodes.clone().iter().flat_map(Node::resets) {
            let name = text_of(key).unwrap_or_default();
            let has_first = self.graph.config("state").is_some_and(|state| get(state, name).is_some());
            if !self.reducer(name).is_some_and(|reducer| begins(reducer) || has_first) {
                self.fault(Fault::Channel);
            }
        }
    }

    fn is_read_outside_of_params(&self, key: &str) -> bool {
        let reads = |tree: &YamlTree| {
            let mut paths = self.graph.expressions(tree).into_iter().flat_map(|one| one.paths);
            paths.any(|path| path.key() == Some(key))
        };
        let tests = |node: &Node<'g>| {
            let mut found =
                node.of_next("by").and_then(text_of).is_some_and(|path| Path::new(path, 0..0).key() == Some(key));
            for condition in node.edges().iter().filter_map(|edge| edge.when) {
                super::comparisons(condition, &mut |test| {
                    let path = get(test, "path").and_then(text_of).map(|path| Path::new(path, 0..0));
                    found |= path.is_some_and(|path| path.key() == Some(key));
                });
            }
            found
        };
        let outside = ["assign", "output", "over", "next"];
        self.nodes.iter().any(|node| outside.iter().filter_map(|name| node.get(name)).any(reads) || tests(node))
    }

    /// Checks that the name of an element is free where its branches begin.
    fn names_of_elements(&mut self) {
        let Some(places) = &self.places else { return };
        let name = |fan: usize| self.nodes.get(fan).and_then(name_of_element);
        let is_taken = |fan: usize| {
            let own = name(fan);
            let taken = ["state", "inputs", "result", "visit", "_now", "_timestamp"];
            let around = |frame: &places::Frame| frame.branch == ELEMENT && name(frame.fan) == own;
            own.is_some_and(|own| taken.contains(&own))
                || own.is_some() && places.visits[fan].iter().flatten().any(around)
        };
        if (0..self.nodes.len()).any(is_taken) {
            self.fault(Fault::Element);
        }
    }

    /// Returns the type of the element with this name at a node, if each of its visits is in a branch of such a list.
    pub(super) fn element(&self, node: Node<'g>, name: &str) -> Option<Type> {
        let places = self.places.as_ref()?;
        let mut fans = BTreeSet::new();
        for frames in &places.visits[self.index[node.name()]] {
            let is_own = |frame: &&places::Frame| {
                frame.branch == ELEMENT && self.nodes.get(frame.fan).and_then(name_of_element) == Some(name)
            };
            fans.insert(frames.iter().rev().find(is_own)?.fan);
        }
        fans.into_iter().map(|fan| self.element_of(fan)).reduce(Type::join)
    }

    /// Whether a path names the element of some list.
    pub(super) fn is_element(&self, path: &Path) -> bool {
        self.nodes.iter().filter_map(name_of_element).any(|name| name == path.root())
    }

    /// Returns the type of the elements that a fan-out has.
    fn element_of(&self, fan: usize) -> Type {
        let node = self.nodes[fan];
        let list = node.of_next("over").map_or_else(Type::any, |over| self.type_of_term(Some(node), Site::After, over));
        if let Kind::List(element) = list.kind { *element } else { Type::any() }
    }

    /// Returns the type of `visit.branch`.
    pub(super) fn index_of_branch(&self, node: Node<'g>) -> Option<Type> {
        let visits = &self.places.as_ref()?.visits[self.index[node.name()]];
        let inside = visits.iter().filter(|frames| !frames.is_empty()).count();
        let ty = Type::of(Kind::Integer);
        (inside > 0).then(|| if inside < visits.len() { ty.or_null() } else { ty })
    }

    /// Whether a node may be visited outside of all branches.
    pub(super) fn is_outside(&self, name: &str) -> bool {
        let visits = self.places.as_ref().map(|places| &places.visits[self.index[name]]);
        visits.is_none_or(|visits| visits.iter().any(Vec::is_empty))
    }

    /// Checks that a route has a target for each value, and no others.
    pub(super) fn route(&mut self, node: Node<'g>, path: &Path, set: Option<&BTreeSet<String>>) {
        if path.key().is_some_and(|key| !super::is_set(key, set)) {
            self.fault(Fault::Unset);
        }
        let Some(ty) = self.type_of(Some(node), Site::After, path) else { return self.unknown(path) };
        let mut values: BTreeSet<&str> = match &ty.kind {
            Kind::Enum(members) => members.iter().map(String::as_str).collect(),
            Kind::Boolean => BTreeSet::from(["true", "false"]),
            Kind::Any => return,
            _ => return self.fault(Fault::Route),
        };
        if ty.nullable || path.root() == "result" && self.continues_after_failure(&node) {
            values.insert("null");
        }
        let targets = node.of_next("to").map(fields).unwrap_or_default();
        if targets.iter().map(|(key, _)| key.name.as_str()).collect::<BTreeSet<_>>() != values {
            self.fault(Fault::Route);
        }
    }
}

/// Returns the name of an element of a fan-out over a list.
fn name_of_element<'g>(node: &Node<'g>) -> Option<&'g str> {
    (node.form() == Form::Over).then(|| node.of_next("as").and_then(text_of).unwrap_or("item"))
}

fn number(tree: &YamlTree) -> usize {
    let number = if let Value::Number(number) = &tree.node { number.as_u64() } else { None };
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

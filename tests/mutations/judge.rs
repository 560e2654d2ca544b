//! Decides whether a graph still has a sensible meaning, by rules derived from `docs/format.md` and separate from the
//! compiler's.
//!
//! Some mistakes are not wrong in any graph, such as an edge that leads to another node. A mutant with such a mistake
//! is wrong if, and only if, a rule here finds a fault.

#[path = "rules_of_branches.rs"]
mod rules_of_branches;

use std::collections::{BTreeMap, BTreeSet};

use graph_compiler::tree::{TreeKey, TreeNode as Value, YamlTree};

use super::model::{
    Callees, Expression, Field, Form, Graph, Kind, Node, Path, Type, called, comparisons, fields, get, items, operator,
    text_of,
};
use super::places::{self, Places};
use rules_of_branches::{Facts, combined};

/// A fault of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Target,
    Unreachable,
    NoEnd,
    Budget,
    OpenCase,
    DeadEdge,
    Unset,
    Unknown,
    WrongType,
    MayBeNull,
    Incomparable,
    Constant,
    Parameters,
    DeadWrite,
    Uncovered,
    TooWide,
    Sources,
    Meeting,
    Outside,
    Circle,
    Again,
    Beside,
    Lost,
    Race,
    RacingRead,
    Element,
    Route,
    Channel,
    Short,
    Quorum,
    Cancels,
    Entry,
    Start,
}

impl Fault {
    /// The faults that only a graph with branches has.
    pub(crate) const OF_BRANCHES: [Self; 17] = [
        Self::Sources,
        Self::Meeting,
        Self::Outside,
        Self::Circle,
        Self::Again,
        Self::Beside,
        Self::Lost,
        Self::Race,
        Self::RacingRead,
        Self::Element,
        Self::Route,
        Self::Channel,
        Self::Short,
        Self::Quorum,
        Self::Cancels,
        Self::Entry,
        Self::Start,
    ];

    /// Describes the fault in a few words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Target => "an edge leads to a node that does not exist",
            Self::Unreachable => "no run reaches a node",
            Self::NoEnd => "a run that comes to a node cannot end",
            Self::Budget => "the shortest path needs more steps than are allowed",
            Self::OpenCase => "a list of edges leaves a case open",
            Self::DeadEdge => "an edge is never followed",
            Self::Unset => "a key is read that some paths do not set",
            Self::Unknown => "a path leads to nothing",
            Self::WrongType => "a value has the wrong type for its place",
            Self::MayBeNull => "a value may be null where null is not allowed",
            Self::Incomparable => "values of different kinds are compared",
            Self::Constant => "a condition always holds",
            Self::Parameters => "the parameters of a call do not match those of the tool",
            Self::DeadWrite => "a key is written and never read",
            Self::Uncovered => "no permission covers a call",
            Self::TooWide => "a permission grants more than the calls need",
            Self::Sources => "a join does not name the nodes that lead to it",
            Self::Meeting => "branches meet at a node that does not wait for them",
            Self::Outside => "a path leads to a join from outside of its fan-out",
            Self::Circle => "a join waits for itself",
            Self::Again => "a branch leads back to its fan-out",
            Self::Beside => "a run returns beside a branch",
            Self::Lost => "a branch ends, and no join follows",
            Self::Race => "two branches write one key",
            Self::RacingRead => "a node reads a key that another branch writes",
            Self::Element => "the element of a list is read outside of its branches",
            Self::Route => "a route by a value does not fit the value",
            Self::Channel => "a channel is declared, written or reset in a way that does not fit it",
            Self::Short => "a quorum may fall short, and nothing follows",
            Self::Quorum => "a quorum does not fit its fan-out",
            Self::Cancels => "a return cancels nothing",
            Self::Entry => "no run can begin at an entry",
            Self::Start => "the first nodes are not different nodes without `waits_for`",
        }
    }
}

/// The place of an expression.
#[derive(Clone, Copy, PartialEq)]
enum Site {
    Before,
    Item,
    After,
    Output,
    Hook,
}

/// A graph, and the facts that follow from it.
struct Judge<'g> {
    graph: &'g Graph,
    callees: &'g Callees,
    nodes: Vec<Node<'g>>,
    index: BTreeMap<&'g str, usize>,
    inputs: Type,
    keys: BTreeMap<String, Type>,
    /// The keys that are set on all paths to a node; `None` if there is no path.
    before: Vec<Option<BTreeSet<String>>>,
    /// Where nodes are visited, in a graph with branches.
    places: Option<Places>,
    faults: BTreeSet<Fault>,
}

/// Returns the faults of a graph.
pub(crate) fn faults(graph: &Graph, callees: &Callees) -> BTreeSet<Fault> {
    let nodes = graph.nodes();
    let index = nodes.iter().enumerate().map(|(at, node)| (node.name(), at)).collect();
    let before = vec![None; nodes.len()];
    let (inputs, keys) = (graph.inputs(), BTreeMap::new());
    let mut judge = Judge { graph, callees, nodes, index, inputs, keys, before, places: None, faults: BTreeSet::new() };
    if graph.has_branches() {
        let map = judge.map(&mut Facts::default());
        judge.places = Some(places::places(&map));
    }
    judge.learn_keys();
    if graph.has_branches() {
        judge.branches();
    } else {
        judge.ways();
    }
    judge.edges();
    judge.reads();
    judge.calls();
    judge.writes();
    judge.permissions();
    judge.faults
}

impl<'g> Judge<'g> {
    fn fault(&mut self, fault: Fault) {
        self.faults.insert(fault);
    }

    fn start(&self) -> Option<usize> {
        self.graph.config("start").and_then(text_of).and_then(|name| self.index.get(name).copied())
    }

    /// Whether a failure of this node continues along its ordinary edges, without its assignments.
    fn continues_after_failure(&self, node: &Node<'_>) -> bool {
        self.graph.says("on_error", "continue") && node.is("action") && node.get("on_error").is_none()
    }

    fn may_end_anywhere(&self) -> bool {
        self.graph.config("on_max_steps").and_then(text_of).is_some_and(|word| word != "fail")
    }

    /// Learns the types of the keys in a few rounds: the corpus has no longer chains of assignments.
    fn learn_keys(&mut self) {
        for (key, value) in self.graph.config("state").map(fields).unwrap_or_default() {
            self.keys.insert(key.name.clone(), Type::from_literal(value));
        }
        for (key, reducer, tree) in self.graph.channels() {
            let empty = Type::of(Kind::List(Box::new(Type { kind: Kind::Never, nullable: false })));
            match reducer {
                "append" | "extend" | "union" | "messages" => self.learn(&key.name, empty),
                "sum" => self.learn(&key.name, Type::of(Kind::Integer)),
                "merge" => self.learn(&key.name, Type::any()),
                "" => {
                    let callee = self.program(tree).map(|callee| callee.result.clone());
                    self.keys.insert(key.name.clone(), callee.unwrap_or_else(Type::any));
                }
                _ => {}
            }
        }
        for _ in 0..4 {
            for node in self.nodes.clone() {
                for (key, value) in node.assign() {
                    let ty = self.type_of_term(Some(node), Site::After, value);
                    self.learn(&key.name, combined(self.reducer(&key.name), ty));
                }
                if let Some(key) = node.get("collect").and_then(text_of) {
                    let ty = if self.graph.says("on_error", "continue") && node.get("on_error").is_none() {
                        Type::any()
                    } else {
                        self.result_of(&node)
                    };
                    self.learn(key, combined(self.reducer(key), Type::of(Kind::List(Box::new(ty)))));
                }
            }
        }
    }

    fn learn(&mut self, key: &str, ty: Type) {
        // The contract of a reducer of the program gives its type.
        if self.reducer(key) == Some("") && self.keys.contains_key(key) {
            return;
        }
        let known = self.keys.remove(key).unwrap_or(Type { kind: Kind::Never, nullable: false });
        self.keys.insert(key.to_owned(), known.join(ty));
    }

    fn result_of(&self, node: &Node<'_>) -> Type {
        node.calls().and_then(|id| self.callees.get(id)).map_or_else(Type::any, |callee| callee.result.clone())
    }

    /// Follows the edges: targets, reachability, ends, and the keys that are set at each node.
    fn ways(&mut self) {
        let count = self.nodes.len();
        let (mut onward, mut failing, mut ends) = (vec![Vec::new(); count], vec![None; count], vec![false; count]);
        for at in 0..count {
            let node = self.nodes[at];
            let mut is_open = true;
            for edge in node.edges() {
                match edge.target().map(|name| self.index.get(name).copied()) {
                    Some(Some(to)) if is_open => onward[at].push((to, self.guards(&node, edge.when))),
                    Some(None) => self.fault(Fault::Target),
                    None => ends[at] = true,
                    _ => {}
                }
                is_open &= edge.when.is_some();
            }
            ends[at] |= is_open && !self.covers(&node);
            if let Some(name) = node.get("on_error").and_then(text_of) {
                failing[at] = self.index.get(name).copied();
                if failing[at].is_none() {
                    self.fault(Fault::Target);
                }
            }
        }
        let Some(start) = self.start() else { return self.fault(Fault::Target) };
        self.set_keys(start, &onward, &failing);
        if self.before.iter().any(Option::is_none) {
            self.fault(Fault::Unreachable);
        }
        // The minimum number of steps to an end.
        let mut far: Vec<Option<u64>> = ends.iter().map(|end| end.then_some(1)).collect();
        for _ in 0..count {
            for at in 0..count {
                let next = onward[at].iter().map(|(to, _)| *to).chain(failing[at]).filter_map(|to| far[to]).min();
                far[at] = far[at].into_iter().chain(next.map(|far| far + 1)).min();
            }
        }
        if far.contains(&None) && !self.may_end_anywhere() {
            self.fault(Fault::NoEnd);
        }
        if far[start].is_some_and(|far| far > self.most_steps()) && !self.may_end_anywhere() && !self.is_lengthened() {
            self.fault(Fault::Budget);
        }
    }

    fn most_steps(&self) -> u64 {
        match self.graph.config("max_steps").map(|tree| &tree.node) {
            Some(Value::Number(number)) => number.as_u64().unwrap_or(0),
            _ => 100,
        }
    }

    /// Whether a hook may allow more steps.
    fn is_lengthened(&self) -> bool {
        self.graph.hooks().iter().any(|hook| get(hook, "event").and_then(text_of) == Some("limit"))
    }

    /// Notes a path to nothing.
    fn unknown(&mut self, path: &Path) {
        self.fault(if self.is_element(path) { Fault::Element } else { Fault::Unknown });
    }

    fn set_keys(&mut self, start: usize, onward: &[Vec<(usize, Vec<String>)>], failing: &[Option<usize>]) {
        let first = self.graph.config("state").map(fields).unwrap_or_default();
        let not_null = first.iter().filter(|(_, value)| value.node != Value::Null);
        // The author decided that a key has a first value, even if it is null.
        self.before[start] = Some(first.iter().chain(not_null).map(|(key, _)| key.name.clone()).collect());
        let mut changed = true;
        while changed {
            changed = false;
            for at in 0..self.nodes.len() {
                let Some(before) = self.before[at].clone() else { continue };
                let mut after = before.clone();
                if !self.continues_after_failure(&self.nodes[at]) {
                    after.extend(self.written(at));
                }
                let ways = onward[at].iter().map(|(to, guards)| {
                    let mut set = after.clone();
                    set.extend(guards.iter().cloned());
                    (*to, set)
                });
                let failed = failing[at].map(|to| (to, with(before, LAST_ERROR)));
                for (to, set) in ways.chain(failed).collect::<Vec<_>>() {
                    let known = self.before[to].clone();
                    let both = known.as_ref().map_or_else(|| set.clone(), |known| known & &set);
                    if known.as_ref() != Some(&both) {
                        self.before[to] = Some(both);
                        changed = true;
                    }
                }
            }
        }
    }

    /// Returns the keys that are set where a condition holds.
    fn guards(&self, node: &Node<'_>, condition: Option<&YamlTree>) -> Vec<String> {
        let Some(condition) = condition else { return Vec::new() };
        if let Some(all) = get(condition, "all") {
            return items(all).iter().flat_map(|inner| self.guards(node, Some(inner))).collect();
        }
        let Some(path) = get(condition, "path").and_then(text_of) else { return Vec::new() };
        let path = Path::new(path, 0..0);
        let asks_for_value = match operator(condition) {
            "ne" | "neq" => false,
            "eq" => get(condition, "value").is_some(),
            _ => true,
        };
        match (path.key(), path.parts.as_slice()) {
            (Some(key), _) if operator(condition) == "exists" => vec![key.to_owned(), something(key)],
            // A value that is compared exists, and so does its container.
            (Some(key), _) if asks_for_value => vec![something(key)],
            // Only a failure has these fields (R125).
            (None, [root, part]) if root == "result" && asks_for_value && self.continues_after_failure(node) => {
                let own = self.result_of(node).step(part);
                let is_told = matches!(part.as_str(), "status" | "error");
                if own.is_none() && is_told { vec![LAST_ERROR.to_owned()] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    fn written(&self, at: usize) -> Vec<String> {
        let node = self.nodes[at];
        let assigned = node.assign().iter().map(|(key, _)| key.name.clone());
        assigned.chain(node.get("collect").and_then(text_of).map(str::to_owned)).collect()
    }

    /// Looks for lists of edges that leave a case open, and for edges that no case can take.
    fn edges(&mut self) {
        for node in self.nodes.clone() {
            if node.get("cancels").is_some_and(|cancels| cancels.node == Value::Boolean(true)) && self.places.is_none()
            {
                self.fault(Fault::Cancels);
            }
            let edges = node.edges();
            let (mut is_open, listed) = (true, node.form() == Form::First);
            for (at, edge) in edges.iter().enumerate() {
                if !is_open || self.is_shadowed(&node, at) {
                    self.fault(Fault::DeadEdge);
                }
                is_open &= edge.when.is_some() || !listed;
            }
            if listed && is_open && !self.graph.says("on_no_match", "fail") && !self.covers(&node) {
                self.fault(Fault::OpenCase);
            }
            for condition in edges.iter().filter_map(|edge| edge.when) {
                let mut tests = Vec::new();
                comparisons(condition, &mut |test| tests.push(test));
                tests.into_iter().for_each(|test| self.compare(Some(node), Site::After, test));
                if self.is_constant(&node, condition) {
                    self.fault(Fault::Constant);
                }
            }
        }
        for hook in self.graph.hooks() {
            if let Some(condition) = get(hook, "condition") {
                let mut tests = Vec::new();
                comparisons(condition, &mut |test| tests.push(test));
                tests.into_iter().for_each(|test| self.compare(None, Site::Hook, test));
            }
        }
    }

    /// Whether a condition asks if a value exists that always exists.
    fn is_constant(&mut self, node: &Node<'_>, condition: &YamlTree) -> bool {
        let Some(path) = get(condition, "path").and_then(text_of) else { return false };
        let path = Path::new(path, 0..0);
        // Elements of lists may be missing, and so may keys that are set only on some paths.
        if operator(condition) != "exists"
            || path.root() == "state"
            || path.parts.iter().any(|part| part.parse::<i64>().is_ok())
        {
            return false;
        }
        let certain = !self.continues_after_failure(node) && self.is_known(&path);
        let ty = self.type_of(Some(*node), Site::After, &path);
        certain && ty.is_some_and(|ty| !ty.nullable && ty.kind != Kind::Any)
    }

    fn is_known(&self, path: &Path) -> bool {
        matches!(path.root(), "inputs" | "result")
    }

    /// Whether the conditions cover all cases of the one value that they test.
    fn covers(&self, node: &Node<'_>) -> bool {
        let edges = node.edges();
        self.cases(node).is_some_and(|(path, cases)| {
            cases.iter().all(|case| {
                edges.iter().filter_map(|edge| edge.when).any(|when| holds(when, &path, case) == Some(true))
            })
        })
    }

    /// Whether earlier edges take all cases in which this one would match.
    fn is_shadowed(&self, node: &Node<'_>, at: usize) -> bool {
        let edges = node.edges();
        let Some((path, cases)) = self.cases(node) else { return false };
        let earlier = |case: &Value| {
            let before = if node.form() == Form::First { &edges[..at] } else { &[] };
            before.iter().filter_map(|edge| edge.when).any(|when| holds(when, &path, case) == Some(true))
        };
        let own = |case: &Value| edges[at].when.is_none_or(|when| holds(when, &path, case) != Some(false));
        !cases.iter().any(|case| own(case) && !earlier(case))
    }

    /// Returns the path that most conditions of a node test, and all its values if there are few.
    fn cases(&self, node: &Node<'_>) -> Option<(String, Vec<Value>)> {
        let mut paths: Vec<String> = Vec::new();
        for condition in node.edges().iter().filter_map(|edge| edge.when) {
            comparisons(condition, &mut |test| paths.extend(get(test, "path").and_then(text_of).map(str::to_owned)));
        }
        let most = paths.iter().max_by_key(|path| paths.iter().filter(|other| other == path).count())?.clone();
        let ty = self.type_of(Some(*node), Site::After, &Path::new(&most, 0..0))?;
        let mut cases: Vec<Value> = match ty.kind {
            Kind::Boolean => vec![Value::Boolean(true), Value::Boolean(false)],
            Kind::Enum(members) => members.into_iter().map(Value::String).collect(),
            _ => return None,
        };
        if ty.nullable || self.continues_after_failure(node) {
            cases.push(Value::Null);
        }
        Some((most, cases))
    }

    /// Checks that a comparison is possible.
    fn compare(&mut self, node: Option<Node<'g>>, site: Site, test: &YamlTree) {
        let Some(path) = get(test, "path").and_then(text_of) else { return };
        let path = Path::new(path, 0..0);
        let Some(ty) = self.type_of(node, site, &path) else { return self.unknown(&path) };
        let null = YamlTree { span: 0..0, node: Value::Null };
        let value = get(test, "value").unwrap_or(&null);
        let same = |one: &Type, value: &YamlTree| -> bool {
            let other = Type::from_literal(value);
            match (&one.kind, &other.kind) {
                (Kind::Any | Kind::Never, _) | (_, Kind::Never) => true,
                (Kind::Integer | Kind::Number, Kind::Integer | Kind::Number) => true,
                (Kind::Enum(members), Kind::Text) => {
                    text_of(value).is_some_and(|text| members.iter().any(|member| member == text))
                }
                (Kind::List(one), Kind::List(_)) => items(value).iter().all(|value| is_alike(one, value)),
                (Kind::Map(_) | Kind::Object(_), Kind::Object(_)) => true,
                (one, two) => one == two,
            }
        };
        let other = Type::from_literal(value);
        let is_text = matches!(ty.kind, Kind::Text | Kind::Enum(_));
        let is_open = matches!(ty.kind, Kind::Any | Kind::Never);
        let has_value = fields(test).iter().any(|(key, _)| key.name == "value");
        let fits = match operator(test) {
            "exists" => true,
            _ if !has_value => false,
            "eq" | "ne" | "neq" => same(&ty, value),
            "in" => matches!(other.kind, Kind::List(_)) && items(value).iter().all(|element| same(&ty, element)),
            "gt" | "gte" | "lt" | "lte" => match &other.kind {
                Kind::Integer | Kind::Number => is_open || matches!(ty.kind, Kind::Integer | Kind::Number),
                Kind::Text => is_open || is_text,
                _ => false,
            },
            "contains" => match &ty.kind {
                Kind::List(element) => same(element, value),
                _ => is_open || (is_text && other.kind == Kind::Text),
            },
            "regex" => other.kind == Kind::Text && !matches!(ty.kind, Kind::List(_) | Kind::Map(_) | Kind::Object(_)),
            _ => false,
        };
        if !fits {
            self.fault(Fault::Incomparable);
        }
    }

    /// Follows every path that is read, and checks that its keys are set.
    fn reads(&mut self) {
        for at in 0..self.nodes.len() {
            let node = self.nodes[at];
            let mut set = self.before[at].clone();
            let site = if node.is("foreach") { Site::Item } else { Site::Before };
            if let Some(action) = node.get("action") {
                self.read_all(Some(node), site, action, set.as_ref());
            }
            if let Some(over) = node.get("over") {
                self.read_all(Some(node), Site::Before, over, set.as_ref());
                let ty = self.type_of_term(Some(node), Site::Before, over);
                if !matches!(ty.kind, Kind::Any | Kind::Never | Kind::List(_)) {
                    self.fault(Fault::WrongType);
                }
            }
            if let Some(output) = node.get("output") {
                self.read_all(Some(node), Site::Output, output, set.as_ref());
            }
            for (key, value) in node.assign() {
                self.read_all(Some(node), Site::After, value, set.as_ref());
                set.iter_mut().for_each(|set| {
                    set.insert(key.name.clone());
                });
            }
            if self.continues_after_failure(&node) {
                set.clone_from(&self.before[at]);
            }
            if let (Some(set), Some(key)) = (&mut set, node.get("collect").and_then(text_of)) {
                set.insert(key.to_owned());
            }
            if let Some(over) = node.of_next("over") {
                self.read_all(Some(node), Site::After, over, set.as_ref());
                let ty = self.type_of_term(Some(node), Site::After, over);
                if !matches!(ty.kind, Kind::Any | Kind::Never | Kind::List(_)) {
                    self.fault(Fault::WrongType);
                }
            }
            if let Some(by) = node.of_next("by").and_then(text_of) {
                self.route(node, &Path::new(by, 0..0), set.as_ref());
            }
            let mut tests = Vec::new();
            for condition in node.edges().iter().filter_map(|edge| edge.when) {
                comparisons(condition, &mut |test| tests.push(test));
            }
            for test in tests {
                let asks_whether = operator(test) == "exists" || get(test, "value").is_none();
                let Some(path) = get(test, "path").and_then(text_of) else { continue };
                let path = Path::new(path, 0..0);
                if !asks_whether && path.key().is_some_and(|key| !is_set(key, set.as_ref())) {
                    self.fault(Fault::Unset);
                }
            }
        }
        for hook in self.graph.hooks() {
            if let Some(action) = get(hook, "action") {
                self.read_all(None, Site::Hook, action, None);
            }
        }
    }

    fn read_all(&mut self, node: Option<Node<'g>>, site: Site, tree: &YamlTree, set: Option<&BTreeSet<String>>) {
        for Expression { paths, .. } in self.graph.expressions(tree) {
            for path in &paths {
                if self.type_of(node, site, path).is_none() {
                    self.unknown(path);
                }
            }
            let unset = |path: &Path| site != Site::Hook && path.key().is_some_and(|key| !is_set(key, set));
            if paths.iter().all(unset) {
                self.fault(Fault::Unset);
            }
        }
    }

    /// Compares the given parameters with those that the callees take.
    fn calls(&mut self) {
        let nodes = self.nodes.clone();
        let of_nodes = nodes.iter().filter_map(|node| Some((Some(*node), node.get("action")?)));
        let of_hooks = self.graph.hooks().iter().filter_map(|hook| Some((None, get(hook, "action")?)));
        for (node, action) in of_nodes.chain(of_hooks).collect::<Vec<_>>() {
            let Some(callee) = called(action).and_then(|id| self.callees.get(id)) else { continue };
            let site = match node {
                Some(node) if node.is("foreach") => Site::Item,
                Some(_) => Site::Before,
                None => Site::Hook,
            };
            let empty = YamlTree { span: 0..0, node: Value::Map(Vec::new()) };
            let params = get(action, "params").unwrap_or(&empty);
            self.give(node, site, params, &callee.params.clone(), true);
        }
    }

    fn give(&mut self, node: Option<Node<'g>>, site: Site, term: &YamlTree, target: &Type, needed: bool) {
        match (&term.node, &target.kind) {
            (Value::Map(given), Kind::Object(asked)) => return self.give_fields(node, site, given, asked),
            (Value::Map(given), Kind::Map(values)) => {
                return given.iter().for_each(|(_, term)| self.give(node, site, term, values, false));
            }
            (Value::List(list), Kind::List(elements)) => {
                return list.iter().for_each(|term| self.give(node, site, term, elements, false));
            }
            (Value::String(text), Kind::Enum(members)) if !text.contains("${") => {
                if !members.contains(text) {
                    self.fault(Fault::WrongType);
                }
                return;
            }
            _ => {}
        }
        let ty = self.type_of_term(node, site, term);
        let fits = match self.graph.expressions(term).as_slice() {
            // Each of the alternatives must fit.
            [one] if one.is_whole => {
                one.paths.iter().all(|path| self.type_of(node, site, path).is_none_or(|ty| ty.fits(target)))
            }
            _ => ty.fits(target),
        };
        if !fits {
            self.fault(Fault::WrongType);
        } else if needed && ty.nullable && !matches!(ty.kind, Kind::Any) && !self.is_something(node, term) {
            self.fault(Fault::MayBeNull);
        }
    }

    /// Whether a template reads a key that is known not to be null on every path to this node.
    fn is_something(&self, node: Option<Node<'g>>, term: &YamlTree) -> bool {
        let Some(set) = node.and_then(|node| self.before[self.index[node.name()]].as_ref()) else { return false };
        let expressions = self.graph.expressions(term);
        let mut paths = expressions.iter().flat_map(|one| &one.paths);
        paths.any(|path| match path.key() {
            // Behind a failure, both of its fields are known.
            Some(LAST_ERROR) => set.contains(LAST_ERROR),
            Some(key) => path.parts.len() == 2 && set.contains(&something(key)),
            None => false,
        })
    }

    fn give_fields(&mut self, node: Option<Node<'g>>, site: Site, given: &[(TreeKey, YamlTree)], asked: &[Field]) {
        for (key, term) in given.iter().filter(|(_, term)| term.node != Value::Null) {
            match asked.iter().find(|field| field.name == key.name) {
                Some(field) => self.give(node, site, term, &field.ty, field.needed),
                None => self.fault(Fault::Parameters),
            }
        }
        for field in asked.iter().filter(|field| field.needed) {
            if !given.iter().any(|(key, term)| key.name == field.name && term.node != Value::Null) {
                self.fault(Fault::Parameters);
            }
        }
    }

    /// Looks for keys that are written and never read. If a run may return its state, every key counts as read.
    fn writes(&mut self) {
        let returns_state = |node: &Node<'_>| match node.get("output") {
            _ if !node.is("return") => {
                let ends = node.edges().is_empty() || node.edges().iter().any(|edge| edge.to.is_none());
                ends && self.is_outside(node.name())
            }
            output => output.is_none(),
        };
        if self.may_end_anywhere() || self.nodes.iter().any(returns_state) {
            return;
        }
        let mut read = BTreeSet::new();
        let mut whole = false;
        for expression in self.graph.expressions(&self.graph.root) {
            for path in &expression.paths {
                whole |= path.root() == "state" && path.parts.len() == 1;
                read.extend(path.key().map(str::to_owned));
            }
        }
        let conditions = self.nodes.iter().flat_map(Node::edges).filter_map(|edge| edge.when);
        for condition in conditions.chain(self.graph.hooks().iter().filter_map(|hook| get(hook, "condition"))) {
            comparisons(condition, &mut |test| {
                let path = get(test, "path").and_then(text_of).map(|path| Path::new(path, 0..0));
                read.extend(path.and_then(|path| path.key().map(str::to_owned)));
            });
        }
        for by in self.nodes.iter().filter_map(|node| node.of_next("by")).filter_map(text_of) {
            read.extend(Path::new(by, 0..0).key().map(str::to_owned));
        }
        let first = self.graph.config("state").map(fields).unwrap_or_default().iter().map(|(key, _)| key.name.clone());
        let written = (0..self.nodes.len()).flat_map(|at| self.written(at));
        if !whole && first.chain(written).any(|key| !read.contains(&key)) {
            self.fault(Fault::DeadWrite);
        }
    }

    /// Compares the permissions with the calls whose ids are known.
    fn permissions(&mut self) {
        let permitted: Vec<&str> =
            get(&self.graph.root, "permissions").map(items).unwrap_or_default().iter().filter_map(text_of).collect();
        let nodes = self.nodes.clone();
        let of_nodes = nodes.iter().filter_map(|node| node.get("action"));
        let of_hooks = self.graph.hooks().iter().filter_map(|hook| get(hook, "action"));
        let actions: Vec<&YamlTree> = of_nodes.chain(of_hooks).collect();
        let inner = actions.iter().filter_map(|action| self.callees.get(called(action)?)).flat_map(|one| &one.needs);
        let inner: Vec<(String, bool)> = inner.map(|capability| (capability.clone(), true)).collect();
        let needed: Vec<(String, bool)> = actions.into_iter().filter_map(capability).chain(inner).collect();
        for (capability, is_whole) in &needed {
            let covers = |pattern: &&str| match pattern.strip_suffix('*') {
                Some(beginning) if *is_whole => capability.starts_with(beginning),
                Some(beginning) => beginning.starts_with(capability.as_str()) || capability.starts_with(beginning),
                None => *is_whole && capability == pattern,
            };
            if !permitted.iter().any(covers) {
                self.fault(Fault::Uncovered);
            }
        }
        for pattern in permitted {
            let is_needed = match pattern.strip_suffix('*') {
                // A wildcard must be for a computed id, and begin as that id does.
                Some(beginning) => needed.iter().any(|(capability, whole)| !whole && capability == beginning),
                None => needed.iter().any(|(capability, whole)| *whole && capability == pattern),
            };
            if !is_needed {
                self.fault(Fault::TooWide);
            }
        }
    }

    /// Returns the known type of a value with templates.
    fn type_of_term(&self, node: Option<Node<'g>>, site: Site, term: &YamlTree) -> Type {
        match &term.node {
            Value::String(text) if text.contains("${") => match self.graph.expressions(term).as_slice() {
                [one] if one.is_whole => {
                    let types: Vec<Type> =
                        one.paths.iter().map(|path| self.type_of(node, site, path).unwrap_or_else(Type::any)).collect();
                    let nullable = types.iter().all(|ty| ty.nullable);
                    let first = Type { kind: Kind::Never, nullable: false };
                    Type { nullable, ..types.into_iter().fold(first, Type::join) }
                }
                _ => Type::of(Kind::Text),
            },
            Value::List(list) => {
                let element = list.iter().map(|term| self.type_of_term(node, site, term));
                Type::of(Kind::List(Box::new(element.fold(Type { kind: Kind::Never, nullable: false }, Type::join))))
            }
            Value::Map(map) => {
                let field = |(key, term): &(TreeKey, YamlTree)| Field {
                    name: key.name.clone(),
                    ty: self.type_of_term(node, site, term),
                    needed: true,
                };
                Type::of(Kind::Object(map.iter().map(field).collect()))
            }
            _ => Type::from_literal(term),
        }
    }

    /// Returns the known type of the value at a path; `None` if there is no such value.
    fn type_of(&self, node: Option<Node<'g>>, site: Site, path: &Path) -> Option<Type> {
        let follow = |from: Type, parts: &[String]| parts.iter().try_fold(from, |ty, part| ty.step(part));
        let is_item = |node: Node<'_>| site == Site::Item && node.item() == path.root();
        match (path.root(), node) {
            (_, Some(node)) if is_item(node) => {
                let list =
                    node.get("over").map_or_else(Type::any, |over| self.type_of_term(Some(node), Site::Before, over));
                let item = if let Kind::List(element) = list.kind { *element } else { Type::any() };
                follow(item, &path.parts[1..])
            }
            ("inputs", _) => follow(self.inputs.clone(), &path.parts[1..]),
            ("state", _) => match path.parts.get(1).map(String::as_str) {
                Some("_last_error") => {
                    let text = |name: &str| Field { name: name.to_owned(), ty: Type::of(Kind::Text), needed: true };
                    follow(Type::of(Kind::Object(vec![text("node"), text("error")])).or_null(), &path.parts[2..])
                }
                Some("_retries") | None => Some(Type::any()),
                Some("step_count") if site == Site::Hook => Some(Type::of(Kind::Integer)),
                Some(key) => follow(self.keys.get(key)?.clone(), &path.parts[2..]),
            },
            ("_now", _) => Some(Type::of(Kind::Text)),
            ("_timestamp", _) => Some(Type::of(Kind::Integer)),
            ("result", Some(node)) if site == Site::After && node.is("action") => {
                let result = self.result_of(&node);
                match path.parts.get(1).map(String::as_str) {
                    // The fields of a failure (R125).
                    Some(part @ ("status" | "error")) if self.continues_after_failure(&node) => {
                        let text = Type::of(Kind::Text).or_null();
                        Some(result.step(part).map_or(text.clone(), |own| own.join(text)))
                    }
                    _ => follow(result, &path.parts[1..]),
                }
            }
            ("visit", Some(node)) => match path.parts.get(1).map(String::as_str) {
                Some("number") => Some(Type::of(Kind::Integer)),
                Some("branch") => self.index_of_branch(node),
                Some("previous") if node.is("action") => {
                    Some(follow(self.result_of(&node), &path.parts[2..])?.or_null())
                }
                _ => None,
            },
            // An event has fields of its own; the operators that misspell them know these fields.
            (_, None) => Some(Type::any()),
            (root, Some(node)) => follow(self.element(node, root)?, &path.parts[1..]),
        }
    }
}

/// Whether an element of a list may be equal to a value, as far as the kinds of both are known.
fn is_alike(element: &Type, value: &YamlTree) -> bool {
    let is_text = |kind: &Kind| matches!(kind, Kind::Text | Kind::Enum(_));
    let is_list = |kind: &Kind| matches!(kind, Kind::List(_));
    let other = Type::from_literal(value).kind;
    !(is_text(&element.kind) && is_list(&other) || is_list(&element.kind) && is_text(&other))
}

const LAST_ERROR: &str = "_last_error";

/// Returns the mark in a set of keys for a key that is known not to be null.
fn something(key: &str) -> String {
    format!("{key} is something")
}

fn with(mut set: BTreeSet<String>, key: &str) -> BTreeSet<String> {
    set.insert(key.to_owned());
    set
}

fn is_set(key: &str, set: Option<&BTreeSet<String>>) -> bool {
    key == "_retries" || set.is_none_or(|set| set.contains(key))
}

/// Decides a condition for one value; `None` if the condition also tests others.
fn holds(condition: &YamlTree, path: &str, case: &Value) -> Option<bool> {
    if let Some(all) = get(condition, "all") {
        let all: Vec<Option<bool>> = items(all).iter().map(|inner| holds(inner, path, case)).collect();
        return if all.contains(&Some(false)) { Some(false) } else { all.iter().all(Option::is_some).then_some(true) };
    }
    if let Some(any) = get(condition, "any") {
        let any: Vec<Option<bool>> = items(any).iter().map(|inner| holds(inner, path, case)).collect();
        return if any.contains(&Some(true)) { Some(true) } else { any.iter().all(Option::is_some).then_some(false) };
    }
    if let Some(inner) = get(condition, "not") {
        return holds(inner, path, case).map(|holds| !holds);
    }
    if get(condition, "path").and_then(text_of) != Some(path) {
        return None;
    }
    let null = Value::Null;
    let value = get(condition, "value").map_or(&null, |tree| &tree.node);
    match operator(condition) {
        "eq" => Some(value == case),
        "ne" | "neq" => Some(value != case),
        "in" => get(condition, "value").map(|list| items(list).iter().any(|element| element.node == *case)),
        "exists" => Some(*case != Value::Null),
        // The corpus has no patterns on words of enumerations, so a plain word is a part of the text.
        "contains" | "regex" => match (value, case) {
            (Value::String(part), Value::String(whole))
                if part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') =>
            {
                Some(whole.contains(part))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the capability that an action needs, and whether it is complete or only a prefix.
fn capability(action: &YamlTree) -> Option<(String, bool)> {
    let word = |name: &str, default: &'static str| get(action, name).and_then(text_of).unwrap_or(default).to_owned();
    let verb = match word("primary", "execute").as_str() {
        "search" | "load" => "fetch".to_owned(),
        other => other.to_owned(),
    };
    let kind = format!("rye.{verb}.{}", word("item_type", "tool"));
    let Some(id) = get(action, "item_id").and_then(text_of) else {
        return get(action, "params").and_then(|params| get(params, "query")).map(|_| (kind, true));
    };
    if id.starts_with("rye/agent/threads/internal/") {
        return None;
    }
    let plain = &id[..id.find("${").unwrap_or(id.len())];
    Some((format!("{kind}.{}", plain.replace('/', ".")), plain.len() == id.len()))
}

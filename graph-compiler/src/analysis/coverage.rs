//! Conditions as logic: which edges of a node can be followed, and in which cases no edge is followed.
//!
//! The values of every path that the edges read are divided into cases that the comparisons do not distinguish further.
//! Then all combinations of cases are tried. Paths are assumed to be independent of each other, so more combinations
//! are tried than can occur: an edge that is reported as never followed is certainly never followed.

pub(crate) mod domain;

use std::borrow::Cow;
use std::cell::LazyCell;

use graph_definition::definition::{EdgeDefinition, RouteDefinition, TestDefinition, compiled};
use graph_model::condition::Condition;
use graph_model::operator::Operator;
use graph_model::path::{Path, Root};
use graph_model::program::RETRIES;
use graph_model::value::Value;

use super::guards;
use super::reads::Site;
use super::type_env::TypeEnv;
use crate::types::Type;
use domain::{Case, Decision, Domain, KnownValues};

/// How many combinations of cases are tried; a list of edges with more combinations is not analysed.
const MOST_COMBINATIONS: usize = 20_000;

/// How many comparisons of one node are analysed: each adds cases, and is decided in all of them.
const MOST_TESTS: usize = 200;

/// The result for the conditions of a node's edges.
pub(crate) struct Coverage<'d> {
    pub(crate) table: Table<'d>,
    pub(crate) verdicts: Verdicts,
    pub(crate) followed: Followed,
}

/// The edges that the conditions of a node allow.
pub(crate) struct Followed {
    /// For each edge, whether it can be followed.
    pub(crate) can_follow: Vec<bool>,
    /// For each edge, the number of the last visit on which it can be followed; `None` where there is no last one.
    pub(crate) last_visit: Vec<Option<u64>>,
    /// Whether there can be a visit on which no edge is followed.
    pub(crate) is_open: bool,
    /// For each edge, the number of the first visit on which it can be followed, or a lower one.
    pub(crate) first_visit: Vec<u64>,
    /// The number of the first visit on which it is possible that no edge is followed, or a lower one.
    pub(crate) first_open: u64,
}

/// Analyses the conditions of each node's edges; `None` for a node where they decide nothing, or there are too many
/// combinations.
pub(crate) fn analyse<'d>(env: TypeEnv<'_, 'd>) -> Vec<Option<Coverage<'d>>> {
    let cyclic = LazyCell::new(|| env.model.cyclic());
    let is_cyclic = |node: usize| cyclic[node];
    (0..env.model.definition.nodes.len()).map(|node| coverage_of(env, node, &is_cyclic)).collect()
}

/// Analyses the conditions of a node's edges; `is_cyclic` returns whether the edges of a node lead back to it in the
/// end, whatever their conditions are.
fn coverage_of<'d>(env: TypeEnv<'_, 'd>, node: usize, is_cyclic: &dyn Fn(usize) -> bool) -> Option<Coverage<'d>> {
    let RouteDefinition::First(list) = env.model.definition.nodes[node].next() else { return None };
    let table = Table::of(env, node, &list.edges, is_cyclic)?;
    let verdicts = table.judge();
    let followed = Followed {
        can_follow: verdicts.edges.iter().map(|edge| edge.is_followed).collect(),
        last_visit: verdicts.edges.iter().map(|edge| table.last_visit(edge)).collect(),
        is_open: verdicts.open.is_some(),
        first_visit: verdicts.edges.iter().map(|edge| table.first_visit(&edge.cases)).collect(),
        first_open: table.first_visit(&verdicts.open_cases),
    };
    Some(Coverage { table, verdicts, followed })
}

/// The conditions of a list of edges, with the result of every comparison in every case of its path.
pub(crate) struct Table<'d> {
    pub(crate) paths: Vec<(&'d Path, Domain<'d>, Vec<Case>)>,
    /// The comparisons: the test, the index of its path, and its result in each case of that path.
    pub(crate) tests: Vec<(&'d TestDefinition, usize, Vec<Decision>)>,
    /// The conditions of the edges, over the comparisons' indices.
    pub(crate) conditions: Vec<Condition<usize>>,
    /// The targets of the edges; `None` if the run ends.
    targets: Vec<Option<&'d str>>,
}

/// The result of all combinations together.
pub(crate) struct Verdicts {
    pub(crate) edges: Vec<Verdict>,
    /// The first combination in which no edge is followed: a case of each path.
    pub(crate) open: Option<Vec<usize>>,
    /// For each path, the cases in which no edge is followed.
    open_cases: Vec<Vec<bool>>,
}

/// The result of all combinations for one edge.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Whether its condition holds in any combination.
    pub(crate) can_hold: bool,
    /// Whether it is followed in any combination.
    pub(crate) is_followed: bool,
    /// Whether, in a combination in which it is followed, the run would go elsewhere without it.
    pub(crate) matters: bool,
    /// The edges that were followed instead, although its condition held too.
    pub(crate) instead: Vec<usize>,
    /// For each path, the cases in which it is followed.
    cases: Vec<Vec<bool>>,
}

impl<'d> Table<'d> {
    /// Builds the table for the edges of a node. `None` if there is nothing to decide, or too much.
    fn of(
        env: TypeEnv<'_, 'd>,
        node: usize,
        edges: &'d [EdgeDefinition],
        is_cyclic: &dyn Fn(usize) -> bool,
    ) -> Option<Self> {
        let mut tests: Vec<&'d TestDefinition> = Vec::new();
        let number = |test: &'d TestDefinition, tests: &mut Vec<&'d TestDefinition>| {
            tests.push(test);
            Ok::<_, ()>(tests.len() - 1)
        };
        let mut conditions = Vec::new();
        for edge in edges {
            let mut each = Vec::new();
            edge.when.tests(&mut |test| each.push(test));
            let mut each = each.into_iter();
            // `try_map` visits the tests in the same order, but lends them for a shorter time.
            let condition = edge.when.try_map(&mut |_| match each.next() {
                Some(test) => number(test, &mut tests),
                None => Err(()),
            });
            conditions.push(condition.ok()?);
        }
        if tests.is_empty() || tests.len() > MOST_TESTS {
            return None;
        }
        let mut paths: Vec<(&'d Path, Domain<'d>, Vec<Case>)> = Vec::new();
        let mut combinations = 1_usize;
        for test in &tests {
            let path = &test.path.value;
            if paths.iter().any(|(known, ..)| *known == path) {
                continue;
            }
            let of_path: Vec<&TestDefinition> = tests.iter().filter(|test| test.path.value == *path).copied().collect();
            let ty = env.type_of_path(node, Site::Next, path);
            let nullable = ty.nullable
                && !env.is_something(node, Site::Next, path, path.segments.len())
                && !is_missed(env, node, path, &of_path);
            let domain = Domain::cut(&ty, nullable, known(env, node, (path, &ty), is_cyclic), &of_path)?;
            let cases = domain.cases();
            combinations = combinations.checked_mul(cases.len().max(1)).filter(|&count| count <= MOST_COMBINATIONS)?;
            paths.push((path, domain, cases));
        }
        let tests = tests
            .into_iter()
            .map(|test| {
                let at = paths.iter().position(|(path, ..)| **path == test.path.value).unwrap_or_default();
                let pattern = match (test.operator, test.value.value.as_str()) {
                    (Operator::Regex, Some(pattern)) => compiled(pattern),
                    _ => None,
                };
                let matches = |text: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(text));
                let (_, domain, cases) = &paths[at];
                let outcomes = cases.iter().map(|case| domain.decide(test, case, matches)).collect();
                (test, at, outcomes)
            })
            .collect();
        let targets = edges.iter().map(|edge| edge.to.as_ref().map(|to| to.value.as_str())).collect();
        Some(Self { paths, tests, conditions, targets })
    }

    /// Tries all combinations of cases.
    fn judge(&self) -> Verdicts {
        let edges = self.conditions.iter().map(|_| Verdict::default()).collect();
        let mut verdicts = Verdicts { edges, open: None, open_cases: Vec::new() };
        if self.paths.iter().any(|(_, _, cases)| cases.is_empty()) {
            return verdicts;
        }
        let mut combination = vec![0; self.paths.len()];
        loop {
            if self.is_possible(&combination) {
                self.try_one(&combination, &mut verdicts);
            }
            // The next combination, as in counting.
            let Some(at) = (0..combination.len()).find(|&at| combination[at] + 1 < self.paths[at].2.len()) else {
                return verdicts;
            };
            combination[at] += 1;
            combination[..at].fill(0);
        }
    }

    /// Returns the number of the last visit on which an edge can be followed.
    fn last_visit(&self, edge: &Verdict) -> Option<u64> {
        let at = self.number_of_visits()?;
        let (_, domain, cases) = &self.paths[at];
        let followed = cases.iter().zip(edge.cases.get(at)?).filter(|(_, followed)| **followed);
        followed.map(|(case, _)| domain.most(case)).try_fold(0, |most, one| Some(most.max(one?)))
    }

    /// Returns the number of the first visit in these cases, or a lower number.
    fn first_visit(&self, seen: &[Vec<bool>]) -> u64 {
        let Some((at, seen)) = self.number_of_visits().and_then(|at| Some((at, seen.get(at)?))) else { return 1 };
        let (_, domain, cases) = &self.paths[at];
        let followed = cases.iter().zip(seen).filter(|(_, followed)| **followed);
        followed.map(|(case, _)| domain.least(case)).min().unwrap_or(1)
    }

    /// Returns the index of the path `visit.number`.
    pub(crate) fn number_of_visits(&self) -> Option<usize> {
        self.paths.iter().position(|(path, ..)| is_number_of_visits(path))
    }

    /// Marks the cases of a combination.
    fn mark(&self, seen: &mut Vec<Vec<bool>>, combination: &[usize]) {
        if seen.is_empty() {
            *seen = self.paths.iter().map(|(_, _, cases)| vec![false; cases.len()]).collect();
        }
        seen.iter_mut().zip(combination).for_each(|(seen, &case)| seen[case] = true);
    }

    /// Whether a combination does not contradict itself: a part of null is null.
    fn is_possible(&self, combination: &[usize]) -> bool {
        let is_null = |at: usize| self.paths[at].2[combination[at]] == Case::Null;
        let is_inside = |inner: &Path, outer: &Path| {
            inner.root == outer.root
                && inner.segments.len() > outer.segments.len()
                && inner.segments.starts_with(&outer.segments)
        };
        !self.paths.iter().enumerate().any(|(outer, (path, ..))| {
            is_null(outer)
                && self.paths.iter().enumerate().any(|(at, (inner, ..))| is_inside(inner, path) && !is_null(at))
        })
    }

    fn try_one(&self, combination: &[usize], verdicts: &mut Verdicts) {
        let decide = |condition: &Condition<usize>| {
            condition.holds(&mut |&test| {
                let (_, path, outcomes) = &self.tests[test];
                match outcomes[combination[*path]] {
                    Decision::Holds => Ok(true),
                    Decision::Not => Ok(false),
                    Decision::Fails => Err(()),
                }
            })
        };
        let mut followed = None;
        // The result without the edge that is followed: another edge is followed, or the node fails.
        let mut otherwise = None;
        for (at, condition) in self.conditions.iter().enumerate() {
            let decided = decide(condition);
            if followed.is_some() && otherwise.is_none() {
                otherwise = decided.map(|holds| holds.then_some(at)).transpose();
            }
            match (decided, followed) {
                (Ok(true), None) => {
                    verdicts.edges[at].can_hold = true;
                    verdicts.edges[at].is_followed = true;
                    self.mark(&mut verdicts.edges[at].cases, combination);
                    followed = Some(at);
                }
                (Ok(true), Some(instead)) => {
                    verdicts.edges[at].can_hold = true;
                    if !verdicts.edges[at].instead.contains(&instead) {
                        verdicts.edges[at].instead.push(instead);
                    }
                }
                // The node fails, and no edge is followed.
                (Err(()), None) => return,
                (Ok(false), _) | (Err(()), Some(_)) => {}
            }
        }
        if let Some(followed) = followed {
            let target = |edge: usize| self.targets[edge];
            let is_same = matches!(otherwise, Some(Ok(other)) if target(other) == target(followed));
            verdicts.edges[followed].matters |= !is_same;
        } else {
            verdicts.open.get_or_insert_with(|| combination.to_vec());
            self.mark(&mut verdicts.open_cases, combination);
        }
    }
}

/// Whether a path is `visit.number`.
pub(crate) fn is_number_of_visits(path: &Path) -> bool {
    path.root == Root::Visit && matches!(path.segments.as_slice(), [one] if one == "number")
}

/// Whether a key may be null only because it is not set on every path, which is reported where the key is read.
fn is_missed(env: TypeEnv<'_, '_>, node: usize, path: &Path, tests: &[&TestDefinition]) -> bool {
    let (Root::State, [name]) = (path.root, path.segments.as_slice()) else { return false };
    let Some(key) = env.model.key_or_last_error(name).filter(|_| name != RETRIES) else { return false };
    let can_be_null = env.types.keys.get(key).is_some_and(|key| key.ty.nullable);
    !can_be_null && !env.is_set(node, Site::Next, key) && !tests.iter().any(|test| guards::asks_for_null(test))
}

/// Returns the known restrictions of the values at a path, beyond their type.
fn known<'d>(
    env: TypeEnv<'_, 'd>,
    node: usize,
    (path, ty): (&Path, &Type),
    is_cyclic: &dyn Fn(usize) -> bool,
) -> KnownValues<'d> {
    let values = ty.known.values.clone().map(Cow::Owned);
    match (path.root, path.segments.as_slice()) {
        _ if is_number_of_visits(path) => {
            // A node to which no path leads back is visited once.
            let once = (env.model.is_whole() && !is_cyclic(node)).then(|| Cow::Owned(vec![Value::from(1)]));
            KnownValues { bounds: (Some(Value::from(1)), None), values: once, ..KnownValues::default() }
        }
        (Root::Inputs, _) => {
            let Some(schema) = env.model.schema_of_input(path) else { return KnownValues::default() };
            let rule = |keyword: &str| schema.rules.iter().find(|rule| rule.keyword == keyword);
            let value = |keyword: &str| rule(keyword).map(|rule| rule.value.clone());
            KnownValues {
                bounds: (
                    value("minimum").or_else(|| value("exclusiveMinimum")),
                    value("maximum").or_else(|| value("exclusiveMaximum")),
                ),
                values: values.or_else(|| value("const").map(|constant| Cow::Owned(vec![constant]))),
                rules: &schema.rules,
            }
        }
        _ => KnownValues { values, ..KnownValues::default() },
    }
}

#[cfg(test)]
mod tests {
    use graph_definition::definition::Spanned;
    use serde_json::json;

    use super::*;
    use crate::types::{Type, TypeKind};

    fn test(operator: Operator, value: Value) -> TestDefinition {
        let path = Spanned { value: Path::parse("state.x").unwrap(), span: 0..0 };
        TestDefinition { span: 0..0, path, operator, value: Spanned { value, span: 0..0 } }
    }

    /// Returns the cases in words, with the result of each comparison.
    fn table(kind: TypeKind, nullable: bool, bounds: domain::Bounds, tests: &[TestDefinition]) -> Vec<String> {
        let ty = Type { nullable, ..Type::of(kind) };
        let known = KnownValues { bounds, ..KnownValues::default() };
        let domain = Domain::cut(&ty, nullable, known, &tests.iter().collect::<Vec<_>>()).unwrap();
        let outcome = |test: &TestDefinition, case: &Case| match domain.decide(test, case, |text| text.contains('a')) {
            Decision::Holds => '+',
            Decision::Not => '-',
            Decision::Fails => '!',
        };
        let row = |case: &Case| {
            let outcomes: String = tests.iter().map(|test| outcome(test, case)).collect();
            format!("{outcomes} {}", domain.show(case))
        };
        domain.cases().iter().map(row).collect()
    }

    #[test]
    fn integers_split_at_constants_with_no_gap_between_neighbours() {
        let tests = [test(Operator::Lt, json!(3)), test(Operator::Gte, json!(4)), test(Operator::Eq, json!(3))];
        assert_eq!(
            table(TypeKind::Integer, true, (None, None), &tests),
            ["--+ `3`", "-+- `4`", "+-- an integer below 3", "-+- an integer above 4", "--- nothing"]
        );
        let between = &table(TypeKind::Number, false, (None, None), &tests)[3];
        assert_eq!(between, "--- a number between 3 and 4");
        assert_eq!(table(TypeKind::Integer, false, (Some(json!(3)), Some(json!(4.0))), &tests), ["--+ `3`", "-+- `4`"]);
    }

    #[test]
    fn large_neighbours_are_cut_without_rounding() {
        let two_53 = 9_007_199_254_740_992_i64;
        let tests = [test(Operator::Lte, json!(two_53)), test(Operator::Gt, json!(two_53 + 1))];
        assert_eq!(
            table(TypeKind::Integer, false, (Some(json!(two_53)), Some(json!(two_53 + 1))), &tests),
            ["+- `9007199254740992`", "-- `9007199254740993`"]
        );
    }

    #[test]
    fn texts_split_by_equality_by_order_and_by_open_tests() {
        let tests = [test(Operator::Eq, json!("a")), test(Operator::In, json!(["a", "b"]))];
        assert_eq!(table(TypeKind::String, false, (None, None), &tests), ["++ `a`", "-+ `b`", "-- another text"]);
        let tests = [test(Operator::Gt, json!("b")), test(Operator::Regex, json!("a"))];
        assert_eq!(
            table(TypeKind::String, true, (None, None), &tests),
            ["-- `b`", "-- another text", "-+ another text", "+- another text", "++ another text", "-- nothing"]
        );
    }

    #[test]
    fn an_unknown_value_has_a_case_for_each_tested_kind() {
        let tests = [test(Operator::Gt, json!(3)), test(Operator::Eq, json!(true))];
        assert_eq!(
            table(TypeKind::Any, true, (None, None), &tests),
            [
                "!+ `true`",
                "!- `false`",
                "-- `3`",
                "-- a number below 3",
                "+- a number above 3",
                "!- something else",
                "-- nothing"
            ]
        );
    }
}

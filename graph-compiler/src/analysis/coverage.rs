//! Conditions as logic: the edges of a node leave no case open, each of them can be followed, and comparisons can come out
//! either way.
//!
//! The values of every path that the edges look at are cut into cases that the comparisons do not tell apart further. Then
//! all combinations of cases are tried. Paths are taken to be independent of each other, so more combinations are looked at
//! than there may be: an edge that is said never to be followed never is.

mod domain;

use std::borrow::Cow;

use graph_model::condition::Condition;
use graph_model::operator::Operator;
use graph_model::path::{Path, Root};
use graph_model::program::{OnNoMatch, RETRIES};
use graph_model::value::Value;

use super::guards;
use super::model::{Facts, Site};
use crate::definition::{Edge, EdgeList, Next, Rule, Test, compiled};
use crate::diagnostic::{Diagnostics, code};
use domain::{Case, Domain, Known, Outcome};

/// How many combinations of cases are looked at; a list of edges with more of them is not judged.
const MOST_COMBINATIONS: usize = 20_000;

/// How many comparisons of one node are looked at: each of them cuts the values into more cases, and is decided in all of them.
const MOST_TESTS: usize = 200;

pub(crate) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in facts.definition.nodes.iter().enumerate().filter(|&(at, _)| facts.flow.is_reached(at)) {
        let Next::List(list) = node.next() else { continue };
        let Some(Judgement { table, judged, .. }) = facts.judgement(at) else { continue };
        if !same(facts, table, judged, diagnostics) && !shadowed(facts, at, list, judged, diagnostics) {
            uncovered(facts, at, list, table, judged, diagnostics);
            needless(facts, at, list, judged, diagnostics);
        }
    }
}

/// What the conditions of a node's edges come to.
pub(crate) struct Judgement<'d> {
    table: Table<'d>,
    judged: Judged,
    pub(crate) ways: Ways,
}

/// What the conditions of a node's edges allow.
pub(crate) struct Ways {
    /// For each edge, whether it can be followed.
    pub(crate) can_follow: Vec<bool>,
    /// For each edge, the number of the last visit on which it can be followed; `None` where there is no last one.
    pub(crate) last_visit: Vec<Option<u64>>,
    /// Whether it can be that none is.
    pub(crate) is_open: bool,
    /// For each edge, the number of the first visit on which it can be followed, or a lower one.
    pub(crate) first_visit: Vec<u64>,
    /// The number of the first visit on which it can be that none is, or a lower one.
    pub(crate) first_open: u64,
}

/// Works out what the conditions of a node's edges come to; `None` where they say nothing, or too much.
pub(crate) fn judge<'d>(facts: &Facts<'d>, node: usize) -> Option<Judgement<'d>> {
    let Next::List(list) = facts.definition.nodes[node].next() else { return None };
    let table = Table::of(facts, node, &list.edges)?;
    let judged = table.judge();
    let ways = Ways {
        can_follow: judged.edges.iter().map(|edge| edge.is_followed).collect(),
        last_visit: judged.edges.iter().map(|edge| table.last_visit(edge)).collect(),
        is_open: judged.open.is_some(),
        first_visit: judged.edges.iter().map(|edge| table.first_visit(&edge.cases)).collect(),
        first_open: table.first_visit(&judged.open_cases),
    };
    Some(Judgement { table, judged, ways })
}

/// The conditions of a list of edges, with how every comparison comes out in every case of its path.
struct Table<'d> {
    paths: Vec<(&'d Path, Domain<'d>, Vec<Case>)>,
    /// The comparisons: which one, its path, and how it comes out in each case of that.
    tests: Vec<(&'d Test, usize, Vec<Outcome>)>,
    /// The conditions of the edges, over the comparisons' indices.
    conditions: Vec<Condition<usize>>,
    /// Where the edges lead; nowhere where the run ends.
    targets: Vec<Option<&'d str>>,
}

/// What all combinations together say.
struct Judged {
    edges: Vec<Verdict>,
    /// The first combination in which no edge is followed: a case of each path.
    open: Option<Vec<usize>>,
    /// For each path, the cases in which none is.
    open_cases: Vec<Vec<bool>>,
}

/// What all combinations say of an edge.
#[derive(Default)]
struct Verdict {
    /// Whether its condition holds in any.
    can_hold: bool,
    /// Whether it is followed in any.
    is_followed: bool,
    /// Whether the run would go elsewhere without it, where it is followed.
    matters: bool,
    /// The edges that were followed where its condition held too.
    instead: Vec<usize>,
    /// For each path, the cases in which it is followed.
    cases: Vec<Vec<bool>>,
}

impl<'d> Table<'d> {
    /// Looks at the edges of a node. `None` where there is nothing to decide, or too much.
    fn of(facts: &Facts<'d>, node: usize, edges: &'d [Edge]) -> Option<Self> {
        let mut tests: Vec<&'d Test> = Vec::new();
        let number = |test: &'d Test, tests: &mut Vec<&'d Test>| {
            tests.push(test);
            Ok::<_, ()>(tests.len() - 1)
        };
        let mut conditions = Vec::new();
        for edge in edges {
            let mut each = Vec::new();
            edge.when.tests(&mut |test| each.push(test));
            let mut each = each.into_iter();
            // `try_map` visits the tests in the same order, and only by shorter borrows.
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
            let of_path: Vec<&Test> = tests.iter().filter(|test| test.path.value == *path).copied().collect();
            let ty = facts.type_of_path(node, Site::Next, path);
            let nullable = ty.nullable
                && !facts.is_something(node, Site::Next, path, path.segments.len())
                && !is_missed(facts, node, path, &of_path);
            let domain = Domain::cut(&ty, nullable, known(facts, node, path), &of_path)?;
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
    fn judge(&self) -> Judged {
        let edges = self.conditions.iter().map(|_| Verdict::default()).collect();
        let mut judged = Judged { edges, open: None, open_cases: Vec::new() };
        if self.paths.iter().any(|(_, _, cases)| cases.is_empty()) {
            return judged;
        }
        let mut combination = vec![0; self.paths.len()];
        loop {
            if self.is_possible(&combination) {
                self.try_one(&combination, &mut judged);
            }
            // The next one, as one counts.
            let Some(at) = (0..combination.len()).find(|&at| combination[at] + 1 < self.paths[at].2.len()) else {
                return judged;
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

    /// Returns the number of the first of the visits that these cases are of, or a lower one.
    fn first_visit(&self, seen: &[Vec<bool>]) -> u64 {
        let Some((at, seen)) = self.number_of_visits().and_then(|at| Some((at, seen.get(at)?))) else { return 1 };
        let (_, domain, cases) = &self.paths[at];
        let followed = cases.iter().zip(seen).filter(|(_, followed)| **followed);
        followed.map(|(case, _)| domain.least(case)).min().unwrap_or(1)
    }

    /// Returns which of the paths is `visit.number`.
    fn number_of_visits(&self) -> Option<usize> {
        let is_number =
            |path: &Path| path.root == Root::Visit && matches!(path.segments.as_slice(), [one] if one == "number");
        self.paths.iter().position(|(path, ..)| is_number(path))
    }

    /// Marks the cases of a combination.
    fn mark(&self, seen: &mut Vec<Vec<bool>>, combination: &[usize]) {
        if seen.is_empty() {
            *seen = self.paths.iter().map(|(_, _, cases)| vec![false; cases.len()]).collect();
        }
        seen.iter_mut().zip(combination).for_each(|(seen, &case)| seen[case] = true);
    }

    /// Whether a combination does not contradict itself: nothing is in what is nothing.
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

    fn try_one(&self, combination: &[usize], judged: &mut Judged) {
        let decide = |condition: &Condition<usize>| {
            condition.holds(&mut |&test| {
                let (_, path, outcomes) = &self.tests[test];
                match outcomes[combination[*path]] {
                    Outcome::Holds => Ok(true),
                    Outcome::Not => Ok(false),
                    Outcome::Fails => Err(()),
                }
            })
        };
        let mut followed = None;
        // What would be without the edge that is followed: another is, or the node fails.
        let mut otherwise = None;
        for (at, condition) in self.conditions.iter().enumerate() {
            let decided = decide(condition);
            if followed.is_some() && otherwise.is_none() {
                otherwise = decided.map(|holds| holds.then_some(at)).transpose();
            }
            match (decided, followed) {
                (Ok(true), None) => {
                    judged.edges[at].can_hold = true;
                    judged.edges[at].is_followed = true;
                    self.mark(&mut judged.edges[at].cases, combination);
                    followed = Some(at);
                }
                (Ok(true), Some(instead)) => {
                    judged.edges[at].can_hold = true;
                    if !judged.edges[at].instead.contains(&instead) {
                        judged.edges[at].instead.push(instead);
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
            judged.edges[followed].matters |= !is_same;
        } else {
            judged.open.get_or_insert_with(|| combination.to_vec());
            self.mark(&mut judged.open_cases, combination);
        }
    }
}

/// Whether a key may be nothing only because it is not set on every way, which is reported where it is read.
fn is_missed(facts: &Facts<'_>, node: usize, path: &Path, tests: &[&Test]) -> bool {
    let (Root::State, [name]) = (path.root, path.segments.as_slice()) else { return false };
    let Some(key) = facts.flow.key(facts, name).filter(|_| name != RETRIES) else { return false };
    let can_be_null = facts.types.keys.get(key).is_some_and(|key| key.ty.nullable);
    !can_be_null && !facts.is_set(node, Site::Next, key) && !tests.iter().any(|test| guards::asks_for_null(test))
}

/// Returns what is known of the values at a path beyond their type.
fn known<'d>(facts: &Facts<'d>, node: usize, path: &Path) -> Known<'d> {
    match (path.root, path.segments.as_slice()) {
        (Root::State, [name]) => {
            let values = facts.types.key(name).and_then(|key| facts.types.values[key].clone());
            Known { values: values.map(Cow::Owned), ..Known::default() }
        }
        (Root::Visit, [number]) if number == "number" => {
            // A node that nothing leads back to is visited once.
            let once = (facts.is_whole() && !facts.is_in_circle(node)).then(|| Cow::Owned(vec![Value::from(1)]));
            Known { bounds: (Some(Value::from(1)), None), values: once, ..Known::default() }
        }
        (Root::Inputs, _) => {
            let Some(schema) = facts.schema_of_input(path) else { return Known::default() };
            let rule = |keyword: &str| schema.rules.iter().find(|rule| rule.keyword == keyword);
            let value = |keyword: &str| rule(keyword).map(|rule| rule.value.clone());
            Known {
                bounds: (
                    value("minimum").or_else(|| value("exclusiveMinimum")),
                    value("maximum").or_else(|| value("exclusiveMaximum")),
                ),
                values: value("const").map(|constant| Cow::Owned(vec![constant])),
                rules: &schema.rules,
            }
        }
        _ => Known::default(),
    }
}

/// Reports comparisons that come out the same whatever the value is; says whether there was one.
fn same(facts: &Facts<'_>, table: &Table<'_>, judged: &Judged, diagnostics: &mut Diagnostics) -> bool {
    let mut found = false;
    for (test, at, outcomes) in &table.tests {
        let (path, domain, cases) = &table.paths[*at];
        let Some(&first) = outcomes.first() else { continue };
        if !domain.is_known() || first == Outcome::Fails || outcomes.iter().any(|outcome| *outcome != first) {
            continue;
        }
        found = true;
        let shown = cases.iter().map(|case| domain.show(case));
        let mut shown: Vec<String> = shown.take(4).collect();
        shown.dedup();
        let always = if first == Outcome::Holds { "always holds" } else { "never holds" };
        let diagnostic = diagnostics.lint(
            code::ALWAYS_SAME,
            facts.place(&test.span),
            format!("this comparison of `{path}` {always}"),
        );
        diagnostic.label(format!("`{path}` is {}", shown.join(" or ")));
        if let Some(rule) = refused_by(facts, test) {
            diagnostic.related(facts.place(&rule.span), format!("`{path}` is declared with `{rule}`"));
        } else if table.number_of_visits() == Some(*at) {
            diagnostic.note("no edge leads back to the node, so a run visits it once");
        }
        diagnostic.help("remove it, or compare with what the value can be");
    }
    let listed = table.tests.iter().filter(|(test, ..)| test.operator == Operator::In && !found);
    for (test, ..) in listed {
        let list = test.value.value.as_array().into_iter().flatten();
        let refused = list.filter_map(|value| Some((value, broken_rule(facts, &test.path.value, value)?))).next();
        let Some((value, rule)) = refused else { continue };
        let path = &test.path.value;
        diagnostics
            .lint(code::ALWAYS_SAME, facts.place(&test.value.span), format!("`{path}` is never `{value}`"))
            .related(facts.place(&rule.span), format!("it is declared with `{rule}`"))
            .help("take it out of the list, or write what the value can be");
    }
    if found {
        return true;
    }
    // Comparisons that come out either way, and a condition made of them that does not.
    for (edge, condition) in judged.edges.iter().zip(&table.conditions) {
        let mut first = None;
        condition.tests(&mut |&test| first = first.or(Some(test)));
        let (false, Some(first)) = (edge.can_hold, first) else { continue };
        let mut last = first;
        condition.tests(&mut |&test| last = test);
        let (one, two) = (&table.tests[first].0.span, &table.tests[last].0.span);
        diagnostics
            .lint(
                code::NEVER_FOLLOWED,
                facts.place(one),
                "this condition never holds: its comparisons contradict each other",
            )
            .related(facts.place(two), "the other")
            .help("remove the edge, or mend the comparison that is not meant");
        found = true;
    }
    found
}

/// Returns the rule of an input because of which it is never equal to what it is compared with.
fn refused_by<'d>(facts: &Facts<'d>, test: &Test) -> Option<&'d Rule> {
    match test.operator {
        Operator::Eq | Operator::Ne => broken_rule(facts, &test.path.value, &test.value.value),
        _ => None,
    }
}

/// Returns a rule of the input at a path that a value breaks.
fn broken_rule<'d>(facts: &Facts<'d>, path: &Path, value: &Value) -> Option<&'d Rule> {
    facts.schema_of_input(path)?.rules.iter().find(|rule| !rule.holds(value))
}

/// Reports edges that are never followed, because those before them are wherever their conditions hold.
fn shadowed(facts: &Facts<'_>, node: usize, list: &EdgeList, judged: &Judged, diagnostics: &mut Diagnostics) -> bool {
    let name = &facts.definition.nodes[node].name;
    let mut found = false;
    for (at, edge) in judged.edges.iter().enumerate() {
        let is_behind_default = list.edges[..at].iter().any(|edge| matches!(edge.when, Condition::Always));
        if edge.is_followed || !edge.can_hold || is_behind_default {
            continue;
        }
        found = true;
        let is_default = matches!(list.edges[at].when, Condition::Always);
        let (code, message) = if is_default {
            (
                code::NEEDLESS_DEFAULT,
                format!("this edge of node `{name}` is never followed: the edges before it cover every case"),
            )
        } else {
            (code::NEVER_FOLLOWED, format!("this edge of node `{name}` is never followed"))
        };
        let diagnostic = diagnostics.lint(code, facts.place(&list.edges[at].span), message);
        if !is_default {
            for &instead in edge.instead.iter().take(2) {
                diagnostic
                    .related(facts.place(&list.edges[instead].span), "this one is followed where its condition holds");
            }
            diagnostic.help("move it in front, or remove it");
        }
    }
    found
}

/// Reports the first edge without which the run would go where it goes with it.
fn needless(facts: &Facts<'_>, node: usize, list: &EdgeList, judged: &Judged, diagnostics: &mut Diagnostics) {
    let mut edges = list.edges.iter().zip(&judged.edges).enumerate();
    // Who describes an edge on its own wants to see it in the history of a run.
    let found =
        edges.find(|(_, (edge, verdict))| verdict.is_followed && !verdict.matters && edge.description.is_none());
    let Some((at, (edge, _))) = found else { return };
    let target = |edge: &Edge| edge.to.as_ref().map(|to| to.value.clone());
    let name = &facts.definition.nodes[node].name;
    let leads = target(edge).map_or_else(|| "the run ends".to_owned(), |to| format!("the run goes to `{to}`"));
    let diagnostic = diagnostics.lint(
        code::SAME_TARGET,
        facts.place(&edge.span),
        format!("this edge of node `{name}` makes no difference: {leads} without it too"),
    );
    if let Some(other) = list.edges[at + 1..].iter().find(|other| target(other) == target(edge)) {
        diagnostic.related(facts.place(&other.span), "this one leads there too");
    }
    diagnostic.help("remove it, or let one of the two lead elsewhere");
}

/// Reports a case in which no edge is followed, so that the run ends.
fn uncovered(
    facts: &Facts<'_>,
    node: usize,
    list: &EdgeList,
    table: &Table<'_>,
    judged: &Judged,
    diagnostics: &mut Diagnostics,
) {
    // An edge without target is the author's word that the run ends; so is a failure.
    if facts.definition.settings.on_no_match == OnNoMatch::Fail {
        return;
    }
    let Some(open) = &judged.open else { return };
    let name = &facts.definition.nodes[node].name;
    let shown = table
        .paths
        .iter()
        .zip(open)
        .map(|((path, domain, cases), &case)| format!("`{path}` is {}", domain.show(&cases[case])));
    let shown: Vec<String> = shown.collect();
    let is_finite = table.paths.iter().all(|(_, domain, _)| domain.is_finite());
    let code = if is_finite { code::UNCOVERED } else { code::OPEN_CASE };
    let span = first_line(facts, list);
    diagnostics
        .lint(
            code,
            facts.place(&span),
            format!("the edges of node `{name}` do not cover every case: the run ends there"),
        )
        .label(format!("none is followed where {}", shown.join(" and ")))
        .help("add a last edge without `when`; one without `to` says that the run is to end: `- {}`");
}

/// The place of a list of edges: its first edge, for the whole is too much to point at.
fn first_line(facts: &Facts<'_>, list: &EdgeList) -> crate::source::Span {
    let text = &facts.definition.source().text[list.span.clone()];
    list.span.start..list.span.start + text.find('\n').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::Spanned;
    use crate::types::{Kind, Type};

    fn test(operator: Operator, value: Value) -> Test {
        let path = Spanned { value: Path::parse("state.x").unwrap(), span: 0..0 };
        Test { span: 0..0, path, operator, value: Spanned { value, span: 0..0 } }
    }

    /// The cases in words, and how the comparisons come out in each.
    fn table(kind: Kind, nullable: bool, bounds: domain::Bounds, tests: &[Test]) -> Vec<String> {
        let ty = Type { nullable, ..Type::of(kind) };
        let known = Known { bounds, ..Known::default() };
        let domain = Domain::cut(&ty, nullable, known, &tests.iter().collect::<Vec<_>>()).unwrap();
        let outcome = |test: &Test, case: &Case| match domain.decide(test, case, |text| text.contains('a')) {
            Outcome::Holds => '+',
            Outcome::Not => '-',
            Outcome::Fails => '!',
        };
        let row = |case: &Case| {
            let outcomes: String = tests.iter().map(|test| outcome(test, case)).collect();
            format!("{outcomes} {}", domain.show(case))
        };
        domain.cases().iter().map(row).collect()
    }

    #[test]
    fn whole_numbers_are_cut_at_the_constants_and_leave_out_what_is_between_neighbours() {
        let tests = [test(Operator::Lt, json!(3)), test(Operator::Gte, json!(4)), test(Operator::Eq, json!(3))];
        assert_eq!(
            table(Kind::Integer, true, (None, None), &tests),
            ["--+ `3`", "-+- `4`", "+-- an integer below 3", "-+- an integer above 4", "--- nothing"]
        );
        let between = &table(Kind::Number, false, (None, None), &tests)[3];
        assert_eq!(between, "--- a number between 3 and 4");
        assert_eq!(table(Kind::Integer, false, (Some(json!(3)), Some(json!(4.0))), &tests), ["--+ `3`", "-+- `4`"]);
    }

    #[test]
    fn large_neighbours_are_cut_without_rounding() {
        let two_53 = 9_007_199_254_740_992_i64;
        let tests = [test(Operator::Lte, json!(two_53)), test(Operator::Gt, json!(two_53 + 1))];
        assert_eq!(
            table(Kind::Integer, false, (Some(json!(two_53)), Some(json!(two_53 + 1))), &tests),
            ["+- `9007199254740992`", "-- `9007199254740993`"]
        );
    }

    #[test]
    fn texts_are_cut_by_equality_order_and_what_is_left_open() {
        let tests = [test(Operator::Eq, json!("a")), test(Operator::In, json!(["a", "b"]))];
        assert_eq!(table(Kind::String, false, (None, None), &tests), ["++ `a`", "-+ `b`", "-- another text"]);
        let tests = [test(Operator::Gt, json!("b")), test(Operator::Regex, json!("a"))];
        assert_eq!(
            table(Kind::String, true, (None, None), &tests),
            ["-- `b`", "-- another text", "-+ another text", "+- another text", "++ another text", "-- nothing"]
        );
    }

    #[test]
    fn of_an_unknown_value_every_kind_that_is_asked_for_is_a_case() {
        let tests = [test(Operator::Gt, json!(3)), test(Operator::Eq, json!(true))];
        assert_eq!(
            table(Kind::Any, true, (None, None), &tests),
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

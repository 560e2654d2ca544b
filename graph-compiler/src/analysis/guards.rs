//! The facts that a condition proves: the paths that lead to a value if it holds, and if it does not.

use graph_definition::definition::{EdgeDefinition, TestDefinition};
use graph_definition::hash::HashSet;
use graph_model::condition::Condition;
use graph_model::operator::Operator;
use graph_model::path::Path;
use graph_model::value::Value;

/// Returns the paths that are not null if the condition holds, or if it does not.
pub(crate) fn proven(condition: &Condition<TestDefinition>, holds: bool) -> Vec<&Path> {
    match (condition, holds) {
        (Condition::Always, _) => Vec::new(),
        (Condition::Not(inner), _) => proven(inner, !holds),
        (Condition::Test(test), _) => proven_by_test(test, holds).then_some(&test.path.value).into_iter().collect(),
        (Condition::All(all), true) | (Condition::Any(all), false) => {
            all.iter().flat_map(|one| proven(one, holds)).collect()
        }
        // One of them decided, but it is not known which, so only the facts that all of them prove are sure.
        (Condition::All(all), false) | (Condition::Any(all), true) => {
            let mut each = all.iter().map(|one| proven(one, holds));
            let Some(first) = each.next() else { return Vec::new() };
            each.fold(first, |common, one| {
                let one: HashSet<&Path> = one.into_iter().collect();
                common.into_iter().filter(|path| one.contains(path)).collect()
            })
        }
    }
}

/// Whether a condition can have a result, where `can` returns it for its comparisons. Comparisons are taken to be independent of each
/// other, so more is possible than can occur.
pub(crate) fn can_be<'c>(
    condition: &'c Condition<TestDefinition>,
    holds: bool,
    can: &impl Fn(&'c TestDefinition, bool) -> bool,
) -> bool {
    match (condition, holds) {
        (Condition::Always, _) => holds,
        (Condition::Not(inner), _) => can_be(inner, !holds, can),
        (Condition::Test(test), _) => can(test, holds),
        (Condition::All(all), true) | (Condition::Any(all), false) => all.iter().all(|one| can_be(one, holds, can)),
        (Condition::All(all) | Condition::Any(all), _) => all.iter().any(|one| can_be(one, holds, can)),
    }
}

/// Returns the paths at which there is no empty list if the condition holds, or if it does not. There may be no value at all.
pub(crate) fn not_empty(condition: &Condition<TestDefinition>, holds: bool) -> Vec<&Path> {
    let is_empty = |value: &Value| matches!(value, Value::Array(list) if list.is_empty());
    decided(condition, holds)
        .into_iter()
        .filter(|(test, holds)| match test.operator {
            Operator::Eq if is_empty(&test.value.value) => !holds,
            Operator::Ne if is_empty(&test.value.value) => *holds,
            Operator::Eq => *holds && test.value.value.is_array(),
            Operator::Contains => *holds,
            _ => false,
        })
        .map(|(test, _)| &test.path.value)
        .collect()
}

/// Returns the comparisons whose result is known if the condition holds, or if it does not.
pub(crate) fn decided(condition: &Condition<TestDefinition>, holds: bool) -> Vec<(&TestDefinition, bool)> {
    match (condition, holds) {
        (Condition::Always, _) => Vec::new(),
        (Condition::Not(inner), _) => decided(inner, !holds),
        (Condition::Test(test), _) => vec![(test, holds)],
        (Condition::All(all), true) | (Condition::Any(all), false) => {
            all.iter().flat_map(|one| decided(one, holds)).collect()
        }
        // One of them decided, but it is not known which.
        (Condition::All(all) | Condition::Any(all), _) => match all.as_slice() {
            [one] => decided(one, holds),
            _ => Vec::new(),
        },
    }
}

/// Whether one of `paths` is not null if the condition holds, or if it does not; it need not be known which one.
pub(crate) fn proves_one(condition: &Condition<TestDefinition>, holds: bool, paths: &[Path]) -> bool {
    match (condition, holds) {
        (Condition::Always, _) => false,
        (Condition::Not(inner), _) => proves_one(inner, !holds, paths),
        (Condition::Test(test), _) => {
            let looked_at = &test.path.value;
            let is_on_the_way =
                |path: &Path| path.root == looked_at.root && looked_at.segments.starts_with(&path.segments);
            proven_by_test(test, holds) && paths.iter().any(is_on_the_way)
        }
        (Condition::All(all), true) | (Condition::Any(all), false) => {
            all.iter().any(|one| proves_one(one, holds, paths))
        }
        (Condition::All(all) | Condition::Any(all), _) => {
            !all.is_empty() && all.iter().all(|one| proves_one(one, holds, paths))
        }
    }
}

fn proven_by_test(test: &TestDefinition, holds: bool) -> bool {
    let null = test.value.value.is_null();
    match test.operator {
        Operator::Exists => holds,
        // Null equals only null.
        Operator::Eq => holds != null,
        Operator::Ne => holds == null,
        Operator::In => match &test.value.value {
            Value::Array(list) => holds != list.contains(&Value::Null),
            _ => false,
        },
        // None of these holds for null.
        Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte | Operator::Contains | Operator::Regex => holds,
    }
}

/// Whether a comparison asks nothing but whether there is a value.
pub(crate) fn asks_only_for_null(test: &TestDefinition) -> bool {
    match test.operator {
        Operator::Exists => true,
        Operator::Eq | Operator::Ne => test.value.value.is_null(),
        _ => false,
    }
}

/// Whether a comparison asks if there is a value, so that it may read a key that is not set.
pub(crate) fn asks_for_null(test: &TestDefinition) -> bool {
    asks_only_for_null(test)
        || test.operator == Operator::In
            && matches!(&test.value.value, Value::Array(list) if list.contains(&Value::Null))
}

/// Returns the comparisons whose result is known where an edge of a list is followed.
pub(crate) fn decided_on_edge(edges: &[EdgeDefinition], edge: usize) -> Vec<(&TestDefinition, bool)> {
    let before = edges[..edge].iter().flat_map(|edge| decided(&edge.when, false));
    before.chain(decided(&edges[edge].when, true)).collect()
}

/// Calls `visit` with each test of a condition, and the paths that are known not to be null when it is decided: those
/// in `known`, and those that the tests before it prove.
pub(crate) fn walk<'c>(
    condition: &'c Condition<TestDefinition>,
    known: &mut Vec<&'c Path>,
    visit: &mut impl FnMut(&'c TestDefinition, &[&'c Path]),
) {
    let length = known.len();
    match condition {
        Condition::Always => {}
        Condition::Test(test) => visit(test, known),
        Condition::Not(inner) => walk(inner, known, visit),
        // The next condition is decided only if this one held, or only if it did not.
        Condition::All(all) | Condition::Any(all) => {
            let holds = matches!(condition, Condition::All(_));
            for one in all {
                walk(one, known, visit);
                known.extend(proven(one, holds));
            }
        }
    }
    known.truncate(length);
}

#[cfg(test)]
mod tests {
    use graph_definition::definition::Spanned;
    use graph_model::path::Path;
    use serde_json::json;

    use super::*;

    fn test(path: &str, operator: Operator, value: Value) -> Condition<TestDefinition> {
        let path = Spanned { value: Path::parse(path).unwrap(), span: 0..0 };
        Condition::Test(TestDefinition { span: 0..0, path, operator, value: Spanned { value, span: 0..0 } })
    }

    fn shown(condition: &Condition<TestDefinition>, holds: bool) -> Vec<String> {
        proven(condition, holds).into_iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_comparison_that_null_fails_proves_a_value() {
        for (operator, value, if_it_holds, if_not) in [
            (Operator::Exists, json!(null), true, false),
            (Operator::Eq, json!(null), false, true),
            (Operator::Ne, json!(null), true, false),
            (Operator::Eq, json!(3), true, false),
            (Operator::Ne, json!(3), false, true),
            (Operator::In, json!([1, 2]), true, false),
            (Operator::In, json!([1, null]), false, true),
            (Operator::Gt, json!(3), true, false),
            (Operator::Regex, json!("x"), true, false),
        ] {
            let condition = test("state.a", operator, value.clone());
            // The reference is the runtime's result for null.
            let null = operator.holds(graph_model::value::View::Null, &value, |_| true).unwrap();
            assert_eq!(if_it_holds, !null, "{operator} {value}");
            assert_eq!(!shown(&condition, true).is_empty(), if_it_holds, "{operator} {value}");
            assert_eq!(!shown(&condition, false).is_empty(), if_not, "{operator} {value}");
        }
    }

    #[test]
    fn combinations_prove_what_their_parts_do() {
        let (a, b) = (|| test("state.a", Operator::Exists, json!(null)), || test("state.b", Operator::Gt, json!(1)));
        assert_eq!(shown(&Condition::All(vec![a(), b()]), true), ["state.a", "state.b"]);
        assert!(shown(&Condition::All(vec![a(), b()]), false).is_empty());
        assert!(shown(&Condition::Any(vec![a(), b()]), true).is_empty());
        assert_eq!(shown(&Condition::Any(vec![a(), a()]), true), ["state.a"]);
        assert_eq!(shown(&Condition::Not(Box::new(Condition::Not(Box::new(a())))), true), ["state.a"]);
        assert!(shown(&Condition::Any(Vec::new()), true).is_empty());
    }
}

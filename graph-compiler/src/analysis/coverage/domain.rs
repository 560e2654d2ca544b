//! The values that a path may have, divided into cases that no comparison of a list of edges distinguishes further.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use graph_definition::definition::{SchemaRule, TestDefinition};
use graph_model::operator::{Operator, equal};
use graph_model::value::{AsView, Value, View};

use crate::types::{Type, TypeKind};

/// How many comparisons of one path may be undecided by the cases, such as `contains`.
const MOST_OPEN: usize = 4;

/// The minimum and the maximum of a number, as the schema writes them; both are possible values.
pub(crate) type Bounds = (Option<Value>, Option<Value>);

/// The known restrictions of the values at a path, beyond their type.
#[derive(Default)]
pub(crate) struct KnownValues<'d> {
    /// The least and the greatest number.
    pub(crate) bounds: Bounds,
    /// All possible values.
    pub(crate) values: Option<Cow<'d, [Value]>>,
    /// The rules of the inputs' schema.
    pub(crate) rules: &'d [SchemaRule],
}

/// The possible values of a path, and the constants that divide them into cases.
pub(crate) struct Domain<'d> {
    kind: TypeKind,
    nullable: bool,
    /// The least and the greatest number, if the inputs' schema has them; both are possible values.
    bounds: Bounds,
    /// The rules of the inputs' schema; every value satisfies them.
    rules: &'d [SchemaRule],
    numbers: Vec<Value>,
    texts: Vec<String>,
    /// Whether texts are compared by order too, and not only for equality.
    ordered: bool,
    /// The comparisons that the cases do not decide.
    open: Vec<(Operator, Value)>,
    booleans: bool,
    /// All possible values, if they are known.
    values: Option<Vec<Value>>,
}

/// One case. A case between two constants has the index of the upper one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Case {
    /// There is no value.
    Null,
    /// Exactly this value.
    Exactly(Value),
    /// A number between two constants, with a bit for the result of each open comparison.
    Number(usize, u8),
    /// A text that equals no constant, or one between two constants, with the same bits.
    Text(usize, u8),
    /// A list, an object, or any other value that the type allows, with the same bits.
    Something(u8),
}

/// The result of a comparison in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Holds,
    Not,
    /// The two cannot be compared: the node fails.
    Fails,
}

impl From<bool> for Decision {
    fn from(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Not }
    }
}

impl<'d> Domain<'d> {
    /// Divides the values of a type by all comparisons of one path. `None` if too many comparisons would stay open.
    pub(crate) fn cut(ty: &Type, nullable: bool, known: KnownValues<'d>, tests: &[&TestDefinition]) -> Option<Self> {
        let mut domain = Self {
            kind: ty.kind.clone(),
            nullable,
            bounds: known.bounds,
            rules: known.rules,
            numbers: Vec::new(),
            texts: Vec::new(),
            ordered: false,
            open: Vec::new(),
            booleans: matches!(ty.kind, TypeKind::Boolean),
            values: known.values.map(Cow::into_owned),
        };
        for test in tests {
            let value = &test.value.value;
            match test.operator {
                Operator::Exists => {}
                Operator::Eq | Operator::Ne => domain.constant(value),
                Operator::In => {
                    value.as_array().into_iter().flatten().for_each(|value| domain.constant(value));
                }
                Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
                    domain.ordered |= value.is_string();
                    domain.constant(value);
                }
                Operator::Contains | Operator::Regex => domain.leave_open(test.operator, value),
            }
        }
        domain.numbers.sort_by(|one, two| if less(one, two) { Ordering::Less } else { Ordering::Greater });
        domain.texts.sort_unstable();
        (domain.open.len() <= MOST_OPEN).then_some(domain)
    }

    fn constant(&mut self, value: &Value) {
        match value {
            Value::Number(_) if !self.numbers.iter().any(|known| equal(known.view(), value.view())) => {
                self.numbers.push(value.clone());
            }
            Value::String(text) if !self.texts.contains(text) => self.texts.push(text.clone()),
            Value::Bool(_) => self.booleans = true,
            Value::Array(_) | Value::Object(_) => self.leave_open(Operator::Eq, value),
            _ => {}
        }
    }

    fn leave_open(&mut self, operator: Operator, value: &Value) {
        if !self.open.iter().any(|(known, other)| *known == operator && other == value) {
            self.open.push((operator, value.clone()));
        }
    }

    /// Whether the type has so few values that all of them can be named.
    pub(crate) fn is_finite(&self) -> bool {
        matches!(self.kind, TypeKind::Boolean | TypeKind::Enum(_) | TypeKind::Never) || self.values.is_some()
    }

    /// Whether something is known of the values.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self.kind, TypeKind::Any) || self.values.is_some()
    }

    /// Returns every case, the usual ones first and null last.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        if let Some(values) = &self.values {
            let some = values.iter().filter(|value| !value.is_null()).cloned().map(Case::Exactly);
            let is_null = self.nullable || values.contains(&Value::Null);
            return some.chain(is_null.then_some(Case::Null)).collect();
        }
        match &self.kind {
            TypeKind::Never => {}
            TypeKind::Boolean => cases.extend(self.both()),
            TypeKind::Integer | TypeKind::Number => cases.extend(self.number_cases()),
            TypeKind::String => cases.extend(self.text_cases()),
            TypeKind::Enum(texts) => cases.extend(self.texts(texts)),
            TypeKind::List(_) | TypeKind::Map(_) | TypeKind::Object(_) => cases.extend(self.with_bits(Case::Something)),
            TypeKind::Any => {
                cases.extend(self.booleans.then(|| self.both()).into_iter().flatten());
                if !self.numbers.is_empty() {
                    cases.extend(self.number_cases());
                }
                if !self.texts.is_empty() || !self.open.is_empty() {
                    cases.extend(self.text_cases());
                }
                cases.extend(self.with_bits(Case::Something));
            }
        }
        cases.extend(self.nullable.then_some(Case::Null));
        cases
    }

    fn both(&self) -> [Case; 2] {
        [true, false].map(|value| Case::Exactly(Value::Bool(value)))
    }

    fn number_cases(&self) -> Vec<Case> {
        let points = self.numbers.iter().filter(|number| self.is_possible(number)).cloned().map(Case::Exactly);
        let between = (0..=self.numbers.len()).filter(|&upper| self.has_numbers(upper));
        points.chain(between.flat_map(|upper| self.with_bits(move |bits| Case::Number(upper, bits)))).collect()
    }

    fn text_cases(&self) -> Vec<Case> {
        let exactly = self.texts(&self.texts);
        let count = if self.ordered { self.texts.len() } else { 0 };
        let others = (0..=count).flat_map(|upper| self.with_bits(move |bits| Case::Text(upper, bits)));
        exactly.chain(others).collect()
    }

    /// Returns the texts that are possible values.
    fn texts<'t>(&'t self, texts: &'t [String]) -> impl Iterator<Item = Case> + 't {
        let values = texts.iter().map(|text| Value::String(text.clone()));
        values.filter(|value| self.rules.iter().all(|rule| rule.holds(value))).map(Case::Exactly)
    }

    fn with_bits(&self, case: impl Fn(u8) -> Case) -> Vec<Case> {
        (0..1_u8 << self.open.len()).map(case).collect()
    }

    fn is_possible(&self, number: &Value) -> bool {
        let is_whole = !matches!(self.kind, TypeKind::Integer) || floor(number) == ceil(number);
        let (min, max) = &self.bounds;
        is_whole
            && self.rules.iter().all(|rule| rule.holds(number))
            && min.as_ref().is_none_or(|min| !less(number, min))
            && max.as_ref().is_none_or(|max| !less(max, number))
    }

    /// Whether there are numbers below the constant with this index and above the one before it.
    fn has_numbers(&self, upper: usize) -> bool {
        let constant = |at: Option<usize>| at.and_then(|at| self.numbers.get(at));
        let (low, high) = (constant(upper.checked_sub(1)), constant(Some(upper)));
        let (min, max) = (self.bounds.0.as_ref(), self.bounds.1.as_ref());
        if matches!(self.kind, TypeKind::Integer) {
            let from = [low.map(|low| floor(low) + 1), min.map(ceil)].into_iter().flatten().max();
            let to = [high.map(|high| ceil(high) - 1), max.map(floor)].into_iter().flatten().min();
            return from.zip(to).is_none_or(|(from, to)| from <= to);
        }
        let from = [low, min].into_iter().flatten().reduce(|one, two| if less(one, two) { two } else { one });
        let to = [high, max].into_iter().flatten().reduce(|one, two| if less(two, one) { two } else { one });
        let Some((from, to)) = from.zip(to) else { return true };
        let is_from = |other: Option<&Value>| other.is_some_and(|other| equal(other.view(), from.view()));
        less(from, to) || (!less(to, from) && !is_from(low) && !is_from(high))
    }

    /// Returns the greatest whole number of a case; `None` if the case has no such number.
    pub(crate) fn most(&self, case: &Case) -> Option<u64> {
        let whole = |value: &Value| value.is_number().then(|| u64::try_from(ceil(value).max(0)).unwrap_or(u64::MAX));
        match case {
            Case::Exactly(value) => whole(value),
            Case::Number(upper, _) => self.numbers.get(*upper).and_then(whole).map(|above| above.saturating_sub(1)),
            _ => None,
        }
    }

    /// Returns a whole number, at least 1, that no number of a case is less than.
    pub(crate) fn least(&self, case: &Case) -> u64 {
        let whole = |value: &Value, round: fn(f64) -> f64| value.as_f64().map(|value| round(value).max(0.0) as u64);
        let least = match case {
            Case::Exactly(value) => whole(value, f64::ceil),
            Case::Number(upper, _) => {
                let lower = upper.checked_sub(1).and_then(|lower| self.numbers.get(lower));
                lower.and_then(|lower| whole(lower, f64::floor)).map(|below| below.saturating_add(1))
            }
            _ => None,
        };
        least.unwrap_or(1).max(1)
    }

    /// Decides a comparison in a case.
    pub(crate) fn decide(&self, test: &TestDefinition, case: &Case, pattern: impl Fn(&str) -> bool) -> Decision {
        let value = &test.value.value;
        let concretely = |view: View<'_>| match test.operator.holds(view, value, &pattern) {
            Ok(holds) => holds.into(),
            Err(_) => Decision::Fails,
        };
        // No list contains a value that no comparison names.
        let in_list = if value.is_array() { Decision::Not } else { Decision::Fails };
        match case {
            Case::Null => concretely(View::Null),
            Case::Exactly(exactly) => concretely(exactly.view()),
            Case::Number(upper, bits) => match test.operator {
                Operator::Exists | Operator::Ne => Decision::Holds,
                Operator::Eq => Decision::Not,
                Operator::In => in_list,
                Operator::Regex => self.is_open(test, *bits),
                Operator::Contains => Decision::Fails,
                Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
                    let at = self.numbers.iter().position(|number| equal(number.view(), value.view()));
                    ordering(test.operator, at, *upper)
                }
            },
            Case::Text(upper, bits) => match test.operator {
                Operator::Exists | Operator::Ne => Decision::Holds,
                Operator::Eq => Decision::Not,
                Operator::In => in_list,
                Operator::Contains if !value.is_string() => Decision::Fails,
                Operator::Regex | Operator::Contains => self.is_open(test, *bits),
                Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
                    let at = self.texts.iter().position(|text| value.as_str() == Some(text));
                    ordering(test.operator, at, *upper)
                }
            },
            Case::Something(bits) => match test.operator {
                Operator::Exists => Decision::Holds,
                Operator::Eq => self.equals(value, *bits),
                Operator::Ne => match self.equals(value, *bits) {
                    Decision::Holds => Decision::Not,
                    _ => Decision::Holds,
                },
                Operator::In => {
                    let elements = value.as_array().map_or(&[][..], Vec::as_slice);
                    elements.iter().any(|element| self.equals(element, *bits) == Decision::Holds).into()
                }
                Operator::Contains => self.is_open(test, *bits),
                _ => Decision::Fails,
            },
        }
    }

    /// Whether a list or object equals this value: only a value that a comparison names can be equal.
    fn equals(&self, value: &Value, bits: u8) -> Decision {
        let at = self.open.iter().position(|(operator, other)| *operator == Operator::Eq && other == value);
        at.is_some_and(|at| bits >> at & 1 == 1).into()
    }

    fn is_open(&self, test: &TestDefinition, bits: u8) -> Decision {
        let is_test = |(operator, value): &(Operator, Value)| *operator == test.operator && *value == test.value.value;
        self.open.iter().position(is_test).is_some_and(|at| bits >> at & 1 == 1).into()
    }

    /// Writes a case in words: `` `maybe` ``, `nothing`, `a number above 10`.
    pub(crate) fn show(&self, case: &Case) -> String {
        let number = |at: usize| &self.numbers[at];
        let what = if matches!(self.kind, TypeKind::Integer) { "an integer" } else { "a number" };
        match case {
            Case::Null => "nothing".to_owned(),
            Case::Exactly(Value::String(text)) => format!("`{text}`"),
            Case::Exactly(value) => format!("`{value}`"),
            Case::Number(_, _) if self.numbers.is_empty() => what.to_owned(),
            Case::Number(0, _) => format!("{what} below {}", number(0)),
            Case::Number(upper, _) if *upper == self.numbers.len() => format!("{what} above {}", number(upper - 1)),
            Case::Number(upper, _) => format!("{what} between {} and {}", number(upper - 1), number(*upper)),
            Case::Text(..) if self.texts.is_empty() => "a text".to_owned(),
            Case::Text(..) => "another text".to_owned(),
            Case::Something(_) if self.is_known() => "something".to_owned(),
            Case::Something(_) => "something else".to_owned(),
        }
    }
}

impl fmt::Debug for Domain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.cases())
    }
}

/// Compares a value between the constant with index `upper` and the one before it with the constant at `at`.
fn ordering(operator: Operator, at: Option<usize>, upper: usize) -> Decision {
    let Some(at) = at else { return Decision::Fails };
    let is_above = at < upper;
    matches!(operator, Operator::Gt | Operator::Gte).eq(&is_above).into()
}

/// Returns the greatest whole number that is not above a number. A float beyond all integers stays beyond them.
fn floor(number: &Value) -> i128 {
    whole(number).unwrap_or_else(|float| float.floor() as i128)
}

/// Returns the smallest whole number that is not below a number. A float beyond all integers stays beyond them.
fn ceil(number: &Value) -> i128 {
    whole(number).unwrap_or_else(|float| float.ceil() as i128)
}

/// Returns a whole number exactly, or a float; bounded, so that 1 can be added.
fn whole(number: &Value) -> Result<i128, f64> {
    const BEYOND: f64 = 36_893_488_147_419_103_232.0; // 2^65
    match number.view() {
        View::Integer(number) => Ok(number.into()),
        View::Large(number) => Ok(number.into()),
        View::Float(number) => Err(number.clamp(-BEYOND, BEYOND)),
        _ => Ok(0),
    }
}

fn less(one: &Value, two: &Value) -> bool {
    Operator::Lt.holds(one.view(), two, |_| false).unwrap_or(false)
}

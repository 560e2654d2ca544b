//! The values that a path may have, cut into cases that no comparison of a list of edges tells apart further.

use std::cmp::Ordering;
use std::fmt;

use graph_model::operator::{Operator, equal};
use graph_model::value::{AsView, Value, View};

use crate::definition::Test;
use crate::types::{Kind, Type};

/// Comparisons that cannot be decided by cases alone, as `contains`: at most so many on one path.
const MOST_OPEN: usize = 4;

/// What is known of the values at a path, and how comparisons cut them.
pub(super) struct Domain {
    kind: Kind,
    nullable: bool,
    /// The least and the greatest number, where the inputs' schema says so; both may occur.
    bounds: (Option<f64>, Option<f64>),
    numbers: Vec<Value>,
    texts: Vec<String>,
    /// Whether texts are ordered, and not only compared for equality.
    ordered: bool,
    /// The comparisons that cases leave open.
    open: Vec<(Operator, Value)>,
    booleans: bool,
    /// All values that there can be, where they are known.
    values: Option<Vec<Value>>,
}

/// One case. What is between two constants is told by the index of the upper one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Case {
    /// There is nothing.
    Null,
    /// Exactly this value.
    Exactly(Value),
    /// A number between two constants, with how the open comparisons come out.
    Number(usize, u8),
    /// A text that is none of the constants, or one between two of them.
    Text(usize, u8),
    /// A list, an object, or what else the type allows.
    Something(u8),
}

/// How a comparison comes out in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    Not,
    /// The two cannot be compared: the node fails.
    Fails,
}

impl From<bool> for Outcome {
    fn from(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Not }
    }
}

impl Domain {
    /// Cuts the values of a type by all comparisons of one path. `None` if too much of them would be left open.
    pub(super) fn cut(
        ty: &Type,
        nullable: bool,
        bounds: (Option<f64>, Option<f64>),
        values: Option<&[Value]>,
        tests: &[&Test],
    ) -> Option<Self> {
        let mut domain = Self {
            kind: ty.kind.clone(),
            nullable,
            bounds,
            numbers: Vec::new(),
            texts: Vec::new(),
            ordered: false,
            open: Vec::new(),
            booleans: matches!(ty.kind, Kind::Boolean),
            values: values.map(<[Value]>::to_vec),
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
    pub(super) fn is_finite(&self) -> bool {
        matches!(self.kind, Kind::Boolean | Kind::Enum(_) | Kind::Never) || self.values.is_some()
    }

    /// Whether something is known of the values.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.kind, Kind::Any) || self.values.is_some()
    }

    /// Returns every case, the usual ones first and nothing last.
    pub(super) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        if let Some(values) = &self.values {
            let some = values.iter().filter(|value| !value.is_null()).cloned().map(Case::Exactly);
            let is_null = self.nullable || values.contains(&Value::Null);
            return some.chain(is_null.then_some(Case::Null)).collect();
        }
        match &self.kind {
            Kind::Never => {}
            Kind::Boolean => cases.extend(self.both()),
            Kind::Integer | Kind::Number => cases.extend(self.number_cases()),
            Kind::String => cases.extend(self.text_cases()),
            Kind::Enum(texts) => cases.extend(texts.iter().map(|text| Case::Exactly(Value::String(text.clone())))),
            Kind::List(_) | Kind::Map(_) | Kind::Object(_) => cases.extend(self.with_bits(Case::Something)),
            Kind::Any => {
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
        let exactly = self.texts.iter().map(|text| Case::Exactly(Value::String(text.clone())));
        let count = if self.ordered { self.texts.len() } else { 0 };
        let others = (0..=count).flat_map(|upper| self.with_bits(move |bits| Case::Text(upper, bits)));
        exactly.chain(others).collect()
    }

    fn with_bits(&self, case: impl Fn(u8) -> Case) -> Vec<Case> {
        (0..1_u8 << self.open.len()).map(case).collect()
    }

    fn is_possible(&self, number: &Value) -> bool {
        let Some(number) = number.as_f64() else { return true };
        let is_whole = number.fract() == 0.0 || !matches!(self.kind, Kind::Integer);
        is_whole && self.bounds.0.is_none_or(|least| number >= least) && self.bounds.1.is_none_or(|most| number <= most)
    }

    /// Whether there are numbers below the constant with this index and above the one before it.
    fn has_numbers(&self, upper: usize) -> bool {
        let constant = |at: Option<usize>| at.and_then(|at| self.numbers.get(at)).and_then(Value::as_f64);
        let (low, high) = (constant(upper.checked_sub(1)), constant(Some(upper)));
        let (least, most) = self.bounds;
        if matches!(self.kind, Kind::Integer) {
            let from = [low.map(|low| low.floor() + 1.0), least.map(f64::ceil)];
            let to = [high.map(|high| high.ceil() - 1.0), most.map(f64::floor)];
            let from = from.into_iter().flatten().fold(f64::NEG_INFINITY, f64::max);
            return from <= to.into_iter().flatten().fold(f64::INFINITY, f64::min);
        }
        let from = [low, least].into_iter().flatten().fold(f64::NEG_INFINITY, f64::max);
        let to = [high, most].into_iter().flatten().fold(f64::INFINITY, f64::min);
        from < to || (from == to && low != Some(from) && high != Some(to))
    }

    /// Returns the greatest whole number of a case; `None` where there is none.
    pub(super) fn most(&self, case: &Case) -> Option<u64> {
        let whole = |value: &Value| value.as_f64().map(|value| value.ceil().max(0.0) as u64);
        match case {
            Case::Exactly(value) => whole(value),
            Case::Number(upper, _) => self.numbers.get(*upper).and_then(whole).map(|above| above.saturating_sub(1)),
            _ => None,
        }
    }

    /// Returns a whole number that no number of a case is less than, 1 or more.
    pub(super) fn least(&self, case: &Case) -> u64 {
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
    pub(super) fn decide(&self, test: &Test, case: &Case, pattern: impl Fn(&str) -> bool) -> Outcome {
        let value = &test.value.value;
        let concretely = |view: View<'_>| match test.operator.holds(view, value, &pattern) {
            Ok(holds) => holds.into(),
            Err(_) => Outcome::Fails,
        };
        // A value that no comparison names is in no list.
        let in_list = if value.is_array() { Outcome::Not } else { Outcome::Fails };
        match case {
            Case::Null => concretely(View::Null),
            Case::Exactly(exactly) => concretely(exactly.view()),
            Case::Number(upper, bits) => match test.operator {
                Operator::Exists | Operator::Ne => Outcome::Holds,
                Operator::Eq => Outcome::Not,
                Operator::In => in_list,
                Operator::Regex => self.is_open(test, *bits),
                Operator::Contains => Outcome::Fails,
                Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
                    let at = self.numbers.iter().position(|number| equal(number.view(), value.view()));
                    ordering(test.operator, at, *upper)
                }
            },
            Case::Text(upper, bits) => match test.operator {
                Operator::Exists | Operator::Ne => Outcome::Holds,
                Operator::Eq => Outcome::Not,
                Operator::In => in_list,
                Operator::Contains if !value.is_string() => Outcome::Fails,
                Operator::Regex | Operator::Contains => self.is_open(test, *bits),
                Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
                    let at = self.texts.iter().position(|text| value.as_str() == Some(text));
                    ordering(test.operator, at, *upper)
                }
            },
            Case::Something(bits) => match test.operator {
                Operator::Exists => Outcome::Holds,
                Operator::Eq => self.equals(value, *bits),
                Operator::Ne => match self.equals(value, *bits) {
                    Outcome::Holds => Outcome::Not,
                    _ => Outcome::Holds,
                },
                Operator::In => {
                    let elements = value.as_array().map_or(&[][..], Vec::as_slice);
                    elements.iter().any(|element| self.equals(element, *bits) == Outcome::Holds).into()
                }
                Operator::Contains => self.is_open(test, *bits),
                _ => Outcome::Fails,
            },
        }
    }

    /// Whether a list or object is this value: only one that is compared with may be.
    fn equals(&self, value: &Value, bits: u8) -> Outcome {
        let at = self.open.iter().position(|(operator, other)| *operator == Operator::Eq && other == value);
        at.is_some_and(|at| bits >> at & 1 == 1).into()
    }

    fn is_open(&self, test: &Test, bits: u8) -> Outcome {
        let is_test = |(operator, value): &(Operator, Value)| *operator == test.operator && *value == test.value.value;
        self.open.iter().position(is_test).is_some_and(|at| bits >> at & 1 == 1).into()
    }

    /// Writes a case in words: `` `maybe` ``, `nothing`, `a number above 10`.
    pub(super) fn show(&self, case: &Case) -> String {
        let number = |at: usize| &self.numbers[at];
        let what = if matches!(self.kind, Kind::Integer) { "an integer" } else { "a number" };
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

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.cases())
    }
}

/// How a value below the constant with index `upper`, and above the one before, compares with the constant at `at`.
fn ordering(operator: Operator, at: Option<usize>, upper: usize) -> Outcome {
    let Some(at) = at else { return Outcome::Fails };
    let is_above = at < upper;
    matches!(operator, Operator::Gt | Operator::Gte).eq(&is_above).into()
}

fn less(one: &Value, two: &Value) -> bool {
    Operator::Lt.holds(one.view(), two, |_| false).unwrap_or(false)
}

//! The grammar of conditions and of values with templates, written once.
//!
//! The compiler reads a file with places and reports mistakes; programs are read from JSON. Both use [`condition()`] and
//! [`term()`]: they define the shape of their trees ([`Tree`]), and the value that is built from each part
//! ([`Conditions`], [`Terms`]). Descriptions of the format, such as a JSON Schema, are generated from [`Word::TABLE`].

use crate::condition::Condition;
use crate::operator::Operator;

/// A tree that conditions and values are read from.
pub trait Tree: Sized {
    /// The name of a field.
    type Key: AsRef<str>;

    /// Returns the shape of the tree.
    fn shape(&self) -> Shape<'_, Self>;

    /// Returns the fields of a mapping in order; empty for any other tree.
    fn fields(&self) -> impl Iterator<Item = (&Self::Key, &Self)>;
}

/// The shape of a [`Tree`].
#[derive(Debug)]
pub enum Shape<'t, T> {
    /// Null, a boolean or a number.
    Scalar,
    /// A text.
    Text(&'t str),
    /// A list.
    List(&'t [T]),
    /// A mapping.
    Map,
}

impl Tree for serde_json::Value {
    type Key = String;

    fn shape(&self) -> Shape<'_, Self> {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => Shape::Scalar,
            Self::String(text) => Shape::Text(text),
            Self::Array(list) => Shape::List(list),
            Self::Object(_) => Shape::Map,
        }
    }

    fn fields(&self) -> impl Iterator<Item = (&String, &Self)> {
        self.as_object().into_iter().flatten()
    }
}

/// A field of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Its spelling.
    pub name: &'static str,
    /// Its role.
    pub role: Role,
}

/// The role of a field in a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The path of a comparison.
    Path,
    /// The operator of a comparison.
    Operator,
    /// The value of a comparison.
    Value,
    /// One of a list of conditions holds.
    Any,
    /// All of a list of conditions hold.
    All,
    /// Another condition does not hold.
    Not,
}

impl Role {
    /// Whether this field decides the form of a condition, which cannot have a second such field.
    pub fn is_form(self) -> bool {
        matches!(self, Self::Path | Self::Any | Self::All | Self::Not)
    }

    /// Whether it combines other conditions.
    pub fn is_combination(self) -> bool {
        matches!(self, Self::Any | Self::All | Self::Not)
    }
}

impl Word {
    /// Every field of a condition (R76).
    pub const TABLE: [Self; 7] = [
        Self { name: "path", role: Role::Path },
        Self { name: "op", role: Role::Operator },
        Self { name: "operator", role: Role::Operator },
        Self { name: "value", role: Role::Value },
        Self { name: "any", role: Role::Any },
        Self { name: "all", role: Role::All },
        Self { name: "not", role: Role::Not },
    ];

    /// The names of all fields.
    pub const NAMES: [&'static str; Self::TABLE.len()] = {
        let mut names = [""; Self::TABLE.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Self::TABLE[at].name;
            at += 1;
        }
        names
    };

    /// Finds the field that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|word| word.name == name).copied()
    }
}

/// Builds a condition from its parts, and reports its mistakes.
pub trait Conditions<'t, T: Tree + 't> {
    /// The path of a comparison.
    type Path;
    /// A comparison.
    type Test;
    /// A mistake.
    type Error;

    /// Checks that a condition is a mapping, and that its fields are those of a condition.
    fn check(&mut self, condition: &'t T) -> Result<(), Self::Error>;

    /// Returns the conditions of `any` or `all`.
    fn list(&mut self, word: &'t T::Key, list: &'t T) -> Result<&'t [T], Self::Error>;

    /// Reads the path of a comparison.
    fn path(&mut self, path: &'t T) -> Result<Self::Path, Self::Error>;

    /// Reads the name of an operator; `None` for a field without a value.
    fn operator(&mut self, word: &'t T::Key, name: &'t T) -> Result<Option<Operator>, Self::Error>;

    /// Makes a comparison. Every operator but [`Operator::Exists`] has a value.
    fn test(
        &mut self,
        comparison: &'t T,
        path: Self::Path,
        operator: Operator,
        value: Option<&'t T>,
    ) -> Result<Self::Test, Self::Error>;

    /// Reports a field of a comparison that is beside `any`, `all` or `not`. An error ends the reading.
    fn inert(&mut self, field: &'t T::Key, beside: &'t T::Key) -> Result<(), Self::Error>;

    /// Reports that a condition has neither `path` nor `any`, `all` or `not`.
    fn no_form(&mut self, condition: &'t T) -> Self::Error;

    /// Reports that a condition has two of them.
    fn two_forms(&mut self, first: &'t T::Key, second: &'t T::Key) -> Self::Error;

    /// Reports that a comparison has both spellings of the operator's field.
    fn two_operators(&mut self, first: &'t T::Key, second: &'t T::Key) -> Self::Error;

    /// Reports that a comparison has no value although its operator needs one.
    fn no_value(&mut self, comparison: &'t T, operator: Operator) -> Self::Error;
}

/// Reads a condition; an empty one always holds (R77).
///
/// Parts beside one that is wrong are read too, so that their mistakes are found.
///
/// # Errors
///
/// The first mistake.
pub fn condition<'t, T: Tree, C: Conditions<'t, T>>(
    tree: &'t T,
    conditions: &mut C,
) -> Result<Condition<C::Test>, C::Error> {
    conditions.check(tree)?;
    let fields = || tree.fields().filter_map(|(key, inner)| Some((Word::named(key.as_ref())?.role, key, inner)));
    let mut forms = fields().filter(|(role, ..)| role.is_form());
    let Some((role, word, inner)) = forms.next() else {
        return if tree.fields().next().is_none() { Ok(Condition::Always) } else { Err(conditions.no_form(tree)) };
    };
    if let Some((_, second, _)) = forms.next() {
        return Err(conditions.two_forms(word, second));
    }
    if role.is_combination() {
        for (_, field, _) in fields().filter(|(other, ..)| *other != role) {
            conditions.inert(field, word)?;
        }
    }
    match role {
        Role::Any => list(word, inner, conditions).map(Condition::Any),
        Role::All => list(word, inner, conditions).map(Condition::All),
        Role::Not => Ok(Condition::Not(Box::new(condition(inner, conditions)?))),
        Role::Path | Role::Operator | Role::Value => comparison(tree, inner, conditions).map(Condition::Test),
    }
}

fn list<'t, T: Tree, C: Conditions<'t, T>>(
    word: &'t T::Key,
    tree: &'t T,
    conditions: &mut C,
) -> Result<Vec<Condition<C::Test>>, C::Error> {
    let list = conditions.list(word, tree)?;
    let read: Vec<_> = list.iter().map(|tree| condition(tree, conditions)).collect();
    read.into_iter().collect()
}

fn comparison<'t, T: Tree, C: Conditions<'t, T>>(
    tree: &'t T,
    path: &'t T,
    conditions: &mut C,
) -> Result<C::Test, C::Error> {
    let path = conditions.path(path);
    let of = |word: &Word| tree.fields().find(|(key, _)| key.as_ref() == word.name);
    let mut names = Word::TABLE.iter().filter(|word| word.role == Role::Operator).filter_map(of);
    let operator = match (names.next(), names.next()) {
        (Some((first, _)), Some((second, _))) => Err(conditions.two_operators(first, second)),
        // Without a name it is `eq` (R77, R79).
        (Some((word, name)), None) => conditions.operator(word, name).map(|operator| operator.unwrap_or(Operator::Eq)),
        (None, _) => Ok(Operator::Eq),
    };
    let value = Word::TABLE.iter().find(|word| word.role == Role::Value).and_then(of).map(|(_, value)| value);
    let (path, operator) = (path?, operator?);
    if value.is_none() && operator != Operator::Exists {
        return Err(conditions.no_value(tree, operator));
    }
    conditions.test(tree, path, operator, value)
}

/// Builds a value with templates in its texts from its parts.
pub trait Terms<T: Tree> {
    /// A value.
    type Term;
    /// A mistake.
    type Error;

    /// Makes a value of null, a boolean or a number.
    fn scalar(&mut self, tree: &T) -> Self::Term;

    /// Reads a text with templates in it.
    fn text(&mut self, tree: &T, text: &str) -> Result<Self::Term, Self::Error>;

    /// Makes a list.
    fn list(&mut self, tree: &T, list: Vec<Self::Term>) -> Self::Term;

    /// Makes an object of its fields, in order.
    fn object(&mut self, tree: &T, fields: Vec<(&T::Key, Self::Term)>) -> Self::Term;
}

/// Reads a value whose texts are templates, at any depth; names of fields are not templates.
///
/// # Errors
///
/// The first mistake.
pub fn term<T: Tree, M: Terms<T>>(tree: &T, terms: &mut M) -> Result<M::Term, M::Error> {
    match tree.shape() {
        Shape::Scalar => Ok(terms.scalar(tree)),
        Shape::Text(text) => terms.text(tree, text),
        Shape::List(list) => {
            let list = list.iter().map(|inner| term(inner, terms)).collect::<Result<_, _>>()?;
            Ok(terms.list(tree, list))
        }
        Shape::Map => {
            let fields = tree.fields().map(|(key, inner)| Ok((key, term(inner, terms)?))).collect::<Result<_, _>>()?;
            Ok(terms.object(tree, fields))
        }
    }
}

//! Values: owned JSON, borrowed views of typed data, and conversions between them.
//!
//! Tool results, inputs and state are real Rust types in a compiled graph and JSON in an interpreted one. Templates and
//! conditions read both through a [`View`], so there is one meaning of "the value at this path".

use std::borrow::Cow;
use std::fmt;

pub use indexmap::IndexMap;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
pub use serde_json::{Map, Value};

use crate::field;
use crate::secret::{self, HIDDEN};

/// A borrowed view of a value, typed or JSON.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// Nothing: an absent key, a missing path, `None`, JSON `null`. They are the same (R61).
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A whole number above `i64::MAX`, which only JSON can hold.
    Large(u64),
    /// A number with a fraction or exponent; finite.
    Float(f64),
    /// A text.
    Text(&'a str),
    /// A list.
    List(&'a dyn Sequence),
    /// An object.
    Object(&'a dyn NamedFields),
    /// A [`Secret`](crate::secret::Secret) that is not null. It is shown as `[secret]` unless it is [exposed](View::expose).
    Secret(&'a dyn AsView),
}

/// Something with elements in order.
pub trait Sequence {
    /// Returns how many elements there are.
    fn len(&self) -> usize;

    /// Returns the element at `index`, or [`View::Null`] past the end.
    fn at(&self, index: usize) -> View<'_>;

    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Something with named fields in order.
pub trait NamedFields {
    /// Returns the field called `name`, or [`View::Null`] if there is no such field.
    fn get(&self, name: &str) -> View<'_>;

    /// Calls `visit` with each field that is there, in order. A field of a Rust type that is `None` counts as absent, unless it has
    /// a default: then it is there, and null.
    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>));

    /// Whether the fields are nested at most `levels` levels deep.
    fn is_within(&self, levels: usize) -> bool {
        let mut is_within = true;
        self.each(&mut |_, field| is_within = is_within && field.is_within(levels));
        is_within
    }
}

/// A Rust struct that is an object in JSON. The parts below make it [`NamedFields`], [`AsView`] and [`FromValue`].
///
/// Only the parts that depend on the struct itself are generated: rustc pays for each line a thousand times.
pub trait Struct: Sized {
    /// The names of its fields in JSON, in order.
    const NAMES: &'static [&'static str];
    /// For each field, the value that it has if the object does not have the field, as JSON; `None` means null (R47).
    const DEFAULTS: &'static [Option<&'static str>];
    /// The indices of the fields that accept any value except null. The types of other fields decide whether they accept null.
    const NEEDED: &'static [usize] = &[];

    /// Returns a placeholder for a value that could not be made.
    fn blank() -> Self;

    /// Returns the field at `index`, or [`View::Null`] past the end.
    fn field(&self, index: usize) -> View<'_>;

    /// Sets the field at `index`.
    ///
    /// # Errors
    ///
    /// If the value is not of the field's type.
    fn set(&mut self, index: usize, value: Value) -> Result<(), Mismatch>;
}

impl<T: Struct> NamedFields for T {
    #[inline]
    fn get(&self, name: &str) -> View<'_> {
        Self::NAMES.iter().position(|field| *field == name).map_or(View::Null, |index| self.field(index))
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        for (index, name) in Self::NAMES.iter().enumerate() {
            let value = self.field(index);
            if field::is_written(value.is_null(), || default_of::<T>(index)) {
                visit(name, value);
            }
        }
    }

    #[inline]
    fn is_within(&self, levels: usize) -> bool {
        (0..Self::NAMES.len()).all(|index| self.field(index).is_within(levels))
    }
}

impl<T: Struct> AsView for T {
    fn view(&self) -> View<'_> {
        View::Object(self)
    }
}

impl<T: Struct> FromValue for T {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        let mut map = field::fields(value)?;
        let mut made = <Self as Struct>::blank();
        for (index, name) in Self::NAMES.iter().enumerate() {
            field::take(&mut map, name, || default_of::<T>(index), Self::NEEDED.contains(&index))
                .and_then(|value| made.set(index, value))
                .map_err(|error| error.inside(*name))?;
        }
        Ok(made)
    }

    fn blank() -> Self {
        Struct::blank()
    }
}

#[cold]
fn default_of<T: Struct>(index: usize) -> Option<Value> {
    T::DEFAULTS[index].map(|default| serde_json::from_str(default).expect("the compiler writes defaults as JSON"))
}

/// A type that can be viewed as a value.
pub trait AsView {
    /// Returns the borrowed view.
    fn view(&self) -> View<'_>;
}

/// A type that can be made from a JSON value.
pub trait FromValue: Sized {
    /// Converts `value`.
    ///
    /// # Errors
    ///
    /// If the value is of another type; the error says which was expected, what was found and where.
    fn from_value(value: Value) -> Result<Self, Mismatch>;

    /// Checks whether [`FromValue::from_value`] accepts `value`, without converting it. A type that implements this
    /// itself saves the copy.
    ///
    /// # Errors
    ///
    /// As of [`FromValue::from_value`].
    fn check(value: &Value) -> Result<(), Mismatch> {
        Self::from_value(value.clone()).map(drop)
    }

    /// Returns a placeholder for a value that could not be made, until the reason is reported.
    fn blank() -> Self;

    /// Sets the element of a list at an index, or adds one if the index is the list's length.
    ///
    /// # Errors
    ///
    /// If the element is of another type, or this is no list. Nothing is changed then.
    fn put_element(&mut self, at: usize, element: Value) -> Result<(), Mismatch> {
        let _ = at;
        Err(Mismatch::new("no element of a list", element.view()))
    }

    /// Overwrites the memory that the value owns, for [`Secret`](crate::secret::Secret). By default nothing is
    /// overwritten, as for a program's own type.
    fn wipe(&mut self) {}
}

/// The error that a value is not of the type that its place asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch(Box<Details>);

/// The details of a mismatch. They are behind a pointer: mismatches are rare, and results that may hold one are common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    path: Vec<String>,
    expected: Cow<'static, str>,
    found: String,
}

impl Mismatch {
    /// Says that `expected`, as in "a string", was wanted in the place of `found`.
    pub fn new(expected: impl Into<Cow<'static, str>>, found: View<'_>) -> Self {
        Self(Box::new(Details { path: Vec::new(), expected: expected.into(), found: describe(found) }))
    }

    /// Returns the mismatch without any word about the value that was found.
    #[must_use]
    pub fn hiding(mut self) -> Self {
        "something else".clone_into(&mut self.0.found);
        self
    }

    /// Says that the mismatch is inside the field or element called `place`.
    #[must_use]
    pub fn inside(mut self, place: impl Into<String>) -> Self {
        self.0.path.push(place.into());
        self
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {}", self.0.expected, self.0.found)?;
        if !self.0.path.is_empty() {
            let path: Vec<&str> = self.0.path.iter().rev().map(String::as_str).collect();
            write!(f, " at `{}`", path.join("."))?;
        }
        Ok(())
    }
}

impl std::error::Error for Mismatch {}

/// Describes a value in a few words that never quote a text: it may be a secret, or a megabyte.
pub fn describe(view: View<'_>) -> String {
    match view {
        View::Null => "nothing".into(),
        View::Boolean(value) => format!("`{value}`"),
        View::Integer(_) => "an integer".into(),
        View::Large(_) => "an integer above 2^63-1".into(),
        View::Float(_) => "a number with a fraction".into(),
        View::Text(_) => "a string".into(),
        View::List(list) => format!("a list of {}", list.len()),
        View::Object(_) => "an object".into(),
        View::Secret(_) => "a secret".into(),
    }
}

impl<'a> View<'a> {
    /// Whether this is null; `0`, `false`, `""` and `[]` are not (R64, R86).
    #[inline]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Follows one part of a path: a field's name, or a list's index, negative ones counted from the end (R60, R61).
    ///
    /// A step that leads nowhere yields null: a missing field, an index out of range, a step into a text or number.
    #[inline]
    pub fn step(self, name: &str) -> View<'a> {
        match self.expose() {
            Self::Object(record) => record.get(name),
            Self::List(list) => {
                let Ok(index) = name.parse::<i64>() else { return View::Null };
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let index = if index < 0 { index + length } else { index };
                usize::try_from(index).map_or(View::Null, |index| list.at(index))
            }
            _ => View::Null,
        }
    }

    /// Looks into a secret. The view of its value is then shown like that of any other value.
    #[inline]
    #[must_use]
    pub fn expose(self) -> View<'a> {
        match self {
            Self::Secret(secret) => secret.view(),
            other => other,
        }
    }

    /// Whether lists and objects are nested at most `levels` levels deep.
    #[inline]
    pub fn is_within(self, levels: usize) -> bool {
        match self.expose() {
            Self::List(list) => levels > 0 && (0..list.len()).all(|index| list.at(index).is_within(levels - 1)),
            Self::Object(record) => levels > 0 && record.is_within(levels - 1),
            _ => true,
        }
    }

    /// Copies the value into an owned JSON value, in which each secret is the text `[secret]`.
    #[inline]
    pub fn to_value(self) -> Value {
        self.copy(false)
    }

    /// As [`View::to_value`], with the secrets as they are.
    pub fn to_plain_value(self) -> Value {
        self.copy(true)
    }

    #[inline]
    fn copy(self, exposes: bool) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Bool(value),
            Self::Integer(value) => Value::from(value),
            Self::Large(value) => Value::from(value),
            Self::Float(value) => Value::from(value),
            Self::Text(value) => Value::from(value),
            Self::List(list) => (0..list.len()).map(|index| list.at(index).copy(exposes)).collect(),
            Self::Object(record) => {
                let mut map = Map::new();
                record.each(&mut |name, field| {
                    map.insert(name.to_owned(), field.copy(exposes));
                });
                Value::Object(map)
            }
            Self::Secret(secret) if exposes => secret.view().copy(true),
            Self::Secret(_) => Value::from(HIDDEN),
        }
    }

    /// Appends the value as text, as inside a longer text (R66).
    ///
    /// Texts are written as they are, numbers and booleans as in JSON, lists and objects as compact JSON, null as nothing.
    pub fn write_text(self, text: &mut String) {
        use fmt::Write;
        let done = match self {
            Self::Null => Ok(()),
            Self::Text(value) => text.write_str(value),
            Self::Secret(_) => text.write_str(HIDDEN),
            other => write!(text, "{}", other.to_value()),
        };
        done.expect("writing into a string cannot fail");
    }

    /// As [`View::write_text`], with the secrets as they are: the text is as secret as they are.
    pub fn write_plain_text(self, text: &mut String) {
        match self {
            Self::Secret(_) | Self::List(_) | Self::Object(_) => self.to_plain_value().view().write_text(text),
            plain => plain.write_text(text),
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_value())
    }
}

impl Serialize for View<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Large(value) => serializer.serialize_u64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Secret(_) => serializer.serialize_str(HIDDEN),
            Self::List(list) => {
                let mut sequence = serializer.serialize_seq(Some(list.len()))?;
                for index in 0..list.len() {
                    sequence.serialize_element(&list.at(index))?;
                }
                sequence.end()
            }
            Self::Object(record) => {
                let mut map = serializer.serialize_map(None)?;
                let mut failed = None;
                record.each(&mut |name, field| {
                    if failed.is_none() {
                        failed = map.serialize_entry(name, &field).err();
                    }
                });
                failed.map_or_else(|| map.end(), Err)
            }
        }
    }
}

impl<T: AsView> Sequence for Vec<T> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn at(&self, index: usize) -> View<'_> {
        self.get(index).map_or(View::Null, AsView::view)
    }
}

impl<T: AsView> NamedFields for IndexMap<String, T> {
    fn get(&self, name: &str) -> View<'_> {
        Self::get(self, name).map_or(View::Null, AsView::view)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        for (name, value) in self {
            let value = value.view();
            if field::is_written(value.is_null(), || None) {
                visit(name, value);
            }
        }
    }
}

impl NamedFields for Map<String, Value> {
    fn get(&self, name: &str) -> View<'_> {
        Self::get(self, name).map_or(View::Null, AsView::view)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        for (name, field) in self {
            visit(name, field.view());
        }
    }
}

impl AsView for Value {
    #[inline]
    fn view(&self) -> View<'_> {
        match self {
            Self::Null => View::Null,
            Self::Bool(value) => View::Boolean(*value),
            Self::Number(number) => number_view(number),
            Self::String(text) => View::Text(text),
            Self::Array(list) => View::List(list),
            Self::Object(map) => View::Object(map),
        }
    }
}

fn number_view(number: &serde_json::Number) -> View<'static> {
    if let Some(integer) = number.as_i64() {
        View::Integer(integer)
    } else if let Some(large) = number.as_u64() {
        View::Large(large)
    } else {
        number.as_f64().map_or(View::Null, View::Float)
    }
}

impl AsView for String {
    #[inline]
    fn view(&self) -> View<'_> {
        View::Text(self)
    }
}

impl AsView for i64 {
    #[inline]
    fn view(&self) -> View<'_> {
        View::Integer(*self)
    }
}

impl AsView for f64 {
    /// A number that JSON cannot write (not finite) is null (R205).
    #[inline]
    fn view(&self) -> View<'_> {
        if self.is_finite() { View::Float(*self) } else { View::Null }
    }
}

impl AsView for bool {
    #[inline]
    fn view(&self) -> View<'_> {
        View::Boolean(*self)
    }
}

impl<T: AsView> AsView for Option<T> {
    #[inline]
    fn view(&self) -> View<'_> {
        self.as_ref().map_or(View::Null, AsView::view)
    }
}

impl<T: AsView> AsView for Vec<T> {
    #[inline]
    fn view(&self) -> View<'_> {
        View::List(self)
    }
}

impl<T: AsView> AsView for IndexMap<String, T> {
    #[inline]
    fn view(&self) -> View<'_> {
        View::Object(self)
    }
}

impl AsView for Map<String, Value> {
    fn view(&self) -> View<'_> {
        View::Object(self)
    }
}

/// The maximum nesting depth of a value of unknown type. Within it, a value that is written into a journal can be read back.
pub const MOST_LEVELS: usize = 100;

/// Returns the value, if it is nested at most [`MOST_LEVELS`] deep. A loop that writes a value with its own predecessor inside
/// would otherwise nest them until no stack is deep enough.
///
/// # Errors
///
/// If it is deeper.
pub fn within_levels(value: Value) -> Result<Value, Mismatch> {
    check_levels(value.view()).map(|()| value)
}

/// Fails unless a value is nested at most [`MOST_LEVELS`] levels deep.
fn check_levels(value: View<'_>) -> Result<(), Mismatch> {
    if value.is_within(MOST_LEVELS) {
        return Ok(());
    }
    Err(too_deep())
}

fn too_deep() -> Mismatch {
    let expected = format!("a value of at most {MOST_LEVELS} levels");
    Mismatch(Box::new(Details { path: Vec::new(), expected: expected.into(), found: "a deeper one".to_owned() }))
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        within_levels(value)
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        check_levels(value.view())
    }

    fn put_element(&mut self, at: usize, element: Value) -> Result<(), Mismatch> {
        // The list is one level more.
        if !element.view().is_within(MOST_LEVELS - 1) {
            return Err(too_deep());
        }
        match self {
            Self::Array(list) => list.put_element(at, element),
            Self::Null if at == 0 => {
                *self = Self::Array(vec![element]);
                Ok(())
            }
            other => Err(Mismatch::new("a list", other.view())),
        }
    }

    fn blank() -> Self {
        Self::Null
    }

    fn wipe(&mut self) {
        secret::wipe(self);
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(Mismatch::new("a string", other.view())),
        }
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        if value.is_string() { Ok(()) } else { Err(Mismatch::new("a string", value.view())) }
    }

    fn blank() -> Self {
        Self::new()
    }

    fn wipe(&mut self) {
        zeroize::Zeroize::zeroize(self);
    }
}

impl FromValue for bool {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        value.as_bool().ok_or_else(|| Mismatch::new("`true` or `false`", value.view()))
    }

    fn blank() -> Self {
        false
    }

    fn wipe(&mut self) {
        zeroize::Zeroize::zeroize(self);
    }
}

impl FromValue for i64 {
    /// A float without a fraction is an integer, as in JSON Schema: `3.0` is 3.
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        // Every integer up to 2^53 has a float of its own; beyond that a float no longer says which integer was meant.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let whole = |float: f64| (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as Self);
        value
            .as_i64()
            .or_else(|| value.as_f64().and_then(whole))
            .ok_or_else(|| Mismatch::new("an integer of 64 bits", value.view()))
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        if value.is_i64() { Ok(()) } else { Self::from_value(value.clone()).map(drop) }
    }

    fn blank() -> Self {
        0
    }

    fn wipe(&mut self) {
        zeroize::Zeroize::zeroize(self);
    }
}

impl FromValue for f64 {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        value.as_f64().ok_or_else(|| Mismatch::new("a number", value.view()))
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        if value.is_number() { Ok(()) } else { Err(Mismatch::new("a number", value.view())) }
    }

    fn blank() -> Self {
        0.0
    }

    fn wipe(&mut self) {
        zeroize::Zeroize::zeroize(self);
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        if value.is_null() { Ok(None) } else { T::from_value(value).map(Some) }
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        if value.is_null() { Ok(()) } else { T::check(value) }
    }

    fn put_element(&mut self, at: usize, element: Value) -> Result<(), Mismatch> {
        match self {
            Some(list) => list.put_element(at, element),
            None => {
                let mut list = T::blank();
                list.put_element(at, element)?;
                *self = Some(list);
                Ok(())
            }
        }
    }

    fn blank() -> Self {
        None
    }

    fn wipe(&mut self) {
        self.iter_mut().for_each(T::wipe);
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        let Value::Array(list) = value else { return Err(Mismatch::new("a list", value.view())) };
        let element = |(index, value)| T::from_value(value).map_err(|error| error.inside(format!("{index}")));
        list.into_iter().enumerate().map(element).collect()
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        let Value::Array(list) = value else { return Err(Mismatch::new("a list", value.view())) };
        let element = |(index, value)| T::check(value).map_err(|error| error.inside(format!("{index}")));
        list.iter().enumerate().try_for_each(element)
    }

    fn put_element(&mut self, at: usize, element: Value) -> Result<(), Mismatch> {
        let element = T::from_value(element).map_err(|error| error.inside(format!("{at}")))?;
        match self.get_mut(at) {
            Some(place) => *place = element,
            None => self.push(element),
        }
        Ok(())
    }

    fn blank() -> Self {
        Self::new()
    }

    fn wipe(&mut self) {
        self.iter_mut().for_each(T::wipe);
    }
}

impl<T: FromValue> FromValue for IndexMap<String, T> {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        let mut made = Self::new();
        for (name, value) in field::fields(value)? {
            let is_null = value.is_null();
            match T::from_value(value) {
                Ok(value) if field::is_written(is_null, || None) => drop(made.insert(name, value)),
                Ok(_) => {}
                Err(error) => return Err(error.inside(name)),
            }
        }
        Ok(made)
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        let Value::Object(map) = value else { return Err(Mismatch::new("an object", value.view())) };
        map.iter().try_for_each(|(name, value)| T::check(value).map_err(|error| error.inside(name.clone())))
    }

    fn blank() -> Self {
        Self::new()
    }

    fn wipe(&mut self) {
        self.values_mut().for_each(T::wipe);
    }
}

impl FromValue for Map<String, Value> {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        let map = field::fields(value)?;
        check_levels(map.view()).map(|()| map)
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        if value.is_object() { check_levels(value.view()) } else { Err(Mismatch::new("an object", value.view())) }
    }

    fn blank() -> Self {
        Self::new()
    }

    fn wipe(&mut self) {
        secret::wipe_map(self);
    }
}

/// Sets a field or cell to `value`, converted to its type.
///
/// # Errors
///
/// If the value is of another type.
#[inline(never)]
pub fn put<T: FromValue>(field: &mut T, value: Value) -> Result<(), Mismatch> {
    *field = T::from_value(value)?;
    Ok(())
}

/// Checks whether a field or cell accepts `value`.
///
/// # Errors
///
/// If the value is of another type.
#[inline(never)]
pub fn fits<T: FromValue>(_: &T, value: &Value) -> Result<(), Mismatch> {
    T::check(value)
}

/// Sets the element of a list in a field or cell, or adds one at its end.
///
/// # Errors
///
/// If the element is of another type.
#[inline(never)]
pub fn put_element<T: FromValue>(field: &mut T, at: usize, element: Value) -> Result<(), Mismatch> {
    field.put_element(at, element)
}

/// Writes `value` as canonical JSON: sorted keys, no spaces, ASCII only (R203).
///
/// This is the form that is hashed and signed: equal values give equal bytes, on every machine.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        // As the standard library writes it, `1e20` and `1e-5`: the way of `serde_json` has changed before (R204).
        Value::Number(number) if number.is_f64() => {
            text.push_str(&number.as_f64().map_or_else(|| number.to_string(), |number| format!("{number:?}")));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
        Value::String(string) => write_canonical_string(string, text),
        Value::Array(list) => {
            text.push('[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(element, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            // UTF-8 orders texts as their code points are ordered.
            fields.sort_by_key(|(name, _)| name.as_str());
            text.push('{');
            for (index, (name, field)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical_string(name, text);
                text.push(':');
                write_canonical(field, text);
            }
            text.push('}');
        }
    }
}

fn write_canonical_string(string: &str, text: &mut String) {
    use fmt::Write;
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            ' '..='\u{7f}' => text.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(text, "\\u{unit:04x}").expect("writing into a string cannot fail");
                }
            }
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_that_nests_too_deeply_is_refused() {
        let nested = |levels| (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert!(Value::from_value(nested(MOST_LEVELS)).is_ok());
        let error = Value::from_value(nested(MOST_LEVELS + 1)).unwrap_err();
        assert_eq!(error.to_string(), "expected a value of at most 100 levels, found a deeper one");
        let map = Value::Object(Map::from_iter([("a".to_owned(), nested(MOST_LEVELS))]));
        assert!(Map::<String, Value>::from_value(map).is_err());
    }

    /// Fails unless `check` and `from_value` of a type agree about a value.
    fn agrees<T: FromValue>(value: &Value) {
        assert_eq!(T::check(value), T::from_value(value.clone()).map(drop), "{value}");
    }

    #[test]
    fn checking_a_value_agrees_with_converting_it() {
        type Texts = IndexMap<String, Vec<Option<String>>>;
        let deep = (0..=MOST_LEVELS).fold(Value::Null, |inner, _| json!({"a": [inner]}));
        let simple =
            [json!(null), json!(true), json!(3), json!(3.0), json!(3.5), json!("x"), json!([]), json!({}), deep];
        let lists = simple.iter().map(|value| json!([1, value]));
        let maps = simple.iter().map(|value| json!({"a": value, "b": [value, "x"]}));
        for value in simple.iter().cloned().chain(lists).chain(maps) {
            agrees::<Value>(&value);
            agrees::<bool>(&value);
            agrees::<i64>(&value);
            agrees::<f64>(&value);
            agrees::<String>(&value);
            agrees::<Map<String, Value>>(&value);
            agrees::<Option<Vec<i64>>>(&value);
            agrees::<Vec<Option<Value>>>(&value);
            agrees::<Texts>(&value);
            agrees::<secret::Secret<Vec<String>>>(&value);
        }
    }

    #[test]
    fn a_path_that_leads_nowhere_is_null() {
        let value = json!({"list": [1, [2]], "0": "zero", "text": "abc"});
        let at = |path: &str| path.split('.').fold(value.view(), View::step).to_value();
        assert_eq!(at("list.0"), 1);
        assert_eq!(at("list.-1.0"), 2);
        assert_eq!(at("0"), "zero", "a key that looks like a number is a key");
        for missing in ["nope", "list.9", "list.-9", "list.x", "text.0", "list.0.y", "nope.x"] {
            assert_eq!(at(missing), Value::Null, "{missing}");
        }
    }

    #[test]
    fn values_inside_a_text_are_written_as_json_and_null_as_nothing() {
        let text = |value: Value| {
            let mut text = String::new();
            value.view().write_text(&mut text);
            text
        };
        assert_eq!(text(json!(3)), "3");
        assert_eq!(text(json!(2.0)), "2.0");
        assert_eq!(text(json!(true)), "true");
        assert_eq!(text(json!(null)), "");
        assert_eq!(text(json!("a\"b")), "a\"b");
        assert_eq!(text(json!({"a": [1, null]})), r#"{"a":[1,null]}"#);
        assert_eq!(text(json!(u64::MAX)), "18446744073709551615");
    }

    #[test]
    fn a_mismatch_names_both_types_and_the_path_but_quotes_no_value() {
        let error = Vec::<Map<String, Value>>::from_value(json!([{}, "secret"])).unwrap_err();
        assert_eq!(error.to_string(), "expected an object, found a string at `1`");
        let error = IndexMap::<String, Vec<i64>>::from_value(json!({"a": [1, 2.5]})).unwrap_err();
        assert_eq!(error.to_string(), "expected an integer of 64 bits, found a number with a fraction at `a.1`");
    }

    #[test]
    fn whole_floats_are_integers_and_huge_ones_are_not() {
        assert_eq!(i64::from_value(json!(3.0)), Ok(3));
        assert!(i64::from_value(json!(1e300)).is_err());
        assert!(i64::from_value(json!(u64::MAX)).is_err());
    }

    #[test]
    fn canonical_json_sorts_keys_and_escapes_like_the_signed_form() {
        let value = json!({"b": 1, "a": "é😀\u{7f}/\n\u{1}", "c": [1.5, 2.0, null]});
        assert_eq!(
            canonical_json(&value),
            "{\"a\":\"\\u00e9\\ud83d\\ude00\u{7f}/\\n\\u0001\",\"b\":1,\"c\":[1.5,2.0,null]}"
        );
    }

    #[test]
    fn canonical_json_keeps_whole_numbers_and_fractions_apart() {
        let value = json!([1, 1.0, -0.0, 0.1, 1e20, 1e-5, u64::MAX, i64::MIN]);
        let text = "[1,1.0,-0.0,0.1,1e20,1e-5,18446744073709551615,-9223372036854775808]";
        assert_eq!(canonical_json(&value), text);
        assert!(serde_json::Number::from_f64(f64::NAN).is_none() && serde_json::from_str::<Value>("Infinity").is_err());
    }

    #[test]
    fn a_view_serialises_as_the_value_it_shows() {
        let value = json!({"b": [1, {"x": null}], "a": 1.5});
        assert_eq!(serde_json::to_value(value.view()).unwrap(), value);
    }
}

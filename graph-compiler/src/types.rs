//! Types: what is known of a value before the program runs.

use std::collections::BTreeMap;
use std::fmt;

use graph_definition::definition::{Property, Schema, SchemaKind};
use graph_definition::hash::{HashMap, HashSet};
use graph_model::secret::Mask;
use graph_model::value::Value;

/// What is known of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Type {
    /// What it is where it is not null.
    pub kind: Kind,
    /// Whether it may be null: not given, not there, or null in fact.
    pub nullable: bool,
    /// Whether it is shown to nobody but who needs it. A list or an object is not: what is in it may be.
    pub secret: bool,
}

/// What a value is where it is not null.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// No value yet: the element of an empty list, a key that only null was assigned to.
    Never,
    /// `true` or `false`.
    Boolean,
    /// A whole number of 64 bits.
    Integer,
    /// A number.
    Number,
    /// A text.
    String,
    /// One of these texts.
    Enum(Vec<String>),
    /// A list.
    List(Box<Type>),
    /// An object with any fields, each of this type.
    Map(Box<Type>),
    /// An object with these fields.
    Object(Vec<Field>),
    /// Not known: checked when the program runs. Where such a type is not nullable, a schema asks for any value but null.
    Any,
}

/// A field of an object type.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type; nullable where it need not be given.
    pub ty: Type,
    /// What stands where nothing is given.
    pub default: Option<Value>,
    /// What it is for.
    pub description: Option<String>,
}

impl Field {
    /// Whether it must be given.
    pub fn is_required(&self) -> bool {
        !self.ty.nullable && self.default.is_none()
    }
}

/// Deeper types are `any`: a value that holds its own predecessor would otherwise have no end.
const MOST_LEVELS: usize = 8;

impl Type {
    /// A value of this kind that is never null.
    pub fn of(kind: Kind) -> Self {
        Self { nullable: matches!(kind, Kind::Any), kind, secret: false }
    }

    /// No value yet: what is joined with it stays as it is.
    pub fn never() -> Self {
        Self::of(Kind::Never)
    }

    /// A value of which nothing is known.
    pub fn any() -> Self {
        Self::of(Kind::Any)
    }

    /// Nothing but null.
    pub fn null() -> Self {
        Self::never().or_null()
    }

    /// A value of which nothing is known but whether it may be, or have in it, a secret.
    pub fn any_of(secret: bool) -> Self {
        Self { secret, ..Self::any() }
    }

    /// The same, all of it secret.
    #[must_use]
    pub fn concealed(mut self) -> Self {
        match &mut self.kind {
            // That there is nothing is no secret.
            Kind::Never => {}
            Kind::List(inner) | Kind::Map(inner) => {
                **inner = std::mem::replace(&mut **inner, Self::never()).concealed();
            }
            Kind::Object(fields) => {
                for field in fields {
                    field.ty = std::mem::replace(&mut field.ty, Self::never()).concealed();
                }
            }
            Kind::Boolean | Kind::Integer | Kind::Number | Kind::String | Kind::Enum(_) | Kind::Any => {
                self.secret = true;
            }
        }
        self
    }

    /// Whether it is a secret or has one in it.
    pub fn has_secret(&self) -> bool {
        match &self.kind {
            Kind::List(inner) | Kind::Map(inner) => inner.has_secret(),
            Kind::Object(fields) => fields.iter().any(|field| field.ty.has_secret()),
            _ => self.secret,
        }
    }

    /// Whether a part of it is of no known type, and may be nested to any depth.
    pub fn may_nest(&self) -> bool {
        match &self.kind {
            Kind::List(inner) | Kind::Map(inner) => inner.may_nest(),
            Kind::Object(fields) => fields.iter().any(|field| field.ty.may_nest()),
            kind => *kind == Kind::Any,
        }
    }

    /// Whether a secret in a value of this type would be none any more where `target` is taken.
    pub fn reveals(&self, target: &Self) -> bool {
        match (&self.kind, &target.kind) {
            _ if !self.has_secret() => false,
            (Kind::List(one), Kind::List(two)) | (Kind::Map(one), Kind::Map(two)) => one.reveals(two),
            (Kind::Object(fields), Kind::Map(values)) => fields.iter().any(|field| field.ty.reveals(values)),
            // What the target has no field for is dropped.
            (Kind::Object(fields), Kind::Object(targets)) => targets.iter().any(|target| {
                fields.iter().find(|field| field.name == target.name).is_some_and(|field| field.ty.reveals(&target.ty))
            }),
            (Kind::Map(values), Kind::Object(targets)) => targets.iter().any(|target| values.reveals(&target.ty)),
            // Of what is not known, any part may be the secret one.
            _ => !target.is_all_secret(),
        }
    }

    fn is_all_secret(&self) -> bool {
        match &self.kind {
            Kind::Never => true,
            Kind::List(inner) | Kind::Map(inner) => inner.is_all_secret(),
            Kind::Object(fields) => fields.iter().all(|field| field.ty.is_all_secret()),
            _ => self.secret,
        }
    }

    /// Says where in values of this type secrets are; `None` where they are not.
    pub fn mask(&self) -> Option<Mask> {
        match &self.kind {
            Kind::List(inner) | Kind::Map(inner) => Some(Mask::Each(Box::new(inner.mask()?))),
            Kind::Object(fields) => {
                let fields: BTreeMap<String, Mask> =
                    fields.iter().filter_map(|field| Some((field.name.clone(), field.ty.mask()?))).collect();
                (!fields.is_empty()).then_some(Mask::Fields(fields))
            }
            _ => self.secret.then_some(Mask::All),
        }
    }

    /// The same, or null.
    #[must_use]
    pub fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// The same, without null.
    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = matches!(self.kind, Kind::Any);
        self
    }

    /// Returns the type that a schema gives.
    pub fn of_schema(schema: &Schema) -> Self {
        let ty = Self::of_kind(schema);
        if schema.secret { ty.concealed() } else { ty }
    }

    fn of_kind(schema: &Schema) -> Self {
        let kind = match &schema.kind {
            SchemaKind::Any => return Self::any(),
            SchemaKind::Null => return Self::null(),
            SchemaKind::Boolean => Kind::Boolean,
            SchemaKind::Integer => Kind::Integer,
            SchemaKind::Number => Kind::Number,
            SchemaKind::String => Kind::String,
            SchemaKind::Enum(texts) => Kind::Enum(texts.clone()),
            SchemaKind::List(items) => Kind::List(Box::new(Self::of_schema(items))),
            SchemaKind::Map(values) => Kind::Map(Box::new(Self::of_schema(values))),
            SchemaKind::Object(properties) => {
                let field = |property: &Property| {
                    let default = property.schema.default.as_ref().map(|default| default.value.clone());
                    let mut ty = Self::of_schema(&property.schema);
                    match &default {
                        Some(default) => ty.nullable |= default.is_null(),
                        // Without a type nothing says that null is allowed.
                        None if property.required && matches!(property.schema.kind, SchemaKind::Any) => {
                            ty.nullable = false;
                        }
                        None => ty.nullable |= !property.required,
                    }
                    Field {
                        name: property.name.value.clone(),
                        ty,
                        default,
                        description: property.schema.description.clone(),
                    }
                };
                Kind::Object(properties.iter().map(field).collect())
            }
        };
        Self { kind, nullable: schema.nullable, secret: false }
    }

    /// Returns the type of a literal.
    pub fn of_value(value: &Value) -> Self {
        Self::of(match value {
            Value::Null => return Self::null(),
            Value::Bool(_) => Kind::Boolean,
            Value::Number(number) if number.is_i64() => Kind::Integer,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::String,
            Value::Array(list) => Kind::List(Box::new(join_all(list.iter().map(Self::of_value)))),
            Value::Object(map) => Kind::Object(
                map.iter()
                    .map(|(name, value)| Field {
                        name: name.clone(),
                        ty: Self::of_value(value),
                        default: None,
                        description: None,
                    })
                    .collect(),
            ),
        })
    }

    /// Returns the type that holds the values of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let nullable = self.nullable || other.nullable;
        let has_secret = self.has_secret() || other.has_secret();
        let secret = self.secret || other.secret;
        let kind = join_kinds(self.kind, other.kind);
        // What is not known any more has its secrets anywhere.
        let secret = secret || (has_secret && kind == Kind::Any);
        let joined = Self { nullable: nullable || kind == Kind::Any, kind, secret };
        if joined.levels() > MOST_LEVELS { Self::any_of(has_secret) } else { joined }
    }

    fn levels(&self) -> usize {
        match &self.kind {
            Kind::List(inner) | Kind::Map(inner) => 1 + inner.levels(),
            Kind::Object(fields) => 1 + fields.iter().map(|field| field.ty.levels()).max().unwrap_or_default(),
            _ => 0,
        }
    }

    /// Follows one part of a path.
    ///
    /// # Errors
    ///
    /// If no value of this type has such a part.
    pub fn step(&self, name: &str) -> Result<Self, NoPart<'_>> {
        let found = match &self.kind {
            Kind::Any => return Ok(Self::any_of(self.secret)),
            Kind::Never => return Ok(Self::null()),
            Kind::Object(fields) => match fields.iter().find(|field| field.name == name) {
                Some(field) => field.ty.clone(),
                None => {
                    return Err(NoPart { ty: self, fields: fields.iter().map(|field| field.name.as_str()).collect() });
                }
            },
            Kind::Map(values) => (**values).clone().or_null(),
            Kind::List(items) if name.parse::<i64>().is_ok() => (**items).clone().or_null(),
            _ => return Err(NoPart { ty: self, fields: Vec::new() }),
        };
        Ok(if self.nullable { found.or_null() } else { found })
    }

    /// Whether a value of this type can stand where `target` is asked for.
    ///
    /// What is only known at run time is let through, to be checked then: `any`, and null where it may occur.
    pub fn fits(&self, target: &Self) -> bool {
        self.misfit(target).is_none()
    }

    /// Returns the first place at which values of this type are of another kind than `target` asks for.
    ///
    /// `any` is let through, and null where it may occur: [`Type::lack`] finds that.
    pub fn misfit(&self, target: &Self) -> Option<Misfit> {
        self.compare(target, Compares::Kinds, false)
    }

    /// Returns the first place at which a value of this type may be null and `target` takes no null.
    ///
    /// Null counts where the type says that there may be one. Of `any` it is not known; that is checked at run time.
    pub fn lack(&self, target: &Self) -> Option<Misfit> {
        self.compare(target, Compares::Nulls, false)
    }

    /// Compares two types. Where `is_left_out`, null is the same as nothing, and never reaches what takes the value: a field of
    /// an object that has a default, a value of a map (R74). Lists keep their nulls.
    fn compare(&self, target: &Self, compares: Compares, is_left_out: bool) -> Option<Misfit> {
        let here = || Some(Misfit { at: Vec::new(), found: self.clone(), wanted: target.clone() });
        let is_null_missed = self.nullable && !target.nullable && !is_left_out;
        if compares == Compares::Nulls && is_null_missed && self.kind != Kind::Any {
            return here();
        }
        match (&self.kind, &target.kind) {
            (Kind::Never, _) => {
                if is_null_missed {
                    here()
                } else {
                    None
                }
            }
            (Kind::Any, _) | (_, Kind::Any) | (Kind::Integer, Kind::Number) | (Kind::Enum(_), Kind::String) => None,
            (Kind::List(one), Kind::List(two)) => {
                one.compare(two, compares, false).map(|misfit| misfit.inside(Part::Element))
            }
            (Kind::Map(one), Kind::Map(two)) => {
                one.compare(two, compares, true).map(|misfit| misfit.inside(Part::Element))
            }
            (Kind::Object(fields), Kind::Map(values)) => fields.iter().find_map(|field| {
                let misfit = field.ty.compare(values, compares, true)?;
                Some(misfit.inside(Part::Field(field.name.clone())))
            }),
            (Kind::Object(fields), Kind::Object(targets)) => targets.iter().find_map(|target| {
                let misfit = match fields.iter().find(|field| field.name == target.name) {
                    Some(field) => field.ty.compare(&target.ty, compares, target.default.is_some()),
                    None if target.is_required() && compares == Compares::Kinds => Some(Misfit::missing(target)),
                    None => None,
                };
                Some(misfit?.inside(Part::Field(target.name.clone())))
            }),
            (Kind::Map(values), Kind::Object(targets)) => targets.iter().find_map(|target| {
                let misfit = match compares {
                    // Which fields a map has is not known.
                    Compares::Nulls if target.is_required() && values.kind != Kind::Any => {
                        Some(Misfit::missing(target))
                    }
                    _ => values.compare(&target.ty, compares, true),
                };
                Some(misfit?.inside(Part::Field(target.name.clone())))
            }),
            (Kind::Enum(texts), Kind::Enum(targets)) if texts.iter().all(|text| targets.contains(text)) => None,
            (Kind::Enum(_), Kind::Enum(_)) if compares == Compares::Kinds => here(),
            (one, two) if one == two || compares == Compares::Nulls => None,
            _ => here(),
        }
    }
}

/// What [`Type::compare`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compares {
    /// Values of another kind.
    Kinds,
    /// Nulls where none is taken.
    Nulls,
}

/// A place at which the values of one type cannot stand where another is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    /// The way from the value to the place, from outside to inside.
    pub at: Vec<Part>,
    /// The type of what is there; null where nothing is.
    pub found: Type,
    /// The type that is asked for.
    pub wanted: Type,
}

/// A step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A field of an object.
    Field(String),
    /// An element of a list, or a value of a map.
    Element,
}

impl Misfit {
    fn missing(field: &Field) -> Self {
        Self { at: Vec::new(), found: Type::null(), wanted: field.ty.clone() }
    }

    fn inside(mut self, part: Part) -> Self {
        self.at.insert(0, part);
        self
    }

    /// Says which part of a value the place is: `` `a` of an element of whole ``.
    pub fn part_of(&self, whole: &dyn fmt::Display) -> String {
        self.at.iter().fold(whole.to_string(), |whole, part| match part {
            Part::Field(name) => format!("`{name}` of {whole}"),
            Part::Element => format!("an element of {whole}"),
        })
    }
}

/// A path goes into a part that no value of the type has.
#[derive(Debug)]
pub struct NoPart<'t> {
    /// The type.
    pub ty: &'t Type,
    /// The parts that it does have.
    pub fields: Vec<&'t str>,
}

/// Returns the type that holds the values of all.
pub fn join_all(types: impl IntoIterator<Item = Type>) -> Type {
    types.into_iter().fold(Type::never(), Type::join)
}

fn join_kinds(one: Kind, two: Kind) -> Kind {
    match (one, two) {
        (Kind::Never, kind) | (kind, Kind::Never) => kind,
        (Kind::Integer, Kind::Number) | (Kind::Number, Kind::Integer) => Kind::Number,
        (Kind::String, Kind::Enum(_)) | (Kind::Enum(_), Kind::String) => Kind::String,
        (Kind::Enum(mut one), Kind::Enum(two)) => {
            let known: HashSet<&String> = one.iter().collect();
            let new: Vec<String> = two.into_iter().filter(|text| !known.contains(text)).collect();
            one.extend(new);
            Kind::Enum(one)
        }
        (Kind::List(one), Kind::List(two)) => Kind::List(Box::new(one.join(*two))),
        (Kind::Map(one), Kind::Map(two)) => Kind::Map(Box::new(one.join(*two))),
        (Kind::Map(values), Kind::Object(fields)) | (Kind::Object(fields), Kind::Map(values)) => {
            Kind::Map(Box::new(fields.into_iter().map(|field| field.ty).fold(*values, Type::join)))
        }
        (Kind::Object(one), Kind::Object(two)) => Kind::Object(join_fields(one, two)),
        (one, two) if one == two => one,
        _ => Kind::Any,
    }
}

fn join_fields(mut one: Vec<Field>, two: Vec<Field>) -> Vec<Field> {
    let places: HashMap<String, usize> =
        two.iter().enumerate().map(|(place, field)| (field.name.clone(), place)).collect();
    let mut two: Vec<Option<Field>> = two.into_iter().map(Some).collect();
    for field in &mut one {
        match places.get(&field.name).and_then(|&place| two[place].take()) {
            Some(other) => {
                let ty = std::mem::replace(&mut field.ty, Type::null());
                field.ty = ty.join(other.ty);
                // A default that only one side has says nothing about the values of the other.
                field.default = None;
            }
            None => field.ty.nullable = true,
        }
    }
    let others = two.into_iter().flatten();
    one.extend(others.map(|other| Field { ty: other.ty.or_null(), default: None, ..other }));
    one
}

impl fmt::Display for Type {
    /// Writes the type as a diagnostic names it: `a string`, `a list of integers`, `a string or nothing`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Never => return f.write_str("nothing"),
            Kind::Boolean => f.write_str("a boolean")?,
            Kind::Integer => f.write_str("an integer")?,
            Kind::Number => f.write_str("a number")?,
            Kind::String => f.write_str("a string")?,
            Kind::Enum(texts) => {
                let texts: Vec<String> = texts.iter().take(8).map(|text| format!("`{text}`")).collect();
                write!(f, "one of {}", texts.join(", "))?;
            }
            Kind::List(items) => match &items.kind {
                Kind::Never | Kind::Any => f.write_str("a list")?,
                Kind::Boolean => f.write_str("a list of booleans")?,
                Kind::Integer => f.write_str("a list of integers")?,
                Kind::Number => f.write_str("a list of numbers")?,
                Kind::String => f.write_str("a list of strings")?,
                Kind::Enum(_) => f.write_str("a list of words")?,
                Kind::List(_) => f.write_str("a list of lists")?,
                Kind::Map(_) | Kind::Object(_) => f.write_str("a list of objects")?,
            },
            Kind::Map(_) | Kind::Object(_) => f.write_str("an object")?,
            Kind::Any if self.nullable => return f.write_str("any value"),
            Kind::Any => return f.write_str("a value"),
        }
        if self.nullable { f.write_str(" or nothing") } else { Ok(()) }
    }
}

/// Whether a value is a text that must be one of an enumeration's.
pub(crate) fn is_member(value: &Value, texts: &[String]) -> bool {
    value.as_str().is_some_and(|text| texts.iter().any(|member| member == text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: Value) -> Type {
        Type::of_value(&value)
    }

    #[test]
    fn joins_hold_the_values_of_both_sides() {
        for (one, two, joined) in [
            (json!(1), json!(2.5), "a number"),
            (json!("a"), json!(null), "a string or nothing"),
            (json!(1), json!("a"), "any value"),
            (json!([]), json!([1]), "a list of integers"),
            (json!([1]), json!([null]), "a list of integers"),
            (json!({"a": 1}), json!({"b": 1}), "an object"),
        ] {
            assert_eq!(of(one.clone()).join(of(two.clone())).to_string(), joined);
            assert_eq!(of(two).join(of(one)).to_string(), joined);
        }
        let joined = of(json!({"a": 1, "b": "x"})).join(of(json!({"a": 1.5})));
        assert_eq!(joined.step("a").unwrap().to_string(), "a number");
        assert_eq!(joined.step("b").unwrap().to_string(), "a string or nothing");
        assert_eq!(joined.step("c").unwrap_err().fields, ["a", "b"]);
    }

    #[test]
    fn a_value_that_holds_its_predecessor_becomes_any_instead_of_growing() {
        let mut ty = Type::null();
        for _ in 0..100 {
            let field = Field { name: "previous".into(), ty: ty.clone(), default: None, description: None };
            ty = ty.join(Type::of(Kind::Object(vec![field])));
        }
        assert_eq!(ty, Type::any());
    }

    #[test]
    fn paths_into_lists_take_indices_and_may_find_nothing() {
        let list = of(json!([[1]]));
        assert_eq!(list.step("0").unwrap().step("-1").unwrap().to_string(), "an integer or nothing");
        assert!(list.step("x").is_err());
        assert!(of(json!("a")).step("0").is_err());
        assert_eq!(Type::any().step("x").unwrap(), Type::any());
    }

    #[test]
    fn what_fits_is_what_the_place_takes() {
        let word = Type::of(Kind::Enum(vec!["a".into(), "b".into()]));
        let one = Type::of(Kind::Enum(vec!["a".into()]));
        assert!(one.fits(&word) && !word.fits(&one) && word.fits(&of(json!("x"))) && !of(json!("x")).fits(&word));
        assert!(of(json!(1)).fits(&of(json!(1.5))) && !of(json!(1.5)).fits(&of(json!(1))));
        assert!(of(json!({"a": 1, "b": 2})).fits(&of(json!({"a": 1}))) && !of(json!({})).fits(&of(json!({"a": 1}))));
        assert!(!Type::null().fits(&of(json!(1))) && Type::null().fits(&of(json!(1)).or_null()));
        assert!(Type::any().fits(&of(json!(1))) && of(json!([])).fits(&of(json!([1]))));
    }

    fn lacking(value: &Type, target: &Type) -> Option<String> {
        assert!(value.fits(target), "{value:?} fits {target:?} but for nulls");
        value.lack(target).map(|misfit| misfit.part_of(&"it"))
    }

    fn object(fields: &[(&str, Type)]) -> Type {
        let field = |(name, ty): &(&str, Type)| Field {
            name: (*name).into(),
            ty: ty.clone(),
            default: None,
            description: None,
        };
        Type::of(Kind::Object(fields.iter().map(field).collect()))
    }

    #[test]
    fn null_is_found_at_any_depth() {
        let (text, maybe) = (|| Type::of(Kind::String), || Type::of(Kind::String).or_null());
        let list = |items| Type::of(Kind::List(Box::new(items)));
        let map = |values| Type::of(Kind::Map(Box::new(values)));
        for (value, target, found) in [
            (maybe(), text(), Some("it")),
            (text(), maybe(), None),
            (list(maybe()), list(text()), Some("an element of it")),
            (list(maybe()), list(maybe()), None),
            (object(&[("a", maybe())]), object(&[("a", text())]), Some("`a` of it")),
            (list(object(&[("a", maybe())])), list(object(&[("a", text())])), Some("`a` of an element of it")),
            (object(&[("a", list(maybe()))]), object(&[("a", list(text()))]), Some("an element of `a` of it")),
            // A field that nobody asks for is dropped, and so is a value of a map that is null.
            (object(&[("b", maybe())]), object(&[]), None),
            (map(maybe()), map(text()), None),
            (object(&[("a", maybe())]), map(text()), None),
            // A map need not have the field.
            (map(text()), object(&[("a", text())]), Some("`a` of it")),
            (map(text()), object(&[("a", maybe())]), None),
            // What is not known is looked at when the graph runs.
            (Type::any(), text(), None),
            (map(Type::any()), object(&[("a", text())]), None),
            (maybe(), Type { nullable: false, ..Type::any() }, Some("it")),
            (maybe(), Type::any(), None),
        ] {
            assert_eq!(lacking(&value, &target).as_deref(), found, "{value:?} for {target:?}");
        }
        let with_default = Field { default: Some(json!("x")), name: "a".into(), ty: text(), description: None };
        let target = Type::of(Kind::Object(vec![with_default]));
        assert_eq!(lacking(&object(&[("a", maybe())]), &target), None);
        assert!(object(&[("a", Type::null())]).fits(&target) && object(&[]).fits(&target));
    }

    #[test]
    fn the_place_of_a_misfit_is_named_from_inside_out() {
        let (one, two) = (of(json!([{"a": {"b": 1}}])), of(json!([{"a": {"b": "x"}}])));
        let misfit = one.misfit(&two).unwrap();
        assert_eq!(misfit.part_of(&"`p`"), "`b` of `a` of an element of `p`");
        assert_eq!((misfit.found.to_string(), misfit.wanted.to_string()), ("an integer".into(), "a string".into()));
    }
}

//! Types: the compiler's knowledge of a value before the program runs.

use std::collections::BTreeMap;
use std::fmt;

use graph_definition::definition::{Property, SchemaKind, ValueSchema};
use graph_definition::hash::{HashMap, HashSet};
use graph_model::secret::Mask;
use graph_model::value::Value;

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Type {
    /// The kind of the value if it is not null.
    pub kind: TypeKind,
    /// Whether it may be null: not given, missing, or an explicit null.
    pub nullable: bool,
    /// Whether it is hidden from everyone who does not need it. Lists and objects themselves are never secret; the
    /// values in them may be.
    pub secret: bool,
    /// Facts about the value itself.
    pub known: Known,
}

/// Facts about the values of a type beyond their kind: a text that is written in the graph is one of a few words, and a list that is
/// written there has a length.
///
/// The types of an interface have no such facts, so that a program sees the same types whatever words a graph writes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// All scalars that it can be if it is not null; `None` if they are not known, or too many.
    pub values: Option<Vec<Value>>,
    /// How many elements it has at least, if it is a list.
    pub least: u64,
}

impl Known {
    /// Returns what is known of one value.
    fn of(value: &Value) -> Self {
        match value {
            Value::Array(list) => Self { values: None, least: list.len() as u64 },
            Value::Null | Value::Object(_) => Self::default(),
            scalar => Self { values: Some(vec![scalar.clone()]), least: 0 },
        }
    }

    /// Returns what is known of a value of which one of two is known.
    fn join(self, other: Self) -> Self {
        let values = self.values.zip(other.values).and_then(|(mut values, others)| {
            for value in others {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            (values.len() <= MOST_VALUES).then_some(values)
        });
        Self { values, least: self.least.min(other.least) }
    }

    /// Returns what is known beyond the kind of the value.
    fn of_kind(self, kind: &TypeKind) -> Self {
        let values = self.values.filter(|values| match kind {
            TypeKind::Any => false,
            TypeKind::Enum(words) => words.iter().any(|word| values.iter().all(|value| value.as_str() != Some(word))),
            _ => true,
        });
        Self { values, least: if *kind == TypeKind::Any { 0 } else { self.least } }
    }
}

/// The kind of a value that is not null.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeKind {
    /// No value yet: the element of an empty list, a key to which only null was assigned.
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
    Object(Vec<TypedField>),
    /// Not known: checked when the program runs. If such a type is not nullable, a schema accepts any value except null.
    Any,
}

impl TypeKind {
    /// Returns the same kind without descriptions and rules, which are no part of a type in Rust.
    pub(crate) fn undescribed(&self) -> Self {
        let of_type = |ty: &Type| Type { kind: ty.kind.undescribed(), ..ty.clone() };
        match self {
            Self::List(inner) => Self::List(Box::new(of_type(inner))),
            Self::Map(inner) => Self::Map(Box::new(of_type(inner))),
            Self::Object(fields) => {
                let field = |field: &TypedField| TypedField {
                    ty: of_type(&field.ty),
                    description: None,
                    rules: Vec::new(),
                    name: field.name.clone(),
                    default: field.default.clone(),
                };
                Self::Object(fields.iter().map(field).collect())
            }
            other => other.clone(),
        }
    }
}

/// A field of an object type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedField {
    /// Its name.
    pub name: String,
    /// Its type; nullable where it need not be given.
    pub ty: Type,
    /// The value that is used if none is given.
    pub default: Option<Value>,
    /// The author's description.
    pub description: Option<String>,
    /// The rules for its value beyond the type, as the author wrote them.
    pub rules: Vec<String>,
}

impl TypedField {
    /// Whether it must be given.
    pub fn is_required(&self) -> bool {
        !self.ty.nullable && self.default.is_none()
    }
}

/// The most levels of a type; deeper types become `any`. A value that holds its own predecessor would otherwise have an
/// infinite type.
const MOST_LEVELS: usize = 8;

/// How many values of a type are known at most.
const MOST_VALUES: usize = 32;

impl Type {
    /// Returns the type of a value of this kind that is never null.
    pub fn of(kind: TypeKind) -> Self {
        Self { nullable: matches!(kind, TypeKind::Any), kind, secret: false, known: Known::default() }
    }

    /// Returns the type without values. Joining another type with it yields that type.
    pub fn never() -> Self {
        Self::of(TypeKind::Never)
    }

    /// Returns the type of a value of which nothing is known.
    pub fn any() -> Self {
        Self::of(TypeKind::Any)
    }

    /// Returns the type whose only value is null.
    pub fn null() -> Self {
        Self::never().or_null()
    }

    /// Returns the type of a list of such elements that has at least this many.
    pub(crate) fn list(element: Self, least: u64) -> Self {
        Self { known: Known { least, ..Known::default() }, ..Self::of(TypeKind::List(Box::new(element))) }
    }

    /// Returns the type of a value of which nothing is known, except whether it may be, or contain, a secret.
    pub fn any_of(secret: bool) -> Self {
        Self { secret, ..Self::any() }
    }

    /// Returns the same type with all of it secret.
    #[must_use]
    pub fn concealed(mut self) -> Self {
        match &mut self.kind {
            // The absence of a value is no secret.
            TypeKind::Never => {}
            TypeKind::List(inner) | TypeKind::Map(inner) => {
                **inner = std::mem::replace(&mut **inner, Self::never()).concealed();
            }
            TypeKind::Object(fields) => {
                for field in fields {
                    field.ty = std::mem::replace(&mut field.ty, Self::never()).concealed();
                }
            }
            TypeKind::Boolean
            | TypeKind::Integer
            | TypeKind::Number
            | TypeKind::String
            | TypeKind::Enum(_)
            | TypeKind::Any => {
                self.secret = true;
            }
        }
        self
    }

    /// Returns the same type without what is known of the values: the type that a program sees.
    #[must_use]
    pub(crate) fn plain(mut self) -> Self {
        self.known = Known::default();
        match &mut self.kind {
            TypeKind::List(inner) | TypeKind::Map(inner) => {
                **inner = std::mem::replace(&mut **inner, Self::never()).plain();
            }
            TypeKind::Object(fields) => {
                for field in fields {
                    field.ty = std::mem::replace(&mut field.ty, Self::never()).plain();
                }
            }
            _ => {}
        }
        self
    }

    /// Returns the words that its values can be, if they are known: those of an enumeration, or of texts that the graph writes.
    pub(crate) fn words(&self) -> Option<Vec<String>> {
        match (&self.kind, &self.known.values) {
            (TypeKind::Enum(_) | TypeKind::String, Some(values)) => {
                values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
            }
            (TypeKind::Enum(words), None) => Some(words.clone()),
            _ => None,
        }
    }

    /// Returns the same type of which only these words are known to be left.
    pub(crate) fn with_words(self, words: Vec<String>) -> Self {
        let values = Some(words.into_iter().map(Value::from).collect());
        Self { known: Known { values, ..self.known }.of_kind(&self.kind), ..self }
    }

    /// Whether all of its values are null, so that there is nothing where a value is needed.
    pub(crate) fn is_nothing(&self) -> bool {
        self.kind == TypeKind::Never && self.nullable
    }

    /// Returns the first part of two types that differs, each with its path from the whole; `None` if all values of one are values
    /// of the other. A part that only one of them has is null in the other. Descriptions, defaults and orders do not count.
    pub fn difference(&self, other: &Self) -> Option<(Vec<String>, Self, Self)> {
        let within = |name: &str, found: Option<(Vec<String>, Self, Self)>| {
            let (path, one, other) = found?;
            Some((std::iter::once(name.to_owned()).chain(path).collect(), one, other))
        };
        let is_same = match (&self.kind, &other.kind) {
            _ if self.nullable != other.nullable || self.secret != other.secret => false,
            (TypeKind::List(one), TypeKind::List(other)) => return within("0", one.difference(other)),
            (TypeKind::Map(one), TypeKind::Map(other)) => return within("*", one.difference(other)),
            (TypeKind::Object(own), TypeKind::Object(others)) => {
                let field = |fields: &[TypedField], name: &str| {
                    let found = fields.iter().find(|field| field.name == name);
                    found.map_or_else(Self::null, |field| field.ty.clone())
                };
                let names = own.iter().chain(others).map(|field| field.name.as_str());
                return names.into_iter().find_map(|name| {
                    let (one, other) = (field(own, name), field(others, name));
                    within(name, one.difference(&other))
                });
            }
            (TypeKind::Enum(own), TypeKind::Enum(others)) => {
                own.iter().all(|word| others.contains(word)) && others.iter().all(|word| own.contains(word))
            }
            (one, other) => one == other,
        };
        (!is_same).then(|| (Vec::new(), self.clone(), other.clone()))
    }

    /// Whether it is a secret or contains one.
    pub fn has_secret(&self) -> bool {
        match &self.kind {
            TypeKind::List(inner) | TypeKind::Map(inner) => inner.has_secret(),
            TypeKind::Object(fields) => fields.iter().any(|field| field.ty.has_secret()),
            _ => self.secret,
        }
    }

    /// Whether a part of it has no known type, and may be nested to any depth.
    pub fn may_nest(&self) -> bool {
        match &self.kind {
            TypeKind::List(inner) | TypeKind::Map(inner) => inner.may_nest(),
            TypeKind::Object(fields) => fields.iter().any(|field| field.ty.may_nest()),
            kind => *kind == TypeKind::Any,
        }
    }

    /// Whether a secret in a value of this type would no longer be secret where `target` is expected.
    pub fn reveals(&self, target: &Self) -> bool {
        match (&self.kind, &target.kind) {
            _ if !self.has_secret() => false,
            (TypeKind::List(one), TypeKind::List(two)) | (TypeKind::Map(one), TypeKind::Map(two)) => one.reveals(two),
            (TypeKind::Object(fields), TypeKind::Map(values)) => fields.iter().any(|field| field.ty.reveals(values)),
            // Fields that the target does not have are dropped.
            (TypeKind::Object(fields), TypeKind::Object(targets)) => targets.iter().any(|target| {
                fields.iter().find(|field| field.name == target.name).is_some_and(|field| field.ty.reveals(&target.ty))
            }),
            (TypeKind::Map(values), TypeKind::Object(targets)) => {
                targets.iter().any(|target| values.reveals(&target.ty))
            }
            // If the structure is not known, any part may be the secret one.
            _ => !target.is_all_secret(),
        }
    }

    fn is_all_secret(&self) -> bool {
        match &self.kind {
            TypeKind::Never => true,
            TypeKind::List(inner) | TypeKind::Map(inner) => inner.is_all_secret(),
            TypeKind::Object(fields) => fields.iter().all(|field| field.ty.is_all_secret()),
            _ => self.secret,
        }
    }

    /// Returns the places of the secrets in values of this type; `None` if there are no secrets.
    pub fn mask(&self) -> Option<Mask> {
        match &self.kind {
            TypeKind::List(inner) | TypeKind::Map(inner) => Some(Mask::Each(Box::new(inner.mask()?))),
            TypeKind::Object(fields) => {
                let fields: BTreeMap<String, Mask> =
                    fields.iter().filter_map(|field| Some((field.name.clone(), field.ty.mask()?))).collect();
                (!fields.is_empty()).then_some(Mask::Fields(fields))
            }
            _ => self.secret.then_some(Mask::All),
        }
    }

    /// Returns the same type, or null.
    #[must_use]
    pub fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Returns the same type without null.
    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = matches!(self.kind, TypeKind::Any);
        self
    }

    /// Returns the type that a schema gives.
    pub fn of_schema(schema: &ValueSchema) -> Self {
        let ty = Self::of_kind(schema);
        if schema.secret { ty.concealed() } else { ty }
    }

    fn of_kind(schema: &ValueSchema) -> Self {
        let kind = match &schema.kind {
            SchemaKind::Any => return Self::any(),
            SchemaKind::Null => return Self::null(),
            SchemaKind::Boolean => TypeKind::Boolean,
            SchemaKind::Integer => TypeKind::Integer,
            SchemaKind::Number => TypeKind::Number,
            SchemaKind::String => TypeKind::String,
            SchemaKind::Enum(texts) => TypeKind::Enum(texts.clone()),
            SchemaKind::List(items) => TypeKind::List(Box::new(Self::of_schema(items))),
            SchemaKind::Map(values) => TypeKind::Map(Box::new(Self::of_schema(values))),
            SchemaKind::Object(properties) => {
                let field = |property: &Property| {
                    let default = property.schema.default.as_ref().map(|default| default.value.clone());
                    let mut ty = Self::of_schema(&property.schema);
                    match &default {
                        Some(default) => ty.nullable |= default.is_null(),
                        // Without a type, nothing says that null is allowed.
                        None if property.required && matches!(property.schema.kind, SchemaKind::Any) => {
                            ty.nullable = false;
                        }
                        None => ty.nullable |= !property.required,
                    }
                    TypedField {
                        name: property.name.value.clone(),
                        ty,
                        default,
                        description: property.schema.description.clone(),
                        rules: property.schema.rules.iter().map(ToString::to_string).collect(),
                    }
                };
                TypeKind::Object(properties.iter().map(field).collect())
            }
        };
        let rule = |keyword: &str| schema.rules.iter().find(|rule| rule.keyword == keyword).map(|rule| &rule.value);
        let known = Known {
            values: rule("const").map(Known::of).and_then(|known| known.values),
            least: rule("minItems").and_then(Value::as_u64).unwrap_or(0),
        };
        Self { kind, nullable: schema.nullable, secret: false, known }
    }

    /// Returns the type of a literal.
    pub fn of_value(value: &Value) -> Self {
        let kind = match value {
            Value::Null => return Self::null(),
            Value::Bool(_) => TypeKind::Boolean,
            Value::Number(number) if number.is_i64() => TypeKind::Integer,
            Value::Number(_) => TypeKind::Number,
            Value::String(_) => TypeKind::String,
            Value::Array(list) => TypeKind::List(Box::new(join_all(list.iter().map(Self::of_value)))),
            Value::Object(map) => TypeKind::Object(
                map.iter()
                    .map(|(name, value)| TypedField {
                        name: name.clone(),
                        ty: Self::of_value(value),
                        default: None,
                        description: None,
                        rules: Vec::new(),
                    })
                    .collect(),
            ),
        };
        Self { known: Known::of(value), ..Self::of(kind) }
    }

    /// Returns the type that contains the values of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let nullable = self.nullable || other.nullable;
        let has_secret = self.has_secret() || other.has_secret();
        let secret = self.secret || other.secret;
        let known = match (&self.kind, &other.kind) {
            (_, TypeKind::Never) => self.known.clone(),
            (TypeKind::Never, _) => other.known.clone(),
            _ => self.known_words().join(other.known_words()),
        };
        let kind = join_kinds(self.kind, other.kind);
        // A value whose structure is no longer known may have its secrets anywhere.
        let secret = secret || (has_secret && kind == TypeKind::Any);
        let known = known.of_kind(&kind);
        let joined = Self { nullable: nullable || kind == TypeKind::Any, kind, secret, known };
        if joined.levels() > MOST_LEVELS { Self::any_of(has_secret) } else { joined }
    }

    /// Returns what is known of the values, those of an enumeration included.
    fn known_words(&self) -> Known {
        match &self.kind {
            TypeKind::Enum(words) if self.known.values.is_none() => {
                let words = words.iter().map(|word| Value::from(word.as_str())).collect();
                Known { values: Some(words), least: 0 }
            }
            _ => self.known.clone(),
        }
    }

    fn levels(&self) -> usize {
        match &self.kind {
            TypeKind::List(inner) | TypeKind::Map(inner) => 1 + inner.levels(),
            TypeKind::Object(fields) => 1 + fields.iter().map(|field| field.ty.levels()).max().unwrap_or_default(),
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
            TypeKind::Any => return Ok(Self::any_of(self.secret)),
            TypeKind::Never => return Ok(Self::null()),
            TypeKind::Object(fields) => match fields.iter().find(|field| field.name == name) {
                Some(field) => field.ty.clone(),
                None => {
                    return Err(NoPart { ty: self, fields: fields.iter().map(|field| field.name.as_str()).collect() });
                }
            },
            TypeKind::Map(values) => (**values).clone().or_null(),
            TypeKind::List(items) => match name.parse::<i64>() {
                // An index from the end, as `-1`, is that of the last element.
                Ok(index) if self.known.least >= index.unsigned_abs() + u64::from(index >= 0) => (**items).clone(),
                Ok(_) => (**items).clone().or_null(),
                Err(_) => return Err(NoPart { ty: self, fields: Vec::new() }),
            },
            _ => return Err(NoPart { ty: self, fields: Vec::new() }),
        };
        Ok(if self.nullable { found.or_null() } else { found })
    }

    /// Whether a value of this type can be used where `target` is expected.
    ///
    /// Values that are known only at run time are accepted, and checked then: `any`, and null where it may occur.
    pub fn fits(&self, target: &Self) -> bool {
        self.misfit(target).is_none()
    }

    /// Returns the first place at which values of this type have another kind than `target` expects.
    ///
    /// `any` is accepted, and so is null where it may occur: [`Type::lack`] finds that.
    pub fn misfit(&self, target: &Self) -> Option<Misfit> {
        self.compare(target, Compares::Kinds, false)
    }

    /// Returns the first place at which a value of this type may be null and `target` does not accept null.
    ///
    /// Null counts where the type says that it may occur. For `any` that is not known; it is checked at run time.
    pub fn lack(&self, target: &Self) -> Option<Misfit> {
        self.compare(target, Compares::Nulls, false)
    }

    /// Compares two types. With `is_left_out`, null means that no value is given, and the receiver never sees it: a
    /// field of an object that has a default, a value of a map (R74). Lists keep their nulls.
    fn compare(&self, target: &Self, compares: Compares, is_left_out: bool) -> Option<Misfit> {
        let here = || Some(Misfit { at: Vec::new(), found: self.clone(), wanted: target.clone() });
        let is_null_missed = self.nullable && !target.nullable && !is_left_out;
        if compares == Compares::Nulls && is_null_missed && self.kind != TypeKind::Any {
            return here();
        }
        match (&self.kind, &target.kind) {
            (TypeKind::Never, _) => {
                if is_null_missed {
                    here()
                } else {
                    None
                }
            }
            (TypeKind::Any, _)
            | (_, TypeKind::Any)
            | (TypeKind::Integer, TypeKind::Number)
            | (TypeKind::Enum(_), TypeKind::String) => None,
            (TypeKind::List(one), TypeKind::List(two)) => {
                one.compare(two, compares, false).map(|misfit| misfit.inside(ValueStep::Element))
            }
            (TypeKind::Map(one), TypeKind::Map(two)) => {
                one.compare(two, compares, true).map(|misfit| misfit.inside(ValueStep::Element))
            }
            (TypeKind::Object(fields), TypeKind::Map(values)) => fields.iter().find_map(|field| {
                let misfit = field.ty.compare(values, compares, true)?;
                Some(misfit.inside(ValueStep::Field(field.name.clone())))
            }),
            (TypeKind::Object(fields), TypeKind::Object(targets)) => targets.iter().find_map(|target| {
                let misfit = match fields.iter().find(|field| field.name == target.name) {
                    Some(field) => field.ty.compare(&target.ty, compares, target.default.is_some()),
                    None if target.is_required() && compares == Compares::Kinds => Some(Misfit::missing(target)),
                    None => None,
                };
                Some(misfit?.inside(ValueStep::Field(target.name.clone())))
            }),
            (TypeKind::Map(values), TypeKind::Object(targets)) => targets.iter().find_map(|target| {
                let misfit = match compares {
                    // It is not known which fields a map has.
                    Compares::Nulls if target.is_required() && values.kind != TypeKind::Any => {
                        Some(Misfit::missing(target))
                    }
                    _ => values.compare(&target.ty, compares, true),
                };
                Some(misfit?.inside(ValueStep::Field(target.name.clone())))
            }),
            (TypeKind::Enum(_) | TypeKind::String, TypeKind::Enum(targets))
                if self.words().is_some_and(|words| words.iter().all(|word| targets.contains(word))) =>
            {
                None
            }
            (TypeKind::Enum(_), TypeKind::Enum(_)) if compares == Compares::Kinds => here(),
            (one, two) if one == two || compares == Compares::Nulls => None,
            _ => here(),
        }
    }
}

/// The differences that [`Type::compare`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compares {
    /// Values of another kind.
    Kinds,
    /// Nulls where the target type allows no null.
    Nulls,
}

/// A place at which the values of one type cannot be used where another is expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    /// The path from the value to the place, from outside to inside.
    pub at: Vec<ValueStep>,
    /// The type of the value there; null if there is no value.
    pub found: Type,
    /// The expected type.
    pub wanted: Type,
}

/// A step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueStep {
    /// A field of an object.
    Field(String),
    /// An element of a list, or a value of a map.
    Element,
}

impl Misfit {
    fn missing(field: &TypedField) -> Self {
        Self { at: Vec::new(), found: Type::null(), wanted: field.ty.clone() }
    }

    fn inside(mut self, part: ValueStep) -> Self {
        self.at.insert(0, part);
        self
    }

    /// Says which part of a value the place is: `` `a` of an element of whole ``.
    pub fn part_of(&self, whole: &dyn fmt::Display) -> String {
        self.at.iter().fold(whole.to_string(), |whole, part| match part {
            ValueStep::Field(name) => format!("`{name}` of {whole}"),
            ValueStep::Element => format!("an element of {whole}"),
        })
    }
}

/// The error for a path into a part that no value of the type has.
#[derive(Debug)]
pub struct NoPart<'t> {
    /// The type.
    pub ty: &'t Type,
    /// The parts that it does have.
    pub fields: Vec<&'t str>,
}

/// Returns the type that contains the values of all.
pub fn join_all(types: impl IntoIterator<Item = Type>) -> Type {
    types.into_iter().fold(Type::never(), Type::join)
}

fn join_kinds(one: TypeKind, two: TypeKind) -> TypeKind {
    match (one, two) {
        (TypeKind::Never, kind) | (kind, TypeKind::Never) => kind,
        (TypeKind::Integer, TypeKind::Number) | (TypeKind::Number, TypeKind::Integer) => TypeKind::Number,
        (TypeKind::String, TypeKind::Enum(_)) | (TypeKind::Enum(_), TypeKind::String) => TypeKind::String,
        (TypeKind::Enum(mut one), TypeKind::Enum(two)) => {
            let known: HashSet<&String> = one.iter().collect();
            let new: Vec<String> = two.into_iter().filter(|text| !known.contains(text)).collect();
            one.extend(new);
            TypeKind::Enum(one)
        }
        (TypeKind::List(one), TypeKind::List(two)) => TypeKind::List(Box::new(one.join(*two))),
        (TypeKind::Map(one), TypeKind::Map(two)) => TypeKind::Map(Box::new(one.join(*two))),
        (TypeKind::Map(values), TypeKind::Object(fields)) | (TypeKind::Object(fields), TypeKind::Map(values)) => {
            TypeKind::Map(Box::new(fields.into_iter().map(|field| field.ty).fold(*values, Type::join)))
        }
        (TypeKind::Object(one), TypeKind::Object(two)) => TypeKind::Object(join_fields(one, two)),
        (one, two) if one == two => one,
        _ => TypeKind::Any,
    }
}

fn join_fields(mut one: Vec<TypedField>, two: Vec<TypedField>) -> Vec<TypedField> {
    let places: HashMap<String, usize> =
        two.iter().enumerate().map(|(place, field)| (field.name.clone(), place)).collect();
    let mut two: Vec<Option<TypedField>> = two.into_iter().map(Some).collect();
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
    one.extend(others.map(|other| TypedField { ty: other.ty.or_null(), default: None, ..other }));
    one
}

impl fmt::Display for Type {
    /// Writes the type as a diagnostic names it: `a string`, `a list of integers`, `a string or nothing`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            TypeKind::Never => return f.write_str("nothing"),
            TypeKind::Boolean => f.write_str("a boolean")?,
            TypeKind::Integer => f.write_str("an integer")?,
            TypeKind::Number => f.write_str("a number")?,
            TypeKind::String => f.write_str("a string")?,
            TypeKind::Enum(texts) => {
                let texts: Vec<String> = texts.iter().take(8).map(|text| format!("`{text}`")).collect();
                write!(f, "one of {}", texts.join(", "))?;
            }
            TypeKind::List(items) => match &items.kind {
                TypeKind::Never | TypeKind::Any => f.write_str("a list")?,
                TypeKind::Boolean => f.write_str("a list of booleans")?,
                TypeKind::Integer => f.write_str("a list of integers")?,
                TypeKind::Number => f.write_str("a list of numbers")?,
                TypeKind::String => f.write_str("a list of strings")?,
                TypeKind::Enum(_) => f.write_str("a list of words")?,
                TypeKind::List(_) => f.write_str("a list of lists")?,
                TypeKind::Map(_) | TypeKind::Object(_) => f.write_str("a list of objects")?,
            },
            TypeKind::Map(_) | TypeKind::Object(_) => f.write_str("an object")?,
            TypeKind::Any if self.nullable => return f.write_str("any value"),
            TypeKind::Any => return f.write_str("a value"),
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
    fn a_type_that_nests_its_predecessor_widens_to_any() {
        let mut ty = Type::null();
        for _ in 0..100 {
            let field = TypedField {
                name: "previous".into(),
                ty: ty.clone(),
                default: None,
                description: None,
                rules: Vec::new(),
            };
            ty = ty.join(Type::of(TypeKind::Object(vec![field])));
        }
        assert_eq!(ty, Type::any());
    }

    #[test]
    fn paths_into_lists_take_indices_and_may_find_nothing() {
        let list = Type::of(TypeKind::List(Box::new(Type::of(TypeKind::List(Box::new(Type::of(TypeKind::Integer)))))));
        assert_eq!(list.step("0").unwrap().step("-1").unwrap().to_string(), "an integer or nothing");
        // A list that is written in the graph has its elements.
        let list = of(json!([[1, 2], [3]]));
        for (index, found) in [("0", "an integer"), ("-1", "an integer"), ("1", "an integer or nothing")] {
            assert_eq!(list.step("1").unwrap().step(index).unwrap().to_string(), found);
        }
        assert!(list.step("x").is_err());
        assert!(of(json!("a")).step("0").is_err());
        assert_eq!(Type::any().step("x").unwrap(), Type::any());
    }

    #[test]
    fn a_type_fits_a_place_that_accepts_all_its_values() {
        let word = Type::of(TypeKind::Enum(vec!["a".into(), "b".into()]));
        let one = Type::of(TypeKind::Enum(vec!["a".into()]));
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
        let field = |(name, ty): &(&str, Type)| TypedField {
            name: (*name).into(),
            ty: ty.clone(),
            default: None,
            description: None,
            rules: Vec::new(),
        };
        Type::of(TypeKind::Object(fields.iter().map(field).collect()))
    }

    #[test]
    fn null_is_found_at_any_depth() {
        let (text, maybe) = (|| Type::of(TypeKind::String), || Type::of(TypeKind::String).or_null());
        let list = |items| Type::of(TypeKind::List(Box::new(items)));
        let map = |values| Type::of(TypeKind::Map(Box::new(values)));
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
            // Unknown values are checked when the graph runs.
            (Type::any(), text(), None),
            (map(Type::any()), object(&[("a", text())]), None),
            (maybe(), Type { nullable: false, ..Type::any() }, Some("it")),
            (maybe(), Type::any(), None),
        ] {
            assert_eq!(lacking(&value, &target).as_deref(), found, "{value:?} for {target:?}");
        }
        let with_default = TypedField {
            default: Some(json!("x")),
            name: "a".into(),
            ty: text(),
            description: None,
            rules: Vec::new(),
        };
        let target = Type::of(TypeKind::Object(vec![with_default]));
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

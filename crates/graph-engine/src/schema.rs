//! Rules of schemas beyond types: checked where a value enters, with the feature `schema`.

use std::fmt;
#[cfg(feature = "schema")]
use std::sync::OnceLock;

use graph_model::value::{Mismatch, Value};

/// Whether this build can check rules: the feature `schema`.
pub const IS_THERE: bool = cfg!(feature = "schema");

/// Why a value cannot be used, or cannot be checked.
#[derive(Debug)]
pub enum Invalid {
    /// The first rule of the schema that the value breaks, and the others.
    Inputs(Mismatch, Vec<Mismatch>),
    /// The schema cannot be used.
    Schema(String),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inputs(first, others) => {
                write!(f, "{first}")?;
                others.iter().try_for_each(|broken| write!(f, "; {broken}"))
            }
            Self::Schema(reason) => f.write_str(reason),
        }
    }
}

/// The maximum number of broken rules that are reported.
#[cfg(feature = "schema")]
const MOST: usize = 10;

/// The rules of a schema. They are made ready when a value is first checked.
#[derive(Debug)]
pub struct SchemaRules {
    #[cfg_attr(not(feature = "schema"), expect(dead_code, reason = "nothing is checked"))]
    schema: Value,
    #[cfg(feature = "schema")]
    ready: OnceLock<Result<jsonschema::Validator, String>>,
}

impl SchemaRules {
    /// The rules of a schema that the compiler derived from one in a file: it has rules without types.
    pub fn new(schema: Value) -> Self {
        Self {
            schema,
            #[cfg(feature = "schema")]
            ready: OnceLock::new(),
        }
    }

    /// Checks that a value breaks no rule. A null field counts as absent, as it does everywhere.
    ///
    /// # Errors
    ///
    /// The rules that are broken, ten at most. Each has its place but not the value, which may be a secret.
    #[cfg(feature = "schema")]
    pub fn check(&self, value: Value) -> Result<(), Invalid> {
        let ready = self.ready.get_or_init(|| {
            jsonschema::draft202012::options()
                .should_validate_formats(true)
                .should_ignore_unknown_formats(false)
                // The `regex` crate needs time in proportion to the text; with the other engine, a value could block a run.
                .with_pattern_options(jsonschema::PatternOptions::regex())
                .build(&self.schema)
                .map_err(|error| error.to_string())
        });
        let ready = ready.as_ref().map_err(|reason| Invalid::Schema(reason.clone()))?;
        let value = graph_model::field::without_nulls(value);
        let mut broken = ready.iter_errors(&value).take(MOST).map(|error| mismatch(&self.schema, &error));
        broken.next().map_or(Ok(()), |first| Err(Invalid::Inputs(first, broken.collect())))
    }

    /// Refuses every value: this build cannot check it.
    ///
    /// # Errors
    ///
    /// Always.
    #[cfg(not(feature = "schema"))]
    pub fn check(&self, _: Value) -> Result<(), Invalid> {
        Err(Invalid::Schema("`graph-runtime` was built without its feature `schema`".into()))
    }
}

/// Checks that a value breaks no rule of a schema that is needed once.
///
/// # Errors
///
/// As [`SchemaRules::check`].
pub fn validate(schema: &Value, value: &Value) -> Result<(), Invalid> {
    SchemaRules::new(schema.clone()).check(value.clone())
}

#[cfg(feature = "schema")]
fn mismatch(schema: &Value, error: &jsonschema::ValidationError<'_>) -> Mismatch {
    use graph_model::value::AsView;

    // The rule's argument is part of the graph, so it can be shown.
    let argument = schema.pointer(error.schema_path().as_str());
    let keyword = error.kind().keyword();
    let rule = argument.map_or_else(|| keyword.to_owned(), |value| format!("{keyword}: {value}"));
    let expected = format!("what `{rule}` allows");
    let path = error.instance_path().as_str().strip_prefix('/');
    let segments = path.into_iter().flat_map(|path| path.rsplit('/'));
    let names = segments.map(|segment| segment.replace("~1", "/").replace("~0", "~"));
    let mismatch = Mismatch::new(expected, error.instance().view());
    // The words for a boolean are its value.
    let mismatch = if error.instance().is_boolean() { mismatch.hiding() } else { mismatch };
    names.fold(mismatch, Mismatch::inside)
}

#[cfg(all(test, feature = "schema"))]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(schema: &Value, inputs: &Value) -> Option<String> {
        match validate(schema, inputs) {
            Ok(()) => None,
            Err(invalid @ Invalid::Inputs(..)) => Some(invalid.to_string()),
            Err(Invalid::Schema(reason)) => Some(format!("schema: {reason}")),
        }
    }

    #[test]
    fn each_rule_is_checked_and_named_with_its_field() {
        for (rule, fits, breaks, found) in [
            (json!({"minimum": 3}), json!(3), json!(2), "an integer"),
            (json!({"maximum": 3.5}), json!(3.5), json!(4), "an integer"),
            (json!({"exclusiveMinimum": 3}), json!(3.5), json!(3), "an integer"),
            (json!({"exclusiveMaximum": 3}), json!(2), json!(3.0), "a number with a fraction"),
            (json!({"multipleOf": 0.1}), json!(0.3), json!(0.35), "a number with a fraction"),
            (json!({"minLength": 2}), json!("äö"), json!("ä"), "a string"),
            (json!({"maxLength": 2}), json!("äö"), json!("äöü"), "a string"),
            (json!({"pattern": "^a+$"}), json!("aa"), json!("b"), "a string"),
            (json!({"minItems": 1}), json!([1]), json!([]), "a list of 0"),
            (json!({"maxItems": 1}), json!([1]), json!([1, 2]), "a list of 2"),
            (json!({"uniqueItems": true}), json!([1, 2]), json!([1, 1]), "a list of 2"),
            (json!({"minProperties": 1}), json!({"a": 1}), json!({"a": null}), "an object"),
            (json!({"maxProperties": 1}), json!({"a": 1, "b": null}), json!({"a": 1, "b": 2}), "an object"),
            (json!({"const": "yes"}), json!("yes"), json!("no"), "a string"),
        ] {
            let (keyword, argument) = rule.as_object().unwrap().iter().next().unwrap();
            let schema = json!({ "properties": { "field": rule } });
            assert_eq!(said(&schema, &json!({ "field": fits })), None, "{rule} allows {fits}");
            assert_eq!(said(&schema, &json!({ "field": null })), None, "{rule} says nothing of what is absent");
            let expected = format!("expected what `{keyword}: {argument}` allows, found {found} at `field`");
            assert_eq!(said(&schema, &json!({ "field": breaks })), Some(expected));
        }
    }

    #[test]
    fn all_broken_rules_are_reported() {
        let schema =
            json!({"properties": {"cents": {"minimum": 0}, "items": {"minItems": 1}, "name": {"minLength": 1}}});
        let expected = "expected what `minimum: 0` allows, found an integer at `cents`; \
                        expected what `minItems: 1` allows, found a list of 0 at `items`";
        let found = said(&schema, &json!({"cents": -3, "items": [], "name": "n"}));
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[test]
    fn each_format_that_the_compiler_knows_is_checked() {
        for (format, fits) in [
            ("date", "2026-11-21"),
            ("date-time", "2026-11-21T20:00:00Z"),
            ("duration", "PT1H"),
            ("email", "a@example.org"),
            ("hostname", "example.org"),
            ("ipv4", "127.0.0.1"),
            ("ipv6", "::1"),
            ("json-pointer", "/a/0"),
            ("regex", "^a+$"),
            ("time", "20:00:00Z"),
            ("uri", "https://example.org/"),
            ("uri-reference", "/a"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ] {
            let schema = json!({ "properties": { "field": { "format": format } } });
            assert_eq!(said(&schema, &json!({ "field": fits })), None, "{format}");
            assert!(said(&schema, &json!({ "field": "a ( b\\" })).is_some(), "{format}");
        }
    }

    #[test]
    fn a_broken_nested_rule_is_reported_with_its_path() {
        let schema = json!({ "properties": { "a/b": { "items": { "additionalProperties": { "minLength": 2 } } } } });
        let found = said(&schema, &json!({ "a/b": [{ "x": "long" }, { "y": "s" }] }));
        assert_eq!(found.unwrap(), "expected what `minLength: 2` allows, found a string at `a/b.1.y`");
    }

    #[test]
    fn no_message_quotes_a_value() {
        let secret = "hunter2";
        for rule in
            [json!({ "pattern": "^a" }), json!({ "maxLength": 1 }), json!({ "format": "uuid" }), json!({ "const": 1 })]
        {
            let found = said(&json!({ "properties": { "password": rule } }), &json!({ "password": secret })).unwrap();
            assert!(found.contains("`password`") && !found.contains(secret), "{found}");
        }
        let found = said(&json!({ "properties": { "paid": { "const": 1 } } }), &json!({ "paid": true })).unwrap();
        assert!(found.ends_with("found something else at `paid`"), "{found}");
    }

    #[test]
    fn an_unusable_schema_is_an_error() {
        for schema in [json!({ "pattern": "(" }), json!({ "minimum": "3" }), json!({ "format": "phone" })] {
            assert!(said(&schema, &json!({})).unwrap().starts_with("schema: "), "{schema}");
        }
    }

    #[test]
    fn schema_patterns_use_the_linear_time_regex_engine() {
        let schema = json!({ "properties": { "field": { "pattern": "^(?=a)" } } });
        assert!(said(&schema, &json!({})).unwrap().starts_with("schema: "), "look-ahead is the other engine's");
    }
}

#[cfg(all(test, not(feature = "schema")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_no_inputs_pass() {
        let found = validate(&Value::Null, &Value::Null);
        assert!(matches!(found, Err(Invalid::Schema(reason)) if reason.contains("feature `schema`")));
    }
}

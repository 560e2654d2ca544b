//! The file of tests as a JSON Schema, for editors.

use graph_model::duration;
use graph_runtime::Value;
use serde_json::json;

use crate::file::{ANSWER, CASE, ERROR, EXPECT, FAILURE, FILE, PEOPLE, SIGNAL, STATUSES, category_words};

/// Returns the schema of files of tests, in draft 07. It accepts every file that [`TestFile`](crate::TestFile) reads, and knows no
/// names of a graph.
///
/// ```
/// let schema = graph_testing::json_schema();
/// assert_eq!(schema["properties"]["cases"]["type"], "array");
/// ```
pub fn json_schema() -> Value {
    let mut file = object(&FILE, |field| match field {
        "inputs" => map(&anything(), "Inputs of all cases."),
        "tools" => reference("tools", "The answers of tools in all cases, by the tools' ids."),
        _ => json!({ "type": "array", "minItems": 1, "items": { "$ref": "#/definitions/case" } }),
    });
    file["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    file["title"] = json!("The tests of a graph");
    file["required"] = json!(["cases"]);
    file["definitions"] = json!({
        "case": case(),
        "tools": map(&json!({ "$ref": "#/definitions/script" }), "The answers of each tool, by its id."),
        "script": { "anyOf": [
            { "$ref": "#/definitions/answer" },
            { "type": "array", "items": { "$ref": "#/definitions/answer" } },
        ] },
        "answer": answer(),
        "failure": failure(),
        "people": people(),
        "signal": signal(),
        "expect": expect(),
        "duration": { "anyOf": [
            { "type": "number", "minimum": 0 },
            { "type": "string", "pattern": duration::pattern() },
        ] },
    });
    file
}

/// An object with these fields and no others.
fn object(fields: &[&str], schema: impl Fn(&str) -> Value) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), schema(field))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn anything() -> Value {
    json!({})
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

fn map(values: &Value, description: &str) -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": values, "description": description })
}

fn text(description: &str) -> Value {
    json!({ "type": ["string", "null"], "description": description })
}

fn reference(name: &str, description: &str) -> Value {
    // Draft 07 ignores what is beside a reference. A field without a value counts as absent.
    json!({ "anyOf": [{ "$ref": format!("#/definitions/{name}") }, { "type": "null" }], "description": description })
}

fn list(items: &Value, description: &str) -> Value {
    json!({ "type": ["array", "null"], "items": items, "description": description })
}

fn words(words: &[&str], description: &str) -> Value {
    let all: Vec<Value> = words.iter().map(|word| json!(word)).chain([Value::Null]).collect();
    json!({ "enum": all, "description": description })
}

fn case() -> Value {
    let mut case = object(&CASE, |field| match field {
        "name" => json!({ "type": "string", "description": "The name of the case." }),
        "inputs" => map(&anything(), "The inputs of the run, by their names."),
        "entry" => text("The entry at which the run begins."),
        "begins" => text("When the run begins, as `2026-11-21T20:00:00+01:00`."),
        "tools" => reference("tools", "The answers of each tool, by its id."),
        "answers" => list(&json!({ "$ref": "#/definitions/people" }), "The answers of people."),
        "signals" => list(&json!({ "$ref": "#/definitions/signal" }), "The signals."),
        "grants" => list(&json!({ "type": "string" }), "Capability patterns in place of the graph's permissions."),
        "crash" => words(&["each_commit"], "Crashes the run after each of its commits, and resumes it."),
        "unused" => words(&["allowed"], "Scripted answers and signals may stay unused."),
        _ => json!({ "$ref": "#/definitions/expect" }),
    });
    case["required"] = json!(["name", "expect"]);
    case
}

fn answer() -> Value {
    let mut answer = object(&ANSWER, |field| match field {
        "returns" => described(anything(), "The result of the tool, or the output of a graph."),
        "fails" => reference("failure", "The failure of the tool."),
        "interrupts" => described(anything(), "The tool asks people, and shows them this."),
        "with" => map(&anything(), "The parameters of the calls that the answer is for."),
        "times" => json!({
            "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 1_000_000 }, { "enum": ["any", null] }],
            "description": "How many calls it is for.",
        }),
        _ => reference("duration", "How long the tool takes, in virtual time."),
    });
    answer["anyOf"] = ["returns", "fails", "interrupts"].map(|field| json!({ "required": [field] })).to_vec().into();
    answer
}

fn failure() -> Value {
    let mut failure = object(&FAILURE, |field| match field {
        "message" => json!({ "type": "string", "description": "The error message." }),
        "category" => {
            words(&category_words().map(|(word, _)| word).collect::<Vec<_>>(), "How the failure is to be treated.")
        }
        "code" => text("The error code of whatever the tool called."),
        "status" => {
            json!({ "type": ["integer", "null"], "minimum": 0, "maximum": 999, "description": "The HTTP status." })
        }
        "retry_after" => reference("duration", "How long the tool asks to be left alone."),
        _ => described(anything(), "The data that the tool got before it failed."),
    });
    failure["required"] = json!(["message"]);
    json!({ "anyOf": [{ "type": "string" }, failure] })
}

fn people() -> Value {
    let mut people = object(&PEOPLE, |field| match field {
        "to" => json!({ "type": "string", "description": "The node that asks." }),
        "after" => reference("duration", "How long after the question."),
        "answer" => described(anything(), "The answer."),
        "expires" => json!({ "enum": [true, null], "description": "Nobody answers this question." }),
        _ => json!({ "enum": [true, null], "description": "A visit continues that a hook suspended." }),
    });
    people["required"] = json!(["to"]);
    people
}

fn signal() -> Value {
    let mut signal = object(&SIGNAL, |field| match field {
        "name" => json!({ "type": "string", "description": "The signal." }),
        "value" => described(anything(), "Its value."),
        "after" => reference("duration", "How long after a wait began that listens to it."),
        "at" => reference("duration", "How long after the start of the run."),
        _ => text("The node that waits."),
    });
    signal["required"] = json!(["name"]);
    signal
}

fn expect() -> Value {
    let mut expect = object(&EXPECT, |field| match field {
        "path" => list(&json!({ "type": "string" }), "The names of the visited nodes, in their order."),
        "status" => words(&STATUSES.map(|(word, _)| word), "How the run ends."),
        "output" => described(anything(), "The output, exactly."),
        "state" => map(&anything(), "Some keys of the state at the end."),
        "error" => json!({
            "anyOf": [
                { "type": ["string", "null"] },
                object(&ERROR, |field| text(match field {
                    "contains" => "A part of the error message.",
                    _ => "The node that fails.",
                })),
            ],
            "description": "The error of a run that fails.",
        }),
        "calls" => map(
            &json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "array", "items": { "type": "object" } }] }),
            "For each tool, the number of its calls, or some of their parameters.",
        ),
        "steps" => json!({ "type": ["integer", "null"], "minimum": 0, "description": "How many nodes are visited." }),
        _ => list(&json!({ "type": "string" }), "Parts of the warnings, in their order."),
    });
    expect["minProperties"] = json!(1);
    expect
}

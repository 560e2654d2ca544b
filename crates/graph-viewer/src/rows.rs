//! The rows of a timeline and the records behind them, as JSON. Encrypted values are shown as `[secret]`.

use graph_model::digest::hex;
use graph_runtime::record::hide_encrypted;
use serde_json::{Map, Value, json};

use crate::index::{RowPlace, RunIndex};
use crate::problem::ViewProblem;

/// The most characters of a value that a row shows.
const MOST_SHOWN: usize = 160;

/// The most rows of one answer.
pub(crate) const MOST_ROWS: usize = 500;

/// Returns a record's text as JSON, with its encrypted values hidden.
fn read(index: &RunIndex, record: usize) -> Option<Value> {
    let mut value: Value = serde_json::from_str(&index.records.get(record)?.body).ok()?;
    hide_encrypted(&mut value);
    Some(value)
}

/// Returns the rows from a place on, of those that have one of the flags and are of a node, if any are named.
pub(crate) fn rows(index: &RunIndex, from: usize, count: usize, flags: u8, node: Option<&str>) -> Value {
    let count = count.min(MOST_ROWS);
    let (total, places): (usize, Vec<(usize, RowPlace)>) = if flags == 0 && node.is_none() {
        let places = index.rows.iter().copied().enumerate().skip(from).take(count).collect();
        (index.rows.len(), places)
    } else {
        (index.chosen(flags, node).count(), index.chosen(flags, node).skip(from).take(count).collect())
    };
    let mut known: Option<(u32, Option<Value>)> = None;
    let mut shown = Vec::with_capacity(places.len());
    for (at, place) in places {
        if known.as_ref().is_none_or(|(record, _)| *record != place.record) {
            known = Some((place.record, read(index, place.record as usize)));
        }
        let record = known.as_ref().and_then(|(_, record)| record.as_ref());
        shown.push(row(index, at, place, record));
    }
    json!({"total": total, "from": from, "rows": shown})
}

fn row(index: &RunIndex, at: usize, place: RowPlace, record: Option<&Value>) -> Value {
    let Some(record) = record else {
        return json!({"row": at, "seq": place.record, "kind": "unreadable"});
    };
    let kind = record["kind"].as_str().unwrap_or_default();
    let mut row = json!({"row": at, "seq": place.record, "kind": kind, "at": record["at"]});
    let steps = index.steps.get(place.record as usize).copied().unwrap_or_default();
    row["state"] = steps.into();
    match kind {
        "step" => {
            let visit = &record["visits"][place.visit as usize];
            for name in [
                "step",
                "node",
                "branch",
                "fan",
                "error",
                "category",
                "calls",
                "run",
                "suppressed",
                "ends_branch",
                "held",
                "timed_out",
                "cancelled",
                "late",
                "cached",
                "edges",
                "over",
                "ms",
                "warnings",
                "opened",
            ] {
                if !visit[name].is_null() {
                    row[name] = visit[name].clone();
                }
            }
            if row["edges"].is_null() && !visit["edge"].is_null() {
                row["edges"] = json!([visit["edge"]]);
            }
            row["wrote"] = keys(&visit["changes"]);
            row["result"] = preview(&visit["result"]);
            row["failed_items"] = visit["items"].as_array().map_or(0, Vec::len).into();
            let next = record["next"].as_array().map_or(&[][..], Vec::as_slice);
            // A fan-out may begin very many branches.
            row["next"] = next.iter().take(6).map(|target| target["node"].clone()).collect();
            row["more"] = next.len().saturating_sub(6).into();
            row["last"] = (next.is_empty() && visit["opened"].is_null()).into();
        }
        "start" => {
            for name in ["graph", "version", "entry", "parent", "from"] {
                row[name] = record[name].clone();
            }
            row["result"] = preview(&record["inputs"]);
        }
        "calls" => {
            let done = record["done"].as_array().map_or(&[][..], Vec::as_slice);
            row["count"] = done.len().into();
            if let Some(one) = done.first() {
                row["node"] = one["node"].clone();
                row["step"] = one["step"].clone();
                row["suspended"] = (!one["suspended"].is_null()).into();
            }
        }
        "take" => {
            let taken = record["taken"].as_array().map_or(&[][..], Vec::as_slice);
            row["count"] = taken.len().into();
            row["signals"] = taken.iter().take(6).filter_map(signal).collect();
        }
        "resume" => row["result"] = preview(&record["grants"]),
        "edit" => {
            (row["by"], row["why"]) = (record["by"].clone(), record["why"].clone());
            let (mut wrote, write) = (keys(&record["set"]), keys(&record["write"]));
            if let (Value::Array(wrote), Value::Array(write)) = (&mut wrote, write) {
                wrote.extend(write);
            }
            row["wrote"] = wrote;
        }
        "end" => {
            for name in ["status", "steps", "error", "node", "code", "exhausted", "warnings"] {
                if !record[name].is_null() {
                    row[name] = record[name].clone();
                }
            }
            row["result"] = preview(&record["output"]);
        }
        _ => {}
    }
    row
}

/// Names the signal that ended a wait, or who answered.
fn signal(taken: &Value) -> Option<Value> {
    let signal = taken.get("signal")?;
    let by = signal["value"]["by"].as_array();
    let owners = by.map(|by| by.iter().map(|by| by["owner"].clone()).collect::<Vec<Value>>());
    Some(json!({"step": taken["step"], "name": signal["name"], "by": owners}))
}

fn keys(value: &Value) -> Value {
    value.as_object().map_or_else(|| json!([]), |map| map.keys().cloned().map(Value::from).collect())
}

/// Returns the beginning of a value as text, or null.
fn preview(value: &Value) -> Value {
    if value.is_null() {
        return Value::Null;
    }
    let text = value.to_string();
    let mut letters = text.chars();
    let mut short: String = letters.by_ref().take(MOST_SHOWN).collect();
    if letters.next().is_some() {
        short.push('…');
    }
    short.into()
}

/// Returns a record with its signature and its place in the chain.
///
/// # Errors
///
/// If there is no such record.
pub(crate) fn record(index: &RunIndex, seq: usize) -> Result<Value, ViewProblem> {
    let Some(signed) = index.records.get(seq) else {
        let records = index.records.len();
        return Err(ViewProblem::missing(format!("the run has no record {seq}: it has {records} records")));
    };
    let body = read(index, seq);
    let text = body.is_none().then(|| signed.body.chars().take(10_000).collect::<String>());
    let mut shown = json!({
        "seq": seq,
        "bytes": signed.body.len(),
        "digest": signed.digest().to_hex(),
        "signature": hex(&signed.signature),
        "link": signed.link().to_hex(),
        "is_last": seq + 1 == index.records.len(),
        "record": body,
        "unreadable": text,
        "steps_before": index.steps_before(seq),
        "steps_after": index.steps.get(seq),
    });
    let first = index.rows.partition_point(|row| (row.record as usize) < seq);
    shown["row"] = first.into();
    Ok(shown)
}

/// Returns the members of an object in their order, if it is one.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

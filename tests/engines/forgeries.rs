//! Forged journals: an audit accepts exactly what the engine can write, and a replay under the run's own graph agrees with it.
//!
//! The test changes members of true journals, chains the journals and signs them again with the run's key. The
//! [judge](super::judge) lets the engine itself write these journals. A journal that the engine can write is a true
//! one; all others are forgeries.
//!
//! `FORGERIES` is the number of forged journals, 300 by default; `SEED` selects other journals.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_runtime::__private::CompiledGraph;
use graph_runtime::dynamic::Library;
use graph_runtime::history::{StateEdit, replay};
use graph_runtime::record::{Record, SignedRecord};
use graph_runtime::{Machine, MemoryStore, Status, Store, Value, audit, audit_tree};
use serde_json::json;

use super::case::{Bench, Log, edit, key, resume, run, run_id, within};
use super::judge::{Director, Judge, Said, comparable, is_calls};
use super::random::Random;
use super::script::{Case, Script, Stage};
use super::{directory, erased, interpreted, machines, names, wild};

/// A source of random numbers and choices.
pub(crate) struct Choices(Random);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.0.below(most as u64)).unwrap_or_default()
    }

    pub(crate) fn one<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }
}

/// Chains and signs texts as the records of their runs, as only the holder of the key can.
fn forged(records: &[(String, String)]) -> BTreeMap<String, Vec<SignedRecord>> {
    let (key, token) = (key(), [7; 32]);
    let mut runs: BTreeMap<String, Vec<SignedRecord>> = BTreeMap::new();
    for (run, body) in records {
        let own = runs.entry(run.clone()).or_default();
        let (seq, prev) = (own.len(), own.last().map_or_else(|| Digest::of([]), SignedRecord::link));
        let said: Value = serde_json::from_str(body).expect("a record is JSON");
        let head = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let body = body
            .replacen(&head("prev"), &prev.to_hex(), 1)
            .replacen(&format!(r#""end":"{}""#, head("end")), &format!(r#""end":"{}""#, Digest::of(token).to_hex()), 1)
            .replacen(&format!(r#""seq":{},"#, said["seq"]), &format!(r#""seq":{seq},"#), 1);
        own.push(SignedRecord { seq: seq as u64, signature: key.sign(&Digest::of(&body)), body, end: Some(token) });
    }
    runs.values_mut().for_each(|own| SignedRecord::forget_ends(own));
    runs
}

/// The true journals of a run and its nested runs.
pub(crate) struct True {
    name: String,
    /// The records' runs and texts, in the order in which they were written.
    records: Vec<(String, String)>,
    pool: HashMap<String, Vec<Value>>,
}

impl True {
    /// Drops the records of calls that finish before their step, because their order differs each time.
    pub(crate) fn of(name: String, records: Vec<(String, String)>, pool: HashMap<String, Vec<Value>>) -> Self {
        let records = records.into_iter().filter(|(_, body)| !is_calls(body)).collect();
        Self { name, records, pool }
    }
}

/// Changes one or two meaningful members, or the set of records; `None` if there was nothing to change there.
fn forge(choices: &mut Choices, journal: &True, others: &[String]) -> Option<(Vec<(String, String)>, String)> {
    let mut records = journal.records.clone();
    let mut said = Vec::new();
    if choices.below(16) == 0 {
        said.push(rearrange(choices, &mut records)?);
    }
    for _ in 0..1 + choices.below(4) / 3 - said.len() {
        let at = choices.below(records.len());
        let (run, text) = &records[at];
        let mut record: Value = serde_json::from_str(text).ok()?;
        let what = change(choices, &mut record, others)?;
        let body = serde_json::to_string(&record).ok()?;
        serde_json::from_str::<Record>(&body).ok()?;
        if comparable(&body) == comparable(text) {
            return None;
        }
        said.push(format!("record {at}, of `{run}`: {what}"));
        records[at].1 = body;
    }
    Some((records, said.join("; ")))
}

/// Removes, repeats, swaps or adds records, and returns a description.
fn rearrange(choices: &mut Choices, records: &mut Vec<(String, String)>) -> Option<String> {
    let at = choices.below(records.len());
    let (run, body) = records[at].clone();
    let what = match choices.below(6) {
        5 => {
            let (steps, _) = resumable(&records[..at], &run)?;
            let head = body.split(r#""kind":""#).next()?;
            let written = [r#""set":{"a":1}"#, r#""write":{"a":1}"#, r#""set":{}"#];
            let written = choices.one(&written)?;
            let edit = format!(r#"{head}"kind":"edit","steps":{steps},"by":"ann","why":"forged",{written}}}"#);
            records.insert(at, (run.clone(), edit));
            "the run is edited before it"
        }
        0 => {
            records.truncate(at.max(1));
            "nothing is left from there on"
        }
        1 => {
            records.remove(at);
            "it is not there"
        }
        2 => {
            records.insert(at, (run.clone(), body));
            "it is there twice"
        }
        3 => {
            let next = records.iter().skip(at + 1).position(|(other, _)| *other == run)? + at + 1;
            records.swap(at, next);
            "it is behind the next"
        }
        _ => {
            let (steps, grants) = resumable(&records[..at], &run)?;
            let head = body.split(r#""kind":""#).next()?;
            let resume = format!(r#"{head}"kind":"resume","steps":{steps},"grants":{grants}}}"#);
            records.insert(at, (run.clone(), resume));
            "the run is resumed before it"
        }
    };
    (!records.is_empty()).then(|| format!("record {at}, of `{run}`: {what}"))
}

/// Returns the number of visits in the records of a run, and the run's grants.
fn resumable(records: &[(String, String)], run: &str) -> Option<(u64, Value)> {
    let own = records.iter().filter(|(of, _)| of == run);
    let own: Vec<Value> = own.map(|(_, body)| serde_json::from_str(body).unwrap_or_default()).collect();
    let steps = own.iter().map(|record| record["visits"].as_array().map_or(0, Vec::len) as u64).sum();
    Some((steps, own.first()?["grants"].clone()))
}

/// Changes a record, and returns a description.
fn change(choices: &mut Choices, record: &mut Value, nodes: &[String]) -> Option<String> {
    match record["kind"].as_str()? {
        "start" => change_start(choices, record, nodes),
        "step" => change_step(choices, record, nodes),
        "resume" => change_resume(choices, record),
        "edit" => change_edit(choices, record, nodes),
        "end" => change_end(choices, record, nodes),
        _ => None,
    }
}

fn change_start(choices: &mut Choices, record: &mut Value, nodes: &[String]) -> Option<String> {
    let all = ["inputs", "inputs", "limit", "depth", "grants", "capabilities", "version", "signer", "graph", "parent"];
    let shares: &[&str] = if record["shared"].is_null() { &["shared"] } else { &["shared"; 8] };
    let name = *choices.one(&[all.as_slice(), shares].concat())?;
    match name {
        "shared" => change_keys(choices, record, "shared", &["cost", "total", "forged"])?,
        "parent" if record["parent"].is_null() => {
            record["parent"] = json!({"run": "run", "step": 1, "node": choices.one(nodes)?});
        }
        "parent" => match choices.below(4) {
            0 => drop(record.as_object_mut()?.shift_remove("parent")),
            1 => record["parent"]["node"] = json!(choices.one(nodes)?),
            2 => put_number(choices, &mut record["parent"], "step", 4),
            _ => put_number(choices, &mut record["parent"], "item", 3),
        },
        "inputs" => twist(choices, &mut record["inputs"]),
        "limit" | "depth" => put_number(choices, record, name, 6),
        "grants" => {
            record["grants"] = choices.one(&[json!([]), json!(["*"]), json!(["rye.execute.tool.no"])])?.clone();
        }
        "capabilities" => {
            let all = [json!([]), json!(["*"]), json!(["rye.execute.tool.*"]), json!(null)];
            record["capabilities"] = choices.one(&all)?.clone();
        }
        "signer" => record["signer"] = json!("00000000000000ab"),
        other => record[other] = json!("9.9.9"),
    }
    Some(name.to_owned())
}

fn change_step(choices: &mut Choices, record: &mut Value, nodes: &[String]) -> Option<String> {
    if choices.below(6) == 0 {
        let name = *choices.one(&["next", "next", "limit", "joins", "ordered", "ordered"])?;
        if name == "joins" {
            record["joins"] = json!([{"node": choices.one(nodes)?, "fan": choices.below(3)}]);
        } else if name == "ordered" {
            let orders = [json!([0, 1]), json!([1, 0]), json!([0, 0]), json!([5]), json!([1, 2, 0]), json!([])];
            let from = choices.one(&orders)?.clone();
            match record.pointer_mut("/ordered/0").and_then(Value::as_object_mut) {
                Some(order) if choices.below(3) > 0 => order["from"] = from,
                Some(_) => drop(record.as_object_mut()?.shift_remove("ordered")),
                None => record["ordered"] = json!([{"key": choices.one(&["found", "words", "steps"])?, "from": from}]),
            }
        } else if name == "limit" {
            put_number(choices, record, "limit", 700);
        } else if choices.below(3) == 0 {
            record["next"] = json!([]);
        } else {
            let number = record["next"][0]["number"].as_u64().unwrap_or(1) + choices.below(2) as u64;
            record["next"] = json!([{ "number": number, "node": choices.one(nodes)? }]);
        }
        return Some(name.to_owned());
    }
    let visits = record["visits"].as_array_mut()?;
    let at = choices.below(visits.len());
    let visit = visits.get_mut(at)?;
    change_visit(choices, visit, nodes)
}

fn change_resume(choices: &mut Choices, record: &mut Value) -> Option<String> {
    let name = *choices.one(&["steps", "limit", "depth", "grants"])?;
    match name {
        "grants" => record["grants"] = choices.one(&[json!([]), json!(["*"])])?.clone(),
        other => put_number(choices, record, other, 8),
    }
    Some(name.to_owned())
}

fn change_edit(choices: &mut Choices, record: &mut Value, names: &[String]) -> Option<String> {
    let name = *choices.one(&["steps", "by", "why", "set", "set", "write", "write"])?;
    match name {
        "steps" => put_number(choices, record, name, 5),
        "set" | "write" => {
            let keys = record.as_object_mut()?.entry(name).or_insert_with(|| json!({})).as_object_mut()?;
            let known: Vec<String> = keys.keys().cloned().collect();
            match (choices.one(&known), choices.below(4)) {
                (Some(key), 0) => drop(keys.shift_remove(key)),
                (Some(key), 1) => {
                    let value = keys.shift_remove(key)?;
                    let other = if name == "set" { "write" } else { "set" };
                    record.as_object_mut()?.entry(other).or_insert_with(|| json!({}))[key] = value;
                }
                (Some(key), _) => twist(choices, keys.get_mut(key)?),
                (None, _) => drop(keys.insert(choices.one(names)?.clone(), json!(choices.below(3)))),
            }
        }
        other => put_text(choices, record, other, &["bob", "", "two\nlines"]),
    }
    Some(format!("`{name}` of an edit"))
}

/// Returns an edit of some of a graph's keys, most with values of their types.
pub(crate) fn edit_of(choices: &mut Choices, graph: &CompiledGraph, values: &[Value]) -> StateEdit {
    let mut edit = StateEdit { by: "ann".to_owned(), why: "by chance".to_owned(), ..StateEdit::default() };
    let keys = graph.topology().keys;
    for _ in 0..=choices.below(2) {
        let Some((key, first)) = choices.one(&keys) else { break };
        let others = [json!(1), json!("a"), json!(true), json!([]), json!(["a"]), json!({}), json!(null), json!(0.5)];
        let value = match choices.below(3) {
            0 => first.clone().unwrap_or_default(),
            1 => choices.one(values).cloned().unwrap_or_default(),
            _ => choices.one(&others).cloned().unwrap_or_default(),
        };
        let to = if choices.below(2) == 0 { &mut edit.set } else { &mut edit.write };
        to.insert(key.clone(), value);
    }
    edit
}

fn change_end(choices: &mut Choices, record: &mut Value, nodes: &[String]) -> Option<String> {
    let name = *choices.one(&[
        "status",
        "steps",
        "output",
        "error",
        "node",
        "code",
        "exhausted",
        "unfit",
        "signal",
        "now",
        "warnings",
        "failures",
    ])?;
    match name {
        "status" => {
            let all = ["completed", "completed_with_errors", "error", "cancelled"];
            record["status"] = json!(choices.one(&all)?);
        }
        "output" => twist(choices, &mut record["output"]),
        "error" => put_text(
            choices,
            record,
            "error",
            &["forged", "cancelled", "the run took longer than it may", "item 0: forged"],
        ),
        "node" => {
            let node = choices.one(nodes)?.clone();
            put_text(choices, record, "node", &[node.as_str()]);
        }
        "code" => put_text(choices, record, "code", &["forged"]),
        "failures" => {
            let (node, step) = (choices.one(nodes)?.clone(), record["steps"].as_u64()? + 1);
            let one = |step| json!({"step": step, "node": node, "error": "forged"});
            record["failures"] = choices.one(&[json!([one(step)]), json!([one(step), one(step + 1)])])?.clone();
        }
        "exhausted" | "unfit" => record[name] = json!(record[name] != json!(true)),
        "now" => put_now(choices, record),
        "warnings" => record["warnings"] = choices.one(&[json!([]), json!(["forged"])])?.clone(),
        other => put_number(choices, record, other, 8),
    }
    Some(name.to_owned())
}

fn change_visit(choices: &mut Choices, visit: &mut Value, nodes: &[String]) -> Option<String> {
    let all = [
        "step",
        "node",
        "result",
        "result",
        "shared",
        "error",
        "error",
        "fails",
        "category",
        "suppressed",
        "data",
        "edges",
        "edges",
        "branch",
        "fan",
        "list",
        "changes",
        "changes",
        "calls",
        "now",
        "items",
        "warnings",
        "run",
        "cached",
    ];
    let name = *choices.one(&all)?;
    match name {
        "step" | "calls" => put_number(choices, visit, name, 5),
        "edges" => {
            let all = [json!([]), json!([0]), json!([1]), json!([2]), json!([0, 1])];
            visit["edges"] = choices.one(&all)?.clone();
        }
        "branch" => visit["branch"] = choices.one(&[json!([0]), json!([1, 0])])?.clone(),
        "fan" => put_number(choices, visit, name, 3),
        "list" => {
            visit["over"] = json!(choices.below(2));
            visit["list"] = choices.one(&[json!([]), json!([1]), json!(null)])?.clone();
        }
        "node" => visit["node"] = json!(choices.one(nodes)?),
        "result" => twist(choices, &mut visit[name]),
        "shared" => change_writes(choices, visit)?,
        "error" => {
            let inside = format!("forged (node `{}` of run `run-{}`)", choices.one(nodes)?, visit["step"]);
            let all = ["forged", "item 0: forged", "no", inside.as_str(), TOO_DEEP, "it timed out after 1s"];
            put_text(choices, visit, "error", &all);
        }
        "fails" => make_failure(choices, visit)?,
        "category" => {
            put_text(choices, visit, "category", &["permanent", "transient", "rate_limited", "cancelled", "forged"]);
        }
        "suppressed" => visit["suppressed"] = json!(visit["suppressed"] != json!(true)),
        "data" => {
            if choices.below(3) == 0 {
                visit.as_object_mut()?.shift_remove("data");
            } else {
                twist(choices, &mut visit["data"]);
            }
        }
        "changes" => change_keys(choices, visit, "changes", &["forged"])?,
        "now" => put_now(choices, visit),
        "items" => {
            let all = [json!([]), json!([{"item": 0, "error": "forged"}]), json!([{"item": 9, "error": "forged"}])];
            visit["items"] = choices.one(&all)?.clone();
        }
        "warnings" => visit["warnings"] = choices.one(&[json!([]), json!(["forged"])])?.clone(),
        "run" => {
            let (step, item) = (visit["step"].to_string(), choices.below(2));
            let all =
                ["run-1".to_owned(), format!("run-{step}"), format!("run-{step}-again1"), format!("run-{step}_{item}")];
            put_text(choices, visit, "run", &all.iter().map(String::as_str).collect::<Vec<_>>());
        }
        "cached" => visit["cached"] = json!(visit["cached"] != json!(true)),
        _ => return None,
    }
    Some(format!("`{name}` of a visit"))
}

/// Changes the writes of a run inside: in the result of its visit, in the changes, or in both.
fn change_writes(choices: &mut Choices, visit: &mut Value) -> Option<()> {
    let shared: Vec<String> = visit["result"]["shared"].as_object()?.keys().cloned().collect();
    let key = choices.one(&shared)?;
    let mut writes = visit["result"]["shared"][key].clone();
    match (writes.as_array_mut(), choices.below(3)) {
        (Some(list), 0) => drop(list.pop()),
        (Some(list), 1) => list.extend(list.first().cloned()),
        _ => twist(choices, &mut writes),
    }
    let places = choices.below(3);
    if places > 0 {
        visit["result"]["shared"][key] = writes.clone();
    }
    if places < 2 {
        visit["changes"][key] = writes;
    }
    Some(())
}

/// Makes a whole visit a failure.
fn make_failure(choices: &mut Choices, visit: &mut Value) -> Option<()> {
    let map = visit.as_object_mut()?;
    ["result", "changes"].iter().for_each(|name| drop(map.shift_remove(*name)));
    visit["error"] = json!("forged");
    visit["category"] = json!(choices.one(&["permanent", "transient"])?);
    if choices.below(2) == 0 {
        visit["suppressed"] = json!(true);
    } else {
        visit.as_object_mut()?.shift_remove("edges");
    }
    Some(())
}

/// Removes, unsets or changes the value of a key in a part of a record. Without a key, it adds one of the `new` ones.
fn change_keys(choices: &mut Choices, record: &mut Value, name: &str, new: &[&str]) -> Option<()> {
    let values = record.as_object_mut()?.entry(name).or_insert_with(|| json!({})).as_object_mut()?;
    let keys: Vec<String> = values.keys().cloned().collect();
    match (choices.one(&keys), choices.below(4)) {
        (Some(key), 0) => drop(values.shift_remove(key)),
        (Some(key), 1) => values[key] = json!(null),
        (Some(key), _) => twist(choices, values.get_mut(key)?),
        (None, _) => drop(values.insert((*choices.one(new)?).to_owned(), json!(1))),
    }
    Some(())
}

const TOO_DEEP: &str = "graphs are nested deeper than `limits.depth` allows";

fn put_number(choices: &mut Choices, record: &mut Value, name: &str, most: usize) {
    let was = record[name].as_u64();
    let number = match (was, choices.below(4)) {
        (Some(was), 0) => was + 1,
        (Some(was), 1) => was.saturating_sub(1),
        (Some(_), 2) => {
            record.as_object_mut().map(|map| map.shift_remove(name));
            return;
        }
        _ => choices.below(most) as u64,
    };
    record[name] = json!(number);
}

fn put_text(choices: &mut Choices, record: &mut Value, name: &str, texts: &[&str]) {
    match choices.below(texts.len() + 1) {
        at if at < texts.len() => record[name] = json!(texts[at]),
        _ => drop(record.as_object_mut().map(|map| map.shift_remove(name))),
    }
}

fn put_now(choices: &mut Choices, record: &mut Value) {
    match (record["now"].as_i64(), choices.below(2)) {
        (Some(_), 0) => drop(record.as_object_mut().map(|map| map.shift_remove("now"))),
        (Some(now), _) => record["now"] = json!(now + 1000),
        (None, _) => record["now"] = json!(1_795_291_200_000_i64),
    }
}

/// Changes a part of a value.
fn twist(choices: &mut Choices, value: &mut Value) {
    let is_here = choices.below(3) == 0;
    match value {
        Value::Array(list) if !list.is_empty() && !is_here => {
            let at = choices.below(list.len());
            if choices.below(3) == 0 { drop(list.remove(at)) } else { twist(choices, &mut list[at]) }
        }
        Value::Object(map) if !map.is_empty() && !is_here => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = &keys[choices.below(keys.len())];
            if choices.below(4) == 0 {
                map.shift_remove(key);
            } else if let Some(field) = map.get_mut(key) {
                twist(choices, field);
            }
        }
        _ => {
            let all = [
                json!(null),
                json!(0),
                json!(1),
                json!(7),
                json!(2.5),
                json!(true),
                json!(false),
                json!("a"),
                json!(""),
                json!([]),
                json!([1]),
                json!({}),
                json!({"a": 1}),
                json!({"status": "error", "error": "told"}),
                json!({"success": false}),
            ];
            *value = all[choices.below(all.len())].clone();
        }
    }
}

/// Returns the values that the tools of a case return.
fn pool(case: &Case) -> HashMap<String, Vec<Value>> {
    let values = |answers: &[super::script::Answer]| answers.iter().filter_map(super::script::Answer::value).collect();
    case.tools.iter().map(|(tool, answers)| (tool.clone(), values(answers))).collect()
}

/// Whether the judge cannot direct a graph's runs because of files, items in spaces, processes, threads or secrets.
pub(crate) fn is_beyond(text: &str) -> bool {
    ["x-secret", "rye/file-system", "rye/bash", "thread", "fetch", "sign:"].iter().any(|one| text.contains(one))
}

/// Returns the true journals of a graph's cases: of whole runs, and of some runs that were cut and resumed.
fn journals(name: &str, bench: &Bench, script: &Script, choices: &mut Choices) -> Vec<True> {
    if is_beyond(&text_of(name)) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for case in &script.cases {
        let is_other = case.real || case.threads.is_some() || case.space.is_some() || case.files.is_some();
        if is_other || case.expect.status == "not_started" {
            continue;
        }
        let log = Log::default();
        bench.stage.set(case);
        drop(run(case, &bench.stage, &bench.interpreted, Some(&log)));
        let given = bench.stage.given();
        let mut add = |log: &Log, how: &str| {
            let records = log.texts();
            let is_resumed = records.iter().any(|(_, body)| body.contains(r#","kind":"resume","#));
            // Calls that finish before their step are recorded in another order each time.
            if is_resumed && records.iter().any(|(_, body)| is_calls(body)) {
                return;
            }
            all.push(True::of(format!("{name}: {}{how}", case.name), records, pool(case)));
        };
        add(&log, "");
        let ends = log.ends();
        if case.resumes && ends.len() > 1 {
            let at = ends[choices.below(ends.len() - 1)];
            if let Ok((_, again)) = resume(case, &bench.stage, &bench.compiled, &log, at, &given) {
                add(&again, &format!(", resumed after record {at}"));
            }
            let values: Vec<Value> = pool(case).into_values().flatten().collect();
            for _ in 0..8 {
                let asked = edit_of(choices, bench.interpreted.graph(), &values);
                let Ok(edited) = edit(&bench.interpreted, &log, at, asked) else { continue };
                let played = resume(case, &bench.stage, &bench.compiled, &edited, edited.len(), &given);
                if let Ok((_, again)) = played {
                    add(&again, &format!(", edited and resumed after record {at}"));
                }
                break;
            }
        }
    }
    all
}

/// The results of the comparisons.
#[derive(Default)]
struct Counts {
    journals: usize,
    forged: usize,
    written: usize,
    /// The number of true journals that the judge cannot direct.
    unknown: usize,
    problems: Vec<String>,
}

/// Returns a store with journals.
async fn stored(runs: &BTreeMap<String, Vec<SignedRecord>>) -> Option<MemoryStore> {
    let store = MemoryStore::new();
    for (run, records) in runs {
        let (run, first) = (RunId::new(run.clone()).ok()?, records.first()?.clone());
        let lease = store.create(&run, "graph", vec![first]).await.ok()?;
        store.append(&lease, 1, records[1..].to_vec(), Status::Running).await.ok()?;
    }
    Some(store)
}

/// Compares the audit, the replay and the judge.
fn compare(judge: &Judge, journal: &True, records: &[(String, String)], what: &str, counts: &mut Counts) {
    let runs = forged(records);
    let (id, public) = (run_id(), key().public());
    let nothing = Vec::new();
    let outer = runs.get(id.as_str()).unwrap_or(&nothing);
    let audited = audit(&judge.graph, &id, outer, &public, None);
    let replayed = replay(&judge.graph, &judge.graph, &id, outer, &public, None);
    let is_same = replayed.as_ref().is_ok_and(|replay| replay.deviations.is_empty() && replay.stopped.is_none());
    let is_audited = audited.is_ok();
    // The nested runs are proven together with the outer run.
    let audited = match runs.len() {
        1 => audited.map(drop).map_err(|error| error.to_string()),
        _ => within(false, async {
            let store = stored(&runs).await.ok_or("there is no such store")?;
            let proven = audit_tree(Arc::new(judge.graph.clone()), &id, &store, &public, None).await;
            proven.map(drop).map_err(|error| error.to_string())
        }),
    };
    let said: Vec<Said> = records.iter().map(|(run, body)| (run.clone(), comparable(body))).collect();
    let can_write = judge.can_write(&said, &journal.pool);
    counts.written += usize::from(can_write);
    if audited.is_ok() != can_write || is_same != is_audited {
        let shown = said.iter().map(|(run, body)| format!("\n    {run}: {body}")).collect::<String>();
        counts.problems.push(format!(
            "{}: {what}: the engine {} write it, the audit says {audited:?}, the replay {}{shown}",
            journal.name,
            if can_write { "can" } else { "cannot" },
            if is_same { "finds nothing".to_owned() } else { format!("says {replayed:?}") },
        ));
    }
}

/// Returns the journals of the scripts, with the judge and the node names of each graph.
fn scripted(director: &Director, choices: &mut Choices) -> Vec<(Judge, Vec<True>, Vec<String>)> {
    let directed = Library::open(&directory().join("graphs"), director.clone());
    let stage = Stage::default();
    let staged = Library::open(&directory().join("graphs"), stage.clone());
    let mut all = Vec::new();
    for name in names() {
        let script = Script::read(&directory().join(format!("scripts/{name}.yaml"))).expect("a script");
        let bench = Bench {
            stage: stage.clone(),
            compiled: machines::machine(&name, &stage).expect("SIGN_FIXTURES=1 lists every graph"),
            interpreted: erased(interpreted(&name, &staged)),
        };
        let found = journals(&name, &bench, &script, choices);
        if found.is_empty() {
            continue;
        }
        let judge = Judge {
            director: director.clone(),
            graph: interpreted(&name, &directed),
            timed: timed_in(&text_of(&name)),
        };
        // Journals with nested runs can also name the nodes of the nested graphs.
        let mut known = nodes(&name);
        if found.iter().any(|journal| journal.records.iter().any(|(run, _)| run != run_id().as_str())) {
            known.extend(["greeting_child", "nested_area"].into_iter().flat_map(nodes));
        }
        all.push((judge, found, known));
    }
    all
}

#[test]
fn an_audit_accepts_exactly_what_the_engine_can_write() {
    let wanted = usize::try_from(super::number("FORGERIES", 300)).expect("a number of journals");
    let mut choices = Choices::new(super::number("SEED", 0));
    let mut counts = Counts::default();
    let director = Director::default();
    let mut all = scripted(&director, &mut choices);
    let wild = wild::found(&director, &mut choices, u32::try_from(wanted / 50).expect("a number of graphs"));
    // True journals show whether the judge knows the engine.
    for (judge, found, _) in &all {
        for journal in found {
            counts.journals += 1;
            let written = counts.written;
            compare(judge, journal, &journal.records, "unchanged", &mut counts);
            if counts.written == written {
                counts.problems.push(format!("{}: the judge cannot direct it", journal.name));
            }
        }
    }
    for (judge, mut found, nodes) in wild.graphs {
        found.retain(|journal| {
            let mut own = Counts::default();
            compare(&judge, journal, &journal.records, "unchanged", &mut own);
            // The origin of an end may not be recorded, and random answers produce more than the judge tries.
            let is_known = own.written > 0;
            counts.journals += usize::from(is_known);
            counts.unknown += usize::from(!is_known);
            counts.problems.extend(own.problems.into_iter().filter(|_| is_known));
            is_known
        });
        if !found.is_empty() {
            all.push((judge, found, nodes));
        }
    }
    counts.written = 0;
    let began = std::time::Instant::now();
    if std::env::var_os("SHOW").is_some() {
        eprintln!(
            "{} journals, {} were left; {} disagreements",
            counts.journals,
            counts.unknown,
            counts.problems.len()
        );
    }
    while counts.forged < wanted && counts.problems.len() < 40 {
        if std::env::var_os("SHOW").is_some() && counts.forged.is_multiple_of(1000) {
            eprintln!("{} forged after {:?}, {} disagreements", counts.forged, began.elapsed(), counts.problems.len());
        }
        let Some((judge, found, nodes)) = choices.one(&all) else { break };
        let Some(journal) = choices.one(found) else { continue };
        let Some((records, what)) = forge(&mut choices, journal, nodes) else { continue };
        counts.forged += 1;
        let before = counts.problems.len();
        let one = std::time::Instant::now();
        compare(judge, journal, &records, &what, &mut counts);
        if std::env::var_os("SHOW").is_some() {
            counts.problems[before..].iter().for_each(|problem| eprintln!("{problem}"));
            if one.elapsed().as_millis() > 500 {
                eprintln!("{}: {what} took {:?}", journal.name, one.elapsed());
            }
        }
    }
    let Counts { journals, forged, written, unknown, problems } = counts;
    if std::env::var_os("SHOW").is_some() {
        eprintln!(
            "{forged} forged from {journals} journals: the engine can write {written}; {} disagreements; {unknown} journals were left",
            problems.len()
        );
    }
    assert!(problems.is_empty(), "{} of {forged}:\n{}", problems.len(), problems.join("\n"));
    assert!(written * 100 > forged, "only {written} of {forged} could be written: too few to know what is accepted");
}

/// Changes the records of a case that was cut after its `kept`th record and resumed, and compares the findings.
fn found(graph: &str, case: &str, kept: usize, change: impl Fn(usize, &mut Value)) -> Counts {
    let director = Director::default();
    let directed = Library::open(&directory().join("graphs"), director.clone());
    let stage = Stage::default();
    let staged = Library::open(&directory().join("graphs"), stage.clone());
    let script = Script::read(&directory().join(format!("scripts/{graph}.yaml"))).expect("a script");
    let case = script.cases.iter().find(|one| one.name == case).expect("there is such a case");
    let played = erased(interpreted(graph, &staged));
    let log = Log::default();
    stage.set(case);
    drop(run(case, &stage, &played, Some(&log)));
    let (_, again) = resume(case, &stage, &played, &log, kept, &stage.given()).expect("it is resumed");
    let mut records = again.texts();
    for (at, (_, body)) in records.iter_mut().enumerate() {
        let mut record: Value = serde_json::from_str(body).expect("the engine writes JSON");
        change(at, &mut record);
        *body = record.to_string();
    }
    let judge = Judge { director, graph: interpreted(graph, &directed), timed: timed_in(&text_of(graph)) };
    let journal = True::of(graph.to_owned(), records, pool(case));
    let mut counts = Counts::default();
    compare(&judge, &journal, &journal.records, "changed", &mut counts);
    counts
}

#[test]
fn a_run_can_end_by_time_at_its_limit_after_a_resume() {
    let graph = "errors_go_round_until_the_steps_run_out";
    let case = "the third time it works, and no step is left";
    let found = found(graph, case, 3, |_, record| {
        if record["kind"] == "end" {
            for name in ["node", "output", "exhausted"] {
                record.as_object_mut().expect("it is one").shift_remove(name);
            }
            record["status"] = json!("error");
            record["error"] = json!("the run took longer than it may");
        }
    });
    assert_eq!((found.written, found.problems), (1, Vec::new()));
}

#[test]
fn grants_that_patterns_cannot_say_deny_in_two_ways() {
    let case = "the caller may narrow what the runtime grants";
    let found = found("tools_denied_at_dispatch", case, 1, |at, record| {
        if record["kind"] == "start" {
            record["grants"] = json!([]);
        }
        if record["kind"] == "resume" {
            record["grants"] = json!([]);
            record["depth"] = json!(at);
        }
    });
    assert_eq!((found.written, found.problems), (1, Vec::new()));
}

#[test]
fn grants_that_patterns_cannot_say_allow_a_call() {
    let case = "what the graph permits and the caller grants is called";
    let found = found("tools_denied_at_dispatch", case, 1, |_, record| {
        if record["kind"] == "resume" {
            record["grants"] = json!([]);
        }
    });
    assert_eq!((found.written, found.problems), (1, Vec::new()));
}

#[test]
fn a_failed_nested_run_resumes_when_its_call_is_repeated() {
    let case = "one fails, the other does not";
    let found = found("nested_beside_each_other", case, 1, |_, record| {
        if record["kind"] == "resume" {
            record["depth"] = json!(4);
        }
    });
    assert_eq!((found.written, found.problems), (0, Vec::new()));
}

/// Returns the names of the nodes of a graph of this directory.
fn nodes(name: &str) -> Vec<String> {
    nodes_in(&text_of(name))
}

/// Returns the text of a graph of this directory.
fn text_of(name: &str) -> String {
    std::fs::read_to_string(directory().join(format!("graphs/{name}.yaml"))).unwrap_or_default()
}

/// Returns the names of a graph's nodes that have a timeout.
pub(crate) fn timed_in(text: &str) -> Vec<String> {
    let graph: Value = serde_yaml::from_str(text).unwrap_or_default();
    let nodes = graph["config"]["nodes"].as_object().into_iter().flatten();
    nodes.filter(|(_, node)| !node["timeout"].is_null()).map(|(name, _)| name.clone()).collect()
}

/// Returns the names of a graph's nodes.
pub(crate) fn nodes_in(text: &str) -> Vec<String> {
    let graph: Value = serde_yaml::from_str(text).unwrap_or_default();
    graph["config"]["nodes"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

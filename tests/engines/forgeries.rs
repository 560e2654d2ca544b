//! Forged journals: an audit accepts exactly what the engine can write, and a replay under the run's own graph agrees with it.
//!
//! Members of true journals are changed, and the journals are chained and signed again with the run's key. The judge knows nothing
//! of the audit: it has the engine itself write the journal, with tools, hooks, callers and a clock that do what the journal says
//! they did. A journal that the engine comes to write that way is a true one; all others are forgeries.
//!
//! `FORGERIES` is the number of forged journals, 300 if not set; `SEED` a number that makes them others.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::Tool;
use graph_model::digest::Digest;
use graph_model::timestamp;
use graph_runtime::Sleeping;
use graph_runtime::dynamic::{Interpreted, Library, Performing, Tools};
use graph_runtime::hooks::Told;
use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::{Record, Sealed};
use graph_runtime::travel::replay;
use graph_runtime::{
    ActionError, Call, Canceller, Category, Clock, Control, Grants, Hooks, Layer, Map, Options, Pattern, Runtime,
    TokioClock, Value, audit,
};
use serde_json::json;

use super::case::{BEGAN, Bench, Log, key, resume, run, run_id, within};
use super::script::{Case, Script, Stage};
use super::{directory, erased, interpreted, machines, names};

/// A number that looks random and is the same each time.
struct Lot(u64);

impl Lot {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most.max(1) as u64).unwrap_or_default()
    }

    fn one<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }
}

/// What a journal says came from outside, for one session of a run, and what is tried where it does not say that.
#[derive(Default)]
struct Claims {
    /// What is said of visits, by their numbers.
    visits: BTreeMap<u64, Value>,
    /// The limits that steps are written with, by the numbers of their first visits.
    limits: BTreeMap<u64, u64>,
    /// How the session ended, if it did.
    end: Option<Value>,
    /// How many visits are committed at its end.
    steps: u64,
    way: Way,
    /// Whether what is not told another time is told that of the next day: hooks may look at the clock, and nobody writes that down.
    is_tomorrow: bool,
}

/// Where an end can have come from that does not say that, and what calls returned on which a node failed.
#[derive(Default, Clone, PartialEq, Debug)]
enum Way {
    /// From the call of the node.
    #[default]
    Tool,
    /// From a hook after that call failed.
    ErrorHook,
    StartHook,
    StepHook,
    LimitHook,
    /// From a value that a call returned.
    Returned(Value),
}

/// What performs a run as a journal says.
#[derive(Default, Clone)]
struct Director(Arc<Directed>);

#[derive(Default)]
struct Directed {
    claims: Mutex<Claims>,
    /// How often each call was made.
    attempts: Mutex<HashMap<(u64, Option<u64>), u64>>,
    /// The visit that was begun last.
    at: AtomicU64,
    committed: AtomicU64,
    is_begun: AtomicBool,
    canceller: Mutex<Option<Canceller>>,
    /// Values that fit the tools, for calls of which nothing is said.
    pool: Mutex<HashMap<String, Vec<Value>>>,
}

impl std::fmt::Debug for Director {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Director")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn category(value: &Value) -> Category {
    value.as_str().and_then(Category::named).unwrap_or(Category::Permanent)
}

fn failure(kind: Category, text: &str, data: Option<Value>) -> ActionError {
    let error = ActionError::new(kind, text);
    match data {
        Some(data) => error.with_data(data),
        None => error,
    }
}

impl Director {
    fn claims(&self) -> MutexGuard<'_, Claims> {
        locked(&self.0.claims)
    }

    /// Returns what a call answers, the `attempt`th of its visit or item, from 1.
    fn answer(&self, call: &Call, attempt: u64) -> Result<Value, ActionError> {
        let claims = self.claims();
        let (step, item) = (call.step(), call.item());
        let any = || {
            let pool = locked(&self.0.pool);
            pool.get(call.tool()).and_then(|values| values.first().cloned()).unwrap_or_else(|| json!({}))
        };
        let Some(visit) = claims.visits.get(&step) else {
            let Some(end) = &claims.end else { return Ok(any()) };
            if let (Way::Returned(value), None) = (&claims.way, item) {
                return Ok(value.clone());
            }
            let error = end["error"].as_str().unwrap_or_default();
            if call.node() != end["node"] || end["unfit"] == json!(true) {
                return Ok(any());
            }
            let (failing, text) = of_item(error);
            return match (item, failing) {
                (Some(item), Some(failing)) if item != failing => Ok(any()),
                (Some(_), Some(_)) => Err(failure(Category::Permanent, text, None)),
                _ => Err(failure(Category::Permanent, error, None)),
            };
        };
        let again = visit["calls"].as_u64().unwrap_or(1).max(1) - 1;
        let failed = visit["items"].as_array().and_then(|items| items.first()).map(|first| first["item"].as_u64());
        let Some(item) = item else {
            if attempt <= again {
                return Err(failure(Category::Permanent, "once more", None));
            }
            return match visit["error"].as_str() {
                Some(error) if visit["result"].is_null() => match &claims.way {
                    Way::Returned(value) => Ok(value.clone()),
                    _ => Err(failure(category(&visit["category"]), error, visit.get("data").cloned())),
                },
                _ => Ok(visit["result"].clone()),
            };
        };
        let is_first = failed.flatten().map_or(item == 0, |first| first == item);
        if is_first && attempt <= again {
            return Err(failure(Category::Permanent, "once more", None));
        }
        let collected = visit["changes"].as_object().and_then(|changes| changes.values().next());
        let place = collected.and_then(|list| list.get(usize::try_from(item).ok()?)).cloned();
        let mut items = visit["items"].as_array().into_iter().flatten();
        match items.find(|failed| failed["item"] == json!(item)) {
            Some(failed) => {
                let data = place.and_then(|place| match place {
                    Value::Object(mut map) => {
                        map.shift_remove("status");
                        map.shift_remove("error");
                        (!map.is_empty()).then_some(Value::Object(map))
                    }
                    _ => None,
                });
                // Of the others the category is not written down.
                let kind = if is_first { category(&visit["category"]) } else { Category::Cancelled };
                Err(failure(kind, failed["error"].as_str().unwrap_or_default(), data))
            }
            None => Ok(place.unwrap_or_else(any)),
        }
    }
}

/// Takes the failure of a foreach apart: the item, and why it failed.
fn of_item(error: &str) -> (Option<u64>, &str) {
    let parts = error.strip_prefix("item ").and_then(|rest| rest.split_once(": "));
    match parts.and_then(|(item, text)| Some((item.parse().ok()?, text))) {
        Some((item, text)) => (Some(item), text),
        None => (None, error),
    }
}

impl Tools for Director {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a Tool, _: Map<String, Value>) -> Performing<'a> {
        if call.hook().is_some() {
            return Box::pin(async { Ok(Value::Null) });
        }
        let attempt = {
            let mut attempts = locked(&self.0.attempts);
            let attempt = attempts.entry((call.step(), call.item())).or_default();
            *attempt += 1;
            *attempt
        };
        let answer = self.answer(call, attempt);
        Box::pin(async move {
            self.until_known().await;
            answer
        })
    }
}

impl Hooks for Director {
    async fn graph_started(&self, _: &Told<'_>) -> Option<Control> {
        self.until_known().await;
        let claims = self.claims();
        (claims.way == Way::StartHook).then(|| fail(&claims)).flatten()
    }

    async fn after_step(&self, told: &Told<'_>) -> Option<Control> {
        self.until_known().await;
        self.stop_where_it_stands();
        let claims = self.claims();
        let is_there = told.values["step_count"].as_u64() == Some(claims.steps)
            && claims.end.as_ref().is_some_and(|end| end["node"] == told.values["node"]);
        (claims.way == Way::StepHook && is_there).then(|| fail(&claims)).flatten()
    }

    async fn error(&self, told: &Told<'_>) -> Option<Control> {
        let (step, item) = (self.0.at.load(Ordering::SeqCst), told.values["item"].as_u64());
        let claims = self.claims();
        let attempt = told.values["attempt"].as_u64().unwrap_or_default();
        let Some(visit) = claims.visits.get(&step) else {
            let end = claims.end.as_ref().filter(|_| claims.way == Way::ErrorHook)?;
            let text = end["error"].as_str()?;
            let error = if item.is_some() { of_item(text).1 } else { text }.to_owned();
            return Some(Control::Fail { error });
        };
        let again = visit["calls"].as_u64().unwrap_or(1).max(1) - 1;
        let first = visit["items"].as_array().and_then(|items| items.first()).and_then(|first| first["item"].as_u64());
        let is_first = item.is_none_or(|item| item == first.unwrap_or(0));
        // Without another answer, the runtime has calls made again by itself.
        let max_retries = if is_first && attempt <= again { u32::MAX } else { 0 };
        Some(Control::Retry { max_retries })
    }

    async fn limit(&self, told: &Told<'_>) -> Option<Control> {
        let claims = self.claims();
        if claims.way == Way::LimitHook {
            return fail(&claims);
        }
        let (taken, most) = (told.values["current_value"].as_u64()?, told.values["current_max"].as_u64()?);
        let ended = claims.end.as_ref().filter(|_| claims.steps == taken).and_then(|end| end["error"].as_str());
        let ended = ended.and_then(|text| text.strip_prefix("Max steps exceeded (")?.strip_suffix(')')?.parse().ok());
        // Behind the last step that was written down, a node was visited all the same.
        let failed = claims.end.as_ref().filter(|end| claims.steps == taken && end["node"].is_string());
        let wanted = claims.limits.get(&(taken + 1)).copied().or(ended).or(failed.map(|_| taken + 1))?;
        let additional_steps = u32::try_from(wanted.checked_sub(most)?).ok().filter(|more| *more > 0)?;
        Some(Control::Continue { additional_steps })
    }
}

fn fail(claims: &Claims) -> Option<Control> {
    let error = claims.end.as_ref()?["error"].as_str()?.to_owned();
    Some(Control::Fail { error })
}

impl Observer for Director {
    fn observe(&self, event: &Event<'_>) {
        match event {
            // By now it is settled until when it may take.
            Event::RunStarted { .. } => self.0.is_begun.store(true, Ordering::SeqCst),
            Event::StepStarted { step, .. } => self.0.at.store(*step, Ordering::SeqCst),
            Event::Recorded { records, .. } => {
                for record in *records {
                    let body: Value = serde_json::from_str(&record.body).expect("the engine writes JSON");
                    let visits = body["visits"].as_array().map_or(0, |visits| visits.len() as u64);
                    if body["kind"] == "step" {
                        self.0.committed.fetch_add(visits, Ordering::SeqCst);
                    }
                }
                self.stop_where_it_stands();
            }
            _ => {}
        }
    }
}

impl Director {
    /// Waits until the run can be cancelled: it may begin before its caller hears of it.
    async fn until_known(&self) {
        while locked(&self.0.canceller).is_none() {
            tokio::task::yield_now().await;
        }
    }

    /// Stops the run where the session ends without a result.
    fn stop_where_it_stands(&self) {
        let claims = self.claims();
        let is_there = self.0.committed.load(Ordering::SeqCst) >= claims.steps;
        let stops = match &claims.end {
            None => true,
            Some(end) => end["status"] == "cancelled",
        };
        if let Some(canceller) = locked(&self.0.canceller).as_ref().filter(|_| is_there && stops) {
            match claims
                .end
                .as_ref()
                .and_then(|end| end["signal"].as_i64())
                .and_then(|signal| i32::try_from(signal).ok())
            {
                Some(signal) => canceller.cancel_by(signal),
                None => canceller.cancel(),
            }
        }
    }
}

/// A clock that tells the times that the journal says were told.
#[derive(Debug)]
struct ToldClock(Director, TokioClock);

impl Clock for ToldClock {
    fn now(&self) -> SystemTime {
        let claims = self.0.claims();
        let step = self.0.0.at.load(Ordering::SeqCst);
        let told = claims.visits.get(&step).and_then(|visit| visit["now"].as_i64());
        let at_end = || claims.end.as_ref().filter(|_| step == claims.steps).and_then(|end| end["now"].as_i64());
        let day = Duration::from_secs(if claims.is_tomorrow { 86_400 } else { 0 });
        told.or_else(at_end).map_or_else(|| self.1.now() + day, timestamp::from_unix_milliseconds)
    }

    fn monotonic(&self) -> Duration {
        let claims = self.0.claims();
        let is_overdue = claims.end.as_ref().is_some_and(is_overdue)
            && self.0.0.is_begun.load(Ordering::SeqCst)
            && self.0.0.committed.load(Ordering::SeqCst) >= claims.steps;
        self.1.monotonic() + if is_overdue { LONG * 2 } else { Duration::ZERO }
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        self.1.sleep(time)
    }
}

/// Whether a run ended because its time was up. A tool may say the same, of its node.
fn is_overdue(end: &Value) -> bool {
    end["error"] == "the run took longer than it may" && end["node"].is_null()
}

/// How long a run may take that the journal says took longer.
const LONG: Duration = Duration::from_secs(100_000_000);

/// Returns a record without what is different each time that it is written, and decides nothing.
fn comparable(body: &str) -> Value {
    let mut record: Value = serde_json::from_str(body).expect("a record is JSON");
    // What is spelt out and says nothing counts as not there, as it does for every reader.
    let parsed: Result<Record, _> = serde_json::from_value(record.clone());
    if let Ok(parsed) = parsed {
        record = serde_json::to_value(&parsed).expect("a record has only texts as keys");
    }
    if let Value::Object(map) = &mut record {
        ["v", "run", "seq", "prev", "end", "at"].iter().for_each(|name| drop(map.shift_remove(*name)));
    }
    for visit in record["visits"].as_array_mut().into_iter().flatten() {
        visit.as_object_mut().map(|visit| visit.shift_remove("ms"));
    }
    record
}

/// The judge: has the engine write journals.
struct Judge {
    director: Director,
    graph: Interpreted,
}

impl Judge {
    /// Says whether the engine can write a journal.
    fn can_write(&self, bodies: &[String], pool: &HashMap<String, Vec<Value>>) -> bool {
        locked(&self.director.0.pool).clone_from(pool);
        let records: Vec<Value> = bodies.iter().map(|body| comparable(body)).collect();
        let mut begins: Vec<usize> = (0..records.len()).filter(|at| records[*at]["kind"] == "resume").collect();
        begins.insert(0, 0);
        let mut log: Option<Log> = None;
        for (session, from) in begins.iter().enumerate() {
            let to = begins.get(session + 1).copied().unwrap_or(records.len());
            let written = self.ways(&records[*from..to], pool).into_iter().find_map(|(way, is_tomorrow)| {
                let claims = Claims { is_tomorrow, ..claims(&records[*from..to], way) };
                self.session(&records[..to], &records[*from], claims, log.as_ref())
            });
            let Some(written) = written else { return false };
            log = Some(written);
        }
        true
    }

    /// Returns where what a session says can have come from.
    fn ways(&self, records: &[Value], pool: &HashMap<String, Vec<Value>>) -> Vec<(Way, bool)> {
        let mut ways = vec![Way::Tool];
        let end = records.last().filter(|last| last["kind"] == "end" && last["status"] == "error");
        if end.is_some_and(|end| !end["node"].is_null()) {
            ways.extend([Way::ErrorHook, Way::StartHook, Way::StepHook, Way::LimitHook]);
        }
        let visits = records.iter().flat_map(|record| record["visits"].as_array().into_iter().flatten());
        let is_open = visits.clone().any(|visit| visit["error"].is_string() && visit["result"].is_null());
        if is_open || end.is_some_and(|end| end["unfit"] == json!(true)) {
            let mut values: Vec<Value> = pool.values().flatten().cloned().collect();
            values.extend([json!(null), json!({}), json!([]), json!(1), json!("a"), json!({"a": 1})]);
            ways.extend(values.into_iter().map(Way::Returned));
        }
        let hooks = [Way::StartHook, Way::StepHook, Way::LimitHook];
        let tomorrow: Vec<Way> = hooks.into_iter().filter(|hook| ways.contains(hook)).collect();
        let today = ways.into_iter().map(|way| (way, false));
        today.chain(tomorrow.into_iter().map(|way| (way, true))).collect()
    }

    /// Runs one session. Returns the store behind it, cut to the records that are claimed, if those are what was written.
    fn session(&self, all: &[Value], first: &Value, claims: Claims, log: Option<&Log>) -> Option<Log> {
        let directed = &self.director.0;
        let has_end = claims.end.is_some();
        let before = first["steps"].as_u64().unwrap_or_default();
        let is_result = claims
            .end
            .as_ref()
            .is_some_and(|end| end["status"].as_str().is_some_and(|status| status.starts_with("completed")));
        let is_overdue = claims.end.as_ref().is_some_and(is_overdue);
        *self.director.claims() = claims;
        locked(&directed.attempts).clear();
        *locked(&directed.canceller) = None;
        directed.at.store(before, Ordering::SeqCst);
        directed.committed.store(before, Ordering::SeqCst);
        directed.is_begun.store(false, Ordering::SeqCst);
        let patterns = |list: &Value| -> Option<Vec<Pattern>> {
            list.as_array()?.iter().map(|text| Pattern::new(text.as_str()?).ok()).collect()
        };
        let number = |name: &str| first[name].as_u64().and_then(|number| u32::try_from(number).ok());
        let capabilities = match &first["capabilities"] {
            Value::Null => None,
            list => Some(Grants::new(patterns(list)?)),
        };
        let options = Options {
            run: Some(run_id()),
            capabilities,
            depth: number("depth"),
            max_steps: number("limit"),
            timeout: is_overdue.then_some(LONG),
            ..Options::default()
        };
        let grants = patterns(&first["grants"])?;
        let Value::Object(inputs) = first.get("inputs").cloned().unwrap_or_else(|| json!({})) else { return None };
        within(false, async {
            let written = Log::default();
            let (written, elapsed) = match log {
                // The engine writes to a copy: another way may be tried.
                Some(log) => log.first(log.len()).await,
                None => (written, Duration::ZERO),
            };
            written.begin(tokio::time::Instant::now(), elapsed);
            let clock = ToldClock(self.director.clone(), TokioClock::at(SystemTime::UNIX_EPOCH + BEGAN + elapsed));
            let mut builder = Runtime::builder()
                .clock(Arc::new(clock))
                .store(written.clone())
                .sign_with(key())
                .observer(self.director.clone())
                .hooks(Layer::Builtin, self.director.clone());
            for grant in &grants {
                builder = builder.grant(grant.as_str()).ok()?;
            }
            let runtime = builder.build().ok()?;
            let graph = self.graph.clone();
            let run = match log {
                None => runtime.start_with(options, graph, inputs).await.ok()?,
                Some(_) => runtime.resume_with(options, graph, &run_id()).await.ok()?,
            };
            *locked(&directed.canceller) = Some(run.canceller());
            self.director.stop_where_it_stands();
            let ended = tokio::time::timeout(Duration::from_secs(1_000_000), run).await;
            if is_result && !matches!(ended, Ok(Ok(_))) {
                return None;
            }
            let bodies = written.bodies();
            let kept: Vec<usize> = (0..bodies.len()).filter(|at| !is_calls(&bodies[*at])).collect();
            let said: Vec<Value> = kept.iter().map(|at| comparable(&bodies[*at])).collect();
            let is_whole = !has_end || said.len() == all.len();
            if !is_whole || said.len() < all.len() || said[..all.len()] != *all {
                return None;
            }
            // Those that are written together are all there, or none is.
            let count = kept[all.len() - 1] + 1;
            if !written.ends().contains(&count) {
                return None;
            }
            Some(written.first(count).await.0)
        })
    }
}

fn is_calls(body: &str) -> bool {
    body.contains(r#","kind":"calls","#)
}

/// Reads what a session says came from outside.
fn claims(records: &[Value], way: Way) -> Claims {
    let mut claims = Claims { way, steps: records[0]["steps"].as_u64().unwrap_or_default(), ..Claims::default() };
    for record in records {
        match record["kind"].as_str() {
            Some("step") => {
                let visits = record["visits"].as_array().cloned().unwrap_or_default();
                if let Some(limit) = record["limit"].as_u64() {
                    claims.limits.insert(claims.steps + 1, limit);
                }
                for visit in visits {
                    claims.steps += 1;
                    claims.visits.insert(claims.steps, visit);
                }
            }
            Some("end") => claims.end = Some(record.clone()),
            _ => {}
        }
    }
    claims
}

/// Chains and signs texts as the records of the run, as only the holder of its key can.
fn forged(bodies: &[String]) -> Vec<Sealed> {
    let (key, token) = (key(), [7; 32]);
    let mut prev = Digest::of([]);
    let forge = |(seq, body): (usize, &String)| {
        let said: Value = serde_json::from_str(body).expect("a record is JSON");
        let head = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let body = body
            .replacen(&head("prev"), &prev.to_hex(), 1)
            .replacen(&format!(r#""end":"{}""#, head("end")), &format!(r#""end":"{}""#, Digest::of(token).to_hex()), 1)
            .replacen(&format!(r#""seq":{},"#, said["seq"]), &format!(r#""seq":{seq},"#), 1);
        let sealed = Sealed { seq: seq as u64, signature: key.sign(&Digest::of(&body)), body, end: Some(token) };
        prev = sealed.link();
        sealed
    };
    let mut records: Vec<Sealed> = bodies.iter().enumerate().map(forge).collect();
    Sealed::forget_ends(&mut records);
    records
}

/// A true journal.
struct True {
    name: String,
    bodies: Vec<String>,
    pool: HashMap<String, Vec<Value>>,
}

/// Changes one member that means something, or two; none if there was nothing to change there.
fn forge(lot: &mut Lot, journal: &True, others: &[String]) -> Option<(Vec<String>, String)> {
    let mut bodies = journal.bodies.clone();
    let mut said = Vec::new();
    for _ in 0..1 + lot.below(4) / 3 {
        let at = lot.below(bodies.len());
        let mut record: Value = serde_json::from_str(&bodies[at]).ok()?;
        let what = change(lot, &mut record, others)?;
        let body = serde_json::to_string(&record).ok()?;
        serde_json::from_str::<Record>(&body).ok()?;
        if comparable(&body) == comparable(&bodies[at]) {
            return None;
        }
        said.push(format!("record {at}: {what}"));
        bodies[at] = body;
    }
    Some((bodies, said.join("; ")))
}

/// Changes a record, and says how.
fn change(lot: &mut Lot, record: &mut Value, nodes: &[String]) -> Option<String> {
    let kind = record["kind"].as_str()?.to_owned();
    match kind.as_str() {
        "start" => {
            let name =
                *lot.one(&["inputs", "limit", "depth", "grants", "capabilities", "version", "signer", "graph"])?;
            match name {
                "inputs" => twist(lot, &mut record["inputs"]),
                "limit" | "depth" => put_number(lot, record, name, 6),
                "grants" => {
                    record["grants"] = lot.one(&[json!([]), json!(["*"]), json!(["rye.execute.tool.no"])])?.clone();
                }
                "capabilities" => record["capabilities"] = lot.one(&[json!([]), json!(["*"])])?.clone(),
                "signer" => record["signer"] = json!("00000000000000ab"),
                other => record[other] = json!("9.9.9"),
            }
            Some(name.to_owned())
        }
        "step" => {
            if lot.below(6) == 0 {
                let name = *lot.one(&["next", "limit"])?;
                if name == "limit" {
                    put_number(lot, record, "limit", 700);
                } else if lot.below(3) == 0 {
                    record["next"] = json!([]);
                } else {
                    record["next"] = json!([{ "node": lot.one(nodes)? }]);
                }
                return Some(name.to_owned());
            }
            let visits = record["visits"].as_array_mut()?;
            let at = lot.below(visits.len());
            let visit = visits.get_mut(at)?;
            change_visit(lot, visit, nodes)
        }
        "resume" => {
            let name = *lot.one(&["steps", "limit", "depth", "grants"])?;
            match name {
                "grants" => record["grants"] = lot.one(&[json!([]), json!(["*"])])?.clone(),
                other => put_number(lot, record, other, 8),
            }
            Some(name.to_owned())
        }
        "end" => {
            let name = *lot.one(&[
                "status",
                "steps",
                "output",
                "error",
                "node",
                "exhausted",
                "unfit",
                "signal",
                "now",
                "warnings",
            ])?;
            match name {
                "status" => {
                    let all = ["completed", "completed_with_errors", "error", "cancelled"];
                    record["status"] = json!(lot.one(&all)?);
                }
                "output" => twist(lot, &mut record["output"]),
                "error" => put_text(
                    lot,
                    record,
                    "error",
                    &["forged", "cancelled", "the run took longer than it may", "item 0: forged"],
                ),
                "node" => {
                    let node = lot.one(nodes)?.clone();
                    put_text(lot, record, "node", &[node.as_str()]);
                }
                "exhausted" | "unfit" => record[name] = json!(record[name] != json!(true)),
                "now" => put_now(lot, record),
                "warnings" => record["warnings"] = lot.one(&[json!([]), json!(["forged"])])?.clone(),
                other => put_number(lot, record, other, 8),
            }
            Some(name.to_owned())
        }
        _ => None,
    }
}

fn change_visit(lot: &mut Lot, visit: &mut Value, nodes: &[String]) -> Option<String> {
    let all = [
        "step",
        "node",
        "result",
        "result",
        "error",
        "error",
        "fails",
        "category",
        "suppressed",
        "data",
        "edge",
        "edge",
        "changes",
        "changes",
        "calls",
        "now",
        "items",
        "warnings",
        "run",
        "argument",
    ];
    let name = *lot.one(&all)?;
    match name {
        "step" | "calls" => put_number(lot, visit, name, 5),
        "edge" => put_number(lot, visit, name, 3),
        "node" => visit["node"] = json!(lot.one(nodes)?),
        "result" | "argument" => twist(lot, &mut visit[name]),
        "error" => put_text(lot, visit, "error", &["forged", "item 0: forged", "no"]),
        // A visit becomes a failure as a whole.
        "fails" => {
            let map = visit.as_object_mut()?;
            ["result", "changes"].iter().for_each(|name| drop(map.shift_remove(*name)));
            visit["error"] = json!("forged");
            visit["category"] = json!(lot.one(&["permanent", "transient"])?);
            if lot.below(2) == 0 {
                visit["suppressed"] = json!(true);
            } else {
                visit.as_object_mut()?.shift_remove("edge");
            }
        }
        "category" => {
            put_text(lot, visit, "category", &["permanent", "transient", "rate_limited", "cancelled", "forged"]);
        }
        "suppressed" => visit["suppressed"] = json!(visit["suppressed"] != json!(true)),
        "data" => {
            if lot.below(3) == 0 {
                visit.as_object_mut()?.shift_remove("data");
            } else {
                twist(lot, &mut visit["data"]);
            }
        }
        "changes" => {
            let changes = visit.as_object_mut()?.entry("changes").or_insert_with(|| json!({})).as_object_mut()?;
            let keys: Vec<String> = changes.keys().cloned().collect();
            match (lot.one(&keys), lot.below(3)) {
                (Some(key), 0) => drop(changes.shift_remove(key)),
                (Some(key), _) => twist(lot, changes.get_mut(key)?),
                (None, _) => drop(changes.insert("forged".to_owned(), json!(1))),
            }
        }
        "now" => put_now(lot, visit),
        "items" => {
            let all = [json!([]), json!([{"item": 0, "error": "forged"}]), json!([{"item": 9, "error": "forged"}])];
            visit["items"] = lot.one(&all)?.clone();
        }
        "warnings" => visit["warnings"] = lot.one(&[json!([]), json!(["forged"])])?.clone(),
        "run" => visit["run"] = json!("run-1"),
        _ => return None,
    }
    Some(format!("`{name}` of a visit"))
}

fn put_number(lot: &mut Lot, record: &mut Value, name: &str, most: usize) {
    let was = record[name].as_u64();
    let number = match (was, lot.below(4)) {
        (Some(was), 0) => was + 1,
        (Some(was), 1) => was.saturating_sub(1),
        (Some(_), 2) => {
            record.as_object_mut().map(|map| map.shift_remove(name));
            return;
        }
        _ => lot.below(most) as u64,
    };
    record[name] = json!(number);
}

fn put_text(lot: &mut Lot, record: &mut Value, name: &str, texts: &[&str]) {
    match lot.below(texts.len() + 1) {
        at if at < texts.len() => record[name] = json!(texts[at]),
        _ => drop(record.as_object_mut().map(|map| map.shift_remove(name))),
    }
}

fn put_now(lot: &mut Lot, record: &mut Value) {
    match (record["now"].as_i64(), lot.below(2)) {
        (Some(_), 0) => drop(record.as_object_mut().map(|map| map.shift_remove("now"))),
        (Some(now), _) => record["now"] = json!(now + 1000),
        (None, _) => record["now"] = json!(1_795_291_200_000_i64),
    }
}

/// Changes something in a value.
fn twist(lot: &mut Lot, value: &mut Value) {
    let is_here = lot.below(3) == 0;
    match value {
        Value::Array(list) if !list.is_empty() && !is_here => {
            let at = lot.below(list.len());
            if lot.below(3) == 0 { drop(list.remove(at)) } else { twist(lot, &mut list[at]) }
        }
        Value::Object(map) if !map.is_empty() && !is_here => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = &keys[lot.below(keys.len())];
            if lot.below(4) == 0 {
                map.shift_remove(key);
            } else if let Some(field) = map.get_mut(key) {
                twist(lot, field);
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
            *value = all[lot.below(all.len())].clone();
        }
    }
}

/// Returns values that the tools of a case return.
fn pool(case: &Case) -> HashMap<String, Vec<Value>> {
    let values = |answers: &[super::script::Answer]| answers.iter().filter_map(super::script::Answer::value).collect();
    case.tools.iter().map(|(tool, answers)| (tool.clone(), values(answers))).collect()
}

/// Returns the true journals of a graph's cases: of each whole, and of some that were cut and resumed. None where the judge cannot
/// direct a part of the run: other graphs, files, processes, secrets and caches.
fn journals(name: &str, bench: &Bench, script: &Script, lot: &mut Lot) -> Vec<True> {
    let text = std::fs::read_to_string(directory().join(format!("graphs/{name}.yaml"))).unwrap_or_default();
    if ["cache_result", "x-secret", "rye/file-system", "rye/bash", "thread", "fetch", "sign:"]
        .iter()
        .any(|one| text.contains(one))
    {
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
            let bodies = log.bodies();
            let is_plain = |body: &String| body.starts_with(r#"{"v":2,"run":"run","#);
            let is_resumed = bodies.iter().any(|body| body.contains(r#","kind":"resume","#));
            // What finished before its step is written in another order each time.
            if !bodies.iter().all(is_plain) || (is_resumed && bodies.iter().any(|body| is_calls(body))) {
                return;
            }
            let bodies = bodies.into_iter().filter(|body| !is_calls(body)).collect();
            all.push(True { name: format!("{name}: {}{how}", case.name), bodies, pool: pool(case) });
        };
        add(&log, "");
        let ends = log.ends();
        if case.resumes && ends.len() > 1 {
            let at = ends[lot.below(ends.len() - 1)];
            if let Ok((_, again)) = resume(case, &bench.stage, &bench.compiled, &log, at, &given) {
                add(&again, &format!(", resumed after record {at}"));
            }
        }
    }
    all
}

/// What came of the forgeries.
#[derive(Default)]
struct Counts {
    journals: usize,
    forged: usize,
    written: usize,
    problems: Vec<String>,
}

/// Compares what is found of a journal.
fn compare(judge: &Judge, journal: &True, bodies: &[String], what: &str, counts: &mut Counts) {
    let records = forged(bodies);
    let audited = audit(&judge.graph, &run_id(), &records, &key().public(), None);
    let replayed = replay(&judge.graph, &judge.graph, &run_id(), &records, &key().public(), None);
    let is_same = replayed.as_ref().is_ok_and(|replay| replay.deviations.is_empty() && replay.stopped.is_none());
    let bodies: Vec<String> = records.iter().map(|record| record.body.clone()).collect();
    let can_write = judge.can_write(&bodies, &journal.pool);
    counts.written += usize::from(can_write);
    if audited.is_ok() != can_write || is_same != audited.is_ok() {
        let audited = audited.map(drop).map_err(|error| error.to_string());
        let shown = bodies.iter().map(|body| format!("\n    {}", comparable(body))).collect::<String>();
        counts.problems.push(format!(
            "{}: {what}: the engine {} write it, the audit says {audited:?}, the replay {}{shown}",
            journal.name,
            if can_write { "can" } else { "cannot" },
            if is_same { "finds nothing" } else { "differs" },
        ));
    }
}

#[test]
fn an_audit_accepts_exactly_what_the_engine_can_write() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let wanted = usize::try_from(number("FORGERIES").unwrap_or(300)).expect("a number of journals");
    let mut lot = Lot(number("SEED").unwrap_or_default());
    let mut counts = Counts::default();
    let director = Director::default();
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
        let found = journals(&name, &bench, &script, &mut lot);
        if found.is_empty() {
            continue;
        }
        let judge = Judge { director: director.clone(), graph: interpreted(&name, &directed) };
        let text = std::fs::read_to_string(directory().join(format!("graphs/{name}.yaml"))).unwrap_or_default();
        all.push((judge, found, nodes(&text)));
    }
    // A few true journals tell whether the judge knows the engine, and the rest of the time is for forgeries.
    for (judge, found, _) in &all {
        for journal in found {
            counts.journals += 1;
            let written = counts.written;
            compare(judge, journal, &journal.bodies, "unchanged", &mut counts);
            if counts.written == written {
                counts.problems.push(format!("{}: the judge cannot direct it", journal.name));
            }
        }
    }
    counts.written = 0;
    while counts.forged < wanted && counts.problems.len() < 40 {
        let Some((judge, found, nodes)) = lot.one(&all) else { break };
        let Some(journal) = lot.one(found) else { continue };
        let Some((bodies, what)) = forge(&mut lot, journal, nodes) else { continue };
        counts.forged += 1;
        compare(judge, journal, &bodies, &what, &mut counts);
    }
    let Counts { journals, forged, written, problems } = counts;
    if std::env::var_os("SHOW").is_some() {
        eprintln!(
            "{forged} forged from {journals} journals: the engine can write {written}; {} disagreements",
            problems.len()
        );
    }
    assert!(problems.is_empty(), "{} of {forged}:\n{}", problems.len(), problems.join("\n"));
    assert!(written * 100 > forged, "only {written} of {forged} could be written: too few to know what is accepted");
}

/// Returns the names of a graph's nodes.
fn nodes(text: &str) -> Vec<String> {
    let graph: Value = serde_yaml::from_str(text).unwrap_or_default();
    graph["config"]["nodes"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

//! The judge of forged journals: it lets the engine execute the claims of a journal, and checks whether the engine
//! writes the same journal.
//!
//! The judge knows nothing of the audit. Tools, nested graphs, caches, hooks, callers and a clock do what the journal
//! says they did, because all of that comes from outside the engine. Everything else is the engine's own work.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_model::timestamp;
use graph_runtime::Sleeping;
use graph_runtime::cache::{Cache, CacheFuture, Digest, MemoryCache, NodeCache};
use graph_runtime::dynamic::{Interpreted, ToolFuture, Tools};
use graph_runtime::history::StateEdit;
use graph_runtime::hooks::HookContext;
use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::{Record, SignedRecord};
use graph_runtime::store::{Lease, Page, RunFilter, RunPage, RunSummary, StoreFuture};
use graph_runtime::{
    ActionError, Call, Canceller, Category, Clock, Control, Grants, Hooks, Layer, Map, Options, Pattern, RunId,
    Runtime, Status, Store, TokioClock, Value,
};
use serde_json::json;

use super::case::{BEGAN, Log, edit as edit_run, key, run_id, within};

/// The id of a run, and one of its records.
pub(crate) type Said = (String, Value);

/// The claims of a journal about the world outside the engine, for one session of a run.
#[derive(Default, Clone)]
struct Claims {
    /// The recorded visits by their numbers.
    visits: BTreeMap<u64, Value>,
    /// The recorded step limits by the numbers of the steps' first visits.
    limits: BTreeMap<u64, u64>,
    /// The end of the session, if it has one.
    end: Option<Value>,
    /// The number of visits that are committed at its end.
    steps: u64,
    way: Way,
    /// The category of the failure that it ended with, as far as the outer run records it.
    kind: Option<Category>,
    /// The visit of another run that called this run.
    parent: Option<(String, u64)>,
    /// The node of that visit.
    node: String,
    /// The item of that visit.
    item: Option<u64>,
    /// The number of the run's records at the end of the session.
    records: usize,
}

/// The assumed origin of an end that its record does not name, and the assumed results of calls on which a node failed.
#[derive(Default, Clone, PartialEq, Debug)]
enum Way {
    /// The call of the node.
    #[default]
    Tool,
    /// A hook after that call failed.
    ErrorHook,
    /// A hook after the call of an item failed, when other items failed too. The engine adds how many.
    ItemHook,
    StartHook,
    StepHook,
    LimitHook,
    /// A value that a call returned: one of those that fit the tool, and then one of [`ANYTHING`].
    Returned(usize),
}

/// Values that tools without a contract may return, as JSON.
const ANYTHING: [&str; 6] = ["{}", "null", "[]", "1", "\"a\"", "{\"a\":1}"];

/// The maximum number of values that are tried for a tool.
const MOST_VALUES: usize = 8;

/// Performs runs as their journals say.
#[derive(Default, Clone)]
pub(crate) struct Director(Arc<Directed>);

#[derive(Default)]
struct Directed {
    /// The claims about each run: the outermost run of the session, and its nested runs.
    claims: Mutex<BTreeMap<String, Claims>>,
    /// Whether a time that the journal does not record is one of the next day: hooks may read the clock, and no record
    /// says so.
    is_tomorrow: AtomicBool,
    /// Whether nested runs that the journal does not know never begin: a store may be slow, and the call be given up.
    is_slow: AtomicBool,
    /// The nested runs whose last record is written so slowly that their calls are given up after it.
    late: Mutex<BTreeSet<String>>,
    /// The number of attempts of each call.
    attempts: Mutex<HashMap<CallPlace, u64>>,
    /// The visit that began last.
    at: Mutex<(String, u64)>,
    /// The number of committed visits of each run, and whether the run has ended.
    stands: Mutex<BTreeMap<String, (u64, bool)>>,
    is_begun: AtomicBool,
    canceller: Mutex<Option<Canceller>>,
    /// Values that fit the tools, for calls of which the journal says nothing.
    pool: Mutex<HashMap<String, Vec<Value>>>,
    /// The results that were cached before the session.
    cache: Mutex<MemoryCache>,
    /// Whether the run that fills the cache is being played.
    is_before: AtomicBool,
}

/// The place of a call: the run, the visit and the item.
type CallPlace = (String, u64, Option<u64>);

/// The behavior of a call.
enum Answer {
    Comes(Result<Value, ActionError>),
    /// The call never returns.
    Hangs,
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

/// The id of the outermost run.
fn outermost() -> String {
    run_id().to_string()
}

impl Claims {
    /// Returns how often the call of a visit, or of an item of it, is made before the last attempt.
    fn again(visit: &Value) -> u64 {
        visit["calls"].as_u64().unwrap_or(1).max(1) - 1
    }

    /// Returns the result of a call of a recorded visit: the `attempt`th call of the visit or item, from 1.
    fn visit_result(
        &self,
        visit: &Value,
        item: Option<u64>,
        attempt: u64,
        any: impl Fn(usize) -> Value,
    ) -> Result<Value, ActionError> {
        let again = Self::again(visit);
        let failed = visit["items"].as_array().and_then(|items| items.first()).map(|first| first["item"].as_u64());
        let Some(item) = item else {
            if attempt <= again {
                return Err(failure(Category::Permanent, "once more", None));
            }
            return match visit["error"].as_str() {
                Some(error) if visit["result"].is_null() => match &self.way {
                    Way::Returned(number) => Ok(any(*number)),
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
                // The category is recorded only for the first failed item.
                let kind = if is_first { category(&visit["category"]) } else { Category::Cancelled };
                Err(failure(kind, failed["error"].as_str().unwrap_or_default(), data))
            }
            None => Ok(place.unwrap_or_else(|| any(0))),
        }
    }

    /// Returns the result of a call with which a run ends.
    fn end_result(&self, call: &Call, end: &Value, any: impl Fn(usize) -> Value) -> Result<Value, ActionError> {
        if let (Way::Returned(number), None) = (&self.way, call.item()) {
            return Ok(any(*number));
        }
        let error = end["error"].as_str().unwrap_or_default();
        if call.node() != end["node"] || end["unfit"] == json!(true) {
            return Ok(any(0));
        }
        let kind = self.kind.unwrap_or(Category::Permanent);
        let coded = |error: ActionError| match end["code"].as_str() {
            Some(code) => error.with_code(code),
            None => error,
        };
        let (failing, text) = split_item(error);
        match (call.item(), failing) {
            (Some(item), Some(failing)) if item != failing => Ok(any(0)),
            (Some(_), Some(_)) => Err(coded(failure(kind, text, None))),
            _ => Err(coded(failure(kind, error, None))),
        }
    }
}

/// Splits the failure of a foreach into the item and the reason.
fn split_item(error: &str) -> (Option<u64>, &str) {
    let parts = error.strip_prefix("item ").and_then(|rest| rest.split_once(": "));
    match parts.and_then(|(item, text)| Some((item.parse().ok()?, text))) {
        Some((item, text)) => (Some(item), text),
        None => (None, error),
    }
}

/// Returns the reason of an item's failure, if the number of other failed items follows it.
fn without_others(error: &str) -> Option<&str> {
    let (text, others) = error.strip_suffix(" more")?.rsplit_once(", and ")?;
    others.parse::<u64>().is_ok().then_some(text)
}

impl Director {
    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, Claims>> {
        locked(&self.0.claims)
    }

    /// Returns the answer to a call: the `attempt`th call of its visit or item, from 1.
    fn answer(&self, call: &Call, attempt: u64) -> Answer {
        let claims = self.claims();
        let any = |number: usize| {
            let pool = locked(&self.0.pool);
            let known = pool.get(call.tool()).map_or(&[][..], Vec::as_slice);
            let known = &known[..known.len().min(MOST_VALUES)];
            let text = || ANYTHING.get(number - known.len()).copied().unwrap_or("{}");
            known.get(number).cloned().unwrap_or_else(|| serde_json::from_str(text()).expect("it is JSON"))
        };
        let run = call.run_id().as_str();
        let Some(own) = claims.get(run) else { return Answer::Comes(Ok(any(0))) };
        if let Some(visit) = own.visits.get(&call.step()) {
            return Answer::Comes(own.visit_result(visit, call.item(), attempt, any));
        }
        match &own.end {
            Some(end) => Answer::Comes(own.end_result(call, end, any)),
            // The outer run gave up the call.
            None if run != outermost() => Answer::Hangs,
            None => Answer::Comes(Ok(any(0))),
        }
    }

    /// Returns the number of the last call of a visit, or of an item of it, that began a run; 0 if there is no such
    /// call.
    ///
    /// Earlier calls may have begun no run if they were given up.
    fn begun(claims: &BTreeMap<String, Claims>, run: &str, step: u64, item: Option<u64>) -> u64 {
        let place = item.map_or_else(|| format!("{run}-{step}"), |item| format!("{run}-{step}_{item}"));
        let call = |id: &String| match id.strip_prefix(&place)? {
            "" => Some(1),
            rest => rest.strip_prefix("-again")?.parse::<u64>().ok().map(|again| again + 1),
        };
        claims.keys().filter_map(call).max().unwrap_or_default()
    }
}

impl Tools for Director {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, _: Map<String, Value>) -> ToolFuture<'a> {
        if call.hook().is_some() {
            return Box::pin(async { Ok(Value::Null) });
        }
        let attempt = {
            let mut attempts = locked(&self.0.attempts);
            let attempt = attempts.entry((call.run_id().to_string(), call.step(), call.item())).or_default();
            *attempt += 1;
            *attempt
        };
        let answer = self.answer(call, attempt);
        Box::pin(async move {
            self.until_known().await;
            match answer {
                Answer::Comes(answer) => answer,
                Answer::Hangs => std::future::pending().await,
            }
        })
    }
}

impl Hooks for Director {
    async fn graph_started(&self, told: &HookContext<'_>) -> Option<Control> {
        self.until_known().await;
        let claims = self.claims();
        let own = claims.get(told.run.as_str())?;
        (own.way == Way::StartHook).then(|| fail(own)).flatten()
    }

    async fn after_step(&self, told: &HookContext<'_>) -> Option<Control> {
        self.until_known().await;
        self.stop_at_session_end();
        let claims = self.claims();
        let own = claims.get(told.run.as_str())?;
        let is_there = told.values["step_count"].as_u64() == Some(own.steps)
            && own.end.as_ref().is_some_and(|end| end["node"] == told.values["node"]);
        (own.way == Way::StepHook && is_there).then(|| fail(own)).flatten()
    }

    async fn error(&self, told: &HookContext<'_>) -> Option<Control> {
        let (run, item) = (told.run.as_str(), told.values["item"].as_u64());
        let claims = self.claims();
        let own = claims.get(run)?;
        let attempt = told.values["attempt"].as_u64().unwrap_or_default();
        // Nodes that are visited together are distinguished by their names.
        let committed = locked(&self.0.stands).get(run).map_or(0, |stands| stands.0);
        let is_own = |visit: &&Value| visit["node"] == told.values["node"];
        let Some(visit) = own.visits.range(committed + 1..).map(|(_, visit)| visit).find(is_own) else {
            let end = own.end.as_ref()?;
            let begun = Self::begun(&claims, run, committed + 1, item);
            // A hook is called after each failure, and ends the run only after the last one.
            if matches!(own.way, Way::ErrorHook | Way::ItemHook) && attempt >= begun {
                let text = end["error"].as_str()?;
                let mut error = if item.is_some() { split_item(text).1 } else { text };
                if own.way == Way::ItemHook {
                    error = without_others(error)?;
                }
                return Some(Control::Fail { error: error.to_owned() });
            }
            let max_retries = if attempt < begun { u32::MAX } else { 0 };
            return Some(Control::Retry { max_retries });
        };
        let again = Claims::again(visit);
        let first = visit["items"].as_array().and_then(|items| items.first()).and_then(|first| first["item"].as_u64());
        let is_first = item.is_none_or(|item| item == first.unwrap_or(0));
        let step = visit["step"].as_u64().unwrap_or_default();
        let again = match Self::begun(&claims, run, step, item) {
            // For each item that runs a graph, there is one journal for each attempt.
            begun if item.is_some() && begun > 0 => begun - 1,
            _ if is_first => again,
            _ => 0,
        };
        // Without an answer, the runtime would repeat calls by itself.
        Some(Control::Retry { max_retries: if attempt <= again { u32::MAX } else { 0 } })
    }

    async fn limit(&self, told: &HookContext<'_>) -> Option<Control> {
        let claims = self.claims();
        let own = claims.get(told.run.as_str())?;
        if own.way == Way::LimitHook {
            return fail(own);
        }
        // Nobody allows more visits of a node.
        if told.values["limit_code"] != "max_steps_exceeded" {
            return None;
        }
        let (taken, most) = (told.values["current_value"].as_u64()?, told.values["current_max"].as_u64()?);
        let ended = own.end.as_ref().filter(|_| own.steps == taken).and_then(|end| end["error"].as_str());
        let ended = ended.and_then(|text| text.strip_prefix("Max steps exceeded (")?.strip_suffix(')')?.parse().ok());
        // After the last recorded step, one more node was visited.
        let failed = own.end.as_ref().filter(|end| own.steps == taken && end["node"].is_string());
        let wanted = own.limits.get(&(taken + 1)).copied().or(ended).or(failed.map(|_| taken + 1))?;
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
            // The run's deadline is settled by now.
            Event::RunStarted { run, .. } if run.as_str() == outermost() => {
                self.0.is_begun.store(true, Ordering::SeqCst);
            }
            Event::StepStarted { run, step, .. } => *locked(&self.0.at) = (run.to_string(), *step),
            Event::Recorded { run, records, .. } => self.recorded(run.as_str(), records),
            Event::RunEnded { run, .. } => {
                let parent = self.claims().get(run.as_str()).and_then(|own| own.parent.clone());
                if let Some(parent) = parent {
                    *locked(&self.0.at) = parent;
                }
            }
            _ => {}
        }
    }
}

impl Director {
    /// Notes the records that a run wrote.
    fn recorded(&self, run: &str, records: &[SignedRecord]) {
        {
            let mut all = locked(&self.0.stands);
            let stands = all.entry(run.to_owned()).or_default();
            for record in records {
                let body: Value = serde_json::from_str(&record.body).expect("the engine writes JSON");
                match body["kind"].as_str() {
                    // The observer of a resumed run sees its journal from the first record.
                    Some("start") => *stands = (0, false),
                    Some("step") => stands.0 += body["visits"].as_array().map_or(0, |all| all.len() as u64),
                    Some("end") => stands.1 = true,
                    Some("resume") => stands.1 = false,
                    _ => {}
                }
            }
        }
        self.stop_at_session_end();
    }

    /// Waits until the run can be cancelled: it may begin before its caller has the handle.
    async fn until_known(&self) {
        while locked(&self.0.canceller).is_none() {
            tokio::task::yield_now().await;
        }
    }

    /// Whether everything in the journals has happened, except the end of the outermost run and of the runs that stop
    /// with it.
    fn is_all_done(&self, claims: &BTreeMap<String, Claims>) -> bool {
        let stands = locked(&self.0.stands);
        claims.iter().all(|(run, own)| {
            let Some((steps, is_ended)) = stands.get(run).copied() else { return false };
            let is_stopped = own.end.as_ref().is_none_or(|end| end["status"] == "cancelled" || is_overdue(end));
            steps >= own.steps && (is_ended || is_stopped || *run == outermost())
        })
    }

    /// Stops the run if its session ends without a result.
    fn stop_at_session_end(&self) {
        let claims = self.claims();
        let Some(own) = claims.get(&outermost()) else { return };
        // A visit after the last recorded one decides nothing, and may take long.
        let is_beyond = locked(&self.0.stands).get(&outermost()).is_some_and(|stands| stands.0 > own.steps);
        let stops = own.end.as_ref().is_none_or(|end| end["status"] == "cancelled");
        if !is_beyond && (!stops || !self.is_all_done(&claims)) {
            return;
        }
        let signal = own.end.as_ref().and_then(|end| end["signal"].as_i64());
        if let Some(canceller) = locked(&self.0.canceller).as_ref() {
            match signal.and_then(|signal| i32::try_from(signal).ok()) {
                Some(signal) => canceller.cancel_by(signal),
                None => canceller.cancel(),
            }
        }
    }
}

/// A cache with the entries that the journal says it had.
#[derive(Debug)]
struct RecordedCache(Director);

impl Cache for RecordedCache {
    fn get<'a>(&'a self, key: &'a Digest) -> CacheFuture<'a, Option<String>> {
        let directed = &self.0.0;
        let (run, step) = locked(&directed.at).clone();
        let claims = self.0.claims();
        let visit = claims.get(&run).and_then(|own| own.visits.get(&step));
        let is_said = visit.is_some_and(|visit| visit["cached"] == json!(true));
        let has = is_said && !directed.is_before.load(Ordering::SeqCst);
        let cache = locked(&directed.cache).clone();
        Box::pin(async move { if has { cache.get(key).await } else { Ok(None) } })
    }

    fn put<'a>(&'a self, key: &'a Digest, entry: &'a str) -> CacheFuture<'a, ()> {
        let cache = locked(&self.0.0.cache).clone();
        Box::pin(async move { cache.put(key, entry).await })
    }
}

/// A store that may be slow: runs that the journal does not know never begin, and late runs never learn that their last
/// record was written.
#[derive(Debug)]
struct RecordedStore(Director, Log);

impl Store for RecordedStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        let is_known = self.0.claims().contains_key(run.as_str());
        if !is_known && self.0.0.is_slow.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            let lease = self.1.create(run, graph, records.clone()).await?;
            self.keep_if_late(run, &records).await;
            Ok(lease)
        })
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.1.append(lease, expected, records.clone(), status).await?;
            self.keep_if_late(lease.run(), &records).await;
            Ok(())
        })
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        self.1.load(run)
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        self.1.lease(run)
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        self.1.runs(filter, page)
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        self.1.find(run)
    }
}

impl RecordedStore {
    /// Never returns if these are the last records of a late run.
    async fn keep_if_late(&self, run: &RunId, records: &[SignedRecord]) {
        if !locked(&self.0.0.late).contains(run.as_str()) {
            return;
        }
        let most = self.0.claims().get(run.as_str()).map_or(0, |own| own.records);
        let written = self.1.texts().iter().filter(|(of, body)| of == run.as_str() && !is_calls(body)).count();
        if written >= most {
            self.0.recorded(run.as_str(), records);
            std::future::pending::<()>().await;
        }
    }
}

/// A clock that returns the times that the journal records.
#[derive(Debug)]
struct RecordedClock(Director, TokioClock);

impl Clock for RecordedClock {
    fn now(&self) -> SystemTime {
        let directed = &self.0.0;
        let (run, step) = locked(&directed.at).clone();
        let claims = self.0.claims();
        let told = claims.get(&run).and_then(|own| {
            let told = own.visits.get(&step).and_then(|visit| visit["now"].as_i64());
            told.or_else(|| own.end.as_ref().filter(|_| step == own.steps).and_then(|end| end["now"].as_i64()))
        });
        let day = Duration::from_secs(if directed.is_tomorrow.load(Ordering::SeqCst) { 86_400 } else { 0 });
        told.map_or_else(|| self.1.now() + day, timestamp::from_unix_milliseconds)
    }

    fn monotonic(&self) -> Duration {
        let claims = self.0.claims();
        let ends_so = claims.get(&outermost()).and_then(|own| own.end.as_ref()).is_some_and(is_overdue);
        let is_overdue = ends_so && self.0.0.is_begun.load(Ordering::SeqCst) && self.0.is_all_done(&claims);
        self.1.monotonic() + if is_overdue { LONG * 2 } else { Duration::ZERO }
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        self.1.sleep(time)
    }
}

/// Whether a run ended because its time was up. A tool may return the same text, but then the end names its node.
fn is_overdue(end: &Value) -> bool {
    end["error"] == "the run took longer than it may" && end["node"].is_null()
}

/// The time limit of a run that exceeded it according to the journal.
const LONG: Duration = Duration::from_secs(100_000_000);

/// Returns a record without the members that differ each time it is written and decide nothing.
pub(crate) fn comparable(body: &str) -> Value {
    let mut record: Value = serde_json::from_str(body).expect("a record is JSON");
    // A member with an explicit default counts as missing, as it does for every reader.
    let parsed: Result<Record, _> = serde_json::from_value(record.clone());
    if let Ok(parsed) = parsed {
        record = serde_json::to_value(&parsed).expect("a record has only texts as keys");
    }
    if let Value::Object(map) = &mut record {
        ["v", "run", "seq", "prev", "end", "at"].iter().for_each(|name| drop(map.shift_remove(*name)));
    }
    for visit in record.get_mut("visits").unwrap_or(&mut Value::Null).as_array_mut().into_iter().flatten() {
        visit.as_object_mut().map(|visit| visit.shift_remove("ms"));
    }
    record
}

/// The grants of a caller, and the capabilities that it lends to the run, as far as they are not recorded. Nothing is
/// recorded of patterns that do not cover each other.
type Lending = Option<(String, String)>;

/// Returns the possible unrecorded grants of a session: pairs of patterns that do not cover each other, and pairs that
/// both allow a call which the session says was denied.
fn lendings(said: &ByRun) -> Vec<Lending> {
    let mut all = vec![("rye.nothing".to_owned(), "rye.other".to_owned()), ("rye.*".to_owned(), "*.*.*".to_owned())];
    let visits = said.values().flatten().flat_map(|record| record["visits"].as_array().into_iter().flatten());
    for error in visits.filter_map(|visit| visit["error"].as_str()) {
        let denied = error.strip_prefix("Permission denied: '").and_then(|rest| rest.split('\'').next());
        let Some(denied) = denied.filter(|text| text.len() > 1 && text.is_ascii()) else { continue };
        all.push((format!("{}*", &denied[..denied.len() - 1]), format!("*{}", &denied[1..])));
    }
    all.into_iter().map(Some).collect()
}

/// The maximum number of combinations of ways that are tried for the sessions of several runs.
const MOST_WAYS: usize = 200;

/// The judge, which lets the engine write journals.
pub(crate) struct Judge {
    pub(crate) director: Director,
    pub(crate) graph: Interpreted,
    /// The nodes of the graph that have a timeout.
    pub(crate) timed: Vec<String>,
}

impl Judge {
    /// Returns whether the engine can write the journals of a run and its nested runs. `records` are in the order in
    /// which they were written.
    pub(crate) fn can_write(&self, records: &[Said], pool: &HashMap<String, Vec<Value>>) -> bool {
        locked(&self.director.0.pool).clone_from(pool);
        sessions(records).into_iter().any(|sessions| self.writes(&sessions, pool))
    }

    /// Returns whether the engine can write sessions, one after the other.
    fn writes(&self, sessions: &[ByRun], pool: &HashMap<String, Vec<Value>>) -> bool {
        let mut log: Option<Log> = None;
        let mut all = ByRun::new();
        for (number, said) in sessions.iter().enumerate() {
            let Some(first) = said.get(&outermost()).and_then(|own| own.first()).cloned() else { return false };
            let before = all.clone();
            for (run, records) in said {
                all.entry(run.clone()).or_default().extend(records.iter().cloned());
            }
            if first["kind"] == "edit" {
                // Nothing else happens in the meantime.
                let is_alone = said.values().map(Vec::len).sum::<usize>() == 1;
                let edited = log.as_ref().filter(|_| is_alone).and_then(|log| self.edited(log, &first, &all));
                let Some(edited) = edited else { return false };
                log = Some(edited);
                continue;
            }
            let is_bounded = number > 0 || !first["capabilities"].is_null();
            let tries = |ways, is_tomorrow: bool, lending: &Lending| {
                *self.director.claims() = claims(&before, said, ways);
                self.director.0.is_tomorrow.store(is_tomorrow, Ordering::SeqCst);
                self.session(&all, &first, lending, log.as_ref())
            };
            let plain = ways(said, pool).into_iter().find_map(|(ways, tomorrow)| tries(ways, tomorrow, &None));
            let others = lendings(said);
            let mut others = others.iter().filter(|_| is_bounded);
            let lent = plain.or_else(|| others.find_map(|lending| tries(BTreeMap::new(), false, lending)));
            let slowly = |late: BTreeSet<String>| {
                let is_late = !late.is_empty();
                *locked(&self.director.0.late) = late;
                self.director.0.is_slow.store(true, Ordering::SeqCst);
                let plain = vec![(BTreeMap::new(), false)];
                let ways = if is_late { ways(said, pool) } else { plain };
                let written = ways.into_iter().find_map(|(ways, tomorrow)| tries(ways, tomorrow, &None));
                self.director.0.is_slow.store(false, Ordering::SeqCst);
                locked(&self.director.0.late).clear();
                written
            };
            let written = lent.or_else(|| {
                let lates = lates(&claims(&before, said, BTreeMap::new()), &self.timed);
                [BTreeSet::new()].into_iter().chain(lates).find_map(slowly)
            });
            let Some(written) = written else { return false };
            log = Some(written);
        }
        true
    }

    /// Lets the engine write an edit, and returns the store after it.
    fn edited(&self, log: &Log, said: &Value, all: &ByRun) -> Option<Log> {
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        let keys = |name: &str| said[name].as_object().cloned().unwrap_or_default().into_iter().collect();
        let edit = StateEdit { by: text("by")?, why: text("why")?, set: keys("set"), write: keys("write") };
        let written = edit_run(&self.graph, log, log.len(), edit).ok()?;
        within(false, cut(&written, all, false))
    }

    /// Runs one session. If the engine wrote the claimed records, returns the store after it, cut to them.
    fn session(&self, all: &ByRun, first: &Value, lending: &Lending, log: Option<&Log>) -> Option<Log> {
        let (grants, uses) = lending.as_ref().map(|(grants, uses)| (grants, uses)).unzip();
        let directed = &self.director.0;
        let (end, before) = {
            let claims = self.director.claims();
            (claims.get(&outermost())?.end.clone(), first["steps"].as_u64().unwrap_or_default())
        };
        let status = end.as_ref().and_then(|end| end["status"].as_str());
        let is_result = status.is_some_and(|status| status.starts_with("completed"));
        let is_overdue = end.as_ref().is_some_and(is_overdue);
        let patterns = |list: &Value| -> Option<Vec<Pattern>> {
            list.as_array()?.iter().map(|text| Pattern::new(text.as_str()?).ok()).collect()
        };
        let number = |name: &str| first[name].as_u64().and_then(|number| u32::try_from(number).ok());
        let mut granted = patterns(&first["grants"])?;
        let capabilities = match (&first["capabilities"], uses) {
            // The capabilities that a caller lends to a resumed run are not recorded.
            (Value::Null, Some(uses)) => Some(Grants::new(granted.iter().cloned().chain(Pattern::new(uses.as_str())))),
            (Value::Null, None) => None,
            (list, _) => Some(Grants::new(patterns(list)?)),
        };
        granted.extend(grants.and_then(|text| Pattern::new(text.as_str()).ok()));
        let options = Options {
            run: Some(run_id()),
            capabilities,
            depth: number("depth"),
            max_steps: number("limit"),
            timeout: is_overdue.then_some(LONG),
            ..Options::default()
        };
        let Value::Object(inputs) = first.get("inputs").cloned().unwrap_or_else(|| json!({})) else { return None };
        let played = Played { options, granted, inputs, is_first: log.is_none(), before };
        let is_kept = self
            .director
            .claims()
            .values()
            .flat_map(|own| own.visits.values())
            .any(|visit| visit["cached"] == json!(true));
        within(false, async {
            *locked(&directed.cache) = MemoryCache::new();
            if is_kept {
                // An equal run fills the cache before.
                directed.is_before.store(true, Ordering::SeqCst);
                drop(self.play(&played, copied(log).await).await);
                directed.is_before.store(false, Ordering::SeqCst);
            }
            let (written, ended) = self.play(&played, copied(log).await).await?;
            if is_result && !ended {
                return None;
            }
            cut(&written, all, end.is_some()).await
        })
    }

    /// Plays a session. Returns the log, and whether the run had a result.
    async fn play(&self, played: &Played, (written, elapsed): (Log, Duration)) -> Option<(Log, bool)> {
        let directed = &self.director.0;
        locked(&directed.attempts).clear();
        locked(&directed.stands).clear();
        *locked(&directed.canceller) = None;
        *locked(&directed.at) = (outermost(), played.before);
        directed.is_begun.store(false, Ordering::SeqCst);
        written.begin(tokio::time::Instant::now(), elapsed);
        let clock = RecordedClock(self.director.clone(), TokioClock::at(SystemTime::UNIX_EPOCH + BEGAN + elapsed));
        let mut builder = Runtime::builder()
            .clock(Arc::new(clock))
            .store(RecordedStore(self.director.clone(), written.clone()))
            .sign_with(key())
            .cache(NodeCache::new(RecordedCache(self.director.clone())))
            .observer(self.director.clone())
            .hooks(Layer::Builtin, self.director.clone());
        for grant in &played.granted {
            builder = builder.grant(grant.as_str()).ok()?;
        }
        let runtime = builder.build().ok()?;
        let (graph, options) = (self.graph.clone(), played.options.clone());
        let run = match played.is_first {
            true => runtime.start_with(options, graph, played.inputs.clone()).await.ok()?,
            false => runtime.resume_with(options, graph, &run_id()).await.ok()?,
        };
        *locked(&directed.canceller) = Some(run.canceller());
        self.director.stop_at_session_end();
        let ended = tokio::time::timeout(Duration::from_secs(1_000_000), run).await;
        Some((written, matches!(ended, Ok(Ok(_)))))
    }
}

/// The parameters for playing a session.
struct Played {
    options: Options,
    granted: Vec<Pattern>,
    inputs: Map<String, Value>,
    is_first: bool,
    /// The number of visits that were committed before.
    before: u64,
}

/// Returns a copy of a log for a session to write to, because another way may be tried afterwards.
async fn copied(log: Option<&Log>) -> (Log, Duration) {
    match log {
        Some(log) => log.first(log.len()).await,
        None => (Log::default(), Duration::ZERO),
    }
}

/// Returns a log cut to the claimed records if it contains them; with an `end`, only if it contains no others.
async fn cut(written: &Log, said: &ByRun, has_end: bool) -> Option<Log> {
    let mut runs: ByRun = BTreeMap::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (run, body) in written.texts() {
        let own = runs.entry(run.clone()).or_default();
        let expected = said.get(&run).map_or(0, Vec::len);
        if own.len() < expected {
            *counts.entry(run).or_default() += 1;
        }
        if !is_calls(&body) {
            own.push(comparable(&body));
        }
    }
    let is_same = said.iter().all(|(run, said)| runs.get(run).is_some_and(|own| own.starts_with(said)));
    let is_whole = !has_end || runs.iter().all(|(run, own)| said.get(run).is_some_and(|said| said.len() == own.len()));
    if !is_same || !is_whole {
        return None;
    }
    // Records that are written together are all there, or none is.
    written.truncated(&counts).await
}

pub(crate) fn is_calls(body: &str) -> bool {
    body.contains(r#","kind":"calls","#)
}

/// The records of runs, in the order of each.
type ByRun = BTreeMap<String, Vec<Value>>;

/// The maximum number of ways in which the records of nested runs are assigned to the sessions of the outermost run.
const MOST_ORDERS: usize = 64;

/// Returns the possible divisions of the records into sessions, with the order in which they were written first. A
/// journal does not say in which session of the outer run a nested run began or continued.
fn sessions(records: &[Said]) -> Vec<Vec<ByRun>> {
    let mut outer: Vec<Vec<Value>> = vec![Vec::new()];
    let mut inside: BTreeMap<String, Vec<(usize, Vec<Value>)>> = BTreeMap::new();
    for (run, record) in records {
        // An edit is a session of its own.
        let goes_on = record["kind"] == "resume" || record["kind"] == "edit";
        if *run == outermost() {
            if goes_on {
                outer.push(Vec::new());
            }
            outer.last_mut().expect("there is one").push(record.clone());
            continue;
        }
        let (own, now) = (inside.entry(run.clone()).or_default(), outer.len() - 1);
        if goes_on || own.is_empty() {
            own.push((now, Vec::new()));
        }
        own.last_mut().expect("there is one").1.push(record.clone());
    }
    let count = outer.len();
    let first = outer.into_iter().map(|own| ByRun::from([(outermost(), own)])).collect::<Vec<_>>();
    let mut all = vec![first];
    for (run, parts) in inside {
        let written: Vec<usize> = parts.iter().map(|(session, _)| *session).collect();
        let mut orders = increasing(parts.len(), count);
        orders.sort_by_key(|order| *order != written);
        let with = |sessions: &Vec<ByRun>, order: &Vec<usize>| {
            let mut sessions = sessions.clone();
            for (session, (_, records)) in order.iter().zip(&parts) {
                sessions[*session].insert(run.clone(), records.clone());
            }
            sessions
        };
        let of = |sessions: &Vec<ByRun>| orders.iter().map(|order| with(sessions, order)).collect::<Vec<_>>();
        all = all.iter().flat_map(of).take(MOST_ORDERS).collect();
    }
    all
}

/// Returns all increasing lists of `length` numbers below `count`.
fn increasing(length: usize, count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        let longer = |list: &Vec<usize>| {
            let from = list.last().map_or(0, |last: &usize| last + 1);
            (from..count).map(|next| list.iter().copied().chain([next]).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Returns the possible origins of a session's claims: a way for each run, and whether it is tomorrow.
fn ways(said: &ByRun, pool: &HashMap<String, Vec<Value>>) -> Vec<(BTreeMap<String, Way>, bool)> {
    let mut all = vec![BTreeMap::new()];
    for (run, records) in said {
        let own = ways_of(records, pool);
        if own.len() == 1 {
            continue;
        }
        let with = |ways: &BTreeMap<String, Way>, way: &Way| {
            let mut ways = ways.clone();
            ways.insert(run.clone(), way.clone());
            ways
        };
        all = all.iter().flat_map(|ways| own.iter().map(move |way| with(ways, way))).take(MOST_WAYS).collect();
    }
    let is_hook = |way: &Way| matches!(way, Way::StartHook | Way::StepHook | Way::LimitHook);
    let tomorrow: Vec<_> = all.iter().filter(|ways| ways.values().any(is_hook)).cloned().collect();
    let today = all.into_iter().map(|ways| (ways, false));
    today.chain(tomorrow.into_iter().map(|ways| (ways, true))).collect()
}

/// Returns the run that the last call of a visit, or of an item of it, began.
fn last_inside(claims: &BTreeMap<String, Claims>, run: &str, step: u64, item: Option<u64>) -> String {
    let place = item.map_or_else(|| format!("{run}-{step}"), |item| format!("{run}-{step}_{item}"));
    match Director::begun(claims, run, step, item) {
        0 | 1 => place,
        again => format!("{place}-again{}", again - 1),
    }
}

/// Returns sets of nested runs that can have been late: those whose call did not receive their result, at the nodes of
/// the outermost run that are `timed` and at all nodes of its nested runs.
///
/// A call can receive a failure in other ways too, so the runs that failed may be late or not.
fn lates(claims: &BTreeMap<String, Claims>, timed: &[String]) -> Vec<BTreeSet<String>> {
    let (mut surely, mut perhaps) = (BTreeSet::new(), BTreeSet::new());
    for (run, own) in claims {
        let Some((outer, step)) = own.parent.as_ref().filter(|_| *run != outermost()) else { continue };
        let Some(outer_claims) = claims.get(outer) else { continue };
        if *outer == outermost() && !timed.contains(&own.node) {
            continue;
        }
        let is_last = *run == last_inside(claims, outer, *step, own.item);
        let failed = match (outer_claims.visits.get(step), &outer_claims.end, own.item) {
            (Some(visit), _, None) => visit["error"].is_string() && visit["result"].is_null(),
            (Some(visit), _, Some(item)) => {
                visit["items"].as_array().into_iter().flatten().any(|failed| failed["item"] == json!(item))
            }
            (None, Some(end), item) => {
                let (named, _) = split_item(end["error"].as_str().unwrap_or_default());
                end["node"].is_string() && end["unfit"] != json!(true) && (item.is_none() || named == item)
            }
            (None, None, _) => false,
        };
        match own.end.as_ref().map(|end| end["status"] == "error") {
            Some(true) if failed && is_last => drop(perhaps.insert(run.clone())),
            Some(false) if failed || !is_last => drop(surely.insert(run.clone())),
            None => drop(surely.insert(run.clone())),
            Some(_) => {}
        }
    }
    let all: BTreeSet<String> = surely.union(&perhaps).cloned().collect();
    let mut sets: Vec<_> = [surely, all].into_iter().filter(|late| !late.is_empty()).collect();
    sets.dedup();
    sets
}

fn ways_of(records: &[Value], pool: &HashMap<String, Vec<Value>>) -> Vec<Way> {
    let mut ways = vec![Way::Tool];
    let end = records.last().filter(|last| last["kind"] == "end" && last["status"] == "error");
    if end.is_some_and(|end| !end["node"].is_null()) {
        ways.extend([Way::ErrorHook, Way::StartHook, Way::StepHook, Way::LimitHook]);
        if end.and_then(|end| without_others(end["error"].as_str()?)).is_some() {
            ways.push(Way::ItemHook);
        }
    }
    let mut visits = records.iter().flat_map(|record| record["visits"].as_array().into_iter().flatten());
    // The engine's own failures are permanent.
    let is_open =
        |visit: &Value| visit["error"].is_string() && visit["result"].is_null() && visit["category"] == "permanent";
    if visits.any(is_open) || end.is_some_and(|end| end["unfit"] == json!(true)) {
        let most = pool.values().map(Vec::len).max().unwrap_or_default().min(MOST_VALUES);
        ways.extend((0..most + ANYTHING.len()).map(Way::Returned));
    }
    ways
}

/// Reads the claims of a session about the world outside the engine, for each run.
fn claims(before: &ByRun, said: &ByRun, mut ways: BTreeMap<String, Way>) -> BTreeMap<String, Claims> {
    let count = |records: &[Value]| records.iter().map(|one| one["visits"].as_array().map_or(0, Vec::len) as u64).sum();
    let mut all: BTreeMap<String, Claims> = BTreeMap::new();
    let mut kinds = Vec::new();
    for (run, records) in said {
        let steps = before.get(run).map_or(0, |before| count(before));
        let mut own = Claims { way: ways.remove(run).unwrap_or_default(), steps, ..Claims::default() };
        let parent = |record: &Value| {
            let parent = &record["parent"];
            Some((parent["run"].as_str()?.to_owned(), parent["step"].as_u64()?))
        };
        let mut known = before.get(run).into_iter().flatten().chain(records);
        own.records = known.clone().count();
        own.item = known.clone().find_map(|record| record["parent"]["item"].as_u64());
        own.node = known.clone().find_map(|record| record["parent"]["node"].as_str()).unwrap_or_default().to_owned();
        own.parent = known.find_map(parent);
        for record in records {
            match record["kind"].as_str() {
                Some("step") => {
                    let visits = record["visits"].as_array().cloned().unwrap_or_default();
                    if let Some(limit) = record["limit"].as_u64() {
                        own.limits.insert(own.steps + 1, limit);
                    }
                    for visit in visits {
                        own.steps += 1;
                        if visit["error"].is_string() {
                            let kind = category(&visit["category"]);
                            let first = visit["items"].as_array().and_then(|items| items.first());
                            let item = first.and_then(|first| first["item"].as_u64());
                            kinds.push((run.clone(), own.steps, item, kind));
                        }
                        own.visits.insert(own.steps, visit);
                    }
                }
                Some("end") => own.end = Some(record.clone()),
                _ => {}
            }
        }
        all.insert(run.clone(), own);
    }
    // The last call failed with this category.
    for (run, step, item, kind) in kinds {
        let last = last_inside(&all, &run, step, item);
        if let Some(inside) = all.get_mut(&last) {
            inside.kind = Some(kind);
        }
    }
    all
}

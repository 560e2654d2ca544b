//! Queries, which do not change the file.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp::from_unix_milliseconds;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::form::{END, PIN};
use crate::holder;
use crate::problem::explain;
use graph_engine::record::{SignedRecord, Status};
use graph_engine::store::{
    Ask, Cursor, Holder, RunFilter, RunSummary, StoreError, Wait, WaitFilter, WaitId, WaitPage, WaitRow, Within,
};

/// The row of a run in the table.
pub(super) struct FoundRun {
    pub(super) number: i64,
    pub(super) run: String,
    graph: String,
    status: String,
    pub(super) token: u64,
    /// The name of the store that holds it; empty if no store does.
    pub(super) holder: String,
    parent: Option<String>,
    owner: Option<String>,
    created: i64,
    updated: i64,
    leased: i64,
    stop: i64,
    stop_at: Option<i64>,
    digest: Option<String>,
    version: Option<String>,
    code: Option<String>,
    due: Option<i64>,
    meaning: Option<String>,
    process: Option<u32>,
    host: Option<String>,
    machine: Option<String>,
    beat: Option<i64>,
    records: u64,
}

pub(super) const COLUMNS: &str =
    "number, id, graph, status, token, holder, parent, created, updated, leased, stop, digest, version, code, due,
    meaning, h.process, h.host, h.machine, h.beat, owner, stop_at, (SELECT coalesce(max(key) & 4294967295, -1) + 1 FROM records
        WHERE key BETWEEN number << 32 AND (number << 32) + 4294967294)
    FROM runs LEFT JOIN holders h ON h.name = runs.holder";

impl FoundRun {
    fn of(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            number: row.get(0)?,
            run: row.get(1)?,
            graph: row.get(2)?,
            status: row.get(3)?,
            token: row.get(4)?,
            holder: row.get(5)?,
            parent: row.get(6)?,
            created: row.get(7)?,
            updated: row.get(8)?,
            leased: row.get(9)?,
            stop: row.get(10)?,
            digest: row.get(11)?,
            version: row.get(12)?,
            code: row.get(13)?,
            due: row.get(14)?,
            meaning: row.get(15)?,
            process: row.get(16)?,
            host: row.get(17)?,
            machine: row.get(18)?,
            beat: row.get(19)?,
            owner: row.get(20)?,
            stop_at: row.get(21)?,
            records: row.get(22)?,
        })
    }

    pub(super) fn status(&self, path: &Path) -> Result<Status, StoreError> {
        serde_json::from_value(self.status.as_str().into()).map_err(|error| corrupt(path, error.to_string()))
    }

    pub(super) fn summary(self, eyes: &mut Eyes<'_>) -> Result<RunSummary, StoreError> {
        let id = |id: String| RunId::new(id).map_err(|error| corrupt(eyes.path, error.to_string()));
        let status = self.status(eyes.path)?;
        let (run, parent) = (id(self.run.clone())?, self.parent.clone().map(id).transpose()?);
        let owner = self.owner.clone().map(id).transpose()?;
        let holder = eyes.holder_of(&run, &self);
        let (created, updated) = (time(self.created), time(self.updated));
        let mut summary = RunSummary::new(run, self.graph, status);
        summary.records = self.records;
        (summary.created, summary.updated) = (created, updated);
        (summary.parent, summary.owner, summary.holder) = (parent, owner, holder);
        summary.is_cancelling = self.stop != 0 || self.stop_at.is_some_and(|at| at <= eyes.now);
        // An invalid digest is ignored here: verifying the journal, which has the digest too, detects it.
        let digest = |text: Option<String>| text.and_then(|digest| digest.parse().ok());
        (summary.digest, summary.meaning) = (digest(self.digest), digest(self.meaning));
        (summary.version, summary.code) = (self.version, self.code);
        summary.next_due = self.due.map(from_unix_milliseconds);
        Ok(summary)
    }
}

/// Returns a time from the file; `None` if an older version wrote the row.
fn time(milliseconds: i64) -> Option<SystemTime> {
    (milliseconds > 0).then(|| from_unix_milliseconds(milliseconds))
}

fn corrupt(path: &Path, reason: String) -> StoreError {
    StoreError::unreadable(path.display(), reason)
}

/// The data that determines whether a holder is alive.
pub(super) struct Eyes<'a> {
    pub(super) path: &'a Path,
    /// The one name of the file, beside which the locks are.
    pub(super) place: &'a Path,
    pub(super) machine: &'a str,
    /// Now, in milliseconds.
    pub(super) now: i64,
    /// The maximum time between two heartbeats of a holder, in milliseconds.
    pub(super) ttl: i64,
    /// This store's own name.
    pub(super) own: &'a str,
    /// Whether this store holds a run.
    pub(super) holds: &'a dyn Fn(&RunId) -> bool,
    /// The states of other stores' locks, as far as they were checked.
    pub(super) locks: HashMap<String, holder::Lock>,
}

impl Eyes<'_> {
    /// Whether another store is alive.
    ///
    /// A lock of this machine shows whether its process is alive. If no lock is visible, the time of its last heartbeat decides.
    pub(super) fn is_alive(&mut self, name: &str, machine: Option<&str>, beat: Option<i64>) -> bool {
        let place = self.place;
        let lock = *self.locks.entry(name.to_owned()).or_insert_with(|| holder::lock_of(place, name));
        match (beat, lock) {
            // The lock of the operating system is more reliable than a clock, which somebody may set.
            (_, holder::Lock::Held) => true,
            // The holder is a program that uses only locks, and its lock is not held.
            (None, _) => false,
            (Some(_), holder::Lock::Free) if machine == Some(self.machine) => false,
            (Some(beat), _) => self.now.saturating_sub(beat) <= self.ttl,
        }
    }

    /// Returns the holder of a run, if it is alive.
    pub(super) fn holder_of(&mut self, run: &RunId, found: &FoundRun) -> Option<Holder> {
        let is_alive = match &found.holder {
            name if name.is_empty() => false,
            name if name == self.own => (self.holds)(run),
            name => self.is_alive(name, found.machine.as_deref(), found.beat),
        };
        is_alive.then(|| {
            let host = found.host.clone().unwrap_or_else(|| "this host".to_owned());
            let mut holder = Holder::new(0, host);
            (holder.process, holder.since) = (found.process, time(found.leased));
            holder
        })
    }
}

pub(super) fn load(
    connection: &Connection,
    run: &RunId,
    from: u64,
    path: &Path,
) -> Result<Vec<SignedRecord>, StoreError> {
    let number: i64 = connection
        .prepare_cached("SELECT number FROM runs WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([run.as_str()], |row| row.get(0)).optional())
        .map_err(|error| explain(error, path))?
        .ok_or_else(|| StoreError::NotFound(run.clone()))?;
    let mut statement = connection
        .prepare_cached("SELECT key, body, signature, token FROM records WHERE key BETWEEN ?1 AND ?2 ORDER BY key")
        .map_err(|error| explain(error, path))?;
    let (first, last) = ((number << 32) | i64::try_from(from).unwrap_or(END).min(END), (number << 32) | END);
    let mut read = || -> Result<Vec<SignedRecord>, rusqlite::Error> {
        let (mut records, mut rows) = (Vec::new(), statement.query([first, last])?);
        while let Some(row) = rows.next()? {
            let seq = u64::try_from(row.get::<_, i64>(0)? & END).unwrap_or_default();
            let token: Option<Vec<u8>> = row.get(3)?;
            let end = token.and_then(|token| token.try_into().ok());
            records.push(SignedRecord { seq, body: row.get(1)?, signature: row.get(2)?, end });
        }
        Ok(records)
    };
    read().map_err(|error| explain(error, path))
}

pub(super) fn find(connection: &Connection, run: &RunId, path: &Path) -> Result<FoundRun, StoreError> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} WHERE id = ?1"))
        .and_then(|mut statement| statement.query_row([run.as_str()], FoundRun::of).optional())
        .map_err(|error| explain(error, path))?
        .ok_or_else(|| StoreError::NotFound(run.clone()))
}

/// Returns up to `size` of the runs that a filter accepts, the newest first, beginning before the number `before`.
pub(super) fn page(
    connection: &Connection,
    filter: &RunFilter,
    before: Option<i64>,
    size: usize,
    path: &Path,
) -> Result<Vec<FoundRun>, StoreError> {
    let (text, values) = query(filter, before, size);
    connection
        .prepare_cached(&text)
        .and_then(|mut statement| statement.query_map(params_from_iter(values), FoundRun::of)?.collect())
        .map_err(|error| explain(error, path))
}

/// Returns the query of a [`page`]: its text and its values. Runs are numbered as they begin, so the list is in the order
/// of the numbers, and a query reads from the cursor on until the page is full.
pub(super) fn query(filter: &RunFilter, before: Option<i64>, size: usize) -> (String, Vec<Value>) {
    let RunFilter { graph, version, digest, meaning, not_pinned, statuses, within, owner } = filter;
    let (mut conditions, mut values) = (vec!["status <> 'removed'".to_owned()], Vec::<Value>::new());
    let mut compare = |column: &str, operator: &str, value: Value| {
        values.push(value);
        conditions.push(format!("{column} {operator} ?{}", values.len()));
    };
    if let Some(before) = before {
        compare("number", "<", Value::Integer(before));
    }
    if let Some(graph) = graph {
        compare("graph", "=", Value::Text(graph.clone()));
    }
    if let Some(version) = version {
        compare("version", "=", Value::Text(version.clone()));
    }
    if let Some(digest) = digest {
        compare("digest", "=", Value::Text(digest.to_hex()));
    }
    if let Some(meaning) = meaning {
        compare("meaning", "=", Value::Text(meaning.to_hex()));
    }
    for pin in not_pinned {
        compare(PIN, "IS NOT", Value::Text(pin.to_hex()));
    }
    if let Some(owner) = owner {
        compare("owner", "=", Value::Text(owner.to_string()));
    }
    match within {
        Within::Any => {}
        Within::TopLevel => conditions.push("parent IS NULL".to_owned()),
        Within::Run(parent) => compare("parent", "=", Value::Text(parent.to_string())),
    }
    // These fixed words are part of the text, because SQLite uses an index over the runs of one status only if the text
    // names that status.
    let words: Vec<String> = statuses.iter().map(|status| format!("'{}'", status.name())).collect();
    match words.as_slice() {
        [] => {}
        [word] => conditions.push(format!("status = {word}")),
        words => conditions.push(format!("status IN ({})", words.join(", "))),
    }
    values.push(Value::Integer(i64::try_from(size).unwrap_or(i64::MAX)));
    let (conditions, limit) = (conditions.join(" AND "), values.len());
    (format!("SELECT {COLUMNS} WHERE {conditions} ORDER BY number DESC LIMIT ?{limit}"), values)
}

/// The place of a wait among those that are open, by age: when it was opened, its run's number, and its id.
#[derive(Debug)]
pub(super) struct WaitPlace {
    opened: i64,
    run: i64,
    id: String,
}

impl WaitPlace {
    pub(super) fn read(cursor: &Cursor) -> Result<Self, StoreError> {
        let mut parts = cursor.as_str().splitn(3, ' ');
        let mut read = || {
            let (opened, run) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Some(Self { opened, run, id: parts.next()?.to_owned() })
        };
        read().ok_or_else(|| StoreError::BadCursor(cursor.as_str().to_owned()))
    }

    fn cursor(&self) -> Cursor {
        Cursor::new(format!("{} {} {}", self.opened, self.run, self.id))
    }
}

/// A wait that is open, and the id and graph of its run.
struct FoundWait {
    place: WaitPlace,
    run: String,
    graph: String,
    node: String,
    due: Option<i64>,
    signals: String,
    ask: Option<Ask>,
    inner: Option<String>,
}

impl FoundWait {
    fn of(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        let payload: Option<String> = row.get(10)?;
        let ask = |payload| Ok::<_, rusqlite::Error>(Ask::new(row.get(8)?, row.get(9)?, payload));
        Ok(Self {
            place: WaitPlace { opened: row.get(0)?, run: row.get(1)?, id: row.get(2)? },
            run: row.get(3)?,
            graph: row.get(4)?,
            node: row.get(5)?,
            due: row.get(6)?,
            signals: row.get(7)?,
            ask: payload.map(ask).transpose()?,
            inner: row.get(11)?,
        })
    }

    fn row(self, path: &Path) -> Result<WaitRow, StoreError> {
        let run = RunId::new(self.run).map_err(|error| corrupt(path, error.to_string()))?;
        let signals = serde_json::from_str(&self.signals).map_err(|error| corrupt(path, error.to_string()))?;
        let mut wait = Wait::new(WaitId::new(self.place.id), self.node, self.place.opened, self.due).listening(signals);
        let graph = self.inner.as_deref().map(serde_json::from_str).transpose();
        (wait.ask, wait.graph) = (self.ask, graph.map_err(|error| corrupt(path, error.to_string()))?);
        Ok(WaitRow::new(run, self.graph, wait))
    }
}

/// Returns up to `size` of the open waits that a filter accepts, the oldest first, beginning after a place.
pub(super) fn open_waits(
    connection: &Connection,
    filter: &WaitFilter,
    after: Option<WaitPlace>,
    size: usize,
    path: &Path,
) -> Result<WaitPage, StoreError> {
    // One more wait shows whether there is another page.
    let (text, values) = waits_query(filter, after, size.saturating_add(1));
    let mut found: Vec<FoundWait> = connection
        .prepare_cached(&text)
        .and_then(|mut statement| statement.query_map(params_from_iter(values), FoundWait::of)?.collect())
        .map_err(|error| explain(error, path))?;
    let is_last = found.len() <= size;
    found.truncate(size);
    let next = found.last().filter(|_| !is_last).map(|last| last.place.cursor());
    let waits = found.into_iter().map(|found| found.row(path)).collect::<Result<_, _>>()?;
    Ok(WaitPage { waits, next })
}

/// Returns the query of [`open_waits`]: its text and its values. SQLite reads the waits in the order of an index, if one has
/// those that the filter accepts, and looks each run up.
pub(super) fn waits_query(filter: &WaitFilter, after: Option<WaitPlace>, size: usize) -> (String, Vec<Value>) {
    let WaitFilter { graph, run, asks, role, due_before, signal } = filter;
    let (mut conditions, mut values) = (vec!["waits.run = runs.number".to_owned()], Vec::<Value>::new());
    if let Some(WaitPlace { opened, run, id }) = after {
        values.extend([Value::Integer(opened), Value::Integer(run), Value::Text(id)]);
        conditions.push("(waits.opened, waits.run, waits.id) > (?1, ?2, ?3)".to_owned());
    }
    let mut compare = |condition: &str, value: Value| {
        values.push(value);
        conditions.push(condition.replace('?', &format!("?{}", values.len())));
    };
    if let Some(graph) = graph {
        compare("runs.graph = ?", Value::Text(graph.clone()));
    }
    if let Some(run) = run {
        compare("waits.run = (SELECT number FROM runs WHERE id = ?)", Value::Text(run.to_string()));
    }
    if let Some(role) = role {
        compare("waits.role = ?", Value::Text(role.clone()));
    }
    if let Some(time) = due_before {
        compare("waits.due < ?", Value::Integer(*time));
    }
    if let Some(signal) = signal {
        let is_named = "heard.value = ? OR substr(heard.value, -length(?) - 1) = '/' || ?";
        compare(
            &format!("EXISTS (SELECT 1 FROM json_each(waits.signals) heard WHERE {is_named})"),
            Value::Text(signal.clone()),
        );
    }
    if *asks {
        conditions.push("waits.payload IS NOT NULL".to_owned());
    }
    values.push(Value::Integer(i64::try_from(size).unwrap_or(i64::MAX)));
    let (conditions, limit) = (conditions.join(" AND "), values.len());
    let text = format!(
        "SELECT waits.opened, waits.run, waits.id, runs.id, runs.graph, waits.node, waits.due, waits.signals, waits.role,
            waits.count, waits.payload, waits.graph
        FROM waits CROSS JOIN runs WHERE {conditions} ORDER BY waits.opened, waits.run, waits.id LIMIT ?{limit}"
    );
    (text, values)
}

/// Returns the earliest time at which the store with the name `own` may claim a run of one of these graphs.
pub(super) fn next_wake(
    connection: &Connection,
    graphs: &[(String, Digest)],
    own: &str,
) -> Result<Option<i64>, rusqlite::Error> {
    let most = Suspects::of(connection, own)?.most();
    let mut earliest = None;
    for (graph, pin) in graphs {
        let found: Option<i64> = connection
            .prepare_cached(&format!(
                "SELECT min(wake) FROM runs
                 WHERE {PIN} = ?1 AND graph = ?2 AND wake IS NOT NULL AND holder = '' AND tries <= ?3"
            ))?
            .query_row(params![pin.to_hex(), graph, most], |row| row.get(0))?;
        earliest = earliest.into_iter().chain(found).min();
    }
    Ok(earliest)
}

/// The runs that a store holds at whose places processes died before, and each of which may end this one too.
///
/// They are kept apart, so that a run that kills its processes does not take the others with it until all of them are given up.
/// Behind two deaths, a store continues a few of them at a time; behind more, such a run without the others.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    few: usize,
    is_alone: bool,
}

impl Suspects {
    /// How many runs are continued at a time at whose places two processes died.
    const FEW: usize = 8;

    /// Returns those of the store with a name. The deaths of a run that has continued since do not count.
    pub(super) fn of(connection: &Connection, holder: &str) -> Result<Self, rusqlite::Error> {
        let mut suspects = Self::default();
        if holder.is_empty() {
            return Ok(suspects);
        }
        let mut statement = connection.prepare_cached(
            "SELECT number, tries, tried FROM runs WHERE holder = ?1 AND holder <> '' AND tries >= 2",
        )?;
        let mut rows = statement.query([holder])?;
        while let Some(row) = rows.next()? {
            let (number, deaths, tried) = (row.get(0)?, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?);
            if place(connection, number)? == tried {
                suspects.count(deaths);
            }
        }
        Ok(suspects)
    }

    fn count(&mut self, deaths: u32) {
        match deaths {
            0 | 1 => {}
            2 => self.few += 1,
            _ => self.is_alone = true,
        }
    }

    /// Returns how many processes may have died at the place of a further run.
    pub(super) fn most(&self) -> u32 {
        match self.few {
            0 if !self.is_alone => u32::MAX,
            few if few < Self::FEW && !self.is_alone => 2,
            _ => 1,
        }
    }

    /// Adds a further run, if it may be continued beside these.
    pub(super) fn add(&mut self, deaths: u32) -> bool {
        let may_be_added = deaths <= self.most();
        if may_be_added {
            self.count(deaths);
        }
        may_be_added
    }
}

/// Returns the place where a run is: the number of its records, and of those of the runs inside it, without the records at the
/// ends of journals that only say that a run is resumed. It changes with everything else that a run does.
pub(super) fn place(connection: &Connection, number: i64) -> Result<i64, rusqlite::Error> {
    // The first member `kind` of a record is its own: no member before it has quotes within.
    let place = "WITH RECURSIVE tree (at, name) AS (
            SELECT number, id FROM runs WHERE number = ?1
            UNION SELECT number, id FROM runs JOIN tree ON parent = name
        ) SELECT coalesce(sum(1 + (SELECT key & 4294967295 FROM records
            WHERE key BETWEEN at << 32 AND (at << 32) + 4294967294
                AND substr(body, instr(body, '\"kind\":\"') + 8, 7) <> 'resume\"'
            ORDER BY key DESC LIMIT 1)), 0) FROM tree";
    connection.prepare_cached(place)?.query_row([number], |row| row.get(0))
}

/// Returns the names of the stores that hold runs, each with the machine that it is on and its last heartbeat.
pub(super) fn holders(connection: &Connection, path: &Path) -> Result<Vec<HolderRow>, StoreError> {
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    connection
        .prepare_cached(
            "SELECT DISTINCT holder, h.machine, h.beat FROM runs LEFT JOIN holders h ON h.name = runs.holder
             WHERE holder <> ''",
        )
        .and_then(|mut statement| statement.query_map([], row)?.collect())
        .map_err(|error| explain(error, path))
}

/// The name of a store that holds runs, its machine, and its last heartbeat.
pub(super) type HolderRow = (String, Option<String>, Option<i64>);

/// Returns a run and all runs inside it, the run first.
pub(super) fn tree(connection: &Connection, run: &RunId) -> Result<Vec<FoundRun>, rusqlite::Error> {
    // If runs are wrongly inside each other, the query must still end: `UNION` drops rows that were found before.
    let numbers = "WITH RECURSIVE tree (at, name) AS (
            SELECT number, id FROM runs WHERE id = ?1
            UNION SELECT number, id FROM runs JOIN tree ON parent = name
        ) SELECT at FROM tree";
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} WHERE number IN ({numbers}) ORDER BY id <> ?1, number"))
        .and_then(|mut statement| statement.query_map(params![run.as_str()], FoundRun::of)?.collect())
}

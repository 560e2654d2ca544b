//! The registry: a table of threads in SQLite, which include runs, for programs that ask for their status.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_model::name::RunId;
use graph_model::timestamp;
use graph_model::value::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};
use serde_json::json;

use crate::disk::Disk;
use crate::facts::RunProjection;
use crate::{FilesError, locked};
use graph_engine::ActionError;
use graph_engine::threads::{Thread, ThreadFuture, Threads};

/// The path of the registry, for every program that reads it (R239).
pub(crate) const FILE: &str = ".ai/state/threads/registry.db";
/// The maximum time for which another program may keep the file locked.
const PATIENCE: Duration = Duration::from_secs(5);

/// The columns of the first version, and those that were added since (R240).
const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS threads (
        thread_id TEXT PRIMARY KEY,
        directive TEXT NOT NULL,
        parent_id TEXT,
        status TEXT DEFAULT 'created',
        created_at TEXT,
        updated_at TEXT,
        completed_at TEXT,
        result TEXT
    );
    CREATE INDEX IF NOT EXISTS idx_threads_parent_id ON threads (parent_id);
    CREATE INDEX IF NOT EXISTS idx_threads_status ON threads (status);
";
const ADDED: [(&str, &str); 10] = [
    ("turns", "INTEGER DEFAULT 0"),
    ("input_tokens", "INTEGER DEFAULT 0"),
    ("output_tokens", "INTEGER DEFAULT 0"),
    ("spend", "REAL DEFAULT 0.0"),
    ("spawn_count", "INTEGER DEFAULT 0"),
    ("pid", "INTEGER"),
    ("model", "TEXT"),
    ("continuation_of", "TEXT"),
    ("continuation_thread_id", "TEXT"),
    ("chain_root_id", "TEXT"),
];

/// The registry of a project's threads (R239). Clones share the connection.
///
/// [`ProjectFiles::registry`](crate::ProjectFiles::registry) has an example.
#[derive(Debug, Clone)]
pub struct Registry {
    shared: Arc<OpenRegistry>,
}

#[derive(Debug)]
struct OpenRegistry {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// A thread as recorded in the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct RegistryEntry {
    /// The thread's id; for a run, the run's id.
    pub thread: String,
    /// The thread's directive; for a run, its graph's id.
    pub directive: String,
    /// The thread that it belongs to.
    pub parent: Option<String>,
    /// The status: `created`, `running`, `completed`, `completed_with_errors`, `error`, `cancelled`, `continued` …
    pub status: String,
    /// When it began: ISO 8601 with microseconds.
    pub created_at: Option<String>,
    /// When its status last changed.
    pub updated_at: Option<String>,
    /// When it last ended (R243).
    pub completed_at: Option<String>,
    /// The thread's result.
    pub result: Option<Value>,
    /// The process that it last ran in.
    pub pid: Option<u32>,
    /// How many threads it began.
    pub spawned: u64,
    /// How often it asked its model, if it is an agent.
    pub turns: u64,
    /// How much that cost, in US dollars.
    pub spend: f64,
    /// The thread that it continues.
    pub continuation_of: Option<String>,
    /// The thread that continues it.
    pub continuation: Option<String>,
    /// The first thread of its chain.
    pub chain_root: Option<String>,
}

const COLUMNS: &str = "thread_id, directive, parent_id, status, created_at, updated_at, completed_at, result, pid, \
                       spawn_count, continuation_of, continuation_thread_id, chain_root_id, turns, spend";

impl Registry {
    pub(crate) fn open(disk: &Disk) -> Result<Self, FilesError> {
        disk.is_inside(FILE)?;
        let path = disk.path(FILE);
        let failed = |source| FilesError::Registry { path: path.clone(), source };
        // A link in the place of the file could lead out of the project.
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let real = path.parent().and_then(|parent| parent.canonicalize().ok()).unwrap_or_default().join("registry.db");
        let mut connection = Connection::open_with_flags(real, flags).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        prepare(&mut connection).map_err(failed)?;
        Ok(Self { shared: Arc::new(OpenRegistry { path, connection: Mutex::new(connection) }) })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, FilesError> {
        work(&mut locked(&self.shared.connection))
            .map_err(|source| FilesError::Registry { path: self.shared.path.clone(), source })
    }

    /// Records the status of a run; `pid` is the process that it runs in, if known.
    pub(crate) fn note(&self, facts: &RunProjection, pid: Option<u32>) -> Result<(), FilesError> {
        let parent = facts.parent.as_ref().map(RunId::as_str);
        let result = facts.result().map(|result| result.to_string());
        self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(
                "INSERT INTO threads (thread_id, directive, parent_id, status, created_at, updated_at, completed_at, result, pid)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (thread_id) DO UPDATE SET directive = ?2, parent_id = ?3, status = ?4, created_at = ?5,
                     updated_at = ?6, completed_at = ?7, result = ?8, pid = coalesce(?9, pid)",
                params![
                    facts.run.as_str(),
                    facts.topology.id.as_str(),
                    parent,
                    facts.status.name(),
                    microseconds(&facts.started_at),
                    microseconds(&facts.turned_at),
                    facts.completed_at.as_deref().map(microseconds),
                    result,
                    pid,
                ],
            )?;
            if let Some(AgentCost { turns, dollars }) = facts.agent_cost() {
                let change = "UPDATE threads SET turns = ?2, spend = ?3 WHERE thread_id = ?1";
                transaction.execute(change, params![facts.run.as_str(), turns, dollars])?;
            }
            if let Some(before) = facts.continues.as_ref().map(RunId::as_str) {
                let change = "UPDATE threads SET continuation_of = ?2 WHERE thread_id = ?1";
                transaction.execute(change, params![facts.run.as_str(), before])?;
                // A thread that has ended keeps its status, so it is not `continued`.
                link(&transaction, before)?;
            }
            link(&transaction, facts.run.as_str())?;
            if let Some(parent) = parent {
                transaction.execute(
                    "UPDATE threads SET spawn_count = (SELECT count(*) FROM threads WHERE parent_id = ?1)
                     WHERE thread_id = ?1",
                    [parent],
                )?;
            }
            transaction.commit()
        })
    }

    /// Returns a thread.
    ///
    /// # Errors
    ///
    /// If the registry cannot be read.
    pub fn get(&self, thread: &str) -> Result<Option<RegistryEntry>, FilesError> {
        self.with(|connection| get(connection, thread))
    }

    /// Returns the threads that have not ended, the newest first (R246).
    ///
    /// # Errors
    ///
    /// If the registry cannot be read.
    pub fn active(&self) -> Result<Vec<RegistryEntry>, FilesError> {
        let what = "WHERE status NOT IN ('completed', 'completed_with_errors', 'error', 'cancelled', 'released')
                    ORDER BY created_at DESC, thread_id DESC";
        self.with(|connection| list(connection, what, None))
    }

    /// Returns the threads that a thread began, in the order in which they began (R246).
    ///
    /// # Errors
    ///
    /// If the registry cannot be read.
    pub fn children(&self, parent: &str) -> Result<Vec<RegistryEntry>, FilesError> {
        self.with(|connection| list(connection, "WHERE parent_id = ?1 ORDER BY created_at, thread_id", Some(parent)))
    }

    /// Returns all threads of the chain that a thread belongs to, from the first on (R247). A cyclic chain is followed
    /// once.
    ///
    /// # Errors
    ///
    /// If the registry cannot be read.
    pub fn chain(&self, thread: &str) -> Result<Vec<RegistryEntry>, FilesError> {
        self.with(|connection| {
            let Some(mut first) = get(connection, thread)? else { return Ok(Vec::new()) };
            let mut seen = vec![first.thread.clone()];
            while let Some(before) =
                first.continuation_of.as_deref().filter(|before| !seen.iter().any(|one| one == before))
            {
                let Some(before) = get(connection, before)? else { break };
                seen.push(before.thread.clone());
                first = before;
            }
            let mut chain = vec![first];
            while let Some(next) = chain.last().and_then(|last| last.continuation.clone()) {
                if chain.iter().any(|one| one.thread == next) {
                    break;
                }
                let Some(next) = get(connection, &next)? else { break };
                chain.push(next);
            }
            Ok(chain)
        })
    }

    /// Records that a thread continues in another: the thread points to the other, and its status is `continued` (R247).
    ///
    /// # Errors
    ///
    /// If the registry cannot be written.
    pub fn set_continuation(&self, thread: &str, next: &str, at: SystemTime) -> Result<(), FilesError> {
        let at = microseconds(&timestamp::milliseconds(at));
        let change =
            "UPDATE threads SET continuation_thread_id = ?2, status = 'continued', updated_at = ?3, completed_at = ?3
                      WHERE thread_id = ?1";
        self.with(|connection| connection.execute(change, [thread, next, &at]).map(drop))
    }

    /// Records the thread that another one continues, and the first thread of their chain (R247).
    ///
    /// # Errors
    ///
    /// If the registry cannot be written.
    pub fn set_chain_info(&self, thread: &str, root: &str, before: &str) -> Result<(), FilesError> {
        let change = "UPDATE threads SET chain_root_id = ?2, continuation_of = ?3 WHERE thread_id = ?1";
        self.with(|connection| connection.execute(change, [thread, root, before]).map(drop))
    }

    /// Ends the runs that are recorded as running in processes that no longer exist, so that a crash does not leave them
    /// running for ever (R249). They can still be resumed, and the registry then shows that. Returns their ids.
    ///
    /// # Errors
    ///
    /// If the registry cannot be read or written.
    #[cfg(unix)]
    pub fn settle(&self) -> Result<Vec<String>, FilesError> {
        let gone = |entry: &RegistryEntry| {
            let pid = entry.pid.and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
            pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
        };
        self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let running = list(&transaction, "WHERE status IN ('created', 'running')", None)?;
            let gone: Vec<String> = running.into_iter().filter(gone).map(|entry| entry.thread).collect();
            for thread in &gone {
                transaction.execute("UPDATE threads SET status = 'error' WHERE thread_id = ?1", [thread])?;
            }
            transaction.commit()?;
            Ok(gone)
        })
    }
}

impl Threads for Registry {
    /// Returns the current entry of a thread. To wait for a thread, a caller asks again until the thread has ended, with
    /// any status (R248).
    fn thread<'a>(&'a self, id: &'a str) -> ThreadFuture<'a> {
        Box::pin(async move {
            let entry = self.get(id).map_err(|error| ActionError::transient(error.to_string()))?;
            Ok(entry.map(|entry| Thread {
                status: entry.status,
                continuation: entry.continuation,
                result: entry.result,
            }))
        })
    }
}

/// Sets the thread that continues a thread, and the first thread of all that continue it, in whatever order their rows were written.
fn link(connection: &Connection, thread: &str) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE threads SET continuation_thread_id = coalesce(
             (SELECT thread_id FROM threads WHERE continuation_of = ?1 ORDER BY created_at DESC, thread_id DESC LIMIT 1),
             continuation_thread_id)
         WHERE thread_id = ?1",
        [thread],
    )?;
    connection.execute(
        "WITH RECURSIVE
             before(id) AS (SELECT ?1 UNION SELECT continuation_of FROM threads JOIN before ON thread_id = id WHERE continuation_of IS NOT NULL),
             after(id) AS (SELECT ?1 UNION SELECT thread_id FROM threads JOIN after ON continuation_of = id),
             first(id) AS (SELECT id FROM before WHERE NOT EXISTS
                 (SELECT 1 FROM threads WHERE thread_id = id AND continuation_of IS NOT NULL))
         UPDATE threads SET chain_root_id = (SELECT id FROM first)
         WHERE thread_id IN after AND continuation_of IS NOT NULL AND EXISTS (SELECT 1 FROM first)",
        [thread],
    )?;
    Ok(())
}

/// The turns of an agent and their cost.
struct AgentCost {
    turns: u64,
    dollars: f64,
}

impl RunProjection {
    /// Returns what the turns of the run took, if its graph is that of an agent.
    fn agent_cost(&self) -> Option<AgentCost> {
        let state = self.is_agent.then(|| self.state())?;
        let (turns, micros) = (state.get("turns")?.as_u64()?, state.get("micros")?.as_u64()?);
        Some(AgentCost { turns, dollars: micros as f64 / 1e6 })
    }

    /// Returns the result of a run, if it has one (R245, R313).
    fn result(&self) -> Option<Value> {
        let end = self.end.as_ref()?;
        if !end.status.has_result() {
            return None;
        }
        let mut result = json!({
            "success": true,
            "status": end.status.name(),
            "graph_run_id": self.run.as_str(),
            "steps": end.steps,
            "output": end.output,
            "state": self.state(),
        });
        if !self.suppressed.is_empty() {
            result["errors_suppressed"] = Value::from(self.suppressed.len());
            result["errors"] = Value::from(self.suppressed.clone());
        }
        Some(result)
    }
}

fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLE)?;
    for (name, kind) in ADDED {
        let is_there: bool = transaction.query_row(
            "SELECT count(*) > 0 FROM pragma_table_info('threads') WHERE name = ?1",
            [name],
            |row| row.get(0),
        )?;
        if !is_there {
            transaction.execute_batch(&format!("ALTER TABLE threads ADD COLUMN {name} {kind}"))?;
        }
    }
    transaction.commit()
}

fn get(connection: &Connection, thread: &str) -> rusqlite::Result<Option<RegistryEntry>> {
    let query = format!("SELECT {COLUMNS} FROM threads WHERE thread_id = ?1");
    connection.query_row(&query, [thread], entry).optional()
}

fn list(connection: &Connection, which: &str, about: Option<&str>) -> rusqlite::Result<Vec<RegistryEntry>> {
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM threads {which}"))?;
    let rows = statement.query_map(rusqlite::params_from_iter(about), entry)?;
    rows.collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<RegistryEntry> {
    let result: Option<String> = row.get(7)?;
    Ok(RegistryEntry {
        thread: row.get(0)?,
        directive: row.get(1)?,
        parent: row.get(2)?,
        status: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
        created_at: row.get(4)?,
        updated_at: row.get(5)?,
        completed_at: row.get(6)?,
        result: result.map(|text| serde_json::from_str(&text).unwrap_or(Value::from(text))),
        pid: row.get(8)?,
        spawned: row.get::<_, Option<u64>>(9)?.unwrap_or_default(),
        continuation_of: row.get(10)?,
        continuation: row.get(11)?,
        chain_root: row.get(12)?,
        turns: row.get::<_, Option<u64>>(13)?.unwrap_or_default(),
        spend: row.get::<_, Option<f64>>(14)?.unwrap_or_default(),
    })
}

/// Writes a record's time in the format of the registry (R244).
fn microseconds(at: &str) -> String {
    match at.strip_suffix('Z') {
        Some(at) if at.contains('.') => format!("{at}000+00:00"),
        Some(at) => format!("{at}.000000+00:00"),
        None => at.to_owned(),
    }
}

//! The tables: opens a file, creates the tables in a new one, and migrates an older one to the newest format version.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};

use crate::patience::Patience;
use crate::problem::{explain, read_only};
use graph_engine::store::StoreError;

/// Marks the file as ours: "grph".
pub(super) const APPLICATION: i64 = 0x6772_7068;
/// The newest format version of the tables.
pub(super) const FORM: i64 = MIGRATIONS.len() as i64;
/// The format version that added the parent of a run and the holders of runs.
const FACTS: i64 = 3;
/// The format version that added the digest and version of a run's graph and the code of its failure.
const LISTING: i64 = 4;
/// The format version that added the waits of runs.
const WAITS: i64 = 5;
/// The format version that added what waits ask people.
const ASKS: i64 = 6;
/// The format version that added the marks of schedules.
const SCHEDULES: i64 = 8;
/// The format version that added the meanings of graphs.
const MEANINGS: i64 = 9;
/// The format version that added the owners of tasks.
const TASKS: i64 = 10;
/// The pin of a run, as SQLite finds it in the index of the runs that can continue.
pub(super) const PIN: &str = "coalesce(meaning, digest)";
/// The highest value of the lower half of a key; a record's number is smaller. In format version 2, it was the key of a row
/// after the records, which held the token.
pub(super) const END: i64 = 0xffff_ffff;

/// How much of the file the connection that writes may keep in memory, in KiB and negative as SQLite requires. It is enough
/// for the last page of each of a few thousand running runs. A page that is not in memory is read again with every step.
const CACHE: i64 = -16_384;
/// The maximum number of pages of the log before it is written into the file, as long as runs write one at a time. A
/// growing log costs more than twice as much for each step as one that is overwritten, so it is kept short.
const SHORT_LOG: i64 = 1_000;
/// The same if many runs write at once. A step of each of 250 runs needs as many pages: with a short log, every fourth
/// transaction would wait for the file.
const LONG_LOG: i64 = 4_000;

/// Lets the log grow, because many runs write at once.
pub(super) fn lengthen_log(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.pragma_update(None, "wal_autocheckpoint", LONG_LOG)
}

pub(super) type Migration = fn(&Transaction<'_>) -> Result<(), rusqlite::Error>;

/// The migrations from each format version to the next, beginning with a new file, whose version is 0. All missing
/// migrations and the new version number are committed in one transaction, so a process that dies in between leaves the old
/// version.
pub(super) const MIGRATIONS: [Migration; 11] =
    [tables, ends, facts, listing, waits, asks, inner_waits, schedules, meanings, tasks, removed];

/// A record's key is made of its run's number and its own, so that a run's records are adjacent in one tree without an
/// index. A step writes only there, at the end of the run's records. Each further page would be four kilobytes more to wait
/// for.
fn tables(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(
        "CREATE TABLE runs (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            graph TEXT NOT NULL,
            status TEXT NOT NULL,
            token INTEGER NOT NULL,
            holder TEXT NOT NULL
        ) STRICT;
        CREATE TABLE records (
            key INTEGER PRIMARY KEY,
            body TEXT NOT NULL,
            signature BLOB NOT NULL,
            run INTEGER GENERATED ALWAYS AS (key >> 32) VIRTUAL,
            seq INTEGER GENERATED ALWAYS AS (key & 4294967295) VIRTUAL
        ) STRICT;",
    )?;
    transaction.pragma_update(None, "application_id", APPLICATION)
}

/// Format version 2 has the row after a run's records. Journals in version 1 are of a journal version that is not read any
/// more, and name that version themselves.
fn ends(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    // Early files of version 1 counted the records in the table of runs.
    let counts = "SELECT count(*) FROM pragma_table_info('runs') WHERE name = 'records'";
    if transaction.query_row(counts, [], |row| row.get::<_, i64>(0))? > 0 {
        transaction.execute_batch("ALTER TABLE runs DROP COLUMN records")?;
    }
    transaction.execute_batch(
        "INSERT OR IGNORE INTO records (key, body, signature)
            SELECT number << 32 | 4294967295,
                   (SELECT count(*) FROM records WHERE key BETWEEN number << 32 AND (number << 32) + 4294967294), x''
            FROM runs;",
    )
}

/// Format version 3 adds the parent of a run, the times when it began and changed, its holder with the last heartbeat, and
/// requests to stop a run. The token of the last record is now in the record's own row. With a row after the records, no
/// record is the last entry of the tree, and SQLite splits pages in the middle after every few records.
fn facts(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(
        "ALTER TABLE runs ADD COLUMN parent TEXT;
        ALTER TABLE runs ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN leased INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN stop INTEGER NOT NULL DEFAULT 0;
        CREATE INDEX runs_inside ON runs (parent) WHERE parent IS NOT NULL;
        CREATE INDEX runs_to_stop ON runs (holder) WHERE stop <> 0;
        CREATE TABLE holders (
            name TEXT PRIMARY KEY,
            process INTEGER NOT NULL,
            host TEXT NOT NULL,
            machine TEXT NOT NULL,
            beat INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE marks (
            name TEXT PRIMARY KEY,
            value INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;",
    )?;
    transaction.execute_batch(
        "ALTER TABLE records ADD COLUMN token BLOB;
        UPDATE records SET token =
            coalesce((SELECT signature FROM records behind WHERE behind.key = records.key | 4294967295), x'')
            WHERE key IN (SELECT max(key) FROM records WHERE key & 4294967295 <> 4294967295 GROUP BY key >> 32);
        DELETE FROM records WHERE key & 4294967295 = 4294967295;",
    )?;
    // The new columns are filled from the journals. A journal that cannot be read is left to the program that verifies it.
    transaction.execute_batch(
        "UPDATE runs SET
            parent = (SELECT CASE WHEN json_valid(body) THEN json_extract(body, '$.parent.run') END
                FROM records WHERE key = number << 32),
            created = coalesce((SELECT CASE WHEN json_valid(body)
                THEN CAST(round(unixepoch(json_extract(body, '$.at'), 'subsec') * 1000) AS INTEGER) END
                FROM records WHERE key = number << 32), 0),
            updated = coalesce((SELECT CASE WHEN json_valid(body)
                THEN CAST(round(unixepoch(json_extract(body, '$.at'), 'subsec') * 1000) AS INTEGER) END
                FROM records WHERE key BETWEEN number << 32 AND (number << 32) + 4294967294
                ORDER BY key DESC LIMIT 1), 0),
            holder = CASE status WHEN 'running' THEN holder ELSE '' END;",
    )
}

/// Format version 4 adds the version and digest of a run's graph and the code of the failure that it ended with, and
/// indexes for the runs of a graph and for those that have not ended. A request to stop a run now stays in effect when the
/// run is leased again: `stop` is not the token of a holder any more.
fn listing(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(
        "ALTER TABLE runs ADD COLUMN digest TEXT;
        ALTER TABLE runs ADD COLUMN version TEXT;
        ALTER TABLE runs ADD COLUMN code TEXT;
        CREATE INDEX runs_of_graph ON runs (graph, number);
        CREATE INDEX runs_unfinished ON runs (number) WHERE status = 'running';
        UPDATE runs SET
            stop = CASE WHEN status = 'running' AND stop = token THEN 1 ELSE 0 END,
            digest = (SELECT CASE WHEN json_valid(body) THEN json_extract(body, '$.digest') END
                FROM records WHERE key = number << 32),
            version = (SELECT CASE WHEN json_valid(body) THEN json_extract(body, '$.version') END
                FROM records WHERE key = number << 32);",
    )
}

/// Format version 5 adds the waits of runs, and what workers look at: `wake` is the time of the store at which a worker may
/// claim a run that nobody holds, 0 for at once. It depends on the status, the waits and the other columns, and changes in the
/// same transaction. `tries` and `postponed` count since the run has `tried` records.
///
/// It also adds the signals of runs. The upper half of a signal's key is its run's number, the lower half its order, as in a
/// record's key. The index of the signals that no wait has taken answers whether one of them ends a wait, and how much they
/// are, without their rows.
fn waits(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(
        "ALTER TABLE runs ADD COLUMN due INTEGER;
        ALTER TABLE runs ADD COLUMN wake INTEGER;
        ALTER TABLE runs ADD COLUMN later INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN tried INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE runs ADD COLUMN postponed INTEGER NOT NULL DEFAULT 0;
        UPDATE runs SET wake = 0 WHERE status = 'running' AND parent IS NULL;
        CREATE INDEX runs_waiting ON runs (number) WHERE status = 'waiting';
        CREATE INDEX runs_wake ON runs (digest, graph, wake) WHERE wake IS NOT NULL AND holder = '';
        CREATE INDEX runs_held ON runs (holder) WHERE holder <> '';
        CREATE TABLE waits (
            run INTEGER NOT NULL,
            id TEXT NOT NULL,
            node TEXT NOT NULL,
            opened INTEGER NOT NULL,
            due INTEGER,
            signals TEXT NOT NULL,
            PRIMARY KEY (run, id)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE signals (
            key INTEGER PRIMARY KEY,
            run INTEGER NOT NULL,
            at INTEGER NOT NULL,
            id TEXT NOT NULL,
            name TEXT NOT NULL,
            payload TEXT NOT NULL,
            receipt TEXT NOT NULL,
            digest BLOB NOT NULL,
            size INTEGER NOT NULL,
            taken INTEGER NOT NULL DEFAULT 0
        ) STRICT;
        CREATE UNIQUE INDEX signals_by_id ON signals (run, id);
        CREATE INDEX signals_untaken ON signals (run, name, at, size, taken) WHERE taken = 0;",
    )
}

/// Format version 6 adds what waits ask people, and indexes of the waits that ask, the oldest first. A wait that asks nobody
/// costs no entry there. `payload` is null only if the wait asks nobody.
fn asks(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(
        "ALTER TABLE waits ADD COLUMN role TEXT;
        ALTER TABLE waits ADD COLUMN count INTEGER;
        ALTER TABLE waits ADD COLUMN payload TEXT;
        CREATE INDEX waits_asking ON waits (opened, run, id) WHERE payload IS NOT NULL;
        CREATE INDEX waits_of_role ON waits (role, opened, run, id) WHERE role IS NOT NULL;",
    )
}

/// Format version 7 adds the graphs of nested runs that wait.
fn inner_waits(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch("ALTER TABLE waits ADD COLUMN graph TEXT;")
}

/// Format version 8 adds the marks of schedules. They are in a table of their own, so that nothing that happens to runs changes
/// them.
fn schedules(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(
        "CREATE TABLE schedules (
            id TEXT PRIMARY KEY,
            revision INTEGER NOT NULL,
            mark TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;",
    )
}

/// Format version 9 adds the digest of the meaning of a run's graph. Workers ask for runs by it, or by the digest of the graph's
/// text if the run began before journals had the meaning.
fn meanings(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(&format!(
        "ALTER TABLE runs ADD COLUMN meaning TEXT;
        DROP INDEX runs_wake;
        CREATE INDEX runs_wake ON runs ({PIN}, graph, wake) WHERE wake IS NOT NULL AND holder = '';"
    ))
}

/// Format version 10 adds the owners of tasks, and times at which runs are to be cancelled. A `stop` of 2 kills a run.
fn tasks(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(
        "ALTER TABLE runs ADD COLUMN owner TEXT;
        ALTER TABLE runs ADD COLUMN stop_at INTEGER;
        CREATE INDEX runs_owned ON runs (owner, number) WHERE owner IS NOT NULL;
        CREATE INDEX runs_to_stop_later ON runs (holder, stop_at) WHERE stop_at IS NOT NULL;",
    )
}

/// Format version 11 adds an index of the runs that were removed and are being deleted. Without it, each part that is deleted
/// costs a look at all runs.
fn removed(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute_batch("CREATE INDEX runs_removed ON runs (number) WHERE status = 'removed';")
}

/// Installs a trigger in the connection that writes, which ensures that only a run's last record has a token. An inserted
/// record removes the token of the one before. A record that does not follow the last one is not inserted, without an
/// error. So a step is written in one statement: each further statement would add a good part of the cost without the disk.
pub(super) fn forget_ends(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch(
        "PRAGMA temp_store = MEMORY;
        CREATE TEMP TRIGGER forget_ends BEFORE INSERT ON main.records WHEN NEW.key & 4294967295 > 0 BEGIN
            UPDATE records SET token = NULL WHERE key = NEW.key - 1 AND token IS NOT NULL;
            SELECT RAISE(IGNORE) WHERE changes() = 0;
        END",
    )
}

/// Creates a file that only its owner may read and write, unless it exists: it has the inputs and results of all runs. The
/// files that SQLite creates beside it have the same mode. The mode of an existing file is its owner's choice.
pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            Err(read_only(path).with_source(error))
        }
        Err(error) => Err(StoreError::open(path.display(), error.to_string()).with_source(error)),
    }
}

/// Opens a file for writing.
pub(super) fn connect(path: &Path, patience: Duration) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| explain(error, path))?;
    connection.busy_timeout(patience).map_err(|error| explain(error, path))?;
    Ok(connection)
}

/// Opens a file for reading only.
pub(super) fn connect_to_read(path: &Path, patience: Duration) -> Result<Connection, StoreError> {
    let explain = |error: rusqlite::Error| explain(error, path);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    connection.busy_timeout(patience).map_err(explain)?;
    let form = match form_of(&connection) {
        // A store has such a file only until it has its tables.
        Err(error) if needs_to_write(&error) && !is_empty_beside(path, "-journal") => return Err(unfinished(path)),
        Err(error) if needs_to_write(&error) && is_empty_beside(path, "-wal") => return connect_unchanging(path),
        form => form.map_err(explain)?,
    };
    fit_to_read(&connection, form, path)?;
    Ok(connection)
}

/// Whether reading failed because SQLite cannot create a file beside the database, as it does with a write-ahead log.
fn needs_to_write(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// Whether SQLite has nothing in the file beside the database whose name ends so.
fn is_empty_beside(path: &Path, end: &str) -> bool {
    let mut beside = path.as_os_str().to_owned();
    beside.push(end);
    std::fs::metadata(beside).map_or(true, |file| file.len() == 0)
}

/// Opens a file in a place where nothing can be written, so that the file cannot change in the meantime.
pub(super) fn connect_unchanging(path: &Path) -> Result<Connection, StoreError> {
    let explain = |error: rusqlite::Error| explain(error, path);
    let mut uri = "file:".to_owned();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for byte in absolute.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags).map_err(explain)?;
    let form = form_of(&connection).map_err(explain)?;
    fit_to_read(&connection, form, path)?;
    Ok(connection)
}

/// Refuses a file that is not a store or has a newer format version. Makes a file with an older version readable as if it
/// had the newest one.
fn fit_to_read(connection: &Connection, form: FileForm, path: &Path) -> Result<(), StoreError> {
    known(form, path)?;
    if form.tables == 0 {
        return Err(unfinished(path));
    }
    if form.application != APPLICATION {
        return Err(foreign(path));
    }
    own_only(connection, path)?;
    // A name without a schema refers to the temporary schema first.
    if form.number < SCHEDULES {
        connection
            .execute_batch("CREATE TEMP TABLE schedules (id TEXT, revision INTEGER, mark TEXT);")
            .map_err(|error| explain(error, path))?;
    }
    if form.number == ASKS {
        connection
            .execute_batch("CREATE TEMP VIEW waits AS SELECT *, NULL AS graph FROM main.waits;")
            .map_err(|error| explain(error, path))?;
    } else if form.number == WAITS {
        connection
            .execute_batch(
                "CREATE TEMP VIEW waits AS
                    SELECT *, NULL AS role, NULL AS count, NULL AS payload, NULL AS graph FROM main.waits;",
            )
            .map_err(|error| explain(error, path))?;
    } else if form.number < WAITS {
        connection
            .execute_batch(
                "CREATE TEMP TABLE waits (run INTEGER, id TEXT, node TEXT, opened INTEGER, due INTEGER, signals TEXT,
                    role TEXT, count INTEGER, payload TEXT, graph TEXT);",
            )
            .map_err(|error| explain(error, path))?;
    }
    if (MEANINGS..TASKS).contains(&form.number) {
        connection
            .execute_batch("CREATE TEMP VIEW runs AS SELECT *, NULL AS owner, NULL AS stop_at FROM main.runs;")
            .map_err(|error| explain(error, path))?;
    } else if (WAITS..MEANINGS).contains(&form.number) {
        connection
            .execute_batch(
                "CREATE TEMP VIEW runs AS SELECT *, NULL AS meaning, NULL AS owner, NULL AS stop_at FROM main.runs;",
            )
            .map_err(|error| explain(error, path))?;
    } else if form.number == LISTING {
        connection
            .execute_batch("CREATE TEMP VIEW runs AS SELECT *, NULL AS due, NULL AS meaning, NULL AS owner, NULL AS stop_at FROM main.runs;")
            .map_err(|error| explain(error, path))?;
    } else if form.number == FACTS {
        connection
            .execute_batch(
                "CREATE TEMP VIEW runs AS SELECT number, id, graph, status, token, holder, parent, created, updated, leased,
                    CASE WHEN status = 'running' AND stop = token THEN 1 ELSE 0 END AS stop,
                    NULL AS digest, NULL AS version, NULL AS code, NULL AS due, NULL AS meaning, NULL AS owner, NULL AS stop_at FROM main.runs;",
            )
            .map_err(|error| explain(error, path))?;
    } else if form.number < FACTS {
        connection
            .execute_batch(
                "CREATE TEMP VIEW runs AS SELECT number, id, graph, status, token, holder, NULL AS parent,
                    0 AS created, 0 AS updated, 0 AS leased, 0 AS stop,
                    NULL AS digest, NULL AS version, NULL AS code, NULL AS due, NULL AS meaning, NULL AS owner, NULL AS stop_at FROM main.runs;
                CREATE TEMP VIEW records AS SELECT key, body, signature,
                    (SELECT behind.signature FROM main.records behind WHERE behind.key = it.key | 4294967295
                        AND behind.body = CAST((it.key & 4294967295) + 1 AS TEXT)) AS token
                    FROM main.records it WHERE it.key & 4294967295 <> 4294967295;
                CREATE TEMP TABLE holders (name TEXT, process INTEGER, host TEXT, machine TEXT, beat INTEGER);",
            )
            .map_err(|error| explain(error, path))?;
    }
    Ok(())
}

/// The type and format version of a file, according to the file.
#[derive(Debug, Clone, Copy)]
struct FileForm {
    application: i64,
    number: i64,
    /// How many tables and indexes there are.
    tables: i64,
}

fn form_of(connection: &Connection) -> Result<FileForm, rusqlite::Error> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0));
    let tables = connection.query_row("SELECT count(*) FROM main.sqlite_schema", [], |row| row.get(0))?;
    Ok(FileForm { application: pragma("application_id")?, number: pragma("user_version")?, tables })
}

fn known(form: FileForm, path: &Path) -> Result<(), StoreError> {
    if form.number > FORM && form.application == APPLICATION {
        return Err(StoreError::newer(path.display(), form.number, FORM));
    }
    Ok(())
}

/// Refuses a file with triggers or views, which no version of this program creates in a file: they would change the data
/// that is written or read.
fn own_only(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let first = "SELECT type, name FROM main.sqlite_schema WHERE type IN ('trigger', 'view') ORDER BY name LIMIT 1";
    let found = connection
        .query_row(first, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()
        .map_err(|error| explain(error, path))?;
    let Some((kind, name)) = found else { return Ok(()) };
    let reason = format!("it has the {kind} `{name}`, which no store has; its author can change what is in the store");
    Err(StoreError::unreadable(path.display(), reason))
}

/// The error of a file that has no tables yet. Nothing in it was promised to anybody.
fn unfinished(path: &Path) -> StoreError {
    let reason = "it is empty, as a store is while it is created, or after that was interrupted; nothing has to be repaired: \
                  the next program that writes to it creates its tables";
    StoreError::open(path.display(), reason)
}

fn foreign(path: &Path) -> StoreError {
    StoreError::unreadable(path.display(), "it is a database of another program")
}

/// Explains why a file cannot be migrated: usually, its tables are not those of the format version that it claims.
fn no_such_form(error: rusqlite::Error, form: FileForm, path: &Path) -> StoreError {
    if error.sqlite_error_code() != Some(ErrorCode::Unknown) {
        return explain(error, path);
    }
    let reason = format!(
        "its `user_version` says that it is of form {}, and its tables are not ({error}); restore it from a copy, or set the \
         `user_version` back to what it was",
        form.number
    );
    StoreError::unreadable(path.display(), reason).with_source(error)
}

/// Sets the modes, and migrates the file to the newest format version.
pub(super) fn prepare(connection: &mut Connection, path: &Path, patience: &Patience) -> Result<(), StoreError> {
    prepare_with(connection, path, patience, &MIGRATIONS)
}

/// Does the same as [`prepare`], with only the given first migrations.
pub(super) fn prepare_with(
    connection: &mut Connection,
    path: &Path,
    patience: &Patience,
    migrations: &[Migration],
) -> Result<(), StoreError> {
    let explain = |error: rusqlite::Error| explain(error, path);
    // SQLite opens a file that it cannot write for reading, and reports that only at the first write.
    if connection.is_readonly("main").map_err(explain)? {
        return Err(read_only(path));
    }
    let is_ready = |form: FileForm| -> Result<bool, StoreError> {
        known(form, path)?;
        match (form.tables, form.application) {
            (0, _) => Ok(false),
            (_, APPLICATION) => Ok(form.number >= migrations.len() as i64),
            _ => Err(foreign(path)),
        }
    };
    let is_new = !is_ready(patience.wait(path, || form_of(connection)).map_err(explain)?)?;
    own_only(connection, path)?;
    patience.wait(path, || connection.pragma_update(None, "journal_mode", "WAL")).map_err(explain)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(explain)?;
    connection.pragma_update(None, "cache_size", CACHE).map_err(explain)?;
    connection.pragma_update(None, "wal_autocheckpoint", SHORT_LOG).map_err(explain)?;
    if !is_new {
        return Ok(());
    }
    let begin = || Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
    let transaction = patience.wait(path, begin).map_err(explain)?;
    // Another process may have migrated the file while this one waited.
    let form = form_of(&transaction).map_err(explain)?;
    if !is_ready(form)? {
        let done = if form.tables == 0 { 0 } else { usize::try_from(form.number).unwrap_or_default() };
        for migration in &migrations[done..] {
            migration(&transaction).map_err(|error| no_such_form(error, form, path))?;
        }
        transaction.pragma_update(None, "user_version", migrations.len()).map_err(explain)?;
        transaction.commit().map_err(explain)?;
    }
    Ok(())
}

//! Tests that are specific to the store in a file. The behaviour that all stores share is tested by the suite.

mod faults;
mod signals;
mod waits;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::time::SystemTime;

use rusqlite::OpenFlags;
use rusqlite::types::Value;

use super::form::{APPLICATION, FORM, MIGRATIONS, connect, connect_unchanging, prepare, prepare_with};
use super::holder::lock_path;
use super::*;
use graph_model::digest::Digest;
use std::time::Instant;

use graph_engine::ManualClock;
use graph_engine::store::{Retention, ScheduleChange, Within, conformance};

fn record(seq: u64, size: usize) -> SignedRecord {
    SignedRecord { seq, body: "x".repeat(size), signature: [7; 64], end: None }
}

fn run() -> RunId {
    RunId::new("run").unwrap()
}

/// Writes without waiting for the disk, for a test that loses no power.
fn lose_no_power(store: &SqliteStore) {
    let writer = locked(&store.shared.writing.as_ref().unwrap().writer);
    writer.connection.pragma_update(None, "synchronous", "OFF").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_passes_the_conformance_suite() {
    let directory = tempfile::tempdir().unwrap();
    let count = AtomicUsize::new(0);
    let make = || async {
        let number = count.fetch_add(1, Ordering::Relaxed);
        SqliteStore::open(directory.path().join(format!("{number}.db"))).await.unwrap()
    };
    conformance::suite(make).await;
    conformance::waiting_suite(make).await;
    conformance::stopping_suite(make).await;
    conformance::signal_suite(make).await;
    conformance::schedule_suite(make).await;
}

#[tokio::test]
async fn appended_records_are_there_after_a_reopen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    store.append(&lease, 1, vec![record(1, 20)], Status::Error).await.unwrap();
    let old = lease.token();
    drop((lease, store));
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.load(&run()).await.unwrap(), [record(0, 10), record(1, 20)]);
    assert_eq!(store.list().await.unwrap()[0].status, Status::Error);
    assert!(store.lease(&run()).await.unwrap().token() > old);
    assert_eq!(
        fs::read_dir(directory.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "lock") })
            .count(),
        1,
        "the first store's lock file is gone"
    );
}

#[tokio::test]
async fn a_store_that_is_closed_leaves_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (store, other) = (SqliteStore::open(&path).await.unwrap(), SqliteStore::open(&path).await.unwrap());
    let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    drop((lease, store));
    let connection = Connection::open(&path).unwrap();
    let left: (u32, u32) = connection
        .query_row("SELECT count(*), (SELECT count(*) FROM runs WHERE holder <> '') FROM holders", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(left, (0, 0), "it holds nothing any more");
    drop((connection, other));
    let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["runs.db"]);
}

#[tokio::test]
async fn an_append_waits_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("runs.db")).await.unwrap();
    let writer = locked(&store.shared.writing.as_ref().unwrap().writer);
    let said = |pragma: &str| writer.connection.pragma_query_value(None, pragma, |row| row.get::<_, Value>(0));
    // 2 is FULL: the log is synchronised at each commit.
    assert_eq!(said("synchronous").unwrap(), Value::Integer(2));
    assert_eq!(said("journal_mode").unwrap(), Value::Text("wal".to_owned()));
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    form::make(&path).unwrap();
    let mut writer = connect(&path, Duration::ZERO).unwrap();
    prepare(&mut writer, &path, &SqliteStore::options().patience).unwrap();
    // SQLite answers as on a full disk when the file may not grow.
    writer.pragma_update(None, "max_page_count", 20).unwrap();
    let store = SqliteStore::writing(path.clone(), writer, SqliteOptions::default()).unwrap();
    let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    let error = store.append(&lease, 1, vec![record(1, 100_000)], Status::Running).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Full { place, source: Some(_), .. } if *place == path.display().to_string()),
        "{error:?}"
    );
    assert!(error.to_string().contains("free some and try again"), "{error}");
    assert_eq!(store.load(&run()).await.unwrap(), [record(0, 10)]);
    store.append(&lease, 1, vec![record(1, 10)], Status::Running).await.expect("a small record still fits");
}

#[tokio::test]
async fn a_full_disk_for_one_run_is_not_in_the_way_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    form::make(&path).unwrap();
    let mut writer = connect(&path, Duration::ZERO).unwrap();
    prepare(&mut writer, &path, &SqliteStore::options().patience).unwrap();
    writer.pragma_update(None, "max_page_count", 20).unwrap();
    let store = SqliteStore::writing(path, writer, SqliteOptions::default()).unwrap();
    let other = RunId::new("other").unwrap();
    let one = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    let two = store.create(&other, "test/graph", vec![record(0, 10)]).await.unwrap();
    let (large, small) = tokio::join!(
        store.append(&one, 1, vec![record(1, 100_000)], Status::Running),
        store.append(&two, 1, vec![record(1, 10)], Status::Running),
    );
    assert!(matches!(large, Err(StoreError::Full { .. })));
    small.expect("the other run's record fits");
}

#[tokio::test]
async fn a_read_only_database_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let mut writer = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let error = prepare(&mut writer, &path, &SqliteStore::options().patience).unwrap_err();
    assert!(matches!(&error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().ends_with("runs.db cannot be written: it, its directory or its disk is read-only"));
}

#[tokio::test]
async fn a_file_that_is_not_a_store_is_refused_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("text"), "this is no database, and longer than the header of one would be".repeat(9)).unwrap();
    Connection::open(at("other.db")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let newer = Connection::open(at("newer.db")).unwrap();
    newer.pragma_update(None, "application_id", APPLICATION).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    drop(SqliteStore::open(at("older.db")).await.unwrap());
    Connection::open(at("older.db")).unwrap().pragma_update(None, "user_version", 3).unwrap();
    for (name, part) in [
        ("older.db", "its `user_version` says that it is of form 3, and its tables are not"),
        ("text", "is not a journal of this program, or is damaged"),
        ("other.db", "it is a database of another program"),
        ("newer.db", "has form 99, and this program knows forms up to 11"),
        ("missing/runs.db", "its directory does not exist"),
        ("", "it is a directory"),
    ] {
        let before = fs::read(at(name)).ok();
        let error = SqliteStore::open(at(name)).await.unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
        if name == "text" {
            assert_eq!(fs::read(at(name)).ok(), before);
        }
    }
}

#[tokio::test]
async fn an_unlocked_lock_file_does_not_count_as_a_holder() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    drop(store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap());
    drop(store);
    // A killed process leaves behind its name in the database and its file, without a lock.
    let changes = Connection::open(&path).unwrap();
    changes.execute("UPDATE runs SET holder = 'dead'", []).unwrap();
    let beats = |machine: &str| {
        let beat = unix_milliseconds(SystemTime::now());
        changes
            .execute("INSERT OR REPLACE INTO holders VALUES ('dead', 12, 'there', ?1, ?2)", (machine, beat))
            .unwrap();
    };
    File::create(lock_path(&path, "dead")).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    beats("another machine");
    let error = store.lease(&run()).await.expect_err("a lock says nothing of another machine");
    assert!(error.to_string().contains("process 12 on there, since "), "{error}");
    beats(&holder::machine());
    store.lease(&run()).await.expect("the run can be taken over at once");
}

fn id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// Opens a store whose clock is stopped at `seconds` after the common zero.
async fn open_at(path: &Path, seconds: u64) -> SqliteStore {
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000 + seconds));
    SqliteStore::options().clock(Arc::new(clock)).open(path).await.unwrap()
}

/// Moves the holders of a file to another machine, whose locks are not visible here.
fn move_away(path: &Path) {
    Connection::open(path).unwrap().execute("UPDATE holders SET machine = 'another machine'", []).unwrap();
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "lock") {
            fs::remove_file(path).unwrap();
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_held_counts_before_any_clock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let holder = open_at(&path, 0).await;
    let lease = holder.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    // The clock was set forward by half a minute or a year; the holder keeps the run nevertheless.
    for seconds in [31, 86_400 * 365] {
        let error = open_at(&path, seconds).await.lease(&run()).await.unwrap_err();
        assert!(matches!(&error, StoreError::Leased { .. }), "{error:?}");
    }
    holder.append(&lease, 1, vec![record(1, 10)], Status::Running).await.expect("it still is the holder");
    let later = open_at(&path, 31).await;
    drop((lease, holder));
    later.lease(&run()).await.expect("its lock is gone");
}

#[cfg(unix)]
#[tokio::test]
async fn a_lock_file_that_may_not_be_opened_is_not_taken_for_free() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let lock = lock_path(&path, "somebody");
    File::create(&lock).unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser can open the file too, and sees that it is not locked.
    if File::open(&lock).is_err() {
        assert_eq!(holder::lock_of(&path, "somebody"), holder::Lock::Unknown);
    }
    assert_eq!(holder::lock_of(&path, "nobody"), holder::Lock::Unknown);
}

#[tokio::test]
async fn a_silent_holder_loses_its_lease_and_can_write_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let hangs = open_at(&path, 0).await;
    let old = hangs.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    move_away(&path);
    let patient = open_at(&path, 30).await;
    let error = patient.lease(&run()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Leased { .. }), "{error:?}");
    let process = format!("(process {} on ", std::process::id());
    assert!(error.to_string().contains(&process), "{error}");
    assert!(error.to_string().contains(", since 2026-11-18T11:06:40.000Z)"), "{error}");
    let later = open_at(&path, 31).await;
    let new = later.lease(&run()).await.unwrap();
    let error = hangs.append(&old, 1, vec![record(1, 10)], Status::Running).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost(_)), "{error:?}");
    drop(old);
    later.append(&new, 1, vec![record(1, 20)], Status::Running).await.unwrap();
    assert_eq!(later.load(&run()).await.unwrap(), [record(0, 10), record(1, 20)]);
    assert!(
        later.find(&run()).await.unwrap().holder.is_some(),
        "what the old holder gave back was not its own any more"
    );
}

#[tokio::test]
async fn a_holder_of_a_removed_run_cannot_write_into_its_successor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let hangs = open_at(&path, 0).await;
    let old = hangs.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    move_away(&path);
    let later = open_at(&path, 31).await;
    later.remove(&run()).await.unwrap();
    let other = RunId::new("other").unwrap();
    let _lease = later.create(&other, "test/graph", vec![record(0, 30)]).await.unwrap();
    let place = Connection::open(&path).unwrap();
    let place = place.query_row("SELECT number FROM runs WHERE id = 'other'", [], |row| row.get::<_, i64>(0));
    assert_eq!(place.unwrap(), 1, "the place of the run that was removed");
    let error = hangs.append(&old, 1, vec![record(1, 10)], Status::Running).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost(_)), "{error:?}");
    assert_eq!(later.load(&other).await.unwrap(), [record(0, 30)]);
}

#[tokio::test]
async fn records_that_do_not_follow_are_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("runs.db")).await.unwrap();
    let error = store.create(&run(), "test/graph", vec![record(0, 10), record(2, 10)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    for (expected, records) in [
        (0, vec![record(0, 20)]),
        (1, vec![record(2, 20)]),
        (1, vec![record(1, 20), record(3, 20)]),
        (2, vec![record(2, 20)]),
        (2, vec![]),
    ] {
        let error = store.append(&lease, expected, records, Status::Running).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { found: 1, .. }), "{error:?}");
        assert_eq!(store.load(&run()).await.unwrap(), [record(0, 10)]);
    }
    store.append(&lease, 1, vec![record(1, 20), record(2, 20)], Status::Running).await.unwrap();
    assert_eq!(store.load(&run()).await.unwrap(), [record(0, 10), record(1, 20), record(2, 20)]);
}

#[tokio::test]
async fn a_holder_says_that_it_is_alive_also_while_it_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::options().lease_ttl(Duration::from_millis(30)).open(&path).await.unwrap();
    let looks = Connection::open(&path).unwrap();
    let beat = || looks.query_row("SELECT beat FROM holders", [], |row| row.get::<_, i64>(0));
    assert!(beat().is_err(), "who holds nothing says nothing");
    let _lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    let first = beat().unwrap();
    while beat().unwrap() == first {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_takers_gets_a_run_and_the_other_learns_who() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (one, two) = (SqliteStore::open(&path).await.unwrap(), SqliteStore::open(&path).await.unwrap());
    drop(one.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap());
    for seq in 1..20 {
        // A released lease is written before the next request.
        drop(one.create(&id(&format!("one-{seq}")), "test/graph", Vec::new()).await.unwrap());
        drop(two.create(&id(&format!("two-{seq}")), "test/graph", Vec::new()).await.unwrap());
        let spawn = |store: &SqliteStore| {
            let store = store.clone();
            tokio::spawn(async move { store.lease(&run()).await })
        };
        let (first, second) = (spawn(&one), spawn(&two));
        let (store, lease, error) = match (first.await.unwrap(), second.await.unwrap()) {
            (Ok(lease), Err(error)) => (&one, lease, error),
            (Err(error), Ok(lease)) => (&two, lease, error),
            other => panic!("both or none: {other:?}"),
        };
        assert!(matches!(&error, StoreError::Leased { holder, .. } if holder.contains("process ")), "{error:?}");
        store.append(&lease, seq, vec![record(seq, 10)], Status::Running).await.unwrap();
    }
}

#[tokio::test]
async fn an_ended_or_released_run_is_free_while_its_store_stays_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (one, two) = (SqliteStore::open(&path).await.unwrap(), SqliteStore::open(&path).await.unwrap());
    let lease = one.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    one.append(&lease, 1, vec![record(1, 10)], Status::Error).await.unwrap();
    let lease = two.lease(&run()).await.expect("it ended");
    two.append(&lease, 2, vec![record(2, 10)], Status::Running).await.unwrap();
    assert!(matches!(one.lease(&run()).await, Err(StoreError::Leased { .. })));
    drop(lease);
    two.create(&id("next"), "test/graph", Vec::new()).await.expect("requests are done in order");
    one.lease(&run()).await.expect("it was given back");
}

#[tokio::test]
async fn a_holder_learns_of_a_cancel_by_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    // A short time to live gives a short pace. The clock is stopped, so no lease is lost because of it.
    let options = SqliteStore::options().clock(clock).lease_ttl(Duration::from_millis(30));
    let (holder, other) = (options.clone().open(&path).await.unwrap(), options.open(&path).await.unwrap());
    let lease = holder.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    let bystander = holder.create(&id("other"), "test/graph", vec![record(0, 10)]).await.unwrap();
    other.cancel(&run()).await.unwrap();
    while !lease.cancel_request().is_set() {
        tokio::task::yield_now().await;
    }
    assert!(!bystander.cancel_request().is_set());
    drop((lease, bystander, holder));
    assert!(
        other.lease(&run()).await.unwrap().cancel_request().is_set(),
        "its process is gone, and what was asked is not"
    );
}

/// The tables as they were before format version 3, early and late ones.
const OLD_RUNS: &str = "CREATE TABLE runs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, graph TEXT NOT NULL, status TEXT NOT NULL,
    token INTEGER NOT NULL, holder TEXT NOT NULL) STRICT;";
const EARLY_RUNS: &str = "CREATE TABLE runs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, graph TEXT NOT NULL, status TEXT NOT NULL,
    records INTEGER NOT NULL, token INTEGER NOT NULL, holder TEXT NOT NULL) STRICT;";
const OLD_RECORDS: &str = "CREATE TABLE records (
    key INTEGER PRIMARY KEY, body TEXT NOT NULL, signature BLOB NOT NULL,
    run INTEGER GENERATED ALWAYS AS (key >> 32) VIRTUAL,
    seq INTEGER GENERATED ALWAYS AS (key & 4294967295) VIRTUAL) STRICT;";

/// Writes a file of an old format version with a run `run`, a run `run-1` inside it, and a run whose journal is not JSON.
fn old_file(path: &Path, form: i64, runs: &str) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.execute_batch(runs).unwrap();
    connection.execute_batch(OLD_RECORDS).unwrap();
    connection.pragma_update(None, "application_id", APPLICATION).unwrap();
    connection.pragma_update(None, "user_version", form).unwrap();
    let counts = runs.contains("records INTEGER");
    for (number, name, status, parent) in [
        (1_i64, "run", "completed", ""),
        (2, "run-1", "running", ",\"parent\":{\"run\":\"run\",\"step\":1,\"node\":\"n\"}"),
        (3, "odd", "error", "no JSON"),
    ] {
        let (column, value) = if counts { (", records", ", 2") } else { ("", "") };
        connection
            .execute(
                &format!(
                    "INSERT INTO runs (number, id, graph, status, token, holder{column})
                    VALUES (?1, ?2, 'test/graph', ?3, 7, 'aa'{value})"
                ),
                (number, name, status),
            )
            .unwrap();
        for (seq, second) in [(0_i64, "13:07.551"), (1, "13:09.002")] {
            let body = format!("{{\"seq\":{seq},\"at\":\"2026-11-22T12:{second}Z\"{parent}}}");
            let key = number << 32 | seq;
            connection
                .execute("INSERT INTO records (key, body, signature) VALUES (?1, ?2, ?3)", (key, body, [7; 64]))
                .unwrap();
        }
        if form == 2 {
            let key = number << 32 | form::END;
            connection
                .execute("INSERT INTO records (key, body, signature) VALUES (?1, '2', ?2)", (key, [9; 32]))
                .unwrap();
        }
    }
}

#[tokio::test]
async fn every_older_format_can_be_read_without_a_change() {
    for form in 1..MIGRATIONS.len() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let mut old = Connection::open(&path).unwrap();
        prepare_with(&mut old, &path, &SqliteStore::options().patience, &MIGRATIONS[..form]).unwrap();
        old.execute_batch(
            "INSERT INTO runs (id, graph, status, token, holder) VALUES ('a', 'test/graph', 'running', 1, '')",
        )
        .unwrap();
        let store = SqliteStore::open_read_only(&path).await.unwrap();
        let listed = store.list().await.unwrap();
        assert!(listed.len() == 1 && listed[0].owner.is_none(), "form {form}");
        assert!(
            store.open_waits(&WaitFilter::default(), &Page::default()).await.unwrap().waits.is_empty(),
            "form {form}"
        );
    }
}

#[tokio::test]
async fn older_store_formats_migrate_to_the_newest_without_loss() {
    for (form, runs) in [(1, EARLY_RUNS), (1, OLD_RUNS), (2, OLD_RUNS)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        old_file(&path, form, runs);
        let before = SqliteStore::open_read_only(&path).await.unwrap();
        let (journal, listed) = (before.load(&run()).await.unwrap(), before.list().await.unwrap());
        assert_eq!((journal.len(), listed.len()), (2, 3), "what is only read needs not be of the newest form");
        assert_eq!(before.schedule_mark("nightly").await.unwrap(), None, "older files have no schedules");
        drop(before);
        let version = |path: &Path| -> i64 {
            Connection::open(path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
        };
        assert_eq!(version(&path), form);
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(version(&path), FORM);
        assert_eq!(store.load(&run()).await.unwrap(), journal);
        assert_eq!(
            journal[1].end,
            (form == 2).then_some([9; 32]),
            "form 1 has no token to show that a record is the last"
        );
        let found = store.list().await.unwrap();
        assert_eq!(found.iter().map(|run| run.records).collect::<Vec<_>>(), [2, 2, 2]);
        let shown = |time: Option<SystemTime>| time.map(graph_model::timestamp::milliseconds);
        let (odd, inner, outer) = (&found[0], &found[1], &found[2]);
        assert_eq!(shown(outer.created).as_deref(), Some("2026-11-22T12:13:07.551Z"));
        assert_eq!(shown(outer.updated).as_deref(), Some("2026-11-22T12:13:09.002Z"));
        assert_eq!((outer.parent.clone(), inner.parent.clone()), (None, Some(run())));
        assert_eq!(
            (odd.created, odd.updated, odd.parent.clone()),
            (None, None, None),
            "what cannot be read is not known"
        );
        let lease = store.lease(&inner.run).await.expect("its holder is gone");
        assert_eq!(lease.token(), 8);
        store.append(&lease, 2, vec![record(2, 10)], Status::Completed).await.unwrap();
        store.create(&id("new"), "test/graph", vec![record(0, 10)]).await.unwrap();
        store.change_schedule(&ScheduleChange::new("nightly", 0, "{}")).await.unwrap();
        drop((lease, store));
        let again = SqliteStore::open(&path).await.unwrap();
        assert_eq!(again.list().await.unwrap().len(), 4);
        assert_eq!(again.schedule_mark("nightly").await.unwrap().unwrap().revision, 1, "a mark outlives the process");
    }
}

#[tokio::test]
async fn version_3_migration_preserves_cancels_and_adds_journal_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    form::make(&path).unwrap();
    let mut old = connect(&path, Duration::ZERO).unwrap();
    prepare_with(&mut old, &path, &SqliteStore::options().patience, &MIGRATIONS[..3]).unwrap();
    let digest = Digest::of("graph");
    for (number, name, status, stop) in
        [(1_i64, "asked", "running", 7), (2, "passed-over", "running", 6), (3, "ended", "error", 7)]
    {
        let insert = "INSERT INTO runs (number, id, graph, status, token, holder, created, stop)
            VALUES (?1, ?2, 'test/graph', ?3, 7, '', 1000, ?4)";
        old.execute(insert, (number, name, status, stop)).unwrap();
        let body = format!("{{\"seq\":0,\"digest\":\"{digest}\",\"version\":\"1.2.3\"}}");
        let insert = "INSERT INTO records (key, body, signature, token) VALUES (?1, ?2, ?3, ?4)";
        old.execute(insert, (number << 32, body, [7; 64], [9; 32])).unwrap();
    }
    drop(old);
    let shown = |runs: &[RunSummary]| -> Vec<(String, bool)> {
        runs.iter().map(|run| (run.run.to_string(), run.is_cancelling)).collect()
    };
    let expected = [("ended", false), ("passed-over", false), ("asked", true)].map(|(run, is)| (run.to_owned(), is));
    let read = SqliteStore::open_read_only(&path).await.unwrap();
    assert_eq!(shown(&read.list().await.unwrap()), expected, "also where it is only read");
    assert_eq!(shown(&read.runs(&RunFilter::default(), &Page::default()).await.unwrap().runs), expected);
    drop(read);
    let store = SqliteStore::open(&path).await.unwrap();
    let listed = store.list().await.unwrap();
    assert_eq!(shown(&listed), expected);
    for run in &listed {
        assert_eq!((run.digest, run.version.as_deref()), (Some(digest), Some("1.2.3")), "{}", run.run);
    }
    assert!(store.lease(&id("asked")).await.unwrap().cancel_request().is_set());
    assert!(!store.lease(&id("passed-over")).await.unwrap().cancel_request().is_set());
}

#[tokio::test]
async fn a_crash_during_migration_leaves_the_old_store_intact() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let path = at("runs.db");
    old_file(&path, 2, OLD_RUNS);
    let copy = |name: &str| {
        for end in ["", "-wal"] {
            let from = at(&format!("runs.db{end}"));
            if from.exists() {
                fs::copy(from, at(&format!("{name}{end}"))).unwrap();
            }
        }
    };
    // Killed in the middle: everything is written but not committed.
    let mut connection = connect(&path, Duration::ZERO).unwrap();
    connection.pragma_update(None, "cache_spill", 1).unwrap();
    let transaction = connection.transaction().unwrap();
    MIGRATIONS[2](&transaction).unwrap();
    transaction.pragma_update(None, "user_version", 3).unwrap();
    copy("killed.db");
    drop(transaction);
    drop(connection);
    // Stopped by an error.
    let breaks: form::Migration = |transaction| transaction.execute_batch("SELECT nothing FROM nowhere");
    let mut connection = connect(&path, Duration::ZERO).unwrap();
    prepare_with(
        &mut connection,
        &path,
        &SqliteStore::options().patience,
        &[MIGRATIONS[0], MIGRATIONS[1], MIGRATIONS[2], breaks],
    )
    .unwrap_err();
    drop(connection);
    for name in ["killed.db", "runs.db"] {
        let connection = Connection::open(at(name)).unwrap();
        let form: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(form, 2, "{name}");
        let columns: i64 =
            connection.query_row("SELECT count(*) FROM pragma_table_info('runs')", [], |row| row.get(0)).unwrap();
        assert_eq!(columns, 6, "{name}");
        drop(connection);
        let store = SqliteStore::open(at(name)).await.unwrap();
        assert_eq!(store.load(&run()).await.unwrap()[1].end, Some([9; 32]), "{name}");
        assert_eq!(store.list().await.unwrap().len(), 3, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_opens_of_an_old_file_find_the_newest_version() {
    for form in [0, 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        if form > 0 {
            old_file(&path, form, OLD_RUNS);
        }
        let open = || tokio::spawn(SqliteStore::open(path.clone()));
        let opened = [open(), open(), open(), open()];
        for (number, store) in opened.into_iter().enumerate() {
            let store = store.await.unwrap().unwrap();
            store.create(&id(&format!("new-{number}")), "test/graph", vec![record(0, 10)]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn read_only_stores_change_nothing_and_need_no_write_access() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a run?#%.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    let reads = SqliteStore::open_read_only(&path).await.unwrap();
    store.append(&lease, 1, vec![record(1, 10)], Status::Running).await.unwrap();
    assert_eq!(reads.load(&run()).await.unwrap().len(), 2, "what is written meanwhile is seen");
    assert!(reads.find(&run()).await.unwrap().holder.is_some());
    for refused in [
        reads.create(&id("new"), "test/graph", Vec::new()).await.map(drop),
        reads.append(&lease, 2, vec![record(2, 10)], Status::Running).await,
        reads.cancel(&run()).await,
    ] {
        assert!(matches!(&refused, Err(StoreError::ReadOnly { .. })), "{refused:?}");
    }
    drop((lease, store));
    for refused in [reads.lease(&run()).await.map(drop), reads.remove(&run()).await, reads.shrink().await.map(drop)] {
        assert!(matches!(&refused, Err(StoreError::ReadOnly { .. })), "{refused:?}");
    }
    drop(reads);
    // A reader leaves the log as it is. After this checkpoint, everything is in the one file.
    Connection::open(&path).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let before = fs::read(&path).unwrap();
    let unchanging = connect_unchanging(&path).unwrap();
    assert_eq!(read::load(&unchanging, &run(), 0, &path).unwrap().len(), 2);
    assert_eq!(fs::read(&path).unwrap(), before);
    let missing = SqliteStore::open_read_only(directory.path().join("none.db")).await.unwrap_err();
    assert!(missing.to_string().ends_with("none.db: there is no such file"), "{missing}");
    assert!(!directory.path().join("none.db").exists());
}

#[tokio::test]
async fn a_store_locked_by_another_program_is_busy_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::options().patience(Duration::from_millis(1)).open(&path).await.unwrap();
    let leases = [
        store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap(),
        store.create(&id("other"), "test/graph", vec![record(0, 10)]).await.unwrap(),
    ];
    let locks = Connection::open(&path).unwrap();
    locks.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (one, two) = tokio::join!(
        store.append(&leases[0], 1, vec![record(1, 10)], Status::Running),
        store.append(&leases[1], 1, vec![record(1, 10)], Status::Running),
    );
    for refused in [one, two] {
        assert!(
            matches!(&refused, Err(StoreError::Busy { place, source: Some(_), .. }) if *place == path.display().to_string()),
            "{refused:?}"
        );
    }
    assert_eq!(store.load(&run()).await.unwrap().len(), 1, "who only reads does not wait");
    locks.execute_batch("ROLLBACK").unwrap();
    for lease in &leases {
        store.append(lease, 1, vec![record(1, 10)], Status::Running).await.expect("it can be tried again");
        assert_eq!(store.load(lease.run()).await.unwrap(), [record(0, 10), record(1, 10)]);
    }
}

#[tokio::test]
async fn a_damaged_page_is_reported_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let records = (0..500).map(|seq| record(seq, 1000)).collect();
    drop(store.create(&run(), "test/graph", records).await.unwrap());
    drop(store);
    // The last connection to close writes the log into the file, and that may be the one of the store's thread.
    Connection::open(&path).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    for page in 20..60 {
        // Overwrites the page's kind and its number of cells.
        bytes[page * 4096..page * 4096 + 8].fill(0xee);
    }
    fs::write(&path, &bytes).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let error = store.load(&run()).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unreadable { place, .. } if *place == path.display().to_string()),
        "{error:?}"
    );
    assert!(error.to_string().contains(".recover"), "{error}");
}

#[test]
fn each_way_to_fail_says_which_file_and_what_to_do() {
    use rusqlite::ffi;
    for (code, part) in [
        (ffi::SQLITE_BUSY, "f.db is locked by another program and stayed so; nothing was written"),
        (ffi::SQLITE_LOCKED, "f.db is locked"),
        (ffi::SQLITE_PROTOCOL, "f.db is locked"),
        (ffi::SQLITE_FULL, "no space left on the disk for f.db; free some and try again"),
        (ffi::SQLITE_READONLY_DIRECTORY, "f.db cannot be written"),
        (ffi::SQLITE_PERM, "f.db cannot be written"),
        (ffi::SQLITE_CORRUPT_INDEX, "f.db is not a journal of this program, or is damaged"),
        (ffi::SQLITE_IOERR_FSYNC, "reading or writing f.db failed: "),
        (ffi::SQLITE_IOERR_READ, "see to the disk, then try again"),
        (ffi::SQLITE_CANTOPEN, "cannot open f.db"),
        (ffi::SQLITE_NOMEM, "the store failed: f.db: "),
    ] {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let explained = explain(error, Path::new("f.db"));
        let said = explained.to_string();
        assert!(said.contains(part), "{code}: {said}");
        let cause =
            std::error::Error::source(&explained).and_then(|cause| cause.downcast_ref::<Arc<rusqlite::Error>>());
        assert!(cause.is_some_and(|cause| cause.sqlite_error().is_some()), "{code}: SQLite's own words stay");
    }
}

#[tokio::test]
async fn a_journal_with_as_many_records_as_there_are_numbers_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    let most = u64::from(u32::MAX);
    Connection::open(&path)
        .unwrap()
        .execute("UPDATE records SET key = key + ?1", [i64::try_from(most - 2).unwrap()])
        .unwrap();
    store
        .append(&lease, most - 1, vec![record(most - 1, 10)], Status::Running)
        .await
        .expect("there is one number left");
    let error = store.append(&lease, most, vec![record(most, 10)], Status::Running).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLong { .. }), "{error:?}");
    assert_eq!(store.load_from(&run(), most - 1).await.unwrap(), [record(most - 1, 10)]);
}

#[tokio::test]
async fn the_next_remove_clears_crash_leftovers_and_the_file_shrinks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    for name in ["one", "two", "three"] {
        let lease = store.create(&id(name), "test/graph", vec![record(0, 10)]).await.unwrap();
        let records = (1..700).map(|seq| record(seq, 1000)).collect();
        store.append(&lease, 1, records, Status::Completed).await.unwrap();
    }
    let held = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
    // The runs are hidden, and then the process died.
    let seen = vec![(1, 1)];
    assert!(matches!(store.ask(WriteTask::Hide { run: id("one"), seen }).await, Ok(WriteOutcome::Well)));
    assert!(matches!(store.load(&id("one")).await, Err(StoreError::NotFound(_))));
    let picked = Retention::default().pick(&store.list().await.unwrap(), SystemTime::now());
    assert_eq!(picked, [id("two"), id("three")], "the one that is held stays");
    store.remove(&picked[0]).await.unwrap();
    let count = |sql: &str| -> i64 { Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM runs"), 2);
    assert_eq!(count("SELECT count(*) FROM records"), 701);
    assert!(!store.shrink().await.unwrap(), "a run is held");
    store.append(&held, 1, vec![record(1, 10)], Status::Completed).await.unwrap();
    store.remove(&picked[1]).await.unwrap();
    let before = fs::metadata(&path).unwrap().len();
    assert!(store.shrink().await.unwrap());
    let after = fs::metadata(&path).unwrap().len();
    assert!(after < before.max(1_000_000) / 10, "{before} {after}");
    assert_eq!(store.load(&run()).await.unwrap().len(), 2);
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_reads_a_store_that_is_made() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let store = SqliteStore::open(&path).await.unwrap();
    drop(store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap());
    for end in ["", "-wal", "-shm"] {
        assert_eq!(mode(&directory.path().join(format!("runs.db{end}"))), 0o600, "runs.db{end}");
    }
    drop(store);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    drop(SqliteStore::open(&path).await.unwrap());
    assert_eq!(mode(&path), 0o640, "what its owner chose stays");
}

#[tokio::test]
async fn a_store_with_triggers_or_views_is_refused() {
    for (kind, made) in [
        ("trigger", "CREATE TRIGGER t AFTER INSERT ON records BEGIN UPDATE records SET body = 'x'; END"),
        ("view", "CREATE VIEW t AS SELECT * FROM runs"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        drop(SqliteStore::open(&path).await.unwrap());
        Connection::open(&path).unwrap().execute_batch(made).unwrap();
        for error in
            [SqliteStore::open(&path).await.unwrap_err(), SqliteStore::open_read_only(&path).await.unwrap_err()]
        {
            let said = error.to_string();
            assert!(said.contains(&format!("it has the {kind} `t`, which no store has")), "{said}");
        }
    }
}

#[tokio::test]
async fn a_run_with_the_highest_token_is_not_leased() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    drop(store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap());
    let changes = Connection::open(&path).unwrap();
    for token in [i64::MAX, -1] {
        changes.execute("UPDATE runs SET token = ?1", [token]).unwrap();
        let error = store.lease(&run()).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Unreadable { place, .. } if *place == path.display().to_string()),
            "{token}: {error:?}"
        );
    }
    changes.execute("INSERT INTO marks VALUES ('removed', ?1)", [i64::MAX]).unwrap();
    let error = store.create(&id("other"), "test/graph", Vec::new()).await.unwrap_err();
    assert!(error.to_string().contains("whose token is the highest there is"), "{error}");
}

#[tokio::test]
async fn the_error_of_a_store_that_cannot_be_made_names_no_run() {
    let error = SqliteStore::open("/dev/full").await.unwrap_err().to_string();
    assert!(!error.contains("run") && error.contains("/dev/full"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_locked_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let locks = Connection::open(&path).unwrap();
    locks.execute_batch("BEGIN IMMEDIATE").unwrap();
    let notified = Arc::new(AtomicUsize::new(0));
    let options = {
        let (notified, locks) = (Arc::clone(&notified), Mutex::new(locks));
        SqliteStore::options().patience(Duration::from_secs(6)).on_wait(move |_, waited| {
            assert!(waited >= Duration::from_millis(400), "{waited:?}");
            if notified.fetch_add(1, Ordering::SeqCst) == 0 {
                locks.lock().unwrap().execute_batch("ROLLBACK").unwrap();
            }
        })
    };
    let store = options.open(&path).await.unwrap();
    store.create(&run(), "test/graph", vec![record(0, 10)]).await.expect("the lock went away in time");
    assert_eq!(notified.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_listing_is_found_by_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    drop(store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap());
    let looks = Connection::open(&path).unwrap();
    let plan = |conditions: &str| -> String {
        let query = format!("EXPLAIN QUERY PLAN SELECT id FROM runs WHERE {conditions} ORDER BY number DESC LIMIT 10");
        let mut statement = looks.prepare(&query).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        rows.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
    };
    for (conditions, index) in [
        ("status <> 'removed' AND graph = 'g' AND number < 9", "runs_of_graph"),
        ("status <> 'removed' AND parent IS NULL AND status = 'running'", "runs_unfinished"),
        ("status <> 'removed' AND parent = 'p'", "runs_inside"),
    ] {
        let plan = plan(conditions);
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{conditions}: {plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_wait_for_a_lease_leaves_no_lease() {
    use std::task::{Context, Waker};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (store, other) = (SqliteStore::open(&path).await.unwrap(), SqliteStore::open(&path).await.unwrap());
    let held = run();
    drop(store.create(&held, "test/graph", vec![record(0, 10)]).await.unwrap());
    for round in 0..100_u64 {
        for polls in 1..4 {
            let made = id(&format!("{round}-{polls}"));
            let mut created = store.create(&made, "test/graph", vec![record(0, 10)]);
            let mut leased = store.lease(&held);
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                let done =
                    [created.as_mut().poll(&mut context).is_ready(), leased.as_mut().poll(&mut context).is_ready()];
                if done.contains(&true) {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(round * 20)).await;
            }
        }
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let listed = [store.list().await.unwrap(), other.list().await.unwrap()];
        if listed.iter().flatten().all(|found| found.holder.is_none()) {
            break;
        }
        assert!(Instant::now() < deadline, "somebody holds a run for nobody: {listed:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for found in other.list().await.unwrap() {
        other.lease(&found.run).await.expect("it is free for others");
    }
}

/// The steps by which SQLite answers a query.
fn steps(connection: &Connection, text: &str, values: Vec<Value>) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    let steps = statement.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
    steps.map(Result::unwrap).collect()
}

/// Pages of a store with very many runs: if an index covers the filter, SQLite reads no more than the page, and it never
/// sorts.
#[tokio::test]
async fn a_page_is_read_from_an_index_and_never_sorted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let connection = connect(&path, Duration::ZERO).unwrap();
    let all = RunFilter::default();
    let graph = Some("test/graph".to_owned());
    for (filter, plan) in [
        (all.clone(), "SEARCH runs USING INTEGER PRIMARY KEY (rowid<?)"),
        (RunFilter { graph: graph.clone(), ..all.clone() }, "SEARCH runs USING INDEX runs_of_graph (graph=? AND "),
        (RunFilter { statuses: vec![Status::Running], ..all.clone() }, "SEARCH runs USING INDEX runs_unfinished ("),
        (RunFilter { within: Within::Run(run()), ..all.clone() }, "SEARCH runs USING INDEX runs_inside (parent=? AND "),
        (RunFilter { within: Within::TopLevel, ..all.clone() }, ""),
        (RunFilter { statuses: vec![Status::Error, Status::Cancelled], ..all.clone() }, ""),
        (RunFilter { graph, version: Some("1".to_owned()), within: Within::TopLevel, ..all.clone() }, ""),
    ] {
        let (text, values) = read::query(&filter, Some(1_000_000), 100);
        let steps = steps(&connection, &text, values);
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{filter:?}: {steps:?}");
        assert!(steps.iter().any(|step| step.starts_with(plan)), "{filter:?}: {steps:?}");
    }
}

/// The statements in a source file of the store, as SQLite sees them.
fn statements(source: &str) -> Vec<String> {
    let records = "(SELECT max(key) FROM records WHERE key BETWEEN number << 32 AND (number << 32) + 4294967294)";
    let mut found = Vec::new();
    let code: String =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut rest = code.as_str();
    while let Some((_, behind)) = rest.split_once('"') {
        let mut text = String::new();
        let mut letters = behind.char_indices();
        let mut end = behind.len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => text.extend(letters.next().map(|(_, escaped)| escaped).filter(|escaped| *escaped != '\n')),
                '"' => {
                    end = at + 1;
                    break;
                }
                letter => text.push(letter),
            }
        }
        rest = &behind[end..];
        for (name, value) in [("{PIN}", form::PIN), ("{COLUMNS}", read::COLUMNS), ("{records}", records)] {
            text = text.replace(name, value);
        }
        let text = text.replace("{has_signal}", super::signals::IS_ACCEPTED).replace("{numbers}", "?9");
        if ["SELECT ", "UPDATE ", "DELETE ", "INSERT ", "WITH "].iter().any(|verb| text.starts_with(verb)) {
            found.push(text);
        }
    }
    found
}

/// No statement looks at all runs, records, signals or waits. A store with very many of them is as quick as a small one.
#[tokio::test]
async fn no_statement_looks_at_all_rows_of_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let connection = connect(&path, Duration::ZERO).unwrap();
    // These have the rows of a few runs only: those that are held, or that are being deleted.
    let few = ["runs_held", "runs_removed"];
    let mut count = 0;
    for source in
        [include_str!("write.rs"), include_str!("read.rs"), include_str!("signals.rs"), include_str!("schedules.rs")]
    {
        for text in statements(source) {
            // The lists are tested with all their filters.
            if text.contains("{conditions}") {
                continue;
            }
            let mut statement = connection
                .prepare(&format!("EXPLAIN QUERY PLAN {text}"))
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            let parameters = vec![Value::Null; statement.parameter_count()];
            let steps =
                statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get::<_, String>(3)).unwrap();
            for step in steps.map(Result::unwrap) {
                let is_large = ["runs", "records", "signals", "waits"]
                    .iter()
                    .any(|table| step == format!("SCAN {table}") || step.starts_with(&format!("SCAN {table} ")));
                assert!(!is_large || few.iter().any(|index| step.contains(index)), "{text}: {step}");
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count} statements were found");
}

/// A store whose creation was interrupted has nothing to repair, and its readers learn that.
#[tokio::test]
async fn a_store_whose_creation_was_interrupted_says_that_nothing_is_to_be_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    File::create(at("made.db")).unwrap();
    Connection::open(at("logged.db")).unwrap().pragma_update(None, "journal_mode", "WAL").unwrap();
    // The machine lost its power in the middle of the first write: the file has a part of it, and a journal undoes that.
    let cut = Connection::open(at("cutting.db")).unwrap();
    cut.execute_batch("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; CREATE TABLE t (a);").unwrap();
    for _ in 0..50 {
        cut.execute("INSERT INTO t VALUES (zeroblob(4000))", []).unwrap();
    }
    fs::copy(at("cutting.db"), at("cut.db")).unwrap();
    fs::copy(at("cutting.db-journal"), at("cut.db-journal")).unwrap();
    assert!(fs::metadata(at("cut.db")).unwrap().len() > 0);
    for name in ["made.db", "logged.db", "cut.db"] {
        let error = SqliteStore::open_read_only(at(name)).await.unwrap_err().to_string();
        assert!(error.contains("nothing has to be repaired"), "{name}: {error}");
        let store = SqliteStore::open(at(name)).await.unwrap();
        assert_eq!(store.list().await.unwrap(), [], "{name}");
        drop(store);
        let store = SqliteStore::open_read_only(at(name)).await.unwrap();
        assert_eq!(store.list().await.unwrap(), [], "{name}");
    }
}

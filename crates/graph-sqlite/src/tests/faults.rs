//! Holders whose locks are not where others look, and that cannot be asked.

use graph_engine::store::Claim;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn digest() -> Digest {
    Digest::of("faults")
}

/// The first record of a run that a worker can claim.
fn first() -> SignedRecord {
    SignedRecord { body: format!("{{\"kind\":\"start\",\"digest\":\"{}\"}}", digest().to_hex()), ..record(0, 0) }
}

async fn claim(store: &SqliteStore, limit: usize) -> Vec<graph_engine::store::Claimed> {
    store.claim(&Claim::new("test/graph", digest(), limit)).await.unwrap()
}

/// Why a store cannot write for a while.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Another program keeps the file locked.
    Locked,
    /// SQLite refuses to write, as on a disk that became read-only.
    ReadOnly,
}

fn refuse_writes(store: &SqliteStore, refused: bool) {
    let writer = locked(&store.shared.writing.as_ref().unwrap().writer);
    writer.connection.pragma_update(None, "query_only", refused).unwrap();
}

fn impatient() -> SqliteOptions {
    SqliteStore::options().patience(Duration::from_millis(60)).on_wait(|_, _| {})
}

/// The place beside the database where a process would have its lock, if it had died.
fn die(looks: &Connection, path: &Path, holder: &str) {
    File::create(lock_path(path, holder)).unwrap();
    looks.execute("UPDATE runs SET holder = ?1 WHERE holder <> ''", [holder]).unwrap();
    looks.execute("INSERT INTO holders VALUES (?1, 12, 'there', ?2, ?3)", (holder, holder::machine(), 1)).unwrap();
}

async fn wake(store: &SqliteStore) -> Option<i64> {
    store.next_wake(&[("test/graph".to_owned(), digest())]).await.unwrap()
}

/// The names by which programs open one store.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_several_names_has_one_set_of_holders() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("real/inner")).unwrap();
    fs::create_dir(at("other")).unwrap();
    let real = at("real/runs.db");
    let names = [
        real.clone(),
        at("real/../real/./runs.db"),
        at("real/inner/../runs.db"),
        at("link.db"),
        at("other/relative.db"),
        at("linked/runs.db"),
        at("other/link-to-link.db"),
    ];
    // Some lead to a file that is not there yet.
    symlink(&real, at("link.db")).unwrap();
    symlink("../real/runs.db", at("other/relative.db")).unwrap();
    symlink("real", at("linked")).unwrap();
    symlink("../link.db", at("other/link-to-link.db")).unwrap();
    for (number, first) in names.iter().enumerate() {
        let name = id(&format!("run-{number}"));
        let holder = SqliteStore::open(first).await.unwrap();
        let lease = holder.create(&name, "test/graph", vec![record(0, 10)]).await.unwrap();
        for second in &names {
            let taker = SqliteStore::open(second).await.unwrap();
            let refused = taker.lease(&name).await;
            assert!(matches!(refused, Err(StoreError::Leased { .. })), "{first:?} is {second:?}: {refused:?}");
        }
        holder.append(&lease, 1, vec![record(1, 10)], Status::Running).await.expect("it is the holder still");
        drop((lease, holder));
        let taker = SqliteStore::open(&names[(number + 1) % names.len()]).await.unwrap();
        taker.lease(&name).await.expect("it was given back");
    }
    let locks = fs::read_dir(at("real")).unwrap().chain(fs::read_dir(at("other")).unwrap());
    let left = locks.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|name| name == "lock"));
    assert_eq!(left.count(), 0, "no lock stays behind");
}

/// Somebody cleans up: a holder whose lock file is gone is alive as long as its heartbeats are fresh.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_lock_file_was_deleted_is_judged_by_its_heartbeats() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let holder = open_at(&path, 0).await;
    let lease = holder.create(&run(), "test/graph", vec![first()]).await.unwrap();
    fs::remove_file(lock_path(&path, &holder.shared.writing.as_ref().unwrap().own.name)).unwrap();
    let taker = open_at(&path, 30).await;
    assert!(matches!(taker.lease(&run()).await, Err(StoreError::Leased { .. })), "nobody knows that it is dead");
    assert_eq!(wake(&taker).await, None, "so no worker takes its run");
    assert!(claim(&taker, 9).await.is_empty());
    holder.append(&lease, 1, vec![record(1, 10)], Status::Running).await.expect("it is the holder still");
    drop(taker);
    open_at(&path, 31).await.lease(&run()).await.expect("it was not heard from for too long");
}

/// The lock file of a process that died shows that its runs are free, so it stays as long as there are some.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_file_of_a_dead_process_stays_until_its_runs_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let lease = store.create(&run(), "test/graph", vec![first()]).await.unwrap();
    let looks = Connection::open(&path).unwrap();
    die(&looks, &path, "dead");
    looks.execute("UPDATE holders SET beat = ?1", [unix_milliseconds(SystemTime::now())]).unwrap();
    drop((lease, store));
    let lock = lock_path(&path, "dead");
    let age = || {
        let old = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(&lock).unwrap().set_modified(old).unwrap();
    };
    age();
    let store = SqliteStore::open(&path).await.unwrap();
    assert!(lock.exists());
    store.lease(&run()).await.expect("the run can be taken over at once");
    drop(store);
    drop(SqliteStore::open(&path).await.unwrap());
    assert!(!lock.exists(), "it shows nothing any more");
}

/// A store that is closed while its file cannot be written leaves its runs to others at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_closed_during_a_fault_leaves_its_runs_to_others() {
    for fault in [Fault::Locked, Fault::ReadOnly] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let store = impatient().open(&path).await.unwrap();
        let lease = store.create(&run(), "test/graph", vec![first()]).await.unwrap();
        let locks = match fault {
            Fault::Locked => {
                let locks = connect(&path, MINUTE).unwrap();
                locks.execute_batch("BEGIN IMMEDIATE").unwrap();
                Some(locks)
            }
            Fault::ReadOnly => {
                refuse_writes(&store, true);
                None
            }
        };
        drop((lease, store));
        drop(locks);
        SqliteStore::open(&path).await.unwrap().lease(&run()).await.expect("the run can be taken over at once");
    }
}

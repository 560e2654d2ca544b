//! A store that lives on after its file could not be written, under any load, and beside processes that die.

use graph_engine::store::{Claim, Claimed, Wait, WaitId};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Waits until something holds that another connection sees.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < MINUTE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn digest() -> Digest {
    Digest::of("faults")
}

/// The first record of a run that a worker can claim.
fn first() -> SignedRecord {
    SignedRecord { body: format!("{{\"kind\":\"start\",\"digest\":\"{}\"}}", digest().to_hex()), ..record(0, 0) }
}

/// The first record of a run inside another.
fn first_inside(parent: &str) -> SignedRecord {
    let body =
        format!("{{\"kind\":\"start\",\"digest\":\"{}\",\"parent\":{{\"run\":\"{parent}\"}}}}", digest().to_hex());
    SignedRecord { body, ..record(0, 0) }
}

/// The record of a session that continues a run, as the engine writes it.
fn resume(seq: u64) -> SignedRecord {
    SignedRecord {
        body: format!("{{\"v\":4,\"run\":\"run\",\"seq\":{seq},\"kind\":\"resume\",\"steps\":1}}"),
        ..record(seq, 0)
    }
}

async fn claim(store: &SqliteStore, limit: usize) -> Vec<Claimed> {
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

/// A fault of a store, until it is dropped.
struct Faulty<'s> {
    store: &'s SqliteStore,
    locks: Option<Connection>,
}

impl<'s> Faulty<'s> {
    fn begin(fault: Fault, store: &'s SqliteStore, path: &Path) -> Self {
        let locks = match fault {
            Fault::Locked => {
                let locks = connect(path, MINUTE).unwrap();
                locks.execute_batch("BEGIN IMMEDIATE").unwrap();
                Some(locks)
            }
            Fault::ReadOnly => {
                refuse_writes(store, true);
                None
            }
        };
        Self { store, locks }
    }
}

impl Drop for Faulty<'_> {
    fn drop(&mut self) {
        if self.locks.take().is_none() {
            refuse_writes(self.store, false);
        }
    }
}

fn refuse_writes(store: &SqliteStore, refused: bool) {
    let writer = locked(&store.shared.writing.as_ref().unwrap().writer);
    writer.connection.pragma_update(None, "query_only", refused).unwrap();
}

fn impatient() -> SqliteOptions {
    SqliteStore::options().patience(Duration::from_millis(60)).on_wait(|_, _| {})
}

/// How a holder gives a lease back.
#[derive(Debug, Clone, Copy)]
enum GivesBack {
    Drops,
    Postpones,
    FailsToAppend,
    FailsToEnd,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_could_not_be_given_back_is_given_back_when_the_fault_is_over() {
    for fault in [Fault::Locked, Fault::ReadOnly] {
        for way in [GivesBack::Drops, GivesBack::Postpones, GivesBack::FailsToAppend, GivesBack::FailsToEnd] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("runs.db");
            let store = impatient().open(&path).await.unwrap();
            let other = SqliteStore::open(&path).await.unwrap();
            let lease = store.create(&run(), "test/graph", vec![first()]).await.unwrap();
            let looks = Connection::open(&path).unwrap();
            let holder = || looks.query_row("SELECT holder FROM runs", [], |row| row.get::<_, String>(0)).unwrap();
            let faulty = Faulty::begin(fault, &store, &path);
            match way {
                GivesBack::Drops => drop(lease),
                GivesBack::Postpones => drop(store.postpone(lease, 5).await.expect_err("nothing can be written")),
                GivesBack::FailsToAppend => {
                    drop(
                        store
                            .append(&lease, 1, vec![record(1, 10)], Status::Running)
                            .await
                            .expect_err("nothing can be written"),
                    );
                    drop(lease);
                }
                GivesBack::FailsToEnd => {
                    drop(
                        store
                            .append(&lease, 1, vec![record(1, 10)], Status::Completed)
                            .await
                            .expect_err("nothing can be written"),
                    );
                    drop(lease);
                }
            }
            // The writer has tried, and has told nobody.
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_ne!(holder(), "", "{fault:?} {way:?}: the fault is not over");
            drop(faulty);
            until(&format!("{fault:?} {way:?}: nobody else gets the run"), || holder().is_empty()).await;
            let lease = other.lease(&run()).await.expect("it is free");
            other.append(&lease, 1, vec![record(1, 10)], Status::Completed).await.expect("and continues");
        }
    }
}

/// A run whose call could be made, and whose result cannot be written, is not claimed again at once: the call would be made
/// again and again as long as the fault lasts.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_the_store_failed_is_continued_later_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    form::make(&path).unwrap();
    let mut writer = connect(&path, Duration::ZERO).unwrap();
    prepare(&mut writer, &path, &SqliteStore::options().patience).unwrap();
    form::forget_ends(&writer).unwrap();
    // Small records can be written, and large ones cannot.
    writer.pragma_update(None, "max_page_count", 60).unwrap();
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000)));
    let store = SqliteStore::writing(path.clone(), writer, SqliteStore::options().clock(clock.clone())).unwrap();
    drop(store.create(&run(), "test/graph", vec![first()]).await.unwrap());
    let mut seq = 1;
    for pause in [1, 2, 4, 8] {
        let mut claimed = claim(&store, 9).await;
        let lease = claimed.pop().expect("its time has come").lease;
        store.append(&lease, seq, vec![resume(seq)], Status::Running).await.expect("a small record fits");
        seq += 1;
        let full = store.append(&lease, seq, vec![record(seq, 1_000_000)], Status::Running).await;
        assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
        drop(lease);
        store.inbox(&run()).await.expect("requests are done in order");
        clock.advance(Duration::from_millis(pause * 1000 - 1));
        assert!(claim(&store, 9).await.is_empty(), "not before {pause} s are over");
        clock.advance(Duration::from_millis(1));
    }
    let lease = claim(&store, 9).await.pop().expect("its time has come").lease;
    store.append(&lease, seq, vec![record(seq, 10)], Status::Running).await.expect("the fault is over");
    drop(lease);
    store.inbox(&run()).await.expect("requests are done in order");
    assert_eq!(claim(&store, 9).await.len(), 1, "a run that makes progress is not held back");
}

/// The requests that a store gets all the time while a run is to stop.
#[derive(Debug, Clone, Copy)]
enum Load {
    Nothing,
    /// Requests for the thread that writes.
    Requests,
    /// Appends of many runs.
    Appends,
}

async fn load(store: SqliteStore, load: Load, name: usize) {
    let lease = store.create(&id(&format!("load-{name}")), "test/graph", vec![first()]).await.unwrap();
    for seq in 1.. {
        match load {
            Load::Nothing => return std::future::pending().await,
            Load::Requests => drop(store.inbox(&id(&format!("load-{name}"))).await.unwrap()),
            Load::Appends => store.append(&lease, seq, vec![record(seq, 10)], Status::Running).await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_hears_that_a_run_is_to_stop_under_any_load() {
    for load_of in [Load::Nothing, Load::Requests, Load::Appends] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let store = SqliteStore::open(&path).await.unwrap();
        lose_no_power(&store);
        let other = SqliteStore::open(&path).await.unwrap();
        let names = [id("cancelled"), id("killed"), id("timed"), id("timed-by-its-holder")];
        let mut leases = Vec::new();
        for name in &names {
            leases.push(store.create(name, "test/graph", vec![first()]).await.unwrap());
        }
        let bystander = store.create(&id("bystander"), "test/graph", vec![first()]).await.unwrap();
        let loads: Vec<_> = (0..6).map(|name| tokio::spawn(load(store.clone(), load_of, name))).collect();
        other.cancel(&names[0]).await.unwrap();
        other.kill(&names[1]).await.unwrap();
        other.cancel_at(&names[2], other.now().await.unwrap() + 10).await.unwrap();
        store.cancel_at(&names[3], store.now().await.unwrap() + 10).await.unwrap();
        // It lasted as long as the load.
        until(&format!("{load_of:?}: a request is not heard"), || {
            leases.iter().all(|one| one.cancel_request().is_set())
        })
        .await;
        assert!(loads.iter().all(|load| !load.is_finished()), "{load_of:?}: the load has ended");
        assert!(!bystander.cancel_request().is_set());
        loads.iter().for_each(|load| load.abort());
    }
}

/// The place beside the database where a process would have its lock, if it had died.
fn die(looks: &Connection, path: &Path, holder: &str) {
    File::create(lock_path(path, holder)).unwrap();
    looks.execute("UPDATE runs SET holder = ?1 WHERE holder <> ''", [holder]).unwrap();
    looks.execute("INSERT INTO holders VALUES (?1, 12, 'there', ?2, ?3)", (holder, holder::machine(), 1)).unwrap();
}

/// A store that workers of many processes open one after the other.
struct Deaths {
    path: PathBuf,
    looks: Connection,
    clock: Arc<ManualClock>,
    count: usize,
    _directory: tempfile::TempDir,
}

impl Deaths {
    async fn new(runs: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000)));
        let store = SqliteStore::options().clock(clock.clone()).open(&path).await.unwrap();
        for name in runs {
            drop(store.create(&id(name), "test/graph", vec![first()]).await.unwrap());
        }
        drop(store);
        let looks = Connection::open(&path).unwrap();
        Self { path, looks, clock, count: 0, _directory: directory }
    }

    /// A new process. It has looked at the holders.
    async fn process(&self) -> SqliteStore {
        let store = SqliteStore::options().clock(self.clock.clone()).open(&self.path).await.unwrap();
        store.next_wake(&[("test/graph".to_owned(), digest())]).await.unwrap();
        store
    }

    /// The process dies, with all that it holds.
    fn dies(&mut self, store: SqliteStore, held: Vec<Claimed>) {
        self.count += 1;
        die(&self.looks, &self.path, &format!("dead-{}", self.count));
        drop((held, store));
    }
}

async fn wake(store: &SqliteStore) -> Option<i64> {
    store.next_wake(&[("test/graph".to_owned(), digest())]).await.unwrap()
}

/// A worker writes that it resumes a run, and dies: these records do not make another place of the same one.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_die_at_one_place_are_counted_and_their_run_waits_longer_each_time() {
    let mut deaths = Deaths::new(&["run"]).await;
    let mut seq = 1;
    for dead in 0..12_u32 {
        let store = deaths.process().await;
        let pause = match dead {
            0 | 1 => 0,
            dead => 300_000.min(1000 << (dead - 2)),
        };
        if pause > 0 {
            assert!(claim(&store, 9).await.is_empty(), "{dead} deaths: it is not claimed at once");
            assert_eq!(wake(&store).await, Some(store.now().await.unwrap() + pause), "{dead} deaths");
        }
        deaths.clock.advance(Duration::from_millis(pause.unsigned_abs()));
        let claimed = claim(&store, 9).await;
        assert_eq!(claimed.iter().map(|one| one.tries).collect::<Vec<_>>(), [dead + 1]);
        store.append(&claimed[0].lease, seq, vec![resume(seq)], Status::Running).await.unwrap();
        seq += 1;
        deaths.dies(store, claimed);
    }
    // It makes progress, and dies once more.
    let store = deaths.process().await;
    deaths.clock.advance(Duration::from_secs(300));
    let claimed = claim(&store, 9).await;
    store.append(&claimed[0].lease, seq, vec![record(seq, 10)], Status::Running).await.unwrap();
    deaths.dies(store, claimed);
    let store = deaths.process().await;
    assert_eq!(claim(&store, 9).await[0].tries, 2, "the first one that died there");
}

/// A worker that is shut down before it continues a run gives it back, and that is no reason to trust it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_given_back_is_still_at_the_place_where_processes_died() {
    let mut deaths = Deaths::new(&["run"]).await;
    for dead in 0..6_u32 {
        let store = deaths.process().await;
        deaths.clock.advance(Duration::from_secs(300));
        for _ in 0..2 {
            let claimed = claim(&store, 9).await;
            assert_eq!(claimed.iter().map(|one| one.tries).collect::<Vec<_>>(), [dead + 1]);
            drop(claimed);
            store.inbox(&run()).await.expect("requests are done in order");
        }
        let claimed = claim(&store, 9).await;
        deaths.dies(store, claimed);
    }
    let store = deaths.process().await;
    deaths.clock.advance(Duration::from_secs(300));
    let claimed = claim(&store, 9).await;
    store.append(&claimed[0].lease, 1, vec![record(1, 10)], Status::Running).await.unwrap();
    drop(claimed);
    store.inbox(&run()).await.expect("requests are done in order");
    assert_eq!(claim(&store, 9).await[0].tries, 1, "it has made progress");
}

/// A run inside a run makes progress, and the journal of the outer one has nothing but `resume`: these are several places.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_inside_that_goes_on_is_no_place_where_processes_die() {
    let mut deaths = Deaths::new(&["run"]).await;
    for dead in 0..12_u64 {
        let store = deaths.process().await;
        let mut claimed = claim(&store, 9).await;
        assert_eq!(claimed.iter().map(|one| one.tries).collect::<Vec<_>>(), [if dead == 0 { 1 } else { 2 }], "{dead}");
        store.append(&claimed[0].lease, dead + 1, vec![resume(dead + 1)], Status::Running).await.unwrap();
        let (inside, seq, records) = match dead {
            0 => {
                let lease = store.create(&id("run-1"), "test/inner", vec![first_inside("run")]).await.unwrap();
                (lease, 1, vec![record(1, 10)])
            }
            _ => {
                let seq = dead * 2;
                (store.lease(&id("run-1")).await.unwrap(), seq, vec![resume(seq), record(seq + 1, 10)])
            }
        };
        store.append(&inside, seq, records, Status::Running).await.unwrap();
        claimed.push(Claimed::new(inside, 0, 0));
        deaths.dies(store, claimed);
    }
}

/// A run that kills its process takes the others with it twice or thrice, and is then continued apart from them. So those
/// that have done nothing wrong go on, and only that one is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_kills_its_processes_is_continued_apart_from_the_others() {
    let names: Vec<String> = (0..40).map(|number| format!("run-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for poison in [0, 20, 39] {
        let mut deaths = Deaths::new(&names).await;
        let (mut seqs, mut most, mut given_up) = (BTreeMap::new(), 0, false);
        for _ in 0..400 {
            let store = deaths.process().await;
            // A worker claims until nothing is left that it may continue now.
            let mut claimed = Vec::new();
            loop {
                let more = claim(&store, 16).await;
                if more.is_empty() {
                    break;
                }
                claimed.extend(more);
            }
            if claimed.is_empty() {
                assert!(
                    wake(&store).await.is_none_or(|at| at > unix_milliseconds(deaths.clock.now())),
                    "it is said when to look again"
                );
                let Some(at) = wake(&store).await else { break };
                deaths
                    .clock
                    .advance(Duration::from_millis(1 + (at - unix_milliseconds(deaths.clock.now())).unsigned_abs()));
                continue;
            }
            for one in &claimed {
                let seq = seqs.entry(one.lease.run().clone()).or_insert(1);
                store.append(&one.lease, *seq, vec![resume(*seq)], Status::Running).await.unwrap();
                *seq += 1;
            }
            match claimed.iter().find(|one| one.lease.run().as_str() == names[poison]) {
                Some(one) if one.tries > 10 => {
                    let (lease, seq) = (&one.lease, seqs[one.lease.run()]);
                    store.append(lease, seq, vec![record(seq, 9)], Status::Error).await.unwrap();
                    given_up = true;
                }
                // All calls take longer than this one, which kills the process.
                Some(_) => {
                    deaths.dies(store, claimed);
                    continue;
                }
                None => {}
            }
            for one in claimed.iter().filter(|one| one.lease.run().as_str() != names[poison]) {
                most = most.max(one.tries);
                let seq = seqs[one.lease.run()];
                store.append(&one.lease, seq, vec![record(seq, 9)], Status::Completed).await.unwrap();
            }
        }
        let store = deaths.process().await;
        let left = store.list().await.unwrap().iter().filter(|run| !run.status.has_ended()).count();
        assert!(given_up && left == 0, "{left} runs have not ended");
        assert!(most <= 4, "a run that kills nothing was continued behind {} deaths", most - 1);
        assert_eq!(deaths.count, 10);
    }
}

/// While a worker continues a suspect, the next time to look is that of a run that it may claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_does_not_look_for_runs_that_it_may_not_claim() {
    let mut deaths = Deaths::new(&["one", "two"]).await;
    for _ in 0..3 {
        let store = deaths.process().await;
        deaths.clock.advance(Duration::from_secs(9));
        let mut claimed = claim(&store, 9).await;
        claimed.extend(claim(&store, 9).await);
        assert_eq!(claimed.len(), 2);
        deaths.dies(store, claimed);
    }
    let store = deaths.process().await;
    deaths.clock.advance(Duration::from_secs(9));
    let mut claimed = claim(&store, 9).await;
    assert_eq!((claimed.len(), claim(&store, 9).await.len()), (1, 0), "one without the other");
    assert_eq!(wake(&store).await, None);
    let other = deaths.process().await;
    assert!(wake(&other).await.is_some(), "another process may");
    let (first, wait) = (claimed.pop().unwrap(), Wait::new(WaitId::of_visit(1), "pause", 9, None));
    let waits = WaitChanges { open: vec![wait], ..WaitChanges::default() };
    store.append_waiting(&first.lease, 1, vec![record(1, 9)], Status::Waiting, waits).await.unwrap();
    assert_eq!(claim(&store, 9).await.len(), 1, "the next one");
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
    fs::remove_file(lock_path(&path, holder.shared.own_name())).unwrap();
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

//! The open waits in a file, and random histories of several runs whose waits are listed from a file and from memory.

use graph_engine::store::{Ask, MemoryStore, Wait, WaitId, WaitRow};

use super::signals::{Chance, History, both, chosen};
use super::*;

async fn open_waits(store: &impl Store, filter: &WaitFilter, size: usize) -> WaitPage {
    store.open_waits(filter, &Page { size, after: None }).await.unwrap()
}

#[tokio::test]
async fn older_files_gain_what_waits_ask() {
    for form in 3..6 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        form::make(&path).unwrap();
        let mut old = connect(&path, Duration::ZERO).unwrap();
        prepare_with(&mut old, &path, &SqliteStore::options().patience, &MIGRATIONS[..form]).unwrap();
        let insert =
            "INSERT INTO runs (number, id, graph, status, token, holder) VALUES (4, 'run', 'test/graph', ?1, 1, '')";
        old.execute(insert, [if form == 5 { "waiting" } else { "running" }]).unwrap();
        old.execute("INSERT INTO records VALUES (4 << 32, '{}', ?1, ?2)", ([7; 64], [9; 32])).unwrap();
        let mut expected = Vec::new();
        if form == 5 {
            old.execute("INSERT INTO waits VALUES (4, '2#1', 'pause', 10, 20, '[\"paid\"]')", []).unwrap();
            let wait = Wait::new(WaitId::of_visit(2), "pause", 10, Some(20)).listening(vec!["paid".to_owned()]);
            expected.push(WaitRow::new(run(), "test/graph", wait));
        }
        drop(old);
        let (all, asks) = (WaitFilter::default(), WaitFilter { asks: true, ..WaitFilter::default() });
        let read = SqliteStore::open_read_only(&path).await.unwrap();
        assert_eq!(open_waits(&read, &all, 9).await.waits, expected, "also where it is only read");
        assert_eq!(open_waits(&read, &asks, 9).await.waits, []);
        drop(read);
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(open_waits(&store, &all, 9).await.waits, expected);
        let asking = Wait::new(WaitId::of_visit(3), "ask", 9, None).asking(Ask::new(Some("a".to_owned()), 2, "{}"));
        let (lease, waits) =
            (store.lease(&run()).await.unwrap(), WaitChanges { open: vec![asking.clone()], ..WaitChanges::default() });
        store.append_waiting(&lease, 1, vec![record(1, 9)], Status::Waiting, waits).await.unwrap();
        drop((lease, store));
        let read = SqliteStore::open_read_only(&path).await.unwrap();
        assert_eq!(open_waits(&read, &asks, 9).await.waits, [WaitRow::new(run(), "test/graph", asking)]);
        let version: i64 =
            Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, FORM);
    }
}

/// Pages of a large inbox: SQLite reads no more than the page, and sorts nothing.
#[tokio::test]
async fn waits_that_ask_are_read_from_an_index_and_never_sorted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let connection = connect(&path, Duration::ZERO).unwrap();
    let asks = WaitFilter { asks: true, ..WaitFilter::default() };
    let role = Some("finance".to_owned());
    let place = || WaitPlace::read(&Cursor::new("10 4 2#1")).unwrap();
    for (filter, after, plan) in [
        (asks.clone(), None, "SCAN waits USING INDEX waits_asking"),
        (asks.clone(), Some(place()), "SEARCH waits USING INDEX waits_asking ((opened,run,id)>(?,?,?))"),
        (WaitFilter { graph: role.clone(), ..asks.clone() }, None, "SCAN waits USING INDEX waits_asking"),
        (WaitFilter { role: role.clone(), ..asks.clone() }, None, "SEARCH waits USING INDEX waits_of_role (role=?)"),
        (
            WaitFilter { role, asks: false, ..asks.clone() },
            Some(place()),
            "SEARCH waits USING INDEX waits_of_role (role=? AND (opened,run,id)>(?,?,?))",
        ),
    ] {
        let (text, values) = read::waits_query(&filter, after, 100);
        let steps = steps(&connection, &text, values);
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{filter:?}: {steps:?}");
        assert_eq!(steps, [plan, "SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"], "{filter:?}");
    }
    let (text, values) = read::waits_query(&WaitFilter { run: Some(run()), ..asks }, None, 100);
    let steps = steps(&connection, &text, values);
    assert!(steps.iter().any(|step| step.starts_with("SEARCH waits USING PRIMARY KEY (run=?)")), "{steps:?}");
}

/// A listing of which a page is read now and then.
struct Listing {
    filter: WaitFilter,
    size: usize,
    /// The places in both stores.
    after: [Option<Cursor>; 2],
}

impl Listing {
    fn new(chance: &mut Chance, runs: &[History<'_>]) -> Self {
        let filter = WaitFilter {
            graph: chance.one_in(4).then(|| "test/graph".to_owned()),
            run: runs.first().filter(|_| chance.one_in(6)).map(|history| history.run.clone()),
            asks: chance.one_in(2),
            role: chance.one_in(3).then(|| chance.one_of(&["a", "\0", "nobody"]).to_owned()),
            due_before: chance.one_in(6).then_some(1_000_000_000),
            signal: chance.one_in(6).then(|| chance.one_of(&["a", "1#1", ""]).to_owned()),
        };
        let size = usize::try_from(1 + chance.below(5)).unwrap();
        Self { filter, size, after: [None, None] }
    }

    /// Reads a page from both stores, and returns its length.
    async fn read(&mut self, memory: &MemoryStore, file: &SqliteStore) -> u64 {
        let [in_memory, in_file] = self.after.clone().map(|after| Page { size: self.size, after });
        let memory = memory.open_waits(&self.filter, &in_memory).await.unwrap();
        let file = file.open_waits(&self.filter, &in_file).await.unwrap();
        assert_eq!(memory.waits, file.waits, "{:?}", self.filter);
        assert_eq!(memory.next.is_some(), file.next.is_some(), "{:?}", self.filter);
        self.after = [memory.next, file.next];
        file.waits.len() as u64
    }
}

/// `HISTORIES` is the number of runs, 250 by default; `SEED` selects others.
#[tokio::test]
async fn a_file_and_the_memory_list_the_same_waits() {
    let (histories, mut chance) = chosen(250);
    let directory = tempfile::tempdir().unwrap();
    let (clock, memory, file) = both(&directory.path().join("runs.db")).await;
    let (mut runs, mut began, mut listed, mut behind) = (Vec::new(), 0, 0, 0);
    let mut listing = Listing::new(&mut chance, &runs);
    while began < histories || !runs.is_empty() {
        if runs.len() < 5 && began < histories {
            // The memory orders waits of one time by the ids of their runs, and the file by the age of their runs.
            let run = id(&format!("run-{began:09}"));
            let mut history = History::new(&memory, &file, &clock, &mut chance, run);
            history.begin().await;
            runs.push(history);
            began += 1;
        }
        let at = usize::try_from(chance.below(runs.len() as u64)).unwrap();
        if chance.one_in(20) {
            runs.swap_remove(at).end().await;
        } else {
            runs[at].operate().await;
        }
        if listing.after[0].is_none() {
            listing = Listing::new(&mut chance, &runs);
        } else {
            behind += 1;
        }
        listed += listing.read(&memory, &file).await;
    }
    println!("{listed} waits were listed, and {behind} pages began behind another");
    assert!(
        histories < 100 || (listed > 4 * histories && behind > 2 * histories),
        "the histories show nothing: {listed}, {behind}"
    );
}

/// Prints how long a page takes of a store with 100,000 runs that wait and ask: `cargo test --release -p state-graph-sqlite
/// large_inbox -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures, and takes a minute"]
async fn a_page_of_a_large_inbox_is_quick() {
    const RUNS: i64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    lose_no_power(&store);
    let began = Instant::now();
    for first in (0..RUNS).step_by(500) {
        let one = |number: i64| {
            let store = store.clone();
            tokio::spawn(async move {
                let lease =
                    store.create(&id(&format!("run-{number}")), "test/graph", vec![record(0, 300)]).await.unwrap();
                // One in a thousand asks the rare role.
                let role = if number % 1_000 == 999 { "rare" } else { "finance" };
                let ask = Ask::new(Some(role.to_owned()), 1, "x".repeat(500));
                let wait = Wait::new(WaitId::of_visit(1), "approve", RUNS - number, None);
                let wait = wait.listening(vec!["approve#1".to_owned()]).asking(ask);
                let waits = WaitChanges { open: vec![wait], ..WaitChanges::default() };
                store.append_waiting(&lease, 1, vec![record(1, 300)], Status::Waiting, waits).await.unwrap();
            })
        };
        let all: Vec<_> = (first..first + 500).map(one).collect();
        for one in all {
            one.await.unwrap();
        }
    }
    println!("made in {:.0?}", began.elapsed());
    drop(store);
    println!("{} MB", fs::metadata(&path).unwrap().len() / 1_000_000);
    let all = WaitFilter::default();
    for (name, filter) in [
        ("that ask", WaitFilter { asks: true, ..all.clone() }),
        ("of a role that most ask", WaitFilter { role: Some("finance".to_owned()), ..all.clone() }),
        ("of a rare role", WaitFilter { role: Some("rare".to_owned()), ..all.clone() }),
        ("of a graph that has none", WaitFilter { graph: Some("other".to_owned()), asks: true, ..all.clone() }),
        ("of a run", WaitFilter { run: Some(id("run-5")), ..all.clone() }),
        ("without a filter", all),
    ] {
        // A store that was opened just now has read nothing of the file.
        let store = SqliteStore::open(&path).await.unwrap();
        let mut times = Vec::new();
        for _ in 0..21 {
            let began = Instant::now();
            let found = open_waits(&store, &filter, 100).await;
            times.push(began.elapsed());
            assert!(found.waits.len() <= 100);
        }
        let first = times[0];
        times.sort_unstable();
        println!("100 waits {name}: {first:.1?} the first time, then {:.1?}", times[10]);
    }
}

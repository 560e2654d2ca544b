//! Signals in a file, and random histories of a run with signals in a file and in memory.

use std::fmt::Write as _;
use std::time::SystemTime;

use graph_engine::Sleeping;
use graph_engine::store::{Ask, MemoryStore, SignalPlace, Wait, WaitId, conformance};
use graph_model::timestamp::from_unix_milliseconds;

use super::*;

/// A clock that can be set: its time of day and its monotonic time, in milliseconds.
#[derive(Debug)]
pub(super) struct SetClock(Mutex<(i64, u64)>);

impl SetClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((1_000_000_000, 0))))
    }

    fn pass(&self, time: u64) {
        let mut now = locked(&self.0);
        *now = (now.0 + i64::try_from(time).unwrap(), now.1 + time);
    }

    fn jump(&self, time: i64) {
        locked(&self.0).0 += time;
    }
}

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        from_unix_milliseconds(locked(&self.0).0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(locked(&self.0).1)
    }

    fn sleep(&self, _: Duration) -> Sleeping<'_> {
        Box::pin(std::future::pending())
    }
}

pub(super) async fn open(path: &Path, clock: &Arc<SetClock>) -> SqliteStore {
    SqliteStore::options().clock(Arc::clone(clock) as Arc<dyn Clock>).open(path).await.unwrap()
}

fn seal() -> SealSignal {
    Arc::new(|SignalPlace { order, at }| Ok(format!("{order} at {at}")))
}

async fn receive(store: &impl Store, name: &str, id: &str) -> Received {
    store.receive(&run(), Signal::new(name, id, "payload"), seal()).await.unwrap()
}

async fn accepted(store: &impl Store, id: &str) -> SignalPlace {
    match receive(store, "a", id).await {
        Received::Accepted(place) => place,
        already => panic!("{already:?}"),
    }
}

fn digest() -> Digest {
    Digest::of("graph")
}

fn first(digest: Digest, parent: &str) -> SignedRecord {
    SignedRecord { body: format!("{{\"digest\":\"{digest}\"{parent}}}"), ..record(0, 0) }
}

fn listening(step: u64, due: Option<i64>, names: &[&str]) -> Wait {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Wait::new(WaitId::of_visit(step), "node", 0, due).listening(names)
}

async fn next_wake(store: &impl Store, digest: Digest) -> Option<i64> {
    // A store may show in any way that a run can continue at once.
    store.next_wake(&[("test/graph".to_owned(), digest)]).await.unwrap().map(|at| at.max(0))
}

#[tokio::test]
async fn signals_are_there_after_a_reopen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let clock = SetClock::new();
    let store = open(&path, &clock).await;
    let lease = store.create(&run(), "test/graph", vec![first(digest(), "")]).await.unwrap();
    let place = accepted(&store, "1").await;
    let later = accepted(&store, "2").await;
    let waits = WaitChanges { open: vec![listening(1, None, &["a"])], take: vec![1], ..WaitChanges::default() };
    store.append_waiting(&lease, 1, vec![record(1, 9)], Status::Waiting, waits).await.unwrap();
    drop((lease, store));
    let looks = Connection::open(&path).unwrap();
    let kept: Vec<(String, String, i64)> = looks
        .prepare("SELECT payload, receipt, taken FROM signals ORDER BY key")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let untaken = ("payload".to_owned(), format!("2 at {}", later.at), 0);
    assert_eq!(kept, [(String::new(), String::new(), 1), untaken], "a payload that was taken is not kept");
    drop(looks);
    // The clock was set back while nobody had the file open.
    clock.jump(-10_000_000);
    let store = open(&path, &clock).await;
    assert_eq!(next_wake(&store, digest()).await, Some(0));
    assert_eq!(receive(&store, "a", "1").await, Received::Already { place, taken: true });
    assert_eq!(receive(&store, "a", "2").await, Received::Already { place: later, taken: false });
    let other = store.receive(&run(), Signal::new("a", "1", "other"), seal()).await;
    assert!(matches!(other, Err(StoreError::OtherSignal { .. })), "{other:?}");
    let next = accepted(&store, "3").await;
    assert!(next.order == 3 && next.at >= later.at, "{next:?}");
    let found = store.inbox(&run()).await.unwrap();
    assert_eq!(found.signals.iter().map(|signal| signal.place).collect::<Vec<_>>(), [later, next]);
    assert!(found.at >= next.at);
}

#[tokio::test]
async fn times_of_signals_never_fall_whatever_the_clock_does() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SetClock::new();
    let store = open(&directory.path().join("runs.db"), &clock).await;
    conformance::places_never_fall(&store, || clock.jump(-3_600_000)).await;
}

#[tokio::test]
async fn a_store_with_a_slow_clock_receives_no_earlier_signal() {
    for looks in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let (early, late) = (SetClock::new(), SetClock::new());
        late.jump(3_600_000);
        let (early, late) = (open(&path, &early).await, open(&path, &late).await);
        let _lease = early.create(&run(), "test/graph", vec![first(digest(), "")]).await.unwrap();
        let at = if looks { late.inbox(&run()).await.unwrap().at } else { accepted(&late, "1").await.at };
        assert!(at > early.now().await.unwrap());
        assert_eq!(accepted(&early, "2").await.at, at, "the other store recorded its time");
    }
}

#[tokio::test]
async fn stores_with_different_clocks_agree_on_the_order_of_signals() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (early, late) = (SetClock::new(), SetClock::new());
    late.jump(3_600_000);
    let stores = [open(&path, &early).await, open(&path, &late).await];
    let lease = stores[0].create(&run(), "test/graph", vec![first(digest(), "")]).await.unwrap();
    let mut last = i64::MIN;
    for round in 0..6 {
        for (number, store) in stores.iter().enumerate() {
            let at = store.inbox(&run()).await.unwrap().at;
            assert!(at >= last);
            let other = &stores[1 - number];
            let place = accepted(other, &format!("{round}-{number}")).await;
            assert_eq!(place.order, round * 2 + number as u64 + 1);
            assert!(place.at >= at, "who looked before knows that no later signal is earlier");
            last = place.at;
        }
    }
    // A signal that one of them receives wakes the workers of the other.
    let seen = stores[1].news(0).await.unwrap();
    let due = last + 1_000_000;
    let waits = WaitChanges { open: vec![listening(1, Some(due), &["b"])], ..WaitChanges::default() };
    stores[0].append_waiting(&lease, 1, vec![record(1, 9)], Status::Waiting, waits).await.unwrap();
    assert_eq!(next_wake(&stores[1], digest()).await, Some(due));
    assert!(matches!(receive(&stores[0], "b", "b").await, Received::Accepted(_)));
    stores[1].news(seen).await.unwrap();
    assert_eq!(next_wake(&stores[1], digest()).await, Some(0));
    let claimed = stores[1].claim(&Claim::new("test/graph", digest(), 9)).await.unwrap();
    let take = WaitChanges { take: vec![13], ..WaitChanges::default() };
    let lease = &claimed[0].lease;
    stores[1].append_waiting(lease, 2, vec![record(2, 9)], Status::Waiting, take).await.unwrap();
    assert_eq!(next_wake(&stores[0], digest()).await, Some(due), "it was taken, and the wait is open");
    assert_eq!(stores[0].inbox(&run()).await.unwrap().signals.len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_senders_of_two_stores_leave_no_gaps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let stores = [SqliteStore::open(&path).await.unwrap(), SqliteStore::open(&path).await.unwrap()];
    let _lease = stores[0].create(&run(), "test/graph", vec![first(digest(), "")]).await.unwrap();
    let send = |sender: usize| {
        let store = stores[sender % 2].clone();
        tokio::spawn(async move {
            let mut accepted = Vec::new();
            for at in 0..10 {
                // Each signal has two senders.
                let received = receive(&store, "a", &format!("{}-{at}", sender / 2)).await;
                accepted.extend(match received {
                    Received::Accepted(place) => Some(place),
                    Received::Already { .. } => None,
                });
            }
            accepted
        })
    };
    let senders: Vec<_> = (0..16).map(send).collect();
    let mut places = Vec::new();
    for sender in senders {
        places.extend(sender.await.unwrap());
    }
    places.sort_unstable();
    assert!(places.iter().map(|place| place.order).eq(1..=80), "{places:?}");
    assert!(places.is_sorted_by_key(|place| place.at), "{places:?}");
    for store in &stores {
        let found = store.inbox(&run()).await.unwrap().signals;
        assert!(found.iter().map(|signal| signal.place).eq(places.iter().copied()));
        let receipts = found.iter().map(|signal| &signal.receipt);
        assert!(
            receipts.eq(&places.iter().map(|place| format!("{} at {}", place.order, place.at)).collect::<Vec<_>>())
        );
    }
}

#[tokio::test]
async fn many_signals_of_a_removed_run_are_deleted_also_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let lease = store.create(&run(), "test/graph", vec![first(digest(), "")]).await.unwrap();
    for at in 0..600 {
        accepted(&store, &at.to_string()).await;
    }
    let take = WaitChanges { take: (1..=300).collect(), ..WaitChanges::default() };
    store.append_waiting(&lease, 1, vec![record(1, 9)], Status::Completed, take).await.unwrap();
    drop(lease);
    // The run is hidden, and then the process died.
    let seen = vec![(1, 1)];
    assert!(matches!(store.ask(WriteTask::Hide { run: run(), seen }).await, Ok(WriteOutcome::Well)));
    assert!(matches!(store.inbox(&run()).await, Err(StoreError::NotFound(_))));
    let lease = store.create(&run(), "test/graph", vec![first(digest(), "")]).await.unwrap();
    assert_eq!(accepted(&store, "1").await.order, 1);
    let count = |sql: &str| -> i64 { Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM signals"), 601);
    while let WriteOutcome::Raced = store.ask(WriteTask::Sweep).await.unwrap() {}
    assert_eq!(count("SELECT count(*) FROM signals"), 1);
    assert_eq!(count("SELECT count(*) FROM runs"), 1);
    store.append(&lease, 1, vec![record(1, 9)], Status::Completed).await.unwrap();
    store.remove(&run()).await.unwrap();
    assert_eq!(count("SELECT count(*) FROM signals"), 0);
}

#[tokio::test]
async fn a_store_that_is_only_read_receives_no_signals() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let _lease = store.create(&run(), "test/graph", vec![first(digest(), "")]).await.unwrap();
    let reads = SqliteStore::open_read_only(&path).await.unwrap();
    let refused = reads.receive(&run(), Signal::new("a", "1", ""), seal()).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly { .. })), "{refused:?}");
    assert!(matches!(reads.inbox(&run()).await, Err(StoreError::ReadOnly { .. })));
}

#[tokio::test]
async fn signals_are_found_by_indexes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let connection = connect(&path, Duration::ZERO).unwrap();
    let condition = format!("SELECT number FROM runs WHERE number = 1 AND {}", crate::signals::IS_ACCEPTED);
    for (query, expected) in [
        (
            condition.as_str(),
            [
                "SEARCH signals EXISTS USING COVERING INDEX signals_untaken (run=?)",
                "SEARCH waits USING PRIMARY KEY (run=?)",
                "SEARCH signals USING COVERING INDEX signals_untaken (run=? AND name=?",
            ]
            .as_slice(),
        ),
        (
            "SELECT count(*), coalesce(sum(size), 0) FROM signals WHERE run = 1 AND taken = 0",
            &["SEARCH signals USING COVERING INDEX signals_untaken (run=?)"],
        ),
        (
            "SELECT key, at, name, id, payload, receipt FROM signals INDEXED BY signals_untaken WHERE run = 1 AND taken = 0 ORDER BY key",
            &["SEARCH signals USING INDEX signals_untaken (run=?)"],
        ),
        (
            "SELECT key, at, digest, taken FROM signals WHERE run = 1 AND id = 'x'",
            &["SEARCH signals USING INDEX signals_by_id (run=? AND id=?)"],
        ),
    ] {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        for step in expected {
            assert!(steps.iter().any(|found| found.starts_with(step)), "{query}: {step}: {steps:?}");
        }
        assert!(
            !steps.iter().any(|step| step.starts_with("SCAN signals") || step.starts_with("SCAN waits")),
            "{steps:?}"
        );
    }
}

/// Random numbers.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    pub(super) fn one_in(&mut self, most: u64) -> bool {
        self.below(most) == 0
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// One run in both stores.
pub(super) struct History<'a> {
    memory: &'a MemoryStore,
    file: &'a SqliteStore,
    clock: &'a SetClock,
    chance: Chance,
    pub(super) run: RunId,
    digest: Digest,
    /// The leases of the run in both stores.
    leases: Option<(Lease, Lease)>,
    /// The number of records and of signals.
    records: u64,
    signals: u64,
    /// The operations so far.
    text: String,
}

const NAMES: [&str; 4] = ["a", "b", "\0", "\"ü'"];
const IDS: [&str; 8] = ["1", "2", "3", "4", "5", "6", "a\0", "a"];

/// Shows the outcome of an operation without the words that depend on the store.
fn shown<T: std::fmt::Debug>(outcome: &Result<T, StoreError>) -> String {
    match outcome {
        Ok(outcome) => format!("{outcome:?}"),
        Err(StoreError::Leased { .. }) => "leased".to_owned(),
        Err(error) => error.to_string(),
    }
}

impl<'a> History<'a> {
    /// A run that has not begun.
    pub(super) fn new(
        memory: &'a MemoryStore,
        file: &'a SqliteStore,
        clock: &'a SetClock,
        chance: &mut Chance,
        run: RunId,
    ) -> Self {
        let (chance, digest) = (Chance(chance.below(u64::MAX) | 1), Digest::of(run.as_str()));
        let (leases, text) = (None, String::new());
        Self { memory, file, clock, chance, run, digest, leases, records: 1, signals: 0, text }
    }

    fn same<T: std::fmt::Debug>(&mut self, memory: &Result<T, StoreError>, file: &Result<T, StoreError>) {
        let (memory, file) = (shown(memory), shown(file));
        writeln!(self.text, "    {memory}").unwrap();
        assert_eq!(file, memory, "of the file and of the memory, after:\n{}", self.text);
    }

    fn names(&mut self) -> Vec<&'static str> {
        (0..self.chance.below(3)).map(|_| self.chance.one_of(&NAMES)).collect()
    }

    /// A time near that of the store.
    fn near(&mut self, now: i64) -> i64 {
        now + i64::try_from(self.chance.below(7)).unwrap() - 3
    }

    pub(super) async fn begin(&mut self) {
        let parent = if self.chance.one_in(12) { ",\"parent\":{\"run\":\"outer\"}" } else { "" };
        let records = vec![first(self.digest, parent)];
        let memory = self.memory.create(&self.run, "test/graph", records.clone()).await.unwrap();
        let file = self.file.create(&self.run, "test/graph", records).await.unwrap();
        writeln!(self.text, "begin {parent}").unwrap();
        self.leases = Some((memory, file));
    }

    pub(super) async fn operate(&mut self) {
        let now = self.memory.now().await.unwrap();
        match (self.chance.below(20), self.leases.is_some()) {
            (0..4, _) => self.receive().await,
            (4..8, true) => self.append(now).await,
            (8, true) => {
                writeln!(self.text, "release").unwrap();
                self.leases = None;
                // Requests are done in their order.
                self.inbox().await;
            }
            (9, true) => {
                let until = self.near(now);
                writeln!(self.text, "postpone until {until}").unwrap();
                let (memory, file) = self.leases.take().unwrap();
                self.memory.postpone(memory, until).await.unwrap();
                self.file.postpone(file, until).await.unwrap();
            }
            (4..8, false) => self.claim().await,
            (10, _) | (8..10, false) => self.lease().await,
            (11, _) => self.inbox().await,
            (12, _) => {
                writeln!(self.text, "cancel").unwrap();
                let (memory, file) = (self.memory.cancel(&self.run).await, self.file.cancel(&self.run).await);
                self.same(&memory, &file);
            }
            (13..15, true) => self.append(now).await,
            (13..15, false) => self.claim().await,
            _ => self.pass().await,
        }
    }

    async fn pass(&mut self) {
        if self.chance.one_in(8) {
            let by = i64::try_from(self.chance.below(9)).unwrap() - 4;
            writeln!(self.text, "the clock is set by {by}").unwrap();
            self.clock.jump(by);
        } else {
            let time = self.chance.below(3);
            writeln!(self.text, "{time} ms pass").unwrap();
            self.clock.pass(time);
        }
        // Both have seen the clock at the same times, so their times are the same.
        let (memory, file) = (self.memory.now().await, self.file.now().await);
        self.same(&memory, &file);
    }

    async fn receive(&mut self) {
        let [name, id] = [self.chance.one_of(&NAMES), self.chance.one_of(&IDS)];
        let payload = if self.chance.one_in(6) { "2" } else { "1" };
        let signal = Signal::new(name, id, payload);
        writeln!(self.text, "receive {signal:?}").unwrap();
        let memory = self.memory.receive(&self.run, signal.clone(), seal()).await;
        let file = self.file.receive(&self.run, signal, seal()).await;
        self.same(&memory, &file);
        self.signals += u64::from(matches!(memory, Ok(Received::Accepted(_))));
    }

    async fn inbox(&mut self) {
        writeln!(self.text, "inbox").unwrap();
        let (memory, file) = (self.memory.inbox(&self.run).await, self.file.inbox(&self.run).await);
        self.same(&memory, &file);
    }

    async fn lease(&mut self) {
        let ignores = self.chance.one_in(4);
        writeln!(self.text, "lease, ignoring cancels: {ignores}").unwrap();
        let (memory, file) = if ignores {
            (self.memory.lease_ignoring_cancel(&self.run).await, self.file.lease_ignoring_cancel(&self.run).await)
        } else {
            (self.memory.lease(&self.run).await, self.file.lease(&self.run).await)
        };
        self.leased(memory, file);
    }

    fn leased(&mut self, memory: Result<Lease, StoreError>, file: Result<Lease, StoreError>) {
        let facts = |lease: &Lease| (lease.run().to_string(), lease.token(), lease.cancel_request().is_set());
        match (memory, file) {
            (Ok(memory), Ok(file)) => {
                self.same(&Ok(facts(&memory)), &Ok(facts(&file)));
                self.leases = Some((memory, file));
            }
            (memory, file) => self.same(&memory.map(|lease| facts(&lease)), &file.map(|lease| facts(&lease))),
        }
    }

    async fn claim(&mut self) {
        writeln!(self.text, "claim").unwrap();
        let claim = Claim::new("test/graph", self.digest, 2);
        let (mut memory, mut file) = (self.memory.claim(&claim).await.unwrap(), self.file.claim(&claim).await.unwrap());
        let tries = |claimed: &[Claimed]| claimed.iter().map(|one| (one.tries, one.postponed)).collect::<Vec<_>>();
        self.same(&Ok(tries(&memory)), &Ok(tries(&file)));
        if let (Some(memory), Some(file)) = (memory.pop(), file.pop()) {
            self.leased(Ok(memory.lease), Ok(file.lease));
        }
    }

    async fn append(&mut self, now: i64) {
        let expected = if self.chance.one_in(12) { self.records + 1 } else { self.records };
        let records = if self.chance.one_in(3) { Vec::new() } else { vec![record(expected, 3)] };
        let status = match self.chance.below(12) {
            0 => self.chance.one_of(&[Status::Completed, Status::CompletedWithErrors]),
            1 | 2 => self.chance.one_of(&[Status::Error, Status::Cancelled]),
            3..7 => Status::Waiting,
            _ => Status::Running,
        };
        let mut waits = WaitChanges::default();
        for _ in 0..self.chance.below(3) {
            let due = (!self.chance.one_in(3)).then(|| self.near(now));
            let names = self.names();
            let mut wait = listening(self.chance.below(4), due, &names);
            wait.opened = i64::try_from(self.chance.below(4)).unwrap();
            wait.ask = (!self.chance.one_in(3)).then(|| {
                let role = (!self.chance.one_in(3)).then(|| self.chance.one_of(&NAMES).to_owned());
                Ask::new(role, 1, self.chance.below(9).to_string())
            });
            waits.open.push(wait);
        }
        waits.close.extend((0..self.chance.below(2)).map(|_| WaitId::of_visit(self.chance.below(4))));
        // Most often, the first signals that nobody took.
        let untaken = self.memory.inbox(&self.run).await.unwrap().signals;
        let count = usize::try_from(self.chance.below(3)).unwrap();
        waits.take.extend(untaken.iter().take(count).map(|signal| signal.place.order));
        if self.chance.one_in(6) {
            waits.take.push(self.chance.below(self.signals + 2));
        }
        writeln!(self.text, "append to {expected}: {} records, {status:?}, {waits:?}", records.len()).unwrap();
        let Some((memory_lease, file_lease)) = &self.leases else { return };
        let memory = self.memory.append_waiting(memory_lease, expected, records.clone(), status, waits.clone()).await;
        let added = records.len() as u64;
        let file = self.file.append_waiting(file_lease, expected, records, status, waits).await;
        let requests = [memory_lease, file_lease].map(|lease| lease.cancel_request().is_set());
        assert_eq!(requests[0], requests[1], "{}", self.text);
        self.same(&memory, &file);
        if memory.is_ok() {
            self.records += added;
            if status != Status::Running {
                self.leases = None;
            }
        }
    }

    /// Compares what both stores show of the run.
    pub(super) async fn compare(&mut self) {
        let (memory, file) = (next_wake(self.memory, self.digest).await, next_wake(self.file, self.digest).await);
        self.same(&Ok(memory), &Ok(file));
        let facts = |found: RunSummary| {
            (found.status, found.records, found.next_due, found.holder.is_some(), found.is_cancelling, found.code)
        };
        let (memory, file) = (self.memory.find(&self.run).await, self.file.find(&self.run).await);
        self.same(&memory.map(facts), &file.map(facts));
    }

    pub(super) async fn end(mut self) {
        self.leases = None;
        // Requests are done in their order.
        self.inbox().await;
        self.compare().await;
        let (memory, file) = (self.memory.remove(&self.run).await, self.file.remove(&self.run).await);
        self.same(&memory, &file);
        self.inbox().await;
    }
}

/// Returns how many histories there are, by default or as `HISTORIES` says, and the numbers that `SEED` selects.
pub(super) fn chosen(default: u64) -> (u64, Chance) {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    (number("HISTORIES", default), Chance(number("SEED", 1) * 2 + 1))
}

/// A clock, and two stores whose time is that of the clock.
pub(super) async fn both(path: &Path) -> (Arc<SetClock>, MemoryStore, SqliteStore) {
    let clock = SetClock::new();
    let memory = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let file = open(path, &clock).await;
    lose_no_power(&file);
    (clock, memory, file)
}

/// `HISTORIES` is the number of histories, 1,000 by default; `SEED` selects others.
#[tokio::test]
async fn a_file_and_the_memory_agree_on_random_histories() {
    let (histories, mut chance) = chosen(1_000);
    let directory = tempfile::tempdir().unwrap();
    let (clock, memory, file) = both(&directory.path().join("runs.db")).await;
    let mut woken = [0_u64; 3];
    for history in 0..histories {
        let mut history = History::new(&memory, &file, &clock, &mut chance, id(&format!("run-{history}")));
        history.begin().await;
        for _ in 0..4 + history.chance.below(24) {
            history.operate().await;
            history.compare().await;
            let found = memory.find(&history.run).await.unwrap();
            if found.status == Status::Waiting && found.holder.is_none() {
                let wake = next_wake(&memory, history.digest).await;
                woken[wake.map_or(0, |at| if at == 0 { 1 } else { 2 })] += 1;
            }
        }
        history.end().await;
    }
    println!("runs that waited: {} for nothing known, {} could continue, {} for a time", woken[0], woken[1], woken[2]);
    assert!(
        histories < 100 || woken.iter().all(|count| *count > histories / 10),
        "the histories show nothing: {woken:?}"
    );
}

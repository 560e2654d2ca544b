//! Listings: some of a store's runs or open waits, a page at a time.

use std::cmp::Reverse;
use std::time::SystemTime;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::value::Value;

use crate::graph::CompiledGraph;
use crate::record::SignedRecord;
use crate::status::Status;
use crate::store::error::StoreError;
use crate::store::lease::Holder;
use crate::store::waits::{Wait, WaitId};

/// The filter of a listing: a run is listed if it meets all conditions that are set. It is written with
/// `..RunFilter::default()`. Stores destructure it completely, because a store that overlooks a condition would list too
/// much; so it is not `#[non_exhaustive]`.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::store::{RunFilter, RunSummary, Within};
/// use graph_runtime::{RunId, Status};
///
/// let failed = RunFilter { statuses: vec![Status::Error], within: Within::TopLevel, ..RunFilter::default() };
/// let order = RunSummary::new(RunId::new("order-17")?, "shop/order", Status::Error);
/// assert!(failed.accepts(&order));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Runtime::runs`](crate::Runtime::runs) has an example that lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// The graph's id.
    pub graph: Option<String>,
    /// The version that the graph's author gave it.
    pub version: Option<String>,
    /// The graph's digest.
    pub digest: Option<Digest>,
    /// The digest of the graph's meaning.
    pub meaning: Option<Digest>,
    /// The pins of other runs: none of them is the [pin](RunSummary::pin) of a run that passes.
    pub not_pinned: Vec<Digest>,
    /// Their statuses; any status if empty.
    pub statuses: Vec<Status>,
    /// The run that they are inside of.
    pub within: Within,
    /// The run whose [tasks](RunSummary::owner) they are.
    pub owner: Option<RunId>,
}

/// The run that a run is inside of. Stores match it exhaustively, so it is not `#[non_exhaustive]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Within {
    /// Any run, or no run.
    #[default]
    Any,
    /// No other run.
    TopLevel,
    /// This run, directly.
    Run(RunId),
}

impl RunFilter {
    /// Whether a run passes the filter.
    pub fn accepts(&self, run: &RunSummary) -> bool {
        let within = match &self.within {
            Within::Any => true,
            Within::TopLevel => run.parent.is_none(),
            Within::Run(parent) => run.parent.as_ref() == Some(parent),
        };
        within
            && self.owner.as_ref().is_none_or(|owner| Some(owner) == run.owner.as_ref())
            && self.graph.as_ref().is_none_or(|graph| *graph == run.graph)
            && self.version.as_ref().is_none_or(|version| Some(version) == run.version.as_ref())
            && self.digest.as_ref().is_none_or(|digest| Some(digest) == run.digest.as_ref())
            && self.meaning.as_ref().is_none_or(|meaning| Some(meaning) == run.meaning.as_ref())
            && run.pin().is_none_or(|pin| !self.not_pinned.contains(&pin))
            && (self.statuses.is_empty() || self.statuses.contains(&run.status))
    }
}

/// The part of a listing that is asked for.
///
/// [`Runtime::runs`](crate::Runtime::runs) has an example that reads all pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The maximum number of entries.
    pub size: usize,
    /// The place after which it begins; by default, it begins with the first entry.
    pub after: Option<Cursor>,
}

impl Default for Page {
    /// The first 100.
    fn default() -> Self {
        Self { size: 100, after: None }
    }
}

/// A place in a listing, in a form of the store's own. It stays good while runs begin, end and are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// A cursor from a text by which a store finds its place again.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns its text, which [`Cursor::new`] reads back.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number that it was made from, for a store whose cursors are numbers.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadCursor`] if it is not a number.
    pub fn number(&self) -> Result<i64, StoreError> {
        self.0.parse().map_err(|_| StoreError::BadCursor(self.0.clone()))
    }
}

/// A part of a listing, the newest runs first.
///
/// [`RunPage::of`] has an example for stores, and [`Runtime::runs`](crate::Runtime::runs) one for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<RunSummary>,
    /// Where the next page begins; `None` if this is the last one.
    pub next: Option<Cursor>,
}

impl RunPage {
    /// Takes a page out of all runs of a store, for stores that have the summaries of all at hand, in any order. The newest
    /// are those that were [created](RunSummary::created) last; runs that were created at the same moment are ordered by
    /// their ids.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// use graph_runtime::store::{Page, RunFilter, RunPage, RunSummary};
    /// use graph_runtime::{RunId, Status};
    ///
    /// let order = |run: RunId| RunSummary::new(run, "shop/order", Status::Running);
    /// let runs = [order(RunId::new("order-17")?), order(RunId::new("order-18")?)];
    /// let page = RunPage::of(runs, &RunFilter::default(), &Page { size: 1, after: None })?;
    /// assert!(page.runs.len() == 1 && page.next.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::BadCursor`] if this function did not make the page's cursor.
    pub fn of(all: impl IntoIterator<Item = RunSummary>, filter: &RunFilter, page: &Page) -> Result<Self, StoreError> {
        let after = page.after.as_ref().map(ListPosition::read).transpose()?;
        let accepted = all.into_iter().filter(|run| filter.accepts(run));
        let (runs, last) = part(accepted, ListPosition::of, after.as_ref(), page.size);
        Ok(Self { runs, next: last.map(|last| last.cursor()) })
    }
}

/// Returns up to `size` entries behind a place, in the order of their places, and the place of the last one if more follow.
fn part<T, P: Ord>(
    all: impl Iterator<Item = T>,
    place: impl Fn(&T) -> P,
    after: Option<&P>,
    size: usize,
) -> (Vec<T>, Option<P>) {
    let mut found: Vec<T> = all.filter(|one| after.is_none_or(|after| *after < place(one))).collect();
    found.sort_by_cached_key(&place);
    let is_last = found.len() <= size;
    found.truncate(size);
    let last = found.last().filter(|_| !is_last).map(place);
    (found, last)
}

/// The place of a run in a list by age: a run that was created later is less.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ListPosition {
    /// Nanoseconds since 1970; 0 if that is not known.
    created: Reverse<u128>,
    run: RunId,
}

impl ListPosition {
    fn of(run: &RunSummary) -> Self {
        let since = run.created.and_then(|created| created.duration_since(SystemTime::UNIX_EPOCH).ok());
        Self { created: Reverse(since.map_or(0, |since| since.as_nanos())), run: run.run.clone() }
    }

    fn read(Cursor(text): &Cursor) -> Result<Self, StoreError> {
        let parts = text.split_once(' ');
        let place = parts.and_then(|(created, run)| {
            Some(Self { created: Reverse(created.parse().ok()?), run: RunId::new(run).ok()? })
        });
        place.ok_or_else(|| StoreError::BadCursor(text.clone()))
    }

    fn cursor(&self) -> Cursor {
        Cursor(format!("{} {}", self.created.0, self.run))
    }
}

/// The filter of a listing of open waits: a wait is listed if it meets all conditions that are set. It is written with
/// `..WaitFilter::default()`. As with [`RunFilter`], stores destructure it completely, so it is not `#[non_exhaustive]`.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::RunId;
/// use graph_runtime::store::{Ask, Wait, WaitFilter, WaitId, WaitRow};
///
/// let finance = WaitFilter { role: Some("finance".to_owned()), ..WaitFilter::default() };
/// let ask = Ask::new(Some("finance".to_owned()), 1, r#"{"amount":1200}"#);
/// let wait = Wait::new(WaitId::of_visit(3), "approve", 1_795_000_000_000, None).asking(ask);
/// assert!(finance.accepts(&WaitRow::new(RunId::new("order-17")?, "shop/order", wait)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitFilter {
    /// The graph's id.
    pub graph: Option<String>,
    /// The run.
    pub run: Option<RunId>,
    /// Whether only waits that ask are listed.
    pub asks: bool,
    /// The role that they ask.
    pub role: Option<String>,
    /// The time before which they are due.
    pub due_before: Option<i64>,
    /// The signal that they listen to, by the name that its graph gives it. A wait of a nested run listens to it with the path before
    /// the name.
    pub signal: Option<String>,
}

impl WaitFilter {
    /// Whether a wait passes the filter.
    pub fn accepts(&self, row: &WaitRow) -> bool {
        let Self { graph, run, asks, role, due_before, signal } = self;
        let ask = row.wait.ask.as_ref();
        graph.as_ref().is_none_or(|graph| *graph == row.graph)
            && run.as_ref().is_none_or(|run| *run == row.run)
            && (!asks || ask.is_some())
            && role.as_ref().is_none_or(|role| ask.and_then(|ask| ask.role.as_ref()) == Some(role))
            && due_before.is_none_or(|time| row.wait.due.is_some_and(|due| due < time))
            && signal.as_ref().is_none_or(|signal| row.wait.signals.iter().any(|heard| is_named(heard, signal)))
    }
}

/// Whether what a wait listens to is a signal of this name, of the run itself or of a nested one.
fn is_named(heard: &str, signal: &str) -> bool {
    heard.strip_suffix(signal).is_some_and(|path| path.is_empty() || path.ends_with('/'))
}

/// A wait in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitRow {
    /// The run that waits.
    pub run: RunId,
    /// The id of its graph.
    pub graph: String,
    /// The wait.
    pub wait: Wait,
}

impl WaitRow {
    /// A wait of a run.
    pub fn new(run: RunId, graph: impl Into<String>, wait: Wait) -> Self {
        Self { run, graph: graph.into(), wait }
    }
}

/// A part of a listing of open waits, those first that were opened first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitPage {
    /// The waits.
    pub waits: Vec<WaitRow>,
    /// Where the next page begins; `None` if this is the last one.
    pub next: Option<Cursor>,
}

impl WaitPage {
    /// Takes a page out of all open waits of a store, for stores that have all at hand, in any order. Waits that were opened at
    /// the same time are ordered by the ids of their runs, and those of one run by their own ids.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadCursor`] if this function did not make the page's cursor.
    pub fn of(all: impl IntoIterator<Item = WaitRow>, filter: &WaitFilter, page: &Page) -> Result<Self, StoreError> {
        let after = page.after.as_ref().map(WaitPosition::read).transpose()?;
        let accepted = all.into_iter().filter(|row| filter.accepts(row));
        let (waits, last) = part(accepted, WaitPosition::of, after.as_ref(), page.size);
        Ok(Self { waits, next: last.map(|last| last.cursor()) })
    }
}

/// The place of a wait in a list by age.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WaitPosition {
    opened: i64,
    run: RunId,
    id: WaitId,
}

impl WaitPosition {
    fn of(row: &WaitRow) -> Self {
        Self { opened: row.wait.opened, run: row.run.clone(), id: row.wait.id.clone() }
    }

    fn read(Cursor(text): &Cursor) -> Result<Self, StoreError> {
        let mut parts = text.splitn(3, ' ');
        let mut read = || {
            let (opened, run) = (parts.next()?.parse().ok()?, RunId::new(parts.next()?).ok()?);
            Some(Self { opened, run, id: WaitId::new(parts.next()?) })
        };
        read().ok_or_else(|| StoreError::BadCursor(text.clone()))
    }

    fn cursor(&self) -> Cursor {
        Cursor(format!("{} {} {}", self.opened, self.run, self.id))
    }
}

/// The part of a run's summary that comes from its journal's first record.
///
/// A store reads it when a run is created, and keeps it next to the journal, so that a list reads no journals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunStart {
    /// The run that it is inside of.
    pub parent: Option<RunId>,
    /// The run whose task it is.
    pub owner: Option<RunId>,
    /// The graph's digest.
    pub digest: Option<Digest>,
    /// The digest of the graph's meaning.
    pub meaning: Option<Digest>,
    /// The version that the graph's author gave it.
    pub version: Option<String>,
}

impl RunStart {
    /// Returns the digest by which [workers](crate::Store::claim) ask for the run: that of the meaning of its graph, or of the
    /// graph's text if the first record has no meaning.
    pub fn pin(&self) -> Option<Digest> {
        self.meaning.or(self.digest)
    }

    /// Reads the first of a journal's records. Fields that cannot be read are left out; verifying the journal finds the
    /// mistake.
    pub fn of(records: &[SignedRecord]) -> Self {
        let start = records.first().map(members).unwrap_or_default();
        let text = |at: &str| start.pointer(at).and_then(Value::as_str);
        let run = |at: &str| RunId::new(text(at)?).ok();
        let digest = |at: &str| text(at)?.parse().ok();
        Self {
            parent: run("/parent/run"),
            owner: run("/task/owner"),
            digest: digest("/digest"),
            meaning: digest("/meaning"),
            version: text("/version").map(str::to_owned),
        }
    }
}

/// Returns the members of a record; null if it is no JSON.
fn members(record: &SignedRecord) -> Value {
    serde_json::from_str(&record.body).unwrap_or_default()
}

/// Returns the [code](RunSummary::code) of the failure that a run ended with, from the last of the records.
pub fn failure_code(records: &[SignedRecord], status: Status) -> Option<String> {
    let last = records.last().filter(|_| status == Status::Error)?;
    members(last).get("code")?.as_str().map(str::to_owned)
}

/// The summary of a run in a list. A store begins with [`RunSummary::new`] and fills in the fields that it knows.
///
/// The example of [`RunPage::of`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// The graph's id.
    pub graph: String,
    /// Its status.
    pub status: Status,
    /// How many records its journal has.
    pub records: u64,
    /// When it began; unknown if an older version began it.
    pub created: Option<SystemTime>,
    /// When its status changed last.
    pub updated: Option<SystemTime>,
    /// The run that it is inside of.
    pub parent: Option<RunId>,
    /// The run whose task it is: the outermost run around the call that spawned it.
    pub owner: Option<RunId>,
    /// Its holder.
    pub holder: Option<Holder>,
    /// Whether somebody [cancelled](crate::Store::cancel) it, and that request still holds.
    pub is_cancelling: bool,
    /// The graph's digest, as the journal's first record says.
    pub digest: Option<Digest>,
    /// The digest of the graph's meaning, as the journal's first record says.
    pub meaning: Option<Digest>,
    /// The version that the graph's author gave it, as the journal's first record says.
    pub version: Option<String>,
    /// The [code](crate::Failure::code) of the failure that it ended with, if its tool named one.
    pub code: Option<String>,
    /// The earliest time at which one of its waits is over, by the store's time.
    pub next_due: Option<SystemTime>,
}

impl RunSummary {
    /// The summary of a run of which nothing else is known.
    pub fn new(run: RunId, graph: impl Into<String>, status: Status) -> Self {
        Self {
            run,
            graph: graph.into(),
            status,
            records: 0,
            created: None,
            updated: None,
            parent: None,
            owner: None,
            holder: None,
            is_cancelling: false,
            digest: None,
            meaning: None,
            version: None,
            code: None,
            next_due: None,
        }
    }

    /// The same summary with the facts from the journal's first record.
    #[must_use]
    pub fn with_start(self, start: RunStart) -> Self {
        let RunStart { parent, owner, digest, meaning, version } = start;
        Self { parent, owner, digest, meaning, version, ..self }
    }

    /// Whether the run continues under this graph, as far as the store says: it has the id and the
    /// [meaning](CompiledGraph::meaning) of the graph that the run began under. If either of them has no meaning, it is the same
    /// text. For programs that have several versions of a graph.
    pub fn is_under(&self, graph: &CompiledGraph) -> bool {
        let is_same = match (self.meaning, graph.meaning()) {
            (Some(own), Some(other)) => own == other,
            _ => self.digest == Some(graph.digest()),
        };
        is_same && self.graph == graph.id().as_str()
    }

    /// Returns the digest that the run is pinned to, as [`RunStart::pin`].
    pub fn pin(&self) -> Option<Digest> {
        self.meaning.or(self.digest)
    }
}

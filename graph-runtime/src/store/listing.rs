//! Listings: some of a store's runs, a page at a time.

use graph_model::digest::Digest;
use graph_model::name::RunId;
use serde::Deserialize;

use super::{RunSummary, StoreError};
use crate::record::{Sealed, Status};

/// Which runs are listed: those of which all holds that is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// The graph's id.
    pub graph: Option<String>,
    /// The version that the graph's author gave it.
    pub version: Option<String>,
    /// The graph's digest.
    pub digest: Option<Digest>,
    /// How they stand; any way if empty.
    pub statuses: Vec<Status>,
    /// What they are inside of.
    pub within: Within,
}

/// What runs are inside of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Within {
    /// Whatever it is, or nothing.
    #[default]
    Any,
    /// No other run.
    TopLevel,
    /// This run, directly.
    Run(RunId),
}

impl RunFilter {
    /// Whether a run is one of those that are listed.
    pub fn accepts(&self, run: &RunSummary) -> bool {
        let within = match &self.within {
            Within::Any => true,
            Within::TopLevel => run.parent.is_none(),
            Within::Run(parent) => run.parent.as_ref() == Some(parent),
        };
        within
            && self.graph.as_ref().is_none_or(|graph| *graph == run.graph)
            && self.version.as_ref().is_none_or(|version| Some(version) == run.version.as_ref())
            && self.digest.as_ref().is_none_or(|digest| Some(digest) == run.digest.as_ref())
            && (self.statuses.is_empty() || self.statuses.contains(&run.status))
    }
}

/// Which part of a listing is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// How many runs at most.
    pub size: usize,
    /// Behind which run it begins; the newest if not named.
    pub after: Option<Cursor>,
}

impl Default for Page {
    /// The newest 100.
    fn default() -> Self {
        Self { size: 100, after: None }
    }
}

/// A place in a listing, of a store's own making. It stays good while runs begin, end and are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// A cursor that a store finds its place by again.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns its text, for whoever hands it to somebody else and reads it back with [`Cursor::new`].
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number that a store of this crate made it of.
    pub(super) fn number(&self) -> Result<i64, StoreError> {
        self.0.parse().map_err(|_| StoreError::BadCursor(self.0.clone()))
    }
}

/// A part of a listing, the newest runs first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<RunSummary>,
    /// Where the next page begins; none where this is the last one.
    pub next: Option<Cursor>,
}

/// Takes a page out of all runs, for stores that can do no better.
pub(super) fn page_of(all: Vec<RunSummary>, filter: &RunFilter, page: &Page) -> Result<RunPage, StoreError> {
    let skipped = match &page.after {
        None => 0,
        Some(Cursor(after)) => {
            let place = all.iter().position(|run| run.run.as_str() == after);
            1 + place.ok_or_else(|| StoreError::BadCursor(after.clone()))?
        }
    };
    let mut matching = all.into_iter().skip(skipped).filter(|run| filter.accepts(run));
    let runs: Vec<RunSummary> = matching.by_ref().take(page.size).collect();
    let next = matching.next().and(runs.last()).map(|last| Cursor::new(last.run.as_str()));
    Ok(RunPage { runs, next })
}

/// What a run's first record says of it.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) parent: Option<RunId>,
    pub(super) digest: Option<Digest>,
    pub(super) version: Option<String>,
}

impl Facts {
    /// Reads the first record of a journal. What cannot be read is for whoever verifies it.
    pub(super) fn of(records: &[Sealed]) -> Self {
        #[derive(Deserialize)]
        struct Start {
            parent: Option<Parent>,
            digest: Option<Digest>,
            version: Option<String>,
        }
        #[derive(Deserialize)]
        struct Parent {
            run: RunId,
        }
        let start = records.first().and_then(|first| serde_json::from_str::<Start>(&first.body).ok());
        start.map_or_else(Self::default, |Start { parent, digest, version }| Self {
            parent: parent.map(|parent| parent.run),
            digest,
            version,
        })
    }
}

/// Returns the code of the failure that a run ended with, as its last record says.
pub(super) fn code_of(records: &[Sealed], status: Status) -> Option<String> {
    #[derive(Deserialize)]
    struct End {
        code: Option<String>,
    }
    let last = records.last().filter(|_| status == Status::Error)?;
    serde_json::from_str::<End>(&last.body).ok()?.code
}

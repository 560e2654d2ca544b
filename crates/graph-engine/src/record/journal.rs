//! The journal of a run: a chain of signed records, written and verified.

use std::ops::Range;
use std::thread::{self, available_parallelism};
use std::time::SystemTime;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp;
use graph_signing::{Fingerprint, PublicKey, SecretKey};
use serde::{Deserialize, Serialize};

use crate::kind::{ErrorKind, HasKind};
use crate::record::entry::{End, Entry, Record, Start, Visit};
use crate::record::snapshot::Due;
use crate::record::version_2;

/// The format version that this module writes.
pub const VERSION: u32 = 3;

/// The first format version that this module reads.
pub const FIRST_VERSION: u32 = 2;

/// A record as a store keeps it. A store writes every field and rebuilds the record when it reads it, so this type is not
/// `#[non_exhaustive]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRecord {
    /// Its index in the journal, from 0.
    pub seq: u64,
    /// The record as JSON, byte for byte what was hashed and signed.
    pub body: String,
    /// The signature over the 64 hex digits of the body's SHA-256.
    pub signature: [u8; 64],
    /// The token that proves that no record follows; the body names its SHA-256. A store keeps the token of a journal's last
    /// record, and forgets it when another record is appended.
    pub end: Option<[u8; 32]>,
}

impl SignedRecord {
    /// Returns the digest that is signed.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.body)
    }

    /// Returns the link by which the next record names this one.
    pub fn link(&self) -> Digest {
        link(&self.digest(), &self.signature)
    }

    /// Whether it says only that a run is resumed. A store that counts how often processes died at one place of a run passes over
    /// such records.
    pub fn is_resume(&self) -> bool {
        // The first member of that name is the record's own: no member before it has quotes within.
        self.body.split_once("\"kind\":\"").is_some_and(|(_, kind)| kind.starts_with("resume\""))
    }

    /// Removes the token of each record that another one follows, as a store does.
    pub fn forget_ends(records: &mut [Self]) {
        if let Some((_, earlier)) = records.split_last_mut() {
            earlier.iter_mut().for_each(|record| record.end = None);
        }
    }
}

fn link(digest: &Digest, signature: &[u8; 64]) -> Digest {
    Digest::of_parts(&[digest.as_bytes(), signature])
}

/// The reason why a journal is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There are no records.
    #[error("its journal is empty")]
    Empty,
    /// A record cannot be read.
    #[error("record {seq} of its journal cannot be read: {reason}")]
    Unreadable {
        /// The record.
        seq: u64,
        /// Why.
        reason: String,
    },
    /// The record has a format version that this program does not know.
    #[error(
        "record {seq} of its journal has version {found}, and this program reads versions {FIRST_VERSION} to {VERSION}"
    )]
    Version {
        /// The record.
        seq: u64,
        /// The version that the record states.
        found: u32,
    },
    /// A record does not follow the one before it: one was removed, moved, changed, or comes from another run.
    #[error("record {seq} of its journal does not follow the one before it: the journal was changed")]
    Broken {
        /// The record.
        seq: u64,
    },
    /// A record is signed by another key.
    #[error("record {seq} of its journal is not signed by {key}, the key of this runtime")]
    Signature {
        /// The record.
        seq: u64,
        /// The fingerprint of the key that was expected.
        key: Fingerprint,
    },
    /// Records were removed from the end.
    #[error("record {seq} of its journal was not the last one: records behind it were taken away")]
    Shortened {
        /// The record that is now the last one.
        seq: u64,
    },
    /// The records do not add up.
    #[error("record {seq} of its journal does not fit the graph: {reason}")]
    Misfit {
        /// The record.
        seq: u64,
        /// Why.
        reason: String,
    },
}

impl HasKind for JournalError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Internal
    }
}

/// The end of a chain, to which records are appended.
#[derive(Debug, Clone)]
pub struct Chain {
    run: RunId,
    seq: u64,
    prev: Digest,
    /// The link of the first record, if there is one.
    start: Option<Digest>,
    /// The version of the last record; no later record has an earlier one.
    version: u32,
}

/// The members of a record besides those of its entry, as they are written: borrowed, not copied.
#[derive(Serialize)]
struct DraftHead<'a> {
    v: u32,
    run: &'a RunId,
    seq: u64,
    prev: Digest,
    end: Digest,
    at: String,
    kind: &'static str,
}

impl DraftHead<'_> {
    /// Writes the record: the members of the head, followed by those of the entry.
    fn with(&self, entry: &impl Serialize) -> Result<String, serde_json::Error> {
        let mut body = serde_json::to_string(self)?;
        let entry = serde_json::to_string(entry)?;
        if let Some(members) = entry.strip_prefix('{')
            && members != "}"
        {
            body.pop();
            body.push(',');
            body.push_str(members);
        }
        Ok(body)
    }
}

impl Chain {
    /// Creates a chain without records.
    pub fn new(run: RunId) -> Self {
        Self { run, seq: 0, prev: Digest::of([]), start: None, version: FIRST_VERSION }
    }

    /// Returns how many records there are.
    pub fn count(&self) -> u64 {
        self.seq
    }

    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the link of the first record, which distinguishes the run from another one with the same id.
    pub fn start(&self) -> Option<Digest> {
        self.start
    }

    /// Writes, chains and signs a record.
    pub fn sign(&mut self, kind: &'static str, entry: impl Serialize, at: SystemTime, key: &SecretKey) -> SignedRecord {
        let at = timestamp::milliseconds(at);
        let token = *key.derive(&format!("end of journal {} at {}", self.run, self.seq));
        let (seq, prev, end) = (self.seq, self.prev, Digest::of(token));
        let head = DraftHead { v: VERSION, run: &self.run, seq, prev, end, at, kind };
        let body = head.with(&entry).expect("a record has only texts as keys and finite numbers");
        let digest = Digest::of(&body);
        let signature = key.sign(&digest);
        self.seq += 1;
        self.prev = link(&digest, &signature);
        self.start.get_or_insert(self.prev);
        self.version = VERSION;
        SignedRecord { seq, signature, body, end: Some(token) }
    }
}

/// A journal with an unbroken chain, signed with the expected key.
#[derive(Debug)]
pub struct VerifiedJournal<'s> {
    chain: Chain,
    signed: &'s [SignedRecord],
    /// The link that each record names as that of the one before it.
    links: Vec<Digest>,
}

/// A journal that was verified and read.
#[derive(Debug)]
pub struct Journal {
    /// The chain that its records form.
    pub chain: Chain,
    /// The first record.
    pub start: Start,
    /// The records after the first: all of them, or those from the last snapshot on.
    pub records: Vec<Record>,
    /// When the next snapshot is due.
    pub due: Due,
}

impl Journal {
    /// Verifies and reads all of a journal.
    pub fn verify(run: &RunId, signed: &[SignedRecord], key: &PublicKey) -> Result<Self, JournalError> {
        VerifiedJournal::new(run, signed, key)?.read()
    }

    /// Returns the end of the run, if it was not resumed after it.
    pub fn end(&self) -> Option<&End> {
        let last = self.records.iter().rev().find(|record| !matches!(record.entry, Entry::Edit(_)));
        match &last?.entry {
            Entry::End(end) => Some(end),
            _ => None,
        }
    }

    /// Returns how many nodes were visited.
    pub(crate) fn steps(&self) -> u64 {
        let is_made = |visit: &&Visit| !visit.held && visit.opened.is_none();
        self.records.iter().enumerate().fold(0, |steps, (at, record)| match &record.entry {
            // A snapshot that follows other records says nothing new.
            Entry::Snapshot(snapshot) if at == 0 => snapshot.steps,
            Entry::Step(step) => steps + step.visits.iter().filter(is_made).count() as u64,
            _ => steps,
        })
    }
}

/// Verifies a journal, and returns the entry of its first record.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # use graph_runtime::{PublicKey, RunId, Store};
/// # async fn example(store: impl Store, run: RunId, key: PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::record::verified_start;
///
/// let start = verified_start(&run, &store.load(&run).await?, &key)?;
/// println!("a run of {} {}", start.graph, start.version);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the journal is not what the engine wrote with that key.
pub fn verified_start(run: &RunId, signed: &[SignedRecord], key: &PublicKey) -> Result<Start, JournalError> {
    Journal::verify(run, signed, key).map(|journal| journal.start)
}

impl<'s> VerifiedJournal<'s> {
    /// Verifies a journal.
    ///
    /// The chain is followed from the first record to the last, whose signature vouches for all of it. The records are read
    /// from the very bytes that were hashed. None of them is read before it is verified, except to check that it begins as
    /// the chain requires.
    pub fn new(run: &RunId, signed: &'s [SignedRecord], key: &PublicKey) -> Result<Self, JournalError> {
        Self::after(&Chain::new(run.clone()), signed, key)
    }

    /// Verifies records that follow a chain.
    pub fn after(before: &Chain, signed: &'s [SignedRecord], key: &PublicKey) -> Result<Self, JournalError> {
        let Some(last) = signed.last() else { return Err(JournalError::Empty) };
        let links = follow(before, signed);
        let at = links.len();
        let is_whole = at == signed.len();
        if !is_whole || !key.verifies(&last.digest(), &last.signature) {
            let at = at.min(signed.len() - 1);
            let chain = before.behind(&signed[..at]);
            return Err(blame(&chain, &signed[at.saturating_sub(1)..=at], key));
        }
        let chain = before.behind(signed);
        let shown = last.end.map(Digest::of);
        let EndOnly { end } = read(last.seq, &last.body)?;
        if Some(end) != shown {
            return Err(JournalError::Shortened { seq: last.seq });
        }
        Ok(Self { chain, signed, links })
    }

    /// Returns the end of the chain.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Returns how many records there are.
    pub fn count(&self) -> usize {
        self.signed.len()
    }

    /// Reads the record at an index, so that a caller can go through a long journal without having all of it in memory.
    pub fn record(&self, at: usize) -> Option<Result<Record, JournalError>> {
        let (one, prev) = (self.signed.get(at)?, self.links.get(at)?);
        Some(read_next(&self.chain.run, one, *prev))
    }

    /// Reads the time and the entry of the first record.
    pub fn start(&self) -> Result<(String, Start), JournalError> {
        match self.record(0).transpose()? {
            Some(Record { at, entry: Entry::Start(start), .. }) => Ok((at, start)),
            _ => Err(JournalError::Broken { seq: 0 }),
        }
    }

    /// Reads the whole journal.
    pub fn read(self) -> Result<Journal, JournalError> {
        self.read_from(1)
    }

    /// Reads the records that determine the position of the run: the first one, and those from the last snapshot on.
    pub fn read_recent(self) -> Result<Journal, JournalError> {
        let is_snapshot = |one: &SignedRecord| Head::cut(&one.body).is_some_and(|head| head.kind == "snapshot");
        let from = self.signed.iter().rposition(is_snapshot).unwrap_or(1);
        self.read_from(from)
    }

    /// Reads all records, the first included.
    fn records(&self) -> Result<Vec<Record>, JournalError> {
        let known = self.signed.iter().zip(&self.links);
        known.map(|(one, prev)| read_next(&self.chain.run, one, *prev)).collect()
    }

    fn read_from(self, from: usize) -> Result<Journal, JournalError> {
        let (_, start) = self.start()?;
        let Self { chain, signed, links } = self;
        let known = || signed.iter().zip(&links);
        let one = |(one, prev): (&SignedRecord, &Digest)| read_next(&chain.run, one, *prev);
        let mut due = Due::default();
        let mut records = Vec::with_capacity(signed.len().saturating_sub(from));
        for known in known().skip(from) {
            let record = one(known)?;
            match record.entry {
                Entry::Snapshot(_) => due.took(known.0.body.len()),
                _ => due.wrote(known.0.body.len()),
            }
            records.push(record);
        }
        Ok(Journal { chain, start, records, due })
    }
}

/// The end of a journal, where nothing says that the hooks were asked.
pub(crate) enum Unasked {
    /// The run has begun.
    Start,
    /// A step was taken.
    Step(Box<Record>),
}

/// Returns the last thing that happened in a verified journal, if only snapshots and resumes follow it: the process may have died before
/// it asked the hooks.
///
/// # Errors
///
/// If a record cannot be read.
pub(crate) fn unasked(run: &RunId, signed: &[SignedRecord]) -> Result<Option<Unasked>, JournalError> {
    let kind = |one: &SignedRecord| Head::cut(&one.body).map(|head| head.kind.to_owned()).unwrap_or_default();
    let is_behind = |one: &SignedRecord| matches!(kind(one).as_str(), "snapshot" | "resume");
    let Some(at) = signed.iter().rposition(|one| !is_behind(one)) else { return Ok(None) };
    match kind(&signed[at]).as_str() {
        // A fork begins with a snapshot, and its hooks are not asked at its start.
        "start" if signed.get(1).is_none_or(|next| kind(next) == "resume") => Ok(Some(Unasked::Start)),
        "step" => Ok(Some(Unasked::Step(Box::new(read_next(run, &signed[at], signed[at - 1].link())?)))),
        _ => Ok(None),
    }
}

/// Reads a journal while it grows: each read verifies and returns only the new records.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # use graph_runtime::{PublicKey, RunId, Store};
/// # async fn example(store: impl Store, run: RunId, key: PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::record::{Entry, Follower};
///
/// let mut follower = Follower::new(run.clone(), key);
/// loop {
///     for record in follower.read(&store.load_from(&run, follower.next()).await?)? {
///         println!("{} {:?}", record.at, record.entry);
///         if matches!(record.entry, Entry::End(_)) {
///             return Ok(());
///         }
///     }
///     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Follower {
    chain: Chain,
    key: PublicKey,
}

impl Follower {
    /// Reads the journal of a run from its beginning. `key` is the public key of the runtime that writes it.
    pub fn new(run: RunId, key: PublicKey) -> Self {
        Self { chain: Chain::new(run), key }
    }

    /// Returns the number of the next record, the first one that a store is to [load](crate::Store::load_from).
    pub fn next(&self) -> u64 {
        self.chain.count()
    }

    /// Verifies and reads the records that follow, all that exist by now. An empty slice means that there is nothing new.
    ///
    /// # Errors
    ///
    /// If they do not follow, are not signed with the key, or were cut short. None of them counts as read then.
    pub fn read(&mut self, signed: &[SignedRecord]) -> Result<Vec<Record>, JournalError> {
        if signed.is_empty() {
            return Ok(Vec::new());
        }
        let verified = VerifiedJournal::after(&self.chain, signed, &self.key)?;
        let records = verified.records()?;
        self.chain = verified.chain;
        Ok(records)
    }
}

/// The minimum number of records that a thread follows.
const A_THREAD: usize = 10_000;

/// Follows a chain from its first record, as long as each record begins as the one before it requires, and returns the links
/// that these records name. Several threads follow the parts of a long chain: the record before a part determines how the
/// part must begin.
fn follow(before: &Chain, signed: &[SignedRecord]) -> Vec<Digest> {
    let threads = available_parallelism().map_or(1, usize::from).min(signed.len() / A_THREAD).max(1);
    if threads == 1 {
        return follow_part(before, signed, 0..signed.len());
    }
    let part = signed.len().div_ceil(threads);
    let parts = (0..signed.len()).step_by(part).map(|from| from..signed.len().min(from + part));
    let mut links = Vec::with_capacity(signed.len());
    thread::scope(|scope| {
        let parts: Vec<_> =
            parts.map(|part| (part.clone(), scope.spawn(|| follow_part(before, signed, part)))).collect();
        for (part, followed) in parts {
            // A thread that could not finish counts as one that followed nothing.
            links.extend(followed.join().unwrap_or_default());
            if links.len() < part.end {
                break;
            }
        }
    });
    links
}

fn follow_part(before: &Chain, signed: &[SignedRecord], part: Range<usize>) -> Vec<Digest> {
    let mut chain = before.behind(&signed[..part.start]);
    let mut links = Vec::with_capacity(part.len());
    for one in &signed[part] {
        if one.seq != chain.seq || !chain.starts(&one.body) {
            break;
        }
        links.push(chain.prev);
        chain.version = version(&one.body).unwrap_or(VERSION);
        chain.seq += 1;
        chain.prev = one.link();
    }
    links
}

impl Chain {
    /// Returns the chain after records that follow it.
    fn behind(&self, signed: &[SignedRecord]) -> Self {
        let (prev, version) = match signed.last() {
            Some(last) => (last.link(), version(&last.body).unwrap_or(VERSION)),
            None => (self.prev, self.version),
        };
        let start = self.start.or_else(|| signed.first().map(SignedRecord::link));
        Self { run: self.run.clone(), seq: self.seq + signed.len() as u64, prev, start, version }
    }

    /// Whether a text begins as the next record must, in its only valid spelling: `{"v":3,"run":…,"seq":…,"prev":…,"end":"`.
    /// The version never decreases along a journal.
    fn starts(&self, body: &str) -> bool {
        if version(body).is_none_or(|version| version < self.version) {
            return false;
        }
        let after = || {
            let rest = body
                .get(VERSIONED.len() + 1..)?
                .strip_prefix(RUN)?
                .strip_prefix(self.run.as_str())?
                .strip_prefix(r#"","seq":"#)?;
            let rest = rest.strip_prefix(self.seq.to_string().as_str())?.strip_prefix(r#","prev":""#)?;
            let (prev, rest) = rest.split_at_checked(DIGEST)?;
            // A digest has only one spelling, so comparing the parsed digest is enough.
            (prev.parse::<Digest>().ok()? == self.prev).then_some(rest)
        };
        after().is_some_and(|rest| rest.starts_with(r#"","end":""#))
    }
}

/// Returns the error of a record that does not follow the chain. The record before it is checked too, because it may be the
/// one that was changed.
fn blame(chain: &Chain, records: &[SignedRecord], key: &PublicKey) -> JournalError {
    let first = (chain.seq + 1).saturating_sub(records.len() as u64);
    for (seq, one) in (first..).zip(records) {
        // No content of a record is read unless the record is signed with this key.
        if !key.verifies(&one.digest(), &one.signature) {
            return JournalError::Signature { seq, key: key.fingerprint() };
        }
        match read::<VersionOnly>(seq, &one.body) {
            Ok(VersionOnly { v: FIRST_VERSION..=VERSION }) => {}
            Ok(VersionOnly { v }) => return JournalError::Version { seq, found: v },
            Err(error) => return error,
        }
    }
    JournalError::Broken { seq: chain.seq }
}

/// How a record begins, before the digit of its version.
const VERSIONED: &str = r#"{"v":"#;

/// How long a digest is in text.
const DIGEST: usize = 64;

/// The text between that digit and the run.
const RUN: &str = r#","run":""#;

const _: () = assert!(FIRST_VERSION == 2 && VERSION == 3, "versions are of one digit");

/// Returns the version that a record begins with, if this module reads that version.
fn version(body: &str) -> Option<u32> {
    match body.as_bytes().get(VERSIONED.len()).filter(|_| body.starts_with(VERSIONED))? {
        b'2' => Some(2),
        b'3' => Some(3),
        _ => None,
    }
}

/// The part of a record that has only one spelling: `{"v":…,"run":…,"seq":…,"prev":…,"end":…,"at":…,"kind":…`.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    end: &'a str,
    /// When the record was made.
    pub at: &'a str,
    /// The kind of the record, the tag of its [`Entry`].
    pub kind: &'a str,
    /// The members after it, each behind a comma, and the closing brace.
    pub rest: &'a str,
}

impl<'a> Head<'a> {
    /// Cuts it off the text of a record. `None` if it is not spelled so.
    pub fn cut(body: &'a str) -> Option<Self> {
        let rest = body.strip_prefix(VERSIONED)?.get(1..)?.strip_prefix(RUN)?;
        let (_, rest) = rest.split_once('"')?;
        let rest = rest.strip_prefix(r#","seq":"#)?.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let (_, rest) = rest.strip_prefix(r#","prev":""#)?.split_at_checked(DIGEST)?;
        let (end, rest) = rest.strip_prefix(r#"","end":""#)?.split_at_checked(DIGEST)?;
        let (at, rest) = rest.strip_prefix(r#"","at":""#)?.split_once('"')?;
        let (kind, rest) = rest.strip_prefix(r#","kind":""#)?.split_once('"')?;
        Some(Self { end, at, kind, rest })
    }
}

#[derive(Deserialize)]
struct EndOnly {
    end: Digest,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// Reads a record that begins as the chain requires; `prev` is the link of the one before.
///
/// The text before the kind has only one valid spelling, and is cut off rather than parsed. Parsing a record as a whole
/// would first store all of its members as values, because their types depend on the kind, and take three times as long.
fn read_next(run: &RunId, signed: &SignedRecord, prev: Digest) -> Result<Record, JournalError> {
    let (seq, body) = (signed.seq, signed.body.as_str());
    let unreadable = |error: serde_json::Error| JournalError::Unreadable { seq, reason: error.to_string() };
    let cut = Head::cut(body).and_then(|head| Some((head.end.parse::<Digest>().ok()?, head)));
    let record = match cut {
        Some((end, Head { at, kind, .. })) => {
            let entry = Entry::of_kind(kind, body).map_err(unreadable)?;
            let v = version(body).unwrap_or(VERSION);
            Record { v, run: run.clone(), seq, prev, end, at: at.to_owned(), entry }
        }
        None => Record::read(body).map_err(unreadable)?,
    };
    Ok(if record.v < VERSION { Record { entry: version_2::numbered(record.entry), ..record } } else { record })
}

fn read<T: for<'de> Deserialize<'de>>(seq: u64, body: &str) -> Result<T, JournalError> {
    serde_json::from_str(body).map_err(|error| JournalError::Unreadable { seq, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough that several threads follow it.
    const LONG: usize = 2 * A_THREAD + 1;

    #[test]
    fn a_long_chain_is_followed_and_its_broken_record_named() {
        let (run, key) = (RunId::new("long").unwrap(), SecretKey::from_seed(&[1; 32]));
        let mut chain = Chain::new(run.clone());
        let record = |chain: &mut Chain| chain.sign("resume", serde_json::json!({}), SystemTime::UNIX_EPOCH, &key);
        let mut signed: Vec<SignedRecord> = (0..LONG).map(|_| record(&mut chain)).collect();
        assert!(VerifiedJournal::new(&run, &signed, &key.public()).is_ok());
        for broken in [5, A_THREAD + 5, LONG - 2] {
            let kept = signed[broken].body.clone();
            signed[broken].body = kept.replace("resume", "rename");
            let found = VerifiedJournal::new(&run, &signed, &key.public()).err().unwrap().to_string();
            assert!(
                found.contains(&format!("record {broken}")) || found.contains(&format!("record {}", broken + 1)),
                "{found}"
            );
            signed[broken].body = kept;
        }
    }
}

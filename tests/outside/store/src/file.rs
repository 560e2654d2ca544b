//! A run's file: the content of its lines, and how a line is added.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::store::{Wait, WaitChanges, WaitId};
use graph_runtime::{Digest, Value};
use serde_json::json;

use crate::locks::Lock;

/// The length of a checksum and the blank after it.
const CHECKSUM: usize = 65;
/// The length of a token as text.
const TOKEN: usize = 64;

/// The content of a line.
pub(crate) enum Change<'a> {
    Create { graph: &'a str, created: u128, token: u64, records: &'a [SignedRecord] },
    Lease { token: u64, is_claim: bool },
    GiveBack,
    Postpone { until: i64 },
    Append { records: &'a [SignedRecord], status: Status, code: Option<&'a str>, waits: &'a WaitChanges },
}

/// The content of a file.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) graph: String,
    pub(crate) created: SystemTime,
    pub(crate) updated: SystemTime,
    pub(crate) status: Status,
    pub(crate) code: Option<String>,
    pub(crate) token: u64,
    pub(crate) records: Vec<SignedRecord>,
    /// The time before which nobody may claim the run.
    pub(crate) later: i64,
    /// How often the run was claimed since a lease was given back, and how often it was postponed. A record resets both.
    pub(crate) tries: u32,
    pub(crate) postponed: u32,
    /// The waits that are open.
    pub(crate) waits: BTreeMap<WaitId, Wait>,
    /// The length of the file's complete lines.
    whole: u64,
    /// The places of the tokens that are not blank.
    tokens: Vec<u64>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (text.len() == 2 * N).then_some(bytes)
}

pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Change<'_> {
    /// Returns the line: its checksum, the token of the last record, and the rest, which the checksum covers.
    fn line(&self) -> String {
        let shown = |records: &[SignedRecord]| -> Vec<Value> {
            records.iter().map(|one| json!([one.seq, one.body, hex(&one.signature)])).collect()
        };
        let now = nanoseconds(SystemTime::now());
        let (said, records): (Value, &[SignedRecord]) = match self {
            Self::Create { graph, created, token, records } => {
                let created = u64::try_from(*created).unwrap_or(u64::MAX);
                (json!({"graph": graph, "created": created, "token": token, "records": shown(records)}), records)
            }
            Self::Lease { token, is_claim } => (json!({"token": token, "claimed": is_claim}), &[]),
            Self::GiveBack => (json!({"given_back": true}), &[]),
            Self::Postpone { until } => (json!({"later": until}), &[]),
            Self::Append { records, status, code, waits } => {
                let close: Vec<&str> = waits.close.iter().map(WaitId::as_str).collect();
                let open: Vec<Value> = waits.open.iter().map(|wait| json!(wait)).collect();
                let said = json!({
                    "records": shown(records), "status": status, "code": code, "at": now, "close": close, "open": open,
                });
                (said, records)
            }
        };
        let token = records.last().and_then(|last| last.end).map_or_else(|| "-".repeat(TOKEN), |end| hex(&end));
        let said = said.to_string();
        format!("{} {token} {said}\n", Digest::of(&said).to_hex())
    }
}

impl Contents {
    /// Reads a file, without the last line if a crash left it incomplete.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut contents = Self {
            graph: String::new(),
            created: SystemTime::UNIX_EPOCH,
            updated: SystemTime::UNIX_EPOCH,
            status: Status::Running,
            code: None,
            token: 0,
            records: Vec::new(),
            later: i64::MIN,
            tries: 0,
            postponed: 0,
            waits: BTreeMap::new(),
            whole: 0,
            tokens: Vec::new(),
        };
        let mut rest = bytes;
        for number in 1.. {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            match contents.take(line) {
                Some(()) => {}
                // The disk may have stored a later part of the last write without an earlier part.
                None if behind.is_empty() => break,
                None => return Err(format!("line {number} is damaged")),
            }
            contents.whole += end as u64 + 1;
            rest = behind;
        }
        match contents.whole {
            0 => Err("it has no whole line".to_owned()),
            _ => Ok(contents),
        }
    }

    /// Returns the earliest time at which a wait is over.
    pub(crate) fn next_due(&self) -> Option<i64> {
        self.waits.values().filter_map(|wait| wait.due).min()
    }

    /// Reads a line.
    fn take(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        let (sum, token, said) =
            (line.get(..CHECKSUM - 1)?, line.get(CHECKSUM..CHECKSUM + TOKEN)?, line.get(CHECKSUM + TOKEN + 1..)?);
        if Digest::of(said).to_hex() != sum {
            return None;
        }
        let said: Value = serde_json::from_str(said).ok()?;
        let time = |name: &str| Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(said[name].as_u64()?));
        if let Some(graph) = said["graph"].as_str() {
            graph.clone_into(&mut self.graph);
            (self.created, self.updated) = (time("created")?, time("created")?);
        }
        if let Some(token) = said["token"].as_u64() {
            self.token = token;
        }
        if said["claimed"] == true {
            self.tries += 1;
        }
        if said["given_back"] == true {
            self.tries = 0;
        }
        if let Some(later) = said["later"].as_i64() {
            (self.later, self.tries) = (later, 0);
            self.postponed += 1;
        }
        let list = |name: &str| said[name].as_array().map(Vec::as_slice).unwrap_or_default();
        for id in list("close") {
            self.waits.remove(&WaitId::new(id.as_str()?));
        }
        for one in list("open") {
            let wait: Wait = serde_json::from_value(one.clone()).ok()?;
            self.waits.insert(wait.id.clone(), wait);
        }
        if let Some(status) = said.get("status") {
            let status = serde_json::from_value(status.clone()).ok()?;
            if status != self.status {
                self.updated = time("at")?;
                self.code = said["code"].as_str().map(str::to_owned);
            }
            self.status = status;
            if !matches!(status, Status::Running | Status::Waiting) {
                self.waits.clear();
            }
            if status != Status::Running {
                self.tries = 0;
            }
        }
        let records = list("records");
        if let Some(before) = self.records.last_mut().filter(|_| !records.is_empty()) {
            before.end = None;
        }
        for one in records {
            let signature = unhex(one[2].as_str()?)?;
            self.records.push(SignedRecord {
                seq: one[0].as_u64()?,
                body: one[1].as_str()?.to_owned(),
                signature,
                end: None,
            });
        }
        if !records.is_empty() {
            (self.tries, self.postponed) = (0, 0);
            let end = unhex(token);
            if end.is_some() {
                self.tokens.push(self.whole + CHECKSUM as u64);
            }
            self.records.last_mut()?.end = end;
        }
        Some(())
    }
}

/// A run's file, open for its holder.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// Locked as long as the run is held. A request that is still writing holds it too.
    _lock: Lock,
    length: u64,
    records: u64,
    tries: u32,
    /// The places of tokens that belong to earlier records: the next line makes their blanking durable.
    tokens: Vec<u64>,
    /// Whether the content of the file is unknown, because a write failed and could not be undone.
    is_unknown: bool,
}

impl Journal {
    /// Writes a new file and waits until it is durable.
    pub(crate) fn create(
        path: &Path,
        lock: Lock,
        graph: &str,
        created: u128,
        token: u64,
        records: &[SignedRecord],
    ) -> io::Result<Self> {
        let line = Change::Create { graph, created, token, records }.line();
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()?;
        let tokens = records.last().and_then(|last| last.end).map(|_| CHECKSUM as u64).into_iter().collect();
        let (length, records) = (line.len() as u64, records.len() as u64);
        Ok(Self { file, _lock: lock, length, records, tries: 0, tokens, is_unknown: false })
    }

    /// Opens a file to add to it. An incomplete last line is cut off, and all tokens except the last are blanked.
    pub(crate) fn open(path: &Path, lock: Lock, contents: Contents) -> io::Result<Self> {
        let Contents { records, tries, whole: length, mut tokens, .. } = contents;
        let file = File::options().read(true).write(true).open(path)?;
        file.set_len(length)?;
        let (last, records) = (tokens.pop(), records.len() as u64);
        let mut journal = Self { file, _lock: lock, length, records, tries, tokens, is_unknown: false };
        journal.blank()?;
        journal.file.sync_all()?;
        journal.tokens.extend(last);
        Ok(journal)
    }

    /// Returns the number of records.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Leases the run; a claim is counted.
    pub(crate) fn lease(&mut self, token: u64, is_claim: bool) -> io::Result<()> {
        self.write(&Change::Lease { token, is_claim })?;
        self.tries += u32::from(is_claim);
        Ok(())
    }

    /// Notes that a lease was given back, if the run was claimed. This does not wait for the disk, because leases are
    /// dropped where nothing may block. A crash that loses the line leaves a try too many. The next holder waits for the
    /// line before it adds another.
    pub(crate) fn give_back(&mut self) -> io::Result<()> {
        if self.tries == 0 || self.is_unknown {
            return Ok(());
        }
        self.file.write_all_at(Change::GiveBack.line().as_bytes(), self.length)
    }

    /// Lets nobody claim the run before a time.
    pub(crate) fn postpone(&mut self, until: i64) -> io::Result<()> {
        self.write(&Change::Postpone { until })
    }

    /// Adds records with the changes of the waits, and blanks the token of the record before them.
    pub(crate) fn append(
        &mut self,
        records: &[SignedRecord],
        status: Status,
        code: Option<&str>,
        waits: &WaitChanges,
    ) -> io::Result<()> {
        let at = self.length + CHECKSUM as u64;
        self.write(&Change::Append { records, status, code, waits })?;
        self.records += records.len() as u64;
        if !records.is_empty() || status != Status::Running {
            self.tries = 0;
        }
        if let Some(last) = records.last() {
            // If this fails, or a crash comes before, it is done when the file is opened next.
            if self.blank().is_ok() {
                self.tokens.clear();
            }
            self.tokens.extend(last.end.map(|_| at));
        }
        Ok(())
    }

    /// Adds a line and waits until it is durable; on an error the file is unchanged.
    fn write(&mut self, change: &Change<'_>) -> io::Result<()> {
        if self.is_unknown {
            return Err(io::Error::other("an earlier write failed, and it is not known what of it is there"));
        }
        let line = change.line();
        let written = self.file.write_all_at(line.as_bytes(), self.length).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            let restored = self.file.set_len(self.length).and_then(|()| self.file.sync_data());
            self.is_unknown = restored.is_err();
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }

    fn blank(&mut self) -> io::Result<()> {
        self.tokens.iter().try_for_each(|at| self.file.write_all_at(&[b'-'; TOKEN], *at))
    }
}

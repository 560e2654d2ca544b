//! The journal as a file: a line of JSON for each record, and at the end one with the token that only the last record has.

use std::borrow::Cow;

use graph_model::digest::{hex, unhex};
use graph_model::name::RunId;
use serde::{Deserialize, Serialize};

use super::FilesError;
use super::disk::Disk;
use crate::record::Sealed;

/// Where a directory is for each run.
pub(super) const THREADS: &str = ".ai/state/threads";

/// Returns where a run's journal is.
pub(super) fn file(run: &RunId) -> String {
    format!("{THREADS}/{run}/journal.jsonl")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine<'a> {
    #[serde(borrow)]
    body: Cow<'a, str>,
    #[serde(borrow)]
    signature: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine<'a> {
    #[serde(borrow)]
    end: Cow<'a, str>,
}

/// A journal that is being written to its file.
#[derive(Debug, Default)]
pub(super) struct JournalFile {
    /// Where the last record's line ends that is in the file; the token stands behind it.
    length: u64,
    /// The lines that are not in the file yet.
    pending: Vec<u8>,
    /// The token of the last record.
    end: Option<[u8; 32]>,
}

impl JournalFile {
    /// Adds a record.
    pub(super) fn take(&mut self, sealed: &Sealed) {
        let signature = hex(&sealed.signature);
        line(&mut self.pending, &RecordLine { body: Cow::Borrowed(&sealed.body), signature: Cow::Owned(signature) });
        self.end = sealed.end;
    }

    /// Writes what the file lacks. What cannot be written now is written with what comes next.
    pub(super) fn write(&mut self, disk: &Disk, run: &RunId, is_whole: bool) -> Result<(), FilesError> {
        let records = self.pending.len();
        if let Some(end) = &self.end {
            line(&mut self.pending, &EndLine { end: Cow::Owned(hex(end)) });
        }
        let written = if is_whole && self.length == 0 {
            disk.replace(&file(run), &self.pending)
        } else {
            // The token of the record that was the last one before goes.
            disk.append(&file(run), self.length, &self.pending).map(drop)
        };
        self.pending.truncate(records);
        written?;
        self.length += records as u64;
        self.pending.clear();
        Ok(())
    }
}

fn line(lines: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *lines, value).expect("a line has only texts");
    lines.push(b'\n');
}

/// Reads a journal's file. Nothing of it is verified.
///
/// # Errors
///
/// Why it is no such file, and in which line, from 1.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Sealed>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let Some(text) = text.strip_suffix('\n') else { return Err(CUT.to_owned()) };
    let lines: Vec<&str> = text.split('\n').collect();
    let Some((last, records)) = lines.split_last() else { return Err(CUT.to_owned()) };
    let in_line = |at: usize| move |reason: String| format!("line {}: {reason}", at + 1);
    let mut sealed = Vec::with_capacity(records.len());
    for (at, line) in records.iter().enumerate() {
        let RecordLine { body, signature } =
            serde_json::from_str(line).map_err(|error| error.to_string()).map_err(in_line(at))?;
        let signature =
            unhex(&signature).ok_or_else(|| "its signature is not 128 hex digits".to_owned()).map_err(in_line(at))?;
        sealed.push(Sealed { seq: at as u64, body: body.into_owned(), signature, end: None });
    }
    let end: Result<EndLine<'_>, _> = serde_json::from_str(last);
    let end = end.ok().and_then(|EndLine { end }| unhex(&end)).ok_or(CUT)?;
    match sealed.last_mut() {
        Some(record) => record.end = Some(end),
        None => return Err("it has no record".to_owned()),
    }
    Ok(sealed)
}

const CUT: &str = "it does not end with the token of its last record: it was cut short, or is being written";

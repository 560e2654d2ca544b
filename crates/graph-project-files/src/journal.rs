//! The journal as a file: a line of JSON for each record, and a last line with the token that only the last record has.

use std::borrow::Cow;

use graph_model::digest::{hex, unhex};
use graph_model::name::RunId;
use serde::{Deserialize, Serialize};

use super::disk::Disk;
use crate::error::FilesError;
use graph_engine::record::SignedRecord;

/// The directory that has a subdirectory for each run.
pub(crate) const THREADS: &str = ".ai/state/threads";

/// Returns the path of a run's journal.
pub(crate) fn file(run: &RunId) -> String {
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
pub(crate) struct JournalFile {
    /// Where the line of the last record in the file ends; the token follows it.
    length: u64,
    /// The lines that are not in the file yet.
    pending: Vec<u8>,
    /// The token of the last record.
    end: Option<[u8; 32]>,
}

impl JournalFile {
    /// Adds a record.
    pub(crate) fn take(&mut self, signed: &SignedRecord) {
        let signature = hex(&signed.signature);
        line(&mut self.pending, &RecordLine { body: Cow::Borrowed(&signed.body), signature: Cow::Owned(signature) });
        self.end = signed.end;
    }

    /// Writes the pending lines. If this fails, the next call writes them too.
    pub(crate) fn write(&mut self, disk: &Disk, run: &RunId, is_whole: bool) -> Result<(), FilesError> {
        let records = self.pending.len();
        if let Some(end) = &self.end {
            line(&mut self.pending, &EndLine { end: Cow::Owned(hex(end)) });
        }
        let written = if is_whole && self.length == 0 {
            disk.replace(&file(run), &self.pending)
        } else {
            // This removes the token of the record that was the last one before.
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

/// Reads a journal's file without verifying it.
///
/// # Errors
///
/// Why it is not such a file, with the number of the line, from 1.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<SignedRecord>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let Some(text) = text.strip_suffix('\n') else { return Err(CUT.to_owned()) };
    let lines: Vec<&str> = text.split('\n').collect();
    let Some((last, records)) = lines.split_last() else { return Err(CUT.to_owned()) };
    let in_line = |at: usize| move |reason: String| format!("line {}: {reason}", at + 1);
    let mut signed = Vec::with_capacity(records.len());
    for (at, line) in records.iter().enumerate() {
        let RecordLine { body, signature } =
            serde_json::from_str(line).map_err(|error| error.to_string()).map_err(in_line(at))?;
        let signature =
            unhex(&signature).ok_or_else(|| "its signature is not 128 hex digits".to_owned()).map_err(in_line(at))?;
        signed.push(SignedRecord { seq: at as u64, body: body.into_owned(), signature, end: None });
    }
    let end: Result<EndLine<'_>, _> = serde_json::from_str(last);
    let end = end.ok().and_then(|EndLine { end }| unhex(&end)).ok_or(CUT)?;
    match signed.last_mut() {
        Some(record) => record.end = Some(end),
        None => return Err("it has no record".to_owned()),
    }
    Ok(signed)
}

const CUT: &str = "it does not end with the token of its last record: it was cut short, or is being written";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body: &str) -> String {
        format!("{{\"body\":{body:?},\"signature\":\"{}\"}}\n", "0a".repeat(64))
    }

    fn end() -> String {
        format!("{{\"end\":\"{}\"}}\n", "0b".repeat(32))
    }

    #[test]
    fn a_journal_reads_back_and_only_its_last_record_has_the_token() {
        let mut file = JournalFile::default();
        let signed = |seq: u64, body: &str| SignedRecord {
            seq,
            body: body.to_owned(),
            signature: [10; 64],
            end: Some([u8::try_from(seq).expect("there are few") + 10; 32]),
        };
        let all = [signed(0, "{\"a\":\"é\\n\u{2028}\"}"), signed(1, "{}")];
        all.iter().for_each(|signed| file.take(signed));
        line(&mut file.pending, &EndLine { end: Cow::Owned("0b".repeat(32)) });
        let read = read(&file.pending).expect("it is whole");
        assert_eq!(read, [SignedRecord { end: None, ..all[0].clone() }, all[1].clone()]);
        assert_eq!(file.end, all[1].end);
    }

    #[test]
    fn an_invalid_journal_is_refused_with_the_line() {
        let (one, end) = (record("{}"), end());
        assert_eq!(read(format!("{one}{end}").as_bytes()).map(|records| records.len()), Ok(1));
        let short = one.replacen("0a", "0", 1);
        let upper = one.replace("0a", "0A");
        let more = one.replace("{\"body\"", "{\"seq\":0,\"body\"");
        let twice = one.replace("{\"body\"", "{\"body\":\"\",\"body\"");
        for (text, why) in [
            (String::new(), CUT),
            ("\n".to_owned(), CUT),
            (one.clone(), CUT),
            (format!("{one}{}", end.trim_end()), CUT),
            (format!("{one}{end}\n"), "line 2: unknown field `end`"),
            (format!("{one}{}", end.replace("0b", "0B")), CUT),
            (end.clone(), "it has no record"),
            (format!("{short}{end}"), "line 1: its signature is not 128 hex digits"),
            (format!("{one}{upper}{end}"), "line 2: its signature is not 128 hex digits"),
            (format!("{more}{end}"), "line 1: unknown field `seq`"),
            (format!("{twice}{end}"), "line 1: duplicate field `body`"),
            (format!("{one}\n{end}"), "line 2: EOF while parsing a value"),
            (format!("{one}{end}{end}"), "line 2: unknown field `end`"),
            (format!("\u{feff}{one}{end}"), "line 1: expected value"),
            (format!("{one}[{end}"), CUT),
            (format!("{}{end}", "[".repeat(100_000) + "\n"), "line 1: "),
        ] {
            let found = read(text.as_bytes()).expect_err(&text);
            assert!(found.starts_with(why), "{found}");
        }
        assert!(read(b"\xff\n").expect_err("it is no text").starts_with("invalid utf-8"));
    }
}

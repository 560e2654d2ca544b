//! The output of the commands: only this module writes to stdout and stderr.
//!
//! The printed texts have untrusted parts: of tools, models and people. So no character that a terminal obeys, or that a reader does
//! not see, is written as it is, and a line of it is cut where it is longer than anybody reads. Programs read JSON,
//! which is whole.
//!
//! If stdout fails, as on a full disk, the program neither panics nor reports success: the first error is stored, nothing is
//! written after it, and the command ends with [`finish`].

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use graph_model::character::is_invisible;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

/// Prints a line of the result to stdout. It stays one line, whatever is in it.
macro_rules! out {
    ($($argument:tt)*) => { $crate::output::write_out(&$crate::output::line(format_args!($($argument)*))) };
}

/// Prints a text of several lines to stdout.
macro_rules! out_text {
    ($($argument:tt)*) => { $crate::output::write_out(&$crate::output::text(format_args!($($argument)*))) };
}

/// Prints a JSON value to stdout, in several lines.
macro_rules! out_json {
    ($value:expr) => {
        $crate::output::write_out(&$crate::output::json_text(&format!("{:#}", $value)))
    };
}

/// Prints a JSON value to stdout, in one line.
macro_rules! out_json_line {
    ($value:expr) => {
        $crate::output::write_out(&$crate::output::json_text(&$value.to_string()))
    };
}

/// Prints a line, or several, to stderr.
macro_rules! err {
    ($($argument:tt)*) => { $crate::output::write_err(&$crate::output::text(format_args!($($argument)*))) };
}

/// Prints a diagnostic to stderr, in colours where it is a terminal.
macro_rules! err_coloured {
    ($diagnostic:expr) => {
        $crate::output::write_err(&format!("{}\n", $diagnostic.render_coloured()))
    };
}

/// The exit code of a command that could not do its work.
pub(crate) const UNDONE: u8 = 3;

/// The first error of stdout.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// The maximum number of characters in a line, and in a cell of a table.
const MOST_IN_LINE: usize = 8_192;
const MOST_IN_CELL: usize = 120;

/// A text as it is printed.
struct PrintedText {
    text: String,
    /// The number of characters that may follow.
    left: usize,
    /// The number of characters that are left out.
    cut: usize,
    has_lines: bool,
}

impl fmt::Write for PrintedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.left == 0 {
                self.cut += 1;
                continue;
            }
            self.left -= 1;
            let is_plain = character == '\t' || (character == '\n' && self.has_lines);
            if is_plain || !is_hidden(character) {
                self.text.push(character);
            } else {
                self.text.extend(character.escape_unicode());
            }
        }
        Ok(())
    }
}

impl PrintedText {
    fn of(text: fmt::Arguments<'_>, most: usize, has_lines: bool) -> String {
        let mut printed = Self { text: String::new(), left: most, cut: 0, has_lines };
        let is_whole = printed.write_fmt(text).is_ok();
        debug_assert!(is_whole, "a text that is printed can be formatted");
        if printed.cut > 0 {
            printed.text.push_str(&format!("… ({} more characters)", printed.cut));
        }
        printed.text
    }
}

fn is_hidden(character: char) -> bool {
    character.is_control() || is_invisible(character)
}

/// Returns a text as one line: each character that a reader would not see, or that a terminal would obey, as its number, and the end
/// of a long text as the number of its characters.
pub(crate) fn line(text: fmt::Arguments<'_>) -> String {
    PrintedText::of(text, MOST_IN_LINE, false)
}

/// Returns a text of several lines in the same way, and as a whole.
pub(crate) fn text(text: fmt::Arguments<'_>) -> String {
    PrintedText::of(text, usize::MAX, true)
}

/// Returns the beginning of a text as [`line()`] does.
pub(crate) fn brief(text: &str, most: usize) -> String {
    PrintedText::of(format_args!("{text}"), most, false)
}

/// Returns a JSON text with the same values in which hidden characters are escaped. Outside of strings, JSON has none but line ends.
pub(crate) fn json_text(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character == '\n' || !is_hidden(character) {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

/// Prints rows of cells, in columns that are as wide as their longest cell. The columns from `numbers` on are numbers.
pub(crate) fn write_table(rows: &[impl AsRef<[String]>], numbers: usize) {
    let cells = |row: &[String]| -> Vec<String> { row.iter().map(|cell| brief(cell, MOST_IN_CELL)).collect() };
    let rows: Vec<Vec<String>> = rows.iter().map(|row| cells(row.as_ref())).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let blanks = " ".repeat(width - cell.width());
            let (before, behind) = if column < numbers { ("", blanks.as_str()) } else { (blanks.as_str(), "") };
            line.push_str(&format!("{before}{cell}{behind}  "));
        }
        write_out(line.trim_end());
    }
}

/// Returns a value as people read it before they sign it, in one line: numbers and choices first, then short texts, and long ones at
/// the end and cut, so that no text moves an amount out of sight.
pub(crate) fn question_line(value: &Value, most: usize) -> String {
    fn cut(text: &str, most: usize) -> String {
        let begin: String = text.chars().take(most).collect();
        let more = text[begin.len()..].chars().count();
        let cut = if more > 0 { format!("{begin}… ({more} more characters)") } else { begin };
        Value::String(cut).to_string()
    }
    fn shown(value: &Value, most: usize) -> String {
        match value {
            Value::String(text) => cut(text, most),
            Value::Array(list) => {
                let list: Vec<String> = list.iter().map(|value| shown(value, most)).collect();
                format!("[{}]", list.join(","))
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| format!("{}:{}", cut(name, most), shown(value, most));
                let members: Vec<String> = members.iter().map(member).collect();
                format!("{{{}}}", members.join(","))
            }
            _ => value.to_string(),
        }
    }
    json_text(&shown(&amounts_first(value.clone()), most))
}

/// Puts the members of objects in the order in which people read them: numbers and choices, short texts, lists, and long texts. It is
/// the same value.
pub(crate) fn amounts_first(value: Value) -> Value {
    const SHORT: usize = 80;
    let rank = |value: &Value| match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) if text.chars().nth(SHORT).is_none() && !text.contains('\n') => 1,
        Value::Array(_) | Value::Object(_) => 2,
        Value::String(_) => 3,
    };
    match value {
        Value::Object(members) => {
            let mut members: Vec<(String, Value)> =
                members.into_iter().map(|(name, value)| (name, amounts_first(value))).collect();
            members.sort_by_key(|(_, value)| rank(value));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(list) => list.into_iter().map(amounts_first).collect(),
        value => value,
    }
}

pub(crate) fn write_out(line: &str) {
    let mut failed = failed();
    if failed.is_none() {
        let mut out = anstream::stdout().lock();
        *failed = writeln!(out, "{line}").and_then(|()| out.flush()).err();
    }
}

pub(crate) fn write_err(line: &str) {
    // There is no other place to report the failure.
    drop(writeln!(anstream::stderr().lock(), "{line}"));
}

/// Returns a number with the word for one or for several.
pub(crate) fn counted(count: impl fmt::Display + PartialEq + From<u8>, one: &str, several: &str) -> String {
    let word = if count == 1.into() { one } else { several };
    format!("{count} {word}")
}

/// Whether stdout has failed: a caller that would continue to print may stop.
pub(crate) fn is_lost() -> bool {
    failed().is_some()
}

/// Returns the exit code of a command: `code`, or another one if its result could not be written. A reader that closed its
/// pipe, as `head` does, has what it wanted.
pub(crate) fn finish(code: u8) -> ExitCode {
    match &*failed() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            err!("error: cannot write the result: {error}");
            UNDONE.into()
        }
        _ => code.into(),
    }
}

fn failed() -> MutexGuard<'static, Option<io::Error>> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the reader of stdout has closed its pipe, although nothing was written since.
#[cfg(unix)]
pub(crate) fn is_hung_up() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Whether the reader of stdout has closed its pipe: found out by the next write on this system.
#[cfg(not(unix))]
pub(crate) fn is_hung_up() -> bool {
    false
}

//! Where a run receives signals and answers.

use graph_model::digest::Digest;
use graph_model::name::RunId;
use serde::{Deserialize, Serialize};

/// The place at which a run receives signals and answers: the inbox of the outermost run around it, and the path to it from
/// there.
///
/// The path of a run that is not nested is empty. The path of a nested run has a part for each visit on the way to it, such as
/// `5/` for visit 5, `5.2/` for its call for item 2, and `5~3/` for its third call. Names in the inbox begin with it: a signal `paid`
/// for the run of visit 5 has the name `5/paid`, and an answer to its question `3#1` the name `5/3#1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Address {
    /// The outermost run.
    pub run: RunId,
    /// The link of its first record.
    pub start: Digest,
    /// The path to the run.
    pub path: String,
}

impl Address {
    /// The address of a run that is not nested.
    pub fn of_run(run: RunId, start: Digest) -> Self {
        Self { run, start, path: String::new() }
    }

    /// Returns the address of the run that the `call`th call of a visit or item of this one begins.
    #[must_use]
    pub fn inside(&self, step: u64, item: Option<u64>, call: u64) -> Self {
        let path = format!("{}{}", self.path, part(step, item, call));
        Self { path, ..self.clone() }
    }

    /// Returns a name in the inbox as the run knows it; `None` if it is for another run. A name for a nested run begins with the
    /// path to that run.
    pub fn own<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(self.path.as_str())
    }

    /// Returns the name in the inbox for a name that the run knows.
    pub fn whole(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }
}

/// Returns the part of a path that leads to the run that a call begins.
pub(crate) fn part(step: u64, item: Option<u64>, call: u64) -> String {
    let item = item.map_or_else(String::new, |item| format!(".{item}"));
    let call = if call > 1 { format!("~{call}") } else { String::new() };
    format!("{step}{item}{call}/")
}

/// Whether a name is for a nested run.
pub(crate) fn is_for_nested(name: &str) -> bool {
    name.contains('/')
}

/// Splits the name of a wait, signal or answer into the path to its run and the name that the run knows.
pub fn split(name: &str) -> (&str, &str) {
    name.rfind('/').map_or(("", name), |at| name.split_at(at + 1))
}

/// A call on the way from the outermost run to a nested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallOnPath {
    pub(crate) step: u64,
    pub(crate) item: Option<u64>,
    pub(crate) call: u64,
}

/// Returns the calls that a path names; `None` if it is not a path in its only valid spelling.
pub(crate) fn calls(path: &str) -> Option<Vec<CallOnPath>> {
    let mut calls = Vec::new();
    let mut rest = path;
    while let Some((one, behind)) = rest.split_once('/') {
        let (place, call) = one.split_once('~').map_or((one, "1"), |(place, call)| (place, call));
        let (step, item) = place.split_once('.').map_or((place, None), |(step, item)| (step, Some(item)));
        let item = item.map(str::parse).transpose().ok()?;
        let (step, call) = (step.parse().ok()?, call.parse().ok()?);
        if part(step, item, call) != format!("{one}/") {
            return None;
        }
        calls.push(CallOnPath { step, item, call });
        rest = behind;
    }
    rest.is_empty().then_some(calls)
}

/// Returns the name of the answers to a wait that too few have signed.
pub(crate) fn proposals(wait: &str) -> String {
    format!("{wait}?")
}

/// Returns the wait to which an answer is that too few have signed.
pub(crate) fn proposal_of(name: &str) -> Option<&str> {
    name.strip_suffix('?')
}

/// Returns the wait to which a signal is an answer, or an answer that too few have signed, by its name or its id. Other signals have
/// other names and ids.
pub(crate) fn answered(name: &str) -> Option<&str> {
    let wait = name.split_once('?').map_or(name, |(wait, _)| wait);
    let (path, own) = split(wait);
    let (step, ordinal) = own.split_once('#')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(step) && is_number(ordinal) && calls(path).is_some()).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        let origin = Address::of_run(RunId::new("order").unwrap(), Digest::of("start"));
        let inner = origin.inside(5, Some(2), 3).inside(7, None, 1);
        assert_eq!(inner.path, "5.2~3/7/");
        assert_eq!((inner.own("5.2~3/7/paid"), inner.own("5.2~3/paid")), (Some("paid"), None));
        assert_eq!((inner.whole("1#1"), origin.whole("1#1")), ("5.2~3/7/1#1".to_owned(), "1#1".to_owned()));
        let first = CallOnPath { step: 5, item: Some(2), call: 3 };
        let second = CallOnPath { step: 7, item: None, call: 1 };
        assert_eq!(calls(&inner.path), Some(vec![first, second]));
        assert_eq!(calls(""), Some(Vec::new()));
        for wrong in ["5", "/", "05/", "5.02/", "5~1/", "5~/", "5./", "+5/", "5/x/", "5//", "18446744073709551616/"] {
            assert_eq!(calls(wrong), None, "{wrong}");
        }
        assert_eq!(split("5.2/3#1"), ("5.2/", "3#1"));
        assert_eq!(split("3#1"), ("", "3#1"));
    }
}

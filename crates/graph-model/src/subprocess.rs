//! A tool that is a program of its own: how to start it, as its contract says.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// How to start the program of a tool, as the `config` of its contract says. The compiler hands it to the runtime as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subprocess {
    /// The program and its arguments; not empty. No shell reads them.
    pub command: Vec<String>,
    /// The milliseconds after which it is stopped.
    #[serde(default = "ten_minutes", skip_serializing_if = "is_ten_minutes")]
    pub timeout_ms: u64,
    /// Variables to set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// The directory to run it in; the embedding program's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The bytes that it may print, to each of stdout and stderr.
    #[serde(default = "one_mebibyte", skip_serializing_if = "is_one_mebibyte")]
    pub output_limit: u64,
    /// The exit codes that are no failure.
    #[serde(default = "zero", skip_serializing_if = "is_zero")]
    pub ok_exit_codes: Vec<i64>,
    /// The SHA-256 of the program's file, if the contract pins it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

impl Subprocess {
    /// A program with its arguments, and the defaults of everything else.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            command,
            timeout_ms: ten_minutes(),
            env: Vec::new(),
            cwd: None,
            output_limit: one_mebibyte(),
            ok_exit_codes: zero(),
            sha256: None,
        }
    }

    /// Returns the JSON that [`Subprocess::from_json`] reads; the same one for the same contract.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and lists of them are JSON")
    }

    /// Reads what [`Subprocess::to_json`] wrote.
    ///
    /// # Errors
    ///
    /// If the text is something else.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

const fn ten_minutes() -> u64 {
    600_000
}

fn is_ten_minutes(milliseconds: &u64) -> bool {
    *milliseconds == ten_minutes()
}

const fn one_mebibyte() -> u64 {
    1 << 20
}

fn is_one_mebibyte(bytes: &u64) -> bool {
    *bytes == one_mebibyte()
}

fn zero() -> Vec<i64> {
    vec![0]
}

fn is_zero(codes: &[i64]) -> bool {
    codes == [0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trips_without_writing_defaults() {
        let plain = Subprocess::new(vec!["tool".into()]);
        assert_eq!(plain.to_json(), r#"{"command":["tool"]}"#);
        assert_eq!(Subprocess::from_json(&plain.to_json()).unwrap(), plain);
        let full = Subprocess {
            timeout_ms: 250,
            env: vec![("A".into(), "b".into())],
            cwd: Some("work".into()),
            output_limit: 10,
            ok_exit_codes: vec![0, 3],
            sha256: Some(Digest::of("x")),
            ..plain
        };
        assert_eq!(Subprocess::from_json(&full.to_json()).unwrap(), full);
        assert!(Subprocess::from_json(r#"{"command":["tool"],"shell":true}"#).is_err());
    }
}

//! The state item: the status and the state of a run, as a signed page of knowledge.

use std::fmt::Write;
use std::time::SystemTime;

use graph_model::digest::Digest;
use graph_model::name::{GraphId, RunId};
use graph_model::timestamp;
use graph_model::value::Value;
use graph_signing::{self as signature, Fingerprint, ItemKind, KeyRing, Signer};
use serde::Deserialize;

use super::facts::RunProjection;
use super::transcript::{Bound, whole_second};
use crate::error::FilesError;
use graph_engine::record::Status;

/// Returns the path of a run's state item (R206).
pub(crate) fn file(graph: &GraphId, run: &RunId) -> String {
    format!(".ai/knowledge/graphs/{graph}/{run}.md")
}

/// Writes the state item of a run (R207), signed with `key`.
pub(crate) fn text(facts: &RunProjection, bound: Option<&Bound>, key: &dyn Signer) -> String {
    let RunProjection { topology, run, parent, steps, .. } = facts;
    let graph = &topology.id;
    let (graph_id, run_id) = (scalar(graph.as_str()), scalar(run.as_str()));
    let parent = parent.as_ref().map_or_else(String::new, |parent| scalar(parent.as_str()));
    let (status, node) = (facts.status.name(), scalar(facts.current_node()));
    let (started, updated) = (whole_second(&facts.started_at), whole_second(&facts.at));
    let bound = bound.map_or_else(String::new, |Bound { bytes, hash }| {
        format!("transcript_bytes: {bytes}\ntranscript_hash: \"{hash}\"\n")
    });
    let state =
        serde_json::to_string_pretty(&facts.state()).expect("a state has only texts as keys and finite numbers");
    let text = format!(
        "{OPEN}id: graphs/{graph}/{run}\n\
         title: \"State: {graph} ({run})\"\n\
         entry_type: graph_state\n\
         category: graphs/{graph}\n\
         version: \"1.0.0\"\n\
         graph_id: {graph_id}\n\
         graph_run_id: {run_id}\n\
         parent_thread_id: {parent}\n\
         status: {status}\n\
         current_node: {node}\n\
         step_count: {steps}\n\
         started_at: {started}\n\
         updated_at: {updated}\n\
         {bound}tags: [graph_state]\n{CLOSE}{}",
        ascii(&state)
    );
    sign(&text, &facts.at, key)
}

const OPEN: &str = "```yaml\n";
const CLOSE: &str = "```\n\n";

/// Signs a page of knowledge at the time of the record that it was made from, so that the same record gives the same bytes.
pub(crate) fn sign(text: &str, at: &str, key: &dyn Signer) -> String {
    let at = timestamp::parse(at).unwrap_or(SystemTime::UNIX_EPOCH);
    signature::sign(ItemKind::Knowledge, text, key, at).expect("a page of knowledge is covered as a whole")
}

/// Writes a name as a YAML scalar that reads back as the same text.
pub(crate) fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'));
    let is_word =
        ["true", "false", "yes", "no", "on", "off", "null", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    if is_plain && !is_word { text.to_owned() } else { Value::from(text).to_string() }
}

/// Escapes the characters of a JSON text that are not ASCII. They occur only in strings.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' | ' '..='~' => text.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    write!(text, "\\u{unit:04x}").expect("writing into a string cannot fail");
                }
            }
        }
    }
    text
}

/// A state item with a valid signature.
///
/// [`read_state_item`] has an example.
#[derive(Debug, Clone, PartialEq)]
pub struct StateItem {
    /// The graph.
    pub graph: GraphId,
    /// The run.
    pub run: RunId,
    /// The run's status.
    pub status: Status,
    /// The node at which the run continues; for a completed run, the node at which it ended.
    pub current_node: String,
    /// How many nodes were visited.
    pub steps: u64,
    /// The state, including the run's inputs.
    pub state: Value,
    /// The part of the transcript that was signed when this was written.
    pub transcript: Bound,
    /// The fingerprint of the key that signed it.
    pub signer: Fingerprint,
}

#[derive(Deserialize)]
struct Header {
    graph_id: String,
    graph_run_id: String,
    status: Status,
    current_node: String,
    step_count: u64,
    transcript_bytes: u64,
    transcript_hash: String,
}

/// Verifies and reads a state item (R212).
///
/// ```
/// # mod graph_runtime {
/// #     pub use graph_engine::*;
/// #     pub mod files { pub use graph_project_files::*; }
/// #     pub use files::ProjectFiles;
/// # }
/// # fn example(file: &str, keys: &graph_runtime::files::KeyRing) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::files::read_state_item;
///
/// let item = read_state_item(&std::fs::read_to_string(file)?, keys)?;
/// println!("run {} is at `{}`, with {}", item.run, item.current_node, item.state);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If it is not signed by a trusted key, was altered, or is not a state item.
pub fn read_state_item(text: &str, keys: &KeyRing) -> Result<StateItem, FilesError> {
    let text = &*signature::normalise(text);
    let verified = signature::verify(ItemKind::Knowledge, text, keys).map_err(FilesError::Item)?;
    let signer = verified.envelope.fingerprint.clone();
    let opened = signature::open(ItemKind::Knowledge, text).map_err(FilesError::Item)?;
    let malformed = |reason: String| FilesError::NoStateItem { reason };
    let parts = opened.content.strip_prefix(OPEN).and_then(|rest| rest.split_once(&format!("\n{CLOSE}")));
    let (header, state) = parts.ok_or_else(|| malformed("it has no header in a fence".to_owned()))?;
    let header: Header = serde_yaml::from_str(header).map_err(|error| malformed(error.to_string()))?;
    let hash: Digest = header.transcript_hash.parse().map_err(|_| malformed("its hash cannot be read".to_owned()))?;
    Ok(StateItem {
        graph: GraphId::new(header.graph_id).map_err(|error| malformed(error.to_string()))?,
        run: RunId::new(header.graph_run_id).map_err(|error| malformed(error.to_string()))?,
        status: header.status,
        current_node: header.current_node,
        steps: header.step_count,
        state: serde_json::from_str(state).map_err(|error| malformed(error.to_string()))?,
        transcript: Bound { bytes: header.transcript_bytes, hash },
        signer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_header_is_read_as_that_name() {
        for name in ["count_files", "a: b", "yes", "1", "# x", "\"", "ü😀", "", "a\\b", "null", "[x]", "a/b", "1e5"]
        {
            let yaml = format!("node: {}\n", scalar(name));
            let read: std::collections::BTreeMap<String, String> = serde_yaml::from_str(&yaml).unwrap();
            assert_eq!(read["node"], name, "{yaml}");
        }
    }
}

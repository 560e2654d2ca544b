//! The thread file: the permissions of a run, signed, for graphs that its programs start in processes of their own (R44, R166).

use std::time::SystemTime;

use graph_engine::graph::GraphTables;
use graph_engine::record::{Resume, Start};
use graph_model::capability::{Grants, Pattern};
use graph_model::name::RunId;
use graph_model::timestamp;
use graph_model::value::{Map, Value, canonical_json};
use graph_signing::{Envelope, Signer, sign_json};
use serde_json::json;

use crate::FilesError;

/// Returns the path of a run's thread file.
pub(crate) fn file(run: &RunId) -> String {
    format!(".ai/state/threads/{run}/thread.json")
}

/// Returns the signature in a thread file, if it can be read.
pub(crate) fn envelope(text: &[u8]) -> Option<Envelope> {
    let fields: Value = serde_json::from_slice(text).ok()?;
    fields.get("_signature")?.as_str()?.parse().ok()
}

/// The rights of a run's graph: what the graph permits itself, and how many levels of graphs may be nested in it.
#[derive(Debug)]
pub(crate) struct GraphRights {
    permissions: Grants,
    depth: u32,
    /// The beginning of the run, and its time, once they were seen.
    begun: Option<(Start, String)>,
}

impl GraphRights {
    pub(crate) fn of(code: &GraphTables) -> Self {
        Self { permissions: code.permissions.clone(), depth: code.settings.depth, begun: None }
    }

    /// Returns the text of the thread file of a run that begins.
    ///
    /// # Errors
    ///
    /// If a grant in the record cannot be read.
    pub(crate) fn begin(
        &mut self,
        run: &RunId,
        start: &Start,
        at: &str,
        key: &dyn Signer,
    ) -> Result<String, FilesError> {
        self.begun = Some((start.clone(), at.to_owned()));
        self.text(run, start, (&start.grants, start.depth), at, key)
    }

    /// Returns the text of the thread file of a run that is resumed: it has the grants of whoever resumes it.
    ///
    /// # Errors
    ///
    /// If a grant in the record cannot be read.
    pub(crate) fn resume(&self, run: &RunId, resume: &Resume, key: &dyn Signer) -> Result<Option<String>, FilesError> {
        let Some((start, at)) = &self.begun else { return Ok(None) };
        let depth = resume.depth.into_iter().chain(start.depth).min();
        self.text(run, start, (&resume.grants, depth), at, key).map(Some)
    }

    fn text(
        &self,
        run: &RunId,
        start: &Start,
        (grants, depth): (&[String], Option<u32>),
        at: &str,
        key: &dyn Signer,
    ) -> Result<String, FilesError> {
        let granted = grants.iter().map(Pattern::new).collect::<Result<Vec<_>, _>>();
        let granted = granted.map_err(|error| FilesError::Grants { run: run.clone(), reason: error.to_string() })?;
        let mut capabilities = self.permissions.narrowed(&Grants::new(granted));
        if let Some(own) = &start.capabilities {
            capabilities = capabilities.narrowed(&Grants::new(own.iter().cloned()));
        }
        let capabilities: Vec<&str> = capabilities.patterns().iter().map(Pattern::as_str).collect();
        // A graph in another process is a level deeper.
        let depth = depth.map_or(self.depth, |depth| depth.min(self.depth)).saturating_sub(1);
        let parent = start.parent.as_ref().map(|parent| &parent.run);
        let parent = parent.or(start.task.as_ref().map(|task| &task.owner));
        let mut fields = Map::from_iter([
            ("thread_id".to_owned(), Value::from(run.as_str())),
            ("directive".to_owned(), Value::from(start.graph.as_str())),
            ("parent_thread_id".to_owned(), json!(parent)),
            ("capabilities".to_owned(), json!(capabilities)),
            ("limits".to_owned(), json!({ "depth": depth })),
            ("created_at".to_owned(), Value::from(at)),
        ]);
        sign_json(&mut fields, key, timestamp::parse(at).unwrap_or(SystemTime::UNIX_EPOCH));
        Ok(format!("{}\n", canonical_json(&Value::Object(fields))))
    }
}

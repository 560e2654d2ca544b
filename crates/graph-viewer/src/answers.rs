//! Sends what the person at the page answers to the question of a run, as `graph answer` does.

use std::sync::Arc;

use graph_runtime::answer::{Answered, Question};
use graph_runtime::{AnswerError, RunId, StoredRunError};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::AnswerRights;
use crate::index::{ShownRun, blocking};
use crate::problem::ViewProblem;
use crate::state::ViewerState;
use crate::views::graph_of;

/// The body of a request with an answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerRequest {
    /// The id of the question.
    wait: String,
    /// The answer.
    answer: Value,
}

/// Signs an answer with the person's key, and sends it.
pub(crate) async fn answer(
    viewer: &ViewerState,
    rights: &AnswerRights,
    run: &RunId,
    shown: &Arc<ShownRun>,
    body: &[u8],
) -> Result<Value, ViewProblem> {
    let AnswerRequest { wait, answer } = serde_json::from_slice(body)
        .map_err(|error| ViewProblem::bad(format!("the answer is not JSON with `wait` and `answer`: {error}")))?;
    // The place that is shown must still be the one that is written to.
    viewer.source.open().await?;
    let (graphs, found) = (Arc::clone(&viewer.graphs), Arc::clone(shown));
    let graph = blocking(move || found.with(|index| graph_of(&*graphs, index))).await?;
    let open = rights.runtime.questions(&graph, run).await.map_err(refused)?;
    let Some(question) = open.iter().find(|question: &&Question| question.wait == wait) else {
        let text = format!("run `{run}` does not ask `{wait}` any more");
        return Err(ViewProblem::new(StatusCode::CONFLICT, text));
    };
    if question.secrets(&graph).is_some() {
        let text =
            format!("the answer to `{}` has secrets: give it on standard input of `graph answer`", question.node);
        return Err(ViewProblem::unfit(text));
    }
    let envelope = question.answer(&answer);
    // Nobody signs what does not fit.
    question.check(&graph, &envelope).map_err(refused)?;
    let signed = envelope.signed_by(&rights.key).map_err(|error| refused(error.into()))?;
    let done = match rights.runtime.answer(&graph, run, &signed).await.map_err(refused)? {
        Answered::Proposed { have, need } => json!({"result": "proposed", "have": have, "need": need}),
        Answered::Already { taken } => json!({"result": "already", "taken": taken}),
        _ => json!({"result": "accepted"}),
    };
    Ok(done)
}

fn refused(error: AnswerError) -> ViewProblem {
    let text = ViewProblem::chain(&error);
    match error {
        AnswerError::NotOpen { .. } | AnswerError::Expired { .. } | AnswerError::Answered { .. } => {
            ViewProblem::new(StatusCode::CONFLICT, text)
        }
        AnswerError::Stored(StoredRunError::Store(_)) => ViewProblem::unreadable(text),
        _ => ViewProblem::unfit(text),
    }
}

//! A call of a graph's tool: its run, with progress, cancellation and questions.

use graph_compiler::diagnostic::nearest;
use graph_runtime::events::{EventKind, Events, RunEvent};
use graph_runtime::{Canceller, Finished, Map, Options, Run, RunError, RunId, Status, Value};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, InputRequiredResult, ProgressNotificationParam,
    ProgressToken, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;

use crate::question::{ClientAnswer, QuestionState, accepts_questions, ask, input_request};
use crate::server::{ServedGraph, ServerParts, failed};

/// How often a person is asked again in one call whose answers do not fit.
const MOST_QUESTIONS: usize = 32;

/// The next part of a run.
enum NextPart {
    Start(Map<String, Value>),
    Resume(RunId),
}

/// Cancels a run when its call is dropped.
struct CancelOnDrop(Canceller);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl ServedGraph {
    /// Performs a call: starts a run, or continues the one that asked the person at the client.
    pub(crate) async fn call(
        &self,
        server: &ServerParts,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut progress = ClientProgress::of(&context);
        let mut complaint = None;
        let mut part = match (request.request_state, request.input_responses) {
            (Some(state), responses) => {
                let state = QuestionState::open(server, self, &state)
                    .map_err(|reason| ErrorData::invalid_params(reason, None))?;
                let answer = ClientAnswer::in_responses(responses.unwrap_or_default())
                    .map_err(|reason| ErrorData::invalid_params(reason, None))?;
                match self.send(server, &state, answer).await {
                    SentAnswer::Continue => {}
                    SentAnswer::Misfit(reason) => complaint = Some(reason),
                    SentAnswer::Over(result) => return Ok(result.into()),
                }
                NextPart::Resume(state.run)
            }
            (None, Some(_)) => {
                return Err(ErrorData::invalid_params(
                    "`inputResponses` needs the `requestState` of the question",
                    None,
                ));
            }
            (None, None) => match self.inputs(request.arguments.unwrap_or_default()) {
                Ok(inputs) => NextPart::Start(inputs),
                Err(problem) => return Ok(failed(problem).into()),
            },
        };
        for _ in 0..MOST_QUESTIONS {
            let ended = match self.run(part, &context, &mut progress).await {
                Ok(ended) => ended,
                Err(reason) => return Ok(failed(reason).into()),
            };
            let error = match ended {
                Ok(finished) => return Ok(completed(&finished).into()),
                Err(error) => error,
            };
            let RunError::Waiting { run, .. } = &error else { return Ok(broken(&error).into()) };
            let Some(asked) = self.question(server, run).await else { return Ok(self.waiting(&error, "").into()) };
            let asked = asked.complaining(complaint.take());
            if !accepts_questions(&context) {
                return Ok(self.waiting(&error, "").into());
            }
            let is_modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
            if is_modern {
                let state = asked.state().seal(server, self);
                let state = state.map_err(|reason| ErrorData::internal_error(reason, None))?;
                let requests = input_request(&asked).map_err(|reason| ErrorData::internal_error(reason, None))?;
                return Ok(InputRequiredResult::new(Some(requests), Some(state)).into());
            }
            let answer = match ask(&asked, &context).await {
                Ok(answer) => answer,
                Err(reason) => return Ok(self.waiting(&error, &reason).into()),
            };
            match self.send(server, &asked.state(), answer).await {
                SentAnswer::Continue => {}
                SentAnswer::Misfit(reason) => complaint = Some(reason),
                SentAnswer::Over(result) => return Ok(result.into()),
            }
            part = NextPart::Resume(run.clone());
        }
        Ok(failed("the run asks without end").into())
    }

    /// Returns the inputs of a run, if the graph has inputs of these names. The runtime checks their values.
    fn inputs(&self, arguments: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let Some(fields) = &self.graph.interface().inputs else { return Ok(arguments) };
        let names = || fields.iter().map(|field| field.name.as_str());
        match arguments.keys().find(|name| !names().any(|known| known == *name)) {
            None => Ok(arguments),
            Some(unknown) => {
                let near = nearest(unknown, names()).map(|near| format!("; did you mean `{near}`?"));
                let unknown: String = unknown.chars().take(100).collect();
                Err(format!("the graph has no input `{unknown}`{}", near.unwrap_or_default()))
            }
        }
    }

    /// Runs the graph until the run ends or waits. Fails if there is no run.
    async fn run(
        &self,
        part: NextPart,
        context: &RequestContext<RoleServer>,
        progress: &mut Option<ClientProgress>,
    ) -> Result<Result<Finished<Value>, RunError>, String> {
        let options: Options = self.options.clone();
        let mut run = match part {
            NextPart::Start(inputs) => {
                let started = self.runtime.start_with(options, self.graph.clone(), inputs).await;
                started.map_err(|error| chain(&error))?
            }
            NextPart::Resume(run) => {
                let resumed = self.runtime.resume_with(options, self.graph.clone(), &run).await;
                resumed.map_err(|error| chain(&error))?
            }
        };
        let mut events = progress.as_ref().and_then(|_| run.events());
        let canceller = CancelOnDrop(run.canceller());
        let ended = drive(&mut run, &mut events, context, progress, &canceller).await;
        if let (Some(events), Some(progress), false) = (&mut events, progress, context.ct.is_cancelled()) {
            while let Some(event) = events.next().await {
                progress.tell(event.ok(), context).await;
            }
        }
        Ok(ended)
    }

    /// Returns the result of a call whose run waits.
    fn waiting(&self, error: &RunError, reason: &str) -> CallToolResult {
        let (run, reason) = (error.run(), if reason.is_empty() { String::new() } else { format!(" ({reason})") });
        let asks = matches!(error, RunError::Waiting { waits, .. } if waits.iter().any(|wait| wait.ask.is_some()));
        let how = if asks {
            format!("`graph answer {run} --store FILE` shows the question and answers it")
        } else {
            format!("`graph work` continues the run when that has happened, and `graph signal {run}` sends a signal")
        };
        CallToolResult::structured(
            json!({ "status": "waiting", "run": run, "waits": format!("{error}{reason}; {how}") }),
        )
    }
}

/// Waits for the end of a run, and passes on its progress and a cancellation.
async fn drive(
    run: &mut Run<Value>,
    events: &mut Option<Events>,
    context: &RequestContext<RoleServer>,
    progress: &mut Option<ClientProgress>,
    canceller: &CancelOnDrop,
) -> Result<Finished<Value>, RunError> {
    let mut is_cancelled = false;
    loop {
        let next = async {
            match events.as_mut() {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut *run => return ended,
            event = next => match (event, progress.as_mut()) {
                (Some(event), Some(progress)) => progress.tell(event.ok(), context).await,
                _ => *events = None,
            },
            () = context.ct.cancelled(), if !is_cancelled => {
                canceller.0.cancel();
                is_cancelled = true;
            }
        }
    }
}

/// The outcome of sending an answer.
pub(crate) enum SentAnswer {
    /// The run may be able to continue.
    Continue,
    /// The answer does not fit.
    Misfit(String),
    /// The call is over.
    Over(CallToolResult),
}

/// The progress of a run, as the client hears of it.
struct ClientProgress {
    token: ProgressToken,
    steps: u32,
}

impl ClientProgress {
    fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        context.meta.get_progress_token().map(|token| Self { token, steps: 0 })
    }

    /// Tells the client about an event that is the end of a step, or the beginning of a wait.
    async fn tell(&mut self, event: Option<RunEvent>, context: &RequestContext<RoleServer>) {
        let Some(event) = event else { return };
        let (node, said) = match &event.kind {
            EventKind::Visited { node, visit, .. } => (node, if visit.error.is_some() { "failed" } else { "done" }),
            EventKind::WaitOpened { node, .. } => (node, "waits"),
            _ => return,
        };
        let graph = event.graph.as_ref().filter(|_| event.run != event.root).map(|graph| format!("{graph}: "));
        let message = format!("{}{node} {said}", graph.unwrap_or_default());
        self.steps += 1;
        let told = ProgressNotificationParam::new(self.token.clone(), f64::from(self.steps)).with_message(message);
        // A client that is gone, or that does not read, does not hear of it.
        tokio::select! {
            told = context.peer.notify_progress(told) => drop(told),
            () = context.ct.cancelled() => {}
        }
    }
}

/// Returns the result of a run that has ended.
fn completed(finished: &Finished<Value>) -> CallToolResult {
    let status = if finished.status == Status::CompletedWithErrors { "completed_with_errors" } else { "completed" };
    CallToolResult::structured(json!({ "status": status, "run": finished.run, "output": finished.output }))
}

/// Returns the result of a run that failed.
fn broken(error: &RunError) -> CallToolResult {
    let status = if matches!(error, RunError::Cancelled { .. }) { "cancelled" } else { "error" };
    CallToolResult::structured_error(json!({ "status": status, "run": error.run(), "error": chain(error) }))
}

/// Returns the texts of an error and of its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

//! Questions of runs to people, asked at the client.

use std::time::Duration;

use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_model::character::is_invisible;
use graph_model::number::read_json;
use graph_runtime::answer::{Answered, Question};
use graph_runtime::{AnswerError, ItemId, Map, RunId, Value};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequests, InputResponses, SealOptions,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::calls::{SentAnswer, chain};
use crate::schema::{self, SchemaSide};
use crate::server::{ServedGraph, ServerParts, failed};

/// The name of the question among the requests of a result, and of a field that holds a whole answer.
const ANSWER: &str = "answer";

/// How long a person may think, where the client keeps the call open meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3_600);

/// How long the state of a question can be used.
const STATE_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// The most characters of a question that a client is shown.
const MOST_SHOWN: usize = 16_384;

/// A question that is put to the person at the client.
pub(crate) struct AskedPerson {
    question: Question,
    form: AnswerForm,
    /// Why the last answer did not fit.
    complaint: Option<String>,
}

/// The form in which a client asks for an answer: an object with plain fields, which is all that clients know.
enum AnswerForm {
    /// The fields of the answer.
    Fields(Map<String, Value>),
    /// One field with the answer.
    Plain(Map<String, Value>),
    /// One field with the answer as JSON text.
    Json(Map<String, Value>),
}

/// The state of a question, which a client sends back with the answer. It is sealed, so that no client can change it.
#[derive(Serialize, Deserialize)]
pub(crate) struct QuestionState {
    pub(crate) run: RunId,
    wait: String,
}

/// The reply of the person to a question.
pub(crate) enum ClientAnswer {
    Given(Value),
    Declined,
}

impl QuestionState {
    pub(crate) fn seal(&self, server: &ServerParts, served: &ServedGraph) -> Result<String, String> {
        let options = SealOptions::new().associated_data(served.graph.id().as_bytes()).ttl(STATE_LIFE);
        server.states.seal_json_with(self, &options).map_err(|error| error.to_string())
    }

    pub(crate) fn open(server: &ServerParts, served: &ServedGraph, sealed: &str) -> Result<Self, String> {
        server.states.open_json_with(sealed, served.graph.id().as_bytes()).map_err(|error| {
            format!("`requestState` is not one of this server: {error}; `graph answer` answers the question too")
        })
    }
}

impl ClientAnswer {
    /// Finds the answer among the responses of a client.
    pub(crate) fn in_responses(mut responses: InputResponses) -> Result<Self, String> {
        let response = responses.remove(ANSWER).ok_or("`inputResponses` has no `answer`")?;
        let response = serde_json::from_value(response).map_err(|_| "the response `answer` is no result of a form")?;
        Ok(Self::of(response))
    }

    fn of(result: ElicitResult) -> Self {
        match (result.action, result.content) {
            (ElicitationAction::Accept, Some(content)) => Self::Given(content),
            _ => Self::Declined,
        }
    }
}

impl AskedPerson {
    /// Says first why the last answer did not fit.
    pub(crate) fn complaining(self, complaint: Option<String>) -> Self {
        Self { complaint, ..self }
    }

    pub(crate) fn state(&self) -> QuestionState {
        QuestionState { run: self.question.run.clone(), wait: self.question.wait.clone() }
    }

    /// Returns the text that the person sees.
    fn text(&self) -> String {
        let Question { run, node, payload, role, .. } = &self.question;
        let complaint = self.complaint.as_ref().map(|reason| format!("The last answer does not fit: {reason}\n\n"));
        let payload = match payload {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            payload => format!("{payload:#}"),
        };
        let role = role.as_ref().map(|role| format!(" as {role}")).unwrap_or_default();
        let text = format!(
            "{}`{node}` of run `{run}` asks. Your answer is signed{role}.\n\n{payload}",
            complaint.unwrap_or_default()
        );
        let is_hidden = |letter: char| (letter.is_control() && letter != '\n') || is_invisible(letter);
        text.chars().map(|letter| if is_hidden(letter) { ' ' } else { letter }).collect()
    }

    /// Whether the person sees all of the question: somebody who signs must have seen it.
    fn is_shown(&self) -> bool {
        self.text().chars().count() <= MOST_SHOWN
    }

    fn params(&self) -> Result<ElicitRequestParams, String> {
        let schema = self.form.schema().clone();
        let requested_schema = ElicitationSchema::from_json_schema(schema)
            .map_err(|error| format!("the answer cannot be asked for in a form: {error}"))?;
        Ok(ElicitRequestParams::FormElicitationParams { meta: None, message: self.text(), requested_schema })
    }
}

impl AnswerForm {
    fn of(ty: &Type) -> Self {
        let plain = |field: &TypedField| is_plain(&field.ty);
        match (&ty.kind, schema::of(ty, SchemaSide::Input)) {
            (TypeKind::Object(fields), Value::Object(schema)) if !ty.nullable && fields.iter().all(plain) => {
                Self::Fields(schema)
            }
            (_, schema) if is_plain(ty) => Self::Plain(single(schema)),
            (_, schema) => {
                let description = format!("The answer as JSON text. Its schema: {schema}");
                Self::Json(single(json!({ "type": "string", "description": description })))
            }
        }
    }

    fn schema(&self) -> &Map<String, Value> {
        match self {
            Self::Fields(schema) | Self::Plain(schema) | Self::Json(schema) => schema,
        }
    }

    /// Returns the answer in what a form gave.
    fn read(&self, content: Value) -> Result<Value, String> {
        let whole = |mut content: Value| match content.get_mut(ANSWER) {
            Some(answer) => Ok(answer.take()),
            None => Err(format!("the field `{ANSWER}` is missing")),
        };
        match self {
            Self::Fields(_) => Ok(content),
            Self::Plain(_) => whole(content),
            Self::Json(_) => {
                let text = whole(content)?;
                let text = text.as_str().ok_or("the answer is a text of JSON")?;
                read_json(text).map_err(|error| format!("the answer is not JSON: {error}"))
            }
        }
    }
}

fn single(schema: Value) -> Map<String, Value> {
    let fields = json!({ "type": "object", "properties": { ANSWER: schema }, "required": [ANSWER] });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Whether a form can ask for values of a type in one field.
fn is_plain(ty: &Type) -> bool {
    matches!(ty.kind, TypeKind::Boolean | TypeKind::Integer | TypeKind::Number | TypeKind::String | TypeKind::Enum(_))
}

/// Whether the client can show forms to a person.
pub(crate) fn accepts_questions(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
    elicitation.is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none())
}

/// Returns the question as a part of a result, for clients of the protocol 2026-07-28.
pub(crate) fn input_request(asked: &AskedPerson) -> Result<InputRequests, String> {
    let request = InputRequest::Elicitation(ElicitRequest::new(asked.params()?));
    Ok(InputRequests::from([(ANSWER.to_owned(), request)]))
}

/// Asks the person at a client of an older protocol.
pub(crate) async fn ask(asked: &AskedPerson, context: &RequestContext<RoleServer>) -> Result<ClientAnswer, String> {
    let params = asked.params()?;
    tokio::select! {
        answer = context.peer.create_elicitation_with_timeout(params, Some(PATIENCE)) => {
            answer.map(ClientAnswer::of).map_err(|error| format!("the client did not ask: {error}"))
        }
        () = context.ct.cancelled() => Err("the call was cancelled".to_owned()),
    }
}

impl ServedGraph {
    /// Returns the first open question of a run that the person at the client can answer with the key of the server.
    pub(crate) async fn question(&self, server: &ServerParts, run: &RunId) -> Option<AskedPerson> {
        server.answer_key.as_ref()?;
        let open = self.runtime.questions(&self.graph, run).await.ok()?;
        open.into_iter().find_map(|question| self.asked(question))
    }

    fn asked(&self, question: Question) -> Option<AskedPerson> {
        // A secret would pass through the client.
        if question.secrets(&self.graph).is_some() {
            return None;
        }
        let inner;
        let asking = if question.graph() == self.graph.id() {
            &self.graph
        } else {
            inner = self.library.graph(&self.library.find(&ItemId::new(question.graph()).ok()?)?).ok()?;
            &inner
        };
        let answer = asking.interface().answers.iter().find(|answer| answer.name == question.node)?;
        let form = AnswerForm::of(&answer.ty);
        Some(AskedPerson { question, form, complaint: None }).filter(AskedPerson::is_shown)
    }

    /// Signs an answer, and sends it to the run.
    pub(crate) async fn send(&self, server: &ServerParts, state: &QuestionState, answer: ClientAnswer) -> SentAnswer {
        let run = &state.run;
        let refused = |reason: &str| {
            SentAnswer::Over(failed(format!(
                "the answer was not taken: {reason}; run `{run}` waits, and `graph answer {run} --store FILE` answers it"
            )))
        };
        let Some(key) = &server.answer_key else { return refused("this server has no key for answers") };
        let open = match self.runtime.questions(&self.graph, run).await {
            Ok(open) => open,
            Err(error) => return refused(&chain(&error)),
        };
        // Somebody else may have answered it.
        let Some(question) = open.into_iter().find(|question| question.wait == state.wait) else {
            return SentAnswer::Continue;
        };
        let ClientAnswer::Given(content) = answer else {
            return SentAnswer::Over(self.declined(run, &question.node));
        };
        let Some(asked) = self.asked(question) else { return refused("it is not for a client to answer") };
        let question = &asked.question;
        let signed = asked.form.read(content).and_then(|answer| {
            let envelope = question.answer(&answer);
            question.check(&self.graph, &envelope).map_err(|error| chain(&error))?;
            envelope.signed_by(key).map_err(|error| error.to_string())
        });
        let envelope = match signed {
            Ok(envelope) => envelope,
            Err(reason) => return SentAnswer::Misfit(reason),
        };
        match self.runtime.answer(&self.graph, run, &envelope).await {
            Ok(Answered::Proposed { have, need }) => SentAnswer::Over(self.proposed(run, &question.node, have, need)),
            Ok(_) | Err(AnswerError::Answered { .. } | AnswerError::Expired { .. } | AnswerError::NotOpen { .. }) => {
                SentAnswer::Continue
            }
            Err(error) => refused(&chain(&error)),
        }
    }

    fn declined(&self, run: &RunId, node: &str) -> rmcp::model::CallToolResult {
        let text = format!("the person did not answer `{node}`; `graph answer {run} --store FILE` answers it");
        waits(run, &text)
    }

    fn proposed(&self, run: &RunId, node: &str, have: u32, need: u32) -> rmcp::model::CallToolResult {
        let text = format!(
            "{have} of {need} people have signed the answer to `{node}`; the others use `graph answer {run} --store FILE`"
        );
        waits(run, &text)
    }
}

fn waits(run: &RunId, text: &str) -> rmcp::model::CallToolResult {
    rmcp::model::CallToolResult::structured(json!({ "status": "waiting", "run": run, "waits": text }))
}

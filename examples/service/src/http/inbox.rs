//! The inbox: the questions of orders on invoice to people, and their answers.
//!
//! | request | |
//! |---|---|
//! | `GET /inbox` | the page, with its script and its style below it |
//! | `GET /inbox/questions?role=credit&after=…` | lists the questions that are open, the oldest first, a page at a time |
//! | `GET /inbox/questions/{run}/{wait}` | a question as the journal of its run proves it |
//! | `POST /inbox/questions/{run}/{wait}/statement` | makes the statement that a person signs; the body is the answer |
//! | `POST /inbox/questions/{run}/{wait}/answer` | receives the statement with the signature: a DSSE envelope |
//!
//! All below `/inbox/questions` needs the token of the inbox: `Authorization: Bearer …`. The token lets somebody read the questions. It
//! does not let them answer: an answer counts by the key that signed it, and that key stays in the browser of the person.
//!
//! An answer that comes too late gets the status 410, one to a question that was answered otherwise 409, one by somebody who may not
//! answer 403, and one that does not fit the graph 422. None of them changes anything.

use axum::extract::{Path, Query, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use graph_runtime::answer::{Answered, Envelope, Question};
use graph_runtime::record::Visit;
use graph_runtime::store::{Cursor, Page, WaitFilter, WaitId, WaitRow};
use graph_runtime::{AnswerError, RunId, Status, Store};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Problem, run_id};
use crate::Service;
use crate::graphs::invoice;

pub(super) fn routes(service: &Service) -> Router<Service> {
    let questions = Router::new()
        .route("/inbox/questions", get(list))
        .route("/inbox/questions/{run}/{wait}", get(show))
        .route("/inbox/questions/{run}/{wait}/statement", post(statement))
        .route("/inbox/questions/{run}/{wait}/answer", post(answer))
        .layer(from_fn_with_state(service.clone(), with_token));
    Router::new()
        .route("/inbox", get(|| async { file("text/html; charset=utf-8", include_str!("../page/inbox.html")) }))
        .route(
            "/inbox/inbox.js",
            get(|| async { file("text/javascript; charset=utf-8", include_str!("../page/inbox.js")) }),
        )
        .route("/inbox/inbox.css", get(|| async { file("text/css; charset=utf-8", include_str!("../page/inbox.css")) }))
        .merge(questions)
        .layer(from_fn(guarded))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// The policy of the page. It may run its own script, and talk to this service. Nothing in a text of a question becomes a part of the page, and
/// no other page can hold this one in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Sets the headers that all of the inbox has.
async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses a request without the token of the inbox.
async fn with_token(State(service): State<Service>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match header.and_then(|value| value.strip_prefix("Bearer ")) {
        Some(token) if service.access.admits(token) => next.run(request).await,
        _ => Problem(StatusCode::UNAUTHORIZED, "this is not the token of the inbox".to_owned()).into_response(),
    }
}

#[derive(Deserialize)]
struct ListQuery {
    role: Option<String>,
    after: Option<String>,
}

/// Lists the questions that are open. The store says what it lists; [`show`] reads the journal.
async fn list(State(service): State<Service>, Query(query): Query<ListQuery>) -> Result<Json<Value>, Problem> {
    let graph = Some(invoice::ID.to_owned());
    let filter = WaitFilter { graph, asks: true, role: query.role, ..WaitFilter::default() };
    let page = Page { after: query.after.map(Cursor::new), ..Page::default() };
    let page = service.runtime.open_waits(&filter, &page).await?;
    let questions: Vec<_> = page.waits.iter().filter_map(row).collect();
    let next = page.next.as_ref().map(Cursor::as_str);
    Ok(Json(json!({ "now": service.store.now().await?, "questions": questions, "next": next })))
}

/// Shows a question in a list.
fn row(row: &WaitRow) -> Option<Value> {
    let (wait, ask) = (&row.wait, row.wait.ask.as_ref()?);
    Some(json!({
        "run": row.run.as_str(), "wait": wait.id.as_str(), "node": wait.node, "role": ask.role, "count": ask.count,
        "opened": wait.opened, "due": wait.due, "payload": serde_json::from_str::<Value>(&ask.payload).ok()?,
    }))
}

/// Shows a question. Its payload is the text whose digest people sign.
async fn show(State(service): State<Service>, Path(path): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let question = open(&service, &path).await?;
    Ok(Json(json!({
        "now": service.store.now().await?, "run": question.run.as_str(), "wait": question.wait, "node": question.node,
        "role": question.role, "count": question.count, "opened": question.opened, "due": question.due,
        "payload": question.payload_text(),
    })))
}

/// Makes the statement that a person signs. It says what is answered, and to which question.
async fn statement(
    State(service): State<Service>,
    Path(path): Path<(String, String)>,
    Json(answer): Json<Value>,
) -> Result<Json<Envelope>, Problem> {
    let question = open(&service, &path).await?;
    let envelope = question.answer(&answer);
    question.check(&service.invoice, &envelope)?;
    Ok(Json(envelope))
}

/// Receives a signed answer. When the client learns that it was accepted, it is as durable as a record of the run.
async fn answer(
    State(service): State<Service>,
    Path(path): Path<(String, String)>,
    Json(envelope): Json<Envelope>,
) -> Result<Response, Problem> {
    let (run, wait) = (run_id(&path.0)?, &path.1);
    let named = Question::wait_in(&envelope, &run)?;
    if named != *wait {
        return Err(Problem(StatusCode::CONFLICT, format!("the answer is one to `{named}`, and not to `{wait}`")));
    }
    let answered = match service.runtime.answer(&service.invoice, &run, &envelope).await {
        Err(AnswerError::NotOpen { .. }) => return Err(not_open(&service, &run, wait).await),
        answered => answered?,
    };
    let (status, shown) = match answered {
        Answered::Accepted => (StatusCode::ACCEPTED, json!({ "result": "accepted" })),
        Answered::Proposed { have, need } => {
            (StatusCode::ACCEPTED, json!({ "result": "proposed", "have": have, "need": need }))
        }
        Answered::Already { taken } => (StatusCode::OK, json!({ "result": "already", "taken": taken })),
        _ => (StatusCode::ACCEPTED, json!({ "result": "received" })),
    };
    Ok((status, Json(shown)).into_response())
}

/// Returns a question that can be answered now.
async fn open(service: &Service, (run, wait): &(String, String)) -> Result<Question, Problem> {
    let run = run_id(run)?;
    let open = service.runtime.questions(&service.invoice, &run).await?;
    let Some(question) = open.into_iter().find(|question| question.wait == *wait) else {
        return Err(not_open(service, &run, wait).await);
    };
    match question.due {
        Some(due) if due <= service.store.now().await? => Err(late()),
        _ => Ok(question),
    }
}

fn late() -> Problem {
    Problem(StatusCode::GONE, "nobody answered in time, and the order continued without an answer".to_owned())
}

/// Says why a question cannot be answered any more.
async fn not_open(service: &Service, run: &RunId, wait: &str) -> Problem {
    let visits = match service.runtime.history(run).await {
        Ok(visits) => visits,
        Err(error) => return error.into(),
    };
    // The visit that asked is there a second time when it has its answer, or no answer came in time.
    let is_over = |visit: &&Visit| visit.opened.is_none() && WaitId::of_visit(visit.step).as_str() == wait;
    match visits.iter().find(is_over) {
        Some(visit) if visit.timed_out => return late(),
        Some(_) => return Problem(StatusCode::CONFLICT, "it was answered before".to_owned()),
        None => {}
    }
    match service.store.find(run).await {
        Ok(order) if order.status == Status::Cancelled => {
            Problem(StatusCode::CONFLICT, "the order was cancelled".to_owned())
        }
        Ok(_) => Problem(StatusCode::NOT_FOUND, "the order does not ask this".to_owned()),
        Err(error) => error.into(),
    }
}

//! The endpoints.
//!
//! | request | |
//! |---|---|
//! | `POST /orders/{id}` | starts the order; the body is the graph's inputs as JSON |
//! | `GET /orders/{id}` | its status, and its result once it has one |
//! | `GET /orders/{id}/events` | its events, as they happen |
//! | `DELETE /orders/{id}` | cancels it |
//! | `POST /orders/{id}/resume` | continues one that failed |
//! | `GET /orders?status=running&after=…` | lists orders of both kinds, the newest first, a page at a time |
//! | `GET /metrics` | metrics of the runs, for Prometheus |
//! | `GET /healthz` | whether the service answers |
//!
//! [`invoices`] has the endpoints of orders on invoice and of payments, and [`inbox`] those of the people who approve orders.

mod events;
pub mod inbox;
pub mod invoices;

use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use graph_runtime::store::{Cursor, Page, RunFilter, Within};
use graph_runtime::{HasKind, RunId, RunOutcome, Status, Store};
use graph_telemetry::Metrics;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Service;
use crate::graphs::fulfil;

/// Returns the routes of the service.
pub fn router(service: Service) -> Router {
    Router::new()
        .route("/orders", get(list))
        .route("/orders/{id}", post(start).get(show).delete(cancel))
        .route("/orders/{id}/resume", post(resume))
        .merge(events::routes())
        .merge(invoices::routes())
        .merge(inbox::routes(&service))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(from_fn(within_time))
        .with_state(service)
}

/// The longest that a request may take, with the time in which the client sends its body.
const LONGEST: Duration = Duration::from_secs(10);

/// The maximum length of the body of a request, in bytes. A signed answer has fewer.
const LARGEST: usize = 64 * 1024;

/// Ends a request that takes too long. Work that it began for an order continues.
async fn within_time(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(LONGEST, next.run(request)).await;
    answer.unwrap_or_else(|_| Problem(StatusCode::REQUEST_TIMEOUT, "it took too long".to_owned()).into_response())
}

/// Starts an order under the id that the client chose. A client that asks again, since it got no answer, gets the same answer, and starts
/// no second one.
async fn start(
    State(service): State<Service>,
    Path(id): Path<String>,
    Json(inputs): Json<fulfil::Inputs>,
) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    // The run continues if the client goes away, also while this waits for it to be stored. Nobody awaits its result here.
    drop(service.runtime.start_or_attach(id.clone(), service.fulfil.clone(), inputs).await?);
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id.as_str() }))).into_response())
}

async fn show(State(service): State<Service>, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let id = run_id(&id)?;
    Ok(Json(match service.runtime.outcome(&service.fulfil, &id).await? {
        RunOutcome::Running { nodes, is_cancelling, .. } => {
            json!({ "status": "running", "at": nodes, "cancelling": is_cancelling })
        }
        RunOutcome::Done(finished) => {
            json!({ "status": finished.status.name(), "result": result(&finished.output) })
        }
        RunOutcome::Failed { node, .. } => json!({ "status": "error", "at": node }),
        RunOutcome::Cancelled { .. } => json!({ "status": "cancelled" }),
        _ => json!({ "status": "unknown" }),
    }))
}

/// Shows how an order ended. A graph that gets another end does not compile until it is shown here too.
fn result(output: &fulfil::Output) -> Value {
    match output {
        fulfil::Output::Shipped(order) => json!({ "shipped": { "parcel": order.parcel, "receipt": order.receipt } }),
        fulfil::Output::SoldOut(order) => json!({ "sold_out": { "reason": order.reason } }),
        fulfil::Output::Refused(order) => json!({ "refused": { "reason": order.reason } }),
    }
}

/// Cancels an order, whatever process runs it. The request is stored: it holds over a crash.
async fn cancel(State(service): State<Service>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    let id = run_id(&id)?;
    // An order that waits ends at once.
    service.runtime.cancel(&id).await?;
    service.undo_later(id);
    Ok(StatusCode::ACCEPTED)
}

/// Continues an order at the step that failed. A cancelled one is not continued: its effects are undone.
async fn resume(State(service): State<Service>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    let id = run_id(&id)?;
    if service.store.find(&id).await?.status != Status::Error {
        return Err(Problem(StatusCode::CONFLICT, "the order has not failed".to_owned()));
    }
    drop(service.runtime.resume(service.fulfil.clone(), &id).await?);
    Ok(StatusCode::ACCEPTED)
}

#[derive(Deserialize)]
struct ListQuery {
    status: Option<Status>,
    after: Option<String>,
}

async fn list(State(service): State<Service>, Query(query): Query<ListQuery>) -> Result<Json<Value>, Problem> {
    let statuses = query.status.into_iter().collect();
    let filter = RunFilter { statuses, within: Within::TopLevel, ..RunFilter::default() };
    let page = Page { after: query.after.map(Cursor::new), ..Page::default() };
    let page = service.runtime.runs(&filter, &page).await?;
    let orders: Vec<_> = page.runs.iter().map(|run| json!({ "id": run.run.as_str(), "status": run.status })).collect();
    Ok(Json(json!({ "orders": orders, "next": page.next.as_ref().map(Cursor::as_str) })))
}

/// Shows the metrics of the runs, in the format of OpenMetrics.
async fn metrics(State(service): State<Service>) -> Result<Response, Problem> {
    service.metrics.count_waits(&service.store).await?;
    Ok(([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], service.metrics.encode()).into_response())
}

fn run_id(id: &str) -> Result<RunId, Problem> {
    RunId::new(id).map_err(|error| Problem(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Why a request has no better answer: its status, and a text for the client.
struct Problem(StatusCode, String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

/// Turns each error of the runtime into an answer with the status of its kind. A message that is not for clients stays in the log.
impl<E: HasKind> From<E> for Problem {
    fn from(error: E) -> Self {
        let kind = error.kind();
        if !kind.may_be_shown() {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            tracing::error!(cause, "{error}");
        }
        let text = if kind.may_be_shown() { error.to_string() } else { "the service failed".to_owned() };
        Self(StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), text)
    }
}

//! The events of an order, as they happen: `GET /orders/{id}/events`, a stream of server-sent events.
//!
//! The id of each event is its cursor in the journal of the order's run. A browser's `EventSource` that loses its connection sends the
//! last one back, so it misses none, also if the service was started again meanwhile.

use std::convert::Infallible;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use axum::routing::get;
use futures_util::StreamExt;
use graph_runtime::events::{EventCursor, EventLogError, RunEvent};
use graph_runtime::{Status, Store};
use tokio::sync::watch;

use super::{Problem, run_id};
use crate::Service;

pub(super) fn routes() -> Router<Service> {
    Router::new().route("/orders/{id}/events", get(follow))
}

async fn follow(
    State(service): State<Service>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    let order = service.store.find(&id).await?;
    let after = last_event(&headers)?;
    if let Some(cursor) = &after {
        if cursor.record() >= order.records {
            return Err(Problem(StatusCode::BAD_REQUEST, "Last-Event-ID: the order has no such event".to_owned()));
        }
        // A browser whose stream has ended connects again, until it gets this answer.
        let has_ended = !matches!(order.status, Status::Running | Status::Waiting);
        if has_ended && cursor.record() + 1 == order.records {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    let events = service.runtime.follow(&id, after)?;
    let events = events.ok_or_else(|| Problem(StatusCode::NOT_FOUND, "the service keeps no journals".to_owned()))?;
    let shown = events.map(|event| Ok::<_, Infallible>(sent(event))).take_until(stopped(service.stopping.subscribe()));
    Ok(Sse::new(shown).keep_alive(KeepAlive::default()).into_response())
}

/// Returns the cursor of the last event that the client has.
fn last_event(headers: &HeaderMap) -> Result<Option<EventCursor>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let cursor = value.to_str().map_err(|_| "it is no text".to_owned()).and_then(|text| {
        let cursor = text.parse::<EventCursor>();
        cursor.map_err(|error| error.to_string())
    });
    cursor.map(Some).map_err(|error| Problem(StatusCode::BAD_REQUEST, format!("Last-Event-ID: {error}")))
}

fn sent(event: Result<RunEvent, EventLogError>) -> Event {
    match event {
        Ok(event) => {
            let text = serde_json::to_string(&event).unwrap_or_default();
            let sent = Event::default().data(text);
            event.cursor.map_or(sent.clone(), |cursor| sent.id(cursor.to_string()))
        }
        // The stream ends. The client connects again, and finds the order where it is then.
        Err(error) => Event::default().event("problem").data(error.to_string()),
    }
}

/// Waits until the service stops: a stream that is open does not hold it up.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    while !*stopping.borrow_and_update() {
        if stopping.changed().await.is_err() {
            return;
        }
    }
}

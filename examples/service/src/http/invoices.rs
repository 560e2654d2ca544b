//! The endpoints of orders on invoice, and of payments.
//!
//! | request | |
//! |---|---|
//! | `POST /invoices/{id}` | starts the order; the body is the graph's inputs as JSON |
//! | `GET /invoices/{id}` | its status, what it waits for, and its result once it has one; times are in milliseconds since 1970 |
//! | `DELETE /invoices/{id}` | cancels it |
//! | `POST /invoices/{id}/resume` | continues one that failed |
//! | `POST /payments` | tells that an invoice is paid: `{"id": "payment-3", "order": "a-1", "cents": 900}` |
//!
//! Only the payment service can tell of payments: the header `Payment-Signature` is the HMAC-SHA-256 of the body with the secret that
//! both have, in Base64. Each payment is received once by its id, however often the message comes.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use graph_runtime::store::{Received, Wait};
use graph_runtime::{ErrorKind, HasKind, RunOutcome, Status, Store};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Problem, cancel, run_id};
use crate::Service;
use crate::graphs::invoice;
use crate::invoices::PaymentOutcome;

/// The header with the signature of the payment service.
const SIGNATURE: &str = "payment-signature";

pub(super) fn routes() -> Router<Service> {
    Router::new()
        .route("/invoices/{id}", post(start).get(show).delete(cancel))
        .route("/invoices/{id}/resume", post(resume))
        .route("/payments", post(pay))
}

async fn start(
    State(service): State<Service>,
    Path(id): Path<String>,
    Json(inputs): Json<invoice::Inputs>,
) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    drop(service.runtime.start_or_attach(id.clone(), service.invoice.clone(), inputs).await?);
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id.as_str() }))).into_response())
}

async fn show(State(service): State<Service>, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let id = run_id(&id)?;
    Ok(Json(match service.runtime.outcome(&service.invoice, &id).await? {
        RunOutcome::Running { nodes, is_cancelling, .. } => {
            json!({ "status": "running", "at": nodes, "cancelling": is_cancelling })
        }
        RunOutcome::Waiting { waits, is_cancelling, .. } => {
            let waits: Vec<_> = waits.iter().map(wait).collect();
            json!({ "status": "waiting", "for": waits, "cancelling": is_cancelling })
        }
        RunOutcome::Done(finished) => {
            json!({ "status": finished.status.name(), "result": result(&finished.output) })
        }
        RunOutcome::Failed { node, .. } => json!({ "status": "error", "at": node }),
        RunOutcome::Cancelled { .. } => json!({ "status": "cancelled" }),
        _ => json!({ "status": "unknown" }),
    }))
}

/// Shows what an order waits for.
fn wait(wait: &Wait) -> Value {
    let role = wait.ask.as_ref().and_then(|ask| ask.role.as_ref());
    json!({ "node": wait.node, "role": role, "signals": wait.signals, "opened": wait.opened, "due": wait.due })
}

fn result(output: &invoice::Output) -> Value {
    match output {
        invoice::Output::Shipped(order) => json!({ "shipped": { "parcel": order.parcel, "invoice": order.invoice } }),
        invoice::Output::Unpaid(order) => json!({ "unpaid": { "invoice": order.invoice } }),
        invoice::Output::SoldOut(order) => json!({ "sold_out": { "reason": order.reason } }),
        invoice::Output::Refused(order) => json!({ "refused": { "decision": order.decision, "note": order.note } }),
    }
}

async fn resume(State(service): State<Service>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    let id = run_id(&id)?;
    if service.store.find(&id).await?.status != Status::Error {
        return Err(Problem(StatusCode::CONFLICT, "the order has not failed".to_owned()));
    }
    drop(service.runtime.resume(service.invoice.clone(), &id).await?);
    Ok(StatusCode::ACCEPTED)
}

/// A payment, as the payment service tells of it.
#[derive(Deserialize)]
struct Payment {
    /// The number that the payment service gives this payment and no other.
    id: String,
    order: String,
    cents: i64,
}

/// Receives a payment. The payment service tells of it again until the answer is a success.
async fn pay(State(service): State<Service>, headers: HeaderMap, body: Bytes) -> Result<Json<Value>, Problem> {
    let signature = headers.get(SIGNATURE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match service.access.has_signed(&body, signature) {
        Some(true) => {}
        Some(false) => {
            return Err(Problem(StatusCode::UNAUTHORIZED, "the payment service did not sign this".to_owned()));
        }
        None => return Err(Problem(StatusCode::SERVICE_UNAVAILABLE, "PAYMENT_SECRET is not set".to_owned())),
    }
    let payment: Payment = serde_json::from_slice(&body)
        .map_err(|error| Problem(StatusCode::UNPROCESSABLE_ENTITY, format!("it is no payment: {error}")))?;
    if !is_payment_id(&payment.id) {
        let text = "the id of a payment has 1 to 100 letters and digits of ASCII, `-`, `_`, `.` and `:`".to_owned();
        return Err(Problem(StatusCode::UNPROCESSABLE_ENTITY, text));
    }
    let order = run_id(&payment.order)?;
    // An order of a version that is not there any more would not hear of its payment.
    service.runtime.outcome(&service.invoice, &order).await?;
    // First the shop: a payment that it accepts is not lost, even if the order does not hear of it in time.
    let paid = service.shop.pay(&order, &payment.id, payment.cents).await;
    refused(paid.map_err(|error| Problem(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?)?;
    let signal = invoice::Signal::Paid(invoice::Paid { cents: payment.cents });
    match service.runtime.signal(&service.invoice, &order, signal, &payment.id).await {
        Ok(Received::Accepted(_)) => Ok(Json(json!({ "result": "accepted" }))),
        // The order has ended, as it does when the shop noted the payment and the order did not wait any more.
        Ok(Received::Already { .. }) => Ok(Json(json!({ "result": "already" }))),
        Err(error) if error.kind() == ErrorKind::Late => Ok(Json(json!({ "result": "already" }))),
        Err(error) => Err(error.into()),
    }
}

/// Whether a text can be the id of a payment. The runtime takes each such text as the id of a signal.
fn is_payment_id(id: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=100).contains(&id.len()) && id.bytes().all(is_letter)
}

/// Refuses a payment that the shop does not accept. The payment service then gives the money back.
fn refused(outcome: PaymentOutcome) -> Result<(), Problem> {
    let (status, text) = match outcome {
        PaymentOutcome::Accepted => return Ok(()),
        PaymentOutcome::NoInvoice => (StatusCode::NOT_FOUND, "there is no invoice for this order".to_owned()),
        PaymentOutcome::Withdrawn => (StatusCode::CONFLICT, "the invoice was withdrawn".to_owned()),
        PaymentOutcome::PaidBefore => (StatusCode::CONFLICT, "another payment has paid the invoice".to_owned()),
        PaymentOutcome::UsedBefore => (StatusCode::CONFLICT, "the payment has paid another invoice".to_owned()),
        PaymentOutcome::Amount { cents } => {
            (StatusCode::UNPROCESSABLE_ENTITY, format!("the invoice is about {cents} cents"))
        }
    };
    Err(Problem(status, text))
}

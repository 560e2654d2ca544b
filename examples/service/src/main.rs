//! Starts the service: `service`. Variables of the environment set it up:
//!
//! | variable | default | |
//! |---|---|---|
//! | `DATA` | `data` | the directory of its files |
//! | `ADDRESS` | `127.0.0.1:8080` | where it listens |
//! | `PAYMENT_SECRET` | | the secret that the payment service signs its messages with; without it, no invoice is paid |
//! | `ROLE_ROOTS` | | the fingerprints of the keys that every role comes from, with commas between them |
//! | `PAYMENT_MILLIS` | 50 | how long the payment service takes for a charge |

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use service::{Error, Service, Settings, http};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How long a shutdown waits for requests, and then for calls, in progress. Both together are less than the time after which a supervisor
/// kills.
const DEADLINE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let directory = PathBuf::from(variable("DATA", "data"));
    let latency = variable("PAYMENT_MILLIS", "50").parse();
    let latency = latency.map_err(|error| format!("PAYMENT_MILLIS is no number of milliseconds: {error}"))?;
    let address = variable("ADDRESS", "127.0.0.1:8080");
    let roots = variable("ROLE_ROOTS", "");
    let roots = roots.split(',').map(str::trim).filter(|root| !root.is_empty()).map(str::parse);
    let service = Service::open(&Settings {
        latency: Duration::from_millis(latency),
        payment_secret: std::env::var("PAYMENT_SECRET").ok(),
        role_roots: roots.collect::<Result<_, _>>().map_err(|error| format!("ROLE_ROOTS: {error}"))?,
        ..Settings::new(directory)
    })
    .await?;
    let listener = TcpListener::bind(&address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let worker = service.work()?;
    service.undo_cancelled().await?;
    tracing::info!(address = %listener.local_addr()?, "listening");

    let (stop, stopped) = (Arc::clone(&service.stopping), service.stopping.subscribe());
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.send_replace(true);
    });
    // First no more requests, then no more steps. A client that does not finish its request is not waited for without end.
    let serve = axum::serve(listener, http::router(service.clone())).with_graceful_shutdown(requested(stopped.clone()));
    tokio::select! {
        served = async { serve.await } => served?,
        () = late(stopped) => tracing::warn!("requests were dropped, for the service stops"),
    }
    service.shut_down(worker, DEADLINE).await;
    Ok(())
}

/// Waits until the service is to stop.
async fn requested(mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow_and_update() {
        // The sender is gone only after it has sent.
        if stopped.changed().await.is_err() {
            return;
        }
    }
}

/// Waits until requests in progress have had their time.
async fn late(stopped: watch::Receiver<bool>) {
    requested(stopped).await;
    tokio::time::sleep(DEADLINE).await;
}

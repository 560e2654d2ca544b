//! Starts the service: `service`, with the directory of its files in `DATA` and its address in `ADDRESS`.

use std::path::PathBuf;
use std::time::Duration;

use service::{Error, Service, http};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How long a shutdown waits for calls in progress. Less than the time after which a supervisor kills.
const DEADLINE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let directory = PathBuf::from(variable("DATA", "data"));
    let latency = Duration::from_millis(variable("PAYMENT_MILLIS", "50").parse()?);
    let service = Service::open(&directory, latency).await?;
    service.resume().await?;
    let listener = TcpListener::bind(variable("ADDRESS", "127.0.0.1:8080")).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    // First no more requests, then no more steps.
    axum::serve(listener, http::router(service.clone())).with_graceful_shutdown(stopped).await?;
    service.shut_down(DEADLINE).await;
    Ok(())
}

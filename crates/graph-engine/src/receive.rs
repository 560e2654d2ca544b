//! Sending signals to the runs of a store.

use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::{NodeName, RunId};

use crate::graph::{GraphTables, tables};
use crate::machine::Machine;
use crate::record::{JournalError, Start, VerifiedJournal};
use crate::runtime::Runtime;
use crate::services::RuntimeServices;
use crate::signal::{NamedSignal, SignalError, answered, conforming, payload, seal};
use crate::store::{Received, Signal};

/// Whether a text can be the id of a signal. It is seen by people, as a node's name is, and is not the id of an answer.
fn is_id(id: &str) -> bool {
    !id.trim().is_empty() && NodeName::new(id).is_ok() && answered(id).is_none()
}

impl Runtime {
    /// Sends a signal to a run. A wait that receives it is over; a run that does not wait for it yet receives it when it does.
    /// When this returns `Ok`, the signal is as durable as a record of the run, and is received once, however often it is sent:
    /// `id` is the id that its sender gives this signal and no other, such as the number of a payment.
    ///
    /// The run continues when a [worker](Runtime::worker) notices, or when it is resumed. A run that ended with an error, or as
    /// cancelled, receives the signal if it is resumed.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::store::Received;
    /// use graph_runtime::{NamedSignal, RunId, Value};
    ///
    /// let paid = NamedSignal::new("paid", Value::from(4200));
    /// match runtime.signal(&graph, &RunId::new("order-17")?, paid, "payment-3").await? {
    ///     Received::Accepted(place) => println!("it is signal {} of the run", place.order),
    ///     Received::Already { .. } => println!("it was sent before"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such run, it is another graph's or was begun by another version of the graph, the value does not fit, the id
    /// was used for another signal of the run, the run has completed, or the store cannot keep it. Nothing is changed then.
    pub async fn signal<G: Machine>(
        &self,
        graph: &G,
        run: &RunId,
        signal: impl Into<NamedSignal>,
        id: impl Into<String>,
    ) -> Result<Received, SignalError> {
        let (signal, id) = (signal.into(), id.into());
        let (Some(store), Some(key)) = (&self.inner.store, &self.inner.key) else { return Err(SignalError::NoStore) };
        if !is_id(&id) {
            return Err(SignalError::Id { id });
        }
        let value = conforming(graph, &signal.name, signal.value)?;
        let failed = |source| SignalError::Store { run: run.clone(), source };
        let start = self.inner.start_of(tables(graph.graph()), run).await?;
        let signal = Signal::new(signal.name, id, payload(&value));
        let (key, sealed, to) = (key.clone(), signal.clone(), run.clone());
        let seal = Arc::new(move |place| seal(&key, &to, &start, place, &sealed));
        store.receive(run, signal, seal).await.map_err(failed)
    }
}

impl RuntimeServices {
    /// Returns the link of a run's first record.
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal cannot be verified, or it is another graph's.
    async fn start_of(&self, code: &GraphTables, run: &RunId) -> Result<Digest, SignalError> {
        let (Some(store), Some(key)) = (&self.store, &self.key) else { return Err(SignalError::NoStore) };
        let signed = store.load(run).await.map_err(|source| SignalError::Store { run: run.clone(), source })?;
        let misfit = |reason| SignalError::Journal { run: run.clone(), reason };
        let verified = VerifiedJournal::new(run, &signed, &key.public()).map_err(misfit)?;
        let (_, Start { graph, digest, version, .. }) = verified.start().map_err(misfit)?;
        if graph != code.id.as_str() || digest != code.digest {
            let found = format!("{graph} {version} ({digest})");
            let expected = format!("{} {} ({})", code.id, code.version, code.digest);
            return Err(SignalError::AnotherGraph { run: run.clone(), expected, found });
        }
        verified.chain().start().ok_or_else(|| misfit(JournalError::Empty))
    }
}

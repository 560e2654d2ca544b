//! Sending signals to the runs of a store.

use std::sync::Arc;

use graph_model::capability::Capability;
use graph_model::digest::Digest;
use graph_model::name::{NodeName, RunId};
use graph_model::value::Value;

use crate::address::{self, answered};
use crate::call::Parent;
use crate::cipher;
use crate::encryption_key::EncryptionKey;
use crate::error::{StartError, StoredRunError};
use crate::graph::tables;
use crate::machine::{Graph, Machine};
use crate::payload::{EncryptedValue, payload};
use crate::record::{JournalError, VerifiedJournal};
use crate::run::Run;
use crate::run_secrets::SecretsError;
use crate::runtime::Runtime;
use crate::services::RuntimeServices;
use crate::signal::{NamedSignal, SignalError, conforming, sealing};
use crate::status::Status;
use crate::step::{graph_inside, nested_at};
use crate::store::{Received, SealSignal, Signal, StoreError, Wait, all_waits};
use crate::versions::version;

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
    /// The runtime must be granted the capability `rye.signal.<graph id with dots>.<signal>`: a graph's module has those of its signals in
    /// `SIGNAL_CAPABILITIES`.
    ///
    /// A signal of a nested run is sent to the outermost run around it. Its name begins with the path to the nested run, as the ids of
    /// its waits do: `5/paid` for the run that visit 5 began. The nested run has begun then, and has not completed.
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
        let (store, key) = self.inner.stored()?;
        if !is_id(&id) {
            return Err(SignalError::Id { id });
        }
        let graph = version(graph, self.inner.older_of(graph, run).await?);
        let (path, own) = address::split(&signal.name);
        let mut ended = None;
        let (payload, start) = match path {
            "" => {
                self.inner.may_signal(graph, own)?;
                let value = conforming(graph, own, signal.value)?;
                let start = self.inner.start_of_outermost(graph, run).await?;
                let receiver = Receiver { run: run.clone(), machine: graph, start: &start };
                (self.inner.payload_for(&receiver, run, (&signal.name, &id), &value)?, start.link)
            }
            path => {
                let outermost = self.inner.start_of_outermost(graph, run).await?;
                let (inner, status, machine, start) = self.inner.receiver(graph, run, path).await?;
                self.inner.may_signal(&*machine, own)?;
                let value = conforming(&*machine, own, signal.value)?;
                ended = Some((inner.clone(), status)).filter(|(_, status)| status.has_result());
                let receiver = Receiver { run: inner, machine: &*machine, start: &start };
                (self.inner.payload_for(&receiver, run, (&signal.name, &id), &value)?, outermost.link)
            }
        };
        let signal = Signal::new(signal.name, id, payload);
        // A store seals a signal that it does not know. It tells of one that it knows, also if the nested run has completed since.
        let seal: SealSignal = match ended {
            Some((run, status)) => Arc::new(move |_| Err(StoreError::Ended { run: run.clone(), status })),
            None => sealing(key, run, start, &signal),
        };
        Ok(store.receive(run, signal, seal).await?)
    }
}

impl Runtime {
    /// Releases the visits at which a run, or one inside it, is paused: because of [`Options::pause_before`](crate::Options::pause_before) or
    /// `pause_after`, or because a hook suspended it. Returns what they were waits for. When this returns, the release is as durable as a
    /// record of the run. The run continues when a [worker](Runtime::worker) notices, or when it is resumed.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph + Clone>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// #     inputs: G::Inputs,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{Options, RunId};
    ///
    /// let run = RunId::new("order-17")?;
    /// let options = Options { run: Some(run.clone()), pause_before: vec!["charge".to_owned()], ..Options::default() };
    /// let paused = runtime.start_with(options, graph.clone(), inputs).await?.await;
    /// println!("{:?}", paused.err());
    /// for wait in runtime.release(&graph, &run).await? {
    ///     println!("node {} is visited now", wait.node);
    /// }
    /// let finished = runtime.resume(graph, &run).await?.await?;
    /// # drop(finished);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal cannot be verified, it is another graph's or was begun by another version of the graph, or
    /// the store cannot be written. Visits that were released before the error stay so.
    pub async fn release<G: Machine>(&self, graph: &G, run: &RunId) -> Result<Vec<Wait>, SignalError> {
        let (store, key) = self.inner.stored()?;
        let graph = version(graph, self.inner.older_of(graph, run).await?);
        let FirstRecord { link: start, .. } = self.inner.start_of_outermost(graph, run).await?;
        let mut released = Vec::new();
        for wait in all_waits(&**store, run).await?.into_iter().filter(Wait::is_pause) {
            let signal = Signal::new(wait.id.as_str(), wait.id.as_str(), payload(&Value::Null));
            let seal = sealing(key, run, start, &signal);
            store.receive(run, signal, seal).await?;
            released.push(wait);
        }
        Ok(released)
    }
}

/// The outcome of a signal to a run that is started if it does not exist.
#[derive(Debug)]
#[non_exhaustive]
pub struct SignalledRun<O> {
    /// The run, if this call started it. It continues if the handle is dropped.
    pub started: Option<Run<O>>,
    /// The answer of the store to the signal.
    pub received: Received,
}

impl Runtime {
    /// Sends a signal to a run as [`Runtime::signal`] does, and starts a run that does not exist before: for events that may come
    /// before anything else is known of a run, such as the payment of an order.
    ///
    /// Several senders may do so at a time: one of them starts the run. If the sender is not told the outcome, because the process
    /// ends or this future is dropped, the run may have begun without the signal. The sender then sends it again, with the same id.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph + Clone>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// #     inputs: G::Inputs,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{NamedSignal, RunId, Value};
    ///
    /// let paid = NamedSignal::new("paid", Value::from(4200));
    /// let run = RunId::new("order-17")?;
    /// let signalled = runtime.signal_or_start(&graph, &run, inputs, paid, "payment-3").await?;
    /// if signalled.started.is_some() {
    ///     println!("the payment came first");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`Runtime::signal`], or if the run cannot be started. If the id or the value is refused, or the signal is not granted, no run is started.
    pub async fn signal_or_start<G: Graph + Clone>(
        &self,
        graph: &G,
        run: &RunId,
        inputs: G::Inputs,
        signal: impl Into<NamedSignal>,
        id: impl Into<String>,
    ) -> Result<SignalledRun<G::Output>, SignalError> {
        let (signal, id) = (signal.into(), id.into());
        match self.signal(graph, run, signal.clone(), id.clone()).await {
            Err(SignalError::Stored(StoredRunError::Store(StoreError::NotFound(_)))) => {}
            received => return received.map(|received| SignalledRun { started: None, received }),
        }
        // The run begins under the newest version.
        self.inner.may_signal(graph, &signal.name)?;
        conforming(graph, &signal.name, signal.value.clone())?;
        let started = match self.start_as(run.clone(), graph.clone(), inputs).await {
            Ok(started) => Some(started),
            // Another sender was faster.
            Err(StartError::Store(StoreError::Exists(_))) => None,
            Err(error) => return Err(SignalError::Start(Box::new(error))),
        };
        let received = self.signal(graph, run, signal, id).await?;
        Ok(SignalledRun { started, received })
    }
}

impl RuntimeServices {
    /// Fails if the runtime was not granted to send a signal to runs of a graph.
    fn may_signal(&self, machine: &dyn Machine, name: &str) -> Result<(), SignalError> {
        let code = tables(machine.graph());
        // A graph without that signal says so.
        let is_known = code.settings.signals.contains_key(name);
        let capability = Capability::signal(&code.id, name);
        match !is_known || self.grants.allow(&capability) {
            true => Ok(()),
            false => Err(SignalError::Denied { capability }),
        }
    }

    /// Returns the nested run at a path, its status, and its graph, which receives signals.
    async fn receiver(
        &self,
        graph: &dyn Machine,
        run: &RunId,
        path: &str,
    ) -> Result<(RunId, Status, Arc<dyn Machine>, FirstRecord), SignalError> {
        let (store, _) = self.stored()?;
        let nobody = || SignalError::NotInside { run: run.clone(), path: path.to_owned() };
        let inner = nested_at(run, path).ok_or_else(nobody)?;
        let found = match store.find(&inner).await {
            Err(StoreError::NotFound(_)) => return Err(nobody()),
            found => found?,
        };
        let machine = graph_inside(graph, &found.graph).ok_or_else(nobody)?;
        let start = self.start_of(&*machine, &inner).await?;
        Ok((inner, found.status, machine, start))
    }

    /// Returns the payload of a signal, with a value that fits the graph that receives it. If it has secrets, it is encrypted.
    fn payload_for(
        &self,
        receiver: &Receiver<'_>,
        outermost: &RunId,
        (name, id): (&str, &str),
        value: &Value,
    ) -> Result<String, SignalError> {
        let Receiver { run, machine, start } = receiver;
        let secrets = &tables(machine.graph()).settings.secrets;
        let Some(mask) = secrets.signals.get(address::split(name).1) else { return Ok(payload(value)) };
        let key = self.key_of_secrets(*machine, run, start)?;
        let shown = mask.hide(value.clone());
        Ok(EncryptedValue::new(key, outermost, (name, id), value, shown).payload())
    }

    /// Returns the key that encrypts the secrets of a run.
    ///
    /// # Errors
    ///
    /// If this runtime has none, or another one than the run began with.
    pub(crate) fn key_of_secrets(
        &self,
        machine: &dyn Machine,
        run: &RunId,
        start: &FirstRecord,
    ) -> Result<&EncryptionKey, StoredRunError> {
        let graph = || tables(machine.graph()).id.to_string();
        if !cipher::IS_THERE {
            return Err(SecretsError::NoCipher { graph: graph() }.into());
        }
        let key = self.encryption_key.as_ref().ok_or_else(|| SecretsError::NoKey { graph: graph() })?;
        StoredRunError::unless_encrypted_with(Some(key.fingerprint()), run, start.encryption_key.as_ref())?;
        Ok(key)
    }

    /// Reads the first record of a run.
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal cannot be verified, or it is another graph's.
    pub(crate) async fn start_of(&self, machine: &dyn Machine, run: &RunId) -> Result<FirstRecord, StoredRunError> {
        let (store, key) = self.stored()?;
        let (signed, misfit) = (store.load(run).await?, StoredRunError::journal(run));
        let verified = VerifiedJournal::new(run, &signed, &key.public()).map_err(&misfit)?;
        let (_, start) = verified.start().map_err(&misfit)?;
        if !start.is_under(machine.graph()) {
            return Err(StoredRunError::another_graph(run, &start, machine, Vec::new()));
        }
        let link = verified.chain().start().ok_or_else(|| misfit(JournalError::Empty))?;
        Ok(FirstRecord { link, parent: start.parent, encryption_key: start.encryption_key })
    }

    /// Reads the first record of a run that is not nested.
    async fn start_of_outermost(&self, machine: &dyn Machine, run: &RunId) -> Result<FirstRecord, StoredRunError> {
        match self.start_of(machine, run).await? {
            FirstRecord { parent: Some(parent), .. } => {
                Err(StoredRunError::Inside { run: run.clone(), outer: parent.run })
            }
            start => Ok(start),
        }
    }
}

/// The first record of a run, as far as senders need it.
pub(crate) struct FirstRecord {
    /// Its link.
    pub(crate) link: Digest,
    /// The visit of the run around it.
    parent: Option<Parent>,
    /// The fingerprint of the key that encrypts the secrets of the run.
    encryption_key: Option<String>,
}

/// The run that receives a signal: the outermost one, or one inside it.
struct Receiver<'r> {
    run: RunId,
    machine: &'r dyn Machine,
    start: &'r FirstRecord,
}

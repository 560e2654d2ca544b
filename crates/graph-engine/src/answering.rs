//! Questions of the runs of a store, and sending the answers of people to them.

use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::secret::Mask;
use graph_model::value::Value;
use graph_signing::PublicKey;

use crate::address::{self, Address, proposal_of, proposals};
use crate::answer::{
    AnswerError, AnswerKeys, Answered, MOST_PROPOSALS, Question, ShownProposal, SignedAnswer, envelope_in,
};
use crate::dsse::Envelope;
use crate::encryption_key::EncryptionKey;
use crate::error::StoredRunError;
use crate::graph::tables;
use crate::machine::Machine;
use crate::payload::{EncryptedValue, payload, same_statement};
use crate::record::{Entry, JournalError, SignedRecord, VerifiedJournal, verified_start};
use crate::replay::follow;
use crate::resume::read_journal;
use crate::runtime::Runtime;
use crate::services::RuntimeServices;
use crate::signal::{JournalKeys, Receives, read, sealing};
use crate::step::{graph_inside, nested_at};
use crate::store::{Inbox, Received, ReceivedSignal, Signal, Store, StoreError};

/// The questions of a run that are open, the version of its graph, and the link of its first record.
struct OpenQuestions<'m> {
    machine: &'m dyn Machine,
    start: Digest,
    open: Vec<Question>,
}

impl Runtime {
    /// Returns the questions of a run to people that are open, in the order of its visits, as its journal proves them.
    ///
    /// It calls nothing, writes nothing and needs no lease. A question that was answered is open until the run continues.
    ///
    /// The example of [`Runtime::answer`] shows one to a person.
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal cannot be verified, or it is another graph's or was begun by another version of the
    /// graph.
    pub async fn questions<G: Machine>(&self, graph: &G, run: &RunId) -> Result<Vec<Question>, AnswerError> {
        Ok(self.inner.asked(graph, run).await?.open)
    }

    /// Sends the signed answer of a person to the interrupt that it names. When this returns [`Answered::Accepted`], the answer is
    /// as durable as a record of the run, and ends the interrupt: no later answer and no timeout does. Sent again, it changes
    /// nothing.
    ///
    /// The signatures are verified with the [keys that the runtime knows](crate::Builder::answer_keys) at the time of this call. If more
    /// people must sign the answer, its signatures are kept until enough have: each sends the envelope that they signed, or one
    /// that all have signed.
    ///
    /// The run continues when a [worker](Runtime::worker) notices, or when it is resumed.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// #     ann: graph_runtime::SecretKey,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::answer::Answered;
    /// use graph_runtime::{NamedAnswer, RunId, Value};
    ///
    /// let run = RunId::new("order-17")?;
    /// for question in runtime.questions(&graph, &run).await? {
    ///     println!("{}: {}", question.node, question.payload);
    ///     // The enum `Answer` of a compiled graph is typed.
    ///     let envelope = question.sign(NamedAnswer::new("approve", Value::from("refuse")), &ann)?;
    ///     match runtime.answer(&graph, &run, &envelope).await? {
    ///         Answered::Proposed { have, need } => println!("{have} of {need} have signed it"),
    ///         _ => println!("it is answered"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the answer is to another question, too late, does not fit the graph, was signed by somebody who may not answer, or the
    /// question was answered otherwise. Nothing is changed then. An answer that reaches the store after the run no longer waits is
    /// left in the inbox of the run, where nothing takes it.
    pub async fn answer<G: Machine>(
        &self,
        graph: &G,
        run: &RunId,
        envelope: &Envelope,
    ) -> Result<Answered, AnswerError> {
        let (store, _) = self.inner.stored()?;
        let Some(keys) = &self.inner.answer_keys else { return Err(AnswerError::NoKeys) };
        let wait = Question::wait_in(envelope, run)?;
        let OpenQuestions { machine: graph, start, open } = self.inner.asked(graph, run).await?;
        let Some(question) = open.iter().find(|question| question.wait == wait) else {
            return self.inner.was_taken(&**store, run, &wait, envelope, &open).await;
        };
        let inner =
            (question.graph() != tables(graph.graph()).id.as_str()).then(|| graph_inside(graph, question.graph()));
        let machine: &dyn Machine = inner.as_ref().and_then(Option::as_deref).unwrap_or(graph);
        let secrets = match question.secrets(machine) {
            Some(mask) => {
                let asking = nested_at(run, address::split(&question.wait).0);
                let asking = asking.unwrap_or_else(|| run.clone());
                let start = self.inner.start_of(machine, &asking).await?;
                let key = self.inner.key_of_secrets(machine, &asking, &start)?;
                Some(AnswerSecrets { mask, key })
            }
            None => None,
        };
        let read = Arc::clone(keys);
        let keys = tokio::task::spawn_blocking(move || read()).await.map_err(|_| AnswerError::Keys)?;
        let receiver = AnswerReceiver { services: &self.inner, store: &**store, machine, question, start, secrets };
        receiver.answer(envelope, &*keys).await
    }
}

/// Returns the questions of a run that are open, as its journal proves them to somebody who cannot write to its store.
///
/// `key` is the public key of the runtime that wrote the journal. As of [`Runtime::questions`](crate::Runtime::questions).
///
/// # Errors
///
/// If the journal cannot be verified, or the run is another graph's or was begun by another version of the graph.
pub fn questions(
    machine: &dyn Machine,
    run: &RunId,
    signed: &[SignedRecord],
    key: &PublicKey,
) -> Result<Vec<Question>, StoredRunError> {
    Ok(asked(machine, run, signed, key)?.open)
}

/// Reads the questions of a run. Its secrets stay encrypted: people are shown none of them.
fn asked<'m>(
    machine: &'m dyn Machine,
    run: &RunId,
    signed: &[SignedRecord],
    key: &PublicKey,
) -> Result<OpenQuestions<'m>, StoredRunError> {
    let misfit = StoredRunError::journal(run);
    let machine = match machine.older() {
        [] => machine,
        _ => verified_start(run, signed, key).map_err(&misfit)?.version_of(machine),
    };
    let code = tables(machine.graph());
    let journal = read_journal(machine, run, signed, key, None, false)?;
    if let Some(parent) = &journal.start.parent {
        return Err(StoredRunError::Inside { run: run.clone(), outer: parent.run.clone() });
    }
    let start = journal.chain.start().ok_or_else(|| misfit(JournalError::Empty))?;
    // A run that has ended asks nothing, unless it is resumed.
    let open = match journal.end() {
        Some(_) => Vec::new(),
        None => {
            let (position, _) = follow(code, &journal, None).map_err(misfit)?;
            Question::all(code, &position, &Address::of_run(run.clone(), start), journal.start.digest)
        }
    };
    Ok(OpenQuestions { machine, start, open })
}

/// Receives the answers to a question.
struct AnswerReceiver<'a> {
    services: &'a RuntimeServices,
    store: &'a dyn Store,
    machine: &'a dyn Machine,
    question: &'a Question,
    start: Digest,
    secrets: Option<AnswerSecrets<'a>>,
}

/// The secrets in the answers to a question.
struct AnswerSecrets<'a> {
    mask: Mask,
    key: &'a EncryptionKey,
}

impl AnswerReceiver<'_> {
    async fn answer(&self, envelope: &Envelope, keys: &dyn AnswerKeys) -> Result<Answered, AnswerError> {
        let signed = self.question.verify(self.machine, envelope, keys)?;
        let inbox = self.store.inbox(&self.question.run).await?;
        if let Some(known) = self.answer_in(&inbox) {
            return self.compare(&known, envelope, false);
        }
        if let Some(due) = self.question.due.filter(|due| *due <= inbox.at) {
            return Err(AnswerError::Expired { wait: self.question.wait.clone(), due });
        }
        let joint = self.joint(envelope, &inbox, keys)?;
        if self.is_enough(&joint) {
            return self.accept(&joint).await;
        }
        self.propose(&signed).await?;
        // Another person may have signed it meanwhile.
        let joint = self.joint(envelope, &self.store.inbox(&self.question.run).await?, keys)?;
        if self.is_enough(&joint) {
            return self.accept(&joint).await;
        }
        let have = u32::try_from(joint.by.len()).unwrap_or(u32::MAX);
        Ok(Answered::Proposed { have, need: self.question.count_of(self.machine, &joint.answer) })
    }

    fn is_enough(&self, joint: &SignedAnswer) -> bool {
        joint.by.len() >= self.question.count_of(self.machine, &joint.answer) as usize
    }

    /// Returns an answer with the signatures of all those who have proposed the same and may still answer.
    fn joint(&self, envelope: &Envelope, inbox: &Inbox, keys: &dyn AnswerKeys) -> Result<SignedAnswer, AnswerError> {
        let mut signatures = envelope.signatures().to_vec();
        let proposed = inbox.signals.iter().filter(|one| proposal_of(&one.name) == Some(&self.question.wait));
        let envelope_of = |one: &ReceivedSignal| match &self.secrets {
            Some(secrets) => envelope_in(one, secrets.key),
            None => one.payload.parse().ok(),
        };
        let proposed = proposed.filter_map(envelope_of);
        for other in proposed.filter(|other| other.says_the_same(envelope)) {
            for signature in other.signatures() {
                let is_new = signatures.iter().all(|known| known.keyid != signature.keyid);
                let more = [&signatures[..], std::slice::from_ref(signature)].concat();
                // A key that was revoked since does not count.
                if is_new && self.question.verify(self.machine, &envelope.clone().with(more), keys).is_ok() {
                    signatures.push(signature.clone());
                }
            }
        }
        self.question.verify(self.machine, &envelope.clone().with(signatures), keys)
    }

    /// Keeps the signatures of an answer until enough have signed it, each once.
    async fn propose(&self, signed: &SignedAnswer) -> Result<(), AnswerError> {
        for signature in signed.envelope.signatures() {
            let key = signature.keyid.clone().unwrap_or_default();
            let envelope = signed.envelope.clone().with(vec![signature.clone()]);
            let mut number = 1;
            loop {
                let (name, id) = (proposals(&self.question.wait), format!("{}?{key}.{number}", self.question.wait));
                let payload = self.proposal(&envelope, &signed.answer, &key, (&name, &id));
                match self.receive(Signal::new(name, id, payload)).await {
                    Err(StoreError::OtherSignal { .. }) if number < MOST_PROPOSALS => number += 1,
                    Err(StoreError::OtherSignal { .. }) => {
                        return Err(AnswerError::TooManyProposals { key, wait: self.question.wait.clone() });
                    }
                    kept => {
                        kept?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the payload of an answer that one person has signed.
    fn proposal(&self, envelope: &Envelope, answer: &Value, key: &str, place: (&str, &str)) -> String {
        let Some(AnswerSecrets { mask, key: encryption_key }) = &self.secrets else { return envelope.to_string() };
        let (run, wait) = (&self.question.run, &self.question.wait);
        let statement = envelope.payload().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let same = same_statement(encryption_key, run, wait, &statement.unwrap_or_default());
        let shown = ShownProposal { answer: mask.hide(answer.clone()), key: key.to_owned(), same };
        let shown = serde_json::to_value(shown).expect("a proposal has only texts as keys");
        EncryptedValue::new(encryption_key, run, place, &Value::from(envelope.to_string()), shown).payload()
    }

    async fn accept(&self, joint: &SignedAnswer) -> Result<Answered, AnswerError> {
        let wait = &self.question.wait;
        let payload = match &self.secrets {
            Some(AnswerSecrets { mask, key }) => {
                let (value, shown) = (joint.to_value(), joint.shown(mask).to_value());
                EncryptedValue::new(key, &self.question.run, (wait, wait), &value, shown).payload()
            }
            None => payload(&joint.to_value()),
        };
        match self.receive(Signal::new(wait, wait, payload)).await {
            Ok(Received::Accepted(place)) => match self.question.due {
                Some(due) if place.at >= due => Err(AnswerError::Expired { wait: wait.clone(), due }),
                _ => Ok(Answered::Accepted),
            },
            Ok(Received::Already { taken, .. }) => Ok(Answered::Already { taken }),
            Err(StoreError::OtherSignal { .. }) => match self.answer_in(&self.store.inbox(&self.question.run).await?) {
                Some(known) => self.compare(&known, &joint.envelope, false),
                None => {
                    let (run, open) = (&self.question.run, std::slice::from_ref(self.question));
                    self.services.was_taken(self.store, run, wait, &joint.envelope, open).await
                }
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Says whether an answer is the one that was accepted.
    fn compare(&self, known: &SignedAnswer, envelope: &Envelope, taken: bool) -> Result<Answered, AnswerError> {
        if known.envelope.says_the_same(envelope) {
            return Ok(Answered::Already { taken });
        }
        Err(AnswerError::Answered { wait: self.question.wait.clone() })
    }

    /// Returns the answer that was accepted and is not taken yet.
    fn answer_in(&self, inbox: &Inbox) -> Option<SignedAnswer> {
        let key = self.services.key.as_ref()?.public();
        let path = address::split(&self.question.wait).0.to_owned();
        let address = Address { path, ..Address::of_run(self.question.run.clone(), self.start) };
        let is_in_time = |one: &&ReceivedSignal| self.question.due.is_none_or(|due| one.place.at < due);
        let named = inbox.signals.iter().filter(is_in_time).filter(|one| one.name == self.question.wait);
        // The engine leaves out all others.
        let proven = |one: &ReceivedSignal| {
            let keys =
                JournalKeys { public: key.clone(), encryption: self.secrets.as_ref().map(|secrets| secrets.key) };
            let secrets = self.secrets.as_ref().map(|secrets| &secrets.mask);
            let signal = read(self.machine, &address, &keys, one.clone(), Receives::Answer { secrets }).ok()?;
            self.question.proves(self.machine, &signal).ok()
        };
        named.filter_map(proven).next()
    }

    async fn receive(&self, signal: Signal) -> Result<Received, StoreError> {
        let ((_, key), run) = (self.services.stored()?, &self.question.run);
        let seal = sealing(key, run, self.start, &signal);
        self.store.receive(run, signal, seal).await
    }
}

impl RuntimeServices {
    /// Reads the questions of a run that are open.
    async fn asked<'m>(&self, machine: &'m dyn Machine, run: &RunId) -> Result<OpenQuestions<'m>, StoredRunError> {
        let (store, key) = self.stored()?;
        asked(machine, run, &store.load(run).await?, &key.public())
    }

    /// Says whether the answer to a question that is not open is the one that the run continued with.
    async fn was_taken(
        &self,
        store: &dyn Store,
        run: &RunId,
        wait: &str,
        envelope: &Envelope,
        open: &[Question],
    ) -> Result<Answered, AnswerError> {
        let (_, key) = self.stored()?;
        let not_open = || {
            let open = open.iter().map(|question| question.wait.clone()).collect();
            AnswerError::NotOpen { run: run.clone(), wait: wait.to_owned(), open }
        };
        // The journal of a nested run has the answers to its questions.
        let holder = nested_at(run, address::split(wait).0).ok_or_else(not_open)?;
        let signed = match store.load(&holder).await {
            Err(StoreError::NotFound(_)) if holder != *run => return Err(not_open()),
            signed => signed?,
        };
        let misfit = StoredRunError::journal(&holder);
        let verified = VerifiedJournal::new(&holder, &signed, &key.public()).map_err(&misfit)?;
        for at in 0..verified.count() {
            let Some(record) = verified.record(at) else { continue };
            let Entry::Take(take) = record.map_err(&misfit)?.entry else { continue };
            let mut signals = take.taken.iter().filter_map(|taken| taken.signal.as_ref());
            if let Some(signal) = signals.rfind(|signal| signal.name == wait) {
                let mut signal = signal.clone();
                // A value that cannot be decrypted is no answer, and so another one.
                if let Some(key) = &self.encryption_key {
                    signal.decrypt(key).ok();
                }
                let known = SignedAnswer::read(&signal.value);
                let is_same = known.is_some_and(|known| known.envelope.says_the_same(envelope));
                let other = AnswerError::Answered { wait: wait.to_owned() };
                return if is_same { Ok(Answered::Already { taken: true }) } else { Err(other) };
            }
        }
        Err(not_open())
    }
}

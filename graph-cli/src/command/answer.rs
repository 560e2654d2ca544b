//! `graph answer`: sign what a person says to the question of a run, and send it.

use std::path::{Path, PathBuf};

use clap::Args;
use graph_model::digest::Digest;
use graph_model::timestamp;
use graph_model::value::canonical_json;
use graph_runtime::answer::{Answered, Envelope, KeyRing, Question, questions};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::{AnswerError, Builder, EncryptionKey, Fingerprint, RunId, Runtime, Store, StoredRunError, Value};
use graph_signing::SecretKey;
use serde_json::json;

use super::signal::{STDIN, exposed, read_value};
use super::stored::{self, Access};
use super::stored_run::{own_graph, verifying_key};
use super::{plain, read, signing_key};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output;

#[derive(Args)]
pub(crate) struct AnswerArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The id of the question, as `3#1` [default: the one that is open]
    #[arg(value_name = "WAIT")]
    wait: Option<String>,
    /// The answer, as JSON; `-` reads it from standard input. Without an answer, the questions are shown
    #[arg(long, value_name = "JSON", allow_negative_numbers = true, conflicts_with = "envelope")]
    json: Option<String>,
    /// An envelope that others have signed. You sign it too if you name a key with `--key`
    #[arg(long, value_name = "FILE")]
    envelope: Option<PathBuf>,
    /// Print the signed envelope, and send nothing
    #[arg(long)]
    print: bool,
    /// The payload of the question, as JSON, to sign an envelope without the store
    #[arg(long, value_name = "FILE", requires_all = ["envelope", "print"], conflicts_with = "store")]
    payload: Option<PathBuf>,
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE", required_unless_present = "payload")]
    store: Option<PathBuf>,
    /// The secret key that signs the answer [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The secret key that signs the store's journals [default: your own]
    #[arg(long, value_name = "FILE")]
    journal_key: Option<PathBuf>,
    /// The public key that verifies the run, to show questions and to print: a PEM file [default: your own]
    #[arg(long, value_name = "FILE", conflicts_with = "journal_key")]
    public_key: Option<PathBuf>,
    /// The directory of trusted keys, whose files give roles
    #[arg(long, value_name = "DIR", default_value = "graphs/keys")]
    keys: PathBuf,
    /// A key from which roles come: only files that it signed, or whose signers it vouches for, give roles [default: every trusted
    /// key]
    #[arg(long, value_name = "FINGERPRINT")]
    role_root: Vec<Fingerprint>,
    /// The key that encrypts the run's secrets
    #[arg(long, alias = "seal-key", value_name = "FILE")]
    encryption_key: Option<PathBuf>,
    /// The file of the run's graph; given several times, of its versions, of which the run's own is taken [default: found by its id in
    /// the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &AnswerArguments) -> CommandResult {
    let Some(path) = &arguments.store else {
        match arguments.signed_without_store() {
            Err(refused) => return refused.say(),
            Ok(envelope) => out_text!("{envelope}"),
        }
        return Ok(CommandOutcome::Well);
    };
    let tokio = stored::tokio()?;
    tokio.block_on(async {
        let sends = !arguments.print && (arguments.json.is_some() || arguments.envelope.is_some());
        let access = if sends { Access::Write } else { Access::Read };
        let store = stored::open(path, access).await?;
        let records = store.load(&arguments.run).await?;
        let graph = own_graph(&records, &arguments.graph, "--graph FILE")?;
        if sends {
            return arguments.send(store, &graph).await;
        }
        let key = match &arguments.journal_key {
            Some(path) => SecretKey::load(path)?.public(),
            None => verifying_key(arguments.public_key.as_deref())?,
        };
        let open = questions(&graph, &arguments.run, &records, &key);
        let open = match open {
            Err(StoredRunError::Journal { run, reason }) => {
                return Err(Error::new(format!(
                    "the journal of run `{run}` cannot be verified: {reason}; name the key of the journal with `--public-key`"
                )));
            }
            open => open?,
        };
        match arguments.signed(&graph, &open) {
            Err(refused) => return refused.say(),
            Ok(Some(envelope)) => out_text!("{envelope}"),
            Ok(None) if arguments.print => return Err(Error::new("name the answer to print: `--json JSON`")),
            Ok(None) => {
                let open: Vec<Value> = open.iter().map(shown).collect();
                out_json!(json!({"success": true, "run_id": arguments.run, "open": open}));
            }
        }
        Ok(CommandOutcome::Well)
    })
}

impl AnswerArguments {
    /// Signs an answer, and sends it.
    async fn send(&self, store: impl Store, graph: &Interpreted) -> CommandResult {
        let (keys, roots) = (self.keys.clone(), self.role_root.clone());
        let trusted = move || ring(&keys, &roots);
        let journal_key = signing_key(self.journal_key.as_ref())?;
        let builder = Runtime::builder().store(store).sign_with(journal_key).answer_keys(trusted);
        let builder = self.encryption_key()?.into_iter().fold(builder, Builder::encrypt_with);
        let runtime = builder.build()?;
        let open = runtime.questions(graph, &self.run).await?;
        let envelope = match self.signed(graph, &open) {
            Err(refused) => return refused.say(),
            Ok(Some(envelope)) => envelope,
            Ok(None) => return Err(Error::new("there is no answer to send")),
        };
        let run = &self.run;
        let result = match runtime.answer(graph, run, &envelope).await {
            Ok(Answered::Proposed { have, need }) => json!({"result": "proposed", "have": have, "need": need}),
            Ok(Answered::Already { taken }) => json!({"result": "already", "taken": taken}),
            Ok(_) => json!({"result": "accepted"}),
            Err(error) => return AnswerRefusal::Answer(error).say(),
        };
        let mut done = json!({"success": true, "run_id": run});
        if let (Value::Object(done), Value::Object(result)) = (&mut done, result) {
            done.extend(result);
        }
        out_json!(done);
        Ok(CommandOutcome::Well)
    }

    /// Signs an envelope without the store of the run. The payload is compared with its digest in the statement that people sign. The
    /// service that gets the envelope sees whether the run asks this, and whether the answer fits.
    fn signed_without_store(&self) -> Result<Envelope, AnswerRefusal> {
        let (Some(file), Some(payload)) = (&self.envelope, &self.payload) else {
            return Err(Error::new("name the store that holds the run: `--store FILE`").into());
        };
        let (envelope, wait) = self.envelope_in(file)?;
        let statement: Value =
            serde_json::from_slice(&envelope.payload().map_err(AnswerError::from)?).map_err(Error::from)?;
        let said = |field: &str| statement.get(field).cloned().unwrap_or_default();
        let payload: Value =
            read(payload)?.parse().map_err(|error| Error::new(plain(&format!("{}: {error}", payload.display()))))?;
        if said("payload").as_str() != Some(Digest::of(canonical_json(&payload)).to_string().as_str()) {
            return Err(Error::new(format!(
                "the envelope answers a question that shows something else than {}",
                plain(&payload.to_string())
            ))
            .into());
        }
        let key = signing_key(self.key.as_ref())?;
        say_what_is_signed(said("node").as_str().unwrap_or_default(), &wait, &self.run, &payload, &said("answer"));
        Ok(envelope.signed_by(&key).map_err(AnswerError::from)?)
    }

    /// Reads an envelope, and the id of the wait that it answers.
    fn envelope_in(&self, path: &Path) -> Result<(Envelope, String), AnswerRefusal> {
        let path_of = |error| Error::new(plain(&format!("{}: {error}", path.display())));
        let envelope: Envelope = read(path)?.trim().parse().map_err(path_of)?;
        let wait = Question::wait_in(&envelope, &self.run)?;
        if let Some(named) = self.wait.as_ref().filter(|named| **named != wait) {
            return Err(Error::new(plain(&format!("the envelope answers `{wait}`, and not `{named}`"))).into());
        }
        Ok((envelope, wait))
    }

    fn encryption_key(&self) -> Result<Option<EncryptionKey>, Error> {
        Ok(self.encryption_key.as_ref().map(|path| EncryptionKey::load(path)).transpose()?)
    }

    /// Returns the envelope of the answer, with the signature of the person.
    fn signed(&self, graph: &Interpreted, open: &[Question]) -> Result<Option<Envelope>, AnswerRefusal> {
        let (envelope, question) = match (&self.envelope, &self.json) {
            (Some(path), _) => {
                let (envelope, wait) = self.envelope_in(path)?;
                if self.key.is_none() {
                    return Ok(Some(envelope));
                }
                let question = self.question(open, Some(&wait))?;
                (envelope, question)
            }
            (None, Some(answer)) => {
                let question = self.question(open, self.wait.as_deref())?;
                if answer != STDIN && question.secrets(graph).is_some() {
                    return Err(exposed(&format!("the answer to `{}`", question.node), "--json -").into());
                }
                (question.answer(&read_value(answer)?), question)
            }
            (None, None) => return Ok(None),
        };
        // Nobody signs what the run does not ask, or what does not fit.
        let answer = question.check(graph, &envelope)?;
        let Question { run, wait, node, payload, .. } = question;
        let key = signing_key(self.key.as_ref())?;
        let answer = question.secrets(graph).map_or_else(|| answer.clone(), |secrets| secrets.hide(answer.clone()));
        say_what_is_signed(node, wait, run, payload, &answer);
        Ok(Some(envelope.signed_by(&key).map_err(AnswerError::from)?))
    }

    /// Returns the question that is answered.
    fn question<'q>(&self, open: &'q [Question], wait: Option<&str>) -> Result<&'q Question, AnswerRefusal> {
        let named = wait.map(|wait| open.iter().find(|question| question.wait == wait));
        let ids: Vec<String> = open.iter().map(|question| question.wait.clone()).collect();
        match (named, open) {
            (Some(Some(question)), _) | (None, [question]) => Ok(question),
            (Some(None), _) => {
                let wait = wait.unwrap_or_default().to_owned();
                Err(AnswerError::NotOpen { run: self.run.clone(), wait, open: ids }.into())
            }
            (None, []) => Err(AnswerRefusal::NoQuestion(self.run.clone())),
            (None, _) => {
                Err(Error::new(format!("run `{}` asks several questions; name one: {}", self.run, ids.join(", ")))
                    .into())
            }
        }
    }
}

/// Why an answer is not sent.
enum AnswerRefusal {
    /// It was refused.
    Answer(AnswerError),
    /// The run asks nothing.
    NoQuestion(RunId),
    /// It could not be made.
    Failed(Error),
}

impl AnswerRefusal {
    /// Says why. Fails if the work could not be done at all.
    fn say(self) -> CommandResult {
        match self {
            Self::Answer(error @ AnswerError::Stored(_)) => return Err(error.into()),
            Self::Failed(error) => return Err(error),
            Self::Answer(error) => err!("error: {}", plain(&error.to_string())),
            Self::NoQuestion(run) => err!("error: run `{run}` asks nothing"),
        }
        Ok(CommandOutcome::Problems)
    }
}

impl From<AnswerError> for AnswerRefusal {
    fn from(error: AnswerError) -> Self {
        Self::Answer(error)
    }
}

impl From<Error> for AnswerRefusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The maximum number of characters of a text in the note about what is signed.
const MOST_IN_NOTE: usize = 1_000;

/// Says to a person what they sign.
fn say_what_is_signed(node: &str, wait: &str, run: &RunId, payload: &Value, answer: &Value) {
    let shown = output::question_line(payload, MOST_IN_NOTE);
    err!(
        "{}",
        plain(&format!("note: you answer `{node}` ({wait}) of run `{run}`, which shows {shown}, with {answer}"))
    );
}

/// Reads the trusted keys.
pub(super) fn ring(directory: &Path, roots: &[Fingerprint]) -> KeyRing {
    let (ring, ..) = KeyRing::load(&[directory]);
    if roots.is_empty() { ring } else { ring.with_role_roots(roots.iter().cloned()) }
}

/// Returns a question as one object.
fn shown(question: &Question) -> Value {
    let time = |at| timestamp::milliseconds(timestamp::from_unix_milliseconds(at));
    let Question { wait, node, payload, role, count, opened, due, .. } = question;
    json!({
        "wait": wait,
        "node": node,
        "role": role,
        "count": count,
        "opened": time(*opened),
        "due": due.map(time),
        "payload": output::amounts_first(payload.clone()),
    })
}

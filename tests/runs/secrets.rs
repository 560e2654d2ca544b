//! A secret reaches the tools that it is for, and nothing else: no journal's file, log, observer, hook, result or
//! failure message.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use graph_runtime::answer::Answered;
use graph_runtime::files::{GraphId, KeyRing};
use graph_runtime::observer::Event;
use graph_runtime::{
    ActionError, Call, Control, EncryptionKey, Finished, HookContext, Hooks, Layer, Observer, Progress, ProjectFiles,
    ResumeError, RunError, RunId, Runtime, Secret, SecretKey, SecretsError, SqliteStore, StartError, Store,
    StoredRunError,
};
use state_graphs::released_transfer;
use state_graphs::tools::bank_transfer;
use tracing::field::{Field, Visit};
use tracing::span;

graph_runtime::graph!("tests/engines/graphs/secrets_are_kept.yaml");

use secrets_are_kept::tools::{vault_ask, vault_login, vault_tell};
use secrets_are_kept::{Inputs, Output};

/// The secret, which may occur in no text except a tool's.
const CANARY: &str = "canary-7d3f";

/// Tools that print their secrets and fail with them.
#[derive(Clone, Default)]
struct Gossip {
    /// Whether `vault_ask` fails.
    dies: bool,
    asked: Arc<Mutex<Vec<String>>>,
    overheard: Overheard,
}

impl vault_login::Tool for Gossip {
    async fn vault_login(&self, _: &Call, params: vault_login::Params) -> Result<vault_login::Output, ActionError> {
        self.overheard.hear(format_args!("{params:?}"));
        let password = params.password.expose();
        Ok(vault_login::Output {
            token: format!("{password}-token").into(),
            level: None,
            account: vault_login::OutputAccount { name: "Ann".into(), iban: format!("{password}-iban").into() },
            said: format!("welcome, {password}"),
        })
    }
}

impl vault_ask::Tool for Gossip {
    async fn vault_ask(&self, _: &Call, params: vault_ask::Params) -> Result<vault_ask::Output, ActionError> {
        self.overheard.hear(format_args!("{params:?}"));
        let authorization = params.authorization.expose();
        self.asked.lock().unwrap().push(authorization.clone());
        if self.dies {
            return Err(ActionError::permanent(format!("{authorization} is refused")).with_code(authorization));
        }
        Ok(vault_ask::Output { answer: format!("yes to {authorization}"), keys: None })
    }
}

impl vault_tell::Tool for Gossip {
    async fn vault_tell(
        &self,
        _: &Call,
        params: graph_runtime::Map<String, graph_runtime::Value>,
    ) -> Result<graph_runtime::Value, ActionError> {
        self.overheard.hear(format_args!("{params:?}"));
        Ok(graph_runtime::Value::Null)
    }
}

/// Everything that observers, hooks and logs receive of a run.
#[derive(Clone, Default)]
struct Overheard(Arc<Mutex<String>>);

impl Overheard {
    fn hear(&self, text: std::fmt::Arguments<'_>) {
        writeln!(self.0.lock().unwrap(), "{text}").unwrap();
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Overheard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.hear(format_args!("{}", String::from_utf8_lossy(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Observer for Overheard {
    fn observe(&self, event: &Event<'_>) {
        self.hear(format_args!("{event:?}"));
    }
}

impl Hooks for Overheard {
    async fn after_step(&self, told: &HookContext<'_>) -> Option<Control> {
        self.hear(format_args!("{told:?}"));
        None
    }

    async fn error(&self, told: &HookContext<'_>) -> Option<Control> {
        self.hear(format_args!("{told:?}"));
        None
    }
}

impl Visit for Overheard {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.hear(format_args!("{field}: {value:?}"));
    }
}

impl tracing::Subscriber for Overheard {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(&mut self.clone());
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn inputs() -> Inputs {
    Inputs { user: "ann".into(), password: CANARY.into(), pins: None }
}

fn run_id() -> RunId {
    RunId::new("one").unwrap()
}

/// Runs the graph with all observers and hooks.
async fn start(path: &Path, tools: &Gossip, encryption_key: Option<EncryptionKey>) -> Result<Outcome, StartError> {
    let runtime = runtime(path, &tools.overheard, encryption_key).await;
    let graph = SecretsAreKept::new(tools.clone());
    Ok(runtime.start_as(run_id(), graph, inputs()).await?.await)
}

type Outcome = Result<Finished<Output>, RunError>;

/// Returns the files of the project that contains the database.
fn files(path: &Path) -> ProjectFiles {
    ProjectFiles::in_directory(path.parent().unwrap(), SecretKey::from_seed(&[1; 32])).unwrap()
}

async fn runtime(path: &Path, overheard: &Overheard, encryption_key: Option<EncryptionKey>) -> Runtime {
    let builder = Runtime::builder()
        .store(SqliteStore::open(path).await.unwrap())
        .sign_with(SecretKey::from_seed(&[1; 32]))
        .grants(["rye.execute.tool.vault.*", "rye.execute.tool.bank.*", "rye.signal.*"])
        .unwrap()
        .answer_keys(|| KeyRing::of(&SecretKey::from_seed(&[3; 32]).public(), "Ann"))
        .keep_history()
        .observer(overheard.clone())
        .observer(Progress::to(overheard.clone()))
        .observer(files(path))
        .hooks(Layer::Builtin, overheard.clone());
    match encryption_key {
        Some(key) => builder.encrypt_with(key),
        None => builder,
    }
    .build()
    .unwrap()
}

/// Fails if any file of a directory contains the secret.
fn assert_no_file_has_it(directory: &Path) {
    let mut looked_at = 0;
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        // The database removes its log when the last connection to it closes.
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            bytes => bytes.unwrap(),
        };
        looked_at += bytes.len();
        assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()), "{}", path.display());
    }
    assert!(looked_at > 10_000, "there is a journal");
}

fn assert_not_in(text: &str) {
    assert!(!text.contains(CANARY), "{text}");
    assert!(text.contains("[secret]"), "{text}");
}

#[tokio::test]
async fn a_secret_is_found_in_no_journal_log_event_or_result() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let tools = Gossip::default();
    let guard = tracing::subscriber::set_default(tools.overheard.clone());
    let finished = start(&path, &tools, Some(EncryptionKey::from_bytes([2; 32]))).await.unwrap().unwrap();
    drop(guard);
    assert_eq!(tools.asked.lock().unwrap()[0], format!("Bearer {CANARY}-token"), "the tool has it");
    let Output::Done(done) = &finished.output else { unreachable!("it is not refused") };
    assert_eq!(done.token.expose(), "canary-7d3f-token");
    assert_no_file_has_it(directory.path());
    let keys = KeyRing::of(&SecretKey::from_seed(&[1; 32]).public(), "project");
    let graph = GraphId::new(secrets_are_kept::ID).unwrap();
    let (item, _) = files(&path).store().verify(&graph, &run_id(), &keys).unwrap();
    assert_eq!(item.state, finished.state);
    for text in [
        tools.overheard.text(),
        format!("{finished:?}"),
        finished.to_value().to_string(),
        serde_json::to_string(&finished.output).unwrap(),
        serde_json::to_string(&inputs()).unwrap(),
    ] {
        assert_not_in(&text);
    }
    let runtime = runtime(&path, &tools.overheard, None).await;
    assert_not_in(&format!("{:?}", runtime.history(&run_id()).await.unwrap()));
}

#[tokio::test]
async fn a_failure_shows_no_secret_to_anybody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let tools = Gossip { dies: true, ..Gossip::default() };
    let guard = tracing::subscriber::set_default(tools.overheard.clone());
    let finished = start(&path, &tools, Some(EncryptionKey::from_bytes([2; 32]))).await.unwrap().unwrap();
    drop(guard);
    assert_eq!(finished.errors[0].error, "Bearer [secret] is refused");
    assert_no_file_has_it(directory.path());
    assert_not_in(&tools.overheard.text());
    assert_not_in(&format!("{finished:?}"));
}

#[tokio::test]
async fn a_run_with_secrets_needs_a_seal_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let started = start(&path, &Gossip::default(), None).await;
    assert!(matches!(started, Err(StartError::Secrets(SecretsError::NoKey { .. }))));
    let store = SqliteStore::open(&path).await.unwrap();
    assert!(store.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn another_seal_key_resumes_no_run_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let tools = Gossip::default();
    let key = EncryptionKey::from_bytes([2; 32]);
    start(&path, &tools, Some(key.clone())).await.unwrap().unwrap();
    let records = async || SqliteStore::open(&path).await.unwrap().load(&run_id()).await.unwrap();
    let before = records().await;
    for wrong in [Some(EncryptionKey::from_bytes([3; 32])), None] {
        let runtime = runtime(&path, &tools.overheard, wrong.clone()).await;
        let error = runtime.resume(SecretsAreKept::new(tools.clone()), &run_id()).await.unwrap_err();
        match error {
            ResumeError::Stored(StoredRunError::AnotherEncryptionKey { found, .. }) => {
                assert_eq!(found, Some(key.fingerprint()));
            }
            ResumeError::Stored(StoredRunError::Secrets(SecretsError::NoKey { .. })) => assert!(wrong.is_none()),
            other => unreachable!("{other}"),
        }
    }
    assert_eq!(records().await, before);
    let runtime = runtime(&path, &tools.overheard, Some(key)).await;
    let resumed = runtime.resume(SecretsAreKept::new(tools.clone()), &run_id()).await.unwrap().await.unwrap();
    assert!(matches!(&resumed.output, Output::Done(done) if done.token == Secret::new(format!("{CANARY}-token"))));
    assert_not_in(&format!("{resumed:?}"));
}

/// Sends money with secrets that people gave.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Vec<String>>>);

impl bank_transfer::Tool for Bank {
    async fn bank_transfer(
        &self,
        _: &Call,
        params: bank_transfer::Params,
    ) -> Result<bank_transfer::Output, ActionError> {
        let bank_transfer::Params { iban, pin, .. } = params;
        self.0.lock().unwrap().extend([iban.expose().clone(), pin.expose().clone()]);
        Ok(bank_transfer::Output { transfer: format!("from {} to {}", pin.expose(), iban.expose()) })
    }
}

/// A signal and an answer with secrets reach the tool, in processes that know nothing of each other.
#[tokio::test]
async fn a_secret_that_people_give_is_found_in_no_journal_log_event_or_result() {
    use released_transfer::{Answer, Inputs, Named, ReleaseAnswer, ReleaseAnswerDecision, ReleasedTransfer, Signal};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (bank, overheard) = (Bank::default(), Overheard::default());
    let graph = || ReleasedTransfer::new(bank.clone());
    let guard = tracing::subscriber::set_default(overheard.clone());
    let process = || runtime(&path, &overheard, Some(EncryptionKey::from_bytes([2; 32])));
    let started = process().await.start_as(run_id(), graph(), Inputs { cents: 5 }).await.unwrap();
    assert!(matches!(started.await, Err(RunError::Waiting { .. })));
    let account = Named { iban: format!("{CANARY}-iban").into(), owner: "Bo".into() };
    overheard.hear(format_args!("{:?} {}", Signal::Named(account.clone()), serde_json::to_string(&account).unwrap()));
    process().await.signal(&graph(), &run_id(), Signal::Named(account), "1").await.unwrap();
    let waiting = process().await.resume(graph(), &run_id()).await.unwrap().await;
    let Err(RunError::Waiting { state, .. }) = waiting else { unreachable!("it asks") };
    overheard.hear(format_args!("{state}"));
    let runtime = process().await;
    let question = runtime.questions(&graph(), &run_id()).await.unwrap().remove(0);
    let pin = ReleaseAnswer { decision: ReleaseAnswerDecision::Release, pin: format!("{CANARY}-pin").into() };
    overheard.hear(format_args!("{:?} {question:?}", Answer::Release(pin.clone())));
    let envelope = question.sign(Answer::Release(pin), &SecretKey::from_seed(&[3; 32])).unwrap();
    assert_eq!(runtime.answer(&graph(), &run_id(), &envelope).await.unwrap(), Answered::Accepted);
    let finished = process().await.resume(graph(), &run_id()).await.unwrap().await.unwrap();
    drop(guard);
    assert_eq!(*bank.0.lock().unwrap(), [format!("{CANARY}-iban"), format!("{CANARY}-pin")], "the tool has them");
    assert_no_file_has_it(directory.path());
    for text in [overheard.text(), format!("{finished:?}"), finished.to_value().to_string()] {
        assert_not_in(&text);
    }
    assert_not_in(&format!("{:?}", runtime.history(&run_id()).await.unwrap()));
}

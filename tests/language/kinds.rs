//! The kinds of errors: each variant of each error about runs has one, and says no more to a client than it may see.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use graph_runtime::answer::Envelope;
use graph_runtime::files::{FilesAuditError, FilesError};
use graph_runtime::history::{EditError, EditMisfit, ForkError, PastError};
use graph_runtime::machine::View;
use graph_runtime::record::JournalError;
use graph_runtime::store::StoreError;
use graph_runtime::{
    AnswerError, AttestationError, AuditError, BuildError, ErrorKind, Failure, GraphId, HasKind, Mismatch,
    OutcomeError, Pattern, ResumeError, RunError, RunId, Schedule, ScheduleError, ScheduleId, SecretKey, SecretsError,
    SignalError, SingleError, StartError, Status, StoredRunError, Value, WorkerError,
};
use syn::Item;

use crate::layers::{crates, sources};

/// Where the server keeps its data, which no client is to see.
const PATH: &str = "/srv/shop/runs.db";

/// An error, its variant, and its kind.
struct Sample {
    variant: String,
    kind: ErrorKind,
    text: String,
}

/// Errors by the names of their types.
#[derive(Default)]
struct Samples(BTreeMap<&'static str, Vec<Sample>>);

impl Samples {
    fn add<E: HasKind>(&mut self, name: &'static str, errors: impl IntoIterator<Item = E>) {
        let sample = |error: E| {
            let shown = format!("{error:?}");
            let variant = shown.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
            Sample { variant: variant.to_owned(), kind: error.kind(), text: error.to_string() }
        };
        self.0.entry(name).or_default().extend(errors.into_iter().map(sample));
    }
}

fn run() -> RunId {
    RunId::new("order-17").unwrap()
}

fn text() -> String {
    "shop/order".to_owned()
}

fn broken() -> JournalError {
    JournalError::Misfit { seq: 3, reason: text() }
}

fn store_errors() -> Vec<StoreError> {
    let cause = || io::Error::other(PATH);
    vec![
        StoreError::NotFound(run()),
        StoreError::Exists(run()),
        StoreError::Conflict { run: run(), expected: 1, found: 2 },
        StoreError::Leased { run: run(), holder: "process 7".to_owned() },
        StoreError::LeaseLost(run()),
        StoreError::Ended { run: run(), status: Status::Completed },
        StoreError::OtherSignal { run: run(), id: text() },
        StoreError::TooManySignals { run: run() },
        StoreError::SignalGone { run: run(), order: 1 },
        StoreError::ScheduleChanged { schedule: text(), expected: 1, found: 2 },
        StoreError::BadCursor(text()),
        StoreError::TooLong { run: run(), limit: 1 },
        StoreError::full(PATH).with_source(cause()),
        StoreError::read_only(PATH, "it is a copy"),
        StoreError::busy(PATH),
        StoreError::unavailable(PATH, "no disk"),
        StoreError::unreadable(PATH, "no database"),
        StoreError::newer(PATH, 9, 8),
        StoreError::open(PATH, "no directory"),
        StoreError::None,
        StoreError::Unsupported("wait"),
        StoreError::failed(PATH).with_source(cause()),
        StoreError::Closed,
    ]
}

fn stored_run_errors() -> Vec<StoredRunError> {
    vec![
        StoredRunError::Store(StoreError::NotFound(run())),
        StoredRunError::Journal { run: run(), reason: broken() },
        StoredRunError::AnotherGraph { run: run(), expected: text(), found: text(), gone: vec![text()] },
        StoredRunError::Inside { run: run(), outer: run() },
        StoredRunError::AnotherEncryptionKey { run: run(), expected: text(), found: None },
        StoredRunError::Secrets(SecretsError::NoKey { graph: text() }),
    ]
}

fn mismatch() -> Mismatch {
    Mismatch::new("a number", View::Null)
}

fn start_errors() -> Vec<StartError> {
    let (graph, reason) = (text, text);
    vec![
        StartError::NotGranted { graph: graph(), missing: vec![text()] },
        StartError::MissingEnvironment(vec![text()]),
        StartError::MissingTools { graph: graph(), tools: vec![text()] },
        StartError::MissingReducers { graph: graph(), reducers: vec![text()] },
        StartError::MissingInputs { graph: graph(), missing: vec![text()] },
        StartError::Inputs { graph: graph(), mismatch: mismatch(), others: Vec::new() },
        StartError::Begin { graph: graph(), reason: reason() },
        StartError::Schema { graph: graph(), reason: reason() },
        StartError::Secrets(SecretsError::NoRandomness(reason())),
        StartError::NoStore { graph: graph() },
        StartError::WaitsInside { graph: graph() },
        StartError::ShutDown,
        StartError::Store(StoreError::Exists(run())),
    ]
}

fn run_errors() -> Vec<RunError> {
    let (step, steps, node, state) = (2, 1, text, || Box::new(Value::Null));
    vec![
        RunError::Node {
            run: run(),
            node: node(),
            step,
            steps,
            failure: Box::new(Failure::permanent(PATH)),
            state: state(),
        },
        RunError::MaxSteps { run: run(), max_steps: 1, steps, state: state() },
        RunError::MaxVisits { run: run(), node: node(), max_visits: 1, steps, state: state() },
        RunError::MaxNestedSteps { run: run(), max_steps: 1, steps, state: state() },
        RunError::Waiting { run: run(), steps, waits: Vec::new(), state: state() },
        RunError::Deadline { run: run(), steps, state: state() },
        RunError::Cancelled { run: run(), steps, state: state() },
        RunError::ShutDown { run: run(), steps, state: state() },
        RunError::Store { run: run(), step, source: StoreError::full(PATH) },
        RunError::Output { run: run(), mismatch: mismatch() },
        RunError::Stopped { run: run(), reason: text() },
    ]
}

fn answer_errors() -> Vec<AnswerError> {
    let (key, wait, node, reason) = (text, || "3#1".to_owned(), text, text);
    let envelope = "{".parse::<Envelope>().unwrap_err();
    vec![
        AnswerError::Stored(StoredRunError::Store(StoreError::NotFound(run()))),
        AnswerError::NoKeys,
        AnswerError::Keys,
        AnswerError::Envelope(envelope),
        AnswerError::Statement(text()),
        AnswerError::AnotherQuestion { what: "run", found: text(), expected: text() },
        AnswerError::NotOpen { run: run(), wait: wait(), open: Vec::new() },
        AnswerError::Expired { wait: wait(), due: 0 },
        AnswerError::Answered { wait: wait() },
        AnswerError::Value { node: node(), reason: reason() },
        AnswerError::TooManyProposals { key: key(), wait: wait() },
        AnswerError::Signatures(text()),
        AnswerError::Key { key: key(), reason: reason() },
        AnswerError::Forged { key: key() },
    ]
}

fn signal_errors() -> Vec<SignalError> {
    let (graph, name) = (text, || "paid".to_owned());
    vec![
        SignalError::Stored(StoredRunError::Store(StoreError::NotFound(run()))),
        SignalError::Id { id: String::new() },
        SignalError::Unknown { graph: graph(), name: name(), signals: Vec::new() },
        SignalError::NotInside { run: run(), path: "5/".to_owned() },
        SignalError::Denied { capability: denied() },
        SignalError::Value { graph: graph(), name: name(), mismatch: mismatch() },
        SignalError::Schema { graph: graph(), name: name(), reason: text() },
        SignalError::Start(Box::new(StartError::ShutDown)),
    ]
}

fn denied() -> graph_model::capability::Capability {
    graph_model::capability::Capability::signal(&GraphId::new("shop/order").unwrap(), "paid")
}

fn schedule_errors() -> Vec<ScheduleError> {
    let schedule = || ScheduleId::new("daily").unwrap();
    let (graph, start) = (GraphId::new("shop/order").unwrap(), Box::new(StartError::ShutDown));
    vec![
        Schedule::new("", "shop/order", "0 0 * * *", "UTC").unwrap_err(),
        Schedule::new("daily", "shop/order", "now", "UTC").unwrap_err(),
        ScheduleError::UnknownGraph { schedule: schedule(), graph },
        ScheduleError::Inputs { schedule: schedule(), source: start },
        ScheduleError::TickTwice { schedule: schedule(), input: text() },
        ScheduleError::CatchUp { schedule: schedule(), reason: "there are none" },
        ScheduleError::Twice { schedule: schedule() },
    ]
}

fn errors_of_histories(samples: &mut Samples) {
    let (step, stored) = (9, || StoredRunError::Store(StoreError::NotFound(run())));
    let past = || PastError::NoSuchStep { step, first: 0, last: 4 };
    let between = PastError::Between { step, from: 8, to: 10 };
    samples.add("PastError", [PastError::Journal(broken()), past(), PastError::Encrypted(None), between]);
    samples.add(
        "EditError",
        [
            EditError::Stored(stored()),
            EditError::Past { run: run(), reason: past() },
            EditError::Ended { run: run() },
            EditError::Ahead { run: run() },
            EditError::Misfit { run: run(), reason: EditMisfit::Nothing },
        ],
    );
    let change = graph_runtime::record::ChangeError::InMemory { key: text() };
    samples.add(
        "ForkError",
        [
            ForkError::Stored(stored()),
            ForkError::Past { run: run(), reason: past() },
            ForkError::Ended { run: run(), step },
            ForkError::WaitsInside { run: run(), step },
            ForkError::Change(change),
            ForkError::Secret { key: text() },
            ForkError::Start(StartError::ShutDown),
        ],
    );
    samples.add(
        "SingleError",
        [
            SingleError::NoSuchNode(text()),
            SingleError::InBranches { node: text(), fan: text(), reason: text() },
            SingleError::Inject { key: text(), mismatch: mismatch() },
            SingleError::UnknownKey { key: text(), known: Vec::new() },
            SingleError::Stored(stored()),
            SingleError::Past { run: run(), reason: past() },
            SingleError::Start(StartError::ShutDown),
            SingleError::Run(run_errors().remove(0)),
        ],
    );
    let missing = || AuditError::Store { run: run(), source: StoreError::NotFound(run()) };
    samples.add("AuditError", [missing(), AuditError::Journal { run: run(), reason: broken() }]);
    let files = FilesError::Missing { path: PATH.into() };
    samples.add(
        "FilesAuditError",
        [FilesAuditError::Audit(missing()), FilesAuditError::Files { run: run(), source: files }],
    );
    let key = SecretKey::from_seed(&[1; 32]).public().fingerprint();
    samples.add(
        "AttestationError",
        [
            AttestationError::NotAnEnvelope("{".parse::<Envelope>().unwrap_err()),
            AttestationError::Signature { key },
            AttestationError::NotOfARun(text()),
            AttestationError::Journal(broken()),
            AttestationError::AnotherJournal(run()),
        ],
    );
}

fn samples() -> Samples {
    let (mut samples, stored) = (Samples::default(), || StoredRunError::Store(StoreError::NotFound(run())));
    samples.add("StoreError", store_errors());
    samples.add("StoredRunError", stored_run_errors());
    let secrets = [
        SecretsError::NoKey { graph: text() },
        SecretsError::NoCipher { graph: text() },
        SecretsError::NoRandomness(text()),
    ];
    samples.add("SecretsError", secrets);
    samples.add("StartError", start_errors());
    samples.add(
        "ResumeError",
        [
            ResumeError::Stored(stored()),
            ResumeError::Begun { run: run(), how: "with other values of `items`".to_owned() },
            ResumeError::Start(StartError::ShutDown),
        ],
    );
    samples.add("RunError", run_errors());
    samples.add(
        "OutcomeError",
        [OutcomeError::Stored(stored()), OutcomeError::Output { run: run(), mismatch: mismatch() }],
    );
    samples.add("SignalError", signal_errors());
    samples.add("AnswerError", answer_errors());
    samples.add("WorkerError", [WorkerError::Store(StoreError::None), WorkerError::Twice { graph: text() }]);
    samples.add("ScheduleError", schedule_errors());
    let directory = BuildError::Directory { path: PATH.into(), source: io::Error::other(PATH) };
    let grant = BuildError::Grant(Pattern::new("").unwrap_err());
    samples.add("BuildError", [BuildError::NoKey, BuildError::NoCacheKey, grant, directory]);
    let key = SecretKey::from_seed(&[1; 32]).public().fingerprint();
    samples.add(
        "JournalError",
        [
            JournalError::Empty,
            JournalError::Unreadable { seq: 1, reason: text() },
            JournalError::Version { seq: 1, found: 9 },
            JournalError::Broken { seq: 1 },
            JournalError::Signature { seq: 1, key },
            JournalError::Shortened { seq: 1 },
            broken(),
        ],
    );
    errors_of_histories(&mut samples);
    samples
}

/// Returns the variants of each enum for which a library says the kinds, by the sources.
fn written() -> BTreeMap<String, BTreeSet<String>> {
    let (mut enums, mut kinded) = (BTreeMap::new(), BTreeSet::new());
    for (_, text) in crates().iter().flat_map(|directory| sources(Path::new(directory))) {
        for item in syn::parse_file(&text).unwrap().items {
            match item {
                Item::Enum(item) => {
                    let variants = item.variants.iter().map(|variant| variant.ident.to_string()).collect();
                    enums.insert(item.ident.to_string(), variants);
                }
                Item::Impl(item) => {
                    let of_trait = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
                    if of_trait.is_some_and(|segment| segment.ident == "HasKind")
                        && let syn::Type::Path(path) = &*item.self_ty
                        && let Some(name) = path.path.segments.last()
                    {
                        kinded.insert(name.ident.to_string());
                    }
                }
                _ => {}
            }
        }
    }
    enums.into_iter().filter(|(name, _)| kinded.contains(name)).collect()
}

#[test]
fn every_variant_has_a_kind_whose_message_a_client_may_see_or_the_log_keeps() {
    let samples = samples().0;
    // An error of a log of events needs a cursor, which only a log gives; `events` has its tests.
    let mut written = written();
    assert!(written.remove("EventLogError").is_some_and(|variants| variants.len() == 4));
    let names = |sampled: &Vec<Sample>| sampled.iter().map(|one| one.variant.clone()).collect::<BTreeSet<_>>();
    let sampled: BTreeMap<String, BTreeSet<String>> =
        samples.iter().map(|(name, all)| ((*name).to_owned(), names(all))).collect();
    assert_eq!(sampled, written, "each variant of each error is in the table of this test, and no other");
    for (name, Sample { variant, kind, text }) in
        samples.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one)))
    {
        let at = format!("{name}::{variant} is {kind:?}: {text}");
        assert!(!text.is_empty() && !text.ends_with(": "), "{at}");
        assert!(!kind.may_be_shown() || !text.contains(PATH), "{at}");
        assert_eq!(kind.may_be_shown(), kind.http_status() < 500, "{at}");
    }
}

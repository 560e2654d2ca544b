//! Answers and signals with secrets: encrypted as a whole where they are received and written.

use std::sync::{Arc, Mutex};

use graph_runtime::__private::{Key, Program};
use graph_runtime::answer::{Answered, Proposal};
use graph_runtime::history::{Fork, ForkRun};
use graph_runtime::record::JournalError;
use graph_runtime::store::{Received, Signal, StoreError};
use graph_runtime::{
    ActionError, AnswerError, Attestation, Audit, EncryptionKey, Map, MemoryStore, NamedAnswer, NamedSignal, Options,
    RunError, RunId, Runtime, SecretKey, SignalError, Status, Store, StoredRunError, Value, attest, audit, audit_tree,
};
use serde_json::json;

use crate::answers::People;
use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::signals::signed_again;
use crate::support::failing;
use crate::support::{KEY, id};
use crate::waits::{records, store, waits};

/// The secrets in the tests: a PIN of an answer and the number of a card of a signal.
const SECRETS: [&str; 2] = ["pin-9182-7364", "4000-1234-5678"];

/// A transfer that two people release with a PIN, and that a signal with a card pays.
const TRANSFER: Program<'static> = Program {
    keys: &[Key { name: "pin", initial: None }, Key { name: "card", initial: None }],
    settings: r#"{"signals":{"paid":{},"plain":{}},"secrets":{"keys":{"pin":"all","card":"all"},"answers":{"release":{"fields":{"pin":"all"}}},"signals":{"paid":{"fields":{"card":"all"}}},"output":{"fields":{"pin":"all","card":"all"}}}}"#,
    nodes: &[
        (
            "release",
            r#"{"line":1,"does":"interrupt","wait":{"ask":{"payload":{"cents":5},"count":2}},"assign":{"pin":"${result.pin}"},"next":{"by":"result.decision","to":{"approve":"use","refuse":"done"}}}"#,
        ),
        ("use", r#"{"line":2,"does":{"action":0},"params":{"pin":"${state.pin}"},"next":[{"to":"money"}]}"#),
        (
            "money",
            r#"{"line":3,"does":"wait","wait":{"signals":["paid"]},"assign":{"card":"${result.paid.card}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":4,"does":"return","output":{"pin":"${state.pin}","card":"${state.card}"}}"#),
    ],
    ..PROGRAM
};

/// The parameters of the calls of the tool.
type Seen = Arc<Mutex<Vec<Value>>>;

fn transfer(seen: &Seen) -> Interpreted {
    let seen = Arc::clone(seen);
    Interpreted::new(&TRANSFER, move |_, params| {
        seen.lock().unwrap().push(params);
        Ok(json!("used"))
    })
}

pub(crate) fn key(byte: u8) -> EncryptionKey {
    EncryptionKey::from_bytes([byte; 32])
}

pub(crate) fn secretive(store: impl Store, people: &People, encrypts: Option<EncryptionKey>) -> Runtime {
    let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    let people = people.clone();
    let builder = builder.answer_keys(move || people.clone());
    encrypts.into_iter().fold(builder, |builder, key| builder.encrypt_with(key)).build().unwrap()
}

/// A store with a run that waits for its release, and Ann and Bo.
struct Bank {
    store: MemoryStore,
    people: People,
    runtime: Runtime,
    graph: Interpreted,
    seen: Seen,
    ann: SecretKey,
    bo: SecretKey,
    run: RunId,
}

impl Bank {
    async fn new() -> Self {
        let ((store, _), people, seen, run) = (store(), People::default(), Seen::default(), id("transfer"));
        let [ann, bo] = [(11, "Ann"), (12, "Bo")].map(|(seed, owner)| people.add(seed, owner, &[]));
        let (runtime, graph) = (secretive(store.clone(), &people, Some(key(7))), transfer(&seen));
        let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        assert_eq!(waits(started.await.unwrap_err())[0].0, "release");
        Self { store, people, runtime, graph, seen, ann, bo, run }
    }

    fn release(decision: &str) -> NamedAnswer {
        NamedAnswer::new("release", json!({"decision": decision, "pin": SECRETS[0]}))
    }

    async fn answer(&self, decision: &str, by: &SecretKey) -> Result<Answered, AnswerError> {
        let question = self.runtime.questions(&self.graph, &self.run).await.unwrap().remove(0);
        let envelope = question.sign(Self::release(decision), by).unwrap();
        self.runtime.answer(&self.graph, &self.run, &envelope).await
    }

    fn paid() -> NamedSignal {
        NamedSignal::new("paid", json!({"card": SECRETS[1], "cents": 5}))
    }

    async fn resumed(&self) -> Result<Value, RunError> {
        let run = self.runtime.resume(self.graph.clone(), &self.run).await.unwrap();
        run.await.map(|finished| finished.output)
    }

    /// Everything that the store has of the run.
    async fn stored(&self) -> String {
        let inbox = self.store.inbox(&self.run).await.unwrap().signals;
        let bodies = records(&self.store, &self.run).await.into_iter().map(|record| record.body);
        bodies.chain(inbox.into_iter().map(|one| format!("{one:?}"))).collect()
    }

    async fn audited(&self, with: Option<&EncryptionKey>) -> Result<Audit, JournalError> {
        let signed = records(&self.store, &self.run).await;
        audit(&self.graph, &self.run, &signed, &SecretKey::from_seed(&KEY).public(), with)
    }
}

#[tokio::test]
async fn secrets_of_answers_and_signals_are_nowhere_in_the_open() {
    let bank = Bank::new().await;
    assert_eq!(bank.answer("approve", &bank.ann).await.unwrap(), Answered::Proposed { have: 1, need: 2 });
    assert_eq!(bank.answer("refuse", &bank.ann).await.unwrap(), Answered::Proposed { have: 1, need: 2 });
    assert_eq!(bank.answer("approve", &bank.ann).await.unwrap(), Answered::Proposed { have: 1, need: 2 });
    // Others see who has signed and what is not secret.
    let (inbox, key_of) = (bank.store.inbox(&bank.run).await.unwrap(), |key: &SecretKey| key.public().fingerprint());
    let closed = Proposal::all(&inbox, "1#1", None);
    let shown: Vec<_> = closed.iter().map(|one| (one.answer.clone(), one.keys.len(), one.envelope.is_some())).collect();
    let hidden = |decision| json!({"decision": decision, "pin": "[secret]"});
    assert_eq!(shown, [(hidden("approve"), 1, false), (hidden("refuse"), 1, false)]);
    assert_eq!(closed[0].keys, [key_of(&bank.ann).to_string()]);
    let opened = Proposal::all(&inbox, "1#1", Some(&key(7))).remove(0);
    assert_eq!(opened.answer, Bank::release("approve").value);
    // Bo signs what Ann has signed.
    let both = opened.envelope.unwrap().signed_by(&bank.bo).unwrap();
    assert_eq!(bank.runtime.answer(&bank.graph, &bank.run, &both).await.unwrap(), Answered::Accepted);
    assert_eq!(bank.answer("approve", &bank.bo).await.unwrap(), Answered::Already { taken: false });
    assert!(matches!(bank.answer("refuse", &bank.bo).await, Err(AnswerError::Answered { .. })));

    let named = format!("{:?} {:?}", Bank::release("approve"), Bank::paid());
    assert!(SECRETS.iter().all(|secret| !named.contains(secret)), "{named}");

    // A signal is received once, as one without secrets.
    let send = |cents: u64| {
        let signal = NamedSignal::new("paid", json!({"card": SECRETS[1], "cents": cents}));
        bank.runtime.signal(&bank.graph, &bank.run, signal, "p-1")
    };
    assert!(matches!(send(5).await.unwrap(), Received::Accepted(_)));
    assert!(matches!(send(5).await.unwrap(), Received::Already { taken: false, .. }));
    let other = send(6).await.unwrap_err();
    assert!(matches!(other, SignalError::Stored(StoredRunError::Store(StoreError::OtherSignal { .. }))), "{other}");
    let stored = bank.stored().await;
    assert!(SECRETS.iter().all(|secret| !stored.contains(secret)), "{stored}");

    assert_eq!(bank.resumed().await.unwrap(), json!({"pin": SECRETS[0], "card": SECRETS[1]}));
    assert_eq!(*bank.seen.lock().unwrap(), [json!({"pin": SECRETS[0]})]);
    assert!(matches!(bank.runtime.answer(&bank.graph, &bank.run, &both).await, Ok(Answered::Already { taken: true })));
    let stored = bank.stored().await;
    assert!(SECRETS.iter().all(|secret| !stored.contains(secret)), "{stored}");
    let history = bank.runtime.history(&bank.run).await.unwrap();
    assert!(SECRETS.iter().all(|secret| !format!("{history:?}").contains(secret)), "{history:?}");

    // With the key, all is proven; without it, all but what it hides.
    let open = bank.audited(Some(&key(7))).await.unwrap();
    assert!(open.is_recomputed && open.approvals[0].is_verified);
    let closed = bank.audited(None).await.unwrap();
    assert!(!closed.is_recomputed && !closed.approvals[0].is_verified);
    for proven in [&open, &closed] {
        assert_eq!(proven.status, Status::Completed);
        let owners: Vec<&str> = proven.approvals[0].by.iter().map(|by| by.owner.as_str()).collect();
        assert_eq!((owners.len(), proven.approvals[0].statement), (2, None));
        assert_eq!(proven.approvals[0].envelope, open.approvals[0].envelope);
        assert_eq!(proven.signals, open.signals);
    }
    let error = bank.audited(Some(&key(8))).await.unwrap_err();
    assert!(error.to_string().contains("key"), "{error}");
    for (with, says) in [(Some(key(7)), false), (None, true)] {
        let graph = Arc::new(bank.graph.clone());
        let signer = SecretKey::from_seed(&KEY);
        let text = attest(graph, &bank.run, &bank.store, &signer.public(), with.as_ref(), &signer).await.unwrap();
        let said = Attestation::verify(&text, &signer.public()).unwrap().statement;
        assert_eq!(said.contains(r#""notVerified":"sealed""#), says, "{said}");
        assert!(SECRETS.iter().all(|secret| !said.contains(secret)), "{said}");
    }
}

/// Signals and answers of a sender without the key of the run are refused, and change nothing.
#[tokio::test]
async fn nothing_is_received_that_the_run_could_not_decrypt() {
    let bank = Bank::new().await;
    let question = bank.runtime.questions(&bank.graph, &bank.run).await.unwrap().remove(0);
    let envelope = question.sign(Bank::release("approve"), &bank.ann).unwrap();
    for (with, what) in [(None, "no key to encrypt them with"), (Some(key(8)), "this runtime's is")] {
        let other = secretive(bank.store.clone(), &bank.people, with);
        let error = other.answer(&bank.graph, &bank.run, &envelope).await.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        let error = other.signal(&bank.graph, &bank.run, Bank::paid(), "p-1").await.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        // A signal without secrets needs no key.
        let plain = NamedSignal::new("plain", json!(1));
        assert!(other.signal(&bank.graph, &bank.run, plain, "x").await.is_ok());
    }
    assert_eq!(bank.store.inbox(&bank.run).await.unwrap().signals.len(), 1);
    let keyless = secretive(MemoryStore::new(), &bank.people, None);
    let error = keyless.start_as(id("other"), bank.graph.clone(), Map::new()).await.unwrap_err().to_string();
    assert!(error.contains("no key to encrypt them with"), "{error}");
}

/// Somebody who can write to the store changes what was received; the run waits on.
#[tokio::test]
async fn a_changed_payload_is_left_out() {
    let bank = Bank::new().await;
    for by in [&bank.ann, &bank.bo] {
        bank.answer("approve", by).await.unwrap();
    }
    bank.runtime.signal(&bank.graph, &bank.run, Bank::paid(), "p-1").await.unwrap();
    let received = bank.store.inbox(&bank.run).await.unwrap().signals;
    let answer = received.iter().find(|one| one.name == "1#1").unwrap();
    let signal = received.iter().find(|one| one.name == "paid").unwrap();
    let (sealed, of_signal): (Value, Value) = (answer.payload.parse().unwrap(), signal.payload.parse().unwrap());
    let plain = json!({"card": SECRETS[1], "cents": 5});
    let mut other = of_signal.clone();
    other["value"]["cents"] = json!(6);
    let mut moved = of_signal.clone();
    moved["sealed"] = sealed["sealed"].clone();
    for (name, what, receipt, payload) in [
        ("paid", "plain", &signal.receipt, plain.to_string()),
        ("paid", "shown", &signal.receipt, other.to_string()),
        ("paid", "moved", &signal.receipt, moved.to_string()),
        ("paid", "foreign", &answer.receipt, of_signal.to_string()),
        ("plain", "renamed", &signal.receipt, of_signal.to_string()),
    ] {
        let (fresh, receipt) = (Bank::new().await, receipt.clone());
        for by in [&fresh.ann, &fresh.bo] {
            fresh.answer("approve", by).await.unwrap();
        }
        let forged = Signal::new(name, what, payload);
        fresh.store.receive(&fresh.run, forged, Arc::new(move |_| Ok(receipt.clone()))).await.unwrap();
        let left = fresh.resumed().await.unwrap_err();
        assert_eq!(waits(left)[0].0, "money", "{what}");
        fresh.runtime.signal(&fresh.graph, &fresh.run, Bank::paid(), "p-1").await.unwrap();
        fresh.resumed().await.unwrap();
        fresh.audited(Some(&key(7))).await.unwrap();
    }
}

/// The holder of the journal's key cannot say that something else was received, or show it otherwise.
#[tokio::test]
async fn forged_records_of_encrypted_answers_are_refused() {
    let bank = Bank::new().await;
    for by in [&bank.ann, &bank.bo] {
        bank.answer("approve", by).await.unwrap();
    }
    bank.runtime.signal(&bank.graph, &bank.run, Bank::paid(), "p-1").await.unwrap();
    bank.resumed().await.unwrap();
    let (honest, signer) = (records(&bank.store, &bank.run).await, SecretKey::from_seed(&KEY));
    let takes: Vec<Value> = (honest.iter().filter(|one| one.body.contains(r#""kind":"take""#)))
        .map(|one| serde_json::from_str::<Value>(&one.body).unwrap()["taken"][0]["signal"].clone())
        .collect();
    let [answer, signal] = takes.as_slice() else { unreachable!("{takes:?}") };
    assert_eq!(answer["value"]["answer"], json!({"decision": "approve", "pin": "[secret]"}));
    assert_eq!(signal["value"], json!({"card": "[secret]", "cents": 5}));
    let start = honest[0].link().to_hex();
    let with = |one: &Value, change: &dyn Fn(&mut Value)| {
        let mut changed = one.clone();
        change(&mut changed);
        // The receipt is one of the journal's own key, so that only the rest is wrong.
        changed["receipt"] = json!(crate::answers::receipt(&signer, &bank.run, &start, &changed));
        let (from, into) = (one.to_string(), changed.to_string());
        assert!(honest.iter().any(|record| record.body.contains(&from)));
        signed_again(&honest, &move |body| body.replacen(&from, &into, 1))
    };
    let seven = key(7);
    let verdict = |journal: &[_], with: Option<&EncryptionKey>| {
        audit(&bank.graph, &bank.run, journal, &signer.public(), with).err()
    };
    assert!(verdict(&with(answer, &|_| ()), None).is_none(), "signed again, it is the same");
    assert!(verdict(&with(signal, &|_| ()), Some(&seven)).is_none(), "signed again, it is the same");
    type Change<'a> = (&'a Value, &'a dyn Fn(&mut Value), bool);
    let changes: [Change<'_>; 10] = [
        // Whether the change is found without the key of the secrets, too.
        (answer, &|one| one["value"]["answer"]["decision"] = json!("refuse"), false),
        (answer, &|one| one["value"]["answer"]["pin"] = json!("0000"), true),
        (answer, &|one| one["value"]["by"].as_array_mut().unwrap().truncate(1), true),
        (answer, &|one| one["value"]["by"][0]["owner"] = json!("Cy"), false),
        (answer, &|one| one["value"]["envelope"] = json!(start), false),
        (answer, &|one| one["sealed"] = signal["sealed"].clone(), false),
        (answer, &|one| drop(one.as_object_mut().unwrap().remove("sealed")), true),
        (signal, &|one| drop(one.as_object_mut().unwrap().remove("sealed")), true),
        (signal, &|one| one["value"]["card"] = json!(SECRETS[1]), true),
        (signal, &|one| one["value"]["cents"] = json!(6), false),
    ];
    for (number, (one, change, is_seen)) in changes.into_iter().enumerate() {
        let forged = with(one, change);
        let (open, closed) = (verdict(&forged, Some(&seven)), verdict(&forged, None));
        assert!(open.is_some(), "change {number} with the key");
        assert!(closed.is_some() || !is_seen, "change {number} without the key");
    }
}

/// A run continues from a snapshot, from any prefix of its journal, and as a fork, with the answers that it has taken.
#[tokio::test]
async fn encrypted_answers_are_found_again() {
    for durable in [graph_runtime::Durability::Sync, graph_runtime::Durability::Exit] {
        let bank = Bank::new().await;
        for by in [&bank.ann, &bank.bo] {
            bank.answer("approve", by).await.unwrap();
        }
        let options = Options { durability: durable, ..Options::default() };
        let left = bank.runtime.resume_with(options, bank.graph.clone(), &bank.run).await.unwrap().await.unwrap_err();
        assert_eq!(waits(left)[0].0, "money");
        for step in 0..3 {
            let fork = Fork { run: Some(id(&format!("fork-{step}"))), step: Some(step), ..Fork::default() };
            let fork = bank.runtime.fork(&bank.graph, &bank.run, fork).await.unwrap();
            let (graph, signer, encryption) = (bank.graph.clone(), SecretKey::from_seed(&KEY).public(), key(7));
            let proven = audit_tree(Arc::new(graph), &fork, &bank.store, &signer, Some(&encryption)).await;
            assert!(proven.unwrap()[0].is_origin_proven);
            let left = bank.runtime.resume(bank.graph.clone(), &fork).await.unwrap().await.unwrap_err();
            assert_eq!(waits(left)[0].0, if step == 0 { "release" } else { "money" }, "{step}");
        }
        bank.runtime.signal(&bank.graph, &bank.run, Bank::paid(), "p-1").await.unwrap();
        // Another process, which has seen nothing of it.
        let later = secretive(bank.store.clone(), &bank.people, Some(key(7)));
        let finished = later.resume(bank.graph.clone(), &bank.run).await.unwrap().await.unwrap();
        assert_eq!(finished.status, Status::Completed);
        bank.audited(Some(&key(7))).await.unwrap();
        bank.audited(None).await.unwrap();
    }
}

/// A tool that asks for a secret receives it when it is called again, and it is cut out of all that the tool returns.
#[tokio::test]
async fn a_tool_receives_a_secret_answer() {
    let program = Program {
        keys: &[Key { name: "log", initial: None }],
        settings: r#"{"secrets":{"answers":{"pay":{"fields":{"pin":"all"}}}}}"#,
        nodes: &[
            (
                "pay",
                r#"{"line":1,"does":{"action":0},"params":{},"wait":{"ask":{"count":1}},"assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |call, _| match call.answers() {
        [] => Err(ActionError::interrupt(json!("the PIN"))),
        [answer] => {
            assert!(!format!("{answer:?}").contains(SECRETS[0]));
            Ok(json!(format!("paid with {}", answer.answer["pin"].as_str().unwrap())))
        }
        _ => unreachable!(),
    });
    // The process that continues the run dies at one of its writes, such as behind the record that takes the answer.
    for writes in 0..4 {
        let ((store, _), people, run) = (store(), People::default(), id("tool"));
        let ann = people.add(11, "Ann", &[]);
        let runtime = secretive(store.clone(), &people, Some(key(7)));
        waits(runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err());
        let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
        let answer = NamedAnswer::new("pay", json!({"decision": "approve", "pin": SECRETS[0]}));
        let envelope = question.sign(answer, &ann).unwrap();
        assert_eq!(runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
        let failing = secretive(failing(&store, writes, false), &people, Some(key(7)));
        if let Ok(run) = failing.resume(graph.clone(), &run).await {
            drop(run.await);
        }
        let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output, json!("paid with [secret]"), "{writes}");
        let signed = records(&store, &run).await;
        let journal: String = signed.iter().map(|record| record.body.as_str()).collect();
        assert!(!journal.contains(SECRETS[0]), "{journal}");
        audit(&graph, &run, &signed, &SecretKey::from_seed(&KEY).public(), Some(&key(7))).unwrap();
    }
}

/// The run that asks has secrets, and the one around it has none.
#[tokio::test]
async fn a_nested_run_receives_secrets_through_the_run_around_it() {
    let outer = Program {
        keys: &[Key { name: "got", initial: None }],
        tools: &[GRAPH],
        permissions: &["rye.execute.tool.test.tool"],
        nodes: &[
            ("call", r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":2,"does":"return","output":"over"}"#),
        ],
        ..PROGRAM
    };
    let seen = Seen::default();
    let inner = Interpreted::new(&Program { id: "test/transfer", ..TRANSFER }, {
        let seen = Arc::clone(&seen);
        move |_, params| {
            seen.lock().unwrap().push(params);
            Ok(json!("used"))
        }
    });
    let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(inner);
    let ((store, _), people, run) = (store(), People::default(), id("outer"));
    let [ann, bo] = [(11, "Ann"), (12, "Bo")].map(|(seed, owner)| people.add(seed, owner, &[]));
    let runtime = secretive(store.clone(), &people, Some(key(7)));
    waits(runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err());
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    assert_eq!(question.wait, "1/1#1");
    let envelope = question.sign(Bank::release("approve"), &ann).unwrap().signed_by(&bo).unwrap();
    let paid = || NamedSignal::new("1/paid", json!({"card": SECRETS[1], "cents": 5}));
    for (with, what) in [(None, "no key to encrypt them with"), (Some(key(8)), "this runtime's is")] {
        let other = secretive(store.clone(), &people, with);
        let error = other.answer(&graph, &run, &envelope).await.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        let error = other.signal(&graph, &run, paid(), "p-1").await.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    assert!(store.inbox(&run).await.unwrap().signals.is_empty());
    assert_eq!(runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
    runtime.signal(&graph, &run, paid(), "p-1").await.unwrap();
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!((finished.output, seen.lock().unwrap().len()), (json!("over"), 1));
    let mut stored = String::new();
    for run in store.list().await.unwrap() {
        stored.extend(records(&store, &run.run).await.into_iter().map(|record| record.body));
    }
    assert!(SECRETS.iter().all(|secret| !stored.contains(secret)), "{stored}");
    let signer = SecretKey::from_seed(&KEY).public();
    for (with, is_verified) in [(Some(key(7)), true), (None, false)] {
        let proven = audit_tree(Arc::new(graph.clone()), &run, &store, &signer, with.as_ref()).await.unwrap();
        let approvals: Vec<bool> = proven.iter().flat_map(|one| &one.approvals).map(|one| one.is_verified).collect();
        assert_eq!(approvals, [is_verified]);
    }
}

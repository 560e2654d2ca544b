//! Answers of people to interrupts: signed, verified, taken once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::answer::{ANSWER_TYPE, AnswerKeys, Answered, Envelope, KeyHolder, Question, SignedAnswer};
use graph_runtime::history::replay;
use graph_runtime::store::{Signal, SignalPlace, StoreError};
use graph_runtime::{
    AnswerError, Attestation, Digest, Fingerprint, ManualClock, Map, MemoryStore, NamedAnswer, NamedSignal, RunError,
    RunId, RunOutcome, Runtime, SecretKey, SignalError, Status, Store, StoredRunError, Value, WorkerOptions, attest,
    audit,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::signals::signed_again;
use crate::support::{KEY, encryption_key, id, kinds};
use crate::waits::{assert_proven, records, store, until, virtual_store, waits};

/// A refund that two people of the role `refunds` approve or refuse within three days.
const REFUND: Program<'static> = Program {
    keys: &[Key { name: "log", initial: Some("[]") }],
    settings: r#"{"channels":{"log":"append"}}"#,
    nodes: &[
        (
            "price",
            r#"{"line":1,"does":{"action":0},"params":4200,"assign":{"log":"${result}"},"next":[{"to":"approve"}]}"#,
        ),
        (
            "approve",
            r#"{"line":2,"does":"interrupt","wait":{"ask":{"payload":{"seen":"${state.log}"},"role":"refunds","count":1},"timeout_ms":259200000,"on_timeout":4},"assign":{"log":"${result.decision}"},"next":{"by":"result.decision","to":{"approve":"pay","refuse":"done"}}}"#,
        ),
        (
            "pay",
            r#"{"line":3,"does":{"action":0},"params":"paid","assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":4,"does":"return","output":"${state.log}"}"#),
        ("late", r#"{"line":5,"does":"gate","assign":{"log":"late"},"next":[{"to":"done"}]}"#),
    ],
    ..PROGRAM
};

fn refund() -> Interpreted {
    Interpreted::new(&REFUND, |_, params| Ok(params))
}

/// The same with two people.
fn by_two() -> Interpreted {
    let nodes: Vec<(&str, String)> =
        REFUND.nodes.iter().map(|(name, body)| (*name, body.replace(r#""count":1"#, r#""count":2"#))).collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let digest = "5555555555555555555555555555555555555555555555555555555555555555";
    Interpreted::new(&Program { nodes: &nodes, digest, ..REFUND }, |_, params| Ok(params))
}

/// The owner of a key, and the roles of the key.
type Person = (KeyHolder, Vec<&'static str>);

/// People with their keys, as a runtime knows them.
#[derive(Clone, Default)]
pub(crate) struct People(Arc<Mutex<BTreeMap<Fingerprint, Person>>>);

impl People {
    pub(crate) fn add(&self, seed: u8, owner: &str, roles: &[&'static str]) -> SecretKey {
        let key = SecretKey::from_seed(&[seed; 32]);
        let holder = KeyHolder::new(key.public(), owner);
        self.0.lock().unwrap().insert(key.public().fingerprint(), (holder, roles.to_vec()));
        key
    }

    fn revoke(&self, key: &SecretKey) {
        self.0.lock().unwrap().remove(&key.public().fingerprint());
    }
}

impl AnswerKeys for People {
    fn holder(&self, key: &Fingerprint, role: Option<&str>) -> Result<KeyHolder, String> {
        match self.0.lock().unwrap().get(key) {
            Some((holder, roles)) if role.is_none_or(|role| roles.contains(&role)) => Ok(holder.clone()),
            Some(_) => Err("its file gives it no such role".to_owned()),
            None => Err("the key is not trusted".to_owned()),
        }
    }
}

/// A runtime, and people: Ann and Bo refund, Cy does not.
pub(crate) struct Office {
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) runtime: Runtime,
    people: People,
    pub(crate) ann: SecretKey,
    pub(crate) bo: SecretKey,
    pub(crate) cy: SecretKey,
}

impl Office {
    pub(crate) fn new() -> Self {
        let ((store, clock), people) = (store(), People::default());
        let [ann, bo] = [(11, "Ann"), (12, "Bo")].map(|(seed, owner)| people.add(seed, owner, &["refunds"]));
        let cy = people.add(13, "Cy", &["shipping"]);
        let runtime = answering(store.clone(), &people);
        Self { store, clock, runtime, people, ann, bo, cy }
    }

    async fn waiting(&self, graph: &Interpreted, run: &RunId) -> Question {
        let started = self.runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        assert_eq!(waits(started.await.unwrap_err())[0].0, "approve");
        self.question(graph, run).await
    }

    pub(crate) async fn question(&self, graph: &Interpreted, run: &RunId) -> Question {
        let mut questions = self.runtime.questions(graph, run).await.unwrap();
        assert_eq!(questions.len(), 1);
        questions.remove(0)
    }

    pub(crate) async fn finish(&self, graph: &Interpreted, run: &RunId) -> Value {
        let finished = self.runtime.resume(graph.clone(), run).await.unwrap().await.unwrap();
        assert_proven(&self.store, graph, run, Status::Completed).await;
        finished.output
    }
}

pub(crate) fn answering(store: impl Store, people: &People) -> Runtime {
    let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    let people = people.clone();
    builder.answer_keys(move || people.clone()).encrypt_with(encryption_key()).build().unwrap()
}

fn approve(decision: &str) -> NamedAnswer {
    NamedAnswer::new("approve", json!({ "decision": decision }))
}

#[tokio::test]
async fn an_answer_ends_an_interrupt() {
    let (office, graph, run) = (Office::new(), refund(), id("refund-1"));
    let question = office.waiting(&graph, &run).await;
    assert_eq!((question.wait.as_str(), question.node.as_str(), question.count), ("2#1", "approve", 1));
    assert_eq!((&question.payload, question.role.as_deref()), (&json!({"seen": [4200]}), Some("refunds")));
    match office.runtime.outcome(&graph, &run).await.unwrap() {
        RunOutcome::Waiting { waits, .. } => assert_eq!(waits[0].signals, ["2#1"]),
        other => panic!("{other:?}"),
    }
    let envelope = question.sign(approve("approve"), &office.ann).unwrap();
    // An envelope is a text on its way.
    let envelope: Envelope = envelope.to_string().parse().unwrap();
    let send = || office.runtime.answer(&graph, &run, &envelope);
    assert_eq!(send().await.unwrap(), Answered::Accepted);
    assert_eq!(send().await.unwrap(), Answered::Already { taken: false });
    let other = question.sign(approve("refuse"), &office.bo).unwrap();
    let error = office.runtime.answer(&graph, &run, &other).await.unwrap_err();
    assert_eq!(error.to_string(), "`2#1` was answered before, and otherwise");
    // An accepted answer counts although the time is over when the run continues.
    office.clock.advance(Duration::from_secs(30 * 86_400));
    assert_eq!(office.finish(&graph, &run).await, json!([4200, "approve", "paid"]));
    assert_eq!(
        kinds(&records(&office.store, &run).await),
        ["start", "step", "step", "resume", "take", "step", "step", "step", "end"]
    );
    assert_eq!(send().await.unwrap(), Answered::Already { taken: true });
    let error = office.runtime.answer(&graph, &run, &other).await.unwrap_err();
    assert_eq!(error.to_string(), "`2#1` was answered before, and otherwise");
}

#[tokio::test]
async fn a_question_that_nobody_answers_is_over_in_time() {
    let (office, graph, run) = (Office::new(), refund(), id("late"));
    let question = office.waiting(&graph, &run).await;
    office.clock.advance(Duration::from_secs(3 * 86_400));
    let envelope = question.sign(approve("approve"), &office.ann).unwrap();
    let error = office.runtime.answer(&graph, &run, &envelope).await.unwrap_err();
    assert_eq!(error.to_string(), "the answer to `2#1` came too late: the run waited until 1972-09-30T00:00:00.000Z");
    assert!(office.store.inbox(&run).await.unwrap().signals.is_empty());
    assert_eq!(office.finish(&graph, &run).await, json!([4200, "late"]));
    let error = office.runtime.answer(&graph, &run, &envelope).await.unwrap_err();
    assert_eq!(error.to_string(), "run `late` does not wait for an answer to `2#1`: it asks nothing");
}

#[tokio::test]
async fn two_people_sign_one_answer() {
    let (office, graph) = (Office::new(), by_two());
    for (name, joint) in [("apart", false), ("together", true)] {
        let run = id(name);
        let question = office.waiting(&graph, &run).await;
        let [ann, bo] = [&office.ann, &office.bo].map(|key| question.sign(approve("approve"), key).unwrap());
        if joint {
            let both = ann.clone().signed_by(&office.bo).unwrap();
            assert_eq!(office.runtime.answer(&graph, &run, &both).await.unwrap(), Answered::Accepted);
        } else {
            // Another answer of one of them is another proposal.
            let refused = question.sign(approve("refuse"), &office.bo).unwrap();
            let proposed = Answered::Proposed { have: 1, need: 2 };
            for envelope in [&ann, &ann, &refused] {
                assert_eq!(office.runtime.answer(&graph, &run, envelope).await.unwrap(), proposed);
            }
            let still = office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
            assert!(matches!(still, RunError::Waiting { .. }), "{still}");
            assert_eq!(office.runtime.answer(&graph, &run, &bo).await.unwrap(), Answered::Accepted);
        }
        assert_eq!(office.runtime.answer(&graph, &run, &bo).await.unwrap(), Answered::Already { taken: false });
        assert_eq!(office.finish(&graph, &run).await, json!([4200, "approve", "paid"]));
        assert_eq!(office.runtime.answer(&graph, &run, &ann).await.unwrap(), Answered::Already { taken: true });
    }
}

/// Two people approve, and one refuses.
#[tokio::test]
async fn as_many_people_sign_as_the_word_of_an_answer_needs() {
    let words = r#""count":2,"by_word":{"field":"decision","words":{"approve":2,"refuse":1}}"#;
    let nodes: Vec<(&str, String)> =
        REFUND.nodes.iter().map(|(name, body)| (*name, body.replace(r#""count":1"#, words))).collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let graph = Interpreted::new(&Program { nodes: &nodes, ..REFUND }, |_, params| Ok(params));
    let office = Office::new();
    for (name, refuses) in [("approved", false), ("refused", true)] {
        let run = id(name);
        let question = office.waiting(&graph, &run).await;
        assert_eq!(question.count, 2);
        let sign = |word: &str, key| question.sign(approve(word), key).unwrap();
        let counts = ["approve", "refuse", "other"].map(|word| question.count_of(&graph, &approve(word).value));
        assert_eq!(counts, [2, 1, 2]);
        let proposed = Answered::Proposed { have: 1, need: 2 };
        let (ann, bo) = (sign("approve", &office.ann), sign("approve", &office.bo));
        assert_eq!(office.runtime.answer(&graph, &run, &ann).await.unwrap(), proposed);
        let last = if refuses { sign("refuse", &office.bo) } else { bo };
        assert_eq!(office.runtime.answer(&graph, &run, &last).await.unwrap(), Answered::Accepted);
        office.finish(&graph, &run).await;
        let (signed, key) = (records(&office.store, &run).await, SecretKey::from_seed(&KEY).public());
        let proven = audit(&graph, &run, &signed, &key, None).unwrap();
        assert_eq!(proven.approvals[0].by.len(), if refuses { 1 } else { 2 });
        // The holder of the key cannot say that one person approved it.
        let take = signed.iter().find(|record| record.body.contains(r#""kind":"take""#)).unwrap();
        let take = serde_json::from_str::<Value>(&take.body).unwrap()["taken"][0].clone();
        let mut one = take.clone();
        one["signal"]["value"]["by"].as_array_mut().unwrap().truncate(1);
        one["signal"]["value"]["envelope"]["signatures"].as_array_mut().unwrap().truncate(1);
        let start = signed[0].link().to_hex();
        one["signal"]["receipt"] = json!(receipt(&SecretKey::from_seed(&KEY), &run, &start, &one["signal"]));
        let (from, into) = (take.to_string(), one.to_string());
        let journal = signed_again(&signed, &|body| body.replacen(&from, &into, 1));
        let found = audit(&graph, &run, &journal, &key, None);
        assert_eq!(found.is_ok(), refuses, "{found:?}");
        assert!(refuses || found.unwrap_err().to_string().contains("1 signed it, and 2 must"));
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_before_enough_have_signed_does_not_count() {
    let (office, graph, run) = (Office::new(), by_two(), id("revoked"));
    let question = office.waiting(&graph, &run).await;
    let ann = question.sign(approve("approve"), &office.ann).unwrap();
    office.runtime.answer(&graph, &run, &ann).await.unwrap();
    office.people.revoke(&office.ann);
    let bo = question.sign(approve("approve"), &office.bo).unwrap();
    let proposed = Answered::Proposed { have: 1, need: 2 };
    assert_eq!(office.runtime.answer(&graph, &run, &bo).await.unwrap(), proposed);
    let di = office.people.add(14, "Di", &["refunds"]);
    let di = question.sign(approve("approve"), &di).unwrap();
    assert_eq!(office.runtime.answer(&graph, &run, &di).await.unwrap(), Answered::Accepted);
    // A key that is revoked after the answer was accepted has answered.
    office.people.revoke(&office.bo);
    assert_eq!(office.finish(&graph, &run).await, json!([4200, "approve", "paid"]));
}

#[tokio::test(start_paused = true)]
async fn a_worker_continues_a_run_when_it_is_answered() {
    let ((store, clock), people, graph, run) = (virtual_store(), People::default(), refund(), id("worked"));
    let ann = people.add(11, "Ann", &["refunds"]);
    let runtime = answering(store.clone(), &people);
    let worker = crate::waits::clocked(&store, &clock).worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    runtime.answer(&graph, &run, &question.sign(approve("refuse"), &ann).unwrap()).await.unwrap();
    until(&store, &run, Status::Completed).await;
    assert_eq!(worker.status().claimed, 1);
}

/// Changes the statement of an envelope, and signs it again with these keys.
fn restated(envelope: &Envelope, change: impl Fn(&mut Value), keys: &[&SecretKey]) -> Envelope {
    let mut statement: Value = serde_json::from_slice(&envelope.payload().unwrap()).unwrap();
    change(&mut statement);
    signed(ANSWER_TYPE, &canonical(&statement), keys)
}

fn signed(kind: &str, text: &str, keys: &[&SecretKey]) -> Envelope {
    let unsigned = Envelope::new(kind, text.as_bytes());
    keys.iter().fold(unsigned, |envelope, key| envelope.signed_by(key).unwrap())
}

/// The canonical form of values whose keys and texts are ASCII: sorted, without spaces.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            let fields: Vec<String> =
                sorted.into_iter().map(|(key, value)| format!("{}:{}", json!(key), canonical(value))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// Changes an envelope as JSON.
fn changed(envelope: &Envelope, change: impl FnOnce(&mut Value)) -> Result<Envelope, String> {
    let mut json: Value = serde_json::from_str(&envelope.to_string()).unwrap();
    change(&mut json);
    json.to_string().parse().map_err(|error: graph_runtime::answer::EnvelopeError| error.to_string())
}

/// Everything else than a fresh answer of somebody with the role is refused, and nothing changes.
#[tokio::test]
async fn attacks_on_answers_are_refused_and_change_nothing() {
    let (office, graph, run, other) = (Office::new(), refund(), id("order"), id("other"));
    let question = office.waiting(&graph, &run).await;
    office.clock.advance(Duration::from_secs(1));
    let foreign = office.waiting(&graph, &other).await;
    // The same run again, which was removed and started again.
    let again = {
        let (memory, clock) = store();
        clock.advance(Duration::from_secs(9));
        let runtime = answering(memory, &office.people);
        let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        waits(started.await.unwrap_err());
        runtime.questions(&graph, &run).await.unwrap().remove(0)
    };
    let Office { ann, bo, cy, .. } = &office;
    let stranger = SecretKey::from_seed(&[99; 32]);
    let revoked = office.people.add(15, "Eve", &["refunds"]);
    office.people.revoke(&revoked);
    let twin = office.people.add(16, "Ann", &["refunds"]);
    let [nobody, unknown] = [(17, "unknown"), (18, " ")].map(|(seed, who)| office.people.add(seed, who, &["refunds"]));
    let good = question.sign(approve("approve"), ann).unwrap();
    let text: String = String::from_utf8(good.payload().unwrap()).unwrap();
    assert_eq!(canonical(&serde_json::from_str(&text).unwrap()), text, "this test knows the canonical form");
    let set = |field: &'static str, value: Value| restated(&good, move |said| said[field] = value.clone(), &[ann]);
    let many = |keyid: &dyn Fn(usize) -> Option<String>, count: usize| {
        let sig = good.signatures()[0].sig.clone();
        changed(&good, |json| {
            json["signatures"] = (0..count).map(|n| json!({"keyid": keyid(n), "sig": sig})).collect();
        })
        .unwrap()
    };
    let both = |one: &SecretKey, other: &SecretKey| signed(ANSWER_TYPE, &text, &[one, other]);
    let sig = |envelope: &Envelope| envelope.signatures()[0].sig.clone();
    let resigned = |keyid: Option<String>, sig: String| {
        changed(&good, move |json| json["signatures"] = json!([{ "keyid": keyid, "sig": sig }])).unwrap()
    };
    let fingerprint = |key: &SecretKey| Some(key.public().fingerprint().to_string());
    let deep = (0..60).fold(json!("x"), |inner, _| json!([inner]));
    let attacks: Vec<(&str, Envelope)> = vec![
        ("the answer of another run", foreign.sign(approve("approve"), ann).unwrap()),
        ("the answer of the run of this name before", again.sign(approve("approve"), ann).unwrap()),
        ("another run", set("run", json!("other"))),
        ("another start", set("start", json!("0".repeat(64)))),
        ("another visit", set("wait", json!("1#1"))),
        ("a later wait of the visit", set("wait", json!("2#2"))),
        ("a wait with another spelling", set("wait", json!("02#1"))),
        ("no wait", set("wait", json!(""))),
        ("the name of proposals", set("wait", json!("2#1?"))),
        ("another node", set("node", json!("pay"))),
        ("another graph", set("graph", json!("shop/other"))),
        ("another version of the graph", set("digest", json!("1".repeat(64)))),
        ("another payload", set("payload", json!("2".repeat(64)))),
        ("another version of answers", set("v", json!(2))),
        ("one more field", restated(&good, |said| said["extra"] = json!(1), &[ann])),
        (
            "one field less",
            restated(
                &good,
                |said| {
                    said.as_object_mut().unwrap().shift_remove("payload");
                },
                &[ann],
            ),
        ),
        ("an answer that does not fit", set("answer", json!({"decision": "burn"}))),
        ("no answer", set("answer", json!(null))),
        ("a text for an answer", set("answer", json!("approve"))),
        ("a deep answer", set("answer", json!({"decision": "approve", "deep": deep}))),
        ("spaces", signed(ANSWER_TYPE, &text.replacen(':', ": ", 1), &[ann])),
        ("a line feed behind", signed(ANSWER_TYPE, &format!("{text}\n"), &[ann])),
        ("a doubled field", signed(ANSWER_TYPE, &text.replacen('{', r#"{"answer":{"decision":"refuse"},"#, 1), &[ann])),
        ("escapes", signed(ANSWER_TYPE, &text.replacen("approve", "\\u0061pprove", 1), &[ann])),
        ("something else than JSON", signed(ANSWER_TYPE, "yes", &[ann])),
        ("a long statement", set("answer", json!({"decision": "approve", "note": "x".repeat(300_000)}))),
        ("an attestation", signed("application/vnd.in-toto+json", &text, &[ann])),
        ("no type", signed("", &text, &[ann])),
        ("no signature", good.clone().with(Vec::new())),
        ("the signature of a stranger", signed(ANSWER_TYPE, &text, &[&stranger])),
        ("the signature of somebody without the role", signed(ANSWER_TYPE, &text, &[cy])),
        ("the signature of a revoked key", signed(ANSWER_TYPE, &text, &[&revoked])),
        ("one good and one of a stranger", both(ann, &stranger)),
        ("one good and one without the role", both(ann, cy)),
        ("one good and one revoked", both(&revoked, ann)),
        ("the signature of another statement", resigned(fingerprint(ann), sig(&set("v", json!(2))))),
        ("the name of another key", resigned(fingerprint(bo), sig(&good))),
        ("a stranger under a trusted name", resigned(fingerprint(ann), sig(&signed(ANSWER_TYPE, &text, &[&stranger])))),
        ("no name of a key", resigned(None, sig(&good))),
        ("a name that is no key's", resigned(Some("ann".to_owned()), sig(&good))),
        ("half a signature", resigned(fingerprint(ann), sig(&good)[..40].to_owned())),
        ("an empty signature", resigned(fingerprint(ann), String::new())),
        (
            "one key twice",
            changed(&good, |json| {
                let again = json["signatures"][0].clone();
                json["signatures"].as_array_mut().unwrap().push(again);
            })
            .unwrap(),
        ),
        ("ten thousand signatures", many(&|n| Some(format!("{n:016x}")), 10_000)),
        ("ten thousand times one signature", many(&|_| fingerprint(ann), 10_000)),
        ("one owner with two keys", both(ann, &twin)),
        ("two owners that are not known", both(&nobody, &unknown)),
        (
            "an altered payload",
            changed(&good, |json| {
                let refused = text.replace("approve\"}", "refuse\"}");
                json["payload"] = serde_json::from_str::<Value>(&Envelope::new("", refused.as_bytes()).to_string())
                    .unwrap()["payload"]
                    .clone();
            })
            .unwrap(),
        ),
    ];
    assert!(attacks.len() >= 40, "{}", attacks.len());
    let before = records(&office.store, &run).await;
    for (what, envelope) in &attacks {
        let refused = office.runtime.answer(&graph, &run, envelope).await;
        let error = refused.expect_err(what);
        println!("{what}: {error}");
        assert!(office.store.inbox(&run).await.unwrap().signals.is_empty(), "{what}");
        assert_eq!(records(&office.store, &run).await, before, "{what}");
    }
    for broken in ["", "{}", "[]", r#"{"payload":1,"payloadType":"","signatures":[]}"#, "null"] {
        assert!(broken.parse::<Envelope>().is_err(), "{broken}");
    }
    let garbled = changed(&good, |json| json["payload"] = json!("*")).unwrap();
    assert!(office.runtime.answer(&graph, &run, &garbled).await.is_err());
    // A runtime without keys, and one whose clock is wrong: the time of the store counts.
    let blind = crate::support::runtime(office.store.clone());
    assert!(matches!(blind.answer(&graph, &run, &good).await, Err(AnswerError::NoKeys)));
    let error = office.runtime.answer(&by_two(), &run, &good).await.unwrap_err();
    assert!(error.to_string().contains("not of `"), "another version of the graph: {error}");
    // The good one is still accepted.
    assert_eq!(office.runtime.answer(&graph, &run, &good).await.unwrap(), Answered::Accepted);
    assert_eq!(office.finish(&graph, &run).await, json!([4200, "approve", "paid"]));
}

/// Somebody who can write to the store cannot answer, and cannot time an answer otherwise.
#[tokio::test]
async fn an_answer_that_no_runtime_received_is_left_out() {
    let (office, graph, run, other) = (Office::new(), refund(), id("order"), id("other"));
    let question = office.waiting(&graph, &run).await;
    let foreign = office.waiting(&graph, &other).await;
    let honest = foreign.sign(approve("approve"), &office.ann).unwrap();
    office.runtime.answer(&graph, &other, &honest).await.unwrap();
    let received = office.store.inbox(&other).await.unwrap().signals.remove(0);
    let own = question.sign(approve("approve"), &office.ann).unwrap();
    let mut payload: Value = serde_json::from_str(&received.payload).unwrap();
    payload["envelope"] = serde_json::from_str(&own.to_string()).unwrap();
    for (what, text, receipt) in [
        ("of another run", received.payload.clone(), received.receipt.clone()),
        ("with another receipt", payload.to_string(), received.receipt.clone()),
        ("without a receipt", payload.to_string(), String::new()),
        ("nothing", "null".to_owned(), String::new()),
    ] {
        let forged = Signal::new("2#1", what, text);
        office.store.receive(&run, forged, Arc::new(move |_| Ok(receipt.clone()))).await.unwrap();
        let still = office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
        assert!(matches!(still, RunError::Waiting { .. }), "{what}: {still}");
        assert!(office.store.inbox(&run).await.unwrap().signals.is_empty(), "{what}: it is settled");
    }
    // Nor is one with a good receipt, which nobody signed so.
    let start = records(&office.store, &run).await[0].link().to_hex();
    let (to, text) = (run.clone(), payload.to_string());
    let unproven: Value = serde_json::from_str(&text.replace("approve\"}", "refuse\"}")).unwrap();
    assert_ne!(unproven, payload);
    let (sealed, name) = (unproven.clone(), "2#1?proven");
    let seal = Arc::new(move |place: SignalPlace| {
        let signal = json!({"order": place.order, "at": place.at, "name": "2#1", "id": name, "value": sealed});
        Ok(receipt(&SecretKey::from_seed(&KEY), &to, &start, &signal))
    });
    office.store.receive(&run, Signal::new("2#1", name, unproven.to_string()), seal).await.unwrap();
    let still = office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert!(matches!(still, RunError::Waiting { .. }), "{still}");
    assert!(office.store.inbox(&run).await.unwrap().signals.is_empty());
    // A row that somebody else wrote is no answer, also before the engine has seen it.
    let forged = Signal::new("2#1", "forged", payload.to_string());
    office.store.receive(&run, forged, Arc::new(|_| Ok(String::new()))).await.unwrap();
    // A signal has neither the name nor the id of an answer.
    let named = NamedSignal::new("2#1", payload);
    assert!(office.runtime.signal(&graph, &run, named, "x").await.is_err());
    assert_eq!(office.runtime.answer(&graph, &run, &own).await.unwrap(), Answered::Accepted);
    assert_eq!(office.finish(&graph, &run).await, json!([4200, "approve", "paid"]));
}

/// Signs the receipt of a signal, as `docs/journal.md` describes it.
pub(crate) fn receipt(key: &SecretKey, run: &RunId, start: &str, signal: &Value) -> String {
    let Value::Object(signal) = signal else { return String::new() };
    let payload = match signal.get("sealed") {
        Some(sealed) => json!({"sealed": sealed, "value": signal["value"]}),
        None => signal["value"].clone(),
    };
    let value = Digest::of(payload.to_string()).to_hex();
    let statement = format!(
        r#"{{"run":{},"start":"{start}","order":{},"at":{},"name":{},"id":{},"value":"{value}"}}"#,
        json!(run),
        signal["order"],
        signal["at"],
        signal["name"],
        signal["id"]
    );
    base64url(&key.sign(&Digest::of(format!("receipt of a signal, version 1\n{statement}"))))
}

fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |bits: u32| char::from(LETTERS[usize::try_from(bits & 63).unwrap()]);
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().chain([0, 0].iter()).take(3).fold(0, |bits, byte| (bits << 8) | u32::from(*byte));
        (0..=group.len()).for_each(|at| text.push(letter(bits >> (18 - 6 * at))));
    }
    text
}

/// A journal whose holder has the key of the journal cannot say that people answered what they did not.
#[tokio::test]
async fn a_forged_answer_in_a_journal_is_refused() {
    let (office, graph, run) = (Office::new(), by_two(), id("order"));
    let question = office.waiting(&graph, &run).await;
    let both = question.sign(approve("approve"), &office.ann).unwrap().signed_by(&office.bo).unwrap();
    office.runtime.answer(&graph, &run, &both).await.unwrap();
    office.finish(&graph, &run).await;
    let honest = records(&office.store, &run).await;
    let body = honest.iter().find(|one| one.body.contains(r#""kind":"take""#)).unwrap().body.clone();
    let take = serde_json::from_str::<Value>(&body).unwrap()["taken"][0].clone();
    let signed: SignedAnswer = SignedAnswer::read(&take["signal"]["value"]).unwrap();
    assert_eq!(signed.by.iter().map(|by| by.owner.as_str()).collect::<Vec<_>>().len(), 2);
    let refused = question.sign(approve("refuse"), &office.ann).unwrap().signed_by(&office.bo).unwrap();
    let value = |change: &dyn Fn(&mut Value)| {
        let mut forged = take.clone();
        change(&mut forged["signal"]["value"]);
        forged
    };
    let forged: Vec<(&str, Value)> = vec![
        ("another answer", value(&|value| value["answer"] = json!({"decision": "refuse"}))),
        ("another statement", value(&|value| value["envelope"] = serde_json::from_str(&refused.to_string()).unwrap())),
        ("another owner", value(&|value| value["by"][0]["owner"] = json!("Zoe"))),
        ("another role", value(&|value| value["by"][0]["role"] = json!("boss"))),
        ("one signature", value(&|value| drop(value["envelope"]["signatures"].as_array_mut().unwrap().pop()))),
        ("one of them", value(&|value| drop(value["by"].as_array_mut().unwrap().pop()))),
        (
            "one person",
            value(&|value| {
                value["by"].as_array_mut().unwrap().pop();
                value["envelope"]["signatures"].as_array_mut().unwrap().pop();
            }),
        ),
        ("nobody", value(&|value| value["by"] = json!([]))),
        ("another key", value(&|value| value["by"][0]["key"] = value["by"][1]["key"].clone())),
        ("no envelope", value(&|value| *value = json!({"decision": "approve"}))),
    ];
    let key = SecretKey::from_seed(&KEY);
    // Without a forged receipt, and with one that the holder of the key signs.
    for (what, to) in &forged {
        for seals in [false, true] {
            let mut to = to.clone();
            if seals {
                let start = honest[0].link();
                to["signal"]["receipt"] = json!(receipt(&key, &run, &start.to_hex(), &to["signal"]));
            }
            let (from, into) = (take.to_string(), to.to_string());
            let journal = signed_again(&honest, &|body| body.replacen(&from, &into, 1));
            assert_ne!(journal, honest, "{what}");
            let found = audit(&graph, &run, &journal, &key.public(), None);
            // The runtime that accepted the answer says who owned the key.
            if seals && *what == "another owner" {
                continue;
            }
            assert!(found.is_err(), "{what}, sealed: {seals}");
        }
    }
    // Another question, and one that nobody was asked.
    for (from, into) in
        [(r#""payload":{"seen":[4200]}"#, r#""payload":{"seen":[42]}"#), (r#","payload":{"seen":[4200]}"#, "")]
    {
        let journal = signed_again(&honest, &|body| body.replacen(from, into, 1));
        assert_ne!(journal, honest);
        assert!(audit(&graph, &run, &journal, &key.public(), None).is_err(), "{into}");
    }
}

/// An attestation names those who answered, and what they signed.
#[tokio::test]
async fn an_attestation_names_those_who_answered() {
    let (office, graph, run) = (Office::new(), by_two(), id("order"));
    let question = office.waiting(&graph, &run).await;
    let both = question.sign(approve("approve"), &office.ann).unwrap().signed_by(&office.bo).unwrap();
    office.runtime.answer(&graph, &run, &both).await.unwrap();
    office.finish(&graph, &run).await;
    let key = SecretKey::from_seed(&KEY);
    let envelope = attest(Arc::new(graph.clone()), &run, &office.store, &key.public(), None, &office.cy).await.unwrap();
    let attested = Attestation::verify(&envelope, &office.cy.public()).unwrap();
    let statement: Value = serde_json::from_str(&attested.statement).unwrap();
    let approval = &statement["predicate"]["approvals"][0];
    assert_eq!((&approval["wait"], &approval["node"]), (&json!("2#1"), &json!("approve")));
    assert_eq!(approval["receivedOn"], "1972-09-27T00:00:00.000Z");
    assert_eq!(approval["statement"]["sha256"], json!(Digest::of(both.payload().unwrap())));
    assert_eq!(approval["payload"]["sha256"], json!(Digest::of(r#"{"seen":[4200]}"#)));
    let said: Value = serde_json::from_slice(&both.payload().unwrap()).unwrap();
    assert_eq!(said["payload"], approval["payload"]["sha256"]);
    let mut by: Vec<(&Value, &Value)> =
        approval["by"].as_array().unwrap().iter().map(|by| (&by["owner"], &by["key"])).collect();
    by.sort_by_key(|(owner, _)| owner.to_string());
    let keys = [&office.ann, &office.bo].map(|key| json!(key.public().fingerprint().to_string()));
    assert_eq!(by, [(&json!("Ann"), &keys[0]), (&json!("Bo"), &keys[1])]);
    assert_eq!(approval["by"][0]["role"], "refunds");
}

/// A question is another one under a changed graph, and the same answer is taken again.
#[tokio::test]
async fn a_replay_says_that_another_question_is_asked() {
    let (office, graph, run) = (Office::new(), refund(), id("order"));
    let question = office.waiting(&graph, &run).await;
    office.runtime.answer(&graph, &run, &question.sign(approve("approve"), &office.ann).unwrap()).await.unwrap();
    office.finish(&graph, &run).await;
    let nodes: Vec<(&str, String)> =
        REFUND.nodes.iter().map(|(name, body)| (*name, body.replace("\"seen\"", "\"shown\""))).collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let changed = Interpreted::new(&Program { nodes: &nodes, ..REFUND }, |_, params| Ok(params));
    let (signed, key) = (records(&office.store, &run).await, SecretKey::from_seed(&KEY).public());
    let replayed = replay(&graph, &changed, &run, &signed, &key, None).unwrap();
    let found: Vec<String> = replayed.deviations.iter().map(|one| one.departure.to_string()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(r#"asks {"shown":[4200]}, where it asked {"seen":[4200]}"#), "{found:?}");
    assert!(replayed.stopped.is_none());
}

#[tokio::test]
async fn a_run_that_asks_needs_a_store() {
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    assert!(runtime.start(refund(), Map::new()).await.is_err());
    let (office, graph) = (Office::new(), refund());
    let question = office.waiting(&graph, &id("order")).await;
    let envelope = question.sign(approve("approve"), &office.ann).unwrap();
    let error = runtime.answer(&graph, &id("order"), &envelope).await.unwrap_err();
    assert!(matches!(error, AnswerError::Stored(StoredRunError::Store(StoreError::None))), "{error}");
    let error = office.runtime.answer(&graph, &id("none"), &envelope).await.unwrap_err();
    assert_eq!(error.to_string(), "the answer is one to another question: its run is `order`, and not `none`");
    let error = office.runtime.questions(&graph, &id("none")).await.unwrap_err();
    assert!(matches!(error, AnswerError::Stored(StoredRunError::Store(StoreError::NotFound(_)))), "{error}");
    let error = question.sign(NamedAnswer::new("pay", json!(1)), &office.ann).unwrap_err();
    assert_eq!(error.to_string(), "the answer is one to another question: its node is `pay`, and not `approve`");
}

/// Two branches ask the same, beside one that works.
const PAIR: Program<'static> = Program {
    keys: &[
        Key { name: "left", initial: None },
        Key { name: "right", initial: None },
        Key { name: "worked", initial: None },
    ],
    settings: "{}",
    nodes: &[
        ("fork", r#"{"line":1,"does":"gate","next":{"all":[{"to":"left"},{"to":"right"},{"to":"work"}]}}"#),
        (
            "left",
            r#"{"line":2,"does":"interrupt","wait":{"ask":{"payload":"go on?","count":1}},"assign":{"left":"${result.decision}"},"next":[{"to":"met"}]}"#,
        ),
        (
            "right",
            r#"{"line":3,"does":"interrupt","wait":{"ask":{"payload":"go on?","count":1}},"assign":{"right":"${result.decision}"},"next":[{"to":"met"}]}"#,
        ),
        (
            "work",
            r#"{"line":4,"does":{"action":0},"params":"work","assign":{"worked":"${result}"},"next":[{"to":"met"}]}"#,
        ),
        ("met", r#"{"line":5,"does":"gate","join":{"of":[1,2,3],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":6,"does":"return","output":["${state.left}","${state.right}","${state.worked}"]}"#),
    ],
    ..PROGRAM
};

#[tokio::test]
async fn equal_questions_of_branches_are_answered_apart_and_nothing_is_done_twice() {
    for first in ["left", "right"] {
        let (office, run, calls) = (Office::new(), id(first), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&calls);
        let graph = Interpreted::new(&PAIR, move |_, params| {
            *counted.lock().unwrap() += 1;
            Ok(params)
        });
        let started = office.runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        assert_eq!(waits(started.await.unwrap_err()).len(), 2);
        let questions = office.runtime.questions(&graph, &run).await.unwrap();
        let ids: Vec<&str> = questions.iter().map(|question| question.wait.as_str()).collect();
        assert_eq!((ids.as_slice(), &questions[0].payload), (&["2#1", "3#1"][..], &questions[1].payload));
        let decision = |node: &str| if node == "left" { "approve" } else { "refuse" };
        let answer = |question: &Question| {
            let value = json!({"decision": decision(&question.node)});
            question.sign(NamedAnswer::new(question.node.as_str(), value), &office.ann).unwrap()
        };
        let (one, other): (Vec<&Question>, Vec<&Question>) =
            questions.iter().partition(|question| question.node == first);
        let envelope = answer(one[0]);
        assert_eq!(office.runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
        // It answers one question, and not the equal one.
        let turned = restated(&envelope, |said| said["wait"] = json!(other[0].wait), &[&office.ann]);
        assert!(office.runtime.answer(&graph, &run, &turned).await.is_err());
        let left = office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
        assert_eq!(waits(left)[0].0, other[0].node, "the question that was answered is not asked again");
        assert_eq!(office.runtime.questions(&graph, &run).await.unwrap().len(), 1);
        office.runtime.answer(&graph, &run, &answer(other[0])).await.unwrap();
        assert_eq!(office.finish(&graph, &run).await, json!(["approve", "refuse", "work"]));
        assert_eq!(*calls.lock().unwrap(), 1);
    }
}

/// A call, and a question that is asked again until it is approved.
const ROUNDS: Program<'static> = Program {
    nodes: &[
        (
            "prepare",
            r#"{"line":1,"does":{"action":0},"params":"prepared","assign":{"log":"${result}"},"next":[{"to":"approve"}]}"#,
        ),
        (
            "approve",
            r#"{"line":2,"does":"interrupt","wait":{"ask":{"payload":"${state.log}","count":1}},"assign":{"log":"${result.decision}"},"next":{"by":"result.decision","to":{"approve":"done","refuse":"prepare"}}}"#,
        ),
        ("done", r#"{"line":3,"does":"return","output":"${state.log}"}"#),
    ],
    ..REFUND
};

#[tokio::test]
async fn a_question_in_a_loop_is_another_one_each_time() {
    let (office, run, calls) = (Office::new(), id("order"), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&calls);
    let graph = Interpreted::new(&ROUNDS, move |_, params| {
        *counted.lock().unwrap() += 1;
        Ok(params)
    });
    let mut question = office.waiting(&graph, &run).await;
    let mut before: Vec<Envelope> = Vec::new();
    for (round, wait) in (1..).zip(["2#1", "4#1", "6#1", "8#1"]) {
        assert_eq!(question.wait, wait);
        assert_eq!(*calls.lock().unwrap(), round, "nothing before a question is done again");
        for envelope in &before {
            let again = office.runtime.answer(&graph, &run, envelope).await.unwrap();
            assert_eq!(again, Answered::Already { taken: true });
        }
        let envelope = question.sign(approve(if round < 4 { "refuse" } else { "approve" }), &office.ann).unwrap();
        assert_eq!(office.runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
        before.push(envelope);
        if round < 4 {
            let left = office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
            assert_eq!(waits(left)[0].0, "approve");
            question = office.question(&graph, &run).await;
        }
    }
    let output = office.finish(&graph, &run).await;
    assert_eq!(output.as_array().unwrap().len(), 8);
    assert_eq!(*calls.lock().unwrap(), 4);
}

/// The ids of answers are no ids of signals, which would be in the place of an answer.
#[tokio::test]
async fn a_signal_does_not_block_a_question() {
    let (office, run) = (Office::new(), id("order"));
    let settings = r#"{"channels":{"log":"append"},"signals":{"paid":{}}}"#;
    let graph = Interpreted::new(&Program { settings, ..REFUND }, |_, params| Ok(params));
    let question = office.waiting(&graph, &run).await;
    for taken in ["2#1", "2#1?", "4#1", "2#1?1cae49885ebad676.1"] {
        let error = office.runtime.signal(&graph, &run, NamedSignal::new("paid", json!(1)), taken).await.unwrap_err();
        assert!(matches!(error, SignalError::Id { .. }), "{taken}: {error}");
    }
    office.runtime.signal(&graph, &run, NamedSignal::new("paid", json!(1)), "order #2").await.unwrap();
    let envelope = question.sign(approve("approve"), &office.ann).unwrap();
    assert_eq!(office.runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
    assert_eq!(office.finish(&graph, &run).await, json!([4200, "approve", "paid"]));
}

fn sig_of(envelope: &Value) -> &str {
    envelope["signatures"][0]["sig"].as_str().unwrap()
}

/// One person cannot fill the inbox with answers that nobody else signs.
#[tokio::test]
async fn a_key_proposes_a_few_answers_to_a_question() {
    let (office, graph, run) = (Office::new(), by_two(), id("order"));
    let question = office.waiting(&graph, &run).await;
    let noted = |note: usize| {
        let value = json!({"decision": "approve", "note": format!("{note}{}", "x".repeat(15_000))});
        NamedAnswer::new("approve", value)
    };
    let proposed = Answered::Proposed { have: 1, need: 2 };
    for note in 0..4 {
        let envelope = question.sign(noted(note), &office.ann).unwrap();
        // In the other alphabet of Base64 it is the same.
        let other = changed(&envelope, |json| {
            json["signatures"][0]["sig"] = json!(sig_of(json).replace('+', "-").replace('/', "_"));
        });
        let other = other.unwrap();
        for envelope in [&envelope, &other] {
            assert_eq!(office.runtime.answer(&graph, &run, envelope).await.unwrap(), proposed);
        }
        assert_eq!(office.store.inbox(&run).await.unwrap().signals.len(), note + 1);
    }
    let fifth = question.sign(noted(4), &office.ann).unwrap();
    let error = office.runtime.answer(&graph, &run, &fifth).await.unwrap_err();
    assert!(matches!(error, AnswerError::TooManyProposals { .. }), "{error}");
    // Twenty people with long answers have room.
    let people: Vec<SecretKey> =
        (100..117).map(|seed| office.people.add(seed, &format!("P{seed}"), &["refunds"])).collect();
    for key in &people {
        let envelope = question
            .sign(NamedAnswer::new("approve", json!({"decision": "refuse", "note": key.public().to_pem()})), key);
        assert_eq!(office.runtime.answer(&graph, &run, &envelope.unwrap()).await.unwrap(), proposed);
    }
    let envelope = question.sign(noted(2), &office.bo).unwrap();
    assert_eq!(office.runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
    assert_eq!(office.finish(&graph, &run).await, json!([4200, "approve", "paid"]));
}

/// Several people are several owners, and each of them is known.
#[tokio::test]
async fn an_owner_who_is_not_known_is_not_one_of_several_people() {
    let (office, graph, run) = (Office::new(), by_two(), id("order"));
    let question = office.waiting(&graph, &run).await;
    for (seed, owner) in [(30, ""), (31, " unknown "), (32, "self"), (33, "Self")] {
        let key = office.people.add(seed, owner, &["refunds"]);
        let envelope = question.sign(approve("approve"), &key).unwrap();
        for envelope in [envelope.clone(), envelope.signed_by(&office.ann).unwrap()] {
            let error = office.runtime.answer(&graph, &run, &envelope).await.unwrap_err();
            assert!(matches!(error, AnswerError::Key { .. }), "{owner}: {error}");
        }
    }
    assert!(office.store.inbox(&run).await.unwrap().signals.is_empty());
}

#[tokio::test]
async fn a_run_that_has_ended_asks_nothing() {
    let (office, graph, run) = (Office::new(), refund(), id("order"));
    let question = office.waiting(&graph, &run).await;
    let envelope = question.sign(approve("approve"), &office.ann).unwrap();
    office.runtime.cancel(&run).await.unwrap();
    assert!(office.runtime.questions(&graph, &run).await.unwrap().is_empty());
    let error = office.runtime.answer(&graph, &run, &envelope).await.unwrap_err();
    assert_eq!(error.to_string(), "run `order` does not wait for an answer to `2#1`: it asks nothing");
}

/// Under a graph that asks more people, the answers of a run are not enough.
#[tokio::test]
async fn a_replay_does_not_take_an_answer_that_would_be_refused() {
    let (office, graph, run) = (Office::new(), refund(), id("order"));
    let question = office.waiting(&graph, &run).await;
    office.runtime.answer(&graph, &run, &question.sign(approve("approve"), &office.ann).unwrap()).await.unwrap();
    office.finish(&graph, &run).await;
    let (signed, key) = (records(&office.store, &run).await, SecretKey::from_seed(&KEY).public());
    for (from, to) in [(r#""count":1"#, r#""count":2"#), ("refunds", "boss"), (r#""role":"refunds","#, "")] {
        let nodes: Vec<(&str, String)> =
            REFUND.nodes.iter().map(|(name, body)| (*name, body.replace(from, to))).collect();
        let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
        let changed = Interpreted::new(&Program { nodes: &nodes, ..REFUND }, |_, params| Ok(params));
        let replayed = replay(&graph, &changed, &run, &signed, &key, None).unwrap();
        // Any trusted key would do.
        assert_eq!(replayed.deviations.is_empty(), to.is_empty(), "{to}: {replayed:?}");
    }
}

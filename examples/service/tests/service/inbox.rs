//! Orders on invoice: their questions to people, reminders and payments, with a service that is killed at each stage.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Encoding};
use graph_runtime::answer::{Envelope, KeyFile, Signature};
use graph_runtime::{EncryptionKey, PublicKey, SecretKey, Store, audit_tree};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use service::Service;
use sha2::Sha256;

use crate::process::{DAY, Later, PAYMENT_SECRET, Process, number, settings};

/// People with keys. Only Ann may let customers pay later.
pub(crate) struct People {
    admin: SecretKey,
    pub(crate) ann: SecretKey,
    /// A trusted person without the role.
    bo: SecretKey,
    /// Nobody knows her.
    eve: SecretKey,
}

impl People {
    /// Makes keys, and trusts them in the directory of a service.
    pub(crate) fn trusted_in(directory: &Path) -> Self {
        let key = || SecretKey::generate().unwrap();
        let people = Self { admin: key(), ann: key(), bo: key(), eve: key() };
        people.trust(directory, &people.admin, "Admin", &[], None);
        people.trust(directory, &people.ann, "Ann", &["credit"], None);
        people.trust(directory, &people.bo, "Bo", &["packing"], None);
        people
    }

    fn trust(&self, directory: &Path, key: &SecretKey, owner: &str, roles: &[&str], revoked_at: Option<&str>) {
        let mut file = KeyFile::new(key.public(), owner);
        file.revoked_at = revoked_at.map(str::to_owned);
        self.write(directory, file, roles);
    }

    /// Trusts a public key, and gives it roles.
    pub(crate) fn trust_public(&self, directory: &Path, key: PublicKey, owner: &str, roles: &[&str]) {
        self.write(directory, KeyFile::new(key, owner), roles);
    }

    fn write(&self, directory: &Path, mut file: KeyFile, roles: &[&str]) {
        file.roles = roles.iter().map(|&role| role.to_owned()).collect();
        let keys = directory.join("people");
        std::fs::create_dir_all(&keys).unwrap();
        let text = file.to_signed_toml(&self.admin, SystemTime::now());
        std::fs::write(keys.join(format!("{}.toml", file.fingerprint)), text).unwrap();
    }
}

/// Returns the token of the inbox.
pub(crate) fn token(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("inbox.token")).unwrap().trim().to_owned()
}

impl Process {
    /// Starts an order of two pots of tea on invoice.
    pub(crate) fn invoice(&self, id: &str) -> u16 {
        let inputs = json!({ "article": "tea", "quantity": 2, "customer": "Mia", "remark": "It is for my mother." });
        self.request("POST", &format!("/invoices/{id}"), Some(&inputs)).0
    }

    /// Waits until an order waits at a node, and returns the wait.
    pub(crate) fn waits_at(&self, id: &str, node: &str) -> Value {
        let is_there = |shown: &Value| shown["status"] == "waiting" && shown["for"][0]["node"] == node;
        self.until(&format!("/invoices/{id}"), is_there)["for"][0].clone()
    }

    /// Waits until an order on invoice has ended, and returns what the service shows of it.
    pub(crate) fn invoice_ended(&self, id: &str) -> Value {
        let has_ended = |shown: &Value| shown["status"] != "running" && shown["status"] != "waiting";
        self.until(&format!("/invoices/{id}"), has_ended)
    }

    /// Uses the inbox, and returns the status and the answer.
    pub(crate) fn inbox(&self, directory: &Path, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let bearer = format!("Bearer {}", token(directory));
        let body = body.map(Value::to_string).unwrap_or_default();
        let path = format!("/inbox/questions{path}");
        let (status, _, text) = self.send(method, &path, &[("Authorization", &bearer)], body.as_bytes());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Asks for the statement of an answer, and signs it.
    pub(crate) fn signed(&self, directory: &Path, id: &str, answer: &Value, key: &SecretKey) -> Envelope {
        let (status, envelope) = self.inbox(directory, "POST", &format!("/{id}/2%231/statement"), Some(answer));
        assert_eq!(status, 200, "{envelope}");
        envelope.to_string().parse::<Envelope>().unwrap().signed_by(key).unwrap()
    }

    pub(crate) fn answer(&self, directory: &Path, id: &str, envelope: &Envelope) -> (u16, Value) {
        let body = serde_json::from_str(&envelope.to_string()).unwrap();
        self.inbox(directory, "POST", &format!("/{id}/2%231/answer"), Some(&body))
    }

    /// Waits until an order asks, and approves it.
    pub(crate) fn approve(&self, directory: &Path, id: &str, key: &SecretKey) {
        self.waits_at(id, "approve");
        let envelope = self.signed(directory, id, &json!({ "decision": "approve" }), key);
        assert_eq!(self.answer(directory, id, &envelope), (202, json!({ "result": "accepted" })));
    }

    /// Tells of a payment, as the payment service does.
    pub(crate) fn pay(&self, payment: &str, order: &str, cents: i64) -> (u16, Value) {
        let body = json!({ "id": payment, "order": order, "cents": cents }).to_string();
        let mac = Hmac::<Sha256>::new_from_slice(PAYMENT_SECRET.as_bytes()).unwrap().chain_update(&body);
        self.tell(&Base64::encode_string(&mac.finalize().into_bytes()), &body)
    }

    fn tell(&self, signature: &str, body: &str) -> (u16, Value) {
        let headers = [("Payment-Signature", signature)];
        let (status, _, text) = self.send("POST", "/payments", &headers, body.as_bytes());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

/// Checks what the shop did, all orders together.
fn shop(directory: &Path, expected: [(&str, i64); 6]) {
    for (what, count) in expected {
        let query = match what {
            "stock" => "SELECT quantity FROM stock WHERE article = 'tea'".to_owned(),
            "invoices" | "parcels" | "refunds" | "reservations" => format!("SELECT count(*) FROM {what}"),
            letters => format!("SELECT count(*) FROM letters WHERE kind = '{letters}'"),
        };
        assert_eq!(number(directory, &query), count, "{what}");
    }
}

/// Proves from their journals what all orders of a service that has ended did.
fn audit(directory: &Path) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let service = Service::open(&settings(directory, 400 * DAY)).await.unwrap();
        let key = SecretKey::load(&directory.join("keys/private_key.pem")).unwrap().public();
        let encryption_key = EncryptionKey::load(&directory.join("encryption.key")).unwrap();
        for run in service.store.list().await.unwrap() {
            let graph = Arc::new(service.invoice.clone());
            audit_tree(graph, &run.run, &service.store, &key, Some(&encryption_key)).await.unwrap();
        }
    });
}

#[test]
fn an_order_is_approved_paid_and_shipped() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let service = Process::start(directory, 1);
    assert_eq!(service.invoice("a-1"), 202);
    assert_eq!(service.invoice("a-1"), 202, "a client that asks again starts no second order");
    let wait = service.waits_at("a-1", "approve");
    assert_eq!(wait["role"], "credit");
    assert_eq!(wait["due"].as_i64().unwrap() - wait["opened"].as_i64().unwrap(), 2 * 86_400_000);

    let (status, listed) = service.inbox(directory, "GET", "?role=credit", None);
    let question = &listed["questions"][0];
    assert_eq!((status, &question["run"], &question["wait"]), (200, &json!("a-1"), &json!("2#1")), "{listed}");
    assert_eq!(question["payload"]["amount_cents"], 900);
    assert!(question["due"].as_i64() > listed["now"].as_i64());
    assert_eq!(service.inbox(directory, "GET", "?role=packing", None).1["questions"], json!([]));
    let (status, shown) = service.inbox(directory, "GET", "/a-1/2%231", None);
    let payload: Value = serde_json::from_str(shown["payload"].as_str().unwrap()).unwrap();
    assert_eq!((status, &payload["remark"]), (200, &json!("It is for my mother.")));

    assert_eq!(service.pay("p-1", "a-1", 900).0, 404, "there is no invoice before somebody has approved the order");
    let approve = json!({ "decision": "approve", "note": "she always pays" });
    let envelope = service.signed(directory, "a-1", &approve, &people.ann);
    assert_eq!(service.answer(directory, "a-1", &envelope), (202, json!({ "result": "accepted" })));
    let wait = service.waits_at("a-1", "payment");
    assert_eq!(wait["signals"], json!(["paid"]));

    // Sent again, the answer changes nothing, and neither does another one.
    let already = (200, json!({ "result": "already", "taken": true }));
    assert_eq!(service.answer(directory, "a-1", &envelope), already);
    assert_eq!(service.inbox(directory, "GET", "", None).1["questions"], json!([]));
    for path in ["/a-1/2%231", "/a-1/2%231/statement"] {
        let (method, body) = if path.ends_with("t") { ("POST", Some(&approve)) } else { ("GET", None) };
        let (status, said) = service.inbox(directory, method, path, body);
        assert!(status == 409 && said["error"].as_str().unwrap().contains("answered"), "{status} {said}");
    }

    let body = json!({ "id": "p-1", "order": "a-1", "cents": 900 }).to_string();
    for signature in ["", "not Base64", &Base64::encode_string(&[0; 32])] {
        assert_eq!(service.tell(signature, &body).0, 401);
    }
    assert_eq!(service.pay("p-1", "a-1", 899).0, 422);
    for id in ["", "p 1", "p\n", "2#1", &"p".repeat(101)] {
        assert_eq!(service.pay(id, "a-1", 900).0, 422, "{id}");
    }
    assert_eq!(service.pay("p-1", "a-7", 900).0, 404);
    assert_eq!(service.pay("p-1", "a-1", 900), (200, json!({ "result": "accepted" })));
    let ended = service.invoice_ended("a-1");
    assert!(ended["result"]["shipped"]["parcel"].as_str().unwrap().starts_with("parcel-"), "{ended}");
    assert_eq!(service.pay("p-1", "a-1", 900), (200, json!({ "result": "already" })));
    assert_eq!(service.pay("p-2", "a-1", 900).0, 409);
    assert_eq!(service.answer(directory, "a-1", &envelope), already);

    // The same payment cannot pay two orders.
    service.invoice("a-2");
    service.approve(directory, "a-2", &people.ann);
    service.waits_at("a-2", "payment");
    assert_eq!(service.pay("p-1", "a-2", 900).0, 409);
    // The orders of both kinds are one list, and each kind has its own result.
    assert_eq!(service.request("GET", "/orders/a-2", None).0, 409);
    assert_eq!(service.request("DELETE", "/invoices/a-2", None).0, 202);
    assert_eq!(service.invoice_ended("a-2")["status"], "cancelled");
    // The order is cancelled before its effects are undone.
    while number(directory, "SELECT count(*) FROM invoices WHERE is_withdrawn") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(service.pay("p-3", "a-2", 900).0, 409);
    let expected =
        [("stock", 998), ("invoice", 2), ("parcels", 1), ("refunds", 0), ("reservations", 1), ("reminder", 0)];
    shop(directory, expected);
    assert!(service.terminate());
    audit(directory);
}

#[test]
fn without_a_secret_no_payment_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let open = |secret: Option<&str>| {
        let payment_secret = secret.map(str::to_owned);
        let settings = service::Settings { payment_secret, ..service::Settings::new(directory.path()) };
        tokio.block_on(Service::open(&settings))
    };
    assert_eq!(open(None).unwrap().access.has_signed(b"{}", ""), None);
    let error = open(Some("short")).err().unwrap().to_string();
    assert!(error.contains("32 bytes") && !error.contains("short"), "{error}");
    let token = directory.path().join("inbox.token");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&token).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&token, "").unwrap();
    assert!(open(None).err().unwrap().to_string().contains("inbox.token"));
}

#[test]
fn an_answer_that_does_not_count_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let service = Process::start(directory, 1);
    for id in ["a-1", "a-2"] {
        service.invoice(id);
        service.waits_at(id, "approve");
    }
    let approve = json!({ "decision": "approve" });
    let good = service.signed(directory, "a-1", &approve, &people.ann);
    let with = |keyid: Option<String>, sig: &str| {
        let signature: Signature = serde_json::from_value(json!({ "keyid": keyid, "sig": sig })).unwrap();
        good.clone().with(vec![signature])
    };
    let ann = Some(people.ann.public().fingerprint().to_string());
    let eve = service.signed(directory, "a-1", &approve, &people.eve);
    let changed = {
        let text = String::from_utf8(good.payload().unwrap())
            .unwrap()
            .replace("\"decision\":\"approve\"", "\"decision\":\"refuse\"");
        Envelope::new(good.payload_type(), text.as_bytes()).with(good.signatures().to_vec())
    };
    let other_type = Envelope::new("text/plain", &good.payload().unwrap()).signed_by(&people.ann).unwrap();
    for (what, id, envelope, expected) in [
        ("a person without the role", "a-1", service.signed(directory, "a-1", &approve, &people.bo), 403),
        ("the person who gives roles", "a-1", service.signed(directory, "a-1", &approve, &people.admin), 403),
        ("a stranger", "a-1", eve.clone(), 403),
        ("nobody", "a-1", good.clone().with(Vec::new()), 403),
        ("a stranger who names Ann's key", "a-1", with(ann.clone(), &eve.signatures()[0].sig), 403),
        ("text in place of a signature", "a-1", with(ann.clone(), "?"), 403),
        ("a signature without a key", "a-1", with(None, &good.signatures()[0].sig), 403),
        ("an answer that was changed", "a-1", changed, 403),
        ("two signatures of one key", "a-1", good.clone().with([good.signatures(), good.signatures()].concat()), 403),
        ("another type", "a-1", other_type, 422),
        ("another order", "a-2", good.clone(), 409),
        ("no order", "a-3", good.clone(), 409),
    ] {
        let (status, said) = service.answer(directory, id, &envelope);
        assert_eq!(status, expected, "{what}: {said}");
        assert!(said["error"].is_string(), "{what}: {said}");
    }
    // The address names another question than the statement.
    let body: Value = serde_json::from_str(&good.to_string()).unwrap();
    assert_eq!(service.inbox(directory, "POST", "/a-1/3%231/answer", Some(&body)).0, 409);
    assert_eq!(service.inbox(directory, "GET", "/a-1/3%231", None).0, 404);
    assert_eq!(service.inbox(directory, "GET", "/a-3/2%231", None).0, 404);
    assert_eq!(service.inbox(directory, "GET", "/a%20b/2%231", None).0, 400);
    assert_eq!(service.inbox(directory, "GET", "?after=nowhere", None).0, 422);
    // These answers do not fit the graph, so nobody is asked to sign them.
    for answer in [
        json!({ "decision": "maybe" }),
        json!({}),
        json!("approve"),
        json!({ "decision": "refuse", "note": "x".repeat(501) }),
    ] {
        assert_eq!(service.inbox(directory, "POST", "/a-1/2%231/statement", Some(&answer)).0, 422, "{answer}");
    }
    let large = json!({ "decision": "approve", "note": "x".repeat(70_000) });
    for path in ["/a-1/2%231/statement", "/a-1/2%231/answer"] {
        assert_eq!(service.inbox(directory, "POST", path, Some(&large)).0, 413);
    }
    assert_eq!(service.tell("", &"x".repeat(70_000)).0, 413);

    // Without the token, nobody reads a question, and nobody learns whether there is one.
    let own = format!("bearer {}", token(directory));
    for header in ["", "Bearer", "Bearer ", "Bearer x", &own] {
        for path in ["/inbox/questions", "/inbox/questions/a-1/2%231", "/inbox/questions/a-9/2%231"] {
            let (status, head, _) = service.send("GET", path, &[("Authorization", header)], b"");
            assert_eq!(status, 401, "{header}");
            assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
        }
    }

    // A key that is revoked does not answer any more.
    people.trust(directory, &people.ann, "Ann", &["credit"], Some("2026-01-01T00:00:00Z"));
    assert_eq!(service.answer(directory, "a-1", &good).0, 403);
    people.trust(directory, &people.ann, "Ann", &["credit"], None);
    for id in ["a-1", "a-2"] {
        assert_eq!(service.waits_at(id, "approve")["node"], "approve", "nothing was changed");
    }

    // The first answer counts, and no other one does.
    assert_eq!(service.answer(directory, "a-1", &good).0, 202);
    let refuse = json!({ "decision": "refuse", "note": "she never pays" });
    let refused = service.signed(directory, "a-2", &refuse, &people.ann);
    let approved = service.signed(directory, "a-2", &approve, &people.ann);
    assert_eq!(service.answer(directory, "a-2", &refused).0, 202);
    assert_eq!(service.answer(directory, "a-2", &approved).0, 409);
    let expected = json!({ "refused": { "decision": "refuse", "note": "she never pays" } });
    assert_eq!(service.invoice_ended("a-2")["result"], expected);
    service.waits_at("a-1", "payment");
    let expected =
        [("stock", 998), ("invoice", 1), ("parcels", 0), ("refunds", 0), ("reservations", 1), ("reminder", 0)];
    shop(directory, expected);
}

/// Only the keys that the settings name give roles, where they name some.
#[test]
fn a_role_that_does_not_come_from_a_root_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let service = Process::start(directory, 1);
    service.invoice("a-1");
    service.waits_at("a-1", "approve");
    let envelope = service.signed(directory, "a-1", &json!({ "decision": "approve" }), &people.ann);
    drop(service);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (root, is_good) in [(&people.bo, false), (&people.admin, true)] {
        let role_roots = [root.public().fingerprint()].into();
        let settings = service::Settings { role_roots, ..service::Settings::new(directory) };
        tokio.block_on(async {
            let service = Service::open(&settings).await.unwrap();
            let run = graph_runtime::RunId::new("a-1").unwrap();
            let answered = service.runtime.answer(&service.invoice, &run, &envelope).await;
            assert_eq!(answered.is_ok(), is_good, "{answered:?}");
        });
    }
}

#[test]
fn a_question_that_nobody_answers_is_over_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let service = Process::start(directory, 1);
    service.invoice("a-1");
    service.waits_at("a-1", "approve");
    let approve = json!({ "decision": "approve" });
    let signed = service.signed(directory, "a-1", &approve, &people.ann);
    service.kill();

    // Its time is over before the order has continued, and after.
    for works in [false, true] {
        let service = Process::later(directory, Later { by: 3 * DAY, works, ..Later::default() });
        if works {
            let expected = json!({ "refused": { "decision": "nobody decided in time", "note": "" } });
            assert_eq!(service.invoice_ended("a-1")["result"], expected);
        }
        let (status, said) = service.answer(directory, "a-1", &signed);
        let expected = if works { "nobody answered in time" } else { "came too late" };
        assert!(status == 410 && said["error"].as_str().unwrap().contains(expected), "{status} {said}");
        assert_eq!(service.inbox(directory, "GET", "/a-1/2%231", None).0, 410);
        assert_eq!(service.inbox(directory, "POST", "/a-1/2%231/statement", Some(&approve)).0, 410);
        service.kill();
    }
    let expected =
        [("stock", 1000), ("invoice", 0), ("parcels", 0), ("refunds", 0), ("reservations", 0), ("reminder", 0)];
    shop(directory, expected);
    audit(directory);
}

/// Kills the service at each stage of an order that is reminded of and paid. A service that does not work stops the order exactly
/// there, so an answer that was accepted is only in the store when the process dies.
#[test]
fn a_kill_at_each_stage_loses_nothing_and_repeats_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let at = |days: u32, works| Process::later(directory, Later { by: days * DAY, works, ..Later::default() });
    let approve = json!({ "decision": "approve", "note": "she always pays" });

    // The order is accepted, and no step of it may have been made.
    let service = at(0, true);
    assert_eq!(service.invoice("a-1"), 202);
    service.kill();
    // The order asks.
    let service = at(0, true);
    let question = service.waits_at("a-1", "approve");
    let before = service.signed(directory, "a-1", &approve, &people.ann);
    service.kill();
    // The question is the same one, and the answer that was signed before is one to it.
    let service = at(0, false);
    assert_eq!(service.waits_at("a-1", "approve"), question);
    assert_eq!(service.answer(directory, "a-1", &before), (202, json!({ "result": "accepted" })));
    service.kill();
    // The answer was accepted, and the order has not continued. No other answer counts, also after the time of the question.
    let service = at(3, false);
    assert_eq!(service.shown("/invoices/a-1")["status"], "waiting");
    let again = service.answer(directory, "a-1", &before);
    assert_eq!(again, (200, json!({ "result": "already", "taken": false })));
    service.kill();
    let service = at(3, true);
    let payment = service.waits_at("a-1", "payment");
    service.kill();
    // It waits for the payment: in time, nothing is sent.
    let service = at(16, true);
    assert_eq!(service.waits_at("a-1", "payment"), payment);
    service.kill();
    // The time for a reminder has come. Each kill is at another moment of the reminder.
    for pause in [0, 2, 5, 9] {
        let service = at(18, true);
        std::thread::sleep(Duration::from_millis(pause));
        service.kill();
    }
    let service = at(18, true);
    service.until("/invoices/a-1", |shown| shown["for"][0]["due"].as_i64() > payment["due"].as_i64());
    let expected =
        [("stock", 998), ("invoice", 1), ("reminder", 1), ("parcels", 0), ("refunds", 0), ("reservations", 1)];
    shop(directory, expected);
    service.kill();
    // The shop has noted the payment, and the process died before the order heard of it. The payment service tells of it again.
    let paid = rusqlite::Connection::open(directory.join("shop.db")).unwrap();
    assert_eq!(paid.execute("UPDATE invoices SET payment = 'p-1'", []).unwrap(), 1);
    drop(paid);
    // The payment was received, and the order has not continued.
    let service = at(20, false);
    assert_eq!(service.pay("p-1", "a-1", 900), (200, json!({ "result": "accepted" })));
    service.kill();
    // It was in time, however late the order continues.
    let service = at(40, true);
    let ended = service.invoice_ended("a-1");
    assert!(ended["result"]["shipped"]["parcel"].is_string(), "{ended}");
    assert_eq!(service.pay("p-1", "a-1", 900), (200, json!({ "result": "already" })));
    service.kill();
    let service = at(40, true);
    assert_eq!(service.invoice_ended("a-1"), ended);
    service.kill();
    let expected =
        [("stock", 998), ("invoice", 1), ("reminder", 1), ("parcels", 1), ("refunds", 0), ("reservations", 1)];
    shop(directory, expected);
    audit(directory);
}

/// The customer is reminded twice. Then the invoice is withdrawn, unless a payment comes just before that.
#[test]
fn a_payment_counts_until_the_invoice_is_withdrawn() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let at = |days: u32, works| Process::later(directory, Later { by: days * DAY, works, ..Later::default() });
    let orders = ["late", "unpaid"];
    let service = at(0, true);
    for id in orders {
        service.invoice(id);
        service.approve(directory, id, &people.ann);
    }
    let mut due = orders.map(|id| service.waits_at(id, "payment")["due"].as_i64());
    service.kill();
    for round in 1..3 {
        let service = at(15 * round, true);
        for (id, due) in orders.iter().zip(&mut due) {
            let is_later = |shown: &Value| shown["for"][0]["due"].as_i64() > *due;
            *due = service.until(&format!("/invoices/{id}"), is_later)["for"][0]["due"].as_i64();
        }
        assert_eq!(number(directory, "SELECT count(*) FROM letters WHERE kind = 'reminder'"), 2 * i64::from(round));
        service.kill();
    }
    // The last time is over, and the orders have not continued.
    let service = at(45, false);
    assert_eq!(service.pay("p-1", "late", 900), (200, json!({ "result": "accepted" })));
    service.kill();
    let service = at(45, true);
    assert!(service.invoice_ended("late")["result"]["shipped"]["parcel"].is_string());
    assert!(service.invoice_ended("unpaid")["result"]["unpaid"]["invoice"].is_string());
    assert_eq!(service.pay("p-1", "late", 900), (200, json!({ "result": "already" })));
    let (status, said) = service.pay("p-2", "unpaid", 900);
    assert!(status == 409 && said["error"].as_str().unwrap().contains("withdrawn"), "{status} {said}");
    service.kill();
    let expected =
        [("stock", 998), ("invoice", 2), ("reminder", 4), ("parcels", 1), ("refunds", 0), ("reservations", 1)];
    shop(directory, expected);
    audit(directory);
}

#[test]
fn a_cancelled_order_gives_its_payment_back() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let service = Process::later(directory, Later::default());
    service.invoice("a-1");
    service.invoice("a-2");
    service.approve(directory, "a-1", &people.ann);
    service.waits_at("a-1", "payment");
    service.waits_at("a-2", "approve");
    service.kill();
    let service = Process::later(directory, Later { works: false, ..Later::default() });
    assert_eq!(service.pay("p-1", "a-1", 900).0, 200);
    for id in ["a-1", "a-2"] {
        let path = format!("/invoices/{id}");
        assert_eq!(service.request("DELETE", &path, None).0, 202);
    }
    service.kill();
    let service = Process::later(directory, Later::default());
    for id in ["a-1", "a-2"] {
        assert_eq!(service.invoice_ended(id)["status"], "cancelled");
    }
    let began = std::time::Instant::now();
    while number(directory, "SELECT quantity FROM stock WHERE article = 'tea'") < 1000 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(service.inbox(directory, "GET", "/a-2/2%231", None).0, 409);
    service.kill();
    let expected =
        [("stock", 1000), ("invoice", 1), ("reminder", 0), ("parcels", 0), ("refunds", 1), ("reservations", 0)];
    shop(directory, expected);
}

/// Kills the service again and again while orders are started, approved, paid and shipped. The clients try again until they are
/// answered, as they must.
#[test]
fn orders_on_invoice_are_done_once_despite_kills() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let people = People::trusted_in(directory);
    let orders: Vec<String> = (0..12).map(|order| format!("a-{order}")).collect();
    let mut random = 7_u64;
    let mut pause = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_millis((random >> 33) % 12));
    };
    let start = || Process::later(directory, Later::default());
    let mut service = start();
    let mut killed = |service: &mut Process| {
        pause();
        std::mem::replace(service, start()).kill();
    };
    for (number, id) in orders.iter().enumerate() {
        assert_eq!(service.invoice(id), 202);
        if number % 2 == 0 {
            killed(&mut service);
        }
    }
    for (number, id) in orders.iter().enumerate() {
        service.approve(directory, id, &people.ann);
        if number % 2 == 1 {
            killed(&mut service);
        }
    }
    for (number, id) in orders.iter().enumerate() {
        service.waits_at(id, "payment");
        assert_eq!(service.pay(&format!("p-{id}"), id, 900), (200, json!({ "result": "accepted" })));
        if number % 2 == 0 {
            killed(&mut service);
            assert_eq!(service.pay(&format!("p-{id}"), id, 900), (200, json!({ "result": "already" })));
        }
    }
    for id in &orders {
        assert!(service.invoice_ended(id)["result"]["shipped"]["parcel"].is_string());
    }
    service.kill();
    let expected =
        [("stock", 1000 - 24), ("invoice", 12), ("reminder", 0), ("parcels", 12), ("refunds", 0), ("reservations", 12)];
    shop(directory, expected);
    audit(directory);
}

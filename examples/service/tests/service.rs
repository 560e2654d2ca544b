//! The service as a process: its endpoints, a shutdown and kills.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "service/browser.rs"]
mod browser;
#[path = "service/deploy.rs"]
mod deploy;
#[path = "service/inbox.rs"]
mod inbox;
#[path = "service/process.rs"]
mod process;
#[path = "service/webdriver.rs"]
mod webdriver;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph_runtime::{EncryptionKey, RunId, SecretKey, SqliteStore, Store, audit_tree};
use rusqlite::Connection;
use serde_json::{Value, json};
use service::{Service, Settings};

use crate::process::{Process, number};

#[test]
fn orders_are_started_shown_and_listed() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 1);
    assert_eq!(service.request("GET", "/healthz", None), (200, "ok".to_owned()));
    assert_eq!(service.order("a-1", "tok_1"), 202);
    assert_eq!(service.order("a-1", "tok_1"), 202, "a client that asks again gets the same answer");
    assert_eq!(service.order("a-1", "tok_2"), 409, "but not for another order");
    let shown = service.ended("a-1");
    assert!(shown["result"]["shipped"]["parcel"].as_str().unwrap().starts_with("parcel-"), "{shown}");
    assert_eq!(service.order("a-1", "tok_1"), 202);
    assert_eq!(number(directory.path(), "SELECT count(*) FROM charges"), 1, "and starts no second order");
    assert_eq!(service.order("a-2", "tok_declined"), 202);
    assert_eq!(service.ended("a-2")["result"], json!({ "refused": { "reason": "the card was declined" } }));
    assert_eq!(number(directory.path(), "SELECT quantity FROM stock WHERE article = 'tea'"), 998, "it was released");
    let inputs = json!({ "article": "teapot", "quantity": 4, "card": "tok_1" });
    assert_eq!(service.request("POST", "/orders/a-3", Some(&inputs)).0, 202);
    assert_eq!(service.ended("a-3")["result"], json!({ "sold_out": { "reason": "there are not 4 of teapot" } }));

    for (body, status, said) in [
        (json!({ "article": "tea", "quantity": "two", "card": "tok_1" }), 422, "quantity"),
        (json!({ "article": "tea", "card": "tok_1" }), 422, "quantity"),
    ] {
        let (found, body) = service.request("POST", "/orders/a-4", Some(&body));
        assert!(found == status && body.contains(said), "{found} {body}");
    }
    assert_eq!(service.request("GET", "/orders/a-4", None).0, 404);
    assert_eq!(service.request("GET", "/orders/a%20b", None).0, 400);
    assert_eq!(service.request("DELETE", "/orders/a-4", None).0, 404);
    assert_eq!(service.request("DELETE", "/orders/a-1", None).0, 410, "it has ended");

    let (_, list) = service.request("GET", "/orders?status=completed", None);
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((list["orders"].as_array().unwrap().len(), &list["next"]), (3, &Value::Null), "{list}");
    assert_eq!(service.request("GET", "/orders?after=nowhere", None).0, 422);
    let (_, metrics) = service.request("GET", "/metrics", None);
    for line in [
        "graph_runs_started_total{graph=\"shop/fulfil\"} 3",
        "graph_visits_total{graph=\"shop/fulfil\",node=\"charge\",outcome=\"failed\"} 1",
        "graph_runs_in_progress{graph=\"shop/fulfil\"} 0",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    for file in ["runs.db", "runs.db-wal"] {
        let bytes = std::fs::read(directory.path().join(file)).unwrap();
        assert!(!bytes.windows(5).any(|bytes| bytes == b"tok_1"), "{file} holds the token of a card");
    }
}

#[test]
fn a_cancelled_order_calls_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 60_000);
    assert_eq!(service.order("a-1", "tok_1"), 202);
    service.wait_until_at("a-1", "charge");
    assert_eq!(service.request("DELETE", "/orders/a-1", None).0, 202);
    assert_eq!(service.ended("a-1")["status"], "cancelled");
    assert_eq!(number(directory.path(), "SELECT count(*) FROM charges"), 0);
    // The reserved articles are back in the stock.
    let began = Instant::now();
    while number(directory.path(), "SELECT quantity FROM stock WHERE article = 'tea'") < 1000 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    // An order that a crash left cancelled is undone at the next start.
    assert_eq!(service.order("a-2", "tok_1"), 202);
    service.wait_until_at("a-2", "charge");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = tokio.block_on(SqliteStore::open(directory.path().join("runs.db"))).unwrap();
    tokio.block_on(store.cancel(&RunId::new("a-2").unwrap())).unwrap();
    assert_eq!(service.ended("a-2")["status"], "cancelled");
    assert_eq!(number(directory.path(), "SELECT count(*) FROM reservations"), 1);
    service.kill();
    drop(Process::start(directory.path(), 1));
    assert_eq!(number(directory.path(), "SELECT quantity FROM stock WHERE article = 'tea'"), 1000);
    assert_eq!(number(directory.path(), "SELECT count(*) FROM reservations"), 0);
}

#[test]
fn many_orders_at_once_are_all_fulfilled() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 5);
    std::thread::scope(|scope| {
        for client in 0..16 {
            let service = &service;
            scope.spawn(move || {
                for order in 0..10 {
                    assert_eq!(service.order(&format!("{client}-{order}"), "tok_1"), 202);
                }
            });
        }
    });
    for client in 0..16 {
        for order in 0..10 {
            assert_eq!(service.ended(&format!("{client}-{order}"))["status"], "completed");
        }
    }
    assert_eq!(number(directory.path(), "SELECT count(*) FROM parcels"), 160);
}

#[test]
fn a_client_follows_an_order_over_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 60_000);
    assert_eq!(service.events("nothing", None, usize::MAX), (404, Vec::new()));
    assert_eq!(service.order("a-1", "tok_1"), 202);
    service.wait_until_at("a-1", "charge");
    let (status, begun) = service.events("a-1", None, 2);
    assert_eq!((status, names(&begun)), (200, vec!["started", "visited"]));
    assert_eq!(service.events("a-1", Some("a-2@1.0"), usize::MAX).0, 422);
    service.kill();
    // The service continues the order when it starts again.
    let service = Process::start(directory.path(), 1);
    let (_, rest) = service.events("a-1", Some(&begun[1].0), usize::MAX);
    let durable: Vec<_> = rest.iter().filter(|(id, _)| !id.is_empty()).cloned().collect();
    assert_eq!(names(&durable), ["resumed", "visited", "visited", "visited", "ended"]);
    let (_, whole) = service.events("a-1", None, usize::MAX);
    assert_eq!(whole, [begun, durable].concat());
    // A browser that has all of it connects no more.
    let last = &whole.last().unwrap().0;
    assert_eq!(service.events("a-1", Some(last), usize::MAX), (204, Vec::new()));
    assert_eq!(service.events("a-1", Some("a-1@99.0"), usize::MAX).0, 400);
    assert!(whole.iter().all(|(_, event)| !event.to_string().contains("tok_1")), "{whole:?}");
}

/// Returns the kinds of events.
fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(_, event)| event["event"].as_str().unwrap()).collect()
}

#[test]
fn an_open_stream_does_not_delay_the_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 60_000);
    assert_eq!(service.order("a-1", "tok_1"), 202);
    service.wait_until_at("a-1", "charge");
    let address = service.address.clone();
    let reader = std::thread::spawn(move || process::events_at(&address, "a-1", None, usize::MAX));
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    // The stream ends before the call in progress, which has until the deadline of the runs.
    let stopping = std::thread::spawn(move || service.terminate());
    let (_, events) = reader.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(names(&events)[0], "started");
    assert!(stopping.join().unwrap());
}

#[test]
fn a_failed_order_is_resumed_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 1);
    let shop = Connection::open(directory.path().join("shop.db")).unwrap();
    shop.execute_batch("ALTER TABLE parcels RENAME TO lost").unwrap();
    assert_eq!(service.order("a-1", "tok_1"), 202);
    let shown = service.ended("a-1");
    assert_eq!(shown, json!({ "status": "error", "at": "ship" }), "no error of the database is shown");
    shop.execute_batch("ALTER TABLE lost RENAME TO parcels").unwrap();
    assert_eq!(service.request("POST", "/orders/a-1/resume", None).0, 202);
    assert_eq!(service.ended("a-1")["status"], "completed");
    assert_eq!(service.request("POST", "/orders/a-1/resume", None).0, 409);
    assert_eq!(number(directory.path(), "SELECT count(*) FROM charges"), 1);
}

#[test]
fn half_a_request_does_not_delay_the_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 1);
    let mut client = TcpStream::connect(&service.address).unwrap();
    let head = "POST /orders/a-1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    client.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    assert!(service.terminate());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn a_terminated_service_stops_and_continues_later() {
    let directory = tempfile::tempdir().unwrap();
    let service = Process::start(directory.path(), 300);
    for order in 0..8 {
        assert_eq!(service.order(&format!("a-{order}"), "tok_1"), 202);
    }
    service.wait_until_at("a-7", "charge");
    assert!(service.terminate());
    let service = Process::start(directory.path(), 1);
    for order in 0..8 {
        assert_eq!(service.ended(&format!("a-{order}"))["status"], "completed");
    }
    assert_eq!(number(directory.path(), "SELECT count(*) FROM charges"), 8);
}

/// Kills the service again and again while orders are fulfilled: each is fulfilled once, and its journal proves it.
#[test]
fn a_killed_service_fulfils_each_order_once() {
    let directory = tempfile::tempdir().unwrap();
    let orders: u32 = 24;
    let mut service = Process::start(directory.path(), 20);
    for order in 0..orders {
        assert_eq!(service.order(&format!("a-{order}"), "tok_1"), 202);
        if order % 4 == 3 {
            // Each time at another point.
            std::thread::sleep(Duration::from_millis(u64::from(order)));
            service.kill();
            service = Process::start(directory.path(), 20);
        }
    }
    for order in 0..orders {
        let shown = service.ended(&format!("a-{order}"));
        assert!(shown["result"]["shipped"]["receipt"].is_string(), "{shown}");
    }
    let orders_done = i64::from(orders);
    for (query, expected) in [
        ("SELECT count(*) FROM reservations", orders_done),
        ("SELECT count(*) FROM charges", orders_done),
        ("SELECT sum(amount_cents) FROM charges", orders_done * 900),
        ("SELECT count(*) FROM parcels", orders_done),
        ("SELECT quantity FROM stock WHERE article = 'tea'", 1000 - 2 * orders_done),
    ] {
        assert_eq!(number(directory.path(), query), expected, "{query}");
    }
    assert!(service.terminate());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let service = Service::open(&Settings::new(directory.path())).await.unwrap();
        let key = SecretKey::load(&directory.path().join("keys/private_key.pem")).unwrap().public();
        let encryption_key = EncryptionKey::load(&directory.path().join("encryption.key")).unwrap();
        for run in service.store.list().await.unwrap() {
            audit_tree(Arc::new(service.fulfil.clone()), &run.run, &service.store, &key, Some(&encryption_key))
                .await
                .unwrap();
        }
    });
}

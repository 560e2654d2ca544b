//! The service as a process, for tests that start, kill and restart it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use graph_runtime::{Clock, Sleeping, SystemClock};
use rusqlite::Connection;
use serde_json::{Value, json};
use service::{Service, Settings, http};

/// The secret of the payment service.
pub(crate) const PAYMENT_SECRET: &str = "a secret of the payment service alone";

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A running service. It is killed when it is dropped, unless it runs in the process of the test.
pub(crate) struct Process {
    child: Option<Child>,
    pub(crate) address: String,
}

/// How a service of a test differs from that of the binary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Later<'a> {
    /// How much its clock is ahead.
    pub(crate) by: Duration,
    /// Whether it continues runs. Without that, each stage of an order stays as it is until the process is killed.
    pub(crate) works: bool,
    pub(crate) address: &'a str,
}

impl Default for Later<'_> {
    fn default() -> Self {
        Self { by: Duration::ZERO, works: true, address: "127.0.0.1:0" }
    }
}

impl Process {
    /// Starts the service, and waits until it listens.
    pub(crate) fn start(directory: &Path, payment_millis: u32) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_service"));
        command
            .env("DATA", directory)
            .env("ADDRESS", "127.0.0.1:0")
            .env("PAYMENT_MILLIS", payment_millis.to_string())
            .env("PAYMENT_SECRET", PAYMENT_SECRET);
        Self::listening(command)
    }

    /// Starts the service at another time.
    pub(crate) fn later(directory: &Path, later: Later<'_>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["process::a_service_at_another_time", "--exact", "--ignored", "--nocapture"])
            .env("DATA", directory)
            .env("ADDRESS", later.address)
            .env("LATER", later.by.as_secs().to_string())
            .env("WORKS", later.works.to_string())
            .stdout(Stdio::null());
        Self::listening(command)
    }

    fn listening(mut command: Command) -> Self {
        let mut child = command.env("NO_COLOR", "1").stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let start = seen.len();
            assert_ne!(log.read_line(&mut seen).unwrap(), 0, "the service ended:\n{seen}");
            if let Some((_, address)) = seen[start..].split_once("listening address=") {
                break address.trim().to_owned();
            }
        };
        // Nobody may stop the service by not reading its log.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child: Some(child), address }
    }

    /// A service that listens in the process of the test.
    pub(crate) fn here(address: String) -> Self {
        Self { child: None, address }
    }

    /// Sends a request, and returns the status and the body.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let (status, _, body) = self.send(method, path, &[], body.as_bytes());
        (status, body)
    }

    /// Sends a request with headers of its own, and returns the status, the head and the body.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A body that is too large is not read to its end.
        drop(stream.write_all(body));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    pub(crate) fn order(&self, id: &str, card: &str) -> u16 {
        let inputs = json!({ "article": "tea", "quantity": 2, "card": card });
        self.request("POST", &format!("/orders/{id}"), Some(&inputs)).0
    }

    /// Returns what the service shows at a path.
    pub(crate) fn shown(&self, path: &str) -> Value {
        let (status, body) = self.request("GET", path, None);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until an order is no longer running, and returns what the service shows of it.
    pub(crate) fn ended(&self, id: &str) -> Value {
        self.until(&format!("/orders/{id}"), |shown| shown["status"] != "running")
    }

    /// Waits until an order is at a node.
    pub(crate) fn wait_until_at(&self, id: &str, node: &str) {
        self.until(&format!("/orders/{id}"), |shown| shown["at"] == json!([node]));
    }

    /// Waits until the service shows at a path what a test waits for.
    pub(crate) fn until(&self, path: &str, is_there: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let shown = self.shown(path);
            if is_there(&shown) {
                return shown;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{shown}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the service as a loss of power would.
    /// Reads the events of an order from after a cursor: to their end, or `most` of them. Returns the status, and each event with its id.
    pub(crate) fn events(&self, order: &str, after: Option<&str>, most: usize) -> (u16, Vec<(String, Value)>) {
        events_at(&self.address, order, after, most)
    }

    pub(crate) fn kill(mut self) {
        let child = self.child.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks the service to stop, as a supervisor does, and waits for it. Returns whether it exited with success.
    pub(crate) fn terminate(mut self) -> bool {
        let child = self.child.as_mut().unwrap();
        let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already where a test stopped it.
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// As [`Process::events`], of the service at an address. A client that is cut off has what it received.
pub(crate) fn events_at(address: &str, order: &str, after: Option<&str>, most: usize) -> (u16, Vec<(String, Value)>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let after = after.map_or_else(String::new, |cursor| format!("Last-Event-ID: {cursor}\r\n"));
    let path = format!("/orders/{order}/events");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{after}\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let (mut events, mut id, mut data, mut is_error) = (Vec::new(), String::new(), None, false);
    while events.len() < most
        && let Some(line) = lines.next()
    {
        match line.split_once(": ") {
            Some(("id", cursor)) => cursor.clone_into(&mut id),
            Some(("event", name)) => is_error = name == "problem",
            Some(("data", text)) => data = Some(text.to_owned()),
            _ if line.is_empty() => {
                if let Some(text) = data.take().filter(|_| !is_error) {
                    events.push((std::mem::take(&mut id), serde_json::from_str(&text).unwrap()));
                }
            }
            _ => {}
        }
    }
    (status, events)
}

/// Returns a number that the shop's database holds.
pub(crate) fn number(directory: &Path, query: &str) -> i64 {
    let shop = Connection::open(directory.join("shop.db")).unwrap();
    shop.busy_timeout(Duration::from_secs(10)).unwrap();
    shop.query_row(query, [], |row| row.get(0)).unwrap()
}

/// The computer's clock, some days ahead.
#[derive(Debug)]
struct Ahead {
    by: Duration,
    clock: SystemClock,
}

impl Clock for Ahead {
    fn now(&self) -> SystemTime {
        self.clock.now() + self.by
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        self.clock.sleep(time)
    }
}

/// The settings of a service whose clock is ahead.
pub(crate) fn settings(directory: &Path, by: Duration) -> Settings {
    Settings {
        payment_secret: Some(PAYMENT_SECRET.to_owned()),
        clock: Arc::new(Ahead { by, clock: SystemClock::new() }),
        ..Settings::new(directory)
    }
}

#[test]
#[ignore = "it is the process that `Process::later` starts"]
fn a_service_at_another_time() {
    let variable = |name: &str| std::env::var(name).unwrap();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let by = Duration::from_secs(variable("LATER").parse().unwrap());
        let service = Service::open(&settings(Path::new(&variable("DATA")), by)).await.unwrap();
        let listener = tokio::net::TcpListener::bind(variable("ADDRESS")).await.unwrap();
        let worker = (variable("WORKS") == "true").then(|| service.work().unwrap());
        service.undo_cancelled().await.unwrap();
        tracing::info!(address = %listener.local_addr().unwrap(), "listening");
        axum::serve(listener, http::router(service)).await.unwrap();
        drop(worker);
    });
}

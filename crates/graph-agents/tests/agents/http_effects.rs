//! The effects of `effects.rs`, of requests: a server in another thread counts them by the keys that they have.
//!
//! A server has no virtual time, so the clock of these runs is as fast as it may be while a request is answered in time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use graph_runtime::{Clock, Sleeping};
use serde_json::Value;

use crate::effects::{Effects, How};

/// How many times faster the clock is than the computer's: a `timeout` of five seconds is more than a second.
const FAST: u32 = 4;

/// A clock that is too fast.
#[derive(Debug)]
pub(crate) struct FastClock(Instant);

impl FastClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for FastClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600) + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed() * FAST
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        Box::pin(tokio::time::sleep(time / FAST))
    }
}

/// Serves requests until the program ends, and returns the address.
pub(crate) fn serve(effects: Effects) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, effects) = (stream.unwrap(), Arc::clone(&effects));
            // A client may go away before it gets its answer.
            std::thread::spawn(move || drop(reply(stream, &effects)));
        }
    });
    address
}

fn reply(mut stream: TcpStream, effects: &Effects) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = value.to_owned(),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body)?;
    let how = How::named(body["how"].as_str().unwrap());
    let effect = ("test/tell".to_owned(), key);
    let times = {
        let mut effects = effects.lock().unwrap();
        effects.push(effect.clone());
        effects.iter().filter(|other| **other == effect).count()
    };
    let status = match how {
        How::Permanent => "400 Bad Request",
        How::RateLimited => "429 Too Many Requests",
        How::Transient => "503 Service Unavailable",
        How::Once if times == 1 => "503 Service Unavailable",
        // The answer gets lost.
        How::TransientText => return Ok(()),
        // The text is not UTF-8.
        How::PermanentText => return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n\xff"),
        How::Stalls => {
            std::thread::sleep(Duration::from_secs(20));
            return Ok(());
        }
        How::Succeeds | How::Once | How::Cancelled | How::Panics => "200 OK",
    };
    stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").as_bytes())
}

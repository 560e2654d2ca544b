//! The process of a program that calls tools, and the socket between it and the runtime.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use graph_engine::{ActionError, Call};
use graph_model::number::read_json;
use graph_model::subprocess::Subprocess;
use graph_model::value::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use super::rpc::{self, CallAnswer, ProgramTool, RpcMessage, WantedCall};
use crate::process::{EndedProcess, GRACE, RunningProcess};
use crate::subprocess;

/// The most bytes of a message.
const MOST_MESSAGE: usize = 8 << 20;

/// How many requests of a process may be refused.
const MOST_REFUSED: usize = 10_000;

/// A program that runs, or waits for the results of its calls. If it is dropped, its process and those that it started are killed.
pub(super) struct LiveProgram {
    /// The process, until it has ended.
    running: Option<RunningProcess>,
    ended: Option<EndedProcess>,
    received: BufReader<ChildStdout>,
    /// The beginning of a message.
    part: Vec<u8>,
    /// Whether the program has closed the socket.
    is_closed: bool,
    /// Its messages, until it has ended.
    sent: Option<mpsc::UnboundedSender<Vec<u8>>>,
    tools: Vec<ProgramTool>,
    /// The message that waits for its response.
    open: Option<RpcMessage>,
    turns: usize,
    refused: usize,
}

/// The end of a turn.
pub(super) enum TurnEnd {
    /// The program wants calls.
    Calls(Vec<WantedCall>),
    /// It has ended without a failure.
    Ended,
}

impl LiveProgram {
    /// Starts a program, which gets its inputs as the first line.
    pub(super) async fn start(
        program: &Subprocess,
        call: &Call,
        tools: Vec<ProgramTool>,
        inputs: &Value,
    ) -> Result<Self, ActionError> {
        let (own, theirs) = UnixStream::pair()?;
        let (received, mut send) = halves(own)?;
        let mut running = subprocess::start(program, call, Stdio::from(OwnedFd::from(theirs))).await?;
        let (sent, mut lines) = mpsc::unbounded_channel::<Vec<u8>>();
        running.spawn(async move {
            while let Some(line) = lines.recv().await {
                // A program need not read all that it is sent.
                if let Err(error) = send.write_all(&line).await {
                    tracing::debug!(%error, "the program did not read its messages");
                    return;
                }
            }
        });
        let live = Self {
            running: Some(running),
            ended: None,
            received: BufReader::new(received),
            part: Vec::new(),
            is_closed: false,
            sent: Some(sent),
            tools,
            open: None,
            turns: 0,
            refused: 0,
        };
        live.send(rpc::line(inputs));
        Ok(live)
    }

    /// Returns how many turns it has taken.
    pub(super) fn turns(&self) -> usize {
        self.turns
    }

    /// Answers the calls that it wanted.
    pub(super) fn answer(&mut self, answers: Vec<CallAnswer>) {
        if let Some(message) = self.open.take() {
            self.send(message.response(answers));
        }
    }

    fn send(&self, line: Vec<u8>) {
        // The receiver is gone if the program no longer reads; its end or its next message says more.
        if let Some(sent) = &self.sent {
            sent.send(line).ok();
        }
    }

    /// Lets it run until it wants calls or ends. Requests that are refused are answered at once. Messages that it sent before its end
    /// are taken first, so it does not matter which of the two is noticed first.
    ///
    /// # Errors
    ///
    /// If it fails, or sends a message that cannot be read.
    pub(super) async fn next(&mut self) -> Result<TurnEnd, ActionError> {
        loop {
            let line = match (self.running.take(), &self.ended) {
                (Some(mut running), _) => {
                    let ended = tokio::select! {
                        biased;
                        line = self.line(), if !self.is_closed => Err(line),
                        ended = running.ended() => Ok(ended),
                    };
                    match ended {
                        Err(line) => {
                            self.running = Some(running);
                            line?
                        }
                        Ok(ended) => {
                            self.sent = None;
                            self.ended = Some(running.collect(ended).await?);
                            continue;
                        }
                    }
                }
                (None, Some(ended)) => {
                    let failure = ended.failure(&[0]);
                    // A process that left the group may hold the socket forever.
                    let last = match self.is_closed {
                        true => Ok(None),
                        false => tokio::time::timeout(GRACE, self.line()).await.unwrap_or(Ok(None)),
                    };
                    match (last, failure) {
                        (Ok(Some(line)), _) => Some(line),
                        (_, Some(failure)) => return Err(failure),
                        (Ok(None), None) => return Ok(TurnEnd::Ended),
                        (Err(error), None) => return Err(error),
                    }
                }
                (None, None) => return Err(ActionError::permanent("the program is not running")),
            };
            if let Some(line) = line
                && let Some(calls) = self.take(&line)?
            {
                return Ok(TurnEnd::Calls(calls));
            }
        }
    }

    /// Takes a message. Returns the calls that are to be made, if there are some.
    fn take(&mut self, line: &[u8]) -> Result<Option<Vec<WantedCall>>, ActionError> {
        let message = RpcMessage::read(line, &self.tools)?;
        self.refused += message.refused();
        if self.refused > MOST_REFUSED {
            let message = format!("the program was stopped: more than {MOST_REFUSED} of its requests were refused");
            return Err(ActionError::permanent(message));
        }
        let calls = message.calls(self.turns + 1);
        if calls.is_empty() {
            self.send(message.response([]));
            return Ok(None);
        }
        self.turns += 1;
        self.open = Some(message);
        Ok(Some(calls))
    }

    /// Reads a line; `None` at the end of the socket. A caller that no longer waits may read on.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, ActionError> {
        loop {
            let bytes = match self.received.fill_buf().await {
                Ok(bytes) => bytes,
                // The program ended with messages that it had not read.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => &[],
                Err(error) => return Err(error.into()),
            };
            let (length, is_whole) = match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (bytes.len(), false),
            };
            if length == 0 {
                self.is_closed = true;
                return match self.part.is_empty() {
                    true => Ok(None),
                    false => Err(ActionError::permanent("the program ended in the middle of a message")),
                };
            }
            self.part.extend_from_slice(&bytes[..length]);
            self.received.consume(length);
            if self.part.len() > MOST_MESSAGE {
                let most = MOST_MESSAGE >> 20;
                return Err(ActionError::permanent(format!("a message of the program has more than {most} MiB")));
            }
            if is_whole {
                return Ok(Some(std::mem::take(&mut self.part)));
            }
        }
    }

    /// Returns the result of a program that has ended: the JSON value that it printed.
    pub(super) fn result(self) -> Result<Value, ActionError> {
        let ended = self.ended.ok_or_else(|| ActionError::permanent("the program has not ended"))?;
        read_json(&ended.stdout).map_err(|error| {
            let message = format!("the program printed no JSON value, which would be its result: {error}");
            ActionError::permanent(message).with_data(ended.to_value())
        })
    }
}

/// Returns the halves of a socket that reads and writes without blocking a thread. The kinds of pipes that tokio has for processes can be
/// any descriptor, and need no other part of it.
fn halves(socket: UnixStream) -> io::Result<(ChildStdout, ChildStdin)> {
    let reader = std::process::ChildStdout::from(OwnedFd::from(socket.try_clone()?));
    let writer = std::process::ChildStdin::from(OwnedFd::from(socket));
    Ok((ChildStdout::from_std(reader)?, ChildStdin::from_std(writer)?))
}

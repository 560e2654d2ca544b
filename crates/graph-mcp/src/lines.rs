//! The connection to a server that was started: a line is a message. It says which lines cannot be read, and why.

use std::io;
use std::sync::Arc;

use graph_model::value::Value;
use rmcp::model::RequestId;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::sync::{Mutex, broadcast, mpsc};

/// How many messages wait to be read, and how many lines that cannot be read are remembered.
const WAITING: usize = 16;

/// A line of a server that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadableLine {
    /// The request that it answers, if that can be read.
    answers: Option<RequestId>,
    /// Whether it is meant as a message, and not as a text for people.
    is_message: bool,
    /// Why it cannot be read: `sent …`.
    pub(crate) reason: String,
}

impl UnreadableLine {
    /// Whether it may be the answer to a request: it is the answer to no other one.
    pub(crate) fn may_answer(&self, request: &RequestId) -> bool {
        self.answers.as_ref().is_none_or(|answers| answers == request)
    }

    /// Whether it is meant as a message. Some servers greet people before they are asked anything.
    pub(crate) fn is_message(&self) -> bool {
        self.is_message
    }

    /// A line that is no message: the answer to a request with this id, if it names one.
    fn of(line: &[u8], error: &serde_json::Error) -> Option<Self> {
        let is_message = line.first().is_some_and(|first| matches!(first, b'{' | b'['));
        let reason = format!("sent a message that cannot be read: {error}");
        let unreadable = Self { answers: None, is_message, reason };
        match serde_json::from_slice::<Value>(line) {
            // A request or notification that this client does not know is the answer to nothing.
            Ok(value) if value.get("method").is_some() => None,
            Ok(value) => {
                let answers = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
                Some(Self { answers, ..unreadable })
            }
            Err(_) => Some(unreadable),
        }
    }
}

/// A connection over the pipes of a program.
pub(crate) struct LineTransport<W> {
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    write: Arc<Mutex<Option<W>>>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> LineTransport<W> {
    /// Reads lines of at most so many bytes in a task of its own, until the pipe is closed. Those that cannot be read go to
    /// `unreadable`.
    pub(crate) fn new(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: W,
        most_bytes: usize,
        unreadable: broadcast::Sender<UnreadableLine>,
    ) -> Self {
        let (sender, messages) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let mut lines = LineReader { read: BufReader::new(read), most_bytes, is_within: false };
            while let Ok(Some(line)) = lines.next().await {
                let found = match line {
                    ReadLine::Whole(line) => match serde_json::from_slice(&line) {
                        Ok(message) => match sender.send(message).await {
                            Ok(()) => continue,
                            Err(_) => return,
                        },
                        Err(error) => UnreadableLine::of(&line, &error),
                    },
                    ReadLine::TooLong => {
                        let reason = format!("sent a message of more than {most_bytes} bytes");
                        Some(UnreadableLine { answers: None, is_message: true, reason })
                    }
                };
                if let Some(found) = found {
                    // Nobody hears it if no request is in progress.
                    drop(unreadable.send(found));
                }
            }
        });
        Self { messages, write: Arc::new(Mutex::new(Some(write))) }
    }
}

/// Returns what lines that cannot be read are sent to.
pub(crate) fn unreadable() -> broadcast::Sender<UnreadableLine> {
    broadcast::Sender::new(WAITING)
}

/// A line that was read.
#[derive(Debug, PartialEq)]
enum ReadLine {
    Whole(Vec<u8>),
    TooLong,
}

/// The lines of a program.
struct LineReader<R> {
    read: R,
    most_bytes: usize,
    /// Whether it is within a line that is too long.
    is_within: bool,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    /// Reads the next line that is not empty; `None` if there is no other. A line that is too long is reported before it ends.
    async fn next(&mut self) -> io::Result<Option<ReadLine>> {
        loop {
            let mut line = Vec::new();
            let limit = self.most_bytes as u64 + 1;
            if (&mut self.read).take(limit).read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            let is_whole = line.last() == Some(&b'\n');
            if self.is_within {
                self.is_within = !is_whole;
                continue;
            }
            if !is_whole && line.len() > self.most_bytes {
                self.is_within = true;
                return Ok(Some(ReadLine::TooLong));
            }
            line.truncate(line.trim_ascii_end().len());
            if !line.is_empty() && is_whole {
                return Ok(Some(ReadLine::Whole(line)));
            }
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleClient> for LineTransport<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let write = Arc::clone(&self.write);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut write = write.lock().await;
            let Some(write) = write.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            write.write_all(&line).await?;
            write.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &[u8], most_bytes: usize) -> Vec<ReadLine> {
        let mut lines = LineReader { read: BufReader::with_capacity(3, text), most_bytes, is_within: false };
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    #[tokio::test]
    async fn lines_are_whole_or_too_long_and_never_a_part_of_one() {
        let whole = |text: &str| ReadLine::Whole(text.as_bytes().to_vec());
        assert_eq!(read(b"one\r\n\n \ntwo\ncut off", 8).await, [whole("one"), whole("two")]);
        assert_eq!(read(b"12345678\n123456789\nx\n", 8).await, [whole("12345678"), ReadLine::TooLong, whole("x")]);
        let long = [b"y".repeat(100), b"\nz\n".to_vec()].concat();
        assert_eq!(read(&long, 8).await, [ReadLine::TooLong, whole("z")]);
    }

    #[test]
    fn a_line_that_cannot_be_read_answers_the_request_that_it_names_or_any() {
        let of = |line: &str| {
            let error = serde_json::from_str::<RxJsonRpcMessage<RoleClient>>(line).unwrap_err();
            UnreadableLine::of(line.as_bytes(), &error)
        };
        let (one, two) = (RequestId::Number(1), RequestId::Number(2));
        let without_version = of(r#"{"id":1,"result":{}}"#).unwrap();
        assert!(without_version.may_answer(&one) && !without_version.may_answer(&two) && without_version.is_message());
        let deep =
            of(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}{}}}"#, "[".repeat(300), "]".repeat(300))).unwrap();
        assert!(deep.may_answer(&one) && deep.may_answer(&two), "its id cannot be read");
        assert!(deep.reason.contains("recursion limit"), "{}", deep.reason);
        let text = of("Listening.").unwrap();
        assert!(text.may_answer(&two) && !text.is_message());
        assert_eq!(of(r#"{"method":"notifications/unknown","params":7}"#), None);
    }
}

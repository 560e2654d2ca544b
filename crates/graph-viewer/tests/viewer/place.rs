//! A directory with graphs, a store and a viewer of it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_runtime::answer::KeyRing;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Toolbox, Tools};
use graph_runtime::record::Start;
use graph_runtime::{ActionError, Call, EncryptionKey, ItemId, Map, Runtime, SecretKey, SqliteStore, Store, Value};
use graph_signing::{ItemKind, KeyFile, sign};
use graph_viewer::{AnswerRights, BoundViewer, FindGraph, ViewedPlace, ViewerOptions};
use serde_json::json;

/// The key that signs graphs, journals and answers.
pub(crate) fn key() -> SecretKey {
    SecretKey::from_seed(&[9; 32])
}

/// The directory of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// A directory with a tree of graphs in `graphs`, and a store in `runs.db`.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// The head of a graph that calls tools.
pub(crate) const HEAD: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                               permissions: [rye.execute.tool.*, rye.execute.graph.*]\n";

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let file = KeyFile::new(key().public(), "Ann");
        let text = file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH);
        place.write(&format!("graphs/keys/{}.toml", file.fingerprint), text.as_bytes());
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Writes a signed file of the tree: a graph or a contract.
    pub(crate) fn sign(&self, name: &str, text: &str) {
        let signed = sign(ItemKind::YAML, text, &key(), SystemTime::UNIX_EPOCH).unwrap();
        self.write(&format!("graphs/{name}"), signed.as_bytes());
    }

    /// Writes a graph.
    pub(crate) fn graph(&self, id: &str, config: &str) {
        self.sign(&format!("{id}.yaml"), &format!("{HEAD}{config}"));
    }

    /// Loads a graph of the tree, with tools.
    pub(crate) fn load(&self, id: &str, tools: impl Tools) -> Interpreted {
        let library = Library::open(&self.path("graphs"), tools);
        let file = library.find(&ItemId::new(id).unwrap()).unwrap_or_else(|| panic!("there is no graph {id}"));
        library.graph(&file).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.path("runs.db")
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.store_path()).await.unwrap()
    }

    /// A runtime that writes to the store, or to another one.
    pub(crate) fn runtime(&self, store: impl Store) -> Runtime {
        let keys = self.path("graphs/keys");
        let ring = move || -> KeyRing { KeyRing::load(&[&keys]).0 };
        let builder = Runtime::builder().store(store).sign_with(key()).answer_keys(ring);
        let builder = builder.encrypt_with(EncryptionKey::from_bytes([3; 32])).grant("rye.*").unwrap();
        builder.build().unwrap()
    }

    fn graphs(&self) -> Arc<FindGraph> {
        let root = self.path("graphs");
        Arc::new(move |id: &str, _: Option<&Start>| {
            let library = Library::open(&root, Toolbox::new());
            let file = ItemId::new(id).ok().and_then(|id| library.find(&id));
            let file = file.ok_or_else(|| format!("there is no graph `{id}` in the tree `graphs`"))?;
            library.graph(&file).map_err(|error| error.to_string())
        })
    }

    /// Starts a viewer of the store.
    pub(crate) fn viewer(&self) -> Served {
        Served::start(self.options(ViewedPlace::Store(self.store_path())))
    }

    pub(crate) fn options(&self, place: ViewedPlace) -> ViewerOptions {
        ViewerOptions { place, key: key().public(), files_key: None, graphs: self.graphs(), answers: None }
    }

    /// Starts a viewer of the store that answers questions.
    pub(crate) fn answering_viewer(&self) -> Served {
        let tokio = tokio();
        let store = tokio.block_on(self.store());
        let answers = Some(AnswerRights { runtime: self.runtime(store), key: key() });
        let options = ViewerOptions { answers, ..self.options(ViewedPlace::Store(self.store_path())) };
        Served::start_in(tokio, options)
    }
}

pub(crate) fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A function that performs every tool, by its id.
pub(crate) struct Everything<F>(pub(crate) F);

impl<F> Tools for Everything<F>
where
    F: Fn(&Call, &TypedTool, Map<String, Value>) -> Result<Value, ActionError> + Send + Sync + 'static,
{
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let result = (self.0)(call, row, params);
        Box::pin(async move { result })
    }
}

/// A viewer on a runtime of its own, which ends when it is dropped.
pub(crate) struct Served {
    pub(crate) url: String,
    tokio: Option<tokio::runtime::Runtime>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Served {
    pub(crate) fn start(options: ViewerOptions) -> Self {
        Self::start_in(tokio(), options)
    }

    fn start_in(tokio: tokio::runtime::Runtime, options: ViewerOptions) -> Self {
        let viewer = tokio.block_on(BoundViewer::bind(options, 0)).unwrap();
        let url = viewer.url();
        tokio.spawn(viewer.serve(std::future::pending()));
        Self { url, tokio: Some(tokio) }
    }

    /// The host and the port.
    pub(crate) fn host(&self) -> &str {
        self.url.strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    /// The path of the page: the token between slashes.
    pub(crate) fn base(&self) -> &str {
        self.url.strip_prefix("http://").unwrap().strip_prefix(self.host()).unwrap()
    }

    /// Sends bytes, and reads what comes until the other side ends.
    pub(crate) fn send(&self, bytes: &[u8]) -> Option<Response> {
        let mut stream = TcpStream::connect(self.host()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The server may end before it has read all.
        drop(stream.write_all(bytes));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Response { status, head, body: answer[end + 4..].to_vec() })
    }

    /// Sends a request whose address is behind the token.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let (base, host, length) = (self.base(), self.host(), body.len());
        let head = format!("{method} {base}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}");
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {length}\r\n") };
        self.send(format!("{head}{length}\r\n{body}").as_bytes()).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.request("GET", path, "", "")
    }

    /// Returns the data at an address behind `api/`.
    pub(crate) fn api(&self, path: &str) -> Value {
        let response = self.get(&format!("api/{path}"));
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    }

    /// Sends an answer as the page does.
    pub(crate) fn answer(&self, run: &str, wait: &str, answer: &Value) -> Response {
        let origin = format!(
            "Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n",
            self.host()
        );
        self.request(
            "POST",
            &format!("api/run/{run}/answer"),
            &origin,
            &json!({"wait": wait, "answer": answer}).to_string(),
        )
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.tokio.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

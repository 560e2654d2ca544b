//! `graph mcp`: graphs as the tools of a server that speaks the Model Context Protocol.

mod authoring;
mod import;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use graph_compiler::{find_contract_graphs, find_graphs};
use graph_mcp::{BoundServer, GraphServer, GraphServerBuilder, HttpGuard};
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::{Fingerprint, Options, Progress, SqliteStore};
use graph_signing::SecretKey;

use super::answer::ring;
use super::run::authority::Authority;
use super::run::failure::{RunCommandFailure, USAGE, Voice};
use super::run::means::MeansArguments;
use super::run::signals::Signals;
use super::run::{Timeout, load, show, timeout, unstarted};
use super::{read, signing_key, stored};
use crate::outcome::Error;
use crate::output::UNDONE;

/// How many events of runs are kept for a client that does not read its progress.
const MOST_EVENTS: usize = 1024;

/// How long calls in progress may take when the server stops.
const PATIENCE: Duration = Duration::from_secs(10);

/// The Model Context Protocol.
#[derive(Subcommand)]
pub(crate) enum Mcp {
    /// Serve graphs as tools: each call starts a run. Over stdio, unless `--http` names an address
    Serve(Box<ServeArguments>),
    /// Write and sign contracts of the tools of a server, which graphs can call then
    Import(import::ImportArguments),
}

#[derive(Args)]
pub(crate) struct ServeArguments {
    /// Graphs by their files or ids, or directories of graphs
    #[arg(value_name = "PATH", default_value = "graphs")]
    paths: Vec<PathBuf>,
    /// Store the runs in this SQLite file, signed. Graphs that wait need it
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// The maximum number of steps of a run, in place of the graph's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// The time limit of a run, such as `90s`, `10m` or a number of seconds; 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = timeout)]
    timeout: Timeout,
    /// How many levels of graphs may be nested below a graph; never more than the graph allows
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// How many calls are performed at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Ask the person at the client what runs ask people, and sign the answers with this secret key [default: nobody is asked]
    #[arg(long, value_name = "FILE", requires = "store")]
    answer_key: Option<PathBuf>,
    /// The directory of trusted keys, whose files give roles [default: keys in the tree of the graph]
    #[arg(long, value_name = "DIR", requires = "answer_key")]
    keys: Option<PathBuf>,
    /// A key from which roles come: only files that it signed, or whose signers it vouches for, give roles [default: every trusted
    /// key]
    #[arg(long, value_name = "FINGERPRINT", requires = "answer_key")]
    role_root: Vec<Fingerprint>,
    /// Serve over HTTP at this address, as 127.0.0.1:8080, or at this port of 127.0.0.1; 0 for a free one
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "token_file")]
    http: Option<SocketAddr>,
    /// The file of the token that HTTP requests need
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Another name that HTTP requests may have as `Host`, as that of a proxy; may be given several times
    #[arg(long, value_name = "HOST", requires = "http")]
    http_host: Vec<String>,
    /// An origin whose pages may send HTTP requests, as `https://app.example`; may be given several times [default: none]
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    http_origin: Vec<String>,
    #[command(flatten)]
    means: MeansArguments,
    /// Write no progress, notes or warnings to stderr
    #[arg(long)]
    quiet: bool,
}

/// Reads an address with a port, or a port of the loopback interface.
fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().map_err(|_| "write a port, or an address and a port, as 127.0.0.1:8080".to_owned()),
    }
}

pub(crate) fn run(mcp: &Mcp) -> ExitCode {
    let done = match mcp {
        Mcp::Serve(arguments) => serve(arguments),
        Mcp::Import(arguments) => import::run(arguments),
    };
    match done {
        Ok(code) => code.into(),
        Err(failure) => {
            if !failure.shown {
                err!("error: {}", failure.error);
            }
            failure.code.into()
        }
    }
}

/// A graph that is to be served.
struct NamedGraph {
    library: Library,
    graph: Interpreted,
    file: PathBuf,
}

fn serve(arguments: &ServeArguments) -> Result<u8, RunCommandFailure> {
    let voice = Voice::of(arguments.quiet);
    let guard = arguments.guard()?;
    let graphs = arguments.graphs(voice)?;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let tokio = tokio.map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let done = tokio.block_on(arguments.work(graphs, guard, voice));
    // Tasks that still wait for stdin, a pipe or a lock are abandoned.
    tokio.shutdown_background();
    done
}

impl ServeArguments {
    /// Returns the conditions for HTTP requests.
    fn guard(&self) -> Result<Option<HttpGuard>, RunCommandFailure> {
        let Some(path) = &self.token_file else { return Ok(None) };
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(path).map_or(0, |data| data.permissions().mode());
            if mode & 0o077 != 0 {
                let error = format!("{} can be read by others: run `chmod 600` on it", path.display());
                return Err(RunCommandFailure::new(USAGE, error));
            }
        }
        let guard = HttpGuard::new(&read(path)?)
            .map_err(|error| RunCommandFailure::new(USAGE, format_args!("{}: {error}", path.display())))?;
        let guard = self.http_host.iter().fold(guard, HttpGuard::host);
        Ok(Some(self.http_origin.iter().fold(guard, HttpGuard::origin)))
    }

    /// Loads the graphs. One that is named must be right; of a directory, those with mistakes are left out.
    fn graphs(&self, voice: Voice) -> Result<Vec<NamedGraph>, RunCommandFailure> {
        let mut graphs = Vec::new();
        for path in &self.paths {
            if !path.is_dir() {
                let (library, graph, file) = load(path, voice)?;
                graphs.push(NamedGraph { library, graph, file });
                continue;
            }
            let root = path.canonicalize().map_err(|error| Error::file("read", path, &error))?;
            let library = Library::open(&root, Toolbox::new());
            let mut walk = find_graphs(&root);
            walk.files.extend(find_contract_graphs(&root));
            for problem in walk.problems(&root) {
                err_coloured!(problem);
            }
            for file in walk.files {
                match library.graph(&file) {
                    Ok(graph) => graphs.push(NamedGraph { library: library.clone(), graph, file }),
                    Err(error) => {
                        show(&error.diagnostics);
                        err!("warning: {} is not served: it has mistakes", file.display());
                    }
                }
            }
        }
        Ok(graphs)
    }

    async fn work(
        &self,
        graphs: Vec<NamedGraph>,
        guard: Option<HttpGuard>,
        voice: Voice,
    ) -> Result<u8, RunCommandFailure> {
        let failed = |error: &dyn std::fmt::Display| RunCommandFailure::new(UNDONE, error);
        let mut signals = Signals::new().map_err(|error| failed(&error))?;
        let store = match &self.store {
            Some(path) => {
                let store = stored::options().open(path).await.map_err(|error| RunCommandFailure::of(UNDONE, error))?;
                Some((store, signing_key(self.means.key.as_ref())?))
            }
            None => None,
        };
        let mut builder = GraphServer::builder();
        builder.most_calls(usize::try_from(self.concurrency).unwrap_or(usize::MAX));
        if let Some(path) = &self.answer_key {
            builder.answer_key(SecretKey::load(path).map_err(|error| RunCommandFailure::of(UNDONE, error))?);
        }
        for named in graphs {
            self.add(&mut builder, named, store.as_ref(), voice)?;
        }
        for tool in authoring::tools(&self.paths)? {
            builder.side_tool(tool);
        }
        let server = builder.build().map_err(|error| failed(&error))?;
        let names: Vec<&str> = server.tool_names().collect();
        voice.note(format_args!("the tools are {}", names.join(", ")));
        let code = match (guard, self.http) {
            (Some(guard), Some(address)) => {
                let bound = BoundServer::bind(server.clone(), address, guard).await;
                let bound = bound.map_err(|error| failed(&format_args!("cannot listen on {address}: {error}")))?;
                if !address.ip().is_loopback() {
                    err!(
                        "warning: others can reach {address}, and tokens and data travel unencrypted: put a proxy with TLS in front"
                    );
                }
                err!("listening on {}", bound.url());
                bound.serve(async { _ = signals.next().await }).await;
                0
            }
            _ => tokio::select! {
                served = server.serve(tokio::io::stdin(), tokio::io::stdout()) => match served {
                    Ok(()) => 0,
                    Err(error) => return Err(failed(&error)),
                },
                signal = signals.next() => signal.exit_code(),
            },
        };
        tokio::select! {
            () = server.shut_down(PATIENCE) => Ok(code),
            signal = signals.next() => Ok(signal.exit_code()),
        }
    }

    /// Adds a graph with a runtime of its own, since each graph has the permissions that it declares. One that cannot be served is
    /// left out.
    fn add(
        &self,
        builder: &mut GraphServerBuilder,
        named: NamedGraph,
        store: Option<&(SqliteStore, SecretKey)>,
        voice: Voice,
    ) -> Result<(), RunCommandFailure> {
        let NamedGraph { library, graph, file } = named;
        let id = graph.id().to_owned();
        if builder.graph_ids().any(|known| known == id) {
            err!("warning: {} is not served: another graph has its id, `{id}`", file.display());
            return Ok(());
        }
        let places = self.means.places(&file);
        let authority = Authority::of(&self.means, self.depth, &graph, &library, &places);
        let (runtime, tasks) = self.means.equip(&library, &places, &authority, false)?;
        let runtime = runtime.events(MOST_EVENTS);
        let runtime = if voice.quiet { runtime } else { runtime.observer(Progress::stderr()) };
        let runtime = match store {
            Some((store, key)) => runtime.store(store.clone()).sign_with(key.clone()),
            None => runtime,
        };
        let keys = self.keys.clone().unwrap_or_else(|| library.root().join("keys"));
        let roots = self.role_root.clone();
        let runtime = match &self.answer_key {
            Some(_) => runtime.answer_keys(move || ring(&keys, &roots)),
            None => runtime,
        };
        let runtime = runtime.build().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
        tasks.serve(&runtime);
        let options = Options {
            capabilities: authority.inherited.clone(),
            depth: authority.depth,
            max_steps: self.max_steps,
            timeout: self.timeout.0,
            ..Options::default()
        };
        match builder.graph(&library, graph, runtime, options) {
            Ok(()) => authority.tell(voice),
            Err(graph_mcp::Unserved::Refused(error)) => {
                let failure = authority.explain(unstarted(error));
                err!("warning: `{id}` is not served: {}", failure.error);
            }
            Err(error) => err!("warning: `{id}` is not served: {error}"),
        }
        Ok(())
    }
}

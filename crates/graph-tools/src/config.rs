//! The permissions that a program gives to the built-in tools.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "files")]
use cap_std::ambient_authority;
#[cfg(feature = "files")]
use cap_std::fs::Dir;

use graph_engine::{BuildError, ToolSettings};
use graph_model::name::RunId;
#[cfg(feature = "tasks")]
use graph_model::value::Value;

use crate::mcp::McpCalls;
use crate::model::ModelTurns;

/// The permissions that a program gives to the built-in tools; anything not named here is refused.
///
/// The settings are passed to [`Builder::tools`](graph_engine::Builder::tools) and apply to every run of the runtime. They
/// apply in addition to capabilities: a run needs both.
///
/// ```
/// # fn allow() -> Result<(), Box<dyn std::error::Error>> {
/// # use graph_engine::Runtime;
/// # use graph_tools::ToolConfig;
/// let tools = ToolConfig::new().programs(".")?;
/// # #[cfg(feature = "files")]
/// let tools = tools.root(".")?;
/// # #[cfg(feature = "http")]
/// let tools = tools.http(graph_tools::HttpPolicy::new().allow("api.example.com")?);
/// let runtime = Runtime::builder().tools(tools).grant("rye.execute.tool.rye.*")?.build()?;
/// # Ok(())
/// # }
/// # allow().unwrap();
/// ```
#[derive(Clone)]
pub struct ToolConfig {
    #[cfg(feature = "files")]
    root: Option<Arc<Dir>>,
    #[cfg(feature = "files")]
    root_path: Option<PathBuf>,
    #[cfg(feature = "files")]
    file_limit: u64,
    programs: Option<PathBuf>,
    #[cfg(feature = "http")]
    http: super::HttpPolicy,
    agents: Option<Arc<dyn ModelTurns>>,
    #[cfg(feature = "tasks")]
    tasks: Option<graph_engine::Tasks>,
    mcp: Option<Arc<dyn McpCalls>>,
    threads: Option<Arc<NameThread>>,
}

/// Returns the thread that the commands of a run hear of.
type NameThread = dyn Fn(&RunId) -> Option<String> + Send + Sync;

impl ToolSettings for ToolConfig {
    /// Returns the settings as a text, with directories as they are now.
    fn shown(&self) -> String {
        #[cfg(feature = "files")]
        {
            let root = self.root_path.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
            format!("{:?}", Self { root_path: root, ..self.clone() })
        }
        #[cfg(not(feature = "files"))]
        format!("{self:?}")
    }

    #[cfg(feature = "tasks")]
    fn shown_thread(&self, params: &Value) -> Option<String> {
        let thread = crate::threads::ThreadParams::read(params.clone()).ok().filter(|thread| !thread.is_async)?;
        let tasks = self.tasks.as_ref()?;
        let agent = tasks.follower(&thread.directive).ok()??;
        let (agent, directive) = (tasks.digest(&agent)?, self.agents.as_ref()?.directive_digest(&thread.directive)?);
        Some(format!("{agent} {directive}"))
    }
}

impl ToolConfig {
    /// Returns settings that allow nothing.
    pub fn new() -> Self {
        Self {
            #[cfg(feature = "files")]
            root: None,
            #[cfg(feature = "files")]
            root_path: None,
            #[cfg(feature = "files")]
            file_limit: 16 << 20,
            programs: None,
            #[cfg(feature = "http")]
            http: super::HttpPolicy::new(),
            agents: None,
            #[cfg(feature = "tasks")]
            tasks: None,
            mcp: None,
            threads: None,
        }
    }

    /// Lets agents ask models: contracts with `tool_type: agent`. The crate `graph-agents` has what answers.
    #[must_use]
    pub fn agents(mut self, turns: impl ModelTurns) -> Self {
        self.agents = Some(Arc::new(turns));
        self
    }

    /// Lets the tools `rye/orchestrate/…` spawn tasks, and see and stop them.
    #[cfg(feature = "tasks")]
    #[must_use]
    pub fn tasks(mut self, tasks: graph_engine::Tasks) -> Self {
        self.tasks = Some(tasks);
        self
    }

    /// Returns the tasks that its tools spawn, if there are some.
    #[cfg(feature = "tasks")]
    pub fn own_tasks(&self) -> Option<&graph_engine::Tasks> {
        self.tasks.as_ref()
    }

    /// Returns what asks the models of agents, if the program has it.
    pub(crate) fn model_turns(&self) -> Option<&dyn ModelTurns> {
        self.agents.as_deref()
    }

    /// Lets graphs call the tools of servers: contracts with `tool_type: mcp`. The crate `graph-mcp` has what asks the servers.
    #[must_use]
    pub fn mcp(mut self, calls: impl McpCalls) -> Self {
        self.mcp = Some(Arc::new(calls));
        self
    }

    /// Returns what asks the servers, if the program has it.
    pub(crate) fn mcp_calls(&self) -> Option<&dyn McpCalls> {
        self.mcp.as_deref()
    }

    /// Tells each command and program that a run starts the name of a thread, in the variable `RYE_PARENT_THREAD_ID`. A `graph run` among
    /// them has at most the permissions in the file of that thread, and none without the file. `name` returns the thread of a run: the run
    /// itself, if `ProjectFiles` keeps its files.
    #[must_use]
    pub fn name_threads(mut self, name: impl Fn(&RunId) -> Option<String> + Send + Sync + 'static) -> Self {
        self.threads = Some(Arc::new(name));
        self
    }

    #[cfg(unix)]
    pub(crate) fn thread_of(&self, run: &RunId) -> Option<String> {
        self.threads.as_ref().and_then(|name| name(run))
    }

    /// Allows the file tools (`rye/file-system/…`) to work below `directory`, and nowhere else.
    ///
    /// The directory is opened now: a later change of its path makes no difference.
    ///
    /// # Errors
    ///
    /// If it cannot be opened as a directory.
    #[cfg(feature = "files")]
    pub fn root(mut self, directory: impl AsRef<Path>) -> Result<Self, BuildError> {
        let path = directory.as_ref();
        let failed = |source| BuildError::Directory { path: path.to_owned(), source };
        self.root = Some(Arc::new(Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?));
        self.root_path = Some(path.to_owned());
        Ok(self)
    }

    /// Limits the size of files that the file tools write, and how much of a file they read at a time: 16 MiB by default.
    #[cfg(feature = "files")]
    #[must_use]
    pub fn file_limit(mut self, bytes: u64) -> Self {
        self.file_limit = bytes;
        self
    }

    /// Sets the directory from which tools of `tool_type: subprocess` are started: a `command` such as `bin/charge` and a
    /// relative `cwd` are resolved against it. It is the directory of the tree, which has `tools` in it.
    ///
    /// A user who can write there decides which code runs, unless the contracts pin their programs with `sha256`.
    ///
    /// # Errors
    ///
    /// If it is not a directory.
    pub fn programs(mut self, directory: impl AsRef<Path>) -> Result<Self, BuildError> {
        let path = directory.as_ref();
        let failed = |source| BuildError::Directory { path: path.to_owned(), source };
        let absolute = path.canonicalize().map_err(failed)?;
        if !absolute.is_dir() {
            return Err(failed(std::io::ErrorKind::NotADirectory.into()));
        }
        self.programs = Some(absolute);
        Ok(self)
    }

    /// Sets the hosts to which `rye/http/request` may send requests.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn http(mut self, policy: super::HttpPolicy) -> Self {
        self.http = policy;
        self
    }

    #[cfg(feature = "files")]
    pub(super) fn directory(&self) -> Option<&Arc<Dir>> {
        self.root.as_ref()
    }

    #[cfg(feature = "files")]
    pub(super) fn most_bytes(&self) -> u64 {
        self.file_limit
    }

    #[cfg(unix)]
    pub(super) fn program_directory(&self) -> Option<&Path> {
        self.programs.as_deref()
    }

    #[cfg(feature = "http")]
    pub(super) fn http_policy(&self) -> &super::HttpPolicy {
        &self.http
    }
}

impl Default for ToolConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ToolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ToolConfig");
        #[cfg(feature = "files")]
        shown.field("root", &self.root_path).field("file_limit", &self.file_limit);
        shown.field("programs", &self.programs);
        #[cfg(feature = "http")]
        shown.field("http", &self.http);
        shown.field("agents", &self.agents).field("mcp", &self.mcp);
        shown.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_does_not_exist_cannot_be_named() {
        let error = ToolConfig::new().root("/nonexistent").unwrap_err();
        assert_eq!(error.to_string(), "the directory `/nonexistent` cannot be opened for tools");
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(ToolConfig::new().root(file.path()).is_err());
        assert!(ToolConfig::new().programs(file.path()).is_err());
        assert!(ToolConfig::new().programs("/nonexistent").is_err());
    }
}

//! The things that runs may use: capabilities, tools, spaces and keys.

use std::path::{Path, PathBuf};

use clap::Args;
use graph_runtime::dynamic::Library;
use graph_runtime::{Builder, EncryptionKey, HttpPolicy, Pattern, Runtime, Spaces, Tasks, ToolConfig};

use super::authority::{self, Authority};
use super::failure::{RunCommandFailure, USAGE};
use super::{mcp_servers, models};
use crate::command::{project_around, signing_key};
use crate::output::UNDONE;

/// The options that say what runs may use.
#[derive(Args)]
pub(in crate::command) struct MeansArguments {
    /// A capability that runs may use, in place of those that the graph declares; may be given several times
    #[arg(long = "grant", value_name = "PATTERN", value_parser = |text: &str| Pattern::new(text))]
    pub(super) grants: Vec<Pattern>,
    /// The key that encrypts secrets in the store, as `graph keys encryption` makes it
    #[arg(long, alias = "seal-key", value_name = "FILE")]
    encryption_key: Option<PathBuf>,
    /// The directory that the file tools may use [default: none]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// A host that requests may go to; may be given several times [default: none]
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Like --allow-host, but also for hosts on this machine or in its network; may be given several times
    #[arg(long, value_name = "HOST")]
    allow_internal_host: Vec<String>,
    /// The models of agents, a TOML file with a table for each tier [default: none]
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,
    /// The servers whose tools graphs call, a TOML file with a table for each [default: none]
    #[arg(long, value_name = "FILE")]
    mcp_servers: Option<PathBuf>,
    /// The directory of the programs of subprocess tools [default: the tree of the graph]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// The project's directory [default: the nearest one above the graph that holds .ai]
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The user's space [default: USER_SPACE, else the home directory]
    #[arg(long, value_name = "DIR")]
    user: Option<PathBuf>,
    /// The directory of a system bundle; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(super) system: Vec<PathBuf>,
    /// The secret key that signs the store's journals and items [default: your own]
    #[arg(long, value_name = "FILE")]
    pub(in crate::command) key: Option<PathBuf>,
}

/// The directories that items are in.
pub(in crate::command) struct Places {
    pub(in crate::command) project: Option<PathBuf>,
    pub(super) user: Option<PathBuf>,
}

impl MeansArguments {
    /// Returns the directories of the items of a graph's file.
    pub(in crate::command) fn places(&self, file: &Path) -> Places {
        let variable = || std::env::var_os("USER_SPACE").filter(|value| !value.is_empty()).map(PathBuf::from);
        Places {
            project: self.project.clone().or_else(|| project_around(file)),
            user: self.user.clone().or_else(variable).or_else(std::env::home_dir),
        }
    }

    /// Returns the builder of a runtime with the tools, spaces, grants and secrets of the runs of a graph, and the tasks of the runtime.
    pub(in crate::command) fn equip(
        &self,
        library: &Library,
        places: &Places,
        authority: &Authority,
        keeps_files: bool,
    ) -> Result<(Builder, Tasks), RunCommandFailure> {
        let spaces = self.spaces(library, places)?;
        let tools = match &self.models {
            Some(models) => self.tools(library)?.agents(models::agents(models, spaces.clone())?),
            None => self.tools(library)?,
        };
        let tools = match &self.mcp_servers {
            Some(servers) => tools.mcp(mcp_servers::servers(servers)?),
            None => tools,
        };
        let (inherited, project) = (authority::parent(), places.project.clone());
        // A graph that a command of a run starts may do what the run may. Without files, it is at least bound as this process is.
        let tools = tools.name_threads(move |run| {
            let has_file =
                || project.as_ref().is_some_and(|project| authority::thread_file(project, run.as_str()).exists());
            match &inherited {
                _ if keeps_files => Some(run.to_string()),
                Some(thread) => Some(thread.clone()),
                None => has_file().then(|| run.to_string()),
            }
        });
        let tasks = library.tasks();
        let builder = Runtime::builder().tools(tools.tasks(tasks.clone())).spaces(spaces);
        let builder = authority.patterns().try_fold(builder, |builder, pattern| builder.grant(pattern.as_str()));
        let builder = builder.map_err(|error| RunCommandFailure::of(USAGE, error))?;
        let builder = match &self.encryption_key {
            Some(path) => {
                builder.encrypt_with(EncryptionKey::load(path).map_err(|error| RunCommandFailure::of(UNDONE, error))?)
            }
            None => builder,
        };
        Ok((builder, tasks))
    }

    fn tools(&self, library: &Library) -> Result<ToolConfig, RunCommandFailure> {
        let bad = |error| RunCommandFailure::of(USAGE, error);
        let mut policy = HttpPolicy::new();
        for host in &self.allow_host {
            policy = policy.allow(host).map_err(|error| RunCommandFailure::of(USAGE, error))?;
        }
        for host in &self.allow_internal_host {
            policy = policy.allow_internal(host).map_err(|error| RunCommandFailure::of(USAGE, error))?;
        }
        let programs = self.programs.as_deref().unwrap_or(library.root());
        let tools = ToolConfig::new().http(policy).programs(programs).map_err(bad)?;
        match &self.root {
            Some(root) => tools.root(root).map_err(bad),
            None => Ok(tools),
        }
    }

    fn spaces(&self, library: &Library, places: &Places) -> Result<Spaces, RunCommandFailure> {
        let mut spaces = Spaces::new().trusting(library.ring().clone());
        if let Some(project) = &places.project {
            spaces = spaces.project(project);
        }
        if let Some(user) = &places.user {
            spaces = spaces.user(user);
        }
        for system in &self.system {
            spaces = spaces.system(system);
        }
        // Only a graph that signs needs a key, and it reports a missing key itself.
        match signing_key(self.key.as_ref()) {
            Ok(key) => Ok(spaces.sign_with(key)),
            Err(error) if self.key.is_some() => Err(error.into()),
            Err(_) => Ok(spaces),
        }
    }
}

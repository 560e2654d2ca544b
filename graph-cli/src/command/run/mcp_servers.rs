//! The servers whose tools graphs call, as a file of the caller names them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use graph_mcp::{McpEndpoint, McpServers};
use serde::Deserialize;

use super::failure::{RunCommandFailure, USAGE};

/// A server of the file: the table of its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSettings {
    /// A program that is started, and its arguments.
    command: Option<Vec<String>>,
    /// The variables of the environment that the program has besides the usual ones.
    #[serde(default)]
    env: Vec<String>,
    url: Option<String>,
    /// The environment variable that has the token.
    token_env: Option<String>,
    /// How long a call may take, in seconds.
    timeout: Option<u32>,
}

/// Returns the servers of a file.
pub(in crate::command) fn servers(path: &Path) -> Result<McpServers, RunCommandFailure> {
    let refused = |reason: String| RunCommandFailure::new(USAGE, format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refused(format!("cannot be read: {error}")))?;
    let tables: BTreeMap<String, ServerSettings> =
        toml::from_str(&text).map_err(|error| refused(error.to_string().trim_end().to_owned()))?;
    if tables.is_empty() {
        return Err(refused("it names no server: write a table `[NAME]` with `command` or `url`".to_owned()));
    }
    tables.into_iter().try_fold(McpServers::new(), |servers, (name, settings)| {
        let is_fit = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if name.is_empty() || !name.chars().all(is_fit) {
            return Err(refused(format!("`{name}` is no name of a server: write lower-case letters, digits and `-`")));
        }
        let seconds = settings.timeout.unwrap_or(600).max(1);
        let endpoint = endpoint(settings).map_err(|reason| refused(format!("the server `{name}`: {reason}")))?;
        Ok(servers.server_within(name, endpoint, Duration::from_secs(u64::from(seconds))))
    })
}

fn endpoint(settings: ServerSettings) -> Result<McpEndpoint, String> {
    match (settings.command, settings.url) {
        (Some(command), None) if settings.token_env.is_none() && !command.is_empty() => {
            Ok(McpEndpoint::Command { command, env: settings.env })
        }
        (None, Some(url)) if settings.env.is_empty() => {
            let read = |name: String| {
                std::env::var(&name).map_err(|_| format!("the variable `{name}` of the environment has no token"))
            };
            Ok(McpEndpoint::Url { url, token: settings.token_env.map(read).transpose()? })
        }
        _ => Err("it has either `command`, and perhaps `env`, or `url`, and perhaps `token_env`".to_owned()),
    }
}

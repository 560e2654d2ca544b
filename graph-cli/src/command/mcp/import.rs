//! `graph mcp import`: contracts of the tools of a server.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use graph_compiler::definition::parse_trusted_contract;
use graph_compiler::diagnostic::{Diagnostics, Severity};
use graph_compiler::source::SourceFile;
use graph_mcp::{ImportedContract, contract};
use graph_model::name::ItemId;
use graph_signing::{ItemKind, SecretKey, sign};

use crate::command::run::failure::{PROBLEMS, RunCommandFailure};
use crate::command::run::mcp_servers;
use crate::command::{plain, replace, signing_key, stored};
use crate::output::UNDONE;

#[derive(Args)]
pub(crate) struct ImportArguments {
    /// The server, as the file names it
    #[arg(value_name = "SERVER")]
    server: String,
    /// The tools to import [default: all]
    #[arg(value_name = "TOOL")]
    tools: Vec<String>,
    /// The servers, a TOML file with a table for each
    #[arg(long, value_name = "FILE")]
    mcp_servers: PathBuf,
    /// The tree whose directory `tools` the contracts are written to
    #[arg(long, value_name = "DIR", default_value = "graphs")]
    tree: PathBuf,
    /// The secret key that signs the contracts [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write `idempotent: true` where the server says that a call may be repeated
    #[arg(long)]
    trust_hints: bool,
    /// Replace contracts that are there; review what changed
    #[arg(long)]
    replace: bool,
}

pub(super) fn run(arguments: &ImportArguments) -> Result<u8, RunCommandFailure> {
    let servers = mcp_servers::servers(&arguments.mcp_servers)?;
    let key = signing_key(arguments.key.as_ref())?;
    let tools = stored::tokio()?.block_on(servers.tools(&arguments.server));
    let tools = tools.map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    if let Some(missing) = arguments.tools.iter().find(|name| !tools.iter().any(|tool| tool.name == **name)) {
        let names: Vec<String> = tools.iter().map(|tool| plain(&tool.name)).collect();
        let error = format!("the server `{}` has no tool `{missing}`; it has {}", arguments.server, names.join(", "));
        return Err(RunCommandFailure::new(PROBLEMS, error));
    }
    let is_wanted = |name: &String| arguments.tools.is_empty() || arguments.tools.contains(name);
    let mut code = 0;
    let mut taken: Vec<String> = Vec::new();
    for tool in tools.iter().filter(|tool| is_wanted(&tool.name)) {
        let imported = contract(&arguments.server, tool, arguments.trust_hints);
        let written = match taken.contains(&imported.id) {
            true => Err(format!("another tool of the server has the id `{}`", imported.id)),
            false => arguments.write(&imported, &key),
        };
        taken.push(imported.id.clone());
        match written {
            Ok(path) => {
                out!("signed {}", path.display());
                for part in &imported.left_out {
                    err!("note: `{}` leaves out {}", imported.id, plain(part));
                }
                if tool.is_idempotent && !arguments.trust_hints {
                    err!(
                        "note: the server says that calls of `{}` may be repeated; `--trust-hints` believes it",
                        imported.id
                    );
                }
            }
            Err(reason) => {
                err!("error: the tool `{}` is not imported: {reason}", plain(&tool.name));
                code = PROBLEMS;
            }
        }
    }
    Ok(code)
}

impl ImportArguments {
    /// Signs a contract that the compiler can read, and writes it.
    fn write(&self, imported: &ImportedContract, key: &SecretKey) -> Result<PathBuf, String> {
        let id = ItemId::new(imported.id.as_str()).map_err(|error| error.to_string())?;
        let path = self.tree.join("tools").join(format!("{id}.yaml"));
        let source = SourceFile::new(&path, path.display().to_string(), &imported.text);
        let mut diagnostics = Diagnostics::new();
        let read = parse_trusted_contract(&source, &id, &mut diagnostics);
        let problem = diagnostics.iter().find(|problem| problem.severity == Severity::Error);
        if let Some(problem) = problem {
            return Err(format!("no contract can say what the server declares: {}", plain(&problem.message)));
        }
        read.ok_or("its contract cannot be read")?;
        if path.exists() && !self.replace {
            return Err(format!("{} is there; `--replace` replaces it", path.display()));
        }
        let text = sign(ItemKind::YAML, &imported.text, key, SystemTime::now()).map_err(|error| error.to_string())?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        replace(&path, &text).map_err(|error| error.to_string())?;
        Ok(path)
    }
}

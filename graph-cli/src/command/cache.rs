//! `graph cache`: list and remove the results of nodes that a project caches.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use graph_model::timestamp;
use graph_runtime::cache::{CacheEntry, Digest};
use graph_runtime::files::ProjectCache;
use serde_json::{Value, json};

use super::stored_run::verifying_key;
use super::{project_here, stored};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output::counted;

#[derive(Subcommand)]
pub(crate) enum Caches {
    /// List the cached results
    Ls(CacheLsArguments),
    /// Remove cached results, so that calls are made again
    Clear(CacheClearArguments),
}

#[derive(Args)]
pub(crate) struct CacheLsArguments {
    #[command(flatten)]
    of: CacheArguments,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct CacheClearArguments {
    #[command(flatten)]
    of: CacheArguments,
    /// Only results of nodes of this graph
    #[arg(long, value_name = "ID")]
    graph: Option<String>,
    /// Only results of nodes of this name
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Only results that were cached at least this long ago, such as `12h` or `30d`
    #[arg(long, value_name = "TIME", value_parser = stored::age)]
    older_than: Option<Duration>,
    /// Only print what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print what was removed as JSON
    #[arg(long)]
    json: bool,
}

/// The cache to use, and the key that verifies its entries.
#[derive(Args)]
struct CacheArguments {
    /// The directory whose .ai holds the results [default: the nearest one above the working directory that has .ai]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The public key that verifies the results, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
}

/// An entry of the cache: its content, or the reason that it would not be used.
struct FoundEntry {
    key: Digest,
    bytes: usize,
    entry: Result<CacheEntry, String>,
}

impl FoundEntry {
    /// Describes the entry in one line.
    fn line(&self) -> String {
        match &self.entry {
            Ok(entry) => format!("{:.12}  {}  {} of {}", self.key, entry.cached_at, entry.node, entry.graph),
            Err(problem) => format!("{:.12}  not used: {problem}", self.key),
        }
    }

    fn as_json(&self) -> Value {
        let entry = self.entry.as_ref().ok();
        json!({
            "key": self.key,
            "graph_id": entry.map(|entry| &entry.graph),
            "graph_hash": entry.map(|entry| entry.digest),
            "node_name": entry.map(|entry| &entry.node),
            "cached_at": entry.map(|entry| &entry.cached_at),
            "node_result_hash": entry.map(CacheEntry::node_result_hash),
            "bytes": self.bytes,
            "error": self.entry.as_ref().err(),
        })
    }
}

impl CacheArguments {
    fn open(&self) -> Result<(ProjectCache, Vec<FoundEntry>), Error> {
        let cache = ProjectCache::in_directory(project_here(self.cache.as_ref(), "--cache DIR")?)?;
        let keys = cache.keys()?;
        let signer = verifying_key(self.public_key.as_deref())?;
        let mut all = Vec::new();
        for key in keys {
            // Skips an entry that another process has removed meanwhile.
            let (bytes, entry) = match cache.text(&key) {
                Ok(None) => continue,
                Ok(Some(text)) => {
                    (text.len(), CacheEntry::read(&text, &key, &signer).map_err(|error| error.to_string()))
                }
                Err(error) => (0, Err(Error::from(error).to_string())),
            };
            all.push(FoundEntry { key, bytes, entry });
        }
        Ok((cache, all))
    }
}

pub(crate) fn run(caches: &Caches) -> CommandResult {
    match caches {
        Caches::Ls(ls) => self::ls(ls),
        Caches::Clear(clear) => self::clear(clear),
    }
}

fn ls(arguments: &CacheLsArguments) -> CommandResult {
    let (_, all) = arguments.of.open()?;
    if arguments.json {
        let shown: Vec<Value> = all.iter().map(FoundEntry::as_json).collect();
        out_json!(json!({"success": true, "entries": shown, "count": all.len()}));
    } else {
        all.iter().for_each(|found| out!("{}", found.line()));
    }
    Ok(CommandOutcome::Well)
}

fn clear(arguments: &CacheClearArguments) -> CommandResult {
    let (cache, all) = arguments.of.open()?;
    let CacheClearArguments { graph, node, older_than, dry_run, .. } = arguments;
    let is_one_of = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
    let now = SystemTime::now();
    let is_old = |entry: &CacheEntry| {
        let age = || now.duration_since(timestamp::parse(&entry.cached_at)?).ok();
        older_than.is_none_or(|least| age().is_some_and(|age| age >= least))
    };
    let is_meant = |found: &&FoundEntry| match &found.entry {
        Ok(entry) => is_one_of(graph, &entry.graph) && is_one_of(node, &entry.node) && is_old(entry),
        // Nothing proves the graph, the node or the time of such an entry.
        Err(_) => graph.is_none() && node.is_none() && older_than.is_none(),
    };
    let meant: Vec<&FoundEntry> = all.iter().filter(is_meant).collect();
    if !dry_run {
        meant.iter().try_for_each(|found| cache.remove(&found.key))?;
    }
    if arguments.json {
        let keys: Vec<Digest> = meant.iter().map(|found| found.key).collect();
        let result = json!({"success": true, "dry_run": dry_run, "removed": keys, "count": keys.len()});
        out_json!(result);
        return Ok(CommandOutcome::Well);
    }
    let done = if *dry_run { "would remove" } else { "removed" };
    meant.iter().for_each(|found| out!("{done} {}", found.line()));
    let (count, left) = (meant.len(), all.len() - meant.len());
    out!("{done} {}; {left} stay", counted(count, "result", "results"));
    Ok(CommandOutcome::Well)
}

//! The Rust in the pages of `docs`: each block there that is from this file is one of its parts.

#![expect(dead_code, reason = "the pages show these parts; nothing calls them")]

use std::error::Error;
use std::path::Path;

use graph_runtime::answer::KeyRing;
use graph_runtime::{
    Builder, CatchUp, Edges, Finished, Graph, Options, Overlap, ProjectFiles, Run, RunId, Runtime, Schedule, SecretKey,
    Spaces, SqliteStore, ToolConfig, Worker, WorkerOptions,
};
use state_graphs::{order, selective_feedback, tool_router};

fn main() {}

/// A variant for each node at which a run ends: `docs/format.md`.
async fn exits(run: Run<order::Output>) -> Result<(), Box<dyn Error>> {
    match run.await?.output {
        order::Output::Shipped(shipped) => println!("{}", shipped.receipt),
        order::Output::BackOrder(order) => println!("{}", order.message),
        order::Output::Refused(order) => println!("{}", order.message),
    }
    Ok(())
}

/// The spaces of items: `docs/items.md`.
fn spaces(key: SecretKey) -> Result<Runtime, Box<dyn Error>> {
    let spaces = Spaces::at("/srv/shop").user("/home/ann").system("/opt/bundle").sign_with(key);
    let runtime = Runtime::builder().spaces(spaces).grant("rye.fetch.*")?.build()?;
    Ok(runtime)
}

/// A runtime that writes the files of its runs: `docs/project-files.md`.
async fn files() -> Result<Runtime, Box<dyn Error>> {
    let files = ProjectFiles::in_directory(".", SecretKey::load_or_generate("keys".as_ref())?)?;
    let runtime = Runtime::builder()
        .store(SqliteStore::open("runs.db").await?)
        .sign_with(SecretKey::load_or_generate("keys".as_ref())?)
        .observer(files.clone())
        .build()?;
    Ok(runtime)
}

/// The results of one node at all its visits: `docs/state-machines.md`.
fn revisions(finished: &Finished<selective_feedback::Output>) -> usize {
    let versions = finished.history.iter().filter(|visit| visit.node == "write").map(|visit| &visit.result);
    versions.count()
}

/// The edges that a run took: `docs/state-machines.md`.
fn edges(finished: &Finished<tool_router::Output>) {
    let edges = Edges::of(&tool_router::PROGRAM);
    for visit in &finished.history {
        if let Some(edge) = edges.taken(visit) {
            println!("{}. {} → {edge}", visit.step, visit.node);
        }
    }
    for fired in edges.fired(&finished.history) {
        println!("{} × {} → {}", fired.times, fired.from, fired.edge);
    }
}

/// A run that pauses: `docs/embedding.md`.
async fn pauses<G: Graph + Clone>(
    runtime: &Runtime,
    graph: G,
    run: RunId,
    inputs: G::Inputs,
) -> Result<(), Box<dyn Error>> {
    let options = Options { run: Some(run.clone()), pause_before: vec!["charge".to_owned()], ..Options::default() };
    let paused = runtime.start_with(options, graph.clone(), inputs).await?.await;
    println!("{:?}", paused.err());
    for wait in runtime.release(&graph, &run).await? {
        println!("node {} is visited now", wait.node);
    }
    Ok(())
}

/// A worker: `docs/embedding.md`.
fn worker<G: Graph>(runtime: &Runtime, orders: G, returns: G) -> Result<Worker, Box<dyn Error>> {
    let options = WorkerOptions::default().graph(orders).graph(returns).concurrency(100);
    let worker = runtime.worker(options)?;
    Ok(worker)
}

/// A worker with a schedule: `docs/embedding.md`.
fn scheduled<G: Graph>(runtime: &Runtime, report: G) -> Result<Worker, Box<dyn Error>> {
    let nightly = Schedule::new("nightly", "shop/report", "30 2 * * *", "Europe/Berlin")?
        .overlap(Overlap::Queue)
        .catch_up(CatchUp::All(7))
        .tick_input("at");
    let options = WorkerOptions::default().graph(report).schedules([nightly])?;
    Ok(runtime.worker(options)?)
}

/// A runtime that accepts the answers of people: `docs/embedding.md`.
fn answers(builder: Builder) -> Result<Runtime, Box<dyn Error>> {
    let keys = || {
        let (ring, refused, _) = KeyRing::load(&[Path::new("graphs/keys")]);
        for key in refused {
            eprintln!("{} is not trusted: {}", key.path.display(), key.error);
        }
        ring
    };
    let runtime = builder.answer_keys(keys).build()?;
    Ok(runtime)
}

/// A runtime whose graphs may use files and programs: `docs/tools.md`.
fn tools() -> Result<Runtime, Box<dyn Error>> {
    let tools = ToolConfig::new()
        // For `rye/file-system/…`.
        .root("data")?
        // For tools of `tool_type: subprocess`.
        .programs("graphs")?;
    let runtime = Runtime::builder().tools(tools).grant("rye.execute.tool.rye.*")?.build()?;
    Ok(runtime)
}

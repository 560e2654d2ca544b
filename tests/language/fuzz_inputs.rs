//! The compiler handles any text quickly, in little memory, and without a panic.
//!
//! The texts are those of the corpus, the catalogue and `tests/check`, with a few random changes each, and some hostile
//! ones. The same number of inputs gives the same inputs.
//! `FUZZ_INPUTS=1000000 cargo test --release --test language fuzz_inputs` makes more of them; `FUZZ_FIRST` is the
//! number of the first, so that one input can be examined again.
//!
//! `fuzz/` has targets for cargo-fuzz, which looks for inputs by the code that they reach.

#[path = "../fuzz/changes.rs"]
mod changes;
#[path = "../fuzz/nasty.rs"]
mod nasty;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::corpus::Corpus;
use crate::tree::Tree;
use changes::{Chance, change};
use graph_compiler::definition::parse_contract;
use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::project::Project;
use graph_compiler::source::SourceFile;
use graph_compiler::verify::verify;
use graph_model::name::ItemId;
use graph_signing::{ItemKind, sign};

/// The default number of inputs, which takes some seconds.
const INPUTS: usize = 1500;
/// The time limit for one input, in an unoptimized build on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);
/// The memory limit of the whole process.
const MOST_KIBIBYTES: usize = 1024 * 1024;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// The texts from which inputs are made.
fn texts(corpus: &Corpus) -> Vec<String> {
    let mut texts: Vec<String> = corpus.files.iter().map(|(_, text)| text.clone()).collect();
    for directory in ["tests/catalogue", "tests/check"] {
        let files = crate::expected::yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory));
        texts.extend(files.iter().map(|file| fs::read_to_string(file).unwrap()));
    }
    texts
}

/// Compiles a text, and returns the problem if there is one.
fn trouble(project: &Project, tree: &Tree, text: &str) -> Option<String> {
    let source = SourceFile::new(tree.path("input.yaml"), "graphs/input.yaml", text);
    let began = Instant::now();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let compilation = project.review_source(source);
        assert!(compilation.graph.is_none(), "nobody signed this");
        // Each diagnostic can be shown.
        for diagnostic in compilation.diagnostics.iter().take(20) {
            assert!(!diagnostic.render().is_empty());
        }
    }));
    let took = began.elapsed();
    match done {
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            Some(format!("panics: {}", words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
        }
        Ok(()) if took > LONGEST => Some(format!("takes {took:?}")),
        Ok(()) => None,
    }
}

/// Returns the peak memory of the process, if the system reports it.
fn most_kibibytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Writes an input to a file, so that it can be examined.
fn keep(at: usize, text: &str) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz_{at}.yaml"));
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn random_changes_bring_no_panic_no_hang_and_no_flood() {
    let corpus = Corpus::read();
    let (texts, tree) = (texts(&corpus), corpus.tree());
    let (first, count) = (number("FUZZ_FIRST", 0), number("FUZZ_INPUTS", INPUTS));
    let next = AtomicUsize::new(first);
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let under_way: Vec<Mutex<Option<(usize, Instant)>>> = (0..workers).map(|_| Mutex::new(None)).collect();
    let (done, all_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for own in &under_way {
            let (done, next, texts, tree) = (done.clone(), &next, &texts, &tree);
            scope.spawn(move || {
                // Dropped at the end, also after a panic.
                let _done = done;
                let mut project = tree.project();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= first + count {
                        *own.lock().unwrap() = None;
                        return;
                    }
                    // The memory of a project for the graphs that it compiled must not accumulate.
                    if at.is_multiple_of(1000) {
                        project = tree.project();
                    }
                    *own.lock().unwrap() = Some((at, Instant::now()));
                    let text = change(texts, Chance::new(at));
                    if let Some(trouble) = trouble(&project, tree, &text) {
                        panic!("FUZZ_FIRST={at} {trouble}; it is {}", keep(at, &text));
                    }
                }
            });
        }
        drop(done);
        while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(Duration::from_secs(1)) {
            for (at, began) in under_way.iter().filter_map(|one| *one.lock().unwrap()) {
                if began.elapsed() > LONGEST {
                    // A thread that hangs can neither be stopped nor joined.
                    eprintln!(
                        "FUZZ_FIRST={at} does not come to an end; it is {}",
                        keep(at, &change(&texts, Chance::new(at)))
                    );
                    std::process::abort();
                }
            }
        }
    });
    let most = most_kibibytes().unwrap_or_default();
    println!("{count} inputs, {} MiB at most", most / 1024);
    assert!(most < MOST_KIBIBYTES, "{most} KiB were taken");
}

#[test]
fn hostile_texts_cause_no_panic_and_no_hang() {
    let tree = Arc::new(Corpus::read().tree());
    let project = Arc::new(tree.project());
    let mut failures = Vec::new();
    for (name, text) in nasty::texts() {
        let (bytes, began) = (text.len(), Instant::now());
        let (tree, project) = (Arc::clone(&tree), Arc::clone(&project));
        let (done, said) = mpsc::channel();
        // A thread that hangs is abandoned, so that the other texts are tested too.
        std::thread::spawn(move || done.send(trouble(&project, &tree, &text)));
        match said.recv_timeout(LONGEST) {
            Ok(None) => {}
            Ok(Some(trouble)) => failures.push(format!("{name} {trouble}")),
            Err(_) => failures.push(format!("{name} does not come to an end")),
        }
        println!("{name}: {bytes} bytes in {:?}", began.elapsed());
    }
    assert!(failures.is_empty(), "{failures:#?}");
    let most = most_kibibytes().unwrap_or_default();
    assert!(most < MOST_KIBIBYTES, "{most} KiB were taken");
}

#[test]
fn no_text_is_a_contract_that_makes_the_compiler_panic() {
    let corpus = Corpus::read();
    let contracts: Vec<String> =
        corpus.files.iter().filter(|(name, _)| name.starts_with("tools/")).map(|(_, text)| text.clone()).collect();
    let tree = corpus.tree();
    let project = tree.project();
    let id = ItemId::new("own/input").unwrap();
    for at in 0..number("FUZZ_INPUTS", INPUTS) / 5 {
        let text = change(&contracts, Chance::new(at));
        // A text that cannot be signed, such as one with a byte order mark, is skipped.
        let Ok(text) = sign(ItemKind::YAML, &text, &crate::support::key(), SystemTime::UNIX_EPOCH) else { continue };
        let source = SourceFile::new(tree.path("tools/own/input.yaml"), "graphs/tools/own/input.yaml", &text);
        let Ok(verified) = verify(&source, project.ring()) else { continue };
        parse_contract(&verified, &id, &mut Diagnostics::new());
    }
}

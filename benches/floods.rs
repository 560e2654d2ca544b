//! How much time and memory `graph check` needs for a file with very many mistakes or very many parts: for the largest size
//! that is tried, and for half of it.
//!
//! Run with `cargo bench --bench floods`, with the beginning of a name after `--` to select some of the files. Fails if a
//! check takes more than a second, or if it takes more than 300 MB for a file with mistakes.

#[path = "../tests/support/floods.rs"]
mod floods;
#[path = "support/large.rs"]
#[expect(dead_code, reason = "no flood is a graph that is right")]
mod large;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floods::{Flood, floods};
use large::{command_line, write, write_tree};

/// How often each file is checked; the least time and the most memory count.
const ROUNDS: usize = 5;
const MOST_TIME: Duration = Duration::from_secs(1);
/// In KiB.
const MOST_MEMORY: u64 = 300_000_000 / 1024;

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let graph = command_line(root);
    let package = root.join("target/flood_bench");
    write_tree(&package, &[]);
    let mut beyond = Vec::new();
    for Flood { name, most, text, mistakes } in floods().iter().filter(|flood| flood.name.starts_with(&wanted)) {
        let measured = |n: usize| {
            let text = text(n);
            write(package.join("graphs/flood.yaml"), &text);
            let rounds = (0..ROUNDS).map(|_| checked(Command::new(&graph).current_dir(&package), text.len()));
            rounds.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).expect("there are rounds")
        };
        let ((half, _), (whole, memory)) = (measured(most / 2), measured(*most));
        println!("  {name:<34} {most:>7}  {half:>8.2?}  {whole:>8.2?}  {:>4} MB", memory * 1024 / 1_000_000);
        if whole > MOST_TIME || (mistakes.is_some() && memory > MOST_MEMORY) {
            beyond.push(*name);
        }
    }
    fs::remove_dir_all(&package).expect("the tree can be removed");
    assert!(beyond.is_empty(), "more than {MOST_TIME:?}, or {MOST_MEMORY} KiB: {}", beyond.join(", "));
}

/// Checks the file. Returns how long that took, and the peak of the memory in KiB.
fn checked(command: &mut Command, bytes: usize) -> (Duration, u64) {
    command.args(["check", "graphs/flood.yaml"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let mut check = command.spawn().expect("the command can be started");
    let status = format!("/proc/{}/status", check.id());
    let mut most = 0;
    let ended = loop {
        // The peak only grows, so the last reading is the right one.
        most = fs::read_to_string(&status).ok().as_deref().and_then(peak).unwrap_or_default().max(most);
        match check.try_wait().expect("the command can be waited for") {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_micros(500)),
        }
    };
    let took = began.elapsed();
    assert!(matches!(ended.code(), Some(0 | 1)), "a file of {bytes} bytes: {ended}");
    (took, most)
}

/// Reads the largest resident size, in KiB.
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

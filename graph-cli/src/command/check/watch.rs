//! `graph check --watch`: check again whenever a file changes.
//!
//! The files are polled rather than watched: polling works on every file system, and a tree is small.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::CheckArguments;
use super::findings::Trees;
use super::fix::Fixed;
use crate::outcome::{CommandOutcome, CommandResult};
use crate::output;

/// How long to wait between two looks at the files. Editors write a file in several steps, so a change is checked once the
/// files have stayed the same for this long.
const PAUSE: Duration = Duration::from_millis(150);

/// The modification time and the size of each file.
type SeenFiles = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Checks again and again, until the user ends it or nobody reads the output.
pub(super) fn run(arguments: &CheckArguments) -> CommandResult {
    loop {
        // Looks before the check, so that a change during the check is noticed after it.
        let watched = Trees::find(&arguments.paths, arguments.meaning).ok();
        let seen = look(watched.as_ref(), &arguments.paths);
        if io::stdout().is_terminal() {
            // Clear the screen and its scrollback, so that the first mistake is at the top.
            let mut out = io::stdout().lock();
            out.write_all(b"\x1b[2J\x1b[3J\x1b[H")?;
            out.flush()?;
        }
        // A directory may be empty or gone for a moment, for example while git switches branches.
        match Trees::find(&arguments.paths, arguments.meaning) {
            Ok(trees) => {
                arguments.report(&trees.check(), &Fixed::default());
            }
            Err(error) => err!("error: {error}"),
        }
        if output::is_lost() {
            return Ok(CommandOutcome::Well);
        }
        err!("waiting for changes; Ctrl-C ends this");
        wait(|| look(watched.as_ref(), &arguments.paths), &seen);
    }
}

/// Waits until the files differ from `seen`, and then until they stay the same.
fn wait(look: impl Fn() -> SeenFiles, seen: &SeenFiles) {
    let mut last = seen.clone();
    loop {
        let began = Instant::now();
        let now = look();
        if now != *seen && now == last {
            return;
        }
        last = now;
        // Look less often where a look takes long, as in a tree with many other files.
        thread::sleep(PAUSE.max(began.elapsed() * 10));
    }
}

/// Looks at all files that a check reads; without a tree, at the files below the paths.
fn look(trees: Option<&Trees>, paths: &[PathBuf]) -> SeenFiles {
    let mut seen = SeenFiles::new();
    match trees {
        Some(trees) => {
            trees.graphs().for_each(|file| note(file, &mut seen));
            for (root, manifest) in trees.roots() {
                below(root, &mut seen);
                manifest.iter().for_each(|file| note(file, &mut seen));
            }
        }
        None => paths.iter().for_each(|path| below(path, &mut seen)),
    }
    seen
}

/// Notes the graphs, contracts, keys and settings in and below a directory. Skips files that cannot be read or that vanish
/// meanwhile.
fn below(directory: &Path, seen: &mut SeenFiles) {
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "toml")
            {
                note(&path, seen);
            }
        }
    }
}

fn note(file: &Path, seen: &mut SeenFiles) {
    if let Ok(metadata) = fs::metadata(file) {
        seen.insert(file.to_owned(), (metadata.modified().ok(), metadata.len()));
    }
}

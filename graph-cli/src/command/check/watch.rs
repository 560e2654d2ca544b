//! `graph check --watch`: checking again whenever a file changes.
//!
//! Files are looked at again and again rather than watched: that works on every file system, and a tree is small.

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

/// How long to wait before the files are looked at again. Editors write a file in several goes: what changed is checked once
/// it has been the same for as long.
const PAUSE: Duration = Duration::from_millis(150);

/// What is seen of a file without reading it.
type SeenFiles = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Checks until somebody stops it.
pub(super) fn run(arguments: &CheckArguments) -> CommandResult {
    loop {
        // Before the check: what changes while it is made is seen afterwards.
        let watched = Trees::find(&arguments.paths).ok();
        let seen = look(watched.as_ref(), &arguments.paths);
        if io::stdout().is_terminal() {
            // Clear the screen and what was scrolled out of it: the oldest mistake shall be the first line.
            let mut out = io::stdout().lock();
            out.write_all(b"\x1b[2J\x1b[3J\x1b[H")?;
            out.flush()?;
        }
        // A directory may be empty or gone for a moment, as while a branch is changed.
        match Trees::find(&arguments.paths) {
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

/// Waits until something is other than `seen`, and then until it stays as it is.
fn wait(look: impl Fn() -> SeenFiles, seen: &SeenFiles) {
    let mut last = seen.clone();
    loop {
        let began = Instant::now();
        let now = look();
        if now != *seen && now == last {
            return;
        }
        last = now;
        // Where looking takes long, as in a tree with much else in it, do it less often.
        thread::sleep(PAUSE.max(began.elapsed() * 10));
    }
}

/// Looks at all files that a check reads; where there is no tree, at what there is at the paths.
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

/// Notes the graphs, contracts, keys and settings in a directory and below. What cannot be read, or vanishes meanwhile, is not
/// there.
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

//! The verbs, one file each.

pub(crate) mod answer;
pub(crate) mod attest;
pub(crate) mod cache;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod coverage;
pub(crate) mod diagram;
pub(crate) mod edit;
pub(crate) mod expand;
pub(crate) mod explain;
pub(crate) mod files;
pub(crate) mod fork;
pub(crate) mod gc;
pub(crate) mod inbox;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod new;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod schema;
pub(crate) mod shell;
pub(crate) mod show;
pub(crate) mod sign;
pub(crate) mod signal;
mod state_changes;
pub(crate) mod stats;
mod stored;
pub(crate) mod stored_run;
pub(crate) mod test;
pub(crate) mod verify;
pub(crate) mod verify_run;
pub(crate) mod view;
pub(crate) mod watch;
pub(crate) mod work;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use graph_compiler::is_test_file;
use graph_model::character::is_invisible;
use graph_signing::{KeyError, SecretKey, key_directory};

use crate::outcome::Error;

/// The most bytes that a file to be signed or verified may have.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// Reads a text file, within limits.
fn read(path: &Path) -> Result<String, Error> {
    let problem = |error: &io::Error| Error::file("read", path, error);
    let metadata = fs::metadata(path).map_err(|error| problem(&error))?;
    if metadata.is_dir() {
        return Err(Error::new(format!("{} is a directory; name files", path.display())));
    }
    if !metadata.is_file() {
        return Err(Error::new(format!("{} is a pipe or a device; name files", path.display())));
    }
    if metadata.len() > MOST_BYTES {
        return Err(Error::new(format!("{} has more than {MOST_BYTES} bytes", path.display())));
    }
    fs::read_to_string(path).map_err(|error| problem(&error))
}

/// Returns the named files without those of tests, which nobody signs, and reports the latter. A pattern such as `graphs/*.yaml` names
/// both.
fn without_tests(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let (tests, others): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().cloned().partition(|path| is_test_file(path) && !path.is_dir());
    if let (Some(first), true) = (tests.first(), others.is_empty()) {
        let first = first.display();
        return Err(Error::new(format!(
            "{first} is a file of tests, which is not signed: `graph test {first}` runs it"
        )));
    }
    for path in tests {
        err!("note: {} is passed over: it is a file of tests, which is not signed", path.display());
    }
    Ok(others)
}

/// Returns a text in which each character that a reader would not see, or that a terminal would obey, is written as its number.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        if character != '\t' && (character.is_control() || is_invisible(character)) {
            plain.extend(character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Replaces a file as a whole: whoever reads it sees the old text or the new, and a crash leaves one of them. The file behind a link is
/// replaced, and not the link. A pipe, a terminal and other such places get the text.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let path = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(Error::new(format!("cannot write {}: it is a directory", path.display())));
        }
        Ok(metadata) if !metadata.is_file() => {
            let write = || fs::File::options().write(true).open(path)?.write_all(text.as_bytes());
            return write().map_err(|error| Error::file("write", path, &error));
        }
        Ok(metadata) if metadata.permissions().readonly() => {
            return Err(Error::new(format!("cannot write {}: it is read-only", path.display())));
        }
        Ok(_) => &path.canonicalize().map_err(|error| Error::file("write", path, &error))?,
        // It is made, unless it is a link that leads nowhere.
        Err(_) if fs::symlink_metadata(path).is_ok() => {
            return Err(Error::new(format!("cannot write {}: it is a link that leads nowhere", path.display())));
        }
        Err(_) => path,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || {
        // Not one that somebody else put there, as a link to another file. An earlier process of this number may have left one.
        if fs::symlink_metadata(&temporary).is_ok() {
            fs::remove_file(&temporary)?;
        }
        let mut file = fs::File::create_new(&temporary)?;
        if let Ok(metadata) = fs::metadata(path) {
            file.set_permissions(metadata.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // The attempt's file is of no use, and a failure to remove it changes nothing about the error.
        drop(fs::remove_file(&temporary));
        Error::file("write", path, &error)
    })
}

/// Finds the project's directory: the one that is named, or the nearest one above the working directory that holds `.ai`. An error
/// says which `option` names it.
fn project_here(named: Option<&PathBuf>, option: &str) -> Result<PathBuf, Error> {
    match named {
        Some(directory) => Ok(directory.clone()),
        None => project_around(&std::env::current_dir()?).ok_or_else(|| {
            Error::new(format!(
                "there is no project here: neither the working directory nor one above it holds .ai; name one with `{option}`"
            ))
        }),
    }
}

/// Finds the nearest directory that holds `.ai`: the one that is named, or one above it, or above a file. One that belongs to somebody
/// else than what is named does is passed over: in a directory where all can write, as `/tmp`, a stranger's `.ai` would bring keys to
/// trust. So is one that everybody can write to, or whose directories of keys everybody can; a warning says so.
fn project_around(path: &Path) -> Option<PathBuf> {
    let owner = owner(path)?;
    let is_project = |directory: &&Path| {
        let space = directory.join(".ai");
        if !space.is_dir() || ![Some(owner), Some(0)].contains(&self::owner(&space)) {
            return false;
        }
        let open = ["config", "config/keys", "config/keys/trusted"].map(|part| space.join(part));
        let mut open = std::iter::once(&space).chain(&open);
        let Some(open) = open.find(|directory| is_writable_by_all(directory)) else { return true };
        err!(
            "warning: {} is not used: everybody can write to {}; run `chmod o-w` on it",
            space.display(),
            open.display()
        );
        false
    };
    path.ancestors().skip(usize::from(!path.is_dir())).find(is_project).map(Path::to_owned)
}

#[cfg(unix)]
fn owner(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    path.metadata().ok().map(|metadata| metadata.uid())
}

#[cfg(unix)]
fn is_writable_by_all(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.metadata().is_ok_and(|metadata| metadata.mode() & 0o002 != 0)
}

#[cfg(not(unix))]
fn is_writable_by_all(_: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn owner(_: &Path) -> Option<u32> {
    Some(0)
}

/// Loads the key to sign with: the named file, or the person's own.
fn signing_key(path: Option<&PathBuf>) -> Result<SecretKey, Error> {
    let path = match path {
        Some(path) => path.clone(),
        None => own_key_directory()?.join("private_key.pem"),
    };
    match SecretKey::load(&path) {
        Err(KeyError::Missing(path)) => {
            Err(Error::new(format!("no signing key at {}; make one first: `graph keys generate`", path.display())))
        }
        other => Ok(other?),
    }
}

fn own_key_directory() -> Result<PathBuf, Error> {
    key_directory()
        .ok_or_else(|| Error::new("there is no home directory; set RYE_SIGNING_KEY_DIR, or name the key with `--key`"))
}

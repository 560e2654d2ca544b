//! A project's directory, with files that are replaced as a whole or appended to. No link is followed on the way to them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::error::{FilesError, locked};
use graph_items::confined::{make_directory, open_directory, refuse_link};

/// A directory in which no link is followed. A run's files are written where their names say and nowhere else, such as
/// among trusted keys.
#[derive(Debug)]
pub(crate) struct Disk {
    root: Dir,
    path: PathBuf,
    /// The files that differ from the bytes to be written, if files are only compared; `None` if they are written.
    differing: Option<Mutex<BTreeSet<PathBuf>>>,
}

impl Disk {
    pub(crate) fn open(path: &Path) -> Result<Self, FilesError> {
        let failed = |source| FilesError::Io { verb: "open", path: path.to_owned(), source };
        let root = Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?;
        Ok(Self { root, path: path.to_owned(), differing: None })
    }

    /// Returns the same directory in a mode that compares files with the bytes to be written, and never writes.
    pub(crate) fn comparing(&self) -> Result<Self, FilesError> {
        let root = self.root.try_clone().map_err(self.failed("open", ""))?;
        Ok(Self { root, path: self.path.clone(), differing: Some(Mutex::default()) })
    }

    /// Returns the files that differ from the bytes to be written, each once.
    pub(crate) fn differing(&self) -> Vec<PathBuf> {
        self.differing.iter().flat_map(|differing| locked(differing).clone()).collect()
    }

    fn compare(&self, differing: &Mutex<BTreeSet<PathBuf>>, file: &str, bytes: &[u8]) -> Result<(), FilesError> {
        if self.read(file)?.as_deref() != Some(bytes) {
            locked(differing).insert(self.path(file));
        }
        Ok(())
    }

    /// Returns the path of a file, for messages and for SQLite.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    fn failed(&self, verb: &'static str, file: &str) -> impl FnOnce(io::Error) -> FilesError {
        let path = self.path(file);
        move |source| FilesError::Io { verb, path, source }
    }

    /// Opens the directory that a file is in, and returns it with the file's name there, which is not a link.
    fn locate<'f>(&self, file: &'f str) -> io::Result<(Dir, &'f str)> {
        self.locate_by(file, open_directory)
    }

    /// Does the same as [`Disk::locate`], and makes the directory if it is missing.
    fn locate_or_make<'f>(&self, file: &'f str) -> Result<(Dir, &'f str), FilesError> {
        self.locate_by(file, make_directory).map_err(self.failed("make the directory of", file))
    }

    fn locate_by<'f>(
        &self,
        file: &'f str,
        open: impl FnOnce(&Dir, &str) -> io::Result<Dir>,
    ) -> io::Result<(Dir, &'f str)> {
        let (directory, name) = file.rsplit_once('/').unwrap_or(("", file));
        let directory = open(&self.root, directory)?;
        refuse_link(&directory, name)?;
        Ok((directory, name))
    }

    /// Reads a file; `None` if there is no such file.
    pub(crate) fn read(&self, file: &str) -> Result<Option<Vec<u8>>, FilesError> {
        let read = self.locate(file).and_then(|(directory, name)| match directory.metadata(name)?.is_file() {
            true => directory.read(name),
            // A pipe would be waited for.
            false => Err(io::Error::other("it is no file")),
        });
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", file)(error)),
        }
    }

    /// Returns the names of a directory's entries; empty if there is no such directory.
    pub(crate) fn names(&self, directory: &str) -> Result<Vec<String>, FilesError> {
        let opened = open_directory(&self.root, directory);
        let entries = match opened.and_then(|directory| directory.entries()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("read", directory)(error)),
        };
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        names.collect::<Result<_, _>>().map_err(self.failed("read", directory))
    }

    /// Removes a file. It is not an error if there is no such file.
    pub(crate) fn remove(&self, file: &str) -> Result<(), FilesError> {
        match self.locate(file).and_then(|(directory, name)| directory.remove_file(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed("remove", file)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes the directories above a file, which must be a regular file, and not a link, if it exists.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_inside(&self, file: &str) -> Result<(), FilesError> {
        let (directory, name) = self.locate_or_make(file)?;
        match directory.symlink_metadata(name) {
            Ok(metadata) if metadata.is_file() => Ok(()),
            Ok(_) => Err(self.failed("open", file)(io::Error::other("it is not a regular file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed("open", file)(error)),
        }
    }

    /// Replaces a file as a whole: a reader sees the old text or the new one (R214).
    pub(crate) fn replace(&self, file: &str, bytes: &[u8]) -> Result<(), FilesError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if let Some(differing) = &self.differing {
            return self.compare(differing, file, bytes);
        }
        let (directory, name) = self.locate_or_make(file)?;
        let temporary = format!("{name}.{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let write = || {
            let mut handle = directory.open_with(&temporary, OpenOptions::new().write(true).create_new(true))?;
            handle.write_all(bytes)?;
            drop(handle);
            directory.rename(&temporary, &directory, name)
        };
        write().map_err(|error| {
            // The temporary file is of no use. If it cannot be removed, the error is still the same.
            drop(directory.remove_file(&temporary));
            self.failed("write", file)(error)
        })
    }

    /// Sets the content of a file to `bytes`. If the file already holds the beginning of them, the rest is appended, so
    /// that a program that follows the file sees it grow.
    pub(crate) fn bring_to(&self, file: &str, bytes: &[u8]) -> Result<(), FilesError> {
        if let Some(differing) = &self.differing {
            return self.compare(differing, file, bytes);
        }
        match self.read(file)? {
            Some(there) if bytes.starts_with(&there) => {
                self.append(file, there.len() as u64, &bytes[there.len()..]).map(drop)
            }
            _ => self.replace(file, bytes),
        }
    }

    /// Writes `bytes` at the end of a file that is `length` bytes long. Any bytes after that, such as half a line of a
    /// failed write, are dropped, and their number is returned. A shorter file is an error.
    pub(crate) fn append(&self, file: &str, length: u64, bytes: &[u8]) -> Result<u64, FilesError> {
        let (directory, name) = self.locate_or_make(file)?;
        let write = || {
            let mut handle = directory.open_with(name, OpenOptions::new().append(true).create(true))?;
            let found = handle.metadata()?.len();
            if found < length {
                let reason = format!("it has {found} bytes and should have {length}: somebody cut it short");
                return Err(io::Error::other(reason));
            }
            if found > length {
                handle.set_len(length)?;
            }
            handle.write_all(bytes)?;
            Ok(found - length)
        };
        write().map_err(self.failed("write", file))
    }
}

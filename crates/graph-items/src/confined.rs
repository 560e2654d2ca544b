//! Directories that are opened without following links, so that files are written where their path says.

use std::io;

use cap_std::fs::Dir;

/// Opens the directory `path` below `parent`. The parts of the path are separated by `/`, and no part may be a link.
///
/// # Errors
///
/// If it does not exist or is not a directory, or if a part of the path is a link.
pub fn open_directory(parent: &Dir, path: &str) -> io::Result<Dir> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .try_fold(parent.try_clone()?, |directory, part| step(&directory, part))
}

/// Opens a directory like [`open_directory`], and creates the directories that are missing.
///
/// # Errors
///
/// If a directory cannot be created, or if a part of the path is a link or not a directory.
pub fn make_directory(parent: &Dir, path: &str) -> io::Result<Dir> {
    path.split('/').filter(|part| !part.is_empty()).try_fold(parent.try_clone()?, |directory, part| {
        match step(&directory, part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match directory.create_dir(part) {
                    // Another process may have created it in the meantime.
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    Ok(()) | Err(_) => {}
                }
                step(&directory, part)
            }
            opened => opened,
        }
    })
}

/// Returns an error if `name` in `directory` is a link.
///
/// # Errors
///
/// If it is a link, or its metadata cannot be read.
pub fn refuse_link(directory: &Dir, name: &str) -> io::Result<()> {
    match directory.symlink_metadata(name) {
        Ok(metadata) if metadata.is_symlink() => Err(is_link(name)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn step(directory: &Dir, name: &str) -> io::Result<Dir> {
    open(directory, name).map_err(|error| match directory.symlink_metadata(name) {
        Ok(metadata) if metadata.is_symlink() => is_link(name),
        _ => error,
    })
}

fn is_link(name: &str) -> io::Error {
    io::Error::other(format!("`{name}` is a link, and no link is followed there"))
}

#[cfg(unix)]
fn open(directory: &Dir, name: &str) -> io::Result<Dir> {
    use rustix::fs::{Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Dir::from_std_file(openat(directory, name, flags, Mode::empty())?.into()))
}

/// This is less strict: a link that is created between the two calls is followed if it stays below `directory`.
#[cfg(not(unix))]
fn open(directory: &Dir, name: &str) -> io::Result<Dir> {
    if directory.symlink_metadata(name)?.is_symlink() {
        return Err(is_link(name));
    }
    directory.open_dir(name)
}

#[cfg(all(test, unix))]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn no_part_of_a_path_may_be_a_link() {
        let root = tempfile::tempdir().unwrap();
        let directory = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        make_directory(&directory, "a/b").unwrap();
        std::os::unix::fs::symlink("a", root.path().join("l")).unwrap();
        assert!(open_directory(&directory, "a/b").is_ok());
        assert_eq!(open_directory(&directory, "a/c").unwrap_err().kind(), io::ErrorKind::NotFound);
        for path in ["l", "l/b"] {
            for opened in [open_directory(&directory, path), make_directory(&directory, path)] {
                assert_eq!(opened.unwrap_err().to_string(), "`l` is a link, and no link is followed there");
            }
        }
        assert!(refuse_link(&directory, "l").is_err() && refuse_link(&directory, "a").is_ok());
    }
}

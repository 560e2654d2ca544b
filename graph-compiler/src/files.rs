//! The files of a tree. A file that cannot be read never counts as missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use graph_definition::diagnostic::Diagnostic;
use graph_definition::source::SourceFile;

use crate::levels::SETTINGS;

/// The result of a walk through a directory.
#[derive(Debug, Default)]
pub struct FileWalk {
    /// The YAML files, sorted.
    pub files: Vec<PathBuf>,
    /// The directories that could not be read, and why.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

impl FileWalk {
    /// Reports the directories that could not be read (`G0001`).
    pub fn problems(&self, package: &Path) -> Vec<Diagnostic> {
        let one = |(path, error): &(PathBuf, io::Error)| {
            *SourceFile::unreadable(path, &display_name(package, path), error, "check the directory's permissions")
        };
        self.unreadable.iter().map(one).collect()
    }
}

/// The ends of the names of test files, which are beside the graphs that they test: `order.test.yaml` tests `order.yaml`.
pub const TEST_ENDS: [&str; 2] = [".test.yaml", ".test.yml"];

/// Whether a file is one of tests, by its name. No graph and no contract has such a name, because an id has no dots.
pub fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    TEST_ENDS.iter().any(|end| name.ends_with(end))
}

/// Finds the files of tests in a directory and below it.
pub fn find_tests(directory: &Path) -> FileWalk {
    walk_for(directory, &["keys"], is_test_file)
}

/// Finds the graphs of a tree: every YAML file except files of tests and those in its `keys` and `tools`.
pub fn find_graphs(directory: &Path) -> FileWalk {
    walk(directory, &["keys", "tools"])
}

/// Finds the files of a tree that their authors sign: graphs, contracts and settings of lints. Key files are signed when they are
/// written.
pub fn find_signed(directory: &Path) -> FileWalk {
    walk_for(directory, &["keys"], |path| is_yaml(path) || path.file_name().is_some_and(|name| name == SETTINGS))
}

/// Returns the graphs of a tree, sorted: every YAML file except files of tests and those in `keys` and `tools`.
///
/// # Errors
///
/// If the directory or one below it cannot be read; the error names it.
pub fn graph_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let FileWalk { files, unreadable } = find_graphs(directory);
    match unreadable.into_iter().next() {
        None => Ok(files),
        Some((path, error)) => {
            Err(io::Error::new(error.kind(), format!("cannot read the directory {}: {error}", path.display())))
        }
    }
}

/// Finds the YAML files in a directory and below it, except in the directories directly in it that are `reserved`.
pub(crate) fn walk(directory: &Path, reserved: &[&str]) -> FileWalk {
    walk_for(directory, reserved, is_yaml)
}

fn is_yaml(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml"))
        && !is_test_file(path)
}

fn walk_for(directory: &Path, reserved: &[&str], is_wanted: impl Fn(&Path) -> bool) -> FileWalk {
    let (mut found, mut waiting) = (FileWalk::default(), vec![directory.to_owned()]);
    while let Some(current) = waiting.pop() {
        let is_reserved = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            current == directory && name.is_some_and(|name| reserved.contains(&name))
        };
        let mut read = || -> io::Result<()> {
            for entry in fs::read_dir(&current)? {
                let entry = entry?;
                let path = entry.path();
                // A link to a directory is not followed: it may lead back.
                if entry.file_type()?.is_dir() {
                    if !is_reserved(&path) {
                        waiting.push(path);
                    }
                } else if is_wanted(&path) && !path.is_dir() {
                    found.files.push(path);
                }
            }
            Ok(())
        };
        if let Err(error) = read() {
            found.unreadable.push((current, error));
        }
    }
    found.files.sort();
    found.unreadable.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// Whether there is something at `path`, which is in `root`.
///
/// # Errors
///
/// If that cannot be determined: a directory on the path cannot be searched or is a file, or a link leads nowhere. A
/// dangling link does not count as absent, since somebody created it on purpose.
pub(crate) fn is_there(root: &Path, path: &Path) -> io::Result<bool> {
    match path.metadata() {
        Ok(_) => return Ok(true),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let mut way = root.to_owned();
    for part in path.strip_prefix(root).unwrap_or(path) {
        way.push(part);
        match way.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => {
                way.metadata()?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Returns a path as messages show it: relative to the working directory, else to the package, with forward slashes.
pub fn display_name(package: &Path, path: &Path) -> String {
    let working = std::env::current_dir().unwrap_or_default();
    let shown = path.strip_prefix(&working).or_else(|_| path.strip_prefix(package)).unwrap_or(path);
    if shown.as_os_str().is_empty() { ".".to_owned() } else { shown.to_string_lossy().replace('\\', "/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_path_does_not_count_as_missing() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("tools/shop")).unwrap();
        fs::write(root.join("tools/shop/pay.yaml"), "").unwrap();
        fs::write(root.join("tools/file"), "").unwrap();
        let there = |path: &str| is_there(root, &root.join(path)).map_err(|error| error.kind());
        assert_eq!(there("tools/shop/pay.yaml"), Ok(true));
        assert_eq!(there("tools/shop/other.yaml"), Ok(false));
        assert_eq!(there("tools/none/other.yaml"), Ok(false));
        assert_eq!(there("tools/file/other.yaml"), Err(io::ErrorKind::NotADirectory));
        assert!(there(&format!("tools/{}/x.yaml", "x".repeat(300))).is_err(), "a name that is too long");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_nowhere_or_round_is_there() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("tools/real")).unwrap();
        symlink("nowhere", root.join("tools/dangling")).unwrap();
        symlink("round", root.join("tools/round")).unwrap();
        symlink("real", root.join("tools/linked")).unwrap();
        let there = |path: &str| is_there(root, &root.join(path));
        assert!(there("tools/dangling").is_err() && there("tools/dangling/x.yaml").is_err());
        assert!(there("tools/round").is_err() && there("tools/round/x.yaml").is_err());
        assert!(!there("tools/linked/x.yaml").unwrap());
    }

    #[test]
    fn a_file_of_tests_is_no_graph_and_is_not_signed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("tools/shop")).unwrap();
        for name in
            ["order.yaml", "order.test.yaml", "b.TEST.yml", "test.yaml", "tools/shop/pay.yaml", "tools/x.test.yaml"]
        {
            fs::write(root.join(name), "").unwrap();
        }
        let names =
            |walk: FileWalk| -> Vec<String> { walk.files.iter().map(|path| display_name(root, path)).collect() };
        assert_eq!(names(find_graphs(root)), ["order.yaml", "test.yaml"]);
        assert_eq!(names(find_signed(root)), ["order.yaml", "test.yaml", "tools/shop/pay.yaml"]);
        assert_eq!(names(walk(&root.join("tools"), &[])), ["tools/shop/pay.yaml"]);
        assert_eq!(names(find_tests(root)), ["b.TEST.yml", "order.test.yaml", "tools/x.test.yaml"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_walk_names_the_directory_that_it_cannot_read() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::write(root.join("file"), "").unwrap();
        symlink("round", root.join("round")).unwrap();
        let unreadable = |name: &str| -> Vec<PathBuf> {
            walk(&root.join(name), &[]).unreadable.into_iter().map(|(path, _)| path).collect()
        };
        assert_eq!(unreadable("file"), [root.join("file")]);
        assert_eq!(unreadable("round"), [root.join("round")]);
        assert_eq!(unreadable("none"), [root.join("none")]);
        assert!(unreadable("").is_empty());
    }
}

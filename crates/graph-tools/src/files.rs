//! `rye/file-system/…`: files below the directory that the program names.
//!
//! `cap-std` resolves paths, starting from the opened directory: with `openat2` and `RESOLVE_BENEATH` if the kernel has it,
//! else one component at a time without blindly following links. Nobody can therefore put a link in place between the check
//! of a path and its use.
//!
//! The work is done on a thread for blocking calls. It is finished there even if the caller no longer waits.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use cap_std::fs::{Dir, DirEntry, File, OpenOptions};
use graph_model::digest::hex;
use graph_model::value::{FromValue, Value};
use serde_json::json;

use super::{Encoding, bytes, config};
use graph_engine::ActionError;
use graph_engine::Call;

/// The maximum number of entries of a directory that are listed. More entries are an error, because a part would look like
/// the whole.
const MOST_ENTRIES: usize = 10_000;

#[derive(Debug)]
struct ReadParams {
    path: String,
    offset: i64,
    limit: i64,
    encoding: String,
}

graph_engine::__object!(ReadParams {
    0 path: "path",
    1 offset: "offset" = "0",
    2 limit: "limit" = "1048576",
    3 encoding: "encoding" = "\"utf-8\"",
});

#[derive(Debug)]
struct WriteParams {
    path: String,
    content: String,
    append: bool,
    create_dirs: bool,
    encoding: String,
}

graph_engine::__object!(WriteParams {
    0 path: "path",
    1 content: "content",
    2 append: "append" = "false",
    3 create_dirs: "create_dirs" = "false",
    4 encoding: "encoding" = "\"utf-8\"",
});

#[derive(Debug)]
struct ListParams {
    path: String,
}

graph_engine::__object!(ListParams { 0 path: "path" = "\".\"" });

pub(super) async fn read(call: &Call, params: Value) -> Result<Value, ActionError> {
    let params = ReadParams::from_value(params)?;
    let offset = bytes(params.offset, "offset", i64::MAX.unsigned_abs())?;
    // `truncated` shows that something was left out, so a smaller limit of the program is not a failure.
    let limit = bytes(params.limit, "limit", i64::MAX.unsigned_abs())?.min(config(call).most_bytes());
    let path = Relative::file(&params.path)?;
    let encoding = Encoding::named(&params.encoding)?;
    blocking(call, move |root| {
        let mut file = open_to_read(root, &path)?;
        let size = file.metadata().map_err(|error| path.failed("read", &error))?.len();
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.take(limit).read_to_end(&mut content))
            .map_err(|error| path.failed("read", &error))?;
        // A file may grow or shrink meanwhile: its end is where a read returns nothing more.
        let mut end = offset.saturating_add(u64::try_from(content.len()).unwrap_or(u64::MAX));
        let content = match encoding {
            Encoding::Base64 => Base64::encode_string(&content),
            Encoding::Utf8 => {
                let (text, rest) = as_text(content, end < size).map_err(|at| {
                    let at = offset.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
                    ActionError::permanent(format!(
                        "`{path}` is not UTF-8 text (byte {at}); read it with `encoding: base64`"
                    ))
                })?;
                end = end.saturating_sub(rest);
                text
            }
        };
        Ok(json!({"content": content, "size": size, "truncated": end < size}))
    })
    .await
}

/// Converts bytes to a text. If the file continues, omits an incomplete character at the end, and returns the number of its
/// bytes.
///
/// The error is the position of the first byte that is not UTF-8.
fn as_text(bytes: Vec<u8>, goes_on: bool) -> Result<(String, u64), usize> {
    String::from_utf8(bytes).map(|text| (text, 0)).or_else(|error| {
        let (at, is_cut) = (error.utf8_error().valid_up_to(), error.utf8_error().error_len().is_none());
        let mut bytes = error.into_bytes();
        let rest = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX);
        bytes.truncate(at);
        // With no character before it, a reader that continues from the end of this part would make no progress.
        if !goes_on || !is_cut || at == 0 {
            return Err(at);
        }
        String::from_utf8(bytes).map(|text| (text, rest)).map_err(|_| at)
    })
}

pub(super) async fn write(call: &Call, params: Value) -> Result<Value, ActionError> {
    let params = WriteParams::from_value(params)?;
    let path = Relative::file(&params.path)?;
    let limit = config(call).most_bytes();
    let content = match Encoding::named(&params.encoding)? {
        Encoding::Utf8 => params.content.into_bytes(),
        Encoding::Base64 => {
            Base64::decode_vec(&params.content).map_err(|_| ActionError::permanent("`content` is not base64"))?
        }
    };
    let too_large =
        move |path: &Relative| ActionError::permanent(format!("`{path}` would have more than {limit} bytes"));
    let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if length > limit {
        return Err(too_large(&path));
    }
    let (append, create_dirs) = (params.append, params.create_dirs);
    blocking(call, move |root| {
        let failed = |error: std::io::Error| path.failed("written", &error);
        let (directory, name) = directory_of(root, &path, create_dirs)?;
        let before = replaceable(&directory, name, &path)?;
        if append {
            let size = before.map_or(0, |metadata| metadata.len());
            if size.saturating_add(length) > limit {
                return Err(too_large(&path));
            }
            append_to(&directory, name, &content).map_err(failed)?;
        } else {
            let permissions = before.map(|metadata| metadata.permissions());
            replace(&directory, name, permissions, |file| file.write_all(&content)).map_err(failed)?;
        }
        Ok(json!({"bytes": length, "path": path.to_string()}))
    })
    .await
}

pub(super) async fn list(call: &Call, params: Value) -> Result<Value, ActionError> {
    let path = Relative::new(&ListParams::from_value(params)?.path)?;
    blocking(call, move |root| {
        let failed = |error: std::io::Error| path.failed("listed", &error);
        let mut entries: Vec<(String, Value)> = Vec::new();
        for found in root.read_dir(path.as_path()).map_err(failed)? {
            if entries.len() == MOST_ENTRIES {
                return Err(ActionError::permanent(format!("`{path}` has more than {MOST_ENTRIES} entries")));
            }
            let found = found.map_err(failed)?;
            let name = found
                .file_name()
                .into_string()
                .map_err(|name| ActionError::permanent(format!("`{path}` holds {name:?}, which is not UTF-8 text")))?;
            let (kind, size) = describe(&found).map_err(failed)?;
            entries.push((name.clone(), json!({"name": name, "kind": kind, "size": size})));
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(json!({"entries": entries.into_iter().map(|(_, entry)| entry).collect::<Vec<Value>>()}))
    })
    .await
}

fn describe(entry: &DirEntry) -> std::io::Result<(&'static str, u64)> {
    let kind = entry.file_type()?;
    Ok(if kind.is_symlink() {
        ("link", 0)
    } else if kind.is_dir() {
        ("directory", 0)
    } else if kind.is_file() {
        ("file", entry.metadata()?.len())
    } else {
        ("other", 0)
    })
}

/// Runs `work` in the directory that the program allows, on a thread that may block.
async fn blocking(
    call: &Call,
    work: impl FnOnce(&Dir) -> Result<Value, ActionError> + Send + 'static,
) -> Result<Value, ActionError> {
    let Some(root) = config(call).directory() else {
        return Err(ActionError::permanent(
            "the program allows no files: it names a directory for them with `ToolConfig::root`",
        ));
    };
    let root = Arc::clone(root);
    tokio::task::spawn_blocking(move || work(&root)).await?
}

/// A path below the root, as far as its text shows.
struct Relative(PathBuf);

impl Relative {
    fn new(text: &str) -> Result<Self, ActionError> {
        let refused =
            |why| Err(ActionError::permanent(format!("`{}` is refused as a path: {why}", text.escape_debug())));
        if text.is_empty() || text.contains('\0') {
            return refused("it is empty or has a zero byte");
        }
        let mut path = PathBuf::new();
        for component in Path::new(text).components() {
            match component {
                Component::Normal(name) => path.push(name),
                Component::CurDir => {}
                Component::ParentDir => return refused("`..` is not allowed"),
                Component::RootDir | Component::Prefix(_) => {
                    return refused("paths are relative to the directory that the program names");
                }
            }
        }
        Ok(Self(path))
    }

    /// Returns the path of an entry of the root, not of the root itself.
    fn file(text: &str) -> Result<Self, ActionError> {
        let path = Self::new(text)?;
        if path.0.as_os_str().is_empty() || text.ends_with('/') {
            return Err(ActionError::permanent(format!("`{text}` is refused as a path: it names no file")));
        }
        Ok(path)
    }

    fn as_path(&self) -> &Path {
        if self.0.as_os_str().is_empty() { Path::new(".") } else { &self.0 }
    }

    fn failed(&self, done: &str, error: &std::io::Error) -> ActionError {
        // This is cap-std's own refusal; a refusal of the system has an error number.
        let leads_out = error.kind() == std::io::ErrorKind::PermissionDenied && error.raw_os_error().is_none();
        if leads_out {
            return ActionError::permanent(format!("`{self}` leads out of the directory that the program names"));
        }
        ActionError::permanent(format!("`{self}` cannot be {done}: {error}"))
    }
}

impl std::fmt::Display for Relative {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_path().display().fmt(f)
    }
}

/// Opens a regular file. Does not wait for the writer of a pipe.
fn open_to_read(root: &Dir, path: &Relative) -> Result<File, ActionError> {
    let mut options = OpenOptions::new();
    options.read(true);
    do_not_wait(&mut options);
    let failed = |error: std::io::Error| path.failed("read", &error);
    let file = root.open_with(path.as_path(), &options).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ActionError::permanent(format!("`{path}` is not a file")));
    }
    Ok(file)
}

#[cfg(unix)]
fn do_not_wait(options: &mut OpenOptions) {
    use cap_std::fs::OpenOptionsExt;
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
}

#[cfg(not(unix))]
fn do_not_wait(_: &mut OpenOptions) {}

/// Opens the directory of a file to write; all later steps use this open directory.
fn directory_of<'p>(root: &Dir, path: &'p Relative, create: bool) -> Result<(Dir, &'p Path), ActionError> {
    let failed = |error: std::io::Error| path.failed("written", &error);
    let name = path.0.file_name().map(Path::new).ok_or_else(|| ActionError::permanent("a path without a file"))?;
    let directory = match path.0.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        None => root.try_clone().map_err(failed)?,
        Some(parent) => match root.open_dir(parent) {
            Err(error) if create && error.kind() == std::io::ErrorKind::NotFound => {
                root.create_dir_all(parent).and_then(|()| root.open_dir(parent)).map_err(failed)?
            }
            opened => opened.map_err(failed)?,
        },
    };
    Ok((directory, name))
}

/// Returns the metadata of the file to replace, if there is one. Only a regular file may be replaced.
fn replaceable(directory: &Dir, name: &Path, path: &Relative) -> Result<Option<cap_std::fs::Metadata>, ActionError> {
    match directory.symlink_metadata(name) {
        Ok(metadata) if metadata.is_file() => Ok(Some(metadata)),
        Ok(metadata) if metadata.is_symlink() => {
            Err(ActionError::permanent(format!("`{path}` is a link; write to what it leads to")))
        }
        Ok(_) => Err(ActionError::permanent(format!("`{path}` is not a file"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(path.failed("written", &error)),
    }
}

fn append_to(directory: &Dir, name: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    do_not_wait(&mut options);
    let mut file = directory.open_with(name, &options)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    file.write_all(content)?;
    file.sync_all()?;
    sync(directory)
}

/// Replaces a file durably by the output of `write`, or leaves the file as it is.
fn replace(
    directory: &Dir,
    name: &Path,
    permissions: Option<cap_std::fs::Permissions>,
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    let mut temporary = Temporary { directory, name: format!(".graph-{}.tmp", hex(&random)), is_kept: false };
    let mut file = directory.open_with(&temporary.name, OpenOptions::new().write(true).create_new(true))?;
    write(&mut file)?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.sync_all()?;
    directory.rename(&temporary.name, directory, name)?;
    temporary.is_kept = true;
    sync(directory)
}

/// A temporary file that is removed on drop, unless it was renamed to its final name.
struct Temporary<'d> {
    directory: &'d Dir,
    name: String,
    is_kept: bool,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = self.directory.remove_file(&self.name)
        {
            tracing::debug!(%error, name = self.name, "a temporary file could not be removed");
        }
    }
}

/// Makes the entries of a directory durable.
#[cfg(unix)]
fn sync(directory: &Dir) -> std::io::Result<()> {
    directory.open(".")?.sync_all()
}

/// Does nothing: Windows has no such call and does not need one.
#[cfg(not(unix))]
fn sync(_: &Dir) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use graph_model::value::Struct;

    use super::super::ToolConfig;
    use super::super::testing::{assert_contract, call};
    use super::*;

    struct Tree {
        outside: tempfile::TempDir,
        call: Call,
    }

    impl Tree {
        /// Creates a directory `root`, and a file `secret` beside it.
        fn new() -> Self {
            let outside = tempfile::tempdir().unwrap();
            fs::create_dir(outside.path().join("root")).unwrap();
            fs::write(outside.path().join("secret"), "secret").unwrap();
            let config = ToolConfig::new().root(outside.path().join("root")).unwrap().file_limit(1000);
            Self { outside, call: call(config, &[]) }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.outside.path().join("root").join(name)
        }

        async fn read(&self, params: Value) -> Result<Value, String> {
            read(&self.call, params).await.map_err(|error| format!("{error:?}"))
        }

        async fn write(&self, params: Value) -> Result<Value, String> {
            write(&self.call, params).await.map_err(|error| format!("{error:?}"))
        }

        async fn list(&self, params: Value) -> Result<Value, String> {
            list(&self.call, params).await.map_err(|error| format!("{error:?}"))
        }

        /// Returns the names in the root, including hidden ones.
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.path(".")).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn the_parameters_and_defaults_are_those_of_the_contracts() {
        assert_contract::<ReadParams>(include_str!("../../../graph-compiler/contracts/rye/file-system/read.yaml"));
        assert_contract::<WriteParams>(include_str!("../../../graph-compiler/contracts/rye/file-system/write.yaml"));
        assert_contract::<ListParams>(include_str!("../../../graph-compiler/contracts/rye/file-system/list.yaml"));
        assert_eq!(ListParams::NAMES, ["path"]);
    }

    #[tokio::test]
    async fn without_a_directory_there_are_no_files() {
        let call = call(ToolConfig::new(), &[]);
        for result in [
            read(&call, json!({"path": "a"})).await,
            write(&call, json!({"path": "a", "content": ""})).await,
            list(&call, json!({})).await,
        ] {
            let expected = "the program allows no files: it names a directory for them with `ToolConfig::root`";
            assert_eq!(result.unwrap_err().to_string(), expected);
        }
    }

    #[tokio::test]
    async fn written_values_are_read_back_unchanged() {
        let tree = Tree::new();
        let written = tree.write(json!({"path": "./a.txt", "content": "grüße"})).await.unwrap();
        assert_eq!(written, json!({"bytes": 7, "path": "a.txt"}));
        let read = tree.read(json!({"path": "a.txt"})).await.unwrap();
        assert_eq!(read, json!({"content": "grüße", "size": 7, "truncated": false}));
        tree.write(json!({"path": "a.txt", "content": "!", "append": true})).await.unwrap();
        assert_eq!(fs::read_to_string(tree.path("a.txt")).unwrap(), "grüße!");
    }

    #[tokio::test]
    async fn a_file_can_be_read_in_parts_that_do_not_split_characters() {
        let tree = Tree::new();
        fs::write(tree.path("a"), "aüb").unwrap();
        let read = tree.read(json!({"path": "a", "limit": 2})).await.unwrap();
        assert_eq!(read, json!({"content": "a", "size": 4, "truncated": true}));
        let read = tree.read(json!({"path": "a", "offset": 1})).await.unwrap();
        assert_eq!(read, json!({"content": "üb", "size": 4, "truncated": false}));
        let read = tree.read(json!({"path": "a", "offset": 9})).await.unwrap();
        assert_eq!(read, json!({"content": "", "size": 4, "truncated": false}));
        // A part that begins within a character, or is too small for one, is not a text.
        assert!(tree.read(json!({"path": "a", "offset": 2})).await.unwrap_err().contains("(byte 2)"));
        assert!(tree.read(json!({"path": "a", "offset": 1, "limit": 1})).await.unwrap_err().contains("(byte 1)"));
    }

    #[tokio::test]
    async fn non_utf8_bytes_are_an_error_unless_read_as_base64() {
        let tree = Tree::new();
        tree.write(json!({"path": "a", "content": "Yf8=", "encoding": "base64"})).await.unwrap();
        assert_eq!(fs::read(tree.path("a")).unwrap(), b"a\xff");
        let error = tree.read(json!({"path": "a"})).await.unwrap_err();
        assert_eq!(error, "`a` is not UTF-8 text (byte 1); read it with `encoding: base64` (permanent)");
        let read = tree.read(json!({"path": "a", "encoding": "base64"})).await.unwrap();
        assert_eq!(read["content"], "Yf8=");
        let error = tree.write(json!({"path": "a", "content": "?", "encoding": "base64"})).await.unwrap_err();
        assert_eq!(error, "`content` is not base64 (permanent)");
    }

    #[tokio::test]
    async fn paths_that_leave_the_directory_are_refused_by_every_tool() {
        let tree = Tree::new();
        fs::create_dir(tree.path("sub")).unwrap();
        symlink("../secret", tree.path("link")).unwrap();
        symlink(tree.outside.path().join("secret"), tree.path("absolute")).unwrap();
        symlink("..", tree.path("up")).unwrap();
        symlink(tree.outside.path(), tree.path("away")).unwrap();
        let secret = tree.outside.path().join("secret");
        for path in [
            "../secret",
            "sub/../../secret",
            "sub/../a",
            secret.to_str().unwrap(),
            "link",
            "absolute",
            "up/secret",
            "away/secret",
        ] {
            let error = tree.read(json!({"path": path})).await.unwrap_err();
            assert!(error.contains("refused") || error.contains("leads out"), "{path}: {error}");
            for (append, create_dirs) in [(false, false), (true, true)] {
                let params = json!({"path": path, "content": "evil", "append": append, "create_dirs": create_dirs});
                let error = tree.write(params).await.unwrap_err();
                let expected = ["refused", "leads out", "is a link"];
                assert!(expected.iter().any(|part| error.contains(part)), "{path}: {error}");
            }
        }
        for path in ["..", "/", "up", "away"] {
            let error = tree.list(json!({"path": path})).await.unwrap_err();
            assert!(error.contains("refused") || error.contains("leads out"), "{path}: {error}");
        }
        assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
    }

    #[tokio::test]
    async fn a_link_within_the_directory_can_be_read_through() {
        let tree = Tree::new();
        fs::create_dir(tree.path("sub")).unwrap();
        fs::write(tree.path("sub/a"), "here").unwrap();
        symlink("sub", tree.path("link")).unwrap();
        assert_eq!(tree.read(json!({"path": "link/a"})).await.unwrap()["content"], "here");
    }

    #[tokio::test]
    async fn odd_paths_are_errors() {
        let tree = Tree::new();
        fs::create_dir(tree.path("sub")).unwrap();
        for path in ["", ".", "./", "sub/", "a\0b"] {
            let error = tree.write(json!({"path": path, "content": ""})).await.unwrap_err();
            assert!(error.contains("is refused as a path"), "{path:?}: {error}");
        }
        assert_eq!(tree.read(json!({"path": "sub"})).await.unwrap_err(), "`sub` is not a file (permanent)");
        let error = tree.write(json!({"path": "sub", "content": ""})).await.unwrap_err();
        assert_eq!(error, "`sub` is not a file (permanent)");
        let error = tree.read(json!({"path": "none"})).await.unwrap_err();
        assert!(error.starts_with("`none` cannot be read: "), "{error}");
    }

    #[tokio::test]
    async fn a_pipe_is_not_waited_for() {
        let tree = Tree::new();
        let made = std::process::Command::new("mkfifo").arg(tree.path("pipe")).status().unwrap();
        assert!(made.success());
        assert_eq!(tree.read(json!({"path": "pipe"})).await.unwrap_err(), "`pipe` is not a file (permanent)");
        let params = json!({"path": "pipe", "content": "x", "append": true});
        assert_eq!(tree.write(params).await.unwrap_err(), "`pipe` is not a file (permanent)");
    }

    #[tokio::test]
    async fn directories_are_made_only_if_asked_for() {
        let tree = Tree::new();
        assert!(tree.write(json!({"path": "a/b/c", "content": "x"})).await.is_err());
        tree.write(json!({"path": "a/b/c", "content": "x", "create_dirs": true})).await.unwrap();
        assert_eq!(fs::read_to_string(tree.path("a/b/c")).unwrap(), "x");
    }

    #[tokio::test]
    async fn files_over_the_limit_are_not_written_and_not_read_at_once() {
        let tree = Tree::new();
        let error = tree.write(json!({"path": "a", "content": "x".repeat(1001)})).await.unwrap_err();
        assert_eq!(error, "`a` would have more than 1000 bytes (permanent)");
        tree.write(json!({"path": "a", "content": "x".repeat(1000)})).await.unwrap();
        let error = tree.write(json!({"path": "a", "content": "x", "append": true})).await.unwrap_err();
        assert_eq!(error, "`a` would have more than 1000 bytes (permanent)");
        fs::write(tree.path("a"), "x".repeat(1001)).unwrap();
        let read = tree.read(json!({"path": "a"})).await.unwrap();
        assert_eq!((read["content"].as_str().unwrap().len(), &read["truncated"]), (1000, &json!(true)));
    }

    #[test]
    fn a_failed_write_leaves_only_the_old_file() {
        let tree = Tree::new();
        fs::write(tree.path("a"), "old").unwrap();
        let directory = config(&tree.call).directory().unwrap();
        let error = replace(directory, Path::new("a"), None, |file| {
            file.write_all(b"half")?;
            Err(std::io::ErrorKind::StorageFull.into())
        });
        assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(tree.path("a")).unwrap(), "old");
        assert_eq!(tree.names(), ["a"]);
    }

    #[tokio::test]
    async fn a_file_that_is_replaced_keeps_its_permissions() {
        let tree = Tree::new();
        fs::write(tree.path("a"), "old").unwrap();
        fs::set_permissions(tree.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
        tree.write(json!({"path": "a", "content": "new"})).await.unwrap();
        assert_eq!(fs::metadata(tree.path("a")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(tree.names(), ["a"]);
    }

    #[tokio::test]
    async fn a_listing_is_sorted_and_says_what_is_what() {
        let tree = Tree::new();
        fs::write(tree.path("b"), "12345").unwrap();
        fs::create_dir(tree.path("a")).unwrap();
        symlink("/etc/passwd", tree.path("c")).unwrap();
        let entries = tree.list(json!({})).await.unwrap();
        let expected = json!([
            {"name": "a", "kind": "directory", "size": 0},
            {"name": "b", "kind": "file", "size": 5},
            {"name": "c", "kind": "link", "size": 0},
        ]);
        assert_eq!(entries["entries"], expected);
        assert_eq!(tree.list(json!({"path": "a"})).await.unwrap(), json!({"entries": []}));
    }
}

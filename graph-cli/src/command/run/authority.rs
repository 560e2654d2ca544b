//! The permissions of a run: granted by the command line, declared by the graph, or inherited from the thread that started it.

use std::path::{Component, Path, PathBuf};

use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::{Grants, Pattern, Value};
use graph_signing::{KeyRing, verify_json};

use super::failure::{RunCommandFailure, Voice};
use super::means::{MeansArguments, Places};

/// The variable that names the thread that started this process (R166).
pub(in crate::command) const PARENT: &str = "RYE_PARENT_THREAD_ID";
/// Where a project keeps its threads.
const THREADS: &str = ".ai/state/threads";
/// Where a space keeps its trusted keys.
const KEYS: &str = ".ai/config/keys/trusted";
/// The maximum size of a thread's file, larger than any real one.
const MOST_BYTES: u64 = 1024 * 1024;

/// The permissions of a run.
pub(in crate::command) struct Authority {
    grants: Grants,
    /// The part of the grants that the thread allows. The run's journal records it, so that it also applies after a resume.
    pub(in crate::command) inherited: Option<Grants>,
    /// How many levels of graphs may be nested.
    pub(in crate::command) depth: Option<u32>,
    source: GrantSource,
}

/// The source of the grants.
enum GrantSource {
    /// The person at the command line.
    Person,
    /// The graph itself, which a trusted key signed and a person runs.
    Graph,
    /// The thread that started the run.
    Thread(String),
    /// Nobody: a thread started the run, but its permissions cannot be determined. Holds the reason.
    Nobody(String),
}

impl Authority {
    /// Decides what the run may do (R166–R168).
    ///
    /// A thread that started the run has the last word: its graphs may not do more than the thread itself, even if the
    /// command line grants more. If the thread's permissions cannot be determined, nothing is allowed.
    pub(in crate::command) fn of(
        arguments: &MeansArguments,
        most: Option<u32>,
        graph: &Interpreted,
        library: &Library,
        places: &Places,
    ) -> Self {
        let named = (!arguments.grants.is_empty()).then(|| Grants::new(arguments.grants.iter().cloned()));
        let Some(thread) = parent() else {
            let (grants, source) = match named {
                Some(named) => (named, GrantSource::Person),
                None => (graph.permissions().clone(), GrantSource::Graph),
            };
            return Self { grants, inherited: None, depth: most, source };
        };
        let ring = || ring(arguments, library, places);
        match inherited(&thread, places.project.as_deref(), ring) {
            Ok(Inherited { grants, depth }) => {
                let depth = Some(most.map_or(depth, |own| own.min(depth)));
                let source = GrantSource::Thread(thread);
                Self { grants: named.unwrap_or_else(|| grants.clone()), inherited: Some(grants), depth, source }
            }
            Err(reason) => {
                let reason = format!("the permissions of the thread `{thread}` cannot be read: {reason}");
                let nothing = Grants::default();
                let source = GrantSource::Nobody(reason);
                Self { grants: nothing.clone(), inherited: Some(nothing), depth: Some(0), source }
            }
        }
    }

    pub(in crate::command) fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.grants.patterns().iter()
    }

    /// Reports the grants that the command line does not name, or the reason that nothing is granted.
    pub(in crate::command) fn tell(&self, voice: Voice) {
        let shown = || {
            let grants = self.inherited.as_ref().unwrap_or(&self.grants);
            let patterns: Vec<&str> = grants.patterns().iter().map(Pattern::as_str).collect();
            if patterns.is_empty() { "nothing".to_owned() } else { patterns.join(", ") }
        };
        match &self.source {
            GrantSource::Person => {}
            GrantSource::Graph if self.grants.patterns().is_empty() => {}
            GrantSource::Graph => voice.note(format_args!("granted, as the graph declares: {}", shown())),
            GrantSource::Thread(thread) => {
                voice.note(format_args!("granted, as to the thread `{thread}`: {}", shown()));
            }
            GrantSource::Nobody(reason) => err!("error: {reason}; nothing is granted"),
        }
    }

    /// Adds to a failure to start the reason that nothing was granted.
    pub(in crate::command) fn explain(&self, failure: RunCommandFailure) -> RunCommandFailure {
        match &self.source {
            GrantSource::Nobody(reason) => {
                RunCommandFailure { error: format!("{} ({reason})", failure.error), ..failure }
            }
            _ => failure,
        }
    }
}

/// Returns the keys that may sign a thread's permissions: those of the tree and those of the spaces.
fn ring(arguments: &MeansArguments, library: &Library, places: &Places) -> KeyRing {
    let spaces = places.project.iter().chain(&places.user).chain(&arguments.system).map(|space| space.join(KEYS));
    let directories: Vec<PathBuf> = std::iter::once(library.root().join("keys")).chain(spaces).collect();
    let directories: Vec<&Path> = directories.iter().map(PathBuf::as_path).collect();
    KeyRing::load(&directories).0
}

/// Returns the thread that started this process, if one did.
pub(super) fn parent() -> Option<String> {
    let thread = std::env::var_os(PARENT).filter(|thread| !thread.is_empty())?;
    Some(thread.to_string_lossy().into_owned())
}

/// Returns the path of the file of a thread.
pub(super) fn thread_file(project: &Path, thread: &str) -> PathBuf {
    project.join(THREADS).join(thread).join("thread.json")
}

/// The permissions that a thread hands down.
#[derive(Debug, PartialEq)]
struct Inherited {
    grants: Grants,
    depth: u32,
}

/// Reads the permissions of a thread, which a trusted key must have signed (R44).
fn inherited(thread: &str, project: Option<&Path>, ring: impl FnOnce() -> KeyRing) -> Result<Inherited, String> {
    let project = project.ok_or("no directory above the graph holds `.ai`; name the project with `--project`")?;
    if !Path::new(thread).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("`{PARENT}` is not the id of a thread"));
    }
    let path = thread_file(project, thread);
    let at = |reason: String| format!("{}: {reason}", path.display());
    let text = read(&path).map_err(|error| at(error.to_string()))?;
    let fields = match serde_json::from_str(&text) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err(at("it is not a JSON object".to_owned())),
        Err(error) => return Err(at(format!("it is not JSON: {error}"))),
    };
    verify_json(&fields, &ring()).map_err(|error| at(error.to_string()))?;
    // Otherwise, the file of a thread with more permissions could replace this one.
    if fields.get("thread_id").is_some_and(|id| id != thread) {
        return Err(at("it belongs to another thread".to_owned()));
    }
    let grants = match fields.get("capabilities") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list.iter().map(pattern).collect::<Result<_, _>>().map_err(at)?,
        Some(_) => return Err(at("`capabilities` is not a list".to_owned())),
    };
    let depth = match fields.get("limits").and_then(|limits| limits.get("depth")) {
        None | Some(Value::Null) => 0,
        Some(depth) => match depth.as_u64().map(u32::try_from) {
            Some(Ok(depth)) => depth,
            _ => return Err(at("`limits.depth` is not a whole number".to_owned())),
        },
    };
    Ok(Inherited { grants: Grants::new(grants), depth })
}

fn pattern(value: &Value) -> Result<Pattern, String> {
    let text = value.as_str().ok_or("`capabilities` has an element that is not a text")?;
    Pattern::new(text).map_err(|error| format!("`capabilities`: {error}"))
}

fn read(path: &Path) -> std::io::Result<String> {
    let metadata = path.metadata()?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return Err(std::io::Error::other("it is not the file of a thread"));
    }
    std::fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use graph_signing::{SecretKey, sign_json};
    use serde_json::json;

    use super::*;

    fn key() -> SecretKey {
        SecretKey::from_seed(&[7; 32])
    }

    /// Returns the permissions of `thread` if the file of the thread `t` holds `text`.
    fn inherited_from(thread: &str, text: &str) -> Result<Inherited, String> {
        let project = tempfile::tempdir().unwrap();
        let directory = project.path().join(THREADS).join("t");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("thread.json"), text).unwrap();
        inherited(thread, Some(project.path()), || KeyRing::of(&key().public(), "me"))
    }

    fn signed(value: Value, key: &SecretKey) -> String {
        let Value::Object(mut fields) = value else { unreachable!("tests give objects") };
        sign_json(&mut fields, key, SystemTime::UNIX_EPOCH);
        Value::Object(fields).to_string()
    }

    #[test]
    fn a_thread_hands_down_what_a_trusted_key_signed() {
        let text = json!({"thread_id": "t", "capabilities": ["rye.execute.tool.*"], "limits": {"depth": 3}});
        let inherited = inherited_from("t", &signed(text, &key())).unwrap();
        let grants = Grants::new([Pattern::new("rye.execute.tool.*").unwrap()]);
        assert_eq!(inherited, Inherited { grants, depth: 3 });
        let nothing = inherited_from("t", &signed(json!({}), &key())).unwrap();
        assert_eq!(nothing, Inherited { grants: Grants::default(), depth: 0 });
    }

    #[test]
    fn an_invalid_or_foreign_thread_file_hands_down_no_authority() {
        let good = json!({"capabilities": ["rye.execute.tool.a"], "limits": {"depth": 3}});
        let stranger = SecretKey::from_seed(&[8; 32]);
        for (thread, text, reason) in [
            ("other", signed(good.clone(), &key()), "No such file"),
            ("../t", signed(good.clone(), &key()), "is not the id of a thread"),
            ("/t", signed(good.clone(), &key()), "is not the id of a thread"),
            ("t", good.to_string(), "it is not signed"),
            ("t", signed(good.clone(), &stranger), "a key that is not trusted"),
            ("t", signed(good, &key()).replace("tool.a", "tool.b"), "was changed after it was signed"),
            ("t", signed(json!({"thread_id": "u"}), &key()), "it belongs to another thread"),
            ("t", signed(json!({"capabilities": "rye.*"}), &key()), "`capabilities` is not a list"),
            ("t", signed(json!({"capabilities": [1]}), &key()), "`capabilities` has an element that is not a text"),
            ("t", signed(json!({"capabilities": ["x"]}), &key()), "grants nothing"),
            ("t", signed(json!({"limits": {"depth": -1}}), &key()), "`limits.depth` is not a whole number"),
            ("t", "[]".to_owned(), "it is not a JSON object"),
            ("t", "{".to_owned(), "it is not JSON"),
        ] {
            let error = inherited_from(thread, &text).unwrap_err();
            assert!(error.contains(reason), "{thread} {text}: {error}");
        }
        let error = inherited("t", None, KeyRing::default).unwrap_err();
        assert!(error.contains("--project"), "{error}");
    }
}

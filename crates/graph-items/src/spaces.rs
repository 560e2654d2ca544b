//! Spaces, and the search for items in them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use graph_model::digest::Digest;
use graph_model::name::ItemId;
use graph_model::program::ItemType;
use graph_signing::{self as signature, Comment, Fingerprint, ItemKind, KeyRing, SecretKey, SignatureError};

use super::error::ItemError;
use super::file;

/// The owner of a space.
///
/// The example of [`Spaces`] names a directory for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Space {
    /// The project.
    Project,
    /// The user, for items that they use in all projects.
    User,
    /// The system, for installed bundles.
    System,
}

impl Space {
    /// All spaces, in the order of the search.
    pub const ALL: [Self; 3] = [Self::Project, Self::User, Self::System];

    /// Returns the space with the name `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.name() == name)
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
            Self::System => "system",
        }
    }
}

/// The extensions of tools: contracts, graphs, and files that run elsewhere and are only returned as text.
const TOOLS: [&str; 10] = ["yaml", "yml", "py", "sh", "toml", "js", "mjs", "ts", "tsx", "rs"];
const PAGES: [&str; 1] = ["md"];
/// The directory of trusted keys, below a space.
const KEYS: &str = ".ai/config/keys/trusted";
/// The maximum number of files in a directory of items that is searched, and the maximum depth of directories.
const MOST_FILES: usize = 10_000;
const DEEPEST: usize = 16;

/// Returns the directory of an item type, below a space, and the extensions of its files.
const fn place(item: ItemType) -> (&'static str, &'static [&'static str]) {
    match item {
        ItemType::Tool => (".ai/tools", &TOOLS),
        ItemType::Directive => (".ai/directives", &PAGES),
        ItemType::Knowledge => (".ai/knowledge", &PAGES),
    }
}

/// The spaces of a runtime: the directories of items, the trusted keys, and the key that signs.
///
/// Nothing is cached: each search reads the files and the trusted keys as they are then, so the next search sees a revoked
/// key or a changed item.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub mod items { pub use graph_items::*; } pub use items::Spaces; }
/// use graph_runtime::{Runtime, Spaces};
///
/// let spaces = Spaces::at("shop").user("/home/ada").system("/usr/share/shop");
/// let runtime = Runtime::builder().spaces(spaces).grants(["rye.fetch.knowledge.shop.*"])?.build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Spaces {
    /// In the order of the search.
    roots: Vec<(Space, PathBuf)>,
    trusted: KeyRing,
    key: Option<SecretKey>,
}

impl Spaces {
    /// Returns a set without any space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a set with only the space of the project in `directory`, which holds `.ai`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self::new().project(directory)
    }

    /// Sets the project's directory, in place of the previous one.
    #[must_use]
    pub fn project(self, directory: impl Into<PathBuf>) -> Self {
        self.only(Space::Project, directory.into())
    }

    /// Sets the user's directory, in place of the previous one.
    #[must_use]
    pub fn user(self, directory: impl Into<PathBuf>) -> Self {
        self.only(Space::User, directory.into())
    }

    /// Adds the directory of a system bundle. If several bundles have an item, the first one counts.
    #[must_use]
    pub fn system(mut self, directory: impl Into<PathBuf>) -> Self {
        self.roots.push((Space::System, directory.into()));
        self
    }

    fn only(mut self, space: Space, directory: PathBuf) -> Self {
        self.roots.retain(|(other, _)| *other != space);
        self.roots.push((space, directory));
        self.roots.sort_by_key(|(space, _)| *space);
        self
    }

    /// Trusts the keys of `ring` in addition to those of the spaces. A key that is revoked in `ring` is revoked, even if a
    /// space trusts it.
    #[must_use]
    pub fn trusting(mut self, ring: KeyRing) -> Self {
        self.trusted = ring;
        self
    }

    /// Signs items with `key`. Without a key, nothing is signed; none is made automatically (R36).
    #[must_use]
    pub fn sign_with(mut self, key: SecretKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Finds the item with that id: in the project's space, else in the user's, else in the system's (R38, R41).
    ///
    /// The first space that has a file for it decides. The file is read once, and the same text is verified and returned. A
    /// file that cannot be used is an error; later spaces are not searched.
    ///
    /// ```
    /// # mod graph_runtime { pub use graph_engine::*; pub mod items { pub use graph_items::*; } pub use items::Spaces; }
    /// # fn example(spaces: graph_runtime::Spaces) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::ItemId;
    /// use graph_runtime::machine::ItemType;
    ///
    /// let page = spaces.find(ItemType::Knowledge, &ItemId::new("shop/returns")?)?;
    /// println!("{}, signed by {}", page.path().display(), page.signer());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If no space has it, or its file cannot be read or is not signed by a trusted key (R42).
    pub fn find(&self, item: ItemType, id: &ItemId) -> Result<SignedItem, ItemError> {
        self.find_in(item, id, None)
    }

    /// Finds an item like [`Spaces::find`], but only in the space `only` if one is named.
    ///
    /// # Errors
    ///
    /// The same as [`Spaces::find`].
    pub fn find_in(&self, item: ItemType, id: &ItemId, only: Option<Space>) -> Result<SignedItem, ItemError> {
        let (space, root, path) = self.locate(item, id, only)?;
        TrustedKeys::of(self).open(space, root, &path, item, id)
    }

    /// Signs the item with that id in `space`, replaces its old signature, and returns the item as it is then.
    ///
    /// The file is replaced atomically. The text is signed as it is: a user who lets a graph sign lets it vouch for the text.
    ///
    /// ```
    /// # mod graph_runtime { pub use graph_engine::*; pub mod items { pub use graph_items::*; } pub use items::Spaces; }
    /// # fn example(spaces: graph_runtime::Spaces) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::items::Space;
    /// use graph_runtime::machine::ItemType;
    /// use graph_runtime::{ItemId, SecretKey};
    ///
    /// let spaces = spaces.sign_with(SecretKey::load_or_generate("keys".as_ref())?);
    /// spaces.sign(ItemType::Knowledge, &ItemId::new("shop/returns")?, Space::Project)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no key, the space does not have the item, or its file cannot be read, signed or written.
    pub fn sign(&self, item: ItemType, id: &ItemId, space: Space) -> Result<SignedItem, ItemError> {
        let key = self.key.as_ref().ok_or(ItemError::NoKey)?;
        let (space, root, path) = self.locate(item, id, Some(space))?;
        let located = file::locate(root, place(item).0, &path)?;
        let kind = kind(item, located.name());
        let signed = signature::sign(kind, &located.read()?, key, SystemTime::now())
            .map_err(|reason| ItemError::Sign { path: path.clone(), reason })?;
        located.replace(&signed)?;
        let opened = signature::open(kind, &signed);
        let opened = opened.map_err(|reason| ItemError::Signature { path: path.clone(), reason })?;
        Ok(SignedItem {
            item,
            id: id.clone(),
            space,
            kind,
            digest: opened.digest,
            signer: opened.envelope.fingerprint,
            content: opened.content.to_owned(),
            relative: relative(root, &path),
            path,
        })
    }

    /// Returns every item of that type that [`Spaces::find_in`] finds, in the order of spaces and ids, and the number of
    /// files that cannot be used.
    ///
    /// # Errors
    ///
    /// If a directory cannot be read, or there are too many files.
    pub(super) fn list(&self, item: ItemType, only: Option<Space>) -> Result<(Vec<SignedItem>, usize), ItemError> {
        let (trust, (directory, extensions)) = (TrustedKeys::of(self), place(item));
        let (mut items, mut skipped) = (Vec::new(), 0);
        let mut seen = HashSet::new();
        for (space, root) in self.searched(only) {
            let directory = root.join(directory);
            let mut ids: Vec<ItemId> = Vec::new();
            for path in files(&directory)? {
                let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
                if !extensions.contains(&extension) {
                    continue;
                }
                let name = path.with_extension("");
                let id = name.strip_prefix(&directory).ok().and_then(Path::to_str);
                // An item cannot be found if its file name is not an id.
                match id.map(|id| ItemId::new(id.replace(std::path::MAIN_SEPARATOR, "/"))) {
                    Some(Ok(id)) => ids.push(id),
                    _ => skipped += 1,
                }
            }
            ids.sort();
            ids.dedup();
            for id in ids {
                // An item of an earlier space hides those of later spaces, even if it cannot be used.
                if !seen.insert(id.clone()) {
                    continue;
                }
                let found = self.locate_at(root, item, &id);
                match found.and_then(|path| path.map(|path| trust.open(space, root, &path, item, &id)).transpose()) {
                    Ok(item) => items.extend(item),
                    Err(_) => skipped += 1,
                }
            }
        }
        Ok((items, skipped))
    }

    /// Returns the directories of the spaces, in the reverse order of the search.
    pub(super) fn last_first(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().rev().map(|(_, root)| root.as_path())
    }

    fn searched(&self, only: Option<Space>) -> impl Iterator<Item = (Space, &Path)> {
        let wanted = move |space: Space| only.is_none_or(|only| only == space);
        self.roots.iter().filter(move |(space, _)| wanted(*space)).map(|(space, root)| (*space, root.as_path()))
    }

    /// Returns the file of an item in the first space that has one.
    fn locate(&self, item: ItemType, id: &ItemId, only: Option<Space>) -> Result<(Space, &Path, PathBuf), ItemError> {
        let mut looked = Vec::new();
        for (space, root) in self.searched(only) {
            if let Some(path) = self.locate_at(root, item, id)? {
                return Ok((space, root, path));
            }
            let (directory, extensions) = place(item);
            let extensions = match extensions {
                [one] => (*one).to_owned(),
                several => format!("{{{}}}", several.join(",")),
            };
            looked.push(format!("`{}.{extensions}`", root.join(directory).join(id.as_str()).display()));
        }
        if looked.is_empty() {
            looked.push(match only {
                Some(space) => format!("it nowhere, since no {} space is set", space.name()),
                None => "it nowhere, since no space is set".to_owned(),
            });
        }
        Err(ItemError::NotFound { item, id: id.clone(), looked: looked.join(", ") })
    }

    fn locate_at(&self, root: &Path, item: ItemType, id: &ItemId) -> Result<Option<PathBuf>, ItemError> {
        let (directory, extensions) = place(item);
        let mut found: Option<PathBuf> = None;
        for extension in extensions {
            let path = root.join(directory).join(format!("{id}.{extension}"));
            if file::exists(&path)? {
                if let Some(other) = found {
                    return Err(ItemError::Ambiguous { item, id: id.clone(), paths: (other, path) });
                }
                found = Some(path);
            }
        }
        Ok(found)
    }
}

/// The keys that are trusted at one moment.
pub(super) struct TrustedKeys<'s> {
    own: &'s KeyRing,
    spaces: KeyRing,
}

impl<'s> TrustedKeys<'s> {
    /// Reads the trusted keys of all spaces. A key file that is refused blocks its key, which its name tells, in all spaces:
    /// the file may have been a revocation. The log has a warning for each (R38, R39).
    pub(super) fn of(spaces: &'s Spaces) -> Self {
        let directories: Vec<PathBuf> = spaces.roots.iter().map(|(_, root)| root.join(KEYS)).collect();
        let directories: Vec<&Path> = directories.iter().map(PathBuf::as_path).collect();
        let (ring, rejected, _) = KeyRing::load(&directories);
        for key in rejected {
            tracing::warn!(path = %key.path.display(), error = %key.error, "a file of a trusted key is refused");
        }
        Self { own: &spaces.trusted, spaces: ring }
    }

    /// Reads and verifies the file at `path`, below `directory` of the space at `root`. Returns the kind, the text below the
    /// signature line, its digest and its signer.
    pub(super) fn verify(
        &self,
        root: &Path,
        directory: &str,
        path: &Path,
        kind: impl FnOnce(&Path) -> ItemKind,
    ) -> Result<(ItemKind, String, Digest, Fingerprint), ItemError> {
        let located = file::locate(root, directory, path)?;
        let kind = kind(located.name());
        let text = located.read()?;
        let text = signature::normalise(&text);
        let refuse = |reason| ItemError::Signature { path: path.to_owned(), reason };
        let verified = match signature::verify(kind, &text, self.own) {
            Err(SignatureError::Untrusted(_)) => signature::verify(kind, &text, &self.spaces),
            // The caller makes a key trusted, but a space may still revoke or block it.
            Ok(verified) if self.refuses(&verified.signer.fingerprint) => signature::verify(kind, &text, &self.spaces),
            other => other,
        };
        let verified = verified.map_err(refuse)?;
        let content = signature::open(kind, &text).map_err(refuse)?.content.to_owned();
        Ok((kind, content, verified.envelope.digest, verified.signer.fingerprint.clone()))
    }

    fn refuses(&self, fingerprint: &Fingerprint) -> bool {
        matches!(self.spaces.signer(fingerprint), Err(SignatureError::Revoked { .. } | SignatureError::Blocked { .. }))
    }

    fn open(
        &self,
        space: Space,
        root: &Path,
        path: &Path,
        item: ItemType,
        id: &ItemId,
    ) -> Result<SignedItem, ItemError> {
        let (kind, content, digest, signer) = self.verify(root, place(item).0, path, |target| kind(item, target))?;
        Ok(SignedItem {
            item,
            id: id.clone(),
            space,
            path: path.to_owned(),
            relative: relative(root, path),
            kind,
            content,
            digest,
            signer,
        })
    }
}

/// Returns the kind of an item's file, which decides the part that a signature covers.
fn kind(item: ItemType, path: &Path) -> ItemKind {
    match item {
        ItemType::Directive => ItemKind::Directive,
        ItemType::Knowledge => ItemKind::Knowledge,
        ItemType::Tool => match path.extension().and_then(|extension| extension.to_str()) {
            Some("js" | "mjs" | "ts" | "tsx" | "rs") => ItemKind::Tool(Comment::Slashes),
            _ => ItemKind::YAML,
        },
    }
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
}

/// Returns the files below `directory`. Links to directories are not followed, because they may form a cycle.
fn files(directory: &Path) -> Result<Vec<PathBuf>, ItemError> {
    let too_many = || ItemError::TooMany { path: directory.to_owned(), most: MOST_FILES, deepest: DEEPEST };
    let (mut found, mut waiting) = (Vec::new(), vec![(directory.to_owned(), 0)]);
    while let Some((path, depth)) = waiting.pop() {
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(_) if depth == 0 && !file::exists(&path)? => return Ok(found),
            Err(error) => return Err(file::failed("read", &path, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| file::failed("read", &path, error))?;
            if entry.file_type().map_err(|error| file::failed("read", &entry.path(), error))?.is_dir() {
                if depth == DEEPEST {
                    return Err(too_many());
                }
                waiting.push((entry.path(), depth + 1));
            } else {
                found.push(entry.path());
            }
            if found.len() + waiting.len() > MOST_FILES {
                return Err(too_many());
            }
        }
    }
    Ok(found)
}

/// An item that a trusted key signed. Only [`Spaces`] can create one.
///
/// [`Spaces::find`] has an example.
#[derive(Debug, Clone)]
pub struct SignedItem {
    item: ItemType,
    id: ItemId,
    space: Space,
    path: PathBuf,
    relative: String,
    kind: ItemKind,
    content: String,
    digest: Digest,
    signer: Fingerprint,
}

impl SignedItem {
    /// Returns the type of the item.
    pub fn item_type(&self) -> ItemType {
        self.item
    }

    /// Returns its id.
    pub fn id(&self) -> &ItemId {
        &self.id
    }

    /// Returns the space that it was found in.
    pub fn space(&self) -> Space {
        self.space
    }

    /// Returns its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its file's path below the space's directory, with `/` between its parts.
    pub fn relative_path(&self) -> &str {
        &self.relative
    }

    /// Returns the text below the signature line. Not all of it may be covered by the signature, see [`SignedItem::covered`].
    pub fn content(&self) -> &str {
        &self.content
    }

    /// Returns the part of the text that the signature covers: all of a tool, the element of a directive, a page of knowledge
    /// without its `---` header.
    pub fn covered(&self) -> &str {
        self.kind.covered(&self.content).unwrap_or_default()
    }

    /// Returns the digest of the covered part.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the fingerprint of the key that signed it.
    pub fn signer(&self) -> &Fingerprint {
        &self.signer
    }
}

#[cfg(test)]
mod tests {
    use graph_signing::KeyFile;

    use super::*;
    use crate::testing::{Tree, id, key};

    const TOOL: ItemType = ItemType::Tool;

    fn refused(spaces: &Spaces, item: ItemType, name: &str) -> String {
        spaces.find(item, &id(name)).unwrap_err().to_string()
    }

    #[test]
    fn project_shadows_user_and_user_shadows_system() {
        let (project, user, system) = (Tree::new(), Tree::new(), Tree::new());
        for (tree, names) in [(&project, vec!["a"]), (&user, vec!["a", "b"]), (&system, vec!["a", "b", "c"])] {
            for name in names {
                tree.sign(&format!("tools/x/{name}.yaml"), &format!("in: {}\n", tree.path().display()), 1);
            }
        }
        // The order of the calls does not matter.
        let spaces = Spaces::new().system(system.path()).user(user.path()).project(project.path());
        for (name, space, tree) in
            [("x/a", Space::Project, &project), ("x/b", Space::User, &user), ("x/c", Space::System, &system)]
        {
            let item = spaces.find(TOOL, &id(name)).unwrap();
            assert_eq!(item.space(), space);
            assert_eq!(item.content(), format!("in: {}\n", tree.path().display()));
            assert_eq!(item.relative_path(), format!(".ai/tools/{name}.yaml"));
        }
        assert_eq!(spaces.find_in(TOOL, &id("x/a"), Some(Space::System)).unwrap().space(), Space::System);
    }

    #[test]
    fn a_missing_item_error_lists_every_searched_path_in_one_line() {
        let (project, user) = (Tree::new(), Tree::new());
        let spaces = Spaces::at(project.path()).user(user.path());
        let at = |tree: &Tree, rest: &str| format!("`{}/.ai/{rest}`", tree.path().display());
        assert_eq!(
            refused(&spaces, ItemType::Knowledge, "a/b"),
            format!(
                "there is no knowledge `a/b`; looked for {}, {}",
                at(&project, "knowledge/a/b.md"),
                at(&user, "knowledge/a/b.md")
            )
        );
        assert!(refused(&spaces, TOOL, "a").contains("tools/a.{yaml,yml,py,"));
        assert_eq!(
            refused(&Spaces::new(), TOOL, "a"),
            "there is no tool `a`; looked for it nowhere, since no space is set"
        );
    }

    #[test]
    fn each_signature_problem_names_the_file_and_a_remedy() {
        let tree = Tree::new();
        let spaces = Spaces::at(tree.path());
        let path = tree.write("tools/unsigned.yaml", "a: 1\n").display().to_string();
        assert_eq!(
            refused(&spaces, TOOL, "unsigned"),
            format!("`{path}` cannot be used: it is not signed; review it, then sign it: `graph sign {path}`")
        );
        let path = tree.sign("tools/altered.yaml", "a: 1\n", 1);
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("a: 1", "a: 2")).unwrap();
        let error = refused(&spaces, TOOL, "altered");
        assert!(error.contains("its content was changed after it was signed"), "{error}");
        assert!(error.ends_with("if not, restore the file"), "{error}");
        tree.sign("tools/untrusted.yaml", "a: 1\n", 2);
        let error = refused(&spaces, TOOL, "untrusted");
        assert!(error.contains("a key that is not trusted; if you trust its owner, add the public key"), "{error}");
        let path = tree.sign("tools/forged.yaml", "a: 1\n", 2);
        let borrowed = fs::read_to_string(&path)
            .unwrap()
            .replace(key(2).public().fingerprint().as_str(), key(1).public().fingerprint().as_str());
        fs::write(&path, borrowed).unwrap();
        let error = refused(&spaces, TOOL, "forged");
        assert!(error.ends_with("do not trust this file; restore it from where it came from"), "{error}");
    }

    #[test]
    fn an_unusable_file_does_not_fall_back_to_a_later_space() {
        let (project, user) = (Tree::new(), Tree::new());
        project.write("tools/a.yaml", "a: 1\n");
        user.sign("tools/a.yaml", "a: 1\n", 1);
        let error = refused(&Spaces::at(project.path()).user(user.path()), TOOL, "a");
        assert!(error.contains("it is not signed"), "{error}");
    }

    #[test]
    fn every_space_adds_trust_and_a_bad_key_file_blocks_its_key() {
        let (project, user) = (Tree::empty(), Tree::new());
        let fingerprint = key(1).public().fingerprint();
        project.sign("tools/a.yaml", "a: 1\n", 1);
        assert!(Spaces::at(project.path()).find(TOOL, &id("a")).is_err());
        let spaces = Spaces::at(project.path()).user(user.path());
        assert_eq!(*spaces.find(TOOL, &id("a")).unwrap().signer(), fingerprint);

        let path = project.write(&format!("config/keys/trusted/{fingerprint}.toml"), "not a key");
        for spaces in [spaces.clone(), spaces.clone().trusting(KeyRing::of(&key(1).public(), "caller"))] {
            let error = refused(&spaces, TOOL, "a");
            let expected = format!("a key that is blocked, since {} is refused; find out who", path.display());
            assert!(error.contains(&expected), "{error}");
        }
        fs::rename(&path, path.with_extension("txt")).unwrap();
        assert!(spaces.find(TOOL, &id("a")).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_key_file_is_neither_read_nor_signed() {
        use std::os::unix::fs::symlink;
        let (tree, user) = (Tree::empty(), Tree::new());
        let mut file = KeyFile::new(key(1).public(), "tester");
        file.revoked_at = Some("2026-01-02T03:04:05Z".into());
        tree.trust(&file, 1);
        tree.sign("knowledge/bad.md", "text\n", 1);
        let trusted = tree.path().join(KEYS).join(format!("{}.toml", file.fingerprint));
        let before = fs::read_to_string(&trusted).unwrap();
        symlink(&trusted, tree.path().join(".ai/knowledge/note.md")).unwrap();
        symlink("../config/keys", tree.path().join(".ai/knowledge/keys")).unwrap();
        symlink(&trusted, trusted.with_file_name("page.md")).unwrap();
        symlink("config/keys/trusted", tree.path().join(".ai/tools")).unwrap();
        let spaces = Spaces::at(tree.path()).user(user.path()).sign_with(key(2));
        let name = file.fingerprint.as_str();
        for (item, name) in [(ItemType::Knowledge, "note"), (ItemType::Knowledge, "keys/trusted/page"), (TOOL, name)] {
            let error = spaces.sign(item, &id(name), Space::Project).unwrap_err().to_string();
            assert!(error.contains("is a link that leads to `") && error.contains("` of its space"), "{error}");
            assert_eq!(refused(&spaces, item, name), error);
        }
        assert_eq!(fs::read_to_string(&trusted).unwrap(), before);
        assert!(refused(&spaces, ItemType::Knowledge, "bad").contains("was revoked on 2026-01-02"));
    }

    #[cfg(unix)]
    #[test]
    fn a_hard_link_to_a_key_file_is_parted_from_it_by_signing() {
        let tree = Tree::new();
        let trusted = tree.path().join(KEYS).join(format!("{}.toml", key(1).public().fingerprint()));
        let before = fs::read_to_string(&trusted).unwrap();
        fs::create_dir_all(tree.path().join(".ai/knowledge")).unwrap();
        fs::hard_link(&trusted, tree.path().join(".ai/knowledge/note.md")).unwrap();
        let spaces = Spaces::at(tree.path()).sign_with(key(1));
        spaces.sign(ItemType::Knowledge, &id("note"), Space::Project).unwrap();
        assert_eq!(fs::read_to_string(&trusted).unwrap(), before);
    }

    #[test]
    fn a_key_revoked_by_any_space_or_the_caller_is_never_trusted() {
        let (project, user) = (Tree::new(), Tree::empty());
        project.sign("tools/a.yaml", "a: 1\n", 1);
        let spaces = Spaces::at(project.path()).user(user.path());
        assert!(spaces.find(TOOL, &id("a")).is_ok());
        let mut file = KeyFile::new(key(1).public(), "tester");
        file.revoked_at = Some("2026-01-02T03:04:05Z".into());
        user.trust(&file, 1);
        let error = refused(&spaces, TOOL, "a");
        assert!(error.contains("was revoked on 2026-01-02T03:04:05Z"), "{error}");
        let error = refused(&spaces.trusting(KeyRing::of(&key(1).public(), "caller")), TOOL, "a");
        assert!(error.contains("was revoked"), "the caller's trust does not undo it: {error}");

        let (revoked, ..) = KeyRing::load(&[&user.path().join(KEYS)]);
        let error = refused(&Spaces::at(project.path()).trusting(revoked), TOOL, "a");
        assert!(error.contains("was revoked"), "{error}");
    }

    #[test]
    fn keys_of_the_caller_and_of_the_spaces_are_trusted() {
        let tree = Tree::new();
        tree.sign("tools/a.yaml", "a: 1\n", 2);
        tree.sign("tools/b.yaml", "a: 1\n", 1);
        let spaces = Spaces::at(tree.path()).trusting(KeyRing::of(&key(2).public(), "caller"));
        assert!(spaces.find(TOOL, &id("a")).is_ok());
        assert!(spaces.find(TOOL, &id("b")).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_may_lead_within_the_space_and_not_out_of_it() {
        use std::os::unix::fs::symlink;
        let (tree, outside) = (Tree::new(), Tree::new());
        let target = tree.sign("tools/a.yaml", "a: 1\n", 1);
        symlink(&target, tree.path().join(".ai/tools/inside.yaml")).unwrap();
        let spaces = Spaces::at(tree.path());
        assert!(spaces.find(TOOL, &id("inside")).is_ok());

        let target = outside.sign("tools/secret.yaml", "a: 1\n", 1);
        symlink(&target, tree.path().join(".ai/tools/file.yaml")).unwrap();
        symlink(target.parent().unwrap(), tree.path().join(".ai/tools/directory")).unwrap();
        symlink("nowhere.yaml", tree.path().join(".ai/tools/dangling.yaml")).unwrap();
        for name in ["file", "directory/secret"] {
            let error = refused(&spaces, TOOL, name);
            assert!(error.contains("outside of `.ai/tools` of its space"), "{error}");
        }
        let error = refused(&spaces.clone().user(outside.path()), TOOL, "dangling");
        assert!(error.starts_with("cannot read `"), "{error}");
        assert!(spaces.sign_with(key(1)).sign(TOOL, &id("file"), Space::Project).is_err());
    }

    #[test]
    fn files_that_are_too_large_no_text_or_no_files_are_refused() {
        let tree = Tree::new();
        let spaces = Spaces::at(tree.path());
        tree.write("tools/large.yaml", vec![b'#'; 1024 * 1024 + 1]);
        assert!(refused(&spaces, TOOL, "large").contains("has more than 1048576 bytes"));
        tree.write("tools/binary.py", b"ab\xff");
        assert!(refused(&spaces, TOOL, "binary").ends_with("the byte at 2 begins no character"));
        tree.write("tools/directory.yaml/x", "");
        assert!(refused(&spaces, TOOL, "directory").ends_with("is not a regular file"));
    }

    #[test]
    fn two_files_for_one_id_are_an_error() {
        let tree = Tree::new();
        tree.sign("tools/a.yaml", "a: 1\n", 1);
        tree.sign("tools/a.py", "a = 1\n", 1);
        let error = refused(&Spaces::at(tree.path()), TOOL, "a");
        assert!(error.ends_with("are both tool `a`; remove or rename one of them"), "{error}");
    }

    #[test]
    fn content_covers_only_signed_parts_of_directives_and_pages() {
        let tree = Tree::new();
        tree.sign("directives/d.md", "before\n<directive>x</directive>\nafter\n", 1);
        tree.sign("knowledge/k.md", "---\ntitle: a\n---\n\nbody\n", 1);
        // A page about directives is an ordinary page.
        tree.sign("knowledge/about.md", "A <directive>x</directive> is.\n", 1);
        let spaces = Spaces::at(tree.path());
        assert_eq!(spaces.find(ItemType::Directive, &id("d")).unwrap().covered(), "<directive>x</directive>");
        assert_eq!(spaces.find(ItemType::Knowledge, &id("k")).unwrap().covered(), "body");
        let about = spaces.find(ItemType::Knowledge, &id("about")).unwrap();
        assert_eq!(about.covered(), "A <directive>x</directive> is.\n");
    }

    #[test]
    fn signed_items_are_found_and_no_other_file_is_left() {
        let tree = Tree::new();
        let path = tree.write("tools/a/b.py", "#!/usr/bin/env python3\nprint(1)\n");
        let spaces = Spaces::at(tree.path());
        let error = spaces.sign(TOOL, &id("a/b"), Space::Project).unwrap_err().to_string();
        assert!(error.contains("`graph keys generate`") && error.contains("sign_with"), "{error}");
        assert!(!tree.path().join(".ai/config/keys/signing").exists(), "no key is made in passing");

        let spaces = spaces.sign_with(key(1));
        let signed = spaces.sign(TOOL, &id("a/b"), Space::Project).unwrap();
        let found = spaces.find(TOOL, &id("a/b")).unwrap();
        assert_eq!((found.digest(), found.signer()), (signed.digest(), signed.signer()));
        assert_eq!(found.content(), "print(1)\n");
        assert!(fs::read_to_string(&path).unwrap().starts_with("#!/usr/bin/env python3\n# rye:signed:"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(spaces.sign(TOOL, &id("a/b"), Space::User).is_err(), "only the space that is named");
    }

    #[test]
    fn a_list_hides_what_is_shadowed_and_counts_what_cannot_be_used() {
        let (project, user) = (Tree::new(), Tree::new());
        project.sign("tools/b.yaml", "in: project\n", 1);
        project.write("tools/bad.yaml", "a: 1\n");
        project.write("tools/no.id.yaml", "a: 1\n");
        project.write("tools/notes.txt", "no tool\n");
        user.sign("tools/a/x.yaml", "in: user\n", 1);
        user.sign("tools/b.yaml", "in: user\n", 1);
        user.sign("tools/bad.yaml", "in: user\n", 1);
        let spaces = Spaces::at(project.path()).user(user.path());
        let list = |only| {
            let (items, skipped) = spaces.list(TOOL, only).unwrap();
            (items.iter().map(|item| format!("{}:{}", item.space().name(), item.id())).collect::<Vec<_>>(), skipped)
        };
        assert_eq!(list(None), (vec!["project:b".to_owned(), "user:a/x".to_owned()], 2));
        assert_eq!(list(Some(Space::User)).0, ["user:a/x", "user:b", "user:bad"]);
        assert_eq!(list(Some(Space::System)), (vec![], 0));
    }
}

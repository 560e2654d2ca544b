//! Spaces, and how an item is found in them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use graph_model::digest::Digest;
use graph_model::name::ItemId;
use graph_model::program::ItemType;
use graph_model::signature::{self, Comment, Fingerprint, ItemKind, KeyRing, SecretKey, SignatureError};

use super::error::ItemError;
use super::file;

/// Whose a space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// The project's.
    Project,
    /// The user's, with what they use in all projects.
    User,
    /// The system's: bundles that were installed.
    System,
}

impl Space {
    /// The spaces, in the order in which an item is looked for.
    pub const ALL: [Self; 3] = [Self::Project, Self::User, Self::System];

    /// Finds the space that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.name() == name)
    }

    /// Returns the spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
            Self::System => "system",
        }
    }
}

/// The extensions of tools: contracts and graphs, and what runs elsewhere and is only handed out as text.
const TOOLS: [&str; 10] = ["yaml", "yml", "py", "sh", "toml", "js", "mjs", "ts", "tsx", "rs"];
const PAGES: [&str; 1] = ["md"];
/// Where trusted keys are, below a space.
const KEYS: &str = ".ai/config/keys/trusted";
/// The most files of a directory of items that are searched, and the deepest directories.
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

/// The spaces of a runtime: where items are, which keys are trusted, and which key signs.
///
/// Nothing is kept in memory: each look reads the files and the trusted keys as they are then, so a key that is revoked, or
/// an item that is changed, is seen by the next one.
#[derive(Debug, Clone, Default)]
pub struct Spaces {
    /// In the order in which items are looked for.
    roots: Vec<(Space, PathBuf)>,
    trusted: KeyRing,
    key: Option<SecretKey>,
}

impl Spaces {
    /// No space at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The space of the project in `directory`, which holds `.ai`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self::new().project(directory)
    }

    /// Names the project's directory, in place of another.
    #[must_use]
    pub fn project(self, directory: impl Into<PathBuf>) -> Self {
        self.only(Space::Project, directory.into())
    }

    /// Names the user's directory, in place of another.
    #[must_use]
    pub fn user(self, directory: impl Into<PathBuf>) -> Self {
        self.only(Space::User, directory.into())
    }

    /// Adds the directory of a bundle of the system; of several, the first that has an item counts.
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

    /// Trusts the keys of `ring` beside those of the spaces. A key that is revoked in `ring` is, whatever the spaces say.
    #[must_use]
    pub fn trusting(mut self, ring: KeyRing) -> Self {
        self.trusted = ring;
        self
    }

    /// Signs items with `key`. Without one nothing is signed; none is made (R36).
    #[must_use]
    pub fn sign_with(mut self, key: SecretKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Finds the item with that id: in the project's space, else in the user's, else in the system's (R38, R41).
    ///
    /// The first space that has a file for it decides. The file is read once, and what was read is what is verified and
    /// returned. A file that cannot be used is an error; the next space is not asked.
    ///
    /// # Errors
    ///
    /// If no space has it, its file cannot be read, or is not signed by a trusted key (R42).
    pub fn find(&self, item: ItemType, id: &ItemId) -> Result<Item, ItemError> {
        self.find_in(item, id, None)
    }

    /// As [`Spaces::find`], in one of the spaces only if `only` names it.
    ///
    /// # Errors
    ///
    /// As [`Spaces::find`].
    pub fn find_in(&self, item: ItemType, id: &ItemId, only: Option<Space>) -> Result<Item, ItemError> {
        let (space, root, path) = self.locate(item, id, only)?;
        Trust::of(self).open(space, root, &path, item, id)
    }

    /// Signs the item with that id in `space`, in place of the signature that it has, and returns it as it is then.
    ///
    /// The file is replaced atomically. What is signed is the text as it is: whoever lets a graph sign lets it vouch.
    ///
    /// # Errors
    ///
    /// If there is no key, the space does not have the item, or its file cannot be read, signed or written.
    pub fn sign(&self, item: ItemType, id: &ItemId, space: Space) -> Result<Item, ItemError> {
        let key = self.key.as_ref().ok_or(ItemError::NoKey)?;
        let (space, root, path) = self.locate(item, id, Some(space))?;
        let target = file::resolve(root, &path)?;
        let kind = kind(item, &target);
        let signed = signature::sign(kind, &file::read(&target, &path)?, key, SystemTime::now())
            .map_err(|reason| ItemError::Sign { path: path.clone(), reason })?;
        file::replace(&target, &signed)?;
        let opened = signature::open(kind, &signed);
        let opened = opened.map_err(|reason| ItemError::Signature { path: path.clone(), reason })?;
        Ok(Item {
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

    /// Returns every item of that type that [`Spaces::find_in`] finds, in the order of spaces and ids, and how many files
    /// cannot be used.
    ///
    /// # Errors
    ///
    /// If a directory cannot be read, or there are too many files.
    pub(super) fn list(&self, item: ItemType, only: Option<Space>) -> Result<(Vec<Item>, usize), ItemError> {
        let (trust, (directory, extensions)) = (Trust::of(self), place(item));
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
                // A file whose name is no id can never be found.
                match id.map(|id| ItemId::new(id.replace(std::path::MAIN_SEPARATOR, "/"))) {
                    Some(Ok(id)) => ids.push(id),
                    _ => skipped += 1,
                }
            }
            ids.sort();
            ids.dedup();
            for id in ids {
                // What an earlier space has hides what a later one has, also if it cannot be used.
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

    /// Returns the spaces with their directories, last looked at first.
    pub(super) fn from_the_last(&self) -> impl Iterator<Item = &Path> {
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
pub(super) struct Trust<'s> {
    own: &'s KeyRing,
    spaces: KeyRing,
}

impl<'s> Trust<'s> {
    /// Reads the trusted keys of all spaces. Files that are refused are passed over, with a warning (R38, R39).
    pub(super) fn of(spaces: &'s Spaces) -> Self {
        let directories: Vec<PathBuf> = spaces.roots.iter().map(|(_, root)| root.join(KEYS)).collect();
        let directories: Vec<&Path> = directories.iter().map(PathBuf::as_path).collect();
        let (ring, rejected, _) = KeyRing::load(&directories);
        for key in rejected {
            tracing::warn!(path = %key.path.display(), error = %key.error, "a file of a trusted key is refused");
        }
        Self { own: &spaces.trusted, spaces: ring }
    }

    /// Reads the file at `path`, below the space at `root`, and verifies what was read. Returns the kind, the text below
    /// the signature line, its digest and its signer.
    pub(super) fn verify(
        &self,
        root: &Path,
        path: &Path,
        kind: impl FnOnce(&Path) -> ItemKind,
    ) -> Result<(ItemKind, String, Digest, Fingerprint), ItemError> {
        let target = file::resolve(root, path)?;
        let kind = kind(&target);
        let text = file::read(&target, path)?;
        let text = signature::normalise(&text);
        let refuse = |reason| ItemError::Signature { path: path.to_owned(), reason };
        let verified = match signature::verify(kind, &text, self.own) {
            Err(SignatureError::Untrusted(_)) => signature::verify(kind, &text, &self.spaces),
            // The caller's word makes a key trusted, and the spaces' may revoke it.
            Ok(verified) if self.revokes(&verified.signer.fingerprint) => signature::verify(kind, &text, &self.spaces),
            other => other,
        };
        let verified = verified.map_err(refuse)?;
        let content = signature::open(kind, &text).map_err(refuse)?.content.to_owned();
        Ok((kind, content, verified.envelope.digest, verified.signer.fingerprint.clone()))
    }

    fn revokes(&self, fingerprint: &Fingerprint) -> bool {
        self.spaces.get(fingerprint).is_some_and(|file| file.revoked_at.is_some())
    }

    fn open(&self, space: Space, root: &Path, path: &Path, item: ItemType, id: &ItemId) -> Result<Item, ItemError> {
        let (kind, content, digest, signer) = self.verify(root, path, |target| kind(item, target))?;
        Ok(Item {
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

/// Returns what the signature of an item's file covers.
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

/// Returns the files below `directory`. Links to directories are not followed: they may lead round in a circle.
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

/// An item that a trusted key signed. Only [`Spaces`] makes one.
#[derive(Debug, Clone)]
pub struct Item {
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

impl Item {
    /// Returns what kind of item it is.
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

    /// Returns the text below the signature line. Not all of it may be covered by the signature, see [`Item::covered`].
    pub fn content(&self) -> &str {
        &self.content
    }

    /// Returns the part of the text that the signature covers: all of a tool, the element of a directive, a page of
    /// knowledge without its `---` header.
    pub fn covered(&self) -> &str {
        self.kind.covered(&self.content).unwrap_or_default()
    }

    /// Returns the digest of what is covered.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns whose key signed it.
    pub fn signer(&self) -> &Fingerprint {
        &self.signer
    }
}

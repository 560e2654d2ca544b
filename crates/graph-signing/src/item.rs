//! Items: the place of the signature line, the text that it covers, signing and verifying.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::envelope::{Envelope, EnvelopeError, PREFIX};
use crate::key::{Fingerprint, Signer};
use crate::ring::{KeyFile, KeyRing};
use graph_model::digest::Digest;
use graph_model::timestamp;
use graph_model::value::canonical_json;

/// The kind of an item, which decides where the signature is and what it covers (R23, R29).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// A graph, a tool, a configuration or key file: everything below the signature line is covered.
    Tool(Comment),
    /// A markdown file with a `<directive>` element, which alone is covered.
    Directive,
    /// A markdown file: the text after its `---` front matter is covered, or everything below the line if it has no front
    /// matter.
    Knowledge,
}

/// How a file that is not markdown writes comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comment {
    /// `# …`: YAML, TOML, Python, shell.
    Hash,
    /// `// …`: JavaScript, TypeScript, Rust.
    Slashes,
}

impl ItemKind {
    /// A YAML file.
    pub const YAML: Self = Self::Tool(Comment::Hash);

    /// Determines the kind of the file `name` with the content `text`: by the directory of items that it is in, by its
    /// extension, or else by its beginning.
    pub fn of(name: &str, text: &str) -> Self {
        let name = name.replace('\\', "/");
        let markdown = || {
            // A page of knowledge may be about directives.
            if name.contains(".ai/knowledge/") || !text.contains("<directive") {
                Self::Knowledge
            } else {
                Self::Directive
            }
        };
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        match extension.to_ascii_lowercase().as_str() {
            "md" | "markdown" => markdown(),
            "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "tsx" | "rs" => Self::Tool(Comment::Slashes),
            "yaml" | "yml" | "toml" | "py" | "sh" => Self::Tool(Comment::Hash),
            _ if text.starts_with("<!--") => markdown(),
            _ if text.starts_with("// ") => Self::Tool(Comment::Slashes),
            _ => Self::Tool(Comment::Hash),
        }
    }

    /// Returns the item type's name: `tool`, `directive` or `knowledge`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tool(_) => "tool",
            Self::Directive => "directive",
            Self::Knowledge => "knowledge",
        }
    }

    const fn delimiters(self) -> (&'static str, &'static str) {
        match self {
            Self::Tool(Comment::Hash) => ("# ", ""),
            Self::Tool(Comment::Slashes) => ("// ", ""),
            Self::Directive | Self::Knowledge => ("<!-- ", " -->"),
        }
    }

    /// Returns the text between the comment's delimiters, if `line` is such a comment.
    fn comment(self, line: &str) -> Option<&str> {
        let (open, close) = self.delimiters();
        line.strip_prefix(open)?.strip_suffix(close)
    }

    /// Splits off the first line that may precede the signature: a tool's `#!/…` (R25).
    fn split_shebang(self, text: &str) -> (&str, &str) {
        if matches!(self, Self::Tool(_)) && text.starts_with("#!/") {
            text.split_at(text.find('\n').map_or(text.len(), |newline| newline + 1))
        } else {
            ("", text)
        }
    }

    /// Returns the part of `content`, the text without shebang and signature line, that its signature covers (R29); `None`
    /// for a directive without its element.
    ///
    /// A program must act on this part of an item only: anybody can change the rest without breaking the signature (R30).
    pub fn covered(self, content: &str) -> Option<&str> {
        match self {
            Self::Tool(_) => Some(content),
            Self::Knowledge => match content.strip_prefix("---").and_then(|rest| rest.split_once("---")) {
                Some((_, body)) => Some(body.trim()),
                None => Some(content),
            },
            Self::Directive => {
                const CLOSE: &str = "</directive>";
                let start = content.find("<directive")?;
                let end = content.rfind(CLOSE)? + CLOSE.len();
                content[start..].contains('>').then(|| content.get(start..end).map(str::trim)).flatten()
            }
        }
    }
}

/// Why a text was not signed, as it is, by a trusted key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature line where it must be.
    #[error("it is not signed{0}")]
    Unsigned(&'static str),
    /// The line begins like a signature but is not one.
    #[error("its signature line is malformed: {0}")]
    Malformed(EnvelopeError),
    /// A directive without its element.
    #[error("it has no `<directive>` element, which is what a directive's signature covers")]
    NoDirective,
    /// The covered text was changed after it was signed.
    #[error("its content was changed after it was signed: its hash was {signed:.12}…, and is {found:.12}…")]
    Altered {
        /// The digest that the line carries.
        signed: Digest,
        /// The digest of the text that was found.
        found: Digest,
    },
    /// No key with this fingerprint is trusted.
    #[error("it was signed by {0}, a key that is not trusted")]
    Untrusted(Fingerprint),
    /// The key was revoked.
    #[error("it was signed by {fingerprint} ({owner}), a key that was revoked on {revoked_at}")]
    Revoked {
        /// The fingerprint of the key that signed.
        fingerprint: Fingerprint,
        /// The key's owner.
        owner: String,
        /// When it was revoked, according to its key file.
        revoked_at: String,
    },
    /// A file about the key cannot be used, and may have been a revocation.
    #[error("it was signed by {fingerprint}, a key that is blocked, since {} is refused", path.display())]
    Blocked {
        /// The fingerprint of the key that signed.
        fingerprint: Fingerprint,
        /// The file among the trusted keys that is refused, or their directory if that cannot be read.
        path: PathBuf,
    },
    /// The signature was not made with the key.
    #[error("its signature was not made by {0}, the key that it names")]
    Forged(Fingerprint),
}

/// Why a text cannot be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// A directive without its element.
    #[error("it has no `<directive>` element, which is what a directive's signature covers")]
    NoDirective,
    /// The file begins with a byte order mark, and nothing may precede a signature.
    #[error("it begins with a byte order mark; save it as UTF-8 without one")]
    ByteOrderMark,
}

/// A signature line and the text below it, not verified.
#[derive(Debug, Clone)]
pub struct Opened<'t> {
    /// The content of the line.
    pub envelope: Envelope,
    /// The digest of the covered text.
    pub digest: Digest,
    /// Everything below the signature line.
    pub content: &'t str,
}

/// A verified signature.
#[derive(Debug, Clone)]
pub struct Verified<'r> {
    /// The content of the line.
    pub envelope: Envelope,
    /// The key that made it.
    pub signer: &'r KeyFile,
}

/// Turns CRLF line ends into LF, as both signing and verifying do before they hash (R31).
///
/// A checkout that rewrites line ends still verifies. A lone carriage return is content.
pub fn normalise(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}

/// Reads the signature line of `text`, whose line ends are LF, and hashes the text that it covers.
///
/// # Errors
///
/// If the line is missing where it must be, is malformed, or a directive has no element.
pub fn open(kind: ItemKind, text: &str) -> Result<Opened<'_>, SignatureError> {
    let (_, rest) = kind.split_shebang(text);
    let (line, content) = rest.split_once('\n').unwrap_or((rest, ""));
    let (opening, _) = kind.delimiters();
    if !line.strip_prefix(opening).is_some_and(|comment| comment.starts_with(PREFIX)) {
        return Err(SignatureError::Unsigned(why_unsigned(kind, text)));
    }
    let signature = kind.comment(line).ok_or(SignatureError::Malformed(EnvelopeError::Shape))?;
    let envelope = signature.parse().map_err(SignatureError::Malformed)?;
    let covered = kind.covered(content).ok_or(SignatureError::NoDirective)?;
    Ok(Opened { envelope, digest: Digest::of(covered), content })
}

/// Verifies that `text`, whose line ends are LF, was signed by a key that `ring` trusts (R41).
///
/// # Errors
///
/// The first of: not signed, altered, signed by an unknown or revoked key, forged.
pub fn verify<'r>(kind: ItemKind, text: &str, ring: &'r KeyRing) -> Result<Verified<'r>, SignatureError> {
    let Opened { envelope, digest, .. } = open(kind, text)?;
    let signer = judge(&envelope, &digest, ring)?;
    Ok(Verified { envelope, signer })
}

/// Decides whether the envelope is a trusted signature of the text with the hash `digest`.
fn judge<'r>(envelope: &Envelope, digest: &Digest, ring: &'r KeyRing) -> Result<&'r KeyFile, SignatureError> {
    if envelope.digest != *digest {
        return Err(SignatureError::Altered { signed: envelope.digest, found: *digest });
    }
    let signer = ring.signer(&envelope.fingerprint)?;
    if !signer.key.verifies(digest, &envelope.signature) {
        return Err(SignatureError::Forged(envelope.fingerprint.clone()));
    }
    Ok(signer)
}

/// Signs `text`, replacing any signature that it has, and returns the whole signed text with LF line ends.
///
/// # Errors
///
/// If a directive has no element, or the text begins with a byte order mark.
pub fn sign(kind: ItemKind, text: &str, key: &(impl Signer + ?Sized), at: SystemTime) -> Result<String, SignError> {
    let text = normalise(text);
    if text.starts_with('\u{feff}') {
        return Err(SignError::ByteOrderMark);
    }
    let (shebang, content) = kind.split_shebang(&text);
    let content = without_signatures(kind, content);
    let digest = Digest::of(kind.covered(content).ok_or(SignError::NoDirective)?);
    let (open, close) = kind.delimiters();
    let envelope = sign_digest(&digest, key, at);
    let newline = if shebang.is_empty() || shebang.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{shebang}{newline}{open}{envelope}{close}\n{content}"))
}

fn sign_digest(digest: &Digest, key: &(impl Signer + ?Sized), at: SystemTime) -> Envelope {
    Envelope {
        timestamp: timestamp::seconds(at),
        digest: *digest,
        signature: key.sign(digest),
        fingerprint: key.fingerprint(),
        provenance: None,
    }
}

/// Drops the signature lines at the top of `content`, including those of older formats (R27).
fn without_signatures(kind: ItemKind, mut content: &str) -> &str {
    const SIGNATURES: [&str; 4] = [PREFIX, "rye:validated:", "kiwi-mcp:signed:", "kiwi-mcp:validated:"];
    while let Some((line, rest)) = content.split_once('\n') {
        let is_signature = |comment: &str| SIGNATURES.iter().any(|signature| comment.starts_with(signature));
        if !kind.comment(line).is_some_and(is_signature) {
            break;
        }
        content = rest;
    }
    content
}

/// Returns a hint that a reader of an unsigned file may not see in the file.
fn why_unsigned(kind: ItemKind, text: &str) -> &'static str {
    let first = text.lines().next().unwrap_or_default();
    if text.starts_with('\u{feff}') {
        ": it begins with a byte order mark, and nothing may come before the signature"
    } else if text.trim().is_empty() {
        ": it is empty"
    } else if first.contains(PREFIX) {
        ": its first line mentions a signature but does not begin with one"
    } else if text.lines().skip(1).any(|line| kind.comment(line).is_some_and(|comment| comment.starts_with(PREFIX))) {
        ": a signature must be the first line; on a later line it counts as content"
    } else {
        ""
    }
}

/// The field of a JSON object that carries its signature (R23).
const SIGNATURE_FIELD: &str = "_signature";

/// Signs a JSON object over its canonical form, replacing any signature that it has (R32).
pub fn sign_json(object: &mut Map<String, Value>, key: &(impl Signer + ?Sized), at: SystemTime) {
    object.shift_remove(SIGNATURE_FIELD);
    let envelope = sign_digest(&json_digest(object), key, at);
    object.insert(SIGNATURE_FIELD.to_owned(), Value::String(envelope.to_string()));
}

/// Verifies a JSON object that [`sign_json`] signed (R32).
///
/// # Errors
///
/// As for [`verify`].
pub fn verify_json<'r>(object: &Map<String, Value>, ring: &'r KeyRing) -> Result<Verified<'r>, SignatureError> {
    let line = match object.get(SIGNATURE_FIELD) {
        Some(Value::String(line)) => line,
        Some(_) => return Err(SignatureError::Malformed(EnvelopeError::Shape)),
        None => return Err(SignatureError::Unsigned("")),
    };
    let envelope: Envelope = line.parse().map_err(SignatureError::Malformed)?;
    let mut covered = object.clone();
    covered.shift_remove(SIGNATURE_FIELD);
    let signer = judge(&envelope, &json_digest(&covered), ring)?;
    Ok(Verified { envelope, signer })
}

fn json_digest(object: &Map<String, Value>) -> Digest {
    Digest::of(canonical_json(&Value::Object(object.clone())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::SecretKey;

    const BODY: &str = "version: \"1.0.0\"\nscript: |\n  # rye:signed:not a signature, content\n  echo hi\n";

    fn key() -> SecretKey {
        SecretKey::from_seed(&[7; 32])
    }

    fn ring() -> KeyRing {
        KeyRing::of(&key().public(), "tester")
    }

    fn at() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_452_800)
    }

    fn signed() -> String {
        sign(ItemKind::YAML, BODY, &key(), at()).unwrap()
    }

    /// Computed with another implementation (Python's `cryptography`) from the same seed, time and text.
    #[test]
    fn a_signature_is_the_known_answer() {
        let line = "# rye:signed:2026-03-02T12:00:00Z:f99f676853f6a811c392e573c859afff58bf930072cd3ad543bb9345765ad6f5:W0Cewn92JO6I52exQMomhLP0jaeLnn9_V_dcysrOH07vQxEIl2DJHoMLhYHdaHgHavDOHpFbpk3KJMKhyJwJAA:5cc558a6d81dbb98";
        assert_eq!(signed(), format!("{line}\n{BODY}"));
    }

    #[test]
    fn a_signed_text_verifies_with_crlf_and_padding() {
        let text = signed();
        let verified = |text: &str| verify(ItemKind::YAML, &normalise(text), &ring()).map(|v| v.signer.owner.clone());
        assert_eq!(verified(&text), Ok("tester".into()));
        assert_eq!(verified(&text.replace('\n', "\r\n")), Ok("tester".into()));
        let (line, body) = text.split_once('\n').unwrap();
        let (head, fingerprint) = line.rsplit_once(':').unwrap();
        assert_eq!(verified(&format!("{head}==:{fingerprint}\n{body}")), Ok("tester".into()));
        assert_eq!(verified(&format!("{line}|github@someone\n{body}")), Ok("tester".into()));
    }

    #[test]
    fn signing_again_replaces_its_line_and_keeps_look_alikes() {
        let again = sign(ItemKind::YAML, &signed(), &key(), at()).unwrap();
        assert_eq!(again, signed());
        let legacy = format!("# kiwi-mcp:validated:2025-01-01T00:00:00Z:abc\n{BODY}");
        assert_eq!(sign(ItemKind::YAML, &legacy, &key(), at()).unwrap(), signed());
    }

    #[test]
    fn a_shebang_stays_first_and_is_not_covered() {
        let text = sign(ItemKind::YAML, "#!/usr/bin/env run\na: 1\n", &key(), at()).unwrap();
        assert!(text.starts_with("#!/usr/bin/env run\n# rye:signed:"));
        assert!(verify(ItemKind::YAML, &text, &ring()).is_ok());
        let markdown = text.replace("# rye", "<!-- rye");
        assert!(matches!(open(ItemKind::Knowledge, &markdown), Err(SignatureError::Unsigned(_))));
    }

    #[test]
    fn only_the_very_first_line_is_a_signature() {
        let text = signed();
        for (before, hint) in [
            ("\n", ": a signature must be the first line; on a later line it counts as content"),
            (" ", ": its first line mentions a signature but does not begin with one"),
            ("\u{feff}", ": it begins with a byte order mark, and nothing may come before the signature"),
            ("# comment\n", ": a signature must be the first line; on a later line it counts as content"),
        ] {
            assert_eq!(open(ItemKind::YAML, &format!("{before}{text}")).unwrap_err(), SignatureError::Unsigned(hint));
        }
        let (_, body) = text.split_once('\n').unwrap();
        assert_eq!(
            open(ItemKind::YAML, body).unwrap_err(),
            SignatureError::Unsigned(""),
            "the look-alike is indented content"
        );
        assert!(matches!(open(ItemKind::YAML, "# rye:signed:x\n"), Err(SignatureError::Malformed(_))));
    }

    #[test]
    fn a_signature_covers_directive_element_or_knowledge_body_only() {
        let directive = "# Title\n<directive name=\"a\">\nx\n</directive>\n<process/>\n";
        let text = sign(ItemKind::of("a.md", directive), directive, &key(), at()).unwrap();
        let good = |text: &str, kind| verify(kind, text, &ring()).is_ok();
        assert!(good(&text.replace("<process/>", "<process>changed</process>"), ItemKind::Directive));
        assert!(!good(&text.replace("name=\"a\"", "name=\"b\""), ItemKind::Directive));
        assert_eq!(sign(ItemKind::Directive, "nothing", &key(), at()), Err(SignError::NoDirective));

        assert_eq!(ItemKind::of("/p/.ai/knowledge/a.md", directive), ItemKind::Knowledge, "a page about directives");

        let knowledge = "---\ntitle: a\n---\n\nbody\n";
        let text = sign(ItemKind::of("a.md", knowledge), knowledge, &key(), at()).unwrap();
        assert!(good(&text.replace("title: a", "title: b"), ItemKind::Knowledge));
        assert!(!good(&text.replace("body", "Body"), ItemKind::Knowledge));
    }

    #[test]
    fn the_wrong_key_is_untrusted_and_a_borrowed_name_is_forged() {
        let other = SecretKey::from_seed(&[8; 32]);
        let text = sign(ItemKind::YAML, BODY, &other, at()).unwrap();
        let fingerprint = other.public().fingerprint();
        let error = verify(ItemKind::YAML, &text, &ring()).unwrap_err();
        assert_eq!(error, SignatureError::Untrusted(fingerprint.clone()));
        let borrowed = text.replace(fingerprint.as_str(), key().public().fingerprint().as_str());
        let error = verify(ItemKind::YAML, &borrowed, &ring()).unwrap_err();
        assert_eq!(error, SignatureError::Forged(key().public().fingerprint()));
    }

    #[test]
    fn json_objects_are_signed_over_their_canonical_form() {
        let Value::Object(mut object) = json!({"b": 1, "a": {"y": [true, null], "x": "ü"}}) else { unreachable!() };
        sign_json(&mut object, &key(), at());
        assert!(verify_json(&object, &ring()).is_ok());
        let reordered: Map<_, _> = object.clone().into_iter().rev().collect();
        assert!(verify_json(&reordered, &ring()).is_ok(), "the order of keys does not matter");
        object.insert("b".into(), json!(2));
        assert!(matches!(verify_json(&object, &ring()), Err(SignatureError::Altered { .. })));
        object.shift_remove("_signature");
        assert_eq!(verify_json(&object, &ring()).unwrap_err(), SignatureError::Unsigned(""));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The line's own timestamp is the one part of a signed file that the format does not cover.
        #[test]
        fn one_flipped_byte_fails_verification(place in any::<prop::sample::Index>(), flip in 1_u8..=255) {
            let text = signed();
            let timestamp = "# rye:signed:".len().."# rye:signed:2026-03-02T12:00:00Z".len();
            let mut bytes = text.clone().into_bytes();
            let place = place.index(bytes.len());
            bytes[place] ^= flip;
            let verified = String::from_utf8(bytes).ok().is_some_and(|changed| verify(ItemKind::YAML, &normalise(&changed), &ring()).is_ok());
            prop_assert!(!verified || timestamp.contains(&place), "byte {} of {}", place, text.len());
        }
    }
}

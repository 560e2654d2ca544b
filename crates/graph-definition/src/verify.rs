//! Verifying: from a source to one that a trusted key signed.

use std::sync::Arc;

use graph_model::digest::Digest;
use graph_signing::{self as signature, Fingerprint, ItemKind, KeyRing, SignatureError};

use crate::diagnostic::{Diagnostic, DiagnosticCode, SourcePlace, code};
use crate::source::SourceFile;

/// A source whose signature was verified. Only [`verify`] makes one, and only its text is parsed: the bytes that were
/// verified are the bytes that are compiled.
#[derive(Debug, Clone)]
pub struct VerifiedSource {
    source: Arc<SourceFile>,
    digest: Digest,
    signer: Fingerprint,
    owner: String,
}

impl VerifiedSource {
    /// Returns the verified text.
    pub fn source(&self) -> &Arc<SourceFile> {
        &self.source
    }

    /// Returns the digest that the signature covers.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the fingerprint of the key that signed it.
    pub fn signer(&self) -> &Fingerprint {
        &self.signer
    }

    /// Returns the owner of that key, as its key file names it.
    pub fn owner(&self) -> &str {
        &self.owner
    }
}

/// The origin of a definition: a verified source, or a draft that its author is still writing.
#[derive(Debug, Clone)]
pub enum DefinitionOrigin {
    /// A trusted key signed it. Graphs are compiled from such a source only.
    Verified(VerifiedSource),
    /// Nobody vouches for it: its mistakes are reported, and it is used for nothing else.
    Draft(Arc<SourceFile>),
}

impl DefinitionOrigin {
    /// Returns the text.
    pub fn source(&self) -> &Arc<SourceFile> {
        match self {
            Self::Verified(verified) => verified.source(),
            Self::Draft(source) => source,
        }
    }
}

impl From<VerifiedSource> for DefinitionOrigin {
    fn from(verified: VerifiedSource) -> Self {
        Self::Verified(verified)
    }
}

/// Verifies that a key of `ring` signed `source` (R41).
///
/// # Errors
///
/// If the source is unsigned, was altered, or is signed by an unknown or revoked key, or not by the key that it names.
pub fn verify(source: &Arc<SourceFile>, ring: &KeyRing) -> Result<VerifiedSource, Box<Diagnostic>> {
    match signature::verify(ItemKind::YAML, &source.text, ring) {
        Ok(verified) => Ok(VerifiedSource {
            source: Arc::clone(source),
            digest: verified.envelope.digest,
            signer: verified.signer.fingerprint.clone(),
            owner: verified.signer.owner.clone(),
        }),
        Err(error) => Err(Box::new(explain(source, &error))),
    }
}

fn explain(source: &Arc<SourceFile>, error: &SignatureError) -> Diagnostic {
    let name = &source.name;
    let sign = format!("review it, then sign it: `graph sign {name}`");
    let (code, message, label, help): (DiagnosticCode, String, String, String) = match error {
        SignatureError::Unsigned(hint) => {
            (code::UNSIGNED, format!("`{name}` is not signed{hint}"), "no signature here".into(), sign)
        }
        SignatureError::Malformed(reason) => (
            code::MALFORMED_SIGNATURE,
            format!("the signature line of `{name}` is malformed: {reason}"),
            String::new(),
            sign,
        ),
        SignatureError::NoDirective => (code::UNSIGNED, format!("`{name}`: {error}"), String::new(), sign),
        SignatureError::Altered { signed, found } => (
            code::ALTERED,
            format!("`{name}` was changed after it was signed"),
            format!("covers text with SHA-256 {}…, the file has {}…", &signed.to_hex()[..12], &found.to_hex()[..12]),
            format!(
                "if the change is meant, review it and sign it again: `graph sign {name}`; if not, restore the file"
            ),
        ),
        SignatureError::Untrusted(fingerprint) => (
            code::UNTRUSTED,
            format!("`{name}` is signed by a key that is not trusted: {fingerprint}"),
            String::new(),
            "if you trust its owner, add the public key: `graph keys trust PUBLIC_KEY.pem`".into(),
        ),
        SignatureError::Revoked { fingerprint, owner, revoked_at } => (
            code::REVOKED,
            format!("`{name}` is signed by a key that was revoked on {revoked_at}: {fingerprint} ({owner})"),
            String::new(),
            "have it reviewed and signed with another key".into(),
        ),
        SignatureError::Blocked { fingerprint, path } => (
            code::UNTRUSTED,
            format!("`{name}` is signed by a key that is blocked: {fingerprint}"),
            format!("`{}` is refused, and may revoke the key", path.display()),
            "correct the refused file, or remove it".into(),
        ),
        SignatureError::Forged(fingerprint) => (
            code::FORGED,
            format!("the signature of `{name}` was not made by {fingerprint}, the key that it names"),
            String::new(),
            "do not trust this file; restore it from where it came from".into(),
        ),
    };
    let line = source.text.lines().next().unwrap_or_default();
    let at = |part: String| line.rfind(&part).map(|start| start..start + part.len());
    // A signature line has two hundred characters: the part that matters is marked.
    let part = match error {
        SignatureError::Altered { signed, .. } => at(signed.to_hex()),
        SignatureError::Untrusted(fingerprint)
        | SignatureError::Revoked { fingerprint, .. }
        | SignatureError::Blocked { fingerprint, .. }
        | SignatureError::Forged(fingerprint) => at(fingerprint.to_string()),
        _ => None,
    };
    let mut diagnostic = Diagnostic::new(code, message, SourcePlace::new(source, part.unwrap_or(0..line.len())));
    diagnostic.label(label).help(help);
    diagnostic
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use graph_signing::{KeyFile, SecretKey, sign};

    use super::*;

    fn key() -> SecretKey {
        SecretKey::from_seed(&[1; 32])
    }

    fn rendered(text: &str) -> String {
        let ring = KeyRing::of(&key().public(), "tester");
        match verify(&SourceFile::new("graphs/g.yaml", "graphs/g.yaml", text), &ring) {
            Ok(verified) => format!("verified, signed by {}", verified.owner()),
            Err(diagnostic) => diagnostic.render(),
        }
    }

    #[test]
    fn each_signature_problem_has_its_code_and_a_remedy() {
        let signed = sign(ItemKind::YAML, "a: 1\n", &key(), SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(rendered(&signed), "verified, signed by tester");
        let altered = rendered(&signed.replace("a: 1", "a: 2"));
        assert!(
            altered.starts_with(
                "error[G0011]: `graphs/g.yaml` was changed after it was signed\n --> graphs/g.yaml:1:35\n"
            ),
            "{altered}"
        );
        assert!(altered.contains("sign it again: `graph sign graphs/g.yaml`"), "{altered}");
        assert!(rendered("a: 1\n").starts_with("error[G0010]: `graphs/g.yaml` is not signed\n"));
        assert!(
            rendered("# rye:signed:x\na: 1\n")
                .starts_with("error[G0015]: the signature line of `graphs/g.yaml` is malformed")
        );
        let other = SecretKey::from_seed(&[2; 32]);
        let untrusted = sign(ItemKind::YAML, "a: 1\n", &other, SystemTime::UNIX_EPOCH).unwrap();
        assert!(
            rendered(&untrusted).starts_with("error[G0012]: `graphs/g.yaml` is signed by a key that is not trusted: ")
        );
        let named = untrusted.replace(other.public().fingerprint().as_str(), key().public().fingerprint().as_str());
        assert!(rendered(&named).starts_with("error[G0014]: the signature of `graphs/g.yaml` was not made by "));
    }

    #[test]
    fn a_revoked_key_is_refused_with_the_date() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = KeyFile::new(key().public(), "tester");
        file.revoked_at = Some("2026-02-03T00:00:00Z".into());
        let path = directory.path().join(format!("{}.toml", file.fingerprint));
        std::fs::write(path, file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH)).unwrap();
        let (ring, rejected, _) = KeyRing::load(&[directory.path()]);
        assert!(rejected.is_empty());
        let text = sign(ItemKind::YAML, "a: 1\n", &key(), SystemTime::UNIX_EPOCH).unwrap();
        let error = verify(&SourceFile::new("g.yaml", "g.yaml", &text), &ring).unwrap_err();
        assert_eq!(error.code, code::REVOKED);
        assert!(error.message.contains("was revoked on 2026-02-03T00:00:00Z"), "{}", error.message);
    }
}

//! The signature line's fields: `rye:signed:<time>:<hash>:<signature>:<fingerprint>`.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding};

use crate::key::Fingerprint;
use graph_model::digest::Digest;
use graph_model::timestamp;

/// The content of a signature line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// When the signer says it signed, in UTC with whole seconds. Not covered by the signature.
    pub timestamp: String,
    /// The SHA-256 of the covered text.
    pub digest: Digest,
    /// The Ed25519 signature over the digest's 64 ASCII hex digits.
    pub signature: [u8; 64],
    /// The fingerprint of the key that signed.
    pub fingerprint: Fingerprint,
    /// The user who vouches for the file, as `registry@user`. Not covered by the signature.
    pub provenance: Option<String>,
}

/// Why a line that begins like a signature is not one (R24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The fields are missing.
    #[error("it is not of the form `rye:signed:<time>:<hash>:<signature>:<fingerprint>`")]
    Shape,
    /// The time is not `YYYY-MM-DDTHH:MM:SSZ`.
    #[error("its time is not of the form `2026-11-21T20:00:00Z`")]
    Timestamp,
    /// The hash is not 64 lower-case hex digits.
    #[error("its hash is not 64 lower-case hex digits")]
    Hash,
    /// The signature is not the base64url of 64 bytes.
    #[error("its signature is not the base64url of 64 bytes")]
    Signature,
    /// The fingerprint is not 16 lower-case hex digits.
    #[error("its fingerprint is not 16 lower-case hex digits")]
    Fingerprint,
    /// The provenance is not `provider@user`.
    #[error("its provenance is not of the form `provider@user`")]
    Provenance,
}

pub(super) const PREFIX: &str = "rye:signed:";

impl FromStr for Envelope {
    type Err = EnvelopeError;

    /// Reads `rye:signed:…`, all of it: nothing may follow (R26).
    ///
    /// The signature may be padded or not (R28), but must be the one canonical encoding of its bytes, so that no two
    /// lines carry the same signature.
    fn from_str(text: &str) -> Result<Self, EnvelopeError> {
        let rest = text.strip_prefix(PREFIX).ok_or(EnvelopeError::Shape)?;
        let (timestamp, rest) = rest.split_at_checked(20).ok_or(EnvelopeError::Shape)?;
        if !timestamp::is_seconds(timestamp) {
            return Err(EnvelopeError::Timestamp);
        }
        let rest = rest.strip_prefix(':').ok_or(EnvelopeError::Shape)?;
        let (rest, provenance) = match rest.split_once('|') {
            Some((rest, provenance)) => (rest, Some(provenance)),
            None => (rest, None),
        };
        let mut fields = rest.split(':');
        let (Some(hash), Some(signature), Some(fingerprint), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(EnvelopeError::Shape);
        };
        if let Some(provenance) = provenance {
            let is_word = |word: &str| {
                !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            };
            if !provenance.split_once('@').is_some_and(|(provider, user)| is_word(provider) && is_word(user)) {
                return Err(EnvelopeError::Provenance);
            }
        }
        Ok(Self {
            timestamp: timestamp.to_owned(),
            digest: hash.parse().map_err(|_| EnvelopeError::Hash)?,
            signature: decode_signature(signature).ok_or(EnvelopeError::Signature)?,
            fingerprint: fingerprint.parse().map_err(|_| EnvelopeError::Fingerprint)?,
            provenance: provenance.map(str::to_owned),
        })
    }
}

fn decode_signature(text: &str) -> Option<[u8; 64]> {
    let unpadded = match text.len() {
        88 => text.strip_suffix("==")?,
        _ => text,
    };
    let mut bytes = [0; 64];
    let decoded = Base64UrlUnpadded::decode(unpadded, &mut bytes).ok()?;
    (decoded.len() == 64 && Base64UrlUnpadded::encode_string(decoded) == unpadded).then_some(bytes)
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signature = Base64UrlUnpadded::encode_string(&self.signature);
        write!(f, "{PREFIX}{}:{}:{signature}:{}", self.timestamp, self.digest, self.fingerprint)?;
        self.provenance.iter().try_for_each(|provenance| write!(f, "|{provenance}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The signature line of a published directive.
    const REAL: &str = "rye:signed:2026-04-07T03:32:52Z:3d5275887f71f95e94f758b87740aa6370d29b080254ff25b09e80801bc6922e:eYvDk0RjvkBG1dY4A00X23fPHE712zApx8EseYSSSN7JKFFydUibzGoqjwPTdDPWIvVfJbiyv-rUz5vzxoMKDQ:6ea18199041a1ea8";

    #[test]
    fn a_published_signature_covers_hex_digits_not_raw_digest_bytes() {
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAUbAHc8d2KetZE2I9eb+VaUpTLkNsDJtFaAsY0nTEm7I=\n-----END PUBLIC KEY-----\n";
        let key = crate::key::PublicKey::from_pem(pem).unwrap();
        let envelope: Envelope = REAL.parse().unwrap();
        assert!(key.verifies(&envelope.digest, &envelope.signature));
        assert!(!key.verifies(&Digest::of("another"), &envelope.signature));
        assert!(!key.verifies_bytes(envelope.digest.as_bytes(), &envelope.signature));
    }

    #[test]
    fn a_published_line_is_read_and_written_as_it_was() {
        let envelope: Envelope = REAL.parse().unwrap();
        assert_eq!(envelope.timestamp, "2026-04-07T03:32:52Z");
        assert_eq!(envelope.fingerprint.to_string(), "6ea18199041a1ea8");
        assert_eq!(envelope.to_string(), REAL);
    }

    #[test]
    fn padding_is_accepted_and_not_written() {
        let padded = REAL.replace(":6ea1", "==:6ea1");
        assert_eq!(padded.parse::<Envelope>().unwrap().to_string(), REAL);
    }

    #[test]
    fn a_provenance_may_follow() {
        let text = format!("{REAL}|github@some-one");
        let envelope: Envelope = text.parse().unwrap();
        assert_eq!(envelope.provenance.as_deref(), Some("github@some-one"));
        assert_eq!(envelope.to_string(), text);
    }

    #[test]
    fn anything_else_is_not_a_signature_and_says_which_field() {
        let change = |from: &str, to: &str| REAL.replace(from, to).parse::<Envelope>().unwrap_err();
        assert_eq!(change("rye:signed", "rye:signee"), EnvelopeError::Shape);
        assert_eq!(change("52Z", "52.1Z"), EnvelopeError::Timestamp);
        assert_eq!(change("3d5275", "3D5275"), EnvelopeError::Hash);
        assert_eq!(change("3d5275", "d5275"), EnvelopeError::Hash);
        assert_eq!(change("biyv-rU", "biyv+rU"), EnvelopeError::Signature);
        assert_eq!(change("MKDQ:", "MKDQ=:"), EnvelopeError::Signature);
        assert_eq!(change("MKDQ:", "MKDR:"), EnvelopeError::Signature, "spare bits must be zero");
        assert_eq!(change("a1ea8", "a1ea"), EnvelopeError::Fingerprint);
        assert_eq!(change("a1ea8", "a1ea8 trailing"), EnvelopeError::Fingerprint);
        assert_eq!(change("a1ea8", "a1ea8:x"), EnvelopeError::Shape);
        assert_eq!(change("a1ea8", "a1ea8|github"), EnvelopeError::Provenance);
    }
}

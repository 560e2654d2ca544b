//! An answer that people have signed, as a run has it.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use graph_model::digest::Digest;
use graph_model::secret::Mask;
use graph_model::value::{FromValue, Value};
use graph_signing::{Fingerprint, PublicKey};
use serde::{Deserialize, Serialize};

use crate::dsse::Envelope;
use crate::failure::ActionError;

/// The answer that ended an interrupt, with its proof: the value of a signal that has the id of the wait as its name.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SignedAnswer {
    /// The answer, with its defaults: the `result` of the visit.
    pub answer: Value,
    /// The statement, and the signatures of those who answered.
    pub envelope: Envelope,
    /// Those who answered, in the order of the signatures.
    pub by: Vec<Answerer>,
}

/// One of those who answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Answerer {
    /// The public key, in base64url.
    pub key: String,
    /// Its owner, as the runtime that accepted the answer knew it.
    pub owner: String,
    /// The role that the runtime found the key to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

impl Answerer {
    /// Returns the fingerprint of the key; `None` if the text is not a key.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        decoded(&self.key).map(|key| key.fingerprint())
    }

    /// Returns the owner of the key; `None` if the file of the key does not say who that is.
    pub(crate) fn known_owner(&self) -> Option<&str> {
        let owner = self.owner.trim();
        let says_nothing = ["", "unknown", "self"].iter().any(|word| owner.eq_ignore_ascii_case(word));
        (!says_nothing).then_some(owner)
    }
}

impl SignedAnswer {
    /// Returns the answer as a type of the graph, such as the value of a variant of its enum `Answer`.
    ///
    /// # Errors
    ///
    /// If the answer is one to a question of another type.
    pub fn to<T: FromValue>(&self) -> Result<T, ActionError> {
        T::from_value(self.answer.clone())
            .map_err(|mismatch| ActionError::permanent(format!("the answer does not fit: {mismatch}")))
    }

    /// Returns the name of the node that asked.
    pub(crate) fn node(&self) -> Option<String> {
        let said: Value = serde_json::from_slice(&self.envelope.payload().ok()?).ok()?;
        said.get("node")?.as_str().map(str::to_owned)
    }

    /// Returns the part of it that is not secret.
    pub(crate) fn shown(&self, secrets: &Mask) -> ShownAnswer {
        let answer = secrets.hide(self.answer.clone());
        ShownAnswer { answer, by: self.by.clone(), envelope: Digest::of(self.envelope.to_string()) }
    }

    /// Reads the value of a signal.
    pub fn read(value: &Value) -> Option<Self> {
        let text = serde_json::to_string(value).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Returns the value of the signal.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("an answer has only texts as keys")
    }
}

impl fmt::Debug for SignedAnswer {
    /// Shows those who answered. The answer may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedAnswer").field("by", &self.by).finish_non_exhaustive()
    }
}

/// The part of an answer with secrets that is not secret, beside the encrypted whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ShownAnswer {
    /// The answer, with `[secret]` in the places of secrets.
    pub answer: Value,
    /// Those who answered, in the order of the signatures.
    pub by: Vec<Answerer>,
    /// The SHA-256 of the envelope as JSON, in its only spelling, with the signatures.
    pub envelope: Digest,
}

impl ShownAnswer {
    /// Reads what a signal shows of an answer.
    pub fn read(value: &Value) -> Option<Self> {
        let text = serde_json::to_string(value).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Returns what a signal shows.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("an answer has only texts as keys")
    }
}

/// Returns the text of a key in an answer: base64url.
pub(crate) fn encoded(key: &PublicKey) -> String {
    Base64UrlUnpadded::encode_string(key.as_bytes())
}

/// Returns the key of such a text.
pub(crate) fn decoded(key: &str) -> Option<PublicKey> {
    let bytes = Base64UrlUnpadded::decode_vec(key).ok()?;
    PublicKey::from_bytes(&bytes.try_into().ok()?).ok()
}

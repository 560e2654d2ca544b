//! Signed payloads: DSSE envelopes, version 1, with Ed25519.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Base64Url, Encoding};
use graph_signing::{PublicKey, SecretKey};
use serde::{Deserialize, Serialize};

/// A payload with its signatures. As a text it is one line of JSON.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<Signature>,
}

impl fmt::Debug for Envelope {
    /// Shows the type and the signatures. The payload may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payload_type, signatures, .. } = self;
        f.debug_struct("Envelope")
            .field("payload_type", payload_type)
            .field("signatures", signatures)
            .finish_non_exhaustive()
    }
}

/// A signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The fingerprint of the key. It is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyid: Option<String>,
    /// The signature, in Base64.
    pub sig: String,
}

/// Why a text is no envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// It is not JSON, or has other fields.
    #[error("it is not a DSSE envelope: {0}")]
    Json(String),
    /// The payload is not Base64.
    #[error("it is not a DSSE envelope: its payload is not Base64")]
    Base64,
}

impl Envelope {
    /// Puts a payload of a media type into an envelope. Nobody has signed it yet.
    pub fn new(payload_type: &str, payload: &[u8]) -> Self {
        let payload = Base64::encode_string(payload);
        Self { payload, payload_type: payload_type.to_owned(), signatures: Vec::new() }
    }

    /// Adds the signature of a key. A key that has signed replaces its signature.
    ///
    /// # Errors
    ///
    /// If the payload is not Base64.
    pub fn signed_by(mut self, key: &SecretKey) -> Result<Self, EnvelopeError> {
        let sig = Base64::encode_string(&key.sign_bytes(&self.signed_bytes()?));
        let keyid = Some(key.public().fingerprint().to_string());
        self.signatures.retain(|signature| signature.keyid != keyid);
        self.signatures.push(Signature { keyid, sig });
        Ok(self)
    }

    /// Returns the media type of the payload.
    pub fn payload_type(&self) -> &str {
        &self.payload_type
    }

    /// Returns the payload.
    ///
    /// # Errors
    ///
    /// If it is not Base64.
    pub fn payload(&self) -> Result<Vec<u8>, EnvelopeError> {
        decoded(&self.payload).ok_or(EnvelopeError::Base64)
    }

    /// Returns the signatures.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// Returns the envelope with these signatures only.
    #[must_use]
    pub fn with(self, signatures: Vec<Signature>) -> Self {
        Self { signatures, ..self }
    }

    /// Returns the envelope in the form that [`Envelope::new`] and [`Envelope::signed_by`] write.
    ///
    /// # Errors
    ///
    /// If the payload or a signature is not Base64.
    pub(crate) fn normalised(&self) -> Result<Self, EnvelopeError> {
        let again = |text: &str| decoded(text).map(|bytes| Base64::encode_string(&bytes)).ok_or(EnvelopeError::Base64);
        let signature = |one: &Signature| Ok(Signature { keyid: one.keyid.clone(), sig: again(&one.sig)? });
        let signatures = self.signatures.iter().map(signature).collect::<Result<_, _>>()?;
        Ok(Self { payload: again(&self.payload)?, payload_type: self.payload_type.clone(), signatures })
    }

    /// Whether another envelope has the same payload, whoever signed it.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.payload_type == other.payload_type && self.payload().is_ok_and(|own| other.payload() == Ok(own))
    }

    /// Whether a key made a signature of the payload.
    pub fn is_signed(&self, signature: &Signature, key: &PublicKey) -> bool {
        let bytes = decoded(&signature.sig).and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        let Ok(signed) = self.signed_bytes() else { return false };
        bytes.is_some_and(|signature| key.verifies_bytes(&signed, &signature))
    }

    /// Returns the bytes that are signed: the pre-authentication encoding of DSSE.
    fn signed_bytes(&self) -> Result<Vec<u8>, EnvelopeError> {
        let (kind, payload) = (&self.payload_type, self.payload()?);
        let mut bytes = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
        bytes.extend_from_slice(&payload);
        Ok(bytes)
    }
}

/// Decodes Base64. A verifier must accept both alphabets.
fn decoded(text: &str) -> Option<Vec<u8>> {
    Base64::decode_vec(text).or_else(|_| Base64Url::decode_vec(text)).ok()
}

impl FromStr for Envelope {
    type Err = EnvelopeError;

    fn from_str(text: &str) -> Result<Self, EnvelopeError> {
        serde_json::from_str(text).map_err(|error| EnvelopeError::Json(error.to_string()))
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("an envelope has only texts as keys"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_bytes_follow_the_encoding_of_the_protocol() {
        // The example of the DSSE protocol, version 1.
        let envelope = Envelope::new("http://example.com/HelloWorld", b"hello world");
        assert_eq!(envelope.signed_bytes().unwrap(), b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }

    #[test]
    fn a_key_signs_an_envelope_once() {
        let key = SecretKey::from_seed(&[1; 32]);
        let signed = Envelope::new("text/plain", b"yes").signed_by(&key).unwrap().signed_by(&key).unwrap();
        assert_eq!(signed.signatures().len(), 1);
        assert!(signed.is_signed(&signed.signatures()[0], &key.public()));
        assert!(!signed.is_signed(&signed.signatures()[0], &SecretKey::from_seed(&[2; 32]).public()));
        // Both alphabets of Base64 are read, and other fields are not.
        let text = signed.to_string().replacen('{', r#"{"more":1,"#, 1).replace('+', "-").replace('/', "_");
        let again: Envelope = text.replace("text_plain", "text/plain").parse().unwrap();
        assert!(again.says_the_same(&signed) && again.is_signed(&again.signatures()[0], &key.public()));
    }
}

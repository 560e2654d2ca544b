//! The payloads of signals and answers, as a store keeps them and receipts cover them. One with secrets is encrypted as a whole, since
//! one signature covers all of it.

use graph_model::digest::{Digest, hex};
use graph_model::name::RunId;
use graph_model::value::Value;
use serde::{Deserialize, Serialize};

use crate::cipher::{NotOpened, decrypt_value, encrypt_value};
use crate::encryption_key::EncryptionKey;

/// Returns the payload of a signal as a store keeps it: its value as JSON.
pub(crate) fn payload(value: &Value) -> String {
    serde_json::to_string(value).expect("a value has only texts as keys and finite numbers")
}

/// A value with secrets, as the inbox of a run and its journal have it.
///
/// One value has one encrypted form in the signal of a run, so that a store recognizes a signal that is sent again.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EncryptedValue {
    /// The part of the value that is not secret.
    pub shown: Value,
    /// The whole value, encrypted, in base64.
    pub text: String,
    /// Whether it was decrypted, and the signal has the value itself.
    pub is_open: bool,
}

/// The JSON form of a value that is encrypted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncryptedPayload {
    sealed: String,
    value: Value,
}

impl EncryptedValue {
    /// Encrypts the value of the signal of a run with a name and an id, which has the secrets of which `shown` has none.
    pub(crate) fn new(key: &EncryptionKey, run: &RunId, (name, id): (&str, &str), value: &Value, shown: Value) -> Self {
        let bound = bound_to(name, id, &shown);
        let nonce = |plain: &str| key.mac("nonce", &[run.as_str(), &bound, plain]);
        let text = encrypt_value(key, value, &bound, nonce);
        Self { shown, text, is_open: true }
    }

    /// A value as a journal has it.
    pub(crate) fn recorded(shown: Value, text: String) -> Self {
        Self { shown, text, is_open: false }
    }

    /// Reads the payload of a signal in an inbox; `None` if it is not encrypted.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let EncryptedPayload { sealed, value } = serde_json::from_str(text).ok()?;
        let read = Self::recorded(value, sealed);
        (read.payload() == text).then_some(read)
    }

    /// Returns the payload of a signal in an inbox, which its receipt covers.
    pub(crate) fn payload(&self) -> String {
        let form = EncryptedPayload { sealed: self.text.clone(), value: self.shown.clone() };
        serde_json::to_string(&form).expect("a value has only texts as keys and finite numbers")
    }

    /// Returns the value of the signal with a name and an id.
    ///
    /// # Errors
    ///
    /// If it was encrypted with another key or for another signal, or was changed.
    pub(crate) fn decrypt(&self, key: &EncryptionKey, (name, id): (&str, &str)) -> Result<Value, NotOpened> {
        decrypt_value(key, &self.text, &bound_to(name, id, &self.shown))
    }
}

/// Returns the text that an encrypted value is bound to: it opens nowhere else.
fn bound_to(name: &str, id: &str, shown: &Value) -> String {
    serde_json::json!(["graph-runtime signal", name, id, Digest::of(payload(shown))]).to_string()
}

/// Returns a text that two encrypted statements to one question have in common exactly if they say the same.
pub(crate) fn same_statement(key: &EncryptionKey, run: &RunId, wait: &str, statement: &str) -> String {
    hex(&key.mac("statement", &[run.as_str(), wait, statement]).as_bytes()[..16])
}

#[cfg(all(test, feature = "secrets"))]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_encrypted_value_has_one_form_and_opens_in_one_place() {
        let key = EncryptionKey::from_bytes([1; 32]);
        let (value, shown) = (json!({"pin": "1234", "amount": 5}), json!({"pin": "[secret]", "amount": 5}));
        let encrypt =
            |text: &str| EncryptedValue::new(&key, &RunId::new(text).unwrap(), ("paid", "p-1"), &value, shown.clone());
        let one = encrypt("order");
        assert_eq!(one, encrypt("order"));
        assert_eq!(one.decrypt(&key, ("paid", "p-1")).unwrap(), value);
        assert!(!one.payload().contains("1234"));

        // Equal values of two runs do not look equal.
        assert_ne!(one.text, encrypt("other").text);
        let wrong = EncryptionKey::from_bytes([2; 32]);
        let moved = EncryptedValue { shown: json!({"pin": "[secret]", "amount": 6}), ..one.clone() };
        let cut = EncryptedValue { text: one.text[4..].to_owned(), ..one.clone() };
        for (changed, key, place) in [
            (&one, &wrong, ("paid", "p-1")),
            (&one, &key, ("note", "p-1")),
            (&one, &key, ("paid", "p-2")),
            (&moved, &key, ("paid", "p-1")),
            (&cut, &key, ("paid", "p-1")),
        ] {
            assert!(changed.decrypt(key, place).is_err());
        }
    }

    #[test]
    fn a_payload_has_one_spelling() {
        let key = EncryptionKey::from_bytes([1; 32]);
        let one =
            EncryptedValue::new(&key, &RunId::new("order").unwrap(), ("paid", "p-1"), &json!(7), json!("[secret]"));
        let read = EncryptedValue::read(&one.payload()).unwrap();
        assert_eq!((read.is_open, read.payload()), (false, one.payload()));
        let spaced = one.payload().replace(':', ": ");
        for other in
            [spaced.as_str(), "{}", "null", r#"{"value":1,"sealed":""}"#, r#"{"sealed":"","value":1,"more":2}"#]
        {
            assert!(EncryptedValue::read(other).is_none(), "{other}");
        }
    }
}

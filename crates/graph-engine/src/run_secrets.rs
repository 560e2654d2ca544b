//! The secrets of a run: it knows them, hides them from others and encrypts them where they are written.
//!
//! The graph says where secrets are, by the types that the compiler found. Where such a value is shown, it is replaced by
//! `[secret]`. Where it is written into a journal, it is encrypted with a nonce of its own and bound to its run,
//! step and place, so that an encrypted value that is moved cannot be opened. A secret that occurs elsewhere, such as in the
//! text of an error or in the output of a tool, is cut out when it is found.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::secret::{HIDDEN, Mask, wipe};
use graph_model::value::{Map, Value};
use zeroize::{Zeroize, Zeroizing};

use crate::cipher;
use crate::cipher::{decrypt_value, encrypt_value};

pub use crate::cipher::NotOpened;
use crate::encryption_key::EncryptionKey;
use crate::failure::Failure;
use crate::graph::GraphTables;
use crate::kind::{ErrorKind, HasKind};

/// The name of the field that holds an encrypted value.
const SEALED: &str = "$sealed";
/// The minimum length in bytes of a text that is cut out of others: shorter ones occur too often by chance.
const LEAST: usize = 4;

/// The secrets of a run.
pub struct RunSecrets {
    run: RunId,
    key: Option<EncryptionKey>,
    /// The seed from which nonces are drawn: random, and different each time a run is begun or resumed.
    seed: Zeroizing<[u8; 32]>,
    drawn: AtomicU64,
    /// The texts that are cut out of others, long ones first.
    known: Mutex<Vec<Zeroizing<String>>>,
}

/// Why the secrets of a run cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretsError {
    /// There is no key to encrypt the secrets of the graph with where its runs are written down.
    #[error(
        "the graph `{graph}` has secrets, and no key to encrypt them with where they are written down: name one with `encrypt_with`, as in `EncryptionKey::load(path)`"
    )]
    NoKey {
        /// The graph.
        graph: String,
    },
    /// The program was built without the feature that encrypts secrets.
    #[error(
        "the graph `{graph}` has secrets, which needs the feature `secrets` of `graph-runtime` where its runs are written down"
    )]
    NoCipher {
        /// The graph.
        graph: String,
    },
    /// The operating system gave no random bytes for the run's id or its secrets.
    #[error("the operating system gave no random bytes: {0}")]
    NoRandomness(String),
}

impl HasKind for SecretsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoKey { .. } | Self::NoCipher { .. } | Self::NoRandomness(_) => ErrorKind::Internal,
        }
    }
}

/// The place of an encrypted value.
#[derive(Debug, Clone, Copy)]
pub struct SecretLocation<'a> {
    /// The number of the visit, 0 before the first; for an edit, the number of its record.
    pub step: u64,
    /// `inputs`, `result`, `changes`, `list`, `call`, `edit`, `snapshot`, `previous` or `output`.
    pub part: &'static str,
    /// The key of a change, of an edit or in a snapshot, the item of a call, or the node of an earlier result.
    pub key: &'a str,
}

impl RunSecrets {
    /// Opens the secrets of a run; `None` where its graph has no secrets.
    ///
    /// # Errors
    ///
    /// If the run is written to a journal and there is no key to encrypt its secrets with, or if there is no randomness.
    pub fn open(
        code: &GraphTables,
        run: &RunId,
        key: Option<&EncryptionKey>,
        is_written: bool,
    ) -> Result<Option<Arc<Self>>, SecretsError> {
        if code.settings.secrets.is_empty() {
            return Ok(None);
        }
        if is_written && !cipher::IS_THERE {
            return Err(SecretsError::NoCipher { graph: code.id.to_string() });
        }
        if is_written && key.is_none() {
            return Err(SecretsError::NoKey { graph: code.id.to_string() });
        }
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut()).map_err(|error| SecretsError::NoRandomness(error.to_string()))?;
        let (run, key) = (run.clone(), key.cloned());
        Ok(Some(Arc::new(Self { run, key, seed, drawn: AtomicU64::new(0), known: Mutex::default() })))
    }

    /// Returns the fingerprint of the key that encrypts.
    pub fn fingerprint(&self) -> Option<String> {
        self.key.as_ref().map(EncryptionKey::fingerprint)
    }

    /// Remembers the texts among the secrets in a value, to cut them out of what is shown.
    pub fn learn(&self, mask: Option<&Mask>, value: &Value) {
        let Some(mask) = mask else { return };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        mask.each(value, &mut |secret| texts(secret, &mut |text| remember(&mut known, text)));
    }

    /// Remembers the texts that another run knows.
    pub(crate) fn learn_from(&self, other: &Self) {
        let texts = other.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        texts.iter().for_each(|text| remember(&mut known, text));
    }

    /// Cuts secrets out of a text; returns whether there were any.
    pub fn scrub(&self, text: &mut String) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = false;
        for secret in known.iter() {
            if text.contains(secret.as_str()) {
                let clean = text.replace(secret.as_str(), HIDDEN);
                text.zeroize();
                *text = clean;
                found = true;
            }
        }
        found
    }

    /// Cuts secrets out of the texts of a value, except where `mask` says that there are secrets; returns whether there were
    /// any.
    pub fn scrub_value(&self, value: &mut Value, mask: Option<&Mask>) -> bool {
        match (mask, value) {
            (None, Value::String(text)) => self.scrub(text),
            (None | Some(Mask::Each(_)), Value::Array(list)) => {
                let inner = inside(mask, "");
                let mut found = false;
                for value in list {
                    found |= self.scrub_value(value, inner);
                }
                found
            }
            (None | Some(Mask::Each(_) | Mask::Fields(_)), Value::Object(map)) => {
                let mut found = false;
                for (name, value) in map.iter_mut() {
                    found |= self.scrub_value(value, inside(mask, name));
                }
                self.scrub_names(map) || found
            }
            _ => false,
        }
    }

    /// Cuts secrets out of the names of an object's fields.
    fn scrub_names(&self, map: &mut Map<String, Value>) -> bool {
        let clean = |name: &String| {
            let mut clean = name.clone();
            self.scrub(&mut clean).then_some(clean)
        };
        if map.keys().all(|name| clean(name).is_none()) {
            return false;
        }
        *map = std::mem::take(map).into_iter().map(|(name, value)| (clean(&name).unwrap_or(name), value)).collect();
        true
    }

    /// Cuts secrets out of a failure; `mask` says where they are in the data that the tool would have returned.
    pub fn scrub_failure(&self, failure: &mut Failure, mask: Option<&Mask>) {
        if let Some(data) = failure.data.take() {
            self.learn(mask, &data);
            let mut data = hidden(mask, data);
            self.scrub_value(&mut data, None);
            failure.data = Some(data);
        }
        self.scrub(&mut failure.message);
        if let Some(question) = &mut failure.question {
            self.scrub_value(question, None);
        }
        if let Some(code) = &mut failure.code {
            self.scrub(code);
        }
    }

    /// Encrypts the secrets in a value.
    pub fn encrypt(&self, mask: Option<&Mask>, place: SecretLocation<'_>, mut value: Value) -> Value {
        let Some(mask) = mask else { return value };
        let encrypted =
            mask.try_each(&mut value, &|_| false, &mut |secret, way| -> Result<(), std::convert::Infallible> {
                let text = self.encrypt_one(secret, &self.bound_to(place, way));
                wipe(secret);
                *secret = Value::Object(Map::from_iter([(SEALED.to_owned(), Value::from(text))]));
                Ok(())
            });
        match encrypted {
            Ok(()) => value,
        }
    }

    fn encrypt_one(&self, secret: &Value, bound: &str) -> String {
        encrypt_value(self.key(), secret, bound, |_| self.nonce())
    }

    /// Opens the secrets in a value that [`RunSecrets::encrypt`] encrypted at the same place, and remembers them.
    ///
    /// # Errors
    ///
    /// If one of them was not encrypted, was changed or moved, or was encrypted with another key.
    pub fn decrypt(&self, mask: Option<&Mask>, place: SecretLocation<'_>, value: &mut Value) -> Result<(), NotOpened> {
        let Some(mask) = mask else { return Ok(()) };
        self.open_all(mask, place, value)?;
        self.learn(Some(mask), value);
        Ok(())
    }

    fn open_all(&self, mask: &Mask, place: SecretLocation<'_>, value: &mut Value) -> Result<(), NotOpened> {
        mask.try_each(value, &is_encrypted, &mut |secret, way| {
            let text = secret.get(SEALED).and_then(Value::as_str).ok_or(NotOpened)?;
            *secret = self.decrypt_one(text, &self.bound_to(place, way))?;
            Ok(())
        })
    }

    /// Encrypts the list of a visit that fanned out. No type says which of its values are secrets, so all of it is encrypted,
    /// together with the secrets that are known to occur in it.
    pub fn encrypt_list(&self, visit: u64, list: Value) -> Value {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let occurs = |secret: &str| {
            let mut found = false;
            texts(&list, &mut |text| found |= text.contains(secret));
            found
        };
        let secrets = known.iter().filter(|secret| occurs(secret)).map(|secret| Value::from(secret.as_str()));
        let secrets = Value::Array(secrets.collect());
        drop(known);
        let both = Map::from_iter([("list".to_owned(), list), ("secrets".to_owned(), secrets)]);
        self.encrypt(Some(&Mask::All), SecretLocation::list(visit), Value::Object(both))
    }

    /// Opens a list that [`RunSecrets::encrypt_list`] encrypted, and remembers the secrets that occur in it.
    ///
    /// # Errors
    ///
    /// As for [`RunSecrets::decrypt`].
    pub fn decrypt_list(&self, visit: u64, value: &mut Value) -> Result<(), NotOpened> {
        self.open_all(&Mask::All, SecretLocation::list(visit), value)?;
        if let Value::Object(both) = value {
            self.learn(Some(&Mask::All), both.get("secrets").unwrap_or(&Value::Null));
            *value = both.get_mut("list").map(Value::take).ok_or(NotOpened)?;
        } else {
            // An older journal does not say which secrets occur in it.
            self.learn(Some(&Mask::All), value);
        }
        Ok(())
    }

    fn decrypt_one(&self, text: &str, bound: &str) -> Result<Value, NotOpened> {
        decrypt_value(self.key(), text, bound)
    }

    /// Returns the text that an encrypted value is bound to: it opens nowhere else.
    fn bound_to(&self, place: SecretLocation<'_>, way: &[String]) -> String {
        serde_json::json!(["graph-runtime secret", self.run, place.step, place.part, place.key, way]).to_string()
    }

    pub(crate) fn key(&self) -> &EncryptionKey {
        self.key.as_ref().expect("a run that is written down has a key, if it has secrets")
    }

    /// Draws the bytes of a nonce that was not drawn before.
    fn nonce(&self) -> Digest {
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut text = Zeroizing::new([0; 40]);
        text[..32].copy_from_slice(self.seed.as_ref());
        text[32..].copy_from_slice(&count.to_be_bytes());
        Digest::of(&text[..])
    }
}

impl<'a> SecretLocation<'a> {
    /// The inputs of a run.
    pub const INPUTS: SecretLocation<'static> = SecretLocation { step: 0, part: "inputs", key: "" };

    /// The result of a visit.
    pub fn result(step: u64) -> Self {
        Self { step, part: "result", key: "" }
    }

    /// The value that a visit wrote to a key.
    pub fn change(step: u64, key: &'a str) -> Self {
        Self { step, part: "changes", key }
    }

    /// The list that a visit fanned out over.
    pub fn list(step: u64) -> Self {
        Self { step, part: "list", key: "" }
    }

    /// The result of a call that finished before its step was done; `item` as [`item_text`] writes it.
    pub fn call(step: u64, item: &'a str) -> Self {
        Self { step, part: "call", key: item }
    }

    /// The value that an edit gives to a key; `seq` is the number of its record.
    pub fn edit(seq: u64, key: &'a str) -> Self {
        Self { step: seq, part: "edit", key }
    }

    /// The value of a key in a snapshot, after so many visits.
    pub fn kept(steps: u64, key: &'a str) -> Self {
        Self { step: steps, part: "snapshot", key }
    }

    /// The result of a node's last visit in a snapshot, after so many visits.
    pub fn seen(steps: u64, node: &'a str) -> Self {
        Self { step: steps, part: "previous", key: node }
    }

    /// The output of a run, after so many visits.
    pub fn output(steps: u64) -> Self {
        Self { step: steps, part: "output", key: "" }
    }
}

/// Returns where secrets are in the result of a visit of the node with a name.
pub fn named_result_mask<'c>(code: &'c GraphTables, node: &str) -> Option<&'c Mask> {
    result_mask(code, code.node_named(node)?)
}

/// Returns where secrets are in the result of a visit of a node, which is that of its tool. A foreach has none; it collects its results
/// in a key. Answers and signals are no results: records of waits have them.
pub fn result_mask(code: &GraphTables, node: u16) -> Option<&Mask> {
    let kind = &code.node(node).kind;
    code.settings.secrets.tools.get(&kind.calls().filter(|_| !kind.goes_over_list())?)
}

/// Returns where secrets are in the results of a node's calls, also for a foreach.
pub fn called_mask<'c>(code: &'c GraphTables, node: &str) -> Option<&'c Mask> {
    code.settings.secrets.tools.get(&code.node(code.node_named(node)?).kind.calls()?)
}

/// Returns the name of an item in the place of a call: empty if the node is not a foreach.
pub fn item_text(item: Option<u64>) -> String {
    item.map(|item| item.to_string()).unwrap_or_default()
}

/// Returns a value with `[secret]` in the places of secrets.
pub fn hidden(mask: Option<&Mask>, value: Value) -> Value {
    match mask {
        Some(mask) => mask.hide(value),
        None => value,
    }
}

/// Replaces encrypted values by `[secret]`, for any graph.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::record::hide_encrypted;
/// use serde_json::json;
///
/// let mut state = json!({ "cents": 900, "card": { "$sealed": "…" } });
/// hide_encrypted(&mut state);
/// assert_eq!(state, json!({ "cents": 900, "card": "[secret]" }));
/// ```
pub fn hide_encrypted(value: &mut Value) {
    match value {
        encrypted if is_encrypted(encrypted) => *encrypted = Value::from(HIDDEN),
        Value::Array(list) => list.iter_mut().for_each(hide_encrypted),
        Value::Object(map) => map.values_mut().for_each(hide_encrypted),
        _ => {}
    }
}

/// Whether a value is encrypted.
pub fn is_encrypted(value: &Value) -> bool {
    matches!(value, Value::Object(map) if map.len() == 1 && map.get(SEALED).is_some_and(Value::is_string))
}

/// Returns the mask of an element or a field.
fn inside<'m>(mask: Option<&'m Mask>, name: &str) -> Option<&'m Mask> {
    match mask? {
        Mask::Each(inner) => Some(inner),
        Mask::Fields(fields) => fields.get(name),
        all @ Mask::All => Some(all),
    }
}

/// Calls `visit` with each text in a value.
fn texts(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(list) => list.iter().for_each(|value| texts(value, visit)),
        Value::Object(map) => map.values().for_each(|value| texts(value, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds a text, and the forms in which it can occur: without the white space around it, and escaped as in JSON.
fn remember(known: &mut Vec<Zeroizing<String>>, text: &str) {
    let quoted = Zeroizing::new(Value::from(text.trim()).to_string());
    let escaped = &quoted[1..quoted.len() - 1];
    for form in [text, text.trim(), escaped] {
        if form.len() >= LEAST && form != HIDDEN && !known.iter().any(|one| one.as_str() == form) {
            let at = known.partition_point(|one| one.len() >= form.len());
            known.insert(at, Zeroizing::new(form.to_owned()));
        }
    }
}

#[cfg(test)]
#[cfg(feature = "secrets")]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn run_secrets(key: u8) -> RunSecrets {
        RunSecrets {
            run: RunId::new("run").unwrap(),
            key: Some(EncryptionKey::from_bytes([key; 32])),
            seed: Zeroizing::new([key; 32]),
            drawn: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }

    fn token() -> Mask {
        Mask::Fields(BTreeMap::from([("token".to_owned(), Mask::All)]))
    }

    #[test]
    fn an_encrypted_secret_opens_only_in_its_place() {
        let (encrypting, mask, value) = (run_secrets(1), token(), json!({"token": {"a": [1, "x"]}, "user": "ann"}));
        let encrypted = encrypting.encrypt(Some(&mask), SecretLocation::result(3), value.clone());
        assert_eq!((&encrypted["user"], is_encrypted(&encrypted["token"])), (&json!("ann"), true));
        let mut opened = encrypted.clone();
        encrypting.decrypt(Some(&mask), SecretLocation::result(3), &mut opened).unwrap();
        assert_eq!(opened, value);
        let of_another_run = RunSecrets { run: RunId::new("other").unwrap(), ..run_secrets(1) };
        for (by, place) in [
            (&encrypting, SecretLocation::result(4)),
            (&encrypting, SecretLocation::output(3)),
            (&encrypting, SecretLocation::change(3, "token")),
            (&of_another_run, SecretLocation::result(3)),
            (&run_secrets(2), SecretLocation::result(3)),
        ] {
            assert!(by.decrypt(Some(&mask), place, &mut encrypted.clone()).is_err(), "{place:?}");
        }
        // Moved to another field of the same value.
        let other = Mask::Fields(BTreeMap::from([("other".to_owned(), Mask::All)]));
        assert!(
            encrypting
                .decrypt(Some(&other), SecretLocation::result(3), &mut json!({"other": encrypted["token"]}))
                .is_err()
        );
    }

    #[test]
    fn an_unsealed_secret_is_refused() {
        let mut plain = json!({"token": "plain"});
        assert!(run_secrets(1).decrypt(Some(&token()), SecretLocation::INPUTS, &mut plain).is_err());
        let mut nothing = json!({"user": "ann", "token": null});
        assert!(run_secrets(1).decrypt(Some(&token()), SecretLocation::INPUTS, &mut nothing).is_ok());
    }

    #[test]
    fn encryption_is_random_and_hides_the_length() {
        let run_secrets = run_secrets(1);
        let encrypt =
            |text: &str| run_secrets.encrypt(Some(&Mask::All), SecretLocation::INPUTS, json!(text))[SEALED].to_string();
        let encrypted: Vec<String> = ["a", "a", "a longer one"].map(encrypt).into();
        assert!(encrypted[0] != encrypted[1] && encrypted[1].len() == encrypted[2].len(), "{encrypted:?}");
    }

    #[test]
    fn secrets_are_cut_out_as_they_are_found_the_longest_first() {
        let run_secrets = run_secrets(1);
        run_secrets.learn(Some(&Mask::All), &json!(["hunter", " hunter2\n", "say \"hi\"", "abc", 1234]));
        for (text, expected) in [
            ("it was hunter2, and hunter", "it was [secret], and [secret]"),
            ("abc and 1234", "abc and 1234"),
            ("{\"said\":\"say \\\"hi\\\"\"}", "{\"said\":\"[secret]\"}"),
            ("Hunter", "Hunter"),
        ] {
            let mut text = text.to_owned();
            run_secrets.scrub(&mut text);
            assert_eq!(text, expected);
        }
        let mut value = json!({"token": "hunter2", "hunter2": [{"said": "x hunter2"}], "n": 1});
        assert!(run_secrets.scrub_value(&mut value, Some(&token())));
        assert_eq!(value, json!({"token": "hunter2", "[secret]": [{"said": "x [secret]"}], "n": 1}));
    }

    #[test]
    fn the_secrets_in_a_list_are_known_again_and_its_other_texts_are_not() {
        let (writing, reading) = (run_secrets(1), run_secrets(1));
        writing.learn(Some(&Mask::All), &json!(["hunter2", "another"]));
        let list = json!([{"file": "main.rs", "url": "https://hunter2@host"}, 5]);
        let mut value = writing.encrypt_list(3, list.clone());
        assert!(is_encrypted(&value));
        assert!(reading.decrypt_list(4, &mut value.clone()).is_err());
        reading.decrypt_list(3, &mut value).unwrap();
        assert_eq!(value, list);
        let mut text = "main.rs hunter2 another".to_owned();
        assert!(reading.scrub(&mut text));
        assert_eq!(text, "main.rs [secret] another");
        // A list that was encrypted alone.
        let mut older = writing.encrypt(Some(&Mask::All), SecretLocation::list(3), list.clone());
        reading.decrypt_list(3, &mut older).unwrap();
        assert_eq!((older, reading.scrub(&mut "main.rs".to_owned())), (list, true));
    }

    #[test]
    fn a_history_shows_that_there_was_a_secret() {
        let mut value =
            run_secrets(1).encrypt(Some(&token()), SecretLocation::result(1), json!({"token": "x", "user": "ann"}));
        hide_encrypted(&mut value);
        assert_eq!(value, json!({"token": "[secret]", "user": "ann"}));
    }
}

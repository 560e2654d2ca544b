//! The people of tests, who answer the questions of runs.

use std::sync::LazyLock;

use graph_engine::answer::{AnswerKeys, KeyHolder};
use graph_engine::{Fingerprint, SecretKey};

/// The people of a test: each may answer every question, whatever role it asks for. For `Builder::answer_keys`.
#[derive(Debug, Clone, Copy, Default)]
pub struct TestPeople;

/// The public keys, with their owners.
static HOLDERS: LazyLock<Vec<KeyHolder>> = LazyLock::new(|| {
    let holder = |number| KeyHolder::new(TestPeople::key(number).public(), format!("person {number}"));
    (0..TestPeople::MOST).map(holder).collect()
});

impl TestPeople {
    /// How many people there are.
    pub const MOST: u8 = 100;

    /// Returns the key with which a person signs, of those with the numbers from 0.
    pub fn key(number: u8) -> SecretKey {
        SecretKey::from_seed(&[100 + number % Self::MOST; 32])
    }
}

impl AnswerKeys for TestPeople {
    fn holder(&self, key: &Fingerprint, _: Option<&str>) -> Result<KeyHolder, String> {
        let known = HOLDERS.iter().find(|holder| holder.key.fingerprint() == *key);
        known.cloned().ok_or_else(|| "it is not one of the test's people".to_owned())
    }
}

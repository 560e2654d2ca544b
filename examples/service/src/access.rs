//! The secrets that the endpoints ask for: a token for the inbox, and signatures of payments.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64ct::{Base64, Base64UrlUnpadded, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::Error;

/// The minimum length of the secret of the payment service.
const MIN_SECRET: usize = 32;

/// The secrets of the service that others know too.
pub struct Access {
    /// The code of the token, which reveals nothing about it.
    inbox: Vec<u8>,
    payments: Option<Hmac<Sha256>>,
}

impl Access {
    /// Reads the token of the inbox from a file that only its owner may read, or makes it. Without a secret of the payment service,
    /// no payment is accepted.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written or has no token, or the secret is shorter than 32 bytes.
    pub fn open(file: &Path, payment_secret: Option<&str>) -> Result<Self, Error> {
        let token = token(file).map_err(|error| format!("the token of the inbox in {}: {error}", file.display()))?;
        if payment_secret.is_some_and(|secret| secret.len() < MIN_SECRET) {
            return Err(format!("the secret of the payment service has fewer than {MIN_SECRET} bytes").into());
        }
        Ok(Self {
            inbox: code(&token).finalize().into_bytes().to_vec(),
            payments: payment_secret.map(|secret| keyed(secret.as_bytes())),
        })
    }

    /// Whether a token is that of the inbox. The time that this takes does not depend on how much of it is right.
    pub fn admits(&self, token: &str) -> bool {
        code(token).verify_slice(&self.inbox).is_ok()
    }

    /// Whether the payment service signed a message: with HMAC-SHA-256 over its bytes, in Base64. `None` if there is no secret.
    pub fn has_signed(&self, message: &[u8], signature: &str) -> Option<bool> {
        let payments = self.payments.clone()?;
        let signature = Base64::decode_vec(signature).unwrap_or_default();
        Some(payments.chain_update(message).verify_slice(&signature).is_ok())
    }
}

fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes secrets of any length")
}

fn code(token: &str) -> Hmac<Sha256> {
    keyed(token.as_bytes()).chain_update(b"inbox")
}

/// Reads the token, or makes one of 32 random bytes.
fn token(file: &Path) -> Result<String, Error> {
    if !file.exists() {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        // The file appears whole or not at all.
        let new = file.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(written, "{}", Base64UrlUnpadded::encode_string(&random))?;
        written.sync_all()?;
        std::fs::rename(new, file)?;
    }
    let token = std::fs::read_to_string(file)?.trim().to_owned();
    match token.len() < MIN_SECRET {
        true => Err(format!("it has fewer than {MIN_SECRET} characters").into()),
        false => Ok(token),
    }
}

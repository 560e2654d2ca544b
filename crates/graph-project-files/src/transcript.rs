//! The transcript: a line of JSON for each event, signed at each step; and its verification.
//!
//! A checkpoint is a line that carries the SHA-256 of all bytes before it and a signature over that. The line before it, a
//! `state_checkpoint`, has the same step and time, so that nothing in the checkpoint's own line is unsigned.

use base64ct::{Base64UrlUnpadded, Encoding};
use graph_model::digest::{Digest, Hasher};
use graph_model::name::RunId;
use graph_model::value::Value;
use graph_signing::{Fingerprint, KeyRing, Signer};
use serde::{Deserialize, Serialize};

/// An event of a run, for the transcript and the page.
#[derive(Debug, Clone)]
pub(crate) struct RunMoment {
    /// The time: RFC 3339 in UTC with milliseconds.
    pub(crate) at: String,
    pub(crate) kind: &'static str,
    pub(crate) payload: Value,
}

/// A line (R218). Readers of older transcripts know the run by `thread_id`.
#[derive(Serialize)]
struct Line<'a, P> {
    timestamp: &'a str,
    graph_run_id: &'a RunId,
    thread_id: &'a RunId,
    event_type: &'a str,
    payload: P,
}

/// A transcript that is being written.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    length: u64,
    hasher: Hasher,
    /// The lines that are not in the file yet.
    pending: Vec<u8>,
    /// Where the last checkpoint's line ends.
    bound: Option<Bound>,
}

/// The part of a transcript that was signed when a state item was written. It binds the state item to the transcript
/// (R229).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The number of bytes, to the end of a checkpoint's line.
    pub bytes: u64,
    /// Their SHA-256.
    pub hash: Digest,
}

impl Transcript {
    /// Adds the line of an event.
    pub(crate) fn add(&mut self, run: &RunId, moment: &RunMoment) {
        self.line(run, &moment.at, moment.kind, &moment.payload);
    }

    fn line(&mut self, run: &RunId, timestamp: &str, event_type: &str, payload: impl Serialize) {
        let line = text(&Line { timestamp, graph_run_id: run, thread_id: run, event_type, payload });
        self.hasher.update(&line);
        self.hasher.update("\n");
        self.length += line.len() as u64 + 1;
        self.pending.extend_from_slice(line.as_bytes());
        self.pending.push(b'\n');
    }

    /// Signs all lines so far (R225, R226). The line before has the same time and step.
    pub(crate) fn sign(&mut self, run: &RunId, at: &str, turn: u64, key: &dyn Signer) {
        let hash = self.hasher.so_far();
        let sig = Base64UrlUnpadded::encode_string(&key.sign(&hash));
        let fp = key.fingerprint();
        let checkpoint = TranscriptCheckpoint { turn, byte_offset: self.length, hash, sig, fp, ts: whole_second(at) };
        self.line(run, at, CHECKPOINT, &checkpoint);
        self.bound = Some(Bound { bytes: self.length, hash: self.hasher.so_far() });
    }

    /// Returns the part that is signed.
    pub(crate) fn bound(&self) -> Option<&Bound> {
        self.bound.as_ref()
    }

    /// Returns the length of the file so far, and the lines that are not in it yet.
    pub(crate) fn pending(&self) -> (u64, &[u8]) {
        (self.length - self.pending.len() as u64, &self.pending)
    }

    /// Notes that the pending lines are in the file.
    pub(crate) fn written(&mut self) {
        self.pending.clear();
    }
}

/// Writes a time without its milliseconds, as in signatures.
pub(crate) fn whole_second(at: &str) -> String {
    match at.split_once('.') {
        Some((second, _)) => format!("{second}Z"),
        None => at.to_owned(),
    }
}

fn text(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("a line has only texts as keys and finite numbers")
}

const CHECKPOINT: &str = "checkpoint";
pub(crate) const STATE_CHECKPOINT: &str = "state_checkpoint";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TranscriptCheckpoint {
    turn: u64,
    byte_offset: u64,
    hash: Digest,
    sig: String,
    fp: Fingerprint,
    ts: String,
}

/// Returns the hashes and signatures in the checkpoints of a transcript, without verifying them.
pub(crate) fn signatures(transcript: &[u8]) -> impl Iterator<Item = (Digest, [u8; 64])> {
    #[derive(Deserialize)]
    struct Said {
        payload: TranscriptCheckpoint,
    }
    transcript.split(|byte| *byte == b'\n').filter_map(|line| {
        let Said { payload: TranscriptCheckpoint { hash, sig, .. } } = serde_json::from_slice(line).ok()?;
        Some((hash, Base64UrlUnpadded::decode_vec(&sig).ok()?.try_into().ok()?))
    })
}

/// Returns the events of a transcript in order. Lines that are not events, such as a half-written one, are skipped (R231).
/// To know that nothing was changed, verify the transcript first.
///
/// [`verify_transcript`] has an example.
pub fn transcript_events(bytes: &[u8]) -> impl Iterator<Item = Value> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).filter(|line: &Value| line["event_type"].is_string())
}

/// The rules for verifying a transcript.
///
/// [`verify_transcript`] has an example.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules<'b> {
    /// Whether a transcript may lack signatures at its end, or at all. The unsigned bytes are reported, and nothing proves
    /// them (R228).
    pub allow_unsigned_trailing: bool,
    /// The part that the transcript must contain, according to the run's state item. Without it, a transcript that was cut
    /// off after one of its checkpoints goes unnoticed (R229).
    pub bound: Option<&'b Bound>,
}

/// A transcript with valid signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedTranscript {
    /// How many checkpoints it has.
    pub checkpoints: u64,
    /// The number of unsigned bytes after the last checkpoint; 0 unless the rules allow some.
    pub unsigned_bytes: u64,
    /// The keys that signed, each once, in the order of their first checkpoint.
    pub signers: Vec<Fingerprint>,
}

/// Why a transcript is not what a trusted key signed (R227).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError {
    /// It has no checkpoint.
    #[error("Unsigned transcript ({unsigned_bytes} bytes without a checkpoint)")]
    Unsigned {
        /// How long it is.
        unsigned_bytes: u64,
    },
    /// The bytes before a checkpoint are not those that were signed.
    #[error("Content hash mismatch at turn {turn}")]
    Content {
        /// The checkpoint's step.
        turn: u64,
        /// Where its line begins.
        byte_offset: u64,
    },
    /// A checkpoint names a key that is unknown or revoked.
    #[error("Untrusted signing key {fingerprint} at turn {turn}")]
    Untrusted {
        /// The checkpoint's step.
        turn: u64,
        /// The key.
        fingerprint: Fingerprint,
    },
    /// A checkpoint's signature was not made with its key.
    #[error("Signature verification failed at turn {turn}")]
    Signature {
        /// The checkpoint's step.
        turn: u64,
    },
    /// A checkpoint's own line was changed, or belongs to another run.
    #[error("Checkpoint altered at turn {turn}")]
    Checkpoint {
        /// The step that it names.
        turn: u64,
        /// Where its line begins.
        byte_offset: u64,
    },
    /// There are unsigned bytes after the last checkpoint.
    #[error("Unsigned content after last checkpoint ({unsigned_bytes} bytes after turn {turn})")]
    Trailing {
        /// The last checkpoint's step.
        turn: u64,
        /// How many bytes follow it.
        unsigned_bytes: u64,
    },
    /// It ends before the point that the state item names.
    #[error("Transcript cut short ({found} bytes, and the state item knows {expected})")]
    Short {
        /// How long it is.
        found: u64,
        /// How long it was when the state item was written.
        expected: u64,
    },
    /// Its beginning is not the one that the state item names.
    #[error("Transcript is not the one that the state item names")]
    Foreign,
}

impl TranscriptError {
    /// Returns the step of the checkpoint that failed (`failed_at_turn`).
    pub fn failed_at_turn(&self) -> Option<u64> {
        match self {
            Self::Content { turn, .. }
            | Self::Untrusted { turn, .. }
            | Self::Signature { turn }
            | Self::Checkpoint { turn, .. }
            | Self::Trailing { turn, .. } => Some(*turn),
            Self::Unsigned { .. } | Self::Short { .. } | Self::Foreign => None,
        }
    }
}

/// Verifies the whole transcript `bytes` of `run`: every checkpoint in order, then that nothing follows the last one
/// (R227). A missing newline at the end is no change.
///
/// ```
/// # mod graph_runtime {
/// #     pub use graph_engine::*;
/// #     pub mod files { pub use graph_project_files::*; }
/// #     pub use files::ProjectFiles;
/// # }
/// # fn example(keys: &graph_runtime::files::KeyRing) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::RunId;
/// use graph_runtime::files::{Rules, transcript_events, verify_transcript};
///
/// let bytes = std::fs::read(".ai/state/threads/order-17/transcript.jsonl")?;
/// let verified = verify_transcript(&RunId::new("order-17")?, &bytes, keys, Rules::default())?;
/// println!("{} events, {} checkpoints", transcript_events(&bytes).count(), verified.checkpoints);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns the first mistake.
pub fn verify_transcript(
    run: &RunId,
    bytes: &[u8],
    keys: &KeyRing,
    rules: Rules<'_>,
) -> Result<VerifiedTranscript, TranscriptError> {
    let mut hasher = Hasher::default();
    let mut verified = VerifiedTranscript { checkpoints: 0, unsigned_bytes: 0, signers: Vec::new() };
    let (mut offset, mut signed, mut turn) = (0_u64, 0_u64, 0);
    let mut before: Option<Stated> = None;
    for raw in bytes.split_inclusive(|byte| *byte == b'\n') {
        let line = raw.strip_suffix(b"\n").unwrap_or(raw);
        if let Some(found) = FoundCheckpoint::read(line) {
            let checkpoint = judge(run, line, &found, offset, &hasher, before.as_ref(), keys)?;
            turn = checkpoint.turn;
            signed = offset + raw.len() as u64;
            verified.checkpoints += 1;
            if !verified.signers.contains(&checkpoint.fp) {
                verified.signers.push(checkpoint.fp);
            }
        }
        before = serde_json::from_slice(line).ok();
        hasher.update(raw);
        offset += raw.len() as u64;
    }
    if let Some(Bound { bytes: expected, hash }) = rules.bound {
        // The newline at the end may be missing.
        let found = offset + u64::from(!bytes.ends_with(b"\n"));
        if found < *expected {
            return Err(TranscriptError::Short { found: offset, expected: *expected });
        }
        let mut bound = Hasher::default();
        bound.update(&bytes[..bytes.len().min(usize::try_from(*expected).unwrap_or(usize::MAX))]);
        if *expected > offset {
            bound.update("\n");
        }
        if bound.so_far() != *hash {
            return Err(TranscriptError::Foreign);
        }
    }
    verified.unsigned_bytes = offset - signed;
    if !rules.allow_unsigned_trailing && verified.checkpoints == 0 {
        return Err(TranscriptError::Unsigned { unsigned_bytes: verified.unsigned_bytes });
    }
    if !rules.allow_unsigned_trailing && verified.unsigned_bytes > 0 {
        return Err(TranscriptError::Trailing { turn, unsigned_bytes: verified.unsigned_bytes });
    }
    if verified.unsigned_bytes > 0 {
        tracing::warn!(%run, bytes = verified.unsigned_bytes, "the end of a transcript is not signed");
    }
    Ok(verified)
}

/// A line that says it is a checkpoint.
struct FoundCheckpoint {
    timestamp: String,
    payload: Option<TranscriptCheckpoint>,
    /// The step that it names, if nothing else can be read.
    turn: u64,
}

impl FoundCheckpoint {
    fn read(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            event_type: String,
            #[serde(default)]
            timestamp: Value,
            #[serde(default)]
            payload: Value,
        }
        let found: Line = serde_json::from_slice(line).ok().filter(|found: &Line| found.event_type == CHECKPOINT)?;
        Some(Self {
            timestamp: found.timestamp.as_str().unwrap_or_default().to_owned(),
            turn: found.payload["turn"].as_u64().unwrap_or_default(),
            payload: serde_json::from_value(found.payload).ok(),
        })
    }
}

/// A `state_checkpoint`, which the signature of the checkpoint after it covers.
#[derive(Deserialize)]
struct Stated {
    timestamp: String,
    event_type: String,
    payload: StatedStep,
}

#[derive(Deserialize)]
struct StatedStep {
    #[serde(default)]
    step: Option<u64>,
}

/// Decides whether a trusted key signed a checkpoint's line at this position.
fn judge(
    run: &RunId,
    line: &[u8],
    found: &FoundCheckpoint,
    byte_offset: u64,
    before: &Hasher,
    stated: Option<&Stated>,
    keys: &KeyRing,
) -> Result<TranscriptCheckpoint, TranscriptError> {
    let turn = found.turn;
    let altered = TranscriptError::Checkpoint { turn, byte_offset };
    let Some(checkpoint) = &found.payload else { return Err(altered) };
    let hash = before.so_far();
    if checkpoint.hash != hash || checkpoint.byte_offset != byte_offset {
        return Err(TranscriptError::Content { turn, byte_offset });
    }
    let fingerprint = &checkpoint.fp;
    let key = keys.get(fingerprint).filter(|key| key.revoked_at.is_none());
    let key = key.ok_or_else(|| TranscriptError::Untrusted { turn, fingerprint: fingerprint.clone() })?;
    let mut signature = [0; 64];
    let is_encoded = Base64UrlUnpadded::decode(&checkpoint.sig, &mut signature).is_ok_and(|bytes| bytes.len() == 64);
    if !is_encoded || !key.key.verifies(&hash, &signature) {
        return Err(TranscriptError::Signature { turn });
    }
    // The other members of the line must agree with the signed line before it, and there must be no more members.
    let says = |stated: &&Stated| {
        stated.event_type == STATE_CHECKPOINT
            && stated.timestamp == found.timestamp
            && stated.payload.step == Some(checkpoint.turn)
    };
    let ours = TranscriptCheckpoint {
        turn,
        byte_offset,
        hash,
        sig: Base64UrlUnpadded::encode_string(&signature),
        fp: fingerprint.clone(),
        ts: whole_second(&found.timestamp),
    };
    let (timestamp, event_type) = (found.timestamp.as_str(), CHECKPOINT);
    let expected = text(&Line { timestamp, graph_run_id: run, thread_id: run, event_type, payload: &ours });
    if stated.filter(says).is_none() || expected.as_bytes() != line {
        return Err(altered);
    }
    Ok(ours)
}

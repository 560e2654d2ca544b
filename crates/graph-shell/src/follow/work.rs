//! The work that is done for one command.
//!
//! Following costs a small multiple of the command's length: each substitution is followed once in a walk, and few walks find
//! something new. Some commands cost more by their nature, as one whose values go through variables against the order of the
//! text, or a chain of programs each of which starts the next one and whose options are unknown. They are given up when they have
//! cost more than any command that a person wrote, and are reported as commands that cannot be read.

use std::cell::Cell;

/// The maximum number of programs each of which starts the next one.
const MAX_STARTED: usize = 64;

/// The steps for a command of any length, and for each byte of it.
const STEPS: usize = 20_000;
const STEPS_PER_BYTE: usize = 60;

/// How many elements or bytes that are looked at cost as much as following one part of a word.
const SCANNED_PER_STEP: usize = 32;

/// The work that may still be done.
#[derive(Debug, Default)]
pub(super) struct WorkLimit {
    most: usize,
    /// The steps that are left; 0 if it is over.
    left: Cell<usize>,
    /// How many programs, each of which starts the next one, are being judged.
    started: usize,
}

impl WorkLimit {
    /// The work that a command with this many bytes may cost.
    pub(super) fn new(length: usize) -> Self {
        let most = STEPS + STEPS_PER_BYTE * length;
        Self { most, left: Cell::new(most), started: 0 }
    }

    /// The steps that were done.
    pub(super) fn steps(&self) -> usize {
        self.most - self.left.get()
    }

    /// Whether the command has cost too much: nothing that was found of it counts.
    pub(super) fn is_over(&self) -> bool {
        self.left.get() == 0
    }

    /// Returns whether there is work left.
    fn spend(&self, steps: usize) -> bool {
        self.left.set(self.left.get().saturating_sub(steps));
        !self.is_over()
    }

    /// Pays for following a command or a part of a word. Returns whether it may be followed.
    pub(super) fn begin(&self) -> bool {
        self.spend(1)
    }

    /// Pays for looking at that many elements or bytes. Returns whether there is work left.
    pub(super) fn scan(&self, count: usize) -> bool {
        self.spend(count / SCANNED_PER_STEP)
    }

    /// Pays for copying that many words, to judge them in another place. Returns whether there is work left.
    pub(super) fn copy(&self, words: usize) -> bool {
        self.spend(32 * words)
    }

    /// Pays for judging a program with that many words. Returns whether it may be judged; [`end`](Self::end) is then called
    /// behind it.
    pub(super) fn start(&mut self, words: usize) -> bool {
        if self.started == MAX_STARTED {
            self.left.set(0);
        }
        let may_start = self.spend(4 + 4 * words);
        self.started += usize::from(may_start);
        may_start
    }

    pub(super) fn end(&mut self) {
        self.started -= 1;
    }
}

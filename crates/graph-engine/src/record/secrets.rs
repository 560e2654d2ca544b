//! Secrets in records: opening encrypted values, and hiding secrets.

use graph_model::secret::Mask;

use crate::address::answered;
use crate::graph::GraphTables;
use crate::record::entry::{Edit, Entry, Record, Start, Visit};
use crate::record::journal::{Journal, JournalError};
use crate::run_secrets::{NotOpened, RunSecrets, SecretLocation, called_mask, hidden, item_text, named_result_mask};
use crate::signed_answer::SignedAnswer;
use crate::step::TakenSignal;

fn not_opened(seq: u64) -> JournalError {
    let reason = "a secret in it cannot be opened with this runtime's encryption key".to_owned();
    JournalError::Misfit { seq, reason }
}

/// Replaces the secrets of a visit with `[secret]`.
pub fn hide_visit(code: &GraphTables, visit: &mut Visit) {
    visit.result = hidden(named_result_mask(code, &visit.node), std::mem::take(&mut visit.result));
    for (key, value) in &mut visit.changes {
        *value = hidden(code.mask_of_write(key, value), std::mem::take(value));
    }
    // It is not known which parts of a list are secret: all of it is hidden.
    if let Some(list) = visit.list.as_mut().filter(|_| !code.settings.secrets.is_empty()) {
        *list = hidden(Some(&Mask::All), std::mem::take(list));
    }
}

impl RunSecrets {
    /// Opens all encrypted values in a journal.
    ///
    /// # Errors
    ///
    /// If one cannot be opened; the error names its record.
    pub fn decrypt_journal(&self, code: &GraphTables, journal: &mut Journal) -> Result<(), JournalError> {
        self.decrypt_start(code, &mut journal.start)?;
        journal.records.iter_mut().try_for_each(|record| self.decrypt_record(code, record))
    }

    /// Opens the secrets in the first record of a journal.
    ///
    /// # Errors
    ///
    /// If one cannot be opened.
    pub fn decrypt_start(&self, code: &GraphTables, start: &mut Start) -> Result<(), JournalError> {
        self.decrypt(code.settings.secrets.inputs.as_ref(), SecretLocation::INPUTS, &mut start.inputs)
            .map_err(|_| not_opened(0))
    }

    /// Opens the secrets in another record of a journal.
    ///
    /// # Errors
    ///
    /// If one cannot be opened.
    pub fn decrypt_record(&self, code: &GraphTables, record: &mut Record) -> Result<(), JournalError> {
        let secrets = &code.settings.secrets;
        let opened = match &mut record.entry {
            Entry::Step(step) => step.visits.iter_mut().try_for_each(|visit| self.decrypt_visit(code, visit)),
            Entry::Calls(calls) => calls.done.iter_mut().filter(|done| done.suspended.is_none()).try_for_each(|done| {
                let mask = called_mask(code, &done.node);
                self.decrypt(mask, SecretLocation::call(done.step, &item_text(done.item)), &mut done.result)
            }),
            Entry::Snapshot(snapshot) => snapshot.decrypt(code, self),
            Entry::End(end) => {
                self.decrypt(secrets.output.as_ref(), SecretLocation::output(end.steps), &mut end.output)
            }
            Entry::Edit(edit) => self.decrypt_edit(code, record.seq, edit),
            Entry::Take(take) => {
                let mut signals = take.taken.iter_mut().filter_map(|taken| taken.signal.as_mut());
                signals.try_for_each(|signal| self.decrypt_signal(code, signal))
            }
            Entry::Start(_) | Entry::Resume(_) => Ok(()),
        };
        opened.map_err(|_| not_opened(record.seq))
    }

    /// Decrypts the value of a signal that a wait has taken, and remembers its secrets.
    ///
    /// # Errors
    ///
    /// If it was encrypted with another key, or was changed.
    pub fn decrypt_signal(&self, code: &GraphTables, signal: &mut TakenSignal) -> Result<(), NotOpened> {
        signal.decrypt(self.key())?;
        self.learn_signal(code, signal);
        Ok(())
    }

    /// Remembers the secrets in the value of a signal that a wait has taken.
    pub(crate) fn learn_signal(&self, code: &GraphTables, signal: &TakenSignal) {
        if signal.encrypted.is_none() {
            return;
        }
        let secrets = &code.settings.secrets;
        match SignedAnswer::read(&signal.value) {
            Some(signed) if answered(signal.own_name()).is_some() => {
                let mask = signed.node().and_then(|node| secrets.answers.get(&node));
                self.learn(mask, &signed.answer);
            }
            _ => self.learn(secrets.signals.get(signal.own_name()), &signal.value),
        }
    }

    fn decrypt_edit(&self, code: &GraphTables, seq: u64, edit: &mut Edit) -> Result<(), NotOpened> {
        for (key, value) in &mut edit.set {
            self.decrypt(code.settings.secrets.keys.get(key), SecretLocation::edit(seq, key), value)?;
        }
        for (key, value) in &mut edit.write {
            self.decrypt(code.mask_of_write(key, value), SecretLocation::edit(seq, key), value)?;
        }
        Ok(())
    }

    /// Encrypts the secrets in an edit, which becomes the record `seq`, and cuts them and all others out of its texts.
    pub fn encrypt_edit(&self, code: &GraphTables, seq: u64, edit: &mut Edit) {
        let Edit { set, write, by, why, .. } = edit;
        for (keys, is_write) in [(set, false), (write, true)] {
            for (key, value) in keys {
                let mask = if is_write { code.mask_of_write(key, value) } else { code.settings.secrets.keys.get(key) };
                self.learn(mask, value);
                *value = self.encrypt(mask, SecretLocation::edit(seq, key), std::mem::take(value));
            }
        }
        self.scrub(by);
        self.scrub(why);
    }

    fn decrypt_visit(&self, code: &GraphTables, visit: &mut Visit) -> Result<(), NotOpened> {
        let step = visit.step;
        self.decrypt(named_result_mask(code, &visit.node), SecretLocation::result(step), &mut visit.result)?;
        for (key, value) in &mut visit.changes {
            self.decrypt(code.mask_of_write(key, value), SecretLocation::change(step, key), value)?;
        }
        visit.list.as_mut().map_or(Ok(()), |list| self.decrypt_list(step, list))
    }
}

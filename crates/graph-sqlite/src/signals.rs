//! The signals in a file: receiving and taking them.

use graph_engine::record::Status;
use graph_engine::store::{Inbox, Received, ReceivedSignal, SealSignal, Signal, SignalPlace, StoreError};
use graph_model::name::RunId;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::form::END;
use crate::write::{WriteAnswer, WriteContext, WriteOutcome, find};

/// The condition that an open wait of the run `runs.number` accepts a signal that no wait has taken. The first part is quick,
/// and holds for no run without such signals.
pub(super) const IS_ACCEPTED: &str = "(EXISTS (SELECT 1 FROM signals WHERE run = runs.number AND taken = 0)
    AND EXISTS (SELECT 1 FROM waits, json_each(waits.signals) heard
        CROSS JOIN signals ON signals.run = waits.run AND signals.name = heard.value AND signals.taken = 0
        WHERE waits.run = runs.number AND (waits.due IS NULL OR signals.at < waits.due)))";

impl WriteContext<'_> {
    /// Receives a signal.
    pub(super) fn receive(&self, run: &RunId, signal: &Signal, seal: &SealSignal) -> WriteAnswer<WriteOutcome> {
        let transaction = self.transaction;
        let Some(found) = find(transaction, run)? else { return Ok(Err(StoreError::NotFound(run.clone()))) };
        let (number, digest) = (found.number, signal.digest());
        let row = |row: &Row<'_>| Ok((place(row)?, row.get::<_, Vec<u8>>(2)?, row.get::<_, i64>(3)? != 0));
        let known = transaction
            .prepare_cached("SELECT key, at, digest, taken FROM signals WHERE run = ?1 AND id = ?2")?
            .query_row(params![number, signal.id], row)
            .optional()?;
        if let Some((place, known, taken)) = known {
            return Ok(if known == digest.as_bytes() {
                Ok(WriteOutcome::Received(Received::Already { place, taken }))
            } else {
                Err(StoreError::OtherSignal { run: run.clone(), id: signal.id.clone() })
            });
        }
        let ended: Option<String> = transaction
            .prepare_cached("SELECT status FROM runs WHERE number = ?1")?
            .query_row([number], |row| row.get(0))
            .optional()?;
        let is_ended = |status: &Status| ended.as_deref() == Some(status.name());
        if let Some(status) = [Status::Completed, Status::CompletedWithErrors].into_iter().find(is_ended) {
            return Ok(Err(StoreError::Ended { run: run.clone(), status }));
        }
        let (count, bytes) = transaction
            .prepare_cached("SELECT count(*), coalesce(sum(size), 0) FROM signals WHERE run = ?1 AND taken = 0")?
            .query_row([number], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let last: i64 = transaction
            .prepare_cached("SELECT coalesce(max(key) & 4294967295, 0) FROM signals WHERE key BETWEEN ?1 AND ?2")?
            .query_row([number << 32, (number << 32) | END], |row| row.get(0))?;
        if Inbox::is_full(count, bytes, signal) || last >= END {
            return Ok(Err(StoreError::TooManySignals { run: run.clone() }));
        }
        let place = SignalPlace { order: last.unsigned_abs() + 1, at: self.store_time()? };
        let receipt = match place.sealed(seal) {
            Ok(receipt) => receipt,
            Err(error) => return Ok(Err(error)),
        };
        transaction
            .prepare_cached(
                "INSERT INTO signals (key, run, at, id, name, payload, receipt, digest, size)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                (number << 32) | (last + 1),
                number,
                place.at,
                signal.id,
                signal.name,
                signal.payload,
                receipt,
                digest.as_bytes(),
                signal.payload.len(),
            ])?;
        // The clock may have advanced since. A recorded time that is later than the signal's is right.
        self.mark_time()?;
        self.update_wake(number)?;
        Ok(Ok(WriteOutcome::Received(Received::Accepted(place))))
    }

    /// Reads the signals that no wait has taken. Records the time, so that each signal that any process receives later has a
    /// time that is not before it.
    pub(super) fn inbox(&self, run: &RunId) -> WriteAnswer<WriteOutcome> {
        let Some(found) = find(self.transaction, run)? else { return Ok(Err(StoreError::NotFound(run.clone()))) };
        let row = |row: &Row<'_>| {
            let signal = Signal::new(row.get::<_, String>(2)?, row.get::<_, String>(3)?, row.get::<_, String>(4)?);
            Ok(ReceivedSignal::new(place(row)?, signal, row.get::<_, String>(5)?))
        };
        let signals = self
            .transaction
            .prepare_cached(
                // SQLite prefers the other index, which has the signals that were taken too.
                "SELECT key, at, name, id, payload, receipt FROM signals INDEXED BY signals_untaken
                 WHERE run = ?1 AND taken = 0 ORDER BY key",
            )?
            .query_map([found.number], row)?
            .collect::<Result<_, _>>()?;
        Ok(Ok(WriteOutcome::Inbox(Inbox::new(self.mark_time()?, signals))))
    }
}

/// Returns the place of a signal whose key and time are the first columns of a row.
fn place(row: &Row<'_>) -> Result<SignalPlace, rusqlite::Error> {
    Ok(SignalPlace { order: (row.get::<_, i64>(0)? & END).unsigned_abs(), at: row.get(1)? })
}

/// Returns the key of a signal, if there can be one of this order.
fn key(number: i64, order: u64) -> Option<i64> {
    let order = i64::try_from(order).ok().filter(|order| (1..=END).contains(order))?;
    Some((number << 32) | order)
}

/// Returns the first of some signals that a run does not have, or that was taken.
pub(super) fn gone(transaction: &Connection, number: i64, orders: &[u64]) -> Result<Option<u64>, rusqlite::Error> {
    let mut untaken = transaction.prepare_cached("SELECT 1 FROM signals WHERE key = ?1 AND taken = 0")?;
    for (at, order) in orders.iter().enumerate() {
        let is_there = key(number, *order).map_or(Ok(false), |key| untaken.exists([key]))?;
        if !is_there || orders[..at].contains(order) {
            return Ok(Some(*order));
        }
    }
    Ok(None)
}

/// Marks signals as taken, and forgets their payloads and receipts, which the records have.
pub(super) fn take(transaction: &Connection, number: i64, orders: &[u64]) -> Result<(), rusqlite::Error> {
    let mut take =
        transaction.prepare_cached("UPDATE signals SET taken = 1, payload = '', receipt = '' WHERE key = ?1")?;
    for key in orders.iter().filter_map(|order| key(number, *order)) {
        take.execute([key])?;
    }
    Ok(())
}

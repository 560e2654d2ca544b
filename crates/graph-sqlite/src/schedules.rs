//! The marks of schedules.

use rusqlite::{Connection, OptionalExtension, params};

use crate::write::{WriteAnswer, WriteContext};
use graph_engine::store::{ScheduleChange, ScheduleMark, StoreError};

/// Returns the mark of a schedule.
pub(super) fn find(connection: &Connection, schedule: &str) -> Result<Option<ScheduleMark>, rusqlite::Error> {
    connection
        .prepare_cached("SELECT revision, mark FROM schedules WHERE id = ?1")?
        .query_row([schedule], |row| Ok(ScheduleMark { revision: row.get(0)?, text: row.get(1)? }))
        .optional()
}

impl WriteContext<'_> {
    /// Checks that the mark of a schedule has the expected revision.
    pub(super) fn expect_mark(&self, change: &ScheduleChange) -> WriteAnswer<()> {
        let found = find(self.transaction, &change.schedule)?.map_or(0, |mark| mark.revision);
        Ok(match found == change.expected {
            true => Ok(()),
            false => {
                Err(StoreError::ScheduleChanged { schedule: change.schedule.clone(), expected: change.expected, found })
            }
        })
    }

    /// Writes a mark whose revision was checked. The time of the store is recorded with it, so that no process sees a time
    /// before the ticks that were handled.
    pub(super) fn change_mark(&self, change: &ScheduleChange) -> Result<(), rusqlite::Error> {
        self.transaction
            .prepare_cached(
                "INSERT INTO schedules (id, revision, mark) VALUES (?1, ?2, ?3)
                 ON CONFLICT (id) DO UPDATE SET revision = ?2, mark = ?3",
            )?
            .execute(params![change.schedule, change.expected + 1, change.text])?;
        self.mark_time().map(drop)
    }
}

//! The times at which a schedule has ticks: a cron expression in a time zone.
//!
//! The expression is matched against the local times of the zone, by these rules where the clocks of the zone are changed:
//!
//! - If the field of the hours begins with `*`, the ticks follow real time: each moment whose local time matches is a tick. A
//!   local time that exists twice is two ticks.
//! - Otherwise, a local time that does not exist is skipped, and one that exists twice is one tick, the first time.

mod cron;

use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

use cron::Cron;

/// A cron expression in a time zone.
///
/// ```
/// use graph_model::timetable::Timetable;
///
/// let nightly = Timetable::new("30 2 * * *", "Europe/Berlin")?;
/// // The local time 02:30 of 29 March 2026 does not exist.
/// let before = 1_774_747_800_000; // 2026-03-29T01:30:00Z
/// assert_eq!(nightly.after(before), Some(1_774_830_600_000)); // 2026-03-30T00:30:00Z
/// # Ok::<(), graph_model::timetable::TimetableError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Timetable {
    cron: String,
    zone: TimeZone,
    zone_name: String,
    matches: Cron,
    follows_real_time: bool,
}

/// Why there is no timetable of a cron expression and a time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimetableError {
    /// The expression does not have five fields.
    #[error(
        "a cron expression has five fields (minute, hour, day of the month, month, day of the week), and `{cron}` has {found}"
    )]
    Fields {
        /// The expression.
        cron: String,
        /// How many fields it has.
        found: usize,
    },
    /// A field of the expression cannot be read.
    #[error("`{cron}` is not a cron expression: {reason}")]
    Cron {
        /// The expression.
        cron: String,
        /// The mistake in it.
        reason: String,
    },
    /// No time matches the expression.
    #[error("no time ever matches the cron expression `{cron}`")]
    Never {
        /// The expression.
        cron: String,
    },
    /// There is no such time zone.
    #[error("there is no time zone `{zone}`")]
    Zone {
        /// The name.
        zone: String,
        /// The name of a zone that may be meant, as far as one differs only in case.
        meant: Option<String>,
    },
}

impl TimetableError {
    /// Whether the mistake is in the time zone, and not in the cron expression.
    pub const fn is_about_zone(&self) -> bool {
        matches!(self, Self::Zone { .. })
    }
}

/// A time, in milliseconds since the Unix epoch, after which no zone changes its rules. An expression that matches no later
/// time matches none that is to come: either no day has its date, or the clocks skip its hour each time.
const RULES_STAND: i64 = 4_102_444_800_000; // 2100-01-01T00:00:00Z

impl Timetable {
    /// The times that match a cron expression of five fields, in the time zone with this name of the IANA database.
    ///
    /// # Errors
    ///
    /// If the expression cannot be read or no time matches it, or there is no such zone.
    pub fn new(cron: &str, zone: &str) -> Result<Self, TimetableError> {
        let fields: Vec<&str> = cron.split_whitespace().collect();
        let cron = fields.join(" ");
        let Ok(fields) = <[&str; 5]>::try_from(fields.as_slice()) else {
            return Err(TimetableError::Fields { cron, found: fields.len() });
        };
        let matches = Cron::parse(fields).map_err(|reason| TimetableError::Cron { cron: cron.clone(), reason })?;
        let known = TimeZoneDatabase::bundled();
        let unknown = |meant: Option<String>| TimetableError::Zone { zone: zone.to_owned(), meant };
        // The database ignores case, and reads texts that are rules of a zone rather than a name.
        let name = known.available().map(|name| name.to_string()).find(|name| name.eq_ignore_ascii_case(zone));
        let name = name.ok_or_else(|| unknown(None))?;
        if name != zone {
            return Err(unknown(Some(name)));
        }
        let zone = known.get(zone).map_err(|_| unknown(None))?;
        let follows_real_time = fields[1].starts_with('*');
        let timetable = Self { cron, zone, zone_name: name, matches, follows_real_time };
        match timetable.after(RULES_STAND) {
            Some(_) => Ok(timetable),
            None => Err(TimetableError::Never { cron: timetable.cron }),
        }
    }

    /// Returns the cron expression, with one space between its fields.
    pub fn cron(&self) -> &str {
        &self.cron
    }

    /// Returns the name of the time zone.
    pub fn zone(&self) -> &str {
        &self.zone_name
    }

    /// Returns the first tick after a time, both in milliseconds since the Unix epoch; `None` if no later time that
    /// calendars reach matches.
    pub fn after(&self, time: i64) -> Option<i64> {
        let time = Timestamp::from_millisecond(time).ok()?;
        let tick = if self.follows_real_time { self.after_in_real_time(time) } else { self.after_by_local_time(time) };
        tick.map(Timestamp::as_millisecond)
    }

    /// Returns the local time of a tick with its offset, as `2026-11-23T02:00:00+01:00`.
    pub fn local(&self, tick: i64) -> String {
        let Ok(at) = Timestamp::from_millisecond(tick) else { return tick.to_string() };
        at.to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    fn after_by_local_time(&self, time: Timestamp) -> Option<Timestamp> {
        let mut local = self.zone.to_datetime(time);
        loop {
            local = self.matches.next_after(local)?;
            let at = self.zone.to_ambiguous_timestamp(local);
            if matches!(at.offset(), AmbiguousOffset::Gap { .. }) {
                continue;
            }
            // The first of two.
            match at.earlier().ok()? {
                tick if tick > time => return Some(tick),
                _ => {}
            }
        }
    }

    fn after_in_real_time(&self, time: Timestamp) -> Option<Timestamp> {
        let (mut since, mut local) = (time, self.zone.to_datetime(time));
        loop {
            let offset = self.zone.to_offset(since);
            let change = self.zone.following(since).next().map(|change| change.timestamp());
            let tick = offset.to_timestamp(self.matches.next_after(local)?).ok()?;
            match change {
                Some(change) if tick >= change => {
                    since = change;
                    // The time of the change itself may match.
                    local = self.zone.to_datetime(change).checked_sub(1.second()).ok()?;
                }
                _ => return Some(tick),
            }
        }
    }
}

#[cfg(test)]
mod tests;

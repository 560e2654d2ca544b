//! The times at which a schedule has ticks: a cron expression in a time zone.
//!
//! The expression is matched against the local times of the zone, by these rules where the clocks of the zone are changed:
//!
//! - If the field of the hours begins with `*`, the ticks follow real time: each moment whose local time matches is a tick. A
//!   local time that exists twice is two ticks.
//! - Otherwise, a local time that does not exist is skipped, and one that exists twice is one tick, the first time.

use cronexpr::{Crontab, MakeTimestamp};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

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
    /// The expression, as if it were of UTC.
    crontab: Crontab,
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

/// How many times a search is continued after the four years that one search takes. 29 February is missing for eight years at
/// a time.
const SEARCHES: i16 = 3;

impl Timetable {
    /// The times that match a cron expression of five fields, in the time zone with this name of the IANA database.
    ///
    /// # Errors
    ///
    /// If the expression cannot be read or no time matches it, or there is no such zone.
    pub fn new(cron: &str, zone: &str) -> Result<Self, TimetableError> {
        let fields: Vec<&str> = cron.split_whitespace().collect();
        let &[_, hours, ..] = fields.as_slice() else {
            return Err(TimetableError::Fields { cron: cron.to_owned(), found: fields.len() });
        };
        if fields.len() != 5 {
            return Err(TimetableError::Fields { cron: cron.to_owned(), found: fields.len() });
        }
        let unread = |error: cronexpr::Error| {
            // Its text shows the expression with the place, on several lines.
            let text = error.to_string();
            let reason =
                text.lines().rev().map(|line| line.trim().trim_start_matches('^').trim()).find(|line| !line.is_empty());
            TimetableError::Cron { cron: cron.to_owned(), reason: reason.unwrap_or("it is malformed").to_owned() }
        };
        let crontab = cronexpr::parse_crontab(&format!("{} UTC", fields.join(" "))).map_err(unread)?;
        let known = TimeZoneDatabase::bundled();
        let unknown = |meant: Option<String>| TimetableError::Zone { zone: zone.to_owned(), meant };
        // The database ignores case, and reads texts that are rules of a zone rather than a name.
        let name = known.available().map(|name| name.to_string()).find(|name| name.eq_ignore_ascii_case(zone));
        let name = name.ok_or_else(|| unknown(None))?;
        if name != zone {
            return Err(unknown(Some(name)));
        }
        let zone = known.get(zone).map_err(|_| unknown(None))?;
        let timetable =
            Self { cron: fields.join(" "), zone, zone_name: name, crontab, follows_real_time: hours.starts_with('*') };
        match timetable.after(0) {
            Some(_) => Ok(timetable),
            None => Err(TimetableError::Never { cron: cron.to_owned() }),
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
            local = self.matching_after(local)?;
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
            let tick = offset.to_timestamp(self.matching_after(local)?).ok()?;
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

    /// Returns the first local time after another that matches the expression, whether it exists in the zone or not.
    fn matching_after(&self, local: DateTime) -> Option<DateTime> {
        let from = TimeZone::UTC.to_timestamp(local).ok()?;
        (0..=SEARCHES).find_map(|search| {
            let from = TimeZone::UTC.to_datetime(from).checked_add((search * 4).years()).ok()?;
            let from = TimeZone::UTC.to_timestamp(from).ok()?;
            self.crontab.find_next(MakeTimestamp(from)).ok().map(|found| found.datetime())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn ticks(cron: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let timetable = Timetable::new(cron, zone).unwrap();
        let mut time = at(from);
        let next = || {
            time = timetable.after(time).unwrap();
            Timestamp::from_millisecond(time).unwrap().to_string()
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn a_fixed_hour_that_does_not_exist_is_skipped() {
        let berlin = ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3);
        assert_eq!(berlin, ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]);
        let new_york = ticks("30 2 * * *", "America/New_York", "2026-03-07T00:00:00Z", 3);
        assert_eq!(new_york, ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]);
        let bounds = ticks("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 3);
        assert_eq!(bounds, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T01:00:00Z"]);
    }

    #[test]
    fn a_fixed_hour_that_exists_twice_is_one_tick() {
        let berlin = ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(berlin, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let new_york = ticks("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2);
        assert_eq!(new_york, ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
        // From within the second of the two hours.
        assert_eq!(ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1), ["2026-10-26T01:30:00Z"]);
        let parts = ticks("*/20 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 4);
        assert_eq!(
            parts,
            ["2026-10-25T00:00:00Z", "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z", "2026-10-26T01:00:00Z"]
        );
    }

    #[test]
    fn hours_with_an_asterisk_follow_real_time() {
        let spring = ticks("0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", 4);
        assert_eq!(
            spring,
            ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T03:00:00Z"]
        );
        let autumn = ticks("30 * * * *", "America/New_York", "2026-11-01T04:00:00Z", 4);
        assert_eq!(
            autumn,
            ["2026-11-01T04:30:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z"]
        );
        // Local 00, 02, 02 again, 04.
        let even = ticks("0 */2 * * *", "Europe/Berlin", "2026-10-24T21:00:00Z", 4);
        assert_eq!(
            even,
            ["2026-10-24T22:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"]
        );
    }

    /// Compares with the definition: each minute of some months is looked at by itself.
    #[test]
    fn ticks_are_those_of_an_independent_judge() {
        let zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Africa/Casablanca"];
        // The minutes, the hours and whether they begin with an asterisk, and the day of the week.
        type Rule = (&'static str, fn(i8) -> bool, fn(i8) -> bool, bool);
        let rules: [Rule; 6] = [
            ("*/30 * * * *", |minute| minute % 30 == 0, |_| true, true),
            ("15 */3 * * *", |minute| minute == 15, |hour| hour % 3 == 0, true),
            ("30 2 * * *", |minute| minute == 30, |hour| hour == 2, false),
            ("0,45 1-3 * * *", |minute| minute == 0 || minute == 45, |hour| (1..=3).contains(&hour), false),
            ("*/15 0-23 * * *", |minute| minute % 15 == 0, |_| true, false),
            ("10 1,2 * * *", |minute| minute == 10, |hour| hour == 1 || hour == 2, false),
        ];
        for zone in zones {
            let known = TimeZoneDatabase::bundled().get(zone).unwrap();
            for (cron, minutes, hours, follows) in rules {
                let timetable = Timetable::new(cron, zone).unwrap();
                for (begin, end) in [("2026-02-10", "2026-04-15"), ("2026-10-01", "2026-11-10")] {
                    let (begin, end) = (at(&format!("{begin}T00:00:00Z")), at(&format!("{end}T00:00:00Z")));
                    let mut seen = std::collections::BTreeSet::new();
                    let is_tick = |time: &i64| {
                        let local = known.to_datetime(Timestamp::from_millisecond(*time).unwrap());
                        let is_new = seen.insert(local);
                        minutes(local.minute()) && hours(local.hour()) && (follows || is_new)
                    };
                    let expected: Vec<i64> = (begin..end).step_by(60_000).filter(is_tick).collect();
                    let found: Vec<i64> =
                        std::iter::successors(timetable.after(begin - 1), |time| timetable.after(*time))
                            .take_while(|time| *time < end)
                            .collect();
                    assert_eq!(found, expected, "{cron} {zone}");
                }
            }
        }
    }

    #[test]
    fn days_that_are_rare_are_found() {
        assert_eq!(ticks("0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", 1), ["2104-02-29T00:00:00Z"]);
        assert_eq!(ticks("0 0 L * *", "UTC", "2027-02-01T00:00:00Z", 1), ["2027-02-28T00:00:00Z"]);
        // As other cron programs: either of two days.
        assert_eq!(
            ticks("0 0 13 * FRI", "UTC", "2026-11-12T00:00:00Z", 2),
            ["2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |cron: &str, zone: &str| Timetable::new(cron, zone).unwrap_err().to_string();
        for (cron, zone, expected) in [
            ("0 2 * *", "UTC", "has 4"),
            ("0 0 2 * * *", "UTC", "has 6"),
            ("", "UTC", "has 0"),
            ("60 2 * * *", "UTC", "`60 2 * * *` is not a cron expression: "),
            ("0 2 * FOO *", "UTC", "`0 2 * FOO *` is not a cron expression: "),
            ("0 2 30 2 *", "UTC", "no time ever matches the cron expression `0 2 30 2 *`"),
            ("0 2 * * *", "Europe/Berlln", "there is no time zone `Europe/Berlln`"),
            ("0 2 * * *", "europe/berlin", "there is no time zone `europe/berlin`"),
            ("0 2 * * *", "CET-1CEST", "there is no time zone `CET-1CEST`"),
        ] {
            let found = error(cron, zone);
            assert!(found.contains(expected) && !found.contains('\n'), "{found}");
        }
        assert_eq!(
            Timetable::new("0 2 * * *", "europe/berlin").unwrap_err(),
            TimetableError::Zone { zone: "europe/berlin".to_owned(), meant: Some("Europe/Berlin".to_owned()) }
        );
    }
}

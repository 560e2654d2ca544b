//! UTC timestamps as RFC 3339 text.

use std::time::{Duration, SystemTime};

/// Writes `at` as RFC 3339 in UTC with whole seconds: `2026-11-21T20:00:00Z`.
///
/// Years past 9999 do not exist in RFC 3339; such a time is written as the last second of 9999.
pub fn seconds(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(bounded(at)).to_string()
}

/// Writes `at` as RFC 3339 in UTC with milliseconds: `2026-11-21T20:00:00.125Z`.
pub fn milliseconds(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(bounded(at)).to_string()
}

/// Returns the milliseconds since the Unix epoch; a time before the epoch counts as the epoch.
pub fn unix_milliseconds(at: SystemTime) -> i64 {
    let elapsed = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the time that many milliseconds after the Unix epoch; a negative count is the epoch.
pub fn from_unix_milliseconds(milliseconds: i64) -> SystemTime {
    bounded(SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0)))
}

/// Reads a time that [`seconds`] or [`milliseconds`] wrote.
pub fn parse(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}

/// Whether `text` is a whole second of UTC as signature lines write it: `2026-11-21T20:00:00Z` (R24).
pub fn is_seconds(text: &str) -> bool {
    let shape = text.len() == 20
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            19 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    shape && humantime::parse_rfc3339(text).is_ok()
}

fn bounded(at: SystemTime) -> SystemTime {
    const LAST_SECOND_OF_9999: Duration = Duration::from_secs(253_402_300_799);
    at.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST_SECOND_OF_9999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_a_z() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_452_800_125);
        assert_eq!(seconds(at), "2026-03-02T12:00:00Z");
        assert_eq!(milliseconds(at), "2026-03-02T12:00:00.125Z");
        assert_eq!(unix_milliseconds(at), 1_772_452_800_125);
        assert_eq!(from_unix_milliseconds(1_772_452_800_125), at);
        assert_eq!(parse("2026-03-02T12:00:00.125Z"), Some(at));
        assert_eq!(parse("2026-03-02 12:00"), None);
    }

    #[test]
    fn times_that_rfc_3339_cannot_write_are_bounded() {
        assert_eq!(seconds(from_unix_milliseconds(i64::MAX)), "9999-12-31T23:59:59Z");
        assert_eq!(seconds(from_unix_milliseconds(-1)), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn only_whole_seconds_of_real_days_are_signature_timestamps() {
        assert!(is_seconds("2026-04-07T03:32:52Z"));
        for wrong in
            ["2026-04-07T03:32:52.1Z", "2026-04-07 03:32:52Z", "2026-13-07T03:32:52Z", "2026-04-07T03:32:52+00:00", ""]
        {
            assert!(!is_seconds(wrong), "{wrong}");
        }
    }
}

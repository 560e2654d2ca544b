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

/// Reads a date and a time in RFC 3339, with an offset from UTC: `2026-11-21T20:00:00+01:00`, or `Z` for UTC.
pub fn with_offset(text: &str) -> Option<SystemTime> {
    let zone = text.get(19..)?.find(['Z', 'z', '+', '-']).map(|at| at + 19)?;
    let (local, zone) = text.split_at(zone);
    let is_separated = matches!(local.as_bytes().get(10), Some(b'T' | b't' | b' '));
    let local = humantime::parse_rfc3339(&format!("{}T{}Z", local.get(..10)?, local.get(11..)?)).ok();
    let local = local.filter(|_| is_separated)?;
    let (sign, offset) = zone.split_at_checked(1)?;
    if matches!(sign, "Z" | "z") {
        return offset.is_empty().then_some(local);
    }
    let digits = |from: usize| {
        let two = offset.get(from..from + 2).filter(|two| two.bytes().all(|byte| byte.is_ascii_digit()));
        two?.parse::<u64>().ok()
    };
    let (hours, minutes) = (digits(0)?, digits(3)?);
    if offset.len() != 5 || offset.as_bytes()[2] != b':' || hours > 23 || minutes > 59 {
        return None;
    }
    let offset = Duration::from_secs(hours * 3600 + minutes * 60);
    if sign == "+" { local.checked_sub(offset) } else { local.checked_add(offset) }
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
    fn a_time_with_an_offset_is_that_time_in_utc() {
        let at = parse("2026-03-02T12:00:00.125Z");
        for text in [
            "2026-03-02T12:00:00.125Z",
            "2026-03-02t12:00:00.125z",
            "2026-03-02 13:30:00.125+01:30",
            "2026-03-01T23:00:00.125-13:00",
        ] {
            assert_eq!(with_offset(text), at, "{text}");
        }
        for wrong in [
            "",
            "2026-03-02",
            "2026-03-02T12:00:00",
            "2026-03-02T12:00:00.125",
            "2026-03-02T12:00Z",
            "2026-03-02T12:00:00Zulu",
            "2026-03-02T12:00:00+1",
            "2026-03-02T12:00:00+0100",
            "2026-03-02T12:00:00+24:00",
            "2026-03-02T12:00:00+01:60",
            "2026-03-02T12:00:00+-1:00",
            "2026-13-02T12:00:00Z",
            "2026-03-02x12:00:00Z",
            "2026-03-02T12:00:00é+01:00",
            "éééééééééééééééééééé",
        ] {
            assert_eq!(with_offset(wrong), None, "{wrong}");
        }
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

//! Lengths of time as people write them: `250ms`, `1.5s`, `1h30m`.

use std::fmt::Write as _;
use std::time::Duration;

/// The units, the longest first, with their nanoseconds.
const UNITS: [(&str, u128); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// Why a text or number is no length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// There is nothing.
    #[error("a length of time cannot be empty; write `30s`")]
    Empty,
    /// It begins with a minus sign.
    #[error("a length of time cannot be negative")]
    Negative,
    /// A number has no unit after it.
    #[error("the number needs a unit: `ms`, `s`, `m`, `h` or `d`")]
    NoUnit,
    /// A number is missing, or no unit follows it.
    #[error(
        "a length of time is numbers with the units `ms`, `s`, `m`, `h` and `d`, as `1h30m` or `1.5s`, without spaces"
    )]
    Malformed,
    /// The same unit twice, or a longer one after a shorter.
    #[error("the units of a length of time go from long to short, each once: `1h30m`")]
    Order,
    /// The number is infinite, or NaN.
    #[error("a length of time is a finite number of seconds")]
    NotFinite,
    /// It has more milliseconds than 64 bits can count.
    #[error("the length of time is too long")]
    TooLong,
}

/// Reads a length of time: numbers with units, from long to short, each unit once. A number may have a fraction.
///
/// A number alone is refused, because only its place can say what it counts; a YAML number goes to [`seconds`]. Fractions
/// of a nanosecond are dropped.
///
/// # Errors
///
/// If the text is anything else, or more than `u64::MAX` milliseconds.
///
/// ```
/// use graph_model::duration::parse;
/// use std::time::Duration;
///
/// assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
/// assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
/// ```
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let (mut rest, mut units, mut total) = (text, UNITS.as_slice(), 0_u128);
    while !rest.is_empty() {
        let (number, after) = split(rest, |character| character.is_ascii_digit() || character == '.');
        let (unit, after) = split(after, |character| character.is_ascii_alphabetic());
        if number.is_empty() {
            return Err(DurationError::Malformed);
        }
        if unit.is_empty() && after.is_empty() {
            return Err(DurationError::NoUnit);
        }
        let Some(&(_, nanoseconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::Malformed);
        };
        let Some(at) = units.iter().position(|(name, _)| *name == unit) else { return Err(DurationError::Order) };
        let part = scaled(number, nanoseconds)?;
        total = total.checked_add(part).ok_or(DurationError::TooLong)?;
        (rest, units) = (after, &units[at + 1..]);
    }
    of_nanoseconds(total)
}

/// Returns a regular expression that matches every text that [`parse`] reads, and otherwise only lengths of time that are
/// too long.
///
/// It has no look-around, and so means the same to every reader.
pub fn pattern() -> String {
    const NUMBER: &str = r"[0-9]+(\.[0-9]+)?";
    // Any unit may come first, and shorter ones may follow it.
    let beginning_with = |at: usize| {
        let shorter: String = UNITS[at + 1..].iter().map(|(unit, _)| format!("({NUMBER}{unit})?")).collect();
        format!("{NUMBER}{}{shorter}", UNITS[at].0)
    };
    let ways: Vec<String> = (0..UNITS.len()).map(beginning_with).collect();
    format!("^({})$", ways.join("|"))
}

/// Makes a length of time from a number of seconds.
///
/// # Errors
///
/// If the number is negative, not finite, or more than `u64::MAX` milliseconds.
pub fn seconds(number: f64) -> Result<Duration, DurationError> {
    if !number.is_finite() {
        return Err(DurationError::NotFinite);
    }
    if number < 0.0 {
        return Err(DurationError::Negative);
    }
    let duration = Duration::try_from_secs_f64(number).map_err(|_| DurationError::TooLong)?;
    of_nanoseconds(duration.as_nanos())
}

/// Writes a length of time so that [`parse`] reads the same one: `1h30m`, `1.5s`, `250ms`, `0s`.
pub fn shown(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    if rest == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    // Below a second, milliseconds read better than a fraction of a second; above, the other way round.
    let units = if rest < 1_000_000_000 { &UNITS[4..] } else { &UNITS[..4] };
    for (at, &(name, nanoseconds)) in units.iter().enumerate() {
        let (whole, fraction) = (rest / nanoseconds, rest % nanoseconds);
        let is_last = at + 1 == units.len();
        if whole == 0 && !(is_last && fraction > 0) {
            continue;
        }
        write!(text, "{whole}").expect("writing into a text cannot fail");
        if is_last && fraction > 0 {
            let digits = nanoseconds.ilog10() as usize;
            let fraction = format!("{fraction:0digits$}");
            write!(text, ".{}", fraction.trim_end_matches('0')).expect("writing into a text cannot fail");
        }
        text.push_str(name);
        rest = fraction;
    }
    text
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|character| !belongs(character)).unwrap_or(text.len()))
}

/// Multiplies a decimal number with a unit, exactly.
fn scaled(number: &str, unit: u128) -> Result<u128, DurationError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(DurationError::Malformed);
    }
    // Digits can be wrong only if there are too many of them.
    let whole: u64 = whole.parse().map_err(|_| DurationError::TooLong)?;
    // No unit has more than 14 digits of nanoseconds, so further digits are finer than one.
    let fraction = &fraction[..fraction.len().min(14)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).expect("at most 14"));
    let fraction: u128 = fraction.parse().expect("14 digits are a number");
    Ok(u128::from(whole) * unit + fraction * unit / scale)
}

fn of_nanoseconds(nanoseconds: u128) -> Result<Duration, DurationError> {
    // The program and the engine count milliseconds in 64 bits.
    if nanoseconds / 1_000_000 > u128::from(u64::MAX) {
        return Err(DurationError::TooLong);
    }
    let seconds = u64::try_from(nanoseconds / 1_000_000_000).map_err(|_| DurationError::TooLong)?;
    let rest = u32::try_from(nanoseconds % 1_000_000_000).expect("less than a second");
    Ok(Duration::new(seconds, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("250ms", 250),
            ("1s", 1000),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1d1ms", 86_400_001),
            ("0.5h", 1_800_000),
            ("0s", 0),
            ("007s", 7000),
            ("1.50000000000000000000000009s", 1500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse("1.000000001s"), Ok(Duration::new(1, 1)));
    }

    #[test]
    fn invalid_durations_are_refused_with_the_reason() {
        use DurationError::{Empty, Malformed, Negative, NoUnit, Order, TooLong};
        for (text, error) in [
            ("", Empty),
            ("-1s", Negative),
            ("5", NoUnit),
            ("1h30", NoUnit),
            ("1.5.5s", Malformed),
            (".5s", Malformed),
            ("5.s", Malformed),
            ("s", Malformed),
            ("NaNs", Malformed),
            ("inf", Malformed),
            ("1e3s", Malformed),
            ("1h 30m", Malformed),
            (" 1s", Malformed),
            ("1 s", Malformed),
            ("1M", Malformed),
            ("1y", Malformed),
            ("+1s", Malformed),
            ("٣s", Malformed),
            ("30m1h", Order),
            ("1s1s", Order),
            ("1ms1s", Order),
            ("18446744073709551616s", TooLong),
            ("18446744073709551615s", TooLong),
            ("18446744073709551615d18446744073709551615h", TooLong),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn negative_non_finite_and_too_long_seconds_are_refused() {
        assert_eq!(seconds(1.5), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds(-0.0), Ok(Duration::ZERO));
        assert_eq!(seconds(-1.0), Err(DurationError::Negative));
        assert_eq!(seconds(f64::NAN), Err(DurationError::NotFinite));
        assert_eq!(seconds(f64::INFINITY), Err(DurationError::NotFinite));
        assert_eq!(seconds(1e300), Err(DurationError::TooLong));
        assert_eq!(seconds(1.9e16), Err(DurationError::TooLong));
    }

    #[test]
    fn lengths_of_time_are_shown_in_the_units_that_read_best() {
        for (milliseconds, text) in [
            (0, "0s"),
            (250, "250ms"),
            (1500, "1.5s"),
            (90_000, "1m30s"),
            (5_400_000, "1h30m"),
            (86_400_001, "1d0.001s"),
        ] {
            assert_eq!(shown(Duration::from_millis(milliseconds)), text);
        }
    }

    proptest! {
        #[test]
        fn a_shown_duration_parses_to_the_same_value(seconds in 0..=u64::MAX / 1000, nanoseconds in 0..1_000_000_000_u32) {
            let duration = Duration::new(seconds, nanoseconds);
            prop_assume!(of_nanoseconds(duration.as_nanos()).is_ok());
            prop_assert_eq!(parse(&shown(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9.hmsd -]{0,40}|.*") {
            if let Ok(duration) = parse(&text) {
                prop_assert_eq!(parse(&shown(duration)), Ok(duration));
            }
        }
    }
}

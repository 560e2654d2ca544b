//! Cron expressions: which minutes of which days they name, whatever the time zone.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time, Weekday};

/// A cron expression of five fields.
#[derive(Debug, Clone)]
pub(super) struct Cron {
    minutes: NumberSet,
    hours: NumberSet,
    days: MonthDays,
    months: NumberSet,
    weekdays: WeekDays,
}

/// A set of numbers below 64: the bit of each is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct NumberSet(u64);

/// The days of the month that a field names.
#[derive(Debug, Clone, Default)]
struct MonthDays {
    numbers: NumberSet,
    /// `L`
    last: bool,
    /// `15W`: the weekday nearest to the 15th, in the same month.
    nearest: NumberSet,
    begins_with_asterisk: bool,
}

/// The days of the week that a field names; 0 is Sunday.
#[derive(Debug, Clone, Default)]
struct WeekDays {
    numbers: NumberSet,
    /// `FRIL`: the last Friday of the month.
    last: NumberSet,
    /// `FRI#2`, by the ordinal number: the second Friday of the month.
    nth: [NumberSet; 6],
    begins_with_asterisk: bool,
}

/// The values that a field may hold.
struct CronField {
    what: &'static str,
    least: u8,
    most: u8,
    names: &'static [&'static str],
    /// The number of the first name.
    first_name: u8,
}

const MINUTE: CronField = CronField { what: "minute", least: 0, most: 59, names: &[], first_name: 0 };
const HOUR: CronField = CronField { what: "hour", least: 0, most: 23, names: &[], first_name: 0 };
const DAY: CronField = CronField { what: "day of the month", least: 1, most: 31, names: &[], first_name: 0 };
const MONTH: CronField = CronField {
    what: "month",
    least: 1,
    most: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    first_name: 1,
};
/// 7 is Sunday too, so that a range may end with it.
const WEEKDAY: CronField = CronField {
    what: "day of the week",
    least: 0,
    most: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    first_name: 0,
};

/// The number of months after which the calendar repeats itself, with its days of the week.
const CYCLE: u32 = 400 * 12;

impl Cron {
    /// Reads the five fields.
    ///
    /// # Errors
    ///
    /// If a field cannot be read: why.
    pub(super) fn parse(fields: [&str; 5]) -> Result<Self, String> {
        // Names and letters may be lower case.
        let [minutes, hours, days, months, weekdays] = fields.map(str::to_ascii_uppercase);
        Ok(Self {
            minutes: MINUTE.numbers(&minutes)?,
            hours: HOUR.numbers(&hours)?,
            days: MonthDays::parse(&days)?,
            months: MONTH.numbers(&months)?,
            weekdays: WeekDays::parse(&weekdays)?,
        })
    }

    /// Returns the first minute after a time that matches; `None` if none in all the years of the calendar does.
    pub(super) fn next_after(&self, time: DateTime) -> Option<DateTime> {
        let minute = time.with().second(0).subsec_nanosecond(0).build().ok()?;
        let from = minute.checked_add(1.minute()).ok()?;
        if self.has_day(from.date())
            && let Some(time) = self.first_time_from(from.hour(), from.minute())
        {
            return Some(from.date().to_datetime(time));
        }
        let day = self.next_day(from.date().tomorrow().ok()?)?;
        Some(day.to_datetime(self.first_time_from(0, 0)?))
    }

    /// Returns the first day that matches, from `day` on.
    fn next_day(&self, mut day: Date) -> Option<Date> {
        for _ in 0..=CYCLE {
            if self.months.has(day.month()) {
                let rest = day.day()..=day.days_in_month();
                let mut days = rest.filter_map(|number| day.with().day(number).build().ok());
                if let Some(found) = days.find(|day| self.has_day(*day)) {
                    return Some(found);
                }
            }
            day = day.last_of_month().tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, day: Date) -> bool {
        if !self.months.has(day.month()) {
            return false;
        }
        let (of_month, of_week) = (self.days.has(day), self.weekdays.has(day));
        if self.days.begins_with_asterisk || self.weekdays.begins_with_asterisk {
            of_month && of_week
        } else {
            of_month || of_week
        }
    }

    /// Returns the first time of a day that matches, from this one on.
    fn first_time_from(&self, hour: i8, minute: i8) -> Option<Time> {
        if self.hours.has(hour)
            && let Some(minute) = self.minutes.first_from(minute)
        {
            return Time::new(hour, minute, 0, 0).ok();
        }
        let hour = self.hours.first_from(hour + 1)?;
        Time::new(hour, self.minutes.first_from(0)?, 0, 0).ok()
    }
}

impl MonthDays {
    fn parse(text: &str) -> Result<Self, String> {
        let mut days = Self { begins_with_asterisk: text.starts_with('*'), ..Self::default() };
        for item in text.split(',') {
            if item == "L" {
                days.last = true;
            } else if let Some(number) = item.strip_suffix('W') {
                days.nearest.insert(DAY.number(number)?);
            } else {
                days.numbers.extend(DAY.item(item)?);
            }
        }
        Ok(days)
    }

    fn has(&self, day: Date) -> bool {
        let is_last = || day.day() == day.days_in_month();
        let is_nearest =
            || (1..=31).any(|number| self.nearest.has(number) && nearest_weekday(day, number) == Some(day));
        self.numbers.has(day.day())
            || (self.last && is_last())
            || (self.nearest != NumberSet::default() && is_nearest())
    }
}

/// Returns the day from Monday to Friday that is nearest to the day with this number in the month of `day`, without leaving the
/// month; `None` if the month has no such day.
fn nearest_weekday(day: Date, number: i8) -> Option<Date> {
    let day = day.with().day(number).build().ok()?;
    let away = match day.weekday() {
        Weekday::Saturday if number == 1 => 2,
        Weekday::Saturday => -1,
        Weekday::Sunday if number == day.days_in_month() => -2,
        Weekday::Sunday => 1,
        _ => 0,
    };
    day.with().day(number + away).build().ok()
}

impl WeekDays {
    fn parse(text: &str) -> Result<Self, String> {
        let mut weekdays = Self { begins_with_asterisk: text.starts_with('*'), ..Self::default() };
        for item in text.split(',') {
            if let Some((name, nth)) = item.split_once('#') {
                let nth = match nth.as_bytes() {
                    [digit @ b'1'..=b'5'] => usize::from(digit - b'0'),
                    _ => return Err(format!("`{item}` needs a number from 1 to 5 behind `#`")),
                };
                weekdays.nth[nth].insert(WEEKDAY.number(name)? % 7);
            } else if let Some(name) = item.strip_suffix('L') {
                weekdays.last.insert(WEEKDAY.number(name)? % 7);
            } else {
                weekdays.numbers.extend(WEEKDAY.item(item)?);
            }
        }
        if weekdays.numbers.has(7) {
            weekdays.numbers.insert(0);
        }
        Ok(weekdays)
    }

    fn has(&self, day: Date) -> bool {
        let weekday = day.weekday().to_sunday_zero_offset();
        let is_last = day.day() + 7 > day.days_in_month();
        let nth = usize::from((day.day().unsigned_abs() - 1) / 7 + 1);
        self.numbers.has(weekday) || (is_last && self.last.has(weekday)) || self.nth[nth].has(weekday)
    }
}

impl CronField {
    /// Reads a list of numbers, ranges and steps.
    fn numbers(&self, text: &str) -> Result<NumberSet, String> {
        let mut numbers = NumberSet::default();
        for item in text.split(',') {
            numbers.extend(self.item(item)?);
        }
        Ok(numbers)
    }

    /// Reads `*`, a number, a range, or one of these with a step. Behind a number, a step continues to the last one.
    fn item(&self, text: &str) -> Result<impl Iterator<Item = u8> + use<>, String> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (text, None),
        };
        let (first, last) = if range == "*" {
            (self.least, self.most)
        } else if let Some((first, last)) = range.split_once('-') {
            (self.number(first)?, self.number(last)?)
        } else {
            let number = self.number(range)?;
            (number, if step.is_some() { self.most } else { number })
        };
        if first > last {
            return Err(format!("the range `{range}` ends before it begins"));
        }
        Ok((first..=last).step_by(step.unwrap_or(1)))
    }

    fn step(&self, text: &str) -> Result<usize, String> {
        match digits(text) {
            Some(step @ 1..) if step <= self.most => Ok(step.into()),
            _ => Err(format!("`{text}` is not a step: a {} has steps from 1 to {}", self.what, self.most)),
        }
    }

    fn number(&self, text: &str) -> Result<u8, String> {
        if let Some(place) = self.names.iter().position(|name| *name == text) {
            return Ok(self.first_name + place as u8);
        }
        match digits(text) {
            Some(number) if (self.least..=self.most).contains(&number) => Ok(number),
            _ => Err(format!("`{text}` is not a {}: {} to {}", self.what, self.least, self.most)),
        }
    }
}

/// Reads a number that has digits only.
fn digits(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl NumberSet {
    fn insert(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    fn extend(&mut self, numbers: impl Iterator<Item = u8>) {
        numbers.for_each(|number| self.insert(number));
    }

    fn has(self, number: i8) -> bool {
        self.0 & (1 << number) != 0
    }

    /// Returns the least number from `number` on.
    fn first_from(self, number: i8) -> Option<i8> {
        let rest = self.0 & (u64::MAX << number);
        (rest != 0).then(|| rest.trailing_zeros() as i8)
    }
}

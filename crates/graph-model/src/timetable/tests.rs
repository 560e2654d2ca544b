//! Ticks, against judges that look at each day or minute by itself.

use jiff::ToSpan;
use jiff::civil::{DateTime, Weekday};

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
    assert_eq!(parts, ["2026-10-25T00:00:00Z", "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z", "2026-10-26T01:00:00Z"]);
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
    assert_eq!(even, ["2026-10-24T22:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"]);
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
                let found: Vec<i64> = std::iter::successors(timetable.after(begin - 1), |time| timetable.after(*time))
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

/// A generator of numbers that are the same each time (xorshift64*).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit
    }

    fn between(&mut self, least: i8, most: i8) -> i8 {
        least + self.below((most - least + 1) as u64) as i8
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

/// One element of a field, and whether a local time has it, by the definition.
struct FieldElement {
    text: String,
    holds: Box<dyn Fn(DateTime) -> bool>,
}

/// A field: the elements that its list has.
struct JudgedField {
    text: String,
    elements: Vec<FieldElement>,
}

impl JudgedField {
    fn of(elements: Vec<FieldElement>) -> Self {
        let texts: Vec<&str> = elements.iter().map(|element| element.text.as_str()).collect();
        Self { text: texts.join(","), elements }
    }

    fn holds(&self, time: DateTime) -> bool {
        self.elements.iter().any(|element| (element.holds)(time))
    }
}

const MONTHS: [&str; 12] = ["Jan", "FEB", "mar", "APR", "May", "JUN", "jul", "AUG", "Sep", "OCT", "nov", "DEC"];
const DAYS: [&str; 7] = ["SUN", "Mon", "tue", "WED", "THU", "fri", "SAT"];

/// The numbers of a field: the minute, hour, day, month or day of the week of a time.
#[derive(Clone, Copy)]
struct Numbers {
    of: fn(DateTime) -> i8,
    least: i8,
    most: i8,
}

const MINUTES: Numbers = Numbers { of: DateTime::minute, least: 0, most: 59 };
const HOURS: Numbers = Numbers { of: DateTime::hour, least: 0, most: 23 };
const DAYS_OF_MONTH: Numbers = Numbers { of: DateTime::day, least: 1, most: 31 };
const MONTHS_OF_YEAR: Numbers = Numbers { of: DateTime::month, least: 1, most: 12 };
const DAYS_OF_WEEK: Numbers = Numbers { of: |time| time.weekday().to_sunday_zero_offset(), least: 0, most: 7 };

impl Numbers {
    /// Returns the element with this text for `first`, `first + step` and so on up to `last`.
    fn element(self, text: String, first: i8, last: i8, step: i8) -> FieldElement {
        // In the field of the week, 7 is the Sunday too.
        let turn = if self.most == 7 { 7 } else { i8::MAX };
        let holds = move |time| {
            let mut number = first;
            while number <= last {
                if number % turn == (self.of)(time) {
                    return true;
                }
                number += step;
            }
            false
        };
        FieldElement { text, holds: Box::new(holds) }
    }

    fn name(self, number: i8, random: &mut RandomNumbers) -> String {
        match (self.most, random.below(3)) {
            (12, 0) => MONTHS[number as usize - 1].to_owned(),
            // The name of the Sunday is that of 0, so a range cannot end with it.
            (7, 0) if number != 7 => DAYS[number as usize].to_owned(),
            (_, 1) => format!("{number:02}"),
            _ => number.to_string(),
        }
    }

    fn random(self, random: &mut RandomNumbers) -> FieldElement {
        let first = random.between(self.least, self.most);
        let last = random.between(first, self.most);
        let step = random.between(1, self.most);
        let (from, to) = (self.name(first, random), self.name(last, random));
        match random.below(6) {
            0 => self.element("*".to_owned(), self.least, self.most, 1),
            1 => self.element(format!("*/{step}"), self.least, self.most, step),
            2 => self.element(format!("{from}-{to}"), first, last, 1),
            3 => self.element(format!("{from}-{to}/{step}"), first, last, step),
            4 => self.element(format!("{from}/{step}"), first, self.most, step),
            _ => self.element(from, first, first, 1),
        }
    }
}

fn last_day() -> FieldElement {
    let holds = |time: DateTime| time.checked_add(1.day()).unwrap().month() != time.month();
    FieldElement { text: "L".to_owned(), holds: Box::new(holds) }
}

fn nearest_to(number: i8) -> FieldElement {
    let holds = move |time: DateTime| {
        let first = time.date().first_of_month();
        let days = || first.series(1.day()).take_while(move |day| day.month() == first.month());
        let weekdays = days().filter(|day| !matches!(day.weekday(), Weekday::Saturday | Weekday::Sunday));
        let nearest = weekdays.min_by_key(|day| (day.day() - number).abs());
        days().any(|day| day.day() == number) && nearest == Some(time.date())
    };
    FieldElement { text: format!("{number}W"), holds: Box::new(holds) }
}

fn last_of_week(day: i8, name: &str) -> FieldElement {
    let holds = move |time: DateTime| {
        time.weekday().to_sunday_zero_offset() == day % 7 && time.checked_add(7.days()).unwrap().month() != time.month()
    };
    FieldElement { text: format!("{name}L"), holds: Box::new(holds) }
}

fn nth_of_week(day: i8, name: &str, nth: usize) -> FieldElement {
    let holds = move |time: DateTime| {
        let days = time.date().first_of_month().series(1.day()).take_while(|day| *day <= time.date());
        time.weekday().to_sunday_zero_offset() == day % 7
            && days.filter(|day| day.weekday() == time.weekday()).count() == nth
    };
    FieldElement { text: format!("{name}#{nth}"), holds: Box::new(holds) }
}

/// Every form of the field of days but ranges, lists and steps, which the random fields have.
fn forms_of_days() -> Vec<FieldElement> {
    let numbers = (1..=31).map(|number| DAYS_OF_MONTH.element(number.to_string(), number, number, 1));
    numbers.chain((1..=31).map(nearest_to)).chain([last_day()]).collect()
}

fn forms_of_weekdays() -> Vec<FieldElement> {
    let names = || (0..=7_i8).flat_map(|day| [(day, day.to_string()), (day, DAYS[day as usize % 7].to_owned())]);
    let plain = names().map(|(day, name)| DAYS_OF_WEEK.element(name, day, day, 1));
    let nth = names().flat_map(|(day, name)| (1..=5).map(move |nth| nth_of_week(day, &name, nth)));
    plain.chain(names().map(|(day, name)| last_of_week(day, &name))).chain(nth).collect()
}

fn random_field(
    numbers: Numbers,
    forms: &mut dyn FnMut() -> Vec<FieldElement>,
    random: &mut RandomNumbers,
) -> JudgedField {
    let count = if random.below(3) == 0 { random.between(2, 4) } else { 1 };
    let elements = (0..count).map(|_| match forms() {
        mut forms if !forms.is_empty() && random.below(3) == 0 => {
            let place = random.below(forms.len() as u64) as usize;
            forms.swap_remove(place)
        }
        _ => numbers.random(random),
    });
    JudgedField::of(elements.collect())
}

/// A cron expression, and what it means by the definition.
struct JudgedExpression {
    minutes: JudgedField,
    hours: JudgedField,
    days: JudgedField,
    months: JudgedField,
    weekdays: JudgedField,
}

impl JudgedExpression {
    fn random(random: &mut RandomNumbers) -> Self {
        let none = &mut Vec::new;
        Self {
            minutes: random_field(MINUTES, none, random),
            hours: random_field(HOURS, none, random),
            days: random_field(DAYS_OF_MONTH, &mut forms_of_days, random),
            months: random_field(MONTHS_OF_YEAR, none, random),
            weekdays: random_field(DAYS_OF_WEEK, &mut forms_of_weekdays, random),
        }
    }

    fn text(&self) -> String {
        let Self { minutes, hours, days, months, weekdays } = self;
        [minutes, hours, days, months, weekdays].map(|field| field.text.as_str()).join(" ")
    }

    fn has_day(&self, time: DateTime) -> bool {
        let (of_month, of_week) = (self.days.holds(time), self.weekdays.holds(time));
        let is_either = !self.days.text.starts_with('*') && !self.weekdays.text.starts_with('*');
        self.months.holds(time) && if is_either { of_month || of_week } else { of_month && of_week }
    }
}

/// Returns the ticks of a timetable from one time to another.
fn ticks_between(timetable: &Timetable, begin: i64, end: i64) -> Vec<i64> {
    std::iter::successors(timetable.after(begin - 1), |time| timetable.after(*time))
        .take_while(|time| *time < end)
        .collect()
}

/// Each form of the two fields of days, in each month of common years, leap years and centuries that are no leap
/// years: a look at each day finds the same days.
#[test]
fn days_are_those_that_a_look_at_each_of_them_finds() {
    let star = || JudgedField::of(vec![DAYS_OF_MONTH.element("*".to_owned(), 1, 31, 1)]);
    let every_month = || JudgedField::of(vec![MONTHS_OF_YEAR.element("*".to_owned(), 1, 12, 1)]);
    let zero = || JudgedField::of(vec![MINUTES.element("0".to_owned(), 0, 0, 1)]);
    let week = || JudgedField::of(vec![DAYS_OF_WEEK.element("*".to_owned(), 0, 7, 1)]);
    let of = |days, months, weekdays| JudgedExpression { minutes: zero(), hours: zero(), days, months, weekdays };
    let mut expressions = Vec::new();
    for form in forms_of_days() {
        expressions.push(of(JudgedField::of(vec![form]), every_month(), week()));
    }
    for form in forms_of_weekdays() {
        expressions.push(of(star(), every_month(), JudgedField::of(vec![form])));
    }
    for month in 1..=12 {
        let of_month =
            || JudgedField::of(vec![MONTHS_OF_YEAR.element(MONTHS[month as usize - 1].to_owned(), month, month, 1)]);
        expressions.push(of(JudgedField::of(vec![last_day()]), of_month(), week()));
        expressions.push(of(JudgedField::of(vec![nearest_to(31), nearest_to(1)]), of_month(), week()));
        expressions.push(of(star(), of_month(), JudgedField::of(vec![last_of_week(5, "FRI"), nth_of_week(1, "1", 5)])));
    }
    for expression in expressions {
        let timetable = Timetable::new(&expression.text(), "UTC").unwrap();
        for year in [1999, 2000, 2023, 2024, 2096, 2100] {
            let days = DateTime::constant(year, 1, 1, 0, 0, 0, 0).series(1.day());
            let days = days.take_while(|day| day.year() == year).filter(|day| expression.has_day(*day));
            let of_day = |day: DateTime| TimeZone::UTC.to_timestamp(day).unwrap().as_millisecond();
            let (begin, end) = (at(&format!("{year}-01-01T00:00:00Z")), at(&format!("{}-01-01T00:00:00Z", year + 1)));
            let expected: Vec<i64> = days.map(of_day).collect();
            assert_eq!(ticks_between(&timetable, begin, end), expected, "{} in {year}", expression.text());
        }
    }
}

/// Random expressions of all forms in several zones, around changes of their clocks, around the ends of months and of years, and
/// anywhere: the ticks are those that a look at each minute finds. `TIMETABLES` is their number, 80 if not set; `SEED` makes
/// others.
#[test]
fn ticks_are_those_that_a_look_at_each_minute_finds() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, seed) = (number("TIMETABLES", 80), number("SEED", 1));
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "UTC",
        "Africa/Casablanca",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "America/Sao_Paulo",
        "Asia/Tehran",
        "Pacific/Chatham",
        "Europe/Dublin",
        "America/St_Johns",
    ];
    let mut random = RandomNumbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut found, mut refused) = (0, 0);
    for _ in 0..count {
        let expression = JudgedExpression::random(&mut random);
        let name = random.pick(&zones);
        let timetable = match Timetable::new(&expression.text(), name) {
            Ok(timetable) => timetable,
            Err(TimetableError::Never { .. }) => {
                refused += 1;
                // The calendar repeats itself after 400 years.
                let days = DateTime::constant(2000, 1, 1, 0, 0, 0, 0).series(1.day()).take(146_097);
                assert!(!days.into_iter().any(|day| expression.has_day(day)), "{}", expression.text());
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let zone = TimeZoneDatabase::bundled().get(name).unwrap();
        let year = 1990 + random.below(110);
        let month = random.between(1, 12);
        let begin = match random.below(4) {
            0 => at(&format!("{year}-12-30T00:00:00Z")),
            1 => at(&format!("{year}-{month:02}-27T00:00:00Z")),
            2 => {
                let time = Timestamp::from_millisecond(at(&format!("{year}-{month:02}-01T00:00:00Z"))).unwrap();
                let change = zone.following(time).next().map(|change| change.timestamp().as_millisecond());
                change.map_or(0, |change| change - 86_400_000)
            }
            _ => at(&format!("{year}-{month:02}-11T05:07:00Z")),
        };
        let end = begin + 5 * 86_400_000;
        let mut seen = std::collections::BTreeSet::new();
        let mut day = (None, false);
        let expected: Vec<i64> = (begin - 86_400_000..end)
            .step_by(60_000)
            .filter(|time| {
                let local = zone.to_datetime(Timestamp::from_millisecond(*time).unwrap());
                if day.0 != Some(local.date()) {
                    day = (Some(local.date()), expression.has_day(local));
                }
                let is_new = seen.insert(local);
                let is_counted = is_new || expression.hours.text.starts_with('*');
                *time >= begin
                    && day.1
                    && is_counted
                    && expression.minutes.holds(local)
                    && expression.hours.holds(local)
            })
            .collect();
        found += expected.len();
        assert_eq!(ticks_between(&timetable, begin, end), expected, "{} in {name} from {begin}", expression.text());
    }
    assert!(found > 0 && refused < count, "{found} ticks, {refused} that never match");
}

#[test]
fn the_last_day_of_a_month_is_found_in_december_too() {
    let closing = ticks("0 0 L * *", "UTC", "2026-11-23T00:00:00Z", 4);
    assert_eq!(
        closing,
        ["2026-11-30T00:00:00Z", "2026-12-31T00:00:00Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"]
    );
    assert_eq!(ticks("0 0 L 12 *", "UTC", "2026-11-23T00:00:00Z", 1), ["2026-12-31T00:00:00Z"]);
    assert_eq!(ticks("0 0 * 12 FRIL", "UTC", "2026-11-23T00:00:00Z", 1), ["2026-12-25T00:00:00Z"]);
    let list = ticks("0 12 15,L * *", "UTC", "2026-12-01T00:00:00Z", 2);
    assert_eq!(list, ["2026-12-15T12:00:00Z", "2026-12-31T12:00:00Z"]);
}

#[test]
fn a_leap_day_on_one_day_of_the_week_is_waited_for() {
    // 29 February is a Sunday every 28 years, and after 40 where 2100 is between.
    let sundays = ticks("0 0 29 2 */7", "UTC", "2026-01-01T00:00:00Z", 3);
    assert_eq!(sundays, ["2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z", "2088-02-29T00:00:00Z"]);
}

#[test]
fn a_time_that_clocks_always_skip_is_no_time() {
    // The clocks of Berlin skip it on the last Sunday of March, by the rules of today.
    let error = Timetable::new("30 2 * 3 SUNL", "Europe/Berlin").unwrap_err();
    assert!(matches!(error, TimetableError::Never { .. }), "{error}");
}

//! Text of dates, times and timestamps, in all the forms that Cassandra reads.

use crate::TypeError;
use crate::calendar::{DAY_MS, Date, date_of, days_in_month, days_of};

/// The offset that is added to days since the epoch to store a `date`.
pub(crate) const DATE_OFFSET: i64 = 1 << 31;

/// Nanoseconds of a day.
pub(crate) const DAY_NANOS: i64 = 86_400_000_000_000;

/// The years that Java's time classes can hold.
const YEAR_MAX: i64 = 999_999_999;

fn push_year(year: i64, out: &mut String) {
    // More than four digits need a sign to be told from other parts.
    match year {
        10_000.. => out.push_str(&format!("+{year}")),
        0..10_000 => out.push_str(&format!("{year:04}")),
        _ => out.push_str(&format!("-{:04}", year.unsigned_abs())),
    }
}

/// A date of days since the epoch, as ISO 8601.
pub(crate) fn format_date(days: i64) -> String {
    let date = date_of(days);
    let mut out = String::with_capacity(10);
    push_year(date.year, &mut out);
    out.push_str(&format!("-{:02}-{:02}", date.month, date.day));
    out
}

/// A timestamp in UTC, with `separator` between date and time. Years before 1 are shown as the year of their era.
pub(crate) fn format_timestamp(ms: i64, separator: char) -> String {
    let date = date_of(ms.div_euclid(DAY_MS));
    let mut out = String::with_capacity(24);
    push_year(if date.year <= 0 { 1 - date.year } else { date.year }, &mut out);
    let in_day = ms.rem_euclid(DAY_MS);
    let (minutes, in_minute) = (in_day / 60_000, in_day % 60_000);
    out.push_str(&format!(
        "-{:02}-{:02}{separator}{:02}:{:02}:{:02}.{:03}Z",
        date.month,
        date.day,
        minutes / 60,
        minutes % 60,
        in_minute / 1000,
        in_minute % 1000
    ));
    out
}

/// A time of day of nanoseconds since midnight.
pub(crate) fn format_time(nanos: i64) -> String {
    let (seconds, nanos) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    format!("{:02}:{:02}:{:02}.{nanos:09}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Whether a text is digits only, perhaps after a minus.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A `date` of text: `yyyy-mm-dd`, or the stored unsigned number. Gives the stored number.
pub(crate) fn parse_date(text: &str) -> Result<u32, TypeError> {
    if is_integer(text) {
        let stored = text.parse().ok();
        let refused = || TypeError::Refused(format!("Unable to make unsigned int (for date) from: '{text}'"));
        return stored.ok_or_else(refused);
    }
    let refused = || TypeError::Refused(format!("Unable to coerce '{text}' to a formatted date (long)"));
    let mut parser = Parser { text };
    let date = parser.padded_date().ok_or_else(refused)?;
    if !parser.text.is_empty() || date.day > days_in_month(date.year, date.month) {
        return Err(refused());
    }
    let days = days_of(date);
    if days < -DATE_OFFSET {
        let least = "-5877641-06-23T00:00Z";
        return Err(TypeError::Refused(format!("Input date {text} is less than min supported date {least}")));
    }
    u32::try_from(days + DATE_OFFSET).map_err(|_| {
        let greatest = "+5881580-07-11T00:00Z";
        TypeError::Refused(format!("Input date {text} is greater than max supported date {greatest}"))
    })
}

/// A `time` of text: `hh:mm:ss[.fffffffff]`, or nanoseconds since midnight.
pub(crate) fn parse_time(text: &str) -> Result<i64, TypeError> {
    if is_integer(text) {
        let nanos = text.parse().ok().filter(|nanos| (0..DAY_NANOS).contains(nanos));
        return nanos
            .ok_or_else(|| TypeError::Refused(format!("Unable to make long (for time) from: '{text}'")));
    }
    let refused =
        || TypeError::Refused(format!("(TimeType) Unable to coerce '{text}' to a formatted time (long)"));
    strict_time(text.trim()).ok_or_else(refused)
}

fn strict_time(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let part =
        |text: &str, limit: i64| text.parse::<i32>().ok().map(i64::from).filter(|n| (0..limit).contains(n));
    let (second, fraction) = match second.split_once('.') {
        Some((second, fraction)) => (second, Some(fraction)),
        None => (second, None),
    };
    let nanos = match fraction {
        None => 0,
        Some(digits) => {
            let valid = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            valid.then(|| format!("{digits:0<9}").parse::<i64>().ok()).flatten()?
        }
    };
    let seconds = part(hour, 24)? * 3600 + part(minute, 60)? * 60 + part(second, 60)?;
    Some(seconds * 1_000_000_000 + nanos)
}

/// A `timestamp` of text: milliseconds since the epoch; a date; or a date and a time, each with or without a zone.
/// Without a zone UTC is meant. `now_ms` is the value of the word `now`.
pub(crate) fn parse_timestamp(text: &str, now_ms: Option<i64>) -> Result<i64, TypeError> {
    if let Some(now) = now_ms
        && text.eq_ignore_ascii_case("now")
    {
        return Ok(now);
    }
    if is_integer(text) {
        let refused = |_| TypeError::Refused(format!("Unable to make long (for date) from: '{text}'"));
        return text.parse().map_err(refused);
    }
    let refused = || TypeError::Refused(format!("Unable to parse a date/time from '{text}'"));
    date_and_time(text).or_else(|| only_date(text)).ok_or_else(refused)
}

fn date_and_time(text: &str) -> Option<i64> {
    let mut parser = Parser { text };
    let date = parser.loose_date()?;
    if !parser.eat('T') && !parser.eat(' ') {
        return None;
    }
    let hour = parser.number(1, 19).filter(|hour| *hour <= 24)?;
    parser.expect(':')?;
    let minute = parser.number(1, 19).filter(|minute| *minute < 60)?;
    let (mut second, mut ms) = (0, 0);
    if parser.eat(':') {
        second = parser.number(1, 19).filter(|second| *second < 60)?;
        ms = parser.fraction_ms()?;
    }
    let offset_ms = parser.zone()?;
    parser
        .text
        .is_empty()
        .then(|| epoch_ms(date, (hour * 60 + minute) * 60_000 + second * 1000 + ms - offset_ms))
}

fn only_date(text: &str) -> Option<i64> {
    let mut parser = Parser { text };
    let date = parser.padded_date()?;
    // A date alone, and not one with a time, may have a small z.
    let offset_ms = if parser.text == "z" { parser.eat('z').then_some(0)? } else { parser.zone()? };
    parser.text.is_empty().then(|| epoch_ms(date, -offset_ms))
}

/// A day past the end of its month is the month's last, as in Java's lenient resolution.
fn epoch_ms(date: Date, in_day_ms: i64) -> i64 {
    let day = date.day.min(days_in_month(date.year, date.month));
    days_of(Date { day, ..date }).wrapping_mul(DAY_MS).wrapping_add(in_day_ms)
}

struct Parser<'a> {
    text: &'a str,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, c: char) -> bool {
        match self.text.strip_prefix(c) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.eat(c).then_some(())
    }

    fn number(&mut self, least_digits: usize, most_digits: usize) -> Option<i64> {
        let digits = self.text.bytes().take(most_digits).take_while(u8::is_ascii_digit).count();
        if digits < least_digits {
            return None;
        }
        let (number, rest) = self.text.split_at_checked(digits)?;
        self.text = rest;
        number.parse().ok()
    }

    fn month_and_day(&mut self, year: i64, least: usize, most: usize) -> Option<Date> {
        self.expect('-')?;
        let month = self.number(least, most).filter(|month| (1..=12).contains(month))?;
        self.expect('-')?;
        let day = self.number(least, most).filter(|day| (1..=31).contains(day))?;
        (year.abs() <= YEAR_MAX).then_some(Date { year, month: month as u32, day: day as u32 })
    }

    /// Year, month and day of any width.
    fn loose_date(&mut self) -> Option<Date> {
        let year = self.number(1, 19).filter(|year| *year > 0)?;
        self.month_and_day(year, 1, 19)
    }

    /// A year of at least four digits, with a sign when there are more, and month and day of two.
    fn padded_date(&mut self) -> Option<Date> {
        let sign = if self.eat('-') { -1 } else { 1 };
        let plus = sign > 0 && self.eat('+');
        let before = self.text.len();
        let year = sign * self.number(4, 10)?;
        let digits = before - self.text.len();
        if (digits > 4) != (plus || sign < 0) && sign > 0 {
            return None;
        }
        self.month_and_day(year, 2, 2)
    }

    /// `.` and up to nine digits, cut to milliseconds.
    fn fraction_ms(&mut self) -> Option<i64> {
        if !self.eat('.') {
            return Some(0);
        }
        let digits = self.text.bytes().take(9).take_while(u8::is_ascii_digit).count();
        let (fraction, rest) = self.text.split_at_checked(digits)?;
        self.text = rest;
        format!("{fraction:0<3}").get(..3)?.parse().ok()
    }

    /// A zone as milliseconds east of Greenwich: nothing, `Z`, `+HH`, `+HHmm`, `+HH:MM`, or a blank and one of these
    /// or a zone's name.
    fn zone(&mut self) -> Option<i64> {
        let blank = self.eat(' ');
        if !blank && self.text.is_empty() {
            return Some(0);
        }
        let prefixed =
            blank.then(|| ["UTC", "GMT", "UT"].iter().find_map(|name| strip_name(self.text, name))).flatten();
        if let Some(rest) = prefixed {
            self.text = rest;
            if rest.is_empty() {
                return Some(0);
            }
        } else if blank
            && let Some((_, hours)) = ZONES.iter().find(|(name, _)| name.eq_ignore_ascii_case(self.text))
        {
            self.text = "";
            return Some(hours * 3_600_000 / 2);
        }
        if self.eat('Z') {
            return Some(0);
        }
        let sign = if self.eat('-') { -1 } else { self.expect('+').map(|()| 1)? };
        let hours = self.number(2, 2).filter(|hours| *hours <= 18)?;
        let minutes = match self.eat(':') || !self.text.is_empty() {
            true => self.number(2, 2).filter(|minutes| *minutes < 60)?,
            false => 0,
        };
        Some(sign * (hours * 60 + minutes) * 60_000)
    }
}

fn strip_name<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(name.len())?;
    head.eq_ignore_ascii_case(name).then_some(rest)
}

/// Short and long names of common zones, in half hours east of Greenwich. The full zone database with its changing
/// rules is not part of the database; an offset is unambiguous.
const ZONES: &[(&str, i64)] = &[
    ("PST", -16),
    ("PDT", -14),
    ("MST", -14),
    ("MDT", -12),
    ("CST", -12),
    ("CDT", -10),
    ("EST", -10),
    ("EDT", -8),
    ("WET", 0),
    ("WEST", 2),
    ("BST", 2),
    ("CET", 2),
    ("CEST", 4),
    ("EET", 4),
    ("EEST", 6),
    ("MSK", 6),
    ("IST", 11),
    ("JST", 18),
    ("KST", 18),
    ("AEST", 20),
    ("AEDT", 22),
    ("NZST", 24),
    ("NZDT", 26),
    ("Coordinated Universal Time", 0),
    ("Greenwich Mean Time", 0),
    ("Pacific Standard Time", -16),
    ("Pacific Daylight Time", -14),
    ("Mountain Standard Time", -14),
    ("Mountain Daylight Time", -12),
    ("Central Standard Time", -12),
    ("Central Daylight Time", -10),
    ("Eastern Standard Time", -10),
    ("Eastern Daylight Time", -8),
    ("Central European Standard Time", 2),
    ("Central European Summer Time", 4),
    ("Japan Standard Time", 18),
    ("India Standard Time", 11),
];

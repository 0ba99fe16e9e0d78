//! CQL's durations: months, days and nanoseconds kept apart, because a month has no fixed number of days nor a day a
//! fixed number of hours.

use crate::TypeError;
use crate::calendar::{DAY_MS, add_months, date_of, days_of};
use stdx::{Reader, vint};

pub(crate) const MICRO: i64 = 1_000;
pub(crate) const MILLI: i64 = 1_000_000;
pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;

/// A duration; its parts are all not negative or all not positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Duration {
    /// Whole months.
    pub months: i32,
    /// Whole days.
    pub days: i32,
    /// Nanoseconds.
    pub nanos: i64,
}

impl Duration {
    /// Reads a serialised duration: three signed vints.
    pub fn read(bytes: &[u8]) -> Option<Duration> {
        let mut reader = Reader::new(bytes);
        let months = i32::try_from(vint::read_signed(&mut reader).ok()?).ok()?;
        let days = i32::try_from(vint::read_signed(&mut reader).ok()?).ok()?;
        let nanos = vint::read_signed(&mut reader).ok()?;
        Some(Duration { months, days, nanos })
    }

    /// The serialised value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8);
        vint::write_signed(i64::from(self.months), &mut out);
        vint::write_signed(i64::from(self.days), &mut out);
        vint::write_signed(self.nanos, &mut out);
        out
    }

    /// Whether it points to the past.
    pub fn is_negative(&self) -> bool {
        self.months < 0 || self.days < 0 || self.nanos < 0
    }

    /// The same length in the other direction.
    pub fn negated(&self) -> Duration {
        Duration {
            months: self.months.wrapping_neg(),
            days: self.days.wrapping_neg(),
            nanos: self.nanos.wrapping_neg(),
        }
    }

    /// A time in milliseconds since the epoch moved by the duration: by months on the calendar, then the rest.
    pub fn add_to_ms(&self, ms: i64) -> i64 {
        let mut moved = ms;
        if self.months != 0 {
            let date = add_months(date_of(ms.div_euclid(DAY_MS)), i64::from(self.months));
            moved = days_of(date).wrapping_mul(DAY_MS).wrapping_add(ms.rem_euclid(DAY_MS));
        }
        moved.wrapping_add(i64::from(self.days) * DAY_MS).wrapping_add(self.nanos / MILLI)
    }

    /// Reads CQL's forms: `1y2mo3w4d5h6m7s8ms9us10ns`, ISO 8601 `P1Y2M3DT4H5M6S` and `P3W`, and the alternative
    /// ISO form `P0001-02-03T04:05:06`; any of them negative with a `-` in front.
    ///
    /// # Errors
    /// [`TypeError::Duration`] when the text has none of these forms, a unit comes twice or out of order, or months,
    /// days or nanoseconds overflow.
    pub fn parse(text: &str) -> Result<Duration, TypeError> {
        let (negative, source) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut builder = Builder::default();
        let understood = match source.strip_prefix('P') {
            Some(iso) if source.ends_with('W') => builder.weeks(iso)?,
            Some(iso) if source.contains('-') => builder.alternative(iso)?,
            Some(iso) => builder.iso(iso)?,
            None => builder.standard(source)?,
        };
        if understood.is_none() {
            return Err(TypeError::Duration(format!("Unable to convert '{source}' to a duration")));
        }
        let duration = Duration { months: builder.months, days: builder.days, nanos: builder.nanos };
        Ok(if negative { duration.negated() } else { duration })
    }

    /// The text in the standard form: `1y2mo3d4h5m6s7ms8us9ns`; nothing for a duration of zero.
    pub fn format(&self) -> String {
        let mut out = String::new();
        if self.is_negative() {
            out.push('-');
        }
        let mut push = |value: u64, unit: &str| {
            if value > 0 {
                out.push_str(&value.to_string());
                out.push_str(unit);
            }
        };
        let months = u64::from(self.months.unsigned_abs());
        push(months / 12, "y");
        push(months % 12, "mo");
        push(u64::from(self.days.unsigned_abs()), "d");
        let mut rest = self.nanos.unsigned_abs();
        for (unit, name) in
            [(HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (MILLI, "ms"), (MICRO, "us"), (1, "ns")]
        {
            push(rest / unit.unsigned_abs(), name);
            rest %= unit.unsigned_abs();
        }
        out
    }
}

/// The units from the longest to the shortest: the order in which a literal must have them.
const UNITS: [(&str, &str); 10] = [
    ("y", "years"),
    ("mo", "months"),
    ("w", "weeks"),
    ("d", "days"),
    ("h", "hours"),
    ("m", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
];

#[derive(Default)]
struct Builder {
    months: i32,
    days: i32,
    nanos: i64,
    /// One more than the index of the last unit that was added.
    last: usize,
}

type Understood = Result<Option<()>, TypeError>;

impl Builder {
    fn standard(&mut self, mut source: &str) -> Understood {
        while !source.is_empty() {
            let Some((number, rest)) = leading_number(source) else { return Ok(None) };
            let Some((unit, rest)) = leading_unit(rest) else { return Ok(None) };
            self.add(unit, number)?;
            source = rest;
        }
        Ok((self.last > 0).then_some(()))
    }

    fn iso(&mut self, source: &str) -> Understood {
        let (date, time) = match source.split_once('T') {
            Some((date, time)) => (date, time),
            None => (source, ""),
        };
        for (part, units) in [(date, [('Y', 0), ('M', 1), ('D', 3)]), (time, [('H', 4), ('M', 5), ('S', 6)])]
        {
            let mut rest = part;
            let mut units = units.iter();
            while !rest.is_empty() {
                let Some((number, after)) = leading_number(rest) else { return Ok(None) };
                let mut letters = after.chars();
                let letter = letters.next();
                let Some((_, unit)) = units.by_ref().find(|(name, _)| Some(*name) == letter) else {
                    return Ok(None);
                };
                self.add(*unit, number)?;
                rest = letters.as_str();
            }
        }
        Ok(Some(()))
    }

    fn weeks(&mut self, source: &str) -> Understood {
        match leading_number(source) {
            Some((number, "W")) => self.add(2, number).map(Some),
            _ => Ok(None),
        }
    }

    fn alternative(&mut self, source: &str) -> Understood {
        let mut rest = source;
        for (unit, width, after) in
            [(0, 4, "-"), (1, 2, "-"), (3, 2, "T"), (4, 2, ":"), (5, 2, ":"), (6, 2, "")]
        {
            let Some((digits, tail)) = rest.split_at_checked(width) else { return Ok(None) };
            if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Ok(None);
            }
            let Some(tail) = tail.strip_prefix(after) else { return Ok(None) };
            self.add(unit, digits.parse().ok())?;
            rest = tail;
        }
        Ok(rest.is_empty().then_some(()))
    }

    /// Adds a number of a unit; `None` is a number beyond 64 bits.
    fn add(&mut self, unit: usize, number: Option<i64>) -> Result<(), TypeError> {
        let name = |index: usize| UNITS.get(index).map_or("", |(_, name)| name);
        if unit + 1 == self.last {
            let text = format!("Invalid duration. The {} are specified multiple times", name(unit));
            return Err(TypeError::Duration(text));
        }
        if unit < self.last {
            let text =
                format!("Invalid duration. The {} should be after {}", name(self.last - 1), name(unit));
            return Err(TypeError::Duration(text));
        }
        self.last = unit + 1;
        let too_long = |total| {
            let limit = i32::MAX;
            let text =
                format!("Invalid duration. The total number of {total} must be less or equal to {limit}");
            TypeError::Duration(text)
        };
        let add32 = |sum: i32, scale: i64| {
            number?.checked_mul(scale)?.checked_add(i64::from(sum)).and_then(|sum| i32::try_from(sum).ok())
        };
        let add64 = |sum: i64, scale: i64| number?.checked_mul(scale)?.checked_add(sum);
        match unit {
            0 => self.months = add32(self.months, 12).ok_or_else(|| too_long("months"))?,
            1 => self.months = add32(self.months, 1).ok_or_else(|| too_long("months"))?,
            2 => self.days = add32(self.days, 7).ok_or_else(|| too_long("days"))?,
            3 => self.days = add32(self.days, 1).ok_or_else(|| too_long("days"))?,
            _ => {
                let scale = [HOUR, MINUTE, SECOND, MILLI, MICRO, 1].get(unit - 4).copied().unwrap_or(1);
                self.nanos = add64(self.nanos, scale).ok_or_else(|| too_long("nanoseconds"))?;
            }
        }
        Ok(())
    }
}

/// The digits at the start as a number (`None` inside: beyond 64 bits) and the rest; `None` without digits.
fn leading_number(text: &str) -> Option<(Option<i64>, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    (!digits.is_empty()).then(|| (digits.parse().ok(), rest))
}

/// The unit at the start, in any case, the longest that fits, and the rest.
fn leading_unit(text: &str) -> Option<(usize, &str)> {
    // The sign for micro takes two bytes; it is read as `us`.
    if let Some(rest) = text.strip_prefix("µs").or_else(|| text.strip_prefix("µS")) {
        return Some((8, rest));
    }
    let mut fitting = UNITS.iter().enumerate().filter_map(|(i, (unit, _))| {
        let (head, rest) = text.split_at_checked(unit.len())?;
        head.eq_ignore_ascii_case(unit).then_some((unit.len(), i, rest))
    });
    let first = fitting.next()?;
    let (_, unit, rest) = fitting.fold(first, |best, next| if next.0 > best.0 { next } else { best });
    Some((unit, rest))
}

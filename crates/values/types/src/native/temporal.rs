//! Functions and operators on dates, times and durations.

use super::operator::Operator;
use super::{Answer, Body, Environment, Function, FunctionError};
use crate::calendar::{DAY_MS, add_months, date_of, days_of};
use crate::duration::{Duration, MILLI};
use crate::temporal::{DATE_OFFSET, DAY_NANOS};
use crate::{CqlType, uuid};

/// The current time as a value of the type.
pub(super) fn now(ty: &CqlType, environment: &mut dyn Environment) -> Vec<u8> {
    match ty {
        CqlType::Timeuuid => environment.time_uuid().to_vec(),
        CqlType::Time => {
            let nanos = environment.now_ms().rem_euclid(DAY_MS) * MILLI;
            nanos.to_be_bytes().to_vec()
        }
        other => from_ms(other, environment.now_ms()),
    }
}

/// Milliseconds since the epoch of a value of a type that is a point in time.
fn to_ms(ty: &CqlType, value: &[u8]) -> Option<i64> {
    match ty {
        CqlType::Timeuuid => uuid::unix_ms(value),
        CqlType::Timestamp | CqlType::Bigint => Some(i64::from_be_bytes(value.try_into().ok()?)),
        CqlType::Date => {
            let days = i64::from(u32::from_be_bytes(value.try_into().ok()?)) - DATE_OFFSET;
            Some(days * DAY_MS)
        }
        _ => None,
    }
}

/// A value of a type that is a point in time. A time before the epoch counts to the day that Java's rounding gives:
/// whole seconds downwards, then days towards zero.
fn from_ms(ty: &CqlType, ms: i64) -> Vec<u8> {
    match ty {
        CqlType::Date => {
            let days = ms.div_euclid(1_000) / 86_400;
            ((days + DATE_OFFSET) as u32).to_be_bytes().to_vec()
        }
        _ => ms.to_be_bytes().to_vec(),
    }
}

impl Function {
    pub(super) fn temporal(&self, values: &[&[u8]]) -> Answer {
        if self.body == Body::Floor {
            return self.floor(values);
        }
        let ms = self.arguments.first().zip(values.first()).and_then(|(ty, value)| to_ms(ty, value));
        let ms = ms.ok_or_else(|| self.malformed(0))?;
        Ok(Some(match self.body {
            Body::MinTimeuuid => uuid::min_time_uuid(ms).to_vec(),
            Body::MaxTimeuuid => uuid::max_time_uuid(ms).to_vec(),
            _ => from_ms(&self.returns, ms),
        }))
    }

    /// A date or timestamp plus or minus a duration.
    pub(super) fn temporal_arithmetic(&self, operator: Operator, values: &[&[u8]]) -> Answer {
        let ms =
            values.first().and_then(|value| to_ms(&self.returns, value)).ok_or_else(|| self.malformed(0))?;
        let duration =
            values.get(1).and_then(|value| Duration::read(value)).ok_or_else(|| self.malformed(1))?;
        let unit = match self.returns {
            CqlType::Date if duration.nanos != 0 => Some("day"),
            CqlType::Timestamp if duration.nanos % MILLI != 0 => Some("millisecond"),
            _ => None,
        };
        if let Some(unit) = unit {
            let why = format!("The duration must have a {unit} precision. Was: {}", duration.format());
            return Err(self.operation_failed(operator, &why));
        }
        let duration = if operator == Operator::Subtract { duration.negated() } else { duration };
        Ok(Some(from_ms(&self.returns, duration.add_to_ms(ms))))
    }

    fn floor(&self, values: &[&[u8]]) -> Answer {
        let Some((ty, value)) = self.arguments.first().zip(values.first()) else {
            return Err(self.wrong_number(values.len()));
        };
        let duration =
            values.get(1).and_then(|value| Duration::read(value)).ok_or_else(|| self.malformed(1))?;
        if *ty == CqlType::Time {
            let nanos = (*value).try_into().map(i64::from_be_bytes).map_err(|_| self.malformed(0))?;
            return floor_time(nanos, &duration);
        }
        let below = match ty {
            CqlType::Date if duration.nanos != 0 => {
                Some("The floor on date values cannot be computed for the")
            }
            _ if duration.nanos % MILLI != 0 => Some("The floor cannot be computed for the"),
            _ => None,
        };
        if let Some(refused) = below {
            let unit = if *ty == CqlType::Date { "day" } else { "millisecond" };
            let text = format!("{refused} {} duration as precision is below 1 {unit}", duration.format());
            return Err(FunctionError::Invalid(text));
        }
        let ms = to_ms(ty, value).ok_or_else(|| self.malformed(0))?;
        let start = match self.arguments.get(2).zip(values.get(2)) {
            Some((ty, value)) => to_ms(ty, value).ok_or_else(|| self.malformed(2))?,
            None => 0,
        };
        Ok(Some(from_ms(&self.returns, floor_ms(ms, &duration, start)?)))
    }
}

fn floor_time(nanos: i64, duration: &Duration) -> Answer {
    if duration.is_negative() {
        return Err(FunctionError::invalid("Negative durations are not supported by the floor function"));
    }
    if duration.months != 0 || duration.days != 0 || duration.nanos > DAY_NANOS {
        let text = "For time values, the floor can only be computed for durations smaller that a day";
        return Err(FunctionError::invalid(text));
    }
    let past = if duration.nanos == 0 { 0 } else { nanos % duration.nanos };
    Ok(Some((nanos - past).to_be_bytes().to_vec()))
}

/// The start of the interval of the length of `duration`, counted from `start`, that holds `ms`.
fn floor_ms(ms: i64, duration: &Duration, start: i64) -> Result<i64, FunctionError> {
    if start > ms {
        let text = "The floor function starting time is greater than the provided time";
        return Err(FunctionError::invalid(text));
    }
    if duration.is_negative() {
        return Err(FunctionError::invalid("Negative durations are not supported by the floor function"));
    }
    let length = i64::from(duration.days) * DAY_MS + duration.nanos / MILLI;
    if duration.months == 0 {
        let past = if length == 0 { 0 } else { ms.wrapping_sub(start) % length };
        return Ok(ms - past);
    }
    let months_of = |ms: i64| {
        let date = date_of(ms.div_euclid(DAY_MS));
        date.year * 12 + i64::from(date.month)
    };
    let step = i64::from(duration.months);
    let mut multiplier = (months_of(ms) - months_of(start)) / step;
    if length > 0 {
        // Far beyond the range that fits: the fixed part alone decides. The rest is stepped back month by month.
        multiplier = multiplier.min(ms.wrapping_sub(start) / length + 1);
    }
    let mut date = add_months(date_of(start.div_euclid(DAY_MS)), multiplier * step);
    loop {
        let moved = days_of(date) * DAY_MS + start.rem_euclid(DAY_MS);
        let floor = moved.saturating_add(multiplier.saturating_mul(length));
        // Without a fixed part the day of the month is not looked at, as in Cassandra.
        if length == 0 || floor <= ms || multiplier <= 0 {
            return Ok(if length == 0 { floor } else { floor.max(start) });
        }
        // Each step starts from the day that the last one was cut to, as a calendar does.
        date = add_months(date, -step);
        multiplier -= 1;
    }
}

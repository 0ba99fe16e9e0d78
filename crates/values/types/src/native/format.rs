//! Amounts of bytes and of time as people read them, and the lengths of values (Cassandra trunk's `format_bytes`, `format_time`, `length`
//! and `octet_length`).

use super::{Answer, Body, Function, FunctionError};
use crate::CqlType;

/// A unit by its symbol, and how many of the smallest unit it has.
type Unit = (&'static str, f64);

/// Units of bytes, the smallest first.
const BYTES: [Unit; 4] = [("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];
/// Units of time in nanoseconds.
const TIMES: [Unit; 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3_600e9),
    ("d", 86_400e9),
];

impl Function {
    pub(super) fn format(&self, arguments: &[Option<&[u8]>]) -> Answer {
        let Some(Some(value)) = arguments.first() else { return Ok(None) };
        let texts: Option<Vec<&str>> =
            arguments.iter().skip(1).map(|one| one.and_then(|one| std::str::from_utf8(one).ok())).collect();
        let Some(units) = texts else {
            return Err(FunctionError::invalid("none of the arguments may be null"));
        };
        let Some(amount) = self.amount(value)? else { return Ok(None) };
        if amount < 0 {
            return Err(FunctionError::invalid("value must be non-negative"));
        }
        let amount = amount as f64;
        let text = match self.body {
            Body::FormatBytes => bytes(amount, &units)?,
            _ => time(amount, &units)?,
        };
        Ok(Some(text.into_bytes()))
    }

    /// The first argument as a number; none of an empty value.
    fn amount(&self, value: &[u8]) -> Result<Option<i64>, FunctionError> {
        if matches!(self.arguments.first(), Some(CqlType::Text | CqlType::Ascii)) {
            let text = std::str::from_utf8(value).map_err(|_| self.malformed(0))?;
            let number = text.parse().map_err(|_| {
                FunctionError::Invalid(format!("unable to convert string '{text}' to a value of type long"))
            })?;
            return Ok(Some(number));
        }
        if value.is_empty() {
            return Ok(None);
        }
        // Integers in two's complement, of which Java keeps the last eight bytes.
        let negative = value.first().is_some_and(|byte| byte & 0x80 != 0);
        let start = if negative { -1 } else { 0 };
        Ok(Some(value.iter().fold(start, |number: i64, byte| (number << 8) | i64::from(*byte))))
    }

    /// The bytes of a value, or the UTF-16 units of a text, as Java counts them.
    pub(super) fn length(&self, values: &[&[u8]]) -> Answer {
        let value = values.first().copied().unwrap_or_default();
        let length = match self.body {
            Body::OctetLength => value.len(),
            _ => std::str::from_utf8(value).map_err(|_| self.malformed(0))?.encode_utf16().count(),
        };
        let length = i32::try_from(length).map_err(|_| self.failed("a value of more than 2 GiB"))?;
        Ok(Some(length.to_be_bytes().to_vec()))
    }
}

fn unit(units: &[Unit], symbol: &str, kind: &str) -> Result<Unit, FunctionError> {
    let found = units.iter().find(|(known, _)| known.eq_ignore_ascii_case(symbol));
    found.copied().ok_or_else(|| {
        let known: Vec<&str> =
            units.iter().map(|(known, _)| *known).filter(|known| known.is_ascii()).collect();
        let known = known.join(", ");
        FunctionError::Invalid(format!("Unsupported {kind} unit: {symbol}. Supported units are: {known}"))
    })
}

fn bytes(amount: f64, units: &[&str]) -> Result<String, FunctionError> {
    let named = |symbol: &str| unit(&BYTES, symbol, "data storage");
    let [smallest, ..] = BYTES;
    let (from, to) = match units {
        // The unit of which it has more than one.
        [] => (smallest, BYTES.into_iter().rev().find(|unit| amount > unit.1).unwrap_or(smallest)),
        [to] => (smallest, named(to)?),
        [from, to, ..] => (named(from)?, named(to)?),
    };
    let converted = (amount * (from.1 / to.1)).min(i64::MAX as f64);
    Ok(format!("{} {}", two_decimals(converted), to.0))
}

fn time(amount: f64, units: &[&str]) -> Result<String, FunctionError> {
    let named = |symbol: &str| unit(&TIMES, symbol, "time");
    let millis = named("ms")?;
    let (from, to) = match units {
        [] => {
            let larger = ["d", "h", "m", "s"].into_iter().map(named).collect::<Result<Vec<_>, _>>()?;
            let to = larger.into_iter().find(|unit| amount >= unit.1 / millis.1).unwrap_or(millis);
            return Ok(format!("{} {}", two_decimals(amount / (to.1 / millis.1)), to.0));
        }
        [to] => (millis, *to),
        [from, to, ..] => (named(from)?, *to),
    };
    Ok(format!("{} {to}", two_decimals(amount * (from.1 / named(to)?.1))))
}

/// A number with at most two decimals, a half of the last one rounded up.
fn two_decimals(number: f64) -> String {
    // Above that no double has decimals, and the shortest digits are shown.
    if number >= 1e16 {
        return format!("{number}");
    }
    let exact = format!("{number:.60}");
    let (whole, decimals) = exact.split_once('.').unwrap_or((&exact, ""));
    let digit = |at: usize| u64::from(decimals.as_bytes().get(at).map_or(0, |digit| digit - b'0'));
    let hundredths = digit(0) * 10 + digit(1) + u64::from(digit(2) >= 5);
    let whole = whole.parse::<u64>().unwrap_or(0) + hundredths / 100;
    match hundredths % 100 {
        0 => format!("{whole}"),
        tenths if tenths.is_multiple_of(10) => format!("{whole}.{}", tenths / 10),
        hundredths => format!("{whole}.{hundredths:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_rounded_half_up() {
        for (number, text) in [
            (0.0, "0"),
            (0.125, "0.13"),
            (0.375, "0.38"),
            (2.5, "2.5"),
            (1.005, "1"),
            (999.999, "1000"),
            (1023.99902, "1024"),
            (0.004, "0"),
            (7.07, "7.07"),
            (9_223_372_036_854_775_807.0, "9223372036854776000"),
        ] {
            assert_eq!(two_decimals(number), text, "{number}");
        }
    }

    #[test]
    fn units_are_chosen_and_converted() {
        let of = |amount: i64, units: &[&str]| bytes(amount as f64, units);
        assert_eq!(of(60_000, &[]).unwrap(), "58.59 KiB");
        assert_eq!(of(1024, &[]).unwrap(), "1024 B", "one of a unit is shown in the smaller one");
        assert_eq!(of(1 << 31, &[]).unwrap(), "2 GiB");
        assert_eq!(of(1_234_234, &["kib"]).unwrap(), "1205.31 KiB");
        assert_eq!(of(5, &["GiB", "MiB"]).unwrap(), "5120 MiB");
        let wrong = of(5, &["GB"]).unwrap_err().to_string();
        assert_eq!(wrong, "Unsupported data storage unit: GB. Supported units are: B, KiB, MiB, GiB");
        let of = |amount: i64, units: &[&str]| time(amount as f64, units);
        assert_eq!(of(20_250, &[]).unwrap(), "20.25 s");
        assert_eq!(of(999, &[]).unwrap(), "999 ms");
        assert_eq!(of(86_400_000, &[]).unwrap(), "1 d");
        assert_eq!(of(90, &["s", "m"]).unwrap(), "1.5 m");
        assert_eq!(of(1, &["µs"]).unwrap(), "1000 µs");
        let wrong = of(1, &["w"]).unwrap_err().to_string();
        assert_eq!(wrong, "Unsupported time unit: w. Supported units are: ns, us, ms, s, m, h, d");
    }
}

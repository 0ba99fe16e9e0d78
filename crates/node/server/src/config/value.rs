//! Values of options: how each type is written, and how it is shown again.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A number of bytes, written `32MiB`, `16KiB`, `1GiB`, `512B` or plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// So many MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

/// A type that options may have.
pub trait OptionValue: Sized {
    /// The type's name in ScyllaDB's `system.config`; all that is no number and no truth value is a `string`.
    const KIND: &'static str = "string";
    /// Reads a value.
    ///
    /// # Errors
    /// The expected form, for a message behind name and value.
    fn parse(text: &str) -> Result<Self, String>;
    /// The value as `torc.yaml` would have it.
    fn show(&self) -> String;
}

impl OptionValue for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

/// One of a few words, in small letters however it was written: the check and all that compare it have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyword(String);

impl From<&str> for Keyword {
    fn from(word: &str) -> Self {
        Self(word.to_ascii_lowercase())
    }
}

impl std::ops::Deref for Keyword {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for Keyword {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl OptionValue for Keyword {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.trim().into())
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A text that is shown nowhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.show())
    }
}

impl OptionValue for Secret {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }

    fn show(&self) -> String {
        if self.0.is_empty() { String::new() } else { "<redacted>".to_owned() }
    }
}

impl OptionValue for bool {
    const KIND: &'static str = "bool";

    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err("expected true or false".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for tls::ClientAuth {
    fn parse(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("optional") {
            return Ok(Self::Optional);
        }
        let required = bool::parse(text).map_err(|_| "expected true, false or optional".to_owned())?;
        Ok(if required { Self::Required } else { Self::No })
    }

    fn show(&self) -> String {
        let shown = match self {
            Self::No => "false",
            Self::Optional => "optional",
            Self::Required => "true",
        };
        shown.to_owned()
    }
}

macro_rules! numbers {
    ($kind:literal: $($ty:ty),*) => {$(
        impl OptionValue for $ty {
            const KIND: &'static str = $kind;

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("expected a number from {} to {}", <$ty>::MIN, <$ty>::MAX))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
numbers!("integer": i32, u16, u32, u64);
numbers!("double": f64);

impl OptionValue for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("expected a path".to_owned()) } else { Ok(text.into()) }
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl OptionValue for IpAddr {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "localhost" {
            return Ok(IpAddr::from([127, 0, 0, 1]));
        }
        text.parse().map_err(|_| "expected an IP address such as 127.0.0.1 or ::1".to_owned())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

impl OptionValue for Size {
    fn parse(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u32); 9] = [
            ("gib", 30),
            ("mib", 20),
            ("kib", 10),
            ("gb", 30),
            ("mb", 20),
            ("kb", 10),
            ("g", 30),
            ("m", 20),
            ("k", 10),
        ];
        let expected = || "expected a size such as 16KiB, 32MiB, 1GiB or a number of bytes".to_owned();
        let lower = text.trim().to_ascii_lowercase();
        // Cassandra writes rates so; the option decides the unit.
        let lower = lower.strip_suffix("/s").unwrap_or(&lower).to_owned();
        let unit = UNITS.iter().find(|(unit, _)| lower.ends_with(unit));
        let (digits, shift) = match unit {
            Some((unit, shift)) => (&lower[..lower.len() - unit.len()], *shift),
            None => (lower.strip_suffix('b').unwrap_or(&lower), 0),
        };
        let number: u64 = digits.trim().parse().map_err(|_| expected())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(expected)
    }

    fn show(&self) -> String {
        match self.0 {
            n if n > 0 && n % (1 << 30) == 0 => format!("{}GiB", n >> 30),
            n if n > 0 && n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
            n if n > 0 && n % (1 << 10) == 0 => format!("{}KiB", n >> 10),
            n => format!("{n}B"),
        }
    }
}

impl OptionValue for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 6] =
            [("ms", 1), ("us", 0), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let expected = || "expected a duration such as 500ms, 10s, 5m or 3h".to_owned();
        let text = text.trim();
        let (digits, millis) = match UNITS.iter().find(|(unit, _)| text.ends_with(unit)) {
            Some((unit, millis)) => (&text[..text.len() - unit.len()], *millis),
            None => (text, 1),
        };
        let number: u64 = digits.trim().parse().map_err(|_| expected())?;
        match millis {
            0 => Ok(Duration::from_micros(number)),
            millis => number.checked_mul(millis).map(Duration::from_millis).ok_or_else(expected),
        }
    }

    fn show(&self) -> String {
        match self.subsec_nanos() {
            0 => format!("{}s", self.as_secs()),
            nanos if nanos.is_multiple_of(1_000_000) => format!("{}ms", self.as_millis()),
            _ => format!("{}us", self.as_micros()),
        }
    }
}

/// A duration or a size as a number of a unit, rounded down; none for no unit, or another value.
pub(crate) fn in_unit(value: &str, unit: &str) -> Option<u64> {
    let bytes = |shift: u32| Size::parse(value).ok().map(|size| size.0 >> shift);
    let time = || Duration::parse(value).ok();
    match unit {
        "us" => time().and_then(|time| u64::try_from(time.as_micros()).ok()),
        "ms" => time().and_then(|time| u64::try_from(time.as_millis()).ok()),
        "s" => time().map(|time| time.as_secs()),
        "KiB" => bytes(10),
        "MiB" => bytes(20),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_written_with_units() {
        assert_eq!(Size::parse("32MiB"), Ok(Size::mib(32)));
        assert_eq!(Size::parse("24MiB/s"), Ok(Size::mib(24)), "a rate, as Cassandra writes it");
        assert_eq!(Size::parse("16 KiB"), Ok(Size(16 << 10)));
        assert_eq!(Size::parse("1024B"), Ok(Size(1024)));
        assert_eq!(Size::parse("7"), Ok(Size(7)));
        assert!(Size::parse("99999999999GiB").is_err());
        assert!(Size::parse("many").is_err());
        assert_eq!(Size::mib(32).show(), "32MiB");
        assert_eq!(in_unit("5KiB", "KiB"), Some(5));
        assert_eq!(in_unit("1GiB", "MiB"), Some(1024));
        assert_eq!(in_unit("10800s", "ms"), Some(10_800_000));
        assert_eq!(in_unit("3h", "s"), Some(10_800));
        assert_eq!((in_unit("5s", ""), in_unit("much", "MiB")), (None, None));
        assert_eq!(Duration::parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(Duration::parse("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(Duration::parse("250"), Ok(Duration::from_millis(250)));
        assert_eq!(Duration::parse("2h"), Ok(Duration::from_secs(7200)));
        assert!(Duration::parse("soon").is_err());
        assert_eq!(Duration::from_millis(1500).show(), "1500ms");
        assert_eq!(Duration::from_micros(500).show(), "500us", "and not 0ms, which stands for never");
    }
}

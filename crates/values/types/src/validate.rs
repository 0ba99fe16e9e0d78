//! Checks that bytes are a serialised value of a type. Everything that enters the database passes here once; code
//! behind it may assume well-formed values but must not misbehave on others.

use crate::decimal::NUMBER_BYTES_MAX;
use crate::elements::{Elements, Fields, VectorElements};
use crate::{CqlType, TypeError, UserType};
use stdx::{Reader, vint};

impl CqlType {
    /// Checks that `bytes` are a value of the type (native protocol spec, section 6), with Cassandra's messages.
    /// The empty value is accepted where Cassandra accepts it.
    ///
    /// # Errors
    /// [`TypeError::Length`] when the type does not allow so many bytes; [`TypeError::Refused`] when the bytes are not
    /// its encoding (text that is not UTF-8, an element that its own type refuses, bytes behind the last element).
    pub fn validate(&self, bytes: &[u8]) -> Result<(), TypeError> {
        match self {
            CqlType::Blob => Ok(()),
            CqlType::Varint | CqlType::Decimal if bytes.len() > NUMBER_BYTES_MAX => {
                Err(TypeError::Refused(format!(
                    "A {} of {} bytes: at most {NUMBER_BYTES_MAX} are allowed",
                    self.cql_name(),
                    bytes.len()
                )))
            }
            CqlType::Varint => Ok(()),
            CqlType::Text => match std::str::from_utf8(bytes) {
                Ok(_) => Ok(()),
                Err(_) => Err(TypeError::refused("String didn't validate.")),
            },
            CqlType::Ascii => match bytes.iter().find(|byte| !byte.is_ascii()) {
                None => Ok(()),
                Some(byte) => Err(TypeError::refused(format!("Invalid byte for ascii: {}", *byte as i8))),
            },
            CqlType::Boolean if bytes.len() > 1 => length("Expected 1 or 0 byte value", bytes),
            CqlType::Boolean => Ok(()),
            CqlType::Bigint | CqlType::Counter => length_or_empty(8, "Expected 8 or 0 byte long", bytes),
            CqlType::Int => length_or_empty(4, "Expected 4 or 0 byte int", bytes),
            CqlType::Smallint if bytes.len() != 2 => length("Expected 2 bytes for a smallint", bytes),
            CqlType::Tinyint if bytes.len() != 1 => length("Expected 1 byte for a tinyint", bytes),
            CqlType::Date if bytes.len() != 4 => length("Expected 4 byte long for date", bytes),
            CqlType::Time if bytes.len() != 8 => length("Expected 8 byte long for time", bytes),
            CqlType::Smallint | CqlType::Tinyint | CqlType::Date | CqlType::Time => Ok(()),
            CqlType::Timestamp => length_or_empty(8, "Expected 8 or 0 byte long for date", bytes),
            CqlType::Float => length_or_empty(4, "Expected 4 or 0 byte value for a float", bytes),
            CqlType::Double => length_or_empty(8, "Expected 8 or 0 byte value for a double", bytes),
            CqlType::Decimal if (1..4).contains(&bytes.len()) => {
                length("Expected 0 or at least 4 bytes", bytes)
            }
            // A scale alone, without an unscaled value, cannot be read.
            CqlType::Decimal if bytes.len() == 4 => length("Expected 0 or at least 5 bytes", bytes),
            CqlType::Decimal => Ok(()),
            CqlType::Duration => validate_duration(bytes),
            CqlType::Inet if matches!(bytes.len(), 0 | 4 | 16) => Ok(()),
            CqlType::Inet => {
                let text = format!("Expected 4 or 16 byte inetaddress; got {}", hex(bytes));
                Err(TypeError::Refused(text))
            }
            CqlType::Uuid => length_or_empty(16, "UUID should be 16 or 0 bytes", bytes),
            CqlType::Timeuuid => validate_timeuuid(bytes),
            CqlType::List { element, .. } => {
                validate_elements(Elements::of_list(bytes)?, [element, element], "list")
            }
            CqlType::Set { element, .. } => {
                validate_elements(Elements::of_set(bytes)?, [element, element], "set")
            }
            CqlType::Map { key, value, .. } => {
                validate_elements(Elements::of_map(bytes)?, [key, value], "map")
            }
            CqlType::Tuple(fields) => validate_tuple(fields, bytes),
            CqlType::Udt { ty, .. } => validate_udt(ty, bytes),
            CqlType::Vector { element, dimension } => self.validate_vector(element, *dimension, bytes),
            CqlType::Custom(class) => crate::custom::validate(class, bytes),
        }
    }

    /// [`CqlType::validate`] of the list of the values of an `IN`, in which nulls may stand.
    ///
    /// # Errors
    /// As [`CqlType::validate`].
    pub fn validate_choice(&self, bytes: &[u8]) -> Result<(), TypeError> {
        let CqlType::List { element, .. } = self else { return self.validate(bytes) };
        let mut elements = Elements::of_list(bytes)?;
        for value in elements.by_ref() {
            if let Some(value) = value? {
                element.validate(value)?;
            }
        }
        nothing_behind(&elements, "list")
    }

    fn validate_vector(&self, element: &CqlType, dimension: u32, bytes: &[u8]) -> Result<(), TypeError> {
        if bytes.is_empty() {
            return Err(TypeError::refused("Invalid empty vector value"));
        }
        let mut elements = VectorElements::new(element, dimension, bytes);
        for value in elements.by_ref() {
            let value = value
                .map_err(|_| TypeError::Refused(format!("Not enough bytes to read a {}", self.cql_name())))?;
            element.validate(value)?;
        }
        match elements.rest().len() {
            0 => Ok(()),
            rest => Err(TypeError::Refused(format!(
                "Unexpected {rest} extraneous bytes after {} value",
                self.cql_name()
            ))),
        }
    }

    /// Whether an empty value is a value of the type's own domain (an empty string) rather than Cassandra's extra
    /// "empty" that types like `int` keep for compatibility.
    pub fn empty_is_a_value(&self) -> bool {
        matches!(self, CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_))
    }

    /// Whether a serialised value may have no bytes at all.
    pub fn allows_empty(&self) -> bool {
        self.validate(&[]).is_ok()
    }
}

fn length(expected: &'static str, bytes: &[u8]) -> Result<(), TypeError> {
    Err(TypeError::Length { expected, actual: bytes.len() })
}

fn length_or_empty(len: usize, expected: &'static str, bytes: &[u8]) -> Result<(), TypeError> {
    if bytes.len() == len || bytes.is_empty() { Ok(()) } else { length(expected, bytes) }
}

fn validate_timeuuid(bytes: &[u8]) -> Result<(), TypeError> {
    length_or_empty(16, "UUID should be 16 or 0 bytes", bytes)?;
    match bytes.get(6) {
        Some(byte) if byte >> 4 != 1 => {
            // Cassandra shows the first digit of the UUID here, not the version's.
            let shown = bytes.first().map_or(0, |byte| byte >> 4);
            Err(TypeError::Refused(format!("Invalid version for TimeUUID type: 0x{shown:x}")))
        }
        _ => Ok(()),
    }
}

fn validate_duration(bytes: &[u8]) -> Result<(), TypeError> {
    if bytes.len() < 3 {
        return length("Expected at least 3 bytes for a duration", bytes);
    }
    let mut reader = Reader::new(bytes);
    let mut read = || {
        vint::read_signed(&mut reader).map_err(|_| TypeError::Length {
            expected: "Expected three vints for a duration",
            actual: bytes.len(),
        })
    };
    let (months, days, nanos) = (read()?, read()?, read()?);
    for (unit, value) in [("months", months), ("days", days)] {
        if i32::try_from(value).is_err() {
            let text = format!("The duration {unit} must be a 32 bits integer but was: {value}");
            return Err(TypeError::Refused(text));
        }
    }
    let all_up = months >= 0 && days >= 0 && nanos >= 0;
    let all_down = months <= 0 && days <= 0 && nanos <= 0;
    if all_up || all_down {
        return Ok(());
    }
    Err(TypeError::Refused(format!(
        "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanos})"
    )))
}

fn validate_elements(
    mut elements: Elements<'_>,
    types: [&std::sync::Arc<CqlType>; 2],
    kind: &str,
) -> Result<(), TypeError> {
    for (i, element) in elements.by_ref().enumerate() {
        let Some(bytes) = element? else {
            return Err(TypeError::refused("Null value read when not allowed"));
        };
        let [even, odd] = types;
        let ty = if i.is_multiple_of(2) { even } else { odd };
        ty.validate(bytes)?;
    }
    nothing_behind(&elements, kind)
}

fn nothing_behind(elements: &Elements<'_>, kind: &str) -> Result<(), TypeError> {
    match elements.rest().is_empty() {
        true => Ok(()),
        false => Err(TypeError::Refused(format!("Unexpected extraneous bytes after {kind} value"))),
    }
}

fn validate_tuple(types: &[CqlType], bytes: &[u8]) -> Result<(), TypeError> {
    let mut fields = Fields::new(bytes);
    for ty in types {
        match fields.next() {
            None => return Ok(()),
            Some(field) => {
                if let Some(field) = field? {
                    ty.validate(field)?;
                }
            }
        }
    }
    if fields.rest().is_empty() {
        return Ok(());
    }
    Err(TypeError::refused("Invalid remaining data after end of tuple value"))
}

fn validate_udt(ty: &UserType, bytes: &[u8]) -> Result<(), TypeError> {
    let mut fields = Fields::new(bytes);
    for (i, (name, ty)) in ty.fields.iter().enumerate() {
        let short = |what| TypeError::Refused(format!("Not enough bytes to read {what}{i}th field {name}"));
        let too_short_for_size = (1..4).contains(&fields.rest().len());
        match fields.next() {
            None => return Ok(()),
            Some(Err(_)) => return Err(short(if too_short_for_size { "size of " } else { "" })),
            Some(Ok(None)) => {}
            Some(Ok(Some(field))) => ty.validate(field).map_err(|error| {
                TypeError::Refused(format!("Failure validating the {i}th field {name}; {error}"))
            })?,
        }
    }
    if fields.rest().is_empty() {
        return Ok(());
    }
    Err(TypeError::refused("Invalid remaining data after end of UDT value"))
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    push_hex(bytes, &mut out);
    out
}

/// Appends bytes as lower-case hexadecimal digits.
#[expect(clippy::indexing_slicing, reason = "the index has four bits")]
pub(crate) fn push_hex(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// The value of each hexadecimal digit by its character; more than 15 for other characters.
#[allow(clippy::indexing_slicing, reason = "the compiler evaluates it")]
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        let lower = b"0123456789abcdef"[digit as usize];
        values[lower as usize] = digit;
        values[lower.to_ascii_uppercase() as usize] = digit;
        digit += 1;
    }
    values
};

/// Bytes of a text of hexadecimal digits, in any case; `None` when it is none.
#[expect(clippy::indexing_slicing, reason = "the table has all bytes")]
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    // Wrong digits are noted and judged at the end: literals have millions of digits.
    let mut noted = 0;
    for [high, low] in digits.as_chunks::<2>().0 {
        let (high, low) = (DIGIT_VALUES[usize::from(*high)], DIGIT_VALUES[usize::from(*low)]);
        noted |= high | low;
        bytes.push(high << 4 | low & 15);
    }
    (noted <= 15).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_of_any_case_and_nothing_else() {
        assert_eq!(unhex("00fFAb10"), Some(vec![0, 0xff, 0xab, 0x10]));
        assert_eq!((unhex(""), unhex("0")), (Some(Vec::new()), None));
        for byte in 0..=127u8 {
            let value = char::from(byte).to_digit(16).map(|digit| vec![digit as u8 | 0xd0]);
            assert_eq!(unhex(&format!("d{}", char::from(byte))), value, "{byte}");
            let value = char::from(byte).to_digit(16).map(|digit| vec![(digit as u8) << 4 | 7]);
            assert_eq!(unhex(&format!("{}7", char::from(byte))), value, "{byte}");
        }
        assert_eq!(unhex("\u{ff}"), None);
    }
}

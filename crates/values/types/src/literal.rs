//! Values from text, and which constants of CQL may stand for which types.

use crate::decimal::{DIGITS_MAX, Decimal};
use crate::duration::Duration;
use crate::elements::build_tuple;
use crate::number_text::{parse_double, parse_float};
use crate::temporal::{parse_date, parse_time, parse_timestamp};
use crate::validate::unhex;
use crate::{Assignment, CqlType, TypeError, inet, uuid};
use num_bigint::BigInt;

/// The kinds of constants that CQL's grammar distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstantKind {
    /// `'text'` or `$$text$$`
    String,
    /// `12`
    Integer,
    /// An UUID without quotes.
    Uuid,
    /// `1.5`, `1e3`, `NaN`, `Infinity`
    Float,
    /// `true`, `false`
    Boolean,
    /// `0x12`
    Hex,
    /// `3d12h`
    Duration,
}

impl ConstantKind {
    /// Cassandra's name of the kind, for error messages: `Invalid INTEGER constant (1) for "a" of type text`.
    pub fn name(self) -> &'static str {
        match self {
            ConstantKind::String => "STRING",
            ConstantKind::Integer => "INTEGER",
            ConstantKind::Uuid => "UUID",
            ConstantKind::Float => "FLOAT",
            ConstantKind::Boolean => "BOOLEAN",
            ConstantKind::Hex => "HEX",
            ConstantKind::Duration => "DURATION",
        }
    }

    /// The type that a constant has when nothing else says it: `ascii` or `text` for strings; for integers the
    /// smallest of `int`, `bigint` and `varint` that holds it; for fractions `double` when it holds the exact value.
    pub fn preferred_type(self, text: &str) -> CqlType {
        match self {
            ConstantKind::String if text.is_ascii() => CqlType::Ascii,
            ConstantKind::String => CqlType::Text,
            ConstantKind::Integer if text.parse::<i32>().is_ok() => CqlType::Int,
            ConstantKind::Integer if text.parse::<i64>().is_ok() => CqlType::Bigint,
            ConstantKind::Integer => CqlType::Varint,
            ConstantKind::Uuid => match uuid::parse(text).as_ref().and_then(|bytes| uuid::version(bytes)) {
                Some(1) => CqlType::Timeuuid,
                _ => CqlType::Uuid,
            },
            ConstantKind::Float if fits_double(text) => CqlType::Double,
            ConstantKind::Float => CqlType::Decimal,
            ConstantKind::Boolean => CqlType::Boolean,
            ConstantKind::Hex => CqlType::Blob,
            ConstantKind::Duration => CqlType::Duration,
        }
    }

    /// Whether a constant may be given where a value of the type is wanted.
    pub fn assignment(self, text: &str, ty: &CqlType) -> Assignment {
        use CqlType::*;
        if ty.is_collection() || ty.is_udt() || matches!(ty, Vector { .. }) {
            return Assignment::None;
        }
        if *ty == self.preferred_type(text) {
            return Assignment::Exact;
        }
        if self.fits(ty) { Assignment::Weak } else { Assignment::None }
    }

    fn fits(self, ty: &CqlType) -> bool {
        use CqlType::*;
        // Cassandra lets the text of any constant stand for types that have no constants of their own.
        if matches!(ty, Tuple(_) | Custom(_)) {
            return true;
        }
        match self {
            ConstantKind::String => matches!(ty, Ascii | Text | Inet | Date | Time | Timestamp),
            ConstantKind::Integer => matches!(
                ty,
                Bigint
                    | Counter
                    | Date
                    | Decimal
                    | Double
                    | Duration
                    | Float
                    | Int
                    | Smallint
                    | Time
                    | Timestamp
                    | Tinyint
                    | Varint
            ),
            ConstantKind::Uuid => matches!(ty, Uuid | Timeuuid),
            ConstantKind::Float => matches!(ty, Decimal | Double | Float),
            ConstantKind::Boolean => matches!(ty, Boolean),
            ConstantKind::Hex => matches!(ty, Blob),
            ConstantKind::Duration => matches!(ty, Duration),
        }
    }

    /// The value of a constant of the kind for a type that it may be [assigned](ConstantKind::assignment) to. `text` is without quotes;
    /// hexadecimal constants keep their `0x`. `now_ms` is the value of the timestamp `'now'`.
    ///
    /// # Errors
    /// A [`TypeError`] when the text is no literal of the type or out of its range.
    pub fn value(self, ty: &CqlType, text: &str, now_ms: i64) -> Result<Vec<u8>, TypeError> {
        match (self, ty) {
            (ConstantKind::Hex, _) => CqlType::Blob.from_string(text.get(2..).unwrap_or_default()),
            (_, CqlType::Counter) => CqlType::Bigint.from_string(text),
            _ => ty.from_string_at(text, now_ms),
        }
    }
}

impl CqlType {
    /// The serialised value of a text, as Cassandra reads the inside of a string literal of the type. The empty text
    /// is the empty value for most types. Blobs, collections and vectors are hexadecimal digits without `0x`.
    ///
    /// # Errors
    /// [`TypeError::Unparsable`] or [`TypeError::Refused`], in Cassandra's words, when the text is no literal of the
    /// type or out of its range.
    pub fn from_string(&self, text: &str) -> Result<Vec<u8>, TypeError> {
        self.read_text(text, None)
    }

    /// Like [`CqlType::from_string`], where the timestamp `now` means `now_ms` (milliseconds since the epoch).
    ///
    /// # Errors
    /// As [`CqlType::from_string`].
    pub fn from_string_at(&self, text: &str, now_ms: i64) -> Result<Vec<u8>, TypeError> {
        self.read_text(text, Some(now_ms))
    }

    fn read_text(&self, text: &str, now_ms: Option<i64>) -> Result<Vec<u8>, TypeError> {
        match self {
            CqlType::Text => return Ok(text.as_bytes().to_vec()),
            CqlType::Ascii => return ascii(text),
            CqlType::Boolean => return boolean(text),
            CqlType::Date => return Ok(parse_date(text)?.to_be_bytes().to_vec()),
            CqlType::Time => return Ok(parse_time(text)?.to_be_bytes().to_vec()),
            CqlType::Custom(class) if let Some(value) = crate::custom::from_string(class, text) => {
                return value;
            }
            CqlType::Blob
            | CqlType::Custom(_)
            | CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Vector { .. } => {
                let refused = || TypeError::Refused(format!("cannot parse '{text}' as hex bytes"));
                return unhex(text).ok_or_else(refused);
            }
            CqlType::Tuple(types) => return self.fields_of(types.iter(), text, now_ms),
            CqlType::Udt { ty, .. } => {
                return self.fields_of(ty.fields.iter().map(|(_, field)| field), text, now_ms);
            }
            _ if text.is_empty() => return Ok(Vec::new()),
            _ => {}
        }
        let unable = |what| TypeError::Unparsable { what, text: text.to_owned() };
        match self {
            CqlType::Int => integer::<i32, 4>(text, i32::to_be_bytes).ok_or_else(|| unable("int")),
            CqlType::Bigint | CqlType::Counter => {
                integer::<i64, 8>(text, i64::to_be_bytes).ok_or_else(|| unable("long"))
            }
            CqlType::Smallint => integer::<i16, 2>(text, i16::to_be_bytes).ok_or_else(|| unable("short")),
            CqlType::Tinyint => integer::<i8, 1>(text, i8::to_be_bytes).ok_or_else(|| unable("byte")),
            CqlType::Varint => match big_integer(text) {
                Some(number) => Ok(number.to_signed_bytes_be()),
                None => Err(not_a_number("int", text)),
            },
            CqlType::Decimal => match text.parse::<Decimal>() {
                Ok(number) => Ok(number.to_bytes()),
                Err(()) => Err(not_a_number("BigDecimal", text)),
            },
            CqlType::Float => {
                parse_float(text).map(|number| number.to_be_bytes().to_vec()).ok_or_else(|| unable("float"))
            }
            CqlType::Double => {
                parse_double(text).map(|number| number.to_be_bytes().to_vec()).ok_or_else(|| unable("double"))
            }
            CqlType::Uuid => uuid::parse(text).map(Vec::from).ok_or_else(|| unable("UUID")),
            CqlType::Timeuuid => timeuuid(text),
            CqlType::Inet => inet::parse(text).ok_or_else(|| unable("inet address")),
            CqlType::Timestamp => Ok(parse_timestamp(text, now_ms)?.to_be_bytes().to_vec()),
            CqlType::Duration => Ok(Duration::parse(text)?.to_bytes()),
            _ => Err(unable("value")),
        }
    }

    /// Fields with `:` between them and `@` for null; both are escaped inside.
    fn fields_of<'t>(
        &self,
        types: impl ExactSizeIterator<Item = &'t CqlType>,
        text: &str,
        now_ms: Option<i64>,
    ) -> Result<Vec<u8>, TypeError> {
        let texts = split_fields(text);
        if texts.len() > types.len() {
            return Err(TypeError::Refused(format!(
                "Invalid tuple literal: too many elements. Type {} expects {} but got {}",
                self.cql_name(),
                types.len(),
                texts.len()
            )));
        }
        let fields = types.zip(texts).map(|(ty, text)| match text.as_str() {
            "@" => Ok(None),
            _ => ty.read_text(&text.replace("\\:", ":").replace("\\@", "@"), now_ms).map(Some),
        });
        Ok(build_tuple(fields.collect::<Result<Vec<_>, TypeError>>()?))
    }
}

/// Whether a number with a fraction is exactly a double: it has the digits that the double is written with.
fn fits_double(text: &str) -> bool {
    let Some(double) = parse_double(text) else { return false };
    if !double.is_finite() {
        return text.ends_with("NaN") || text.ends_with("Infinity");
    }
    let written = crate::number_text::format_double(double);
    matches!((significant(text), significant(&written)), (Some(a), Some(b)) if a == b)
}

/// A number in decimal notation as 0.DIGITS × 10^exponent, without zeros at either end; no digits for zero.
fn significant(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (negative, unsigned) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let leading = digits.len() - digits.trim_start_matches('0').len();
    let digits = digits.trim_matches('0').to_owned();
    if digits.is_empty() {
        return Some((false, digits, 0));
    }
    Some((negative, digits, exponent.checked_add(whole.len() as i64)?.checked_sub(leading as i64)?))
}

/// Splits at colons that no backslash precedes; the empty text has no fields.
fn split_fields(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut fields = vec![String::new()];
    let mut previous = ' ';
    for c in text.chars() {
        match fields.last_mut() {
            Some(field) if c != ':' || previous == '\\' => field.push(c),
            _ => fields.push(String::new()),
        }
        previous = c;
    }
    fields
}

/// The refusal of a text as a number of any size.
fn not_a_number(what: &str, text: &str) -> TypeError {
    TypeError::Refused(match text.len() > DIGITS_MAX {
        true => format!(
            "unable to make {what} from a text of {} characters: at most {DIGITS_MAX} digits are allowed",
            text.len()
        ),
        false => format!("unable to make {what} from '{text}'"),
    })
}

fn integer<T: std::str::FromStr, const LEN: usize>(text: &str, bytes: fn(T) -> [u8; LEN]) -> Option<Vec<u8>> {
    text.parse().ok().map(|number| bytes(number).to_vec())
}

/// Accepts the texts of Java's `BigInteger(String)`.
pub(crate) fn big_integer(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.len() > DIGITS_MAX || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn ascii(text: &str) -> Result<Vec<u8>, TypeError> {
    if text.is_ascii() {
        return Ok(text.as_bytes().to_vec());
    }
    let what = "java.nio.charset.UnmappableCharacterException: Input length = 1";
    Err(TypeError::Refused(format!("Invalid ASCII character in string literal: {what}")))
}

fn boolean(text: &str) -> Result<Vec<u8>, TypeError> {
    if text.is_empty() || text.eq_ignore_ascii_case("false") {
        Ok(vec![0])
    } else if text.eq_ignore_ascii_case("true") {
        Ok(vec![1])
    } else {
        Err(TypeError::Unparsable { what: "boolean", text: text.to_owned() })
    }
}

fn timeuuid(text: &str) -> Result<Vec<u8>, TypeError> {
    let Some(bytes) = uuid::parse(text) else {
        return Err(TypeError::Refused(format!("Unknown timeuuid representation: {text}")));
    };
    if uuid::version(&bytes) != Some(1) {
        return Err(TypeError::refused("TimeUUID supports only version 1 UUIDs"));
    }
    Ok(bytes.to_vec())
}

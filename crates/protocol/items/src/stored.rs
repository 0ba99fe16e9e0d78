//! The stored form of attributes that are no key: a byte for the type and the value, as ScyllaDB's Alternator documents it. Strings,
//! bytes, booleans and numbers have a form of their own; the rest is the API's JSON. A number of many zeros within it has an exponent, which
//! the API's readers take as well: as the API sends `1E125` it has 45 times the bytes that AWS counts.

use std::borrow::Cow;

use stdx::base64;

use crate::{Number, Value, json};

const STRING: u8 = 0;
const BINARY: u8 = 1;
const BOOLEAN: u8 = 2;
const NUMBER: u8 = 3;
const JSON: u8 = 4;

/// The stored form.
pub fn encode(value: &Value) -> Vec<u8> {
    let with = |kind: u8, bytes: &[u8]| {
        let mut out = Vec::with_capacity(1 + bytes.len());
        out.push(kind);
        out.extend_from_slice(bytes);
        out
    };
    match value {
        Value::S(text) => with(STRING, text.as_bytes()),
        Value::B(bytes) => with(BINARY, bytes),
        Value::Bool(truth) => with(BOOLEAN, &[u8::from(*truth)]),
        Value::N(number) => with(NUMBER, &number.to_decimal()),
        _ => {
            let mut text = String::from(char::from(JSON));
            json::write_stored_value(value, &mut text);
            text.into_bytes()
        }
    }
}

/// The bytes of a stored attribute of this type (`S`, `N` or `B`), serialised as a column of its type is; none of any other.
pub fn key_bytes<'a>(kind: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_first()?;
    matches!((kind, *first), ("S", STRING) | ("B", BINARY) | ("N", NUMBER)).then_some(rest)
}

/// The value; none when the bytes are not of this form, which a writer in CQL may have left.
pub fn decode(bytes: &[u8]) -> Option<Value> {
    let (kind, bytes) = bytes.split_first()?;
    match *kind {
        STRING => Some(Value::S(std::str::from_utf8(bytes).ok()?.to_owned())),
        BINARY => Some(Value::B(bytes.to_vec())),
        BOOLEAN => Some(Value::Bool(*bytes.first()? != 0)),
        NUMBER => Number::from_decimal(bytes).map(Value::N),
        JSON => json::read_value(&serde_json::from_slice(bytes).ok()?).ok(),
        _ => None,
    }
}

/// Appends the JSON of a stored value as the API sends it, without a [`Value`] where the stored form is not JSON; its [`Value::size`]. None, and nothing
/// is appended, for other bytes.
pub fn write_json(bytes: &[u8], out: &mut String) -> Option<usize> {
    let (first, rest) = bytes.split_first()?;
    let kind = match *first {
        STRING => "S",
        BINARY => "B",
        NUMBER => "N",
        _ => {
            let value = decode(bytes)?;
            json::write_sent_value(&value, out);
            return Some(value.size());
        }
    };
    write_key_json(kind, rest, out)
}

/// The same of a value of this type (`S`, `N` or `B`), serialised as a column of its type is.
pub fn write_key_json(kind: &str, bytes: &[u8], out: &mut String) -> Option<usize> {
    let (text, size): (Cow<'_, str>, usize) = match kind {
        "S" => (std::str::from_utf8(bytes).ok()?.into(), bytes.len()),
        "N" => {
            let number = Number::from_decimal(bytes)?;
            (number.to_string().into(), number.size())
        }
        _ => (base64::encode(bytes).into(), bytes.len()),
    };
    json::write_typed(kind, &text, out);
    Some(size)
}

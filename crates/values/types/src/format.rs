//! Serialised values as CQL literals and as plain text.

use crate::decimal::Decimal;
use crate::duration::Duration;
use crate::elements::{Elements, Fields, VectorElements};
use crate::number_text::{format_double, format_float};
use crate::temporal::{DATE_OFFSET, format_date, format_time, format_timestamp};
use crate::validate::{hex, push_hex};
use crate::{CqlType, inet, quote_identifier, uuid};
use num_bigint::BigInt;

impl CqlType {
    /// The value as a CQL literal, as `DESCRIBE` and error messages show it: text in single quotes, blobs as `0x…`,
    /// collections with their brackets. The empty value of a type like `int` is `null`. Bytes that are no value of
    /// the type are shown as a blob.
    pub fn format(&self, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.write_literal(bytes, &mut out);
        out
    }

    /// The value as plain text: the result of a cast to text, and the input of [`CqlType::from_string`]. Collections and
    /// vectors are hexadecimal digits, tuples and user types their fields with `:` between and `@` for null.
    pub fn to_text(&self, bytes: &[u8]) -> String {
        match self {
            CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } | CqlType::Vector { .. } => {
                hex(bytes)
            }
            CqlType::Blob | CqlType::Custom(_) => hex(bytes),
            CqlType::Tuple(types) => fields_text(types.iter(), bytes),
            CqlType::Udt { ty, .. } => fields_text(ty.fields.iter().map(|(_, field)| field), bytes),
            _ if bytes.is_empty() => String::new(),
            simple => simple.simple_text(bytes).unwrap_or_else(|| hex(bytes)),
        }
    }

    fn write_literal(&self, bytes: &[u8], out: &mut String) {
        if bytes.is_empty() && !self.empty_is_a_value() && !self.is_tuple() && !self.is_udt() {
            out.push_str("null");
            return;
        }
        match self {
            CqlType::Text | CqlType::Ascii => match std::str::from_utf8(bytes) {
                Ok(text) => push_quoted(text, out),
                Err(_) => push_blob(bytes, out),
            },
            CqlType::Blob | CqlType::Custom(_) => push_blob(bytes, out),
            CqlType::List { element, .. } => {
                write_elements(Elements::of_list(bytes).ok(), [element, element], ["[", "]"], out);
            }
            CqlType::Set { element, .. } => {
                write_elements(Elements::of_set(bytes).ok(), [element, element], ["{", "}"], out);
            }
            CqlType::Map { key, value, .. } => write_map(Elements::of_map(bytes).ok(), key, value, out),
            CqlType::Vector { element, dimension } => {
                out.push('[');
                for (i, item) in VectorElements::new(element, *dimension, bytes).flatten().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    element.write_literal(item, out);
                }
                out.push(']');
            }
            CqlType::Tuple(types) => {
                out.push('(');
                for (i, (ty, field)) in types.iter().zip(Fields::new(bytes)).enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    ty.write_nullable(field.unwrap_or_default(), out);
                }
                out.push(')');
            }
            CqlType::Udt { ty, .. } => {
                out.push('{');
                for (i, ((name, ty), field)) in ty.fields.iter().zip(Fields::new(bytes)).enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    out.push_str(&quote_identifier(name));
                    out.push_str(": ");
                    ty.write_nullable(field.unwrap_or_default(), out);
                }
                out.push('}');
            }
            simple => match simple.simple_text(bytes) {
                Some(text) if simple.literal_is_quoted() => push_quoted(&text, out),
                Some(text) => out.push_str(&text),
                None => push_blob(bytes, out),
            },
        }
    }

    fn write_nullable(&self, value: Option<&[u8]>, out: &mut String) {
        match value {
            Some(value) => self.write_literal(value, out),
            None => out.push_str("null"),
        }
    }

    fn literal_is_quoted(&self) -> bool {
        matches!(self, CqlType::Inet | CqlType::Date | CqlType::Time | CqlType::Timestamp)
    }

    /// The text of a native type's value; `None` when the bytes are none, or the empty one of a type like
    /// `int`.
    pub(crate) fn simple_text(&self, bytes: &[u8]) -> Option<String> {
        if bytes.is_empty() && !self.empty_is_a_value() && !self.is_tuple() && !self.is_udt() {
            return None;
        }
        Some(match self {
            CqlType::Text | CqlType::Ascii => std::str::from_utf8(bytes).ok()?.to_owned(),
            CqlType::Bigint | CqlType::Counter => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
            CqlType::Int => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
            CqlType::Smallint => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
            CqlType::Tinyint => i8::from_be_bytes(bytes.try_into().ok()?).to_string(),
            CqlType::Boolean => (*bytes.first()? != 0).to_string(),
            CqlType::Varint => BigInt::from_signed_bytes_be(bytes).to_string(),
            CqlType::Decimal => Decimal::read(bytes)?.to_string(),
            CqlType::Float => format_float(f32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Double => format_double(f64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Uuid | CqlType::Timeuuid => uuid::format(bytes)?,
            CqlType::Inet => inet::format(bytes)?,
            CqlType::Date => format_date(i64::from(u32::from_be_bytes(bytes.try_into().ok()?)) - DATE_OFFSET),
            CqlType::Time => format_time(i64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Timestamp => format_timestamp(i64::from_be_bytes(bytes.try_into().ok()?), 'T'),
            CqlType::Duration => Duration::read(bytes)?.format(),
            _ => return None,
        })
    }
}

fn fields_text<'t>(types: impl Iterator<Item = &'t CqlType>, bytes: &[u8]) -> String {
    let mut out = String::new();
    for (i, (ty, field)) in types.zip(Fields::new(bytes)).enumerate() {
        if i > 0 {
            out.push(':');
        }
        match field.unwrap_or_default() {
            // The delimiter and the sign for null are escaped inside.
            Some(field) => out.push_str(&ty.to_text(field).replace(':', "\\:").replace('@', "\\@")),
            None => out.push('@'),
        }
    }
    out
}

fn write_elements(
    elements: Option<Elements<'_>>,
    types: [&CqlType; 2],
    brackets: [&str; 2],
    out: &mut String,
) {
    let [open, close] = brackets;
    let [ty, _] = types;
    out.push_str(open);
    for (i, element) in elements.into_iter().flatten().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        ty.write_nullable(element.unwrap_or_default(), out);
    }
    out.push_str(close);
}

fn write_map(elements: Option<Elements<'_>>, key: &CqlType, value: &CqlType, out: &mut String) {
    out.push('{');
    for (i, element) in elements.into_iter().flatten().enumerate() {
        let is_key = i.is_multiple_of(2);
        out.push_str(match (i, is_key) {
            (0, _) => "",
            (_, true) => ", ",
            (_, false) => ": ",
        });
        let ty = if is_key { key } else { value };
        ty.write_nullable(element.unwrap_or_default(), out);
    }
    out.push('}');
}

/// Appends a text in single quotes, those inside doubled.
fn push_quoted(text: &str, out: &mut String) {
    out.push('\'');
    out.push_str(&text.replace('\'', "''"));
    out.push('\'');
}

fn push_blob(bytes: &[u8], out: &mut String) {
    out.push_str("0x");
    push_hex(bytes, out);
}

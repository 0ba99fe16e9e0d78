//! From serialised values to JSON text.

use super::value::{write_escaped, write_string};
use crate::CqlType;
use crate::elements::{Elements, Fields, VectorElements};
use crate::temporal::format_timestamp;
use crate::validate::push_hex;

impl CqlType {
    /// The JSON text of a serialised value. NaN and the infinities, which JSON lacks, are `null`; the empty value of a
    /// type like `int` is `""`.
    pub fn to_json(&self, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.write_json(bytes, &mut out);
        out
    }

    /// Like [`CqlType::to_json`], appending to `out`.
    pub fn write_json(&self, bytes: &[u8], out: &mut String) {
        match self {
            CqlType::List { element, .. } => write_elements(Elements::of_list(bytes).ok(), element, out),
            CqlType::Set { element, .. } => write_elements(Elements::of_set(bytes).ok(), element, out),
            CqlType::Map { key, value, .. } => write_map(Elements::of_map(bytes).ok(), key, value, out),
            CqlType::Vector { element, dimension } => {
                out.push('[');
                for (i, item) in VectorElements::new(element, *dimension, bytes).flatten().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    element.write_json(item, out);
                }
                out.push(']');
            }
            CqlType::Tuple(types) => {
                out.push('[');
                let mut fields = Fields::new(bytes);
                for (i, ty) in types.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    ty.write_nullable_json(fields.next().and_then(Result::ok).flatten(), out);
                }
                out.push(']');
            }
            CqlType::Udt { ty, .. } => {
                out.push('{');
                let mut fields = Fields::new(bytes);
                for (i, (name, ty)) in ty.fields.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    write_string(&json_name(name), out);
                    out.push_str(": ");
                    ty.write_nullable_json(fields.next().and_then(Result::ok).flatten(), out);
                }
                out.push('}');
            }
            CqlType::Blob | CqlType::Custom(_) => {
                out.push_str("\"0x");
                push_hex(bytes, out);
                out.push('"');
            }
            simple => simple.write_simple_json(bytes, out),
        }
    }

    fn write_nullable_json(&self, value: Option<&[u8]>, out: &mut String) {
        match value {
            Some(value) => self.write_json(value, out),
            None => out.push_str("null"),
        }
    }

    fn write_simple_json(&self, bytes: &[u8], out: &mut String) {
        if let CqlType::Timestamp = self
            && let Ok(ms) = bytes.try_into().map(i64::from_be_bytes)
        {
            return write_string(&format_timestamp(ms, ' '), out);
        }
        let Some(text) = self.simple_text(bytes) else {
            out.push_str("\"\"");
            return;
        };
        match self {
            CqlType::Float | CqlType::Double if text.ends_with("NaN") || text.ends_with("Infinity") => {
                out.push_str("null");
            }
            CqlType::Boolean => out.push_str(&text),
            number if number.is_numeric() => out.push_str(&text),
            _ => write_string(&text, out),
        }
    }
}

/// A column's or field's name in JSON: in further quotes when it is not all lower case.
pub(super) fn json_name(name: &str) -> String {
    if name == name.to_lowercase() { name.to_owned() } else { format!("\"{name}\"") }
}

fn write_elements(elements: Option<Elements<'_>>, ty: &CqlType, out: &mut String) {
    out.push('[');
    for (i, element) in elements.into_iter().flatten().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        ty.write_nullable_json(element.unwrap_or_default(), out);
    }
    out.push(']');
}

fn write_map(elements: Option<Elements<'_>>, key: &CqlType, value: &CqlType, out: &mut String) {
    out.push('{');
    for (i, element) in elements.into_iter().flatten().enumerate() {
        let element = element.unwrap_or_default();
        if !i.is_multiple_of(2) {
            out.push_str(": ");
            value.write_nullable_json(element, out);
            continue;
        }
        out.push_str(if i > 0 { ", " } else { "" });
        let mut text = String::new();
        key.write_nullable_json(element, &mut text);
        if text.starts_with('"') {
            out.push_str(&text);
        } else {
            out.push('"');
            write_escaped(&text, out);
            out.push('"');
        }
    }
    out.push('}');
}

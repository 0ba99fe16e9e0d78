//! From JSON values to serialised ones.

use super::value::{Value, parse};
use crate::decimal::Decimal;
use crate::elements::{build_list, build_map, build_set, build_tuple, build_vector};
use crate::literal::big_integer;
use crate::number_text::format_double;
use crate::{CqlType, TypeError, UserType};
use std::borrow::Cow;

impl CqlType {
    /// The serialised value of a JSON value; `None` for JSON's null. Any value may be given as a string of its text,
    /// collections as a string of JSON.
    ///
    /// # Errors
    /// A [`TypeError`] in Cassandra's words when the JSON value is of a kind that the type does not take, is out of its
    /// range, contains a null, or has missing, unknown or too many fields.
    pub fn from_json(&self, value: &Value) -> Result<Option<Vec<u8>>, TypeError> {
        match value {
            Value::Null => Ok(None),
            value => self.read_json(value).map(Some),
        }
    }

    fn read_json(&self, value: &Value) -> Result<Vec<u8>, TypeError> {
        match self {
            CqlType::List { element, .. } => Ok(build_list(read_elements(
                element,
                array(value, "Expected a list, but got a")?.as_ref(),
                "list",
            )?)),
            CqlType::Set { element, .. } => {
                let elements = array(value, "Expected a list (representing a set), but got a")?;
                Ok(build_set(element, read_elements(element, elements.as_ref(), "set")?))
            }
            CqlType::Map { key, value: ty, .. } => read_map(key, ty, value),
            CqlType::Vector { element, dimension } => {
                let elements = array(value, "Expected a list, but got a")?;
                if elements.len() != *dimension as usize {
                    return Err(TypeError::Refused(format!(
                        "List had incorrect size: expected {dimension} but given {}; {}",
                        elements.len(),
                        Value::Array(elements.into_owned()).java_text()
                    )));
                }
                Ok(build_vector(element, read_elements(element, elements.as_ref(), "list")?))
            }
            CqlType::Tuple(types) => read_tuple(types, value),
            CqlType::Udt { ty, .. } => read_udt(ty, value),
            CqlType::Blob | CqlType::Custom(_) => read_blob(value),
            simple => match value {
                Value::Number(number) => simple.read_number(number, value),
                Value::Bool(flag) if *simple == CqlType::Boolean => Ok(vec![u8::from(*flag)]),
                Value::String(text) if matches!(simple, CqlType::Varint | CqlType::Decimal) => {
                    simple.read_big_number(text, value)
                }
                Value::String(text) => simple.from_string(text),
                other => Err(simple.json_mismatch(other)),
            },
        }
    }

    fn read_number(&self, text: &str, value: &Value) -> Result<Vec<u8>, TypeError> {
        // An integer, which has no negative zero.
        let text = if text == "-0" { "0" } else { text };
        match (self, value.java_class()) {
            (CqlType::Int, "Integer") | (CqlType::Bigint | CqlType::Counter, "Integer" | "Long") => {
                self.from_string(text)
            }
            (CqlType::Timestamp, "Long") => CqlType::Bigint.from_string(text),
            (CqlType::Smallint | CqlType::Tinyint, _) => self.from_string(&value.java_text()),
            (CqlType::Float, _) => {
                let number = text.parse::<f64>().unwrap_or(f64::NAN);
                Ok((number as f32).to_be_bytes().to_vec())
            }
            (CqlType::Double, _) => self.from_string(text),
            (CqlType::Varint | CqlType::Decimal, _) => self.read_big_number(text, value),
            _ => Err(self.json_mismatch(value)),
        }
    }

    fn read_big_number(&self, text: &str, value: &Value) -> Result<Vec<u8>, TypeError> {
        let name = self.cql_name();
        let refused = || {
            let shown = value.java_text();
            TypeError::Refused(format!("Value '{shown}' is not a valid representation of a {name} value"))
        };
        match self {
            CqlType::Varint => {
                big_integer(text).map(|number| number.to_signed_bytes_be()).ok_or_else(refused)
            }
            _ => {
                let exact: Decimal = match text {
                    "" if matches!(value, Value::String(_)) => return Ok(Vec::new()),
                    text => text.parse().map_err(|()| refused())?,
                };
                if value.java_class() != "Double" {
                    return Ok(exact.to_bytes());
                }
                // Cassandra reads fractions as doubles first. Their scale is kept where no digit is lost by it.
                let through_double =
                    text.parse().ok().and_then(|double| format_double(double).parse::<Decimal>().ok());
                let same = through_double.filter(|number| number.cmp_value(&exact).is_eq());
                Ok(same.unwrap_or(exact).to_bytes())
            }
        }
    }

    /// The refusal of a JSON value of a wrong kind.
    fn json_mismatch(&self, value: &Value) -> TypeError {
        let expected = match self {
            CqlType::Ascii => "an ascii string",
            CqlType::Text => "a UTF-8 string",
            CqlType::Int => "an int value",
            CqlType::Bigint | CqlType::Counter => "a bigint value",
            CqlType::Smallint => "a short value",
            CqlType::Tinyint => "a byte value",
            CqlType::Boolean => "a boolean value",
            CqlType::Float => "a float value",
            CqlType::Double => "a double value",
            CqlType::Date => "a string representation of a date value",
            CqlType::Time => "a string representation of a time value",
            CqlType::Timestamp => "a long or a datestring representation of a timestamp value",
            CqlType::Uuid => "a string representation of a uuid",
            CqlType::Timeuuid => "a string representation of a timeuuid",
            CqlType::Inet => "a string representation of an inet value",
            CqlType::Duration => "a string representation of a duration",
            CqlType::Varint | CqlType::Decimal => {
                let (shown, name) = (value.java_text(), self.cql_name());
                let text = format!("Value '{shown}' is not a valid representation of a {name} value");
                return TypeError::Refused(text);
            }
            _ => "another value",
        };
        mismatch(&format!("Expected {expected}, but got a"), value)
    }
}

fn mismatch(expected: &str, value: &Value) -> TypeError {
    TypeError::Refused(format!("{expected} {}: {}", value.java_class(), value.java_text()))
}

/// A string that stands for a collection is JSON itself.
fn unwrapped(value: &Value) -> Result<Cow<'_, Value>, TypeError> {
    match value {
        Value::String(text) => parse(text).map(Cow::Owned),
        value => Ok(Cow::Borrowed(value)),
    }
}

fn array<'a>(value: &'a Value, expected: &str) -> Result<Cow<'a, [Value]>, TypeError> {
    match unwrapped(value)? {
        Cow::Borrowed(Value::Array(elements)) => Ok(Cow::Borrowed(elements)),
        Cow::Owned(Value::Array(elements)) => Ok(Cow::Owned(elements)),
        other => Err(mismatch(expected, &other)),
    }
}

fn object<'a>(value: &'a Value) -> Result<Cow<'a, [(String, Value)]>, TypeError> {
    match unwrapped(value)? {
        Cow::Borrowed(Value::Object(members)) => Ok(Cow::Borrowed(members)),
        Cow::Owned(Value::Object(members)) => Ok(Cow::Owned(members)),
        other => Err(mismatch("Expected a map, but got a", &other)),
    }
}

fn read_elements(ty: &CqlType, elements: &[Value], kind: &str) -> Result<Vec<Vec<u8>>, TypeError> {
    let read = |element: &Value| {
        let missing = || TypeError::Refused(format!("Invalid null element in {kind}"));
        ty.from_json(element)?.ok_or_else(missing)
    };
    elements.iter().map(read).collect()
}

fn read_map(key: &CqlType, ty: &CqlType, value: &Value) -> Result<Vec<u8>, TypeError> {
    let members = object(value)?;
    let read = |(name, value): &(String, Value)| {
        let missing = || TypeError::refused("Invalid null value in map");
        if *value == Value::Null {
            return Err(missing());
        }
        let name = key.read_json(&Value::String(name.clone()))?;
        Ok((name, ty.from_json(value)?.ok_or_else(missing)?))
    };
    Ok(build_map(key, members.iter().map(read).collect::<Result<Vec<_>, TypeError>>()?))
}

fn read_tuple(types: &[CqlType], value: &Value) -> Result<Vec<u8>, TypeError> {
    let elements = array(value, "Expected a list representation of a tuple, but got a")?;
    let wrong = match elements.len().cmp(&types.len()) {
        std::cmp::Ordering::Greater => Some("contains extra"),
        std::cmp::Ordering::Less => Some("is missing"),
        std::cmp::Ordering::Equal => None,
    };
    if let Some(wrong) = wrong {
        let (expected, shown) = (types.len(), Value::Array(elements.into_owned()).java_text());
        return Err(TypeError::Refused(format!("Tuple {wrong} items (expected {expected}): {shown}")));
    }
    let fields = types.iter().zip(elements.iter()).map(|(ty, element)| ty.from_json(element));
    Ok(build_tuple(fields.collect::<Result<Vec<_>, TypeError>>()?))
}

/// The members of an object under the names of columns or fields that they mean: in double quotes exactly that, else in lower case. Where two
/// mean the same, the last one counts; those whose names were changed come after all others, as in Cassandra.
pub fn meant_members(members: &[(String, Value)]) -> Vec<(String, &Value)> {
    let mut all: Vec<(bool, String, &Value)> = members
        .iter()
        .map(|(name, value)| {
            let exact = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let meant = exact.map_or_else(|| name.to_lowercase(), str::to_owned);
            (meant != *name, meant, value)
        })
        .collect();
    all.sort_by_key(|(is_changed, ..)| *is_changed);
    all.into_iter().map(|(_, name, value)| (name, value)).collect()
}

fn read_udt(ty: &UserType, value: &Value) -> Result<Vec<u8>, TypeError> {
    let members = object(value)?;
    let mut fields: Vec<Option<Vec<u8>>> = vec![None; ty.fields.len()];
    for (name, value) in meant_members(&members) {
        let unknown = || {
            TypeError::Refused(format!("Unknown field '{name}' in value of user defined type {}", ty.name))
        };
        let index = ty.field_index(&name).ok_or_else(unknown)?;
        let (Some(field), Some((_, ty))) = (fields.get_mut(index), ty.fields.get(index)) else {
            return Err(unknown());
        };
        *field = ty.from_json(value)?;
    }
    Ok(build_tuple(fields))
}

fn read_blob(value: &Value) -> Result<Vec<u8>, TypeError> {
    let refused = |why: String| {
        TypeError::Refused(format!("Value '{}' is not a valid blob representation: {why}", value.java_text()))
    };
    let Value::String(text) = value else {
        return Err(refused(format!(
            "expected a string of hexadecimal digits, got a {}",
            value.java_class()
        )));
    };
    let digits = text.strip_prefix("0x");
    let digits = digits
        .ok_or_else(|| refused(format!("String representation of blob is missing 0x prefix: {text}")))?;
    CqlType::Blob.from_string(digits).map_err(|error| refused(error.to_string()))
}

//! Values from and to the JSON of the API.

use serde_json::{Map, Value as Json, json};

use crate::update::EMPTY_NAME;
use crate::value::NESTING_MAX;
use crate::{Error, Item, Number, Result, Value, invalid};
use stdx::base64;

fn serialization<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Serialization(text.into()))
}

/// The error for a JSON value of the wrong kind, in the words of AWS.
fn wrong_kind<T>(found: &Json, expected: &str) -> Result<T> {
    match found {
        Json::Null => serialization(format!("Unexpected null where {expected} is expected")),
        Json::Bool(true) => serialization(format!("TRUE_VALUE cannot be converted to {expected}")),
        Json::Bool(false) => serialization(format!("FALSE_VALUE cannot be converted to {expected}")),
        Json::Number(_) => serialization(format!("NUMBER_VALUE cannot be converted to {expected}")),
        Json::String(_) => serialization(format!("STRING_VALUE cannot be converted to {expected}")),
        Json::Array(_) => serialization("Unexpected list found where not expected"),
        Json::Object(_) => serialization("Start of structure or map found where not expected."),
    }
}

/// A string.
///
/// # Errors
/// When it is something else.
pub fn read_string(json: &Json) -> Result<&str> {
    json.as_str().map_or_else(|| wrong_kind(json, "String"), Ok)
}

/// A boolean.
///
/// # Errors
/// When it is something else.
pub fn read_bool(json: &Json) -> Result<bool> {
    json.as_bool().map_or_else(|| wrong_kind(json, "Boolean"), Ok)
}

/// A whole number; the fraction is left out, as AWS does.
///
/// # Errors
/// When it is something else.
pub fn read_integer(json: &Json) -> Result<i64> {
    match json {
        Json::Number(number) => {
            Ok(number.as_i64().unwrap_or_else(|| number.as_f64().map_or(0, |float| float as i64)))
        }
        _ => wrong_kind(json, "Integer"),
    }
}

/// A list.
///
/// # Errors
/// When it is something else.
pub fn read_list(json: &Json) -> Result<&[Json]> {
    match json {
        Json::Array(all) => Ok(all),
        Json::Object(_) => wrong_kind(json, "List"),
        _ => serialization("Unexpected field type"),
    }
}

/// A map or a structure.
///
/// # Errors
/// When it is something else.
pub fn read_map(json: &Json) -> Result<&Map<String, Json>> {
    match json {
        Json::Object(map) => Ok(map),
        Json::Array(_) => wrong_kind(json, "Map"),
        _ => serialization("Unexpected field type"),
    }
}

fn read_bytes(json: &Json) -> Result<Vec<u8>> {
    let Some(text) = json.as_str() else {
        return serialization("only base-64-encoded strings are convertible to bytes");
    };
    base64::decode(text).map_or_else(|| serialization("Invalid base64-encoded string"), Ok)
}

/// The bytes of a name of an attribute, or of a member of a map.
pub(crate) const NAME_BYTES_MAX: usize = 65_535;
pub(crate) const LONG_NAME: &str = "Attribute name is too large, must be less than 65536 bytes";

/// Refuses a name that no attribute has.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        0 => invalid!("{EMPTY_NAME}"),
        1..=NAME_BYTES_MAX => Ok(()),
        _ => invalid!("{LONG_NAME}"),
    }
}

/// An item, a key or another map of attribute values.
///
/// # Errors
/// When a value is not valid.
pub fn read_item(json: &Json) -> Result<Item> {
    let attributes = read_map(json)?.iter();
    let attributes = attributes.map(|(name, value)| {
        check_name(name)?;
        Ok((name.clone(), read_value(value)?))
    });
    attributes.collect()
}

/// A value.
///
/// # Errors
/// When it is none, or is not valid.
pub fn read_value(json: &Json) -> Result<Value> {
    read_nested(json, 0)
}

fn read_nested(json: &Json, depth: usize) -> Result<Value> {
    let map = read_map(json)?;
    let mut found = map.iter().filter(|(_, value)| !value.is_null());
    let Some((kind, json)) = found.next() else {
        return invalid!(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
        );
    };
    let value = match kind.as_str() {
        "S" => Value::S(read_string(json)?.to_owned()),
        "N" => Value::N(Number::parse(read_string(json)?)?),
        "B" => Value::B(read_bytes(json)?),
        "BOOL" => Value::Bool(read_bool(json)?),
        "NULL" => match read_bool(json)? {
            true => Value::Null,
            false => {
                return invalid!(
                    "One or more parameter values were invalid: Null attribute value types must have the value of true"
                );
            }
        },
        "SS" | "NS" | "BS" => read_set(kind, read_list(json)?)?,
        "L" | "M" if depth >= NESTING_MAX => {
            return invalid!("Nesting Levels have exceeded supported limits");
        }
        "L" => {
            let values = read_list(json)?.iter().map(|value| read_nested(value, depth + 1));
            Value::L(values.collect::<Result<_>>()?)
        }
        "M" => {
            let members = read_map(json)?;
            members.keys().try_for_each(|name| check_name(name))?;
            let members = members.iter();
            let members = members.map(|(name, value)| Ok((name.clone(), read_nested(value, depth + 1)?)));
            Value::M(members.collect::<Result<_>>()?)
        }
        _ => {
            return invalid!(
                "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
            );
        }
    };
    if found.next().is_some() {
        return invalid!(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes"
        );
    }
    Ok(value)
}

fn read_set(kind: &str, members: &[Json]) -> Result<Value> {
    const WRONG: &str = "One or more parameter values were invalid:";
    match kind {
        "SS" => {
            let texts = members.iter().map(read_string).collect::<Result<Vec<_>>>()?;
            if texts.is_empty() {
                return invalid!("{WRONG} An string set  may not be empty");
            }
            let set: std::collections::BTreeSet<String> =
                texts.iter().map(|text| (*text).to_owned()).collect();
            if set.len() != texts.len() {
                return invalid!(
                    "{WRONG} Input collection [{}] contains duplicates.",
                    shortened(&texts.join(", "))
                );
            }
            Ok(Value::Ss(set))
        }
        "NS" => {
            if members.is_empty() {
                return invalid!("{WRONG} An number set  may not be empty");
            }
            let numbers = members.iter().map(|json| Number::parse(read_string(json)?));
            let set = numbers.collect::<Result<std::collections::BTreeSet<_>>>()?;
            if set.len() != members.len() {
                return invalid!("Input collection contains duplicates");
            }
            Ok(Value::Ns(set))
        }
        _ => {
            if members.is_empty() {
                return invalid!("{WRONG} Binary sets should not be empty");
            }
            let set = members.iter().map(read_bytes).collect::<Result<std::collections::BTreeSet<_>>>()?;
            if set.len() != members.len() {
                let texts: Vec<&str> = members.iter().filter_map(Json::as_str).collect();
                return invalid!(
                    "{WRONG} Input collection [{}]of type BS contains duplicates.",
                    shortened(&texts.join(", "))
                );
            }
            Ok(Value::Bs(set))
        }
    }
}

/// Messages do not grow with clients' texts.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(1000) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A value as JSON.
pub fn value(value: &Value) -> Json {
    match value {
        Value::S(text) => json!({ "S": text }),
        Value::N(number) => json!({ "N": number.to_string() }),
        Value::B(bytes) => json!({ "B": base64::encode(bytes) }),
        Value::Bool(truth) => json!({ "BOOL": truth }),
        Value::Null => json!({ "NULL": true }),
        Value::Ss(all) => json!({ "SS": all }),
        Value::Ns(all) => json!({ "NS": all.iter().map(Number::to_string).collect::<Vec<_>>() }),
        Value::Bs(all) => json!({ "BS": all.iter().map(|bytes| base64::encode(bytes)).collect::<Vec<_>>() }),
        Value::L(all) => json!({ "L": all.iter().map(self::value).collect::<Vec<_>>() }),
        Value::M(all) => json!({ "M": item(all) }),
    }
}

/// An item as JSON.
pub fn item(item: &Item) -> Json {
    Json::Object(item.iter().map(|(name, one)| (name.clone(), value(one))).collect())
}

/// Appends the text of [`item`] without its tree, which may take hundreds of times the bytes of the item.
pub fn write_item(item: &Item, out: &mut String) {
    write_members(item, Number::to_string, out);
}

/// The same as it is stored: numbers that are long as they are sent have an exponent. [`read_item`] reads both.
pub fn write_stored_item(item: &Item, out: &mut String) {
    write_members(item, Number::stored, out);
}

/// Appends the name of a member and the colon behind it.
pub fn write_name(name: &str, out: &mut String) {
    write_text(name, out);
    out.push(':');
}

/// Appends the text of [`value`].
pub(crate) fn write_sent_value(value: &Value, out: &mut String) {
    write_value(value, Number::to_string, out);
}

/// Appends a value that is a text of JSON under the name of its type.
pub(crate) fn write_typed(type_name: &str, text: &str, out: &mut String) {
    out.push_str("{\"");
    out.push_str(type_name);
    out.push_str("\":");
    write_text(text, out);
    out.push('}');
}

/// Appends a value as it is stored.
pub(crate) fn write_stored_value(value: &Value, out: &mut String) {
    write_value(value, Number::stored, out);
}

/// The form of numbers.
type NumberText = fn(&Number) -> String;

fn write_members(item: &Item, number: NumberText, out: &mut String) {
    write_all(item, ('{', '}'), out, |(name, one), out| {
        write_name(name, out);
        write_value(one, number, out);
    });
}

/// Appends the text of [`value`] with numbers of a form.
fn write_value(value: &Value, number: NumberText, out: &mut String) {
    out.push_str("{\"");
    out.push_str(value.type_name());
    out.push_str("\":");
    let list = ('[', ']');
    let base64 = |bytes: &Vec<u8>, out: &mut String| write_text(&base64::encode(bytes), out);
    match value {
        Value::S(text) => write_text(text, out),
        Value::N(one) => write_text(&number(one), out),
        Value::B(bytes) => base64(bytes, out),
        Value::Bool(false) => out.push_str("false"),
        Value::Bool(true) | Value::Null => out.push_str("true"),
        Value::Ss(all) => write_all(all, list, out, |text, out| write_text(text, out)),
        Value::Ns(all) => write_all(all, list, out, |one, out| write_text(&number(one), out)),
        Value::Bs(all) => write_all(all, list, out, base64),
        Value::L(all) => write_all(all, list, out, |one, out| write_value(one, number, out)),
        Value::M(all) => write_members(all, number, out),
    }
    out.push('}');
}

fn write_all<T>(
    all: impl IntoIterator<Item = T>,
    (open, close): (char, char),
    out: &mut String,
    write: impl Fn(T, &mut String),
) {
    out.push(open);
    for (at, one) in all.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(one, out);
    }
    out.push(close);
}

/// Appends a string of JSON.
fn write_text(text: &str, out: &mut String) {
    let is_escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // To the end in any case, which goes many bytes at a time.
    let has_escaped = text.bytes().fold(false, |found, byte| found | is_escaped(byte));
    if !has_escaped {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Json::from(text).to_string());
    }
}

impl Value {
    /// How messages show it.
    pub fn shown(&self) -> String {
        let text = value(self).to_string();
        match self {
            Self::S(text) => format!("{{S:{text}}}"),
            Self::N(number) => format!("{{N:{number}}}"),
            _ => text,
        }
    }
}

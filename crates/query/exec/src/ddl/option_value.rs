//! The values of options as statements write them: texts, maps, numbers and booleans, with Cassandra's messages for invalid ones.

use std::collections::BTreeMap;

use cql::ast::{Property, PropertyValue};

use crate::error::{Result, config, shown, syntax};

/// The longest text of an option, of its name or value where it is an entry of a map, in bytes. Each change of a table
/// carries all of its options through the cluster's log.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// The longest map of texts, in bytes of its keys and values.
pub const MAP_BYTES_MAX: usize = 256 << 10;

/// Refuses a text that is too long for the cluster's log.
///
/// # Errors
/// [`ExecError::Config`](crate::ExecError::Config) when it has more than [`TEXT_BYTES_MAX`] bytes.
pub fn check_len(text: &str, name: &str) -> Result<()> {
    match text.len() <= TEXT_BYTES_MAX {
        true => Ok(()),
        false => config(format!(
            "The value for '{name}' has {} bytes: at most {TEXT_BYTES_MAX} are allowed",
            text.len()
        )),
    }
}

/// A text.
///
/// # Errors
/// [`ExecError::Syntax`](crate::ExecError::Syntax) when the value is no constant; as [`check_len`].
pub fn string(property: &Property) -> Result<&str> {
    match property.value.text() {
        Some(text) => check_len(text, &property.name).map(|()| text),
        None => syntax(format!("Invalid value for property '{}'. It should be a string", property.name)),
    }
}

/// A map of texts.
///
/// # Errors
/// [`ExecError::Syntax`](crate::ExecError::Syntax) when the value is no map,
/// [`ExecError::Config`](crate::ExecError::Config) when a text or the whole is too long.
pub fn map(property: &Property) -> Result<BTreeMap<String, String>> {
    match &property.value {
        PropertyValue::Map(entries) => {
            let bytes: usize = entries.iter().map(|(k, v)| k.text().len() + v.text().len()).sum();
            if bytes > MAP_BYTES_MAX {
                return config(format!(
                    "The map for '{}' has {bytes} bytes: at most {MAP_BYTES_MAX} are allowed",
                    property.name
                ));
            }
            for (key, value) in entries {
                check_len(key.text(), &property.name)?;
                check_len(value.text(), shown(key.text()).as_ref())?;
            }
            Ok(entries.iter().map(|(k, v)| (k.text().to_owned(), v.text().to_owned())).collect())
        }
        _ => syntax(format!("Invalid value for property '{}'. It should be a map.", property.name)),
    }
}

/// An integer of at least `min`.
///
/// # Errors
/// [`ExecError::Syntax`](crate::ExecError::Syntax) when it is no integer of 32 bits,
/// [`ExecError::Config`](crate::ExecError::Config) when it is less than `min`.
pub fn integer(property: &Property, min: i32) -> Result<u32> {
    let text = string(property)?;
    let Ok(value) = text.parse::<i32>() else {
        return syntax(format!("Invalid integer value {} for '{}'", shown(text), property.name));
    };
    if value < min {
        return config(format!("{} must be greater than or equal to {min} (got {value})", property.name));
    }
    Ok(value.unsigned_abs())
}

/// A finite number.
///
/// # Errors
/// [`ExecError::Syntax`](crate::ExecError::Syntax) when it is no finite number.
pub fn float(property: &Property) -> Result<f64> {
    let text = string(property)?;
    match finite(text) {
        Some(value) => Ok(value),
        None => syntax(format!("Invalid double value {} for '{}'", shown(text), property.name)),
    }
}

/// A number that is one: no NaN, no infinity, and no negative zero.
pub fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite()).map(|value| value + 0.0)
}

/// A number from 0 to 1.
///
/// # Errors
/// As [`float`]; [`ExecError::Config`](crate::ExecError::Config) when it is below 0 or above 1.
pub fn chance(property: &Property) -> Result<f64> {
    let value = float(property)?;
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => config(format!(
            "{} must be larger than or equal to 0 and smaller than or equal to 1.0 (got {})",
            property.name,
            java_double(value)
        )),
    }
}

/// Java's text of a double, which Cassandra's messages show.
pub fn java_double(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let point = if mantissa.contains('.') { "" } else { ".0" };
        return format!("{mantissa}{point}E{exponent}");
    }
    format!("{value:?}")
}

/// A boolean in the spellings that properties take.
///
/// # Errors
/// [`ExecError::Syntax`](crate::ExecError::Syntax) when it has none of these spellings.
pub fn boolean(property: &Property) -> Result<bool> {
    let text = string(property)?;
    match text.to_lowercase().as_str() {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => syntax(format!(
            "Invalid boolean value {} for '{}'. Positive values can be '1', 'true' or 'yes'. Negative values can be \
             '0', 'false' or 'no'.",
            shown(text),
            property.name
        )),
    }
}

//! The names and values that expressions refer to by `#name` and `:value`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::Value as Json;

use crate::{Error, Result, Value, invalid, json};

/// Bytes of an expression.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// Bytes of all values, with their keys.
const VALUES_BYTES_MAX: usize = 2 << 20;
/// Bytes of a `#name` or a `:value`, with the sign.
const KEY_BYTES_MAX: usize = 255;

/// `ExpressionAttributeNames` and `ExpressionAttributeValues` of a request; each must be used by one of its expressions.
#[derive(Debug, Default)]
pub struct Substitutions {
    names: Vec<(String, String)>,
    values: Vec<(String, Rc<Value>)>,
    by_name: std::collections::BTreeMap<String, String>,
    by_value: std::collections::BTreeMap<String, Rc<Value>>,
    used: RefCell<BTreeSet<String>>,
}

fn is_key(text: &str, sign: char) -> bool {
    let rest = text.strip_prefix(sign);
    rest.is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Checks a key of `ExpressionAttributeNames` or `ExpressionAttributeValues`, each of which has a `noun`.
fn check_key(key: &str, sign: char, kind: &str, noun: &str) -> Result<()> {
    if !is_key(key, sign) {
        return invalid!("ExpressionAttribute{kind} contains invalid key: Syntax error; key: \"{key}\"");
    }
    if key.len() > KEY_BYTES_MAX {
        return invalid!(
            "ExpressionAttribute{kind} contains invalid key: An expression attribute {noun} has {KEY_BYTES_MAX} bytes at most; \
             key size: {}",
            key.len()
        );
    }
    Ok(())
}

impl Substitutions {
    /// Those of a request. `expressions` are the names of its parameters that may hold expressions, with whether they are given;
    /// `with_values` are those of them that may use values.
    ///
    /// # Errors
    /// When they are not valid, or there is no expression.
    pub fn read(
        names: Option<&Json>,
        values: Option<&Json>,
        expressions: &[(&str, bool)],
        with_values: &[&str],
    ) -> Result<Self> {
        let mut out = Self::default();
        let is_given = |name: &str| expressions.iter().any(|(known, given)| *known == name && *given);
        if let Some(names) = names {
            if !expressions.iter().any(|(_, given)| *given) {
                return invalid!("ExpressionAttributeNames can only be specified when using expressions");
            }
            let names = json::read_map(names)?;
            if names.is_empty() {
                return invalid!("ExpressionAttributeNames must not be empty");
            }
            for (key, name) in names {
                check_key(key, '#', "Names", "name")?;
                let name = json::read_string(name)?;
                json::check_name(name).map_err(|error| {
                    Error::Validation(format!(
                        "ExpressionAttributeNames contains invalid value: {error} for key {key}"
                    ))
                })?;
                out.names.push((key.clone(), name.to_owned()));
                out.by_name.insert(key.clone(), name.to_owned());
            }
        }
        if let Some(values) = values {
            if !with_values.iter().any(|name| is_given(name)) {
                let verb = if with_values.len() > 1 { "are" } else { "is" };
                return invalid!(
                    "ExpressionAttributeValues can only be specified when using expressions: {} {verb} null",
                    with_values.join(" and ")
                );
            }
            let values = json::read_map(values)?;
            if values.is_empty() {
                return invalid!("ExpressionAttributeValues must not be empty");
            }
            let mut bytes = 0;
            for (key, value) in values {
                check_key(key, ':', "Values", "value")?;
                let value = Rc::new(json::read_value(value).map_err(|error| match error {
                    Error::Validation(text) => Error::Validation(format!(
                        "ExpressionAttributeValues contains invalid value: {text} for key {key}"
                    )),
                    other => other,
                })?);
                bytes += key.len() + value.size();
                if bytes > VALUES_BYTES_MAX {
                    return invalid!("ExpressionAttributeValues exceeds max size");
                }
                out.values.push((key.clone(), value.clone()));
                out.by_value.insert(key.clone(), value);
            }
        }
        Ok(out)
    }

    pub(crate) fn name(&self, key: &str) -> Option<&str> {
        self.used.borrow_mut().insert(key.to_owned());
        self.by_name.get(key).map(String::as_str)
    }

    pub(crate) fn value(&self, key: &str) -> Option<Rc<Value>> {
        self.used.borrow_mut().insert(key.to_owned());
        self.by_value.get(key).cloned()
    }

    /// Refuses names and values that no expression has used; to be called when all are parsed.
    ///
    /// # Errors
    /// With the unused names.
    pub fn check_used(&self) -> Result<()> {
        let used = self.used.borrow();
        let unused = |keys: &mut dyn Iterator<Item = &String>| {
            let keys: Vec<&str> =
                keys.filter(|key| !used.contains(*key)).map(String::as_str).take(100).collect();
            (!keys.is_empty()).then(|| keys.join(", "))
        };
        if let Some(keys) = unused(&mut self.names.iter().map(|(key, _)| key)) {
            return invalid!(
                "Value provided in ExpressionAttributeNames unused in expressions: keys: {{{keys}}}"
            );
        }
        if let Some(keys) = unused(&mut self.values.iter().map(|(key, _)| key)) {
            return invalid!(
                "Value provided in ExpressionAttributeValues unused in expressions: keys: {{{keys}}}"
            );
        }
        Ok(())
    }
}

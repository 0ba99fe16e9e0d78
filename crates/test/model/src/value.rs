//! Values, with the literals that CQL has for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A value without parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scalar {
    /// `int`, `bigint`
    Int(i64),
    /// `text`
    Text(String),
    /// `blob`
    Blob(Vec<u8>),
}

/// The value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A value without parts.
    Scalar(Scalar),
    /// `set<…>`
    Set(BTreeSet<Scalar>),
    /// `map<…, …>`
    Map(BTreeMap<Scalar, Scalar>),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Blob(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = match self {
            Self::Scalar(scalar) => return write!(f, "{scalar}"),
            Self::Set(set) => set.iter().map(Scalar::to_string).collect(),
            Self::Map(map) => map.iter().map(|(key, value)| format!("{key}: {value}")).collect(),
        };
        write!(f, "{{{}}}", parts.join(", "))
    }
}

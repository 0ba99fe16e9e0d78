//! Names of types as Cassandra's classes, the form that SSTable headers and old schemas hold.

use crate::CqlType;
use std::fmt;

/// A class name that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassNameError {
    /// The whole text.
    pub text: String,
    /// Where it went wrong, as a byte offset.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for ClassNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid type class '{}': expected {} at offset {}", self.text, self.expected, self.offset)
    }
}

impl std::error::Error for ClassNameError {}

impl CqlType {
    /// The class name as SSTable headers hold it, wrapped in `ReversedType(…)` when `reversed`.
    pub fn class_name(&self, reversed: bool) -> String {
        let _ = reversed;
        crate::cql_type::pending()
    }

    /// Reads a class name; the flag says whether the outermost class is `ReversedType`.
    pub fn parse_class_name(text: &str) -> Result<(CqlType, bool), ClassNameError> {
        let _ = text;
        crate::cql_type::pending()
    }
}

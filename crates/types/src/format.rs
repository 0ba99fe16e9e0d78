//! Serialised values as CQL literals and as plain text.

use crate::CqlType;

impl CqlType {
    /// The value as a CQL literal, as `DESCRIBE` and error messages show it.
    pub fn format(&self, bytes: &[u8]) -> String {
        let _ = bytes;
        crate::cql_type::pending()
    }
}

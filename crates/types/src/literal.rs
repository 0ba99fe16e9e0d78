//! Values from text.

use crate::{CqlType, TypeError};

impl CqlType {
    /// The serialised value of a text, as Cassandra reads the inside of a string literal of the type.
    pub fn from_string(&self, text: &str) -> Result<Vec<u8>, TypeError> {
        let _ = text;
        crate::cql_type::pending()
    }
}

//! The one error of values: the fault in the bytes or the text of a value of a type.

use std::fmt;

/// A value that its type refuses. The text is worded as Cassandra words it, because clients match on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeError {
    /// Serialised bytes whose length the type does not allow: `Expected 4 or 0 byte int (3)`.
    Length {
        /// The expected length, without the actual one: `Expected 4 or 0 byte int`.
        expected: &'static str,
        /// The length that was found, in bytes.
        actual: usize,
    },
    /// Text that is no literal of the type: `Unable to make int from 'abc'`.
    Unparsable {
        /// The name of the type or of the part of it, as the message says it.
        what: &'static str,
        /// The text that was refused.
        text: String,
    },
    /// The text of a duration that is refused, with the full message: Cassandra reports it without the column or the function around it.
    Duration(String),
    /// Any other refusal, said in full.
    Refused(String),
}

impl TypeError {
    /// A refusal with its full text.
    pub fn refused(text: impl Into<String>) -> TypeError {
        TypeError::Refused(text.into())
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeError::Length { expected, actual } => write!(f, "{expected} ({actual})"),
            TypeError::Unparsable { what, text } => write!(f, "Unable to make {what} from '{text}'"),
            TypeError::Duration(text) | TypeError::Refused(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for TypeError {}

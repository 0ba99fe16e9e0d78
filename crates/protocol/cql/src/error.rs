//! The one error of this crate: a text that is not CQL, its position, and the expected tokens.

use std::fmt;

/// Why a text is not a CQL statement. `Display` gives the message for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 0.
    pub column: u32,
    /// The text of the token at fault, cut when long; `<EOF>` at the end.
    pub found: String,
    /// The error in it.
    pub reason: Reason,
}

/// The kinds of [`SyntaxError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another token was expected here.
    Unexpected {
        /// The tokens that could stand here: keywords, punctuation in quotes, or descriptions such as `an identifier`.
        expected: Vec<String>,
        /// The expected keyword that the found word resembles.
        nearest: Option<String>,
    },
    /// The statement is complete, but more text follows.
    Trailing {
        /// The tokens that could have continued the statement.
        expected: Vec<String>,
        /// The expected keyword that the found word resembles.
        nearest: Option<String>,
    },
    /// A string, quoted name or comment has no end.
    Unterminated {
        /// The item that has no end.
        what: &'static str,
    },
    /// A character that no token starts with.
    BadCharacter,
    /// Brackets, types or operators nest more deeply than the parser allows.
    TooDeep {
        /// The limit.
        depth_max: u32,
    },
    /// The tokens are right, but break another rule of the grammar; the text says which.
    Rule(String),
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}:{} ", self.line, self.column)?;
        match &self.reason {
            Reason::Unexpected { expected, nearest } => {
                match expected.as_slice() {
                    [one] => write!(f, "mismatched input '{}' expecting {one}", self.found)?,
                    _ => {
                        write!(f, "no viable alternative at input '{}'", self.found)?;
                        write_expected(f, expected)?;
                    }
                }
                write_nearest(f, nearest)?;
                if nearest.is_none() && expected.iter().any(|what| what == "an identifier") {
                    write_reserved(f, &self.found)?;
                }
                Ok(())
            }
            Reason::Trailing { expected, nearest } => {
                write!(f, "missing EOF at '{}'", self.found)?;
                write_expected(f, expected)?;
                write_nearest(f, nearest)
            }
            Reason::Unterminated { what } => write!(f, "{what} has no end (found '{}')", self.found),
            Reason::BadCharacter => write!(f, "no viable alternative at character '{}'", self.found),
            Reason::TooDeep { depth_max } => {
                write!(f, "nested too deeply at '{}': at most {depth_max} levels are allowed", self.found)
            }
            Reason::Rule(rule) => f.write_str(rule),
        }
    }
}

/// Writes `: expected A, B or C`.
fn write_expected(f: &mut fmt::Formatter<'_>, expected: &[String]) -> fmt::Result {
    let Some((last, others)) = expected.split_last() else { return Ok(()) };
    f.write_str(": expected ")?;
    for (i, item) in others.iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
    }
    write!(f, "{}{last}", if others.is_empty() { "" } else { " or " })
}

/// Writes the hint for a misspelled keyword.
fn write_nearest(f: &mut fmt::Formatter<'_>, nearest: &Option<String>) -> fmt::Result {
    match nearest {
        Some(nearest) => write!(f, " (did you mean {nearest}?)"),
        None => Ok(()),
    }
}

/// Writes how a reserved word can be a name after all.
fn write_reserved(f: &mut fmt::Formatter<'_>, found: &str) -> fmt::Result {
    if !crate::ident::is_reserved(found) {
        return Ok(());
    }
    let name = found.to_ascii_lowercase();
    write!(f, " (the word is reserved: as a name it is written \"{name}\")")
}

impl std::error::Error for SyntaxError {}

//! Values as JSON and from JSON, by Cassandra's rules: map keys are always strings, every value may also be given as a
//! string of its text, names of user type fields are quoted inside the string when they have upper case.

mod read;
mod value;
mod write;

pub use read::meant_members;
pub use value::{Value, parse, parse_first, write_string};

//! CQL: from text to a syntax tree and back, without a schema, IO or clock.
//!
//! [`parse`] turns one statement into an [`ast::Statement`] and the list of its bind markers; `Display` of a
//! statement prints canonical text that parses to an equal tree. The grammar is that of CQL 3.4.7 (Cassandra 5.0)
//! with what Cassandra 6 and ScyllaDB add. What the server cannot run yet parses too, so that it can name it.
//!
//! The parser does not know tables or types: names are not resolved, literals are not checked against a type.

pub mod ast;
mod error;
pub mod ident;
mod keyword;
mod lexer;
mod nearest;
mod parser;
mod printer;

pub use error::{Reason, SyntaxError};
pub use parser::{NESTING_MAX, OPERATORS_MAX, STATEMENT_BYTES_MAX, parse, parse_term, parse_type};
pub use printer::redacted;

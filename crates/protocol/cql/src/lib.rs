//! CQL: from text to a syntax tree and back, without a schema, IO or clock.
//!
//! [`parse`] turns one statement into an [`ast::Statement`] and the list of its bind markers; `Display` of a
//! statement prints canonical text that parses to an equal tree. The grammar is that of CQL 3.4.7 (Cassandra 5.0)
//! with the additions of Cassandra 6 and ScyllaDB. Statements that the server cannot run yet parse too, so that it can name them.
//!
//! The parser does not know tables or types: names are not resolved, literals are not checked against a type.
//!
//! Everything that Cassandra 5.0 takes, this takes, with two exceptions that say nothing: an attribute set twice in one USING,
//! and `c = c 1` for `c = c + 1`. Beyond it, on purpose:
//!
//! - `a -1` is `a - 1` (there the lexer's number `-1` makes it an error), and a comment may end with the text;
//! - `CREATE SCHEMA`, `ADD a int, b int` without brackets, a keyspace in `expr(ks.index, …)`, bind markers beside
//!   tuples in a tuple's IN list;
//! - of Cassandra 6: `BETWEEN`, `NOT IN`, `NOT CONTAINS`, `CREATE TABLE … LIKE`, `CHECK`, `COMMENT ON`,
//!   transactions, generated passwords, `LIST SUPERUSERS`;
//! - of ScyllaDB: `USING TIMEOUT`, `BYPASS CACHE`, `PRUNE MATERIALIZED VIEW`, `MUTATION_FRAGMENTS`, local indexes,
//!   `REDUCEFUNC`, TTL columns, service levels.
//!
//! The words that only these need are not keywords: they stay ordinary names.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

pub mod ast;
mod error;
pub mod ident;
mod keyword;
mod lexer;
mod nearest;
mod parser;
mod printer;
mod split;

pub use error::{Reason, SyntaxError};
pub use parser::{
    BATCH_TOKENS_MAX, MARKERS_MAX, NESTING_MAX, OPERATORS_MAX, Parsing, STATEMENT_BYTES_MAX, TOKENS_MAX,
    parse, parse_term, parse_type,
};
pub use printer::redacted;
pub use split::split;

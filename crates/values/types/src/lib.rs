//! CQL's data types: serialisation, validation, comparison, text and JSON forms, byte-comparable encoding.
//!
//! Everything here is a pure function over serialised values, because the engine, the query layer and the file
//! formats all need the same answers, and because a type system without IO or clocks can be checked against
//! Cassandra byte by byte.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod assignment;
pub mod calendar;
mod class_name;
mod compare;
mod cql_type;
pub mod custom;
pub mod decimal;
pub mod duration;
pub mod elements;
mod error;
mod format;
mod inet;
pub mod json;
mod literal;
pub mod native;
mod number_text;
pub mod ordered;
mod temporal;
pub mod uuid;
mod validate;

pub use assignment::Assignment;
pub use class_name::{ClassNameError, composite_class_name, parse_key_class_name};
pub use cql_type::{CqlType, UserType, quote_identifier, quote_type_name};
pub use error::TypeError;
pub use literal::ConstantKind;
pub use ordered::{
    OrderedError, Terminator, decode_clustering, encode_clustering, encode_clustering_into,
    encode_partition_key,
};

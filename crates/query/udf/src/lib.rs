//! User-defined functions: compiles and runs one call of a function, within limits of time and memory, in slices between which the
//! shard does other work (docs/design/udf.md).
//!
//! Knows values and their types; knows neither statements nor rows.

mod error;
mod lua;
mod meter;
mod runtime;
mod wasm;

pub use error::{CallError, CompileError};
pub use meter::{Limits, Slices, TimeSource};
pub use runtime::{BODY_BYTES_MAX, Called, Runtime, check, language};

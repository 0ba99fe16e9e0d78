//! Tests of user-defined functions, one call at a time.

mod lua;
mod wasm;

//! Expressions and values against golden tables.

mod expressions;
mod values;

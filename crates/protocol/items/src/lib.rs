//! DynamoDB's items: values, numbers, their JSON, and expressions over them, with the messages that AWS gives.
//!
//! Pure and synchronous (docs/design/dynamo.md). Refusals are an [`Error`] whose text clients match on. Must not know tables,
//! storage or HTTP; callers pass the names of keys.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod check;
pub mod condition;
mod direct;
pub mod expression;
pub mod ion;
pub mod json;
pub mod key_condition;
pub mod legacy;
mod lexer;
mod number;
mod parser;
pub mod partiql;
mod path;
mod reserved;
pub mod stored;
pub mod update;
mod value;
pub mod vector;

pub use condition::Condition;
pub use direct::ReadItem;
pub use expression::Substitutions;
pub use number::Number;
pub use path::{Element, Path, Projection};
pub use update::{EMPTY_NAME, ITEM_BYTES_MAX, Update};
pub use value::{Item, NESTING_MAX, Value, item_size};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A `ValidationException`.
    #[error("{0}")]
    Validation(String),
    /// A `SerializationException`: the JSON is not of the API's shape.
    #[error("{0}")]
    Serialization(String),
}

/// A result that may be a refusal.
pub type Result<T> = std::result::Result<T, Error>;

/// A `ValidationException` with this text.
macro_rules! invalid {
    ($($text:tt)*) => { Err($crate::Error::Validation(format!($($text)*))) };
}
pub(crate) use invalid;

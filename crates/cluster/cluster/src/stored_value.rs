//! The forms of single values of a stored schema: ids and types.

use schema::TableId;
use types::CqlType;

use crate::error::SchemaCodecError;

pub(crate) fn load_type(class: &str, what: impl FnOnce() -> String) -> Result<CqlType, SchemaCodecError> {
    match CqlType::parse_class_name(class) {
        Ok((ty, _)) => Ok(ty),
        Err(error) => Err(SchemaCodecError::Type { what: what(), error }),
    }
}

/// The id that a text in the form of a UUID stands for.
pub fn parse_id(text: &str) -> Option<TableId> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(TableId(id))
}

//! Limits of key values.

use crate::error::{Result, invalid};

/// The longest partition key, and the longest value of a clustering column, in bytes.
pub const COMPONENT_LEN_MAX: usize = 65_535;

/// Refuses a key value that is too long to be stored.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when it has more than [`COMPONENT_LEN_MAX`] bytes.
#[inline]
pub fn check_component(len: usize) -> Result<()> {
    if len > COMPONENT_LEN_MAX {
        return invalid!("Key length of {len} is longer than maximum of {COMPONENT_LEN_MAX}");
    }
    Ok(())
}

//! Limits of key values.

use bytes::Bytes;

use crate::error::{Result, invalid};

/// The longest partition key, and the most that a row's clustering columns have together, in bytes.
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

/// Refuses the values of a key that are together too long to be stored, as Cassandra does.
///
/// # Errors
/// As [`check_component`], of their sum.
#[inline]
pub fn check_values(values: &[Bytes]) -> Result<()> {
    check_component(values.iter().map(Bytes::len).sum())
}

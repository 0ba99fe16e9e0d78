//! The size of an item: its limit, and the units that AWS counts for it.

use items::{ITEM_BYTES_MAX, Item, item_size};

use crate::error::{Result, invalid};

/// Units of a write of an item of this size.
pub(super) fn write_units(bytes: usize) -> f64 {
    bytes.div_ceil(1024).max(1) as f64
}

/// Units of a read of so many bytes.
pub(super) fn read_units(bytes: usize, consistent: bool) -> f64 {
    bytes.div_ceil(4096).max(1) as f64 * if consistent { 1.0 } else { 0.5 }
}

/// Refuses an item that is too large.
pub(super) fn check_size(item: &Item, message: &str) -> Result<()> {
    if item_size(item) > ITEM_BYTES_MAX {
        return invalid!("{message}");
    }
    if item.values().any(|value| value.depth() > items::NESTING_MAX) {
        return invalid!("Nesting Levels have exceeded supported limits");
    }
    Ok(())
}

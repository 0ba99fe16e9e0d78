//! The size of an item: its limit and those of its names, and the units that AWS counts for it.

use items::{EMPTY_NAME, ITEM_BYTES_MAX, Item, item_size};

use crate::error::{Result, invalid};
use crate::table::INTENT;

/// Units of a write of an item of this size.
pub(super) fn write_units(bytes: usize) -> f64 {
    bytes.div_ceil(1024).max(1) as f64
}

/// Units of a read of so many bytes.
pub(super) fn read_units(bytes: usize, consistent: bool) -> f64 {
    bytes.div_ceil(4096).max(1) as f64 * if consistent { 1.0 } else { 0.5 }
}

/// Refuses an item that is too large, or that has an attribute without a name; every item that is written is held against it.
pub(super) fn check_item(item: &Item, message: &str) -> Result<()> {
    if item.contains_key(INTENT) {
        return invalid!("{EMPTY_NAME}");
    }
    if item_size(item) > ITEM_BYTES_MAX {
        return invalid!("{message}");
    }
    if item.values().any(|value| value.depth() > items::NESTING_MAX) {
        return invalid!("Nesting Levels have exceeded supported limits");
    }
    Ok(())
}

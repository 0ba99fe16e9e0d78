//! The throughput that tables and global indexes are given.

use items::json;
use serde_json::Value as Json;

use crate::error::{Result, invalid};
use crate::request::{self, constraint};

/// The units of capacity for reads and for writes of a `ProvisionedThroughput` at a place of a request.
pub(super) fn capacity_units(throughput: &Json, place: &str) -> Result<(i64, i64)> {
    let fields = json::read_map(throughput)?;
    let units = |name: &str| -> Result<i64> {
        let place = format!("{place}.{}", request::place(name));
        match fields.get(name).filter(|value| !value.is_null()).map(json::read_integer).transpose()? {
            None => constraint("null", &place, "Member must not be null"),
            Some(units) if units < 1 => {
                constraint(&units.to_string(), &place, "Member must have value greater than or equal to 1")
            }
            Some(units) if units > 1_000_000_000_000 => {
                invalid!("Given value {units} for {name} is out of bounds")
            }
            Some(units) => Ok(units),
        }
    };
    Ok((units("ReadCapacityUnits")?, units("WriteCapacityUnits")?))
}

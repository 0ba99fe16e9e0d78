//! Guardrails over writes.

use mutation::{ColumnData, DecoratedKey, PartitionUpdate, Row, Timestamp};
use schema::{Column, Table};
use types::CqlType;
use types::elements::Elements;

use super::{Guard, Thresholds, Words, exceeds};
use crate::error::Result;
use crate::expr::Env;
use crate::modification::ModificationPlan;
use crate::modification::operation::Change;
use crate::request::Request;

/// The bytes of a cell of a collection beside its path and value, as Cassandra counts them: timestamp, TTL and time of deletion.
const CELL_OVERHEAD_BYTES: usize = 8 + 4 + 8;

impl Guard<'_> {
    /// Looks at a statement that writes, of which `env` has the values. `now` is in microseconds.
    ///
    /// # Errors
    /// The limit that it breaks.
    pub fn modification(
        &mut self,
        plan: &ModificationPlan,
        request: &Request<'_>,
        env: &Env<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let limits = self.limits;
        // As in Cassandra, also of writes without a condition.
        let level =
            [request.consistency, request.serial_consistency].map(|level| level.name().to_owned()).into();
        let levels = &limits.write_consistency_levels;
        self.values("write_consistency_levels", levels, &level, "write consistency levels")?;
        if plan.has_timestamp() {
            self.timestamp()?;
            self.written_at(&plan.table, plan.timestamp(env, now)?, now)?;
        }
        self.products(&plan.table, (&plan.access.keys, &plan.access.rows), env)?;
        for operation in plan.operations() {
            let what = match &operation.change {
                Change::Discard(_) => "Removal of list items",
                Change::SetIndex(..) => "Setting of list items by index",
                Change::DeleteIndex(_) => "Removal of list items by index",
                _ => continue,
            };
            self.enabled(
                "read_before_write_list_operations",
                limits.read_before_write_list_operations_enabled,
                &format!("{what} requiring read before write"),
            )?;
        }
        Ok(())
    }

    /// Looks at the timestamp that USING TIMESTAMP gives.
    fn written_at(&mut self, table: &Table, timestamp: Timestamp, now: Timestamp) -> Result<()> {
        let text = |side: &'static str, most: &'static str, kind: &'static str, bound: i64| {
            let name = &table.name;
            let why = match side {
                "after" => {
                    "Timestamps too far in the future can lead to data that can't be easily overwritten"
                }
                _ => "Timestamps too far in the past can cause writes can be unexpectedly lost",
            };
            format!(
                "The modification to table {name} has a timestamp {timestamp} {side} the {most} allowable {kind} threshold \
                 {bound}. {why}"
            )
        };
        let micros = |bound: u64| i64::try_from(bound).unwrap_or(i64::MAX);
        let after = |bound| now.saturating_add(micros(bound));
        let before = |bound| now.saturating_sub(micros(bound));
        let most = Words {
            warn: &|bound| text("after", "maximum", "warning", after(bound)),
            fail: &|bound| text("after", "maximum", "failure", after(bound)),
        };
        let ahead = u64::try_from(timestamp.saturating_sub(now)).unwrap_or(0);
        self.at_most("maximum_timestamp", self.limits.maximum_timestamp, ahead, &most)?;
        let least = Words {
            warn: &|bound| text("before", "minimum", "warning", before(bound)),
            fail: &|bound| text("before", "minimum", "failure", before(bound)),
        };
        let behind = u64::try_from(now.saturating_sub(timestamp)).unwrap_or(0);
        self.at_most("minimum_timestamp", self.limits.minimum_timestamp, behind, &least)
    }

    /// Looks at USING TIMESTAMP.
    ///
    /// # Errors
    /// When it is off.
    pub fn timestamp(&mut self) -> Result<()> {
        let feature = "User provided timestamps (USING TIMESTAMP)";
        self.enabled("user_timestamps", self.limits.user_timestamps_enabled, feature)
    }

    /// Looks at the values that are written.
    ///
    /// # Errors
    /// The limit that one of them breaks.
    pub fn updates(&mut self, updates: &[PartitionUpdate]) -> Result<()> {
        let (limits, off) = (self.limits, Thresholds::default());
        let of_values = [
            limits.items_per_collection,
            limits.collection_size,
            limits.column_value_size,
            limits.column_ascii_value_size,
            limits.column_blob_value_size,
            limits.column_text_and_varchar_value_size,
            limits.sai_string_term_size,
            limits.sai_frozen_term_size,
            limits.sai_vector_term_size,
        ];
        if of_values.iter().all(|bounds| *bounds == off) {
            return Ok(());
        }
        for update in updates {
            for row in update.all_rows() {
                self.row(&update.table, row)?;
            }
            self.key_terms(update)?;
        }
        Ok(())
    }

    fn row(&mut self, table: &Table, row: &Row) -> Result<()> {
        for (id, data) in row.columns() {
            let Some(column) = table.column_by_id(*id) else { continue };
            self.terms(table, column, data)?;
            match data {
                ColumnData::Simple(cell) => {
                    self.value(column, cell.value.len())?;
                    if column.ty.is_collection() && !cell.value.is_empty() {
                        let items = match &column.ty {
                            CqlType::Map { .. } => Elements::of_map(&cell.value)?.count() / 2,
                            CqlType::Set { .. } => Elements::of_set(&cell.value)?.count(),
                            _ => Elements::of_list(&cell.value)?.count(),
                        };
                        self.collection(column, items, cell.value.len())?;
                    }
                }
                ColumnData::Complex(complex) => {
                    let (mut items, mut bytes) = (0, 0);
                    for one in complex.cells.iter().filter(|one| !one.cell.is_tombstone()) {
                        self.value(column, one.path.len().max(one.cell.value.len()))?;
                        items += 1;
                        bytes += CELL_OVERHEAD_BYTES + one.path.len() + one.cell.value.len();
                    }
                    if column.ty.is_collection() {
                        self.collection(column, items, bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, column: &Column, bytes: usize) -> Result<()> {
        let (warn, fail) = exceeds(format!("Value of column '{}' has size {bytes}", column.name));
        let words = Words { warn: &warn, fail: &fail };
        let limits = self.limits;
        self.at_most("column_value_size", limits.column_value_size, bytes as u64, &words)?;
        let (name, bounds) = match column.ty {
            CqlType::Ascii => ("column_ascii_value_size", limits.column_ascii_value_size),
            CqlType::Blob => ("column_blob_value_size", limits.column_blob_value_size),
            CqlType::Text => {
                ("column_text_and_varchar_value_size", limits.column_text_and_varchar_value_size)
            }
            _ => return Ok(()),
        };
        self.at_most(name, bounds, bytes as u64, &words)
    }

    /// Looks at the terms that an index of SAI gets from the values of a column.
    fn terms(&mut self, table: &Table, column: &Column, data: &ColumnData) -> Result<()> {
        if !has_terms(table, column) {
            return Ok(());
        }
        match data {
            ColumnData::Simple(cell) => self.term(column, &column.ty, cell.value.len()),
            ColumnData::Complex(complex) => {
                let (paths, values) = match &column.ty {
                    CqlType::Set { element, .. } => (Some(&**element), None),
                    CqlType::List { element, .. } => (None, Some(&**element)),
                    CqlType::Map { key, value, .. } => (Some(&**key), Some(&**value)),
                    _ => (None, None),
                };
                for one in &complex.cells {
                    for (ty, bytes) in [(paths, one.path.len()), (values, one.cell.value.len())] {
                        if let Some(ty) = ty {
                            self.term(column, ty, bytes)?;
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// Looks at the terms that an index of SAI gets from the keys of the rows that are written.
    fn key_terms(&mut self, update: &PartitionUpdate) -> Result<()> {
        let table = &update.table;
        if update.rows().is_empty() || table.indexes.is_empty() {
            return Ok(());
        }
        let key = DecoratedKey::components(&update.key.key, table.partition_key().len()).unwrap_or_default();
        for (column, value) in table.partition_key().iter().zip(key) {
            if has_terms(table, column) {
                self.term(column, &column.ty, value.len())?;
            }
        }
        for (at, column) in
            table.clustering().iter().enumerate().filter(|(_, column)| has_terms(table, column))
        {
            for row in update.rows() {
                let value = row.clustering.components().nth(at).flatten();
                self.term(column, &column.ty, value.map_or(0, <[u8]>::len))?;
            }
        }
        Ok(())
    }

    fn term(&mut self, column: &Column, ty: &CqlType, bytes: usize) -> Result<()> {
        let limits = self.limits;
        let (name, bounds) = match ty {
            CqlType::Ascii | CqlType::Text => ("sai_string_term_size", limits.sai_string_term_size),
            CqlType::Vector { .. } => ("sai_vector_term_size", limits.sai_vector_term_size),
            CqlType::Tuple(_) | CqlType::Udt { .. } => ("sai_frozen_term_size", limits.sai_frozen_term_size),
            ty if ty.is_collection() => ("sai_frozen_term_size", limits.sai_frozen_term_size),
            _ => return Ok(()),
        };
        let (warn, fail) = exceeds(format!("Value of column '{}' has size {bytes}", column.name));
        self.at_most(name, bounds, bytes as u64, &Words { warn: &warn, fail: &fail })
    }

    fn collection(&mut self, column: &Column, items: usize, bytes: usize) -> Result<()> {
        let (limits, name) = (self.limits, &column.name);
        let (warn, fail) = exceeds(format!("Detected collection {name} with {items} items"));
        let words = Words { warn: &warn, fail: &fail };
        self.at_most("items_per_collection", limits.items_per_collection, items as u64, &words)?;
        let (warn, fail) = exceeds(format!("Detected collection {name} of size {bytes}"));
        let words = Words { warn: &warn, fail: &fail };
        self.at_most("collection_size", limits.collection_size, bytes as u64, &words)
    }
}

/// Whether an index of SAI has the values of a column.
fn has_terms(table: &Table, column: &Column) -> bool {
    let mut indexes = table.indexes.values();
    indexes.any(|index| index.depends_on(&column.name) && index.is_storage_attached())
}

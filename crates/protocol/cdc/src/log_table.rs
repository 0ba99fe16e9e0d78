//! The definition of a log, which follows from the definition of its base table.

use schema::{CDC_LOG_SUFFIX, Column, ColumnKind, Derivation, InvalidSchema, Table, TableBuilder, TableId};
use stdx::HashSet;
use types::CqlType;

/// The beginning of the names of a log's own columns. No column of a base table has such a name.
pub const COLUMN_PREFIX: &str = "cdc$";

pub(crate) const STREAM_ID: &str = "cdc$stream_id";
pub(crate) const TIME: &str = "cdc$time";
pub(crate) const BATCH_SEQ_NO: &str = "cdc$batch_seq_no";
/// Name of the column that marks the last row of a write.
pub const END_OF_BATCH: &str = "cdc$end_of_batch";
/// Name of the column with the [`crate::Operation`] of a row.
pub const OPERATION: &str = "cdc$operation";
pub(crate) const TTL: &str = "cdc$ttl";

const TIME_WINDOW: &str = "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy";
/// Windows of compaction in the life of a log's rows.
const WINDOWS: u32 = 24;

/// The name of the log of a table of this name.
pub fn log_name(base: &str) -> String {
    format!("{base}{CDC_LOG_SUFFIX}")
}

/// Name of the column that says that another was deleted.
pub fn deleted(column: &str) -> String {
    format!("{COLUMN_PREFIX}deleted_{column}")
}

/// Name of the column that says which elements of another were deleted.
pub fn deleted_elements(column: &str) -> String {
    format!("{COLUMN_PREFIX}deleted_elements_{column}")
}

/// The type of the keys of a column's elements; none where a column has one cell.
fn element_keys(ty: &CqlType) -> Option<CqlType> {
    if !ty.is_multi_cell() {
        return None;
    }
    Some(match ty {
        CqlType::List { .. } => CqlType::Timeuuid,
        CqlType::Set { element, .. } => element.freeze(),
        CqlType::Map { key, .. } => key.freeze(),
        _ => CqlType::Smallint,
    })
}

/// The type of a column in the log: of a collection or user type the whole as one value, of a list a map by the times of its elements.
pub(crate) fn logged_type(ty: &CqlType) -> CqlType {
    match ty {
        CqlType::List { element, frozen: false } => CqlType::map(CqlType::Timeuuid, element.freeze(), true),
        ty => ty.freeze(),
    }
}

/// The columns of a log outside of its key.
fn columns_of(base: &Table) -> Vec<(String, CqlType)> {
    let mut columns = vec![
        (END_OF_BATCH.to_owned(), CqlType::Boolean),
        (OPERATION.to_owned(), CqlType::Tinyint),
        (TTL.to_owned(), CqlType::Bigint),
    ];
    let is_key = |column: &Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
    for column in base.shown_columns() {
        columns.push((column.name.clone(), logged_type(&column.ty)));
        if is_key(column) {
            continue;
        }
        columns.push((deleted(&column.name), CqlType::Boolean));
        if let Some(keys) = element_keys(&column.ty) {
            columns.push((deleted_elements(&column.name), CqlType::set(keys, true)));
        }
    }
    columns
}

/// The log of a table. With the log of before it is that one, with the columns of now: its options are as they were, but that compaction follows
/// the time to live.
///
/// # Errors
/// When the columns do not make a table.
pub fn log_table(
    base: &Table,
    id: TableId,
    known: Option<&Table>,
    dropped_micros: i64,
) -> Result<Table, InvalidSchema> {
    let columns = columns_of(base);
    let mut builder = match known {
        Some(known) => known.to_builder(),
        None => {
            let mut builder = TableBuilder::new(&base.keyspace, log_name(&base.name), id)
                .partition_key(STREAM_ID, CqlType::Blob)
                .clustering(TIME, CqlType::Timeuuid, false)
                .clustering(BATCH_SEQ_NO, CqlType::Int, false);
            builder.options.comment = format!("CDC log for {}", base.full_name());
            // A row is written once, and expires.
            builder.options.gc_grace_seconds = 0;
            builder.derivation = Some(Derivation::Cdc { base: base.id });
            builder
        }
    };
    let gone = |name: &str, ty: &CqlType| {
        !columns.iter().any(|(wanted, wanted_type)| wanted == name && wanted_type == ty)
    };
    let known_columns: Vec<(String, CqlType)> = match known {
        Some(known) => known.regular_columns().iter().map(|it| (it.name.clone(), it.ty.clone())).collect(),
        None => Vec::new(),
    };
    let dropped: HashSet<&str> =
        known_columns.iter().filter(|(name, ty)| gone(name, ty)).map(|(name, _)| name.as_str()).collect();
    if !dropped.is_empty() {
        builder.drop_columns(&dropped, dropped_micros);
    }
    for (name, ty) in &columns {
        let is_there =
            known_columns.iter().any(|(known, _)| known == name) && !dropped.contains(name.as_str());
        if !is_there {
            builder = builder.regular(name, ty.clone());
        }
    }
    let ttl = base.options.cdc.ttl;
    if ttl > 0 {
        let minutes = (ttl / WINDOWS / 60).max(1);
        let settings = [
            ("class", TIME_WINDOW.to_owned()),
            ("compaction_window_size", minutes.to_string()),
            ("compaction_window_unit", "MINUTES".to_owned()),
            ("expired_sstable_check_frequency_seconds", (ttl / 48).clamp(1, 1800).to_string()),
            ("max_threshold", "32".to_owned()),
            ("min_threshold", "4".to_owned()),
        ];
        builder.options.compaction =
            settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    }
    builder.build()
}

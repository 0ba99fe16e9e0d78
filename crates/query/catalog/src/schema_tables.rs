//! `system_schema` and `system_virtual_schema`: the schema as drivers read it.

use std::collections::BTreeMap;

use schema::{Column, ColumnKind, Keyspace, Schema, Table};
use types::UserType;

use crate::rows::{Datum, RowBuilder};

/// Rows of one table of `system_schema`: what is stored, and the keyspaces that Cassandra stores too.
pub(crate) fn stored(rows: &mut RowBuilder, schema: &Schema) {
    // Cassandra keeps `system` and `system_schema` in files, so drivers look for them here.
    let listed =
        |k: &&std::sync::Arc<Keyspace>| !k.computed || matches!(k.name.as_str(), "system" | "system_schema");
    let keyspaces = schema.keyspaces().filter(listed);
    match rows.table().name.clone().as_str() {
        "keyspaces" => keyspaces.for_each(|k| keyspace(rows, k)),
        "tables" => keyspaces.flat_map(|k| k.tables.values()).for_each(|t| table(rows, t)),
        "columns" => keyspaces.flat_map(|k| k.tables.values()).for_each(|t| columns(rows, t)),
        "dropped_columns" => keyspaces.flat_map(|k| k.tables.values()).for_each(|t| dropped(rows, t)),
        "types" => keyspaces.flat_map(|k| k.types.values()).for_each(|t| user_type(rows, t)),
        // Indexes, views, functions, aggregates, triggers and masks do not exist yet.
        _ => {}
    }
}

/// Rows of one table of `system_virtual_schema`.
pub(crate) fn computed(rows: &mut RowBuilder, schema: &Schema) {
    let listed = |k: &&std::sync::Arc<Keyspace>| k.computed && k.name.starts_with("system_v");
    for keyspace in schema.keyspaces().filter(listed) {
        let name = keyspace.name.as_str();
        match rows.table().name.clone().as_str() {
            "keyspaces" => rows.row([("keyspace_name", name.into())]),
            "tables" => keyspace.tables.values().for_each(|table| {
                rows.row([
                    ("keyspace_name", name.into()),
                    ("table_name", table.name.as_str().into()),
                    ("comment", table.options.comment.as_str().into()),
                ]);
            }),
            "columns" => keyspace.tables.values().for_each(|table| columns(rows, table)),
            _ => {}
        }
    }
}

fn keyspace(rows: &mut RowBuilder, keyspace: &Keyspace) {
    rows.row([
        ("keyspace_name", keyspace.name.as_str().into()),
        ("durable_writes", keyspace.durable_writes.into()),
        ("replication", (&keyspace.replication.to_map()).into()),
    ]);
}

fn int(n: u32) -> Datum {
    Datum::Int(i32::try_from(n).unwrap_or(i32::MAX))
}

fn table(rows: &mut RowBuilder, table: &Table) {
    let options = &table.options;
    let mut flags = vec!["compound"];
    if table.compact_storage {
        flags = vec!["dense"];
    }
    if table.is_counter() {
        flags.push("counter");
    }
    let memtable = Some(options.memtable.as_str()).filter(|name| *name != "default");
    let extensions = options.extensions.iter();
    let extensions = extensions.map(|(k, v)| (k.as_str().into(), Datum::Blob(v.clone()))).collect();
    rows.row([
        ("keyspace_name", table.keyspace.as_str().into()),
        ("table_name", table.name.as_str().into()),
        ("additional_write_policy", options.additional_write_policy.to_string().into()),
        ("allow_auto_snapshot", Some(false).filter(|_| !options.allow_auto_snapshot).into()),
        ("bloom_filter_fp_chance", options.bloom_filter_fp_chance.into()),
        ("caching", (&options.caching).into()),
        ("cdc", Some(true).filter(|_| options.cdc).into()),
        ("comment", options.comment.as_str().into()),
        ("compaction", (&options.compaction).into()),
        ("compression", (&options.compression).into()),
        ("crc_check_chance", options.crc_check_chance.into()),
        ("dclocal_read_repair_chance", 0.0.into()),
        ("default_time_to_live", int(options.default_time_to_live)),
        ("extensions", Datum::Map(extensions)),
        ("flags", Datum::texts(flags)),
        ("gc_grace_seconds", int(options.gc_grace_seconds)),
        ("id", table.id.0.into()),
        ("incremental_backups", options.incremental_backups.into()),
        ("max_index_interval", int(options.max_index_interval)),
        ("memtable", memtable.into()),
        ("memtable_flush_period_in_ms", int(options.memtable_flush_period_in_ms)),
        ("min_index_interval", int(options.min_index_interval)),
        ("read_repair", options.read_repair.as_str().into()),
        ("read_repair_chance", 0.0.into()),
        ("speculative_retry", options.speculative_retry.to_string().into()),
    ]);
}

fn kind_name(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "partition_key",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

fn columns(rows: &mut RowBuilder, table: &Table) {
    for column in table.columns() {
        let Column { name, kind, position, ty, descending, .. } = column;
        let order = match (kind, descending) {
            (ColumnKind::Clustering, false) => "asc",
            (ColumnKind::Clustering, true) => "desc",
            _ => "none",
        };
        let position = match kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => i32::from(*position),
            ColumnKind::Static | ColumnKind::Regular => -1,
        };
        // Key columns are frozen by nature, and shown without the word only for tuples and single values.
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("column_name", name.as_str().into()),
            ("clustering_order", order.into()),
            ("column_name_bytes", name.clone().into_bytes().into()),
            ("kind", kind_name(*kind).into()),
            ("position", position.into()),
            ("type", ty.cql_name().into()),
        ]);
    }
}

fn dropped(rows: &mut RowBuilder, table: &Table) {
    for column in table.dropped_columns.values() {
        let kind = if column.is_static { "static" } else { "regular" };
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("column_name", column.name.as_str().into()),
            ("dropped_time", (column.dropped_micros / 1_000).into()),
            ("kind", kind.into()),
            ("type", column.ty.cql_name().into()),
        ]);
    }
}

fn user_type(rows: &mut RowBuilder, ty: &UserType) {
    let fields: BTreeMap<usize, (&String, String)> =
        ty.fields.iter().enumerate().map(|(i, (name, ty))| (i, (name, ty.cql_name()))).collect();
    rows.row([
        ("keyspace_name", ty.keyspace.as_str().into()),
        ("type_name", ty.name.as_str().into()),
        ("field_names", Datum::list(fields.values().map(|(name, _)| *name))),
        ("field_types", Datum::list(fields.values().map(|(_, ty)| ty))),
    ]);
}

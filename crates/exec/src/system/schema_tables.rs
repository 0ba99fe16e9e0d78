//! `system_schema` and `system_virtual_schema`: the schema as rows.

use std::rc::Rc;
use std::sync::Arc;

use schema::{Column, ColumnKind, Keyspace, Schema, Table};
use types::{CqlType, elements};

use super::RowBuilder;
use crate::catalog::{VirtualRow, VirtualTables};

type Keyspaces = Rc<Vec<Arc<Keyspace>>>;

/// Adds the rows of both schema keyspaces. `stored` are the built-in keyspaces that `system_schema` lists beside those
/// of the schema, `computed` those that `system_virtual_schema` lists.
pub(super) fn provide(tables: &mut VirtualTables, stored: Vec<Arc<Keyspace>>, computed: Vec<Arc<Keyspace>>) {
    let stored: Keyspaces = Rc::new(stored);
    let computed: Keyspaces = Rc::new(computed);
    let mut add = |name: &str, rows: fn(&Table, &Keyspace) -> Vec<VirtualRow>| {
        let own = stored.clone();
        tables.provide("system_schema", name, move |table, schema| {
            all(schema, &own).flat_map(|keyspace| rows(table, keyspace)).collect()
        });
    };
    add("keyspaces", |table, keyspace| vec![keyspace_row(table, keyspace)]);
    add("tables", |table, keyspace| keyspace.tables.values().map(|t| table_row(table, t)).collect());
    add("columns", |table, keyspace| {
        let tables = keyspace.tables.values();
        tables.flat_map(|t| t.columns().iter().map(|c| column_row(table, t, c))).collect()
    });
    add("dropped_columns", |table, keyspace| {
        keyspace.tables.values().flat_map(|t| dropped_rows(table, t)).collect()
    });
    add("types", |table, keyspace| keyspace.types.values().map(|ty| type_row(table, ty)).collect());
    let own = computed.clone();
    tables.provide("system_virtual_schema", "keyspaces", move |table, _| {
        own.iter().map(|k| RowBuilder::new(table).text("keyspace_name", &k.name).build()).collect()
    });
    let own = computed.clone();
    tables.provide("system_virtual_schema", "tables", move |table, _| {
        let tables = own.iter().flat_map(|keyspace| keyspace.tables.values());
        let row = |t: &Arc<Table>| {
            RowBuilder::new(table)
                .text("keyspace_name", &t.keyspace)
                .text("table_name", &t.name)
                .text("comment", &t.options.comment)
                .build()
        };
        tables.map(row).collect()
    });
    tables.provide("system_virtual_schema", "columns", move |table, _| {
        let tables = computed.iter().flat_map(|keyspace| keyspace.tables.values());
        tables.flat_map(|t| t.columns().iter().map(|c| column_row(table, t, c))).collect()
    });
}

fn all<'a>(schema: &'a Schema, own: &'a Keyspaces) -> impl Iterator<Item = &'a Keyspace> {
    own.iter().chain(schema.keyspaces()).map(|keyspace| &**keyspace)
}

fn keyspace_row(table: &Table, keyspace: &Keyspace) -> VirtualRow {
    RowBuilder::new(table)
        .text("keyspace_name", &keyspace.name)
        .boolean("durable_writes", keyspace.durable_writes)
        .text_map("replication", &keyspace.replication.to_map())
        .build()
}

fn table_row(table: &Table, of: &Table) -> VirtualRow {
    let o = &of.options;
    let extensions = o.extensions.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.clone())).collect();
    let mut flags = Vec::new();
    if !of.compact_storage {
        flags.push("compound".to_owned());
    }
    if of.is_counter() {
        flags.push("counter".to_owned());
    }
    let seconds = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let mut row = RowBuilder::new(table)
        .text("keyspace_name", &of.keyspace)
        .text("table_name", &of.name)
        .text("additional_write_policy", &o.additional_write_policy.to_string())
        .double("bloom_filter_fp_chance", o.bloom_filter_fp_chance)
        .text_map("caching", &o.caching)
        .text("comment", &o.comment)
        .text_map("compaction", &o.compaction)
        .text_map("compression", &o.compression)
        .double("crc_check_chance", o.crc_check_chance)
        .double("dclocal_read_repair_chance", 0.0)
        .int("default_time_to_live", seconds(o.default_time_to_live))
        .set("extensions", elements::build_map(&CqlType::Text, extensions))
        .text_set("flags", flags)
        .int("gc_grace_seconds", seconds(o.gc_grace_seconds))
        .set("id", of.id.0.to_vec())
        .int("max_index_interval", seconds(o.max_index_interval))
        .int("memtable_flush_period_in_ms", seconds(o.memtable_flush_period_in_ms))
        .int("min_index_interval", seconds(o.min_index_interval))
        .text("read_repair", &o.read_repair)
        .double("read_repair_chance", 0.0)
        .text("speculative_retry", &o.speculative_retry.to_string());
    // What is as by default is null, as in Cassandra.
    if o.memtable != "default" {
        row = row.text("memtable", &o.memtable);
    }
    if o.cdc {
        row = row.boolean("cdc", true);
    }
    if !o.allow_auto_snapshot {
        row = row.boolean("allow_auto_snapshot", false);
    }
    if let Some(backups) = o.incremental_backups {
        row = row.boolean("incremental_backups", backups);
    }
    row.build()
}

fn kind_name(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "partition_key",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

fn column_row(table: &Table, of: &Table, column: &Column) -> VirtualRow {
    let is_key = matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
    let order = match (column.kind, column.descending) {
        (ColumnKind::Clustering, true) => "desc",
        (ColumnKind::Clustering, false) => "asc",
        _ => "none",
    };
    let row = RowBuilder::new(table)
        .text("keyspace_name", &of.keyspace)
        .text("table_name", &of.name)
        .text("column_name", &column.name)
        .text("clustering_order", order)
        .text("kind", kind_name(column.kind))
        .int("position", if is_key { i32::from(column.position) } else { -1 })
        .text("type", &column.ty.cql_name());
    row.set("column_name_bytes", column.name.as_bytes().to_vec()).build()
}

fn dropped_rows(table: &Table, of: &Table) -> Vec<VirtualRow> {
    let row = |dropped: &schema::DroppedColumn| {
        RowBuilder::new(table)
            .text("keyspace_name", &of.keyspace)
            .text("table_name", &of.name)
            .text("column_name", &dropped.name)
            .bigint("dropped_time", dropped.dropped_micros.div_euclid(1000))
            .text("kind", if dropped.is_static { "static" } else { "regular" })
            .text("type", &dropped.ty.cql_name())
            .build()
    };
    of.dropped_columns.values().map(row).collect()
}

fn type_row(table: &Table, ty: &schema::UserType) -> VirtualRow {
    let names = ty.fields.iter().map(|(name, _)| name.as_bytes().to_vec());
    let types = ty.fields.iter().map(|(_, field)| field.cql_name().into_bytes());
    RowBuilder::new(table)
        .text("keyspace_name", &ty.keyspace)
        .text("type_name", &ty.name)
        .set("field_names", elements::build_list(names))
        .set("field_types", elements::build_list(types))
        .build()
}

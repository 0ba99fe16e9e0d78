//! `system_schema` and `system_virtual_schema`: the schema as drivers read it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use schema::{
    Column, ColumnKind, Derivation, Index, Keyspace, MaskArgument, Schema, Table, UserAggregate, UserFunction,
};
use types::{CqlType, UserType, quote_identifier};

use crate::rows::{Datum, RowBuilder};

/// Whether drivers look for a keyspace in `system_virtual_schema`, and for all others in `system_schema`: Cassandra stores the tables of
/// those in files, also where they are computed here.
pub(crate) fn is_virtual(keyspace: &Keyspace) -> bool {
    matches!(keyspace.name.as_str(), "system_views" | "system_virtual_schema")
}

/// Rows of one table of `system_virtual_schema`.
pub(crate) async fn computed(rows: &mut RowBuilder, schema: &Schema) {
    for keyspace in schema.keyspaces().filter(|keyspace| is_virtual(keyspace)) {
        let (name, tables) = (keyspace.name.as_str(), keyspace.tables.values());
        match rows.table().name.clone().as_str() {
            "keyspaces" => rows.row([("keyspace_name", name.into())]),
            "tables" => {
                let row = |rows: &mut RowBuilder, table: &Arc<Table>| {
                    rows.row([
                        ("keyspace_name", name.into()),
                        ("table_name", table.name.as_str().into()),
                        ("comment", table.options.comment.as_str().into()),
                    ]);
                };
                rows.each(tables, row).await;
            }
            "columns" => {
                rows.each(tables, |rows, table| columns(rows, table, 0..table.columns().len())).await
            }
            _ => {}
        }
    }
}

pub(crate) fn keyspace(rows: &mut RowBuilder, keyspace: &Keyspace) {
    rows.row([
        ("keyspace_name", keyspace.name.as_str().into()),
        ("durable_writes", keyspace.durable_writes.into()),
        ("replication", (&keyspace.replication.to_map()).into()),
    ]);
}

fn int(n: u32) -> Datum {
    Datum::Int(i32::try_from(n).unwrap_or(i32::MAX))
}

pub(crate) fn table(rows: &mut RowBuilder, table: &Table) {
    let mut flags = vec!["compound"];
    if table.compact_storage {
        flags = vec!["dense"];
    }
    if table.is_counter() {
        flags.push("counter");
    }
    let own = [("table_name", table.name.as_str().into()), ("flags", Datum::texts(flags))];
    rows.row(own.into_iter().chain(options(table)));
}

/// The columns that tables and views have in common.
fn options(table: &Table) -> [(&'static str, Datum); 23] {
    let options = &table.options;
    let memtable = Some(options.memtable.as_str()).filter(|name| *name != "default");
    let extensions = options.extensions.iter();
    let extensions = extensions.map(|(k, v)| (k.as_str().into(), Datum::Blob(v.clone()))).collect();
    [
        ("keyspace_name", table.keyspace.as_str().into()),
        ("additional_write_policy", options.additional_write_policy.to_string().into()),
        ("allow_auto_snapshot", Some(false).filter(|_| !options.allow_auto_snapshot).into()),
        ("bloom_filter_fp_chance", options.bloom_filter_fp_chance.into()),
        ("caching", (&options.caching).into()),
        ("cdc", Some(true).filter(|_| options.cdc.enabled).into()),
        ("comment", options.comment.as_str().into()),
        ("compaction", (&options.compaction).into()),
        ("compression", (&options.compression).into()),
        ("crc_check_chance", options.crc_check_chance.into()),
        ("dclocal_read_repair_chance", 0.0.into()),
        ("default_time_to_live", int(options.default_time_to_live)),
        ("extensions", Datum::Map(extensions)),
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
    ]
}

/// A materialized view; of a table that is none there is no row.
pub(crate) fn view(rows: &mut RowBuilder, schema: &Schema, table: &Table) {
    let Some(Derivation::View { base, all_columns, where_clause, .. }) = &table.derivation else { return };
    let base_name = schema.table_by_id(*base).map(|base| base.name.as_str());
    let own = [
        ("view_name", table.name.as_str().into()),
        ("base_table_id", base.0.into()),
        ("base_table_name", base_name.into()),
        ("include_all_columns", (*all_columns).into()),
        ("where_clause", where_clause.as_str().into()),
    ];
    rows.row(own.into_iter().chain(options(table)));
}

/// All tables have the partitioner of the cluster: no row names one.
pub(crate) fn scylla_table(rows: &mut RowBuilder, table: &Table) {
    let options = &table.options;
    let cdc = options.cdc.to_map().into_iter().map(|(name, value)| (name.to_owned(), value));
    let cdc: BTreeMap<String, String> = cdc.collect();
    let limits = options.per_partition_rate_limit.named();
    let limits: Vec<(Datum, Datum)> = limits.map(|(name, limit)| (name.into(), int(limit))).collect();
    rows.row([
        ("keyspace_name", table.keyspace.as_str().into()),
        ("table_name", table.name.as_str().into()),
        ("cdc", options.cdc.enabled.then_some(&cdc).into()),
        ("paxos_grace_seconds", options.paxos_grace_seconds.map(int).into()),
        ("per_partition_rate_limit", if limits.is_empty() { Datum::Null } else { Datum::Map(limits) }),
    ]);
}

pub(crate) fn indexes(rows: &mut RowBuilder, table: &Table) {
    for index in table.indexes.values() {
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("index_name", index.name.as_str().into()),
            ("kind", index.kind().into()),
            ("options", (&index_options(index, table)).into()),
        ]);
    }
}

/// The options with the target and the class among them.
fn index_options(index: &Index, table: &Table) -> BTreeMap<String, String> {
    let class = index.class.iter().map(|class| ("class_name".to_owned(), class.clone()));
    let target = [("target".to_owned(), target(index, table))];
    index.options.clone().into_iter().chain(class).chain(target).collect()
}

/// The targets as drivers read them: as in statements, of a local index as ScyllaDB's JSON of partition key and targets.
fn target(index: &Index, table: &Table) -> String {
    if !index.local {
        return index.target();
    }
    let names: Vec<&str> = table.partition_key().iter().map(|column| column.name.as_str()).collect();
    let targets: Vec<&str> = index.targets.iter().map(|target| target.column.as_str()).collect();
    format!("{{\"pk\":{},\"ck\":{}}}", json_array(&names), json_array(&targets))
}

fn json_array(texts: &[&str]) -> String {
    serde_json::Value::from(texts).to_string()
}

pub(crate) fn triggers(rows: &mut RowBuilder, table: &Table) {
    for trigger in table.triggers.values() {
        let options = BTreeMap::from([("class".to_owned(), trigger.class.clone())]);
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("trigger_name", trigger.name.as_str().into()),
            ("options", (&options).into()),
        ]);
    }
}

pub(crate) fn function(rows: &mut RowBuilder, function: &UserFunction) {
    rows.row([
        ("keyspace_name", function.keyspace.as_str().into()),
        ("function_name", function.name.as_str().into()),
        ("argument_types", Datum::list(function.argument_types().map(CqlType::cql_name))),
        ("argument_names", Datum::list(function.arguments.iter().map(|(name, _)| name))),
        ("body", function.body.as_str().into()),
        ("called_on_null_input", function.called_on_null_input.into()),
        ("language", function.language.as_str().into()),
        ("return_type", function.returns.cql_name().into()),
    ]);
}

pub(crate) fn aggregate(rows: &mut RowBuilder, aggregate: &UserAggregate) {
    rows.row([
        ("keyspace_name", aggregate.keyspace.as_str().into()),
        ("aggregate_name", aggregate.name.as_str().into()),
        ("argument_types", Datum::list(aggregate.arguments.iter().map(CqlType::cql_name))),
        ("final_func", aggregate.final_function.clone().into()),
        ("initcond", aggregate.initial_condition.clone().into()),
        ("return_type", aggregate.returns.cql_name().into()),
        ("state_func", aggregate.state_function.as_str().into()),
        ("state_type", aggregate.state_type.cql_name().into()),
    ]);
}

/// The row of an aggregate that merges states; the others have none.
pub(crate) fn scylla_aggregate(rows: &mut RowBuilder, aggregate: &UserAggregate) {
    let Some(reduce_function) = &aggregate.reduce_function else { return };
    rows.row([
        ("keyspace_name", aggregate.keyspace.as_str().into()),
        ("aggregate_name", aggregate.name.as_str().into()),
        ("argument_types", Datum::list(aggregate.arguments.iter().map(CqlType::cql_name))),
        ("reduce_func", reduce_function.as_str().into()),
        ("state_type", aggregate.state_type.cql_name().into()),
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

/// The columns of a table at these places, as far as they are shown.
pub(crate) fn columns(rows: &mut RowBuilder, table: &Table, places: Range<usize>) {
    for column in table.columns()[places].iter().filter(|column| !column.is_hidden()) {
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

pub(crate) fn constraints(rows: &mut RowBuilder, table: &Table) {
    for column in table.constrained_columns() {
        let name = quote_identifier(&column.name);
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("column_name", column.name.as_str().into()),
            ("constraints", Datum::list(column.constraints.iter().map(|one| one.cql(&name)))),
        ]);
    }
}

pub(crate) fn masks(rows: &mut RowBuilder, table: &Table) {
    for column in table.masked_columns() {
        let Some(mask) = &column.mask else { continue };
        // Constants stand without quotes, and bytes without `0x`.
        let value = |argument: &MaskArgument| {
            let text = argument.literal.as_deref().unwrap_or_default();
            match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
                Some(inner) => inner.replace("''", "'"),
                None if argument.ty == CqlType::Blob => text.trim_start_matches("0x").to_owned(),
                None => text.to_owned(),
            }
        };
        let arguments = &mask.arguments;
        let nulls = arguments.iter().map(|argument| argument.literal.is_none().into()).collect();
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("column_name", column.name.as_str().into()),
            ("function_argument_nulls", Datum::List(nulls)),
            ("function_argument_types", Datum::list(arguments.iter().map(|one| one.ty.cql_name()))),
            ("function_argument_values", Datum::list(arguments.iter().map(value))),
            ("function_keyspace", mask.keyspace.as_str().into()),
            ("function_name", mask.name.as_str().into()),
        ]);
    }
}

pub(crate) fn dropped(rows: &mut RowBuilder, table: &Table) {
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

pub(crate) fn user_type(rows: &mut RowBuilder, ty: &UserType) {
    let fields: BTreeMap<usize, (&String, String)> =
        ty.fields.iter().enumerate().map(|(i, (name, ty))| (i, (name, ty.cql_name()))).collect();
    rows.row([
        ("keyspace_name", ty.keyspace.as_str().into()),
        ("type_name", ty.name.as_str().into()),
        ("field_names", Datum::list(fields.values().map(|(name, _)| *name))),
        ("field_types", Datum::list(fields.values().map(|(_, ty)| ty))),
    ]);
}

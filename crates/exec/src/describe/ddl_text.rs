//! The statements that would make what the schema holds, in Cassandra's words, order and layout.

use std::collections::BTreeMap;
use std::fmt::Write;

use schema::{Column, Keyspace, Table, UserType};
use types::quote_identifier;

fn string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn map(entries: &BTreeMap<String, String>) -> String {
    let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{}: {}", string(k), string(v))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// Java's text of a double.
fn double(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let point = if mantissa.contains('.') { "" } else { ".0" };
        return format!("{mantissa}{point}E{exponent}");
    }
    format!("{value:?}")
}

/// `CREATE KEYSPACE …`
pub fn keyspace(keyspace: &Keyspace) -> String {
    // The class comes first, and without its package.
    let mut options = Vec::new();
    for (key, value) in keyspace.replication.to_map() {
        if key == "class" {
            options.insert(0, format!("'class': {}", string(value.rsplit('.').next().unwrap_or(&value))));
        } else {
            options.push(format!("{}: {}", string(&key), string(&value)));
        }
    }
    format!(
        "CREATE KEYSPACE {} WITH replication = {{{}}}  AND durable_writes = {};",
        quote_identifier(&keyspace.name),
        options.join(", "),
        keyspace.durable_writes
    )
}

/// `CREATE TYPE …`
pub fn user_type(ty: &UserType) -> String {
    let fields: Vec<String> = ty
        .fields
        .iter()
        .map(|(name, field)| format!("    {} {}", quote_identifier(name), field.cql_name()))
        .collect();
    format!(
        "CREATE TYPE {}.{} (\n{}\n);",
        quote_identifier(&ty.keyspace),
        quote_identifier(&ty.name),
        fields.join(",\n")
    )
}

/// The columns in the order in which Cassandra shows them: keys, static columns, then regular ones, of each the simple
/// before the complex.
fn shown_columns(table: &Table) -> Vec<&Column> {
    let complex_last = |columns: &'_ [Column]| {
        let (complex, simple): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|at| columns[*at].is_complex());
        simple.into_iter().chain(complex).collect::<Vec<_>>()
    };
    let mut out: Vec<&Column> = table.partition_key().iter().chain(table.clustering()).collect();
    out.extend(complex_last(table.static_columns()).into_iter().map(|at| &table.static_columns()[at]));
    out.extend(complex_last(table.regular_columns()).into_iter().map(|at| &table.regular_columns()[at]));
    out
}

/// `CREATE TABLE …`, with the id and dropped columns when `internals` are asked for.
pub fn table(table: &Table, internals: bool) -> String {
    let mut out = String::new();
    let name = format!("{}.{}", quote_identifier(&table.keyspace), quote_identifier(&table.name));
    let _ = writeln!(out, "CREATE TABLE {name} (");
    let single_key = table.partition_key().len() == 1 && table.clustering().is_empty();
    let mut lines: Vec<String> = Vec::new();
    let mut readded: Vec<&Column> = Vec::new();
    for column in shown_columns(table) {
        let mut line = format!("    {} {}", quote_identifier(&column.name), column.ty.cql_name());
        if column.kind == schema::ColumnKind::Static {
            line.push_str(" static");
        }
        if single_key && column.kind == schema::ColumnKind::PartitionKey {
            line.push_str(" PRIMARY KEY");
        }
        if internals && table.dropped_columns.contains_key(&column.name) {
            readded.push(column);
        }
        lines.push(line);
    }
    if internals {
        for (name, dropped) in &table.dropped_columns {
            if table.column(name).is_none() {
                let kind = if dropped.is_static { " static" } else { "" };
                lines.push(format!("    {} {}{kind}", quote_identifier(name), dropped.ty.cql_name()));
            }
        }
    }
    if !single_key {
        lines.push(format!("    PRIMARY KEY ({})", primary_key(table)));
    }
    out.push_str(&lines.join(",\n"));
    out.push_str("\n) WITH ");
    if internals {
        let _ = write!(out, "ID = {}\n    AND ", table.id);
    }
    if table.compact_storage {
        out.push_str("COMPACT STORAGE\n    AND ");
    }
    if !table.clustering().is_empty() {
        let order: Vec<String> = table
            .clustering()
            .iter()
            .map(|c| format!("{} {}", quote_identifier(&c.name), if c.descending { "DESC" } else { "ASC" }))
            .collect();
        let _ = write!(out, "CLUSTERING ORDER BY ({})\n    AND ", order.join(", "));
    }
    out.push_str(&options(table));
    out.push(';');
    if internals {
        for (column, dropped) in &table.dropped_columns {
            let micros = dropped.dropped_micros;
            let _ = write!(
                out,
                "\nALTER TABLE {name} DROP {} USING TIMESTAMP {micros};",
                quote_identifier(column)
            );
        }
        for column in readded {
            let kind = if column.kind == schema::ColumnKind::Static { " static" } else { "" };
            let _ = write!(
                out,
                "\nALTER TABLE {name} ADD {} {}{kind};",
                quote_identifier(&column.name),
                column.ty.cql_name()
            );
        }
    }
    out
}

fn primary_key(table: &Table) -> String {
    let quoted = |columns: &[Column]| columns.iter().map(|c| quote_identifier(&c.name)).collect::<Vec<_>>();
    let partition = quoted(table.partition_key());
    let partition =
        if partition.len() > 1 { format!("({})", partition.join(", ")) } else { partition.join("") };
    std::iter::once(partition).chain(quoted(table.clustering())).collect::<Vec<_>>().join(", ")
}

/// The options from `additional_write_policy` on, one a line.
fn options(table: &Table) -> String {
    let o = &table.options;
    let extensions: Vec<String> = o
        .extensions
        .iter()
        .map(|(name, value)| {
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}: 0x{hex}", string(name))
        })
        .collect();
    [
        format!("additional_write_policy = {}", string(&o.additional_write_policy.to_string())),
        format!("allow_auto_snapshot = {}", o.allow_auto_snapshot),
        format!("bloom_filter_fp_chance = {}", double(o.bloom_filter_fp_chance)),
        format!("caching = {}", map(&o.caching)),
        format!("cdc = {}", o.cdc),
        format!("comment = {}", string(&o.comment)),
        format!("compaction = {}", map(&o.compaction)),
        format!("compression = {}", map(&o.compression)),
        format!("memtable = {}", string(&o.memtable)),
        format!("crc_check_chance = {}", double(o.crc_check_chance)),
        format!("default_time_to_live = {}", o.default_time_to_live),
        format!("extensions = {{{}}}", extensions.join(", ")),
        format!("gc_grace_seconds = {}", o.gc_grace_seconds),
        format!("incremental_backups = {}", o.incremental_backups.unwrap_or(true)),
        format!("max_index_interval = {}", o.max_index_interval),
        format!("memtable_flush_period_in_ms = {}", o.memtable_flush_period_in_ms),
        format!("min_index_interval = {}", o.min_index_interval),
        format!("read_repair = {}", string(&o.read_repair)),
        format!("speculative_retry = {}", string(&o.speculative_retry.to_string())),
    ]
    .join("\n    AND ")
}

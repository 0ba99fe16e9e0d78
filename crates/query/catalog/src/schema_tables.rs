//! `system_schema` and `system_virtual_schema`: the schema as drivers read it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use mutation::PartitionUpdate;
use schema::{
    Column, ColumnKind, Derivation, Index, Keyspace, MaskArgument, Schema, Table, UserAggregate, UserFunction,
};
use types::{CqlType, UserType};

use crate::rows::{Datum, RowBuilder};

/// Columns of tables that become rows in one step.
const COLUMNS_A_STEP: usize = 256;

/// The content of one table of `system_schema` (what is stored, and the keyspaces that Cassandra stores too), made in steps between which a
/// shard does other work: a schema may have twenty thousand tables, and a table 65,535 columns.
pub struct StoredSchema {
    table: Arc<Table>,
    rows: RowBuilder,
    schema: Arc<Schema>,
    keyspaces: Vec<Arc<Keyspace>>,
    /// Of the keyspace that is under way, the next one last.
    tables: Vec<Arc<Table>>,
    /// Columns of the next table that are rows already.
    columns_done: usize,
}

impl StoredSchema {
    /// The content of `table` of the keyspaces that are `wanted`; none when it is no table of `system_schema`.
    pub fn new(table: &Arc<Table>, schema: &Arc<Schema>, wanted: impl Fn(&str) -> bool) -> Option<Self> {
        if table.keyspace != "system_schema" {
            return None;
        }
        // Cassandra stores these in files, so drivers look for them here.
        let listed = |k: &&Arc<Keyspace>| {
            !k.computed || matches!(k.name.as_str(), "system" | "system_auth" | "system_schema")
        };
        let keyspaces = schema.keyspaces().filter(listed).filter(|k| wanted(&k.name)).cloned().collect();
        Some(Self {
            table: table.clone(),
            rows: RowBuilder::new(table.clone()),
            schema: schema.clone(),
            keyspaces,
            tables: Vec::new(),
            columns_done: 0,
        })
    }

    /// Makes some rows; whether there are more.
    pub fn step(&mut self) -> bool {
        let mut room = COLUMNS_A_STEP;
        while room > 0 {
            let Some(table) = self.tables.last().cloned() else {
                let Some(keyspace) = self.keyspaces.pop() else { return false };
                self.begin_keyspace(&keyspace);
                room -= 1;
                continue;
            };
            let rows = &mut self.rows;
            let mut done = true;
            match self.table.name.as_str() {
                "tables" if !table.is_view() => self::table(rows, &table),
                "columns" => {
                    let upto = (self.columns_done + room).min(table.columns().len());
                    columns(rows, &table, self.columns_done..upto);
                    room -= (upto - self.columns_done).min(room);
                    done = upto == table.columns().len();
                    self.columns_done = if done { 0 } else { upto };
                }
                "dropped_columns" => dropped(rows, &table),
                "views" => view(rows, &self.schema, &table),
                "indexes" => indexes(rows, &table),
                "triggers" => triggers(rows, &table),
                "column_masks" => masks(rows, &table),
                _ => {}
            }
            if done {
                self.tables.pop();
                room = room.saturating_sub(4);
            }
        }
        true
    }

    /// Makes the rows of a keyspace that are not of its tables.
    fn begin_keyspace(&mut self, keyspace: &Keyspace) {
        let rows = &mut self.rows;
        match self.table.name.as_str() {
            "keyspaces" => self::keyspace(rows, keyspace),
            "types" => keyspace.types.values().for_each(|ty| user_type(rows, ty)),
            "functions" => keyspace.functions.values().for_each(|one| function(rows, one)),
            "aggregates" => keyspace.aggregates.values().for_each(|one| aggregate(rows, one)),
            _ => self.tables = keyspace.tables.values().rev().cloned().collect(),
        }
    }

    /// All rows, in ring order of their keyspaces.
    pub fn finish(mut self) -> Vec<PartitionUpdate> {
        while self.step() {}
        self.rows.finish()
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
            "columns" => {
                keyspace.tables.values().for_each(|table| columns(rows, table, 0..table.columns().len()))
            }
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
fn view(rows: &mut RowBuilder, schema: &Schema, table: &Table) {
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

fn indexes(rows: &mut RowBuilder, table: &Table) {
    for index in table.indexes.values() {
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("index_name", index.name.as_str().into()),
            ("kind", index.kind().into()),
            ("options", (&index_options(index)).into()),
        ]);
    }
}

/// The options with the target and the class among them.
fn index_options(index: &Index) -> BTreeMap<String, String> {
    let class = index.class.iter().map(|class| ("class_name".to_owned(), class.clone()));
    let target = [("target".to_owned(), index.target())];
    index.options.clone().into_iter().chain(class).chain(target).collect()
}

fn triggers(rows: &mut RowBuilder, table: &Table) {
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

fn function(rows: &mut RowBuilder, function: &UserFunction) {
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

fn aggregate(rows: &mut RowBuilder, aggregate: &UserAggregate) {
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

fn kind_name(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "partition_key",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

/// The columns of a table at these places, as far as they are shown.
fn columns(rows: &mut RowBuilder, table: &Table, places: Range<usize>) {
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

fn masks(rows: &mut RowBuilder, table: &Table) {
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

#[cfg(test)]
mod tests {
    use schema::{Replication, TableBuilder, TableId};

    use super::*;

    fn schema(tables: u32, columns: u32) -> Arc<Schema> {
        let mut schema = Schema::default().with_keyspace(Keyspace::new("other", Replication::Local));
        for keyspace in crate::computed_keyspaces() {
            schema = schema.with_keyspace(keyspace);
        }
        let mut keyspace = Keyspace::new("ks", Replication::Local);
        for number in 0..tables {
            let mut id = [1; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            let mut table = TableBuilder::new("ks", format!("t{number:05}"), TableId(id))
                .partition_key("k", CqlType::Int);
            for column in 0..columns {
                table = table.regular(format!("c{column}"), CqlType::Int);
            }
            let table = table.build_known();
            keyspace.tables.insert(table.name.clone(), table);
        }
        Arc::new(schema.with_keyspace(keyspace))
    }

    fn count(partitions: &[PartitionUpdate]) -> usize {
        partitions.iter().map(|partition| partition.rows().len()).sum()
    }

    #[test]
    fn a_large_schema_is_shown_in_small_steps_and_whole() {
        for (tables, columns) in [(2_000, 1), (2, 3_000)] {
            let schema = schema(tables, columns);
            let table = schema.table("system_schema", "columns").expect("it is there");
            let mut stored =
                StoredSchema::new(table, &schema, |name| name == "ks").expect("of system_schema");
            let mut steps = 1;
            while stored.step() {
                steps += 1;
            }
            let rows = (tables * (columns + 1)) as usize;
            assert_eq!(count(&stored.finish()), rows);
            assert!(steps >= rows / COLUMNS_A_STEP, "{steps} steps for {rows} rows");
        }
    }

    #[test]
    fn every_table_has_its_rows_once() {
        let schema = schema(30, 4);
        for (name, rows) in [("tables", 30), ("columns", 150), ("keyspaces", 1), ("indexes", 0), ("types", 0)]
        {
            let table = schema.table("system_schema", name).expect("it is there");
            let stored = StoredSchema::new(table, &schema, |name| name == "ks").expect("of system_schema");
            assert_eq!(count(&stored.finish()), rows, "{name}");
        }
    }
}

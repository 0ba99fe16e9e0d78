//! CREATE statements for existing objects, in the form and order that Cassandra 5.0 gives them.

use std::collections::BTreeMap;
use std::fmt::Write;

use schema::{
    Cdc, Column, ColumnKind, Derivation, Description, Index, Keyspace, Replication, Table, TombstoneGc,
    TypeDescription, UserAggregate, UserFunction, UserType,
};
use types::{CqlType, quote_identifier, quote_type_name};

use crate::schema_tables::is_virtual;

/// A string constant, quotes doubled.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn map(pairs: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{}: {}", quoted(k), quoted(v))).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// A float as Java prints it: always with a point.
fn float(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        let text = format!("{value:E}");
        let (mantissa, exponent) = text.split_once('E').expect("the E form has an E");
        let mantissa = if mantissa.contains('.') { mantissa.to_owned() } else { format!("{mantissa}.0") };
        return format!("{mantissa}E{exponent}");
    }
    format!("{value:?}")
}

/// The statements that describe an element, which is named with its kind, each in a line of its own.
fn described(element: &str, description: &Description) -> String {
    let said = [("COMMENT", &description.comment), ("SECURITY LABEL", &description.security_label)];
    let statement = |(what, text): (&str, &Option<String>)| {
        text.as_ref().map(|text| format!("\n{what} ON {element} IS {};", quoted(text)))
    };
    said.into_iter().filter_map(statement).collect()
}

/// `CREATE KEYSPACE …;`, and its comments and labels; of a virtual keyspace a comment.
pub fn create_keyspace(keyspace: &Keyspace, if_not_exists: bool) -> String {
    let name = quote_identifier(&keyspace.name);
    if is_virtual(keyspace) {
        return format!(
            "/*\nWarning: Keyspace {name} is a virtual keyspace and cannot be recreated with CQL.\nStructure, for reference:\n\
             VIRTUAL KEYSPACE {name};\n*/"
        );
    }
    let mut replication = vec![];
    let mut pair = |name: &str, value: &str| replication.push(format!("{}: {}", quoted(name), quoted(value)));
    match &keyspace.replication {
        Replication::Local => pair("class", "LocalStrategy"),
        Replication::Everywhere => pair("class", "EverywhereStrategy"),
        Replication::Simple { factor } => {
            pair("class", "SimpleStrategy");
            pair("replication_factor", &factor.to_string());
        }
        Replication::NetworkTopology { factors } => {
            pair("class", "NetworkTopologyStrategy");
            factors.iter().for_each(|(dc, n)| pair(dc, &n.to_string()));
        }
    }
    format!(
        "CREATE KEYSPACE {}{name} WITH replication = {{{}}}  AND durable_writes = {};{}",
        if if_not_exists { "IF NOT EXISTS " } else { "" },
        replication.join(", "),
        keyspace.durable_writes,
        described(&format!("KEYSPACE {name}"), &keyspace.description)
    )
}

/// `CREATE TYPE …;`, and the comments and labels of the type and its fields.
pub fn create_type(ty: &UserType, description: Option<&TypeDescription>) -> String {
    let field = |(name, ty): &(String, CqlType)| format!("    {} {}", quote_identifier(name), ty.cql_name());
    let fields: Vec<String> = ty.fields.iter().map(field).collect();
    let name = format!("{}.{}", quote_identifier(&ty.keyspace), quote_type_name(&ty.name));
    let mut out = format!("CREATE TYPE {name} (\n{}\n);", fields.join(",\n"));
    if let Some(description) = description {
        out.push_str(&described(&format!("TYPE {name}"), &description.whole));
        for (field, _) in &ty.fields {
            if let Some(said) = description.fields.get(field) {
                out.push_str(&described(&format!("FIELD {name}.{}", quote_identifier(field)), said));
            }
        }
    }
    out
}

/// Types of arguments, as names of functions in DESCRIBE have them.
fn types<'t>(types: impl IntoIterator<Item = &'t CqlType>) -> String {
    types.into_iter().map(CqlType::cql_name_unfrozen).collect::<Vec<_>>().join(", ")
}

/// `f(int, text)`
pub fn function_name(function: &UserFunction) -> String {
    format!("{}({})", quote_identifier(&function.name), types(function.argument_types()))
}

/// `f(int, text)`
pub fn aggregate_name(aggregate: &UserAggregate) -> String {
    format!("{}({})", quote_identifier(&aggregate.name), types(&aggregate.arguments))
}

/// `CREATE FUNCTION …;`
pub fn create_function(function: &UserFunction) -> String {
    let argument =
        |(name, ty): &(String, CqlType)| format!("{} {}", quote_identifier(name), ty.cql_name_unfrozen());
    let arguments: Vec<String> = function.arguments.iter().map(argument).collect();
    let body = match function.body.contains("$$") || function.body.ends_with('$') {
        false => format!("$${}$$", function.body),
        true => quoted(&function.body),
    };
    format!(
        "CREATE FUNCTION {}.{}({})\n    {} ON NULL INPUT\n    RETURNS {}\n    LANGUAGE {}\n    AS {};",
        quote_identifier(&function.keyspace),
        quote_identifier(&function.name),
        arguments.join(", "),
        if function.called_on_null_input { "CALLED" } else { "RETURNS NULL" },
        function.returns.cql_name_unfrozen(),
        function.language,
        body
    )
}

/// `CREATE AGGREGATE …;`
pub fn create_aggregate(aggregate: &UserAggregate) -> String {
    let mut out = format!(
        "CREATE AGGREGATE {}.{}\n    SFUNC {}\n    STYPE {}",
        quote_identifier(&aggregate.keyspace),
        aggregate_name(aggregate),
        quote_identifier(&aggregate.state_function),
        aggregate.state_type.cql_name_unfrozen()
    );
    if let Some(function) = &aggregate.reduce_function {
        out.push_str(&format!("\n    REDUCEFUNC {}", quote_identifier(function)));
    }
    if let Some(function) = &aggregate.final_function {
        out.push_str(&format!("\n    FINALFUNC {}", quote_identifier(function)));
    }
    if let Some(term) = &aggregate.initial_condition {
        out.push_str(&format!("\n    INITCOND {term}"));
    }
    out.push(';');
    out
}

/// `CREATE INDEX …;`
pub fn create_index(index: &Index, table: &Table) -> String {
    let name = quote_identifier(&index.name);
    let target = match index.local {
        true => format!("({}), {}", names(table.partition_key().iter()), index.target()),
        false => index.target(),
    };
    let table = format!("{}.{}", quote_identifier(&table.keyspace), quote_identifier(&table.name));
    let Some(class) = &index.class else { return format!("CREATE INDEX {name} ON {table} ({target});") };
    let options = match index.options.is_empty() {
        true => String::new(),
        false => format!(" WITH OPTIONS = {}", map(&index.options)),
    };
    format!("CREATE CUSTOM INDEX {name} ON {table} ({target}) USING {}{options};", quoted(class))
}

/// `CREATE MATERIALIZED VIEW …;` of a table that is one, with id when `internals` are wanted.
///
/// # Panics
/// When the table is no view.
pub fn create_view(view: &Table, base: &Table, internals: bool) -> String {
    let Some(Derivation::View { all_columns, where_clause, .. }) = &view.derivation else {
        panic!("{} is no view", view.full_name());
    };
    let selected = match all_columns {
        true => "*".to_owned(),
        false => names(view.shown_columns()),
    };
    let full_name =
        |table: &Table| format!("{}.{}", quote_identifier(&table.keyspace), quote_identifier(&table.name));
    let mut options = Vec::new();
    if internals {
        options.push(format!("ID = {}", view.id));
    }
    if !view.clustering().is_empty() {
        options.push(format!("CLUSTERING ORDER BY ({})", clustering_order(view)));
    }
    // Rows of a view expire with those of its base.
    options.extend(table_options(view).into_iter().filter(|line| !line.starts_with("default_time_to_live")));
    format!(
        "CREATE MATERIALIZED VIEW {} AS\n    SELECT {selected}\n    FROM {}\n    WHERE {where_clause}\n    \
         PRIMARY KEY ({})\n WITH {};",
        full_name(view),
        full_name(base),
        primary_key(view),
        options.join("\n    AND ")
    )
}

/// The options of a table in their order, with those that stand before the ones of its storage.
fn options_of(table: &Table, computed: bool, internals: bool) -> Vec<String> {
    let mut options = Vec::new();
    let id = (internals && !computed).then(|| format!("ID = {}", table.id));
    if table.compact_storage {
        options.push("COMPACT STORAGE".to_owned());
        options.extend(id);
        // Cassandra shows the column that it hides in such a table.
        if table.clustering().is_empty() {
            options.push("CLUSTERING ORDER BY (column1 ASC)".to_owned());
        }
    } else {
        options.extend(id);
    }
    if !table.clustering().is_empty() {
        options.push(format!("CLUSTERING ORDER BY ({})", clustering_order(table)));
    }
    match computed {
        true => options.push(format!("comment = {}", quoted(&table.options.comment))),
        false => options.extend(table_options(table)),
    }
    options
}

/// `CREATE TABLE …;`, with id and dropped columns when `internals` are wanted. A computed table is described in a comment,
/// and so is a table with COMPACT STORAGE, as Cassandra does it.
pub fn create_table(table: &Table, computed: bool, internals: bool) -> String {
    let name = format!("{}.{}", quote_identifier(&table.keyspace), quote_identifier(&table.name));
    let mut out = String::new();
    if table.compact_storage {
        out.push_str(&format!(
            "/*\nWarning: Table {name} omitted because it has constructs not compatible with CQL (was created via legacy \
             API).\nApproximate structure, for reference:\n(this should not be used to reproduce this schema)\n\n"
        ));
    }
    if computed {
        out.push_str(&format!(
            "/*\nWarning: Table {name} is a virtual table and cannot be recreated with CQL.\nStructure, for reference:\n\
             VIRTUAL TABLE {name} (\n"
        ));
    } else {
        out.push_str(&format!("CREATE TABLE {name} (\n"));
    }
    columns(table, internals && !computed, &mut out);
    out.push_str(") WITH ");
    out.push_str(&options_of(table, computed, internals).join("\n    AND "));
    out.push(';');
    if internals && !computed {
        dropped_columns(table, &name, &mut out);
    }
    if !computed {
        descriptions(table, &name, &mut out);
    }
    if computed || table.compact_storage {
        out.push_str("\n*/");
    }
    out
}

/// The statement that gives the log of a captured table its options, which follows that of the table: the log comes with the table.
pub fn alter_log(log: &Table) -> String {
    let name = format!("{}.{}", quote_identifier(&log.keyspace), quote_identifier(&log.name));
    format!("ALTER TABLE {name} WITH {};", table_options(log).join("\n    AND "))
}

/// The definition of the log of a captured table, as a comment: as a statement it would take the log's name.
pub fn shown_log(log: &Table, internals: bool) -> String {
    format!(
        "/* Do NOT execute this statement! It's only for informational purposes.\n   A CDC log table is created \
         automatically when the base is created.\n\n{}\n*/",
        create_table(log, false, internals)
    )
}

/// The label of a table, and the comments and labels of its columns. Its comment is an option.
fn descriptions(table: &Table, name: &str, out: &mut String) {
    let label = Description { comment: None, security_label: table.security_label.clone() };
    out.push_str(&described(&format!("TABLE {name}"), &label));
    for column in table.columns() {
        if let Some(description) = &column.description {
            let column = format!("COLUMN {name}.{}", quote_identifier(&column.name));
            out.push_str(&described(&column, description));
        }
    }
}

fn clustering_order(table: &Table) -> String {
    let order = |column: &Column| {
        format!("{} {}", quote_identifier(&column.name), if column.descending { "DESC" } else { "ASC" })
    };
    table.clustering().iter().map(order).collect::<Vec<_>>().join(", ")
}

fn names<'c>(columns: impl IntoIterator<Item = &'c Column>) -> String {
    let names = columns.into_iter().map(|column| quote_identifier(&column.name));
    names.collect::<Vec<_>>().join(", ")
}

/// `(a, b), c`
fn primary_key(table: &Table) -> String {
    let mut key = names(table.partition_key());
    if table.partition_key().len() > 1 {
        key = format!("({key})");
    }
    if !table.clustering().is_empty() {
        key = format!("{key}, {}", names(table.clustering()));
    }
    key
}

/// ` MASKED WITH system.mask_inner(1, null)`; nothing for a column without a mask.
fn masked(column: &Column) -> String {
    let Some(mask) = &column.mask else { return String::new() };
    let arguments = mask.arguments.iter().map(|argument| argument.literal.as_deref().unwrap_or("null"));
    format!(
        " MASKED WITH {}.{}({})",
        quote_identifier(&mask.keyspace),
        quote_identifier(&mask.name),
        arguments.collect::<Vec<_>>().join(", ")
    )
}

/// ` CHECK NOT NULL AND v > 5`; nothing for a column without constraints.
fn checked(column: &Column) -> String {
    if column.constraints.is_empty() {
        return String::new();
    }
    let name = quote_identifier(&column.name);
    let all = column.constraints.iter().map(|constraint| constraint.cql(&name));
    format!(" CHECK {}", all.collect::<Vec<_>>().join(" AND "))
}

/// Columns in the order of storage: keys, static, then regular, of the last two the single-celled first.
fn columns(table: &Table, with_dropped: bool, out: &mut String) {
    let alone = table.partition_key().len() == 1 && table.clustering().is_empty() && !table.compact_storage;
    let mut ordered: Vec<&Column> = table.columns().iter().collect();
    ordered.sort_by_key(|column| match column.kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering => (column.kind, false),
        ColumnKind::Static | ColumnKind::Regular => (column.kind, column.is_complex()),
    });
    let mut lines: Vec<String> = ordered
        .iter()
        .map(|column| {
            let of_static = if column.kind == ColumnKind::Static { " static" } else { "" };
            let key = if alone && column.kind == ColumnKind::PartitionKey { " PRIMARY KEY" } else { "" };
            let (name, ty) = (quote_identifier(&column.name), column.ty.cql_name());
            let of_ttl = if table.ttl_column.as_ref() == Some(&column.name) { " TTL" } else { "" };
            format!("    {name} {ty}{of_ttl}{of_static}{}{}{key}", masked(column), checked(column))
        })
        .collect();
    if with_dropped {
        let gone = table.dropped_columns.values().filter(|dropped| table.column(&dropped.name).is_none());
        lines.extend(gone.map(|dropped| {
            let suffix = if dropped.is_static { " static" } else { "" };
            format!("    {} {}{suffix}", quote_identifier(&dropped.name), dropped.ty.cql_name())
        }));
    }
    if !alone {
        lines.push(format!("    PRIMARY KEY ({})", primary_key(table)));
    }
    out.push_str(&lines.join(",\n"));
    out.push('\n');
}

/// Options in Cassandra's order.
fn table_options(table: &Table) -> Vec<String> {
    let options = &table.options;
    let hex = |bytes: &Vec<u8>| {
        bytes.iter().fold("0x".to_owned(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("strings take everything");
            text
        })
    };
    let extensions = options.extensions.iter().map(|(k, v)| format!("{}: {}", quoted(k), hex(v)));
    let extensions = extensions.collect::<Vec<_>>().join(", ");
    let mut lines = vec![
        format!("additional_write_policy = {}", quoted(&options.additional_write_policy.to_string())),
        format!("allow_auto_snapshot = {}", options.allow_auto_snapshot),
        format!("bloom_filter_fp_chance = {}", float(options.bloom_filter_fp_chance)),
        format!("caching = {}", map(&options.caching)),
        format!("cdc = {}", cdc(options.cdc)),
        format!("comment = {}", quoted(&options.comment)),
        format!("compaction = {}", map(&options.compaction)),
        format!("compression = {}", map(&options.compression)),
        format!("memtable = {}", quoted(&options.memtable)),
        format!("crc_check_chance = {}", float(options.crc_check_chance)),
        format!("default_time_to_live = {}", options.default_time_to_live),
        format!("extensions = {{{extensions}}}"),
        format!("gc_grace_seconds = {}", options.gc_grace_seconds),
        format!("incremental_backups = {}", options.incremental_backups.unwrap_or(true)),
        format!("max_index_interval = {}", options.max_index_interval),
        format!("memtable_flush_period_in_ms = {}", options.memtable_flush_period_in_ms),
        format!("min_index_interval = {}", options.min_index_interval),
        format!("read_repair = {}", quoted(&options.read_repair)),
        format!("speculative_retry = {}", quoted(&options.speculative_retry.to_string())),
    ];
    // Cassandra has none of these options: they are described only when they are not the default.
    if options.tombstone_gc != TombstoneGc::Timeout {
        let delay = match options.tombstone_gc {
            TombstoneGc::Repair { propagation_delay_seconds } => {
                format!(", 'propagation_delay_in_seconds': '{propagation_delay_seconds}'")
            }
            _ => String::new(),
        };
        lines.push(format!("tombstone_gc = {{'mode': '{}'{delay}}}", options.tombstone_gc.mode()));
    }
    if let Some(seconds) = options.paxos_grace_seconds {
        lines.push(format!("paxos_grace_seconds = {seconds}"));
    }
    if options.synchronous_updates {
        lines.push("synchronous_updates = true".to_owned());
    }
    let limits = options.per_partition_rate_limit.named();
    let limits: Vec<String> = limits.map(|(name, limit)| format!("'{name}': '{limit}'")).collect();
    if !limits.is_empty() {
        lines.push(format!("per_partition_rate_limit = {{{}}}", limits.join(", ")));
    }
    lines
}

/// The option `cdc`: in ScyllaDB's form if changes are captured, else in Cassandra's.
fn cdc(cdc: Cdc) -> String {
    if !cdc.enabled {
        return cdc.enabled.to_string();
    }
    map(&cdc.to_map().into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn dropped_columns(table: &Table, name: &str, out: &mut String) {
    for dropped in table.dropped_columns.values() {
        let column = quote_identifier(&dropped.name);
        let drop = format!("\nALTER TABLE {name} DROP {column} USING TIMESTAMP {};", dropped.dropped_micros);
        out.push_str(&drop);
        if let Some(again) = table.column(&dropped.name) {
            let suffix = if dropped.is_static { " static" } else { "" };
            let (ty, mask, check) = (again.ty.cql_name(), masked(again), checked(again));
            out.push_str(&format!("\nALTER TABLE {name} ADD {column} {ty}{suffix}{mask}{check};"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{TableBuilder, TableId};

    #[test]
    fn a_table_is_described_as_cassandra_does() {
        let mut builder = TableBuilder::new("lead", "T1", TableId([1; 16]))
            .partition_key("a", CqlType::Int)
            .partition_key("b", CqlType::Text)
            .clustering("c", CqlType::Int, true)
            .clustering("d", CqlType::Timeuuid, false)
            .static_column("s", CqlType::Int)
            .regular("m", CqlType::map(CqlType::Text, CqlType::Int, false))
            .regular("v", CqlType::vector(CqlType::Float, 3))
            .regular("x", CqlType::list(CqlType::Int, false));
        builder.options.comment = "it's".to_owned();
        builder.options.default_time_to_live = 5;
        let text = create_table(&builder.build_known(), false, false);
        let expected = "CREATE TABLE lead.\"T1\" (
    a int,
    b text,
    c int,
    d timeuuid,
    s int static,
    v vector<float, 3>,
    m map<text, int>,
    x list<int>,
    PRIMARY KEY ((a, b), c, d)
) WITH CLUSTERING ORDER BY (c DESC, d ASC)
    AND additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'}
    AND cdc = false
    AND comment = 'it''s'
    AND compaction = {'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', 'max_threshold': '32', 'min_threshold': '4'}
    AND compression = {'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}
    AND memtable = 'default'
    AND crc_check_chance = 1.0
    AND default_time_to_live = 5
    AND extensions = {}
    AND gc_grace_seconds = 864000
    AND incremental_backups = true
    AND max_index_interval = 2048
    AND memtable_flush_period_in_ms = 0
    AND min_index_interval = 128
    AND read_repair = 'BLOCKING'
    AND speculative_retry = '99p';";
        assert_eq!(text, expected);
    }
}

//! Cassandra's tables about the statements and the log of a node: `batch_metrics`, `queries`, `system_logs`; and `sai_column_indexes`.

use std::collections::BTreeSet;

use schema::{Index, Schema, Table, TableId};
use types::CqlType;

use crate::rows::{Datum, RowBuilder};

/// The batches of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchFacts {
    /// The name in Cassandra's table.
    pub name: &'static str,
    /// Partitions of the largest batch of the last one to two minutes.
    pub max: u64,
    /// The number of partitions that half of these batches do not exceed.
    pub p50: u64,
    /// The number that 99 of 100 do not exceed.
    pub p99: u64,
    /// The number that 999 of 1,000 do not exceed.
    pub p999: u64,
}

/// A statement under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryFacts {
    /// Its shard and its number there, in the place of Cassandra's thread.
    pub thread: String,
    /// How long it has run, microseconds.
    pub running_micros: u64,
    /// The statement, without passwords.
    pub task: String,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// When it was written, milliseconds since the epoch.
    pub millis: i64,
    /// Its place among the lines of that millisecond, from 0.
    pub order: i32,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: &'static str,
    /// The module that wrote it.
    pub logger: String,
    /// Its text.
    pub message: String,
}

pub(crate) fn batches(rows: &mut RowBuilder, batches: &[BatchFacts]) {
    for one in batches {
        rows.row([
            ("name", one.name.into()),
            ("max", i64::try_from(one.max).unwrap_or(i64::MAX).into()),
            ("p50th", (one.p50 as f64).into()),
            ("p99th", (one.p99 as f64).into()),
            ("p999th", (one.p999 as f64).into()),
        ]);
    }
}

/// A shard has no queue of statements whose time it measures: `queued_micros` is null.
pub(crate) fn query(rows: &mut RowBuilder, query: &QueryFacts) {
    rows.row([
        ("thread_id", query.thread.as_str().into()),
        ("running_micros", i64::try_from(query.running_micros).unwrap_or(i64::MAX).into()),
        ("task", query.task.as_str().into()),
    ]);
}

pub(crate) fn line(rows: &mut RowBuilder, line: &LogFacts) {
    rows.row([
        ("timestamp", line.millis.into()),
        ("order_in_millisecond", line.order.into()),
        ("level", line.level.into()),
        ("logger", line.logger.as_str().into()),
        ("message", line.message.as_str().into()),
    ]);
}

/// Whether values of a type are texts for an index.
fn is_string(ty: &CqlType) -> bool {
    match ty {
        CqlType::Ascii | CqlType::Text => true,
        CqlType::List { element, .. } | CqlType::Set { element, .. } => is_string(element),
        _ => false,
    }
}

/// The analysis of an index's texts, in Cassandra's words.
fn analyzer(index: &Index) -> String {
    let option = |name: &str| index.options.get(name).map(String::as_str);
    let is_on = |name: &str| option(name) == Some("true");
    let names = ["case_sensitive", "normalize", "ascii"];
    if names.iter().all(|name| option(name).is_none()) {
        return "NoOpAnalyzer".to_owned();
    }
    format!(
        "NonTokenizingAnalyzer{{caseSensitive={}, normalized={}, ascii={}}}",
        option("case_sensitive") != Some("false"),
        is_on("normalize"),
        is_on("ascii")
    )
}

pub(crate) async fn column_indexes(rows: &mut RowBuilder, schema: &Schema, built: &[(TableId, String)]) {
    let built: BTreeSet<(TableId, &str)> =
        built.iter().map(|(table, index)| (*table, index.as_str())).collect();
    let indexes: Vec<(&Table, &Index)> = schema
        .tables()
        .flat_map(|table| table.indexes.values().map(move |index| (&**table, index)))
        .filter(|(_, index)| index.is_storage_attached())
        .collect();
    let add = |rows: &mut RowBuilder, (table, index): &(&Table, &Index)| {
        let column = index.targets.first().map(|target| target.column.as_str());
        let of_column = column.and_then(|column| table.column(column));
        let is_built = built.contains(&(table.id, index.name.as_str()));
        rows.row([
            ("keyspace_name", table.keyspace.as_str().into()),
            ("index_name", index.name.as_str().into()),
            ("analyzer", analyzer(index).into()),
            ("column_name", column.map_or(Datum::Null, Datum::from)),
            ("is_building", (!is_built).into()),
            ("is_queryable", is_built.into()),
            ("is_string", of_column.is_some_and(|column| is_string(&column.ty)).into()),
            ("table_name", table.name.as_str().into()),
        ]);
    };
    rows.each(&indexes, add).await;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schema::{IndexTarget, IndexedPart, Keyspace, Replication, TableBuilder};

    use super::*;
    use crate::nodes::tests::{cell, now, rows};

    #[test]
    fn lines_batches_and_statements() {
        let line_of = |order, text: &str| LogFacts {
            millis: 7,
            order,
            level: "WARN",
            logger: "engine".to_owned(),
            message: text.to_owned(),
        };
        let shown = rows("system_logs", |rows| {
            line(rows, &line_of(0, "one"));
            line(rows, &line_of(1, "two"));
        });
        assert_eq!(shown.len(), 2);
        assert_eq!(cell(&shown[1], "message"), Some(&b"two"[..]));
        let one = BatchFacts { name: "partitions_per_logged_batch", max: 9, p50: 2, p99: 8, p999: 9 };
        let shown = rows("batch_metrics", |rows| batches(rows, &[one]));
        assert_eq!(cell(&shown[0], "max"), Some(&9i64.to_be_bytes()[..]));
        assert_eq!(cell(&shown[0], "p99th"), Some(&8f64.to_be_bytes()[..]));
        let one =
            QueryFacts { thread: "shard-0-3".to_owned(), running_micros: 12, task: "QUERY x".to_owned() };
        let shown = rows("queries", |rows| query(rows, &one));
        assert_eq!(cell(&shown[0], "running_micros"), Some(&12i64.to_be_bytes()[..]));
        assert_eq!(cell(&shown[0], "queued_micros"), None);
    }

    #[test]
    fn indexes_of_sai_are_listed() {
        let id = TableId([7; 16]);
        let mut table = TableBuilder::new("ks", "t", id)
            .partition_key("k", CqlType::Int)
            .regular("v", CqlType::Text)
            .regular("n", CqlType::Int)
            .build()
            .unwrap();
        let options = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (name, column, class, pairs) in [
            ("tv", "v", Some("sai"), &[("case_sensitive", "false")][..]),
            ("tn", "n", Some("org.apache.cassandra.index.sai.StorageAttachedIndex"), &[]),
            ("old", "n", None, &[]),
        ] {
            let targets = vec![IndexTarget { column: column.to_owned(), part: IndexedPart::Whole }];
            let class = class.map(str::to_owned);
            let index =
                Index { name: name.to_owned(), targets, class, options: options(pairs), local: false };
            table.indexes.insert(name.to_owned(), index);
        }
        let schema =
            Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local)).with_table(table);
        let built = [(id, "tn".to_owned())];
        let mut shown = rows("sai_column_indexes", |rows| now(column_indexes(rows, &schema, &built)));
        shown.sort_by_key(|row| cell(row, "column_name").map(<[u8]>::to_vec));
        assert_eq!(shown.len(), 2, "the built-in class has no row");
        let (tn, tv) = (&shown[0], &shown[1]);
        assert_eq!(cell(tn, "analyzer"), Some(&b"NoOpAnalyzer"[..]));
        assert_eq!((cell(tn, "is_queryable"), cell(tn, "is_string")), (Some(&[1][..]), Some(&[0][..])));
        assert_eq!((cell(tv, "is_building"), cell(tv, "is_string")), (Some(&[1][..]), Some(&[1][..])));
        let expected = b"NonTokenizingAnalyzer{caseSensitive=false, normalized=false, ascii=false}";
        assert_eq!(cell(tv, "analyzer"), Some(&expected[..]));
        assert_eq!(cell(tv, "column_name"), Some(&b"v"[..]));
    }
}

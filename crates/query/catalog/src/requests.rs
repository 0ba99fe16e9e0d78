//! Cassandra's tables of requests by table: latencies, and tombstones and SSTables of reads.

use schema::{Schema, TableId};

use crate::rows::RowBuilder;

/// One figure of one table's requests: of the last one to two minutes, the total apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestFacts {
    /// Which table.
    pub table: TableId,
    /// Requests since the start.
    pub count: i64,
    /// The largest value: microseconds, rows or tombstones.
    pub max: u64,
    /// The value that half of the requests do not exceed.
    pub p50: u64,
    /// The value that 99 of 100 requests do not exceed.
    pub p99: u64,
    /// Requests a second.
    pub per_second: f64,
}

pub(crate) async fn fill(rows: &mut RowBuilder, schema: &Schema, requests: &[RequestFacts]) {
    let is_latency = rows.table().name.ends_with("_latency");
    let row = |rows: &mut RowBuilder, one: &RequestFacts| {
        let Some(table) = schema.table_by_id(one.table) else { return };
        let key = [
            ("keyspace_name", table.keyspace.as_str().into()),
            ("table_name", table.name.as_str().into()),
            ("count", one.count.into()),
        ];
        let millis = |micros: u64| (micros as f64 / 1_000.0).into();
        let number = |number: u64| (number as f64).into();
        if is_latency {
            rows.row(key.into_iter().chain([
                ("max_ms", millis(one.max)),
                ("p50th_ms", millis(one.p50)),
                ("p99th_ms", millis(one.p99)),
                ("per_second", one.per_second.into()),
            ]));
        } else {
            let values = [("max", number(one.max)), ("p50th", number(one.p50)), ("p99th", number(one.p99))];
            rows.row(key.into_iter().chain(values));
        }
    };
    rows.each(requests, row).await;
}

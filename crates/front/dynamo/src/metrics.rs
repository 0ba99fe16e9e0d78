//! The counters of a shard: requests of the API by operation, outcome and cost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use rt::metrics;
use rt::metrics::{Labels, Latencies, Metric};

use schema::{Schema, TableId};

use crate::ApiError;
use crate::operations::names::OPERATIONS;
use crate::table::ApiTable;

/// Tables with figures of their own; those that are gone make room when figures are read.
const TABLES_MAX: usize = 1_000;

/// Requests of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationFigures {
    /// Those that were begun.
    pub count: u64,
    /// How long those took that were answered, with an error too.
    pub latencies: Latencies,
}

/// Requests of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFigures {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub table: String,
    /// Requests that name it alone and were answered, by operation.
    pub operations: BTreeMap<&'static str, OperationFigures>,
    /// Its items of batches, by operation.
    pub batch_items: BTreeMap<&'static str, u64>,
    /// Halves of units of capacity that reads of it consumed.
    pub read_half_units: u64,
    /// Units of capacity that writes of it consumed, by the operation of one item that they amount to.
    pub write_units: BTreeMap<&'static str, u64>,
}

impl TableFigures {
    fn labels<'a>(&'a self, operation: &'a str) -> [(&'static str, &'a str); 3] {
        [("ks", &self.keyspace), ("cf", &self.table), ("op", operation)]
    }

    fn by_operation(&self, counts: &BTreeMap<&'static str, u64>, each: &mut dyn FnMut(Labels<'_>, f64)) {
        counts.iter().for_each(|(operation, count)| each(&self.labels(operation), *count as f64));
    }
}

/// Counters of one shard since its start, and how it stands now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiFigures {
    /// All requests, those included that were refused before their operation was known.
    pub total_operations: u64,
    /// By operation; those that were asked for.
    pub operations: BTreeMap<&'static str, OperationFigures>,
    /// Requests of operations that there are not.
    pub unsupported_operations: u64,
    /// Writes that depend on the item as it is.
    pub reads_before_write: u64,
    /// Writes by lightweight transactions.
    pub write_using_lwt: u64,
    /// Requests refused because of the bytes of all that are under way.
    pub requests_shed: u64,
    /// Requests without a valid signature.
    pub authentication_failures: u64,
    /// Requests whose role lacks a permission.
    pub authorization_failures: u64,
    /// Items that a Query or Scan with a filter has read.
    pub filtered_rows_read: u64,
    /// Those of them that the filter let through.
    pub filtered_rows_matched: u64,
    /// Items of batches, by operation.
    pub batch_items: BTreeMap<&'static str, u64>,
    /// Halves of units of capacity that reads consumed.
    pub read_half_units: u64,
    /// Units of capacity that writes consumed, by the operation of one item that they amount to.
    pub write_units: BTreeMap<&'static str, u64>,
    /// Answers that a condition did not hold.
    pub conditional_check_failed: u64,
    /// Answers with another error of the client's.
    pub user_errors: u64,
    /// Answers with an error of the server's.
    pub system_errors: u64,
    /// Items that Query and Scan returned.
    pub returned_items: u64,
    /// Records that GetRecords returned.
    pub returned_records: u64,
    /// Answers with an error, by its type.
    pub errors: BTreeMap<&'static str, u64>,
    /// By table, of those that there are; at most 1,000.
    pub tables: BTreeMap<TableId, TableFigures>,
    /// Connections that were closed because there were too many.
    pub connections_shed: u64,
    /// Connections to the port with TLS that were closed because their handshake failed.
    pub tls_handshake_failures: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Requests that are being carried out.
    pub requests_serving: u64,
    /// Bytes of the bodies of requests under way.
    pub requests_bytes: u64,
}

fn by_label(
    label: &'static str,
    counts: &BTreeMap<&'static str, u64>,
    each: &mut dyn FnMut(Labels<'_>, f64),
) {
    counts.iter().for_each(|(value, count)| each(&[(label, value)], *count as f64));
}

impl ApiFigures {
    /// The metrics of the API on a shard, named as ScyllaDB's are where the meaning is the same.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_alternator_total_operations" "Requests of the DynamoDB API." |f| f.total_operations as f64;
        counter "scylla_alternator_unsupported_operations" "Requests of operations that the DynamoDB API does not have." |f| f.unsupported_operations as f64;
        counter "scylla_alternator_reads_before_write" "Writes of the DynamoDB API that depend on the item as it is." |f| f.reads_before_write as f64;
        counter "scylla_alternator_write_using_lwt" "Writes of the DynamoDB API by lightweight transactions." |f| f.write_using_lwt as f64;
        counter "scylla_alternator_requests_shed" "Requests of the DynamoDB API refused because of the bytes of all that are under way." |f| f.requests_shed as f64;
        counter "scylla_alternator_authentication_failures" "Requests of the DynamoDB API without a valid signature." |f| f.authentication_failures as f64;
        counter "scylla_alternator_authorization_failures" "Requests of the DynamoDB API whose role lacks a permission." |f| f.authorization_failures as f64;
        counter "scylla_alternator_filtered_rows_read_total" "Items that Query and Scan with a filter have read." |f| f.filtered_rows_read as f64;
        counter "scylla_alternator_filtered_rows_matched_total" "Items that filters of Query and Scan let through." |f| f.filtered_rows_matched as f64;
        counter "scylla_alternator_filtered_rows_dropped_total" "Items that filters of Query and Scan left out." |f| (f.filtered_rows_read - f.filtered_rows_matched) as f64;
        counter "scylla_alternator_conditional_check_failed" "Requests of the DynamoDB API whose condition did not hold." |f| f.conditional_check_failed as f64;
        counter "scylla_alternator_user_errors" "Requests of the DynamoDB API answered with an error of the client's, other than a condition that did not hold." |f| f.user_errors as f64;
        counter "scylla_alternator_system_errors" "Requests of the DynamoDB API answered with an error of the server's." |f| f.system_errors as f64;
        counter "scylla_alternator_returned_items" "Items that Query and Scan returned." |f| f.returned_items as f64;
        counter "scylla_alternator_returned_records" "Records of streams that GetRecords returned." |f| f.returned_records as f64;
        counter "torc_alternator_connections_shed" "Connections to the DynamoDB API that were closed because there were too many." |f| f.connections_shed as f64;
        counter "torc_alternator_tls_handshake_failures" "Connections to the DynamoDB API that were closed because their TLS handshake failed." |f| f.tls_handshake_failures as f64;
        gauge "torc_alternator_connections" "Connections to the DynamoDB API." |f| f.connections as f64;
        gauge "torc_alternator_requests_serving" "Requests of the DynamoDB API being carried out." |f| f.requests_serving as f64;
        gauge "torc_alternator_requests_bytes" "Bytes of the bodies of requests of the DynamoDB API under way." |f| f.requests_bytes as f64;
        counter "scylla_alternator_operation" "Requests of the DynamoDB API by operation." each |f, each| for (operation, of) in &f.operations { each(&[("op", operation)], of.count as f64); };
        histogram "scylla_alternator_op_latency" "Requests of the DynamoDB API by operation, microseconds." each |f, each| for (operation, of) in &f.operations { each(&[("op", operation)], &of.latencies); };
        counter "scylla_alternator_batch_item_count" "Items of batches." each |f, each| by_label("op", &f.batch_items, each);
        counter "scylla_alternator_rcu_total" "Units of capacity that reads of the DynamoDB API consumed." |f| f.read_half_units as f64 / 2.0;
        counter "scylla_alternator_wcu_total" "Units of capacity that writes of the DynamoDB API consumed." each |f, each| by_label("op", &f.write_units, each);
        counter "scylla_alternator_table_operation" "Requests of the DynamoDB API that name one table, by operation." each |f, each| for t in f.tables.values() { t.operations.iter().for_each(|(operation, of)| each(&t.labels(operation), of.count as f64)); };
        histogram "scylla_alternator_table_op_latency" "Requests of the DynamoDB API that name one table, by operation, microseconds." each |f, each| for t in f.tables.values() { t.operations.iter().for_each(|(operation, of)| each(&t.labels(operation), &of.latencies)); };
        counter "scylla_alternator_table_batch_item_count" "Items of batches, by table." each |f, each| for t in f.tables.values() { t.by_operation(&t.batch_items, each); };
        counter "scylla_alternator_table_rcu_total" "Units of capacity that reads of the DynamoDB API consumed, by table." each |f, each| for t in f.tables.values() { each(&t.labels("")[..2], t.read_half_units as f64 / 2.0); };
        counter "scylla_alternator_table_wcu_total" "Units of capacity that writes of the DynamoDB API consumed, by table." each |f, each| for t in f.tables.values() { t.by_operation(&t.write_units, each); };
        counter "torc_alternator_errors" "Requests of the DynamoDB API answered with an error, by its type." each |f, each| by_label("type", &f.errors, each);
    };
}

/// The counters of a shard.
#[derive(Default)]
pub(crate) struct Metrics(RefCell<ApiFigures>);

impl Metrics {
    /// Counts something.
    pub(crate) fn count(&self, change: impl FnOnce(&mut ApiFigures)) {
        change(&mut self.0.borrow_mut());
    }

    /// An operation begins; none for one that there is not.
    pub(crate) fn begin(&self, operation: &str) -> Option<&'static str> {
        let name = OPERATIONS.into_iter().find(|name| *name == operation)?;
        self.count(|figures| figures.operations.entry(name).or_default().count += 1);
        Some(name)
    }

    /// An operation has been answered.
    pub(crate) fn end(&self, operation: &'static str, took: Duration) {
        self.count(|figures| figures.operations.entry(operation).or_default().latencies.add(took));
    }

    /// Counts something of a table.
    fn count_of(&self, table: &ApiTable, change: impl FnOnce(&mut TableFigures)) {
        self.count(|figures| {
            let id = table.table.id;
            if figures.tables.len() >= TABLES_MAX && !figures.tables.contains_key(&id) {
                return;
            }
            let new = || TableFigures {
                keyspace: table.table.keyspace.clone(),
                table: table.table.name.clone(),
                ..TableFigures::default()
            };
            change(figures.tables.entry(id).or_insert_with(new));
        });
    }

    /// A request that names this table alone has been answered.
    pub(crate) fn end_of(&self, table: &ApiTable, operation: &'static str, took: Duration) {
        self.count_of(table, |figures| {
            let of = figures.operations.entry(operation).or_default();
            of.count += 1;
            of.latencies.add(took);
        });
    }

    /// A batch has so many items of a table.
    pub(crate) fn batch(&self, table: &ApiTable, operation: &'static str, items: u64) {
        self.count(|figures| *figures.batch_items.entry(operation).or_default() += items);
        self.count_of(table, |figures| *figures.batch_items.entry(operation).or_default() += items);
    }

    /// A read of a table, or of one of the system, consumed units of capacity; the least are halves.
    pub(crate) fn read(&self, table: Option<&ApiTable>, units: f64) {
        let halves = (units * 2.0).round() as u64;
        self.count(|figures| figures.read_half_units += halves);
        if let Some(table) = table {
            self.count_of(table, |figures| figures.read_half_units += halves);
        }
    }

    /// A write of a table consumed whole units of capacity.
    pub(crate) fn wrote(&self, table: &ApiTable, operation: &'static str, units: f64) {
        let units = units.round() as u64;
        self.count(|figures| *figures.write_units.entry(operation).or_default() += units);
        self.count_of(table, |figures| *figures.write_units.entry(operation).or_default() += units);
    }

    /// A request is answered with an error.
    pub(crate) fn failed(&self, error: &ApiError) {
        self.count(|figures| {
            *figures.errors.entry(error.kind.short_name()).or_default() += 1;
            let of_kind = match error.kind.status() {
                _ if error.is_failed_condition() => &mut figures.conditional_check_failed,
                400..500 => &mut figures.user_errors,
                _ => &mut figures.system_errors,
            };
            *of_kind += 1;
        });
    }

    /// The figures that are counted, of tables those in `schema`; those of the moment are the server's.
    pub(crate) fn figures(&self, schema: &Schema) -> ApiFigures {
        let mut figures = self.0.borrow_mut();
        figures.tables.retain(|table, _| schema.table_by_id(*table).is_some());
        figures.clone()
    }
}

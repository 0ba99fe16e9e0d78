//! The counters of a shard: requests of the API by operation, outcome and cost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use coordinator::Latencies;

use crate::ApiError;
use crate::operations::names::OPERATIONS;

/// Requests of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationFigures {
    /// Those that were begun.
    pub count: u64,
    /// How long those took that were answered, with an error too.
    pub latencies: Latencies,
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
    /// Answers with an error, by its type.
    pub errors: BTreeMap<&'static str, u64>,
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

    /// A read consumed units of capacity; the least are halves.
    pub(crate) fn read(&self, units: f64) {
        self.count(|figures| figures.read_half_units += (units * 2.0).round() as u64);
    }

    /// A write consumed whole units of capacity.
    pub(crate) fn wrote(&self, operation: &'static str, units: f64) {
        self.count(|figures| *figures.write_units.entry(operation).or_default() += units.round() as u64);
    }

    /// A request is answered with an error.
    pub(crate) fn failed(&self, error: &ApiError) {
        self.count(|figures| *figures.errors.entry(error.kind.short_name()).or_default() += 1);
    }

    /// The figures that are counted; those of the moment are the server's.
    pub(crate) fn figures(&self) -> ApiFigures {
        self.0.borrow().clone()
    }
}

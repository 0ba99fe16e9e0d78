//! Workloads: tables, statements, requests, and whether an answer is right.

mod counter;
mod key_value;
mod scan;
mod series;
mod wide;

use std::rc::Rc;

use wire::client::{Parameters, RequestWriter, ResultBody, Rows};
use wire::{Consistency, Value};

use crate::load::connection::Prepared;
use crate::load::keys::{Distribution, Keys, Random, mix};
use crate::load::kind::Kind;
use crate::load::options::{Options, WorkloadName};
use crate::load::shared::Shared;
use crate::load::values::Values;

/// Which part of a run this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Writes every row that the workload reads, each once.
    Preload,
    /// Reads some of these rows.
    Probe,
    /// The workload.
    Run,
}

/// The operations of one connection. A slot is a place for one request in flight.
pub(crate) trait Workload {
    /// Chooses an operation and writes its request.
    fn request(&mut self, slot: usize, statements: &[Prepared], out: &mut RequestWriter) -> Kind;

    /// Judges the answer; returns its number of rows, or the error.
    fn check(&mut self, slot: usize, answer: &ResultBody) -> Result<u64, String>;

    /// The request of the slot has failed; its state is dropped.
    fn failed(&mut self, _slot: usize) {}
}

/// The input of every workload of a connection.
pub(crate) struct Ingredients {
    pub(crate) options: std::sync::Arc<Options>,
    pub(crate) shared: std::sync::Arc<Shared>,
    pub(crate) phase: Phase,
    pub(crate) values: Rc<Values>,
    /// Requests in flight.
    pub(crate) slots: usize,
    /// The connection's number.
    pub(crate) index: usize,
}

impl Ingredients {
    /// The connection's random numbers. Each workload and phase has its own, so that a read does not meet just the
    /// keys that a write before it has chosen.
    fn random(&self) -> Random {
        let purpose = (self.options.workload as u64) << 8 | self.phase as u64;
        Random::new(mix(self.options.seed ^ mix(purpose)).wrapping_add(self.index as u64))
    }

    fn keys(&self, count: u64) -> Keys {
        let distribution = match self.phase {
            Phase::Preload => Distribution::Sequential,
            Phase::Probe => Distribution::Uniform,
            Phase::Run => self.options.distribution,
        };
        Keys::new(distribution, count, &self.shared.sequence)
    }

    fn read_percent(&self) -> u64 {
        match self.phase {
            Phase::Preload => 0,
            Phase::Probe => 100,
            Phase::Run => self.options.read_percent,
        }
    }
}

/// Statements that create the workload's tables.
pub(crate) fn schema(options: &Options) -> Vec<String> {
    let keyspace = &options.keyspace;
    let replication = format!("{{'class': 'SimpleStrategy', 'replication_factor': {}}}", options.replication);
    let table = match options.workload {
        WorkloadName::Write | WorkloadName::Read | WorkloadName::Mixed | WorkloadName::Scan => {
            key_value::table(options)
        }
        WorkloadName::TimeSeries => series::table(keyspace),
        WorkloadName::WidePartition => wide::table(keyspace),
        WorkloadName::Counter => counter::table(keyspace),
    };
    vec![
        format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}"),
        format!("CREATE TABLE IF NOT EXISTS {keyspace}.loaded (name text PRIMARY KEY, row_count bigint)"),
        table,
    ]
}

/// Which data the workload reads.
pub(crate) fn data_name(options: &Options) -> &'static str {
    match options.workload {
        WorkloadName::Write | WorkloadName::Read | WorkloadName::Mixed | WorkloadName::Scan => "rows",
        WorkloadName::TimeSeries => "series",
        WorkloadName::WidePartition => "wide",
        WorkloadName::Counter => "counters",
    }
}

/// The statements that the workload executes.
pub(crate) fn statements(options: &Options) -> Vec<String> {
    match options.workload {
        WorkloadName::Write | WorkloadName::Read | WorkloadName::Mixed => key_value::statements(options),
        WorkloadName::Scan => scan::statements(options),
        WorkloadName::TimeSeries => series::statements(options),
        WorkloadName::WidePartition => wide::statements(options),
        WorkloadName::Counter => counter::statements(options),
    }
}

/// The operations of one connection.
pub(crate) fn operations(from: &Ingredients) -> Box<dyn Workload> {
    match (from.options.workload, from.phase) {
        (WorkloadName::Scan, Phase::Run) => Box::new(scan::Scan::new(from)),
        (WorkloadName::Write | WorkloadName::Read | WorkloadName::Mixed | WorkloadName::Scan, _) => {
            Box::new(key_value::KeyValue::new(from))
        }
        (WorkloadName::TimeSeries, _) => Box::new(series::Series::new(from)),
        (WorkloadName::WidePartition, _) => Box::new(wide::Wide::new(from)),
        (WorkloadName::Counter, _) => Box::new(counter::Counter::new(from)),
    }
}

/// The errors after a run, from the counters of all connections together.
pub(crate) fn after(options: &Options, shared: &Shared) -> Vec<String> {
    match options.workload {
        WorkloadName::Scan => scan::after(options, shared),
        _ => Vec::new(),
    }
}

fn execute(out: &mut RequestWriter, statement: &Prepared, consistency: Consistency, values: &[Value<'_>]) {
    let parameters = Parameters { skip_metadata: true, ..Parameters::new(consistency, values) };
    out.execute(&statement.id, &statement.result_metadata_id, &parameters);
}

fn expect_void(answer: &ResultBody) -> Result<u64, String> {
    match answer {
        ResultBody::Void => Ok(0),
        other => Err(format!("a write was answered with {other:?}")),
    }
}

fn expect_rows(answer: &ResultBody, columns: usize) -> Result<&Rows, String> {
    match answer {
        ResultBody::Rows(rows) if rows.columns == columns => Ok(rows),
        ResultBody::Rows(rows) => Err(format!("{} columns, not {columns}", rows.columns)),
        other => Err(format!("a read was answered with {other:?}")),
    }
}

/// The next cell, which has to be there and not null.
fn cell<'a, E: std::fmt::Display>(
    cells: &mut impl Iterator<Item = Result<Option<&'a [u8]>, E>>,
) -> Result<&'a [u8], String> {
    match cells.next() {
        Some(Ok(Some(cell))) => Ok(cell),
        Some(Ok(None)) => Err("a cell is null".to_owned()),
        Some(Err(error)) => Err(format!("the rows are cut short: {error}")),
        None => Err("a cell is missing".to_owned()),
    }
}

fn bigint(cell: &[u8]) -> Result<i64, String> {
    cell.try_into().map(i64::from_be_bytes).map_err(|_| format!("a bigint of {} bytes", cell.len()))
}

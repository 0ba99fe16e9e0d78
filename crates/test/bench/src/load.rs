//! The load generator: raw pipelined connections to any CQL server, with little CPU of its own.
//!
//! A run has up to four phases, each over connections of its own: create the schema, look whether the data that the
//! workload reads is there, load it if not, and measure. One task drives one connection: it fills the free slots with
//! requests, writes them with one system call, and handles all answers of one read together.

mod connection;
mod cpu;
mod driver;
mod figures;
mod keys;
mod kind;
mod options;
mod progress;
mod report;
mod shared;
mod values;
mod workload;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::{ArgMatches, Command};
use rt::{LocalBoxFuture, Rt, ShardMain};
use wire::client::ResultBody;

use connection::Connection;
pub use cpu::CpuTime;
pub use figures::{ErrorCount, Outcome, ServerUsage};
pub use keys::Distribution;
pub(crate) use keys::Random;
pub use options::{Options, WorkloadName};
use shared::{PhaseLength, Shared};
pub(crate) use values::Values;
use workload::Phase;

/// Operations that look whether the data of a workload is there.
const PROBE_OPERATIONS: u64 = 64;
/// How often the data is loaded when some of it was refused for a reason that may pass.
const LOAD_TRIES_MAX: u32 = 6;
/// Such reasons.
const PASSING_ERRORS: [&str; 2] = ["WriteTimeout", "Overloaded"];
/// Requests in flight while data is loaded, over all connections.
const PRELOAD_IN_FLIGHT: usize = 256;

/// The command line of `torc bench load`.
pub fn command() -> Command {
    options::command()
}

/// Runs the arguments that [`command`] has parsed: prints figures, and writes them to a file where that was asked for.
///
/// # Errors
/// A sentence for the user when an option is wrong, the server cannot be reached or refuses, or an answer was wrong.
pub fn run(matches: &ArgMatches) -> Result<(), String> {
    let options = Options::from_matches(matches)?;
    let outcome = measure(&options)?;
    print!("{}", report::text(&options, &outcome));
    if let Some(file) = &options.json {
        report::write_json(file, &options, &outcome)?;
    }
    verdict(&outcome)
}

/// Runs a workload and gives its figures.
///
/// # Errors
/// A sentence for the user when the server cannot be reached or refuses to set the tables up. Wrong answers are
/// findings of the outcome.
pub fn measure(options: &Options) -> Result<Outcome, String> {
    let options = Arc::new(options.clone());
    let before = on_one_shard(&options, set_up)?;
    if options.preload && options.workload.reads_loaded_data(&options) && !is_loaded(&options)? {
        load(&options)?;
    }
    let length = match options.operations {
        Some(operations) => PhaseLength::Operations(operations),
        None => PhaseLength::Time(options.duration),
    };
    let shared = Arc::new(Shared::new(&options));
    let mut outcome = driver::run(&options, Phase::Run, length, options.in_flight, &shared)?;
    outcome.add_findings(workload::after(&options, &shared));
    if options.workload == WorkloadName::Counter {
        let after = on_one_shard(&options, set_up)?;
        let acknowledged = shared.acknowledged.load(Ordering::Relaxed) as i64;
        let unknown = shared.unknown.load(Ordering::Relaxed) as i64;
        if !(acknowledged..=acknowledged + unknown).contains(&(after - before)) {
            let found = format!(
                "the counters grew by {}, but {acknowledged} increments were acknowledged and {unknown} are uncertain",
                after - before
            );
            outcome.add_findings(vec![found]);
        }
    }
    Ok(outcome)
}

/// A run whose answers were wrong, or that did nothing, has failed.
fn verdict(outcome: &Outcome) -> Result<(), String> {
    if outcome.wrong() > 0 {
        return Err(format!("{} answers were wrong", outcome.wrong()));
    }
    if outcome.operations == 0 {
        return Err("no operation succeeded".to_owned());
    }
    Ok(())
}

fn on_one_shard<F>(options: &Arc<Options>, main: fn(Rt, Arc<Options>) -> F) -> Result<i64, String>
where
    F: Future<Output = Result<i64, String>> + 'static,
{
    let options = options.clone();
    let main: ShardMain<Result<i64, String>> =
        Box::new(move |rt: Rt| Box::pin(main(rt, options)) as LocalBoxFuture<_>);
    let mut results =
        rt_uring::run(&driver::runtime(false), vec![main]).map_err(|error| error.to_string())?;
    results.pop().expect("one shard, one result")
}

/// Creates the schema; for counters, their sum.
async fn set_up(rt: Rt, options: Arc<Options>) -> Result<i64, String> {
    let mut connection = Connection::open(&rt, &options, 0).await?;
    for statement in workload::schema(&options) {
        connection.query(&statement, None, None).await.map_err(|error| format!("{statement}: {error}"))?;
    }
    if options.workload != WorkloadName::Counter {
        return Ok(0);
    }
    let text = format!("SELECT count FROM {}.counters", options.keyspace);
    let (mut sum, mut state) = (0i64, None);
    loop {
        let answer = connection.query(&text, Some(5000), state.as_deref()).await?;
        let ResultBody::Rows(rows) = answer else { return Err(format!("{text}: the answer has no rows")) };
        for cell in rows.cells() {
            let cell = cell.map_err(|error| format!("{text}: {error}"))?;
            sum += cell.and_then(|cell| cell.try_into().ok()).map_or(0, i64::from_be_bytes);
        }
        state = rows.paging_state;
        if state.is_none() {
            return Ok(sum);
        }
    }
}

/// The statement about the data of these options that is written when all of it has been loaded: a look at some rows
/// would not notice that a few are missing.
fn loaded_name(options: &Options) -> String {
    let (columns, size) = (options.columns, options.value_size);
    format!("{}/{columns}/{size}/{}", workload::data_name(options), options.partition_rows)
}

async fn read_loaded(rt: Rt, options: Arc<Options>) -> Result<i64, String> {
    let mut connection = Connection::open(&rt, &options, 0).await?;
    let text =
        format!("SELECT row_count FROM {}.loaded WHERE name = '{}'", options.keyspace, loaded_name(&options));
    let ResultBody::Rows(rows) = connection.query(&text, Some(1), None).await? else {
        return Err(format!("{text}: the answer has no rows"));
    };
    let cell = rows.cells().next().and_then(Result::ok).flatten();
    Ok(cell.and_then(|cell| cell.try_into().ok()).map_or(0, i64::from_be_bytes))
}

async fn write_loaded(rt: Rt, options: Arc<Options>) -> Result<i64, String> {
    let mut connection = Connection::open(&rt, &options, 0).await?;
    let (name, rows) = (loaded_name(&options), options.rows_to_load());
    let text = format!("INSERT INTO {}.loaded (name, row_count) VALUES ('{name}', {rows})", options.keyspace);
    connection.query(&text, None, None).await.map(|_| 0)
}

fn is_loaded(options: &Arc<Options>) -> Result<bool, String> {
    if on_one_shard(options, read_loaded)? != options.rows_to_load() as i64 {
        return Ok(false);
    }
    let one = Options { connections: 1, threads: 1, quiet: true, rate: None, ..Options::clone(options) };
    let one = Arc::new(one);
    let shared = Arc::new(Shared::new(&one));
    let outcome = driver::run(&one, Phase::Probe, PhaseLength::Operations(PROBE_OPERATIONS), 8, &shared)?;
    Ok(outcome.errors.is_empty())
}

fn load(options: &Arc<Options>) -> Result<(), String> {
    let rows = options.rows_to_load();
    if !options.quiet {
        eprintln!("loading {rows} rows");
    }
    let closed = Arc::new(Options { rate: None, ..Options::clone(options) });
    let in_flight = (PRELOAD_IN_FLIGHT / options.connections).max(1);
    for tries_left in (0..LOAD_TRIES_MAX).rev() {
        let shared = Arc::new(Shared::new(&closed));
        let outcome =
            driver::run(&closed, Phase::Preload, PhaseLength::Operations(rows), in_flight, &shared)?;
        let Some((kind, error)) = outcome.errors.iter().next() else {
            return on_one_shard(options, write_loaded).map(drop);
        };
        // A server that has just started may be too slow for its own time limits; writing a row again does no harm.
        let passing =
            outcome.errors.keys().all(|kind| PASSING_ERRORS.iter().any(|name| kind.starts_with(name)));
        if !passing || tries_left == 0 {
            return Err(format!("{} rows were not loaded: {kind}: {}", error.count, error.example));
        }
        if !options.quiet {
            eprintln!("loading again: {} rows were answered with {kind}", error.count);
        }
    }
    unreachable!("the last try returns")
}

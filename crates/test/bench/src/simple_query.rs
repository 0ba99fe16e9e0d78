//! The statement path in process: prepared statements by key through request decoding, execution, coordinator, replica
//! and engine to the encoded response, on one shard without sockets.
//!
//! The workload is the one that ScyllaDB publishes figures of (`perf-simple-query`): 10,000 partitions of five 34-byte
//! cells, read and written by key. Counted under callgrind it gives instructions an operation, which other work on the
//! machine does not disturb: run it with two numbers of operations and divide the difference (`bench/callgrind.sh`).

mod node;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use replica::TableOperation;
use rt::{LocalBoxFuture, Rt, ShardMain};
use rt_uring::FileBackend;
use wire::Envelope;

use crate::allocations;
use crate::load::{Random, Values};
use node::Node;

/// Bytes of a cell.
const CELL_BYTES: usize = 34;
/// Cells of a row.
const CELLS: usize = 5;
/// The default number of partitions.
const PARTITIONS: &str = "10000";
/// One answer of this many is looked into.
const CHECK_EVERY: u64 = 64;

/// The options.
#[derive(Clone, Debug)]
struct Options {
    reads: bool,
    writes: bool,
    partitions: u64,
    operations: u64,
    warmup: u64,
    flush: bool,
    directory: Option<PathBuf>,
}

/// The cost of one kind of operation.
struct Cost {
    name: &'static str,
    operations: u64,
    elapsed: Duration,
    allocations: Option<u64>,
}

/// The command line of `torc bench simple-query`.
pub fn command() -> Command {
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(value_parser!(u64))
            .default_value(default)
            .help(help)
    };
    Command::new("simple-query")
        .about("Run prepared statements by key in process, without sockets, and print what one costs")
        .arg(
            Arg::new("operation")
                .value_parser(["both", "read", "write"])
                .default_value("both")
                .help("Which operations to run"),
        )
        .arg(number("ops", "200000", "Operations of each kind to measure"))
        .arg(number("warmup", "20000", "Operations of each kind before"))
        .arg(number("partitions", PARTITIONS, "Partitions of five 34-byte cells"))
        .arg(
            Arg::new("flush").long("flush").action(ArgAction::SetTrue).help("Flush memtables before reading"),
        )
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_parser(value_parser!(PathBuf))
                .help("Keep files in this empty directory instead of in memory"),
        )
}

/// Runs the arguments that [`command`] has parsed, and prints the cost of an operation.
///
/// # Errors
/// A sentence for the user when the shard cannot start or a statement fails.
pub fn run(matches: &ArgMatches) -> Result<(), String> {
    let number = |name| *matches.get_one::<u64>(name).expect("it has a default");
    let operation = matches.get_one::<String>("operation").expect("it has a default").as_str();
    let options = Options {
        reads: operation != "write",
        writes: operation != "read",
        partitions: number("partitions").max(1),
        operations: number("ops").max(1),
        warmup: number("warmup"),
        flush: matches.get_flag("flush"),
        directory: matches.get_one::<PathBuf>("dir").cloned(),
    };
    let files = if options.directory.is_some() { FileBackend::Auto } else { FileBackend::Memory };
    let config = rt_uring::Config { files, pin: false, ..rt_uring::Config::default() };
    let main: ShardMain<Result<Vec<Cost>, String>> =
        Box::new(move |rt: Rt| Box::pin(measure(rt, options)) as LocalBoxFuture<_>);
    let mut results = rt_uring::run(&config, vec![main]).map_err(|error| error.to_string())?;
    let costs = results.pop().expect("one shard, one result")?;
    print!("{}", text(&costs));
    Ok(())
}

fn text(costs: &[Cost]) -> String {
    let mut text = String::new();
    for cost in costs {
        let nanos = cost.elapsed.as_nanos() as f64 / cost.operations as f64;
        text += &format!("{:>6} {:>10.0} ops/s {nanos:>8.0} ns/op", cost.name, 1e9 / nanos);
        match cost.allocations {
            Some(count) => {
                text += &format!(" {:>6.1} allocations/op\n", count as f64 / cost.operations as f64)
            }
            None => text.push('\n'),
        }
    }
    text
}

async fn measure(rt: Rt, options: Options) -> Result<Vec<Cost>, String> {
    let node = Node::open(&rt, options.directory.as_deref()).await?;
    node.query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        .await?;
    node.query("CREATE TABLE ks.cf (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)")
        .await?;
    let insert =
        node.prepare("INSERT INTO ks.cf (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)").await?;
    let select = node.prepare("SELECT c0, c1, c2, c3, c4 FROM ks.cf WHERE key = ?").await?;
    let values = Values::new(CELL_BYTES);
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for partition in 0..options.partitions {
        let key = partition.to_be_bytes();
        let cells = (0..CELLS as u64).map(|column| values.of(partition, column));
        writes.push(
            node.execute_request(&insert, &std::iter::once(&key[..]).chain(cells).collect::<Vec<_>>())?,
        );
        reads.push(node.execute_request(&select, &[&key[..]])?);
    }
    for request in &writes {
        node.expect_void(request).await?;
    }
    let mut costs = Vec::new();
    let mut random = Random::new(1);
    if options.writes {
        costs.push(cost("write", &node, &writes, &options, &mut random).await?);
        node.expect_void(&writes[0]).await?;
    }
    if options.flush {
        node.table_operation("ks", "cf", TableOperation::Flush).await?;
    }
    if options.reads {
        costs.push(cost("read", &node, &reads, &options, &mut random).await?);
        for partition in (0..options.partitions).step_by(CHECK_EVERY as usize) {
            let expected: Vec<_> = (0..CELLS as u64).map(|column| values.of(partition, column)).collect();
            node.expect_row(&reads[partition as usize], &expected).await?;
        }
    }
    node.stop().await?;
    Ok(costs)
}

async fn cost(
    name: &'static str,
    node: &Node,
    requests: &[Envelope],
    options: &Options,
    random: &mut Random,
) -> Result<Cost, String> {
    let expected = node.answer_len(&requests[0]).await?;
    measured_operations(node, requests, options.warmup, expected, random.clone()).await?;
    let allocations = allocations::count();
    let start = Instant::now();
    measured_operations(node, requests, options.operations, expected, random.clone()).await?;
    let elapsed = start.elapsed();
    let allocations = allocations::count().zip(allocations).map(|(after, before)| after - before);
    Ok(Cost { name, operations: options.operations, elapsed, allocations })
}

/// Runs operations on random partitions, one after another. A boxed future, so that it is a function of its own that
/// a profiler can be pointed at.
fn measured_operations<'a>(
    node: &'a Node,
    requests: &'a [Envelope],
    operations: u64,
    expected: usize,
    mut random: Random,
) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + 'a>> {
    Box::pin(async move {
        for _ in 0..operations {
            let request = &requests[random.below(requests.len() as u64) as usize];
            let answered = node.answer_len(request).await?;
            // An error is of another length than a row or nothing.
            if answered != expected {
                return Err(format!(
                    "an answer of {answered} bytes, not {expected}: {}",
                    node.explain(request).await
                ));
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(line: &str) -> Result<(), String> {
        run(&command().get_matches_from(line.split(' ')))
    }

    #[test]
    fn reads_and_writes_are_answered_rightly() {
        run_with("simple-query --ops 500 --warmup 10 --partitions 200").expect("a run in memory");
        run_with("simple-query --ops 500 --warmup 10 --partitions 200 --flush").expect("a run over files");
    }
}

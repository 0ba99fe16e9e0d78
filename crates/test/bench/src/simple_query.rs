//! The statement path in process: prepared statements by key through request decoding, execution, coordinator, replica
//! and engine to the encoded response, on one shard without sockets.
//!
//! The workload is the one that ScyllaDB publishes figures of (`perf-simple-query`): 10,000 partitions of five 34-byte
//! cells, read and written by key. Counted under callgrind it gives instructions an operation, which other work on the
//! machine does not disturb: run it with two numbers of operations and divide the difference (`bench/callgrind.sh`).
//! Other statements, from a table of their own, are in [`workload`], and requests of the DynamoDB API in [`items`].

mod items;
mod node;
mod workload;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use replica::TableOperation;
use rt::{LocalBoxFuture, Rt, ShardMain};
use rt_uring::FileBackend;
use wire::Envelope;

use crate::allocations;
use crate::load::{Random, Values};
use items::{Connection, ITEM_WORKLOADS, ItemWorkload};
use node::Node;
use workload::{CELLS, Requests, Statement, WORKLOADS, Workload, values_of_row};

/// Bytes of a cell.
const CELL_BYTES: usize = 34;
/// The default number of partitions.
const PARTITIONS: &str = "10000";
/// One answer of this many is looked into.
const CHECK_EVERY: u64 = 64;

/// The options.
#[derive(Clone)]
struct Options {
    reads: bool,
    writes: bool,
    /// Another statement than these.
    workload: Option<&'static Workload>,
    /// A request of the DynamoDB API instead.
    items: Option<&'static ItemWorkload>,
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
    let operations = ["both", "read", "write"]
        .into_iter()
        .chain(WORKLOADS.iter().map(|workload| workload.name))
        .chain(ITEM_WORKLOADS.iter().map(|workload| workload.name));
    Command::new("simple-query")
        .about("Run prepared statements by key in process, without sockets, and print what one costs")
        .arg(
            Arg::new("operation")
                .value_parser(PossibleValuesParser::new(operations))
                .default_value("both")
                .help("Which operations to run: by key, or with lightweight transactions, a view, captured changes, an index, counters, slices of 500 rows; or requests of the DynamoDB API"),
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
        reads: matches!(operation, "both" | "read"),
        writes: matches!(operation, "both" | "write"),
        workload: WORKLOADS.iter().find(|workload| workload.name == operation),
        items: ITEM_WORKLOADS.iter().find(|workload| workload.name == operation),
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
    let costs = match (options.workload, options.items) {
        (Some(workload), _) => vec![measure_workload(&node, workload, &options).await?],
        (None, Some(workload)) => {
            let items = (options.partitions, &Values::new(CELL_BYTES));
            let connection = Connection::open(&rt, node.executor(), workload, items).await?;
            vec![cost(workload.name, &connection, &options, &mut Random::new(1)).await?]
        }
        (None, None) => measure_keys(&node, &options).await?,
    };
    node.stop().await?;
    Ok(costs)
}

/// Reads and writes by key.
async fn measure_keys(node: &Node, options: &Options) -> Result<Vec<Cost>, String> {
    node.query("CREATE TABLE ks.cf (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)")
        .await?;
    let values = Values::new(CELL_BYTES);
    let insert = Statement {
        text: "INSERT INTO ks.cf (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)",
        turns: 1,
        values: values_of_row,
    };
    let select = Statement {
        text: "SELECT c0, c1, c2, c3, c4 FROM ks.cf WHERE key = ?",
        turns: 1,
        values: |partition, turn, values| values_of_row(partition, turn, values)[..1].to_vec(),
    };
    let writes = requests(node, &insert, options.partitions, &values).await?;
    let reads = requests(node, &select, options.partitions, &values).await?;
    for request in &writes {
        node.expect_void(request).await?;
    }
    let mut costs = Vec::new();
    let mut random = Random::new(1);
    if options.writes {
        costs.push(cost("write", &Statements::of(node, &writes).await?, options, &mut random).await?);
        node.expect_void(&writes[0]).await?;
    }
    if options.flush {
        node.table_operation("ks", "cf", TableOperation::Flush).await?;
    }
    if options.reads {
        costs.push(cost("read", &Statements::of(node, &reads).await?, options, &mut random).await?);
        for partition in (0..options.partitions).step_by(CHECK_EVERY as usize) {
            let expected: Vec<_> = (0..CELLS).map(|column| values.of(partition, column)).collect();
            node.expect_row(&reads[partition as usize], &expected).await?;
        }
    }
    Ok(costs)
}

/// The measured statement of a workload.
async fn measure_workload(node: &Node, workload: &Workload, options: &Options) -> Result<Cost, String> {
    for statement in workload.schema {
        node.query(statement).await?;
    }
    let values = Values::new(CELL_BYTES);
    if let Some(fill) = &workload.fill {
        for request in requests(node, fill, options.partitions, &values).await? {
            node.expect_void(&request).await?;
        }
    }
    let measured = requests(node, &workload.measured, options.partitions, &values).await?;
    // All answers have to be as long as the first, which is no error.
    node.expect_answer(&measured[0]).await?;
    let measured = Statements::of(node, &measured).await?;
    cost(workload.name, &measured, options, &mut Random::new(1)).await
}

/// The requests of all executions of a statement.
async fn requests(
    node: &Node,
    statement: &Statement,
    partitions: u64,
    values: &Values,
) -> Result<Vec<Envelope>, String> {
    let id = node.prepare(statement.text).await?;
    let mut requests = Vec::new();
    for (partition, turn) in (0..partitions).flat_map(|at| (0..statement.turns).map(move |turn| (at, turn))) {
        let bound = (statement.values)(partition, turn, values);
        requests.push(node.execute_request(&id, &bound.iter().map(Vec::as_slice).collect::<Vec<_>>())?);
    }
    Ok(requests)
}

/// Executions of a statement, whose answers have to be as long as that of the first: an error is of another length than a row or nothing.
struct Statements<'a> {
    node: &'a Node,
    requests: &'a [Envelope],
    expected: usize,
}

impl<'a> Statements<'a> {
    async fn of(node: &'a Node, requests: &'a [Envelope]) -> Result<Self, String> {
        Ok(Self { node, requests, expected: node.answer_len(&requests[0]).await? })
    }
}

impl Requests for Statements<'_> {
    fn count(&self) -> usize {
        self.requests.len()
    }

    async fn carry_out(&self, at: usize) -> Result<(), String> {
        let (request, expected) = (&self.requests[at], self.expected);
        match self.node.answer_len(request).await? {
            answered if answered == expected => Ok(()),
            answered => Err(format!(
                "an answer of {answered} bytes, not {expected}: {}",
                self.node.explain(request).await
            )),
        }
    }
}

async fn cost(
    name: &'static str,
    requests: &impl Requests,
    options: &Options,
    random: &mut Random,
) -> Result<Cost, String> {
    measured_operations(requests, options.warmup, random.clone()).await?;
    let allocations = allocations::count();
    let start = Instant::now();
    measured_operations(requests, options.operations, random.clone()).await?;
    let elapsed = start.elapsed();
    let allocations = allocations::count().zip(allocations).map(|(after, before)| after - before);
    Ok(Cost { name, operations: options.operations, elapsed, allocations })
}

/// Runs operations on random partitions, one after another. A boxed future, so that it is a function of its own that
/// a profiler can be pointed at.
fn measured_operations<'a>(
    requests: &'a impl Requests,
    operations: u64,
    mut random: Random,
) -> Pin<Box<dyn Future<Output = Result<(), String>> + 'a>> {
    Box::pin(async move {
        for _ in 0..operations {
            requests.carry_out(random.below(requests.count() as u64) as usize).await?;
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

    #[test]
    fn each_workload_is_answered() {
        let names = WORKLOADS.iter().map(|workload| workload.name);
        for name in names.chain(ITEM_WORKLOADS.iter().map(|workload| workload.name)) {
            let line = format!("simple-query {name} --ops 20 --warmup 2 --partitions 3");
            run_with(&line).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

//! The options of `torc bench load`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use wire::{Compression, Consistency, Version};

use crate::load::keys::Distribution;

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadName {
    /// Inserts by key.
    Write,
    /// Reads by key.
    Read,
    /// Both, by `--read-percent`.
    Mixed,
    /// Appends by sensor and time, and reads of the latest rows.
    TimeSeries,
    /// Slices of long partitions.
    WidePartition,
    /// Token ranges, page by page.
    Scan,
    /// Increments, and reads of counters.
    Counter,
}

impl WorkloadName {
    const ALL: [(&str, WorkloadName, &str); 7] = [
        ("write", Self::Write, "inserts by key"),
        ("read", Self::Read, "reads by key"),
        ("mixed", Self::Mixed, "inserts and reads by key"),
        ("time-series", Self::TimeSeries, "appends by sensor and time, reads of the latest rows"),
        ("wide-partition", Self::WidePartition, "slices of long partitions"),
        ("scan", Self::Scan, "token ranges, page by page"),
        ("counter", Self::Counter, "increments, and reads of counters"),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, workload, _)| *workload == self).expect("all are listed").0
    }

    /// Whether the workload reads rows that must have been loaded before.
    pub(crate) fn reads_loaded_data(self, options: &Options) -> bool {
        match self {
            Self::Write | Self::Counter => false,
            Self::Scan | Self::Read => true,
            Self::Mixed | Self::TimeSeries | Self::WidePartition => options.read_percent > 0,
        }
    }
}

/// Workload, server, and duration.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers; connections take them in turn.
    pub servers: Vec<SocketAddr>,
    /// The workload.
    pub workload: WorkloadName,
    /// Connections.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub in_flight: usize,
    /// Threads of the generator.
    pub threads: u16,
    /// Operations a second over all connections (open loop); none for as many as the server answers (closed loop).
    pub rate: Option<f64>,
    /// How long to measure.
    pub duration: Duration,
    /// How many operations to measure, in place of a time.
    pub operations: Option<u64>,
    /// How long to run before.
    pub warmup: Duration,
    /// Keys, sensors or counters.
    pub keys: u64,
    /// How they are chosen.
    pub distribution: Distribution,
    /// Columns of a row by key.
    pub columns: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Of 100 operations of a workload that does both, how many read.
    pub read_percent: u64,
    /// Rows of a read: latest rows, or of a slice.
    pub rows: u64,
    /// Rows of a partition, as loaded.
    pub partition_rows: u64,
    /// Rows of a page of a scan.
    pub page_size: i32,
    /// Token ranges that a scan divides the ring into.
    pub ranges: u64,
    /// The keyspace of the tables.
    pub keyspace: String,
    /// Replicas of the keyspace when it is created.
    pub replication: u32,
    /// Consistency level of every operation.
    pub consistency: Consistency,
    /// Protocol version.
    pub version: Version,
    /// Compression of frames.
    pub compression: Option<Compression>,
    /// User name and password.
    pub credentials: Option<(String, String)>,
    /// The server's process, whose CPU time is read.
    pub server_pid: Option<u32>,
    /// The start of every random choice.
    pub seed: u64,
    /// Load the data that the workload reads, when it is not there.
    pub preload: bool,
    /// How long the server may answer nothing.
    pub stall_max: Duration,
    /// The file for the figures as JSON; `-` for the standard output.
    pub json: Option<PathBuf>,
    /// No progress on standard error.
    pub quiet: bool,
}

/// Columns of a row at most.
pub(crate) const COLUMNS_MAX: usize = 64;
/// Bytes of a value at most.
const VALUE_SIZE_MAX: usize = 1 << 20;

impl Options {
    /// Rows that the workload's data consists of.
    pub(crate) fn rows_to_load(&self) -> u64 {
        match self.workload {
            WorkloadName::WidePartition | WorkloadName::TimeSeries => self.keys * self.partition_rows,
            _ => self.keys,
        }
    }

    /// The options of a parsed command line.
    ///
    /// # Errors
    /// A sentence for the user with the first option that is wrong or contradicts another.
    pub fn from_matches(matches: &ArgMatches) -> Result<Options, String> {
        let number = |name| *matches.get_one::<u64>(name).expect("it has a default");
        let optional = |name| matches.get_one::<u64>(name).copied();
        let time = |name| *matches.get_one::<Duration>(name).expect("it has a default");
        let text = |name| matches.get_one::<String>(name).expect("it has a default");
        let workload = text("workload");
        let (_, workload, _) = *WorkloadName::ALL
            .iter()
            .find(|(name, ..)| name == workload)
            .ok_or_else(|| format!("no workload is named {workload}"))?;
        let mixes = |reads| optional("read-percent").unwrap_or(reads);
        let (keys, read_percent, rows) = match workload {
            WorkloadName::Write => (1_000_000, 0, 1),
            WorkloadName::Read => (1_000_000, 100, 1),
            WorkloadName::Mixed => (1_000_000, mixes(50), 1),
            WorkloadName::TimeSeries => (1_000, mixes(10), 100),
            WorkloadName::WidePartition => (10, mixes(100), 500),
            WorkloadName::Scan => (1_000_000, 100, 1),
            WorkloadName::Counter => (100_000, mixes(0), 1),
        };
        let options = Options {
            servers: addresses(text("host"), *matches.get_one::<u16>("port").expect("it has a default"))?,
            workload,
            connections: number("connections") as usize,
            in_flight: number("in-flight") as usize,
            threads: number("threads") as u16,
            rate: matches.get_one::<f64>("rate").copied(),
            duration: time("duration"),
            operations: optional("ops"),
            warmup: time("warmup"),
            keys: optional("keys").unwrap_or(keys),
            distribution: distribution(text("distribution"))?,
            columns: number("columns") as usize,
            value_size: number("value-size") as usize,
            read_percent,
            rows: optional("rows").unwrap_or(rows),
            partition_rows: optional("partition-rows").unwrap_or(match workload {
                WorkloadName::TimeSeries => 200,
                _ => 10_000,
            }),
            page_size: number("page-size") as i32,
            ranges: number("ranges"),
            keyspace: text("keyspace").clone(),
            replication: number("replication") as u32,
            consistency: consistency(text("consistency"))?,
            version: version(text("protocol"))?,
            compression: matches.get_flag("lz4").then_some(Compression::Lz4),
            credentials: matches.get_one::<String>("user").map(|user| {
                (user.clone(), matches.get_one::<String>("password").cloned().unwrap_or_default())
            }),
            server_pid: optional("server-pid").and_then(|pid| u32::try_from(pid).ok()),
            seed: number("seed"),
            preload: !matches.get_flag("no-load"),
            stall_max: time("stall"),
            json: matches.get_one::<PathBuf>("json").cloned(),
            quiet: matches.get_flag("quiet"),
        };
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), String> {
        let word = |ch: char| ch.is_ascii_alphanumeric() || ch == '_';
        let limits = [
            ((1..=65_535).contains(&self.connections), "--connections is a number from 1 to 65535"),
            ((1..=32_768).contains(&self.in_flight), "--in-flight is a number from 1 to 32768"),
            (
                self.threads >= 1 && usize::from(self.threads) <= self.connections,
                "--threads is a number from 1 to that of connections",
            ),
            ((1..=COLUMNS_MAX).contains(&self.columns), "--columns is a number from 1 to 64"),
            (
                (1..=VALUE_SIZE_MAX).contains(&self.value_size),
                "--value-size is a number of bytes from 1 to 1048576",
            ),
            (self.keys >= 1 && self.keys <= i64::MAX as u64, "--keys is at least 1"),
            (self.read_percent <= 100, "--read-percent is a number from 0 to 100"),
            (
                self.rows >= 1 && self.rows <= self.partition_rows,
                "--rows is a number from 1 to that of --partition-rows",
            ),
            ((1..=1 << 20).contains(&self.ranges), "--ranges is a number from 1 to 1048576"),
            (self.page_size >= 1, "--page-size is at least 1"),
            (
                self.rate.is_none_or(|rate| rate > 0.0 && rate < 1e9),
                "--rate is a number of operations a second above 0",
            ),
            (
                self.keyspace.starts_with(|ch: char| ch.is_ascii_alphabetic())
                    && self.keyspace.chars().all(word),
                "--keyspace is a name of letters, digits and _",
            ),
        ];
        match limits.iter().find(|(holds, _)| !holds) {
            Some((_, what)) => Err((*what).to_owned()),
            None => Ok(()),
        }
    }
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let mut servers = Vec::new();
    for host in hosts.split(',').map(str::trim).filter(|host| !host.is_empty()) {
        let found = host
            .to_socket_addrs()
            .or_else(|_| (host, port).to_socket_addrs())
            .map_err(|error| format!("the server {host} was not found: {error}"))?;
        servers.push(found.into_iter().next().ok_or_else(|| format!("the server {host} has no address"))?);
    }
    if servers.is_empty() {
        return Err("--host names no server".to_owned());
    }
    Ok(servers)
}

fn distribution(text: &str) -> Result<Distribution, String> {
    let bad = || format!("--distribution {text}: it is uniform, sequential, zipfian or zipfian:EXPONENT");
    match text.split_once(':').map_or((text, None), |(name, exponent)| (name, Some(exponent))) {
        ("uniform", None) => Ok(Distribution::Uniform),
        ("sequential", None) => Ok(Distribution::Sequential),
        ("zipfian", None) => Ok(Distribution::Zipfian(0.99)),
        ("zipfian", Some(exponent)) => match exponent.parse::<f64>() {
            Ok(exponent) if exponent > 0.0 && exponent < 20.0 => Ok(Distribution::Zipfian(exponent)),
            _ => Err(bad()),
        },
        _ => Err(bad()),
    }
}

fn consistency(text: &str) -> Result<Consistency, String> {
    let wanted = text.replace('-', "_");
    let all = Consistency::ALL_LEVELS;
    let found = all.iter().find(|level| level.name().eq_ignore_ascii_case(&wanted));
    found.copied().ok_or_else(|| format!("--consistency {text}: there is no such level"))
}

fn version(text: &str) -> Result<Version, String> {
    let number = text.trim_start_matches('v').parse().ok().and_then(Version::from_number);
    number.ok_or_else(|| format!("--protocol {text}: it is v3, v4 or v5"))
}

/// A time such as `30s`, `2m`, `500ms`, `1h`; a bare number means seconds.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|ch: char| !ch.is_ascii_digit() && ch != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number with ms, s, m or h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "a time begins with a number".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

/// A count such as `1000`, `10k`, `5M`.
fn parse_count(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 1_000_000),
            None => (text, 1),
        },
    };
    let number: u64 = number.replace('_', "").parse().map_err(|_| "it is a number".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "the number is too large".to_owned())
}

fn number(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(parse_count).default_value(default).help(help)
}

fn optional(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(parse_count).help(help)
}

fn time(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("TIME").value_parser(parse_time).default_value(default).help(help)
}

fn text(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).default_value(default).help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub(crate) fn command() -> Command {
    let workloads = WorkloadName::ALL.map(|(name, _, help)| format!("  {name:<16}{help}")).join("\n");
    let command = Command::new("load")
        .args_override_self(true)
        .about("Drive any CQL server over the wire, check its answers, and print throughput, latency and CPU")
        .after_help(format!("Workloads:\n{workloads}"))
        .arg(
            Arg::new("workload")
                .required(true)
                .value_parser(WorkloadName::ALL.map(|(name, ..)| name))
                .hide_possible_values(true)
                .help("The workload, see below"),
        )
        .arg(text("host", "127.0.0.1", "Servers, HOST or HOST:PORT, separated by commas").short('H'))
        .arg(
            Arg::new("port")
                .long("port")
                .short('p')
                .value_parser(value_parser!(u16))
                .default_value("9042")
                .help("Port of servers that name none"),
        )
        .arg(number("connections", "8", "Connections").short('c'))
        .arg(number("in-flight", "32", "Requests in flight on each connection").short('f'))
        .arg(number("threads", "1", "Threads of the generator").short('t'))
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("OPS")
                .value_parser(value_parser!(f64))
                .help("Operations a second (open loop): latency counts from when each was due"),
        )
        .arg(time("duration", "30s", "How long to measure").short('d'))
        .arg(optional("ops", "How many operations to measure, in place of a time").short('n'))
        .arg(time("warmup", "5s", "How long to run before measuring"));
    connection_arguments(data_arguments(command))
}

/// The rows, and how they are chosen.
fn data_arguments(command: Command) -> Command {
    command
        .arg(optional(
            "keys",
            "Keys, partitions, sensors or counters (1M; time-series 1k; wide-partition 10; counter 100k)",
        ))
        .arg(text(
            "distribution",
            "uniform",
            "How keys are chosen: uniform, sequential, zipfian or zipfian:EXPONENT",
        ))
        .arg(number("columns", "1", "Columns of a row by key"))
        .arg(number("value-size", "100", "Bytes of a value"))
        .arg(optional(
            "read-percent",
            "How many of 100 operations read (mixed 50; time-series 10; wide-partition 100; counter 0)",
        ))
        .arg(optional("rows", "Rows of a read (time-series 100; wide-partition 500)"))
        .arg(optional(
            "partition-rows",
            "Rows of a partition as loaded (time-series 200; wide-partition 10k)",
        ))
        .arg(number("page-size", "1000", "Rows of a page of a scan"))
        .arg(number("ranges", "64", "Token ranges that a scan divides the ring into"))
}

/// The connections, and the output.
fn connection_arguments(command: Command) -> Command {
    command
        .arg(text("keyspace", "torc_bench", "Keyspace of the tables"))
        .arg(number("replication", "1", "Replicas, when the keyspace is created"))
        .arg(text("consistency", "ONE", "Consistency level"))
        .arg(text("protocol", "v5", "Protocol version: v3, v4 or v5"))
        .arg(flag("lz4", "Compress frames with LZ4"))
        .arg(Arg::new("user").long("user").help("User name"))
        .arg(Arg::new("password").long("password").help("Password").requires("user"))
        .arg(
            optional("server-pid", "Process of the server, to read its CPU time and memory")
                .value_name("PID"),
        )
        .arg(number("seed", "1", "Start of every random choice"))
        .arg(flag("no-load", "Do not load the data that the workload reads"))
        .arg(time("stall", "30s", "Give up when the server answers nothing for so long"))
        .arg(
            Arg::new("json")
                .long("json")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write the figures there too (-: standard output)"),
        )
        .arg(flag("quiet", "No progress lines").short('q'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let matches = command().try_get_matches_from(std::iter::once("load").chain(line.split(' ')));
        matches.map_err(|error| error.to_string()).and_then(|matches| Options::from_matches(&matches))
    }

    #[test]
    fn a_line_with_everything() {
        let options = parse(
            "mixed --host 127.0.0.1:9142,127.0.0.2 -p 9043 -c 32 -f 1 --rate 10000 -d 2m --warmup 500ms --keys 10k \
             --distribution zipfian:1.2 --read-percent 30 --protocol v4 --lz4 --consistency local-quorum --quiet",
        )
        .expect("good options");
        let servers: Vec<_> = options.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["127.0.0.1:9142", "127.0.0.2:9043"]);
        assert_eq!((options.connections, options.in_flight, options.keys), (32, 1, 10_000));
        assert_eq!(options.distribution, Distribution::Zipfian(1.2));
        assert_eq!(
            (options.duration, options.warmup),
            (Duration::from_secs(120), Duration::from_millis(500))
        );
        assert_eq!((options.version, options.consistency), (Version::V4, Consistency::LocalQuorum));
        assert_eq!((options.rate, options.read_percent), (Some(10_000.0), 30));
    }

    #[test]
    fn each_workload_has_defaults_that_hold() {
        for (name, workload, _) in WorkloadName::ALL {
            let options = parse(name).expect("the defaults are good");
            assert_eq!((options.workload, options.workload.name()), (workload, name));
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (line, what) in [
            ("read --in-flight 40000", "--in-flight"),
            ("read --connections 0", "--connections"),
            ("read --columns 65", "--columns"),
            ("read --distribution gauss", "--distribution"),
            ("read --protocol v2", "--protocol"),
            ("read --consistency most", "--consistency"),
            ("read --keyspace a;b", "--keyspace"),
            ("read --duration 3d", "--duration"),
            ("wide-partition --rows 20k", "--rows"),
            ("sing", "sing"),
        ] {
            let error = parse(line).err().expect(line);
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}

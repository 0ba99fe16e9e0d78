//! `torc cdc`: the changes of a table in one order, as JSON lines or as server-sent events (docs/design/feed.md).
//!
//! Both are clients of any node's CQL port, with the permissions of the user that is named: they read the log and keep no state.

mod change;
mod connection;
mod cql_log;
mod http;
mod position;
mod reader;
mod serve;

use std::io::Write;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use wire::Consistency;

use connection::{Credentials, Target};
use cql_log::CqlLog;
use reader::{Failure, From, Limits, Reader};

/// Bytes of the log's rows that one feed holds.
const HELD_BYTES_MAX: usize = 16 << 20;
/// How long a feed waits when it has shown all changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long no node may have answered before a feed ends.
const OUTAGE_MAX: Duration = Duration::from_secs(120);
/// The pause after an attempt that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The subcommand.
pub fn command() -> Command {
    Command::new("cdc")
        .about("Read the changes of a table (cdc = {'enabled': true}) in one order")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(tail_command())
        .subcommand(serve_command())
}

fn tail_command() -> Command {
    let command = Command::new("tail")
        .about("Print the changes of a table, one JSON object a line")
        .arg(Arg::new("table").value_name("KEYSPACE.TABLE").required(true).help("The table"))
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("PLACE")
                .default_value("now")
                .help("Where to begin: 'now', 'oldest', milliseconds since 1970, or the token of the last change that was read"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .default_value("json")
                .value_parser(["json"])
                .help("Form of the output"),
        )
        .arg(
            Arg::new("until-now")
                .long("until-now")
                .action(ArgAction::SetTrue)
                .help("Exit when all changes are printed that are older than the window"),
        )
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("NUMBER")
                .value_parser(value_parser!(u64).range(1..))
                .help("Exit after so many changes"),
        )
        .arg(
            Arg::new("progress")
                .long("progress")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64).range(1..))
                .help("While nothing changes, print an object with the present token alone at this interval"),
        );
    with_target(command)
        .arg(Arg::new("user").short('u').long("user").value_name("NAME").help("The role to log in as"))
        .arg(
            Arg::new("password-file")
                .long("password-file")
                .value_name("FILE")
                .help("Its password, the first line of a file; else the environment's TORC_PASSWORD"),
        )
}

fn serve_command() -> Command {
    let command = Command::new("serve")
        .about("Serve the changes of tables over HTTP as server-sent events")
        .long_about(
            "GET /cdc/KEYSPACE.TABLE?from=PLACE answers with a stream of events (text/event-stream), whose ids are tokens: a client that \
             comes back with Last-Event-ID resumes behind the last event. User and password of a request (HTTP Basic) are those with which \
             the log is read.",
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS:PORT")
                .default_value("127.0.0.1:9043")
                .value_parser(value_parser!(std::net::SocketAddr))
                .help("Where to listen"),
        )
        .arg(
            Arg::new("allow-remote")
                .long("allow-remote")
                .action(ArgAction::SetTrue)
                .help("Listen on an address that is not loopback; passwords and changes are sent without encryption"),
        )
        .arg(
            Arg::new("host-name")
                .long("host-name")
                .value_name("NAME")
                .action(ArgAction::Append)
                .help("A name by which clients reach this port, beside localhost and addresses"),
        )
        .arg(
            Arg::new("feeds")
                .long("feeds")
                .value_name("NUMBER")
                .default_value("32")
                .value_parser(value_parser!(u64).range(1..=1024))
                .help("Feeds at the same time; a further request is answered with 503"),
        );
    with_target(command)
}

fn with_target(command: Command) -> Command {
    command
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("NAME,…")
                .value_delimiter(',')
                .default_value("127.0.0.1")
                .help("Nodes; the next one is used when one fails"),
        )
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .default_value("9042")
                .value_parser(value_parser!(u16).range(1..))
                .help("Their CQL port"),
        )
        .arg(
            Arg::new("cafile")
                .long("cafile")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Use TLS, with the authorities' certificates of a PEM file"),
        )
        .arg(
            Arg::new("consistency")
                .long("consistency")
                .value_name("LEVEL")
                .default_value("local_quorum")
                .value_parser(["one", "two", "three", "quorum", "local_quorum", "local_one", "all"])
                .help("The level at which the log is read"),
        )
        .arg(
            Arg::new("window")
                .long("window")
                .value_name("SECONDS")
                .default_value("10")
                .value_parser(value_parser!(u64).range(0..=3600))
                .help("How old a change is before it is shown: longer than a write may take"),
        )
}

/// The options that both subcommands have.
#[derive(Clone)]
struct Source {
    target: Target,
    consistency: Consistency,
    limits: Limits,
}

impl Source {
    fn new(arguments: &ArgMatches) -> Result<Self, String> {
        let hosts: Vec<String> =
            arguments.get_many::<String>("host").into_iter().flatten().cloned().collect();
        if hosts.iter().any(String::is_empty) {
            return Err("--host has an empty name".to_owned());
        }
        let tls = arguments.get_one::<PathBuf>("cafile").map(Target::tls).transpose()?;
        let port = *arguments.get_one("port").expect("it has a default");
        let consistency = match arguments.get_one::<String>("consistency").map(String::as_str) {
            Some("one") => Consistency::One,
            Some("two") => Consistency::Two,
            Some("three") => Consistency::Three,
            Some("quorum") => Consistency::Quorum,
            Some("local_one") => Consistency::LocalOne,
            Some("all") => Consistency::All,
            _ => Consistency::LocalQuorum,
        };
        let window = Duration::from_secs(*arguments.get_one("window").expect("it has a default"));
        let limits = Limits { window, held_bytes_max: HELD_BYTES_MAX };
        Ok(Self { target: Target { hosts, port, tls }, consistency, limits })
    }
}

/// Carries a subcommand out.
///
/// # Errors
/// A sentence for the user.
pub fn run(arguments: &ArgMatches) -> Result<(), String> {
    match arguments.subcommand() {
        Some(("tail", arguments)) => tail(arguments),
        Some(("serve", arguments)) => serve::run(arguments),
        _ => unreachable!("clap asks for a known subcommand"),
    }
}

/// Repeats failed attempts for a time, at other nodes, until no node has answered for too long.
struct Retry {
    failing_since: Option<Instant>,
}

impl Retry {
    /// The result of an attempt; none when it is to be repeated, after a pause.
    fn take<T>(&mut self, attempt: Result<T, Failure>) -> Result<Option<T>, String> {
        match attempt {
            Ok(done) => {
                self.failing_since = None;
                Ok(Some(done))
            }
            Err(Failure::Final(message) | Failure::Denied(message) | Failure::NoLogin(message)) => {
                Err(message)
            }
            Err(Failure::Transient(message)) => {
                let now = Instant::now();
                let since = *self.failing_since.get_or_insert(now);
                if now.duration_since(since) > OUTAGE_MAX {
                    return Err(message);
                }
                eprintln!("torc cdc: {message}; another attempt follows");
                sleep(RETRY_INTERVAL);
                Ok(None)
            }
        }
    }
}

fn credentials(arguments: &ArgMatches) -> Result<Option<Credentials>, String> {
    let Some(user) = arguments.get_one::<String>("user") else { return Ok(None) };
    let password = match arguments.get_one::<String>("password-file") {
        Some(file) => {
            let content = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
            content.lines().next().unwrap_or_default().to_owned()
        }
        None => std::env::var("TORC_PASSWORD").map_err(|_| {
            format!("the password of {user} is missing: name a --password-file, or set TORC_PASSWORD")
        })?,
    };
    Ok(Some(Credentials { user: user.clone(), password }))
}

fn tail(arguments: &ArgMatches) -> Result<(), String> {
    let source = Source::new(arguments)?;
    let from: From = arguments.get_one::<String>("from").expect("it has a default").parse()?;
    let table = arguments.get_one::<String>("table").expect("clap asks for it");
    let mut log = CqlLog::new(source.target, credentials(arguments)?, source.consistency, table)?;
    let mut left = arguments.get_one::<u64>("limit").copied().unwrap_or(u64::MAX);
    let progress = arguments.get_one::<u64>("progress").map(|seconds| Duration::from_secs(*seconds));
    let mut retry = Retry { failing_since: None };
    let mut reader = loop {
        if let Some(reader) = retry.take(Reader::open(&mut log, &from, source.limits))? {
            break reader;
        }
    };
    let mut out = std::io::stdout().lock();
    let mut printed = Instant::now();
    while left > 0 {
        let Some(next) = retry.take(reader.next(&mut log))? else { continue };
        let line = match next {
            Some(change) => {
                left -= 1;
                change.json
            }
            None if arguments.get_flag("until-now") => return Ok(()),
            None if progress.is_some_and(|interval| printed.elapsed() >= interval) => {
                serde_json::json!({ "token": reader.token() }).to_string()
            }
            None => {
                sleep(POLL_INTERVAL);
                continue;
            }
        };
        printed = Instant::now();
        // The reader of a pipe may have seen enough.
        if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) {
            return match error.kind() {
                std::io::ErrorKind::BrokenPipe => Ok(()),
                _ => Err(error.to_string()),
            };
        }
    }
    Ok(())
}

//! `torc server`: settings from files, environment and flags, then the node until a stop signal.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use server::{Config, LeftOut, ReadyReport};

use crate::command::apply_flags;

const DEFAULT_FILE: &str = "/etc/torc/torc.yaml";

/// Runs a node with the settings of `torc.yaml`.
///
/// # Errors
/// A sentence for the user when a file cannot be read or has a wrong option; as [`run`].
pub fn server(arguments: &ArgMatches) -> Result<(), String> {
    let mut config = Config::default();
    let file = match arguments.get_one::<String>("config") {
        Some(file) => Some(PathBuf::from(file)),
        None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()),
    };
    let left_out = match &file {
        Some(file) => read_files(&mut config, file)?,
        None => LeftOut::default(),
    };
    apply(&mut config, arguments)?;
    run(config, &left_out, false)
}

/// Reads `torc.yaml`, and the files beside it; returns the lines that have no effect.
fn read_files(config: &mut Config, file: &Path) -> Result<LeftOut, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read the configuration {}: {error}", file.display()))?;
    let in_file = |error: server::ConfigError| format!("{}: {error}", file.display());
    let mut asked = config.clone();
    asked.set_from_yaml(&text).map_err(in_file)?;
    let beside = file.with_file_name(Config::RACKDC_FILE);
    if asked.reads_rackdc() {
        match std::fs::read_to_string(&beside) {
            Ok(text) => config.set_from_rackdc(&text).map_err(|error| error.to_string())?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {}: {error}", beside.display())),
        }
    }
    // The rack and datacenter in torc.yaml go first.
    config.set_from_yaml(&text).map_err(in_file)
}

/// Settings from the environment and the command line.
///
/// # Errors
/// A sentence for the user with the first option that is wrong.
pub fn apply(config: &mut Config, arguments: &ArgMatches) -> Result<(), String> {
    config.set_from_environment(std::env::vars()).map_err(|error| error.to_string())?;
    apply_flags(config, arguments).map_err(|error| error.to_string())
}

/// Resolves the names of seeds to their present addresses. An unknown name is marked as such, unless none is known.
///
/// # Errors
/// A sentence for the user when no seed has an address.
pub fn resolve_seeds(config: &mut Config) -> Result<(), String> {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for seed in config.seed_names() {
        if seed.parse::<IpAddr>().is_ok() || seed.parse::<SocketAddr>().is_ok() || seed.starts_with('[') {
            found.push(seed.to_owned());
            continue;
        }
        let (name, port) = match seed.rsplit_once(':').map(|(name, port)| (name, port.parse::<u16>())) {
            Some((name, Ok(port))) => (name, port),
            _ => (seed, config.storage_port),
        };
        match (name, port).to_socket_addrs() {
            Ok(addresses) => found.extend(addresses.map(|address| address.to_string())),
            Err(error) => unknown.push(format!("'{seed}' ({error})")),
        }
    }
    if found.is_empty() && !unknown.is_empty() {
        return Err(format!("option seeds: none of these has an address: {}", unknown.join(", ")));
    }
    for seed in &unknown {
        tracing::warn!("the seed {seed} has no address");
        // Whether it has a cluster is not known: a node without data must not begin another one.
        let name = seed.split('\'').nth(1).unwrap_or(seed);
        found.push(format!("{}{name}", Config::UNRESOLVED));
    }
    config.seeds = found.join(",");
    Ok(())
}

/// Runs a node until a stop signal. Logs the settings that have no effect. A node for development (`is_dev`) shows how the AWS CLI reaches it.
///
/// # Errors
/// A sentence for the user when the configuration is wrong, a shard cannot start, or the node ends because something
/// failed.
pub fn run(mut config: Config, left_out: &LeftOut, is_dev: bool) -> Result<(), String> {
    let log = crate::log::start(&config.log_level, false)?;
    if !left_out.of_no_use.is_empty() {
        tracing::info!("of the configuration this is of no use here: {}", left_out.of_no_use.join(", "));
    }
    if !left_out.not_built.is_empty() {
        tracing::warn!(
            "of the configuration this is not built yet and has no effect: {}",
            left_out.not_built.join(", ")
        );
    }
    resolve_seeds(&mut config)?;
    config.check().map_err(|error| error.to_string())?;
    config.check_reach().map_err(|error| error.to_string())?;
    if let Some(memory) = rt_uring::available_memory() {
        config.size_by_memory(memory);
    }
    if config.max_open_files == 0 {
        config.max_open_files = rt_uring::open_files_limit().unwrap_or(0);
    }
    let shards = if config.shards == 0 { rt_uring::available_cores() } else { config.shards };
    let machine = rt_uring::Config {
        files: files(&config),
        handle_signals: true,
        blocked_reactor_notify: Some(config.blocked_reactor_notify).filter(|threshold| !threshold.is_zero()),
        disk_speed: crate::disk_speed::of(&config, is_dev)?,
        io_latency_goal: config.io_latency_goal,
        ..rt_uring::Config::default()
    };
    let ready = Arc::new(move |report: &ReadyReport| {
        // The reader of the output may be gone: the node serves without it.
        let _ = writeln!(std::io::stdout(), "{}", ready_line(report));
        if is_dev {
            print_example(report);
        }
    });
    let hooks = server::NodeHooks {
        ready,
        log_level: Some(log.level),
        log_tail: Some(log.tail),
        syslog: Some(crate::syslog::hook()),
        resolve: Some(crate::resolver::hook()),
    };
    let mains = server::mains(config, shards, hooks);
    let results = rt_uring::run(&machine, mains).map_err(|error| error.to_string())?;
    results.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())
}

/// How a node with this configuration reaches its files.
pub fn files(config: &Config) -> rt_uring::FileBackend {
    if config.memory {
        rt_uring::FileBackend::Memory
    } else if config.disable_io_uring {
        rt_uring::FileBackend::Blocking
    } else {
        rt_uring::FileBackend::Auto
    }
}

/// Shows how the AWS CLI reaches a node's DynamoDB API, where it has one. Nobody may read on behind the line before.
pub fn print_example(report: &ReadyReport) {
    if let Some(address) = report.alternator {
        let _ = writeln!(
            std::io::stdout(),
            "with the AWS CLI (any key and secret will do unless clients log in): aws dynamodb list-tables --region us-east-1 --endpoint-url http://{address}"
        );
    }
}

/// The one line that says that clients may come.
fn ready_line(report: &ReadyReport) -> String {
    let mut line = format!(
        "torc is ready after {} ms: CQL on {}, {} shard{}",
        report.start_millis,
        report.cql,
        report.shards,
        if report.shards == 1 { "" } else { "s" }
    );
    let more = [
        ("shard-aware CQL", report.shard_aware),
        ("DynamoDB API", report.alternator),
        ("DynamoDB API with TLS", report.alternator_https),
        ("REST", report.api),
        ("metrics", report.metrics),
    ];
    for (what, address) in more {
        if let Some(address) = address {
            line.push_str(&format!(", {what} on {address}"));
        }
    }
    line
}

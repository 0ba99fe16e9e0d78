//! `torc server` and `torc dev`: settings from file, environment and flags, then the node until it is told to stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use server::{Config, ReadyReport};

use crate::command::apply_flags;

const DEFAULT_FILE: &str = "/etc/torc/torc.yaml";

/// Runs a node with the settings of `torc.yaml`.
pub fn server(arguments: &ArgMatches) -> Result<(), String> {
    let mut config = Config::default();
    let file = match arguments.get_one::<String>("config") {
        Some(file) => Some(PathBuf::from(file)),
        None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()),
    };
    if let Some(file) = &file {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read the configuration {}: {error}", file.display()))?;
        config.set_from_yaml(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    finish(&mut config, arguments)?;
    run(config)
}

/// Runs a node for development.
pub fn dev(arguments: &ArgMatches) -> Result<(), String> {
    let mut config = Config::default();
    let kept = arguments.get_one::<String>("dir").map(PathBuf::from);
    let directory = match &kept {
        Some(directory) => std::path::absolute(directory)
            .map_err(|error| format!("the directory {}: {error}", directory.display()))?,
        None => std::env::temp_dir().join(format!("torc-dev-{}", std::process::id())),
    };
    config.data_file_directories = directory.join("data");
    config.commitlog_segment_size = server::Size::mib(8);
    finish(&mut config, arguments)?;
    // One address tells where everything of a development node is, unless a part is placed apart.
    for (name, address) in [
        ("listen_address", &mut config.listen_address),
        ("api_address", &mut config.api_address),
        ("prometheus_address", &mut config.prometheus_address),
    ] {
        if arguments.get_one::<String>(name).is_none() {
            *address = config.rpc_address;
        }
    }
    let throw_away = (kept.is_none() && !config.memory).then(|| ThrowAway(directory));
    let result = run(config);
    drop(throw_away);
    result
}

/// A directory that is removed at the end.
struct ThrowAway(PathBuf);

impl Drop for ThrowAway {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(directory: &Path) {
    if let Err(error) = std::fs::remove_dir_all(directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        eprintln!("torc: cannot remove the throw-away data {}: {error}", directory.display());
    }
}

fn finish(config: &mut Config, arguments: &ArgMatches) -> Result<(), String> {
    config.set_from_environment(std::env::vars()).map_err(|error| error.to_string())?;
    apply_flags(config, arguments).map_err(|error| error.to_string())?;
    config.check().map_err(|error| error.to_string())
}

fn run(mut config: Config) -> Result<(), String> {
    start_log(&config.log_level)?;
    if let Some(memory) = rt_uring::available_memory() {
        config.size_by_memory(memory);
    }
    let shards = if config.shards == 0 { rt_uring::available_cores() } else { config.shards };
    let files = if config.memory {
        rt_uring::FileBackend::Memory
    } else if config.disable_io_uring {
        rt_uring::FileBackend::Blocking
    } else {
        rt_uring::FileBackend::Auto
    };
    let machine = rt_uring::Config { files, handle_signals: true, ..rt_uring::Config::default() };
    let ready = Arc::new(|report: &ReadyReport| println!("{}", ready_line(report)));
    let mains = server::mains(config, shards, ready);
    let results = rt_uring::run(&machine, mains).map_err(|error| error.to_string())?;
    results.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())
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
    let more = [("shard-aware CQL", report.shard_aware), ("REST", report.api), ("metrics", report.metrics)];
    for (what, address) in more {
        if let Some(address) = address {
            line.push_str(&format!(", {what} on {address}"));
        }
    }
    line
}

fn start_log(level: &str) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(level)
        .map_err(|error| format!("option log_level: '{level}' is not valid: {error}"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(true).init();
    Ok(())
}

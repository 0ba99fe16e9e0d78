//! `torc dev`: a node, or a whole cluster in one process, for development and tests.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use server::Config;

use crate::{local_cluster, node};

/// The port of the DynamoDB API: that of DynamoDB Local.
const ALTERNATOR_PORT: u16 = 8000;
/// Short: a user of a time to live in development wants to see its end.
const ALTERNATOR_TTL_PERIOD: Duration = Duration::from_secs(10);
/// Short, too: the nodes share a clock, and are near to each other.
const ALTERNATOR_STREAMS_TIME_WINDOW: Duration = Duration::from_secs(1);

/// Runs a node for development, or several.
///
/// # Errors
/// A sentence for the user, as [`node::run`] and [`local_cluster::run`].
pub fn dev(arguments: &ArgMatches) -> Result<(), String> {
    let mut config = Config::default();
    let kept = arguments.get_one::<String>("dir").map(PathBuf::from);
    let directory = match &kept {
        Some(directory) => std::path::absolute(directory)
            .map_err(|error| format!("the directory {}: {error}", directory.display()))?,
        None => std::env::temp_dir().join(format!("torc-dev-{}", std::process::id())),
    };
    config.data_file_directories = directory.join("data");
    config.alternator_port = ALTERNATOR_PORT;
    config.alternator_ttl_period = ALTERNATOR_TTL_PERIOD;
    config.alternator_streams_time_window = ALTERNATOR_STREAMS_TIME_WINDOW;
    // A client that can reach a node for development may do anything with it already.
    config.user_defined_functions_enabled = true;
    node::apply(&mut config, arguments)?;
    if !config.asks_nobody() {
        // A node that authenticates CQL clients authenticates others, too.
        config.alternator_enforce_authorization = true;
    }
    place(&mut config, arguments);
    let nodes = *arguments.get_one::<u16>("nodes").expect("it has a default");
    let mut configs = if nodes == 1 { vec![config] } else { several(&config, &directory, nodes, arguments)? };
    if arguments.get_one::<String>("alternator_port").is_none() {
        configs.iter_mut().for_each(leave_out_taken_port);
    }
    let throw_away = (kept.is_none() && !configs[0].memory).then(|| ThrowAway(directory));
    let result = match <[Config; 1]>::try_from(configs) {
        Ok([config]) => node::run(config, &server::LeftOut::default(), true),
        Err(configs) => local_cluster::run(configs),
    };
    drop(throw_away);
    result
}

/// Leaves the DynamoDB API out where another program has its port: nobody has asked for it, and the node is of use without it.
fn leave_out_taken_port(config: &mut Config) {
    let address = (config.alternator_address.unwrap_or(config.rpc_address), config.alternator_port);
    if let Err(error) = TcpListener::bind(address)
        && error.kind() == ErrorKind::AddrInUse
    {
        let (address, port) = address;
        eprintln!(
            "warning: another program has port {port} of {address}, so this node has no DynamoDB API; \
             --alternator_port gives it another port"
        );
        config.alternator_port = 0;
    }
}

/// One address is that of all ports of a development node, unless one is set apart.
fn place(config: &mut Config, arguments: &ArgMatches) {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for (name, address) in [
        ("listen_address", &mut config.listen_address),
        ("api_address", &mut config.api_address),
        ("prometheus_address", &mut config.prometheus_address),
    ] {
        if arguments.get_one::<String>(name).is_none() {
            *address = config.rpc_address;
        }
    }
    // Administration and metrics stay on the machine where everybody beyond it would be served.
    if config.check_reach().is_err() {
        for (name, address) in
            [("api_address", &mut config.api_address), ("prometheus_address", &mut config.prometheus_address)]
        {
            if arguments.get_one::<String>(name).is_none() {
                *address = loopback;
            }
        }
    }
    // A node for everybody to try is found at the loopback address.
    if config.listen_address.is_unspecified() {
        config.listen_address = loopback;
    }
    if config.rpc_address.is_unspecified() && config.broadcast_rpc_address.is_none() {
        config.broadcast_rpc_address = Some(loopback);
    }
}

/// The configurations of a cluster's nodes: each has the next address and a directory of its own; the first is the seed.
fn several(
    config: &Config,
    directory: &Path,
    nodes: u16,
    arguments: &ArgMatches,
) -> Result<Vec<Config>, String> {
    for name in ["data_file_directories", "commitlog_directory", "hints_directory", "initial_token"] {
        if arguments.get_one::<String>(name).is_some() {
            return Err(format!("with --nodes each node has its own {name}; leave --{name} out"));
        }
    }
    if config.broadcast_address.is_some() || config.broadcast_rpc_address.is_some() {
        return Err(
            "with --nodes each node has its own address; give the first one with --address".to_owned()
        );
    }
    let seeds =
        if config.seeds.is_empty() { config.internode_address().to_string() } else { config.seeds.clone() };
    let shards = (rt_uring::available_cores() / nodes).max(1);
    (0..nodes)
        .map(|at| {
            let shifted = |address: IpAddr| shift(address, at);
            let mut config = Config {
                seeds: seeds.clone(),
                rpc_address: shifted(config.rpc_address)?,
                listen_address: shifted(config.listen_address)?,
                api_address: shifted(config.api_address)?,
                prometheus_address: shifted(config.prometheus_address)?,
                alternator_address: config.alternator_address.map(shifted).transpose()?,
                data_file_directories: directory.join(format!("node{}", at + 1)).join("data"),
                ..config.clone()
            };
            if config.shards == 0 {
                config.shards = shards;
            }
            if let Some(memory) = rt_uring::available_memory() {
                config.size_by_memory(memory / u64::from(nodes));
            }
            Ok(config)
        })
        .collect()
}

/// The address so many places further.
fn shift(address: IpAddr, by: u16) -> Result<IpAddr, String> {
    match address {
        IpAddr::V4(address) => {
            let shifted =
                u32::from(address).checked_add(u32::from(by)).map(|bits| Ipv4Addr::from(bits).into());
            shifted.ok_or_else(|| format!("there is no address {by} places after {address}"))
        }
        IpAddr::V6(_) if by == 0 => Ok(address),
        IpAddr::V6(_) => {
            Err("with --nodes the addresses have to be of IPv4: there is one IPv6 loopback address"
                .to_owned())
        }
    }
}

/// A directory that is removed at the end.
struct ThrowAway(PathBuf);

impl Drop for ThrowAway {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("torc: cannot remove the throw-away data {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_each_other() {
        let first: IpAddr = "127.0.0.255".parse().unwrap();
        assert_eq!(shift(first, 0).unwrap().to_string(), "127.0.0.255");
        assert_eq!(shift(first, 2).unwrap().to_string(), "127.0.1.1");
        assert!(shift("255.255.255.255".parse().unwrap(), 1).is_err());
        assert!(shift("::1".parse().unwrap(), 1).is_err());
    }
}

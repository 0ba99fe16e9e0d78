//! The one binary: server, throw-away node for development, tools.

mod command;
mod dev;
mod disk_speed;
mod feed;
mod local_cluster;
mod log;
mod node;
mod nodetool;
mod raft_log;
mod resolver;
mod sim;
mod sstable;
mod syslog;

use std::process::ExitCode;

/// Measured beside glibc's and mimalloc: docs/design/runtime.md, *Allocator*.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let matches = command::command().get_matches_from(nodetool::spelled_out(std::env::args_os()));
    let result = match matches.subcommand() {
        Some(("server", arguments)) => node::server(arguments),
        Some(("dev", arguments)) => dev::dev(arguments),
        Some(("cdc", arguments)) => feed::run(arguments),
        Some(("bench", arguments)) => bench::run(arguments),
        Some(("nodetool", arguments)) => nodetool::run(arguments),
        Some(("sim", arguments)) => sim::run(arguments),
        Some(("raft-log", arguments)) => raft_log::run(arguments),
        Some(("sstable", arguments)) => sstable::run(arguments),
        _ => unreachable!("clap asks for a known subcommand"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("torc: {message}");
            ExitCode::FAILURE
        }
    }
}

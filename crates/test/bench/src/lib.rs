//! Measurements: a load generator for any CQL server, and the statement path of Torc in process.
//!
//! `torc bench load` drives a server over the wire ([`load`]); the same client measures Torc and other databases,
//! so that a comparison compares servers. `torc bench simple-query` runs prepared statements without sockets
//! ([`simple_query`]), the source of instruction counts. This crate is a tool: unlike the database it
//! may read clocks, `/proc` and the command line.

pub mod allocations;
pub mod load;
pub mod simple_query;

use clap::{ArgMatches, Command};

/// The command line of `torc bench`.
pub fn command() -> Command {
    Command::new("bench")
        .about("Measure: a load generator for any CQL server, and the statement path in process")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(load::command())
        .subcommand(simple_query::command())
}

/// Runs the arguments that [`command`] has parsed.
///
/// # Errors
/// A sentence for the user, as the subcommand's.
pub fn run(matches: &ArgMatches) -> Result<(), String> {
    match matches.subcommand() {
        Some(("load", matches)) => load::run(matches),
        Some(("simple-query", matches)) => simple_query::run(matches),
        _ => Err("nothing to do: see `torc bench --help`".to_owned()),
    }
}

//! placeholder
use clap::{ArgMatches, Command};
/// Placeholder
pub fn command() -> Command { Command::new("simple-query") }
/// Placeholder
pub fn run(_: &ArgMatches) -> Result<(), String> { Err("x".to_owned()) }

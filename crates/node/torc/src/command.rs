//! The command line: subcommands, and every option of the configuration as a flag.

use clap::{Arg, ArgAction, ArgMatches, Command};
use server::Config;

/// The whole command line.
pub fn command() -> Command {
    Command::new("torc")
        .about("Torc: a wide-column database with Cassandra's interfaces")
        .long_about(
            "Torc is a distributed wide-column database. Any Cassandra driver or cqlsh can talk to it.\n\n\
             To try it:  torc dev            then, in another terminal:  cqlsh 127.0.0.1",
        )
        .version(server::VERSION)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(bench::command())
        .subcommand(crate::feed::command())
        .subcommand(crate::nodetool::command())
        .subcommand(crate::raft_log::command())
        .subcommand(crate::sim::command())
        .subcommand(crate::sstable::command())
        .subcommand(with_options(
            Command::new("server").about("Run a node with the settings of torc.yaml").arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .help("Settings; /etc/torc/torc.yaml if it is there and this is not given"),
            ),
        ))
        .subcommand(with_options(
            Command::new("dev")
                .about("Run a node for development and tests, with nothing to set up")
                .long_about(
                    "Runs a node on 127.0.0.1 with the standard ports and sane defaults. Without --dir its data is \
                     dropped at the end; with --memory it never touches the disk.\n\n\
                     With --nodes 3 it runs three, on 127.0.0.1, 127.0.0.2 and 127.0.0.3.",
                )
                .arg(
                    Arg::new("dir")
                        .long("dir")
                        .value_name("DIR")
                        .help("Keep the data in this directory, and find it again at the next start"),
                )
                .arg(
                    Arg::new("nodes")
                        .long("nodes")
                        .value_name("NUMBER")
                        .value_parser(clap::value_parser!(u16).range(1..=NODES_MAX))
                        .default_value("1")
                        .help("Nodes in this process, on --address and the addresses after it"),
                ),
        ))
}

/// Nodes of one process: each has its own threads and ports.
const NODES_MAX: i64 = 64;

/// Options that say yes or no and may be given without a value.
const SWITCHES: &[&str] =
    &["memory", "disable_io_uring", "commitlog_ignore_errors", "new_cluster", "allow_rolled_back"];

fn with_options(command: Command) -> Command {
    let hidden = |name: &str| !matches!(name, "shards" | "memory" | "rpc_address" | "seeds" | "log_level");
    Config::OPTIONS.iter().fold(command, |command, option| {
        let arg = Arg::new(option.name)
            .long(option.name)
            .help(option.help)
            .value_name("VALUE")
            .help_heading("Configuration (also in torc.yaml, and as TORC_NAME in the environment)")
            .hide_short_help(hidden(option.name))
            .action(ArgAction::Set)
            .aliases(option.aliases.iter().map(|(alias, _)| *alias).collect::<Vec<_>>());
        let dashed: &'static str = Box::leak(option.name.replace('_', "-").into_boxed_str());
        let arg = arg.alias(dashed);
        let arg = if option.name == "rpc_address" { arg.visible_alias("address") } else { arg };
        command.arg(if SWITCHES.contains(&option.name) {
            arg.num_args(0..=1).default_missing_value("true")
        } else {
            arg
        })
    })
}

/// Sets the options that were given as flags.
///
/// # Errors
/// As [`Config::set`], with the first flag that is wrong.
pub fn apply_flags(config: &mut Config, arguments: &ArgMatches) -> Result<(), server::ConfigError> {
    for option in Config::OPTIONS {
        if let Some(value) = arguments.get_one::<String>(option.name) {
            config.set(option.name, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn flags_have_the_names_of_the_configuration() {
        let matches = command().get_matches_from([
            "torc",
            "dev",
            "--address",
            "127.0.0.3",
            "--shards",
            "2",
            "--memory",
            "--commitlog_sync",
            "batch",
        ]);
        let (_, arguments) = matches.subcommand().unwrap();
        let mut config = Config::default();
        apply_flags(&mut config, arguments).unwrap();
        assert_eq!(config.rpc_address.to_string(), "127.0.0.3");
        assert_eq!(config.shards, 2);
        assert!(config.memory);
        assert_eq!(config.commitlog_sync, "batch");
    }
}

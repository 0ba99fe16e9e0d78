//! `torc raft-log`: an operator's actions on the cluster's log of a stopped node (docs/operations/cluster-log.md).

use std::path::PathBuf;

use ::cluster::group::{ShownEntry, StoppedLog};
use clap::{Arg, ArgAction, ArgMatches, Command};
use rt::{LocalBoxFuture, Rt, ShardMain};
use topology::HostId;

/// The directory of a node in its data directory.
const NODE_DIRECTORY: &str = ".torc";

/// The subcommand.
pub fn command() -> Command {
    let data = || {
        Arg::new("data")
            .long("data")
            .value_name("DIR")
            .required(true)
            .help("The stopped node's data_file_directories")
    };
    let number = |name: &'static str, help: &'static str| {
        let parser = clap::value_parser!(u64);
        Arg::new(name).long(name).value_name("NUMBER").required(true).value_parser(parser).help(help)
    };
    Command::new("raft-log")
        .about("Look at the cluster's log of a stopped node, and repair it when the cluster cannot")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("show").about("Print the log's content").arg(data()))
        .subcommand(
            Command::new("skip")
                .about("Take out an entry that this version cannot read; to be done on every node before one starts")
                .arg(data())
                .arg(number("index", "The entry's index, as the error says"))
                .arg(number("term", "The entry's term, as the error says")),
        )
        .subcommand(
            Command::new("force-majority")
                .about("Make this node the only voter, when a majority of the voters is lost for good")
                .arg(data())
                .arg(
                    Arg::new("lost")
                        .long("lost")
                        .value_name("HOST-ID")
                        .num_args(1..)
                        .value_delimiter(',')
                        .required(true)
                        .help("The lost nodes, which never come back with their old directories"),
                )
                .arg(
                    Arg::new("yes")
                        .long("lost-for-good")
                        .action(ArgAction::SetTrue)
                        .required(true)
                        .help("Says that they are, and that this node has the greatest last entry of those that are left"),
                ),
        )
}

/// Carries the subcommand out.
///
/// # Errors
/// A sentence for the user when the log cannot be opened or written.
pub fn run(arguments: &ArgMatches) -> Result<(), String> {
    let (verb, arguments) = arguments.subcommand().expect("clap asks for a subcommand");
    let (verb, arguments) = (verb.to_owned(), arguments.clone());
    let main: ShardMain<Result<(), String>> = Box::new(move |rt: Rt| -> LocalBoxFuture<Result<(), String>> {
        Box::pin(async move { carry_out(&rt, &verb, &arguments).await })
    });
    let results =
        rt_uring::run(&rt_uring::Config::default(), vec![main]).map_err(|error| error.to_string())?;
    results.into_iter().collect()
}

async fn carry_out(rt: &Rt, verb: &str, arguments: &ArgMatches) -> Result<(), String> {
    let data = PathBuf::from(arguments.get_one::<String>("data").expect("clap asks for it"));
    let data = std::path::absolute(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let opened = StoppedLog::open(rt, &data.join(NODE_DIRECTORY)).await;
    let mut log = opened.map_err(|error| error.to_string())?;
    let number = |name| *arguments.get_one::<u64>(name).expect("clap asks for it");
    match verb {
        "show" => show(&log),
        "skip" => {
            let (index, term) = (number("index"), number("term"));
            match log.skip(index, term).await.map_err(|error| error.to_string())? {
                Some(path) => {
                    println!("entry {index} holds nothing now; its bytes are in {}", path.display())
                }
                None => println!("entry {index} holds nothing already"),
            }
            Ok(())
        }
        _ => {
            let lost = arguments.get_many::<String>("lost").into_iter().flatten();
            let lost: Vec<HostId> = lost.map(|text| host(text)).collect::<Result<_, _>>()?;
            let base = log.force_majority(&lost).await.map_err(|error| error.to_string())?;
            println!(
                "this node is the only voter, and continues after entry {base}; start it, then the others that are left, then \
                 remove the lost ones with nodetool removenode"
            );
            Ok(())
        }
    }
}

fn host(text: &str) -> Result<HostId, String> {
    ::cluster::parse_id(text).map(|id| HostId(id.0)).ok_or_else(|| format!("'{text}' is no host id"))
}

fn show(log: &StoppedLog) -> Result<(), String> {
    let shown = log.show().map_err(|error| error.to_string())?;
    let (term, index) = shown.last;
    println!("last entry: term {term}, index {index}");
    println!("decided up to: {}", shown.commit);
    println!("snapshot up to: {}", shown.snapshot);
    println!("highest term seen: {}", shown.term);
    let (voters, own) = (&shown.membership.voters, shown.number);
    for (id, member) in &shown.members {
        let votes = if voters.contains(&member.number) { "votes" } else { "follows" };
        let this = if member.number == own { ", this node" } else { "" };
        let (id, address) = (::cluster::state::host_text(&id.0), member.info.internode);
        println!("node {}: {id} at {address}, {}, {votes}{this}", member.number, member.status);
    }
    for ShownEntry { index, term, what, unreadable } in &shown.entries {
        match unreadable {
            Some(error) => println!("entry {index} (term {term}, {what}) CANNOT BE READ: {error}"),
            None => println!("entry {index} (term {term}): {what}"),
        }
    }
    Ok(())
}

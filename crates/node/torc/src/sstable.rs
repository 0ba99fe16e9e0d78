//! `torc sstable`: the content of SSTable files, and their verification. Works on files alone, of Torc or Cassandra.

use std::io::Write;
use std::path::PathBuf;

use ::sstable::dump::DumpOptions;
use ::sstable::{Component, Descriptor};
use clap::{Arg, ArgAction, ArgMatches, Command};
use rt::{LocalBoxFuture, Rt, ShardMain};

/// The subcommand.
pub fn command() -> Command {
    let files = || {
        Arg::new("files")
            .value_name("FILE")
            .num_args(1..)
            .required(true)
            .help("A file of each SSTable, such as nb-1-big-Data.db")
    };
    Command::new("sstable")
        .about("Look into SSTable files, of Torc or of Cassandra")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("dump").about("Print the content as JSON, as sstabledump does").arg(files()).arg(
                Arg::new("keys")
                    .short('e')
                    .long("keys")
                    .action(ArgAction::SetTrue)
                    .help("Print only partition keys"),
            ),
        )
        .subcommand(
            Command::new("verify")
                .about("Check checksums, order, and the files against each other")
                .arg(files()),
        )
        .subcommand(Command::new("metadata").about("Print the Statistics file").arg(files()))
}

/// Carries the subcommand out.
///
/// # Errors
/// A sentence for the user with the first file that is none of an SSTable, is damaged, or cannot be read.
pub fn run(arguments: &ArgMatches) -> Result<(), String> {
    let (verb, arguments) = arguments.subcommand().expect("clap asks for a subcommand");
    let verb = verb.to_owned();
    let keys_only = verb == "dump" && arguments.get_flag("keys");
    let files: Vec<PathBuf> =
        arguments.get_many::<String>("files").into_iter().flatten().map(PathBuf::from).collect();
    let main: ShardMain<Result<(), String>> = Box::new(move |rt: Rt| -> LocalBoxFuture<Result<(), String>> {
        Box::pin(async move {
            for file in &files {
                let absolute =
                    std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
                let (descriptor, _) = Descriptor::parse(&absolute).ok_or_else(|| {
                    format!("{} is no file of an SSTable; name one like nb-1-big-Data.db", file.display())
                })?;
                one(&rt, &verb, keys_only, &descriptor).await?;
            }
            Ok(())
        })
    });
    let results =
        rt_uring::run(&rt_uring::Config::default(), vec![main]).map_err(|error| error.to_string())?;
    results.into_iter().collect()
}

async fn one(rt: &Rt, verb: &str, keys_only: bool, descriptor: &Descriptor) -> Result<(), String> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut failed = None;
    let mut print = |text: &str| {
        if let Err(error) = out.write_all(text.as_bytes()) {
            failed = Some(error.to_string());
        }
    };
    match verb {
        "dump" => {
            let options = DumpOptions { keys_only, now: now_seconds(rt), ..DumpOptions::default() };
            let done = ::sstable::dump::dump(rt, descriptor, &options, &mut print).await;
            print("\n");
            done.map_err(|error| error.to_string())?;
        }
        "verify" => {
            let found = ::sstable::verify::verify(rt, descriptor).await.map_err(|error| error.to_string())?;
            let (partitions, rows, bytes) = (found.partitions, found.rows, found.bytes);
            let name = descriptor.path(Component::Data);
            print(&format!("{}: {partitions} partitions, {rows} rows, {bytes} bytes\n", name.display()));
            if !found.has_checksums {
                print(
                    "its index, summary and filter have no checksums (Torc.db); a start of a node adds them\n",
                );
            }
            if !found.problems.is_empty() {
                let problems: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
                return Err(format!("{} is damaged:\n{}", name.display(), problems.join("\n")));
            }
        }
        _ => {
            let described = ::sstable::dump::describe(rt, descriptor, now_seconds(rt), 0).await;
            print(&described.map_err(|error| error.to_string())?);
        }
    }
    out.flush().map_err(|error| error.to_string())?;
    failed.map_or(Ok(()), Err)
}

fn now_seconds(rt: &Rt) -> u32 {
    u32::try_from(rt.wall_micros() / 1_000_000).unwrap_or(u32::MAX)
}

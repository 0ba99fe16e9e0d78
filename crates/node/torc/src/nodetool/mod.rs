//! `torc nodetool`: Cassandra's verbs, names and layout, over a node's REST port.
//!
//! A verb requests a document (the output of `--format json`) and shows it as text; the second half is pure, and golden texts
//! compare it with Cassandra's output.

mod api;
mod audit;
mod autocompaction;
mod cdc;
mod checks;
mod cidr;
mod clients;
mod cluster;
mod compactions;
mod distributions;
mod grid;
mod guardrails;
mod hints;
mod load;
mod logging;
mod node;
mod refused;
mod repair;
mod ring;
mod samples;
mod settings;
mod snapshots;
mod spelling;
mod sstable_info;
mod sstables;
mod tables;
mod topology;
mod views;

use std::io::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use api::{Api, Failure};

pub use spelling::spelled_out;

/// A verb.
struct Verb {
    name: &'static str,
    about: &'static str,
    /// Its own options and arguments.
    arguments: fn() -> Vec<Arg>,
    /// Its request.
    ask: fn(&Api, &ArgMatches) -> Result<Value, Failure>,
    /// The same as text.
    show: fn(&Value) -> String,
}

/// All verbs, by name.
const VERBS: &[Verb] = &[
    topology::ABORTDECOMMISSION,
    topology::ABORTREBUILD,
    topology::ASSASSINATE,
    topology::BOOTSTRAP,
    topology::CHECKANDREPAIRCDCSTREAMS,
    cidr::CIDRFILTERINGSTATS,
    topology::CLEANUP,
    snapshots::CLEARSNAPSHOT,
    clients::CLIENTSTATS,
    tables::COMPACT,
    compactions::COMPACTIONHISTORY,
    compactions::COMPACTIONSTATS,
    distributions::DATAPATHS,
    topology::DECOMMISSION,
    cluster::DESCRIBECLUSTER,
    ring::DESCRIBERING,
    audit::DISABLEAUDITLOG,
    autocompaction::DISABLEAUTOCOMPACTION,
    settings::DISABLEBACKUP,
    node::DISABLEBINARY,
    settings::DISABLEHANDOFF,
    node::DRAIN,
    cidr::DROPCIDRGROUP,
    audit::ENABLEAUDITLOG,
    autocompaction::ENABLEAUTOCOMPACTION,
    settings::ENABLEBACKUP,
    node::ENABLEBINARY,
    settings::ENABLEHANDOFF,
    cluster::FAILUREDETECTOR,
    tables::FLUSH,
    sstables::GARBAGECOLLECT,
    audit::GETAUDITLOG,
    cidr::GETCIDRGROUPSOFIP,
    autocompaction::GETCOMPACTIONTHRESHOLD,
    settings::GETCOMPACTIONTHROUGHPUT,
    settings::GETCONCURRENTCOMPACTORS,
    settings::GETDEFAULTRF,
    ring::GETENDPOINTS,
    guardrails::GETGUARDRAILSCONFIG,
    logging::GETLOGGINGLEVELS,
    settings::GETMAXHINTWINDOW,
    settings::GETSEEDS,
    distributions::GETSSTABLES,
    settings::GETSTREAMTHROUGHPUT,
    settings::GETTIMEOUT,
    node::GETTRACEPROBABILITY,
    cluster::GOSSIPINFO,
    sstables::IMPORT,
    node::INFO,
    topology::JOIN,
    cidr::LISTCIDRGROUPS,
    hints::LISTPENDINGHINTS,
    snapshots::LISTSNAPSHOTS,
    load::NETSTATS,
    hints::PAUSEHANDOFF,
    load::PROXYHISTOGRAMS,
    distributions::RANGEKEYSAMPLE,
    topology::REBUILD,
    tables::REBUILD_INDEX,
    sstables::REFRESH,
    topology::REMOVENODE,
    repair::REPAIR,
    repair::REPAIR_ADMIN,
    hints::RESUMEHANDOFF,
    ring::RING,
    sstables::SCRUB,
    settings::SETCOMPACTIONTHROUGHPUT,
    settings::SETCONCURRENTCOMPACTORS,
    settings::SETDEFAULTRF,
    guardrails::SETGUARDRAILSCONFIG,
    settings::SETHINTEDHANDOFFTHROTTLEKB,
    logging::SETLOGGINGLEVEL,
    settings::SETMAXHINTWINDOW,
    settings::SETSTREAMTHROUGHPUT,
    settings::SETTIMEOUT,
    node::SETTRACEPROBABILITY,
    snapshots::SNAPSHOT,
    sstable_info::SSTABLEINFO,
    ring::STATUS,
    autocompaction::STATUSAUTOCOMPACTION,
    settings::STATUSBACKUP,
    node::STATUSBINARY,
    node::STATUSGOSSIP,
    settings::STATUSHANDOFF,
    sstables::STOP,
    node::STOPDAEMON,
    distributions::TABLEHISTOGRAMS,
    tables::TABLESTATS,
    samples::TOPPARTITIONS,
    load::TPSTATS,
    hints::TRUNCATEHINTS,
    cidr::UPDATECIDRGROUP,
    sstables::UPGRADESSTABLES,
    sstables::VERIFY,
    cdc::VERIFYCDC,
    sstables::VERIFYINDEX,
    views::VERIFYVIEW,
    node::VERSION,
    views::VIEWBUILDSTATUS,
];

/// Older names of verbs.
const OTHER_NAMES: &[(&str, &str)] = &[("cfhistograms", "tablehistograms"), ("cfstats", "tablestats")];

/// The subcommand.
pub fn command() -> Command {
    let file = |name: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(clap::value_parser!(PathBuf))
    };
    let common = [
        Arg::new("username")
            .short('u')
            .long("username")
            .help("The role to log in as, where the port asks for one"),
        Arg::new("password").long("password").help("Its password (-pw)"),
        file("password-file")
            .help("A file with lines of a role and its password, with blanks between (-pwf)"),
        file("cafile").help("Use TLS, with the authorities' certificates of a PEM file"),
        file("certfile").help("The certificate to show, a PEM file"),
        file("keyfile").help("Its private key, a PEM file"),
        Arg::new("print-port")
            .long("print-port")
            .hide(true)
            .action(ArgAction::SetTrue)
            .help("Understood, and not used"),
        Arg::new("host")
            .short('h')
            .long("host")
            .default_value("127.0.0.1")
            .help("The node's address or name"),
        Arg::new("port")
            .short('p')
            .long("port")
            .default_value("10000")
            .value_parser(clap::value_parser!(u16).range(1..))
            .help("Its REST port (api_port)"),
        Arg::new("format")
            .short('F')
            .long("format")
            .default_value("text")
            .value_parser(["text", "json", "yaml"])
            .help("How the answer is printed"),
        // `-h` names the host, as it does in Cassandra's tool.
        Arg::new("help").long("help").action(ArgAction::Help).help("Print help"),
    ];
    let mut nodetool = Command::new("nodetool")
        .about("Ask a node about itself and its cluster, or have it do something")
        .disable_help_flag(true)
        .subcommand_required(true)
        .arg_required_else_help(true);
    nodetool = common.into_iter().fold(nodetool, |command, arg| command.arg(arg.global(true)));
    let nodetool = refused::commands().fold(nodetool, Command::subcommand);
    VERBS.iter().fold(nodetool, |command, verb| {
        let verb = Command::new(verb.name).about(verb.about).args((verb.arguments)()).disable_help_flag(true);
        let other = OTHER_NAMES.iter().find(|(_, name)| *name == verb.get_name());
        command.subcommand(match other {
            Some((other, _)) => verb.visible_alias(*other),
            None => verb,
        })
    })
}

/// Runs a verb and prints its answer.
///
/// # Errors
/// A sentence for the user when the node cannot be reached or refuses, or an argument is wrong.
pub fn run(arguments: &ArgMatches) -> Result<(), String> {
    let (name, arguments) = arguments.subcommand().expect("clap asks for a verb");
    if let Some(reason) = refused::reason(name) {
        return Err(reason);
    }
    let verb = VERBS.iter().find(|verb| verb.name == name).expect("clap knows the verbs");
    let text = |name: &str| arguments.get_one::<String>(name).expect("it has a default");
    let mut api = Api::new(text("host"), *arguments.get_one::<u16>("port").expect("it has a default"));
    secure(&mut api, arguments)?;
    let answer = (verb.ask)(&api, arguments)?;
    let out = match text("format").as_str() {
        "json" => serde_json::to_string_pretty(&answer).expect("JSON can be printed") + "\n",
        "yaml" => serde_yaml_ng::to_string(&answer).expect("a document of JSON is one of YAML"),
        _ => (verb.show)(&answer),
    };
    put(&out);
    let is_unfinished = name == views::VIEWBUILDSTATUS.name && answer["finished"] == false;
    let differs = match name {
        _ if [sstables::VERIFY.name, sstables::VERIFYINDEX.name].contains(&name) => {
            !sstables::is_sound(&answer)
        }
        _ if name == views::VERIFYVIEW.name => !views::is_verified(&answer),
        _ if name == cdc::VERIFYCDC.name => !cdc::is_verified(&answer),
        _ => false,
    };
    if is_unfinished || differs {
        // As Cassandra's tool, so that scripts can wait for a view, and tell derived data that differs, or damage.
        std::process::exit(1);
    }
    Ok(())
}

/// Has requests use TLS and log in, as the arguments say.
fn secure(api: &mut Api, arguments: &ArgMatches) -> Result<(), String> {
    let path = |name: &str| arguments.get_one::<PathBuf>(name).map(PathBuf::as_path);
    // Not by clap, which looks at the options before and behind the verb apart.
    if path("certfile").is_some() != path("keyfile").is_some()
        || (path("certfile").is_some() && path("cafile").is_none())
    {
        return Err("--certfile and --keyfile go together, with --cafile".to_owned());
    }
    if let Some(authorities) = path("cafile") {
        api.encrypt(authorities, path("certfile").zip(path("keyfile")))?;
    }
    let Some(user) = arguments.get_one::<String>("username") else {
        let has_password = path("password-file").is_some() || arguments.contains_id("password");
        return if has_password {
            Err("a password (-pw, -pwf) needs a user name (-u)".to_owned())
        } else {
            Ok(())
        };
    };
    let password = match (path("password-file"), arguments.get_one::<String>("password")) {
        (Some(file), _) => {
            let lines =
                std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            password_of(&lines, user)
                .ok_or_else(|| format!("{} has no password of {user}", file.display()))?
        }
        (None, Some(password)) => password.clone(),
        (None, None) => return Err("-u needs a password: -pw PASSWORD, or -pwf FILE".to_owned()),
    };
    api.log_in(user, &password)
}

/// The password of a user in a file of Cassandra's tool.
fn password_of(lines: &str, user: &str) -> Option<String> {
    let words = lines.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let mut found = words.filter(|(name, _)| *name == user);
    found.next().map(|(_, password)| password.trim().to_owned())
}

/// Prints a text. A reader that closed the pipe wants no more.
fn put(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Arguments without a name: keyspaces, tables.
fn words(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).help(help).num_args(0..)
}

/// The values of such arguments.
fn given<'a>(arguments: &'a ArgMatches, name: &str) -> Vec<&'a str> {
    arguments.get_many::<String>(name).into_iter().flatten().map(String::as_str).collect()
}

/// The verb has nothing more to say.
fn silent(_: &Value) -> String {
    String::new()
}

/// Milliseconds since the epoch as Cassandra's tool writes them, in UTC: `2026-11-26 15:01:47,123`.
fn utc(millis: i64) -> String {
    let text = types::CqlType::Timestamp.to_text(&millis.to_be_bytes());
    text.trim_end_matches('Z').replace('T', " ").replace('.', ",")
}

/// A list of texts.
fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// A list of `{key, value}` in its order.
fn pairs(value: &Value) -> Vec<(String, Value)> {
    let pair = |pair: &Value| Some((pair["key"].as_str()?.to_owned(), pair["value"].clone()));
    value.as_array().into_iter().flatten().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_in_order() {
        assert!(VERBS.is_sorted_by_key(|verb| verb.name));
        command().debug_assert();
    }

    /// Every document of `testdata/nodetool` and the text that it is shown as. Where the name says `cassandra`, the document
    /// holds the answers of two nodes of Cassandra 5.0.6, and the text is the output of its nodetool then, byte for byte; the other
    /// texts keep to its layout, with Torc's omissions and additions.
    #[test]
    fn texts_are_cassandras() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/nodetool");
        let mut shown = Vec::new();
        let mut wrong = Vec::new();
        let mut documents: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        documents.sort();
        for document in documents.iter().filter(|path| path.extension().is_some_and(|name| name == "json")) {
            let stem = document.file_stem().unwrap().to_str().unwrap();
            let name = stem.split('-').next().unwrap();
            let verb =
                VERBS.iter().find(|verb| verb.name == name).unwrap_or_else(|| panic!("no verb {name}"));
            let value = serde_json::from_slice(&std::fs::read(document).unwrap()).expect("JSON");
            let text = (verb.show)(&value);
            let golden = document.with_extension("txt");
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&golden, &text).unwrap();
            } else if std::fs::read_to_string(&golden).unwrap_or_default() != text {
                wrong.push(format!("{stem} is shown as\n{text}"));
            }
            shown.push(verb.name);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let silent = [
            "abortdecommission",
            "abortrebuild",
            "assassinate",
            "checkandrepaircdcstreams",
            "cleanup",
            "compact",
            "decommission",
            "disableauditlog",
            "disableautocompaction",
            "disablebackup",
            "disablebinary",
            "disablehandoff",
            "drain",
            "dropcidrgroup",
            "enableauditlog",
            "enableautocompaction",
            "enablebackup",
            "enablebinary",
            "enablehandoff",
            "flush",
            "join",
            "pausehandoff",
            "rebuild",
            "rebuild_index",
            "resumehandoff",
            "setcompactionthroughput",
            "setconcurrentcompactors",
            "setdefaultrf",
            "setguardrailsconfig",
            "sethintedhandoffthrottlekb",
            "setlogginglevel",
            "setmaxhintwindow",
            "setstreamthroughput",
            "settimeout",
            "settraceprobability",
            "stopdaemon",
            "truncatehints",
            "updatecidrgroup",
        ];
        let missing: Vec<_> =
            VERBS.iter().map(|verb| verb.name).filter(|name| !shown.contains(name)).collect();
        assert_eq!(missing, silent, "every verb that says something has a golden text");
    }

    #[test]
    fn passwords_of_a_file() {
        let lines = "# role password\nann secret\n  bob \t a b \neve\nann other\n";
        let found = |user| password_of(lines, user);
        assert_eq!(found("ann").as_deref(), Some("secret"));
        assert_eq!(found("bob").as_deref(), Some("a b"));
        assert_eq!((found("eve"), found("")), (None, None));
    }

    #[test]
    fn bad_arguments_are_refused() {
        let refused = |arguments: &[&str]| {
            let all = ["nodetool"].iter().chain(arguments);
            command().try_get_matches_from(all).map(|_| ()).unwrap_err().to_string()
        };
        assert!(refused(&["frobnicate"]).contains("unrecognized subcommand 'frobnicate'"));
        assert!(refused(&["status", "a", "b"]).contains("unexpected argument 'b'"));
        assert!(refused(&["-p", "70000", "status"]).contains("70000 is not in 1..=65535"));
        assert!(refused(&["status", "--format", "xml"]).contains("invalid value 'xml'"));
        assert!(refused(&["getendpoints", "ks"]).contains("<table>"));
        let matches = command().get_matches_from(["nodetool", "-h", "::1", "-p", "1", "status", "ks"]);
        let (_, verb) = matches.subcommand().unwrap();
        assert_eq!(verb.get_one::<String>("host").unwrap(), "::1");
        let words = |text: &str| -> Vec<_> { text.split(' ').map(std::ffi::OsString::from).collect() };
        let line = "torc nodetool repair -pr -st -5 -dc north -full ks t1 t2";
        let spelled = spelled_out(words(line).into_iter());
        let matches = command().get_matches_from(&spelled[1..]);
        let (_, repair) = matches.subcommand().unwrap();
        assert!(repair.get_flag("partitioner-range") && repair.get_flag("full"));
        assert_eq!(repair.get_one::<String>("start-token").unwrap(), "-5");
        assert_eq!(given(repair, "names"), ["ks", "t1", "t2"]);
        assert_eq!(given(repair, "in-dc"), ["north"]);
        assert!(refused(&["repair", "--full", "--incremental-mode", "full"]).contains("cannot be used with"));
        assert!(refused(&["repair", "--incremental-mode", "half"]).contains("invalid value 'half'"));
        let line = "torc nodetool -u me -pw x cfstats -pp ks.t";
        let spelled = spelled_out(words(line).into_iter());
        let matches = command().get_matches_from(&spelled[1..]);
        assert_eq!(matches.subcommand_name(), Some("tablestats"));
        let after = command().get_matches_from(["nodetool", "status", "-h", "::1"]);
        assert_eq!(after.subcommand().unwrap().1.get_one::<String>("host").unwrap(), "::1");
    }
}

//! Verbs about repair: repair, repair_admin, and the part of netstats on those under way.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::{Grid, percent, size};
use super::ring::text;
use super::{Verb, given, put, texts, utc, words};

/// Interval of the queries for a repair's progress.
const ASK_EVERY: Duration = Duration::from_millis(500);

pub(super) const REPAIR: Verb = Verb {
    name: "repair",
    about: "Repair one or more tables",
    arguments: repair_arguments,
    ask: ask_repair,
    show: show_repair,
};

pub(super) const REPAIR_ADMIN: Verb = Verb {
    name: "repair_admin",
    about: "List and cancel repairs that the node leads",
    arguments: || {
        let action = Arg::new("action").value_parser(["list", "cancel"]).default_value("list");
        let all = Arg::new("all").short('a').long("all").action(ArgAction::SetTrue);
        let session = Arg::new("session").short('s').long("session").value_parser(clap::value_parser!(u64));
        let force = Arg::new("force").short('f').long("force").action(ArgAction::SetTrue);
        vec![
            action.help("The action"),
            all.help("list: include repairs that have ended"),
            session.help("cancel: the id of the repair"),
            force.help(
                "cancel: understood, and makes no difference: the node that is called leads its repairs",
            ),
        ]
    },
    ask: ask_admin,
    show: show_admin,
};

fn repair_arguments() -> Vec<Arg> {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let value = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    let understood = "Understood for Cassandra's sake, and makes no difference";
    vec![
        flag("partitioner-range", "Only ranges of which the node is the first replica (-pr)"),
        flag("full", "Compare everything, also what past repairs have compared (-full)"),
        value("incremental-mode", "ScyllaDB's spelling: incremental (the default) or full")
            .value_parser(["incremental", "full", "disabled"])
            .conflicts_with("full"),
        flag("in-local-dc", "Only with replicas of the node's datacenter (-local)"),
        value("in-dc", "Only with replicas of a datacenter; may be repeated (-dc)").action(ArgAction::Append),
        value("in-hosts", "Only with this replica, address or host id; may be repeated, and the node itself has to be among them (-hosts)")
            .action(ArgAction::Append),
        value("start-token", "Tokens above this only (-st)").allow_hyphen_values(true),
        value("end-token", "Tokens up to this only (-et)").allow_hyphen_values(true),
        value("since", "Skip ranges that were repaired at this time or later, seconds since 1970: continues an interrupted repair")
            .value_parser(clap::value_parser!(u32)),
        flag("sequential", understood).hide(true),
        flag("dc-parallel", understood).hide(true),
        flag("trace", understood).hide(true),
        flag("pull", understood).hide(true),
        flag("ignore-unreplicated-keyspaces", understood).hide(true),
        value("job-threads", understood).short('j').hide(true),
        words("names", "A keyspace and its tables; all keyspaces when not given"),
    ]
}

/// The request for one keyspace, and its description.
fn wanted(api: &Api, arguments: &ArgMatches, tables: &[&str]) -> Result<(String, String), Failure> {
    let flag = |name: &str| arguments.get_flag(name);
    let one = |name: &str| arguments.get_one::<String>(name).cloned().unwrap_or_default();
    let all = |name: &str| arguments.get_many::<String>(name).into_iter().flatten().cloned();
    let full = match one("incremental-mode").as_str() {
        "disabled" => {
            return Err("incremental-mode disabled is not supported: a repair always records the ranges that it has compared"
                .to_owned()
                .into());
        }
        mode => flag("full") || mode == "full",
    };
    let mut datacenters: Vec<String> = all("in-dc").collect();
    let hosts = all("in-hosts").collect::<Vec<String>>().join(",");
    if flag("partitioner-range") && !(datacenters.is_empty() && hosts.is_empty()) {
        return Err("Primary range repair should be performed on all nodes in the cluster."
            .to_owned()
            .into());
    }
    if flag("in-local-dc") {
        datacenters.push(api.text("/snitch/datacenter")?);
    }
    let tables = tables.join(",");
    let mut query = vec![
        ("primaryRange", flag("partitioner-range").to_string()),
        ("incremental", (!full).to_string()),
        ("columnFamilies", tables.clone()),
        ("dataCenters", datacenters.join(",")),
        ("hosts", hosts.clone()),
        ("startToken", one("start-token")),
        ("endToken", one("end-token")),
        ("since", arguments.get_one::<u32>("since").map(u32::to_string).unwrap_or_default()),
    ];
    query.retain(|(_, value)| !value.is_empty());
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
    let said = format!(
        "parallelism: parallel, primary range: {}, incremental: {}, job threads: 1, ColumnFamilies: [{tables}], \
         dataCenters: [{}], hosts: [{hosts}], previewKind: NONE",
        flag("partitioner-range"),
        !full,
        datacenters.join(",")
    );
    Ok((query.join("&"), said))
}

/// The lines of a repair, which are printed as they come when they are to be text.
struct Lines {
    all: Vec<Value>,
    live: bool,
}

impl Lines {
    fn say(&mut self, line: String) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let line = json!({ "at_millis": now, "text": line });
        if self.live {
            put(&show_line(&line));
        }
        self.all.push(line);
    }
}

fn ask_repair(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let names = given(arguments, "names");
    let (keyspaces, tables) = match names.split_first() {
        Some((keyspace, tables)) => (vec![(*keyspace).to_owned()], tables),
        None => (texts(&api.get("/storage_service/keyspaces?type=user")?), &names[..]),
    };
    let live = arguments.get_one::<String>("format").is_some_and(|format| format == "text");
    let mut lines = Lines { all: Vec::new(), live };
    let mut jobs = Vec::new();
    for keyspace in keyspaces {
        let (query, said) = wanted(api, arguments, tables)?;
        let id = api.post(&format!("/storage_service/repair_async/{}?{query}", escape(&keyspace)))?;
        let job = job(api, &id)?;
        if job["ranges"] == 0 {
            lines.say(format!("Replication factor is 1. No repair is needed for keyspace '{keyspace}'"));
            jobs.push(job);
            continue;
        }
        lines.say(format!(
            "Starting repair command #{id}, repairing keyspace {keyspace} with repair options ({said}, # of ranges: {})",
            job["ranges"]
        ));
        jobs.push(follow(api, &id, &mut lines)?);
    }
    let printed = if live { lines.all.len() } else { 0 };
    Ok(json!({ "lines": lines.all, "printed": printed, "repairs": jobs }))
}

/// One repair of the node.
fn job(api: &Api, id: &Value) -> Result<Value, Failure> {
    let all = api.get("/storage_service/repairs")?;
    let found = all.as_array().into_iter().flatten().find(|job| job["id"] == *id);
    found.cloned().ok_or_else(|| format!("The node knows nothing of repair {id} any more: was it restarted?"))
}

/// Waits for the end of a repair, and says meanwhile how far it is.
fn follow(api: &Api, id: &Value, lines: &mut Lines) -> Result<Value, Failure> {
    let mut shown = 0;
    loop {
        let job = job(api, id)?;
        let done = job["ranges_done"].as_u64().unwrap_or(0);
        if done > shown {
            shown = done;
            let (all, progress) = (&job["ranges"], job["progress"].as_f64().unwrap_or(0.0));
            let left = job["left_seconds"].as_u64().map(|left| format!(", {} left", duration(left)));
            let failed = job["ranges_failed"].as_u64().unwrap_or(0);
            let (repaired, failed) = match failed {
                0 => (done, String::new()),
                failed => (done.saturating_sub(failed), format!(", {failed} failed")),
            };
            lines.say(format!(
                "Repaired {repaired} of {all} ranges{failed}: {} rows compared, {} sent, {} exchanged{} (progress: {})",
                job["rows_compared"],
                job["rows_sent"],
                size(job["bytes"].as_f64().unwrap_or(0.0)),
                left.unwrap_or_default(),
                percent(progress, 0)
            ));
        }
        let seconds = &job["elapsed_seconds"];
        match job["state"].as_str() {
            Some("RUNNING") => std::thread::sleep(ASK_EVERY),
            Some("SUCCESSFUL") => {
                lines.say("Repair completed successfully".to_owned());
                lines.say(format!("Repair command #{id} finished in {seconds} seconds"));
                return Ok(job);
            }
            Some("CANCELLED") => return Err(format!("Repair command #{id} was cancelled")),
            _ => {
                let why = texts(&job["failures"]).join("\n");
                return Err(format!("Repair job has failed with the error message: {why}"));
            }
        }
    }
}

fn show_repair(answer: &Value) -> String {
    let printed = answer["printed"].as_u64().unwrap_or(0) as usize;
    answer["lines"].as_array().into_iter().flatten().skip(printed).map(show_line).collect()
}

/// `[2026-11-21 19:55:24,031] …`, in UTC.
fn show_line(line: &Value) -> String {
    format!("[{}] {}\n", utc(line["at_millis"].as_i64().unwrap_or(0)), text(&line["text"]))
}

/// `1:02:03`.
fn duration(seconds: u64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn ask_admin(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let id = arguments.get_one::<u64>("session");
    if arguments.get_one::<String>("action").is_some_and(|action| action == "cancel") {
        let id = id.ok_or_else(|| "Which repair? Name it with --session".to_owned())?;
        api.post(&format!("/storage_service/force_terminate_repair?id={id}"))?;
        return Ok(json!({ "cancelled": id }));
    }
    let all = arguments.get_flag("all");
    let jobs = api.get("/storage_service/repairs")?;
    let jobs = jobs.as_array().into_iter().flatten().filter(|job| all || job["state"] == "RUNNING");
    Ok(json!({
        "coordinator": api.text("/storage_service/hostid/local")?,
        "sessions": jobs.collect::<Vec<_>>(),
    }))
}

fn show_admin(answer: &Value) -> String {
    if !answer["cancelled"].is_null() {
        return String::new();
    }
    let sessions: Vec<&Value> = answer["sessions"].as_array().into_iter().flatten().collect();
    if sessions.is_empty() {
        return "no sessions\n".to_owned();
    }
    let mut grid = Grid::default();
    grid.row(["id", "state", "last activity", "coordinator", "participants", "tables", "progress", "left"]);
    for job in sessions {
        let mut participants = vec![text(&answer["coordinator"])];
        participants.extend(texts(&job["peers"]));
        grid.row([
            text(&job["id"]),
            text(&job["state"]),
            format!("{} (s)", job["elapsed_seconds"]),
            text(&answer["coordinator"]),
            participants.join(","),
            format!("{}: {}", text(&job["keyspace"]), texts(&job["tables"]).join(",")),
            percent(job["progress"].as_f64().unwrap_or(0.0), 2),
            job["left_seconds"].as_u64().map_or("-".to_owned(), duration),
        ]);
    }
    grid.text(" | ")
}

/// The repairs under way, for netstats; none while the node does not repair.
pub(super) fn running(api: &Api) -> Value {
    let jobs = api.get("/storage_service/repairs").unwrap_or_default();
    let running = jobs.as_array().into_iter().flatten().filter(|job| job["state"] == "RUNNING");
    json!(running.collect::<Vec<_>>())
}

/// The repairs in netstats.
pub(super) fn show_running(jobs: &Value) -> String {
    let one = |job: &Value| {
        let number = match job["id"].as_u64() {
            Some(0) => "by itself".to_owned(),
            _ => format!("#{}", job["id"]),
        };
        let left = job["left_seconds"].as_u64().map_or("unknown".to_owned(), duration);
        let (keyspace, tables) = (text(&job["keyspace"]), texts(&job["tables"]).join(", "));
        let peers: String = texts(&job["peers"]).iter().map(|peer| format!("    {peer}\n")).collect();
        format!(
            "Repair {number} of {keyspace} ({tables})\n{peers}        Compared {} rows, {} differing, {} sent; {} of {} ranges ({}), {} exchanged, {left} left\n",
            job["rows_compared"],
            job["rows_differing"],
            job["rows_sent"],
            job["ranges_done"],
            job["ranges"],
            percent(job["progress"].as_f64().unwrap_or(0.0), 2),
            size(job["bytes"].as_f64().unwrap_or(0.0)),
        )
    };
    jobs.as_array().into_iter().flatten().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_cassandra_prints_them() {
        let line = json!({ "at_millis": 1_795_230_643_007_i64, "text": "done" });
        assert_eq!(show_line(&line), "[2026-11-21 03:10:43,007] done\n");
        assert_eq!(duration(3_723), "1:02:03");
    }
}

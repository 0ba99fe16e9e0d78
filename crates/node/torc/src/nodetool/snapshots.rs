//! Verbs about snapshots: snapshot, listsnapshots, clearsnapshot.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure, escape};
use super::grid::{Grid, size};
use super::ring::text;
use super::{Verb, given, pairs, words};

pub(super) const SNAPSHOT: Verb = Verb {
    name: "snapshot",
    about: "Take a snapshot of specified keyspaces or a snapshot of the specified table",
    arguments: || {
        let tables = Arg::new("table").long("table").visible_aliases(["cf", "column-family"]);
        vec![
            Arg::new("tag").short('t').long("tag").help("The name of the snapshot; the time when not given"),
            tables.help("Only this table (of one keyspace); several with commas between"),
            Arg::new("kt-list")
                .long("kt-list")
                .conflicts_with_all(["table", "keyspaces"])
                .help("Only these tables, as <keyspace>.<table> with commas between, and keyspaces (-kt)"),
            words("keyspaces", "Keyspaces; all of the users' when not given"),
        ]
    },
    ask: ask_snapshot,
    show: |answer| {
        let (of, tag) = (text(&answer["keyspaces"]), text(&answer["tag"]));
        let what = "and options {skipFlush=false}";
        format!(
            "Requested creating snapshot(s) for [{of}] with snapshot name [{tag}] {what}\nSnapshot directory: {tag}\n"
        )
    },
};

pub(super) const LISTSNAPSHOTS: Verb = Verb {
    name: "listsnapshots",
    about: "Lists all the snapshots along with the size on disk and true size",
    arguments: || {
        let none = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).hide(true);
        vec![
            none("ephemeral").short('e').help("Also those of repairs; there are none"),
            none("no-ttl").help("Without those that expire; none does (-nt)"),
        ]
    },
    ask: |api, _| ask_list(api),
    show: show_list,
};

pub(super) const CLEARSNAPSHOT: Verb = Verb {
    name: "clearsnapshot",
    about: "Remove the snapshot with the given name from the given keyspaces",
    arguments: || {
        vec![
            Arg::new("tag").short('t').help("The name of the snapshot"),
            Arg::new("all").long("all").action(ArgAction::SetTrue).help("Remove all snapshots"),
            words("keyspaces", "Keyspaces; all of the users' when not given"),
        ]
    },
    ask: ask_clear,
    show: |answer| {
        let which = match answer["tag"].as_str() {
            Some(tag) => format!("snapshot name [{tag}]"),
            None => "[all snapshots]".to_owned(),
        };
        format!("Requested clearing snapshot(s) for [{}] with {which}\n", text(&answer["keyspaces"]))
    },
};

/// The keyspaces for the query, and as they are shown.
fn keyspaces(arguments: &ArgMatches) -> (String, String) {
    let given = given(arguments, "keyspaces");
    let escaped: Vec<String> = given.iter().map(|keyspace| escape(keyspace)).collect();
    let shown = if given.is_empty() { "all keyspaces".to_owned() } else { given.join(", ") };
    (escaped.join(","), shown)
}

fn ask_snapshot(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (query, shown) = match arguments.get_one::<String>("kt-list") {
        Some(list) => (list.split(',').map(escape).collect::<Vec<_>>().join(","), list.clone()),
        None => keyspaces(arguments),
    };
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis()).to_string()
    };
    let tag = arguments.get_one::<String>("tag").cloned().unwrap_or_else(now);
    let tables = match arguments.get_one::<String>("table") {
        Some(_) if query.is_empty() || query.contains(',') => {
            return Err(
                "When specifying the table for a snapshot, you must specify one and only one keyspace"
                    .to_owned(),
            );
        }
        Some(tables) => {
            let tables: Vec<String> = tables.split(',').map(escape).collect();
            format!("&cf={}", tables.join(","))
        }
        None => String::new(),
    };
    api.post(&format!("/storage_service/snapshots?tag={}&kn={query}{tables}", escape(&tag)))?;
    Ok(json!({ "tag": tag, "keyspaces": shown }))
}

fn ask_clear(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (query, shown) = keyspaces(arguments);
    let tag = arguments.get_one::<String>("tag");
    match (tag, arguments.get_flag("all")) {
        (None, false) => return Err("Specify snapshot name or --all".to_owned()),
        (Some(_), true) => return Err("Specify only one of snapshot name or --all".to_owned()),
        _ => {}
    }
    let wanted = tag.map(|tag| escape(tag)).unwrap_or_default();
    api.delete(&format!("/storage_service/snapshots?tag={wanted}&kn={query}"))?;
    Ok(json!({ "tag": tag, "keyspaces": shown }))
}

fn ask_list(api: &Api) -> Result<Value, Failure> {
    let mut rows = Vec::new();
    for (name, tables) in pairs(&api.get("/storage_service/snapshots")?) {
        for table in tables.as_array().into_iter().flatten() {
            rows.push(json!({
                "snapshot_name": name,
                "keyspace_name": table["ks"],
                "column_family_name": table["cf"],
                "true_size": table["live"],
                "size_on_disk": table["total"],
            }));
        }
    }
    Ok(json!({ "snapshots": rows, "true_size": api.get("/storage_service/snapshots/size/true")? }))
}

fn show_list(answer: &Value) -> String {
    let mut out = "Snapshot Details: \n".to_owned();
    let rows: Vec<&Value> = answer["snapshots"].as_array().into_iter().flatten().collect();
    if rows.is_empty() {
        return out + "There are no snapshots\n";
    }
    let bytes = |value: &Value| size(value.as_f64().unwrap_or(0.0));
    let mut grid = Grid::default();
    grid.row(["Snapshot name", "Keyspace name", "Column family name", "True size", "Size on disk"]);
    for row in rows {
        let of = |name: &str| text(&row[name]);
        grid.row([
            of("snapshot_name"),
            of("keyspace_name"),
            of("column_family_name"),
            bytes(&row["true_size"]),
            bytes(&row["size_on_disk"]),
        ]);
    }
    out.push_str(&grid.text(" "));
    out.push_str(&format!("\nTotal TrueDiskSpaceUsed: {}\n\n", bytes(&answer["true_size"])));
    out
}

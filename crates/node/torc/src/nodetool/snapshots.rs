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
            Arg::new("skip-flush")
                .long("skip-flush")
                .action(ArgAction::SetTrue)
                .help("Do not flush memtables before snapshotting (-sf): the snapshot has no data of theirs"),
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
        let skips = answer["skip_flush"] == true;
        format!(
            "Requested creating snapshot(s) for [{of}] with snapshot name [{tag}] and options {{skipFlush={skips}}}\nSnapshot directory: {tag}\n"
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
            Arg::new("older-than")
                .long("older-than")
                .value_name("DURATION")
                .help("Only snapshots that are older, such as 5h or 2d"),
            Arg::new("older-than-timestamp")
                .long("older-than-timestamp")
                .value_name("TIME")
                .conflicts_with("older-than")
                .help("Only snapshots made before this time, such as 2026-11-28T10:15:30Z"),
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
    let skips = arguments.get_flag("skip-flush");
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
    api.post(&format!("/storage_service/snapshots?tag={}&kn={query}{tables}&sf={skips}", escape(&tag)))?;
    Ok(json!({ "tag": tag, "keyspaces": shown, "skip_flush": skips }))
}

fn ask_clear(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (query, shown) = keyspaces(arguments);
    let text = |name: &str| arguments.get_one::<String>(name);
    let tag = text("tag");
    let by_age = text("older-than").or(text("older-than-timestamp")).is_some();
    match (tag, arguments.get_flag("all") || by_age) {
        (Some(_), true) if by_age => return Err("Specify either a snapshot name or an age".to_owned()),
        (None, false) => return Err("Specify snapshot name or --all".to_owned()),
        (Some(_), true) => return Err("Specify only one of snapshot name or --all".to_owned()),
        _ => {}
    }
    let wanted = tag.map(|tag| escape(tag)).unwrap_or_default();
    let age = match (text("older-than"), text("older-than-timestamp")) {
        (Some(duration), _) => format!("&older_than_ms={}", milliseconds(duration)?),
        (None, Some(time)) => format!("&before_ms={}", time_in_milliseconds(time)?),
        (None, None) => String::new(),
    };
    api.delete(&format!("/storage_service/snapshots?tag={wanted}&kn={query}{age}"))?;
    Ok(json!({ "tag": tag, "keyspaces": shown }))
}

/// A duration as Cassandra writes it: whole numbers with d, h, m, s or ms.
fn milliseconds(duration: &str) -> Result<u64, Failure> {
    let wrong =
        || format!("Invalid duration: {duration}; give a whole number with d, h, m, s or ms, such as 2d");
    let digits = duration.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = duration.split_at(digits);
    let unit = match unit {
        "d" => 86_400_000,
        "h" => 3_600_000,
        "m" => 60_000,
        "s" => 1_000,
        "ms" => 1,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)
}

/// A time in the form of ISO 8601, milliseconds since the epoch.
fn time_in_milliseconds(time: &str) -> Result<i64, Failure> {
    let wrong = || format!("Invalid time: {time}; give it as 2026-11-28T10:15:30Z");
    let bytes = types::CqlType::Timestamp.from_string(time).map_err(|_| wrong())?;
    Ok(i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_of_snapshots() {
        assert_eq!(
            ["2d", "5h", "30m", "7s", "9ms"].map(milliseconds),
            [Ok(172_800_000), Ok(18_000_000), Ok(1_800_000), Ok(7_000), Ok(9)]
        );
        for bad in ["", "5", "h", "5 h", "-1h", "1w", "99999999999999999d", "1.5h"] {
            assert!(milliseconds(bad).is_err(), "{bad}");
        }
        assert_eq!(time_in_milliseconds("1970-01-01T00:00:07Z"), Ok(7_000));
        assert!(time_in_milliseconds("yesterday").is_err());
    }
}

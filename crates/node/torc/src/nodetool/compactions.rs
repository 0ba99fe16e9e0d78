//! Verbs about compactions: compactionhistory, compactionstats.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::Verb;
use super::api::{Api, Failure};
use super::grid::{Grid, percent, size};
use super::ring::text;
use super::settings::{bytes, setting};

pub(super) const COMPACTIONHISTORY: Verb = Verb {
    name: "compactionhistory",
    about: "Print history of compaction",
    arguments: human,
    ask: |api, arguments| {
        Ok(json!({
            "CompactionHistory": api.get("/compaction_manager/compaction_history")?,
            "human_readable": arguments.get_flag("human-readable"),
        }))
    },
    show: show_history,
};

pub(super) const COMPACTIONSTATS: Verb = Verb {
    name: "compactionstats",
    about: "Print statistics on compactions",
    arguments: human,
    ask: ask_stats,
    show: show_stats,
};

fn human() -> Vec<Arg> {
    let human = Arg::new("human-readable").short('H').long("human-readable").action(ArgAction::SetTrue);
    vec![human.help("Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB")]
}

/// Bytes as a number, or with a unit.
fn shown(answer: &Value, bytes: &Value) -> String {
    match answer["human_readable"] == true {
        true => size(bytes.as_f64().unwrap_or(0.0)),
        false => text(bytes),
    }
}

/// The newest first, as Cassandra prints them. Times are in UTC.
fn show_history(answer: &Value) -> String {
    let mut all: Vec<&Value> = answer["CompactionHistory"].as_array().into_iter().flatten().collect();
    if all.is_empty() {
        return "There is no compaction history\n".to_owned();
    }
    all.sort_by_key(|one| std::cmp::Reverse(one["compacted_at"].as_i64()));
    let mut grid = Grid::default();
    grid.row([
        "id",
        "keyspace_name",
        "columnfamily_name",
        "compacted_at",
        "bytes_in",
        "bytes_out",
        "rows_merged",
        "compaction_properties",
    ]);
    for one in all {
        let merged = one["rows_merged"].as_array().into_iter().flatten();
        let merged: Vec<String> =
            merged.map(|entry| format!("{}:{}", text(&entry["key"]), text(&entry["value"]))).collect();
        grid.row([
            text(&one["id"]),
            text(&one["ks"]),
            text(&one["cf"]),
            time(one["compacted_at"].as_i64().unwrap_or(0)),
            shown(answer, &one["bytes_in"]),
            shown(answer, &one["bytes_out"]),
            format!("{{{}}}", merged.join(", ")),
            format!("{{compaction_type:{}}}", text(&one["compaction_type"])),
        ]);
    }
    format!("Compaction History: \n{}", grid.text(" "))
}

/// Milliseconds since 1970 as `2026-11-26T13:06:58.391`.
fn time(millis: i64) -> String {
    types::CqlType::Timestamp.to_text(&millis.to_be_bytes()).trim_end_matches('Z').to_owned()
}

/// The kind of a task as Cassandra's tool shows it.
fn shown_kind(kind: &Value) -> String {
    let name = text(kind);
    match name.as_str() {
        "CLEANUP" => "Cleanup",
        "SCRUB" => "Scrub",
        "UPGRADE_SSTABLES" => "Upgrade sstables",
        "GARBAGE_COLLECT" => "Remove deleted data",
        "VERIFY" => "Verify",
        "INDEX_BUILD" => "Secondary index build",
        _ => "Compaction",
    }
    .to_owned()
}

fn ask_stats(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let metric = |name: &str| api.get(&format!("/compaction_manager/metrics/{name}"));
    Ok(json!({
        "concurrent_compactors": setting(api, "concurrent_compactors")?,
        "pending_tasks": metric("pending_tasks")?,
        "compactions_completed": metric("completed_tasks")?,
        "data_compacted": metric("bytes_compacted")?,
        "compactions_aborted": metric("failed_tasks")?,
        "uptime_ms": api.get("/system/uptime_ms")?,
        "compaction_throughput": bytes(api, "compaction_throughput")?,
        "compactions": api.get("/compaction_manager/compactions")?,
        "human_readable": arguments.get_flag("human-readable"),
    }))
}

fn show_stats(answer: &Value) -> String {
    let of = |name: &str| text(&answer[name]);
    let number = |name: &str| answer[name].as_f64().unwrap_or(0.0);
    let hours = (number("uptime_ms") / 3_600_000.0).max(1.0 / 3_600_000.0);
    let throughput = number("compaction_throughput");
    let mut figures = Grid::default();
    figures.row(["concurrent compactors".to_owned(), of("concurrent_compactors")]);
    figures.row(["pending tasks".to_owned(), of("pending_tasks")]);
    figures.row(["compactions completed".to_owned(), of("compactions_completed")]);
    figures.row(["data compacted".to_owned(), shown(answer, &answer["data_compacted"])]);
    figures.row(["compactions aborted".to_owned(), of("compactions_aborted")]);
    figures.row(["mean rate".to_owned(), format!("{:.2}/hour", number("compactions_completed") / hours)]);
    figures.row([
        "compaction throughput (MiB/s)".to_owned(),
        match throughput > 0.0 {
            true => format!("{:?}", throughput / 1_048_576.0),
            false => "throttling disabled (0)".to_owned(),
        },
    ]);
    let mut out = figures.text(" ");
    let running: Vec<&Value> = answer["compactions"].as_array().into_iter().flatten().collect();
    if running.is_empty() {
        return out;
    }
    let (mut grid, mut left) = (Grid::default(), 0.0);
    grid.row(["id", "compaction type", "keyspace", "table", "completed", "total", "unit", "progress"]);
    for one in running {
        let bytes = |name: &str| one[name].as_f64().unwrap_or(0.0);
        let progress = if bytes("total") > 0.0 {
            percent(bytes("completed") / bytes("total"), 2)
        } else {
            "n/a".to_owned()
        };
        left += bytes("total") - bytes("completed");
        grid.row([
            text(&one["id"]),
            shown_kind(&one["task_type"]),
            text(&one["ks"]),
            text(&one["cf"]),
            shown(answer, &one["completed"]),
            shown(answer, &one["total"]),
            text(&one["unit"]),
            progress,
        ]);
    }
    out.push_str(&grid.text(" "));
    let time = match throughput > 0.0 {
        true => {
            let seconds = (left / throughput) as u64;
            format!("{}h{:02}m{:02}s", seconds / 3_600, seconds / 60 % 60, seconds % 60)
        }
        false => "n/a".to_owned(),
    };
    out.push_str(&format!("{:>25}{time:>10}\n", "Active compaction remaining time : "));
    out
}

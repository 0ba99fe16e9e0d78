//! Verbs about a node's load: tpstats, proxyhistograms, netstats.

use clap::{Arg, ArgAction};
use serde_json::{Value, json};

use super::Verb;
use super::api::{Api, Failure};
use super::grid::Grid;
use super::ring::text;

pub(super) const TPSTATS: Verb = Verb {
    name: "tpstats",
    about: "Print usage statistics of scheduling groups and dropped messages",
    arguments: Vec::new,
    ask: |api, _| {
        Ok(json!({ "groups": api.get("/torc/groups")?, "messages": api.get("/torc/messages")?["verbs"] }))
    },
    show: show_groups,
};

pub(super) const PROXYHISTOGRAMS: Verb = Verb {
    name: "proxyhistograms",
    about: "Print statistic histograms for network operations",
    arguments: Vec::new,
    ask: |api, _| ask_histograms(api),
    show: show_histograms,
};

pub(super) const NETSTATS: Verb = Verb {
    name: "netstats",
    about: "Print network information on provided host",
    arguments: || {
        let readable =
            Arg::new("human-readable").short('H').long("human-readable").action(ArgAction::SetTrue);
        vec![readable.help("Display bytes in human readable form; they always are")]
    },
    ask: |api, _| {
        Ok(json!({
            "mode": api.text("/storage_service/operation_mode")?,
            "repairs": super::repair::running(api),
            "read_repair_attempted": api.get("/storage_proxy/read_repair_attempted")?,
            "read_repair_blocking": api.get("/storage_proxy/read_repair_repaired_blocking")?,
            "read_repair_background": api.get("/storage_proxy/read_repair_repaired_background")?,
            "messages": api.get("/torc/messages")?["verbs"],
            "topology": api.get("/torc/topology")?,
        }))
    },
    show: show_network,
};

fn show_groups(answer: &Value) -> String {
    let mut grid = Grid::default();
    grid.row(["Pool Name", "Active", "Pending", "Completed", "Blocked", "All time blocked"]);
    for group in answer["groups"].as_array().into_iter().flatten() {
        let of = |name: &str| text(&group[name]);
        // Nothing blocks a group: a task that cannot go on is not in its queue.
        grid.row([of("name"), of("tasks"), of("ready"), of("polls"), "0".to_owned(), "0".to_owned()]);
    }
    let mut messages = Grid::default();
    messages.row(["Message type", "Dropped"]);
    for verb in answer["messages"].as_array().into_iter().flatten() {
        messages.row([text(&verb["verb"]), text(&verb["dropped"])]);
    }
    format!("{}\n{}", grid.text(" "), messages.text(" "))
}

const KINDS: [(&str, &str); 6] = [
    ("read", "Read Latency"),
    ("write", "Write Latency"),
    ("range", "Range Latency"),
    ("cas_read", "CAS Read Latency"),
    ("cas_write", "CAS Write Latency"),
    ("view_write", "View Write Latency"),
];

const PERCENTILES: [(&str, f64); 5] =
    [("50%", 0.5), ("75%", 0.75), ("95%", 0.95), ("98%", 0.98), ("99%", 0.99)];

fn ask_histograms(api: &Api) -> Result<Value, Failure> {
    let mut out = serde_json::Map::new();
    for (kind, _) in KINDS {
        let histogram = api.get(&format!("/storage_proxy/metrics/{kind}/estimated_histogram"))?;
        let numbers = |name: &str| -> Vec<u64> {
            histogram[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
        };
        out.insert(kind.to_owned(), summary(&numbers("bucket_offsets"), &numbers("buckets")));
    }
    Ok(out.into())
}

/// Percentiles, least and greatest of a histogram: the bound of the bucket in which each lies.
pub(super) fn summary(bounds: &[u64], counts: &[u64]) -> Value {
    let total: u64 = counts.iter().sum();
    let bound = |bucket: usize| bounds.get(bucket).or(bounds.last()).copied().unwrap_or(0);
    let at = |share: f64| {
        let rank = (total as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        let bucket = counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        if total == 0 { 0 } else { bucket.map_or(0, bound) }
    };
    let mut out = serde_json::Map::new();
    for (name, share) in PERCENTILES {
        out.insert(name.to_owned(), json!(at(share)));
    }
    let first = counts.iter().position(|count| *count > 0).map_or(0, bound);
    let last = counts.iter().rposition(|count| *count > 0).map_or(0, bound);
    out.insert("Min".to_owned(), json!(first));
    out.insert("Max".to_owned(), json!(last));
    out.into()
}

fn show_histograms(answer: &Value) -> String {
    let line = |first: &str, cells: [String; 6]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>19}")).collect();
        format!("{first:<10}{cells}\n")
    };
    let mut out = "proxy histograms\n".to_owned();
    out.push_str(&line("Percentile", KINDS.map(|(_, title)| title.to_owned())));
    out.push_str(&line("", KINDS.map(|_| "(micros)".to_owned())));
    for name in PERCENTILES.iter().map(|(name, _)| *name).chain(["Min", "Max"]) {
        let cell = |(kind, _): (&str, &str)| format!("{:.2}", answer[kind][name].as_f64().unwrap_or(0.0));
        out.push_str(&line(name, KINDS.map(cell)));
    }
    out.push('\n');
    out
}

/// The streaming of a topology change.
fn streams(topology: &Value) -> String {
    let (change, fetch) = (&topology["change"], &topology["fetch"]);
    let count = |name: &str| fetch[name].as_u64().unwrap_or(0);
    let size = |name: &str| super::grid::size(count(name) as f64);
    if fetch["active"] != true && count("sending_bytes_total") > 0 {
        return format!("Sending SSTables: {} of {}\n", size("sending_bytes"), size("sending_bytes_total"));
    }
    if fetch["active"] != true {
        let waits = super::texts(&change["waits_for"]);
        if let Some(before) = change["before_own"].as_str() {
            let step = text(&change["step"]);
            let fetched =
                if waits.is_empty() { String::new() } else { format!(", waits for {}", waits.join(", ")) };
            return format!(
                "Not sending any streams. Waiting for the turn to join: {before} comes first ({step}{fetched})\n"
            );
        }
        return match waits.is_empty() {
            true => "Not sending any streams.\n".to_owned(),
            false => {
                format!("Not sending any streams. A topology change waits for {}\n", waits.join(", "))
            }
        };
    }
    let left = match fetch["left_ms"].as_u64() {
        Some(left) => format!(", about {} s left", left.div_ceil(1_000)),
        None => String::new(),
    };
    let total = match fetch["file_bytes_known"] == false {
        true => " of an amount that is not known yet".to_owned(),
        false => format!(" of {}", size("file_bytes_total")),
    };
    let mut out = format!(
        "Streaming: {}{total} of SSTables, {} of them added\n",
        size("file_bytes"),
        count("sstables"),
    );
    out.push_str(&format!(
        "Comparing: {} of {} ranges of tables, {} fetched as rows, in {} s{left}\n",
        count("ranges_done"),
        count("ranges_total"),
        size("bytes"),
        count("elapsed_ms") / 1_000,
    ));
    out
}

fn show_network(answer: &Value) -> String {
    let of = |name: &str| text(&answer[name]);
    let mut out = format!("Mode: {}\n", of("mode"));
    let repairs = super::repair::show_running(&answer["repairs"]);
    let moves = answer["topology"]["fetch"]["active"] == true;
    if let Some(source) = answer["topology"]["rebuild"].as_str() {
        out.push_str(&format!("Rebuild from {source}\n"));
    }
    if repairs.is_empty() || moves {
        out.push_str(&streams(&answer["topology"]));
    }
    if let Some(text) = super::ring::held_up(&answer["topology"]["change"]) {
        out.push_str(&format!("{text}\n"));
    }
    out.push_str(&repairs);
    out.push_str("Read Repair Statistics:\n");
    out.push_str(&format!("Attempted: {}\n", of("read_repair_attempted")));
    out.push_str(&format!("Mismatch (Blocking): {}\n", of("read_repair_blocking")));
    out.push_str(&format!("Mismatch (Background): {}\n", of("read_repair_background")));
    let line = |cells: [String; 5]| {
        let [name, active, pending, completed, dropped] = cells;
        format!("{name:<25}{active:>10}{pending:>10}{completed:>15}{dropped:>10}\n")
    };
    out.push_str(&line(["Pool Name", "Active", "Pending", "Completed", "Dropped"].map(str::to_owned)));
    for (title, class) in
        [("Large messages", "bulk"), ("Small messages", "request"), ("Gossip messages", "urgent")]
    {
        let verbs = answer["messages"].as_array().into_iter().flatten().filter(|verb| verb["class"] == class);
        let sum = |name: &str| verbs.clone().filter_map(|verb| verb[name].as_u64()).sum::<u64>().to_string();
        out.push_str(&line([
            title.to_owned(),
            "n/a".to_owned(),
            "n/a".to_owned(),
            sum("sent"),
            sum("dropped"),
        ]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds_of_buckets() {
        let bounds = [10, 20, 40];
        let of = |counts: &[u64]| {
            let value = summary(&bounds, counts);
            ["50%", "75%", "99%", "Min", "Max"].map(|name| value[name].as_u64().unwrap())
        };
        assert_eq!(of(&[0, 0, 0, 0]), [0, 0, 0, 0, 0]);
        assert_eq!(of(&[1, 0, 0, 0]), [10, 10, 10, 10, 10]);
        assert_eq!(of(&[50, 25, 24, 0]), [10, 20, 40, 10, 40]);
        assert_eq!(
            of(&[0, 1, 0, 9]),
            [40, 40, 40, 20, 40],
            "a latency above all bounds is at least the last"
        );
    }
}

//! The figures of a run, for people and for programs.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::load::cpu::CpuTime;
use crate::load::figures::Outcome;
use crate::load::kind::Kind;
use crate::load::options::Options;

/// The quantiles that are shown, with their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];
/// Kinds of server threads that the text shows.
const THREADS_SHOWN_MAX: usize = 5;

/// The figures as text.
pub(crate) fn text(options: &Options, outcome: &Outcome) -> String {
    let mut text = format!(
        "{}: {} connections x {} in flight, {} thread{}, {}{}, {:.1} s\n",
        options.workload.name(),
        options.connections,
        options.in_flight,
        options.threads,
        if options.threads == 1 { "" } else { "s" },
        options.version.name(),
        options.rate.map(|rate| format!(", open loop of {rate}/s")).unwrap_or_default(),
        outcome.elapsed.as_secs_f64(),
    );
    text += &format!(
        "{:>8} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "", "ops", "mean", "p50", "p90", "p99", "p99.9", "max"
    );
    for (kind, name) in Kind::ALL {
        let latencies = &outcome.latencies[kind as usize];
        if latencies.is_empty() {
            continue;
        }
        text += &format!("{name:>8} {:>12} {:>9}", latencies.len(), time(latencies.mean() as u64));
        for (_, quantile) in QUANTILES {
            text += &format!(" {:>9}", time(latencies.value_at_quantile(quantile)));
        }
        text += &format!(" {:>9}\n", time(latencies.max()));
    }
    text += &format!("    rate {:.0} ops/s", outcome.rate());
    if outcome.rows > 0 {
        text += &format!(", {:.0} rows/s", outcome.rows as f64 / outcome.elapsed.as_secs_f64().max(1e-9));
    }
    if let Some(variation) = outcome.rate_variation() {
        text += &format!(", {:.1} % variation by second", variation * 100.0);
    }
    text += &format!("\n  client {}\n", cpu(outcome, outcome.client));
    if let Some(server) = &outcome.server {
        text += &format!("  server {}", cpu(outcome, server.cpu));
        if let Some(bytes) = server.resident_bytes {
            text += &format!(", {} MB resident", bytes >> 20);
        }
        text += "\n";
        for (name, time) in server.threads.iter().take(THREADS_SHOWN_MAX) {
            text += &format!("         {name}: {}\n", cpu(outcome, *time));
        }
    }
    if outcome.unsent > 0 {
        text += &format!(
            "  unsent {} operations were due and never sent: the server was too slow\n",
            outcome.unsent
        );
    }
    for (kind, error) in &outcome.errors {
        text += &format!("  errors {}: {kind}, the first: {}\n", error.count, error.example);
    }
    text
}

fn cpu(outcome: &Outcome, time: CpuTime) -> String {
    format!(
        "{:.2} µs of CPU an operation (user {:.2}, system {:.2})",
        outcome.per_operation(time.total()),
        outcome.per_operation(time.user),
        outcome.per_operation(time.system)
    )
}

/// A time in nanoseconds, with three digits.
fn time(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000_000 => (nanos as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// The figures as JSON; times in microseconds.
pub(crate) fn json(options: &Options, outcome: &Outcome) -> Value {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let mut latencies = Map::new();
    for (kind, name) in Kind::ALL {
        let histogram = &outcome.latencies[kind as usize];
        if histogram.is_empty() {
            continue;
        }
        let mut figures = Map::new();
        figures.insert("operations".to_owned(), json!(histogram.len()));
        figures.insert("mean".to_owned(), json!(histogram.mean() / 1e3));
        for (name, quantile) in QUANTILES {
            figures.insert(name.to_owned(), json!(micros(histogram.value_at_quantile(quantile))));
        }
        figures.insert("max".to_owned(), json!(micros(histogram.max())));
        latencies.insert(name.to_owned(), Value::Object(figures));
    }
    let usage = |time: CpuTime| {
        json!({
            "user": outcome.per_operation(time.user),
            "system": outcome.per_operation(time.system),
            "total": outcome.per_operation(time.total()),
        })
    };
    let server = outcome.server.as_ref().map(|server| {
        let threads = server.threads.iter().map(|(name, time)| (name.clone(), usage(*time)));
        json!({
            "cpu_micros_per_operation": usage(server.cpu),
            "threads": threads.collect::<Map<_, _>>(),
            "resident_bytes": server.resident_bytes,
        })
    });
    let errors = outcome.errors.iter();
    let errors =
        errors.map(|(kind, error)| (kind.clone(), json!({"count": error.count, "first": error.example})));
    json!({
        "workload": options.workload.name(),
        "connections": options.connections,
        "in_flight": options.in_flight,
        "threads": options.threads,
        "protocol": options.version.name(),
        "rate_asked": options.rate,
        "keys": options.keys,
        "columns": options.columns,
        "value_size": options.value_size,
        "seconds": outcome.elapsed.as_secs_f64(),
        "operations": outcome.operations,
        "operations_per_second": outcome.rate(),
        "operations_by_second": outcome.by_second,
        "rate_variation": outcome.rate_variation(),
        "rows": outcome.rows,
        "unsent": outcome.unsent,
        "latency_micros": latencies,
        "client_cpu_micros_per_operation": usage(outcome.client),
        "server": server,
        "errors": errors.collect::<Map<_, _>>(),
    })
}

/// Writes the JSON to a file, or for `-` to standard output.
pub(crate) fn write_json(file: &Path, options: &Options, outcome: &Outcome) -> Result<(), String> {
    let text = format!("{:#}\n", json(options, outcome));
    if file == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0, 1_234, 45_600, 999_999, 1_000_000, 12_340_000, 139_000_000, 2_500_000_000];
        let texts = times.map(time);
        assert_eq!(
            texts,
            ["0.00 µs", "1.23 µs", "45.6 µs", "1000 µs", "1.00 ms", "12.3 ms", "139 ms", "2.50 s"]
        );
    }
}

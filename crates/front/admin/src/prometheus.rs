//! The text format of Prometheus: a metric's head, its samples, the escaping of labels.

use std::collections::BTreeMap;
use std::fmt::Write;

use rt::metrics::{Latencies, Sample, Value};

/// The two lines before a metric's samples.
pub(crate) fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let written = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    written.expect("strings take everything");
}

/// One sample; `labels` are without braces.
pub(crate) fn sample(out: &mut String, name: &str, labels: &str, value: f64) {
    let written = if labels.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}}} {value}")
    };
    written.expect("strings take everything");
}

/// A label's value with quotes, backslashes and line ends escaped.
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Samples by metric, in the order in which metrics are met first.
pub(crate) fn write_all(out: &mut String, samples: &[Sample]) {
    let mut by_name: BTreeMap<&str, (usize, Vec<&Sample>)> = BTreeMap::new();
    for one in samples {
        let met = by_name.len();
        by_name.entry(one.name).or_insert((met, Vec::new())).1.push(one);
    }
    let mut metrics: Vec<_> = by_name.into_values().collect();
    metrics.sort_by_key(|(met, _)| *met);
    for (_, samples) in metrics {
        let Some(first) = samples.first() else { continue };
        head(out, first.name, first.kind.name(), first.help);
        for one in samples {
            let labels: Vec<String> =
                one.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
            match &one.value {
                Value::Number(number) => sample(out, one.name, &labels.join(","), *number),
                Value::Durations(latencies) => histogram(out, one.name, labels, latencies),
            }
        }
    }
}

fn histogram(out: &mut String, name: &str, labels: Vec<String>, latencies: &Latencies) {
    let mut below = 0;
    for (bucket, count) in latencies.buckets.iter().enumerate() {
        below += count;
        let bound = Latencies::bound_micros(bucket).map_or("+Inf".to_owned(), |bound| bound.to_string());
        let mut labels = labels.clone();
        labels.push(format!("le=\"{bound}\""));
        sample(out, &format!("{name}_bucket"), &labels.join(","), below as f64);
    }
    let labels = labels.join(",");
    sample(out, &format!("{name}_sum"), &labels, latencies.sum.as_nanos() as f64 / 1e3);
    sample(out, &format!("{name}_count"), &labels, below as f64);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rt::metrics::MetricKind;

    use super::*;

    #[test]
    fn samples_of_one_metric_stand_together_under_one_head() {
        let one = |name, shard: &str, value| Sample {
            name,
            kind: MetricKind::Gauge,
            help: "Help.",
            labels: vec![("shard", shard.to_owned())],
            value,
        };
        let mut latencies = Latencies::default();
        latencies.add(Duration::from_micros(20));
        let samples = [
            one("b", "0", Value::Number(1.5)),
            one("a", "0", Value::Durations(Box::new(latencies))),
            one("b", "\"1", Value::Number(2.0)),
        ];
        let mut out = String::new();
        write_all(&mut out, &samples);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines[..4],
            ["# HELP b Help.", "# TYPE b gauge", "b{shard=\"0\"} 1.5", "b{shard=\"\\\"1\"} 2"]
        );
        assert!(lines.contains(&"a_bucket{shard=\"0\",le=\"16\"} 0"), "{out}");
        assert!(lines.contains(&"a_bucket{shard=\"0\",le=\"32\"} 1"), "{out}");
        assert_eq!(lines[lines.len() - 2..], ["a_sum{shard=\"0\"} 20", "a_count{shard=\"0\"} 1"]);
    }
}

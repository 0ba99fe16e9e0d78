//! The text format of Prometheus: a metric's head, its samples, the escaping of labels.

use std::fmt::Write;

use coordinator::Latencies;

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

/// A histogram for each of some labels.
pub(crate) fn histogram_of<'a>(
    out: &mut String,
    name: &str,
    help: &str,
    each: impl Iterator<Item = (String, &'a Latencies)>,
) {
    head(out, name, "histogram", help);
    let (bucket_name, sum_name, count_name) =
        (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
    for (labels, latencies) in each {
        let mut below = 0;
        for (bucket, count) in latencies.buckets.iter().enumerate() {
            below += count;
            let bound = Latencies::bound_micros(bucket).map_or("+Inf".to_owned(), |bound| bound.to_string());
            sample(out, &bucket_name, &format!("{labels},le=\"{bound}\""), below as f64);
        }
        sample(out, &sum_name, &labels, latencies.sum.as_nanos() as f64 / 1e3);
        sample(out, &count_name, &labels, below as f64);
    }
}

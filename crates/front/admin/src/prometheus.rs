//! The text format of Prometheus: a metric's head, its samples, the escaping of labels.

use std::fmt::Write;

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

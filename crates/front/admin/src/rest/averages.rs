//! Averages of counts and of distributions in the forms of ScyllaDB's API.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::Node;

/// Count, sum, bounds, mean and variance of values that are known by the bounds of their buckets.
pub(super) fn moments(buckets: impl Iterator<Item = (u64, u64)>, unit: f64) -> Value {
    let met: Vec<(f64, f64)> = buckets
        .filter(|(_, count)| *count > 0)
        .map(|(bound, count)| (bound as f64 * unit, count as f64))
        .collect();
    let count: f64 = met.iter().map(|(_, count)| count).sum();
    let sum: f64 = met.iter().map(|(value, count)| value * count).sum();
    let mean = sum / count.max(1.0);
    let squares: f64 = met.iter().map(|(value, count)| (value - mean).powi(2) * count).sum();
    json!({
        "count": count as u64,
        "sum": sum as u64,
        "min": met.first().map_or(0, |(value, _)| *value as u64),
        "max": met.last().map_or(0, |(value, _)| *value as u64),
        "mean": mean,
        "variance": squares / count.max(1.0),
    })
}

/// How often a second something happened since the start.
fn mean_rate(count: u64, node: &Rc<dyn Node>) -> f64 {
    let seconds = (node.now_micros() - node.info().started_micros).max(1) as f64 / 1e6;
    count as f64 / seconds
}

/// A count with its rates a second: of the last minutes where they are known, and since the start.
pub(super) fn meter(count: u64, recent: f64, node: &Rc<dyn Node>) -> Value {
    json!({ "count": count, "rates": [recent, recent, recent], "mean_rate": mean_rate(count, node) })
}

/// A count of which nothing is known but its rate since the start.
pub(super) fn counted(count: u64, node: &Rc<dyn Node>) -> Value {
    meter(count, mean_rate(count, node), node)
}

//! Figures of coordinated requests, timeouts and hints over REST, at ScyllaDB's paths below `/storage_proxy`.

use std::rc::Rc;

use coordinator::RequestFigures;
use rt::metrics::Latencies;
use serde_json::{Value, json};

use super::averages::{counted, moments};
use super::hints;
use crate::{Node, ShardFigures};

/// ScyllaDB's names of timeouts, each with the option.
const TIMEOUTS: &[(&str, &str)] = &[
    ("cas_contention_timeout", "cas_contention_timeout_in_ms"),
    ("counter_write_rpc_timeout", "counter_write_request_timeout_in_ms"),
    ("range_rpc_timeout", "range_request_timeout_in_ms"),
    ("read_rpc_timeout", "read_request_timeout_in_ms"),
    ("truncate_rpc_timeout", "truncate_request_timeout_in_ms"),
    ("write_rpc_timeout", "write_request_timeout_in_ms"),
];

/// The answer to a GET below `/storage_proxy`; none for another path.
pub(super) async fn answer(node: &Rc<dyn Node>, segments: &[&str]) -> Option<Value> {
    Some(match segments {
        ["total_hints"] => hints::count(node).await,
        ["max_hint_window"] => json!(millis(node, "max_hint_window_in_ms")?),
        ["metrics", kind, figure] => metric(node, kind, figure).await?,
        [timeout] => {
            let (_, option) = TIMEOUTS.iter().find(|(name, _)| name == timeout)?;
            json!(millis(node, option)? as f64 / 1e3)
        }
        _ => return None,
    })
}

fn millis(node: &Rc<dyn Node>, option: &str) -> Option<u64> {
    node.setting(option)?.value.parse().ok()
}

/// A figure of a kind of request: numbers since the start, and latencies in microseconds.
pub(super) async fn metric(node: &Rc<dyn Node>, kind: &str, figure: &str) -> Option<Value> {
    let of: fn(&ShardFigures) -> &RequestFigures = match kind {
        "read" => |shard| &shard.coordinated_reads,
        "range" => |shard| &shard.coordinated_ranges,
        "write" => |shard| &shard.coordinated_writes,
        "cas_read" => |shard| &shard.serial_reads,
        "cas_write" => |shard| &shard.conditional_writes,
        "view_write" => |shard| &shard.view_writes,
        _ => return None,
    };
    let shards = node.figures().await;
    let all = || shards.iter().map(of);
    let timeouts = || all().map(|figures| figures.timeouts).sum::<u64>();
    let unavailable = || all().map(|figures| figures.unavailable).sum::<u64>();
    Some(match figure {
        "timeouts" => json!(timeouts()),
        "timeouts_rates" => counted(timeouts(), node),
        "unavailables" => json!(unavailable()),
        "unavailables_rates" => counted(unavailable(), node),
        "histogram" => moments(buckets(all()).into_iter(), 1.0),
        "moving_average_histogram" => {
            let buckets = buckets(all());
            let count = buckets.iter().map(|(_, count)| count).sum();
            json!({ "meter": counted(count, node), "hist": moments(buckets.into_iter(), 1.0) })
        }
        _ => return None,
    })
}

/// The latencies of all shards: upper bounds in microseconds and counts. Longer ones than the last bound have twice that.
fn buckets<'a>(all: impl Iterator<Item = &'a RequestFigures>) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = (0..).map_while(Latencies::bound_micros).map(|bound| (bound, 0)).collect();
    out.push((out.last().map_or(0, |(bound, _)| 2 * bound), 0));
    for figures in all {
        out.iter_mut().zip(figures.latencies.buckets).for_each(|((_, sum), count)| *sum += count);
    }
    out
}

//! Metrics of the DynamoDB API, named as ScyllaDB's are where the meaning is the same.

use crate::prometheus::{head, histogram_of, sample};
use crate::{AlternatorFigures, ShardFigures};

type Figure = (&'static str, &'static str, &'static str, fn(&AlternatorFigures) -> u64);

/// By shard alone.
const FIGURES: [Figure; 15] = [
    ("scylla_alternator_total_operations", "counter", "Requests of the DynamoDB API.", |f| {
        f.total_operations
    }),
    (
        "scylla_alternator_unsupported_operations",
        "counter",
        "Requests of operations that the DynamoDB API does not have.",
        |f| f.unsupported_operations,
    ),
    (
        "scylla_alternator_reads_before_write",
        "counter",
        "Writes of the DynamoDB API that depend on the item as it is.",
        |f| f.reads_before_write,
    ),
    (
        "scylla_alternator_write_using_lwt",
        "counter",
        "Writes of the DynamoDB API by lightweight transactions.",
        |f| f.write_using_lwt,
    ),
    (
        "scylla_alternator_requests_shed",
        "counter",
        "Requests of the DynamoDB API refused because of the bytes of all that are under way.",
        |f| f.requests_shed,
    ),
    (
        "scylla_alternator_authentication_failures",
        "counter",
        "Requests of the DynamoDB API without a valid signature.",
        |f| f.authentication_failures,
    ),
    (
        "scylla_alternator_authorization_failures",
        "counter",
        "Requests of the DynamoDB API whose role lacks a permission.",
        |f| f.authorization_failures,
    ),
    (
        "scylla_alternator_filtered_rows_read_total",
        "counter",
        "Items that Query and Scan with a filter have read.",
        |f| f.filtered_rows_read,
    ),
    (
        "scylla_alternator_filtered_rows_matched_total",
        "counter",
        "Items that filters of Query and Scan let through.",
        |f| f.filtered_rows_matched,
    ),
    (
        "scylla_alternator_filtered_rows_dropped_total",
        "counter",
        "Items that filters of Query and Scan left out.",
        |f| f.filtered_rows_read - f.filtered_rows_matched,
    ),
    (
        "torc_alternator_connections_shed",
        "counter",
        "Connections to the DynamoDB API that were closed because there were too many.",
        |f| f.connections_shed,
    ),
    (
        "torc_alternator_tls_handshake_failures",
        "counter",
        "Connections to the DynamoDB API that were closed because their TLS handshake failed.",
        |f| f.tls_handshake_failures,
    ),
    ("torc_alternator_connections", "gauge", "Connections to the DynamoDB API.", |f| f.connections),
    ("torc_alternator_requests_serving", "gauge", "Requests of the DynamoDB API being carried out.", |f| {
        f.requests_serving
    }),
    (
        "torc_alternator_requests_bytes",
        "gauge",
        "Bytes of the bodies of requests of the DynamoDB API under way.",
        |f| f.requests_bytes,
    ),
];

/// Writes all of them, for shards that serve the API. Operations and errors that a shard has not met are left out.
pub(crate) fn write(out: &mut String, shards: &[ShardFigures]) {
    let serving: Vec<(usize, &AlternatorFigures)> = shards
        .iter()
        .enumerate()
        .filter_map(|(shard, figures)| Some((shard, figures.alternator.as_ref()?)))
        .collect();
    if serving.is_empty() {
        return;
    }
    for (name, kind, help, of) in FIGURES {
        head(out, name, kind, help);
        for (shard, figures) in &serving {
            sample(out, name, &format!("shard=\"{shard}\""), of(figures) as f64);
        }
    }
    let name = "scylla_alternator_operation";
    head(out, name, "counter", "Requests of the DynamoDB API by operation.");
    for (shard, figures) in &serving {
        for (operation, count, _) in &figures.operations {
            sample(out, name, &format!("shard=\"{shard}\",op=\"{operation}\""), *count as f64);
        }
    }
    let latencies = serving.iter().flat_map(|(shard, figures)| {
        let label = move |operation: &str| format!("shard=\"{shard}\",op=\"{operation}\"");
        figures.operations.iter().map(move |(operation, _, latencies)| (label(operation), latencies))
    });
    let help = "Requests of the DynamoDB API by operation, microseconds.";
    histogram_of(out, "scylla_alternator_op_latency", help, latencies);
    by_label(out, &serving, ("scylla_alternator_batch_item_count", "op"), "Items of batches.", |f| {
        &f.batch_items
    });
    let name = "scylla_alternator_rcu_total";
    head(out, name, "counter", "Units of capacity that reads of the DynamoDB API consumed.");
    for (shard, figures) in &serving {
        sample(out, name, &format!("shard=\"{shard}\""), figures.read_half_units as f64 / 2.0);
    }
    let help = "Units of capacity that writes of the DynamoDB API consumed.";
    by_label(out, &serving, ("scylla_alternator_wcu_total", "op"), help, |f| &f.write_units);
    let help = "Requests of the DynamoDB API answered with an error, by its type.";
    by_label(out, &serving, ("torc_alternator_errors", "type"), help, |f| &f.errors);
}

fn by_label(
    out: &mut String,
    serving: &[(usize, &AlternatorFigures)],
    (name, label): (&str, &str),
    help: &str,
    counts: fn(&AlternatorFigures) -> &Vec<(String, u64)>,
) {
    head(out, name, "counter", help);
    for (shard, figures) in serving {
        for (value, count) in counts(figures) {
            sample(out, name, &format!("shard=\"{shard}\",{label}=\"{value}\""), *count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coordinator::Latencies;

    use super::*;

    #[test]
    fn every_figure_is_exported_and_no_other() {
        let mut out = String::new();
        write(&mut out, &[ShardFigures::default()]);
        assert_eq!(out, "", "a node without the API has none of them");
        let mut latencies = Latencies::default();
        latencies.add(Duration::from_micros(20));
        let alternator = AlternatorFigures {
            total_operations: 1,
            operations: vec![("PutItem".to_owned(), 2, latencies)],
            unsupported_operations: 3,
            reads_before_write: 4,
            write_using_lwt: 5,
            requests_shed: 6,
            authentication_failures: 7,
            authorization_failures: 8,
            filtered_rows_read: 19,
            filtered_rows_matched: 9,
            batch_items: vec![("BatchGetItem".to_owned(), 11)],
            read_half_units: 21,
            write_units: vec![("PutItem".to_owned(), 18)],
            errors: vec![("ValidationException".to_owned(), 12)],
            connections_shed: 13,
            tls_handshake_failures: 14,
            connections: 15,
            requests_serving: 16,
            requests_bytes: 17,
        };
        let shards = [
            ShardFigures::default(),
            ShardFigures { alternator: Some(alternator), ..ShardFigures::default() },
        ];
        write(&mut out, &shards);
        for line in [
            "scylla_alternator_total_operations{shard=\"1\"} 1",
            "scylla_alternator_operation{shard=\"1\",op=\"PutItem\"} 2",
            "scylla_alternator_unsupported_operations{shard=\"1\"} 3",
            "scylla_alternator_reads_before_write{shard=\"1\"} 4",
            "scylla_alternator_write_using_lwt{shard=\"1\"} 5",
            "scylla_alternator_requests_shed{shard=\"1\"} 6",
            "scylla_alternator_authentication_failures{shard=\"1\"} 7",
            "scylla_alternator_authorization_failures{shard=\"1\"} 8",
            "scylla_alternator_filtered_rows_read_total{shard=\"1\"} 19",
            "scylla_alternator_filtered_rows_matched_total{shard=\"1\"} 9",
            "scylla_alternator_filtered_rows_dropped_total{shard=\"1\"} 10",
            "scylla_alternator_batch_item_count{shard=\"1\",op=\"BatchGetItem\"} 11",
            "scylla_alternator_rcu_total{shard=\"1\"} 10.5",
            "scylla_alternator_wcu_total{shard=\"1\",op=\"PutItem\"} 18",
            "torc_alternator_errors{shard=\"1\",type=\"ValidationException\"} 12",
            "torc_alternator_connections_shed{shard=\"1\"} 13",
            "torc_alternator_tls_handshake_failures{shard=\"1\"} 14",
            "torc_alternator_connections{shard=\"1\"} 15",
            "torc_alternator_requests_serving{shard=\"1\"} 16",
            "torc_alternator_requests_bytes{shard=\"1\"} 17",
            "scylla_alternator_op_latency_bucket{shard=\"1\",op=\"PutItem\",le=\"16\"} 0",
            "scylla_alternator_op_latency_bucket{shard=\"1\",op=\"PutItem\",le=\"32\"} 1",
            "scylla_alternator_op_latency_sum{shard=\"1\",op=\"PutItem\"} 20",
            "scylla_alternator_op_latency_count{shard=\"1\",op=\"PutItem\"} 1",
        ] {
            assert!(out.lines().any(|other| other == line), "{line} is not in:\n{out}");
        }
        assert!(!out.contains("shard=\"0\""), "that shard does not serve it");
        let heads = out.lines().filter(|line| line.starts_with("# TYPE")).count();
        assert_eq!(heads, FIGURES.len() + 6);
    }
}

//! Guardrails: warnings and refusals for ordinary roles, word for word as in Cassandra 5.0.6 (`testdata/guardrails.txt`).

use exec::{ExecLimits, Guardrails, RefusedValues, Thresholds};

use crate::golden::{Node, check_on, show};
use crate::memory::Memory;

fn bounds(warn: u64, fail: u64) -> Thresholds {
    Thresholds { warn: Some(warn), fail: Some(fail) }
}

fn limits() -> ExecLimits {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let guardrails = Guardrails {
        keyspaces: bounds(2, 3),
        tables: bounds(3, 5),
        columns_per_table: bounds(3, 6),
        secondary_indexes_per_table: bounds(1, 1),
        materialized_views_per_table: bounds(1, 2),
        fields_per_udt: bounds(2, 4),
        vector_dimensions: bounds(2, 4),
        minimum_replication_factor: Thresholds { warn: Some(2), fail: None },
        partition_keys_in_select: bounds(2, 5),
        in_select_cartesian_product: bounds(3, 8),
        items_per_collection: bounds(2, 4),
        column_value_size: bounds(16, 32),
        table_properties: RefusedValues {
            warned: names(&["comment"]),
            disallowed: names(&["gc_grace_seconds"]),
        },
        read_consistency_levels: RefusedValues { warned: names(&["ONE"]), ..RefusedValues::default() },
        user_timestamps_enabled: false,
        alter_table_enabled: false,
        group_by_enabled: false,
        drop_truncate_table_enabled: false,
        drop_keyspace_enabled: false,
        uncompressed_tables_enabled: false,
        read_before_write_list_operations_enabled: false,
        allow_filtering_enabled: false,
        ..Guardrails::default()
    };
    ExecLimits { guardrails, bcrypt_cost: 4, ..ExecLimits::default() }
}

#[test]
fn of_ordinary_roles() {
    check_on(&Node::with_superuser(limits()), "guardrails.txt");
}

#[test]
fn nobody_is_bound_without_authentication() {
    let node = Node::with_limits(Memory::new(), limits());
    for text in [
        "CREATE KEYSPACE a WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE a.t (k int PRIMARY KEY, b int, c int, d int, e int, f int, g int)",
        "TRUNCATE a.t",
        "DROP KEYSPACE a",
    ] {
        let shown = show(&node.query(text));
        assert!(!shown.contains("Guardrail"), "{text}: {shown}");
    }
}

/// Beyond Cassandra's words for them, which name a time.
#[test]
fn of_timestamps_and_of_windows_without_expiry() {
    const DAY: u64 = 86_400_000_000;
    let guardrails = Guardrails {
        maximum_timestamp: bounds(DAY, 2 * DAY),
        minimum_timestamp: Thresholds { warn: None, fail: Some(400 * 365 * DAY) },
        zero_ttl_on_twcs_warned: true,
        ..Guardrails::default()
    };
    let node = Node::with_superuser(ExecLimits { guardrails, bcrypt_cost: 4, ..ExecLimits::default() });
    for text in [
        "CREATE ROLE ann WITH LOGIN = true",
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "GRANT ALL ON ALL KEYSPACES TO ann",
        "CREATE TABLE ks.t (k int PRIMARY KEY, v int)",
    ] {
        node.run(text);
    }
    node.run("INSERT INTO ks.t (k, v) VALUES (0, 0)");
    let rows = node.rows("SELECT writetime(v) FROM ks.t WHERE k = 0");
    let written = rows[0][0].as_ref().expect("it was written");
    let now = i64::from_be_bytes(*written.first_chunk().expect("a bigint"));
    let at = |days: i64| now + days * DAY as i64 + DAY as i64 / 2;
    let write = |days: i64| format!("INSERT INTO ks.t (k, v) VALUES (1, 1) USING TIMESTAMP {}", at(days));
    let batch = |days: i64| format!("BEGIN BATCH {} ; APPLY BATCH", write(days));
    let windows = |name: &str, ttl: u32| {
        format!(
            "CREATE TABLE ks.{name} (k int PRIMARY KEY) WITH compaction = {{'class': 'TimeWindowCompactionStrategy'}} \
             AND default_time_to_live = {ttl}"
        )
    };
    for (role, text, expected) in [
        ("cassandra", write(5), ""),
        ("cassandra", windows("w0", 0), ""),
        ("ann", write(0), ""),
        (
            "ann",
            write(1),
            "warning: Guardrail maximum_timestamp violated: The modification to table t has a timestamp",
        ),
        ("ann", batch(1), "after the maximum allowable warning threshold"),
        ("ann", write(3), "! Invalid: Guardrail maximum_timestamp violated"),
        ("ann", batch(3), "after the maximum allowable failure threshold"),
        ("ann", write(-500 * 365), "! Invalid: Guardrail minimum_timestamp violated"),
        ("ann", windows("w1", 0), "warning: Guardrail zero_ttl_on_twcs violated: default_time_to_live is 0"),
        ("ann", windows("w2", 60), ""),
    ] {
        node.log_in(role);
        let shown = show(&node.query(&text));
        match expected {
            "" => assert!(!shown.contains("Guardrail"), "{role}: {text}: {shown}"),
            expected => assert!(shown.contains(expected), "{role}: {text}: {shown}"),
        }
    }
}

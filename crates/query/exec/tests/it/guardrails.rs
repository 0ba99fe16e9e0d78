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

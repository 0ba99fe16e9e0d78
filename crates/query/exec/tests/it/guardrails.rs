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
        (
            "ann",
            windows("w1", 0),
            "warning: Guardrail zero_ttl_on_twcs violated: 0 default_time_to_live on a table",
        ),
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

/// Of values by their type, of terms of SAI, and of queries of indexes; the words are Cassandra's.
#[test]
fn of_values_terms_and_queries_of_indexes() {
    let guardrails = Guardrails {
        column_ascii_value_size: bounds(2, 4),
        column_blob_value_size: bounds(3, 5),
        column_text_and_varchar_value_size: bounds(6, 8),
        sai_string_term_size: bounds(3, 5),
        sai_frozen_term_size: bounds(12, 24),
        sai_vector_term_size: bounds(8, 12),
        non_partition_restricted_index_query_enabled: false,
        intersect_filtering_query_warned: true,
        ..Guardrails::default()
    };
    let node = Node::with_superuser(ExecLimits { guardrails, bcrypt_cost: 4, ..ExecLimits::default() });
    for text in [
        "CREATE ROLE ann WITH LOGIN = true",
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "GRANT ALL ON ALL KEYSPACES TO ann",
        "CREATE TABLE ks.t (k int PRIMARY KEY, a ascii, b blob, t text, s text, f frozen<list<int>>, l list<text>, \
         m map<int, text>, v vector<float, 4>, w vector<float, 3>)",
        "CREATE INDEX ON ks.t (s) USING 'sai'",
        "CREATE INDEX ON ks.t (full(f)) USING 'sai'",
        "CREATE INDEX ON ks.t (l) USING 'sai'",
        "CREATE INDEX ON ks.t (values(m)) USING 'sai'",
        "CREATE INDEX ON ks.t (v) USING 'sai'",
        "CREATE INDEX ON ks.t (w) USING 'sai'",
        "CREATE TABLE ks.c (k int, c int, s text, PRIMARY KEY (k, c))",
        "CREATE INDEX ON ks.c (s)",
    ] {
        node.run(text);
    }
    let insert = |column: &str, value: &str| format!("INSERT INTO ks.t (k, {column}) VALUES (1, {value})");
    let exceeds = |kind: &str, name: &str, column: &str, size: usize, bound: usize| {
        format!(
            "Guardrail {name} violated: Value of column '{column}' has size {size}, this exceeds the {kind} threshold of {bound}."
        )
    };
    let warned = |name: &str, column: &str, size, bound| {
        format!("warning: {}", exceeds("warning", name, column, size, bound))
    };
    let refused = |name: &str, column: &str, size, bound| {
        format!("! Invalid: {}", exceeds("failure", name, column, size, bound))
    };
    let both = "Guardrail intersect_filtering_query violated: Filtering query with intersection on mutable columns at \
                consistency level requiring coordinator reconciliation is not recommended. Filtering queries involving";
    for (role, text, expected) in [
        ("cassandra", insert("a", "'12345'"), String::new()),
        ("ann", insert("a", "'12'"), String::new()),
        ("ann", insert("a", "'123'"), warned("column_ascii_value_size", "a", 3, 2)),
        ("ann", insert("a", "'12345'"), refused("column_ascii_value_size", "a", 5, 4)),
        ("ann", insert("b", "0x01020304"), warned("column_blob_value_size", "b", 4, 3)),
        ("ann", insert("b", "0x010203040506"), refused("column_blob_value_size", "b", 6, 5)),
        ("ann", insert("t", "'123456'"), String::new()),
        ("ann", insert("t", "'1234567'"), warned("column_text_and_varchar_value_size", "t", 7, 6)),
        ("ann", insert("t", "'123456789'"), refused("column_text_and_varchar_value_size", "t", 9, 8)),
        ("ann", insert("s", "'1234'"), warned("sai_string_term_size", "s", 4, 3)),
        ("ann", insert("s", "'123456'"), refused("sai_string_term_size", "s", 6, 5)),
        ("ann", insert("f", "[1]"), String::new()),
        ("ann", insert("f", "[1, 2]"), warned("sai_frozen_term_size", "f", 20, 12)),
        ("ann", insert("f", "[1, 2, 3]"), refused("sai_frozen_term_size", "f", 28, 24)),
        ("ann", insert("l", "['1', '1234']"), warned("sai_string_term_size", "l", 4, 3)),
        ("ann", insert("m", "{1: '123456'}"), refused("sai_string_term_size", "m", 6, 5)),
        ("ann", insert("w", "[1, 2, 3]"), warned("sai_vector_term_size", "w", 12, 8)),
        ("ann", insert("v", "[1, 2, 3, 4]"), refused("sai_vector_term_size", "v", 16, 12)),
        (
            "ann",
            "SELECT k FROM ks.t WHERE s = '12'".to_owned(),
            "! Invalid: Guardrail non_partition_restricted_index_query_enabled violated: Non-partition key restricted query \
             is not allowed. Executing a query on secondary indexes without partition key restriction might degrade performance"
                .to_owned(),
        ),
        ("cassandra", "SELECT k FROM ks.t WHERE s = '12'".to_owned(), String::new()),
        ("ann", "SELECT k FROM ks.t WHERE a = '1' ALLOW FILTERING".to_owned(), String::new()),
        ("ann", "SELECT k FROM ks.c WHERE k = 1 AND s = '12'".to_owned(), String::new()),
        (
            "ann",
            "SELECT k FROM ks.c WHERE s = '12'".to_owned(),
            "! Invalid: Guardrail non_partition_restricted_index_query_enabled violated".to_owned(),
        ),
    ] {
        node.log_in(role);
        let shown = show(&node.query(&text));
        match expected.as_str() {
            "" => assert!(!shown.contains("Guardrail"), "{role}: {text}: {shown}"),
            expected => assert!(shown.contains(expected), "{role}: {text}: {shown}"),
        }
    }
    node.log_in("ann");
    let by_two = "SELECT k FROM ks.t WHERE a = '1' AND b = 0x01 ALLOW FILTERING";
    let shown = show(&node.query_at(by_two, wire::Consistency::Quorum));
    assert!(shown.contains(both), "{shown}");
    let shown = show(&node.query(by_two));
    assert!(!shown.contains("Guardrail"), "one replica needs no reconciliation: {shown}");
}

/// The bounds of terms bind writes of indexed tables where there is no other guardrail, as by default.
#[test]
fn terms_are_bound_without_other_guardrails() {
    let guardrails = Guardrails { sai_string_term_size: bounds(3, 5), ..Guardrails::default() };
    assert!(guardrails.binds_terms() && !guardrails.binds_requests());
    let node = Node::with_superuser(ExecLimits { guardrails, bcrypt_cost: 4, ..ExecLimits::default() });
    for text in [
        "CREATE ROLE ann WITH LOGIN = true",
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "GRANT ALL ON ALL KEYSPACES TO ann",
        "CREATE TABLE ks.t (k int PRIMARY KEY, s text)",
        "CREATE TABLE ks.plain (k int PRIMARY KEY, s text)",
        "CREATE INDEX ON ks.t (s) USING 'sai'",
        "CREATE TABLE ks.rows (k int, s text, PRIMARY KEY (k, s))",
        "CREATE INDEX ON ks.rows (s) USING 'sai'",
        "CREATE TABLE ks.parts (k int, s text, PRIMARY KEY ((k, s)))",
        "CREATE INDEX ON ks.parts (s) USING 'sai'",
    ] {
        node.run(text);
    }
    node.log_in("ann");
    let insert =
        |table: &str| show(&node.query(&format!("INSERT INTO ks.{table} (k, s) VALUES (1, '123456')")));
    for table in ["t", "rows", "parts"] {
        assert!(insert(table).contains("Guardrail sai_string_term_size violated"), "{}", insert(table));
    }
    assert!(!insert("plain").contains("Guardrail"), "{}", insert("plain"));
}

/// A guardrail with the statements that it warns of and refuses; an empty one is of a guardrail that does not.
struct Guarded {
    name: &'static str,
    set: fn(&mut Guardrails),
    warns: &'static str,
    fails: &'static str,
}

fn guarded(
    name: &'static str,
    set: fn(&mut Guardrails),
    warns: &'static str,
    fails: &'static str,
) -> Guarded {
    Guarded { name, set, warns, fails }
}

fn one(name: &str) -> std::collections::BTreeSet<String> {
    [name.to_owned()].into()
}

const SIMPLE: &str =
    "CREATE KEYSPACE z WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
const REPLICATED: &str =
    "CREATE KEYSPACE x WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 2}";
const REPLICATED_MORE: &str =
    "CREATE KEYSPACE y WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}";
const VIEW: &str = "CREATE MATERIALIZED VIEW ks.m1 AS SELECT k, v FROM ks.t WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k)";
const SECOND_VIEW: &str = "CREATE MATERIALIZED VIEW ks.m2 AS SELECT k, w FROM ks.t WHERE k IS NOT NULL AND w IS NOT NULL PRIMARY KEY (w, k)";

fn of_the_schema() -> Vec<Guarded> {
    vec![
        guarded("keyspaces", |all| all.keyspaces = bounds(1, 2), REPLICATED, REPLICATED_MORE),
        guarded(
            "tables",
            |all| all.tables = bounds(2, 3),
            "CREATE TABLE ks.a (k int PRIMARY KEY)",
            "CREATE TABLE ks.b (k int PRIMARY KEY)",
        ),
        guarded(
            "columns_per_table",
            |all| all.columns_per_table = bounds(1, 2),
            "CREATE TABLE ks.a (k int PRIMARY KEY, a int)",
            "CREATE TABLE ks.b (k int PRIMARY KEY, a int, b int)",
        ),
        guarded(
            "secondary_indexes_per_table",
            |all| all.secondary_indexes_per_table = bounds(0, 1),
            "CREATE INDEX ON ks.t (v)",
            "CREATE INDEX ON ks.t (w)",
        ),
        guarded(
            "materialized_views_per_table",
            |all| all.materialized_views_per_table = bounds(0, 1),
            VIEW,
            SECOND_VIEW,
        ),
        guarded(
            "fields_per_udt",
            |all| all.fields_per_udt = bounds(1, 2),
            "CREATE TYPE ks.a (a int, b int)",
            "CREATE TYPE ks.b (a int, b int, c int)",
        ),
        guarded(
            "vector_dimensions",
            |all| all.vector_dimensions = bounds(2, 3),
            "CREATE TABLE ks.a (k int PRIMARY KEY, v vector<float, 3>)",
            "CREATE TABLE ks.b (k int PRIMARY KEY, v vector<float, 4>)",
        ),
        guarded(
            "minimum_replication_factor",
            |all| all.minimum_replication_factor = bounds(3, 2),
            REPLICATED,
            SIMPLE,
        ),
        guarded(
            "maximum_replication_factor",
            |all| all.maximum_replication_factor = bounds(1, 2),
            REPLICATED,
            REPLICATED_MORE,
        ),
        guarded(
            "table_properties",
            |all| {
                all.table_properties =
                    RefusedValues { warned: one("comment"), disallowed: one("gc_grace_seconds") }
            },
            "ALTER TABLE ks.t WITH comment = 'x'",
            "CREATE TABLE ks.a (k int PRIMARY KEY) WITH gc_grace_seconds = 5",
        ),
        guarded("alter_table", |all| all.alter_table_enabled = false, "", "ALTER TABLE ks.t ADD v int"),
        guarded(
            "drop_truncate_table_enabled",
            |all| all.drop_truncate_table_enabled = false,
            "",
            "DROP TABLE IF EXISTS nowhere.nothing",
        ),
        guarded(
            "drop_keyspace_enabled",
            |all| all.drop_keyspace_enabled = false,
            "",
            "DROP KEYSPACE nowhere",
        ),
        guarded(
            "secondary_indexes",
            |all| all.secondary_indexes_enabled = false,
            "",
            "CREATE INDEX ON ks.nothing (v)",
        ),
        guarded(
            "uncompressed_tables_enabled",
            |all| all.uncompressed_tables_enabled = false,
            "",
            "CREATE TABLE ks.a (k int PRIMARY KEY) WITH compression = {'enabled': 'false'}",
        ),
        guarded(
            "compact_tables",
            |all| all.compact_tables_enabled = false,
            "",
            "CREATE TABLE ks.a (k int PRIMARY KEY, v int) WITH COMPACT STORAGE",
        ),
        guarded("simplestrategy", |all| all.simplestrategy_enabled = false, "", SIMPLE),
        guarded(
            "vector_type_enabled",
            |all| all.vector_type_enabled = false,
            "",
            "CREATE TABLE ks.a (k int PRIMARY KEY, v vector<float, 2>)",
        ),
        guarded(
            "zero_ttl_on_twcs",
            |all| all.zero_ttl_on_twcs_enabled = false,
            "",
            "CREATE TABLE ks.a (k int PRIMARY KEY) WITH compaction = {'class': 'TimeWindowCompactionStrategy'}",
        ),
    ]
}

fn of_requests() -> Vec<Guarded> {
    vec![
        guarded("page_size", |all| all.page_size = bounds(98, 99), "", "SELECT * FROM ks.t"),
        guarded("page_size", |all| all.page_size = bounds(99, 1000), "SELECT * FROM ks.t", ""),
        guarded(
            "partition_keys_in_select",
            |all| all.partition_keys_in_select = bounds(1, 2),
            "SELECT * FROM ks.t WHERE k IN (1, 2)",
            "SELECT * FROM ks.t WHERE k IN (1, 2, 3)",
        ),
        guarded(
            "in_select_cartesian_product",
            |all| all.in_select_cartesian_product = bounds(1, 2),
            "SELECT * FROM ks.t WHERE k IN (1, 2)",
            "SELECT * FROM ks.t WHERE k IN (1, 2, 3)",
        ),
        // Of writes, too, though it is named after SELECT; equal values count.
        guarded(
            "in_select_cartesian_product",
            |all| all.in_select_cartesian_product = bounds(1, 2),
            "UPDATE ks.t SET v = 1 WHERE k IN (1, 1)",
            "DELETE FROM ks.t WHERE k IN (1, 2, 3)",
        ),
        guarded(
            "items_per_collection",
            |all| all.items_per_collection = bounds(1, 2),
            "UPDATE ks.t SET s = {'a', 'b'} WHERE k = 1",
            "UPDATE ks.t SET s = {'a', 'b', 'c'} WHERE k = 1",
        ),
        // A cell has 20 bytes beside its path and its value.
        guarded(
            "collection_size",
            |all| all.collection_size = bounds(20, 21),
            "UPDATE ks.t SET s = {'a'} WHERE k = 1",
            "UPDATE ks.t SET s = {'ab'} WHERE k = 1",
        ),
        guarded(
            "column_value_size",
            |all| all.column_value_size = bounds(1, 2),
            "UPDATE ks.t SET s = {'ab'} WHERE k = 1",
            "UPDATE ks.t SET s = {'abc'} WHERE k = 1",
        ),
        guarded(
            "read_consistency_levels",
            |all| all.read_consistency_levels.warned = one("ONE"),
            "SELECT * FROM ks.t",
            "",
        ),
        guarded(
            "read_consistency_levels",
            |all| all.read_consistency_levels.disallowed = one("ONE"),
            "",
            "SELECT * FROM ks.t",
        ),
        guarded(
            "write_consistency_levels",
            |all| all.write_consistency_levels.warned = one("ONE"),
            "INSERT INTO ks.t (k) VALUES (1)",
            "",
        ),
        guarded(
            "write_consistency_levels",
            |all| all.write_consistency_levels.disallowed = one("ONE"),
            "",
            "BEGIN BATCH INSERT INTO ks.t (k) VALUES (1); APPLY BATCH",
        ),
        guarded(
            "user_timestamps",
            |all| all.user_timestamps_enabled = false,
            "",
            "INSERT INTO ks.t (k) VALUES (1) USING TIMESTAMP 5",
        ),
        guarded("group_by", |all| all.group_by_enabled = false, "", "SELECT count(*) FROM ks.t GROUP BY k"),
        guarded(
            "read_before_write_list_operations",
            |all| all.read_before_write_list_operations_enabled = false,
            "",
            "UPDATE ks.t SET l = l - [1] WHERE k = 1",
        ),
        guarded(
            "allow_filtering",
            |all| all.allow_filtering_enabled = false,
            "",
            "SELECT * FROM ks.t WHERE v = 1 ALLOW FILTERING",
        ),
    ]
}

/// Those that warn and fail; [`of_values_terms_and_queries_of_indexes`] and [`of_timestamps_and_of_windows_without_expiry`] have the others.
#[test]
fn each_warns_and_fails() {
    for Guarded { name, set, warns, fails } in of_the_schema().into_iter().chain(of_requests()) {
        let mut guardrails = Guardrails::default();
        set(&mut guardrails);
        let node = Node::with_superuser(ExecLimits { guardrails, bcrypt_cost: 4, ..ExecLimits::default() });
        for text in [
            "CREATE ROLE ann WITH LOGIN = true",
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "GRANT ALL ON ALL KEYSPACES TO ann",
            "CREATE TABLE ks.t (k int PRIMARY KEY, v int, w int, l list<int>, s set<text>)",
            "CREATE TABLE ks.other (k int PRIMARY KEY)",
        ] {
            node.run(text);
        }
        node.log_in("ann");
        let violated = format!("Guardrail {name} violated: ");
        let ask = |text: &str| {
            let mut parameters = Node::values(&[]);
            parameters.page_size = Some(100);
            show(&node.request(|request| request.query(text, &parameters)))
        };
        if !warns.is_empty() {
            let shown = ask(warns);
            assert!(
                !shown.contains('!') && shown.contains(&format!("warning: {violated}")),
                "{warns}: {shown}"
            );
        }
        if !fails.is_empty() {
            let shown = ask(fails);
            assert!(shown.contains(&format!("! Invalid: {violated}")), "{fails}: {shown}");
        }
    }
}

/// As in Cassandra, elements that are deleted do not count.
#[test]
fn deletions_of_elements_do_not_count() {
    let guardrails = Guardrails {
        items_per_collection: bounds(1, 2),
        collection_size: bounds(20, 30),
        ..Guardrails::default()
    };
    let node = Node::with_superuser(ExecLimits { guardrails, bcrypt_cost: 4, ..ExecLimits::default() });
    for text in [
        "CREATE ROLE ann WITH LOGIN = true",
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "GRANT ALL ON ALL KEYSPACES TO ann",
        "CREATE TABLE ks.t (k int PRIMARY KEY, s set<text>, m map<text, int>)",
    ] {
        node.run(text);
    }
    node.log_in("ann");
    for text in [
        "UPDATE ks.t SET s = s - {'a', 'b', 'c', 'd'} WHERE k = 1",
        "UPDATE ks.t SET m = m - {'a', 'b', 'c', 'd'} WHERE k = 1",
        "DELETE m['a'], m['b'], m['c'] FROM ks.t WHERE k = 1",
        "UPDATE ks.t SET s = null WHERE k = 1",
    ] {
        let shown = show(&node.query(text));
        assert!(!shown.contains("Guardrail"), "{text}: {shown}");
    }
}

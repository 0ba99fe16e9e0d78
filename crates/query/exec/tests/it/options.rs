//! Every option of tables and keyspaces with values that a hostile client sends. Accepted ones survive the cluster's log
//! (the cluster in memory passes each change through its codec) and DESCRIBE; everything else is refused with an error of the
//! protocol. A number that JSON cannot hold would stop every node at that entry of the log.

use wire::ErrorKind;
use wire::client::{AnswerBody, ResultBody};

use crate::golden::Node;

/// Options of a table that are one constant.
pub const PLAIN: &[&str] = &[
    "additional_write_policy",
    "allow_auto_snapshot",
    "bloom_filter_fp_chance",
    "cdc",
    "comment",
    "crc_check_chance",
    "dclocal_read_repair_chance",
    "default_time_to_live",
    "gc_grace_seconds",
    "incremental_backups",
    "max_index_interval",
    "memtable",
    "memtable_flush_period_in_ms",
    "min_index_interval",
    "paxos_grace_seconds",
    "read_repair",
    "read_repair_chance",
    "speculative_retry",
];

/// Entries of options that are maps: the option, the entries that must stand beside, the entry.
const ENTRIES: &[(&str, &str, &[&str])] = &[
    ("caching", "", &["keys", "rows_per_partition", "enabled", "other"]),
    ("extensions", "", &["e"]),
    ("cdc", "", &["enabled"]),
    ("cdc", "'enabled': 'true', ", &["delta", "postimage", "preimage", "ttl"]),
    ("tombstone_gc", "'mode': 'repair', ", &["propagation_delay_in_seconds"]),
    ("tombstone_gc", "", &["mode"]),
    ("per_partition_rate_limit", "", &["max_reads_per_second", "max_writes_per_second"]),
    (
        "compression",
        "'class': 'LZ4Compressor', ",
        &[
            "chunk_length_in_kb",
            "chunk_length_kb",
            "enabled",
            "lz4_compressor_type",
            "lz4_high_compressor_level",
            "max_compressed_length",
            "min_compress_ratio",
        ],
    ),
    ("compression", "'class': 'ZstdCompressor', ", &["compression_level"]),
    ("compression", "'class': 'LZ4Compressor', 'chunk_length_kb': '16', ", &["crc_check_chance"]),
    ("compression", "", &["class", "sstable_compression", "enabled"]),
    ("compaction", "", &["class"]),
    (
        "compaction",
        "'class': 'SizeTieredCompactionStrategy', ",
        &[
            "bucket_high",
            "bucket_low",
            "enabled",
            "log_all",
            "max_threshold",
            "min_sstable_size",
            "min_threshold",
            "only_purge_repaired_tombstones",
            "provide_overlapping_tombstones",
            "tombstone_compaction_interval",
            "tombstone_threshold",
            "unchecked_tombstone_compaction",
        ],
    ),
    (
        "compaction",
        "'class': 'LeveledCompactionStrategy', ",
        &[
            "fanout_size",
            "single_sstable_uplevel",
            "sstable_size_in_mb",
            "max_threshold",
            "tombstone_threshold",
        ],
    ),
    (
        "compaction",
        "'class': 'TimeWindowCompactionStrategy', ",
        &[
            "bucket_high",
            "compaction_window_size",
            "compaction_window_unit",
            "expired_sstable_check_frequency_seconds",
            "min_threshold",
            "timestamp_resolution",
            "unsafe_aggressive_sstable_expiration",
        ],
    ),
    (
        "compaction",
        "'class': 'UnifiedCompactionStrategy', ",
        &[
            "base_shard_count",
            "enabled",
            "expired_sstable_check_frequency_seconds",
            "flush_size_override",
            "max_sstables_to_compact",
            "min_sstable_size",
            "overlap_inclusion_method",
            "provide_overlapping_tombstones",
            "scaling_parameters",
            "sstable_growth",
            "target_sstable_size",
            "unsafe_aggressive_sstable_expiration",
        ],
    ),
    (
        "compaction",
        "'class': 'IncrementalCompactionStrategy', ",
        &[
            "max_threshold",
            "min_sstable_size",
            "min_threshold",
            "space_amplification_goal",
            "sstable_size_in_mb",
            "tombstone_threshold",
        ],
    ),
];

/// The text of a value, without the quotes of a string.
pub fn values() -> Vec<String> {
    let plain = [
        "",
        " ",
        "nan",
        "NaN",
        "-NaN",
        "inf",
        "-inf",
        "Infinity",
        "-Infinity",
        "infinity",
        "nanms",
        "NaNms",
        "infms",
        "-1ms",
        "1e309ms",
        "1e3ms",
        "0ms",
        "0.1ms",
        "99999999999ms",
        "2147483647ms",
        "2147483648ms",
        ".ms",
        "ms",
        "infPERCENTILE",
        "NaNPERCENTILE",
        "nanp",
        "p",
        "99.9p",
        "33.333333333333336p",
        "0.1p",
        "0p",
        "-1p",
        "100p",
        "101p",
        "99.99999999999999PERCENTILE",
        "MIN(nanp,5ms)",
        "MAX(99p,infms)",
        "MIN(99.9p,0.3ms)",
        "MAX(5ms,7p)",
        "MIN(99p",
        "MIN()",
        "ALWAYS",
        "never",
        "0",
        "-0",
        "+0",
        "1",
        "+1",
        "-1",
        "2",
        "4",
        "5",
        "16",
        "+16",
        "32",
        "65536",
        "131072",
        "1048576",
        "16KiB",
        "128MiB",
        "1.5 GiB",
        "99999999999999999999GiB",
        "infB",
        "0.1",
        "0.3",
        "0.30000000000000004",
        "1.0",
        "1.5",
        "-0.0",
        "-0.1",
        "1.0000000000000002",
        "1e-5",
        "5e-324",
        "1.7976931348623157e308",
        "1e308",
        "1e309",
        "-1e309",
        "1797693134862315700000",
        "127",
        "128",
        "255",
        "256",
        "32767",
        "32768",
        "65535",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551616",
        "340282366920938463463374607431768211456",
        "true",
        "FALSE",
        "yes",
        "null",
        "ALL",
        "none",
        "NONE",
        "BLOCKING",
        "timeout",
        "repair",
        "default",
        "fast",
        "high",
        "hours",
        "SECONDS",
        "MICROSECONDS",
        "transitive",
        "keys",
        "T4, L8 ,N,-7",
        "T4,,N",
        "L1",
        "T99999999999",
        ",",
        "33%",
        "nan%",
        "row",
        "LZ4Compressor",
        "SnappyCompressor",
        "NoopCompressor",
        "ZstdCompressor",
        "SizeTieredCompactionStrategy",
        "LeveledCompactionStrategy",
        "TimeWindowCompactionStrategy",
        "UnifiedCompactionStrategy",
        "IncrementalCompactionStrategy",
        "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy",
        "0x",
        "0xff",
        "0xf",
        "'",
        "\"",
        "\\",
        "/*",
        "$$",
        "\0",
        "1\0",
        "\u{1}\u{7f}",
        "é",
        "ß",
        "İ",
        "１",
        "🦀",
        "\u{feff}1",
        "\u{202e}",
        "{}",
        "a': 'b",
    ];
    let mut all: Vec<String> = plain.map(str::to_owned).to_vec();
    for (text, times) in
        [("a", 65_536), ("\0", 65_536), ("🦀", 16_384), ("9", 65_536), ("a", 65_537), ("é", 131_072)]
    {
        all.push(text.repeat(times));
    }
    all.push(format!("0.{}1", "0".repeat(65_000)));
    all.push(format!("0.{}1p", "0".repeat(65_000)));
    all.push(format!("{}ms", "0".repeat(65_000)));
    all
}

pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The statement that makes the table, as the server describes it.
fn described(node: &Node) -> String {
    let rows = node.rows("DESCRIBE TABLE ks.t");
    String::from_utf8(rows[0][3].clone().unwrap()).unwrap()
}

/// Whether the statement was carried out; an answer that is neither a result nor a refusal is a failure.
pub fn accepted(node: &Node, statement: &str) -> bool {
    match node.query(statement).body {
        AnswerBody::Result(ResultBody::SchemaChange(_) | ResultBody::Void) => true,
        AnswerBody::Error(error) => {
            let refusal =
                matches!(error.kind, ErrorKind::ConfigError | ErrorKind::Invalid | ErrorKind::SyntaxError);
            assert!(refusal, "{}: {error}", start(statement));
            assert!(error.message.len() < 2_000, "{}: a message repeats the whole value", start(statement));
            false
        }
        other => panic!("{}: {other:?}", start(statement)),
    }
}

pub fn start(text: &str) -> String {
    text.chars().take(300).collect()
}

/// The options of the table. DESCRIBE gives the default where `incremental_backups` was not given.
fn options(node: &Node) -> schema::TableOptions {
    let mut options = node.options("ks", "t");
    options.incremental_backups.get_or_insert(true);
    options
}

/// Makes the table with an option, and again as DESCRIBE gives it. Says whether the value was accepted.
fn check(node: &Node, option: &str) -> bool {
    let create = format!("CREATE TABLE ks.t (k int PRIMARY KEY, v int) WITH {option}");
    if !accepted(node, &create) {
        return false;
    }
    let (before, text) = (options(node), described(node));
    node.run("DROP TABLE ks.t");
    assert!(accepted(node, &text), "{}: DESCRIBE told {}", start(option), start(&text));
    assert_eq!(options(node), before, "{}: DESCRIBE told {}", start(option), start(&text));
    assert_eq!(described(node), text);
    assert!(accepted(node, &format!("ALTER TABLE ks.t WITH {option}")), "{}", start(option));
    assert_eq!(options(node), before, "{}", start(option));
    node.run("DROP TABLE ks.t");
    true
}

fn node() -> Node {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node
}

#[test]
fn every_option_of_a_table_survives_the_log_and_describe_or_is_refused() {
    let node = node();
    for option in PLAIN {
        let mut taken = 0;
        for value in values() {
            taken += u32::from(check(&node, &format!("{option} = {}", quoted(&value))));
            check(&node, &format!("{option} = {value}"));
        }
        assert!(taken > 0, "no value of {option} is accepted: the test asks for nothing");
        assert!(!check(&node, &format!("{option} = {{'a': 'b'}}")));
    }
}

#[test]
fn every_entry_of_an_option_survives_the_log_and_describe_or_is_refused() {
    let node = node();
    for (option, beside, names) in ENTRIES {
        for name in *names {
            let mut taken = 0;
            for value in values() {
                let entry = |value: &str| format!("{option} = {{{beside}'{name}': {value}}}");
                taken += u32::from(check(&node, &entry(&quoted(&value))));
                check(&node, &entry(&value));
                check(&node, &format!("{option} = {{{beside}{}: '1'}}", quoted(&value)));
            }
            assert!(taken > 0 || *name == "other", "no value of {option} {name} is accepted");
        }
    }
}

#[test]
fn options_of_keyspaces_survive_the_log_and_describe_or_are_refused() {
    let node = Node::new();
    let classes = ["SimpleStrategy", "NetworkTopologyStrategy", "EverywhereStrategy", "LocalStrategy"];
    let mut taken = 0;
    for value in values() {
        let mut options: Vec<String> = classes
            .iter()
            .flat_map(|class| {
                ["replication_factor", "datacenter1"]
                    .map(|name| format!("replication = {{'class': '{class}', '{name}': {}}}", quoted(&value)))
            })
            .collect();
        options.push(format!("replication = {{'class': {}}}", quoted(&value)));
        options
            .push(format!("replication = {{'class': 'NetworkTopologyStrategy', {}: '1'}}", quoted(&value)));
        options.push(format!(
            "replication = {{'class': 'SimpleStrategy'}} AND durable_writes = {}",
            quoted(&value)
        ));
        for option in options {
            if !accepted(&node, &format!("CREATE KEYSPACE ks WITH {option}")) {
                continue;
            }
            taken += 1;
            let text = node.rows("DESCRIBE ONLY KEYSPACE ks")[0][3].clone().unwrap();
            node.run("DROP KEYSPACE ks");
            assert!(accepted(&node, std::str::from_utf8(&text).unwrap()), "{}", start(&option));
            assert_eq!(
                node.rows("DESCRIBE ONLY KEYSPACE ks")[0][3].as_ref(),
                Some(&text),
                "{}",
                start(&option)
            );
            node.run("DROP KEYSPACE ks");
        }
    }
    assert!(taken > 20, "{taken} values were accepted");
}

#[test]
fn numbers_that_are_none_are_refused_with_an_error_of_configuration() {
    let node = node();
    for option in [
        "speculative_retry = 'nanms'",
        "speculative_retry = 'infPERCENTILE'",
        "speculative_retry = '-1ms'",
        "speculative_retry = '100p'",
        "speculative_retry = 'MIN(nanp,infms)'",
        "additional_write_policy = 'nanms'",
        "read_repair_chance = NaN",
        "crc_check_chance = NaN",
        "bloom_filter_fp_chance = NaN",
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'bucket_high': 'NaN'}",
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'tombstone_threshold': 'inf'}",
        "compression = {'class': 'LZ4Compressor', 'crc_check_chance': 'NaN'}",
        "compression = {'class': 'LZ4Compressor', 'min_compress_ratio': 'inf'}",
        "compaction = {'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'DAYS'}",
        "cdc = true",
        "compaction = {'class': 'UnifiedCompactionStrategy', 'sstable_growth': 'NaN'}",
        "compaction = {'class': 'UnifiedCompactionStrategy', 'min_threshold': '4'}",
        "compaction = {'class': 'UnifiedCompactionStrategy', 'min_sstable_size': '1GiB'}",
        "compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4,,N'}",
        "compaction = {'class': 'IncrementalCompactionStrategy', 'space_amplification_goal': '1.0'}",
        "compaction = {'class': 'IncrementalCompactionStrategy', 'space_amplification_goal': 'NaN'}",
        "compaction = {'class': 'IncrementalCompactionStrategy', 'bucket_low': '0.5'}",
    ] {
        assert!(!check(&node, option), "{option} was accepted");
    }
}

#[test]
fn options_of_scylladb_alone_are_stored_or_refused_by_name() {
    crate::golden::check("scylla_options.txt");
}

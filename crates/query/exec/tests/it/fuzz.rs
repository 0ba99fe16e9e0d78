//! Statements made at random of the grammar's parts: expressions of every function, operator and literal over columns of every
//! type, and commands that change the schema with options of any value. Each is answered with a result or a refusal, soon,
//! and never ends the process; what changes the schema passes through the codec of the cluster's log.

use testkit::fuzz::{Random, hunt};
use wire::ErrorKind;
use wire::client::AnswerBody;

use crate::golden::Node;

const COLUMNS: &[&str] = &[
    "k", "c", "st", "a", "bi", "bl", "bo", "d", "de", "dbl", "du", "f", "i", "s", "t", "ts", "tu", "ti", "u",
    "vi", "tx", "l", "se", "m", "fl", "fm", "tup", "ve", "us", "nosuch",
];

const LITERALS: &[&str] = &[
    "0",
    "1",
    "-1",
    "7",
    "127",
    "128",
    "-128",
    "32768",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999999999999999999999999",
    "0.0",
    "-0.0",
    "1.5",
    "1e3",
    "1e-300",
    "1e308",
    "1e309",
    "-1e309",
    "1e2147483647",
    "1e-2147483648",
    "1e99999999999",
    "NaN",
    "Infinity",
    "-Infinity",
    "''",
    "'a'",
    "'\u{e9}'",
    "'\0'",
    "'2020-01-01'",
    "'now'",
    "'10:00'",
    "'127.0.0.1'",
    "'::'",
    "'{'",
    "'[1,2]'",
    "'null'",
    "$$x$$",
    "true",
    "false",
    "null",
    "0x",
    "0xff",
    "0x0",
    "0xCAFEBABE",
    "1h",
    "-1mo",
    "1y2mo3d",
    "P1Y",
    "9223372036854775807ns",
    "178956970y8mo",
    "50554d6e-29bb-11e5-b345-feff819cdc9f",
    "00000000-0000-0000-0000-000000000000",
    "?",
    ":x",
    "[]",
    "{}",
    "()",
];

const FUNCTIONS: &[&str] = &[
    "abs",
    "exp",
    "log",
    "log10",
    "round",
    "to_json",
    "toJson",
    "from_json",
    "fromJson",
    "token",
    "now",
    "uuid",
    "current_timestamp",
    "current_date",
    "min_timeuuid",
    "max_timeuuid",
    "to_date",
    "to_timestamp",
    "to_unix_timestamp",
    "floor",
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "int_as_blob",
    "blob_as_int",
    "text_as_blob",
    "blob_as_text",
    "varint_as_blob",
    "blob_as_varint",
    "blob_as_decimal",
    "blob_as_timeuuid",
    "map_keys",
    "map_values",
    "collection_count",
    "collection_min",
    "collection_max",
    "collection_sum",
    "collection_avg",
    "mask_default",
    "mask_null",
    "mask_replace",
    "mask_inner",
    "mask_outer",
    "mask_hash",
    "similarity_cosine",
    "similarity_euclidean",
    "similarity_dot_product",
    "writetime",
    "maxwritetime",
    "ttl",
    "dateOf",
    "system.abs",
    "nosuch",
];

const TYPES: &[&str] = &[
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "date",
    "decimal",
    "double",
    "duration",
    "float",
    "inet",
    "int",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varint",
    "counter",
    "list<int>",
    "frozen<set<text>>",
    "map<int, decimal>",
    "tuple<int, text>",
    "vector<float, 3>",
    "vector<int, 2147483647>",
    "us",
    "nosuch",
    "frozen<list<frozen<map<text, tuple<int, blob>>>>>",
    "vector<int, 0>",
    "list<counter>",
    "map<duration, int>",
];

fn expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.below(6) == 0 {
        return match random.below(2) {
            0 => (*random.of(COLUMNS)).to_owned(),
            _ => (*random.of(LITERALS)).to_owned(),
        };
    }
    let many = |random: &mut Random, most: usize| {
        let parts: Vec<String> = (0..random.below(most + 1)).map(|_| expression(random, depth - 1)).collect();
        parts.join(", ")
    };
    match random.below(12) {
        0..=3 => {
            let (left, right) = (expression(random, depth - 1), expression(random, depth - 1));
            format!("({left} {} {right})", random.of(&["+", "-", "*", "/", "%"]))
        }
        4 | 5 => format!("{}({})", random.of(FUNCTIONS), many(random, 3)),
        6 => format!("-({})", expression(random, depth - 1)),
        7 => format!("CAST({} AS {})", expression(random, depth - 1), random.of(&TYPES[..19])),
        8 => format!("({}){}", random.of(TYPES), expression(random, depth - 1)),
        9 => match random.below(4) {
            0 => format!("[{}]", many(random, 3)),
            1 => format!("{{{}}}", many(random, 3)),
            2 => format!("({})", many(random, 3)),
            _ => format!("{{{}: {}}}", expression(random, depth - 1), expression(random, depth - 1)),
        },
        10 => format!("{}[{}]", random.of(COLUMNS), expression(random, depth - 1)),
        _ => format!("{}.{}", random.of(COLUMNS), random.of(&["x", "y", "nosuch"])),
    }
}

fn statement(random: &mut Random) -> String {
    let depth = 1 + random.below(6);
    let one = |random: &mut Random| expression(random, depth);
    let column = random.of(COLUMNS);
    match random.below(12) {
        0..=2 => format!("SELECT {} FROM ks.t", one(random)),
        3 => format!("SELECT JSON {} AS x, {} FROM ks.t GROUP BY k", one(random), one(random)),
        4 => format!(
            "SELECT {column} FROM ks.t WHERE {column} {} {} LIMIT {} ALLOW FILTERING",
            random.of(&["=", "<", ">", "<=", ">=", "!=", "CONTAINS", "CONTAINS KEY", "IN"]),
            one(random),
            random.of(LITERALS)
        ),
        5 => format!("SELECT * FROM ks.t WHERE token(k) > {} AND c IN ({})", one(random), one(random)),
        6 | 7 => format!(
            "INSERT INTO ks.t (k, c, {column}) VALUES (1, 1, {}) USING TTL {} AND TIMESTAMP {}",
            one(random),
            random.of(LITERALS),
            random.of(LITERALS)
        ),
        8 => format!(
            "UPDATE ks.t SET {column} = {column} {} {} WHERE k = 1 AND c = 1",
            random.of(&["+", "-"]),
            one(random)
        ),
        9 => format!(
            "UPDATE ks.t SET {column}[{}] = {} WHERE k = 1 AND c = {}",
            one(random),
            one(random),
            one(random)
        ),
        10 => format!(
            "DELETE {column}[{}] FROM ks.t WHERE k = 1 AND c = 1 IF {column} = {}",
            one(random),
            one(random)
        ),
        _ => format!(
            "INSERT INTO ks.t JSON '{{\"k\": 1, \"c\": 1, \"{column}\": {}}}'",
            random.of(LITERALS).replace('\'', "\"")
        ),
    }
}

fn option(random: &mut Random) -> String {
    let name = random.of(&[
        "additional_write_policy",
        "bloom_filter_fp_chance",
        "caching",
        "cdc",
        "comment",
        "compaction",
        "compression",
        "crc_check_chance",
        "default_time_to_live",
        "extensions",
        "gc_grace_seconds",
        "id",
        "max_index_interval",
        "memtable",
        "memtable_flush_period_in_ms",
        "min_index_interval",
        "read_repair",
        "read_repair_chance",
        "speculative_retry",
        "tombstone_gc",
        "nosuch",
        "replication",
        "durable_writes",
        "tablets",
    ]);
    let text = |random: &mut Random| {
        random.of(&[
            "nanms",
            "99p",
            "0.5",
            "NaN",
            "1",
            "-1",
            "1e400",
            "\u{e9}",
            "",
            "SizeTieredCompactionStrategy",
            "\0",
            "16",
            "ALL",
            "TimeWindowCompactionStrategy",
            "LZ4Compressor",
            "repair",
            "2147483648",
            "SimpleStrategy",
            "datacenter1",
            "true",
        ])
    };
    let key = |random: &mut Random| {
        random.of(&[
            "class",
            "bucket_high",
            "tombstone_threshold",
            "min_threshold",
            "chunk_length_in_kb",
            "mode",
            "keys",
            "rows_per_partition",
            "compaction_window_size",
            "replication_factor",
            "datacenter1",
            "crc_check_chance",
        ])
    };
    match random.below(3) {
        0 => format!("{name} = '{}'", text(random)),
        1 => format!("{name} = {}", random.of(LITERALS)),
        _ => {
            let entries: Vec<String> =
                (0..random.below(4)).map(|_| format!("'{}': '{}'", key(random), text(random))).collect();
            format!("{name} = {{{}}}", entries.join(", "))
        }
    }
}

fn command(random: &mut Random) -> String {
    let ty = random.of(TYPES);
    let name = random.of(&["x", "y", "\"A b\"", "\"\u{e9}\"", "\"\0\"", "nosuch", "k"]);
    match random.below(11) {
        0 => format!(
            "CREATE TABLE ks.n (k int, c {ty}, v {}, PRIMARY KEY (k, c)) WITH {}",
            random.of(TYPES),
            option(random)
        ),
        1 => format!("CREATE TABLE ks.n (k {ty} PRIMARY KEY, {name} {} static)", random.of(TYPES)),
        2 => "DROP TABLE ks.n".to_owned(),
        3 => format!("ALTER TABLE ks.n WITH {} AND {}", option(random), option(random)),
        4 => format!("ALTER TABLE ks.n ADD {name} {ty}"),
        5 => format!("ALTER TABLE ks.n DROP {name} USING TIMESTAMP {}", random.of(LITERALS)),
        6 => format!("ALTER TABLE ks.n RENAME k TO {name}"),
        7 => format!("CREATE TYPE ks.n (a {ty}, {name} {})", random.of(TYPES)),
        8 => format!("ALTER TYPE ks.n ADD {name} {ty}"),
        9 => "DROP TYPE ks.n".to_owned(),
        _ => format!("CREATE KEYSPACE n WITH {}", option(random)),
    }
}

fn node() -> Node {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TYPE ks.us (x int, y text)");
    node.run(
        "CREATE TABLE ks.t (k int, c int, st int static, a ascii, bi bigint, bl blob, bo boolean, d date, de decimal, \
         dbl double, du duration, f float, i inet, s smallint, t time, ts timestamp, tu timeuuid, ti tinyint, u uuid, \
         vi varint, tx text, l list<int>, se set<text>, m map<int, text>, fl frozen<list<decimal>>, \
         fm frozen<map<text, varint>>, tup tuple<int, text>, ve vector<float, 2>, us us, PRIMARY KEY (k, c))",
    );
    node.run(
        "INSERT INTO ks.t (k, c, st, a, bi, bl, bo, d, de, dbl, du, f, i, s, t, ts, tu, ti, u, vi, tx, l, se, m, fl, fm, tup, \
         ve, us) VALUES (1, 1, 1, 'a', -9223372036854775808, 0xff, true, '2020-01-01', 1.5, NaN, 1mo2d3h, 1e30, '::1', -32768, \
         '10:00:00', '2020-01-01', 50554d6e-29bb-11e5-b345-feff819cdc9f, -128, 50554d6e-29bb-11e5-b345-feff819cdc9f, \
         99999999999999999999, '\"', [1, 2], {'a', ''}, {1: 'x'}, [1.5, 1e100], {'a': 5}, (1, null), [0.5, 1.5], {x: 1})",
    );
    node
}

/// Statements of a round.
const PER_ROUND: usize = 100;

/// Runs rounds of statements on a node each; most of them must mean something, or the generator has lost its sense.
fn run(target: &str, make: fn(&mut Random) -> String) {
    let (mut rounds, mut taken) = (0, 0);
    hunt(target, |random| {
        rounds += 1;
        taken += round(random, make);
    });
    assert!(taken > rounds, "of {rounds} rounds {taken} statements were carried out");
}

/// Runs statements; gives how many were carried out.
fn round(random: &mut Random, make: fn(&mut Random) -> String) -> usize {
    let (node, mut taken) = (node(), 0);
    for _ in 0..PER_ROUND {
        let statement = make(random);
        let before = crate::hostile::cpu();
        match node.query(&statement).body {
            AnswerBody::Result(_) => taken += 1,
            AnswerBody::Error(error) => assert!(
                matches!(
                    error.kind,
                    ErrorKind::Invalid
                        | ErrorKind::SyntaxError
                        | ErrorKind::ConfigError
                        | ErrorKind::Unauthorized
                        | ErrorKind::AlreadyExists { .. }
                        | ErrorKind::FunctionFailure { .. }
                ),
                "{statement}: {error}"
            ),
            other => panic!("{statement}: {other:?}"),
        }
        let took = crate::hostile::cpu() - before;
        assert!(took.as_secs() < 5, "{took:?} for {statement}");
    }
    taken
}

#[test]
fn statements_of_random_expressions_are_answered() {
    run("expressions", statement);
}

#[test]
fn random_changes_of_the_schema_are_answered() {
    run("schema changes", command);
}

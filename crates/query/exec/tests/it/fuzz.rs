//! Statements made at random of the grammar's parts: expressions of every function, operator and literal over columns of every
//! type, commands that change the schema with options of any value, and statements about everything else that there is in a schema
//! (`grammar`), with values bound to their markers. Each is answered with a result or a refusal, soon, and never ends the process; statements that
//! change the schema pass through the codec of the cluster's log.

use std::time::Duration;

use exec::{ExecLimits, FunctionLimits};
use testkit::fuzz::{Random, hunt};
use wire::client::{Answer, AnswerBody, Parameters, ResultBody};
use wire::{Consistency, ErrorKind, ProtocolError, Value};

use crate::golden::Node;
use crate::grammar;

const COLUMNS: &[&str] = &[
    "k", "c", "st", "a", "bi", "bl", "bo", "d", "de", "dbl", "du", "f", "i", "s", "t", "ts", "tu", "ti", "u",
    "vi", "tx", "l", "se", "m", "fl", "fm", "tup", "ve", "us", "nosuch",
];

/// Literals of every type, at the ends of their ranges and beyond.
pub const LITERALS: &[&str] = &[
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

/// Types, of which the first nineteen are simple ones.
pub const TYPES: &[&str] = &[
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

/// An expression over columns of `ks.t` that is at most so deep.
pub fn expression(random: &mut Random, depth: usize) -> String {
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

/// A node on which the objects of [`grammar`] are there, and permissions count.
fn node_of_objects() -> Node {
    let functions =
        FunctionLimits { enabled: true, fail_after: Duration::from_millis(20), ..FunctionLimits::default() };
    let limits = ExecLimits { data_masking: true, functions, bcrypt_cost: 4, ..ExecLimits::default() };
    let node = Node::with_superuser(limits);
    grammar::MADE.iter().for_each(|text| node.run(text));
    node
}

/// Statements of a round.
const PER_ROUND: usize = 100;
/// CPU time of a statement in a debug build.
const STATEMENT_MAX: Duration = Duration::from_secs(5);

/// Runs rounds of statements on a node each; most of them must mean something, or the generator has lost its sense.
fn run(target: &str, node: fn() -> Node, make: fn(&mut Random) -> String) {
    let (mut rounds, mut taken) = (0, 0);
    hunt(target, |random| {
        rounds += 1;
        let node = node();
        for _ in 0..PER_ROUND {
            let statement = make(random);
            taken += usize::from(carried_out(&node, random, &statement));
        }
    });
    println!("{target}: {taken} of {} statements were carried out", rounds * PER_ROUND);
    assert!(taken > rounds, "of {rounds} rounds {taken} statements were carried out");
}

/// Bytes for a marker: the lengths and the ends of the ranges of the types, and others.
fn bound(random: &mut Random) -> Vec<u8> {
    let len = *random.of(&[0, 1, 2, 4, 4, 4, 8, 8, 12, 16, 20, 3, 300]);
    let mut bytes = vec![*random.of(&[0, 0xff, 0x80, 0x7f, 0x20]); len];
    if random.one_in(2) {
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
    }
    if random.one_in(3)
        && let Some(last) = bytes.last_mut()
    {
        *last = 1;
    }
    bytes
}

/// Asks for a statement as a client does, with values and other parameters at random if it has markers.
fn ask(node: &Node, random: &mut Random, statement: &str) -> Result<Answer, ProtocolError> {
    let markers = statement.matches('?').count();
    if markers == 0 && !random.one_in(8) {
        return Ok(node.query(statement));
    }
    let held: Vec<Vec<u8>> = (0..markers).map(|_| bound(random)).collect();
    let value = |random: &mut Random, bytes| match random.below(8) {
        0 => Value::Null,
        1 => Value::Unset,
        _ => Value::Set(bytes),
    };
    let values: Vec<Value<'_>> = held.iter().map(|bytes| value(random, bytes)).collect();
    let state = bound(random);
    let mut parameters = Parameters::new(Consistency::One, &values);
    parameters.page_size = random.one_in(2).then(|| *random.of(&[1, 2, i32::MAX, 0, -1, i32::MIN]));
    parameters.paging_state = random.one_in(4).then_some(&*state);
    parameters.timestamp =
        random.one_in(4).then(|| *random.of(&[0, 1, -1, i64::MAX, i64::MIN + 1, i64::MIN]));
    parameters.now_in_seconds = random.one_in(8).then(|| *random.of(&[0, 1, -1, i32::MAX, i32::MIN]));
    parameters.serial_consistency = random.one_in(8).then_some(Consistency::LocalSerial);
    if random.one_in(2) {
        return node.try_request(|request| request.query(statement, &parameters));
    }
    let prepared = node.request(|request| request.prepare(statement, None));
    let AnswerBody::Result(ResultBody::Prepared(found)) = &prepared.body else { return Ok(prepared) };
    node.try_request(|request| request.execute(&found.metadata.id, &[], &parameters))
}

/// Whether a statement was carried out; if it was not, its error has to name the reason.
fn carried_out(node: &Node, random: &mut Random, statement: &str) -> bool {
    if let Some(role) = statement.strip_prefix(grammar::LOG_IN) {
        node.log_in(role);
        return false;
    }
    let before = crate::hostile::cpu();
    let answer = ask(node, random, statement);
    let took = crate::hostile::cpu() - before;
    assert!(took < STATEMENT_MAX, "{took:?} for {statement}");
    let Ok(answer) = answer else { return false };
    match answer.body {
        AnswerBody::Result(_) => true,
        AnswerBody::Error(error) => {
            let is_clear = matches!(
                error.kind,
                ErrorKind::Invalid
                    | ErrorKind::SyntaxError
                    | ErrorKind::ConfigError
                    | ErrorKind::Unauthorized
                    | ErrorKind::AlreadyExists { .. }
                    | ErrorKind::FunctionFailure { .. }
            );
            // A state that no server has given out is an error of the protocol, as in Cassandra.
            assert!(is_clear || error.kind == ErrorKind::ProtocolError, "{statement}: {error}");
            false
        }
        other => panic!("{statement}: {other:?}"),
    }
}

#[test]
fn statements_of_random_expressions_are_answered() {
    run("expressions", node, statement);
}

#[test]
fn random_changes_of_the_schema_are_answered() {
    run("schema changes", node, command);
}

#[test]
fn statements_about_objects_are_answered() {
    run("objects", node_of_objects, grammar::object_statement);
}

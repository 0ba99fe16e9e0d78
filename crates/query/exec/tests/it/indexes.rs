//! Reads by way of an index: the answer of an index is the answer of a filter, in pages of any size.

use crate::golden::Node;
use crate::memory::Memory;
use crate::paging::paged_within;

/// Cells of a row.
type Cells = Vec<Option<Vec<u8>>>;

/// A small generator of numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Two tables with the same rows: `t` has indexes and `plain` has none.
fn filled(seed: u64) -> (Node, Memory) {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    for table in ["t", "plain"] {
        node.run(&format!(
            "CREATE TABLE ks.{table} (k int, k2 int, c int, d text, s int static, v int, w text, x int, l list<int>, \
             st set<int>, m map<text, int>, f frozen<list<int>>, PRIMARY KEY ((k, k2), c, d)) \
             WITH CLUSTERING ORDER BY (c DESC, d ASC)"
        ));
    }
    for target in ["v", "w", "s", "k", "d", "l", "st", "m", "keys(m)", "entries(m)", "full(f)"] {
        node.run(&format!("CREATE INDEX ON ks.t ({target}) USING 'sai'"));
    }
    node.run("CREATE INDEX ON ks.t ((k, k2), x)");
    node.run(
        "CREATE CUSTOM INDEX prefixes ON ks.t (w) USING 'org.apache.cassandra.index.sasi.SASIIndex' \
         WITH OPTIONS = {'mode': 'PREFIX'}",
    );
    let mut draw = Draw(seed);
    for _ in 0..400 {
        let (k, k2) = (draw.below(6), draw.below(3));
        let (c, d) = (draw.below(5), ["a", "b", "ab"][draw.below(3) as usize]);
        let change = match draw.below(10) {
            0 => format!("s = {} WHERE k = {k} AND k2 = {k2}", draw.below(3)),
            1 => format!("v = null, w = null WHERE k = {k} AND k2 = {k2} AND c = {c} AND d = '{d}'"),
            2 => format!(
                "m['{}'] = {}, l = l + [{}], st = st + {{{}}} WHERE k = {k} AND k2 = {k2} AND c = {c} AND d = '{d}'",
                ["x", "y"][draw.below(2) as usize],
                draw.below(3),
                draw.below(3),
                draw.below(3)
            ),
            n => format!(
                "v = {}, w = '{}', x = {n}, f = [{}] WHERE k = {k} AND k2 = {k2} AND c = {c} AND d = '{d}'",
                draw.below(4),
                ["a", "ab", "abc", "b", "é"][draw.below(5) as usize],
                draw.below(3)
            ),
        };
        let deleted = (draw.below(25) == 0).then(|| format!("WHERE k = {k} AND k2 = {k2} AND c = {c}"));
        for table in ["t", "plain"] {
            node.run(&format!("UPDATE ks.{table} SET {change}"));
            if let Some(rows) = &deleted {
                node.run(&format!("DELETE FROM ks.{table} {rows}"));
            }
        }
    }
    // A partition with nothing but a static row.
    for table in ["t", "plain"] {
        node.run(&format!("INSERT INTO ks.{table} (k, k2, s) VALUES (1, 77, 1)"));
    }
    (node, memory)
}

fn paged(node: &Node, text: &str, size: i32) -> Vec<Cells> {
    paged_within(node, text, size, 2000)
}

/// Conditions that an index finds.
const CONDITIONS: [&str; 43] = [
    "v = 1",
    "v = 1 AND w = 'ab'",
    "v = 1 AND x = 7",
    "v > 1",
    "v >= 1 AND v < 3 AND w = 'a'",
    "v BETWEEN 1 AND 2",
    "w = 'é'",
    "s = 1",
    "s = 1 AND v = 2",
    "s > 0 AND c > 1",
    "k = 1",
    "k > 2 AND v = 0",
    "k = 1 AND c = 3",
    "d = 'ab'",
    "d = 'a' AND v = 1",
    "l CONTAINS 1",
    "l CONTAINS 1 AND l CONTAINS 2",
    "st CONTAINS 2",
    "m CONTAINS 1",
    "m CONTAINS KEY 'x'",
    "m['x'] = 1",
    "m['x'] = 1 AND m['y'] = 0",
    "f = [1]",
    "token(k, k2) > 0 AND v = 1 AND c IN (1, 2)",
    "k = 1 AND k2 = 2 AND v = 1",
    "k = 1 AND k2 = 2 AND v = 1 AND w = 'ab'",
    "k = 1 AND k2 = 2 AND c > 1 AND v = 1",
    "k = 1 AND k2 = 2 AND c IN (1, 3, 4) AND v > 0 AND st CONTAINS 2",
    "k = 1 AND k2 = 2 AND d = 'ab'",
    "k = 2 AND k2 = 0 AND m['x'] = 1 AND s = 1",
    "k = 2 AND k2 = 0 AND x = 3",
    "k = 2 AND k2 = 0 AND s >= 0 AND l CONTAINS 1",
    "v IN (1, 3)",
    "v IN (3, 1, 3, 9)",
    "v IN (0, 2) AND w IN ('a', 'é', 'abc')",
    "w = 'ab' AND v IN (1, 2, 3)",
    "v IN (1, 2) AND x > 5",
    "s IN (1, 2)",
    "s IN (0, 1) AND v = 3",
    "k IN (1, 3)",
    "d IN ('a', 'ab') AND c > 1",
    "f IN ([1], [2])",
    "k = 1 AND k2 = 2 AND w = 'ab' AND v IN (1, 2)",
];

#[test]
fn an_index_returns_the_rows_of_a_filter() {
    for seed in 1..4 {
        let (node, memory) = filled(seed);
        let mut rows = 0;
        for condition in CONDITIONS {
            for (select, end) in [
                ("k, k2, c, d, s, v", ""),
                ("k, k2, c, d", "PER PARTITION LIMIT 2"),
                ("k, k2, c, d", "LIMIT 5"),
                ("k, k2, c, d", "PER PARTITION LIMIT 1 LIMIT 4"),
                ("count(*), max(v), min(x)", ""),
                ("k, k2, count(*)", "GROUP BY k, k2"),
                ("k, k2, c, count(*)", "GROUP BY k, k2, c LIMIT 3"),
            ] {
                let text = |table: &str| {
                    format!("SELECT {select} FROM ks.{table} WHERE {condition} {end} ALLOW FILTERING")
                };
                let expected = node.rows(&text("plain"));
                assert_eq!(memory.index_reads(), 0, "{condition}");
                assert_eq!(node.rows(&text("t")), expected, "{condition} {end} of {select}, seed {seed}");
                assert!(memory.index_reads() > 0, "{condition} uses an index");
                for size in [1, 2, 3, 7, 100] {
                    assert_eq!(
                        paged(&node, &text("t"), size),
                        expected,
                        "{condition} {end} of {select} in pages of {size}, seed {seed}"
                    );
                }
                memory.index_reads();
                rows += expected.len();
            }
        }
        assert!(rows > 1000, "{rows} rows make no test");
    }
}

/// A row that its key names needs no index, and a serial read sees a partition at one time.
#[test]
fn partitions_that_are_read_as_a_whole() {
    let (node, memory) = filled(3);
    for (condition, reads) in [
        ("k = 1 AND k2 = 2 AND v = 1", 1),
        ("k = 1 AND k2 = 2 AND c = 1 AND d = 'a' AND v = 1", 0),
        ("k = 1 AND k2 = 2 AND v > 1", 0),
        ("k = 1 AND k2 = 2 AND s = 1", 0),
        ("k = 1 AND k2 = 2 AND token(k, k2) > 0 AND v = 1", 0),
    ] {
        node.rows(&format!("SELECT c FROM ks.t WHERE {condition} ALLOW FILTERING"));
        assert_eq!(memory.index_reads(), reads, "{condition}");
    }
    let mut rows = 0;
    for k in 0..6 {
        let text = format!("SELECT c, d FROM ks.t WHERE k = {k} AND k2 = 2 AND v = 1 ALLOW FILTERING");
        let expected = node.rows(&text);
        memory.indexes_building.set(true);
        for size in [1, 2, 100] {
            assert_eq!(paged(&node, &text, size), expected, "before the index is built, in pages of {size}");
        }
        memory.indexes_building.set(false);
        rows += expected.len();
    }
    assert!(rows > 6, "{rows} rows make no test");
    memory.index_reads();
    let text =
        |table: &str| format!("SELECT c, d FROM ks.{table} WHERE k = 1 AND k2 = 2 AND v = 1 ALLOW FILTERING");
    assert_eq!(node.rows_at(&text("t"), wire::Consistency::Serial), node.rows(&text("plain")));
    assert_eq!(memory.index_reads(), 0, "a serial read");
}

/// The rows of a partition, when the index is unavailable from the second or third page of places on.
#[test]
fn an_index_that_becomes_unavailable_midway_returns_no_row_twice() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))");
    node.run("CREATE INDEX ON ks.t (v) USING 'sai'");
    for c in 0..2_500 {
        node.run(&format!("INSERT INTO ks.t (k, c, v) VALUES (1, {c}, {})", i32::from(c % 50 == 0)));
    }
    for (text, count) in [
        ("SELECT c FROM ks.t WHERE k = 1 AND v = 0", 2_450),
        ("SELECT c FROM ks.t WHERE v IN (0, 1) ALLOW FILTERING", 2_500),
    ] {
        memory.index_reads_left.set(u64::MAX);
        let expected = node.rows(text);
        assert_eq!(expected.len(), count);
        assert!(memory.index_reads() > 1, "{text} uses the index");
        for reads in 0..6 {
            memory.index_reads_left.set(reads);
            assert_eq!(node.rows(text), expected, "{text} after {reads} pages of places");
            memory.index_reads_left.set(reads);
            assert_eq!(paged(&node, text, 700), expected, "{text} in pages, after {reads} pages of places");
        }
    }
    memory.index_reads_left.set(u64::MAX);
}

/// IN needs ALLOW FILTERING as in Cassandra; up to 64 lists of places are united.
#[test]
fn choices_of_values_by_way_of_an_index() {
    let (node, memory) = filled(4);
    let text = |table: &str, condition: &str| {
        format!("SELECT k, k2, c, d, v FROM ks.{table} WHERE {condition} ALLOW FILTERING")
    };
    let values = |count: usize| (0..count).map(|v| v.to_string()).collect::<Vec<_>>().join(", ");
    for (condition, reads) in [
        (format!("v IN ({})", values(64)), 64),
        (format!("v IN ({})", values(65)), 0),
        (format!("v IN ({}) AND x IN (4, 5)", values(65)), 0),
        (format!("v IN ({}) AND w = 'a'", values(64)), 1),
        ("v IN ()".to_owned(), 0),
        ("k = 1 AND k2 = 2 AND v IN (1, 2)".to_owned(), 2),
    ] {
        memory.index_reads();
        let expected = node.rows(&text("plain", &condition));
        assert_eq!(node.rows(&text("t", &condition)), expected, "{condition}");
        assert_eq!(memory.index_reads(), reads, "reads of places for {condition}");
    }
    let refusal = node.refusal("SELECT c FROM ks.t WHERE v IN (1, 2)").expect("it filters");
    assert!(refusal.contains("use ALLOW FILTERING"), "{refusal}");
}

#[test]
fn distinct_partitions_by_way_of_an_index() {
    let (node, memory) = filled(9);
    for condition in ["s = 1", "k = 1", "k > 0 AND s > 0"] {
        let text = |table: &str| {
            format!("SELECT DISTINCT k, k2, s FROM ks.{table} WHERE {condition} ALLOW FILTERING")
        };
        let expected = node.rows(&text("plain"));
        assert!(expected.len() > 1, "{condition}");
        for size in [1, 2, 100] {
            assert_eq!(paged(&node, &text("t"), size), expected, "{condition} in pages of {size}");
        }
        assert!(memory.index_reads() > 0, "{condition} uses an index");
    }
}

#[test]
fn prefixes_by_way_of_an_index() {
    let (node, memory) = filled(5);
    let rows = |condition: &str| {
        let mut rows = node.rows(&format!("SELECT k, k2, c, d, w FROM ks.t WHERE {condition}"));
        assert!(memory.index_reads() > 0, "{condition} uses an index");
        rows.sort();
        rows
    };
    let all = node.rows("SELECT k, k2, c, d, w FROM ks.plain");
    for (pattern, prefix) in [("a%", "a"), ("ab%", "ab"), ("é%", "é"), ("abc", "abc"), ("zz%", "zz")] {
        let begins = |row: &&Cells| row[4].as_ref().is_some_and(|w| w.starts_with(prefix.as_bytes()));
        let mut expected: Vec<Cells> = all.iter().filter(begins).cloned().collect();
        expected.sort();
        assert_eq!(rows(&format!("w LIKE '{pattern}'")), expected, "{pattern}");
        if prefix != "zz" {
            assert!(!expected.is_empty(), "{pattern}");
        }
    }
}

/// SASI's `DelimiterAnalyzer`, as Zipkin uses it: a row is found by each part of its text.
#[test]
fn parts_of_texts_by_way_of_an_index() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, a text)");
    node.run(
        "CREATE CUSTOM INDEX ON ks.t (a) USING 'org.apache.cassandra.index.sasi.SASIIndex' WITH OPTIONS = {'mode': 'PREFIX', \
         'analyzer_class': 'org.apache.cassandra.index.sasi.analyzer.DelimiterAnalyzer', 'delimiter': '░'}",
    );
    // Its name comes first, and LIKE is of parts all the same.
    node.run("CREATE CUSTOM INDEX a_whole ON ks.t (a) USING 'org.apache.cassandra.index.sasi.SASIIndex'");
    for (k, a) in
        ["░error░http.method=GET░", "error", "no error", "http.method=PUT░errors", ""].iter().enumerate()
    {
        node.run(&format!("INSERT INTO ks.t (k, a) VALUES ({k}, '{a}')"));
    }
    for (pattern, expected) in [
        ("error", &[0, 1][..]),
        ("http.method=GET", &[0]),
        ("error%", &[0, 1, 3]),
        ("http.method=%", &[0, 3]),
        ("no", &[]),
        ("░error░http.method=GET░", &[0]),
        ("http.method=GET░error", &[0]),
        ("error░nothing", &[]),
    ] {
        let rows = node.rows(&format!("SELECT k FROM ks.t WHERE a LIKE '{pattern}'"));
        let mut found: Vec<i32> = rows
            .iter()
            .map(|row| i32::from_be_bytes(row[0].as_deref().unwrap().try_into().unwrap()))
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{pattern}");
        assert!(memory.index_reads() > 0, "{pattern} uses the index");
    }
}

/// More places than one read of places fetches, in one partition and in many.
#[test]
fn more_places_than_a_read_fetches() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, k2 int, c int, s int static, v int, PRIMARY KEY ((k, k2), c))");
    for target in ["v", "s", "k"] {
        node.run(&format!("CREATE INDEX ON ks.t ({target}) USING 'sai'"));
    }
    for k in 0..60 {
        node.run(&format!("INSERT INTO ks.t (k, k2, s) VALUES ({k}, 0, {})", k % 2));
        for c in 0..if k == 7 { 2500 } else { 3 } {
            node.run(&format!("INSERT INTO ks.t (k, k2, c, v) VALUES ({k}, 0, {c}, {})", c % 2));
        }
    }
    for (condition, rows) in [("v = 1", 1250 + 59), ("s = 1", 2500 + 29 * 3), ("k = 7", 2500)] {
        let text = format!("SELECT k, c FROM ks.t WHERE {condition}");
        assert_eq!(node.rows(&text).len(), rows, "{condition}");
        for size in [100, 999, 5000] {
            let mut all = paged(&node, &text, size);
            assert_eq!(all.len(), rows, "{condition} in pages of {size}");
            all.sort();
            all.dedup();
            assert_eq!(all.len(), rows, "{condition}: no row twice");
        }
    }
    // A filter that lets no row through needs few reads of places: each of a range looks at all of them.
    for (condition, reads) in [("v >= 0", 2), ("v = 1", 9)] {
        memory.index_reads();
        let text = format!("SELECT c FROM ks.t WHERE {condition} AND k2 = 5 LIMIT 10 ALLOW FILTERING");
        assert!(node.rows(&text).is_empty(), "{text}");
        let made = memory.index_reads();
        assert!(made <= reads, "{made} reads of places for {text}");
    }
    // A few rows need few places.
    memory.index_reads();
    assert_eq!(node.rows("SELECT k, c FROM ks.t WHERE v = 1 LIMIT 1").len(), 1);
    assert_eq!(memory.index_reads(), 1);
}

/// Values that are too long for an index are refused when they are written, whole or as a part of a column.
#[test]
fn values_that_are_too_long_for_an_index() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, s text static, v blob, m map<int, blob>, w text, PRIMARY KEY (k, c))");
    node.run("CREATE INDEX of_s ON ks.t (s) USING 'sai'");
    node.run("CREATE INDEX of_v ON ks.t (v)");
    node.run("CREATE INDEX of_m ON ks.t (values(m))");
    node.run(
        "CREATE CUSTOM INDEX words ON ks.t (w) USING 'sai' WITH OPTIONS = {'index_analyzer': 'standard'}",
    );
    let long = |bytes: usize| format!("0x{}", "ab".repeat(bytes));
    let refused = |index: &str, column: &str, size: usize| {
        let place = format!("for index {index} on ks.t({column})");
        Some(format!("Cannot index value of size {size} {place} (maximum allowed size=65535)"))
    };
    for (bytes, is_refused) in [(65_534, false), (65_535, true), (70_000, true)] {
        let value = long(bytes);
        for (index, column, value) in [
            ("of_s", "s", format!("'{}'", "a".repeat(bytes))),
            ("of_v", "v", value.clone()),
            ("of_m", "m", format!("{{1: {value}}}")),
        ] {
            let expected = is_refused.then(|| refused(index, column, bytes)).flatten();
            for end in ["", " IF NOT EXISTS"] {
                let text = format!("INSERT INTO ks.t (k, c, {column}) VALUES ({bytes}, 1, {value}){end}");
                assert_eq!(node.refusal(&text), expected, "{bytes} bytes of {column}{end}");
            }
            let text = format!("UPDATE ks.t SET {column} = {value} WHERE k = 1 AND c = 1");
            let text = if column == "s" { text.replace(" AND c = 1", "") } else { text };
            assert_eq!(node.refusal(&text), expected, "{bytes} bytes of {column} by UPDATE");
        }
    }
    // Words of a text are short, and a column without an index has any value.
    assert_eq!(
        node.refusal(&format!("INSERT INTO ks.t (k, c, w) VALUES (1, 1, '{}')", "word ".repeat(20_000))),
        None
    );
    node.run("DROP INDEX ks.of_v");
    assert_eq!(node.refusal(&format!("INSERT INTO ks.t (k, c, v) VALUES (1, 1, {})", long(70_000))), None);
}

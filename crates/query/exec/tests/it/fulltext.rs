//! `ORDER BY BM25(…)` against a comparison of all rows.

use text::{Document, FullText, Statistics, TextQuery};

use crate::golden::Node;
use crate::memory::Memory;

const WORDS: [&str; 8] = ["alpha", "beta", "gamma", "delta", "usual", "usual", "usual", "alpine"];

struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Rows (k, c, n, text) that live.
type Rows = Vec<(i32, i32, i32, String)>;

fn filled() -> (Node, Memory, Rows) {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, n int, v text, w text, PRIMARY KEY (k, c))");
    node.run("CREATE CUSTOM INDEX words ON ks.t (v) USING 'fulltext_index'");
    node.run("CREATE CUSTOM INDEX plain ON ks.t (w) USING 'fulltext_index' WITH OPTIONS = {'analyzer': 'english', 'positions': 'false'}");
    node.run("CREATE INDEX ON ks.t (n) USING 'sai'");
    let (mut draw, mut rows) = (Draw(3), Rows::new());
    for at in 0..400 {
        let (k, c, n) = (at % 9, at / 9, at % 5);
        let count = draw.below(9);
        let text: Vec<&str> = (0..count).map(|_| WORDS[draw.below(8) as usize]).collect();
        let text = text.join(" ");
        node.run(&format!(
            "INSERT INTO ks.t (k, c, n, v, w) VALUES ({k}, {c}, {n}, '{text}', 'Running dogs')"
        ));
        // The index still has them.
        match draw.below(12) {
            0 => node.run(&format!("DELETE FROM ks.t WHERE k = {k} AND c = {c}")),
            1 => node.run(&format!("DELETE v FROM ks.t WHERE k = {k} AND c = {c}")),
            _ => rows.push((k, c, n, text)),
        }
    }
    (node, memory, rows)
}

fn int(cell: &Option<Vec<u8>>) -> i32 {
    i32::from_be_bytes(cell.as_deref().expect("not null").try_into().expect("an int"))
}

#[test]
fn the_most_relevant_rows_come_first() {
    let (node, memory, rows) = filled();
    let fulltext = FullText::of(&Default::default()).expect("options");
    let conditions: [(&str, &str, fn(i32, i32, i32) -> bool); 5] = [
        ("", "", |_, _, _| true),
        ("k = 3", "", |k, _, _| k == 3),
        ("k = 3 AND c > 20", "", |k, c, _| k == 3 && c > 20),
        ("n = 2", "", |_, _, n| n == 2),
        ("n > 1 AND c < 12", "ALLOW FILTERING", |_, c, n| n > 1 && c < 12),
    ];
    let mut found = 0;
    for query in [
        "alpha",
        "alpha beta",
        "alpha AND NOT usual",
        "\"alpha beta\"",
        "al*",
        "gamam~1",
        "delta^3 alpha",
        "none",
    ] {
        let parsed = TextQuery::parse(query, &fulltext.analyzer, true).expect("a query");
        for (condition, end, holds) in conditions {
            for limit in [1, 7, 60, 1000] {
                let filter = format!("BM25(v, '{query}') > 0");
                for filter in [String::new(), filter] {
                    let parts: Vec<&str> =
                        [condition, filter.as_str()].into_iter().filter(|one| !one.is_empty()).collect();
                    let clause = if parts.is_empty() {
                        String::new()
                    } else {
                        format!("WHERE {}", parts.join(" AND "))
                    };
                    let text = format!(
                        "SELECT k, c, v FROM ks.t {clause} ORDER BY BM25(v, '{query}') LIMIT {limit} {end}"
                    );
                    memory.index_reads();
                    let result = node.rows(&text);
                    assert!(memory.index_reads() > 0, "{text}");
                    let expected: Vec<&(i32, i32, i32, String)> = rows
                        .iter()
                        .filter(|(k, c, n, text)| {
                            let document =
                                Document::new(&parsed, &fulltext.analyzer, text.as_bytes()).expect("a text");
                            let all = Statistics { texts: 1, terms: 1, with_leaf: Vec::new() };
                            holds(*k, *c, *n) && parsed.score(&document, &all).is_some()
                        })
                        .collect();
                    assert_eq!(result.len(), expected.len().min(limit), "{text}");
                    let is_one = |row: &Vec<Option<Vec<u8>>>| {
                        expected.iter().any(|(k, c, _, _)| (*k, *c) == (int(&row[0]), int(&row[1])))
                    };
                    assert!(result.iter().all(is_one), "{text}");
                    found += result.len();
                }
            }
        }
    }
    assert!(found > 2_000, "{found} rows make no test");
    // More often in a shorter text.
    let scores = |row: &Vec<Option<Vec<u8>>>| {
        let text = String::from_utf8(row[2].clone().unwrap()).unwrap();
        let count = text.split(' ').filter(|word| *word == "alpha").count() as f64;
        let length = text.split(' ').count() as f64;
        count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / 3.9))
    };
    let all = node.rows("SELECT k, c, v FROM ks.t ORDER BY BM25(v, 'alpha') LIMIT 1000");
    assert!(all.is_sorted_by(|a, b| scores(a) >= scores(b) - 0.02));
    // A text that a write replaces is found by its new words at once.
    node.run("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'zebra')");
    assert_eq!(node.rows("SELECT k FROM ks.t ORDER BY BM25(v, 'zebra') LIMIT 5").len(), 1);
    node.run("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'lion')");
    assert_eq!(node.rows("SELECT k FROM ks.t ORDER BY system.bm25(v, 'zebra') LIMIT 5").len(), 0);
}

#[test]
fn relevance_and_marks_are_selected() {
    let (node, _, _) = filled();
    let text = |cell: &Option<Vec<u8>>| String::from_utf8(cell.clone().expect("not null")).expect("text");
    let float = |cell: &Option<Vec<u8>>| f32::from_be_bytes(cell.as_deref().unwrap().try_into().unwrap());
    for query in ["alpha", "delta^3 alpha", "al* AND NOT usual", "\"alpha beta\""] {
        let rows = node.rows(&format!(
            "SELECT BM25(v, '{query}'), k, c, v, highlight(v, '{query}', '[', ']') FROM ks.t ORDER BY BM25(v, '{query}') LIMIT 50"
        ));
        assert!(rows.len() > 3, "{query}");
        assert!(rows.iter().all(|row| float(&row[0]) > 0.0));
        assert!(rows.is_sorted_by(|a, b| float(&a[0]) >= float(&b[0])), "{query}: by relevance");
        for row in &rows {
            let (plain, marked) = (text(&row[3]), text(&row[4]));
            assert_eq!(marked.replace(['[', ']'], ""), plain, "{query}");
            assert!(marked.contains("[al") || marked.contains("[delta]"), "{query}: {marked}");
            assert!(!marked.contains("[usual"), "{query}: {marked}");
        }
    }
    node.run(
        "INSERT INTO ks.t (k, c, v, w) VALUES (100, 1, 'The Quick, quick fox.', 'Dogs run: the dog ran')",
    );
    let one =
        |select: &str| node.rows(&format!("SELECT {select} FROM ks.t WHERE k = 100 AND c = 1")).remove(0);
    for (select, wanted) in [
        ("highlight(v, 'quick')", "The <em>Quick</em>, <em>quick</em> fox."),
        ("highlight(v, 'quikc~1 AND NOT fox')", "The <em>Quick</em>, <em>quick</em> fox."),
        ("highlight(v, 'none')", "The Quick, quick fox."),
        ("system.highlight(w, 'dogs running', '', '*')", "Dogs* run*: the dog* ran"),
    ] {
        assert_eq!(text(&one(select)[0]), wanted, "{select}");
    }
    let json = one("JSON highlight(w, 'ran') AS m");
    assert_eq!(text(&json[0]), r#"{"m": "Dogs run: the dog <em>ran</em>"}"#);
    node.run("DELETE w FROM ks.t WHERE k = 100 AND c = 1");
    assert_eq!(one("highlight(w, 'dog')"), [None]);
    let ordered =
        node.rows("SELECT JSON k, BM25(v, 'fox') AS score FROM ks.t ORDER BY BM25(v, 'fox') LIMIT 1");
    assert!(text(&ordered[0][0]).starts_with(r#"{"k": 100, "score": "#));
}

#[test]
fn statements_that_are_refused() {
    let (node, _, _) = filled();
    const MISPLACED: &str =
        "BM25() in the select clause requires ORDER BY BM25() on the same column with the same query";
    for (text, expected) in [
        ("SELECT BM25(v, 'a') FROM ks.t", MISPLACED),
        ("SELECT BM25(w, 'a') FROM ks.t ORDER BY BM25(v, 'a') LIMIT 3", MISPLACED),
        ("SELECT BM25(v, 'beta') FROM ks.t ORDER BY BM25(v, 'alpha') LIMIT 3", MISPLACED),
        ("SELECT max(BM25(v, 'a')) FROM ks.t", MISPLACED),
        ("SELECT BM25(n, 'a') FROM ks.t", "BM25() requires a fulltext_index on column n"),
        ("SELECT BM25(v) FROM ks.t", "A call of BM25 is BM25(column, query)"),
        ("SELECT highlight(k, 'a') FROM ks.t", "highlight() requires a fulltext_index on column k"),
        ("SELECT highlight(v, '(') FROM ks.t", "A query of full text has a '(' without a ')'"),
        (
            "SELECT highlight(v, 'a', 'x') FROM ks.t",
            "A call of highlight is highlight(column, query) or highlight(column, query, open, close)",
        ),
        (
            "SELECT k FROM ks.t WHERE BM25(v, 'a') > 0 LIMIT 3",
            "BM25() in the WHERE clause requires ORDER BY BM25() on the same column with the same query",
        ),
        (
            "SELECT k FROM ks.t WHERE BM25(v, 'a') > 0 ORDER BY BM25(w, 'a') LIMIT 3",
            "BM25() in the WHERE clause requires ORDER BY BM25() on the same column with the same query",
        ),
        (
            "SELECT k FROM ks.t WHERE BM25(v, 'a') > 0 ORDER BY BM25(v, 'b') LIMIT 3",
            "BM25() in WHERE and in ORDER BY must have the same query",
        ),
        (
            "SELECT k FROM ks.t WHERE BM25(v, 'a') > 1 ORDER BY BM25(v, 'a') LIMIT 3",
            "BM25() in the WHERE clause must be compared as BM25(v, query) > 0",
        ),
        (
            "SELECT k FROM ks.t WHERE BM25(v, 'a') = 0 ORDER BY BM25(v, 'a') LIMIT 3",
            "BM25() in the WHERE clause must be compared as BM25(v, query) > 0",
        ),
        (
            "SELECT k FROM ks.t ORDER BY BM25(n, 'a') LIMIT 3",
            "Invalid STRING constant (a) for \"n\" of type int",
        ),
        (
            "SELECT k FROM ks.t ORDER BY BM25(v, 'a') DESC LIMIT 3",
            "Descending BM25 ordering is not supported: the most relevant rows come first",
        ),
        (
            "SELECT k FROM ks.t ORDER BY BM25(v, 'a'), BM25(w, 'a') LIMIT 3",
            "BM25 ordering does not support any other ordering",
        ),
        (
            "SELECT k FROM ks.t ORDER BY BM25(v, 'a') LIMIT 1001",
            "Use of BM25 in an ORDER BY clause requires a LIMIT that is not greater than 1000. LIMIT was 1001",
        ),
        (
            "SELECT count(*) FROM ks.t ORDER BY BM25(v, 'a') LIMIT 3",
            "Top-K queries can not be run with aggregation",
        ),
        (
            "SELECT k FROM ks.t ORDER BY BM25(v, 'a') PER PARTITION LIMIT 1 LIMIT 3",
            "Top-K queries do not support per-partition limits",
        ),
        (
            "SELECT k FROM ks.t ORDER BY BM25(w, '\"big dogs\"') LIMIT 3",
            "The full-text index has no positions ('positions': 'false'), which phrases need",
        ),
        ("SELECT k FROM ks.t ORDER BY BM25(v, '(a') LIMIT 3", "A query of full text has a '(' without a ')'"),
        ("SELECT k FROM ks.t ORDER BY BM25(v, null) LIMIT 3", "Unsupported null value for column v"),
        (
            "UPDATE ks.t SET n = 1 WHERE BM25(v, 'a') > 0",
            "BM25() in the WHERE clause requires ORDER BY BM25() on the same column with the same query",
        ),
        (
            "CREATE CUSTOM INDEX ON ks.t (v) USING 'fulltext_index'",
            "Index t_v_idx is a duplicate of existing index words",
        ),
        (
            "CREATE CUSTOM INDEX ON ks.t (v) USING 'fulltext_index' WITH OPTIONS = {'analyzer': 'english'}",
            "The texts of column v have index words already",
        ),
        (
            "CREATE CUSTOM INDEX ON ks.t (n) USING 'fulltext_index'",
            "Fulltext index is only supported on text, varchar, or ascii columns, but column n has an incompatible type",
        ),
        (
            "CREATE CUSTOM INDEX ON ks.t (w) USING 'fulltext_index' WITH OPTIONS = {'x': '1'}",
            "The texts of column w have index plain already",
        ),
    ] {
        assert_eq!(node.refusal(text).as_deref(), Some(expected), "{text}");
    }
    assert!(node.refusal("SELECT k FROM ks.t ORDER BY BM25(v, 'a')").is_some());
    assert!(
        node.refusal("SELECT k FROM ks.t WHERE v = 'a'").is_some_and(|text| text.contains("ALLOW FILTERING"))
    );
    let long = "a".repeat(20_000);
    let refusal = node.refusal(&format!("SELECT k FROM ks.t ORDER BY BM25(v, '{long}') LIMIT 3"));
    assert_eq!(refusal.as_deref(), Some("A query of full text has 20000 bytes: at most 16384 are allowed"));
    // Without a phrase such an index answers, and words are stemmed.
    assert_eq!(node.rows("SELECT k FROM ks.t ORDER BY BM25(w, 'run AND dog') LIMIT 3").len(), 3);
}

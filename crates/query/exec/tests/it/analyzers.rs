//! Indexes with analyzers: `=`, `:` and LIKE find the rows that a comparison of their terms finds, with several indexes in one statement.

use crate::golden::Node;
use crate::memory::Memory;
use crate::paging::paged_within;

const SASI: &str = "USING 'org.apache.cassandra.index.sasi.SASIIndex'";
const CLASS: &str = "org.apache.cassandra.index.sasi.analyzer.";

const TEXTS: [&str; 8] = [
    "The quick brown foxes jumped over lazy dogs",
    "Quick thinking",
    "running shoes",
    "a run in the park",
    "Straße nach Köln",
    "QUICK BROWN",
    "brown",
    "",
];

fn node() -> (Node, Memory) {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    (node, memory)
}

/// A table with the texts, by their numbers.
fn filled(node: &Node, table: &str, index: &str) {
    node.run(&format!("CREATE TABLE ks.{table} (k int PRIMARY KEY, v text, n int, l list<text>)"));
    if !index.is_empty() {
        node.run(&format!("CREATE CUSTOM INDEX ON ks.{table} {index}"));
    }
    for (k, text) in TEXTS.iter().enumerate() {
        node.run(&format!(
            "INSERT INTO ks.{table} (k, v, n, l) VALUES ({k}, '{text}', {}, ['{text}'])",
            k % 3
        ));
    }
}

fn keys(rows: &[Vec<Option<Vec<u8>>>]) -> Vec<i32> {
    let key = |row: &Vec<Option<Vec<u8>>>| i32::from_be_bytes(row[0].as_deref().unwrap().try_into().unwrap());
    let mut keys: Vec<i32> = rows.iter().map(key).collect();
    keys.sort_unstable();
    keys
}

fn found(node: &Node, memory: &Memory, table: &str, condition: &str) -> Vec<i32> {
    let rows = node.rows(&format!("SELECT k FROM ks.{table} WHERE {condition}"));
    assert!(memory.index_reads() > 0, "{condition} uses an index");
    keys(&rows)
}

#[test]
fn words_of_an_index_of_sai() {
    let (node, memory) = node();
    filled(&node, "t", "(v) USING 'sai' WITH OPTIONS = {'index_analyzer': 'english'}");
    for (condition, expected) in [
        ("v : 'quick'", &[0, 1, 5][..]),
        ("v = 'quick'", &[0, 1, 5]),
        ("v : 'BROWN Quick'", &[0, 5]),
        ("v : 'run'", &[2, 3]),
        ("v : 'runs and shoe'", &[2]),
        ("v : 'dog fox jump lazy over quick'", &[0]),
        ("v : 'quick parks'", &[]),
        // Words that are no terms find nothing.
        ("v : 'the'", &[0; 0]),
        ("v : ''", &[]),
        ("v : 'quick' AND v : 'brown'", &[0, 5]),
    ] {
        let rows = node.rows(&format!("SELECT k FROM ks.t WHERE {condition}"));
        assert_eq!(keys(&rows), expected, "{condition}");
    }
    assert!(memory.index_reads() > 0);
    // In a partition, and where no index is used, a row passes by its terms, too.
    assert_eq!(keys(&node.rows("SELECT k FROM ks.t WHERE k = 5 AND v : 'quick' ALLOW FILTERING")), [5]);
    assert_eq!(
        keys(&node.rows("SELECT k FROM ks.t WHERE k = 4 AND v : 'quick' ALLOW FILTERING")),
        [] as [i32; 0]
    );
    for text in [
        "SELECT k FROM ks.t WHERE v > 'a'",
        "SELECT k FROM ks.t WHERE l : 'a'",
        "SELECT k FROM ks.t WHERE n : 1 ALLOW FILTERING",
        "SELECT k FROM ks.t WHERE v LIKE 'quick%'",
    ] {
        assert!(node.refusal(text).is_some(), "{text}");
    }
    assert_eq!(
        node.refusal("DELETE FROM ks.t WHERE k = 1 AND v : 'x'").as_deref(),
        Some("DELETE does not support the analyzer operator (:)")
    );
}

/// Texts that are written are cut in other words than texts that are searched for.
#[test]
fn an_analyzer_of_queries() {
    let (node, memory) = node();
    let grams = r#"{"tokenizer": {"name": "standard"}, "filters": [{"name": "lowercase"}, {"name": "edgengram", "args": {"minGramSize": "1", "maxGramSize": "20"}}]}"#;
    filled(
        &node,
        "t",
        &format!(
            "(v) USING 'sai' WITH OPTIONS = {{'index_analyzer': '{grams}', 'query_analyzer': 'standard'}}"
        ),
    );
    assert_eq!(found(&node, &memory, "t", "v : 'qui bro'"), [0, 5]);
    assert_eq!(found(&node, &memory, "t", "v : 'KÖ'"), [4]);
    assert_eq!(found(&node, &memory, "t", "v : 'uick'"), [] as [i32; 0]);
}

#[test]
fn words_of_elements() {
    let (node, memory) = node();
    filled(&node, "t", "(values(l)) USING 'sai' WITH OPTIONS = {'index_analyzer': 'standard'}");
    assert_eq!(found(&node, &memory, "t", "l CONTAINS 'brown quick'"), [0, 5]);
    assert_eq!(found(&node, &memory, "t", "l CONTAINS 'brown' AND l CONTAINS 'lazy'"), [0]);
}

/// SASI: each word of a pattern has to match a word of the text (so Cassandra 5.0.6: tests/oracle/statements/sasi.cql).
#[test]
fn patterns_of_sasi() {
    let (node, memory) = node();
    let index = |options: &str| format!("(v) {SASI} WITH OPTIONS = {{{options}}}");
    filled(&node, "contains", &index("'mode': 'CONTAINS'"));
    let folded = format!(
        "'mode': 'CONTAINS', 'analyzer_class': '{CLASS}NonTokenizingAnalyzer', 'case_sensitive': 'false'"
    );
    filled(&node, "folded", &index(&folded));
    let words = format!(
        "'analyzer_class': '{CLASS}StandardAnalyzer', 'tokenization_normalize_lowercase': 'true', \
         'tokenization_enable_stemming': 'true', 'tokenization_locale': 'en'"
    );
    filled(&node, "words", &index(&words));
    filled(&node, "parts_of_words", &index(&format!("'mode': 'CONTAINS', {words}")));
    for (table, pattern, expected) in [
        ("contains", "%uick%", &[0, 1][..]),
        ("contains", "%UICK B%", &[5]),
        ("contains", "%n%", &[0, 1, 2, 3, 4, 6]),
        ("contains", "%ß%", &[4]),
        ("contains", "%Straße nach Köln%", &[4]),
        ("contains", "%brown", &[6]),
        ("contains", "%wn", &[6]),
        ("contains", "Quick%", &[1]),
        ("contains", "brown", &[6]),
        ("contains", "%zzz%", &[]),
        ("folded", "%UICK b%", &[0, 5]),
        ("folded", "%BROWN", &[5, 6]),
        ("folded", "quick%", &[1, 5]),
        ("folded", "QUICK brown", &[5]),
        ("words", "quick", &[0, 1, 5]),
        ("words", "lazy runs", &[]),
        ("words", "dogs quick", &[0]),
        ("words", "park running", &[3]),
        ("words", "sho%", &[2]),
        ("words", "fox", &[0]),
        ("parts_of_words", "%row%", &[0, 5, 6]),
        ("parts_of_words", "%zy", &[]),
        ("parts_of_words", "%uic parks%", &[]),
        ("parts_of_words", "%uic jum%", &[0]),
        ("parts_of_words", "dogs", &[0]),
    ] {
        assert_eq!(
            found(&node, &memory, table, &format!("v LIKE '{pattern}'")),
            expected,
            "{table}: {pattern}"
        );
    }
    assert_eq!(found(&node, &memory, "folded", "v = 'QUICK brown'"), [5]);
    for (table, pattern) in
        [("words", "%a%"), ("words", "%a"), ("parts_of_words", "a%"), ("contains", "%%"), ("contains", "")]
    {
        let refusal = node.refusal(&format!("SELECT k FROM ks.{table} WHERE v LIKE '{pattern}'"));
        let refusal = refusal.unwrap_or_else(|| panic!("{table}: {pattern} is taken"));
        assert!(refusal.contains("properly indexed") || refusal.contains("can't be empty"), "{refusal}");
    }
    let many = "w1".to_owned() + &(2..40).map(|n| format!(" w{n}")).collect::<String>();
    assert_eq!(
        node.refusal(&format!("SELECT k FROM ks.words WHERE v LIKE '{many}'")).as_deref(),
        Some("The pattern of LIKE on column v has 39 terms: at most 32 are allowed")
    );
    // The words of a text say nothing of the whole.
    assert!(node.refusal("SELECT k FROM ks.words WHERE v = 'brown'").is_some());
}

/// SPARSE finds the same numbers as PREFIX.
#[test]
fn sparse_numbers_of_sasi() {
    let (node, memory) = node();
    filled(&node, "t", &format!("(n) {SASI} WITH OPTIONS = {{'mode': 'SPARSE'}}"));
    assert_eq!(found(&node, &memory, "t", "n = 1"), [1, 4, 7]);
    assert_eq!(found(&node, &memory, "t", "n > 1"), [2, 5]);
}

#[test]
fn options_without_effect_are_warned_of() {
    let (node, _) = node();
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    let warnings = node
        .query(&format!("CREATE CUSTOM INDEX i ON ks.t (v) {SASI} WITH OPTIONS = {{'delimiter': ','}}"))
        .warnings;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["The option 'delimiter' of index i has no effect with its other options"]);
    for (options, expected) in [
        ("'index_analyzer': 'nope'", "The analyzer 'nope' is not supported yet"),
        (
            "'index_analyzer': '{'",
            "The analyzer is not valid JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("'query_analyzer': 'standard'", "query_analyzer needs index_analyzer"),
        (
            &format!("'index_analyzer': '{}'", "x".repeat(20_000)),
            "Option index_analyzer of an index has 20000 bytes: at most 16384 are allowed",
        ),
    ] {
        let text = format!("CREATE CUSTOM INDEX ON ks.t (v) USING 'sai' WITH OPTIONS = {{{options}}}");
        assert_eq!(node.refusal(&text).as_deref(), Some(expected));
    }
}

/// Several indexes in one statement: their places are intersected, in pages of any size.
#[test]
fn places_of_several_indexes() {
    let (node, memory) = node();
    for table in ["t", "plain"] {
        node.run(&format!(
            "CREATE TABLE ks.{table} (k int, c int, a int, b int, w text, PRIMARY KEY (k, c))"
        ));
    }
    for column in ["a", "b"] {
        node.run(&format!("CREATE INDEX ON ks.t ({column}) USING 'sai'"));
    }
    node.run("CREATE CUSTOM INDEX ON ks.t (w) USING 'sai' WITH OPTIONS = {'index_analyzer': 'whitespace'}");
    node.run(
        "CREATE CUSTOM INDEX ON ks.plain (w) USING 'sai' WITH OPTIONS = {'index_analyzer': 'whitespace'}",
    );
    for n in 0..6000_u32 {
        // One partition has a third of all rows.
        let k = if n % 3 == 0 { 7 } else { n % 50 };
        let rare = if n % 997 == 0 { "rare" } else { "usual" };
        for table in ["t", "plain"] {
            node.run(&format!(
                "INSERT INTO ks.{table} (k, c, a, b, w) VALUES ({k}, {n}, {}, {}, 'word{} {rare}')",
                n % 2,
                n % 5,
                n % 11
            ));
        }
    }
    let mut rows = 0;
    for condition in [
        "a = 1 AND b = 2",
        "a = 1 AND b = 2 AND w : 'word3'",
        "a = 0 AND b >= 3",
        "b > 1 AND b < 4 AND a = 1",
        "a = 1 AND w : 'rare'",
        "w : 'rare word7'",
        "a = 1 AND b = 2 AND token(k) > 0",
        "k = 7 AND a = 1 AND b = 2",
        "k = 7 AND c > 1000 AND a = 1 AND b = 2 AND w : 'word4'",
        "a = 5 AND b = 2",
    ] {
        let text = |table: &str| format!("SELECT k, c FROM ks.{table} WHERE {condition} ALLOW FILTERING");
        let expected = node.rows(&text("plain"));
        memory.index_reads();
        assert_eq!(node.rows(&text("t")), expected, "{condition}");
        assert!(memory.index_reads() > 0, "{condition} uses an index");
        for size in [1, 10, 333, 2000] {
            if size == 1 && expected.len() > 200 {
                continue;
            }
            assert_eq!(
                paged_within(&node, &text("t"), size, 5000),
                expected,
                "{condition} in pages of {size}"
            );
        }
        rows += expected.len();
    }
    assert!(rows > 1500, "{rows} rows make no test");
}

/// The trace has the estimate of each index, the places that they find together, and which index is left out.
#[test]
fn the_trace_of_several_indexes() {
    let (node, _) = node();
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, a int, b int)");
    for column in ["a", "b"] {
        node.run(&format!("CREATE INDEX ON ks.t ({column}) USING 'sai'"));
    }
    for n in 0..3000 {
        node.run(&format!("INSERT INTO ks.t (k, a, b) VALUES ({n}, 1, {})", n / 10));
    }
    // The places in memory have every fourth row too many.
    let (rows, trace) = node.traced("SELECT k FROM ks.t WHERE a = 1 AND b = 7");
    assert_eq!(rows, 10);
    let has = |text: &str| assert!(trace.iter().any(|event| event.contains(text)), "{text} in {trace:#?}");
    has("Executing read on ks.t using index t_a_idx, t_b_idx");
    has("Index t_b_idx: ");
    has("Index t_a_idx: about ");
    has(" places");
}

/// An index is queried only by conditions that compare texts as it does; of several on a column those of SAI decide how.
#[test]
fn indexes_on_one_column_of_which_one_analyzes() {
    let (node, memory) = node();
    let folding = "USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}";
    filled(&node, "t", "");
    node.run("CREATE INDEX a_raw ON ks.t (v)");
    node.run(&format!("CREATE CUSTOM INDEX b_folding ON ks.t (v) {folding}"));
    node.run("CREATE INDEX a_elements ON ks.t (values(l))");
    node.run(&format!("CREATE CUSTOM INDEX b_elements ON ks.t (values(l)) {folding}"));
    filled(&node, "plain", "(v) USING 'sai'");
    node.run(&format!("CREATE CUSTOM INDEX a_upper ON ks.plain (v) {SASI} WITH OPTIONS = {{'analyzer_class': '{CLASS}NonTokenizingAnalyzer', 'case_sensitive': 'false'}}"));
    for (table, condition, expected) in [
        ("t", "v = 'Brown'", &[6][..]),
        ("t", "l CONTAINS 'BROWN'", &[6]),
        ("t", "v = 'quick brown'", &[5]),
        ("plain", "v = 'Brown'", &[]),
        ("plain", "v = 'brown'", &[6]),
    ] {
        assert_eq!(found(&node, &memory, table, condition), expected, "{condition} of {table}");
    }
    node.run("DROP INDEX ks.b_folding");
    assert_eq!(found(&node, &memory, "t", "v = 'Brown'"), [] as [i32; 0]);
    assert_eq!(found(&node, &memory, "t", "v = 'brown'"), [6]);
}

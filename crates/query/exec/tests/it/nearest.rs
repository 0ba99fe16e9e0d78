//! `ORDER BY … ANN OF` against a comparison of all rows.

use replica::Similarity;

use crate::golden::Node;
use crate::memory::Memory;

const ROWS: usize = 240;

/// Numbers between -1 and 1 that look random.
fn noise(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    // Few digits, so that text gives the same number.
    (((*state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0) * 100.0).round() / 100.0
}

fn vector(state: &mut u64) -> [f32; 3] {
    [noise(state), noise(state), noise(state) + 1.5]
}

fn filled() -> (Node, Memory, Vec<(i32, i32, [f32; 3])>) {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, w int, v vector<float, 3>, PRIMARY KEY (k, c))");
    node.run("CREATE INDEX near ON ks.t (v) USING 'sai'");
    node.run("CREATE INDEX ON ks.t (w) USING 'sai'");
    let (mut state, mut rows) = (5, Vec::new());
    for at in 0..ROWS {
        let (k, c) = (at as i32 % 8, at as i32 / 8);
        // Stale entries of the index are nearer than anything else, and do not count.
        node.run(&format!("INSERT INTO ks.t (k, c, w, v) VALUES ({k}, {c}, {}, [1, 0, 0])", at % 40));
        if at % 10 == 3 {
            node.run(&format!("DELETE {} FROM ks.t WHERE k = {k} AND c = {c}", ["v", ""][at / 10 % 2]));
            continue;
        }
        let vector = vector(&mut state);
        node.run(&format!("UPDATE ks.t SET v = {vector:?} WHERE k = {k} AND c = {c}"));
        rows.push((k, c, vector));
    }
    (node, memory, rows)
}

fn int(cell: &Option<Vec<u8>>) -> i32 {
    i32::from_be_bytes(cell.as_deref().expect("not null").try_into().expect("an int"))
}

#[test]
fn the_nearest_rows_come_nearest_first() {
    let (node, memory, rows) = filled();
    let mut state = 77;
    let conditions: [(&str, fn(i32, i32, i32) -> bool); 5] = [
        ("", |_, _, _| true),
        ("WHERE k = 3", |k, _, _| k == 3),
        ("WHERE k = 3 AND c > 10", |k, c, _| k == 3 && c > 10),
        ("WHERE w = 7", |_, _, w| w == 7),
        ("WHERE w > 20 AND w < 25", |_, _, w| w > 20 && w < 25),
    ];
    for (condition, holds) in conditions {
        for limit in [1, 5, 50, 300] {
            let target = vector(&mut state);
            let mut expected: Vec<(f32, i32, i32)> = rows
                .iter()
                .filter(|(k, c, _)| holds(*k, *c, (c * 8 + k) % 40))
                .map(|(k, c, vector)| (Similarity::Cosine.closeness(&target, vector), *k, *c))
                .collect();
            expected.sort_by(|a, b| b.0.total_cmp(&a.0));
            expected.truncate(limit);
            memory.index_reads();
            let text =
                format!("SELECT c, k FROM ks.t {condition} ORDER BY v ANN OF {target:?} LIMIT {limit}");
            let found = node.rows(&text);
            assert!(!expected.is_empty(), "{text}");
            assert_eq!(memory.index_reads() > 0, !condition.contains("k ="), "{text}");
            assert_eq!(found.len(), expected.len(), "{text}");
            for (row, (closeness, ..)) in found.iter().zip(&expected) {
                // Rows that are equally near may come in any order.
                let (c, k) = (int(&row[0]), int(&row[1]));
                let (.., vector) = rows.iter().find(|one| (one.0, one.1) == (k, c)).expect("a live row");
                assert_eq!(Similarity::Cosine.closeness(&target, vector), *closeness, "{text}");
            }
        }
    }
}

#[test]
fn conditions_that_leave_little_are_met_by_comparing_all() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, w int, v vector<float, 2>)");
    node.run("CREATE INDEX ON ks.t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}");
    node.run("CREATE INDEX ON ks.t (w)");
    for k in 0..5_000 {
        // The two that are wanted are the farthest of all.
        let w = i32::from(k >= 4_998);
        node.run(&format!("INSERT INTO ks.t (k, w, v) VALUES ({k}, {w}, [{k}, 1])"));
    }
    let found = node.rows("SELECT k FROM ks.t WHERE w = 1 ORDER BY v ANN OF [0, 0] LIMIT 5");
    assert_eq!(found.iter().map(|row| int(&row[0])).collect::<Vec<_>>(), [4_998, 4_999]);
}

/// Vectors from before there was an index, which the index does not have: they are near to nothing, also where all rows are compared.
#[test]
fn vectors_that_are_not_finite_are_near_to_nothing() {
    let memory = Memory::new();
    let node = Node::of(memory);
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    for similarity in ["euclidean", "cosine", "dot_product"] {
        let table = format!("ks.{similarity}");
        node.run(&format!("CREATE TABLE {table} (k int, c int, v vector<float, 2>, PRIMARY KEY (k, c))"));
        let vectors = ["[NaN, 1]", "[Infinity, 1]", "[-Infinity, 1]", "[3e38, 3e38]", "[1, 2]"];
        for (c, vector) in vectors.iter().enumerate() {
            node.run(&format!("INSERT INTO {table} (k, c, v) VALUES (1, {c}, {vector})"));
        }
        node.run(&format!(
            "CREATE INDEX ON {table} (v) USING 'sai' WITH OPTIONS = {{'similarity_function': '{similarity}'}}"
        ));
        for (vector, why) in [
            ("[NaN, 1]", "non-finite value at vector[0]=NaN"),
            ("[1, -Infinity]", "non-finite value at vector[1]=-Infinity"),
            ("[1, -3e38]", "Out-of-bounds value at vector[1]=-3.0E38"),
        ] {
            let text = format!("INSERT INTO {table} (k, c, v) VALUES (1, 9, {vector})");
            assert_eq!(node.refusal(&text).as_deref(), Some(why), "{similarity}");
        }
        let zero = node.refusal(&format!("INSERT INTO {table} (k, c, v) VALUES (2, 9, [0, 0])"));
        assert_eq!(zero.is_some(), similarity == "cosine", "{similarity}: {zero:?}");
        node.run(&format!("DELETE FROM {table} WHERE k = 2"));
        for condition in ["", "WHERE k = 1"] {
            let found =
                node.rows(&format!("SELECT c FROM {table} {condition} ORDER BY v ANN OF [1, 2] LIMIT 5"));
            let found: Vec<i32> = found.iter().map(|row| int(&row[0])).collect();
            assert_eq!(found, [4], "{similarity} {condition}");
        }
    }
}

#[test]
fn statements_of_vectors() {
    crate::golden::check("vectors.txt");
}

//! The bytes that cross between nodes, and the memory of a follower, when one row in a hundred differs.

use bytes::Bytes;
use mutation::{Cell, ColumnData, DecoratedKey, LivenessInfo, PartitionUpdate, Row};
use repair::{FollowerConfig, Scope, Slice};
use schema::Table;
use testkit::data::{clustering, table};
use topology::TokenRange;

use crate::memory::{Node, Wire, run};

const PARTITIONS: i32 = 250;
const ROWS: i32 = 40;

fn row(table: &Table, k: i32, c: i32) -> Row {
    let mut row = Row::new(clustering(table, c));
    row.liveness = LivenessInfo::forever(1_000);
    let value = Bytes::from(format!("{k:050}{c:050}"));
    row.set(table.column("v").expect("it has v").id, ColumnData::Simple(Cell::live(1_000, value)));
    row
}

/// A node that lacks every row for which `lacks` is true.
fn node(lacks: impl Fn(i32) -> bool) -> Node {
    let table = table();
    let partition = |k: i32| {
        let key = DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()));
        let rows = (0..ROWS).filter(|c| !lacks(k * ROWS + c)).map(|c| row(&table, k, c)).collect();
        PartitionUpdate::with_rows(table.clone(), key, rows)
    };
    Node::new((0..PARTITIONS).map(partition).collect(), 1)
}

#[test]
fn little_more_than_the_differing_rows_crosses() {
    let table = table();
    // Each node lacks one row in three hundred, and each another one: one in a hundred differs.
    let nodes: Vec<Node> = (0..3).map(|n| node(move |row| row % 300 == n * 100 + 17)).collect();
    let range = TokenRange { after: i64::MIN, upto: i64::MAX };
    let scope = Scope { table: table.clone(), range, slice: Slice::ALL, now: 100, gc_before: 0, seed: 5 };
    let wire = Wire::new(&table, &nodes, FollowerConfig::default());
    let bytes_max = 512 << 10;
    let done = run(&wire, &scope, &nodes, bytes_max);

    let (elements, differing) = ((PARTITIONS * ROWS) as u64, (PARTITIONS * ROWS / 100) as u64);
    assert_eq!(
        (done.differing, done.sent),
        (differing, differing),
        "each goes to the one node that lacks it"
    );
    assert!(done.elements <= elements && done.elements >= elements * 99 / 100, "{}", done.elements);
    // A row is about 170 bytes as an update of its own: the master's own rows need no fetching.
    let rows = wire.row_bytes.get() / differing;
    assert!((150..400).contains(&rows), "{rows} bytes of rows a row that differs");
    let rest = (wire.bytes.get() - wire.row_bytes.get()) / elements;
    assert!(rest < 5, "{rest} bytes beside a row compared, with two peers");
    println!(
        "{} bytes of rows a differing row, {:.2} bytes beside a row compared and peer, {} kept",
        rows,
        (wire.bytes.get() - wire.row_bytes.get()) as f64 / elements as f64 / 2.0,
        wire.kept_bytes_max.get()
    );
    assert!(wire.kept_bytes_max.get() < 2 * bytes_max as usize, "{} bytes kept", wire.kept_bytes_max.get());
    let compared_again = run(&wire, &scope, &nodes, bytes_max);
    assert_eq!((compared_again.differing, compared_again.elements), (0, elements));
}

/// Whenever a truncation comes in the middle of a repair, nothing that was there before it comes back.
#[test]
fn a_truncation_in_the_middle_is_no_way_back() {
    let (table, config) = (table(), FollowerConfig::default());
    let range = TokenRange { after: i64::MIN, upto: i64::MAX };
    let scope = Scope { table: table.clone(), range, slice: Slice::ALL, now: 100, gc_before: 0, seed: 5 };
    let repaired = |truncated_before: Option<u64>| {
        let nodes: Vec<Node> = (0..3).map(|n| node(move |row| row % 30 == n * 10 + 7)).collect();
        let wire = Wire::new(&table, &nodes, config);
        wire.truncated_before.set(truncated_before);
        run(&wire, &scope, &nodes, 512 << 10);
        let left: Vec<usize> = nodes.iter().map(|node| node.updates.borrow().len()).collect();
        (wire.questions.get(), left)
    };
    let (questions, left) = repaired(None);
    assert!(questions > 12 && left.iter().all(|left| *left > 0), "{questions} {left:?}");
    // The first segments go through everything.
    for before in 1..=questions.min(30) {
        assert_eq!(repaired(Some(before)).1, [0; 3], "truncated before question {before}");
    }
}

/// Equal nodes cost a question and an answer a segment and peer.
#[test]
fn equal_nodes_exchange_next_to_nothing() {
    let table = table();
    let nodes: Vec<Node> = (0..3).map(|_| node(|_| false)).collect();
    let range = TokenRange { after: i64::MIN, upto: i64::MAX };
    let scope = Scope { table: table.clone(), range, slice: Slice::ALL, now: 100, gc_before: 0, seed: 5 };
    let wire = Wire::new(&table, &nodes, FollowerConfig::default());
    run(&wire, &scope, &nodes, 512 << 10);
    assert!(wire.questions.get() <= 3 * 8, "{} questions", wire.questions.get());
    assert!(wire.bytes.get() < 4_000, "{} bytes", wire.bytes.get());
}

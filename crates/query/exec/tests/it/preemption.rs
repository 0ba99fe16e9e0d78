//! Statements over many rows give way to other tasks, also when every row is in memory and no read waits.

use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::pin::pin;

use rt_sim::{Config, Simulation};

use crate::golden::Node;

const ROWS: i32 = 12_000;

/// Rows of one read that are sorted in one step.
const RUN_MAX: u64 = 5_000;

fn filled() -> Node {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))");
    for from in (0..ROWS).step_by(100) {
        let mut batch = String::from("BEGIN UNLOGGED BATCH ");
        for n in from..from + 100 {
            // One partition with most rows, and many small ones.
            let k = if n % 3 == 0 { n } else { 1 };
            write!(batch, "INSERT INTO ks.t (k, c, v) VALUES ({k}, {n}, {}); ", n % 50).unwrap();
        }
        node.run(&(batch + "APPLY BATCH"));
    }
    node
}

#[test]
fn statements_over_many_rows_give_way() {
    let sim = Simulation::new(3, Config { preempt_per_million: 1_000_000, ..Config::default() });
    for (text, most) in [
        ("SELECT count(*) FROM ks.t", 100),
        ("SELECT k, sum(v), max(c) FROM ks.t GROUP BY k", 100),
        ("SELECT * FROM ks.t", 100),
        ("SELECT c FROM ks.t WHERE v > 5 ALLOW FILTERING", 100),
        ("SELECT c FROM ks.t WHERE v > 500 ALLOW FILTERING", 100),
        ("SELECT c FROM ks.t WHERE k = 1", 100),
        ("SELECT c FROM ks.t WHERE k IN (1, 3, 6) ORDER BY c DESC", RUN_MAX + 100),
    ] {
        let node = filled();
        let longest = sim.block_on(move |rt| async move {
            rt.executor().take_longest_poll();
            let bytes = node.query_with_others(text).await;
            assert!(bytes > 20, "{text}: an answer of {bytes} bytes");
            rt.executor().take_longest_poll()
        });
        let longest = longest.expect("it ends");
        println!("{text}: {longest} rows in the longest poll");
        assert!((1..=most).contains(&longest), "{text}: {longest} rows in one poll");
    }
}

/// How often a statement lets other tasks run, where each look at the clock says that it should.
fn polls_of(node: Node, text: &'static str) -> usize {
    let sim = Simulation::new(3, Config { preempt_per_million: 1_000_000, ..Config::default() });
    let polls = sim.block_on(move |_| async move {
        let mut query = pin!(node.query_with_others(text));
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            query.as_mut().poll(cx)
        })
        .await;
        polls
    });
    polls.expect("it ends")
}

/// A long BATCH is parsed, planned and merged some statements at a time.
#[test]
fn a_long_batch_gives_way() {
    const STATEMENTS: i32 = 2_000;
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))");
    let mut batch = String::from("BEGIN UNLOGGED BATCH ");
    for n in 0..STATEMENTS {
        // In descending order, so that each row belongs before all others.
        write!(batch, "INSERT INTO ks.t (k, c, v) VALUES (1, {}, {n}); ", STATEMENTS - n).unwrap();
    }
    let polls = polls_of(node, (batch + "APPLY BATCH").leak());
    // Parsed, planned, freed, bound and merged, 64 at a time.
    let least = 5 * STATEMENTS as usize / 64 - 10;
    assert!(polls >= least, "{polls} polls, {least} at least");
}

/// Sixty-four rows are one look at the clock, unless functions read much for each of them.
#[test]
fn functions_over_large_values_give_way_after_fewer_rows() {
    let filled = || {
        let node = Node::new();
        node.run(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        );
        node.run("CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))");
        let value = "x".repeat(32 << 10);
        for c in 0..64 {
            node.run(&format!("INSERT INTO ks.t (k, c, v) VALUES (1, {c}, '{value}')"));
        }
        node
    };
    let plain = polls_of(filled(), "SELECT c FROM ks.t WHERE k = 1");
    for text in [
        "SELECT textAsBlob(v) FROM ks.t WHERE k = 1",
        "SELECT max(textAsBlob(v)) FROM ks.t WHERE k = 1",
        "SELECT c, textAsBlob(v) FROM ks.t WHERE k IN (1, 2) ORDER BY c DESC",
    ] {
        let polls = polls_of(filled(), text);
        assert!(polls >= plain + 5, "{text}: {polls} polls, {plain} without the function");
    }
}

//! Aggregations in parts: the result is that of adding the rows one after another, whichever shard adds them.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use testkit::fuzz::Random;
use wire::Value;

use crate::golden::{Node, show};

/// How the other shard does its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    /// As far as it gets in no time: one read.
    InSteps,
    /// Wholly.
    Works,
    /// Every second time.
    Fails,
    /// With bytes that are no answer.
    Damages,
}

/// Has aggregations divided, with another shard; how many requests that one has received.
fn divide(node: &Node, other: Other) -> Rc<Cell<u32>> {
    let (asked, counted) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let executor = Rc::downgrade(node.executor());
    let deadline = match other {
        Other::InSteps => rt::Instant::START,
        _ => rt::Instant::START + std::time::Duration::from_secs(10),
    };
    let count = asked.clone();
    let worker = move |body: Bytes| {
        count.set(count.get() + 1);
        let (executor, number) = (executor.upgrade().expect("the node is there"), count.get());
        let answer = async move {
            let answer = executor.aggregate_part(&body, deadline).await;
            match other {
                Other::Fails if number % 2 == 0 => Err("it does not".to_owned()),
                Other::Damages => answer.map(|answer| answer.slice(..answer.len() - 1)),
                _ => answer,
            }
        };
        Box::pin(answer) as futures_util::future::LocalBoxFuture<'static, _>
    };
    counted.set(0);
    *node.cluster().part_worker.borrow_mut() = Some(Rc::new(worker));
    asked
}

const TABLE: &str = "CREATE TABLE ks.t (k int, c int, s int static, i int, b bigint, v varint, d decimal, f float, \
                     x double, t text, ty tinyint, m map<text, int>, PRIMARY KEY (k, c))";

fn literal(random: &mut Random, column: &str) -> String {
    let of: &[&str] = match column {
        "i" => &["0", "1", "-7", "2147483647", "-2147483648", "null"],
        "b" => &["9223372036854775807", "-9223372036854775808", "3", "null"],
        "v" => &["170141183460469231731687303715884105727", "-1", "99999999999999999999999999", "null"],
        "d" => &["1.0", "1.00", "-0.3333333333", "1E+30", "123456789.987654321", "null"],
        "f" => &["0.1", "-0.0", "0.0", "NaN", "3.4E38", "null", "1E-40"],
        "x" => &["0.1", "0.2", "1E308", "-1E308", "NaN", "Infinity", "null", "1E-300"],
        "t" => &["''", "'a'", "'b'", "'zz'", "null"],
        "ty" => &["127", "-128", "5", "null"],
        _ => &["{'a': 1}", "{'b': 2, 'c': 3}", "null"],
    };
    (*random.of(of)).to_owned()
}

fn fill(node: &Node, random: &mut Random) {
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run(TABLE);
    let columns = ["i", "b", "v", "d", "f", "x", "t", "ty", "m"];
    for _ in 0..20 + random.below(60) {
        let (k, c) = (random.below(15), random.below(8));
        let text = match random.below(12) {
            0 => format!("DELETE FROM ks.t WHERE k = {k} AND c = {c}"),
            1 => format!("DELETE FROM ks.t WHERE k = {k} AND c > {c}"),
            2 => format!("DELETE FROM ks.t WHERE k = {k}"),
            3 => format!("INSERT INTO ks.t (k, s) VALUES ({k}, {c})"),
            4 => format!("INSERT INTO ks.t (k, c, i) VALUES ({k}, {c}, 5) USING TTL 20"),
            5 => format!("UPDATE ks.t SET i = null, m = m + {{'z': 9}} WHERE k = {k} AND c = {c}"),
            _ => {
                let values = columns.map(|column| literal(random, column)).join(", ");
                format!("INSERT INTO ks.t (k, c, {}) VALUES ({k}, {c}, {values})", columns.join(", "))
            }
        };
        node.run(&text);
    }
}

const QUERIES: [&str; 22] = [
    "SELECT count(*) FROM ks.t",
    "SELECT count(*), count(s), count(i), count(t), count(1) FROM ks.t",
    "SELECT min(i), max(i), sum(i), avg(i), sum(b), avg(b), sum(ty), avg(ty) FROM ks.t",
    "SELECT sum(v), avg(v), min(v), max(v) FROM ks.t",
    "SELECT sum(d), avg(d), min(d), max(d) FROM ks.t",
    "SELECT sum(f), avg(f), min(f), max(f) FROM ks.t",
    "SELECT sum(x), avg(x), min(x), max(x) FROM ks.t",
    "SELECT min(t), max(t), min(m), max(m), count(m) FROM ks.t",
    "SELECT k, c, s, t, count(*) FROM ks.t",
    "SELECT t AS first, sum(x) FROM ks.t WHERE i > 0 ALLOW FILTERING",
    "SELECT count(*) FROM ks.t WHERE s = 3 ALLOW FILTERING",
    "SELECT count(*), sum(d) FROM ks.t WHERE c > 2 ALLOW FILTERING",
    "SELECT count(*), max(x) FROM ks.t WHERE token(k) > -4000000000000000000 AND token(k) <= 5000000000000000000",
    "SELECT sum(i + 1), max(cast(b AS text)), min(c * 2), avg(cast(i AS double)) FROM ks.t",
    "SELECT count(*) FROM ks.t LIMIT 3",
    "SELECT max(writetime(i)), min(ttl(i)), count(ttl(i)) FROM ks.t",
    "SELECT sum(i) FROM ks.t WHERE m['a'] = 1 ALLOW FILTERING",
    "SELECT JSON count(*), max(t) FROM ks.t",
    "SELECT cast(sum(b) AS text), abs(min(i)) FROM ks.t",
    "SELECT count(*) FROM ks.t WHERE c IN (1, 2, 3) AND t = 'a' ALLOW FILTERING",
    "SELECT count(*) FROM ks.t BYPASS CACHE",
    "SELECT max(now() > maxTimeuuid(0)) FROM ks.t",
];

fn answer(node: &Node, text: &str, now: i32) -> String {
    let answer = node.request(|request| {
        let mut parameters = Node::values(&[]);
        parameters.now_in_seconds = Some(now);
        parameters.page_size = Some(2);
        request.query(text, &parameters);
    });
    show(&answer)
}

#[test]
fn the_result_of_parts_is_that_of_the_rows() {
    let start = crate::memory::START_SECONDS as i32;
    let mut asked_in_all = 0;
    for seed in 1..=40 {
        let random = &mut Random(seed);
        let node = Node::new();
        fill(&node, random);
        // Behind the cells with a time to live, and before their end.
        for now in [start, start + 100] {
            let expected = QUERIES.map(|text| answer(&node, text, now));
            for other in [Other::InSteps, Other::Works, Other::Fails, Other::Damages] {
                let asked = divide(&node, other);
                for (text, expected) in QUERIES.iter().zip(&expected) {
                    assert_eq!(answer(&node, text, now), *expected, "seed {seed}, {other:?}: {text}");
                }
                asked_in_all += asked.get();
                *node.cluster().part_worker.borrow_mut() = None;
            }
        }
    }
    assert!(asked_in_all > 10_000, "another shard was asked for {asked_in_all} parts");
}

/// A table of so many partitions of one row.
fn rows(node: &Node, count: i32) {
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run(TABLE);
    for k in 0..count {
        node.run(&format!("INSERT INTO ks.t (k, c, d, t) VALUES ({k}, {k}, 1E+{}, 'x{k}')", k * 100));
    }
}

#[test]
fn values_of_markers_travel_with_parts() {
    let node = Node::new();
    rows(&node, 30);
    node.run("USE ks");
    let count = |from: i32| {
        let text = "SELECT count(*), max(t) FROM t WHERE c >= ? ALLOW FILTERING";
        let bytes = from.to_be_bytes();
        let values = [Value::Set(&bytes)];
        show(&node.request(|request| request.query(text, &Node::values(&values))))
    };
    let expected = [0, 7, 29, 30].map(count);
    let asked = divide(&node, Other::Works);
    assert_eq!([0, 7, 29, 30].map(count), expected);
    assert!(asked.get() >= 4, "another shard was asked {} times", asked.get());
}

#[test]
fn statements_that_cannot_be_divided_ask_nobody() {
    let node = Node::new();
    rows(&node, 30);
    let asked = divide(&node, Other::Works);
    for text in [
        "SELECT k, count(*) FROM ks.t GROUP BY k",
        "SELECT count(*) FROM ks.t WHERE k IN (1, 2, 3, 4, 5)",
        "SELECT max(now()) FROM ks.t",
        "SELECT count(*) FROM ks.t WHERE c < cast(to_unix_timestamp(now()) AS int) ALLOW FILTERING",
        "SELECT DISTINCT k, s FROM ks.t",
    ] {
        node.query(text);
        assert_eq!(asked.get(), 0, "{text}");
    }
    node.query("SELECT count(*) FROM ks.t");
    assert!(asked.get() > 0, "nobody was asked");
}

#[test]
fn a_node_that_fails_is_not_asked_again() {
    let node = Node::new();
    rows(&node, 60);
    let expected = answer(&node, "SELECT count(*), avg(d) FROM ks.t", 0);
    let asked = divide(&node, Other::Damages);
    assert_eq!(answer(&node, "SELECT count(*), avg(d) FROM ks.t", 0), expected);
    assert!(asked.get() <= 4, "it was asked {} times", asked.get());
}

#[test]
fn damaged_parts_are_refused() {
    let node = Node::new();
    rows(&node, 10);
    let bodies = Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = bodies.clone();
    let worker = move |body: Bytes| {
        seen.borrow_mut().push(body);
        let refused = async { Err("refused".to_owned()) };
        Box::pin(refused) as futures_util::future::LocalBoxFuture<'static, Result<Bytes, String>>
    };
    *node.cluster().part_worker.borrow_mut() = Some(Rc::new(worker));
    node.query("SELECT count(*), sum(d), t FROM ks.t WHERE c > 1 ALLOW FILTERING");
    let body = bodies.borrow()[0].clone();
    let deadline = rt::Instant::START + std::time::Duration::from_secs(1);
    let work = |body: &Bytes| crate::golden::block_on(node.executor().aggregate_part(body, deadline));
    assert!(work(&body).is_ok());
    for len in 0..body.len() {
        assert!(work(&body.slice(..len)).is_err(), "{len} bytes of {}", body.len());
    }
    let random = &mut Random(7);
    for _ in 0..2_000 {
        let mut bytes = body.to_vec();
        testkit::fuzz::change(random, &mut bytes, &[]);
        // Refused, or another part: no panic.
        let _ = work(&bytes.into());
    }
    node.run("CREATE TABLE ks.other (k int PRIMARY KEY)");
    assert_eq!(work(&body).unwrap_err(), "the nodes' schemas differ");
}

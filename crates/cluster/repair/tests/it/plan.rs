//! A golden table of plans over a ring that fits on a page, and properties of every ring.

use std::fmt::Write as _;

use repair::plan::{Ranges, RepairOptions, Unit, plan};
use schema::Replication;
use topology::{HostId, Location, NodeIndex, Placement, Ring, RingNode, TokenRange};

/// Nodes a b c in dc1 (racks r1 r2 r3), d e in dc2; one or two tokens each.
fn ring() -> Ring {
    let node = |name: u8, dc: &str, rack: &str| RingNode {
        host: HostId([name; 16]),
        location: Location::new(dc, rack),
    };
    Ring::new([
        (node(b'a', "dc1", "r1"), vec![-600, 100]),
        (node(b'b', "dc1", "r2"), vec![-300, 400]),
        (node(b'c', "dc1", "r3"), vec![0, 700]),
        (node(b'd', "dc2", "r1"), vec![-500, 300]),
        (node(b'e', "dc2", "r1"), vec![-100, 600]),
    ])
    .expect("tokens differ")
}

fn name(ring: &Ring, node: NodeIndex) -> char {
    char::from(ring.node(node).host.0[0])
}

fn network(factors: &[(&str, u32)]) -> Replication {
    Replication::NetworkTopology { factors: factors.iter().map(|(dc, rf)| ((*dc).to_owned(), *rf)).collect() }
}

fn show(ring: &Ring, replication: &Replication, own: u16, options: &RepairOptions) -> String {
    let placement = Placement::new(ring, replication);
    let units = match plan(ring, &placement, NodeIndex(own), options) {
        Ok(units) => units,
        Err(error) => return format!("  {error}\n"),
    };
    let mut out = String::new();
    for unit in units {
        let peers: String = unit.peers.iter().map(|peer| name(ring, *peer)).collect();
        let end = |token: i64| match token {
            i64::MIN => "min".to_owned(),
            i64::MAX => "max".to_owned(),
            token => token.to_string(),
        };
        let part = if unit.complete { "" } else { ", not all replicas" };
        writeln!(out, "  ({}, {}] with {peers}{part}", end(unit.range.after), end(unit.range.upto))
            .expect("a string");
    }
    if out.is_empty() { "  nothing\n".to_owned() } else { out }
}

#[test]
fn golden() {
    let ring = ring();
    let dc = |names: &[&str]| RepairOptions {
        datacenters: names.iter().map(|n| (*n).to_owned()).collect(),
        ..RepairOptions::all()
    };
    let primary = |options: RepairOptions| RepairOptions { ranges: Ranges::Primary, ..options };
    let ranges = |ranges: &[(i64, i64)]| RepairOptions {
        tokens: ranges.iter().map(|(after, upto)| TokenRange { after: *after, upto: *upto }).collect(),
        ..RepairOptions::all()
    };
    let tokens = |after, upto| ranges(&[(after, upto)]);
    let hosts = |names: &[u8]| names.iter().map(|name| HostId([*name; 16])).collect::<Vec<_>>();
    let with = |names: &[u8]| RepairOptions { hosts: hosts(names), ..RepairOptions::all() };
    let without = |names: &[u8]| RepairOptions { ignored: hosts(names), ..RepairOptions::all() };
    let cases = [
        ("a, simple 5: everyone has everything", Replication::Simple { factor: 5 }, 0, RepairOptions::all()),
        (
            "a, simple 5, cut by bytes",
            Replication::Simple { factor: 5 },
            0,
            RepairOptions { ring_bytes: 3 << 30, ..RepairOptions::all() },
        ),
        ("a, simple 1", Replication::Simple { factor: 1 }, 0, RepairOptions::all()),
        ("a, simple 2", Replication::Simple { factor: 2 }, 0, RepairOptions::all()),
        ("a, simple 2, primary", Replication::Simple { factor: 2 }, 0, primary(RepairOptions::all())),
        ("b, dc1:2 dc2:1", network(&[("dc1", 2), ("dc2", 1)]), 1, RepairOptions::all()),
        ("b, dc1:2 dc2:1, primary", network(&[("dc1", 2), ("dc2", 1)]), 1, primary(RepairOptions::all())),
        ("b, dc1:2 dc2:1, only dc1", network(&[("dc1", 2), ("dc2", 1)]), 1, dc(&["dc1"])),
        ("b, dc1:2 dc2:1, primary in dc1", network(&[("dc1", 2), ("dc2", 1)]), 1, primary(dc(&["dc1"]))),
        ("b, only dc2", network(&[("dc1", 2), ("dc2", 1)]), 1, dc(&["dc2"])),
        ("b, only dc3", network(&[("dc1", 2), ("dc2", 1)]), 1, dc(&["dc3"])),
        ("a, simple 2, tokens around the end", Replication::Simple { factor: 2 }, 0, tokens(650, -550)),
        ("a, simple 2, tokens of others", Replication::Simple { factor: 2 }, 0, tokens(410, 500)),
        (
            "a, simple 2, three ranges, two of which overlap",
            Replication::Simple { factor: 2 },
            0,
            ranges(&[(650, -550), (710, 720), (20, 60)]),
        ),
        (
            "a, simple 2, one range of others among two",
            Replication::Simple { factor: 2 },
            0,
            ranges(&[(20, 60), (410, 500)]),
        ),
        ("a, simple 5, with b and c", Replication::Simple { factor: 5 }, 0, with(b"abc")),
        ("a, simple 5, with others", Replication::Simple { factor: 5 }, 0, with(b"bc")),
        ("a, simple 5, without d", Replication::Simple { factor: 5 }, 0, without(b"d")),
        ("a, simple 5, without itself", Replication::Simple { factor: 5 }, 0, without(b"a")),
    ];
    let mut out = String::new();
    for (title, replication, own, options) in &cases {
        writeln!(out, "{title}").expect("a string");
        out.push_str(&show(&ring, replication, *own, options));
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/plan.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &out).expect("the table can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("run with UPDATE=1 to make the table");
    assert_eq!(out, expected, "run with UPDATE=1 and read the difference");
}

/// When every node repairs its primary ranges, every token is repaired exactly once; when one node repairs all of its ranges,
/// exactly its own tokens are.
#[test]
fn every_token_is_repaired_once() {
    let ring = ring();
    for replication in [Replication::Simple { factor: 2 }, network(&[("dc1", 2), ("dc2", 1)])] {
        let placement = Placement::new(&ring, &replication);
        for token in (-800i64..800).step_by(7).chain([i64::MIN + 1, i64::MAX]) {
            let covers = |units: &[Unit]| {
                units.iter().filter(|unit| unit.range.after < token && token <= unit.range.upto).count()
            };
            let mut primary = 0;
            for own in ring.indexes() {
                let options = RepairOptions { ring_bytes: 50 << 30, ..RepairOptions::all() };
                let all = plan(&ring, &placement, own, &options).expect("a plan");
                let keeps = placement.replicas(token).contains(&own);
                assert_eq!(covers(&all), usize::from(keeps), "token {token} by {own:?}");
                let options = RepairOptions { ranges: Ranges::Primary, ..options };
                primary += covers(&plan(&ring, &placement, own, &options).expect("a plan"));
            }
            assert_eq!(primary, 1, "token {token}");
        }
    }
}

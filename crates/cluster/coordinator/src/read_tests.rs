//! How a read is split and put together: the pure parts.

use mutation::{Clustering, DecoratedKey, Row};
use replica::PartitionResult;
use schema::Replication;
use testkit::data::{clustering, table};
use topology::{HostId, Location, Ring, RingNode};

use super::*;

fn ring() -> Ring {
    let node = |id: u8| RingNode { host: HostId([id; 16]), location: Location::new("dc1", "r1") };
    Ring::new([(node(1), vec![-100, 50]), (node(2), vec![0]), (node(3), vec![10])]).unwrap()
}

fn shown(parts: &VecDeque<(PartitionRange, Replicas)>) -> Vec<String> {
    let position = |position: &RingPosition| match position {
        RingPosition::BeforeToken(i64::MIN) => "min".to_owned(),
        RingPosition::AfterToken(i64::MAX) => "max".to_owned(),
        RingPosition::BeforeToken(token) => format!("<{token}"),
        RingPosition::AfterToken(token) => format!("{token}>"),
        RingPosition::BeforeKey(key) => format!("<key {}", key.token),
        RingPosition::AfterKey(key) => format!("key {}>", key.token),
    };
    let one = |(range, replicas): &(PartitionRange, Replicas)| {
        let nodes: Vec<String> = replicas.iter().map(|node| (node.0 + 1).to_string()).collect();
        format!("{}..{} on {}", position(&range.start), position(&range.end), nodes.join(" "))
    };
    parts.iter().map(one).collect()
}

#[test]
fn a_range_is_read_in_ring_order_from_the_owners_of_its_parts() {
    let one = Placement::new(&ring(), &Replication::Simple { factor: 1 });
    let all = PartitionRange::all();
    assert_eq!(
        shown(&parts(&one, &all, None)),
        ["min..-100> on 1", "-100>..0> on 2", "0>..10> on 3", "10>..max on 1"]
    );
    let some = PartitionRange { start: RingPosition::AfterToken(-5), end: RingPosition::BeforeToken(10) };
    assert_eq!(shown(&parts(&one, &some, None)), ["-5>..0> on 2", "0>..<10 on 3"]);
    // With as many copies as nodes every part has the same replicas: one read.
    let three = Placement::new(&ring(), &Replication::Simple { factor: 3 });
    assert_eq!(shown(&parts(&three, &all, None)).len(), 1);
}

#[test]
fn a_range_resumes_where_the_previous_page_ended() {
    let one = Placement::new(&ring(), &Replication::Simple { factor: 1 });
    let key = DecoratedKey { token: 5, key: Bytes::from_static(b"k") };
    let resume = Resume { key, clustering: None, rows_in_partition: 0 };
    let parts = parts(&one, &PartitionRange::all(), Some(&resume));
    assert_eq!(
        shown(&parts),
        ["min..10> on 3", "10>..max on 1"],
        "the first part holds the place to go on from"
    );
}

fn partition(token: i64, rows: std::ops::Range<i32>) -> PartitionResult {
    let table = table();
    let row = |c: i32| {
        let mut row = Row::new(clustering(&table, c));
        row.liveness = mutation::LivenessInfo::forever(1);
        row
    };
    let key = DecoratedKey { token, key: Bytes::copy_from_slice(&token.to_be_bytes()) };
    PartitionResult { rows: rows.map(row).collect(), ..PartitionResult::new(key) }
}

fn command(rows: u64) -> ReadCommand {
    let all = Partitions::Range(PartitionRange::all());
    ReadCommand { limits: Limits { rows, ..Limits::NONE }, ..ReadCommand::all_of(table(), all, 100) }
}

fn page(partitions: Vec<PartitionResult>) -> ReadPage {
    ReadPage { partitions, tombstones: 1, ..ReadPage::default() }
}

#[test]
fn parts_make_a_page_that_ends_at_its_limit() {
    let command = command(5);
    let mut assembly = Assembly::new(&command);
    assert!(!assembly.push(page(vec![partition(1, 0..2)]), false));
    assert!(assembly.push(page(vec![partition(2, 0..2), partition(3, 0..4)]), true));
    let more = assembly.page.more.expect("there are three rows more");
    assert_eq!((more.key.token, more.rows_in_partition), (3, 1));
    assert_eq!(more.clustering, Some(clustering(&table(), 0)));
    assert_eq!(assembly.page.partitions.iter().map(|p| p.rows.len()).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(assembly.page.tombstones, 2);
}

#[test]
fn a_page_that_is_just_full_continues_only_if_there_is_more() {
    let command = command(2);
    let after =
        |token| Some(Resume { key: partition(token, 0..0).key, clustering: None, rows_in_partition: 0 });
    for (pages, is_last, more) in [
        (vec![partition(1, 0..2)], true, None),
        (vec![partition(1, 0..2)], false, after(1)),
        (vec![partition(1, 0..2), partition(2, 0..1)], true, after(1)),
    ] {
        let mut assembly = Assembly::new(&command);
        assert!(assembly.push(page(pages), is_last));
        assert_eq!(assembly.page.more, more);
    }
}

#[test]
fn a_part_that_ended_early_ends_the_page() {
    let command = command(10);
    let place = Resume {
        key: partition(1, 0..0).key,
        clustering: Some(Clustering::new(&table(), &[Some(&7i32.to_be_bytes())])),
        rows_in_partition: 2,
    };
    let mut assembly = Assembly::new(&command);
    let part = ReadPage { more: Some(place.clone()), ..page(vec![partition(1, 0..2)]) };
    assert!(assembly.push(part, false));
    assert_eq!(assembly.page.more, Some(place));
}

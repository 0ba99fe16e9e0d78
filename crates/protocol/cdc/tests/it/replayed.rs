//! The log of any write, replayed, is the write; and replicas that know different things of before log the same changes.

use std::collections::{BTreeMap, BTreeSet};

use cdc::{Log, Naming, StreamId};
use mutation::{ColumnData, DecoratedKey, PartitionUpdate, Row, Side};
use proptest::prelude::*;
use testkit::updates::update;
use types::elements::Elements;

use crate::tables::{log, options};

const STREAM: StreamId = StreamId([1; 16]);

fn rows_of(log: &Log, before: Option<&PartitionUpdate>, update: &PartitionUpdate) -> Option<PartitionUpdate> {
    let mut updates = log.changes(before, update, &mut |_| STREAM, Naming::Canonical);
    assert!(updates.len() <= 1, "there is one stream");
    updates.pop()
}

/// A row of the log by column.
struct Logged<'a>(&'a Log, &'a Row);

impl Logged<'_> {
    fn get(&self, name: &str) -> Option<&[u8]> {
        let id = self.0.table().column(name).expect("a column of the log").id;
        self.1.cell(id).filter(|cell| !cell.is_tombstone()).map(|cell| &*cell.value)
    }

    fn operation(&self) -> u8 {
        self.get("cdc$operation").expect("every row has one")[0]
    }

    fn number(&self) -> Vec<u8> {
        self.1.clustering.components().nth(1).flatten().expect("every row has one").to_vec()
    }

    fn key(&self) -> String {
        format!("{:02x?} {:02x?}", self.get("c1"), self.get("c2"))
    }
}

/// All that a write says but for its deletion times, as text, with the place where each was said.
type Facts = BTreeSet<String>;

fn facts(update: &PartitionUpdate) -> Facts {
    let mut facts = Facts::new();
    let id = |name: &str| update.table.column(name).expect("a column of the table").id;
    if !update.deletion.is_live() {
        facts.insert(format!("partition {}", update.deletion.timestamp));
    }
    let text = |components: Vec<Option<&[u8]>>| {
        let get = |at: usize| components.get(at).copied().flatten();
        format!("{:02x?} {:02x?}", get(0), get(1))
    };
    for range in update.range_tombstones.iter() {
        let at = range.deletion.timestamp;
        let (start, end) = (text(range.start.components().collect()), text(range.end.components().collect()));
        let (from, upto) = (range.start.side() == Side::Before, range.end.side() == Side::After);
        facts.insert(format!("range {at} {from} {start} to {upto} {end}"));
    }
    for row in update.all_rows() {
        let key = text(row.clustering.components().collect());
        if !row.deletion.is_live() {
            facts.insert(format!("row {} {key}", row.deletion.timestamp));
        }
        if !row.liveness.is_none() {
            facts.insert(format!("mark {} {} {key}", row.liveness.timestamp, row.liveness.ttl));
        }
        for name in ["s", "v", "w"] {
            if let Some(cell) = row.cell(id(name)) {
                let value = (!cell.is_tombstone()).then_some(&*cell.value);
                facts.insert(format!("cell {} {} {key} {name} {value:02x?}", cell.timestamp, cell.ttl));
            }
        }
        if let Some(ColumnData::Complex(complex)) = row.column(id("m")) {
            if !complex.deletion.is_live() {
                facts.insert(format!("whole {key}"));
            }
            for element in &complex.cells {
                let (cell, path) = (&element.cell, &*element.path);
                let value = (!cell.is_tombstone()).then_some(&*cell.value);
                facts.insert(format!(
                    "element {} {} {key} {path:02x?} {value:02x?}",
                    cell.timestamp, cell.ttl
                ));
            }
        }
    }
    facts
}

/// The same from a log.
fn logged_facts(log: &Log, rows: &PartitionUpdate, base_key: &DecoratedKey) -> Facts {
    let mut facts = Facts::new();
    let mut open: Option<(bool, String)> = None;
    for row in rows.rows() {
        let logged = Logged(log, row);
        let (at, key) = (row.liveness.timestamp, logged.key());
        assert_eq!(logged.get("pk"), Some(&*base_key.key), "every row has the key of the partition");
        let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("a bigint"));
        let ttl = logged.get("cdc$ttl").map_or(0, number);
        let mut operation = logged.operation();
        if operation == 2 {
            facts.insert(format!("mark {at} {ttl} {key}"));
            operation = 1;
        }
        match operation {
            1 => {
                for name in ["s", "v", "w"] {
                    let value = logged.get(name);
                    let is_deleted = logged.get(&format!("cdc$deleted_{name}")).is_some();
                    assert!(!(is_deleted && value.is_some()));
                    if is_deleted || value.is_some() {
                        facts.insert(format!("cell {at} {ttl} {key} {name} {value:02x?}"));
                    }
                }
                if logged.get("cdc$deleted_m").is_some() {
                    facts.insert(format!("whole {key}"));
                }
                let elements = |bytes: Option<&[u8]>, is_map: bool| -> Vec<Vec<u8>> {
                    let Some(bytes) = bytes else { return Vec::new() };
                    let read = if is_map { Elements::of_map(bytes) } else { Elements::of_set(bytes) };
                    let element =
                        |element: Result<Option<&[u8]>, _>| element.ok().flatten().expect("a value").to_vec();
                    read.expect("a collection").map(element).collect()
                };
                for path in elements(logged.get("cdc$deleted_elements_m"), false) {
                    facts.insert(format!("element {at} {ttl} {key} {path:02x?} {:02x?}", None::<&[u8]>));
                }
                for pair in elements(logged.get("m"), true).chunks(2) {
                    let (path, value) = (&pair[0], Some(&pair[1][..]));
                    facts.insert(format!("element {at} {ttl} {key} {path:02x?} {value:02x?}"));
                }
            }
            3 => drop(facts.insert(format!("row {at} {key}"))),
            4 => drop(facts.insert(format!("partition {at}"))),
            5 | 6 => open = Some((operation == 5, key)),
            7 | 8 => {
                let (from, start) = open.take().expect("a range has a start");
                facts.insert(format!("range {at} {from} {start} to {} {key}", operation == 7));
            }
            other => panic!("operation {other} without images"),
        }
    }
    assert!(open.is_none(), "a range has an end");
    facts
}

proptest! {
    #[test]
    fn a_replayed_log_is_the_write(update in update()) {
        let log = log(options(false));
        let expected = facts(&update);
        match rows_of(&log, None, &update) {
            None => prop_assert!(expected.is_empty()),
            Some(rows) => {
                prop_assert_eq!(logged_facts(&log, &rows, &update.key), expected);
                // The last row of each time is marked as such, and no other.
                let mut ends: BTreeMap<Vec<u8>, Vec<bool>> = BTreeMap::new();
                for row in rows.rows() {
                    let time = row.clustering.components().next().flatten().expect("a time").to_vec();
                    ends.entry(time).or_default().push(Logged(&log, row).get("cdc$end_of_batch").is_some());
                }
                for ends in ends.values() {
                    prop_assert!(ends.iter().rev().skip(1).all(|end| !end) && ends.last() == Some(&true));
                }
            }
        }
    }

    #[test]
    fn the_data_of_a_replica_changes_images_only(update in update(), one in update(), other in update()) {
        let log = log(options(true));
        let of = |mut before: PartitionUpdate| {
            before.key = update.key.clone();
            rows_of(&log, Some(&before), &update)
        };
        let (Some(one), Some(other)) = (of(one), of(other)) else { return Ok(()) };
        let mut merged = one.clone();
        merged.merge(other.clone());
        for rows in [&one, &other] {
            for row in rows.rows() {
                let place = merged.rows().binary_search_by(|probe| probe.clustering.cmp(&row.clustering));
                let merged = Logged(&log, &merged.rows()[place.expect("nothing is lost")]);
                let row = Logged(&log, row);
                prop_assert_eq!(row.operation(), merged.operation(), "a number has one meaning");
                prop_assert_eq!(row.number(), merged.number());
                if !matches!(row.operation(), 0 | 9) {
                    prop_assert_eq!(row.1, merged.1, "a change is the same everywhere");
                }
            }
        }
        let changes = |rows: &PartitionUpdate| {
            rows.rows().iter().filter(|row| !matches!(Logged(&log, row).operation(), 0 | 9)).count()
        };
        prop_assert_eq!(changes(&one), changes(&other));
        prop_assert_eq!(changes(&one), changes(&merged));
    }

    #[test]
    fn a_write_that_comes_again_is_logged_once(update in update(), before in update()) {
        let log = log(options(true));
        let mut before = before;
        before.key = update.key.clone();
        let Some(first) = rows_of(&log, Some(&before), &update) else { return Ok(()) };
        before.merge(update.clone());
        let again = rows_of(&log, Some(&before), &update).expect("it is the same write");
        let keys = |rows: &PartitionUpdate| rows.rows().iter().map(|row| row.clustering.clone()).collect::<BTreeSet<_>>();
        let mut merged = first.clone();
        merged.merge(again);
        prop_assert!(keys(&merged).is_superset(&keys(&first)));
        let changes = |rows: &PartitionUpdate| {
            let is_change = |row: &&Row| !matches!(Logged(&log, row).operation(), 0 | 9);
            rows.rows().iter().filter(is_change).cloned().collect::<Vec<_>>()
        };
        prop_assert_eq!(changes(&merged), changes(&first));
    }
}

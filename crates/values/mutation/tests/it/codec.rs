//! Updates as bytes: round trips, under later schemas too, and no bytes make the decoder panic.

use std::sync::Arc;

use bytes::Bytes;
use mutation::codec::{
    Layouts, UpdatesError, Version, decode_received, decode_update, decode_updates, encode_update,
    encode_updates,
};
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row};
use proptest::prelude::*;
use testkit::updates::{TABLE, is_same, table, update};
use types::CqlType;

fn encoded(update: &PartitionUpdate) -> Vec<u8> {
    let mut out = Vec::new();
    encode_update(update, &mut out);
    out
}

#[test]
fn versions_have_their_numbers() {
    assert_eq!(Version::of_number(1), Some(Version::V1));
    assert!((2..=255).chain([0]).all(|number| Version::of_number(number).is_none()));
    assert_eq!(Version::of_number(Version::CURRENT.number()), Some(Version::CURRENT));
}

proptest! {
    #[test]
    fn updates_come_back(list in prop::collection::vec(update(), 0..4)) {
        let mut run = Vec::new();
        encode_updates(&list, &mut run);
        let run = Bytes::from(run);
        let layouts = Layouts::default();
        let one = table();
        let read = decode_updates(&run, Some(&layouts), |id| (id == TABLE).then(|| one.clone())).unwrap();
        let apart = decode_updates(&run, None, |id| (id == TABLE).then(|| one.clone())).unwrap();
        prop_assert!(read.updates.iter().zip(&apart.updates).all(|(left, right)| is_same(left, right)));
        prop_assert_eq!(read.updates.len(), list.len());
        let bytes = read.encoded.expect("nothing was left out");
        prop_assert_eq!(bytes.iter().count(), list.len());
        for ((read, update), bytes) in read.updates.iter().zip(&list).zip(bytes.iter()) {
            prop_assert!(is_same(read, update), "{:?} {:?}", read, update);
            prop_assert_eq!(bytes, encoded(update));
        }
        let unknown = decode_updates(&run, None, |_| None).map(|read| read.updates.len());
        prop_assert_eq!(unknown, if list.is_empty() { Ok(0) } else { Err(UpdatesError::UnknownTable(TABLE)) });
    }

    #[test]
    fn damaged_bytes_are_errors_or_other_updates(update in update(), at in any::<usize>(), byte in any::<u8>()) {
        let mut body = encoded(&update);
        let cut = at % body.len();
        let short = Bytes::copy_from_slice(&body[..cut]);
        prop_assert!(decode_update(Version::V1, &short, |_| Some(table())).is_err());
        prop_assert!(decode_update(Version::V1, &Bytes::copy_from_slice(&body), |_| None).unwrap().is_none());
        body[cut] = byte;
        let _ = decode_update(Version::V1, &Bytes::from(body), |_| Some(table()));
    }

    #[test]
    fn damaged_runs_are_errors_or_other_updates(
        list in prop::collection::vec(update(), 1..3), at in any::<usize>(), byte in any::<u8>(),
    ) {
        let mut run = Vec::new();
        encode_updates(&list, &mut run);
        let cut = at % run.len();
        let short = Bytes::copy_from_slice(&run[..cut]);
        prop_assert!(decode_updates(&short, Some(&Layouts::default()), |_| Some(table())).is_err());
        run[cut] = byte;
        if let Ok(read) = decode_updates(&Bytes::from(run), Some(&Layouts::default()), |_| Some(table()))
            && let Some(bytes) = read.encoded
        {
            prop_assert_eq!(bytes.iter().count(), read.updates.len());
        }
    }
}

#[test]
fn a_run_of_another_version_is_refused_by_its_number() {
    let mut run = Vec::new();
    encode_updates(&[], &mut run);
    run[0] = 9;
    let refused = decode_updates(&Bytes::from(run), None, |_| None).unwrap_err();
    assert_eq!(refused, UpdatesError::Version(9));
}

#[test]
fn dropped_columns_stay_dropped() {
    let table = table();
    let (v, w) = (table.column("v").unwrap().id, table.column("w").unwrap().id);
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"k")));
    let mut row = Row::new(Clustering::new(&table, &[Some(&[0; 4]), Some(b"x")]));
    row.set(v, ColumnData::Simple(Cell::live(10, Bytes::from_static(b"old"))));
    row.set(w, ColumnData::Simple(Cell::live(10, Bytes::from_static(b"kept"))));
    update.add_row(row);
    let body = Bytes::from(encoded(&update));
    // Remembered layouts are of the table as it was.
    let layouts = Layouts::default();
    let read = |table: &Arc<schema::Table>| {
        decode_received(Version::V1, &body, Some(&layouts), |_| Some(table.clone()))
    };
    let found = read(&table).unwrap();
    assert!(found.is_whole && found.update.rows()[0].encoded_cells().is_some());

    let mut later = table.to_builder();
    later.drop_column("v", 10);
    let gone = Arc::new(later.clone().build().unwrap());
    let found = read(&gone).unwrap();
    assert!(!found.is_whole, "a store of the bytes would include the columns that were left out");
    assert_eq!(found.update.rows()[0].columns().len(), 1);
    assert_eq!(found.update.rows()[0].cell(w).unwrap().value, "kept");
    let mut run = Vec::new();
    encode_updates(&[update], &mut run);
    let run = Bytes::from(run);
    assert!(decode_updates(&run, Some(&layouts), |_| Some(gone.clone())).unwrap().encoded.is_none());

    // A node that has not heard of the column yet must not take a part of the write.
    let mut earlier = table.to_builder();
    earlier.drop_column("v", 10);
    let mut earlier = earlier.build().unwrap();
    earlier.dropped_columns.clear();
    let earlier = Arc::new(earlier);
    assert_eq!(read(&earlier).unwrap_err(), UpdatesError::UnknownColumn(TABLE));
    let refused = decode_updates(&run, Some(&layouts), |_| Some(earlier.clone())).unwrap_err();
    assert_eq!(refused, UpdatesError::UnknownColumn(TABLE));
    let unknown = decode_received(Version::V1, &body, None, |_| None).unwrap_err();
    assert_eq!(unknown, UpdatesError::UnknownTable(TABLE));

    let again = Arc::new(later.regular("v", CqlType::Blob).build().unwrap());
    let found = read(&again).unwrap();
    let new_v = again.column("v").unwrap().id;
    assert_ne!(new_v, v);
    assert!(found.update.rows()[0].column(new_v).is_none(), "what was dropped does not return with the name");
    assert!(!found.is_whole);
}

/// A file cannot hold a cell of a regular column in a static row, nor the other way around.
#[test]
fn columns_of_the_other_kind_are_left_out() {
    let table = table();
    let (s, v) = (table.column("s").unwrap().id, table.column("v").unwrap().id);
    let cell = || ColumnData::Simple(Cell::live(10, Bytes::from_static(b"x")));
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"k")));
    let mut fixed = Row::new(Clustering::empty());
    fixed.set(v, cell());
    fixed.set(s, cell());
    update.add_static(fixed);
    let mut row = Row::new(Clustering::new(&table, &[Some(&[0; 4]), Some(b"x")]));
    row.set(s, cell());
    row.set(v, cell());
    update.add_row(row);
    let body = Bytes::from(encoded(&update));
    let found =
        decode_received(Version::V1, &body, Some(&Layouts::default()), |_| Some(table.clone())).unwrap();
    let fixed = found.update.static_row().unwrap();
    assert!(fixed.column(v).is_none() && fixed.column(s).is_some());
    let row = &found.update.rows()[0];
    assert!(row.column(s).is_none() && row.column(v).is_some() && !found.is_whole);
}

#[test]
fn an_update_of_encoded_cells_has_the_bytes_of_any_other() {
    let table = testkit::data::table();
    let key = DecoratedKey::new(Bytes::from_static(b"key1"));
    let id = table.column("v").expect("a column of the table").id;
    let liveness = mutation::LivenessInfo::forever;
    for (cell, marked) in [
        (Cell::live(5, Bytes::from_static(b"value")), liveness(5)),
        (Cell::live(5, Bytes::from_static(b"value")), liveness(4)),
        (Cell::live(5, Bytes::from(vec![1; 300])), liveness(5)),
        (Cell::expiring(5, 9, 90, Bytes::new()), mutation::LivenessInfo::NONE),
        (Cell::tombstone(5, 9), mutation::LivenessInfo::NONE),
    ] {
        let row =
            Row::from_columns(testkit::data::clustering(&table, 3), vec![(id, ColumnData::Simple(cell))]);
        let of = |mut row: Row, rows: i32| {
            row.liveness = marked;
            let others = (4..3 + rows).map(|c| {
                let mut other = Row::new(testkit::data::clustering(&table, c));
                other.liveness = liveness(7);
                other
            });
            let rows = [row].into_iter().chain(others).collect();
            encoded(&PartitionUpdate::with_rows(table.clone(), key.clone(), rows))
        };
        for rows in 1..3 {
            let compact = testkit::data::with_encoded_cells(row.clone(), &table);
            assert!(compact.encoded_cells().is_some());
            assert_eq!(of(compact, rows), of(row.clone(), rows));
        }
    }
}

/// No client can give that time, but damaged or hostile bytes can.
#[test]
fn a_cell_of_the_earliest_time_is_read_with_layouts_as_without() {
    let table = testkit::updates::small_table();
    let id = table.column("v").expect("a column of the table").id;
    let cell = Cell::live(mutation::Timestamp::MIN, Bytes::from_static(b"value"));
    let clustering = testkit::updates::small(&table, 1).rows()[0].clustering.clone();
    let row = Row::from_columns(clustering, vec![(id, ColumnData::Simple(cell))]);
    let key = DecoratedKey::new(Bytes::from_static(b"key1"));
    let mut run = Vec::new();
    mutation::codec::encode_updates(&[PartitionUpdate::with_rows(table.clone(), key, vec![row])], &mut run);
    let (run, known) = (Bytes::from(run), mutation::codec::Layouts::default());
    for layouts in [None, Some(&known), Some(&known)] {
        let read = mutation::codec::decode_updates(&run, layouts, |_| Some(table.clone())).unwrap();
        assert_eq!(read.updates[0].rows().len(), 1, "{:?}", read.updates[0].rows());
    }
}

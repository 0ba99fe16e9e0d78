//! Reads and pages as bytes: encoded values are decoded again, and no bytes make the decoder panic.

mod nearest_codec;
mod snapshots;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use mutation::{
    ColumnSelection, DecoratedKey, DeletionTime, Fragment, PartitionRange, PartitionUpdate, RingPosition,
    RowRange, Side, Slices,
};
use proptest::prelude::*;
use replica::page::{PageBuilder, Progress};
use replica::read_codec::{ReadCodecError, decode_command, decode_page, encode_command, encode_page};
use replica::{
    Form, IndexQuery, Limits, PartitionResult, Partitions, Predicate, ReadCommand, ReadPage, Resume, digest,
};
use schema::TableId;
use testkit::data::{bound, clustering, table, update};

/// Runs a future that never waits: outside of an executor nothing yields.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it waits for nothing")
}

fn key(k: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()))
}

fn position() -> impl Strategy<Value = RingPosition> {
    prop_oneof![
        any::<i64>().prop_map(RingPosition::BeforeToken),
        any::<i64>().prop_map(RingPosition::AfterToken),
        any::<i32>().prop_map(|k| RingPosition::BeforeKey(key(k))),
        any::<i32>().prop_map(|k| RingPosition::AfterKey(key(k))),
    ]
}

fn partitions() -> impl Strategy<Value = Partitions> {
    prop_oneof![
        prop::collection::vec(any::<i32>(), 0..4)
            .prop_map(|keys| Partitions::Keys(keys.into_iter().map(key).collect())),
        (position(), position()).prop_map(|(start, end)| Partitions::Range(PartitionRange { start, end })),
    ]
}

fn slices() -> impl Strategy<Value = Slices> {
    let range = (0i32..9, any::<bool>(), 0i32..9).prop_map(|(from, inclusive, to)| {
        let table = table();
        let side = if inclusive { Side::Before } else { Side::After };
        RowRange { start: bound(&table, from, side), end: bound(&table, to, Side::After) }
    });
    prop_oneof![Just(Slices::all()), prop::collection::vec(range, 0..4).prop_map(Slices::new)]
}

fn resume() -> impl Strategy<Value = Option<Resume>> {
    prop::option::of((any::<i32>(), prop::option::of(any::<i32>()), any::<u64>())).prop_map(|resume| {
        resume.map(|(k, c, rows_in_partition)| Resume {
            key: key(k),
            clustering: c.map(|c| clustering(&table(), c)),
            rows_in_partition,
        })
    })
}

fn index() -> impl Strategy<Value = Option<Arc<IndexQuery>>> {
    let value = || prop::collection::vec(any::<u8>(), 0..4).prop_map(Bytes::from);
    let end = || prop::option::of((value(), any::<bool>()));
    let predicate = prop_oneof![
        value().prop_map(Predicate::Equal),
        (value(), value()).prop_map(|(key, value)| Predicate::Entry { key, value }),
        (end(), end()).prop_map(|(from, to)| Predicate::Range { from, to }),
    ];
    prop::option::of(
        (".{0,3}", predicate).prop_map(|(index, predicate)| IndexQuery { index, predicate }.into()),
    )
}

fn command() -> impl Strategy<Value = ReadCommand> {
    let form = prop_oneof![Just(Form::Live), Just(Form::Full), Just(Form::Reconcilable), Just(Form::Whole)];
    let columns = prop_oneof![
        Just(ColumnSelection::All),
        Just(ColumnSelection::Some([].into())),
        Just(ColumnSelection::Some([table().column("v").expect("it has v").id].into())),
    ];
    let flags = (any::<bool>(), any::<bool>(), form, index());
    let limits = (any::<u64>(), any::<u64>(), any::<u32>());
    (partitions(), slices(), columns, resume(), flags, limits, any::<u32>()).prop_map(
        |(partitions, slices, columns, resume, (reversed, bypass_cache, form, index), limits, now)| {
            ReadCommand {
                table: table(),
                partitions,
                slices,
                columns,
                reversed,
                limits: Limits { rows: limits.0, rows_per_partition: limits.1, bytes: limits.2 as usize },
                resume,
                now,
                bypass_cache,
                form,
                index,
            }
        },
    )
}

/// A page of these updates; a page holds no empty row.
fn page(
    command: &ReadCommand,
    updates: &[PartitionUpdate],
    more: Option<Resume>,
    tombstones: u64,
) -> ReadPage {
    let result = |update: &PartitionUpdate| {
        let mut result = PartitionResult::from_update(update.clone(), command.reversed);
        result.rows.retain(|row| !row.is_empty());
        result
    };
    let truncated_at = if command.form == Form::Reconcilable { tombstones as i64 } else { 0 };
    ReadPage { partitions: updates.iter().map(result).collect(), more, tombstones, truncated_at }
}

proptest! {
    #[test]
    fn commands_come_back(command in command()) {
        let mut bytes = Vec::new();
        encode_command(&command, &mut bytes);
        let bytes = Bytes::from(bytes);
        let back = decode_command(&bytes, |_| Some(table())).expect("it was written here");
        prop_assert_eq!(format!("{back:?}"), format!("{command:?}"));
        let unknown = decode_command(&bytes, |_| None);
        prop_assert_eq!(unknown.err(), Some(ReadCodecError::UnknownTable(TableId([7; 16]))));
        for len in 0..bytes.len() {
            prop_assert!(decode_command(&bytes.slice(..len), |_| Some(table())).is_err(), "cut at {}", len);
        }
    }

    #[test]
    fn pages_come_back(
        command in command(),
        updates in prop::collection::vec(update(table()), 0..4),
        more in resume(),
        tombstones in any::<u64>(),
    ) {
        let page = page(&command, &updates, more, tombstones);
        let mut bytes = Vec::new();
        now(encode_page(&command, page.clone(), &mut bytes));
        let bytes = Bytes::from(bytes);
        let back = now(decode_page(&command, &bytes)).expect("it was written here");
        prop_assert_eq!(&back, &page);
        prop_assert_eq!(now(digest(&command, &back)), now(digest(&command, &page)));
        let steps = ReadPage { tombstones: tombstones.wrapping_add(1), ..page.clone() };
        prop_assert_eq!(now(digest(&command, &steps)), now(digest(&command, &page)), "steps are no content");
        if let Some(partition) = page.partitions.first() {
            let fewer = ReadPage { partitions: page.partitions[1..].to_vec(), ..page.clone() };
            prop_assert_ne!(now(digest(&command, &fewer)), now(digest(&command, &page)), "without {:?}", partition);
        }
        for len in 0..bytes.len() {
            prop_assert!(now(decode_page(&command, &bytes.slice(..len))).is_err(), "cut at {}", len);
        }
    }

    #[test]
    fn no_bytes_panic(command in command(), mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        let bytes = Bytes::from(bytes);
        let _ = decode_command(&bytes, |_| Some(table()));
        let _ = now(decode_page(&command, &bytes));
    }

    #[test]
    fn no_damage_panics(
        command in command(),
        updates in prop::collection::vec(update(table()), 1..3),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        now(encode_page(&command, page(&command, &updates, None, 0), &mut bytes));
        let place = at.index(bytes.len());
        bytes[place] = to;
        let _ = now(decode_page(&command, &Bytes::from(bytes)));
        let mut bytes = Vec::new();
        encode_command(&command, &mut bytes);
        let place = at.index(bytes.len());
        bytes[place] = to;
        let _ = decode_command(&Bytes::from(bytes), |_| Some(table()));
    }
}

/// Dead partitions have no rows; a page of nothing else ends all the same.
#[test]
fn a_page_of_dead_partitions_ends_by_its_bytes() {
    let command = ReadCommand {
        table: table(),
        partitions: Partitions::Range(PartitionRange::all()),
        slices: Slices::all(),
        columns: ColumnSelection::All,
        reversed: false,
        limits: Limits { bytes: 10_000, ..Limits::NONE },
        resume: None,
        now: 100,
        bypass_cache: false,
        form: Form::Whole,
        index: None,
    };
    let mut page = PageBuilder::new(&command);
    let full_after = (0i32..1_000).position(|k| {
        let deletion = DeletionTime::new(5, 50);
        page.push(Fragment::PartitionStart { key: key(k), deletion });
        page.push(Fragment::PartitionEnd) == Progress::Full
    });
    let full_after = full_after.expect("it ends") as i32;
    assert!((20..90).contains(&full_after), "after {full_after} partitions");
    let more = page.finish().more.expect("there is more");
    assert_eq!((more.key, more.clustering), (key(full_after), None));
}

/// The table of `testkit`, as a process that has had other columns knows it: its ids are others.
fn table_elsewhere() -> std::sync::Arc<schema::Table> {
    let here = table();
    let map = here.column("m").expect("it has m").ty.clone();
    let int = here.column("s").expect("it has s").ty.clone();
    let text = here.column("v").expect("it has v").ty.clone();
    schema::TableBuilder::new("ks", "t", here.id)
        .partition_key("k", int.clone())
        .clustering("c", int.clone(), false)
        .regular("m", map)
        .regular("v", text)
        .static_column("s", int)
        .build_known()
}

proptest! {
    #[test]
    fn ids_of_columns_are_no_content(updates in prop::collection::vec(update(table()), 0..3)) {
        let command = |table| ReadCommand {
            table,
            partitions: Partitions::Range(PartitionRange::all()),
            slices: Slices::all(),
            columns: ColumnSelection::All,
            reversed: false,
            limits: Limits::NONE,
            resume: None,
            now: 0,
            bypass_cache: false,
            form: Form::Full,
            index: None,
        };
        let (here, elsewhere) = (command(table()), command(table_elsewhere()));
        prop_assert_ne!(
            here.table.column("m").map(|column| column.id),
            elsewhere.table.column("m").map(|column| column.id)
        );
        let page = page(&here, &updates, None, 0);
        let mut bytes = Vec::new();
        now(encode_page(&here, page.clone(), &mut bytes));
        let there = now(decode_page(&elsewhere, &Bytes::from(bytes))).expect("it was written here");
        prop_assert_eq!(now(digest(&here, &page)), now(digest(&elsewhere, &there)));
    }
}

//! The naive model: a list of all operations; the rows that a reader must see follow from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, EngineReader, Read, SyncStep};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DecoratedKey, DeletionTime, Fragment, PartitionRange,
    PartitionUpdate, RangeTombstone, Row, Seconds, Side, Slices,
};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

/// One thing that an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Cell { pk: i32, ck: i32, b: bool, ts: i64 },
    Row { pk: i32, ck: i32, ts: i64 },
    Range { pk: i32, from: i32, upto: i32, ts: i64 },
    Partition { pk: i32, ts: i64 },
    Static { pk: i32, ts: i64 },
}

/// Changes that are applied together. Large ones carry values of some kilobytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    pub number: u64,
    pub changes: Vec<Change>,
    pub large: bool,
}

/// Live cells: (partition, clustering or none for static, column) to timestamp.
pub type Visible = BTreeMap<(i32, Option<i32>, &'static str), i64>;

pub fn table(id: u8, gc_grace: u32) -> Table {
    let mut builder = TableBuilder::new("ks", format!("t{id}"), TableId([id; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .static_column("s", CqlType::Blob)
        .regular("a", CqlType::Blob)
        .regular("b", CqlType::Blob);
    builder.options.gc_grace_seconds = gc_grace;
    // Small groups of different sizes, so that compactions leave SSTables aside.
    for (name, value) in [("min_threshold", "2"), ("min_sstable_size", "0")] {
        builder.options.compaction.insert(name.to_owned(), value.to_owned());
    }
    builder.build().unwrap()
}

pub fn schema(gc_grace: u32) -> Arc<Schema> {
    let keyspace = Keyspace::new("ks", Replication::Local);
    Arc::new(Schema::default().with_keyspace(keyspace).with_table(table(1, gc_grace)))
}

pub fn key(n: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&n.to_be_bytes()))
}

fn clustering(table: &Table, n: i32) -> Clustering {
    Clustering::new(table, &[Some(&n.to_be_bytes())])
}

fn value(ts: i64, large: bool) -> Bytes {
    let mut value = ts.to_be_bytes().to_vec();
    if large {
        value.resize(3000 + (ts % 2000) as usize, ts as u8);
    }
    value.into()
}

/// The updates of an operation, made at `now` by the server's clock.
pub fn updates(table: &Arc<Table>, op: &Op, now: Seconds) -> Vec<PartitionUpdate> {
    let id = |name: &str| table.column(name).unwrap().id;
    let mut out: Vec<PartitionUpdate> = Vec::new();
    for change in &op.changes {
        let pk = match change {
            Change::Cell { pk, .. }
            | Change::Row { pk, .. }
            | Change::Range { pk, .. }
            | Change::Partition { pk, .. }
            | Change::Static { pk, .. } => *pk,
        };
        let mut update = PartitionUpdate::new(table.clone(), key(pk));
        match change {
            Change::Cell { ck, b, ts, .. } => {
                let mut row = Row::new(clustering(table, *ck));
                let cell = Cell::live(*ts, value(*ts, op.large));
                row.set(id(if *b { "b" } else { "a" }), ColumnData::Simple(cell));
                update.add_row(row);
            }
            Change::Row { ck, ts, .. } => {
                let mut row = Row::new(clustering(table, *ck));
                row.deletion = DeletionTime::new(*ts, now);
                update.add_row(row);
            }
            Change::Range { from, upto, ts, .. } => update.add_range_tombstone(RangeTombstone {
                start: Bound::new(table, &[Some(&from.to_be_bytes())], Side::Before),
                end: Bound::new(table, &[Some(&upto.to_be_bytes())], Side::After),
                deletion: DeletionTime::new(*ts, now),
            }),
            Change::Partition { ts, .. } => update.add_deletion(DeletionTime::new(*ts, now)),
            Change::Static { ts, .. } => {
                let mut row = Row::new(Clustering::empty());
                row.set(id("s"), ColumnData::Simple(Cell::live(*ts, value(*ts, op.large))));
                update.add_static(row);
            }
        }
        match out.iter_mut().find(|other| other.key == update.key) {
            Some(other) => other.merge(update),
            None => out.push(update),
        }
    }
    out
}

/// The state that a reader must see after these operations.
pub fn visible<'a>(ops: impl Iterator<Item = &'a Op> + Clone) -> Visible {
    let changes = ops.flat_map(|op| &op.changes);
    let mut rows: BTreeMap<(i32, i32), i64> = BTreeMap::new();
    let mut partitions: BTreeMap<i32, i64> = BTreeMap::new();
    let raise = |at: &mut i64, ts: i64| *at = (*at).max(ts);
    for change in changes.clone() {
        match change {
            Change::Row { pk, ck, ts } => raise(rows.entry((*pk, *ck)).or_default(), *ts),
            Change::Range { pk, from, upto, ts } => {
                (*from..=*upto).for_each(|ck| raise(rows.entry((*pk, ck)).or_default(), *ts));
            }
            Change::Partition { pk, ts } => raise(partitions.entry(*pk).or_default(), *ts),
            Change::Cell { .. } | Change::Static { .. } => {}
        }
    }
    let mut out = Visible::new();
    for change in changes {
        let (pk, ck, name, ts) = match change {
            Change::Cell { pk, ck, b, ts } => (*pk, Some(*ck), if *b { "b" } else { "a" }, *ts),
            Change::Static { pk, ts } => (*pk, None, "s", *ts),
            _ => continue,
        };
        let row = ck.and_then(|ck| rows.get(&(pk, ck)).copied()).unwrap_or(0);
        let deleted = row.max(partitions.get(&pk).copied().unwrap_or(0));
        if ts > deleted {
            raise(out.entry((pk, ck, name)).or_default(), ts);
        }
    }
    out
}

fn number(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().unwrap())
}

/// The result of a read of the engine, in either direction.
pub async fn read(
    engine: &Engine,
    table: &Arc<Table>,
    range: &PartitionRange,
    reversed: bool,
) -> Result<Visible, String> {
    let failed = |error: engine::ReadError| error.to_string();
    let slices = Slices::all();
    let wanted = Read { reversed, ..Read::new(table.id, range, &slices) };
    let reader = engine.read(&wanted).map_err(failed)?;
    visible_of(reader, table).await
}

/// The result of a reader.
pub async fn visible_of(mut reader: EngineReader, table: &Arc<Table>) -> Result<Visible, String> {
    let failed = |error: engine::ReadError| error.to_string();
    let mut out = Visible::new();
    let mut pk = 0;
    loop {
        let fragment = match reader.try_next_sync().map_err(failed)? {
            SyncStep::Fragment(fragment) => fragment,
            SyncStep::End => return Ok(out),
            SyncStep::Wait => match reader.next().await.map_err(failed)? {
                Some(fragment) => fragment,
                None => return Ok(out),
            },
        };
        match &fragment {
            Fragment::PartitionStart { key, .. } => pk = number(&key.key),
            Fragment::Row(row) | Fragment::StaticRow(row) => {
                let ck = row.clustering.components().next().map(|value| number(value.unwrap()));
                for (id, data) in row.columns() {
                    let ColumnData::Simple(cell) = data else { return Err("a complex column".to_owned()) };
                    let name = ["s", "a", "b"]
                        .into_iter()
                        .find(|name| table.column(name).unwrap().id == *id)
                        .unwrap();
                    if cell.value.get(..8) != Some(&cell.timestamp.to_be_bytes()[..]) {
                        return Err(format!("{name} of {pk}/{ck:?} has another write's value"));
                    }
                    out.insert((pk, ck, name), cell.timestamp);
                }
            }
            Fragment::RangeTombstoneChange { .. } | Fragment::PartitionEnd => {}
        }
    }
}

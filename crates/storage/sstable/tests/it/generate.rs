//! Random tables and partitions, and a reader's expected view of them, computed the plain way.

use std::sync::Arc;

use bytes::Bytes;
use mutation::range::clip;
use mutation::row::ColumnData;
use mutation::{
    Bound, Cell, Clustering, ColumnSelection, Complex, ComplexCell, DecoratedKey, DeletionTime, Fragment,
    LivenessInfo, RangeTombstone, RangeTombstones, Row, RowRange, Side, Slices,
};
use schema::{Column, Table, TableBuilder, TableId};
use types::CqlType;

/// A small generator of numbers (SplitMix64): one seed, one sequence.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A partition, in parts.
#[derive(Clone, Debug)]
pub struct Partition {
    pub key: DecoratedKey,
    pub deletion: DeletionTime,
    pub static_row: Option<Row>,
    pub rows: Vec<Row>,
    pub ranges: RangeTombstones,
}

pub fn table(random: &mut Random) -> Arc<Table> {
    let mut builder = TableBuilder::new("ks", "t", TableId([7; 16])).partition_key("k", CqlType::Int);
    let clustering = random.below(4);
    for at in 0..clustering {
        let ty = match random.below(4) {
            0 => CqlType::Int,
            1 => CqlType::Text,
            2 => CqlType::Smallint,
            _ => CqlType::Varint,
        };
        let descending = random.one_in(2);
        builder = builder.clustering(format!("c{at}"), ty, descending);
    }
    if random.one_in(8) {
        for at in 0..70 {
            builder = builder.regular(format!("many{at}"), CqlType::Int);
        }
    }
    // Ids in another order than names.
    builder = builder.regular("z", CqlType::Text).regular("v", CqlType::Int);
    builder =
        builder.regular("m", CqlType::map(CqlType::Int, CqlType::Int, false)).regular("b", CqlType::Blob);
    if clustering > 0 && random.one_in(2) {
        builder = builder.static_column("s", CqlType::Bigint);
        builder = builder.static_column("ss", CqlType::set(CqlType::Int, false));
    }
    Arc::new(builder.build().unwrap())
}

fn value(random: &mut Random, ty: &CqlType, small: bool) -> Vec<u8> {
    let number = if small { random.below(5) as i64 - 2 } else { random.next() as i64 };
    match ty {
        CqlType::Int => (number as i32).to_be_bytes().to_vec(),
        CqlType::Bigint => number.to_be_bytes().to_vec(),
        CqlType::Smallint => (number as i16).to_be_bytes().to_vec(),
        CqlType::Varint => vec![number as u8],
        CqlType::Text => b"abcdefgh"[..random.below(4) as usize].to_vec(),
        _ => {
            let len = if random.one_in(60) { random.below(40_000) } else { random.below(60) };
            (0..len).map(|at| (at * at / 7) as u8).collect()
        }
    }
}

fn cell(random: &mut Random, ty: &CqlType) -> Cell {
    let timestamp = random.below(1000) as i64 - 100;
    match random.below(8) {
        0 => Cell::tombstone(timestamp, 1000 + random.below(50) as u32),
        1 => Cell::expiring(timestamp, 60, 2000 + random.below(3) as u32, value(random, ty, false).into()),
        _ => Cell::live(timestamp, value(random, ty, false).into()),
    }
}

fn deletion(random: &mut Random) -> DeletionTime {
    DeletionTime::new(random.below(1000) as i64, 900 + random.below(100) as u32)
}

fn column(random: &mut Random, column: &Column) -> Option<ColumnData> {
    if !column.is_complex() {
        return Some(ColumnData::Simple(cell(random, &column.ty)));
    }
    let mut complex = Complex::empty();
    if random.one_in(3) {
        complex.deletion = deletion(random);
    }
    for at in 0..random.below(4) as i32 {
        let path = Bytes::copy_from_slice(&at.to_be_bytes());
        let mut cell = cell(random, &CqlType::Int);
        if matches!(column.ty, CqlType::Set { .. }) {
            cell.value = Bytes::new();
        }
        complex.cells.push(ComplexCell { path, cell });
    }
    complex.merge(Complex::empty(), |a, b| a.cmp(b));
    (!complex.is_empty()).then_some(ColumnData::Complex(complex))
}

fn fill(random: &mut Random, row: &mut Row, columns: &[Column]) {
    let all = random.one_in(3);
    for each in columns {
        if (all || random.one_in(2))
            && let Some(data) = column(random, each)
        {
            row.set(each.id, data);
        }
    }
}

pub fn components(random: &mut Random, table: &Table, len: usize) -> Vec<Option<Vec<u8>>> {
    let one = |column: &Column| {
        if random.one_in(30) { Some(Vec::new()) } else { Some(value(random, &column.ty, true)) }
    };
    table.clustering()[..len].iter().map(one).collect()
}

pub fn bound(random: &mut Random, table: &Table) -> Bound {
    let len = random.below(table.clustering().len() as u64 + 1) as usize;
    let values = components(random, table, len);
    let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
    Bound::new(table, &values, if random.one_in(2) { Side::Before } else { Side::After })
}

pub fn key(number: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&number.to_be_bytes()))
}

fn partition(random: &mut Random, table: &Table, number: i32) -> Partition {
    let mut static_row = None;
    if table.has_static() && random.one_in(2) {
        let mut row = Row::new(Clustering::empty());
        fill(random, &mut row, table.static_columns());
        static_row = Some(row).filter(|row| !row.is_empty());
    }
    let mut rows: Vec<Row> = Vec::new();
    let wanted = if random.one_in(4) { random.below(150) } else { random.below(6) };
    for _ in 0..wanted {
        let values = components(random, table, table.clustering().len());
        let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        let mut row = Row::new(Clustering::new(table, &values));
        match random.below(4) {
            0 => {}
            1 => {
                row.liveness =
                    LivenessInfo::expiring(random.below(50) as i64, 60, 2000 + random.below(3) as u32)
            }
            _ => row.liveness = LivenessInfo::forever(random.below(50) as i64),
        }
        if random.one_in(6) {
            row.deletion = deletion(random);
        }
        fill(random, &mut row, table.regular_columns());
        if !row.is_empty() {
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| a.clustering.cmp(&b.clustering));
    rows.dedup_by(|a, b| a.clustering == b.clustering);
    let mut ranges = RangeTombstones::new();
    if !table.clustering().is_empty() && random.one_in(2) {
        for _ in 0..random.below(8) {
            let (start, end) = (bound(random, table), bound(random, table));
            ranges.insert(RangeTombstone { start, end, deletion: deletion(random) });
        }
    }
    let deletion = if random.one_in(5) { deletion(random) } else { DeletionTime::LIVE };
    Partition { key: key(number), deletion, static_row, rows, ranges }
}

/// Partitions in ring order.
pub fn partitions(random: &mut Random, table: &Table) -> Vec<Partition> {
    let count = 1 + if random.one_in(3) { random.below(300) } else { random.below(8) };
    let mut out: Vec<Partition> =
        (0..count as i32).map(|number| partition(random, table, number * 2)).collect();
    out.sort_by(|a, b| a.key.cmp(&b.key));
    out
}

pub fn slices(random: &mut Random, table: &Table) -> Slices {
    match random.below(4) {
        0 => Slices::all(),
        1 if random.one_in(4) => Slices::none(),
        _ => {
            let range = |_| RowRange { start: bound(random, table), end: bound(random, table) };
            Slices::new((0..4).map(range).collect())
        }
    }
}

/// The reader's view of a partition. Cells that their row's or collection's own deletion hides are in the file, and are not read.
pub fn expected(
    partition: &Partition,
    slices: &Slices,
    columns: &ColumnSelection,
    reversed: bool,
) -> Vec<Fragment> {
    let strip = |row: &Row| {
        let mut row = row.clone();
        row.retain(|id, data| {
            if let ColumnData::Complex(complex) = data {
                let deletion = complex.deletion;
                complex.cells.retain(|element| !deletion.deletes(element.cell.timestamp));
            }
            if !columns.contains(id) {
                match data {
                    ColumnData::Simple(cell) => cell.value = Bytes::new(),
                    ColumnData::Complex(complex) => {
                        complex.cells.iter_mut().for_each(|e| e.cell.value = Bytes::new())
                    }
                }
            }
            true
        });
        row.normalise();
        row
    };
    let mut items: Vec<(Vec<u8>, Fragment)> = Vec::new();
    for row in partition.rows.iter().filter(|row| slices.contains(&row.clustering)) {
        items.push((row.clustering.position().to_vec(), Fragment::Row(strip(row))));
    }
    let ranges: Vec<RangeTombstone> = clip(&partition.ranges, slices).iter().cloned().collect();
    let mut change = |bound: &Bound, deletion: DeletionTime| {
        let fragment = Fragment::RangeTombstoneChange { bound: bound.clone(), deletion };
        items.push((bound.position().to_vec(), fragment));
    };
    for (at, range) in ranges.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| &ranges[at]).filter(|before| before.end == range.start);
        let after = ranges.get(at + 1).filter(|after| after.start == range.end);
        if reversed {
            change(&range.end, range.deletion);
            if before.is_none() {
                change(&range.start, DeletionTime::LIVE);
            }
        } else {
            change(&range.start, range.deletion);
            if after.is_none() {
                change(&range.end, DeletionTime::LIVE);
            }
        }
    }
    items.sort_by(|a, b| if reversed { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) });
    let mut out = vec![Fragment::PartitionStart { key: partition.key.clone(), deletion: partition.deletion }];
    out.extend(partition.static_row.as_ref().map(|row| Fragment::StaticRow(strip(row))));
    out.extend(items.into_iter().map(|(_, fragment)| fragment));
    out.push(Fragment::PartitionEnd);
    out
}

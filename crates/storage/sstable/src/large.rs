//! Large partitions, rows and cells: noticed when an SSTable is written, stored in its `Torc.db`, gone with it.
//!
//! ScyllaDB lists them in `system.large_partitions`, `large_rows` and `large_cells`. Here the record is part of the SSTable,
//! so that the list cannot differ from the SSTables that there are. Of each kind an SSTable has the [`RECORDS_MAX`] largest.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::{Clustering, DataRef, DecoratedKey, Row, Seconds};
use schema::Table;

use crate::DecodeError;
use crate::decode::Decoder;
use crate::guarded::{Bounds, GuardedFigure, GuardedPartitions, PartitionBounds};

/// Records of one kind in one SSTable.
pub const RECORDS_MAX: usize = 10;
/// Bytes of a key in a record; longer ones are cut.
pub const KEY_TEXT_MAX: usize = 1024;

/// The thresholds above which something counts as large; equal values are not yet large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeThresholds {
    /// Bytes of a partition before compression (`compaction_large_partition_warning_threshold_mb`).
    pub partition_bytes: u64,
    /// Rows of a partition (`compaction_rows_count_warning_threshold`).
    pub partition_rows: u64,
    /// Bytes of a row (`compaction_large_row_warning_threshold_mb`).
    pub row_bytes: u64,
    /// Bytes of a cell, or of an unfrozen collection (`compaction_large_cell_warning_threshold_mb`).
    pub cell_bytes: u64,
    /// Elements of an unfrozen collection (`compaction_collection_elements_count_warning_threshold`).
    pub elements: u64,
    /// The bounds beyond which a partition is named in the log, by guardrails.
    pub guarded: PartitionBounds,
}

impl LargeThresholds {
    /// ScyllaDB's defaults.
    pub const DEFAULT: Self = Self {
        partition_bytes: 1000 << 20,
        partition_rows: 100_000,
        row_bytes: 10 << 20,
        cell_bytes: 1 << 20,
        elements: 10_000,
        guarded: PartitionBounds::NONE,
    };
}

/// The kind of something large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LargeKind {
    /// A partition.
    Partition {
        /// Its rows, the static row included.
        rows: u64,
        /// Rows without anything live when it was written.
        dead_rows: u64,
        /// Bounds of range tombstones.
        range_tombstones: u64,
    },
    /// A row.
    Row {
        /// The values of its clustering key with `:` between them; empty for a static row.
        clustering: String,
    },
    /// A cell or an unfrozen collection.
    Cell {
        /// As of a row.
        clustering: String,
        /// Its column.
        column: String,
        /// Elements of the collection; 0 for a cell.
        elements: u64,
    },
}

/// Something large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeRecord {
    /// Token of its partition.
    pub token: i64,
    /// The values of the partition key with `:` between them.
    pub key: String,
    /// Bytes before compression.
    pub bytes: u64,
    /// When it was written, microseconds of the wall clock.
    pub written_micros: i64,
    /// Its kind.
    pub kind: LargeKind,
}

impl LargeRecord {
    fn place(&self) -> usize {
        match self.kind {
            LargeKind::Partition { .. } => 0,
            LargeKind::Row { .. } => 1,
            LargeKind::Cell { .. } => 2,
        }
    }
}

/// The large partitions, rows and cells of an SSTable, in this order and the largest of each first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargeData {
    records: Vec<LargeRecord>,
}

impl LargeData {
    /// All records.
    pub fn records(&self) -> &[LargeRecord] {
        &self.records
    }

    /// Whether nothing is large.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds a record, unless there are enough larger ones of its kind.
    #[expect(clippy::expect_used, reason = "a record of the kind was just inserted")]
    pub(crate) fn add(&mut self, record: LargeRecord) {
        let rank = |record: &LargeRecord| (record.place(), std::cmp::Reverse(record.bytes));
        let at = self.records.partition_point(|known| rank(known) <= rank(&record));
        let place = record.place();
        self.records.insert(at, record);
        let of_kind = |known: &LargeRecord| known.place() == place;
        if self.records.iter().filter(|known| of_kind(known)).count() > RECORDS_MAX {
            let last = self.records.iter().rposition(of_kind).expect("one was inserted");
            self.records.remove(last);
        }
        let count = self.records.iter().filter(|known| of_kind(known)).count();
        assert!(count <= RECORDS_MAX, "records of a kind are bounded");
        assert!(self.records.is_sorted_by_key(rank), "the largest of each kind comes first");
    }

    /// Adds the records of another SSTable for one partition.
    pub(crate) fn take_over(&mut self, of: &Self, token: i64) {
        of.records.iter().filter(|record| record.token == token).for_each(|record| self.add(record.clone()));
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let text = |text: &str, out: &mut Vec<u8>| {
            out.extend_from_slice(&(text.len() as u32).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        assert!(self.records.len() <= 3 * RECORDS_MAX, "records of each kind are bounded");
        out.extend_from_slice(&(self.records.len() as u32).to_be_bytes());
        for record in &self.records {
            out.push(record.place() as u8);
            out.extend_from_slice(&record.token.to_be_bytes());
            out.extend_from_slice(&record.bytes.to_be_bytes());
            out.extend_from_slice(&record.written_micros.to_be_bytes());
            text(&record.key, out);
            match &record.kind {
                LargeKind::Partition { rows, dead_rows, range_tombstones } => {
                    for number in [rows, dead_rows, range_tombstones] {
                        out.extend_from_slice(&number.to_be_bytes());
                    }
                }
                LargeKind::Row { clustering } => text(clustering, out),
                LargeKind::Cell { clustering, column, elements } => {
                    text(clustering, out);
                    text(column, out);
                    out.extend_from_slice(&elements.to_be_bytes());
                }
            }
        }
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        fn text(d: &mut Decoder<'_>, what: &str) -> Result<String, DecodeError> {
            Ok(String::from_utf8_lossy(d.bytes_u32(what)?).into_owned())
        }
        // A record has a kind, three numbers and the length of a key.
        let count = d.count(29, "large data")?;
        let mut large = Self::default();
        for _ in 0..count {
            let place = d.u8("kind of large data")?;
            let (token, bytes, written_micros) = (d.i64("token")?, d.u64("size")?, d.i64("time")?);
            let key = text(d, "partition key")?;
            let kind = match place {
                0 => LargeKind::Partition {
                    rows: d.u64("rows")?,
                    dead_rows: d.u64("dead rows")?,
                    range_tombstones: d.u64("range tombstones")?,
                },
                1 => LargeKind::Row { clustering: text(d, "clustering key")? },
                2 => LargeKind::Cell {
                    clustering: text(d, "clustering key")?,
                    column: text(d, "column")?,
                    elements: d.u64("elements")?,
                },
                other => return Err(d.wrong(1, "partition, row or cell", other.to_string())),
            };
            large.add(LargeRecord { token, key, bytes, written_micros, kind });
        }
        Ok(large)
    }
}

/// Counts one partition after the other while an SSTable is written.
#[derive(Debug)]
pub(crate) struct LargeCollector {
    thresholds: LargeThresholds,
    /// The wall clock at the start, microseconds.
    now_micros: i64,
    now: Seconds,
    rows: u64,
    dead_rows: u64,
    range_tombstones: u64,
    tombstones: u64,
    pub(crate) found: LargeData,
    pub(crate) guarded: GuardedPartitions,
}

impl LargeCollector {
    pub(crate) fn new(thresholds: LargeThresholds, now_micros: i64) -> Self {
        let now = Seconds::try_from(now_micros.max(0) / 1_000_000).unwrap_or(Seconds::MAX);
        let found = LargeData::default();
        let guarded = GuardedPartitions::default();
        Self {
            thresholds,
            now_micros,
            now,
            rows: 0,
            dead_rows: 0,
            range_tombstones: 0,
            tombstones: 0,
            found,
            guarded,
        }
    }

    /// Counts a bound of a range tombstone.
    pub(crate) fn range_tombstone(&mut self) {
        self.range_tombstones += 1;
        self.tombstones += 1;
    }

    /// Looks at a row that took so many bytes.
    #[inline]
    pub(crate) fn row(&mut self, table: &Table, key: &DecoratedKey, row: &Row, bytes: u64) {
        self.rows += 1;
        self.dead_rows += u64::from(!row.liveness.is_live(self.now) && !row.has_live_cell(self.now));
        if self.thresholds.guarded.tombstones != Bounds::default() {
            self.tombstones += row.tombstones(self.now) as u64;
        }
        // A row that is smaller than a large cell has none, unless many small elements are large.
        let limit = self.thresholds.row_bytes.min(self.thresholds.cell_bytes).min(self.thresholds.elements);
        if bytes > limit {
            self.look(table, key, row, bytes);
        }
    }

    #[cold]
    fn look(&mut self, table: &Table, key: &DecoratedKey, row: &Row, bytes: u64) {
        let clustering = || clustering_text(table, &row.clustering);
        if bytes > self.thresholds.row_bytes {
            self.add(table, key, bytes, LargeKind::Row { clustering: clustering() });
        }
        for (id, data) in row.iter() {
            let (bytes, elements) = match data {
                DataRef::Simple(cell) => (cell.value.len() as u64, 0),
                DataRef::Complex(complex) => {
                    let len = |cell: &mutation::ComplexCell| (cell.path.len() + cell.cell.value.len()) as u64;
                    (complex.cells.iter().map(len).sum(), complex.cells.len() as u64)
                }
            };
            if bytes > self.thresholds.cell_bytes || elements > self.thresholds.elements {
                // A column that was dropped has no name any more.
                let Some(column) = table.column_by_id(id) else { continue };
                let column = column.name.clone();
                self.add(table, key, bytes, LargeKind::Cell { clustering: clustering(), column, elements });
            }
        }
    }

    /// Counts the deletion of the partition.
    pub(crate) fn deletion(&mut self) {
        self.tombstones += 1;
    }

    /// Holds the figures of a partition against the bounds.
    pub(crate) fn guard(&mut self, table: &Table, key: &DecoratedKey, bytes: u64) {
        let (bounds, tombstones) = (self.thresholds.guarded, std::mem::take(&mut self.tombstones));
        if bounds == PartitionBounds::NONE {
            return;
        }
        let text = || key_text(table, key);
        self.guarded.look(GuardedFigure::Bytes, bytes, bounds.bytes, text);
        self.guarded.look(GuardedFigure::Tombstones, tombstones, bounds.tombstones, text);
    }

    /// Looks at the partition whose rows were counted.
    pub(crate) fn end_partition(&mut self, table: &Table, key: &DecoratedKey, bytes: u64) {
        self.guard(table, key, bytes);
        let rows = std::mem::take(&mut self.rows);
        let dead_rows = std::mem::take(&mut self.dead_rows);
        let range_tombstones = std::mem::take(&mut self.range_tombstones);
        assert!(dead_rows <= rows, "dead rows are rows");
        if bytes > self.thresholds.partition_bytes || rows > self.thresholds.partition_rows {
            self.add(table, key, bytes, LargeKind::Partition { rows, dead_rows, range_tombstones });
        }
    }

    fn add(&mut self, table: &Table, key: &DecoratedKey, bytes: u64, kind: LargeKind) {
        let (token, key) = (key.token, key_text(table, key));
        self.found.add(LargeRecord { token, key, bytes, written_micros: self.now_micros, kind });
    }
}

/// Texts with `:` between them, cut at [`KEY_TEXT_MAX`].
fn join(parts: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for (at, part) in parts.enumerate() {
        if at > 0 {
            text.push(':');
        }
        text.push_str(&part);
        if text.len() > KEY_TEXT_MAX {
            let cut = (0..=KEY_TEXT_MAX).rev().find(|cut| text.is_char_boundary(*cut)).unwrap_or(0);
            text.truncate(cut);
            break;
        }
    }
    assert!(text.len() <= KEY_TEXT_MAX, "the text of a key is cut");
    text
}

fn key_text(table: &Table, key: &DecoratedKey) -> String {
    let columns = table.partition_key();
    let values = DecoratedKey::components(&key.key, columns.len()).unwrap_or_default();
    join(columns.iter().zip(values).map(|(column, value)| column.ty.to_text(value)))
}

fn clustering_text(table: &Table, clustering: &Clustering) -> String {
    let values = table.clustering().iter().zip(clustering.components());
    join(values.map(|(column, value)| value.map_or_else(String::new, |value| column.ty.to_text(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64) -> LargeRecord {
        let kind = LargeKind::Row { clustering: "1:b".to_owned() };
        LargeRecord { token: -7, key: "k".to_owned(), bytes, written_micros: 5, kind }
    }

    fn cell(bytes: u64) -> LargeRecord {
        let (clustering, column) = (String::new(), "v".to_owned());
        LargeRecord { kind: LargeKind::Cell { clustering, column, elements: 9 }, ..row(bytes) }
    }

    fn partition(bytes: u64) -> LargeRecord {
        let kind = LargeKind::Partition { rows: 3, dead_rows: 1, range_tombstones: 2 };
        LargeRecord { token: 8, kind, ..row(bytes) }
    }

    #[test]
    fn the_largest_of_each_kind_stay() {
        let mut large = LargeData::default();
        for bytes in 0..30 {
            large.add(row(bytes * 7 % 30));
            large.add(cell(bytes));
        }
        large.add(partition(1));
        let sizes: Vec<u64> = large.records().iter().map(|record| record.bytes).collect();
        let largest: Vec<u64> = (20..30).rev().collect();
        assert_eq!(sizes, [&[1], largest.as_slice(), &largest].concat());
    }

    #[test]
    fn records_come_back_and_go_by_partition() {
        let mut large = LargeData::default();
        [row(4), cell(5), partition(6), cell(7)].into_iter().for_each(|record| large.add(record));
        let mut bytes = Vec::new();
        large.encode(&mut bytes);
        assert_eq!(LargeData::decode(&mut Decoder::new(&bytes)).unwrap(), large);
        for cut in 0..bytes.len() {
            assert!(LargeData::decode(&mut Decoder::new(&bytes[..cut])).is_err(), "{cut}");
        }
        let mut part = LargeData::default();
        part.take_over(&large, 8);
        assert_eq!(part.records(), [partition(6)]);
    }

    #[test]
    fn long_keys_are_cut_between_characters() {
        let text = join(["a".to_owned(), "é".repeat(KEY_TEXT_MAX), "b".to_owned()].into_iter());
        assert!(text.starts_with("a:é") && (KEY_TEXT_MAX - 1..=KEY_TEXT_MAX).contains(&text.len()));
        assert_eq!(join(["1".to_owned(), "2".to_owned()].into_iter()), "1:2");
    }
}

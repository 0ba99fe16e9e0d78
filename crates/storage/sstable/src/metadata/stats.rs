//! The statistics of an SSTable that readers and compaction use, and their collection while it is written.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;
use mutation::{CellRef, DataRef, DeletionTime, LivenessInfo, NO_DELETION, Row, Seconds, Timestamp};

use super::cardinality::Cardinality;
use super::histogram::SizeHistogram;
use super::tombstones::{TombstoneHistogram, TombstoneHistogramBuilder};
use crate::edge::Edge;
use crate::{DecodeError, Version, decode::Decoder, deletion};

/// Levels of compaction strategies are few: a greater number is damage, and would cost memory by its size.
const LEVEL_MAX: u32 = 255;

/// A place in Cassandra's commit log: segment and position in it.
pub type CommitLogPosition = (i64, i32);

const NO_POSITION: CommitLogPosition = (-1, 0);

/// Statistics of an SSTable (`StatsMetadata`).
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Sizes of partitions in bytes.
    pub partition_sizes: SizeHistogram,
    /// Cells of partitions.
    pub cell_counts: SizeHistogram,
    /// The parts of the writer's commit log that the data comes from.
    pub commit_log_intervals: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// Smallest write timestamp; the smallest number when there is none.
    pub min_timestamp: Timestamp,
    /// Largest write timestamp; the largest number when there is none.
    pub max_timestamp: Timestamp,
    /// Smallest local deletion or expiration time; [`NO_DELETION`] when there is none.
    pub min_local_deletion: Seconds,
    /// Largest; [`NO_DELETION`] when something lives for ever.
    pub max_local_deletion: Seconds,
    /// Smallest TTL, 0 for data without one.
    pub min_ttl: Seconds,
    /// Largest TTL.
    pub max_ttl: Seconds,
    /// Compressed by uncompressed size; −1 for plain data.
    pub compression_ratio: f64,
    /// When tombstones were made and cells expire.
    pub tombstones: TombstoneHistogram,
    /// Level in leveled compaction.
    pub level: u32,
    /// When it was repaired, milliseconds; 0 for never.
    pub repaired_at: i64,
    /// Values of the smallest clustering prefix, up to the first null.
    pub min_clustering: Vec<Bytes>,
    /// Values of the largest.
    pub max_clustering: Vec<Bytes>,
    /// Whether a counter has local or remote shards, which Cassandra before 2.1 wrote.
    pub has_legacy_counter_shards: bool,
    /// Cells of simple columns and complex columns with cells, over all rows.
    pub total_columns_set: u64,
    /// Rows, static ones included.
    pub total_rows: u64,
    /// The repair session that it takes part in.
    pub pending_repair: Option<[u8; 16]>,
    /// Whether it belongs to a transient replica.
    pub is_transient: bool,
    /// The host that wrote it.
    pub host_id: Option<[u8; 16]>,
}

impl Stats {
    /// Estimated share of columns that are tombstones made before `gc_before`, or expired by then.
    pub fn droppable_tombstone_ratio(&self, gc_before: Seconds) -> f64 {
        // It is computed for every SSTable of every table whenever one was written, and most hold no tombstones as old.
        let tombstones = self.tombstones.sum(gc_before);
        if tombstones == 0.0 {
            return 0.0;
        }
        let cells = self.cell_counts.mean().saturating_mul(self.cell_counts.count());
        if cells == 0 { 0.0 } else { tombstones / cells as f64 }
    }

    #[expect(clippy::expect_used, reason = "clustering values are checked when they are written")]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 << 10);
        self.partition_sizes.encode(&mut out);
        self.cell_counts.encode(&mut out);
        let upper = self.commit_log_intervals.last().map_or(NO_POSITION, |interval| interval.1);
        write_position(upper, &mut out);
        out.extend_from_slice(&self.min_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        out.extend_from_slice(&deletion::to_signed(self.min_local_deletion).to_be_bytes());
        out.extend_from_slice(&deletion::to_signed(self.max_local_deletion).to_be_bytes());
        out.extend_from_slice(&self.min_ttl.to_be_bytes());
        out.extend_from_slice(&self.max_ttl.to_be_bytes());
        out.extend_from_slice(&self.compression_ratio.to_be_bytes());
        self.tombstones.encode(&mut out);
        out.extend_from_slice(&self.level.to_be_bytes());
        out.extend_from_slice(&self.repaired_at.to_be_bytes());
        for values in [&self.min_clustering, &self.max_clustering] {
            out.extend_from_slice(&(values.len() as u32).to_be_bytes());
            for value in values {
                let len = u16::try_from(value.len()).expect("clustering values are below 64 KiB");
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(value);
            }
        }
        out.push(u8::from(self.has_legacy_counter_shards));
        out.extend_from_slice(&self.total_columns_set.to_be_bytes());
        out.extend_from_slice(&self.total_rows.to_be_bytes());
        let lower = self.commit_log_intervals.first().map_or(NO_POSITION, |interval| interval.0);
        write_position(lower, &mut out);
        out.extend_from_slice(&(self.commit_log_intervals.len() as u32).to_be_bytes());
        for (start, end) in &self.commit_log_intervals {
            write_position(*start, &mut out);
            write_position(*end, &mut out);
        }
        write_optional(self.pending_repair, &mut out);
        out.push(u8::from(self.is_transient));
        write_optional(self.host_id, &mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], version: Version) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let d = &mut decoder;
        let partition_sizes = SizeHistogram::decode(d)?;
        let cell_counts = SizeHistogram::decode(d)?;
        let _upper = read_position(d)?;
        let min_timestamp = d.i64("smallest timestamp")?;
        let max_timestamp = d.i64("largest timestamp")?;
        let min_local_deletion = deletion::from_signed(i64::from(d.i32("smallest local deletion time")?));
        let max_local_deletion = deletion::from_signed(i64::from(d.i32("largest local deletion time")?));
        let min_ttl = d.u32("smallest TTL")?;
        let max_ttl = d.u32("largest TTL")?;
        let compression_ratio = d.f64("compression ratio")?;
        let tombstones = TombstoneHistogram::decode(d)?;
        let level = d.u32("level")?;
        if level > LEVEL_MAX {
            return Err(d.wrong(4, "a level of at most 255", level.to_string()));
        }
        let repaired_at = d.i64("time of repair")?;
        let min_clustering = read_values(d)?;
        let max_clustering = read_values(d)?;
        let has_legacy_counter_shards = d.flag("legacy counter shards")?;
        let total_columns_set = d.u64("number of columns")?;
        let total_rows = d.u64("number of rows")?;
        let _lower = read_position(d)?;
        let count = d.count(24, "commit log intervals")?;
        let mut commit_log_intervals = Vec::with_capacity(count);
        for _ in 0..count {
            commit_log_intervals.push((read_position(d)?, read_position(d)?));
        }
        let (mut pending_repair, mut is_transient) = (None, false);
        if version.capabilities().has_pending_repair {
            pending_repair = read_optional(d, "pending repair")?;
            is_transient = d.flag("transience")?;
        }
        let host_id =
            if version.capabilities().has_host_id { read_optional(d, "id of the host")? } else { None };
        decoder.end()?;
        Ok(Self {
            partition_sizes,
            cell_counts,
            commit_log_intervals,
            min_timestamp,
            max_timestamp,
            min_local_deletion,
            max_local_deletion,
            min_ttl,
            max_ttl,
            compression_ratio,
            tombstones,
            level,
            repaired_at,
            min_clustering,
            max_clustering,
            has_legacy_counter_shards,
            total_columns_set,
            total_rows,
            pending_repair,
            is_transient,
            host_id,
        })
    }
}

fn write_position((segment, position): CommitLogPosition, out: &mut Vec<u8>) {
    out.extend_from_slice(&segment.to_be_bytes());
    out.extend_from_slice(&position.to_be_bytes());
}

fn read_position(decoder: &mut Decoder<'_>) -> Result<CommitLogPosition, DecodeError> {
    Ok((decoder.i64("commit log segment")?, decoder.i32("commit log position")?))
}

fn write_optional(id: Option<[u8; 16]>, out: &mut Vec<u8>) {
    out.push(u8::from(id.is_some()));
    id.iter().for_each(|id| out.extend_from_slice(id));
}

fn read_optional(decoder: &mut Decoder<'_>, what: &str) -> Result<Option<[u8; 16]>, DecodeError> {
    if !decoder.flag(what)? {
        return Ok(None);
    }
    let bytes = decoder.bytes(16, what)?;
    Ok(bytes.first_chunk::<16>().copied())
}

fn read_values(decoder: &mut Decoder<'_>) -> Result<Vec<Bytes>, DecodeError> {
    let count = decoder.count(2, "clustering values")?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(Bytes::copy_from_slice(decoder.bytes_u16("clustering value")?));
    }
    Ok(out)
}

/// Gathers [`Stats`] from written partitions.
#[derive(Clone, Debug)]
pub(crate) struct StatsCollector {
    partition_sizes: SizeHistogram,
    cell_counts: SizeHistogram,
    timestamps: Option<(Timestamp, Timestamp)>,
    local_deletions: Option<(Seconds, Seconds)>,
    ttls: Option<(Seconds, Seconds)>,
    tombstones: TombstoneHistogramBuilder,
    min: Option<Edge>,
    max: Option<Edge>,
    partition_cells: u64,
    columns_set: u64,
    rows: u64,
    pub(crate) cardinality: Cardinality,
}

#[inline]
fn widen<T: Ord + Copy>(range: &mut Option<(T, T)>, value: T) {
    match range {
        Some((min, max)) => {
            *min = (*min).min(value);
            *max = (*max).max(value);
        }
        None => *range = Some((value, value)),
    }
}

impl StatsCollector {
    pub(crate) fn new() -> Self {
        Self {
            partition_sizes: SizeHistogram::of_partition_sizes(),
            cell_counts: SizeHistogram::of_cell_counts(),
            timestamps: None,
            local_deletions: None,
            ttls: None,
            tombstones: TombstoneHistogramBuilder::default(),
            min: None,
            max: None,
            partition_cells: 0,
            columns_set: 0,
            rows: 0,
            cardinality: Cardinality::default(),
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    #[inline]
    fn local_deletion(&mut self, local: Seconds) {
        widen(&mut self.local_deletions, local);
        if local != NO_DELETION {
            self.tombstones.add(local);
        }
    }

    pub(crate) fn deletion(&mut self, deletion: DeletionTime) {
        if !deletion.is_live() {
            widen(&mut self.timestamps, deletion.timestamp);
            self.local_deletion(deletion.local);
        }
    }

    #[inline]
    fn liveness(&mut self, liveness: LivenessInfo) {
        if !liveness.is_none() {
            widen(&mut self.timestamps, liveness.timestamp);
            widen(&mut self.ttls, liveness.ttl);
            self.local_deletion(liveness.expires);
        }
    }

    #[inline]
    fn cell(&mut self, cell: CellRef<'_>) {
        self.partition_cells += 1;
        widen(&mut self.timestamps, cell.timestamp);
        widen(&mut self.ttls, cell.ttl);
        self.local_deletion(cell.local_deletion);
    }

    /// Takes notice of a row, static or not.
    pub(crate) fn row(&mut self, row: &Row) {
        self.liveness(row.liveness);
        self.deletion(row.deletion);
        for (_, data) in row.iter() {
            match data {
                DataRef::Simple(cell) => {
                    self.cell(cell);
                    self.columns_set += 1;
                }
                DataRef::Complex(complex) => {
                    self.deletion(complex.deletion);
                    complex.cells.iter().for_each(|element| self.cell((&element.cell).into()));
                    self.columns_set += u64::from(!complex.cells.is_empty());
                }
            }
        }
        self.rows += 1;
    }

    /// Takes notice of a whole partition: its key, its size in bytes, its first and last row or bound.
    pub(crate) fn partition(&mut self, key: &[u8], size: u64, edges: Option<(Edge, Edge)>) {
        self.cardinality.add(key);
        self.partition_sizes.add(size);
        self.cell_counts.add(std::mem::take(&mut self.partition_cells));
        let Some((first, last)) = edges else {
            return;
        };
        assert!(first.position() <= last.position(), "a partition's first item is not behind its last");
        if self.min.as_ref().is_none_or(|min| first.position() < min.position()) {
            self.min = Some(first);
        }
        if self.max.as_ref().is_none_or(|max| last.position() > max.position()) {
            self.max = Some(last);
        }
    }

    /// The statistics of everything so far.
    pub(crate) fn build(
        self,
        compression_ratio: f64,
        level: u32,
        repaired_at: i64,
        host_id: Option<[u8; 16]>,
    ) -> Stats {
        let (min_timestamp, max_timestamp) = self.timestamps.unwrap_or((i64::MIN, i64::MAX));
        let (min_local_deletion, max_local_deletion) =
            self.local_deletions.unwrap_or((NO_DELETION, NO_DELETION));
        let (min_ttl, max_ttl) = self.ttls.unwrap_or((0, 0));
        assert!(min_timestamp <= max_timestamp, "the smallest timestamp is not above the largest");
        assert!(min_local_deletion <= max_local_deletion, "the first deletion is not later than the last");
        assert!(min_ttl <= max_ttl, "the smallest time to live is not above the largest");
        assert_eq!(self.partition_cells, 0, "cells are counted with their partition");
        let partitions = self.partition_sizes.count();
        assert_eq!(self.cell_counts.count(), partitions, "both histograms count each partition");
        let clusterings = self.min.as_ref().zip(self.max.as_ref());
        assert!(
            clusterings.is_none_or(|(min, max)| min.position() <= max.position()),
            "the smallest clustering is not above the largest"
        );
        Stats {
            partition_sizes: self.partition_sizes,
            cell_counts: self.cell_counts,
            commit_log_intervals: Vec::new(),
            min_timestamp,
            max_timestamp,
            min_local_deletion,
            max_local_deletion,
            min_ttl,
            max_ttl,
            compression_ratio,
            tombstones: self.tombstones.build(),
            level,
            repaired_at,
            min_clustering: self.min.map_or_else(Vec::new, |min| min.values()),
            max_clustering: self.max.map_or_else(Vec::new, |max| max.values()),
            has_legacy_counter_shards: false,
            total_columns_set: self.columns_set,
            total_rows: self.rows,
            pending_repair: None,
            is_transient: false,
            host_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutation::{Cell, Clustering, ColumnData};

    fn stats() -> Stats {
        let mut collector = StatsCollector::new();
        let mut row = Row::new(Clustering::empty());
        row.liveness = LivenessInfo::expiring(5, 60, 1000);
        row.set(schema::ColumnId(1), ColumnData::Simple(Cell::live(-7, Bytes::from_static(b"x"))));
        row.set(schema::ColumnId(2), ColumnData::Simple(Cell::tombstone(9, 500)));
        collector.row(&row);
        let edge = Edge::Row(Clustering::empty());
        collector.partition(b"key", 100, Some((edge.clone(), edge)));
        collector.build(0.5, 3, 77, Some([9; 16]))
    }

    #[test]
    fn collects() {
        let stats = stats();
        assert_eq!((stats.min_timestamp, stats.max_timestamp), (-7, 9));
        assert_eq!((stats.min_local_deletion, stats.max_local_deletion), (500, NO_DELETION));
        assert_eq!((stats.min_ttl, stats.max_ttl), (0, 60));
        assert_eq!((stats.total_rows, stats.total_columns_set), (1, 2));
        assert_eq!(stats.tombstones.bins().collect::<Vec<_>>(), [(540, 1), (1020, 1)]);
        assert!(stats.droppable_tombstone_ratio(2000) > 0.9);
        assert_eq!(stats.droppable_tombstone_ratio(10), 0.0);
    }

    #[test]
    fn round_trip() {
        let mut stats = stats();
        stats.commit_log_intervals = vec![((1, 2), (3, 4)), ((5, 6), (7, 8))];
        stats.min_clustering = vec![Bytes::from_static(b"a"), Bytes::new()];
        stats.pending_repair = Some([3; 16]);
        let bytes = stats.encode();
        assert_eq!(Stats::decode(&bytes, Version::Nb), Ok(stats));
        for cut in (0..bytes.len()).step_by(7) {
            assert!(Stats::decode(&bytes[..cut], Version::Nb).is_err(), "{cut}");
        }
    }
}

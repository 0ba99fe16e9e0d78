//! SSTables that leave this shard as files, for another node: a set of them that stays on disk while it is held, and the ones of it that
//! are sent unchanged.
//!
//! An SSTable whose partitions are all wanted goes as its files, which are not looked into. Of another one the wanted partitions,
//! which are token ranges because an SSTable is ordered by token, are written to an SSTable of their own first.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use mutation::{DecoratedKey, Fragment, FragmentBuffer, FragmentSource, PartitionRange, RingPosition};
use schema::{Table, TableId};
use sstable::{Component, Descriptor, Sstable, SstableError, SstableWriter, Version, WriterOptions};
use topology::TableSharder;

use crate::damage::damage_in;
use crate::engine::Inner;
use crate::error::disk_or_source;
use crate::live::LiveSstable;
use crate::rewrite::has_others;
use crate::sharding::mark_of;
use crate::store::Store;
use crate::{Engine, MaintenanceError, OwnedRanges};

/// The part of a table that a shard of another node wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The tokens.
    pub tokens: OwnedRanges,
    /// The requesting shard: it wants its own tokens.
    pub shard: u16,
    /// The shards of its node.
    pub sharder: TableSharder,
}

impl Wanted {
    /// Whether a partition is among it.
    pub fn contains(&self, token: i64) -> bool {
        self.tokens.contains(token) && self.sharder.shard_of(token) == self.shard
    }
}

/// The SSTables of a table at a moment, with everything that was written before. Their files stay while it lives.
pub struct HeldFiles {
    inner: Rc<Inner>,
    store: Rc<Store>,
    table: Arc<Table>,
    held: Vec<Rc<LiveSstable>>,
    truncated: i64,
}

/// An SSTable that is to go to another node.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its name here.
    pub descriptor: Descriptor,
    /// Its files with their lengths; the list of components comes last.
    pub files: Vec<(Component, u64)>,
    /// Whether it is one of the table's, as it is; else it was written for this.
    pub whole: bool,
    /// The CRC-32 of its data file where it goes as it is.
    pub checksum: Option<u32>,
}

impl Outgoing {
    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, len)| len).sum()
    }
}

impl Engine {
    /// Writes a table's memtable to an SSTable, and holds all SSTables of the table.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`], also when it is dropped meanwhile; [`MaintenanceError::Source`] when an
    /// SSTable is out of service or the flush fails; [`MaintenanceError::Stopped`].
    pub async fn hold_files(&self, table: TableId) -> Result<HeldFiles, MaintenanceError> {
        let inner = &self.0;
        let store = inner.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        // Not in the middle of a truncation: rows that it is about to remove are not sent.
        let _no_truncation = crate::truncation::hold_off(vec![store.clone()]).await;
        crate::flush::flush(inner, &store).await?;
        if store.dropped.get() {
            return Err(MaintenanceError::UnknownTable(table));
        }
        store.damages.refuse_any()?;
        Ok(HeldFiles {
            inner: inner.clone(),
            table: store.table(),
            held: store.set().to_vec(),
            truncated: store.truncated.get(),
            store,
        })
    }

    /// The estimated bytes of files that another node would receive for the ranges that it wants of a table; none for an unknown table. Nothing
    /// is written or read for it. Memtables count by the wanted share of all tokens.
    pub fn estimate_files(&self, table: TableId, wanted: &Wanted) -> Option<u64> {
        let store = self.0.store(table)?;
        let mut bytes = 0.0;
        for live in store.set().iter() {
            let sstable = &live.sstable;
            if !wanted.tokens.within(sstable.first().token, sstable.last().token).is_empty() {
                bytes += sstable.disk_len() as f64 * wanted_share(sstable, wanted);
            }
        }
        let ranges = wanted.tokens.within(i64::MIN, i64::MAX);
        let tokens: u128 = ranges.iter().map(|(first, last)| u128::from(last.abs_diff(*first)) + 1).sum();
        assert!(tokens <= 1 << 64, "wanted ranges are disjoint");
        // A node of more shards asks once for each that this one meets.
        let own_part = f64::from(self.0.rt.shard_count()) / f64::from(wanted.sharder.shard_count());
        bytes += store.memtables.bytes() as f64 * (tokens as f64 / 2_f64.powi(64)) * own_part.min(1.0);
        Some(bytes as u64)
    }
}

impl HeldFiles {
    /// When the table was truncated last before its SSTables were held, microseconds; [`i64::MIN`] for never.
    pub fn truncated_at(&self) -> i64 {
        self.truncated
    }

    /// The data to go to a shard of another node, and nothing else. `scratch` is an empty directory for rewritten SSTables. SSTables
    /// that turn out to be damaged are reported and left out; their number is returned, too.
    ///
    /// # Errors
    /// [`MaintenanceError::Disk`] when the disk fails, [`MaintenanceError::Cancelled`] when the writing of selected
    /// partitions is stopped.
    pub async fn select(
        &self,
        wanted: &Wanted,
        scratch: &Path,
    ) -> Result<(Vec<Outgoing>, usize), MaintenanceError> {
        let (mut chosen, mut damaged) = (Vec::new(), 0);
        for (number, live) in (1..).zip(&self.held) {
            let (first, last) = (live.sstable.first().token, live.sstable.last().token);
            if wanted.tokens.within(first, last).is_empty() {
                continue;
            }
            match self.choose(live, wanted, scratch, number).await {
                Ok(outgoing) => chosen.extend(outgoing),
                Err(MaintenanceError::Source(error)) if damage_in(&*error).is_some() => {
                    let reason = damage_in(&*error).expect("it was asked for");
                    self.store.met_damage(live, reason);
                    damaged += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((chosen, damaged))
    }

    async fn choose(
        &self,
        live: &LiveSstable,
        wanted: &Wanted,
        scratch: &Path,
        number: u64,
    ) -> Result<Option<Outgoing>, MaintenanceError> {
        let sstable = &live.sstable;
        if self.is_wholly(sstable, wanted).await.map_err(disk_or_source)? {
            return self.outgoing(sstable.descriptor().clone(), true).await.map(Some);
        }
        match self.write_part(sstable, wanted, scratch, number).await? {
            Some(descriptor) => self.outgoing(descriptor, false).await.map(Some),
            None => Ok(None),
        }
    }

    /// Compares the data of an SSTable that was to go as it is with its checksum. Damage is reported; whether there is any.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn is_damaged(&self, outgoing: &Outgoing) -> Result<bool, MaintenanceError> {
        let Some(live) = self.held.iter().find(|live| *live.sstable.descriptor() == outgoing.descriptor)
        else {
            return Ok(false);
        };
        let [data, digest] = [Component::Data, Component::Digest].map(|part| outgoing.descriptor.path(part));
        match sstable::verify::verify_digest(&self.inner.rt, data, digest).await {
            Ok(()) => Ok(false),
            Err(error) => match self.store.read_failed(live, error) {
                MaintenanceError::Source(_) => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Whether all that an SSTable has is wanted, in a form that can go as it is.
    async fn is_wholly(&self, sstable: &Rc<Sstable>, wanted: &Wanted) -> Result<bool, SstableError> {
        // Tokens of this shard belong to the same shard of a node with as many.
        let same_owner = wanted.sharder.is_by_token()
            && wanted.sharder.shard_count() == self.inner.rt.shard_count()
            && wanted.shard == self.inner.rt.shard().0;
        if !same_owner || sstable.descriptor().version != Version::CURRENT {
            return Ok(false);
        }
        Ok(!has_others(sstable, &wanted.tokens).await?)
    }

    async fn outgoing(&self, descriptor: Descriptor, whole: bool) -> Result<Outgoing, MaintenanceError> {
        let mut files = Vec::new();
        for component in Component::ALL {
            match self.inner.rt.disk().len(descriptor.path(component)).await {
                Ok(len) => files.push((component, len)),
                // Which components there are depends on the compression.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let checksum = match whole {
            true => {
                let digest = descriptor.path(Component::Digest);
                sstable::verify::read_digest(&self.inner.rt, digest).await.map_err(disk_or_source)?
            }
            false => None,
        };
        Ok(Outgoing { descriptor, files, whole, checksum })
    }

    /// Writes the wanted partitions of an SSTable to one of their own; none when there are none.
    async fn write_part(
        &self,
        sstable: &Rc<Sstable>,
        wanted: &Wanted,
        scratch: &Path,
        number: u64,
    ) -> Result<Option<Descriptor>, MaintenanceError> {
        let rt = &self.inner.rt;
        let mut options = WriterOptions::for_table(&self.table, estimated_partitions(sstable, wanted));
        options.level = sstable.level();
        options.host_id = Some(self.inner.config.host_id);
        options.large = self.inner.settings.get().large;
        options.owner = mark_of(&wanted.sharder, wanted.shard);
        let ranges: Vec<PartitionRange> = wanted
            .tokens
            .within(sstable.first().token, sstable.last().token)
            .into_iter()
            .map(|(first, last)| {
                let start = first
                    .checked_sub(1)
                    .map_or(PartitionRange::all().start, |before| RingPosition::AfterToken(before));
                PartitionRange { start, end: RingPosition::AfterToken(last) }
            })
            .collect();
        let table = self.table.clone();
        let writer = if sstable.descriptor().version == Version::CURRENT {
            let source = (&**sstable, table);
            let mut writer =
                SstableWriter::copying(rt, scratch, number, source, options).await.map_err(disk_or_source)?;
            for range in &ranges {
                writer.copy(sstable, range, |token| wanted.contains(token)).await.map_err(disk_or_source)?;
            }
            writer
        } else {
            let encoding = sstable.metadata().header.encoding;
            let mut writer = SstableWriter::new(rt, scratch, number, table, options, encoding)
                .await
                .map_err(disk_or_source)?;
            for range in &ranges {
                self.write_range(sstable, range, wanted, &mut writer).await?;
            }
            writer
        };
        let written = writer.finish().await.map_err(disk_or_source)?;
        let is_wanted = |key: &DecoratedKey| wanted.contains(key.token);
        assert!(
            written.bounds.as_ref().is_none_or(|(first, last)| is_wanted(first) && is_wanted(last)),
            "what is written for another node is wanted there"
        );
        if written.bounds.is_none() {
            sstable::remove(rt.disk(), &written.descriptor).await.map_err(disk_or_source)?;
            return Ok(None);
        }
        Ok(Some(written.descriptor))
    }

    /// Of a file of an older version: partitions are read and written.
    async fn write_range(
        &self,
        sstable: &Rc<Sstable>,
        range: &PartitionRange,
        wanted: &Wanted,
        writer: &mut SstableWriter,
    ) -> Result<(), MaintenanceError> {
        let mut source = sstable.scan(range);
        let mut fragments = FragmentBuffer::new();
        let mut is_wanted = false;
        while source.fill(&mut fragments).await.map_err(MaintenanceError::Source)? {
            self.inner.rt.maybe_yield().await;
            while let Some(fragment) = fragments.pop_front() {
                if let Fragment::PartitionStart { key, .. } = &fragment {
                    is_wanted = wanted.contains(key.token);
                }
                if is_wanted {
                    writer.push(fragment).await.map_err(disk_or_source)?;
                }
            }
        }
        Ok(())
    }
}

/// About how many partitions of an SSTable are wanted.
fn estimated_partitions(sstable: &Sstable, wanted: &Wanted) -> u64 {
    (sstable.estimated_partitions() as f64 * wanted_share(sstable, wanted)) as u64 + 1
}

/// About which part of an SSTable is wanted, by its sample.
fn wanted_share(sstable: &Sstable, wanted: &Wanted) -> f64 {
    let (mut samples, mut hits) = (0u64, 0u64);
    for token in sstable.sampled_tokens() {
        samples += 1;
        hits += u64::from(wanted.contains(token));
    }
    // One more sample than was met: the sample may miss everything.
    let share = (hits + 1) as f64 / (samples + 1) as f64;
    assert!(share > 0.0 && share <= 1.0, "a part is no more than the whole");
    share
}

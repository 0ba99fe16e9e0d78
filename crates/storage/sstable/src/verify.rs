//! Checks an SSTable against itself: checksums, order, index against data, filter and summary against both.

use std::path::PathBuf;
use std::rc::Rc;

use mutation::{DecoratedKey, DeletionTime};
use rt::{OpenOptions, Rt};

use crate::dump::open_raw;
use crate::filter::{Filter, key_hash};
use crate::header::SerializationHeader;
use crate::reader::{BlockFile, BlockLookup, Entry, IndexCursor, Layout, RawItem, RawScan, read_metadata};
use crate::summary::Summary;
use crate::unfiltered::decode::ItemDecoder;
use crate::{Component, Descriptor, Integrity, NoCache, SstableError, toc};

/// Components beyond this size are not loaded.
const COMPONENT_LEN_MAX: usize = 1 << 30;
/// Bytes of one read of the digest's check.
const READ_LEN: usize = 256 << 10;
/// Problems that are listed before the check gives up.
const PROBLEMS_MAX: usize = 100;

/// What a check has found.
#[derive(Debug, Default)]
pub struct Verification {
    /// Partitions that were read.
    pub partitions: u64,
    /// Rows that were read, static ones included.
    pub rows: u64,
    /// Bytes of data before compression that were read.
    pub bytes: u64,
    /// Whether index, summary and filter have checksums (`Torc.db`).
    pub has_checksums: bool,
    /// What is wrong; nothing when the SSTable is sound.
    pub problems: Vec<SstableError>,
}

/// Reads an SSTable as a whole and compares its files with each other. An error is only returned when the disk fails;
/// damage is in the list of problems.
pub async fn verify(rt: &Rt, descriptor: &Descriptor) -> Result<Verification, SstableError> {
    let mut found = Verification::default();
    for checked in [
        integrity(rt, descriptor, &mut found).await,
        digest(rt, descriptor).await,
        content(rt, descriptor, &mut found).await,
    ] {
        match checked {
            Err(SstableError::Disk(error)) if !error.is_not_found() => return Err(error.into()),
            Err(problem) => found.problems.push(problem),
            Ok(()) => {}
        }
    }
    Ok(found)
}

/// Compares the components without a checksum of their own with those that the SSTable has of them, if it has any. The
/// index is compared while it is read.
async fn integrity(rt: &Rt, descriptor: &Descriptor, found: &mut Verification) -> Result<(), SstableError> {
    let disk = rt.disk();
    let Some(integrity) = Integrity::read(disk, descriptor).await? else { return Ok(()) };
    found.has_checksums = true;
    let data_len = disk.len(descriptor.path(Component::Data)).await?;
    Integrity::check_len(descriptor, Component::Data, integrity.data_len, data_len)?;
    for (component, ..) in &integrity.whole {
        let path = descriptor.path(*component);
        let bytes = disk.read_to_end(&path, COMPONENT_LEN_MAX).await;
        let bytes = bytes.map_err(|error| SstableError::of_component(&path, error))?;
        integrity.check(descriptor, *component, &bytes)?;
    }
    Ok(())
}

/// Compares the data file with the checksum of it as a whole.
async fn digest(rt: &Rt, descriptor: &Descriptor) -> Result<(), SstableError> {
    verify_digest(rt, descriptor.path(Component::Data), descriptor.path(Component::Digest)).await
}

/// The checksum of a data file out of its `Digest.crc32`; none where that is not there.
///
/// # Errors
/// When the file is damaged, or the disk fails.
pub async fn read_digest(rt: &Rt, path: PathBuf) -> Result<Option<u32>, SstableError> {
    let bytes = match rt.disk().read_to_end(&path, 64).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(toc::decode_digest(&bytes).map_err(|error| error.in_file(&path, 0))?))
}

/// Compares a data file with the checksum that another file has of it, if that is there, wherever the two are.
pub async fn verify_digest(rt: &Rt, data: PathBuf, path: PathBuf) -> Result<(), SstableError> {
    let Some(expected) = read_digest(rt, path).await? else { return Ok(()) };
    let file = rt.disk().open(&data, OpenOptions::READ).await;
    let file = file.map_err(|error| SstableError::of_component(&data, error))?;
    let mut crc = crc32fast::Hasher::new();
    let mut at = 0;
    loop {
        let part = file.read_at(at, READ_LEN).await?;
        if part.is_empty() {
            break;
        }
        crc.update(&part);
        at += part.len() as u64;
        rt.maybe_yield().await;
    }
    match crc.finalize() {
        crc if crc == expected => Ok(()),
        crc => {
            Err(SstableError::corrupt(&data, 0, format!("checksum {expected} of the file"), crc.to_string()))
        }
    }
}

/// The files that are compared with the data.
struct Indexes {
    index: Rc<BlockFile>,
    entries: IndexCursor,
    summary: Option<Summary>,
    /// The sample of the summary that is expected next.
    sample: usize,
    /// The first key and the latest one.
    ends: Option<(DecoratedKey, DecoratedKey)>,
    filter: Option<Filter>,
    decoder: ItemDecoder,
}

async fn content(rt: &Rt, descriptor: &Descriptor, found: &mut Verification) -> Result<(), SstableError> {
    let metadata = read_metadata(rt.disk(), descriptor).await?;
    let (mut scan, table) = open_raw(rt, descriptor).await?;
    let mut indexes = Indexes::open(rt, descriptor, &metadata.header, &table).await?;
    let mut partition: Option<Current> = None;
    while let Some(item) = scan.next().await? {
        let end = scan.position();
        match item {
            RawItem::Partition { key, deletion, static_row, start, rows_at } => {
                found.partitions += 1;
                found.rows += u64::from(static_row.is_some());
                let (entry, problem) = indexes.entry(&key, start).await?;
                found.problems.extend(problem);
                let open = DeletionTime::LIVE;
                partition = Some(Current { start, rows_at, deletion, open, entry, items: Vec::new() });
            }
            RawItem::Row { row, start } => {
                found.rows += 1;
                if let Some(partition) = &mut partition {
                    partition.item(start, row.clustering.position());
                }
            }
            RawItem::Marker { bound, starts, start, .. } => {
                if let Some(partition) = &mut partition {
                    partition.open = starts;
                    partition.item(start, bound.position());
                }
            }
            RawItem::End => {
                if let Some(partition) = partition.take() {
                    found.problems.extend(indexes.row_index(&partition, end, &scan).await?);
                }
                rt.maybe_yield().await;
            }
        }
        found.bytes = end;
        if found.problems.len() >= PROBLEMS_MAX {
            return Ok(());
        }
    }
    found.problems.extend(indexes.finish().await?);
    if metadata.stats.total_rows != found.rows {
        let (expected, rows) = (metadata.stats.total_rows, found.rows);
        let file = descriptor.path(Component::Statistics);
        found.problems.push(SstableError::corrupt(&file, 0, format!("{rows} rows"), expected.to_string()));
    }
    Ok(())
}

/// The partition being read.
struct Current {
    start: u64,
    rows_at: u64,
    deletion: DeletionTime,
    /// The range deletion in force behind what was read last.
    open: DeletionTime,
    entry: Option<Entry>,
    /// Where its items begin, their positions, and the range deletion in force behind each; gathered only when there is a row
    /// index to compare with.
    items: Vec<(u64, Vec<u8>, DeletionTime)>,
}

impl Current {
    fn item(&mut self, start: u64, position: &[u8]) {
        if self.entry.as_ref().is_some_and(Entry::has_row_index) {
            self.items.push((start, position.to_vec(), self.open));
        }
    }
}

impl Indexes {
    async fn open(
        rt: &Rt,
        descriptor: &Descriptor,
        header: &SerializationHeader,
        table: &schema::Table,
    ) -> Result<Self, SstableError> {
        let disk = rt.disk();
        let path = descriptor.path(Component::Index);
        let integrity = Integrity::read(disk, descriptor).await.unwrap_or_default();
        let pages = integrity.map(|integrity| integrity.index);
        let index =
            Rc::new(BlockFile::open(disk, path, |_| Ok(Layout::Pages(pages)), Rc::new(NoCache)).await?);
        let load = async |component| {
            let path = descriptor.path(component);
            match disk.read_to_end(&path, COMPONENT_LEN_MAX).await {
                Ok(bytes) => Ok(Some((bytes, path))),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        };
        let summary = match load(Component::Summary).await? {
            Some((bytes, path)) => {
                Some(Summary::decode(&bytes, index.len()).map_err(|error| error.in_file(&path, 0))?)
            }
            None => None,
        };
        let filter = match load(Component::Filter).await? {
            Some((bytes, path)) => {
                Some(Filter::decode(&bytes, descriptor.version).map_err(|error| error.in_file(&path, 0))?)
            }
            None => None,
        };
        let decoder = ItemDecoder::new(header, table).map_err(|what| {
            SstableError::corrupt(&descriptor.path(Component::Statistics), 0, "a sound header", what)
        })?;
        Ok(Self {
            entries: IndexCursor::new(index.clone(), 0, true),
            index,
            summary,
            sample: 0,
            ends: None,
            filter,
            decoder,
        })
    }

    /// Takes the entry of the partition that was just read, and compares it.
    async fn entry(
        &mut self,
        key: &DecoratedKey,
        start: u64,
    ) -> Result<(Option<Entry>, Option<SstableError>), SstableError> {
        match &mut self.ends {
            None => self.ends = Some((key.clone(), key.clone())),
            Some((_, last)) => last.clone_from(key),
        }
        let at = self.entries.position();
        let Some(entry) = self.entries.next().await? else {
            return Ok((
                None,
                Some(self.entries.corrupt(format!("an entry of {key:?}"), "the end of the index")),
            ));
        };
        if entry.key.as_ref() != Some(key) || entry.position != start {
            let found = format!("{:?} at {}", entry.key, entry.position);
            return Err(SstableError::corrupt(self.index.path(), at, format!("{key:?} at {start}"), found));
        }
        if self.filter.as_ref().is_some_and(|filter| !filter.may_contain(key_hash(&key.key))) {
            return Ok((
                Some(entry),
                Some(self.entries.corrupt(format!("a filter that contains {key:?}"), "one without it")),
            ));
        }
        if let Some(summary) = &self.summary
            && summary.position(self.sample) == Some(at)
        {
            if summary.sampled_key(self.sample) != Some(&key.key[..]) {
                return Ok((
                    Some(entry),
                    Some(self.entries.corrupt(format!("a sample of {key:?}"), "another key")),
                ));
            }
            self.sample += 1;
        }
        Ok((Some(entry), None))
    }

    /// Compares the row index of the partition that ends at `end` with its items.
    async fn row_index(
        &self,
        partition: &Current,
        end: u64,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        let Some(row_index) = (match &partition.entry {
            Some(entry) => entry.read_row_index(&self.index).await?,
            None => None,
        }) else {
            return Ok(None);
        };
        let wrong = |expected: String, found: String| {
            Ok(Some(scan.corrupt(expected, format!("{found} in the row index"))))
        };
        let header_len = partition.rows_at - partition.start;
        if row_index.header.header_len != header_len {
            return wrong(format!("a header of {header_len} bytes"), row_index.header.header_len.to_string());
        }
        if row_index.header.deletion != partition.deletion {
            let (expected, found) = (partition.deletion, row_index.header.deletion);
            return wrong(format!("a partition with {expected:?}"), format!("{found:?}"));
        }
        let blocks = row_index.blocks;
        let mut lookup = BlockLookup::new(self.index.clone(), row_index);
        let mut items = partition.items.iter().peekable();
        let mut at = partition.rows_at;
        for block in 0..blocks {
            let info = lookup.get(block, &self.decoder).await?;
            let begins = partition.start.saturating_add(info.offset);
            let ends = begins.saturating_add(info.width);
            if begins != at {
                return wrong(format!("block {block} at {at}"), begins.to_string());
            }
            let first = items.peek().map(|(_, position, _)| position);
            if first != Some(&info.first) {
                return wrong(format!("{first:02x?} first in block {block}"), format!("{:02x?}", info.first));
            }
            let mut last = None;
            let mut open = info.open;
            while let Some((_, position, behind)) = items.next_if(|(start, ..)| *start < ends) {
                (last, open) = (Some(position), *behind);
            }
            if last != Some(&info.last) {
                return wrong(format!("{last:02x?} last in block {block}"), format!("{:02x?}", info.last));
            }
            if open != info.open {
                return wrong(format!("{open:?} behind block {block}"), format!("{:?}", info.open));
            }
            at = ends;
        }
        // Writers differ in whether the last block counts the end of the partition in.
        if items.next().is_some() || !(at == end || at + 1 == end) {
            return wrong(format!("blocks up to {end}"), at.to_string());
        }
        Ok(None)
    }

    async fn finish(&mut self) -> Result<Option<SstableError>, SstableError> {
        if let Some(entry) = self.entries.next().await? {
            return Ok(Some(self.entries.corrupt("the end of the index", format!("{:?}", entry.key))));
        }
        match &self.summary {
            Some(summary) if summary.len() != self.sample => {
                let expected = format!("{} samples at entries of the index", self.sample);
                Ok(Some(self.entries.corrupt(expected, summary.len().to_string())))
            }
            Some(summary)
                if self
                    .ends
                    .as_ref()
                    .is_some_and(|(first, last)| (first, last) != (&summary.first, &summary.last)) =>
            {
                let found = format!("a summary from {:?} to {:?}", summary.first, summary.last);
                Ok(Some(self.entries.corrupt(format!("a summary of {:?}", self.ends), found)))
            }
            _ => Ok(None),
        }
    }
}

//! Compares index, summary and filter with the data, for a verification.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;

use mutation::DecoratedKey;
use rt::Rt;

use super::partition_index::IndexCursor;
use super::row_index::RowIndex;
use super::summary::Summary;
use crate::filter::{Filter, key_hash};
use crate::header::SerializationHeader;
use crate::index::{Entry, ReadPartition};
use crate::io::{BlockFile, Layout};
use crate::reader::RawScan;
use crate::unfiltered::decode::ItemDecoder;
use crate::{Component, Descriptor, Integrity, NoCache, SstableError};

/// Components beyond this size are not loaded.
const COMPONENT_LEN_MAX: usize = 1 << 30;

/// The files that are compared with the data.
pub(crate) struct IndexCheck {
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

impl IndexCheck {
    /// Opens the files to compare.
    pub(crate) async fn open(
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
    pub(crate) async fn entry(
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
    pub(crate) async fn row_index(
        &self,
        partition: &ReadPartition,
        end: u64,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        let Some(mut row_index) = (match &partition.entry {
            Some(entry) => RowIndex::of(&self.index, entry).await?,
            None => None,
        }) else {
            return Ok(None);
        };
        let wrong = |expected: String, found: String| {
            Ok(Some(scan.corrupt(expected, format!("{found} in the row index"))))
        };
        let header_len = partition.rows_at - partition.start;
        if row_index.head().header_len != header_len {
            return wrong(format!("a header of {header_len} bytes"), row_index.head().header_len.to_string());
        }
        if row_index.head().deletion != partition.deletion {
            let (expected, found) = (partition.deletion, row_index.head().deletion);
            return wrong(format!("a partition with {expected:?}"), format!("{found:?}"));
        }
        let blocks = row_index.blocks();
        let mut items = partition.items.iter().peekable();
        let mut at = partition.rows_at;
        for block in 0..blocks {
            let info = row_index.get(block, &self.decoder).await?;
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

    /// The error in the index as a whole, once all partitions were compared.
    pub(crate) async fn finish(&mut self) -> Result<Option<SstableError>, SstableError> {
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

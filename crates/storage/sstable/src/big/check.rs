//! Compares index, summary and filter with the data, for a verification.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;

use mutation::DecoratedKey;
use rt::Rt;

use super::partition_index::IndexCursor;
use super::row_index::RowIndex;
use super::row_index_check::{Compared, Difference, RowIndexCheck};
use super::summary::Summary;
use crate::filter::{Filter, key_hash};
use crate::header::SerializationHeader;
use crate::index::{Entry, ReadHead, ReadItem};
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
    /// The comparison of the present partition with its row index, if it has one and no difference was found.
    rows: Option<RowIndexCheck>,
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
            rows: None,
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

    /// Begins to compare the row index of a partition, if it has one, with the partition.
    pub(crate) async fn begin_rows(
        &mut self,
        head: &ReadHead,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        self.rows = None;
        let Some(entry) = &head.entry else { return Ok(None) };
        let Some(row_index) = RowIndex::of(&self.index, entry).await? else { return Ok(None) };
        let compared = RowIndexCheck::begin(row_index, head);
        self.note(compared, scan)
    }

    /// Compares the row index with the next item of the partition.
    pub(crate) async fn row(
        &mut self,
        item: ReadItem<'_>,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        let Some(rows) = self.rows.take() else { return Ok(None) };
        let compared = rows.item(item, &self.decoder).await?;
        self.note(compared, scan)
    }

    /// Compares the row index with the end of the partition.
    pub(crate) async fn end_rows(
        &mut self,
        end: u64,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        let Some(rows) = self.rows.take() else { return Ok(None) };
        let compared = rows.end(end, &self.decoder).await?;
        let problem = self.note(compared, scan);
        self.rows = None;
        problem
    }

    /// Bytes of positions that the comparison holds now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.rows.as_ref().map_or(0, RowIndexCheck::held_bytes)
    }

    fn note(&mut self, compared: Compared, scan: &RawScan) -> Result<Option<SstableError>, SstableError> {
        match compared {
            Ok(rows) => {
                self.rows = Some(rows);
                Ok(None)
            }
            Err(Difference { expected, found }) => {
                Ok(Some(scan.corrupt(expected, format!("{found} in the row index"))))
            }
        }
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

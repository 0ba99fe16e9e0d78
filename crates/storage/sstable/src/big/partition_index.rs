//! The partition index of an open SSTable: `Index.db` as a file, `Summary.db` in memory.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;

use mutation::{DecoratedKey, RingPosition};
use rt::{Disk, DiskError};
use schema::Table;

use super::entry::EntryHead;
use super::row_index::RowIndex;
use super::summary::{Summary, SummaryBuilder};
use crate::component::{load, load_checked};
use crate::index::Entry;
use crate::io::{BlockFile, Cursor, Layout};
use crate::prefix::ParseError;
use crate::{BlockCache, Component, Descriptor, Integrity, Owner, SstableError};

/// Reads the partition index in order.
pub(crate) struct IndexCursor {
    cursor: Cursor,
}

impl IndexCursor {
    pub(crate) fn new(file: Rc<BlockFile>, position: u64, scan: bool) -> Self {
        Self { cursor: Cursor::new(file, position, scan) }
    }

    /// The head of the entry at the cursor, whose row index lies within the file; the number of missing bytes when they are not
    /// at hand yet.
    fn head(&self) -> Result<EntryHead<'_>, ParseError> {
        let head = EntryHead::read(self.cursor.bytes())?;
        if head.row_index_len > self.cursor.remaining().saturating_sub(head.len as u64) {
            return Err(ParseError::invalid("a row index within the file", head.row_index_len.to_string()));
        }
        Ok(head)
    }

    /// Moves over the entry at the cursor.
    fn skip(&mut self, len: usize, row_index_len: u64) -> Result<(), SstableError> {
        self.cursor.advance(len);
        if row_index_len == 0 {
            return Ok(());
        }
        // `head` has seen that the file has as much.
        self.cursor.seek(self.cursor.position() + row_index_len)
    }

    fn entry(head: &EntryHead<'_>, at: u64, key: Option<DecoratedKey>) -> Entry {
        let row_index = (head.row_index_len > 0).then_some((at + head.len as u64, head.row_index_len));
        Entry { key, position: head.position, row_index }
    }

    /// The next entry.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, SstableError> {
        while !self.cursor.is_at_end() {
            let head = match self.head() {
                Ok(head) => head,
                Err(error) => {
                    self.cursor.resolve(error).await?;
                    continue;
                }
            };
            let key = DecoratedKey::new(bytes::Bytes::copy_from_slice(head.key));
            let entry = Self::entry(&head, self.cursor.position(), Some(key));
            let (len, row_index_len) = (head.len, head.row_index_len);
            self.skip(len, row_index_len)?;
            return Ok(Some(entry));
        }
        Ok(None)
    }

    /// Where the next entry begins in the file.
    pub(crate) fn position(&self) -> u64 {
        self.cursor.position()
    }

    pub(crate) fn corrupt(&self, expected: impl Into<String>, found: impl Into<String>) -> SstableError {
        self.cursor.corrupt(expected, found)
    }
}

/// The partition index.
pub(crate) struct PartitionIndex {
    file: Rc<BlockFile>,
    summary: Summary,
}

impl PartitionIndex {
    /// Opens the index. A damaged summary is rebuilt from it, and reported.
    pub(crate) async fn open(
        disk: &Disk,
        descriptor: &Descriptor,
        table: &Table,
        integrity: Option<&mut Integrity>,
        cache: Rc<dyn BlockCache>,
    ) -> Result<(Self, Option<SstableError>), SstableError> {
        let mut integrity = integrity;
        let pages = integrity.as_mut().map(|integrity| std::mem::take(&mut integrity.index));
        let path = descriptor.path(Component::Index);
        let file = Rc::new(BlockFile::open(disk, path, |_| Ok(Layout::Pages(pages)), cache).await?);
        let (bytes, problem) =
            load_checked(disk, descriptor, Component::Summary, integrity.as_deref()).await?;
        let summary = match bytes {
            Some(bytes) => Summary::decode(&bytes, file.len())
                .map_err(|error| error.in_file(&descriptor.path(Component::Summary), 0))?,
            None => sample_again(&file, table.options.min_index_interval.max(1)).await?,
        };
        assert!(summary.first <= summary.last, "the first partition is not behind the last");
        Ok((Self { file, summary }, problem))
    }

    /// Its first partition.
    pub(crate) fn first(&self) -> &DecoratedKey {
        &self.summary.first
    }

    /// Its last partition.
    pub(crate) fn last(&self) -> &DecoratedKey {
        &self.summary.last
    }

    /// About how many partitions there are.
    pub(crate) fn estimated_partitions(&self) -> u64 {
        u64::from(self.summary.full_size) * u64::from(self.summary.interval)
    }

    /// The tokens of sampled partitions, in order.
    pub(crate) fn sampled_tokens(&self) -> impl Iterator<Item = i64> {
        self.summary.tokens()
    }

    /// Bytes that it keeps in memory.
    pub(crate) fn memory_size(&self) -> usize {
        self.summary.memory_size()
    }

    /// All entries, in order.
    pub(crate) fn entries(&self) -> IndexCursor {
        IndexCursor::new(self.file.clone(), 0, true)
    }

    /// The entry of a key. Without the key in the file: none, after a look at the next sample's key, which must lie beyond.
    pub(crate) async fn find(&self, key: &DecoratedKey) -> Result<Option<Entry>, SstableError> {
        let sample = self.summary.floor(key);
        let start = self.position(sample);
        let end = self.summary.position(sample + 1).unwrap_or(u64::MAX);
        assert!(start < end, "positions of samples rise");
        let mut index = IndexCursor::new(self.file.clone(), start, false);
        let mut order = self.order(sample);
        while !index.cursor.is_at_end() {
            let at = index.cursor.position();
            let head = match index.head() {
                Ok(head) => head,
                Err(error) => {
                    index.cursor.resolve(error).await?;
                    continue;
                }
            };
            order.check(&index, &head)?;
            if head.key == &key.key[..] {
                return Ok(Some(IndexCursor::entry(&head, at, None)));
            }
            if at >= end {
                let next = stdx::murmur3::token(head.key);
                if (next, head.key) < (key.token, &key.key) {
                    let found = format!("token {next} where the summary has more than {}", key.token);
                    return Err(index.corrupt("the sampled key", found));
                }
                return Ok(None);
            }
            let (len, row_index_len) = (head.len, head.row_index_len);
            index.skip(len, row_index_len)?;
        }
        Ok(None)
    }

    /// A cursor over the index whose next entry is the first one behind `start`.
    pub(crate) async fn entries_from(
        &self,
        start: &RingPosition,
        scan: bool,
    ) -> Result<IndexCursor, SstableError> {
        let sample = match start {
            RingPosition::BeforeToken(token) => self.summary.floor_token(*token),
            RingPosition::AfterToken(token) => self.summary.floor_token(token.saturating_add(1)),
            RingPosition::BeforeKey(key) | RingPosition::AfterKey(key) => self.summary.floor(key),
        };
        let mut index = IndexCursor::new(self.file.clone(), self.position(sample), scan);
        let mut order = self.order(sample);
        while !index.cursor.is_at_end() {
            let head = match index.head() {
                Ok(head) => head,
                Err(error) => {
                    index.cursor.resolve(error).await?;
                    continue;
                }
            };
            order.check(&index, &head)?;
            if start.is_before_parts(stdx::murmur3::token(head.key), head.key) {
                break;
            }
            let (len, row_index_len) = (head.len, head.row_index_len);
            index.skip(len, row_index_len)?;
        }
        Ok(index)
    }
}

/// Checks the entries from a sample on: the sampled key first, then rising keys and places. Only for an index without
/// checksums.
struct Order<'a> {
    sample: Option<&'a [u8]>,
    last: Option<(i64, Vec<u8>, u64)>,
    is_needed: bool,
}

impl Order<'_> {
    fn check(&mut self, index: &IndexCursor, head: &EntryHead<'_>) -> Result<(), SstableError> {
        if !self.is_needed {
            return Ok(());
        }
        if self.sample.take().is_some_and(|sample| sample != head.key) {
            return Err(index.corrupt("the sampled key", format!("{:02x?}", head.key)));
        }
        let token = stdx::murmur3::token(head.key);
        let rises = self.last.as_ref().is_none_or(|(before, key, position)| {
            (*before, key.as_slice()) < (token, head.key) && *position < head.position
        });
        if !rises {
            let found = format!("{:02x?} at {}", head.key, head.position);
            return Err(index.corrupt("keys in ring order and rising places", found));
        }
        self.last = Some((token, head.key.to_vec(), head.position));
        Ok(())
    }
}

impl PartitionIndex {
    /// Where the entry of a sample begins.
    #[expect(clippy::expect_used, reason = "the summary has found the sample")]
    fn position(&self, sample: usize) -> u64 {
        let position = self.summary.position(sample).expect("a sample that was found");
        assert!(position < self.file.len(), "a sample lies in the index");
        position
    }

    fn order(&self, sample: usize) -> Order<'_> {
        Order { sample: self.summary.sampled_key(sample), last: None, is_needed: !self.file.is_checked() }
    }

    /// The row index of an entry's partition, if it has one.
    pub(crate) async fn row_index(&self, entry: &Entry) -> Result<Option<RowIndex>, SstableError> {
        RowIndex::of(&self.file, entry).await
    }

    /// The row index of an entry's partition as it is in the file; empty when it has none.
    pub(crate) async fn row_index_bytes(&self, entry: &Entry) -> Result<Vec<u8>, SstableError> {
        let Some((at, len)) = entry.row_index else { return Ok(Vec::new()) };
        let mut cursor = Cursor::new(self.file.clone(), at, true);
        let len = usize::try_from(len).map_err(|_| cursor.corrupt("a row index", len.to_string()))?;
        cursor.extend(len).await?;
        let bytes = cursor.bytes().get(..len);
        bytes.map(<[u8]>::to_vec).ok_or_else(|| cursor.corrupt("a row index", len.to_string()))
    }
}

/// Samples the index anew.
#[expect(clippy::expect_used, reason = "entries read in order have their keys")]
async fn sample_again(index: &Rc<BlockFile>, interval: u32) -> Result<Summary, SstableError> {
    let mut builder = SummaryBuilder::new(interval);
    let mut cursor = IndexCursor::new(index.clone(), 0, true);
    let mut position = 0;
    while let Some(entry) = cursor.next().await? {
        let key = entry.key.as_ref().expect("entries read in order have their keys");
        if builder.bounds().is_some_and(|(_, last)| last >= key) {
            return Err(cursor.corrupt("keys in ring order", format!("{key:?}")));
        }
        builder.add(key, position);
        position = cursor.position();
    }
    builder
        .build()
        .ok_or_else(|| SstableError::corrupt(index.path(), 0, "an index of at least one partition", "none"))
}

/// The largest summary of a damaged SSTable that is read.
const SUMMARY_LEN_MAX: usize = 1 << 30;

/// See [`crate::format::known_tokens`].
pub(crate) async fn known_tokens(
    disk: &Disk,
    descriptor: &Descriptor,
) -> Result<(Option<(i64, i64)>, Option<Owner>), DiskError> {
    let integrity = match Integrity::read(disk, descriptor).await {
        Ok(Some(integrity)) if integrity.lists(Component::Summary) => integrity,
        Err(SstableError::Disk(error)) => return Err(error),
        _ => return Ok((None, None)),
    };
    let path = descriptor.path(Component::Summary);
    let Some(bytes) = load(disk, path, SUMMARY_LEN_MAX).await? else { return Ok((None, integrity.owner)) };
    let summary = integrity.check(descriptor, Component::Summary, &bytes).ok();
    let summary = summary.and_then(|()| Summary::decode(&bytes, integrity.index.file_len).ok());
    Ok((summary.map(|summary| (summary.first.token, summary.last.token)), integrity.owner))
}

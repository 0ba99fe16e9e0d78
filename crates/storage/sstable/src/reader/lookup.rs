//! Finding partitions in the index, and blocks of rows in a partition's row index.

use std::rc::Rc;

use mutation::{DecoratedKey, DeletionTime, RingPosition};

use super::Sstable;
use super::blocks::BlockFile;
use super::cursor::Cursor;
use crate::SstableError;
use crate::index::{BlockInfo, EntryHead, ROW_INDEX_HEAD_MAX, RowIndex};
use crate::unfiltered::decode::ItemDecoder;

/// An entry of the partition index.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its key; empty when the caller knew it.
    pub(crate) key: Option<DecoratedKey>,
    /// Where its partition begins in the data.
    pub(crate) position: u64,
    /// Where its row index lies, and how long it is.
    row_index: Option<(u64, u64)>,
}

/// Reads the partition index in order.
pub(crate) struct IndexCursor {
    cursor: Cursor,
}

impl IndexCursor {
    pub(crate) fn new(file: Rc<BlockFile>, position: u64, scan: bool) -> Self {
        Self { cursor: Cursor::new(file, position, scan) }
    }

    /// Waits until the head of the next entry is at hand; `false` at the end of the index.
    async fn prepare(&mut self) -> Result<bool, SstableError> {
        loop {
            if self.cursor.is_at_end() {
                return Ok(false);
            }
            match EntryHead::read(self.cursor.bytes()) {
                Ok(_) => return Ok(true),
                Err(error) => self.cursor.resolve(error).await?,
            }
        }
    }

    /// The head of the entry at the cursor, whose row index lies within the file.
    fn head(&self) -> Result<EntryHead<'_>, SstableError> {
        let head = EntryHead::read(self.cursor.bytes())
            .map_err(|_| self.cursor.corrupt("an index entry", "none"))?;
        if head.row_index_len > self.cursor.remaining().saturating_sub(head.len as u64) {
            let found = head.row_index_len.to_string();
            return Err(self.cursor.corrupt("a row index within the file", found));
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
        if !self.prepare().await? {
            return Ok(None);
        }
        let head = self.head()?;
        let key = DecoratedKey::new(bytes::Bytes::copy_from_slice(head.key));
        let entry = Self::entry(&head, self.cursor.position(), Some(key));
        let (len, row_index_len) = (head.len, head.row_index_len);
        self.skip(len, row_index_len)?;
        Ok(Some(entry))
    }

    /// Where the next entry begins in the file.
    pub(crate) fn position(&self) -> u64 {
        self.cursor.position()
    }

    pub(crate) fn corrupt(&self, expected: impl Into<String>, found: impl Into<String>) -> SstableError {
        self.cursor.corrupt(expected, found)
    }
}

impl Sstable {
    /// The entry of a key. Without the key in the file: none, after a look at the next sample's key, which must lie beyond.
    pub(crate) async fn find(&self, key: &DecoratedKey) -> Result<Option<Entry>, SstableError> {
        let sample = self.summary.floor(key);
        let start = self.summary.position(sample).expect("a sample that was found");
        let end = self.summary.position(sample + 1).unwrap_or(u64::MAX);
        let mut index = IndexCursor::new(self.index.clone(), start, false);
        let mut order = self.order(sample);
        while index.prepare().await? {
            let at = index.cursor.position();
            let head = index.head()?;
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
    pub(crate) async fn index_from(
        &self,
        start: &RingPosition,
        scan: bool,
    ) -> Result<IndexCursor, SstableError> {
        let sample = match start {
            RingPosition::BeforeToken(token) => self.summary.floor_token(*token),
            RingPosition::AfterToken(token) => self.summary.floor_token(token.saturating_add(1)),
            RingPosition::BeforeKey(key) | RingPosition::AfterKey(key) => self.summary.floor(key),
        };
        let position = self.summary.position(sample).expect("a sample that was found");
        let mut index = IndexCursor::new(self.index.clone(), position, scan);
        let mut order = self.order(sample);
        while index.prepare().await? {
            let head = index.head()?;
            order.check(&index, &head)?;
            let key = DecoratedKey::new(bytes::Bytes::copy_from_slice(head.key));
            if start.is_before(&key) {
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

impl Sstable {
    fn order(&self, sample: usize) -> Order<'_> {
        Order { sample: self.summary.sampled_key(sample), last: None, is_needed: !self.index.is_checked() }
    }
}

impl Entry {
    /// Whether the partition has a row index.
    pub(crate) fn has_row_index(&self) -> bool {
        self.row_index.is_some()
    }

    /// Where the partition's row index lies in the index, and how long it is.
    pub(crate) fn row_index_place(&self) -> Option<(u64, u64)> {
        self.row_index
    }

    /// The head of the partition's row index, if it has one.
    pub(crate) async fn read_row_index(
        &self,
        index: &Rc<BlockFile>,
    ) -> Result<Option<RowIndex>, SstableError> {
        let Some((at, len)) = self.row_index else {
            return Ok(None);
        };
        let mut cursor = Cursor::new(index.clone(), at, false);
        let head_len = len.min(ROW_INDEX_HEAD_MAX as u64) as usize;
        cursor.extend(head_len).await?;
        match RowIndex::read(&cursor.bytes()[..head_len], at, len) {
            Ok(row_index) => Ok(Some(row_index)),
            Err(error) => Err(fail(&mut cursor, error).await),
        }
    }
}

/// The error of bytes that are all there.
async fn fail(cursor: &mut Cursor, error: crate::prefix::ParseError) -> SstableError {
    match cursor.resolve(error).await {
        Ok(()) => cursor.corrupt("an entry as long as its content", "a shorter one"),
        Err(error) => error,
    }
}

/// Reads the descriptions of a partition's blocks.
pub(crate) struct BlockLookup {
    cursor: Cursor,
    pub(crate) row_index: RowIndex,
}

impl BlockLookup {
    pub(crate) fn new(file: Rc<BlockFile>, row_index: RowIndex) -> Self {
        Self { cursor: Cursor::new(file, row_index.infos_at, false), row_index }
    }

    /// The description of a block, which exists.
    pub(crate) async fn get(&mut self, block: u32, decoder: &ItemDecoder) -> Result<BlockInfo, SstableError> {
        assert!(block < self.row_index.blocks, "a block of the row index");
        self.cursor.seek(self.row_index.offsets_at + u64::from(block) * 4)?;
        while self.cursor.bytes().len() < 4 {
            self.cursor.extend(4 - self.cursor.bytes().len()).await?;
        }
        let offset = self.cursor.bytes().first_chunk::<4>().map_or(0, |offset| u32::from_be_bytes(*offset));
        let at = self.row_index.infos_at + u64::from(offset);
        if at >= self.row_index.offsets_at {
            return Err(self
                .cursor
                .corrupt("the offset of a block within the row index", offset.to_string()));
        }
        self.cursor.seek(at)?;
        loop {
            let rest = (self.row_index.offsets_at - at).min(self.cursor.bytes().len() as u64) as usize;
            match BlockInfo::read(&self.cursor.bytes()[..rest], decoder.types(), decoder.order()) {
                Ok(info) => return Ok(info),
                Err(error) if at + rest as u64 == self.row_index.offsets_at => {
                    return Err(fail(&mut self.cursor, error).await);
                }
                Err(error) => self.cursor.resolve(error).await?,
            }
        }
    }

    /// The range deletion in force where a block begins. The block before has to fit.
    pub(crate) async fn open_before(
        &mut self,
        block: u32,
        info: &BlockInfo,
        decoder: &ItemDecoder,
    ) -> Result<DeletionTime, SstableError> {
        let Some(before) = block.checked_sub(1) else {
            if info.offset != self.row_index.header.header_len {
                return Err(self.cursor.corrupt("a first block behind the header", info.offset.to_string()));
            }
            return Ok(DeletionTime::LIVE);
        };
        let before = self.get(before, decoder).await?;
        let follows =
            before.offset.checked_add(before.width) == Some(info.offset) && before.last <= info.first;
        if !follows {
            return Err(self
                .cursor
                .corrupt("blocks of rows that follow each other", format!("{before:?}, {info:?}")));
        }
        Ok(before.open)
    }

    /// The first block for which `test` holds, with its description; blocks for which it holds follow those for which it
    /// does not.
    pub(crate) async fn first_where(
        &mut self,
        decoder: &ItemDecoder,
        test: impl Fn(&BlockInfo) -> bool,
    ) -> Result<Option<(u32, BlockInfo)>, SstableError> {
        let (mut low, mut high) = (0, self.row_index.blocks);
        let mut found = None;
        while low < high {
            let middle = u32::midpoint(low, high);
            let info = self.get(middle, decoder).await?;
            if test(&info) {
                high = middle;
                found = Some((middle, info));
            } else {
                low = middle + 1;
            }
        }
        Ok(found)
    }
}

//! The terms of an SSTable, in a file.
//!
//! ```text
//! file      := header, { segment }, directory, footer
//! header    := "TORCINDX", version (2), SSTable's length (8), SSTable's checksum (4), fingerprint of the definition (8), crc
//! segment   := { block }, blocks                       sorted by term and place; segments overlap
//! block     := { record }, crc
//! record    := vint bytes shared with the record before, vint length of the rest, vint length of the term, rest of term and place
//! blocks    := vint count, { vint position, vint length, vint length of term, term, vint length of place, place }, crc
//! directory := vint count of segments, { vint position of blocks, vint length of blocks }, vint count of records,
//!              of full text also vint count of texts, vint count of their terms; crc
//! footer    := position of the directory (8), length of the directory (4), crc
//! ```
//!
//! Of full text a record has the posting behind the place, and behind that the posting's length (4).
//!
//! The term and place in the list of blocks are the beginning of the block's first record, as far as it differs from the last record of the block
//! before: nothing of the first block's. Of full text they are whole, and the first block's too.
//!
//! Numbers are big-endian; each crc is the CRC-32 of the part before it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::PathBuf;
use std::sync::Arc;

use rt::preempt::Pace;
use rt::{Disk, DiskError, File, IoBuf, OpenOptions};
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use crate::definition::Definition;
use crate::gather::Gather;
use crate::ordered_gather::OrderedGather;
use crate::texts::Entry;

const MAGIC: &[u8; 8] = b"TORCINDX";
const VERSION: u16 = 1;
pub(crate) const HEADER_LEN: usize = 8 + 2 + 8 + 4 + 8 + 4;
const FOOTER_LEN: usize = 8 + 4 + 4;
/// A block is closed when it has so many bytes.
const BLOCK_LEN: usize = 16 << 10;
/// A longer block, or list of blocks, is not read: a term or key is at most 64 KiB and may be escaped to twice that.
pub(crate) const PART_LEN_MAX: usize = 1 << 30;
/// Blocks of a term whose postings are counted; how many others have is estimated.
const BLOCKS_COUNTED: u64 = 4;
/// Bytes of one write.
const WRITE_LEN: usize = 256 << 10;
/// Bytes of records that are sorted in memory, as a segment.
const SEGMENT_BYTES_MAX: usize = 32 << 20;
/// Bytes of the length of a posting.
const POSTING_LEN_BYTES: usize = 4;
/// The memory of a record beside its bytes.
const RECORD_OVERHEAD: usize = 24;

/// Which SSTable a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SstableIdentity {
    /// Length of its data, bytes.
    pub len: u64,
    /// Checksum of its data.
    pub checksum: u32,
}

/// A file that cannot be used; it is made again.
#[derive(Debug, thiserror::Error)]
pub enum IndexFileError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It is not a writer's output, or belongs to another SSTable or definition.
    #[error("index file {path} cannot be used: {reason}")]
    Unusable {
        /// Its path.
        path: PathBuf,
        /// Why, in words.
        reason: &'static str,
    },
}

pub(crate) fn header(identity: SstableIdentity, definition: &Definition) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&identity.len.to_be_bytes());
    out.extend_from_slice(&identity.checksum.to_be_bytes());
    out.extend_from_slice(&definition.fingerprint().to_be_bytes());
    seal(&mut out, 0);
    out
}

/// Appends the checksum of the bytes from `start` on.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize) {
    let crc = crc32fast::hash(out.split_at(start).1);
    out.extend_from_slice(&crc.to_be_bytes());
}

/// The part before its checksum, if that is right.
pub(crate) fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (part, crc) = bytes.split_last_chunk::<4>()?;
    (crc32fast::hash(part).to_be_bytes() == *crc).then_some(part)
}

/// A term and a place, one behind the other, and of full text the posting with its length.
struct Record {
    bytes: Box<[u8]>,
    term_len: u32,
    /// Length of the part behind the place.
    rest_len: u32,
}

impl Record {
    fn term(&self) -> &[u8] {
        self.bytes.split_at(self.term_len as usize).0
    }
    fn place(&self) -> &[u8] {
        let behind = self.bytes.split_at(self.term_len as usize).1;
        behind.split_at(behind.len() - self.rest_len as usize).0
    }
}

/// Where a block is, and its separator: a term and a place that are not behind the block's first record, and behind all records of
/// blocks before.
struct Block {
    position: u64,
    len: u32,
    term: Box<[u8]>,
    place: Box<[u8]>,
}

/// The term and place of a [`Block`].
struct Separator {
    term: Box<[u8]>,
    place: Box<[u8]>,
}

impl Separator {
    fn whole(record: &Record) -> Self {
        Self { term: record.term().into(), place: record.place().into() }
    }

    /// The shortest beginning of a record that is behind the record before. A term that it has a part of is behind the term before it.
    fn new(record: &Record, before: &[u8]) -> Self {
        assert!(*before < *record.bytes, "records are sorted");
        if before.is_empty() {
            return Self { term: [].into(), place: [].into() };
        }
        let shared = record.bytes.iter().zip(before).take_while(|(a, b)| a == b).count();
        let (term, place) = (record.term(), record.place());
        let in_place = (shared + 1).saturating_sub(term.len()).min(place.len());
        let in_term = (shared + 1).min(term.len());
        Self { term: term.split_at(in_term).0.into(), place: place.split_at(in_place).0.into() }
    }
}

/// Writes a file.
pub struct TermsWriter {
    file: File,
    path: PathBuf,
    records: Vec<Record>,
    bytes: usize,
    buffer: Vec<u8>,
    /// Bytes before `buffer`.
    written: u64,
    segments: Vec<(u64, u64)>,
    count: u64,
    /// Of full text, how many texts there are, and how many terms they have.
    texts: Option<(u64, u64)>,
}

impl TermsWriter {
    /// A new file, replacing one of that name: it counts when [`TermsWriter::finish`] has returned.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn create(
        disk: &Disk,
        path: PathBuf,
        identity: SstableIdentity,
        definition: &Definition,
    ) -> Result<Self, DiskError> {
        let options = OpenOptions { truncate: true, ..OpenOptions::READ_WRITE };
        let file = disk.open(&path, options).await?;
        let buffer = header(identity, definition);
        let (records, segments) = (Vec::new(), Vec::new());
        let texts = definition.fulltext().map(|_| (0, 0));
        Ok(Self { file, path, records, bytes: 0, buffer, written: 0, segments, count: 0, texts })
    }

    /// Adds a term at a place.
    #[expect(clippy::expect_used, reason = "a term is a part of a row, which is smaller than a segment")]
    pub(crate) fn add(&mut self, term: &[u8], place: &[u8]) {
        let mut bytes = Vec::with_capacity(term.len() + place.len());
        bytes.extend_from_slice(term);
        bytes.extend_from_slice(place);
        self.bytes += bytes.len() + RECORD_OVERHEAD;
        let term_len = u32::try_from(term.len()).expect("a term is below 4 GiB");
        self.records.push(Record { bytes: bytes.into_boxed_slice(), term_len, rest_len: 0 });
    }

    /// Adds a term of a text at a place, with its posting.
    #[expect(
        clippy::expect_used,
        reason = "a term and its posting are a part of a row, which is smaller than a segment"
    )]
    pub(crate) fn add_posting(&mut self, term: &[u8], place: &[u8], posting: &[u8]) {
        let len = u32::try_from(posting.len()).expect("a posting is below 4 GiB");
        let mut bytes = Vec::with_capacity(term.len() + place.len() + posting.len() + POSTING_LEN_BYTES);
        for part in [term, place, posting, &len.to_be_bytes()] {
            bytes.extend_from_slice(part);
        }
        self.bytes += bytes.len() + RECORD_OVERHEAD;
        let term_len = u32::try_from(term.len()).expect("a term is below 4 GiB");
        let rest_len = len + POSTING_LEN_BYTES as u32;
        self.records.push(Record { bytes: bytes.into_boxed_slice(), term_len, rest_len });
    }

    /// Counts a text with so many terms.
    pub(crate) fn count_text(&mut self, terms: u32) {
        let (texts, all) = self.texts.get_or_insert_default();
        *texts += 1;
        *all += u64::from(terms);
    }

    /// Whether a segment should be written before more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= SEGMENT_BYTES_MAX
    }

    /// Sorts and writes the terms added since the last segment.
    #[expect(clippy::expect_used, reason = "a block is cut at its limit")]
    pub(crate) async fn write_segment(&mut self) -> Result<(), DiskError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let mut records = std::mem::take(&mut self.records);
        self.bytes = 0;
        sort(&mut records).await;
        let mut pace = Pace::new();
        let mut blocks: Vec<Block> = Vec::new();
        let mut block = Vec::with_capacity(BLOCK_LEN * 2);
        // The separator of the block from the one before, and the record before.
        let (mut first, mut last): (Option<Separator>, Option<&Record>) = (None, None);
        let mut rest = records.iter().peekable();
        while let Some(record) = rest.next() {
            let before = last.replace(record);
            if before.is_none_or(|before| before.bytes != record.bytes) {
                if block.is_empty() {
                    let separator = Separator::new(record, before.map_or(&[], |before| &before.bytes));
                    first = Some(if self.texts.is_some() { Separator::whole(record) } else { separator });
                }
                let shared = before.filter(|_| !block.is_empty()).map_or(&[][..], |before| &before.bytes);
                put_record(record, shared, &mut block);
                self.count += 1;
            }
            if (block.len() >= BLOCK_LEN || rest.peek().is_none())
                && let Some(Separator { term, place }) = first.take_if(|_| !block.is_empty())
            {
                seal(&mut block, 0);
                let len = u32::try_from(block.len()).expect("a block is below 4 GiB");
                blocks.push(Block { position: self.len(), len, term, place });
                self.append(&block).await?;
                block.clear();
            }
            pace.step().await;
        }
        let position = self.len();
        let mut list = Vec::new();
        write_unsigned(blocks.len() as u64, &mut list);
        for Block { position, len, term, place } in &blocks {
            write_unsigned(*position, &mut list);
            write_unsigned(u64::from(*len), &mut list);
            for part in [term, place] {
                write_unsigned(part.len() as u64, &mut list);
                list.extend_from_slice(part);
            }
        }
        seal(&mut list, 0);
        self.segments.push((position, list.len() as u64));
        self.append(&list).await
    }

    /// Ends the file and makes it durable; its path.
    #[expect(clippy::expect_used, reason = "a directory has an entry for each block")]
    pub(crate) async fn finish(mut self) -> Result<PathBuf, DiskError> {
        self.write_segment().await?;
        let position = self.len();
        let mut directory = Vec::new();
        write_unsigned(self.segments.len() as u64, &mut directory);
        for (position, len) in &self.segments {
            write_unsigned(*position, &mut directory);
            write_unsigned(*len, &mut directory);
        }
        write_unsigned(self.count, &mut directory);
        if let Some((texts, terms)) = self.texts {
            write_unsigned(texts, &mut directory);
            write_unsigned(terms, &mut directory);
        }
        seal(&mut directory, 0);
        self.append(&directory).await?;
        let mut footer = position.to_be_bytes().to_vec();
        let len = u32::try_from(directory.len()).expect("a directory is small");
        footer.extend_from_slice(&len.to_be_bytes());
        seal(&mut footer, 0);
        self.append(&footer).await?;
        self.flush().await?;
        self.file.sync_all().await?;
        Ok(self.path)
    }

    fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_LEN { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), DiskError> {
        self.file.write_at(self.written, IoBuf::copy_of(&self.buffer)).await?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn put_record(record: &Record, before: &[u8], out: &mut Vec<u8>) {
    let shared = record.bytes.iter().zip(before).take_while(|(a, b)| a == b).count();
    write_unsigned(shared as u64, out);
    write_unsigned((record.bytes.len() - shared) as u64, out);
    write_unsigned(u64::from(record.term_len), out);
    out.extend_from_slice(record.bytes.split_at(shared).1);
}

/// Sorts in parts, between which other tasks run, and merges them.
async fn sort(records: &mut Vec<Record>) {
    const PART: usize = 4096;
    let mut pace = Pace::new();
    for part in records.chunks_mut(PART) {
        part.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
        pace.steps(PART).await;
    }
    if records.len() <= PART {
        return;
    }
    // No term is the beginning of another one: the order of term and place is that of the bytes.
    let mut parts: Vec<std::iter::Peekable<std::vec::IntoIter<Record>>> = Vec::new();
    let mut rest = std::mem::take(records);
    let total = rest.len();
    while !rest.is_empty() {
        let at = rest.len().saturating_sub(1) / PART * PART;
        parts.push(rest.split_off(at).into_iter().peekable());
    }
    let mut heads: std::collections::BinaryHeap<std::cmp::Reverse<(Box<[u8]>, usize, (u32, u32))>> =
        Default::default();
    let next = |parts: &mut Vec<std::iter::Peekable<std::vec::IntoIter<Record>>>, part: usize| {
        let record = parts.get_mut(part)?.next()?;
        Some(std::cmp::Reverse((record.bytes, part, (record.term_len, record.rest_len))))
    };
    for part in 0..parts.len() {
        heads.extend(next(&mut parts, part));
    }
    records.reserve_exact(total);
    while let Some(std::cmp::Reverse((bytes, part, (term_len, rest_len)))) = heads.pop() {
        records.push(Record { bytes, term_len, rest_len });
        heads.extend(next(&mut parts, part));
        pace.step().await;
    }
    assert_eq!(records.len(), total, "sorting loses nothing");
}

/// An open file.
pub struct TermsFile {
    file: File,
    definition: Arc<Definition>,
    segments: Vec<Vec<Block>>,
    records: u64,
    /// Of full text, how many texts there are, and how many terms they have.
    texts: (u64, u64),
}

impl TermsFile {
    /// Opens the file of this SSTable and definition.
    ///
    /// # Errors
    /// When the disk refuses, and when it is not such a file or is damaged.
    pub async fn open(
        disk: &Disk,
        path: PathBuf,
        identity: SstableIdentity,
        definition: Arc<Definition>,
    ) -> Result<Self, IndexFileError> {
        let file = disk.open(&path, OpenOptions::READ).await?;
        let unusable = |reason| IndexFileError::Unusable { path: path.clone(), reason };
        let len = file.len().await?;
        if len < (HEADER_LEN + FOOTER_LEN) as u64 {
            return Err(unusable("it is cut off"));
        }
        if *file.read_exact_at(0, HEADER_LEN).await? != *header(identity, &definition) {
            return Err(unusable("it belongs to another SSTable or index, or is of another version"));
        }
        let footer = file.read_exact_at(len - FOOTER_LEN as u64, FOOTER_LEN).await?;
        let footer = unseal(&footer).ok_or_else(|| unusable("its end is damaged"))?;
        let mut reader = Reader::new(footer);
        let (Ok(position), Ok(directory_len)) = (reader.i64(), reader.u32()) else {
            return Err(unusable("its end is damaged"));
        };
        let directory = part(&file, len, position as u64, u64::from(directory_len)).await?;
        let directory =
            directory.as_deref().and_then(unseal).ok_or_else(|| unusable("its directory is damaged"))?;
        let (places, records, texts) = read_directory(directory, definition.fulltext().is_some())
            .ok_or_else(|| unusable("its directory is damaged"))?;
        let mut segments = Vec::with_capacity(places.len());
        for (position, blocks_len) in places {
            let bytes = part(&file, len, position, blocks_len).await?;
            let blocks = bytes.as_deref().and_then(unseal).and_then(|bytes| read_blocks(bytes, len));
            segments.push(blocks.ok_or_else(|| unusable("a list of blocks is damaged"))?);
        }
        Ok(Self { file, definition, segments, records, texts })
    }

    /// The definition of its index.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Its path.
    pub fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    /// How many terms at places it has.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes that it holds in memory.
    pub fn memory_size(&self) -> usize {
        let of = |block: &Block| size_of::<Block>() + block.term.len() + block.place.len();
        self.segments.iter().flatten().map(of).sum()
    }

    /// How many segments it has.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// How many texts it has, and how many terms these.
    pub(crate) fn texts(&self) -> (u64, u64) {
        self.texts
    }

    fn blocks(&self, segment: usize) -> &[Block] {
        self.segments.get(segment).map_or(&[], Vec::as_slice)
    }

    /// The block that a term at a place, or the first behind it, is in; none when the term is in none.
    pub(crate) fn block_of(&self, segment: usize, term: &[u8], place: &[u8]) -> Option<usize> {
        let blocks = self.blocks(segment);
        let behind = blocks.partition_point(|block| (&*block.term, &*block.place) <= (term, place));
        let first = behind.saturating_sub(1);
        blocks.get(first).filter(|block| *block.term <= *term)?;
        Some(first)
    }

    /// The next block that has a term.
    pub(crate) fn block_behind(&self, segment: usize, block: usize, term: &[u8]) -> Option<usize> {
        let next = self.blocks(segment).get(block + 1)?;
        (*next.term <= *term).then_some(block + 1)
    }

    /// About how many postings a term has in a segment; exactly, where they are in a few blocks.
    pub(crate) async fn postings_count(&self, segment: usize, term: &[u8]) -> Result<u64, IndexFileError> {
        let mut number = self.block_of(segment, term, &[]);
        // Postings that were counted, those of them in blocks that have nothing but them, and such blocks that were not read.
        let (mut count, mut in_whole, mut whole_blocks, mut others) = (0, 0, 0, 0);
        while let Some(block) = number {
            let is_whole = self.blocks(segment).get(block).is_some_and(|block| *block.term == *term)
                && self.blocks(segment).get(block + 1).is_some_and(|next| *next.term == *term);
            if is_whole && whole_blocks >= BLOCKS_COUNTED {
                others += 1;
            } else {
                let found = self.postings(segment, block, term).await?.len() as u64;
                count += found;
                in_whole += if is_whole { found } else { 0 };
                whole_blocks += u64::from(is_whole);
            }
            number = self.block_behind(segment, block, term);
        }
        Ok(count + others * in_whole / whole_blocks.max(1))
    }

    /// The postings of a term in a block.
    pub(crate) async fn postings(
        &self,
        segment: usize,
        block: usize,
        term: &[u8],
    ) -> Result<Vec<Entry>, IndexFileError> {
        let mut found = Vec::new();
        self.each_posting(segment, block, |of, place, posting| {
            if of == term {
                found.push(Entry { place: place.into(), posting: posting.into() });
            }
            of <= term
        })
        .await?;
        Ok(found)
    }

    /// Hands the terms, places and postings of a block to `take`, until it returns false; whether it did. None when there is no such block.
    pub(crate) async fn each_posting(
        &self,
        segment: usize,
        block: usize,
        mut take: impl FnMut(&[u8], &[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, IndexFileError> {
        let Some(block) = self.blocks(segment).get(block) else { return Ok(None) };
        let bytes = self.file.read_at(block.position, block.len as usize).await?;
        let unusable =
            || IndexFileError::Unusable { path: self.file.path().to_owned(), reason: "a block is damaged" };
        let records = unseal(&bytes).filter(|_| bytes.len() == block.len as usize).ok_or_else(unusable)?;
        let mut reader = Reader::new(records);
        let mut record = Vec::new();
        let mut pace = Pace::new();
        while !reader.is_empty() {
            let term_len = read_record(&mut reader, &mut record).ok_or_else(unusable)?;
            let (term, rest) = record.split_at(term_len);
            let (place, posting) = split_posting(rest).ok_or_else(unusable)?;
            if !take(term, place, posting) {
                return Ok(Some(false));
            }
            pace.step().await;
        }
        Ok(Some(true))
    }

    /// Offers the places of the terms that are wanted.
    pub(crate) async fn gather(&self, gather: &mut Gather) -> Result<(), IndexFileError> {
        if gather.is_void() {
            return Ok(());
        }
        let mut pace = Pace::new();
        for blocks in &self.segments {
            self.gather_segment(blocks, gather, &mut pace).await?;
        }
        Ok(())
    }

    async fn gather_segment(
        &self,
        blocks: &[Block],
        gather: &mut Gather,
        pace: &mut Pace,
    ) -> Result<(), IndexFileError> {
        // Of one term, its places are sorted: the search begins at the first that is wanted.
        let start: (&[u8], &[u8]) =
            (&gather.terms.start, if gather.terms.is_one() { &gather.start } else { &[] });
        let behind = blocks.partition_point(|block| (&*block.term, &*block.place) <= start);
        let mut record = Vec::new();
        for block in blocks.iter().skip(behind.saturating_sub(1)) {
            let is_behind = gather.terms.end.as_ref().is_some_and(|end| *block.term >= **end);
            let is_last_term = gather.terms.is_one() && *block.term == *gather.terms.start;
            if is_behind || is_last_term && gather.compare(&block.place) == std::cmp::Ordering::Greater {
                return Ok(());
            }
            let bytes = self.file.read_at(block.position, block.len as usize).await?;
            let unusable = || IndexFileError::Unusable {
                path: self.file.path().to_owned(),
                reason: "a block is damaged",
            };
            let records =
                unseal(&bytes).filter(|_| bytes.len() == block.len as usize).ok_or_else(unusable)?;
            let mut reader = Reader::new(records);
            record.clear();
            while !reader.is_empty() {
                let term_len = read_record(&mut reader, &mut record).ok_or_else(unusable)?;
                pace.step().await;
                let (term, place) = record.split_at(term_len);
                if *term < *gather.terms.start {
                    continue;
                }
                if gather.terms.end.as_ref().is_some_and(|end| *term >= **end) {
                    return Ok(());
                }
                if !gather.offer(place) && gather.terms.is_one() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl TermsFile {
    /// Offers the terms and places of a scan, in its order.
    pub(crate) async fn scan(&self, gather: &mut OrderedGather) -> Result<(), IndexFileError> {
        let mut pace = Pace::new();
        for blocks in &self.segments {
            let is_before = |block: &Block, bytes: &[u8]| block.term.iter().chain(&block.place).le(bytes);
            let behind = match gather.is_reversed {
                false => blocks.partition_point(|block| is_before(block, &gather.start)),
                true => blocks.partition_point(|block| is_before(block, &gather.end)),
            };
            let mut at = behind.saturating_sub(1);
            while let Some(block) = blocks.get(at) {
                if !self.scan_block(block, gather, &mut pace).await? {
                    break;
                }
                let next = if gather.is_reversed { at.checked_sub(1) } else { at.checked_add(1) };
                let Some(next) = next else { break };
                at = next;
            }
        }
        Ok(())
    }

    /// Whether those behind the block may be wanted, too.
    async fn scan_block(
        &self,
        block: &Block,
        gather: &mut OrderedGather,
        pace: &mut Pace,
    ) -> Result<bool, IndexFileError> {
        let bytes = self.file.read_at(block.position, block.len as usize).await?;
        let unusable =
            || IndexFileError::Unusable { path: self.file.path().to_owned(), reason: "a block is damaged" };
        let records = unseal(&bytes).filter(|_| bytes.len() == block.len as usize).ok_or_else(unusable)?;
        let (mut reader, mut record) = (Reader::new(records), Vec::new());
        let mut reversed: Vec<(Box<[u8]>, usize)> = Vec::new();
        while !reader.is_empty() {
            let term_len = read_record(&mut reader, &mut record).ok_or_else(unusable)?;
            pace.step().await;
            if gather.is_reversed {
                reversed.push((record.as_slice().into(), term_len));
            } else if !gather.offer(&record, term_len) {
                return Ok(false);
            }
        }
        Ok(reversed.iter().rev().all(|(record, term_len)| gather.offer(record, *term_len)))
    }
}

/// A part of a file that is `len` long; none when the part does not lie in it.
pub(crate) async fn part(
    file: &File,
    len: u64,
    position: u64,
    part_len: u64,
) -> Result<Option<IoBuf>, DiskError> {
    let fits =
        position.checked_add(part_len).is_some_and(|end| end <= len) && part_len <= PART_LEN_MAX as u64;
    if !fits {
        return Ok(None);
    }
    file.read_exact_at(position, part_len as usize).await.map(Some)
}

/// A place and its posting, of a record without its term.
fn split_posting(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, len) = rest.split_last_chunk::<POSTING_LEN_BYTES>()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    rest.split_at_checked(rest.len().checked_sub(len)?)
}

/// Reads the next record over the one before; the length of its term.
fn read_record(reader: &mut Reader<'_>, record: &mut Vec<u8>) -> Option<usize> {
    let shared = usize::try_from(read_unsigned(reader).ok()?).ok()?;
    let rest = usize::try_from(read_unsigned(reader).ok()?).ok()?;
    let term_len = usize::try_from(read_unsigned(reader).ok()?).ok()?;
    if shared > record.len() {
        return None;
    }
    record.truncate(shared);
    record.extend_from_slice(reader.bytes(rest).ok()?);
    (term_len <= record.len()).then_some(term_len)
}

/// Where the segments' lists of blocks are, the count of records, and those of texts and of their terms.
type Directory = (Vec<(u64, u64)>, u64, (u64, u64));

fn read_directory(bytes: &[u8], has_texts: bool) -> Option<Directory> {
    let mut reader = Reader::new(bytes);
    let count =
        usize::try_from(read_unsigned(&mut reader).ok()?).ok().filter(|count| *count <= bytes.len())?;
    let mut segments = Vec::new();
    for _ in 0..count {
        segments.push((read_unsigned(&mut reader).ok()?, read_unsigned(&mut reader).ok()?));
    }
    let records = read_unsigned(&mut reader).ok()?;
    let mut texts = (0, 0);
    if has_texts {
        texts = (read_unsigned(&mut reader).ok()?, read_unsigned(&mut reader).ok()?);
    }
    reader.is_empty().then_some((segments, records, texts))
}

/// The blocks of a segment; none when one of them does not lie in the file, which is so long.
fn read_blocks(bytes: &[u8], file_len: u64) -> Option<Vec<Block>> {
    let mut reader = Reader::new(bytes);
    let count =
        usize::try_from(read_unsigned(&mut reader).ok()?).ok().filter(|count| *count <= bytes.len())?;
    let mut blocks = Vec::new();
    for _ in 0..count {
        let position = read_unsigned(&mut reader).ok()?;
        let len = u32::try_from(read_unsigned(&mut reader).ok()?).ok()?;
        if position.checked_add(u64::from(len))? > file_len || len as usize > PART_LEN_MAX {
            return None;
        }
        let mut part = || -> Option<Box<[u8]>> {
            let len = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
            Some(reader.bytes(len).ok()?.into())
        };
        let (term, place) = (part()?, part()?);
        blocks.push(Block { position, len, term, place });
    }
    reader.is_empty().then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(term: &[u8], place: &[u8]) -> Record {
        let bytes = [term, place].concat().into_boxed_slice();
        Record { bytes, term_len: term.len() as u32, rest_len: 0 }
    }

    /// Terms and places of which none is the beginning of another, as those of a definition and of places: each ends with a 0.
    #[test]
    fn a_separator_is_behind_the_record_before_and_short() {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for number in 0..3_u32.pow(4) {
            let part = (0..=number % 4).map(|at| (number / 3_u32.pow(at) % 3 + 1) as u8);
            parts.push(part.chain([0]).collect());
        }
        let mut records: Vec<Record> =
            parts.iter().flat_map(|term| parts.iter().map(|place| record(term, place))).collect();
        records.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
        records.dedup_by(|a, b| a.bytes == b.bytes);
        assert!(records.len() > 500, "{} records", records.len());
        for pair in records.windows(2) {
            let [before, record] = pair else { unreachable!("of two") };
            let Separator { term, place } = Separator::new(record, &before.bytes);
            assert!((before.term(), before.place()) < (&*term, &*place));
            assert!((&*term, &*place) <= (record.term(), record.place()));
        }
        let first = Separator::new(&records[0], &[]);
        assert!(first.term.is_empty() && first.place.is_empty());
        // Long values that differ early are separated by a few bytes.
        let long = |start: u8| record(&[&[start; 2][..], &[7; 60_000], &[0]].concat(), &[1, 0]);
        let separator = Separator::new(&long(2), &long(1).bytes);
        assert_eq!((&*separator.term, &*separator.place), (&[2][..], &[][..]));
    }
}

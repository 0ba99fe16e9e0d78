//! A file as a sequence of verified, uncompressed blocks: chunks of the data file, pages of the index.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::{Path, PathBuf};
use std::rc::Rc;

use rt::{Disk, File, IoBuf, OpenOptions};

use crate::checksums::ChunkChecksums;
use crate::compress::decompress;
use crate::compression_info::CompressionInfo;
use crate::integrity::PageChecksums;
use crate::{Block, BlockCache, BlockKey, SstableError};

/// Bytes of an index page.
const PAGE_LEN: u64 = 16 << 10;
const _: () = assert!(PAGE_LEN == crate::integrity::PAGE_LEN as u64, "pages with and without checksums");
/// Blocks of a data file without checksums.
const PLAIN_LEN: u64 = 64 << 10;
/// Bytes of one read of a scan.
const AHEAD_LEN: u64 = 256 << 10;

/// The most bytes that a block of so many may take in the file, its checksum included.
pub(crate) fn max_len_on_disk(block_len: u64) -> u64 {
    block_len * 2 + (64 << 10)
}

/// How the file's bytes become blocks.
pub(crate) enum Layout {
    /// As they are, with a checksum each where there are any.
    Pages(Option<PageChecksums>),
    /// With a checksum each, kept apart; none when the checksums are missing.
    Plain(Option<ChunkChecksums>),
    /// Compressed, each with a checksum behind it.
    Compressed(CompressionInfo),
}

/// An open file, read in blocks.
pub(crate) struct BlockFile {
    file: File,
    /// Length on disk.
    file_len: u64,
    /// Length of the content.
    len: u64,
    block_len: u64,
    layout: Layout,
    cache: Rc<dyn BlockCache>,
    id: u64,
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        self.cache.forget_file(self.id);
    }
}

/// A large read, out of which a scan takes its blocks.
#[derive(Default)]
pub(crate) struct ReadAhead {
    start: u64,
    buf: Option<IoBuf>,
}

impl BlockFile {
    /// Opens a file whose content is laid out as told; checks that its length agrees.
    pub(crate) async fn open(
        disk: &Disk,
        path: PathBuf,
        layout: impl FnOnce(u64) -> Result<Layout, SstableError>,
        cache: Rc<dyn BlockCache>,
    ) -> Result<Self, SstableError> {
        let file = disk.open(&path, OpenOptions::READ).await;
        let file = file.map_err(|error| SstableError::of_component(&path, error))?;
        let file_len = file.len().await?;
        let layout = layout(file_len)?;
        let (len, block_len) = match &layout {
            Layout::Pages(None) => (file_len, PAGE_LEN),
            Layout::Pages(Some(checksums)) => (file_len, u64::from(checksums.page_len)),
            Layout::Plain(None) => (file_len, PLAIN_LEN),
            Layout::Plain(Some(checksums)) => (file_len, u64::from(checksums.chunk_len)),
            Layout::Compressed(info) => (info.data_len, u64::from(info.chunk_len)),
        };
        if let Layout::Plain(Some(checksums)) = &layout
            && checksums.crcs.len() as u64 != len.div_ceil(block_len)
        {
            let expected = format!("{} chunks of {block_len} bytes", checksums.crcs.len());
            return Err(SstableError::corrupt(file.path(), file_len, expected, format!("{file_len} bytes")));
        }
        if let Layout::Pages(Some(checksums)) = &layout
            && checksums.file_len != file_len
        {
            let expected = format!("{} bytes", checksums.file_len);
            return Err(SstableError::corrupt(file.path(), file_len, expected, format!("{file_len} bytes")));
        }
        assert!(block_len > 0, "decoders accept no blocks without a length");
        let blocks = match &layout {
            Layout::Pages(None) | Layout::Plain(None) => None,
            Layout::Pages(Some(checksums)) => Some(checksums.crcs.len()),
            Layout::Plain(Some(checksums)) => Some(checksums.crcs.len()),
            Layout::Compressed(info) => Some(info.offsets.len()),
        };
        let expected = len.div_ceil(block_len);
        assert!(
            blocks.is_none_or(|blocks| blocks as u64 == expected),
            "each block has a checksum or a place"
        );
        let id = cache.new_file();
        Ok(Self { file, file_len, len, block_len, layout, cache, id })
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Length of the content.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Length on disk.
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    pub(crate) fn block_len(&self) -> u64 {
        self.block_len
    }

    /// Whether every byte is held against a checksum before it is used.
    pub(crate) fn is_checked(&self) -> bool {
        !matches!(self.layout, Layout::Pages(None) | Layout::Plain(None))
    }

    pub(crate) fn memory_size(&self) -> usize {
        match &self.layout {
            Layout::Pages(None) | Layout::Plain(None) => 0,
            Layout::Pages(Some(checksums)) => checksums.crcs.len() * 4,
            Layout::Plain(Some(checksums)) => checksums.crcs.len() * 4,
            Layout::Compressed(info) => info.offsets.memory_size(),
        }
    }

    /// A block out of the cache.
    #[inline]
    pub(crate) fn cached(&self, block: u64) -> Option<Block> {
        self.cache.get(BlockKey { file: self.id, block })
    }

    /// Reads a block and offers it to the cache.
    pub(crate) async fn read(&self, block: u64) -> Result<Block, SstableError> {
        let (at, len) = self.place(block)?;
        let raw = self.raw(at, len).await?;
        let content = Rc::new(self.unpack(block, at, &raw)?);
        self.assert_len(block, &content);
        self.cache.insert(BlockKey { file: self.id, block }, &content);
        Ok(content)
    }

    /// Reads a block through large reads that leave the cache alone.
    #[expect(clippy::expect_used, reason = "the block was just read")]
    pub(crate) async fn read_ahead(&self, block: u64, ahead: &mut ReadAhead) -> Result<Block, SstableError> {
        let (at, len) = self.place(block)?;
        let inside = |ahead: &ReadAhead| {
            let from = at.checked_sub(ahead.start)? as usize;
            let buf = ahead.buf.as_ref()?;
            (from + len <= buf.len()).then_some(from)
        };
        if inside(ahead).is_none() {
            let wanted = (len as u64).max(AHEAD_LEN).min(self.file_len - at);
            ahead.buf = None;
            ahead.buf = Some(self.raw(at, wanted as usize).await?);
            ahead.start = at;
        }
        let buf = ahead.buf.as_ref().zip(inside(ahead));
        let raw = buf.and_then(|(buf, from)| buf.get(from..from + len)).expect("the block was just read");
        let content = Rc::new(self.unpack(block, at, raw)?);
        self.assert_len(block, &content);
        Ok(content)
    }

    /// Every block but the last has the same length, as cursors count on.
    #[inline]
    fn assert_len(&self, block: u64, content: &[u8]) {
        let expected = (self.len - block * self.block_len).min(self.block_len);
        assert_eq!(content.len() as u64, expected, "a block is as long as its place in the content");
    }

    /// Where a block lies in the file, its checksum included.
    #[expect(clippy::expect_used, reason = "decoding checks the number of chunks against the length")]
    fn place(&self, block: u64) -> Result<(u64, usize), SstableError> {
        let start = block * self.block_len;
        assert!(start < self.len, "a block of the file");
        let (at, end) = match &self.layout {
            Layout::Pages(_) | Layout::Plain(_) => (start, (start + self.block_len).min(self.len)),
            Layout::Compressed(info) => {
                let at = info.offsets.get(block as usize);
                let end = info.offsets.get(block as usize + 1);
                (at.expect("there are as many chunks as the length says"), end.unwrap_or(self.file_len))
            }
        };
        let chunk_max = max_len_on_disk(self.block_len);
        if end <= at || end - at > chunk_max {
            let expected = format!("a chunk of 1 to {chunk_max} bytes");
            return Err(SstableError::corrupt(self.path(), at, expected, format!("one up to {end}")));
        }
        Ok((at, (end - at) as usize))
    }

    async fn raw(&self, at: u64, len: usize) -> Result<IoBuf, SstableError> {
        let buf = self.file.read_at(at, len).await?;
        if buf.len() < len {
            let found = format!("the end of the file after {}", buf.len());
            return Err(SstableError::corrupt(self.path(), at, format!("{len} bytes"), found));
        }
        assert_eq!(buf.len(), len, "a read gives no more than was asked for");
        Ok(buf)
    }

    /// Verifies and expands a block as stored on disk.
    fn unpack(&self, block: u64, at: u64, raw: &[u8]) -> Result<Vec<u8>, SstableError> {
        match &self.layout {
            Layout::Pages(None) | Layout::Plain(None) => Ok(raw.to_vec()),
            Layout::Pages(Some(checksums)) => {
                let expected = checksums.crcs.get(block as usize).copied().unwrap_or_default();
                self.check(at, raw, expected)?;
                Ok(raw.to_vec())
            }
            Layout::Plain(Some(checksums)) => {
                let expected = checksums.crcs.get(block as usize).copied().unwrap_or_default();
                self.check(at, raw, expected)?;
                Ok(raw.to_vec())
            }
            Layout::Compressed(info) => {
                let Some((chunk, crc)) = raw.split_last_chunk::<4>() else {
                    let found = format!("{} bytes", raw.len());
                    return Err(SstableError::corrupt(self.path(), at, "a chunk with a checksum", found));
                };
                self.check(at, chunk, u32::from_be_bytes(*crc))?;
                let len = info.chunk_data_len(block);
                if chunk.len() >= info.compressed_len_max as usize {
                    // Not compressed; a short last chunk is padded.
                    return match chunk.get(..len) {
                        Some(data) => Ok(data.to_vec()),
                        None => {
                            let found = format!("{} bytes", chunk.len());
                            Err(SstableError::corrupt(
                                self.path(),
                                at,
                                format!("a chunk of {len} bytes"),
                                found,
                            ))
                        }
                    };
                }
                decompress(info.algorithm, chunk, len).map_err(|found| {
                    let class = info.algorithm.class_name();
                    SstableError::corrupt(
                        self.path(),
                        at,
                        format!("a chunk of {len} bytes by {class}"),
                        found,
                    )
                })
            }
        }
    }

    fn check(&self, at: u64, bytes: &[u8], expected: u32) -> Result<(), SstableError> {
        let found = crc32fast::hash(bytes);
        if found == expected {
            return Ok(());
        }
        let what = format!("checksum {expected:08x} of {} bytes", bytes.len());
        Err(SstableError::corrupt(self.path(), at, what, format!("{found:08x}")))
    }
}

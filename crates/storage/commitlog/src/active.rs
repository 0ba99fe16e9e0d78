//! The segment being written: where its next chunk goes, and how it gets there.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;

use rt::{File, IoBuf, Mapping};

use crate::segment::{
    CHUNK_ALIGNMENT, CHUNK_HEADER_LEN, ChunkHeader, ENTRY_HEADER_LEN, HEADER_LEN, SegmentHeader, entry_header,
};

/// The segment being written. In the periodic mode its file is mapped where the file system allows that: a chunk is stored at
/// once, and nobody waits. Else chunks are written one after the other.
pub(crate) struct Active {
    pub(crate) header: SegmentHeader,
    pub(crate) file: File,
    mapping: Option<Mapping>,
    /// Where the next chunk goes.
    offset: u64,
    /// The same, for sync tasks.
    written: Rc<Cell<u64>>,
}

impl Active {
    /// A segment of which the header alone is written. A mapping is tried when `maps`; where there is none, chunks are
    /// written.
    pub(crate) async fn new(header: SegmentHeader, file: File, maps: bool) -> Self {
        let mapping = match maps {
            true => map(&file, header.bytes).await,
            false => None,
        };
        let offset = HEADER_LEN as u64;
        Self { header, file, mapping, offset, written: Rc::new(Cell::new(offset)) }
    }

    /// How far the segment is written, updated by the writes.
    pub(crate) fn written(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.written)
    }

    /// Where the next chunk goes.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether more than half of the segment is written.
    pub(crate) fn is_half_full(&self) -> bool {
        self.offset > self.header.bytes / 2
    }

    /// Whether a chunk of so many bytes, its header included, has room before the segment's end mark.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.offset + (self.padded(len) + self.padded(CHUNK_HEADER_LEN)) as u64 <= self.header.bytes
    }

    /// Stores an entry as a chunk of its own. Gives the chunk's length; none where the file is not mapped or has no room.
    pub(crate) fn store_entry(&mut self, number: u64, body: &[u8], synced: u64) -> Option<u64> {
        let mapping = self.mapping.as_ref()?;
        let entries_len = ENTRY_HEADER_LEN + body.len();
        let used = CHUNK_HEADER_LEN + entries_len;
        if !self.has_room(used) {
            return None;
        }
        let total_len = self.padded(used);
        let chunk = self.chunk_header(total_len, entries_len, number, synced, false);
        let mut head = [0; CHUNK_HEADER_LEN + ENTRY_HEADER_LEN];
        head[..CHUNK_HEADER_LEN].copy_from_slice(&chunk.encode(&self.header));
        let mut entry = entry_header(number, body);
        self.header.salt_entry(&mut entry);
        head[CHUNK_HEADER_LEN..].copy_from_slice(&entry);
        // The header last: an interrupted write leaves no chunk, rather than one with a damaged entry.
        mapping.write(self.offset + head.len() as u64, body);
        mapping.write(self.offset, &head);
        self.advance(total_len as u64);
        Some(total_len as u64)
    }

    /// Makes a chunk of a buffer that has room for its header in front: header, padding, the segment's salt.
    pub(crate) fn seal(&self, buf: &mut IoBuf, first: u64, synced: u64, is_end: bool) {
        let entries_len = buf.len() - CHUNK_HEADER_LEN;
        buf.pad_to(self.alignment());
        let chunk = self.chunk_header(buf.len(), entries_len, first, synced, is_end);
        let (head, entries) = buf.split_at_mut(CHUNK_HEADER_LEN);
        head.copy_from_slice(&chunk.encode(&self.header));
        let (entries, _padding) = entries.split_at_mut(entries_len);
        self.header.salt_entries(entries);
    }

    /// Stores a sealed chunk; false where the file is not mapped.
    pub(crate) fn store(&mut self, chunk: &[u8]) -> bool {
        let Some(mapping) = &self.mapping else { return false };
        mapping.write(self.offset, chunk);
        self.advance(chunk.len() as u64);
        true
    }

    /// The next chunk goes behind one of this length.
    pub(crate) fn advance(&mut self, len: u64) {
        assert!(len.is_multiple_of(self.alignment() as u64), "a chunk is padded");
        self.offset += len;
        assert!(self.offset <= self.header.bytes, "chunks lie within the segment");
        self.written.set(self.offset);
    }

    fn chunk_header(
        &self,
        total_len: usize,
        entries_len: usize,
        first: u64,
        synced: u64,
        is_end: bool,
    ) -> ChunkHeader {
        assert!(synced <= first, "a chunk promises only entries before its own");
        assert!(self.offset >= HEADER_LEN as u64, "chunks stand behind the segment's header");
        assert!(
            self.offset.is_multiple_of(self.alignment() as u64),
            "chunks begin at multiples of the alignment"
        );
        ChunkHeader { total_len: total_len as u32, entries_len: entries_len as u32, first, synced, is_end }
    }

    fn alignment(&self) -> usize {
        self.file.alignment().max(CHUNK_ALIGNMENT)
    }

    fn padded(&self, len: usize) -> usize {
        len.next_multiple_of(self.alignment())
    }
}

async fn map(file: &File, len: u64) -> Option<Mapping> {
    let mapped = file.map(len).await;
    if let Err(error) = &mapped
        && error.source.kind() != ErrorKind::Unsupported
    {
        tracing::warn!("a commit log segment is written instead of mapped: {error}");
    }
    mapped.ok()
}

//! `Index.db`: for each partition its key, its place in the data file and, for wide partitions, the row index: blocks of
//! rows with their first and last clustering, so that a slice can be read without the rows before it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::DeletionTime;
use stdx::{Reader, vint};
use types::{CqlType, encode_clustering_into};

use crate::deletion;
use crate::edge::Edge;
use crate::index::{PartitionHead, RowBlock};
use crate::prefix::{self, Kind, ParseError, ValueType, Values};

/// Widths of blocks are stored as differences to this.
const WIDTH_BASE: i64 = 64 << 10;

/// The head of a partition's entry, without its row index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EntryHead<'a> {
    pub(crate) key: &'a [u8],
    /// The position of the partition in the data.
    pub(crate) position: u64,
    /// Bytes of the row index that follows; 0 for none.
    pub(crate) row_index_len: u64,
    /// Bytes of this head.
    pub(crate) len: usize,
}

impl<'a> EntryHead<'a> {
    /// Reads the head of an entry off the front of `bytes`.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let key = reader.bytes_u16()?;
        let position = vint::read_unsigned(&mut reader)?;
        let row_index_len = vint::read_unsigned(&mut reader)?;
        Ok(Self { key, position, row_index_len, len: bytes.len() - reader.len() })
    }
}

/// Appends the entry of a partition.
#[expect(clippy::expect_used, reason = "keys are checked when they are written")]
pub(crate) fn write_entry(
    key: &[u8],
    position: u64,
    row_index: Option<&RowIndexBuilder>,
    header: PartitionHead,
    out: &mut Vec<u8>,
) {
    let key_len = u16::try_from(key.len()).expect("partition keys are below 64 KiB");
    out.extend_from_slice(&key_len.to_be_bytes());
    out.extend_from_slice(key);
    vint::write_unsigned(position, out);
    let Some(row_index) = row_index.filter(|index| index.offsets.len() > 1) else {
        out.push(0);
        return;
    };
    let mut head = Vec::with_capacity(32);
    vint::write_unsigned(header.header_len, &mut head);
    deletion::write(header.deletion, &mut head);
    vint::write_unsigned(row_index.offsets.len() as u64, &mut head);
    assert!(head.len() <= ROW_INDEX_HEAD_MAX, "a head is read with its greatest length");
    assert_eq!(row_index.offsets.first(), Some(&0), "the first block is described first");
    let len = head.len() + row_index.infos.len() + row_index.offsets.len() * 4;
    vint::write_unsigned(len as u64, out);
    let begins = out.len();
    out.extend_from_slice(&head);
    out.extend_from_slice(&row_index.infos);
    for offset in &row_index.offsets {
        out.extend_from_slice(&offset.to_be_bytes());
    }
    assert_eq!(out.len() - begins, len, "a row index is as long as its entry says");
}

/// Appends the entry of a partition whose row index, if it is not empty, is that of another file.
#[expect(clippy::expect_used, reason = "keys are checked when they are written")]
pub(crate) fn write_copied_entry(key: &[u8], position: u64, row_index: &[u8], out: &mut Vec<u8>) {
    let key_len = u16::try_from(key.len()).expect("partition keys are below 64 KiB");
    out.extend_from_slice(&key_len.to_be_bytes());
    out.extend_from_slice(key);
    vint::write_unsigned(position, out);
    vint::write_unsigned(row_index.len() as u64, out);
    out.extend_from_slice(row_index);
}

/// Bytes of descriptions of blocks after which blocks become twice as long.
const INFOS_BYTES_A_DOUBLING: usize = 16 << 20;
/// Blocks do not become longer than this many doublings make them: four GiB of the usual four KiB.
const BLOCK_DOUBLINGS_MAX: usize = 20;

/// Collects the row index of the partition being written.
#[derive(Debug, Default)]
pub(crate) struct RowIndexBuilder {
    infos: Vec<u8>,
    offsets: Vec<u32>,
    /// Where the last block ends in the partition.
    end: u64,
}

impl RowIndexBuilder {
    pub(crate) fn clear(&mut self) {
        self.infos.clear();
        self.offsets.clear();
        self.end = 0;
    }

    /// Whether no block was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// How many bytes of rows the next block is to have, where the first ones have `usual`: twice as many each time the descriptions of
    /// blocks have grown by [`INFOS_BYTES_A_DOUBLING`]. They are in memory until the partition ends, and clients choose how long
    /// clustering keys are.
    pub(crate) fn block_len(&self, usual: u64) -> u64 {
        let doublings = (self.infos.len() / INFOS_BYTES_A_DOUBLING).min(BLOCK_DOUBLINGS_MAX);
        usual.saturating_mul(1 << doublings)
    }

    /// Adds a block of `width` bytes that begins `offset` bytes into the partition; `open` is the range deletion in force
    /// at its end.
    #[expect(clippy::expect_used, reason = "blocks grow with the row index")]
    pub(crate) fn push(
        &mut self,
        types: &[ValueType],
        first: &Edge,
        last: &Edge,
        offset: u64,
        width: u64,
        open: DeletionTime,
    ) {
        assert!(first.position() <= last.position(), "a block's first item is not behind its last");
        assert!(width > 0, "a block has bytes");
        assert!(self.is_empty() || offset == self.end, "blocks of rows follow each other without gaps");
        self.end = offset + width;
        self.offsets.push(u32::try_from(self.infos.len()).expect("a row index is below 4 GiB"));
        first.write(types, &mut self.infos);
        last.write(types, &mut self.infos);
        vint::write_unsigned(offset, &mut self.infos);
        vint::write_signed(width as i64 - WIDTH_BASE, &mut self.infos);
        self.infos.push(u8::from(!open.is_live()));
        if !open.is_live() {
            deletion::write(open, &mut self.infos);
        }
    }
}

/// The positions of the parts of a partition's row index in the index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowIndexPlaces {
    pub(crate) header: PartitionHead,
    /// Number of blocks.
    pub(crate) blocks: u32,
    /// The position of the descriptions of the blocks.
    pub(crate) infos_at: u64,
    /// The position of the offsets of the descriptions, 4 bytes each.
    pub(crate) offsets_at: u64,
}

/// The longest [`RowIndexPlaces`] head: two vints and a deletion.
pub(crate) const ROW_INDEX_HEAD_MAX: usize = 2 * vint::LEN_MAX + deletion::LEN;

impl RowIndexPlaces {
    /// Reads the head of a row index of `len` bytes that lies at `at` in the file, wholly within it, and of which `bytes` is
    /// the beginning.
    pub(crate) fn read(bytes: &[u8], at: u64, len: u64) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let header_len = vint::read_unsigned(&mut reader)?;
        let deletion = deletion::read(&mut reader)?;
        let blocks = vint::read_unsigned(&mut reader)?;
        let head_len = (bytes.len() - reader.len()) as u64;
        // A description has two kinds, an offset, a width and a flag: 5 bytes at least; and an offset of 4.
        let Some(blocks) =
            u32::try_from(blocks).ok().filter(|b| *b > 0 && head_len + u64::from(*b) * 9 <= len)
        else {
            return Err(ParseError::invalid("a number of blocks that fit the row index", blocks));
        };
        Ok(Self {
            header: PartitionHead { header_len, deletion },
            blocks,
            infos_at: at + head_len,
            offsets_at: at + len - u64::from(blocks) * 4,
        })
    }
}

/// Reads the description of a block.
pub(crate) fn read_block(
    bytes: &[u8],
    types: &[ValueType],
    order: &[(CqlType, bool)],
) -> Result<RowBlock, ParseError> {
    let mut reader = Reader::new(bytes);
    let first = read_edge(&mut reader, types, order)?;
    let last = read_edge(&mut reader, types, order)?;
    let offset = vint::read_unsigned(&mut reader)?;
    let width = vint::read_signed(&mut reader)?.wrapping_add(WIDTH_BASE);
    let Ok(width) = u64::try_from(width) else {
        return Err(ParseError::invalid("a block of rows with a length", width));
    };
    let open = match reader.u8()? {
        0 => DeletionTime::LIVE,
        1 => deletion::read(&mut reader)?,
        other => return Err(ParseError::invalid("0 or 1 for an open range deletion", other)),
    };
    Ok(RowBlock { first, last, offset, width, open })
}

fn read_edge(
    reader: &mut Reader<'_>,
    types: &[ValueType],
    order: &[(CqlType, bool)],
) -> Result<Vec<u8>, ParseError> {
    let byte = reader.u8()?;
    let kind = Kind::of(byte).filter(|kind| *kind != Kind::Static);
    let kind = kind.ok_or_else(|| ParseError::invalid("the kind of a row or bound", byte))?;
    let mut values = Values::new();
    match kind {
        Kind::Row => prefix::read_values(types, types.len(), reader, &mut values)?,
        _ => prefix::read_bound(types, reader, &mut values)?,
    }
    let mut position = Vec::with_capacity(32);
    let order = order.get(..values.len()).unwrap_or_default();
    encode_clustering_into(order, values.iter().copied(), kind.terminator(), &mut position);
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutation::{Bound, Clustering, Side};
    use proptest::prelude::*;
    use schema::{Table, TableBuilder, TableId};

    fn table() -> Table {
        TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("a", CqlType::Int)
            .clustering("c", CqlType::Int, false)
            .clustering("d", CqlType::Text, true)
            .build()
            .unwrap()
    }

    #[test]
    fn blocks_grow_where_a_row_index_does() {
        let table = table();
        let types: Vec<ValueType> =
            table.clustering_types().iter().map(|(ty, _)| ValueType::new(ty)).collect();
        let text = "x".repeat(60_000);
        let row = Clustering::new(&table, &[Some(&1_i32.to_be_bytes()), Some(text.as_bytes())]);
        let edge = Edge::Row(row);
        let mut builder = RowIndexBuilder::default();
        assert_eq!(builder.block_len(4096), 4096);
        // As many rows as one partition gets of 8 GB with keys of 60 kB.
        let (mut offset, mut blocks, mut in_block) = (0, 0, 0);
        for row in 0..8_000_000_000_u64 / 60_000 {
            in_block += 60_000;
            if in_block >= builder.block_len(4096) {
                builder.push(&types, &edge, &edge, offset, in_block, DeletionTime::LIVE);
                (offset, blocks, in_block) = (offset + in_block, blocks + 1, 0);
            }
            assert!(builder.infos.len() < 256 << 20, "{} bytes after {row} rows", builder.infos.len());
        }
        assert!(blocks > 500, "{blocks} blocks");
        builder.clear();
        assert_eq!(builder.block_len(4096), 4096, "the next partition begins with small ones");
    }

    proptest! {
        #[test]
        fn round_trip(
            key in prop::collection::vec(any::<u8>(), 0..40),
            position in any::<u64>(),
            blocks in prop::collection::vec((any::<i32>(), "[a-z]{0,9}", any::<u32>(), any::<bool>()), 0..5),
            header_len in any::<u32>(),
        ) {
            let table = table();
            let types: Vec<ValueType> = table.clustering_types().iter().map(|(ty, _)| ValueType::new(ty)).collect();
            let header = PartitionHead { header_len: u64::from(header_len), deletion: DeletionTime::new(5, 6) };
            let mut builder = RowIndexBuilder::default();
            let mut expected = Vec::new();
            // Blocks follow each other.
            let mut offset = u64::from(header_len);
            for (c, d, width, open) in &blocks {
                let c = c.to_be_bytes();
                let row = Clustering::new(&table, &[Some(&c), Some(d.as_bytes())]);
                let bound = Bound::new(&table, &[Some(&c)], Side::After);
                let open = if *open { DeletionTime::new(1, 2) } else { DeletionTime::LIVE };
                let width = u64::from(*width) + 1;
                builder.push(&types, &Edge::Row(row.clone()), &Edge::Marker(bound.clone(), Kind::InclusiveEnd), offset, width, open);
                expected.push(RowBlock { first: row.position().to_vec(), last: bound.position().to_vec(), offset, width, open });
                offset += width;
            }
            let mut out = Vec::new();
            write_entry(&key, position, Some(&builder), header, &mut out);
            let head = EntryHead::read(&out).unwrap();
            prop_assert_eq!((head.key, head.position), (key.as_slice(), position));
            prop_assert_eq!(head.len as u64 + head.row_index_len, out.len() as u64);
            for cut in 0..head.len {
                prop_assert!(EntryHead::read(&out[..cut]).is_err());
            }
            if blocks.len() < 2 {
                prop_assert_eq!(head.row_index_len, 0);
                return Ok(());
            }
            let index = RowIndexPlaces::read(&out[head.len..], head.len as u64, head.row_index_len).unwrap();
            prop_assert_eq!(index.header, header);
            prop_assert_eq!(index.blocks as usize, blocks.len());
            for (at, expected) in expected.iter().enumerate() {
                let offset = &out[index.offsets_at as usize + at * 4..][..4];
                let from = index.infos_at as usize + u32::from_be_bytes(offset.try_into().unwrap()) as usize;
                let info = read_block(&out[from..], &types, table.clustering_types()).unwrap();
                prop_assert_eq!(&info, expected);
            }
        }
    }
}

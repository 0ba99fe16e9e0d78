//! The content of the log's entries: writes, and how far tables are flushed.
//!
//! ```text
//! body       := kind (1), content
//! updates    := { length (4), update }                            kind 1, `mutation::codec`
//! checkpoint := vint count, { table id (16), number (8) },        kind 2
//!               vint count, { segment (8), number (8) }
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use mutation::PartitionUpdate;
use mutation::codec::{EncodedUpdates, encode_update};
use schema::TableId;
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};

use crate::segment::NUMBER_MAX;

const UPDATES: u8 = 1;
const CHECKPOINT: u8 = 2;

/// How far the log's content is no longer needed, or known to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Per table: entries up to this number are in SSTables.
    pub flushed: BTreeMap<TableId, u64>,
    /// Segments without an end mark, which end before the entry of this number: a crash cut them.
    pub tails: BTreeMap<u64, u64>,
}

impl Checkpoint {
    /// Merges a later one into this.
    pub fn merge(&mut self, other: &Self) {
        for (table, number) in &other.flushed {
            let mine = self.flushed.entry(*table).or_default();
            *mine = (*mine).max(*number);
        }
        self.tails.extend(other.tails.iter().map(|(segment, number)| (*segment, *number)));
    }

    /// Appends the entry's body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(CHECKPOINT);
        write_unsigned(self.flushed.len() as u64, out);
        for (table, number) in &self.flushed {
            out.extend_from_slice(&table.0);
            out.extend_from_slice(&number.to_be_bytes());
        }
        write_unsigned(self.tails.len() as u64, out);
        for (segment, number) in &self.tails {
            out.extend_from_slice(&segment.to_be_bytes());
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// Reads an entry's body; none when it is of another kind or malformed.
    pub fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        if reader.u8().ok()? != CHECKPOINT {
            return None;
        }
        let mut read = || -> Result<Self, ShortRead> {
            let mut out = Self::default();
            for _ in 0..read_unsigned(&mut reader)? {
                out.flushed.insert(TableId(reader.array()?), reader.u64()?);
            }
            for _ in 0..read_unsigned(&mut reader)? {
                out.tails.insert(reader.u64()?, reader.u64()?);
            }
            Ok(out)
        };
        let found = read().ok()?;
        let numbers_are_sound = found.flushed.values().chain(found.tails.values()).all(|n| *n <= NUMBER_MAX);
        numbers_are_sound.then_some(found)
    }
}

/// Appends the body of an entry of updates, in the version of mutations that the headers of new segments name.
#[expect(clippy::expect_used, reason = "updates are smaller than a segment")]
pub fn encode_updates(updates: &[PartitionUpdate], out: &mut Vec<u8>) {
    assert!(!updates.is_empty(), "an entry holds something");
    out.push(UPDATES);
    for update in updates {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        encode_update(update, out);
        let (_, appended) = out.split_at_mut(at);
        let (room, update) = appended.split_at_mut(4);
        let len = u32::try_from(update.len()).expect("an update is below 4 GiB");
        assert!(len >= 16, "an update begins with its table's id");
        room.copy_from_slice(&len.to_be_bytes());
    }
}

/// [`encode_updates`] of updates that were received: their bytes are taken over as they are.
#[expect(clippy::expect_used, reason = "updates are smaller than a message")]
pub fn encode_received(updates: &EncodedUpdates, out: &mut Vec<u8>) {
    out.push(UPDATES);
    for update in updates.iter() {
        let len = u32::try_from(update.len()).expect("an update fits a message");
        assert!(len >= 16, "an update begins with its table's id");
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(update);
    }
    assert!(out.len() > 1, "an entry holds something");
}

/// The encoded updates of an entry's body with their offsets in it; none when it is of another kind.
///
/// # Errors
/// The last item is a [`ShortRead`] when the body ends inside an update or its length.
pub fn updates(body: &Bytes) -> Option<impl Iterator<Item = Result<(usize, Bytes), ShortRead>>> {
    if body.first() != Some(&UPDATES) {
        return None;
    }
    let body = body.clone();
    let mut at = 1;
    Some(std::iter::from_fn(move || {
        let mut reader = Reader::new(body.get(at..)?);
        if reader.is_empty() {
            return None;
        }
        let update = (|| {
            let len = reader.u32()? as usize;
            reader.bytes(len)
        })();
        Some(match update {
            Ok(update) => {
                let start = at + 4;
                at = start + update.len();
                Ok((start, body.slice(start..at)))
            }
            Err(short) => {
                at = body.len();
                Err(short)
            }
        })
    }))
}

//! Bytes of messages, entries, snapshots and hard states, between nodes and on disk. Each begins with a version.
//!
//! ```text
//! message   := version (1), kind (1), to (8), from (8), term (8), then by kind
//! entry     := index (8), term (8), kind (1), length (4), body
//! changes   := count (2), { kind (1), node (8) }
//! members   := flags (1), four times { count (2), nodes (8 each) }
//! snapshot  := index (8), term (8), members, length (4), state
//! ```
//!
//! All integers are big-endian. A peer's bytes are hostile: every length is checked against a limit and against the bytes
//! left before memory is allocated, and content that Raft never sends (entries out of order, a term from the future) is no message.

use std::collections::BTreeSet;

use bytes::Bytes;
use stdx::{Reader, ShortRead};

use crate::data::{Change, ENTRY_BYTES_MAX, Entry, HardState, Membership, Payload, Snapshot};

/// The version of every form here.
pub const VERSION: u8 = 1;
/// Bytes of the state in a snapshot at most.
pub const SNAPSHOT_BYTES_MAX: usize = 256 << 20;
/// Nodes in one list of members at most.
pub const MEMBERS_MAX: usize = 4096;
/// Changes of the group in one entry at most.
pub const CHANGES_MAX: usize = 64;
/// Limit of the context that a heartbeat carries for a read, in bytes.
pub const CONTEXT_BYTES_MAX: usize = 64;
/// Entries in one message at most.
pub const ENTRIES_MAX: usize = 1 << 16;

/// Bytes of an entry beside its body.
const ENTRY_HEADER_LEN: usize = 21;

/// Invalid bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// They end too early.
    #[error("the bytes end early: {0}")]
    Short(#[from] ShortRead),
    /// Written by another version.
    #[error("format version {found}, this version reads {VERSION}; run the same version on all nodes")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A kind that does not exist.
    #[error("there is no {what} of kind {found}")]
    Kind {
        /// The message or field.
        what: &'static str,
        /// The kind found.
        found: u8,
    },
    /// A length beyond its limit.
    #[error("{what}: {found}, at most {limit}")]
    Limit {
        /// The message or field.
        what: &'static str,
        /// The value.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Something that Raft never says.
    #[error("{0}")]
    Nonsense(&'static str),
    /// Bytes are left at the end.
    #[error("{0} bytes too many")]
    Trailing(usize),
}

/// Appends an entry.
pub fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.extend_from_slice(&entry.index.to_be_bytes());
    out.extend_from_slice(&entry.term.to_be_bytes());
    match &entry.payload {
        Payload::Empty => put_body(out, 0, &[]),
        Payload::Command(data) => put_body(out, 1, data),
        Payload::Membership(changes) => put_body(out, 2, &encode_changes(changes)),
    }
}

fn put_body(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
}

/// Reads an entry.
///
/// # Errors
/// [`CodecError`] when the bytes are cut off, the index or term is impossible, the kind is unknown, or the body is
/// longer than [`ENTRY_BYTES_MAX`].
pub fn take_entry(reader: &mut Reader<'_>) -> Result<Entry, CodecError> {
    let (index, term, kind) = (reader.u64()?, reader.u64()?, reader.u8()?);
    if index == 0 || index == u64::MAX || term == 0 {
        return Err(CodecError::Nonsense("an entry without index or term"));
    }
    let body = take_bytes(reader, "bytes of an entry", ENTRY_BYTES_MAX)?;
    let payload = match kind {
        0 if body.is_empty() => Payload::Empty,
        1 if !body.is_empty() => Payload::Command(Bytes::copy_from_slice(body)),
        2 => Payload::Membership(decode_changes(body)?),
        0 | 1 => return Err(CodecError::Nonsense("an empty command, or an empty entry with a body")),
        found => return Err(CodecError::Kind { what: "entry", found }),
    };
    Ok(Entry { index, term, payload })
}

/// Appends a list of entries.
pub fn put_entries(out: &mut Vec<u8>, entries: &[Entry]) {
    out.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    entries.iter().for_each(|entry| put_entry(out, entry));
}

/// Reads a list of entries that follow each other.
///
/// # Errors
/// As [`take_entry`]; also when there are more than [`ENTRIES_MAX`] entries, or they do not follow each other.
pub fn take_entries(reader: &mut Reader<'_>) -> Result<Vec<Entry>, CodecError> {
    let count = reader.u32()? as usize;
    limit("entries", count, ENTRIES_MAX.min(reader.len() / ENTRY_HEADER_LEN))?;
    let mut entries: Vec<Entry> = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = take_entry(reader)?;
        if entries.last().is_some_and(|last| entry.index != last.index + 1 || entry.term < last.term) {
            return Err(CodecError::Nonsense("entries do not follow each other"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// The bytes of changes of the group; none for no change.
pub(crate) fn encode_changes(changes: &[Change]) -> Vec<u8> {
    if changes.is_empty() {
        return Vec::new();
    }
    assert!(changes.len() <= CHANGES_MAX, "a change of the group is small");
    let mut out = Vec::with_capacity(2 + 9 * changes.len());
    out.extend_from_slice(&(changes.len() as u16).to_be_bytes());
    for change in changes {
        let (kind, node) = match *change {
            Change::AddVoter(node) => (0, node),
            Change::AddLearner(node) => (1, node),
            Change::Remove(node) => (2, node),
        };
        out.push(kind);
        out.extend_from_slice(&node.to_be_bytes());
    }
    out
}

/// Decodes the bytes of [`encode_changes`].
pub(crate) fn decode_changes(bytes: &[u8]) -> Result<Vec<Change>, CodecError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = Reader::new(bytes);
    let count = usize::from(reader.u16()?);
    limit("changes of the group", count, CHANGES_MAX)?;
    let mut changes = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, node) = (reader.u8()?, reader.u64()?);
        if node == 0 {
            return Err(CodecError::Nonsense("a change of node 0"));
        }
        changes.push(match kind {
            0 => Change::AddVoter(node),
            1 => Change::AddLearner(node),
            2 => Change::Remove(node),
            found => return Err(CodecError::Kind { what: "change of the group", found }),
        });
    }
    if changes.is_empty() {
        return Err(CodecError::Nonsense("a list of no changes"));
    }
    finish(&reader)?;
    Ok(changes)
}

fn put_membership(out: &mut Vec<u8>, membership: &Membership) {
    out.push(u8::from(membership.auto_leave));
    for nodes in [&membership.voters, &membership.learners, &membership.outgoing, &membership.learners_next] {
        assert!(nodes.len() <= MEMBERS_MAX, "a group of more nodes than a message holds");
        out.extend_from_slice(&(nodes.len() as u16).to_be_bytes());
        nodes.iter().for_each(|node| out.extend_from_slice(&node.to_be_bytes()));
    }
}

fn take_membership(reader: &mut Reader<'_>) -> Result<Membership, CodecError> {
    let flags = reader.u8()?;
    if flags > 1 {
        return Err(CodecError::Nonsense("unknown flags of a list of members"));
    }
    let mut nodes = || -> Result<BTreeSet<u64>, CodecError> {
        let count = usize::from(reader.u16()?);
        limit("members", count, MEMBERS_MAX.min(reader.len() / 8))?;
        let mut nodes = BTreeSet::new();
        for _ in 0..count {
            if !nodes.insert(reader.u64()?) {
                return Err(CodecError::Nonsense("a member stands in a list twice"));
            }
        }
        Ok(nodes)
    };
    let membership = Membership {
        voters: nodes()?,
        learners: nodes()?,
        outgoing: nodes()?,
        learners_next: nodes()?,
        auto_leave: flags == 1,
    };
    match membership.defect() {
        Some(defect) => Err(CodecError::Nonsense(defect)),
        None => Ok(membership),
    }
}

/// Appends a snapshot.
pub fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    out.extend_from_slice(&snapshot.index.to_be_bytes());
    out.extend_from_slice(&snapshot.term.to_be_bytes());
    put_membership(out, &snapshot.membership);
    out.extend_from_slice(&(snapshot.data.len() as u32).to_be_bytes());
    out.extend_from_slice(&snapshot.data);
}

/// Reads a snapshot.
///
/// # Errors
/// [`CodecError`] when the bytes are cut off, the index or term is impossible, or members or data exceed their limits.
pub fn take_snapshot(reader: &mut Reader<'_>) -> Result<Snapshot, CodecError> {
    let (index, term) = (reader.u64()?, reader.u64()?);
    if index == 0 || index == u64::MAX || term == 0 {
        return Err(CodecError::Nonsense("a snapshot of nothing"));
    }
    let membership = take_membership(reader)?;
    let data = take_bytes(reader, "bytes of a snapshot", SNAPSHOT_BYTES_MAX)?;
    Ok(Snapshot { index, term, membership, data: Bytes::copy_from_slice(data) })
}

/// Appends a hard state.
pub fn put_hard_state(out: &mut Vec<u8>, state: &HardState) {
    for part in [state.term, state.vote, state.commit] {
        out.extend_from_slice(&part.to_be_bytes());
    }
}

/// Reads a hard state.
///
/// # Errors
/// [`CodecError`] when the bytes are cut off.
pub fn take_hard_state(reader: &mut Reader<'_>) -> Result<HardState, CodecError> {
    Ok(HardState { term: reader.u64()?, vote: reader.u64()?, commit: reader.u64()? })
}

/// Fails when anything is left.
///
/// # Errors
/// [`CodecError::Trailing`] with the number of bytes left.
pub fn finish(reader: &Reader<'_>) -> Result<(), CodecError> {
    if reader.is_empty() { Ok(()) } else { Err(CodecError::Trailing(reader.len())) }
}

pub(crate) fn limit(what: &'static str, found: usize, limit: usize) -> Result<(), CodecError> {
    if found > limit {
        return Err(CodecError::Limit { what, found: found as u64, limit: limit as u64 });
    }
    Ok(())
}

pub(crate) fn take_bytes<'a>(
    reader: &mut Reader<'a>,
    what: &'static str,
    bytes_max: usize,
) -> Result<&'a [u8], CodecError> {
    let len = reader.u32()? as usize;
    limit(what, len, bytes_max)?;
    Ok(reader.bytes(len)?)
}

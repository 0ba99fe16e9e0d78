//! Proposals, requests and replies as bytes: for `system.paxos`, and for other nodes.
//!
//! ```text
//! ballot    microseconds (8), node (8)
//! proposal  ballot, ballot of its author, vint count { ballot }, 0 or 1, of a write: vint length, update
//! request   version, table id (16), vint length, key; PREPARE: ballot; PROPOSE: proposal;
//!           COMMIT: 0 or 1 (to be on disk before the reply), proposal
//! reply     version, kind; promised: 2 × (0 or 1, proposal); refused: ballot
//! stored    proposal
//! ```
//! Updates are encoded as in the commit log: by the names of columns (`mutation::codec`).

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::sync::Arc;

use bytes::Bytes;
use mutation::codec::Version;
use mutation::{DecoratedKey, PartitionUpdate};
use paxos::{AFTER_MAX, Ballot, Proposal, Reply, Request};
use schema::{Table, TableId};
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};

/// A write that is voted on.
pub(crate) type Value = Arc<PartitionUpdate>;

/// The same as it is stored, of which nothing is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedValue(Bytes);

impl EncodedValue {
    /// The stored form of a write.
    pub(crate) fn of(update: &PartitionUpdate) -> Self {
        let mut bytes = Vec::with_capacity(256);
        mutation::codec::encode_update(update, &mut bytes);
        Self(bytes.into())
    }
}

/// A form of a write that is voted on.
pub(crate) trait Voted: Clone {
    /// Reads the stored form.
    fn read(place: &Place<'_>, stored: Bytes) -> Result<Self, CodecError>;

    /// Appends the stored form behind its length.
    fn put(&self, out: &mut Vec<u8>);
}

impl Voted for Value {
    fn read(place: &Place<'_>, stored: Bytes) -> Result<Self, CodecError> {
        place.update(&stored).map(Arc::new)
    }

    fn put(&self, out: &mut Vec<u8>) {
        EncodedValue::of(self).put(out);
    }
}

impl Voted for EncodedValue {
    fn read(_: &Place<'_>, stored: Bytes) -> Result<Self, CodecError> {
        Ok(Self(stored))
    }

    fn put(&self, out: &mut Vec<u8>) {
        write_unsigned(self.0.len() as u64, out);
        out.extend_from_slice(&self.0);
    }
}

const VERSION: u8 = 1;
/// The version of the mutations in messages of [`VERSION`], and in votes that are stored as [`super::store::VERSION`].
const MUTATIONS: Version = Version::V1;
const _: () = MUTATIONS.must_be_current();
/// The longest partition key.
const KEY_LEN_MAX: usize = 65_535;

const PROMISED: u8 = 1;
const ACCEPTED: u8 = 2;
const COMMITTED: u8 = 3;
const REFUSED: u8 = 4;

/// Why bytes are no message of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    /// They end too early.
    #[error("the message ends too early")]
    Short,
    /// A version that this node does not know.
    #[error("version {0} of the message is not known")]
    Version(u8),
    /// A number that means nothing.
    #[error("{what} cannot be {found}")]
    Number {
        /// The counted items.
        what: &'static str,
        /// The number.
        found: u64,
    },
    /// The table that it is about does not exist.
    #[error("there is no table with the id {0:?}")]
    UnknownTable(TableId),
    /// The write is none, or none of this partition.
    #[error("the write cannot be read: {0}")]
    Update(String),
    /// Something comes behind the end.
    #[error("{0} bytes behind the end")]
    Rest(usize),
}

impl From<ShortRead> for CodecError {
    fn from(_: ShortRead) -> Self {
        Self::Short
    }
}

fn put_ballot(ballot: Ballot, out: &mut Vec<u8>) {
    out.extend_from_slice(&ballot.micros.to_be_bytes());
    out.extend_from_slice(&ballot.node.to_be_bytes());
}

fn ballot(reader: &mut Reader<'_>) -> Result<Ballot, CodecError> {
    let micros = reader.i64()?;
    Ok(Ballot { micros, node: reader.i64()? as u64 })
}

fn flag(what: &'static str, reader: &mut Reader<'_>) -> Result<bool, CodecError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(CodecError::Number { what, found: found.into() }),
    }
}

fn end(reader: &Reader<'_>) -> Result<(), CodecError> {
    match reader.rest().len() {
        0 => Ok(()),
        rest => Err(CodecError::Rest(rest)),
    }
}

/// Appends a proposal.
pub(crate) fn put_proposal<V: Voted>(proposal: &Proposal<V>, out: &mut Vec<u8>) {
    assert!(proposal.after.len() <= AFTER_MAX, "a proposal that nobody can read is not sent");
    put_ballot(proposal.ballot, out);
    put_ballot(proposal.id, out);
    write_unsigned(proposal.after.len() as u64, out);
    proposal.after.iter().for_each(|before| put_ballot(*before, out));
    out.push(u8::from(proposal.value.is_some()));
    if let Some(value) = &proposal.value {
        value.put(out);
    }
}

/// The partition of a proposal: its writes must lie there.
pub(crate) struct Place<'a> {
    /// The table.
    pub(crate) table: &'a Arc<Table>,
    /// The partition.
    pub(crate) key: &'a DecoratedKey,
}

impl Place<'_> {
    fn proposal<V: Voted>(&self, body: &Bytes, reader: &mut Reader<'_>) -> Result<Proposal<V>, CodecError> {
        let (round, id) = (ballot(reader)?, ballot(reader)?);
        let count = read_unsigned(reader)?;
        if count > AFTER_MAX as u64 {
            return Err(CodecError::Number { what: "the number of writes before", found: count });
        }
        let after = (0..count).map(|_| ballot(reader)).collect::<Result<_, _>>()?;
        let value = match flag("whether there is a write", reader)? {
            false => None,
            true => Some(V::read(self, body.slice_ref(reader.bytes_vint()?))?),
        };
        Ok(Proposal { ballot: round, id, after, value })
    }

    fn update(&self, bytes: &Bytes) -> Result<PartitionUpdate, CodecError> {
        let find = |id| (id == self.table.id).then(|| self.table.clone());
        let decoded = mutation::codec::decode_received(MUTATIONS, bytes, None, find);
        match decoded.map_err(|error| CodecError::Update(error.to_string()))?.update {
            update if update.key == *self.key => Ok(update),
            _ => Err(CodecError::Update("it is one of another partition".to_owned())),
        }
    }

    /// Reads a proposal that is stored.
    pub(crate) fn stored<V: Voted>(&self, body: &Bytes) -> Result<Proposal<V>, CodecError> {
        let mut reader = Reader::new(body);
        let proposal = self.proposal(body, &mut reader)?;
        end(&reader)?;
        Ok(proposal)
    }

    /// Reads a reply to a request about this place.
    pub(crate) fn reply(&self, body: &Bytes) -> Result<Reply<Value>, CodecError> {
        let mut reader = Reader::new(body);
        version(&mut reader)?;
        let reply = match reader.u8()? {
            PROMISED => {
                let mut optional = || match flag("whether there is a proposal", &mut reader)? {
                    false => Ok(None),
                    true => self.proposal(body, &mut reader).map(Some),
                };
                Reply::Promised { accepted: optional()?, committed: optional()? }
            }
            ACCEPTED => Reply::Accepted,
            COMMITTED => Reply::Committed,
            REFUSED => Reply::Refused { promised: ballot(&mut reader)? },
            found => return Err(CodecError::Number { what: "a reply", found: found.into() }),
        };
        end(&reader)?;
        Ok(reply)
    }
}

fn version(reader: &mut Reader<'_>) -> Result<(), CodecError> {
    match reader.u8()? {
        VERSION => Ok(()),
        found => Err(CodecError::Version(found)),
    }
}

/// A request as a message; its verb says which it is.
pub(crate) fn encode_request(table: TableId, key: &DecoratedKey, request: &Request<Value>) -> Bytes {
    let mut out = Vec::with_capacity(128);
    out.push(VERSION);
    out.extend_from_slice(&table.0);
    write_unsigned(key.key.len() as u64, &mut out);
    out.extend_from_slice(&key.key);
    match request {
        Request::Prepare(ballot) => put_ballot(*ballot, &mut out),
        Request::Propose(proposal) => put_proposal(proposal, &mut out),
        Request::Commit(proposal) | Request::Repair(proposal) => {
            out.push(u8::from(matches!(request, Request::Repair(_))));
            put_proposal(proposal, &mut out);
        }
    }
    out.into()
}

/// Which request a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Prepare,
    Propose,
    Commit,
}

/// The subject of a request, and the request.
pub(crate) type Addressed = (Arc<Table>, DecoratedKey, Request<Value>);

/// Reads a request.
pub(crate) fn decode_request(
    kind: RequestKind,
    body: &Bytes,
    find: impl Fn(TableId) -> Option<Arc<Table>>,
) -> Result<Addressed, CodecError> {
    let mut reader = Reader::new(body);
    version(&mut reader)?;
    let id = TableId(reader.array()?);
    let table = find(id).ok_or(CodecError::UnknownTable(id))?;
    let key = reader.bytes_vint()?;
    if key.len() > KEY_LEN_MAX {
        return Err(CodecError::Number { what: "the length of a key", found: key.len() as u64 });
    }
    let key = DecoratedKey::new(body.slice_ref(key));
    let place = Place { table: &table, key: &key };
    let request = match kind {
        RequestKind::Prepare => Request::Prepare(ballot(&mut reader)?),
        RequestKind::Propose => Request::Propose(place.proposal(body, &mut reader)?),
        RequestKind::Commit => match flag("whether a commit is to be on disk", &mut reader)? {
            false => Request::Commit(place.proposal(body, &mut reader)?),
            true => Request::Repair(place.proposal(body, &mut reader)?),
        },
    };
    end(&reader)?;
    Ok((table, key, request))
}

/// A reply as a message.
pub(crate) fn encode_reply(reply: &Reply<Value>) -> Bytes {
    let mut out = vec![VERSION];
    match reply {
        Reply::Promised { accepted, committed } => {
            out.push(PROMISED);
            for proposal in [accepted, committed] {
                out.push(u8::from(proposal.is_some()));
                proposal.iter().for_each(|proposal| put_proposal(proposal, &mut out));
            }
        }
        Reply::Accepted => out.push(ACCEPTED),
        Reply::Committed => out.push(COMMITTED),
        Reply::Refused { promised } => {
            out.push(REFUSED);
            put_ballot(*promised, &mut out);
        }
    }
    out.into()
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;

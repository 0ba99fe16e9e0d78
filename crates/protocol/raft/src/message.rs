//! A message between two nodes of the group, and its bytes.

use std::fmt;

use stdx::Reader;
use tikv_raft::eraftpb as pb;
use tikv_raft::eraftpb::MessageType as Kind;

use crate::codec::{self, CodecError};
use crate::convert;

/// The context of a vote request for a leadership transfer: it may be granted although a leader is known.
const TRANSFER: u8 = 1;
const REJECT: u8 = 1;

/// A message between two nodes of the group. Goes out with [`Message::encode`], comes in with [`Message::decode`].
#[derive(Clone, PartialEq)]
pub struct Message(pub(crate) pb::Message);

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(message) = self;
        let kind = message.get_msg_type();
        write!(f, "{kind:?} {} → {}, term {}", message.from, message.to, message.term)?;
        write!(f, ", index {}, commit {}", message.index, message.commit)?;
        write!(f, ", {} entries{}", message.entries.len(), if message.reject { ", rejected" } else { "" })
    }
}

impl Message {
    /// The receiver.
    pub fn to(&self) -> u64 {
        self.0.to
    }

    /// The sender.
    pub fn from(&self) -> u64 {
        self.0.from
    }

    /// The sender's term.
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// Whether it carries a snapshot, which may be large.
    pub fn is_snapshot(&self) -> bool {
        self.0.get_msg_type() == Kind::MsgSnapshot
    }

    /// The state in it, when it carries a snapshot.
    pub fn snapshot_data(&self) -> Option<&[u8]> {
        self.is_snapshot().then(|| &self.0.get_snapshot().data[..])
    }

    /// The bytes to send.
    #[expect(clippy::expect_used, reason = "a node sends only kinds that have a number")]
    pub fn encode(&self) -> Vec<u8> {
        let Self(message) = self;
        let kind =
            kind_number(message.get_msg_type()).expect("a node sends only messages that others decode");
        let mut out = Vec::with_capacity(96);
        out.extend_from_slice(&[codec::VERSION, kind]);
        let mut put =
            |parts: &[u64]| parts.iter().for_each(|part| out.extend_from_slice(&part.to_be_bytes()));
        put(&[message.to, message.from, message.term]);
        match message.get_msg_type() {
            Kind::MsgAppend => {
                put(&[message.log_term, message.index, message.commit]);
                let entries: Vec<_> = message.entries.iter().map(convert::entry_from_pb).collect();
                codec::put_entries(&mut out, &entries);
            }
            Kind::MsgAppendResponse => {
                put(&[message.index, message.commit, message.reject_hint, message.log_term]);
                out.push(u8::from(message.reject));
            }
            Kind::MsgHeartbeat | Kind::MsgHeartbeatResponse => {
                put(&[message.commit]);
                out.extend_from_slice(&(message.context.len() as u32).to_be_bytes());
                out.extend_from_slice(&message.context);
            }
            Kind::MsgSnapshot => {
                codec::put_snapshot(&mut out, &convert::snapshot_from_pb(message.get_snapshot()));
            }
            Kind::MsgRequestVote | Kind::MsgRequestPreVote => {
                put(&[message.index, message.log_term, message.commit, message.commit_term]);
                out.push(u8::from(!message.context.is_empty()) * TRANSFER);
            }
            Kind::MsgRequestVoteResponse | Kind::MsgRequestPreVoteResponse => {
                put(&[message.commit, message.commit_term]);
                out.push(u8::from(message.reject) * REJECT);
            }
            _ => {}
        }
        out
    }

    /// Decodes the output of [`Message::encode`].
    ///
    /// # Errors
    /// [`CodecError`] when another version wrote it, the kind is unknown, the bytes are cut off or too many, or a field
    /// has a value that Raft never sends.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != codec::VERSION {
            return Err(CodecError::Version { found: version });
        }
        let number = reader.u8()?;
        let kind = kind_of(number).ok_or(CodecError::Kind { what: "message", found: number })?;
        let mut message = pb::Message::default();
        message.set_msg_type(kind);
        message.to = reader.u64()?;
        message.from = reader.u64()?;
        message.term = reader.u64()?;
        if message.to == 0 || message.from == 0 || message.to == message.from {
            return Err(CodecError::Nonsense("a message from nobody, to nobody or to its sender"));
        }
        if message.term == 0 || message.term == u64::MAX {
            return Err(CodecError::Nonsense("a message of no term"));
        }
        take_rest(&mut reader, kind, &mut message)?;
        codec::finish(&reader)?;
        Ok(Self(message))
    }
}

fn take_rest(reader: &mut Reader<'_>, kind: Kind, message: &mut pb::Message) -> Result<(), CodecError> {
    match kind {
        Kind::MsgAppend => take_append(reader, message)?,
        Kind::MsgAppendResponse => {
            message.index = reader.u64()?;
            message.commit = reader.u64()?;
            message.reject_hint = reader.u64()?;
            message.log_term = reader.u64()?;
            message.reject = take_flag(reader)?;
        }
        Kind::MsgHeartbeat | Kind::MsgHeartbeatResponse => {
            message.commit = reader.u64()?;
            let context = codec::take_bytes(reader, "bytes of a read", codec::CONTEXT_BYTES_MAX)?;
            message.context = context.to_vec().into();
        }
        Kind::MsgSnapshot => {
            let snapshot = codec::take_snapshot(reader)?;
            if snapshot.term > message.term {
                return Err(CodecError::Nonsense("a snapshot of a later term than its sender's"));
            }
            message.set_snapshot(convert::snapshot_to_pb(&snapshot));
        }
        Kind::MsgRequestVote | Kind::MsgRequestPreVote => {
            message.index = reader.u64()?;
            message.log_term = reader.u64()?;
            message.commit = reader.u64()?;
            message.commit_term = reader.u64()?;
            if take_flag(reader)? {
                message.context = tikv_raft::CAMPAIGN_TRANSFER.into();
            }
        }
        Kind::MsgRequestVoteResponse | Kind::MsgRequestPreVoteResponse => {
            message.commit = reader.u64()?;
            message.commit_term = reader.u64()?;
            message.reject = take_flag(reader)?;
        }
        _ => {}
    }
    Ok(())
}

fn take_append(reader: &mut Reader<'_>, message: &mut pb::Message) -> Result<(), CodecError> {
    message.log_term = reader.u64()?;
    message.index = reader.u64()?;
    message.commit = reader.u64()?;
    if message.log_term > message.term || message.index == u64::MAX {
        return Err(CodecError::Nonsense("entries after one that cannot be"));
    }
    let entries = codec::take_entries(reader)?;
    if entries.first().is_some_and(|first| first.index != message.index + 1 || first.term < message.log_term)
    {
        return Err(CodecError::Nonsense("entries do not follow the one before them"));
    }
    if entries.last().is_some_and(|last| last.term > message.term) {
        return Err(CodecError::Nonsense("an entry of a later term than its sender's"));
    }
    message.set_entries(entries.iter().map(convert::entry_to_pb).collect());
    Ok(())
}

fn take_flag(reader: &mut Reader<'_>) -> Result<bool, CodecError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(CodecError::Kind { what: "flag", found }),
    }
}

/// The kinds that travel. Proposals, reads and requests to hand over are sent by the layer above, with an answer.
const KINDS: [(Kind, u8); 10] = [
    (Kind::MsgAppend, 1),
    (Kind::MsgAppendResponse, 2),
    (Kind::MsgHeartbeat, 3),
    (Kind::MsgHeartbeatResponse, 4),
    (Kind::MsgRequestVote, 5),
    (Kind::MsgRequestVoteResponse, 6),
    (Kind::MsgRequestPreVote, 7),
    (Kind::MsgRequestPreVoteResponse, 8),
    (Kind::MsgSnapshot, 9),
    (Kind::MsgTimeoutNow, 10),
];

pub(crate) fn kind_number(kind: Kind) -> Option<u8> {
    KINDS.iter().find(|(candidate, _)| *candidate == kind).map(|(_, number)| *number)
}

fn kind_of(number: u8) -> Option<Kind> {
    KINDS.iter().find(|(_, candidate)| *candidate == number).map(|(kind, _)| *kind)
}

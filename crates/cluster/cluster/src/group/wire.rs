//! Bodies of the verbs `raft_forward` and `join`.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::net::SocketAddr;

use bytes::Bytes;
use rpc::Refusal;
use serde::{Deserialize, Serialize};
use stdx::{Reader, ShortRead};
use topology::HostId;

use crate::state::{MemberInfo, StateCodecError, decode_outcome, encode_outcome, text};
use crate::state::{Outcome, STATE_VERSION};

const VERSION: u8 = 1;

/// Codes of refusals of these verbs.
pub(crate) mod code {
    use rpc::Refusal;

    /// The node does not lead; nothing was proposed.
    pub(crate) const NOT_LEADER: u16 = Refusal::FIRST_FREE;
    /// The leader takes nothing at the moment; nothing was proposed.
    pub(crate) const BUSY: u16 = Refusal::FIRST_FREE + 1;
    /// It was proposed, and leadership was lost: whether it will be applied is not known.
    pub(crate) const LOST: u16 = Refusal::FIRST_FREE + 2;
    /// The body does not match the verb.
    pub(crate) const BAD_REQUEST: u16 = Refusal::FIRST_FREE + 3;
    /// A node may not join, for a reason that time does not heal.
    pub(crate) const JOIN_REFUSED: u16 = Refusal::FIRST_FREE + 4;
    /// A node cannot be let in at the moment.
    pub(crate) const JOIN_LATER: u16 = Refusal::FIRST_FREE + 5;
    /// The node that was asked has no cluster, and will not found one.
    pub(crate) const BLANK: u16 = Refusal::FIRST_FREE + 6;
    /// The node that was asked has no cluster, and may found one.
    pub(crate) const BLANK_FOUNDER: u16 = Refusal::FIRST_FREE + 7;
    /// The message is of another cluster.
    pub(crate) const OTHER_CLUSTER: u16 = Refusal::FIRST_FREE + 8;
}

/// A body that is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("version {0} of the request, this node reads {VERSION}; run the same version on all nodes")]
    Version(u8),
    #[error("there is no request of kind {0}")]
    Kind(u8),
    #[error("the body ends early: {0}")]
    Short(#[from] ShortRead),
    #[error("{0}")]
    State(#[from] StateCodecError),
    #[error("not a message of the group: {0}")]
    Raft(#[from] raft::CodecError),
    #[error("not a request to join: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Refusal::new(code::BAD_REQUEST, error.to_string())
    }
}

/// A node's request to another one about the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    /// To the leader: put this into the log, and answer when it is applied.
    Propose(Bytes),
    /// To the leader: a point in the log after everything that was acknowledged.
    Read,
    /// To anybody: answer when all shards use a schema of this number or a later one.
    AwaitSchema(u64),
    /// To anybody: was this host removed?
    Removed(HostId),
    /// To voters: the sender follows without a vote and knows no leader.
    Follows,
    /// To anybody: where is the node with this number in the group?
    Where(u64),
}

impl Forward {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        match self {
            Self::Propose(proposal) => {
                out.push(1);
                out.extend_from_slice(proposal);
            }
            Self::Read => out.push(2),
            Self::AwaitSchema(number) => {
                out.push(3);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Self::Removed(host) => {
                out.push(4);
                out.extend_from_slice(&host.0);
            }
            Self::Follows => out.push(5),
            Self::Where(number) => {
                out.push(6);
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        out.into()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader)?;
        Ok(match reader.u8()? {
            1 => Self::Propose(bytes.slice(2..)),
            2 => Self::Read,
            3 => Self::AwaitSchema(reader.u64()?),
            4 => Self::Removed(HostId(reader.array()?)),
            5 => Self::Follows,
            6 => Self::Where(reader.u64()?),
            kind => return Err(WireError::Kind(kind)),
        })
    }
}

fn check_version(reader: &mut Reader<'_>) -> Result<(), WireError> {
    match reader.u8()? {
        VERSION => Ok(()),
        other => Err(WireError::Version(other)),
    }
}

/// The answer to [`Forward::Propose`]: the index at which it was applied, and the outcome.
pub(crate) fn encode_applied(index: u64, outcome: &Outcome) -> Bytes {
    let mut out = index.to_be_bytes().to_vec();
    out.extend(encode_outcome(outcome));
    out.into()
}

pub(crate) fn decode_applied(bytes: &[u8]) -> Result<(u64, Outcome), WireError> {
    let mut reader = Reader::new(bytes);
    let index = reader.u64()?;
    Ok((index, decode_outcome(reader.rest())?))
}

/// The answer to the others: one number.
pub(crate) fn encode_number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

pub(crate) fn decode_number(bytes: &[u8]) -> Result<u64, WireError> {
    Ok(Reader::new(bytes).u64()?)
}

/// Bytes of a cluster's id before each message of its group.
const ID_LEN: usize = 16;

/// A body with the id of the cluster that it is of.
pub(crate) fn sign(cluster: [u8; 16], body: &[u8]) -> Bytes {
    [&cluster[..], body].concat().into()
}

/// The body, if it is of this cluster. A node that does not know its cluster's id accepts any.
pub(crate) fn verify(cluster: [u8; 16], signed: &Bytes) -> Result<Bytes, Refusal> {
    let short = || Refusal::new(code::BAD_REQUEST, "the body ends before the id of its cluster");
    let theirs = signed.get(..ID_LEN).ok_or_else(short)?;
    if cluster != [0; 16] && theirs != cluster {
        let message = "the message belongs to another cluster of the same name: one of the two was founded by mistake; clear the \
                       data directories of its nodes (docs/operations/cluster-log.md)";
        return Err(Refusal::new(code::OTHER_CLUSTER, message));
    }
    Ok(signed.slice(ID_LEN..))
}

/// A part of a snapshot's message, which may be larger than a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Names the transfer.
    pub(crate) transfer: u64,
    /// Bytes of the whole message.
    pub(crate) total: u64,
    /// The offset of this part.
    pub(crate) at: u64,
    /// The part.
    pub(crate) bytes: Bytes,
}

impl Piece {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        [self.transfer, self.total, self.at]
            .iter()
            .for_each(|part| out.extend_from_slice(&part.to_be_bytes()));
        out.extend_from_slice(&self.bytes);
        out
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader)?;
        let (transfer, total, at) = (reader.u64()?, reader.u64()?, reader.u64()?);
        Ok(Self { transfer, total, at, bytes: bytes.slice(1 + 3 * 8..) })
    }
}

/// A node asks to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    pub(crate) cluster_name: String,
    #[serde(with = "text::host")]
    pub(crate) host: HostId,
    pub(crate) info: MemberInfo,
    /// The dead node whose place it is to take: a host id or an address.
    #[serde(default)]
    pub(crate) replaces: Option<String>,
}

/// It is in: its number in the group, and where the others are. Of the others, the answer to [`Forward::Where`] has one or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinAnswer {
    pub(crate) number: u64,
    pub(crate) state_version: u32,
    #[serde(with = "text::id", default)]
    pub(crate) cluster_id: [u8; 16],
    pub(crate) peers: Vec<JoinPeer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinPeer {
    #[serde(with = "text::host")]
    pub(crate) host: HostId,
    pub(crate) number: u64,
    pub(crate) internode: SocketAddr,
    pub(crate) shard_count: u16,
}

#[expect(clippy::expect_used, reason = "plain values have a JSON form")]
pub(crate) fn encode_json<T: Serialize>(value: &T) -> Bytes {
    let mut out = vec![VERSION];
    serde_json::to_writer(&mut out, value).expect("plain values, and memory takes them");
    out.into()
}

pub(crate) fn decode_json<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, WireError> {
    let mut reader = Reader::new(bytes);
    check_version(&mut reader)?;
    Ok(serde_json::from_slice(reader.rest())?)
}

impl JoinAnswer {
    /// Whether this node can decode the cluster's format.
    pub(crate) fn is_readable(&self) -> bool {
        self.state_version <= STATE_VERSION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_another_cluster_are_refused() {
        let signed = sign([7; 16], b"body");
        assert_eq!(verify([7; 16], &signed).unwrap(), Bytes::from_static(b"body"));
        assert_eq!(
            verify([0; 16], &signed).unwrap(),
            Bytes::from_static(b"body"),
            "it does not know its own yet"
        );
        assert_eq!(verify([8; 16], &signed).unwrap_err().code, code::OTHER_CLUSTER);
        assert_eq!(verify([8; 16], &sign([0; 16], b"body")).unwrap_err().code, code::OTHER_CLUSTER);
        assert_eq!(verify([7; 16], &signed.slice(..9)).unwrap_err().code, code::BAD_REQUEST);
        let piece = Piece { transfer: 1, total: 9, at: 4, bytes: Bytes::from_static(b"piece") };
        assert_eq!(Piece::decode(&piece.encode().into()).unwrap(), piece);
        assert!(Piece::decode(&Bytes::from_static(&[1, 0, 0])).is_err());
    }

    #[test]
    fn requests_read_as_written_and_nothing_else_does() {
        let host = HostId([7; 16]);
        let proposal = Forward::Propose(Bytes::from_static(b"p"));
        let others = [
            Forward::Read,
            Forward::AwaitSchema(9),
            Forward::Removed(host),
            Forward::Follows,
            Forward::Where(7),
        ];
        for request in [proposal].into_iter().chain(others) {
            assert_eq!(Forward::decode(&request.encode()).unwrap(), request);
        }
        for bad in [&b""[..], &[1], &[2, 2], &[1, 9], &[1, 3, 0], &[1, 4, 1, 2], &[1, 6, 0]] {
            assert!(Forward::decode(&Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
        }
        let outcome = Outcome::Added { number: 3 };
        assert_eq!(decode_applied(&encode_applied(8, &outcome)).unwrap(), (8, outcome));
        assert!(decode_applied(&[0; 9]).is_err());
        assert!(decode_json::<JoinRequest>(b"\x01{}").is_err());
    }
}

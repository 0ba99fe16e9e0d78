//! A node of the cluster, as all nodes know it.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use topology::{HostId, Location};

use super::text;

/// A node's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Its address for other nodes.
    pub internode: SocketAddr,
    /// Its address for clients.
    pub native: SocketAddr,
    /// Its datacenter and rack.
    #[serde(with = "text::location")]
    pub location: Location,
    /// Its shards.
    pub shard_count: u16,
    /// The version of its software.
    pub release_version: String,
    /// The highest version of commands and state that it reads.
    pub state_version: u32,
}

/// How a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberStatus {
    /// It belongs to the cluster, and its tokens, if it has some, are not in force: it takes writes of its ranges, not reads.
    Joining,
    /// Its tokens are in force.
    Normal,
    /// It hands its ranges over; its tokens are in force until that is done.
    Leaving,
    /// It is down and does not come back: the others fetch its ranges from each other, or its replacement does.
    Removing,
    /// It owns nothing any more and may be removed.
    Left,
}

impl fmt::Display for MemberStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joining => "joining",
            Self::Normal => "normal",
            Self::Leaving => "leaving",
            Self::Removing => "being removed",
            Self::Left => "left",
        })
    }
}

impl MemberStatus {
    /// Whether a node may go from this status to another.
    pub fn may_become(self, next: MemberStatus) -> bool {
        if self == next {
            return true;
        }
        use MemberStatus::{Joining, Leaving, Left, Normal, Removing};
        match self {
            Joining => next == Normal,
            Normal => matches!(next, Leaving | Removing),
            // A node that dies while it leaves is removed.
            Leaving => matches!(next, Normal | Removing | Left),
            Removing => next == Normal,
            Left => false,
        }
    }
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number in the Raft group; never given to another.
    pub number: u64,
    /// Its description.
    pub info: MemberInfo,
    /// How it takes part.
    pub status: MemberStatus,
    /// Its places on the ring, ascending.
    pub tokens: Vec<i64>,
    /// The host whose tokens it takes when it joins.
    #[serde(with = "text::maybe_host", default)]
    pub replaces: Option<HostId>,
}

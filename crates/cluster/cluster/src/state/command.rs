//! Commands that change the state, and their outcomes.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use topology::HostId;

use super::member::{MemberInfo, MemberStatus};
use super::text;
use super::topology_change::ChangeStep;
use crate::edit::SchemaEdit;

/// Names a command for good: sixteen random bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub [u8; 16]);

impl fmt::Debug for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::uuid(&self.0))
    }
}

/// A change of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Changes the schema, if it is still the one with version `base`.
    SchemaChange {
        /// Version of the schema that the edits were planned against.
        base: [u8; 16],
        /// The edits.
        edits: Vec<SchemaEdit>,
    },
    /// Lets a host in, as joining and without tokens.
    AddMember {
        /// The host.
        host: HostId,
        /// Its description.
        info: MemberInfo,
        /// The dead host whose tokens it is to take.
        replaces: Option<HostId>,
    },
    /// A host says something else of itself: it has moved, or runs another version.
    UpdateMember {
        /// The host.
        host: HostId,
        /// All that it says.
        info: MemberInfo,
    },
    /// Changes how a host takes part.
    SetStatus {
        /// The host.
        host: HostId,
        /// The new status.
        status: MemberStatus,
    },
    /// Gives a host its places on the ring, if the members are still those of version `base`. Allowed while it joins, and begins
    /// the change that makes it an owner. A replacement takes the tokens of its host.
    SetTokens {
        /// The host.
        host: HostId,
        /// The tokens.
        tokens: Vec<i64>,
        /// [`super::ClusterState::topology_version`] that the tokens were chosen against.
        base: u64,
    },
    /// Removes a host for good: its id cannot come back.
    RemoveMember {
        /// The host.
        host: HostId,
    },
    /// Takes the change under way a step further.
    TakeStep {
        /// Which change.
        change: u64,
        /// To where.
        step: ChangeStep,
    },
    /// A host has fetched all that it gains by the change under way.
    Fetched {
        /// Which change.
        change: u64,
        /// The host.
        host: HostId,
    },
    /// Every node reads by the replication to be: the replicas of keyspaces have moved.
    EndAlteration {
        /// Which change.
        change: u64,
    },
}

/// A command on its way into the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Its name: the same one when it is proposed again.
    pub id: CommandId,
    /// The command.
    pub command: Command,
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The members are changed.
    Done {
        /// [`super::ClusterState::topology_version`] since.
        topology_version: u64,
    },
    /// The schema is changed.
    SchemaChanged {
        /// [`super::ClusterState::schema_number`] since.
        number: u64,
        /// The schema's version since.
        #[serde(with = "text::id")]
        version: [u8; 16],
    },
    /// A host is a member.
    Added {
        /// Its number in the Raft group.
        number: u64,
    },
    /// Nothing was changed.
    Refused(Refused),
}

/// Why a command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refused {
    /// The schema is not the one that the change was planned against; plan again.
    #[error("the schema changed meanwhile")]
    SchemaMoved,
    /// The edits do not fit the schema.
    #[error("{0}")]
    InvalidEdit(String),
    /// The members are not those that the tokens were chosen for; choose again.
    #[error("the members of the cluster changed meanwhile")]
    MembersMoved,
    /// No such member.
    #[error("host {} is not a member of the cluster", text::uuid(&host.0))]
    UnknownHost {
        /// The host.
        #[serde(with = "text::host")]
        host: HostId,
    },
    /// The host is a member already.
    #[error(
        "host {} is a member already, at {address}, and {status}; a node that lost its data directory joins with a new \
         host id after `removenode` of the old one",
        text::uuid(&host.0)
    )]
    HostExists {
        /// The host.
        #[serde(with = "text::host")]
        host: HostId,
        /// Its known address.
        address: SocketAddr,
        /// How it takes part.
        status: MemberStatus,
    },
    /// The host was removed.
    #[error(
        "host {} was removed from the cluster and its data is out of date; clear its data directory, and it joins as a \
         new node",
        text::uuid(&host.0)
    )]
    WasRemoved {
        /// The host.
        #[serde(with = "text::host")]
        host: HostId,
    },
    /// Another member has the address.
    #[error(
        "{address} is the address of host {0}: to take the place of that host, start with replace_address_first_boot: {1}; if it is dead and is not to be \
         replaced, remove it first (nodetool removenode {0}); or use another address",
        text::uuid(&host.0),
        address.ip()
    )]
    AddressTaken {
        /// The address.
        address: SocketAddr,
        /// The host that uses it.
        #[serde(with = "text::host")]
        host: HostId,
    },
    /// Another member has one of the tokens.
    #[error("token {token} is taken by another node")]
    TokenTaken {
        /// The token.
        token: i64,
    },
    /// A member in force has at least one token, and each once.
    #[error("a node has at least one token, and each once")]
    BadTokens,
    /// A step that no node takes.
    #[error("a node that is {from} cannot become {to}")]
    NoSuchStep {
        /// The current status.
        from: MemberStatus,
        /// The intended status.
        to: MemberStatus,
    },
    /// Tokens are given while a node joins.
    #[error("a node that is {status} cannot change its tokens")]
    TokensFixed {
        /// The status.
        status: MemberStatus,
    },
    /// One change of ownership at a time.
    #[error(
        "host {} is joining, leaving or being removed: one topology change at a time; wait until it is over (nodetool netstats shows \
         what it waits for), or end it with `removenode` or, at a leaving node, `abortdecommission`",
        text::uuid(&host.0)
    )]
    ChangeUnderWay {
        /// The host under change.
        #[serde(with = "text::host")]
        host: HostId,
    },
    /// Copies are not moved for two reasons at once.
    #[error(
        "the replication of keyspace '{keyspace}' cannot be changed while host {} joins, leaves, is replaced or is removed; try \
         again when that is over (nodetool netstats shows what it waits for)",
        text::uuid(&host.0)
    )]
    ReplicationFixed {
        /// The keyspace whose replicas were to move.
        keyspace: String,
        /// The host under change.
        #[serde(with = "text::host")]
        host: HostId,
    },
    /// Replicas move for one reason at a time.
    #[error(
        "the replicas of keyspace '{keyspace}' are being moved, because its replication was changed: wait until that is over \
         (nodetool netstats shows what is fetched), or give the keyspace its replication of before again"
    )]
    ReplicasMove {
        /// The keyspace whose replicas move.
        keyspace: String,
    },
    /// The topology change has completed, was aborted or is at a later step.
    #[error("that topology change has completed or was aborted")]
    ChangeOver,
    /// A host can be replaced when it owns tokens and no other replaces it.
    #[error("host {} cannot be replaced: it is {status}", text::uuid(&host.0))]
    NotReplaceable {
        /// The host.
        #[serde(with = "text::host")]
        host: HostId,
        /// Its status.
        status: MemberStatus,
    },
    /// Somebody has to own the data.
    #[error("the last node that owns data cannot leave the cluster")]
    LastMember,
    /// The node cannot decode this cluster's state.
    #[error(
        "the node reads the cluster's state up to version {found}, but version {needed} is in use; upgrade its software"
    )]
    TooOld {
        /// The latest version that it decodes.
        found: u32,
        /// The version of the cluster.
        needed: u32,
    },
}

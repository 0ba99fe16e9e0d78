//! The state on which all nodes agree: schema, members, tokens. A pure value; the entries of the cluster's log change it, on every node
//! alike.
//!
//! A command carries an id that its proposer drew. The outcomes of the last ones are part of the state, so that a command whose
//! answer was lost can be proposed again without being applied twice.

mod apply;
mod change;
mod codec;
mod command;
mod member;
mod split;
pub(crate) mod text;
mod topology_change;
mod transition;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use schema::{Replication, Schema};
use topology::{HostId, Ring, RingError, RingNode};

pub use codec::{StateCodecError, decode_outcome, encode_outcome};
pub(crate) use codec::{check, command_kind, yield_if_large};
pub use command::{Command, CommandId, Outcome, Proposal, Refused};
pub use member::{Member, MemberInfo, MemberStatus};
pub use text::uuid as host_text;
pub use topology_change::{ChangeStep, TopologyChange};

/// The version of commands and state that this node writes and reads. Since 3 statements propose edits of roles, since 4 of the capture of
/// changes and of masks, since 5 of constraints and descriptions, since 6 of reduce functions, TTL
/// columns and local indexes, since 7 of identities of certificates, since 8 of indexes with analyzers of words and of groups of addresses,
/// since 9 of indexes on the vectors of attributes, which older versions cannot all decode: a node with such a version is not let in. Since 10
/// nodes name logged changes in a way that no id of a column enters. Since 11 there are ordered indexes.
pub const STATE_VERSION: u32 = 11;

/// The first version that decodes edits of roles and service levels.
pub const STATE_VERSION_OF_ROLES: u32 = 3;

/// The first version that decodes the option `cdc` of ScyllaDB's form, and generations of streams.
pub const STATE_VERSION_OF_CDC: u32 = 4;

/// The first version that stores masks of columns.
pub const STATE_VERSION_OF_MASKS: u32 = 4;

/// The first version that stores constraints of columns, comments and security labels.
pub const STATE_VERSION_OF_CONSTRAINTS: u32 = 5;

/// The first version that stores which column is the time at which a row expires.
pub const STATE_VERSION_OF_ROW_TTL: u32 = 6;

/// The first version that stores whether an index is local.
pub const STATE_VERSION_OF_LOCAL_INDEXES: u32 = 6;

/// The first version that stores functions that merge the states of an aggregate.
pub const STATE_VERSION_OF_REDUCE_FUNCTIONS: u32 = 6;

/// The first version that stores the identities of certificates with which clients authenticate as a role.
pub const STATE_VERSION_OF_IDENTITIES: u32 = 7;

/// The first version whose nodes make the terms of indexes with analyzers of words, and of full text.
pub const STATE_VERSION_OF_ANALYZERS: u32 = 8;

/// The first version that stores groups of addresses from which roles may log in.
pub const STATE_VERSION_OF_CIDR_GROUPS: u32 = 8;

/// The first version whose nodes make indexes on the vectors of an attribute of the DynamoDB API.
pub const STATE_VERSION_OF_ATTRIBUTE_VECTORS: u32 = 9;

/// The first version whose nodes name the changes in a log of CDC by the content of their write. Until every node runs it, all of them
/// name changes by the encoding of their write, as earlier versions do.
pub const STATE_VERSION_OF_CDC_NAMES: u32 = 10;

/// The first version whose nodes make ordered indexes of attributes of the DynamoDB API. Until every node runs it, none is made.
pub const STATE_VERSION_OF_ORDERED_INDEXES: u32 = 11;

/// So many outcomes are remembered.
pub const OUTCOMES_MAX: usize = 1024;

/// So many removed hosts are remembered.
const REMOVED_MAX: usize = 1024;

/// A group that was made anew by an operator, because a majority of its voters was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recovery {
    /// Names it: drawn when it was made.
    #[serde(with = "text::id")]
    pub id: [u8; 16],
    /// The last entry of the log that was gone on with.
    pub base: u64,
}

/// The agreed state of a cluster, as of an entry of its log.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    /// The cluster's name.
    pub cluster_name: String,
    /// Names the cluster for good, drawn when it was founded: two clusters of one name are not one. Zeros where it is not known.
    pub cluster_id: [u8; 16],
    /// The last time that a majority was made anew.
    pub recovery: Option<Recovery>,
    /// The schema, with the server's own keyspaces.
    pub schema: Arc<Schema>,
    /// Rises with every change of the schema.
    pub schema_number: u64,
    /// The nodes.
    pub members: BTreeMap<HostId, Member>,
    /// Rises with every change of the members.
    pub topology_version: u64,
    /// The topology change that is under way.
    pub change: Option<TopologyChange>,
    /// Keyspaces whose replicas move after that change, with their former replication, by which they are read and written until then:
    /// a dead node was removed or replaced first, for which the move would have waited.
    pub deferred: BTreeMap<String, Replication>,
    /// The number of the last one.
    last_change: u64,
    /// The oldest [`ClusterState::topology_version`] by whose ring replicas may still be chosen: every live node has had a later one.
    pub fence: u64,
    /// The server's own keyspaces.
    own: Schema,
    /// The next member's number in the Raft group.
    next_number: u64,
    /// Hosts that were removed and must not come back, the latest last.
    removed: VecDeque<HostId>,
    /// The latest last.
    recent: VecDeque<(CommandId, Outcome)>,
}

impl ClusterState {
    /// The number of the last topology change, over or not; 0 when there was none.
    pub fn last_change(&self) -> u64 {
        self.last_change
    }

    /// A cluster of one node, with the schema that it has. The node's number is 1.
    pub fn found(
        cluster_name: impl Into<String>,
        own: Schema,
        schema: Schema,
        host: HostId,
        info: MemberInfo,
        tokens: Vec<i64>,
    ) -> Self {
        let member = Member { number: 1, info, status: MemberStatus::Normal, tokens, replaces: None };
        Self {
            cluster_name: cluster_name.into(),
            cluster_id: [0; 16],
            recovery: None,
            schema: Arc::new(crate::store::stamp_at_once(schema)),
            schema_number: 1,
            members: BTreeMap::from([(host, member)]),
            topology_version: 1,
            change: None,
            deferred: BTreeMap::new(),
            last_change: 0,
            fence: 0,
            own,
            next_number: 2,
            removed: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    /// The state of a node before it knows any cluster.
    pub fn unknown(cluster_name: impl Into<String>, own: Schema) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            cluster_id: [0; 16],
            recovery: None,
            schema: Arc::new(crate::store::stamp_at_once(own.clone())),
            schema_number: 0,
            members: BTreeMap::new(),
            topology_version: 0,
            change: None,
            deferred: BTreeMap::new(),
            last_change: 0,
            fence: 0,
            own,
            next_number: 1,
            removed: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    /// The same cluster under this id.
    ///
    /// # Panics
    /// When the cluster has an id, or this one stands for none.
    pub fn with_id(self, cluster_id: [u8; 16]) -> Self {
        assert_eq!(self.cluster_id, [0; 16], "a cluster gets its id once");
        assert_ne!(cluster_id, [0; 16], "zeros stand for an id that is not known");
        Self { cluster_id, ..self }
    }

    /// Name and id: equal for nodes of one cluster, and different for two clusters.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.cluster_name, text::uuid(&self.cluster_id))
    }

    /// A member.
    pub fn member(&self, host: HostId) -> Option<&Member> {
        self.members.get(&host)
    }

    /// The host with a number in the Raft group.
    pub fn host_of(&self, number: u64) -> Option<HostId> {
        self.members.iter().find(|(_, member)| member.number == number).map(|(host, _)| *host)
    }

    /// The hosts that were removed from the cluster, as many as are remembered.
    pub fn removed(&self) -> impl Iterator<Item = HostId> + '_ {
        self.removed.iter().copied()
    }

    /// Whether a host was removed from the cluster.
    pub fn was_removed(&self, host: HostId) -> bool {
        self.removed.contains(&host)
    }

    /// The ring of the members whose status passes.
    ///
    /// # Errors
    /// A [`RingError`] when two of the members have the same token, which no sequence of commands leads to.
    pub fn ring_of(&self, wanted: impl Fn(MemberStatus) -> bool) -> Result<Ring, RingError> {
        let members =
            self.members.iter().filter(|(_, member)| wanted(member.status) && !member.tokens.is_empty());
        Ring::new(members.map(|(host, member)| {
            (RingNode { host: *host, location: member.info.location.clone() }, member.tokens.clone())
        }))
    }

    /// The ring of all owners of tokens, joining and leaving ones included: new tokens must differ from theirs. Of a node that is
    /// being replaced and the one that replaces it only the first is there.
    ///
    /// # Errors
    /// As [`ClusterState::ring_of`].
    pub fn ring(&self) -> Result<Ring, RingError> {
        let members = self.members.iter();
        let members = members.filter(|(_, member)| member.replaces.is_none() && !member.tokens.is_empty());
        Ring::new(members.map(|(host, member)| {
            (RingNode { host: *host, location: member.info.location.clone() }, member.tokens.clone())
        }))
    }

    /// The outcome of a command that was applied already and not forgotten.
    pub fn outcome(&self, id: CommandId) -> Option<&Outcome> {
        self.recent.iter().rev().find(|(known, _)| *known == id).map(|(_, outcome)| outcome)
    }
}

//! State that the driver's task and the callers of a group share. One shard; no borrow is held over an `await`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raft::Status;
use rpc::{Incoming, Messenger, Near, PeerInfo, Peers, Refusal, RpcError, Target, Verb};
use rt::sync::{Notify, Watch, oneshot};
use rt::{DiskError, Instant, Rt, ShardId};
use schema::{Schema, TableId};
use topology::HostId;

use super::error::GroupError;
use super::heard::HeardAddresses;
use super::receiving::Receiving;
use super::wire::{self, Forward, JoinPeer};
use crate::DroppedTable;
use crate::rollback::{Members, RollbackGuard};
use crate::state::{ClusterState, CommandId, MemberInfo, Outcome};

/// Events that wait for the driver.
const INBOX_MAX: usize = 4096;
/// Addresses of other clusters that are remembered.
const FOREIGN_MAX: usize = 1024;

/// How a node takes part in its cluster's group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The node's own directory, which exists; the log is the folder `raft` in it.
    pub directory: PathBuf,
    /// The cluster's name.
    pub cluster_name: String,
    /// This node.
    pub host: HostId,
    /// Its own description.
    pub info: MemberInfo,
    /// A new node: the dead one whose place it is to take, a host id or an address.
    pub replaces: Option<String>,
    /// How many tokens the node is configured to have; none where they are named one by one.
    pub token_count: Option<usize>,
    /// A new node: it founds a cluster also when seeds do not answer, of which nobody knows then whether they have one.
    pub new_cluster: bool,
    /// Seeds whose names have no address: nobody knows whether they have a cluster.
    pub unresolved_seeds: Vec<String>,
    /// Checks before this node takes part whether its disk was rolled back; none where nothing is recorded.
    pub rollback: Option<RollbackGuard>,
    /// The server's own keyspaces.
    pub own: Schema,
    /// A tick of the group: a leader's heartbeat comes every second one, and followers miss it after ten to twenty.
    pub tick: Duration,
    /// Entries between two snapshots.
    pub snapshot_entries: u64,
}

impl GroupConfig {
    /// The defaults.
    pub fn new(
        directory: impl Into<PathBuf>,
        cluster_name: impl Into<String>,
        host: HostId,
        info: MemberInfo,
    ) -> Self {
        Self {
            directory: directory.into(),
            cluster_name: cluster_name.into(),
            host,
            info,
            replaces: None,
            token_count: None,
            new_cluster: false,
            unresolved_seeds: Vec::new(),
            rollback: None,
            own: crate::own_schema(),
            tick: Duration::from_millis(100),
            snapshot_entries: 512,
        }
    }
}

/// The state as of an entry of the log.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The last entry that it contains; 0 before the cluster's state has arrived.
    pub index: u64,
    /// The state.
    pub state: Arc<ClusterState>,
}

/// The result of a proposal at this node's own part of the group.
pub(crate) enum Proposed {
    /// Applied.
    Applied { index: u64, outcome: Outcome },
    /// This node does not lead; nothing was proposed.
    NotLeader,
    /// The leader takes nothing now; nothing was proposed.
    Busy,
    /// Proposed, and leadership lost.
    Lost,
}

/// An event for the driver.
pub(crate) enum Input {
    Message {
        from: HostId,
        message: raft::Message,
    },
    Propose {
        id: CommandId,
        bytes: Bytes,
        reply: oneshot::Sender<Proposed>,
    },
    /// The answer is an index, or none when this node does not lead.
    Read(oneshot::Sender<Option<u64>>),
    /// A learner that does not know the leader.
    Follows(HostId),
    Transfer,
    ForgetDrops(Vec<TableId>, oneshot::Sender<Result<(), DiskError>>),
}

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) messenger: Messenger,
    pub(crate) config: GroupConfig,
    inbox: RefCell<VecDeque<Input>>,
    pub(crate) wake: Notify,
    pub(crate) applied: Watch<Applied>,
    /// The number of the schema that all shards of this node use.
    pub(crate) in_use: Watch<u64>,
    pub(crate) status: Cell<Option<Status>>,
    pub(crate) leader: Cell<Option<HostId>>,
    /// Why the driver has ended.
    pub(crate) ended: Watch<Option<Rc<str>>>,
    pub(crate) stop: Cell<bool>,
    /// Another node knows that this one was removed from the cluster.
    pub(crate) removed: Watch<bool>,
    /// Addresses of hosts from other sources than the state.
    pub(crate) heard: RefCell<HeardAddresses>,
    /// Hosts that this node has learned of, because it joins or because it was away when they joined, until the state has their addresses.
    pub(crate) greeted: RefCell<BTreeMap<u64, (HostId, PeerInfo)>>,
    pub(crate) drops: RefCell<Vec<DroppedTable>>,
    pub(crate) membership: RefCell<raft::Membership>,
    /// The cluster's id; zeros until it is known.
    pub(crate) cluster_id: Cell<[u8; 16]>,
    /// Hosts that are sent a snapshot at the moment.
    pub(crate) sending: RefCell<BTreeSet<HostId>>,
    /// The snapshot that is coming in.
    pub(crate) receiving: RefCell<Option<Receiving>>,
    /// Addresses of which it was said that another cluster's node is there.
    foreign: RefCell<BTreeSet<SocketAddr>>,
}

impl Inner {
    pub(crate) fn new(rt: &Rt, messenger: &Messenger, config: GroupConfig, applied: Applied) -> Rc<Self> {
        assert_eq!(rt.shard(), ShardId(0), "the cluster's log lives on shard 0");
        Rc::new(Self {
            rt: rt.clone(),
            messenger: messenger.clone(),
            config,
            inbox: RefCell::default(),
            wake: Notify::new(),
            applied: Watch::new(applied),
            in_use: Watch::new(0),
            status: Cell::new(None),
            leader: Cell::new(None),
            ended: Watch::new(None),
            stop: Cell::new(false),
            removed: Watch::new(false),
            heard: RefCell::default(),
            greeted: RefCell::default(),
            drops: RefCell::default(),
            membership: RefCell::default(),
            cluster_id: Cell::new([0; 16]),
            sending: RefCell::default(),
            receiving: RefCell::default(),
            foreign: RefCell::default(),
        })
    }

    /// Gives the driver an event; dropped when too many wait, which senders of all kinds live with.
    pub(crate) fn push(&self, input: Input) {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.len() < INBOX_MAX && self.ended.get().is_none() {
            inbox.push_back(input);
            self.wake.notify_one();
        }
    }

    pub(crate) fn pop(&self) -> Option<Input> {
        self.inbox.borrow_mut().pop_front()
    }

    /// Ends everything that waits for the driver. The first reason stays.
    pub(crate) fn end(&self, why: &str) {
        self.inbox.borrow_mut().clear();
        self.leader.set(None);
        let first = self.ended.get().is_none();
        if first {
            self.ended.set(Some(Rc::from(why)));
        }
    }

    /// This node was removed from the cluster: its part ends.
    pub(crate) fn end_removed(&self) {
        self.removed.set(true);
        self.stop.set(true);
        self.end(&GroupError::Removed.to_string());
        self.wake.notify_one();
    }

    /// Asks a node whether this one was removed from the cluster; none when it did not answer. One that knows it refuses the connection.
    pub(crate) async fn ask_whether_removed(&self, target: Target, deadline: Instant) -> Option<bool> {
        let body = self.sign(&Forward::Removed(self.config.host).encode());
        match self.messenger.call(target, Verb::RaftForward, body, deadline).await {
            Ok(answer) => wire::decode_number(&answer).ok().map(|number| number == 1),
            Err(RpcError::Removed(_)) => Some(true),
            Err(_) => None,
        }
    }

    /// Whether this node's votes count: its disk is known not to have gone back.
    pub(crate) fn may_vote(&self) -> bool {
        self.config.rollback.as_ref().is_none_or(RollbackGuard::is_cleared)
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.applied.get().state.clone()
    }

    /// Members that may know that this node's disk was rolled back.
    pub(crate) fn witnesses(&self) -> Members {
        let numbers = self.membership.borrow().voters.clone();
        let voters = numbers.into_iter().filter_map(|number| self.host_of(number)).collect();
        Members { all: self.state().members.keys().copied().collect(), voters }
    }

    /// A message's body with the cluster's id.
    pub(crate) fn sign(&self, body: &[u8]) -> Bytes {
        wire::sign(self.cluster_id.get(), body)
    }

    /// The body of a message, if it is of this cluster; of each address that sends others it is said once.
    pub(crate) fn verify(&self, incoming: &Incoming) -> Result<Bytes, Refusal> {
        wire::verify(self.cluster_id.get(), &incoming.body).inspect_err(|refusal| {
            let mut foreign = self.foreign.borrow_mut();
            if foreign.len() < FOREIGN_MAX && foreign.insert(SocketAddr::new(incoming.address.ip(), 0)) {
                tracing::error!("{} (host {}): {}", incoming.address, incoming.from, refusal.message);
            }
        })
    }

    /// The host with a number in the group.
    pub(crate) fn host_of(&self, number: u64) -> Option<HostId> {
        let known = self.applied.get().state.host_of(number);
        known.or_else(|| self.greeted.borrow().get(&number).map(|(host, _)| *host))
    }

    /// Others said where hosts are that are not in the state yet: they can be answered from now on.
    pub(crate) fn greet<'a>(&self, peers: impl IntoIterator<Item = &'a JoinPeer>) {
        for peer in peers {
            let shard_count = peer.shard_count.max(1);
            let info = PeerInfo { address: peer.internode, shard_count, near: Near::Unknown };
            self.greeted.borrow_mut().insert(peer.number, (peer.host, info));
        }
        self.publish_peers();
    }

    /// Gives this shard's messenger the addresses of all nodes.
    pub(crate) fn publish_peers(&self) {
        let state = self.state();
        let heard = self.heard.borrow();
        let mut peers: BTreeMap<HostId, PeerInfo> =
            self.greeted.borrow().values().filter(|(host, _)| !state.was_removed(*host)).copied().collect();
        let own = &self.config.info.location;
        for (host, member) in &state.members {
            let info = &member.info;
            let address = heard.address_of(*host, info.internode);
            let at = &info.location;
            let near = Near::of(at.datacenter == own.datacenter, at.rack == own.rack);
            peers.insert(*host, PeerInfo { address, shard_count: info.shard_count.max(1), near });
        }
        self.messenger.set_peers(Arc::new(Peers::new(peers)));
        // One that still has a vote is listened to: without it there may be no majority to take the vote away.
        let all_known = self.membership.borrow().voters.iter().all(|voter| state.host_of(*voter).is_some());
        if all_known {
            self.messenger.refuse_removed(state.removed().collect());
        }
    }
}

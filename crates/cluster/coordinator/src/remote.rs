//! The way to the replicas of other nodes: their addresses, and one function for each request (`message` has the bodies).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutation::PartitionUpdate;
use replica::read_codec;
use replica::{ReadCommand, ReadPage, TraceLog};
use rpc::{Messenger, Near, PeerInfo, Peers, Target, Verb};
use rt::{Instant, Rt};
use schema::TableId;
use stdx::Reader;
use topology::{ClusterView, NodeIndex, NodeShard, ViewNode};

use crate::message::{
    ASKS_TRUNCATION, ASKS_TRUNCATION_PERMIT, ASKS_VIEW_BUILD, CHECKS_GIVEN_ID, REBUILDS_VIEWS, TRUNCATES,
    decode_updates, put_updates, stamp,
};
use crate::peer_error::{PeerError, unreadable};
use crate::traced::{TRACED_VERBS, encode, message_name};
use crate::truncation_permit::TruncationPermit;
use crate::view_builds::ViewBuildStatus;

/// The way to the replicas of other nodes.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) messenger: Messenger,
}

impl Remote {
    pub(crate) fn new(messenger: Messenger) -> Self {
        Self { messenger }
    }

    /// Sets the addresses of the nodes of a view, and of those that have left it and may still answer.
    pub(crate) fn set_peers(&self, view: &ClusterView) {
        let own = &view.node(view.own()).location;
        let peer = |node: &ViewNode| {
            let at = &node.location;
            let near = Near::of(at.datacenter == own.datacenter, at.rack == own.rack);
            let info = PeerInfo { address: node.internode, shard_count: node.shards, near };
            (node.host, info)
        };
        let peers = Peers::new(view.nodes().iter().chain(view.departed()).map(peer));
        self.messenger.set_peers(Arc::new(peers));
    }
}

fn target(to: NodeShard<'_>) -> Target {
    Target::Host { host: to.node.host, shard: to.shard }
}

/// The way to other nodes' replicas for one request.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'a> {
    pub(crate) remote: &'a Remote,
    pub(crate) rt: &'a Rt,
    /// Of the request, if it is traced.
    pub(crate) trace: Option<&'a TraceLog>,
}

impl Calls<'_> {
    /// Calls a shard of a node.
    pub(crate) async fn call(
        self,
        to: NodeShard<'_>,
        verb: Verb,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        if let Some(trace) = self.trace {
            return Box::pin(self.call_traced(trace, to, (verb, body), deadline)).await;
        }
        Ok(self.remote.messenger.call(target(to), verb, body, deadline).await?)
    }

    /// Sends a one-way message to a shard of a node.
    pub(crate) fn send(self, to: NodeShard<'_>, verb: Verb, body: Bytes) {
        self.remote.messenger.send(target(to), verb, body);
    }

    /// [`Calls::call`] that traces its steps, and has the other node trace its own.
    async fn call_traced(
        self,
        trace: &TraceLog,
        to: NodeShard<'_>,
        (verb, body): (Verb, Bytes),
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        let address = to.node.native.ip();
        let note = |activity: String| trace.add(self.rt.now(), self.rt.shard().0, activity);
        let (name, len) = (message_name(verb), body.len());
        note(format!("Sending {name} message to /{address} message size {len} bytes"));
        let session = trace.session().filter(|_| TRACED_VERBS.contains(&verb));
        assert!(session.is_none_or(|id| id != [0; 16]), "a session has an id");
        let (sent, body) = match session {
            Some(session) => (Verb::Traced, encode(session, verb, &body)),
            None => (verb, body),
        };
        let answer = self.remote.messenger.call(target(to), sent, body, deadline).await;
        match &answer {
            Ok(_) => note(format!("Processing response from /{address}")),
            Err(error) => note(format!("No response from /{address}: {error}")),
        }
        Ok(answer?)
    }

    pub(crate) async fn read(
        self,
        to: NodeShard<'_>,
        command: &ReadCommand,
        body: Bytes,
        deadline: Instant,
    ) -> Result<ReadPage, PeerError> {
        let answer = self.call(to, Verb::Read, body, deadline).await?;
        read_codec::decode_page(command, &answer).await.map_err(|error| unreadable(&error))
    }

    pub(crate) async fn digest(
        self,
        to: NodeShard<'_>,
        body: Bytes,
        deadline: Instant,
    ) -> Result<u128, PeerError> {
        let answer = self.call(to, Verb::ReadDigest, body, deadline).await?;
        let digest = <[u8; 16]>::try_from(&*answer).map_err(|_| unreadable(&"a digest has 16 bytes"))?;
        Ok(u128::from_be_bytes(digest))
    }

    pub(crate) async fn increment(
        self,
        view: &ClusterView,
        leader: NodeIndex,
        update: &PartitionUpdate,
        deadline: Instant,
    ) -> Result<PartitionUpdate, PeerError> {
        let body = put_updates(stamp(view, 128), std::slice::from_ref(update));
        let to = view.owner(leader, update.table.id, update.key.token);
        let answer = self.call(to, Verb::Increment, body, deadline).await?;
        let table = update.table.clone();
        let mut updates = decode_updates(&answer, |id| (id == table.id).then(|| table.clone()))
            .map_err(|refusal| unreadable(&refusal))?;
        let state = updates.pop().filter(|state| updates.is_empty() && state.key == update.key);
        state.ok_or_else(|| unreadable(&"no state of the counter"))
    }

    pub(crate) async fn truncate(
        self,
        (view, node): (&ClusterView, NodeIndex),
        table: TableId,
        (at_micros, permit): (i64, TruncationPermit),
        deadline: Instant,
    ) -> Result<i64, PeerError> {
        let mut body = stamp(view, 48);
        body.push(TRUNCATES);
        body.extend_from_slice(&table.0);
        body.extend_from_slice(&at_micros.to_be_bytes());
        permit.encode(&mut body);
        let answer = self.call(view.first_shard(node), Verb::Truncate, body.into(), deadline).await?;
        Reader::new(&answer).i64().map_err(|short| unreadable(&short))
    }

    /// Asks a node for a permit to truncate a table on it, which lasts as long as this request may take.
    pub(crate) async fn permit_truncation(
        self,
        (view, node): (&ClusterView, NodeIndex),
        table: TableId,
        (duration, deadline): (Duration, Instant),
    ) -> Result<TruncationPermit, PeerError> {
        let mut body = stamp(view, 32);
        body.push(ASKS_TRUNCATION_PERMIT);
        body.extend_from_slice(&table.0);
        body.extend_from_slice(&u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).to_be_bytes());
        let answer = self.call(view.first_shard(node), Verb::Truncate, body.into(), deadline).await?;
        TruncationPermit::decode(&mut Reader::new(&answer)).map_err(|short| unreadable(&short))
    }

    /// Has a node build the views of a table from the beginning.
    pub(crate) async fn rebuild_views(
        self,
        (view, node): (&ClusterView, NodeIndex),
        base: TableId,
        deadline: Instant,
    ) -> Result<(), PeerError> {
        let mut body = stamp(view, 32);
        body.push(REBUILDS_VIEWS);
        body.extend_from_slice(&base.0);
        self.call(view.first_shard(node), Verb::Truncate, body.into(), deadline).await.map(drop)
    }

    /// Whether a node uses the schema of a version and has nothing left of a dropped table with an id: [`crate::given_id`].
    pub(crate) async fn check_given_id(
        self,
        (view, node): (&ClusterView, NodeIndex),
        (table, version): (TableId, [u8; 16]),
        deadline: Instant,
    ) -> Result<(), PeerError> {
        let mut body = stamp(view, 40);
        body.push(CHECKS_GIVEN_ID);
        body.extend_from_slice(&table.0);
        body.extend_from_slice(&version);
        self.call(view.first_shard(node), Verb::Truncate, body.into(), deadline).await.map(drop)
    }

    /// How far a node is with building a view.
    pub(crate) async fn view_build(
        self,
        (view, node): (&ClusterView, NodeIndex),
        built: TableId,
        deadline: Instant,
    ) -> Result<ViewBuildStatus, PeerError> {
        let mut body = stamp(view, 32);
        body.push(ASKS_VIEW_BUILD);
        body.extend_from_slice(&built.0);
        let answer = self.call(view.first_shard(node), Verb::Truncate, body.into(), deadline).await?;
        ViewBuildStatus::decode(&answer).ok_or_else(|| unreadable(&"no status of a build"))
    }

    /// When each shard of a node truncated a table last, microseconds since 1970; [`i64::MIN`] for never.
    pub(crate) async fn truncated_at(
        self,
        (view, node): (&ClusterView, NodeIndex),
        table: TableId,
        deadline: Instant,
    ) -> Result<Vec<i64>, PeerError> {
        let mut body = stamp(view, 32);
        body.push(ASKS_TRUNCATION);
        body.extend_from_slice(&table.0);
        let answer = self.call(view.first_shard(node), Verb::Truncate, body.into(), deadline).await?;
        let times: Vec<i64> = answer
            .chunks_exact(8)
            .map(|time| i64::from_be_bytes(time.try_into().expect("eight bytes")))
            .collect();
        match times.len() == usize::from(view.node(node).shards) {
            true => Ok(times),
            false => Err(unreadable(&"not a time for each shard")),
        }
    }
}

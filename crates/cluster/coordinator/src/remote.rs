//! The other nodes' replicas: requests to them, and this node's answers to the same requests.
//!
//! | verb | body | answer |
//! |---|---|---|
//! | read, read_digest | command | page, or its digest (16 bytes) |
//! | apply, read_repair | microseconds (8), updates | nothing, or microseconds (8): the time of a truncation since, and nothing was done |
//! | hint | as apply | nothing |
//! | increment | updates | updates: the state that the other replicas are to have |
//! | batch_store, batch_remove | see `batch_row` | nothing |
//! | truncate | version, table id, microseconds (8) | microseconds (8): the time that the node remembers, not before that |
//! | truncate | version of asking, table id | { microseconds (8) } for each shard: when it truncated the table last |
//! | ring | see `fence` | nothing |
//! | traced | see `traced` | as without |
//! | forward, outcome | see `forward` | nothing |
//!
//! Updates are: version, vint count, { vint length, update }. The microseconds before them say when the write began (since 1970; on the
//! coordinator, [`Coordinator::begin_write`]), so that none is applied behind a truncation that removed it elsewhere.
//!
//! All but batch_store, batch_remove, traced, forward and ring have the number of the ring before them (8 bytes; see `fence`).
//! `read_codec` in crate `replica` has the layout of commands and pages, `codec` there that of updates.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use mutation::PartitionUpdate;
use mutation::codec::{self, DecodedUpdates, UpdatesError};
use replica::read_codec::{self, ReadCodecError};
use replica::{Origin, Read, ReadCommand, ReadPage, Replica, ReplicaError, TraceLog, Truncation, Write};
use rpc::{Messenger, Near, PeerInfo, Peers, Refusal, RpcError, Target, Verb};
use rt::Instant;
use schema::{Schema, TableId};
use stdx::Reader;
use topology::{NodeIndex, Sharder};

use crate::fence;
use crate::forward;
use crate::paxos;
use crate::view::{ClusterView, ViewNode};
use crate::{Coordinator, ReplicaFailure};

const VERSION: u8 = 1;
/// Of a message that asks when a table was truncated.
const VERSION_ASKING: u8 = 2;
/// Bytes before the updates of a write: the number of the ring, and when it began.
pub(crate) const BEGUN_LEN: usize = fence::STAMP_LEN + 8;

/// Why a replica did not do what it was asked: the codes of refusals, numbered as part of the protocol.
mod code {
    use rpc::Refusal;

    pub(super) const STORAGE: u16 = Refusal::FIRST_FREE;
    pub(super) const TOO_MANY_TOMBSTONES: u16 = Refusal::FIRST_FREE + 1;
    pub(super) const UNKNOWN_TABLE: u16 = Refusal::FIRST_FREE + 2;
    pub(super) const TOO_LARGE: u16 = Refusal::FIRST_FREE + 3;
    pub(super) const MALFORMED: u16 = Refusal::FIRST_FREE + 4;
    pub(super) const STOPPED: u16 = Refusal::FIRST_FREE + 5;
    pub(super) const OLD_RING: u16 = Refusal::FIRST_FREE + 6;
    pub(super) const INDEX_UNAVAILABLE: u16 = Refusal::FIRST_FREE + 7;
}

impl Coordinator {
    /// Asks this node's own replica: like another's, it is silent when the time is over.
    pub(crate) async fn here<T, E: Into<PeerError>>(
        &self,
        deadline: Instant,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, PeerError> {
        match self.rt().timeout_at(deadline, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(PeerError::Silent("timed out".to_owned())),
        }
    }
}

/// Why a replica gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerError {
    /// It did not answer in time, or cannot be reached; it may have done what it was asked.
    Silent(String),
    /// It said that it failed.
    Failed {
        /// The reason as the native protocol numbers it (`<reasonmap>`).
        reason: u16,
        /// In words.
        message: String,
    },
    /// It has done nothing, for it was chosen by a stale topology version.
    OldRing(String),
    /// What was asked for is wrong.
    Invalid(String),
}

/// Reasons of failure as the protocol numbers them (v5, section 9, `<reasonmap>`).
mod reason {
    pub(super) const UNKNOWN: u16 = 0;
    pub(super) const TOO_MANY_TOMBSTONES: u16 = 1;
    pub(super) const INCOMPATIBLE_SCHEMA: u16 = 2;
    pub(super) const INDEX_NOT_AVAILABLE: u16 = 6;
}

impl PeerError {
    /// Why, in words.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Silent(message)
            | Self::Failed { message, .. }
            | Self::OldRing(message)
            | Self::Invalid(message) => message,
        }
    }

    /// As one of the failures that an error lists; none when the replica was silent.
    pub(crate) fn failure(&self, address: IpAddr) -> Option<ReplicaFailure> {
        match self {
            Self::Silent(_) => None,
            Self::Failed { reason, message } => {
                Some(ReplicaFailure { address, code: *reason, message: message.clone() })
            }
            Self::Invalid(message) | Self::OldRing(message) => {
                Some(ReplicaFailure { address, code: reason::UNKNOWN, message: message.clone() })
            }
        }
    }
}

impl From<ReplicaError> for PeerError {
    fn from(error: ReplicaError) -> Self {
        let message = error.to_string();
        match error {
            ReplicaError::TooManyTombstones { .. } => {
                Self::Failed { reason: reason::TOO_MANY_TOMBSTONES, message }
            }
            ReplicaError::IndexUnavailable(_) => {
                Self::Failed { reason: reason::INDEX_NOT_AVAILABLE, message }
            }
            ReplicaError::UnknownTable(_) => Self::Invalid("unconfigured table".to_owned()),
            ReplicaError::MutationTooLarge { .. } => Self::Invalid(message),
            ReplicaError::Storage(_) | ReplicaError::Stopped | ReplicaError::Truncated(_) => {
                Self::Failed { reason: reason::UNKNOWN, message }
            }
        }
    }
}

impl From<RpcError> for PeerError {
    fn from(error: RpcError) -> Self {
        let (code, message) = match error {
            RpcError::Refused(Refusal { code, message }) => (code, message),
            // It was chosen by a previous topology version it went.
            RpcError::UnknownHost => return Self::OldRing(error.to_string()),
            _ => return Self::Silent(error.to_string()),
        };
        match code {
            Refusal::EXPIRED => Self::Silent(message),
            code::TOO_MANY_TOMBSTONES => Self::Failed { reason: reason::TOO_MANY_TOMBSTONES, message },
            code::INDEX_UNAVAILABLE => Self::Failed { reason: reason::INDEX_NOT_AVAILABLE, message },
            // The schemas of two nodes may differ for a moment.
            code::UNKNOWN_TABLE => Self::Failed { reason: reason::INCOMPATIBLE_SCHEMA, message },
            code::TOO_LARGE => Self::Invalid(message),
            code::OLD_RING => Self::OldRing(message),
            _ => Self::Failed { reason: reason::UNKNOWN, message },
        }
    }
}

pub(crate) fn refusal(error: &ReplicaError) -> Refusal {
    let code = match error {
        ReplicaError::TooManyTombstones { .. } => code::TOO_MANY_TOMBSTONES,
        ReplicaError::UnknownTable(_) => code::UNKNOWN_TABLE,
        ReplicaError::IndexUnavailable(_) => code::INDEX_UNAVAILABLE,
        ReplicaError::MutationTooLarge { .. } => code::TOO_LARGE,
        ReplicaError::Storage(_) => code::STORAGE,
        // Only requests that carry the time of their write receive it, as an answer.
        ReplicaError::Stopped | ReplicaError::Truncated(_) => code::STOPPED,
    };
    Refusal::new(code, error.to_string())
}

pub(crate) fn malformed(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(code::MALFORMED, error.to_string())
}

/// The answer to a request with a stale topology version.
pub(crate) fn old_ring(ring: u64) -> Refusal {
    Refusal::new(code::OLD_RING, format!("it goes by ring {ring}, which is over: its coordinator is behind"))
}

/// The answer when this node could not learn of a newer topology version in time.
pub(crate) fn not_heard(ring: u64) -> Refusal {
    Refusal::new(code::STOPPED, format!("this node could not hear of ring {ring} in time"))
}

fn unread(error: ReadCodecError) -> Refusal {
    match error {
        ReadCodecError::UnknownTable(_) => Refusal::new(code::UNKNOWN_TABLE, error.to_string()),
        other => malformed(other),
    }
}

/// The answer to another node when this one failed on its own shards.
pub(crate) fn refusal_of(error: &PeerError) -> Refusal {
    match error {
        PeerError::Silent(message) => Refusal::new(code::STOPPED, message.clone()),
        PeerError::Failed { reason: reason::TOO_MANY_TOMBSTONES, message } => {
            Refusal::new(code::TOO_MANY_TOMBSTONES, message.clone())
        }
        PeerError::Failed { message, .. } => Refusal::new(code::STORAGE, message.clone()),
        PeerError::Invalid(message) => Refusal::new(code::TOO_LARGE, message.clone()),
        PeerError::OldRing(message) => Refusal::new(code::OLD_RING, message.clone()),
    }
}

/// The way to the replicas of other nodes.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) messenger: Messenger,
}

impl Remote {
    pub(crate) fn new(messenger: Messenger) -> Self {
        Self { messenger }
    }

    /// Tells where the nodes of a view are, and those that have left it and may still answer.
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

/// The way to other nodes' replicas for one request.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'a> {
    pub(crate) remote: &'a Remote,
    pub(crate) coordinator: &'a Coordinator,
}

impl Calls<'_> {
    /// Calls the shard of a node that owns a token.
    pub(crate) async fn call(
        self,
        node: &ViewNode,
        token: i64,
        verb: Verb,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, PeerError> {
        if let Some(trace) = self.coordinator.trace() {
            return Box::pin(self.call_traced(trace, node, token, (verb, body), deadline)).await;
        }
        let shard = Sharder::new(node.shards).shard_of(token);
        Ok(self.remote.messenger.call(Target::Host { host: node.host, shard }, verb, body, deadline).await?)
    }

    /// Tells the shard of a node that owns a token something that needs no answer.
    pub(crate) fn tell(self, node: &ViewNode, token: i64, verb: Verb, body: Bytes) {
        let shard = Sharder::new(node.shards).shard_of(token);
        self.remote.messenger.send(Target::Host { host: node.host, shard }, verb, body);
    }

    pub(crate) async fn read(
        self,
        node: &ViewNode,
        token: i64,
        command: &ReadCommand,
        body: Bytes,
        deadline: Instant,
    ) -> Result<ReadPage, PeerError> {
        let answer = self.call(node, token, Verb::Read, body, deadline).await?;
        read_codec::decode_page(command, &answer).map_err(|error| unreadable(&error))
    }

    pub(crate) async fn digest(
        self,
        node: &ViewNode,
        token: i64,
        body: Bytes,
        deadline: Instant,
    ) -> Result<u128, PeerError> {
        let answer = self.call(node, token, Verb::ReadDigest, body, deadline).await?;
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
        let body = put_updates(fence::stamp(view, 128), std::slice::from_ref(update));
        let answer = self.call(view.node(leader), update.key.token, Verb::Increment, body, deadline).await?;
        let table = update.table.clone();
        let mut updates = decode_updates(&answer, |id| (id == table.id).then(|| table.clone()))
            .map_err(|refusal| unreadable(&refusal))?;
        updates.pop().ok_or_else(|| unreadable(&"no state of the counter"))
    }

    pub(crate) async fn truncate(
        self,
        (view, node): (&ClusterView, NodeIndex),
        table: TableId,
        at_micros: i64,
        deadline: Instant,
    ) -> Result<i64, PeerError> {
        let mut body = fence::stamp(view, 32);
        body.push(VERSION);
        body.extend_from_slice(&table.0);
        body.extend_from_slice(&at_micros.to_be_bytes());
        let answer = self.call(view.node(node), 0, Verb::Truncate, body.into(), deadline).await?;
        Reader::new(&answer).i64().map_err(|short| unreadable(&short))
    }
}

impl Calls<'_> {
    /// When each shard of a node truncated a table last, microseconds since 1970; [`i64::MIN`] for never.
    pub(crate) async fn truncated_at(
        self,
        (view, node): (&ClusterView, NodeIndex),
        table: TableId,
        deadline: Instant,
    ) -> Result<Vec<i64>, PeerError> {
        let mut body = fence::stamp(view, 32);
        body.push(VERSION_ASKING);
        body.extend_from_slice(&table.0);
        let answer = self.call(view.node(node), 0, Verb::Truncate, body.into(), deadline).await?;
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

pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> PeerError {
    PeerError::Failed { reason: reason::UNKNOWN, message: format!("an answer that cannot be read: {error}") }
}

/// A node and the address by which errors name it.
pub(crate) fn address(view: &ClusterView, node: NodeIndex) -> IpAddr {
    view.node(node).native.ip()
}

/// A command as a message.
pub(crate) fn encode_command(view: &ClusterView, command: &ReadCommand) -> Bytes {
    let mut body = fence::stamp(view, 128);
    read_codec::encode_command(command, &mut body);
    body.into()
}

/// Updates of a write that began at `begun_micros` as a message.
pub(crate) fn begun_updates(view: &ClusterView, begun_micros: i64, updates: &[PartitionUpdate]) -> Bytes {
    let mut body = fence::stamp(view, 128);
    body.extend_from_slice(&begun_micros.to_be_bytes());
    put_updates(body, updates)
}

/// Updates with which a read that began at `begun_micros` repairs a replica, as a message; `truncated_at` as in [`Truncation::LeavesOutRead`].
pub(crate) fn repair_updates(
    view: &ClusterView,
    (begun_micros, truncated_at): (i64, i64),
    updates: &[PartitionUpdate],
) -> Bytes {
    let mut body = fence::stamp(view, 128);
    body.extend_from_slice(&begun_micros.to_be_bytes());
    body.extend_from_slice(&truncated_at.to_be_bytes());
    put_updates(body, updates)
}

/// [`begun_updates`] of what [`encode_updates`] made, or what stands behind [`BEGUN_LEN`] in another message.
pub(crate) fn begun_body(view: &ClusterView, begun_micros: i64, updates: &[u8]) -> Bytes {
    let mut body = fence::stamp(view, 8 + updates.len());
    body.extend_from_slice(&begun_micros.to_be_bytes());
    body.extend_from_slice(updates);
    body.into()
}

/// When the table of a write was truncated, if a replica has left it out for that reason, microseconds since 1970.
pub(crate) fn truncation_of(answer: &Bytes) -> Result<Option<i64>, PeerError> {
    match answer.is_empty() {
        true => Ok(None),
        false => Reader::new(answer).i64().map(Some).map_err(|short| unreadable(&short)),
    }
}

/// When the write of a message began, and its updates as bytes; the number of the ring is gone from it.
pub(crate) fn split_begun(body: &Bytes) -> Result<(i64, Bytes), Refusal> {
    let mut reader = Reader::new(body);
    let begun_micros = reader.i64().map_err(|_| malformed("the message ends too early"))?;
    Ok((begun_micros, body.slice_ref(reader.rest())))
}

/// Updates as they are kept and answered, without the number of a ring.
pub(crate) fn encode_updates(updates: &[PartitionUpdate]) -> Bytes {
    put_updates(Vec::with_capacity(128), updates)
}

fn put_updates(mut body: Vec<u8>, updates: &[PartitionUpdate]) -> Bytes {
    codec::encode_updates(updates, &mut body);
    body.into()
}

/// The updates of a message.
pub(crate) fn decode_updates(
    body: &Bytes,
    table: impl Fn(TableId) -> Option<Arc<schema::Table>>,
) -> Result<Vec<PartitionUpdate>, Refusal> {
    decode_received(body, table).map(|decoded| decoded.updates)
}

/// The updates of a message, with their bytes.
fn decode_received(
    body: &Bytes,
    table: impl Fn(TableId) -> Option<Arc<schema::Table>>,
) -> Result<DecodedUpdates, Refusal> {
    codec::decode_updates(body, table).map_err(|error| match error {
        UpdatesError::UnknownTable(_) => Refusal::new(code::UNKNOWN_TABLE, error.to_string()),
        _ => malformed(error),
    })
}

/// This node's answers to other nodes.
pub(crate) fn serve(coordinator: &Coordinator, messenger: &Messenger) {
    let server = Rc::new(Server { coordinator: coordinator.clone() });
    let on = |verb: Verb| {
        let server = server.clone();
        messenger.serve(verb, move |incoming| {
            let server = server.clone();
            async move { server.answer(verb, incoming.body, None).await }
        });
    };
    let traced = server.clone();
    messenger.serve(Verb::Traced, move |incoming| {
        let server = traced.clone();
        async move { server.answer_traced(incoming).await }
    });
    forward::serve(coordinator, messenger);
    fence::serve(coordinator, messenger);
    [
        Verb::Read,
        Verb::ReadDigest,
        Verb::Apply,
        Verb::ReadRepair,
        Verb::Hint,
        Verb::Increment,
        Verb::PaxosPrepare,
        Verb::PaxosPropose,
        Verb::PaxosCommit,
        Verb::Truncate,
        Verb::BatchStore,
        Verb::BatchRemove,
    ]
    .into_iter()
    .for_each(on);
}

pub(crate) struct Server {
    pub(crate) coordinator: Coordinator,
}

impl Server {
    fn schema(&self) -> Arc<Schema> {
        self.coordinator.schema()
    }

    fn replica(&self) -> &Replica {
        self.coordinator.replica()
    }

    pub(crate) async fn answer(
        &self,
        verb: Verb,
        body: Bytes,
        trace: Option<&TraceLog>,
    ) -> Result<Bytes, Refusal> {
        let ring = Coordinator::ring_of(&body);
        // Who keeps a batch is not chosen by a token.
        let (body, _under_way) = match verb {
            Verb::BatchStore | Verb::BatchRemove => (body, None),
            _ => self.coordinator.admit(body).map(|(body, guard)| (body, Some(guard)))?,
        };
        match verb {
            Verb::Read => {
                let (command, page) = self.read(&body, trace).await?;
                let mut out = Vec::with_capacity(256);
                read_codec::encode_page(&command, page, &mut out);
                Ok(out.into())
            }
            Verb::ReadDigest => {
                let (command, page) = self.read(&body, trace).await?;
                let digest = self.coordinator.digest_of(&command, &page);
                Ok(Bytes::copy_from_slice(&digest.to_be_bytes()))
            }
            Verb::Hint => self.hint(&body, ring).await,
            Verb::Apply => self.apply((ring, &body), trace).await,
            Verb::ReadRepair => self.read_repair((ring, &body), trace).await,
            Verb::Increment => {
                let mut states = Vec::new();
                let updates = self.updates(&body)?.updates;
                self.coordinator.check_owned(ring, &updates)?;
                for update in updates {
                    let state = self.coordinator.count_here(update, trace).await;
                    states.push(state.map_err(|error| refusal(&error))?);
                }
                Ok(encode_updates(&states))
            }
            Verb::PaxosPrepare | Verb::PaxosPropose | Verb::PaxosCommit => {
                paxos::answer(&self.coordinator, verb, (ring, &body), trace).await
            }
            // A node that joins by a later ring would not be told.
            Verb::Truncate if self.coordinator.fence().is_earlier(ring) => Err(old_ring(ring)),
            Verb::Truncate => {
                let times = self.truncate(&body).await?;
                Ok(times.into_iter().flat_map(i64::to_be_bytes).collect())
            }
            Verb::BatchStore => {
                let kept = self.coordinator.keep_batch_of_another(&body)?.await;
                kept.map(|()| Bytes::new()).map_err(|error| refusal(&error))
            }
            Verb::BatchRemove => {
                let removed = self.coordinator.remove_batch_of_another(&body)?.await;
                removed.map(|()| Bytes::new()).map_err(|error| refusal(&error))
            }
            other => Err(malformed(format!("{} is not served here", other.name()))),
        }
    }

    /// Applies what a read has found that this replica lacks.
    async fn read_repair(
        &self,
        (ring, body): (u64, &Bytes),
        trace: Option<&TraceLog>,
    ) -> Result<Bytes, Refusal> {
        let mut reader = Reader::new(body);
        let times = (reader.i64(), reader.i64());
        let (Ok(begun_micros), Ok(truncated_at)) = times else {
            return Err(malformed("the message ends too early"));
        };
        let received = self.updates(&body.slice_ref(reader.rest()))?;
        self.coordinator.check_owned(ring, &received.updates)?;
        let write = Write::received(Origin::ReadRepair, received).in_parts();
        let write = write.with_truncation(Truncation::LeavesOutRead { begun_micros, truncated_at });
        let applied = self.replica().apply(write.traced(trace)).await;
        applied.map(|()| Bytes::new()).map_err(|error| refusal(&error))
    }

    async fn apply(&self, (ring, body): (u64, &Bytes), trace: Option<&TraceLog>) -> Result<Bytes, Refusal> {
        let (begun_micros, updates) = split_begun(body)?;
        let received = self.updates(&updates)?;
        self.coordinator.check_owned(ring, &received.updates)?;
        let counts = received.updates.iter().any(|update| update.table.is_counter());
        let origin = if counts { Origin::Counter } else { Origin::Client };
        let write = Write::received(origin, received).with_truncation(Truncation::Refuses(begun_micros));
        match self.replica().apply(write.traced(trace)).await {
            Ok(()) => Ok(Bytes::new()),
            Err(ReplicaError::Truncated(at_micros)) => Ok(Bytes::copy_from_slice(&at_micros.to_be_bytes())),
            Err(error) => Err(refusal(&error)),
        }
    }

    async fn hint(&self, body: &Bytes, ring: u64) -> Result<Bytes, Refusal> {
        let (begun_micros, updates) = split_begun(body)?;
        let received = self.updates(&updates)?;
        self.coordinator.check_owned(ring, &received.updates)?;
        let write =
            Write::received(Origin::Hint, received).with_truncation(Truncation::LeavesOut(begun_micros));
        let applied = self.replica().apply(write).await;
        applied.map(|()| Bytes::new()).map_err(|error| refusal(&error))
    }

    async fn read(&self, body: &Bytes, trace: Option<&TraceLog>) -> Result<(ReadCommand, ReadPage), Refusal> {
        let schema = self.schema();
        let command =
            read_codec::decode_command(body, |id| schema.table_by_id(id).cloned()).map_err(unread)?;
        let page = self.replica().read(Read::of(&command).traced(trace)).await;
        Ok((command, page.map_err(|error| refusal(&error))?))
    }

    fn updates(&self, body: &Bytes) -> Result<DecodedUpdates, Refusal> {
        let schema = self.schema();
        // What is kept must not keep the connection's whole buffer.
        let body = Bytes::copy_from_slice(body);
        decode_received(&body, |id| schema.table_by_id(id).cloned())
    }

    async fn truncate(&self, body: &Bytes) -> Result<Vec<i64>, Refusal> {
        let mut reader = Reader::new(body);
        let short = |_| malformed("the message ends too early");
        let version = reader.u8().map_err(short)?;
        if ![VERSION, VERSION_ASKING].contains(&version) {
            return Err(malformed("a version of truncations that this node does not know"));
        }
        let table = TableId(reader.bytes(16).map_err(short)?.try_into().expect("16 bytes"));
        if version == VERSION_ASKING {
            return Ok(self.coordinator.truncated_at(table).await);
        }
        let at_micros = reader.i64().map_err(short)?;
        let truncated = self.coordinator.truncate_here(table, at_micros).await;
        truncated.map(|at_micros| vec![at_micros]).map_err(|message| Refusal::new(code::STORAGE, message))
    }
}

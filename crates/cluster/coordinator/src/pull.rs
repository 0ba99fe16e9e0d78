//! Streams a token range to this node: when it joins, when another leaves, when a replica is rebuilt.
//!
//! The leaving replica is always read, unless it is gone for good: after the change it drops the range, and it may be the only one that
//! stores some write (a write at ONE, or before the replication factor was raised). So the replicas after a change have together all that
//! those before it had, however many acknowledged it.
//!
//! Near replicas are asked first, so that a write at the LOCAL_QUORUM of this node's datacenter is read as well; while too few of them are up
//! for that, they are waited for.
//!
//! The range is read at QUORUM, deletions included, and compared with this node's own data: only the
//! difference is written. So a quorum that includes this node sees the rows that a quorum saw before, and fetching again after an
//! interruption is cheap in writes and changes nothing. A step whose table is truncated here meanwhile drops the rows that it read,
//! and runs again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use replica::steps::free_partitions;
use replica::{Form, Limits, Origin, Partitions, ReadCommand, ReadPage, Truncation, Write};
use schema::{Replication, Table};
use topology::{HostId, NodeIndex, Replicas, TokenRange};

use crate::admission::Admission;
use crate::contact;
use crate::holders::{PullFrom, holders, partition_ranges};
use crate::message;
use crate::peer_error::PeerError;
use crate::reader::{ReadOptions, Reader};
use crate::reconcile::{Reconciled, reconcile};
use crate::replication_map::EffectiveReplicationMap;
use crate::truncate::Truncations;
use crate::{Consistency, Coordinator, Phase, RequestError};

/// Bytes that one step reads from a replica.
const STEP_BYTES: usize = 1 << 20;
/// Rows that one step reads from a replica.
const STEP_ROWS: u64 = 10_000;
/// A step that has no answer for so long has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a node that loses a range is waited for, from when it was found to be down.
const LOSER_WAIT: Duration = Duration::from_secs(60);

/// The same of the replicas of this node's datacenter.
const NEIGHBOUR_WAIT: Duration = Duration::from_secs(60);

/// The outcome of fetching a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullStats {
    /// Partitions of which this node lacked something.
    pub partitions: u64,
    /// Bytes of the missing rows, as they are held in memory.
    pub bytes: u64,
    /// Steps in which the replicas did not agree among themselves.
    pub mismatches: u64,
    /// Ranges that only a node had which is gone for good.
    pub lost: u64,
    /// Ranges that were read from fewer replicas than share one with every quorum, because the others are ignored.
    pub below_quorum: u64,
}

impl std::ops::AddAssign for PullStats {
    fn add_assign(&mut self, other: Self) {
        self.partitions += other.partitions;
        self.bytes += other.bytes;
        self.mismatches += other.mismatches;
        self.lost += other.lost;
        self.below_quorum += other.below_quorum;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Sources {
    These {
        nodes: Replicas,
        /// Whether they share one with every quorum of before.
        is_quorum: bool,
    },
    /// There are no such replicas, and are not meant to be; or the one whose data is here is all of them.
    Nobody {
        /// As above.
        is_quorum: bool,
    },
    /// The nodes that had it are gone for good.
    Gone,
}

/// The leaving replica of a token's range in the change for which it is fetched, when it is up. Fails while one is down and may come back: it
/// would drop rows that no node has fetched. It is waited for, but not for ever: a node that is dead for good could not even be replaced while
/// another joins, and the others have every row that a quorum acknowledged.
fn leaving(
    coordinator: &Coordinator,
    erm: &EffectiveReplicationMap,
    token: i64,
    from: PullFrom<'_>,
) -> Result<Replicas, RequestError> {
    if from != PullFrom::Quorum || erm.injected.leaving_left_out {
        return Ok(Replicas::new());
    }
    let view = &erm.view;
    let others = erm.placement.losing(token).into_iter().filter(|node| *node != view.own());
    let (there, down): (Replicas, Replicas) = others.partition(|node| view.is_alive(*node));
    for node in down.into_iter().filter(|node| !view.is_declared_dead(*node)).map(|node| view.node(node)) {
        if coordinator.is_awaited(node.host, LOSER_WAIT) {
            return Err(RequestError::Overloaded(format!(
                "{} loses a range and is down: what only it has would be lost with the range; start it, or it is done without after it has been down for a minute",
                node.internode
            )));
        }
        tracing::error!(
            "the leaving replica {} stays down: the range is streamed from a quorum of the other replicas; writes that only it has (at ONE) are lost",
            node.internode
        );
    }
    Ok(there)
}

/// The number of replicas of this datacenter to read, with the one that `have` is, so that they share one with every quorum that acknowledged
/// a write at its LOCAL_QUORUM: other datacenters need not have that write yet. Fails while too few of them are up, but not for ever.
fn neighbours(
    coordinator: &Coordinator,
    erm: &EffectiveReplicationMap,
    replicas: &[NodeIndex],
    have: Option<NodeIndex>,
) -> Result<usize, RequestError> {
    let Replication::NetworkTopology { factors } = &erm.replication else { return Ok(0) };
    let view = &erm.view;
    let datacenter = &view.node(view.own()).location.datacenter;
    let Some(factor) = factors.get(datacenter).map(|factor| *factor as usize) else { return Ok(0) };
    let required = factor - factor / 2;
    assert!(required + (factor / 2 + 1) > factor, "the nodes that are read share one with each LOCAL_QUORUM");
    let near = |node: &&NodeIndex| view.datacenter(**node) == view.datacenter(view.own());
    let is_there = |node: NodeIndex| node == view.own() || have == Some(node) || view.is_alive(node);
    let (there, down): (Replicas, Replicas) =
        replicas.iter().filter(near).copied().partition(|node| is_there(*node));
    if there.len() >= required {
        return Ok(required);
    }
    let returns =
        |node: &&NodeIndex| view.node(**node).phase != Phase::Removing && !view.is_declared_dead(**node);
    for node in down.iter().filter(returns).map(|node| view.node(*node)) {
        if coordinator.is_awaited(node.host, NEIGHBOUR_WAIT) {
            return Err(RequestError::Overloaded(format!(
                "{} is down, and without it a write at LOCAL_QUORUM may be missed; start it, or name it as dead for this change (removenode \
                 --ignore-dead-nodes, ignore_dead_nodes_for_replace)",
                node.internode
            )));
        }
        tracing::error!(
            "the replica {} stays down: writes acknowledged at LOCAL_QUORUM that no other replica has may be missing in this range until a \
             repair",
            node.internode
        );
    }
    Ok(there.len())
}

/// The nodes that are asked for a token's range. All that `have` had is here already: it counts as one of them, and is not asked.
fn sources(
    coordinator: &Coordinator,
    erm: &EffectiveReplicationMap,
    token: i64,
    from: PullFrom<'_>,
    have: Option<NodeIndex>,
    turn: usize,
) -> Result<Sources, RequestError> {
    let view = &erm.view;
    let consistency = Consistency::Quorum;
    let (replicas, written) = holders(erm, token, from);
    if replicas.is_empty() {
        return Ok(Sources::Nobody { is_quorum: true });
    }
    let leaving = leaving(coordinator, erm, token, from)?;
    let near = if from == PullFrom::Quorum { neighbours(coordinator, erm, &replicas, have)? } else { 0 };
    let mut candidates = leaving.clone();
    let others = contact::candidates(view, &replicas, turn, &[]);
    candidates.extend(others.into_iter().filter(|node| !leaving.contains(node)));
    let of_quorums = (replicas.len() + 1).saturating_sub(written).max(1);
    // A removed node is not waited for, nor one that an operator has named as dead: the others have the remaining rows.
    let gone = |node: &&NodeIndex| {
        (view.node(**node).phase == Phase::Removing && !view.is_alive(**node)) || view.is_ignored(**node)
    };
    let required = of_quorums.min(replicas.len() - replicas.iter().filter(gone).count());
    let is_quorum = required == of_quorums;
    if required == 0 {
        return Ok(Sources::Gone);
    }
    let is_here = |node: &NodeIndex| have == Some(*node);
    assert!(required <= replicas.len(), "no more replicas are read than there are");
    let required = required - usize::from(replicas.iter().any(is_here));
    let is_near = |node: &NodeIndex| view.datacenter(*node) == view.datacenter(view.own());
    // Leaving replicas are queried first, then the near ones.
    let far = leaving.iter().filter(|node| !is_near(node)).count();
    let near = near.saturating_sub(replicas.iter().filter(|node| is_here(node) && is_near(node)).count());
    let required = required.max(far + near).max(leaving.iter().filter(|node| !is_here(node)).count());
    candidates.retain(|node| !is_here(node));
    if required == 0 {
        return Ok(Sources::Nobody { is_quorum });
    }
    if candidates.len() < required {
        let (required, alive) = (required as u32, candidates.len() as u32);
        return Err(RequestError::Unavailable { consistency, required, alive });
    }
    let sources: Replicas = candidates.into_iter().take(required).collect();
    debug_assert!(contact::are_distinct(&sources), "a source is queried once");
    assert!(have.is_none_or(|have| !sources.contains(&have)), "a node whose data is here is not asked");
    Ok(Sources::These { nodes: sources, is_quorum })
}

impl Coordinator {
    /// Fetches the missing rows of a table's range, within which all tokens have the same replicas.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when too few replicas of the range are alive, [`RequestError::ReadTimeout`] and
    /// [`RequestError::ReadFailure`] when their pages do not arrive, [`RequestError::Overloaded`] when a source uses an
    /// older topology version, [`RequestError::Invalid`] when the table is gone, and those of the writes to this node.
    pub async fn pull(
        &self,
        table: &Arc<Table>,
        range: TokenRange,
        from: PullFrom<'_>,
    ) -> Result<PullStats, RequestError> {
        self.pull_rest(table, range, from, None).await
    }

    /// [`Coordinator::pull`] when this node already has all rows that `have` had of the range at some moment since the range's writes arrive
    /// here, too: that one counts as queried, and the others, which are expected to have the same, are compared with this node first.
    ///
    /// # Errors
    /// As [`Coordinator::pull`].
    pub async fn pull_rest(
        &self,
        table: &Arc<Table>,
        range: TokenRange,
        from: PullFrom<'_>,
        have: Option<HostId>,
    ) -> Result<PullStats, RequestError> {
        if self.context().injected().lost_range && range.upto % 4 == 0 {
            return Ok(PullStats::default());
        }
        if self.context().injected().one_source && have.is_some() {
            return Ok(PullStats::default());
        }
        let erm = self.context().maps().of(table)?;
        if self.context().injected().unmoved_replication && erm.other_replication.is_some() {
            return Ok(PullStats::default());
        }
        let consistency = Consistency::Quorum;
        let index = have.and_then(|host| erm.view.index_of(host));
        let chosen = sources(self, &erm, range.upto, from, index, self.context().next_turn())?;
        let mut voters: Replicas = index.into_iter().collect();
        if let Sources::These { nodes, .. } = &chosen {
            voters.extend(nodes.iter().copied());
        }
        debug_assert!(contact::are_distinct(&voters), "a node counts once");
        Admission(&self.context())
            .fence_sources(&erm.view, &voters)
            .await
            .map_err(RequestError::Overloaded)?;
        // Before the rows: values committed by then are among them.
        self.lwt().carry_votes(&erm, table, range, &voters).await?;
        let (sources, is_quorum) = match chosen {
            Sources::These { nodes, is_quorum } => (nodes, is_quorum),
            Sources::Nobody { is_quorum } => {
                return Ok(PullStats { below_quorum: u64::from(!is_quorum), ..PullStats::default() });
            }
            Sources::Gone => return Ok(PullStats { lost: 1, ..PullStats::default() }),
        };
        let mut stats = PullStats { below_quorum: u64::from(!is_quorum), ..PullStats::default() };
        let truncations = Truncations::new(self.context());
        let now = u32::try_from(self.context().rt().wall_micros() / 1_000_000).unwrap_or(0);
        // Where the last step found nothing lacking, the next one probably does not either.
        let mut is_equal = have.is_some();
        for part in partition_ranges(range) {
            let mut command = ReadCommand {
                limits: Limits { rows: STEP_ROWS, rows_per_partition: u64::MAX, bytes: STEP_BYTES },
                bypass_cache: true,
                form: Form::Reconcilable,
                ..ReadCommand::all_of(table.clone(), Partitions::Range(part), now)
            };
            loop {
                let options = ReadOptions { consistency, deadline: self.context().rt().now() + STEP_TIMEOUT };
                let reader = Reader::new(self.context(), erm.clone(), options);
                let truncated = truncations.truncated_at(table.id).await;
                let place = (range.upto, &truncated[..]);
                let (step, more) = pull_step(&reader, &command, &sources, place, is_equal).await?;
                if truncations.truncated_at(table.id).await != truncated {
                    continue;
                }
                is_equal = step.partitions == 0;
                stats += step;
                match more {
                    Some(more) => command.resume = Some(more),
                    None => break,
                }
            }
        }
        Ok(stats)
    }
}

/// Fetches the missing rows of a page, unless its shards have truncated the table later than `truncated`.
async fn pull_step(
    reader: &Reader<'_>,
    command: &ReadCommand,
    sources: &Replicas,
    (token, truncated): (i64, &[i64]),
    compare: bool,
) -> Result<(PullStats, Option<replica::Resume>), RequestError> {
    let failed =
        |(node, error): (NodeIndex, PeerError)| reader.not_enough(0, sources.len(), false, &[(node, error)]);
    let own = reader.erm.view.own();
    let body = message::encode_command(&reader.erm.view, command);
    let mine = reader.page(own, command, body.clone(), token).await.map_err(|error| failed((own, error)))?;
    let others: Vec<NodeIndex> = sources.iter().copied().filter(|node| *node != own).collect();
    if compare && have_the_same(reader, command, &body, &others, token, &mine).await.map_err(failed)? {
        free_partitions(mine.partitions).await;
        return Ok((PullStats::default(), mine.more));
    }
    let (pages, agreed) = source_pages(reader, command, body, &others, token).await.map_err(failed)?;
    assert!(agreed || pages.len() == others.len(), "sources that differ have sent their rows");
    let pages: Vec<ReadPage> = std::iter::once(mine).chain(pages).collect();
    let Reconciled { page, mut repairs } = reconcile(command, pages).await;
    let lacking = std::mem::take(&mut repairs[0]);
    let stats = PullStats {
        partitions: lacking.len() as u64,
        bytes: lacking.iter().map(|update| update.memory_size() as u64).sum(),
        mismatches: u64::from(!agreed),
        ..PullStats::default()
    };
    if !lacking.is_empty() {
        let write = Write::all(Origin::Streaming, lacking).in_parts();
        let write = write.with_truncation(Truncation::LeavesOutSince(truncated));
        let applied = reader.context.replica().apply(write).await;
        applied.map_err(|error| failed((own, error.into())))?;
    }
    Ok((stats, page.more))
}

/// Whether the sources have the same as this node. A digest says also where a page ends.
async fn have_the_same(
    reader: &Reader<'_>,
    command: &ReadCommand,
    body: &Bytes,
    sources: &[NodeIndex],
    token: i64,
    mine: &ReadPage,
) -> Result<bool, (NodeIndex, PeerError)> {
    let digest = |node: NodeIndex| async move {
        reader.digest(node, command, body.clone(), token).await.map_err(|error| (node, error))
    };
    let digests = try_join_all(sources.iter().map(|node| digest(*node))).await?;
    let expected = reader.context.digest_of(command, mine).await;
    Ok(digests.iter().all(|digest| *digest == expected))
}

/// The pages of the sources; one when they agree.
async fn source_pages(
    reader: &Reader<'_>,
    command: &ReadCommand,
    body: Bytes,
    sources: &[NodeIndex],
    token: i64,
) -> Result<(Vec<ReadPage>, bool), (NodeIndex, PeerError)> {
    let Some((first, rest)) = sources.split_first() else { return Ok((Vec::new(), true)) };
    let page = |node: NodeIndex| {
        let body = body.clone();
        async move { reader.page(node, command, body, token).await.map_err(|error| (node, error)) }
    };
    let digest = |node: NodeIndex| {
        let body = body.clone();
        async move { reader.digest(node, command, body, token).await.map_err(|error| (node, error)) }
    };
    let digests = try_join_all(rest.iter().map(|node| digest(*node)));
    let (first, digests) = futures_util::future::try_join(page(*first), digests).await?;
    let expected = reader.context.digest_of(command, &first).await;
    if digests.iter().all(|digest| *digest == expected) {
        return Ok((vec![first], true));
    }
    let mut pages = vec![first];
    pages.extend(try_join_all(rest.iter().map(|node| page(*node))).await?);
    Ok((pages, false))
}

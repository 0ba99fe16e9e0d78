//! Blocking read repair: when the replicas of a read differ, all send their rows, which are merged, and each is sent the rows that it lacks
//! before the client is answered.
//!
//! The result of a read must be on as many replicas as its consistency level asks, or a later read could miss it. A replica that
//! fails here, or is slow, is replaced by another one: in the reading by its rows, in the repairing by sending it everything
//! that those which have not acknowledged yet lack.

use std::collections::{BTreeMap, VecDeque};

use futures_util::future::join_all;
use mutation::{ColumnSelection, PartitionUpdate};
use replica::{Form, Origin, ReadCommand, ReadPage, Truncation, Write};
use rpc::Verb;
use topology::{NodeIndex, Replicas};

use crate::RequestError;
use crate::admission::Admission;
use crate::contact::Needs;
use crate::message;
use crate::peer_error::PeerError;
use crate::quorum::Quorum;
use crate::reader::Reader;
use crate::reconcile::{Reconciled, reconcile_injected};

/// The replicas that may take part in one read.
pub(crate) struct Participants<'a> {
    /// How many of them must.
    pub(crate) needs: &'a Needs,
    /// Those that are alive, the best first.
    pub(crate) candidates: &'a [NodeIndex],
    /// The token by which each chooses the first shard to query.
    pub(crate) token: i64,
}

impl Participants<'_> {
    /// The candidates beside those that take part already.
    pub(crate) fn spare(&self, nodes: &[NodeIndex]) -> VecDeque<NodeIndex> {
        self.candidates.iter().copied().filter(|node| !nodes.contains(node)).collect()
    }
}

impl Reader<'_> {
    /// The merged rows of replicas that differ, when enough of them have stored the missing rows. `nodes` are those that were found to differ.
    ///
    /// All columns are read, whichever were asked for: of a write that few replicas hold, a repair of one column would make a
    /// part visible to later quorums, and a row's columns are written all or none.
    pub(crate) async fn reconciled(
        &self,
        command: &ReadCommand,
        mut nodes: Replicas,
        participants: &Participants<'_>,
    ) -> Result<ReadPage, RequestError> {
        let mut command =
            ReadCommand { form: Form::Reconcilable, columns: ColumnSelection::All, ..command.clone() };
        let injected = self.erm.injected;
        // Places that an index finds are no rows, and replicas that differ in them need not differ in a row.
        let repairs_wanted = command.table.options.read_repair != "NONE"
            && !injected.skipped_repair
            && !(injected.skipped_repair_of_all && nodes.len() == participants.candidates.len())
            && command.index.is_none();
        let replica = self.context.replica();
        loop {
            let truncated = replica.truncated_at(command.table.id);
            let begun_micros = self.context.hinting().begin_write();
            let pages;
            (nodes, pages) = self.pages(&command, &nodes, participants).await?;
            // A replica that was read may still have to do the truncation that another has done: its rows must not come back there.
            let truncated_at = pages.iter().map(|page| page.truncated_at).min().unwrap_or(i64::MIN);
            let Reconciled { page, repairs } = reconcile_injected(&command, pages, injected).await;
            assert_eq!(repairs.len(), nodes.len(), "what a replica lacks is known of each");
            // Rows read before a truncation are not sent after it.
            if replica.truncated_at(command.table.id) != truncated {
                continue;
            }
            if repairs_wanted {
                nodes =
                    self.repair(&command, nodes, repairs, participants, (begun_micros, truncated_at)).await?;
            }
            // This range has no live row: continue behind it.
            if page.partitions.is_empty() && page.more.is_some() {
                command.resume = page.more;
                continue;
            }
            return Ok(page);
        }
    }

    /// The rows of enough replicas, and the nodes that sent them.
    async fn pages(
        &self,
        command: &ReadCommand,
        nodes: &[NodeIndex],
        participants: &Participants<'_>,
    ) -> Result<(Replicas, Vec<ReadPage>), RequestError> {
        let body = message::encode_command(&self.erm.view, command);
        let mut pages = Vec::with_capacity(nodes.len());
        let mut quorum = Quorum::new(self, &command.table, participants.needs, participants.candidates);
        let ask = |node: NodeIndex, _: &[NodeIndex]| {
            let page = self.page(node, command, body.clone(), participants.token);
            Box::pin(async move { (node, page.await) }) as _
        };
        let take = |page| {
            pages.push(page);
            true
        };
        quorum.ask(nodes, participants.spare(nodes), ask, take).await;
        let answered = quorum.answered(true, !pages.is_empty())?;
        assert_eq!(answered.len(), pages.len(), "each replica that answered has a page");
        Ok((answered, pages))
    }

    /// Sends each node the rows that it lacks; the nodes, sufficient in number, that then have all of them.
    async fn repair(
        &self,
        command: &ReadCommand,
        nodes: Replicas,
        repairs: Vec<Vec<PartitionUpdate>>,
        participants: &Participants<'_>,
        since: (i64, i64),
    ) -> Result<Replicas, RequestError> {
        let pending = self.pending_repairs(&repairs);
        let lacking: Vec<(NodeIndex, Vec<PartitionUpdate>)> =
            nodes.iter().copied().zip(repairs).filter(|(_, updates)| !updates.is_empty()).collect();
        if lacking.is_empty() {
            return Ok(nodes);
        }
        assert!(lacking.len() <= nodes.len(), "only replicas that were read are repaired");
        let count = lacking.len() + pending.len();
        self.context.count(|stats| stats.repaired += count as u64);
        let mut quorum = Quorum::new(self, &command.table, participants.needs, participants.candidates);
        let repaired: Replicas = lacking.iter().map(|(node, _)| *node).collect();
        nodes.iter().filter(|node| !repaired.contains(node)).for_each(|node| quorum.acknowledge(*node));
        let ask = |node: NodeIndex, answered: &[NodeIndex]| {
            // One that takes another's place holds the missing rows of all those that have not acknowledged.
            let of = |(lacks, _): &&(NodeIndex, _)| {
                if repaired.contains(&node) { *lacks == node } else { !answered.contains(lacks) }
            };
            let updates =
                lacking.iter().filter(of).flat_map(|(_, updates)| updates).cloned().collect::<Vec<_>>();
            Box::pin(async move { (node, self.send_repair(node, updates, since).await) }) as _
        };
        let replicas = quorum.ask(&repaired, participants.spare(&nodes), ask, |()| true);
        let pending = join_all(
            pending
                .into_iter()
                .map(|(node, updates)| async move { (node, self.send_repair(node, updates, since).await) }),
        );
        let ((), pending) = futures_util::future::join(replicas, pending).await;
        let failures: Vec<(NodeIndex, PeerError)> =
            pending.into_iter().filter_map(|(node, sent)| Some((node, sent.err()?))).collect();
        if !failures.is_empty() {
            return Err(self.not_enough(count - failures.len(), count, true, &failures));
        }
        quorum.answered(true, true)
    }

    /// The data that nodes that are about to be replicas, or were until now, are sent with the replicas: rows that this read has shown must not be
    /// missing when reads have switched to them.
    fn pending_repairs(&self, repairs: &[Vec<PartitionUpdate>]) -> Vec<(NodeIndex, Vec<PartitionUpdate>)> {
        let (view, placement) = (&self.erm.view, &self.erm.placement);
        if !view.is_changing() || self.erm.injected.no_pending_repairs {
            return Vec::new();
        }
        let mut sent: BTreeMap<NodeIndex, Vec<PartitionUpdate>> = BTreeMap::new();
        for update in repairs.iter().flatten() {
            for node in placement.pending(update.key.token).into_iter().filter(|node| view.is_alive(*node)) {
                sent.entry(node).or_default().push(update.clone());
            }
        }
        sent.into_iter().collect()
    }

    async fn send_repair(
        &self,
        node: NodeIndex,
        updates: Vec<PartitionUpdate>,
        (begun_micros, truncated_at): (i64, i64),
    ) -> Result<(), PeerError> {
        let Some(first) = updates.first() else { return Ok(()) };
        let owner = self.erm.view.owner(node, first.table.id, first.key.token);
        let (context, view, deadline) = (self.context, &self.erm.view, self.options.deadline);
        if node == view.own() {
            let _under_way = Admission(&context).admit_own_writes(view, &updates)?;
            let write = Write::all(Origin::ReadRepair, updates).in_parts();
            let write = write.with_truncation(Truncation::LeavesOutRead { begun_micros, truncated_at });
            let applied = context.replica().apply(write.traced(context.trace()));
            return context.here(deadline, applied).await;
        }
        let body = message::repair_updates(view, (begun_micros, truncated_at), &updates);
        context.remote().call(owner, Verb::ReadRepair, body, deadline).await.map(|_| ())
    }
}

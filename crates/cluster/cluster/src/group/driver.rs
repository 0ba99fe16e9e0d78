//! The task that drives this node's part of the group: events into the state machine, batches to disk, then messages and
//! entries. It alone owns the log.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use raft::{Change, Config, HardState, Node, Persist, Stored, Unacceptable};
use rpc::{Target, Verb};
use rt::sync::oneshot;
use rt::{DiskError, Group as Tasks, Instant};
use schema::{Schema, Table};
use topology::HostId;

use super::error::GroupError;
use super::inner::{Applied, Inner, Input, Proposed};
use super::log::{LogError, RaftLog};
use super::pieces;
use super::wire::{self, Forward, JoinPeer};
use crate::dropped::DropLog;
use crate::state::{ClusterState, CommandId, MemberStatus, Proposal, yield_if_large};

/// Nodes beyond this number follow without a vote: each further vote makes a majority slower and no safer. The number of votes is
/// odd: an even one more survives no further failure, and a second vote of two is one more node that must not fail.
pub const VOTERS_MAX: usize = 7;
/// A follower is given a vote when it lacks at most so many entries.
const LAG_MAX: u64 = 32;
/// A tick that is so late shows that the process was paused, maybe for so long that the node was removed meanwhile.
const PAUSED_MIN: Duration = Duration::from_secs(3);
/// A node that knows no leader asks the others whether it was removed after this many ticks, and again after as many.
const ORPHAN_TICKS: u32 = 50;
/// For so many ticks learners answer every heartbeat before one of them is given a vote.
const LOOK_TICKS: u32 = 10;
/// A voter that does not answer for so many ticks gives its vote to a learner that does: a minute, as it may only restart.
const SILENT_TICKS: u32 = 600;
/// A learner without a leader notifies the voters after this many ticks, and again every [`ORPHAN_TICKS`].
const ASK_TICKS: u32 = 5;
/// Of so many nodes, chosen at random, a node without a leader asks whether it was removed.
const ORPHAN_ASKS: usize = 8;
/// A node that hears from a peer it does not know asks so many others, chosen at random, where that one is.
const UNKNOWN_ASKS: usize = 3;
/// Pause before they are asked again, about this peer or another one.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a write that a full disk refused is retried.
const SPACE_PAUSE: Duration = Duration::from_secs(1);
/// Events between two batches.
const EVENTS_MAX: usize = 256;

const _: () = assert!(VOTERS_MAX % 2 == 1, "an even number of votes survives no further failure");
const _: () =
    assert!(ASK_TICKS < ORPHAN_TICKS, "a node asks for its leader before it asks whether it was removed");

/// The driver's own state.
pub(crate) struct Driver {
    inner: Rc<Inner>,
    node: Node,
    log: RaftLog,
    drops: DropLog,
    state: Arc<ClusterState>,
    index: u64,
    /// The hard state that is stored.
    hard_state: HardState,
    waiting: BTreeMap<CommandId, Vec<oneshot::Sender<Proposed>>>,
    reads: BTreeMap<u64, oneshot::Sender<Option<u64>>>,
    next_read: u64,
    led: bool,
    ticks_without_leader: u32,
    /// For how many ticks this node has led with learners that are not at rest, so that it is known which of them answer.
    ticks_without_rest: u32,
    /// For how many ticks this node has led.
    ticks_led: u32,
    /// For each peer: how many ticks ago it was last active. Only a leader knows.
    silent: BTreeMap<u64, u32>,
    /// When others may be asked again where an unknown peer is.
    ask_unknown_from: Instant,
}

impl Driver {
    /// The node as its log describes it; all entries that were known to be committed are applied when this returns.
    pub(crate) async fn new(
        inner: &Rc<Inner>,
        log: RaftLog,
        drops: DropLog,
        stored: Stored,
    ) -> Result<Self, GroupError> {
        let mut state = inner.state();
        let mut index = 0;
        if let Some(snapshot) = &stored.snapshot {
            index = snapshot.index;
            let read = state.decode_after_in_steps(&snapshot.data).await;
            state = Arc::new(read.map_err(|error| GroupError::Snapshot { index, error })?);
        }
        let snapshot_entries = inner.config.snapshot_entries;
        let config = Config { snapshot_entries, ..Config::new(log.member(), inner.rt.random_u64()) };
        let hard_state = stored.hard_state;
        let node = Node::new(config, stored)?;
        let mut driver = Self {
            inner: Rc::clone(inner),
            node,
            log,
            drops,
            state,
            index,
            hard_state,
            waiting: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: 1,
            led: false,
            ticks_without_leader: 0,
            ticks_without_rest: LOOK_TICKS,
            ticks_led: 0,
            silent: BTreeMap::new(),
            ask_unknown_from: inner.rt.now(),
        };
        driver.pump().await?;
        let membership = driver.node.membership();
        if membership.voters.len() == 1 && membership.voters.contains(&driver.log.member()) {
            // Alone: nobody else has to be asked, and everything in the log counts.
            driver.node.campaign();
            driver.pump().await?;
        }
        assert!(driver.index >= index, "the entries after the snapshot are applied on top of it");
        driver.publish();
        Ok(driver)
    }

    /// Runs until the node stops or cannot go on.
    pub(crate) async fn run(mut self) {
        let ended = self.drive().await;
        self.answer_lost();
        match ended {
            Ok(()) => self.inner.end("the node is stopping"),
            Err(error) => {
                tracing::error!("this node takes no part in the cluster's decisions any more: {error}");
                self.inner.end(&error.to_string());
            }
        }
    }

    async fn drive(&mut self) -> Result<(), GroupError> {
        let mut next = self.next_tick();
        while !self.inner.stop.get() {
            let now = self.inner.rt.now();
            if now >= next {
                if now >= next + PAUSED_MIN {
                    self.ask_whether_removed();
                }
                // One, however late: a disk that was slow is no silence of the leader.
                self.tick();
                next = self.next_tick();
            }
            self.inner.rt.buggify("raft: a turn of the driver").await;
            for _ in 0..EVENTS_MAX {
                let Some(input) = self.inner.pop() else { break };
                self.take_in(input).await?;
            }
            self.pump().await?;
            let wake = std::pin::pin!(self.inner.wake.notified());
            let tick = std::pin::pin!(self.inner.rt.sleep_until(next));
            match select(wake, tick).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
        Ok(())
    }

    /// A tenth of a tick around its length, so that nodes do not keep step.
    fn next_tick(&self) -> Instant {
        let tick = self.inner.config.tick.as_micros() as u64;
        let jittered = tick - tick / 10 + self.inner.rt.random_below(tick / 5 + 1);
        self.inner.rt.now() + Duration::from_micros(jittered)
    }

    fn tick(&mut self) {
        self.node.tick();
        if self.node.is_leader() {
            self.note_activity();
            self.reconcile();
        } else {
            self.silent.clear();
            (self.ticks_without_rest, self.ticks_led) = (0, 0);
        }
        self.ticks_without_leader =
            if self.node.status().leader.is_some() { 0 } else { self.ticks_without_leader + 1 };
        match self.ticks_without_leader {
            ASK_TICKS => self.ask_to_hear_the_leader(),
            ORPHAN_TICKS.. => {
                self.ticks_without_leader = 0;
                self.ask_whether_removed();
            }
            _ => {}
        }
        // A read whose messages were lost is requested again by its caller.
        self.reads.retain(|_, reply| !reply.is_disconnected());
        self.waiting.retain(|_, replies| {
            replies.retain(|reply| !reply.is_disconnected());
            !replies.is_empty()
        });
    }

    async fn take_in(&mut self, input: Input) -> Result<(), GroupError> {
        match input {
            Input::Message { from, message } => return self.receive(from, message),
            Input::Propose { id, bytes, reply } => self.propose(id, bytes, reply),
            Input::Read(reply) => {
                let read = self.next_read;
                self.next_read += 1;
                match self.node.read(read) {
                    Ok(()) => {
                        assert!(self.node.is_leader(), "only the leader answers reads");
                        let known = self.reads.insert(read, reply);
                        assert!(known.is_none(), "a read has a number of its own");
                    }
                    // The caller retries, or another one does.
                    Err(_) => drop(reply.send(None)),
                }
            }
            Input::Follows(host) => {
                if let Some(member) = self.state.member(host) {
                    self.node.learner_asks(member.number);
                }
            }
            Input::Transfer => {
                if let Some(heir) = self.heir() {
                    // Refused only where this node does not lead: then there is nothing to hand over.
                    let _ = self.node.transfer_leadership(heir);
                }
            }
            Input::ForgetDrops(tables, reply) => {
                let forgotten = self.drops.forget(&tables).await;
                self.inner.drops.replace(self.drops.tables().to_vec());
                // The caller may have gone.
                let _ = reply.send(forgotten);
            }
        }
        Ok(())
    }

    fn receive(&mut self, from: HostId, message: raft::Message) -> Result<(), GroupError> {
        match self.inner.host_of(message.from()) {
            // A peer that uses the number of another host is no member any more.
            Some(host) if host != from => return Ok(()),
            Some(_) => {}
            None => self.ask_where(message.from(), from),
        }
        self.check_recovery(&message)?;
        match self.node.receive(message) {
            Ok(()) | Err(Unacceptable::NotForUs { .. } | Unacceptable::UnknownPeer { .. }) => Ok(()),
            Err(error @ Unacceptable::FromTheFuture { .. }) => {
                tracing::error!("{error}: its raft directory is not of this cluster");
                Ok(())
            }
            Err(error) => Err(GroupError::Inconsistent(error)),
        }
    }

    /// A group that was recreated continues after the log of one node. A node with more committed entries must not forget them.
    fn check_recovery(&self, message: &raft::Message) -> Result<(), GroupError> {
        let Some(data) = message.snapshot_data() else { return Ok(()) };
        let Some(recovery) = ClusterState::recovery_of(data) else { return Ok(()) };
        let commit = self.hard_state.commit;
        if self.state.recovery == Some(recovery) || commit <= recovery.base {
            return Ok(());
        }
        Err(GroupError::Forced { base: recovery.base, commit })
    }

    fn propose(&mut self, id: CommandId, bytes: Bytes, reply: oneshot::Sender<Proposed>) {
        // Applied before: the state remembers the outcome.
        if let Some(outcome) = self.state.outcome(id) {
            let applied = Proposed::Applied { index: self.index, outcome: outcome.clone() };
            let _ = reply.send(applied);
            return;
        }
        // Proposed before, and still under way here.
        if let Some(replies) = self.waiting.get_mut(&id) {
            replies.push(reply);
            return;
        }
        match self.node.propose(bytes) {
            Ok(proposed) => {
                assert!(proposed.index > self.index, "an entry is proposed after those that are applied");
                self.waiting.insert(id, vec![reply]);
            }
            // The waiting caller may have gone.
            Err(raft::Refused::NotLeader) => drop(reply.send(Proposed::NotLeader)),
            Err(_) => drop(reply.send(Proposed::Busy)),
        }
    }

    /// Carries out the requests of the state machine, until it has none.
    async fn pump(&mut self) -> Result<(), GroupError> {
        let before = self.index;
        while let Some(batch) = self.node.take() {
            self.write(batch.persist()).await?;
            let effects = self.node.persisted(batch);
            for message in &effects.messages {
                self.send(message);
            }
            if let Some(snapshot) = effects.install {
                tracing::info!("the cluster's state arrives as a snapshot of entry {}", snapshot.index);
                let read = self.state.decode_after_in_steps(&snapshot.data).await;
                let next = read.map_err(|error| GroupError::Snapshot { index: snapshot.index, error })?;
                assert!(snapshot.index >= self.index, "a snapshot contains the entries that are applied");
                self.replace(next).await?;
                self.index = snapshot.index;
            }
            for entry in effects.committed {
                self.apply(entry).await?;
            }
            for read in effects.reads {
                if let Some(reply) = self.reads.remove(&read.read) {
                    let commit = self.node.status().commit;
                    assert!(read.index <= commit, "a read waits for committed entries only");
                    // The waiting caller may have gone.
                    let _ = reply.send(Some(read.index));
                }
            }
        }
        let status = self.node.status();
        assert_eq!(self.index, status.applied, "every entry that was handed out is applied");
        assert!(status.applied <= status.commit, "only committed entries are applied");
        assert!(status.commit <= status.last, "an entry is in the log before it is committed");
        assert!(status.first <= status.last + 1, "the log has no gap after its snapshot");
        let leads = self.node.is_leader();
        if self.led && !leads {
            self.answer_lost();
        }
        self.led = leads;
        if self.index != before {
            self.publish();
        }
        self.publish_status();
        self.snapshot_when_due().await
    }

    async fn write(&mut self, persist: &Persist) -> Result<(), GroupError> {
        assert_promises_stay(&self.hard_state, persist);
        loop {
            match self.log.write(persist, self.hard_state).await {
                Ok(()) => break,
                Err(LogError::Disk(error)) => self.wait_for_space(error).await?,
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(hard_state) = persist.hard_state {
            self.hard_state = hard_state;
        }
        Ok(())
    }

    /// A full disk is no broken one: the node is silent until there is room again. Any other error ends its part in the group.
    async fn wait_for_space(&self, error: DiskError) -> Result<(), GroupError> {
        if !error.is_disk_full() || self.inner.stop.get() {
            return Err(error.into());
        }
        tracing::warn!("this node takes no part in the cluster's decisions until its disk has room: {error}");
        self.inner.rt.sleep(SPACE_PAUSE).await;
        Ok(())
    }

    async fn apply(&mut self, entry: raft::Committed) -> Result<(), GroupError> {
        let index = entry.index;
        assert_eq!(index, self.index + 1, "entries are applied one after the other");
        assert!(
            index <= self.hard_state.commit,
            "that an entry is committed is durable before it is applied"
        );
        if let raft::Outcome::Command(bytes) = entry.outcome {
            let proposal = Proposal::decode(&bytes);
            yield_if_large(bytes.len()).await;
            let proposal =
                proposal.map_err(|error| GroupError::unreadable(index, entry.term, &bytes, error))?;
            let id = proposal.id;
            let (next, outcome) = self.state.apply_in_steps(proposal).await;
            yield_if_large(bytes.len()).await;
            self.replace(next).await?;
            self.index = index;
            let replies = self.waiting.remove(&id).unwrap_or_default();
            if !replies.is_empty() {
                // A waiting caller finds the state published.
                self.publish();
            }
            for reply in replies {
                // The waiting caller may have gone.
                let _ = reply.send(Proposed::Applied { index, outcome: outcome.clone() });
            }
        }
        self.index = index;
        Ok(())
    }

    /// Replaces the state. The list of dropped tables is durable before the state is visible, so that a crash leaves no files behind.
    async fn replace(&mut self, next: ClusterState) -> Result<(), GroupError> {
        let gone = gone_tables(&self.state.schema, &next.schema);
        let known = |table: &&&Table| self.drops.tables().iter().any(|dropped| dropped.id == table.id);
        let fresh: Vec<&Table> = gone.iter().filter(|table| !known(table)).copied().collect();
        if !fresh.is_empty() {
            while let Err(error) = self.drops.add(&fresh, self.inner.rt.wall_micros()).await {
                self.wait_for_space(error).await?;
            }
            self.inner.drops.replace(self.drops.tables().to_vec());
        }
        self.state = Arc::new(next);
        Ok(())
    }

    fn publish(&self) {
        let shown = self.inner.applied.get().clone();
        assert!(self.index >= shown.index, "the published state never goes back");
        let (next, known) = (&self.state, &shown.state);
        assert!(next.topology_version >= known.topology_version, "the topology version never goes back");
        assert!(next.schema_number >= known.schema_number, "the schema's number never goes back");
        let moved = next.topology_version != known.topology_version;
        if self.state.cluster_id != [0; 16] {
            self.inner.cluster_id.set(self.state.cluster_id);
        }
        self.inner.applied.set(Applied { index: self.index, state: Arc::clone(&self.state) });
        if moved {
            let address = |state: &ClusterState, host| state.member(host).map(|member| member.info.internode);
            let (before, now) = (|host| address(known, host), |host| address(next, host));
            self.inner.heard.borrow_mut().logged(before, now);
            self.inner.publish_peers();
        }
    }

    fn publish_status(&self) {
        let status = self.node.status();
        if let Some(known) = self.inner.status.get() {
            assert!(status.term >= known.term, "the term never goes back");
            assert!(status.commit >= known.commit, "what is committed stays committed");
            assert!(status.applied >= known.applied, "what is applied stays applied");
        }
        let leader = status.leader.and_then(|number| self.inner.host_of(number));
        if leader != self.inner.leader.get() {
            match leader {
                Some(host) => tracing::info!("the cluster's log is led by {host} (term {})", status.term),
                None => tracing::info!("the cluster's log has no leader now (term {})", status.term),
            }
        }
        self.inner.status.set(Some(status));
        self.inner.leader.set(leader);
        if *self.inner.membership.borrow() != *self.node.membership() {
            self.inner.membership.replace(self.node.membership().clone());
            self.inner.publish_peers();
        }
    }

    async fn snapshot_when_due(&mut self) -> Result<(), GroupError> {
        if !self.node.snapshot_due() {
            return Ok(());
        }
        let snapshot = self.node.snapshot(self.state.encode_in_steps().await.into());
        assert_eq!(snapshot.index, self.index, "everything that was handed out is applied");
        let (hard_state, entries) = self.node.log_after(snapshot.index);
        assert!(hard_state.commit >= self.hard_state.commit, "a shorter log keeps what is committed");
        assert_eq!(
            (hard_state.term, hard_state.vote),
            (self.hard_state.term, self.hard_state.vote),
            "a shorter log keeps this node's vote"
        );
        let first = entries.first().map_or(snapshot.index + 1, |entry| entry.index);
        assert_eq!(first, snapshot.index + 1, "the log continues after its snapshot");
        loop {
            match self.log.restart(&snapshot, hard_state, &entries).await {
                Ok(()) => break,
                // The old log cannot be gone on with: the new one's name may be there already.
                Err(LogError::Disk(error)) => self.wait_for_space(error).await?,
                Err(error) => return Err(error.into()),
            }
        }
        self.hard_state = hard_state;
        self.node.compact(snapshot);
        Ok(())
    }

    fn send(&self, message: &raft::Message) {
        let Some(host) = self.inner.host_of(message.to()) else { return };
        if message.is_snapshot() {
            return pieces::send(&self.inner, host, message);
        }
        let body = self.inner.sign(&message.encode());
        self.inner.messenger.send(Target::Host { host, shard: 0 }, Verb::Raft, body);
    }

    /// The leader brings the group in line with the members: a joined one becomes a learner, a learner that caught up a voter, one that has left loses
    /// its vote, a removed one goes. One step a tick; the next leader continues.
    fn reconcile(&mut self) {
        let membership = self.node.membership().clone();
        if membership.is_joint() || self.state.members.is_empty() {
            return;
        }
        let staying = self.staying();
        let leaving = membership.voters.iter().copied().find(|voter| !staying.contains(voter));
        // Nobody is to be given a vote: learners need not show that they live.
        let is_full = membership.voters.len() >= VOTERS_MAX && !membership.voters.len().is_multiple_of(2);
        let silent = self.silent_voter(&membership);
        let at_rest = is_full && leaving.or(silent).is_none();
        self.node.rest_learners(at_rest);
        self.ticks_without_rest = if at_rest { 0 } else { self.ticks_without_rest.saturating_add(1) };
        let numbers: Vec<u64> = self.state.members.values().map(|member| member.number).collect();
        let gone = membership.learners.iter().copied().find(|number| !numbers.contains(number));
        let new = numbers.iter().copied().find(|number| !membership.contains(*number));
        let changes = match (leaving, gone, new) {
            (None, Some(gone), _) => vec![Change::Remove(gone)],
            (None, None, Some(new)) => vec![Change::AddLearner(new)],
            _ if self.ticks_without_rest < LOOK_TICKS => Vec::new(),
            (Some(own), ..) if own == self.log.member() => self.vote_for_heir(&membership, &staying),
            (Some(voter), ..) => {
                let stays = numbers.contains(&voter);
                let change = if stays { Change::AddLearner(voter) } else { Change::Remove(voter) };
                self.pass_vote(voter, change, &membership, &staying)
            }
            (None, None, None) => self
                .vote_of_silent(silent, &membership, &staying)
                .unwrap_or_else(|| self.votes(&membership, &staying)),
        };
        self.assert_sound(&membership, &changes);
        if !changes.is_empty() {
            // Refused while another change is under way; the next tick tries again.
            let _ = self.node.change_membership(&changes);
        }
    }

    /// Asserts that changes of the group leave it able to decide.
    fn assert_sound(&self, membership: &raft::Membership, changes: &[Change]) {
        let of = |change: &Change| match *change {
            Change::AddVoter(number) | Change::AddLearner(number) | Change::Remove(number) => number,
        };
        let numbers: BTreeSet<u64> = changes.iter().map(of).collect();
        assert_eq!(numbers.len(), changes.len(), "a step changes a node once");
        let own = self.log.member();
        assert!(!numbers.contains(&own), "the leader keeps its vote");
        let mut voters = membership.voters.clone();
        for change in changes {
            match *change {
                Change::AddVoter(number) => voters.insert(number),
                Change::AddLearner(number) | Change::Remove(number) => voters.remove(&number),
            };
        }
        assert!(!voters.is_empty(), "somebody has a vote");
        assert!(
            voters.len().abs_diff(membership.voters.len()) <= 2,
            "a step gives or takes at most two votes"
        );
    }

    /// The numbers of the members that belong to the cluster and have not left it: only these are to have a vote. A node that has left may be
    /// switched off at any time.
    fn staying(&self) -> BTreeSet<u64> {
        let members = self.state.members.values().filter(|member| member.status != MemberStatus::Left);
        members.map(|member| member.number).collect()
    }

    /// The state machine forgets the active members once in an election timeout, to count them anew in the next one.
    fn note_activity(&mut self) {
        let mut silent = BTreeMap::new();
        for peer in self.node.peers() {
            let ticks = if peer.active {
                0
            } else {
                self.silent.get(&peer.id).map_or(u32::MAX, |ticks| ticks.saturating_add(1))
            };
            silent.insert(peer.id, ticks);
        }
        self.silent = silent;
        self.ticks_led = self.ticks_led.saturating_add(1);
    }

    /// A voter that has not answered for long.
    fn silent_voter(&self, membership: &raft::Membership) -> Option<u64> {
        let own = self.log.member();
        let is_silent = |voter: &u64| self.silent.get(voter).is_some_and(|ticks| *ticks >= SILENT_TICKS);
        let mut others = membership.voters.iter().copied().filter(|voter| *voter != own);
        others.find(|voter| self.ticks_led >= SILENT_TICKS && is_silent(voter))
    }

    /// A voter that is dead, by all signs, loses its vote to a learner that answers: the next failure must not cost the majority while there are others. None
    /// where there is no such learner.
    fn vote_of_silent(
        &self,
        silent: Option<u64>,
        membership: &raft::Membership,
        staying: &BTreeSet<u64>,
    ) -> Option<Vec<Change>> {
        let voter = silent.filter(|_| !membership.voters.len().is_multiple_of(2))?;
        let heir = self.caught_up(membership, staying).first().copied()?;
        Some(vec![Change::AddLearner(voter), Change::AddVoter(heir)])
    }

    /// The peers; those are active that were so in the last moments.
    fn peers(&self) -> Vec<raft::Peer> {
        let mut peers = self.node.peers();
        for peer in &mut peers {
            peer.active |= self.silent.get(&peer.id).is_some_and(|ticks| *ticks <= LOOK_TICKS);
        }
        peers
    }

    /// Learners that could vote at once.
    fn caught_up(&self, membership: &raft::Membership, staying: &BTreeSet<u64>) -> Vec<u64> {
        let commit = self.node.status().commit;
        let ready = |peer: &raft::Peer| peer.active && peer.matched + LAG_MAX >= commit;
        let learner =
            |peer: &raft::Peer| membership.learners.contains(&peer.id) && staying.contains(&peer.id);
        let peers = self.peers().into_iter().filter(|peer| learner(peer) && ready(peer));
        peers.map(|peer| peer.id).collect()
    }

    /// The voter other than this node that is missed least.
    fn worst_voter(&self, membership: &raft::Membership, but: Option<u64>) -> Option<u64> {
        let voter = |peer: &raft::Peer| membership.voters.contains(&peer.id) && Some(peer.id) != but;
        let voters = self.peers().into_iter().filter(voter);
        voters.min_by_key(|peer| (peer.active, peer.matched)).map(|peer| peer.id)
    }

    /// Gives and takes votes so that their number is odd: two at a time, or one where one is missing or too many.
    fn votes(&self, membership: &raft::Membership, staying: &BTreeSet<u64>) -> Vec<Change> {
        let caught_up = self.caught_up(membership, staying);
        if membership.voters.len().is_multiple_of(2) {
            let one_less = || self.worst_voter(membership, None).map(Change::AddLearner);
            return caught_up.first().copied().map(Change::AddVoter).or_else(one_less).into_iter().collect();
        }
        match caught_up[..] {
            [one, other, ..] if membership.voters.len() + 2 <= VOTERS_MAX => {
                vec![Change::AddVoter(one), Change::AddVoter(other)]
            }
            _ => Vec::new(),
        }
    }

    /// A voter loses its vote by a change, and a learner gets it in the same step: in between, one more failure would stop a group of three. Where no
    /// learner has caught up the number of votes stays odd by one less.
    fn pass_vote(
        &self,
        voter: u64,
        change: Change,
        membership: &raft::Membership,
        staying: &BTreeSet<u64>,
    ) -> Vec<Change> {
        if membership.voters.len().is_multiple_of(2) {
            return vec![change];
        }
        let heir = self.caught_up(membership, staying).first().copied().map(Change::AddVoter);
        let one_less = || self.worst_voter(membership, Some(voter)).map(Change::AddLearner);
        [Some(change), heir.or_else(one_less)].into_iter().flatten().collect()
    }

    /// This node leads and is to go: another one leads first, and gets a vote for that where nobody has one.
    fn vote_for_heir(&self, membership: &raft::Membership, staying: &BTreeSet<u64>) -> Vec<Change> {
        if self.heir().is_some() {
            self.inner.push(Input::Transfer);
            return Vec::new();
        }
        self.caught_up(membership, staying).first().copied().map(Change::AddVoter).into_iter().collect()
    }

    /// The likely next leader: the active voter with most of the log that stays.
    fn heir(&self) -> Option<u64> {
        let (voters, staying) = (&self.node.membership().voters, self.staying());
        let able = |peer: &raft::Peer| peer.active && voters.contains(&peer.id) && staying.contains(&peer.id);
        let able = self.peers().into_iter().filter(able);
        able.max_by_key(|peer| (peer.matched, std::cmp::Reverse(peer.id))).map(|peer| peer.id)
    }

    /// A peer that joined while this node was away, and leads now, say. As long as its address is not known no answer reaches it: it would send no more
    /// of the log, in which its joining stands. The others know it.
    fn ask_where(&mut self, number: u64, host: HostId) {
        let now = self.inner.rt.now();
        if now < self.ask_unknown_from {
            return;
        }
        self.ask_unknown_from = now + UNKNOWN_PAUSE;
        let own = self.inner.config.host;
        let greeted = self.inner.greeted.borrow().values().map(|(host, _)| *host).collect::<Vec<_>>();
        let mut hosts: BTreeSet<HostId> = self.state.members.keys().copied().chain(greeted).collect();
        hosts.remove(&own);
        let mut hosts: Vec<HostId> = hosts.into_iter().collect();
        for _ in 0..UNKNOWN_ASKS.min(hosts.len()) {
            let asked = hosts.swap_remove(self.inner.rt.random_below(hosts.len() as u64) as usize);
            let inner = Rc::clone(&self.inner);
            let ask = async move {
                let deadline = inner.rt.now() + inner.config.tick * 20;
                let body = inner.sign(&Forward::Where(number).encode());
                let target = Target::Host { host: asked, shard: 0 };
                let answer = inner.messenger.call(target, Verb::RaftForward, body, deadline).await;
                let known =
                    answer.ok().and_then(|answer| wire::decode_json::<Option<JoinPeer>>(&answer).ok());
                if let Some(peer) = known.flatten()
                    && (peer.number, peer.host) == (number, host)
                {
                    inner.greet([&peer]);
                }
            };
            self.inner.rt.spawn(Tasks::Maintenance, ask).detach();
        }
    }

    /// A learner that knows no leader, because it has just started, asks: else the leader reaches it only with the next entry, or
    /// after a while. The leader reaches a voter anyway.
    fn ask_to_hear_the_leader(&self) {
        let (membership, own) = (self.node.membership(), self.log.member());
        if membership.voters.contains(&own) {
            return;
        }
        let body = self.inner.sign(&Forward::Follows.encode());
        for host in membership.voters.iter().filter_map(|voter| self.inner.host_of(*voter)) {
            let target = Target::Host { host, shard: 0 };
            self.inner.messenger.send(target, Verb::RaftForward, body.clone());
        }
    }

    /// A node without a leader for long, or one that was paused, may have been removed: nobody sends to it any more. A few are asked
    /// each time.
    fn ask_whether_removed(&self) {
        let own = self.inner.config.host;
        let mut hosts: Vec<HostId> = self.state.members.keys().copied().filter(|host| *host != own).collect();
        for _ in 0..ORPHAN_ASKS.min(hosts.len()) {
            let host = hosts.swap_remove(self.inner.rt.random_below(hosts.len() as u64) as usize);
            let inner = Rc::clone(&self.inner);
            let deadline = inner.rt.now() + inner.config.tick * 20;
            let ask = async move {
                if inner.ask_whether_removed(Target::Host { host, shard: 0 }, deadline).await == Some(true) {
                    inner.end_removed();
                }
            };
            self.inner.rt.spawn(Tasks::Maintenance, ask).detach();
        }
    }

    /// Leadership, or the driver, is gone: whether waiting proposals were decided is not known here.
    fn answer_lost(&mut self) {
        for reply in std::mem::take(&mut self.waiting).into_values().flatten() {
            // The waiting caller may have gone.
            let _ = reply.send(Proposed::Lost);
        }
        self.reads.clear();
    }
}

/// Asserts that a write goes back on nothing that is durable: others count on it.
fn assert_promises_stay(durable: &HardState, persist: &Persist) {
    if let Some(next) = &persist.hard_state {
        assert!(next.term >= durable.term, "the durable term never goes back");
        assert!(next.commit >= durable.commit, "what is committed stays committed");
        let votes_twice = next.term == durable.term && durable.vote != 0 && next.vote != durable.vote;
        assert!(!votes_twice, "a node votes once in a term");
    }
    if let Some(snapshot) = &persist.snapshot {
        assert!(snapshot.index >= durable.commit, "a snapshot contains the entries that are committed");
    }
    if let Some(first) = persist.entries.first() {
        assert!(first.index > durable.commit, "a committed entry is not overwritten");
    }
    for pair in persist.entries.windows(2) {
        assert_eq!(pair[1].index, pair[0].index + 1, "entries follow each other");
        assert!(pair[1].term >= pair[0].term, "terms never go back along the log");
    }
    if let Some(last) = persist.entries.last() {
        let term = persist.hard_state.map_or(durable.term, |next| next.term);
        assert!(last.term <= term, "an entry is of a term that this node has seen");
    }
}

fn gone_tables<'a>(old: &'a Schema, new: &Schema) -> Vec<&'a Table> {
    old.tables().filter(|table| new.table_by_id(table.id).is_none()).map(|table| &**table).collect()
}

//! One node of the group: events in by methods, then a [`Batch`] to make durable, then [`Effects`].

use std::collections::VecDeque;

use bytes::Bytes;
use tikv_raft::eraftpb as pb;
use tikv_raft::{ProgressState, RawNode, Ready, SnapshotStatus, StateRole};

use crate::codec;
use crate::convert;
use crate::data::{
    Change, Committed, ENTRY_BYTES_MAX, Entry, HardState, Membership, Outcome, Peer, Persist, Proposed,
    ReadState, Refused, Role, Snapshot, Status, Stored, Unacceptable,
};
use crate::effects::Effects;
use crate::guard;
use crate::learners::Learners;
use crate::message::{self, Message};
use crate::store::Store;

/// The configuration of a node. Times are in ticks; the driver decides how long a tick lasts.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The node's number in the group: not 0, and never given to another node.
    pub id: u64,
    /// Decides the election timeouts; another one at every start of a node.
    pub seed: u64,
    /// A follower without messages for this many ticks, up to twice as many, starts an election.
    pub election_ticks: u16,
    /// A leader sends a heartbeat every so many ticks.
    pub heartbeat_ticks: u16,
    /// A learner that has everything gets a heartbeat every so many ticks, while learners are at rest ([`Node::rest_learners`]).
    pub rest_ticks: u16,
    /// A snapshot whose receipt was not acknowledged after this many ticks is sent again.
    pub snapshot_ticks: u16,
    /// Bytes of entries in a message, about; a larger entry travels alone.
    pub message_bytes_max: u64,
    /// Messages with entries under way to one peer.
    pub in_flight_max: usize,
    /// Bytes of proposals that wait to be committed; more are refused.
    pub uncommitted_bytes_max: u64,
    /// Bytes of committed entries handed out at once, about.
    pub apply_bytes_max: u64,
    /// Entries that stay after a snapshot for peers that are a little behind; at most a quarter of `snapshot_bytes`.
    pub kept_entries: u64,
    /// A snapshot is taken when this many entries were applied since the last.
    pub snapshot_entries: u64,
    /// A snapshot is taken when the log's entries have this many bytes.
    pub snapshot_bytes: u64,
}

impl Config {
    /// The defaults for a group for metadata.
    pub fn new(id: u64, seed: u64) -> Self {
        Self {
            id,
            seed,
            election_ticks: 10,
            heartbeat_ticks: 2,
            rest_ticks: 50,
            snapshot_ticks: 50,
            message_bytes_max: 1 << 20,
            in_flight_max: 16,
            uncommitted_bytes_max: 64 << 20,
            apply_bytes_max: 16 << 20,
            kept_entries: 64,
            snapshot_entries: 512,
            snapshot_bytes: 32 << 20,
        }
    }
}

/// A log that no node can have left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLog {
    /// Entries are missing.
    #[error("entry {expected} is missing, {found} follows")]
    Gap {
        /// The expected value.
        expected: u64,
        /// The value.
        found: u64,
    },
    /// The log ends before an index that is known to be committed.
    #[error("the log ends at entry {last}, but {commit} was committed")]
    Short {
        /// Its last entry.
        last: u64,
        /// The committed index.
        commit: u64,
    },
    /// The settings contradict each other.
    #[error("the group's settings: {0}")]
    Config(String),
}

/// Writes that must be durable before the group continues. Between taking it and [`Node::persisted`] nothing else may happen to the node.
#[must_use = "the group waits for it"]
pub struct Batch {
    /// The requests of the `raft` crate. Without it the batch only stores the commit index.
    ready: Option<Ready>,
    persist: Persist,
}

impl Batch {
    /// The writes.
    pub fn persist(&self) -> &Persist {
        &self.persist
    }
}

/// One node of the group.
pub struct Node {
    raw: RawNode<Store>,
    config: Config,
    /// State of the generator of election timeouts.
    random: u64,
    /// The term and role of the present timeout.
    drawn_for: (u64, StateRole),
    timeout: usize,
    /// A batch was taken and not given back.
    taken: bool,
    /// The last entry that was handed out.
    applied: u64,
    /// Committed entries that are not handed out yet: that they are committed is not durable.
    held: VecDeque<pb::Entry>,
    /// For each peer that was sent a snapshot: since how many ticks.
    snapshots: Vec<(u64, u16)>,
    learners: Learners,
}

impl Node {
    /// A node with the content of its disk.
    ///
    /// # Errors
    /// [`BadLog::Gap`] when entries are missing, [`BadLog::Short`] when the log ends before a committed index,
    /// [`BadLog::Config`] when the settings contradict each other.
    pub fn new(config: Config, stored: Stored) -> Result<Self, BadLog> {
        check_log(&stored)?;
        let store = Store::new(stored);
        let applied = store.snapshot_index();
        let settings = tikv_raft::Config {
            id: config.id,
            election_tick: usize::from(config.election_ticks),
            heartbeat_tick: usize::from(config.heartbeat_ticks),
            applied,
            max_size_per_msg: config.message_bytes_max,
            max_inflight_msgs: config.in_flight_max,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: config.uncommitted_bytes_max,
            max_committed_size_per_ready: config.apply_bytes_max,
            ..tikv_raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw =
            RawNode::new(&settings, store, &logger).map_err(|error| BadLog::Config(error.to_string()))?;
        let drawn_for = (raw.raft.term, raw.raft.state);
        let random = config.seed ^ config.id.rotate_left(32);
        let mut node = Self {
            raw,
            config,
            random,
            drawn_for,
            timeout: 0,
            taken: false,
            applied,
            held: VecDeque::new(),
            snapshots: Vec::new(),
            learners: Learners::default(),
        };
        node.draw_timeout();
        Ok(node)
    }

    /// A tick has passed.
    pub fn tick(&mut self) {
        self.assert_free();
        let elapsed = self.raw.raft.election_elapsed;
        self.learners.tick();
        self.raw.tick();
        let campaigned =
            self.raw.raft.state != StateRole::Leader && self.raw.raft.election_elapsed <= elapsed;
        self.keep_timeout(campaigned);
        self.renew_snapshots();
        self.leave_joint();
    }

    /// A message has arrived.
    ///
    /// # Errors
    /// [`Unacceptable`] when the message is for another node, comes from none of the group, or contradicts this node's
    /// log. Nothing was done with it.
    pub fn receive(&mut self, message: Message) -> Result<(), Unacceptable> {
        self.assert_free();
        let Message(message) = message;
        guard::check(&self.raw, &message)?;
        let from = message.from;
        if self.is_leader() && self.is_learner(from) {
            self.learners.set_term(self.raw.raft.term);
            self.learners.heard(from);
        }
        let result = self.raw.step(message);
        self.keep_timeout(false);
        match result {
            Err(tikv_raft::Error::StepPeerNotFound) => Err(Unacceptable::UnknownPeer { from }),
            // Nothing else can fail: proposals do not travel as messages.
            _ => Ok(()),
        }
    }

    /// Proposes a command. Only the leader can.
    ///
    /// # Errors
    /// [`Refused::Size`] when the command is empty or larger than [`ENTRY_BYTES_MAX`], [`Refused::NotLeader`],
    /// [`Refused::Busy`] when leadership is being transferred or too much is uncommitted.
    pub fn propose(&mut self, command: Bytes) -> Result<Proposed, Refused> {
        self.assert_free();
        if command.is_empty() || command.len() > ENTRY_BYTES_MAX {
            return Err(Refused::Size);
        }
        self.proposed(|raw| {
            // The entry shares the command's memory.
            let entry = pb::Entry { data: command, ..pb::Entry::default() };
            let mut message = pb::Message { from: raw.raft.id, ..pb::Message::default() };
            message.set_msg_type(pb::MessageType::MsgPropose);
            message.set_entries(vec![entry].into());
            raw.raft.step(message)
        })
    }

    /// Proposes a change of the group. Several changes at once pass through a joint configuration, which ends by itself.
    ///
    /// # Errors
    /// [`Refused::Size`] when there are no changes or too many, [`Refused::ChangeUnderWay`] when another change is not
    /// committed yet, [`Refused::NotLeader`], [`Refused::Busy`].
    pub fn change_membership(&mut self, changes: &[Change]) -> Result<Proposed, Refused> {
        self.assert_free();
        if changes.is_empty() || changes.len() > codec::CHANGES_MAX {
            return Err(Refused::Size);
        }
        if self.raw.raft.has_pending_conf() || self.raw.store().membership.is_joint() {
            return Err(if self.is_leader() { Refused::ChangeUnderWay } else { Refused::NotLeader });
        }
        let context = codec::encode_changes(changes);
        self.proposed(|raw| raw.propose_conf_change(context, convert::changes_to_pb(changes)))
    }

    /// Asks for a point in the log at or after everything that was acknowledged before now; the answer comes in
    /// [`Effects::reads`], or never, when leadership or messages are lost: ask again. Only the leader can.
    ///
    /// # Errors
    /// [`Refused::NotLeader`]; [`Refused::Busy`] until the leader has committed an entry of its term.
    pub fn read(&mut self, read: u64) -> Result<(), Refused> {
        self.assert_free();
        if !self.is_leader() {
            return Err(Refused::NotLeader);
        }
        if !self.raw.raft.commit_to_current_term() {
            return Err(Refused::Busy);
        }
        self.raw.read_index(read.to_be_bytes().to_vec());
        Ok(())
    }

    /// Hands leadership to a voter, which takes it when it has all entries; within an election timeout or not at all.
    ///
    /// # Errors
    /// [`Refused::NotLeader`].
    pub fn transfer_leadership(&mut self, to: u64) -> Result<(), Refused> {
        self.assert_free();
        if !self.is_leader() {
            return Err(Refused::NotLeader);
        }
        self.raw.transfer_leader(to);
        Ok(())
    }

    /// Asks for an election now: for a group of one, which need not wait.
    pub fn campaign(&mut self) {
        self.assert_free();
        // Fails only where a campaign is not possible, which a tick will find, too.
        let _ = self.raw.campaign();
        self.keep_timeout(true);
    }

    /// The next writes, if there are any.
    pub fn take(&mut self) -> Option<Batch> {
        self.assert_free();
        if let Some(last) = self.held.back() {
            self.taken = true;
            let hard_state = HardState { commit: last.index, ..self.raw.store().hard_state };
            let persist = Persist { hard_state: Some(hard_state), must_sync: true, ..Persist::default() };
            return Some(Batch { ready: None, persist });
        }
        if !self.raw.has_ready() {
            return None;
        }
        self.taken = true;
        let ready = self.raw.ready();
        let hard_state = ready.hs().map(convert::hard_state_from_pb);
        let snapshot = (!ready.snapshot().is_empty()).then(|| convert::snapshot_from_pb(ready.snapshot()));
        let entries = ready.entries().iter().map(convert::entry_from_pb).collect();
        // How far the group has committed is a hint, unless it lets entries take effect.
        let must_sync = ready.must_sync() || !ready.committed_entries().is_empty();
        let persist = Persist { snapshot, entries, hard_state, must_sync };
        Some(Batch { ready: Some(ready), persist })
    }

    /// The batch is durable.
    pub fn persisted(&mut self, batch: Batch) -> Effects {
        assert!(self.taken, "a batch is given back once");
        self.taken = false;
        let Batch { ready, persist } = batch;
        let store = self.raw.mut_store();
        if let Some(snapshot) = &persist.snapshot {
            store.install(snapshot.clone());
            self.applied = snapshot.index;
        }
        if let Some(hard_state) = persist.hard_state {
            store.hard_state = hard_state;
        }
        let mut effects = ready.map(|ready| self.advance(ready)).unwrap_or_default();
        effects.install = persist.snapshot;
        effects.committed = self.hand_out();
        self.raw.advance_apply_to(self.applied);
        self.step_down_when_removed();
        self.keep_timeout(false);
        self.note_snapshots(&effects.messages);
        effects
    }

    /// Lets the `raft` crate go on; committed entries are held.
    fn advance(&mut self, mut ready: Ready) -> Effects {
        self.raw.mut_store().append(ready.entries().clone());
        let mut messages = ready.take_messages();
        messages.append(&mut ready.take_persisted_messages());
        let reads = ready.take_read_states();
        self.held.extend(ready.take_committed_entries());
        let mut light = self.raw.advance_append(ready);
        messages.append(&mut light.take_messages());
        self.held.extend(light.take_committed_entries());
        messages.retain(|message| {
            message::kind_number(message.get_msg_type()).is_some() && !self.is_needless(message)
        });
        Effects {
            messages: messages.into_iter().map(Message).collect(),
            reads: reads.iter().filter_map(read_state).collect(),
            ..Effects::default()
        }
    }

    /// Whether a message is a heartbeat that its learner does not need.
    fn is_needless(&mut self, message: &pb::Message) -> bool {
        let to = message.to;
        if message.get_msg_type() != pb::MessageType::MsgHeartbeat || !self.is_learner(to) {
            return false;
        }
        let raft = &self.raw.raft;
        let (last, commit) = (raft.raft_log.last_index(), raft.raft_log.committed);
        let lacks = (raft.prs().get(to))
            .is_none_or(|progress| progress.matched < last || progress.committed_index < commit);
        self.learners.set_term(raft.term);
        !self.learners.wants(to, lacks, u64::from(self.config.rest_ticks))
    }

    fn is_learner(&self, id: u64) -> bool {
        let conf = self.raw.raft.prs().conf();
        !conf.voters().contains(id) && (conf.learners().contains(&id) || conf.learners_next().contains(&id))
    }

    /// From now on learners that have everything hear the leader seldom, or as often as voters. At rest [`Peer::active`] says nothing
    /// about a learner.
    pub fn rest_learners(&mut self, at_rest: bool) {
        self.learners.at_rest = at_rest;
    }

    /// A learner does not know the leader: if this node leads, its next heartbeats announce it.
    pub fn learner_asks(&mut self, id: u64) {
        if self.is_leader() && self.is_learner(id) {
            self.learners.set_term(self.raw.raft.term);
            self.learners.asks(id);
        }
    }

    /// Entries take effect once it is durable that they are committed. Their effects are then known after a restart: data that
    /// was written to a new table finds it, and a node does not come back with an obsolete group, in which it could win an
    /// election.
    fn hand_out(&mut self) -> Vec<Committed> {
        let durable = self.raw.store().hard_state.commit;
        let count = self.held.partition_point(|entry| entry.index <= durable);
        let entries: Vec<pb::Entry> = self.held.drain(..count).collect();
        entries.iter().map(|entry| self.commit(entry)).collect()
    }

    /// Whether a snapshot should be taken: the log is long, or a peer needs a newer one.
    pub fn snapshot_due(&mut self) -> bool {
        let store = self.raw.store();
        let since = self.applied - store.snapshot_index();
        let wanted = store.take_wanted();
        since > 0
            && (wanted
                || since >= self.config.snapshot_entries
                || store.bytes() >= self.config.snapshot_bytes)
    }

    /// A snapshot of the state above, which has applied everything that was handed out. Make it durable, then give it to
    /// [`Node::compact`].
    #[expect(clippy::expect_used, reason = "the log has the last applied entry")]
    pub fn snapshot(&self, data: Bytes) -> Snapshot {
        let store = self.raw.store();
        let term = store.term_of(self.applied).expect("the last applied entry is in the log");
        Snapshot { index: self.applied, term, membership: store.membership.clone(), data }
    }

    /// A snapshot of this node is durable: the entries that it stands for may go.
    pub fn compact(&mut self, snapshot: Snapshot) {
        assert!(snapshot.index <= self.applied, "a snapshot contains the applied entries");
        let (kept, bytes_max) = (self.config.kept_entries, self.config.snapshot_bytes / 4);
        self.raw.mut_store().compact(snapshot, kept, bytes_max);
    }

    /// The content of a log that begins after a snapshot: the promises of this node, and its entries from there on. All of it was
    /// durable before.
    pub fn log_after(&self, index: u64) -> (HardState, Vec<Entry>) {
        let store = self.raw.store();
        let entries = store.since(index + 1).map(convert::entry_from_pb).collect();
        let hard_state = HardState { commit: store.hard_state.commit.max(index), ..store.hard_state };
        (hard_state, entries)
    }

    /// The state of the node.
    pub fn status(&self) -> Status {
        let raft = &self.raw.raft;
        Status {
            id: raft.id,
            term: raft.term,
            role: role(raft.state),
            leader: Some(raft.leader_id).filter(|leader| *leader != 0),
            commit: raft.raft_log.committed,
            applied: self.applied,
            first: self.raw.store().first(),
            last: raft.raft_log.last_index(),
        }
    }

    /// Whether the node leads.
    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// The members of the group, as of the last entry that was handed out.
    pub fn membership(&self) -> &Membership {
        &self.raw.store().membership
    }

    /// How far the others are; only a leader knows.
    pub fn peers(&self) -> Vec<Peer> {
        if !self.is_leader() {
            return Vec::new();
        }
        let own = self.raw.raft.id;
        let mut peers: Vec<Peer> = (self.raw.raft.prs().iter())
            .filter(|(id, _)| **id != own)
            .map(|(id, progress)| Peer { id: *id, matched: progress.matched, active: progress.recent_active })
            .collect();
        peers.sort_unstable_by_key(|peer| peer.id);
        peers
    }

    /// A committed entry takes effect, in this node at once.
    fn commit(&mut self, entry: &pb::Entry) -> Committed {
        assert_eq!(entry.index, self.applied + 1, "entries are handed out one after the other");
        self.applied = entry.index;
        let outcome = match entry.get_entry_type() {
            pb::EntryType::EntryNormal if entry.data.is_empty() => Outcome::Empty,
            pb::EntryType::EntryNormal => Outcome::Command(entry.data.clone()),
            _ => {
                let changes = convert::changes_of(entry);
                // A change that does not fit (nobody would have a vote) changes nothing, on every node alike.
                if let Ok(state) = self.raw.apply_conf_change(&convert::changes_to_pb(&changes)) {
                    self.raw.mut_store().membership = convert::membership_from_pb(&state);
                    let learners = &self.raw.store().membership.learners;
                    self.learners.retain(|id| learners.contains(&id));
                }
                Outcome::Membership(self.membership().clone())
            }
        };
        Committed { index: entry.index, term: entry.term, outcome }
    }

    fn proposed(
        &mut self,
        propose: impl FnOnce(&mut RawNode<Store>) -> tikv_raft::Result<()>,
    ) -> Result<Proposed, Refused> {
        if !self.is_leader() || !self.membership().contains(self.raw.raft.id) {
            return Err(Refused::NotLeader);
        }
        propose(&mut self.raw).map_err(|_| Refused::Busy)?;
        Ok(Proposed { index: self.raw.raft.raft_log.last_index(), term: self.raw.raft.term })
    }

    /// A leader that is no longer a member lets the others elect one; it would lead for ever otherwise.
    fn step_down_when_removed(&mut self) {
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Leader && !raft.prs().conf().voters().contains(raft.id) {
            let term = raft.term;
            raft.become_follower(term, 0);
        }
    }

    /// A leader ends a joint configuration that it took over from one before it.
    fn leave_joint(&mut self) {
        let membership = &self.raw.store().membership;
        if self.is_leader() && membership.is_joint() && !self.raw.raft.has_pending_conf() {
            // Refused only while leadership is handed over; the next tick tries again.
            let _ = self.raw.propose_conf_change(Vec::new(), pb::ConfChangeV2::default());
        }
    }

    fn note_snapshots(&mut self, messages: &[Message]) {
        for message in messages.iter().filter(|message| message.is_snapshot()) {
            self.snapshots.retain(|(peer, _)| *peer != message.to());
            self.snapshots.push((message.to(), 0));
        }
    }

    /// Sends a snapshot again when the peer does not answer: messages get lost, and the `raft` crate waits for ever.
    fn renew_snapshots(&mut self) {
        let mut late = Vec::new();
        let (raft, ticks_max) = (&self.raw.raft, self.config.snapshot_ticks);
        self.snapshots.retain_mut(|(peer, ticks)| {
            let progress = raft.prs().get(*peer);
            if !progress.is_some_and(|progress| progress.state == ProgressState::Snapshot) {
                return false;
            }
            *ticks += 1;
            if *ticks > ticks_max {
                late.push(*peer);
            }
            *ticks <= ticks_max
        });
        late.into_iter().for_each(|peer| self.raw.report_snapshot(peer, SnapshotStatus::Failure));
    }

    /// Puts our election timeout in place of the one that the `raft` crate drew from the thread's generator, which nothing reads.
    /// A new one is drawn when the old one has served.
    fn keep_timeout(&mut self, used: bool) {
        let now = (self.raw.raft.term, self.raw.raft.state);
        if used || now != self.drawn_for {
            self.drawn_for = now;
            self.draw_timeout();
        }
        self.raw.raft.set_randomized_election_timeout(self.timeout);
    }

    fn draw_timeout(&mut self) {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let ticks = u64::from(self.config.election_ticks);
        self.timeout = (ticks + mixed % ticks) as usize;
        self.raw.raft.set_randomized_election_timeout(self.timeout);
    }

    fn assert_free(&self) {
        assert!(!self.taken, "a batch was taken and not given back");
    }
}

fn check_log(stored: &Stored) -> Result<(), BadLog> {
    let base = stored.snapshot.as_ref().map_or(0, |snapshot| snapshot.index);
    let after = stored.entries.iter().filter(|entry| entry.index > base);
    let mut last = base;
    for entry in after {
        if entry.index != last + 1 {
            return Err(BadLog::Gap { expected: last + 1, found: entry.index });
        }
        last = entry.index;
    }
    if stored.hard_state.commit > last {
        return Err(BadLog::Short { last, commit: stored.hard_state.commit });
    }
    Ok(())
}

fn role(state: StateRole) -> Role {
    match state {
        StateRole::Follower => Role::Follower,
        StateRole::PreCandidate => Role::PreCandidate,
        StateRole::Candidate => Role::Candidate,
        StateRole::Leader => Role::Leader,
    }
}

fn read_state(state: &tikv_raft::ReadState) -> Option<ReadState> {
    let read = u64::from_be_bytes(state.request_ctx.as_slice().try_into().ok()?);
    Some(ReadState { read, index: state.index })
}

//! A group in one thread: nodes with disks, a network that drops, doubles and reorders, crashes that lose data that was not made
//! durable. A seed decides everything. The invariants are checked after every step.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use raft::{
    Change, Config, Effects, Entry, Membership, Message, Node, Outcome, Persist, Role, Snapshot, Stored,
};

/// A small generator, the same on every machine.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// An injected bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// None.
    None,
    /// The vote is not written.
    VoteForgotten,
    /// Messages leave before entries are durable.
    SaidBeforeDurable,
}

/// A node's state machine: the commands that it applied, with their indexes.
type State = Vec<(u64, u64)>;

#[derive(Default)]
pub struct Disk {
    pub stored: Stored,
}

impl Disk {
    fn write(&mut self, persist: &Persist, bug: Bug) {
        if let Some(snapshot) = &persist.snapshot {
            self.stored.entries.clear();
            self.stored.snapshot = Some(snapshot.clone());
            self.stored.hard_state.commit = self.stored.hard_state.commit.max(snapshot.index);
        }
        if let Some(first) = persist.entries.first() {
            self.stored.entries.retain(|entry| entry.index < first.index);
            self.stored.entries.extend(persist.entries.iter().cloned());
        }
        if let Some(mut hard_state) = persist.hard_state {
            if bug == Bug::VoteForgotten {
                hard_state.vote = 0;
            }
            self.stored.hard_state = hard_state;
        }
    }

    fn compact(&mut self, snapshot: Snapshot) {
        self.stored.entries.retain(|entry: &Entry| entry.index > snapshot.index);
        self.stored.snapshot = Some(snapshot);
    }
}

pub struct Host {
    pub disk: Disk,
    /// Sent, but not durable yet: the writes that a node with the injected bug owes.
    unwritten: Vec<Persist>,
    pub node: Option<Node>,
    pub state: State,
    pub reads: Vec<(u64, u64)>,
    starts: u64,
}

/// The group, and the checkers' records of it.
pub struct World {
    pub rng: Rng,
    seed: u64,
    bug: Bug,
    pub hosts: BTreeMap<u64, Host>,
    pub network: Vec<(u64, u64, Vec<u8>)>,
    /// Pairs that do not hear each other.
    pub parted: BTreeSet<(u64, u64)>,
    pub lossy: bool,
    /// The first entry that was applied at each index.
    decided: BTreeMap<u64, String>,
    leaders: BTreeMap<u64, u64>,
    next_command: u64,
    next_id: u64,
    /// Commands that a leader saw applied: promised to a client.
    acknowledged: BTreeSet<u64>,
    /// Reads under way: the entries acknowledged before each.
    reads: BTreeMap<u64, (u64, u64)>,
    next_read: u64,
    pub violation: Option<String>,
    pub snapshots_installed: u64,
    pub memberships: u64,
    /// A digest of everything that was sent, to compare two runs.
    pub digest: u64,
}

impl World {
    /// A group of `count` voters, started from a snapshot that names them.
    pub fn new(seed: u64, count: u64, bug: Bug) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            seed,
            bug,
            hosts: BTreeMap::new(),
            network: Vec::new(),
            parted: BTreeSet::new(),
            lossy: true,
            decided: BTreeMap::new(),
            leaders: BTreeMap::new(),
            next_command: 1,
            next_id: count + 1,
            acknowledged: BTreeSet::new(),
            reads: BTreeMap::new(),
            next_read: 1,
            violation: None,
            snapshots_installed: 0,
            memberships: 0,
            digest: 0,
        };
        let membership = Membership { voters: (1..=count).collect(), ..Membership::default() };
        let snapshot = Snapshot { index: 1, term: 1, membership, data: Bytes::new() };
        for id in 1..=count {
            let stored = Stored { snapshot: Some(snapshot.clone()), ..Stored::default() };
            world.add_host(id, stored);
        }
        world
    }

    pub fn add_host(&mut self, id: u64, stored: Stored) {
        let host = Host {
            disk: Disk { stored },
            unwritten: Vec::new(),
            node: None,
            state: State::new(),
            reads: Vec::new(),
            starts: 0,
        };
        self.hosts.insert(id, host);
        self.start(id);
    }

    pub fn start(&mut self, id: u64) {
        let seed = self.seed;
        let host = self.hosts.get_mut(&id).unwrap();
        if host.node.is_some() {
            return;
        }
        host.starts += 1;
        let config = Config {
            kept_entries: 5,
            snapshot_entries: 20,
            message_bytes_max: 100,
            in_flight_max: 4,
            ..Config::new(id, seed ^ (host.starts << 48))
        };
        let snapshot = host.disk.stored.snapshot.as_ref();
        host.state = snapshot.map(|snapshot| decode_state(&snapshot.data)).unwrap_or_default();
        match Node::new(config, host.disk.stored.clone()) {
            Ok(mut node) => {
                node.rest_learners(seed % 3 != 0);
                host.node = Some(node);
            }
            Err(error) => self.violation = Some(format!("node {id} does not start: {error}")),
        }
    }

    pub fn crash(&mut self, id: u64) {
        let host = self.hosts.get_mut(&id).unwrap();
        host.node = None;
        host.unwritten.clear();
    }

    pub fn leader(&self) -> Option<u64> {
        let leads =
            |host: &Host| host.node.as_ref().filter(|node| node.is_leader()).map(|node| node.status().term);
        let leaders = self.hosts.iter().filter_map(|(id, host)| Some((leads(host)?, *id)));
        leaders.max().map(|(_, id)| id)
    }

    pub fn on<R>(&mut self, id: u64, act: impl FnOnce(&mut Node) -> R) -> Option<R> {
        self.hosts.get_mut(&id)?.node.as_mut().map(act)
    }

    /// Carries out a node's effects. With `crash_chance` per cent, it dies at one of the critical points.
    pub fn pump(&mut self, id: u64, crash_chance: u64) {
        while let Some(batch) = self.on(id, Node::take).flatten() {
            if self.rng.percent(crash_chance) {
                return self.crash(id);
            }
            let bug = self.bug;
            let late = bug == Bug::SaidBeforeDurable && self.rng.percent(50);
            let host = self.hosts.get_mut(&id).unwrap();
            if late {
                host.unwritten.push(batch.persist().clone());
            } else {
                for persist in host.unwritten.drain(..) {
                    host.disk.write(&persist, bug);
                }
                host.disk.write(batch.persist(), bug);
            }
            if self.rng.percent(crash_chance) {
                return self.crash(id);
            }
            let effects = self.on(id, |node| node.persisted(batch)).unwrap();
            self.carry_out(id, effects);
            self.look(id);
        }
        self.snapshot_when_due(id, crash_chance);
    }

    fn carry_out(&mut self, id: u64, effects: Effects) {
        let host = self.hosts.get_mut(&id).unwrap();
        if let Some(snapshot) = &effects.install {
            host.state = decode_state(&snapshot.data);
            self.snapshots_installed += 1;
        }
        let leads = host.node.as_ref().unwrap().is_leader();
        for entry in &effects.committed {
            let text = format!("term {} {:?}", entry.term, entry.outcome);
            let first = self.decided.entry(entry.index).or_insert_with(|| text.clone());
            if *first != text {
                self.violation = Some(format!("entry {}: {first} and at node {id} {text}", entry.index));
            }
            match &entry.outcome {
                Outcome::Command(command) => {
                    let command = u64::from_be_bytes(command[..].try_into().unwrap());
                    host.state.push((entry.index, command));
                    if leads {
                        self.acknowledged.insert(command);
                    }
                }
                Outcome::Membership(_) => self.memberships += 1,
                Outcome::Empty => {}
            }
        }
        for read in effects.reads {
            let (asked_at, acknowledged) = self.reads[&read.read];
            assert_eq!(asked_at, id);
            if read.index < acknowledged {
                self.violation =
                    Some(format!("a read at {id} got index {}, {acknowledged} was acknowledged", read.index));
            }
            host.reads.push((read.read, read.index));
        }
        for message in effects.messages {
            let bytes = message.encode();
            let again = Message::decode(&bytes).expect("an encoded message can be decoded");
            assert_eq!(again.encode(), bytes, "decoding and encoding give the same bytes");
            for byte in &bytes {
                self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
            self.network.push((message.from(), message.to(), bytes));
        }
    }

    /// One leader a term.
    fn look(&mut self, id: u64) {
        let Some(status) = self.on(id, |node| node.status()) else { return };
        if status.role == Role::Leader {
            let first = *self.leaders.entry(status.term).or_insert(id);
            if first != id {
                self.violation = Some(format!("nodes {first} and {id} lead in term {}", status.term));
            }
        }
    }

    fn snapshot_when_due(&mut self, id: u64, crash_chance: u64) {
        if !self.on(id, Node::snapshot_due).unwrap_or(false) {
            return;
        }
        let bug = self.bug;
        let host = self.hosts.get_mut(&id).unwrap();
        let node = host.node.as_mut().unwrap();
        let snapshot = node.snapshot(encode_state(&host.state));
        let log = node.log_after(snapshot.index);
        host.disk.compact(snapshot.clone());
        if bug == Bug::None {
            assert_eq!(log, (host.disk.stored.hard_state, host.disk.stored.entries.clone()));
        }
        if self.rng.percent(crash_chance) {
            return self.crash(id);
        }
        self.on(id, |node| node.compact(snapshot));
    }

    pub fn tick(&mut self, id: u64, crash_chance: u64) {
        self.on(id, Node::tick);
        self.pump(id, crash_chance);
    }

    /// Delivers one message of the network, chosen at random; perhaps not, perhaps twice.
    pub fn deliver(&mut self, crash_chance: u64) {
        if self.network.is_empty() {
            return;
        }
        // Mostly the oldest few: wild reordering alone would let nothing happen.
        let reach = self.network.len().min(if self.lossy { 8 } else { 1 }) as u64;
        let at = self.rng.below(reach) as usize;
        let (from, to, bytes) = self.network.remove(at);
        if self.parted.contains(&(from, to)) || (self.lossy && self.rng.percent(5)) {
            return;
        }
        if self.lossy && self.rng.percent(5) {
            self.network.push((from, to, bytes.clone()));
        }
        let message = Message::decode(&bytes).expect("an encoded message can be decoded");
        let told = self.on(to, |node| node.receive(message));
        if let Some(Err(error)) = told
            && !matches!(error, raft::Unacceptable::UnknownPeer { .. })
        {
            self.violation = Some(format!("node {to} refuses a message of {from}: {error}"));
        }
        self.pump(to, crash_chance);
    }

    pub fn propose(&mut self, id: u64) -> bool {
        let command = self.next_command;
        let bytes = Bytes::copy_from_slice(&command.to_be_bytes());
        let taken = self.on(id, |node| node.propose(bytes)).is_some_and(|result| result.is_ok());
        self.next_command += u64::from(taken);
        taken
    }

    /// Starts a read; everything applied anywhere by now must lie before it.
    pub fn read(&mut self, id: u64) -> Option<u64> {
        let read = self.next_read;
        self.next_read += 1;
        let acknowledged = self.decided.last_key_value().map_or(0, |(index, _)| *index);
        self.reads.insert(read, (id, acknowledged));
        self.on(id, |node| node.read(read))?.ok()?;
        Some(read)
    }

    /// Changes the group through its leader, at random.
    pub fn change(&mut self) {
        let Some(leader) = self.leader() else { return };
        let Some(membership) = self.on(leader, |node| node.membership().clone()) else { return };
        let pick = |nodes: &BTreeSet<u64>, rng: &mut Rng| {
            let at = rng.below(nodes.len().max(1) as u64) as usize;
            nodes.iter().nth(at).copied()
        };
        let voter = pick(&membership.voters, &mut self.rng).unwrap();
        let changes = match self.rng.below(5) {
            0 | 1 if membership.all().len() < 6 => {
                let id = self.next_id;
                self.next_id += 1;
                self.add_host(id, Stored::default());
                vec![Change::AddLearner(id)]
            }
            2 if membership.voters.len() > 2 => vec![Change::Remove(voter)],
            3 if membership.voters.len() > 2 => match pick(&membership.learners, &mut self.rng) {
                Some(learner) => vec![Change::AddVoter(learner), Change::Remove(voter)],
                None => vec![Change::AddLearner(voter)],
            },
            _ => match pick(&membership.learners, &mut self.rng) {
                Some(learner) => vec![Change::AddVoter(learner)],
                None => return,
            },
        };
        self.on(leader, |node| node.change_membership(&changes));
        self.pump(leader, 0);
    }

    /// Faults stop: all nodes are up, every message arrives in order. All must reach the same state.
    pub fn settle(&mut self) {
        self.lossy = false;
        self.parted.clear();
        for id in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.start(id);
        }
        for round in 0..2_000 {
            if self.violation.is_some() {
                return;
            }
            for id in self.hosts.keys().copied().collect::<Vec<_>>() {
                self.tick(id, 0);
            }
            for _ in 0..10_000 {
                if self.network.is_empty() {
                    break;
                }
                self.deliver(0);
            }
            let Some(leader) = self.leader() else { continue };
            // Again and again: the first leader may be one of a stale term.
            if round % 200 == 0 {
                self.propose(leader);
                self.pump(leader, 0);
            } else if self.agreed(leader) {
                return self.look_for_lost(leader);
            }
        }
        let stands = |(id, host): (&u64, &Host)| {
            let node = host.node.as_ref().expect("everybody is up");
            format!("\n  {id}: {:?}, {:?}, applied {}", node.status(), node.membership(), host.state.len())
        };
        let stands: String = self.hosts.iter().map(stands).collect();
        self.violation = Some(format!("the group does not come to rest after faults stopped:{stands}"));
    }

    fn agreed(&mut self, leader: u64) -> bool {
        let node = self.hosts[&leader].node.as_ref().unwrap();
        let (applied, membership) = (node.status().applied, node.membership().clone());
        let state = &self.hosts[&leader].state;
        let last = self.next_command - 1;
        state.last().is_some_and(|(_, command)| *command == last)
            && !membership.is_joint()
            && membership.all().iter().all(|id| {
                let host = &self.hosts[id];
                host.node.as_ref().is_some_and(|node| node.status().applied == applied)
                    && host.state == *state
            })
    }

    fn look_for_lost(&mut self, leader: u64) {
        let state: BTreeSet<u64> = self.hosts[&leader].state.iter().map(|(_, command)| *command).collect();
        if let Some(lost) = self.acknowledged.difference(&state).next() {
            self.violation = Some(format!("command {lost} was acknowledged and is gone"));
        }
    }
}

pub fn encode_state(state: &State) -> Bytes {
    let mut out = Vec::with_capacity(16 * state.len());
    for (index, command) in state {
        out.extend_from_slice(&index.to_be_bytes());
        out.extend_from_slice(&command.to_be_bytes());
    }
    out.into()
}

pub fn decode_state(bytes: &[u8]) -> State {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    bytes.chunks(16).map(|pair| (number(&pair[..8]), number(&pair[8..]))).collect()
}

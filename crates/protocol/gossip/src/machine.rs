//! The state machine: a node's knowledge of all others, and its reaction to each event.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use topology::HostId;

use crate::endpoint::{self, Endpoint, Key, States, Versioned, status};
use crate::exchange::{self, Differences, FIRST, LAST};
use crate::own::{self, Double, Verdict};
use crate::roster::{self, Known, Lacks, Place};
use crate::{ArrivalWindow, Config, Delta, Digest, Message, Request, Roster, selection};

/// A node that finds a process ended notifies so many others: with 12, one node in 160,000 is notified by nobody.
const GONE_FANOUT: usize = 12;
/// Memory of a value besides its bytes.
const STATE_MEMORY: usize = 96;
/// Hosts in quarantine that are remembered.
const QUARANTINE_MAX: usize = 16_384;
/// The same warning is not given again within this time.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The time at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Never goes back.
    pub monotonic: Duration,
    /// Seconds since 1970; may be wrong.
    pub wall_seconds: u64,
}

/// An event of a node.
#[derive(Clone, Debug)]
pub enum Event {
    /// Once a second.
    Tick,
    /// Another node's message.
    Received(Message),
    /// The end of a probe.
    Echoed {
        /// The target of the probe.
        host: HostId,
        /// Which of its lives.
        generation: u64,
        /// Whether it answered.
        reached: bool,
    },
    /// The host's address refuses connections, and again after a moment: no process is there any more. A process that is
    /// paused or cut off refuses nothing.
    Gone {
        /// Which host.
        host: HostId,
        /// Which of its lives.
        generation: u64,
    },
    /// This node says something new of itself.
    Set(Vec<(Key, Bytes)>),
    /// The cluster's members and their last known addresses, this node included. A former member is
    /// forgotten, and not listened to for a while. The first time in its process a node sends to all of them at once, so that
    /// they know that it is back before it serves.
    Members(BTreeMap<HostId, SocketAddr>),
    /// This node stops, and announces it. It does nothing afterwards.
    Stop,
}

/// An action of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a message; it may be lost.
    Send {
        /// The target.
        to: SocketAddr,
        /// The message.
        message: Message,
    },
    /// Ask a host for an echo and tell by [`Event::Echoed`]: before it counts as alive it is reached once.
    Probe {
        /// The target's host id.
        host: HostId,
        /// The target's address.
        address: SocketAddr,
        /// Which of its lives.
        generation: u64,
    },
    /// Another node found that a host's process has ended: look at its address, and tell by [`Event::Gone`] if it refuses.
    Suspect {
        /// The target's host id.
        host: HostId,
        /// The target's address.
        address: SocketAddr,
        /// Which of its lives.
        generation: u64,
    },
    /// Something about an endpoint is new.
    Changed {
        /// The endpoint.
        host: HostId,
        /// The change.
        change: Change,
    },
    /// This node continues in a later generation; the next start must be later still.
    Generation(u64),
    /// Another node lives with this one's host id since a later time: one of the two has to stop.
    HostIdTaken {
        /// The address of the other one.
        address: SocketAddr,
        /// Its generation.
        generation: u64,
    },
    /// Something was not listened to, and an operator should know why.
    Refused(Refusal),
}

/// A change of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not known.
    Found,
    /// It has a later generation.
    Restarted,
    /// It was reached.
    Alive,
    /// It is down.
    Down(DownReason),
    /// It says something else.
    States,
    /// It is not remembered any more.
    Forgotten,
}

/// Why something was not listened to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A node of another cluster.
    #[error(
        "the node at {from} gossips for cluster '{found}'; remove it from this cluster's seeds, or correct its cluster_name"
    )]
    Cluster {
        /// Its address.
        from: SocketAddr,
        /// Its cluster.
        found: String,
    },
    /// A generation from far in the future.
    #[error(
        "generation {generation} of the node at {address} lies more than a year ahead; is the clock of one of the two wrong?"
    )]
    Generation {
        /// The host id.
        host: HostId,
        /// Its address.
        address: SocketAddr,
        /// The generation.
        generation: u64,
    },
    /// More endpoints than this node has memory for; members are never refused.
    #[error(
        "the node at {address} is not remembered, because {endpoints} others fill the memory for endpoints"
    )]
    Full {
        /// The host id.
        host: HostId,
        /// Its address.
        address: SocketAddr,
        /// How many are.
        endpoints: usize,
    },
}

/// Why an endpoint is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DownReason {
    /// Discovered, but not reached yet.
    NotReached,
    /// It was silent for too long, or its address refused connections.
    Convicted,
    /// It said good-bye.
    Shutdown,
}

/// How an endpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Reached, and alive since.
    Alive,
    /// Not so.
    Down(DownReason),
}

/// The state of another node.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// How it stands.
    pub standing: Standing,
    /// Since when, on the monotonic clock.
    pub since: Duration,
    window: ArrivalWindow,
    /// The fingerprint of its generation.
    life: u64,
    /// [`Endpoint::version`].
    version: u64,
    /// When its heartbeat last grew.
    heard: Duration,
    /// When an echo was asked for, while no answer came.
    probed: Option<Duration>,
}

impl Peer {
    fn new(endpoint: Endpoint, now: Duration) -> Self {
        let standing = Standing::Down(DownReason::NotReached);
        let (life, version) = (roster::life(&endpoint), endpoint.version());
        let window = ArrivalWindow::default();
        Self { endpoint, standing, since: now, window, life, version, heard: now, probed: None }
    }

    /// About how many bytes it takes.
    fn memory(&self) -> usize {
        let states = &self.endpoint.states;
        Config::PEER_MEMORY + states.values().map(|state| STATE_MEMORY + state.value.len()).sum::<usize>()
    }

    fn known(&self) -> Known<'_> {
        Known { endpoint: &self.endpoint, life: self.life, version: self.version }
    }

    fn stand(&mut self, standing: Standing, now: Duration) {
        (self.standing, self.since) = (standing, now);
        self.window = ArrivalWindow::default();
    }
}

/// Figures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Rounds of gossip.
    pub rounds: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Messages of another cluster, absurd generations, endpoints for which there was no room.
    pub refused: u64,
    /// News of hosts in quarantine.
    pub quarantined: u64,
    /// Deltas that left out values before their base, which this node lacked.
    pub incomplete: u64,
    /// Pauses of this machine that were held against nobody.
    pub pauses: u64,
}

/// Gossip of one node.
#[derive(Debug)]
pub struct Gossip {
    config: Config,
    own: Endpoint,
    /// The newest version of this node.
    version: u64,
    peers: BTreeMap<HostId, Peer>,
    /// Memory of the peers, in bytes.
    memory: usize,
    members: Option<BTreeMap<HostId, SocketAddr>>,
    /// Hosts not listened to, and since when.
    quarantine: BTreeMap<HostId, Duration>,
    double: Option<Double>,
    /// When the last event was.
    last_step: Option<Duration>,
    /// When each kind of warning was last given.
    warned: [Option<Duration>; 3],
    stopped: bool,
    stats: Stats,
}

impl Gossip {
    /// A node that begins `generation` at `address` (its address for others).
    ///
    /// # Panics
    ///
    /// When the bounds of the configuration are too small, or the values too many or too long.
    pub fn new(
        config: Config,
        host: HostId,
        generation: u64,
        address: SocketAddr,
        states: Vec<(Key, Bytes)>,
    ) -> Self {
        assert!(config.message_bytes_max >= Config::MESSAGE_BYTES_LEAST, "messages hold an endpoint");
        assert!(config.memory_max >= Config::PEER_MEMORY, "another node besides this one");
        let own = Endpoint { host, generation, address, heartbeat: 1, states: Arc::default() };
        let mut gossip = Self {
            config,
            own,
            version: 1,
            peers: BTreeMap::new(),
            memory: 0,
            members: None,
            quarantine: BTreeMap::new(),
            double: None,
            last_step: None,
            warned: [None; 3],
            stopped: false,
            stats: Stats::default(),
        };
        gossip.set(states);
        gossip
    }

    /// This node's own endpoint.
    pub fn own(&self) -> &Endpoint {
        &self.own
    }

    /// The other nodes that are known, ascending by host id.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }

    /// The state of another node.
    pub fn peer(&self, host: HostId) -> Option<&Peer> {
        self.peers.get(&host)
    }

    /// How suspicious the silence of a node is; 0 while it is not alive.
    pub fn phi(&self, host: HostId, now: Duration) -> f64 {
        self.peers.get(&host).map_or(0.0, |peer| peer.window.phi(now, &self.config.detector))
    }

    /// Figures since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Takes an event in; `below(n)` is a random number below n.
    pub fn step(&mut self, event: Event, now: Now, below: &mut dyn FnMut(u64) -> u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.stopped {
            return effects;
        }
        self.notice_pause(now.monotonic);
        match event {
            Event::Tick => self.tick(now, below, &mut effects),
            Event::Received(message) => {
                self.stats.received += 1;
                self.receive(message, now, &mut effects);
            }
            Event::Echoed { host, generation, reached } => {
                self.echoed(host, generation, reached, now.monotonic, &mut effects);
            }
            Event::Gone { host, generation } => {
                self.gone(host, generation, now.monotonic, below, &mut effects);
            }
            Event::Set(values) => self.set(values),
            Event::Members(members) => self.set_members(members, now.monotonic, &mut effects),
            Event::Stop => self.stop(&mut effects),
        }
        let sent = effects.iter().filter(|effect| matches!(effect, Effect::Send { .. })).count();
        self.stats.sent += sent as u64;
        effects
    }

    /// Time in which this machine did not even tick says nothing about others.
    fn notice_pause(&mut self, now: Duration) {
        let gap = self.last_step.replace(now).map_or(Duration::ZERO, |last| now.saturating_sub(last));
        if gap > self.config.detector.pause_max {
            self.stats.pauses += 1;
            for peer in self.peers.values_mut() {
                peer.window.excuse(gap, now);
                peer.heard = (peer.heard + gap).min(now);
            }
        }
    }

    fn tick(&mut self, now: Now, below: &mut dyn FnMut(u64) -> u64, effects: &mut Vec<Effect>) {
        self.stats.rounds += 1;
        self.version += 1;
        self.own.heartbeat = self.version;
        self.convict(now.monotonic, effects);
        self.forget_strangers(now.monotonic, effects);
        let quarantine = self.config.quarantine;
        self.quarantine.retain(|_, since| now.monotonic.saturating_sub(*since) <= quarantine);
        let silence_max = self.config.double_silence_max;
        let verdict = own::judge_silence(&self.own, &mut self.double, silence_max, now.monotonic);
        self.follow(verdict, effects);
        let targets = self.targets(below);
        self.turn_to(&targets, effects);
    }

    /// Begins an exchange with each of these.
    fn turn_to(&self, targets: &[SocketAddr], effects: &mut Vec<Effect>) {
        if targets.is_empty() {
            return;
        }
        let Config { cluster, message_bytes_max, .. } = &self.config;
        let known = self.known_between(FIRST, LAST);
        let messages = match known.len() >= self.config.roster_least {
            true => roster::versions(cluster, self.own.address, &known, *message_bytes_max),
            false => self.syns(FIRST, LAST),
        };
        for to in targets {
            effects.extend(messages.iter().map(|message| Effect::Send { to: *to, message: message.clone() }));
        }
    }

    /// The digests of a range.
    fn syns(&self, first: HostId, last: HostId) -> Vec<Message> {
        let Config { cluster, message_bytes_max, .. } = &self.config;
        let digests: Vec<Digest> =
            self.known_between(first, last).iter().map(|known| exchange::digest(known.endpoint)).collect();
        exchange::syns(cluster, self.own.address, (first, last), &digests, *message_bytes_max)
    }

    /// Everybody in a range, this node included, ascending by host id.
    fn known_between(&self, first: HostId, last: HostId) -> Vec<Known<'_>> {
        let mut all = Vec::new();
        if first > last {
            return all;
        }
        all.reserve(self.peers.len() + 1);
        let own = self.own.host;
        if own < first || last < own {
            all.extend(self.peers.range(first..=last).map(|(_, peer)| peer.known()));
            return all;
        }
        all.extend(self.peers.range(first..own).map(|(_, peer)| peer.known()));
        all.push(Known { endpoint: &self.own, life: roster::life(&self.own), version: self.own.version() });
        all.extend(self.peers.range(own..=last).map(|(_, peer)| peer.known()));
        all
    }

    fn targets(&self, below: &mut dyn FnMut(u64) -> u64) -> Vec<SocketAddr> {
        let (mut live, mut down) = (Vec::new(), Vec::new());
        for peer in self.peers.values() {
            match peer.standing {
                Standing::Alive => live.push(peer.endpoint.address),
                Standing::Down(_) => down.push(peer.endpoint.address),
            }
        }
        let unknown = self
            .members
            .iter()
            .flatten()
            .filter(|(host, _)| **host != self.own.host && !self.peers.contains_key(host));
        down.extend(unknown.map(|(_, address)| *address));
        let seeds: Vec<SocketAddr> =
            self.config.seeds.iter().copied().filter(|seed| *seed != self.own.address).collect();
        selection::targets(&live, &down, &seeds, below)
    }

    fn convict(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let detector = self.config.detector;
        for (host, peer) in &mut self.peers {
            if peer.standing == Standing::Alive && peer.window.phi(now, &detector) > detector.threshold {
                peer.stand(Standing::Down(DownReason::Convicted), now);
                effects.push(Effect::Changed { host: *host, change: Change::Down(DownReason::Convicted) });
            }
        }
    }

    fn forget_strangers(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let Some(members) = &self.members else { return };
        let silence_max = self.config.stranger_silence_max;
        let silent =
            |peer: &Peer| peer.standing != Standing::Alive && now.saturating_sub(peer.heard) > silence_max;
        let gone: Vec<HostId> = self
            .peers
            .iter()
            .filter(|(host, peer)| !members.contains_key(host) && silent(peer))
            .map(|(host, _)| *host)
            .collect();
        for host in gone {
            self.forget(host, now, effects);
        }
    }

    fn forget(&mut self, host: HostId, now: Duration, effects: &mut Vec<Effect>) {
        if self.quarantine.len() >= QUARANTINE_MAX {
            let oldest = self.quarantine.iter().min_by_key(|(_, since)| **since).map(|(host, _)| *host);
            oldest.map(|oldest| self.quarantine.remove(&oldest));
        }
        self.quarantine.insert(host, now);
        if self.remove(host) {
            effects.push(Effect::Changed { host, change: Change::Forgotten });
        }
    }

    fn set_members(
        &mut self,
        members: BTreeMap<HostId, SocketAddr>,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        for host in members.keys() {
            self.quarantine.remove(host);
        }
        let Some(before) = self.members.replace(members) else {
            let others = self.members.iter().flatten().filter(|(host, _)| **host != self.own.host);
            let addresses: Vec<SocketAddr> = others.map(|(_, address)| *address).collect();
            self.turn_to(&addresses, effects);
            return;
        };
        for host in before.into_keys() {
            let stays = self.members.iter().any(|members| members.contains_key(&host));
            if !stays && host != self.own.host {
                self.forget(host, now, effects);
            }
        }
    }

    #[expect(clippy::expect_used, reason = "this node's own values are within the limits")]
    fn set(&mut self, values: Vec<(Key, Bytes)>) {
        let states = Arc::make_mut(&mut self.own.states);
        for (key, value) in values {
            if states.get(&key).is_none_or(|state| state.value != value) {
                self.version += 1;
                states.insert(key, Versioned { version: self.version, value });
            }
        }
        endpoint::check(states).expect("this node's own values are small");
    }

    fn stop(&mut self, effects: &mut Vec<Effect>) {
        self.set(vec![(Key::STATUS, Bytes::from_static(status::SHUTDOWN.as_bytes()))]);
        let good_bye = Message::Deltas(vec![exchange::delta(&self.own, None)]);
        let live = self.peers.values().filter(|peer| peer.standing == Standing::Alive);
        effects
            .extend(live.map(|peer| Effect::Send { to: peer.endpoint.address, message: good_bye.clone() }));
        self.stopped = true;
    }

    fn receive(&mut self, message: Message, now: Now, effects: &mut Vec<Effect>) {
        match message {
            Message::Syn { cluster, reply_to, .. } | Message::Versions { cluster, reply_to, .. }
                if cluster != self.config.cluster =>
            {
                self.refuse(Refusal::Cluster { from: reply_to, found: cluster }, now.monotonic, effects);
            }
            Message::Syn { reply_to, first, last, digests, .. } => {
                self.answer(reply_to, first, last, &digests, effects);
            }
            Message::Ack { reply_to, deltas, requests } => {
                self.apply_all(deltas, now, effects);
                let asked = requests.iter().filter_map(|request| self.asked(request)).collect();
                let messages = exchange::deltas(asked, self.config.message_bytes_max);
                effects.extend(messages.into_iter().map(|message| Effect::Send { to: reply_to, message }));
            }
            Message::Deltas(deltas) => self.apply_all(deltas, now, effects),
            Message::Versions { reply_to, roster, versions, .. } => {
                self.answer_versions(reply_to, roster, &versions, effects);
            }
            Message::Beats { reply_to, roster, beats, wanted } => {
                self.receive_beats(reply_to, roster, beats, &wanted, now, effects);
            }
            Message::Gone { host, generation } => self.suspect(host, generation, effects),
        }
    }

    fn answer(
        &self,
        reply_to: SocketAddr,
        first: HostId,
        last: HostId,
        digests: &[Digest],
        effects: &mut Vec<Effect>,
    ) {
        let listened: Vec<Digest> =
            digests.iter().filter(|digest| !self.quarantine.contains_key(&digest.host)).copied().collect();
        let unknown_max = match self.members {
            // There may be room for a member.
            Some(_) => listened.len(),
            None => self.config.memory_max.saturating_sub(self.memory) / Config::PEER_MEMORY,
        };
        let known = self.known_between(first, last);
        let known = known.iter().map(|known| known.endpoint);
        let found: Differences = exchange::compare(&listened, known, unknown_max);
        let messages = exchange::acks(self.own.address, found, self.config.message_bytes_max);
        effects.extend(messages.into_iter().map(|message| Effect::Send { to: reply_to, message }));
    }

    /// A sender that knows other generations is answered with digests, which show them.
    fn answer_versions(
        &self,
        reply_to: SocketAddr,
        roster: Roster,
        versions: &[u64],
        effects: &mut Vec<Effect>,
    ) {
        let Roster { first, last, lives } = roster;
        let known = self.known_between(first, last);
        if known.len() == versions.len() && roster::fingerprint(&known) == lives {
            self.give(reply_to, roster, roster::compare(&known, versions), effects);
        } else if first <= last {
            let messages = self.syns(first, last);
            effects.extend(messages.into_iter().map(|message| Effect::Send { to: reply_to, message }));
        }
    }

    fn receive_beats(
        &mut self,
        reply_to: SocketAddr,
        roster: Roster,
        beats: Vec<Place>,
        wanted: &[Place],
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let known = self.known_between(roster.first, roster.last);
        if roster::fingerprint(&known) != roster.lives {
            return;
        }
        self.give(reply_to, roster, roster::asked(&known, wanted), effects);
        let news = beats.into_iter().filter_map(|(place, heartbeat)| {
            let Known { endpoint, version, .. } = *known.get(place as usize)?;
            let Endpoint { host, generation, address, .. } = *endpoint;
            let states = States::new();
            // The sender compared with this node's earlier state, which only grows.
            (heartbeat > version).then_some(Delta {
                host,
                generation,
                address,
                heartbeat,
                base: version,
                states,
            })
        });
        let news = news.collect();
        self.apply_all(news, now, effects);
    }

    fn give(&self, to: SocketAddr, roster: Roster, lacks: Lacks, effects: &mut Vec<Effect>) {
        let Lacks { beats, deltas, wanted } = lacks;
        if !beats.is_empty() || !wanted.is_empty() {
            let message = Message::Beats { reply_to: self.own.address, roster, beats, wanted };
            effects.push(Effect::Send { to, message });
        }
        let messages = exchange::deltas(deltas, self.config.message_bytes_max);
        effects.extend(messages.into_iter().map(|message| Effect::Send { to, message }));
    }

    fn asked(&self, request: &Request) -> Option<Delta> {
        let endpoint = match request.host == self.own.host {
            true => &self.own,
            false => &self.peers.get(&request.host)?.endpoint,
        };
        let delta = exchange::delta(endpoint, Some(request));
        (delta.heartbeat > delta.base || !delta.states.is_empty()).then_some(delta)
    }

    fn apply_all(&mut self, deltas: Vec<Delta>, now: Now, effects: &mut Vec<Effect>) {
        for delta in deltas {
            self.apply(delta, now, effects);
        }
    }

    fn apply(&mut self, delta: Delta, now: Now, effects: &mut Vec<Effect>) {
        if self.quarantine.contains_key(&delta.host) {
            self.stats.quarantined += 1;
            return;
        }
        let Delta { host, generation, address, .. } = delta;
        if generation > now.wall_seconds.saturating_add(self.config.generation_ahead_max) {
            self.refuse(Refusal::Generation { host, address, generation }, now.monotonic, effects);
            return;
        }
        if host == self.own.host {
            let verdict = own::judge(&self.own, &mut self.double, &delta, now.monotonic);
            self.follow(verdict, effects);
            return;
        }
        match self.peers.get(&host).map(|peer| (peer.endpoint.generation, peer.endpoint.address)) {
            None => self.meet(delta, now.monotonic, effects),
            Some(life) if life == (generation, address) => self.merge(delta, now.monotonic, effects),
            Some(life) if life < (generation, address) => self.restart(delta, now.monotonic, effects),
            Some(_) => {}
        }
    }

    /// A host that was not known.
    fn meet(&mut self, delta: Delta, now: Duration, effects: &mut Vec<Effect>) {
        if delta.base != 0 {
            self.stats.incomplete += 1;
            return;
        }
        let (host, address) = (delta.host, delta.address);
        let peer = Peer::new(whole(delta), now);
        if !self.make_room(host, peer.memory(), effects) {
            let refusal = Refusal::Full { host, address, endpoints: self.peers.len() };
            self.refuse(refusal, now, effects);
            return;
        }
        self.memory += peer.memory();
        self.peers.insert(host, peer);
        effects.push(Effect::Changed { host, change: Change::Found });
        self.heard(host, now, effects);
    }

    /// Whether there is room for a host: always for a member, for which strangers are forgotten, those first that were silent longest.
    fn make_room(&mut self, host: HostId, memory: usize, effects: &mut Vec<Effect>) -> bool {
        let member = self.members.as_ref().is_some_and(|members| members.contains_key(&host));
        while self.memory + memory > self.config.memory_max {
            let members = self.members.as_ref().filter(|_| member);
            let stranger = |(host, peer): &(&HostId, &Peer)| {
                peer.standing != Standing::Alive && members.is_some_and(|members| !members.contains_key(host))
            };
            let longest = self.peers.iter().filter(stranger).min_by_key(|(_, peer)| peer.heard);
            let Some(stranger) = longest.map(|(host, _)| *host) else { return member };
            self.remove(stranger);
            effects.push(Effect::Changed { host: stranger, change: Change::Forgotten });
        }
        true
    }

    fn remove(&mut self, host: HostId) -> bool {
        let removed = self.peers.remove(&host);
        self.memory -= removed.as_ref().map_or(0, Peer::memory);
        removed.is_some()
    }

    /// A host in a later generation.
    fn restart(&mut self, delta: Delta, now: Duration, effects: &mut Vec<Effect>) {
        if delta.base != 0 {
            self.stats.incomplete += 1;
            return;
        }
        let host = delta.host;
        let peer = Peer::new(whole(delta), now);
        self.remove(host);
        self.memory += peer.memory();
        self.peers.insert(host, peer);
        effects.push(Effect::Changed { host, change: Change::Restarted });
        self.heard(host, now, effects);
    }

    /// A delta of a host in the known generation.
    #[expect(clippy::expect_used, reason = "the caller has found the peer")]
    fn merge(&mut self, delta: Delta, now: Duration, effects: &mut Vec<Effect>) {
        let peer = self.peers.get_mut(&delta.host).expect("a peer that was found");
        if delta.base > peer.version {
            self.stats.incomplete += 1;
            return;
        }
        let newer: States = delta
            .states
            .into_iter()
            .filter(|(key, state)| {
                peer.endpoint.states.get(key).is_none_or(|known| known.version < state.version)
            })
            .collect();
        let changed = !newer.is_empty();
        if changed {
            let mut merged = States::clone(&peer.endpoint.states);
            merged.extend(newer);
            if endpoint::check(&merged).is_err() {
                self.stats.refused += 1;
                return;
            }
            let before = peer.memory();
            peer.endpoint.states = Arc::new(merged);
            self.memory = self.memory - before + peer.memory();
            effects.push(Effect::Changed { host: delta.host, change: Change::States });
        }
        let grew = delta.heartbeat > peer.endpoint.heartbeat;
        peer.endpoint.heartbeat = peer.endpoint.heartbeat.max(delta.heartbeat);
        peer.version = if changed { peer.endpoint.version() } else { peer.version.max(delta.heartbeat) };
        if grew || changed && peer.endpoint.is_shut_down() {
            self.heard(delta.host, now, effects);
        }
    }

    /// A host showed that it lives, or said good-bye.
    #[expect(clippy::expect_used, reason = "the caller has found the peer")]
    fn heard(&mut self, host: HostId, now: Duration, effects: &mut Vec<Effect>) {
        let peer = self.peers.get_mut(&host).expect("a peer that was found");
        peer.heard = now;
        if peer.endpoint.is_shut_down() {
            if peer.standing != Standing::Down(DownReason::Shutdown) {
                peer.stand(Standing::Down(DownReason::Shutdown), now);
                effects.push(Effect::Changed { host, change: Change::Down(DownReason::Shutdown) });
            }
            return;
        }
        if peer.standing == Standing::Alive {
            peer.window.heard(now, &self.config.detector);
            return;
        }
        let timeout = self.config.probe_timeout;
        if peer.probed.is_none_or(|asked| now.saturating_sub(asked) > timeout) {
            peer.probed = Some(now);
            let (address, generation) = (peer.endpoint.address, peer.endpoint.generation);
            effects.push(Effect::Probe { host, address, generation });
        }
    }

    fn echoed(
        &mut self,
        host: HostId,
        generation: u64,
        reached: bool,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        if peer.endpoint.generation != generation || peer.probed.take().is_none() {
            return;
        }
        let waits = peer.standing != Standing::Alive && !peer.endpoint.is_shut_down();
        if reached && waits {
            peer.stand(Standing::Alive, now);
            peer.window.heard(now, &self.config.detector);
            effects.push(Effect::Changed { host, change: Change::Alive });
        }
    }

    /// No process is at a host's address. Nodes without a connection to it would not notice: some are notified, which look for
    /// themselves and tell others.
    fn gone(
        &mut self,
        host: HostId,
        generation: u64,
        now: Duration,
        below: &mut dyn FnMut(u64) -> u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        if peer.endpoint.generation != generation || peer.standing != Standing::Alive {
            return;
        }
        peer.stand(Standing::Down(DownReason::Convicted), now);
        effects.push(Effect::Changed { host, change: Change::Down(DownReason::Convicted) });
        let live = self.peers.values().filter(|peer| peer.standing == Standing::Alive);
        let mut live: Vec<SocketAddr> = live.map(|peer| peer.endpoint.address).collect();
        for _ in 0..GONE_FANOUT.min(live.len()) {
            let to = live.swap_remove(below(live.len() as u64) as usize);
            effects.push(Effect::Send { to, message: Message::Gone { host, generation } });
        }
    }

    /// Another node says that no process is at a host's address; its word alone convicts nobody.
    fn suspect(&self, host: HostId, generation: u64, effects: &mut Vec<Effect>) {
        let Some(peer) = self.peers.get(&host) else { return };
        if peer.endpoint.generation == generation && peer.standing == Standing::Alive {
            let address = peer.endpoint.address;
            effects.push(Effect::Suspect { host, address, generation });
        }
    }

    fn follow(&mut self, verdict: Verdict, effects: &mut Vec<Effect>) {
        match verdict {
            Verdict::Nothing => {}
            Verdict::Raise(generation) => {
                assert!(generation > self.own.generation, "a generation never goes back");
                self.own.generation = generation;
                effects.push(Effect::Generation(generation));
            }
            Verdict::Taken { address, generation } => {
                effects.push(Effect::HostIdTaken { address, generation });
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal, now: Duration, effects: &mut Vec<Effect>) {
        self.stats.refused += 1;
        let [cluster, generation, full] = &mut self.warned;
        let warned = match refusal {
            Refusal::Cluster { .. } => cluster,
            Refusal::Generation { .. } => generation,
            Refusal::Full { .. } => full,
        };
        if warned.is_none_or(|last| now.saturating_sub(last) > WARNING_INTERVAL) {
            *warned = Some(now);
            effects.push(Effect::Refused(refusal));
        }
    }
}

/// All of an endpoint.
fn whole(delta: Delta) -> Endpoint {
    assert_eq!(delta.base, 0, "news that leave something out are no endpoint");
    let Delta { host, generation, address, heartbeat, states, .. } = delta;
    Endpoint { host, generation, address, heartbeat, states: Arc::new(states) }
}

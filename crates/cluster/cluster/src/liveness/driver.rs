//! The driver of gossip, on shard 0: a round a second, echoes, and a new [`Liveness`] for subscribers when something changed.
//!
//! It serves the verbs Gossip and Echo. An echo names its target's generation, so that another node, or the same one
//! after a restart, does not answer for it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use gossip::{Change, Effect, Endpoint, Event, Gossip, Key, Now, Standing, Stats};
use rpc::{Incoming, Messenger, Refusal, Target, Verb};
use rt::sync::Notify;
use rt::{ConnectOptions, Rt, ShardId, Task};
use schema::TableId;
use topology::HostId;

use crate::rollback::{Progress, RollbackGuard};

use super::clocks::Clocks;
use super::{Liveness, PeerLiveness};

/// Version of an echo's body.
const ECHO_VERSION: u8 = 1;
/// Refusals of the two verbs: bytes that are no message, an echo for somebody else, a node that stops.
const UNREADABLE: u16 = Refusal::FIRST_FREE;
const ANOTHER_LIFE: u16 = Refusal::FIRST_FREE + 1;
const STOPPING: u16 = Refusal::FIRST_FREE + 2;
/// Between two looks at a host's address.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How long a look may take; an address without a process refuses at once, unless packets are lost.
const LOOK_TIMEOUT: Duration = Duration::from_millis(400);
/// At most so many looks: a host counts as gone when two are refused, and as there at the first that is not.
const LOOKS_MAX: usize = 5;
/// A part of the interval by which rounds are shifted at random, so that nodes do not beat in step.
const JITTER: f64 = 0.1;

const _: () =
    assert!(ANOTHER_LIFE != UNREADABLE && STOPPING != ANOTHER_LIFE, "a refusal has a code of its own");
const _: () = assert!(LOOKS_MAX >= 2, "a host counts as gone when two looks are refused");

/// How the driver works.
#[derive(Clone, Debug)]
pub struct LivenessConfig {
    /// Gossip itself.
    pub gossip: gossip::Config,
    /// Between two rounds.
    pub interval: Duration,
    /// How long an echo is waited for.
    pub echo_timeout: Duration,
    /// How long a stopping node waits for the others to acknowledge.
    pub good_bye_timeout: Duration,
    /// Records how far this node's gossip comes, and remembers how far that of others came; none where nothing is recorded.
    pub rollback: Option<RollbackGuard>,
}

impl LivenessConfig {
    /// The defaults: a round a second.
    pub fn new(gossip: gossip::Config) -> Self {
        Self {
            gossip,
            interval: Duration::from_secs(1),
            echo_timeout: Duration::from_secs(2),
            good_bye_timeout: Duration::from_millis(500),
            rollback: None,
        }
    }
}

/// This node's own endpoint at its start.
#[derive(Clone, Debug)]
pub struct OwnEndpoint {
    /// Its host id.
    pub host: HostId,
    /// Later than all its lives before ([`crate::NodeIdentity::begin_life`]).
    pub generation: u64,
    /// Its address for other nodes.
    pub address: SocketAddr,
    /// The rest.
    pub states: Vec<(Key, Bytes)>,
}

/// An event that the node has to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The node runs in this generation; persist it, so that the next start is later still.
    Generation(u64),
    /// Another node lives with this one's host id, and began later: one of the two has to stop.
    HostIdTaken {
        /// The address of the other one.
        address: SocketAddr,
        /// Its generation.
        generation: u64,
    },
}

/// Gossip of this node. Cheap to clone; lives on shard 0.
#[derive(Clone)]
pub struct LivenessDriver(Rc<Inner>);

struct Inner {
    rt: Rt,
    messenger: Messenger,
    config: LivenessConfig,
    machine: RefCell<Gossip>,
    current: RefCell<Arc<Liveness>>,
    changed: Notify,
    notices: Box<dyn Fn(Notice)>,
    clocks: RefCell<Clocks>,
    /// Hosts whose addresses are being looked at, because a connection to them broke.
    suspected: RefCell<BTreeSet<HostId>>,
    /// The cluster's members.
    members: RefCell<BTreeSet<HostId>>,
    /// Nodes that asked this process for an echo, and so see this node as alive.
    reached_by: RefCell<BTreeSet<HostId>>,
    ticking: RefCell<Option<Task<()>>>,
    /// The others know that this node's gossip is not recorded.
    unrecorded: Cell<bool>,
    stopped: Cell<bool>,
}

impl LivenessDriver {
    /// Serves the verbs of gossip and begins its rounds. `notices` gets the events that the node has to act upon.
    ///
    /// # Panics
    /// On another shard than 0, or when the messenger serves one of the verbs already.
    pub fn start(
        rt: &Rt,
        messenger: &Messenger,
        config: LivenessConfig,
        own: OwnEndpoint,
        notices: impl Fn(Notice) + 'static,
    ) -> Self {
        assert_eq!(rt.shard(), ShardId(0), "gossip lives on shard 0");
        let OwnEndpoint { host, generation, address, mut states } = own;
        let unrecorded = states_are_unrecorded(&config, generation, states.len());
        if unrecorded {
            states.insert(0, unrecorded_state(true));
        }
        let machine = Gossip::new(config.gossip.clone(), host, generation, address, states);
        let current = RefCell::new(Arc::new(describe(&machine, rt, 1)));
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            messenger: messenger.clone(),
            config,
            machine: RefCell::new(machine),
            current,
            changed: Notify::new(),
            notices: Box::new(notices),
            clocks: RefCell::default(),
            suspected: RefCell::default(),
            members: RefCell::default(),
            reached_by: RefCell::default(),
            ticking: RefCell::default(),
            unrecorded: Cell::new(unrecorded),
            stopped: Cell::new(false),
        });
        inner.serve();
        let weak = Rc::downgrade(&inner);
        messenger.on_lost(move |address| {
            if let Some(inner) = weak.upgrade() {
                inner.suspect(address);
            }
        });
        let weak = Rc::downgrade(&inner);
        *inner.ticking.borrow_mut() = Some(rt.spawn(Verb::Gossip.group(), rounds(rt.clone(), weak)));
        Self(inner)
    }

    /// The current state, heartbeats included.
    pub fn snapshot(&self) -> Liveness {
        describe(&self.0.machine.borrow(), &self.0.rt, self.0.current.borrow().version)
    }

    /// The state at the last change.
    pub fn current(&self) -> Arc<Liveness> {
        self.0.current.borrow().clone()
    }

    /// Waits for a value that is newer than `version`.
    pub async fn newer_than(&self, version: u64) -> Arc<Liveness> {
        loop {
            let notified = self.0.changed.notified();
            let current = self.current();
            if current.version > version {
                return current;
            }
            notified.await;
        }
    }

    /// Figures since the start.
    pub fn stats(&self) -> Stats {
        self.0.machine.borrow().stats()
    }

    /// How suspicious the silence of a node is; 0 while it is down.
    pub fn phi(&self, host: HostId) -> f64 {
        self.0.machine.borrow().phi(host, monotonic(&self.0.rt))
    }

    /// Whether a node has reached this one since its start: from then on it counts this one as alive. When that becomes true
    /// of a node, there is a newer value.
    pub fn is_reached_by(&self, host: HostId) -> bool {
        self.0.reached_by.borrow().contains(&host)
    }

    /// This node says something new of itself; it travels with the next rounds.
    pub fn set(&self, values: Vec<(Key, Bytes)>) {
        self.0.step(Event::Set(values));
        self.0.publish();
    }

    /// The cluster's members and their last known addresses, this node included.
    pub fn set_members(&self, members: BTreeMap<HostId, SocketAddr>) {
        self.0.clocks.borrow_mut().retain(|host| members.contains_key(&host));
        self.0.reached_by.borrow_mut().retain(|host| members.contains_key(host));
        if let Some(guard) = &self.0.config.rollback {
            guard.retain(|host| members.contains_key(&host));
        }
        *self.0.members.borrow_mut() = members.keys().copied().collect();
        self.0.step(Event::Members(members));
    }

    /// Announces to the others that this node is down from now on, and waits a moment for their answers.
    pub async fn stop(&self) {
        let inner = &self.0;
        if inner.stopped.replace(true) {
            return;
        }
        drop(inner.ticking.borrow_mut().take());
        inner.tell_if_unrecorded(&Event::Stop);
        let deadline = inner.rt.now() + inner.config.good_bye_timeout;
        let calls = inner.advance(Event::Stop).into_iter().filter_map(|effect| match effect {
            Effect::Send { to, message } => {
                let body = body(inner.rt.wall_micros(), &message);
                Some(inner.messenger.call(Target::Address(to), Verb::Gossip, body, deadline))
            }
            _ => None,
        });
        // A node that was not reached convicts this node, or learns it from another.
        join_all(calls).await;
    }
}

/// A round at each interval, until the driver is gone.
async fn rounds(rt: Rt, driver: Weak<Inner>) {
    loop {
        let Some(interval) = driver.upgrade().map(|inner| inner.config.interval) else { return };
        let permille = rt.random_below(1_000) as f64 / 1_000.0;
        rt.sleep(interval.mul_f64(1.0 - JITTER / 2.0 + JITTER * permille)).await;
        let Some(inner) = driver.upgrade() else { return };
        inner.record().await;
        inner.step(Event::Tick);
    }
}

impl Inner {
    fn serve(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        self.messenger.serve(Verb::Gossip, move |incoming: Incoming| {
            let answer = weak.upgrade().map_or(Err(gone()), |inner| inner.receive(&incoming));
            async move { answer }
        });
        let weak = Rc::downgrade(self);
        self.messenger.serve(Verb::Echo, move |incoming: Incoming| {
            let answer = weak.upgrade().map_or(Err(gone()), |inner| inner.echo(&incoming));
            async move { answer }
        });
    }

    fn receive(self: &Rc<Self>, incoming: &Incoming) -> Result<Bytes, Refusal> {
        let unreadable = |error: &dyn std::fmt::Display| {
            tracing::debug!(from = %name(incoming.from), address = %incoming.address, %error, "gossip that cannot be read");
            Refusal::new(UNREADABLE, error.to_string())
        };
        let (sent, message) =
            incoming.body.split_first_chunk().ok_or_else(|| unreadable(&"it has no time"))?;
        let message = gossip::decode(message).map_err(|error| unreadable(&error))?;
        self.compare_clocks(incoming, i64::from_be_bytes(*sent));
        self.step(Event::Received(message));
        Ok(Bytes::new())
    }

    fn compare_clocks(&self, incoming: &Incoming, sent: i64) {
        let (ours, monotonic) = (self.rt.wall_micros(), monotonic(&self.rt));
        let ahead = self.clocks.borrow_mut().heard(incoming.from, sent, ours, monotonic);
        if let Some(ahead) = ahead {
            tracing::warn!(
                "the clock of node {} at {} is {:.1} s ahead of this one's; of two writes the one with the later clock wins: set the clocks by NTP",
                name(incoming.from),
                incoming.address,
                ahead.as_secs_f64()
            );
        }
    }

    /// Answers an echo that is meant for this generation of this node.
    fn echo(&self, incoming: &Incoming) -> Result<Bytes, Refusal> {
        if self.stopped.get() {
            return Err(gone());
        }
        let own = (self.machine.borrow().own().host, self.machine.borrow().own().generation);
        if incoming.body != echo_body(own.0, own.1) {
            return Err(Refusal::new(
                ANOTHER_LIFE,
                "the echo is meant for another node, or another generation",
            ));
        }
        if self.reached_by.borrow_mut().insert(incoming.from) {
            self.publish();
        }
        Ok(incoming.body.clone())
    }

    fn advance(&self, event: Event) -> Vec<Effect> {
        let rt = &self.rt;
        let wall_seconds = u64::try_from(rt.wall_micros() / 1_000_000).unwrap_or(0);
        let now = Now { monotonic: monotonic(rt), wall_seconds };
        self.machine.borrow_mut().step(event, now, &mut |bound| rt.random_below(bound))
    }

    /// Records more versions when few are left, and remembers how far the others have come.
    async fn record(self: &Rc<Self>) {
        let Some(guard) = &self.config.rollback else { return };
        self.remember(guard);
        let told = progress(&self.machine.borrow());
        if !guard.is_low(told) || !guard.record(told).await {
            return;
        }
        // While the disk was slow another generation may have begun, or more versions than were recorded.
        let told = progress(&self.machine.borrow());
        if !guard.is_low(told) && self.unrecorded.replace(false) {
            self.step(Event::Set(vec![unrecorded_state(false)]));
        }
    }

    /// Remembers the members' versions, where their disks record them.
    fn remember(&self, guard: &RollbackGuard) {
        let (machine, members) = (self.machine.borrow(), self.members.borrow());
        let recorded = |endpoint: &Endpoint| {
            members.contains(&endpoint.host) && endpoint.get(Key::UNRECORDED) != Some(UNRECORDED)
        };
        for peer in machine.peers().filter(|peer| recorded(&peer.endpoint)) {
            let (generation, version) = (peer.endpoint.generation, peer.endpoint.version());
            guard.note(peer.endpoint.host, Progress { generation, version });
        }
    }

    /// Before an event that makes versions: where they are not recorded, gossip is notified first, with the last version that is recorded.
    fn tell_if_unrecorded(&self, event: &Event) {
        let Some(guard) = &self.config.rollback else { return };
        let versions = match event {
            Event::Set(values) => values.len() as u64,
            Event::Tick | Event::Stop => 1,
            _ => return,
        };
        let told = progress(&self.machine.borrow());
        let last = Progress { version: told.version + versions + 1, ..told };
        if !guard.is_recorded(last) && !self.unrecorded.replace(true) {
            self.advance(Event::Set(vec![unrecorded_state(true)]));
        }
    }

    fn step(self: &Rc<Self>, event: Event) {
        let mut changed = false;
        self.tell_if_unrecorded(&event);
        for effect in self.advance(event) {
            match effect {
                Effect::Send { to, message } => {
                    let body = body(self.rt.wall_micros(), &message);
                    self.messenger.send(Target::Address(to), Verb::Gossip, body);
                }
                Effect::Probe { host, address, generation } => self.probe(host, address, generation),
                Effect::Suspect { host, address, generation } => self.look(host, address, generation),
                Effect::Changed { host, change } => {
                    self.log(host, change);
                    changed = true;
                }
                Effect::Generation(generation) => {
                    tracing::warn!(generation, "others know a later generation of this node than its own");
                    if self.config.rollback.is_some() && !self.unrecorded.replace(true) {
                        self.advance(Event::Set(vec![unrecorded_state(true)]));
                    }
                    (self.notices)(Notice::Generation(generation));
                }
                Effect::HostIdTaken { address, generation } => {
                    tracing::error!(%address, generation, "another node runs with this one's host id, and began later");
                    (self.notices)(Notice::HostIdTaken { address, generation });
                }
                Effect::Refused(refusal) => tracing::warn!("gossip refused: {refusal}"),
            }
        }
        self.assert_recorded();
        if changed {
            self.publish();
        }
    }

    /// Other nodes remember the versions that they hear of. Were one above the limit on this node's disk, the next process would
    /// find that its disk was rolled back.
    fn assert_recorded(&self) {
        let Some(guard) = &self.config.rollback else { return };
        let machine = self.machine.borrow();
        let is_marked = machine.own().get(Key::UNRECORDED) == Some(UNRECORDED);
        let is_recorded = guard.is_recorded(progress(&machine));
        assert!(
            is_marked || is_recorded,
            "a version is on disk, or marked as not recorded, before it is sent"
        );
    }

    fn publish(&self) {
        let known = self.current.borrow().clone();
        let version = known.version + 1;
        let value = describe(&self.machine.borrow(), &self.rt, version);
        assert_eq!(value.own.host, known.own.host, "a node keeps its host id");
        assert!(value.own.generation >= known.own.generation, "a generation never goes back");
        *self.current.borrow_mut() = Arc::new(value);
        self.changed.notify_all();
    }

    fn probe(self: &Rc<Self>, host: HostId, address: SocketAddr, generation: u64) {
        let (weak, messenger) = (Rc::downgrade(self), self.messenger.clone());
        let deadline = self.rt.now() + self.config.echo_timeout;
        let asking = async move {
            let body = echo_body(host, generation);
            let answer = messenger.call(Target::Address(address), Verb::Echo, body.clone(), deadline).await;
            if let Some(inner) = weak.upgrade() {
                let reached = answer.is_ok_and(|answer| answer == body);
                inner.step(Event::Echoed { host, generation, reached });
            }
        };
        // It ends at its deadline, and there is one at a time for a host.
        self.rt.spawn(Verb::Echo.group(), asking).detach();
    }

    /// A connection to this address broke or could not be made: has the process there ended?
    fn suspect(self: &Rc<Self>, address: SocketAddr) {
        if self.stopped.get() {
            return;
        }
        let found = self
            .machine
            .borrow()
            .peers()
            .find(|peer| peer.standing == Standing::Alive && peer.endpoint.address == address)
            .map(|peer| (peer.endpoint.host, peer.endpoint.generation));
        if let Some((host, generation)) = found {
            self.look(host, address, generation);
        }
    }

    /// Looks whether a process is at a host's address.
    fn look(self: &Rc<Self>, host: HostId, address: SocketAddr, generation: u64) {
        if self.stopped.get() || !self.suspected.borrow_mut().insert(host) {
            return;
        }
        let (weak, rt) = (Rc::downgrade(self), self.rt.clone());
        let looking = async move {
            let refused = refuses_twice(&rt, address).await;
            let Some(inner) = weak.upgrade() else { return };
            assert!(inner.suspected.borrow_mut().remove(&host), "a host is looked at once at a time");
            if refused {
                inner.step(Event::Gone { host, generation });
            }
        };
        // It ends soon, and there is one at a time for a host.
        self.rt.spawn(Verb::Echo.group(), looking).detach();
    }

    fn log(&self, host: HostId, change: Change) {
        let machine = self.machine.borrow();
        let address = machine.peer(host).map(|peer| peer.endpoint.address.to_string()).unwrap_or_default();
        let host = name(host);
        match change {
            Change::Alive => tracing::info!(%host, %address, "node is up"),
            Change::Down(why) => tracing::info!(%host, %address, ?why, "node is down"),
            Change::Restarted => tracing::info!(%host, %address, "node has restarted"),
            Change::Found => tracing::info!(%host, %address, "node was discovered"),
            Change::Forgotten => tracing::info!(%host, "node is forgotten"),
            Change::States => {}
        }
    }
}

/// Whether nobody listens at an address of a machine that runs.
async fn refuses_twice(rt: &Rt, address: SocketAddr) -> bool {
    let mut refused = 0;
    for look in 0..LOOKS_MAX {
        if look > 0 {
            rt.sleep(LOOK_PAUSE).await;
        }
        let connect = rt.net().connect(address, ConnectOptions::default());
        match rt.timeout(LOOK_TIMEOUT, connect).await {
            Ok(Err(error)) if error.source.kind() == std::io::ErrorKind::ConnectionRefused => refused += 1,
            Ok(Ok(_)) => return false,
            // Lost packets, a network that is cut: that says nothing.
            Ok(Err(_)) | Err(_) => {}
        }
        if refused == 2 {
            return true;
        }
    }
    false
}

fn gone() -> Refusal {
    Refusal::new(STOPPING, "this node stops")
}

fn name(host: HostId) -> String {
    TableId(host.0).to_string()
}

/// The value of [`Key::UNRECORDED`].
const UNRECORDED: &[u8] = b"true";

fn unrecorded_state(unrecorded: bool) -> (Key, Bytes) {
    let value = if unrecorded { UNRECORDED } else { b"false" };
    (Key::UNRECORDED, Bytes::from_static(value))
}

/// Whether the disk has no record of the first versions of an endpoint with so many values.
fn states_are_unrecorded(config: &LivenessConfig, generation: u64, states: usize) -> bool {
    let first = Progress { generation, version: 1 + states as u64 };
    config.rollback.as_ref().is_some_and(|guard| !guard.is_recorded(first))
}

fn progress(machine: &Gossip) -> Progress {
    Progress { generation: machine.own().generation, version: machine.own().version() }
}

fn monotonic(rt: &Rt) -> Duration {
    Duration::from_nanos(rt.now().as_nanos())
}

/// The sender's clock, microseconds since 1970, and the message.
fn body(wall_micros: i64, message: &gossip::Message) -> Bytes {
    let message = gossip::encode(message);
    let mut body = Vec::with_capacity(size_of::<i64>() + message.len());
    body.extend_from_slice(&wall_micros.to_be_bytes());
    body.extend_from_slice(&message);
    body.into()
}

/// Version, host id, generation.
fn echo_body(host: HostId, generation: u64) -> Bytes {
    let mut body = vec![ECHO_VERSION];
    body.extend_from_slice(&host.0);
    body.extend_from_slice(&generation.to_be_bytes());
    body.into()
}

fn describe(machine: &Gossip, rt: &Rt, version: u64) -> Liveness {
    let (now, wall) = (monotonic(rt), rt.wall_micros());
    let peers = machine.peers().map(|peer| {
        let ago = i64::try_from(now.saturating_sub(peer.since).as_micros()).unwrap_or(i64::MAX);
        let (endpoint, standing): (Endpoint, Standing) = (peer.endpoint.clone(), peer.standing);
        (endpoint.host, PeerLiveness { endpoint, standing, since_micros: wall.saturating_sub(ago) })
    });
    Liveness { version, own: machine.own().clone(), peers: peers.collect() }
}

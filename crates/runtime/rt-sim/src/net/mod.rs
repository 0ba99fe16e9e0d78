//! The simulated network: connections between nodes with latency, loss, partitions and resets.
//!
//! A connection is two ends; the bytes that an end sends travel as segments that arrive in order (TCP would see to that),
//! while different connections overtake each other. A packet that a real network loses comes late here, and breaks the
//! connection when it does not come for too long.

mod driver;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use crate::config::{Crash, LinkConfig};
use crate::random::Rng;
use crate::trace::hash_bytes;
use crate::world::{Stream, World};

pub(crate) use driver::SimNet;

/// TCP's first retransmission timeout.
const RETRANSMIT: Duration = Duration::from_millis(200);
/// Between two attempts to connect.
const CONNECT_RETRY: Duration = Duration::from_secs(1);
const EPHEMERAL_PORTS: std::ops::Range<u16> = 32_768..60_999;

const LOOPBACK: LinkConfig = LinkConfig {
    latency_min: Duration::from_micros(5),
    latency_max: Duration::from_micros(40),
    bandwidth: None,
    loss_per_million: 0,
    reset_per_million: 0,
};

enum Segment {
    Data(Vec<u8>),
    Fin,
    Reset,
}

/// One end of a connection.
struct End {
    node: u64,
    address: SocketAddr,
    /// A handle exists, or it waits to be accepted.
    open: bool,
    /// The node lost power: nobody answers for this end.
    vanished: bool,
    inbox: VecDeque<u8>,
    at_end: bool,
    error: Option<io::ErrorKind>,
    fin_sent: bool,
    /// Bytes sent that the other end has not read yet.
    unread_by_peer: usize,
    outgoing: VecDeque<(u64, Segment)>,
    pumping: bool,
    last_due: u64,
    stalled_since: Option<u64>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl End {
    fn new(node: u64, address: SocketAddr) -> End {
        End {
            node,
            address,
            open: true,
            vanished: false,
            inbox: VecDeque::new(),
            at_end: false,
            error: None,
            fin_sent: false,
            unread_by_peer: 0,
            outgoing: VecDeque::new(),
            pumping: false,
            last_due: 0,
            stalled_since: None,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn fail(&mut self, error: io::ErrorKind) {
        self.error.get_or_insert(error);
        self.outgoing.clear();
        self.wake();
    }
}

struct Connection {
    ends: [End; 2],
}

struct Listening {
    node: u64,
    address: SocketAddr,
    reuse_port: bool,
    backlog: usize,
    queue: VecDeque<u64>,
    waker: Option<Waker>,
}

struct Host {
    ip: IpAddr,
    /// Has power: answers packets, be it with a reset.
    up: bool,
    next_port: u16,
    /// Ports may come a second time: the numbers have run through, or somebody chose one. Until then none is looked for
    /// among the connections, which may be many.
    ports_repeat: bool,
}

struct State {
    hosts: BTreeMap<u64, Host>,
    listeners: BTreeMap<u64, Listening>,
    connections: BTreeMap<u64, Connection>,
    blocked: BTreeSet<(u64, u64)>,
    links: BTreeMap<(u64, u64), LinkConfig>,
    /// When a direction was last cut, joined or given other properties.
    changed: BTreeMap<(u64, u64), u64>,
    next_id: u64,
}

/// The network of a simulation.
pub(crate) struct Network {
    world: Rc<World>,
    state: RefCell<State>,
}

impl Network {
    pub(crate) fn new(world: Rc<World>) -> Network {
        let state = State {
            hosts: BTreeMap::new(),
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            blocked: BTreeSet::new(),
            links: BTreeMap::new(),
            changed: BTreeMap::new(),
            next_id: 1,
        };
        Network { world, state: RefCell::new(state) }
    }

    pub(crate) fn add_host(&self, node: u64, ip: IpAddr) {
        let host = Host { ip, up: true, next_port: EPHEMERAL_PORTS.start, ports_repeat: false };
        let mut state = self.state.borrow_mut();
        assert!(state.hosts.values().all(|host| host.ip != ip), "two nodes with the address {ip}");
        state.hosts.insert(node, host);
    }

    pub(crate) fn host_up(&self, node: u64) {
        self.state.borrow_mut().hosts.get_mut(&node).expect("a known node").up = true;
    }

    /// Ends everything that a node has open.
    pub(crate) fn host_down(self: &Rc<Self>, node: u64, crash: Crash) {
        let mut resets = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            state.hosts.get_mut(&node).expect("a known node").up = crash == Crash::Process;
            state.listeners.retain(|_, listener| listener.node != node);
            for (id, connection) in &mut state.connections {
                for (side, end) in connection.ends.iter_mut().enumerate() {
                    if end.node != node || !end.open {
                        continue;
                    }
                    end.open = false;
                    (end.reader, end.writer) = (None, None);
                    match crash {
                        Crash::Process => resets.push((*id, side)),
                        Crash::Power => {
                            end.vanished = true;
                            end.outgoing.clear();
                        }
                    }
                }
            }
        }
        for (connection, side) in resets {
            self.send(connection, side, Segment::Reset);
        }
    }

    pub(crate) fn block(&self, from: u64, to: u64) {
        self.world.note("block", &[from, to]);
        let mut state = self.state.borrow_mut();
        if state.blocked.insert((from, to)) {
            state.changed.insert((from, to), self.world.now());
        }
    }

    pub(crate) fn unblock(&self, from: u64, to: u64) {
        self.world.note("unblock", &[from, to]);
        let mut state = self.state.borrow_mut();
        if state.blocked.remove(&(from, to)) {
            state.changed.insert((from, to), self.world.now());
        }
    }

    pub(crate) fn unblock_all(&self) {
        self.world.note("unblock all", &[]);
        let mut state = self.state.borrow_mut();
        let now = self.world.now();
        let joined = std::mem::take(&mut state.blocked);
        state.changed.extend(joined.into_iter().map(|direction| (direction, now)));
    }

    pub(crate) fn set_link(&self, from: u64, to: u64, link: Option<LinkConfig>) {
        let mut state = self.state.borrow_mut();
        let before = match link {
            Some(link) => state.links.insert((from, to), link),
            None => state.links.remove(&(from, to)),
        };
        if before != link {
            state.changed.insert((from, to), self.world.now());
        }
    }

    /// How one direction behaves: none when it is cut; and when that was changed last.
    pub(crate) fn direction(&self, from: u64, to: u64) -> (Option<LinkConfig>, u64) {
        let link = (!self.is_blocked(from, to)).then(|| self.link(from, to));
        (link, self.state.borrow().changed.get(&(from, to)).copied().unwrap_or(0))
    }

    /// Resets all connections between two nodes.
    pub(crate) fn reset_between(&self, a: u64, b: u64) {
        self.world.note("reset between", &[a, b]);
        for connection in self.state.borrow_mut().connections.values_mut() {
            let [one, two] = &mut connection.ends;
            if (one.node, two.node) == (a, b) || (one.node, two.node) == (b, a) {
                one.fail(io::ErrorKind::ConnectionReset);
                two.fail(io::ErrorKind::ConnectionReset);
            }
        }
    }

    fn link(&self, from: u64, to: u64) -> LinkConfig {
        if from == to {
            return LOOPBACK;
        }
        self.state.borrow().links.get(&(from, to)).copied().unwrap_or(self.world.config.link)
    }

    fn is_blocked(&self, from: u64, to: u64) -> bool {
        from != to && self.state.borrow().blocked.contains(&(from, to))
    }

    /// How long a packet travels, retransmissions included.
    fn travel(&self, from: u64, to: u64, bytes: usize) -> u64 {
        let link = self.link(from, to);
        let time = |rng: &mut Rng| {
            let mut time = rng.between(link.latency_min, link.latency_max);
            if let Some(bandwidth) = link.bandwidth {
                time += bytes as u64 * 1_000_000_000 / bandwidth.max(1);
            }
            let mut again = RETRANSMIT.as_nanos() as u64;
            while rng.chance(link.loss_per_million.min(900_000)) && again < 20_000_000_000 {
                time += again;
                again *= 2;
            }
            time
        };
        self.world.draw(Stream::Net, time)
    }

    /// Queues a segment behind those that the end has sent before.
    fn send(self: &Rc<Self>, id: u64, side: usize, segment: Segment) {
        let (from, to) = {
            let state = self.state.borrow();
            let Some(connection) = state.connections.get(&id) else { return };
            (connection.ends[side].node, connection.ends[1 - side].node)
        };
        let bytes = if let Segment::Data(data) = &segment { data.len() } else { 0 };
        let due = self.world.now() + self.travel(from, to, bytes);
        let mut state = self.state.borrow_mut();
        let end = &mut state.connections.get_mut(&id).expect("found above").ends[side];
        // In order, and not two at the same moment.
        end.last_due = due.max(end.last_due + 1);
        let due = end.last_due;
        end.outgoing.push_back((due, segment));
        if !std::mem::replace(&mut end.pumping, true) {
            let first = end.outgoing.front().expect("just pushed").0;
            drop(state);
            self.pump_at(first, id, side);
        }
    }

    fn pump_at(self: &Rc<Self>, time: u64, id: u64, side: usize) {
        let network = Rc::clone(self);
        self.world.at(time, move || network.pump(id, side));
    }

    /// Delivers the first segment of an end and comes back for the next.
    fn pump(self: &Rc<Self>, id: u64, side: usize) {
        let (from, to, vanished) = {
            let state = self.state.borrow();
            let Some(connection) = state.connections.get(&id) else { return };
            let peer = &connection.ends[1 - side];
            let unreachable = peer.vanished && !state.hosts[&peer.node].up;
            (connection.ends[side].node, peer.node, unreachable)
        };
        if vanished || self.is_blocked(from, to) {
            self.stall(id, side);
            return;
        }
        let reset = {
            let per_million = self.link(from, to).reset_per_million;
            self.world.draw(Stream::Net, |rng| rng.chance(per_million))
        };
        let mut state = self.state.borrow_mut();
        let connection = state.connections.get_mut(&id).expect("found above");
        connection.ends[side].stalled_since = None;
        let Some((_, segment)) = connection.ends[side].outgoing.pop_front() else {
            connection.ends[side].pumping = false;
            state.remove_if_over(id);
            return;
        };
        let [one, two] = &mut connection.ends;
        let (sender, receiver) = if side == 0 { (one, two) } else { (two, one) };
        if reset {
            self.world.note("random reset", &[id]);
            sender.fail(io::ErrorKind::ConnectionReset);
            receiver.fail(io::ErrorKind::ConnectionReset);
        } else {
            self.deliver(id, sender, receiver, segment);
        }
        let next = sender.outgoing.front().map(|(due, _)| *due);
        sender.pumping = next.is_some();
        state.remove_if_over(id);
        drop(state);
        if let Some(due) = next {
            self.pump_at(due, id, side);
        }
    }

    fn deliver(&self, id: u64, sender: &mut End, receiver: &mut End, segment: Segment) {
        match segment {
            Segment::Data(data) => {
                self.world.note("deliver", &[id, receiver.node, hash_bytes(&data)]);
                if !receiver.open {
                    // The other side is closed or has restarted: it answers with a reset.
                    sender.fail(io::ErrorKind::ConnectionReset);
                    return;
                }
                receiver.inbox.extend(data);
                if let Some(reader) = receiver.reader.take() {
                    reader.wake();
                }
            }
            Segment::Fin => {
                self.world.note("end of stream", &[id, receiver.node]);
                receiver.at_end = true;
                if let Some(reader) = receiver.reader.take() {
                    reader.wake();
                }
            }
            Segment::Reset => {
                self.world.note("reset", &[id, receiver.node]);
                receiver.fail(io::ErrorKind::ConnectionReset);
            }
        }
    }

    /// The other side cannot be reached: tries again later, and gives up at some time.
    fn stall(self: &Rc<Self>, id: u64, side: usize) {
        let now = self.world.now();
        let timeout = self.world.config.connection_timeout.as_nanos() as u64;
        let mut state = self.state.borrow_mut();
        let end = &mut state.connections.get_mut(&id).expect("checked by the caller").ends[side];
        let since = *end.stalled_since.get_or_insert(now);
        if now - since >= timeout || end.outgoing.is_empty() {
            end.pumping = false;
            if !end.outgoing.is_empty() {
                self.world.note("connection timeout", &[id, end.node]);
                end.fail(io::ErrorKind::TimedOut);
            }
            state.remove_if_over(id);
            return;
        }
        drop(state);
        let wait = self.world.draw(Stream::Net, |rng| rng.between(RETRANSMIT, RETRANSMIT * 2));
        self.pump_at(now + wait, id, side);
    }

    /// TCP keepalive of one end: probes every `idle`, and more often while no answer comes. Drawn from no stream of randomness.
    pub(crate) fn keep_alive(self: &Rc<Self>, id: u64, side: usize, idle: Duration) {
        let idle = idle.as_nanos() as u64;
        let network = Rc::clone(self);
        self.world.after(idle, move || network.probe((id, side), idle, None));
    }

    /// One probe; nobody has answered since `unanswered`.
    fn probe(self: &Rc<Self>, (id, side): (u64, usize), idle: u64, unanswered: Option<u64>) {
        let now = self.world.now();
        let nodes = self.state.borrow().connections.get(&id).map(|one| [0, 1].map(|at| one.ends[at].node));
        let Some([one, two]) = nodes else { return };
        let cut = self.is_blocked(one, two) || self.is_blocked(two, one);
        let mut state = self.state.borrow_mut();
        let connection = &state.connections[&id];
        let (end, peer) = (&connection.ends[side], &connection.ends[1 - side]);
        if !end.open || end.error.is_some() || end.at_end {
            return;
        }
        let (node, answers) = (end.node, !cut && state.hosts[&peer.node].up);
        let forgotten = !peer.open && peer.outgoing.is_empty();
        let since = unanswered.unwrap_or(now);
        let error = match answers {
            true if forgotten => Some(io::ErrorKind::ConnectionReset),
            false if now - since >= idle => Some(io::ErrorKind::TimedOut),
            _ => None,
        };
        if let Some(error) = error {
            self.world.note("keepalive fails", &[id, node]);
            state.connections.get_mut(&id).expect("found above").ends[side].fail(error);
            return;
        }
        drop(state);
        let (wait, unanswered) = if answers { (idle, None) } else { (idle / 6, Some(since)) };
        let network = Rc::clone(self);
        self.world.after(wait, move || network.probe((id, side), idle, unanswered));
    }

    /// A handle was dropped: a clean end, or a reset when there was something that nobody will read.
    fn close(self: &Rc<Self>, id: u64, side: usize) {
        let segment = {
            let mut state = self.state.borrow_mut();
            let Some(connection) = state.connections.get_mut(&id) else { return };
            let end = &mut connection.ends[side];
            if !end.open {
                return;
            }
            end.open = false;
            (end.reader, end.writer) = (None, None);
            match (end.inbox.is_empty() && end.error.is_none(), end.fin_sent) {
                (true, true) => None,
                (true, false) => Some(Segment::Fin),
                (false, _) => Some(Segment::Reset),
            }
        };
        match segment {
            Some(segment) => self.send(id, side, segment),
            None => self.state.borrow_mut().remove_if_over(id),
        }
    }

    /// Forgets everything; the simulation ends.
    pub(crate) fn clear(&self) {
        let mut state = self.state.borrow_mut();
        state.connections.clear();
        state.listeners.clear();
    }
}

impl State {
    fn remove_if_over(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        if connection.ends.iter().all(|end| !end.open && end.outgoing.is_empty()) {
            self.connections.remove(&id);
        }
    }

    fn node_of(&self, ip: IpAddr, asking: u64) -> Option<u64> {
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(asking);
        }
        self.hosts.iter().find(|(_, host)| host.ip == ip).map(|(node, _)| *node)
    }

    fn port_taken(&self, node: u64, port: u16) -> bool {
        let connected = || {
            let mut ends = self.connections.values().flat_map(|c| &c.ends);
            ends.any(|end| end.open && end.node == node && end.address.port() == port)
        };
        self.listeners.values().any(|l| l.node == node && l.address.port() == port)
            || (self.hosts[&node].ports_repeat && connected())
    }

    fn ephemeral_port(&mut self, node: u64) -> io::Result<u16> {
        for _ in EPHEMERAL_PORTS {
            let host = self.hosts.get_mut(&node).expect("a known node");
            let port = host.next_port;
            host.next_port = port + 1;
            if host.next_port == EPHEMERAL_PORTS.end {
                (host.next_port, host.ports_repeat) = (EPHEMERAL_PORTS.start, true);
            }
            if !self.port_taken(node, port) {
                return Ok(port);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// The listeners that a connection to `address` of `node` may reach.
    fn listeners_at(&self, node: u64, address: SocketAddr) -> Vec<u64> {
        let matching = self.listeners.iter().filter(|(_, listener)| {
            listener.node == node
                && listener.address.port() == address.port()
                && (listener.address.ip() == address.ip() || listener.address.ip().is_unspecified())
        });
        matching.map(|(id, _)| *id).collect()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}

/// An attempt to connect that is under way.
struct Attempt {
    from: u64,
    to: Option<u64>,
    address: SocketAddr,
    local: SocketAddr,
    deadline: u64,
    answer: rt::sync::oneshot::Sender<io::Result<u64>>,
}

impl Network {
    /// Sends the first packet of a connection.
    fn attempt(self: &Rc<Self>, attempt: Attempt) {
        let time = self.travel(attempt.from, attempt.to.unwrap_or(attempt.from), 0);
        let network = Rc::clone(self);
        self.world.after(time, move || network.attempt_arrived(attempt));
    }

    fn attempt_later(self: &Rc<Self>, attempt: Attempt) {
        if self.world.now() >= attempt.deadline {
            let _ = attempt.answer.send(Err(io::ErrorKind::TimedOut.into()));
            return;
        }
        let network = Rc::clone(self);
        self.world.after(CONNECT_RETRY.as_nanos() as u64, move || network.attempt(attempt));
    }

    fn attempt_arrived(self: &Rc<Self>, attempt: Attempt) {
        let Some(to) = attempt.to else { return self.attempt_later(attempt) };
        let reachable = !self.is_blocked(attempt.from, to) && self.state.borrow().hosts[&to].up;
        if !reachable {
            return self.attempt_later(attempt);
        }
        let listeners = self.state.borrow().listeners_at(to, attempt.address);
        if listeners.is_empty() {
            self.world.note("refuse", &[attempt.from, to]);
            return self.answer(attempt, to, Err(io::ErrorKind::ConnectionRefused.into()));
        }
        let chosen = self.world.draw(Stream::Net, |rng| rng.below(listeners.len() as u64));
        let chosen = listeners[chosen as usize];
        let id = {
            let mut state = self.state.borrow_mut();
            let listener = &state.listeners[&chosen];
            if listener.queue.len() >= listener.backlog {
                drop(state);
                return self.attempt_later(attempt);
            }
            let id = state.new_id();
            let ends = [End::new(attempt.from, attempt.local), End::new(to, attempt.address)];
            state.connections.insert(id, Connection { ends });
            let listener = state.listeners.get_mut(&chosen).expect("found above");
            listener.queue.push_back(id);
            if let Some(waker) = listener.waker.take() {
                waker.wake();
            }
            id
        };
        self.world.note("connect", &[id, attempt.from, to]);
        self.answer(attempt, to, Ok(id));
    }

    /// Sends the answer to an attempt back.
    fn answer(self: &Rc<Self>, attempt: Attempt, to: u64, answer: io::Result<u64>) {
        let time = self.travel(to, attempt.from, 0);
        let network = Rc::clone(self);
        self.world.after(time, move || {
            if network.is_blocked(to, attempt.from) && network.world.now() < attempt.deadline {
                let again = Rc::clone(&network);
                let wait = RETRANSMIT.as_nanos() as u64;
                network.world.after(wait, move || again.answer(attempt, to, answer));
                return;
            }
            let connection = answer.as_ref().ok().copied();
            let answer = if network.is_blocked(to, attempt.from) {
                Err(io::ErrorKind::TimedOut.into())
            } else {
                answer
            };
            let failed = answer.is_err();
            let unwanted = attempt.answer.send(answer).is_err();
            if let Some(id) = connection
                && (failed || unwanted)
            {
                network.close(id, 0);
            }
        });
    }
}

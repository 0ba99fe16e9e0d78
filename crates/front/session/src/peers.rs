//! The connections of a shard as the rest of the shard sees them: to list them, to send them events, to end them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

use rt::sync::Notify;
use wire::{Event, EventType};

use crate::{Client, ConnectionInfo, ConnectionStage};

/// The part of a connection that others can reach.
pub(crate) struct Peer {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    encrypted: bool,
    pub(crate) stage: Cell<ConnectionStage>,
    /// From STARTUP on.
    pub(crate) client: RefCell<Option<Rc<Client>>>,
    /// The events that the client has registered for.
    pub(crate) registered: RefCell<Vec<EventType>>,
    events: RefCell<VecDeque<Rc<Event>>>,
    /// More events came than may wait.
    pub(crate) overflowed: Cell<bool>,
    /// The connection shall finish its requests and end.
    pub(crate) stopping: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Peer {
    /// Sets the waker for events of the connection.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        match &mut *known {
            Some(known) => known.clone_from(waker),
            None => *known = Some(waker.clone()),
        }
    }

    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next event to send.
    pub(crate) fn next_event(&self) -> Option<Rc<Event>> {
        self.events.borrow_mut().pop_front()
    }

    fn send(&self, event: &Rc<Event>, events_max: usize) {
        if !self.registered.borrow().contains(&event.event_type()) {
            return;
        }
        let mut events = self.events.borrow_mut();
        if events.len() >= events_max {
            events.clear();
            self.overflowed.set(true);
        }
        if !self.overflowed.get() {
            events.push_back(Rc::clone(event));
        }
        drop(events);
        self.wake();
    }

    fn info(&self, shard: u16) -> ConnectionInfo {
        let client = self.client.borrow();
        let client = client.as_deref();
        ConnectionInfo {
            address: self.address,
            shard,
            encrypted: self.encrypted,
            stage: self.stage.get(),
            protocol_version: client.map(|client| client.dialect.version.number()),
            driver_name: client.and_then(|client| client.driver_name.clone()),
            driver_version: client.and_then(|client| client.driver_version.clone()),
            client_options: client.map(|client| client.options.clone()).unwrap_or_default(),
            username: client.and_then(Client::role).map(str::to_owned),
            keyspace_name: client.and_then(Client::keyspace).map(|keyspace| keyspace.to_string()),
            request_count: client.map_or(0, Client::requests),
        }
    }
}

/// The connections of one shard, by their number.
#[derive(Default)]
pub(crate) struct Peers {
    all: RefCell<BTreeMap<u64, Rc<Peer>>>,
    next: Cell<u64>,
    stopping: Cell<bool>,
    left: Notify,
}

impl Peers {
    /// A new connection.
    pub(crate) fn enter(&self, address: SocketAddr, encrypted: bool) -> Rc<Peer> {
        let id = self.next.get();
        self.next.set(id + 1);
        let peer = Rc::new(Peer {
            id,
            address,
            encrypted,
            stage: Cell::new(ConnectionStage::Established),
            client: RefCell::new(None),
            registered: RefCell::default(),
            events: RefCell::default(),
            overflowed: Cell::new(false),
            stopping: Cell::new(self.stopping.get()),
            waker: RefCell::new(None),
        });
        self.all.borrow_mut().insert(id, Rc::clone(&peer));
        peer
    }

    /// A connection has ended.
    pub(crate) fn leave(&self, peer: &Peer) {
        self.all.borrow_mut().remove(&peer.id);
        self.left.notify_all();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.borrow().len()
    }

    /// Sends an event to all that have registered for its kind.
    pub(crate) fn send(&self, event: Event, events_max: usize) {
        let event = Rc::new(event);
        for peer in self.all.borrow().values() {
            peer.send(&event, events_max);
        }
    }

    /// All connections, oldest first.
    pub(crate) fn list(&self, shard: u16) -> Vec<ConnectionInfo> {
        self.all.borrow().values().map(|peer| peer.info(shard)).collect()
    }

    /// Asks all connections, and later ones, to finish their requests and end.
    pub(crate) fn stop(&self) {
        self.stopping.set(true);
        for peer in self.all.borrow().values() {
            peer.stopping.set(true);
            peer.wake();
        }
    }

    /// Later connections may stay again.
    pub(crate) fn resume(&self) {
        self.stopping.set(false);
    }

    /// Waits until there are none.
    pub(crate) async fn gone(&self) {
        while self.len() > 0 {
            self.left.notified().await;
        }
    }
}

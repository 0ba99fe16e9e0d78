//! The connections of one shard and the requests under way over them: its peers, the connections that peers have made, requests that are
//! served here or elsewhere, and the ports to the node's other shards.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use rt::sync::Notify;
use rt::{Port, Rt};
use stdx::HashMap;
use topology::HostId;

use crate::RpcConfig;
use crate::acceptor::Acceptor;
use crate::forwarding::{ForwardedRequest, Forwarding, InTransit, SharedCallMessage};
use crate::handover::{Handover, HandoverEndpoint, HandoverReply, LocalCall, LocalOutcome};
use crate::inbound::Inbound;
use crate::peer_table::PeerTable;
use crate::request::ForwardedOutcome;
use crate::served::Served;
use crate::serving::Serving;
use crate::shard::Shard;

/// One shard's part of the protocol.
pub(crate) struct Connections {
    pub(crate) shard: Rc<Shard>,
    pub(crate) peers: PeerTable,
    pub(crate) serving: Rc<Serving>,
    pub(crate) inbound: RefCell<HashMap<u64, Rc<Inbound>>>,
    inbound_made: Cell<u64>,
    /// Requests that came over connections of this shard and are being served by others.
    pub(crate) forwarding: Forwarding,
    /// Calls under way over connections of other shards, and their bytes that are not queued there.
    pub(crate) calls_shared: Cell<usize>,
    pub(crate) in_transit: InTransit,
    /// On shard 0.
    pub(crate) acceptor: Acceptor,
    /// Connections that say hello to this shard, by the number that the acceptor has given them.
    pub(crate) greeting: RefCell<HashMap<u64, Notify>>,
    pub(crate) shared_calls: Port<SharedCallMessage, LocalOutcome>,
    pub(crate) requests: Port<ForwardedRequest, ForwardedOutcome>,
    pub(crate) handover: Port<Handover, HandoverReply>,
    pub(crate) local: Port<LocalCall, LocalOutcome>,
}

impl Connections {
    /// No connection yet.
    pub(crate) fn new(rt: &Rt, config: Arc<RpcConfig>, endpoint: HandoverEndpoint) -> Rc<Connections> {
        let handover = endpoint.handover.attach(rt);
        let local = endpoint.local.attach(rt);
        let shared_calls = endpoint.shared_calls.attach(rt);
        let requests = endpoint.requests.attach(rt);
        let shard = Shard::new(rt, config);
        Rc::new(Connections {
            peers: PeerTable::new(&shard),
            serving: Serving::new(&shard),
            inbound: RefCell::default(),
            inbound_made: Cell::new(0),
            forwarding: Forwarding::new(&shard.config.limits),
            calls_shared: Cell::new(0),
            in_transit: InTransit::default(),
            acceptor: Acceptor::default(),
            greeting: RefCell::default(),
            shared_calls,
            requests,
            handover,
            local,
            shard,
        })
    }

    /// The name of an accepted connection within the shard.
    pub(crate) fn next_inbound(&self) -> u64 {
        self.inbound_made.set(self.inbound_made.get() + 1);
        self.inbound_made.get()
    }

    /// Releases the counted bytes of a request of a connection.
    pub(crate) fn done(&self, served: &Served) {
        match served.forwarded {
            true => self.forwarding.done(served.verb, served.bytes),
            false => self.serving.done(served.verb, served.bytes),
        }
    }

    /// Refuses these hosts from now on, which were removed from the cluster, and ends their connections to this shard.
    pub(crate) fn refuse_removed(&self, removed: &Arc<BTreeSet<HostId>>) {
        // Sets between shards may pass each other, and a removal is for good.
        if removed.len() < self.shard.removed.borrow().len() {
            return;
        }
        *self.shard.removed.borrow_mut() = Arc::clone(removed);
        for connection in self.inbound.borrow().values().filter(|one| removed.contains(&one.from)) {
            connection.cut();
        }
    }

    /// Ends everything at once. Handlers go too: they may hold this shard alive.
    pub(crate) fn end(&self) {
        self.shard.stopped.set(true);
        self.shard.ended.notify_all();
        for greeting in self.greeting.borrow().values() {
            greeting.notify_one();
        }
        self.peers.clear();
        self.serving.clear();
        let inbound = std::mem::take(&mut *self.inbound.borrow_mut());
        for connection in inbound.values() {
            for served in connection.close().iter().filter(|served| served.forwarded) {
                self.forwarding.done(served.verb, served.bytes);
            }
        }
        self.serving.end_forwarded();
        self.shard.tasks.clear();
        drop((self.shard.on_lost.take(), self.shard.on_removed.take()));
        self.serving.clear_handlers();
    }
}

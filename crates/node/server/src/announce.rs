//! Events for clients about the other nodes: STATUS_CHANGE and TOPOLOGY_CHANGE, from the differences of two views of the
//! cluster.
//!
//! A node is announced when it accepts clients, and not when it enters the ring: a driver that learns of a node connects to
//! it. Changes are gathered for a moment, so that a state that passes meanwhile causes no event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{ClusterView, ViewNode};
use rt::sync::Notify;
use rt::{Group, Rt, Task};
use topology::HostId;
use wire::{Event, StatusChange, TopologyChange};

/// How long changes are gathered before events are sent.
const SETTLE: Duration = Duration::from_millis(500);

/// The clients' knowledge of the other nodes.
#[derive(Debug)]
struct Announced {
    nodes: BTreeMap<HostId, AnnouncedNode>,
}

/// The clients' knowledge of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AnnouncedNode {
    address: SocketAddr,
    up: bool,
    tokens: Vec<i64>,
}

impl AnnouncedNode {
    fn of(node: &ViewNode) -> Self {
        Self { address: node.native, up: node.alive && node.ready, tokens: node.tokens.clone() }
    }

    fn status(&self) -> Event {
        let change = if self.up { StatusChange::Up } else { StatusChange::Down };
        Event::Status { change, address: self.address }
    }
}

fn topology(change: TopologyChange, address: SocketAddr) -> Event {
    Event::Topology { change, address }
}

impl Announced {
    /// Clients that come now read of these nodes in the system tables.
    fn new(view: &ClusterView) -> Self {
        Self { nodes: others(view).map(|node| (node.host, AnnouncedNode::of(node))).collect() }
    }

    /// The events of a view, which is then known.
    fn news(&mut self, view: &ClusterView) -> Vec<Event> {
        let own = view.node(view.own()).native;
        let now: BTreeMap<HostId, AnnouncedNode> =
            others(view).map(|node| (node.host, AnnouncedNode::of(node))).collect();
        let mut events = Vec::new();
        self.nodes.retain(|host, announced| {
            // With another address it is another node to clients.
            let stays = now.get(host).is_some_and(|node| node.address == announced.address);
            if !stays {
                events.push(topology(TopologyChange::RemovedNode, announced.address));
            }
            stays
        });
        for (host, node) in now {
            let Some(announced) = self.nodes.get_mut(&host) else {
                if node.up {
                    events.push(topology(TopologyChange::NewNode, node.address));
                    events.push(node.status());
                    self.nodes.insert(host, node);
                }
                continue;
            };
            if announced.tokens != node.tokens {
                events.push(topology(TopologyChange::MovedNode, node.address));
            }
            if announced.up != node.up {
                events.push(node.status());
            }
            *announced = node;
        }
        // Another node that gives this one's address as its own would send clients in a circle.
        events.retain(|event| match event {
            Event::Topology { address, .. } | Event::Status { address, .. } => *address != own,
            Event::Schema(_) => true,
        });
        events
    }
}

fn others(view: &ClusterView) -> impl Iterator<Item = &ViewNode> {
    let own = view.node(view.own()).host;
    view.members().iter().filter(move |node| node.host != own)
}

/// Sends the clients of a shard the events of the other nodes.
#[derive(Clone)]
pub(crate) struct Announcer(Rc<Inner>);

struct Inner {
    view: RefCell<Arc<ClusterView>>,
    changed: Notify,
    task: RefCell<Option<Task<()>>>,
}

impl Announcer {
    /// Begins with the view that a new client reads.
    pub(crate) fn start(rt: &Rt, view: Arc<ClusterView>, publish: impl Fn(Event) + 'static) -> Self {
        let mut announced = Announced::new(&view);
        let inner =
            Rc::new(Inner { view: RefCell::new(view), changed: Notify::default(), task: RefCell::new(None) });
        let (weak, changed, clock) = (Rc::downgrade(&inner), inner.changed.clone(), rt.clone());
        let task = rt.spawn(Group::Maintenance, async move {
            loop {
                changed.notified().await;
                clock.sleep(SETTLE).await;
                let Some(inner) = weak.upgrade() else { return };
                let view = inner.view.borrow().clone();
                announced.news(&view).into_iter().for_each(&publish);
            }
        });
        *inner.task.borrow_mut() = Some(task);
        Self(inner)
    }

    /// The view has changed.
    pub(crate) fn see(&self, view: &Arc<ClusterView>) {
        *self.0.view.borrow_mut() = view.clone();
        self.0.changed.notify_one();
    }

    /// Sends no more events.
    pub(crate) fn stop(&self) {
        self.0.task.borrow_mut().take();
    }
}

#[cfg(test)]
#[path = "announce_tests.rs"]
mod tests;

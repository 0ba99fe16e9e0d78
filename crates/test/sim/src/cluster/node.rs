//! A node of a simulated cluster, as its director knows it: its place in the cluster, its starts, and its ports.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt_sim::NodeId;

/// The port of administration.
pub(crate) const REST_PORT: u16 = 10_000;
/// The port of a node's metrics.
pub(crate) const METRICS_PORT: u16 = 9180;

/// How a node stands to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has yet to join.
    Spare,
    /// It is in the cluster, or about to join it.
    Here,
    /// It leaves.
    Leaving,
    /// It has ended for good, and its place is to be taken from it.
    Dead,
    /// It is in the cluster no more.
    Gone,
}

/// How often a node was started, and the start after which it was ready last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served(Arc<[AtomicU64; 2]>);

impl Served {
    /// The node is started.
    pub(crate) fn start(&self) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was started.
    pub(crate) fn starts(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// It serves clients.
    pub(crate) fn ready(&self) {
        self.0[1].store(self.0[0].load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether it has been ready since its last start.
    pub(crate) fn serves(&self) -> bool {
        let [starts, ready] = &*self.0;
        starts.load(Ordering::Relaxed) == ready.load(Ordering::Relaxed)
    }
}

/// A node of the cluster.
pub(crate) struct Member {
    pub(crate) id: NodeId,
    /// How often it was ready.
    pub(crate) ready: Arc<AtomicU64>,
    /// Shared with the checkers that need to know which nodes are healthy.
    pub(crate) place: Rc<Cell<Place>>,
    /// How often it was started, and the start after which it was ready last.
    pub(crate) served: Served,
    /// Started by a new node: its join may fail under faults.
    pub(crate) joins: bool,
    /// The address of the node that it replaces when it joins.
    pub(crate) replaces: Rc<RefCell<Option<IpAddr>>>,
    /// Something is done to it.
    pub(crate) faulty: bool,
    /// Its disk gave errors, after which it may take no more requests.
    pub(crate) disk_failed: bool,
    /// It was started when it had been ready so often, and has not been seen ready since.
    pub(crate) starts_from: Option<u64>,
    /// When it ended with writes that were not synced, and how often it had been ready then: once it is again, they are.
    pub(crate) unsynced_since: Option<(u64, u64)>,
}

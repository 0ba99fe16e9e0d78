//! The state of a single node's simulation: the machine, the world of its clients, and the present process lifetime.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rt::Rt;
use rt_sim::{NodeId, Rng, Sim};

use crate::plan::Plan;
use crate::world::SharedWorld;

/// Directs a run.
pub(crate) struct Director {
    pub(crate) rt: Rt,
    pub(crate) sim: Sim,
    pub(crate) node: NodeId,
    pub(crate) plan: Rc<Plan>,
    pub(crate) world: SharedWorld,
    pub(crate) rng: Rng,
    /// How often the node was ready.
    pub(crate) ready: Arc<AtomicU64>,
    /// When the last process that was ready ended, until the next one is ready and has synced its log.
    pub(crate) unsynced_since: Option<u64>,
    /// The disk gave errors in the present lifetime, after which a shard may take no more requests.
    pub(crate) disk_failed: bool,
    /// The clients of the present lifetime.
    pub(crate) tasks_of_lifetime: Vec<rt::Task<()>>,
}

impl Director {
    /// The address of the node for clients.
    pub(crate) fn server(&self) -> SocketAddr {
        SocketAddr::new(self.sim.ip(self.node), 9042)
    }

    /// A violation was found.
    pub(crate) fn failed(&self) -> bool {
        self.world.borrow().failure.is_some()
    }
}

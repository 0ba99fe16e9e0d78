//! State that all connections of one shard share: settings, counters, budgets of memory, and the tasks that `stop` ends.
//! Which connections there are is not known here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use rt::sync::{Notify, Semaphore};
use rt::{Group, Instant, Rt, Task};
use stdx::{HashMap, LogLimit};
use topology::HostId;

use crate::peer_stats::PeersCounters;
use crate::queue::Budget;
use crate::stats::{Counters, count};
use crate::{Class, RpcConfig};

/// The result of `work`, unless there is a notification before.
pub(crate) async fn unless<T>(notify: &Notify, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut notified) = (pin!(work), pin!(notify.notified()));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => notified.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Tasks that end when they are done or when the set is cleared.
#[derive(Default)]
pub(crate) struct Tasks {
    next: Cell<u64>,
    running: RefCell<HashMap<u64, Task<()>>>,
}

impl Tasks {
    /// Starts a task that `stop` of the shard ends.
    pub(crate) fn spawn(shard: &Rc<Shard>, group: Group, future: impl Future<Output = ()> + 'static) {
        let tasks = &shard.tasks;
        let id = tasks.next.get();
        tasks.next.set(id + 1);
        let owner = Rc::clone(shard);
        let task = shard.rt.spawn(group, async move {
            future.await;
            let own = owner.tasks.running.borrow_mut().remove(&id);
            if let Some(own) = own {
                own.detach();
            }
        });
        tasks.running.borrow_mut().insert(id, task);
    }

    /// Ends all of them where they wait.
    pub(crate) fn clear(&self) {
        let running = std::mem::take(&mut *self.running.borrow_mut());
        drop(running);
    }
}

/// Gets the address of a peer.
type PeerListener = Rc<dyn Fn(SocketAddr)>;

/// The part of one shard's state that each of its connections uses.
pub(crate) struct Shard {
    pub(crate) rt: Rt,
    pub(crate) config: Arc<RpcConfig>,
    pub(crate) counters: Counters,
    /// By host.
    pub(crate) peers: PeersCounters,
    /// Bytes that are queued for writing.
    pub(crate) outgoing: Budget,
    /// Bytes that incoming long frames have reserved.
    pub(crate) partial: Semaphore,
    log_limit: RefCell<LogLimit>,
    pub(crate) stopped: Cell<bool>,
    /// Called with the address of a peer to which a connection broke or could not be made.
    pub(crate) on_lost: RefCell<Option<PeerListener>>,
    /// Called with the address of a peer that knows that this node was removed from the cluster.
    pub(crate) on_removed: RefCell<Option<PeerListener>>,
    /// Hosts that were removed from the cluster: they are refused.
    pub(crate) removed: RefCell<Arc<BTreeSet<HostId>>>,
    pub(crate) tasks: Tasks,
    pub(crate) ended: Notify,
}

impl Shard {
    pub(crate) fn new(rt: &Rt, config: Arc<RpcConfig>) -> Rc<Shard> {
        let limits = &config.limits;
        Rc::new(Shard {
            rt: rt.clone(),
            counters: Counters::default(),
            peers: PeersCounters::default(),
            outgoing: Budget::new(limits.outgoing_total_bytes_max),
            partial: Semaphore::new(limits.partial_bytes_max.max(limits.body_len_max)),
            log_limit: RefCell::default(),
            config,
            stopped: Cell::new(false),
            on_lost: RefCell::default(),
            on_removed: RefCell::default(),
            removed: RefCell::default(),
            tasks: Tasks::default(),
            ended: Notify::new(),
        })
    }

    /// Whether a host was removed from the cluster.
    pub(crate) fn was_removed(&self, host: HostId) -> bool {
        self.removed.borrow().contains(&host)
    }

    /// A peer has refused this node as a removed one.
    pub(crate) fn learned_of_removal(&self, address: SocketAddr) {
        let listener = self.on_removed.borrow().clone();
        if let Some(listener) = listener {
            listener(address);
        }
    }

    /// Says why a connection was refused or closed: at most some lines a second, however many there are.
    pub(crate) fn warn(&self, peer: Option<SocketAddr>, what: &str, why: &str) {
        count(&self.counters.connections_refused);
        let suppressed = self.log_limit.borrow_mut().line(self.rt.now() - Instant::START);
        let peer = peer.map_or_else(|| "a peer".to_owned(), |address| address.to_string());
        match suppressed {
            None => {}
            Some(0) => tracing::warn!("{what} {peer}: {why}"),
            Some(suppressed) => {
                tracing::warn!("{what} {peer}: {why} ({suppressed} more such lines were left out)")
            }
        }
    }
}

/// Counts an open connection until it is dropped.
pub(crate) struct Open {
    shard: Rc<Shard>,
    class: Class,
    inbound: bool,
}

impl Open {
    /// A connection of `shard` is open.
    pub(crate) fn new(shard: &Rc<Shard>, class: Class, inbound: bool) -> Open {
        let open = Open { shard: Rc::clone(shard), class, inbound };
        open.cell().set(open.cell().get() + 1);
        open
    }

    fn cell(&self) -> &Cell<usize> {
        let counters = &self.shard.counters;
        let cells = if self.inbound { &counters.connections_in } else { &counters.connections_out };
        &cells[self.class as usize]
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.cell().set(self.cell().get() - 1);
    }
}

//! The bytes of requests that may be in flight, in total and for one client address: first connections are not read
//! any more, and clients that ask for it get OVERLOADED instead.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use rt::sync::{Notified, Notify};
use stdx::HashMap;

use crate::metrics::{SessionMetrics, add, subtract};

/// What one client address uses on this shard.
#[derive(Debug)]
pub(crate) struct Usage {
    address: IpAddr,
    bytes: Cell<usize>,
    connections: Cell<usize>,
}

/// The limits of one shard and what is used of them.
pub(crate) struct Admission {
    limit: usize,
    limit_per_ip: usize,
    bytes: Cell<usize>,
    by_address: RefCell<HashMap<IpAddr, Rc<Usage>>>,
    released: Notify,
    metrics: Rc<SessionMetrics>,
}

impl Admission {
    /// Limits in bytes.
    pub(crate) fn new(limit: usize, limit_per_ip: usize, metrics: Rc<SessionMetrics>) -> Rc<Self> {
        Rc::new(Self {
            limit,
            limit_per_ip,
            bytes: Cell::new(0),
            by_address: RefCell::default(),
            released: Notify::new(),
            metrics,
        })
    }

    /// The account of a new connection's address.
    pub(crate) fn enter(&self, address: IpAddr) -> Rc<Usage> {
        let mut by_address = self.by_address.borrow_mut();
        let usage = by_address
            .entry(address)
            .or_insert_with(|| Rc::new(Usage { address, bytes: Cell::new(0), connections: Cell::new(0) }));
        usage.connections.set(usage.connections.get() + 1);
        Rc::clone(usage)
    }

    /// Closes the account with the address's last connection.
    pub(crate) fn leave(&self, usage: &Usage) {
        usage.connections.set(usage.connections.get() - 1);
        if usage.connections.get() == 0 {
            self.by_address.borrow_mut().remove(&usage.address);
        }
    }

    /// Whether so many more bytes are too many. A request that is alone is never too large: else it could not be
    /// carried out at all.
    pub(crate) fn is_overloaded(&self, usage: &Usage, bytes: usize) -> bool {
        let over = |used: usize, limit: usize| used > 0 && used.saturating_add(bytes) > limit;
        over(self.bytes.get(), self.limit) || over(usage.bytes.get(), self.limit_per_ip)
    }

    /// Books bytes, whether or not there is room for them.
    pub(crate) fn charge(self: &Rc<Self>, usage: &Rc<Usage>, bytes: usize) -> Charge {
        self.bytes.set(self.bytes.get() + bytes);
        usage.bytes.set(usage.bytes.get() + bytes);
        add(&self.metrics.request_bytes_in_flight, bytes);
        Charge { admission: Rc::clone(self), usage: Rc::clone(usage), bytes }
    }

    /// Waits until bytes are given back. Who goes on then wakes the next ([`Admission::pass_on`]); who finds that
    /// there is still no room waits again, and is woken by the next bytes.
    pub(crate) fn released(&self) -> Notified {
        self.released.notified()
    }

    /// Wakes the connection that has waited longest.
    pub(crate) fn pass_on(&self) {
        if self.released.waiting() > 0 {
            self.released.notify_one();
        }
    }
}

/// Bytes in flight; given back when dropped.
pub(crate) struct Charge {
    admission: Rc<Admission>,
    usage: Rc<Usage>,
    bytes: usize,
}

impl Charge {
    /// How many bytes they are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let admission = &self.admission;
        admission.bytes.set(admission.bytes.get() - self.bytes);
        self.usage.bytes.set(self.usage.bytes.get() - self.bytes);
        subtract(&admission.metrics.request_bytes_in_flight, self.bytes);
        admission.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_in_total_and_for_one_address() {
        let admission = Admission::new(100, 60, Rc::default());
        let one = admission.enter([127, 0, 0, 1].into());
        let two = admission.enter([127, 0, 0, 2].into());
        assert!(!admission.is_overloaded(&one, 1000), "a request alone is always admitted");
        let first = admission.charge(&one, 50);
        assert!(!admission.is_overloaded(&one, 10));
        assert!(admission.is_overloaded(&one, 11), "the address's limit");
        assert!(!admission.is_overloaded(&two, 50));
        assert!(admission.is_overloaded(&two, 51), "the limit in total");
        drop(first);
        assert!(!admission.is_overloaded(&one, 60));
    }

    #[test]
    fn accounts_end_with_the_last_connection() {
        let admission = Admission::new(100, 60, Rc::default());
        let address = IpAddr::from([127, 0, 0, 1]);
        let first = admission.enter(address);
        let second = admission.enter(address);
        assert!(Rc::ptr_eq(&first, &second));
        admission.leave(&first);
        assert_eq!(admission.by_address.borrow().len(), 1);
        admission.leave(&second);
        assert_eq!(admission.by_address.borrow().len(), 0);
    }
}

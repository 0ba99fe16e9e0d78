//! The bytes of requests that may be in flight, in total and for one client address: first connections are not read
//! any more, and clients that ask for it get OVERLOADED instead.
//!
//! The limits are the node's. A shard has a part of each, borrows more from shard 0 when that is used up, and gives back
//! what it does not need ([`crate::lending`]).

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use rt::sync::{Notified, Notify};
use stdx::HashMap;

use crate::lending::share;
use crate::metrics::{SessionMetrics, add, subtract};

/// A message to shard 0 about a limit: of an address, or in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lending {
    /// So many bytes more, please.
    Borrow(Option<IpAddr>, usize),
    /// These are not needed any more.
    GiveBack(Option<IpAddr>, usize),
}

/// This shard's part of one limit, and what is used of it.
#[derive(Debug)]
struct Account {
    address: Option<IpAddr>,
    used: Cell<usize>,
    lease: Cell<usize>,
    /// What the shard keeps without asking.
    own: usize,
    /// More was asked for, and the answer has not come.
    asking: Cell<bool>,
    /// There was nothing to lend; word comes when there is.
    denied: Cell<bool>,
}

impl Account {
    fn new(address: Option<IpAddr>, own: usize) -> Self {
        let zero = || Cell::new(0);
        let flag = || Cell::new(false);
        Self { address, used: zero(), lease: Cell::new(own), own, asking: flag(), denied: flag() }
    }

    /// Whether so many more bytes fit. A request that is alone is never too large: else it could not be carried out at
    /// all.
    fn has_room(&self, bytes: usize) -> bool {
        self.used.get() == 0 || self.used.get().saturating_add(bytes) <= self.lease.get()
    }
}

/// What one client address uses on this shard.
#[derive(Debug)]
pub(crate) struct Usage {
    account: Account,
    connections: Cell<usize>,
}

/// The limits as far as this shard has to do with them.
pub(crate) struct Admission {
    total: Account,
    own_per_ip: usize,
    by_address: RefCell<HashMap<IpAddr, Rc<Usage>>>,
    released: Notify,
    metrics: Rc<SessionMetrics>,
    /// Sends a message to shard 0; none when this shard is the only one.
    lender: RefCell<Option<Box<dyn Fn(Lending)>>>,
}

impl Admission {
    /// Limits of the node in bytes.
    pub(crate) fn new(
        limit: usize,
        limit_per_ip: usize,
        shard_count: u16,
        metrics: Rc<SessionMetrics>,
    ) -> Rc<Self> {
        Rc::new(Self {
            total: Account::new(None, share(limit, shard_count)),
            own_per_ip: share(limit_per_ip, shard_count),
            by_address: RefCell::default(),
            released: Notify::new(),
            metrics,
            lender: RefCell::new(None),
        })
    }

    /// Has messages to shard 0 sent this way.
    pub(crate) fn borrow_from(&self, lender: Box<dyn Fn(Lending)>) {
        *self.lender.borrow_mut() = Some(lender);
    }

    /// The account of a new connection's address.
    pub(crate) fn enter(&self, address: IpAddr) -> Rc<Usage> {
        let mut by_address = self.by_address.borrow_mut();
        let usage = by_address.entry(address).or_insert_with(|| {
            Rc::new(Usage {
                account: Account::new(Some(address), self.own_per_ip),
                connections: Cell::new(0),
            })
        });
        usage.connections.set(usage.connections.get() + 1);
        Rc::clone(usage)
    }

    /// Closes the account with the address's last connection.
    pub(crate) fn leave(&self, usage: &Usage) {
        usage.connections.set(usage.connections.get() - 1);
        if usage.connections.get() == 0
            && let Some(address) = usage.account.address
        {
            self.by_address.borrow_mut().remove(&address);
            self.give_back(&usage.account, usage.account.lease.get() - usage.account.own);
        }
    }

    /// Whether so many more bytes are too many for what this shard has; then more is asked for.
    pub(crate) fn is_overloaded(&self, usage: &Usage, bytes: usize) -> bool {
        let mut overloaded = false;
        for account in [&self.total, &usage.account] {
            if !account.has_room(bytes) {
                self.ask(account, bytes);
                overloaded = true;
            }
        }
        overloaded
    }

    /// Whether so many more bytes are too many for the node, as far as this shard knows.
    pub(crate) fn must_refuse(&self, usage: &Usage, bytes: usize) -> bool {
        let alone = self.lender.borrow().is_none();
        [&self.total, &usage.account]
            .iter()
            .any(|account| !account.has_room(bytes) && (alone || account.denied.get()))
    }

    fn ask(&self, account: &Account, bytes: usize) {
        let lender = self.lender.borrow();
        let Some(lender) = &*lender else { return };
        if account.denied.get() || account.asking.replace(true) {
            return;
        }
        let missing = (account.used.get() + bytes).saturating_sub(account.lease.get());
        lender(Lending::Borrow(account.address, missing + account.own));
    }

    fn give_back(&self, account: &Account, bytes: usize) {
        if bytes == 0 {
            return;
        }
        account.lease.set(account.lease.get() - bytes);
        if let Some(lender) = &*self.lender.borrow() {
            lender(Lending::GiveBack(account.address, bytes));
        }
    }

    /// Shard 0 has lent so many bytes; with none it will say when there are some.
    pub(crate) fn lent(&self, address: Option<IpAddr>, bytes: usize) {
        let usage = address.map(|address| self.by_address.borrow().get(&address).cloned());
        let account = match &usage {
            None => &self.total,
            Some(Some(usage)) => &usage.account,
            // The address's last connection has ended meanwhile.
            Some(None) => {
                if bytes > 0
                    && let Some(lender) = &*self.lender.borrow()
                {
                    lender(Lending::GiveBack(address, bytes));
                }
                return;
            }
        };
        account.asking.set(false);
        account.denied.set(bytes == 0);
        account.lease.set(account.lease.get() + bytes);
        self.pass_on();
    }

    /// Books bytes, whether or not there is room for them.
    pub(crate) fn charge(self: &Rc<Self>, usage: &Rc<Usage>, bytes: usize) -> Charge {
        for account in [&self.total, &usage.account] {
            account.used.set(account.used.get() + bytes);
        }
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
        for account in [&admission.total, &self.usage.account] {
            account.used.set(account.used.get() - self.bytes);
            // Others may have given back, too: the next who lacks room asks again.
            account.denied.set(false);
            // What is borrowed and not needed goes back; a little stays for what comes next.
            let keep = account.own.max(account.used.get().saturating_add(account.own));
            let surplus = account.lease.get().saturating_sub(keep);
            if surplus > account.own {
                admission.give_back(account, surplus);
            }
        }
        subtract(&admission.metrics.request_bytes_in_flight, self.bytes);
        admission.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_in_total_and_for_one_address() {
        let admission = Admission::new(100, 60, 1, Rc::default());
        let one = admission.enter([127, 0, 0, 1].into());
        let two = admission.enter([127, 0, 0, 2].into());
        assert!(!admission.is_overloaded(&one, 1000), "a request alone is always admitted");
        let first = admission.charge(&one, 50);
        assert!(!admission.is_overloaded(&one, 10));
        assert!(admission.is_overloaded(&one, 11), "the address's limit");
        assert!(admission.must_refuse(&one, 11));
        assert!(!admission.is_overloaded(&two, 50));
        assert!(admission.is_overloaded(&two, 51), "the limit in total");
        drop(first);
        assert!(!admission.is_overloaded(&one, 60));
    }

    #[test]
    fn accounts_end_with_the_last_connection() {
        let admission = Admission::new(100, 60, 1, Rc::default());
        let address = IpAddr::from([127, 0, 0, 1]);
        let first = admission.enter(address);
        let second = admission.enter(address);
        assert!(Rc::ptr_eq(&first, &second));
        admission.leave(&first);
        assert_eq!(admission.by_address.borrow().len(), 1);
        admission.leave(&second);
        assert_eq!(admission.by_address.borrow().len(), 0);
    }

    #[test]
    fn a_shard_borrows_what_it_lacks_and_gives_back_what_it_has_too_much() {
        let admission = Admission::new(1600, 800, 2, Rc::default());
        let sent: Rc<RefCell<Vec<Lending>>> = Rc::default();
        let messages = sent.clone();
        admission.borrow_from(Box::new(move |message| messages.borrow_mut().push(message)));
        let take = || std::mem::take(&mut *sent.borrow_mut());
        let address = IpAddr::from([127, 0, 0, 1]);
        let usage = admission.enter(address);
        let first = admission.charge(&usage, 40);
        assert!(!admission.is_overloaded(&usage, 10) && take().is_empty());
        assert!(admission.is_overloaded(&usage, 100));
        // 100 of the total and 50 of the address's limit are the shard's own.
        assert_eq!(take(), [Lending::Borrow(None, 140), Lending::Borrow(Some(address), 140)]);
        assert!(admission.is_overloaded(&usage, 100) && take().is_empty(), "it asks once");
        assert!(!admission.must_refuse(&usage, 100), "nobody has said that there is nothing");
        admission.lent(None, 140);
        admission.lent(Some(address), 0);
        assert!(admission.must_refuse(&usage, 100));
        assert!(admission.is_overloaded(&usage, 100) && take().is_empty(), "word will come");
        admission.lent(Some(address), 140);
        assert!(!admission.is_overloaded(&usage, 100));
        let second = admission.charge(&usage, 100);
        drop(first);
        drop(second);
        assert_eq!(take(), [Lending::GiveBack(None, 140), Lending::GiveBack(Some(address), 140)]);
        admission.leave(&usage);
        admission.lent(Some(address), 30);
        assert_eq!(take(), [Lending::GiveBack(Some(address), 30)], "nobody is there to use it");
    }
}

//! The bytes of requests and of answers that may be in flight, in total and for one client address: first connections are
//! not read any more, and clients that ask for it get OVERLOADED instead.
//!
//! The limits are the node's. A shard has a part of each, borrows more from shard 0 when that is used up, and gives back
//! the rest ([`crate::lending`]).
//!
//! A client without room waits in a queue of its address; addresses are served in turn, and a waiter is woken only with its room reserved.
//! Short requests go before long messages and have a part of each limit to themselves, so that long messages that stall
//! delay nobody but each other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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

/// This shard's part of one limit, and its use.
#[derive(Debug)]
struct Account {
    address: Option<IpAddr>,
    used: Cell<usize>,
    lease: Cell<usize>,
    /// The shard's own part, without leases.
    own: usize,
    /// The part that long messages leave to others.
    reserve: usize,
    /// Long messages that are booked, until they are answered: one is let in beyond the limit, and not the next when it waits for its answer.
    long: Cell<usize>,
    /// More was asked for, and the answer has not come.
    asking: Cell<bool>,
    /// There was nothing to lend; word comes when there is.
    denied: Cell<bool>,
}

impl Account {
    fn new(address: Option<IpAddr>, limit: usize, shard_count: u16) -> Self {
        let zero = || Cell::new(0);
        let flag = || Cell::new(false);
        let own = share(limit, shard_count);
        let reserve = own.min(limit / 4);
        Self {
            address,
            used: zero(),
            lease: Cell::new(own),
            own,
            reserve,
            long: zero(),
            asking: flag(),
            denied: flag(),
        }
    }

    /// Whether so many more bytes fit. A single request is never too large: else it could not be executed at all.
    fn has_room(&self, bytes: usize, kind: Kind) -> bool {
        let used = self.used.get();
        match kind {
            Kind::Short => used == 0 || used.saturating_add(bytes) <= self.lease.get(),
            Kind::Long => {
                self.long.get() == 0
                    || used.saturating_add(bytes).saturating_add(self.reserve) <= self.lease.get()
            }
        }
    }
}

/// The kind of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request that is here, or an answer.
    Short,
    /// A message that is booked before it is here.
    Long,
}

/// The usage of one client address on this shard.
#[derive(Debug)]
pub(crate) struct Usage {
    account: Account,
    connections: Cell<usize>,
    /// The waiting requests, by kind.
    waiting: [RefCell<VecDeque<Rc<Slot>>>; 2],
}

/// A place in a queue.
#[derive(Debug)]
struct Slot {
    bytes: usize,
    granted: RefCell<Option<Charge>>,
    waker: RefCell<Option<Waker>>,
}

/// Waits for room; ready with the room booked. Dropped before that it gives up its place, or the room.
#[derive(Debug)]
pub(crate) struct Room {
    usage: Rc<Usage>,
    kind: Kind,
    slot: Rc<Slot>,
}

impl Room {
    /// The kind that it waits for.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
}

impl Future for Room {
    type Output = Charge;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Charge> {
        if let Some(charge) = self.slot.granted.borrow_mut().take() {
            return Poll::Ready(charge);
        }
        *self.slot.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut queue = self.usage.waiting[self.kind as usize].borrow_mut();
        queue.retain(|slot| !Rc::ptr_eq(slot, &self.slot));
        drop(queue);
        // Outside of the cell: it may be granted to the next.
        let granted = self.slot.granted.borrow_mut().take();
        drop(granted);
    }
}

/// The counter of a kind.
pub(crate) type Gauge = fn(&SessionMetrics) -> &Cell<u64>;

/// The limits as far as this shard has to do with them.
pub(crate) struct Admission {
    total: Account,
    limit_per_ip: usize,
    shard_count: u16,
    by_address: RefCell<HashMap<IpAddr, Rc<Usage>>>,
    /// Addresses with waiting connections, in the order of service, by kind.
    turns: [RefCell<VecDeque<Rc<Usage>>>; 2],
    gauge: Gauge,
    metrics: Rc<SessionMetrics>,
    /// Sends a message to shard 0; none when this shard is the only one.
    lender: RefCell<Option<Box<dyn Fn(Lending)>>>,
    /// An injected bug: how many charges were dropped, of which every sixteenth is not given back. None without it.
    leak: Cell<Option<u64>>,
}

/// With the injected bug one charge in so many is not given back.
const LEAK_ONE_IN: u64 = 16;

impl Admission {
    /// Limits of the node in bytes.
    pub(crate) fn new(
        limit: usize,
        limit_per_ip: usize,
        shard_count: u16,
        metrics: Rc<SessionMetrics>,
        gauge: Gauge,
    ) -> Rc<Self> {
        Rc::new(Self {
            total: Account::new(None, limit, shard_count),
            limit_per_ip,
            shard_count,
            by_address: RefCell::default(),
            turns: Default::default(),
            gauge,
            metrics,
            lender: RefCell::new(None),
            leak: Cell::new(None),
        })
    }

    /// Has messages to shard 0 sent this way.
    pub(crate) fn borrow_from(&self, lender: Box<dyn Fn(Lending)>) {
        *self.lender.borrow_mut() = Some(lender);
    }

    /// Injects a bug: charges that are not given back.
    pub(crate) fn inject_leak(&self) {
        self.leak.set(Some(0));
    }

    /// Whether the injected bug befalls the charge that is dropped now.
    fn leaks(&self) -> bool {
        let Some(dropped) = self.leak.get() else { return false };
        self.leak.set(Some(dropped + 1));
        dropped % LEAK_ONE_IN == 0
    }

    /// The account of a new connection's address.
    pub(crate) fn enter(&self, address: IpAddr) -> Rc<Usage> {
        let mut by_address = self.by_address.borrow_mut();
        let usage = by_address.entry(address).or_insert_with(|| {
            Rc::new(Usage {
                account: Account::new(Some(address), self.limit_per_ip, self.shard_count),
                connections: Cell::new(0),
                waiting: Default::default(),
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

    /// Whether so many more bytes exceed this shard's part; then more is requested.
    pub(crate) fn is_overloaded(&self, usage: &Usage, bytes: usize, kind: Kind) -> bool {
        let mut overloaded = false;
        for account in [&self.total, &usage.account] {
            if !account.has_room(bytes, kind) {
                self.ask(account, bytes, kind);
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
            .any(|account| !account.has_room(bytes, Kind::Short) && (alone || account.denied.get()))
    }

    fn ask(&self, account: &Account, bytes: usize, kind: Kind) {
        let lender = self.lender.borrow();
        let Some(lender) = &*lender else { return };
        if account.denied.get() || account.asking.replace(true) {
            return;
        }
        let reserve = if kind == Kind::Long { account.reserve } else { 0 };
        let missing = (account.used.get() + bytes + reserve).saturating_sub(account.lease.get());
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

    /// Shard 0 has leased so many bytes; with none it will notify when there are some.
    pub(crate) fn leased(self: &Rc<Self>, address: Option<IpAddr>, bytes: usize) {
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
        drop(usage);
        self.grant();
    }

    /// Books bytes, whether or not there is room for them.
    pub(crate) fn charge(self: &Rc<Self>, usage: &Rc<Usage>, bytes: usize, kind: Kind) -> Charge {
        for account in [&self.total, &usage.account] {
            account.used.set(account.used.get() + bytes);
            account.long.set(account.long.get() + usize::from(kind == Kind::Long));
        }
        add((self.gauge)(&self.metrics), bytes);
        Charge { admission: Rc::clone(self), usage: Rc::clone(usage), bytes, kind }
    }

    /// Waits for room for so many bytes behind those of the same address; addresses take turns.
    pub(crate) fn wait(self: &Rc<Self>, usage: &Rc<Usage>, bytes: usize, kind: Kind) -> Room {
        let slot = Rc::new(Slot { bytes, granted: RefCell::default(), waker: RefCell::default() });
        let mut queue = usage.waiting[kind as usize].borrow_mut();
        queue.push_back(Rc::clone(&slot));
        if queue.len() == 1 {
            let mut turns = self.turns[kind as usize].borrow_mut();
            if !turns.iter().any(|queued| Rc::ptr_eq(queued, usage)) {
                turns.push_back(Rc::clone(usage));
            }
        }
        drop(queue);
        self.grant();
        Room { usage: Rc::clone(usage), kind, slot }
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        let waits = |kind: usize| {
            let turns = self.turns[kind].borrow();
            turns.iter().any(|usage| !usage.waiting[kind].borrow().is_empty())
        };
        waits(Kind::Short as usize) || waits(Kind::Long as usize)
    }

    /// Gives room to those that wait, as far as there is some: to short requests first.
    fn grant(self: &Rc<Self>) {
        for kind in [Kind::Short, Kind::Long] {
            self.grant_kind(kind);
        }
    }

    fn grant_kind(self: &Rc<Self>, kind: Kind) {
        let turns = &self.turns[kind as usize];
        let mut passed = 0;
        // Addresses that have no room of their own are passed over; without room in total no request is admitted.
        while passed < turns.borrow().len() {
            let Some(usage) = turns.borrow_mut().pop_front() else { return };
            let first = usage.waiting[kind as usize].borrow().front().cloned();
            let Some(slot) = first else { continue };
            if !self.total.has_room(slot.bytes, kind) {
                self.ask(&self.total, slot.bytes, kind);
                turns.borrow_mut().push_front(usage);
                return;
            }
            if usage.account.has_room(slot.bytes, kind) {
                usage.waiting[kind as usize].borrow_mut().pop_front();
                *slot.granted.borrow_mut() = Some(self.charge(&usage, slot.bytes, kind));
                if let Some(waker) = slot.waker.borrow_mut().take() {
                    waker.wake();
                }
                passed = 0;
            } else {
                self.ask(&usage.account, slot.bytes, kind);
                passed += 1;
            }
            if !usage.waiting[kind as usize].borrow().is_empty() {
                turns.borrow_mut().push_back(usage);
            }
        }
    }
}

/// Bytes in flight; given back when dropped.
pub(crate) struct Charge {
    admission: Rc<Admission>,
    usage: Rc<Usage>,
    bytes: usize,
    kind: Kind,
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

impl Charge {
    /// How many bytes they are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Books more, up to so many bytes, whether or not there is room for them.
    pub(crate) fn grow(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        for account in [&self.admission.total, &self.usage.account] {
            account.used.set(account.used.get() + more);
        }
        add((self.admission.gauge)(&self.admission.metrics), more);
    }

    /// Gives back all but so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        if surplus > 0 {
            self.bytes -= surplus;
            let usage = Rc::clone(&self.usage);
            drop(Charge { admission: Rc::clone(&self.admission), usage, bytes: surplus, kind: Kind::Short });
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let admission = &self.admission;
        if admission.leaks() {
            return;
        }
        for account in [&admission.total, &self.usage.account] {
            account.used.set(account.used.get() - self.bytes);
            account.long.set(account.long.get() - usize::from(self.kind == Kind::Long));
            // Others may have given back, too: the next request that lacks room asks again.
            account.denied.set(false);
            // Unused leases go back; a little stays for later requests.
            let keep = account.own.max(account.used.get().saturating_add(account.own));
            let surplus = account.lease.get().saturating_sub(keep);
            if surplus > account.own {
                admission.give_back(account, surplus);
            }
        }
        subtract((admission.gauge)(&admission.metrics), self.bytes);
        admission.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAUGE: Gauge = |metrics| &metrics.request_bytes_in_flight;

    /// The room of a waiter, without waking anybody.
    fn poll(room: &mut Room) -> Option<Charge> {
        match Pin::new(room).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(charge) => Some(charge),
            Poll::Pending => None,
        }
    }

    #[test]
    fn those_that_wait_are_served_in_turns_of_their_addresses() {
        let admission = Admission::new(100, 100, 1, Rc::default(), GAUGE);
        let [one, two] = [1, 2].map(|last| admission.enter([127, 0, 0, last].into()));
        let all = admission.charge(&one, 100, Kind::Short);
        let mut of_one: Vec<Room> = (0..50).map(|_| admission.wait(&one, 50, Kind::Short)).collect();
        let mut of_two = admission.wait(&two, 50, Kind::Short);
        assert!(of_one.iter_mut().all(|room| poll(room).is_none()) && poll(&mut of_two).is_none());
        drop(all);
        let first = poll(&mut of_one[0]).expect("the first that waits");
        let second = poll(&mut of_two).expect("the other address is next, however many wait before it");
        assert!(of_one[1..].iter_mut().all(|room| poll(room).is_none()));
        // A waiter that ends gives its place up, also when it was granted room and did not take it.
        drop(of_one.remove(1));
        drop(first);
        drop(of_one.remove(1));
        let third = poll(&mut of_one[1]).expect("the room that was not taken");
        drop((second, third, of_one));
        assert!(!admission.is_overloaded(&one, 100, Kind::Short) && !admission.is_waited_for());
        assert!(admission.total.used.get() == 0 && one.account.used.get() == 0);
    }

    #[test]
    fn long_messages_leave_room_for_short_requests() {
        let admission = Admission::new(400, 100, 1, Rc::default(), GAUGE);
        let usage = admission.enter([127, 0, 0, 1].into());
        let promised = admission.charge(&usage, 60, Kind::Long);
        assert!(admission.is_overloaded(&usage, 20, Kind::Long), "25 are not for long messages");
        let mut long = admission.wait(&usage, 60, Kind::Long);
        for _ in 0..10 {
            assert!(!admission.is_overloaded(&usage, 30, Kind::Short), "short requests pass it");
            drop(admission.charge(&usage, 30, Kind::Short));
        }
        assert!(poll(&mut long).is_none());
        // It is answered.
        drop(promised);
        let granted = poll(&mut long).expect("the first long message is never too long");
        drop(granted);
        assert_eq!((usage.account.used.get(), usage.account.long.get()), (0, 0));
    }

    #[test]
    fn an_address_without_room_does_not_hold_others_up() {
        let admission = Admission::new(100, 40, 1, Rc::default(), GAUGE);
        let [one, two] = [1, 2].map(|last| admission.enter([127, 0, 0, last].into()));
        let held = admission.charge(&one, 40, Kind::Short);
        let mut blocked = admission.wait(&one, 30, Kind::Short);
        let mut free = admission.wait(&two, 30, Kind::Short);
        assert!(poll(&mut blocked).is_none() && poll(&mut free).is_some());
        drop(held);
        let mut charge = poll(&mut blocked).expect("its own room");
        charge.shrink(10);
        assert_eq!(one.account.used.get(), 10);
    }

    #[test]
    fn limits_in_total_and_for_one_address() {
        let admission = Admission::new(100, 60, 1, Rc::default(), GAUGE);
        let one = admission.enter([127, 0, 0, 1].into());
        let two = admission.enter([127, 0, 0, 2].into());
        assert!(!admission.is_overloaded(&one, 1000, Kind::Short), "a request alone is always admitted");
        let first = admission.charge(&one, 50, Kind::Short);
        assert!(!admission.is_overloaded(&one, 10, Kind::Short));
        assert!(admission.is_overloaded(&one, 11, Kind::Short), "the address's limit");
        assert!(admission.must_refuse(&one, 11));
        assert!(!admission.is_overloaded(&two, 50, Kind::Short));
        assert!(admission.is_overloaded(&two, 51, Kind::Short), "the limit in total");
        drop(first);
        assert!(!admission.is_overloaded(&one, 60, Kind::Short));
    }

    #[test]
    fn accounts_end_with_the_last_connection() {
        let admission = Admission::new(100, 60, 1, Rc::default(), GAUGE);
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
    fn a_shard_borrows_missing_quota_and_returns_surplus() {
        let admission = Admission::new(1600, 800, 2, Rc::default(), GAUGE);
        let sent: Rc<RefCell<Vec<Lending>>> = Rc::default();
        let messages = sent.clone();
        admission.borrow_from(Box::new(move |message| messages.borrow_mut().push(message)));
        let take = || std::mem::take(&mut *sent.borrow_mut());
        let address = IpAddr::from([127, 0, 0, 1]);
        let usage = admission.enter(address);
        let first = admission.charge(&usage, 40, Kind::Short);
        assert!(!admission.is_overloaded(&usage, 10, Kind::Short) && take().is_empty());
        assert!(admission.is_overloaded(&usage, 100, Kind::Short));
        // 100 of the total and 50 of the address's limit are the shard's own.
        assert_eq!(take(), [Lending::Borrow(None, 140), Lending::Borrow(Some(address), 140)]);
        assert!(admission.is_overloaded(&usage, 100, Kind::Short) && take().is_empty(), "it asks once");
        assert!(!admission.must_refuse(&usage, 100), "nobody has said that there is nothing");
        admission.leased(None, 140);
        admission.leased(Some(address), 0);
        assert!(admission.must_refuse(&usage, 100));
        assert!(admission.is_overloaded(&usage, 100, Kind::Short) && take().is_empty(), "word will come");
        admission.leased(Some(address), 140);
        assert!(!admission.is_overloaded(&usage, 100, Kind::Short));
        let second = admission.charge(&usage, 100, Kind::Short);
        drop(first);
        drop(second);
        assert_eq!(take(), [Lending::GiveBack(None, 140), Lending::GiveBack(Some(address), 140)]);
        admission.leave(&usage);
        admission.leased(Some(address), 30);
        assert_eq!(take(), [Lending::GiveBack(Some(address), 30)], "nobody is there to use it");
    }
}

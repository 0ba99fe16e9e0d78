//! The state of one shard's lightweight transactions: locks, leases of locks, its clock of ballots, figures.

use std::cell::{Cell, RefCell};

use paxos::{Ballot, BallotClock};
use rt::{Instant, Rt};
use stdx::HashMap;

use super::locks::{PartitionLock, PartitionLocks};
use super::stats::PaxosStats;
use super::unsettled::Unsettled;
use crate::latency::Counters;

pub(super) enum Lease {
    /// Queued behind earlier requests.
    Waiting,
    Granted {
        _lock: PartitionLock,
    },
    /// Released by the other shard, possibly before its request arrived.
    Released,
}

/// Locks that other shards of this node have leased, with the time at which each lease expires.
#[derive(Default)]
pub(crate) struct Leases(pub(super) RefCell<HashMap<(u16, u64), (Instant, Lease)>>);

/// One shard's part in lightweight transactions.
pub(crate) struct Paxos {
    /// The nodes that coordinate a request of a partition, one after the other.
    pub(super) requests: PartitionLocks,
    /// PartitionLocks that other shards of this node have.
    pub(super) leases: Leases,
    /// Number of the next lock request of this shard.
    lock_requests: Cell<u64>,
    /// The nodes that vote on a partition, one after the other.
    pub(super) votes: PartitionLocks,
    /// Those whose last vote may not be on disk.
    pub(super) unsettled: Unsettled,
    /// The latest round that was voted on.
    voted_micros: Cell<i64>,
    clock: RefCell<BallotClock>,
    pub(super) stats: Cell<PaxosStats>,
    pub(super) reads: Counters,
    pub(super) writes: Counters,
}

impl Paxos {
    pub(crate) fn new(rt: &Rt) -> Self {
        let (sequence, node) = (rt.random_u64() as u16, rt.random_u64());
        Self {
            requests: PartitionLocks::default(),
            leases: Leases::default(),
            lock_requests: Cell::new(0),
            votes: PartitionLocks::default(),
            unsettled: Unsettled::default(),
            voted_micros: Cell::new(i64::MIN),
            clock: RefCell::new(BallotClock::new(types::uuid::clock_and_node(sequence, node))),
            stats: Cell::default(),
            reads: Counters::default(),
            writes: Counters::default(),
        }
    }

    pub(super) fn next_ballot(&self, now_micros: i64, above: Ballot) -> Ballot {
        self.clock.borrow_mut().next(now_micros, above)
    }

    pub(super) fn next_lock_request(&self) -> u64 {
        let number = self.lock_requests.get();
        self.lock_requests.set(number + 1);
        number
    }

    /// The latest round that was voted on here since the start, microseconds; [`i64::MIN`] for none.
    pub(crate) fn voted_micros(&self) -> i64 {
        self.voted_micros.get()
    }

    pub(super) fn note_voted(&self, ballot: Ballot) {
        self.voted_micros.set(self.voted_micros.get().max(ballot.micros));
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut PaxosStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }
}

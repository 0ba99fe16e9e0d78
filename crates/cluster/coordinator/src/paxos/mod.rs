//! Lightweight transactions: a partition is read, and written if what was read is as it should be, with nothing agreed on in
//! between. Carries the rules of crate `paxos` out (docs/design/lwt.md).
//!
//! Requests of one partition on one node wait for each other ([`node_locks`]); what other nodes want at the same time is settled by the
//! rules.

pub(crate) mod codec;
mod commit;
mod driver;
mod locks;
mod migrate;
mod node_locks;
mod stats;
mod store;
mod vote;

use std::cell::{Cell, RefCell};

use mutation::{PartitionUpdate, Timestamp};
use paxos::{Ballot, BallotClock};
use replica::{Partitions, ReadCommand, ReadPage};
use rt::{Instant, Rt};

use crate::latency::{Counters, RequestFigures};
use crate::{Consistency, Coordinator, RequestError};
use driver::{Decided, Driver};
use locks::PartitionLocks;
pub use migrate::MigratedVote;
use node_locks::Leases;
pub use node_locks::LockRequest;
pub use stats::PaxosStats;
pub(crate) use vote::answer;
pub use vote::{Ballotage, Vote};

/// How a conditional request is to be done.
#[derive(Clone, Copy, Debug)]
pub struct CasOptions {
    /// The scope of agreement: SERIAL or LOCAL_SERIAL.
    pub serial: Consistency,
    /// How many replicas must acknowledge the write before the client is answered.
    pub commit: Consistency,
    /// The deadline of the commit.
    pub deadline: Instant,
    /// The deadline under contention.
    pub contention_deadline: Instant,
}

/// What became of a conditional request.
#[derive(Debug)]
pub enum CasOutcome {
    /// The conditions held, and the write is done.
    Applied,
    /// They did not hold for this.
    Refused(ReadPage),
}

/// One shard's part in lightweight transactions.
pub(crate) struct Paxos {
    /// Who coordinates a request of a partition, one after the other.
    requests: PartitionLocks,
    /// PartitionLocks that other shards of this node have.
    leases: Leases,
    /// Number of the next lock request of this shard.
    lock_requests: Cell<u64>,
    /// Who votes on a partition, one after the other.
    votes: PartitionLocks,
    /// The latest round that was voted on.
    voted_micros: Cell<i64>,
    clock: RefCell<BallotClock>,
    stats: Cell<PaxosStats>,
    reads: Counters,
    writes: Counters,
}

impl Paxos {
    pub(crate) fn new(rt: &Rt) -> Self {
        let (sequence, node) = (rt.random_u64() as u16, rt.random_u64());
        Self {
            requests: PartitionLocks::default(),
            leases: Leases::default(),
            lock_requests: Cell::new(0),
            votes: PartitionLocks::default(),
            voted_micros: Cell::new(i64::MIN),
            clock: RefCell::new(BallotClock::new(types::uuid::clock_and_node(sequence, node))),
            stats: Cell::default(),
            reads: Counters::default(),
            writes: Counters::default(),
        }
    }

    fn next_ballot(&self, now_micros: i64, above: Ballot) -> Ballot {
        self.clock.borrow_mut().next(now_micros, above)
    }

    fn next_lock_request(&self) -> u64 {
        let number = self.lock_requests.get();
        self.lock_requests.set(number + 1);
        number
    }

    /// The latest round that was voted on here since the start, microseconds; [`i64::MIN`] for none.
    pub(crate) fn voted_micros(&self) -> i64 {
        self.voted_micros.get()
    }

    fn note_voted(&self, ballot: Ballot) {
        self.voted_micros.set(self.voted_micros.get().max(ballot.micros));
    }

    fn count(&self, change: impl FnOnce(&mut PaxosStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }
}

impl Coordinator {
    /// Reads a partition with `command`, and writes what `decide` returns for it; nothing when that is `None`. `decide` gives the
    /// write the timestamp that it receives, and deletions one before it. It is called again after
    /// contention.
    pub async fn cas<E: From<RequestError>>(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
    ) -> Result<CasOutcome, E> {
        let began = self.rt().now();
        let mut counted = Ok(());
        let result = self.cas_uncounted(command, options, decide, &mut counted).await;
        self.paxos().writes.ended(self.rt().now() - began, &counted);
        result
    }

    async fn cas_uncounted<E: From<RequestError>>(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
        counted: &mut Result<(), RequestError>,
    ) -> Result<CasOutcome, E> {
        let mut fail = |error: RequestError| {
            *counted = Err(error.clone());
            E::from(error)
        };
        let mut driver = Driver::new(self, command, options, false).map_err(&mut fail)?;
        driver.check_commit(options.commit).map_err(&mut fail)?;
        let _lock = driver.lock().await.map_err(&mut fail)?;
        let decided = loop {
            match driver.run(decide).await {
                Ok(decided) => break decided,
                Err(driver::Failure::Decide(error)) => return Err(error),
                Err(driver::Failure::Request(error)) => match driver.anew(&error).await.map_err(&mut fail)? {
                    Some(later) => driver = later,
                    None => return Err(fail(error)),
                },
            }
        };
        match decided {
            Decided::Nothing(page) => {
                self.paxos().count(|stats| stats.refused += 1);
                Ok(CasOutcome::Refused(page))
            }
            Decided::Chosen(proposal) => {
                self.paxos().count(|stats| stats.applied += 1);
                driver.commit(proposal, options.commit).await.map_err(fail)?;
                Ok(CasOutcome::Applied)
            }
        }
    }

    /// Reads a partition so that everything agreed on before is seen.
    pub async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let began = self.rt().now();
        let result = self.read_serial_uncounted(command, consistency, deadline).await;
        self.paxos().reads.ended(self.rt().now() - began, &result);
        result
    }

    async fn read_serial_uncounted(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let is_one = matches!(&command.partitions, Partitions::Keys(keys) if keys.len() == 1);
        if !is_one || self.is_computed(&command.table) {
            // There is nothing to agree on.
            return self.read(command, serial_quorum(consistency), deadline).await;
        }
        let options = CasOptions {
            serial: consistency,
            commit: Consistency::Any,
            deadline,
            contention_deadline: deadline,
        };
        let mut driver = Driver::new(self, command, options, true)?;
        let _lock = driver.lock().await?;
        let mut nothing = |_: &ReadPage, _: Timestamp| Ok::<_, RequestError>(None);
        loop {
            match driver.run(&mut nothing).await {
                Ok(Decided::Nothing(page)) => return Ok(page),
                Ok(Decided::Chosen(_)) => panic!("a read proposes nothing"),
                Err(driver::Failure::Request(error) | driver::Failure::Decide(error)) => {
                    driver = driver.anew(&error).await?.ok_or(error)?;
                }
            }
        }
    }

    /// Conditional requests and serial reads of this shard: how long they took and how they failed.
    pub fn cas_figures(&self) -> (RequestFigures, RequestFigures) {
        (self.paxos().reads.figures(), self.paxos().writes.figures())
    }

    /// What this shard counts of lightweight transactions.
    pub fn paxos_stats(&self) -> PaxosStats {
        self.paxos().stats.get()
    }
}

/// The quorum of a serial level.
fn serial_quorum(serial: Consistency) -> Consistency {
    if serial == Consistency::LocalSerial { Consistency::LocalQuorum } else { Consistency::Quorum }
}

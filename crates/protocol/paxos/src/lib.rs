//! Agreement on the next write of one partition: the rules of Paxos for acceptors ([`acceptor`]) and proposers
//! ([`proposer`]), as state machines without tasks, clock or network.
//!
//! A round: a proposer takes a [`Ballot`], has a quorum promise to follow none with a lower one, learns from the promises
//! of an unfinished proposal and finishes it, reads, proposes its write, and when a quorum has accepted it, has every replica
//! commit it. docs/design/lwt.md has the differences from Cassandra and why they are correct.

pub mod acceptor;
mod ballot;
pub mod proposer;
mod sole;

pub use acceptor::{AcceptorState, Reply, Request, Step, step};
pub use ballot::{BETWEEN_MICROS, Ballot, BallotClock};
pub use proposer::{Action, Failure, Proposer};
pub use sole::{choose_alone, promise_alone};

/// A value that stands for election: a write, or nothing, which is proposed to be sure that nothing older still stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal<V> {
    /// The round in which it is proposed; higher when another than its author finishes it.
    pub ballot: Ballot,
    /// The round of its author: its identity, and the timestamp of its write.
    pub id: Ballot,
    /// The authors' rounds of the writes that were chosen before it, the last one first; a few of them. An author
    /// whose write another finished, and others followed, learns its outcome from them.
    pub after: Vec<Ballot>,
    /// The write.
    pub value: Option<V>,
}

/// How many writes before it a proposal names.
pub const AFTER_MAX: usize = 16;

impl<V> Proposal<V> {
    /// The proposal of a round that decides anew, behind the last commit.
    fn decided(ballot: Ballot, last: Option<&Self>, value: Option<V>) -> Self {
        let before = last.into_iter();
        let before = before.flat_map(|last| std::iter::once(last.id).chain(last.after.iter().copied()));
        Self { ballot, id: ballot, after: before.take(AFTER_MAX).collect(), value }
    }
}

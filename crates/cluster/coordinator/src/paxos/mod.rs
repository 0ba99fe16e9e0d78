//! Lightweight transactions: a partition is read, and written if the rows satisfy the conditions, with no other decision in
//! between. Carries the rules of crate `paxos` out (docs/design/lwt.md).
//!
//! Requests of one partition on one node wait for each other ([`node_locks`]); competing requests of other nodes are settled by the
//! rules.

pub(crate) mod codec;
mod commit;
mod driver;
mod locks;
pub(crate) mod lwt;
pub(crate) mod messages;
mod migrate;
mod node_locks;
mod options;
mod requests;
mod settle;
mod size;
mod sole;
pub(crate) mod state;
mod stats;
mod store;
mod unsettled;
mod vote;

pub use messages::{Ballotage, LockRequest, MigratedVote, Vote};
pub use options::{CAS_APART_MICROS, CasOptions, CasOutcome};
pub use stats::PaxosStats;
pub(crate) use vote::answer;

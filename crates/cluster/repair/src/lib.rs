//! Repair: nodes that keep the same data compare it, range by range and row by row, and tell each other what they lack.
//!
//! One node, the master, leads; the shards of all nodes answer its questions about a bounded stretch of the ring at a time:
//! one number for everything, numbers for parts of it where that differs, and last the rows that differ, which alone cross the
//! wire. How, and why it may be interrupted anywhere: docs/design/repair.md.

pub mod age;
mod automatic;
mod canaries;
pub mod codec;
pub mod element;
pub mod follower;
pub mod history;
mod job;
mod master;
pub mod merge;
pub mod message;
pub mod piece;
pub mod plan;
pub mod schedule;
pub mod scope;
mod service;
pub mod sessions;
pub mod step;
mod whole;
pub mod wire;

pub use canaries::Canaries;
pub use follower::{Data, Follower, FollowerConfig, FollowerError};
pub use job::{JobState, JobStatus};
pub use master::RepairError;
pub use scope::{Scope, Slice};
pub use service::{ClusterContext, Members, Repair, RepairConfig, RepairStats, Wanted};
pub use step::{Carrier, Done, Participant, StepError, Stretch, participants, step};

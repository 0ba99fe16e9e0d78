//! Repair: replicas compare their data, range by range and row by row, and send each other the missing rows.
//!
//! One node, the master, leads; the shards of all replicas answer its requests about one bounded token range (a segment) at a time:
//! one sum for the segment, sums of its buckets where that differs, and last the differing rows, the only data that cross the
//! wire. Protocol, and why it may be interrupted anywhere: docs/design/repair.md.

pub mod age;
mod automatic;
pub mod bits;
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
pub use job::{JobRequest, JobState, JobStatus};
pub use master::RepairError;
pub use scope::{Scope, Slice};
pub use service::{ClusterContext, Members, Repair, RepairConfig, RepairSettings, RepairStats, Wanted};
pub use step::{Carrier, Done, Participant, Segment, StepError, participants, step};

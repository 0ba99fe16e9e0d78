//! A node's own data behind plain values: reads and writes go to the shard that owns the token, by a function call
//! when that is this shard and by a message otherwise.
//!
//! This is where the coordinator's world (consistency, requests) meets the engine's (files, memtables), and both see
//! only what is in [`command`].

pub mod command;
mod error;
mod message;
pub mod page;
mod read;
mod scan;
mod shard;

pub use command::{Keys, Limits, PartitionResult, Partitions, ReadCommand, ReadPage, Resume};
pub use error::ReplicaError;
pub use message::{ShardRequest, ShardResponse, TableOperation};
pub use shard::{Replica, ReplicaConfig};

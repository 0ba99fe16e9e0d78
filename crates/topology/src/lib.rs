//! Where data belongs: tokens to shards, and what a consistency level asks of replicas. Pure.

mod consistency;
mod sharder;

pub use consistency::Consistency;
pub use sharder::{SHARDING_IGNORE_MSB, Sharder};

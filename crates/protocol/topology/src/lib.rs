//! The owners of data: tokens to nodes and to shards, and what a consistency level asks of replicas. Pure.

mod allocation;
mod consistency;
mod placement;
mod placement_builder;
mod ring;
mod sharder;
mod strategy;

pub use allocation::allocate;
pub use consistency::Consistency;
pub use placement::{Placement, Replicas, TokenRange};
pub use placement_builder::PlacementBuilder;
pub use ring::{HostId, Location, NodeIndex, Ring, RingError, RingNode};
pub use sharder::{SHARDING_IGNORE_MSB, Sharder};

//! A node's membership in its cluster: it founds a cluster or joins one, follows its members and their liveness, and
//! takes its part in topology changes (bootstrap, decommission, removenode, replace, rebuild).
//!
//! Everything but [`RangeStreamer`] runs on shard 0. The work of the other shards goes through [`NodeShards`], so that this crate knows
//! neither how a node is put together nor how its shards are reached.

mod change;
mod config;
mod error;
mod first_seen;
mod ignored;
mod membership;
mod shards;

pub use change::{
    FetchFigures, FetchReason, FetchedRanges, RangeStreamer, Rebuild, TopologyChanges, TopologyRequest,
};
pub use config::MembershipConfig;
pub use error::MembershipError;
pub use membership::{Membership, open_group};
pub use shards::{NodeShards, RetainedRanges, ShardTask};

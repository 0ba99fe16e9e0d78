//! The owners of data: tokens to nodes and to shards, and the requirements of consistency levels. Pure.

mod allocation;
mod cluster_view;
mod consistency;
mod data_placement;
mod placed_ring;
mod placement;
mod placement_builder;
mod ring;
mod sharder;
mod strategy;
mod tablets;

pub use allocation::allocate;
pub use cluster_view::{ClusterView, NodeShard, Phase, Replicated, ViewNode};
pub use consistency::Consistency;
pub use data_placement::DataPlacement;
pub use placed_ring::PlacedRing;
pub use placement::{Placement, Replicas, TokenRange};
pub use placement_builder::PlacementBuilder;
pub use ring::{HostId, Location, NodeIndex, Ring, RingError, RingNode};
pub use sharder::{SHARDING_IGNORE_MSB, Sharder};
pub use tablets::{TableSharder, Tablet, TabletMap, TabletMaps};

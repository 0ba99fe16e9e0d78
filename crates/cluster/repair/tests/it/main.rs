//! Repair through the crate's own interface: random replicas, the messages between them, and plans.

mod cluster;
mod convergence;
mod incremental;
mod memory;
mod mending;
mod messages;
mod plan;
mod topology;
mod volume;
mod world;

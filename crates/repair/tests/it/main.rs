//! Repair through the crate's own interface: random replicas, what crosses between them, and plans.

mod convergence;
mod memory;
mod messages;
mod plan;
mod volume;

//! Placement and allocation through the crate's own interface.

mod allocation;
mod placement;
mod placement_steps;

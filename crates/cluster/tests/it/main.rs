//! The cluster's drivers on simulated nodes that speak the protocol between nodes.

mod identity;
mod liveness;

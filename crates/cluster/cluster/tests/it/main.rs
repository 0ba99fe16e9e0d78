//! The cluster's drivers on simulated nodes over the internode protocol.

mod commands;
mod cost;
mod founding;
mod fuzz;
mod group;
mod group_faults;
mod group_real;
mod group_world;
mod history;
mod identity;
mod large;
mod liveness;
mod raft_log;
mod rollback;
mod state;
mod stopped;

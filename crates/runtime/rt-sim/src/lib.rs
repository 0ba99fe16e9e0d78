//! The simulated backend of rt: one thread, virtual time, seeded scheduling and faults.
//!
//! A [`Simulation`] holds nodes of several shards, each with a disk, clocks and an address, and a network
//! between them. Everything that happens follows from the seed: the same seed gives the same trace, byte for
//! byte. Time passes only when every task waits (and a little with every poll), so an hour takes seconds.

mod begun;
mod clock;
mod config;
mod disk;
mod net;
mod random;
mod shard_random;
mod simulation;
mod trace;
mod world;

pub use begun::Begun;
pub use config::{ClockConfig, Config, Crash, DiskConfig, LinkConfig, NameDurability, NodeConfig};
pub use disk::{DiskFault, DiskImage};
pub use random::Rng;
pub use simulation::{MachineState, NodeId, NodeInfo, Sim, Simulation, Stalled};
pub use trace::TRACE_BLOCK;

/// Injected bugs, which only simulated nodes may have.
pub const fn injected<T>(bugs: T) -> rt::Injected<T> {
    rt::Injected::by_simulator(bugs)
}

//! Secured connections under the simulator.

mod handshakes;
mod streams;
mod world;

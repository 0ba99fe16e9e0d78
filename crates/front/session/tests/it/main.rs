//! Tests of connections, from the client's side of a network in memory.

mod backend;
mod certificates;
mod client;
mod events;
mod flood;
mod handshake;
mod hostile;
mod limits;
mod pipelining;
mod simulated;
mod sockets;
mod world;

//! Tests of the internode protocol: its bytes, and nodes that use it under the simulator.

mod harness;

mod calls;
mod capture;
mod connections;
mod failures;
mod frames;
mod fuzz;
mod hostile;
mod load;
mod secure;
mod sockets;
mod storm;

//! The promises of rt, held by every backend: each test body runs on io_uring, on the thread pool, with files
//! in memory, and in the simulator.

mod backends;
mod executor;
mod files;
mod mesh;
mod net;
mod sync;
mod tasks;

//! The binary from outside: a node as a process, met through its ports, its files and its exit code.

mod client;
mod node;
mod prepared;
mod tables;

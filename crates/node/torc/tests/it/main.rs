//! The binary from outside: a node as a process, met through its ports, its files and its exit code.

mod administration;
mod client;
mod dev;
mod dynamo_logins;
mod failures;
mod feed;
mod figures;
mod node;
mod nodetool;
mod place;
mod prepared;
mod raft_log;
mod several;
mod tables;
mod trace;

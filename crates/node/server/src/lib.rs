//! Puts a node together: configuration, directories, shards, and the collaborators of each.
//!
//! [`mains`] is the one function that wires a node; the binary hands its result to the production backend, the simulator
//! to the simulated one.

mod addresses;
mod admin_node;
mod announce;
mod audit;
mod backups;
mod boot;
mod canaries;
mod certificates;
mod cheap_hash;
pub mod config;
mod directory;
mod draining;
mod error;
mod executor;
mod facts;
mod front;
mod importing;
mod login;
mod member;
mod memory_metrics;
mod node;
mod object_store;
mod orders;
mod place;
mod repairing;
mod security;
mod settings;
mod shard;

pub use audit::{SyslogHook, SyslogSender, SyslogTarget};
pub use canaries::Canaries;
pub use config::{Config, ConfigError, LeftOut, Size};
pub use directory::{Addresses, ResolveHook};
pub use error::NodeError;
pub use node::{NodeHooks, ReadyHook, ReadyReport, mains, mains_with_canaries};
pub use settings::{LogLevelHook, LogLine, LogTailHook};

/// The version of the server.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

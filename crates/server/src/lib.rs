//! Puts a node together: configuration, directories, shards, and the collaborators of each.

pub mod config;

pub use config::{Config, ConfigError};

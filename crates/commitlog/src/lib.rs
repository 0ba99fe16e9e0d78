//! The commit log of one shard: what makes an acknowledged write survive a crash before its memtable is flushed.

pub mod config;

pub use config::{CommitLogConfig, SyncMode};

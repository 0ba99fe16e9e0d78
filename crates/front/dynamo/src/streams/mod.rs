//! Streams of a table's changes, made of its log of changes (docs/design/streams.md).

pub(crate) mod change;
pub(crate) mod definition;
pub(crate) mod position;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod shard;

use std::time::Duration;

use rt::sync::Semaphore;

/// Reads of shards at the same time, on one shard of the node: each may hold some megabytes.
const READERS_MAX: usize = 8;

/// The state that the streams of all tables share on one shard of the node.
pub(crate) struct Streams {
    /// How old a change is before it is shown, microseconds.
    pub(crate) window_micros: i64,
    pub(crate) known: shard::KnownStreams,
    pub(crate) readers: Semaphore,
}

impl Streams {
    pub(crate) fn new(window: Duration) -> Self {
        Self {
            window_micros: i64::try_from(window.as_micros()).unwrap_or(i64::MAX),
            known: shard::KnownStreams::default(),
            readers: Semaphore::new(READERS_MAX),
        }
    }
}

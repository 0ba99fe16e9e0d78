//! The options of a write request beside its mutations.

use rt::Instant;

use crate::Consistency;

/// The kind of a write, as timeouts report it (`<writeType>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// One partition.
    Simple,
    /// A logged batch.
    Batch,
    /// An unlogged batch.
    UnloggedBatch,
    /// A counter update.
    Counter,
    /// The batchlog's own write.
    BatchLog,
    /// The commit of a conditional update.
    Cas,
}

impl WriteKind {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "SIMPLE",
            Self::Batch => "BATCH",
            Self::UnloggedBatch => "UNLOGGED_BATCH",
            Self::Counter => "COUNTER",
            Self::BatchLog => "BATCH_LOG",
            Self::Cas => "CAS",
        }
    }
}

/// How a write is to be done.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// How many replicas must have it.
    pub consistency: Consistency,
    /// For error reports, and whether several partitions must be written all or none.
    pub kind: WriteKind,
    /// When to give up waiting.
    pub deadline: Instant,
}

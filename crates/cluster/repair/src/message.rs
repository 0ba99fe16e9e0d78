//! Requests of a repair's master to the participating shards, and their answers. Every request is complete:
//! the shard that answers may have evicted everything of the requests before.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::PartitionUpdate;
use replica::{PartitionResult, RepairedWatermark, Resume};

use crate::bits::Bits;
use crate::scope::Scope;

/// A request about a segment that begins behind `after`.
#[derive(Clone, Debug)]
pub struct Request {
    /// The scope of the repair.
    pub scope: Scope,
    /// The segment's begin; none for the scope's begin.
    pub after: Option<Resume>,
    /// The asked shard's base: only rows written after it are compared; none for all.
    pub base: Option<RepairedWatermark>,
    /// The request.
    pub ask: Ask,
}

/// A request about a segment.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Read on for about so many bytes: the end of the page, and its summary.
    Summary {
        /// Bytes in memory.
        bytes_max: u32,
    },
    /// Up to `upto`: the sums of so many buckets.
    Sums {
        /// The segment's end; none for the scope's end.
        upto: Option<Resume>,
        /// Number of buckets, a power of two.
        buckets: u32,
    },
    /// Up to `upto`: the contents of these buckets.
    Contents {
        /// The segment's end.
        upto: Option<Resume>,
        /// Number of buckets, a power of two.
        buckets: u32,
        /// The buckets.
        which: Bits,
    },
    /// Up to `upto`: the elements with these contents.
    Fetch {
        /// The segment's end.
        upto: Option<Resume>,
        /// The contents.
        contents: Vec<u64>,
    },
    /// Apply these updates. The answer is the deletions that hide parts of them here.
    Push {
        /// The segment's end.
        upto: Option<Resume>,
        /// The missing updates.
        updates: Vec<PartitionUpdate>,
    },
}

/// The summary of a shard's page.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The end of the page; none for the scope's end.
    pub end: Option<Resume>,
    /// Number of elements.
    pub elements: u64,
    /// The sum of their contents.
    pub sum: u64,
}

/// The answer to the [`Ask`] of the same name.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Ask::Summary`].
    Summary(Summary),
    /// To [`Ask::Sums`] (one a bucket) and [`Ask::Contents`] (in no order).
    Numbers(Vec<u64>),
    /// To [`Ask::Fetch`].
    Partitions(Vec<PartitionResult>),
    /// To [`Ask::Push`].
    Hidden(Vec<PartitionUpdate>),
}

impl Ask {
    /// The segment's end, when it is known already.
    pub fn upto(&self) -> Option<Option<&Resume>> {
        match self {
            Self::Summary { .. } => None,
            Self::Sums { upto, .. }
            | Self::Contents { upto, .. }
            | Self::Fetch { upto, .. }
            | Self::Push { upto, .. } => Some(upto.as_ref()),
        }
    }
}

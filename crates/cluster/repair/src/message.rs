//! What the master of a repair asks the shards that take part, and what they answer. Every request says everything that it
//! needs: who answers may have forgotten what was asked before.

use mutation::PartitionUpdate;
use replica::{Mark, PartitionResult, Resume};

use crate::merge::Bits;
use crate::scope::Scope;

/// A question about a stretch that begins behind `after`.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is repaired.
    pub scope: Scope,
    /// Where the stretch begins; none for the scope's begin.
    pub after: Option<Resume>,
    /// Of the shard that is asked: only what came after this is compared; none for everything.
    pub base: Option<Mark>,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked about a stretch.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Go on for about so many bytes: how far is that, and what is there?
    Summary {
        /// Bytes in memory.
        bytes_max: u32,
    },
    /// Up to `upto`: the sums of so many buckets.
    Sums {
        /// The stretch's end; none for the scope's end.
        upto: Option<Resume>,
        /// How many buckets, a power of two.
        buckets: u32,
    },
    /// Up to `upto`: what is in these buckets?
    Contents {
        /// The stretch's end.
        upto: Option<Resume>,
        /// How many buckets, a power of two.
        buckets: u32,
        /// Which of them.
        which: Bits,
    },
    /// Up to `upto`: the elements of these contents.
    Fetch {
        /// The stretch's end.
        upto: Option<Resume>,
        /// Which.
        contents: Vec<u64>,
    },
    /// Take these over. The answer is what hides them here.
    Push {
        /// The stretch's end.
        upto: Option<Resume>,
        /// What was lacking.
        updates: Vec<PartitionUpdate>,
    },
}

/// What a shard has from behind a place on.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How far it tells; none up to the scope's end.
    pub end: Option<Resume>,
    /// How many elements there are.
    pub elements: u64,
    /// Their contents added up.
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
    /// Where the stretch ends, when that is known already.
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

//! The one write and the one read request of a node's replica, for every caller (docs/design/write-path.md).

use engine::{Durability, Origin, RepairedWatermark, Updates};
use mutation::PartitionUpdate;
use mutation::codec::{DecodedUpdates, EncodedUpdates};

use crate::{ReadCommand, TraceLog};

/// The effect of a truncation on a write that began before it, or as it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncation<'a> {
    /// Nothing: the write is applied.
    #[default]
    Ignored,
    /// The write began at this time (microseconds since the epoch) and is refused with [`crate::ReplicaError::Truncated`] by a shard
    /// that truncated a table of it then or later.
    Refuses(i64),
    /// The write began at this time, microseconds since the epoch, and comes late: a shard leaves updates of tables out that it truncated
    /// then or later.
    LeavesOut(i64),
    /// The updates are rows that replicas had, as a read found them. Updates of tables that a shard truncated since are left out, and of
    /// those that one of these replicas may be about to truncate.
    LeavesOutRead {
        /// When the read began, microseconds since the epoch.
        begun_micros: i64,
        /// When the replicas had truncated the table last, before they were read: the earliest of these times.
        truncated_at: i64,
    },
    /// The updates were read elsewhere: each shard leaves those out of tables that it truncated later than this says of it, which is
    /// [`crate::Replica::truncated_at`] of each shard before the reading. In shard order, of all shards.
    LeavesOutSince(&'a [i64]),
}

impl Truncation<'_> {
    /// The rule for one shard.
    pub(crate) fn on(self, shard: u16) -> engine::Truncation {
        match self {
            Self::Ignored => engine::Truncation::Ignored,
            Self::Refuses(begun_micros) => engine::Truncation::Refuses(begun_micros),
            Self::LeavesOut(since_micros) => engine::Truncation::LeavesOut(since_micros),
            Self::LeavesOutRead { begun_micros, truncated_at } => {
                engine::Truncation::LeavesOutRead { begun_micros, truncated_at }
            }
            Self::LeavesOutSince(truncated_at) => {
                engine::Truncation::LeavesOut(truncated_at[usize::from(shard)].saturating_add(1))
            }
        }
    }
}

/// A write request. Updates of one shard are applied all or none.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The updates.
    pub updates: Updates,
    /// The origin of the write.
    pub origin: Origin,
    /// The effect of truncations.
    pub truncation: Truncation<'a>,
    /// When it is acknowledged.
    pub durability: Durability,
    /// Whether a write larger than one entry of the commit log is applied in parts, so that a part may be applied when the rest fails. The rows that
    /// a read repairs may be more than an entry holds, although each write that made it was not.
    pub divisible: bool,
    /// Where its steps are recorded, if they are.
    pub trace: Option<&'a TraceLog>,
    /// The bytes of all updates as they were received from another node, for the commit log of the shard that owns all of them.
    pub encoded: Option<Box<EncodedUpdates>>,
}

impl<'a> Write<'a> {
    /// A write of one update that no truncation touches, acknowledged as the commit log is configured.
    pub fn one(origin: Origin, update: PartitionUpdate) -> Self {
        Self::all(origin, vec![update])
    }

    /// [`Write::one`] of several updates.
    pub fn all(origin: Origin, updates: Updates) -> Self {
        Self {
            updates,
            origin,
            truncation: Truncation::Ignored,
            durability: Durability::AsConfigured,
            divisible: false,
            trace: None,
            encoded: None,
        }
    }

    /// A write of updates that another node sent. The log takes their bytes over where they are of the current version.
    pub fn received(origin: Origin, received: DecodedUpdates) -> Self {
        Self { encoded: received.encoded, ..Self::all(origin, received.updates) }
    }

    /// The same write with another rule about truncations.
    pub fn with_truncation(mut self, truncation: Truncation<'a>) -> Self {
        self.truncation = truncation;
        self
    }

    /// The same write, acknowledged when a power failure cannot undo it.
    pub fn synced(mut self) -> Self {
        self.durability = Durability::Synced;
        self
    }

    /// The same write, applied in parts where it does not fit one entry of the commit log.
    pub fn in_parts(mut self) -> Self {
        self.divisible = true;
        self
    }

    /// The same write with its steps told.
    pub fn traced(mut self, trace: Option<&'a TraceLog>) -> Self {
        self.trace = trace;
        self
    }

    /// Whether one shard's engine can be asked for all of it as it is.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.divisible && self.trace.is_none()
    }

    /// The write as it is sent to the engine of a shard that owns all of it.
    #[inline]
    pub(crate) fn whole_on(self, shard: u16) -> engine::Write {
        let Self { updates, origin, truncation, durability, encoded, .. } = self;
        engine::Write { updates, origin, truncation: truncation.on(shard), durability, encoded }
    }

    /// The same write of these updates, as it is sent to a shard's engine; `encoded` has their bytes.
    pub(crate) fn on(
        &self,
        shard: u16,
        updates: Updates,
        encoded: Option<Box<EncodedUpdates>>,
    ) -> engine::Write {
        let (origin, durability) = (self.origin, self.durability);
        engine::Write { updates, origin, truncation: self.truncation.on(shard), durability, encoded }
    }
}

/// Which shards' data a read is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Of all shards of the node.
    #[default]
    Node,
    /// Of this shard.
    Shard,
    /// Of this shard, the writes after a watermark.
    ShardAbove(RepairedWatermark),
}

/// How many tombstones a read may step over before it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TombstoneLimit {
    /// As many as `tombstone_failure_threshold` says.
    #[default]
    Configured,
    /// Any number.
    Unlimited,
}

/// A read request.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The target of the read.
    pub command: &'a ReadCommand,
    /// Of which shards.
    pub scope: Scope,
    /// How many tombstones it may step over.
    pub tombstones: TombstoneLimit,
    /// Where its steps are recorded, if they are.
    pub trace: Option<&'a TraceLog>,
}

impl<'a> Read<'a> {
    /// A read of all shards.
    pub fn of(command: &'a ReadCommand) -> Self {
        Self { command, scope: Scope::Node, tombstones: TombstoneLimit::Configured, trace: None }
    }

    /// The same read of this shard alone.
    pub fn here(self) -> Self {
        Self { scope: Scope::Shard, ..self }
    }

    /// The same read of this shard alone, of the writes after a watermark if there is one.
    pub fn here_above(self, mark: Option<RepairedWatermark>) -> Self {
        Self { scope: mark.map_or(Scope::Shard, Scope::ShardAbove), ..self }
    }

    /// The same read, however many tombstones it steps over.
    pub fn over_all_tombstones(self) -> Self {
        Self { tombstones: TombstoneLimit::Unlimited, ..self }
    }

    /// The same read with its steps told.
    pub fn traced(self, trace: Option<&'a TraceLog>) -> Self {
        Self { trace, ..self }
    }
}

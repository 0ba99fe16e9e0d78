//! The events of the ring that a plan names and the nemesis begins.

/// Something that happens to the ring, or an operator's action on stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingEvent {
    /// A node leaves.
    Leave,
    /// A node dies for good and is removed.
    Remove,
    /// A node dies for good, and another machine takes its place.
    Replace,
    /// A node loses its disk, and takes its own place with an empty one.
    NewDisk,
    /// A node runs cleanup.
    Cleanup,
    /// A node repairs all its ranges, or its primary ranges.
    Repair,
}

impl RingEvent {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Leave, Self::Remove, Self::Replace, Self::NewDisk, Self::Cleanup, Self::Repair];

    /// A node, and all that only it has, is gone for good.
    pub(crate) fn loses_node(self) -> bool {
        matches!(self, Self::Remove | Self::Replace | Self::NewDisk)
    }

    /// Replicas change.
    pub(crate) fn moves_data(self) -> bool {
        !matches!(self, Self::Cleanup | Self::Repair)
    }
}

//! Bugs that the simulator injects, to see that its checkers find them. No configuration leads here.

/// Which bugs are injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// A committed transaction takes the intent on its last item back instead of carrying it out.
    pub partial_commit: bool,
    /// The decision on a write sees the item as it was read before the agreement.
    pub stale_condition: bool,
    /// The record of a pending transaction expires after an hour, by the clock of any node.
    pub expiring_record: bool,
    /// A read of a stream begins with the newest generation of the log's streams: the changes of former ones are not in it.
    pub newest_generation_alone: bool,
}

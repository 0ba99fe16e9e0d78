//! The errors of opening hints, and of storing one.

use rt::DiskError;

/// Hints that cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HintsError {
    /// The directory could not be made or listed.
    #[error("hints cannot be stored: {0}")]
    Disk(#[from] DiskError),
}

/// A hint that is not stored. The write continues without it; repair brings the missed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HintRefused {
    /// Hinted handoff is switched off.
    #[error("hinted handoff is switched off")]
    Disabled,
    /// The host has been down for longer than `max_hint_window`.
    #[error("the host has been down for longer than max_hint_window")]
    WindowPassed,
    /// The table lets nothing be delivered late (`gc_grace_seconds` of 0).
    #[error("the table's gc_grace_seconds is 0")]
    NoGrace,
    /// The update is larger than any that is kept.
    #[error("the update is too large for a hint")]
    TooLarge,
    /// The host's hints have reached `max_hints_size_per_host`.
    #[error("the host's hints have reached max_hints_size_per_host")]
    HostFull,
    /// Too much waits to be written.
    #[error("too many hints wait to be written")]
    BufferFull,
    /// The disk is full or broken; it is tried again every second.
    #[error("the directory of hints cannot be written")]
    Disk,
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopped,
}

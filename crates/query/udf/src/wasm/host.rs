//! The state that belongs to an instance of a module.

use wasmi::StoreLimits;

/// The state that a module's imports see.
pub(super) struct Host {
    /// The limits of its memory and tables.
    pub(super) limits: StoreLimits,
}

//! The control of a replay under way, for the caller that has to end it.

use std::cell::Cell;

use rt::sync::Notify;

/// Ends a replay from outside.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) cancelled: Cell<bool>,
    pub(crate) notify: Notify,
    /// Hints on their way.
    pub(crate) in_flight: Cell<u64>,
}

impl Control {
    pub(crate) fn cancel(&self) {
        self.cancelled.set(true);
        self.notify.notify_one();
    }
}

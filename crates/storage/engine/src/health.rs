//! Whether a shard's storage takes requests, and why not.

use std::cell::{Cell, RefCell};

/// The state of a shard's storage.
#[derive(Default)]
pub(crate) struct Health {
    /// Writes are refused.
    stopped: Cell<bool>,
    /// Reads are refused, too.
    reads_stopped: Cell<bool>,
    /// See [`crate::Engine::stop_reason`].
    stop_reason: RefCell<Option<String>>,
    /// The disk failed, and the policy is to end the process: why.
    died: RefCell<Option<String>>,
    /// The last logged text about a transient failure of the commit log.
    log_problem: RefCell<String>,
}

impl Health {
    /// Whether writes are refused.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Whether reads are refused.
    #[inline]
    pub(crate) fn refuses_reads(&self) -> bool {
        self.reads_stopped.get()
    }

    /// Refuses writes from now on; whether they were refused before.
    pub(crate) fn stop(&self) -> bool {
        self.stopped.replace(true)
    }

    /// Refuses reads from now on.
    pub(crate) fn stop_reads(&self) {
        self.reads_stopped.set(true);
    }

    /// Refuses writes from now on, because of a failure; false when they were refused before.
    pub(crate) fn fail(&self, reason: &dyn std::fmt::Display) -> bool {
        if self.stop() {
            return false;
        }
        let before = self.stop_reason.borrow_mut().replace(reason.to_string());
        assert!(before.is_none(), "the first failure is what stopped the storage");
        true
    }

    /// The failure ends the process.
    pub(crate) fn die(&self, reason: String) {
        assert!(self.is_stopped(), "a node that ends takes no writes");
        assert!(self.has_failed(), "a node ends for a failure that is noted");
        let before = self.died.borrow_mut().replace(reason);
        assert!(before.is_none(), "a node ends once");
    }

    /// Why the process ends, once.
    pub(crate) fn take_death(&self) -> Option<String> {
        self.died.borrow_mut().take()
    }

    /// Why a failure has stopped it, if one has.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        self.stop_reason.borrow().clone()
    }

    /// Whether a failure has stopped it.
    pub(crate) fn has_failed(&self) -> bool {
        self.stop_reason.borrow().is_some()
    }

    /// Logs a problem of the commit log, unless it is the same as before.
    pub(crate) fn warn_of_log(&self, text: String) {
        if *self.log_problem.borrow() != text {
            tracing::error!("{text}");
            *self.log_problem.borrow_mut() = text;
        }
    }
}

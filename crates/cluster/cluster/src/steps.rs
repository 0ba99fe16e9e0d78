//! Work on a whole schema in steps, between which other tasks run, or at once where the caller cannot wait.

use futures_util::FutureExt;
use rt::preempt::Pace;

/// So many bytes count as a step, beside the object that they belong to.
const STEP_BYTES: usize = 1024;

/// Whether work on a schema yields between its steps.
pub(crate) struct Steps(Option<Pace>);

impl Steps {
    /// Never: for callers that cannot wait ([`at_once`]).
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Where another task is due.
    pub(crate) const fn new() -> Self {
        Self(Some(Pace::new()))
    }

    /// Counts an object of so many bytes, and yields when the interval has passed.
    pub(crate) async fn made(&mut self, bytes: usize) {
        let Some(pace) = &mut self.0 else { return };
        pace.steps(1 + bytes / STEP_BYTES).await;
    }
}

/// The result of work with [`Steps::none`].
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("without steps nothing yields")
}

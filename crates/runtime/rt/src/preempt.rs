//! Preemption points for code that has no [`crate::Rt`] at hand: they ask the executor that runs on this thread.
//!
//! A loop over rows, partitions, ranges, files or tables counts its steps with [`Pace`] and yields where it asks for it. Outside
//! of an executor (a pure test) nobody waits, and nothing yields.

use std::future::{Future, poll_fn};
use std::task::Poll;

use crate::executor::current;
use crate::group::Group;

/// Steps between two looks at the clock, unless a loop says otherwise: a look costs about as much as a small step.
const STEPS_BETWEEN_LOOKS: u32 = 64;

/// The steps of one loop since it last looked whether to yield.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    steps: u32,
    /// The loop should yield, and has not yet.
    due: bool,
}

impl Pace {
    /// At the beginning of a loop.
    pub const fn new() -> Self {
        Self { steps: 0, due: false }
    }

    /// Counts steps that were made.
    #[inline]
    pub fn count(&mut self, steps: usize) {
        self.steps = self.steps.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    /// Whether the loop should yield now ([`Pace::pause`]); so until it has. Looks after so many steps only.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.due || self.steps >= STEPS_BETWEEN_LOOKS && self.look()
    }

    /// Yields.
    pub async fn pause(&mut self) {
        self.due = false;
        yield_now().await;
    }

    #[cold]
    fn look(&mut self) -> bool {
        let steps = u64::from(std::mem::take(&mut self.steps));
        let need_preempt = current(|executor| {
            executor.count_steps(steps);
            executor.need_preempt()
        });
        self.due = need_preempt.unwrap_or(false);
        self.due
    }

    /// Counts a step and yields when the interval has passed.
    #[inline]
    pub async fn step(&mut self) {
        self.steps(1).await;
    }

    /// Counts steps that were made at once, and yields when the interval has passed.
    #[inline]
    pub async fn steps(&mut self, steps: usize) {
        self.count(steps);
        if self.is_due() {
            self.pause().await;
        }
    }
}

/// Lets other tasks run.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs `work` as a task of its own on this thread's executor. Without one, or when it ends, `work` is dropped at once.
pub fn spawn(group: Group, work: impl Future<Output = ()> + 'static) {
    current(|executor| executor.spawn_detached(group, work));
}

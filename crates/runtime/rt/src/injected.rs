//! Bugs that are injected, to see that checks find them (canaries).

use std::ops::Deref;

/// Injected bugs, or none. Some come from the simulator alone (`rt_sim::injected`): nothing that a node is put together of in production
/// can make any, and [`crate::Rt::allow_injected`] refuses them where no simulator runs the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected<T>(T);

impl<T> Injected<T> {
    /// For `rt_sim::injected`, and for nobody else (`cargo xtask tidy`).
    #[doc(hidden)]
    pub const fn by_simulator(bugs: T) -> Self {
        Self(bugs)
    }

    /// The bugs of one part of the whole.
    pub fn part<U: Copy>(&self, part: impl FnOnce(&T) -> &U) -> Injected<U> {
        Injected(*part(&self.0))
    }
}

impl<T> Deref for Injected<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

//! Background work of a shard's coordinator, which its node starts.

use std::time::Duration;

use rt::{Group, Task};

use crate::Coordinator;
use crate::logged::Batches;

/// Pause between looks for batches that were left.
const REPLAY_PERIOD: Duration = Duration::from_secs(10);

impl Coordinator {
    /// Looks every ten seconds for batches of several nodes that this shard keeps and that were left: it has them for longer than `age`, which
    /// should be twice the time that a write may take. Ends when the result is dropped.
    pub fn replay_left_batches(&self, age: Duration) -> Task<()> {
        let coordinator = self.clone();
        self.context().rt().spawn(Group::Maintenance, async move {
            let batches = Batches::new(coordinator.context(), &coordinator.operations().batchlog);
            loop {
                coordinator.context().rt().sleep(REPLAY_PERIOD).await;
                if let Err(error) = batches.replay_older(age).await {
                    tracing::warn!("system.batches cannot be read and will be tried again: {error}");
                }
            }
        })
    }
}

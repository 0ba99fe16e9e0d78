//! Automatic cleanup: a node drops data that it does not own any more after a topology change. The number of the last change with a cleanup is in its
//! directory: it drops them also after a crash, and after a change that completed while the node was down.

use std::sync::Arc;
use std::time::Duration;

use cluster::state::{ClusterState, MemberStatus};
use schema::TableId;

use super::Inner;
use crate::{MembershipError, RetainedRanges, ShardTask};

fn tables_of(state: &ClusterState) -> Arc<[TableId]> {
    state.schema.stored().tables().map(|table| table.id).collect()
}

/// The file with the number of the last topology change after which this node ran its cleanup.
const NOTE: &str = "cleaned-after-change";
/// A node waits at least so long after a cleanup of ranges that it gains before it streams: requests that counted its earlier answer have ended
/// by then, but for those that `USING TIMEOUT` gave longer.
const COUNTED_WAIT: Duration = Duration::from_secs(10);
/// More than is in it.
const NOTE_LEN_MAX: usize = 64;

impl Inner {
    /// The topology change after which this node ran its last cleanup; 0 when it never has, as far as the file can be read.
    async fn cleaned(&self) -> u64 {
        if let Some(number) = self.cleaned.get() {
            return number;
        }
        let read = self.rt.disk().read_durably(self.directory.join(NOTE), NOTE_LEN_MAX).await;
        let number = read.ok().and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        self.cleaned.set(Some(number));
        number
    }

    /// Runs a cleanup if one is needed, when no change is under way.
    pub(super) async fn clean_when_due(&self, state: &ClusterState) {
        let settled = state.change.is_none() && self.status_in(state) == Some(MemberStatus::Normal);
        if !settled || self.cleaned().await >= state.last_change() {
            return;
        }
        if let Err(error) = self.clean_after(state).await {
            tracing::warn!(
                "cleanup of ranges that this node does not own was interrupted and is retried: {error}"
            );
        }
    }

    async fn clean_after(&self, state: &ClusterState) -> Result<(), MembershipError> {
        // A rebuild may hold it for hours, and this node's part in the next change must not wait that long. The next look tries again.
        let Some(_alone) = self.data.try_acquire(1) else { return Ok(()) };
        // The shards know that the change has completed, and earlier requests have ended: later writes of dropped ranges are refused.
        self.membership.wait_for_itself().await?;
        if !self.coordinator.settle(self.write_time_max).await {
            return Err(MembershipError::Cluster("requests of before the change are under way".to_owned()));
        }
        self.on_all(ShardTask::Cleanup(tables_of(state), RetainedRanges::Taken)).await?;
        self.note_cleaned(state.last_change()).await
    }

    /// Before a node streams the ranges that it gains: a node that was down after the last change may still store ranges that it lost by an
    /// earlier one. Rows that were deleted meanwhile, and whose tombstones are purged, must not come back with the tokens. The caller holds
    /// the lock between streaming and cleanup.
    ///
    /// Writes that came for the ranges since the change was announced go, too, and coordinators may have counted this node for them. Of those
    /// that are acknowledged by then, enough of the sources have stored them. Writes in flight could reach a source
    /// after it was read, and be acknowledged with this node's earlier answer: they have timed out before anything is streamed
    /// (`paxos/tests/it/explore.rs`, `DroppedWithoutWait`).
    pub(super) async fn drop_earlier(&self, change: u64) -> Result<(), MembershipError> {
        let before = change.saturating_sub(1);
        if self.cleaned().await >= before || self.coordinator.injected().kept_leftovers {
            return Ok(());
        }
        tracing::info!("cleanup of ranges that this node did not own before this change, ahead of streaming");
        self.on_all(ShardTask::Cleanup(tables_of(&self.state()), RetainedRanges::Read)).await?;
        self.rt.sleep(self.request_time_max.max(COUNTED_WAIT)).await;
        self.note_cleaned(before).await
    }

    /// A finished cleanup is not repeated, also after a crash of this process.
    async fn note_cleaned(&self, number: u64) -> Result<(), MembershipError> {
        self.rt.disk().write_atomically(self.directory.join(NOTE), &number.to_le_bytes()).await?;
        self.cleaned.set(Some(number));
        Ok(())
    }

    /// An operator asks for it.
    pub(super) async fn cleanup_asked(&self, tables: &[TableId]) -> Result<(), String> {
        match self.status_in(&self.state()) {
            Some(MemberStatus::Normal | MemberStatus::Leaving) => {}
            _ => return Err("Cleanup cannot be run before node has joined the ring".to_owned()),
        }
        let clean = async {
            let _alone = self.data.acquire(1).await.map_err(|_| MembershipError::Stopped)?;
            self.on_all(ShardTask::Cleanup(tables.into(), RetainedRanges::Taken)).await
        };
        clean.await.map_err(|error| error.to_string())
    }
}

//! What a node owned before a change of the ring is dropped after it, by itself. After which change a node has done so is written in its
//! directory: neither a crash nor a change that went by while the node was away lets it keep what it lost.

use std::sync::Arc;
use std::time::Duration;

use cluster::state::{ClusterState, MemberStatus};
use schema::TableId;

use super::Inner;
use crate::{MembershipError, ShardTask};

/// What a node keeps when it drops the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What it takes writes of.
    Taken,
    /// What reads ask it for.
    Read,
}

fn tables_of(state: &ClusterState) -> Arc<[TableId]> {
    state.schema.stored().tables().map(|table| table.id).collect()
}

/// The file with the number of the last change of the ring after which this node dropped what it did not own.
const NOTE: &str = "cleaned-after-change";
/// At least so long after a node has dropped ranges that it gains it fetches nothing: requests that counted its answer from before are over
/// by then, but for those that `USING TIMEOUT` gave longer.
const COUNTED_WAIT: Duration = Duration::from_secs(10);
/// More than is in it.
const NOTE_LEN_MAX: usize = 64;

impl Inner {
    /// After which change this node has dropped what it did not own; 0 when it never has, as far as it can be read.
    async fn cleaned(&self) -> u64 {
        if let Some(number) = self.cleaned.get() {
            return number;
        }
        let read = self.rt.disk().read_durably(self.directory.join(NOTE), NOTE_LEN_MAX).await;
        let number = read.ok().and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        self.cleaned.set(Some(number));
        number
    }

    /// Drops what this node does not own any more, when no change is under way.
    pub(super) async fn clean_when_due(&self, state: &ClusterState) {
        let settled = state.change.is_none() && self.status_in(state) == Some(MemberStatus::Normal);
        if !settled || self.cleaned().await >= state.last_change() {
            return;
        }
        if let Err(error) = self.clean_after(state).await {
            tracing::warn!(
                "dropping what this node does not own was interrupted and is tried again: {error}"
            );
        }
    }

    async fn clean_after(&self, state: &ClusterState) -> Result<(), MembershipError> {
        // The shards know that the change is over, and what was let in before is done: later writes of what is dropped are refused.
        self.membership.wait_for_itself().await?;
        if !self.coordinator.settle(self.write_time_max).await {
            return Err(MembershipError::Cluster("requests of before the change are under way".to_owned()));
        }
        self.clean(tables_of(state), Kept::Taken).await?;
        self.note_cleaned(state.last_change()).await
    }

    /// Before a node fetches what it gains by a change: a node that was away after the last change may still have what it lost by an
    /// earlier one. What was deleted meanwhile, and whose deletion is forgotten, must not come back with the tokens. Who calls it holds
    /// what keeps fetching and dropping apart.
    ///
    /// Writes that came for the ranges since the change was announced go, too, and coordinators may have counted this node for them. Of those
    /// that are acknowledged by then, enough of those who are fetched from have them. Those that are under way could come to a source
    /// after it was fetched from, and be acknowledged with this node's answer from before: their time is over before anything is fetched
    /// (`paxos/tests/it/explore.rs`, `DroppedWithoutWait`).
    pub(super) async fn drop_earlier(&self, change: u64) -> Result<(), MembershipError> {
        let before = change.saturating_sub(1);
        if self.cleaned().await >= before {
            return Ok(());
        }
        tracing::info!("dropping what this node did not own before this change, ahead of fetching");
        self.on_all(ShardTask::Cleanup(tables_of(&self.state()), Kept::Read)).await?;
        self.rt.sleep(self.request_time_max.max(COUNTED_WAIT)).await;
        self.note_cleaned(before).await
    }

    /// What is dropped once is not looked for again, whatever ends this process.
    async fn note_cleaned(&self, number: u64) -> Result<(), MembershipError> {
        self.rt.disk().write_atomically(self.directory.join(NOTE), &number.to_le_bytes()).await?;
        self.cleaned.set(Some(number));
        Ok(())
    }

    async fn clean(&self, tables: Arc<[TableId]>, kept: Kept) -> Result<(), MembershipError> {
        let _alone = self.data.acquire(1).await.map_err(|_| MembershipError::Stopped)?;
        self.on_all(ShardTask::Cleanup(tables, kept)).await
    }

    /// An operator asks for it.
    pub(super) async fn cleanup_asked(&self, tables: &[TableId]) -> Result<(), String> {
        match self.status_in(&self.state()) {
            Some(MemberStatus::Normal | MemberStatus::Leaving) => {}
            _ => return Err("Cleanup cannot be run before node has joined the ring".to_owned()),
        }
        self.clean(tables.into(), Kept::Taken).await.map_err(|error| error.to_string())
    }
}

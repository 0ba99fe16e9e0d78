//! What a node owned before a change of the ring is dropped after it, by itself. After which change a node has done so is written in its
//! directory: neither a crash nor a change that went by while the node was away lets it keep what it lost.

use std::sync::Arc;

use cluster::state::{ClusterState, MemberStatus};
use schema::TableId;

use super::Inner;
use crate::NodeError;
use crate::node::Order;

/// The file with the number of the last change of the ring after which this node dropped what it did not own.
const NOTE: &str = "cleaned-after-change";
/// More than is in it.
const NOTE_LEN_MAX: usize = 64;

impl Inner {
    /// After which change this node has dropped what it did not own; 0 when it never has, as far as it can be read.
    async fn cleaned(&self) -> u64 {
        if let Some(number) = self.cleaned.get() {
            return number;
        }
        let read = self.rt.disk().read_to_end(self.directory.join(NOTE), NOTE_LEN_MAX).await;
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

    async fn clean_after(&self, state: &ClusterState) -> Result<(), NodeError> {
        // The shards know that the change is over.
        self.membership.wait_for_itself().await?;
        let tables = state.schema.stored().tables().map(|table| table.id).collect();
        self.clean(tables).await?;
        let number = state.last_change();
        self.rt.disk().write_atomically(self.directory.join(NOTE), &number.to_le_bytes()).await?;
        self.cleaned.set(Some(number));
        Ok(())
    }

    async fn clean(&self, tables: Arc<[TableId]>) -> Result<(), NodeError> {
        let _alone = self.data.acquire(1).await.map_err(|_| NodeError::Stopped)?;
        self.order_all(Order::Cleanup(tables)).await
    }

    /// An operator asks for it.
    pub(super) async fn cleanup_asked(&self, tables: &[TableId]) -> Result<(), String> {
        match self.status_in(&self.state()) {
            Some(MemberStatus::Normal | MemberStatus::Leaving) => {}
            _ => return Err("Cleanup cannot be run before node has joined the ring".to_owned()),
        }
        self.clean(tables.into()).await.map_err(|error| error.to_string())
    }
}

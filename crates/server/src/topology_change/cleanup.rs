//! What a node owned before a change of the ring is dropped after it, by itself. That something is to be dropped is noted in the node's
//! directory when the change begins, so that a crash does not forget it.

use std::sync::Arc;

use cluster::state::{ClusterState, MemberStatus};
use coordinator::ClusterView;
use schema::TableId;

use super::Inner;
use crate::NodeError;
use crate::node::Order;

/// A file that is there while something is to be dropped.
pub(super) const NOTE: &str = "cleanup-needed";

/// Whether a node stops being a replica of something by the change that is under way, and stays.
fn loses(state: &ClusterState, view: &ClusterView) -> bool {
    let own = view.node(view.own()).host;
    let leaves = state.change.as_ref().is_none_or(|change| change.leaves == Some(own));
    let mut keyspaces = state.schema.keyspaces();
    !leaves && keyspaces.any(|keyspace| view.place(&keyspace.replication).loses(view.own()))
}

impl Inner {
    /// Notes that this node will have to drop something, before it does not own that any more.
    pub(super) async fn note_loss(&self, state: &ClusterState) {
        if state.change.is_none() || self.is_noted().await {
            return;
        }
        let Some(view) = self.membership.view_of(state) else { return };
        if !loses(state, &view) {
            return;
        }
        match self.rt.disk().write_atomically(&self.note, b"").await {
            Ok(()) => self.noted.set(Some(true)),
            Err(error) => tracing::warn!("that data is to be dropped cannot be noted, run cleanup: {error}"),
        }
    }

    async fn is_noted(&self) -> bool {
        if self.noted.get().is_none() {
            self.noted.set(self.rt.disk().exists(&self.note).await.ok());
        }
        self.noted.get() == Some(true)
    }

    /// Drops what this node does not own any more, when no change is under way.
    pub(super) async fn clean_when_due(&self, state: &ClusterState) {
        let settled = state.change.is_none() && self.status_in(state) == Some(MemberStatus::Normal);
        if !settled || !self.is_noted().await {
            return;
        }
        if let Err(error) = self.clean_noted(state).await {
            tracing::warn!(
                "dropping what this node does not own was interrupted and is tried again: {error}"
            );
        }
    }

    async fn clean_noted(&self, state: &ClusterState) -> Result<(), NodeError> {
        // The shards know that the change is over.
        self.membership.wait_for_itself().await?;
        let tables = state.schema.stored().tables().map(|table| table.id).collect();
        self.clean(tables).await?;
        self.rt.disk().remove(&self.note).await?;
        self.noted.set(Some(false));
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

//! A new table with an id that the client gives (`WITH ID`), which a dropped table may have had.
//!
//! SSTables, entries of the commit log and hints name a table by its id, and none of them says which table of an id it is of. So every node
//! must have finished the drop of the earlier table: its files are gone, and its log is not replayed any more. A down node may have
//! missed the drop and would take the old and the new table for one.

use std::time::Duration;

use cluster::group::Group;
use futures_util::future::join_all;
use rt::{Instant, ShardId};
use schema::TableId;
use topology::NodeIndex;

use crate::context::Context;
use crate::peer_error::{self, PeerError};
use crate::shard_calls;

/// How long a node is waited for that does not use the schema of the new table yet: the statement before has just changed it.
const SCHEMA_TIME: Duration = Duration::from_secs(2);
/// Between two looks at it.
const SCHEMA_PAUSE: Duration = Duration::from_millis(10);

/// Checks of given ids by one shard's coordinator.
pub(crate) struct GivenId<'a>(pub(crate) &'a Context);

impl GivenId<'_> {
    /// Refuses an id of which any node of the ring may have something left, with the reason. The answer holds for the schema of `version`.
    pub(crate) async fn check(
        &self,
        table: TableId,
        version: [u8; 16],
        deadline: Instant,
    ) -> Result<(), String> {
        let view = self.0.view();
        let nodes: Vec<NodeIndex> = view.indexes().collect();
        let one = |node: NodeIndex| {
            let view = &view;
            async move {
                if node == view.own() {
                    return self.check_here(table, version).await.map_err(PeerError::Invalid);
                }
                if !view.is_alive(node) {
                    return Err(PeerError::Invalid("it is down".to_owned()));
                }
                self.0.remote().check_given_id((view, node), (table, version), deadline).await
            }
        };
        assert!(nodes.contains(&view.own()), "this node may have something of it, too");
        let answers = join_all(nodes.iter().map(|node| one(*node))).await;
        for (node, answer) in nodes.iter().zip(answers) {
            if let Err(refused) = answer {
                return Err(format!(
                    "Table id {table} cannot be given: node {} may still have data of a dropped table with this id ({}). Repeat the \
                     statement later, or leave out the id",
                    peer_error::address(&view, *node),
                    refused.message(),
                ));
            }
        }
        Ok(())
    }

    /// [`check_on_shard_0`] of this node, which takes the schema of `version` over in a moment where it does not use it yet.
    pub(crate) async fn check_here(&self, table: TableId, version: [u8; 16]) -> Result<(), String> {
        let until = self.0.rt().now() + SCHEMA_TIME;
        while self.0.schema().version() != version && self.0.rt().now() < until {
            self.0.rt().sleep(SCHEMA_PAUSE).await;
        }
        self.0.port().ask(ShardId(0), shard_calls::CheckGivenId { table, version }).await
    }
}

/// Whether this node uses the schema of `version` and has nothing left of a dropped table with an id; the error says why not.
pub(crate) fn check_on_shard_0(context: &Context, table: TableId, version: [u8; 16]) -> Result<(), String> {
    let dropped = |group: &Group| group.unfinished_drops().iter().any(|dropped| dropped.id == table);
    match context.group() {
        None => Err("it does not belong to a cluster yet".to_owned()),
        Some(_) if context.schema().version() != version => {
            Err("it does not use the same schema yet".to_owned())
        }
        Some(group) if dropped(group) => Err("its files are being removed, or are still read".to_owned()),
        Some(_) => Ok(()),
    }
}

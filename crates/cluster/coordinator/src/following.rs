//! Shard 0 follows the cluster's log: it applies members and schema to every shard of the node, in the order of
//! the log, and acknowledges them to the other nodes when all shards have applied them.

use std::sync::Arc;
use std::time::Duration;

use cluster::SchemaEdit;
use cluster::group::ChangeSchemaError;
use cluster::state::{ClusterState, host_text};
use futures_util::future::{join_all, join3};
use rt::{Group, ShardId};
use schema::{Schema, TableId};
use topology::HostId;

use crate::lease::{ASK_TIMEOUT, RENEWED_AFTER};
use crate::placements;
use crate::removals::Removals;
use crate::shard_calls::{NoteConfirmed, UseSchema, UseView};
use crate::{ClusterView, Coordinator, SchemaChangeError};

/// How long a schema change is waited for, at this node and at the others.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the view of a state, given the view before; none when this node has no place in it.
pub type ViewMaker = Box<dyn Fn(&ClusterState, &ClusterView) -> Option<ClusterView>>;

impl Coordinator {
    /// Shard 0: applies the entries of the cluster's log from now on, and puts this node's schema changes into it. `view` makes of a
    /// state the view of the nodes that requests use.
    ///
    /// # Panics
    /// On another shard, and when it is called twice.
    pub fn follow(&self, group: &cluster::group::Group, view: ViewMaker) {
        assert_eq!(self.context().rt().shard(), ShardId(0), "shard 0 follows the log");
        self.context().set_group(group.clone());
        let (coordinator, group) = (self.clone(), group.clone());
        let task = async move {
            let removals = Removals::new();
            join3(
                coordinator.run_following(&group, view, &removals),
                coordinator.run_removals(&removals, &group),
                coordinator.keep_confirmed(&group),
            )
            .await;
        };
        *self.operations().following.borrow_mut() = Some(self.context().rt().spawn(Group::Maintenance, task));
    }

    /// Ends [`Coordinator::follow`].
    pub async fn stop_following(&self) {
        let task = self.operations().following.borrow_mut().take();
        if let Some(task) = task {
            task.cancel().await;
        }
    }

    /// Hands a view to every shard, with the placements of its keyspaces: they are computed before, while requests use the view that there is.
    /// Views are handed over in the order of the calls.
    pub async fn publish_view(&self, view: ClusterView) {
        assert_eq!(self.shard(), 0, "shard 0 hands views over");
        let publishing = self.operations().publishing.acquire(1).await;
        let view = Arc::new(placements::placed(view, Some(&self.view())).await);
        // A view that waits is sent after this one: the calls are made before it is woken.
        drop(publishing);
        join_all(self.context().port().ask_each(UseView { view: view.clone() })).await;
        let used = self.view().topology_version();
        assert!(used >= view.topology_version(), "a view that was handed over is in use");
        self.context().fence().note_published(view.topology_version());
    }

    async fn run_following(&self, group: &cluster::group::Group, view: ViewMaker, removals: &Removals) {
        let mut states = group.subscribe();
        loop {
            let state = group.applied().state;
            if let Some(view) = view(&state, &self.view()) {
                self.publish_view(view).await;
            }
            if state.schema.version() != self.context().schema().version() {
                self.take_over(&state.schema, removals).await;
            }
            group.schema_in_use(state.schema_number);
            if states.changed().await.is_err() {
                return;
            }
        }
    }

    /// Renews the lease on former replicas ([`crate::lease`]), so that every shard has one when a topology change begins.
    async fn keep_confirmed(&self, group: &cluster::group::Group) {
        let context = self.context();
        loop {
            let mut pause = RENEWED_AFTER;
            if !context.view().is_alone() {
                let deadline = context.rt().now() + ASK_TIMEOUT;
                match context.lease().confirm_log(Some(group), context.view().is_alone(), deadline).await {
                    Some(at) => drop(join_all(context.port().ask_each(NoteConfirmed { at })).await),
                    // The log may have a leader again soon.
                    None => pause = ASK_TIMEOUT,
                }
            }
            context.rt().sleep(pause).await;
        }
    }

    /// Gives a schema to every shard, and has the tables removed that it does not have any more.
    async fn take_over(&self, schema: &Arc<Schema>, removals: &Removals) {
        let old = self.context().schema();
        self.context().rt().buggify("schema: a change is taken over").await;
        // Engines first: a shard must be able to store rows that another shard's client may write at once.
        self.context().replica().set_schema(&Arc::new(schema.stored())).await;
        let events: Arc<[_]> = cluster::events(&old, schema).into();
        assert_eq!(
            self.context().schema().version(),
            old.version(),
            "nothing else changes the schema meanwhile"
        );
        join_all(self.context().port().ask_each(UseSchema { schema: schema.clone(), events })).await;
        let used = self.context().schema().version();
        assert_eq!(used, schema.version(), "schemas are taken over one after the other");
        self.remove_tables(removals, dropped_tables(&old, schema)).await;
    }

    /// Shard 0: puts a change into the log, and waits until every live node uses it.
    pub(crate) async fn propose_schema(
        &self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
    ) -> Result<(), SchemaChangeError> {
        assert_eq!(self.shard(), 0, "shard 0 proposes schema changes");
        let Some(group) = self.context().group() else {
            return Err(SchemaChangeError::Failed("this node does not belong to a cluster yet".to_owned()));
        };
        let deadline = self.context().rt().now() + CHANGE_TIMEOUT;
        let (view, early) = (self.context().view(), self.context().injected().early_schema);
        let own = view.node(view.own()).host;
        let alive = |host| self.context().view().is_alive_host(host) && (!early || host == own);
        match group.change_schema(base, edits, deadline, alive).await {
            Ok(agreement) => {
                let view = self.context().view();
                let live = view.nodes().iter().filter(|node| view.is_alive_host(node.host)).count();
                agreed(&agreement.behind, live)
            }
            Err(ChangeSchemaError::Moved) => Err(SchemaChangeError::Moved),
            Err(ChangeSchemaError::Invalid(why)) => Err(SchemaChangeError::Invalid(why)),
            Err(ChangeSchemaError::Propose(error)) => Err(SchemaChangeError::Failed(error.to_string())),
        }
    }
}

/// The outcome of a committed schema change when these of so many live nodes do not use it at the deadline: a client that is answered
/// success could meet a node without it.
fn agreed(behind: &[HostId], live: usize) -> Result<(), SchemaChangeError> {
    if behind.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = behind.iter().map(|host| host_text(&host.0)).collect();
    tracing::warn!(
        "a schema change is decided, and these live nodes do not use it yet: {}",
        names.join(", ")
    );
    // One of them may have been convicted meanwhile.
    let live = live.max(behind.len());
    Err(SchemaChangeError::Behind { used: (live - behind.len()) as u32, live: live as u32 })
}

fn dropped_tables(old: &Schema, new: &Schema) -> Vec<TableId> {
    let before = new.table_differences(old).filter_map(|(before, _)| before);
    before.map(|table| table.id).filter(|id| new.table_by_id(*id).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_live_nodes_do_not_use_is_not_told_as_done() {
        assert_eq!(agreed(&[], 3), Ok(()));
        assert_eq!(agreed(&[HostId([1; 16])], 3), Err(SchemaChangeError::Behind { used: 2, live: 3 }));
        assert_eq!(agreed(&[HostId([1; 16])], 0), Err(SchemaChangeError::Behind { used: 0, live: 1 }));
    }
}

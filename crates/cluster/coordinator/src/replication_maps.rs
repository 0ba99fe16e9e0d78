//! The replication of all tables as a shard sees it: its view of the cluster, its schema, and the replication map of each table that
//! follows from both, made when a request first needs it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use mutation::PartitionUpdate;
use schema::{Replication, Schema, Table, TableId};
use stdx::HashMap;
use topology::HostId;

use crate::kind::Kind;
use crate::placements::Placements;
use crate::replication_map::EffectiveReplicationMap;
use crate::{Canaries, ClusterView, DataPlacement, RequestError};

/// The replication maps of a shard's tables.
pub(crate) struct ReplicationMaps {
    view: RefCell<Arc<ClusterView>>,
    schema: RefCell<Arc<Schema>>,
    placements: Placements,
    /// Of the tables that were asked for since the view or the schema changed last.
    made: RefCell<HashMap<TableId, Rc<EffectiveReplicationMap>>>,
    injected: Cell<Canaries>,
}

impl ReplicationMaps {
    pub(crate) fn new(view: Arc<ClusterView>, schema: Arc<Schema>) -> Self {
        Self {
            view: RefCell::new(view),
            schema: RefCell::new(schema),
            placements: Placements::default(),
            made: RefCell::default(),
            injected: Cell::default(),
        }
    }

    /// The cluster as this shard sees it.
    pub(crate) fn view(&self) -> Arc<ClusterView> {
        self.view.borrow().clone()
    }

    /// The current schema.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.schema.borrow().clone()
    }

    /// Takes over a changed view; the one before.
    pub(crate) fn use_view(&self, view: &Arc<ClusterView>) -> Arc<ClusterView> {
        let old = self.view.replace(view.clone());
        assert!(
            view.topology_version() >= old.topology_version(),
            "a shard's topology version never goes back"
        );
        let own = view.node(view.own()).host;
        assert_eq!(own, old.node(old.own()).host, "a node keeps its host id");
        self.made.borrow_mut().clear();
        // Gossip makes a view with every change of liveness; replicas are elsewhere only when the ring is another.
        if !view.places_as(&old) {
            self.placements.clear();
        }
        assert!(self.made.borrow().is_empty(), "a request uses no map of an earlier view");
        old
    }

    /// Takes over a changed schema.
    pub(crate) fn use_schema(&self, schema: &Arc<Schema>) {
        let old = self.schema.replace(schema.clone());
        self.made.borrow_mut().clear();
        self.placements.use_schema(&old, schema);
    }

    /// Injects bugs into the maps that are made from now on.
    pub(crate) fn inject(&self, canaries: Canaries) {
        self.injected.set(canaries);
        self.made.borrow_mut().clear();
    }

    /// Where a table's tokens are, and how it is replicated.
    ///
    /// # Errors
    /// When the table's keyspace is gone.
    pub(crate) fn placement_of(
        &self,
        table: &Table,
    ) -> Result<(Arc<DataPlacement>, Replication), RequestError> {
        let schema = self.schema.borrow();
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Err(no_keyspace(table)) };
        let view = self.view.borrow();
        let placement = self.placements.of(&view, keyspace, table);
        Ok((placement, view.replication_of(keyspace).clone()))
    }

    /// The replication map by which a request of a table chooses replicas; made once for each table and view.
    ///
    /// # Errors
    /// When the table's keyspace is gone.
    pub(crate) fn of(&self, table: &Table) -> Result<Rc<EffectiveReplicationMap>, RequestError> {
        if let Some(erm) = self.made.borrow().get(&table.id) {
            return Ok(erm.clone());
        }
        let (placement, replication) = self.placement_of(table)?;
        let (view, schema) = (self.view(), self.schema.borrow());
        let keyspace = schema.keyspace(&table.keyspace);
        let other_replication = keyspace.and_then(|keyspace| view.other_replication_of(keyspace)).cloned();
        let kind = self.kind(table)?;
        let is_replicated = kind == Kind::Replicated;
        assert!(
            !is_replicated || replication != Replication::Local,
            "what each node has alone is not replicated"
        );
        let erm = Rc::new(EffectiveReplicationMap {
            view,
            placement,
            replication,
            other_replication,
            injected: self.injected.get(),
            kind,
        });
        self.made.borrow_mut().insert(table.id, erm.clone());
        Ok(erm)
    }

    /// Where a table's rows come from.
    ///
    /// # Errors
    /// When the table's keyspace is gone.
    pub(crate) fn kind(&self, table: &Table) -> Result<Kind, RequestError> {
        if let Some(erm) = self.made.borrow().get(&table.id) {
            return Ok(erm.kind);
        }
        let schema = self.schema.borrow();
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Err(no_keyspace(table)) };
        if keyspace.computes(&table.name) {
            return Ok(Kind::Computed);
        }
        Ok(if keyspace.replication == Replication::Local { Kind::Local } else { Kind::Replicated })
    }

    /// Whether a table's rows are computed when they are read.
    pub(crate) fn is_computed(&self, table: &Table) -> bool {
        let schema = self.schema.borrow();
        schema.keyspace(&table.keyspace).is_some_and(|keyspace| keyspace.computes(&table.name))
    }

    /// Whether this node takes the writes of an update's token: it is a replica, will be one, or was until reads have gone over.
    pub(crate) fn takes(&self, update: &PartitionUpdate) -> bool {
        self.takes_token(&update.table, update.key.token)
    }

    /// Whether this node takes writes of a table's token: it is a replica, will be one, or was until reads have gone over.
    pub(crate) fn takes_token(&self, table: &Table, token: i64) -> bool {
        let Ok((placement, replication)) = self.placement_of(table) else { return true };
        let own = self.view.borrow().own();
        replication == Replication::Local || placement.takes(own, token)
    }

    /// Whether all nodes that take the writes of one token of a table take those of another, too.
    pub(crate) fn go_with(&self, table: &Table, token: i64, other: i64) -> bool {
        let Ok((placement, replication)) = self.placement_of(table) else { return false };
        replication == Replication::Local || placement.go_with(token, other)
    }

    /// Whether a host takes writes of a table's token, as [`ReplicationMaps::takes_token`] says of this one.
    pub(crate) fn host_takes_token(&self, host: HostId, table: &Table, token: i64) -> bool {
        let Ok((placement, _)) = self.placement_of(table) else { return false };
        let node = self.view.borrow().index_of(host);
        node.is_some_and(|node| placement.takes(node, token))
    }

    /// Whether this node has the earlier writes of a table's token, and not only those since it became a pending replica.
    pub(crate) fn is_complete(&self, table: &Table, token: i64) -> bool {
        let Ok((placement, replication)) = self.placement_of(table) else { return false };
        let view = self.view.borrow();
        view.is_alone() || replication == Replication::Local || placement.is_complete(view.own(), token)
    }

    /// Whether a table's token concerns no other node: each node has the table of its own, or this one is its only replica and none moves.
    pub(crate) fn is_only_here(&self, table: &Table, token: i64) -> bool {
        let is_only_here = |erm: Rc<EffectiveReplicationMap>| {
            erm.replication == Replication::Local || erm.is_only_here(token)
        };
        self.view.borrow().is_alone() || self.of(table).is_ok_and(is_only_here)
    }
}

fn no_keyspace(table: &Table) -> RequestError {
    RequestError::Invalid(format!("Keyspace {} does not exist", table.keyspace))
}

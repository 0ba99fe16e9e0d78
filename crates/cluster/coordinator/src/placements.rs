//! The placement of each table's tokens, asked in one place.
//!
//! Most tables lie with their keyspace: ring and replication make its placement, which its tables share, as do keyspaces of one replication
//! and the shards of a node. It comes with the view ([`placed`]), so that a request finds it and does not compute it: a request
//! that uses a topology version uses the placements of that version. Tables with tablets lie where the view's maps say.

use std::cell::RefCell;
use std::sync::Arc;

use rt::preempt::Pace;
use schema::{Keyspace, Schema, Table, TableId};
use stdx::HashMap;
use topology::{ClusterView, DataPlacement};

/// Tokens of a ring that are looked at between two preemption points.
const TOKENS_STEP: usize = 1_024;

/// A view with the placements of its keyspaces, computed in steps between which the shard does other work, and of the placements of `before` as
/// far as the rings agree.
pub async fn placed(view: ClusterView, before: Option<&ClusterView>) -> ClusterView {
    let earlier = before.map_or_else(Vec::new, ClusterView::rings);
    let mut pace = Pace::new();
    let mut rings = Vec::with_capacity(2);
    for (ring, replications) in view.rings().into_iter().zip(view.replications()) {
        let mut computed = Vec::new();
        for replication in ring.missing(&replications, &earlier) {
            let mut builder = ring.builder(&replication, &earlier);
            while !builder.advance(TOKENS_STEP) {
                pace.steps(TOKENS_STEP).await;
            }
            let placement = Arc::new(builder.finish());
            computed.push((replication, placement));
        }
        rings.push(ring.placed(&replications, &earlier, &computed));
    }
    view.with_placed(rings)
}

/// The placements of one shard, as far as they were asked for, until nodes or keyspaces change.
#[derive(Default)]
pub(crate) struct Placements {
    by_table: RefCell<HashMap<TableId, Placed>>,
    by_keyspace: RefCell<HashMap<String, Arc<DataPlacement>>>,
}

/// A table's placement, with the keyspace whose replication it follows.
struct Placed {
    keyspace: String,
    placement: Arc<DataPlacement>,
}

impl Placements {
    /// Where a table of a keyspace is.
    pub(crate) fn of(&self, view: &ClusterView, keyspace: &Keyspace, table: &Table) -> Arc<DataPlacement> {
        if let Some(placed) = self.by_table.borrow().get(&table.id) {
            return placed.placement.clone();
        }
        assert_eq!(table.keyspace, keyspace.name, "a table lies with its keyspace");
        let of_tablets = view.place_tablets(table.id).map(Arc::new);
        let placement = of_tablets.unwrap_or_else(|| self.of_keyspace(view, keyspace));
        let placed = Placed { keyspace: keyspace.name.clone(), placement: placement.clone() };
        self.by_table.borrow_mut().insert(table.id, placed);
        placement
    }

    fn of_keyspace(&self, view: &ClusterView, keyspace: &Keyspace) -> Arc<DataPlacement> {
        let mut all = self.by_keyspace.borrow_mut();
        if let Some(placement) = all.get(&keyspace.name) {
            return placement.clone();
        }
        let placement = Arc::new(view.place_keyspace(keyspace));
        all.insert(keyspace.name.clone(), placement.clone());
        placement
    }

    /// Nodes have changed: everything is placed anew.
    pub(crate) fn clear(&self) {
        self.by_table.borrow_mut().clear();
        self.by_keyspace.borrow_mut().clear();
    }

    /// The schema has changed: tables that are gone are forgotten, and keyspaces of another replication are placed anew.
    pub(crate) fn use_schema(&self, old: &Schema, new: &Schema) {
        let same = |name: &str| {
            let replication = |schema: &Schema| schema.keyspace(name).map(|it| it.replication.clone());
            replication(old).is_some_and(|before| replication(new) == Some(before))
        };
        self.by_keyspace.borrow_mut().retain(|name, _| same(name));
        let stays = |id: TableId, placed: &Placed| new.table_by_id(id).is_some() && same(&placed.keyspace);
        self.by_table.borrow_mut().retain(|id, placed| stays(*id, placed));
    }
}

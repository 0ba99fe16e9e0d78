//! A table that is placed otherwise than its keyspace: a toy of a table's own tablet map.

use std::sync::Arc;

use coordinator::{ClusterView, Consistency, DataPlacement, TablePlacements};
use rt_sim::Config;
use schema::Table;
use smallvec::smallvec;
use topology::Placement;

use crate::world::*;

/// Has two tablets: tokens up to 0 on node 2, the others on node 1, wherever the ring has them.
struct TwoTablets(Arc<Table>);

impl TablePlacements for TwoTablets {
    fn place(&self, view: &ClusterView, table: &Table) -> Option<DataPlacement> {
        let on = |node: usize| smallvec![view.index_of(host(node)).expect("it is in the view")];
        let tablets = || Placement::of_ranges(vec![(0, on(2)), (i64::MAX, on(1))]);
        (table.id == self.0.id).then(|| DataPlacement::at(tablets()))
    }
}

#[test]
fn a_table_lies_where_its_own_placement_says() {
    let world = World::new(7, &[1, 1, 1], Config::default());
    let pinned = table("one", "t");
    for node in 0..3 {
        let placements = TwoTablets(pinned.clone());
        world.on(
            node,
            0,
            |_, coordinator| async move { coordinator.place_tables_with(Box::new(placements)) },
        );
    }
    let keys = 0..40;
    for k in keys.clone() {
        world.write(0, row(&pinned, k, 1, "text", 1), Consistency::One).unwrap();
    }
    for k in keys.clone() {
        let command = partition(&pinned, k, seconds(&world.sim, 0));
        for node in 0..3 {
            let page = world.read(node, command.clone(), Consistency::One).unwrap();
            assert_eq!(texts(&page), [(1, "text".to_owned())], "{k} by {node}");
            let own = world.kept(node, command.clone());
            let holder = if key(k).token <= 0 { 2 } else { 1 };
            assert_eq!(!own.is_empty(), node == holder, "{k} on {node}");
        }
    }
    // A scan asks each tablet's node.
    let scan = everything(&pinned, seconds(&world.sim, 0));
    assert_eq!(texts(&world.read(0, scan, Consistency::One).unwrap()).len(), keys.len());
}

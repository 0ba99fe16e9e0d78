//! A table that is placed otherwise than its keyspace: tablets, each on a node and a shard of its own.

use coordinator::Consistency;
use replica::Read;
use rt_sim::Config;
use topology::{Tablet, TabletMap, TabletMaps};

use crate::world::*;

const KEYS: i32 = 40;

/// Tokens up to 0 on shard 1 of node 2, the others on shard 0 of node 1, wherever the ring has them.
fn tablets() -> TabletMap {
    let on = |upto, node, shard| Tablet { upto, replicas: vec![(host(node), shard)] };
    TabletMap::new(vec![on(0, 2, 1), on(i64::MAX, 1, 0)])
}

#[test]
fn a_table_lies_where_its_tablets_say() {
    let pinned = table("one", "t");
    TABLETS.set(TabletMaps::new([(pinned.id, tablets())]));
    let world = World::new(7, &[3, 3, 3], Config::default());
    for k in 0..KEYS {
        world.write(0, row(&pinned, k, 1, "text", 1), Consistency::One).unwrap();
    }
    let (mut of_node_1, mut of_node_2) = (0, 0);
    for k in 0..KEYS {
        let command = partition(&pinned, k, seconds(&world.sim, 0));
        let is_first = key(k).token <= 0;
        of_node_1 += i32::from(!is_first);
        of_node_2 += i32::from(is_first);
        for node in 0..3 {
            let page = world.read(node, command.clone(), Consistency::One).unwrap();
            assert_eq!(texts(&page), [(1, "text".to_owned())], "{k} by {node}");
            for shard in 0..3 {
                let here = command.clone();
                let kept = world.on(node, shard, |_, coordinator| async move {
                    let read = Read::of(&here).here();
                    texts(&coordinator.replica().read(read).await.expect("the disk is well"))
                });
                let is_owner = (node, shard) == if is_first { (2, 1) } else { (1, 0) };
                assert_eq!(!kept.is_empty(), is_owner, "{k} on shard {shard} of {node}");
            }
        }
    }
    assert!(of_node_1 > 0 && of_node_2 > 0, "both tablets have rows");
    // A scan asks each tablet's node.
    let scan = everything(&pinned, seconds(&world.sim, 0));
    assert_eq!(texts(&world.read(0, scan, Consistency::One).unwrap()).len(), KEYS as usize);
    TABLETS.take();
}

#[test]
fn tablets_that_move_are_asked_where_they_are() {
    let pinned = table("one", "t");
    let world = World::new(8, &[2, 2, 2], Config::default());
    TABLETS.set(TabletMaps::new([(pinned.id, tablets())]));
    world.believe(&[0, 1, 2]);
    for k in 0..KEYS {
        world.write(0, row(&pinned, k, 1, "text", 1), Consistency::One).unwrap();
        let holder = if key(k).token <= 0 { 2 } else { 1 };
        let command = partition(&pinned, k, seconds(&world.sim, 0));
        for node in 0..3 {
            let kept = world.kept(node, command.clone());
            assert_eq!(!kept.is_empty(), node == holder, "{k} on {node}");
        }
    }
    TABLETS.take();
}

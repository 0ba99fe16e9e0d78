//! Two datacenters of three nodes with 100 ms between them: the latency of each consistency level, and the messages between the datacenters.

use std::time::Duration;

use coordinator::{Consistency, WriteKind, WriteOptions};
use rpc::Verb;
use rt_sim::{Config, LinkConfig};

use crate::world::*;

const DATACENTERS: [&str; 6] = ["dc1", "dc1", "dc1", "dc2", "dc2", "dc2"];
/// From one datacenter to the other.
const ONE_WAY: Duration = Duration::from_millis(50);
const ROUND_TRIP: Duration = Duration::from_millis(100);

fn far() -> LinkConfig {
    LinkConfig { latency_min: ONE_WAY, latency_max: ONE_WAY, ..LinkConfig::default() }
}

/// Nodes 0 to 2 here, 3 to 5 there.
fn world(seed: u64) -> World {
    let world = World::wide(seed, &DATACENTERS, Config::default());
    for from in 0..6 {
        for to in 0..6 {
            if DATACENTERS[from] != DATACENTERS[to] {
                world.sim.set_link(world.sim.node(from), world.sim.node(to), Some(far()));
            }
        }
    }
    // Connections are made when they are first needed.
    for node in 0..6 {
        for k in 0..8 {
            world
                .write(node, row(&table("wide", "t"), 1000 + k, node as i32, "first", 1), Consistency::All)
                .unwrap();
            let read = partition(&table("wide", "t"), 1000 + k, seconds(&world.sim, node));
            world.read(node, read, Consistency::All).unwrap();
        }
    }
    world
}

/// How long a write and a read of each of some keys take; the longest.
fn costs(world: &World, node: usize, consistency: Consistency) -> (Duration, Duration) {
    let table = table("wide", "t");
    let (mut writes, mut reads) = (Duration::ZERO, Duration::ZERO);
    for k in 0..20 {
        let began = world.sim.now();
        world.write(node, row(&table, k, 1, "text", 2), consistency).unwrap();
        writes = writes.max(world.sim.now() - began);
        let began = world.sim.now();
        let page = world.read(node, partition(&table, k, seconds(&world.sim, node)), consistency).unwrap();
        reads = reads.max(world.sim.now() - began);
        assert_eq!(texts(&page), [(1, "text".to_owned())]);
        // Work behind the answer must not be in the way of the next.
        world.sim.run_for(2 * ROUND_TRIP);
    }
    (writes, reads)
}

#[test]
fn local_levels_stay_local_and_the_others_pay_once() {
    let world = world(1);
    let near = Duration::from_millis(10);
    for node in [0, 4] {
        for level in [Consistency::LocalOne, Consistency::LocalQuorum, Consistency::One] {
            let (writes, reads) = costs(&world, node, level);
            assert!(writes < near && reads < near, "{level:?} from {node}: {writes:?}, {reads:?}");
        }
        for level in [Consistency::EachQuorum, Consistency::Quorum, Consistency::All] {
            let (writes, reads) = costs(&world, node, level);
            for took in [writes, reads] {
                assert!(took >= ROUND_TRIP && took < ROUND_TRIP + near, "{level:?} from {node}: {took:?}");
            }
        }
    }
}

/// Requests of a verb that nodes have sent to all others.
fn sent(verb: Verb, nodes: std::ops::Range<usize>) -> u64 {
    nodes.map(|node| messenger(node).stats().verb(verb).sent).sum()
}

#[test]
fn a_write_crosses_the_distance_once() {
    let world = world(2);
    let table = table("wide", "t");
    let before = (
        sent(Verb::Forward, 0..1),
        sent(Verb::Apply, 0..1),
        sent(Verb::Apply, 3..6),
        sent(Verb::Outcome, 3..6),
    );
    for k in 0..10 {
        world.write(0, row(&table, k, 1, "text", 2), Consistency::All).unwrap();
    }
    assert_eq!(
        sent(Verb::Forward, 0..1) - before.0,
        10,
        "one replica of the other datacenter gets each write"
    );
    assert_eq!(sent(Verb::Apply, 0..1) - before.1, 20, "and the two of its own");
    assert_eq!(sent(Verb::Apply, 3..6) - before.2, 20, "which forwards to the others there");
    assert_eq!(sent(Verb::Outcome, 3..6) - before.3, 20);
    for node in 0..6 {
        for k in 0..10 {
            let read = partition(&table, k, seconds(&world.sim, node));
            assert_eq!(world.kept(node, read), [(1, "text".to_owned())], "node {node}, key {k}");
        }
    }
    assert_eq!(coordinator(0, 0).replication_stats().hinted, 0);
}

#[test]
fn a_silent_node_there_gets_a_hint_and_costs_no_quorum() {
    let world = world(3);
    let table = table("wide", "t");
    // Node 5 is cut off from everybody, and nobody knows it yet.
    world.sim.isolate(world.sim.node(5));
    for k in 0..9 {
        let began = world.sim.now();
        world.write(0, row(&table, k, 1, "text", 2), Consistency::LocalQuorum).unwrap();
        assert!(world.sim.now() - began < Duration::from_millis(10));
    }
    world.sim.run_for(5 * SECOND);
    for node in 0..5 {
        for k in 0..9 {
            let read = partition(&table, k, seconds(&world.sim, node));
            assert_eq!(world.kept(node, read), [(1, "text".to_owned())], "node {node}, key {k}");
        }
    }
    assert_eq!(kept_hints(&world, 0).get(&host(5)), Some(&9));
    // It is cut off while others pass writes on to it: two thirds of them, as they take turns.
    for k in 10..19 {
        let began = world.sim.now();
        world.write(0, row(&table, k, 1, "text", 3), Consistency::EachQuorum).unwrap_or_else(|error| {
            panic!("key {k} after {:?}: {error:?}", world.sim.now() - began);
        });
    }
}

#[test]
fn a_datacenter_that_is_down_costs_hints_alone() {
    let world = world(4);
    let table = table("wide", "t");
    for there in 3..6 {
        for here in 0..3 {
            world.sim.partition(world.sim.node(here), world.sim.node(there));
        }
    }
    for k in 0..5 {
        world.write(0, row(&table, k, 1, "text", 2), Consistency::LocalQuorum).unwrap();
    }
    world.sim.run_for(5 * SECOND);
    let hints = kept_hints(&world, 0);
    assert_eq!([3, 4, 5].map(|node| hints.get(&host(node)).copied()), [Some(5); 3], "{hints:?}");
    world.believe(&[0, 1, 2]);
    assert!(world.write(0, row(&table, 9, 1, "text", 2), Consistency::EachQuorum).is_err());
    world.sim.heal_all();
    world.believe(&[0, 1, 2, 3, 4, 5]);
    world.sim.run_for(60 * SECOND);
    for node in 3..6 {
        for k in 0..5 {
            let read = partition(&table, k, seconds(&world.sim, node));
            assert_eq!(world.kept(node, read), [(1, "text".to_owned())], "node {node}, key {k}");
        }
    }
}

#[test]
fn writes_go_on_while_the_link_loses_packets() {
    for seed in 5..9 {
        let world = world(seed);
        let table = table("wide", "t");
        let bad = LinkConfig { loss_per_million: 20_000, reset_per_million: 2_000, ..far() };
        for from in 0..6 {
            for to in 0..6 {
                if DATACENTERS[from] != DATACENTERS[to] {
                    world.sim.set_link(world.sim.node(from), world.sim.node(to), Some(bad));
                }
            }
        }
        for k in 0..60 {
            world.write((k % 6) as usize, row(&table, k, 1, "text", 2), Consistency::LocalQuorum).unwrap();
        }
        world.sim.run_for(30 * SECOND);
        for node in 0..6 {
            for k in 0..60 {
                let read = partition(&table, k, seconds(&world.sim, node));
                assert_eq!(
                    world.kept(node, read),
                    [(1, "text".to_owned())],
                    "seed {seed}: node {node}, key {k}"
                );
            }
        }
    }
}

/// However much time a write has: the datacenter there has a quorum without the node that is to pass it on.
#[test]
fn a_node_there_that_passes_nothing_on_is_waited_for_a_second() {
    let world = world(7);
    let t = table("wide", "t");
    world.sim.pause(world.sim.node(3));
    let mut waited = 0;
    for k in 0..12 {
        let began = world.sim.now();
        let written = world.on(0, 0, {
            let update = row(&t, k, 1, "text", 2);
            |rt, coordinator| async move {
                let deadline = rt.now() + 10 * SECOND;
                let options =
                    WriteOptions { consistency: Consistency::EachQuorum, kind: WriteKind::Simple, deadline };
                coordinator.write(vec![update], options).await
            }
        });
        assert_eq!(written, Ok(()), "key {k}");
        let took = world.sim.now() - began;
        assert!(took < SECOND + 3 * ROUND_TRIP, "key {k} took {took:?}");
        waited += u64::from(took >= SECOND);
    }
    assert!(waited > 0, "the paused node was to pass on some of them");
}

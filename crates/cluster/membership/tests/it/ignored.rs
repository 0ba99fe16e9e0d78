//! A node is removed or replaced while another one is dead, too: the change waits for that one, unless an operator names it as dead.

use std::collections::BTreeSet;

use coordinator::{Canaries, Consistency};
use membership::TopologyRequest;

use crate::leftovers::{KEYS, replicas, stored, write_all};
use crate::world::{Node, SECOND, World, host};

const NODES: usize = 5;
/// Is removed or replaced.
const DEAD: usize = 3;
/// Is down as well.
const OTHER: usize = 4;
/// Takes the place of [`DEAD`].
const NEXT: usize = 5;

/// Five nodes with rows on all replicas, of which two die.
fn with_two_dead(seed: u64) -> World {
    let world = World::new(seed, NEXT + 1, Canaries::default());
    (1..NODES).for_each(|node| world.start(node));
    write_all(&world, Some("a"), Consistency::All);
    [DEAD, OTHER].into_iter().for_each(|node| world.kill(node));
    world.sim.run_for(30 * SECOND);
    world
}

/// How many replicas that live lack a row of theirs, of how many.
fn lacking(world: &World) -> (usize, usize) {
    let (mut lacking, mut all) = (0, 0);
    for k in 0..KEYS {
        let here = replicas(world, k);
        for node in (0..=NEXT).filter(|node| world.is_in(*node) && here.contains(&host(*node))) {
            all += 1;
            lacking += usize::from(stored(world, node, k) == 0);
        }
    }
    (lacking, all)
}

fn remove(
    ignored: BTreeSet<topology::HostId>,
) -> impl FnOnce(Node) -> futures_util::future::LocalBoxFuture<'static, Result<(), String>> {
    |Node { changes, .. }| {
        Box::pin(async move { changes.ask(TopologyRequest::Remove { host: host(DEAD), ignored }).await })
    }
}

#[test]
fn a_removal_continues_without_a_dead_node_that_is_named() {
    let world = with_two_dead(11);
    let waits = world.begin(0, remove(BTreeSet::new()));
    world.sim.run_for(200 * SECOND);
    assert!(!waits.is_finished(), "quorums of rows may be on the two dead nodes alone");
    let up = world.on(1, remove([host(2)].into())).expect_err("it is up");
    assert!(up.contains("is to be ignored, and is up"), "{up}");
    // At another node than the one that was asked first.
    assert_eq!(world.on(1, remove([host(OTHER)].into())), Ok(()));
    assert_eq!(waits.join(&world.sim).expect("it ends"), Ok(()));
    assert!(world.state(0).was_removed(host(DEAD)) && !world.state(0).was_removed(host(OTHER)));
    let (lacking, all) = lacking(&world);
    assert!(lacking == 0 && all > KEYS as usize, "{lacking} of {all}");
    // The declaration was for that change: the next one has nothing to do with it.
    let (own, state) =
        (world.on(1, |Node { membership, .. }| async move { membership.liveness().own }), world.state(1));
    assert!(state.change.is_none() && own.states[&gossip::Key::IGNORED_NODES].value.is_empty());
}

#[test]
fn a_replacement_continues_without_a_dead_node_that_is_named() {
    let world = with_two_dead(12);
    world.replace(NEXT, DEAD, &[]);
    world.sim.run_for(200 * SECOND);
    assert!(!world.is_in(NEXT), "quorums of rows may be on the two dead nodes alone");
    world.kill(NEXT);
    world.sim.run_for(30 * SECOND);
    world.replace(NEXT, DEAD, &[OTHER]);
    world.wait_until(|| world.is_in(NEXT));
    assert!(world.state(0).was_removed(host(DEAD)) && !world.state(0).was_removed(host(OTHER)));
    let (lacking, all) = lacking(&world);
    assert!(lacking == 0 && all > KEYS as usize, "{lacking} of {all}");
}

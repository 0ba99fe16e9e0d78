//! Replicas that are cut off from the cluster's log together with a coordinator, while the topology changes without them: by the time the change
//! ends, they answer no request from their old rows.

use std::cell::Cell;
use std::rc::Rc;

use coordinator::{Canaries, Consistency, LEASE, Phase, RequestError, WriteKind, WriteOptions};
use rt_sim::Config;
use schema::Replication;

use crate::fence::{JOINS, Stage, fetch, tell};
use crate::world::{SECOND, World, coordinator, host, key, partition, row, seconds, table, texts};

const KEYS: i32 = 24;
/// The node that is cut off.
const CUT_OFF: [usize; 2] = [0, 1];

/// Four nodes while the last one joins. The log confirms to a node if the flag of its number is set.
fn world(seed: u64) -> (World, Vec<Rc<Cell<bool>>>) {
    let world = World::new(seed, &[1, 1, 1, 1], Config::default());
    let reached: Vec<Rc<Cell<bool>>> = (0..4).map(|_| Rc::new(Cell::new(true))).collect();
    for (node, reached) in reached.iter().enumerate() {
        let reached = reached.clone();
        coordinator(node, 0).confirm_with(Box::new(move |_| {
            let reached = reached.clone();
            Box::pin(async move { reached.get() })
        }));
    }
    (world, reached)
}

/// Whether the join moves replicas of a key.
fn moves(world: &World, k: i32) -> bool {
    let nodes = world.nodes(&[0, 1, 2, 3], |node| if node == JOINS { Phase::Joining } else { Phase::Normal });
    let view = coordinator::ClusterView::new(host(0), nodes).expect("tokens are apart");
    !view.place(&Replication::Simple { factor: 3 }).pending(key(k).token).is_empty()
}

/// The join continues without two previous replicas that were fetched from and cut off then; of how many keys a coordinator that is cut off with them
/// reads overwritten values, at QUORUM, and how many of its reads are refused.
fn stale_reads(canaries: Canaries) -> (usize, usize) {
    let (world, reached) = world(31);
    world.inject(canaries);
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    tell(&world, &[0, 1, 2], Stage::Before);
    for k in 0..KEYS {
        world.write(0, row(&t, k, 0, "old", 10), Consistency::All).unwrap();
    }
    tell(&world, &[0, 1, 2, JOINS], Stage::Fetching);
    fetch(&world);
    for node in CUT_OFF {
        reached[node].set(false);
        [2, JOINS].iter().for_each(|other| world.sim.partition(world.sim.node(node), world.sim.node(*other)));
    }
    tell(&world, &[2, JOINS], Stage::Switched);
    // As long as the end of a change waits at least for nodes that could be cut off.
    world.sim.run_for(60 * SECOND);
    tell(&world, &[2, JOINS], Stage::Over);
    let (mut stale, mut refused) = (0, 0);
    for k in 0..KEYS {
        if world.write(2, row(&t, k, 0, "new", 20), Consistency::Quorum).is_err() {
            // Too few of its replicas are there.
            continue;
        }
        match world.read(0, partition(&t, k, now), Consistency::Quorum) {
            Ok(page) => stale += usize::from(texts(&page) != [(0, "new".to_owned())]),
            Err(_) => refused += 1,
        }
    }
    (stale, refused)
}

#[test]
fn replicas_that_are_cut_off_while_the_topology_changes_answer_no_stale_quorum_reads() {
    let (stale, refused) = stale_reads(Canaries::default());
    assert_eq!(stale, 0);
    assert!(refused > 0, "some keys have two replicas on either side");
    let (stale, _) = stale_reads(Canaries { no_lease: true, ..Canaries::default() });
    assert!(stale > 0);
}

#[test]
fn without_the_log_only_moving_ranges_are_refused_and_only_above_one() {
    let (world, reached) = world(32);
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    let read = |k: i32, level| world.read(0, partition(&t, k, now), level).map(|_| ());
    let all = |level, whether: fn(bool) -> bool| {
        for k in 0..KEYS {
            let refused = read(k, level);
            let is_refused =
                matches!(&refused, Err(RequestError::Overloaded(why)) if why.contains("majority"));
            assert_eq!(is_refused, whether(moves(&world, k)), "{k} at {level:?}: {refused:?}");
        }
    };
    assert!((0..KEYS).any(|k| moves(&world, k)) && !(0..KEYS).all(|k| moves(&world, k)));
    tell(&world, &[0, 1, 2, JOINS], Stage::Fetching);
    all(Consistency::Quorum, |_| false);
    reached[0].set(false);
    // A confirmation counts for a while, and then no more.
    world.sim.run_for(LEASE - 5 * SECOND);
    all(Consistency::Quorum, |_| false);
    world.sim.run_for(10 * SECOND);
    all(Consistency::Quorum, |moves| moves);
    all(Consistency::LocalQuorum, |moves| moves);
    all(Consistency::One, |_| false);
    let write = |k: i32, level| world.write(0, row(&t, k, 0, "a", 10), level);
    for k in 0..KEYS {
        assert_eq!(write(k, Consistency::Quorum).is_err(), moves(&world, k), "{k}");
        write(k, Consistency::One).expect("nobody counts on it");
    }
    reached[0].set(true);
    world.sim.run_for(2 * SECOND);
    all(Consistency::Quorum, |_| false);
    // Requests renew it before it ends.
    for _ in 0..10 {
        world.sim.run_for(LEASE / 4);
        all(Consistency::Quorum, |_| false);
    }
    reached[0].set(false);
    world.sim.run_for(LEASE / 2);
    all(Consistency::Quorum, |_| false);
    world.sim.run_for(LEASE);
    all(Consistency::Quorum, |moves| moves);
    // A coordinator that knows that reads have switched reads the pending replicas.
    tell(&world, &[0, 1, 2, JOINS], Stage::Switched);
    all(Consistency::Quorum, |_| false);
}

/// The refusal says that nothing was done, of partitions that do not move neither.
#[test]
fn a_batch_that_is_refused_leaves_nothing() {
    let (world, reached) = world(33);
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    tell(&world, &[0, 1, 2, JOINS], Stage::Fetching);
    reached[0].set(false);
    for kind in [WriteKind::Batch, WriteKind::UnloggedBatch] {
        let updates = (0..KEYS).map(|k| row(&t, k, 0, "a", 10)).collect();
        let refused = world.on(0, 0, |rt, coordinator| async move {
            let deadline = rt.now() + 5 * SECOND;
            coordinator
                .write(updates, WriteOptions { consistency: Consistency::Quorum, kind, deadline })
                .await
        });
        assert!(
            matches!(&refused, Err(RequestError::Overloaded(why)) if why.contains("majority")),
            "{refused:?}"
        );
    }
    world.sim.run_for(30 * SECOND);
    for node in [0, 1, 2, JOINS] {
        for k in 0..KEYS {
            assert_eq!(world.kept(node, partition(&t, k, now)), [], "{k} on {node}");
        }
    }
}

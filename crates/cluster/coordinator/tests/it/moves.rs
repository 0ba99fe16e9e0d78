//! Data that moves with its range: rows of a single replica are not lost by a topology change, and rows that a former replica still has, or is
//! sent late, do not come back.

use replica::{Origin, ReadPage, Write};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::{
    Canaries, CasOptions, CasOutcome, ClusterView, Consistency, Phase, Replicated, RequestError,
};
use hints::HintsConfig;
use rt_sim::{Config, LinkConfig};
use schema::{Replication, Table};
use topology::HostId;

use crate::fence::{JOINS, Stage, fetch, tell};
use crate::world::{SECOND, World, begin, host, join, kept_hints, partition, row, seconds, table, texts};

const KEYS: i32 = 24;

/// Writes to one replica alone, as a write at ONE does whose other replicas did not get it.
fn write_alone(world: &World, node: usize, k: i32, c: i32) {
    let update = row(&table("ks", "t"), k, c, "only here", 10);
    let applied = world.on(node, 0, |_, coordinator| async move {
        coordinator.replica().apply(Write::one(Origin::Client, update)).await
    });
    applied.expect("the disk is well");
}

/// The replicas of a key as a node sees them.
fn replicas(world: &World, node: usize, k: i32) -> Vec<HostId> {
    world.on(node, 0, move |_, coordinator| async move {
        let view = coordinator.view();
        let placement = view.place(&Replication::Simple { factor: 3 });
        let replicas = placement.replicas(crate::world::key(k).token).iter();
        replicas.map(|node| view.node(*node).host).collect()
    })
}

/// A node joins three that have different rows of each partition; how many rows no replica has afterwards.
fn lost_by_a_join(seed: u64, canaries: Canaries) -> usize {
    let world = World::new(seed, &[1, 2, 1, 1], Config::default());
    world.inject(canaries);
    tell(&world, &[0, 1, 2], Stage::Before);
    let before: Vec<_> = (0..KEYS).map(|k| replicas(&world, 0, k)).collect();
    for k in 0..KEYS {
        (0..3).for_each(|node| write_alone(&world, node, k, node as i32));
    }
    tell(&world, &[0, 1, 2, JOINS], Stage::Fetching);
    fetch(&world);
    tell(&world, &[0, 1, 2, JOINS], Stage::Over);
    let now = seconds(&world.sim, 0);
    let t = table("ks", "t");
    let mut lost = 0;
    let mut moved = 0;
    for k in 0..KEYS {
        let after = replicas(&world, 0, k);
        moved += usize::from(after != before[k as usize]);
        let holders = (0..4).filter(|node| after.contains(&host(*node)));
        let rows: Vec<i32> =
            holders.flat_map(|node| world.kept(node, partition(&t, k, now))).map(|(c, _)| c).collect();
        lost += (0..3).filter(|c| !rows.contains(c)).count();
    }
    assert!(moved > 5, "{moved} partitions have other replicas");
    lost
}

#[test]
fn rows_that_only_the_leaving_replica_has_are_fetched_from_it() {
    for seed in 0..4 {
        assert_eq!(lost_by_a_join(seed, Canaries::default()), 0, "seed {seed}");
    }
    let canaries = Canaries { leaving_left_out: true, ..Canaries::default() };
    let lost: usize = (0..4).map(|seed| lost_by_a_join(seed, canaries)).sum();
    assert!(lost > 0, "the leaving replica is queried by chance, too");
}

#[test]
fn a_node_that_loses_a_range_is_waited_for_unless_it_is_removed() {
    let t = table("ks", "t");
    for (phase, is_waited_for) in [(Phase::Normal, true), (Phase::Leaving, true), (Phase::Removing, false)] {
        let world = World::new(7, &[1, 1, 1, 1], Config::default());
        // Three of four keep each partition; when the first goes, or the last comes, ranges change hands.
        let phases = move |node| match (node, phase) {
            (JOINS, Phase::Normal) => Phase::Joining,
            (0, phase) => phase,
            _ => Phase::Normal,
        };
        world.believe_phases(&[0, 1, 2, 3], phases);
        let pending = if phase == Phase::Normal { JOINS } else { 1 };
        world.pull(pending, &t).expect("all are there");
        world.believe_phases(&[1, 2, 3], phases);
        let pulled = world.pull(pending, &t);
        match pulled {
            Err(error) => {
                assert!(is_waited_for && error.to_string().contains("loses a range and is down"), "{error}");
                world.sim.run_for(61 * SECOND);
                world.pull(pending, &t).expect("not for ever");
            }
            Ok(_) => assert!(!is_waited_for, "{phase:?}"),
        }
    }
}

/// A node is replaced, and of its datacenter one replica has the rows that the datacenter acknowledged at LOCAL_QUORUM besides the dead one.
#[test]
fn a_replacement_has_the_writes_that_its_datacenter_acknowledged() {
    let t = table("wide", "t");
    // The fourth node of dc1 takes the place of the first.
    let world = World::wide(11, &["dc1", "dc1", "dc1", "dc1", "dc2", "dc2", "dc2"], Config::default());
    let phases = |node| match node {
        0 => Phase::Removing,
        JOINS => Phase::Joining,
        _ => Phase::Normal,
    };
    world.believe_phases(&[1, 2, 3, 4, 5, 6], phases);
    let update = row(&t, 1, 0, "by the first and the second", 10);
    let applied = world.on(1, 0, |_, coordinator| async move {
        coordinator.replica().apply(Write::one(Origin::Client, update)).await
    });
    applied.expect("the disk is well");
    world.believe_phases(&[2, 3, 4, 5, 6], phases);
    let waits = world.pull(JOINS, &t).expect_err("the second may be the only one that stored it");
    assert!(waits.to_string().contains("a write at LOCAL_QUORUM may be missed"), "{waits}");
    world.believe_phases(&[1, 2, 3, 4, 5, 6], phases);
    world.pull(JOINS, &t).expect("all are there");
    let kept = world.kept(JOINS, partition(&t, 1, seconds(&world.sim, 0)));
    assert_eq!(kept, [(0, "by the first and the second".to_owned())]);
    // A datacenter that has lost its majority for good is not waited for.
    world.believe_phases(&[2, 3, 4, 5, 6], phases);
    world.pull(JOINS, &t).expect_err("it may come back");
    world.sim.run_for(61 * SECOND);
    world.pull(JOINS, &t).expect("not for ever");
    // Nor is one that was down for as long before. One that was back meanwhile is.
    world.believe_phases(&[1, 2, 3, 4, 5, 6], phases);
    world.believe_phases(&[2, 3, 4, 5, 6], phases);
    world.pull(JOINS, &t).expect_err("it has just gone down");
    world.believe_phases(&[1, 2, 3, 4, 5, 6], phases);
    world.believe_phases(&[2, 3, 4, 5, 6], phases);
    world.sim.run_for(61 * SECOND);
    world.pull(JOINS, &t).expect("it has been down for a minute");
}

#[test]
fn a_join_does_not_wait_for_a_dead_node_that_is_to_be_replaced() {
    let t = table("ks", "t");
    let world = World::new(7, &[1, 1, 1, 1], Config::default());
    let phases = |node| if node == JOINS { Phase::Joining } else { Phase::Normal };
    world.believe_phases(&[1, 2, 3], phases);
    let waits = world.pull(JOINS, &t).expect_err("it may come back");
    assert!(waits.to_string().contains("loses a range and is down"), "{waits}");
    world.believe_declared_dead(&[1, 2, 3], phases, &[0]);
    world.pull(JOINS, &t).expect("its replacement waits for this join");
    // One that lives nonetheless is fetched from.
    world.believe_declared_dead(&[0, 1, 2, 3], phases, &[0]);
    world.pull(JOINS, &t).expect("all are there");
    // A quorum of the remaining replicas stays the rule, but for those that an operator has named as dead for this change.
    world.believe_declared_dead(&[2, 3], phases, &[0]);
    let refused = world.pull(JOINS, &t).expect_err("two of three replicas are down");
    assert!(!refused.to_string().is_empty());
    world.believe_ignored(&[2, 3], phases, &[0, 1]);
    let pulled = world.pull(JOINS, &t).expect("the remaining one is read");
    assert!(pulled.below_quorum > 0, "{pulled:?}");
    world.believe_ignored(&[0, 1, 2, 3], phases, &[0, 1]);
    let pulled = world.pull(JOINS, &t).expect("all are there");
    assert_eq!(pulled.below_quorum, 0, "those that are up take part: {pulled:?}");
}

/// The nodes' view of keyspace `one` while it gets three replicas instead of one.
fn alter(world: &World, number: u64, fence: u64, step: Step) {
    for own in 0..3 {
        let (nodes, one, three) = (
            world.nodes(&[0, 1, 2], |_| Phase::Normal),
            Replication::Simple { factor: 1 },
            Replication::Simple { factor: 3 },
        );
        let replicated = match step {
            Step::Before => Replicated { now: one, other: None },
            Step::Moving => Replicated { now: one, other: Some(three) },
            Step::Switched => Replicated { now: three, other: Some(one) },
            Step::Over => Replicated { now: three, other: None },
        };
        let view = match step {
            Step::Switched => ClusterView::switched(host(own), nodes),
            _ => ClusterView::new(host(own), nodes),
        };
        let view = view.expect("tokens are apart").numbered(number, fence);
        let view = view.replicating([("one".to_owned(), replicated)].into());
        world.on(own, 0, |_, coordinator| async move { coordinator.publish_view(view).await });
    }
}

#[derive(Clone, Copy)]
enum Step {
    Before,
    Moving,
    Switched,
    Over,
}

/// `INSERT … IF NOT EXISTS` of row 0 of a partition of keyspace `one`; whether it was applied.
fn insert_if_not_exists(world: &World, node: usize, k: i32, text: &'static str) -> bool {
    insert_if_not_exists_into(world, &table("one", "t"), node, k, text)
}

fn insert_if_not_exists_into(world: &World, t: &Arc<Table>, node: usize, k: i32, text: &'static str) -> bool {
    let t = t.clone();
    world.on(node, 0, move |rt, coordinator| async move {
        let command = partition(&t, k, 0);
        let end = rt.now() + 10 * SECOND;
        let options = CasOptions {
            serial: Consistency::Serial,
            commit: Consistency::Quorum,
            deadline: end,
            contention_deadline: end,
        };
        let mut decide = |page: &ReadPage, at: i64| -> Result<_, RequestError> {
            Ok(texts(page).is_empty().then(|| row(&t, k, 0, text, at)))
        };
        let outcome = coordinator.cas(&command, options, &mut decide).await.expect("all are well");
        matches!(outcome, CasOutcome::Applied)
    })
}

/// How many of `IF NOT EXISTS` apply that applied already before keyspace `one` got three replicas.
fn applied_twice(moves: bool) -> usize {
    let (world, t) = (World::new(9, &[1, 2, 1], Config::default()), table("one", "t"));
    alter(&world, 1, 0, Step::Before);
    for k in 0..KEYS {
        assert!(insert_if_not_exists(&world, k as usize % 3, k, "first"));
    }
    if moves {
        alter(&world, 2, 0, Step::Moving);
        alter(&world, 3, 2, Step::Moving);
        (0..3).for_each(|node| {
            world.pull(node, &t).expect("all are there");
        });
        alter(&world, 4, 2, Step::Switched);
    }
    alter(&world, 5, if moves { 4 } else { 0 }, Step::Over);
    let again =
        (0..KEYS).filter(|k| insert_if_not_exists(&world, (*k as usize + 1) % 3, *k, "second")).count();
    if moves {
        let now = seconds(&world.sim, 0);
        for (k, node) in (0..KEYS).flat_map(|k| (0..3).map(move |node| (k, node))) {
            assert_eq!(
                world.kept(node, partition(&t, k, now)),
                [(0, "first".to_owned())],
                "{k} at node {node}"
            );
        }
    }
    again
}

#[test]
fn if_not_exists_applies_once_although_the_replication_factor_is_raised_between() {
    assert_eq!(applied_twice(true), 0);
    assert!(applied_twice(false) > 0, "replicas that nobody gave the data agree on what they do not know");
}

#[test]
fn writes_while_replicas_move_are_read_by_both_replications() {
    let (world, t) = (World::new(10, &[1, 1, 1], Config::default()), table("one", "t"));
    let now = seconds(&world.sim, 0);
    alter(&world, 3, 2, Step::Moving);
    for k in 0..KEYS {
        world.write(k as usize % 3, row(&t, k, 0, "a", 10), Consistency::Quorum).unwrap();
        let page = world.read((k as usize + 1) % 3, partition(&t, k, now), Consistency::Quorum).unwrap();
        assert_eq!(texts(&page), [(0, "a".to_owned())]);
    }
    alter(&world, 4, 2, Step::Switched);
    for k in 0..KEYS {
        let page = world.read(k as usize % 3, partition(&t, k, now), Consistency::Quorum).unwrap();
        assert_eq!(texts(&page), [(0, "a".to_owned())]);
        world.write(k as usize % 3, row(&t, k, 1, "b", 10), Consistency::One).unwrap();
        let replica = replica_before(&world, k);
        assert_eq!(
            world.kept(replica, partition(&t, k, now)).len(),
            2,
            "who reads by the one replica of before sees it"
        );
    }
}

/// The node that has a partition when there is one replica.
fn replica_before(world: &World, k: i32) -> usize {
    let only = only_replica(world, k);
    (0..3).find(|node| host(*node) == only).expect("it is one of them")
}

fn only_replica(world: &World, k: i32) -> HostId {
    world.on(0, 0, move |_, coordinator| async move {
        let view = coordinator.view();
        let placement = view.place(&Replication::Simple { factor: 1 });
        view.node(placement.replicas(crate::world::key(k).token)[0]).host
    })
}

/// Writes all keys while node 2 is cut off, for which hints are kept.
fn write_without_node_2(world: &World, t: &Arc<Table>) {
    tell(world, &[0, 1, 2], Stage::Before);
    world.sim.isolate(world.sim.node(2));
    for k in 0..KEYS {
        world.write(0, row(t, k, 0, "a", 10), Consistency::Quorum).unwrap();
    }
    world.sim.run_for(5 * SECOND);
}

/// Hints are kept for a node; while it is down it loses ranges to a node that joined. The rows that it has of those when the hints were delivered.
fn hints_for_a_former_replica(canaries: Canaries) -> (usize, usize) {
    let world = World::with_handoff(11, &[1, 1, 1, 1], Config::default(), HintsConfig::default());
    world.inject(canaries);
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    write_without_node_2(&world, &t);
    assert_eq!(kept_hints(&world, 0), [(host(2), KEYS as u64)].into());
    tell(&world, &[0, 1, JOINS], Stage::Over);
    world.sim.heal_all();
    tell(&world, &[0, 1, 2, JOINS], Stage::Over);
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    let mut returned = 0;
    let mut missing = 0;
    for k in 0..KEYS {
        let owners = replicas(&world, 0, k);
        let has = |node| !world.kept(node, partition(&t, k, now)).is_empty();
        // Rows of the node's own ranges that the others lack do not count here: no node fetched anything.
        if owners.contains(&host(2)) {
            continue;
        }
        returned += usize::from(has(2));
        missing += (0..4).filter(|node| owners.contains(&host(*node)) && !has(*node)).count();
    }
    (returned, missing)
}

#[test]
fn hints_for_a_node_that_lost_the_range_go_to_its_owners() {
    assert_eq!(hints_for_a_former_replica(Canaries::default()), (0, 0));
    let everything = Canaries { owns_everything: true, ..Canaries::default() };
    let (returned, missing) = hints_for_a_former_replica(everything);
    assert!(returned > 0 && missing > 0, "{returned} partitions came back, {missing} are missing");
}

/// A coordinator that has not heard of the end of a join writes to the previous replicas; how many partitions a former one has then.
fn late_writes(canaries: Canaries, conditional: bool) -> usize {
    let world = World::new(12, &[1, 1, 1, 1], Config::default());
    world.inject(canaries);
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    tell(&world, &[0, 1, 2, JOINS], Stage::Switched);
    // By the topology version of the last step before, which is still valid, both old and new replicas receive it.
    tell(&world, &[1, 2, JOINS], Stage::Over);
    for k in 0..KEYS {
        if conditional {
            assert!(insert_if_not_exists_into(&world, &t, 0, k, "a"));
        } else {
            world.write(0, row(&t, k, 0, "a", 10), Consistency::Quorum).unwrap();
        }
    }
    world.sim.run_for(5 * SECOND);
    let stray = |k: &i32, node: usize| {
        !replicas(&world, 1, *k).contains(&host(node)) && !world.kept(node, partition(&t, *k, now)).is_empty()
    };
    (0..KEYS).filter(|k| stray(k, 1) || stray(k, 2)).count()
}

#[test]
fn a_former_replica_refuses_writes_of_dropped_ranges() {
    assert_eq!(late_writes(Canaries::default(), false), 0);
    assert!(late_writes(Canaries { owns_everything: true, ..Canaries::default() }, false) > 0);
}

#[test]
fn a_former_replica_refuses_commits_of_dropped_ranges() {
    assert_eq!(late_writes(Canaries::default(), true), 0);
    assert!(late_writes(Canaries { owns_everything: true, ..Canaries::default() }, true) > 0);
}

/// A join ends between the promises and the proposal of a conditional write, which the new replica accepts and the former one refuses then.
fn refused_between_two_steps(seed: u64) {
    let far = LinkConfig { latency_min: SECOND / 200, latency_max: SECOND / 150, ..LinkConfig::default() };
    let world = World::new(seed, &[1, 1, 1, 1], Config { link: far, ..Config::default() });
    let t = table("one", "t");
    tell(&world, &[0, 1, 2], Stage::Before);
    let before: Vec<usize> = (0..KEYS).map(|k| replica_before(&world, k)).collect();
    tell(&world, &[0, 1, 2, JOINS], Stage::Switched);
    let k = (0..KEYS).find(|k| only_replica(&world, *k) == host(JOINS)).expect("the new node has ranges");
    let (former, own) = (before[k as usize], (before[k as usize] + 1) % 3);
    let decided = Rc::new(Cell::new(0));
    let author = begin(&world.sim, own, 0, {
        let (t, decided) = (t.clone(), decided.clone());
        move |rt, coordinator| async move {
            let (command, end) = (partition(&t, k, 0), rt.now() + 5 * SECOND);
            let (serial, commit) = (Consistency::Serial, Consistency::Quorum);
            let options = CasOptions { serial, commit, deadline: end, contention_deadline: end };
            let mut decide = |page: &ReadPage, at: i64| {
                decided.set(decided.get() + 1);
                Ok::<_, RequestError>(texts(page).is_empty().then(|| row(&t, k, 0, "a", at)))
            };
            coordinator.cas(&command, options, &mut decide).await
        }
    });
    let decides = |_| {
        world.sim.run_for(SECOND / 100_000);
        decided.get() == 1
    };
    assert!((0..100_000).any(decides), "it has promises");
    let others: Vec<usize> = (0..=JOINS).filter(|node| *node != own).collect();
    tell(&world, &others, Stage::Over);
    world.sim.run_for(SECOND / 20);
    assert!(!author.is_finished(), "the coordinator has not heard of the end");
    tell(&world, &[own], Stage::Over);
    let outcome = join(&world.sim, author);
    assert!(matches!(outcome, Ok(CasOutcome::Applied)), "{outcome:?}");
    let now = seconds(&world.sim, 0);
    assert_eq!(world.kept(JOINS, partition(&t, k, now)), [(0, "a".to_owned())]);
    assert_eq!(world.kept(former, partition(&t, k, now)), []);
    assert!(!insert_if_not_exists_into(&world, &t, former, k, "b"));
    assert_eq!(decided.get(), 1, "the write that the new replica accepted is finished");
}

#[test]
fn an_author_that_a_former_replica_refuses_learns_whether_its_write_was_chosen() {
    (0..5).for_each(refused_between_two_steps);
}

/// A node is removed while hints are stored for it; its successor lacks none of their writes, also when a write ends
/// after the node has gone.
#[test]
fn hints_for_a_node_that_left_go_to_the_owners_of_its_ranges() {
    let world = World::with_handoff(15, &[1, 1, 1, 1], Config::default(), HintsConfig::default());
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    write_without_node_2(&world, &t);
    let late = begin(&world.sim, 0, 0, {
        let t = t.clone();
        |rt, coordinator| async move {
            crate::world::write(&rt, &coordinator, row(&t, 0, 1, "late", 20), Consistency::All).await
        }
    });
    // It has begun under the ring with node 2.
    world.sim.run_for(SECOND / 100);
    for node in [0, 1, JOINS] {
        let mut nodes = world.nodes(&[0, 1, JOINS], |_| Phase::Normal);
        nodes.remove(2);
        let view = ClusterView::new(host(node), nodes).expect("tokens are apart").numbered(5, 0);
        world.on(node, 0, |_, coordinator| async move { coordinator.publish_view(view).await });
    }
    join(&world.sim, late).expect_err("one of all has left");
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    for k in 0..KEYS {
        let kept = world.kept(JOINS, partition(&t, k, now));
        assert_eq!(kept.first(), Some(&(0, "a".to_owned())), "partition {k}");
        assert_eq!(kept.len(), if k == 0 { 2 } else { 1 }, "partition {k}");
    }
}

/// A read repairs rows of a single replica, while a node joins; whether they are read when reads have switched.
fn goes_back(canaries: Canaries) -> usize {
    let world = World::new(13, &[1, 1, 1, 1], Config::default());
    world.inject(canaries);
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    tell(&world, &[0, 1, 2, JOINS], Stage::Fetching);
    fetch(&world);
    // Rows that the new node does not receive, for a write fails.
    let mut seen = Vec::new();
    for k in 0..KEYS {
        write_alone(&world, 2, k, 0);
        let page = world.read(2, partition(&t, k, now), Consistency::Quorum).unwrap();
        assert!(!texts(&page).is_empty(), "the coordinator is nearest to itself");
        seen.push(k);
    }
    tell(&world, &[0, 1, 2, JOINS], Stage::Over);
    let missing = |k: &&i32| {
        (0..4).any(|node| {
            let page = world.read(node, partition(&t, **k, now), Consistency::Quorum).unwrap();
            texts(&page).is_empty()
        })
    };
    seen.iter().filter(missing).count()
}

#[test]
fn repaired_rows_are_not_missing_when_reads_have_switched() {
    assert_eq!(goes_back(Canaries::default()), 0);
    assert!(goes_back(Canaries { no_pending_repairs: true, ..Canaries::default() }) > 0);
}

/// Writes after the range was fetched that do not reach the pending replica, read from replicas that agree: nobody sends them to the pending one.
#[test]
fn writes_acknowledged_without_the_pending_replica_are_read_when_reads_have_switched() {
    let world = World::new(16, &[1, 1, 1, 1], Config::default());
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    tell(&world, &[0, 1, 2, JOINS], Stage::Fetching);
    fetch(&world);
    world.sim.isolate(world.sim.node(JOINS));
    for k in 0..KEYS {
        world.write(k as usize % 3, row(&t, k, 0, "a", 10), Consistency::Quorum).unwrap();
    }
    for k in 0..KEYS {
        for node in 0..3 {
            let page = world.read(node, partition(&t, k, now), Consistency::Quorum).unwrap();
            assert_eq!(texts(&page), [(0, "a".to_owned())], "partition {k}");
        }
        assert_eq!(world.kept(JOINS, partition(&t, k, now)), [], "nothing reaches it");
    }
    world.sim.heal_all();
    tell(&world, &[0, 1, 2, JOINS], Stage::Over);
    for (k, node) in (0..KEYS).flat_map(|k| (0..4).map(move |node| (k, node))) {
        let page = world.read(node, partition(&t, k, now), Consistency::Quorum).unwrap();
        assert_eq!(texts(&page), [(0, "a".to_owned())], "partition {k} at node {node}");
    }
}

#[test]
fn a_truncation_by_an_earlier_ring_is_done_anew_with_the_node_that_joins() {
    let world = World::new(14, &[1, 1, 1, 1], Config::default());
    let t = table("ks", "t");
    let now = seconds(&world.sim, 0);
    tell(&world, &[0, 1, 2], Stage::Before);
    tell(&world, &[1, 2, JOINS], Stage::Announced);
    // A coordinator that knows of the change sends it to the new node, too.
    for k in 0..KEYS {
        world.write(1, row(&t, k, 0, "a", 10), Consistency::Quorum).unwrap();
    }
    let truncated = begin(&world.sim, 0, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + 10 * SECOND).await }
    });
    world.sim.run_for(SECOND);
    assert!(!truncated.is_finished(), "it waits for the ring");
    tell(&world, &[0], Stage::Announced);
    join(&world.sim, truncated).expect("all are there");
    for k in 0..KEYS {
        assert_eq!(world.kept(JOINS, partition(&t, k, now)), [], "partition {k}");
    }
}

#[test]
fn writes_that_a_node_began_alone_are_waited_for_when_another_joins() {
    let world = World::new(15, &[1, 1], Config::default());
    let t = table("ks", "t");
    let tell_both = |nodes: &[usize], count: usize, number: u64| {
        for own in nodes {
            let members = world.nodes(&[0, 1], |_| Phase::Normal).into_iter().take(count).collect();
            let view = ClusterView::new(host(*own), members).expect("tokens are apart").numbered(number, 0);
            world.on(*own, 0, |_, coordinator| async move { coordinator.publish_view(view).await });
        }
    };
    tell_both(&[0], 1, 1);
    for k in 0..KEYS {
        world.write(0, row(&t, k, 0, "a", 10), Consistency::One).unwrap();
    }
    world.sim.configure_disk(world.sim.node(0), |disk| {
        (disk.latency_min, disk.latency_max) = (SECOND / 8, SECOND / 4);
    });
    let truncating = begin(&world.sim, 0, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + 60 * SECOND).await }
    });
    world.sim.run_for(SECOND / 10);
    assert!(!truncating.is_finished(), "the disk is slow");
    tell_both(&[0, 1], 2, 2);
    world.on(0, 0, |_, coordinator| async move { coordinator.run_out(60 * SECOND).await });
    assert!(truncating.is_finished(), "the change continues when it is done");
    join(&world.sim, truncating).expect("the disk is well");
}

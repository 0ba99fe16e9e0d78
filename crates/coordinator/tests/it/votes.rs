//! Votes of lightweight transactions when there is more to it than rounds: a truncated table's are forgotten, and a node that
//! becomes a replica has those of the replicas before it.

use std::cell::RefCell;
use std::rc::Rc;

use model::linear::RegisterOutput;
use mutation::row::ColumnData;
use rt_sim::{Config, Sim};

use crate::fence::{JOINS, Stage, fetch, tell};
use crate::lightweight::{History, Sum, cas, client, judge, read};
use crate::world::{SECOND, World, begin, partition, seconds, table};

#[test]
fn what_was_chosen_before_a_truncation_does_not_come_back_after_it() {
    let world = World::new(1, &[1, 2, 1], Config::default());
    let (table, now) = (table("ks", "t"), seconds(&world.sim, 0));
    // One replica does not hear of the write that is chosen.
    world.sim.isolate(world.sim.node(2));
    let chosen =
        world.on(0, 0, move |rt, coordinator| async move { cas(&rt, &coordinator, (1, now), None, 7).await });
    assert_eq!(chosen.expect("two of three are there"), RegisterOutput::Applied(true));
    world.sim.run_for(3 * SECOND);
    world.sim.heal_all();
    assert_eq!(world.kept(2, partition(&table, 1, now)), []);
    let truncated = table.clone();
    world
        .on(
            0,
            0,
            |rt, coordinator| async move { coordinator.truncate(&truncated, rt.now() + 2 * SECOND).await },
        )
        .expect("all nodes are there");
    let (now, nothing) = (seconds(&world.sim, 0), RegisterOutput::Value(None));
    for node in [2, 1, 0] {
        let seen =
            world.on(node, 0, move |rt, coordinator| async move { read(&rt, &coordinator, 1, now).await });
        assert_eq!(seen.expect("all is well"), nothing, "node {node}");
        assert_eq!(world.kept(node, partition(&table, 1, now)), [], "node {node}");
    }
    // What is chosen after it stays, also where a clock is behind.
    world.sim.jump_clock(world.sim.node(1), -5_000_000);
    let again =
        world.on(1, 0, move |rt, coordinator| async move { cas(&rt, &coordinator, (1, now), None, 8).await });
    assert_eq!(again.expect("all is well"), RegisterOutput::Applied(true));
    let seen = world.on(2, 0, move |rt, coordinator| async move { read(&rt, &coordinator, 1, now).await });
    assert_eq!(seen.expect("all is well"), RegisterOutput::Value(Some(8)));
}

/// The round that a node has promised to follow for a partition of `ks.t`.
fn promised(world: &World, node: usize, k: i32) -> Option<bytes::Bytes> {
    let (votes, now) = (table("system", "paxos"), seconds(&world.sim, 0));
    let column = votes.column("in_progress_ballot").expect("it is there").id;
    let command = partition(&votes, k, now);
    let page = world.on(node, 0, |_, coordinator| async move { coordinator.replica().read(&command).await });
    let page = page.expect("the disk is well");
    let row = page.partitions.first()?.rows.first()?;
    row.columns().iter().find(|(id, _)| *id == column).and_then(|(_, data)| match data {
        ColumnData::Simple(cell) => Some(cell.value.clone()),
        ColumnData::Complex(_) => None,
    })
}

#[test]
fn a_node_that_joins_has_the_votes_of_its_ranges() {
    let world = World::new(2, &[1, 1, 2, 2], Config::default());
    let all = [JOINS, 0, 1, 2];
    tell(&world, &[0, 1, 2], Stage::Before);
    let now = seconds(&world.sim, 0);
    for k in 0..20 {
        let chosen = world
            .on(0, 0, move |rt, coordinator| async move { cas(&rt, &coordinator, (k, now), None, 7).await });
        assert_eq!(chosen.expect("all is well"), RegisterOutput::Applied(true));
    }
    let before: Vec<_> = (0..20).map(|k| promised(&world, 1, k)).collect();
    assert!(before.iter().all(Option::is_some), "every node is a replica of every partition");
    tell(&world, &all, Stage::Announced);
    tell(&world, &all, Stage::Fetching);
    fetch(&world);
    let carried = (0..20).filter(|k| promised(&world, JOINS, *k).is_some()).count();
    assert!(carried > 5, "of 20 partitions the votes of {carried} were carried");
    for (k, before) in before.iter().enumerate() {
        let here = promised(&world, JOINS, k as i32);
        assert!(here.is_none() || here == *before, "partition {k}");
    }
}

fn disturb(sim: &Sim, turn: u64) {
    let node = |n: u64| sim.node(n as usize % 4);
    match turn % 5 {
        0 => sim.partition(node(turn / 5), node(turn / 5 + 1)),
        1 => sim.partition_one_way(node(turn / 5), node(turn / 5 + 2)),
        2 => sim.reset_connections(node(turn / 5), node(turn / 5 + 2)),
        _ => sim.heal_all(),
    }
}

/// Conditional writes and serial reads while a node joins, and not all hear of each step at the same time.
fn run(seed: u64, sum: &mut Sum) -> bool {
    let world = World::new(seed, &[1, 2, 1, 2], Config::default());
    let history = Rc::new(RefCell::new(History::default()));
    let now = seconds(&world.sim, 0);
    tell(&world, &[0, 1, 2], Stage::Before);
    let clients: Vec<_> = [(0, 0), (1, 1), (2, 0)]
        .into_iter()
        .map(|(node, shard)| {
            let history = history.clone();
            begin(&world.sim, node, shard, move |rt, coordinator| client(rt, coordinator, history, now, 60))
        })
        .collect();
    for turn in 0..12 {
        let at = SECOND / 3 * turn;
        world.sim.after(at, move |sim| disturb(sim, seed.wrapping_mul(7).wrapping_add(u64::from(turn))));
    }
    world.sim.after(SECOND * 5, |sim| sim.heal_all());
    let first = (seed % 3) as usize;
    let order = [JOINS, first, (first + 1) % 3, (first + 2) % 3];
    for stage in [Stage::Announced, Stage::Fetching, Stage::Switched, Stage::Over] {
        for node in order {
            tell(&world, &[node], stage);
            world.sim.run_for(SECOND / 20);
        }
        world.sim.run_for(SECOND / 2);
        if matches!(stage, Stage::Fetching) {
            fetch(&world);
        }
    }
    world.sim.heal_all();
    world.sim.run_for(20 * SECOND);
    assert!(clients.iter().all(rt_sim::Begun::is_finished), "seed {seed}: clients end");
    judge(&history.borrow(), seed, sum)
}

#[test]
fn a_cluster_that_a_node_joins_is_linear() {
    let mut sum = Sum::default();
    for seed in 0..30 {
        assert!(run(seed, &mut sum), "seed {seed}");
    }
    assert!(sum.answered > 2_000 && sum.applied > 400, "{sum:?}");
}

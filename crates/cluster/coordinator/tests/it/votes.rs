//! Votes of lightweight transactions when there is more to it than rounds: a truncated table's are forgotten, and a node that
//! becomes a replica has those of the replicas before it.

use replica::{Origin, Read, Truncation, Write};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use coordinator::{Consistency, PullFrom};
use model::linear::RegisterOutput;
use mutation::row::ColumnData;
use rt_sim::{Config, Sim};

use crate::fence::{JOINS, Stage, fetch, tell};
use crate::lightweight::{History, Sum, cas, cas_at, client, judge, read};
use crate::world::{SECOND, World, begin, join, partition, row, seconds, table};

#[test]
fn writes_chosen_before_a_truncation_do_not_come_back_after_it() {
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
    // Writes chosen after it stay, also where a clock is behind.
    world.sim.jump_clock(world.sim.node(1), -5_000_000);
    let again =
        world.on(1, 0, move |rt, coordinator| async move { cas(&rt, &coordinator, (1, now), None, 8).await });
    assert_eq!(again.expect("all is well"), RegisterOutput::Applied(true));
    let seen = world.on(2, 0, move |rt, coordinator| async move { read(&rt, &coordinator, 1, now).await });
    assert_eq!(seen.expect("all is well"), RegisterOutput::Value(Some(8)));
}

/// One node has voted on rounds that are an hour ahead, of another table. A client that learns that a write is committed everywhere
/// finds it everywhere.
#[test]
fn after_a_truncation_no_node_drops_writes_that_others_choose() {
    let world = World::new(4, &[1, 1, 1], Config::default());
    let (t, other) = (table("ks", "t"), table("one", "t"));
    world.sim.jump_clock(world.sim.node(2), 3_600_000_000);
    let now = seconds(&world.sim, 0);
    for k in 0..20 {
        let command = partition(&other, k, now);
        world.on(2, 0, |rt, coordinator| async move {
            let _ = coordinator.read_serial(&command, Consistency::Serial, rt.now() + SECOND).await;
        });
    }
    world.sim.jump_clock(world.sim.node(2), -3_600_000_000);
    truncate(&world, 0, &t).expect("all nodes are there");
    let at = |node| {
        world.on(node, 0, |_, coordinator| async move {
            coordinator.replica().engine().truncated_at(table("ks", "t").id)
        })
    };
    assert_eq!([at(0), at(1)], [at(2); 2], "all nodes remember one time");
    for k in 0..5 {
        let chosen = world.on(0, 0, move |rt, coordinator| async move {
            cas_at(&rt, &coordinator, (k, now), None, 7, Consistency::All).await
        });
        assert_eq!(chosen.expect("all nodes are there"), RegisterOutput::Applied(true));
        for node in 0..3 {
            assert_eq!(
                world.kept(node, partition(&t, k, now)),
                [(0, "7".to_owned())],
                "partition {k} at node {node}"
            );
        }
    }
}

/// A truncation that ends at one node only, whose clock is ahead: its voter does not count as one that has the writes that it refuses.
#[test]
fn a_commit_that_a_voter_has_truncated_is_not_counted() {
    let world = World::new(5, &[1, 1, 1], Config::default());
    let (t, now) = (table("ks", "t"), seconds(&world.sim, 0));
    let id = t.id;
    world.on(2, 0, |rt, coordinator| async move {
        let ahead = rt.wall_micros() + 3_600_000_000;
        coordinator.replica().engine().truncate(id, ahead, rt::Instant::MAX).await.expect("the disk is well");
    });
    let cas = |k, commit| {
        world.on(0, 0, move |rt, coordinator| async move {
            cas_at(&rt, &coordinator, (k, now), None, 7, commit).await
        })
    };
    let kept = |k| [0, 1, 2].map(|node| world.kept(node, partition(&t, k, now)).len());
    for k in 0..5 {
        assert_eq!(cas(k, Consistency::Quorum).expect("two voters go on"), RegisterOutput::Applied(true));
        let told = cas(k + 10, Consistency::All);
        let is_everywhere = kept(k + 10) == [1; 3];
        assert!(
            told.is_err() || is_everywhere,
            "partition {k}: {told:?} although nodes have {:?}",
            kept(k + 10)
        );
        assert_eq!(kept(k)[..2], [1, 1]);
    }
}

/// A truncation takes its time on one node's disk, and commits of rounds that it ends come in meanwhile: rows that that node
/// keeps are shown by a serial read.
#[test]
fn a_commit_that_comes_while_a_voter_truncates_does_not_stay_unseen() {
    let world = World::new(8, &[1, 1, 1], Config::default());
    let slow = Duration::from_millis(20);
    world
        .sim
        .configure_disk(world.sim.node(2), |disk| (disk.latency_min, disk.latency_max) = (slow, 2 * slow));
    let (t, now) = (table("ks", "t"), seconds(&world.sim, 0));
    let truncated = t.clone();
    let truncation = begin(&world.sim, 0, 0, move |rt, coordinator| async move {
        coordinator.truncate(&truncated, rt.now() + 10 * SECOND).await
    });
    let transactions: Vec<_> = (0..400)
        .map(|k| {
            begin(&world.sim, 1, 0, move |rt, coordinator| async move {
                rt.sleep(Duration::from_millis(5) * k as u32).await;
                cas(&rt, &coordinator, (k, now), None, 7).await
            })
        })
        .collect();
    join(&world.sim, truncation).expect("all nodes are there");
    transactions.into_iter().for_each(|one| drop(join(&world.sim, one)));
    world.sim.run_for(3 * SECOND);
    let (now, mut there) = (seconds(&world.sim, 0), 0);
    for k in 0..400 {
        let is_kept = (0..3).any(|node| !world.kept(node, partition(&t, k, now)).is_empty());
        let seen =
            world.on(0, 0, move |rt, coordinator| async move { read(&rt, &coordinator, k, now).await });
        let expected = RegisterOutput::Value(is_kept.then_some(7));
        assert_eq!(seen.expect("all nodes are there"), expected, "partition {k}");
        there += u32::from(is_kept);
    }
    assert!((1..400).contains(&there), "{there} of 400 came behind the truncation");
}

fn truncate(
    world: &World,
    node: usize,
    t: &std::sync::Arc<schema::Table>,
) -> Result<(), coordinator::RequestError> {
    let t = t.clone();
    world.on(node, 0, |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + 2 * SECOND).await })
}

/// Chooses the value 7 in each of 20 partitions of `ks.t`, and gives the time at which that began, seconds.
fn choose_in_each(world: &World) -> u32 {
    let now = seconds(&world.sim, 0);
    for k in 0..20 {
        let chosen = world
            .on(0, 0, move |rt, coordinator| async move { cas(&rt, &coordinator, (k, now), None, 7).await });
        assert_eq!(chosen.expect("all is well"), RegisterOutput::Applied(true));
    }
    now
}

/// The round that a node has promised to follow for a partition of `ks.t`.
fn promised(world: &World, node: usize, k: i32) -> Option<bytes::Bytes> {
    remembered(world, node, k, "in_progress_ballot")
}

/// The state that a node keeps of a partition of `ks.t`, in a column of `system.paxos`.
fn remembered(world: &World, node: usize, k: i32, column: &str) -> Option<bytes::Bytes> {
    let (votes, now) = (table("system", "paxos"), seconds(&world.sim, 0));
    let column = votes.column(column).expect("it is there").id;
    let command = partition(&votes, k, now);
    let page = world
        .on(node, 0, |_, coordinator| async move { coordinator.replica().read(Read::of(&command)).await });
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
    choose_in_each(&world);
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

/// While a node that joins fetches, and when it loses power meanwhile: where it claims a commit it has its writes.
#[test]
fn a_node_that_joins_has_the_writes_of_the_commits_that_it_claims() {
    let world = World::new(6, &[1, 1, 1, 1], Config::default());
    tell(&world, &[0, 1, 2], Stage::Before);
    let now = choose_in_each(&world);
    tell(&world, &[JOINS, 0, 1, 2], Stage::Announced);
    tell(&world, &[JOINS, 0, 1, 2], Stage::Fetching);
    let fetches = begin(&world.sim, JOINS, 0, |_, coordinator| async move {
        let (view, schema) = (coordinator.view(), coordinator.schema());
        let replication = &schema.keyspace("ks").expect("it is there").replication;
        for range in view.place(replication).gained(view.own()) {
            // Node 0 is taken for one whose data has been streamed: it is not asked for rows.
            let have = Some(crate::world::host(0));
            coordinator
                .pull_rest(&table("ks", "t"), range, PullFrom::Quorum, have)
                .await
                .expect("all is well");
        }
    });
    let mut claims = 0;
    let mut check = |when: &str| {
        claims = 0;
        for k in 0..20 {
            if remembered(&world, JOINS, k, "most_recent_commit").is_some() {
                claims += 1;
                let rows = world.kept(JOINS, partition(&table("ks", "t"), k, now));
                assert_eq!(rows.len(), 1, "partition {k} is claimed, {when}");
            }
        }
    };
    while !fetches.is_finished() {
        world.sim.run_for(SECOND / 5_000);
        check("while it fetches");
    }
    world.sim.crash(world.sim.node(JOINS));
    world.sim.start(world.sim.node(JOINS));
    world.sim.run_for(SECOND);
    check("after a power failure");
    assert!(claims > 5, "of 20 partitions {claims} are claimed");
}

/// A node joins after a TRUNCATE: of writes chosen before it, and still open or committed in the votes of others, it has none.
#[test]
fn a_node_that_joins_after_a_truncation_remembers_nothing_of_before_it() {
    let world = World::new(7, &[1, 2, 1, 2], Config::default());
    tell(&world, &[0, 1, 2], Stage::Before);
    let now = choose_in_each(&world);
    truncate(&world, 1, &table("ks", "t")).expect("all nodes are there");
    tell(&world, &[JOINS, 0, 1, 2], Stage::Announced);
    tell(&world, &[JOINS, 0, 1, 2], Stage::Fetching);
    fetch(&world);
    let at = |node, shard| {
        world.on(node, shard, |_, coordinator| async move {
            coordinator.replica().engine().truncated_at(table("ks", "t").id)
        })
    };
    let truncated = at(0, 0);
    assert!(truncated > i64::MIN);
    // Late writes chosen or begun before it do not reach this node either, also after a power failure.
    world.sim.crash(world.sim.node(JOINS));
    world.sim.start(world.sim.node(JOINS));
    world.sim.run_for(SECOND);
    tell(&world, &[JOINS, 0, 1, 2], Stage::Fetching);
    for shard in 0..2 {
        assert_eq!(at(JOINS, shard), truncated, "shard {shard}");
    }
    for k in 0..20 {
        let late = row(&table("ks", "t"), k, 0, "7", truncated - 2);
        let taken = world.on(JOINS, 0, move |_, coordinator| async move {
            let late = Write::one(Origin::Client, late);
            coordinator.replica().apply(late.with_truncation(Truncation::LeavesOut(truncated - 1))).await
        });
        taken.expect("the disk is well");
    }
    for k in 0..20 {
        assert_eq!(world.kept(JOINS, partition(&table("ks", "t"), k, now)), [], "partition {k}");
        assert_eq!(remembered(&world, JOINS, k, "most_recent_commit"), None, "partition {k}");
    }
    tell(&world, &[JOINS, 0, 1, 2], Stage::Switched);
    tell(&world, &[JOINS, 0, 1, 2], Stage::Over);
    let now = seconds(&world.sim, 0);
    for k in 0..20 {
        let node = [JOINS, 0, 1, 2][k as usize % 4];
        let seen =
            world.on(node, 0, move |rt, coordinator| async move { read(&rt, &coordinator, k, now).await });
        assert_eq!(seen.expect("all is well"), RegisterOutput::Value(None), "partition {k}");
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

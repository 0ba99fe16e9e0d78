//! One thing at a time: the rows of each replica after a write, the repairs of a read, the errors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordinator::{
    ClusterView, Consistency, Coordinator, Phase, PullFrom, PullStats, RequestError, WriteKind, WriteOptions,
};
use mutation::{Cell, Clustering, ColumnData, ColumnSelection, PartitionUpdate, Row};
use replica::{Keys, Limits, Partitions, Read, TableOperation};
use rt_sim::{Config, LinkConfig};

use crate::world::{
    SECOND, SEGMENT_BYTES, World, begin, command, deleted, everything, hints, host, join, key, partition,
    row, seconds, table, texts,
};

fn world() -> World {
    World::new(1, &[1, 2, 3], Config::default())
}

fn one(c: i32, text: &str) -> Vec<(i32, String)> {
    vec![(c, text.to_owned())]
}

#[test]
fn a_write_reaches_every_replica_and_is_read_anywhere() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    for (node, consistency) in [(0, Consistency::One), (1, Consistency::Quorum), (2, Consistency::All)] {
        let k = node as i32;
        world.write(node, row(&t, k, 1, "a", 10), consistency).unwrap();
        world.sim.run_for(SECOND);
        for replica in 0..3 {
            assert_eq!(
                world.kept(replica, partition(&t, k, now)),
                one(1, "a"),
                "on {replica} written at {node}"
            );
            for read_at in [Consistency::One, Consistency::Quorum, Consistency::All] {
                let page = world.read(replica, partition(&t, k, now), read_at).unwrap();
                assert_eq!(texts(&page), one(1, "a"));
            }
        }
    }
    assert!(hints().is_empty(), "nobody was away");
}

#[test]
fn a_replica_that_does_not_answer_in_time_is_left_alone_for_a_while() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::All).unwrap();
    // Taken for alive all the same. Of 20 reads every other one would ask it.
    world.sim.partition(world.sim.node(0), world.sim.node(2));
    let read = |_: &i32| world.read(0, partition(&t, 1, now), Consistency::Quorum).is_err();
    assert_eq!((0..20).filter(read).count(), 1, "one read finds out");
    world.sim.run_for(SECOND);
    assert_eq!((0..20).filter(read).count(), 1, "and one finds out whether it is still so");
}

#[test]
fn with_a_node_away_a_quorum_serves_and_the_others_do_not() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.sim.crash(world.sim.node(2));
    world.believe(&[0, 1]);
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::Quorum).unwrap();
    assert_eq!(hints(), [(0, host(2))]);
    assert_eq!(texts(&world.read(1, partition(&t, 1, now), Consistency::Quorum).unwrap()), one(1, "a"));
    let unavailable = RequestError::Unavailable { consistency: Consistency::All, required: 3, alive: 2 };
    assert_eq!(world.write(0, row(&t, 1, 1, "b", 11), Consistency::All), Err(unavailable.clone()));
    assert_eq!(world.read(0, partition(&t, 1, now), Consistency::All).unwrap_err(), unavailable);
    world.believe(&[0]);
    assert_eq!(
        world.write(0, row(&t, 1, 1, "c", 12), Consistency::Quorum),
        Err(RequestError::Unavailable { consistency: Consistency::Quorum, required: 2, alive: 1 })
    );
    world.write(0, row(&t, 1, 2, "d", 13), Consistency::Any).unwrap();
    let truncated = world.on(0, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + SECOND).await }
    });
    let text = "Error during truncate: Cannot achieve consistency level ALL: 1 of 3 nodes are alive";
    assert_eq!(truncated, Err(RequestError::Truncate(text.to_owned())));
}

#[test]
fn a_silent_replica_is_a_timeout_for_all_and_nothing_for_a_quorum() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.sim.isolate(world.sim.node(2));
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::Quorum).unwrap();
    let timeout = RequestError::WriteTimeout {
        consistency: Consistency::All,
        received: 2,
        required: 3,
        kind: WriteKind::Simple,
    };
    assert_eq!(world.write(0, row(&t, 1, 1, "b", 11), Consistency::All), Err(timeout));
    // The connection may be known to be lost by now: then nobody waits for the time to pass.
    let error = world.read(0, partition(&t, 1, now), Consistency::All).unwrap_err();
    let RequestError::ReadTimeout { received, required: 3, data_present: true, .. } = error else {
        panic!("{error:?}");
    };
    assert!(received < 3, "{error:?}");
    world.sim.run_for(5 * SECOND);
    assert_eq!(hints().len(), 2, "both writes are kept for it: {:?}", hints());
}

/// Of this very node, too, which could answer at once: `USING TIMEOUT 0ms`.
#[test]
fn an_operation_without_time_is_a_timeout() {
    let (world, t) = (World::new(25, &[1], Config::default()), table("ks", "t"));
    let (now, level) = (seconds(&world.sim, 0), Consistency::One);
    world.write(0, row(&t, 1, 1, "a", 10), level).unwrap();
    let command = partition(&t, 1, now);
    let (read, written) = world.on(0, 0, {
        let (command, update) = (command.clone(), row(&t, 1, 1, "b", 11));
        move |rt, coordinator| async move {
            let deadline = rt.now();
            let options = WriteOptions { consistency: level, kind: WriteKind::Simple, deadline };
            let written = coordinator.write(vec![update], options).await;
            (coordinator.read(&command, level, deadline).await, written)
        }
    });
    assert!(matches!(read, Err(RequestError::ReadTimeout { received: 0, required: 1, .. })), "{read:?}");
    assert!(matches!(written, Err(RequestError::WriteTimeout { received: 0, .. })), "{written:?}");
    assert_eq!(texts(&world.read(0, command, level).unwrap()), one(1, "a"));
}

/// Of three replicas two are silent and not convicted yet: with speculative retry of the table, the read reaches the
/// one that answers, whichever it is.
#[test]
fn as_many_further_replicas_are_asked_as_it_takes() {
    for lives in 1..=3 {
        let world = World::new(24, &[1; 4], Config::default());
        let mut t = schema::Table::clone(&table("ks", "t"));
        t.options.speculative_retry = schema::SpeculativeRetry::Millis(100.0);
        let (t, now, k) = (Arc::new(t), seconds(&world.sim, 0), key_not_of(&world, 0));
        world.write(0, row(&t, k, 0, "a", 1), Consistency::All).unwrap();
        (1..=3).filter(|node| *node != lives).for_each(|node| world.sim.isolate(world.sim.node(node)));
        let begun = world.sim.now();
        let page = world.read(0, partition(&t, k, now), Consistency::One).unwrap();
        assert_eq!(texts(&page), one(0, "a"));
        assert!(
            world.sim.now() - begun < SECOND / 2,
            "node {lives} alone answers: {:?}",
            world.sim.now() - begun
        );
    }
}

#[test]
fn rows_that_a_read_finds_missing_are_sent_before_it_answers() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.write(0, row(&t, 1, 1, "old", 10), Consistency::All).unwrap();
    world.write(0, row(&t, 1, 2, "gone", 10), Consistency::All).unwrap();
    world.sim.isolate(world.sim.node(2));
    world.write(0, row(&t, 1, 1, "new", 20), Consistency::Quorum).unwrap();
    world.write(0, deleted(&t, 1, 2, 20, now), Consistency::Quorum).unwrap();
    world.write(0, row(&t, 1, 3, "more", 20), Consistency::Quorum).unwrap();
    // Until the connections are lost, with the messages on their way.
    world.sim.run_for(40 * SECOND);
    world.sim.heal_all();
    world.sim.run_for(5 * SECOND);
    let stale = vec![(1, "old".to_owned()), (2, "gone".to_owned())];
    assert_eq!(world.kept(2, partition(&t, 1, now)), stale);
    let page = world.read(2, partition(&t, 1, now), Consistency::Quorum).unwrap();
    let fresh = vec![(1, "new".to_owned()), (3, "more".to_owned())];
    assert_eq!(texts(&page), fresh, "nothing deleted comes back");
    assert_eq!(world.kept(2, partition(&t, 1, now)), fresh, "the stale replica knows now");
    let stats = world.on(2, 0, |_, coordinator| async move { coordinator.replication_stats() });
    assert_eq!((stats.mismatches, stats.repaired), (1, 1));
    // Once it is repaired there is nothing to repair any more.
    world.read(2, partition(&t, 1, now), Consistency::All).unwrap();
    let stats = world.on(2, 0, |_, coordinator| async move { coordinator.replication_stats() });
    assert_eq!((stats.mismatches, stats.repaired), (1, 1));
}

/// A replica that cannot be repaired now (its disk is full, or slow), is no reason to fail a read: another replica takes its place, and
/// the rows that the read has shown are on a quorum.
#[test]
fn a_replica_that_cannot_be_repaired_is_replaced() {
    for is_full in [false, true] {
        let world = world();
        let mut t = schema::Table::clone(&table("ks", "t"));
        t.options.speculative_retry = schema::SpeculativeRetry::Millis(100.0);
        let (t, now) = (Arc::new(t), seconds(&world.sim, 0));
        world.write(0, row(&t, 1, 1, "old", 10), Consistency::All).unwrap();
        // Only the reader knows it: a write of which nobody can say whether it succeeded.
        world.sim.isolate(world.sim.node(0));
        world.write(0, row(&t, 1, 1, "new", 20), Consistency::One).unwrap();
        world.sim.run_for(40 * SECOND);
        world.sim.heal_all();
        world.sim.run_for(5 * SECOND);
        world.sim.configure_disk(world.sim.node(2), |disk| match is_full {
            true => disk.capacity = 0,
            false => (disk.latency_min, disk.latency_max) = (60 * SECOND, 61 * SECOND),
        });
        // Whichever replicas are asked first.
        for _ in 0..4 {
            let begun = world.sim.now();
            let page = world.read(0, partition(&t, 1, now), Consistency::Quorum).unwrap();
            assert_eq!(texts(&page), one(1, "new"));
            assert!(world.sim.now() - begun < SECOND / 2, "{:?}", world.sim.now() - begun);
        }
        assert_eq!(world.kept(1, partition(&t, 1, now)), one(1, "new"), "a quorum knows");
    }
}

/// The repair of a page of a scan, or of one large partition, is more than a commit log takes in one entry, although each write was not.
#[test]
fn a_read_repair_may_be_larger_than_a_mutation() {
    SEGMENT_BYTES.set(Some(64 << 10));
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    let text = "x".repeat(3 << 10);
    world.sim.isolate(world.sim.node(2));
    for row_of in (0..12).map(|c| (1, c)).chain((2..14).map(|k| (k, 0))) {
        world.write(0, row(&t, row_of.0, row_of.1, &text, 1), Consistency::Quorum).unwrap();
    }
    world.sim.heal_all();
    for (reader, read) in [(0, partition(&t, 1, now)), (2, everything(&t, now))] {
        let page = world.read(reader, read.clone(), Consistency::All).unwrap();
        assert!(texts(&page).len() >= 12);
        assert_eq!(world.kept(2, read), texts(&page));
    }
    SEGMENT_BYTES.set(None);
}

#[test]
fn a_read_of_some_columns_repairs_whole_rows() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.sim.isolate(world.sim.node(2));
    world.write(0, row(&t, 1, 1, "both or none", 10), Consistency::Quorum).unwrap();
    // Rows in memory, or in the cache, are read whole in any case.
    for node in 0..2 {
        let id = t.id;
        let flush = |_, coordinator: Coordinator| async move {
            coordinator.replica().table_operation(id, TableOperation::Flush).await
        };
        world.on(node, 0, flush).unwrap();
    }
    world.sim.run_for(40 * SECOND);
    world.sim.heal_all();
    world.sim.run_for(5 * SECOND);
    let mut that_it_is_there = partition(&t, 1, now);
    that_it_is_there.columns = ColumnSelection::Some([].into());
    that_it_is_there.bypass_cache = true;
    let page = world.read(2, that_it_is_there, Consistency::All).unwrap();
    assert_eq!(page.partitions[0].rows.len(), 1);
    assert_eq!(world.kept(2, partition(&t, 1, now)), one(1, "both or none"));
}

#[test]
fn limits_and_pages_are_exact_although_replicas_differ() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    for c in 0..20 {
        world.write(0, row(&t, 1, c, "a", 10), Consistency::All).unwrap();
    }
    world.sim.isolate(world.sim.node(2));
    for c in (0..20).filter(|c| c % 4 != 3) {
        world.write(0, deleted(&t, 1, c, 20, now), Consistency::Quorum).unwrap();
    }
    world.sim.run_for(40 * SECOND);
    world.sim.heal_all();
    world.sim.run_for(5 * SECOND);
    // The stale replica's first rows are all deleted by the others: its page is of no use, and the read continues.
    let mut read = partition(&t, 1, now);
    read.limits = Limits { rows: 3, ..Limits::NONE };
    let mut seen = Vec::new();
    for _ in 0..20 {
        let page = world.read(2, read.clone(), Consistency::Quorum).unwrap();
        let rows = texts(&page);
        assert!(rows.len() <= 3, "{rows:?}");
        seen.extend(rows.into_iter().map(|(c, _)| c));
        match page.more {
            Some(more) => read.resume = Some(more),
            None => break,
        }
    }
    assert_eq!(seen, [3, 7, 11, 15, 19]);
}

#[test]
fn a_range_is_gathered_from_all_owners_and_paged_exactly() {
    let (world, t) = (world(), table("one", "t"));
    let now = seconds(&world.sim, 0);
    for k in 0..100 {
        world.write(k as usize % 3, row(&t, k, k, "x", 10), Consistency::One).unwrap();
    }
    let shares: Vec<usize> = (0..3).map(|node| world.kept(node, everything(&t, now)).len()).collect();
    assert_eq!(shares.iter().sum::<usize>(), 100, "one copy of each: {shares:?}");
    assert!(shares.iter().all(|share| *share > 0), "every node has a share: {shares:?}");
    for page_rows in [7, 1000] {
        let mut read = everything(&t, now);
        read.limits = Limits { rows: page_rows, ..Limits::NONE };
        let (mut seen, mut tokens) = (Vec::new(), Vec::new());
        loop {
            let page = world.read(1, read.clone(), Consistency::One).unwrap();
            assert!(texts(&page).len() as u64 <= page_rows);
            tokens.extend(page.partitions.iter().map(|partition| partition.key.token));
            seen.extend(texts(&page).into_iter().map(|(c, _)| c));
            match page.more {
                Some(more) => read.resume = Some(more),
                None => break,
            }
        }
        assert!(tokens.is_sorted(), "ring order");
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
    let keys: Keys = [5, 3, 99, 1000].into_iter().map(key).collect();
    let page = world.read(0, command(&t, Partitions::Keys(keys), now), Consistency::One).unwrap();
    assert_eq!(texts(&page).into_iter().map(|(c, _)| c).collect::<Vec<_>>(), [5, 3, 99]);
}

#[test]
fn counters_count_once_with_any_leader() {
    let (world, t) = (world(), table("ks", "counts"));
    let now = seconds(&world.sim, 0);
    let column = t.column("n").expect("it has n").id;
    for turn in 0..9 {
        let t = t.clone();
        world
            .on(turn % 3, 0, move |rt, coordinator| async move {
                let mut row = Row::new(Clustering::empty());
                let delta = Bytes::copy_from_slice(&(turn as i64).to_be_bytes());
                row.set(column, ColumnData::Simple(Cell::live(rt.wall_micros(), delta)));
                let mut update = PartitionUpdate::new(t, key(1));
                update.add_row(row);
                let options = WriteOptions {
                    consistency: Consistency::Quorum,
                    kind: WriteKind::Counter,
                    deadline: rt.now() + SECOND,
                };
                coordinator.increment(vec![update], options).await
            })
            .unwrap();
    }
    world.sim.run_for(SECOND);
    for node in 0..3 {
        let page = world.read(node, partition(&t, 1, now), Consistency::One).unwrap();
        let cell = page.partitions[0].rows[0].cell(column).expect("it was counted").clone();
        assert_eq!(mutation::counter::total(&cell.value), 36, "at node {node}");
    }
}

/// Node 0, which is no replica of the partition, coordinates the update. Nodes but one have observed a newer topology version; `leader` is
/// the one that has not. Once the counter's leader has counted, and the others have refused its state, node 0 learns of the newer
/// version, in which that leader is down. Whether `leader` was the one that counted, and the outcome of the write.
fn count_while_the_leader_is_convicted(
    leader: usize,
) -> (bool, Result<(), coordinator::RequestError>, World) {
    let world = World::new(3, &[1, 1, 1, 1], Config::default());
    let view_of = |own: usize, alive: &[usize], number: u64| {
        let view = ClusterView::new(host(own), world.nodes(alive, |_| Phase::Normal));
        view.expect("tokens are apart").numbered(number, number - 1)
    };
    let tell = |node: usize, alive: &[usize], number: u64| {
        let view = view_of(node, alive, number);
        world.on(node, 0, |_, coordinator| async move { coordinator.publish_view(view).await });
    };
    let all = [0, 1, 2, 3];
    tell(0, &all, 1);
    tell(leader, &all, 1);
    (1..4).filter(|node| *node != leader).for_each(|node| tell(node, &all, 5));
    let k = key_not_of(&world, 0);
    let t = table("ks", "counts");
    let column = t.column("n").expect("it has n").id;
    let counted = begin(&world.sim, 0, 0, move |rt, coordinator| async move {
        let mut row = Row::new(Clustering::empty());
        row.set(
            column,
            ColumnData::Simple(Cell::live(rt.wall_micros(), Bytes::copy_from_slice(&1i64.to_be_bytes()))),
        );
        let mut update = PartitionUpdate::new(t, key(k));
        update.add_row(row);
        let deadline = rt.now() + 2 * SECOND;
        let options = WriteOptions { consistency: Consistency::Quorum, kind: WriteKind::Counter, deadline };
        coordinator.increment(vec![update], options).await
    });
    world.sim.run_for(SECOND / 2);
    assert!(!counted.is_finished(), "it waits for the newer version");
    let now = seconds(&world.sim, 0);
    let command = partition(&table("ks", "counts"), k, now);
    let here = world
        .on(leader, 0, |_, coordinator| async move { coordinator.replica().read(Read::of(&command)).await });
    let led = !here.expect("the disk is well").partitions.is_empty();
    let others: Vec<usize> = all.into_iter().filter(|node| *node != leader).collect();
    tell(leader, &all, 5);
    tell(0, &others, 5);
    let result = join(&world.sim, counted);
    world.sim.run_for(3 * SECOND);
    if result.is_ok() {
        for node in others.into_iter().filter(|node| *node != 0) {
            let page = world.read(node, partition(&table("ks", "counts"), k, now), Consistency::One).unwrap();
            let cell = page.partitions[0].rows[0].cell(column).expect("it was counted").clone();
            assert_eq!(mutation::counter::total(&cell.value), 1, "at node {node}");
        }
    }
    (led, result, world)
}

/// A key of which a node is no replica.
fn key_not_of(world: &World, node: usize) -> i32 {
    world.on(node, 0, |_, coordinator| async move {
        let (view, schema) = (coordinator.view(), coordinator.schema());
        let replication = &schema.keyspace("ks").expect("it is there").replication;
        let placement = view.place(replication);
        (0..100)
            .find(|k| !placement.replicas(key(*k).token).contains(&view.own()))
            .expect("it has not all of four nodes' ranges")
    })
}

#[test]
fn a_counter_whose_leader_is_convicted_meanwhile_is_counted_once() {
    let mut led = 0;
    for leader in 1..4 {
        let (is_leader, result, _world) = count_while_the_leader_is_convicted(leader);
        result.expect("two of three replicas have it, the one that is down among them");
        led += usize::from(is_leader);
    }
    assert!(led > 0, "one of them was the leader");
}

#[test]
fn a_truncation_reaches_every_node() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::All).unwrap();
    let truncated = world.on(1, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + 10 * SECOND).await }
    });
    truncated.unwrap();
    for node in 0..3 {
        assert_eq!(world.kept(node, partition(&t, 1, now)), []);
    }
}

/// Two nodes have truncated a table, the third is about to: rows that a read finds there are not sent to the others, with any coordinator, a
/// node that has truncated itself included. After a minute it is known to have missed the TRUNCATE, and is a replica like others.
#[test]
fn a_read_between_two_truncations_repairs_nothing() {
    let (world, t) = (world(), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    for k in [1, 2] {
        world.write(0, row(&t, k, 1, "a", 10), Consistency::All).unwrap();
    }
    let truncate = |node: usize| {
        for shard in 0..[1, 2, 3][node] {
            let id = t.id;
            world.on(node, shard, |rt, coordinator| async move {
                let at_micros = rt.wall_micros();
                coordinator
                    .replica()
                    .engine()
                    .truncate(id, at_micros, rt::Instant::MAX)
                    .await
                    .expect("the disk is well");
            });
        }
    };
    truncate(1);
    truncate(2);
    let kept = |k: i32| [0, 1, 2].map(|node| world.kept(node, partition(&t, k, now)).len());
    for coordinator in [0, 1, 2] {
        world.read(coordinator, partition(&t, 1, now), Consistency::All).unwrap();
        world.read(coordinator, everything(&t, now), Consistency::All).unwrap();
        assert_eq!((kept(1), kept(2)), ([1, 0, 0], [1, 0, 0]), "read by node {coordinator}");
    }
    world.sim.run_for(60 * SECOND);
    world.read(1, partition(&t, 1, now), Consistency::All).unwrap();
    assert_eq!((kept(1), kept(2)), ([1; 3], [1, 0, 0]), "after a minute");
}

/// Rows `k, 0` of all keys as a read at a level shows them.
fn all_keys(
    world: &World,
    node: usize,
    t: &std::sync::Arc<schema::Table>,
    consistency: Consistency,
) -> Vec<i32> {
    let now = seconds(&world.sim, 0);
    let page = world.read(node, everything(t, now), consistency).unwrap();
    let mut keys: Vec<i32> = texts(&page).into_iter().map(|(c, _)| c).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_node_that_joins_has_the_rows_that_a_quorum_had() {
    let world = World::new(1, &[1, 2, 1, 3], Config::default());
    let now = seconds(&world.sim, 0);
    let joining = |node| if node == 3 { Phase::Joining } else { Phase::Normal };
    world.believe_phases(&[0, 1, 2, 3], joining);
    let (three, one) = (table("ks", "t"), table("one", "t"));
    for k in 0..60 {
        world.write(0, row(&one, k, k, "x", 10), Consistency::All).unwrap();
        world.write(0, row(&three, k, k, "x", 10), Consistency::All).unwrap();
    }
    // A replica that is stale in rows that the new node might take from it.
    world.sim.isolate(world.sim.node(2));
    for k in 0..30 {
        world.write(0, deleted(&three, k, k, 20, now), Consistency::Quorum).unwrap();
    }
    world.sim.run_for(40 * SECOND);
    world.sim.heal_all();
    world.sim.run_for(5 * SECOND);
    for t in [&one, &three] {
        world.pull(3, t).unwrap();
        assert_eq!(world.pull(3, t).unwrap().partitions, 0, "a second time there is nothing left to fetch");
    }
    world.believe(&[0, 1, 2, 3]);
    assert_eq!(all_keys(&world, 1, &one, Consistency::One), (0..60).collect::<Vec<_>>());
    assert!(!world.kept(3, everything(&one, now)).is_empty(), "it has a share");
    assert_eq!(all_keys(&world, 1, &three, Consistency::Quorum), (30..60).collect::<Vec<_>>());
    // Its rows are no staler than a quorum's: alone it shows no deleted row.
    assert!(world.kept(3, everything(&three, now)).iter().all(|(c, _)| *c >= 30));
}

/// A table is truncated while a node that joins fetches it, the truncation beginning so much later; these links are slow.
fn truncate_while_fetching(after: Duration, slow: &[(usize, usize)]) {
    let world = World::new(1, &[1, 2, 1, 3], Config::default());
    let (t, now) = (table("ks", "t"), seconds(&world.sim, 0));
    world.believe_gone(3);
    for k in 0..20 {
        world.write(0, row(&t, k, k, "x", 10), Consistency::All).unwrap();
    }
    world.believe_phases(&[0, 1, 2, 3], |node| if node == 3 { Phase::Joining } else { Phase::Normal });
    let latency = Duration::from_millis(200);
    let link = LinkConfig { latency_min: latency, latency_max: latency, ..LinkConfig::default() };
    for (from, to) in slow.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]) {
        world.sim.set_link(world.sim.node(from), world.sim.node(to), Some(link.clone()));
    }
    let truncated = begin(&world.sim, 0, 0, {
        let t = t.clone();
        move |rt, coordinator| async move {
            rt.sleep(after).await;
            coordinator.truncate(&t, rt.now() + 10 * SECOND).await
        }
    });
    world.pull(3, &t).unwrap();
    join(&world.sim, truncated).unwrap();
    world.sim.run_for(SECOND);
    for node in 0..4 {
        let kept = world.kept(node, everything(&t, now));
        assert!(kept.is_empty(), "on node {node}, truncated after {after:?}, {slow:?} slow: {kept:?}");
    }
}

#[test]
fn truncated_rows_do_not_come_back_with_fetched_ones() {
    for step in 0..40 {
        // Rows read before are on their way for long.
        truncate_while_fetching(Duration::from_millis(step * 360), &[(1, 3), (2, 3)]);
        // A source hears of the truncation late.
        truncate_while_fetching(Duration::from_millis(step), &[(0, 1)]);
    }
}

#[test]
fn writes_meant_for_a_node_that_joins_reach_it_before_they_are_acknowledged() {
    let world = World::new(1, &[1, 1, 1, 1], Config::default());
    let now = seconds(&world.sim, 0);
    let t = table("one", "t");
    world.believe_phases(&[0, 1, 2, 3], |node| if node == 3 { Phase::Joining } else { Phase::Normal });
    for k in 0..40 {
        world.write(0, row(&t, k, k, "x", 10), Consistency::One).unwrap();
    }
    world.believe(&[0, 1, 2, 3]);
    assert!(!world.kept(3, everything(&t, now)).is_empty());
    assert_eq!(
        all_keys(&world, 0, &t, Consistency::One),
        (0..40).collect::<Vec<_>>(),
        "without fetching anything"
    );
}

/// Each step of a node's leaving, with writes at every one: pending replicas have the rows that a quorum had, and reads find them from the moment on
/// that they switch.
fn leaves(phase: Phase, alive: &[usize]) {
    let world = World::new(1, &[1, 2, 1, 1], Config::default());
    let now = seconds(&world.sim, 0);
    let (three, one) = (table("ks", "t"), table("one", "t"));
    let mut keys: Vec<i32> = Vec::new();
    let mut write = |world: &World, from: i32| {
        for k in from..from + 20 {
            world.write(0, row(&three, k, k, "x", 10), Consistency::Quorum).unwrap();
            if phase == Phase::Leaving {
                world.write(0, row(&one, k, k, "x", 10), Consistency::One).unwrap();
            }
            keys.push(k);
        }
        keys.clone()
    };
    write(&world, 0);
    if !alive.contains(&3) {
        world.sim.crash(world.sim.node(3));
    }
    let goes = |node| if node == 3 { phase } else { Phase::Normal };
    world.believe_phases(alive, goes);
    let written = write(&world, 20);
    let mut lost = 0;
    for node in 0..3 {
        world.pull(node, &three).unwrap();
        lost += world.pull(node, &one).unwrap().lost;
    }
    assert_eq!(
        lost > 0,
        phase != Phase::Leaving,
        "ranges that only the dead node stored are reported: {lost} ranges"
    );
    assert_eq!(all_keys(&world, 1, &three, Consistency::Quorum), written);
    world.believe_switched(alive, goes);
    let written = write(&world, 40);
    for node in 0..3 {
        assert_eq!(all_keys(&world, node, &three, Consistency::Quorum), written);
    }
    // It is gone: each of the three has everything.
    world.believe_gone(3);
    let written = write(&world, 60);
    for node in 0..3 {
        assert_eq!(all_keys(&world, node, &three, Consistency::Quorum), written);
        if phase == Phase::Leaving {
            assert_eq!(all_keys(&world, node, &one, Consistency::One), written);
        }
    }
    assert!(!world.kept(0, everything(&three, now)).is_empty());
}

#[test]
fn pending_replicas_of_a_leaving_node_have_the_rows_that_a_quorum_had() {
    leaves(Phase::Leaving, &[0, 1, 2, 3]);
}

#[test]
fn pending_replicas_of_a_dead_node_fetch_from_the_others() {
    leaves(Phase::Removing, &[0, 1, 2]);
}

#[test]
fn a_node_is_rebuilt_from_the_others() {
    let world = World::new(1, &[1, 1, 1], Config::default());
    let now = seconds(&world.sim, 0);
    let t = table("ks", "t");
    world.believe(&[0, 1]);
    for k in 0..20 {
        world.write(0, row(&t, k, k, "x", 10), Consistency::Quorum).unwrap();
    }
    world.believe(&[0, 1, 2]);
    assert!(world.kept(2, everything(&t, now)).is_empty());
    let nowhere = world.rebuild(2, &t, PullFrom::Datacenter("dc2")).unwrap();
    assert_eq!(nowhere, PullStats::default(), "there are no replicas in such a datacenter");
    assert_eq!(world.rebuild(2, &t, PullFrom::Datacenter("dc1")).unwrap().partitions, 20);
    assert_eq!(world.rebuild(2, &t, PullFrom::Others).unwrap().partitions, 0, "nothing is lacking any more");
    assert_eq!(world.kept(2, everything(&t, now)).len(), 20);
}

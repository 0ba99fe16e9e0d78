//! Materialized views follow their base, also when nodes are down meanwhile or crash.

use std::sync::Arc;

use bytes::Bytes;
use coordinator::{
    BuildProgress, CheckState, CheckedTokens, Consistency, DerivedCheck, DerivedCheckError,
    DerivedCheckStatus, Difference, FoundKind, RequestError, ViewBuildStatus, WriteKind, WriteOptions,
};
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row,
};
use replica::{Form, Keys, Origin, Partitions, Read, ReadCommand, Write};
use rt_sim::{Begun, Config, LinkConfig};
use schema::{ColumnId, HIDDEN, Table};
use topology::TokenRange;
use views::View;

use crate::world::{
    SECOND, World, begin, command, coordinator, deleted, everything, join, key, row, seconds, table, write,
};

const SHARDS: [u16; 3] = [1, 2, 3];

/// The partitions of a table as one replica alone has them.
fn kept(world: &World, node: usize, table: &Arc<Table>) -> Vec<PartitionUpdate> {
    let command = ReadCommand { form: Form::Full, ..everything(table, seconds(&world.sim, node)) };
    let table = table.clone();
    world.on(node, 0, |_, coordinator| async move {
        let page = coordinator.replica().read(Read::of(&command)).await.expect("the disk is well");
        assert!(page.more.is_none(), "all of it is one page");
        let partition = |found: &replica::PartitionResult| {
            let (key, rows) = (found.key.clone(), found.rows.clone());
            let mut update = PartitionUpdate::with_rows(table.clone(), key, rows);
            update.add_deletion(found.deletion);
            update
        };
        page.partitions.iter().map(partition).collect()
    })
}

/// The rows of a view that a reader sees, as their keys.
fn seen(view: &View, partitions: &[PartitionUpdate], now: u32) -> Vec<(DecoratedKey, Vec<u8>)> {
    let mut rows = Vec::new();
    for partition in partitions {
        let present = partition.rows().iter().filter(|row| view.is_present(&partition.key, row, now));
        rows.extend(present.map(|row| (partition.key.clone(), row.clustering.position().to_vec())));
    }
    rows.sort();
    rows
}

/// The rows that the views of a keyspace show on their replicas, and those that a look at the base on its replicas gives.
fn compare(world: &World, keyspace: &str) {
    let base = table(keyspace, "viewed");
    let nodes = 0..SHARDS.len();
    for name in ["by_v", "by_c"] {
        let view = View::new(&base, table(keyspace, name)).expect("a view of the base");
        let mut all = (Vec::new(), Vec::new());
        for node in nodes.clone() {
            let now = seconds(&world.sim, node);
            let bases = kept(world, node, &base);
            let recomputed: Vec<PartitionUpdate> =
                bases.iter().flat_map(|partition| view.all(partition, now)).collect();
            let (recomputed, shown) =
                (seen(&view, &recomputed, now), seen(&view, &kept(world, node, view.table()), now));
            if keyspace == "ks" {
                assert!(recomputed.len() > 5, "there are rows: {recomputed:?}");
                assert_eq!(shown, recomputed, "{name} on node {node}");
            }
            all.0.extend(recomputed);
            all.1.extend(shown);
        }
        all.0.sort();
        all.1.sort();
        assert_eq!(all.1, all.0, "{name}");
    }
}

/// Begins a write of a row of `viewed`, or of its deletion.
fn change(
    world: &World,
    node: usize,
    keyspace: &str,
    at: i64,
    consistency: Consistency,
) -> Begun<Result<(), RequestError>> {
    let base = table(keyspace, "viewed");
    let mut rng = world.sim.rng(at as u64);
    let mut random = |below: u64| rng.below(below) as i32;
    let (k, c, text) = (random(5), random(3), ["a", "b", "c"][random(3) as usize]);
    let update = match at % 7 {
        0 => deleted(&base, k, c, at, seconds(&world.sim, node)),
        _ => row(&base, k, c, text, at),
    };
    begin(&world.sim, node, 0, |rt, coordinator| async move {
        let options = WriteOptions { consistency, kind: WriteKind::Simple, deadline: rt.now() + 2 * SECOND };
        coordinator.write(vec![update], options).await
    })
}

#[test]
fn views_follow_their_base_while_a_node_is_down() {
    let world = World::with_batches(1, &SHARDS, Config::default(), true);
    let mut written = Vec::new();
    for at in 1..120 {
        if at == 40 {
            world.sim.isolate(world.sim.node(2));
            world.believe(&[0, 1]);
        }
        if at == 80 {
            world.sim.heal_all();
            world.believe(&[0, 1, 2]);
        }
        written.push(change(&world, (at % 2) as usize, "ks", at, Consistency::Quorum));
        if at % 10 == 0 {
            world.sim.run_for(SECOND / 50);
        }
    }
    for written in written {
        assert_eq!(join(&world.sim, written), Ok(()));
    }
    world.sim.run_for(120 * SECOND);
    compare(&world, "ks");
}

/// How many reads of ranges, deliveries of updates of views and reads of keys were counted, over the shards of all nodes.
fn counted() -> (u64, u64, u64) {
    let mut sums = (0, 0, 0);
    for (node, shards) in SHARDS.iter().enumerate() {
        for shard in 0..*shards {
            let coordinator = coordinator(node, shard);
            sums.0 += coordinator.range_figures().latencies.count();
            sums.1 += coordinator.view_write_figures().latencies.count();
            sums.2 += coordinator.request_figures().0.latencies.count();
        }
    }
    sums
}

#[test]
fn ranges_and_updates_of_views_have_latencies() {
    let world = World::with_batches(1, &SHARDS, Config::default(), true);
    let base = table("ks", "viewed");
    let before = counted();
    assert_eq!((before.0, before.1), (0, 0));
    for at in 1..=20 {
        // Each adds a row to the base, so that updates of both views follow on each of its replicas.
        world.write(0, row(&base, at, 0, "a", at.into()), Consistency::All).unwrap();
    }
    world.sim.run_for(10 * SECOND);
    let (ranges, views, before) = counted();
    assert_eq!(ranges, 0);
    assert!(views > 20, "{views} deliveries of updates of views");
    let now = seconds(&world.sim, 0);
    world.read(0, everything(&base, now), Consistency::Quorum).unwrap();
    let one = command(&base, Partitions::Keys(Keys::from_elem(key(1), 1)), now);
    world.read(0, one, Consistency::Quorum).unwrap();
    let (ranges, _, reads) = counted();
    assert_eq!((ranges, reads - before), (1, 1));
}

/// Rows of one replica: no other node derives the updates that a killed node had not delivered.
#[test]
fn a_killed_base_replica_delivers_after_its_restart() {
    for seed in 0..8 {
        let world = World::with_batches(seed, &SHARDS, Config::default(), true);
        let written: Vec<_> =
            (1..60).map(|at| change(&world, (at % 3) as usize, "one", at, Consistency::One)).collect();
        let victim = world.sim.node(seed as usize % 3);
        let mut steps = 0;
        while steps < 20 + 40 * seed {
            world.sim.run_for(SECOND / 20_000);
            steps += 1;
        }
        drop(written);
        world.sim.kill(victim);
        world.sim.run_for(SECOND);
        world.sim.restart(victim);
        world.sim.run_for(120 * SECOND);
        compare(&world, "one");
    }
}

/// How many of 40 rows a view does not show right after they were acknowledged, read at QUORUM through another node.
fn late(seed: u64, base: &str, view: &str) -> usize {
    // The replicas of the base are not those of the view, and of two messages of one moment either may come first.
    let world = World::with_batches(seed, &[1; 6], Config::default(), true);
    let link = LinkConfig { latency_max: SECOND / 5, ..LinkConfig::default() };
    for (from, to) in (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(|(from, to)| from != to)
    {
        world.sim.set_link(world.sim.node(from), world.sim.node(to), Some(link.clone()));
    }
    let (base, view) = (table("ks", base), table("ks", view));
    let is_late = |at: &i32| {
        let text = format!("row {at}");
        let update = row(&base, *at, 1, &text, i64::from(*at));
        let keys = Partitions::Keys(Keys::from_elem(DecoratedKey::new(Bytes::from(text)), 1));
        let read = command(&view, keys, seconds(&world.sim, 0));
        let page = world.on((at % 6) as usize, 0, |rt, coordinator| async move {
            assert_eq!(write(&rt, &coordinator, update, Consistency::Quorum).await, Ok(()));
            coordinator.read(&read, Consistency::Quorum, rt.now() + 2 * SECOND).await
        });
        page.expect("all are there").partitions.iter().all(|partition| partition.rows.is_empty())
    };
    (0..40).filter(is_late).count()
}

#[test]
fn a_synchronous_view_shows_a_write_when_it_is_acknowledged() {
    // About one of four hundred reads finds a view late that nobody waits for.
    let first = (1..100).find(|seed| late(*seed, "viewed", "by_v") > 0);
    let first = first.expect("a view that nobody waits for may be late");
    for seed in [first, first + 1, first + 2] {
        assert_eq!(late(seed, "awaited", "awaited_by_v"), 0, "seed {seed}");
    }
}

/// One replica of everything: where that of the view is cut off, a write of the base on another node has to wait for it.
#[test]
fn a_write_whose_synchronous_view_is_cut_off_is_not_acknowledged_and_reaches_the_view_later() {
    let world = World::with_batches(6, &SHARDS, Config::default(), true);
    let (base, view) = (table("one", "awaited"), table("one", "awaited_by_v"));
    world.sim.isolate(world.sim.node(2));
    let mut refused = 0;
    for k in 0..24 {
        let (ended, text) = (world.sim.now(), format!("row {k}"));
        let written = world.write((k % 2) as usize, row(&base, k, 1, &text, 1), Consistency::One);
        if let Err(error) = &written {
            assert!(matches!(error, RequestError::WriteTimeout { .. }), "{error}");
            refused += 1;
        }
        assert!(world.sim.now() - ended < 13 * SECOND);
    }
    assert!((4..24).contains(&refused), "{refused} of 24 had a part on the node that is cut off");
    world.sim.heal_all();
    world.sim.run_for(120 * SECOND);
    assert_eq!(count(&world, &view), count(&world, &base));
    assert!(count(&world, &base) > 24 - refused, "what timed out was stored nonetheless");
}

/// Where two of three replicas are down the view follows on the third at once, and on the others when they are back.
#[test]
fn a_live_replica_of_a_view_has_updates_before_there_is_a_quorum() {
    let world = World::with_batches(8, &[1, 1, 1], Config::default(), true);
    world.sim.isolate(world.sim.node(1));
    world.sim.isolate(world.sim.node(2));
    world.believe(&[0]);
    let (base, view) = (table("ks", "viewed"), table("ks", "by_v"));
    for k in 0..20 {
        let written = world.write(0, row(&base, k, 1, &format!("row {k}"), 1), Consistency::One);
        assert_eq!(written, Ok(()));
    }
    // The older value must not come back by the hint or the repetition of its update.
    assert_eq!(world.write(0, row(&base, 0, 1, "moved", 2), Consistency::One), Ok(()));
    world.sim.run_for(SECOND);
    let of_view = View::new(&base, view.clone()).expect("a view of the base");
    let now = seconds(&world.sim, 0);
    let shown = seen(&of_view, &kept(&world, 0, &view), now);
    assert_eq!(shown.len(), 20, "the replica that is there shows them");
    let hints = crate::world::kept_hints(&world, 0);
    assert!(hints.values().all(|count| *count > 20) && hints.len() == 2, "{hints:?}");
    // Repetitions store no more hints.
    world.sim.run_for(30 * SECOND);
    assert_eq!(crate::world::kept_hints(&world, 0), hints);
    world.sim.heal_all();
    world.believe(&[0, 1, 2]);
    world.sim.run_for(120 * SECOND);
    compare(&world, "ks");
    assert_eq!(seen(&of_view, &kept(&world, 0, &view), now), shown);
}

#[test]
fn base_writes_are_refused_while_too_many_updates_of_views_wait() {
    const KEPT_MAX: usize = 10;
    let world = World::with_batches(9, &[1, 1, 1], Config::default(), true);
    world.sim.isolate(world.sim.node(1));
    world.sim.isolate(world.sim.node(2));
    world.believe(&[0]);
    coordinator(0, 0).set_kept_batch_bytes_max(KEPT_MAX * coordinator::KEPT_BATCH_BYTES);
    let base = table("ks", "viewed");
    let mut refused = 0;
    for k in 0..40 {
        match world.write(0, row(&base, k, 1, &format!("row {k}"), 1), Consistency::One) {
            Ok(()) => assert_eq!(refused, 0, "none is taken behind one that is refused"),
            Err(RequestError::WriteFailure { failures, .. }) => {
                assert!(failures[0].message.contains("replicas that are down"), "{}", failures[0].message);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 40 - KEPT_MAX);
    let stats = coordinator(0, 0).batchlog_stats();
    assert_eq!((stats.kept, stats.refused), (KEPT_MAX as u64, refused as u64));
    assert_eq!(stats.kept_bytes, (KEPT_MAX * coordinator::KEPT_BATCH_BYTES) as u64);
    // Tables without views are written all the same.
    assert_eq!(world.write(0, row(&table("ks", "t"), 1, 1, "a", 1), Consistency::One), Ok(()));
    world.sim.heal_all();
    world.believe(&[0, 1, 2]);
    world.sim.run_for(60 * SECOND);
    assert_eq!(coordinator(0, 0).batchlog_stats().kept, 0);
    let written = world.write(0, row(&base, 50, 1, "row 50", 1), Consistency::Quorum);
    assert_eq!(written, Ok(()), "they are delivered, and there is room");
    world.sim.run_for(120 * SECOND);
    // Hints have brought the refused writes to the other replicas, as those of any write that failed.
    let view = View::new(&base, table("ks", "by_v")).expect("a view of the base");
    let now = seconds(&world.sim, 1);
    let bases = kept(&world, 1, &base);
    let recomputed: Vec<PartitionUpdate> =
        bases.iter().flat_map(|partition| view.all(partition, now)).collect();
    let recomputed = seen(&view, &recomputed, now);
    assert_eq!(recomputed.len(), 41);
    for node in 0..3 {
        assert_eq!(seen(&view, &kept(&world, node, view.table()), now), recomputed, "node {node}");
    }
}

/// How many rows of a table a client reads.
fn count(world: &World, table: &Arc<Table>) -> usize {
    let page = world.read(0, everything(table, seconds(&world.sim, 0)), Consistency::One);
    page.expect("all are there").partitions.iter().map(|partition| partition.rows.len()).sum()
}

#[test]
fn a_view_whose_deletions_have_no_grace_follows_its_base() {
    let world = World::with_batches(7, &SHARDS, Config::default(), true);
    let (base, view) = (table("one", "graceless"), table("one", "graceless_by_v"));
    for k in 0..24 {
        let written =
            world.write((k % 2) as usize, row(&base, k, 1, &format!("row {k}"), 1), Consistency::One);
        assert_eq!(written, Ok(()));
    }
    world.sim.run_for(SECOND);
    assert_eq!((count(&world, &base), count(&world, &view)), (24, 24));
}

/// The statuses of the build of a view, as a node hears them.
fn statuses(world: &World, node: usize, view: &Arc<Table>) -> Vec<ViewBuildStatus> {
    let view = view.id;
    world.on(node, 0, move |rt, coordinator| async move {
        let all = coordinator.view_build_statuses(view, rt.now() + 2 * SECOND).await;
        all.into_iter().map(|(_, status)| status).collect()
    })
}

#[test]
fn every_node_says_how_far_it_is_with_a_view() {
    use ViewBuildStatus::{Success, Unknown};
    let world = World::with_batches(1, &SHARDS, Config::default(), true);
    let view = table("ks", "by_v");
    assert_eq!(statuses(&world, 1, &view), [Unknown; 3], "nobody builds yet");
    for node in [0, 1] {
        world.on(node, 0, |_, coordinator| async move { coordinator.build_views().detach() });
    }
    world.sim.run_for(10 * SECOND);
    assert_eq!(statuses(&world, 2, &view), [Success, Success, Unknown]);
    // A node that does not answer is unknown, and so is one that is down.
    world.sim.isolate(world.sim.node(1));
    assert_eq!(statuses(&world, 0, &view), [Success, Unknown, Unknown]);
    world.believe(&[0, 2]);
    assert_eq!(statuses(&world, 0, &view), [Success, Unknown, Unknown]);
}

/// The first view cannot be built, for a replica of it is down; the other one is built nonetheless, and the first one later.
#[test]
fn a_view_that_cannot_be_built_does_not_keep_others_unbuilt() {
    let world = World::with_batches(3, &[1, 1, 1], Config::default(), true);
    let (base, by_c, by_v) = (table("one", "viewed"), table("one", "by_c"), table("one", "by_v"));
    assert!(by_c.name < by_v.name, "they are built in the order of their names");
    let placement = coordinator(0, 0).view().place(&schema::Replication::Simple { factor: 1 });
    let is_on = |node: usize, key: &[u8]| {
        let token = DecoratedKey::new(Bytes::copy_from_slice(key)).token;
        let view = coordinator(0, 0).view();
        placement.replicas(token).iter().all(|replica| view.node(*replica).host == crate::world::host(node))
    };
    let k = (0..200_i32).find(|k| is_on(0, &k.to_be_bytes())).expect("one of three");
    let c = (0..200_i32).find(|c| is_on(2, &c.to_be_bytes())).expect("one of three");
    let text = (0..200).map(|nth| format!("v{nth}")).find(|text| is_on(0, text.as_bytes()));
    let text = text.expect("one of three");
    assert_eq!(world.write(0, row(&base, k, c, &text, 10), Consistency::One), Ok(()));
    world.sim.isolate(world.sim.node(2));
    world.believe(&[0, 1]);
    world.on(0, 0, |_, coordinator| async move { coordinator.build_views().detach() });
    world.sim.run_for(20 * SECOND);
    let nothing = Some(BuildProgress { permille: 0, seconds_left: None });
    assert_eq!(statuses(&world, 0, &by_c)[0], ViewBuildStatus::Started(nothing), "its replica is down");
    assert_eq!(statuses(&world, 1, &by_c)[0], ViewBuildStatus::Started(nothing), "another node reports it");
    assert_eq!(statuses(&world, 0, &by_v)[0], ViewBuildStatus::Success);
    world.sim.heal_all();
    world.believe(&[0, 1, 2]);
    world.sim.run_for(60 * SECOND);
    assert_eq!(statuses(&world, 0, &by_c)[0], ViewBuildStatus::Success);
}

/// Runs a check of a view on a node until it ends.
fn verified(
    world: &World,
    node: usize,
    view: &Arc<Table>,
    repair: bool,
    tokens: CheckedTokens,
) -> DerivedCheckStatus {
    let wanted = DerivedCheck {
        derived: view.id,
        tokens,
        repair,
        since: 0,
        rows_per_second: 1_000_000,
        pause: SECOND / 2,
        listed_max: 100,
    };
    world.checked(node, wanted)
}

/// The row of a view at which `key` and `clustering` point, with a deletion, or with a cell of its hidden column.
fn put(
    view: &Arc<Table>,
    (key, clustering): (&[u8], &[&[u8]]),
    change: impl FnOnce(&mut Row, ColumnId),
) -> PartitionUpdate {
    let components: Vec<Option<&[u8]>> = clustering.iter().map(|component| Some(*component)).collect();
    let mut row = Row::new(Clustering::new(view, &components));
    change(&mut row, view.column(HIDDEN).expect("both views have it").id);
    let mut update = PartitionUpdate::new(view.clone(), DecoratedKey::new(Bytes::copy_from_slice(key)));
    update.add_row(row);
    update
}

fn counts(status: &DerivedCheckStatus) -> (u64, u64, u64, u64) {
    (status.missing, status.wrong, status.ghosts, status.repaired)
}

#[test]
fn a_check_finds_differences_from_the_base_and_repairs_them() {
    let world = World::with_batches(3, &SHARDS, Config::default(), true);
    let base = table("ks", "viewed");
    let (by_v, by_c) = (table("ks", "by_v"), table("ks", "by_c"));
    for (at, (k, text)) in
        [(1, "a"), (2, "b"), (3, "a"), (4, "c"), (5, "d"), (6, "e")].into_iter().enumerate()
    {
        assert_eq!(world.write(0, row(&base, k, 1, text, 10 + at as i64), Consistency::Quorum), Ok(()));
    }
    world.sim.run_for(10 * SECOND);
    for view in [&by_v, &by_c] {
        let status = verified(&world, 1, view, false, CheckedTokens::All);
        assert_eq!(status.state, CheckState::Finished);
        assert_eq!(
            (status.base_rows, status.derived_rows, counts(&status)),
            (6, 6, (0, 0, 0, 0)),
            "{status:?}"
        );
        assert_eq!((status.parts_done, status.last_token), (status.parts, Some(i64::MAX)));
        // The nodes' own ranges are all of the ring, and each once.
        let each = [0, 1, 2].map(|node| verified(&world, node, view, false, CheckedTokens::Primary));
        assert_eq!(each.iter().map(|status| status.base_rows).sum::<u64>(), 6);
        assert_eq!(each.iter().map(|status| status.derived_rows).sum::<u64>(), 6);
    }

    // Past the derivation: a row that no base row has, one that is deleted later than its base row was written, and one of another time.
    let int = |value: i32| value.to_be_bytes();
    let now = seconds(&world.sim, 0);
    let live = |text: &str, at| ColumnData::Simple(Cell::live(at, Bytes::copy_from_slice(text.as_bytes())));
    let ghost = put(&by_v, (b"ghost", &[&int(1), &int(1)]), |row, id| row.set(id, live("ghost", 50)));
    let missing =
        put(&by_v, (b"b", &[&int(2), &int(1)]), |row, _| row.deletion = DeletionTime::new(1_000, now));
    let older = put(&by_v, (b"c", &[&int(4), &int(1)]), |row, id| {
        row.set(id, ColumnData::Simple(Cell::tombstone(13, now)));
    });
    let element =
        |path: &[u8]| ComplexCell { path: Bytes::copy_from_slice(path), cell: Cell::live(60, Bytes::new()) };
    let wrong = put(&by_c, (&int(1), &[&int(5)]), |row, id| {
        let cells = vec![element(b"an element that no column has")];
        row.set(id, ColumnData::Complex(Complex { cells, ..Complex::empty() }));
    });
    let marked = put(&by_c, (&int(9), &[&int(5)]), |row, _| row.liveness = LivenessInfo::forever(70));
    for update in [ghost, missing, older, wrong, marked] {
        assert_eq!(world.write(0, update, Consistency::All), Ok(()));
    }
    let status = verified(&world, 2, &by_v, false, CheckedTokens::All);
    assert_eq!(counts(&status), (2, 0, 1, 0), "{status:?}");
    let listed: Vec<(FoundKind, &[u8])> =
        status.listed.iter().map(|found| (found.kind, &*found.key.key)).collect();
    for found in
        [(Difference::Missing, b"b".as_slice()), (Difference::Missing, b"c"), (Difference::Ghost, b"ghost")]
    {
        let found = (FoundKind::View(found.0), found.1);
        assert!(listed.contains(&found), "{found:?} of {listed:?}");
    }
    let status = verified(&world, 2, &by_c, false, CheckedTokens::All);
    assert_eq!(counts(&status), (0, 1, 1, 0), "{status:?}");
    // A check of other tokens does not see them.
    let token = DecoratedKey::new(Bytes::from_static(b"ghost")).token;
    let between = CheckedTokens::Between(TokenRange { after: token, upto: i64::MAX });
    assert_eq!(verified(&world, 2, &by_v, false, between).ghosts, 0);
    let between = CheckedTokens::Between(TokenRange { after: token - 1, upto: token });
    assert_eq!(counts(&verified(&world, 2, &by_v, false, between)), (0, 0, 1, 0));

    for (view, found) in [(&by_v, (2, 0, 1, 3)), (&by_c, (0, 1, 1, 2))] {
        let status = verified(&world, 0, view, true, CheckedTokens::All);
        assert_eq!(counts(&status), found, "{status:?}");
        let status = verified(&world, 1, view, false, CheckedTokens::All);
        assert_eq!(
            (status.base_rows, status.derived_rows, counts(&status)),
            (6, 6, (0, 0, 0, 0)),
            "{status:?}"
        );
    }
    compare(&world, "ks");
}

#[test]
fn a_check_beside_writes_finds_nothing_and_one_without_all_replicas_fails() {
    let world = World::with_batches(4, &SHARDS, Config::default(), true);
    let base = table("ks", "viewed");
    let by_v = table("ks", "by_v");
    let writer = begin(&world.sim, 0, 0, |rt, coordinator| {
        let base = base.clone();
        async move {
            for at in 0..2_000_i64 {
                let text = format!("v{}", at % 7);
                let update = row(&base, (at % 11) as i32, 1, &text, rt.wall_micros());
                let options = WriteOptions {
                    consistency: Consistency::Quorum,
                    kind: WriteKind::Simple,
                    deadline: rt.now() + SECOND,
                };
                coordinator.write(vec![update], options).await.expect("all nodes are up");
                rt.sleep(SECOND / 200).await;
            }
        }
    });
    for _ in 0..3 {
        let status = verified(&world, 1, &by_v, true, CheckedTokens::All);
        assert_eq!((status.state.clone(), status.differences()), (CheckState::Finished, 0), "{status:?}");
    }
    join(&world.sim, writer);
    world.sim.isolate(world.sim.node(2));
    world.believe(&[0, 1]);
    let status = verified(&world, 1, &by_v, false, CheckedTokens::All);
    let CheckState::Failed(why) = &status.state else { panic!("{status:?}") };
    assert!(why.contains("ks.viewed cannot be read at ALL"), "{why}");
    assert_eq!(status.parts_done, 0);
    let unknown = DerivedCheck {
        derived: base.id,
        since: 0,
        tokens: CheckedTokens::All,
        repair: false,
        rows_per_second: 1,
        pause: SECOND,
        listed_max: 1,
    };
    let refused =
        world.on(1, 0, move |_, coordinator| async move { coordinator.begin_derived_check(unknown) });
    assert_eq!(refused, Err(DerivedCheckError::NoView), "a base is no view");
}

#[test]
fn a_check_ends_when_its_node_stops() {
    let world = World::with_batches(5, &SHARDS, Config::default(), true);
    let by_v = table("ks", "by_v");
    let check = DerivedCheck {
        derived: by_v.id,
        since: 0,
        tokens: CheckedTokens::All,
        repair: false,
        rows_per_second: 1,
        pause: SECOND,
        listed_max: 1,
    };
    let (stopped, refused) = world.on(1, 0, move |_, coordinator| async move {
        coordinator.begin_derived_check(check).expect("it is a view");
        coordinator.stop_derived_checks().await;
        (coordinator.derived_checks(), coordinator.begin_derived_check(check))
    });
    assert_eq!(stopped.iter().map(|status| &status.state).collect::<Vec<_>>(), [&CheckState::Cancelled]);
    assert_eq!(refused, Err(DerivedCheckError::Stopping));
    world.sim.run_for(10 * SECOND);
    let after = world.on(1, 0, |_, coordinator| async move { coordinator.derived_checks() });
    assert_eq!(after[0].parts_done, stopped[0].parts_done, "nothing of it continues");
}

/// With one replica in a cluster: updates of one shard of one node are one entry of its log, as on a node that is alone.
#[test]
fn views_whose_replica_is_this_node_are_up_to_date_with_the_write() {
    let world = World::with_batches(6, &SHARDS, Config::default(), true);
    let base = table("one", "viewed");
    let view = coordinator(0, 0).view();
    let placement = view.place(&schema::Replication::Simple { factor: 1 });
    let is_here = |key: &[u8]| {
        let token = DecoratedKey::new(Bytes::copy_from_slice(key)).token;
        *placement.replicas(token) == [view.own()]
    };
    let here: Vec<i32> = (0..200_i32).filter(|k| is_here(&k.to_be_bytes())).collect();
    let text =
        (0..200).map(|nth| format!("v{nth}")).find(|text| is_here(text.as_bytes())).expect("one of three");
    for (k, c) in here.iter().zip(here.iter().rev()).take(10) {
        assert_eq!(world.write(0, row(&base, *k, *c, &text, 10), Consistency::One), Ok(()));
        let rows: usize =
            kept(&world, 0, &table("one", "by_c")).iter().map(|partition| partition.rows().len()).sum();
        assert!(rows > 0, "nobody has to wait for the view");
    }
    assert_eq!(coordinator(0, 0).batchlog_stats().logged, 0, "no intent is stored");
    compare(&world, "one");
}

/// Fills partition 1 of `wide` with more than a write may read before it; the table.
pub fn fill_wide(world: &World, keyspace: &str, consistency: Consistency) -> Arc<Table> {
    let (wide, text) = (table(keyspace, "wide"), "x".repeat(1 << 20));
    for c in 0..18 {
        assert_eq!(world.write(0, row(&wide, 1, c, &text, 10), consistency), Ok(()));
    }
    wide
}

/// It would be refused each time, and hints behind it would wait for it.
#[test]
fn a_deletion_that_is_refused_leaves_no_hints() {
    let world = World::with_batches(4, &[1, 1, 1], Config::default(), true);
    let wide = fill_wide(&world, "ks", Consistency::All);
    let now = seconds(&world.sim, 0);
    let mut deletion = PartitionUpdate::new(wide.clone(), key(1));
    deletion.deletion = DeletionTime::new(20, now);
    let refused = world.write(0, deletion, Consistency::Quorum).unwrap_err();
    let RequestError::Invalid(why) = &refused else { panic!("{refused:?}") };
    assert!(
        why.contains("the write changes more rows of ks.wide than can be read at once (16 MiB)"),
        "{why}"
    );
    assert_eq!(crate::world::kept_hints(&world, 0), [].into());
    // Of parts of it that can be read, views follow.
    for c in 0..18 {
        assert_eq!(world.write(0, deleted(&wide, 1, c, 20, now), Consistency::Quorum), Ok(()));
    }
}

/// A repair brings a deletion that hides more than can be read at once: of a partition, and of one range.
#[test]
fn a_deletion_that_a_repair_brings_is_divided_by_the_rows_that_it_hides() {
    for of_a_range in [false, true] {
        let world = World::with_batches(6, &[1, 1, 1], Config::default(), true);
        let wide = fill_wide(&world, "ks", Consistency::All);
        let (view, now) = (table("ks", "wide_by_c"), seconds(&world.sim, 0));
        let mut whole = PartitionUpdate::new(wide.clone(), key(1));
        let deletion = DeletionTime::new(20, now);
        match of_a_range {
            true => whole.add_range_tombstone(RangeTombstone {
                start: Bound::bottom(),
                end: Bound::top(),
                deletion,
            }),
            false => whole.add_deletion(deletion),
        }
        for node in 0..3 {
            let brought = whole.clone();
            let applied = world.on(node, 0, |_, coordinator| async move {
                coordinator.replica().apply(Write::one(Origin::Repair, brought).in_parts()).await
            });
            assert_eq!(applied, Ok(()), "node {node}");
        }
        world.sim.run_for(5 * SECOND);
        for node in 0..3 {
            let live = |table: &Arc<Table>| {
                let command = everything(table, seconds(&world.sim, node));
                world.on(node, 0, |_, coordinator| async move {
                    let page =
                        coordinator.replica().read(Read::of(&command)).await.expect("the disk is well");
                    page.partitions.len()
                })
            };
            assert_eq!((live(&wide), live(&view)), (0, 0), "node {node}");
            let command = ReadCommand { form: Form::Whole, ..everything(&wide, seconds(&world.sim, node)) };
            let forms: Vec<_> = world.on(node, 0, |_, coordinator| async move {
                let page = coordinator.replica().read(Read::of(&command)).await.expect("the disk is well");
                let form = |found: &replica::PartitionResult| (found.deletion, found.range_tombstones.len());
                page.partitions.iter().map(form).collect()
            });
            let whole = if of_a_range { (DeletionTime::LIVE, 1) } else { (deletion, 0) };
            assert_eq!(forms, [whole], "it is as on a replica that took it whole, on node {node}");
        }
    }
}

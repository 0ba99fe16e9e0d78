//! Fetching a table's files: all of it, parts of it, across numbers of shards, and through crashes in the middle.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::MaintenanceError;
use schema::TableId;
use streaming::FetchError;
use topology::{Tablet, TabletMap, TabletMaps, TokenRange};

use crate::engines::*;

const KEYS: i32 = 600;
const TABLE: TableId = TableId([7; 16]);

fn all() -> BTreeSet<i32> {
    (0..KEYS).collect()
}

#[test]
fn everything_goes_as_it_is_between_nodes_of_as_many_shards() {
    for shards in [1, 3] {
        let world = World::new(1, &[shards, shards]);
        world.fill(0, 0..KEYS);
        let fetched = world.fetch(1, 0, &everything());
        assert!(
            fetched.is_all && fetched.sstables >= 3 && fetched.bytes > 64 * 8 * KEYS as u64,
            "{fetched:?}"
        );
        assert_eq!(world.keys(1), all());
        // As many SSTables as there, which have not been read.
        let count = |node| -> usize {
            (0..shards).map(|shard| world.running(node, shard).engine.sstable_count(TABLE)).sum()
        };
        assert_eq!(count(1), count(0));
        assert_eq!(world.stream_files(0), Vec::<std::path::PathBuf>::new(), "nothing had to be written");
        // Fetched already: nothing more to do, and it says that it has not looked.
        let again = world.fetch(1, 0, &everything());
        assert_eq!((again.sstables, again.is_all), (0, false));
        assert_eq!(world.running(1, 0).transfers.progress(), streaming::StreamingProgress::default());
    }
}

#[test]
fn each_shard_receives_its_own_tokens() {
    for shards in [[1, 2], [2, 1], [2, 3], [3, 2]] {
        let world = World::new(2, &shards);
        world.fill(0, 0..KEYS);
        assert!(world.fetch(1, 0, &everything()).is_all, "{shards:?}");
        assert_eq!(world.keys(1), all(), "{shards:?}");
        world.sim.run_for(Duration::from_secs(1));
        assert_eq!(
            world.stream_files(0),
            Vec::<std::path::PathBuf>::new(),
            "what was written for it is gone"
        );
    }
}

/// Tokens of tablets lie on other shards than by the token alone.
#[test]
fn the_shards_of_tablets_are_the_sources() {
    for shards in [[2, 2], [3, 2], [1, 3]] {
        let world = World::new(2, &shards);
        let tablet = |upto, one: u16, other: u16| Tablet {
            upto,
            replicas: vec![(host(0), one % shards[0]), (host(1), other % shards[1])],
        };
        let tablets = vec![tablet(i64::MIN / 2, 1, 0), tablet(0, 2, 0), tablet(i64::MAX, 0, 1)];
        world.use_tablets(&TabletMaps::new([(TABLE, TabletMap::new(tablets))]));
        world.fill(0, 0..KEYS);
        assert!(world.fetch(1, 0, &everything()).is_all, "{shards:?}");
        assert_eq!(world.keys(1), all(), "{shards:?}");
    }
}

/// A byte of one data file of the source is wrong: the others come, the source reports it, and says that it is not all.
#[test]
fn a_damaged_sstable_is_left_out_and_reported() {
    // As many shards: the files go as they are. Others: the wanted rows are rewritten first.
    for shards in [[1, 1], [1, 2]] {
        let world = World::new(5, &shards);
        world.fill(0, 0..KEYS);
        let source = world.sim.node(0);
        world.on(0, 0, |_, running| async move {
            running.engine.flush(TABLE).await.expect("the disk works");
        });
        let count = world.running(0, 0).engine.sstable_count(TABLE) as u64;
        let files = world.sim.files(source).into_iter();
        let (path, len) = files
            .filter(|(path, _)| path.to_string_lossy().ends_with("-Data.db"))
            .max()
            .expect("it has files");
        world.sim.corrupt_file(source, &path, len / 2, 1);
        let damaged = || world.running(0, 0).engine.table_stats(TABLE).expect("it is there").damaged_sstables;
        assert_eq!(damaged(), 0, "nobody has met it");
        let fetched = world.fetch(1, 0, &everything());
        assert!(!fetched.is_all, "{shards:?}: {fetched:?}");
        assert_eq!(damaged(), 1, "{shards:?}");
        let keys = world.keys(1);
        assert!(
            keys.len() > KEYS as usize / 3 && keys.len() < KEYS as usize,
            "{shards:?}: {} keys",
            keys.len()
        );
        if shards == [1, 1] {
            assert_eq!(fetched.sstables, count - 1);
        }
        world.sim.run_for(Duration::from_secs(1));
        for node in 0..2 {
            assert_eq!(
                world.stream_files(node),
                Vec::<std::path::PathBuf>::new(),
                "what is left of it is gone"
            );
        }
    }
}

#[test]
fn ranges_are_fetched_and_nothing_beside_them() {
    let world = World::new(3, &[2, 2]);
    world.fill(0, 0..KEYS);
    let ranges = [
        TokenRange { after: i64::MIN / 2, upto: -1_000 },
        TokenRange { after: i64::MAX / 2, upto: i64::MIN },
    ];
    assert!(world.fetch(1, 0, &ranges).is_all);
    let wanted = |k: &i32| {
        let token = key(*k).token;
        (token > i64::MIN / 2 && token <= -1_000) || token > i64::MAX / 2
    };
    assert_eq!(world.keys(1), all().into_iter().filter(wanted).collect());
}

#[test]
fn rows_fetched_later_do_not_hide_earlier_ones() {
    let world = World::new(4, &[1, 1]);
    world.fill(0, 0..KEYS);
    world.fill(1, KEYS..KEYS + 10);
    for k in 0..100 {
        world.delete(1, k);
    }
    world.fetch(1, 0, &everything());
    assert_eq!(world.keys(1), (100..KEYS + 10).collect());
}

/// A fetch with something that happens at a random moment of it; whether it was still under way then.
fn interrupted(seed: u64, happens: impl Fn(&World)) -> (World, bool, Result<streaming::Fetched, FetchError>) {
    let world = World::new(seed, &[1, 1]);
    world.fill(0, 0..KEYS);
    let mut rng = world.sim.handle().rng(5);
    let fetching = world.begin_fetch((1, 0), 0, &everything());
    world.sim.run_for(Duration::from_micros(rng.below(60_000)));
    let is_under_way = !fetching.is_finished();
    happens(&world);
    let fetched = fetching.join(&world.sim).expect("it ends");
    (world, is_under_way, fetched)
}

#[test]
fn connections_that_break_and_a_source_that_starts_anew_change_nothing() {
    let mut under_way = 0;
    for seed in 0..12 {
        for source_crashes in [false, true] {
            let (world, was, fetched) = interrupted(seed, |world| {
                let source = world.sim.node(0);
                if source_crashes {
                    world.sim.crash(source);
                    world.sim.run_for(Duration::from_secs(3));
                    world.start(0);
                } else {
                    world.sim.reset_connections(source, world.sim.node(1));
                }
            });
            under_way += u32::from(was);
            let fetched = fetched.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(fetched.is_all, "seed {seed}");
            assert_eq!(world.keys(1), all(), "seed {seed}");
        }
    }
    assert!(under_way >= 8, "{under_way} were under way");
}

#[test]
fn a_node_that_restarts_resumes_where_it_was() {
    let (mut kept, mut whole) = (0, 0);
    for seed in 0..16 {
        let world = World::new(seed, &[1, 1]);
        world.fill(0, 0..KEYS);
        let mut rng = world.sim.handle().rng(5);
        let fetching = world.begin_fetch((1, 0), 0, &everything());
        world.sim.run_for(Duration::from_micros(rng.below(60_000)));
        let was_under_way = !fetching.is_finished();
        drop(fetching);
        world.sim.crash(world.sim.node(1));
        world.sim.run_for(Duration::from_secs(1));
        world.start(1);
        let before = world.keys(1);
        assert!(before.is_empty() || before == all(), "seed {seed}: {} keys", before.len());
        kept += usize::from(was_under_way && !world.stream_files(1).is_empty());
        whole += usize::from(!before.is_empty());
        world.fetch(1, 0, &everything());
        assert_eq!(world.keys(1), all(), "seed {seed}");
        world.on(1, 0, |_, running| async move { running.transfers.finish().await.expect("the disk works") });
        assert_eq!(world.stream_files(1), Vec::<std::path::PathBuf>::new(), "seed {seed}");
    }
    assert!(kept >= 3, "{kept} had something to go on from, {whole} had all of it");
}

#[test]
fn a_source_that_is_gone_is_given_up() {
    let (_, was_under_way, fetched) = interrupted(7, |world| world.sim.crash(world.sim.node(0)));
    assert!(was_under_way);
    assert!(matches!(fetched, Err(FetchError::Silent(_))), "{fetched:?}");
}

#[test]
fn rows_truncated_meanwhile_do_not_come_back() {
    let mut refused = 0;
    for seed in 0..12 {
        let (world, was, fetched) = interrupted(seed, |world| {
            for node in [1, 0] {
                world.on(node, 0, |rt, running| async move {
                    running
                        .engine
                        .truncate(TABLE, rt.wall_micros(), rt::Instant::MAX)
                        .await
                        .expect("the disk works");
                });
            }
        });
        assert_eq!(world.keys(1), BTreeSet::new(), "seed {seed}");
        match fetched {
            Err(FetchError::Here(MaintenanceError::Truncated)) => refused += 1,
            Ok(fetched) => assert!(!was || fetched.sstables == 0, "seed {seed}: {fetched:?}"),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(refused >= 4, "{refused} were in the middle");
}

#[test]
fn a_truncation_that_has_not_reached_the_source_is_no_way_back() {
    let world = World::new(8, &[1, 1]);
    world.fill(0, 0..KEYS);
    world.on(1, 0, |rt, running| async move {
        running.engine.truncate(TABLE, rt.wall_micros(), rt::Instant::MAX).await.expect("the disk works");
    });
    let fetched = world.begin_fetch((1, 0), 0, &everything()).join(&world.sim).expect("it ends");
    assert!(matches!(fetched, Err(FetchError::Here(MaintenanceError::Truncated))), "{fetched:?}");
    assert_eq!(world.keys(1), BTreeSet::new());
}

#[test]
fn a_dropped_table_ends_it() {
    let (world, was_under_way, fetched) = interrupted(9, |world| {
        world.on(1, 0, |rt, running| async move {
            running.engine.drop_table(TABLE, rt.wall_micros()).await.expect("the disk works");
        });
    });
    assert!(was_under_way);
    assert!(matches!(fetched, Err(FetchError::Here(MaintenanceError::UnknownTable(_)))), "{fetched:?}");
    assert!(world.begin_fetch((1, 0), 0, &everything()).join(&world.sim).expect("it ends").is_err());
}

#[test]
fn a_full_disk_is_reported_as_such() {
    let world = World::new(10, &[1, 1]);
    world.fill(0, 0..KEYS);
    let used: u64 = world.sim.files(world.sim.node(1)).iter().map(|(_, len)| *len).sum();
    let before = std::cell::Cell::new(0);
    world.sim.configure_disk(world.sim.node(1), |disk| {
        before.set(std::mem::replace(&mut disk.capacity, used + (80 << 10)))
    });
    let fetched = world.begin_fetch((1, 0), 0, &everything()).join(&world.sim).expect("it ends");
    let error = fetched.expect_err("there is no room");
    assert!(error.is_disk() && error.to_string().contains("no space is left"), "{error}");
    assert_eq!(world.keys(1), BTreeSet::new());
    world.sim.configure_disk(world.sim.node(1), |disk| disk.capacity = before.get());
    assert!(world.fetch(1, 0, &everything()).is_all);
    assert_eq!(world.keys(1), all());
}

#[test]
fn the_rate_is_limited() {
    let world = World::new(11, &[1, 1]);
    world.fill(0, 0..KEYS);
    let begun = world.sim.now();
    let bytes = world.fetch(1, 0, &everything()).bytes;
    let free = world.sim.now() - begun;
    let limited = World::with_rate(11, &[1, 1], Some(bytes / 4));
    limited.fill(0, 0..KEYS);
    let begun = limited.sim.now();
    limited.fetch(1, 0, &everything());
    let slow = limited.sim.now() - begun;
    assert!(
        slow > free + Duration::from_secs(3) && slow < free + Duration::from_secs(6),
        "{free:?} {slow:?}"
    );
}

#[test]
fn a_source_announces_its_total_before_it_begins() {
    for shards in [[1, 1], [2, 2], [1, 2]] {
        let world = World::new(12, &shards);
        world.fill(0, 0..KEYS);
        let files = world.sim.files(world.sim.node(0)).len();
        let half = [TokenRange { after: i64::MIN, upto: 0 }];
        let guessed = [world.estimate(1, 0, &everything()), world.estimate(1, 0, &half)]
            .map(|told| told.expect("told"));
        assert_eq!(world.sim.files(world.sim.node(0)).len(), files, "nothing begins");
        let part = world.fetch(1, 0, &half).bytes;
        let bytes = part + world.fetch(1, 0, &[TokenRange { after: 0, upto: i64::MIN }]).bytes;
        for (guessed, bytes) in guessed.into_iter().zip([bytes, part]) {
            assert!(
                guessed > bytes / 2 && guessed < bytes * 2,
                "{shards:?}: {guessed} were guessed of {bytes}"
            );
        }
        // Received bytes are not expected any more.
        assert_eq!(world.estimate(1, 0, &half), Some(0), "{shards:?}");
        world.sim.crash(world.sim.node(0));
        assert_eq!(world.estimate(1, 0, &everything()), None, "{shards:?}");
    }
}

#[test]
fn the_total_is_reported_during_the_transfer() {
    let world = World::with_rate(13, &[1, 1], Some(10 << 10));
    world.fill(0, 0..KEYS);
    let fetching = world.begin_fetch((1, 0), 0, &everything());
    world.sim.run_for(Duration::from_millis(1_500));
    let progress = world.running(1, 0).transfers.progress();
    assert!(progress.bytes_done < progress.bytes_total, "{progress:?}");
    drop(fetching);
    let told = progress.bytes_total;
    let bytes = World::new(13, &[1, 1]);
    bytes.fill(0, 0..KEYS);
    assert_eq!(told, bytes.fetch(1, 0, &everything()).bytes, "before the first long answer, and exactly");
}

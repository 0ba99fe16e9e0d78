//! The log on a disk that fails, rots, loses power and loses files: acknowledged entries are there, or the start reports the missing ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use commitlog::segment::{HEADER_LEN, SegmentHeader, scan};
use commitlog::{CommitLog, CommitLogConfig, CommitLogError, SyncMode};
use mutation::{Cell as Value, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row};
use rt::{DiskOp, Group, LocalBoxFuture, Rt, ShardId, ShardMain};
use rt_sim::{Config, DiskFault, NodeConfig, NodeId, Simulation};
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

const EIO: i32 = 5;
const SEGMENT_LEN: u64 = 64 << 10;
const PERIOD: Duration = Duration::from_millis(100);

fn table() -> Arc<Table> {
    TableBuilder::new("ks", "t", TableId([7; 16]))
        .partition_key("pk", CqlType::Blob)
        .regular("v", CqlType::Blob)
        .build_known()
}

/// An update that says which it is.
fn update(table: &Arc<Table>, number: u64, len: usize) -> PartitionUpdate {
    let key = Bytes::copy_from_slice(&number.to_be_bytes());
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(key));
    let mut row = Row::new(Clustering::empty());
    let value = Value::live(1_000, Bytes::from(vec![number as u8; len]));
    row.set(table.column("v").unwrap().id, ColumnData::Simple(value));
    update.add_row(row);
    update
}

fn config(sync: SyncMode) -> CommitLogConfig {
    CommitLogConfig { sync, segment_bytes: SEGMENT_LEN, ..CommitLogConfig::new("/log".into()) }
}

const PERIODIC: SyncMode = SyncMode::Periodic { period: PERIOD };

struct Lab {
    sim: Simulation,
    node: NodeId,
}

impl Lab {
    /// On a file system that maps files where the seed is odd.
    fn new(seed: u64) -> Self {
        let sim = Simulation::new(seed, Config::default());
        let node = sim.add_node(NodeConfig::default(), |_| {
            let main: ShardMain = Box::new(|_| Box::pin(std::future::pending()) as LocalBoxFuture<()>);
            vec![main]
        });
        sim.configure_disk(node, |disk| disk.maps = seed % 2 == 1);
        sim.start(node);
        Self { sim, node }
    }

    fn rt(&self) -> Rt {
        self.sim.rt(self.node, ShardId(0)).expect("it runs")
    }

    /// Runs something on the node to its end.
    fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        let left = Rc::new(RefCell::new(None));
        let place = left.clone();
        let task = self.rt().spawn(Group::Statement, async move { *place.borrow_mut() = Some(work.await) });
        self.sim.run_until(|| task.is_finished()).expect("it ends");
        left.borrow_mut().take().expect("it has ended")
    }

    fn open(&self, config: CommitLogConfig) -> Result<(CommitLog, Vec<u64>), CommitLogError> {
        let rt = self.rt();
        self.run(async move {
            let (log, mut recovery) = CommitLog::open(&rt, config, false).await?;
            let mut found = Vec::new();
            while let Some(entries) = recovery.next_segment().await? {
                // Checkpoints are of another kind.
                let updates = entries.entries.into_iter().filter(|(_, body)| body.first() == Some(&1));
                found.extend(updates.map(|(number, _)| number));
            }
            Ok((log, found))
        })
    }

    /// Appends entries, waits for them, and syncs.
    fn fill(&self, log: &CommitLog, count: u64, len: usize) -> Vec<u64> {
        let log = log.clone();
        self.run(async move {
            let table = table();
            let mut numbers = Vec::new();
            for number in 0..count {
                let ticket = log.append(&[update(&table, number, len)]).unwrap();
                numbers.push(ticket.number);
                ticket.await.unwrap();
            }
            log.sync().await.unwrap();
            numbers
        })
    }

    fn kill(&self) {
        self.sim.kill(self.node);
        self.sim.start(self.node);
    }

    fn crash(&self) {
        self.sim.crash(self.node);
        self.sim.start(self.node);
    }

    fn segments(&self, directory: &str) -> Vec<PathBuf> {
        let files = self.sim.files(self.node).into_iter().map(|(path, _)| path);
        let name = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
        let mut found: Vec<PathBuf> =
            files.filter(|path| path.parent() == Some(Path::new(directory)) && name(path)).collect();
        let id = |path: &PathBuf| {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            stem.rsplit('-').next().unwrap().parse::<u64>().unwrap()
        };
        found.sort_by_key(id);
        found
    }

    fn fault(&self, op: DiskOp, path: &str, skip: u32, times: u32) {
        let fault = DiskFault { op, path_contains: path.to_owned(), errno: EIO, skip, times };
        self.sim.inject_disk_fault(self.node, fault);
    }

    /// Changes a file's length, or takes it away.
    fn cut(&self, path: &Path, len: Option<u64>) {
        let (rt, path) = (self.rt(), path.to_owned());
        self.run(async move {
            match len {
                Some(len) => {
                    rt.disk().open(&path, rt::OpenOptions::READ_WRITE).await.unwrap().set_len(len).await
                }
                None => rt.disk().remove(&path).await,
            }
            .unwrap();
        });
    }
}

/// A process is killed, the next start accepts the end of its log, and then a byte before that end rots.
#[test]
fn rot_before_an_accepted_tail_is_refused() {
    let prepared = |seed| {
        let lab = Lab::new(seed);
        let (log, _) = lab.open(config(PERIODIC)).unwrap();
        let mut numbers = lab.fill(&log, 12, 300);
        lab.kill();
        let (log, found) = lab.open(config(PERIODIC)).unwrap();
        assert_eq!(found, numbers, "a tail that was not synced is no damage");
        numbers.extend(lab.fill(&log, 5, 300));
        lab.kill();
        (lab, numbers)
    };
    let (lab, numbers) = prepared(1);
    let segments = lab.segments("/log");
    assert_eq!(segments.len(), 2);
    let bytes = lab.sim.read_file(lab.node, &segments[0]).unwrap();
    let end = scan(&bytes, &SegmentHeader::decode(&bytes).unwrap(), HEADER_LEN, 0).stop;
    assert_eq!(lab.open(config(PERIODIC)).unwrap().1, numbers);
    let mut refused = 0;
    for at in (HEADER_LEN..end).step_by(97) {
        let (lab, numbers) = prepared(1);
        assert!(lab.sim.corrupt_file(lab.node, &segments[0], at as u64, 1));
        match lab.open(config(PERIODIC)) {
            // It was padding.
            Ok((_, found)) => assert_eq!(found, numbers, "byte {at}: entries are lost without a word"),
            Err(CommitLogError::Corrupt { file, offset, .. }) => {
                assert_eq!(file, segments[0]);
                assert!(offset <= at as u64 && at as u64 <= offset + 400, "{offset} for byte {at}");
                refused += 1;
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
        // With the override the rest of both segments is read, and the start after that needs no override any more.
        let ignoring = CommitLogConfig { ignore_errors: true, ..config(PERIODIC) };
        let (log, found) = lab.open(ignoring).unwrap();
        assert!(found.ends_with(&numbers[12..]), "byte {at}: {found:?}");
        lab.fill(&log, 1, 10);
        lab.kill();
        lab.open(config(PERIODIC)).unwrap_or_else(|error| panic!("byte {at}: {error}"));
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_cut_log_reports_the_missing_part() {
    let prepared = || {
        let lab = Lab::new(7);
        let (log, _) = lab.open(config(PERIODIC)).unwrap();
        // Three segments and a part of a fourth.
        let numbers = lab.fill(&log, 190, 1000);
        drop(log);
        lab.kill();
        let segments = lab.segments("/log");
        assert!(segments.len() >= 4, "{segments:?}");
        (lab, segments, numbers)
    };
    // The last one is where a crash may cut entries, and still the file has its whole length then.
    for (place, len) in [(0, 20_000), (1, 4_096), (1, 100), (2, 0), (3, 9_000)] {
        let (lab, segments, _) = prepared();
        lab.cut(&segments[place], Some(len));
        let error = lab.open(config(PERIODIC)).err().expect("entries are missing").to_string();
        let name = segments[place].display().to_string();
        assert!(error.contains(&name) && error.contains(&format!("it has {len} ")), "{place} {len}: {error}");
        assert!(error.contains("commitlog_ignore_errors: true"), "{error}");
    }
    for place in [1, 2] {
        let (lab, segments, numbers) = prepared();
        lab.cut(&segments[place], None);
        let error = lab.open(config(PERIODIC)).err().expect("entries are missing");
        assert!(
            matches!(&error, CommitLogError::Missing { file, .. } if *file == segments[place]),
            "{error}"
        );
        assert!(error.to_string().contains("is missing"), "{error}");
        let ignoring = CommitLogConfig { ignore_errors: true, ..config(PERIODIC) };
        let (log, found) = lab.open(ignoring).unwrap();
        assert!(found.len() < numbers.len() && found.last() == numbers.last());
        lab.fill(&log, 1, 10);
        lab.kill();
        let (_, again) = lab.open(config(PERIODIC)).unwrap();
        assert!(again.len() > found.len(), "it was accepted once and for all");
    }
}

/// A start with another number of shards reads a log of which nothing was synced behind a torn entry: the segments behind it are removed
/// while it is read, and the files that it gives are those that are still to be removed.
#[test]
fn of_a_log_of_other_shards_every_given_file_is_there() {
    let mut cut_off = 0;
    for seed in 0..400 {
        let lab = Lab::new(seed);
        let (log, _) = lab.open(config(PERIODIC)).unwrap();
        lab.run(async move {
            for number in 0..150 {
                // Nobody waits for these.
                drop(log.append(&[update(&table(), number, 1000)]));
            }
        });
        lab.sim.run_for(Duration::from_micros(10 * seed));
        lab.kill();
        let before = lab.segments("/log");
        let [.., last_but_one, _] = before.as_slice() else { continue };
        assert!(lab.sim.corrupt_file(lab.node, last_but_one, 30_000, 1));
        let rt = lab.rt();
        let given = lab.run(async move { commitlog::read_shard(&rt, &config(PERIODIC), 0).await });
        match given {
            Ok((_, given)) => {
                assert_eq!(given, lab.segments("/log"), "seed {seed}");
                cut_off += before.len() - given.len();
            }
            Err(CommitLogError::Corrupt { .. }) => {}
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(cut_off > 0, "no segment lay behind the end of a log");
}

/// Two writers wait for durability at once, and one of the syncs fails: no writer that failed is answered success.
#[test]
fn of_two_syncs_no_failure_is_overheard() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..200 {
        let lab = Lab::new(seed);
        let long = SyncMode::Periodic { period: Duration::from_secs(1000) };
        let (log, _) = lab.open(config(long)).unwrap();
        lab.fill(&log, 2, 100);
        lab.sim.configure_disk(lab.node, |disk| disk.sync_error_per_million = 400_000);
        let (rt, durable) = (lab.rt(), Rc::new(RefCell::new(Vec::new())));
        let told = durable.clone();
        let failures = lab.run(async move {
            let failures = Rc::new(Cell::new(0));
            let tasks: Vec<_> = (0..3u64)
                .map(|number| {
                    let (rt2, log, told, failures) =
                        (rt.clone(), log.clone(), told.clone(), failures.clone());
                    rt.spawn(Group::Statement, async move {
                        rt2.sleep(Duration::from_micros(rt2.random_below(300))).await;
                        let ticket = log.append(&[update(&table(), number, 100)]).unwrap();
                        let entry = ticket.number;
                        ticket.await.unwrap();
                        match log.sync().await {
                            Ok(()) => told.borrow_mut().push(entry),
                            Err(_) => failures.set(failures.get() + 1),
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            failures.get()
        });
        lab.sim.configure_disk(lab.node, |disk| disk.sync_error_per_million = 0);
        lab.crash();
        let (_, found) = lab.open(config(long)).unwrap();
        let missing: Vec<_> =
            durable.borrow().iter().filter(|entry| !found.contains(entry)).copied().collect();
        assert!(missing.is_empty(), "seed {seed}: {missing:?} were told to be durable");
        good += durable.borrow().len();
        bad += failures;
    }
    assert!(good > 100 && bad > 100, "{good} {bad}");
}

/// A writer that waits for room loses no more than the period's writes, however the disk behaves.
#[test]
fn the_periodic_mode_never_lags_by_more_than_its_period() {
    let (mut waited, mut checked) = (0, 0);
    for seed in 0..120 {
        let lab = Lab::new(seed);
        let (log, _) = lab.open(config(PERIODIC)).unwrap();
        lab.fill(&log, 1, 50);
        let failures = Rc::new(Cell::new(0));
        let counted = failures.clone();
        log.on_failure(move |_| counted.set(counted.get() + 1));
        lab.sim.configure_disk(lab.node, |disk| match seed % 3 {
            0 => disk.sync_error_per_million = 500_000,
            1 => {
                disk.slow_per_million = 300_000;
                disk.slow_max = PERIOD * 5;
            }
            _ => {}
        });
        let (rt, written) = (lab.rt(), Rc::new(RefCell::new(Vec::new())));
        let notes = written.clone();
        let writer = log.clone();
        let task = lab.rt().spawn(Group::Statement, async move {
            let table = table();
            for number in 0.. {
                writer.wait_for_room().await;
                let admitted = rt.now();
                let ticket = writer.append(&[update(&table, number, 50)]).unwrap();
                let entry = ticket.number;
                if ticket.await.is_ok() {
                    notes.borrow_mut().push((admitted, rt.now(), entry));
                }
                rt.sleep(Duration::from_millis(1)).await;
            }
        });
        let mut rng = lab.sim.rng(0);
        let (until, mut held) = (lab.sim.now() + Duration::from_millis(300 + rng.below(4000)), 0);
        while lab.sim.now() < until {
            lab.sim.run_for(Duration::from_millis(2));
            held += u64::from(!log.has_room());
        }
        waited += held;
        drop(task);
        lab.sim.configure_disk(lab.node, |disk| *disk = rt_sim::DiskConfig::default());
        drop(log);
        lab.crash();
        let (_, found) = lab.open(config(PERIODIC)).unwrap();
        // The last admitted entry shows how far everything was synced.
        let written = written.borrow();
        let Some((last, ..)) = written.last().copied() else { continue };
        for (_, done, entry) in written.iter().filter(|(_, done, _)| *done + PERIOD < last) {
            assert!(
                found.contains(entry),
                "seed {seed}: entry {entry} of {} is lost after {done:?}",
                written.len()
            );
            checked += 1;
        }
        assert!(seed % 3 != 0 || failures.get() > 0, "seed {seed}: no failure was reported");
        assert!(seed % 3 != 2 || held == 0, "seed {seed}: a disk in order lets nobody wait");
    }
    assert!(waited > 100 && checked > 10_000, "{waited} {checked}");
}

#[test]
fn every_segment_gets_into_the_archive() {
    for seed in 0..40 {
        let lab = Lab::new(seed);
        let archiving =
            CommitLogConfig { archive_directory: Some("/archive".into()), ..config(SyncMode::Batch) };
        let mut numbers = Vec::new();
        let mut rng = lab.sim.rng(0);
        for life in 0..3 {
            let (log, _) = lab.open(archiving.clone()).unwrap();
            lab.fault(DiskOp::HardLink, "/log", rng.below(2) as u32, rng.below(4) as u32);
            numbers.extend(lab.fill(&log, 40 + rng.below(60), 1000));
            let (all, released) = (log.next_number(), log.clone());
            // Segments that are not linked yet must stay.
            lab.run(async move { released.release_before(all).await.unwrap() });
            lab.sim.run_for(Duration::from_secs(6));
            let (all, released) = (log.next_number(), log.clone());
            lab.run(async move { released.release_before(all).await.unwrap() });
            assert_eq!(lab.segments("/log").len(), 1, "seed {seed}: what is linked is released");
            match (life, seed % 2) {
                (2, _) => lab.run(async move { log.close().await.unwrap() }),
                (_, 0) => lab.kill(),
                _ => lab.crash(),
            }
        }
        let mut archived = Vec::new();
        for path in lab.segments("/archive") {
            let bytes = lab.sim.read_file(lab.node, &path).unwrap();
            let found = scan(&bytes, &SegmentHeader::decode(&bytes).unwrap(), HEADER_LEN, 0);
            archived.extend(found.entries.into_iter().map(|entry| entry.number));
        }
        let missing: Vec<&u64> = numbers.iter().filter(|number| !archived.contains(number)).collect();
        assert!(missing.is_empty(), "seed {seed}: {missing:?} of {} are not archived", numbers.len());
    }
}

/// The number of shards changed, and the log's directory is empty: segments do not take names that the archive has.
#[test]
fn segments_are_named_behind_the_archive() {
    let lab = Lab::new(3);
    let archiving = CommitLogConfig { archive_directory: Some("/archive".into()), ..config(SyncMode::Batch) };
    for _ in 0..2 {
        let (log, _) = lab.open(archiving.clone()).unwrap();
        lab.fill(&log, 60, 1000);
        let closing = log.clone();
        lab.run(async move { closing.close().await.unwrap() });
        let (log, directory) = (lab.segments("/log"), "/log");
        assert!(!log.is_empty());
        let disk = lab.rt().disk().clone();
        lab.run(async move {
            for entry in disk.list(directory).await.unwrap() {
                disk.remove(std::path::Path::new(directory).join(&entry.name)).await.unwrap();
            }
        });
        lab.kill();
    }
    let (log, _) = lab.open(archiving).unwrap();
    lab.fill(&log, 60, 1000);
    let (all, released) = (log.next_number(), log.clone());
    lab.sim.run_for(Duration::from_secs(3));
    lab.run(async move { released.release_before(all).await.unwrap() });
    assert_eq!(lab.segments("/log").len(), 1, "what is archived is released");
}

/// Segments of an earlier process may be in an archive that this one does not have: nothing is written into them.
#[test]
fn found_segments_are_not_written_into_again() {
    let lab = Lab::new(4);
    let archiving = CommitLogConfig { archive_directory: Some("/archive".into()), ..config(SyncMode::Batch) };
    let (log, _) = lab.open(archiving).unwrap();
    lab.fill(&log, 60, 1000);
    lab.run(async move { log.close().await.unwrap() });
    lab.kill();
    let content = |lab: &Lab| -> Vec<Vec<u8>> {
        lab.segments("/archive").iter().map(|path| lab.sim.read_file(lab.node, path).unwrap()).collect()
    };
    let archived = content(&lab);
    assert!(archived.len() > 1);
    let (log, _) = lab.open(config(PERIODIC)).unwrap();
    let (all, released) = (log.next_number(), log.clone());
    lab.fill(&log, 10, 1000);
    lab.run(async move { released.release_before(all).await.unwrap() });
    lab.fill(&log, 200, 1000);
    assert!(content(&lab) == archived, "the archive is as it was");
}

/// An append to a mapped segment waits for nothing, and the end of the process loses nothing acknowledged, over many
/// segments. A power failure takes no more than the period's writes.
#[test]
fn entries_stored_in_a_mapped_segment_survive() {
    let (mut at_once, mut waited, mut kept) = (0, 0, 0);
    for seed in (1..80).step_by(2) {
        let lab = Lab::new(seed);
        let (log, _) = lab.open(config(PERIODIC)).unwrap();
        let acknowledged = Rc::new(RefCell::new(Vec::new()));
        let (rt, notes) = (lab.rt(), acknowledged.clone());
        let task = lab.rt().spawn(Group::Statement, async move {
            let table = table();
            for number in 0.. {
                let len = rt.random_below(3_000) as usize;
                let before = rt.now();
                log.wait_for_room().await;
                let ticket = log.append(&[update(&table, number, len)]).unwrap();
                let (entry, began) = (ticket.number, rt.now());
                ticket.await.unwrap();
                let is_at_once = rt.now() == began;
                notes.borrow_mut().push((before, entry, is_at_once));
                rt.sleep(Duration::from_micros(rt.random_below(600))).await;
            }
        });
        let mut rng = lab.sim.rng(0);
        lab.sim.run_for(Duration::from_micros(50_000 + rng.below(400_000)));
        let now = lab.sim.now();
        let has_power = seed % 4 == 1;
        drop(task);
        if has_power {
            lab.kill()
        } else {
            lab.crash()
        }
        let acknowledged = acknowledged.borrow();
        let (_, found) = lab.open(config(PERIODIC)).unwrap();
        assert!(lab.segments("/log").len() > 1, "seed {seed}: one segment shows little");
        let start = acknowledged[0].0;
        for (admitted, entry, is_at_once) in acknowledged.iter() {
            let age = now.saturating_sub(*admitted - start);
            let must_be_there = has_power || age > PERIOD * 2;
            assert!(!must_be_there || found.contains(entry), "seed {seed}: entry {entry} is lost");
            kept += u64::from(must_be_there);
            *(if *is_at_once { &mut at_once } else { &mut waited }) += 1;
        }
    }
    assert!(kept > 10_000 && waited > 100 && at_once > 20 * waited, "{kept} {waited} {at_once}");
}

/// Entries that wait for the disk together are written as chunks that fit a segment, however small it is.
#[test]
fn entries_that_wait_together_fit_segments() {
    for seed in [8, 9] {
        let lab = Lab::new(seed);
        let (log, _) = lab.open(config(SyncMode::Batch)).expect("the disk is well");
        lab.run(async move {
            let table = table();
            let tickets: Vec<_> = (1..=100)
                .map(|number| log.append(&[update(&table, number, 4 << 10)]).expect("small"))
                .collect();
            for ticket in tickets {
                ticket.await.expect("the disk is well");
            }
        });
        lab.crash();
        let (_, found) = lab.open(config(SyncMode::Batch)).expect("the disk is well");
        assert_eq!(found, (1..=100).collect::<Vec<u64>>());
    }
}

/// The tables of which the log knows how far they are flushed, as the next start finds them.
fn flushed_tables(lab: &Lab, config: CommitLogConfig) -> Vec<TableId> {
    let rt = lab.rt();
    lab.run(async move {
        let (_, recovery) = CommitLog::open(&rt, config, false).await.unwrap();
        recovery.checkpoint.flushed.into_keys().collect()
    })
}

/// A dropped table is known as long as the log has entries of it, across a start, and not longer.
#[test]
fn a_dropped_table_is_forgotten_with_its_entries() {
    let gone = BTreeSet::from([TableId([7; 16])]);
    let lab = Lab::new(1);
    let (log, _) = lab.open(config(PERIODIC)).unwrap();
    lab.fill(&log, 5, 300);
    let (dropping, tables) = (log.clone(), gone.clone());
    let before = log.next_number();
    lab.run(async move { dropping.record_dropped(&tables, before).await.unwrap() });
    lab.kill();
    assert_eq!(flushed_tables(&lab, config(PERIODIC)), [TableId([7; 16])]);
    lab.kill();
    let (log, _) = lab.open(config(PERIODIC)).unwrap();
    log.note_dropped(&gone);
    // Rows of another table, in several segments.
    let other = TableBuilder::new("ks", "other", TableId([8; 16]))
        .partition_key("pk", CqlType::Blob)
        .regular("v", CqlType::Blob)
        .build_known();
    let filling = log.clone();
    lab.run(async move {
        for number in 0..500 {
            filling.append(&[update(&other, number, 1_000)]).unwrap().await.unwrap();
        }
        filling.record_flushed(TableId([8; 16]), filling.next_number()).await.unwrap();
        filling.release_before(filling.next_number()).await.unwrap();
        // A segment begins with the checkpoint of that moment.
        for number in 0..100 {
            filling.append(&[update(&other, number, 1_000)]).unwrap().await.unwrap();
        }
        filling.sync().await.unwrap();
        filling.release_before(filling.next_number() - 1).await.unwrap();
    });
    lab.kill();
    assert_eq!(flushed_tables(&lab, config(PERIODIC)), [TableId([8; 16])]);
}

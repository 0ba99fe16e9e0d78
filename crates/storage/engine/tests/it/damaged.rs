//! Missing and damaged files at a start: nothing is deleted that is no leftover of the node's own, the node starts, and a
//! read gives the written rows or an error, never less.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, EngineConfig, Origin, SyncMode, Write, prepare};
use mutation::PartitionRange;
use rt::{Instant, IoBuf, OpenOptions, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use topology::Sharder;

use crate::model::{Change, Op, Visible, key, read, schema, updates, visible};
use crate::world::{Plan, config};

type Files = BTreeMap<PathBuf, Vec<u8>>;

const KEYS: i32 = 40;

fn plan() -> Plan {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 }
}

fn ops() -> Vec<Op> {
    let cell = |pk: i32, ck: i32| Change::Cell { pk, ck, b: false, ts: i64::from(pk * 100 + ck) + 1 };
    let op = |pk: i32, ck: i32| Op { number: pk as u64, changes: vec![cell(pk, ck)], large: pk == 7 };
    (0..KEYS).flat_map(|pk| (0..if pk == 7 { 30 } else { 2 }).map(move |ck| op(pk, ck))).collect()
}

/// The history of one lifetime of a node.
#[derive(Default)]
struct Shown {
    /// Each shard's scan.
    scans: BTreeMap<u16, Result<Visible, String>>,
    /// Reads of single partitions, by the shard that owns them.
    partitions: BTreeMap<i32, Result<Visible, String>>,
    /// Why it did not start.
    failures: Vec<String>,
    done: u16,
    prepared: bool,
}

async fn restore(rt: &Rt, files: Files) {
    let disk = rt.disk();
    for (path, content) in files {
        disk.create_dir_all(path.parent().unwrap()).await.unwrap();
        let file = disk.open(&path, OpenOptions::CREATE_NEW).await.unwrap();
        if !content.is_empty() {
            file.write_at(0, IoBuf::copy_of(&content)).await.unwrap();
        }
    }
}

/// The treatment of a shard that has started, before it is read.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Nothing,
    Write,
    Truncate,
}

async fn life(rt: Rt, shared: Arc<Mutex<Shown>>, files: Files, work: Work) -> Result<(), String> {
    let schema = schema(plan().gc_grace);
    let table = schema.table("ks", "t1").unwrap().clone();
    let mut config = EngineConfig { auto_compaction: false, ..config(&plan()) };
    config.memtable_bytes_max = 4 << 20;
    config.commitlog.total_bytes_max = 8 << 20;
    if rt.shard().0 == 0 {
        restore(&rt, files).await;
        prepare(&rt, &config, &schema).await.map_err(|error| format!("prepare: {error}"))?;
        shared.lock().unwrap().prepared = true;
    }
    while !shared.lock().unwrap().prepared {
        rt.sleep(Duration::from_millis(1)).await;
    }
    let opened = Engine::open(rt.clone(), config, schema).await;
    let engine = opened.map_err(|error| format!("open: {error}"))?;
    let sharder = Sharder::new(rt.shard_count());
    if work == Work::Write {
        for op in ops() {
            for update in updates(&table, &op, 1_700_000_000) {
                if sharder.shard_of(update.key.token) == rt.shard().0 {
                    engine
                        .apply(Write::one(Origin::Client, update))
                        .await
                        .map_err(|error| error.to_string())?;
                }
            }
        }
        engine.flush(table.id).await.map_err(|error| error.to_string())?;
    }
    if work == Work::Truncate {
        engine.truncate(table.id, rt.wall_micros(), Instant::MAX).await.map_err(|error| error.to_string())?;
    }
    let scan = read(&engine, &table, &PartitionRange::all(), false).await;
    let mut partitions = BTreeMap::new();
    for pk in (0..KEYS).filter(|pk| sharder.shard_of(key(*pk).token) == rt.shard().0) {
        partitions.insert(pk, read(&engine, &table, &PartitionRange::single(&key(pk)), pk % 2 == 0).await);
    }
    engine.stop().await.map_err(|error| error.to_string())?;
    let mut shared = shared.lock().unwrap();
    shared.scans.insert(rt.shard().0, scan);
    shared.partitions.extend(partitions);
    shared.done += 1;
    Ok(())
}

/// Runs a node of so many shards on these files; the rows that it returned, and its files afterwards.
fn run(shards: u16, files: &Files, work: Work) -> (Shown, Files) {
    let sim = Simulation::new(u64::from(shards), Config::default());
    let shared = Arc::new(Mutex::new(Shown::default()));
    let (of_node, files) = (shared.clone(), files.clone());
    let node = sim.add_node(NodeConfig { shards, ..NodeConfig::default() }, move |_| {
        let (shared, files) = (of_node.clone(), files.clone());
        shard_mains(shards, move |rt: Rt| {
            let (shared, files) = (shared.clone(), files.clone());
            async move {
                if let Err(failure) = life(rt, shared.clone(), files, work).await {
                    shared.lock().unwrap().failures.push(failure);
                }
                std::future::pending::<()>().await;
            }
        })
    });
    sim.start(node);
    let watched = shared.clone();
    let ended = sim.run_until(|| {
        let shared = watched.lock().unwrap();
        shared.done == shards || !shared.failures.is_empty()
    });
    ended.unwrap();
    sim.kill(node);
    let read = |(path, _): (PathBuf, u64)| sim.read_file(node, &path).map(|content| (path, content));
    let files = sim.files(node).into_iter().filter_map(read).collect();
    let shown = std::mem::take(&mut *shared.lock().unwrap());
    (shown, files)
}

/// The files of a node of so many shards that has written [`ops`].
fn written(shards: u16) -> Files {
    let (shown, files) = run(shards, &Files::new(), Work::Write);
    assert_whole(&shown);
    files
}

fn expected() -> Visible {
    visible(ops().iter())
}

fn assert_whole(shown: &Shown) {
    assert_eq!(shown.failures, Vec::<String>::new());
    let mut together = Visible::new();
    for scan in shown.scans.values() {
        together.extend(scan.clone().expect("nothing is damaged"));
    }
    assert_eq!(together, expected());
    for (pk, found) in &shown.partitions {
        assert_eq!(found.as_ref().expect("nothing is damaged"), &of(*pk), "{pk}");
    }
}

fn of(pk: i32) -> Visible {
    expected().into_iter().filter(|(place, _)| place.0 == pk).collect()
}

/// That the node started, and every read gave the written rows or an error. Gives the errors.
fn assert_right_or_errors(shown: &Shown, what: &str) -> Vec<String> {
    assert_eq!(shown.failures, Vec::<String>::new(), "{what}: the node starts");
    let sharder = Sharder::new(shown.done);
    let mut errors = Vec::new();
    for (shard, scan) in &shown.scans {
        match scan {
            Err(error) => errors.push(error.clone()),
            Ok(found) => {
                let owned = |pk: i32| sharder.shard_of(key(pk).token) == *shard;
                let all: Visible = expected().into_iter().filter(|(place, _)| owned(place.0)).collect();
                assert_eq!(*found, all, "{what}: the scan of shard {shard}");
            }
        }
    }
    for (pk, found) in &shown.partitions {
        match found {
            Err(error) => errors.push(error.clone()),
            Ok(found) => assert_eq!(*found, of(*pk), "{what}: partition {pk}"),
        }
    }
    errors
}

fn paths(files: &Files, end: &str) -> Vec<PathBuf> {
    files.keys().filter(|path| path.to_string_lossy().ends_with(end)).cloned().collect()
}

/// The paths of SSTables' files in the table's directory.
fn sstable_files(files: &Files) -> Vec<PathBuf> {
    let is_one = |path: &&PathBuf| path.starts_with("/data") && path.to_string_lossy().contains("/nb-");
    files.keys().filter(is_one).cloned().collect()
}

#[test]
fn an_sstable_without_its_toc_is_used() {
    for shards in [1, 2] {
        let mut files = written(shards);
        for toc in paths(&files, "TOC.txt") {
            files.remove(&toc);
        }
        let before = sstable_files(&files).len();
        let (shown, after) = run(shards, &files, Work::Nothing);
        assert_whole(&shown);
        assert_eq!(paths(&after, "TOC.txt").len(), usize::from(shards));
        assert!(sstable_files(&after).len() >= before + usize::from(shards));
        let (shown, _) = run(shards, &after, Work::Nothing);
        assert_whole(&shown);
    }
}

#[test]
fn without_its_toc_a_damaged_sstable_is_moved_aside() {
    let mut files = written(1);
    let toc = paths(&files, "TOC.txt").remove(0);
    files.remove(&toc);
    let data = paths(&files, "Data.db").remove(0);
    files.get_mut(&data).unwrap()[40] ^= 1;
    let (shown, after) = run(1, &files, Work::Nothing);
    let errors = assert_right_or_errors(&shown, "no TOC and a flipped byte");
    assert!(errors.iter().all(|error| error.contains("quarantine")) && errors.len() > 40, "{errors:?}");
    for (path, content) in &files {
        if path.to_string_lossy().contains("/nb-") {
            let aside = path.parent().unwrap().join("quarantine").join(path.file_name().unwrap());
            assert_eq!(after.get(&aside), Some(content), "{}", path.display());
        }
    }
    // It stays so, until somebody has put everything back.
    let (shown, after) = run(1, &after, Work::Nothing);
    assert!(!assert_right_or_errors(&shown, "the second start").is_empty());
    let mut fixed = Files::new();
    for (path, content) in after {
        let back = PathBuf::from(path.to_string_lossy().replace("/quarantine", ""));
        fixed.insert(back, content);
    }
    fixed.get_mut(&data).unwrap()[40] ^= 1;
    let (shown, _) = run(1, &fixed, Work::Nothing);
    assert_whole(&shown);
}

#[test]
fn the_rest_of_an_sstable_without_data_is_moved_aside() {
    for shards in [1, 2] {
        let mut files = written(shards);
        let data = paths(&files, "Data.db").remove(0);
        files.remove(&data);
        let (shown, after) = run(shards, &files, Work::Nothing);
        let errors = assert_right_or_errors(&shown, "no data");
        assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("quarantine")), "{errors:?}");
        let missing: Vec<&PathBuf> = files
            .keys()
            .filter(|path| path.to_string_lossy().contains("/nb-") && !after.contains_key(*path))
            .filter(|path| {
                let aside = path.parent().unwrap().join("quarantine").join(path.file_name().unwrap());
                after.get(&aside) != files.get(*path)
            })
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn every_missing_file_is_named_or_not_needed() {
    for shards in [1, 2] {
        let files = written(shards);
        for path in sstable_files(&files) {
            let mut cut = files.clone();
            cut.remove(&path);
            let (shown, after) = run(shards, &cut, Work::Nothing);
            let errors = assert_right_or_errors(&shown, &path.display().to_string());
            for error in errors {
                let names = path.file_name().unwrap().to_string_lossy();
                assert!(error.contains(&*names) || error.contains("quarantine"), "without {names}: {error}");
            }
            // Nothing of it is gone.
            let content: Vec<&Vec<u8>> = after.values().collect();
            for (other, bytes) in cut.iter().filter(|(other, _)| other.to_string_lossy().contains("/nb-")) {
                assert!(content.contains(&bytes), "{} is gone without {}", other.display(), path.display());
            }
        }
    }
}

#[test]
fn a_node_starts_with_any_damaged_file() {
    for shards in [1, 2] {
        let files = written(shards);
        let mut errors = 0;
        for path in sstable_files(&files) {
            let len = files[&path].len();
            for at in [0, len / 7, len / 3, len / 2, len * 3 / 4, len - 1] {
                let mut damaged = files.clone();
                damaged.get_mut(&path).unwrap()[at] ^= 0x10;
                let (shown, _) = run(shards, &damaged, Work::Nothing);
                let what = format!("{} at {at}, {shards} shards", path.display());
                errors += assert_right_or_errors(&shown, &what).len();
            }
        }
        assert!(errors > 100, "{errors}");
    }
}

#[test]
fn a_changed_number_of_shards_moves_damaged_files_aside() {
    let files = written(2);
    let data = paths(&files, "Data.db").remove(0);
    let mut damaged = files.clone();
    damaged.get_mut(&data).unwrap()[100] ^= 0x10;
    let (shown, after) = run(3, &damaged, Work::Nothing);
    assert!(!assert_right_or_errors(&shown, "a flipped byte and another shard").is_empty());
    assert!(after.values().any(|content| *content == damaged[&data]));
}

#[test]
fn leftovers_of_own_writes_are_removed() {
    let mut files = written(1);
    let dir = paths(&files, "Data.db")[0].parent().unwrap().to_owned();
    for name in ["nb-90-big-TOC.txt.tmp", "nb-90-big-Data.db", "nb-90-big-Index.db"] {
        files.insert(dir.join(name), vec![1, 2, 3]);
    }
    let (shown, after) = run(1, &files, Work::Nothing);
    assert_whole(&shown);
    assert!(!after.keys().any(|path| path.to_string_lossy().contains("nb-90-")), "{:?}", after.keys());
    assert!(!after.keys().any(|path| path.starts_with(dir.join("quarantine"))));
}

#[test]
fn truncation_takes_damaged_files_along() {
    let mut files = written(1);
    let index = paths(&files, "Index.db").remove(0);
    files.remove(&index);
    let (shown, after) = run(1, &files, Work::Truncate);
    assert_eq!(shown.failures, Vec::<String>::new());
    assert_eq!(shown.scans[&0], Ok(Visible::new()));
    let in_place = |path: &&PathBuf| path.parent() == Some(index.parent().unwrap()) && is_sstable(path);
    assert_eq!(after.keys().filter(in_place).count(), 0, "{:?}", after.keys());
}

fn is_sstable(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with("nb-")
}

#[test]
fn files_of_a_format_that_cannot_be_read_are_reported() {
    let mut files = written(1);
    let dir = paths(&files, "Data.db")[0].parent().unwrap().to_owned();
    files.insert(dir.join("da-3-bti-Data.db"), vec![1, 2, 3]);
    let (shown, after) = run(1, &files, Work::Nothing);
    let errors = assert_right_or_errors(&shown, "a bti file");
    assert!(
        errors.iter().all(|error| error.contains("da-3-bti-Data.db")) && !errors.is_empty(),
        "{errors:?}"
    );
    assert!(after.contains_key(&dir.join("da-3-bti-Data.db")));
}

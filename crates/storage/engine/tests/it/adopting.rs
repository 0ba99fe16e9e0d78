//! SSTables go from one shard to another as files: only the wanted tokens, all of them or none, and nothing that was
//! truncated or deleted meanwhile comes back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Adopted, Canaries, Engine, EngineConfig, EngineSettings, Incoming, MaintenanceError, Origin, OwnedRanges,
    Staged, SyncMode, Wanted, Write,
};
use mutation::PartitionRange;
use rt::{Instant, OpenOptions, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Table, TableId};
use topology::Sharder;

use crate::model::{Change, Op, Visible, read, schema, updates};
use crate::world::{Plan, config, on_a_node};

const KEYS: i32 = 150;

fn plan(gc_grace: u32) -> Plan {
    let sync = SyncMode::Periodic { period: Duration::from_millis(20) };
    Plan { sync, canaries: Canaries::default(), gc_grace, sstables: true, ops_max: 0 }
}

/// The settings of one of several engines on a disk.
fn settings(name: &str, gc_grace: u32) -> EngineConfig {
    let under = |below: &str| PathBuf::from(format!("/{name}/{below}"));
    let mut config = EngineConfig { auto_compaction: false, ..config(&plan(gc_grace)) };
    (config.data_directory, config.commitlog.directory) = (under("data"), under("log"));
    config
}

async fn open(rt: &Rt, name: &str, gc_grace: u32) -> Engine {
    Engine::open(rt.clone(), settings(name, gc_grace), schema(gc_grace)).await.expect("the disk works")
}

fn table(gc_grace: u32) -> Arc<Table> {
    schema(gc_grace).table("ks", "t1").expect("it is in the schema").clone()
}

async fn change(rt: &Rt, engine: &Engine, table: &Arc<Table>, change: Change) {
    let op = Op { number: 1, changes: vec![change], large: false };
    for update in updates(table, &op, (rt.wall_micros() / 1_000_000) as u32) {
        engine.apply(Write::one(Origin::Client, update)).await.expect("the disk works");
    }
}

/// Writes keys in several SSTables and one memtable.
async fn fill(rt: &Rt, engine: &Engine, table: &Arc<Table>, keys: std::ops::Range<i32>) {
    for pk in keys {
        change(rt, engine, table, Change::Cell { pk, ck: 0, b: false, ts: i64::from(pk) + 1 }).await;
        if pk % 60 == 50 {
            engine.flush(table.id).await.expect("the disk works");
        }
    }
}

async fn content(engine: &Engine, table: &Arc<Table>) -> Visible {
    read(engine, table, &PartitionRange::all(), false).await.expect("the disk works")
}

fn everything() -> Wanted {
    Wanted { tokens: OwnedRanges::new([(0, 0)]), shard: 0, sharder: Sharder::new(1).into() }
}

/// The tokens below zero.
fn half() -> Wanted {
    Wanted {
        tokens: OwnedRanges::new([(i64::MIN, -1), (i64::MAX, i64::MIN)]),
        shard: 0,
        sharder: Sharder::new(1).into(),
    }
}

/// Copies a source's rows of the wanted tokens into a directory; the numbers of SSTables that were copied unchanged, and rewritten.
async fn send(
    rt: &Rt,
    source: &Engine,
    table: &Arc<Table>,
    wanted: &Wanted,
    to: &str,
) -> (Vec<Incoming>, [usize; 2]) {
    let disk = rt.disk();
    let scratch = PathBuf::from(format!("{to}/scratch"));
    disk.create_dir_all(&scratch).await.expect("the disk works");
    let held = source.hold_files(table.id).await.expect("the disk works");
    let mut sent = Vec::new();
    let mut kinds = [0, 0];
    for (number, outgoing) in
        held.select(wanted, &scratch).await.expect("the disk works").0.into_iter().enumerate()
    {
        kinds[usize::from(!outgoing.whole)] += 1;
        let folder = PathBuf::from(format!("{to}/{number}"));
        disk.create_dir_all(&folder).await.expect("the disk works");
        let mut files = Vec::new();
        for (component, len) in &outgoing.files {
            let bytes =
                disk.read_to_end(outgoing.descriptor.path(*component), 1 << 24).await.expect("it is there");
            assert_eq!(bytes.len() as u64, *len);
            let path = folder.join(component.name());
            disk.write_atomically(&path, &bytes).await.expect("the disk works");
            files.push((*component, path));
        }
        disk.sync_dir(&folder).await.expect("the disk works");
        sent.push(Incoming { files });
    }
    (sent, kinds)
}

#[test]
fn wholly_wanted_sstables_are_sent_unchanged() {
    on_a_node(1, |rt| async move {
        let (source, target, table) = (open(&rt, "a", 1000).await, open(&rt, "b", 1000).await, table(1000));
        fill(&rt, &source, &table, 0..KEYS).await;
        // Other rows of the target stay, and its cached rows are not taken for everything.
        change(&rt, &target, &table, Change::Cell { pk: 3, ck: 1, b: true, ts: 7 }).await;
        assert_eq!(content(&target, &table).await.len(), 1);
        let awaited = target.await_files(table.id).unwrap();
        let (incoming, kinds) = send(&rt, &source, &table, &everything(), "/way").await;
        assert!(kinds[0] >= 3 && kinds[1] == 0, "{kinds:?}");
        let of_target = settings("b", 1000).settings;
        target.set_settings(EngineSettings { incremental_backups: true, ..of_target.clone() });
        let adopted = target.adopt(&awaited, &incoming, &everything()).await.unwrap();
        target.set_settings(of_target);
        assert_eq!(adopted.sstables, kinds[0] as u64);
        let backups = sstable::table_dir(&settings("b", 1000).data_directory, &table).join("backups");
        let backed_up = sstable::list_complete(rt.disk(), &backups).await.unwrap();
        assert_eq!(backed_up.len(), kinds[0], "incremental backups have adopted SSTables, too");
        let mut expected = content(&source, &table).await;
        assert_eq!(expected.len(), KEYS as usize);
        change(&rt, &source, &table, Change::Cell { pk: 3, ck: 1, b: true, ts: 7 }).await;
        expected.extend(content(&source, &table).await);
        assert_eq!(content(&target, &table).await, expected);
        // Taken over once more, after another start, and merged: nothing changes.
        let again = target.adopt(&awaited, &incoming, &everything()).await.unwrap();
        assert_eq!(again, adopted);
        drop(awaited);
        target.compact(table.id).await.unwrap();
        assert_eq!(target.sstable_count(table.id), 1);
        target.stop().await.unwrap();
        let target = open(&rt, "b", 1000).await;
        assert_eq!(content(&target, &table).await, expected);
    });
}

#[test]
fn of_an_sstable_that_is_wanted_in_part_the_token_ranges_go() {
    on_a_node(2, |rt| async move {
        let (source, target, table) = (open(&rt, "a", 1000).await, open(&rt, "b", 1000).await, table(1000));
        fill(&rt, &source, &table, 0..KEYS).await;
        for wanted in [half(), Wanted { shard: 1, sharder: Sharder::new(3).into(), ..half() }] {
            let awaited = target.await_files(table.id).unwrap();
            let way = format!("/way{}", wanted.sharder.shard_count());
            let (incoming, kinds) = send(&rt, &source, &table, &wanted, &way).await;
            assert!(kinds[0] == 0 && kinds[1] >= 3, "{kinds:?}");
            target.adopt(&awaited, &incoming, &wanted).await.unwrap();
            let (found, all) = (content(&target, &table).await, content(&source, &table).await);
            let kept = |pk: &i32| wanted.contains(crate::model::key(*pk).token);
            let expected: Visible = all.into_iter().filter(|(place, _)| kept(&place.0)).collect();
            assert!(!expected.is_empty() && expected.len() < KEYS as usize);
            assert_eq!(found, expected);
            target.truncate(table.id, rt.wall_micros(), Instant::MAX).await.unwrap();
        }
    });
}

#[test]
fn unwanted_or_damaged_sstables_are_refused() {
    on_a_node(3, |rt| async move {
        let (source, target, table) = (open(&rt, "a", 1000).await, open(&rt, "b", 1000).await, table(1000));
        fill(&rt, &source, &table, 0..KEYS).await;
        let awaited = target.await_files(table.id).unwrap();
        let (incoming, _) = send(&rt, &source, &table, &everything(), "/way").await;
        let refused = target.adopt(&awaited, &incoming, &half()).await;
        assert!(matches!(refused, Err(MaintenanceError::NotWanted(_))), "{refused:?}");
        let data = &incoming[1].files.iter().find(|(one, _)| one.name() == "Data.db").unwrap().1;
        let file = rt
            .disk()
            .open(data, OpenOptions { read: true, write: true, ..OpenOptions::default() })
            .await
            .unwrap();
        let byte = file.read_exact_at(40, 1).await.unwrap()[0];
        file.write_at(40, rt::IoBuf::copy_of(&[byte ^ 1])).await.unwrap();
        let refused = target.adopt(&awaited, &incoming, &everything()).await;
        assert!(matches!(refused, Err(MaintenanceError::Source(_))), "{refused:?}");
        assert!(content(&target, &table).await.is_empty());
        // Nothing of the attempts is left.
        target.stop().await.unwrap();
        let left = rt.disk().list(sstable_dir(&table)).await.unwrap();
        assert!(
            left.iter().all(|entry| !entry.name.contains("big") && !entry.name.contains("txn")),
            "{left:?}"
        );
    });
}

fn sstable_dir(table: &Table) -> PathBuf {
    let id: String = table.id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new("/b/data").join(&table.keyspace).join(format!("{}-{id}", table.name))
}

#[test]
fn rows_truncated_or_deleted_meanwhile_do_not_come_back() {
    on_a_node(4, |rt| async move {
        // Deletions are forgotten at once.
        let (source, target, table) = (open(&rt, "a", 0).await, open(&rt, "b", 0).await, table(0));
        fill(&rt, &source, &table, 0..KEYS).await;
        let awaited = target.await_files(table.id).unwrap();
        let (incoming, _) = send(&rt, &source, &table, &everything(), "/way").await;
        for pk in 0..50 {
            change(&rt, &target, &table, Change::Partition { pk, ts: 1_000 }).await;
        }
        rt.sleep(Duration::from_secs(3)).await;
        target.compact(table.id).await.unwrap();
        target.adopt(&awaited, &incoming, &everything()).await.unwrap();
        assert_eq!(content(&target, &table).await.len(), KEYS as usize - 50);
        drop(awaited);
        target.compact(table.id).await.unwrap();
        assert_eq!(content(&target, &table).await.len(), KEYS as usize - 50);

        let awaited = target.await_files(table.id).unwrap();
        target.truncate(table.id, rt.wall_micros(), Instant::MAX).await.unwrap();
        let refused = target.adopt(&awaited, &incoming, &everything()).await;
        assert!(matches!(refused, Err(MaintenanceError::Truncated)), "{refused:?}");
        let awaited = target.await_files(table.id).unwrap();
        assert_eq!(awaited.truncated_at(), target.truncated_at(table.id));
        target.drop_table(table.id, rt.wall_micros()).await.unwrap();
        let refused = target.adopt(&awaited, &incoming, &everything()).await;
        assert!(matches!(refused, Err(MaintenanceError::UnknownTable(_))), "{refused:?}");
    });
}

/// The history of a node's lifetimes.
#[derive(Default)]
struct Lives {
    /// Whether this life is about to take files over.
    is_about_to: bool,
    /// Whether the receiver acknowledged the files.
    told: bool,
    /// Lives that found nothing, and all.
    none: u32,
    all: u32,
    failure: Option<String>,
}

async fn life(rt: Rt, lives: Arc<Mutex<Lives>>) {
    let table = table(1000);
    let target = open(&rt, "b", 1000).await;
    let found = content(&target, &table).await.len();
    {
        let mut lives = lives.lock().unwrap();
        lives.is_about_to = false;
        match found {
            0 if !lives.told => lives.none += 1,
            n if n == KEYS as usize => lives.all += 1,
            n => lives.failure = Some(format!("{n} keys, told {}", lives.told)),
        }
    }
    if found > 0 {
        return;
    }
    let source = open(&rt, "a", 1000).await;
    if content(&source, &table).await.len() < KEYS as usize {
        fill(&rt, &source, &table, 0..KEYS).await;
        source.flush(table.id).await.unwrap();
    }
    let way = format!("/way{}", rt.random_u64());
    let awaited = target.await_files(table.id).unwrap();
    let (incoming, _) = send(&rt, &source, &table, &everything(), &way).await;
    lives.lock().unwrap().is_about_to = true;
    let adopted: Adopted = target.adopt(&awaited, &incoming, &everything()).await.unwrap();
    assert!(adopted.sstables >= 3);
    lives.lock().unwrap().told = true;
    rt.sleep(Duration::from_millis(rt.random_below(3))).await;
    std::future::pending::<()>().await;
}

#[test]
fn a_crash_in_the_middle_leaves_all_of_it_or_nothing() {
    let (mut none, mut all, mut untold) = (0, 0, 0);
    for seed in 0..60 {
        let sim = Simulation::new(seed, Config::default());
        let lives = Arc::new(Mutex::new(Lives::default()));
        let shared = lives.clone();
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let shared = shared.clone();
            shard_mains(1, move |rt: Rt| life(rt, shared.clone()))
        });
        let mut rng = sim.handle().rng(9);
        sim.start(node);
        for _ in 0..12 {
            // Until files are about to be taken over, and then a little more, step by step.
            for _ in 0..4_000 {
                sim.run_for(Duration::from_micros(200));
                if lives.lock().unwrap().is_about_to {
                    break;
                }
            }
            sim.run_for(Duration::from_micros(rng.below(40_000)));
            if !lives.lock().unwrap().told {
                untold += 1;
            }
            if rng.below(2) == 0 {
                sim.crash(node)
            } else {
                sim.kill(node)
            }
            lives.lock().unwrap().is_about_to = false;
            sim.start(node);
            let all = lives.lock().unwrap().all;
            if all > 0 {
                break;
            }
        }
        sim.run_for(Duration::from_secs(5));
        let lives = lives.lock().unwrap();
        assert_eq!(lives.failure, None, "seed {seed}");
        none += lives.none;
        all += lives.all;
    }
    assert!(
        none > 60 && all >= 40 && untold > 20,
        "{none} times nothing, {all} times all, {untold} in the middle"
    );
}

/// The first step of an import of a node with one shard.
async fn stage(
    target: &Engine,
    table: TableId,
    from: &Path,
    owned: &OwnedRanges,
) -> Result<Staged, MaintenanceError> {
    let lock = target.lock_import(table).await?;
    target.begin_import(table)?;
    target.stage_import(lock, from, owned).await
}

/// SSTables of another engine, imported: rows of two imports, refusals, and the rest of the staging folder.
async fn imported(rt: Rt) -> (usize, usize, Vec<String>) {
    let table = table(864_000);
    let (source, target) = (open(&rt, "source", 864_000).await, open(&rt, "target", 864_000).await);
    fill(&rt, &source, &table, 0..KEYS).await;
    source.flush(table.id).await.expect("the disk works");
    let from = engine::table_dir(&settings("source", 864_000).data_directory, &table);
    let to = engine::table_dir(&settings("target", 864_000).data_directory, &table);
    change(&rt, &target, &table, Change::Cell { pk: KEYS, ck: 0, b: true, ts: 5 }).await;
    // A later version of a row that comes.
    change(&rt, &target, &table, Change::Cell { pk: 3, ck: 0, b: false, ts: 9_000_000 }).await;
    content(&target, &table).await;
    let owned = || OwnedRanges::new([(0, 0)]);
    for _ in 0..2 {
        let staged = stage(&target, table.id, &from, &owned()).await.expect("sound files");
        assert_eq!(staged.partitions, KEYS as u64);
        assert!(staged.sstables() >= 3);
        target.adopt_import(table.id, &staged.shards[0], owned()).await.expect("its own");
        staged.remove().await.expect("the disk works");
    }
    let mut refusals = Vec::new();
    let negative = OwnedRanges::new([(i64::MIN, -1), (i64::MAX, i64::MIN)]);
    refusals.push(stage(&target, table.id, &from, &negative).await.err().expect("refused").to_string());
    let nowhere = from.join("nowhere");
    refusals.push(stage(&target, table.id, &nowhere, &owned()).await.err().expect("refused").to_string());
    let files = rt.disk().list(&from).await.expect("the disk works");
    let data = files.iter().find(|file| file.name.ends_with("-Data.db")).expect("an SSTable");
    let toc = data.name.replace("Data.db", "TOC.txt");
    rt.disk().rename(from.join(&toc), from.join("toc")).await.expect("the disk works");
    refusals.push(stage(&target, table.id, &from, &owned()).await.err().expect("refused").to_string());
    rt.disk().rename(from.join("toc"), from.join(&toc)).await.expect("the disk works");
    let file = rt.disk().open(from.join(&data.name), OpenOptions::READ_WRITE).await.expect("the disk works");
    file.write_at(data.len / 2, rt::IoBuf::copy_of(&[0x55, 0xaa])).await.expect("the disk works");
    refusals.push(stage(&target, table.id, &from, &owned()).await.err().expect("refused").to_string());
    assert!(!rt.disk().exists(to.join("importing")).await.expect("the disk works"));

    let seen = content(&target, &table).await;
    let later = seen.get(&(3, Some(0), "a")).copied();
    assert_eq!(later, Some(9_000_000));
    target.stop().await.expect("the disk works");
    let target = open(&rt, "target", 864_000).await;
    (seen.len(), content(&target, &table).await.len(), refusals)
}

#[test]
fn sstables_of_a_directory_are_imported_or_refused_as_a_whole() {
    let (seen, after_restart, refusals) = on_a_node(11, imported);
    assert_eq!((seen, after_restart), (KEYS as usize + 1, KEYS as usize + 1));
    let expected =
        ["of which this node is no replica", "there is no directory", "has no TOC.txt", "is corrupt"];
    for (refusal, part) in refusals.iter().zip(expected) {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert_eq!(refusals.len(), 4);
}

/// While an import reads its files a compaction would purge a deletion that has to hide their rows, and a truncation comes.
async fn changed_meanwhile(rt: Rt) -> (bool, bool, String) {
    let table = table(0);
    let (source, target) = (open(&rt, "source", 0).await, open(&rt, "target", 0).await);
    change(&rt, &source, &table, Change::Cell { pk: 1, ck: 0, b: true, ts: 5 }).await;
    source.flush(table.id).await.expect("the disk works");
    let from = engine::table_dir(&settings("source", 0).data_directory, &table);
    change(&rt, &target, &table, Change::Partition { pk: 1, ts: 10 }).await;
    target.flush(table.id).await.expect("the disk works");
    rt.sleep(Duration::from_secs(5)).await;
    let owned = || OwnedRanges::new([(0, 0)]);
    let staged = stage(&target, table.id, &from, &owned()).await.expect("sound files");
    target.compact(table.id).await.expect("the disk works");
    target.adopt_import(table.id, &staged.shards[0], owned()).await.expect("its own");
    staged.remove().await.expect("the disk works");
    let is_hidden = content(&target, &table).await.is_empty();
    target.compact(table.id).await.expect("the disk works");
    let staged = stage(&target, table.id, &from, &owned()).await.expect("sound files");
    target.truncate(table.id, rt.wall_micros(), rt.now() + Duration::from_secs(60)).await.expect("in time");
    let refused = target.adopt_import(table.id, &staged.shards[0], owned()).await.unwrap_err().to_string();
    staged.remove().await.expect("the disk works");
    target.end_import(table.id);
    (is_hidden, content(&target, &table).await.is_empty(), refused)
}

#[test]
fn an_import_counts_from_its_begin() {
    let (is_hidden, is_empty, refused) = on_a_node(12, changed_meanwhile);
    assert!(is_hidden, "a deletion that the table had when the import began hides its rows");
    assert!(is_empty, "rows that were read before a truncation do not come behind it");
    assert!(refused.contains("truncated"), "{refused}");
}

//! Crashes: a small write-ahead log keeps its promise at any crash point, and the simulator catches it when it
//! does not sync.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rt::{Group, IoBuf, OpenOptions, Rt};
use rt_sim::{Config, NodeConfig, NodeId, Simulation};

use crate::single;

#[derive(Clone, Copy, PartialEq)]
enum Care {
    SyncsAll,
    ForgetsData,
    ForgetsDirectory,
}

const RECORD: usize = 700;

fn record(number: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; RECORD];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Whole records from the start of the log.
fn recover(bytes: &[u8]) -> u64 {
    bytes.chunks(RECORD).zip(1..).take_while(|(found, number)| *found == record(*number)).count() as u64
}

/// Appends records for ever; `acknowledged` counts its promises.
async fn log(rt: Rt, care: Care, acknowledged: Arc<AtomicU64>, recovered: Arc<AtomicU64>) {
    let disk = rt.disk();
    disk.create_dir_all("/log").await.unwrap();
    disk.sync_dir("/").await.unwrap();
    let mut next = 1;
    if disk.exists("/log/wal").await.unwrap() {
        next += recover(&disk.read_to_end("/log/wal", 1 << 24).await.unwrap());
    }
    recovered.store(next - 1, Ordering::Relaxed);
    let file = disk.open("/log/wal", OpenOptions::READ_WRITE).await.unwrap();
    file.set_len((next - 1) * RECORD as u64).await.unwrap();
    if care != Care::ForgetsDirectory {
        disk.sync_dir("/log").await.unwrap();
    }
    loop {
        file.write_at((next - 1) * RECORD as u64, IoBuf::copy_of(&record(next))).await.unwrap();
        if care != Care::ForgetsData {
            file.sync_data().await.unwrap();
        }
        acknowledged.store(next, Ordering::Relaxed);
        next += 1;
    }
}

/// Crashes the log a few times; whether anything acknowledged was lost.
fn loses(seed: u64, care: Care, power: bool) -> bool {
    let sim = Simulation::new(seed, Config::default());
    let acknowledged = Arc::new(AtomicU64::new(0));
    let recovered = Arc::new(AtomicU64::new(0));
    let (a, r) = (Arc::clone(&acknowledged), Arc::clone(&recovered));
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let (a, r) = (Arc::clone(&a), Arc::clone(&r));
        single(move |rt| log(rt, care, a, r))
    });
    sim.start(node);
    let mut rng = sim.rng(0);
    for _ in 0..4 {
        // Any point: also between the steps of a sync.
        sim.run_for(Duration::from_nanos(rng.below(5_000_000)));
        if power {
            sim.crash(node);
        } else {
            sim.kill(node);
        }
        let promised = acknowledged.load(Ordering::Relaxed);
        sim.start(node);
        sim.run_for(Duration::from_millis(5));
        if recovered.load(Ordering::Relaxed) < promised {
            return true;
        }
    }
    false
}

#[test]
fn synced_hints_survive_a_power_failure() {
    for seed in 0..200 {
        assert!(!loses(seed, Care::SyncsAll, true), "seed {seed}");
    }
}

#[test]
fn written_bytes_survive_the_end_of_the_process() {
    for seed in 0..50 {
        assert!(!loses(seed, Care::ForgetsData, false), "seed {seed}");
        assert!(!loses(seed, Care::ForgetsDirectory, false), "seed {seed}");
    }
}

#[test]
fn forgotten_syncs_are_caught() {
    let caught = |care| (0..50).filter(|seed| loses(*seed, care, true)).count();
    assert!(caught(Care::ForgetsData) > 25);
    assert!(caught(Care::ForgetsDirectory) > 10);
}

fn idle_node(sim: &Simulation) -> NodeId {
    sim.add_node(NodeConfig::default(), |_| single(|_| std::future::pending()))
}

struct Counts(Rc<Cell<u32>>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_crash_drops_every_task_and_releases_locks() {
    let sim = Simulation::new(3, Config::default());
    let node = idle_node(&sim);
    sim.start(node);
    let rt = sim.rt(node, rt::ShardId(0)).unwrap();
    let dropped = Rc::new(Cell::new(0));
    let locked = Rc::new(RefCell::new(None));
    for n in 0..10 {
        let (rt2, counts, locked) = (rt.clone(), Counts(Rc::clone(&dropped)), Rc::clone(&locked));
        rt.spawn(Group::Statement, async move {
            if n == 0 {
                let guard = rt2.disk().lock_exclusive("/lock").await;
                *locked.borrow_mut() = Some(guard.is_ok());
                std::future::pending::<()>().await;
                drop(guard);
            }
            rt2.sleep(Duration::from_secs(n)).await;
            std::future::pending::<()>().await;
            drop(counts);
        })
        .detach();
    }
    sim.run_for(Duration::from_secs(5));
    assert_eq!((*locked.borrow(), dropped.get()), (Some(true), 0));
    sim.crash(node);
    assert_eq!(dropped.get(), 10);
    assert!(!sim.is_running(node));
    sim.start(node);
    let rt = sim.rt(node, rt::ShardId(0)).unwrap();
    let task = rt.spawn(Group::Statement, {
        let rt = rt.clone();
        async move { rt.disk().lock_exclusive("/lock").await.is_ok() }
    });
    sim.run_for(Duration::from_secs(1));
    assert!(task.is_finished(), "the lock of a dead process is free");
}

#[test]
fn a_node_may_be_crashed_from_inside_a_task() {
    let sim = Simulation::new(4, Config::default());
    let node = idle_node(&sim);
    sim.start(node);
    let (rt, handle) = (sim.rt(node, rt::ShardId(0)).unwrap(), sim.handle());
    rt.spawn(Group::Statement, {
        let rt = rt.clone();
        async move {
            rt.sleep(Duration::from_millis(1)).await;
            handle.restart(node);
            rt.sleep(Duration::from_millis(1)).await;
            unreachable!("the node was restarted");
        }
    })
    .detach();
    sim.run_for(Duration::from_millis(10));
    assert!(sim.is_running(node));
}

#[test]
fn mains_that_return_end_the_node() {
    let sim = Simulation::new(5, Config::default());
    let node = sim.add_node(NodeConfig { shards: 3, ..NodeConfig::default() }, |info| {
        rt::shard_mains(info.shards, |rt: Rt| async move {
            if rt.shard().0 == 0 {
                rt.stop_requested().await;
            }
            u64::from(rt.shard().0) * 2
        })
    });
    sim.start(node);
    sim.run_for(Duration::from_secs(1));
    assert!(sim.is_running(node));
    sim.request_stop(node);
    sim.run_until_exit(node).unwrap();
    assert_eq!(sim.exits(node), ["0", "2", "4"]);
}

#[test]
fn a_wait_without_end_is_an_error() {
    let sim = Simulation::new(6, Config::default());
    let stalled = sim.block_on(|_| std::future::pending::<()>()).unwrap_err();
    assert!(!stalled.time_limit && stalled.to_string().contains("seed 6"), "{stalled}");
    let ticking = sim.block_on(|rt| async move {
        loop {
            rt.sleep(Duration::from_secs(60)).await;
        }
        #[allow(unreachable_code)]
        ()
    });
    assert!(ticking.unwrap_err().time_limit);
}

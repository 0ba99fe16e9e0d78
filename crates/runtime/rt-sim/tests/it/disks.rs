//! Disk faults: errors on order, a full disk, syncs that fail, corrupt sectors, short transfers.

use std::time::Duration;

use rt::{DiskOp, IoBuf, OpenOptions};
use rt_sim::{Config, DiskConfig, DiskFault, NodeConfig, Simulation};

use crate::single;

fn on_disk<F: Future<Output = ()> + 'static>(
    seed: u64,
    disk: DiskConfig,
    body: fn(rt::Rt, rt_sim::Sim) -> F,
) -> Simulation {
    let sim = Simulation::new(seed, Config::default());
    let node =
        sim.add_node(NodeConfig { disk, ..NodeConfig::default() }, |_| single(|_| std::future::pending()));
    sim.start(node);
    let rt = sim.rt(node, rt::ShardId(0)).unwrap();
    let task = rt.spawn(rt::Group::Statement, body(rt.clone(), sim.handle()));
    sim.run_until(|| task.is_finished()).unwrap();
    sim
}

#[test]
fn errors_come_when_ordered() {
    on_disk(1, DiskConfig::default(), |rt, sim| async move {
        let node = sim.node(0);
        let fault =
            |op, errno, skip, times| DiskFault { op, path_contains: "wal".into(), errno, skip, times };
        let file = rt.disk().open("/wal", OpenOptions::CREATE_NEW).await.unwrap();
        let other = rt.disk().open("/other", OpenOptions::CREATE_NEW).await.unwrap();
        sim.inject_disk_fault(node, fault(DiskOp::Write, 5, 1, 2));
        for ok in [true, false, false, true] {
            let result = file.write_at(0, IoBuf::copy_of(b"x")).await;
            assert_eq!(result.is_ok(), ok);
            if let Err(error) = result {
                assert!(error.to_string().contains("replace the disk"), "{error}");
            }
            other.write_at(0, IoBuf::copy_of(b"x")).await.unwrap();
        }
        sim.inject_disk_fault(node, fault(DiskOp::Create, 28, 0, 1));
        assert!(rt.disk().open("/wal-2", OpenOptions::CREATE_NEW).await.unwrap_err().is_disk_full());
        rt.disk().open("/wal-2", OpenOptions::CREATE_NEW).await.unwrap();
        sim.inject_disk_fault(node, fault(DiskOp::Read, 5, 0, 100));
        assert!(file.read_at(0, 1).await.is_err());
        sim.clear_disk_faults(node);
        assert_eq!(file.read_at(0, 1).await.unwrap().len(), 1);
    });
}

#[test]
fn a_full_disk_reports_it_and_recovers() {
    let disk = DiskConfig { capacity: 100 * 4096, ..DiskConfig::default() };
    on_disk(2, disk, |rt, _| async move {
        let disk = rt.disk();
        assert_eq!(disk.total_space("/").await.unwrap(), 100 * 4096);
        let first = disk.open("/first", OpenOptions::CREATE_NEW).await.unwrap();
        first.allocate(0, 60 * 4096).await.unwrap();
        assert_eq!(disk.free_space("/").await.unwrap(), 40 * 4096);
        first.write_at(0, IoBuf::zeroed(60 * 4096)).await.unwrap();
        let second = disk.open("/second", OpenOptions::CREATE_NEW).await.unwrap();
        let error = second.write_at(0, IoBuf::zeroed(41 * 4096)).await.unwrap_err();
        assert!(error.is_disk_full() && error.to_string().contains("free space"), "{error}");
        assert_eq!(second.len().await.unwrap(), 40 * 4096, "what fits was written");
        assert!(second.allocate(0, 41 * 4096).await.unwrap_err().is_disk_full());
        drop(first);
        disk.remove("/first").await.unwrap();
        disk.sync_dir("/").await.unwrap();
        second.write_at(0, IoBuf::zeroed(41 * 4096)).await.unwrap();
        assert_eq!(disk.free_space("/").await.unwrap(), 59 * 4096);
    });
}

#[test]
fn a_failed_sync_may_forget_the_data() {
    let mut lost = 0;
    for seed in 0..60 {
        let sim = on_disk(seed, DiskConfig::default(), |rt, sim| async move {
            let file = rt.disk().open("/file", OpenOptions::CREATE_NEW).await.unwrap();
            rt.disk().sync_dir("/").await.unwrap();
            file.write_at(0, IoBuf::copy_of(&[1; 512])).await.unwrap();
            let fault =
                DiskFault { op: DiskOp::Sync, path_contains: String::new(), errno: 5, skip: 0, times: 1 };
            sim.inject_disk_fault(sim.node(0), fault);
            assert!(file.sync_data().await.is_err());
            file.sync_data().await.expect("the next sync does not report it");
        });
        sim.crash(sim.node(0));
        lost += u32::from(sim.read_file(sim.node(0), "/file").unwrap() != [1; 512]);
    }
    assert!((15..45).contains(&lost), "about half: {lost}");
}

#[test]
fn corrupt_sectors_are_read_as_they_are() {
    on_disk(4, DiskConfig::default(), |rt, sim| async move {
        let file = rt.disk().open("/file", OpenOptions::CREATE_NEW).await.unwrap();
        file.write_at(0, IoBuf::zeroed(4096)).await.unwrap();
        assert!(sim.corrupt_file(sim.node(0), "/file", 1000, 600));
        let bytes = file.read_exact_at(0, 4096).await.unwrap();
        let changed: Vec<usize> = (0..4096).filter(|at| bytes[*at] != 0).collect();
        assert_eq!(changed.len(), 3, "one bit in each of the sectors touched: {changed:?}");
        assert!(changed.iter().all(|at| (1000..1600).contains(at)));
    });
}

#[test]
fn short_transfers_are_completed() {
    let disk = DiskConfig { short_per_million: 500_000, ..DiskConfig::default() };
    for seed in 0..20 {
        on_disk(seed, disk, |rt, _| async move {
            for direct in [false, true] {
                let options = if direct { OpenOptions::CREATE_NEW.direct() } else { OpenOptions::CREATE_NEW };
                let file = rt.disk().open(format!("/{direct}"), options).await.unwrap();
                let bytes: Vec<u8> = (0..65_536u32).map(|at| ((at * 7) >> 3) as u8).collect();
                file.write_at(0, IoBuf::copy_of(&bytes)).await.unwrap();
                assert_eq!(&file.read_exact_at(0, 65_536).await.unwrap()[..], &bytes[..]);
                assert_eq!(&file.read_exact_at(999, 50_000).await.unwrap()[..], &bytes[999..50_999]);
                assert_eq!(file.read_at(60_000, 50_000).await.unwrap().len(), 5536);
            }
        });
    }
}

#[test]
fn slow_operations_take_their_time() {
    let disk =
        DiskConfig { slow_per_million: 1_000_000, slow_max: Duration::from_secs(2), ..DiskConfig::default() };
    on_disk(6, disk, |rt, _| async move {
        let start = rt.now();
        let file = rt.disk().open("/file", OpenOptions::CREATE_NEW).await.unwrap();
        for _ in 0..20 {
            file.sync_data().await.unwrap();
        }
        assert!(rt.now() - start > Duration::from_secs(5));
    });
}

#[test]
fn a_new_disk_is_empty() {
    let sim = on_disk(9, DiskConfig::default(), |rt, _| async move {
        let file = rt.disk().open("/file", OpenOptions::CREATE_NEW).await.unwrap();
        file.write_at(0, IoBuf::copy_of(&[1; 512])).await.unwrap();
        file.sync_data().await.unwrap();
        rt.disk().sync_dir("/").await.unwrap();
    });
    let (sim, node) = (sim.handle(), sim.node(0));
    assert_eq!(sim.files(node).len(), 1);
    sim.kill(node);
    sim.wipe_disk(node);
    assert_eq!(sim.files(node), []);
    sim.start(node);
    assert_eq!(sim.files(node), []);
}

#[test]
fn a_restored_disk_has_the_bytes_synced_when_its_image_was_taken() {
    let simulation = on_disk(4, DiskConfig::default(), |rt, _| async move {
        rt.disk().create_dir_all("/d").await.unwrap();
        rt.disk().sync_dir("/").await.unwrap();
        rt.disk().write_atomically("/d/kept", b"old").await.unwrap();
        let file = rt.disk().open("/d/unsynced", OpenOptions::CREATE_NEW).await.unwrap();
        file.write_at(0, IoBuf::copy_of(b"x")).await.unwrap();
    });
    let (sim, node) = (simulation.handle(), simulation.node(0));
    let image = sim.disk_image(node);
    let rt = sim.rt(node, rt::ShardId(0)).unwrap();
    let disk = rt.clone();
    let later = async move {
        disk.disk().write_atomically("/d/kept", b"newer").await.unwrap();
        disk.disk().write_atomically("/d/later", b"later").await.unwrap();
    };
    let task = rt.spawn(rt::Group::Statement, later);
    simulation.run_until(|| task.is_finished()).unwrap();
    for _ in 0..2 {
        sim.kill(node);
        sim.restore_disk(node, &image);
        sim.start(node);
        assert_eq!(sim.read_file(node, "/d/kept").unwrap(), b"old");
        assert!(sim.read_file(node, "/d/unsynced").is_none_or(|bytes| bytes.is_empty()));
        assert_eq!(sim.read_file(node, "/d/later"), None);
        // Later writes are not in the image.
        let rt = sim.rt(node, rt::ShardId(0)).unwrap();
        let disk = rt.clone();
        let again = async move { disk.disk().write_atomically("/d/kept", b"again").await.unwrap() };
        let task = rt.spawn(rt::Group::Statement, again);
        simulation.run_until(|| task.is_finished()).unwrap();
        assert_eq!(sim.read_file(node, "/d/kept").unwrap(), b"again");
    }
}

//! Disks that fail, fill up and rot: a hint is stored all the same or counted as dropped, and nothing else suffers.

use hints::{HintRefused, HintsConfig, ReplayEnd, StoredHint};
use rt::DiskOp;
use rt_sim::{DiskFault, NodeId, Simulation};

use crate::world::*;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn fail(sim: &Simulation, node: NodeId, op: DiskOp, errno: i32, times: u32) {
    let path_contains = DIRECTORY.to_owned();
    sim.inject_disk_fault(node, DiskFault { op, path_contains, errno, skip: 0, times });
}

fn deliver_rest(sim: &Simulation, node: NodeId) -> Vec<u64> {
    run(sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        let (outcome, arrived) = deliver_all(&hints, 1).await;
        assert!(matches!(outcome.end, ReplayEnd::Complete), "{outcome:?}");
        hints.stop().await;
        arrived
    })
}

#[test]
fn a_write_that_failed_is_done_again() {
    for (op, errno) in [(DiskOp::Write, EIO), (DiskOp::Write, ENOSPC), (DiskOp::Create, ENOSPC)] {
        let (sim, node) = machine(1);
        fail(&sim, node, op, errno, 3);
        run(&sim, node, |rt| async move {
            let hints = open(&rt, &quick()).await;
            store(&rt, &hints, 1, 0..10);
            rt.sleep(SECOND / 2).await;
            assert_eq!(hints.store(hint(&rt, 1, 99)), Err(HintRefused::Disk));
            rt.sleep(SECOND * 5).await;
            store(&rt, &hints, 1, 10..20);
            hints.stop().await;
            assert_eq!(hints.stats().lost, 0);
            assert_eq!(hints.stats().disk_failures, 3);
            assert_eq!(hints.stats().refused_disk, 1);
        });
        sim.crash(node);
        sim.start(node);
        assert_eq!(deliver_rest(&sim, node), (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn a_sync_that_failed_and_forgot_is_made_up_for() {
    for seed in 0..20 {
        let (sim, node) = machine(seed);
        run(&sim, node, |rt| async move {
            let hints = open(&rt, &quick()).await;
            store(&rt, &hints, 1, 0..50);
            rt.sleep(SECOND).await;
            std::mem::forget(hints);
        });
        fail(&sim, node, DiskOp::Sync, EIO, 2);
        // Two periods fail, the third writes the content again.
        sim.run_for(SECOND * 35);
        sim.crash(node);
        sim.start(node);
        assert_eq!(deliver_rest(&sim, node), (0..50).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_disk_that_stays_broken_costs_hints_and_nothing_else() {
    let (sim, node) = machine(2);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        store(&rt, &hints, 1, 0..10);
        hints.sync().await.unwrap();
        std::mem::forget(hints.clone());
        hints
    });
    fail(&sim, node, DiskOp::Write, EIO, u32::MAX);
    fail(&sim, node, DiskOp::Create, EIO, u32::MAX);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        store(&rt, &hints, 1, 10..20);
        rt.sleep(SECOND).await;
        hints.stop().await;
        assert_eq!(hints.stats().lost, 10);
    });
    sim.clear_disk_faults(node);
    assert_eq!(deliver_rest(&sim, node), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_file_that_cannot_be_read_does_not_hold_the_others_up() {
    let (sim, node) = machine(3);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        store(&rt, &hints, 1, 0..300);
        hints.stop().await;
    });
    let files = hint_files(&sim, node);
    assert!(files.len() > 3, "{files:?}");
    let path_contains = files[1].clone();
    sim.inject_disk_fault(node, DiskFault { op: DiskOp::Read, path_contains, errno: EIO, skip: 0, times: 2 });
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        let (outcome, first) = deliver_all(&hints, 1).await;
        assert!(matches!(outcome.end, ReplayEnd::Disk(_)), "{outcome:?}");
        assert_eq!(hints.hosts().len(), 1);
        let (outcome, rest) = deliver_all(&hints, 1).await;
        assert!(matches!(outcome.end, ReplayEnd::Complete), "{outcome:?}");
        let mut all = [first, rest].concat();
        all.sort();
        assert_eq!(all, (0..300).collect::<Vec<_>>());
        hints.stop().await;
    });
    assert!(hint_files(&sim, node).is_empty());
}

#[test]
fn damage_costs_only_the_damaged_hints() {
    for seed in 0..50 {
        let (sim, node) = machine(seed);
        run(&sim, node, |rt| async move {
            let hints = open(&rt, &quick()).await;
            store(&rt, &hints, 1, 0..300);
            hints.stop().await;
        });
        let files = hint_files(&sim, node);
        let mut rng = sim.rng(1);
        let (file, at) = (&files[rng.below(files.len() as u64) as usize], rng.below(15_000));
        assert!(sim.corrupt_file(node, file, at, 1));
        let arrived = run(&sim, node, move |rt| async move {
            let hints = open(&rt, &quick()).await;
            let (outcome, arrived) = deliver_all(&hints, 1).await;
            assert!(matches!(outcome.end, ReplayEnd::Complete), "{outcome:?}");
            assert!(hints.stats().corruptions <= 1);
            let in_block = at < 4096;
            assert!(in_block || arrived.len() == 300 || hints.stats().corruptions == 1);
            hints.stop().await;
            arrived
        });
        assert!(arrived.len() >= 299, "one bit costs one hint at most: {}", arrived.len());
        assert!(arrived.is_sorted());
        assert!(hint_files(&sim, node).is_empty());
    }
}

#[test]
fn files_of_others_are_left_alone() {
    let (sim, node) = machine(4);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        store(&rt, &hints, 1, 0..3);
        hints.stop().await;
        let old = hints::format::file_name(host(1), 0);
        let disk = rt.disk();
        // Under the name of another host, as when somebody has copied a file; and names that are no segment's.
        disk.rename(
            format!("{DIRECTORY}/{old}"),
            format!("{DIRECTORY}/{}", hints::format::file_name(host(2), 7)),
        )
        .await
        .unwrap();
        disk.write_atomically(format!("{DIRECTORY}/readme.txt"), b"text").await.unwrap();
        let hints = open(&rt, &quick()).await;
        assert!(hints.hosts().is_empty());
        store(&rt, &hints, 1, 5..6);
        assert_eq!(deliver_all(&hints, 1).await.1, [5]);
        hints.stop().await;
    });
    assert_eq!(hint_files(&sim, node).len(), 1);
}

/// A crash may tear hints that were delivered, and leave the position behind them: those that are left are still seen, or nobody would
/// deliver them. Seed 17 of the simulator's focus `repairs` found a file that stayed for ever.
#[test]
fn torn_hints_before_the_position_do_not_hide_those_behind_it() {
    let (sim, node) = machine(8);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &HintsConfig { in_flight_max: 1, ..HintsConfig::default() }).await;
        hints.set_throttle(0);
        store(&rt, &hints, 1, 0..300);
        let refuse = |hint: StoredHint| {
            std::future::ready(if number_of(&hint) == 299 { Err("refused") } else { Ok(()) })
        };
        let outcome = hints.replay(host(1), refuse).await;
        assert_eq!(outcome.delivered, 299, "{outcome:?}");
        hints.stop().await;
    });
    let files = hint_files(&sim, node);
    assert_eq!(files.len(), 1);
    assert!(sim.corrupt_file(node, &files[0], 4_096, 4_096));
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        let kept: Vec<u64> = hints.hosts().into_iter().map(|(_, figures)| figures.count).collect();
        assert_eq!(kept, [1], "one hint is left, and known");
        let (_, arrived) = deliver_all(&hints, 1).await;
        assert_eq!(arrived, [299]);
        hints.stop().await;
    });
    assert!(hint_files(&sim, node).is_empty());
}

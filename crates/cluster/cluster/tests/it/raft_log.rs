//! The log on disk through a group of one: at any point of a power loss, everything that was acknowledged is there.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::group_world::*;

/// Creates keyspaces until the node ends, and notes those that were acknowledged.
fn create_keyspaces(
    cluster: &Cluster,
    round: u64,
    acknowledged: &Rc<RefCell<BTreeSet<String>>>,
) -> rt_sim::Begun<()> {
    let promised = Rc::clone(acknowledged);
    cluster.begin(0, move |rt, group| async move {
        for number in 0.. {
            // Longer than a page, which a later record would make dirty again.
            let name = format!("ks{round}_{number}_{}", "x".repeat(5_000));
            let base = group.applied().state.schema.version();
            let changed = group.change_schema(base, keyspace(&name), rt.now() + SECOND, |_| true).await;
            if changed.is_ok() {
                promised.borrow_mut().insert(name);
            }
        }
    })
}

#[test]
fn acknowledged_entries_survive_a_power_failure() {
    let mut restarts = 0;
    for seed in 0..25 {
        let mut cluster = Cluster::empty(1_000 + seed);
        cluster.add(Setup { snapshot_entries: 7, ..Setup::new(0) });
        let mut rng = cluster.sim.rng(1);
        let acknowledged: Rc<RefCell<BTreeSet<String>>> = Rc::default();
        for round in 0..6 {
            cluster.until("it is up", || is_in(0));
            let known = group(0).applied().state;
            for name in acknowledged.borrow().iter() {
                assert!(known.schema.keyspace(name).is_some(), "seed {seed}: {name} is gone");
            }
            let work = create_keyspaces(&cluster, round, &acknowledged);
            cluster.sim.run_for(Duration::from_micros(rng.below(60_000)));
            cluster.crash(0);
            drop(work);
            cluster.sim.start(cluster.nodes[0]);
            restarts += 1;
        }
        assert!(acknowledged.borrow().len() > 10, "seed {seed}: {}", acknowledged.borrow().len());
    }
    assert_eq!(restarts, 150);
}

/// A sync fails and the system takes its pages for clean; the process ends, and the next one reads them back from memory. The records that it
/// appends follow them.
#[test]
fn entries_read_after_a_failed_sync_are_made_durable() {
    let (mut failed, mut acked) = (0, 0);
    for seed in 0..12 {
        let mut cluster = Cluster::empty(2_000 + seed);
        cluster.add(Setup { snapshot_entries: 1_000, ..Setup::new(0) });
        let mut rng = cluster.sim.rng(1);
        let acknowledged: Rc<RefCell<BTreeSet<String>>> = Rc::default();
        for round in 0..4 {
            cluster.until("it is up", || is_in(0));
            let known = group(0).applied().state;
            for name in acknowledged.borrow().iter() {
                assert!(known.schema.keyspace(name).is_some(), "seed {seed}: {name} is gone");
            }
            let work = create_keyspaces(&cluster, round, &acknowledged);
            cluster.sim.run_for(Duration::from_micros(rng.below(30_000)));
            let of_syncs = round % 2 == 0;
            if of_syncs {
                cluster.sim.configure_disk(cluster.nodes[0], |disk| disk.sync_error_per_million = 300_000);
                cluster.sim.run_for(Duration::from_micros(rng.below(30_000)));
                failed += u32::from(!is_in(0));
                cluster.sim.configure_disk(cluster.nodes[0], |disk| disk.sync_error_per_million = 0);
                cluster.kill(0);
            } else {
                cluster.crash(0);
            }
            drop(work);
            cluster.sim.start(cluster.nodes[0]);
        }
        cluster.until("it is up", || is_in(0));
        acked += acknowledged.borrow().len();
    }
    assert!(
        failed > 10 && acked > 100,
        "only {failed} nodes met a failed sync, and {acked} keyspaces were acknowledged"
    );
}

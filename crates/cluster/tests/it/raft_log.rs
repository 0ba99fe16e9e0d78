//! The log on disk through a group of one: at any point of a power loss, everything that was acknowledged is there.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::group_world::*;

#[test]
fn what_was_acknowledged_survives_power_loss() {
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
            let promised = Rc::clone(&acknowledged);
            let work = cluster.begin(0, move |rt, group| async move {
                for number in 0.. {
                    let name = format!("ks{round}_{number}");
                    let base = group.applied().state.schema.version();
                    let changed =
                        group.change_schema(base, keyspace(&name), rt.now() + SECOND, |_| true).await;
                    if changed.is_ok() {
                        promised.borrow_mut().insert(name);
                    }
                }
            });
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

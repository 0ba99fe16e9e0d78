//! Faults of the machine while clients work: disk faults, broken links, clocks that jump, idle time.

use std::time::Duration;

use rt_sim::{DiskConfig, LinkConfig, Rng};

use crate::plan::{Sync, one_in, pick};
use crate::single::director::Director;

/// Longer than a write that was given up can take to happen after all.
const SETTLE_TIME: Duration = Duration::from_secs(4);

/// A fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskFault {
    Reads,
    Writes,
    Syncs,
    Full,
    Slow,
}

impl DiskFault {
    const ALL: [Self; 5] = [Self::Reads, Self::Writes, Self::Syncs, Self::Full, Self::Slow];

    fn apply(self, rng: &mut Rng, disk: &mut DiskConfig) {
        let rate = *pick(rng, &[3_000, 50_000, 400_000]);
        match self {
            Self::Reads => disk.read_error_per_million = rate,
            Self::Writes => disk.write_error_per_million = rate,
            Self::Syncs => disk.sync_error_per_million = rate,
            Self::Full => disk.capacity = 1,
            Self::Slow => (disk.slow_per_million, disk.slow_max) = (rate, Duration::from_millis(300)),
        }
    }
}

impl Director {
    /// Disturbs the machine until a time.
    pub(crate) async fn disturb(&mut self, until: Duration) {
        while self.sim.now() < until && !self.failed() {
            let left = until - self.sim.now();
            let pause = Duration::from_micros(self.rng.below(30_000));
            self.rt.sleep(pause.min(left)).await;
            if left <= pause {
                return;
            }
            match self.rng.below(8) {
                0 | 1 if self.plan.disk_faults => self.disk_fault().await,
                2 if self.plan.clock_jumps => self.move_clock().await,
                3 if self.plan.broken_links => {
                    let client = self.sim.client();
                    self.sim.reset_connections(client, self.node);
                }
                4 | 5 if self.plan.idles => self.pass_time().await,
                _ => {}
            }
        }
    }

    async fn disk_fault(&mut self) {
        let fault = *pick(&mut self.rng, &DiskFault::ALL);
        let now = self.world.borrow().now();
        {
            let mut world = self.world.borrow_mut();
            world.excuses.errors = true;
            world.stats.disk_faults += 1;
        }
        if matches!(fault, DiskFault::Writes | DiskFault::Syncs | DiskFault::Slow) {
            self.unsynced_since.get_or_insert(now);
        }
        let rng = &mut self.rng;
        self.sim.configure_disk(self.node, |disk| fault.apply(rng, disk));
        let length = Duration::from_micros(self.rng.below(60_000));
        self.rt.sleep(length).await;
        self.heal_disk();
        match fault {
            DiskFault::Full | DiskFault::Slow if !self.disk_failed => {
                // A full disk is no broken disk: with room again everything works, without a restart.
                self.hold().await;
                self.world.borrow_mut().excuses.errors = false;
                self.release();
            }
            _ => self.disk_failed = true,
        }
    }

    /// Faults for a start that will be cut off.
    pub(crate) fn fault_start(&mut self) {
        let fault = *pick(&mut self.rng, &DiskFault::ALL);
        self.world.borrow_mut().stats.disk_faults += 1;
        let rng = &mut self.rng;
        self.sim.configure_disk(self.node, |disk| fault.apply(rng, disk));
    }

    /// The disk works again.
    pub(crate) fn heal_disk(&mut self) {
        let healthy = self.plan.disk();
        self.sim.configure_disk(self.node, |disk| *disk = healthy);
    }

    /// Waits until no client has a request under way, and has them wait.
    async fn hold(&mut self) {
        self.world.borrow_mut().hold = true;
        while self.world.borrow().tables.iter().any(|table| table.busy > 0) && !self.failed() {
            self.rt.sleep(Duration::from_micros(200)).await;
        }
        // A request that was given up may still be executed.
        let excuses = self.world.borrow().excuses;
        if excuses.errors || excuses.connections {
            self.rt.sleep(SETTLE_TIME).await;
        }
    }

    fn release(&mut self) {
        let mut world = self.world.borrow_mut();
        world.raise_floor();
        world.all_seconds();
        world.hold = false;
    }

    /// Moves the server's clock. Tombstones may outlive their grace by that at once, so no later timestamp may lie
    /// below them.
    async fn move_clock(&mut self) {
        self.hold().await;
        // Earlier clock readings may have expired values for good, should the clock go back.
        self.world.borrow_mut().all_seconds();
        let seconds = *pick(&mut self.rng, &[1, 15, 60, 3_600, 11 * 86_400, -3, -20, -3_600]);
        self.sim.jump_clock(self.node, seconds * 1_000_000 + self.rng.below(1_000_000) as i64);
        self.release();
    }

    /// Lets time pass in which tombstones outlive their grace and values expire.
    async fn pass_time(&mut self) {
        self.hold().await;
        let length = Duration::from_millis(1_000 + self.rng.below(40_000));
        self.rt.sleep(length).await;
        self.release();
    }

    /// Links for a process lifetime: sound, or such that packets and connections are lost.
    pub(crate) fn draw_links(&mut self) {
        let broken = self.plan.broken_links && one_in(&mut self.rng, 2);
        self.world.borrow_mut().excuses.connections = self.plan.broken_links;
        let link = broken.then(|| LinkConfig {
            loss_per_million: *pick(&mut self.rng, &[0, 1_000, 10_000]),
            reset_per_million: *pick(&mut self.rng, &[0, 300, 3_000]),
            ..LinkConfig::default()
        });
        self.set_links(link);
    }

    /// Sets the links between the clients and the node; none for sound ones.
    pub(crate) fn set_links(&mut self, link: Option<LinkConfig>) {
        let client = self.sim.client();
        self.sim.set_link(client, self.node, link);
        self.sim.set_link(self.node, client, link);
    }

    /// How long before the end of a process its last acknowledged writes may be lost with power.
    pub(crate) fn loss_window(&self) -> Option<Duration> {
        match self.plan.sync {
            Sync::Periodic(period) => Some(period * 2 + Duration::from_millis(5)),
            Sync::Batch | Sync::Group(_) => None,
        }
    }
}

//! The I/O scheduler of rt over a simulated disk: shares, the limit of operations in flight, operations that are given up.

use std::time::Duration;

use rt::{Group, IoBuf, IoCapacity, IoStats, OpenOptions, Rt};
use rt_sim::{DiskConfig, NodeConfig, Simulation};

use crate::single;

const SPEED: IoCapacity =
    IoCapacity { read_iops: 10_000, read_bandwidth: 1 << 30, write_iops: 10_000, write_bandwidth: 1 << 30 };
/// So many small operations are in flight at once, each of 0.1 ms of the disk's time.
const IN_FLIGHT_MAX: usize = 4;
const WRITERS: usize = 40;

fn with_speed(speed: Option<IoCapacity>) -> (Simulation, Rt) {
    let sim = Simulation::new(7, rt_sim::Config::default());
    let goal = Duration::from_micros(100) * IN_FLIGHT_MAX as u32;
    let disk = DiskConfig { speed: speed.map(|speed| (speed, goal)), ..DiskConfig::default() };
    let config = NodeConfig { disk, ..NodeConfig::default() };
    let node = sim.add_node(config, |_| single(|_| std::future::pending()));
    sim.start(node);
    let rt = sim.rt(node, rt::ShardId(0)).unwrap();
    (sim, rt)
}

/// Tasks of a group that write without end.
fn write(rt: &Rt, group: Group) -> Vec<rt::Task<()>> {
    let one = |at: usize| {
        let inner = rt.clone();
        rt.spawn(group, async move {
            let path = format!("/{}-{at}", group.name());
            let file = inner.disk().open(path, OpenOptions::CREATE_NEW).await.unwrap();
            loop {
                file.write_at(0, IoBuf::copy_of(b"x")).await.unwrap();
            }
        })
    };
    (0..WRITERS).map(one).collect()
}

fn run_for(sim: &Simulation, rt: &Rt, time: Duration, mut each: impl FnMut()) {
    let end = rt.now() + time;
    sim.run_until(|| {
        each();
        rt.now() >= end
    })
    .unwrap();
}

fn stats(rt: &Rt, group: Group) -> IoStats {
    rt.disk().queue().stats(group)
}

#[test]
fn groups_share_the_disk_by_their_shares() {
    let (sim, rt) = with_speed(Some(SPEED));
    let tasks = [write(&rt, Group::Compaction), write(&rt, Group::Streaming)];
    let ratio = || {
        let before = [Group::Compaction, Group::Streaming].map(|group| stats(&rt, group).operations);
        run_for(&sim, &rt, Duration::from_millis(200), || {});
        let after = [Group::Compaction, Group::Streaming].map(|group| stats(&rt, group).operations);
        (after[1] - before[1]) as f64 / (after[0] - before[0]) as f64
    };
    ratio();
    // 200 shares and 100.
    let by_default = ratio();
    assert!((1.8..2.2).contains(&by_default), "{by_default}");
    rt.set_shares(Group::Compaction, 800);
    ratio();
    let changed = ratio();
    assert!((0.22..0.28).contains(&changed), "{changed}");
    drop(tasks);
}

#[test]
fn what_is_in_flight_is_limited_and_a_group_that_was_idle_goes_next() {
    let (sim, rt) = with_speed(Some(SPEED));
    let tasks = write(&rt, Group::Compaction);
    let inner = rt.clone();
    let reads = rt.spawn(Group::Statement, async move {
        let file = inner.disk().open("/read", OpenOptions::CREATE_NEW).await.unwrap();
        loop {
            inner.sleep(Duration::from_millis(2)).await;
            file.read_at(0, 1).await.unwrap();
        }
    });
    let mut most = 0;
    run_for(&sim, &rt, Duration::from_millis(400), || {
        let in_flight: usize = Group::ALL.iter().map(|group| stats(&rt, *group).in_flight).sum();
        most = most.max(in_flight);
    });
    assert_eq!(most, IN_FLIGHT_MAX);
    let (compaction, statement) = (stats(&rt, Group::Compaction), stats(&rt, Group::Statement));
    assert!(statement.operations > 150, "{statement:?}");
    let delay = |stats: &IoStats| stats.delay_ns / stats.operations;
    // One operation ends before a read begins; a write waits for those of all other writers.
    assert!(delay(&statement) < 100_000, "{statement:?}");
    assert!(delay(&compaction) > 5 * delay(&statement), "{compaction:?} {statement:?}");
    drop((tasks, reads));
}

#[test]
fn operations_that_are_given_up_leave_the_queue() {
    let (sim, rt) = with_speed(Some(SPEED));
    let tasks = write(&rt, Group::Compaction);
    run_for(&sim, &rt, Duration::from_millis(5), || {});
    assert!(stats(&rt, Group::Compaction).queued > WRITERS / 2);
    drop(tasks);
    let others = write(&rt, Group::Flush);
    run_for(&sim, &rt, Duration::from_millis(5), || {});
    let (given_up, present) = (stats(&rt, Group::Compaction), stats(&rt, Group::Flush));
    assert_eq!((given_up.queued, given_up.in_flight), (0, 0));
    assert!(present.operations > 100 && present.in_flight > 0, "{present:?}");
    drop(others);
}

#[test]
fn without_a_known_speed_nothing_waits() {
    let (sim, rt) = with_speed(None);
    let tasks = write(&rt, Group::Compaction);
    let mut queued = 0;
    run_for(&sim, &rt, Duration::from_millis(5), || queued += stats(&rt, Group::Compaction).queued);
    let all = stats(&rt, Group::Compaction);
    assert!(all.operations > 100 && all.bytes >= all.operations && queued == 0, "{all:?}");
    drop(tasks);
}

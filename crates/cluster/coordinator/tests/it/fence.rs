//! A topology change of which one coordinator does not hear: replicas refuse its writes by the previous topology version, so that
//! nothing that was acknowledged is missing in the ring of after. Coordinators that hear of it are not refused anything.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use coordinator::{Canaries, ClusterView, Consistency, Coordinator, Phase, PullFrom};
use rt::Rt;
use rt_sim::Config;

use crate::world::{
    CONFIRMS, SECOND, STARTS_WITH, World, begin, host, join, partition, row, seconds, table, texts, write,
};

/// The node that does not hear of the change.
const DEAF: usize = 0;
/// The nodes that the deaf one does not reach.
const UNREACHED: usize = 2;
pub const JOINS: usize = 3;
const KEYS: i32 = 24;
/// Seeds within which an injected bug is found.
const CANARY_SEEDS: u64 = 10;

#[derive(Clone, Copy)]
pub enum Stage {
    Before,
    Announced,
    Fetching,
    Switched,
    Over,
}

/// The cluster at a stage of a join, with the numbers that the cluster's log gives.
fn view(world: &World, own: usize, stage: Stage, alive: &[usize]) -> ClusterView {
    let joins = |node| matches!(stage, Stage::Announced | Stage::Fetching | Stage::Switched) && node == JOINS;
    let phase = |node| if joins(node) { Phase::Joining } else { Phase::Normal };
    let mut nodes = world.nodes(alive, phase);
    if matches!(stage, Stage::Before) {
        nodes.remove(JOINS);
    }
    let (made, number, fence) = match stage {
        Stage::Before => (ClusterView::new(host(own), nodes), 1, 0),
        Stage::Announced => (ClusterView::new(host(own), nodes), 2, 0),
        Stage::Fetching => (ClusterView::new(host(own), nodes), 3, 2),
        Stage::Switched => (ClusterView::switched(host(own), nodes), 4, 2),
        Stage::Over => (ClusterView::new(host(own), nodes), 5, 4),
    };
    made.expect("tokens are apart").numbered(number, fence)
}

/// Has nodes hear of a stage, and believe that all live.
pub fn tell(world: &World, nodes: &[usize], stage: Stage) {
    tell_alive(world, nodes, stage, &[0, 1, 2, 3]);
}

fn tell_alive(world: &World, nodes: &[usize], stage: Stage, alive: &[usize]) {
    for node in nodes {
        let view = view(world, *node, stage, alive);
        world.on(*node, 0, |_, coordinator| async move { coordinator.publish_view(view).await });
    }
}

#[derive(Default)]
struct Written {
    /// The latest timestamp that was acknowledged, by key.
    acknowledged: RefCell<BTreeMap<i32, i64>>,
    next: Cell<i64>,
    refused: Cell<u64>,
    over: Cell<bool>,
}

/// Writes one key after the other, again and again.
async fn writer(rt: Rt, coordinator: Coordinator, keys: std::ops::Range<i32>, written: Rc<Written>) {
    let table = table("ks", "t");
    for k in keys.cycle() {
        if written.over.get() {
            return;
        }
        let at = written.next.get() + 1;
        written.next.set(at);
        let update = row(&table, k, 0, &at.to_string(), at);
        match write(&rt, &coordinator, update, Consistency::Quorum).await {
            Ok(()) => {
                let mut acknowledged = written.acknowledged.borrow_mut();
                let known = acknowledged.entry(k).or_default();
                *known = at.max(*known);
            }
            Err(_) => written.refused.set(written.refused.get() + 1),
        }
        rt.sleep(SECOND / 50).await;
    }
}

/// Fetches as a node that joins does: failures are retried.
pub fn fetch(world: &World) {
    let table = table("ks", "t");
    world.on(JOINS, 0, |rt, coordinator| async move {
        let view = coordinator.view();
        let schema = coordinator.schema();
        let replication = &schema.keyspace("ks").expect("it is there").replication;
        for range in view.place(replication).gained(view.own()) {
            while coordinator.pull(&table, range, PullFrom::Quorum).await.is_err() {
                rt.sleep(SECOND / 10).await;
            }
        }
    });
}

fn lost(world: &World, written: &Written, reader: usize) -> Option<String> {
    let (table, now) = (table("ks", "t"), seconds(&world.sim, 0));
    for (k, at) in &*written.acknowledged.borrow() {
        for _ in 0..3 {
            let page = world.read(reader, partition(&table, *k, now), Consistency::Quorum);
            let page = page.unwrap_or_else(|error| panic!("all is well, and yet: {error}"));
            let seen = texts(&page).first().map_or(0, |(_, text)| text.parse::<i64>().expect("a number"));
            if seen < *at {
                return Some(format!("key {k}: {at} was acknowledged, {seen} is read at node {reader}"));
            }
        }
    }
    None
}

/// A node joins, and one coordinator does not hear of it: how many of that one's writes were acknowledged and how many refused.
fn run(seed: u64, canaries: Canaries) -> Result<(usize, u64), String> {
    let world = World::new(seed, &[1, 2, 1, 2], Config::default());
    // The deaf one loses ranges, too, and the change would wait until it is there to be fetched from: here it goes by.
    world.inject(Canaries { leaving_left_out: true, ..canaries });
    tell(&world, &[0, 1, 2], Stage::Before);
    let (deaf, healthy) = (Rc::new(Written::default()), Rc::new(Written::default()));
    world.sim.partition(world.sim.node(DEAF), world.sim.node(UNREACHED));
    let clients =
        [(DEAF, 0..KEYS, deaf.clone()), (1, KEYS..2 * KEYS, healthy.clone())].map(|(node, keys, written)| {
            begin(&world.sim, node, 0, move |rt, coordinator| writer(rt, coordinator, keys, written))
        });
    world.sim.run_for(SECOND);
    // The node that does not hear of the change is convicted while it lasts, and is up.
    let hear = [JOINS, 1, 2];
    tell_alive(&world, &hear, Stage::Announced, &hear);
    world.sim.run_for(2 * SECOND);
    tell_alive(&world, &hear, Stage::Fetching, &hear);
    fetch(&world);
    tell_alive(&world, &hear, Stage::Switched, &hear);
    world.sim.run_for(2 * SECOND);
    tell(&world, &hear, Stage::Over);
    world.sim.run_for(5 * SECOND);
    [&deaf, &healthy].iter().for_each(|written| written.over.set(true));
    clients.into_iter().for_each(|client| join(&world.sim, client));
    // Messages to unreachable nodes are given up.
    world.sim.run_for(3 * SECOND);
    if healthy.refused.get() > 0 {
        return Err(format!("{} writes of who heard of everything failed", healthy.refused.get()));
    }
    // Any replica may be queried: all can be reached again.
    world.sim.heal_all();
    let readers = [(&deaf, JOINS), (&healthy, JOINS), (&deaf, 1), (&deaf, UNREACHED)];
    let lost = readers.into_iter().find_map(|(written, reader)| lost(&world, written, reader));
    let acknowledged = deaf.acknowledged.borrow().len();
    lost.map_or(Ok((acknowledged, deaf.refused.get())), Err)
}

#[test]
fn writes_of_a_coordinator_that_has_not_heard_of_a_join_are_refused_and_not_lost() {
    for seed in 0..8 {
        let done = run(seed, Canaries::default());
        let (acknowledged, refused) = done.unwrap_or_else(|lost| panic!("seed {seed}: {lost}"));
        assert!(
            acknowledged > 0 && refused > 0,
            "seed {seed}: {acknowledged} keys written, {refused} refused"
        );
    }
}

#[test]
fn replicas_that_let_everybody_in_are_caught() {
    let canaries = Canaries { no_fence: true, ..Canaries::default() };
    let found = (0..CANARY_SEEDS).find_map(|seed| run(seed, canaries).err());
    let found = found.unwrap_or_else(|| panic!("not found by {CANARY_SEEDS} seeds"));
    println!("{found}");
}

#[test]
fn a_refused_coordinator_learns_of_the_ring_and_the_request_is_retried() {
    let world = World::new(5, &[2, 1, 1, 1], Config::default());
    tell(&world, &[1, 2, JOINS], Stage::Over);
    tell(&world, &[DEAF], Stage::Before);
    let (table, now) = (table("ks", "t"), seconds(&world.sim, 0));
    let (update, command) = (row(&table, 1, 1, "late", 7), partition(&table, 1, now));
    let wrote = begin(&world.sim, DEAF, 1, |rt, coordinator| async move {
        write(&rt, &coordinator, update, Consistency::Quorum).await
    });
    let read = begin(&world.sim, DEAF, 0, |rt, coordinator| async move {
        coordinator.read(&command, Consistency::Quorum, rt.now() + 2 * SECOND).await
    });
    world.sim.run_for(SECOND);
    assert!(!wrote.is_finished() && !read.is_finished(), "they wait for the ring");
    tell(&world, &[DEAF], Stage::Over);
    join(&world.sim, wrote).expect("it is written by the later ring");
    join(&world.sim, read).expect("it is read by the later ring");
    let page = world.read(2, partition(&table, 1, now), Consistency::Quorum).expect("all is well");
    assert_eq!(texts(&page), [(1, "late".to_owned())]);
    let waited = world.on(DEAF, 1, |_, coordinator| async move { coordinator.replication_stats().caught_up });
    let refused =
        world.on(2, 0, |_, coordinator| async move { coordinator.replication_stats().refused_old_ring });
    assert!(waited >= 1 && refused >= 1, "{waited} waited, {refused} refused");
}

/// A node that has restarted serves replica requests before it has published a view: its first view refuses stale topology versions already.
#[test]
fn a_restarted_node_refuses_stale_requests_before_its_first_view_is_published() {
    STARTS_WITH.set(Some((2, 5, 4)));
    let world = World::new(41, &[1, 1, 1], Config::default());
    STARTS_WITH.set(None);
    let table = table("ks", "t");
    let refused = |world: &World| {
        world.on(2, 0, |_, coordinator| async move { coordinator.replication_stats().refused_old_ring })
    };
    assert_eq!(refused(&world), 0);
    world.write(0, row(&table, 1, 0, "a", 1), Consistency::All).expect_err("one replica refuses");
    assert!(refused(&world) > 0);
    assert!(world.kept(2, partition(&table, 1, seconds(&world.sim, 0))).is_empty());
}

/// Nothing confirms to a node that follows no log yet that it has heard everything.
#[test]
fn a_node_without_a_log_confirms_nothing_while_the_topology_changes() {
    CONFIRMS.set(false);
    let world = World::new(42, &[1, 1, 1, 1], Config::default());
    CONFIRMS.set(true);
    let (table, now) = (table("ks", "t"), seconds(&world.sim, 0));
    tell(&world, &[0, 1, 2, JOINS], Stage::Announced);
    let reads = |world: &World| {
        let read = |k: i32| world.read(0, partition(&table, k, now), Consistency::Quorum).is_ok();
        (0..KEYS).filter(|k| read(*k)).count()
    };
    let without = reads(&world);
    assert!(without < KEYS as usize, "{without} reads of moving replicas are not confirmed");
    world.on(0, 0, |_, coordinator| async move {
        coordinator.confirm_with(Box::new(|_| Box::pin(async { true })));
    });
    world.sim.run_for(2 * SECOND);
    assert_eq!(reads(&world), KEYS as usize);
}

//! The cost to a shard of a large cluster of a change of live nodes or of the topology version: the figures of docs/design/topology.md.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use coordinator::{ClusterView, Consistency, Phase, Replicated, ViewNode};
use rt_sim::Config;
use schema::Replication;
use topology::{HostId, Location};

use crate::world::*;

const NODES: u16 = 1_000;
const TOKENS: u64 = 16;
/// The default of `num_tokens` in older clusters.
const MANY_TOKENS: u64 = 256;
const KEYSPACES: u8 = 20;
/// The best of so many runs is judged, to exclude other load of the host.
const RUNS: usize = 5;
/// Time of a core, at opt-level 1, for each node's change that a shard hears of: it hears of one in a second at most, on the average.
const COST_MAX: Duration = Duration::from_millis(10);

/// Time of a core, at opt-level 1, that the first request of a keyspace takes until it waits for replicas.
const POLL_MAX: Duration = Duration::from_millis(1);
/// The same for the longest poll while a shard makes the placements of another view and takes them over.
const PUBLISH_POLL_MAX: Duration = Duration::from_millis(10);
/// The same for a node's lookups in its placements at a step of a topology change.
const ASKED_MAX: Duration = Duration::from_millis(400);

/// A thousand nodes in three racks with so many tokens; which of them live depends on `turn`.
fn nodes(turn: u16, tokens: u64) -> Vec<ViewNode> {
    let node = |nth: u16| {
        let mut id = [7; 16];
        id[..2].copy_from_slice(&nth.to_be_bytes());
        // Anything that spreads.
        let token =
            |turn: u64| (u64::from(nth) * tokens + turn + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        let [high, low] = nth.to_be_bytes();
        ViewNode {
            host: if nth == 0 { host(0) } else { HostId(id) },
            native: ([10, 1, high, low], 9042).into(),
            internode: ([10, 1, high, low], 7000).into(),
            location: Location::new("dc1", format!("rack{}", nth % 3)),
            shards: 1,
            tokens: (0..tokens).map(token).collect(),
            alive: nth != turn,
            ready: true,
            release_version: "5.0.6".to_owned(),
            schema_version: None,
            phase: Phase::Normal,
        }
    };
    (0..NODES).map(node).collect()
}

/// The least that something takes, given the number of the run.
fn least(mut run: impl FnMut(u16) -> Duration) -> Duration {
    (1..=RUNS as u16).map(|turn| run(turn)).min().expect("there are runs")
}

#[test]
fn a_view_of_a_thousand_nodes_is_made_and_taken_over_quickly() {
    let world = World::new(1, &[1], Config::default());
    let made = least(|turn| {
        let nodes = nodes(turn, TOKENS);
        let began = Instant::now();
        let view = ClusterView::new(host(0), nodes).expect("tokens are apart");
        let took = began.elapsed();
        assert_eq!(view.nodes().len(), usize::from(NODES));
        took
    });
    let taken_over = least(|turn| {
        let view = Arc::new(ClusterView::new(host(0), nodes(turn, TOKENS)).expect("tokens are apart"));
        let began = Instant::now();
        coordinator(0, 0).use_view(view);
        began.elapsed()
    });
    // A wait for all live nodes checks the liveness of each.
    let view = ClusterView::new(host(0), nodes(1, TOKENS)).expect("tokens are apart");
    let asked = least(|_| {
        let began = Instant::now();
        let alive = view.nodes().iter().filter(|node| view.is_alive_host(node.host)).count();
        assert_eq!(alive, usize::from(NODES) - 1);
        began.elapsed()
    });
    println!(
        "{NODES} nodes: a view is made in {made:?}, taken over in {taken_over:?}, asked of all hosts in {asked:?}"
    );
    drop(world);
    assert!(made + taken_over + asked <= COST_MAX, "{made:?}, {taken_over:?}, {asked:?}");
}

/// The view of many tokens after another, while the last node joins or when it has joined.
fn joining(
    before: &ClusterView,
    joins: bool,
    keyspaces: &[(String, Replication)],
    number: u64,
) -> ClusterView {
    let mut nodes = nodes(1, MANY_TOKENS);
    if joins {
        nodes.last_mut().expect("there are nodes").phase = Phase::Joining;
    }
    let replicated = |now: &Replication| Replicated { now: now.clone(), other: None };
    let keyspaces = keyspaces.iter().map(|(name, now)| (name.clone(), replicated(now)));
    let view = ClusterView::after(before, nodes, false).expect("tokens are apart");
    view.numbered(number, 0).replicating(keyspaces.collect())
}

/// How long a future's longest poll took, and all of them.
async fn polled<T>(longest: &Cell<Duration>, future: impl Future<Output = T>) -> (T, Duration) {
    let (mut future, mut all) = (pin!(future), Duration::ZERO);
    let out = poll_fn(|cx| {
        let began = Instant::now();
        let polled = future.as_mut().poll(cx);
        longest.set(longest.get().max(began.elapsed()));
        all += began.elapsed();
        polled
    });
    (out.await, all)
}

/// How long the first write of each of the added keyspaces needs until it waits for replicas, at most.
fn first_poll_max(world: &World) -> Duration {
    world.on(0, 0, |rt, coordinator| async move {
        let mut longest = Duration::ZERO;
        for nth in 0..KEYSPACES {
            let update = row(&table(&format!("more{nth}"), "t"), 1, 1, "text", 1);
            let mut write = pin!(write(&rt, &coordinator, update, Consistency::One));
            let first = poll_fn(|cx| {
                let began = Instant::now();
                let _ = write.as_mut().poll(cx);
                Poll::Ready(began.elapsed())
            });
            longest = longest.max(first.await);
        }
        longest
    })
}

/// A topology change computes the placements of 20 keyspaces, each of a replication of its own, before requests use it: the first request of
/// each finds its own.
#[test]
fn a_request_after_a_topology_change_computes_no_placement() {
    MORE_KEYSPACES.set(KEYSPACES);
    let world = World::new(1, &[1], Config::default());
    let keyspaces: Rc<Vec<(String, Replication)>> = Rc::new(
        schema().keyspaces().map(|keyspace| (keyspace.name.clone(), keyspace.replication.clone())).collect(),
    );
    let publish = |number: u64| {
        let keyspaces = keyspaces.clone();
        world.on(0, 0, move |_, coordinator| async move {
            let began = Instant::now();
            let view = joining(&coordinator.view(), number % 2 == 0, &keyspaces, number);
            let (made, longest) = (began.elapsed(), Cell::new(Duration::ZERO));
            let ((), all) = polled(&longest, coordinator.publish_view(view)).await;
            (made, all, longest.get())
        })
    };
    let (made, first, _) = publish(1);
    println!(
        "{NODES} nodes of {MANY_TOKENS} tokens, {KEYSPACES} replications: a view is made in {made:?}, placed anew in {first:?}"
    );
    let (mut waited, mut polls) = (Vec::new(), Vec::new());
    for number in 2..2 + RUNS as u64 {
        let (made, all, longest) = publish(number);
        let poll = first_poll_max(&world);
        println!(
            "a join: a view is made in {made:?}, placed in {all:?}, {longest:?} a poll; the first requests' polls: {poll:?}"
        );
        waited.push(poll);
        polls.push(longest);
    }
    let unplaced = first_poll_of_a_view_without_placements(&world, &keyspaces);
    println!("a request that computes its keyspace's placement: {unplaced:?}");
    let poll_max = waited.into_iter().min().expect("there are runs");
    assert!(poll_max <= POLL_MAX, "{poll_max:?}");
    let longest = polls.into_iter().min().expect("there are runs");
    assert!(longest <= PUBLISH_POLL_MAX, "{longest:?} in one poll");
    MORE_KEYSPACES.set(0);
}

/// The same where the view comes without placements, as a test's may.
fn first_poll_of_a_view_without_placements(world: &World, keyspaces: &[(String, Replication)]) -> Duration {
    let view = ClusterView::new(host(0), nodes(1, MANY_TOKENS)).expect("tokens are apart");
    let replicated = |now: &Replication| Replicated { now: now.clone(), other: None };
    let keyspaces = keyspaces.iter().map(|(name, now)| (name.clone(), replicated(now)));
    let view = Arc::new(view.numbered(100, 0).replicating(keyspaces.collect()));
    world.on(0, 0, |_, coordinator| async move { coordinator.use_view(view) });
    first_poll_max(world)
}

/// The cost of a change of liveness, and of a look at a topology change that is under way, where nodes have 256 tokens.
#[test]
fn a_node_of_many_tokens_that_is_convicted_changes_no_ring() {
    MORE_KEYSPACES.set(KEYSPACES);
    let world = World::new(1, &[1], Config::default());
    let schema = schema();
    let keyspaces: Vec<(String, Replication)> =
        schema.keyspaces().map(|keyspace| (keyspace.name.clone(), keyspace.replication.clone())).collect();
    let first = joining(&coordinator(0, 0).view(), true, &keyspaces, 1);
    world.on(0, 0, |_, coordinator| async move { coordinator.publish_view(first).await });
    let view = coordinator(0, 0).view();
    let convicted = |turn: u16| {
        let mut nodes = nodes(turn, MANY_TOKENS);
        nodes.last_mut().expect("there are nodes").phase = Phase::Joining;
        nodes
    };
    let anew = least(|turn| {
        let nodes = convicted(turn);
        let began = Instant::now();
        drop(ClusterView::new(host(0), nodes).expect("tokens are apart"));
        began.elapsed()
    });
    let after = least(|turn| {
        let nodes = convicted(turn + 1);
        let began = Instant::now();
        let after = ClusterView::after(&view, nodes, false).expect("tokens are apart");
        let took = began.elapsed();
        assert!(!after.places_as(&view), "it does not replicate yet");
        took
    });
    let taken_over = least(|turn| {
        let after = ClusterView::after(&view, convicted(turn + 1), false).expect("tokens are apart");
        let replicated = |now: &Replication| Replicated { now: now.clone(), other: None };
        let keyspaces = keyspaces.iter().map(|(name, now)| (name.clone(), replicated(now)));
        let after = Arc::new(after.numbered(view.topology_version(), 0).replicating(keyspaces.collect()));
        let began = Instant::now();
        coordinator(0, 0).use_view(after);
        began.elapsed()
    });
    let asked = least(|_| {
        let began = Instant::now();
        let placed =
            view.place_each(schema.keyspaces().filter(|keyspace| !keyspace.name.starts_with("more")));
        let pending = placed.iter().flat_map(|(_, copies)| copies.pending_nodes()).count();
        assert!(pending > 0);
        began.elapsed()
    });
    println!(
        "{NODES} nodes of {MANY_TOKENS} tokens: a view is made anew in {anew:?}, after another in {after:?}, taken over in {taken_over:?}; \
         who gains ranges of three replications is found in {asked:?}"
    );
    assert!(after + taken_over <= COST_MAX, "{after:?}, {taken_over:?}");
    assert!(asked <= ASKED_MAX, "{asked:?}");
    MORE_KEYSPACES.set(0);
}

//! Clusters of up to fifty nodes under loss, partitions, pauses, crashes and restarts: the figures of docs/design/gossip.md.

use std::time::Duration;

use gossip::{Change, DownReason, Effect, Key, Message, Standing};
use testkit::fuzz::Random;

use crate::world::{World, address, host};

/// A dead node is convicted everywhere within this time: in a cluster of three, and in one of up to fifty, where news
/// take longer and the detector allows for that.
const CONVICTION_MAX_SMALL: Duration = Duration::from_secs(22);
const CONVICTION_MAX: Duration = Duration::from_secs(32);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Rounds within which news are everywhere, without loss.
fn rounds_max(nodes: usize) -> usize {
    2 * nodes.ilog2() as usize + 4
}

#[test]
fn a_cluster_finds_itself_in_logarithmic_time() {
    for nodes in [2, 3, 8, 20, 50] {
        let mut worst = 0;
        for seed in 0..5 {
            let mut world = World::new(seed);
            (0..nodes).for_each(|node| world.start(node));
            let rounds = world.rounds_until(60, |world| world.agrees() && world.converged());
            worst = worst.max(rounds.expect("it finds itself"));
        }
        println!("{nodes} nodes know each other after {worst} rounds");
        assert!(worst <= rounds_max(nodes), "{nodes} nodes took {worst} rounds");
    }
}

#[test]
fn news_spread_in_logarithmic_time() {
    for (nodes, seeds) in [(3, 5), (8, 5), (20, 5), (50, 5), (200, 1)] {
        let (mut worst, mut worst_lossy) = (0, 0);
        for seed in 0..seeds {
            let mut world = World::acquainted(seed, nodes);
            world.run(seconds(10));
            for (lost_permille, worst) in [(0, &mut worst), (100, &mut worst_lossy)] {
                world.lost_permille = lost_permille;
                for news in 0..4 {
                    let node = (seed as usize * 7 + news * 3) % nodes;
                    world.set(node, Key::LOAD, &format!("{lost_permille} {news}"));
                    let rounds = world.rounds_until(60, World::converged);
                    *worst = (*worst).max(rounds.expect("news spread"));
                }
            }
        }
        println!("{nodes} nodes: news are everywhere after {worst} rounds, {worst_lossy} under 10 % loss");
        assert!(worst <= rounds_max(nodes) && worst_lossy <= rounds_max(nodes) + 3);
    }
}

#[test]
fn the_dead_are_convicted_in_time() {
    for (nodes, dead, lost_permille) in [(3, 1, 0), (3, 1, 100), (20, 3, 100), (50, 10, 0), (50, 5, 100)] {
        let (mut first, mut last) = (Duration::MAX, Duration::ZERO);
        for seed in 0..5 {
            let mut world = World::settled(seed, nodes);
            world.lost_permille = lost_permille;
            // Not before the detector knows the rhythm under loss.
            world.run(seconds(120));
            let from = world.now;
            (0..dead).for_each(|node| world.kill(node));
            world.run(CONVICTION_MAX);
            assert!(world.agrees(), "{nodes} nodes, {dead} dead: {:?}", world.disagreement());
            let convictions = world.convictions();
            assert_eq!(convictions.len(), dead * (nodes - dead), "each once by each");
            for noticed in convictions {
                first = first.min(noticed.at - from);
                last = last.max(noticed.at - from);
            }
        }
        println!("{nodes} nodes, {dead} die, {lost_permille} ‰ lost: convicted after {first:?} to {last:?}");
        assert!(nodes > 3 || last <= CONVICTION_MAX_SMALL, "after {last:?}");
        assert!(first > seconds(15), "a node that was silent for {first:?} may still be slow");
    }
}

/// One node had a connection to a process that ended; all others hear of it and look for themselves.
#[test]
fn an_ended_process_is_convicted_by_all_in_less_than_two_seconds() {
    for (nodes, seeds) in [(2, 5), (12, 5), (50, 3), (200, 1)] {
        let mut last = Duration::ZERO;
        for seed in 0..seeds {
            let mut world = World::acquainted(seed, nodes);
            world.run(seconds(5));
            world.lost_permille = 100;
            let (from, generation) = (world.now, world.gossip(1).own().generation);
            world.kill(1);
            world.look(0, host(1), address(1), generation);
            world.run(seconds(2));
            assert!(world.agrees(), "{nodes} nodes, seed {seed}: {:?}", world.disagreement());
            let convictions = world.convictions();
            assert_eq!(convictions.len(), nodes - 1, "each once by each");
            last = convictions.iter().map(|noticed| noticed.at - from).fold(last, Duration::max);
            // News of before that still travel bring it back for nobody.
            world.run(seconds(10));
            assert_eq!(world.convictions().len(), nodes - 1);
        }
        println!("{nodes} nodes, one process ends: convicted by all after {last:?}");
    }
}

/// The word of another node convicts nobody: each looks for itself.
#[test]
fn a_rumour_of_an_end_convicts_nobody() {
    let mut world = World::settled(3, 20);
    for _ in 0..10 {
        for by in 2..20 {
            // Node 0 is paused, node 1 runs, and all are notified that both have ended.
            world.pause(0);
            for gone in [0, 1] {
                let (host, generation) = (host(gone), world.gossip(gone).own().generation);
                world.hear(by, Message::Gone { host, generation });
            }
        }
        world.run(seconds(5));
        world.resume(0);
        world.run(seconds(5));
    }
    assert_eq!(world.noticed.len(), 0, "{:?}", world.noticed.first());
    assert!(world.agrees());
}

#[test]
fn a_node_that_dies_soon_after_its_start_is_convicted_in_time() {
    for nodes in [3, 8] {
        for age in [0, 1, 3, 10, 30] {
            let mut last = Duration::ZERO;
            for seed in 0..5 {
                let mut world = World::new(seed);
                (0..nodes).for_each(|node| world.start(node));
                world.rounds_until(60, World::agrees).expect("it finds itself");
                world.run(seconds(age));
                let from = world.now;
                world.kill(nodes - 1);
                world.run(CONVICTION_MAX);
                assert!(world.agrees(), "{nodes} nodes of {age} s: {:?}", world.disagreement());
                last = world.convictions().iter().map(|noticed| noticed.at - from).fold(last, Duration::max);
            }
            println!("{nodes} nodes, one dies after {age} s: convicted after {last:?}");
        }
    }
}

#[test]
fn nobody_is_convicted_for_being_young() {
    for (seed, nodes) in (0..40).map(|seed| (seed, [3, 8, 20, 50][seed as usize % 4])) {
        let mut world = World::new(seed);
        world.lost_permille = 100;
        (0..nodes).for_each(|node| world.start(node));
        world.run(seconds(90));
        assert_eq!(world.convictions().len(), 0, "{nodes} nodes, seed {seed}");
        assert!(world.agrees());
    }
}

#[test]
fn nobody_is_convicted_for_a_lossy_network() {
    for (seed, nodes, rounds) in [(1, 50, 1_000), (2, 12, 5_000), (3, 3, 20_000)] {
        let mut world = World::settled(seed, nodes);
        world.lost_permille = 100;
        world.run(seconds(rounds));
        assert_eq!(world.noticed.len(), 0, "{:?}", world.noticed.first());
        assert!(world.agrees());
    }
}

#[test]
fn a_healed_partition_converges() {
    // Half and half; one alone; the seed alone; three parts; one direction only.
    type Blocked = fn(usize, usize) -> bool;
    let cases: [(&str, Blocked, fn(usize) -> usize); 4] = [
        ("half", |a, b| (a < 15) != (b < 15), |node| usize::from(node < 15)),
        ("one alone", |a, b| (a == 7) != (b == 7), |node| usize::from(node == 7)),
        ("the seed alone", |a, b| (a == 0) != (b == 0), |node| usize::from(node == 0)),
        ("three parts", |a, b| a % 3 != b % 3, |node| node % 3),
    ];
    for (name, blocked, part) in cases {
        let mut world = World::settled(4, 30);
        world.blocked = Box::new(blocked);
        world.run(seconds(90));
        for at in 0..30 {
            for other in (0..30).filter(|other| *other != at) {
                let standing = world.gossip(at).peer(host(other)).unwrap().standing;
                let expected = match part(at) == part(other) {
                    true => Standing::Alive,
                    false => Standing::Down(DownReason::Convicted),
                };
                assert_eq!(standing, expected, "{name}: {other} as {at} sees it");
            }
            world.set(at, Key::LOAD, "said meanwhile");
        }
        world.blocked = Box::new(|_, _| false);
        let rounds = world.rounds_until(60, |world| world.agrees() && world.converged());
        println!("{name}: whole again after {rounds:?} rounds");
        assert!(rounds.expect("the parts find each other") <= 15);
    }
}

#[test]
fn a_node_that_cannot_be_reached_is_not_taken_for_alive() {
    let mut world = World::settled(5, 5);
    // News of node 4 come through the others, but node 3 cannot reach it.
    world.kill(4);
    world.run(seconds(30));
    world.blocked = Box::new(|from, to| from == 3 && to == 4 || from == 4 && to == 3);
    world.start(4);
    world.run(seconds(30));
    let known = world.gossip(3).peer(host(4)).unwrap();
    assert_eq!(known.standing, Standing::Down(DownReason::NotReached));
    assert!(known.endpoint.heartbeat > 20, "its news arrive");
    assert_eq!(world.gossip(2).peer(host(4)).unwrap().standing, Standing::Alive);
    world.blocked = Box::new(|_, _| false);
    world.run(seconds(10));
    assert!(world.agrees());
}

#[test]
fn a_node_that_stood_still_convicts_nobody() {
    for pause in [3, 10, 17, 60, 600] {
        let mut world = World::settled(6, 10);
        world.pause(3);
        world.run(seconds(pause));
        let convicted = world.convictions();
        assert!(convicted.iter().all(|noticed| noticed.whom == host(3) && noticed.by != 3));
        assert_eq!(convicted.len(), if pause >= 60 { 9 } else { 0 }, "after {pause} s");
        world.resume(3);
        let rounds = world.rounds_until(10, World::agrees);
        assert!(rounds.is_some(), "back after {pause} s: {:?}", world.disagreement());
        world.run(seconds(60));
        assert_eq!(world.convictions().len(), convicted.len(), "a pause of {pause} s convicts nobody else");
        assert_eq!(world.gossip(3).stats().pauses, u64::from(pause > 5));
    }
}

#[test]
fn a_node_that_announces_its_shutdown_is_down_at_once() {
    let mut world = World::settled(7, 20);
    world.stop(5);
    world.run(Duration::from_millis(100));
    assert!(world.agrees(), "{:?}", world.disagreement());
    assert!(
        world.noticed.iter().all(|noticed| noticed.change == Change::Down(DownReason::Shutdown)
            || noticed.change == Change::States)
    );
    // When some do not hear it, the others tell them.
    world.lost_permille = 500;
    world.stop(6);
    world.lost_permille = 0;
    let rounds = world.rounds_until(10, World::agrees);
    assert!(rounds.is_some_and(|rounds| (1..=8).contains(&rounds)), "{rounds:?}");
    world.run(seconds(60));
    assert_eq!(world.convictions().len(), 0);
    world.start(5);
    assert!(world.rounds_until(rounds_max(20), World::agrees).is_some());
}

#[test]
fn a_restart_at_another_address_is_followed() {
    let mut world = World::settled(8, 10);
    world.kill(4);
    world.run(seconds(2));
    // Quicker than anybody could convict it.
    world.start_as(4, host(4), address(99), world.wall());
    let found = world.rounds_until(rounds_max(10), |world| world.agrees() && world.converged());
    assert!(found.is_some(), "{:?}", world.disagreement());
    for node in (0..10).filter(|node| *node != 4) {
        assert_eq!(world.gossip(node).peer(host(4)).unwrap().endpoint.address, address(99));
    }
    assert_eq!(world.warnings.len(), 0, "{:?}", world.warnings);
}

#[test]
fn a_clock_that_went_back_does_not_hide_a_restart() {
    for same_address in [true, false] {
        let mut world = World::settled(9, 6);
        let before = world.gossip(2).own().generation;
        world.kill(2);
        world.run(seconds(30));
        let address = if same_address { address(2) } else { address(77) };
        world.start_as(2, host(2), address, before - 3_600);
        world.run(seconds(40));
        assert!(world.agrees(), "{:?}", world.disagreement());
        assert_eq!(world.gossip(2).own().generation, before + 1);
        let raised = Effect::Generation(before + 1);
        assert_eq!(world.warnings, [(2, raised)], "the next start must be later still");
    }
}

#[test]
fn the_same_host_id_twice_is_reported_to_the_older() {
    let mut world = World::settled(10, 6);
    let generation = world.wall();
    world.start_as(6, host(2), address(6), generation);
    world.run(seconds(30));
    let taken = Effect::HostIdTaken { address: address(6), generation };
    assert_eq!(world.warnings, [(2, taken)]);
    for node in [0, 1, 3, 4, 5] {
        assert_eq!(world.gossip(node).peer(host(2)).unwrap().endpoint.address, address(6));
    }
    world.kill(2);
    world.run(seconds(60));
    assert!(world.agrees(), "{:?}", world.disagreement());
}

#[test]
fn twins_of_one_second_do_not_stay_mixed() {
    let mut world = World::settled(11, 5);
    let generation = world.wall();
    world.start_as(5, host(5), address(5), generation);
    world.start_as(6, host(5), address(6), generation);
    world.run(seconds(30));
    let told: Vec<usize> = world
        .warnings
        .iter()
        .filter(|(_, effect)| matches!(effect, Effect::HostIdTaken { .. }))
        .map(|(node, _)| *node)
        .collect();
    assert_eq!(told, [5], "one of them is notified, {:?}", world.warnings);
    world.kill(5);
    world.run(seconds(30));
    assert!(world.agrees() && world.converged(), "{:?}", world.disagreement());
}

#[test]
fn faults_without_end_and_then_none() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let nodes = 3 + random.below(13);
        let mut world = World::settled(seed, nodes);
        world.seeds = vec![address(0), address(1)];
        for _ in 0..40 {
            let node = random.below(nodes);
            match random.below(9) {
                0 => world.kill(node),
                1 if world.running().contains(&node) => world.stop(node),
                2 | 3 if !world.running().contains(&node) => world.start(node),
                4 => world.pause(node),
                5 => (0..nodes).for_each(|node| world.resume(node)),
                6 => {
                    let cut = random.below(nodes);
                    world.blocked = Box::new(move |from, to| (from < cut) != (to < cut));
                }
                7 => {
                    let deaf = random.below(nodes);
                    world.blocked = Box::new(move |_, to| to == deaf);
                }
                _ => world.blocked = Box::new(|_, _| false),
            }
            world.lost_permille = random.below(300) as u64;
            world.run(Duration::from_millis(random.below(20_000) as u64));
        }
        world.blocked = Box::new(|_, _| false);
        world.lost_permille = 0;
        (0..nodes).for_each(|node| world.resume(node));
        // Nobody finds anybody without a seed.
        for seed in [0, 1] {
            if !world.running().contains(&seed) {
                world.start(seed);
            }
        }
        world.run(seconds(60));
        assert!(
            world.agrees() && world.converged(),
            "seed {seed}, {nodes} nodes: {:?}",
            world.disagreement()
        );
    }
}

#[test]
fn a_seed_decides_everything() {
    let trace = |seed| {
        let mut world = World::settled(seed, 8);
        world.lost_permille = 200;
        world.kill(3);
        world.run(seconds(30));
        world.start(3);
        world.run(seconds(30));
        format!("{:?}", world.noticed)
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

/// Where nodes know different generations, the short exchange becomes a full one in the same round: a joining or restarted node in a large
/// cluster is known as fast as news are.
#[test]
fn other_lives_are_found_out_in_a_large_cluster() {
    let mut world = World::acquainted(5, 100);
    world.run(seconds(10));
    for (node, generation) in [(100, 0), (40, 7), (41, 9)] {
        world.kill(node);
        let generation = world.wall() + generation;
        world.start_as(node, host(node), address(node), generation);
    }
    let rounds = world.rounds_until(60, |world| world.agrees() && world.converged());
    println!("100 nodes, one joins and two restart: known after {rounds:?} rounds");
    assert!(rounds.is_some_and(|rounds| rounds <= rounds_max(100)), "{rounds:?}");
    assert_eq!(world.convictions().len(), 0);
}

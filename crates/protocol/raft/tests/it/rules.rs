//! Single rules of a node, step by step.

use bytes::Bytes;
use raft::{
    BadLog, Change, Config, Entry, HardState, Membership, Message, Node, Payload, Refused, Role, Snapshot,
    Stored, Unacceptable,
};

use crate::world::{Bug, World};

fn alone() -> World {
    let mut world = World::new(1, 1, Bug::None);
    world.on(1, Node::campaign);
    world.pump(1, 0);
    world
}

/// Ticks and delivers everything until `done`.
fn until(world: &mut World, what: &str, done: impl Fn(&World) -> bool) {
    world.lossy = false;
    for _ in 0..500 {
        if done(world) {
            return;
        }
        for id in world.hosts.keys().copied().collect::<Vec<_>>() {
            world.tick(id, 0);
        }
        while !world.network.is_empty() {
            world.deliver(0);
        }
    }
    panic!("never: {what}");
}

fn applied(world: &World, id: u64) -> u64 {
    world.hosts[&id].node.as_ref().map_or(0, |node| node.status().applied)
}

#[test]
fn a_group_of_one_leads_without_waiting() {
    let mut world = alone();
    assert_eq!(world.leader(), Some(1));
    assert!(world.propose(1));
    world.pump(1, 0);
    assert_eq!(world.hosts[&1].state.len(), 1);
    let read = world.read(1).expect("a leader reads");
    world.pump(1, 0);
    assert_eq!(world.hosts[&1].reads, [(read, applied(&world, 1))]);
}

#[test]
fn a_follower_refuses_operations_of_a_leader() {
    let mut world = World::new(3, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let command = Bytes::from_static(b"x");
    world.on(follower, |node| {
        assert_eq!(node.propose(command.clone()), Err(Refused::NotLeader));
        assert_eq!(node.read(7), Err(Refused::NotLeader));
        assert_eq!(node.change_membership(&[Change::Remove(1)]), Err(Refused::NotLeader));
        assert_eq!(node.transfer_leadership(1), Err(Refused::NotLeader));
    });
    world.on(leader, |node| assert_eq!(node.propose(Bytes::new()), Err(Refused::Size)));
}

#[test]
fn leadership_is_handed_over() {
    let mut world = World::new(4, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    let heir = (1..=3).find(|id| *id != leader).unwrap();
    world.on(leader, |node| node.transfer_leadership(heir).unwrap());
    world.pump(leader, 0);
    until(&mut world, "the heir leads", |world| world.leader() == Some(heir));
    assert_eq!(world.violation, None);
}

#[test]
fn a_leader_cut_off_steps_down_and_does_not_disturb_on_return() {
    let mut world = World::new(5, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    let old = world.leader().unwrap();
    for other in (1..=3).filter(|id| *id != old) {
        world.parted.extend([(old, other), (other, old)]);
    }
    let follows =
        |world: &World, id: u64| world.hosts[&id].node.as_ref().unwrap().status().role != Role::Leader;
    until(&mut world, "the old leader gives up", |world| follows(world, old));
    until(&mut world, "another one leads", |world| world.leader().is_some_and(|leader| leader != old));
    let leader = world.leader().unwrap();
    let term = world.on(leader, |node| node.status().term).unwrap();
    world.parted.clear();
    until(&mut world, "the old one follows", |world| {
        world.hosts[&old].node.as_ref().unwrap().status().leader == Some(leader)
    });
    let after = world.on(leader, |node| node.status().term).unwrap();
    assert_eq!(after, term, "a pre-vote leaves the term as it is");
}

#[test]
fn a_node_joins_as_a_learner_and_is_given_a_vote() {
    let mut world = alone();
    for _ in 0..50 {
        world.propose(1);
        world.pump(1, 0);
    }
    world.add_host(2, Stored::default());
    world.on(1, |node| node.change_membership(&[Change::AddLearner(2)]).unwrap());
    world.pump(1, 0);
    until(&mut world, "the learner has everything", |world| applied(world, 2) == applied(world, 1));
    assert!(world.snapshots_installed > 0, "a new node begins with a snapshot");
    assert_eq!(world.hosts[&2].state, world.hosts[&1].state);
    assert!(!world.on(2, |node| node.membership().votes(2)).unwrap());
    world.on(1, |node| node.change_membership(&[Change::AddVoter(2)]).unwrap());
    world.pump(1, 0);
    until(&mut world, "both vote", |world| {
        world.hosts.values().all(|host| host.node.as_ref().unwrap().membership().voters.len() == 2)
    });
}

/// Otherwise it would come back with the group of before, in which it can win an election alone.
#[test]
fn a_change_of_the_group_survives_a_restart() {
    let mut world = alone();
    world.add_host(2, Stored::default());
    world.crash(2);
    world.on(1, |node| node.change_membership(&[Change::AddVoter(2)]).unwrap());
    world.pump(1, 0);
    assert_eq!(world.on(1, |node| node.membership().voters.len()), Some(2));
    world.crash(1);
    world.start(1);
    for _ in 0..100 {
        world.tick(1, 0);
        assert_eq!(world.leader(), None, "two votes are needed, one node is up");
    }
    world.start(2);
    until(&mut world, "both together elect a leader", |world| world.leader().is_some());
}

#[test]
fn entries_handed_out_are_handed_out_after_a_restart() {
    let mut world = World::new(7, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    world.propose(leader);
    world.pump(leader, 0);
    until(&mut world, "it is applied", |world| world.hosts[&leader].state.len() == 1);
    world.crash(leader);
    world.start(leader);
    world.pump(leader, 0);
    assert_eq!(world.hosts[&leader].state.len(), 1, "before any other node answered");
}

#[test]
fn several_changes_pass_through_a_joint_configuration() {
    let mut world = World::new(6, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    world.add_host(4, Stored::default());
    let leader = world.leader().unwrap();
    let gone = (1..=3).find(|id| *id != leader).unwrap();
    world.on(leader, |node| {
        node.change_membership(&[Change::AddVoter(4), Change::Remove(gone)]).unwrap();
        assert_eq!(node.change_membership(&[Change::Remove(4)]), Err(Refused::ChangeUnderWay));
    });
    world.pump(leader, 0);
    until(&mut world, "the joint configuration has ended", |world| {
        let membership = world.hosts[&4].node.as_ref().unwrap().membership();
        membership.voters.len() == 3 && membership.voters.contains(&4) && !membership.is_joint()
    });
    assert_eq!(world.violation, None);
}

#[test]
fn a_removed_leader_lets_the_others_go_on() {
    let mut world = World::new(8, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    world.on(leader, |node| node.change_membership(&[Change::Remove(leader)]).unwrap());
    world.pump(leader, 0);
    until(&mut world, "another one leads", |world| world.leader().is_some_and(|now| now != leader));
    let now = world.leader().unwrap();
    assert!(world.propose(now));
    world.pump(now, 0);
    let before = applied(&world, now);
    until(&mut world, "it commits without the removed one", |world| applied(world, now) > before);
}

#[test]
fn the_log_stays_short() {
    let mut world = alone();
    for _ in 0..500 {
        world.propose(1);
        world.pump(1, 0);
    }
    let status = world.on(1, |node| node.status()).unwrap();
    assert!(status.last - status.first < 40, "{status:?}");
    world.crash(1);
    world.start(1);
    assert_eq!(world.violation, None);
    until(&mut world, "it leads again", |world| world.leader() == Some(1));
    assert_eq!(world.hosts[&1].state.len(), 500);
}

#[test]
fn large_entries_do_not_stay_in_memory() {
    let snapshot = Snapshot { index: 1, term: 1, membership: Membership::alone(1), data: Bytes::new() };
    let stored = Stored { snapshot: Some(snapshot), ..Stored::default() };
    let mut node = Node::new(Config { snapshot_bytes: 4_000, ..Config::new(1, 1) }, stored).unwrap();
    node.campaign();
    let mut snapshots = 0;
    for _ in 0..100 {
        while let Some(batch) = node.take() {
            drop(node.persisted(batch));
        }
        if node.snapshot_due() {
            let snapshot = node.snapshot(Bytes::new());
            node.compact(snapshot);
            snapshots += 1;
        }
        node.propose(Bytes::from(vec![1; 500])).unwrap();
    }
    let status = node.status();
    assert!(status.last - status.first < 10, "{status:?}");
    assert!((10..30).contains(&snapshots), "every few entries: {snapshots}");
}

#[test]
fn too_much_that_waits_is_refused() {
    let snapshot = Snapshot { index: 1, term: 1, membership: Membership::alone(1), data: Bytes::new() };
    let stored = Stored { snapshot: Some(snapshot), ..Stored::default() };
    let config = Config { uncommitted_bytes_max: 100, message_bytes_max: 100, ..Config::new(1, 1) };
    let mut node = Node::new(config, stored).unwrap();
    node.campaign();
    let command = Bytes::from(vec![1; 60]);
    node.propose(command.clone()).unwrap();
    assert_eq!(node.propose(command.clone()), Err(Refused::Busy));
    while let Some(batch) = node.take() {
        drop(node.persisted(batch));
    }
    node.propose(command).unwrap();
}

#[test]
fn a_log_with_holes_is_refused() {
    let snapshot = Snapshot { index: 5, term: 2, membership: Membership::alone(1), data: Bytes::new() };
    let entry = |index| Entry { index, term: 2, payload: Payload::Empty };
    let start = |entries: Vec<Entry>, commit| {
        let hard_state = HardState { term: 2, vote: 0, commit };
        Node::new(Config::new(1, 1), Stored { hard_state, snapshot: Some(snapshot.clone()), entries }).err()
    };
    assert_eq!(start(vec![entry(4), entry(5), entry(6)], 6), None);
    assert_eq!(start(vec![entry(7)], 5), Some(BadLog::Gap { expected: 6, found: 7 }));
    assert_eq!(start(vec![entry(6)], 9), Some(BadLog::Short { last: 6, commit: 9 }));
}

#[test]
fn a_node_whose_disk_was_wiped_reports_it() {
    let mut world = World::new(9, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    let leader = world.leader().unwrap();
    let victim = (1..=3).find(|id| *id != leader).unwrap();
    for _ in 0..5 {
        world.propose(leader);
        world.pump(leader, 0);
    }
    until(&mut world, "everybody has everything", |world| applied(world, victim) == applied(world, leader));
    // The same number comes back with the group's first state.
    let begin = Snapshot {
        index: 1,
        term: 1,
        membership: Membership { voters: (1..=3).collect(), ..Membership::default() },
        data: Bytes::new(),
    };
    world.crash(victim);
    world.add_host(victim, Stored { snapshot: Some(begin), ..Stored::default() });
    for id in 1..=3 {
        world.tick(id, 0);
        world.tick(id, 0);
    }
    let found = std::mem::take(&mut world.network).into_iter().filter(|(_, to, _)| *to == victim).find_map(
        |(_, _, bytes)| {
            let message = Message::decode(&bytes).unwrap();
            world.on(victim, |node| node.receive(message)).unwrap().err()
        },
    );
    assert!(matches!(found, Some(Unacceptable::LostEntries { .. })), "{found:?}");
}

/// A leader with two other voters and two learners, which are at rest.
fn with_learners(seed: u64) -> (World, u64) {
    let mut world = World::new(seed, 3, Bug::None);
    until(&mut world, "a leader", |world| world.leader().is_some());
    for id in [4, 5] {
        world.add_host(id, Stored::default());
        let leader = world.leader().unwrap();
        world.on(leader, |node| node.change_membership(&[Change::AddLearner(id)]).unwrap());
        world.pump(leader, 0);
        until(&mut world, "it follows", |world| {
            applied(world, id) > 1 && applied(world, id) == applied(world, leader)
        });
    }
    let leader = world.leader().unwrap();
    for id in 1..=5 {
        world.on(id, |node| node.rest_learners(true));
    }
    rounds(&mut world, 10);
    (world, leader)
}

/// Ticks of all nodes, after each of which everything is delivered.
fn rounds(world: &mut World, count: usize) {
    world.lossy = false;
    for _ in 0..count {
        for id in world.hosts.keys().copied().collect::<Vec<_>>() {
            world.tick(id, 0);
        }
        while !world.network.is_empty() {
            world.deliver(0);
        }
    }
}

/// Messages of the leader to a host in so many ticks.
fn messages_to(world: &mut World, leader: u64, host: u64, ticks: usize) -> usize {
    let mut count = 0;
    for _ in 0..ticks {
        for id in world.hosts.keys().copied().collect::<Vec<_>>() {
            world.tick(id, 0);
            count += world.network.iter().filter(|(from, to, _)| (*from, *to) == (leader, host)).count();
            while !world.network.is_empty() {
                world.deliver(0);
            }
        }
    }
    count
}

#[test]
fn learners_that_have_everything_are_left_alone() {
    let (mut world, leader) = with_learners(6);
    let voter = (1..=3).find(|id| *id != leader).unwrap();
    assert_eq!(messages_to(&mut world, leader, voter, 100), 50, "a heartbeat every other tick");
    assert_eq!(messages_to(&mut world, leader, 4, 100), 2, "one in fifty ticks");
    world.on(leader, |node| node.rest_learners(false));
    assert_eq!(messages_to(&mut world, leader, 4, 100), 50, "when votes are to be given");
}

/// A message that a learner lost is sent again at the next heartbeat, as to a voter.
#[test]
fn a_learner_that_lost_an_entry_receives_it_after_the_next_heartbeat() {
    for lost in ["the entry", "that it is committed", "both"] {
        let (mut world, leader) = with_learners(7);
        world.propose(leader);
        world.pump(leader, 0);
        let mut seen = 0;
        while !world.network.is_empty() {
            let to_learner = world.network[0].1 == 4;
            seen += usize::from(to_learner);
            let loses = to_learner && (lost == "both" || (seen == 1) == (lost == "the entry"));
            if loses {
                world.network.remove(0);
            } else {
                world.deliver(0);
            }
        }
        let last = applied(&world, leader);
        // Entries after a lost one are refused, and then it is sent again at once.
        assert!(seen >= 1 && (lost == "the entry" || applied(&world, 4) < last), "{lost} was lost");
        rounds(&mut world, 5);
        assert_eq!(applied(&world, 4), last, "{lost}");
    }
}

/// A learner that was cut off for long gets a heartbeat after the time of rest, and one that starts again at once when it asks.
#[test]
fn a_learner_that_was_away_is_found_again() {
    let (mut world, leader) = with_learners(8);
    world.parted.extend([(leader, 4), (4, leader)]);
    rounds(&mut world, 20);
    world.propose(leader);
    world.pump(leader, 0);
    let sent = messages_to(&mut world, leader, 4, 200);
    assert!((20..55).contains(&sent), "{sent} in twenty seconds: all while it may answer, and then few");
    world.parted.clear();
    rounds(&mut world, 51);
    assert_eq!(applied(&world, 4), applied(&world, leader));
    world.crash(5);
    world.start(5);
    let knows = |world: &mut World| world.on(5, |node| node.status().leader).unwrap();
    rounds(&mut world, 4);
    assert_eq!(knows(&mut world), None, "nobody sends to it");
    world.on(leader, |node| node.learner_asks(5));
    rounds(&mut world, 2);
    assert_eq!(knows(&mut world), Some(leader));
    assert_eq!(messages_to(&mut world, leader, 5, 40), 0, "and it is left alone again");
}

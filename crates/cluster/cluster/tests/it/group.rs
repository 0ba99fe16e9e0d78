//! The group of simulated nodes: coming together, deciding, going.

use std::path::Path;
use std::time::Duration;

use cluster::group::{ChangeSchemaError, SchemaAgreement};
use cluster::state::{Command, MemberStatus, Outcome, Refused};
use cluster::{SchemaEdit, SchemaStore, own_schema};
use schema::{TableBuilder, TableId};
use types::CqlType;

use crate::group_world::*;

fn create(cluster: &Cluster, node: usize, name: &str) -> Result<SchemaAgreement, ChangeSchemaError> {
    let edits = keyspace(name);
    cluster.on(node, |rt, group| async move {
        let base = group.applied().state.schema.version();
        group.change_schema(base, edits, rt.now() + 10 * SECOND, |_| true).await
    })
}

#[test]
fn nodes_come_together_and_agree() {
    let cluster = Cluster::new(1, 3);
    for node in 0..3 {
        let agreed = create(&cluster, node, &format!("ks{node}")).unwrap();
        assert!(agreed.behind.is_empty());
        for other in 0..3 {
            let applied = group(other).applied().state;
            assert!(
                applied.schema_number >= agreed.number,
                "node {other} uses the schema that node {node} reported"
            );
            assert!(applied.schema.keyspace(&format!("ks{node}")).is_some());
        }
    }
    let state = cluster.barrier(2).state;
    assert_eq!(state.members.len(), 3);
    assert_eq!(state.member(host(1)).unwrap().status, MemberStatus::Joining);
    let lost = cluster.on(1, |rt, group| async move {
        group.change_schema([0; 16], keyspace("late"), rt.now() + SECOND, |_| true).await
    });
    assert_eq!(lost.unwrap_err(), ChangeSchemaError::Moved);
}

#[test]
fn a_node_alone_decides_without_waiting() {
    let cluster = Cluster::new(2, 1);
    let before = cluster.sim.now();
    for number in 0..50 {
        create(&cluster, 0, &format!("ks{number}")).unwrap();
    }
    let took = (cluster.sim.now() - before) / 50;
    assert!(took < Duration::from_millis(10), "a decision takes two writes, not ticks: {took:?}");
    cluster.crash(0);
    cluster.sim.start(cluster.nodes[0]);
    cluster.until("it is back", || is_in(0));
    let state = group(0).applied().state;
    assert_eq!(state.schema_number, 51, "everything is there at once");
    let figures = cluster.sim.files(cluster.nodes[0]);
    let logs = figures.iter().filter(|(path, _)| path.starts_with("/data/node/raft")).count();
    assert_eq!(logs, 2, "one log, one snapshot: {figures:?}");
}

#[test]
fn a_schema_is_agreed_on_by_the_live_nodes() {
    let cluster = Cluster::new(3, 3);
    let dead = (0..3).find(|node| *node != cluster.leader()).unwrap();
    cluster.crash(dead);
    let asked = (0..3).find(|node| *node != dead).unwrap();
    let edits = keyspace("ks");
    let agreed = cluster.on(asked, |rt, group| async move {
        let base = group.applied().state.schema.version();
        group
            .change_schema(base, edits, rt.now() + 5 * SECOND, |host| host != crate::group_world::host(dead))
            .await
    });
    assert!(agreed.unwrap().behind.is_empty(), "the dead are not waited for");
    let late = create(&cluster, asked, "other").unwrap();
    assert_eq!(late.behind, [host(dead)], "who should live is waited for until the deadline");
}

#[test]
fn a_change_whose_answer_is_lost_is_made_once() {
    let cluster = Cluster::new(17, 3);
    let leader = cluster.leader();
    let asked = (0..3).find(|node| *node != leader).unwrap();
    // Requests arrive, answers do not.
    cluster.sim.partition_one_way(cluster.nodes[leader], cluster.nodes[asked]);
    let begun = cluster.begin(asked, |rt, group| async move {
        let base = group.applied().state.schema.version();
        let command = Command::SchemaChange { base, edits: keyspace("ks") };
        group.propose(command, rt.now() + 20 * SECOND).await
    });
    cluster.until("the leader has made it", || group(leader).applied().state.schema_number == 2);
    assert!(!begun.is_finished());
    cluster.sim.run_for(3 * SECOND);
    cluster.sim.heal_all();
    let told = begun.join(&cluster.sim).unwrap();
    assert!(matches!(told, Ok(Outcome::SchemaChanged { number: 2, .. })), "{told:?}");
    assert_eq!(cluster.barrier(asked).state.schema_number, 2);
}

#[test]
fn without_a_majority_nothing_is_decided_and_nothing_is_lost() {
    let cluster = Cluster::new(4, 3);
    let alone = cluster.leader();
    cluster.sim.isolate(cluster.nodes[alone]);
    let begun = cluster.begin(alone, |rt, group| async move {
        let base = group.applied().state.schema.version();
        group.change_schema(base, keyspace("never"), rt.now() + 5 * SECOND, |_| true).await
    });
    let other = (0..3).find(|node| *node != alone).unwrap();
    let decided = create(&cluster, other, "ks").unwrap();
    assert_eq!(decided.behind, [host(alone)]);
    let told = begun.join(&cluster.sim).unwrap();
    assert!(
        matches!(told, Err(ChangeSchemaError::Propose(cluster::group::ProposeError::Unknown))),
        "{told:?}"
    );
    cluster.sim.heal_all();
    let state = cluster.barrier(alone).state;
    assert!(state.schema.keyspace("ks").is_some());
    assert!(state.schema.keyspace("never").is_none(), "its base is stale");
}

#[test]
fn a_node_away_for_long_catches_up_by_snapshot() {
    let cluster = Cluster::new(5, 3);
    let away = (0..3).find(|node| *node != cluster.leader()).unwrap();
    let before = group(away).applied().index;
    cluster.crash(away);
    let asked = (0..3).find(|node| *node != away).unwrap();
    for number in 0..120 {
        let edits = keyspace(&format!("ks{number}"));
        let base = group(asked).applied().state.schema.version();
        let decided = cluster.on(asked, |rt, group| async move {
            group.propose(Command::SchemaChange { base, edits }, rt.now() + 10 * SECOND).await
        });
        assert!(matches!(decided, Ok(Outcome::SchemaChanged { .. })));
    }
    let first = group(asked).status().unwrap().log.first;
    assert!(first > before + 1, "the log that it lacks is gone: {first}, it has {before}");
    cluster.sim.start(cluster.nodes[away]);
    cluster.until("it is back", || is_in(away));
    let state = cluster.barrier(away).state;
    assert_eq!(state.encode(), cluster.barrier(asked).state.encode());
    assert!(group(away).status().unwrap().log.first > before + 1, "it was given a snapshot");
}

#[test]
fn tokens_are_taken_and_serve() {
    let cluster = Cluster::new(6, 3);
    for node in 1..3 {
        let taken =
            cluster.on(node, |rt, group| async move { group.take_tokens(8, rt.now() + 10 * SECOND).await });
        assert!(matches!(taken, Ok(Outcome::Done { .. })), "{taken:?}");
        let command = Command::SetStatus { host: host(node), status: MemberStatus::Normal };
        let normal =
            cluster.on(node, |rt, group| async move { group.propose(command, rt.now() + 10 * SECOND).await });
        assert!(matches!(normal, Ok(Outcome::Done { .. })), "{normal:?}");
    }
    let ring = cluster.barrier(0).state.ring_of(|status| status == MemberStatus::Normal).unwrap();
    assert_eq!((ring.nodes().len(), ring.tokens().len()), (3, 17));
}

#[test]
fn leadership_is_handed_over_before_a_stop() {
    let cluster = Cluster::new(7, 3);
    let leader = cluster.leader();
    let before = cluster.sim.now();
    cluster.on(leader, |rt, group| async move { group.step_down(rt.now() + 5 * SECOND).await });
    assert_ne!(cluster.leader(), leader);
    assert!(cluster.sim.now() - before < SECOND, "nobody had to miss the leader");
}

#[test]
fn a_node_that_fails_while_joining_does_not_stop_the_others() {
    let mut cluster = Cluster::new(15, 1);
    cluster.add(Setup::new(1));
    cluster.all_in(2);
    cluster.crash(1);
    let agreed = cluster.on(0, |rt, group| async move {
        let base = group.applied().state.schema.version();
        group.change_schema(base, keyspace("ks"), rt.now() + 5 * SECOND, |other| other == host(0)).await
    });
    assert!(agreed.unwrap().behind.is_empty());
    let command = Command::RemoveMember { host: host(1) };
    let removed =
        cluster.on(0, |rt, group| async move { group.propose(command, rt.now() + 5 * SECOND).await });
    assert!(matches!(removed, Ok(Outcome::Done { .. })), "{removed:?}");
    cluster.until("it is out of the group", || group(0).status().unwrap().membership.all().len() == 1);
}

#[test]
fn a_large_group_has_few_votes_and_gives_one_away_when_a_voter_goes() {
    let mut cluster = Cluster::new(16, 3);
    for node in 3..9 {
        cluster.add(Setup::new(node));
    }
    cluster.all_in(9);
    let voters = group(0).status().unwrap().membership.voters;
    let number = |node: usize| group(0).applied().state.member(host(node)).unwrap().number;
    let gone = (1..9).find(|node| voters.contains(&number(*node)) && *node != cluster.leader()).unwrap();
    let command = Command::RemoveMember { host: host(gone) };
    let removed =
        cluster.on(0, |rt, group| async move { group.propose(command, rt.now() + 10 * SECOND).await });
    assert!(matches!(removed, Ok(Outcome::Done { .. })), "{removed:?}");
    cluster.until("another one votes", || {
        let membership = group(0).status().unwrap().membership;
        membership.all().len() == 8 && membership.voters.len() == 7
    });
}

/// Learners of a full group get no messages for seconds. One that restarts asks for the leader, one that was cut off is found by itself.
#[test]
fn a_learner_that_was_down_catches_up_soon() {
    let mut cluster = Cluster::new(17, 3);
    for node in 3..9 {
        cluster.add(Setup::new(node));
    }
    cluster.all_in(9);
    cluster.sim.run_for(30 * SECOND);
    let membership = group(0).status().unwrap().membership;
    let number = |node: usize| group(node).status().unwrap().log.id;
    let learner = (1..9).find(|node| membership.learners.contains(&number(*node))).unwrap();
    for round in 0..5 {
        cluster.crash(learner);
        cluster.sim.start(cluster.nodes[learner]);
        cluster.until("it has its log", || is_in(learner));
        cluster.sim.run_for(Duration::from_millis(1_500));
        assert_eq!(group(learner).status().unwrap().leader, Some(host(cluster.leader())), "round {round}");
    }
    for (round, away) in [2, 8, 20, 40].into_iter().enumerate() {
        for other in (0..9).filter(|other| *other != learner) {
            cluster.sim.partition(cluster.nodes[learner], cluster.nodes[other]);
        }
        cluster.sim.run_for(away * SECOND);
        create(&cluster, cluster.leader(), &format!("ks{round}")).unwrap();
        cluster.sim.heal_all();
        cluster.sim.run_for(8 * SECOND);
        let index = group(cluster.leader()).applied().index;
        assert_eq!(group(learner).applied().index, index, "8 s after it was down for {away} s");
    }
}

#[test]
fn a_removed_node_leaves_and_is_notified() {
    let cluster = Cluster::new(8, 3);
    let gone = cluster.leader();
    let asked = (0..3).find(|node| *node != gone).unwrap();
    // Somebody else must own the data first.
    let taken =
        cluster.on(asked, |rt, group| async move { group.take_tokens(4, rt.now() + 10 * SECOND).await });
    assert!(taken.is_ok());
    for command in [
        Command::SetStatus { host: host(asked), status: MemberStatus::Normal },
        Command::RemoveMember { host: host(gone) },
    ] {
        let done = cluster
            .on(asked, |rt, group| async move { group.propose(command, rt.now() + 10 * SECOND).await });
        assert!(matches!(done, Ok(Outcome::Done { .. })), "{done:?}");
    }
    cluster.until("two are left", || group(asked).status().unwrap().membership.all().len() == 2);
    cluster.until("the third has learnt it", || !is_in(gone));
    let exits = cluster.sim.exits(cluster.nodes[gone]);
    assert!(exits[0].contains("was removed from the cluster"), "{exits:?}");
    create(&cluster, asked, "after").unwrap();
    // And it does not come back.
    cluster.sim.start(cluster.nodes[gone]);
    cluster.sim.run_for(30 * SECOND);
    assert!(!is_in(gone));
}

/// It was away while it was removed. The first peer that it reaches refuses it, also while a majority is down.
#[test]
fn a_node_that_was_removed_while_it_was_away_learns_it_at_once() {
    for away in ["paused", "cut off", "down"] {
        let cluster = Cluster::new(18, 3);
        let gone = (0..3).find(|node| *node != cluster.leader()).unwrap();
        let others: Vec<usize> = (0..3).filter(|node| *node != gone).collect();
        let node = cluster.nodes[gone];
        owns(&cluster, others[0]);
        cluster.sim.run_for(SECOND);
        match away {
            "paused" => cluster.sim.pause(node),
            "cut off" => others.iter().for_each(|other| cluster.sim.partition(node, cluster.nodes[*other])),
            _ => cluster.kill(gone),
        }
        let command = Command::RemoveMember { host: host(gone) };
        let removed = cluster
            .on(others[0], |rt, group| async move { group.propose(command, rt.now() + 10 * SECOND).await });
        assert!(matches!(removed, Ok(Outcome::Done { .. })), "{removed:?}");
        cluster.until("two are left", || {
            others.iter().all(|other| group(*other).status().unwrap().membership.all().len() == 2)
        });
        cluster.sim.run_for(30 * SECOND);
        cluster.crash(others[1]);
        match away {
            "paused" => cluster.sim.resume(node),
            "cut off" => cluster.sim.heal_all(),
            _ => cluster.sim.start(node),
        }
        let back = cluster.sim.now();
        cluster.until("it has learnt it", || !cluster.sim.is_running(node));
        let took = cluster.sim.now() - back;
        let limit = Duration::from_millis(if away == "paused" { 300 } else { 8_000 });
        assert!(took <= limit, "{away}: {took:?}");
        let exits = cluster.sim.exits(node);
        assert!(exits.last().unwrap().contains("was removed from the cluster"), "{exits:?}");
    }
}

/// Has a node's place go through these steps, proposed at another one.
fn set_status(cluster: &Cluster, at: usize, node: usize, steps: &[MemberStatus]) {
    for status in steps.iter().copied() {
        let command = Command::SetStatus { host: host(node), status };
        let done =
            cluster.on(at, |rt, group| async move { group.propose(command, rt.now() + 10 * SECOND).await });
        assert!(matches!(done, Ok(Outcome::Done { .. })), "{done:?}");
    }
}

/// A node with tokens in force.
fn owns(cluster: &Cluster, node: usize) {
    let taken =
        cluster.on(node, |rt, group| async move { group.take_tokens(4, rt.now() + 10 * SECOND).await });
    assert!(taken.is_ok(), "{taken:?}");
    set_status(cluster, node, node, &[MemberStatus::Normal]);
}

/// A node that has left is about to be switched off. It leads and votes until then: one more failure must not cost the majority after that.
#[test]
fn a_node_that_has_left_gives_its_vote_to_another_before_it_goes() {
    for seed in 40..44 {
        let cluster = Cluster::new(seed, 4);
        let leaves = cluster.leader();
        let others: Vec<usize> = (0..4).filter(|node| *node != leaves).collect();
        others.iter().for_each(|node| owns(&cluster, *node));
        set_status(&cluster, others[0], leaves, &[MemberStatus::Leaving, MemberStatus::Left]);
        let number = |node: usize| group(others[0]).applied().state.member(host(node)).unwrap().number;
        let left = number(leaves);
        let membership = || group(others[0]).status().unwrap().membership;
        // Never two of three votes, nor one: each of these is a majority that one failure ends.
        for _ in 0..3_000 {
            cluster.sim.run_for(Duration::from_millis(2));
            assert_eq!(membership().voters.len(), 3, "seed {seed}: {:?}", membership());
            if !membership().votes(left) {
                break;
            }
        }
        let told = cluster
            .on(others[0], |rt, group| async move { group.vote_is_gone(left, rt.now() + SECOND).await });
        assert!(told, "seed {seed}: {:?}", membership());
        assert!(membership().learners.contains(&left), "it is still a member: {:?}", membership());
        // It may be switched off, and another one may die for good: two of three members decide.
        cluster.crash(leaves);
        cluster.crash(others[1]);
        create(&cluster, others[0], "after").unwrap();
    }
}

/// Of four nodes three vote. When one of those is dead for a minute, the fourth votes: another one may die then.
#[test]
fn a_voter_that_is_silent_for_long_loses_its_vote_to_a_learner() {
    for seed in 60..63 {
        let cluster = Cluster::new(seed, 4);
        cluster.sim.run_for(10 * SECOND);
        let leader = cluster.leader();
        let membership = || group(leader).status().unwrap().membership;
        let number = |node: usize| group(leader).applied().state.member(host(node)).unwrap().number;
        assert_eq!((membership().voters.len(), membership().learners.len()), (3, 1), "{:?}", membership());
        let others = |votes: bool| {
            (0..4).filter(move |node| *node != leader && membership().votes(number(*node)) == votes)
        };
        let (dead, next) = (others(true).next().unwrap(), others(true).nth(1).unwrap());
        let learner = others(false).next().unwrap();
        cluster.crash(dead);
        cluster.sim.run_for(30 * SECOND);
        assert!(membership().votes(number(dead)), "it may come back: {:?}", membership());
        cluster
            .until("the learner votes", || membership().votes(number(learner)) && !membership().is_joint());
        assert!(!membership().votes(number(dead)) && membership().voters.len() == 3, "{:?}", membership());
        cluster.crash(next);
        create(&cluster, leader, "after").unwrap();
        // It comes back without a vote, and follows.
        cluster.sim.start(cluster.nodes[dead]);
        cluster.until("it has its log", || is_in(dead));
        cluster.until("it has caught up", || group(dead).applied().index == group(leader).applied().index);
    }
}

/// The only vote of two nodes goes with the node that leaves, unless the other one gets it first.
#[test]
fn the_last_voter_that_leaves_hands_its_vote_over() {
    let cluster = Cluster::new(45, 2);
    let leaves = cluster.leader();
    let stays = 1 - leaves;
    owns(&cluster, stays);
    set_status(&cluster, stays, leaves, &[MemberStatus::Leaving, MemberStatus::Left]);
    cluster.until("the other one leads alone", || {
        let status = group(stays).status().unwrap();
        status.membership.voters == [status.log.id].into() && status.leader == Some(host(stays))
    });
    cluster.crash(leaves);
    create(&cluster, stays, "after").unwrap();
}

/// A node was away while others joined, one of which leads when it comes back: it has no address for its answers, without which that one sends
/// nothing more.
#[test]
fn a_node_hears_a_leader_that_joined_while_it_was_away() {
    for seed in 46..49 {
        let mut cluster = Cluster::new(seed, 3);
        let away = (0..3).find(|node| *node != cluster.leader()).unwrap();
        cluster.crash(away);
        for node in 3..5 {
            cluster.add(Setup::new(node));
        }
        let alive: Vec<usize> = (0..5).filter(|node| *node != away).collect();
        let votes = |node: &usize| {
            let status = is_in(*node).then(|| group(*node).status()).flatten();
            status.is_some_and(|status| status.membership.voters.len() == 5 && !status.membership.is_joint())
        };
        cluster.until("all vote", || alive.iter().all(votes));
        // One of the new ones leads when of the others only one lives.
        let old = cluster.leader();
        cluster.crash(old);
        let leads =
            |node: &usize| is_in(*node) && group(*node).status().unwrap().log.role == raft::Role::Leader;
        cluster.until("another one leads", || alive.iter().any(leads));
        let next = cluster.leader();
        if next < 3 {
            cluster.on(next, |rt, group| async move { group.step_down(rt.now() + 10 * SECOND).await });
            cluster.until("a new one leads", || (3..5).any(|node| leads(&node)));
        }
        create(&cluster, cluster.leader(), "meanwhile").unwrap();
        let leader = cluster.leader();
        assert!(leader >= 3, "seed {seed}: {leader} leads");
        cluster.sim.start(cluster.nodes[away]);
        cluster.until("it has its log", || is_in(away));
        cluster.sim.run_for(10 * SECOND);
        assert_eq!(cluster.leader(), leader, "nobody else had to lead");
        assert_eq!(group(away).applied().index, group(leader).applied().index, "seed {seed}");
        create(&cluster, away, "after").unwrap();
    }
}

#[test]
fn a_node_that_moved_is_found() {
    let mut cluster = Cluster::empty(9);
    cluster.add(Setup::new(0));
    for node in 1..3 {
        cluster.add_with(move |info| {
            let mut setup = Setup::new(node);
            setup.internode.set_port(7000 + info.starts as u16);
            setup
        });
    }
    cluster.all_in(3);
    for node in 1..3 {
        cluster.crash(node);
        cluster.sim.start(cluster.nodes[node]);
        cluster.until("it is back", || is_in(node));
        let address = std::net::SocketAddr::new(address(node).ip(), 7001);
        cluster.until("the others know where it is", || {
            (0..3).filter(|other| is_in(*other)).all(|other| {
                group(other).applied().state.member(host(node)).unwrap().info.internode == address
            })
        });
    }
    assert!(create(&cluster, 2, "ks").unwrap().behind.is_empty());
}

/// The error of a node that cannot join.
fn told(cluster: &Cluster, node: usize) -> String {
    cluster.until("it gives up", || !cluster.sim.is_running(cluster.nodes[node]));
    cluster.sim.exits(cluster.nodes[node]).join("")
}

#[test]
fn a_foreign_node_is_refused_with_the_reason() {
    let mut cluster = Cluster::new(10, 2);
    cluster.add(Setup { rpc_name: "other".into(), cluster_name: "other".into(), ..Setup::new(2) });
    let text = told(&cluster, 2);
    assert!(text.contains("refuses") && text.contains("test") && text.contains("other"), "{text}");
    cluster.add(Setup { cluster_name: "third".into(), ..Setup::new(3) });
    assert!(told(&cluster, 3).contains("this is cluster 'test', not 'third'"));
    cluster.add(Setup { identity: 1, ..Setup::new(4) });
    let text = told(&cluster, 4);
    assert!(text.contains("two nodes have copies of one data directory"), "{text}");
    cluster.add(Setup { seeds: vec![address(77)], ..Setup::new(5) });
    let text = told(&cluster, 5);
    assert!(text.contains("no seed let this node join") && text.contains("10.0.0.78"), "{text}");
    // It took the id of a node that is down.
    cluster.add(Setup::new(6));
    cluster.until("another one is in", || is_in(6));
    cluster.crash(6);
    cluster.add(Setup { identity: 6, ..Setup::new(7) });
    let text = told(&cluster, 7);
    assert!(text.contains("is a member already"), "{text}");
    assert_eq!(cluster.barrier(0).state.members.len(), 3);
}

/// A machine loses its disk while it joins, and starts as a new host at the same address.
#[test]
fn a_join_whose_disk_is_lost_is_given_up_for_the_next_one_from_there() {
    let mut cluster = Cluster::new(13, 3);
    cluster.add_with(|info| Setup { identity: if info.starts == 0 { 3 } else { 8 }, ..Setup::new(3) });
    cluster.until("it joins", || is_in(3));
    let machine = cluster.nodes[3];
    cluster.kill(3);
    cluster.sim.wipe_disk(machine);
    cluster.sim.start(machine);
    cluster.until("it joins again", || is_in(3));
    let state = cluster.barrier(0).state;
    assert!(state.was_removed(host(3)) && state.members.len() == 4, "{:?}", state.members.keys());
    assert_eq!(state.member(host(8)).unwrap().info.internode, address(3));
    // One that owns tokens is another matter.
    cluster.add_with(|info| Setup { identity: if info.starts == 0 { 4 } else { 9 }, ..Setup::new(4) });
    cluster.until("it joins", || is_in(4));
    owns(&cluster, 4);
    cluster.kill(4);
    cluster.sim.wipe_disk(cluster.nodes[4]);
    cluster.sim.start(cluster.nodes[4]);
    let text = told(&cluster, 4);
    assert!(text.contains("start with replace_address_first_boot: 10.0.0.5"), "{text}");
}

#[test]
fn a_copy_of_a_node_that_runs_does_not_start() {
    let mut cluster = Cluster::new(12, 3);
    let sim = &cluster.sim;
    let copied: Vec<_> = sim
        .files(cluster.nodes[1])
        .into_iter()
        .map(|(path, _)| (path.clone(), sim.read_file(cluster.nodes[1], &path).expect("it was listed")))
        .collect();
    let setup = Setup { identity: 1, seeds: vec![address(0)], ..Setup::new(3) };
    cluster.add_before_raft(setup, move |rt| {
        let copied = copied.clone();
        Box::pin(async move {
            for (path, bytes) in copied {
                let directory = path.parent().expect("a file lies in a directory");
                rt.disk().create_dir_all(directory).await.unwrap();
                rt.disk().write_atomically(&path, &bytes).await.unwrap();
            }
        })
    });
    let node = cluster.nodes[3];
    cluster.until("the copy is made", || !cluster.sim.is_running(node));
    cluster.sim.start(node);
    let text = told(&cluster, 3);
    assert!(text.contains("runs at 10.0.0.2:7000") && text.contains("copy"), "{text}");
    assert!(is_in(1), "the node that was copied continues");
    // When the other one does not run any more, the copy is the node, moved.
    cluster.crash(1);
    cluster.sim.start(node);
    cluster.until("it replaces the other", || is_in(3));
}

#[test]
fn a_node_whose_log_is_damaged_reports_it() {
    let cluster = Cluster::new(11, 1);
    for number in 0..5 {
        create(&cluster, 0, &format!("ks{number}")).unwrap();
    }
    cluster.crash(0);
    assert!(cluster.sim.corrupt_file(cluster.nodes[0], "/data/node/raft/log-1", 40, 1));
    cluster.sim.start(cluster.nodes[0]);
    let text = told(&cluster, 0);
    assert!(text.contains("/data/node/raft/log-1") && text.contains("damaged"), "{text}");
}

#[test]
fn the_schema_of_a_node_without_a_log_is_taken_over() {
    let mut cluster = Cluster::empty(12);
    // The first start leaves a schema file as versions before the log did.
    cluster.add_before_raft(Setup::new(0), |rt| {
        Box::pin(async move {
            let mut store = SchemaStore::open(&rt, Path::new(DIRECTORY), own_schema()).await.unwrap();
            let table = TableBuilder::new("old", "t", TableId([4; 16])).partition_key("pk", CqlType::Int);
            let mut edits = keyspace("old");
            edits.push(SchemaEdit::PutTable(table.build().unwrap()));
            store.change(store.current().version(), edits).await.unwrap();
        })
    });
    cluster.sim.run_for(SECOND);
    let node = cluster.nodes[0];
    assert!(cluster.sim.read_file(node, "/data/node/schema.json").is_some());
    cluster.sim.start(node);
    cluster.until("it is up", || is_in(0));
    let state = group(0).applied().state;
    assert!(state.schema.table("old", "t").is_some());
    assert_eq!(state.member(host(0)).unwrap().status, MemberStatus::Normal);
    create(&cluster, 0, "new").unwrap();
    assert!(cluster.sim.read_file(node, "/data/node/schema.json").is_none(), "it is not read any more");
    assert!(cluster.sim.read_file(node, "/data/node/schema.json.before-raft").is_some());
    cluster.crash(0);
    cluster.sim.start(node);
    cluster.until("it is back", || is_in(0));
    let state = group(0).applied().state;
    assert!(state.schema.table("old", "t").is_some() && state.schema.keyspace("new").is_some());
}

#[test]
fn a_drop_is_on_disk_before_the_table_is_gone() {
    let cluster = Cluster::new(13, 1);
    let table =
        TableBuilder::new("ks", "t", TableId([4; 16])).partition_key("pk", CqlType::Int).build().unwrap();
    let drop = vec![SchemaEdit::DropTable { keyspace: "ks".into(), name: "t".into() }];
    let mut with = keyspace("ks");
    with.push(SchemaEdit::PutTable(table));
    for edits in [with, drop] {
        let changed = cluster.on(0, |rt, group| async move {
            let base = group.applied().state.schema.version();
            group.change_schema(base, edits, rt.now() + SECOND, |_| true).await
        });
        changed.unwrap();
    }
    assert_eq!(group(0).unfinished_drops().len(), 1);
    cluster.crash(0);
    cluster.sim.start(cluster.nodes[0]);
    cluster.until("it is back", || is_in(0));
    let drops = group(0).unfinished_drops();
    assert_eq!((drops.len(), drops[0].name.as_str()), (1, "t"));
    let id = drops[0].id;
    cluster.on(0, |_, group| async move { group.forget_drops(&[id]).await }).unwrap();
    assert!(group(0).unfinished_drops().is_empty());
}

#[test]
fn a_host_that_exists_is_refused_as_a_command_too() {
    let cluster = Cluster::new(14, 2);
    let info = group(1).applied().state.member(host(1)).unwrap().info.clone();
    let command = Command::AddMember { host: host(9), info, replaces: None };
    let refused =
        cluster.on(1, |rt, group| async move { group.propose(command, rt.now() + 5 * SECOND).await });
    assert!(matches!(refused, Ok(Outcome::Refused(Refused::AddressTaken { .. }))), "{refused:?}");
}

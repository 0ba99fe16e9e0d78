//! Peers that die, return, fall silent, or are not the ones that were meant.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpc::hello::Versions;
use rpc::{PeerInfo, Peers, RpcError, Target, Verb};
use rt_sim::Sim;

use crate::harness::*;

fn echo(sim: &Sim, timeout: Duration) -> Result<Bytes, RpcError> {
    call(sim, (0, 0), to(1, 0), Verb::Echo, "x", timeout)
}

#[test]
fn a_peer_dies_and_returns() {
    let sim = Cluster::new(10, &[1, 1]).start();
    assert!(echo(&sim, SECOND).is_ok());
    let slow = begin_slow(&sim, (0, 0), to(1, 0));
    sim.run_for(2 * SECOND);
    let killed_at = sim.now();
    sim.kill(sim.node(1));
    assert_eq!(join(&sim, slow), Err(RpcError::Lost), "at once, not at its deadline");
    assert!(sim.now() - killed_at < Duration::from_millis(50));
    let refused = echo(&sim, SECOND);
    assert!(matches!(refused, Err(RpcError::Connect(_))), "{refused:?}");
    assert_eq!(messenger(0, 0).stats().connect_failures, 1);
    sim.run_for(Duration::from_secs(30));
    sim.start(sim.node(1));
    sim.run_for(Duration::from_secs(3));
    assert_eq!(echo(&sim, SECOND), Ok(Bytes::from_static(b"x")));
}

#[test]
fn a_peer_that_calls_is_called_back_at_once() {
    let sim = Cluster::new(11, &[1, 1]).start();
    sim.kill(sim.node(1));
    for _ in 0..10 {
        assert!(echo(&sim, SECOND).is_err());
        sim.run_for(Duration::from_secs(3));
    }
    assert!(echo(&sim, SECOND).is_err());
    sim.start(sim.node(1));
    sim.run_for(Duration::from_millis(10));
    let waits = echo(&sim, SECOND);
    assert!(matches!(waits, Err(RpcError::Connect(_))), "it waits before it tries again: {waits:?}");
    assert!(call(&sim, (1, 0), to(0, 0), Verb::Echo, "", SECOND).is_ok());
    assert!(echo(&sim, SECOND).is_ok());
}

#[test]
fn a_silent_partition_is_noticed() {
    let sim = Cluster::new(12, &[1, 1]).start();
    assert!(echo(&sim, SECOND).is_ok());
    sim.partition(sim.node(0), sim.node(1));
    let start = sim.now();
    let lost = echo(&sim, Duration::from_secs(100));
    assert_eq!(lost, Err(RpcError::Lost));
    let took = sim.now() - start;
    assert!(took < Duration::from_secs(9), "{took:?}");
    sim.run_for(Duration::from_secs(5));
    assert_eq!(messenger(1, 0).stats().connections_in, [0, 0, 0], "the other side notices, too");
    sim.heal_all();
    sim.run_for(Duration::from_secs(3));
    assert!(echo(&sim, SECOND).is_ok());
}

#[test]
fn an_idle_connection_is_kept_and_an_unused_one_closed() {
    let sim = Cluster::new(13, &[1, 1]).start();
    assert!(echo(&sim, SECOND).is_ok());
    sim.run_for(Duration::from_secs(200));
    assert_eq!(messenger(0, 0).stats().connections_out, [0, 1, 0]);
    assert_eq!(messenger(0, 0).stats().connections_lost, 0);
    sim.run_for(Duration::from_secs(200));
    assert_eq!(messenger(0, 0).stats().connections_out, [0, 0, 0]);
    assert_eq!(messenger(0, 0).stats().connections_lost, 0);
    assert_eq!(messenger(1, 0).stats().connections_in, [0, 0, 0]);
    assert!(echo(&sim, SECOND).is_ok());
}

#[test]
fn another_clusters_node_is_refused() {
    let sim = Cluster::new(14, &[1, 1])
        .change(|node, config| {
            if node == 1 {
                config.cluster_name = "other".to_string();
            }
        })
        .start();
    let refused = echo(&sim, SECOND);
    let Err(RpcError::Mismatch(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("\"test\"") && message.contains("\"other\""), "{message}");
    assert_eq!(messenger(0, 0).stats().connections_refused, 1);
    assert_eq!(messenger(1, 0).stats().connections_refused, 1);
}

#[test]
fn versions_are_negotiated() {
    let with = |zero: (u16, u16), one: (u16, u16)| {
        let sim = Cluster::new(15, &[1, 1])
            .change(move |node, config| {
                let (min, max) = [zero, one][node];
                config.versions = Versions { min, max };
            })
            .start();
        echo(&sim, SECOND)
    };
    assert!(with((1, 3), (2, 4)).is_ok());
    let refused = with((1, 3), (4, 5));
    let Err(RpcError::Mismatch(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("1 to 3") && message.contains("4 to 5"), "{message}");
}

#[test]
fn a_host_that_is_another_one_is_refused() {
    let sim = Cluster::new(16, &[1, 1, 1])
        .change(|node, config| {
            // The third node runs on a copy of the second one's data.
            if node == 2 {
                config.host = host(1);
            }
        })
        .start();
    let refused = call(&sim, (0, 0), to(2, 0), Verb::Echo, "", SECOND);
    let Err(RpcError::Mismatch(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("10.0.0.3:7000"), "{message}");
    let same = call(&sim, (1, 0), Target::Address(address(2)), Verb::Echo, "", SECOND);
    assert_eq!(same, Err(RpcError::SameHost(address(2))));
}

#[test]
fn stop_ends_everything_at_once() {
    let sim = Cluster::new(17, &[2, 2]).start();
    let waiting = [0, 1].map(|shard| begin_slow(&sim, (0, shard), to(1, shard)));
    sim.run_for(Duration::from_millis(50));
    assert_eq!(slow_handlers(), (2, 2));
    on(&sim, 1, 0, |_, messenger| async move { messenger.stop().await });
    on(&sim, 1, 1, |_, messenger| async move { messenger.stop().await });
    assert_eq!(slow_handlers(), (0, 2), "handlers end where they wait");
    sim.run_for(Duration::from_millis(50));
    for task in waiting {
        assert_eq!(join(&sim, task), Err(RpcError::Lost));
    }
    let gone = echo(&sim, SECOND);
    assert!(matches!(gone, Err(RpcError::Connect(_))), "{gone:?}");
    let stopped = call(&sim, (1, 0), to(0, 0), Verb::Echo, "", SECOND);
    assert_eq!(stopped, Err(RpcError::Stopped));
    for (node, shard) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let stats = messenger(node, shard).stats();
        assert_eq!((stats.connections_in, stats.connections_out), ([0; 3], [0; 3]), "{node}.{shard}");
    }
}

#[test]
fn a_call_ends_at_its_deadline_while_there_is_no_connection_yet() {
    let sim = Cluster::new(40, &[1, 1]).start();
    sim.partition(sim.node(0), sim.node(1));
    let begun = sim.now();
    assert_eq!(echo(&sim, Duration::from_millis(100)), Err(RpcError::TimedOut));
    assert!(sim.now() - begun < Duration::from_millis(110));
    let failed = echo(&sim, Duration::from_secs(60));
    assert!(matches!(failed, Err(RpcError::Connect(_))), "{failed:?}");
    assert!(sim.now() - begun < Duration::from_millis(2_100), "connecting has a limit of its own");
    let failed = echo(&sim, Duration::from_secs(60));
    assert!(matches!(failed, Err(RpcError::Connect(_))), "{failed:?}");
    assert!(sim.now() - begun < Duration::from_millis(2_100), "at once, in the pause");
}

#[test]
fn a_peer_that_returns_with_other_shards_is_reached() {
    let sim = Cluster::new(41, &[1, 3]).start();
    let shard_of =
        |sim: &Sim, shard| call(sim, (0, 0), to(1, shard), Verb::Read, "", SECOND).map(|answer| answer[0]);
    assert_eq!(shard_of(&sim, 2), Ok(2));
    sim.kill(sim.node(1));
    sim.set_shards(sim.node(1), 2);
    sim.start(sim.node(1));
    sim.run_for(3 * SECOND);
    assert_eq!(shard_of(&sim, 2), Ok(0));
    assert_eq!(shard_of(&sim, 3), Ok(1), "it has said how many it has");
}

#[test]
fn a_host_that_moves_is_followed() {
    let sim = Cluster::new(42, &[1, 1, 1])
        .change(|node, config| {
            // The third node is to take the second one's place.
            if node == 2 {
                config.host = host(1);
            }
        })
        .start();
    assert!(echo(&sim, SECOND).is_ok());
    let waiting = begin_slow(&sim, (0, 0), to(1, 0));
    sim.run_for(Duration::from_millis(20));
    let peers = |node| {
        let info = PeerInfo { address: address(node), shard_count: 1, near: rpc::Near::Rack };
        Arc::new(Peers::new([(host(1), info)]))
    };
    messenger(0, 0).set_peers(peers(1));
    sim.run_for(Duration::from_millis(20));
    assert_eq!(messenger(0, 0).stats().calls_waiting, 1, "nothing has changed");
    messenger(0, 0).set_peers(peers(2));
    assert_eq!(join(&sim, waiting), Err(RpcError::Lost));
    assert!(echo(&sim, SECOND).is_ok());
    assert_eq!(messenger(2, 0).stats().verb(Verb::Echo).served, 1);
    assert_eq!(messenger(0, 0).stats().connections_out, [0, 1, 0], "the old connections are closed");
    messenger(0, 0).set_peers(Arc::new(Peers::default()));
    assert_eq!(echo(&sim, SECOND), Err(RpcError::UnknownHost));
}

#[test]
fn a_waiting_message_is_sent_when_more_is_known_of_the_node() {
    let sim = Cluster::new(44, &[1, 1]).start();
    assert!(echo(&sim, SECOND).is_ok());
    let told = |node: usize| messenger(node, 0).stats().verb(Verb::Gossip).served;
    let (before, info) =
        (told(1), PeerInfo { address: address(1), shard_count: 1, near: rpc::Near::Datacenter });
    // As when a joining node answers a request that brings it the addresses of the others.
    messenger(0, 0).send(to(1, 0), Verb::Gossip, Bytes::from_static(b"taken over"));
    messenger(0, 0).set_peers(Arc::new(Peers::new([(host(1), info)])));
    sim.run_for(SECOND);
    assert_eq!(told(1), before + 1);
}

#[test]
fn begun_requests_are_finished_when_the_caller_is_gone() {
    let sim = Cluster::new(43, &[1, 1]).start();
    let body = Bytes::from(1_000u64.to_be_bytes().to_vec());
    let _caller = begin(&sim, 0, 0, |rt, messenger| async move {
        messenger.call(to(1, 0), Verb::Truncate, body, rt.now() + 5 * SECOND).await
    });
    let _doomed = begin_slow(&sim, (0, 0), to(1, 0));
    sim.run_for(Duration::from_millis(100));
    assert_eq!(slow_handlers(), (2, 2));
    sim.kill(sim.node(0));
    sim.run_for(Duration::from_millis(800));
    assert_eq!(slow_handlers(), (2, 2));
    sim.run_for(Duration::from_millis(200));
    assert_eq!(slow_handlers(), (1, 2));
    assert_eq!(messenger(1, 0).stats().verb(Verb::Truncate).served, 1);
    sim.run_for(Duration::from_secs(61));
    assert_eq!((slow_handlers(), messenger(1, 0).stats().serving), ((0, 2), 0));
}

#[test]
fn a_removed_node_is_refused_on_every_shard_and_learns_of_it() {
    let sim = Cluster::new(45, &[1, 3]).start();
    let learned = Rc::new(Cell::new(None));
    let heard = Rc::clone(&learned);
    messenger(0, 0).on_removed(move |address| heard.set(Some(address)));
    assert!(echo(&sim, SECOND).is_ok());
    messenger(1, 0).refuse_removed([host(2)].into());
    sim.run_for(Duration::from_millis(20));
    assert!(echo(&sim, SECOND).is_ok(), "another node was removed");
    messenger(1, 0).refuse_removed([host(2), host(0)].into());
    sim.run_for(Duration::from_millis(20));
    assert_eq!(messenger(0, 0).stats().connections_out, [0; 3], "its connections are closed");
    for shard in 0..3 {
        let body = Bytes::from_static(b"still there?");
        let asked = begin(&sim, 0, 0, move |rt, messenger| async move {
            messenger.call(to(1, shard), Verb::Read, body, rt.now() + SECOND).await
        });
        let answer = join(&sim, asked);
        assert!(matches!(&answer, Err(RpcError::Removed(why)) if why.contains("was removed")), "{answer:?}");
    }
    assert_eq!(learned.get(), Some(address(1)));
    // A smaller set is older.
    messenger(1, 0).refuse_removed(std::collections::BTreeSet::new());
    sim.run_for(SECOND);
    assert!(matches!(echo(&sim, SECOND), Err(RpcError::Removed(_))));
}

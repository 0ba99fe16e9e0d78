//! Peers that die, return, fall silent, or are not the ones that were meant.

use std::time::Duration;

use bytes::Bytes;
use rpc::hello::Versions;
use rpc::{RpcError, Target, Verb};
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
    let Err(RpcError::Mismatch(message)) = same else { panic!("{same:?}") };
    assert!(message.contains("same host id"), "{message}");
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

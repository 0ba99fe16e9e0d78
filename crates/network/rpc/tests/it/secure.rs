//! Connections between nodes under TLS: the protocol over it, and the refused peers.

use std::sync::Arc;
use std::time::Duration;

use rpc::{EncryptBetween, Near, PeerInfo, Peers, RpcConfig, RpcError, Secure, Verb};
use rt::{ConnectOptions, ShardId};
use rt_sim::{LinkConfig, Simulation};
use testkit::certificates::{AUTHORITY, Certificate, NODE, STRANGER};
use tls::{ClientAuth, Credentials, Pem, Policy};

use crate::harness::*;

fn secure(of: Certificate, between: EncryptBetween) -> Secure {
    let pem = Pem {
        certificate: of.certificate.to_vec(),
        key: of.key.to_vec(),
        truststore: Some(AUTHORITY.to_vec()),
    };
    let policy = Policy { client_auth: ClientAuth::Required, verify_names: false };
    let credentials = Credentials::new(pem, policy).expect("the certificates of the tests are good");
    Secure { credentials: Arc::new(credentials), between }
}

fn all(node: usize, config: &mut RpcConfig) {
    let _ = node;
    config.secure = Some(secure(NODE, EncryptBetween::Nodes));
}

fn echo(sim: &Simulation, from: usize, to_node: usize) -> Result<(), RpcError> {
    call(sim, (from, 0), to(to_node, 0), Verb::Echo, "x", SECOND).map(|_| ())
}

#[test]
fn calls_reach_every_shard_over_encrypted_connections() {
    let mut cluster = Cluster::new(40, &[2, 3]).change(all);
    cluster.config.link = LinkConfig { loss_per_million: 3_000, ..LinkConfig::default() };
    let sim = cluster.start();
    for shard in 0..3 {
        let answer = call(&sim, (0, 1), to(1, shard), Verb::Read, "body", 5 * SECOND).unwrap();
        assert_eq!(&answer[..], [&[shard as u8, 1][..], b"body"].concat(), "served where it was wanted");
    }
    let long = vec![7; 3 << 20];
    for _ in 0..3 {
        let answer = call(&sim, (1, 0), to(0, 1), Verb::StreamChunk, long.clone(), 60 * SECOND).unwrap();
        assert!(answer == long);
    }
    assert_eq!(messenger(0, 0).stats().connections_lost + messenger(1, 0).stats().connections_lost, 0);
}

#[test]
fn a_peer_without_a_certificate_of_the_authority_is_turned_away() {
    let sim = Cluster::new(41, &[1, 1])
        .change(|node, config| {
            let certificate = if node == 0 { NODE } else { STRANGER };
            config.secure = Some(secure(certificate, EncryptBetween::Nodes));
        })
        .start();
    let refused = echo(&sim, 0, 1).unwrap_err().to_string();
    assert!(refused.contains("issued by nobody whom the truststore"), "{refused}");
    let refused = echo(&sim, 1, 0).unwrap_err().to_string();
    assert!(refused.contains("does not trust the issuer of"), "{refused}");
    sim.run_for(2 * SECOND);
    let refused = messenger(0, 0).stats().connections_refused;
    assert!(refused >= 2, "both attempts were logged: {refused}");
}

#[test]
fn plain_text_and_tls_do_not_meet_and_say_why() {
    let sim = Cluster::new(42, &[1, 1])
        .change(|node, config| {
            if node == 0 {
                all(node, config);
            }
        })
        .start();
    let refused = echo(&sim, 0, 1).unwrap_err().to_string();
    assert!(refused.contains("closed the connection during the TLS handshake"), "{refused}");
    let refused = echo(&sim, 1, 0).unwrap_err();
    assert!(matches!(refused, RpcError::Connect(_)), "{refused:?}");
    assert_eq!(messenger(0, 0).stats().connections_in, [0, 0, 0]);
    assert_eq!(messenger(1, 0).stats().connections_in, [0, 0, 0]);
}

/// Node 0 stands in one rack with node 1, in one datacenter with node 2, and elsewhere than node 3.
fn scattered(between: EncryptBetween, plain: usize) -> Simulation {
    let sim = Cluster::new(43, &[1, 1, 1, 1])
        .change(move |node, config| {
            config.secure = (node != plain).then(|| secure(NODE, between));
        })
        .start();
    let places = [(0, 0), (0, 0), (0, 1), (1, 0)];
    for node in 0..4 {
        let peer = |other: usize| {
            let (own, at): ((i32, i32), (i32, i32)) = (places[node], places[other]);
            let near = Near::of(own.0 == at.0, own.1 == at.1);
            (host(other), PeerInfo { address: address(other), shard_count: 1, near })
        };
        messenger(node, 0).set_peers(Arc::new(Peers::new((0..4).map(peer))));
    }
    sim
}

#[test]
fn encryption_may_be_for_traffic_that_leaves_the_rack_or_the_datacenter() {
    for (between, reached) in [
        (EncryptBetween::Nodes, [false, false, false]),
        (EncryptBetween::Racks, [true, false, false]),
        (EncryptBetween::Datacenters, [true, true, false]),
    ] {
        // Node 0 uses plain text only.
        let sim = scattered(between, 0);
        for (other, reached) in (1..4).zip(reached) {
            assert_eq!(echo(&sim, other, 0).is_ok(), reached, "{between:?}: {other} calls 0");
            let answer = echo(&sim, 0, other);
            assert_eq!(answer.is_ok(), reached, "{between:?}: 0 calls {other}");
            if let Err(error) = answer
                && between != EncryptBetween::Nodes
            {
                assert!(error.to_string().contains("uses plain text"), "{error}");
            }
        }
        let sim = scattered(between, usize::MAX);
        for (from, other) in [(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0), (2, 3)] {
            assert_eq!(echo(&sim, from, other), Ok(()), "{between:?}: {from} calls {other}");
        }
    }
}

#[test]
fn half_a_handshake_is_closed_in_time() {
    let sim = Cluster::new(44, &[1, 1]).change(all).start();
    let rt = sim.rt(sim.node(1), ShardId(0)).expect("the node runs");
    let took = rt_sim::Begun::new(&rt.clone(), rt::Group::Statement, async move {
        let start = rt.now();
        let stream = rt.net().connect(address(0), ConnectOptions::default()).await.expect("it listens");
        stream.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("it listens");
        while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
        rt.now() - start
    });
    let took = join(&sim, took);
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(echo(&sim, 1, 0), Ok(()), "and others are served");
}

#[test]
fn the_same_seed_gives_the_same_events_at_the_same_times() {
    // The encrypted bytes differ, for keys are the machine's; their lengths do not.
    let trace = || {
        let sim = Cluster::new(45, &[2, 2]).change(all).start();
        for shard in 0..2 {
            call(&sim, (0, 1), to(1, shard), Verb::Read, "body", 5 * SECOND).unwrap();
        }
        (sim.trace_events(), sim.now())
    };
    assert_eq!(trace(), trace());
}

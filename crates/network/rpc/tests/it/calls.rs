//! Calls and answers between shards, and the events that end a call without one.

use std::time::Duration;

use bytes::Bytes;
use rpc::{Dropped, Refusal, RpcError, Target, Verb};

use crate::harness::*;

#[test]
fn every_shard_reaches_every_shard() {
    let sim = Cluster::new(1, &[2, 3, 1]).start();
    for (from, shards) in [(0, 2), (1, 3), (2, 1)] {
        for from_shard in 0..shards {
            for (target, target_shards) in [(0, 2), (1, 3), (2, 1)] {
                // Also shards that are not there: they are taken modulo those that are.
                for shard in 0..5 {
                    let answer =
                        call(&sim, (from, from_shard), to(target, shard), Verb::Read, "hello", SECOND);
                    let mut expected = vec![(shard % target_shards) as u8, from as u8 + 1];
                    expected.extend_from_slice(b"hello");
                    assert_eq!(answer, Ok(Bytes::from(expected)), "{from}.{from_shard} to {target}.{shard}");
                }
            }
        }
    }
    let stats = messenger(1, 2).stats();
    assert_eq!(stats.connections_out, [2, 0, 0], "one to each peer, however many shards that has");
    let accepted: usize = (0..3).map(|shard| messenger(1, shard).stats().connections_in[0]).sum();
    assert_eq!(accepted, 2 + 1, "one of each shard of the peers");
    assert_eq!(stats.verb(Verb::Read).answers, 10);
    assert_eq!(stats.verb(Verb::Read).served, 3, "each of the peers' shards asks once");
}

#[test]
fn a_refusal_names_its_reason() {
    let sim = Cluster::new(2, &[1, 1]).start();
    let refused = call(&sim, (0, 0), to(1, 0), Verb::Apply, "abc", SECOND);
    assert_eq!(refused, Err(RpcError::Refused(Refusal::new(100, "no 3 bytes"))));
    let unknown = call(&sim, (0, 0), to(1, 0), Verb::Hint, "", SECOND);
    let Err(RpcError::Refused(refusal)) = unknown else { panic!("{unknown:?}") };
    assert_eq!(refusal.code, Refusal::UNKNOWN_VERB);
    assert_eq!(messenger(1, 0).stats().dropped(Verb::Hint, Dropped::UnknownVerb), 1);
    let peer = messenger(1, 0).stats().peers[&host(0)];
    assert_eq!((peer.received.count, peer.served.count, peer.refused.count), (2, 1, 1));
    let nobody = Target::Host { host: host(7), shard: 0 };
    assert_eq!(call(&sim, (0, 0), nobody, Verb::Echo, "", SECOND), Err(RpcError::UnknownHost));
    let sim = Cluster::new(2, &[1, 1]).change(|_, config| config.limits.body_len_max = 10).start();
    let long = call(&sim, (0, 0), to(1, 0), Verb::Echo, vec![0; 11], SECOND);
    assert_eq!(long, Err(RpcError::TooLarge { len: 11, max: 10 }));
    let long = call(&sim, (0, 0), to(1, 0), Verb::Read, vec![0; 9], SECOND);
    let Err(RpcError::Refused(refusal)) = long else { panic!("{long:?}") };
    assert_eq!(refusal.code, Refusal::ANSWER_TOO_LARGE);
}

#[test]
fn a_call_ends_at_its_deadline_and_so_does_its_handler() {
    let sim = Cluster::new(3, &[1, 1]).start();
    let slow = 2_000u64.to_be_bytes().to_vec();
    let start = sim.now();
    let timed_out = call(&sim, (0, 0), to(1, 0), Verb::Truncate, slow, Duration::from_millis(100));
    assert_eq!(timed_out, Err(RpcError::TimedOut));
    let took = sim.now() - start;
    assert!(took >= Duration::from_millis(100) && took < Duration::from_millis(110), "{took:?}");
    sim.run_for(Duration::from_millis(20));
    assert_eq!(slow_handlers(), (0, 1), "it began, and was dropped");
    let stats = messenger(1, 0).stats();
    assert_eq!(stats.dropped(Verb::Truncate, Dropped::ExpiredServing), 1);
    assert_eq!(stats.serving, 0);
    assert_eq!(stats.peers[&host(0)].expired, stats.peers[&host(0)].received, "its bytes are used no more");
    let stats = messenger(0, 0).stats();
    assert_eq!((stats.verb(Verb::Truncate).timeouts, stats.peers[&host(1)].timeouts), (1, 1));
    let past = call(&sim, (0, 0), to(1, 0), Verb::Echo, "", Duration::ZERO);
    assert_eq!(past, Err(RpcError::TimedOut));
}

#[test]
fn an_address_is_enough_to_find_a_node() {
    let sim = Cluster::new(4, &[1, 2]).start();
    let answer = call(&sim, (0, 0), Target::Address(address(1)), Verb::Echo, "who", SECOND);
    assert_eq!(answer, Ok(Bytes::from_static(b"who")));
    let own = call(&sim, (0, 0), Target::Address(address(0)), Verb::Echo, "who", SECOND);
    assert_eq!(own, Err(RpcError::SameHost(address(0))));
}

#[test]
fn one_way_messages_arrive_without_an_answer() {
    let sim = Cluster::new(5, &[1, 1]).start();
    on(&sim, 0, 0, |rt, messenger| async move {
        for number in 0..10u8 {
            messenger.send(to(1, 0), Verb::Gossip, Bytes::from(vec![number]));
        }
        rt.sleep(Duration::from_millis(50)).await;
    });
    let heard = gossip_heard();
    assert_eq!(heard.len(), 10);
    let stats = messenger(0, 0).stats().verb(Verb::Gossip);
    assert_eq!((stats.sent, stats.answers), (10, 0));
    let (there, here) = (messenger(0, 0).stats().peers[&host(1)], messenger(1, 0).stats().peers[&host(0)]);
    assert_eq!((there.sent.count, there.sent.bytes), (10, stats.sent_bytes));
    assert_eq!((here.received.count, here.served.count), (10, 10));
    assert_eq!(here.received, here.served, "every byte was served");
    assert_eq!((there.attempts, there.successes, there.connections), (1, 1, 1));
    assert_eq!(messenger(1, 0).stats().connections_in, [0, 1, 0], "not over the connection of requests");
}

#[test]
fn a_node_reaches_its_own_shards_without_a_socket() {
    let sim = Cluster::new(6, &[2, 1]).start();
    for shard in [0, 1, 5] {
        let answer = call(&sim, (0, 1), to(0, shard), Verb::Read, "own", SECOND);
        let mut expected = vec![(shard % 2) as u8, 1];
        expected.extend_from_slice(b"own");
        assert_eq!(answer, Ok(Bytes::from(expected)));
        let slow = 2_000u64.to_be_bytes().to_vec();
        let timed_out = call(&sim, (0, 1), to(0, shard), Verb::Truncate, slow, Duration::from_millis(50));
        assert_eq!(timed_out, Err(RpcError::TimedOut));
    }
    sim.run_for(Duration::from_millis(10));
    assert_eq!(slow_handlers(), (0, 3), "they ended at the deadline");
    let unknown = call(&sim, (0, 1), to(0, 0), Verb::Hint, "", SECOND);
    assert!(matches!(unknown, Err(RpcError::Refused(_))), "{unknown:?}");
    on(&sim, 0, 0, |rt, messenger| async move {
        messenger.send(to(0, 1), Verb::Gossip, Bytes::from_static(b"to myself"));
        rt.sleep(Duration::from_millis(5)).await;
    });
    assert_eq!(gossip_heard(), [Bytes::from_static(b"to myself")]);
    assert_eq!(messenger(0, 1).stats().connections_out, [0; 3]);
    on(&sim, 0, 1, |_, messenger| async move { messenger.stop().await });
    assert_eq!(call(&sim, (0, 0), to(0, 1), Verb::Read, "", SECOND), Err(RpcError::Stopped));
}

#[test]
fn a_call_that_nobody_waits_for_is_forgotten_but_served() {
    let sim = Cluster::new(7, &[1, 1]).start();
    let body = Bytes::from(200u64.to_be_bytes().to_vec());
    let given_up = begin(&sim, 0, 0, |rt, messenger| async move {
        messenger.call(to(1, 0), Verb::Truncate, body, rt.now() + SECOND).await
    });
    sim.run_for(Duration::from_millis(50));
    assert_eq!(messenger(0, 0).stats().calls_waiting, 1);
    drop(given_up);
    assert_eq!(messenger(0, 0).stats().calls_waiting, 0);
    sim.run_for(Duration::from_millis(200));
    assert_eq!(messenger(1, 0).stats().verb(Verb::Truncate).served, 1, "others may count on a write");
    assert_eq!(messenger(0, 0).stats().verb(Verb::Truncate).answers, 0, "its answer meets nobody");
    assert_eq!(call(&sim, (0, 0), to(1, 0), Verb::Read, "", SECOND), Ok(Bytes::from_static(b"\0\x01")));
}

//! The number of connections, and properties of calls whose connection belongs to another shard, here or there.

use std::time::Duration;

use bytes::Bytes;
use rpc::{Class, ConnectionsPerPeer, Dropped, Limits, RpcError, Verb};
use rt::{Group, Task};
use rt_sim::{Sim, Simulation};

use crate::harness::*;

/// Open connections of a node: made, accepted.
fn open(node: usize, shards: u16) -> ([usize; 3], [usize; 3]) {
    let mut sums = ([0; 3], [0; 3]);
    for stats in (0..shards).map(|shard| messenger(node, shard).stats()) {
        for class in 0..3 {
            sums.0[class] += stats.connections_out[class];
            sums.1[class] += stats.connections_in[class];
        }
    }
    sums
}

/// Every shard of a node calls every shard of another, and is answered by the one that it means.
fn reach_all(sim: &Sim, (from, from_shards): (usize, u16), (target, target_shards): (usize, u16)) {
    for from_shard in 0..from_shards {
        let outcomes = on(sim, from, from_shard, |rt, messenger| async move {
            let calls: Vec<_> = (0..target_shards)
                .map(|shard| {
                    let (clock, messenger) = (rt.clone(), messenger.clone());
                    rt.spawn(Group::Statement, async move {
                        let deadline = clock.now() + 5 * SECOND;
                        let read =
                            messenger.call(to(target, shard), Verb::Read, Bytes::new(), deadline).await;
                        let bulk = Bytes::from(vec![shard as u8; 3_000]);
                        let echoed = messenger
                            .call(to(target, shard), Verb::StreamChunk, bulk.clone(), deadline)
                            .await;
                        let there =
                            messenger.call(to(target, shard), Verb::Echo, Bytes::new(), deadline).await;
                        (read, echoed == Ok(bulk), there.is_ok())
                    })
                })
                .collect();
            let mut outcomes = Vec::new();
            for call in calls {
                outcomes.push(call.await);
            }
            outcomes
        });
        for (shard, outcome) in outcomes.into_iter().enumerate() {
            let expected = Bytes::from(vec![shard as u8, from as u8 + 1]);
            assert_eq!(outcome, (Ok(expected), true, true), "{from}.{from_shard} to {target}.{shard}");
        }
    }
}

#[test]
fn two_nodes_of_sixty_four_shards_have_a_connection_a_shard() {
    let sim = Cluster::new(500, &[64, 64]).start();
    reach_all(&sim, (0, 64), (1, 64));
    reach_all(&sim, (1, 64), (0, 64));
    let each = [64, 1, 64];
    assert_eq!([open(0, 64), open(1, 64)], [(each, each); 2], "not 64 times 64 of each class");
    for shard in 0..64 {
        let stats = messenger(1, shard).stats();
        assert_eq!(
            (stats.connections_in[0], stats.connections_out[0]),
            (1, 1),
            "shard {shard} has one of its own"
        );
        assert_eq!(stats.verb(Verb::Read).served, 64);
    }
}

/// The cost of a call whose shard owns the connection: nothing is forwarded.
#[test]
fn shards_of_the_same_number_need_no_other_shard() {
    let sim = Cluster::new(501, &[4, 4]).start();
    for shard in 0..4 {
        let forwarded = on(&sim, 0, shard, |rt, caller| async move {
            let mut most = (0, 0);
            for _ in 0..20 {
                let call = caller.call(to(1, shard), Verb::Read, Bytes::new(), rt.now() + SECOND);
                most.0 = most.0.max(caller.stats().calls_shared);
                most.1 = most.1.max(messenger(1, shard).stats().forwarding);
                call.await.unwrap();
            }
            most
        });
        assert_eq!(forwarded, (0, 0));
        let stats = messenger(1, shard).stats();
        assert_eq!((stats.verb(Verb::Read).received, stats.verb(Verb::Read).served), (20, 20));
    }
}

/// As in a cluster of very many nodes: one connection a peer and class.
fn shared(seed: u64, shards: &[u16]) -> Cluster {
    Cluster::new(seed, shards).change(|_, config| config.limits.connections_out_max = 0)
}

#[test]
fn shards_share_connections_where_there_are_many_peers() {
    for (seed, shards) in [(502, [8, 8]), (503, [6, 1]), (504, [1, 7]), (505, [5, 3])] {
        let sim = shared(seed, &shards).start();
        reach_all(&sim, (0, shards[0]), (1, shards[1]));
        reach_all(&sim, (1, shards[1]), (0, shards[0]));
        assert_eq!([open(0, shards[0]), open(1, shards[1])], [([1; 3], [1; 3]); 2], "{shards:?}");
    }
}

/// A cluster whose limit of connections is really met: 12 nodes of 4 shards that all call each other.
#[test]
fn a_node_stays_within_its_connections() {
    let shards = [4; 12];
    let most = 11 * 8;
    let sim =
        Cluster::new(506, &shards).change(move |_, config| config.limits.connections_out_max = most).start();
    let per_peer = ConnectionsPerPeer::new(4, 11, most);
    assert_eq!(Class::ALL.map(|class| per_peer.of_class(class)), [4, 1, 1]);
    for from in 0..12 {
        for target in (0..12).filter(|target| *target != from) {
            reach_all(&sim, (from, 4), (target, 4));
        }
    }
    for node in 0..12 {
        let (made, accepted) = open(node, 4);
        assert_eq!((made, accepted), ([44, 11, 11], [44, 11, 11]), "node {node}");
        assert!(made.iter().sum::<usize>() <= most);
    }
    assert!(Limits::default().connections_out_max >= most);
}

/// The shard that owns the connection of node 0 for requests to node 1, and one that does not.
fn owner_and_other(sim: &Simulation, shards: u16) -> (u16, u16) {
    for shard in 0..shards {
        call(sim, (0, shard), to(1, 0), Verb::Read, "", SECOND).unwrap();
    }
    let owner = (0..shards).find(|shard| messenger(0, *shard).stats().connections_out[0] == 1).unwrap();
    (owner, (owner + 1) % shards)
}

#[test]
fn a_peer_that_dies_ends_calls_over_shared_connections_at_once() {
    let sim = shared(507, &[3, 2]).start();
    let (_, caller) = owner_and_other(&sim, 3);
    let slow = [0, 1].map(|shard| begin_slow(&sim, (0, caller), to(1, shard)));
    sim.run_for(SECOND);
    assert_eq!((slow_handlers(), messenger(0, caller).stats().calls_shared), ((2, 2), 2));
    let killed_at = sim.now();
    sim.kill(sim.node(1));
    for slow in slow {
        assert_eq!(join(&sim, slow), Err(RpcError::Lost), "at once, not at its deadline");
    }
    assert!(sim.now() - killed_at < Duration::from_millis(50));
    let refused = call(&sim, (0, caller), to(1, 1), Verb::Read, "", SECOND);
    assert!(matches!(refused, Err(RpcError::Connect(_))), "{refused:?}");
    // It returns with other shards: frames name shards that it does not have.
    sim.set_shards(sim.node(1), 5);
    sim.start(sim.node(1));
    sim.run_for(3 * SECOND);
    let shard_of =
        |shard| call(&sim, (0, caller), to(1, shard), Verb::Read, "", SECOND).map(|answer| answer[0]);
    assert_eq!([1, 4, 7].map(shard_of), [Ok(1), Ok(4), Ok(2)]);
    sim.kill(sim.node(1));
    sim.set_shards(sim.node(1), 1);
    sim.start(sim.node(1));
    sim.run_for(3 * SECOND);
    assert_eq!([1, 4, 7].map(shard_of), [Ok(0), Ok(0), Ok(0)]);
}

#[test]
fn deadlines_end_forwarded_calls_and_their_handlers() {
    let sim = shared(508, &[2, 3]).start();
    let (_, caller) = owner_and_other(&sim, 2);
    for shard in 0..3 {
        let begun = sim.now();
        let body = 60_000u64.to_be_bytes().to_vec();
        let late = call(&sim, (0, caller), to(1, shard), Verb::Truncate, body, Duration::from_millis(100));
        assert_eq!(late, Err(RpcError::TimedOut));
        assert!(sim.now() - begun < Duration::from_millis(110));
        sim.run_for(Duration::from_millis(20));
        assert_eq!(slow_handlers(), (0, usize::from(shard) + 1), "it began, and was dropped");
        let stats = messenger(1, shard).stats();
        assert_eq!(stats.dropped(Verb::Truncate, Dropped::ExpiredServing), 1, "once, where it was served");
        assert_eq!((stats.serving, stats.inbound_bytes), (0, 0));
    }
    let forwarding: usize = (0..3).map(|shard| messenger(1, shard).stats().forwarding).sum();
    assert_eq!((forwarding, messenger(0, caller).stats().calls_shared), (0, 0));
}

#[test]
fn a_forwarded_call_that_nobody_waits_for_is_served() {
    let sim = shared(509, &[2, 2]).start();
    let (_, caller) = owner_and_other(&sim, 2);
    for shard in 0..2 {
        let body = Bytes::from(200u64.to_be_bytes().to_vec());
        let given_up = begin(&sim, 0, caller, |rt, messenger| async move {
            messenger.call(to(1, shard), Verb::Truncate, body, rt.now() + SECOND).await
        });
        sim.run_for(Duration::from_millis(50));
        drop(given_up);
        sim.run_for(Duration::from_millis(300));
        assert_eq!(messenger(1, shard).stats().verb(Verb::Truncate).served, 1, "others may count on a write");
        let calls: usize = (0..2).map(|shard| messenger(0, shard).stats().calls_waiting).sum();
        assert_eq!(calls, 0);
    }
}

#[test]
fn messages_without_an_answer_reach_the_shard_that_is_meant() {
    let sim = shared(510, &[3, 3]).start();
    for from in 0..3 {
        for shard in 0..3 {
            messenger(0, from).send(to(1, shard), Verb::Gossip, Bytes::from(vec![from as u8, shard as u8]));
        }
    }
    sim.run_for(SECOND);
    assert_eq!(gossip_heard().len(), 9);
    for shard in 0..3 {
        let gossip = messenger(1, shard).stats().verb(Verb::Gossip);
        assert_eq!((gossip.received, gossip.served), (3, 3));
    }
    assert_eq!(open(0, 3).0, [0, 1, 0], "one connection serves urgent messages");
}

/// How many calls were answered, and how many were refused for want of room.
async fn tally(calls: Vec<Task<Result<Bytes, RpcError>>>) -> (u64, u64) {
    let (mut answered, mut refused) = (0, 0);
    for call in calls {
        match call.await {
            Ok(_) => answered += 1,
            Err(RpcError::Overloaded) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    (answered, refused)
}

/// The limits of a shard hold for calls that other shards forward to it, and those of a forwarding shard for its own calls.
#[test]
fn forwarded_requests_are_bounded_as_others_are() {
    let slow = |sim: &Simulation, shard: u16, count: usize, pad: usize| {
        on(sim, 0, 0, move |rt, caller| async move {
            let calls: Vec<_> = (0..count)
                .map(|_| {
                    let (clock, caller) = (rt.clone(), caller.clone());
                    rt.spawn(Group::Statement, async move {
                        let mut body = 200u64.to_be_bytes().to_vec();
                        body.resize(8 + pad, 0);
                        let deadline = clock.now() + 10 * SECOND;
                        caller.call(to(1, shard), Verb::Truncate, Bytes::from(body), deadline).await
                    })
                })
                .collect();
            tally(calls).await
        })
    };
    // The shard that serves: ten at once, twenty wait.
    let sim = Cluster::new(511, &[1, 2])
        .change(|_, config| {
            config.limits.serving_max = 10;
            config.limits.waiting_count_max = 20;
        })
        .start();
    call(&sim, (0, 0), to(1, 0), Verb::Read, "", SECOND).unwrap();
    // Which shard of the peer owns the connection follows from the host id: another one is called.
    let connection = (0..2).find(|shard| messenger(1, *shard).stats().connections_in[0] == 1).unwrap();
    let serving = 1 - connection;
    assert_eq!(slow(&sim, serving, 100, 0), (30, 70));
    assert_eq!(messenger(1, serving).stats().dropped(Verb::Truncate, Dropped::Overloaded), 70);
    // The shard that forwards: a quarter of its bytes for requests that wait for others.
    let sim = Cluster::new(512, &[1, 2]).change(|_, config| config.limits.inbound_bytes_max = 80_000).start();
    let (served, refused) = slow(&sim, serving, 100, 1_000);
    assert!((17..=20).contains(&served), "{served} of 1,072 bytes each are 20,000 bytes");
    assert_eq!(served + refused, 100);
    let stats = messenger(1, connection).stats();
    assert_eq!(stats.dropped(Verb::Truncate, Dropped::Overloaded), refused);
    assert_eq!((stats.forwarding, stats.forwarding_bytes), (0, 0));
}

/// The calls of a shard are bounded until they wait at the connection's owner.
#[test]
fn calls_over_shared_connections_are_bounded() {
    let sim = Cluster::new(513, &[2, 1])
        .change(|_, config| {
            config.limits.connections_out_max = 0;
            config.limits.outgoing_bytes_max = 100_000;
        })
        .start();
    let (_, caller) = owner_and_other(&sim, 2);
    let (ok, overloaded) = on(&sim, 0, caller, |rt, caller| async move {
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let (clock, caller) = (rt.clone(), caller.clone());
                rt.spawn(Group::Statement, async move {
                    let body = Bytes::from(vec![0; 10_000]);
                    caller.call(to(1, 0), Verb::Read, body, clock.now() + 10 * SECOND).await
                })
            })
            .collect();
        tally(calls).await
    });
    assert!(ok >= 9 && overloaded > 0 && ok + overloaded == 50, "{ok} {overloaded}");
    let again = call(&sim, (0, caller), to(1, 0), Verb::Read, vec![0; 10_000], SECOND);
    assert!(again.is_ok(), "the forwarded calls have left: {again:?}");
}

#[test]
fn a_shard_that_stops_ends_requests_that_it_serves_for_others() {
    let sim = shared(514, &[2, 3]).start();
    let (owner, caller) = owner_and_other(&sim, 2);
    let connection = (0..3).find(|shard| messenger(1, *shard).stats().connections_in[0] == 1).unwrap();
    let serving = (connection + 1) % 3;
    let waiting = begin_slow(&sim, (0, caller), to(1, serving));
    sim.run_for(Duration::from_millis(50));
    let stopped_at = sim.now();
    on(&sim, 1, serving, |_, messenger| async move { messenger.stop().await });
    assert_eq!(join(&sim, waiting), Err(RpcError::Lost), "nobody knows whether it was carried out");
    assert!(sim.now() - stopped_at < Duration::from_millis(50));
    assert_eq!(slow_handlers(), (0, 1));
    let waiting = begin_slow(&sim, (0, caller), to(1, connection));
    sim.run_for(Duration::from_millis(50));
    on(&sim, 0, caller, |_, messenger| async move { messenger.stop().await });
    assert_eq!(join(&sim, waiting), Err(RpcError::Stopped), "the caller's own shard has stopped");
    let waiting = begin_slow(&sim, (0, owner), to(1, (connection + 2) % 3));
    sim.run_for(Duration::from_millis(50));
    on(&sim, 0, owner, |_, messenger| async move { messenger.stop().await });
    assert_eq!(join(&sim, waiting), Err(RpcError::Stopped));
    let left: Vec<_> = (0..2).map(|shard| messenger(0, shard).stats()).collect();
    assert!(left.iter().all(|stats| stats.calls_waiting + stats.calls_shared + stats.outgoing_count == 0));
}

/// A shard learns of a new host before the shard that owns the connection does.
#[test]
fn a_host_that_the_owner_does_not_know_yet_is_reached() {
    let sim = shared(515, &[3, 1]).start();
    let (owner, caller) = owner_and_other(&sim, 3);
    let all = std::sync::Arc::new(rpc::Peers::default());
    messenger(0, owner).set_peers(all);
    assert_eq!(call(&sim, (0, owner), to(1, 0), Verb::Read, "", SECOND), Err(RpcError::UnknownHost));
    assert!(call(&sim, (0, caller), to(1, 0), Verb::Read, "", SECOND).is_ok());
}

/// Shard 0 accepts; the others wait for hellos, and the limits are those of the node.
#[test]
fn hellos_leave_shard_0_and_their_limits_hold_for_the_node() {
    let sim = Cluster::new(516, &[4, 1])
        .change(|_, config| {
            config.limits.greeting_max = 20;
            config.limits.per_address_max = 40;
        })
        .start();
    let refused = |shard| messenger(0, shard).stats().connections_refused;
    sim.block_on(move |rt| async move {
        let mut silent = Vec::new();
        for _ in 0..60 {
            silent
                .push(rt.net().connect(address(0), rt::ConnectOptions::default()).await.expect("it listens"));
        }
        rt.sleep(Duration::from_millis(100)).await;
        assert_eq!([0, 1, 2, 3].map(refused), [40, 0, 0, 0], "shard 0 counts, and evicts the oldest");
        rt.sleep(6 * SECOND).await;
        let [counted, others @ ..] = [0, 1, 2, 3].map(refused);
        assert_eq!((counted, others.iter().sum::<u64>()), (40, 20), "the others wait for hellos");
        assert!(others.iter().all(|refused| *refused >= 6), "each has its part: {others:?}");
        let mut closed = 0;
        for stream in &silent {
            closed += usize::from(matches!(stream.read(&mut [0; 8]).await, Ok(0) | Err(_)));
        }
        assert_eq!(closed, 60);
        let silent = rt.net().connect(address(0), rt::ConnectOptions::default()).await.expect("it listens");
        rt.sleep(Duration::from_millis(10)).await;
        for shard in 0..4 {
            messenger(0, shard).stop().await;
        }
        let end = rt.timeout(Duration::from_millis(100), silent.read(&mut [0; 8])).await;
        assert!(matches!(end, Ok(Ok(0) | Err(_))), "one that waits for its hello ends with the node");
    })
    .unwrap();
}

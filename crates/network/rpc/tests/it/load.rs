//! Many calls at once: all are answered, queues stay within their bounds, and liveness does not wait behind data.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{Dropped, Messenger, Packing, RpcError, Verb};
use rt::{Group, Rt};
use rt_sim::{LinkConfig, Sim};

use crate::harness::*;

/// Many calls at once from a shard; their outcomes.
async fn many(
    rt: &Rt,
    messenger: &Messenger,
    count: usize,
    verb: Verb,
    body: impl Fn(usize) -> Vec<u8>,
    timeout: Duration,
) -> Vec<Result<Bytes, RpcError>> {
    let tasks: Vec<_> = (0..count)
        .map(|index| {
            let (clock, messenger, body) = (rt.clone(), messenger.clone(), Bytes::from(body(index)));
            rt.spawn(Group::Statement, async move {
                let shard = index as u16;
                messenger.call(to(1, shard), verb, body, clock.now() + timeout).await
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await);
    }
    outcomes
}

fn millis(millis: u64) -> Vec<u8> {
    millis.to_be_bytes().to_vec()
}

#[test]
fn ten_thousand_calls_at_once_find_their_own_answers() {
    for packing in [Packing::None, Packing::Lz4, Packing::Zstd] {
        let sim = Cluster::new(20, &[1, 2])
            .change(move |_, config| {
                config.compression = packing;
                config.compress_len_min = 16;
            })
            .start();
        on(&sim, 0, 0, |rt, messenger| async move {
            let body = |index: usize| format!("the call with the number {index}").into_bytes();
            let outcomes = many(&rt, &messenger, 10_000, Verb::Read, body, 30 * SECOND).await;
            for (index, outcome) in outcomes.into_iter().enumerate() {
                let mut expected = vec![(index % 2) as u8, 1];
                expected.extend(body(index));
                assert_eq!(outcome, Ok(Bytes::from(expected)));
            }
            let stats = messenger.stats();
            assert_eq!(stats.connections_out, [1, 0, 0]);
            assert_eq!((stats.calls_waiting, stats.outgoing_count, stats.outgoing_bytes), (0, 0, 0));
        });
        let stats = messenger(1, 0).stats();
        assert_eq!((stats.serving, stats.waiting, stats.inbound_bytes), (0, 0, 0));
    }
}

#[test]
fn both_sides_may_pack() {
    let sent = |packing| {
        let sim = Cluster::new(21, &[1, 1]).change(move |_, config| config.compression = packing).start();
        let body = vec![b'x'; 100_000];
        let answer = call(&sim, (0, 0), to(1, 0), Verb::StreamChunk, body.clone(), SECOND);
        assert_eq!(answer, Ok(Bytes::from(body)));
        messenger(0, 0).stats().verb(Verb::StreamChunk).sent_bytes
    };
    assert!(sent(Packing::None) > 100_000);
    assert!(sent(Packing::Lz4) < 1_000);
    assert!(sent(Packing::Zstd) < 1_000);
}

#[test]
fn requests_beyond_the_limit_wait_and_beyond_that_are_refused() {
    let sim = Cluster::new(22, &[1, 1])
        .change(|_, config| {
            config.limits.serving_max = 10;
            config.limits.waiting_count_max = 20;
        })
        .start();
    on(&sim, 0, 0, |rt, caller| async move {
        let outcomes = many(&rt, &caller, 100, Verb::Truncate, |_| millis(200), 10 * SECOND).await;
        let served = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let refused = outcomes.iter().filter(|outcome| **outcome == Err(RpcError::Overloaded)).count();
        assert_eq!((served, refused), (30, 70));
    });
    assert_eq!(slow_handlers(), (0, 30));
    assert_eq!(messenger(1, 0).stats().dropped(Verb::Truncate, Dropped::Overloaded), 70);
}

/// Writes that wait for updates of views take all of their places, and those updates come in all the same.
#[test]
fn requests_that_wait_for_others_do_not_shut_out_those_by_which_they_end() {
    let sim = Cluster::new(26, &[1, 1])
        .change(|_, config| {
            config.limits.serving_max = 10;
            config.limits.waiting_count_max = 20;
        })
        .start();
    on(&sim, 0, 0, |rt, caller| async move {
        let (clock, peer) = (rt.clone(), caller.clone());
        let waiters = rt.spawn(Group::Statement, async move {
            many(&clock, &peer, 100, Verb::Truncate, |_| millis(2_000), 10 * SECOND).await
        });
        rt.sleep(Duration::from_millis(100)).await;
        let stats = messenger(1, 0).stats();
        assert_eq!((stats.serving, stats.waiting), (10, 20), "the lane is full");
        let others = many(&rt, &caller, 25, Verb::Read, |_| vec![1], SECOND).await;
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        let outcomes = waiters.await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 30);
    });
    let stats = messenger(1, 0).stats();
    assert_eq!((stats.serving, stats.waiting, stats.inbound_bytes), (0, 0, 0));
}

#[test]
fn requests_past_their_deadline_are_never_served() {
    let sim = Cluster::new(23, &[1, 1]).change(|_, config| config.limits.serving_max = 1).start();
    on(&sim, 0, 0, |rt, caller| async move {
        let blocker = {
            let (clock, caller) = (rt.clone(), caller.clone());
            rt.spawn(Group::Statement, async move {
                let body = Bytes::from(millis(1_000));
                caller.call(to(1, 0), Verb::Truncate, body, clock.now() + 5 * SECOND).await
            })
        };
        rt.sleep(Duration::from_millis(50)).await;
        let timeout = Duration::from_millis(500);
        let outcomes = many(&rt, &caller, 50, Verb::Truncate, |_| millis(0), timeout).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Err(RpcError::TimedOut)));
        assert!(blocker.await.is_ok());
    });
    sim.run_for(Duration::from_millis(100));
    assert_eq!(slow_handlers(), (0, 1), "only the first was begun");
    let stats = messenger(1, 0).stats();
    assert_eq!(stats.dropped(Verb::Truncate, Dropped::ExpiredUnserved), 50);
    assert_eq!((stats.serving, stats.waiting, stats.inbound_bytes), (0, 0, 0));
}

#[test]
fn an_unreachable_peer_costs_bounded_memory() {
    let sim = Cluster::new(24, &[1, 1])
        .change(|_, config| {
            config.limits.outgoing_bytes_max = 1 << 20;
            config.limits.calls_max = 500;
        })
        .start();
    call(&sim, (0, 0), to(1, 0), Verb::Read, "", SECOND).unwrap();
    sim.partition(sim.node(0), sim.node(1));
    on(&sim, 0, 0, |rt, caller| async move {
        let big = many(&rt, &caller, 200, Verb::Read, |_| vec![1; 100_000], SECOND).await;
        let overloaded = big.iter().filter(|outcome| **outcome == Err(RpcError::Overloaded)).count();
        let answerless = big.len() - overloaded;
        // Ten and some lie in the queue; the socket and one write hold more.
        assert!((180..=190).contains(&overloaded), "{overloaded}");
        assert!(big.iter().all(|outcome| outcome.is_err()));
        // Calls past their deadline make room for as many again.
        let again = many(&rt, &caller, 200, Verb::Read, |_| vec![1; 100_000], SECOND).await;
        let timed_out = again.iter().filter(|outcome| **outcome == Err(RpcError::TimedOut)).count();
        assert_eq!(timed_out, 10);
        let small = many(&rt, &caller, 1000, Verb::Read, |_| vec![1; 10], SECOND).await;
        let overloaded = small.iter().filter(|outcome| **outcome == Err(RpcError::Overloaded)).count();
        assert_eq!(overloaded, 500, "no more than this wait for an answer");
        let stats = caller.stats();
        assert!(stats.outgoing_bytes <= 1 << 20, "{stats:?}");
        let dropped = stats.dropped(Verb::Read, Dropped::QueueFull);
        assert_eq!(dropped, 200 - timed_out as u64 + 500 + big.len() as u64 - answerless as u64);
        assert!(stats.dropped(Verb::Read, Dropped::ExpiredUnsent) >= 10);
    });
}

/// A slow link is full of data; a ping of gossip must still come through quickly.
#[test]
fn liveness_does_not_wait_behind_data() {
    let sim = Cluster::new(25, &[1, 1]).start();
    let link = LinkConfig { bandwidth: Some(10 << 20), ..LinkConfig::default() };
    sim.set_link(sim.node(0), sim.node(1), Some(link));
    on(&sim, 0, 0, |rt, caller| async move {
        let bulk = {
            let (clock, caller) = (rt.clone(), caller.clone());
            rt.spawn(Group::Streaming, async move {
                many(&clock, &caller, 30, Verb::StreamChunk, |_| vec![9; 1 << 20], 60 * SECOND).await
            })
        };
        rt.sleep(Duration::from_millis(300)).await;
        assert!(!bulk.is_finished());
        for _ in 0..10 {
            let begun = rt.now();
            caller.call(to(1, 0), Verb::Echo, Bytes::new(), begun + SECOND).await.unwrap();
            let took = rt.now() - begun;
            assert!(took < Duration::from_millis(20), "{took:?}");
        }
        let begun = rt.now();
        assert!(bulk.await.iter().all(Result::is_ok));
        assert!(rt.now() - begun > SECOND, "the link was busy all along");
    });
}

#[test]
fn stop_under_load_ends_every_call() {
    let sim = Cluster::new(26, &[2, 2]).start();
    let begun: Vec<_> = (0..2)
        .map(|shard| {
            begin(&sim, 0, shard, |rt, caller| async move {
                many(&rt, &caller, 3_000, Verb::Truncate, |index| millis(index as u64), 60 * SECOND).await
            })
        })
        .collect();
    let answered = |sim: &Sim| {
        sim.run_for(Duration::from_millis(1_000));
        (0..2).map(|shard| messenger(0, shard).stats().verb(Verb::Truncate).answers).sum::<u64>()
    };
    let before = answered(&sim);
    assert!(before > 500, "{before}");
    for shard in 0..2 {
        on(&sim, 1, shard, |_, messenger| async move { messenger.stop().await });
    }
    let stopped_at = sim.now();
    for outcomes in begun.into_iter().map(|begun| join(&sim, begun)) {
        let ok = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let lost = outcomes.iter().filter(|outcome| **outcome == Err(RpcError::Lost)).count();
        assert_eq!(ok + lost, 3_000);
        assert!(ok > 250 && lost > 250, "{ok} {lost}");
    }
    assert!(sim.now() - stopped_at < Duration::from_millis(100));
}

/// The same seed gives the same run, byte for byte: nothing comes from outside of `rt`.
#[test]
fn a_seed_decides_everything() {
    let run = |seed| {
        let sim = Cluster::new(seed, &[2, 3, 1]).start();
        on(&sim, 0, 1, |rt, caller| async move {
            many(&rt, &caller, 300, Verb::Read, |index| vec![1; index], SECOND).await
        });
        let killed = Rc::new(sim.node(1));
        sim.kill(*killed);
        call(&sim, (2, 0), to(1, 2), Verb::Read, "x", SECOND).unwrap_err();
        sim.start(*killed);
        sim.run_for(3 * SECOND);
        call(&sim, (2, 0), to(1, 2), Verb::Read, "x", SECOND).unwrap();
        (sim.trace_hash(), sim.trace_events())
    };
    assert_eq!(run(30), run(30));
    assert_ne!(run(30), run(31));
}

/// Data fill the connection while the link is cut; requests that wait behind them and are past their deadline when the link
/// is back must not cost the peer anything.
#[test]
fn requests_that_could_not_be_written_in_time_are_never_sent() {
    let sim = Cluster::new(27, &[1, 1]).start();
    call(&sim, (0, 0), to(1, 0), Verb::Read, "", SECOND).unwrap();
    sim.partition(sim.node(0), sim.node(1));
    let filling = begin(&sim, 0, 0, |rt, caller| async move {
        many(&rt, &caller, 20, Verb::Read, |_| vec![1; 100_000], 30 * SECOND).await
    });
    sim.run_for(Duration::from_millis(10));
    let late = begin(&sim, 0, 0, |rt, caller| async move {
        many(&rt, &caller, 50, Verb::Truncate, |_| millis(0), Duration::from_millis(200)).await
    });
    sim.run_for(Duration::from_millis(1_500));
    sim.heal_all();
    assert!(join(&sim, filling).iter().all(Result::is_ok), "the connection has survived");
    assert!(join(&sim, late).iter().all(|outcome| *outcome == Err(RpcError::TimedOut)));
    sim.run_for(SECOND);
    let stats = messenger(0, 0).stats();
    assert_eq!(stats.dropped(Verb::Truncate, Dropped::ExpiredUnsent), 50);
    assert_eq!(
        (stats.verb(Verb::Truncate).sent, messenger(1, 0).stats().verb(Verb::Truncate).received),
        (0, 0)
    );
}

//! Random calls under random faults: every call ends by its deadline, an answer is that of its own request, and when the
//! faults have stopped nothing is left over.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{Messenger, Packing, RpcError, Verb};
use rt::{Group, Rt};
use rt_sim::{Rng, Sim};

use crate::harness::*;

const SHARDS: [u16; 3] = [2, 1, 3];

#[derive(Default)]
struct Tally {
    answered: Cell<u32>,
    failed: Cell<u32>,
}

/// One call to a random shard, with a random body and deadline.
async fn one(rt: Rt, messenger: Messenger, own: usize, shard: u16, draw: [u64; 4], tally: Rc<Tally>) {
    let target = (own + 1 + draw[0] as usize % 2) % SHARDS.len();
    let wanted = (draw[1] % 5) as u16;
    let verb = [Verb::Read, Verb::Read, Verb::StreamChunk, Verb::Echo][draw[2] as usize % 4];
    let len = match verb {
        Verb::StreamChunk => draw[3] as usize % 300_000,
        _ => draw[3] as usize % 5_000,
    };
    let mut body = format!("{own}.{shard} {draw:?} ").into_bytes();
    body.resize(body.len() + len, draw[3] as u8);
    let body = Bytes::from(body);
    let timeout = Duration::from_millis(20 + draw[1] % 3_000);
    let begun = rt.now();
    let outcome = messenger.call(to(target, wanted), verb, body.clone(), begun + timeout).await;
    let took = rt.now() - begun;
    assert!(took < timeout + Duration::from_millis(10), "{verb:?} took {took:?} of {timeout:?}: {outcome:?}");
    match outcome {
        Ok(answer) if verb == Verb::Read => {
            assert_eq!(answer[..2], [(wanted % SHARDS[target]) as u8, own as u8 + 1]);
            assert!(answer[2..] == body, "another call's answer");
            tally.answered.set(tally.answered.get() + 1);
        }
        Ok(answer) => {
            assert!(answer == body, "another call's answer");
            tally.answered.set(tally.answered.get() + 1);
        }
        Err(RpcError::Lost | RpcError::TimedOut | RpcError::Connect(_)) => {
            tally.failed.set(tally.failed.get() + 1);
        }
        Err(error) => panic!("{verb:?}: {error}"),
    }
}

/// A fault, or the end of one.
fn strike(sim: &Sim, rng: &mut Rng) {
    let [one, other] = [sim.node(rng.below(3) as usize), sim.node(rng.below(3) as usize)];
    match rng.below(7) {
        0 => sim.kill(one),
        1 => sim.crash(one),
        2 if one != other => sim.partition(one, other),
        3 if one != other => sim.partition_one_way(one, other),
        4 if one != other => sim.reset_connections(one, other),
        _ => sim.heal_all(),
    }
    for node in 0..3 {
        if !sim.is_running(sim.node(node)) && rng.below(2) == 0 {
            sim.start(sim.node(node));
        }
    }
}

fn storm(seed: u64, connections_out_max: usize) -> (u32, u32) {
    let sim = Cluster::new(seed, &SHARDS)
        .change(move |node, config| {
            config.compression = [Packing::Zstd, Packing::Lz4, Packing::None][node];
            config.limits.body_len_max = 1 << 20;
            config.limits.connections_out_max = connections_out_max;
        })
        .start();
    let mut rng = sim.rng(1);
    let tally = Rc::new(Tally::default());
    for _ in 0..40 {
        for (node, shards) in
            SHARDS.into_iter().enumerate().filter(|(node, _)| sim.is_running(sim.node(*node)))
        {
            let shard = rng.below(u64::from(shards)) as u16;
            for _ in 0..rng.below(20) {
                let rt = sim.rt(sim.node(node), rt::ShardId(shard)).expect("it runs");
                let draw = [(); 4].map(|()| rng.next_u64());
                let call = one(rt.clone(), messenger(node, shard), node, shard, draw, Rc::clone(&tally));
                rt.spawn(Group::Statement, call).detach();
            }
        }
        strike(&sim, &mut rng);
        sim.run_for(Duration::from_millis(rng.below(400)));
    }
    sim.heal_all();
    (0..3).for_each(|node| sim.start(sim.node(node)));
    // The last calls end, silent connections are noticed, pauses end.
    sim.run_for(15 * SECOND);
    for (node, shards) in SHARDS.into_iter().enumerate() {
        for shard in 0..shards {
            let stats = messenger(node, shard).stats();
            assert_eq!((stats.calls_waiting, stats.serving, stats.waiting), (0, 0, 0), "seed {seed}");
            assert_eq!((stats.inbound_bytes, stats.partial_bytes), (0, 0), "seed {seed}");
            assert_eq!((stats.outgoing_count, stats.outgoing_bytes), (0, 0), "seed {seed}");
            let shared = (stats.forwarding, stats.forwarding_bytes, stats.calls_shared);
            assert_eq!(shared, (0, 0, 0), "seed {seed}");
            for target in (0..3).filter(|target| *target != node) {
                let answer = call(&sim, (node, shard), to(target, 0), Verb::Read, "after", SECOND);
                assert!(answer.is_ok(), "seed {seed}: {node}.{shard} to {target}: {answer:?}");
            }
        }
    }
    (tally.answered.get(), tally.failed.get())
}

#[test]
fn nothing_is_lost_mixed_up_or_left_over() {
    let (mut answered, mut failed) = (0, 0);
    for seed in 0..6 {
        // Every other time the shards of a node share one connection a peer.
        let (well, badly) = storm(7_000 + seed, if seed % 2 == 0 { 16_384 } else { 0 });
        (answered, failed) = (answered + well, failed + badly);
    }
    // Both sides of it were seen.
    assert!(answered > 800 && failed > 400, "{answered} answered, {failed} failed");
}

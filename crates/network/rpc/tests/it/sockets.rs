//! The same over real sockets: two nodes of two shards each on loopback. The simulator cannot show whether a
//! connection survives its way from shard 0 to another thread, and whether writes of many slices are whole.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{HandoverEndpoint, Messenger, Packing, PeerInfo, Peers, RpcConfig, Target, Verb, handover_mesh};
use rt::{LocalBoxFuture, Rt, ShardMain};
use topology::HostId;

const SERVER: HostId = HostId([1; 16]);
const CLIENT: HostId = HostId([2; 16]);
const SHARDS: u16 = 2;

/// Runs a node until the mains of its shards have ended.
fn node<T: Send + 'static>(
    host: HostId,
    main: impl Fn(Rt, Messenger) -> LocalBoxFuture<T> + Clone + Send + 'static,
) -> Vec<T> {
    let of_shard = |endpoint: HandoverEndpoint| {
        let main = main.clone();
        Box::new(move |rt: Rt| {
            let mut config = RpcConfig::new("test", host, SocketAddr::from(([127, 0, 41, 1], 0)));
            config.compression = Packing::Lz4;
            let messenger = Messenger::new(&rt, Arc::new(config), endpoint);
            main(rt, messenger)
        }) as ShardMain<T>
    };
    let mains = handover_mesh(SHARDS).into_iter().map(of_shard).collect();
    let config =
        rt_uring::Config { pin: false, files: rt_uring::FileBackend::Memory, ..rt_uring::Config::default() };
    rt_uring::run(&config, mains).expect("the node starts")
}

fn body(len: usize) -> Bytes {
    (0..len.div_ceil(4) as u32)
        .flat_map(|i| crc32fast::hash(&i.to_be_bytes()).to_be_bytes())
        .take(len)
        .collect()
}

#[test]
fn shards_of_two_processes_reach_each_other() {
    let (ready, listening) = mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&done);
    let serving = std::thread::spawn(move || {
        node(SERVER, move |rt, messenger| {
            let (ready, ended) = (ready.clone(), Arc::clone(&ended));
            Box::pin(async move {
                let shard = rt.shard().0 as u8;
                for verb in [Verb::Read, Verb::StreamChunk] {
                    messenger.serve(verb, move |incoming| async move {
                        let mut answer = vec![shard];
                        answer.extend_from_slice(&incoming.body);
                        Ok(Bytes::from(answer))
                    });
                }
                if shard == 0 {
                    ready.send(messenger.listen().await.expect("the address is free")).expect("awaited");
                }
                while !ended.load(Ordering::Relaxed) {
                    rt.sleep(Duration::from_millis(10)).await;
                }
                let stats = messenger.stats();
                messenger.stop().await;
                stats
            })
        })
    });
    let address = listening.recv_timeout(Duration::from_secs(30)).expect("the server listens");
    let asked = node(CLIENT, move |rt, messenger| {
        Box::pin(async move {
            let peer = PeerInfo { address, shard_count: SHARDS, near: rpc::Near::Rack };
            messenger.set_peers(Arc::new(Peers::new([(SERVER, peer)])));
            let mut answers = 0;
            for shard in 0..SHARDS {
                for (verb, len) in [(Verb::Read, 0), (Verb::Read, 3_000), (Verb::StreamChunk, 5_000_000)] {
                    let sent = match verb {
                        Verb::Read => Bytes::from(vec![7; len]),
                        _ => body(len),
                    };
                    let target = Target::Host { host: SERVER, shard };
                    let deadline = rt.now() + Duration::from_secs(30);
                    let answer =
                        messenger.call(target, verb, sent.clone(), deadline).await.expect("an answer");
                    assert!(answer[0] == shard as u8 && answer[1..] == sent[..], "{verb:?} of {len} bytes");
                    answers += 1;
                }
            }
            messenger.stop().await;
            answers
        })
    });
    done.store(true, Ordering::Relaxed);
    assert_eq!(asked, [6, 6]);
    let stats = serving.join().expect("the server ends");
    for shard in stats {
        assert_eq!((shard.verb(Verb::Read).served, shard.verb(Verb::StreamChunk).served), (4, 2));
    }
}

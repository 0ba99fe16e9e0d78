//! Measures one call between two nodes on loopback, both in this process: calls a second, and CPU time of both sides.
//!
//!     cargo run --release -p bench --example internode [callers] [calls] [body bytes] [the nodes' IP address]
//!
//! Under callgrind, two runs with different numbers of calls give the instructions of one: see docs/design/rpc.md.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{HandoverEndpoint, Messenger, PeerInfo, Peers, RpcConfig, Target, Verb, handover_mesh};
use rt::sync::Notify;
use rt::{Group, LocalBoxFuture, Rt, ShardMain};
use topology::HostId;

const SERVER: HostId = HostId([1; 16]);
const CLIENT: HostId = HostId([2; 16]);
const TARGET: Target = Target::Host { host: SERVER, shard: 0 };
const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// CPU time of the calling thread, as the kernel accounts it.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a mounted /proc");
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds on a core"))
}

/// Runs a node of one shard; what its main returns.
fn node<T: Send + 'static>(
    host: HostId,
    address: SocketAddr,
    main: impl FnOnce(Rt, Messenger) -> LocalBoxFuture<T> + Send + 'static,
) -> T {
    let endpoint: HandoverEndpoint = handover_mesh(1).remove(0);
    let main = Box::new(move |rt: Rt| {
        let config = RpcConfig::new("measured", host, address);
        let messenger = Messenger::new(&rt, Arc::new(config), endpoint);
        main(rt, messenger)
    }) as ShardMain<T>;
    let config =
        rt_uring::Config { pin: false, files: rt_uring::FileBackend::Memory, ..rt_uring::Config::default() };
    rt_uring::run(&config, vec![main]).expect("the node starts").remove(0)
}

/// Answers until it is told to stop; the CPU time between the first and the last echo.
fn server(address: SocketAddr, ready: mpsc::Sender<SocketAddr>) -> Duration {
    node(SERVER, address, move |rt, messenger| {
        Box::pin(async move {
            let mark = Notify::new();
            messenger.serve(Verb::Apply, |_| async move { Ok(Bytes::from_static(b"done")) });
            let marked = mark.clone();
            messenger.serve(Verb::Echo, move |incoming| {
                let marked = marked.clone();
                async move {
                    marked.notify_one();
                    Ok(incoming.body)
                }
            });
            let listening = messenger.listen().await.expect("the address is free");
            ready.send(listening).expect("the client waits");
            mark.notified().await;
            let before = thread_cpu();
            mark.notified().await;
            let spent = thread_cpu() - before;
            rt.sleep(Duration::from_millis(50)).await;
            messenger.stop().await;
            spent
        })
    })
}

#[derive(Clone, Copy)]
struct Load {
    callers: usize,
    calls: usize,
    body: usize,
}

async fn caller(rt: Rt, messenger: Messenger, calls: usize, body: Bytes) {
    for _ in 0..calls {
        let deadline = rt.now() + Duration::from_secs(30);
        let answer = messenger.call(TARGET, Verb::Apply, body.clone(), deadline).await;
        assert_eq!(answer.as_deref(), Ok(&b"done"[..]));
    }
}

/// Time and CPU time of the calls.
fn client(address: SocketAddr, server: SocketAddr, load: Load) -> (Duration, Duration) {
    node(CLIENT, address, move |rt, messenger| {
        Box::pin(async move {
            let peer = PeerInfo { address: server, shard_count: 1, near: rpc::Near::Rack };
            messenger.set_peers(Arc::new(Peers::new([(SERVER, peer)])));
            let mark = || messenger.call(TARGET, Verb::Echo, Bytes::new(), rt.now() + FIVE_SECONDS);
            mark().await.expect("the server answers");
            let (began, before) = (rt.now(), thread_cpu());
            let body = Bytes::from(vec![7; load.body]);
            let start = |_| {
                let calls = load.calls / load.callers;
                rt.spawn(Group::Statement, caller(rt.clone(), messenger.clone(), calls, body.clone()))
            };
            let tasks: Vec<_> = (0..load.callers).map(start).collect();
            for task in tasks {
                task.await;
            }
            let (took, spent) = (rt.now() - began, thread_cpu() - before);
            mark().await.expect("the server answers");
            messenger.stop().await;
            (took, spent)
        })
    })
}

fn main() {
    let argument = |n: usize, default: usize| -> usize {
        std::env::args().nth(n).map_or(default, |text| text.parse().expect("a number"))
    };
    let load = Load { callers: argument(1, 64), calls: argument(2, 200_000), body: argument(3, 200) };
    let ip: IpAddr =
        std::env::args().nth(4).map_or([127, 0, 0, 1].into(), |text| text.parse().expect("an address"));
    let any = SocketAddr::new(ip, 0);
    let (ready, listening) = mpsc::channel();
    let serving = std::thread::spawn(move || server(any, ready));
    let address = listening.recv().expect("the server listens");
    let (took, client_cpu) = client(any, address, load);
    let server_cpu = serving.join().expect("the server ends");
    let each = |time: Duration| time.as_nanos() as f64 / 1000.0 / load.calls as f64;
    println!(
        "{} callers: {:.0} calls a second; µs of CPU a call: {:.2} here, {:.2} there",
        load.callers,
        load.calls as f64 / took.as_secs_f64(),
        each(client_cpu),
        each(server_cpu)
    );
}

//! Measures one call between two nodes on loopback, both in this process: calls a second, and CPU time of both sides.
//!
//!     cargo run --release -p bench --example internode [callers] [calls] [body bytes] [the nodes' IP address] [path]
//!
//! The path is `direct` (the shard that calls, and the one that is called, own the connection), `there` (another shard of the
//! peer is called), or `both` (and another shard of the caller's node owns the connection).
//!
//! Under callgrind, two runs with different numbers of calls give the instructions of one: see docs/design/rpc.md.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{Class, ConnectionsPerPeer, Messenger, PeerInfo, Peers, RpcConfig, Target, Verb, handover_mesh};
use rt::sync::Notify;
use rt::{Group, LocalBoxFuture, Rt, ShardMain};
use topology::HostId;

const SERVER: HostId = HostId([1; 16]);
const CLIENT: HostId = HostId([2; 16]);
const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// CPU time of the calling thread, as the kernel accounts it.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a mounted /proc");
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds on a core"))
}

/// Which shards a call meets.
#[derive(Clone, Copy, PartialEq)]
enum Path {
    Direct,
    There,
    Both,
}

impl Path {
    fn shards(self) -> u16 {
        if self == Path::Direct { 1 } else { 2 }
    }

    /// The shard of the calls: with one connection for both shards, the one that does not own it.
    fn calling(self) -> u16 {
        let shared = ConnectionsPerPeer::new(2, 1, 0).owner(Class::Request, 0, SERVER);
        if self == Path::Both { 1 - shared } else { 0 }
    }
}

/// Runs a node: a main of one shard, whose result is given back, and a short one of all.
fn node<T: Send + 'static>(
    (host, address, path, on): (HostId, SocketAddr, Path, u16),
    each: impl Fn(&Messenger) + Clone + Send + 'static,
    main: impl FnOnce(Rt, Messenger) -> LocalBoxFuture<T> + Send + 'static,
) -> T {
    let (mut main, done) = (Some(main), Arc::new(AtomicBool::new(false)));
    let mut of_shard = |(shard, endpoint): (usize, rpc::HandoverEndpoint)| {
        let (main, done) = (if shard == usize::from(on) { main.take() } else { None }, Arc::clone(&done));
        let each = each.clone();
        Box::new(move |rt: Rt| {
            let mut config = RpcConfig::new("measured", host, address);
            if path == Path::Both {
                config.limits.connections_out_max = 0;
            }
            let messenger = Messenger::new(&rt, Arc::new(config), endpoint);
            each(&messenger);
            Box::pin(async move {
                let result = match main {
                    Some(main) => Some(main(rt.clone(), messenger.clone()).await),
                    None => None,
                };
                if result.is_some() {
                    done.store(true, Ordering::Relaxed);
                }
                while !done.load(Ordering::Relaxed) {
                    rt.sleep(Duration::from_millis(50)).await;
                }
                messenger.stop().await;
                result
            }) as LocalBoxFuture<Option<T>>
        }) as ShardMain<Option<T>>
    };
    let mains = handover_mesh(path.shards()).into_iter().enumerate().map(&mut of_shard).collect();
    let config =
        rt_uring::Config { pin: false, files: rt_uring::FileBackend::Memory, ..rt_uring::Config::default() };
    let results = rt_uring::run(&config, mains).expect("the node starts");
    results.into_iter().flatten().next().expect("one shard has the main")
}

/// Answers until the client ends; returns the CPU time between the first and the last echo.
fn server(address: SocketAddr, path: Path, ready: mpsc::Sender<SocketAddr>) -> Duration {
    let done = |messenger: &Messenger| {
        messenger.serve(Verb::Apply, |_| async move { Ok(Bytes::from_static(b"done")) });
    };
    node((SERVER, address, path, 0), done, move |rt, messenger| {
        Box::pin(async move {
            let mark = Notify::new();
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
    path: Path,
}

async fn caller(rt: Rt, messenger: Messenger, (calls, target): (usize, Target), body: Bytes) {
    for _ in 0..calls {
        let deadline = rt.now() + Duration::from_secs(30);
        let answer = messenger.call(target, Verb::Apply, body.clone(), deadline).await;
        assert_eq!(answer.as_deref(), Ok(&b"done"[..]));
    }
}

/// Time and CPU time of the calls.
fn client(address: SocketAddr, server: SocketAddr, load: Load) -> (Duration, Duration) {
    let peer = PeerInfo { address: server, shard_count: load.path.shards(), near: rpc::Near::Rack };
    let peers = Arc::new(Peers::new([(SERVER, peer)]));
    let connect = move |messenger: &Messenger| messenger.set_peers(Arc::clone(&peers));
    node((CLIENT, address, load.path, load.path.calling()), connect, move |rt, messenger| {
        Box::pin(async move {
            let host = |shard| Target::Host { host: SERVER, shard };
            let mark = || messenger.call(host(0), Verb::Echo, Bytes::new(), rt.now() + FIVE_SECONDS);
            mark().await.expect("the server answers");
            let (began, before) = (rt.now(), thread_cpu());
            let body = Bytes::from(vec![7; load.body]);
            let target = match load.path {
                Path::Direct => host(0),
                // The connection leads to the shard of the same number as the one that owns it.
                Path::There => host(1),
                Path::Both => host(load.path.calling()),
            };
            let start = |_| {
                let calls = load.calls / load.callers;
                rt.spawn(
                    Group::Statement,
                    caller(rt.clone(), messenger.clone(), (calls, target), body.clone()),
                )
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
    let path = match std::env::args().nth(5).as_deref() {
        None | Some("direct") => Path::Direct,
        Some("there") => Path::There,
        Some("both") => Path::Both,
        Some(other) => panic!("{other}: a path is direct, there or both"),
    };
    let load = Load { callers: argument(1, 64), calls: argument(2, 200_000), body: argument(3, 200), path };
    let ip: IpAddr =
        std::env::args().nth(4).map_or([127, 0, 0, 1].into(), |text| text.parse().expect("an address"));
    let any = SocketAddr::new(ip, 0);
    let (ready, listening) = mpsc::channel();
    let serving = std::thread::spawn(move || server(any, path, ready));
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

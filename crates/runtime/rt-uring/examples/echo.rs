//! Measures the cost of rt's executor in a TCP server: the same echo server on rt and on bare tokio, and the
//! CPU time of the server's thread for each answered frame.
//!
//!     cargo run --release -p rt-uring --example echo [connections] [pipelined] [seconds] [rounds]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bytes::BytesMut;
use rt::{Group, ListenOptions, Rt, Stream, shard_mains};
use rt_uring::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const FRAME: usize = 64;

/// CPU time of the calling thread, as the kernel accounts it.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a mounted /proc");
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds on a core"))
}

/// Answers the whole frames of `input`.
fn answer(input: &mut BytesMut, output: &mut Vec<u8>) -> u64 {
    let frames = input.len() / FRAME;
    output.extend_from_slice(&input.split_to(frames * FRAME));
    frames as u64
}

async fn serve_rt(stream: Stream, answered: Arc<AtomicU64>) {
    let _ = stream.set_nodelay(true);
    let (mut input, mut output) = (BytesMut::with_capacity(16 << 10), Vec::new());
    loop {
        input.reserve(8 << 10);
        match stream.read_buf(&mut input).await {
            Ok(1..) => {}
            _ => return,
        }
        let frames = answer(&mut input, &mut output);
        if stream.write_all(&output).await.is_err() {
            return;
        }
        output.clear();
        answered.fetch_add(frames, Ordering::Relaxed);
    }
}

async fn serve_tokio(mut stream: tokio::net::TcpStream, answered: Arc<AtomicU64>) {
    let _ = stream.set_nodelay(true);
    let (mut input, mut output) = (BytesMut::with_capacity(16 << 10), Vec::new());
    loop {
        input.reserve(8 << 10);
        match stream.read_buf(&mut input).await {
            Ok(1..) => {}
            _ => return,
        }
        let frames = answer(&mut input, &mut output);
        if stream.write_all(&output).await.is_err() {
            return;
        }
        output.clear();
        answered.fetch_add(frames, Ordering::Relaxed);
    }
}

/// One connection's closed loop: sends a batch, waits for all answers.
fn client(address: SocketAddr, pipelined: usize, stop: &AtomicBool) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let batch = vec![7u8; FRAME * pipelined];
    let mut back = vec![0u8; FRAME * pipelined];
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&batch).expect("the server reads");
        stream.read_exact(&mut back).expect("the server answers");
    }
}

fn load(address: SocketAddr, connections: usize, pipelined: usize, seconds: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..connections)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || client(address, pipelined, &stop))
        })
        .collect();
    std::thread::sleep(Duration::from_secs(seconds));
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client ends");
    }
}

async fn rt_server(
    rt: Rt,
    ready: mpsc::Sender<SocketAddr>,
    answered: Arc<AtomicU64>,
    stop: Arc<tokio::sync::Notify>,
) -> Duration {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = rt.net().listen(any, ListenOptions::default()).await.expect("a free port");
    ready.send(listener.local_addr().expect("it listens")).expect("the client waits");
    let rt2 = rt.clone();
    let accepting = rt.spawn(Group::Statement, async move {
        while let Ok((stream, _)) = listener.accept().await {
            rt2.spawn(Group::Statement, serve_rt(stream, Arc::clone(&answered))).detach();
        }
    });
    let before = thread_cpu();
    stop.notified().await;
    drop(accepting);
    thread_cpu() - before
}

fn main() {
    let argument = |n: usize, default: u64| -> u64 {
        std::env::args().nth(n).map_or(default, |text| text.parse().expect("a number"))
    };
    let (connections, pipelined) = (argument(1, 8) as usize, argument(2, 32) as usize);
    let (seconds, rounds) = (argument(3, 2), argument(4, 3) as u32);
    for round in 0..rounds {
        let answered = Arc::new(AtomicU64::new(0));
        let (ready, address) = mpsc::channel();
        let (counter, stop) = (Arc::clone(&answered), Arc::new(tokio::sync::Notify::new()));
        let stopped = Arc::clone(&stop);
        let server = std::thread::spawn(move || {
            let config = Config { pin: false, ..Config::default() };
            let mains = shard_mains(1, move |rt| {
                rt_server(rt, ready.clone(), Arc::clone(&counter), Arc::clone(&stopped))
            });
            rt_uring::run(&config, mains).expect("the node starts")[0]
        });
        load(address.recv().expect("an address"), connections, pipelined, seconds);
        stop.notify_one();
        report(round, "rt   ", server.join().expect("the server ends"), &answered);

        let answered = Arc::new(AtomicU64::new(0));
        let (ready, address) = mpsc::channel();
        let (counter, stop) = (Arc::clone(&answered), Arc::new(tokio::sync::Notify::new()));
        let stopped = Arc::clone(&stop);
        let server = std::thread::spawn(move || tokio_server(ready, counter, &stopped));
        load(address.recv().expect("an address"), connections, pipelined, seconds);
        stop.notify_one();
        report(round, "tokio", server.join().expect("the server ends"), &answered);
    }
}

fn tokio_server(
    ready: mpsc::Sender<SocketAddr>,
    answered: Arc<AtomicU64>,
    stop: &tokio::sync::Notify,
) -> Duration {
    let options = tokio::runtime::LocalOptions::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build_local(options).expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        ready.send(listener.local_addr().expect("it listens")).expect("the client waits");
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(serve_tokio(stream, Arc::clone(&answered)));
            }
        });
        let before = thread_cpu();
        stop.notified().await;
        thread_cpu() - before
    })
}

fn report(round: u32, name: &str, cpu: Duration, answered: &AtomicU64) {
    let frames = answered.load(Ordering::Relaxed);
    let each = cpu.as_nanos() as f64 / 1000.0 / frames as f64;
    println!("round {round} {name}: {each:.3} µs of server CPU a frame, {frames} frames");
}

//! Measures the cost of the runtime itself: messages between shards, random direct reads, spawned tasks, and an
//! echo server over loopback. Figures are CPU time of the measured threads, not latency.
//!
//!     cargo run --release -p rt-uring --example costs [mesh|reads|tasks|all]

use std::time::Duration;

use rt::{Endpoint, Group, IoBuf, LocalBoxFuture, Mesh, OpenOptions, Rt, ShardId, ShardMain, shard_mains};
use rt_uring::{Config, FileBackend};

/// CPU time of the calling thread, as the kernel accounts it.
fn thread_cpu() -> Duration {
    cpu_in("/proc/thread-self/schedstat")
}

/// CPU time of all threads of this process.
fn process_cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a mounted /proc");
    tasks.flatten().map(|task| cpu_in(task.path().join("schedstat"))).sum()
}

/// The first number of a `schedstat` file: nanoseconds on a core. Zero when the thread has just ended.
fn cpu_in(path: impl AsRef<std::path::Path>) -> Duration {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn per(cpu: Duration, count: u64) -> String {
    format!("{:8.3} µs", cpu.as_nanos() as f64 / 1000.0 / count as f64)
}

fn mesh() {
    for in_flight in [1u64, 8, 64, 256] {
        let calls = if in_flight == 1 { 20_000 } else { 400_000 };
        let main = |endpoint: Endpoint<u64, u64>| -> ShardMain<Duration> {
            Box::new(move |rt: Rt| {
                Box::pin(async move {
                    let port = endpoint.attach(&rt);
                    port.serve(|_, n| async move { n + 1 });
                    if rt.shard().0 == 1 {
                        return Duration::ZERO;
                    }
                    port.call(ShardId(1), 0).await;
                    let before = process_cpu();
                    let tasks: Vec<_> = (0..in_flight)
                        .map(|_| {
                            let port = port.clone();
                            rt.spawn(Group::Statement, async move {
                                for n in 0..calls / in_flight {
                                    assert_eq!(port.call(ShardId(1), n).await, n + 1);
                                }
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await;
                    }
                    process_cpu() - before
                }) as LocalBoxFuture<Duration>
            })
        };
        let mains = Mesh::new(2, 1024).into_iter().map(main).collect();
        let cpu = rt_uring::run(&Config::default(), mains).expect("the node starts")[0];
        println!("mesh call, {in_flight:3} in flight, both shards together: {}", per(cpu, calls));
    }
}

fn reads() {
    let path = std::env::temp_dir().join(format!("rt-costs-{}", std::process::id()));
    for files in [FileBackend::Ring, FileBackend::Blocking] {
        for depth in [1u64, 32] {
            let path = path.clone();
            let mains = shard_mains(1, move |rt| {
                let path = path.clone();
                async move { random_reads(rt, path, depth).await }
            });
            match rt_uring::run(&Config { files, ..Config::default() }, mains) {
                Ok(results) => {
                    let (cpu, wall, count) = results[0];
                    let rate = count as f64 / wall.as_secs_f64();
                    println!(
                        "4 KiB O_DIRECT read, {files:?}, depth {depth:2}: {} of CPU, {rate:.0}/s",
                        per(cpu, count)
                    );
                }
                Err(error) => println!("{files:?}: {error}"),
            }
        }
    }
    let _ = std::fs::remove_file(path);
}

async fn random_reads(rt: Rt, path: std::path::PathBuf, depth: u64) -> (Duration, Duration, u64) {
    const BLOCKS: u64 = 64 << 10;
    let file = rt.disk().open(&path, OpenOptions::READ_WRITE.direct()).await.expect("the file opens");
    if file.len().await.expect("a length") < BLOCKS * 4096 {
        for megabyte in 0..BLOCKS / 256 {
            let mut buf = IoBuf::with_capacity(1 << 20);
            buf.resize(1 << 20, megabyte as u8);
            file.write_at(megabyte << 20, buf).await.expect("the file is filled");
        }
        file.sync_all().await.expect("a sync");
    }
    let count = if depth == 1 { 5_000 } else { 60_000 };
    let before = (process_cpu(), rt.now());
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (file, rt2) = (file.clone(), rt.clone());
            rt.spawn(Group::Statement, async move {
                for _ in 0..count / depth {
                    let at = rt2.random_below(BLOCKS) * 4096;
                    file.read_exact_at(at, 4096).await.expect("a read");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    (process_cpu() - before.0, rt.now() - before.1, count)
}

fn tasks() {
    let mains = shard_mains(1, |rt| async move {
        const COUNT: u64 = 1_000_000;
        let before = thread_cpu();
        for n in 0..COUNT {
            let task = rt.spawn(Group::Statement, async move { n });
            assert_eq!(task.await, n);
        }
        let spawn = thread_cpu() - before;
        let before = thread_cpu();
        for _ in 0..COUNT {
            rt.yield_now().await;
        }
        let yielding = thread_cpu() - before;
        let before = thread_cpu();
        for n in 0..COUNT {
            let work = async {
                rt.yield_now().await;
                n
            };
            assert_eq!(rt.timeout(Duration::from_secs(10), work).await, Ok(n));
        }
        let timed = thread_cpu() - before;
        let before = thread_cpu();
        let mut preempted = 0u64;
        for _ in 0..COUNT {
            preempted += u64::from(rt.need_preempt());
        }
        let asking = thread_cpu() - before;
        assert!(preempted < COUNT);
        println!("spawn a task and await it: {}", per(spawn, COUNT));
        println!("yield:                     {}", per(yielding, COUNT));
        println!("yield inside a timeout:    {}", per(timed, COUNT));
        println!("need_preempt:              {}", per(asking, COUNT));
    });
    rt_uring::run(&Config::default(), mains).expect("the node starts");
}

fn main() {
    let what = std::env::args().nth(1).unwrap_or_else(|| "all".to_owned());
    for (name, measure) in [("tasks", tasks as fn()), ("mesh", mesh), ("reads", reads)] {
        if what == name || what == "all" {
            measure();
        }
    }
}

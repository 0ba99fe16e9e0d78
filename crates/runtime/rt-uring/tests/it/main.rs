//! The parts that only the production backend has: threads, signals, panics, the ring and its limits, idling.
//!
//! Some tests need a process of their own: they start this binary again with the name of a scene.

use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rt::{Group, IoBuf, Mesh, OpenOptions, Rt, ShardId, ShardMain, shard_mains};
use rt_uring::{Config, FileBackend};

const SCENE: &str = "RT_URING_TEST_SCENE";

/// Runs this binary's test `scene` alone in another process.
fn in_process(scene: &str) -> Output {
    let binary = std::env::current_exe().unwrap();
    Command::new(binary).args([scene, "--exact", "--nocapture"]).env(SCENE, scene).output().unwrap()
}

fn is_scene(scene: &str) -> bool {
    std::env::var(SCENE).is_ok_and(|name| name == scene)
}

fn unpinned() -> Config {
    Config { pin: false, ..Config::default() }
}

#[test]
fn mains_give_their_results_and_serve_until_all_have_returned() {
    let endpoints = Mesh::<u32, u32>::new(3, 8);
    let mains = endpoints.into_iter().map(|endpoint| {
        Box::new(move |rt: Rt| {
            let port = endpoint.attach(&rt);
            let main = async move {
                port.serve(|_, n| async move { n + 1 });
                if rt.shard().0 == 0 {
                    rt.sleep(Duration::from_millis(50)).await;
                    return port.call(ShardId(2), 10).await;
                }
                u32::from(rt.shard().0)
            };
            Box::pin(main) as rt::LocalBoxFuture<u32>
        }) as ShardMain<u32>
    });
    assert_eq!(rt_uring::run(&unpinned(), mains.collect()).unwrap(), [11, 1, 2]);
}

#[test]
fn shards_are_pinned_to_cores() {
    let shards = rt_uring::available_cores();
    let mains = shard_mains(shards, |_| async {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    });
    let mut cores = rt_uring::run(&Config::default(), mains).unwrap();
    assert!(cores.iter().all(|core| core.parse::<u32>().is_ok()), "one core each: {cores:?}");
    cores.dedup();
    assert_eq!(cores.len(), usize::from(shards));
}

/// Runs a body of file operations with a ring of few places; `None` where the kernel refuses io_uring.
fn with_small_ring(places: u32) -> Option<Vec<u64>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let config = Config { files: FileBackend::Ring, ring_operations_max: places, ..unpinned() };
    let mains = shard_mains(1, move |rt| {
        let path = path.clone();
        async move {
            let file = rt.disk().open(&path, OpenOptions::CREATE_NEW).await.unwrap();
            let tasks: Vec<_> = (0..500u64)
                .map(|n| {
                    let file = file.clone();
                    rt.spawn(Group::Statement, async move {
                        file.write_at(n * 64, IoBuf::copy_of(&[n as u8; 64])).await.unwrap();
                        file.sync_data().await.unwrap();
                        let back = file.read_exact_at(n * 64, 64).await.unwrap();
                        assert!(back.iter().all(|byte| *byte == n as u8));
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            file.len().await.unwrap()
        }
    });
    match rt_uring::run(&config, mains) {
        Ok(outputs) => Some(outputs),
        Err(error) => {
            eprintln!("no io_uring here: {error}");
            None
        }
    }
}

#[test]
fn a_ring_of_few_places_serves_many_operations() {
    for places in [1, 2, 7] {
        if let Some(lengths) = with_small_ring(places) {
            assert_eq!(lengths, [32_000]);
        }
    }
}

#[test]
fn a_refused_ring_is_an_error_or_a_fallback() {
    // More places than the kernel gives, which it refuses like one that forbids io_uring.
    let config = |files| Config { files, ring_operations_max: 1 << 24, ..unpinned() };
    let main = |rt: Rt| async move {
        let file = rt.disk().open("/proc/self/status", OpenOptions::READ).await.unwrap();
        file.read_at(0, 5).await.unwrap().to_vec()
    };
    let error = rt_uring::run(&config(FileBackend::Ring), shard_mains(2, main)).unwrap_err();
    assert!(error.to_string().contains("cannot set up io_uring of shard"), "{error}");
    let read = rt_uring::run(&config(FileBackend::Auto), shard_mains(2, main)).unwrap();
    assert_eq!(read, [b"Name:", b"Name:"]);
}

/// Bytes stored in a mapping are in the file for every reader, and a file that lacks blocks is not mapped.
#[test]
fn a_mapping_is_the_file() {
    let backends = [
        (FileBackend::Auto, "the ring, or the pool"),
        (FileBackend::Blocking, "the pool"),
        (FileBackend::Memory, "memory"),
    ];
    for (files, backend) in backends {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mains = shard_mains(1, move |rt| {
            let path = path.clone();
            async move {
                rt.disk().create_dir_all(path.parent().unwrap()).await.unwrap();
                let file = rt.disk().open(&path, OpenOptions::CREATE_NEW).await.unwrap();
                let refused = file.map(1 << 16).await.err().expect("there are no blocks");
                assert_eq!(refused.source.kind(), std::io::ErrorKind::Unsupported, "{backend}");
                file.allocate(0, 1 << 16).await.unwrap();
                let mapping = match file.map(1 << 16).await {
                    Ok(mapping) => mapping,
                    // Overlay file systems and those that copy on write.
                    Err(error) => return eprintln!("no mappings here: {error}"),
                };
                mapping.write(0, b"first");
                mapping.write((1 << 16) - 4, b"last");
                file.write_at(5, IoBuf::copy_of(b"written")).await.unwrap();
                file.sync_data().await.unwrap();
                drop(mapping);
                assert_eq!(&file.read_exact_at(0, 12).await.unwrap()[..], b"firstwritten", "{backend}");
                assert_eq!(&file.read_exact_at((1 << 16) - 4, 4).await.unwrap()[..], b"last", "{backend}");
            }
        });
        rt_uring::run(&Config { files, ..unpinned() }, mains).unwrap();
    }
}

#[test]
fn a_path_is_resolved_through_links() {
    for files in [FileBackend::Auto, FileBackend::Blocking] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("inside")).unwrap();
        std::fs::write(root.join("inside/file"), "x").unwrap();
        std::os::unix::fs::symlink(root.join("inside"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("nowhere"), root.join("broken")).unwrap();
        let mains = shard_mains(1, move |rt| {
            let root = root.clone();
            async move {
                let disk = rt.disk();
                assert_eq!(disk.resolve(root.join("link/file")).await.unwrap(), root.join("inside/file"));
                assert_eq!(disk.resolve(root.join("inside/../link")).await.unwrap(), root.join("inside"));
                assert!(disk.resolve(root.join("broken")).await.unwrap_err().is_not_found());
            }
        });
        rt_uring::run(&Config { files, ..unpinned() }, mains).unwrap();
    }
}

#[test]
#[should_panic(expected = "a store lies within the mapping")]
fn a_store_outside_of_a_mapping_is_refused() {
    let mains = shard_mains(1, |rt| async move {
        rt.disk().create_dir_all("/d").await.unwrap();
        let file = rt.disk().open("/d/file", OpenOptions::CREATE_NEW).await.unwrap();
        file.allocate(0, 4096).await.unwrap();
        file.map(4096).await.unwrap().write(4095, b"two");
    });
    // A panic of a shard ends the process.
    if is_scene("a_store_outside_of_a_mapping_is_refused") {
        rt_uring::run(&Config { files: FileBackend::Memory, ..unpinned() }, mains).unwrap();
    }
    let output = in_process("a_store_outside_of_a_mapping_is_refused");
    panic!("{}", String::from_utf8_lossy(&output.stderr));
}

/// A shard ends while the kernel still works on buffers of operations whose futures are gone.
#[test]
fn a_node_ends_with_operations_under_way() {
    for files in [FileBackend::Auto, FileBackend::Blocking] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mains = shard_mains(2, move |rt| {
            let path = path.with_extension(rt.shard().to_string());
            async move {
                let file = rt.disk().open(&path, OpenOptions::CREATE_NEW.direct()).await.unwrap();
                for n in 0..64u64 {
                    let file = file.clone();
                    rt.spawn(Group::Flush, async move {
                        file.write_at(n << 20, IoBuf::zeroed(1 << 20)).await.unwrap();
                        file.sync_data().await.unwrap();
                    })
                    .detach();
                }
                rt.yield_now().await;
            }
        });
        rt_uring::run(&Config { files, ..unpinned() }, mains).unwrap();
    }
}

#[test]
fn a_waker_works_from_any_thread() {
    let mains = shard_mains(1, |rt| async move {
        for n in 0..200u32 {
            let state: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
            let shared = Arc::clone(&state);
            let thread = std::thread::spawn(move || {
                if n % 2 == 0 {
                    std::thread::sleep(Duration::from_micros(u64::from(n) * 10));
                }
                let mut state = shared.lock().unwrap();
                state.0 = true;
                if let Some(waker) = state.1.take() {
                    waker.wake();
                }
            });
            let woken = std::future::poll_fn(|cx| {
                let mut state = state.lock().unwrap();
                state.1 = Some(cx.waker().clone());
                if state.0 { Poll::Ready(()) } else { Poll::Pending }
            });
            rt.timeout(Duration::from_secs(20), woken).await.expect("the wake arrives");
            thread.join().unwrap();
        }
    });
    rt_uring::run(&unpinned(), mains).unwrap();
}

#[test]
fn short_sleeps_are_short() {
    let mains = shard_mains(1, |rt| async move {
        let mut best = Duration::MAX;
        for _ in 0..50 {
            let start = rt.now();
            rt.sleep(Duration::from_micros(200)).await;
            let slept = rt.now() - start;
            assert!(slept >= Duration::from_micros(200));
            best = best.min(slept);
        }
        best
    });
    let best = rt_uring::run(&unpinned(), mains).unwrap()[0];
    assert!(best < Duration::from_micros(1000), "timers are finer than a millisecond: {best:?}");
}

#[test]
fn the_production_backend_lets_no_injected_bug_in() {
    let scene = "the_production_backend_lets_no_injected_bug_in";
    if is_scene(scene) {
        let mains = shard_mains(1, |rt: Rt| async move {
            rt.allow_injected(&rt::Injected::by_simulator(false));
            rt.allow_injected(&rt::Injected::by_simulator(true));
        });
        let _ended = rt_uring::run(&unpinned(), mains);
        return;
    }
    let output = in_process(scene);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("bugs are injected in the simulator only"), "{text}");
}

#[test]
fn a_panic_ends_the_process_with_the_shards_name() {
    let scene = "a_panic_ends_the_process_with_the_shards_name";
    if is_scene(scene) {
        let mains = shard_mains(2, |rt| async move {
            if rt.shard().0 == 1 {
                rt.sleep(Duration::from_millis(5)).await;
                panic!("the invariant is broken");
            }
            std::future::pending::<()>().await;
        });
        let _ = rt_uring::run(&unpinned(), mains);
        unreachable!("the process has ended");
    }
    let output = in_process(scene);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("fatal: shard 1 panicked: the invariant is broken"), "{text}");
    assert_eq!(output.status.code(), None, "ended by a signal");
}

#[test]
fn another_thread_asks_a_node_to_stop() {
    let stop = rt_uring::StopHandle::default();
    let config = rt_uring::Config { stop: Some(stop.clone()), name: "second".to_owned(), ..unpinned() };
    let (started, wait) = std::sync::mpsc::channel();
    let node = std::thread::spawn(move || {
        let mains = shard_mains(2, move |rt| {
            let started = started.clone();
            async move {
                started.send(std::thread::current().name().map(str::to_owned)).unwrap();
                if rt.shard().0 == 0 {
                    rt.stop_requested().await;
                }
                rt.shard().0
            }
        });
        rt_uring::run(&config, mains).unwrap()
    });
    let mut names: Vec<_> = (0..2).map(|_| wait.recv().unwrap().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["second-shard-0", "second-shard-1"]);
    assert!(!node.is_finished());
    stop.request();
    assert_eq!(node.join().unwrap(), [0, 1]);
}

#[test]
fn a_node_that_is_stopped_before_it_runs_stops() {
    let stop = rt_uring::StopHandle::default();
    stop.request();
    let config = rt_uring::Config { stop: Some(stop), ..unpinned() };
    let mains = shard_mains(1, |rt| async move { rt.stop_requested().await });
    rt_uring::run(&config, mains).unwrap();
}

#[test]
fn sigterm_asks_shard_0_to_stop() {
    let scene = "sigterm_asks_shard_0_to_stop";
    if is_scene(scene) {
        let mains = shard_mains(2, |rt| async move {
            if rt.shard().0 == 0 {
                let pid = std::process::id().to_string();
                assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
                rt.stop_requested().await;
                println!("stopping cleanly");
            }
        });
        rt_uring::run(&Config { handle_signals: true, ..unpinned() }, mains).unwrap();
        return;
    }
    let output = in_process(scene);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("stopping cleanly"));
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanos.sum())
}

#[test]
fn an_idle_node_burns_no_cpu() {
    let scene = "an_idle_node_burns_no_cpu";
    if !is_scene(scene) {
        let output = in_process(scene);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let endpoints = Mesh::<u32, u32>::new(2, 8);
    let mains = endpoints.into_iter().map(|endpoint| {
        Box::new(move |rt: Rt| {
            let port = endpoint.attach(&rt);
            let main = async move {
                port.serve(|_, n| async move { n });
                // Everything has been used once: files, messages, sockets, a far timer.
                let listener =
                    rt.net().listen("127.0.0.1:0".parse().unwrap(), Default::default()).await.unwrap();
                rt.disk()
                    .open("/proc/self/status", OpenOptions::READ)
                    .await
                    .unwrap()
                    .read_at(0, 10)
                    .await
                    .unwrap();
                port.call(ShardId(1 - rt.shard().0), 1).await;
                let far = rt.spawn(Group::Maintenance, rt.sleep(Duration::from_secs(3600)));
                let before = (cpu_time(), Instant::now());
                rt.sleep(Duration::from_millis(1000)).await;
                let used = cpu_time() - before.0;
                assert!(used < Duration::from_millis(20), "{used:?} in {:?}", before.1.elapsed());
                drop((far, listener));
            };
            Box::pin(main) as rt::LocalBoxFuture<()>
        }) as ShardMain
    });
    rt_uring::run(&unpinned(), mains.collect()).unwrap();
}

/// The log of all threads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[inline(never)]
fn keeps_its_shard_busy(time: Duration) -> u64 {
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < time {
        rounds += 1;
    }
    rounds
}

#[test]
fn where_a_task_keeps_its_shard_is_logged() {
    let log = Log::default();
    let writer = log.clone();
    let logger = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    // The only test of this binary that sets one.
    tracing::subscriber::set_global_default(logger).unwrap();
    let mains = shard_mains(2, |rt: Rt| async move {
        rt.sleep(Duration::from_millis(1)).await;
        let rounds = if rt.shard().0 == 1 { keeps_its_shard_busy(Duration::from_millis(500)) } else { 1 };
        rt.yield_now().await;
        if rt.shard().0 == 1 {
            std::thread::sleep(Duration::from_millis(700));
        }
        rt.yield_now().await;
        rounds
    });
    let config = Config { blocked_reactor_notify: Some(Duration::from_millis(20)), ..unpinned() };
    assert!(rt_uring::run(&config, mains).unwrap().iter().all(|rounds| *rounds > 0));
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    // Other tests stall shard 0.
    let line = log.lines().find(|line| line.contains("reactor of shard 1 stalled for "));
    let line = line.unwrap_or_else(|| panic!("no backtrace: {log}"));
    let (_, names) = line.split_once("backtrace: ").unwrap();
    let names: Vec<&str> = names.split(" < ").collect();
    // Reading a clock is up to nine frames deep, inlined ones included.
    assert!(names.iter().take(14).any(|name| name.contains("keeps_its_shard_busy")), "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains("note_frames") || name.contains("poll_task")),
        "{names:?}"
    );
    // A poll that has no CPU is distinguished from one that uses it, so that tests can judge the second on a loaded machine.
    let stalls: Vec<(u64, u64)> =
        log.lines().filter(|line| line.contains("shard=1")).filter_map(times_of_stall).collect();
    assert!(stalls.iter().any(|(wall, cpu)| (500..700).contains(wall) && *cpu >= 50), "{stalls:?} {log}");
    assert!(stalls.iter().any(|(wall, cpu)| *wall >= 700 && *cpu < 50), "{stalls:?} {log}");
}

/// The milliseconds of the wall clock and of the CPU in a stall's log line.
fn times_of_stall(line: &str) -> Option<(u64, u64)> {
    let (wall, rest) = line.split_once("reactor stalled for ")?.1.split_once(" ms, ")?;
    let (cpu, _) = rest.split_once(" ms of them CPU time")?;
    Some((wall.parse().ok()?, cpu.parse().ok()?))
}

#[test]
fn a_task_that_keeps_its_shard_is_counted() {
    let mains = shard_mains(1, |rt: Rt| async move {
        rt.sleep(Duration::from_millis(1)).await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {}
        rt.yield_now().await;
        rt.group_stats(Group::Statement).stalls
    });
    let config = |blocked_reactor_notify| Config { blocked_reactor_notify, ..unpinned() };
    let watched = rt_uring::run(&config(Some(Duration::from_millis(20))), mains).unwrap();
    assert!(watched[0] >= 1, "{watched:?} stalls");
    let idle = shard_mains(1, |rt: Rt| async move {
        rt.sleep(Duration::from_millis(100)).await;
        rt.group_stats(Group::Statement).stalls
    });
    assert_eq!(rt_uring::run(&config(Some(Duration::from_secs(5))), idle).unwrap(), [0]);
}

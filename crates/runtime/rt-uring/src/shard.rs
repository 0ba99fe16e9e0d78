//! One shard's thread: its tokio runtime, and the executor of rt as that runtime's root future.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rt::driver::Clock;
use rt::executor::{Executor, Stall, TurnHook};
use rt::{Disk, Group, IoQueue, Net, Rt, RtParts, ShardId, ShardMain};
use stdx::LogLimit;
use tokio::runtime::{Builder, Handle, LocalOptions};
use tokio::task::coop::unconstrained;

use crate::clock::SystemClock;
use crate::disk::SystemDisk;
use crate::memory::MemoryDisk;
use crate::net::SystemNet;
use crate::random::SystemRandom;
use crate::ring::Ring;
use crate::stalls::Watched;
use crate::stop::StopSignals;
use crate::timer::Timer;
use crate::{Config, FileBackend, StartError, affinity};

/// How long the end of a shard waits for operations on the thread pool.
const POOL_END_WAIT: Duration = Duration::from_secs(5);
/// Idle threads of the pool end after this time.
const POOL_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A stall that is logged however many were before it.
const LONG_STALL: Duration = Duration::from_millis(100);

/// The configuration of one shard.
pub(crate) struct ShardConfig {
    pub(crate) shard: u16,
    pub(crate) shard_count: u16,
    pub(crate) core: Option<usize>,
    pub(crate) clock: SystemClock,
    pub(crate) node: Config,
    /// The node's files, where they live in memory.
    pub(crate) memory: Option<MemoryDisk>,
    /// The running poll of the shard, where stalls are watched for.
    pub(crate) watched: Option<Arc<Watched>>,
}

/// Counts the mains that have not returned; shards end together when it reaches zero.
pub(crate) struct Exit {
    running: AtomicU32,
    hosts: Mutex<Vec<Waker>>,
}

impl Exit {
    pub(crate) fn new(shard_count: u16) -> Exit {
        Exit { running: AtomicU32::new(u32::from(shard_count)), hosts: Mutex::new(Vec::new()) }
    }

    fn is_over(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    fn main_returned(&self) {
        let before = self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        if before == Ok(1) {
            self.wake_all();
        }
    }

    /// The node cannot go on: all shards end now.
    pub(crate) fn abandon(&self) {
        self.running.store(0, Ordering::Release);
        self.wake_all();
    }

    fn register(&self, host: &Waker) {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).push(host.clone());
    }

    fn wake_all(&self) {
        let hosts = std::mem::take(&mut *self.hosts.lock().unwrap_or_else(PoisonError::into_inner));
        for host in hosts {
            host.wake();
        }
    }
}

/// Runs one shard to the end of the node. `None` when the node was abandoned before this shard's main returned.
pub(crate) fn run<T: Send + 'static>(
    config: ShardConfig,
    exit: &Arc<Exit>,
    main: ShardMain<T>,
) -> Result<Option<T>, StartError> {
    let shard = config.shard;
    let error = |what| move |source| StartError { what, shard, source };
    if let Some(core) = config.core
        && let Err(error) = affinity::pin_to(core)
    {
        tracing::warn!(shard, core, %error, "the shard's thread is not bound to its core");
    }
    let runtime = Builder::new_current_thread()
        .enable_io()
        .max_blocking_threads(config.node.blocking_threads_max.max(1))
        .thread_keep_alive(POOL_KEEP_ALIVE)
        .thread_name(format!("{}-pool", config.node.thread_name(shard)))
        .build_local(LocalOptions::default())
        .map_err(error("the event loop"))?;
    let result = runtime.block_on(async {
        let ring = open_ring(&config).map_err(error("io_uring"))?;
        let timer = Timer::new().map_err(error("the timer"))?;
        let (rt, clock) = assemble(&config, ring.clone());
        let executor = rt.executor().clone();
        let _entered = executor.enter();
        let attached = config.node.blocked_reactor_notify.zip(config.watched).map(|(threshold, watched)| {
            watched.attach(shard, watch_stalls(&executor, threshold, shard, Rc::clone(&clock)))
        });
        if let Some(ring) = &ring {
            executor.add_hook(Rc::clone(ring) as Rc<dyn TurnHook>);
        }
        if config.node.handle_signals && shard == 0 {
            watch_signals(&rt).map_err(error("signals"))?;
        }
        if let Some(stop) = config.node.stop.clone().filter(|_| shard == 0) {
            let task_rt = rt.clone();
            let wait = async move {
                poll_fn(|cx| stop.poll(cx)).await;
                task_rt.request_stop();
            };
            rt.spawn(Group::Maintenance, wait).detach();
        }
        let output = Rc::new(RefCell::new(None));
        spawn_main(&rt, main, Rc::clone(&output), Arc::clone(exit));
        let mut host = Host { executor: executor.clone(), clock, ring, timer };
        let mut registered = false;
        unconstrained(poll_fn(|cx| {
            if !std::mem::replace(&mut registered, true) {
                exit.register(cx.waker());
            }
            host.poll(cx, exit)
        }))
        .await;
        drop(attached);
        executor.shutdown();
        let output = output.borrow_mut().take();
        Ok(output)
    });
    runtime.shutdown_timeout(POOL_END_WAIT);
    result
}

/// Logs tasks that keep the shard for longer than `threshold`, some lines a second at most, and all that are very long.
fn watch_stalls(
    executor: &Executor,
    threshold: Duration,
    shard: u16,
    clock: Rc<dyn Clock>,
) -> Arc<AtomicU64> {
    let limit = RefCell::new(LogLimit::default());
    executor.watch_stalls(threshold, move |Stall { group, task, took, cpu }| {
        let since_start = Duration::from_nanos(clock.now().as_nanos());
        let line = limit.borrow_mut().line(since_start);
        // Long ones are few by themselves, and tests look for the longest.
        if let Some(left_out) = line.or((took >= LONG_STALL).then_some(0)) {
            let (millis, of_cpu) = (took.as_millis() as u64, cpu.as_millis() as u64);
            tracing::warn!(
                shard,
                group = group.name(),
                task,
                left_out,
                "reactor stalled for {millis} ms, {of_cpu} ms of them CPU time: everything else on the shard waited for one task"
            );
        }
    })
}

fn spawn_main<T: 'static>(rt: &Rt, main: ShardMain<T>, output: Rc<RefCell<Option<T>>>, exit: Arc<Exit>) {
    let main_rt = rt.clone();
    let task = rt.spawn(Group::Statement, async move {
        let result = main(main_rt).await;
        *output.borrow_mut() = Some(result);
        exit.main_returned();
    });
    task.detach();
}

fn open_ring(config: &ShardConfig) -> io::Result<Option<Rc<Ring>>> {
    if matches!(config.node.files, FileBackend::Blocking | FileBackend::Memory) {
        return Ok(None);
    }
    match Ring::new(config.node.ring_operations_max.max(1)) {
        Ok(ring) => Ok(Some(Rc::new(ring))),
        Err(error) if config.node.files == FileBackend::Auto => {
            if config.shard == 0 {
                tracing::warn!(%error, "io_uring is refused here; files use a thread pool, which costs more CPU");
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn assemble(config: &ShardConfig, ring: Option<Rc<Ring>>) -> (Rt, Rc<dyn Clock>) {
    let clock: Rc<dyn Clock> = Rc::new(config.clock);
    let queue =
        |speed| IoQueue::new(Rc::clone(&clock), speed, config.shard_count, config.node.io_latency_goal);
    let disk = match &config.memory {
        Some(memory) => Disk::new(Rc::new(memory.clone()), queue(None)),
        None => {
            let driver = SystemDisk { handle: Handle::current(), ring };
            Disk::new(Rc::new(driver), queue(config.node.disk_speed))
        }
    };
    let rt = Rt::new(RtParts {
        shard: ShardId(config.shard),
        shard_count: config.shard_count,
        executor: Executor::new(Rc::clone(&clock)),
        clock: Rc::clone(&clock),
        random: Rc::new(SystemRandom::new()),
        disk,
        net: Net::new(Rc::new(SystemNet)),
    });
    (rt, clock)
}

/// Turns SIGTERM and SIGINT into a request to stop; a second SIGINT ends the process.
fn watch_signals(rt: &Rt) -> io::Result<()> {
    let mut signals = StopSignals::watch()?;
    let task_rt = rt.clone();
    let task = rt.spawn(Group::Maintenance, async move {
        loop {
            signals.next().await;
            task_rt.request_stop();
        }
    });
    task.detach();
    Ok(())
}

/// Drives the executor: one turn a poll, so that tokio looks at the sockets after every turn.
struct Host {
    executor: Executor,
    clock: Rc<dyn Clock>,
    ring: Option<Rc<Ring>>,
    timer: Timer,
}

impl Host {
    fn poll(&mut self, cx: &mut Context<'_>, exit: &Exit) -> Poll<()> {
        let more = self.executor.run_turn();
        if exit.is_over() {
            return Poll::Ready(());
        }
        if more || !self.may_sleep(cx) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Makes sure that the next event wakes this thread; false when there has been one already.
    fn may_sleep(&self, cx: &mut Context<'_>) -> bool {
        if let Some(deadline) = self.executor.next_deadline() {
            self.timer.arm(deadline, self.clock.now());
            if self.timer.poll_fired(cx).is_ready() {
                return false;
            }
        }
        if self.ring.as_ref().is_some_and(|ring| ring.poll_completed(cx).is_ready()) {
            return false;
        }
        self.executor.prepare_park(cx.waker())
    }
}

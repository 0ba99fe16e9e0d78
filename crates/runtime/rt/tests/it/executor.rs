//! The scheduler alone, under a clock that the tests move: shares, quota, preemption, accounting.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rt::driver::Clock;
use rt::executor::{Executor, TASK_QUOTA};
use rt::{Group, Instant};

#[derive(Default)]
struct ManualClock {
    nanos: Cell<u64>,
    cpu: Cell<Duration>,
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.get())
    }

    fn wall_micros(&self) -> i64 {
        0
    }

    fn thread_cpu(&self) -> Option<Duration> {
        Some(self.cpu.get())
    }
}

impl ManualClock {
    fn advance(&self, duration: Duration) {
        self.wait(duration);
        self.cpu.set(self.cpu.get() + duration);
    }

    /// Time in which the thread has no CPU.
    fn wait(&self, duration: Duration) {
        self.nanos.set(self.nanos.get() + duration.as_nanos() as u64);
    }
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if self.0 {
            return std::task::Poll::Ready(());
        }
        self.0 = true;
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}

/// A task that always wants the CPU, in steps of `step`, and obeys `need_preempt`.
fn busy(executor: &Executor, clock: &Rc<ManualClock>, group: Group, step: Duration) -> Rc<Cell<u64>> {
    let steps = Rc::new(Cell::new(0));
    let (counter, clock, inner) = (Rc::clone(&steps), Rc::clone(clock), executor.clone());
    executor
        .spawn(group, async move {
            loop {
                clock.advance(step);
                counter.set(counter.get() + 1);
                if inner.need_preempt() {
                    Yield(false).await;
                }
            }
        })
        .detach();
    steps
}

#[test]
fn tasks_that_move_to_the_groups_of_service_levels_get_the_cpu_by_their_shares() {
    let clock = Rc::new(ManualClock::default());
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    let step = Duration::from_micros(10);
    executor.set_shares(Group::Level1, 100);
    executor.set_shares(Group::Level2, 1000);
    // As connections: they begin in one group, and move when it is known whose they are.
    let moved = |to: Group| {
        let steps = Rc::new(Cell::new(0u64));
        let (counter, clock, inner) = (Rc::clone(&steps), Rc::clone(&clock), executor.clone());
        let work = async move {
            Yield(false).await;
            inner.move_current(to);
            assert_eq!(inner.current_group(), to, "calls of the rest of the poll are of the group, too");
            Yield(false).await;
            assert_eq!(inner.current_group(), to);
            loop {
                clock.advance(step);
                counter.set(counter.get() + 1);
                if inner.need_preempt() {
                    Yield(false).await;
                }
            }
        };
        (executor.spawn(Group::Statement, work), steps)
    };
    let few: Vec<_> = (0..10).map(|_| moved(Group::Level1)).collect();
    let many: Vec<_> = (0..2).map(|_| moved(Group::Level2)).collect();
    for _ in 0..20_000 {
        executor.run_turn();
    }
    let sum =
        |tasks: &[(rt::Task<()>, Rc<Cell<u64>>)]| tasks.iter().map(|(_, steps)| steps.get()).sum::<u64>();
    let ratio = sum(&many) as f64 / sum(&few) as f64;
    assert!((9.5..10.5).contains(&ratio), "1000 shares got {ratio} times the CPU of 100 shares");
    let (low, high) = (executor.stats(Group::Level1), executor.stats(Group::Level2));
    assert_eq!((low.tasks, high.tasks, executor.stats(Group::Statement).tasks), (10, 2, 0));
    let charged = high.run_ns as f64 / low.run_ns as f64;
    assert!((9.5..10.5).contains(&charged), "and was charged {charged} times as much");
    drop((few, many));
    let tasks = |group| executor.stats(group).tasks;
    assert_eq!((tasks(Group::Level1), tasks(Group::Level2), tasks(Group::Statement)), (0, 0, 0));
}

#[test]
fn groups_get_the_cpu_by_their_shares() {
    let clock = Rc::new(ManualClock::default());
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    let step = Duration::from_micros(10);
    let statement = busy(&executor, &clock, Group::Statement, step);
    let compaction = busy(&executor, &clock, Group::Compaction, step);
    executor.set_shares(Group::Statement, 900);
    executor.set_shares(Group::Compaction, 100);
    for _ in 0..2000 {
        assert!(executor.run_turn());
    }
    let ratio = statement.get() as f64 / compaction.get() as f64;
    assert!((8.5..9.5).contains(&ratio), "{ratio}");
    let (s, c) = (executor.stats(Group::Statement), executor.stats(Group::Compaction));
    assert_eq!(s.run_ns + c.run_ns, clock.nanos.get(), "every nanosecond is accounted");
    assert_eq!((s.tasks, s.ready, s.shares), (1, 1, 900));

    executor.set_shares(Group::Compaction, 900);
    let before = (statement.get(), compaction.get());
    for _ in 0..2000 {
        executor.run_turn();
    }
    let ratio = (statement.get() - before.0) as f64 / (compaction.get() - before.1) as f64;
    assert!((0.95..1.05).contains(&ratio), "shares changed at run time: {ratio}");
}

#[test]
fn a_turn_ends_with_the_quota() {
    let clock = Rc::new(ManualClock::default());
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    busy(&executor, &clock, Group::Compaction, Duration::from_micros(7));
    for _ in 0..100 {
        let before = clock.now();
        assert!(executor.run_turn());
        let turn = clock.now() - before;
        assert!(turn >= TASK_QUOTA && turn < TASK_QUOTA + Duration::from_micros(8), "{turn:?}");
    }
    // Tasks that never ask are stopped between polls.
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    for _ in 0..1000 {
        let clock = clock.clone();
        executor.spawn(Group::Statement, async move { clock.advance(Duration::from_micros(20)) }).detach();
    }
    let before = clock.now();
    assert!(executor.run_turn());
    assert!(clock.now() - before < TASK_QUOTA * 2);
    while executor.run_turn() {}
    assert_eq!(executor.task_count(), 0);
}

#[test]
fn a_group_that_was_idle_is_served_next_but_saves_nothing_up() {
    let clock = Rc::new(ManualClock::default());
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    let compaction = busy(&executor, &clock, Group::Compaction, Duration::from_micros(50));
    for _ in 0..1000 {
        executor.run_turn();
    }
    let reached = Rc::new(Cell::new(false));
    let inside = Rc::clone(&reached);
    executor.spawn(Group::Statement, async move { inside.set(true) }).detach();
    executor.run_turn();
    executor.run_turn();
    assert!(reached.get(), "a request waits for one slice of compaction at most");
    let before = compaction.get();
    busy(&executor, &clock, Group::Statement, Duration::from_micros(50));
    for _ in 0..110 {
        executor.run_turn();
    }
    assert!(compaction.get() - before >= 50, "half a second of idling gives no right to starve others");
}

#[test]
fn a_wake_from_another_thread_reaches_the_task() {
    let clock = Rc::new(ManualClock::default());
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    let (sender, receiver) = std::sync::mpsc::channel();
    let woken = Rc::new(Cell::new(0));
    let inside = Rc::clone(&woken);
    executor
        .spawn(
            Group::Statement,
            std::future::poll_fn(move |cx| {
                inside.set(inside.get() + 1);
                sender.send(cx.waker().clone()).unwrap();
                if inside.get() == 3 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            }),
        )
        .detach();
    executor.run_turn();
    for expected in 2..=3 {
        assert!(!executor.has_work());
        let waker = receiver.recv().unwrap();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        assert!(executor.has_work());
        executor.run_turn();
        assert_eq!(woken.get(), expected);
    }
    assert_eq!(executor.task_count(), 0);
    // Wakers of a task that has ended wake nobody, also when the slot serves another task.
    let stale = receiver.recv().unwrap();
    let polls = Rc::new(Cell::new(0));
    let inside = Rc::clone(&polls);
    let task = executor.spawn(
        Group::Statement,
        std::future::poll_fn(move |_| {
            inside.set(inside.get() + 1);
            std::task::Poll::<()>::Pending
        }),
    );
    executor.run_turn();
    stale.wake();
    executor.run_turn();
    assert_eq!(polls.get(), 1);
    drop(task);
}

#[test]
fn shutdown_drops_every_task() {
    let clock = Rc::new(ManualClock::default());
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    let alive = Rc::new(());
    for _ in 0..50 {
        let alive = Rc::clone(&alive);
        executor
            .spawn(Group::Statement, async move {
                std::future::pending::<()>().await;
                drop(alive);
            })
            .detach();
    }
    executor.run_turn();
    assert_eq!(Rc::strong_count(&alive), 51);
    let (seen, left) = (Rc::new(Cell::new(0)), Rc::downgrade(&alive));
    let ended = seen.clone();
    executor.on_shutdown(move || ended.set(ended.get() + left.strong_count()));
    executor.shutdown();
    assert_eq!(seen.get(), 1, "an ending is called once, after the tasks were dropped");
    assert_eq!((Rc::strong_count(&alive), executor.task_count()), (1, 0));
    executor.spawn(Group::Statement, async { panic!("nothing starts after the end") }).detach();
    assert!(!executor.run_turn());
}

#[test]
fn a_poll_that_takes_too_long_is_reported() {
    async fn slow(clock: Rc<ManualClock>) {
        clock.advance(Duration::from_millis(12));
        Yield(false).await;
        clock.advance(Duration::from_millis(9));
        Yield(false).await;
        clock.advance(Duration::from_millis(2));
        clock.wait(Duration::from_millis(30));
    }
    let clock = Rc::new(ManualClock::default());
    let executor = Executor::new(clock.clone());
    let _entered = executor.enter();
    let stalls = Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = stalls.clone();
    executor.watch_stalls(Duration::from_millis(10), move |stall| seen.borrow_mut().push(stall));
    busy(&executor, &clock, Group::Compaction, Duration::from_micros(10));
    executor.spawn(Group::Statement, slow(clock.clone())).detach();
    for _ in 0..50 {
        executor.run_turn();
    }
    let stalls = stalls.borrow();
    let [stall, waited] = stalls.as_slice() else { panic!("{stalls:?}") };
    assert_eq!((stall.group, stall.took), (Group::Statement, Duration::from_millis(12)));
    assert!(stall.task.contains("slow"), "{}", stall.task);
    assert_eq!(stall.cpu, stall.took, "it had the CPU all the time");
    // Other polls of the turn, and a millisecond between two readings, may be counted too.
    assert_eq!(waited.took, Duration::from_millis(32));
    assert!(waited.cpu >= Duration::from_millis(2) && waited.cpu < Duration::from_millis(4), "{waited:?}");
    assert_eq!((executor.stats(Group::Statement).stalls, executor.stats(Group::Compaction).stalls), (2, 0));
}

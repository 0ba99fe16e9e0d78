//! Tasks and timers: joining, cancelling, limits of time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rt::{Elapsed, Group, Rt};

use crate::backends::on_all_backends;

struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

async fn waits_with(guard: SetOnDrop) {
    std::future::pending::<()>().await;
    drop(guard);
}

#[test]
fn a_task_gives_its_result() {
    on_all_backends(1, |rt, _| async move {
        let tasks: Vec<_> = (0..100u64)
            .map(|n| {
                let rt2 = rt.clone();
                rt.spawn(Group::ALL[n as usize % Group::COUNT], async move {
                    rt2.sleep(Duration::from_micros(n * 7 % 50)).await;
                    rt2.yield_now().await;
                    n * n
                })
            })
            .collect();
        for (n, task) in (0..100u64).zip(tasks) {
            assert_eq!(task.await, n * n);
        }
    });
}

#[test]
fn dropping_a_handle_drops_the_future_at_once() {
    on_all_backends(1, |rt, _| async move {
        let dropped = Rc::new(Cell::new(false));
        let task = rt.spawn(Group::Maintenance, waits_with(SetOnDrop(Rc::clone(&dropped))));
        rt.sleep(Duration::from_millis(1)).await;
        assert!(!dropped.get() && !task.is_finished());
        drop(task);
        assert!(dropped.get());

        dropped.set(false);
        let task = rt.spawn(Group::Maintenance, waits_with(SetOnDrop(Rc::clone(&dropped))));
        assert_eq!(task.cancel().await, None);
        assert!(dropped.get(), "also before its first poll");

        let task = rt.spawn(Group::Statement, async { 5 });
        rt.sleep(Duration::from_millis(1)).await;
        assert!(task.is_finished());
        assert_eq!(task.cancel().await, Some(5));
    });
}

#[test]
fn a_task_may_cancel_itself_and_detached_ones_go_on() {
    on_all_backends(1, |rt, _| async move {
        let dropped = Rc::new(Cell::new(false));
        let own = Rc::new(RefCell::new(None));
        let guard = SetOnDrop(Rc::clone(&dropped));
        let own_in_task = Rc::clone(&own);
        let rt2 = rt.clone();
        let task = rt.spawn(Group::Statement, async move {
            rt2.yield_now().await;
            drop(own_in_task.borrow_mut().take());
            rt2.yield_now().await;
            drop(guard);
            unreachable!("it was cancelled in the poll before");
        });
        *own.borrow_mut() = Some(task);
        rt.sleep(Duration::from_millis(1)).await;
        assert!(dropped.get());

        let reached = Rc::new(Cell::new(0));
        for _ in 0..10 {
            let (rt2, reached) = (rt.clone(), Rc::clone(&reached));
            rt.spawn(Group::Statement, async move {
                rt2.sleep(Duration::from_millis(2)).await;
                reached.set(reached.get() + 1);
            })
            .detach();
        }
        while reached.get() < 10 {
            rt.sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn timers_fire_in_order_and_not_early() {
    on_all_backends(1, |rt, _| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = rt.now();
        let tasks: Vec<_> = [30u64, 5, 20, 1, 12]
            .into_iter()
            .map(|ms| {
                let (rt2, order) = (rt.clone(), Rc::clone(&order));
                rt.spawn(Group::Statement, async move {
                    rt2.sleep_until(start + Duration::from_millis(ms)).await;
                    assert!(rt2.now() - start >= Duration::from_millis(ms));
                    order.borrow_mut().push(ms);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), [1, 5, 12, 20, 30]);
        assert!(rt.wall_micros() > 1_500_000_000_000_000, "the wall clock is in this century");
    });
}

async fn limited(rt: &Rt, work_ms: u64, limit_ms: u64) -> Result<u64, Elapsed> {
    let work = async {
        rt.sleep(Duration::from_millis(work_ms)).await;
        work_ms
    };
    rt.timeout(Duration::from_millis(limit_ms), work).await
}

#[test]
fn a_limit_of_time_drops_the_future() {
    on_all_backends(1, |rt, _| async move {
        assert_eq!(limited(&rt, 1, 10_000).await, Ok(1));
        assert_eq!(limited(&rt, 10_000, 5).await, Err(Elapsed));
        let dropped = Rc::new(Cell::new(false));
        let waits = waits_with(SetOnDrop(Rc::clone(&dropped)));
        assert_eq!(rt.timeout(Duration::from_millis(1), waits).await, Err(Elapsed));
        assert!(dropped.get());
    });
}

#[test]
fn a_request_to_stop_reaches_all_waiters() {
    on_all_backends(1, |rt, _| async move {
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let rt2 = rt.clone();
                rt.spawn(Group::Statement, async move { rt2.stop_requested().await })
            })
            .collect();
        rt.sleep(Duration::from_millis(1)).await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        rt.request_stop();
        for task in waiting {
            task.await;
        }
        rt.stop_requested().await;
    });
}

#[test]
fn random_numbers_differ_and_stay_below_their_bound() {
    on_all_backends(1, |rt, _| async move {
        let numbers: std::collections::BTreeSet<u64> = (0..100).map(|_| rt.random_u64()).collect();
        assert_eq!(numbers.len(), 100);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[rt.random_below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (700..1300).contains(count)), "{seen:?}");
        let mut bytes = [0u8; 33];
        rt.fill_random(&mut bytes);
        assert!(bytes.iter().any(|byte| *byte != 0));
    });
}

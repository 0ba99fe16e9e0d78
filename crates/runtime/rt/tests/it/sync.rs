//! Channels, semaphores, gates and the rest, also when futures are dropped half-way.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::{Disconnected, Gate, Notify, Semaphore, Shared, Watch, mpsc, oneshot};
use rt::{Group, Rt};

use crate::backends::on_sim;

/// Runs a body of one shard in the simulator under several seeds: the order of tasks differs.
fn on_many_seeds<F: Future<Output = ()> + 'static>(body: fn(Rt) -> F) {
    for seed in 0..20 {
        on_sim(1, seed, move |rt, _| body(rt));
    }
}

#[test]
fn oneshot_reports_both_ends() {
    on_many_seeds(|rt| async move {
        let (sender, receiver) = oneshot::channel();
        let task = rt.spawn(Group::Statement, receiver);
        rt.yield_now().await;
        assert!(!sender.is_disconnected());
        sender.send(7).unwrap();
        assert_eq!(task.await, Ok(7));
        let (sender, receiver) = oneshot::channel::<u32>();
        drop(sender);
        assert_eq!(receiver.await, Err(Disconnected));
        let (sender, receiver) = oneshot::channel();
        drop(receiver);
        assert!(sender.is_disconnected());
        assert_eq!(sender.send(1), Err(1));
    });
}

#[test]
fn a_queue_is_bounded_and_in_order() {
    on_many_seeds(|rt| async move {
        let (sender, mut receiver) = mpsc::channel(3);
        let senders: Vec<_> = (0..4u32)
            .map(|who| {
                let sender = sender.clone();
                rt.spawn(Group::Statement, async move {
                    for n in 0..50u32 {
                        sender.send((who, n)).await.unwrap();
                        assert!(sender.len() <= 3);
                    }
                })
            })
            .collect();
        drop(sender);
        let mut next = [0; 4];
        while let Some((who, n)) = receiver.recv().await {
            assert_eq!(n, next[who as usize]);
            next[who as usize] += 1;
            rt.maybe_yield().await;
        }
        assert_eq!(next, [50; 4]);
        for task in senders {
            task.await;
        }

        let (sender, receiver) = mpsc::channel(1);
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(mpsc::TrySendError::Full(2)));
        let waiting = rt.spawn(Group::Statement, async move { sender.send(3).await });
        rt.sleep(Duration::from_micros(50)).await;
        drop(receiver);
        assert_eq!(waiting.await, Err(Disconnected));
    });
}

#[test]
fn a_cancelled_sender_does_not_block_the_next() {
    on_many_seeds(|rt| async move {
        let (sender, mut receiver) = mpsc::channel(1);
        sender.send(0).await.unwrap();
        let tasks: Vec<_> = (1..=4u32)
            .map(|n| {
                let sender = sender.clone();
                rt.spawn(Group::Statement, async move { sender.send(n).await })
            })
            .collect();
        rt.sleep(Duration::from_micros(100)).await;
        // One of the waiting is woken by this, and then half of them are cancelled.
        assert_eq!(receiver.recv().await, Some(0));
        let mut kept = Vec::new();
        for (n, task) in tasks.into_iter().enumerate() {
            if n % 2 == 1 {
                kept.push(task);
            }
        }
        let first = receiver.recv().await.unwrap();
        let second = receiver.recv().await.unwrap();
        let mut got = [first, second];
        got.sort_unstable();
        assert!(got.contains(&2) || got.contains(&4), "{got:?}");
    });
}

#[test]
fn a_semaphore_is_fair() {
    on_many_seeds(|rt| async move {
        let semaphore = Semaphore::new(10);
        let held = semaphore.acquire(8).await.unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for (n, units) in [5usize, 1, 4, 10, 1].into_iter().enumerate() {
            let (semaphore, order, rt2) = (semaphore.clone(), Rc::clone(&order), rt.clone());
            tasks.push(rt.spawn(Group::Statement, async move {
                let permit = semaphore.acquire(units).await.unwrap();
                order.borrow_mut().push(n);
                rt2.sleep(Duration::from_micros(10)).await;
                drop(permit);
            }));
            rt.sleep(Duration::from_micros(20)).await;
        }
        assert_eq!((semaphore.waiting(), semaphore.available()), (5, 2));
        assert!(semaphore.try_acquire(1).is_none(), "those who wait come first");
        drop(held);
        for task in tasks {
            task.await;
        }
        assert_eq!((semaphore.waiting(), semaphore.available()), (0, 10));
        let order = order.borrow();
        // The three that fit together may run in any order, the others wait for their turn.
        assert_eq!(order[3..], [3, 4]);
    });
}

#[test]
fn a_semaphore_keeps_its_units_under_cancellation() {
    on_many_seeds(|rt| async move {
        let semaphore = Semaphore::new(4);
        for _ in 0..60 {
            let mut tasks: Vec<_> = (0..8)
                .map(|_| {
                    let (semaphore, rt2) = (semaphore.clone(), rt.clone());
                    let units = 1 + rt.random_below(4) as usize;
                    rt.spawn(Group::Statement, async move {
                        let mut permit = semaphore.acquire(units).await.unwrap();
                        let part = permit.split(units / 2);
                        rt2.yield_now().await;
                        drop(permit);
                        rt2.yield_now().await;
                        drop(part);
                    })
                })
                .collect();
            for _ in 0..rt.random_below(6) {
                rt.yield_now().await;
            }
            while !tasks.is_empty() {
                let index = rt.random_below(tasks.len() as u64) as usize;
                let task = tasks.swap_remove(index);
                if rt.random_below(2) == 0 {
                    task.await;
                }
            }
            assert_eq!((semaphore.available(), semaphore.waiting()), (4, 0));
        }
        let held = semaphore.acquire(4).await.unwrap();
        let waiting = rt.spawn(Group::Statement, semaphore.acquire(1));
        rt.sleep(Duration::from_micros(20)).await;
        semaphore.close();
        assert!(waiting.await.is_err());
        drop(held);
        assert!(semaphore.acquire(1).await.is_err());
    });
}

#[test]
fn a_notification_is_not_lost_with_its_receiver() {
    on_many_seeds(|rt| async move {
        let notify = Notify::new();
        notify.notify_one();
        notify.notified().await;
        let first = rt.spawn(Group::Statement, notify.notified());
        rt.sleep(Duration::from_micros(20)).await;
        let second = rt.spawn(Group::Statement, notify.notified());
        rt.sleep(Duration::from_micros(20)).await;
        assert_eq!(notify.waiting(), 2);
        notify.notify_one();
        drop(first);
        second.await;
        let all: Vec<_> = (0..5).map(|_| rt.spawn(Group::Statement, notify.notified())).collect();
        rt.sleep(Duration::from_micros(100)).await;
        notify.notify_all();
        for task in all {
            task.await;
        }
    });
}

#[test]
fn a_gate_closes_when_all_have_left() {
    on_many_seeds(|rt| async move {
        let gate = Gate::new();
        let guards: Vec<_> = (0..5).map(|_| gate.enter().unwrap()).collect();
        let (closing, rt2) = (gate.clone(), rt.clone());
        let closed = rt.spawn(Group::Statement, async move {
            closing.close().await;
            rt2.now()
        });
        rt.sleep(Duration::from_micros(20)).await;
        assert!(gate.enter().is_err() && !closed.is_finished());
        let mut left = rt.now();
        for guard in guards {
            rt.sleep(Duration::from_micros(50)).await;
            left = rt.now();
            drop(guard);
        }
        assert!(closed.await >= left);
        assert_eq!(gate.count(), 0);
    });
}

#[test]
fn shared_and_watched_values() {
    on_many_seeds(|rt| async move {
        let (setter, shared) = Shared::pending();
        let all: Vec<_> = (0..5).map(|_| rt.spawn(Group::Statement, shared.get())).collect();
        rt.sleep(Duration::from_micros(100)).await;
        assert!(shared.try_get().is_none());
        setter.set("value");
        for task in all {
            assert_eq!(task.await, Ok("value"));
        }
        assert_eq!(shared.get().await, Ok("value"));
        let (setter, shared) = Shared::<u32>::pending();
        drop(setter);
        assert_eq!(shared.get().await, Err(Disconnected));

        let watch = Watch::new(0);
        let mut reader = watch.reader();
        let following = rt.spawn(Group::Statement, async move {
            let mut seen = vec![*reader.get()];
            while reader.changed().await.is_ok() {
                seen.push(*reader.get());
            }
            seen
        });
        for n in 1..10 {
            watch.set(n);
            rt.maybe_yield().await;
        }
        rt.sleep(Duration::from_micros(100)).await;
        drop(watch);
        let seen = following.await;
        assert!(seen.is_sorted() && seen.last() == Some(&9), "{seen:?}");
    });
}

//! Delivery: everything once and in order, positions, ages, the rate, hosts and tables that go.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use hints::{HintsConfig, ReplayEnd};
use rt::Group;

use crate::world::*;

#[test]
fn everything_arrives_once_and_in_order_and_leaves_no_file() {
    let (sim, node) = machine(1);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        store(&rt, &hints, 1, 0..500);
        store(&rt, &hints, 2, 1000..1010);
        let figures = hints.hosts();
        assert_eq!(
            figures.iter().map(|(host, figures)| (host.0[0], figures.count)).collect::<Vec<_>>(),
            [(1, 500), (2, 10)]
        );
        assert_eq!(figures[0].1.oldest_micros, figures[1].1.oldest_micros);
        rt.sleep(SECOND).await;
        assert!(figures[0].1.newest_micros == figures[0].1.oldest_micros && figures[0].1.files == 0);
        assert!(hints.hosts()[0].1.files > 5, "{:?}", hints.hosts());
        let written: u64 = (0..500).map(|number| update(number).len() as u64 + 40).sum();
        assert_eq!(hints.hosts()[0].1.bytes, written);
        let (outcome, arrived) = deliver_all(&hints, 1).await;
        assert!(matches!(outcome.end, ReplayEnd::Complete), "{outcome:?}");
        assert_eq!((outcome.delivered, outcome.bytes, outcome.left_out), (500, written, 0));
        assert_eq!(arrived, (0..500).collect::<Vec<_>>());
        let (outcome, arrived) = deliver_all(&hints, 1).await;
        assert_eq!((outcome.delivered, arrived.len()), (0, 0));
        assert_eq!(hints.hosts().len(), 1);
        hints.stop().await;
    });
    let files = hint_files(&sim, node);
    assert_eq!(files.len(), 1, "{files:?}");
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        assert_eq!(hints.hosts()[0].1.count, 10);
        let (_, arrived) = deliver_all(&hints, 2).await;
        assert_eq!(arrived, (1000..1010).collect::<Vec<_>>());
        hints.stop().await;
    });
    assert!(hint_files(&sim, node).is_empty());
}

#[test]
fn buffered_hints_are_delivered_too() {
    let (sim, node) = machine(2);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        store(&rt, &hints, 1, 0..5);
        let (outcome, arrived) = deliver_all(&hints, 1).await;
        assert!(matches!(outcome.end, ReplayEnd::Complete), "{outcome:?}");
        assert_eq!(arrived, [0, 1, 2, 3, 4]);
        assert_eq!(hints.stats().pending, 0);
        hints.stop().await;
    });
}

/// Delivers until `fails_at` arrives, which is refused; returns the accepted ones.
async fn deliver_until(hints: &hints::Hints, to: u8, fails_at: u64) -> Vec<u64> {
    let accepted = RefCell::new(Vec::new());
    let outcome = hints
        .replay(host(to), |hint| {
            let number = number_of(&hint);
            let ok = number != fails_at;
            if ok {
                accepted.borrow_mut().push(number);
            }
            std::future::ready(if ok { Ok(()) } else { Err(format!("{number} is not wanted")) })
        })
        .await;
    match outcome.end {
        ReplayEnd::Failed(reason) => assert_eq!(reason, format!("{fails_at} is not wanted")),
        other => panic!("{other:?}"),
    }
    accepted.into_inner()
}

#[test]
fn a_failure_ends_the_replay_and_the_next_begins_there() {
    let (sim, node) = machine(3);
    run(&sim, node, |rt| async move {
        let config = HintsConfig { in_flight_max: 1, ..quick() };
        let hints = open(&rt, &config).await;
        store(&rt, &hints, 1, 0..300);
        assert_eq!(deliver_until(&hints, 1, 170).await, (0..170).collect::<Vec<_>>());
        assert_eq!(hints.hosts()[0].1.count, 130);
        // The position outlives a restart.
        hints.stop().await;
        let hints = open(&rt, &config).await;
        assert_eq!(hints.hosts()[0].1.count, 130);
        assert_eq!(deliver_until(&hints, 1, 250).await, (170..250).collect::<Vec<_>>());
        let (_, arrived) = deliver_all(&hints, 1).await;
        assert_eq!(arrived, (250..300).collect::<Vec<_>>());
        assert_eq!(hints.stats().delivery_failures, 1);
        hints.stop().await;
    });
    assert!(hint_files(&sim, node).is_empty());
}

#[test]
fn a_host_that_fails_again_and_again_does_not_make_many_files() {
    let (sim, node) = machine(4);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        for number in 0..50 {
            store(&rt, &hints, 1, [number]);
            deliver_until(&hints, 1, 0).await;
        }
        hints.stop().await;
    });
    assert_eq!(hint_files(&sim, node).len(), 2);
}

#[test]
fn several_are_under_way_at_once_and_no_more() {
    let (sim, node) = machine(5);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &HintsConfig { in_flight_max: 4, ..quick() }).await;
        store(&rt, &hints, 1, 0..40);
        let (now, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let started = rt.now();
        let outcome = hints
            .replay(host(1), |_| {
                let (rt, now, most) = (rt.clone(), Rc::clone(&now), Rc::clone(&most));
                async move {
                    now.set(now.get() + 1);
                    most.set(most.get().max(now.get()));
                    rt.sleep(Duration::from_millis(100)).await;
                    now.set(now.get() - 1);
                    Ok::<(), String>(())
                }
            })
            .await;
        assert_eq!((outcome.delivered, most.get()), (40, 4));
        let took = rt.now() - started;
        assert!(took >= SECOND && took < SECOND * 2, "{took:?}");
        hints.stop().await;
    });
}

/// The time at which the next hint may go comes between two looks at the clock.
#[test]
fn a_rate_that_is_hardly_one_does_not_stop_it() {
    for throttle_bytes in (1..40).map(|step| step * 100_000_000) {
        let (sim, node) = machine(throttle_bytes);
        run(&sim, node, |rt| async move {
            let config = HintsConfig { throttle_bytes, in_flight_max: 1, ..quick() };
            let hints = open(&rt, &config).await;
            store(&rt, &hints, 1, 0..300);
            let delivered = rt.timeout_at(rt.now() + 60 * SECOND, deliver_all(&hints, 1)).await;
            let (outcome, _) = delivered.expect("it resumes by itself");
            assert_eq!(outcome.delivered, 300);
            hints.stop().await;
        });
    }
}

#[test]
fn the_rate_is_kept() {
    let (sim, node) = machine(6);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &HintsConfig { throttle_bytes: 10_000, ..quick() }).await;
        store(&rt, &hints, 1, 0..400);
        let started = rt.now();
        let (outcome, _) = deliver_all(&hints, 1).await;
        let took = (rt.now() - started).as_secs_f64();
        let least = outcome.bytes as f64 / 10_000.0;
        assert!(least > 5.0 && took >= least - 0.1 && took < least + 0.5, "{took} s for {least}");
        hints.stop().await;
    });
}

#[test]
fn hints_older_than_their_grace_are_left_out() {
    let (sim, node) = machine(7);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &quick()).await;
        for number in 0..20 {
            let mut hint = hint(&rt, 1, number);
            hint.grace_seconds = if number % 2 == 0 { 60 } else { 3600 };
            hints.store(hint).unwrap();
        }
        rt.sleep(Duration::from_secs(60)).await;
        let (outcome, arrived) = deliver_all(&hints, 1).await;
        assert_eq!(arrived, (0..20).filter(|number| number % 2 == 1).collect::<Vec<_>>());
        assert_eq!((outcome.delivered, outcome.left_out), (10, 10));
        assert!(hints.hosts().is_empty());
        hints.stop().await;
    });
}

#[test]
fn of_the_grace_at_the_write_and_the_present_one_the_shorter_counts() {
    // The present grace in seconds, and how many of the hints that were stored with 60 and with 3600 seconds arrive after 100.
    for (present, arrived) in [(Some(99), 0), (Some(101), 10), (Some(7200), 10), (None, 10)] {
        let (sim, node) = machine(7);
        run(&sim, node, move |rt| async move {
            let hints = open(&rt, &quick()).await;
            for number in 0..20 {
                let mut hint = hint(&rt, 1, number);
                hint.grace_seconds = if number % 2 == 0 { 60 } else { 3600 };
                hints.store(hint).unwrap();
            }
            rt.sleep(100 * SECOND).await;
            let deliver = |_| async { Ok::<(), String>(()) };
            let outcome = hints.replay_within(host(1), |_| present, deliver).await;
            assert_eq!((outcome.delivered, outcome.left_out), (arrived, 20 - arrived), "{present:?}");
            hints.stop().await;
        });
    }
}

#[test]
fn a_host_that_left_and_a_dropped_table_get_nothing() {
    let (sim, node) = machine(8);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &HintsConfig { file_bytes_max: 1 << 20, ..quick() }).await;
        store(&rt, &hints, 1, 0..200);
        store(&rt, &hints, 2, 0..10);
        let mut other = hint(&rt, 2, 10);
        other.table = [8; 16];
        hints.store(other).unwrap();
        rt.sleep(SECOND).await;
        // In the middle of a replay, which ends.
        let slow = hints.clone();
        let slow_rt = rt.clone();
        let replay = rt.spawn(Group::Maintenance, async move {
            let deliver = |_| {
                let rt = slow_rt.clone();
                async move {
                    rt.sleep(SECOND).await;
                    Ok::<(), String>(())
                }
            };
            slow.replay(host(1), deliver).await
        });
        rt.sleep(SECOND + SECOND / 2).await;
        assert!(matches!(deliver_all(&hints, 1).await.0.end, ReplayEnd::Busy));
        assert_eq!((hints.stats().replaying, hints.stats().in_flight), (1, 32));
        hints.drop_host(host(1)).await;
        assert!(matches!(replay.await.end, ReplayEnd::Cancelled));
        assert_eq!(hints.hosts().len(), 1);
        assert_eq!(hints.stats().discarded, 200 - 32);
        hints.drop_table(TABLE);
        let (outcome, arrived) = deliver_all(&hints, 2).await;
        assert_eq!((arrived, outcome.left_out), (vec![10], 10));
        hints.stop().await;
    });
    assert!(hint_files(&sim, node).is_empty());
}

#[test]
fn stop_and_pause_end_a_replay_and_keep_the_rest() {
    for pause in [false, true] {
        let (sim, node) = machine(9);
        let delivered = run(&sim, node, move |rt| async move {
            let config = HintsConfig { throttle_bytes: 1000, ..quick() };
            let hints = open(&rt, &config).await;
            store(&rt, &hints, 1, 0..200);
            let slow = hints.clone();
            let replay = rt.spawn(Group::Maintenance, async move { deliver_all(&slow, 1).await });
            rt.sleep(SECOND * 10).await;
            if pause {
                hints.set_paused(true);
            } else {
                hints.stop().await;
            }
            let (outcome, arrived) = replay.await;
            assert!(matches!(outcome.end, ReplayEnd::Cancelled), "{outcome:?}");
            assert!(matches!(deliver_all(&hints, 1).await.0.end, ReplayEnd::Cancelled));
            hints.set_paused(false);
            hints.stop().await;
            assert!((10..190).contains(&arrived.len()), "{}", arrived.len());
            arrived
        });
        let rest = run(&sim, node, |rt| async move {
            let hints = open(&rt, &quick()).await;
            let (_, arrived) = deliver_all(&hints, 1).await;
            hints.stop().await;
            arrived
        });
        assert_eq!([delivered, rest].concat(), (0..200).collect::<Vec<_>>());
    }
}

#[test]
fn a_replay_that_is_dropped_gives_its_place_free() {
    let (sim, node) = machine(10);
    run(&sim, node, |rt| async move {
        let config = HintsConfig { hosts_at_once: 1, ..quick() };
        let hints = open(&rt, &config).await;
        store(&rt, &hints, 1, 0..100);
        store(&rt, &hints, 2, 0..3);
        for _ in 0..3 {
            let never = hints.replay(host(1), |_| std::future::pending::<Result<(), String>>());
            assert!(rt.timeout(SECOND, never).await.is_err());
        }
        assert_eq!(deliver_all(&hints, 2).await.1.len(), 3);
        assert_eq!(deliver_all(&hints, 1).await.1.len(), 100);
        hints.stop().await;
    });
}

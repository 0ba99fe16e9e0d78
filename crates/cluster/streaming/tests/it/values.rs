//! Plan, window and progress without any IO.

use std::time::Duration;

use bytes::Bytes;
use rt::Instant;
use streaming::transfer::{
    Item, ItemKind, Meter, OpenAnswer, Plan, PlanError, Position, Sending, TransferId,
};

fn plan(lengths: &[u64]) -> Plan {
    let item = |length: &u64| Item { kind: ItemKind::File, length: Some(*length), descriptor: Bytes::new() };
    Plan::new(TransferId([1; 16]), Bytes::new(), lengths.iter().map(item).collect()).unwrap()
}

fn at(item: u32, offset: u64) -> Position {
    Position { item, offset, cursor: Bytes::new() }
}

fn answer(resume: Position, window: u32) -> OpenAnswer {
    OpenAnswer { resume, window }
}

#[test]
fn a_plan_has_limits_and_positions() {
    let plan = plan(&[10, 0, 5]);
    assert_eq!(plan.known_bytes(), (15, true));
    assert_eq!(plan.end(), at(3, 0));
    for (position, inside) in [
        (at(0, 10), true),
        (at(0, 11), false),
        (at(1, 0), true),
        (at(3, 0), true),
        (at(3, 1), false),
        (at(4, 0), false),
    ] {
        assert_eq!(plan.contains(&position), inside, "{position:?}");
    }
    assert_eq!(plan.bytes_before(&at(2, 3)), 13);
    assert_eq!(plan.after(&at(0, 4), 6, true, Bytes::new()), at(1, 0));
    assert_eq!(plan.after(&at(0, 4), 2, false, Bytes::new()), at(0, 6));
    let item = Item { kind: ItemKind::Rows, length: None, descriptor: Bytes::from(vec![0; 20 << 10]) };
    let refused = Plan::new(TransferId([1; 16]), Bytes::new(), vec![item.clone()]);
    assert_eq!(refused, Err(PlanError::Descriptors(20 << 10)));
    let long = Item { kind: ItemKind::File, length: Some(u64::MAX), descriptor: Bytes::new() };
    assert_eq!(
        Plan::new(TransferId([1; 16]), Bytes::new(), vec![long.clone(), long]),
        Err(PlanError::Length)
    );
}

#[test]
fn the_window_bounds_the_bytes_in_flight() {
    let plan = plan(&[100, 50]);
    let mut sending = Sending::new(&plan, &answer(at(0, 20), 50)).unwrap();
    assert_eq!(sending.next(&plan), Some(&at(0, 20)));
    sending.sent(&plan, 30, false, Bytes::new());
    assert!(sending.has_room(20) && !sending.has_room(21));
    sending.sent(&plan, 20, false, Bytes::new());
    assert_eq!((sending.bytes_under_way(), sending.position()), (50, &at(0, 20)));
    assert_eq!(sending.arrived(&answer(at(0, 50), 40)), 30);
    assert_eq!(sending.position(), &at(0, 50));
    assert!(sending.has_room(20) && !sending.has_room(21), "the receiver has made the window smaller");
    sending.sent(&plan, 30, true, Bytes::new());
    assert_eq!(sending.next(&plan), Some(&at(1, 0)));
    assert_eq!(sending.arrived(&answer(at(0, 40), 40)), 0, "an answer that was overtaken");
    assert_eq!(sending.arrived(&answer(at(1, 0), 10)), 50);
    assert!(sending.has_room(1000), "one chunk may always be under way");
    sending.sent(&plan, 50, true, Bytes::new());
    assert_eq!(sending.next(&plan), None);
    assert_eq!(sending.arrived(&answer(at(2, 0), 10)), 50);
    assert!(Sending::new(&plan, &answer(at(0, 101), 50)).is_err());
}

#[test]
fn progress_has_rate_and_remaining_time() {
    let plan = plan(&[1_000_000, 9_000_000]);
    let mut now = Instant::from_nanos(7);
    let mut meter = Meter::new(&plan, now);
    assert_eq!(meter.progress().remaining, None, "nothing is known yet");
    for step in 1..=40u64 {
        now += Duration::from_millis(50);
        let position =
            if step * 50_000 < 1_000_000 { at(0, step * 50_000) } else { at(1, step * 50_000 - 1_000_000) };
        meter.came(50_000, &position, now);
    }
    let progress = meter.progress();
    assert_eq!((progress.items_done, progress.bytes_done, progress.bytes_total), (1, 2_000_000, 10_000_000));
    assert!((990_000..=1_010_000).contains(&progress.rate), "{progress:?}");
    let remaining = progress.remaining.unwrap();
    assert!(remaining > Duration::from_secs(7) && remaining < Duration::from_secs(9), "{remaining:?}");
    meter.begun_at(&plan, &at(1, 500_000), true);
    let progress = meter.progress();
    assert_eq!(
        (progress.bytes_done, progress.resumed),
        (2_000_000, 1),
        "resumed bytes are not counted twice"
    );
}

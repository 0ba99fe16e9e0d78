//! Dropped hints: windows, sizes, switches.

use std::time::Duration;

use hints::{HintRefused, HintsConfig};

use crate::world::*;

#[test]
fn a_host_that_is_down_for_too_long_gets_no_more_hints() {
    let (sim, node) = machine(1);
    run(&sim, node, |rt| async move {
        let config = HintsConfig { window: Duration::from_secs(60), window_persistent: false, ..quick() };
        let hints = open(&rt, &config).await;
        let mut down = hint(&rt, 1, 0);
        down.down_since_micros = Some(down.now_micros - 59_999_999);
        assert_eq!(hints.store(down.clone()), Ok(()));
        down.now_micros += 1;
        assert_eq!(hints.store(down), Err(HintRefused::WindowPassed));
        // Alive again, and slow: the old hint is no reason.
        let mut later = hint(&rt, 1, 1);
        later.now_micros += 120_000_000;
        assert_eq!(hints.store(later.clone()), Ok(()));
        assert_eq!((hints.stats().refused, hints.stats().refused_window), (1, 1));
        hints.stop().await;
        // Unless the window outlives the host's short visits.
        let hints = open(&rt, &HintsConfig { window_persistent: true, ..config }).await;
        assert_eq!(hints.store(later.clone()), Err(HintRefused::WindowPassed));
        later.host = host(2);
        assert_eq!(hints.store(later), Ok(()));
        hints.stop().await;
    });
}

#[test]
fn sizes_are_limited() {
    let (sim, node) = machine(2);
    run(&sim, node, |rt| async move {
        let config = HintsConfig {
            host_bytes_max: 5_000,
            buffer_bytes_max: 3_000,
            update_bytes_max: 1_000,
            ..quick()
        };
        let hints = open(&rt, &config).await;
        let mut large = hint(&rt, 1, 0);
        large.update = vec![0; 1_001].into();
        assert_eq!(hints.store(large), Err(HintRefused::TooLarge));
        let fill = |to| (0..100).map(|number| hints.store(hint(&rt, to, number))).find(Result::is_err);
        assert_eq!(fill(1), Some(Err(HintRefused::BufferFull)));
        rt.sleep(SECOND).await;
        assert_eq!(fill(1), Some(Err(HintRefused::HostFull)));
        let kept = hints.hosts()[0].1.bytes;
        assert!(kept > 4_000 && kept <= 5_000, "{kept}");
        assert_eq!(fill(2), Some(Err(HintRefused::BufferFull)));
        assert_eq!(hints.stats().refused_size, 4);
        hints.stop().await;
    });
}

#[test]
fn switches_are_heeded() {
    let (sim, node) = machine(3);
    run(&sim, node, |rt| async move {
        let hints = open(&rt, &HintsConfig { enabled: false, ..quick() }).await;
        assert_eq!(hints.store(hint(&rt, 1, 0)), Err(HintRefused::Disabled));
        hints.set_enabled(true);
        let mut without_grace = hint(&rt, 1, 0);
        without_grace.grace_seconds = 0;
        assert_eq!(hints.store(without_grace), Err(HintRefused::NoGrace));
        assert_eq!(hints.store(hint(&rt, 1, 0)), Ok(()));
        hints.stop().await;
        assert_eq!(hints.store(hint(&rt, 1, 0)), Err(HintRefused::Stopped));
        assert_eq!(hints.stats().stored, 1);
    });
}

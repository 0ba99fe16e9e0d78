//! Clocks that drift and jump, while timers keep to their own node's time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rt::ShardId;
use rt_sim::{ClockConfig, Config, NodeConfig, Simulation};

use crate::single;

#[test]
fn clocks_drift_and_jump() {
    let sim = Simulation::new(1, Config::default());
    let node = |drift_ppm, wall_offset_micros| {
        let clock = ClockConfig { drift_ppm, wall_offset_micros };
        let node = sim
            .add_node(NodeConfig { clock, ..NodeConfig::default() }, |_| single(|_| std::future::pending()));
        sim.start(node);
        node
    };
    let (exact, fast, late) = (node(0, 0), node(100_000, 0), node(0, -5_000_000));
    sim.run_for(Duration::from_secs(10));
    let rt = |node| sim.rt(node, ShardId(0)).unwrap();
    let base = Config::default().wall_start_micros;
    let near = |value: i64, expected: i64| (value - expected).abs() < 1000;
    assert!(near(rt(exact).wall_micros(), base + 10_000_000));
    assert!(near(rt(fast).wall_micros(), base + 11_000_000), "a tenth faster");
    assert!(near(rt(late).wall_micros(), base + 5_000_000));
    assert!(near((rt(fast).now().as_nanos() / 1000) as i64, 11_000_000));
    sim.set_clock_drift(fast, -500_000);
    sim.jump_clock(exact, -60_000_000);
    let before = rt(exact).now();
    sim.run_for(Duration::from_secs(10));
    assert!(near(rt(fast).wall_micros(), base + 16_000_000), "then at half speed");
    assert!(near(rt(exact).wall_micros(), base - 40_000_000), "back by a minute");
    assert!(rt(exact).now() > before, "the monotonic clock does not jump");
}

#[test]
fn timers_follow_the_nodes_own_clock() {
    for drift in [-300_000, -7, 0, 1, 123_457] {
        let sim = Simulation::new(2, Config::default());
        let clock = ClockConfig { drift_ppm: drift, wall_offset_micros: 0 };
        let node = sim.add_node(NodeConfig { clock, ..NodeConfig::default() }, |_| {
            single(|rt| async move {
                for n in 1..200u64 {
                    let deadline = rt.now() + Duration::from_nanos(n * 12_345);
                    rt.sleep_until(deadline).await;
                    assert!(rt.now() >= deadline, "never early");
                    assert!(rt.now() - deadline < Duration::from_micros(20), "{:?}", rt.now() - deadline);
                }
            })
        });
        sim.start(node);
        sim.run_until_exit(node).unwrap();
    }
}

#[test]
fn the_monotonic_clock_begins_again_with_the_node() {
    let sim = Simulation::new(3, Config::default());
    let node = sim.add_node(NodeConfig::default(), |_| single(|_| std::future::pending()));
    sim.start(node);
    sim.run_for(Duration::from_secs(100));
    sim.restart(node);
    assert!(sim.rt(node, ShardId(0)).unwrap().now() - rt::Instant::START < Duration::from_millis(1));
}

#[test]
fn a_paused_node_stands_still_while_its_clock_runs() {
    let sim = Simulation::new(3, Config::default());
    let ticks = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&ticks);
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let written = Arc::clone(&written);
        single(move |rt| async move {
            loop {
                rt.sleep(Duration::from_secs(1)).await;
                written.lock().unwrap().push(rt.now().as_nanos() / 1_000_000_000);
            }
        })
    });
    sim.start(node);
    sim.run_for(Duration::from_millis(2_500));
    sim.pause(node);
    sim.run_for(Duration::from_secs(10));
    assert_eq!(*ticks.lock().unwrap(), [1, 2]);
    sim.resume(node);
    sim.run_for(Duration::from_millis(2_000));
    assert_eq!(
        *ticks.lock().unwrap(),
        [1, 2, 12, 13],
        "the timer that was due fires once, at the time that it is"
    );
    sim.pause(node);
    sim.kill(node);
    sim.start(node);
    sim.run_for(Duration::from_millis(1_500));
    assert_eq!(ticks.lock().unwrap().len(), 5, "a node that is started is not paused");
}

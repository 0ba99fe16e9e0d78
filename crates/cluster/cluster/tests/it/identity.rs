//! A node's identity: each start has a later generation, also when the clock went back.

use std::path::Path;

use cluster::{NewTokens, NodeIdentity};
use rt::Rt;
use rt_sim::{Config, Simulation};

#[test]
fn each_life_is_later_than_the_one_before() {
    let sim = Simulation::new(1, Config::default());
    let begin = |rt: Rt| async move {
        let directory = Path::new("/data");
        rt.disk().create_dir_all(directory).await.unwrap();
        let mut identity = NodeIdentity::open(&rt, directory, "c", &NewTokens::Random(4)).await.unwrap();
        let generation = identity.begin_life(&rt, directory).await.unwrap();
        let kept = NodeIdentity::open(&rt, directory, "c", &NewTokens::Random(4)).await.unwrap();
        assert_eq!(kept, identity, "it is on disk before it is returned");
        generation
    };
    let wall = |sim: &Simulation| sim.wall_micros(sim.client()) as u64 / 1_000_000;
    let first = sim.block_on(begin).unwrap();
    assert!(first.abs_diff(wall(&sim)) <= 1);
    // In the same second, and an hour earlier.
    assert_eq!(sim.block_on(begin).unwrap(), first + 1);
    sim.jump_clock(sim.client(), -3_600_000_000);
    assert_eq!(sim.block_on(begin).unwrap(), first + 2);
    sim.jump_clock(sim.client(), 7_200_000_000);
    let later = sim.block_on(begin).unwrap();
    assert!(later.abs_diff(wall(&sim)) <= 1 && later > first + 3_000);
}

#[test]
fn a_generation_that_no_process_had_is_damage() {
    let sim = Simulation::new(1, Config::default());
    let error = sim.block_on(|rt: Rt| async move {
        let directory = Path::new("/data");
        rt.disk().create_dir_all(directory).await.unwrap();
        let mut identity = NodeIdentity::open(&rt, directory, "c", &NewTokens::Random(4)).await.unwrap();
        identity.generation = u64::MAX;
        identity.save(&rt, directory).await.unwrap();
        let opened = NodeIdentity::open(&rt, directory, "c", &NewTokens::Random(4)).await;
        opened.unwrap_err().to_string()
    });
    assert!(error.unwrap().contains("lies too far ahead"));
}

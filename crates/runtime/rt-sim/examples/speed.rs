//! A fixed amount of simulated work, for measuring the simulator (this crate itself knows no real clock):
//!
//!     cargo build -p rt-sim --example speed && time target/debug/examples/speed

use std::time::Duration;

use rt::{Group, IoBuf, OpenOptions, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};

async fn work(rt: Rt) {
    let file = rt.disk().open(format!("/{}", rt.shard()), OpenOptions::READ_WRITE).await.expect("a file");
    let tasks: Vec<_> = (0..16u64)
        .map(|n| {
            let (rt2, file) = (rt.clone(), file.clone());
            rt.spawn(Group::Statement, async move {
                for round in 0..500u64 {
                    rt2.yield_now().await;
                    let _ = rt2.timeout(Duration::from_secs(1), rt2.sleep(Duration::from_micros(n))).await;
                    let buf = IoBuf::copy_of(&round.to_le_bytes());
                    file.write_at((round * 16 + n) * 8, buf).await.expect("a write");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

fn main() {
    let sim = Simulation::new(1, Config::default());
    let nodes: Vec<_> = (0..3)
        .map(|_| sim.add_node(NodeConfig { shards: 2, ..NodeConfig::default() }, |_| shard_mains(2, work)))
        .collect();
    for node in &nodes {
        sim.start(*node);
    }
    for node in nodes {
        sim.run_until_exit(node).expect("the work ends");
    }
    println!("{} events in {:?} of virtual time", sim.trace_events(), sim.now());
}

//! Same seed, same trace; another seed, another trace.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::{
    ConnectOptions, Endpoint, Group, IoBuf, ListenOptions, LocalBoxFuture, Mesh, OpenOptions, Rt, ShardId,
    ShardMain, Stream,
};
use rt_sim::{Config, DiskConfig, LinkConfig, NodeConfig, NodeId, NodeInfo, Simulation};

const PORT: u16 = 7000;

/// Shard 0 takes a number from each connection, another shard appends it to a file, the answer goes back.
fn boot(info: &NodeInfo) -> Vec<ShardMain> {
    let endpoints = Mesh::new(info.shards, 4);
    let ip = info.ip;
    let main = |endpoint: Endpoint<u64, u64>| -> ShardMain {
        Box::new(move |rt: Rt| Box::pin(shard_main(rt, endpoint, ip)) as LocalBoxFuture<()>)
    };
    endpoints.into_iter().map(main).collect()
}

async fn shard_main(rt: Rt, endpoint: Endpoint<u64, u64>, ip: std::net::IpAddr) {
    let port = endpoint.attach(&rt);
    rt.disk().create_dir_all("/data").await.unwrap();
    let options = OpenOptions { append: true, ..OpenOptions::READ_WRITE };
    let file = rt.disk().open(format!("/data/log-{}", rt.shard()), options).await.unwrap();
    port.serve(move |_, number| {
        let file = file.clone();
        async move {
            let mut line = IoBuf::with_capacity(8);
            line.extend_from_slice(&number.to_le_bytes());
            let _ = file.write_at(0, line).await;
            let _ = file.sync_data().await;
            number + 1
        }
    });
    if rt.shard() != ShardId(0) {
        return std::future::pending().await;
    }
    let address = SocketAddr::new(ip, PORT);
    let listener = rt.net().listen(address, ListenOptions::default()).await.unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (port, rt2) = (port.clone(), rt.clone());
        let serve = async move {
            let mut number = [0; 8];
            while stream.read_exact(&mut number).await.is_ok() {
                let target = ShardId(rt2.random_below(u64::from(rt2.shard_count())) as u16);
                let answer = port.call(target, u64::from_le_bytes(number)).await;
                if stream.write_all(&answer.to_le_bytes()).await.is_err() {
                    return;
                }
            }
        };
        rt.spawn(Group::Statement, serve).detach();
    }
}

async fn ask(rt: &Rt, address: SocketAddr, number: u64) -> std::io::Result<u64> {
    let stream: Stream = match rt.net().connect(address, ConnectOptions::default()).await {
        Ok(stream) => stream,
        Err(error) => return Err(error.source),
    };
    stream.write_all(&number.to_le_bytes()).await?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).await?;
    Ok(u64::from_le_bytes(answer))
}

struct Outcome {
    hash: u64,
    lines: Vec<String>,
    answered: u32,
}

/// Three nodes under every kind of fault, asked by a client.
fn run(seed: u64) -> Outcome {
    let link = LinkConfig { loss_per_million: 20_000, reset_per_million: 2_000, ..LinkConfig::default() };
    let config = Config { link, trace_lines_max: 1_000_000, ..Config::default() };
    let sim = Simulation::new(seed, config);
    let disk =
        DiskConfig { write_error_per_million: 10_000, slow_per_million: 10_000, ..DiskConfig::default() };
    let nodes: Rc<Vec<NodeId>> = Rc::new(
        (0..3).map(|_| sim.add_node(NodeConfig { shards: 2, disk, ..NodeConfig::default() }, boot)).collect(),
    );
    for node in nodes.iter() {
        sim.start(*node);
    }
    sim.scatter_clocks(Duration::from_millis(50));
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| SocketAddr::new(sim.ip(*node), PORT)).collect();
    let mut rng = sim.rng(1);
    for n in 0..20u64 {
        let node = nodes[rng.below(3) as usize];
        let client = sim.client();
        let choice = rng.below(5);
        sim.at(Duration::from_millis(n * 40 + rng.below(40)), move |sim| match choice {
            0 => sim.restart(node),
            1 => sim.kill(node),
            2 => sim.partition(client, node),
            3 => sim.heal_all(),
            _ => sim.start(node),
        });
    }
    let addresses = Arc::new(addresses);
    let answered = sim
        .block_on(|rt| async move {
            let mut answered = 0;
            for n in 0..200u64 {
                let address = addresses[rt.random_below(3) as usize];
                let answer = rt.timeout(Duration::from_millis(50), ask(&rt, address, n)).await;
                if let Ok(Ok(answer)) = answer {
                    assert_eq!(answer, n + 1);
                    answered += 1;
                }
            }
            answered
        })
        .unwrap();
    Outcome { hash: sim.trace_hash(), lines: sim.trace_lines(), answered }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..10 {
        let (first, second) = (run(seed), run(seed));
        let difference = first.lines.iter().zip(&second.lines).position(|(a, b)| a != b);
        if let Some(at) = difference {
            panic!("seed {seed} differs at event {at}: {} / {}", first.lines[at], second.lines[at]);
        }
        assert_eq!((first.hash, first.lines.len()), (second.hash, second.lines.len()));
        assert!(first.answered > 20, "most of the work succeeds in spite of faults: {}", first.answered);
        assert!(first.answered < 200, "faults are felt");
    }
}

#[test]
fn other_seeds_give_other_traces() {
    let hashes: BTreeSet<u64> = (0..20).map(|seed| run(seed).hash).collect();
    assert_eq!(hashes.len(), 20);
}

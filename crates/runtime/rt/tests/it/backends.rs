//! Runs one test body on every backend.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Mutex;

use rt::{Rt, shard_mains};
use rt_uring::{Config, FileBackend};

/// The arguments of a body beside its `Rt`.
#[derive(Clone)]
pub struct Place {
    /// A directory that exists and is empty at the start of the test.
    pub dir: PathBuf,
    /// An address that belongs to this node.
    pub ip: std::net::IpAddr,
}

fn uring(files: FileBackend) -> Config {
    Config { files, pin: false, ..Config::default() }
}

/// Runs `body` on every shard of a node, on all backends one after another.
pub fn on_all_backends<F, M>(shards: u16, body: M)
where
    F: Future<Output = ()> + 'static,
    M: Fn(Rt, Place) -> F + Clone + Send + Sync + 'static,
{
    for files in [FileBackend::Ring, FileBackend::Blocking, FileBackend::Memory] {
        on_uring(shards, files, body.clone());
    }
    on_sim(shards, 1, body);
}

/// Runs `body` in production's backend. Where io_uring is refused the ring falls back.
pub fn on_uring<F, M>(shards: u16, files: FileBackend, body: M)
where
    F: Future<Output = ()> + 'static,
    M: Fn(Rt, Place) -> F + Clone + Send + Sync + 'static,
{
    let files = if files == FileBackend::Ring { FileBackend::Auto } else { files };
    let dir = tempfile::tempdir().expect("a directory for the test");
    let place = Place { dir: dir.path().to_path_buf(), ip: [127, 0, 0, 1].into() };
    let mains = shard_mains(shards, move |rt| {
        let (body, place) = (body.clone(), place.clone());
        async move {
            rt.disk().create_dir_all(&place.dir).await.expect("the directory is made");
            body(rt, place).await
        }
    });
    rt_uring::run(&uring(files), mains).expect("the node starts");
}

/// Runs `body` in the simulator and gives the hash of the trace.
pub fn on_sim<F, M>(shards: u16, seed: u64, body: M) -> u64
where
    F: Future<Output = ()> + 'static,
    M: Fn(Rt, Place) -> F + Clone + Send + Sync + 'static,
{
    let sim = rt_sim::Simulation::new(seed, rt_sim::Config::default());
    let body = Mutex::new(body);
    let node = sim.add_node(rt_sim::NodeConfig { shards, ..rt_sim::NodeConfig::default() }, move |node| {
        let place = Place { dir: PathBuf::from("/data"), ip: node.ip };
        let body = body.lock().expect("one thread").clone();
        shard_mains(node.shards, move |rt| {
            let body = body.clone();
            let place = place.clone();
            async move {
                rt.disk().create_dir_all(&place.dir).await.expect("the directory is made");
                body(rt, place).await
            }
        })
    });
    sim.start(node);
    sim.run_until_exit(node).expect("the node's mains return");
    sim.trace_hash()
}

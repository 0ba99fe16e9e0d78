//! A simulated machine that runs one future over its hints, and hints that carry a number.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hints::{Hint, Hints, HintsConfig, StoredHint};
use rt::{Group, Rt, ShardId, shard_mains};
use rt_sim::{Config, NodeConfig, NodeId, Simulation};
use topology::HostId;

pub const DIRECTORY: &str = "/hints";
pub const TABLE: [u8; 16] = [7; 16];
pub const GRACE: u32 = 864_000;

pub fn host(number: u8) -> HostId {
    HostId([number; 16])
}

/// An update that says which it is; of different lengths.
pub fn update(number: u64) -> Bytes {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(8 + (number * 37 % 500) as usize, number as u8);
    Bytes::from(bytes)
}

/// The number of an update, which must be as it was stored.
pub fn number_of(hint: &StoredHint) -> u64 {
    let number = u64::from_be_bytes(hint.update[..8].try_into().unwrap());
    assert_eq!(hint.update, update(number), "an update comes back as it was stored");
    number
}

pub fn hint(rt: &Rt, to: u8, number: u64) -> Hint {
    Hint {
        host: host(to),
        table: TABLE,
        update: update(number),
        grace_seconds: GRACE,
        begun_micros: rt.wall_micros(),
        now_micros: rt.wall_micros(),
        down_since_micros: None,
    }
}

/// A machine with one idle shard, whose disk outlives each [`run`] on it.
pub fn machine(seed: u64) -> (Simulation, NodeId) {
    let config = Config { clock_read_cost: Duration::from_nanos(50), ..Config::default() };
    let sim = Simulation::new(seed, config);
    let node = sim
        .add_node(NodeConfig::default(), |info| shard_mains(info.shards, |_| std::future::pending::<()>()));
    sim.start(node);
    (sim, node)
}

/// Runs a future on the machine to its end.
pub fn run<T: 'static, F: Future<Output = T> + 'static>(
    sim: &Simulation,
    node: NodeId,
    main: impl FnOnce(Rt) -> F,
) -> T {
    let rt = sim.rt(node, ShardId(0)).expect("the machine runs");
    let result = Rc::new(RefCell::new(None));
    let output = Rc::clone(&result);
    let future = main(rt.clone());
    let task = rt.spawn(Group::Statement, async move { *output.borrow_mut() = Some(future.await) });
    sim.run_until(|| task.is_finished()).unwrap();
    drop(task);
    result.borrow_mut().take().expect("a finished task has left its result")
}

pub async fn open(rt: &Rt, config: &HintsConfig) -> Hints {
    Hints::open(rt, Path::new(DIRECTORY), config.clone()).await.unwrap()
}

/// Stores hints of these numbers for a host.
pub fn store(rt: &Rt, hints: &Hints, to: u8, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        hints.store(hint(rt, to, number)).unwrap();
    }
}

/// Delivers everything for a host, which refuses nothing, and gives the numbers in the order of their arrival.
pub async fn deliver_all(hints: &Hints, to: u8) -> (hints::ReplayOutcome, Vec<u64>) {
    let arrived = RefCell::new(Vec::new());
    let outcome = hints
        .replay(host(to), |hint| {
            arrived.borrow_mut().push(number_of(&hint));
            std::future::ready(Ok::<(), String>(()))
        })
        .await;
    (outcome, arrived.into_inner())
}

pub fn hint_files(sim: &Simulation, node: NodeId) -> Vec<String> {
    let names = sim.files(node).into_iter().map(|(path, _)| path.display().to_string());
    names.filter(|name| name.ends_with(".hints")).collect()
}

/// Without a limit of the rate, in small files.
pub fn quick() -> HintsConfig {
    HintsConfig { throttle_bytes: 0, file_bytes_max: 20_000, ..HintsConfig::default() }
}

pub const SECOND: Duration = Duration::from_secs(1);

//! Nodes of a simulation with storage, connections and transfers, and nothing else.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, EngineConfig, Origin, Read, SyncMode, Write};
use mutation::{
    Cell, Clustering, ColumnData, DecoratedKey, DeletionTime, Fragment, LivenessInfo, PartitionRange,
    PartitionUpdate, Row, Slices,
};
use rpc::{Messenger, Near, PeerInfo, Peers, RpcConfig, handover_mesh};
use rt::{Group, Rt, ShardId, ShardMain};
use rt_sim::{Begun, Config, NodeConfig, Sim, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use streaming::{FetchError, Fetched, Peer, Streaming, StreamingConfig};
use topology::{HostId, Sharder, TabletMaps, TokenRange};
use types::CqlType;

/// A shard that runs.
#[derive(Clone)]
pub struct Running {
    pub engine: Engine,
    pub transfers: Streaming,
}

thread_local! {
    /// By node and shard. A test is one thread.
    static RUNNING: RefCell<BTreeMap<(usize, u16), Running>> = const { RefCell::new(BTreeMap::new()) };
}

pub fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

fn address(node: usize) -> std::net::SocketAddr {
    ([10, 0, 0, node as u8 + 1], 7000).into()
}

fn schema() -> Arc<Schema> {
    let mut builder = TableBuilder::new("ks", "t", TableId([7; 16]))
        .partition_key("k", CqlType::Int)
        .regular("v", CqlType::Blob);
    builder.options.gc_grace_seconds = 4 * 3_600;
    let mut keyspace = Keyspace::new("ks", Replication::Simple { factor: 1 });
    keyspace.tables.insert("t".to_owned(), builder.build_known());
    Arc::new(Schema::default().with_keyspace(keyspace))
}

pub fn table() -> Arc<Table> {
    schema().table("ks", "t").expect("it is there").clone()
}

pub fn key(k: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()))
}

fn row(k: i32) -> PartitionUpdate {
    let table = table();
    let mut row = Row::new(Clustering::empty());
    row.liveness = LivenessInfo::forever(1);
    // Incompressible bytes, so that there is something to send.
    let value: Vec<u8> = (0..64u64)
        .flat_map(|n| (n + 64 * k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
        .collect();
    row.set(table.column("v").expect("it is there").id, ColumnData::Simple(Cell::live(1, value.into())));
    let mut update = PartitionUpdate::new(table, key(k));
    update.add_row(row);
    update
}

fn config(bytes_per_second: Option<u64>) -> StreamingConfig {
    let mut config = StreamingConfig::new(PathBuf::from("/data/.torc/streams"));
    config.stream.chunk_len = 32 << 10;
    config.stream.window = 128 << 10;
    StreamingConfig { bytes_per_second, ..config }
}

fn main_of(node: usize, shards: &[u16], rate: Option<u64>) -> Vec<ShardMain> {
    let rpc = Arc::new(RpcConfig::new("test", host(node), address(node)));
    let peer = |(other, shards): (usize, &u16)| {
        (host(other), PeerInfo { address: address(other), shard_count: *shards, near: Near::Rack })
    };
    let peers = Arc::new(Peers::new(shards.iter().enumerate().map(peer)));
    let ends = handover_mesh(shards[node]).into_iter();
    ends.map(|handover| {
        let (rpc, peers) = (rpc.clone(), peers.clone());
        Box::new(move |rt: Rt| {
            let main = async move {
                let messenger = Messenger::new(&rt, rpc, handover);
                messenger.set_peers(peers);
                let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
                config.commitlog.sync = SyncMode::Batch;
                config.auto_compaction = false;
                config.host_id = host(node).0;
                let engine = Engine::open(rt.clone(), config, schema()).await.expect("the disk works");
                let transfers = Streaming::open(&rt, host(node), &messenger, &engine, self::config(rate))
                    .await
                    .expect("it too");
                let running = Running { engine, transfers };
                RUNNING.with(|all| all.borrow_mut().insert((node, rt.shard().0), running));
                if rt.shard() == ShardId(0) {
                    messenger.listen().await.expect("the port is free");
                }
                std::future::pending::<()>().await;
            };
            Box::pin(main) as rt::LocalBoxFuture<()>
        }) as ShardMain
    })
    .collect()
}

pub struct World {
    pub sim: Simulation,
    pub shards: Vec<u16>,
    tablets: RefCell<TabletMaps>,
}

impl World {
    /// Running nodes with so many shards each.
    pub fn new(seed: u64, shards: &[u16]) -> World {
        Self::with_rate(seed, shards, None)
    }

    /// The same, and each shard sends at most so many bytes a second.
    pub fn with_rate(seed: u64, shards: &[u16], rate: Option<u64>) -> World {
        RUNNING.with(|all| all.borrow_mut().clear());
        let sim = Simulation::new(seed, Config::default());
        for (node, count) in shards.iter().enumerate() {
            let shards = shards.to_vec();
            let config = NodeConfig { shards: *count, ..NodeConfig::default() };
            let id = sim.add_node(config, move |_| main_of(node, &shards, rate));
            sim.start(id);
        }
        sim.run_for(Duration::from_millis(100));
        World { sim, shards: shards.to_vec(), tablets: RefCell::default() }
    }

    pub fn running(&self, node: usize, shard: u16) -> Running {
        RUNNING.with(|all| all.borrow().get(&(node, shard)).expect("the shard runs").clone())
    }

    /// Starts a node that was stopped, and waits until it runs.
    pub fn start(&self, node: usize) {
        RUNNING.with(|all| all.borrow_mut().retain(|(other, _), _| *other != node));
        self.sim.start(self.sim.node(node));
        let shards = self.shards[node];
        let runs = || RUNNING.with(|all| all.borrow().keys().filter(|(other, _)| *other == node).count());
        self.sim.run_until(|| runs() == usize::from(shards)).expect("it starts");
    }

    /// Begins a task on a shard.
    pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        shard: u16,
        task: impl FnOnce(Rt, Running) -> F,
    ) -> Begun<T> {
        let rt = self.sim.rt(self.sim.node(node), ShardId(shard)).expect("the node runs");
        let future = task(rt.clone(), self.running(node, shard));
        Begun::new(&rt, Group::Streaming, future)
    }

    pub fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        shard: u16,
        task: impl FnOnce(Rt, Running) -> F,
    ) -> T {
        let sim: &Sim = &self.sim;
        self.begin(node, shard, task).join(sim).expect("it ends")
    }

    fn owner(&self, node: usize, k: i32) -> u16 {
        let sharder = Sharder::new(self.shards[node]);
        self.tablets.borrow().shard_of(host(node), sharder, TableId([7; 16]), key(k).token)
    }

    /// Has the table lie by tablets.
    pub fn use_tablets(&self, tablets: &TabletMaps) {
        self.tablets.replace(tablets.clone());
        for (node, shards) in self.shards.iter().enumerate() {
            (0..*shards).for_each(|shard| self.running(node, shard).engine.use_tablets(tablets));
        }
    }

    /// Writes keys on a node, each on the shard that owns it, and flushes each third of them.
    pub fn fill(&self, node: usize, keys: std::ops::Range<i32>) {
        for shard in 0..self.shards[node] {
            let (third, owned) = (keys.len() / 3, |k: &i32| self.owner(node, *k) == shard);
            let mine: Vec<i32> = keys.clone().filter(owned).collect();
            self.on(node, shard, |_, running| async move {
                for (nth, k) in mine.into_iter().enumerate() {
                    running.engine.apply(Write::one(Origin::Client, row(k))).await.expect("the disk works");
                    if nth % third.max(1) == third / 2 {
                        running.engine.flush(TableId([7; 16])).await.expect("the disk works");
                    }
                }
            });
        }
    }

    /// Deletes a key on one shard.
    pub fn delete(&self, node: usize, k: i32) {
        self.on(node, self.owner(node, k), |_, running| async move {
            let mut update = PartitionUpdate::new(table(), key(k));
            update.deletion = DeletionTime { timestamp: 5, local: 1_700_000_000 };
            running.engine.apply(Write::one(Origin::Client, update)).await.expect("the disk works");
        });
    }

    /// Begins to fetch the files that one shard of a node wants of another node.
    pub fn begin_fetch(
        &self,
        (node, shard): (usize, u16),
        from: usize,
        ranges: &[TokenRange],
    ) -> Begun<Result<Fetched, FetchError>> {
        let (peer, ranges) = (Peer { host: host(from), shards: self.shards[from] }, ranges.to_vec());
        self.begin(node, shard, move |_, running| async move {
            running.transfers.fetch(peer, TableId([7; 16]), &ranges, "1").await
        })
    }

    /// About how much a node would get of another one.
    pub fn estimate(&self, node: usize, from: usize, ranges: &[TokenRange]) -> Option<u64> {
        let mut bytes = Some(0);
        for shard in 0..self.shards[node] {
            let (peer, ranges) = (Peer { host: host(from), shards: self.shards[from] }, ranges.to_vec());
            let one = self.on(node, shard, move |_, running| async move {
                running.transfers.estimate(peer, TableId([7; 16]), &ranges, "1").await
            });
            bytes = bytes.zip(one).map(|(all, one)| all + one);
        }
        bytes
    }

    /// Fetches on all shards of a node.
    pub fn fetch(&self, node: usize, from: usize, ranges: &[TokenRange]) -> Fetched {
        let mut all = Fetched { is_all: true, ..Fetched::default() };
        for shard in 0..self.shards[node] {
            let one = self.begin_fetch((node, shard), from, ranges).join(&self.sim).expect("it ends");
            let one = one.expect("it is fetched");
            all = Fetched {
                sstables: all.sstables + one.sstables,
                bytes: all.bytes + one.bytes,
                is_all: all.is_all && one.is_all,
            };
        }
        all
    }

    /// The keys that a node has.
    pub fn keys(&self, node: usize) -> BTreeSet<i32> {
        let mut keys = BTreeSet::new();
        for shard in 0..self.shards[node] {
            keys.extend(self.on(node, shard, |_, running| async move {
                let (all, slices) = (PartitionRange::all(), Slices::all());
                let reader = running.engine.read(&Read::new(table().id, &all, &slices));
                let mut reader = reader.expect("the disk works");
                let mut keys = Vec::new();
                while let Some(fragment) = reader.next().await.expect("the disk works") {
                    match fragment {
                        Fragment::PartitionStart { key, deletion } if deletion.is_live() => {
                            keys.push(i32::from_be_bytes(key.key[..].try_into().expect("an int")));
                        }
                        _ => {}
                    }
                }
                keys
            }));
        }
        keys
    }

    /// Files of transfers on a node's disk.
    pub fn stream_files(&self, node: usize) -> Vec<PathBuf> {
        let files = self.sim.files(self.sim.node(node)).into_iter().map(|(path, _)| PathBuf::from(path));
        files.filter(|path| path.to_string_lossy().contains("/streams/")).collect()
    }
}

/// Everything, as one range.
pub fn everything() -> Vec<TokenRange> {
    vec![TokenRange { after: 0, upto: 0 }]
}

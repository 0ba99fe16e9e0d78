//! A test's state across the crashes of its node, and the node's main: open, verify, work.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, EngineConfig, Origin, Read, RowLookup, SyncMode, Write, WriteError};
use mutation::{Bound, ColumnSelection, PartitionRange, PartitionUpdate, Row, RowRange, Side, Slices};
use rt::{Group, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::Table;

use crate::model::{Change, Op, key, read, schema, updates, visible};

pub const PARTITIONS: i32 = 5;
pub const ROWS: i32 = 6;

/// Choices of one run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub sync: SyncMode,
    pub canaries: Canaries,
    pub gc_grace: u32,
    /// Whether memtables are flushed and SSTables compacted.
    pub sstables: bool,
    pub ops_max: usize,
}

/// Shared between the lives of a node.
#[derive(Default)]
pub struct World {
    /// In effect for certain.
    pub settled: Vec<Op>,
    /// Begun, and not known to have happened.
    pub open: Vec<Op>,
    pub next: u64,
    /// When operations began, microseconds of the wall clock, with their numbers; the latest second.
    pub recent: VecDeque<(i64, u64)>,
    /// Lives whose state was found right.
    pub verified: u64,
    pub failures: Vec<String>,
    /// The disk has faults now, so that a start may fail.
    pub disk_fails: bool,
    /// Errors of requests, which are no failures when the disk has faults.
    pub errors: Vec<String>,
}

pub type SharedWorld = Arc<Mutex<World>>;

/// The files that one future leaves that runs alone on a simulated node of one shard with an empty disk.
pub fn on_a_node<T, F>(seed: u64, work: impl Fn(Rt) -> F + Clone + Send + Sync + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let sim = Simulation::new(seed, Config::default());
    let left = Arc::new(Mutex::new(None));
    let place = left.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let (place, work) = (place.clone(), work.clone());
        shard_mains(1, move |rt: Rt| {
            let (place, work) = (place.clone(), work.clone());
            async move { *place.lock().unwrap() = Some(work(rt).await) }
        })
    });
    sim.start(node);
    sim.run_until_exit(node).expect("it ends");
    left.lock().unwrap().take().expect("it has ended")
}

pub fn config(plan: &Plan) -> EngineConfig {
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = plan.sync;
    config.commitlog.segment_bytes = 96 << 10;
    config.commitlog.total_bytes_max = if plan.sstables { 400 << 10 } else { 1 << 30 };
    config.memtable_bytes_max = if plan.sstables { 48 << 10 } else { 64 << 20 };
    config.cache_bytes_max = 200 << 10;
    config.canaries = rt_sim::injected(plan.canaries);
    config
}

/// The main of a node of one shard.
pub async fn node(rt: Rt, plan: Plan, world: SharedWorld) {
    let schema = schema(plan.gc_grace);
    let engine = match Engine::open(rt.clone(), config(&plan), schema.clone()).await {
        Ok(engine) => engine,
        Err(error) if world.lock().unwrap().disk_fails => {
            world.lock().unwrap().errors.push(format!("open: {error}"));
            return std::future::pending().await;
        }
        Err(error) => return world.lock().unwrap().failures.push(format!("open: {error}")),
    };
    let table = schema.table("ks", "t1").unwrap().clone();
    loop {
        verify(&engine, &table, &world).await;
        if engine.stop_reason().is_some() {
            return std::future::pending().await;
        }
        if !world.lock().unwrap().failures.is_empty() {
            return;
        }
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let work = client(rt.clone(), engine.clone(), table.clone(), world.clone(), plan);
            tasks.push(rt.spawn(Group::Statement, work));
        }
        for task in tasks {
            task.await;
        }
    }
}

/// Compares everything with the model. Of operations that were under way any may have happened, each as a whole.
pub async fn verify(engine: &Engine, table: &Arc<Table>, world: &SharedWorld) {
    let found = match read(engine, table, &PartitionRange::all(), false).await {
        Ok(found) => found,
        Err(error) => return read_failed(engine, world, format!("read: {error}")),
    };
    let mut by_key = crate::model::Visible::new();
    for pk in 0..PARTITIONS {
        match read(engine, table, &PartitionRange::single(&key(pk)), pk % 2 == 0).await {
            Ok(part) => by_key.extend(part),
            Err(error) => return read_failed(engine, world, format!("read of {pk}: {error}")),
        }
    }
    let looked_up = row_lookups(engine, table, &found);
    let mut world = world.lock().unwrap();
    world.failures.extend(looked_up.err());
    if by_key != found {
        world.failures.push(format!("a scan shows {found:?}, reads of partitions show {by_key:?}"));
        return;
    }
    let open = std::mem::take(&mut world.open);
    assert!(open.len() <= 12, "few operations are under way");
    for subset in 0..1u32 << open.len() {
        let happened = || open.iter().enumerate().filter(|(n, _)| subset >> n & 1 == 1).map(|(_, op)| op);
        if visible(world.settled.iter().chain(happened())) == found {
            let happened: Vec<Op> = happened().cloned().collect();
            world.settled.extend(happened);
            world.verified += 1;
            return;
        }
    }
    let expected = visible(world.settled.iter());
    let missing: Vec<_> = expected.iter().filter(|(place, ts)| found.get(place) != Some(ts)).collect();
    let extra: Vec<_> = found.iter().filter(|(place, ts)| expected.get(place) != Some(ts)).collect();
    let report = format!("missing {missing:?}, extra {extra:?}, under way {open:?}");
    world.failures.push(report);
}

/// Looks every row up where it lies in memory, and compares those that are found in this way with a read.
fn row_lookups(engine: &Engine, table: &Arc<Table>, expected: &crate::model::Visible) -> Result<(), String> {
    for (pk, ck) in (0..PARTITIONS).flat_map(|pk| (0..ROWS).map(move |ck| (pk, ck))) {
        let bound = |side| Bound::new(table, &[Some(&ck.to_be_bytes())], side);
        let slices = Slices::new(vec![RowRange { start: bound(Side::Before), end: bound(Side::After) }]);
        let times = |row: Option<&Row>| {
            Some(row.map_or(Vec::new(), |row| {
                row.columns()
                    .iter()
                    .map(|(id, _)| row.cell(*id).expect("a simple column").timestamp)
                    .collect()
            }))
        };
        // A shard that was stopped answers nothing.
        let lookup =
            RowLookup { key: &key(pk), slices: &slices, bypass_cache: false, values_only: pk % 2 == 0 };
        let Ok(Some(times)) = engine.visit_only_row(table, &lookup, times) else { continue };
        let wanted = ["a", "b"].iter().filter_map(|name| expected.get(&(pk, Some(ck), *name)));
        if !times.iter().eq(wanted) {
            return Err(format!("a lookup of row {pk}/{ck} shows cells of {times:?}, not of {expected:?}"));
        }
    }
    Ok(())
}

/// A read may fail only where the disk has stopped the shard.
fn read_failed(engine: &Engine, world: &SharedWorld, text: String) {
    let mut world = world.lock().unwrap();
    if engine.stop_reason().is_some() { world.errors.push(text) } else { world.failures.push(text) }
}

impl World {
    /// The next number, and the first one of the last second.
    fn begin(&mut self, now_micros: i64) -> (u64, u64) {
        self.next += 1;
        self.recent.push_back((now_micros, self.next));
        while self.recent.front().is_some_and(|(at, _)| now_micros - at > 1_000_000) {
            self.recent.pop_front();
        }
        (self.next, self.recent.front().map_or(self.next, |(_, number)| *number))
    }

    /// A new operation, under way from now on; `None` when there were enough.
    fn open(&mut self, rt: &Rt, ops_max: usize) -> Option<Op> {
        if self.settled.len() >= ops_max {
            return None;
        }
        let (number, floor) = self.begin(rt.wall_micros());
        let op = random_op(rt, number, floor);
        self.open.push(op.clone());
        Some(op)
    }

    /// Records the outcome of an operation. True when so many have an unknown outcome that the model, which tries
    /// every combination of them, would take too long with more.
    fn close(&mut self, op: Op, outcome: Result<(), String>) -> bool {
        match outcome {
            Ok(()) => {
                self.open.retain(|open| open.number != op.number);
                self.settled.push(op);
                false
            }
            Err(error) => {
                self.errors.push(error);
                self.open.len() > 6
            }
        }
    }
}

fn random_op(rt: &Rt, number: u64, floor: u64) -> Op {
    let below = |n: u64| rt.random_below(n);
    // Now and then a write comes with a timestamp of the past, but of less than the grace of tombstones; no
    // timestamp comes twice.
    let ts = |place: u64| {
        let back = if below(3) == 0 { below(30).min(number - floor) } else { 0 };
        ((number.saturating_sub(back) * 1000) + place * 100) as i64 * 10_000 + number as i64 + 1
    };
    let change = |place: u64| {
        let (pk, ck) = (below(PARTITIONS as u64) as i32, below(ROWS as u64) as i32);
        match below(20) {
            0..=13 => Change::Cell { pk, ck, b: below(2) == 0, ts: ts(place) },
            14 | 15 => Change::Row { pk, ck, ts: ts(place) },
            16 | 17 => Change::Range { pk, from: ck, upto: ck + below(3) as i32, ts: ts(place) },
            18 => Change::Partition { pk, ts: ts(place) },
            _ => Change::Static { pk, ts: ts(place) },
        }
    };
    let count = if below(3) == 0 { 1 + below(4) } else { 1 };
    Op { number, changes: (0..count).map(change).collect(), large: below(3) == 0 }
}

async fn client(rt: Rt, engine: Engine, table: Arc<Table>, world: SharedWorld, plan: Plan) {
    for _ in 0..12 {
        if rt.random_below(3) == 0 {
            rt.sleep(Duration::from_micros(rt.random_below(3000))).await;
        }
        if plan.sstables && rt.random_below(16) == 0 {
            maintain(&rt, &engine, &table, &world).await;
        }
        if plan.sstables && rt.random_below(4) == 0 {
            glance(&rt, &engine, &table, &world).await;
        }
        let Some(op) = world.lock().unwrap().open(&rt, plan.ops_max) else {
            return rt.sleep(Duration::from_millis(20)).await;
        };
        let now = (rt.wall_micros() / 1_000_000) as u32;
        let outcome = write(&rt, &engine, updates(&table, &op, now)).await;
        let too_many_unknown = world.lock().unwrap().close(op, outcome.map_err(|error| error.to_string()));
        if too_many_unknown {
            std::future::pending::<()>().await;
        }
    }
}

/// Applies updates, half of the single ones at once where that can be.
async fn write(rt: &Rt, engine: &Engine, mut updates: Vec<PartitionUpdate>) -> Result<(), WriteError> {
    if updates.len() == 1 && rt.random_below(2) == 0 {
        let mut update = updates.pop();
        engine.apply_now(Origin::Client, rt.now(), &mut update);
        updates.extend(update);
    }
    if updates.is_empty() {
        return Ok(());
    }
    engine.apply(Write::all(Origin::Client, updates)).await
}

/// Reads a part of a partition and most often stops early, so that the cache knows parts of partitions.
async fn glance(rt: &Rt, engine: &Engine, table: &Arc<Table>, world: &SharedWorld) {
    let below = |n: i32| rt.random_below(n as u64) as i32;
    let bound = |ck: i32, side| Bound::new(table, &[Some(&ck.to_be_bytes())], side);
    let from = below(ROWS);
    let range = RowRange {
        start: bound(from, Side::Before),
        end: bound(from + below(ROWS), if below(2) == 0 { Side::Before } else { Side::After }),
    };
    let (slices, partition) = (Slices::new(vec![range]), PartitionRange::single(&key(below(PARTITIONS))));
    let columns = ColumnSelection::Some([table.column("a").unwrap().id].into());
    let reader = engine.read(&Read {
        columns: &columns,
        reversed: below(2) == 0,
        ..Read::new(table.id, &partition, &slices)
    });
    let read = async {
        let mut reader = reader?;
        for _ in 0..below(8) {
            reader.next().await?;
        }
        Ok::<(), engine::ReadError>(())
    };
    if let Err(error) = read.await {
        read_failed(engine, world, format!("glance: {error}"));
    }
}

async fn maintain(rt: &Rt, engine: &Engine, table: &Arc<Table>, world: &SharedWorld) {
    let done = match rt.random_below(4) {
        0 => {
            rt.sleep(Duration::from_millis(3500)).await;
            engine.compact(table.id).await
        }
        1 => engine.compact(table.id).await,
        _ => engine.flush(table.id).await,
    };
    if let Err(error) = done {
        world.lock().unwrap().errors.push(error.to_string());
    }
}

//! ScyllaDB's library for consumers of change data capture (`scylla-cdc`): each change comes once, in the order of its
//! partition, with the images before and after it, also when a second reader continues where the first one stopped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use scylla::client::session::Session;
use scylla::value::CqlValue;
use scylla_cdc::checkpoints::TableBackedCheckpointSaver;
use scylla_cdc::consumer::{CDCRow, Consumer, ConsumerFactory, OperationType};
use scylla_cdc::log_reader::CDCLogReaderBuilder;

use crate::{Outcome, equal};

const WRITES: i32 = 300;
const PARTITIONS: i32 = 7;
const ROWS: i32 = 5;

/// A change: its kind, clustering key and value.
type Change = (OperationType, Option<i32>, Option<i32>);
/// The changes of each partition, in order.
type Changes = BTreeMap<i32, Vec<Change>>;

/// Collects the changes of all streams.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Changes>>);

#[async_trait]
impl Consumer for Collector {
    async fn consume_cdc(&mut self, row: CDCRow<'_>) -> anyhow::Result<()> {
        let int = |name: &str| row.get_value(name).as_ref().and_then(CqlValue::as_int);
        let change = (row.operation.clone(), int("c"), int("v"));
        self.0.lock().unwrap().entry(int("k").unwrap()).or_default().push(change);
        Ok(())
    }
}

#[async_trait]
impl ConsumerFactory for Collector {
    async fn new_consumer(&self) -> Box<dyn Consumer> {
        Box::new(self.clone())
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// The rows of a partition and the changes that a log of it has.
#[derive(Default)]
struct Model {
    rows: BTreeMap<(i32, i32), i32>,
    changes: Changes,
}

impl Model {
    /// The statement of a write, which the model contains from then on.
    fn write(&mut self, n: i32) -> String {
        let (k, c) = (n % PARTITIONS, n * 3 % ROWS);
        let changes = self.changes.entry(k).or_default();
        // A deletion of a partition has no image of its rows.
        if n % 29 == 28 {
            self.rows.retain(|(at, _), _| *at != k);
            changes.push((OperationType::PartitionDelete, None, None));
            return format!("DELETE FROM t WHERE k = {k}");
        }
        if let Some(before) = self.rows.get(&(k, c)) {
            changes.push((OperationType::PreImage, Some(c), Some(*before)));
        }
        if n % 11 == 10 {
            self.rows.remove(&(k, c));
            changes.push((OperationType::RowDelete, Some(c), None));
            return format!("DELETE FROM t WHERE k = {k} AND c = {c}");
        }
        self.rows.insert((k, c), n);
        let (operation, text) = match n % 2 {
            0 => (OperationType::RowInsert, format!("INSERT INTO t (k, c, v) VALUES ({k}, {c}, {n})")),
            _ => (OperationType::RowUpdate, format!("UPDATE t SET v = {n} WHERE k = {k} AND c = {c}")),
        };
        changes.extend([operation, OperationType::PostImage].map(|operation| (operation, Some(c), Some(n))));
        text
    }
}

/// Reads the changes of a time span.
async fn read(session: &Arc<Session>, keyspace: &str, from: Duration, to: Duration, into: &Collector) -> Outcome {
    let saver = TableBackedCheckpointSaver::new(session.clone(), keyspace, "checkpoints", 600).await?;
    let (_reader, handle) = CDCLogReaderBuilder::new()
        .session(session.clone())
        .keyspace(keyspace)
        .table_name("t")
        .start_timestamp(from)
        .end_timestamp(to)
        .window_size(Duration::from_secs(20))
        .safety_interval(Duration::from_millis(200))
        .sleep_interval(Duration::from_millis(100))
        .consumer_factory(Arc::new(into.clone()))
        .should_save_progress(true)
        .pause_between_saves(Duration::from_millis(300))
        .checkpoint_saver(Arc::new(saver))
        .build()
        .await?;
    handle.await?;
    Ok(())
}

/// Writes a captured table and reads its changes.
pub(crate) async fn consume(session: Session, keyspace: &str) -> Outcome {
    let session = Arc::new(session);
    let replicas = std::env::var("TEST_NODES").map_or(Ok(1), |nodes| nodes.parse::<u32>())?.min(3);
    let run = async |text: &str| session.query_unpaged(text, &[]).await.map_err(|error| format!("{text}: {error}"));
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {replicas}}}");
    run(&format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}")).await?;
    session.use_keyspace(keyspace, false).await?;
    let capture = "cdc = {'enabled': true, 'preimage': true, 'postimage': true}";
    run(&format!("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH {capture}")).await?;
    session.await_schema_agreement().await?;
    let (mut model, collector) = (Model::default(), Collector::default());
    let mut from = now();
    for part in 0..2 {
        for n in part * WRITES / 2..(part + 1) * WRITES / 2 {
            run(&model.write(n)).await?;
        }
        // Times of windows are whole milliseconds.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let to = now();
        tokio::time::sleep(Duration::from_millis(3)).await;
        read(&session, keyspace, from, to, &collector).await?;
        from = to;
        let found = collector.0.lock().unwrap().clone();
        for (k, expected) in &model.changes {
            equal(found.get(k), Some(expected), &format!("changes of partition {k}"))?;
        }
    }
    let checkpoints = run("SELECT count(*) FROM checkpoints").await?.into_rows_result()?.single_row::<(i64,)>()?.0;
    if checkpoints < 2 {
        return Err(format!("{checkpoints} checkpoints").into());
    }
    run(&format!("DROP KEYSPACE {keyspace}")).await?;
    Ok(())
}

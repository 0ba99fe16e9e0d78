//! Backups and restorations over snapshots in memory: their states, nodes that fail or come late, and snapshots that are lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::Consistency;
use dynamo::{
    Dynamo, PartitionUpdate, SnapshotError, SnapshotFuture, SnapshotPlace, SnapshotRows, SnapshotStore,
};
use exec::backend::Coordinator as _;
use exec::{ExecLimits, Executor, NodeInfo};
use mutation::PartitionRange;
use replica::{Partitions, ReadCommand};
use rt::{Instant, Rt};
use schema::Table;
use serde_json::{Value as Json, json};

use crate::memory::{Memory, START_SECONDS, TestClock};
use crate::node::{self, on_a_node};

/// The snapshots of one node.
struct Snapshots {
    memory: Memory,
    held: RefCell<BTreeMap<SnapshotPlace, Vec<PartitionUpdate>>>,
    /// Updates that are read before the snapshot cannot be read any more, once.
    fails_behind: Cell<Option<usize>>,
}

impl SnapshotStore for Snapshots {
    fn take<'a>(&'a self, place: &'a SnapshotPlace) -> SnapshotFuture<'a, u64> {
        Box::pin(async move {
            let table = self.memory.schema().table_by_id(place.id).expect("the table").clone();
            let range = Partitions::Range(PartitionRange::all());
            let command = ReadCommand::all_of(table.clone(), range, START_SECONDS as u32);
            let page = self.memory.read(&command, Consistency::One, Instant::START).await.expect("a page");
            let rows: Vec<_> =
                page.partitions.into_iter().map(|one| one.into_update(&table, false)).collect();
            let bytes = rows.len() as u64;
            self.held.borrow_mut().insert(place.clone(), rows);
            Ok(bytes)
        })
    }

    fn remove<'a>(&'a self, place: &'a SnapshotPlace) -> SnapshotFuture<'a, ()> {
        Box::pin(async move {
            self.held.borrow_mut().remove(place);
            Ok(())
        })
    }

    fn rows<'a>(
        &'a self,
        place: &'a SnapshotPlace,
        bytes: u64,
        table: Arc<Table>,
    ) -> SnapshotFuture<'a, Box<dyn SnapshotRows>> {
        Box::pin(async move {
            let held = self.held.borrow().get(place).cloned().unwrap_or_default();
            if held.len() as u64 != bytes {
                return Err(SnapshotError::Lost("it is gone".to_owned()));
            }
            let of_table = |update: PartitionUpdate| {
                let mut fresh = PartitionUpdate::new(table.clone(), update.key.clone());
                fresh.merge(update);
                fresh
            };
            let left = held.into_iter().map(of_table).collect();
            Ok(Box::new(Rows { left, fails_behind: self.fails_behind.take() }) as Box<dyn SnapshotRows>)
        })
    }
}

struct Rows {
    left: Vec<PartitionUpdate>,
    fails_behind: Option<usize>,
}

impl SnapshotRows for Rows {
    fn next(&mut self) -> SnapshotFuture<'_, Option<PartitionUpdate>> {
        Box::pin(async move {
            if self.fails_behind == Some(0) {
                return Err(SnapshotError::Failed("the disk is busy".to_owned()));
            }
            self.fails_behind = self.fails_behind.map(|left| left - 1);
            Ok(self.left.pop())
        })
    }
}

/// A node: its API and its snapshots.
struct Node {
    rt: Rt,
    api: Dynamo<Memory>,
    snapshots: Rc<Snapshots>,
}

impl Node {
    fn new(rt: &Rt, memory: Memory) -> Self {
        let info = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let clock = Rc::new(TestClock::default());
        let snapshots = Rc::new(Snapshots {
            memory: memory.clone(),
            held: RefCell::default(),
            fails_behind: Cell::default(),
        });
        let executor = Executor::new(memory, clock, info, ExecLimits::default());
        let api = Dynamo::new(Rc::new(executor), dynamo::Isolation::Always).with_snapshots(snapshots.clone());
        Self { rt: rt.clone(), api, snapshots }
    }

    async fn ask(&self, operation: &str, body: Json) -> (u16, Json) {
        node::ask(&self.api, operation, &body).await
    }

    async fn done(&self, operation: &str, body: Json) -> Json {
        node::done(&self.api, operation, &body).await
    }

    async fn look(&self) -> u64 {
        self.api.look_at_backups(&self.rt).await.expect("records can be read")
    }

    async fn create(&self, items: usize) {
        let create = json!({
            "TableName": "music", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{ "AttributeName": "p", "AttributeType": "S" }],
            "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }],
        });
        self.done("CreateTable", create).await;
        for at in 0..items {
            let item = json!({ "p": { "S": format!("p{at}") }, "n": { "N": at.to_string() } });
            self.done("PutItem", json!({ "TableName": "music", "Item": item })).await;
        }
    }

    /// Begins a backup; its ARN.
    async fn back_up(&self) -> String {
        let answer = self.done("CreateBackup", json!({ "TableName": "music", "BackupName": "all" })).await;
        assert_eq!(answer["BackupDetails"]["BackupStatus"], "CREATING");
        answer["BackupDetails"]["BackupArn"].as_str().expect("an ARN").to_owned()
    }

    /// The status of a backup, or the name of the error.
    async fn status(&self, arn: &str) -> String {
        let (_, answer) = self.ask("DescribeBackup", json!({ "BackupArn": arn })).await;
        let status = answer["BackupDescription"]["BackupDetails"]["BackupStatus"].as_str();
        status.or(answer["__type"].as_str()).expect("either").rsplit('#').next().unwrap().to_owned()
    }

    async fn restore(&self, arn: &str) {
        self.done("RestoreTableFromBackup", json!({ "BackupArn": arn, "TargetTableName": "again" })).await;
    }

    /// The status of the restored table; empty when it is gone.
    async fn restored(&self) -> String {
        let (_, answer) = self.ask("DescribeTable", json!({ "TableName": "again" })).await;
        answer["Table"]["TableStatus"].as_str().unwrap_or_default().to_owned()
    }

    async fn count(&self, table: &str) -> Json {
        self.ask("Scan", json!({ "TableName": table })).await.1["Count"].clone()
    }
}

#[test]
fn a_restoration_that_was_interrupted_begins_again() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, Memory::new());
        assert_eq!(node.look().await, 0, "nothing was ever backed up");
        node.create(50).await;
        let arn = node.back_up().await;
        assert_eq!(node.status(&arn).await, "CREATING");
        let (_, refused) = node.ask("DeleteBackup", json!({ "BackupArn": arn })).await;
        assert!(refused["__type"].as_str().unwrap().ends_with("#BackupInUseException"), "{refused}");
        node.look().await;
        assert_eq!(node.status(&arn).await, "AVAILABLE");
        node.done("DeleteTable", json!({ "TableName": "music" })).await;

        node.restore(&arn).await;
        node.snapshots.fails_behind.set(Some(20));
        node.api.look_at_backups(&rt).await.expect_err("the snapshot cannot be read");
        assert_eq!((node.restored().await.as_str(), node.count("again").await), ("CREATING", Json::Null));
        assert_eq!(node.look().await, 1);
        assert_eq!((node.restored().await.as_str(), node.count("again").await), ("ACTIVE", json!(50)));
        assert_eq!(node.look().await, 0, "it is restored once");

        node.done("DeleteBackup", json!({ "BackupArn": arn })).await;
        assert_eq!(node.status(&arn).await, "BackupNotFoundException");
        assert_eq!(node.snapshots.held.borrow().len(), 1);
        node.look().await;
        assert!(node.snapshots.held.borrow().is_empty());
        assert_eq!(node.look().await, 0, "its record is gone");
    });
}

#[test]
fn a_table_whose_snapshot_is_lost_is_not_restored() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, Memory::new());
        node.create(5).await;
        let arn = node.back_up().await;
        node.look().await;
        node.snapshots.held.borrow_mut().clear();
        node.restore(&arn).await;
        assert_eq!(node.restored().await, "CREATING");
        node.look().await;
        assert_eq!(node.restored().await, "", "it would lack items");
        assert_eq!(node.status(&arn).await, "AVAILABLE");
    });
}

#[test]
fn every_node_has_its_part() {
    on_a_node(|rt| async move {
        let memory = Memory::with_nodes(&["a", "a"]);
        let (one, two) = (Node::new(&rt, memory.clone()), Node::new(&rt, memory.on_the_other_node()));
        one.create(30).await;
        let arn = two.back_up().await;
        one.look().await;
        assert_eq!(two.status(&arn).await, "CREATING", "the other node has no snapshot yet");
        two.look().await;
        assert_eq!(one.status(&arn).await, "AVAILABLE");
        one.restore(&arn).await;
        one.look().await;
        assert_eq!(one.restored().await, "CREATING", "the other node has restored nothing yet");
        let (_, refused) = two.ask("DeleteBackup", json!({ "BackupArn": arn })).await;
        assert!(refused["__type"].as_str().unwrap().ends_with("#BackupInUseException"), "{refused}");
        two.look().await;
        assert_eq!((two.restored().await.as_str(), one.count("again").await), ("ACTIVE", json!(30)));

        two.done("DeleteBackup", json!({ "BackupArn": arn })).await;
        one.look().await;
        assert!(one.snapshots.held.borrow().is_empty() && !two.snapshots.held.borrow().is_empty());
        two.look().await;
        assert!(two.snapshots.held.borrow().is_empty());
        assert_eq!(one.look().await + two.look().await, 0, "its record is gone");
    });
}

#[test]
fn an_index_on_demand_is_given_no_provisioned_throughput() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, Memory::new());
        let units = json!({ "ReadCapacityUnits": 2, "WriteCapacityUnits": 3 });
        let index = json!({ "IndexName": "by_a", "KeySchema": [{ "AttributeName": "a", "KeyType": "HASH" }],
                            "Projection": { "ProjectionType": "ALL" }, "ProvisionedThroughput": units });
        let attribute = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
        let table = json!({ "TableName": "books", "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }],
                            "AttributeDefinitions": [attribute("p"), attribute("a")],
                            "ProvisionedThroughput": units, "GlobalSecondaryIndexes": [index] });
        node.done("CreateTable", table).await;
        let backup = node.done("CreateBackup", json!({ "TableName": "books", "BackupName": "daily" })).await;
        let arn = backup["BackupDetails"]["BackupArn"].clone();
        node.look().await;
        let restored = |index: Json| {
            json!({
                "BackupArn": arn, "TargetTableName": "again", "BillingModeOverride": "PAY_PER_REQUEST",
                "GlobalSecondaryIndexOverride": [index]
            })
        };
        let (status, refused) = node.ask("RestoreTableFromBackup", restored(index.clone())).await;
        assert_eq!(status, 400, "{refused}");
        let text = refused["message"].as_str().expect("a text");
        assert!(text.contains("ProvisionedThroughput should not be specified for index: by_a"), "{text}");
        let mut without = index;
        without.as_object_mut().expect("an object").shift_remove("ProvisionedThroughput");
        node.done("RestoreTableFromBackup", restored(without)).await;
        assert_eq!(node.restored().await, "CREATING");
    });
}

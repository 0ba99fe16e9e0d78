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

use crate::memory::{Memory, START_SECONDS};
use crate::node::{self, on_a_node};
use crate::streams::SetClock;

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
    ahead_seconds: Rc<Cell<i64>>,
}

impl Node {
    fn new(rt: &Rt, memory: Memory) -> Self {
        let info = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let clock = Rc::new(SetClock::default());
        let ahead_seconds = clock.ahead_seconds.clone();
        let snapshots = Rc::new(Snapshots {
            memory: memory.clone(),
            held: RefCell::default(),
            fails_behind: Cell::default(),
        });
        let executor = Executor::new(memory, clock, info, ExecLimits::default());
        let api = Dynamo::new(Rc::new(executor), dynamo::Isolation::Always).with_snapshots(snapshots.clone());
        Self { rt: rt.clone(), api, snapshots, ahead_seconds }
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

    /// Deletes the table, whose recovery is enabled.
    async fn delete_recoverable(&self) {
        let enable = json!({ "TableName": "music", "PointInTimeRecoverySpecification": { "PointInTimeRecoveryEnabled": true } });
        self.done("UpdateContinuousBackups", enable).await;
        let deleted = self.done("DeleteTable", json!({ "TableName": "music" })).await;
        assert_eq!(deleted["TableDescription"]["TableStatus"], "DELETING");
    }

    /// The backups of a type.
    async fn backups(&self, kind: &str) -> Vec<Json> {
        let request = if kind.is_empty() { json!({}) } else { json!({ "BackupType": kind }) };
        self.done("ListBackups", request).await["BackupSummaries"].as_array().expect("a list").clone()
    }

    /// The status of the table that is backed up; empty when it is gone.
    async fn table_status(&self) -> String {
        let (_, answer) = self.ask("DescribeTable", json!({ "TableName": "music" })).await;
        answer["Table"]["TableStatus"].as_str().unwrap_or_default().to_owned()
    }

    /// The name of the error of a request that fails.
    async fn refused(&self, operation: &str, body: Json) -> String {
        let (status, answer) = self.ask(operation, body).await;
        assert_eq!(status, 400, "{answer}");
        answer["__type"].as_str().expect("a type").rsplit('#').next().unwrap().to_owned()
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

#[test]
fn a_deleted_table_with_recovery_leaves_a_backup() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, Memory::new());
        node.create(5).await;
        let own = node.back_up().await;
        node.look().await;
        node.delete_recoverable().await;
        assert_eq!(node.table_status().await, "DELETING");
        let music = json!({ "TableName": "music" });
        for (operation, error) in [
            ("Scan", "ResourceNotFoundException"),
            ("DeleteTable", "ResourceInUseException"),
            ("DescribeTimeToLive", ""),
        ] {
            match error {
                "" => _ = node.done(operation, music.clone()).await,
                error => assert_eq!(node.refused(operation, music.clone()).await, error, "{operation}"),
            }
        }
        let again = json!({ "TableName": "music", "BackupName": "all" });
        assert_eq!(node.refused("CreateBackup", again).await, "TableInUseException");
        for _ in 0..2 {
            assert_ne!(node.look().await, 0);
        }
        assert_eq!(node.table_status().await, "");
        assert_eq!(node.look().await, 0, "there is nothing more to do");

        let system = node.backups("SYSTEM").await;
        let [backup] = &system[..] else { panic!("{system:?}") };
        assert_eq!(backup["BackupName"], "music$DeletedTableBackup");
        assert_eq!((&backup["BackupType"], &backup["BackupStatus"]), (&json!("SYSTEM"), &json!("AVAILABLE")));
        let [created, expires] = ["BackupCreationDateTime", "BackupExpiryDateTime"]
            .map(|name| backup[name].as_f64().expect("a time"));
        assert!((expires - created - 35.0 * 86_400.0).abs() < 0.01, "{created} {expires}");
        for (kind, count) in [("", 1), ("USER", 1), ("ALL", 2), ("AWS_BACKUP", 0)] {
            assert_eq!(node.backups(kind).await.len(), count, "{kind:?}");
        }
        assert!(node.backups("USER").await[0].get("BackupExpiryDateTime").is_none());

        node.ahead_seconds.set(35 * 86_400 - 60);
        node.restore(backup["BackupArn"].as_str().expect("an ARN")).await;
        node.ahead_seconds.set(35 * 86_400 + 60);
        node.look().await;
        assert_eq!((node.restored().await.as_str(), node.count("again").await), ("ACTIVE", json!(5)));
        while node.look().await > 0 {}
        assert_eq!(node.backups("SYSTEM").await.len(), 0, "its days are over");
        assert_eq!(node.status(&own).await, "AVAILABLE", "others stay");
        assert_eq!(node.snapshots.held.borrow().len(), 1);
    });
}

#[test]
fn a_table_is_not_deleted_before_its_last_backup_is_made() {
    on_a_node(|rt| async move {
        let memory = Memory::with_nodes(&["a", "a"]);
        let (one, two) = (Node::new(&rt, memory.clone()), Node::new(&rt, memory.on_the_other_node()));
        one.create(30).await;
        one.delete_recoverable().await;
        for _ in 0..3 {
            one.look().await;
            assert_eq!(two.table_status().await, "DELETING", "the other node has no snapshot yet");
        }
        two.look().await;
        // Somebody deletes the backup before the table is gone: another is made.
        let arn = one.backups("SYSTEM").await[0]["BackupArn"].clone();
        one.done("DeleteBackup", json!({ "BackupArn": arn })).await;
        for _ in 0..4 {
            one.look().await;
            two.look().await;
        }
        assert_eq!(two.table_status().await, "");
        let system = one.backups("SYSTEM").await;
        assert_eq!(system.len(), 1, "{system:?}");
        assert_ne!(system[0]["BackupArn"], arn);
        one.restore(system[0]["BackupArn"].as_str().expect("an ARN")).await;
        one.look().await;
        two.look().await;
        assert_eq!((two.restored().await.as_str(), one.count("again").await), ("ACTIVE", json!(30)));
    });
}

/// A table with two global indexes and a local one, provisioned and with a class.
pub fn indexed(name: &str) -> Json {
    let attribute = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
    json!({
        "TableName": name, "TableClass": "STANDARD_INFREQUENT_ACCESS", "ProvisionedThroughput": units(2),
        "KeySchema": [
            { "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "c", "KeyType": "RANGE" }
        ],
        "AttributeDefinitions": [attribute("p"), attribute("c"), attribute("a"), attribute("b")],
        "GlobalSecondaryIndexes": [global("by_a", "a", 3), global("by_b", "b", 4)],
        "LocalSecondaryIndexes": [{
            "IndexName": "local",
            "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "b", "KeyType": "RANGE" }],
            "Projection": { "ProjectionType": "INCLUDE", "NonKeyAttributes": ["x", "y"] },
        }],
    })
}

fn units(units: u32) -> Json {
    json!({ "ReadCapacityUnits": units, "WriteCapacityUnits": units })
}

/// A global index of this attribute; on demand where it has no units.
fn global(name: &str, attribute: &str, of: u32) -> Json {
    let mut index = json!({ "IndexName": name, "KeySchema": [{ "AttributeName": attribute, "KeyType": "HASH" }],
                            "Projection": { "ProjectionType": "ALL" } });
    if of > 0 {
        index["ProvisionedThroughput"] = units(of);
    }
    index
}

/// Overrides of a restoration of [`indexed`], and the members that the new table shows then.
pub fn overrides() -> Vec<(Json, Vec<(&'static str, Json)>)> {
    let local = json!([{
        "IndexName": "local",
        "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "b", "KeyType": "RANGE" }],
        "Projection": { "ProjectionType": "INCLUDE", "NonKeyAttributes": ["y", "x"] },
    }]);
    vec![
        (
            json!({}),
            vec![
                ("/ProvisionedThroughput/ReadCapacityUnits", json!(2)),
                ("/GlobalSecondaryIndexes/1/ProvisionedThroughput/WriteCapacityUnits", json!(4)),
                ("/LocalSecondaryIndexes/0/IndexName", json!("local")),
                ("/TableClassSummary/TableClass", json!("STANDARD_INFREQUENT_ACCESS")),
            ],
        ),
        (
            json!({
                "ProvisionedThroughputOverride": units(7), "GlobalSecondaryIndexOverride": [global("by_b", "b", 9)],
                "LocalSecondaryIndexOverride": [], "SSESpecificationOverride": { "Enabled": false },
            }),
            vec![
                ("/ProvisionedThroughput/ReadCapacityUnits", json!(7)),
                ("/GlobalSecondaryIndexes/0/IndexName", json!("by_b")),
                ("/GlobalSecondaryIndexes/0/ProvisionedThroughput/ReadCapacityUnits", json!(9)),
                ("/GlobalSecondaryIndexes/1", Json::Null),
                ("/LocalSecondaryIndexes", Json::Null),
                ("/AttributeDefinitions/3", Json::Null),
            ],
        ),
        (
            json!({
                "BillingModeOverride": "PAY_PER_REQUEST", "OnDemandThroughputOverride": { "MaxReadRequestUnits": 11 },
                "GlobalSecondaryIndexOverride": [], "LocalSecondaryIndexOverride": local,
            }),
            vec![
                ("/BillingModeSummary/BillingMode", json!("PAY_PER_REQUEST")),
                ("/OnDemandThroughput/MaxReadRequestUnits", json!(11)),
                ("/GlobalSecondaryIndexes", Json::Null),
                ("/LocalSecondaryIndexes/0/Projection/NonKeyAttributes/1", json!("y")),
            ],
        ),
    ]
}

/// Overrides that are refused, and a part of the error's text.
pub fn wrong_overrides() -> Vec<(Json, &'static str)> {
    let mut keys_only = global("by_a", "a", 3);
    keys_only["Projection"] = json!({ "ProjectionType": "KEYS_ONLY" });
    let mut nameless = global("by_a", "a", 3);
    nameless["IndexName"] = json!("i!");
    vec![
        (json!({ "BillingModeOverride": "FREE" }), "billingModeOverride"),
        (json!({ "GlobalSecondaryIndexOverride": [keys_only] }), "no index by_a with this definition"),
        (
            json!({ "GlobalSecondaryIndexOverride": [global("by_c", "a", 3)] }),
            "no index by_c with this definition",
        ),
        (
            json!({ "GlobalSecondaryIndexOverride": [global("by_a", "b", 3)] }),
            "no index by_a with this definition",
        ),
        (
            json!({ "GlobalSecondaryIndexOverride": [nameless] }),
            "2 validation errors detected: Value 'i!' at 'globalSecondaryIndexOverride.1.member.indexName'",
        ),
        (
            json!({ "LocalSecondaryIndexOverride": [global("by_a", "a", 0)] }),
            "no index by_a with this definition",
        ),
        (json!({ "OnDemandThroughputOverride": { "MaxReadRequestUnits": 1 } }), "PROVISIONED"),
        (
            json!({ "BillingModeOverride": "PAY_PER_REQUEST", "ProvisionedThroughputOverride": units(1) }),
            "PAY_PER_REQUEST",
        ),
        (
            json!({ "ProvisionedThroughputOverride": units(0) }),
            "provisionedThroughputOverride.writeCapacityUnits",
        ),
        (json!({ "SSESpecificationOverride": { "Enabled": true } }), "SSESpecificationOverride: Torc"),
    ]
}

/// A request with these members, too.
pub fn with(mut request: Json, more: &Json) -> Json {
    request.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    request
}

#[test]
fn overrides_are_those_of_the_restored_table() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, Memory::new());
        node.done("CreateTable", indexed("books")).await;
        let backup = node.done("CreateBackup", json!({ "TableName": "books", "BackupName": "daily" })).await;
        let plain = |target: &str| json!({ "BackupArn": backup["BackupDetails"]["BackupArn"], "TargetTableName": target });
        node.look().await;
        for (at, (more, expected)) in overrides().into_iter().enumerate() {
            let target = format!("target{at}");
            node.done("RestoreTableFromBackup", with(plain(&target), &more)).await;
            let shown = node.done("DescribeTable", json!({ "TableName": target })).await;
            for (pointer, value) in expected {
                let found = shown["Table"].pointer(pointer).unwrap_or(&Json::Null);
                assert_eq!(*found, value, "{more}: {pointer}");
            }
        }
        for (more, text) in wrong_overrides() {
            let (status, refused) = node.ask("RestoreTableFromBackup", with(plain("wrong"), &more)).await;
            let found = refused["message"].as_str().unwrap_or_default();
            assert!(status == 400 && found.contains(text), "{more}: {refused}");
        }
    });
}

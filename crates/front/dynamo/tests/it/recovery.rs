//! Recovery to a point in time: a random history restored at every time, writers and failures meanwhile, periods, and refusals.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dynamo::{Dynamo, Isolation};
use exec::backend::{Clock, Coordinator as _};
use exec::{ExecLimits, Executor, NodeInfo};
use mutation::{DecoratedKey, DeletionTime, PartitionUpdate};
use rt::{Group, Instant, Rt};
use serde_json::{Value as Json, json};

use crate::backups::{indexed, overrides, with, wrong_overrides};
use crate::memory::{Memory, START_SECONDS};
use crate::node::{self, on_a_node, on_a_node_by};

/// A clock that goes with the node's, a microsecond later at every look.
struct NodeClock {
    rt: Rt,
    ticks: Cell<i64>,
}

impl Clock for NodeClock {
    fn wall_micros(&self) -> i64 {
        self.ticks.set(self.ticks.get() + 1);
        let since = self.rt.now().duration_since(Instant::START);
        START_SECONDS * 1_000_000 + i64::try_from(since.as_micros()).unwrap() + self.ticks.get()
    }

    fn now(&self) -> Instant {
        self.rt.now()
    }

    fn random(&self) -> [u8; 16] {
        self.ticks.set(self.ticks.get() + 1);
        (self.ticks.get() as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes()
    }
}

#[derive(Clone)]
struct Node {
    rt: Rt,
    api: Dynamo<Memory>,
    memory: Memory,
}

impl Node {
    fn new(rt: &Rt, memory: &Memory, isolation: Isolation) -> Self {
        let info = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let clock = Rc::new(NodeClock { rt: rt.clone(), ticks: Cell::default() });
        let executor = Executor::new(memory.clone(), clock, info, ExecLimits::default());
        let api = Dynamo::new(Rc::new(executor), isolation).with_streams_window(Duration::ZERO);
        Self { rt: rt.clone(), api, memory: memory.clone() }
    }

    async fn ask(&self, operation: &str, body: Json) -> (u16, Json) {
        node::ask(&self.api, operation, &body).await
    }

    async fn done(&self, operation: &str, body: Json) -> Json {
        node::done(&self.api, operation, &body).await
    }

    /// The name of the error of a request that fails, and its text.
    async fn refused(&self, operation: &str, body: Json) -> (String, String) {
        let (status, answer) = self.ask(operation, body).await;
        assert_eq!(status, 400, "{answer}");
        let text = |name: &str| answer[name].as_str().expect("a text").to_owned();
        (text("__type").rsplit('#').next().unwrap().to_owned(), text("message"))
    }

    async fn create(&self, name: &str) {
        let attribute = |name: &str, kind: &str| json!({ "AttributeName": name, "AttributeType": kind });
        let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
        let create = json!({
            "TableName": name, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [attribute("p", "S"), attribute("c", "N")],
            "KeySchema": [key("p", "HASH"), key("c", "RANGE")],
        });
        self.done("CreateTable", create).await;
    }

    async fn recovery(&self, table: &str, specification: Json) -> Json {
        let body = json!({ "TableName": table, "PointInTimeRecoverySpecification": specification });
        let answer = self.done("UpdateContinuousBackups", body).await;
        answer["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"].clone()
    }

    /// A table whose recovery is enabled, at the second of the first conditional write.
    async fn recoverable(&self, name: &str) {
        self.create(name).await;
        let shown = self.recovery(name, json!({ "PointInTimeRecoveryEnabled": true })).await;
        assert_eq!(shown["EarliestRestorableDateTime"], START_SECONDS + 1, "{shown}");
        self.rt.sleep(Duration::from_secs(60)).await;
    }

    async fn begin(&self, source: &str, target: &str, micros: i64) -> Json {
        let body = json!({
            "SourceTableName": source, "TargetTableName": target, "RestoreDateTime": micros as f64 / 1e6
        });
        self.done("RestoreTableToPointInTime", body).await
    }

    /// Carries out this node's parts; how many there were.
    async fn look(&self) -> u64 {
        self.api.look_at_backups(&self.rt).await.expect("parts are carried out")
    }

    /// The status of a table; empty when it is gone.
    async fn status(&self, table: &str) -> String {
        let (_, answer) = self.ask("DescribeTable", json!({ "TableName": table })).await;
        answer["Table"]["TableStatus"].as_str().unwrap_or_default().to_owned()
    }

    /// The items of a table by their keys.
    async fn items(&self, table: &str) -> Model {
        let answer = self.done("Scan", json!({ "TableName": table, "ConsistentRead": true })).await;
        assert!(answer.get("LastEvaluatedKey").is_none(), "one page");
        answer["Items"].as_array().expect("items").iter().map(|item| (key_of(item), sorted(item))).collect()
    }

    /// Restores a table at a time; its items.
    async fn restored(&self, source: &str, target: &str, micros: i64) -> Model {
        self.begin(source, target, micros).await;
        self.look().await;
        assert_eq!(self.status(target).await, "ACTIVE");
        self.items(target).await
    }
}

/// Items by their keys.
type Model = BTreeMap<String, Json>;

fn key_of(item: &Json) -> String {
    format!("{} {}", item["p"]["S"].as_str().unwrap(), item["c"]["N"].as_str().unwrap())
}

fn sorted(item: &Json) -> Json {
    let mut item = item.clone();
    item.sort_all_objects();
    item
}

/// Numbers by a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn key(&mut self) -> Json {
        json!({ "p": { "S": format!("p{}", self.below(4)) }, "c": { "N": self.below(4).to_string() } })
    }

    fn item(&mut self) -> Json {
        let mut item = self.key();
        for at in 0..self.below(4) {
            let value = match self.below(4) {
                0 => json!({ "N": self.below(100).to_string() }),
                1 => json!({ "SS": [self.below(9).to_string()] }),
                2 => json!({ "L": [{ "S": "x" }, { "NULL": true }] }),
                _ => json!({ "S": "y".repeat(self.below(30) as usize) }),
            };
            item[format!("a{at}")] = value;
        }
        item
    }
}

/// One write of some kind.
async fn write(node: &Node, table: &str, random: &mut Random, kinds: u64) {
    let (item, key) = (random.item(), random.key());
    let update = json!({ "TableName": table, "Key": key, "UpdateExpression": format!("SET b{} = :v REMOVE a0", random.below(3)),
                         "ExpressionAttributeValues": { ":v": { "N": random.below(50).to_string() } } });
    match random.below(kinds) {
        0 => node.done("PutItem", json!({ "TableName": table, "Item": item })).await,
        1 => node.done("DeleteItem", json!({ "TableName": table, "Key": key })).await,
        2 => node.done("UpdateItem", update).await,
        3 => {
            let gone = json!({ "DeleteRequest": { "Key": { "p": { "S": "p0" }, "c": { "N": "9" } } } });
            let put = json!({ "PutRequest": { "Item": item } });
            node.done("BatchWriteItem", json!({ "RequestItems": { table: [gone, put] } })).await
        }
        4 => {
            let mut put = item;
            put["p"] = json!({ "S": "t" });
            let parts = json!([{ "Update": update }, { "Put": { "TableName": table, "Item": put } }]);
            node.done("TransactWriteItems", json!({ "TransactItems": parts })).await
        }
        5 => {
            // An end that is over, and the deletion by it.
            let mut put = item;
            put["end"] = json!({ "N": (START_SECONDS - 5).to_string() });
            node.done("PutItem", json!({ "TableName": table, "Item": put })).await;
            node.api.expire().await.expect("it is deleted");
            Json::Null
        }
        _ => {
            let mut adds = update;
            adds["UpdateExpression"] = json!("ADD n :v");
            node.done("UpdateItem", adds).await
        }
    };
}

#[test]
fn a_table_is_restored_as_it_was_at_any_time() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, &Memory::new(), Isolation::Always);
        node.recoverable("music").await;
        let ends = json!({ "Enabled": true, "AttributeName": "end" });
        node.done("UpdateTimeToLive", json!({ "TableName": "music", "TimeToLiveSpecification": ends })).await;
        let mut random = Random(7);
        let mut history = vec![(node.memory.behind_ballots(), Model::new())];
        for _ in 0..250 {
            write(&node, "music", &mut random, 7).await;
            history.push((node.memory.behind_ballots(), node.items("music").await));
        }
        let changes = history.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        assert!(changes > 150, "{changes} writes have changed something");
        // Its timestamps are those of the clock; conditional writes of the test have earlier ones than the restored items.
        let later = Node::new(&rt, &node.memory, Isolation::OnlyRmw);
        for (at, (micros, items)) in history.iter().enumerate().step_by(9) {
            let target = format!("then{at}");
            assert_eq!(node.restored("music", &target, *micros).await, *items, "after write {at}");
            // A restored table can be written as any other.
            let put = json!({ "TableName": target, "Item": { "p": { "S": "p1" }, "c": { "N": "1" } } });
            later.done("PutItem", put).await;
            assert!(node.items(&target).await.contains_key("p1 1"));
        }
        assert_eq!(node.look().await, 0, "each is restored once");
    });
}

#[test]
fn plain_writes_are_restored_too() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, &Memory::new(), Isolation::OnlyRmw);
        node.recoverable("plain").await;
        let (mut random, mut history) = (Random(11), Vec::new());
        let clock = NodeClock { rt: rt.clone(), ticks: Cell::default() };
        for _ in 0..120 {
            rt.sleep(Duration::from_millis(70)).await;
            history.push((clock.wall_micros() - 100, node.items("plain").await));
            write(&node, "plain", &mut random, 4).await;
        }
        rt.sleep(Duration::from_secs(5)).await;
        for (at, (micros, items)) in history.iter().enumerate().step_by(7) {
            assert_eq!(
                node.restored("plain", &format!("then{at}"), *micros).await,
                *items,
                "before write {at}"
            );
        }
    });
}

#[test]
fn writers_meanwhile_change_nothing() {
    for seed in 1..6 {
        on_a_node_by(seed, |rt| async move {
            let node = Node::new(&rt, &Memory::new(), Isolation::Always);
            node.recoverable("busy").await;
            let mut random = Random(3);
            // More than a page of the copy, so that writes come between its pages.
            for at in 0..230 {
                let item = json!({ "p": { "S": format!("q{at}") }, "c": { "N": "1" }, "v": { "N": at.to_string() } });
                node.done("PutItem", json!({ "TableName": "busy", "Item": item })).await;
            }
            for _ in 0..20 {
                write(&node, "busy", &mut random, 5).await;
            }
            let (micros, items) = (node.memory.behind_ballots(), node.items("busy").await);
            node.begin("busy", "quiet", micros).await;
            node.memory.slow_reads.set(true);
            let (other, over) = (node.clone(), Rc::new(Cell::new(false)));
            let is_over = over.clone();
            let writer = rt.spawn(Group::Maintenance, async move {
                let mut count = 0;
                while !is_over.get() {
                    write(&other, "busy", &mut random, 5).await;
                    let key = json!({ "p": { "S": format!("q{}", random.below(230)) }, "c": { "N": "1" } });
                    other.done("DeleteItem", json!({ "TableName": "busy", "Key": key })).await;
                    // Not so many that the restoration ends late: the copy takes a moment, then it waits for seconds.
                    let pause =
                        if count < 100 { Duration::from_micros(10) } else { Duration::from_millis(50) };
                    other.rt.sleep(pause).await;
                    count += 1;
                }
                count
            });
            node.look().await;
            over.set(true);
            assert!(writer.await > 100, "there were writes meanwhile");
            assert_eq!(node.status("quiet").await, "ACTIVE");
            assert_eq!(node.items("quiet").await, items);
            assert_ne!(node.items("busy").await, items);
        });
    }
}

/// A table of some items that were all changed later, and its items before.
async fn changed(node: &Node) -> (i64, Model) {
    node.recoverable("music").await;
    let mut random = Random(5);
    for _ in 0..60 {
        write(node, "music", &mut random, 4).await;
    }
    let then = (node.memory.behind_ballots(), node.items("music").await);
    for _ in 0..60 {
        write(node, "music", &mut random, 4).await;
    }
    assert_ne!(node.items("music").await, then.1);
    then
}

#[test]
fn a_restoration_that_was_interrupted_begins_again() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, &Memory::new(), Isolation::Always);
        let (micros, items) = changed(&node).await;
        node.begin("music", "again", micros).await;
        // It has copied the items and waits for the log when its process ends.
        let killed = rt.timeout(Duration::from_secs(2), node.look()).await;
        assert!(killed.is_err(), "it waits for five seconds");
        assert_eq!(node.status("again").await, "CREATING");
        let (status, _) = node.ask("Scan", json!({ "TableName": "again" })).await;
        assert_eq!(status, 400, "nobody sees the half of it");
        write(&node, "music", &mut Random(9), 4).await;
        let next = Node::new(&rt, &node.memory, Isolation::Always);
        assert_eq!(next.look().await, 1);
        assert_eq!((next.status("again").await.as_str(), next.items("again").await), ("ACTIVE", items));
    });
}

#[test]
fn every_node_has_its_parts_and_those_of_nodes_that_are_down() {
    on_a_node(|rt| async move {
        let memory = Memory::with_nodes(&["a", "a"]);
        let one = Node::new(&rt, &memory, Isolation::Always);
        let two = Node::new(&rt, &memory.on_the_other_node(), Isolation::Always);
        let (micros, items) = changed(&one).await;
        one.begin("music", "again", micros).await;
        assert_eq!((one.look().await, one.status("again").await.as_str()), (1, "CREATING"));
        assert_eq!(one.look().await, 0, "the other part is the other node's");
        assert_eq!((two.look().await, two.status("again").await.as_str()), (1, "ACTIVE"));
        assert_eq!(one.items("again").await, items);

        one.begin("music", "third", micros).await;
        assert_eq!(two.look().await, 1);
        let alone = Node::new(&rt, &memory.alone(), Isolation::Always);
        one.begin("music", "alone", micros).await;
        assert_eq!(alone.look().await, 1 + 2, "and both of the second");
        for table in ["third", "alone"] {
            assert_eq!(alone.items(table).await, items, "{table}");
        }
    });
}

#[test]
fn a_restoration_that_would_lack_items_removes_its_table() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, &Memory::new(), Isolation::Always);
        let (micros, _) = changed(&node).await;
        let schema = node.memory.schema();
        let table = schema.table("alternator_music", "music").expect("the table");
        let mut deletion = PartitionUpdate::new(table.clone(), DecoratedKey::new("p1".into()));
        let at = node.memory.behind_ballots();
        deletion.deletion = DeletionTime::new(at, START_SECONDS as u32);
        let options = coordinator::WriteOptions {
            consistency: coordinator::Consistency::One,
            kind: coordinator::WriteKind::Simple,
            deadline: rt.now(),
        };
        node.memory.write(vec![deletion], options).await.expect("CQL may do that");
        node.begin("music", "before", micros).await;
        node.look().await;
        assert_eq!(node.status("before").await, "", "nobody knows which items the partition had");
        let now = node.items("music").await;
        assert_eq!(node.restored("music", "after", at + 1).await, now);

        // Its source goes, though not through the API.
        node.begin("music", "orphan", micros).await;
        let refused = node.refused("DeleteTable", json!({ "TableName": "music" })).await;
        assert!(refused.0 == "ResourceInUseException" && refused.1.contains("orphan"), "{refused:?}");
        let off = json!({ "TableName": "music", "PointInTimeRecoverySpecification": { "PointInTimeRecoveryEnabled": false } });
        let refused = node.refused("UpdateContinuousBackups", off.clone()).await;
        assert_eq!(refused.0, "ContinuousBackupsUnavailableException");
        let edits = vec![cluster::SchemaEdit::DropKeyspace("alternator_music".to_owned())];
        node.memory.change_schema(node.memory.schema().version(), edits).await.expect("it is dropped");
        node.look().await;
        assert_eq!(node.status("orphan").await, "");
    });
}

#[test]
fn nobody_acts_and_the_name_is_free_again() {
    on_a_node(|rt| async move {
        let memory = Memory::with_nodes(&["a", "a"]);
        let one = Node::new(&rt, &memory, Isolation::Always);
        let (micros, _) = changed(&one).await;
        one.begin("music", "stuck", micros).await;
        one.look().await;
        rt.sleep(Duration::from_secs(5 * 3600)).await;
        one.look().await;
        assert_eq!(one.status("stuck").await, "CREATING");
        rt.sleep(Duration::from_secs(2 * 3600)).await;
        one.look().await;
        assert_eq!(one.status("stuck").await, "", "the other node has not done its part in six hours");
    });
}

#[test]
fn the_log_is_shared_with_the_stream() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, &Memory::new(), Isolation::Always);
        node.create("shared").await;
        let options =
            || node.memory.schema().table("alternator_shared", "shared").expect("a table").options.cdc;
        let on = |days: i64| json!({ "PointInTimeRecoveryEnabled": true, "RecoveryPeriodInDays": days });
        let off = json!({ "PointInTimeRecoveryEnabled": false });
        let stream = |enabled: bool| {
            let specification = match enabled {
                true => json!({ "StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES" }),
                false => json!({ "StreamEnabled": false }),
            };
            node.done("UpdateTable", json!({ "TableName": "shared", "StreamSpecification": specification }))
        };
        assert!(!options().enabled);
        let hours = || (options().enabled, options().ttl / 3600);
        stream(true).await;
        assert_eq!(hours(), (true, 25));
        let shown = node.recovery("shared", on(3)).await;
        assert_eq!(
            (&shown["PointInTimeRecoveryStatus"], &shown["RecoveryPeriodInDays"]),
            (&json!("ENABLED"), &json!(3))
        );
        assert_eq!(hours(), (true, 4 * 24));
        stream(false).await;
        assert_eq!(hours(), (true, 4 * 24), "for recovery");
        stream(true).await;
        node.recovery("shared", off.clone()).await;
        assert_eq!(hours(), (true, 25), "for the stream");
        stream(false).await;
        assert!(!options().enabled);
        node.recovery("shared", json!({ "PointInTimeRecoveryEnabled": true })).await;
        assert_eq!(hours(), (true, 36 * 24));
        let shown = node.recovery("shared", off).await;
        assert_eq!(shown, json!({ "PointInTimeRecoveryStatus": "DISABLED" }));
        assert!(!options().enabled);
    });
}

#[test]
fn times_that_cannot_be_restored_are_refused() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, &Memory::new(), Isolation::Always);
        node.create("music").await;
        let at = |seconds: i64| json!({ "SourceTableName": "music", "TargetTableName": "again", "RestoreDateTime": seconds });
        let name = |refused: (String, String)| refused.0;
        let unavailable = "PointInTimeRecoveryUnavailableException";
        assert_eq!(name(node.refused("RestoreTableToPointInTime", at(START_SECONDS)).await), unavailable);
        node.recovery("music", json!({ "PointInTimeRecoveryEnabled": true, "RecoveryPeriodInDays": 1 }))
            .await;
        let early = node.refused("RestoreTableToPointInTime", at(START_SECONDS)).await;
        assert!(early.0 == "InvalidRestoreTimeException" && early.1.contains("just now"), "{early:?}");
        rt.sleep(Duration::from_secs(3 * 24 * 3600)).await;
        let day = 24 * 3600;
        for seconds in [START_SECONDS + 2 * day - 60, START_SECONDS + 3 * day + 3600, 0] {
            let refused = node.refused("RestoreTableToPointInTime", at(seconds)).await;
            assert_eq!(name(refused), "InvalidRestoreTimeException", "{seconds}");
        }
        let described = node.done("DescribeContinuousBackups", json!({ "TableName": "music" })).await;
        let shown = &described["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"];
        let [earliest, latest] = ["EarliestRestorableDateTime", "LatestRestorableDateTime"]
            .map(|name| shown[name].as_i64().unwrap());
        assert!((0..5).contains(&(earliest - START_SECONDS - 2 * day)), "{earliest}");
        assert!((0..5).contains(&(latest - START_SECONDS - 3 * day)), "{latest}");
        for seconds in [earliest, latest] {
            node.done("RestoreTableToPointInTime", at(seconds)).await;
            node.look().await;
            assert_eq!(node.status("again").await, "ACTIVE");
            let taken = node.refused("RestoreTableToPointInTime", at(seconds)).await;
            assert_eq!(name(taken), "TableAlreadyExistsException");
            node.done("DeleteTable", json!({ "TableName": "again" })).await;
        }
        let latest = json!({ "SourceTableArn": "arn:aws:dynamodb:us-east-1:000000000000:table/music",
                             "TargetTableName": "again", "UseLatestRestorableTime": true });
        let begun = node.done("RestoreTableToPointInTime", latest).await;
        let summary = &begun["TableDescription"]["RestoreSummary"];
        assert_eq!((&summary["RestoreInProgress"], summary.get("SourceBackupArn")), (&json!(true), None));
        let from_half = json!({ "SourceTableName": "again", "TargetTableName": "third", "UseLatestRestorableTime": true });
        assert_eq!(name(node.refused("RestoreTableToPointInTime", from_half).await), "TableInUseException");
    });
}

// ---- exports

/// A node with a directory of exports that has the bucket `b`.
async fn exporter(rt: &Rt, isolation: Isolation) -> Node {
    rt.disk().create_dir_all("/exports/b").await.unwrap();
    let mut node = Node::new(rt, &Memory::new(), isolation);
    node.api = node.api.with_export_directory(rt, "/exports".into(), None);
    node
}

/// The lines of the data files of an export that has ended well.
async fn export(node: &Node, request: Json) -> (Json, Vec<String>) {
    let begun = node.done("ExportTableToPointInTime", request).await;
    let arn = begun["ExportDescription"]["ExportArn"].clone();
    let description = loop {
        // A restoration for it is carried out as the node does, now and then.
        node.look().await;
        let answer =
            node.done("DescribeExport", json!({ "ExportArn": arn })).await["ExportDescription"].clone();
        if answer["ExportStatus"] != "IN_PROGRESS" {
            break answer;
        }
        node.rt.sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(description["ExportStatus"], "COMPLETED", "{description}");
    let read = async |key: &str| {
        let path = format!("/exports/b/{key}");
        node.rt.disk().read_to_end(&path, 1 << 26).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let summary = read(description["ExportManifest"].as_str().unwrap()).await;
    let summary: Json = serde_json::from_slice(&summary).unwrap();
    let files = read(summary["manifestFilesS3Key"].as_str().unwrap()).await;
    let mut lines = Vec::new();
    for file in String::from_utf8(files).unwrap().lines() {
        let file: Json = serde_json::from_str(file).unwrap();
        let packed = read(file["dataFileS3Key"].as_str().unwrap()).await;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut text).unwrap();
        assert_eq!(file["itemCount"].as_u64().unwrap() as usize, text.lines().count());
        lines.extend(text.lines().map(str::to_owned));
    }
    assert_eq!(summary["itemCount"].as_u64().unwrap() as usize, lines.len());
    (summary, lines)
}

fn export_of(table: &str, more: &Json) -> Json {
    let mut request = json!({ "TableArn": format!("arn:aws:dynamodb:us-east-1:000000000000:table/{table}"), "S3Bucket": "b" });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

#[test]
fn exports_have_the_changes_of_a_time_and_the_items_of_a_moment() {
    on_a_node(|rt| async move {
        let node = exporter(&rt, Isolation::OnlyRmw).await;
        node.recoverable("plain").await;
        let mut random = Random(23);
        let mut moments = Vec::new();
        for _ in 0..4 {
            for _ in 0..40 {
                rt.sleep(Duration::from_secs(20)).await;
                write(&node, "plain", &mut random, 4).await;
            }
            rt.sleep(Duration::from_secs(150)).await;
            let now = START_SECONDS + rt.now().duration_since(Instant::START).as_secs() as i64;
            moments.push((now, node.items("plain").await));
            rt.sleep(Duration::from_secs(2)).await;
        }
        let image = |record: &Json, name: &str| record.get(name).map(sorted);
        for pair in moments.windows(2) {
            let [(from, before), (to, after)] = pair else { unreachable!() };
            for view in ["NEW_AND_OLD_IMAGES", "NEW_IMAGE"] {
                let times = json!({ "ExportFromTime": from, "ExportToTime": to, "ExportViewType": view });
                let more =
                    json!({ "ExportType": "INCREMENTAL_EXPORT", "IncrementalExportSpecification": times });
                let (summary, lines) = export(&node, export_of("plain", &more)).await;
                assert_eq!(
                    (&summary["exportType"], &summary["outputView"]),
                    (&json!("INCREMENTAL_EXPORT"), &json!(view))
                );
                let mut changed = Vec::new();
                for line in &lines {
                    let record: Json = serde_json::from_str(line).unwrap();
                    let key = key_of(&record["Keys"]);
                    assert_eq!(image(&record, "NewImage"), after.get(&key).cloned(), "{line}");
                    let old = before.get(&key).filter(|_| view != "NEW_IMAGE");
                    assert_eq!(image(&record, "OldImage"), old.cloned(), "{line}");
                    let micros: i64 =
                        record["Metadata"]["WriteTimestampMicros"]["N"].as_str().unwrap().parse().unwrap();
                    assert!((from * 1_000_000..to * 1_000_000).contains(&micros), "{line}");
                    changed.push(key);
                }
                let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                for key in keys.into_iter().filter(|key| before.get(*key) != after.get(*key)) {
                    assert!(changed.contains(key), "{key}");
                }
                changed.sort();
                assert!(changed.len() > 5 && changed.windows(2).all(|pair| pair[0] != pair[1]), "each once");
                let mut ion = more.clone();
                ion["ExportFormat"] = json!("ION");
                let (_, in_ion) = export(&node, export_of("plain", &ion)).await;
                assert!(
                    in_ion.len() == lines.len()
                        && in_ion.iter().all(|line| line.starts_with("$ion_1_0 {Record:{"))
                );
            }
        }
        for (at, items) in &moments {
            let (summary, lines) = export(&node, export_of("plain", &json!({ "ExportTime": at }))).await;
            assert_eq!(summary["exportType"], "FULL_EXPORT");
            let of = |line: &String| serde_json::from_str::<Json>(line).unwrap()["Item"].clone();
            let found: Model = lines.iter().map(of).map(|item| (key_of(&item), sorted(&item))).collect();
            assert_eq!((found.len(), &found), (lines.len(), items));
        }
        let tables = node.done("ListTables", json!({})).await;
        assert_eq!(tables["TableNames"], json!(["plain"]), "what was restored for an export is gone");
    });
}

#[test]
fn exports_of_other_times_are_refused() {
    on_a_node(|rt| async move {
        let node = exporter(&rt, Isolation::Always).await;
        node.create("music").await;
        let specified = |from: i64, to: i64| {
            let times = json!({ "ExportFromTime": START_SECONDS + from, "ExportToTime": START_SECONDS + to });
            json!({ "ExportType": "INCREMENTAL_EXPORT", "IncrementalExportSpecification": times })
        };
        let refused =
            async |more: Json| node.refused("ExportTableToPointInTime", export_of("music", &more)).await.0;
        let unavailable = "PointInTimeRecoveryUnavailableException";
        assert_eq!(refused(specified(10, 2000)).await, unavailable);
        assert_eq!(refused(json!({ "ExportTime": 1_600_000_000 })).await, unavailable);
        node.recovery("music", json!({ "PointInTimeRecoveryEnabled": true })).await;
        rt.sleep(Duration::from_secs(3 * 24 * 3600)).await;
        let day = 24 * 3600;
        for (from, to) in [(10, 909), (10, 11 + day), (-1000, 10), (3 * day - 100, 3 * day + 1000), (50, 20)]
        {
            assert_eq!(refused(specified(from, to)).await, "InvalidExportTimeException", "{from} {to}");
        }
        assert_eq!(refused(json!({ "ExportTime": START_SECONDS - 10 })).await, "InvalidExportTimeException");
        let mut both = specified(10, 1000);
        both["ExportTime"] = json!(START_SECONDS + 10);
        assert_eq!(refused(both).await, "ValidationException");
        let mut full = specified(10, 1000);
        full["ExportType"] = json!("FULL_EXPORT");
        assert_eq!(refused(full).await, "ValidationException");
        for (from, to) in [(10, 910), (10, 10 + day)] {
            assert_eq!(export(&node, export_of("music", &specified(from, to))).await.1.len(), 0);
        }
    });
}

#[test]
fn an_export_that_was_interrupted_leaves_no_table() {
    on_a_node(|rt| async move {
        let node = exporter(&rt, Isolation::Always).await;
        let (micros, _) = changed(&node).await;
        rt.sleep(Duration::from_secs(120)).await;
        let request = export_of("music", &json!({ "ExportTime": micros as f64 / 1e6 }));
        node.done("ExportTableToPointInTime", request).await;
        rt.sleep(Duration::from_millis(10)).await;
        let tables =
            async || node.done("ListTables", json!({})).await["TableNames"].as_array().unwrap().len();
        assert_eq!(tables().await, 2);
        node.api.stop_transfers().await;
        let mut next = Node::new(&rt, &node.memory, Isolation::Always);
        next.api = next.api.with_export_directory(&rt, "/exports".into(), None);
        next.api.fail_abandoned_transfers().await;
        next.look().await;
        assert_eq!(tables().await, 1);
    });
}

#[test]
fn ion_goes_out_and_comes_back() {
    on_a_node(|rt| async move {
        let node = exporter(&rt, Isolation::Always).await;
        node.create("music").await;
        let mut random = Random(2);
        for _ in 0..100 {
            write(&node, "music", &mut random, 4).await;
        }
        let (summary, lines) = export(&node, export_of("music", &json!({ "ExportFormat": "ION" }))).await;
        assert_eq!(summary["outputFormat"], "ION");
        let items = node.items("music").await;
        assert!(lines.len() == items.len() && lines.iter().all(|line| line.starts_with("$ion_1_0 {Item:{")));
        // Its files as they are, and packed by Zstandard.
        let manifest =
            summary["manifestFilesS3Key"].as_str().unwrap().replace("manifest-files.json", "data/");
        let packed = zstd::bulk::compress(lines.join("\n").as_bytes(), 3).unwrap();
        rt.disk().write_atomically("/exports/b/packed.zst", &packed).await.unwrap();
        for (table, prefix, packing) in [("gzip", manifest.as_str(), "GZIP"), ("zstd", "packed", "ZSTD")] {
            let attribute = |name: &str, kind: &str| json!({ "AttributeName": name, "AttributeType": kind });
            let import = json!({
                "S3BucketSource": { "S3Bucket": "b", "S3KeyPrefix": prefix }, "InputFormat": "ION", "InputCompressionType": packing,
                "TableCreationParameters": {
                    "TableName": table, "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": [attribute("p", "S"), attribute("c", "N")],
                    "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "c", "KeyType": "RANGE" }],
                },
            });
            let begun = node.done("ImportTable", import).await;
            let arn = begun["ImportTableDescription"]["ImportArn"].clone();
            rt.sleep(Duration::from_secs(5)).await;
            let ended =
                node.done("DescribeImport", json!({ "ImportArn": arn })).await["ImportTableDescription"]
                    .clone();
            assert_eq!(
                (&ended["ImportStatus"], &ended["ErrorCount"]),
                (&json!("COMPLETED"), &json!(0)),
                "{ended}"
            );
            assert_eq!(node.items(table).await, items);
        }
    });
}

#[test]
fn overrides_are_those_of_the_restored_table() {
    on_a_node(|rt| async move {
        let node = Node::new(&rt, &Memory::new(), Isolation::Always);
        node.done("CreateTable", indexed("books")).await;
        node.recovery("books", json!({ "PointInTimeRecoveryEnabled": true })).await;
        rt.sleep(Duration::from_secs(60)).await;
        let plain = |target: &str| json!({ "SourceTableName": "books", "TargetTableName": target, "UseLatestRestorableTime": true });
        for (at, (more, expected)) in overrides().into_iter().enumerate() {
            let target = format!("target{at}");
            node.done("RestoreTableToPointInTime", with(plain(&target), &more)).await;
            let shown = node.done("DescribeTable", json!({ "TableName": target })).await;
            for (pointer, value) in expected {
                let found = shown["Table"].pointer(pointer).unwrap_or(&Json::Null);
                assert_eq!(*found, value, "{more}: {pointer}");
            }
        }
        for (more, text) in wrong_overrides() {
            let (name, found) = node.refused("RestoreTableToPointInTime", with(plain("wrong"), &more)).await;
            assert!(found.contains(text), "{more}: {name} {found}");
        }
    });
}

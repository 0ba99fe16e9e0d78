//! Faults of a cluster, before a table in memory: reads and writes that fail, and datacenters of which one knows more than the other.

use std::cell::{Cell as StdCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::SchemaEdit;
use coordinator::{
    CasOptions, CasOutcome, ClusterView, Consistency, RequestError, SchemaChangeError, WriteKind,
    WriteOptions,
};
use dynamo::{Dynamo, Isolation};
use exec::backend::{Clock, Coordinator, Decide};
use exec::{ExecError, ExecLimits, Executor, NodeInfo};
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, Complex, ComplexCell, DecoratedKey, LivenessInfo, PartitionRange, PartitionUpdate,
    RingPosition, Row,
};
use replica::{
    Candidates, FragmentsPage, FragmentsRead, NearestQuery, OrderedPlaces, OrderedScan, Partitions,
    ReadCommand, ReadPage, TraceLog,
};
use rt::Instant;
use schema::{Schema, Table, TableId};
use serde_json::{Value as Json, json};

use crate::memory::{Memory, START_SECONDS, TestClock};
use crate::{body_of, call, create, ready};

/// A hook before each operation: an error is its result.
type Before = dyn Fn(&Operation<'_>) -> Result<(), RequestError>;

/// An operation on the cluster.
enum Operation<'a> {
    Read(&'a ReadCommand, Consistency),
    SerialRead(&'a ReadCommand, Consistency),
    Cas(&'a ReadCommand, Consistency),
}

#[derive(Clone)]
struct Faulty {
    memory: Memory,
    before: Rc<Before>,
}

impl Coordinator for Faulty {
    fn schema(&self) -> Arc<Schema> {
        self.memory.schema()
    }

    fn view(&self) -> Arc<ClusterView> {
        self.memory.view()
    }

    async fn read(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        (self.before)(&Operation::Read(command, consistency))?;
        self.memory.read(command, consistency, deadline).await
    }

    async fn fragment_sources(
        &self,
        table: &Table,
        key: &DecoratedKey,
        deadline: Instant,
    ) -> Result<Vec<String>, RequestError> {
        self.memory.fragment_sources(table, key, deadline).await
    }

    async fn read_fragments(
        &self,
        table: &Table,
        read: FragmentsRead,
        deadline: Instant,
    ) -> Result<FragmentsPage, RequestError> {
        self.memory.read_fragments(table, read, deadline).await
    }

    async fn partition_keys(
        &self,
        table: &Table,
        range: &PartitionRange,
        count_max: usize,
        deadline: Instant,
    ) -> Result<Vec<DecoratedKey>, RequestError> {
        self.memory.partition_keys(table, range, count_max, deadline).await
    }

    async fn nearest(
        &self,
        table: &Arc<Table>,
        query: &Arc<NearestQuery>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Candidates, RequestError> {
        self.memory.nearest(table, query, consistency, deadline).await
    }

    async fn scan_index(
        &self,
        table: &Arc<Table>,
        scan: &Arc<OrderedScan>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<OrderedPlaces, RequestError> {
        self.memory.scan_index(table, scan, consistency, deadline).await
    }

    async fn write(&self, updates: Vec<PartitionUpdate>, options: WriteOptions) -> Result<(), RequestError> {
        self.memory.write(updates, options).await
    }

    fn traced(&self, _: &TraceLog) -> Self {
        self.clone()
    }

    async fn cas(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: Decide<'_>,
    ) -> Result<CasOutcome, ExecError> {
        (self.before)(&Operation::Cas(command, options.serial))?;
        self.memory.cas(command, options, decide).await
    }

    async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        (self.before)(&Operation::SerialRead(command, consistency))?;
        self.memory.read(command, consistency, deadline).await
    }

    async fn increment(&self, _: Vec<PartitionUpdate>, _: WriteOptions) -> Result<(), RequestError> {
        unreachable!("the API has no counters")
    }

    async fn truncate(&self, _: &Table, _: Instant) -> Result<(), RequestError> {
        unreachable!("the API does not truncate")
    }

    async fn change_schema(&self, base: [u8; 16], edits: Vec<SchemaEdit>) -> Result<(), SchemaChangeError> {
        self.memory.change_schema(base, edits).await
    }

    async fn check_given_id(&self, base: [u8; 16], id: TableId) -> Result<(), SchemaChangeError> {
        self.memory.check_given_id(base, id).await
    }
}

fn over<C: Coordinator>(coordinator: C) -> Dynamo<C> {
    later(coordinator, 0)
}

/// The API by a clock that is so many microseconds ahead: clocks of tests stand still between looks.
fn later<C: Coordinator>(coordinator: C, micros: usize) -> Dynamo<C> {
    let clock = TestClock::default();
    for _ in 0..micros {
        clock.wall_micros();
    }
    let address = ([127, 0, 0, 1], 9042).into();
    let node = NodeInfo { cluster_name: "c".to_owned(), snitch: "s".to_owned(), address };
    let executor = Executor::new(coordinator, Rc::new(clock), node, ExecLimits::default());
    Dynamo::new(Rc::new(executor), Isolation::OnlyRmw)
}

fn faulty(
    memory: &Memory,
    before: impl Fn(&Operation<'_>) -> Result<(), RequestError> + 'static,
) -> Dynamo<Faulty> {
    later(Faulty { memory: memory.clone(), before: Rc::new(before) }, 20_000)
}

fn timeout() -> RequestError {
    RequestError::CasUncertain { consistency: Consistency::LocalSerial, received: 1, required: 2 }
}

/// A table with so many items that ended, by the attribute `t`.
fn ended_items(api: &Dynamo<Memory>, name: &str, count: usize) {
    create(api, name, None);
    for at in 0..count {
        put_ending(api, name, &at.to_string(), START_SECONDS - 50);
    }
    let specification = json!({ "Enabled": true, "AttributeName": "t" });
    let update = json!({ "TableName": name, "TimeToLiveSpecification": specification });
    body_of(call(api, "UpdateTimeToLive", &update.to_string()));
}

fn put_ending(api: &Dynamo<Memory>, name: &str, p: &str, ends: i64) {
    let item = json!({ "p": { "S": p }, "t": { "N": ends.to_string() } });
    body_of(call(api, "PutItem", &json!({ "TableName": name, "Item": item }).to_string()));
}

fn items_of(api: &Dynamo<Memory>, name: &str) -> Vec<Json> {
    let found = body_of(call(api, "Scan", &json!({ "TableName": name }).to_string()));
    found["Items"].as_array().expect("items").clone()
}

#[test]
fn a_range_that_cannot_be_read_keeps_no_other_from_its_end() {
    let memory = Memory::new();
    let plain = over(memory.clone());
    ended_items(&plain, "ends", 200);
    // Of the node's two ranges the one that is read first.
    let fails = |command: &ReadCommand| matches!(&command.partitions, Partitions::Range(range) if range.start == RingPosition::BeforeToken(i64::MIN));
    let api = faulty(&memory, move |operation| match operation {
        Operation::Read(command, _) if fails(command) => Err(timeout()),
        _ => Ok(()),
    });
    assert!(ready(api.expire()).is_err(), "it is reported");
    let left = items_of(&plain, "ends").len();
    assert!((1..180).contains(&left), "{left} of 200 are left, of one range in two");
    assert_eq!(ready(plain.expire()), Ok(left as u64));
}

#[test]
fn an_item_that_cannot_be_deleted_keeps_no_other_from_its_end() {
    let memory = Memory::new();
    let plain = over(memory.clone());
    ended_items(&plain, "ends", 250);
    let first = RefCell::new(None);
    let api = faulty(&memory, move |operation| match operation {
        Operation::Cas(command, _) => {
            let Partitions::Keys(keys) = &command.partitions else { return Ok(()) };
            let key = keys.first().expect("a key").clone();
            let fails = *first.borrow_mut().get_or_insert_with(|| key.clone()) == key;
            if fails { Err(timeout()) } else { Ok(()) }
        }
        _ => Ok(()),
    });
    assert!(ready(api.expire()).is_err(), "it is reported");
    assert_eq!(items_of(&plain, "ends").len(), 1);
}

/// A page of a datacenter may lack acknowledged writes of another.
#[test]
fn an_item_that_was_given_more_time_in_another_datacenter_stays() {
    let memory = Memory::with_nodes(&["dc1", "dc2"]);
    let plain = over(memory.clone());
    ended_items(&plain, "ends", 10);
    let elsewhere = later(memory.clone(), 10_000);
    let levels = Rc::new(RefCell::new(Vec::new()));
    let seen = levels.clone();
    let api = faulty(&memory, move |operation| {
        match operation {
            Operation::Read(command, Consistency::EachQuorum) => {
                let Partitions::Keys(keys) = &command.partitions else { panic!("rows are read one by one") };
                if keys.first().is_some_and(|key| &key.key[..] == b"7") {
                    put_ending(&elsewhere, "ends", "7", START_SECONDS + 1_000);
                }
            }
            Operation::Cas(_, level) => seen.borrow_mut().push(*level),
            _ => {}
        }
        Ok(())
    });
    assert_eq!(ready(api.expire()), Ok(9));
    let left = items_of(&plain, "ends");
    assert_eq!(left, [json!({ "p": { "S": "7" }, "t": { "N": (START_SECONDS + 1_000).to_string() } })]);
    assert_eq!(*levels.borrow(), [Consistency::Serial; 9]);
}

#[test]
fn a_deletion_waits_for_a_datacenter_that_does_not_answer() {
    let memory = Memory::with_nodes(&["dc1", "dc2"]);
    let plain = over(memory.clone());
    ended_items(&plain, "ends", 3);
    let api = faulty(&memory, |operation| match operation {
        Operation::Read(_, Consistency::EachQuorum) => Err(timeout()),
        _ => Ok(()),
    });
    assert!(ready(api.expire()).is_err());
    assert_eq!(items_of(&plain, "ends").len(), 3);
}

#[test]
fn records_of_transactions_are_agreed_on_by_all_datacenters() {
    let memory = Memory::with_nodes(&["dc1", "dc2"]);
    let plain = over(memory.clone());
    create(&plain, "moved", None);
    let levels = Rc::new(RefCell::new(Vec::new()));
    let seen = levels.clone();
    let api = faulty(&memory, move |operation| {
        if let Operation::SerialRead(command, level) | Operation::Cas(command, level) = operation {
            seen.borrow_mut().push((command.table.name.clone(), *level));
        }
        Ok(())
    });
    let put = |p: &str| json!({ "Put": { "TableName": "moved", "Item": { "p": { "S": p } } } });
    let transaction = json!({ "TransactItems": [put("a"), put("b")] }).to_string();
    body_of(ready(api.call("TransactWriteItems", transaction.as_bytes(), "h", None)));
    let records = levels.borrow().iter().filter(|(table, _)| table == "transactions").count();
    assert_eq!(records, 2, "it is begun and committed; that it is applied follows");
    let all_serial =
        |name: &str, level| levels.borrow().iter().all(|(table, of)| table != name || *of == level);
    assert!(all_serial("transactions", Consistency::Serial));
    assert!(all_serial("moved", Consistency::LocalSerial), "as other writes of items are");
}

/// A write of one cell of a row, past the API.
fn write_cell(memory: &Memory, table: &Arc<Table>, key: &str, data: (&str, ColumnData)) {
    let (column, data) = data;
    let mut row = Row::new(Clustering::empty());
    row.set(table.column(column).expect("the column").id, data);
    if column == ":attrs" {
        row.liveness = LivenessInfo::forever(1);
    }
    let key = DecoratedKey::new(Bytes::copy_from_slice(key.as_bytes()));
    let update = PartitionUpdate::with_rows(table.clone(), key, vec![row]);
    let options =
        WriteOptions { consistency: Consistency::One, kind: WriteKind::Simple, deadline: Instant::START };
    ready(memory.write(vec![update], options)).expect("it is written");
}

#[test]
fn a_transaction_is_swept_in_the_datacenter_of_its_coordinator() {
    let memory = Memory::with_nodes(&["dc1", "dc2"]);
    let api = over(memory.clone());
    create(&api, "moved", None);
    let put = json!({ "Put": { "TableName": "moved", "Item": { "p": { "S": "a" } } } });
    body_of(call(&api, "TransactWriteItems", &json!({ "TransactItems": [put] }).to_string()));
    let table = memory.schema().table("alternator_tx", "transactions").expect("the table of records").clone();
    let abandoned = |key: &str, datacenter: Option<&str>| {
        let mut record = json!({
            "status": "pending", "attempt": format!("{:032x}", 7), "fingerprint": format!("{:032x}", 1), "begun": 0,
            "items": []
        });
        if let Some(datacenter) = datacenter {
            record["datacenter"] = json!(datacenter);
        }
        let cell = Cell::live(1, Bytes::from(record.to_string()));
        write_cell(&memory, &table, key, ("record", ColumnData::Simple(cell)));
    };
    abandoned("theirs", Some("dc2"));
    assert_eq!(ready(api.finish_abandoned()), Ok(0));
    abandoned("own", Some("dc1"));
    abandoned("of_before", None);
    abandoned("of_a_datacenter_that_is_gone", Some("dc3"));
    assert_eq!(ready(api.finish_abandoned()), Ok(3));
    // A row that is no record keeps none of the others from it.
    write_cell(
        &memory,
        &table,
        "nonsense",
        ("record", ColumnData::Simple(Cell::live(1, Bytes::from_static(b"{}")))),
    );
    for key in ["one", "two", "three", "four"] {
        abandoned(key, None);
    }
    assert!(ready(api.finish_abandoned()).is_err(), "it is reported");
    let status = |key: &str| {
        let key = DecoratedKey::new(Bytes::copy_from_slice(key.as_bytes()));
        let keys = Partitions::Keys(replica::Keys::from_iter([key]));
        let command = ReadCommand::all_of(table.clone(), keys, START_SECONDS as u32);
        let page = ready(memory.read(&command, Consistency::One, Instant::START)).expect("it is read");
        let row = &page.partitions[0].rows[0];
        let Some(ColumnData::Simple(cell)) = row.column(table.column("record").expect("the column").id)
        else {
            panic!("a record")
        };
        String::from_utf8_lossy(&cell.value).contains("cancelled")
    };
    for key in ["one", "two", "three", "four"] {
        assert!(status(key), "{key}");
    }
}

/// Items with an attribute without a name could be written once: its place is that of intents.
#[test]
fn an_item_that_has_an_attribute_without_a_name_is_read_and_replaced() {
    for isolation in [Isolation::Always, Isolation::OnlyRmw] {
        let memory = Memory::new();
        let address = ([127, 0, 0, 1], 9042).into();
        let node = NodeInfo { cluster_name: "c".to_owned(), snitch: "s".to_owned(), address };
        let executor =
            Executor::new(memory.clone(), Rc::new(TestClock::default()), node, ExecLimits::default());
        let api = Dynamo::new(Rc::new(executor), isolation);
        create(&api, "nameless", None);
        let table = memory.schema().table("alternator_nameless", "nameless").expect("the table").clone();
        let mut attributes = Complex::empty();
        let cell = Cell::live(1, Bytes::from_static(b"\0x"));
        attributes.cells.push(ComplexCell { path: Bytes::new(), cell });
        for key in ["a", "b", "c"] {
            write_cell(&memory, &table, key, (":attrs", ColumnData::Complex(attributes.clone())));
        }
        let key = |p: &str| json!({ "p": { "S": p } });
        assert_eq!(items_of(&api, "nameless").len(), 3);
        let get = json!({ "TableName": "nameless", "Key": key("a"), "ConsistentRead": true });
        assert_eq!(body_of(call(&api, "GetItem", &get.to_string())), json!({ "Item": key("a") }));
        let put = json!({ "TableName": "nameless", "Item": { "p": { "S": "a" }, "v": { "N": "1" } } });
        body_of(call(&api, "PutItem", &put.to_string()));
        let delete = json!({ "TableName": "nameless", "Key": key("b"), "ReturnValues": "ALL_OLD" });
        assert_eq!(body_of(call(&api, "DeleteItem", &delete.to_string())), json!({ "Attributes": key("b") }));
        let of = |p: &str| json!({ "Put": { "TableName": "nameless", "Item": { "p": { "S": p }, "w": { "N": "2" } } } });
        body_of(call(&api, "TransactWriteItems", &json!({ "TransactItems": [of("c")] }).to_string()));
        let mut items = items_of(&api, "nameless");
        items.sort_by_key(Json::to_string);
        let expected = [
            json!({ "p": { "S": "a" }, "v": { "N": "1" } }),
            json!({ "p": { "S": "c" }, "w": { "N": "2" } }),
        ];
        assert_eq!(items, expected);
    }
}

/// A clock of which each pause takes its time.
#[derive(Default)]
struct PausedClock(std::cell::Cell<Duration>);

impl Clock for PausedClock {
    fn wall_micros(&self) -> i64 {
        START_SECONDS * 1_000_000 + 20_000 + self.0.get().as_micros() as i64
    }

    fn now(&self) -> Instant {
        Instant::START + self.0.get()
    }

    fn random(&self) -> [u8; 16] {
        [7; 16]
    }

    fn pause(&self, time: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        self.0.set(self.0.get() + time);
        Box::pin(std::future::ready(()))
    }
}

/// While the table of records is made by several nodes at once, replicas refuse it that do not use it yet.
#[test]
fn the_first_transaction_waits_for_the_table_of_records() {
    for (refusals, done) in [(1, true), (5, true), (usize::MAX, false)] {
        let memory = Memory::new();
        create(&over(memory.clone()), "moved", None);
        let left = std::cell::Cell::new(refusals);
        let before = move |operation: &Operation<'_>| match operation {
            Operation::Cas(command, _) if command.table.name == "transactions" && left.get() > 0 => {
                left.set(left.get() - 1);
                Err(timeout())
            }
            _ => Ok(()),
        };
        let clock = Rc::new(PausedClock::default());
        let address = ([127, 0, 0, 1], 9042).into();
        let node = NodeInfo { cluster_name: "c".to_owned(), snitch: "s".to_owned(), address };
        let coordinator = Faulty { memory: memory.clone(), before: Rc::new(before) };
        let limits = ExecLimits::default();
        let time_max = limits.write_timeout;
        let api =
            Dynamo::new(Rc::new(Executor::new(coordinator, clock.clone(), node, limits)), Isolation::OnlyRmw);
        let put = json!({ "Put": { "TableName": "moved", "Item": { "p": { "S": "a" } } } });
        let transaction = json!({ "TransactItems": [put] }).to_string();
        let answer = ready(api.call("TransactWriteItems", transaction.as_bytes(), "h", None));
        assert_eq!(
            (answer.status, items_of(&over(memory), "moved").len()),
            if done { (200, 1) } else { (500, 0) }
        );
        let took = clock.0.get();
        assert!(took < time_max && (done || took > time_max / 4), "{refusals}: it took {took:?}");
    }
}

/// A Query of a hash key by pages of ten: the range keys, and the most partitions that were read for a page.
fn range_keys(api: &Dynamo<Faulty>, reads: &StdCell<usize>, forward: bool) -> (Vec<i64>, usize) {
    let mut request = json!({
        "TableName": "many", "IndexName": "by_g_h", "KeyConditionExpression": "g = :g", "Limit": 10,
        "ExpressionAttributeValues": { ":g": { "S": "x" } }, "ScanIndexForward": forward
    });
    let (mut found, mut most) = (Vec::new(), 0);
    loop {
        reads.set(0);
        let page = body_of(ready(api.call("Query", request.to_string().as_bytes(), "localhost:8000", None)));
        most = most.max(reads.get());
        let items = page["Items"].as_array().expect("items").iter();
        found.extend(
            items.map(|item| item["h"]["N"].as_str().expect("a number").parse::<i64>().expect("one")),
        );
        let Some(last) = page.get("LastEvaluatedKey") else { return (found, most) };
        request["ExclusiveStartKey"] = last.clone();
    }
}

#[test]
fn a_page_of_an_index_reads_about_as_many_items_as_it_has() {
    let memory = Memory::new();
    let plain = over(memory.clone());
    let attribute = |name: &str, kind: &str| json!({ "AttributeName": name, "AttributeType": kind });
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    let table = json!({
        "TableName": "many", "BillingMode": "PAY_PER_REQUEST", "KeySchema": [key("p", "HASH")],
        "AttributeDefinitions": [attribute("p", "S"), attribute("g", "S"), attribute("h", "N")],
        "GlobalSecondaryIndexes": [{
            "IndexName": "by_g_h", "KeySchema": [key("g", "HASH"), key("h", "RANGE")], "Projection": { "ProjectionType": "ALL" }
        }]
    });
    body_of(call(&plain, "CreateTable", &table.to_string()));
    let put = |at: i64, h: i64| {
        let item = json!({ "p": { "S": format!("p{at}") }, "g": { "S": "x" }, "h": { "N": h.to_string() } });
        body_of(call(&plain, "PutItem", &json!({ "TableName": "many", "Item": item }).to_string()));
    };
    let update = |at: i64, h: i64, condition: Option<&str>| {
        let mut request = json!({
            "TableName": "many", "Key": { "p": { "S": format!("p{at}") } }, "UpdateExpression": "SET h = :h",
            "ExpressionAttributeValues": { ":h": { "N": h.to_string() } }
        });
        if let Some(condition) = condition {
            request["ConditionExpression"] = condition.into();
        }
        body_of(call(&plain, "UpdateItem", &request.to_string()));
    };
    let reads = Rc::new(StdCell::new(0));
    let counted = reads.clone();
    let api = faulty(&memory, move |operation| {
        if let Operation::Read(command, _) = operation {
            assert!(matches!(command.partitions, Partitions::Keys(_)), "nothing is searched by a range");
            counted.set(counted.get() + 1);
        }
        Ok(())
    });
    for at in 0..300 {
        put(at, at * 37 % 300);
    }
    let check = |most_wanted: usize| {
        for forward in [true, false] {
            let (mut found, most) = range_keys(&api, &reads, forward);
            if !forward {
                found.reverse();
            }
            assert_eq!(found.len(), 300);
            assert!(found.is_sorted(), "{found:?}");
            assert!(most <= most_wanted, "{most} reads of a page");
        }
    };
    check(20);
    // A transaction writes all of the key.
    (0..100).for_each(|at| update(at, at + 1000, Some("attribute_exists(p)")));
    check(100);
    // Without one, these are read for each page.
    (0..30).for_each(|at| update(at, 500 - at, None));
    check(140);
}

//! The counters of requests, and the report of slow ones.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dynamo::{ApiFigures, Dynamo, Isolation};
use exec::backend::Clock;
use exec::{ExecLimits, Executor, NodeInfo, SlowTracing};
use rt::Instant;
use serde_json::json;

use crate::memory::{Memory, START_SECONDS};
use crate::{api, body_of, call, create};

fn counted(isolation: Isolation) -> ApiFigures {
    let api = api(isolation);
    create(&api, "counted", Some("N"));
    let item = |c: u32| json!({ "p": { "S": "a" }, "c": { "N": c.to_string() }, "v": { "N": "1" } });
    let put = |condition: Option<&str>| {
        let mut put = json!({ "TableName": "counted", "Item": item(1) });
        if let Some(condition) = condition {
            put["ConditionExpression"] = json!(condition);
        }
        call(&api, "PutItem", &put.to_string())
    };
    body_of(put(None));
    assert_eq!(put(Some("attribute_not_exists(p)")).status, 400);
    assert_eq!(put(Some("nonsense(")).status, 400);
    let writes: Vec<_> = (2..5).map(|c| json!({ "PutRequest": { "Item": item(c) } })).collect();
    body_of(call(&api, "BatchWriteItem", &json!({ "RequestItems": { "counted": writes } }).to_string()));
    let keys: Vec<_> =
        (1..3).map(|c: u32| json!({ "p": { "S": "a" }, "c": { "N": c.to_string() } })).collect();
    body_of(call(
        &api,
        "BatchGetItem",
        &json!({ "RequestItems": { "counted": { "Keys": keys } } }).to_string(),
    ));
    let filtered = json!({
        "TableName": "counted", "FilterExpression": "#v = :v", "ExpressionAttributeNames": { "#v": "v" },
        "ExpressionAttributeValues": { ":v": { "N": "2" } }
    });
    body_of(call(&api, "Scan", &json!({ "TableName": "counted" }).to_string()));
    body_of(call(&api, "Scan", &filtered.to_string()));
    let mut query = filtered;
    query["KeyConditionExpression"] = json!("p = :p AND c > :c");
    query["ExpressionAttributeValues"] =
        json!({ ":v": { "N": "1" }, ":p": { "S": "a" }, ":c": { "N": "1" } });
    body_of(call(&api, "Query", &query.to_string()));
    assert_eq!(call(&api, "CreateGlobalTable", "{}").status, 400);
    assert_eq!(call(&api, "Nonsense", "{}").status, 400);
    api.figures()
}

#[test]
fn requests_are_counted_by_operation() {
    let figures = counted(Isolation::Always);
    let operations: Vec<_> = figures.operations.iter().map(|(name, of)| (*name, of.count)).collect();
    assert_eq!(
        operations,
        [
            ("BatchGetItem", 1),
            ("BatchWriteItem", 1),
            ("CreateTable", 1),
            ("PutItem", 3),
            ("Query", 1),
            ("Scan", 2)
        ]
    );
    assert!(figures.operations.values().all(|of| of.latencies.count() == of.count), "all were answered");
    let tables: Vec<_> = figures.tables.values().collect();
    let [table] = tables.as_slice() else { panic!("one table: {tables:?}") };
    assert_eq!((table.keyspace.as_str(), table.table.as_str()), ("alternator_counted", "counted"));
    let operations: Vec<_> = table.operations.iter().map(|(name, of)| (*name, of.count)).collect();
    assert_eq!(operations, [("CreateTable", 1), ("PutItem", 3), ("Query", 1), ("Scan", 2)]);
    let batches: Vec<_> = table.batch_items.iter().map(|(name, items)| (*name, *items)).collect();
    assert_eq!(batches, [("BatchGetItem", 2), ("BatchWriteItem", 3)]);
    assert_eq!(table.batch_items, figures.batch_items);
    assert_eq!((table.read_half_units, &table.write_units), (figures.read_half_units, &figures.write_units));
    assert_eq!(figures.unsupported_operations, 2);
    let errors: Vec<_> = figures.errors.into_iter().collect();
    assert_eq!(
        errors,
        [
            ("ConditionalCheckFailedException", 1),
            ("UnknownOperationException", 2),
            ("ValidationException", 1)
        ]
    );
    assert_eq!((figures.conditional_check_failed, figures.user_errors, figures.system_errors), (1, 3, 0));
    // Four items of the scan without a filter, and three of the query.
    assert_eq!(figures.returned_items, 7);
    let batches: Vec<_> = figures.batch_items.into_iter().collect();
    assert_eq!(batches, [("BatchGetItem", 2), ("BatchWriteItem", 3)]);
    // The scan found four items and no 2, the query three items and each a 1.
    assert_eq!((figures.filtered_rows_read, figures.filtered_rows_matched), (7, 3));
    // Four items at LOCAL_ONE at most 4 KiB a page: two scans and a query; two keys of a batch.
    assert_eq!(figures.read_half_units, 3 + 2);
    // A put, one whose condition fails, and a batch of three.
    assert_eq!(figures.write_units.into_iter().collect::<Vec<_>>(), [("PutItem", 5)]);
    // Two puts, of which one depends on the item, and a batch of one partition.
    assert_eq!((figures.reads_before_write, figures.write_using_lwt), (1, 3));
}

#[test]
fn the_isolation_of_writes_shows() {
    let of = |isolation| {
        let figures = counted(isolation);
        (figures.reads_before_write, figures.write_using_lwt)
    };
    assert_eq!(of(Isolation::OnlyRmw), (1, 1));
    assert_eq!(of(Isolation::UnsafeRmw), (1, 0));
}

/// A clock that advances by some milliseconds whenever it is read.
struct SlowClock(Cell<u64>, u64);

impl Clock for SlowClock {
    fn wall_micros(&self) -> i64 {
        START_SECONDS * 1_000_000
    }

    fn now(&self) -> Instant {
        self.0.set(self.0.get() + self.1);
        Instant::START + Duration::from_millis(self.0.get())
    }

    fn random(&self) -> [u8; 16] {
        self.0.set(self.0.get() + 1);
        u128::from(self.0.get()).to_be_bytes()
    }
}

#[test]
fn slow_requests_are_named_by_operation_and_table() {
    let report = |step| {
        let node = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let limits = ExecLimits { slow_after: Duration::from_millis(500), ..ExecLimits::default() };
        let clock = Rc::new(SlowClock(Cell::default(), step));
        let executor = Rc::new(Executor::new(Memory::new(), clock, node, limits));
        let api = Dynamo::new(executor.clone(), Isolation::UnsafeRmw);
        create(&api, "slow", None);
        let secret = json!({ "TableName": "slow", "Item": { "p": { "S": "secret" } } });
        body_of(call(&api, "PutItem", &secret.to_string()));
        body_of(call(&api, "DescribeTable", &json!({ "TableName": "slow" }).to_string()));
        let keys = json!({ "RequestItems": { "slow": { "Keys": [{ "p": { "S": "secret" } }] } } });
        body_of(call(&api, "BatchGetItem", &keys.to_string()));
        body_of(call(&api, "ListTables", "{}"));
        call(&api, "Nonsense", "{}");
        (executor.report_slow(), api.figures())
    };
    let (said, figures) = report(600);
    let said = said.expect("all were slow");
    for text in [
        "<DynamoDB PutItem on slow>, time",
        "<DynamoDB BatchGetItem on slow>",
        "<DynamoDB DescribeTable on slow>",
        "<DynamoDB ListTables>",
    ] {
        assert!(said.contains(text), "{text} is not in {said}");
    }
    assert!(!said.contains("secret") && !said.contains("Nonsense"), "{said}");
    assert!(figures.operations["PutItem"].latencies.sum >= Duration::from_millis(600));
    assert_eq!(report(1).0, None, "nothing was slow");
}

#[test]
fn slow_requests_are_recorded_for_cql_and_the_api() {
    let recorded = |step, threshold| {
        let node = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let slow_tracing = SlowTracing { enabled: true, threshold, ..SlowTracing::default() };
        let limits = ExecLimits { slow_tracing, ..ExecLimits::default() };
        let clock = Rc::new(SlowClock(Cell::default(), step));
        let executor = Rc::new(Executor::new(Memory::new(), clock, node, limits));
        let api = Dynamo::new(executor.clone(), Isolation::Always);
        create(&api, "slow", None);
        let item = json!({ "TableName": "slow", "Item": { "p": { "S": "x".repeat(5_000) } } });
        let refused = call(&api, "PutItem", &item.to_string());
        assert_eq!(refused.status, 400, "the key is too long: {}", refused.body);
        body_of(call(
            &api,
            "GetItem",
            &json!({ "TableName": "slow", "Key": { "p": { "S": "k" } } }).to_string(),
        ));
        let scan = |table: &str| {
            let table = format!(".scylla.alternator.system_traces.{table}");
            body_of(call(&api, "Scan", &json!({ "TableName": table }).to_string()))
        };
        ["sessions", "events", "sessions_time_idx", "node_slow_log", "node_slow_log_time_idx"].map(scan)
    };
    let of = |items: &serde_json::Value, text: &str| {
        let items = items["Items"].as_array().expect("items");
        items.iter().filter(|item| item.to_string().contains(text)).count()
    };
    let [sessions, events, by_time, slow, slow_by_time] = recorded(600, Duration::from_millis(500));
    assert_eq!(
        (of(&sessions, "Alternator PutItem"), of(&sessions, "Alternator GetItem")),
        (1, 1),
        "{sessions}"
    );
    assert_eq!((of(&slow, "xxx<truncated>"), of(&slow, "alternator_slow.slow")), (1, 3), "{slow}");
    assert_eq!(of(&events, "Request failed"), 1, "{events}");
    assert!(of(&by_time, "minute") >= 3 && of(&slow_by_time, "minute") >= 3, "{by_time} {slow_by_time}");
    let none = recorded(1, Duration::from_secs(60));
    assert!(none.iter().all(|table| of(table, "") == 0), "nothing was slow: {none:?}");
}

#[test]
fn capacity_is_counted_by_the_kind_of_write() {
    let api = api(Isolation::Always);
    create(&api, "units", None);
    let key = |p: &str| json!({ "p": { "S": p } });
    let large = json!({ "p": { "S": "a" }, "v": { "S": "x".repeat(9000) } });
    let units = |operation: &str, request: serde_json::Value, status: u16| {
        let before = api.figures();
        assert_eq!(call(&api, operation, &request.to_string()).status, status, "{operation}");
        let after = api.figures();
        let of = |figures: &ApiFigures, name: &str| figures.write_units.get(name).copied().unwrap_or(0);
        let writes = ["PutItem", "UpdateItem", "DeleteItem"].map(|name| of(&after, name) - of(&before, name));
        (after.read_half_units - before.read_half_units, writes)
    };
    let table = |mut request: serde_json::Value| {
        request["TableName"] = json!("units");
        request
    };
    assert_eq!(units("PutItem", table(json!({ "Item": large })), 200), (0, [9, 0, 0]));
    assert_eq!(units("GetItem", table(json!({ "Key": key("a") })), 200), (3, [0; 3]));
    assert_eq!(units("GetItem", table(json!({ "Key": key("a"), "ConsistentRead": true })), 200), (6, [0; 3]));
    assert_eq!(units("GetItem", table(json!({ "Key": key("none") })), 200), (1, [0; 3]));
    let failing = json!({ "Key": key("a"), "ConditionExpression": "attribute_not_exists(p)" });
    assert_eq!(units("DeleteItem", table(failing), 400), (0, [0, 0, 9]), "of the item that was looked at");
    assert_eq!(
        units("PutItem", table(json!({ "Item": { "q": { "S": "a" } } })), 400),
        (0, [0; 3]),
        "refused before"
    );
    let update = json!({ "Key": key("b"), "UpdateExpression": "SET w = :w", "ExpressionAttributeValues": { ":w": { "N": "1" } } });
    assert_eq!(units("UpdateItem", table(update), 200), (0, [0, 1, 0]));
    let parts = json!([
        { "Put": { "TableName": "units", "Item": key("c") } },
        { "Delete": { "TableName": "units", "Key": key("b") } },
        { "ConditionCheck": { "TableName": "units", "Key": key("d"), "ConditionExpression": "attribute_not_exists(p)" } },
    ]);
    assert_eq!(units("TransactWriteItems", json!({ "TransactItems": parts }), 200), (0, [2, 2, 2]));
    let gets = json!([{ "Get": { "TableName": "units", "Key": key("a") } }]);
    assert_eq!(units("TransactGetItems", json!({ "TransactItems": gets }), 200), (12, [0; 3]));
    let insert = json!({ "Statement": "INSERT INTO units VALUE {'p': 'e'}" });
    assert_eq!(units("ExecuteStatement", insert, 200), (0, [1, 0, 0]));
    let select = json!({ "Statement": "SELECT * FROM units WHERE p = 'a'" });
    assert_eq!(units("ExecuteStatement", select, 200), (3, [0; 3]));
    assert_eq!(
        units(
            "Query",
            table(
                json!({ "KeyConditionExpression": "p = :p", "ExpressionAttributeValues": { ":p": { "S": "a" } } })
            ),
            200
        ),
        (3, [0; 3])
    );
    assert_eq!(units("Scan", table(json!({ "ConsistentRead": true })), 200), (6, [0; 3]));
}

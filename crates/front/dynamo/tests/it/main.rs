//! Requests of the API against a table in memory: golden table `testdata/requests.txt`.

mod backups;
mod documented;
mod faults;
mod figures;
mod http;
mod indexes;
mod levels;
#[path = "../../../../query/exec/tests/it/memory.rs"]
#[expect(dead_code, reason = "the tests of exec need more of it")]
mod memory;
mod node;
mod objects;
mod recovery;
mod row_ttl;
mod sizes;
mod streams;
mod system_tables;
mod transactions;
mod transfers;
mod vectors;

use std::fmt::Write as _;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[allow(unused_imports, reason = "`memory` is of these crates, too")]
use {catalog::computed_keyspaces as _, cdc::Log as _, topology::HostId as _, views::View as _};

use dynamo::{Answer, ApiSettings, DescribedEndpoint, Dynamo, Isolation};
use exec::{ExecLimits, Executor, NodeInfo};
use memory::{Memory, TestClock};
use serde_json::{Value as Json, json};

/// Futures over a table in memory are ready when they are polled.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    let mut future = pin!(future);
    for _ in 0..100_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("the future waits for something");
}

fn api(isolation: Isolation) -> Dynamo<Memory> {
    let node = NodeInfo {
        cluster_name: "c".to_owned(),
        snitch: "s".to_owned(),
        address: ([127, 0, 0, 1], 9042).into(),
    };
    let executor = Executor::new(Memory::new(), Rc::new(TestClock::default()), node, ExecLimits::default());
    Dynamo::new(Rc::new(executor), isolation)
}

fn call(api: &Dynamo<Memory>, operation: &str, body: &str) -> Answer {
    ready(api.call(operation, body.as_bytes(), "localhost:8000", None))
}

/// An answer for the table: random values are left out.
fn shown(answer: &Answer) -> String {
    let mut body: Json = serde_json::from_str(&answer.body).expect("an answer is JSON");
    for name in ["TableDescription", "Table"] {
        if let Some(table) = body.get_mut(name).and_then(Json::as_object_mut) {
            for random in ["TableId", "CreationDateTime"] {
                assert!(table.shift_remove(random).is_some());
            }
            if let Some(summary) = table.get_mut("BillingModeSummary").and_then(Json::as_object_mut) {
                summary.shift_remove("LastUpdateToPayPerRequestDateTime");
            }
        }
    }
    if answer.status == 200 {
        return body.to_string();
    }
    let kind = body["__type"].as_str().unwrap_or_default().rsplit('#').next().unwrap_or_default().to_owned();
    let item = body.get("Item").map(|item| format!(" {item}")).unwrap_or_default();
    format!("! {} {kind}: {}{item}", answer.status, body["message"].as_str().unwrap_or_default())
}

#[test]
fn the_table_of_requests_holds() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/requests.txt");
    let table = std::fs::read_to_string(&file).expect("testdata/requests.txt");
    let api = api(Isolation::Always);
    let mut out = String::new();
    for line in table.lines() {
        if line.starts_with("    ") {
            continue;
        }
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (operation, body) = line.split_once(' ').unwrap_or((line, "{}"));
        writeln!(out, "    {}", shown(&call(&api, operation, body))).unwrap();
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &out).expect("the table can be written");
        return;
    }
    for (was, is) in table.lines().zip(out.lines()) {
        assert_eq!(was, is);
    }
    assert_eq!(table, out);
}

fn create(api: &Dynamo<Memory>, name: &str, range: Option<&str>) {
    let mut definitions = vec![json!({ "AttributeName": "p", "AttributeType": "S" })];
    let mut keys = vec![json!({ "AttributeName": "p", "KeyType": "HASH" })];
    if let Some(kind) = range {
        definitions.push(json!({ "AttributeName": "c", "AttributeType": kind }));
        keys.push(json!({ "AttributeName": "c", "KeyType": "RANGE" }));
    }
    let body = json!({
        "TableName": name, "AttributeDefinitions": definitions, "KeySchema": keys, "BillingMode": "PAY_PER_REQUEST"
    });
    let answer = call(api, "CreateTable", &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn body_of(answer: Answer) -> Json {
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// All pages of a Query or Scan: their items, and the number of pages.
fn pages(api: &Dynamo<Memory>, operation: &str, mut request: Json) -> (Vec<String>, usize) {
    let (mut found, mut count) = (Vec::new(), 0);
    loop {
        let answer = body_of(call(api, operation, &request.to_string()));
        count += 1;
        let items = answer["Items"].as_array().expect("items");
        found.extend(
            items.iter().map(|item| {
                format!("{}{}", item["p"]["S"].as_str().unwrap(), item["c"]["N"].as_str().unwrap())
            }),
        );
        match answer.get("LastEvaluatedKey") {
            Some(key) => request["ExclusiveStartKey"] = key.clone(),
            None => return (found, count),
        }
        assert!(count < 1000, "paging ends");
    }
}

#[test]
fn pages_have_every_item_once_in_both_directions_and_by_segments() {
    for isolation in [Isolation::Always, Isolation::OnlyRmw] {
        let api = api(isolation);
        create(&api, "paged", Some("N"));
        let numbers = ["-100", "-1.5", "0", "2", "10", "1e5"];
        for p in ["a", "b", "c"] {
            for c in numbers {
                let item = json!({ "TableName": "paged", "Item": { "p": { "S": p }, "c": { "N": c } } });
                body_of(call(&api, "PutItem", &item.to_string()));
            }
        }
        let shown = ["-100", "-1.5", "0", "2", "10", "100000"];
        for limit in 1..8 {
            for forward in [true, false] {
                let query = json!({
                    "TableName": "paged", "KeyConditionExpression": "p = :p", "Limit": limit,
                    "ExpressionAttributeValues": { ":p": { "S": "b" } }, "ScanIndexForward": forward
                });
                let (found, _) = pages(&api, "Query", query);
                let mut wanted: Vec<String> = shown.iter().map(|c| format!("b{c}")).collect();
                if !forward {
                    wanted.reverse();
                }
                assert_eq!(found, wanted, "limit {limit}, forward {forward}");
            }
            let mut all: Vec<String> = Vec::new();
            for segment in 0..3 {
                let scan =
                    json!({ "TableName": "paged", "Limit": limit, "Segment": segment, "TotalSegments": 3 });
                all.extend(pages(&api, "Scan", scan).0);
            }
            let (whole, _) = pages(&api, "Scan", json!({ "TableName": "paged", "Limit": limit }));
            assert_eq!(all, whole, "segments in order are the ring in order");
            assert_eq!(all.len(), 18);
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 18);
        }
    }
}

/// Items that a filter looks at, and those whose rows are sent as they are.
#[test]
fn items_are_the_same_with_a_filter_that_all_pass() {
    let api = api(Isolation::Always);
    create(&api, "either", Some("S"));
    let item = |p: &str, c: &str, more: Json| {
        let mut item = json!({ "p": { "S": p }, "c": { "S": c } });
        item.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body_of(call(&api, "PutItem", &json!({ "TableName": "either", "Item": item }).to_string()));
    };
    item("a", "\"1\\", json!({}));
    item(
        "a",
        "2",
        json!({ "a": { "N": "1E20" }, "cc": { "L": [{ "N": "1E60" }] }, "q\"": { "S": "\u{1}" } }),
    );
    item("b", "3", json!({ "d": { "B": "AAE=" }, "o": { "BOOL": true }, "z": { "SS": ["x", "y"] } }));
    for (operation, mut request) in [
        ("Scan", json!({})),
        ("Scan", json!({ "Limit": 2, "ReturnConsumedCapacity": "TOTAL" })),
        ("Query", json!({ "KeyConditionExpression": "p = :p", "ReturnConsumedCapacity": "TOTAL" })),
        ("Query", json!({ "KeyConditionExpression": "p = :p", "Limit": 1, "ScanIndexForward": false })),
    ] {
        request["TableName"] = json!("either");
        if operation == "Query" {
            request["ExpressionAttributeValues"] = json!({ ":p": { "S": "a" } });
        }
        let plain = body_of(call(&api, operation, &request.to_string()));
        assert_ne!(plain["Count"], json!(0));
        request["FilterExpression"] = json!("attribute_not_exists(nowhere)");
        assert_eq!(plain, body_of(call(&api, operation, &request.to_string())), "{operation}");
    }
}

#[test]
fn large_items_end_a_page_at_a_megabyte() {
    let api = api(Isolation::OnlyRmw);
    create(&api, "large", Some("N"));
    for c in 0..8 {
        let item = json!({ "TableName": "large", "Item": {
            "p": { "S": "a" }, "c": { "N": c.to_string() }, "v": { "S": "x".repeat(300_000) }
        } });
        body_of(call(&api, "PutItem", &item.to_string()));
    }
    let query = json!({
        "TableName": "large", "KeyConditionExpression": "p = :p", "ExpressionAttributeValues": { ":p": { "S": "a" } }
    });
    let first = body_of(call(&api, "Query", &query.to_string()));
    assert_eq!(first["Count"], 4);
    assert_eq!(pages(&api, "Query", query).0.len(), 8);
    let item = json!({ "TableName": "large", "Item": {
        "p": { "S": "a" }, "c": { "N": "9" }, "v": { "S": "x".repeat(410_000) }
    } });
    let answer = call(&api, "PutItem", &item.to_string());
    assert!(answer.body.contains("Item size has exceeded the maximum allowed size"));
}

#[test]
fn a_batch_of_reads_has_no_more_than_16_megabytes() {
    let api = api(Isolation::OnlyRmw);
    create(&api, "sixteen", Some("N"));
    let key = |c: u32| json!({ "p": { "S": "a" }, "c": { "N": c.to_string() } });
    for c in 0..60 {
        let mut item = key(c);
        item["v"] = json!({ "S": "x".repeat(307_000) });
        body_of(call(&api, "PutItem", &json!({ "TableName": "sixteen", "Item": item }).to_string()));
    }
    let keys: Vec<_> = (0..60).map(key).collect();
    let batch = json!({ "RequestItems": { "sixteen": { "Keys": keys } } });
    let answer = body_of(call(&api, "BatchGetItem", &batch.to_string()));
    let items = answer["Responses"]["sixteen"].as_array().expect("a list").len();
    let left = answer["UnprocessedKeys"]["sixteen"]["Keys"].as_array().expect("a list").len();
    assert_eq!((items, left), (54, 6));
}

#[test]
fn a_write_mode_that_forbids_reads_refuses_conditions() {
    let api = api(Isolation::ForbidRmw);
    create(&api, "forbid", None);
    let put = json!({ "TableName": "forbid", "Item": { "p": { "S": "a" } } });
    body_of(call(&api, "PutItem", &put.to_string()));
    let mut conditional = put;
    conditional["ConditionExpression"] = json!("attribute_not_exists(p)");
    let answer = call(&api, "PutItem", &conditional.to_string());
    assert!(answer.body.contains("forbid_rmw"), "{}", answer.body);
    let tag = json!({
        "ResourceArn": "arn:aws:dynamodb:us-east-1:000000000000:table/forbid",
        "Tags": [{ "Key": "system:write_isolation", "Value": "always" }]
    });
    body_of(call(&api, "TagResource", &tag.to_string()));
    let answer = call(&api, "PutItem", &conditional.to_string());
    assert!(answer.body.contains("ConditionalCheckFailedException"), "the tag decides: {}", answer.body);
}

#[test]
fn the_described_endpoint_is_a_choice_of_the_operator() {
    let described = |option: &str| {
        let described_endpoint = DescribedEndpoint::from_option(option);
        let settings = ApiSettings { described_endpoint, ..ApiSettings::default() };
        let api = api(Isolation::Always).with_settings(settings);
        call(&api, "DescribeEndpoints", "{}")
    };
    let address = |answer: Answer| body_of(answer)["Endpoints"][0]["Address"].clone();
    assert_eq!(address(described("")), "localhost:8000", "the client's own");
    assert_eq!(address(described("db.example:443")), "db.example:443");
    let refused = described("disabled");
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("UnknownOperationException") && refused.body.contains("disabled"));
}

#[test]
fn documents_are_so_deep_and_names_so_long() {
    let api = api(Isolation::Always);
    create(&api, "limits", None);
    let put = |attribute: &str| {
        let body = format!(r#"{{"TableName":"limits","Item":{{"p":{{"S":"k"}},{attribute}}}}}"#);
        let answer = call(&api, "PutItem", &body);
        (answer.status, answer.body)
    };
    let nested =
        |levels| put(&format!(r#""a":{}{{"S":"x"}}{}"#, r#"{"L":["#.repeat(levels), "]}".repeat(levels)));
    assert_eq!(nested(31).0, 200);
    for levels in [40, 62, 63, 64, 1000] {
        let (status, body) = nested(levels);
        assert_eq!(status, 400);
        assert!(body.contains("#ValidationException") && body.contains("Nesting Levels"), "{levels}: {body}");
    }
    let (longest, longer) = ("n".repeat(65_535), "n".repeat(65_536));
    assert_eq!(put(&format!(r#""{longest}":{{"S":"x"}}"#)).0, 200);
    for attribute in
        [format!(r#""{longer}":{{"S":"x"}}"#), format!(r#""m":{{"M":{{"{longer}":{{"S":"x"}}}}}}"#)]
    {
        let (status, body) = put(&attribute);
        assert_eq!(status, 400);
        assert!(body.contains("Attribute name is too large, must be less than 65536 bytes"), "{body}");
    }
}

#[test]
fn hostile_bodies_are_refused() {
    let api = api(Isolation::Always);
    create(&api, "hostile", None);
    for body in [
        "",
        "[]",
        "null",
        "{",
        "\u{0}",
        "{\"TableName\":5}",
        &"[".repeat(100_000),
        &"{\"a\":".repeat(100_000),
    ] {
        for operation in ["PutItem", "Query", "CreateTable", "BatchWriteItem", "UpdateItem", "TagResource"] {
            assert_eq!(call(&api, operation, body).status, 400);
        }
    }
    let number = "9".repeat(1_000_000);
    let put = json!({ "TableName": "hostile", "Item": { "p": { "S": "a" }, "n": { "N": number } } });
    let answer = call(&api, "PutItem", &put.to_string());
    assert!(answer.body.contains("Number overflow"), "{}", answer.body.len());
    let deep = format!("{}{{\"S\":\"x\"}}{}", r#"{"L":["#.repeat(33), "]}".repeat(33));
    let put = format!(r#"{{"TableName":"hostile","Item":{{"p":{{"S":"a"}},"d":{deep}}}}}"#);
    assert!(call(&api, "PutItem", &put).body.contains("Nesting Levels have exceeded supported limits"));
    // Two bytes each, which take tens of bytes of memory; brackets of texts do not count.
    for (values, text, error) in
        [(400_000, "", "more than 400000 values"), (1_000, "[,{\\\"", "Serialization")]
    {
        let body = format!("{{\"a\":[{}\"{}\"]}}.", "0,".repeat(values), text.repeat(400_000));
        let answer = call(&api, "PutItem", &body);
        assert!(answer.body.contains(error), "{values}: {}", answer.body);
    }
}

#[test]
fn items_whose_time_is_over_are_deleted() {
    let api = api(Isolation::Always);
    for name in ["ends", "lasts"] {
        create(&api, name, None);
        for at in 0..250 {
            // The clock of the test stands at 1,700,000,000 seconds.
            let ends = 1_700_000_000 - 100 + at;
            let item = json!({ "p": { "S": format!("{at}") }, "t": { "N": ends.to_string() } });
            let put = json!({ "TableName": name, "Item": item });
            body_of(call(&api, "PutItem", &put.to_string()));
        }
    }
    let specification = json!({ "Enabled": true, "AttributeName": "t" });
    let update = json!({ "TableName": "ends", "TimeToLiveSpecification": specification });
    body_of(call(&api, "UpdateTimeToLive", &update.to_string()));
    let count =
        |name: &str| body_of(call(&api, "Scan", &json!({ "TableName": name }).to_string()))["Count"].clone();
    assert_eq!(ready(api.expire()), Ok(100));
    assert_eq!((count("ends"), count("lasts")), (json!(150), json!(250)));
    assert_eq!(ready(api.expire()), Ok(0));
}

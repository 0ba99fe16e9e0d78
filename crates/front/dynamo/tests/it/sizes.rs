//! Sizes by statistics: of tables and indexes (DescribeTable), and of item collections (ReturnItemCollectionMetrics).

use std::rc::Rc;

use dynamo::{Dynamo, Isolation};
use exec::{ExecLimits, Executor, NodeInfo};
use serde_json::{Value as Json, json};

use crate::memory::{Memory, TestClock};
use crate::{body_of, call, create, pages};

fn api_over(memory: Memory) -> Dynamo<Memory> {
    let node = NodeInfo {
        cluster_name: "c".to_owned(),
        snitch: "s".to_owned(),
        address: ([127, 0, 0, 1], 9042).into(),
    };
    let executor = Executor::new(memory, Rc::new(TestClock::default()), node, ExecLimits::default());
    Dynamo::new(Rc::new(executor), Isolation::Always)
}

/// A table with two local indexes and a global one.
fn create_indexed(api: &Dynamo<Memory>) {
    let keys = |range: &str| json!([{ "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": range, "KeyType": "RANGE" }]);
    let index = |name: &str, range: &str| json!({ "IndexName": name, "KeySchema": keys(range), "Projection": { "ProjectionType": "ALL" } });
    let attribute = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
    let request = json!({
        "TableName": "indexed", "BillingMode": "PAY_PER_REQUEST", "KeySchema": keys("c"),
        "AttributeDefinitions": [attribute("p"), attribute("c"), attribute("a"), attribute("b")],
        "LocalSecondaryIndexes": [index("by_a", "a"), index("by_b", "b")],
        "GlobalSecondaryIndexes": [index("everywhere", "a")],
    });
    body_of(call(api, "CreateTable", &request.to_string()));
}

fn put(api: &Dynamo<Memory>, table: &str, p: &str, c: &str) -> Json {
    let request = json!({
        "TableName": table, "Item": { "p": { "S": p }, "c": { "S": c } }, "ReturnItemCollectionMetrics": "SIZE"
    });
    body_of(call(api, "PutItem", &request.to_string()))
}

fn collection(p: &str, upper: f64) -> Json {
    json!({ "ItemCollectionKey": { "p": { "S": p } }, "SizeEstimateRangeGB": [0.0, upper] })
}

#[test]
fn every_write_shows_the_collection_of_its_item() {
    let api = api_over(Memory::new());
    create_indexed(&api);
    create(&api, "plain", Some("S"));
    assert_eq!(put(&api, "indexed", "x", "1"), json!({ "ItemCollectionMetrics": collection("x", 1.0) }));
    assert_eq!(put(&api, "plain", "x", "1"), json!({}), "a table without local indexes has none");
    let key = json!({ "p": { "S": "x" }, "c": { "S": "1" } });
    for operation in ["UpdateItem", "DeleteItem"] {
        let request = json!({ "TableName": "indexed", "Key": key, "ReturnItemCollectionMetrics": "SIZE" });
        let answer = body_of(call(&api, operation, &request.to_string()));
        assert_eq!(answer["ItemCollectionMetrics"], collection("x", 1.0), "{operation}");
    }
    for value in [json!("NONE"), Json::Null] {
        let request = json!({ "TableName": "indexed", "Key": key, "ReturnItemCollectionMetrics": value });
        assert_eq!(body_of(call(&api, "UpdateItem", &request.to_string())), json!({}));
    }
}

#[test]
fn batches_and_transactions_show_each_collection_once() {
    let api = api_over(Memory::new());
    create_indexed(&api);
    create(&api, "plain", Some("S"));
    let item = |p: &str, c: &str| json!({ "p": { "S": p }, "c": { "S": c } });
    let put = |p: &str, c: &str| json!({ "PutRequest": { "Item": item(p, c) } });
    let batch = json!({ "ReturnItemCollectionMetrics": "SIZE", "RequestItems": {
        "indexed": [put("x", "1"), put("x", "2"), { "DeleteRequest": { "Key": item("y", "1") } }],
        "plain": [put("x", "1")],
    } });
    let expected = json!({ "indexed": [collection("x", 1.0), collection("y", 1.0)] });
    let answer = body_of(call(&api, "BatchWriteItem", &batch.to_string()));
    assert_eq!(answer["ItemCollectionMetrics"], expected);
    let of = |name: &str, p: &str, c: &str| {
        let condition = "attribute_not_exists(z)";
        match name {
            "Put" => json!({ name: { "TableName": "indexed", "Item": item(p, c) } }),
            "ConditionCheck" => {
                json!({ name: { "TableName": "indexed", "Key": item(p, c), "ConditionExpression": condition } })
            }
            _ => json!({ name: { "TableName": "indexed", "Key": item(p, c) } }),
        }
    };
    let parts =
        [of("Put", "x", "3"), of("Delete", "x", "1"), of("Put", "y", "2"), of("ConditionCheck", "z", "1")];
    let mut request = json!({ "ReturnItemCollectionMetrics": "SIZE", "TransactItems": parts });
    let answer = body_of(call(&api, "TransactWriteItems", &request.to_string()));
    assert_eq!(answer["ItemCollectionMetrics"], expected, "a check writes nothing");
    request["ReturnItemCollectionMetrics"] = json!("NONE");
    assert_eq!(body_of(call(&api, "TransactWriteItems", &request.to_string())), json!({}));
}

#[test]
fn a_collection_is_no_larger_than_the_largest_partition_and_its_indexes() {
    let memory = Memory::new();
    memory.row_bytes.set(1 << 30);
    let api = api_over(memory);
    create_indexed(&api);
    put(&api, "indexed", "x", "1");
    assert_eq!(put(&api, "indexed", "x", "2"), json!({ "ItemCollectionMetrics": collection("x", 6.0) }));
}

#[test]
fn the_parameter_has_two_values() {
    let api = api_over(Memory::new());
    create_indexed(&api);
    let key = json!({ "p": { "S": "x" }, "c": { "S": "1" } });
    let requests = [
        ("PutItem", json!({ "TableName": "indexed", "Item": key })),
        ("UpdateItem", json!({ "TableName": "indexed", "Key": key })),
        ("DeleteItem", json!({ "TableName": "indexed", "Key": key })),
        ("BatchWriteItem", json!({ "RequestItems": { "indexed": [{ "PutRequest": { "Item": key } }] } })),
        (
            "TransactWriteItems",
            json!({ "TransactItems": [{ "Put": { "TableName": "indexed", "Item": key } }] }),
        ),
    ];
    for (operation, mut request) in requests {
        request["ReturnItemCollectionMetrics"] = json!("BYTES");
        let answer = call(&api, operation, &request.to_string());
        assert_eq!(answer.status, 400, "{operation}");
        let text = "1 validation error detected: Value 'BYTES' at 'returnItemCollectionMetrics' failed to satisfy \
                    constraint: Member must satisfy enum value set: [SIZE, NONE]";
        assert!(answer.body.contains(text), "{operation}: {}", answer.body);
    }
}

#[test]
fn tables_and_indexes_show_what_they_hold() {
    let sizes = |memory: Memory| {
        let api = api_over(memory);
        create_indexed(&api);
        for c in ["1", "2", "3"] {
            put(&api, "indexed", "x", c);
        }
        let table = body_of(call(&api, "DescribeTable", r#"{"TableName":"indexed"}"#))["Table"].clone();
        let figures = [
            &table["ItemCount"],
            &table["TableSizeBytes"],
            &table["LocalSecondaryIndexes"][1]["ItemCount"],
            &table["GlobalSecondaryIndexes"][0]["IndexSizeBytes"],
        ];
        figures.map(|figure| figure.as_u64().expect("a number"))
    };
    assert_eq!(sizes(Memory::new()), [3, 300, 3, 300]);
    // Two nodes of one datacenter with one replica: the first has nearly all of the ring.
    assert_eq!(sizes(Memory::with_nodes(&["datacenter1", "datacenter1"])), [3, 300, 3, 300]);
}

/// Three bytes of a number may be sent as more than a hundred.
#[test]
fn the_bytes_that_are_sent_end_a_page_and_a_batch() {
    let api = api_over(Memory::new());
    create(&api, "long", Some("N"));
    let list = vec![json!({ "N": "1E125" }); 64_000];
    for c in 0..6 {
        let item = json!({ "p": { "S": "a" }, "c": { "N": c.to_string() }, "l": { "L": list } });
        body_of(call(&api, "PutItem", &json!({ "TableName": "long", "Item": item }).to_string()));
    }
    let query = json!({
        "TableName": "long", "KeyConditionExpression": "p = :p", "ExpressionAttributeValues": { ":p": { "S": "a" } }
    });
    let page = call(&api, "Query", &query.to_string());
    assert!(page.body.len() < 9 << 20, "{}", page.body.len());
    let page = body_of(page);
    assert_eq!((&page["Count"], &page["LastEvaluatedKey"]["c"]), (&json!(1), &json!({ "N": "0" })));
    let statement = json!({ "Statement": "SELECT * FROM \"long\" WHERE p = 'a' AND c IN [0, 1, 2]" });
    let page = body_of(call(&api, "ExecuteStatement", &statement.to_string()));
    assert_eq!(page["Items"].as_array().map(Vec::len), Some(1));
    assert!(page.get("NextToken").is_some());
    let key = |c: u32| json!({ "p": { "S": "a" }, "c": { "N": c.to_string() } });
    let keys: Vec<Json> = (0..6).map(key).collect();
    let batch = json!({ "RequestItems": { "long": { "Keys": keys } } });
    let answer = call(&api, "BatchGetItem", &batch.to_string());
    assert!(answer.body.len() < 42 << 20, "{}", answer.body.len());
    let answer = body_of(answer);
    assert_eq!(answer["Responses"]["long"].as_array().map(Vec::len), Some(4));
    assert_eq!(answer["UnprocessedKeys"]["long"]["Keys"], json!([key(4), key(5)]));
    let get = |c: u32| json!({ "Get": { "TableName": "long", "Key": key(c) } });
    let transaction = |count: u32| json!({ "TransactItems": (0..count).map(get).collect::<Vec<_>>() });
    assert_eq!(call(&api, "TransactGetItems", &transaction(2).to_string()).status, 200);
    let refused = call(&api, "TransactGetItems", &transaction(6).to_string());
    assert!(refused.body.contains("ask for fewer items"), "{}", refused.body.len());
}

/// The items beyond the bytes of an answer are not even read.
#[test]
fn a_transaction_reads_no_more_items_than_it_may_give() {
    let memory = Memory::new();
    let api = api_over(memory.clone());
    create(&api, "large", Some("N"));
    for c in 0..30 {
        let item =
            json!({ "p": { "S": "a" }, "c": { "N": c.to_string() }, "v": { "S": "x".repeat(390_000) } });
        body_of(call(&api, "PutItem", &json!({ "TableName": "large", "Item": item }).to_string()));
    }
    let get = |c: u32| json!({ "Get": { "TableName": "large", "Key": { "p": { "S": "a" }, "c": { "N": c.to_string() } } } });
    let transaction = |count: u32| json!({ "TransactItems": (0..count).map(get).collect::<Vec<_>>() });
    assert_eq!(call(&api, "TransactGetItems", &transaction(10).to_string()).status, 200);
    let refused = call(&api, "TransactGetItems", &transaction(30).to_string());
    assert!(refused.body.contains("exceeds the maximum allowed size of 4 MB"), "{}", refused.body.len());
}

/// The items of failed conditions count as those of other answers do.
#[test]
fn items_of_failed_conditions_end_an_answer() {
    let api = api_over(Memory::new());
    create(&api, "long", Some("N"));
    let key = |c: u32| json!({ "p": { "S": "a" }, "c": { "N": c.to_string() } });
    let list = vec![json!({ "N": "1E125" }); 64_000];
    for c in 0..12 {
        let mut item = key(c);
        item["l"] = json!({ "L": list });
        body_of(call(&api, "PutItem", &json!({ "TableName": "long", "Item": item }).to_string()));
    }
    let check = |c: u32| {
        json!({ "ConditionCheck": {
            "TableName": "long", "Key": key(c), "ConditionExpression": "attribute_exists(z)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD"
        } })
    };
    let transaction = |count: u32| {
        let request = json!({ "TransactItems": (0..count).map(check).collect::<Vec<_>>() });
        call(&api, "TransactWriteItems", &request.to_string())
    };
    let cancelled = transaction(2);
    let body: Json = serde_json::from_str(&cancelled.body).expect("JSON");
    assert_eq!(cancelled.status, 400);
    let reason = &body["CancellationReasons"][1];
    assert_eq!(reason["Code"], "ConditionalCheckFailed");
    assert_eq!(reason["Item"]["l"]["L"].as_array().map(Vec::len), Some(64_000));
    let refused = transaction(12);
    assert!(refused.body.len() < 1000, "{} bytes", refused.body.len());
    assert!(
        refused.body.contains("ValidationException") && refused.body.contains("ask for fewer"),
        "{}",
        refused.body
    );
    let exists = |c: u32| {
        let text = format!("EXISTS(SELECT * FROM \"long\" WHERE p = 'a' AND c = {c} AND z = 1)");
        json!({ "Statement": text, "ReturnValuesOnConditionCheckFailure": "ALL_OLD" })
    };
    let request = json!({ "TransactStatements": (0..12).map(exists).collect::<Vec<_>>() });
    let refused = call(&api, "ExecuteTransaction", &request.to_string());
    assert!(refused.body.len() < 1000 && refused.body.contains("ask for fewer"), "{}", refused.body.len());
}

/// Statements whose items an answer has no room for are not carried out, so a client may repeat them.
#[test]
fn a_batch_of_statements_ends_with_the_bytes_of_an_answer() {
    let api = api_over(Memory::new());
    create(&api, "long", Some("N"));
    let list = vec![json!({ "N": "1E125" }); 64_000];
    for c in 0..12 {
        let item = json!({ "p": { "S": "a" }, "c": { "N": c.to_string() }, "l": { "L": list } });
        body_of(call(&api, "PutItem", &json!({ "TableName": "long", "Item": item }).to_string()));
    }
    let batch = |statement: &dyn Fn(u32) -> String| {
        let one = |c| {
            let text = statement(c);
            json!({ "Statement": text, "ReturnValuesOnConditionCheckFailure": "ALL_OLD" })
        };
        let request = json!({ "Statements": (0..12).map(one).collect::<Vec<_>>() });
        let answer = call(&api, "BatchExecuteStatement", &request.to_string());
        assert!(answer.body.len() < 80 << 20, "{} bytes", answer.body.len());
        body_of(answer)["Responses"].as_array().expect("a list").clone()
    };
    let failed =
        batch(&|c| format!("UPDATE \"long\" SET y = 1 WHERE p = 'a' AND c = {c} AND attribute_type(z, 'S')"));
    let items = failed.iter().take_while(|one| one["Error"]["Code"] == "ConditionalCheckFailed").count();
    assert!((4..10).contains(&items), "{items} items are in the answer");
    assert!(failed[..items].iter().all(|one| one["Error"]["Item"]["l"].is_object()));
    assert_eq!(failed[11]["Error"]["Code"], "RequestLimitExceeded");
    assert!(failed[11]["Error"].get("Item").is_none());
    let deleted = batch(&|c| format!("DELETE FROM \"long\" WHERE p = 'a' AND c = {c} RETURNING ALL OLD *"));
    let shown = deleted.iter().filter(|one| one.get("Item").is_some()).count();
    assert!((4..10).contains(&shown), "{shown} items are in the answer");
    assert_eq!(deleted[11]["Error"]["Code"], "RequestLimitExceeded");
    let scan = json!({ "TableName": "long", "ProjectionExpression": "p, c" });
    let (left, _) = pages(&api, "Scan", scan);
    assert_eq!(left.len(), 12 - shown, "what was refused was not carried out");
}

//! Secondary indexes: a Query or Scan of one finds the same items as a full scan.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::memory::Memory;
use crate::{Isolation, api, body_of, call};
use dynamo::Dynamo;

/// A small generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}

fn index(name: &str, keys: &[&str], projection: Json) -> Json {
    let keys: Vec<Json> = keys
        .iter()
        .zip(["HASH", "RANGE"])
        .map(|(name, kind)| json!({ "AttributeName": name, "KeyType": kind }))
        .collect();
    json!({ "IndexName": name, "KeySchema": keys, "Projection": projection })
}

/// The keys of each index of the table of these tests.
const INDEXES: [(&str, &[&str]); 5] = [
    ("by_g", &["g"]),
    ("by_g_h", &["g", "h"]),
    ("by_r", &["r", "g"]),
    ("by_p_h", &["p", "h"]),
    ("local_h", &["p", "h"]),
];

fn create(api: &Dynamo<Memory>) {
    let all = || json!({ "ProjectionType": "ALL" });
    let definitions: Vec<Json> = [("p", "S"), ("r", "N"), ("g", "S"), ("h", "N")]
        .iter()
        .map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind }))
        .collect();
    let body = json!({
        "TableName": "indexed",
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": definitions,
        "KeySchema": [
            { "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "r", "KeyType": "RANGE" }
        ],
        "GlobalSecondaryIndexes": [
            index("by_g", &["g"], json!({ "ProjectionType": "KEYS_ONLY" })),
            index("by_g_h", &["g", "h"], all()),
            index("by_r", &["r", "g"], all()),
            index("by_p_h", &["p", "h"], json!({ "ProjectionType": "INCLUDE", "NonKeyAttributes": ["v"] })),
        ],
        "LocalSecondaryIndexes": [index("local_h", &["p", "h"], json!({ "ProjectionType": "KEYS_ONLY" }))],
    });
    body_of(call(api, "CreateTable", &body.to_string()));
}

/// The items of all pages, and the bounds that a page must keep.
fn pages(api: &Dynamo<Memory>, operation: &str, mut request: Json) -> Vec<Json> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let answer = body_of(call(api, operation, &request.to_string()));
        let items = answer["Items"].as_array().expect("items");
        assert!(request["Limit"].as_u64().is_none_or(|limit| items.len() as u64 <= limit));
        found.extend(items.iter().cloned());
        match answer.get("LastEvaluatedKey") {
            Some(key) => request["ExclusiveStartKey"] = key.clone(),
            None => return found,
        }
    }
    panic!("paging ends");
}

fn number(item: &Json, name: &str) -> Option<i64> {
    item[name]["N"].as_str().and_then(|text| text.parse().ok())
}

/// Changes of a few items, many times over.
fn change(api: &Dynamo<Memory>, random: &mut Random, items: &mut BTreeMap<(String, i64), Json>) {
    let (p, r) = (["a", "b", "c"][random.below(3) as usize].to_owned(), random.below(8) as i64);
    let key = json!({ "p": { "S": p }, "r": { "N": r.to_string() } });
    match random.below(8) {
        0 => {
            let request = json!({ "TableName": "indexed", "Key": key });
            body_of(call(api, "DeleteItem", &request.to_string()));
            items.remove(&(p, r));
        }
        1 => {
            let request = json!({ "TableName": "indexed", "Key": key, "UpdateExpression": "REMOVE g" });
            body_of(call(api, "UpdateItem", &request.to_string()));
            if let Some(item) = items.get_mut(&(p, r)) {
                item.as_object_mut().expect("an item").remove("g");
            }
        }
        2 => {
            let h = random.below(4).to_string();
            let request = json!({
                "TableName": "indexed", "Key": key, "UpdateExpression": "SET h = :h",
                "ExpressionAttributeValues": { ":h": { "N": h } }
            });
            body_of(call(api, "UpdateItem", &request.to_string()));
            items.entry((p, r)).or_insert(key)["h"] = json!({ "N": h });
        }
        _ => {
            let mut item = key;
            if random.below(4) > 0 {
                let g = if random.below(2) == 0 { "x" } else { "y" };
                item["g"] = json!({ "S": g });
            }
            if random.below(4) > 0 {
                item["h"] = json!({ "N": random.below(4).to_string() });
            }
            item["v"] = json!({ "S": "value" });
            item["w"] = json!({ "BOOL": true });
            let request = json!({ "TableName": "indexed", "Item": item });
            body_of(call(api, "PutItem", &request.to_string()));
            items.insert((p, r), item);
        }
    }
}

/// The attributes that an index has of an item; none when it does not have it.
fn shown(name: &str, keys: &[&str], item: &Json) -> Option<Json> {
    if keys.iter().any(|key| item.get(key).is_none()) {
        return None;
    }
    let wanted: &[&str] = match name {
        "by_g" => &["p", "r", "g"],
        "by_p_h" => &["p", "r", "h", "v"],
        "local_h" => &["p", "r", "h"],
        _ => return Some(item.clone()),
    };
    let members = item.as_object()?.iter().filter(|(name, _)| wanted.contains(&name.as_str()));
    Some(Json::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect()))
}

fn sorted(items: Vec<Json>) -> Vec<String> {
    let mut items: Vec<String> = items.into_iter().map(canonical).collect();
    items.sort();
    items
}

/// The text of an item with its members in order.
fn canonical(item: Json) -> String {
    let members: BTreeMap<String, Json> = item.as_object().expect("an item").clone().into_iter().collect();
    serde_json::to_string(&members).expect("JSON")
}

#[test]
fn an_index_finds_the_items_of_a_full_scan() {
    for seed in 0..3 {
        let api = api(Isolation::Always);
        create(&api);
        let (mut random, mut items) = (Random(seed), BTreeMap::new());
        for _ in 0..120 {
            change(&api, &mut random, &mut items);
        }
        let all: Vec<Json> = items.into_values().collect();
        for (name, keys) in INDEXES {
            let within: Vec<Json> = all.iter().filter_map(|item| shown(name, keys, item)).collect();
            for limit in [1, 4, 100] {
                let scan = json!({ "TableName": "indexed", "IndexName": name, "Limit": limit });
                let found = pages(&api, "Scan", scan);
                assert_eq!(sorted(found), sorted(within.clone()), "seed {seed}, {name}, scan by {limit}");
                for forward in [true, false] {
                    queries(&api, (name, keys), &within, (limit, forward));
                }
            }
        }
    }
}

/// Queries of every hash key, with conditions on the range key.
fn queries(
    api: &Dynamo<Memory>,
    (name, keys): (&str, &[&str]),
    within: &[Json],
    (limit, forward): (u64, bool),
) {
    let mut hashes: Vec<&Json> = within.iter().map(|item| &item[keys[0]]).collect();
    hashes.sort_by_key(|hash| hash.to_string());
    hashes.dedup();
    let is_numeric = keys.get(1) == Some(&"h");
    for hash in hashes {
        for (condition, low) in [("", i64::MIN), (" AND h >= :low", 2)] {
            if !condition.is_empty() && !is_numeric {
                continue;
            }
            let mut values = json!({ ":hash": hash });
            if !condition.is_empty() {
                values[":low"] = json!({ "N": low.to_string() });
            }
            let query = json!({
                "TableName": "indexed", "IndexName": name, "Limit": limit, "ScanIndexForward": forward,
                "KeyConditionExpression": format!("{} = :hash{condition}", keys[0]),
                "ExpressionAttributeValues": values, "ConsistentRead": name == "local_h" && limit % 2 == 0
            });
            let found = pages(api, "Query", query);
            let of_hash = within.iter().filter(|item| item[keys[0]] == *hash);
            let expected = of_hash.filter(|item| !is_numeric || number(item, "h").is_some_and(|h| h >= low));
            assert_eq!(
                sorted(found.clone()),
                sorted(expected.cloned().collect()),
                "{name} {hash} by {limit}"
            );
            if is_numeric {
                let order: Vec<_> = found.iter().map(|item| number(item, "h")).collect();
                let mut wanted = order.clone();
                wanted.sort();
                if !forward {
                    wanted.reverse();
                }
                assert_eq!(order, wanted, "{name} {hash}");
            }
        }
    }
}

#[test]
fn large_items_of_an_index_end_a_page_at_a_megabyte() {
    let api = api(Isolation::OnlyRmw);
    create(&api);
    for r in 0..8 {
        let item = json!({
            "p": { "S": "a" }, "r": { "N": r.to_string() }, "g": { "S": "x" }, "h": { "N": (8 - r).to_string() },
            "v": { "S": "x".repeat(300_000) }
        });
        body_of(call(&api, "PutItem", &json!({ "TableName": "indexed", "Item": item }).to_string()));
    }
    for (name, hash, first) in [("by_g_h", "g = :x", 4), ("by_p_h", "p = :a", 4), ("local_h", "p = :a", 8)] {
        let value =
            if hash == "g = :x" { json!({ ":x": { "S": "x" } }) } else { json!({ ":a": { "S": "a" } }) };
        let query = json!({
            "TableName": "indexed", "IndexName": name, "KeyConditionExpression": hash,
            "ExpressionAttributeValues": value
        });
        assert_eq!(body_of(call(&api, "Query", &query.to_string()))["Count"], first, "{name}");
        let order: Vec<_> = pages(&api, "Query", query).iter().map(|item| number(item, "h")).collect();
        assert_eq!(order, (1..=8).map(Some).collect::<Vec<_>>(), "{name}");
    }
}

/// A table whose index has two attributes in the hash key and two in the range key.
fn create_composite(api: &Dynamo<Memory>) {
    let element = |(name, kind): (&str, &str)| json!({ "AttributeName": name, "KeyType": kind });
    let definitions: Vec<Json> = [("p", "S"), ("a", "S"), ("b", "N"), ("c", "S"), ("d", "N")]
        .iter()
        .map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind }))
        .collect();
    let keys = [("a", "HASH"), ("b", "HASH"), ("c", "RANGE"), ("d", "RANGE")].map(element);
    let body = json!({
        "TableName": "composite", "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": definitions,
        "KeySchema": [element(("p", "HASH"))],
        "GlobalSecondaryIndexes": [
            { "IndexName": "four", "KeySchema": keys, "Projection": { "ProjectionType": "KEYS_ONLY" } }
        ],
    });
    let made = body_of(call(api, "CreateTable", &body.to_string()));
    assert_eq!(made["TableDescription"]["GlobalSecondaryIndexes"][0]["KeySchema"], json!(keys));
}

/// A Query of the index: all of its pages.
fn query_composite(api: &Dynamo<Memory>, condition: &str, forward: bool, limit: u64) -> Vec<String> {
    let values = json!({
        ":a": { "S": "a1" }, ":b": { "N": "1" }, ":c": { "S": "c1" }, ":d": { "N": "2" }, ":e": { "N": "4" }
    });
    let used = values.as_object().expect("values").iter().filter(|(name, _)| condition.contains(*name));
    let used: serde_json::Map<String, Json> =
        used.map(|(name, value)| (name.clone(), value.clone())).collect();
    let request = json!({
        "TableName": "composite", "IndexName": "four", "KeyConditionExpression": condition, "Limit": limit,
        "ExpressionAttributeValues": used, "ScanIndexForward": forward
    });
    let found = pages(api, "Query", request);
    found.iter().map(|item| item["p"]["S"].as_str().expect("a key").to_owned()).collect()
}

#[test]
fn an_index_has_several_attributes_in_its_keys() {
    let api = api(Isolation::Always);
    create_composite(&api);
    // Items that lack an attribute of the keys are in no index.
    let mut wanted: Vec<(String, i64, String)> = Vec::new();
    for (at, a) in (0..72).zip(["a1", "a2"].iter().cycle()) {
        let (b, c, d) = (at / 2 % 2, at / 4 % 3, at / 12);
        let p = format!("p{at}");
        let mut item = json!({
            "p": { "S": p }, "a": { "S": a }, "b": { "N": b.to_string() }, "c": { "S": format!("c{c}") },
            "d": { "N": d.to_string() }, "v": { "S": "value" }
        });
        if at % 10 == 8 {
            item.as_object_mut().expect("an item").remove("b");
        } else if *a == "a1" && b == 1 {
            wanted.push((format!("c{c}"), d, p));
        }
        body_of(call(&api, "PutItem", &json!({ "TableName": "composite", "Item": item }).to_string()));
    }
    wanted.sort();
    let keys = |of: &dyn Fn(&str, i64) -> bool| -> Vec<String> {
        wanted.iter().filter(|(c, d, _)| of(c, *d)).map(|(_, _, p)| p.clone()).collect()
    };
    let conditions: [(&str, &dyn Fn(&str, i64) -> bool); 6] = [
        ("a = :a AND b = :b", &|_, _| true),
        ("b = :b AND a = :a AND c = :c", &|c, _| c == "c1"),
        ("a = :a AND b = :b AND c > :c", &|c, _| c > "c1"),
        ("a = :a AND b = :b AND c = :c AND d = :d", &|c, d| c == "c1" && d == 2),
        ("a = :a AND b = :b AND c = :c AND d BETWEEN :d AND :e", &|c, d| c == "c1" && (2..=4).contains(&d)),
        ("a = :a AND b = :b AND begins_with(c, :c)", &|c, _| c == "c1"),
    ];
    for (condition, of) in conditions {
        for limit in [1, 3, 100] {
            assert_eq!(query_composite(&api, condition, true, limit), keys(of), "{condition}, {limit}");
            let mut reversed = keys(of);
            reversed.reverse();
            assert_eq!(query_composite(&api, condition, false, limit), reversed, "{condition}, {limit}");
        }
    }
    assert!(wanted.len() > 10 && keys(&|c, d| c == "c1" && d == 2).len() == 1);
}

#[test]
fn conditions_and_schemas_that_composite_keys_cannot_have_are_refused() {
    let api = api(Isolation::Always);
    create_composite(&api);
    for (condition, error) in [
        ("a = :a", "Query condition missed key schema element: b"),
        ("b = :b AND c = :c", "Query condition missed key schema element: a"),
        ("a = :a AND b = :b AND d = :d", "Query condition missed key schema element: c"),
        ("a = :a AND b > :b", "Query key condition not supported"),
        ("a = :a AND b = :b AND c > :c AND d = :d", "Query key condition not supported"),
        ("a = :a AND b = :b AND p = :c", "Query key condition not supported"),
        ("a = :a AND b = :b AND c = :c AND c = :c", "must only contain one condition per key"),
        ("a = :a AND b = :c", "Condition parameter type does not match schema type"),
    ] {
        let values =
            json!({ ":a": { "S": "a" }, ":b": { "N": "1" }, ":c": { "S": "c" }, ":d": { "N": "2" } });
        let used = values.as_object().expect("values").iter().filter(|(name, _)| condition.contains(*name));
        let used: serde_json::Map<String, Json> =
            used.map(|(name, value)| (name.clone(), value.clone())).collect();
        let query = json!({
            "TableName": "composite", "IndexName": "four", "KeyConditionExpression": condition,
            "ExpressionAttributeValues": used
        });
        let answer = call(&api, "Query", &query.to_string());
        assert!(answer.status == 400 && answer.body.contains(error), "{condition}: {}", answer.body);
    }
    let hashes = |count: usize| (0..count).map(|at| (format!("h{at}"), "HASH")).collect::<Vec<_>>();
    let range = |name: &str| (name.to_owned(), "RANGE");
    let five_ranges: Vec<_> =
        hashes(1).into_iter().chain((0..5).map(|at| range(&format!("r{at}")))).collect();
    for (keys, error) in [
        (hashes(5), "The number of HASH key attributes is 5, and 4 are allowed"),
        (five_ranges, "The number of RANGE key attributes is 5, and 4 are allowed"),
        (
            vec![("x".to_owned(), "HASH"), range("y"), ("z".to_owned(), "HASH")],
            "before the RANGE key attributes",
        ),
        (vec![range("x"), range("y")], "The first KeySchemaElement is not a HASH key type"),
        (vec![("x".to_owned(), "HASH"), ("x".to_owned(), "HASH")], "have the same name: x"),
    ] {
        let schema: Vec<Json> =
            keys.iter().map(|(name, kind)| json!({ "AttributeName": name, "KeyType": kind })).collect();
        let definitions: Vec<Json> = keys
            .iter()
            .map(|(name, _)| name)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .map(|name| json!({ "AttributeName": name, "AttributeType": "S" }))
            .collect();
        let create = json!({
            "IndexName": "more", "KeySchema": schema, "Projection": { "ProjectionType": "ALL" }
        });
        let update = json!({
            "TableName": "composite", "AttributeDefinitions": definitions,
            "GlobalSecondaryIndexUpdates": [{ "Create": create }]
        });
        let answer = call(&api, "UpdateTable", &update.to_string());
        assert!(answer.status == 400 && answer.body.contains(error), "{keys:?}: {}", answer.body);
    }
}

/// A client asks with a timeout: a page that ends with the first item of the index may never come.
#[test]
fn a_scan_of_an_index_with_few_items_ends_its_pages() {
    let api = api(Isolation::OnlyRmw);
    create(&api);
    let mut numbers = 0..10_100;
    loop {
        let put =
            |r: i32| json!({ "PutRequest": { "Item": { "p": { "S": r.to_string() }, "r": { "N": "1" } } } });
        let batch: Vec<Json> = numbers.by_ref().take(25).map(put).collect();
        if batch.is_empty() {
            break;
        }
        body_of(call(&api, "BatchWriteItem", &json!({ "RequestItems": { "indexed": batch } }).to_string()));
    }
    let mut scan = json!({ "TableName": "indexed", "IndexName": "by_g", "Limit": 1 });
    let first = body_of(call(&api, "Scan", &scan.to_string()));
    assert_eq!((&first["Count"], &first["ScannedCount"]), (&json!(0), &json!(0)));
    let last = &first["LastEvaluatedKey"];
    assert_eq!(last.as_object().expect("a key of the table").len(), 2);
    scan["ExclusiveStartKey"] = last.clone();
    let second = body_of(call(&api, "Scan", &scan.to_string()));
    assert_eq!((&second["Count"], second.get("LastEvaluatedKey")), (&json!(0), None), "the last 100 rows");
    let query = json!({
        "TableName": "indexed", "IndexName": "by_g", "KeyConditionExpression": "g = :g",
        "ExpressionAttributeValues": { ":g": { "S": "x" } }, "ExclusiveStartKey": last
    });
    assert_eq!(
        call(&api, "Query", &query.to_string()).status,
        400,
        "a Query ends at items of the index alone"
    );
    let mut statement = json!({ "Statement": "SELECT * FROM \"indexed\".\"by_g\"" });
    let first = body_of(call(&api, "ExecuteStatement", &statement.to_string()));
    assert_eq!(first["Items"], json!([]));
    statement["NextToken"] = first["NextToken"].clone();
    let second = body_of(call(&api, "ExecuteStatement", &statement.to_string()));
    assert_eq!((&second["Items"], second.get("NextToken")), (&json!([]), None));
}

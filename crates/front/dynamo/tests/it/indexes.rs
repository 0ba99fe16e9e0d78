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
                "ExpressionAttributeValues": values, "ConsistentRead": name == "local_h"
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

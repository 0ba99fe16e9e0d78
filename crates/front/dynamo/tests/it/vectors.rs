//! Vector indexes: after any write, SearchVectors finds the items that a comparison with all of them finds.

use serde_json::{Value as Json, json};

use crate::memory::Memory;
use crate::{Isolation, api, body_of, call};
use dynamo::Dynamo;

const DIMENSIONS: usize = 4;
const ITEMS: u64 = 600;

/// A small generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn vector(&mut self) -> Vec<f32> {
        (0..DIMENSIONS).map(|_| (self.below(2_001) as f32 - 1_000.0) / 64.0).collect()
    }
}

fn numbers(vector: &[f32]) -> Vec<Json> {
    vector.iter().map(|component| json!({ "N": component.to_string() })).collect()
}

/// An item as the test knows it.
#[derive(Clone)]
struct Known {
    vector: Option<Vec<f32>>,
    /// The value of the hash key of the index `of_tenant`; rare ones are fewer than candidates.
    tenant: Option<u64>,
    kind: u64,
}

fn index(name: &str, distance: &str, schema: &Json) -> Json {
    let mut index = json!({
        "IndexName": name, "VectorAttribute": { "AttributeName": "v" }, "Dimensions": DIMENSIONS,
        "DistanceFunction": distance, "Projection": { "ProjectionType": "KEYS_ONLY" }
    });
    if !schema.is_null() {
        index["SearchSchema"] = schema.clone();
    }
    index
}

fn create(api: &Dynamo<Memory>, hash: &str) {
    let element = |name: &str, kind: &str| json!({ "AttributeName": name, "SearchSchemaElementType": kind });
    let schema = json!([element(hash, "HASH"), element("kind", "INLINE_FILTER")]);
    let filter = json!([element("kind", "INLINE_FILTER")]);
    let definitions = [("p", "S"), ("c", "N"), ("tenant", "N"), ("kind", "N")];
    let definitions: Vec<Json> = definitions
        .iter()
        .filter(|(name, _)| *name != "tenant" || hash == "tenant")
        .map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind }))
        .collect();
    let body = json!({
        "TableName": "vectors", "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": definitions,
        "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "c", "KeyType": "RANGE" }],
        "VectorIndexes": [
            index("cosine", "COSINE", &Json::Null), index("euclidean", "EUCLIDEAN", &filter),
            index("dot", "DOT_PRODUCT", &Json::Null), index("of_hash", "EUCLIDEAN", &schema)
        ]
    });
    body_of(call(api, "CreateTable", &body.to_string()));
}

fn key(at: u64) -> Json {
    json!({ "p": { "S": format!("p{}", at % 40) }, "c": { "N": at.to_string() } })
}

/// Plain writes beside transactions need an isolation that keeps them apart.
fn write(api: &Dynamo<Memory>, random: &mut Random, (at, isolation): (u64, Isolation)) -> Option<Known> {
    if random.below(10) == 0 {
        let request = json!({ "TableName": "vectors", "Key": key(at) });
        body_of(call(api, "DeleteItem", &request.to_string()));
        return None;
    }
    let known = Known {
        vector: (random.below(8) > 0).then(|| random.vector()),
        tenant: (random.below(6) > 0).then(|| if random.below(100) == 0 { 9 } else { random.below(3) }),
        kind: random.below(3),
    };
    let mut item = key(at);
    item["kind"] = json!({ "N": known.kind.to_string() });
    if let Some(vector) = &known.vector {
        item["v"] = json!({ "L": numbers(vector) });
    }
    if let Some(tenant) = known.tenant {
        item["tenant"] = json!({ "N": tenant.to_string() });
    }
    match random.below(3) {
        0 => {
            let requests = json!({ "RequestItems": { "vectors": [{ "PutRequest": { "Item": item } }] } });
            body_of(call(api, "BatchWriteItem", &requests.to_string()));
        }
        1 if isolation == Isolation::Always => {
            let put = json!({ "TransactItems": [{ "Put": { "TableName": "vectors", "Item": item } }] });
            body_of(call(api, "TransactWriteItems", &put.to_string()));
        }
        _ => {
            let put = json!({ "TableName": "vectors", "Item": item });
            body_of(call(api, "PutItem", &put.to_string()));
        }
    }
    Some(known)
}

fn score(distance: &str, a: &[f32], b: &[f32]) -> f64 {
    let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    let dot: f64 = pairs().map(|(a, b)| a * b).sum();
    let length = |vector: &[f32]| vector.iter().map(|one| f64::from(*one).powi(2)).sum::<f64>().sqrt();
    match distance {
        "dot" => dot,
        "cosine" => 1.0 - dot / (length(a) * length(b)),
        _ => pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
    }
}

/// The scores that a search of an index shall have, nearest first.
fn wanted(
    known: &[Option<Known>],
    (index, vector): (&str, &[f32]),
    passes: impl Fn(u64, &Known) -> bool,
) -> Vec<f64> {
    let passing = known.iter().zip(0..).filter_map(|(known, at)| Some((known.as_ref()?, at)));
    let passing = passing.filter(|(known, at)| passes(*at, known));
    let vectors = passing.filter_map(|(known, _)| known.vector.as_ref());
    let mut scores: Vec<f64> = vectors.map(|other| score(index, vector, other)).collect();
    scores.sort_by(f64::total_cmp);
    if index == "dot" {
        scores.reverse();
    }
    scores
}

fn search(api: &Dynamo<Memory>, (index, vector): (&str, &[f32]), top: usize, condition: &Json) -> Vec<f64> {
    let mut request = json!({
        "TableName": "vectors", "IndexName": index, "SearchVector": numbers(vector), "TopK": top
    });
    let names: Vec<&String> = condition.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    if !names.is_empty() {
        let expression: Vec<String> = names.iter().map(|name| format!("{name} = :{name}")).collect();
        request["SearchConditionExpression"] = json!(expression.join(" AND "));
        for name in names {
            request["ExpressionAttributeValues"][format!(":{name}")] = condition[name].clone();
        }
    }
    let answer = body_of(call(api, "SearchVectors", &request.to_string()));
    let results = answer["SearchResults"].as_array().expect("results");
    for result in results {
        let members = result["Item"].as_object().expect("an item");
        assert!(members.contains_key("p") && !members.contains_key("v"), "{members:?}");
    }
    results.iter().map(|result| result["Score"].as_f64().expect("a score")).collect()
}

fn assert_near(found: &[f64], mut wanted: Vec<f64>, top: usize, what: &str) {
    wanted.truncate(top);
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - wanted).abs() <= 1e-4 * wanted.abs().max(1.0), "{what}: {found} for {wanted}");
    }
}

#[test]
fn searches_find_what_a_comparison_of_all_items_finds() {
    for (isolation, hash) in
        [(Isolation::Always, "tenant"), (Isolation::OnlyRmw, "tenant"), (Isolation::Always, "p")]
    {
        let (api, mut random) = (api(isolation), Random(7));
        create(&api, hash);
        let mut known: Vec<Option<Known>> = vec![None; ITEMS as usize];
        for _ in 0..3 * ITEMS {
            let at = random.below(ITEMS);
            known[at as usize] = write(&api, &mut random, (at, isolation));
        }
        for _ in 0..12 {
            let vector = random.vector();
            let top = 1 + random.below(100) as usize;
            for index in ["cosine", "euclidean", "dot"] {
                let all = wanted(&known, (index, &vector), |_, _| true);
                assert!(all.len() > 300);
                assert_near(&search(&api, (index, &vector), top, &json!({})), all, top, index);
            }
            let kind = random.below(3);
            let condition = json!({ "kind": { "N": kind.to_string() } });
            let some = wanted(&known, ("euclidean", &vector), |_, known| known.kind == kind);
            assert_near(&search(&api, ("euclidean", &vector), top, &condition), some, top, "a filter");
            // The last tenant has few items, which candidates seldom are.
            for (tenant, partition) in [(1, 3), (9, 17), (77, 99)] {
                let value = match hash {
                    "p" => json!({ "S": format!("p{partition}") }),
                    _ => json!({ "N": tenant.to_string() }),
                };
                let is_of = |at: u64, known: &Known| match hash {
                    "p" => at % 40 == partition,
                    _ => known.tenant == Some(tenant),
                };
                let of_hash = wanted(&known, ("euclidean", &vector), is_of);
                let found = search(&api, ("of_hash", &vector), top, &json!({ (hash): value }));
                assert_near(&found, of_hash, top, "a hash key");
                let both = json!({ (hash): value, "kind": { "N": kind.to_string() } });
                let of_both = wanted(&known, ("euclidean", &vector), |at, known| {
                    is_of(at, known) && known.kind == kind
                });
                assert_near(&search(&api, ("of_hash", &vector), top, &both), of_both, top, "both");
            }
        }
    }
}

#[test]
fn rare_items_are_found_behind_more_candidates_than_are_asked_for() {
    let api = api(Isolation::OnlyRmw);
    create(&api, "tenant");
    // More near items of another tenant than candidates.
    for at in 0..5_000u64 {
        let tenant = if at % 1_000 == 0 { 9 } else { 1 };
        let component = if tenant == 9 { 500.0 } else { at as f32 / 5_000.0 };
        let mut item = key(at);
        item["tenant"] = json!({ "N": tenant.to_string() });
        item["v"] = json!({ "L": numbers(&[component; DIMENSIONS]) });
        let put = json!({ "TableName": "vectors", "Item": item });
        body_of(call(&api, "PutItem", &put.to_string()));
    }
    let condition = json!({ "tenant": { "N": "9" } });
    let found = search(&api, ("of_hash", &[0.0; DIMENSIONS]), 100, &condition);
    assert_eq!(found, [1000.0; 5]);
    let filter = json!({ "kind": { "N": "1" } });
    assert!(search(&api, ("euclidean", &[0.0; DIMENSIONS]), 3, &filter).is_empty());
}

#[test]
fn an_answer_has_at_most_sixteen_mebibytes() {
    let api = api(Isolation::OnlyRmw);
    let all = json!({
        "IndexName": "all", "VectorAttribute": { "AttributeName": "v" }, "Dimensions": 1,
        "DistanceFunction": "EUCLIDEAN", "Projection": { "ProjectionType": "ALL" }
    });
    let body = json!({
        "TableName": "large", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{ "AttributeName": "p", "AttributeType": "S" }],
        "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }], "VectorIndexes": [all]
    });
    body_of(call(&api, "CreateTable", &body.to_string()));
    for at in 0..50 {
        let item = json!({
            "p": { "S": format!("{at}") }, "v": { "L": [{ "N": at.to_string() }] },
            "text": { "S": "x".repeat(390_000) }
        });
        let put = json!({ "TableName": "large", "Item": item });
        body_of(call(&api, "PutItem", &put.to_string()));
    }
    let mut request =
        json!({ "TableName": "large", "IndexName": "all", "SearchVector": [{ "N": "0" }], "TopK": 50 });
    let answer = call(&api, "SearchVectors", &request.to_string());
    assert!(answer.body.contains("The results have more than 16777216 bytes"), "{}", answer.body.len());
    request["ProjectionExpression"] = json!("p");
    let answer = body_of(call(&api, "SearchVectors", &request.to_string()));
    assert_eq!(answer["SearchResults"].as_array().map(Vec::len), Some(50));
    request["TopK"] = json!(40);
    let results = body_of(call(&api, "SearchVectors", &request.to_string()));
    let nearest: Vec<&Json> = results["SearchResults"].as_array().expect("results").iter().collect();
    assert!(nearest.iter().enumerate().all(|(at, result)| result["Score"] == json!(at as f64)));
}

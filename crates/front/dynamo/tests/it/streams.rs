//! Streams: which record each write makes (golden table `testdata/streams.txt`), and that readers see each once, however they page.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use dynamo::{Dynamo, Isolation};
use exec::backend::Clock;
use exec::{ExecLimits, Executor, NodeInfo};
use rt::Instant;
use schema::{CdcGeneration, CdcVnode};
use serde_json::{Value as Json, json};

use crate::memory::{Memory, START_SECONDS, TestClock};
use crate::{body_of, call, ready, shown};

/// A clock that can be set forward.
#[derive(Default)]
pub struct SetClock {
    inner: TestClock,
    pub ahead_seconds: Rc<Cell<i64>>,
}

impl Clock for SetClock {
    fn wall_micros(&self) -> i64 {
        self.inner.wall_micros() + self.ahead_seconds.get() * 1_000_000
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn random(&self) -> [u8; 16] {
        self.inner.random()
    }
}

struct Api {
    api: Dynamo<Memory>,
    memory: Memory,
    ahead_seconds: Rc<Cell<i64>>,
}

impl Api {
    fn new(isolation: Isolation) -> Self {
        Self::of(Memory::new(), isolation)
    }

    fn of(memory: Memory, isolation: Isolation) -> Self {
        let node = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let clock = SetClock::default();
        let ahead_seconds = clock.ahead_seconds.clone();
        let executor = Executor::new(memory.clone(), Rc::new(clock), node, ExecLimits::default());
        let api = Dynamo::new(Rc::new(executor), isolation).with_streams_window(Duration::ZERO);
        Self { api, memory, ahead_seconds }
    }

    fn call(&self, operation: &str, request: &Json) -> Json {
        body_of(call(&self.api, operation, &request.to_string()))
    }

    /// Does something some seconds later.
    fn later<T>(&self, seconds: i64, act: impl FnOnce() -> T) -> T {
        self.ahead_seconds.set(self.ahead_seconds.get() + seconds);
        let result = act();
        self.ahead_seconds.set(self.ahead_seconds.get() - seconds);
        result
    }

    fn create(&self, name: &str, view: &str) {
        self.call("CreateTable", &json!({
            "TableName": name, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                { "AttributeName": "p", "AttributeType": "S" }, { "AttributeName": "c", "AttributeType": "N" }
            ],
            "KeySchema": [{ "AttributeName": "p", "KeyType": "HASH" }, { "AttributeName": "c", "KeyType": "RANGE" }],
            "StreamSpecification": { "StreamEnabled": true, "StreamViewType": view }
        }));
    }

    fn arn(&self, table: &str) -> String {
        let table = self.call("DescribeTable", &json!({ "TableName": table }));
        table["Table"]["LatestStreamArn"].as_str().expect("a stream").to_owned()
    }

    fn shards(&self, arn: &str) -> Vec<Json> {
        let described = self.call("DescribeStream", &json!({ "StreamArn": arn }));
        described["StreamDescription"]["Shards"].as_array().expect("shards").clone()
    }

    fn iterator(&self, arn: &str, kind: &str, number: Option<&Json>) -> Json {
        let shards = self.shards(arn);
        assert_eq!(shards.len(), 1, "one for the shard of the test's node");
        self.iterator_of(arn, &shards[0], kind, number)
    }

    fn iterator_of(&self, arn: &str, shard: &Json, kind: &str, number: Option<&Json>) -> Json {
        let mut request = json!({ "StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": kind });
        if let Some(number) = number {
            request["SequenceNumber"] = number.clone();
        }
        self.call("GetShardIterator", &request)["ShardIterator"].clone()
    }

    /// The records of pages from an iterator on, until one is empty or the last; none of the pages is larger than `limit`.
    fn pages(&self, mut iterator: Json, limit: usize) -> Vec<Json> {
        let mut found = Vec::new();
        loop {
            let page = self.call("GetRecords", &json!({ "ShardIterator": iterator, "Limit": limit }));
            let records = page["Records"].as_array().expect("records").clone();
            assert!(records.len() <= limit);
            let is_over = records.is_empty();
            found.extend(records);
            match page.get("NextShardIterator") {
                Some(next) if !is_over => iterator = next.clone(),
                _ => return found,
            }
        }
    }

    /// All records of a table's stream.
    fn records(&self, table: &str) -> Vec<Json> {
        let arn = self.arn(table);
        self.later(10, || self.pages(self.iterator(&arn, "TRIM_HORIZON", None), 1000))
    }
}

/// A record for the table: random values are left out.
fn line(record: &Json) -> String {
    let mut inner = record["dynamodb"].clone();
    let members = inner.as_object_mut().expect("members");
    for random in ["SequenceNumber", "ApproximateCreationDateTime", "StreamViewType"] {
        assert!(members.shift_remove(random).is_some(), "{record}");
    }
    let identity = record.get("userIdentity").map(|who| format!(" by {who}")).unwrap_or_default();
    format!("{} {inner}{identity}", record["eventName"].as_str().expect("a name"))
}

#[test]
fn the_table_of_records_holds() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/streams.txt");
    let table = std::fs::read_to_string(&file).expect("testdata/streams.txt");
    let (mut api, mut seen, mut name, mut out) =
        (Api::new(Isolation::Always), 0, String::new(), String::new());
    for text in table.lines().filter(|text| !text.starts_with("    ")) {
        writeln!(out, "{text}").unwrap();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (operation, body) = text.split_once(' ').unwrap_or((text, "{}"));
        match operation {
            "table" => {
                let mut words = body.split(' ').map(str::to_owned);
                (name, seen) = (words.next().expect("a name"), 0);
                api.create(&name, &words.next().expect("a view"));
                continue;
            }
            "isolation" => {
                api = Api::new(Isolation::from_name(body).expect("an isolation"));
                continue;
            }
            "expire" => assert!(ready(api.api.expire()).is_ok()),
            _ => {
                let answer = call(&api.api, operation, body);
                if answer.status != 200 {
                    writeln!(out, "    {}", shown(&answer)).unwrap();
                }
            }
        }
        let records = api.records(&name);
        records[seen..].iter().for_each(|record| writeln!(out, "    {}", line(record)).unwrap());
        seen = records.len();
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

fn put(api: &Api, table: &str, p: &str, c: usize) {
    let item = json!({ "p": { "S": p }, "c": { "N": c.to_string() }, "v": { "S": "x" } });
    api.call("PutItem", &json!({ "TableName": table, "Item": item }));
}

fn number(record: &Json) -> &str {
    record["dynamodb"]["SequenceNumber"].as_str().expect("a number")
}

#[test]
fn every_record_is_read_once_by_pages_of_any_size() {
    for isolation in [Isolation::Always, Isolation::OnlyRmw] {
        let api = Api::new(isolation);
        api.create("paged", "KEYS_ONLY");
        for at in 0..10 {
            put(&api, "paged", "ab".get(at % 2..=at % 2).expect("a letter"), at);
        }
        // Several items of one write.
        let request = |c: usize| json!({ "PutRequest": { "Item": { "p": { "S": "b" }, "c": { "N": c.to_string() } } } });
        let requests: Vec<Json> = (20..35).map(request).collect();
        api.call("BatchWriteItem", &json!({ "RequestItems": { "paged": requests } }));
        put(&api, "paged", "b", 40);
        let all = api.records("paged");
        let numbers: Vec<&str> = all.iter().map(number).collect();
        assert_eq!(numbers.len(), 26);
        assert!(numbers.is_sorted() && numbers.windows(2).all(|pair| pair[0] != pair[1]));
        let arn = api.arn("paged");
        api.later(10, || {
            for limit in [1, 2, 3, 7, 26, 1000] {
                assert_eq!(api.pages(api.iterator(&arn, "TRIM_HORIZON", None), limit), all, "{limit}");
            }
            for (at, record) in all.iter().enumerate() {
                let from = Some(&record["dynamodb"]["SequenceNumber"]);
                assert_eq!(api.pages(api.iterator(&arn, "AT_SEQUENCE_NUMBER", from), 5), all[at..]);
                assert_eq!(api.pages(api.iterator(&arn, "AFTER_SEQUENCE_NUMBER", from), 5), all[at + 1..]);
            }
        });
        assert!(api.later(10, || api.pages(api.iterator(&arn, "LATEST", None), 5)).is_empty());
        assert_eq!(api.pages(api.iterator(&arn, "LATEST", None), 5), [] as [Json; 0]);
    }
}

#[test]
fn replayed_records_are_the_table() {
    let api = Api::new(Isolation::Always);
    api.create("replayed", "NEW_AND_OLD_IMAGES");
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..300 {
        let key = json!({ "p": { "S": next(3).to_string() }, "c": { "N": next(3).to_string() } });
        let mut item = key.clone();
        item["n"] = json!({ "N": next(2).to_string() });
        let names: Vec<String> = (0..next(3)).map(|_| format!("a{}", next(3))).collect();
        for name in names {
            item[name] = json!({ "SS": [next(2).to_string()] });
        }
        let update = json!({
            "TableName": "replayed", "Key": key, "ExpressionAttributeValues": { ":n": { "N": "1" } },
            "UpdateExpression": format!("ADD n :n REMOVE a{}", next(3)),
        });
        match next(4) {
            0 => api.call("PutItem", &json!({ "TableName": "replayed", "Item": item })),
            1 => api.call("DeleteItem", &json!({ "TableName": "replayed", "Key": key })),
            2 => api.call("UpdateItem", &update),
            _ => {
                let mut other = item.clone();
                other["p"] = json!({ "S": "t" });
                let mut inner = update;
                inner.as_object_mut().expect("members").shift_remove("ReturnValues");
                api.call(
                    "TransactWriteItems",
                    &json!({ "TransactItems": [
                    { "Update": inner }, { "Put": { "TableName": "replayed", "Item": other } }
                ] }),
                )
            }
        };
    }
    let mut copy: BTreeMap<String, Json> = BTreeMap::new();
    for record in api.records("replayed") {
        let inner = &record["dynamodb"];
        let key = inner["Keys"].to_string();
        let old = copy.remove(&key).unwrap_or_default();
        assert_eq!(inner.get("OldImage").cloned().unwrap_or_default(), old, "{record}");
        if let Some(new) = inner.get("NewImage") {
            assert_ne!(*new, old, "{record}");
            copy.insert(key, new.clone());
        }
    }
    let items = api.call("Scan", &json!({ "TableName": "replayed" }))["Items"].clone();
    let key = |item: &Json| json!({ "c": item["c"], "p": item["p"] }).to_string();
    let items: BTreeMap<String, Json> =
        items.as_array().expect("items").iter().map(|item| (key(item), item.clone())).collect();
    assert!(items.len() > 5);
    assert_eq!(copy, items);
}

#[test]
fn shards_have_successors_after_a_topology_change() {
    let memory = Memory::with_nodes(&["a", "a", "a", "a"]);
    let api = Api::of(memory, Isolation::OnlyRmw);
    api.create("ring", "KEYS_ONLY");
    let arn = api.arn("ring");
    let shards = api.shards(&arn);
    assert_eq!(shards.len(), 4, "one for each of the nodes");
    let mut iterators: Vec<Json> =
        shards.iter().map(|shard| api.iterator_of(&arn, shard, "TRIM_HORIZON", None)).collect();
    let mut seen: BTreeMap<String, Vec<(usize, u64)>> = BTreeMap::new();
    let mut read = |iterators: &mut Vec<Json>, limit: usize| {
        for (at, iterator) in iterators.iter_mut().enumerate() {
            let page = api.call("GetRecords", &json!({ "ShardIterator": iterator, "Limit": limit }));
            for record in page["Records"].as_array().expect("records") {
                let keys = &record["dynamodb"]["Keys"];
                let c = keys["c"]["N"].as_str().expect("a number").parse().expect("a number");
                seen.entry(keys["p"]["S"].as_str().expect("a key").to_owned()).or_default().push((at, c));
            }
            *iterator = page["NextShardIterator"].clone();
        }
    };
    // Rings of one range, of many, and of ranges that end where shards do.
    let rings: [(i64, Vec<i64>); 3] = [
        (10, (-20..20).map(|at| at * (i64::MAX / 20)).collect()),
        (20, vec![7]),
        (30, vec![i64::MIN / 2, -1, i64::MAX / 2, i64::MAX]),
    ];
    for (seconds, tokens) in rings {
        let vnodes = tokens.into_iter().map(|upto| CdcVnode { upto, shards: 2 }).collect();
        let start_millis = (START_SECONDS + seconds) * 1000;
        api.memory.renew_generation(CdcGeneration { start_millis, vnodes });
    }
    for c in 0..40 {
        api.ahead_seconds.set(c);
        for p in 0..20 {
            put(&api, "ring", &p.to_string(), c as usize);
        }
        if c % 3 == 0 {
            read(&mut iterators, 1 + c as usize);
        }
    }
    api.ahead_seconds.set(50);
    for _ in 0..40 {
        read(&mut iterators, 100);
    }
    assert_eq!(seen.len(), 20);
    let mut used: Vec<usize> = Vec::new();
    for (p, records) in seen {
        let shard = records[0].0;
        let wanted: Vec<_> = (0..40).map(|c| (shard, c)).collect();
        assert_eq!(records, wanted, "{p}: each once, in order, in one shard");
        used.push(shard);
    }
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), 4, "the keys are in all shards");
}

#[test]
fn a_disabled_stream_ends_and_is_forgotten_after_a_day() {
    let api = Api::new(Isolation::OnlyRmw);
    let specify =
        |specification: Json| json!({ "TableName": "toggled", "StreamSpecification": specification });
    api.create("toggled", "KEYS_ONLY");
    put(&api, "toggled", "a", 1);
    let first = api.arn("toggled");
    api.ahead_seconds.set(5);
    api.call("UpdateTable", &specify(json!({ "StreamEnabled": false })));
    let table = api.call("DescribeTable", &json!({ "TableName": "toggled" }))["Table"].clone();
    assert_eq!((&table["LatestStreamArn"], table.get("StreamSpecification")), (&json!(first), None));
    put(&api, "toggled", "a", 2);
    api.ahead_seconds.set(6);
    api.call("UpdateTable", &specify(json!({ "StreamEnabled": true, "StreamViewType": "NEW_IMAGE" })));
    put(&api, "toggled", "a", 3);
    let second = api.arn("toggled");
    assert_ne!(first, second);
    let keys = |arn: &str| {
        let records = api.later(10, || api.pages(api.iterator(arn, "TRIM_HORIZON", None), 10));
        records
            .iter()
            .map(|record| record["dynamodb"]["Keys"]["c"]["N"].as_str().expect("a key").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!((keys(&first), keys(&second)), (vec!["1".to_owned()], vec!["3".to_owned()]));
    let described = api.call("DescribeStream", &json!({ "StreamArn": first }))["StreamDescription"].clone();
    assert_eq!(described["StreamStatus"], "DISABLED");
    let range = &described["Shards"][0]["SequenceNumberRange"];
    assert!(range["EndingSequenceNumber"].as_str() > range["StartingSequenceNumber"].as_str());
    let ended = api.later(10, || {
        let iterator = api.iterator(&first, "TRIM_HORIZON", None);
        api.call("GetRecords", &json!({ "ShardIterator": iterator }))
    });
    assert_eq!(ended.get("NextShardIterator"), None, "a closed shard ends");
    let listed = |api: &Api| {
        let mut found = Vec::new();
        let mut request = json!({ "TableName": "toggled", "Limit": 1 });
        loop {
            let page = api.call("ListStreams", &request);
            let streams = page["Streams"].as_array().expect("streams").iter();
            found.extend(streams.map(|stream| stream["StreamArn"].as_str().expect("an ARN").to_owned()));
            match page.get("LastEvaluatedStreamArn") {
                Some(last) => request["ExclusiveStartStreamArn"] = last.clone(),
                None => return found,
            }
        }
    };
    assert_eq!(listed(&api), [first.clone(), second.clone()]);
    api.ahead_seconds.set(24 * 3600 + 10);
    assert_eq!(listed(&api), [second]);
    let gone = call(&api.api, "DescribeStream", &json!({ "StreamArn": first }).to_string());
    assert!(gone.body.contains("ResourceNotFoundException"), "{}", gone.body);
}

#[test]
fn old_iterators_and_trimmed_records_are_refused() {
    let api = Api::new(Isolation::OnlyRmw);
    api.create("aged", "KEYS_ONLY");
    put(&api, "aged", "a", 1);
    let arn = api.arn("aged");
    let records = api.records("aged");
    let iterator = api.iterator(&arn, "AT_SEQUENCE_NUMBER", Some(&json!(number(&records[0]))));
    let get =
        |iterator: &Json| call(&api.api, "GetRecords", &json!({ "ShardIterator": iterator }).to_string());
    assert_eq!(api.later(14 * 60, || get(&iterator)).status, 200);
    let expired = api.later(16 * 60, || get(&iterator));
    assert!(expired.body.contains("ExpiredIteratorException"), "{}", expired.body);
    let shard =
        api.call("DescribeStream", &json!({ "StreamArn": arn }))["StreamDescription"]["Shards"][0].clone();
    let trimmed = api.later(24 * 3600 + 60, || {
        let request = json!({
            "StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "AT_SEQUENCE_NUMBER",
            "SequenceNumber": number(&records[0])
        });
        call(&api.api, "GetShardIterator", &request.to_string())
    });
    assert!(trimmed.body.contains("TrimmedDataAccessException"), "{}", trimmed.body);
    // One that was given out elsewhere, for a place that is not stored any more.
    let late = api.later(30 * 3600, || {
        let now = (START_SECONDS + 30 * 3600) * 1_000_000;
        get(&json!(format!("{arn}|1|{now}.0.{}.0.0", (START_SECONDS + 60) * 1_000_000)))
    });
    assert!(late.body.contains("TrimmedDataAccessException"), "{}", late.body);
    let begun = api.later(30 * 3600, || api.pages(api.iterator(&arn, "TRIM_HORIZON", None), 10));
    assert_eq!(begun, [] as [Json; 0]);
}

#[test]
fn shards_are_listed_behind_any_name() {
    let api = Api::new(Isolation::Always);
    api.create("listed", "KEYS_ONLY");
    let arn = api.arn("listed");
    let only = api.shards(&arn)[0]["ShardId"].as_str().expect("a name").to_owned();
    let before = format!("shardId-{}", "0".repeat(24));
    for (name, left) in [
        (before.as_str(), 1),
        (only.as_str(), 0),
        (&"x".repeat(30), 0),
        ("shardId-x0000000000000000000000", 0),
    ] {
        let request = json!({ "StreamArn": arn, "ExclusiveStartShardId": name });
        let described = api.call("DescribeStream", &request);
        let shards = described["StreamDescription"]["Shards"].as_array().expect("shards");
        assert_eq!(shards.len(), left, "{name}");
    }
}

#[test]
fn shards_have_no_children() {
    let api = Api::new(Isolation::Always);
    api.create("childless", "KEYS_ONLY");
    let arn = api.arn("childless");
    let shard = api.shards(&arn)[0]["ShardId"].clone();
    let asked = |filter: Json| {
        let answer =
            call(&api.api, "DescribeStream", &json!({ "StreamArn": arn, "ShardFilter": filter }).to_string());
        (answer.status, answer.body)
    };
    let (status, body) = asked(json!({ "Type": "CHILD_SHARDS", "ShardId": shard }));
    let described: Json = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &described["StreamDescription"]["Shards"]), (200, &json!([])), "{body}");
    for (filter, error) in [
        (json!({ "Type": "PARENTS", "ShardId": shard }), "shardFilter.type"),
        (json!({ "ShardId": shard }), "Type must be specified"),
        (json!({ "Type": "CHILD_SHARDS" }), "shardId"),
        (json!({ "Type": "CHILD_SHARDS", "ShardId": "shardId-00000000000000000000-00000000" }), "not found"),
    ] {
        let (status, body) = asked(filter);
        assert!(status == 400 && body.contains(error), "{error}: {body}");
    }
}

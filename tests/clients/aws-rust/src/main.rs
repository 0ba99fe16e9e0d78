//! AWS's SDK for Rust against a running node: `aws-rust-client HOST CQL_PORT torc`.
//!
//! Typed values, conditions and their errors, paginators, batches, transactions, waiters and streams. One test a function, in order;
//! each prints `ok NAME` or `FAIL NAME: why`.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::client::Waiters;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, ConditionCheck, Get, GlobalSecondaryIndex,
    KeySchemaElement, KeyType, KeysAndAttributes, OnDemandThroughput, Projection, ProjectionType, Put,
    PutRequest, ReturnValue, ReturnValuesOnConditionCheckFailure, ScalarAttributeType, Select,
    StreamSpecification, StreamViewType, TransactGetItem, TransactWriteItem, Update, WriteRequest,
};
use aws_sdk_dynamodbstreams::types::{OperationType, ShardIteratorType};
use aws_smithy_http_client::Builder;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T = ()> = Result<T, Failure>;
type Item = HashMap<String, AttributeValue>;

const PATIENCE: Duration = Duration::from_secs(30);

struct Suite {
    client: Client,
    streams: aws_sdk_dynamodbstreams::Client,
    table: String,
}

/// Fails with the found value when the two differ.
fn equal<T: PartialEq + Debug>(found: T, expected: T, what: &str) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, expected {expected:?}").into())
    }
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn key(sensor: &str, at: i64) -> Item {
    HashMap::from([("sensor".to_owned(), text(sensor)), ("at".to_owned(), number(at))])
}

/// The key with one more attribute.
fn with(sensor: &str, at: i64, name: &str, value: AttributeValue) -> Item {
    let mut item = key(sensor, at);
    item.insert(name.to_owned(), value);
    item
}

fn element(name: &str, kind: KeyType) -> Outcome<KeySchemaElement> {
    Ok(KeySchemaElement::builder().attribute_name(name).key_type(kind).build()?)
}

fn definition(name: &str, kind: ScalarAttributeType) -> Outcome<AttributeDefinition> {
    Ok(AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build()?)
}

impl Suite {
    async fn creates_a_table(&self) -> Outcome {
        let missing = self.client.describe_table().table_name(&self.table).send().await;
        let missing = missing.err().ok_or("a table that is not there")?.into_service_error();
        equal(missing.is_resource_not_found_exception(), true, "the error for a table that is not there")?;
        let index = GlobalSecondaryIndex::builder()
            .index_name("kinds")
            .key_schema(element("kind", KeyType::Hash)?)
            .key_schema(element("at", KeyType::Range)?)
            .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
            .on_demand_throughput(OnDemandThroughput::builder().max_write_request_units(7).build())
            .build()?;
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::NewAndOldImages)
            .build()?;
        self.client
            .create_table()
            .table_name(&self.table)
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(element("sensor", KeyType::Hash)?)
            .key_schema(element("at", KeyType::Range)?)
            .attribute_definitions(definition("sensor", ScalarAttributeType::S)?)
            .attribute_definitions(definition("at", ScalarAttributeType::N)?)
            .attribute_definitions(definition("kind", ScalarAttributeType::S)?)
            .global_secondary_indexes(index)
            .on_demand_throughput(OnDemandThroughput::builder().max_read_request_units(100).build())
            .stream_specification(stream)
            .send()
            .await?;
        self.client.wait_until_table_exists().table_name(&self.table).wait(PATIENCE).await?;
        let described = self.client.describe_table().table_name(&self.table).send().await?;
        let table = described.table().ok_or("no description")?;
        let most = table.on_demand_throughput().and_then(|most| most.max_read_request_units());
        equal(most, Some(100), "the maximum of reads")?;
        let warm = table.warm_throughput().and_then(|warm| warm.write_units_per_second());
        equal(warm, Some(4000), "the warm throughput of writes")?;
        let indexes = table.global_secondary_indexes();
        let most = indexes.first().and_then(|index| index.on_demand_throughput()?.max_write_request_units());
        equal(most, Some(7), "the maximum of writes of the index")
    }

    async fn keeps_values_of_all_types(&self) -> Outcome {
        let mut item = key("s", 1);
        for (name, value) in [
            ("number", number("-12345678901234567890123456789012345678")),
            ("binary", AttributeValue::B(Blob::new([0, 255]))),
            ("bool", AttributeValue::Bool(true)),
            ("null", AttributeValue::Null(true)),
            ("list", AttributeValue::L(vec![number(1), AttributeValue::L(vec![text("ü")])])),
            (
                "map",
                AttributeValue::M(HashMap::from([("a.b".to_owned(), AttributeValue::M(HashMap::new()))])),
            ),
            ("texts", AttributeValue::Ss(vec!["a".to_owned(), "b".to_owned()])),
            ("numbers", AttributeValue::Ns(vec!["1".to_owned(), "2.5".to_owned()])),
            ("blobs", AttributeValue::Bs(vec![Blob::new([1]), Blob::new([2])])),
        ] {
            item.insert(name.to_owned(), value);
        }
        self.client.put_item().table_name(&self.table).set_item(Some(item.clone())).send().await?;
        equal(self.get("s", 1).await?, Some(item), "an item")
    }

    async fn get(&self, sensor: &str, at: i64) -> Outcome<Option<Item>> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(key(sensor, at)));
        Ok(request.consistent_read(true).send().await?.item)
    }

    async fn updates_under_a_condition(&self) -> Outcome {
        let add = async || {
            self.client
                .update_item()
                .table_name(&self.table)
                .set_key(Some(key("u", 1)))
                .update_expression("SET #v = if_not_exists(#v, :zero) + :one")
                .condition_expression("attribute_not_exists(#v) OR #v < :two")
                .expression_attribute_names("#v", "value")
                .expression_attribute_values(":zero", number(0))
                .expression_attribute_values(":one", number(1))
                .expression_attribute_values(":two", number(2))
                .return_values(ReturnValue::UpdatedNew)
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
                .send()
                .await
        };
        for expected in [1, 2] {
            let shown = add().await?.attributes;
            equal(shown, Some(HashMap::from([("value".to_owned(), number(expected))])), "what was updated")?;
        }
        let refused = add().await.err().ok_or("a condition that does not hold")?;
        let refused = refused.into_service_error();
        let UpdateItemError::ConditionalCheckFailedException(failed) = refused else {
            return Err(format!("a condition that does not hold: {refused:?}").into());
        };
        equal(failed.item().and_then(|item| item.get("value")).cloned(), Some(number(2)), "the old item")
    }

    async fn counts_updates_of_many(&self) -> Outcome {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (client, table) = (self.client.clone(), self.table.clone());
                tokio::spawn(async move {
                    for _ in 0..5 {
                        let request = client.update_item().table_name(&table).set_key(Some(key("u", 2)));
                        let request = request
                            .update_expression("ADD n :one")
                            .expression_attribute_values(":one", number(1));
                        request.send().await?;
                    }
                    Outcome::Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        let item = self.get("u", 2).await?.ok_or("no item")?;
        equal(item.get("n").cloned(), Some(number(40)), "the count")
    }

    async fn writes_and_reads_batches(&self) -> Outcome {
        let put = |at| -> Outcome<WriteRequest> {
            let put = PutRequest::builder().set_item(Some(with("q", at, "kind", text("warm")))).build()?;
            Ok(WriteRequest::builder().put_request(put).build())
        };
        for start in [0, 25] {
            let requests = (start..start + 25).map(put).collect::<Outcome<Vec<_>>>()?;
            let mut left = HashMap::from([(self.table.clone(), requests)]);
            while !left.is_empty() {
                let written = self.client.batch_write_item().set_request_items(Some(left)).send().await?;
                left = written.unprocessed_items.unwrap_or_default();
            }
        }
        let wanted = KeysAndAttributes::builder()
            .set_keys(Some((48..52).map(|at| key("q", at)).collect()))
            .projection_expression("#a")
            .expression_attribute_names("#a", "at")
            .build()?;
        let read = self.client.batch_get_item().request_items(&self.table, wanted).send().await?;
        let items = read.responses.and_then(|mut tables| tables.remove(&self.table)).ok_or("no items")?;
        equal(items.len(), 2, "items of the keys that there are")
    }

    async fn queries_by_pages(&self) -> Outcome {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("sensor = :q AND #a BETWEEN :low AND :high")
            .expression_attribute_names("#a", "at")
            .expression_attribute_values(":q", text("q"))
            .expression_attribute_values(":low", number(5))
            .expression_attribute_values(":high", number(34))
            .scan_index_forward(false);
        let mut pages = query.limit(7).into_paginator().send();
        let mut sizes = Vec::new();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page?;
            sizes.push(page.count());
            found.extend(
                page.items().iter().filter_map(|item| item.get("at")?.as_n().ok()?.parse::<i64>().ok()),
            );
        }
        equal(sizes, vec![7, 7, 7, 7, 2], "items of pages")?;
        equal(found, (5..=34).rev().collect(), "what was found")?;
        let of_index = self
            .client
            .query()
            .table_name(&self.table)
            .index_name("kinds")
            .key_condition_expression("kind = :k")
            .expression_attribute_values(":k", text("warm"));
        let items = of_index.limit(20).into_paginator().items().send().collect::<Result<Vec<_>, _>>().await?;
        equal(items.len(), 50, "items of the index")
    }

    async fn scans_by_segments(&self) -> Outcome {
        let mut count = 0;
        for segment in 0..3 {
            let scan = self
                .client
                .scan()
                .table_name(&self.table)
                .segment(segment)
                .total_segments(3)
                .select(Select::Count);
            let mut pages = scan.into_paginator().send();
            while let Some(page) = pages.next().await {
                count += page?.count();
            }
        }
        equal(count, 53, "items of all segments")
    }

    async fn carries_transactions_out_once(&self) -> Outcome {
        let add = Update::builder()
            .table_name(&self.table)
            .set_key(Some(key("t", 1)))
            .update_expression("ADD n :one")
            .expression_attribute_values(":one", number(1))
            .build()?;
        let put = Put::builder().table_name(&self.table).set_item(Some(key("t", 2))).build()?;
        let check = |sensor| {
            let check = ConditionCheck::builder().table_name(&self.table).set_key(Some(key(sensor, 1)));
            check.condition_expression("attribute_exists(sensor)").build()
        };
        let write = || {
            let request = self.client.transact_write_items();
            request.transact_items(TransactWriteItem::builder().update(add.clone()).build())
        };
        for _ in 0..2 {
            // The second time is the first one.
            let request = write()
                .transact_items(TransactWriteItem::builder().put(put.clone()).build())
                .transact_items(TransactWriteItem::builder().condition_check(check("s")?).build());
            request.client_request_token(&self.table).send().await?;
        }
        let refused =
            write().transact_items(TransactWriteItem::builder().condition_check(check("nobody")?).build());
        let refused =
            refused.send().await.err().ok_or("a transaction whose check fails")?.into_service_error();
        let TransactWriteItemsError::TransactionCanceledException(canceled) = refused else {
            return Err(format!("a transaction whose check fails: {refused:?}").into());
        };
        let reasons: Vec<_> =
            canceled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect();
        equal(reasons, vec!["None", "ConditionalCheckFailed"], "reasons")?;
        let get = |sensor, at| {
            let get = Get::builder().table_name(&self.table).set_key(Some(key(sensor, at))).build();
            Outcome::Ok(TransactGetItem::builder().get(get?).build())
        };
        let request =
            self.client.transact_get_items().transact_items(get("t", 1)?).transact_items(get("nobody", 1)?);
        let read = request.send().await?;
        let items: Vec<_> = read.responses().iter().map(|one| one.item().cloned()).collect();
        equal(items, vec![Some(with("t", 1, "n", number(1))), None], "items of a transaction")
    }

    async fn executes_statements(&self) -> Outcome {
        let text = format!(r#"INSERT INTO "{}" VALUE {{'sensor': ?, 'at': ?}}"#, self.table);
        let insert = async || {
            let request = self.client.execute_statement().statement(&text);
            request.parameters(AttributeValue::S("p".to_owned())).parameters(number(1)).send().await
        };
        insert().await?;
        let duplicate = insert().await.err().ok_or("an item that is there")?.into_service_error();
        equal(duplicate.is_duplicate_item_exception(), true, "the error for an item that is there")
    }

    async fn distinguishes_errors(&self) -> Outcome {
        let request = self.client.get_item().table_name(&self.table).key("sensor", text("s"));
        let error = request.send().await.err().ok_or("half of a key")?;
        equal(matches!(error, SdkError::ServiceError(_)), true, "an answer of the service")?;
        equal(error.code(), Some("ValidationException"), "the code")?;
        equal(error.message(), Some("The provided key element does not match the schema"), "the text")
    }

    async fn reads_the_stream(&self) -> Outcome {
        let described = self.client.describe_table().table_name(&self.table).send().await?;
        let arn = described.table.and_then(|table| table.latest_stream_arn).ok_or("no stream")?;
        let stream = self.streams.describe_stream().stream_arn(&arn).send().await?;
        let shards =
            stream.stream_description.map(|stream| stream.shards.unwrap_or_default()).unwrap_or_default();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut changes = Vec::new();
        while changes.len() < 2 && tokio::time::Instant::now() < deadline {
            changes.clear();
            for shard in &shards {
                let request =
                    self.streams.get_shard_iterator().stream_arn(&arn).set_shard_id(shard.shard_id.clone());
                let iterator = request.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await?;
                let mut next = iterator.shard_iterator;
                while let Some(iterator) = next {
                    let page = self.streams.get_records().shard_iterator(iterator).send().await?;
                    let records = page.records.unwrap_or_default();
                    next = if records.is_empty() { None } else { page.next_shard_iterator };
                    let of_test = records.into_iter().filter(|record| {
                        let keys = record.dynamodb.as_ref().and_then(|change| change.keys.as_ref());
                        let sensor = keys.and_then(|keys| keys.get("sensor")?.as_s().ok());
                        let at = keys.and_then(|keys| keys.get("at")?.as_n().ok());
                        sensor.is_some_and(|sensor| sensor == "u") && at.is_some_and(|at| at == "1")
                    });
                    changes.extend(of_test.filter_map(|record| record.event_name));
                }
            }
        }
        equal(changes, vec![OperationType::Insert, OperationType::Modify], "changes of an item")
    }

    async fn drops_the_table(&self) -> Outcome {
        self.client.delete_table().table_name(&self.table).send().await?;
        self.client.wait_until_table_not_exists().table_name(&self.table).wait(PATIENCE).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let host = std::env::args().nth(1).expect("HOST CQL_PORT torc");
    let port = std::env::var("TEST_DYNAMODB_PORT").unwrap_or_else(|_| "8000".to_owned());
    let endpoint = format!("http://{host}:{port}");
    let (region, http) = (Region::new("us-east-1"), Builder::new().build_http());
    let credentials = Credentials::new("any", "any", None, None, "test");
    let settings = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(region.clone())
        .endpoint_url(&endpoint)
        .credentials_provider(credentials.clone())
        .http_client(http.clone())
        .build();
    let of_streams = aws_sdk_dynamodbstreams::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(region)
        .endpoint_url(&endpoint)
        .credentials_provider(credentials)
        .http_client(http)
        .build();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is behind 1970").as_nanos();
    let suite = Suite {
        client: Client::from_conf(settings),
        streams: aws_sdk_dynamodbstreams::Client::from_conf(of_streams),
        table: format!("rust_{now}"),
    };
    let (mut passed, mut failed) = (0, 0);
    let mut note = |name: &str, outcome: Outcome| match outcome {
        Ok(()) => {
            passed += 1;
            println!("ok {name}");
        }
        Err(error) => {
            failed += 1;
            println!("FAIL {name}: {error:?}");
        }
    };
    macro_rules! run {
        ($($name:ident),*) => { $(note(stringify!($name), suite.$name().await);)* };
    }
    run!(
        creates_a_table,
        keeps_values_of_all_types,
        updates_under_a_condition,
        counts_updates_of_many,
        writes_and_reads_batches
    );
    run!(
        queries_by_pages,
        scans_by_segments,
        carries_transactions_out_once,
        executes_statements,
        distinguishes_errors
    );
    run!(reads_the_stream, drops_the_table);
    println!("{passed} passed, {failed} failed");
    std::process::exit(if failed > 0 { 1 } else { 0 });
}

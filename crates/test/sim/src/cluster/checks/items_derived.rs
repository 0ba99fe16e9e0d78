//! Checkers of the DynamoDB API: in the end each index shows the items of the table that it has to have, through every node (`item_index`), and the
//! records of the table's stream, replayed, are the table (`item_stream`).

use std::time::Duration;

use serde_json::{Value as Json, json};
use wire::Consistency;

use crate::api::Api;
use crate::cluster::checks::items::open;
use crate::cluster::clients::items_draw::GROUPS;
use crate::cluster::director::ClusterDirector;
use crate::cluster::models::items::TABLE;
use crate::cluster::models::items_derived::{Index, ItemSet, all_written, by_key, replay};

/// How long transactions may take until a sweep has carried out all effects, and indexes until they are built; changes are 10 s old when a
/// stream shows them.
const TIME_MAX: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_secs(5);
/// Items of a page, so that there are several.
const PAGE: u64 = 7;

async fn call(api: &mut Api, operation: &str, request: &Json) -> Result<Json, String> {
    let answer = api.call(operation, request).await;
    answer.map_err(|failure| format!("{operation} {request}: {failure}"))
}

/// All items of the pages of a Query or Scan.
async fn pages(api: &mut Api, operation: &str, mut request: Json) -> Result<Vec<Json>, String> {
    request["Limit"] = PAGE.into();
    let mut all = Vec::new();
    loop {
        let answer = call(api, operation, &request).await?;
        let items = answer["Items"].as_array().ok_or_else(|| format!("no items: {answer}"))?;
        all.extend(items.iter().cloned());
        match answer.get("LastEvaluatedKey") {
            None => return Ok(all),
            Some(last) if request.get("ExclusiveStartKey") == Some(last) => {
                return Err(format!("a page leads to itself: {last}"));
            }
            Some(last) => request["ExclusiveStartKey"] = last.clone(),
        }
    }
}

/// The items of the table.
async fn table(api: &mut Api) -> Result<ItemSet, String> {
    by_key(&pages(api, "Scan", json!({ "TableName": TABLE, "ConsistentRead": true })).await?)
}

/// Has every replica have all rows: reads of indexes may come from any one.
async fn read_at_all(director: &mut ClusterDirector) -> Result<(), String> {
    let nth = director.any_node();
    let text = format!("SELECT * FROM alternator_{TABLE}.{TABLE}");
    director.ask(nth, &text, Consistency::All).await.map(drop)
}

/// Queries each group of each index through every node.
pub(crate) async fn check_indexes(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    for nth in director.present() {
        loop {
            read_at_all(director).await?;
            let Some(problem) = indexes_problem(&mut open(director, nth).await?).await? else { break };
            if director.sim.now() - begun > TIME_MAX {
                return Err(format!("read by node {nth}, {problem}"));
            }
            director.rt.sleep(PAUSE).await;
        }
    }
    Ok(())
}

async fn indexes_problem(api: &mut Api) -> Result<Option<String>, String> {
    let table = table(api).await?;
    for (index, group) in
        Index::ALL.into_iter().flat_map(|index| (0..GROUPS).map(move |group| (index, group)))
    {
        let request = json!({
            "TableName": TABLE, "IndexName": index.name(), "KeyConditionExpression": "g = :g",
            "ExpressionAttributeValues": { ":g": { "N": group.to_string() } },
        });
        let found = pages(api, "Query", request).await?;
        if let Some(problem) = index.problem(&table, group, &found) {
            return Ok(Some(format!("of group {group} in {index:?}: {problem}")));
        }
    }
    Ok(None)
}

/// Reads the whole stream through some node and replays it.
pub(crate) async fn check_stream(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    loop {
        let nth = director.any_node();
        let mut api = open(director, nth).await?;
        let table = all_written(&table(&mut api).await?);
        let problem = match replay(&records(&mut api).await?) {
            Ok(items) if items == table => return Ok(()),
            Ok(items) => format!("the records give {items:?}, and the table is {table:?}"),
            Err(problem) => problem,
        };
        if director.sim.now() - begun > TIME_MAX {
            return Err(format!("of the stream of {TABLE}, read by node {nth}: {problem}"));
        }
        director.rt.sleep(PAUSE).await;
    }
}

/// The records of each shard of the stream.
async fn records(api: &mut Api) -> Result<Vec<Vec<Json>>, String> {
    let described = call(api, "DescribeTable", &json!({ "TableName": TABLE })).await?;
    let arn = &described["Table"]["LatestStreamArn"];
    let stream = call(api, "DescribeStream", &json!({ "StreamArn": arn })).await?;
    let shards = stream["StreamDescription"]["Shards"].as_array();
    let shards = shards.ok_or_else(|| format!("no shards: {stream}"))?;
    let mut all = Vec::new();
    for shard in shards {
        let first = json!({
            "StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON",
        });
        let mut iterator = call(api, "GetShardIterator", &first).await?["ShardIterator"].clone();
        let mut of_shard = Vec::new();
        loop {
            let page = call(api, "GetRecords", &json!({ "ShardIterator": iterator, "Limit": 100 })).await?;
            let records = page["Records"].as_array().ok_or_else(|| format!("no records: {page}"))?;
            if records.is_empty() {
                break;
            }
            of_shard.extend(records.iter().cloned());
            iterator = page["NextShardIterator"].clone();
        }
        all.push(of_shard);
    }
    Ok(all)
}

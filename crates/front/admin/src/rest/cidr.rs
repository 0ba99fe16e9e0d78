//! Groups of addresses from which roles may log in, over REST.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

use schema::{BadCidr, Cidr};
use serde_json::{Value, json};

use crate::{Answer, Call, CidrFigures, Node};

/// The answer to a request about groups of addresses; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    let asked = match (call.method.as_str(), segments) {
        ("GET", ["torc", "cidr_groups"]) => Ok(groups(node)),
        ("GET", ["torc", "cidr_filtering_stats"]) => Ok(filtering(node).await),
        ("GET", ["torc", "cidr_groups_of", address]) => groups_of(node, address),
        ("POST", ["torc", "cidr_groups", name]) => put(node, call, name).await,
        ("DELETE", ["torc", "cidr_groups", name]) => drop_group(node, name).await,
        _ => return None,
    };
    Some(asked.map(|value| Answer::json(&value)))
}

/// The figures of the checks, by the names of Cassandra's two tables.
async fn filtering(node: &Rc<dyn Node>) -> Value {
    let shards = node.figures().await;
    let sum = CidrFigures::sum(shards.iter().map(|shard| &shard.cidr));
    let counts = sum.counts().into_iter().map(|(name, count)| json!({ "name": name, "value": count }));
    let latencies = sum.latencies().into_iter().map(|(name, [p50, p95, p99, p999, max])| {
        json!({ "name": name, "p50th": p50, "p95th": p95, "p99th": p99, "p999th": p999, "max": max })
    });
    json!({ "counts": counts.collect::<Vec<_>>(), "latencies": latencies.collect::<Vec<_>>() })
}

/// All groups by name, each with its ranges.
fn groups(node: &Rc<dyn Node>) -> Value {
    let schema = node.schema();
    let all = schema.cidr_groups().map(|group| (group.name.clone(), json!(texts(&group.cidrs))));
    Value::Object(all.collect())
}

fn texts(cidrs: &BTreeSet<Cidr>) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}

fn groups_of(node: &Rc<dyn Node>, address: &str) -> Result<Value, Answer> {
    let address: IpAddr = address.parse().map_err(|_| Answer::error(400, format!("Invalid IP {address}")))?;
    Ok(json!(node.schema().cidr_groups_of(address.to_canonical())))
}

async fn put(node: &Rc<dyn Node>, call: &Call, name: &str) -> Result<Value, Answer> {
    let given = call.parameter("cidrs").unwrap_or_default();
    let cidrs = given.split(',').filter(|text| !text.is_empty()).map(|text| text.parse());
    let cidrs: Result<BTreeSet<Cidr>, BadCidr> = cidrs.collect();
    let cidrs = cidrs.map_err(|error| Answer::error(400, error.to_string()))?;
    if cidrs.is_empty() {
        return Err(Answer::error(400, "a group has at least one range of addresses"));
    }
    let done = node.change_cidr_group(name, Some(cidrs)).await;
    done.map(|()| Value::Null).map_err(|error| Answer::error(500, error))
}

async fn drop_group(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    if node.schema().cidr_groups().all(|group| group.name != name) {
        return Err(Answer::error(404, format!("CIDR group '{name}' doesn't exists")));
    }
    let done = node.change_cidr_group(name, None).await;
    done.map(|()| Value::Null).map_err(|error| Answer::error(500, error))
}

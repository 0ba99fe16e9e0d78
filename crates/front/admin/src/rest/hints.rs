//! Stored hints over REST: lists, pauses of their delivery, and their removal, at ScyllaDB's paths; figures of each node under `/torc`.

use std::rc::Rc;

use serde_json::{Value, json};
use topology::HostId;

use super::sync_points;
use crate::{Answer, Call, Node, names, uuid};

/// The answer to a request about hints; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    Some(match (call.method.as_str(), segments) {
        ("GET", ["torc", "hints"]) => Ok(Answer::json(&stored(node).await)),
        ("GET", ["hinted_handoff", "hints"]) => Ok(Answer::json(&addresses(node).await)),
        ("DELETE", ["hinted_handoff", "hints"]) => drop_hints(node, call).await,
        ("POST", ["hinted_handoff", "pause"]) => pause(node, call).await,
        ("POST", ["hinted_handoff", "sync_point"]) => sync_points::make(node, call),
        ("GET", ["hinted_handoff", "sync_point"]) => sync_points::status(node, call).await,
        _ => return None,
    })
}

/// How many hints are stored.
pub(super) async fn count(node: &Rc<dyn Node>) -> Value {
    json!(node.pending_hints().await.values().map(|hints| hints.count).sum::<u64>())
}

/// The address of a node for other nodes, its datacenter and rack, and whether it is up; none for a former member.
fn member(node: &Rc<dyn Node>, host: HostId) -> Option<(String, String, String, bool)> {
    let view = node.view();
    let found = view.nodes().iter().find(|member| member.host == host)?;
    let location = &found.location;
    let address = found.internode.ip().to_string();
    Some((address, location.datacenter.clone(), location.rack.clone(), found.alive))
}

async fn stored(node: &Rc<dyn Node>) -> Value {
    let mut all = Vec::new();
    for (host, figures) in node.pending_hints().await {
        let member = member(node, host);
        let text = |of: fn(&(String, String, String, bool)) -> &String| {
            member.as_ref().map_or("Unknown".to_owned(), |member| of(member).clone())
        };
        all.push(json!({
            "host_id": uuid(&host.0),
            "address": text(|member| &member.0),
            "datacenter": text(|member| &member.1),
            "rack": text(|member| &member.2),
            "status": match &member {
                Some((.., true)) => "UP",
                Some((.., false)) => "DOWN",
                None => "Unknown",
            },
            "hints": figures.count,
            "bytes": figures.bytes,
            "files": figures.files,
            "newest_ms": figures.newest_micros / 1_000,
            "oldest_ms": figures.oldest_micros / 1_000,
        }));
    }
    json!(all)
}

async fn addresses(node: &Rc<dyn Node>) -> Value {
    let hosts = node.pending_hints().await;
    json!(hosts.keys().filter_map(|host| member(node, *host)).map(|member| member.0).collect::<Vec<_>>())
}

async fn drop_hints(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let view = node.view();
    let find = |address| {
        let unknown = || Answer::error(404, format!("there is no node {address} in the cluster"));
        names::member(&view, address).map(|member| member.host).ok_or_else(unknown)
    };
    let host = names::given(call, "host").map(find).transpose()?;
    node.drop_hints(host).await;
    Ok(Answer::done())
}

async fn pause(node: &Rc<dyn Node>, call: &Call) -> Result<Answer, Answer> {
    let is_paused = match call.parameter("pause") {
        Some("true") => true,
        Some("false") => false,
        Some(other) => return Err(Answer::error(400, format!("pause is {other}; it must be true or false"))),
        None => return Err(names::mandatory(call, "pause").expect_err("it is missing")),
    };
    node.pause_hints(is_paused).await;
    Ok(Answer::done())
}

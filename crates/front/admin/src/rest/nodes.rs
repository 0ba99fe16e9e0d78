//! The nodes of the cluster, each by itself: two that share an address are two here, as the lists by address cannot show.

use std::rc::Rc;

use coordinator::{Phase, ViewNode};
use gossip::{Key, Standing};
use serde_json::{Value, json};

use super::{figures, ring};
use crate::uuid;
use crate::{Answer, ClientFigures, Node};

/// The connections of clients.
pub(super) async fn clients(node: &Rc<dyn Node>) -> Value {
    let one = |client: ClientFigures| {
        let [driver_name, driver_version] = client.driver;
        json!({
            "address": client.address.to_string(), "ssl": client.encrypted, "protocol_version": client.protocol_version,
            "username": client.username, "keyspace": client.keyspace, "requests": client.requests,
            "driver_name": driver_name, "driver_version": driver_version,
        })
    };
    json!(node.clients().await.into_iter().map(one).collect::<Vec<_>>())
}

/// Every member, and those that are about to become one: address, state, load. `owns` is its part of the ring's
/// tokens without a keyspace, of the keyspace's replicas with one.
pub(super) async fn nodes(node: &Rc<dyn Node>, keyspace: Option<&str>) -> Result<Value, Answer> {
    if let Some(unknown) = keyspace.filter(|name| node.schema().keyspace(name).is_none()) {
        return Err(Answer::error(404, format!("The keyspace {unknown}, does not exist")));
    }
    let own_load = figures::load(node).await;
    let (view, gossiped) = (node.view(), ring::gossiped(node));
    let owned = ring::shares(node, keyspace)?;
    let mut all = Vec::new();
    for ((index, of), owns) in view.indexes().zip(view.nodes()).zip(owned) {
        if ring::has_left(node, of) {
            continue;
        }
        let gossiped_load = || gossiped.get(&of.host).and_then(|(endpoint, _)| ring::load_of(endpoint));
        let load = if index == view.own() { Some(own_load as f64) } else { gossiped_load() };
        // A joining node owns nothing until it has joined.
        let owns = (of.phase != Phase::Joining).then_some(owns);
        all.push(member(of, index == view.own() || of.alive, load, owns));
    }
    for joins in ring::joining(node) {
        let text = |key| joins.text(key).unwrap_or_default().to_owned();
        let standing = gossiped.get(&joins.host).map(|(_, standing)| *standing);
        all.push(json!({
            "host_id": uuid(&joins.host.0),
            "address": joins.address.ip().to_string(),
            "port": joins.address.port(),
            "datacenter": text(Key::DC),
            "rack": text(Key::RACK),
            "up": standing == Some(Standing::Alive),
            "state": "joining",
            "load": ring::load_of(&joins),
            "owns": null,
            "tokens": [],
        }));
    }
    Ok(json!(all))
}

fn member(of: &ViewNode, up: bool, load: Option<f64>, owns: Option<f64>) -> Value {
    let mut tokens = of.tokens.clone();
    tokens.sort_unstable();
    let state = match of.phase {
        Phase::Normal => "normal",
        Phase::Joining => "joining",
        Phase::Leaving | Phase::Removing => "leaving",
    };
    json!({
        "host_id": uuid(&of.host.0),
        "address": ring::name(of),
        "port": of.internode.port(),
        "datacenter": of.location.datacenter,
        "rack": of.location.rack,
        "up": up,
        "state": state,
        "load": load,
        "owns": owns,
        "tokens": tokens.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
